//! Axes swapped, also axes hidden inside a flattened dimension: heads that were not moved back before the reshape, a square weight
//! transposed, a buffer read in the other order.
//!
//! The candidate's values in row-major order are the reference's, seen with one or two of its dimensions split, with its axes in another
//! order. What stays within one dimension is a permutation of it and left to that.

use super::near::{ENOUGH_BITS, Probe, divisors};
use crate::{Case, Class, Examined, Explanation, Hypothesis, case::Predicted};
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct Transposed;

/// Axes up to which every order is tried; of more, only every two swapped.
const ALL_ORDERS: usize = 5;

impl Hypothesis for Transposed {
    fn name(&self) -> &'static str {
        "transposed"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let dims: Vec<usize> = case.dims.iter().copied().filter(|dim| *dim > 1).collect();
        if dims.len() < 2 {
            return Err("there is only one dimension".into());
        }
        let probe = Probe::new(case);
        if probe.evidence() < ENOUGH_BITS {
            return Err("too few values differ to tell the order of axes".into());
        }
        let fits = |reading: &Reading| probe.accepts(|at| case.reference[reading.source(at)]);
        let reading = plain(&dims)
            .find(fits)
            .or_else(|| split(&dims).find(fits))
            .or_else(|| swapped_blocks(&dims).find(fits));
        let reading = reading.ok_or("no other order of axes makes it the candidate")?;
        let predicted = reading.sources().map(|at| case.reference[at]).collect();
        Ok(vec![Explanation {
            kind: CauseKind::Transposed,
            text: reading.text(case.dims),
            details: facts::Transposed::Axes {
                seen_as: reading.dims,
                order: reading.order,
            }
            .into(),
            class: Class::Mechanism,
            freedom: 1,
            predicted: Predicted::Values(predicted),
        }])
    }
}

/// The reference seen as `dims`, its axes put in `order`.
#[derive(Clone, Debug, PartialEq)]
struct Reading {
    dims: Vec<usize>,
    order: Vec<usize>,
}

impl Reading {
    /// The reference seen in the order that this one makes, read back.
    fn inverse(&self) -> Self {
        let mut order = vec![0; self.order.len()];
        for (to, from) in self.order.iter().enumerate() {
            order[*from] = to;
        }
        Self {
            dims: self.order.iter().map(|axis| self.dims[*axis]).collect(),
            order,
        }
    }

    fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.dims.len()];
        for axis in (0..self.dims.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * self.dims[axis + 1];
        }
        strides
    }

    /// Where in the reference the candidate's element comes from.
    fn source(&self, mut at: usize) -> usize {
        let mut source = 0;
        let strides = self.strides();
        for axis in self.order.iter().rev() {
            source += at % self.dims[*axis] * strides[*axis];
            at /= self.dims[*axis];
        }
        source
    }

    /// The same for every element, in order.
    fn sources(&self) -> impl Iterator<Item = usize> {
        let strides = self.strides();
        let steps: Vec<(usize, usize)> = self
            .order
            .iter()
            .map(|axis| (self.dims[*axis], strides[*axis]))
            .collect();
        let mut index = vec![0; steps.len()];
        let (mut at, mut left) = (0, self.dims.iter().product::<usize>());
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let here = at;
            for axis in (0..steps.len()).rev() {
                index[axis] += 1;
                at += steps[axis].1;
                if index[axis] < steps[axis].0 {
                    break;
                }
                at -= steps[axis].1 * steps[axis].0;
                index[axis] = 0;
            }
            Some(here)
        })
    }

    fn text(&self, dims: &[usize]) -> String {
        let moved: Vec<usize> = (0..self.order.len())
            .filter(|axis| self.order[*axis] != *axis)
            .collect();
        let same = self.dims.iter().eq(dims.iter().filter(|dim| **dim > 1));
        let how = match moved[..] {
            [a, b] => format!("dims {a} and {b} swapped"),
            _ => format!("its dims in the order {:?}", self.order),
        };
        match (
            same,
            dims.len() == self.dims.len(),
            moved.len() == 2 && self.dims[moved[0]] == self.dims[moved[1]],
        ) {
            (true, true, true) => format!("candidate = reference with {how}"),
            (true, true, false) => {
                format!("candidate = reference with {how}, read as if they were not")
            }
            _ => format!(
                "candidate = reference seen as {:?} with {how}, then reshaped to {dims:?}",
                self.dims
            ),
        }
    }
}

/// The axes as they are, in every order.
fn plain(dims: &[usize]) -> impl Iterator<Item = Reading> {
    both_ways(dims.to_vec())
}

/// One dimension split in two, or two of them.
fn split(dims: &[usize]) -> impl Iterator<Item = Reading> {
    let dims = dims.to_vec();
    (0..dims.len()).rev().flat_map(move |axis| {
        let dims = dims.clone();
        divisors(dims[axis])
            .into_iter()
            .filter({
                let dim = dims[axis];
                move |inner| *inner > 1 && *inner < dim
            })
            .flat_map(move |inner| {
                let mut finer = dims.clone();
                finer.splice(axis..=axis, [dims[axis] / inner, inner]);
                both_ways(finer).filter(move |reading| !within_one(reading, axis))
            })
    })
}

/// Only the two halves of a split dimension have changed places.
fn within_one(reading: &Reading, axis: usize) -> bool {
    let mut order: Vec<usize> = (0..reading.order.len()).collect();
    order.swap(axis, axis + 1);
    reading.order == order
}

fn both_ways(dims: Vec<usize>) -> impl Iterator<Item = Reading> {
    let orders = if dims.len() <= ALL_ORDERS {
        every_order(dims.len())
    } else {
        every_swap(dims.len())
    };
    orders.into_iter().flat_map(move |order| {
        let reading = Reading {
            dims: dims.clone(),
            order,
        };
        let inverse = reading.inverse();
        [reading, inverse]
    })
}

/// Without the one that changes nothing; swaps first.
fn every_order(axes: usize) -> Vec<Vec<usize>> {
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..axes {
        let longer = |order: &Vec<usize>| {
            let order = order.clone();
            (0..axes)
                .filter(|axis| !order.contains(axis))
                .map(|axis| [&order[..], &[axis]].concat())
                .collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    let moved = |order: &Vec<usize>| (0..axes).filter(|axis| order[*axis] != *axis).count();
    orders.retain(|order| moved(order) > 0);
    orders.sort_by_key(moved);
    orders
}

fn every_swap(axes: usize) -> Vec<Vec<usize>> {
    let swap = |a: usize, b: usize| {
        let mut order: Vec<usize> = (0..axes).collect();
        order.swap(a, b);
        order
    };
    (0..axes)
        .flat_map(|a| (a + 1..axes).map(move |b| (a, b)))
        .map(|(a, b)| swap(a, b))
        .collect()
}

/// Two neighbouring factors of the whole swapped, wherever the dimensions' borders are.
fn swapped_blocks(dims: &[usize]) -> impl Iterator<Item = Reading> {
    let elements: usize = dims.iter().product();
    let dims = dims.to_vec();
    divisors(elements).into_iter().flat_map(move |inner| {
        let dims = dims.clone();
        divisors(elements / inner)
            .into_iter()
            .filter(|b| *b > 1)
            .flat_map(move |b| {
                let dims = dims.clone();
                let rest = elements / inner / b;
                divisors(rest)
                    .into_iter()
                    .filter(|a| *a > 1)
                    .filter_map(move |a| {
                        if inside_one_dim(&dims, inner, a * b * inner) {
                            return None;
                        }
                        Some(Reading {
                            dims: vec![rest / a, a, b, inner],
                            order: vec![0, 2, 1, 3],
                        })
                    })
            })
    })
}

/// Whether moving things of `inner` elements around in blocks of `block` stays within one dimension.
fn inside_one_dim(dims: &[usize], inner: usize, block: usize) -> bool {
    (0..dims.len()).any(|axis| {
        let inside: usize = dims[axis + 1..].iter().product();
        inner.is_multiple_of(inside) && (dims[axis] * inside).is_multiple_of(block)
    })
}

#[cfg(test)]
mod tests {
    use super::{Reading, every_order};
    use crate::{
        places::testing::bf16_noise,
        testing::{Recorded, examine_bf16, examine_pair, normal, proven},
    };
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    fn read(values: &[f64], dims: &[usize], order: &[usize]) -> Vec<f64> {
        Reading {
            dims: dims.to_vec(),
            order: order.to_vec(),
        }
        .sources()
        .map(|at| values[at])
        .collect()
    }

    #[test]
    fn a_square_weight_is_transposed() {
        let weight = normal(48 * 48, 1);
        let found = examine_pair(&[48, 48], weight.clone(), read(&weight, &[48, 48], &[1, 0]));
        assert_eq!(proven(&found), Some("transposed"));
        assert_eq!(
            found.found[0].explanation.text,
            "candidate = reference with dims 0 and 1 swapped"
        );
    }

    #[test]
    fn heads_that_were_not_moved_back_are_transposed() {
        let x = normal(2 * 11 * 48, 2);
        let moved = read(&x, &[2, 11, 4, 12], &[0, 2, 1, 3]);
        let found = examine_pair(&[2, 11, 48], x.clone(), moved.clone());
        assert_eq!(proven(&found), Some("transposed"));
        assert_eq!(
            found.found[0].explanation.details.json()["seen_as"],
            serde_json::json!([2, 11, 4, 12])
        );
        // The other side may have forgotten it.
        assert_eq!(
            proven(&examine_pair(&[2, 11, 48], moved, x)),
            Some("transposed")
        );
    }

    #[test]
    fn also_under_the_noise_of_bf16() {
        let x = normal(3 * 8 * 5 * 16, 3);
        let candidate = bf16_noise(&read(&x, &[3, 8, 5, 16], &[0, 2, 1, 3]), 2e-3, 4);
        let run = [Recorded {
            name: "x",
            dims: vec![3, 8, 80],
            reference: x,
            candidate,
        }];
        assert_eq!(proven(&examine_bf16(&run, "x")), Some("transposed"));
    }

    #[test]
    fn what_stays_within_one_dimension_is_not() {
        let x = normal(6 * 24, 5);
        let found = examine_pair(&[6, 24], x.clone(), read(&x, &[6, 2, 12], &[0, 2, 1]));
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Transposed)
        );
    }

    #[test]
    fn unrelated_values_are_not() {
        for dims in [vec![2, 2], vec![6, 8], vec![2, 3, 4, 5]] {
            let count = dims.iter().product();
            let found = examine_pair(&dims, normal(count, 1), normal(count, 2));
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::Transposed),
                "{dims:?}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_order_of_any_axes_is_found(dims in proptest::collection::vec(2usize..6, 2..5), nth in 0usize..100, seed in 0u64..1000) {
            let orders = every_order(dims.len());
            let count = dims.iter().product();
            prop_assume!(count >= 12);
            let x = normal(count, seed);
            let found = examine_pair(&dims, x.clone(), read(&x, &dims, &orders[nth % orders.len()]));
            prop_assert_eq!(proven(&found), Some("transposed"));
        }
    }
}
