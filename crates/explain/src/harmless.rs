//! Different here, the same again downstream: co-permuted channels, a constant rope offset that cancels in `q·k`, folded weights.
//!
//! A divergence is harmless when its cause is one that later ops can undo, and everything that was computed from it agrees. What was computed
//! from it is known where formulas were found, and some op must be known to take it; beyond that every tensor recorded after the last diverged one must agree,
//! down to the end of the run, so that no path is left uncovered.
//!
//! Undone is not drowned. A wrong attention whose output is small beside the residual stream it is added to leaves a stream that agrees within
//! bf16's rounding, and is wrong all the same. So every diverged tensor on the way must still be the reference's by such a cause, and a sum
//! that carries the whole difference on has undone nothing. And a divergence further down whose op is not known may be its doing.

use super::flow::Flow;
use twinscope_compare::{
    noise,
    report::{Cause, PairReport, Report},
    verdict::{Origin, Verdict},
};

/// Kinds that lose nothing: another op can turn them back. A bias that is missing is none of them: attention cancels that of the keys, and it is
/// missing all the same.
const UNDONE: [&str; 8] = [
    "permuted",
    "transposed",
    "rotated",
    "swapped",
    "channel_scale",
    "scale",
    "negated",
    "shifted",
];

/// A cause explains everything.
const ALL: f64 = 0.99;

/// A difference that keeps this share of its size was passed on, not undone.
const PASSED_ON: f64 = 0.5;

/// Where no op is known to take what diverged, only tensors this far below the floor say that it was undone: a difference that is drowned
/// stays near it. Or those that are no further apart than what came before, or that have next to nothing of the difference: no stream is so
/// much larger than what is added to it.
const CALM: f64 = 0.25;
const AS_BEFORE: f64 = 2.0;
const NEXT_TO_NOTHING: f64 = 1e-4;

/// `examine` says why a pair differs that has no causes yet, because it inherited its difference.
pub(super) fn mark(
    report: &mut Report,
    flows: &[Option<Flow>],
    examine: impl Fn(usize) -> Vec<Cause>,
) {
    let computed: Vec<usize> = (0..report.pairs.len())
        .filter(|at| !report.pairs[*at].parameter)
        .collect();
    let diverged: Vec<usize> = computed
        .iter()
        .copied()
        .filter(|at| report.pairs[*at].verdict == Verdict::Diverged)
        .collect();
    let groups = groups(report, flows, &diverged);
    let mut all_harmless = true;
    for (nth, group) in groups.iter().enumerate() {
        let last_group = nth + 1 == groups.len();
        // What diverges later, made by an op that is not known, may be what this one does on a path that is not recorded.
        let uncovered = |at: &usize| {
            flows[*at].is_none()
                && report.pairs[*at].origin == Some(Origin::Own)
                && !is_undone(&report.pairs[*at])
        };
        if groups[nth + 1..].iter().flatten().any(uncovered) {
            all_harmless = false;
            continue;
        }
        let agrees = agrees_at(report, flows, group, last_group, &examine)
            .filter(|_| all_undone(report, group, &examine));
        match agrees {
            Some(name) => group
                .iter()
                .for_each(|at| make_harmless(&mut report.pairs[*at], &name)),
            None => all_harmless = false,
        }
    }
    // Weights that differ and lead to nothing else. One weight undoes another: of one alone that no known op takes, nothing says that it was
    // used at all by what is recorded (a weight after its update).
    if let (true, Some(&last)) = (all_harmless, computed.last()) {
        let name = report.pairs[last].name.clone();
        let is_wrong = |pair: &PairReport| pair.parameter && pair.verdict == Verdict::Diverged;
        let wrong: Vec<usize> = (0..report.pairs.len())
            .filter(|at| is_wrong(&report.pairs[*at]))
            .collect();
        let taken = |at: usize| flows.iter().flatten().any(|flow| flow.inputs.contains(&at));
        for &at in wrong.iter().filter(|at| wrong.len() > 1 || taken(**at)) {
            if is_undone(&report.pairs[at]) {
                make_harmless(&mut report.pairs[at], &name);
            }
        }
    }
}

/// Diverged pairs up to a tensor that is computed from them and agrees; the next one begins anew when it is its own.
fn groups(report: &Report, flows: &[Option<Flow>], diverged: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &at in diverged {
        let anew = groups.last().is_none_or(|group| {
            report.pairs[at].origin == Some(Origin::Own)
                && consumer(report, flows, group, at).is_some()
        });
        match groups.last_mut() {
            Some(group) if !anew => group.push(at),
            _ => groups.push(vec![at]),
        }
    }
    groups
}

/// The first pair before `end` that is computed from the last of a group and agrees.
fn consumer(report: &Report, flows: &[Option<Flow>], group: &[usize], end: usize) -> Option<usize> {
    let last = *group.last()?;
    (last + 1..end).find(|at| {
        let takes = |flow: &Flow| {
            flow.inputs.iter().any(|input| group.contains(input))
                && !passes_on(report, flow, group, *at)
        };
        report.pairs[*at].verdict.agrees() && flows[*at].as_ref().is_some_and(takes)
    })
}

/// Whether a sum differs by as much as what it adds up: then it is only large beside it.
fn passes_on(report: &Report, flow: &Flow, group: &[usize], at: usize) -> bool {
    let size = |at: usize| {
        report.pairs[at]
            .totals
            .as_ref()
            .and_then(|totals| totals.mse)
            .map(f64::sqrt)
    };
    let of_terms = flow
        .inputs
        .iter()
        .filter(|input| group.contains(input))
        .filter_map(|input| size(*input))
        .fold(0.0, f64::max);
    flow.formula.adds() && size(at).is_some_and(|size| size >= PASSED_ON * of_terms)
}

/// Every tensor on the way is the reference's by a cause that can be undone, also those that inherited it.
fn all_undone(report: &Report, group: &[usize], examine: impl Fn(usize) -> Vec<Cause>) -> bool {
    let causes: Vec<Vec<Cause>> = group
        .iter()
        .map(|at| &report.pairs[*at])
        .zip(group)
        .map(|(pair, at)| {
            if pair.causes.is_empty() {
                examine(*at)
            } else {
                pair.causes.clone()
            }
        })
        .collect();
    let best: Vec<&Cause> = causes.iter().filter_map(|causes| causes.first()).collect();
    best.len() == group.len()
        && best
            .iter()
            .all(|cause| undoes(cause) && (cause.kind != "rotated" || turned_alike(cause, &best)))
}

/// Of all rotations only a constant offset cancels, and only where queries and keys have the same.
fn turned_alike(cause: &Cause, group: &[&Cause]) -> bool {
    let offset = |cause: &Cause| {
        (cause.kind == "rotated" && cause.details["parameter"] == "offset")
            .then(|| cause.details["value"].as_f64())
            .flatten()
    };
    let same = |own: f64| {
        group
            .iter()
            .filter_map(|cause| offset(cause))
            .filter(|other| (other - own).abs() < 0.01)
            .count()
            > 1
    };
    offset(cause).is_some_and(same)
}

/// Where a group agrees again, when it is harmless.
fn agrees_at(
    report: &Report,
    flows: &[Option<Flow>],
    group: &[usize],
    last_group: bool,
    examine: &impl Fn(usize) -> Vec<Cause>,
) -> Option<String> {
    let mut own = group
        .iter()
        .map(|at| &report.pairs[*at])
        .filter(|pair| pair.origin == Some(Origin::Own))
        .peekable();
    // What is only inherited comes from weights.
    let weights = || {
        report
            .pairs
            .iter()
            .filter(|pair| pair.parameter && pair.verdict == Verdict::Diverged)
    };
    let undone = match own.peek() {
        Some(_) => own.all(is_undone),
        None => weights().next().is_some() && weights().all(is_undone),
    };
    if !undone {
        return None;
    }
    let last = *group.last()?;
    if let Some(at) = consumer(report, flows, group, report.pairs.len()) {
        return Some(report.pairs[at].name.clone());
    }
    let taken = |flow: &Flow| flow.inputs.iter().any(|input| group.contains(input));
    let drowned = |at: usize| {
        flows[at]
            .as_ref()
            .is_some_and(|flow| taken(flow) && passes_on(report, flow, group, at))
    };
    if (last + 1..report.pairs.len()).any(drowned) {
        return None;
    }
    // Without any op that is known to take it or to make it, nothing says that what comes after depends on it at all. Of ids and what belongs to
    // them, in one order, the values themselves say it.
    if !flows.iter().flatten().any(taken)
        && group.iter().all(|at| flows[*at].is_none())
        && !listed_alike(report, group, examine)
    {
        return None;
    }
    let first = *group.first()?;
    let computed = |pair: &&PairReport| !pair.parameter;
    let before = report.pairs[..first]
        .iter()
        .filter(computed)
        .filter_map(whole)
        .fold(0.0, f64::max);
    // The gentlest of them: what is left of any must be next to nothing.
    let difference = group
        .iter()
        .filter_map(|at| whole(&report.pairs[*at]))
        .fold(f64::INFINITY, f64::min);
    // What came before, and, once the first tensors after it have shown that it is undone, what rounding has grown to since.
    let mut level = AS_BEFORE * before;
    let calm = |pair: &PairReport| {
        let floor = noise::floor(pair.judged_by, 0).map_or(0.0, |floor| floor[0]);
        let most = (CALM * floor).max(level).max(NEXT_TO_NOTHING * difference);
        level = level.max(
            whole(pair)
                .filter(|whole| *whole <= most)
                .map_or(0.0, |whole| GROWS * whole),
        );
        pair.verdict.agrees() && whole(pair).is_none_or(|whole| whole <= most)
    };
    let mut after = report.pairs[last + 1..].iter().filter(computed).peekable();
    let next = after.peek()?.name.clone();
    (last_group && after.all(calm)).then_some(next)
}

/// Rounding that is passed on grows by no more than this from one tensor to the next.
const GROWS: f64 = 1.5;

/// Whether a group is ids and what belongs to them, all of one shape and in one other order: a sum over them is the same.
fn listed_alike(report: &Report, group: &[usize], examine: &impl Fn(usize) -> Vec<Cause>) -> bool {
    let Some((&first, others)) = group.split_first() else {
        return false;
    };
    let [ids, _] = report.pairs[first].dtypes;
    let cause = |at: usize| {
        let pair = &report.pairs[at];
        let causes = if pair.causes.is_empty() {
            examine(at)
        } else {
            pair.causes.clone()
        };
        causes
            .into_iter()
            .next()
            .filter(|cause| cause.kind == "permuted")
    };
    let last = |cause: &Cause| {
        let axes = report.pairs[first]
            .shape
            .as_ref()
            .map_or(0, |shape| shape.dims().len());
        cause.details["axis"]
            .as_u64()
            .is_some_and(|axis| axis as usize + 1 == axes)
    };
    let Some(of_ids) =
        cause(first).filter(|cause| noise::unit_roundoff(ids).is_none() && last(cause))
    else {
        return false;
    };
    let alike = |at: &usize| {
        let same = |cause: Cause| {
            let alike = cause.details["pattern"] == of_ids.details["pattern"]
                && cause.details["axis"] == of_ids.details["axis"];
            alike || cause.details["ids"] == report.pairs[first].name.as_str()
        };
        report.pairs[*at].shape == report.pairs[first].shape && cause(*at).is_some_and(same)
    };
    !others.is_empty() && others.iter().all(alike)
}

fn whole(pair: &PairReport) -> Option<f64> {
    pair.totals.as_ref().and_then(|totals| totals.rel_l2)
}

fn is_undone(pair: &PairReport) -> bool {
    pair.causes.first().is_some_and(undoes)
}

fn undoes(cause: &Cause) -> bool {
    UNDONE.contains(&cause.kind) && cause.explained.is_some_and(|explained| explained >= ALL)
}

fn make_harmless(pair: &mut PairReport, agrees_at: &str) {
    pair.verdict = Verdict::Harmless;
    pair.origin = None;
    pair.agrees_at = Some(agrees_at.to_owned());
}
