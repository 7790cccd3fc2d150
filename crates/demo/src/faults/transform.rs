//! What faults do to arrays.

use crate::{array::Array, random::Random};

/// The channels of `dim` such that pairs `(i, i + dim / 2)` come to lie side by side.
pub(super) fn interleaved(dim: usize) -> Vec<usize> {
    (0..dim).map(|at| at / 2 + at % 2 * (dim / 2)).collect()
}

/// The same for every head of a projection's rows.
pub(super) fn in_every_head(heads: usize, order: &[usize]) -> Vec<usize> {
    (0..heads)
        .flat_map(|head| order.iter().map(move |at| head * order.len() + at))
        .collect()
}

/// Whole heads in another order, as rows of a projection.
pub(super) fn heads_in_order(order: &[usize], dim: usize) -> Vec<usize> {
    order
        .iter()
        .flat_map(|head| head * dim..(head + 1) * dim)
        .collect()
}

/// Slice `at` comes from `at - by`, the ends around.
pub(super) fn rolled(length: usize, by: usize) -> Vec<usize> {
    (0..length)
        .map(|at| (at + length - by % length) % length)
        .collect()
}

/// As context parallelism deals chunks to ranks: the first and the last, the second and the last but one.
pub(super) fn zigzag(length: usize) -> Vec<usize> {
    (0..length)
        .map(|at| {
            if at % 2 == 0 {
                at / 2
            } else {
                length - 1 - at / 2
            }
        })
        .collect()
}

/// Whole numbers of `levels` steps to each side of zero, times a scale shared by `block` neighbours of a row.
pub(super) fn quantized(array: &Array, block: usize, levels: f64) -> Array {
    let mut out = array.clone();
    for row in out.rows_mut() {
        for values in row.chunks_mut(block) {
            let largest = values
                .iter()
                .fold(0f64, |largest, value| largest.max(value.abs()));
            let step = f64::from((largest / levels) as f32);
            if step > 0.0 {
                values
                    .iter_mut()
                    .for_each(|value| *value = (*value / step).round_ties_even() * step);
            }
        }
    }
    out
}

/// Zero with probability `p`, else divided by what is left of one.
pub(super) fn dropped_out(array: &Array, p: f64, seed: u64) -> Array {
    let mut random = Random::new(seed, "dropout");
    let mut out = array.clone();
    out.values.iter_mut().for_each(|value| {
        *value = if random.uniform() <= p {
            0.0
        } else {
            *value / (1.0 - p)
        }
    });
    out
}

/// Replaces one slice of an axis.
pub(super) fn in_slice(array: &mut Array, axis: usize, at: usize, of: impl Fn(f64) -> f64) {
    let inner: usize = array.shape[axis + 1..].iter().product();
    let length = array.shape[axis];
    for block in array.values.chunks_exact_mut(length * inner) {
        block[at * inner..(at + 1) * inner]
            .iter_mut()
            .for_each(|value| *value = of(*value));
    }
}
