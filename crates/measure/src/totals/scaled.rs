//! Sums whose terms were divided by a power of two first, so that no square overflows or vanishes.

use crate::{double::Double, moments::Scale};
use serde::{Deserialize, Serialize};

/// `sum · 2^power`. Powers are multiples of 600 ([`Scale`]): where they differ the smaller sum is far below the rounding of the larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scaled {
    sum: Double,
    power: i32,
}

impl Scaled {
    /// A sum of products of numbers that were divided by the `scales`.
    pub(crate) fn new<const N: usize>(sum: f64, scales: [Scale; N]) -> Self {
        let power = scales.into_iter().map(Scale::power).sum();
        Self {
            sum: Double::new(sum),
            power,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let (large, small) = if self.power >= other.power {
            (self, other)
        } else {
            (other, self)
        };
        if large.sum == Double::default() {
            return small;
        }
        let small = small
            .sum
            .scaled(times_power(1.0, small.power - large.power));
        // In this order, whichever is larger: `a + b` and `b + a` have the same digits in two-sum.
        Self {
            sum: large.sum.plus(small),
            power: large.power,
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self.sum.value() == 0.0
    }

    /// `sum / n`: infinite or 0 when that is out of range.
    pub(crate) fn over(self, n: u64) -> f64 {
        times_power(self.sum.over(n as f64).value(), self.power)
    }

    /// `sqrt(self / n)` of a sum of squares.
    pub(crate) fn root_mean(self, n: u64) -> f64 {
        times_power((self.sum.value() / n as f64).sqrt(), self.power / 2)
    }

    /// `sqrt(self) / sqrt(other)`, both sums of squares.
    pub(crate) fn root_ratio(self, other: Self) -> f64 {
        times_power(
            self.sum.value().sqrt() / other.sum.value().sqrt(),
            (self.power - other.power) / 2,
        )
    }

    /// `self / sqrt(a · b)`: the cosine of a dot product and two sums of squares.
    pub(crate) fn cosine(self, a: Self, b: Self) -> f64 {
        let part = self.sum.value() / a.sum.value().sqrt() / b.sum.value().sqrt();
        times_power(part, self.power - (a.power + b.power) / 2)
    }
}

impl Scale {
    pub(crate) fn power(self) -> i32 {
        match self {
            Self::Small => -600,
            Self::One => 0,
            Self::Large => 600,
        }
    }
}

/// `x · 2^power` for any power.
pub(crate) fn times_power(mut x: f64, mut power: i32) -> f64 {
    while power != 0 {
        let step = power.clamp(-1000, 1000);
        x *= f64::from_bits(((1023 + step) as u64) << 52);
        power -= step;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_any_scale_add_and_divide() {
        let large = Scaled::new(9.0, [Scale::Large, Scale::Large]);
        let one = Scaled::new(4.0, [Scale::One, Scale::One]);
        let small = Scaled::new(16.0, [Scale::Small, Scale::Small]);
        assert_eq!(large.plus(one), large);
        assert_eq!(small.plus(one), one.plus(small));
        assert_eq!(Scaled::default().plus(small), small);
        assert_eq!(small.plus(Scaled::default()), small);
        assert_eq!(one.root_ratio(small), 2f64.powi(600) / 2.0);
        assert_eq!(large.root_mean(1), 3.0 * 2f64.powi(600));
        assert_eq!((large.over(1), small.over(1)), (f64::INFINITY, 0.0));
        assert_eq!(
            Scaled::new(6.0, [Scale::Large, Scale::Small]).cosine(large, small),
            0.5
        );
    }
}
