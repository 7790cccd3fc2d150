//! Distances in units in the last place: how many steps of a dtype lie between two numbers.
//!
//! Numbers are rounded to the coarser of the two dtypes, which are then counted: the distance of two neighbours is 1, also across 0 (which
//! has one place, whatever its sign) and across a power of two.

use twinscope_tensor::{DType, Kind};

/// The numbers of a floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Bits of precision, the hidden one included.
    precision: i32,
    /// Exponent of the smallest normal number.
    least: i32,
}

impl Grid {
    /// Of the coarser dtype; `None` when both are integers, whose step is 1.
    pub(crate) fn of(reference: DType, candidate: DType) -> Option<Self> {
        [reference, candidate].into_iter().filter_map(Self::of_one).min_by_key(|grid| grid.precision)
    }

    fn of_one(dtype: DType) -> Option<Self> {
        let (precision, least) = match dtype {
            DType::F64 | DType::C128 | DType::F80 | DType::C160 => (53, -1022),
            DType::F16 | DType::C32 => (11, -14),
            DType::Bf16 | DType::Bc32 => (8, -126),
            DType::F8E4M3Fn => (4, -6),
            DType::F8E4M3Fnuz => (4, -7),
            DType::F8E5M2 => (3, -14),
            DType::F8E5M2Fnuz => (3, -15),
            DType::F8E8M0Fnu => (1, -127),
            DType::F4E2M1FnX2 | DType::F4 | DType::OnnxF4 => (2, 0),
            DType::F6E2M3 => (4, 0),
            DType::F6E3M2 => (3, -2),
            dtype if matches!(dtype.kind(), Kind::Bool | Kind::Int) => return None,
            // Codes with a scale are computed in f32.
            _ => (24, -126),
        };
        Some(Self { precision, least })
    }

    /// How many steps from 0 the nearest number of the format lies, with the sign of `x`.
    fn place(self, x: f64) -> i64 {
        let magnitude = x.abs();
        let exponent = if magnitude == 0.0 { self.least } else { super::histogram::exponent(magnitude).max(self.least) };
        let steps = super::scaled::times_power(magnitude, self.precision - 1 - exponent).round_ties_even();
        let place = (i64::from(exponent - self.least) << (self.precision - 1)) + steps as i64;
        if x < 0.0 { -place } else { place }
    }

    /// Of finite numbers.
    pub(crate) fn distance(self, a: f64, b: f64) -> u64 {
        self.place(a).abs_diff(self.place(b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_coarser_dtype_counts() {
        let bf16 = Grid::of(DType::F32, DType::Bf16).expect("floats");
        assert_eq!(bf16, Grid::of(DType::Bf16, DType::F16).expect("floats"));
        assert_eq!(bf16.distance(1.0, 1.0 + 2f64.powi(-7)), 1);
        assert_eq!(bf16.distance(1.0, 1.0 + 2f64.powi(-9)), 0);
        assert_eq!(bf16.distance(1.0, 1.0 - 2f64.powi(-8)), 1);
        assert_eq!(bf16.distance(-0.0, 0.0), 0);
        assert_eq!(Grid::of(DType::I64, DType::Bool), None);
        assert_eq!(Grid::of(DType::I64, DType::F32).expect("a float").distance(16777216.0, 16777218.0), 1);
        assert_eq!(Grid::of(DType::F64, DType::F64).expect("floats").distance(f64::MAX, -f64::MAX), 2 * 0x7fef_ffff_ffff_ffff);
    }

    proptest! {
        #[test]
        fn places_are_the_bits(a in any::<f32>(), b in any::<f64>()) {
            let signed = |bits: i64, negative: bool| if negative { -bits } else { bits };
            let single = Grid::of(DType::F32, DType::F32).expect("floats");
            if a.is_finite() {
                prop_assert_eq!(single.place(f64::from(a)), signed(i64::from(a.abs().to_bits()), a < 0.0));
            }
            let double = Grid::of(DType::F64, DType::F64).expect("floats");
            if b.is_finite() {
                prop_assert_eq!(double.place(b), signed(b.abs().to_bits() as i64, b < 0.0));
            }
            let narrow = b as f32;
            if narrow.is_finite() {
                prop_assert_eq!(single.place(b), signed(i64::from(narrow.abs().to_bits()), narrow < 0.0), "rounds as a cast does");
            }
        }
    }
}
