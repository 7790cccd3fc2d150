//! AVX2 over a pair: differences, their sums, their histograms and profiles, for blocks of finite numbers.
//!
//! Everything is measured in `f64`, eight elements at a time. What is left over at the end of a block is padded with zeros on both sides,
//! which are equal and change nothing.

use crate::{
    kernel,
    totals::{Block, Cell, Known, Light, Part},
};
use std::arch::x86_64::*;

/// Eight numbers as `f64`.
type Eight = [__m256d; 2];

#[inline]
#[target_feature(enable = "avx2")]
fn wide(x: __m256) -> Eight {
    [_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x))]
}

/// The four lower ones.
#[inline]
#[target_feature(enable = "avx2")]
fn wide_bf16(x: __m128i) -> __m256d {
    // A bf16 is the upper half of an f32.
    _mm256_cvtps_pd(_mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), x)))
}

/// Eight numbers from `at`.
///
/// # Safety
/// `at` must have eight elements to read.
macro_rules! loads {
    ($($name:ident $size:literal |$at:ident| $load:expr;)*) => {$(
        mod $name {
            use super::*;
            pub(super) const SIZE: usize = $size;
            #[inline]
            #[target_feature(enable = "avx2,f16c")]
            pub(super) unsafe fn load($at: *const u8) -> Eight {
                // SAFETY: eight elements can be read, says the caller.
                unsafe { $load }
            }
        }
    )*};
}
loads! {
    f32s 4 |at| [_mm256_cvtps_pd(_mm_loadu_ps(at.cast())), _mm256_cvtps_pd(_mm_loadu_ps(at.cast::<f32>().add(4)))];
    bf16s 2 |at| [wide_bf16(_mm_loadl_epi64(at.cast())), wide_bf16(_mm_loadl_epi64(at.add(8).cast()))];
    f16s 2 |at| wide(_mm256_cvtph_ps(_mm_loadu_si128(at.cast())));
    f64s 8 |at| [_mm256_loadu_pd(at.cast()), _mm256_loadu_pd(at.cast::<f64>().add(4))];
}

/// Signed steps from 0 of sign-and-magnitude bits.
#[inline]
#[target_feature(enable = "avx2")]
fn places(bits: __m256i) -> __m256i {
    let sign = _mm256_srai_epi32::<31>(bits);
    let magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(i32::MAX));
    _mm256_sub_epi32(_mm256_xor_si256(magnitude, sign), sign)
}

/// An f32 rounded to bf16, as an f32.
#[inline]
#[target_feature(enable = "avx2")]
fn to_bf16(bits: __m256i) -> __m256i {
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    _mm256_and_si256(rounded, _mm256_set1_epi32(0xffff_0000_u32 as i32))
}

/// Unsigned distance of two places.
#[inline]
#[target_feature(enable = "avx2")]
fn distance(a: __m256i, b: __m256i) -> __m256i {
    _mm256_sub_epi32(_mm256_max_epi32(a, b), _mm256_min_epi32(a, b))
}

/// Bits of 16-bit numbers at the top of 32.
///
/// # Safety
/// `at` must have eight elements to read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn top16(at: *const u8) -> __m256i {
    // SAFETY: 16 bytes can be read, says the caller.
    _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(unsafe { _mm_loadu_si128(at.cast()) }))
}

/// # Safety
/// As [`top16`], with 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn bits32(at: *const u8) -> __m256i {
    // SAFETY: 32 bytes can be read, says the caller.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// # Safety
/// None is needed: it looks at nothing.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn no_steps(_: *const u8, _: *const u8) -> __m256i {
    _mm256_setzero_si256()
}

/// Sixteen-bit magnitudes at the top of 32 bits: the steps are 65,536 apart.
#[inline]
#[target_feature(enable = "avx2")]
fn distance16(a: __m256i, b: __m256i) -> __m256i {
    let down = |bits| {
        let sign = _mm256_srai_epi32::<31>(bits);
        let magnitude = _mm256_srli_epi32::<16>(_mm256_and_si256(bits, _mm256_set1_epi32(i32::MAX)));
        _mm256_sub_epi32(_mm256_xor_si256(magnitude, sign), sign)
    };
    _mm256_abs_epi32(_mm256_sub_epi32(down(a), down(b)))
}

#[target_feature(enable = "avx2")]
fn four(vector: __m256d) -> [f64; 4] {
    let mut out = [0.0; 4];
    // SAFETY: four `f64` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_pd(out.as_mut_ptr(), vector) };
    out
}

#[target_feature(enable = "avx2")]
fn four_counts(vector: __m256i) -> [u64; 4] {
    let mut out = [0; 4];
    // SAFETY: four `u64` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), vector) };
    out
}

#[inline]
#[target_feature(enable = "avx2")]
fn abs(x: __m256d) -> __m256d {
    _mm256_andnot_pd(_mm256_set1_pd(-0.0), x)
}

/// The sums of a block while they are still apart.
struct Sums {
    apart: [__m256d; 2],
    squares: [__m256d; 2],
    relative: [__m256d; 2],
    most: __m256d,
    most_relative: __m256d,
    most_over: __m256d,
    equal: __m256i,
    steps: __m256i,
}

impl Sums {
    #[target_feature(enable = "avx2")]
    fn finish(&self, len: usize) -> Block {
        let total = |v: [__m256d; 2]| {
            let [a, b, c, d] = four(_mm256_add_pd(v[0], v[1]));
            (a + b) + (c + d)
        };
        let most = |v: __m256d| four(v).into_iter().fold(0.0, f64::max);
        let mut equal = [0u16; 16];
        let mut steps = [0u32; 8];
        // SAFETY: sixteen `u16` and eight `u32` take the 32 bytes that are stored.
        unsafe {
            _mm256_storeu_si256(equal.as_mut_ptr().cast(), self.equal);
            _mm256_storeu_si256(steps.as_mut_ptr().cast(), self.steps);
        }
        let equal: usize = equal.iter().map(|n| usize::from(*n)).sum();
        Block {
            apart: total(self.apart),
            squares: total(self.squares),
            relative: total(self.relative),
            max_abs: most(self.most),
            max_relative: most(self.most_relative),
            local: four(self.most_over).into_iter().any(|over| over > 0.0),
            differing: (len.next_multiple_of(16) - equal) as u64,
            max_steps: steps.into_iter().max().unwrap_or(0),
        }
    }
}

/// The kernels of one pair of types.
macro_rules! pairs {
    ($($name:ident: $r:ident, $c:ident, |$ra:ident, $ca:ident| $steps:expr;)*) => {$(
        pub(super) mod $name {
            use super::*;

            /// # Safety
            /// Both sides must have eight elements to read.
            #[inline]
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn steps($ra: *const u8, $ca: *const u8) -> __m256i {
                // SAFETY: eight elements can be read, says the caller.
                unsafe { $steps }
            }

            /// See [`crate::totals::Block`]. `magnitudes` and `ulps` get a code for each element, padded to 16.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn block(r: &[u8], c: &[u8], known: Known, magnitudes: &mut [u8], ulps: &mut [u8]) -> Block {
                let len = r.len() / $r::SIZE;
                assert!(c.len() == len * $c::SIZE && magnitudes.len() >= len.next_multiple_of(16) && ulps.len() == magnitudes.len());
                let zero = _mm256_setzero_pd();
                let mut sums = Sums {
                    apart: [zero; 2], squares: [zero; 2], relative: [zero; 2], most: zero, most_relative: zero,
                    most_over: zero, equal: _mm256_setzero_si256(), steps: _mm256_setzero_si256(),
                };
                let whole = len / 16 * 16;
                for i in (0..whole).step_by(16) {
                    // SAFETY: 16 elements from i lie inside both sides, 16 codes inside both codes.
                    unsafe {
                        group(r.as_ptr().add(i * $r::SIZE), c.as_ptr().add(i * $c::SIZE), &known, &mut sums, magnitudes.as_mut_ptr().add(i), ulps.as_mut_ptr().add(i));
                    }
                }
                if whole < len {
                    let (mut left, mut right) = ([0u8; 16 * $r::SIZE], [0u8; 16 * $c::SIZE]);
                    left[..(len - whole) * $r::SIZE].copy_from_slice(&r[whole * $r::SIZE..]);
                    right[..(len - whole) * $c::SIZE].copy_from_slice(&c[whole * $c::SIZE..]);
                    // SAFETY: both hold 16 elements, and the codes have room up to the next multiple of 16.
                    unsafe {
                        group(left.as_ptr(), right.as_ptr(), &known, &mut sums, magnitudes.as_mut_ptr().add(whole), ulps.as_mut_ptr().add(whole));
                    }
                }
                sums.finish(len)
            }

            /// # Safety
            /// Both sides must have 16 elements to read and both codes room for 16.
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn group(r: *const u8, c: *const u8, known: &Known, sums: &mut Sums, magnitudes: *mut u8, ulps: *mut u8) {
                let (rms, limit, floor) = (_mm256_set1_pd(known.rms), _mm256_set1_pd(known.limit), _mm256_set1_pd(if $r::SIZE == 8 { f64::from_bits(1) } else { 1e-300 }));
                let mut exponents = [_mm256_setzero_si256(); 4];
                for half in 0..2 {
                    // SAFETY: 8 elements from 8·half lie inside the 16.
                    let (rs, cs) = unsafe { ($r::load(r.add(8 * half * $r::SIZE)), $c::load(c.add(8 * half * $c::SIZE))) };
                    for part in 0..2 {
                        let k = 2 * half + part;
                        let apart = abs(_mm256_sub_pd(cs[part], rs[part]));
                        let size = abs(rs[part]);
                        sums.apart[part] = _mm256_add_pd(sums.apart[part], apart);
                        sums.squares[part] = _mm256_fmadd_pd(apart, apart, sums.squares[part]);
                        sums.most = _mm256_max_pd(sums.most, apart);
                        let relative = _mm256_div_pd(apart, _mm256_max_pd(_mm256_max_pd(size, abs(cs[part])), floor));
                        sums.relative[part] = _mm256_add_pd(sums.relative[part], relative);
                        sums.most_relative = _mm256_max_pd(sums.most_relative, relative);
                        // Rounded once, so the sign is right: no element whose quotient is above the limit is missed.
                        let over = _mm256_fnmadd_pd(limit, _mm256_max_pd(size, rms), apart);
                        sums.most_over = _mm256_max_pd(sums.most_over, over);
                        exponents[k] = _mm256_srli_epi64::<52>(_mm256_castpd_si256(apart));
                        if $r::SIZE == 8 {
                            // Only differences of f64 can be denormal: their exponent is 0, they are not.
                            let unequal = _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_NEQ_OQ>(apart, _mm256_setzero_pd()));
                            exponents[k] = _mm256_max_epi32(exponents[k], _mm256_srli_epi64::<63>(unequal));
                        }
                    }
                }
                // Four times four exponents of 11 bits, put side by side in 16 bits each: their order is of no interest.
                let all = _mm256_or_si256(
                    _mm256_or_si256(exponents[0], _mm256_slli_epi64::<16>(exponents[1])),
                    _mm256_or_si256(_mm256_slli_epi64::<32>(exponents[2]), _mm256_slli_epi64::<48>(exponents[3])),
                );
                sums.equal = _mm256_sub_epi16(sums.equal, _mm256_cmpeq_epi16(all, _mm256_setzero_si256()));
                let codes = _mm256_subs_epu16(all, _mm256_set1_epi16(known.base as i16));
                let packed = _mm_packus_epi16(_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes));
                // SAFETY: 16 codes have room; 8 elements from 8·half lie inside the 16.
                let steps = unsafe {
                    _mm_storeu_si128(magnitudes.cast(), packed);
                    [steps(r, c), steps(r.add(8 * $r::SIZE), c.add(8 * $c::SIZE))]
                };
                sums.steps = _mm256_max_epu32(sums.steps, _mm256_max_epu32(steps[0], steps[1]));
                // The exponent as an f32 is the power of two; without the bit below the first, nothing rounds up to the next one.
                let power = |x| _mm256_srli_epi32::<23>(_mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_andnot_si256(_mm256_srli_epi32::<1>(x), x))));
                let codes = _mm256_packus_epi32(power(steps[0]), power(steps[1]));
                let packed = _mm_packus_epi16(_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes));
                // SAFETY: 16 codes have room.
                unsafe { _mm_storeu_si128(ulps.cast(), packed) };
            }

            /// The largest `|c - r| / max(|r|, rms)`.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn local(r: &[u8], c: &[u8], rms: f64) -> f64 {
                let mut most = _mm256_setzero_pd();
                each(r, c, |_, r, c| {
                    let over = _mm256_max_pd(_mm256_max_pd(abs(r), _mm256_set1_pd(rms)), _mm256_set1_pd(f64::from_bits(1)));
                    most = _mm256_max_pd(_mm256_div_pd(abs(_mm256_sub_pd(c, r)), over), most);
                });
                four(most).into_iter().fold(0.0, f64::max)
            }

            /// The places where `|c - r|` is at least `least`, which is above 0.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn above(r: &[u8], c: &[u8], least: f64, places: &mut Vec<u32>) {
                places.clear();
                each(r, c, |at, r, c| {
                    let above = _mm256_cmp_pd::<_CMP_GE_OQ>(abs(_mm256_sub_pd(c, r)), _mm256_set1_pd(least));
                    let mut mask = _mm256_movemask_pd(above);
                    while mask != 0 {
                        places.push((at as u32) + mask.trailing_zeros());
                        mask &= mask - 1;
                    }
                });
            }

            /// How many differ and are not within `atol + rtol·|r|`.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn beyond(r: &[u8], c: &[u8], atol: f64, rtol: f64) -> u64 {
                let mut count = _mm256_setzero_si256();
                each(r, c, |_, r, c| {
                    let apart = abs(_mm256_sub_pd(c, r));
                    let allowed = _mm256_add_pd(_mm256_set1_pd(atol), _mm256_mul_pd(_mm256_set1_pd(rtol), abs(r)));
                    let unequal = _mm256_cmp_pd::<_CMP_NEQ_OQ>(apart, _mm256_setzero_pd());
                    let beyond = _mm256_and_pd(unequal, _mm256_cmp_pd::<_CMP_NLE_UQ>(apart, allowed));
                    count = _mm256_sub_epi64(count, _mm256_castpd_si256(beyond));
                });
                four_counts(count).iter().sum()
            }

            /// Four numbers of both sides at a time, with their place; padded with zeros at the end.
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn each(r: &[u8], c: &[u8], mut visit: impl FnMut(usize, __m256d, __m256d)) {
                let len = r.len() / $r::SIZE;
                assert!(c.len() == len * $c::SIZE);
                let mut both = |at: usize, r: *const u8, c: *const u8| {
                    // SAFETY: eight elements can be read, see below.
                    let (rs, cs) = unsafe { ($r::load(r), $c::load(c)) };
                    visit(at, rs[0], cs[0]);
                    visit(at + 4, rs[1], cs[1]);
                };
                let whole = len / 8 * 8;
                for i in (0..whole).step_by(8) {
                    both(i, r[i * $r::SIZE..].as_ptr(), c[i * $c::SIZE..].as_ptr());
                }
                if whole < len {
                    let (mut left, mut right) = ([0u8; 8 * $r::SIZE], [0u8; 8 * $c::SIZE]);
                    left[..(len - whole) * $r::SIZE].copy_from_slice(&r[whole * $r::SIZE..]);
                    right[..(len - whole) * $c::SIZE].copy_from_slice(&c[whole * $c::SIZE..]);
                    both(whole, left.as_ptr(), right.as_ptr());
                }
            }

            /// `Σrc`.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn dot(r: &[u8], c: &[u8]) -> f64 {
                let mut sum = [_mm256_setzero_pd(); 2];
                each(r, c, |at, r, c| sum[at / 4 % 2] = _mm256_fmadd_pd(r, c, sum[at / 4 % 2]));
                let [a, b, c, d] = four(_mm256_add_pd(sum[0], sum[1]));
                (a + b) + (c + d)
            }

            /// Adds `rows` rows of `cells.len()` elements each, `row` elements apart, to the cells of their columns.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn columns(part: Part<'_>, cells: &mut [Cell]) {
                let Part { r, c, rows, row } = part;
                let width = cells.len();
                if width == 0 || rows == 0 {
                    return;
                }
                let last = (rows - 1) * row + width;
                assert!(r.len() >= last * $r::SIZE && c.len() >= last * $c::SIZE, "every row lies inside");
                // A whole line of memory at a time: rows are often a power of two apart, and few lines that far apart fit the cache together.
                let whole = width / 16 * 16;
                for (at, sixteen) in (0..whole).step_by(16).zip(cells.as_chunks_mut::<16>().0) {
                    let zero = _mm256_setzero_pd();
                    let (mut error, mut energy, mut most) = ([zero; 4], [zero; 4], [zero; 4]);
                    let mut differing = [_mm256_setzero_si256(); 4];
                    for i in 0..rows {
                        let from = i * row + at;
                        // SAFETY: 16 elements from `at` lie inside row i.
                        let (rs, cs) = unsafe {
                            let (r, c) = (r.as_ptr().add(from * $r::SIZE), c.as_ptr().add(from * $c::SIZE));
                            let (high_r, high_c) = (r.add(8 * $r::SIZE), c.add(8 * $c::SIZE));
                            ([$r::load(r), $r::load(high_r)], [$c::load(c), $c::load(high_c)])
                        };
                        for k in 0..4 {
                            let (r, c) = (rs[k / 2][k % 2], cs[k / 2][k % 2]);
                            let apart = abs(_mm256_sub_pd(c, r));
                            error[k] = _mm256_fmadd_pd(apart, apart, error[k]);
                            energy[k] = _mm256_fmadd_pd(r, r, energy[k]);
                            most[k] = _mm256_max_pd(most[k], apart);
                            differing[k] = _mm256_sub_epi64(differing[k], _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_NEQ_OQ>(apart, zero)));
                        }
                    }
                    for k in 0..4 {
                        let (error, energy, most, differing) = (four(error[k]), four(energy[k]), four(most[k]), four_counts(differing[k]));
                        for (j, cell) in sixteen[4 * k..4 * k + 4].iter_mut().enumerate() {
                            cell.error += error[j];
                            cell.energy += energy[j];
                            cell.max_abs = if most[j] > cell.max_abs { most[j] } else { cell.max_abs };
                            cell.differing += differing[j];
                        }
                    }
                }
                // What is left of each row, padded.
                let rest = width - whole;
                for i in (0..rows).filter(|_| rest > 0) {
                    let from = i * row + whole;
                    let (mut left, mut right) = ([0u8; 16 * $r::SIZE], [0u8; 16 * $c::SIZE]);
                    left[..rest * $r::SIZE].copy_from_slice(&r[from * $r::SIZE..(from + rest) * $r::SIZE]);
                    right[..rest * $c::SIZE].copy_from_slice(&c[from * $c::SIZE..(from + rest) * $c::SIZE]);
                    // SAFETY: both hold sixteen elements.
                    let (rs, cs) = unsafe {
                        let (high_r, high_c) = (left.as_ptr().add(8 * $r::SIZE), right.as_ptr().add(8 * $c::SIZE));
                        ([$r::load(left.as_ptr()), $r::load(high_r)], [$c::load(right.as_ptr()), $c::load(high_c)])
                    };
                    let numbers = |x: [Eight; 2]| [four(x[0][0]), four(x[0][1]), four(x[1][0]), four(x[1][1])];
                    let (rs, cs) = (numbers(rs), numbers(cs));
                    for (j, cell) in cells[whole..].iter_mut().enumerate() {
                        let (r, c) = (rs[j / 4][j % 4], cs[j / 4][j % 4]);
                        cell.insert(r, (c - r).abs());
                    }
                }
            }

            /// As `columns` where both sides are known to be equal: only the energy is left to sum.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn energies(part: Part<'_>, cells: &mut [Cell]) {
                let Part { r, rows, row, .. } = part;
                let whole = cells.len() / 16 * 16;
                if rows == 0 || whole < cells.len() {
                    return columns(part, cells);
                }
                assert!(r.len() >= ((rows - 1) * row + whole) * $r::SIZE, "every row lies inside");
                for (at, sixteen) in (0..whole).step_by(16).zip(cells.as_chunks_mut::<16>().0) {
                    let mut energy = [_mm256_setzero_pd(); 4];
                    for i in 0..rows {
                        // SAFETY: 16 elements from `at` lie inside row i.
                        let rs = unsafe {
                            let r = r.as_ptr().add((i * row + at) * $r::SIZE);
                            [$r::load(r), $r::load(r.add(8 * $r::SIZE))]
                        };
                        for k in 0..4 {
                            energy[k] = _mm256_fmadd_pd(rs[k / 2][k % 2], rs[k / 2][k % 2], energy[k]);
                        }
                    }
                    for k in 0..4 {
                        for (cell, energy) in sixteen[4 * k..4 * k + 4].iter_mut().zip(four(energy[k])) {
                            cell.energy += energy;
                        }
                    }
                }
            }

            /// What one run of elements sums up to.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn row(r: &[u8], c: &[u8]) -> Cell {
                let zero = _mm256_setzero_pd();
                let (mut error, mut energy, mut most) = ([zero; 2], [zero; 2], [zero; 2]);
                let mut differing = [_mm256_setzero_si256(); 2];
                each(r, c, |at, r, c| {
                    let k = at / 4 % 2;
                    let apart = abs(_mm256_sub_pd(c, r));
                    error[k] = _mm256_fmadd_pd(apart, apart, error[k]);
                    energy[k] = _mm256_fmadd_pd(r, r, energy[k]);
                    most[k] = _mm256_max_pd(most[k], apart);
                    differing[k] = _mm256_sub_epi64(differing[k], _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_NEQ_OQ>(apart, zero)));
                });
                let sum = |v: [__m256d; 2]| {
                    let [a, b, c, d] = four(_mm256_add_pd(v[0], v[1]));
                    (a + b) + (c + d)
                };
                Cell {
                    error: sum(error),
                    energy: sum(energy),
                    max_abs: four(_mm256_max_pd(most[0], most[1])).into_iter().fold(0.0, f64::max),
                    differing: four_counts(_mm256_add_epi64(differing[0], differing[1])).iter().sum(),
                }
            }
        }
    )*};
}
pairs! {
    f32_f32: f32s, f32s, |r, c| distance(places(bits32(r)), places(bits32(c)));
    bf16_bf16: bf16s, bf16s, |r, c| distance16(top16(r), top16(c));
    f16_f16: f16s, f16s, |r, c| distance16(top16(r), top16(c));
    f32_bf16: f32s, bf16s, |r, c| distance16(to_bf16(bits32(r)), top16(c));
    bf16_f32: bf16s, f32s, |r, c| distance16(top16(r), to_bf16(bits32(c)));
    // The caller counts these: they do not fit 32 bits.
    f64_f64: f64s, f64s, |r, c| no_steps(r, c);
}

/// Below this a number has no f32 reciprocal that the loops could use, above [`HIGHEST`] none that is exact enough.
const LOWEST: f32 = f32::from_bits((127 - 100) << 23);
const HIGHEST: f64 = f64::from_bits((1023 + 100) << 52);

#[inline]
#[target_feature(enable = "avx2")]
fn abs32(x: __m256) -> __m256 {
    _mm256_andnot_ps(_mm256_set1_ps(-0.0), x)
}

#[target_feature(enable = "avx2")]
fn eight(vector: __m256) -> [f32; 8] {
    let mut out = [0.0; 8];
    // SAFETY: eight `f32` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), vector) };
    out
}

#[target_feature(enable = "avx2")]
fn eight_counts(vector: __m256i) -> [u32; 8] {
    let mut out = [0; 8];
    // SAFETY: eight `u32` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), vector) };
    out
}

#[target_feature(enable = "avx2")]
fn lowest(vector: __m256) -> f64 {
    f64::from(eight(vector).into_iter().fold(f32::INFINITY, f32::min)) + 0.0
}

#[target_feature(enable = "avx2")]
fn highest(vector: __m256) -> f64 {
    f64::from(eight(vector).into_iter().fold(f32::NEG_INFINITY, f32::max)) + 0.0
}

/// The f32 at or next below.
fn down(x: f64) -> f32 {
    if f64::from(x as f32) > x { (x as f32).next_down() } else { x as f32 }
}

#[target_feature(enable = "avx2")]
fn total(vector: __m256d) -> f64 {
    let [a, b, c, d] = four(vector);
    (a + b) + (c + d)
}

/// The loops over numbers that an f32 holds, both sides of one type.
///
/// What is a sum is kept in `f64`. What only has to be found (a largest one, or that nothing unusual is there) is looked for in `f32`, eight at a
/// time, and the caller looks again, exactly, in the few blocks where that may change a total.
macro_rules! lights {
    ($($name:ident: $size:literal, $shift:literal, |$at:ident| $load:expr;)*) => {$(
        pub(super) mod $name {
            use super::*;

            /// # Safety
            /// `at` must have eight elements to read.
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn load($at: *const u8) -> __m256 {
                // SAFETY: eight elements can be read, says the caller.
                unsafe { $load }
            }

            /// Everything about a block of finite numbers but its histograms; see [`Light`]. `None` when it is left to the other loops: it
            /// is not a multiple of eight, or has numbers whose reciprocals an f32 does not hold. Above the `limit` some element may be.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn light(r: &[u8], c: &[u8], limit: f64) -> Option<Light> {
                assert!(r.len() == c.len());
                if r.is_empty() || !r.len().is_multiple_of(8 * $size) {
                    return None;
                }
                let (sums, apart, squares) = sums(r, c);
                // A NaN or an infinity shows in the squares.
                if sums.iter().any(|sums| !(sums.squares.is_finite() && sums.max.max(-sums.min) <= HIGHEST)) {
                    return None;
                }
                let rms = (sums[0].squares / (r.len() / $size) as f64).sqrt();
                // The next block is on its way while this one is worked on. A prefetch never faults, wherever it points.
                for line in (0..r.len()).step_by(64) {
                    _mm_prefetch::<_MM_HINT_T1>(r.as_ptr().wrapping_add(r.len() + line).cast());
                    _mm_prefetch::<_MM_HINT_T1>(c.as_ptr().wrapping_add(c.len() + line).cast());
                }
                let mut light = differences(r, c, limit, rms)?;
                light.rms = rms;
                light.apart = apart;
                light.squares = squares;
                let zeros = light.sums.map(|sums| sums.zeros);
                light.sums = [kernel::Sums { zeros: zeros[0], ..sums[0] }, kernel::Sums { zeros: zeros[1], ..sums[1] }];
                Some(light)
            }

            /// Of each side but the zeros, and `Σ|c - r|` and `Σ(c - r)²`.
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn sums(r: &[u8], c: &[u8]) -> ([kernel::Sums; 2], f64, f64) {
                let zero = _mm256_setzero_pd();
                let (mut apart, mut r_sum, mut c_sum) = (zero, zero, zero);
                let (mut squares, mut r_squares, mut c_squares) = (zero, zero, zero);
                each(r, c, |x, y| {
                    let (xs, ys) = (wide(x), wide(y));
                    let ds = [_mm256_sub_pd(ys[0], xs[0]), _mm256_sub_pd(ys[1], xs[1])];
                    // In pairs first: a sum must not wait twice a turn for itself.
                    apart = _mm256_add_pd(apart, _mm256_add_pd(abs(ds[0]), abs(ds[1])));
                    r_sum = _mm256_add_pd(r_sum, _mm256_add_pd(xs[0], xs[1]));
                    c_sum = _mm256_add_pd(c_sum, _mm256_add_pd(ys[0], ys[1]));
                    for k in 0..2 {
                        squares = _mm256_fmadd_pd(ds[k], ds[k], squares);
                        r_squares = _mm256_fmadd_pd(xs[k], xs[k], r_squares);
                        c_squares = _mm256_fmadd_pd(ys[k], ys[k], c_squares);
                    }
                });
                let (r_ends, c_ends) = (ends(r), ends(c));
                let sums = [
                    kernel::Sums { sum: total(r_sum), squares: total(r_squares), min: r_ends.0, max: r_ends.1, zeros: 0 },
                    kernel::Sums { sum: total(c_sum), squares: total(c_squares), min: c_ends.0, max: c_ends.1, zeros: 0 },
                ];
                (sums, total(apart), total(squares))
            }

            /// The least and the largest number. In a loop of its own: with the sums it would not fit the registers.
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn ends(bytes: &[u8]) -> (f64, f64) {
                // The bits' largest as signed integers is the largest number, as unsigned ones the least, when both signs occur.
                let (mut least, mut most) = (_mm256_setzero_si256(), _mm256_set1_epi32(i32::MIN));
                each(bytes, bytes, |x, _| {
                    least = _mm256_max_epu32(_mm256_castps_si256(x), least);
                    most = _mm256_max_epi32(_mm256_castps_si256(x), most);
                });
                let least = eight_counts(least).into_iter().max().unwrap_or(0);
                let most = eight_counts(most).into_iter().map(|bits| bits as i32).max().unwrap_or(0);
                if least >> 31 == 1 && most >= 0 {
                    return (f64::from(f32::from_bits(least)) + 0.0, f64::from(f32::from_bits(most as u32)) + 0.0);
                }
                let (mut min, mut max) = (_mm256_set1_ps(f32::INFINITY), _mm256_set1_ps(f32::NEG_INFINITY));
                each(bytes, bytes, |x, _| (min, max) = (_mm256_min_ps(x, min), _mm256_max_ps(x, max)));
                (lowest(min), highest(max))
            }

            /// The rest, with the zeros.
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn differences(r: &[u8], c: &[u8], limit: f64, rms: f64) -> Option<Light> {
                let none = _mm256_setzero_si256();
                let (mut relative, mut correction) = (_mm256_setzero_pd(), _mm256_setzero_ps());
                let mut least = _mm256_set1_epi32(i32::MAX);
                let (mut most, mut most_relative, mut most_over, mut steps, mut equal) = (none, none, none, none, none);
                let (one, low_limit, low_rms) = (_mm256_set1_ps(1.0), _mm256_set1_ps(down(limit)), _mm256_set1_ps(down(rms)));
                // Numbers that are not negative have the order of their bits, and more of the machine can compare integers.
                let bits = |x: __m256| _mm256_castps_si256(x);
                let larger = |a: __m256, b: __m256| _mm256_castsi256_ps(_mm256_max_epi32(bits(a), bits(b)));
                each(r, c, |x, y| {
                    equal = _mm256_sub_epi32(equal, _mm256_cmpeq_epi32(bits(x), bits(y)));
                    // Steps between numbers of one sign; where signs differ the relative difference says so.
                    steps = _mm256_max_epu32(steps, _mm256_abs_epi32(_mm256_sub_epi32(bits(x), bits(y))));
                    let (x_size, y_size) = (abs32(x), abs32(y));
                    least = _mm256_min_epi32(least, _mm256_min_epi32(bits(x_size), bits(y_size)));
                    let size = larger(larger(x_size, y_size), _mm256_set1_ps(LOWEST));
                    let near = abs32(_mm256_sub_ps(y, x));
                    most = _mm256_max_epi32(bits(near), most);
                    most_over = _mm256_max_epi32(bits(_mm256_fnmadd_ps(low_limit, larger(x_size, low_rms), near)), most_over);
                    // near/size = quotient + (near·over - quotient) + near·over·(1 - size·over) + ..: the first is summed in f64; the others
                    // are 2^-24 of it, so f32 is plenty.
                    let over = _mm256_div_ps(one, size);
                    let quotient = _mm256_mul_ps(near, over);
                    most_relative = _mm256_max_epi32(bits(quotient), most_relative);
                    let rest = _mm256_fmadd_ps(quotient, _mm256_fnmadd_ps(size, over, one), _mm256_fmsub_ps(near, over, quotient));
                    correction = _mm256_add_ps(correction, rest);
                    let quotients = wide(quotient);
                    relative = _mm256_add_pd(relative, _mm256_add_pd(quotients[0], quotients[1]));
                });
                let floats = |x: __m256i| _mm256_castsi256_ps(x);
                let (least, most, most_relative, most_over) = (floats(least), floats(most), floats(most_relative), floats(most_over));
                let equal = eight_counts(equal).iter().sum::<u32>() as usize;
                let mut light = Light {
                    sums: [kernel::plain(std::iter::empty()); 2],
                    rms: 0.0,
                    apart: 0.0,
                    squares: 0.0,
                    relative: total(relative) + eight(correction).into_iter().map(f64::from).sum::<f64>(),
                    max_abs: highest(most),
                    max_relative: highest(most_relative),
                    over: highest(most_over) > 0.0,
                    differing: (r.len() / $size - equal) as u64,
                    max_steps: eight_counts(steps).into_iter().max().unwrap_or(0) >> $shift,
                };
                if lowest(least) < f64::from(LOWEST) {
                    light.sums[0].zeros = zeros(r);
                    light.sums[1].zeros = zeros(c);
                    if tiny(r, c) {
                        return None;
                    }
                }
                // Numbers within a factor of two of each other have an exact difference (Sterbenz), and one sign. Others must be looked at
                // in f64; so must steps where 0 meets -0.
                if light.max_relative > 0.499 {
                    (light.relative, light.max_abs, light.over) = far(r, c, limit, rms);
                }
                if light.max_relative > 0.499 || light.max_steps > (i32::MAX as u32) >> $shift {
                    (light.max_steps, light.differing) = signed_steps(r, c);
                }
                Some(light)
            }

            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn each(r: &[u8], c: &[u8], mut visit: impl FnMut(__m256, __m256)) {
                for i in (0..r.len().min(c.len()) / (8 * $size)).map(|i| i * 8 * $size) {
                    // SAFETY: eight elements from i lie inside both sides.
                    let (r, c) = unsafe { (load(r.as_ptr().add(i)), load(c.as_ptr().add(i))) };
                    visit(r, c);
                }
            }

            #[target_feature(enable = "avx2,fma,f16c")]
            fn zeros(bytes: &[u8]) -> u64 {
                let mut count = _mm256_setzero_si256();
                each(bytes, bytes, |x, _| {
                    count = _mm256_sub_epi32(count, _mm256_castps_si256(_mm256_cmp_ps::<_CMP_EQ_OQ>(x, _mm256_setzero_ps())));
                });
                eight_counts(count).into_iter().map(u64::from).sum()
            }

            /// Whether the larger of two is below [`LOWEST`] and not 0.
            #[target_feature(enable = "avx2,fma,f16c")]
            fn tiny(r: &[u8], c: &[u8]) -> bool {
                let mut any = _mm256_setzero_ps();
                each(r, c, |r, c| {
                    let size = _mm256_max_ps(abs32(r), abs32(c));
                    let low = _mm256_cmp_ps::<_CMP_LT_OQ>(size, _mm256_set1_ps(LOWEST));
                    any = _mm256_or_ps(any, _mm256_and_ps(low, _mm256_cmp_ps::<_CMP_NEQ_OQ>(size, _mm256_setzero_ps())));
                });
                _mm256_movemask_ps(any) != 0
            }

            /// `Σ|c - r| / max(|r|, |c|)`, the largest `|c - r|`, and whether one is above the limit, whatever they are.
            #[target_feature(enable = "avx2,fma,f16c")]
            fn far(r: &[u8], c: &[u8], limit: f64, rms: f64) -> (f64, f64, bool) {
                let mut most_over = _mm256_setzero_pd();
                let (mut relative, mut correction, mut most) = (_mm256_setzero_pd(), _mm256_setzero_ps(), _mm256_setzero_pd());
                let one = _mm256_set1_ps(1.0);
                each(r, c, |x, y| {
                    let size = _mm256_max_ps(_mm256_max_ps(abs32(x), abs32(y)), _mm256_set1_ps(LOWEST));
                    let over = _mm256_div_ps(one, size);
                    let quotient = _mm256_mul_ps(abs32(_mm256_sub_ps(y, x)), over);
                    correction = _mm256_fmadd_ps(quotient, _mm256_fnmadd_ps(size, over, one), correction);
                    let (xs, ys, overs) = (wide(x), wide(y), wide(over));
                    for k in 0..2 {
                        let d = abs(_mm256_sub_pd(ys[k], xs[k]));
                        most = _mm256_max_pd(d, most);
                        relative = _mm256_fmadd_pd(d, overs[k], relative);
                        let allowed = _mm256_max_pd(abs(xs[k]), _mm256_set1_pd(rms));
                        most_over = _mm256_max_pd(_mm256_fnmadd_pd(_mm256_set1_pd(limit), allowed, d), most_over);
                    }
                });
                let correction: f64 = eight(correction).into_iter().map(f64::from).sum();
                let over = four(most_over).into_iter().any(|over| over > 0.0);
                (total(relative) + correction, four(most).into_iter().fold(0.0, f64::max), over)
            }

            /// The most steps from one number to the other, and how many differ.
            #[target_feature(enable = "avx2,fma,f16c")]
            fn signed_steps(r: &[u8], c: &[u8]) -> (u32, u64) {
                let mut equal = _mm256_setzero_si256();
                let mut most = _mm256_setzero_si256();
                let down = |x: __m256| {
                    let sign = _mm256_srai_epi32::<31>(_mm256_castps_si256(x));
                    let magnitude = _mm256_srli_epi32::<$shift>(_mm256_castps_si256(abs32(x)));
                    _mm256_sub_epi32(_mm256_xor_si256(magnitude, sign), sign)
                };
                each(r, c, |r, c| {
                    let apart = distance(down(r), down(c));
                    most = _mm256_max_epu32(most, apart);
                    equal = _mm256_sub_epi32(equal, _mm256_cmpeq_epi32(apart, _mm256_setzero_si256()));
                });
                let equal: u64 = eight_counts(equal).into_iter().map(u64::from).sum();
                (eight_counts(most).into_iter().max().unwrap_or(0), (r.len() / $size) as u64 - equal)
            }

            /// The largest `|c - r| / max(|r|, |c|)`.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn relative(r: &[u8], c: &[u8]) -> f64 {
                let mut most = [_mm256_setzero_pd(); 2];
                each(r, c, |r, c| {
                    let size = wide(_mm256_max_ps(_mm256_max_ps(abs32(r), abs32(c)), _mm256_set1_ps(LOWEST)));
                    let (r, c) = (wide(r), wide(c));
                    most = [0, 1].map(|k| _mm256_max_pd(most[k], _mm256_div_pd(abs(_mm256_sub_pd(c[k], r[k])), size[k])));
                });
                four(_mm256_max_pd(most[0], most[1])).into_iter().fold(0.0, f64::max)
            }
        }
    )*};
}
lights! {
    light_f32: 4, 0, |at| _mm256_loadu_ps(at.cast());
    light_bf16: 2, 16, |at| _mm256_castsi256_ps(top16(at));
}

/// How many of the codes are each value above 0, ascending.
#[target_feature(enable = "avx2")]
pub(super) fn histogram(codes: &[u8], mut each: impl FnMut(u8, u64)) {
    let (vectors, rest) = codes.as_chunks::<32>();
    // A lane counts at most 255.
    for vectors in vectors.chunks(255) {
        let mut most = _mm256_setzero_si256();
        let mut least = _mm256_set1_epi8(-1);
        for vector in vectors {
            // SAFETY: these are the 32 bytes that are loaded.
            let x = unsafe { _mm256_loadu_si256(vector.as_ptr().cast()) };
            most = _mm256_max_epu8(most, x);
            // 0 becomes the largest, so the least is that of the others.
            least = _mm256_min_epu8(least, _mm256_sub_epi8(x, _mm256_set1_epi8(1)));
        }
        let (mut high, mut low) = ([0u8; 32], [0u8; 32]);
        // SAFETY: both are the 32 bytes that are stored.
        unsafe {
            _mm256_storeu_si256(high.as_mut_ptr().cast(), most);
            _mm256_storeu_si256(low.as_mut_ptr().cast(), least);
        }
        let high = high.into_iter().max().unwrap_or(0);
        let low = low.into_iter().min().unwrap_or(0).saturating_add(1);
        for first in (u16::from(low)..=u16::from(high)).step_by(4) {
            let keys: [__m256i; 4] = std::array::from_fn(|k| _mm256_set1_epi8((first + k as u16).min(255) as i8));
            let mut counts = [_mm256_setzero_si256(); 4];
            for vector in vectors {
                // SAFETY: these are the 32 bytes that are loaded.
                let x = unsafe { _mm256_loadu_si256(vector.as_ptr().cast()) };
                for k in 0..4 {
                    counts[k] = _mm256_sub_epi8(counts[k], _mm256_cmpeq_epi8(x, keys[k]));
                }
            }
            for (k, count) in counts.into_iter().enumerate().filter(|(k, _)| first + *k as u16 <= u16::from(high)) {
                let count = four_counts(_mm256_sad_epu8(count, _mm256_setzero_si256())).iter().sum();
                each((first + k as u16) as u8, count);
            }
        }
    }
    rest.iter().filter(|code| **code > 0).for_each(|code| each(*code, 1));
}
