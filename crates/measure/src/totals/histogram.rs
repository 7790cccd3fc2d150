//! Counts by power of two: a window that grows to what it has seen.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Histogram {
    low: i32,
    counts: Vec<u64>,
}

impl Histogram {
    pub(crate) fn add(&mut self, bucket: i32, count: u64) {
        if count == 0 {
            return;
        }
        if self.counts.is_empty() {
            self.low = bucket;
        }
        if bucket < self.low {
            let more = (self.low - bucket) as usize;
            self.counts.splice(..0, std::iter::repeat_n(0, more));
            self.low = bucket;
        }
        let at = (bucket - self.low) as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += count;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other
            .iter()
            .for_each(|(bucket, count)| self.add(bucket, count));
    }

    /// Ascending, without the empty ones.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i32, u64)> {
        (self.low..)
            .zip(self.counts.iter().copied())
            .filter(|(_, count)| *count > 0)
    }
}

/// Elements whose histograms are exact.
const EXACT: u64 = 1 << 18;
/// Beyond those, one block of so many is counted, for all of them.
const EVERY: u64 = 64;

/// How often an element of the block that begins at `start` counts.
pub(crate) fn weight(start: u64) -> u64 {
    match start {
        0..EXACT => 1,
        _ if (start / super::state::BLOCK as u64).is_multiple_of(EVERY) => EVERY,
        _ => 0,
    }
}

/// `floor(log2(x))` of a number above 0, denormals included; 1024 of infinity.
pub(crate) fn exponent(x: f64) -> i32 {
    let bits = x.to_bits() & (u64::MAX >> 1);
    match (bits >> 52) as i32 {
        0 => -1011 - bits.leading_zeros() as i32,
        biased => biased - 1023,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_right_down_to_the_least() {
        for power in -1074..=1023 {
            let x = super::super::scaled::times_power(1.0, power);
            assert_eq!(exponent(x), power);
            assert_eq!(exponent(-x), power);
            if power > -1074 {
                assert_eq!(
                    exponent(f64::from_bits(x.to_bits() - 1)),
                    power - 1,
                    "below 2^{power}"
                );
            }
        }
        assert_eq!(exponent(f64::INFINITY), 1024);
    }

    #[test]
    fn a_window_grows_both_ways() {
        let mut all = Histogram::default();
        for bucket in [5, 5, -3, 0, 9, -3] {
            all.add(bucket, 1);
        }
        let mut twice = all.clone();
        twice.merge(&all);
        assert_eq!(
            all.iter().collect::<Vec<_>>(),
            [(-3, 2), (0, 1), (5, 2), (9, 1)]
        );
        assert_eq!(
            twice.iter().collect::<Vec<_>>(),
            [(-3, 4), (0, 2), (5, 4), (9, 2)]
        );
    }
}
