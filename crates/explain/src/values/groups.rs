//! Elements that share their index along some axes: what one number per channel, per row or per head is fitted to.

use super::sampling::{share, spread};
use crate::Case;
use twinscope_compare::noise::unit_roundoff;

/// The kept axes give the group of an element, row-major among themselves; along the others it is a member of that group.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    kept: Vec<usize>,
    runs: Vec<Run>,
    /// How many groups there are, and how many elements each has.
    pub(super) count: usize,
    pub(super) size: usize,
}

/// Neighbouring axes that are all kept or all not: one axis to walk along.
#[derive(Clone, Copy, Debug)]
struct Run {
    size: usize,
    stride: usize,
    /// What one step adds to the group; 0 along axes that are not kept.
    key: usize,
}

impl Groups {
    pub(super) fn of(dims: &[usize], kept: &[usize]) -> Self {
        let (mut runs, mut stride, mut key) = (Vec::<Run>::new(), 1, 1);
        for (axis, &size) in dims
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, size)| **size != 1)
        {
            let keeps = kept.contains(&axis);
            match runs.last_mut() {
                Some(run) if (run.key > 0) == keeps => run.size *= size,
                _ => runs.push(Run {
                    size,
                    stride,
                    key: if keeps { key } else { 0 },
                }),
            }
            stride *= size;
            key *= if keeps { size } else { 1 };
        }
        runs.reverse();
        Self {
            kept: kept.to_vec(),
            runs,
            count: key,
            size: stride / key.max(1),
        }
    }

    pub(super) fn kept(&self) -> &[usize] {
        &self.kept
    }

    /// `dim 2`, `dims 1 and 3`.
    pub(super) fn said(&self) -> String {
        let (last, others) = self.kept.split_last().expect("groups keep an axis");
        if others.is_empty() {
            return format!("dim {last}");
        }
        let others: Vec<String> = others.iter().map(usize::to_string).collect();
        format!("dims {} and {last}", others.join(", "))
    }

    /// Calls with every flat index, ascending, and its group.
    pub(super) fn visit(&self, mut call: impl FnMut(usize, usize)) {
        let Some((inner, outer)) = self.runs.split_last() else {
            call(0, 0);
            return;
        };
        let mut index = vec![0; outer.len()];
        let (mut flat, mut base) = (0, 0);
        for _ in 0..outer.iter().map(|run| run.size).product() {
            let mut key = base;
            for _ in 0..inner.size {
                call(flat, key);
                flat += 1;
                key += inner.key;
            }
            for (index, run) in index.iter_mut().zip(outer).rev() {
                *index += 1;
                base += run.key;
                if *index < run.size {
                    break;
                }
                base -= run.key * run.size;
                *index = 0;
            }
        }
    }

    /// The flat index of the first element of a group.
    pub(super) fn start(&self, group: usize) -> usize {
        let kept = self.runs.iter().filter(|run| run.key > 0);
        kept.map(|run| group / run.key % run.size * run.stride)
            .sum()
    }

    /// How far the `member`-th element of any group is from its start.
    pub(super) fn step(&self, mut member: usize) -> usize {
        let mut flat = 0;
        for run in self.runs.iter().rev().filter(|run| run.key == 0) {
            flat += member % run.size * run.stride;
            member /= run.size;
        }
        flat
    }

    /// A few elements of a few groups.
    pub(super) fn sample(&self) -> Vec<Vec<usize>> {
        let steps: Vec<usize> = spread(self.size, SAMPLED_MEMBERS)
            .map(|member| self.step(member))
            .collect();
        spread(self.count, SAMPLED_GROUPS)
            .map(|group| steps.iter().map(|step| self.start(group) + step).collect())
            .collect()
    }
}

const SAMPLED_GROUPS: usize = 32;
const SAMPLED_MEMBERS: usize = 32;

/// A group must have so many elements: half are held back, and the rest fit its number.
const LEAST_MEMBERS: usize = 5;
/// Where the difference is so far beyond rounding that two numbers are not the same by chance, two are enough: a bias for each image of a batch.
const LEAST_WITHOUT_NOISE: usize = 2;
/// Up to this share of the squared difference may be rounding then.
const NO_NOISE: f64 = 1e-4;

/// Every way to keep one axis, two, all but one and all but two whose groups are large enough to fit a number to each.
pub(super) fn groupings(case: &Case<'_>) -> Vec<Groups> {
    let axes: Vec<usize> = case.axes().collect();
    let mut sets = Vec::new();
    for (at, &one) in axes.iter().enumerate() {
        sets.push(vec![one]);
        sets.push(axes.iter().copied().filter(|axis| *axis != one).collect());
        for &two in &axes[at + 1..] {
            sets.push(vec![one, two]);
            sets.push(
                axes.iter()
                    .copied()
                    .filter(|axis| *axis != one && *axis != two)
                    .collect::<Vec<_>>(),
            );
        }
    }
    sets.retain(|set| !set.is_empty() && set.len() < axes.len());
    sets.sort();
    sets.dedup();
    let calm = case
        .dtypes
        .iter()
        .all(|dtype| unit_roundoff(*dtype).is_some())
        && rounding_share(case) <= NO_NOISE;
    // Of several axes a number for every two values would be half of them.
    let least = |set: &[usize]| {
        if calm && set.len() == 1 {
            LEAST_WITHOUT_NOISE
        } else {
            LEAST_MEMBERS
        }
    };
    let mut groupings: Vec<Groups> = sets
        .iter()
        .map(|set| Groups::of(case.dims, set))
        .filter(|groups| groups.size >= least(groups.kept()))
        .collect();
    groupings.sort_by_key(|groups| groups.count);
    groupings
}

/// What one group's fit leaves and what there was: `(Σ(c-p)², min(Σ(c-r)², Σc²))`.
pub(super) type Left = (f64, f64);

/// The grouping worth fitting: the first that explains nearly as much as any does on a sample, which is the one with the fewest groups. Err
/// with the most that any explains.
pub(super) fn promising(
    case: &Case<'_>,
    fit: impl Fn(&[(f64, f64)]) -> Left,
) -> Result<Groups, Option<f64>> {
    let promises: Vec<(Groups, f64)> = groupings(case)
        .into_iter()
        .map(|groups| (promise(case, &groups, &fit), groups))
        .map(|(p, g)| (g, p))
        .collect();
    let best = promises
        .iter()
        .map(|(_, promise)| *promise)
        .reduce(f64::max)
        .ok_or(None)?;
    if best < LEAST_PROMISE {
        return Err(Some(best.max(0.0)));
    }
    let enough = |left: f64| left <= f64::max(NEARLY * (1.0 - best), rounding_share(case));
    Ok(promises
        .into_iter()
        .find(|(_, promise)| enough(1.0 - promise))
        .expect("the best is enough")
        .0)
}

/// Below, a sample rules a grouping out.
const LEAST_PROMISE: f64 = 0.4;
/// Finer groups always leave a little less; that much less is no reason to prefer them.
const NEARLY: f64 = 3.0;

fn promise(case: &Case<'_>, groups: &Groups, fit: impl Fn(&[(f64, f64)]) -> Left) -> f64 {
    let (mut left, mut whole) = (0.0, 0.0);
    for flats in groups.sample() {
        let pairs: Vec<(f64, f64)> = flats
            .iter()
            .map(|flat| (case.reference[*flat], case.candidate[*flat]))
            .collect();
        let pairs: Vec<(f64, f64)> = pairs
            .into_iter()
            .filter(|(r, c)| r.is_finite() && c.is_finite())
            .collect();
        if pairs.len() < 2 {
            continue;
        }
        let (group_left, group_whole) = fit(&pairs);
        // One number was fitted to so many.
        left += group_left * pairs.len() as f64 / (pairs.len() - 1) as f64;
        whole += group_whole;
    }
    // Squares of f64 can be beyond f64: what cannot be told promises nothing.
    Some(share(left, whole))
        .filter(|share| !share.is_nan())
        .unwrap_or(f64::NEG_INFINITY)
}

/// The share of the difference that rounding is.
fn rounding_share(case: &Case<'_>) -> f64 {
    let (mut difference, mut reference) = (0.0, 0.0);
    for flat in spread(case.reference.len(), 1 << 12) {
        let (r, c) = (case.reference[flat], case.candidate[flat]);
        if r.is_finite() && c.is_finite() {
            difference += (c - r) * (c - r);
            reference += r * r;
        }
    }
    let noise = case.noise[0] * case.noise[0] * reference;
    if difference > 0.0 {
        (noise / difference).min(0.1)
    } else {
        0.0
    }
}

/// What `explain` says when no grouping is worth fitting.
pub(super) fn refusal(best: Option<f64>, one: &str) -> String {
    match best {
        None => format!("too few elements for {one}"),
        Some(best) => format!("{one} explains {:.0} % of a sample", 100.0 * best),
    }
}

#[cfg(test)]
mod tests {
    use super::Groups;
    use crate::testing::{examine_noisy, examine_pair, normal, proven};
    use proptest::prelude::*;

    #[test]
    fn two_rows_tell_a_bias_and_a_weight_where_nothing_is_rounded() {
        let (reference, bias) = (normal(2 * 96, 1), normal(96, 2));
        let with = |f: fn(f64, f64) -> f64| -> Vec<f64> {
            reference
                .iter()
                .enumerate()
                .map(|(at, r)| f(*r, bias[at % 96]))
                .collect()
        };
        assert_eq!(
            proven(&examine_pair(
                &[2, 96],
                reference.clone(),
                with(|r, b| r + 0.3 * b)
            )),
            Some("offset")
        );
        assert_eq!(
            proven(&examine_pair(
                &[2, 96],
                reference.clone(),
                with(|r, b| r * (1.0 + 0.3 * b))
            )),
            Some("channel_scale")
        );
        assert_eq!(
            proven(&examine_pair(
                &[2, 96],
                reference.clone(),
                normal(2 * 96, 3)
            )),
            None,
            "other values"
        );
        assert_eq!(
            proven(&examine_noisy(
                &[2, 96],
                reference.clone(),
                with(|r, b| r + 0.02 * b)
            )),
            None,
            "nor beside rounding"
        );
    }

    proptest! {
        #[test]
        fn every_way_to_reach_an_element_agrees(dims in proptest::collection::vec(1usize..5, 1..6), chosen in proptest::collection::vec(any::<bool>(), 6)) {
            let kept: Vec<usize> = (0..dims.len()).filter(|axis| chosen[*axis]).collect();
            let groups = Groups::of(&dims, &kept);
            prop_assert_eq!(groups.count, kept.iter().map(|axis| dims[*axis]).product::<usize>());
            let mut members = vec![0; groups.count];
            let mut seen = 0;
            groups.visit(|flat, group| {
                let mut key = 0;
                let mut rest = flat;
                let index: Vec<usize> = dims.iter().rev().map(|dim| { let i = rest % dim; rest /= dim; i }).collect();
                for axis in &kept {
                    key = key * dims[*axis] + index[dims.len() - 1 - axis];
                }
                assert_eq!((flat, group), (seen, key));
                assert_eq!(groups.start(group) + groups.step(members[group]), flat);
                members[group] += 1;
                seen += 1;
            });
            prop_assert!(members.iter().all(|count| *count == groups.size));
        }
    }
}
