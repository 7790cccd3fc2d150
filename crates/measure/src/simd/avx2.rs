//! AVX2 with FMA and F16C. The loads are unaligned: tensors begin anywhere in a file.
//!
//! A loop turn takes 16 numbers, one for each lane of [`crate::kernel`]: four vectors of four `f64` a sum. Where additions would be the
//! bottleneck, some are written as `x · 1 + s`, the same digits from the other half of the execution units.

use crate::kernel::{self, LANES, Lanes, Sums};
use std::arch::x86_64::*;

const VECTORS: usize = LANES / 4;

/// How far ahead the next lines are asked for. The machine's own look-ahead stops at each 4 KiB page.
const AHEAD: usize = 2048;

macro_rules! ahead {
    ($at:expr) => {{
        // A prefetch never faults, wherever it points, so the end of the bytes needs no test.
        _mm_prefetch::<_MM_HINT_T0>($at.wrapping_add(AHEAD).cast());
    }};
}

/// The three sums that every type shares.
#[derive(Clone, Copy)]
struct Three {
    d: [__m256d; VECTORS],
    d2: [__m256d; VECTORS],
    abs: [__m256d; VECTORS],
}

impl Three {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn zero() -> Self {
        let zero = [_mm256_setzero_pd(); VECTORS];
        Self { d: zero, d2: zero, abs: zero }
    }

    /// Four numbers less a shift.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn shifted(&mut self, vector: usize, x: __m256d, shift: __m256d) {
        let d = _mm256_sub_pd(x, shift);
        self.d[vector] = _mm256_fmadd_pd(d, _mm256_set1_pd(1.0), self.d[vector]);
        self.d2[vector] = _mm256_fmadd_pd(d, d, self.d2[vector]);
        self.abs[vector] = _mm256_add_pd(self.abs[vector], _mm256_andnot_pd(_mm256_set1_pd(-0.0), x));
    }

    /// Four numbers as they are.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn unshifted(&mut self, vector: usize, x: __m256d) {
        self.d[vector] = _mm256_fmadd_pd(x, _mm256_set1_pd(1.0), self.d[vector]);
        self.d2[vector] = _mm256_fmadd_pd(x, x, self.d2[vector]);
        self.abs[vector] = _mm256_add_pd(self.abs[vector], _mm256_andnot_pd(_mm256_set1_pd(-0.0), x));
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    fn lanes(&self, min: f64, max: f64, zeros: u64) -> Lanes {
        let spread = |vectors: &[__m256d; VECTORS]| {
            let mut lanes = [0.0; LANES];
            for (vector, four) in vectors.iter().zip(lanes.as_chunks_mut::<4>().0) {
                // SAFETY: four `f64` take the 32 bytes that are stored.
                unsafe { _mm256_storeu_pd(four.as_mut_ptr(), *vector) };
            }
            lanes
        };
        Lanes { d: spread(&self.d), d2: spread(&self.d2), abs: spread(&self.abs), min, max, zeros }
    }
}

/// The smallest, the largest and the sum of four or eight.
#[target_feature(enable = "avx2")]
fn fold_f64(min: __m256d, max: __m256d) -> (f64, f64) {
    let spread = |vector| {
        let mut four = [0.0f64; 4];
        // SAFETY: four `f64` take the 32 bytes that are stored.
        unsafe { _mm256_storeu_pd(four.as_mut_ptr(), vector) };
        four
    };
    (spread(min).into_iter().fold(f64::INFINITY, f64::min), spread(max).into_iter().fold(f64::NEG_INFINITY, f64::max))
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
fn as_u16s(vector: __m256i) -> [u16; 16] {
    let mut sixteen = [0; 16];
    // SAFETY: sixteen `u16` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_si256(sixteen.as_mut_ptr().cast(), vector) };
    sixteen
}

fn finish(mut lanes: Lanes, rest: impl Iterator<Item = f64>, shift: f64) -> Sums {
    for (i, x) in rest.enumerate() {
        lanes.insert(i, x, shift);
    }
    lanes.sums()
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f64(bytes: &[u8], shift: f64) -> Sums {
    let (groups, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    let mut three = Three::zero();
    let (mut min, mut max) = (_mm256_set1_pd(f64::INFINITY), _mm256_set1_pd(f64::NEG_INFINITY));
    let mut zeros = _mm256_setzero_si256();
    let by = _mm256_set1_pd(shift);
    for group in groups {
        let at = group.as_ptr();
        ahead!(at);
        ahead!(at.wrapping_add(64));
        for vector in 0..VECTORS {
            // SAFETY: 32 bytes from 32·vector lie inside the 128 bytes of the group.
            let x = unsafe { _mm256_loadu_pd(at.add(32 * vector).cast()) };
            three.shifted(vector, x, by);
            min = _mm256_min_pd(x, min);
            max = _mm256_max_pd(x, max);
            zeros = _mm256_sub_epi64(zeros, _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_EQ_OQ>(x, _mm256_setzero_pd())));
        }
    }
    let (min, max) = fold_f64(min, max);
    let zeros = as_u32s(zeros).iter().map(|n| u64::from(*n)).sum();
    finish(three.lanes(min, max, zeros), kernel::f64s(rest), shift)
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f32(bytes: &[u8], shift: f64) -> Sums {
    let (groups, rest) = bytes.as_chunks::<{ 4 * LANES }>();
    let mut three = Three::zero();
    let (mut min, mut max) = (_mm256_set1_ps(f32::INFINITY), _mm256_set1_ps(f32::NEG_INFINITY));
    let mut zeros = _mm256_setzero_si256();
    let by = _mm256_set1_pd(shift);
    for group in groups {
        let at = group.as_ptr();
        ahead!(at);
        for vector in 0..VECTORS {
            // SAFETY: 16 bytes from 16·vector lie inside the 64 bytes of the group.
            let x = unsafe { _mm_loadu_ps(at.add(16 * vector).cast()) };
            three.shifted(vector, _mm256_cvtps_pd(x), by);
        }
        for half in 0..2 {
            // SAFETY: 32 bytes from 32·half lie inside the 64 bytes of the group.
            let x = unsafe { _mm256_loadu_ps(at.add(32 * half).cast()) };
            min = _mm256_min_ps(x, min);
            max = _mm256_max_ps(x, max);
            zeros = _mm256_sub_epi32(zeros, _mm256_castps_si256(_mm256_cmp_ps::<_CMP_EQ_OQ>(x, _mm256_setzero_ps())));
        }
    }
    let (min, max) = fold_f32(min, max);
    let zeros = as_u32s(zeros).iter().map(|n| u64::from(*n)).sum();
    finish(three.lanes(min, max, zeros), kernel::f32s(rest), shift)
}

/// Smallest and largest of 16-bit numbers of sign and magnitude, kept as integers.
///
/// Read as unsigned, the largest is the most negative number (if any is negative); read as signed, the largest is the most positive
/// number (if any is not negative). When only one sign occurs the other end is the smallest magnitude, which takes a second look.
/// Zeros are counted in the same go: a lane sees at most one number of a group, and blocks have less than 65,536 groups.
#[derive(Clone, Copy)]
struct Ends {
    unsigned: __m256i,
    signed: __m256i,
    zeros: __m256i,
}

impl Ends {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        Self { unsigned: _mm256_setzero_si256(), signed: _mm256_set1_epi16(i16::MIN), zeros: _mm256_setzero_si256() }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn insert(&mut self, x: __m256i) {
        self.unsigned = _mm256_max_epu16(x, self.unsigned);
        self.signed = _mm256_max_epi16(x, self.signed);
        let zero = _mm256_cmpeq_epi16(_mm256_add_epi16(x, x), _mm256_setzero_si256());
        self.zeros = _mm256_sub_epi16(self.zeros, zero);
    }

    /// Bits of the smallest and of the largest, and the zeros.
    #[target_feature(enable = "avx2")]
    fn fold(&self, groups: &[[u8; 2 * LANES]]) -> Option<(u16, u16, u64)> {
        if groups.is_empty() {
            return None;
        }
        let unsigned = as_u16s(self.unsigned).into_iter().max()?;
        let signed = as_u16s(self.signed).into_iter().map(|x| x as i16).max()? as u16;
        let zeros = as_u16s(self.zeros).iter().map(|n| u64::from(*n)).sum();
        let one_sign = (unsigned ^ signed) & 0x8000 == 0;
        let (min, max) = match (one_sign, unsigned & 0x8000 == 0) {
            (false, _) => (unsigned, signed),
            (true, true) => (smallest(groups), signed),
            (true, false) => (unsigned, smallest(groups)),
        };
        Some((min, max, zeros))
    }
}

#[target_feature(enable = "avx2")]
fn smallest(groups: &[[u8; 2 * LANES]]) -> u16 {
    let mut least = _mm256_set1_epi16(-1);
    for group in groups {
        // SAFETY: the group is the 32 bytes that are loaded.
        least = _mm256_min_epu16(unsafe { _mm256_loadu_si256(group.as_ptr().cast()) }, least);
    }
    as_u16s(least).into_iter().min().unwrap_or(u16::MAX)
}

/// The numbers are summed as they are: 8 bits of precision make the sums of a narrow block exact (see [`crate::moments`]).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn bf16(bytes: &[u8], shift: f64) -> Sums {
    debug_assert_eq!(shift, 0.0, "bf16 is summed as it is");
    let (groups, rest) = bytes.as_chunks::<{ 2 * LANES }>();
    let mut three = Three::zero();
    let mut ends = Ends::new();
    for group in groups {
        let at = group.as_ptr();
        ahead!(at);
        for half in 0..2 {
            // SAFETY: 16 bytes from 16·half lie inside the 32 bytes of the group.
            let x = unsafe { _mm_loadu_si128(at.add(16 * half).cast()) };
            // A bf16 is the upper half of an f32: shifting takes the even places there, masking leaves the odd ones.
            let even = _mm_castsi128_ps(_mm_slli_epi32::<16>(x));
            let odd = _mm_castsi128_ps(_mm_and_si128(x, _mm_set1_epi32(0xffff_0000_u32 as i32)));
            three.unshifted(2 * half, _mm256_cvtps_pd(even));
            three.unshifted(2 * half + 1, _mm256_cvtps_pd(odd));
        }
        // SAFETY: the group is the 32 bytes that are loaded.
        ends.insert(unsafe { _mm256_loadu_si256(at.cast()) });
    }
    let (min, max, zeros) =
        ends.fold(groups).map_or((f64::INFINITY, f64::NEG_INFINITY, 0), |(min, max, zeros)| (kernel::bf16(min), kernel::bf16(max), zeros));
    finish(three.lanes(min, max, zeros), kernel::bf16s(rest), 0.0)
}

/// As bf16, with 11 bits of precision.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f16(bytes: &[u8], shift: f64) -> Sums {
    debug_assert_eq!(shift, 0.0, "f16 is summed as it is");
    let (groups, rest) = bytes.as_chunks::<{ 2 * LANES }>();
    let mut three = Three::zero();
    let mut ends = Ends::new();
    for group in groups {
        let at = group.as_ptr();
        ahead!(at);
        for half in 0..2 {
            // SAFETY: 16 bytes from 16·half lie inside the 32 bytes of the group.
            let x = unsafe { _mm_loadu_si128(at.add(16 * half).cast()) };
            let (low, high) = (_mm_cvtph_ps(x), _mm_cvtph_ps(_mm_unpackhi_epi64(x, x)));
            three.unshifted(2 * half, _mm256_cvtps_pd(low));
            three.unshifted(2 * half + 1, _mm256_cvtps_pd(high));
        }
        // SAFETY: the group is the 32 bytes that are loaded.
        ends.insert(unsafe { _mm256_loadu_si256(at.cast()) });
    }
    let (min, max, zeros) =
        ends.fold(groups).map_or((f64::INFINITY, f64::NEG_INFINITY, 0), |(min, max, zeros)| (kernel::f16(min), kernel::f16(max), zeros));
    finish(three.lanes(min, max, zeros), kernel::f16s(rest), 0.0)
}
