//! AVX2 over a block of f32 or bf16 pairs, everything but the histograms: the way of most bytes.
//!
//! Two loops over a part that stays in the first-level cache. The first looks at bits, 8 or 16 numbers at a time, finds whether anything unusual is
//! there, and leaves the larger magnitude of each pair for the second, which does what is a sum in `f64`. What only has to be found
//! (a largest one that beats the largest so far) is looked for in `f32` with a threshold that misses nothing; the few blocks that may have
//! one are looked at again, exactly.
//!
//! Of numbers that are all close to each other (no relative difference above a largest one below a half) the first loop is shorter: they have one
//! sign, none is 0 alone, and their differences are exact in `f32`. That is tried first, and taken back where it does not hold.

use super::pair::{abs, eight_counts, four, total, wide};
use crate::{
    kernel::Sums,
    totals::{Asked, Cell, Light},
};
use std::{
    arch::{asm, x86_64::*},
    mem::MaybeUninit,
};

/// Most elements of a part: both sides, what is left for the second loop and the next part fit the first-level cache.
const PART: usize = 1024;

/// At or above this, bits without their sign are of an infinity or a NaN.
const INFINITE: u32 = 0x7f80_0000;

/// Below this relative difference two numbers are within a factor of two of each other: their difference is exact in `f32` (Sterbenz), and
/// they have one sign. Also if it is only nearly known.
pub(super) const NARROW: f64 = 0.499;

/// Beyond what roundings of `f32` can hide, as a fraction.
const UNSURE: f64 = 1.0 / (1 << 22) as f64;
/// Quotients of numbers of 8 bits that are within a factor of two of each other are equal or 2^-17 apart, as a fraction.
const BETWEEN: f64 = 1.0 / (1 << 19) as f64;

/// Room for numbers between the two loops. Stores that cross a cache line are slow, so it begins at one.
#[repr(align(64))]
pub(super) struct Room(MaybeUninit<[f32; 3 * PART]>);

/// What the first loop finds.
#[derive(Clone, Copy)]
pub(super) struct Scan {
    /// Bits of the largest and the least magnitude of both sides, as those of an f32. Of close pairs the least is the larger one of its pair.
    largest: u32,
    least: u32,
    /// Bits of the largest difference, rounded to an f32.
    most: u32,
    /// How many have equal bits.
    equal: u32,
    /// The most steps of the type between two numbers.
    steps: u32,
    /// Whether a pair has two signs.
    opposite: bool,
    /// Whether a relative difference is above the threshold.
    over: bool,
    /// Whether a difference is above both thresholds of [`Local`].
    local: bool,
}

/// What the first loop has found in the parts of a block so far, lane by lane: of 16 bits in the first five where the numbers have 16.
#[derive(Clone, Copy)]
pub(super) struct Found {
    largest: __m256i,
    least: __m256i,
    equal: __m256i,
    steps: __m256i,
    opposite: __m256i,
    most: __m256i,
    over: __m256i,
    local: __m256i,
}

impl Found {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn nothing() -> Self {
        let none = _mm256_setzero_si256();
        // The largest magnitude there is, of 32 and of 16 bits.
        let least = _mm256_set1_epi32(0x7fff_7fff);
        Self {
            largest: none,
            least,
            equal: none,
            steps: none,
            opposite: none,
            most: none,
            over: none,
            local: none,
        }
    }

    /// Whether all pairs of loops over close ones were close, finite and not 0. Of a NaN the sign says nothing, but its bits are large.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn is_close<T: Narrow>(&self) -> bool {
        let infinite = _mm256_set1_epi32(INFINITE as i32 - 1);
        let none = _mm256_setzero_si256();
        let (zeros, finite) = match T::SIZE {
            4 => (
                _mm256_cmpeq_epi32(self.least, none),
                _mm256_cmpgt_epi32(self.largest, infinite),
            ),
            _ => (
                _mm256_cmpeq_epi16(self.least, none),
                _mm256_cmpgt_epi16(self.largest, _mm256_srli_epi32::<16>(infinite)),
            ),
        };
        let not = _mm256_or_si256(
            _mm256_or_si256(zeros, finite),
            _mm256_cmpgt_epi32(self.most, infinite),
        );
        !any_sign(self.over) && _mm256_testz_si256(not, not) == 1
    }

    #[target_feature(enable = "avx2")]
    fn finish<T: Narrow>(&self) -> Scan {
        let [most, over, local] = [
            largest_of(self.most),
            u32::from(any_sign(self.over)),
            u32::from(any_sign(self.local)),
        ];
        let (over, local) = (over == 1, local == 1);
        if T::SIZE == 4 {
            return Scan {
                largest: largest_of(self.largest),
                least: eight_counts(self.least).into_iter().min().unwrap_or(0),
                most,
                equal: eight_counts(self.equal).into_iter().sum(),
                steps: largest_of(self.steps),
                opposite: any_sign(self.opposite),
                over,
                local,
            };
        }
        let most_of = |vector| u32::from(sixteen(vector).into_iter().max().unwrap_or(0));
        Scan {
            largest: most_of(self.largest) << 16,
            least: u32::from(sixteen(self.least).into_iter().min().unwrap_or(0)) << 16,
            most,
            equal: sixteen(self.equal).into_iter().map(u32::from).sum(),
            steps: most_of(self.steps),
            opposite: sixteen(self.opposite)
                .into_iter()
                .any(|signs| signs >> 15 == 1),
            over,
            local,
        }
    }
}

/// The thresholds of `|c - r| / max(|r|, rms)`: times the number, and times the rms.
#[derive(Clone, Copy)]
pub(super) struct Local {
    pub(super) of_number: f32,
    pub(super) of_rms: f32,
}

impl Local {
    /// `exact`: see [`threshold`].
    pub(super) fn new(limit: f64, rms: f64, exact: bool) -> Self {
        Self {
            of_number: threshold(limit, exact),
            of_rms: down(limit * rms * (1.0 - UNSURE)),
        }
    }

    /// The sign is set where a difference is above both.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn above(self, size: __m256, apart: __m256) -> __m256i {
        let number = bits(_mm256_fmsub_ps(_mm256_set1_ps(self.of_number), size, apart));
        _mm256_and_si256(
            number,
            bits(_mm256_sub_ps(_mm256_set1_ps(self.of_rms), apart)),
        )
    }
}

/// Where the second loop finds both sides and the larger magnitudes, as `f32`, in any order that is the same for all.
pub(super) struct Wide {
    r: *const f32,
    c: *const f32,
    sizes: *const f32,
}

/// What the second loop sums, while it is apart.
#[derive(Clone, Copy)]
struct Sum {
    r: __m256d,
    c: __m256d,
    apart: __m256d,
    relative: __m256d,
    r_squares: __m256d,
    c_squares: __m256d,
    squares: __m256d,
}

impl Sum {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        let zero = _mm256_setzero_pd();
        Self {
            r: zero,
            c: zero,
            apart: zero,
            relative: zero,
            r_squares: zero,
            c_squares: zero,
            squares: zero,
        }
    }
}

/// What a loop over close pairs looks for: only relative differences above the threshold;
pub(super) const RELATIVE: u8 = 0;
/// differences above the threshold compared to the reference, which both kinds of largest one are;
pub(super) const REFERENCE: u8 = 1;
/// relative ones, and compared to the reference ([`Local::of_number`]), each with its own threshold;
pub(super) const EITHER: u8 = 2;
/// relative ones, and apart from them those above both thresholds of [`Local`].
pub(super) const LOCAL: u8 = 3;

/// A type whose numbers an f32 holds.
pub(super) trait Single {
    const SIZE: usize;
    /// Eight bits of precision: quotients have gaps ([`BETWEEN`]).
    const EIGHT_BITS: bool;

    /// Eight numbers.
    ///
    /// # Safety
    /// AVX2 and F16C, and eight elements to read.
    unsafe fn load(at: *const u8) -> __m256;
}

/// One that has loops of AVX2.
pub(super) trait Narrow: Single {
    /// Elements of a part, at most [`PART`]: 2 KiB of a side.
    const COUNT: usize = 2048 / Self::SIZE;

    /// The first loop over `n` elements, a multiple of 16; `threshold` is for relative differences, `local` is looked for where `LOCAL` says so.
    ///
    /// # Safety
    /// AVX2 and FMA, and `n` elements to read on both sides, at most [`PART`].
    unsafe fn scan<const LOCAL: bool>(
        r: *const u8,
        c: *const u8,
        n: usize,
        room: &mut Room,
        threshold: f32,
        local: Local,
        found: &mut Found,
    ) -> Wide;

    /// As `scan`, with a threshold below a half. Right only when [`Scan::is_close`] says so.
    ///
    /// # Safety
    /// As `scan`.
    unsafe fn scan_close<const HOW: u8>(
        r: *const u8,
        c: *const u8,
        n: usize,
        room: &mut Room,
        threshold: f32,
        local: Local,
        found: &mut Found,
    ) -> Wide;
}

pub(super) struct F32;
pub(super) struct Bf16;
pub(super) struct F16;

impl Single for F32 {
    const SIZE: usize = 4;
    const EIGHT_BITS: bool = false;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: eight elements can be read, says the caller.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

impl Single for Bf16 {
    const SIZE: usize = 2;
    const EIGHT_BITS: bool = true;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: eight elements, 16 bytes, can be read, says the caller.
        floats(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(unsafe {
            _mm_loadu_si128(at.cast())
        })))
    }
}

impl Single for F16 {
    const SIZE: usize = 2;
    const EIGHT_BITS: bool = false;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: eight elements, 16 bytes, can be read, says the caller.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn floats(x: __m256i) -> __m256 {
    _mm256_castsi256_ps(x)
}

#[inline]
#[target_feature(enable = "avx2")]
fn bits(x: __m256) -> __m256i {
    _mm256_castps_si256(x)
}

#[inline]
#[target_feature(enable = "avx2")]
fn abs32(x: __m256) -> __m256 {
    _mm256_andnot_ps(_mm256_set1_ps(-0.0), x)
}

/// The largest of eight, none negative.
#[target_feature(enable = "avx2")]
fn largest_of(x: __m256i) -> u32 {
    eight_counts(x).into_iter().max().unwrap_or(0)
}

/// Whether any of eight has its sign set.
#[target_feature(enable = "avx2")]
fn any_sign(x: __m256i) -> bool {
    _mm256_movemask_ps(floats(x)) != 0
}

#[target_feature(enable = "avx2")]
fn sixteen(vector: __m256i) -> [u16; 16] {
    let mut out = [0; 16];
    // SAFETY: sixteen `u16` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), vector) };
    out
}

impl Narrow for F32 {
    // With the second loop inlined beside it neither fits the registers.
    #[inline(never)]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn scan<const LOCAL: bool>(
        r: *const u8,
        c: *const u8,
        n: usize,
        room: &mut Room,
        threshold: f32,
        local: Local,
        found: &mut Found,
    ) -> Wide {
        let magnitude = _mm256_set1_epi32(i32::MAX);
        let threshold = _mm256_set1_ps(threshold);
        let Found {
            mut largest,
            mut least,
            mut equal,
            mut steps,
            mut opposite,
            mut most,
            mut over,
            local: mut beyond,
        } = *found;
        let sizes: *mut f32 = room.0.as_mut_ptr().cast();
        for i in (0..n).step_by(8) {
            // SAFETY: eight elements from i lie inside both sides.
            let (x, y) = unsafe {
                (
                    _mm256_loadu_si256(r.add(4 * i).cast()),
                    _mm256_loadu_si256(c.add(4 * i).cast()),
                )
            };
            let (a, b) = (
                _mm256_and_si256(x, magnitude),
                _mm256_and_si256(y, magnitude),
            );
            let (high, low) = (_mm256_max_epi32(a, b), _mm256_min_epi32(a, b));
            largest = _mm256_max_epi32(largest, high);
            least = _mm256_min_epi32(least, low);
            equal = _mm256_sub_epi32(equal, _mm256_cmpeq_epi32(x, y));
            let signs = _mm256_xor_si256(x, y);
            opposite = _mm256_or_si256(opposite, signs);
            // Magnitudes are steps from 0: of one sign they are subtracted, of two added.
            let signed = _mm256_sign_epi32(low, _mm256_or_si256(signs, _mm256_set1_epi32(1)));
            steps = _mm256_max_epu32(steps, _mm256_sub_epi32(high, signed));
            // Never 0, so that it can be divided by: the least f32 above 0 where both are 0.
            let size = _mm256_max_epi32(high, _mm256_set1_epi32(1));
            let apart = abs32(_mm256_sub_ps(floats(y), floats(x)));
            most = _mm256_max_epi32(most, bits(apart));
            over = _mm256_or_si256(over, bits(_mm256_fmsub_ps(threshold, floats(size), apart)));
            if LOCAL {
                beyond = _mm256_or_si256(beyond, local.above(floats(a), apart));
            }
            // SAFETY: n is at most PART, so eight have room from i.
            unsafe { _mm256_storeu_si256(sizes.add(i).cast(), size) };
        }
        *found = Found {
            largest,
            least,
            equal,
            steps,
            opposite,
            most,
            over,
            local: beyond,
        };
        Wide {
            r: r.cast(),
            c: c.cast(),
            sizes,
        }
    }

    #[inline(never)]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn scan_close<const HOW: u8>(
        r: *const u8,
        c: *const u8,
        n: usize,
        room: &mut Room,
        threshold: f32,
        local: Local,
        found: &mut Found,
    ) -> Wide {
        let magnitude = _mm256_set1_epi32(i32::MAX);
        let threshold = _mm256_set1_ps(threshold);
        let Found {
            mut largest,
            mut least,
            mut equal,
            mut steps,
            opposite,
            mut most,
            mut over,
            local: mut beyond,
        } = *found;
        let sizes: *mut f32 = room.0.as_mut_ptr().cast();
        for i in (0..n).step_by(8) {
            // SAFETY: eight elements from i lie inside both sides.
            let (x, y) = unsafe {
                (
                    _mm256_loadu_si256(r.add(4 * i).cast()),
                    _mm256_loadu_si256(c.add(4 * i).cast()),
                )
            };
            // Of one sign, the larger bits are those of the larger magnitude.
            let size = _mm256_and_si256(_mm256_max_epu32(x, y), magnitude);
            largest = _mm256_max_epi32(largest, size);
            least = _mm256_min_epi32(least, size);
            equal = _mm256_sub_epi32(equal, _mm256_cmpeq_epi32(x, y));
            steps = _mm256_max_epi32(steps, _mm256_abs_epi32(_mm256_sub_epi32(x, y)));
            let apart = abs32(_mm256_sub_ps(floats(y), floats(x)));
            most = _mm256_max_epi32(most, bits(apart));
            let size_of_r = abs32(floats(x));
            over = _mm256_or_si256(
                over,
                above::<HOW>(threshold, local, floats(size), size_of_r, apart),
            );
            if HOW == LOCAL {
                beyond = _mm256_or_si256(beyond, local.above(size_of_r, apart));
            }
            // SAFETY: n is at most PART, so eight have room from i.
            unsafe { _mm256_store_si256(sizes.add(i).cast(), size) };
        }
        *found = Found {
            largest,
            least,
            equal,
            steps,
            opposite,
            most,
            over,
            local: beyond,
        };
        Wide {
            r: r.cast(),
            c: c.cast(),
            sizes,
        }
    }
}

impl Narrow for Bf16 {
    #[inline(never)]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn scan<const LOCAL: bool>(
        r: *const u8,
        c: *const u8,
        n: usize,
        room: &mut Room,
        threshold: f32,
        local: Local,
        found: &mut Found,
    ) -> Wide {
        // SAFETY: as the caller says. Apart, so that each loop fits the registers.
        unsafe { bf16_bits::<false>(r, c, n, found) };
        let threshold = _mm256_set1_ps(threshold);
        let Found {
            mut most,
            mut over,
            local: mut beyond,
            ..
        } = *found;
        let rs: *mut f32 = room.0.as_mut_ptr().cast();
        // SAFETY: the room has three times PART.
        let (cs, sizes) = unsafe { (rs.add(PART), rs.add(2 * PART)) };
        let magnitude = _mm256_set1_epi16(i16::MAX);
        for i in (0..n).step_by(16) {
            // SAFETY: sixteen elements from i lie inside both sides.
            let (x, y) = unsafe {
                (
                    _mm256_loadu_si256(r.add(2 * i).cast()),
                    _mm256_loadu_si256(c.add(2 * i).cast()),
                )
            };
            let size = _mm256_max_epi16(
                _mm256_and_si256(x, magnitude),
                _mm256_and_si256(y, magnitude),
            );
            // Never 0, so that it can be divided by: the least bf16 above 0 where both are 0.
            let size = _mm256_max_epi16(size, _mm256_set1_epi16(1));
            let (xs, ys, ss) = (halves(x), halves(y), halves(size));
            for k in 0..2 {
                let apart = abs32(_mm256_sub_ps(floats(ys[k]), floats(xs[k])));
                most = _mm256_max_epi32(most, bits(apart));
                over =
                    _mm256_or_si256(over, bits(_mm256_fmsub_ps(threshold, floats(ss[k]), apart)));
                if LOCAL {
                    beyond = _mm256_or_si256(beyond, local.above(abs32(floats(xs[k])), apart));
                }
                // SAFETY: n is at most PART, so sixteen have room from i.
                unsafe {
                    _mm256_store_si256(rs.add(i + 8 * k).cast(), xs[k]);
                    _mm256_store_si256(cs.add(i + 8 * k).cast(), ys[k]);
                    _mm256_store_si256(sizes.add(i + 8 * k).cast(), ss[k]);
                }
            }
        }
        *found = Found {
            most,
            over,
            local: beyond,
            ..*found
        };
        Wide {
            r: rs,
            c: cs,
            sizes,
        }
    }

    #[inline(never)]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn scan_close<const HOW: u8>(
        r: *const u8,
        c: *const u8,
        n: usize,
        room: &mut Room,
        threshold: f32,
        local: Local,
        found: &mut Found,
    ) -> Wide {
        // SAFETY: as the caller says. Apart, so that each loop fits the registers.
        unsafe { bf16_bits::<true>(r, c, n, found) };
        let threshold = _mm256_set1_ps(threshold);
        let Found {
            mut most,
            mut over,
            local: mut beyond,
            ..
        } = *found;
        let rs: *mut f32 = room.0.as_mut_ptr().cast();
        // SAFETY: the room has three times PART.
        let (cs, sizes) = unsafe { (rs.add(PART), rs.add(2 * PART)) };
        for i in (0..n).step_by(16) {
            // SAFETY: sixteen elements from i lie inside both sides.
            let (x, y) = unsafe {
                (
                    _mm256_loadu_si256(r.add(2 * i).cast()),
                    _mm256_loadu_si256(c.add(2 * i).cast()),
                )
            };
            let size = _mm256_and_si256(_mm256_max_epu16(x, y), _mm256_set1_epi16(i16::MAX));
            let (xs, ys, ss) = (halves(x), halves(y), halves(size));
            for k in 0..2 {
                let apart = abs32(_mm256_sub_ps(floats(ys[k]), floats(xs[k])));
                most = _mm256_max_epi32(most, bits(apart));
                let size_of_r = abs32(floats(xs[k]));
                over = _mm256_or_si256(
                    over,
                    above::<HOW>(threshold, local, floats(ss[k]), size_of_r, apart),
                );
                if HOW == LOCAL {
                    beyond = _mm256_or_si256(beyond, local.above(size_of_r, apart));
                }
                // SAFETY: n is at most PART, so sixteen have room from i.
                unsafe {
                    _mm256_store_si256(rs.add(i + 8 * k).cast(), xs[k]);
                    _mm256_store_si256(cs.add(i + 8 * k).cast(), ys[k]);
                    _mm256_store_si256(sizes.add(i + 8 * k).cast(), ss[k]);
                }
            }
        }
        *found = Found {
            most,
            over,
            local: beyond,
            ..*found
        };
        Wide {
            r: rs,
            c: cs,
            sizes,
        }
    }
}

/// What the bits alone say, of close pairs with less work.
///
/// # Safety
/// `n` elements, a multiple of 16, to read on both sides.
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn bf16_bits<const CLOSE: bool>(r: *const u8, c: *const u8, n: usize, found: &mut Found) {
    let magnitude = _mm256_set1_epi16(i16::MAX);
    let Found {
        mut largest,
        mut least,
        mut equal,
        mut steps,
        mut opposite,
        ..
    } = *found;
    for i in (0..n).step_by(16) {
        // SAFETY: sixteen elements from i lie inside both sides.
        let (x, y) = unsafe {
            (
                _mm256_loadu_si256(r.add(2 * i).cast()),
                _mm256_loadu_si256(c.add(2 * i).cast()),
            )
        };
        equal = _mm256_sub_epi16(equal, _mm256_cmpeq_epi16(x, y));
        if CLOSE {
            // Of one sign, the larger bits are those of the larger magnitude.
            let size = _mm256_and_si256(_mm256_max_epu16(x, y), magnitude);
            largest = _mm256_max_epi16(largest, size);
            least = _mm256_min_epi16(least, size);
            steps = _mm256_max_epu16(steps, _mm256_abs_epi16(_mm256_sub_epi16(x, y)));
        } else {
            let (a, b) = (
                _mm256_and_si256(x, magnitude),
                _mm256_and_si256(y, magnitude),
            );
            let (high, low) = (_mm256_max_epi16(a, b), _mm256_min_epi16(a, b));
            largest = _mm256_max_epi16(largest, high);
            least = _mm256_min_epi16(least, low);
            let signs = _mm256_xor_si256(x, y);
            opposite = _mm256_or_si256(opposite, signs);
            // Magnitudes are steps from 0: of one sign they are subtracted, of two added.
            let signed = _mm256_sign_epi16(low, _mm256_or_si256(signs, _mm256_set1_epi16(1)));
            steps = _mm256_max_epu16(steps, _mm256_sub_epi16(high, signed));
        }
    }
    *found = Found {
        largest,
        least,
        equal,
        steps,
        opposite,
        ..*found
    };
}

/// The sign is set where a difference of close numbers is above a threshold.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn above<const HOW: u8>(
    threshold: __m256,
    local: Local,
    size: __m256,
    size_of_r: __m256,
    apart: __m256,
) -> __m256i {
    let over = bits(_mm256_fmsub_ps(
        threshold,
        if HOW == REFERENCE { size_of_r } else { size },
        apart,
    ));
    if HOW != EITHER {
        return over;
    }
    _mm256_or_si256(
        over,
        bits(_mm256_fmsub_ps(
            _mm256_set1_ps(local.of_number),
            size_of_r,
            apart,
        )),
    )
}

/// Sixteen bf16 as f32, those at even places and those at odd ones. A bf16 is the upper half of an f32: shifting takes the even places there,
/// masking leaves the odd ones.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(x: __m256i) -> [__m256i; 2] {
    [
        _mm256_slli_epi32::<16>(x),
        _mm256_and_si256(x, _mm256_set1_epi32(0xffff_0000_u32 as i32)),
    ]
}

/// The second loop. The bytes at `next` are asked for meanwhile, `SIZE` for each element; a prefetch never faults, wherever it points.
///
/// # Safety
/// `n` numbers, a multiple of eight, to read everywhere.
#[inline(never)]
#[target_feature(enable = "avx2,fma")]
unsafe fn sums<const SIZE: usize>(from: &Wide, n: usize, next: [*const u8; 2], sum: &mut Sum) {
    let Sum {
        mut r,
        mut c,
        mut apart,
        mut relative,
        mut r_squares,
        mut c_squares,
        mut squares,
    } = *sum;
    for i in (0..n).step_by(8) {
        _mm_prefetch::<_MM_HINT_T0>(next[0].wrapping_add(i * SIZE).cast());
        _mm_prefetch::<_MM_HINT_T0>(next[1].wrapping_add(i * SIZE).cast());
        // SAFETY: eight numbers from i can be read, says the caller.
        let load = |at: *const f32, half: usize| unsafe {
            _mm256_cvtps_pd(_mm_loadu_ps(at.add(i + 4 * half)))
        };
        let mut d = [_mm256_setzero_pd(); 2];
        for (k, d) in d.iter_mut().enumerate() {
            // SAFETY: nothing happens here, but that no load moves across it: with all of them first, sums are moved out of their registers.
            unsafe { asm!("", options(nostack, preserves_flags)) };
            let (x, y) = (load(from.r, k), load(from.c, k));
            r = _mm256_add_pd(r, x);
            c = _mm256_add_pd(c, y);
            r_squares = _mm256_fmadd_pd(x, x, r_squares);
            c_squares = _mm256_fmadd_pd(y, y, c_squares);
            *d = abs(_mm256_sub_pd(y, x));
            apart = _mm256_add_pd(apart, *d);
            squares = _mm256_fmadd_pd(*d, *d, squares);
        }
        let size = [load(from.sizes, 0), load(from.sizes, 1)];
        // Two fractions as one: a division takes as long as all the rest. The range of f32, squared, is far inside that of f64.
        let over = _mm256_fmadd_pd(d[0], size[1], _mm256_mul_pd(d[1], size[0]));
        relative = _mm256_add_pd(
            relative,
            _mm256_div_pd(over, _mm256_mul_pd(size[0], size[1])),
        );
    }
    *sum = Sum {
        r,
        c,
        apart,
        relative,
        r_squares,
        c_squares,
        squares,
    };
}

/// The f32 at or next below.
pub(super) fn down(x: f64) -> f32 {
    if f64::from(x as f32) > x {
        (x as f32).next_down()
    } else {
        x as f32
    }
}

/// A factor of `f32` that a quotient above `best` is above, whatever was rounded; one at `best` is not, where that can be told.
fn threshold(best: f64, exact: bool) -> f32 {
    down(best * if exact { 1.0 + BETWEEN } else { 1.0 - UNSURE })
}

/// The threshold of relative differences above the largest one so far.
pub(super) fn limit_of<T: Single>(best: f64) -> f32 {
    match best {
        // Nothing is above 2; above 1 is what has two signs, which is seen as it is.
        2.0.. => f32::INFINITY,
        1.0 => 1.0,
        _ => threshold(best, T::EIGHT_BITS && best < NARROW),
    }
}

/// What to look for in close pairs.
pub(super) fn how<T: Single>(asked: &Asked) -> u8 {
    // Nothing is larger relative to the larger one of a pair than to the reference. Where the two largest so far are about the same, what is
    // above either is rare whatever its size, and finding none says enough.
    match (asked.rms > 0.0, asked.local > 0.9 * asked.relative) {
        (false, _) => RELATIVE,
        (true, true) if !T::EIGHT_BITS => REFERENCE,
        (true, true) => EITHER,
        (true, false) => LOCAL,
    }
}

/// Everything about a block of finite numbers but its histograms; see [`Light`]. `None` when it is left to the other loops: it is not a
/// multiple of 16, or has something that is not finite. Rows are not summed up here.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn light<T: Narrow>(
    r: &[u8],
    c: &[u8],
    asked: &Asked,
    _: &[usize],
    cells: &mut Vec<Cell>,
) -> Option<Light> {
    cells.clear();
    assert!(r.len() == c.len());
    let n = r.len() / T::SIZE;
    // Lanes of 16 bits count to 65,535.
    if n == 0 || !r.len().is_multiple_of(16 * T::SIZE) || n >= 1 << 20 {
        return None;
    }
    let best = asked.relative;
    let narrow = best < NARROW;
    let limit = limit_of::<T>(best);
    let tested = asked.rms > 0.0;
    // What is compared to a smaller reference than the rms is, compared to itself, a quotient above that one too: the gap holds for both.
    let exact = T::EIGHT_BITS && asked.local < NARROW && asked.local_is_quotient;
    let local = Local::new(asked.local, asked.rms, exact);
    let how = how::<T>(asked);
    let close_limit = if how == REFERENCE {
        limit.min(local.of_number)
    } else {
        limit
    };
    let mut room = Room(MaybeUninit::uninit());
    let mut sum = Sum::new();
    let mut found = Found::nothing();
    let (mut try_close, mut looked_for_local) = (narrow, false);
    for start in (0..n).step_by(T::COUNT) {
        let count = (n - start).min(T::COUNT);
        let (at, to) = (start * T::SIZE, (start + count) * T::SIZE);
        // SAFETY: `count` elements from `start` lie inside both sides.
        let wide = unsafe {
            let (r, c) = (r.as_ptr().add(at), c.as_ptr().add(at));
            let mut tried = found;
            let close = try_close.then(|| match how {
                RELATIVE => T::scan_close::<RELATIVE>(
                    r,
                    c,
                    count,
                    &mut room,
                    close_limit,
                    local,
                    &mut tried,
                ),
                REFERENCE => T::scan_close::<REFERENCE>(
                    r,
                    c,
                    count,
                    &mut room,
                    close_limit,
                    local,
                    &mut tried,
                ),
                EITHER => {
                    T::scan_close::<EITHER>(r, c, count, &mut room, close_limit, local, &mut tried)
                }
                _ => T::scan_close::<LOCAL>(r, c, count, &mut room, close_limit, local, &mut tried),
            });
            match close.filter(|_| tried.is_close::<T>()) {
                Some(close) => {
                    found = tried;
                    looked_for_local |= how == LOCAL;
                    close
                }
                None => {
                    (try_close, looked_for_local) = (false, true);
                    if tested {
                        T::scan::<true>(r, c, count, &mut room, limit, local, &mut found)
                    } else {
                        T::scan::<false>(r, c, count, &mut room, limit, local, &mut found)
                    }
                }
            }
        };
        let next = [r.as_ptr().wrapping_add(to), c.as_ptr().wrapping_add(to)];
        // SAFETY: the first loop left `count` numbers there.
        unsafe { sums_of::<T>(&wide, count, next, &mut sum) };
    }
    let all = found.finish::<T>();
    if all.largest >= INFINITE {
        return None;
    }
    // A 0 and a -0 are equal; zeros are counted only where there are some.
    let (zeros, equal) = if all.least == 0 {
        zeros::<T>(r, c)
    } else {
        ([0; 2], u64::from(all.equal))
    };
    let largest = f64::from(f32::from_bits(all.largest));
    let ends = if asked.within == 0.0 || largest > asked.within {
        [ends::<T>(r), ends::<T>(c)]
    } else {
        [(f64::INFINITY, f64::NEG_INFINITY); 2]
    };
    let (r_squares, c_squares) = (total(sum.r_squares), total(sum.c_squares));
    let rms = (r_squares / n as f64).sqrt();
    let higher = match best {
        2.0.. => false,
        1.0 => all.opposite,
        _ => all.over,
    };
    let narrow = narrow && !higher;
    // Differences of 8-bit numbers of such a range are exact too.
    let few_bits = T::EIGHT_BITS && all.least > 0 && all.largest - all.least < 15 << 23;
    let max_abs = if narrow || few_bits {
        f64::from(f32::from_bits(all.most))
    } else {
        most::<T>(r, c, all.most)
    };
    // Where no relative difference is above the best one, none is larger compared to the reference than this.
    let bound = if narrow {
        best / (1.0 - best)
    } else {
        f64::INFINITY
    };
    let slack = if T::EIGHT_BITS {
        1.0 - 1.0 / (1u64 << 40) as f64
    } else {
        1.0
    };
    let close =
        max_abs > 0.0 && (rms == 0.0 || max_abs / rms > asked.local) && bound * slack > asked.local;
    let ruled_out = tested && !all.local && (!looked_for_local || rms >= asked.rms);
    Some(Light {
        sums: [
            Sums {
                sum: total(sum.r),
                squares: r_squares,
                min: ends[0].0,
                max: ends[0].1,
                zeros: zeros[0],
            },
            Sums {
                sum: total(sum.c),
                squares: c_squares,
                min: ends[1].0,
                max: ends[1].1,
                zeros: zeros[1],
            },
        ],
        largest,
        apart: total(sum.apart),
        squares: total(sum.squares),
        relative: total(sum.relative),
        max_abs,
        higher,
        rms,
        close,
        over: close && !ruled_out && over::<T>(r, c, asked.local, rms, exact),
        differing: n as u64 - equal,
        max_steps: all.steps,
        zeros: zeros.iter().all(|zeros| *zeros > 0),
    })
}

/// # Safety
/// As [`sums`].
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn sums_of<T: Narrow>(from: &Wide, n: usize, next: [*const u8; 2], sum: &mut Sum) {
    // SAFETY: `n` numbers can be read, says the caller.
    unsafe {
        if T::SIZE == 4 {
            sums::<4>(from, n, next, sum);
        } else {
            sums::<2>(from, n, next, sum);
        }
    }
}

/// Eight of both sides at a time.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn each<T: Single>(r: &[u8], c: &[u8], mut visit: impl FnMut(__m256, __m256)) {
    for i in (0..r.len().min(c.len()) / (8 * T::SIZE)).map(|i| i * 8 * T::SIZE) {
        // SAFETY: eight elements from i lie inside both sides.
        let (r, c) = unsafe { (T::load(r.as_ptr().add(i)), T::load(c.as_ptr().add(i))) };
        visit(r, c);
    }
}

/// The largest `|c - r|`, of which the bits as an f32 are known: only what rounds to it is looked at.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn most<T: Single>(r: &[u8], c: &[u8], rounded: u32) -> f64 {
    let mut most = [_mm256_setzero_pd(); 2];
    each::<T>(r, c, |x, y| {
        let apart = bits(abs32(_mm256_sub_ps(y, x)));
        let same = _mm256_cmpeq_epi32(apart, _mm256_set1_epi32(rounded as i32));
        if any_sign(same) {
            let (x, y) = (wide(x), wide(y));
            most = [0, 1].map(|k| _mm256_max_pd(most[k], abs(_mm256_sub_pd(y[k], x[k]))));
        }
    });
    four(_mm256_max_pd(most[0], most[1]))
        .into_iter()
        .fold(0.0, f64::max)
}

/// The zeros of each side, and how many pairs are equal.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn zeros<T: Single>(r: &[u8], c: &[u8]) -> ([u64; 2], u64) {
    let mut counts = [_mm256_setzero_si256(); 3];
    each::<T>(r, c, |x, y| {
        let zero = _mm256_setzero_ps();
        for (count, pair) in counts.iter_mut().zip([(x, zero), (y, zero), (x, y)]) {
            *count = _mm256_sub_epi32(*count, bits(_mm256_cmp_ps::<_CMP_EQ_OQ>(pair.0, pair.1)));
        }
    });
    let [r, c, equal] = counts.map(|count| eight_counts(count).into_iter().map(u64::from).sum());
    ([r, c], equal)
}

/// The least and the largest number.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn ends<T: Single>(bytes: &[u8]) -> (f64, f64) {
    let (mut min, mut max) = (
        _mm256_set1_ps(f32::INFINITY),
        _mm256_set1_ps(f32::NEG_INFINITY),
    );
    each::<T>(bytes, bytes, |x, _| {
        (min, max) = (_mm256_min_ps(x, min), _mm256_max_ps(x, max));
    });
    let eight = |vector| eight_counts(bits(vector)).into_iter().map(f32::from_bits);
    // A zero is a zero: adding one makes -0 a 0.
    (
        f64::from(eight(min).fold(f32::INFINITY, f32::min)) + 0.0,
        f64::from(eight(max).fold(f32::NEG_INFINITY, f32::max)) + 0.0,
    )
}

/// Whether some `|c - r| / max(|r|, rms)` may be above the limit. `exact`: see [`threshold`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn over<T: Single>(r: &[u8], c: &[u8], limit: f64, rms: f64, exact: bool) -> bool {
    let local = Local::new(limit, rms, exact);
    let mut any = _mm256_setzero_si256();
    each::<T>(r, c, |x, y| {
        any = _mm256_or_si256(any, local.above(abs32(x), abs32(_mm256_sub_ps(y, x))));
    });
    any_sign(any)
}

/// Whether some `|c - r| / max(|r|, |c|)` may be above the largest one so far, whose threshold is [`limit_of`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn higher<T: Single>(r: &[u8], c: &[u8], best: f64, limit: f32) -> bool {
    let mut any = _mm256_setzero_si256();
    each::<T>(r, c, |x, y| {
        let size = _mm256_max_ps(abs32(x), abs32(y));
        let above = bits(_mm256_fmsub_ps(
            _mm256_set1_ps(limit),
            size,
            abs32(_mm256_sub_ps(y, x)),
        ));
        // A little more than 1 may round to 1.
        let opposite = if best == 1.0 {
            bits(_mm256_xor_ps(x, y))
        } else {
            above
        };
        any = _mm256_or_si256(any, _mm256_or_si256(above, opposite));
    });
    best < 2.0 && any_sign(any)
}

/// The most steps of the type between two numbers. Magnitudes are steps from 0: of one sign they are subtracted, of two added.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn steps<T: Single>(r: &[u8], c: &[u8]) -> u32 {
    let mut most = _mm256_setzero_si256();
    if T::SIZE == 4 {
        each::<T>(r, c, |x, y| {
            let (a, b) = (bits(abs32(x)), bits(abs32(y)));
            let (high, low) = (_mm256_max_epi32(a, b), _mm256_min_epi32(a, b));
            let signed = _mm256_sign_epi32(
                low,
                _mm256_or_si256(bits(_mm256_xor_ps(x, y)), _mm256_set1_epi32(1)),
            );
            most = _mm256_max_epu32(most, _mm256_sub_epi32(high, signed));
        });
        return largest_of(most);
    }
    let magnitude = _mm256_set1_epi16(i16::MAX);
    for (x, y) in r.as_chunks::<32>().0.iter().zip(c.as_chunks::<32>().0) {
        // SAFETY: these are the 32 bytes that are loaded.
        let (x, y) = unsafe {
            (
                _mm256_loadu_si256(x.as_ptr().cast()),
                _mm256_loadu_si256(y.as_ptr().cast()),
            )
        };
        let (a, b) = (
            _mm256_and_si256(x, magnitude),
            _mm256_and_si256(y, magnitude),
        );
        let (high, low) = (_mm256_max_epi16(a, b), _mm256_min_epi16(a, b));
        let signed = _mm256_sign_epi16(
            low,
            _mm256_or_si256(_mm256_xor_si256(x, y), _mm256_set1_epi16(1)),
        );
        most = _mm256_max_epu16(most, _mm256_sub_epi16(high, signed));
    }
    sixteen(most).into_iter().max().map_or(0, u32::from)
}

/// The largest `|c - r| / max(|r|, |c|)`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn relative<T: Single>(r: &[u8], c: &[u8]) -> f64 {
    let mut most = [_mm256_setzero_pd(); 2];
    each::<T>(r, c, |r, c| {
        let size = wide(_mm256_max_ps(
            _mm256_max_ps(abs32(r), abs32(c)),
            _mm256_set1_ps(f32::from_bits(1)),
        ));
        let (r, c) = (wide(r), wide(c));
        most = [0, 1].map(|k| {
            _mm256_max_pd(
                most[k],
                _mm256_div_pd(abs(_mm256_sub_pd(c[k], r[k])), size[k]),
            )
        });
    });
    four(_mm256_max_pd(most[0], most[1]))
        .into_iter()
        .fold(0.0, f64::max)
}
