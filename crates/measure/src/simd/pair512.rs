//! What [`super::pair`] finds, with AVX-512, where small tensors spend their time: columns, codes and the worst elements.
//!
//! Differences that only have to be found, or of which only the power of two counts, are taken in `f32`, 16 at a time. Rounding keeps the order,
//! so nothing at or above a limit is below that limit rounded down; and where cutting off and rounding give one power of two, so does `f64`.

use super::{
    OnlyCodes,
    light512::{GROUP, Wide},
};
use crate::totals::{Cell, Part};
use std::arch::x86_64::*;

/// A type whose numbers and whose steps both are there as 32 bits.
pub(super) trait Stepped: Wide {
    /// Zero bits below the last one of the type.
    const BELOW: i32;
}

impl Stepped for super::light::F32 {
    const BELOW: i32 = 0;
}

impl Stepped for super::light::Bf16 {
    const BELOW: i32 = 16;
}

#[inline]
#[target_feature(enable = "avx512f")]
fn eight(vector: __m512d) -> [f64; 8] {
    let mut out = [0.0; 8];
    // SAFETY: eight `f64` take the 64 bytes that are stored.
    unsafe { _mm512_storeu_pd(out.as_mut_ptr(), vector) };
    out
}

#[inline]
#[target_feature(enable = "avx512f")]
fn sixteen_counts(vector: __m512i) -> [u32; 16] {
    let mut out = [0; 16];
    // SAFETY: sixteen `u32` take the 64 bytes that are stored.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), vector) };
    out
}

/// As [`super::pair`]'s: adds `rows` rows of `cells.len()` elements each, `row` elements apart, to the cells of their columns.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
pub(super) fn columns<T: Wide>(
    part: Part<'_>,
    cells: &mut [Cell],
    others: unsafe fn(Part<'_>, &mut [Cell]),
) {
    let Part { r, c, rows, row } = part;
    let whole = cells.len() / GROUP * GROUP;
    if rows == 0 {
        return;
    }
    assert!(
        r.len() >= ((rows - 1) * row + cells.len()) * T::SIZE && c.len() >= r.len(),
        "every row lies inside"
    );
    let (groups, rest) = cells.split_at_mut(whole);
    for (at, cells) in (0..whole)
        .step_by(GROUP)
        .zip(groups.as_chunks_mut::<GROUP>().0)
    {
        let zero = _mm512_setzero_pd();
        let (mut error, mut energy, mut most) = ([zero; 4], [zero; 4], [zero; 4]);
        let mut equal = [_mm512_setzero_si512(); 2];
        for i in 0..rows {
            let from = (i * row + at) * T::SIZE;
            // SAFETY: a group from `at` lies inside row i.
            let (xs, ys, rs, cs) = unsafe {
                let (r, c) = (r.as_ptr().add(from), c.as_ptr().add(from));
                let (xs, ys) = (T::floats(r), T::floats(c));
                (xs, ys, T::doubles(r, xs), T::doubles(c, ys))
            };
            for k in 0..2 {
                let same = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(xs[k], ys[k]);
                equal[k] = _mm512_mask_add_epi32(equal[k], same, equal[k], _mm512_set1_epi32(1));
            }
            for k in 0..4 {
                let apart = _mm512_abs_pd(_mm512_sub_pd(cs[k], rs[k]));
                error[k] = _mm512_fmadd_pd(apart, apart, error[k]);
                energy[k] = _mm512_fmadd_pd(rs[k], rs[k], energy[k]);
                most[k] = _mm512_max_pd(most[k], apart);
            }
        }
        for k in 0..2 {
            for (lane, equal) in sixteen_counts(equal[k]).into_iter().enumerate() {
                cells[T::place(16 * k + lane)].differing += rows as u64 - u64::from(equal);
            }
        }
        for k in 0..4 {
            let (error, energy, most) = (eight(error[k]), eight(energy[k]), eight(most[k]));
            for lane in 0..8 {
                let cell = &mut cells[T::place(8 * k + lane)];
                cell.error += error[lane];
                cell.energy += energy[lane];
                cell.max_abs = if most[lane] > cell.max_abs {
                    most[lane]
                } else {
                    cell.max_abs
                };
            }
        }
    }
    if !rest.is_empty() {
        let part = Part {
            r: &r[whole * T::SIZE..],
            c: &c[whole * T::SIZE..],
            rows,
            row,
        };
        // SAFETY: it is compiled for AVX2, which whatever has AVX-512 has.
        unsafe { others(part, rest) };
    }
}

/// As [`super::pair`]'s: the places where `|c - r|` is at least `least`, which is above 0.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
pub(super) fn above<T: Wide>(
    r: &[u8],
    c: &[u8],
    least: f64,
    places: &mut Vec<u32>,
    others: unsafe fn(&[u8], &[u8], f64, &mut Vec<u32>),
) {
    if !r.len().is_multiple_of(GROUP * T::SIZE) {
        // SAFETY: it is compiled for AVX2, which whatever has AVX-512 has.
        return unsafe { others(r, c, least, places) };
    }
    assert!(r.len() == c.len());
    places.clear();
    // Numbers that differ do so by at least the least f32.
    let limit = _mm512_set1_ps(super::light::down(least).max(f32::from_bits(1)));
    for i in (0..r.len() / T::SIZE).step_by(GROUP) {
        // SAFETY: a group from i lies inside both sides.
        let (xs, ys) = unsafe {
            (
                T::floats(r.as_ptr().add(i * T::SIZE)),
                T::floats(c.as_ptr().add(i * T::SIZE)),
            )
        };
        let found = [0, 1].map(|k| {
            _mm512_cmp_ps_mask::<_CMP_GE_OQ>(_mm512_abs_ps(_mm512_sub_ps(ys[k], xs[k])), limit)
        });
        let mut found = u32::from(found[0]) | u32::from(found[1]) << 16;
        if found == 0 {
            continue;
        }
        let mut both = [[0f32; GROUP]; 2];
        // SAFETY: sixteen `f32` take the 64 bytes that are stored, each time.
        unsafe {
            for (both, floats) in both.iter_mut().zip([xs, ys]) {
                _mm512_storeu_ps(both.as_mut_ptr(), floats[0]);
                _mm512_storeu_ps(both.as_mut_ptr().add(16), floats[1]);
            }
        }
        while found != 0 {
            let lane = found.trailing_zeros() as usize;
            found &= found - 1;
            if (f64::from(both[1][lane]) - f64::from(both[0][lane])).abs() >= least {
                places.push((i + T::place_of_float(lane)) as u32);
            }
        }
    }
}

/// Signed steps from 0 of sign-and-magnitude bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn places(bits: __m512i) -> __m512i {
    let sign = _mm512_srai_epi32::<31>(bits);
    let magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(i32::MAX));
    _mm512_sub_epi32(_mm512_xor_si512(magnitude, sign), sign)
}

/// As [`super::pair`]'s: only the codes, of a multiple of 16 elements.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c,popcnt")]
pub(super) fn codes<T: Stepped>(
    r: &[u8],
    c: &[u8],
    base: u16,
    magnitudes: &mut [u8],
    ulps: &mut [u8],
    others: OnlyCodes,
) {
    let len = r.len() / T::SIZE;
    assert!(c.len() == len * T::SIZE && magnitudes.len() >= len && ulps.len() >= len);
    // From the exponents of f32 to those of f64, and to codes.
    let shift = _mm512_set1_epi32(1023 - 127 - i32::from(base));
    let (zero, magnitude) = (_mm512_setzero_si512(), _mm512_set1_epi32(i32::MAX));
    // The least difference but 0, less one, and the largest.
    let (mut least, mut largest) = (_mm512_set1_epi32(-1), zero);
    // Bits in which what is cut off and what is rounded differ. f64 rounds too, so just below a power of two it has to say which one it is.
    let mut unsure = zero;
    for i in (0..len / GROUP * GROUP).step_by(GROUP) {
        // SAFETY: a group from i lies inside both sides.
        let (xs, ys) = unsafe {
            (
                T::floats(r.as_ptr().add(i * T::SIZE)),
                T::floats(c.as_ptr().add(i * T::SIZE)),
            )
        };
        for k in 0..2 {
            let apart =
                _mm512_sub_round_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(ys[k], xs[k]);
            let rounded = _mm512_castps_si512(_mm512_sub_ps(ys[k], xs[k]));
            let apart = _mm512_castps_si512(apart);
            unsure = _mm512_or_si512(unsure, _mm512_xor_si512(apart, rounded));
            let apart = _mm512_and_si512(apart, magnitude);
            least = _mm512_min_epu32(least, _mm512_sub_epi32(apart, _mm512_set1_epi32(1)));
            largest = _mm512_max_epu32(largest, apart);
            let exponent = _mm512_srli_epi32::<23>(apart);
            let code =
                _mm512_maskz_add_epi32(_mm512_test_epi32_mask(exponent, exponent), exponent, shift);
            let (a, b) = (
                places(_mm512_castps_si512(xs[k])),
                places(_mm512_castps_si512(ys[k])),
            );
            let steps = _mm512_sub_epi32(_mm512_max_epi32(a, b), _mm512_min_epi32(a, b));
            let power = _mm512_sub_epi32(
                _mm512_set1_epi32(127 + 31 - T::BELOW),
                _mm512_lzcnt_epi32(steps),
            );
            let power = _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(steps, steps), power);
            // SAFETY: 16 codes have room from here.
            unsafe {
                _mm_storeu_si128(
                    magnitudes.as_mut_ptr().add(i + 16 * k).cast(),
                    _mm512_cvtepi32_epi8(_mm512_max_epi32(code, zero)),
                );
                _mm_storeu_si128(
                    ulps.as_mut_ptr().add(i + 16 * k).cast(),
                    _mm512_cvtepi32_epi8(power),
                );
            }
        }
    }
    // Below the powers that f32 has, and above: rare, and left to those who count in f64.
    let exponents = _mm512_set1_epi32(0x7f80_0000);
    let unusual = _mm512_test_epi32_mask(unsure, exponents) != 0
        || _mm512_reduce_min_epu32(least) < 0x007f_ffff
        || _mm512_reduce_max_epu32(largest) >= 0x7f7f_ffff;
    let done = if unusual { 0 } else { len / GROUP * GROUP };
    if done < len {
        // SAFETY: it is compiled for AVX2, which whatever has AVX-512 has.
        unsafe {
            others(
                &r[done * T::SIZE..],
                &c[done * T::SIZE..],
                base,
                &mut magnitudes[done..],
                &mut ulps[done..],
            );
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Level, light, pair};
    use proptest::prelude::*;

    /// What AVX2 says of the same bytes.
    struct Others {
        columns: unsafe fn(Part<'_>, &mut [Cell]),
        above: unsafe fn(&[u8], &[u8], f64, &mut Vec<u32>),
    }

    fn check<T: Wide>(
        r: &[u8],
        c: &[u8],
        row: usize,
        others: &Others,
    ) -> Result<(), TestCaseError> {
        let rows = r.len() / T::SIZE / row;
        // Something is there already, and the last columns are those of the next part.
        let width = row - row / 7;
        let some = |nth: usize| Cell {
            error: nth as f64,
            energy: 0.5,
            max_abs: 0.01 * (nth % 5) as f64,
            differing: 2,
        };
        let mut cells: Vec<Cell> = (0..width).map(some).collect();
        let mut wanted = cells.clone();
        let part = Part { r, c, rows, row };
        // SAFETY: AVX-512 was detected, and whatever has it has AVX2.
        unsafe {
            columns::<T>(part, &mut cells, others.columns);
            (others.columns)(part, &mut wanted);
        }
        prop_assert_eq!(cells, wanted);
        for least in [f64::from_bits(1), 1e-4, 0.003_906_25, 0.05, 3.0] {
            let (mut places, mut wanted) = (vec![7], vec![9]);
            // SAFETY: as above.
            unsafe {
                above::<T>(r, c, least, &mut places, others.above);
                (others.above)(r, c, least, &mut wanted);
            }
            places.sort_unstable();
            prop_assert_eq!(places, wanted, "at least {}", least);
        }
        Ok(())
    }

    fn check_codes<T: Stepped>(
        r: &[u8],
        c: &[u8],
        base: u16,
        others: OnlyCodes,
    ) -> Result<(), TestCaseError> {
        let len = r.len() / T::SIZE;
        let mut found = [vec![1; len], vec![1; len]];
        let mut wanted = [vec![2; len], vec![2; len]];
        let [magnitudes, ulps] = &mut found;
        // SAFETY: as above.
        unsafe { codes::<T>(r, c, base, magnitudes, ulps, others) };
        let [magnitudes, ulps] = &mut wanted;
        // SAFETY: as above.
        unsafe { others(r, c, base, magnitudes, ulps) };
        // In any order.
        [&mut found, &mut wanted]
            .into_iter()
            .flatten()
            .for_each(|codes| codes.sort_unstable());
        prop_assert_eq!(found, wanted);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_wider_loops_say_what_the_others_say(
            seed in any::<u64>(),
            row in prop::sample::select(vec![16usize, 32, 48, 96, 112, 160]),
            size in prop::sample::select(vec![1.0f32, 1e-30, 1e38, 1e-39]),
            noise in prop::sample::select(vec![0.0f32, 1e-6, 1e-2, 3.0]),
        ) {
            if Level::best() < Level::Avx512 {
                return Ok(());
            }
            let mut state = seed | 1;
            let mut random = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as f32 / (1u64 << 53) as f32 * 2.0 - 1.0
            };
            let r: Vec<f32> = (0..6 * row).map(|i| if i % 29 == 3 { [0.0, -0.0][i % 2] } else { size * random() }).collect();
            let c: Vec<f32> = r.iter().enumerate().map(|(i, x)| match i % 31 {
                5 => *x,
                7 => -x,
                _ => x * (1.0 + noise * random()),
            }.clamp(f32::MIN, f32::MAX)).collect();
            let both = |bytes: fn(f32) -> Vec<u8>| [&r, &c].map(|side| side.iter().flat_map(|x| bytes(*x)).collect::<Vec<u8>>());
            // The least exponent that has a code: as it is chosen, and one that leaves some without.
            let bases = [1023 + 129 - 255, 1023 - 10];
            let [left, right] = both(|x| x.to_le_bytes().to_vec());
            check::<light::F32>(&left, &right, row, &Others { columns: pair::f32_f32::columns, above: pair::f32_f32::above })?;
            for base in bases {
                check_codes::<light::F32>(&left, &right, base, pair::f32_f32::codes)?;
            }
            let [left, right] = both(|x| x.to_le_bytes()[2..].to_vec());
            check::<light::Bf16>(&left, &right, row, &Others { columns: pair::bf16_bf16::columns, above: pair::bf16_bf16::above })?;
            for base in bases {
                check_codes::<light::Bf16>(&left, &right, base, pair::bf16_bf16::codes)?;
            }
            let [left, right] = both(|x| half::f16::from_f32(x.clamp(-6e4, 6e4)).to_le_bytes().to_vec());
            check::<light::F16>(&left, &right, row, &Others { columns: pair::f16_f16::columns, above: pair::f16_f16::above })?;
        }
    }
}
