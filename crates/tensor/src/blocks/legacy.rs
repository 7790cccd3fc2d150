//! One scale for a short run of codes: `d · q`, or `d · q + m` with an offset.

use super::{float_at, half_at, word_at};

/// `{f16 d, 128 bits}`: a set bit is `d`, a clear one `-d`.
pub(super) fn q1_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, value) in out.iter_mut().enumerate() {
        *value = if block[2 + i / 8] >> (i % 8) & 1 == 1 {
            d
        } else {
            -d
        };
    }
}

/// Codes of four bits: the low nibbles are the first half of the block, the high ones the second.
fn nibbles(codes: &[u8], out: &mut [f32], value: impl Fn(usize, u8) -> f32) {
    let (low, high) = out.split_at_mut(codes.len());
    for (i, code) in codes.iter().enumerate() {
        low[i] = value(i, code & 15);
        high[i] = value(i + codes.len(), code >> 4);
    }
}

/// `{f16 d, codes[16]}`
pub(super) fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    nibbles(&block[2..], out, |_, code| d * f32::from(code as i8 - 8));
}

/// `{f16 d, f16 m, codes[16]}`
pub(super) fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    nibbles(&block[4..], out, |_, code| d * f32::from(code) + m);
}

/// `{f16 d, u32 fifth bits, codes[16]}`
pub(super) fn q5_0(block: &[u8], out: &mut [f32]) {
    let (d, fifth) = (half_at(block, 0), word_at(block, 2));
    nibbles(&block[6..], out, |i, code| {
        d * f32::from((code | ((fifth >> i & 1) as u8) << 4) as i8 - 16)
    });
}

/// `{f16 d, f16 m, u32 fifth bits, codes[16]}`
pub(super) fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m, fifth) = (half_at(block, 0), half_at(block, 2), word_at(block, 4));
    nibbles(&block[8..], out, |i, code| {
        d * f32::from(code | ((fifth >> i & 1) as u8) << 4) + m
    });
}

/// `{f16 d, i8 codes[32]}`
pub(super) fn q8_0(block: &[u8], out: &mut [f32]) {
    bytes(half_at(block, 0), &block[2..], out);
}

/// `{f32 d, f32 sum, i8 codes[32]}`: the forty bytes that gguf-py writes. ggml's struct of today is smaller, but holds
/// activations and is never written to a file.
pub(super) fn q8_1(block: &[u8], out: &mut [f32]) {
    bytes(float_at(block, 0), &block[8..], out);
}

pub(super) fn bytes(d: f32, codes: &[u8], out: &mut [f32]) {
    for (value, code) in out.iter_mut().zip(codes) {
        *value = f32::from(*code as i8) * d;
    }
}
