//! What one rounding does to a number of each dtype, and the four measures that say how far two tensors are apart.
//!
//! Each measure is sensitive to what the others average away, each is relative to the reference's own scale:
//!
//! | measure | of the pair | catches |
//! | --- | --- | --- |
//! | `whole` | `‖c - r‖ / ‖r‖` | a wrong scale, a wrong op |
//! | `typical` | the median over the slices of an axis of their own relative error, largest over the axes | garbage everywhere but in one outlier channel |
//! | `slice` | the largest relative error of any slice of any axis | one broken head, token or batch row |
//! | `element` | the largest `|c - r| / max(|r|, local rms, rms of its channel)` | one wrong value |
//!
//! No opinion here: which values are still rounding is decided in `compare`.

use crate::{Profile, Totals};
use twinscope_tensor::{DType, Kind, Packing};

/// The four measures, in the order of the table.
pub type Measures = [f64; 4];

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
/// the 8 units of the floor in `compare` are just enough for f32 and twice too much for bf16, where faults of a few percent would hide below it.
pub fn floor_unit(dtype: DType) -> Option<f64> {
    let unit = unit_roundoff(dtype)?;
    Some(if matches!(dtype, DType::Bf16 | DType::Bc32) {
        unit / 2.0
    } else {
        unit
    })
}

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
            );
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
