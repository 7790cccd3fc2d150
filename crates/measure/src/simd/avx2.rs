//! AVX2 with FMA and F16C. The loads are unaligned: tensors begin anywhere in a file.
//!
//! A loop turn takes 16 numbers, one for each lane of [`crate::kernel`]: four vectors of four `f64` a sum. That hides the time an addition
//! takes and, with two sums, just fits the registers. A third one (`Σ|x|`) would cost a third of the speed.

use crate::kernel::{self, LANES, Lanes, Shifted, ShiftedLanes, Sums};
use std::{arch::x86_64::*, hint::black_box};

const VECTORS: usize = LANES / 4;

/// How far ahead the next lines are asked for. The machine's own look-ahead stops at every 4 KiB page of a mapped file and at the end of every block, where
/// the sums are folded; this has the start of the next block on its way by then.
const AHEAD: usize = 4096;

/// A prefetch never faults, wherever it points, so the end of the bytes needs no test.
#[inline]
#[target_feature(enable = "avx2")]
fn ahead(at: *const u8) {
    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD).cast());
}

type Vectors = [__m256d; VECTORS];

#[inline]
#[target_feature(enable = "avx2")]
fn zero() -> Vectors {
    [_mm256_setzero_pd(); VECTORS]
}

#[target_feature(enable = "avx2")]
fn lanes(vectors: Vectors) -> [f64; LANES] {
    let mut lanes = [0.0; LANES];
    for (vector, four) in vectors.into_iter().zip(lanes.as_chunks_mut::<4>().0) {
        // SAFETY: four `f64` take the 32 bytes that are stored.
        unsafe { _mm256_storeu_pd(four.as_mut_ptr(), vector) };
    }
    lanes
}

/// The two sums of the first pass.
#[derive(Clone, Copy)]
struct First {
    sum: Vectors,
    squares: Vectors,
    /// Numbers enter the sum as `x · 1 + sum`: the same digits as an addition, from execution units that are less busy here.
    one: __m256d,
}

impl First {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        // The compiler, seeing a 1, would make it an addition again.
        Self {
            sum: zero(),
            squares: zero(),
            one: _mm256_set1_pd(black_box(1.0)),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn insert(&mut self, vector: usize, x: __m256d) {
        self.sum[vector] = _mm256_fmadd_pd(x, self.one, self.sum[vector]);
        self.squares[vector] = _mm256_fmadd_pd(x, x, self.squares[vector]);
    }

    #[target_feature(enable = "avx2")]
    fn lanes(&self, min: f64, max: f64, zeros: u64) -> Lanes {
        Lanes {
            sum: lanes(self.sum),
            squares: lanes(self.squares),
            min,
            max,
            zeros,
        }
    }
}

/// The two sums of the second pass.
#[derive(Clone, Copy)]
struct Second {
    sum: Vectors,
    squares: Vectors,
}

impl Second {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        Self {
            sum: zero(),
            squares: zero(),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn insert(&mut self, vector: usize, x: __m256d, shift: __m256d) {
        let d = _mm256_sub_pd(x, shift);
        self.sum[vector] = _mm256_add_pd(self.sum[vector], d);
        self.squares[vector] = _mm256_fmadd_pd(d, d, self.squares[vector]);
    }

    #[target_feature(enable = "avx2")]
    fn lanes(&self) -> ShiftedLanes {
        ShiftedLanes {
            sum: lanes(self.sum),
            squares: lanes(self.squares),
        }
    }
}

/// The smallest and the largest of four or eight.
#[target_feature(enable = "avx2")]
fn fold_f64(min: __m256d, max: __m256d) -> (f64, f64) {
    let spread = |vector| {
        let mut four = [0.0f64; 4];
        // SAFETY: four `f64` take the 32 bytes that are stored.
        unsafe { _mm256_storeu_pd(four.as_mut_ptr(), vector) };
        four
    };
    (
        spread(min).into_iter().fold(f64::INFINITY, f64::min),
        spread(max).into_iter().fold(f64::NEG_INFINITY, f64::max),
    )
}

#[target_feature(enable = "avx2")]
fn fold_f32(min: __m256, max: __m256) -> (f64, f64) {
    let spread = |vector| {
        let mut eight = [0.0f32; 8];
        // SAFETY: eight `f32` take the 32 bytes that are stored.
        unsafe { _mm256_storeu_ps(eight.as_mut_ptr(), vector) };
        eight
    };
    let min = spread(min).into_iter().fold(f32::INFINITY, f32::min);
    let max = spread(max).into_iter().fold(f32::NEG_INFINITY, f32::max);
    (f64::from(min), f64::from(max))
}

#[target_feature(enable = "avx2")]
fn as_u32s(vector: __m256i) -> [u32; 8] {
    let mut eight = [0; 8];
    // SAFETY: eight `u32` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_si256(eight.as_mut_ptr().cast(), vector) };
    eight
}

#[target_feature(enable = "avx2")]
fn least_u16(vector: __m256i) -> u16 {
    let eight = _mm_min_epu16(
        _mm256_castsi256_si128(vector),
        _mm256_extracti128_si256::<1>(vector),
    );
    _mm_extract_epi16::<0>(_mm_minpos_epu16(eight)) as u16
}

#[target_feature(enable = "avx2")]
fn as_u16s(vector: __m256i) -> [u16; 16] {
    let mut sixteen = [0; 16];
    // SAFETY: sixteen `u16` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_si256(sixteen.as_mut_ptr().cast(), vector) };
    sixteen
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f64(bytes: &[u8]) -> Sums {
    let (groups, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    let mut first = First::new();
    let (mut min, mut max) = (
        _mm256_set1_pd(f64::INFINITY),
        _mm256_set1_pd(f64::NEG_INFINITY),
    );
    let mut zeros = _mm256_setzero_si256();
    for group in groups {
        let at = group.as_ptr();
        ahead(at);
        ahead(at.wrapping_add(64));
        for four in 0..VECTORS {
            // SAFETY: 32 bytes from 32·four lie inside the 128 bytes of the group.
            let x = unsafe { _mm256_loadu_pd(at.add(32 * four).cast()) };
            first.insert(four, x);
            min = _mm256_min_pd(x, min);
            max = _mm256_max_pd(x, max);
            zeros = _mm256_sub_epi64(
                zeros,
                _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_EQ_OQ>(x, _mm256_setzero_pd())),
            );
        }
    }
    let (min, max) = fold_f64(min, max);
    let zeros = as_u32s(zeros).iter().map(|n| u64::from(*n)).sum();
    first.lanes(min, max, zeros).finish(kernel::f64s(rest))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f32(bytes: &[u8]) -> Sums {
    f32_beside::<false>(bytes, bytes).0
}

/// The sums, unless the other side has other bytes.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f32_same(bytes: &[u8], other: &[u8]) -> Option<Sums> {
    let (sums, same) = f32_beside::<true>(bytes, other);
    same.then_some(sums)
}

/// What differs between two sides, read along with one of them.
#[derive(Clone, Copy)]
struct Beside<'a, const PAIR: bool> {
    other: &'a [u8],
    unequal: __m256i,
}

impl<'a, const PAIR: bool> Beside<'a, PAIR> {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(bytes: &[u8], other: &'a [u8]) -> Self {
        assert!(bytes.len() == other.len());
        Self {
            other,
            unequal: _mm256_setzero_si256(),
        }
    }

    /// 32 bytes that begin at `at` of one side.
    ///
    /// # Safety
    /// The other side must have 32 bytes there.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn insert(&mut self, at: usize, x: __m256i) {
        if PAIR {
            // SAFETY: 32 bytes can be read, says the caller.
            let y = unsafe { _mm256_loadu_si256(self.other.as_ptr().add(at).cast()) };
            self.unequal = _mm256_or_si256(self.unequal, _mm256_xor_si256(x, y));
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn ahead(&self, at: usize) {
        if PAIR {
            ahead(self.other.as_ptr().wrapping_add(at));
        }
    }

    #[target_feature(enable = "avx2")]
    fn is_same(&self, rest: &[u8]) -> bool {
        _mm256_testz_si256(self.unequal, self.unequal) == 1 && self.other.ends_with(rest)
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn f32_beside<const PAIR: bool>(bytes: &[u8], other: &[u8]) -> (Sums, bool) {
    let mut beside = Beside::<PAIR>::new(bytes, other);
    let (groups, rest) = bytes.as_chunks::<{ 4 * LANES }>();
    let mut first = First::new();
    let (mut min, mut max) = (
        _mm256_set1_ps(f32::INFINITY),
        _mm256_set1_ps(f32::NEG_INFINITY),
    );
    let mut zeros = _mm256_setzero_si256();
    for (i, group) in groups.iter().enumerate() {
        let at = group.as_ptr();
        ahead(at);
        beside.ahead(64 * i);
        for four in 0..VECTORS {
            // SAFETY: 16 bytes from 16·four lie inside the 64 bytes of the group.
            let x = unsafe { _mm_loadu_ps(at.add(16 * four).cast()) };
            first.insert(four, _mm256_cvtps_pd(x));
        }
        for half in 0..2 {
            // SAFETY: 32 bytes from 32·half lie inside the 64 bytes of the group, on both sides.
            let x = unsafe {
                let x = _mm256_loadu_ps(at.add(32 * half).cast());
                beside.insert(64 * i + 32 * half, _mm256_castps_si256(x));
                x
            };
            min = _mm256_min_ps(x, min);
            max = _mm256_max_ps(x, max);
            zeros = _mm256_sub_epi32(
                zeros,
                _mm256_castps_si256(_mm256_cmp_ps::<_CMP_EQ_OQ>(x, _mm256_setzero_ps())),
            );
        }
    }
    let (min, max) = fold_f32(min, max);
    let zeros = as_u32s(zeros).iter().map(|n| u64::from(*n)).sum();
    (
        first.lanes(min, max, zeros).finish(kernel::f32s(rest)),
        beside.is_same(rest),
    )
}

/// Smallest and largest of 16-bit numbers of sign and magnitude, kept as integers.
///
/// Read as unsigned, the largest is the most negative number (if any is negative); read as signed, the largest is the most positive
/// number (if any is not negative). When only one sign occurs the other end is the smallest magnitude. That is kept too, doubled, which drops
/// the sign; it also tells whether there is a zero to count.
#[derive(Clone, Copy)]
struct Ends {
    unsigned: __m256i,
    signed: __m256i,
    least: __m256i,
}

impl Ends {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        Self {
            unsigned: _mm256_setzero_si256(),
            signed: _mm256_set1_epi16(i16::MIN),
            least: _mm256_set1_epi16(-1),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn insert(&mut self, x: __m256i) {
        self.unsigned = _mm256_max_epu16(x, self.unsigned);
        self.signed = _mm256_max_epi16(x, self.signed);
        self.least = _mm256_min_epu16(_mm256_add_epi16(x, x), self.least);
    }

    /// Smallest, largest and zeros, with `value` to make a number of bits.
    #[target_feature(enable = "avx2")]
    fn fold(&self, groups: &[[u8; 2 * LANES]], value: fn(u16) -> f64) -> (f64, f64, u64) {
        if groups.is_empty() {
            return (f64::INFINITY, f64::NEG_INFINITY, 0);
        }
        let flipped = |vector, bits| _mm256_xor_si256(vector, _mm256_set1_epi16(bits));
        // The one horizontal operation there is finds the smallest unsigned number; the others are turned into that.
        let unsigned = !least_u16(flipped(self.unsigned, -1));
        let signed = least_u16(flipped(self.signed, i16::MAX)) ^ 0x7fff;
        let least = least_u16(self.least);
        let zeros = if least == 0 { zeros(groups) } else { 0 };
        let (min, max) = match (unsigned & 0x8000 == 0, signed & 0x8000 == 0) {
            (true, _) => (least >> 1, signed),
            (_, false) => (unsigned, least >> 1 | 0x8000),
            (false, true) => (unsigned, signed),
        };
        (value(min), value(max), zeros)
    }
}

/// A lane counts one number of each group, and blocks have far less than 65,536 groups.
#[target_feature(enable = "avx2")]
fn zeros(groups: &[[u8; 2 * LANES]]) -> u64 {
    let mut count = _mm256_setzero_si256();
    for group in groups {
        // SAFETY: the group is the 32 bytes that are loaded.
        let x = unsafe { _mm256_loadu_si256(group.as_ptr().cast()) };
        count = _mm256_sub_epi16(
            count,
            _mm256_cmpeq_epi16(_mm256_add_epi16(x, x), _mm256_setzero_si256()),
        );
    }
    as_u16s(count).iter().map(|n| u64::from(*n)).sum()
}

/// The numbers are summed as they are: 8 bits of precision make the sums of a narrow block exact (see [`crate::moments`]).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn bf16(bytes: &[u8]) -> Sums {
    bf16_beside::<false>(bytes, bytes).0
}

/// The sums, unless the other side has other bytes.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn bf16_same(bytes: &[u8], other: &[u8]) -> Option<Sums> {
    let (sums, same) = bf16_beside::<true>(bytes, other);
    same.then_some(sums)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn bf16_beside<const PAIR: bool>(bytes: &[u8], other: &[u8]) -> (Sums, bool) {
    let mut beside = Beside::<PAIR>::new(bytes, other);
    let (groups, rest) = bytes.as_chunks::<{ 2 * LANES }>();
    let mut first = First::new();
    let mut ends = Ends::new();
    for (i, group) in groups.iter().enumerate() {
        let at = group.as_ptr();
        ahead(at);
        beside.ahead(32 * i);
        for half in 0..2 {
            // SAFETY: 16 bytes from 16·half lie inside the 32 bytes of the group.
            let x = unsafe { _mm_loadu_si128(at.add(16 * half).cast()) };
            // A bf16 is the upper half of an f32: shifting takes the even places there, masking leaves the odd ones.
            let even = _mm_castsi128_ps(_mm_slli_epi32::<16>(x));
            let odd = _mm_castsi128_ps(_mm_and_si128(x, _mm_set1_epi32(0xffff_0000_u32 as i32)));
            first.insert(2 * half, _mm256_cvtps_pd(even));
            first.insert(2 * half + 1, _mm256_cvtps_pd(odd));
        }
        // SAFETY: the group is the 32 bytes that are loaded, on both sides.
        let x = unsafe {
            let x = _mm256_loadu_si256(at.cast());
            beside.insert(32 * i, x);
            x
        };
        ends.insert(x);
    }
    let (min, max, zeros) = ends.fold(groups, kernel::bf16);
    (
        first
            .lanes(min, max, zeros)
            .finish(kernel::bf16s_in_order(rest)),
        beside.is_same(rest),
    )
}

/// As bf16, with 11 bits of precision.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f16(bytes: &[u8]) -> Sums {
    let (groups, rest) = bytes.as_chunks::<{ 2 * LANES }>();
    let mut first = First::new();
    let mut ends = Ends::new();
    for group in groups {
        let at = group.as_ptr();
        ahead(at);
        for half in 0..2 {
            // SAFETY: 16 bytes from 16·half lie inside the 32 bytes of the group.
            let x = unsafe { _mm_loadu_si128(at.add(16 * half).cast()) };
            let (low, high) = (_mm_cvtph_ps(x), _mm_cvtph_ps(_mm_unpackhi_epi64(x, x)));
            first.insert(2 * half, _mm256_cvtps_pd(low));
            first.insert(2 * half + 1, _mm256_cvtps_pd(high));
        }
        // SAFETY: the group is the 32 bytes that are loaded.
        ends.insert(unsafe { _mm256_loadu_si256(at.cast()) });
    }
    let (min, max, zeros) = ends.fold(groups, kernel::f16);
    first.lanes(min, max, zeros).finish(kernel::f16s(rest))
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f64_shifted(bytes: &[u8], shift: f64) -> Shifted {
    let (groups, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    let mut second = Second::new();
    let by = _mm256_set1_pd(shift);
    for group in groups {
        for four in 0..VECTORS {
            // SAFETY: 32 bytes from 32·four lie inside the 128 bytes of the group.
            let x = unsafe { _mm256_loadu_pd(group.as_ptr().add(32 * four).cast()) };
            second.insert(four, x, by);
        }
    }
    second.lanes().finish(kernel::f64s(rest), shift)
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f32_shifted(bytes: &[u8], shift: f64) -> Shifted {
    let (groups, rest) = bytes.as_chunks::<{ 4 * LANES }>();
    let mut second = Second::new();
    let by = _mm256_set1_pd(shift);
    for group in groups {
        for four in 0..VECTORS {
            // SAFETY: 16 bytes from 16·four lie inside the 64 bytes of the group.
            let x = unsafe { _mm_loadu_ps(group.as_ptr().add(16 * four).cast()) };
            second.insert(four, _mm256_cvtps_pd(x), by);
        }
    }
    second.lanes().finish(kernel::f32s(rest), shift)
}
