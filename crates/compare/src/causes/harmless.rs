//! Different here, the same again downstream: co-permuted channels, a constant rope offset that cancels in `q·k`, folded weights.
//!
//! A divergence is harmless when its cause is one that later ops can undo, and everything that was computed from it agrees. What was computed
//! from it is known where formulas were found, and some op must be known to take it; beyond that every tensor recorded after the last diverged one must agree,
//! down to the end of the run, so that no path is left uncovered.

use super::flow::Flow;
use crate::{
    report::{PairReport, Report},
    verdict::{Origin, Verdict},
};

/// Kinds that lose nothing: another op can turn them back.
const UNDONE: [&str; 9] = ["permuted", "transposed", "rotated", "swapped", "channel_scale", "scale", "negated", "shifted", "offset"];

/// A cause explains everything.
const ALL: f64 = 0.99;

pub(super) fn mark(report: &mut Report, flows: &[Option<Flow>]) {
    let computed: Vec<usize> = (0..report.pairs.len()).filter(|at| !report.pairs[*at].parameter).collect();
    let diverged: Vec<usize> = computed.iter().copied().filter(|at| report.pairs[*at].verdict == Verdict::Diverged).collect();
    let groups = groups(report, flows, &diverged);
    let mut all_harmless = true;
    for (nth, group) in groups.iter().enumerate() {
        let last_group = nth + 1 == groups.len();
        match agrees_at(report, flows, group, last_group) {
            Some(name) => group.iter().for_each(|at| make_harmless(&mut report.pairs[*at], &name)),
            None => all_harmless = false,
        }
    }
    // Weights that differ and lead to nothing else.
    if let (true, Some(&last)) = (all_harmless, computed.last()) {
        let name = report.pairs[last].name.clone();
        for pair in report.pairs.iter_mut().filter(|pair| pair.parameter && pair.verdict == Verdict::Diverged) {
            if is_undone(pair) {
                make_harmless(pair, &name);
            }
        }
    }
}

/// Diverged pairs up to a tensor that is computed from them and agrees; the next one begins anew when it is its own.
fn groups(report: &Report, flows: &[Option<Flow>], diverged: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &at in diverged {
        let anew =
            groups.last().is_none_or(|group| report.pairs[at].origin == Some(Origin::Own) && consumer(report, flows, group, at).is_some());
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
        let takes = |flow: &Flow| flow.inputs.iter().any(|input| group.contains(input));
        report.pairs[*at].verdict.agrees() && flows[*at].as_ref().is_some_and(takes)
    })
}

/// Where a group agrees again, when it is harmless.
fn agrees_at(report: &Report, flows: &[Option<Flow>], group: &[usize], last_group: bool) -> Option<String> {
    let mut own = group.iter().map(|at| &report.pairs[*at]).filter(|pair| pair.origin == Some(Origin::Own)).peekable();
    // What is only inherited comes from weights.
    let weights = || report.pairs.iter().filter(|pair| pair.parameter && pair.verdict == Verdict::Diverged);
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
    // Without any op that is known to take it or to make it, nothing says that what comes after depends on it at all.
    let taken = |flow: &Flow| flow.inputs.iter().any(|input| group.contains(input));
    if !flows.iter().flatten().any(taken) && group.iter().all(|at| flows[*at].is_none()) {
        return None;
    }
    let mut after = report.pairs[last + 1..].iter().filter(|pair| !pair.parameter).peekable();
    let next = after.peek()?.name.clone();
    (last_group && after.all(|pair| pair.verdict.agrees())).then_some(next)
}

fn is_undone(pair: &PairReport) -> bool {
    let best = pair.causes.first();
    best.is_some_and(|cause| UNDONE.contains(&cause.kind) && cause.explained.is_some_and(|explained| explained >= ALL))
}

fn make_harmless(pair: &mut PairReport, agrees_at: &str) {
    pair.verdict = Verdict::Harmless;
    pair.origin = None;
    pair.agrees_at = Some(agrees_at.to_owned());
}
