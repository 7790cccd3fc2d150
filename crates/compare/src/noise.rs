//! What rounding can do: the floor below which a difference says nothing.
//!
//! A pair has four measures ([`Measures`]), each relative to the reference's own scale.
//!
//! The floor of each is a multiple of the unit roundoff of the coarser dtype plus what summing `k` terms in single precision adds,
//! `sqrt(k) * 2^-24`. Upstream error raises it: an op passes on what it is given, a little amplified ([`AMPLIFICATION`]).
//!
//! The multiples were set on recorded runs of small transformers (f32, bf16 and f16, other summation orders, f64 against f32):
//! healthy pairs stayed below 2 times the larger of floor and upstream level in all four measures, the gentlest fault (a missing query
//! bias under bf16 noise) was at 11 to 26 times.

pub use twinscope_measure::rounding::{
    Measures, Rowwise, floor_unit, least_step, measures, smallest, unit_roundoff,
};
use twinscope_names::role::{self, Angles};
use twinscope_tensor::{DType, Operand};

/// Multiples of the unit roundoff that one op's rounding stays below. The rms of one rounding is u/sqrt(3); a few of them in a row, and
/// cancellation, make 4 to 5 in healthy runs. Slices and elements are extremes, so theirs are larger.
const FLOOR: Measures = [8.0, 8.0, 16.0, 32.0];

/// No rounding of one op is beyond these, however coarse the dtype: unrelated values are 1.4 apart, a zeroed slice 1. Eight-bit floats are
/// 0.04 to 0.07 off as a whole when they are stored, and 0.1 when they are multiplied.
pub const MOST: Measures = [0.25, 0.25, 0.5, 1.0];

/// How much an op may amplify what it is given. Healthy runs showed 1.8 at most; cancellation in a residual stream can do more.
pub const AMPLIFICATION: f64 = 5.0;

/// What rounding once can do, in unit roundoffs: to the nearest no value is off by more than one, towards zero by two, where they seldom all are.
const ONCE: Measures = [1.0, 1.0, 2.0, 2.0];

/// The floor of a parameter that is kept in one dtype on one side and in a coarser one on the other: it was rounded, and nothing computed. A weight
/// that is one percent too large is within what a few ops in bf16 make of a result. `None` where both have the same digits, and for dtypes that
/// have a scale or lose small numbers.
pub fn once(dtypes: [DType; 2]) -> Option<Measures> {
    let plain = |dtype: DType| matches!(dtype, DType::F64 | DType::F32 | DType::Bf16);
    let [one, other] = [unit_roundoff(dtypes[0])?, unit_roundoff(dtypes[1])?];
    (dtypes.into_iter().all(plain) && one != other)
        .then(|| ONCE.map(|units| units * one.max(other)))
}

/// The floor of a pair whose sides have these dtypes; `reduction` is the longest sum that may have made one of its elements.
pub fn floor(dtypes: [DType; 2], reduction: u64) -> Option<Measures> {
    let unit = floor_unit(dtypes[0])?.max(floor_unit(dtypes[1])?);
    // Sums are kept in single precision or better, whatever the outputs are rounded to.
    let summing = (reduction as f64).sqrt() * unit.min(2f64.powi(-24));
    Some(std::array::from_fn(|i| {
        (FLOOR[i] * unit + summing * FLOOR[i] / FLOOR[0]).min(MOST[i])
    }))
}

/// What rounding of angles can do, as multiples of the largest angle's: a table of `cos(p · θ)` in single precision is off by the rounding of
/// `p · θ`, which no output dtype shows. At 4096 positions rotated queries were 1.4e-5 off as a whole and 4.8e-4 in one element, which is
/// 0.06 and 2 of these.
const TURNED: Measures = [0.5, 0.5, 1.0, 4.0];

/// Of what is computed from rotated queries and keys. At 3072 positions, all of them attended to alike, 0.2 was needed.
const ATTENDED: f64 = 0.3;

/// The largest time of an embedding: a sine of a thousand in single precision is off by the rounding of a thousand.
const LARGEST_TIME: f64 = 1000.0;

/// The rounding of the largest angle of a tensor that is rotated by its position, or computed from such ones, told by its names; else 0.
/// A table in f64 beside one in f32 is the usual reason for a difference that grows with the position.
pub fn angle(names: &[&str], shape: &[u64]) -> f64 {
    let factor = match Angles::of(names) {
        Some(Angles::Time) => return LARGEST_TIME * 2f64.powi(-24),
        Some(Angles::Rotated) => 1.0,
        Some(Angles::Attended) => ATTENDED,
        None => return 0.0,
    };
    // Whatever the layout, one of the axes before the last has the positions.
    let positions = shape
        .split_last()
        .map_or(0, |(_, rest)| rest.iter().copied().max().unwrap_or(0));
    factor * positions as f64 * 2f64.powi(-24)
}

/// A floor raised by the rounding of angles.
pub fn turned(floor: &Measures, angle: f64) -> Measures {
    std::array::from_fn(|i| (floor[i] + TURNED[i] * angle).min(MOST[i].max(floor[i])))
}

/// How many times the whole tensor's error its worst element's may be. The largest of `n` bell-shaped errors is `sqrt(2 ln n)` times their rms;
/// sums that were large on the way have rounded more than others. 64 gradients added up in bf16 in another order had 8.3 of 16,384 elements,
/// where the bell has 4.4. It only counts where the whole tensor is rounding: one wrong value among many leaves the whole small.
pub fn extreme(count: u64) -> f64 {
    2.0 * (2.0 * (count.max(1) as f64).ln()).sqrt()
}

/// The sum that a moving average is as bad as: every step multiplies what is there with a decay that is rounded to single precision, always
/// to the same side, so errors add up in proportion to the steps that count, a thousand for the usual 0.999, and not to their root.
const MOVING_AVERAGE: u64 = 1_000_000;

/// The longest sum that an optimizer's state counts as, by its name; 0 for what is none.
pub fn averaged(name: &str) -> u64 {
    if role::is_optimizer_state(name) {
        MOVING_AVERAGE
    } else {
        0
    }
}

/// How far apart the logits of probabilities are, the rows along the last axis being such; `None` for anything else.
///
/// A softmax makes of an error `d` of a logit the *relative* error `d` of a probability: rounding that is small beside the logits is so many
/// times larger beside the probabilities as the logits are large. Their spread is what the probabilities themselves tell of that. Logits of 16 in bf16
/// are off by 0.03, and so are probabilities, by three percent.
pub fn spread(reference: &dyn Operand) -> Option<f64> {
    // A probability is one number.
    (reference.dtype().values_per_element() == 1).then_some(())?;
    let (&width, outer) = reference.shape().dims().split_last()?;
    let rows = outer
        .iter()
        .try_fold(1u64, |product, dim| product.checked_mul(*dim))?;
    if !(2..=LONGEST_ROW).contains(&width)
        || rows == 0
        || unit_roundoff(reference.dtype()).is_none()
    {
        return None;
    }
    let (mut scratch, mut row, mut spread) = (Vec::new(), Vec::new(), 0f64);
    let looked_at = rows.min(ROWS);
    // A few values rule out nearly everything else.
    if !reference.f64_values(0, width.min(FEW) as usize, &mut scratch, &mut row)
        || row.iter().any(|value| !(0.0..=1.0).contains(value))
    {
        return None;
    }
    for nth in 0..looked_at {
        if !reference.f64_values(
            nth * (rows / looked_at) * width,
            width as usize,
            &mut scratch,
            &mut row,
        ) {
            return None;
        }
        let sum: f64 = row.iter().sum();
        if !row.iter().all(|value| (0.0..=1.0).contains(value)) || (sum - 1.0).abs() > SUM_OFF {
            return None;
        }
        let positive = row.iter().copied().filter(|value| *value > 0.0);
        let (least, most) = positive.fold((f64::INFINITY, 0f64), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        spread = spread.max((most / least).ln());
    }
    (spread > 0.0).then_some(spread)
}

/// Rows that are looked at, and how long they may be.
const ROWS: u64 = 8;
const LONGEST_ROW: u64 = 1 << 20;
const FEW: u64 = 64;
/// How far from 1 the sum of rounded probabilities may be.
const SUM_OFF: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarser_side_sets_the_floor() {
        let mixed = floor([DType::F32, DType::Bf16], 0).unwrap();
        assert_eq!(mixed, floor([DType::Bf16, DType::Bf16], 0).unwrap());
        assert!(mixed[0] > 1000.0 * floor([DType::F32, DType::F32], 0).unwrap()[0]);
        assert_eq!(floor([DType::I64, DType::F32], 0), None);
    }

    #[test]
    fn long_sums_raise_the_floor_of_single_precision_and_hardly_that_of_bf16() {
        let raised =
            |dtype| floor([dtype; 2], 16384).unwrap()[0] / floor([dtype; 2], 0).unwrap()[0];
        assert!(raised(DType::F32) > 10.0);
        assert!(raised(DType::Bf16) < 1.01);
    }

    #[test]
    fn rotated_tensors_have_the_rounding_of_their_angles() {
        let single = floor([DType::F32; 2], 64).unwrap();
        let rotated = turned(&single, angle(&["0_query_rotary"], &[1, 4, 4096, 64]));
        assert!(rotated[0] > 1.0e-4 && rotated[3] > 4.8e-4, "{rotated:?}");
        // A base of 10001 instead of 10000 is above it at any length: its angles differ by 1e-4 / 32 of the second fastest one.
        assert!(rotated[0] < 4096.0 * 0.75 * 1e-4 / 32.0 / 3f64.sqrt());
        assert_eq!(
            turned(&single, angle(&["0_query"], &[1, 4, 4096, 64])),
            single
        );
        let attended = angle(
            &["model.layers.0.self_attn.o_proj", "blk.0.out"],
            &[1, 4096, 256],
        );
        assert!(attended > 0.0 && attended < 1e-4);
        assert_eq!(angle(&["rope"], &[]), 0.0);
        let time = turned(&single, angle(&["unet.time_proj"], &[2, 320]));
        // Sines of 900 in f32 beside f64 were 3.3e-6 off as a whole; the next time is off by more than 1.
        assert!(time[0] > 3.3e-6 && time[0] < 1e-4, "{time:?}");
        assert_eq!(angle(&["input_embeds", "runtime_embed"], &[2, 320]), 0.0);
        let coarse = floor([DType::Bf16; 2], 64).unwrap();
        assert!(
            turned(&coarse, angle(&["rope"], &[4096, 64]))[0] < 1.01 * coarse[0],
            "bf16 is coarser than that"
        );
    }

    #[test]
    fn no_dtype_is_so_coarse_that_a_wrong_slice_is_rounding() {
        for dtype in [
            DType::F8E4M3Fn,
            DType::F8E5M2,
            DType::F4E2M1FnX2,
            DType::F8E8M0Fnu,
        ] {
            let floor = floor([DType::F32, dtype], 4096).unwrap();
            assert!(floor[0] < 1.0 && floor[2] < 1.0, "{dtype}: {floor:?}");
        }
        assert_eq!(
            floor([DType::Bf16; 2], 0).unwrap(),
            FLOOR.map(|multiple| multiple / 512.0),
            "nothing changes for finer ones"
        );
    }

    fn f32s(dims: &[u64], values: &[f32]) -> twinscope_tensor::View {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        twinscope_tensor::View::new(DType::F32, dims.to_vec().into(), bytes.into()).unwrap()
    }

    #[test]
    fn probabilities_tell_how_far_apart_their_logits_are() {
        let logits: Vec<f64> = (0..40).map(|at| f64::from(at % 10) * 2.0).collect();
        let sum: f64 = logits[..10].iter().map(|logit| logit.exp()).sum();
        let probabilities: Vec<f32> = logits
            .iter()
            .map(|logit| (logit.exp() / sum) as f32)
            .collect();
        let found = spread(&f32s(&[4, 10], &probabilities)).unwrap();
        assert!((found - 18.0).abs() < 1e-3, "{found}");
        assert_eq!(spread(&f32s(&[40], &probabilities)), None, "the sum is 4");
        let negative: Vec<f32> = probabilities.iter().map(|value| -value).collect();
        assert_eq!(spread(&f32s(&[4, 10], &negative)), None);
        assert_eq!(
            spread(&f32s(&[2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0])),
            None,
            "one choice each: no logits to speak of"
        );
        assert_eq!(spread(&f32s(&[], &[1.0])), None);
    }

    #[test]
    fn optimizer_states_are_as_bad_as_long_sums_and_other_names_are_not() {
        assert!(averaged("state.0.exp_avg_sq") > 0 && averaged("optimizer/momentum_buffer/w") > 0);
        assert_eq!(averaged("0_query") + averaged("layers.0.avg_pool"), 0);
        let floor = floor([DType::F32; 2], averaged("exp_avg")).unwrap();
        // 0.999 in single precision is 1.3e-8 off; a thousand steps make 1.3e-5 of that. A wrong decay is in percents.
        assert!(floor[0] > 3e-5 && floor[3] < 1e-3, "{floor:?}");
    }
}
