//! E2M1 elements under a shared 8-bit float.

/// Twice the E2M1 values, so that they are integers; the scales are halved in return. Code 8 is plain zero here.
const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `{e8m0 scale, codes[16]}`, low nibbles first.
pub(super) fn mxfp4(block: &[u8], out: &mut [f32]) {
    let exponent = u32::from(block[0]);
    // Half of 2^(e - 127); the two smallest are below the normal f32.
    let d = f32::from_bits(if exponent < 2 {
        0x0020_0000 << exponent
    } else {
        (exponent - 1) << 23
    });
    run(d, &block[1..], out);
}

/// `{unsigned e4m3 scales[4], codes[4][8]}`: four runs of sixteen.
pub(super) fn nvfp4(block: &[u8], out: &mut [f32]) {
    for (j, out) in out.chunks_exact_mut(16).enumerate() {
        run(half_scale(block[j]), &block[4 + 8 * j..12 + 8 * j], out);
    }
}

/// Half of an E4M3 number; its sign bit means nothing and the NaN code is zero.
fn half_scale(code: u8) -> f32 {
    if code == 0 || code == 0x7F {
        return 0.0;
    }
    let (exponent, mantissa) = (u32::from(code >> 3 & 15), f32::from(code & 7));
    let value = if exponent == 0 {
        mantissa / 512.0
    } else {
        (1.0 + mantissa / 8.0) * f32::from_bits((exponent + 120) << 23)
    };
    value * 0.5
}

fn run(d: f32, codes: &[u8], out: &mut [f32]) {
    let (low, high) = out.split_at_mut(codes.len());
    for ((low, high), code) in low.iter_mut().zip(high).zip(codes) {
        *low = d * f32::from(DOUBLED[usize::from(code & 15)]);
        *high = d * f32::from(DOUBLED[usize::from(code >> 4)]);
    }
}
