//! A tensor's content in a few numbers that do not depend on the order of its elements: one read, and any permutation of an axis, any
//! transposition, any reshape gives the same sketch up to rounding.
//!
//! Means of `x`, `|x|`, `√|x|`, `±√|x|`, `x²`, `x³`, `x⁴` over the finite values, the extremes, and how many are not finite. Two sketches are
//! compared in units of what chance would give: a mean of `g(x)` over `n` independent values varies by `sd(g)/√n`, so unrelated tensors of
//! one distribution are about 1 apart however alike their statistics look, while rounding each value by a relative `e` moves every mean
//! only by about `e` of that unit.

use twinscope_tensor::{DType, Kind, Operand, View, f64_values};

/// Values read in full: up to half a second of work. Beyond, evenly spaced runs are read, the same on both sides; a tensor
/// permuted as a whole is then no longer found, one in the same order is.
const WHOLE: u64 = 1 << 26;
const RUNS: u64 = 4096;
const RUN: usize = 4096;

/// Independent sums, so that the processor need not wait for one to be ready.
const LANES: usize = 4;

/// Fewer values than this have no statistics.
const FEWEST: u64 = 8;

/// Extremes closer than this part of the largest value are the same in two runs that round differently.
const SAME_EXTREME: f64 = 1e-3;

/// The sketch of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Sketch {
    elements: u64,
    nan: u64,
    infinite: [u64; 2],
    finite: u64,
    min: f64,
    max: f64,
    /// Sums of the [`terms`] of every finite value.
    sums: [f64; 9],
    /// How coarse the dtype is, relative to a value.
    grain: f64,
}

impl Sketch {
    /// `None` when it cannot be read or has no numbers.
    pub fn of(view: &View) -> Option<Self> {
        let elements = Operand::len(view);
        let mut sketch = Self {
            elements,
            nan: 0,
            infinite: [0; 2],
            finite: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sums: [0.0; 9],
            grain: grain(view.dtype()),
        };
        let (mut scratch, mut values) = (Vec::new(), Vec::new());
        let mut read = |start: u64, count: usize| -> Option<()> {
            if !f64_values(view, start, count, &mut scratch, &mut values) {
                return None;
            }
            sketch.insert_all(&values);
            Some(())
        };
        if elements <= WHOLE {
            for start in (0..elements).step_by(RUN) {
                read(start, (elements - start).min(RUN as u64) as usize)?;
            }
        } else {
            let gap = (elements - RUN as u64) / (RUNS - 1);
            (0..RUNS).try_for_each(|run| read(run * gap, RUN))?;
        }
        view.check().ok()?;
        Some(sketch)
    }

    /// Side by side, [`LANES`] sums at a time, as long as everything is finite.
    fn insert_all(&mut self, values: &[f64]) {
        if !values.iter().all(|x| x.is_finite()) {
            return values.iter().for_each(|x| self.insert(*x));
        }
        let (mut sums, mut min, mut max) = (
            [[0.0; LANES]; 9],
            [f64::INFINITY; LANES],
            [f64::NEG_INFINITY; LANES],
        );
        let (chunks, rest) = values.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, x) in chunk.iter().enumerate() {
                terms(*x)
                    .into_iter()
                    .zip(&mut sums)
                    .for_each(|(term, sum)| sum[lane] += term);
                min[lane] = if *x < min[lane] { *x } else { min[lane] };
                max[lane] = if *x > max[lane] { *x } else { max[lane] };
            }
        }
        self.finite += (chunks.len() * LANES) as u64;
        self.sums
            .iter_mut()
            .zip(sums)
            .for_each(|(sum, lanes)| *sum += lanes.iter().sum::<f64>());
        self.min = min.into_iter().fold(self.min, f64::min);
        self.max = max.into_iter().fold(self.max, f64::max);
        rest.iter().for_each(|x| self.insert(*x));
    }

    fn insert(&mut self, x: f64) {
        if !x.is_finite() {
            match x {
                _ if x.is_nan() => self.nan += 1,
                _ => self.infinite[usize::from(x > 0.0)] += 1,
            }
            return;
        }
        self.finite += 1;
        self.min = self.min.min(x);
        self.max = self.max.max(x);
        self.sums
            .iter_mut()
            .zip(terms(x))
            .for_each(|(sum, term)| *sum += term);
    }

    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Whether it says anything: a constant or a handful of values is like too many others.
    pub fn tells(&self) -> bool {
        self.finite >= FEWEST && self.min < self.max
    }

    /// How many times the variation by chance the two are apart: 0 is the same content, 1 and more is unrelated. `None` when they
    /// cannot be the same: another number of elements, another number of NaN or infinities.
    pub fn distance(&self, other: &Self) -> Option<f64> {
        if self.elements != other.elements
            || self.finite != other.finite
            || self.nan != other.nan
            || self.infinite != other.infinite
        {
            return None;
        }
        if self.finite == 0 {
            return Some(0.0);
        }
        let n = self.finite as f64;
        // The mean of g² for each g, by position in `sums`: of x, |x|, √|x|, ±√|x|, x², x³, x⁴.
        let squares = [4, 4, 1, 1, 6, 7, 8];
        let mut apart: f64 = 0.0;
        for (at, square) in squares.into_iter().enumerate() {
            let (a, b) = (self.sums[at] / n, other.sums[at] / n);
            let variance = |sketch: &Self, mean: f64| sketch.sums[square] / n - mean * mean;
            let sd = variance(self, a).max(variance(other, b)).max(0.0).sqrt() / n.sqrt();
            let difference = (a - b).abs();
            // Powers that left the range of f64 say nothing.
            if difference.is_finite() && sd.is_finite() && difference > 0.0 {
                apart = apart.max(difference / sd.max(f64::EPSILON * a.abs().max(b.abs())));
            }
        }
        Some(apart)
    }

    /// Whether the extremes are the same up to rounding.
    pub fn same_extremes(&self, other: &Self) -> bool {
        let scale = [self.min, self.max, other.min, other.max]
            .into_iter()
            .fold(0.0f64, |scale, x| scale.max(x.abs()));
        let allowed = scale * SAME_EXTREME.max(4.0 * self.grain.max(other.grain));
        (self.min - other.min).abs() <= allowed && (self.max - other.max).abs() <= allowed
    }

    pub(super) fn max(&self) -> f64 {
        self.max
    }

    /// Both as one number from 0 to 1, for ranking.
    pub fn similarity(&self, other: &Self) -> f64 {
        self.distance(other)
            .map_or(0.0, |apart| 1.0 / (1.0 + apart))
    }
}

/// What is summed: x, |x|, √|x|, ±√|x|, x², x³, x⁴, x⁶, x⁸.
fn terms(x: f64) -> [f64; 9] {
    let (size, square) = (x.abs(), x * x);
    let (root, fourth) = (size.sqrt(), square * square);
    [
        x,
        size,
        root,
        root.copysign(x),
        square,
        square * x,
        fourth,
        fourth * square,
        fourth * fourth,
    ]
}

/// Half the distance between neighbouring values, relative to them.
fn grain(dtype: DType) -> f64 {
    match (dtype.kind(), dtype) {
        (Kind::Int | Kind::Bool, _) | (_, DType::F64 | DType::C128) => 0.0,
        (_, DType::F32 | DType::C64) => 2f64.powi(-24),
        (_, DType::F16 | DType::C32) => 2f64.powi(-11),
        (_, DType::Bf16) => 2f64.powi(-8),
        // Eight bits and fewer, and blocks that share a scale.
        _ => 2f64.powi(-4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::Shape;

    fn noise(seed: u64, count: usize) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        (0..count)
            .map(|_| (0..12).map(|_| next()).sum::<f32>() - 6.0)
            .collect()
    }

    fn sketch(values: &[f32]) -> Sketch {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        Sketch::of(
            &View::new(DType::F32, Shape::from([values.len() as u64]), bytes.into()).unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn order_and_rounding_do_not_matter_and_other_values_do() {
        let values = noise(1, 10_000);
        let mut turned = values.clone();
        turned.reverse();
        assert!(sketch(&values).distance(&sketch(&turned)).unwrap() < 1e-6);
        let rounded: Vec<f32> = values
            .iter()
            .map(|x| f32::from_bits((x.to_bits() + 0x8000) & 0xffff_0000))
            .collect();
        let apart = sketch(&values).distance(&sketch(&rounded)).unwrap();
        assert!(apart < 0.05, "{apart}");
        for seed in 2..40 {
            let apart = sketch(&values)
                .distance(&sketch(&noise(seed, 10_000)))
                .unwrap();
            assert!(apart > 0.3, "seed {seed}: {apart}");
        }
    }

    #[test]
    fn what_is_not_finite_is_counted() {
        let sketch = |values: &[f32]| sketch(values);
        assert_eq!(
            sketch(&[f32::NAN, 1.0]).distance(&sketch(&[2.0, 1.0])),
            None
        );
        assert_eq!(
            sketch(&[f32::NAN, 1.0]).distance(&sketch(&[1.0, f32::NAN])),
            Some(0.0)
        );
        assert_eq!(
            sketch(&[f32::INFINITY]).distance(&sketch(&[f32::NEG_INFINITY])),
            None
        );
        assert_eq!(sketch(&[]).distance(&sketch(&[])), Some(0.0));
        assert!(!sketch(&[0.0; 100]).tells());
    }

    #[test]
    fn values_beyond_the_range_of_their_powers_still_have_a_sketch() {
        let bytes: Vec<u8> = (0..16)
            .flat_map(|n| (1e300 * f64::from(n)).to_le_bytes())
            .collect();
        let sketch =
            Sketch::of(&View::new(DType::F64, Shape::from([16]), bytes.into()).unwrap()).unwrap();
        assert!(sketch.tells());
        assert_eq!(sketch.distance(&sketch), Some(0.0));
    }
}
