//! AVX2 over a pair: differences, their sums, their histograms and profiles, for blocks of finite numbers.
//!
//! Everything is measured in `f64`, eight elements at a time. What is left over at the end of a block is padded with zeros on both sides,
//! which are equal and change nothing.

use crate::totals::{Block, Cell, Known, Part};
use std::arch::x86_64::*;

/// Eight numbers as `f64`.
pub(super) type Eight = [__m256d; 2];

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn wide(x: __m256) -> Eight {
    [
        _mm256_cvtps_pd(_mm256_castps256_ps128(x)),
        _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x)),
    ]
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
        let magnitude =
            _mm256_srli_epi32::<16>(_mm256_and_si256(bits, _mm256_set1_epi32(i32::MAX)));
        _mm256_sub_epi32(_mm256_xor_si256(magnitude, sign), sign)
    };
    _mm256_abs_epi32(_mm256_sub_epi32(down(a), down(b)))
}

#[target_feature(enable = "avx2")]
pub(super) fn four(vector: __m256d) -> [f64; 4] {
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
pub(super) fn abs(x: __m256d) -> __m256d {
    _mm256_andnot_pd(_mm256_set1_pd(-0.0), x)
}

/// The biased exponent of numbers that are not negative, 0 only of 0. Only differences of f64 can be denormal: their exponent is 0, they are not.
#[inline]
#[target_feature(enable = "avx2")]
fn biased<const SIZE: usize>(x: __m256d) -> __m256i {
    let exponent = _mm256_srli_epi64::<52>(_mm256_castpd_si256(x));
    if SIZE < 8 {
        return exponent;
    }
    let unequal = _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_NEQ_OQ>(x, _mm256_setzero_pd()));
    _mm256_max_epi32(exponent, _mm256_srli_epi64::<63>(unequal))
}

/// 127 and the power of two of unsigned numbers, 0 of 0.
#[inline]
#[target_feature(enable = "avx2")]
fn power(x: __m256i) -> __m256i {
    // The exponent as an f32 is the power of two; without the bit below the first, nothing rounds up to the next one.
    let float = _mm256_cvtepi32_ps(_mm256_andnot_si256(_mm256_srli_epi32::<1>(x), x));
    let power = _mm256_srli_epi32::<23>(_mm256_castps_si256(float));
    // With the first bit set a number would count as negative.
    let highest = _mm256_castsi256_ps(_mm256_set1_epi32(127 + 31));
    _mm256_castps_si256(_mm256_blendv_ps(
        _mm256_castsi256_ps(power),
        highest,
        _mm256_castsi256_ps(x),
    ))
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
                        exponents[k] = biased::<{ $r::SIZE }>(apart);
                    }
                }
                // SAFETY: 16 elements can be read and 16 codes have room, says the caller.
                let (equal, steps) = unsafe { write_codes(exponents, r, c, known.base, magnitudes, ulps) };
                sums.equal = _mm256_sub_epi16(sums.equal, equal);
                sums.steps = _mm256_max_epu32(sums.steps, steps);
            }

            /// The codes of 16 elements, from the exponents of their differences. Says which are equal, and the most steps.
            ///
            /// # Safety
            /// As `group`.
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn write_codes(exponents: [__m256i; 4], r: *const u8, c: *const u8, base: u16, magnitudes: *mut u8, ulps: *mut u8) -> (__m256i, __m256i) {
                // Four times four exponents of 11 bits, put side by side in 16 bits each: their order is of no interest.
                let all = _mm256_or_si256(
                    _mm256_or_si256(exponents[0], _mm256_slli_epi64::<16>(exponents[1])),
                    _mm256_or_si256(_mm256_slli_epi64::<32>(exponents[2]), _mm256_slli_epi64::<48>(exponents[3])),
                );
                let equal = _mm256_cmpeq_epi16(all, _mm256_setzero_si256());
                let codes = _mm256_subs_epu16(all, _mm256_set1_epi16(base as i16));
                let packed = _mm_packus_epi16(_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes));
                // SAFETY: 16 codes have room; 8 elements from 8·half lie inside the 16.
                let steps = unsafe {
                    _mm_storeu_si128(magnitudes.cast(), packed);
                    [steps(r, c), steps(r.add(8 * $r::SIZE), c.add(8 * $c::SIZE))]
                };
                let codes = _mm256_packus_epi32(power(steps[0]), power(steps[1]));
                let packed = _mm_packus_epi16(_mm256_castsi256_si128(codes), _mm256_extracti128_si256::<1>(codes));
                // SAFETY: 16 codes have room.
                unsafe { _mm_storeu_si128(ulps.cast(), packed) };
                (equal, _mm256_max_epu32(steps[0], steps[1]))
            }

            /// Only the codes, of a multiple of 16 elements.
            #[target_feature(enable = "avx2,fma,f16c")]
            pub(in super::super) fn codes(r: &[u8], c: &[u8], base: u16, magnitudes: &mut [u8], ulps: &mut [u8]) {
                let len = r.len() / $r::SIZE;
                assert!(len.is_multiple_of(16) && c.len() == len * $c::SIZE && magnitudes.len() >= len && ulps.len() >= len);
                for i in (0..len).step_by(16) {
                    // SAFETY: 16 elements from i lie inside both sides, 16 codes inside both codes.
                    unsafe {
                        let (r, c) = (r.as_ptr().add(i * $r::SIZE), c.as_ptr().add(i * $c::SIZE));
                        let mut exponents = [_mm256_setzero_si256(); 4];
                        for half in 0..2 {
                            let (rs, cs) = ($r::load(r.add(8 * half * $r::SIZE)), $c::load(c.add(8 * half * $c::SIZE)));
                            for part in 0..2 {
                                exponents[2 * half + part] = biased::<{ $r::SIZE }>(abs(_mm256_sub_pd(cs[part], rs[part])));
                            }
                        }
                        write_codes(exponents, r, c, base, magnitudes.as_mut_ptr().add(i), ulps.as_mut_ptr().add(i));
                    }
                }
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

#[target_feature(enable = "avx2")]
pub(super) fn eight_counts(vector: __m256i) -> [u32; 8] {
    let mut out = [0; 8];
    // SAFETY: eight `u32` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), vector) };
    out
}

#[target_feature(enable = "avx2")]
pub(super) fn total(vector: __m256d) -> f64 {
    let [a, b, c, d] = four(vector);
    (a + b) + (c + d)
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
            let keys: [__m256i; 4] =
                std::array::from_fn(|k| _mm256_set1_epi8((first + k as u16).min(255) as i8));
            let mut counts = [_mm256_setzero_si256(); 4];
            for vector in vectors {
                // SAFETY: these are the 32 bytes that are loaded.
                let x = unsafe { _mm256_loadu_si256(vector.as_ptr().cast()) };
                for k in 0..4 {
                    counts[k] = _mm256_sub_epi8(counts[k], _mm256_cmpeq_epi8(x, keys[k]));
                }
            }
            for (k, count) in counts
                .into_iter()
                .enumerate()
                .filter(|(k, _)| first + *k as u16 <= u16::from(high))
            {
                let count = four_counts(_mm256_sad_epu8(count, _mm256_setzero_si256()))
                    .iter()
                    .sum();
                each((first + k as u16) as u8, count);
            }
        }
    }
    rest.iter()
        .filter(|code| **code > 0)
        .for_each(|code| each(*code, 1));
}
