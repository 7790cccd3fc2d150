//! Own or inherited, judged again where the op is known: size alone cannot tell a second fault from the echo of the first.

use super::{Case, Scene, flow::Flow};
use std::collections::HashMap;
use twinscope_compare::{
    noise::{Measures, unit_roundoff},
    report::{PairReport, Report},
    verdict::{Origin, Verdict},
};
use twinscope_report::{CauseKind, Facts};
use twinscope_tensor::Side;

/// How far beyond its own rounding an op must be, when the difference of the pair itself is within what came from upstream, to be looked
/// at as a fault.
const FAR: f64 = 4.0;

pub(super) fn judge_again(scene: &Scene<'_>, report: &mut Report, flows: &[Option<Flow>]) {
    // The largest errors that turned out to be amplified rounding: what comes after was given them.
    let mut amplified: Measures = [0.0; 4];
    let mut budget = MOST_VALUES;
    let mut kinds: HashMap<usize, Option<CauseKind>> = HashMap::new();
    // Whether anything computed before diverged, of which this may be what follows.
    let mut before = false;
    for (at, flow) in flows.iter().enumerate() {
        before = before
            || at
                .checked_sub(1)
                .is_some_and(|last| is_given_on(&report.pairs[last]));
        // Known already, from what was computed next.
        if !report.pairs[at].causes.is_empty() {
            continue;
        }
        let diverged = |at: &usize| report.pairs[*at].verdict == Verdict::Diverged;
        // A NaN among the inputs makes what follows NaN, wherever a kernel spreads it.
        let by_nan = nonfinite(report, at)
            && flow.as_ref().is_some_and(|flow| {
                flow.inputs.iter().any(|input| nonfinite(report, *input))
                    && !is_wrong_elsewhere(scene, at, flow)
            });
        let just_before = |at: usize| {
            report.pairs[at.saturating_sub(IDS_BEFORE)..at]
                .iter()
                .any(is_given_on)
        };
        let by_inputs = flow
            .as_ref()
            .is_some_and(|flow| flow.inputs.iter().any(diverged));
        let (verdict, origin) = (report.pairs[at].verdict, report.pairs[at].origin);
        let (verdict, origin) = match (verdict, flow) {
            (Verdict::Diverged, Some(_)) if by_nan => (Verdict::Diverged, Some(Origin::Inherited)),
            // What follows from inputs that agree is rounding that the op amplified.
            (Verdict::Diverged, Some(flow)) if flow.follows() && flow.confirmed.is_none() => {
                match by_inputs {
                    true => (Verdict::Diverged, Some(Origin::Inherited)),
                    false if nonfinite(report, at) => (verdict, origin),
                    false if is_coarser(scene, at, Some(flow)) => {
                        (Verdict::Diverged, Some(Origin::Own))
                    }
                    false => (Verdict::Rounding, None),
                }
            }
            (Verdict::Diverged, Some(_)) => (Verdict::Diverged, Some(Origin::Own)),
            (Verdict::Diverged, None)
                if !before
                    && !nonfinite(report, at)
                    && is_given(&scene.entries()[at].measures, &amplified) =>
            {
                (Verdict::Rounding, None)
            }
            // Nothing is left to inherit from.
            (Verdict::Diverged, None) if !before => (Verdict::Diverged, Some(Origin::Own)),
            // Whole numbers are chosen by what was computed just before.
            (Verdict::Diverged, None)
                if is_whole(scene, at)
                    && scene.entries()[at].inputs.is_none()
                    && just_before(at) =>
            {
                (Verdict::Diverged, Some(Origin::Inherited))
            }
            (Verdict::Diverged, None) if by_ids(scene, report, at) => {
                (Verdict::Diverged, Some(Origin::Inherited))
            }
            // Inputs that differ and an output that agrees: one difference undoes the other.
            (Verdict::Rounding, Some(flow)) if !by_inputs && is_fault(scene, at, flow) => {
                (Verdict::Diverged, Some(Origin::Own))
            }
            (Verdict::Diverged, None) if is_second(scene, at, flows, &mut budget, &mut kinds) => {
                (Verdict::Diverged, Some(Origin::Own))
            }
            (Verdict::Diverged, None)
                if origin == Some(Origin::Own) && is_reached(scene, report, at) =>
            {
                (Verdict::Diverged, Some(Origin::Inherited))
            }
            (Verdict::Rounding, None)
                if super::flow::capped(scene, at).is_some() && is_named(scene, at) =>
            {
                (Verdict::Diverged, Some(Origin::Own))
            }
            (Verdict::Rounding, _) if is_coarser(scene, at, flow.as_ref()) => {
                (Verdict::Diverged, Some(Origin::Own))
            }
            (verdict, _) => (verdict, origin),
        };
        if flow.is_some()
            && (report.pairs[at].verdict, verdict) == (Verdict::Diverged, Verdict::Rounding)
        {
            amplified = std::array::from_fn(|i| amplified[i].max(scene.entries()[at].measures[i]));
        }
        (report.pairs[at].verdict, report.pairs[at].origin) = (verdict, origin);
    }
}

/// A parameter that is wrong is loaded anew everywhere; what was computed wrongly is given on.
fn is_given_on(pair: &PairReport) -> bool {
    pair.verdict == Verdict::Diverged && !pair.parameter
}

/// Whole numbers that were computed from what diverged (the experts a router chooses), or what was gathered by such numbers: the values are
/// other ones, however far away, because the inputs are.
fn by_ids(scene: &Scene<'_>, report: &Report, at: usize) -> bool {
    let whole = |at: usize| is_whole(scene, at);
    let diverged = |at: &usize| report.pairs[*at].verdict == Verdict::Diverged;
    let Some(inputs) = &scene.entries()[at].inputs else {
        let near = at.saturating_sub(IDS_BEFORE)..at;
        return near
            .rev()
            .filter(|ids| whole(*ids) && diverged(ids))
            .any(|ids| only_where_ids_differ(scene, ids, at));
    };
    inputs
        .iter()
        .filter(|input| diverged(input))
        .any(|input| whole(at) || whole(*input))
}

fn is_whole(scene: &Scene<'_>, at: usize) -> bool {
    unit_roundoff(scene.entries()[at].dtypes[0]).is_none()
}

/// Whether there is a proven cause.
fn is_named(scene: &Scene<'_>, at: usize) -> bool {
    super::examine_pair(scene, at, None, None)
        .found
        .first()
        .is_some_and(|best| best.score.proven)
}

/// Pairs before one among which the ids are looked for that chose what it was computed by.
const IDS_BEFORE: usize = 8;

/// Rows that differ by more were computed by others.
const LARGEST_PASSED: f64 = 0.5;

/// Whether the rows of a pair that differ are rows, of as many, whose ids differ: the tokens that other experts were chosen for.
fn only_where_ids_differ(scene: &Scene<'_>, ids: usize, at: usize) -> bool {
    let (Some(ids), Some(out)) = (scene.load(ids), scene.load(at)) else {
        return false;
    };
    let rows = out.reference.len() / out.dims.last().copied().unwrap_or(1).max(1);
    if rows < 2 || !ids.reference.len().is_multiple_of(rows) || ids.reference.is_empty() {
        return false;
    }
    let (chosen, width) = (ids.reference.len() / rows, out.reference.len() / rows);
    // Other rows may have what came from upstream, and no more than that.
    let upstream = scene.entries()[at.saturating_sub(IDS_BEFORE)..at]
        .iter()
        .filter(|entry| unit_roundoff(entry.dtypes[0]).is_some());
    let upstream = upstream.map(|entry| entry.measures[1]).fold(0.0, f64::max);
    let allowed = scene.entries()[at].noise[2]
        .max(2.0 * upstream)
        .min(LARGEST_PASSED);
    let row = |row: usize| row * width..(row + 1) * width;
    let mut differing = 0;
    for nth in 0..rows {
        let (r, c) = (&out.reference[row(nth)], &out.candidate[row(nth)]);
        let error: f64 = r.iter().zip(c).map(|(r, c)| (c - r) * (c - r)).sum();
        if error.is_nan() || error.sqrt() > allowed * super::array::energy(r).sqrt() {
            let own = nth * chosen..(nth + 1) * chosen;
            if ids.reference[own.clone()] == ids.candidate[own] {
                return false;
            }
            differing += 1;
        }
    }
    differing > 0
}

/// Whether an op may have made such errors of those it was given. Not more than once: what it makes of them is no new level.
fn is_given(found: &Measures, level: &Measures) -> bool {
    found
        .iter()
        .zip(level)
        .all(|(found, level)| *found <= PASSED_ON * level)
}

/// How much an op whose formula is not known may amplify the error it is given.
const PASSED_ON: f64 = 2.0;

/// What a pair whose op is not known may have been given by its inputs: the error of the nearest tensor before it whose op is known, when
/// something diverged before. Products with weights pass on about what they are given.
pub(super) fn given(
    scene: &Scene<'_>,
    at: usize,
    known: impl Fn(usize) -> bool,
) -> Option<Measures> {
    let entries = scene.entries();
    if entries[at].parameter
        || !entries[..at]
            .iter()
            .any(|entry| entry.verdict == Verdict::Diverged && !entry.parameter)
    {
        return None;
    }
    let near = nearest(scene, at, known)?;
    Some(entries[near].measures.map(|measure| PASSED_ON * measure))
}

/// The nearest tensor before one whose op is known.
fn nearest(scene: &Scene<'_>, at: usize, known: impl Fn(usize) -> bool) -> Option<usize> {
    const REACH: usize = 8;
    (at.saturating_sub(REACH)..at)
        .rev()
        .find(|before| !scene.entries()[*before].parameter && known(*before))
}

/// Any other kind must explain this much of what is beyond the inputs' error.
const MOST_OF_IT: f64 = 0.8;

/// So few values have no place, nor do they follow a function.
const FEW: usize = 64;

/// Of an error before, this share of it is a trace.
const A_TRACE: f64 = 1e-3;

/// Values of pairs behind a divergence that every hypothesis is tried on: a bound on time. Beyond it, size alone tells.
const MOST_VALUES: usize = 1 << 23;

/// A product with weights that passes on more than this many times the error it is given would be a strange one.
const STRANGE: f64 = 4.0;

/// Of larger errors an op need not pass on the same share: up to the first of these [`STRANGE`] times is strange, up to the second twice that.
/// Beyond, an op may make anything of them: a scan that multiplies with the exponential of a step.
const PROPORTIONAL: [f64; 2] = [0.05, 0.2];

/// The scales of two tensors are the same one when they are so near, as a share of what they are beyond 1.
const SAME_SCALE: f64 = 0.15;

/// Tensors before one that it may have been computed from, in a layer with branches.
const AROUND: usize = 12;

/// A pair behind a divergence, of an op that is not known, is a fault of its own when a cause leaves what its inputs gave it, and no more;
/// or when it is off by more than an op makes of its inputs' errors.
fn is_second(
    scene: &Scene<'_>,
    at: usize,
    flows: &[Option<Flow>],
    budget: &mut usize,
    kinds: &mut HashMap<usize, Option<CauseKind>>,
) -> bool {
    let Some(given) = given(scene, at, |at| flows[at].is_some()) else {
        return false;
    };
    let found = scene.entries()[at].measures;
    let largest = |since: usize| {
        let all = scene.entries()[since..at]
            .iter()
            .filter(|entry| !entry.parameter);
        all.fold([0f64; 4], |level, entry| {
            std::array::from_fn(|i| level[i].max(entry.measures[i]))
        })
    };
    // The nearest tensor may be on another branch: without a name for what happened, none of those around may be as far off. Where all of those
    // agree, this is a branch that had no part in what diverged before, until here: keys of an encoder, a cache of the step before.
    let diverged = |since: usize| {
        scene.entries()[since..at]
            .iter()
            .any(|entry| !entry.parameter && entry.verdict == Verdict::Diverged)
    };
    let joins = !diverged(at.saturating_sub(AROUND));
    let anywhere = largest(0);
    let around = if joins {
        anywhere
    } else {
        largest(at.saturating_sub(AROUND))
    };
    // Of what is wrong in one place only, or not a number, the rest is rounding, and so is any multiple of it.
    let around: Measures = std::array::from_fn(|i| around[i].max(scene.entries()[at].noise[i]));
    if is_strange(&found, &around) {
        return true;
    }
    let level = if joins {
        anywhere
    } else {
        largest(nearest(scene, at, |at| flows[at].is_some()).unwrap_or(at))
    };
    let elements: usize = scene.entries()[at].dims.iter().product();
    let Some(left) = budget.checked_sub(elements) else {
        return false;
    };
    *budget = left;
    let is_zero = |at: usize| {
        scene
            .load(at)
            .is_some_and(|loaded| loaded.candidate.iter().all(|value| *value == 0.0))
    };
    if is_zero(at) && !(at.saturating_sub(1)..at).any(is_zero) {
        return true;
    }
    let examination = super::examine_pair(scene, at, None, Some(given));
    let Some(best) = examination.found.first().filter(|best| best.score.proven) else {
        return false;
    };
    let kind = &best.explanation.kind;
    let off = |level: Measures, measure: usize| found[measure] > PASSED_ON * level[measure];
    // What is only a place may be that of any error before: a head, a token, the steps since.
    let beyond = match kind {
        CauseKind::Localized => off(anywhere, 0) || off(anywhere, 2),
        // The reference has no such copy.
        CauseKind::WrongTensor if best.explanation.details.is_from_own_run() => true,
        _ => off(level, 0) || kind.shows_levels(),
    };
    // Of a few values, some are always more off than others; and behind what is entirely wrong, a trace of it is no fault.
    let sure = kind.is_unmistakable()
        || (best.score.explained >= Some(MOST_OF_IT)
            && elements >= FEW
            && found[0] > A_TRACE * anywhere[0]);
    // A NaN spreads, and what an op does not undo it passes on.
    let echoes =
        || *kind == CauseKind::Scale && (0..at).any(|before| is_scaled_alike(scene, before, at));
    beyond
        && sure
        && *kind != CauseKind::Nonfinite
        && !echoes()
        && !passed_on(scene, at, flows, kind, kinds)
}

/// Whether no op makes such an error of one this large.
fn is_strange(found: &Measures, given: &Measures) -> bool {
    let strange = match given[0] {
        small if small <= PROPORTIONAL[0] => STRANGE,
        large if large <= PROPORTIONAL[1] => 2.0 * STRANGE,
        _ => return false,
    };
    (0..2).all(|measure| found[measure] > strange * given[measure])
}

/// Whether an error that is far larger than those before may be what an op makes of them all the same, and nothing says otherwise.
fn is_reached(scene: &Scene<'_>, report: &Report, at: usize) -> bool {
    let entry = &scene.entries()[at];
    if entry.parameter || is_whole(scene, at) || nonfinite(report, at) {
        return false;
    }
    let before = scene.entries()[..at]
        .iter()
        .filter(|entry| !entry.parameter);
    let largest = before.fold([0f64; 4], |level, entry| {
        std::array::from_fn(|i| level[i].max(entry.measures[i]))
    });
    // What is wrong everywhere leaves nothing behind it as it was.
    let diverged = (0..at).filter(|before| {
        !scene.entries()[*before].parameter && scene.entries()[*before].verdict == Verdict::Diverged
    });
    let untouched = diverged
        .map(|before| kept(report, before))
        .fold(0.0, f64::max);
    if kept(report, at) > untouched + UNTOUCHED {
        return false;
    }
    // A place is no reason to believe that it began there.
    let named =
        || {
            let examination = super::examine_pair(scene, at, None, None);
            examination.found.first().is_some_and(|best| {
                best.score.proven && best.explanation.kind != CauseKind::Localized
            }) && entry.dims.iter().product::<usize>() >= FEW
        };
    !is_strange(&entry.measures, &largest) && !named()
}

/// More of a tensor than of all before that is as it was: an error that did not come from there.
const UNTOUCHED: f64 = 0.1;

/// The share of a pair that is the same on both sides; zeros are made of anything by a relu or a mask.
fn kept(report: &Report, at: usize) -> f64 {
    let Some(totals) = &report.pairs[at].totals else {
        return 0.0;
    };
    let same = totals.compared.saturating_sub(totals.differing);
    same.saturating_sub(totals.reference.zero.min(totals.candidate.zero)) as f64
        / totals.count.max(1) as f64
}

/// Whether a divergence before is, on the whole, the same multiple of its reference: products pass on a factor, and one a channel as their mean.
/// Scores have it twice: queries and keys are both made of what was scaled.
fn is_scaled_alike(scene: &Scene<'_>, before: usize, at: usize) -> bool {
    let entry = &scene.entries()[before];
    if entry.parameter || entry.verdict != Verdict::Diverged {
        return false;
    }
    let scale = |at: usize| {
        let [reference, candidate] = scene.sketch(at)?;
        let (rc, rr) = reference
            .iter()
            .zip(&*candidate)
            .fold((0.0, 0.0), |(rc, rr), (r, c)| (rc + r * c, rr + r * r));
        Some(rc / rr)
    };
    let same = |before: f64, here: f64| (before - here).abs() <= SAME_SCALE * (here - 1.0).abs();
    scale(before)
        .zip(scale(at))
        .is_some_and(|(before, here)| same(before, here) || same(before * before, here))
}

/// Whether the divergence before this one has the same cause: elementwise ops keep an order, a factor, a place. `kinds` remembers what was found.
fn passed_on(
    scene: &Scene<'_>,
    at: usize,
    flows: &[Option<Flow>],
    kind: &CauseKind,
    kinds: &mut HashMap<usize, Option<CauseKind>>,
) -> bool {
    let diverged = |before: &usize| {
        scene.entries()[*before].verdict == Verdict::Diverged && !scene.entries()[*before].parameter
    };
    let Some(before) = (0..at).rev().find(diverged) else {
        return false;
    };
    let of_before = kinds.entry(before).or_insert_with(|| {
        let examination = super::examine_pair(scene, before, flows[before].as_ref(), None);
        examination
            .found
            .first()
            .filter(|best| best.score.proven)
            .map(|best| best.explanation.kind.clone())
    });
    of_before.as_ref() == Some(kind)
}

/// One tensor on a coarser dtype's grid while those before it, and those it was computed from, are not: computed in less precision, even where
/// the difference is no more than what came from upstream. A whole run on that grid was only recorded in a wider dtype.
fn is_coarser(scene: &Scene<'_>, at: usize, flow: Option<&Flow>) -> bool {
    let coarse = |at: usize| {
        // A few scattered values rule it out nearly always, without reading the rest.
        let dtypes = scene.entries()[at].dtypes;
        if scene
            .sketch(at)
            .is_some_and(|[_, candidate]| !super::values::may_lie_on_a_grid(&candidate, &dtypes))
        {
            return None;
        }
        let loaded = scene.load(at)?;
        let found = super::values::ROUNDED
            .examine(&Case::new(scene, at, &loaded))
            .ok()?;
        let found = found.into_iter().next()?;
        match found.details.facts {
            Facts::Rounded(rounded) => rounded
                .grid()
                .filter(|(side, _)| *side == Side::Candidate)
                .map(|(_, dtype)| dtype.to_owned()),
            _ => None,
        }
    };
    let Some(dtype) = coarse(at) else {
        return false;
    };
    let mut before = (0..at).rev().filter(|before| {
        !scene.entries()[*before].parameter && scene.entries()[*before].dims.len() > 1
    });
    let given = flow.iter().flat_map(|flow| flow.inputs.iter().copied());
    let Some(last) = before.next() else {
        return false;
    };
    std::iter::once(last)
        .chain(given)
        .all(|other| coarse(other).as_ref() != Some(&dtype))
}

fn nonfinite(report: &Report, at: usize) -> bool {
    report.pairs[at]
        .totals
        .as_ref()
        .is_some_and(|totals| totals.nonfinite_differing > 0)
}

/// Numbers that say of the rest of a tensor with a NaN what it follows.
const REST: usize = 16;

/// Whether what is a number, on both sides, is not what the op makes of its inputs: a fault of its own beside a NaN that came with them.
fn is_wrong_elsewhere(scene: &Scene<'_>, at: usize, flow: &Flow) -> bool {
    let Some(loaded) = scene
        .load(at)
        .filter(|loaded| loaded.candidate.len() == flow.expected.len())
    else {
        return false;
    };
    let both = flow
        .expected
        .iter()
        .zip(&loaded.candidate)
        .filter(|(expected, candidate)| expected.is_finite() && candidate.is_finite());
    let (mut count, mut error, mut energy) = (0, 0.0, 0.0);
    for (expected, candidate) in both {
        count += 1;
        error += (candidate - expected) * (candidate - expected);
        energy += expected * expected;
    }
    let bound = FAR * flow.bound[0].min(scene.entries()[at].noise[0]);
    count >= REST && error.sqrt() > bound * energy.sqrt()
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
