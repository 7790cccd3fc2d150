//! Two `f64` that together hold one number to about 106 bits: what sums of sums are kept in.

use serde::{Deserialize, Serialize};

/// `hi + lo`, where `lo` is what did not fit into `hi`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Double {
    #[serde(with = "crate::exact")]
    pub(crate) hi: f64,
    #[serde(with = "crate::exact")]
    pub(crate) lo: f64,
}

impl Double {
    pub(crate) fn new(value: f64) -> Self {
        Self { hi: value, lo: 0.0 }
    }

    /// `a + b` with nothing lost (Knuth's two-sum).
    pub(crate) fn sum(a: f64, b: f64) -> Self {
        let hi = a + b;
        let tail = hi - a;
        Self {
            hi,
            lo: (a - (hi - tail)) + (b - tail),
        }
    }

    /// `a * b` with nothing lost, short of over- and underflow.
    pub(crate) fn product(a: f64, b: f64) -> Self {
        let hi = a * b;
        Self {
            hi,
            lo: a.mul_add(b, -hi),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let Self { hi, lo } = Self::sum(self.hi, other.hi);
        Self::sum(hi, lo + (self.lo + other.lo))
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.plus(Self {
            hi: -other.hi,
            lo: -other.lo,
        })
    }

    /// `self - other`, rounded once, where `self` is an integer of at most 64 bits: 0 only when they are equal. What `lo` holds of such
    /// an integer is below 2^11, and it is 0 unless both numbers are whole or far apart.
    pub(crate) fn minus_exactly(self, other: f64) -> f64 {
        let Self { hi, lo } = Self::sum(self.hi, -other);
        hi + (lo + self.lo)
    }

    /// Multiplied by a power of two.
    pub(crate) fn scaled(self, power: f64) -> Self {
        Self {
            hi: self.hi * power,
            lo: self.lo * power,
        }
    }

    /// The quotient; exact when it fits one `f64`, which keeps the mean of equal numbers that number.
    pub(crate) fn over(self, divisor: f64) -> Self {
        let quotient = self.hi / divisor;
        let rest = (-quotient).mul_add(divisor, self.hi) + self.lo;
        Self::sum(quotient, rest / divisor)
    }

    pub(crate) fn value(self) -> f64 {
        self.hi + self.lo
    }
}

impl From<i128> for Double {
    fn from(value: i128) -> Self {
        // What `hi` leaves of an integer of at most 106 bits fits `lo`; larger ones (no tensor has them) are rounded.
        let hi = value as f64;
        Self {
            hi,
            lo: value.wrapping_sub(hi as i128) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_f64_would_lose_is_kept() {
        let sum = Double::sum(1e16, 1.0);
        assert_eq!(sum.minus(Double::new(1e16)).value(), 1.0);
        assert_eq!(
            Double::from(i128::from(u64::MAX))
                .minus(Double::new(2f64.powi(64)))
                .value(),
            -1.0
        );
    }

    #[test]
    fn n_times_a_number_over_n_is_that_number() {
        for n in [3.0, 7.0, 49.0, 4096.0, 12_289.0, 1e9 + 7.0] {
            for value in [0.1, 1.0 / 3.0, 1e6 + 0.001, -2.7e-9] {
                assert_eq!(Double::product(n, value).over(n), Double::new(value));
            }
        }
    }
}
