//! One axis in another order: the rope layout of weights, packed q, k and v, the order of heads, shuffled tokens.
//!
//! Orders that have a name are tried first, on every axis and on neighbouring axes taken as one. Otherwise slices are matched by their values: each is
//! known by scattered elements of it, and every slice of the candidate must find its own. An order without a name has as many numbers as slices, so each slice
//! must hold enough values to know it by.

use super::{
    near::{ENOUGH_BITS, Probe, close, hash},
    orders::{Order, named},
};
use crate::{Case, Class, Examined, Explanation, Hypothesis, array::Axis, case::Predicted};
use twinscope_report::{
    CauseKind,
    facts::{self, Pattern},
};

#[derive(Debug)]
pub(super) struct Permuted;

/// Slices beyond which an axis is not matched.
const LONGEST: usize = 1 << 16;
/// Elements that a slice is known by.
const KNOWN_BY: usize = 32;
/// Slices tried before all are.
const TRIED: usize = 24;
/// Slices looked at for one.
const LOOKED: usize = 1 << 12;

impl Hypothesis for Permuted {
    fn name(&self) -> &'static str {
        "permuted"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let probe = Probe::new(case);
        if probe.evidence() < ENOUGH_BITS {
            return Err("too few values differ to tell an order".into());
        }
        let lanes = lanes(case.dims);
        for lane in &lanes {
            if let Some(order) =
                named(lane.axis.along).find(|order| fits(case, &probe, lane, |i| order.source(i)))
            {
                return Ok(vec![by_name(case, lane, &order)]);
            }
        }
        for lane in &lanes {
            if let Some(order) = matched(case, &probe, lane) {
                return Ok(vec![by_list(case, lane, &order)]);
            }
        }
        Err("no order of an axis makes it the candidate".into())
    }
}

/// One axis, or neighbouring ones taken as one.
struct Lane {
    axis: Axis,
    first: usize,
    last: usize,
}

impl Lane {
    fn text(&self) -> String {
        if self.first == self.last {
            format!("dim {}", self.first)
        } else {
            format!("dims {} to {}", self.first, self.last)
        }
    }

    fn numbers(&self) -> Vec<usize> {
        (self.first..=self.last).collect()
    }
}

/// Single axes first, the innermost first; then what they make together, but for the whole.
fn lanes(dims: &[usize]) -> Vec<Lane> {
    let mut lanes = Vec::new();
    for width in 1..=dims.len() {
        for last in (width - 1..dims.len()).rev() {
            let first = last + 1 - width;
            if dims[first] == 1 || dims[last] == 1 {
                continue;
            }
            let inside = dims[last + 1..].iter().product();
            let outside = dims[..first].iter().product();
            let axis = Axis {
                outside,
                along: dims[first..=last].iter().product(),
                inside,
            };
            if width == 1 || inside * outside > 1 {
                lanes.push(Lane { axis, first, last });
            }
        }
    }
    lanes
}

fn moved(axis: Axis, at: usize, source: impl Fn(usize) -> usize) -> usize {
    let i = axis.index(at);
    at + source(i) * axis.inside - i * axis.inside
}

fn fits(case: &Case<'_>, probe: &Probe<'_>, lane: &Lane, source: impl Fn(usize) -> usize) -> bool {
    probe.accepts(|at| case.reference[moved(lane.axis, at, &source)])
}

fn by_name(case: &Case<'_>, lane: &Lane, order: &Order) -> Explanation {
    let axis = lane.axis;
    // Of activations only the last axis, of weights any.
    let channels =
        axis.inside == 1 || case.dims.len() <= 2 || case.scene.entries()[case.pair].parameter;
    Explanation {
        kind: CauseKind::Permuted,
        text: format!(
            "candidate = reference {}",
            order.text(&lane.text(), axis.along, channels)
        ),
        details: facts::Permuted::Named {
            axis: lane.first,
            axes: lane.numbers(),
            pattern: order.pattern(channels),
        }
        .into(),
        class: Class::Mechanism,
        freedom: 1,
        predicted: Predicted::Values(rearranged(case, axis, |i| order.source(i))),
    }
}

fn rearranged(case: &Case<'_>, axis: Axis, source: impl Fn(usize) -> usize) -> Vec<f64> {
    let mut values = Vec::with_capacity(case.reference.len());
    let sources: Vec<usize> = (0..axis.along).map(source).collect();
    for outside in 0..axis.outside {
        for source in &sources {
            let from = axis.at(outside, *source, 0);
            values.extend_from_slice(&case.reference[from..from + axis.inside]);
        }
    }
    values
}

fn by_list(case: &Case<'_>, lane: &Lane, order: &[usize]) -> Explanation {
    let block = block(order);
    let blocks: Vec<usize> = order
        .iter()
        .step_by(block)
        .map(|from| from / block)
        .collect();
    let out: Vec<usize> = (0..blocks.len()).filter(|i| blocks[*i] != *i).collect();
    let things = if block == 1 {
        String::new()
    } else {
        format!("blocks of {block} of ")
    };
    let (pattern, text) = match out[..] {
        [a, b] => (
            Pattern::BlockSwap,
            format!(
                "candidate = reference with {a} and {b} of {things}{} exchanged",
                lane.text()
            ),
        ),
        _ => (
            Pattern::Arbitrary,
            format!(
                "candidate = reference with {things}{} in another order: {}",
                lane.text(),
                listed(&blocks)
            ),
        ),
    };
    Explanation {
        kind: CauseKind::Permuted,
        text,
        details: facts::Permuted::Listed {
            axis: lane.first,
            axes: lane.numbers(),
            pattern,
            block,
            order: Some(blocks).filter(|blocks| blocks.len() <= 256),
        }
        .into(),
        class: Class::Mechanism,
        freedom: out.len(),
        predicted: Predicted::Values(rearranged(case, lane.axis, |i| order[i])),
    }
}

fn listed(order: &[usize]) -> String {
    let first: Vec<String> = order.iter().take(12).map(ToString::to_string).collect();
    let more = if order.len() > first.len() {
        ", ..."
    } else {
        ""
    };
    format!("{}{more}", first.join(", "))
}

/// The longest run that stays together: indices come in whole blocks of it.
fn block(order: &[usize]) -> usize {
    let together = |block: &usize| {
        order.chunks(*block).all(|chunk| {
            chunk[0].is_multiple_of(*block)
                && chunk
                    .iter()
                    .enumerate()
                    .all(|(i, from)| *from == chunk[0] + i)
        })
    };
    super::near::divisors(order.len())
        .into_iter()
        .rev()
        .find(together)
        .unwrap_or(1)
}

/// Where each slice of the candidate comes from, when nearly all are found and one is not in its place.
fn matched(case: &Case<'_>, probe: &Probe<'_>, lane: &Lane) -> Option<Vec<usize>> {
    let axis = lane.axis;
    let (length, slice) = (axis.along, axis.outside * axis.inside);
    // By chance no slice may look like one of the others.
    if !(3..=LONGEST).contains(&length)
        || slice as f64 * probe.bits_per_element() < (length as f64).log2() + ENOUGH_BITS / 2.0
    {
        return None;
    }
    let slices = Slices::new(case, probe, axis);
    let sample: Vec<usize> = (0..length.min(TRIED))
        .map(|nth| nth * length / length.min(TRIED))
        .collect();
    let lost = sample
        .iter()
        .filter(|i| slices.find(**i, |_| true).is_none())
        .count();
    if lost * 8 > sample.len() {
        return None;
    }
    let mut taken = vec![false; length];
    let mut order: Vec<Option<usize>> = (0..length)
        .map(|i| slices.same(i, i).then_some(i))
        .collect();
    for i in order.iter().flatten() {
        taken[*i] = true;
    }
    for (i, from) in order
        .iter_mut()
        .enumerate()
        .filter(|(_, from)| from.is_none())
    {
        *from = slices.find(i, |j| !taken[j]);
        if let Some(from) = from {
            taken[*from] = true;
        }
    }
    let lost = order.iter().filter(|from| from.is_none()).count();
    let mut free = (0..length).filter(|i| !taken[*i]);
    let order: Vec<usize> = order
        .into_iter()
        .map(|from| from.or_else(|| free.next()))
        .collect::<Option<_>>()?;
    let fit = lost * 16 <= length
        && order.iter().enumerate().any(|(i, from)| *from != i)
        && fits(case, probe, lane, |i| order[i]);
    fit.then_some(order)
}

/// Every slice of an axis by the same few of its elements; the reference's also sorted by the first two of them.
struct Slices<'a> {
    case: &'a Case<'a>,
    axis: Axis,
    rms: f64,
    tolerance: f64,
    known_by: Vec<(usize, usize)>,
    sorted: Vec<Vec<(f64, usize)>>,
}

impl<'a> Slices<'a> {
    fn new(case: &'a Case<'a>, probe: &Probe<'_>, axis: Axis) -> Self {
        let slice = axis.outside * axis.inside;
        let place = |nth: usize| {
            if slice <= KNOWN_BY {
                nth
            } else {
                (hash(nth as u64) % slice as u64) as usize
            }
        };
        let mut places: Vec<usize> = (0..slice.min(KNOWN_BY)).map(place).collect();
        places.sort_unstable();
        places.dedup();
        // Those that vary most over the slices tell most: sort by them.
        let known_by: Vec<(usize, usize)> = places
            .iter()
            .map(|at| (at / axis.inside, at % axis.inside))
            .collect();
        let sorted = known_by
            .iter()
            .step_by(known_by.len().div_ceil(2))
            .map(|(o, j)| {
                let mut column: Vec<(f64, usize)> = (0..axis.along)
                    .map(|i| (case.reference[axis.at(*o, i, *j)], i))
                    .collect();
                column.sort_by(|a, b| a.0.total_cmp(&b.0));
                column
            });
        let sorted = sorted.collect();
        Self {
            case,
            axis,
            rms: probe.rms(),
            tolerance: probe.tolerance(),
            known_by,
            sorted,
        }
    }

    /// Whether the candidate's slice `i` is the reference's `j`.
    fn same(&self, i: usize, j: usize) -> bool {
        let spare = self.known_by.len() / 16;
        let mut wrong = 0;
        self.known_by.iter().all(|(o, k)| {
            let (c, r) = (
                self.case.candidate[self.axis.at(*o, i, *k)],
                self.case.reference[self.axis.at(*o, j, *k)],
            );
            wrong += usize::from(!close(r, c, self.rms, self.tolerance));
            wrong <= spare
        })
    }

    fn distance(&self, i: usize, j: usize) -> f64 {
        let one = |(o, k): &(usize, usize)| {
            let d = self.case.candidate[self.axis.at(*o, i, *k)]
                - self.case.reference[self.axis.at(*o, j, *k)];
            if d.is_finite() { d * d } else { 0.0 }
        };
        self.known_by.iter().map(one).sum()
    }

    /// The nearest slice of the reference that is the candidate's `i`, among those allowed.
    fn find(&self, i: usize, allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let step = self.known_by.len().div_ceil(2);
        let window = |(nth, column): (usize, &'_ Vec<(f64, usize)>)| {
            let (o, k) = self.known_by[nth * step];
            let value = self.case.candidate[self.axis.at(o, i, k)];
            // The tolerance is relative to the reference's value, which may be the larger.
            let reach = 1.25 * self.tolerance * value.abs().max(self.rms);
            let from = column.partition_point(|(v, _)| *v < value - reach);
            let to = column.partition_point(|(v, _)| *v <= value + reach);
            (to.saturating_sub(from), nth, from)
        };
        let (count, nth, from) = self
            .sorted
            .iter()
            .enumerate()
            .map(window)
            .min_by_key(|(count, ..)| *count)?;
        let near = self.sorted[nth][from..from + count.min(LOOKED)]
            .iter()
            .map(|(_, j)| *j);
        near.filter(|j| allowed(*j) && self.same(i, *j))
            .min_by(|a, b| {
                self.distance(i, *a)
                    .total_cmp(&self.distance(i, *b))
                    .then(a.cmp(b))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Order};
    use crate::{
        Examination,
        places::testing::bf16_noise,
        testing::{Recorded, examine_bf16, examine_pair, normal, proven},
    };
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    fn reordered(
        x: &[f64],
        dims: &[usize],
        axis: usize,
        source: impl Fn(usize) -> usize,
    ) -> Vec<f64> {
        let axis = Axis::of(dims, axis);
        (0..x.len())
            .map(|at| x[super::moved(axis, at, &source)])
            .collect()
    }

    fn pattern(found: &Examination) -> (&'static str, String) {
        let kind = proven(found).unwrap_or("-");
        (
            kind,
            found
                .found
                .first()
                .and_then(|found| {
                    found.explanation.details.json()["pattern"]
                        .as_str()
                        .map(str::to_owned)
                })
                .unwrap_or_else(|| "-".to_owned()),
        )
    }

    #[test]
    fn the_layouts_of_rope_are_named() {
        let dims = [2, 4, 11, 12];
        let x = normal(1056, 1);
        for (rows, columns, name) in [(2, 6, "half_to_interleaved"), (6, 2, "interleaved_to_half")]
        {
            let order = Order::Grouped {
                rows,
                columns,
                block: 1,
            };
            let found = examine_pair(
                &dims,
                x.clone(),
                reordered(&x, &dims, 3, |i| order.source(i)),
            );
            assert_eq!(pattern(&found), ("permuted", name.to_owned()));
            // The same in each head of a flattened dimension, and in the rows of a weight.
            let found = examine_pair(
                &[22, 48],
                x.clone(),
                reordered(&x, &[22, 48], 1, |i| order.source(i)),
            );
            assert_eq!(pattern(&found), ("permuted", name.to_owned()));
            let found = examine_pair(
                &[48, 22],
                x.clone(),
                reordered(&x, &[48, 22], 0, |i| order.source(i)),
            );
            assert_eq!(pattern(&found), ("permuted", name.to_owned()));
        }
    }

    #[test]
    fn heads_in_another_order_are_found_also_under_the_noise_of_bf16() {
        let dims = [2, 6, 11, 12];
        let x = normal(1584, 2);
        let candidate = reordered(&x, &dims, 1, |i| [4, 0, 2, 5, 1, 3][i]);
        let found = examine_pair(&dims, x.clone(), candidate.clone());
        assert_eq!(pattern(&found), ("permuted", "arbitrary".to_owned()));
        assert_eq!(
            found.found[0].explanation.details.json()["order"],
            serde_json::json!([4, 0, 2, 5, 1, 3])
        );
        let run = [Recorded {
            name: "x",
            dims: dims.to_vec(),
            reference: x,
            candidate: bf16_noise(&candidate, 2e-3, 3),
        }];
        assert_eq!(
            pattern(&examine_bf16(&run, "x")),
            ("permuted", "arbitrary".to_owned())
        );
    }

    #[test]
    fn two_heads_of_a_flattened_dimension_that_changed_places_are_a_swap_of_blocks() {
        let x = normal(22 * 60, 4);
        let candidate = reordered(&x, &[22, 60], 1, |i| [0, 3, 2, 1, 4][i / 12] * 12 + i % 12);
        let found = examine_pair(&[22, 60], x, candidate);
        assert_eq!(pattern(&found), ("permuted", "block_swap".to_owned()));
        assert_eq!(found.found[0].explanation.details.json()["block"], 12);
    }

    #[test]
    fn repeated_heads_are_told_from_tiled_ones() {
        let head = normal(2 * 5 * 8, 5);
        let heads = |which: [usize; 4]| {
            which
                .iter()
                .flat_map(|kv| head[kv * 40..kv * 40 + 40].to_vec())
                .collect::<Vec<_>>()
        };
        let found = examine_pair(&[4, 5, 8], heads([0, 0, 1, 1]), heads([0, 1, 0, 1]));
        assert_eq!(pattern(&found), ("permuted", "group_major".to_owned()));
    }

    #[test]
    fn packed_q_k_v_and_zigzag_are_named() {
        let x = normal(64 * 24, 6);
        for (order, name) in [
            (
                Order::Packed {
                    groups: 4,
                    q: 2,
                    block: 4,
                    made: true,
                },
                "group_major",
            ),
            (
                Order::Packed {
                    groups: 4,
                    q: 2,
                    block: 4,
                    made: false,
                },
                "group_major",
            ),
            (
                Order::Zigzag {
                    length: 64,
                    ranks: 4,
                    made: true,
                },
                "zigzag",
            ),
            (
                Order::Zigzag {
                    length: 64,
                    ranks: 4,
                    made: false,
                },
                "zigzag",
            ),
            (
                Order::Reverse {
                    period: 64,
                    block: 1,
                },
                "reverse",
            ),
        ] {
            let found = examine_pair(
                &[64, 24],
                x.clone(),
                reordered(&x, &[64, 24], 0, |i| order.source(i)),
            );
            assert_eq!(pattern(&found), ("permuted", name.to_owned()), "{order:?}");
        }
    }

    #[test]
    fn values_that_only_have_the_same_distribution_are_not_permuted() {
        for dims in [
            vec![256],
            vec![64, 1],
            vec![16, 16],
            vec![4, 8, 8],
            vec![128, 2],
        ] {
            let count = dims.iter().product();
            let found = examine_pair(&dims, normal(count, 1), normal(count, 2));
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::Permuted),
                "{dims:?}"
            );
            let run = [Recorded {
                name: "x",
                dims: dims.clone(),
                reference: normal(count, 1),
                candidate: normal(count, 2),
            }];
            assert!(
                examine_bf16(&run, "x")
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::Permuted),
                "{dims:?}"
            );
        }
    }

    #[test]
    fn a_shuffled_vector_is_not_matched_value_by_value() {
        // Any vector can be sorted into another of its distribution: with as many numbers as values it proves nothing.
        let x = normal(500, 7);
        let candidate = (0..500).map(|i| x[i * 7 % 500]).collect();
        let found = examine_pair(&[500], x, candidate);
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Permuted
                    || found.explanation.freedom < 3)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_order_of_any_axis_is_found(dims in proptest::collection::vec(3usize..8, 2..5), axis in 0usize..4, seed in 1u64..1000) {
            let axis = axis % dims.len();
            let count: usize = dims.iter().product();
            prop_assume!(count / dims[axis] >= 5);
            let mut order: Vec<usize> = (0..dims[axis]).collect();
            order.sort_by_key(|i| super::hash(*i as u64 * 7919 + seed));
            prop_assume!(order.iter().enumerate().any(|(i, from)| i != *from));
            let x = normal(count, seed);
            let found = examine_pair(&dims, x.clone(), reordered(&x, &dims, axis, |i| order[i]));
            prop_assert!(matches!(proven(&found), Some("permuted" | "shifted" | "transposed")), "{order:?}");
        }
    }
}
