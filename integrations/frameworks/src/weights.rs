//! Weights that both models get: a function of the name alone, so neither needs a file.

/// `len` values of about `1 / sqrt(fan_in)`, of this weight and no other.
pub fn values(name: &str, len: usize, fan_in: usize) -> Vec<f32> {
    // FNV-1a of the name, then xorshift.
    let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let scale = (3.0 / fan_in as f32).sqrt();
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * scale
    };
    (0..len).map(|_| next()).collect()
}

/// A norm's weight, near one.
pub fn near_one(name: &str, len: usize) -> Vec<f32> {
    values(name, len, 300)
        .into_iter()
        .map(|value| 1.0 + value)
        .collect()
}
