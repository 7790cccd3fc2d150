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

    /// The largest distance of finite little-endian `f64`, or `known` where none is larger.
    ///
    /// Most need no place: above `a` no two neighbours are closer than `a · 2^-precision`, so a difference bounds the steps in it. A pair of two signs
    /// has 0 between.
    pub(crate) fn most(self, r: &[u8], c: &[u8], known: u64) -> u64 {
        let slack = 1.0 - f64::EPSILON * 16.0;
        let bound = |most: u64| super::scaled::times_power(most.saturating_sub(2) as f64 * slack, -self.precision);
        let least = super::scaled::times_power(1.0, self.least);
        let (mut most, mut factor) = (known, bound(known));
        for (rs, cs) in r.chunks(8 * 16).zip(c.chunks(8 * 16)) {
            let pairs = || crate::kernel::f64s(rs).zip(crate::kernel::f64s(cs));
            let further = |(r, c): (f64, f64)| {
                let nearer = if (r > 0.0) == (c > 0.0) { r.abs().min(c.abs()) } else { 0.0 };
                (c - r).abs() > factor * nearer.max(least)
            };
            // Counted, not looked for: that needs no decision for each, and is done several at a time.
            if pairs().map(|pair| u32::from(further(pair))).sum::<u32>() > 0 {
                most = pairs().map(|(r, c)| self.distance(r, c)).fold(most, u64::max);
                factor = bound(most);
            }
        }
        most
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
        fn the_most_steps_are_those_of_every_pair(
            pairs in prop::collection::vec((-1e3f64..1e3, -1e-3f64..1e-3, any::<bool>()), 1..200),
            bits in any::<[u64; 2]>(),
            known in prop::sample::select(vec![0u64, 1, 2, 3, 100, 1 << 20, 1 << 40, 1 << 62]),
        ) {
            let any_bits = bits.map(f64::from_bits).map(|x| if x.is_finite() { x } else { 1e-320 });
            let pairs: Vec<(f64, f64)> = pairs
                .into_iter()
                .map(|(r, noise, relative)| (r, if relative { r * (1.0 + noise) } else { r + noise }))
                .chain([(any_bits[0], any_bits[1]), (any_bits[0], any_bits[0].next_up().min(f64::MAX))])
                .collect();
            let bytes = |of: fn(&(f64, f64)) -> f64| -> Vec<u8> { pairs.iter().flat_map(|pair| of(pair).to_le_bytes()).collect() };
            let (r, c) = (bytes(|pair| pair.0), bytes(|pair| pair.1));
            for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::F8E4M3Fn] {
                let grid = Grid::of(dtype, dtype).expect("floats");
                let plain = pairs.iter().map(|(r, c)| grid.distance(*r, *c)).fold(known, u64::max);
                prop_assert_eq!(grid.most(&r, &c, known), plain, "{}", dtype);
            }
        }

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
