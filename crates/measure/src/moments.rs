//! Count, sum and spread of finite numbers: a state that merges.
//!
//! The spread is kept as `m2 = Σ(x - mean)²` and merged as Chan, Golub and LeVeque do,
//! `m2 = m2_a + m2_b + (mean_b - mean_a)² · n_a·n_b / (n_a + n_b)`, so a large mean never swallows a small spread.
//! The norm follows from it, `Σx² = m2 + n·mean²`, a sum of positive numbers.
//!
//! Squares of `f64` leave the range of `f64` beyond about 1e±154. A block whose largest number lies outside of
//! [`SMALL`] .. [`LARGE`] is measured divided by 2^600 or 2^-600, and its state remembers that ([`Scale`]). States of different scales
//! meet at the larger one: what the smaller loses there is far below the rounding of the larger.

use crate::{
    double::Double,
    kernel::{Shifted, Sums},
};
use serde::{Deserialize, Serialize};

pub(crate) const LARGE: f64 = f64::from_bits((1023 + 480) << 52);
pub(crate) const SMALL: f64 = f64::from_bits((1023 - 440) << 52);
const UP: f64 = f64::from_bits((1023 + 600) << 52);
const DOWN: f64 = f64::from_bits((1023 - 600) << 52);

/// The power of two that numbers were divided by before they were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Scale {
    /// 2^-600: every number is so small that its square would vanish.
    Small,
    #[default]
    One,
    /// 2^600: some number is so large that its square would be infinite.
    Large,
}

impl Scale {
    pub(crate) fn for_largest(max_abs: f64) -> Self {
        if max_abs > LARGE {
            Self::Large
        } else if max_abs < SMALL && max_abs > 0.0 {
            Self::Small
        } else {
            Self::One
        }
    }

    /// A number as it is measured.
    pub(crate) fn divide(self, value: f64) -> f64 {
        match self {
            Self::Small => value * UP,
            Self::One => value,
            Self::Large => value * DOWN,
        }
    }

    /// A measured number as it really is.
    pub(crate) fn multiply(self, value: f64) -> f64 {
        match self {
            Self::Small => value * DOWN,
            Self::One => value,
            Self::Large => value * UP,
        }
    }
}

/// `Σx² - (Σx)²/n`, with one rounding where it cancels.
fn spread(count: f64, sum: f64, squares: f64) -> f64 {
    (Double::product(count, squares)
        .minus(Double::product(sum, sum))
        .value()
        / count)
        .max(0.0)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moments {
    pub(crate) n: u64,
    sum: Double,
    m2: Double,
    scale: Scale,
}

impl Moments {
    /// From a first pass over a block of `n` numbers, and a second one where the first is not enough.
    ///
    /// `m2 = Σx² - (Σx)²/n` loses as many digits as `Σx²` is larger than `m2`. Up to a factor of 64 that is harmless; beyond it `again(mean)`
    /// sums the numbers less their mean. 8- and 11-bit numbers never need that (`again` is `None`): where they lie so close together
    /// that the difference cancels, their sums and squares are exact, and the difference here is taken exactly.
    pub(crate) fn of_block(
        n: usize,
        sums: &Sums,
        scale: Scale,
        again: Option<impl FnOnce(f64) -> Shifted>,
    ) -> Self {
        if n == 0 {
            return Self::default();
        }
        let count = n as f64;
        if sums.min == sums.max {
            return Self {
                n: n as u64,
                sum: Double::product(count, sums.min),
                m2: Double::default(),
                scale,
            };
        }
        let m2 = spread(count, sums.sum, sums.squares);
        match again {
            Some(again) if sums.squares > 64.0 * m2 => {
                let mean = sums.sum / count;
                Self::of_differences(n, Double::new(mean), again(mean), scale)
            }
            _ => Self {
                n: n as u64,
                sum: Double::new(sums.sum),
                m2: Double::new(m2),
                scale,
            },
        }
    }

    /// From a pass over `x - shift`. The shift must be near the numbers: one of them, or their mean.
    pub(crate) fn of_differences(n: usize, shift: Double, sums: Shifted, scale: Scale) -> Self {
        if n == 0 {
            return Self::default();
        }
        let count = n as f64;
        let shifts = Double::product(count, shift.hi).plus(Double::product(count, shift.lo));
        let m2 = Double::new(spread(count, sums.sum, sums.squares));
        Self {
            n: n as u64,
            sum: shifts.plus(Double::new(sums.sum)),
            m2,
            scale,
        }
    }

    /// From exact sums of integers of at most 32 bits.
    pub(crate) fn of_integers(n: usize, sum: i64, squares: u128) -> Self {
        if n == 0 {
            return Self::default();
        }
        // n·Σx² - (Σx)² fits: a block has far less than 2^31 numbers.
        let spread = n as i128 * squares as i128 - i128::from(sum) * i128::from(sum);
        Self {
            n: n as u64,
            sum: Double::from(i128::from(sum)),
            m2: Double::from(spread).over(n as f64),
            scale: Scale::One,
        }
    }

    pub(crate) fn merge(self, other: Self) -> Self {
        if self.n == 0 {
            return other;
        }
        if other.n == 0 {
            return self;
        }
        let scale = self.scale.max(other.scale);
        let (a, b) = (self.at(scale), other.at(scale));
        let (na, nb) = (a.n as f64, b.n as f64);
        let between = if a.n == b.n {
            // The same, without a division that takes time: blocks of a chunk are equally long, and 2n is a power of two.
            let apart = b.sum.minus(a.sum).value();
            apart * apart / (na + nb)
        } else if a.m2 == Double::default() && b.m2 == Double::default() {
            // Equal numbers on both sides, often the same: their averages are exact, so that the spread of a constant is 0.
            let apart = b.average().minus(a.average()).value();
            apart * apart * (na / (na + nb) * nb)
        } else {
            // (mean_b - mean_a)·n_a·n_b, in two factors that stay in range.
            let times =
                |sum: Double, n: f64| Double::product(sum.hi, n).plus(Double::new(sum.lo * n));
            let apart = times(b.sum, na).minus(times(a.sum, nb)).value();
            apart / (na + nb) * (apart / (na * nb))
        };
        Self {
            n: a.n + b.n,
            sum: a.sum.plus(b.sum),
            m2: a.m2.plus(b.m2).plus(Double::new(between)),
            scale,
        }
    }

    /// The state of the same numbers seen `times` times each.
    pub(crate) fn repeated(self, times: u64) -> Self {
        let product =
            |d: Double| Double::product(d.hi, times as f64).plus(Double::new(d.lo * times as f64));
        Self {
            n: self.n.saturating_mul(times),
            sum: product(self.sum),
            m2: product(self.m2),
            scale: self.scale,
        }
    }

    fn at(self, scale: Scale) -> Self {
        // 2^-1200 and less is 0 in f64, which is what is left of the smaller numbers at the larger scale.
        let power = match (self.scale, scale) {
            (from, to) if from == to => return self,
            (Scale::Small, Scale::Large) => 0.0,
            _ => DOWN,
        };
        Self {
            sum: self.sum.scaled(power),
            m2: self.m2.scaled(power).scaled(power),
            scale,
            ..self
        }
    }

    fn average(&self) -> Double {
        self.sum.over(self.n as f64)
    }

    /// `None` for all that follow when there is no number.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.n > 0).then(|| self.scale.multiply(self.average().value()))
    }

    pub(crate) fn sum(&self) -> Option<f64> {
        (self.n > 0).then(|| self.scale.multiply(self.sum.value()))
    }

    pub(crate) fn std(&self) -> Option<f64> {
        (self.n > 0).then(|| {
            self.scale
                .multiply((self.m2.value() / self.n as f64).sqrt())
        })
    }

    fn scaled_squares(&self) -> f64 {
        self.average()
            .value()
            .mul_add(self.sum.value(), self.m2.value())
    }

    pub(crate) fn norm(&self) -> Option<f64> {
        (self.n > 0).then(|| self.scale.multiply(self.scaled_squares().sqrt()))
    }

    /// `Σx²` as `f64` sees it: infinite or 0 when it is out of range.
    pub(crate) fn squares(&self) -> f64 {
        self.scale
            .multiply(self.scale.multiply(self.scaled_squares()))
    }

    /// The spread of points whose coordinates are these two: `sqrt(Σ|z - mean|² / n)`.
    pub(crate) fn joint_std(&self, other: &Self) -> Option<f64> {
        let scale = self.scale.max(other.scale);
        let m2 = self.at(scale).m2.plus(other.at(scale).m2).value();
        (self.n > 0).then(|| scale.multiply((m2 / self.n as f64).sqrt()))
    }
}
