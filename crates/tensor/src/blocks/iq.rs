//! Codebook quants: an index picks four or eight values at once from a fixed grid, bits give their signs.

use super::{grids, half_at, k::scale_nibble, nibble, short_at, word_at};

/// Seven stored sign bits; the eighth makes their number even.
fn signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | ((seven.count_ones() & 1) as u8) << 7
}

/// `±(d · point)` for each coordinate of a grid point.
fn signed(d: f32, point: &[i8], signs: u8, out: &mut [f32]) {
    for (i, (value, level)) in out.iter_mut().zip(point).enumerate() {
        let sign = if signs >> i & 1 == 0 { 1.0 } else { -1.0 };
        *value = d * f32::from(*level) * sign;
    }
}

/// `{f16 d, 8 × {u8 index[4], u32 four signs and a scale}}`
pub(super) fn iq2_xxs(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let group = &block[2 + j / 4 * 8..][..8];
        let packed = word_at(group, 4);
        let d = d * (0.5 + (packed >> 28) as f32) * 0.25;
        signed(
            d,
            &grids::IQ2XXS[usize::from(group[j % 4])],
            signs(packed >> (7 * (j % 4))),
            out,
        );
    }
}

/// `{f16 d, u16 9-bit index and signs[32], scale nibbles[8]}`
pub(super) fn iq2_xs(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    let scales = &block[66..];
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let code = short_at(block, 2 + 2 * j);
        let d = d * (0.5 + scale_nibble(scales, j / 2)) * 0.25;
        signed(
            d,
            &grids::IQ2XS[usize::from(code & 511)],
            signs(u32::from(code >> 9)),
            out,
        );
    }
}

/// `{f16 d, index[32], signs[32], two more index bits[8], scale nibbles[8]}`
pub(super) fn iq2_s(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    let (index, signs, high, scales) =
        (&block[2..34], &block[34..66], &block[66..74], &block[74..]);
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let top = usize::from(high[j / 4] >> (2 * (j % 4)) & 3);
        let d = d * (0.5 + scale_nibble(scales, j / 2)) * 0.25;
        signed(
            d,
            &grids::IQ2S[usize::from(index[j]) | top << 8],
            signs[j],
            out,
        );
    }
}

/// `{f16 d, index[64], u32 four signs and a scale[8]}`
pub(super) fn iq3_xxs(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (j, out) in out.chunks_exact_mut(4).enumerate() {
        let packed = word_at(block, 66 + j / 8 * 4);
        let d = d * (0.5 + (packed >> 28) as f32) * 0.5;
        let eight = signs(packed >> (7 * (j % 8 / 2)));
        signed(
            d,
            &grids::IQ3XXS[usize::from(block[2 + j])],
            eight >> (4 * (j % 2)),
            out,
        );
    }
}

/// `{f16 d, index[64], ninth bits[8], signs[32], scale nibbles[4]}`
pub(super) fn iq3_s(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    let (index, ninth, signs, scales) = (
        &block[2..66],
        &block[66..74],
        &block[74..106],
        &block[106..],
    );
    for (j, out) in out.chunks_exact_mut(4).enumerate() {
        let top = usize::from(ninth[j / 8] >> (j % 8) & 1);
        let d = d * (1.0 + 2.0 * scale_nibble(scales, j / 8));
        signed(
            d,
            &grids::IQ3S[usize::from(index[j]) | top << 8],
            signs[j / 2] >> (4 * (j % 2)),
            out,
        );
    }
}

/// `d · (point ± 1/8)`
fn shifted(d: f32, point: &[i8; 8], negative: bool, out: &mut [f32]) {
    let delta = if negative { -0.125 } else { 0.125 };
    for (value, level) in out.iter_mut().zip(point) {
        *value = d * (f32::from(*level) + delta);
    }
}

/// `{f16 d, index[32], u16 four times three index bits, scale, sign of delta[8]}`
pub(super) fn iq1_s(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let packed = short_at(block, 34 + j / 4 * 2);
        let d = d * f32::from(2 * (packed >> 12 & 7) + 1);
        let top = usize::from(packed >> (3 * (j % 4)) & 7);
        shifted(
            d,
            &grids::IQ1S[usize::from(block[2 + j]) | top << 8],
            packed & 0x8000 != 0,
            out,
        );
    }
}

/// `{index[32], nibbles of three index bits and the sign of delta[16], u16 scales[4]}`; the f16 `d` is spread over the top
/// nibbles of the scales.
pub(super) fn iq1_m(block: &[u8], out: &mut [f32]) {
    let scale = |i: usize| short_at(block, 48 + 2 * i);
    let d = (0..4).fold(0, |d, i| d | (scale(i) & 0xF000) >> (12 - 4 * i));
    let d = half_at(&d.to_le_bytes(), 0);
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let pair = j / 2;
        let d = d * f32::from(2 * (scale(pair / 4) >> (3 * (pair % 4)) & 7) + 1);
        let top = nibble(&block[32..48], j);
        shifted(
            d,
            &grids::IQ1S[usize::from(block[j]) | usize::from(top & 7) << 8],
            top & 8 != 0,
            out,
        );
    }
}

/// The sixteen levels of IQ4: close where weights are dense.
const LEVELS: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

fn iq4_run(d: f32, codes: &[u8], out: &mut [f32]) {
    let (low, high) = out.split_at_mut(codes.len());
    for ((low, high), code) in low.iter_mut().zip(high).zip(codes) {
        *low = d * f32::from(LEVELS[usize::from(code & 15)]);
        *high = d * f32::from(LEVELS[usize::from(code >> 4)]);
    }
}

/// `{f16 d, codes[16]}`
pub(super) fn iq4_nl(block: &[u8], out: &mut [f32]) {
    iq4_run(half_at(block, 0), &block[2..], out);
}

/// `{f16 d, u16 high scale bits, low scale nibbles[4], codes[128]}`
pub(super) fn iq4_xs(block: &[u8], out: &mut [f32]) {
    let (d, high) = (half_at(block, 0), short_at(block, 2));
    for (j, out) in out.chunks_exact_mut(32).enumerate() {
        let scale = nibble(&block[4..8], j) | ((high >> (2 * j) & 3) as u8) << 4;
        iq4_run(
            d * f32::from(scale as i8 - 32),
            &block[8 + 16 * j..][..16],
            out,
        );
    }
}
