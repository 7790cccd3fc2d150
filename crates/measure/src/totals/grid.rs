//! Distances in units in the last place: how many steps of a dtype lie between two numbers.
//!
//! Numbers are rounded to the coarser of the two dtypes, which are then counted: the distance of two neighbours is 1, also across 0 (which
//! has one place, whatever its sign) and across a power of two.

#[cfg(target_arch = "x86_64")]
use crate::simd::{Level, level};
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
        [reference, candidate]
            .into_iter()
            .filter_map(Self::of_one)
            .min_by_key(|grid| grid.precision)
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

    fn steps(self) -> Steps {
        let below = 53 - self.precision as u32;
        Steps {
            below,
            half: if below == 0 {
                0
            } else {
                (1 << (below - 1)) - 1
            },
            odd: u64::from(below > 0),
            offset: i64::from(1022 + self.least) << (self.precision - 1),
            normal: if below == 0 {
                0
            } else {
                ((1023 + self.least) as u64) << 52
            },
            // Of f64 itself every number is its bits.
            scale: if below == 0 {
                0.0
            } else {
                super::scaled::times_power(1.0, self.precision - 1 - self.least)
            },
        }
    }

    /// The largest distance of finite little-endian `f64`, or `known` where none is larger.
    pub(crate) fn most(self, r: &[u8], c: &[u8], known: u64) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if level() >= Level::Avx2 {
            // SAFETY: the feature this is compiled for is part of the level.
            return unsafe { most_avx2(self.steps(), r, c, known) };
        }
        most(self.steps(), r, c, known)
    }

    /// Of finite numbers.
    pub(crate) fn distance(self, a: f64, b: f64) -> u64 {
        let steps = self.steps();
        steps.place(a).abs_diff(steps.place(b))
    }
}

/// A format as the constants that find places in it.
#[derive(Clone, Copy)]
struct Steps {
    /// Bits of an f64 below the last one of the format.
    below: u32,
    half: u64,
    odd: u64,
    offset: i64,
    /// The bits, as an f64, of the smallest normal number.
    normal: u64,
    /// From what is smaller to steps.
    scale: f64,
}

/// The steps of f64 from here on are 1: adding it rounds to whole numbers, and to even ones where two are as near.
const WHOLE: f64 = (1u64 << 52) as f64;

impl Steps {
    /// How many steps from 0 the nearest number of the format lies, with the sign of `x`. Both ways are taken and one is kept: that is done for
    /// several numbers at a time.
    #[inline(always)]
    fn place(self, x: f64) -> i64 {
        let bits = x.to_bits() & (u64::MAX >> 1);
        // The bits of an f64 are its steps from 0; those of a format with fewer are what is left of them without the last ones.
        let rounded = (bits + self.half + (bits >> self.below & self.odd)) >> self.below;
        let small = (f64::from_bits(bits) * self.scale + WHOLE)
            .to_bits()
            .wrapping_sub(WHOLE.to_bits());
        let place = if bits >= self.normal {
            rounded as i64 - self.offset
        } else {
            small as i64
        };
        let sign = (x.to_bits() as i64) >> 63;
        (place ^ sign) - sign
    }
}

#[inline(always)]
fn most(steps: Steps, r: &[u8], c: &[u8], known: u64) -> u64 {
    let mut lanes = [known; 4];
    let (rs, cs) = (r.as_chunks::<8>().0, c.as_chunks::<8>().0);
    let distance = |r: &[u8; 8], c: &[u8; 8]| {
        steps
            .place(f64::from_le_bytes(*r))
            .abs_diff(steps.place(f64::from_le_bytes(*c)))
    };
    let (whole, rest) = (rs.len() / 4 * 4, rs.len() % 4);
    for (rs, cs) in rs.as_chunks::<4>().0.iter().zip(cs.as_chunks::<4>().0) {
        for lane in 0..4 {
            lanes[lane] = lanes[lane].max(distance(&rs[lane], &cs[lane]));
        }
    }
    let last = (whole..whole + rest).map(|at| distance(&rs[at], &cs[at]));
    last.chain(lanes).fold(known, u64::max)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn most_avx2(steps: Steps, r: &[u8], c: &[u8], known: u64) -> u64 {
    most(steps, r, c, known)
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
        assert_eq!(
            Grid::of(DType::I64, DType::F32)
                .expect("a float")
                .distance(16777216.0, 16777218.0),
            1
        );
        assert_eq!(
            Grid::of(DType::F64, DType::F64)
                .expect("floats")
                .distance(f64::MAX, -f64::MAX),
            2 * 0x7fef_ffff_ffff_ffff
        );
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
                prop_assert_eq!(single.steps().place(f64::from(a)), signed(i64::from(a.abs().to_bits()), a < 0.0));
            }
            let double = Grid::of(DType::F64, DType::F64).expect("floats");
            if b.is_finite() {
                prop_assert_eq!(double.steps().place(b), signed(b.abs().to_bits() as i64, b < 0.0));
            }
            let narrow = b as f32;
            if narrow.is_finite() {
                prop_assert_eq!(single.steps().place(b), signed(i64::from(narrow.abs().to_bits()), narrow < 0.0), "rounds as a cast does");
            }
        }
    }
}
