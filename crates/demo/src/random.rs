//! Random numbers that are the same everywhere: SplitMix64, and nearly normal values without a logarithm.

#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// One stream for each name: a weight does not depend on how many were drawn before it.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        // FNV-1a over the name, started from the seed.
        let start = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xcbf2_9ce4_8422_2325;
        Self(name.bytes().fold(start, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In (0, 1].
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * 2f64.powi(-53)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// Mean 0, deviation 1, a number of f32: the sum of four even ones is normal enough, and every machine adds alike.
    pub(crate) fn normal(&mut self) -> f64 {
        let bits = self.bits();
        let sum: u64 = (0..4).map(|part| (bits >> (16 * part)) & 0xffff).sum();
        let even = (sum as f64 + 2.0) / 65536.0 - 2.0;
        f64::from((even * 3f64.sqrt()) as f32)
    }

    /// A random order of `0..count` that moves something wherever two can be moved.
    pub(crate) fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, self.below(at + 1));
        }
        if order.iter().enumerate().all(|(at, from)| at == *from) {
            order.rotate_left(1);
        }
        order
    }
}
