//! What the tests of these hypotheses share.

use crate::testing::normal;

/// Every value off by a relative error of this size.
pub(crate) fn bf16_noise(values: &[f64], size: f64, seed: u64) -> Vec<f64> {
    values
        .iter()
        .zip(normal(values.len(), seed))
        .map(|(value, n)| value * (1.0 + size * n.clamp(-2.0, 2.0)))
        .collect()
}

/// Softmax over rows of `columns` scores times `scale`, of those that are seen.
pub(crate) fn softmax(
    scores: &[f64],
    columns: usize,
    scale: f64,
    seen: impl Fn(usize) -> bool,
) -> Vec<f64> {
    let power = |at: usize| {
        if seen(at) {
            (scores[at] * scale).exp()
        } else {
            0.0
        }
    };
    let sum = |at: usize| {
        (at / columns * columns..at / columns * columns + columns)
            .map(power)
            .sum::<f64>()
    };
    (0..scores.len())
        .map(|at| {
            if sum(at) == 0.0 {
                0.0
            } else {
                power(at) / sum(at)
            }
        })
        .collect()
}
