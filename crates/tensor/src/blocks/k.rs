//! K-quants: 256 elements, sub-blocks of 16 or 32 with a small scale each, and one large scale for those.

use super::{float_at, half_at, legacy, nibble};

// Codes lie so that neighbouring elements are in neighbouring bytes at the same bits: every inner loop below goes over plain
// slices with one shift, which the compiler turns into vector code.

/// The sixteen bytes that hold two bits of each element of run `j`, and how far to shift them: 32 elements share 32 bytes,
/// four such runs one after another in rising bits.
fn two_bits(codes: &[u8], j: usize) -> (&[u8], u32) {
    (
        &codes[j / 8 * 32 + j % 2 * 16..][..16],
        2 * (j as u32 % 8 / 2),
    )
}

/// `{scale and min nibbles[16], codes[64], f16 d, f16 dmin}`
pub(super) fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (j, run) in out.chunks_exact_mut(16).enumerate() {
        let (d, m) = (
            d * f32::from(scales[j] & 15),
            dmin * f32::from(scales[j] >> 4),
        );
        let (codes, shift) = two_bits(codes, j);
        for (value, code) in run.iter_mut().zip(codes) {
            *value = d * f32::from(code >> shift & 3) - m;
        }
    }
}

/// `{third bits[32], codes[64], 6-bit scales[12], f16 d}`
pub(super) fn q3_k(block: &[u8], out: &mut [f32]) {
    let (third, codes, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half_at(block, 108);
    let scale = |j: usize| {
        let low = scales[j % 8] >> (4 * (j / 8)) & 15;
        let high = scales[8 + j % 4] >> (2 * (j / 4)) & 3;
        d * f32::from((low | high << 4) as i8 - 32)
    };
    for (j, run) in out.chunks_exact_mut(16).enumerate() {
        let d = scale(j);
        let (codes, shift) = two_bits(codes, j);
        for ((value, code), third) in run.iter_mut().zip(codes).zip(&third[j % 2 * 16..][..16]) {
            // A clear bit takes four away.
            let code = (code >> shift & 3 | (third >> (j / 2) & 1) << 2) as i8;
            *value = d * f32::from(code - 4);
        }
    }
}

/// The eight 6-bit scales and mins that Q4_K and Q5_K pack into twelve bytes.
fn scale_min(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        return (packed[j] & 63, packed[4 + j] & 63);
    }
    let both = packed[4 + j];
    (
        both & 15 | packed[j - 4] >> 2 & 48,
        both >> 4 | packed[j] >> 2 & 48,
    )
}

/// `{f16 d, f16 dmin, scales[12], codes[128]}`: 32 low nibbles, then the 32 high ones of the same bytes.
pub(super) fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, codes) = (&block[4..16], &block[16..]);
    for (j, run) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (d, m) = (d * f32::from(scale), dmin * f32::from(min));
        let shift = 4 * (j % 2);
        for (value, code) in run.iter_mut().zip(&codes[j / 2 * 32..][..32]) {
            *value = d * f32::from(code >> shift & 15) - m;
        }
    }
}

/// `{f16 d, f16 dmin, scales[12], fifth bits[32], codes[128]}`
pub(super) fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, fifth, codes) = (&block[4..16], &block[16..48], &block[48..]);
    for (j, run) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (d, m) = (d * f32::from(scale), dmin * f32::from(min));
        let shift = 4 * (j % 2);
        for ((value, code), fifth) in run.iter_mut().zip(&codes[j / 2 * 32..][..32]).zip(fifth) {
            *value = d * f32::from(code >> shift & 15 | (fifth >> j & 1) << 4) - m;
        }
    }
}

/// `{low nibbles[128], high pairs[64], i8 scales[16], f16 d}`
pub(super) fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half_at(block, 208);
    for (j, run) in out.chunks_exact_mut(16).enumerate() {
        let d = d * f32::from(scales[j] as i8);
        // 64 low nibbles, then the 64 high ones of the same bytes.
        let (low, low_shift) = (&low[j / 8 * 64 + j % 4 * 16..][..16], 4 * (j % 8 / 4));
        let (high, high_shift) = two_bits(high, j);
        for ((value, low), high) in run.iter_mut().zip(low).zip(high) {
            *value =
                d * f32::from((low >> low_shift & 15 | (high >> high_shift & 3) << 4) as i8 - 32);
        }
    }
}

/// `{f32 d, i8 codes[256], i16 sums[16]}`
pub(super) fn q8_k(block: &[u8], out: &mut [f32]) {
    legacy::bytes(float_at(block, 0), &block[4..260], out);
}

/// The scale nibble `j`, for the codebook types that share this layout.
pub(super) fn scale_nibble(scales: &[u8], j: usize) -> f32 {
    f32::from(nibble(scales, j))
}
