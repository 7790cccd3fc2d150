//! Own or inherited, judged again where the op is known: size alone cannot tell a second fault from the echo of the first.

use super::{Case, Scene, flow::Flow};
use crate::{
    noise::Measures,
    report::Report,
    verdict::{Origin, Verdict},
};

/// How far beyond its own rounding an op must be, when the difference of the pair itself is within what came from upstream, to be looked
/// at as a fault.
const FAR: f64 = 4.0;

pub(super) fn judge_again(scene: &Scene<'_>, report: &mut Report, flows: &[Option<Flow>]) {
    for (at, flow) in flows.iter().enumerate() {
        let diverged = |at: &usize| report.pairs[*at].verdict == Verdict::Diverged;
        let before = (0..at).any(|before| diverged(&before) && !report.pairs[before].parameter);
        // A NaN among the inputs makes what follows NaN, wherever a kernel spreads it.
        let by_nan = nonfinite(report, at) && flow.as_ref().is_some_and(|flow| flow.inputs.iter().any(|input| nonfinite(report, *input)));
        let by_inputs = flow.as_ref().is_some_and(|flow| flow.inputs.iter().any(diverged));
        let (verdict, origin) = (report.pairs[at].verdict, report.pairs[at].origin);
        let (verdict, origin) = match (verdict, flow) {
            (Verdict::Diverged, Some(_)) if by_nan => (Verdict::Diverged, Some(Origin::Inherited)),
            // What follows from inputs that agree is rounding that the op amplified.
            (Verdict::Diverged, Some(flow)) if flow.follows() && flow.confirmed.is_none() => match by_inputs {
                true => (Verdict::Diverged, Some(Origin::Inherited)),
                false if nonfinite(report, at) => (verdict, origin),
                false => (Verdict::Rounding, None),
            },
            (Verdict::Diverged, Some(_)) => (Verdict::Diverged, Some(Origin::Own)),
            // Nothing is left to inherit from.
            (Verdict::Diverged, None) if !before => (Verdict::Diverged, Some(Origin::Own)),
            // Inputs that differ and an output that agrees: one difference undoes the other.
            (Verdict::Rounding, Some(flow)) if !by_inputs && is_fault(scene, at, flow) => (Verdict::Diverged, Some(Origin::Own)),
            (Verdict::Diverged, None) if is_second(scene, at, flows) => (Verdict::Diverged, Some(Origin::Own)),
            (Verdict::Rounding, None) if is_coarser(scene, at) => (Verdict::Diverged, Some(Origin::Own)),
            (verdict, _) => (verdict, origin),
        };
        (report.pairs[at].verdict, report.pairs[at].origin) = (verdict, origin);
    }
}

/// How much an op whose formula is not known may amplify the error it is given.
const PASSED_ON: f64 = 2.0;

/// What a pair whose op is not known may have been given by its inputs: the error of the nearest tensor before it whose op is known, when
/// something diverged before. Products with weights pass on about what they are given.
pub(super) fn given(scene: &Scene<'_>, at: usize, known: impl Fn(usize) -> bool) -> Option<Measures> {
    let entries = scene.entries();
    if entries[at].parameter || !entries[..at].iter().any(|entry| entry.verdict == Verdict::Diverged && !entry.parameter) {
        return None;
    }
    const REACH: usize = 8;
    let near = (at.saturating_sub(REACH)..at).rev().find(|before| !entries[*before].parameter && known(*before))?;
    Some(entries[near].measures.map(|measure| PASSED_ON * measure))
}

/// Kinds that an error from upstream does not imitate: values in other places, or on a grid.
const UNMISTAKABLE: [&str; 9] =
    ["permuted", "transposed", "swapped", "wrong_tensor", "shifted", "rounded", "clipped", "quantized", "negated"];

/// A pair behind a divergence, of an op that is not known, is a fault of its own when a cause leaves what its inputs gave it, and no more.
fn is_second(scene: &Scene<'_>, at: usize, flows: &[Option<Flow>]) -> bool {
    let Some(given) = given(scene, at, |at| flows[at].is_some()) else { return false };
    let examination = super::examine_pair(scene, at, None, Some(given));
    examination.found.first().is_some_and(|best| {
        let kind = best.explanation.kind;
        let beyond = scene.entries()[at].measures[0] > given[0] || kind == "rounded";
        beyond && best.score.proven && UNMISTAKABLE.contains(&kind)
    })
}

/// One tensor on a coarser dtype's grid while those before it are not: computed in less precision, even where the difference is no more than
/// what came from upstream. A whole run on that grid was only recorded in a wider dtype.
fn is_coarser(scene: &Scene<'_>, at: usize) -> bool {
    let coarse = |at: usize| {
        let loaded = scene.load(at)?;
        let found = super::values::ROUNDED.examine(&Case::new(scene, at, &loaded)).ok()?;
        let found = found.into_iter().next()?;
        (found.details["side"] == "candidate").then(|| found.details["dtype"].clone())
    };
    let Some(dtype) = coarse(at) else { return false };
    let mut before = (0..at).rev().filter(|before| !scene.entries()[*before].parameter && scene.entries()[*before].dims.len() > 1);
    before.next().is_some_and(|before| coarse(before) != Some(dtype))
}

fn nonfinite(report: &Report, at: usize) -> bool {
    report.pairs[at].totals.as_ref().is_some_and(|totals| totals.nonfinite_differing > 0)
}

/// A fault below the noise needs a name: another formula that the candidate follows, or a cause that explains what is far beyond the op's
/// own rounding.
fn is_fault(scene: &Scene<'_>, at: usize, flow: &Flow) -> bool {
    if flow.confirmed.is_some() {
        return true;
    }
    let far = (0..2).any(|measure| flow.off[measure] > FAR * flow.bound[measure]);
    far && super::examine_pair(scene, at, Some(flow), None)
        .found
        .first()
        .is_some_and(|best| best.score.proven && best.score.explained > Some(0.9))
}
