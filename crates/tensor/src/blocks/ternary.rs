//! Values of -1, 0 and 1 times one scale.

use super::half_at;

/// Five ternary digits a byte, as a fraction of 256 that is multiplied by three for each digit:
/// `{digits[48], four more each[4], f16 d}`.
pub(super) fn tq1_0(block: &[u8], out: &mut [f32]) {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    let d = half_at(block, 52);
    let mut values = out.iter_mut();
    for (bytes, digits) in [(&block[..32], 5), (&block[32..48], 5), (&block[48..52], 4)] {
        for power in &POWERS[..digits] {
            for (byte, value) in bytes.iter().zip(&mut values) {
                let digit = ((u16::from(byte.wrapping_mul(*power)) * 3) >> 8) as i8;
                *value = d * f32::from(digit - 1);
            }
        }
    }
}

/// `{two bits each[64], f16 d}`
pub(super) fn tq2_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 64);
    for (j, run) in out.chunks_exact_mut(32).enumerate() {
        for (value, byte) in run.iter_mut().zip(&block[j / 4 * 32..][..32]) {
            *value = d * f32::from((byte >> (2 * (j % 4)) & 3) as i8 - 1);
        }
    }
}
