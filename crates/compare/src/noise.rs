//! What rounding can do: the floor below which a difference says nothing.
//!
//! Four measures of one pair, each sensitive to what the others average away, each relative to the reference's own scale:
//!
//! | measure | of the pair | catches |
//! | --- | --- | --- |
//! | `whole` | `‖c - r‖ / ‖r‖` | a wrong scale, a wrong op |
//! | `typical` | the median over the slices of an axis of their own relative error, largest over the axes | garbage everywhere but in one outlier channel |
//! | `slice` | the largest relative error of any slice of any axis | one broken head, token or batch row |
//! | `element` | the largest `|c - r| / max(|r|, local rms, rms of its channel)` | one wrong value |
//!
//! The floor of each is a multiple of the unit roundoff of the coarser dtype plus what summing `k` terms in single precision adds,
//! `sqrt(k) * 2^-24`. Upstream error raises it: an op passes on what it is given, a little amplified ([`AMPLIFICATION`]).
//!
//! The multiples were set on recorded runs of small transformers (f32, bf16 and f16, other summation orders, f64 against f32):
//! healthy pairs stayed below 2 times the larger of floor and upstream level in all four measures, the gentlest fault (a missing query
//! bias under bf16 noise) was at 11 to 26 times.

use twinscope_measure::{Profile, Totals};
use twinscope_names::role::{self, Angles};
use twinscope_tensor::{DType, Kind, Operand, Packing};

/// The four measures, in the order of the table.
pub type Measures = [f64; 4];

/// Multiples of the unit roundoff that one op's rounding stays below. The rms of one rounding is u/sqrt(3); a few of them in a row, and
/// cancellation, make 4 to 5 in healthy runs. Slices and elements are extremes, so theirs are larger.
const FLOOR: Measures = [8.0, 8.0, 16.0, 32.0];

/// No rounding of one op is beyond these, however coarse the dtype: unrelated values are 1.4 apart, a zeroed slice 1. Eight-bit floats are
/// 0.04 to 0.07 off as a whole when they are stored, and 0.1 when they are multiplied.
pub(crate) const MOST: Measures = [0.25, 0.25, 0.5, 1.0];

/// How much an op may amplify what it is given. Healthy runs showed 1.8 at most; cancellation in a residual stream can do more.
pub const AMPLIFICATION: f64 = 5.0;

/// A slice whose own norm is below this fraction of the typical slice is measured against the typical one: nearly empty channels have no
/// scale of their own. Nor have slices of a few elements, which may be small by chance: of `n` elements the fraction is `1 / sqrt(n)`
/// where that is more.
const QUIET_SLICE: f64 = 0.1;

/// Half the distance from 1 to the next value, or `None` for what is compared exactly.
pub fn unit_roundoff(dtype: DType) -> Option<f64> {
    let bits = match dtype {
        DType::F64 | DType::C128 => 53,
        DType::F80 | DType::C160 => 64,
        DType::F32 | DType::C64 => 24,
        DType::F16 | DType::C32 => 11,
        DType::Bf16 | DType::Bc32 => 8,
        DType::F8E4M3Fn | DType::F8E4M3Fnuz | DType::F6E2M3 => 4,
        DType::F8E5M2 | DType::F8E5M2Fnuz | DType::F6E3M2 => 3,
        DType::F4 | DType::F4E2M1FnX2 | DType::OnnxF4 => 2,
        DType::F8E8M0Fnu => 1,
        // A scale shared by a block spends the bits evenly: the step is the block's range over 2^bits, and the range is a few rms.
        DType::Block(block) => {
            return Some(
                0.25 * 2f64.powf(-(8.0 * block.bytes() as f64 / block.elements() as f64).floor()),
            );
        }
        DType::QI8 | DType::QU8 => 8,
        DType::QI32 => 24,
        DType::QU4X2 => 4,
        DType::QU2X4 => 2,
        other => {
            debug_assert!(matches!(
                other.kind(),
                Kind::Bool | Kind::Int | Kind::Opaque
            ));
            debug_assert!(!matches!(other.packing(), Packing::Block { .. }));
            return None;
        }
    };
    Some(2f64.powi(-bits))
}

/// The distance of the smallest numbers of a dtype: below, nothing is told apart. 0 where numbers come with a scale of their own.
pub fn least_step(dtype: DType) -> f64 {
    let exponent = match dtype {
        DType::F64 | DType::C128 => return f64::from_bits(1),
        DType::F32 | DType::C64 => -149,
        DType::Bf16 | DType::Bc32 => -133,
        DType::F16 | DType::C32 => -24,
        DType::F8E5M2 => -16,
        DType::F8E5M2Fnuz => -17,
        DType::F8E4M3Fn => -9,
        DType::F8E4M3Fnuz => -10,
        _ => return 0.0,
    };
    2f64.powi(exponent)
}

/// The smallest number of a dtype that has all its digits; 0 where there is none.
pub fn smallest(dtype: DType) -> f64 {
    unit_roundoff(dtype).map_or(0.0, |unit| least_step(dtype) / (2.0 * unit))
}

/// What the multiples of floors are of: the unit roundoff, for bf16 half of it.
///
/// Sums in bf16 are kept in single precision and rounded once, sums in f32 round at every term. In 60 healthy small transformers of 14 kinds
/// the first layer's `whole` reached 3.4 unit roundoffs in bf16 (against f32, and under another summation order), 1.9 in f16 and 7.6 in f32:
/// the 8 of [`FLOOR`] is just enough for f32 and twice too much for bf16, where faults of a few percent would hide below it.
pub(crate) fn floor_unit(dtype: DType) -> Option<f64> {
    let unit = unit_roundoff(dtype)?;
    Some(if matches!(dtype, DType::Bf16 | DType::Bc32) {
        unit / 2.0
    } else {
        unit
    })
}

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

/// The four measures of a pair. Infinite where the reference is zero and the candidate is not.
pub fn measures(totals: &Totals) -> Measures {
    if totals.differing == 0 {
        return [0.0; 4];
    }
    let whole = totals.rel_l2.unwrap_or(f64::INFINITY);
    let (mut typical, mut slice) = (0f64, 0f64);
    // Zeros on both sides (behind a relu, a mask) say nothing of a slice's scale: one value among them is no slice but an element.
    let counting = totals
        .count
        .saturating_sub(totals.reference.zero.min(totals.candidate.zero));
    for profile in &totals.profiles {
        let (median, worst) = relative(profile, counting);
        typical = typical.max(median);
        if each(profile, counting) >= SLICE {
            slice = slice.max(worst);
        }
    }
    [whole, typical, slice.max(whole), element(totals)]
}

/// How many times a channel may be louder than what is around an element before that no longer excuses it.
const LOUD_CHANNEL: f64 = 16.0;

/// Profiles of more elements are sampled: an element they missed must not be excused by those they saw.
const EXACT_PROFILE: u64 = 1 << 20;

/// The largest error of an element, against the larger of the scales of its surroundings and of its channel (the last axis).
///
/// Trained transformers have a few channels a hundred times louder than the rest. Where such a channel happens to come out small, its
/// sum has cancelled, and its rounding is that of its terms: MiniLM in candle against torch has elements 3000 units off beside neighbours
/// at 200, all of them in one channel.
fn element(totals: &Totals) -> f64 {
    let local = totals.max_local.unwrap_or(f64::INFINITY);
    let channels = totals
        .profiles
        .iter()
        .max_by_key(|profile| profile.axis)
        .filter(|_| totals.count <= EXACT_PROFILE);
    match channels.and_then(|profile| against_channels(profile, totals.count)) {
        Some(channel) => local.min(channel.max(local / LOUD_CHANNEL)),
        None => local,
    }
}

/// The largest error of any element over the rms of its channel, or of the typical channel where that is larger.
fn against_channels(channels: &Profile, count: u64) -> Option<f64> {
    let len = channels.energy.len();
    let each = count as f64 / len as f64;
    if len < 2 || each < 2.0 || channels.max_abs.len() != len {
        return None;
    }
    let typical = median(&mut channels.energy.clone());
    let ratios = channels
        .max_abs
        .iter()
        .zip(&channels.energy)
        .filter(|(error, _)| **error > 0.0);
    ratios
        .map(|(error, energy)| error / (energy.max(typical) / each).sqrt())
        .reduce(f64::max)
}

/// Fewer elements than this are no slice but elements, and measured as such: their errors do not average out.
const SLICE: f64 = 8.0;

/// How many elements a slice has.
fn each(profile: &Profile, count: u64) -> f64 {
    count as f64 / profile.energy.len().max(1) as f64
}

/// Median and maximum of the relative errors of an axis's slices, of `count` elements together.
fn relative(profile: &Profile, count: u64) -> (f64, f64) {
    of_slices(&profile.error, &profile.energy, each(profile, count))
}

/// Median and maximum of the relative errors of slices of `each` elements, from the sums of squares of their errors and of their values.
fn of_slices(error: &[f64], energy: &[f64], each: f64) -> (f64, f64) {
    // The median, not the mean: one outlier channel must not make all the others look quiet.
    let quiet = (QUIET_SLICE * QUIET_SLICE).max(1.0 / each.max(1.0)) * median(&mut energy.to_vec());
    let mut errors: Vec<f64> = error
        .iter()
        .zip(energy)
        .filter(|(error, energy)| **error > 0.0 || **energy > 0.0)
        .map(|(error, energy)| (error / energy.max(quiet)).sqrt())
        .map(|error| if error.is_nan() { f64::INFINITY } else { error })
        .collect();
    (
        median(&mut errors),
        errors.iter().copied().fold(0.0, f64::max),
    )
}

/// The four measures of arrays that no file holds, what an explanation predicts say: taken in row by row, a row being as long as the last
/// dimension, so that neither has to exist as a whole.
///
/// Elements are measured against the larger of their own size and the typical one. What is not finite on both sides alike makes all four infinite.
#[derive(Clone, Debug)]
pub struct Rowwise {
    dims: Vec<usize>,
    typical: f64,
    rows: Squares,
    columns: Squares,
    element: f64,
    broken: bool,
}

/// Sums of squares, of errors and of values.
#[derive(Clone, Debug)]
struct Squares {
    error: Vec<f64>,
    energy: Vec<f64>,
}

impl Squares {
    fn of(count: usize) -> Self {
        Self {
            error: vec![0.0; count],
            energy: vec![0.0; count],
        }
    }

    fn add(&mut self, at: usize, error: f64, energy: f64) {
        self.error[at] += error;
        self.energy[at] += energy;
    }
}

/// Elements whose sums are kept apart, so that the processor adds them at once.
const LANES: usize = 8;

impl Rowwise {
    /// `typical` is the rms of what is measured.
    pub fn new(dims: &[usize], typical: f64) -> Self {
        let width = dims.last().copied().unwrap_or(1).max(1);
        let rows = dims.iter().product::<usize>() / width;
        let (rows, columns) = (Squares::of(rows), Squares::of(width));
        Self {
            dims: dims.to_vec(),
            typical,
            rows,
            columns,
            element: 0.0,
            broken: false,
        }
    }

    /// Rows from `first` on, both sides.
    pub fn add(&mut self, first: usize, reference: &[f64], candidate: &[f64]) {
        let width = self.columns.error.len();
        for (nth, (reference, candidate)) in reference
            .chunks_exact(width)
            .zip(candidate.chunks_exact(width))
            .enumerate()
        {
            let (error, energy) = self
                .add_row(reference, candidate)
                .unwrap_or_else(|| self.add_odd_row(reference, candidate));
            self.rows.add(first + nth, error, energy);
        }
    }

    /// The sums of a row of finite values; of any other nothing, and nothing is added.
    fn add_row(&mut self, reference: &[f64], candidate: &[f64]) -> Option<(f64, f64)> {
        let (mut error, mut energy, mut worst) = ([0.0; LANES], [0.0; LANES], [0f64; LANES]);
        let both = reference.chunks(LANES).zip(candidate.chunks(LANES));
        for (reference, candidate) in both {
            for (lane, (r, c)) in reference.iter().zip(candidate).enumerate() {
                let off = c - r;
                error[lane] += off * off;
                energy[lane] += r * r;
                let relative = off.abs() / r.abs().max(self.typical);
                worst[lane] = if relative > worst[lane] {
                    relative
                } else {
                    worst[lane]
                };
            }
        }
        let (error, energy): (f64, f64) = (error.iter().sum(), energy.iter().sum());
        if !error.is_finite() || !energy.is_finite() {
            return None;
        }
        let columns = self
            .columns
            .error
            .iter_mut()
            .zip(&mut self.columns.energy)
            .zip(reference.iter().zip(candidate));
        for ((error, energy), (r, c)) in columns {
            *error += (c - r) * (c - r);
            *energy += r * r;
        }
        self.element = worst.into_iter().fold(self.element, f64::max);
        Some((error, energy))
    }

    fn add_odd_row(&mut self, reference: &[f64], candidate: &[f64]) -> (f64, f64) {
        let (mut error, mut energy) = (0.0, 0.0);
        for (column, (r, c)) in reference.iter().zip(candidate).enumerate() {
            let same = (r.is_nan() && c.is_nan()) || (r.is_infinite() && r == c);
            let off = if same { 0.0 } else { c - r };
            let square = if r.is_finite() { r * r } else { 0.0 };
            self.broken |= !off.is_finite();
            self.columns.add(column, off * off, square);
            (error, energy) = (error + off * off, energy + square);
            let size = if r.is_finite() {
                r.abs().max(self.typical)
            } else {
                self.typical
            };
            self.element = if off == 0.0 {
                self.element
            } else {
                self.element.max(off.abs() / size)
            };
        }
        (error, energy)
    }

    pub fn measures(&self) -> Measures {
        if self.broken {
            return [f64::INFINITY; 4];
        }
        let (error, energy): (f64, f64) =
            (self.rows.error.iter().sum(), self.rows.energy.iter().sum());
        let whole = if error == 0.0 {
            0.0
        } else {
            (error / energy).sqrt()
        };
        let (mut typical, mut worst) = (0f64, whole);
        let count = self.rows.error.len() * self.columns.error.len();
        let mut axis = |squares: &Squares| {
            let each = count as f64 / squares.error.len() as f64;
            let (median, largest) = of_slices(&squares.error, &squares.energy, each);
            typical = typical.max(median);
            worst = if each >= SLICE {
                worst.max(largest)
            } else {
                worst
            };
        };
        let (&width, outer) = self.dims.split_last().unwrap_or((&1, &[]));
        if width > 1 {
            axis(&self.columns);
        }
        for (nth, &along) in outer.iter().enumerate().filter(|(_, along)| **along > 1) {
            let inside: usize = outer[nth + 1..].iter().product();
            let mut slices = Squares::of(along);
            for (row, (error, energy)) in self.rows.error.iter().zip(&self.rows.energy).enumerate()
            {
                slices.add(row / inside % along, *error, *energy);
            }
            axis(&slices);
        }
        [whole, typical, worst, self.element]
    }
}

/// 0 of nothing.
fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

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
    fn the_smallest_numbers_of_a_dtype_are_its_own() {
        assert_eq!(
            (least_step(DType::F32), smallest(DType::F32)),
            (f64::from(f32::from_bits(1)), f64::from(f32::MIN_POSITIVE))
        );
        assert_eq!(
            (least_step(DType::F64), smallest(DType::F64)),
            (f64::from_bits(1), f64::MIN_POSITIVE)
        );
        assert_eq!(
            (least_step(DType::F16), smallest(DType::F16)),
            (2f64.powi(-24), 2f64.powi(-14))
        );
        assert_eq!(
            (
                smallest(DType::Bf16),
                smallest(DType::F8E4M3Fn),
                smallest(DType::F8E5M2)
            ),
            (2f64.powi(-126), 2f64.powi(-6), 2f64.powi(-14))
        );
        assert_eq!((smallest(DType::I64), smallest(DType::QI8)), (0.0, 0.0));
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

    /// 256 channels of 10 elements with rms 1, one of them a hundred times louder.
    fn one_loud_channel(error_at: usize, error: f64, max_local: f64) -> Totals {
        let mut energy = vec![10.0; 256];
        energy[7] = 1e5;
        let mut max_abs = vec![1e-7; 256];
        max_abs[error_at] = error;
        let errors = max_abs.iter().map(|error| error * error).collect();
        let profile = Profile {
            axis: 2,
            error: errors,
            energy,
            max_abs,
            ..Profile::default()
        };
        Totals {
            count: 2560,
            differing: 1,
            rel_l2: Some(1e-7),
            max_local: Some(max_local),
            profiles: vec![profile],
            ..Totals::default()
        }
    }

    #[test]
    fn an_element_of_a_loud_channel_is_measured_against_its_channel() {
        let close = |found: f64, wanted: f64| {
            assert!(
                (found / wanted - 1.0).abs() < 1e-9,
                "{found} instead of {wanted}"
            )
        };
        close(measures(&one_loud_channel(7, 1e-3, 1e-4))[3], 1e-5);
        // Anywhere else the surroundings count, and no channel excuses everything.
        close(measures(&one_loud_channel(8, 1e-3, 1e-3))[3], 1e-3);
        close(
            measures(&one_loud_channel(7, 1e-3, 1.0))[3],
            1.0 / LOUD_CHANNEL,
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

    #[test]
    fn a_single_token_is_not_judged_by_its_smallest_channel() {
        // 64 channels of one element; one of them came out near zero, off by as much as the others.
        let mut energy = vec![1.0; 64];
        energy[9] = 1e-6;
        let profile = |energy: &[f64]| Profile {
            axis: 1,
            error: vec![1e-12; 64],
            energy: energy.to_vec(),
            ..Profile::default()
        };
        let totals = |count: u64| Totals {
            count,
            differing: 1,
            rel_l2: Some(1e-6),
            max_local: Some(1e-6),
            profiles: vec![profile(&energy)],
            ..Totals::default()
        };
        assert!(
            (measures(&totals(64))[2] - 1e-6).abs() < 1e-12,
            "only the element measure looks at single elements"
        );
        assert!(
            measures(&totals(64 * 1000))[2] > 9e-6,
            "a thousand elements are not small by chance"
        );
    }

    fn rowwise(dims: &[usize], reference: &[f64], candidate: &[f64]) -> Measures {
        let rms = (reference
            .iter()
            .filter(|r| r.is_finite())
            .map(|r| r * r)
            .sum::<f64>()
            / reference.len() as f64)
            .sqrt();
        let mut state = Rowwise::new(dims, rms);
        state.add(0, reference, candidate);
        state.measures()
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
    fn a_slice_of_zeros_and_one_small_value_is_judged_by_that_element() {
        // Behind a relu: 32 rows of 16, most of them with one value, one of which is small by chance.
        let mut energy = vec![1.0; 32];
        energy[9] = 1e-4;
        let profile = Profile {
            axis: 0,
            error: vec![1e-14; 32],
            energy,
            ..Profile::default()
        };
        let mut totals = Totals {
            count: 512,
            differing: 32,
            rel_l2: Some(1e-7),
            max_local: Some(1e-7),
            profiles: vec![profile],
            ..Totals::default()
        };
        assert!(
            measures(&totals)[2] > 3e-7,
            "sixteen values of a row are not small by chance"
        );
        (totals.reference.zero, totals.candidate.zero) = (480, 480);
        assert!(measures(&totals)[2] <= 1e-7);
        totals.candidate.zero = 0;
        assert!(
            measures(&totals)[2] > 3e-7,
            "zeros of one side are a difference"
        );
    }

    #[test]
    fn optimizer_states_are_as_bad_as_long_sums_and_other_names_are_not() {
        assert!(averaged("state.0.exp_avg_sq") > 0 && averaged("optimizer/momentum_buffer/w") > 0);
        assert_eq!(averaged("0_query") + averaged("layers.0.avg_pool"), 0);
        let floor = floor([DType::F32; 2], averaged("exp_avg")).unwrap();
        // 0.999 in single precision is 1.3e-8 off; a thousand steps make 1.3e-5 of that. A wrong decay is in percents.
        assert!(floor[0] > 3e-5 && floor[3] < 1e-3, "{floor:?}");
    }

    #[test]
    fn measured_row_by_row_a_broken_head_a_token_and_a_channel_show() {
        let dims = [2, 3, 10, 16];
        let reference: Vec<f64> = (0..960).map(|at| 1.0 + f64::from(at % 7)).collect();
        for slice in [
            |at: usize| at / 160 % 3 == 1,
            |at: usize| at / 16 % 10 == 4,
            |at: usize| at % 16 == 9,
        ] {
            let candidate: Vec<f64> = reference
                .iter()
                .enumerate()
                .map(|(at, r)| if slice(at) { 0.0 } else { *r })
                .collect();
            let [whole, typical, worst, element] = rowwise(&dims, &reference, &candidate);
            assert!(
                (worst - 1.0).abs() < 1e-12 && whole < 0.7 && typical < 0.7 && element <= 1.0,
                "{whole} {typical} {worst} {element}"
            );
        }
    }

    #[test]
    fn measured_row_by_row_short_slices_are_elements() {
        // One token of 64 channels; one of them came out near zero, off by as much as the others.
        let mut reference = vec![1.0; 64];
        reference[9] = 1e-3;
        let candidate: Vec<f64> = reference.iter().map(|r| r + 1e-6).collect();
        let [whole, _, worst, element] = rowwise(&[1, 64], &reference, &candidate);
        assert!(
            worst <= 1.01 * whole && element < 1.1e-6,
            "{whole} {worst} {element}"
        );
    }

    #[test]
    fn measured_row_by_row_the_same_infinity_agrees_and_another_does_not() {
        let reference = [1.0, f64::INFINITY, f64::NAN, 2.0];
        assert_eq!(rowwise(&[2, 2], &reference, &reference), [0.0; 4]);
        assert_eq!(
            rowwise(
                &[2, 2],
                &reference,
                &[1.0, f64::NEG_INFINITY, f64::NAN, 2.0]
            ),
            [f64::INFINITY; 4]
        );
        assert_eq!(
            rowwise(&[2, 2], &[1.0; 4], &[1.0, f64::NAN, 1.0, 1.0]),
            [f64::INFINITY; 4]
        );
    }

    #[test]
    fn garbage_beside_an_outlier_channel_is_typical() {
        let mut energy = vec![1.0; 256];
        energy[0] = 1e9;
        let error = vec![1.0; 256];
        let profile = Profile {
            axis: 0,
            error,
            energy,
            ..Profile::default()
        };
        let totals = Totals {
            count: 2560,
            differing: 1,
            rel_l2: Some(5e-4),
            max_local: Some(0.0),
            profiles: vec![profile],
            ..Totals::default()
        };
        assert_eq!(measures(&totals)[1], 1.0);
    }
}
