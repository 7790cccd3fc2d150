//! K-quants: 256 elements, sub-blocks of 16 or 32 with a small scale each, and one large scale for those.

use super::{float_at, half_at, legacy, nibble};

/// Two bits of element `i`: runs of 32 elements share 32 bytes, four runs after another in rising bits.
fn two_bits(codes: &[u8], i: usize) -> u8 {
    codes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3
}

/// Four bits of element `i`: 32 low nibbles, then the 32 high ones of the same bytes.
fn four_bits(codes: &[u8], i: usize) -> u8 {
    codes[i / 64 * 32 + i % 32] >> (4 * (i % 64 / 32)) & 15
}

/// `{scale and min nibbles[16], codes[64], f16 d, f16 dmin}`
pub(super) fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (i, value) in out.iter_mut().enumerate() {
        let scale = scales[i / 16];
        let (d, m) = (d * f32::from(scale & 15), dmin * f32::from(scale >> 4));
        *value = d * f32::from(two_bits(codes, i)) - m;
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
        for (i, value) in (16 * j..).zip(run) {
            // A clear bit takes four away.
            let four = if third[i % 32] >> (i / 32) & 1 == 0 { 4 } else { 0 };
            *value = d * f32::from(two_bits(codes, i) as i8 - four);
        }
    }
}

/// The eight 6-bit scales and mins that Q4_K and Q5_K pack into twelve bytes.
fn scale_min(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        return (packed[j] & 63, packed[4 + j] & 63);
    }
    let both = packed[4 + j];
    (both & 15 | packed[j - 4] >> 2 & 48, both >> 4 | packed[j] >> 2 & 48)
}

/// `{f16 d, f16 dmin, scales[12], codes[128]}`
pub(super) fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, codes) = (&block[4..16], &block[16..]);
    for (j, run) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (d, m) = (d * f32::from(scale), dmin * f32::from(min));
        for (i, value) in (32 * j..).zip(run) {
            *value = d * f32::from(four_bits(codes, i)) - m;
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
        for (i, value) in (32 * j..).zip(run) {
            let high = fifth[i % 32] >> j & 1;
            *value = d * f32::from(four_bits(codes, i) | high << 4) - m;
        }
    }
}

/// `{low nibbles[128], high pairs[64], i8 scales[16], f16 d}`
pub(super) fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half_at(block, 208);
    for (j, run) in out.chunks_exact_mut(16).enumerate() {
        let d = d * f32::from(scales[j] as i8);
        for (i, value) in (16 * j..).zip(run) {
            let low = low[i / 128 * 64 + i % 64] >> (4 * (i % 128 / 64)) & 15;
            *value = d * f32::from((low | two_bits(high, i) << 4) as i8 - 32);
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
