//! Vector loops for the hot paths. [`level`] picks plain, AVX2 or AVX-512 code at run time; the caller does not see which.
//!
//! # One tensor: statistics
//!
//! [`f32`](fn@f32) and its siblings (`avx2.rs`, `ints.rs`) compute the sums of [`crate::kernel`] bit for bit: the plain loop adds in the same
//! lanes as the vectors do. A NaN or an infinity makes `Σx²` non-finite, which costs no extra instruction. The caller then repeats that
//! block with the plain code.
//!
//! # Two tensors: two algorithms
//!
//! | | `pair.rs`, `pair512.rs` | `light.rs`, `light512.rs` |
//! | --- | --- | --- |
//! | dtypes | 6 combinations of f64, f32, bf16, f16 | both f32 or both bf16; both f16 with AVX-512 only |
//! | reads of a block | 3: each side's sums, then the differences | 1, plus 1 for each maximum that may be a new record |
//! | arithmetic | f64, 8 elements at a time | bits and f32 for what is only found, f64 for what is summed |
//! | maxima (relative, local, ulp) | exact for every block | exact only if the block may beat the record so far ([`Asked`]) |
//! | histogram codes | written in the same pass | not at all; [`Pair::codes`] does it for the blocks that are counted |
//! | refuses a block | not finite | not finite; not whole groups of 16 elements (f16: 32); 2^20 elements or more |
//!
//! `pair*` came first and is the general algorithm. `light*` exists because most bytes are f32 or bf16 pairs whose blocks set no record and
//! enter no histogram: for these it halves the time (commit fa9bae2). `light*` cannot replace `pair*`: it refuses blocks, which then go through
//! [`Pair::block`], and it uses `pair*` for codes, dot products, rows, columns and the worst elements. A pair of dtypes without loops
//! here is read as f64 and measured by the `f64_f64` loops of `pair.rs`.
//!
//! # How they are held equal
//!
//! Counts, maxima, histograms and worst elements must be equal. Sums are added in different orders, so they agree within 1e-12 of the sum of
//! magnitudes, not in the last bit.
//!
//! | tests | compare |
//! | --- | --- |
//! | `tests` below | statistics: vectors against [`crate::kernel`], bit for bit |
//! | `light512::tests` | `light` with AVX2 and AVX-512 against naive loops in f64, for random blocks and questions |
//! | `pair512::tests` | columns, codes and worst elements: AVX-512 against AVX2 |
//! | `tests/totals.rs` | whole tensors: `light*` and `pair*` against the same numbers read as f64, and against exact sums |
//! | `crates/cli/tests/frozen` | whole reports at every level of the CPU, to 6 digits |
//!
//! `TWINSCOPE_SIMD=plain cargo test -p twinscope-measure` runs the tests of this crate at one level.

#[cfg(target_arch = "x86_64")]
mod avx2;
pub(crate) mod ints;
mod level;
#[cfg(target_arch = "x86_64")]
mod light;
#[cfg(target_arch = "x86_64")]
mod light512;
#[cfg(target_arch = "x86_64")]
mod pair;
#[cfg(target_arch = "x86_64")]
mod pair512;

pub use level::Level;
pub(crate) use level::level;

use crate::{
    kernel::{self, Shifted, Sums},
    totals::{Asked, Block, Cell, Known, Light, Part},
};
use twinscope_tensor::DType;

macro_rules! dispatch {
    ($($(#[$doc:meta])* $name:ident($bytes:ident $(, $shift:ident)?) -> $sums:ty = $plain:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name($bytes: &[u8] $(, $shift: f64)?) -> $sums {
            #[cfg(target_arch = "x86_64")]
            if level() >= Level::Avx2 {
                // SAFETY: the features these functions are compiled for are part of the level.
                return unsafe { avx2::$name($bytes $(, $shift)?) };
            }
            $plain
        }
    )*};
}
dispatch! {
    /// Little-endian numbers at any alignment.
    f64(bytes) -> Sums = kernel::plain(kernel::f64s(bytes));
    f32(bytes) -> Sums = kernel::plain(kernel::f32s(bytes));
    f16(bytes) -> Sums = kernel::plain(kernel::f16s(bytes));
    bf16(bytes) -> Sums = kernel::plain(kernel::bf16s(bytes));
    f64_shifted(bytes, shift) -> Shifted = kernel::plain_shifted(kernel::f64s(bytes), shift);
    f32_shifted(bytes, shift) -> Shifted = kernel::plain_shifted(kernel::f32s(bytes), shift);
}

/// The vector loops over a pair of types. Only [`Pair::of`] makes one, and only where the machine can run it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    dtypes: [DType; 2],
    loops: &'static Loops,
    light: Option<&'static LightLoops>,
}

/// Of the types that are most of all bytes.
#[derive(Debug)]
struct LightLoops {
    light: WithRows,
    relative: Two<f64>,
}

type Two<T> = unsafe fn(&[u8], &[u8]) -> T;
type WithRows = unsafe fn(&[u8], &[u8], &Asked, &[usize], &mut Vec<Cell>) -> Option<Light>;
type OnlyCodes = unsafe fn(&[u8], &[u8], u16, &mut [u8], &mut [u8]);
type WithCodes = unsafe fn(&[u8], &[u8], Known, &mut [u8], &mut [u8]) -> Block;

#[derive(Debug)]
struct Loops {
    block: WithCodes,
    codes: OnlyCodes,
    dot: Two<f64>,
    row: Two<Cell>,
    local: unsafe fn(&[u8], &[u8], f64) -> f64,
    above: unsafe fn(&[u8], &[u8], f64, &mut Vec<u32>),
    beyond: unsafe fn(&[u8], &[u8], f64, f64) -> u64,
    columns: unsafe fn(Part<'_>, &mut [Cell]),
    energies: unsafe fn(Part<'_>, &mut [Cell]),
}

impl Pair {
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn of(_: DType, _: DType) -> Option<Self> {
        // Rejects a forced level that this architecture does not have.
        level();
        None
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) fn of(reference: DType, candidate: DType) -> Option<Self> {
        macro_rules! loops {
            ($name:ident) => {{
                use pair::$name::{
                    above, beyond, block, codes, columns, dot, energies, local, row,
                };
                static LOOPS: Loops = Loops {
                    block,
                    codes,
                    dot,
                    row,
                    local,
                    above,
                    beyond,
                    columns,
                    energies,
                };
                &LOOPS
            }};
        }
        // Of those, what is faster with AVX-512; what does not fill its vectors goes to the others.
        macro_rules! wide_loops {
            ($name:ident, $type:ident $(, $codes:ident)?) => {{
                static WIDE: Loops = Loops {
                    $($codes: |r, c, base, magnitudes, ulps| {
                        // SAFETY: as where it is called.
                        unsafe { pair512::codes::<light::$type>(r, c, base, magnitudes, ulps, pair::$name::codes) }
                    },)?
                    // SAFETY: as where it is called.
                    above: |r, c, least, places| unsafe { pair512::above::<light::$type>(r, c, least, places, pair::$name::above) },
                    // SAFETY: as where it is called.
                    columns: |part, cells| unsafe { pair512::columns::<light::$type>(part, cells, pair::$name::columns) },
                    ..*loops!($name)
                };
                if level() >= Level::Avx512 { &WIDE } else { loops!($name) }
            }};
        }
        let loops = match (reference, candidate) {
            (DType::F32, DType::F32) => wide_loops!(f32_f32, F32, codes),
            (DType::Bf16, DType::Bf16) => wide_loops!(bf16_bf16, Bf16, codes),
            (DType::F16, DType::F16) => wide_loops!(f16_f16, F16),
            (DType::F32, DType::Bf16) => loops!(f32_bf16),
            (DType::Bf16, DType::F32) => loops!(bf16_f32),
            (DType::F64, DType::F64) => loops!(f64_f64),
            _ => return None,
        };
        macro_rules! light {
            ($type:ident) => {{
                static LOOPS: LightLoops = LightLoops {
                    light: light::light::<light::$type>,
                    relative: light::relative::<light::$type>,
                };
                static WIDE: LightLoops = LightLoops {
                    light: light512::light::<light::$type>,
                    ..LOOPS
                };
                Some(if level() >= Level::Avx512 {
                    &WIDE
                } else {
                    &LOOPS
                })
            }};
        }
        let light: Option<&'static LightLoops> = match (reference, candidate) {
            (DType::F32, DType::F32) => light!(F32),
            (DType::Bf16, DType::Bf16) => light!(Bf16),
            (DType::F16, DType::F16) if level() >= Level::Avx512 => {
                static LOOPS: LightLoops = LightLoops {
                    light: light512::light::<light::F16>,
                    relative: light::relative::<light::F16>,
                };
                Some(&LOOPS)
            }
            _ => None,
        };
        (level() >= Level::Avx2).then_some(Self {
            dtypes: [reference, candidate],
            loops,
            light,
        })
    }

    /// What the bytes hold.
    pub(crate) fn dtypes(self) -> [DType; 2] {
        self.dtypes
    }

    /// All of a block but its histograms; see [`Light`]. `None` when it must be done with [`Pair::block`]. What its `rows`, of so many elements
    /// each, sum up to is left in `cells`, where that costs less than [`Pair::row`]; else nothing is.
    pub(crate) fn light(
        self,
        r: &[u8],
        c: &[u8],
        asked: &Asked,
        rows: &[usize],
        cells: &mut Vec<Cell>,
    ) -> Option<Light> {
        // SAFETY: the features this is compiled for are part of the level that this was made for.
        unsafe { (self.light?.light)(r, c, asked, rows, cells) }
    }

    /// The largest relative difference of a block that [`Pair::light`] did.
    pub(crate) fn relative(self, r: &[u8], c: &[u8]) -> f64 {
        let light = self.light.expect("a block that was done lightly");
        // SAFETY: as above.
        unsafe { (light.relative)(r, c) }
    }
}

macro_rules! pair_loops {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $out:ty)?;)*) => {
        impl Pair {$(
            $(#[$doc])*
            pub(crate) fn $name(self, $($argument: $type),*) $(-> $out)? {
                // SAFETY: the features these functions are compiled for are part of the level that this was made for.
                unsafe { (self.loops.$name)($($argument),*) }
            }
        )*}
    };
}
pair_loops! {
    /// Everything about the differences of a block; see [`Block`].
    block(r: &[u8], c: &[u8], known: Known, magnitudes: &mut [u8], ulps: &mut [u8]) -> Block;
    /// Only the codes of a block that [`Pair::light`] did; see [`Pair::block`].
    codes(r: &[u8], c: &[u8], base: u16, magnitudes: &mut [u8], ulps: &mut [u8]);
    dot(r: &[u8], c: &[u8]) -> f64;
    row(r: &[u8], c: &[u8]) -> Cell;
    local(r: &[u8], c: &[u8], rms: f64) -> f64;
    above(r: &[u8], c: &[u8], least: f64, places: &mut Vec<u32>);
    beyond(r: &[u8], c: &[u8], atol: f64, rtol: f64) -> u64;
    columns(part: Part<'_>, cells: &mut [Cell]);
    /// Of parts that are equal.
    energies(part: Part<'_>, cells: &mut [Cell]);
}

macro_rules! same {
    ($($name:ident = $sums:ident;)*) => {$(
        /// The sums of one side, unless the other has other bytes.
        pub(crate) fn $name(bytes: &[u8], other: &[u8]) -> Option<Sums> {
            #[cfg(target_arch = "x86_64")]
            if level() >= Level::Avx2 && bytes.len() == other.len() {
                // SAFETY: the features these functions are compiled for are part of the level.
                return unsafe { avx2::$name(bytes, other) };
            }
            (bytes == other).then(|| $sums(bytes))
        }
    )*};
}
same! {
    f32_same = f32;
    bf16_same = bf16;
}

/// How many of the codes are each value above 0.
pub(crate) fn histogram(codes: &[u8], mut each: impl FnMut(u8, u64)) {
    #[cfg(target_arch = "x86_64")]
    if level() >= Level::Avx2 {
        // SAFETY: the feature this is compiled for is part of the level.
        return unsafe { pair::histogram(codes, each) };
    }
    codes
        .iter()
        .filter(|code| **code > 0)
        .for_each(|code| each(*code, 1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHIFT: f64 = 0.7;

    /// The fast loops of one type, and the numbers in the order they take them.
    struct Type {
        size: usize,
        first: fn(&[u8]) -> Sums,
        second: Option<fn(&[u8], f64) -> Shifted>,
        values: fn(&[u8]) -> Vec<f64>,
    }

    const F64: Type = Type {
        size: 8,
        first: f64,
        second: Some(f64_shifted),
        values: |bytes| kernel::f64s(bytes).collect(),
    };
    const F32: Type = Type {
        size: 4,
        first: f32,
        second: Some(f32_shifted),
        values: |bytes| kernel::f32s(bytes).collect(),
    };
    const F16: Type = Type {
        size: 2,
        first: f16,
        second: None,
        values: |bytes| kernel::f16s(bytes).collect(),
    };
    const BF16: Type = Type {
        size: 2,
        first: bf16,
        second: None,
        values: |bytes| kernel::bf16s(bytes).collect(),
    };

    fn is_plain_on_every_length_and_alignment(of: &Type, bytes: &[u8]) {
        for skip in 0..3 {
            for count in (0..100)
                .chain([255, 256, 257])
                .filter(|count| skip + count * of.size <= bytes.len())
            {
                let part = &bytes[skip..skip + count * of.size];
                let values = (of.values)(part);
                assert_eq!(values.len(), count);
                if values.iter().all(|x| x.is_finite()) {
                    assert_eq!(
                        (of.first)(part),
                        kernel::plain(values.iter().copied()),
                        "{count} numbers"
                    );
                } else {
                    assert!(
                        !(of.first)(part).squares.is_finite(),
                        "{count} numbers, not all finite"
                    );
                }
                if let Some(second) = of.second.filter(|_| values.iter().all(|x| x.is_finite())) {
                    assert_eq!(
                        second(part, SHIFT),
                        kernel::plain_shifted(values.into_iter(), SHIFT),
                        "{count} numbers"
                    );
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn vectors_print_the_digits_of_the_plain_loop(values in prop::collection::vec(-1e3f32..1e3, 260)) {
            let bytes: Vec<u8> = values.iter().flat_map(|x| f64::from(*x).cbrt().to_le_bytes()).collect();
            is_plain_on_every_length_and_alignment(&F64, &bytes);
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            is_plain_on_every_length_and_alignment(&F32, &bytes);
        }

        #[test]
        fn any_sixteen_bits_are_read_as_the_plain_loop_reads_them(bits in prop::collection::vec(any::<u16>(), 260)) {
            // Without the top exponents all are finite; with them a few are not.
            for mask in [u16::MAX, 0xbfff] {
                let bytes: Vec<u8> = bits.iter().flat_map(|x| (x & mask).to_le_bytes()).collect();
                is_plain_on_every_length_and_alignment(&F16, &bytes);
                is_plain_on_every_length_and_alignment(&BF16, &bytes);
            }
        }
    }

    #[test]
    fn one_sign_alone_still_gives_min_and_max() {
        for bits in [
            [0x3f80u16, 0x4000, 0x3f00],
            [0xbf80, 0xc000, 0xbf00],
            [0x8000, 0x8000, 0xbf80],
            [0x8000, 0x3f80, 0x0000],
            [0x8000; 3],
        ] {
            for repeat in [1, 5, 6, 11, 40] {
                let bytes: Vec<u8> = bits
                    .repeat(repeat)
                    .iter()
                    .flat_map(|x| x.to_le_bytes())
                    .collect();
                assert_eq!(bf16(&bytes), kernel::plain(kernel::bf16s(&bytes)));
                assert_eq!(f16(&bytes), kernel::plain(kernel::f16s(&bytes)));
            }
        }
    }

    #[test]
    fn one_bad_number_in_any_place_is_noticed() {
        for len in [1, 7, 8, 15, 16, 17, 31, 32, 33, 4096, 4099] {
            for place in [0, len / 2, len - 1] {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = vec![1.5f32; len];
                    values[place] = bad;
                    let wide: Vec<u8> = values
                        .iter()
                        .flat_map(|x| f64::from(*x).to_le_bytes())
                        .collect();
                    let single: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                    let half: Vec<u8> = single.chunks(4).flat_map(|x| [x[2], x[3]]).collect();
                    for sums in [f64(&wide), f32(&single), bf16(&half)] {
                        assert!(!sums.squares.is_finite(), "{bad} at {place} of {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_half_converts() {
        for bits in 0..=u16::MAX {
            let fast = f16(&bits.to_le_bytes().repeat(16));
            let value = kernel::f16(bits);
            assert_eq!(fast.squares.is_finite(), value.is_finite(), "{bits:04x}");
            if value.is_finite() {
                assert_eq!(
                    (fast.sum, fast.min, fast.max),
                    (16.0 * value, value + 0.0, value + 0.0),
                    "{bits:04x}"
                );
            }
        }
    }
}
