//! One comparison looked into: evidence for every pair, causes on demand. Nothing is judged here.
//!
//! Evidence is looked for only where the judge can use it, because most of it costs a look at all values: the numbers of `compare` say
//! beforehand where that is.

use super::{
    Examination, Scene, examine_pair,
    flow::{self, Flow},
    named, reduced,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use twinscope_compare::{
    evidence::{Investigation, MadeBy, PairEvidence, ProvenCause},
    judged::JudgedPair,
    noise::{Measures, unit_roundoff},
    upstream::{self, Level},
};
use twinscope_report::{Cause, CauseKind, Origin, Verdict};

/// Values of pairs behind a divergence that every hypothesis is tried on: a bound on time. Beyond it, size alone tells.
const MOST_VALUES: usize = 1 << 23;

/// The scales of two tensors are the same one when they are so near, as a share of what they are beyond 1.
const SAME_SCALE: f64 = 0.15;

/// Pairs before one among which the ids are looked for that chose what it was gathered by.
const IDS_BEFORE: usize = 8;

/// One comparison that is being looked into.
pub(super) struct Investigating<'a> {
    scene: Scene<'a>,
    flows: Vec<Option<Flow>>,
    levels: Vec<Level>,
    evidence: Vec<PairEvidence>,
    /// The causes of partial sums, known from the op that takes them.
    unreduced: HashMap<usize, Cause>,
    /// What was examined before, without the predictions, which are large.
    examined: Mutex<HashMap<Question, Arc<Examined>>>,
}

/// A pair, and the bits of the errors that count as noise.
type Question = (usize, Option<[u64; 4]>);

/// What is kept of an examination.
struct Examined {
    best: Option<ProvenCause>,
    causes: Vec<Cause>,
}

impl<'a> Investigating<'a> {
    pub(super) fn new(scene: Scene<'a>, pairs: &[JudgedPair]) -> Self {
        let mut flows = flow::every(&scene);
        let unreduced = reduced::find(&scene, pairs, &mut flows);
        let mut investigating = Self {
            levels: pairs.iter().map(Level::of).collect(),
            evidence: Vec::with_capacity(pairs.len()),
            examined: Mutex::default(),
            scene,
            flows,
            unreduced,
        };
        let mut budget = MOST_VALUES;
        for at in 0..pairs.len() {
            let evidence = match investigating.scene.is_stopped() {
                true => PairEvidence::default(),
                false => investigating.look(pairs, at, &mut budget),
            };
            investigating.evidence.push(evidence);
        }
        investigating
    }

    /// What is known of one pair; those before it are known already.
    fn look(&self, pairs: &[JudgedPair], at: usize, budget: &mut usize) -> PairEvidence {
        let (entry, flow) = (&self.scene.entries()[at], self.flows[at].as_ref());
        let mut evidence = PairEvidence {
            recorded_inputs: entry.inputs.clone(),
            made_by: flow.map(|flow| self.made_by(pairs, at, flow)),
            is_unreduced: self.unreduced.contains_key(&at),
            ..PairEvidence::default()
        };
        if evidence.is_unreduced {
            return evidence;
        }
        match (entry.verdict, &evidence.made_by) {
            (Verdict::Rounding, Some(made_by))
                if !made_by.follows_alternative && upstream::is_far(made_by) =>
            {
                evidence.own_error = self.examined(at, None).best.clone();
            }
            (Verdict::Rounding, None) => {
                evidence.is_capped = flow::capped(&self.scene, at).is_some()
                    && self.examined(at, None).best.is_some();
            }
            (Verdict::Diverged, None) => self.look_behind(pairs, at, budget, &mut evidence),
            _ => {}
        }
        evidence
    }

    fn made_by(&self, pairs: &[JudgedPair], at: usize, flow: &Flow) -> MadeBy {
        let is_nonfinite = |at: usize| {
            let totals = pairs[at].totals.as_ref();
            totals.is_some_and(|totals| totals.nonfinite_differing > 0)
        };
        MadeBy {
            inputs: flow.inputs.clone(),
            off: flow.off,
            bound: flow.bound,
            follows_alternative: flow.confirmed.is_some(),
            is_sum: flow.formula.adds(),
            finite_part_follows: !is_nonfinite(at) || !is_wrong_elsewhere(&self.scene, at, flow),
        }
    }

    /// Of a pair that diverged and whose op is not known, what tells a fault of its own from what it inherited.
    fn look_behind(
        &self,
        pairs: &[JudgedPair],
        at: usize,
        budget: &mut usize,
        evidence: &mut PairEvidence,
    ) {
        if evidence.recorded_inputs.is_none() {
            let near = at.saturating_sub(IDS_BEFORE)..at;
            let ids = near
                .rev()
                .filter(|ids| self.is_integer(*ids) && self.levels[*ids].diverged);
            evidence.gathered_by = ids
                .filter(|ids| only_where_ids_differ(&self.scene, *ids, at))
                .collect();
        }
        // Integers that something chose, and rows that integers chose, need no cause.
        let is_chosen = || {
            let mut near = at.saturating_sub(IDS_BEFORE)..at;
            evidence.recorded_inputs.is_none()
                && self.is_integer(at)
                && near.any(|at| self.levels[at].diverged && !self.levels[at].parameter)
        };
        if !evidence.gathered_by.is_empty() || is_chosen() {
            return;
        }
        // Where nothing computed before diverged, there is nothing to tell this pair's error from.
        if !self.may_have_divergence_before(at) {
            return;
        }
        let found = self.levels[at].measures;
        let is_known = |at: usize| self.evidence[at].made_by.is_some();
        if let Some(behind) = upstream::behind(&self.levels, at, is_known)
            .filter(|behind| !upstream::is_strange(&found, &behind.around))
        {
            let elements: usize = self.scene.entries()[at].dims.iter().product();
            if let Some(left) = budget.checked_sub(elements) {
                *budget = left;
                let is_zero = |at: usize| {
                    let loaded = self.scene.load(at);
                    loaded.is_some_and(|loaded| loaded.candidate.iter().all(|value| *value == 0.0))
                };
                evidence.became_zero = is_zero(at) && !(at.saturating_sub(1)..at).any(is_zero);
                if !evidence.became_zero {
                    let best = self.examined(at, Some(behind.given)).best.clone();
                    evidence.beyond_inputs = best.map(|best| ProvenCause {
                        is_echo: self.is_echo(at, &best.kind),
                        ..best
                    });
                }
            }
        }
        if pairs[at].origin() == Some(Origin::Own)
            && upstream::may_be_within_reach(pairs, &self.levels, at)
        {
            evidence.plain = self.examined(at, None).best.clone();
        }
    }

    /// Whether the judge may hold an earlier pair for diverged.
    fn may_have_divergence_before(&self, at: usize) -> bool {
        let is_suspect = |at: usize| {
            let PairEvidence {
                made_by,
                is_capped,
                is_unreduced,
                own_error,
                ..
            } = &self.evidence[at];
            // What follows from inputs that agree is amplified rounding.
            let is_amplified = made_by.as_ref().is_some_and(|made_by| {
                let diverged = |input: &usize| self.levels[*input].diverged;
                made_by.follows() && !made_by.inputs.iter().any(diverged)
            });
            (self.levels[at].diverged && !is_amplified)
                || *is_capped
                || *is_unreduced
                || own_error.is_some()
                || made_by
                    .as_ref()
                    .is_some_and(|made_by| made_by.follows_alternative)
        };
        (0..at).any(|before| !self.levels[before].parameter && is_suspect(before))
    }

    fn is_integer(&self, at: usize) -> bool {
        unit_roundoff(self.scene.entries()[at].dtypes[0]).is_none()
    }

    /// Whether a divergence before has the same cause: elementwise ops keep an order, a factor, a place, and products pass on a factor.
    fn is_echo(&self, at: usize, kind: &CauseKind) -> bool {
        let diverged =
            |before: &usize| self.levels[*before].diverged && !self.levels[*before].parameter;
        if *kind == CauseKind::Scale
            && (0..at)
                .filter(diverged)
                .any(|before| is_scaled_alike(&self.scene, before, at))
        {
            return true;
        }
        let last = (0..at).rev().find(diverged);
        last.is_some_and(|before| {
            let before = self.examined(before, None);
            before.best.as_ref().is_some_and(|best| best.kind == *kind)
        })
    }

    fn examined(&self, at: usize, given: Option<Measures>) -> Arc<Examined> {
        let key = (at, given.map(|given| given.map(f64::to_bits)));
        let known = || {
            let known = self.examined.lock();
            known.unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(examined) = known().get(&key) {
            return examined.clone();
        }
        let flow = self.flows[at].as_ref();
        let examination = examine_pair(&self.scene, at, flow, given);
        let examined = Arc::new(Examined {
            best: proven(&examination),
            causes: named(&examination, flow),
        });
        known().insert(key, examined.clone());
        examined
    }
}

impl Investigation for Investigating<'_> {
    fn evidence(&self) -> &[PairEvidence] {
        &self.evidence
    }

    fn causes(&self, pair: usize, given: Option<Measures>) -> Vec<Cause> {
        match self.unreduced.get(&pair) {
            Some(cause) => vec![cause.clone()],
            None => self.examined(pair, given).causes.clone(),
        }
    }
}

/// The best cause, when it is proven.
fn proven(examination: &Examination) -> Option<ProvenCause> {
    let best = examination.found.first().filter(|best| best.score.proven)?;
    Some(ProvenCause {
        kind: best.explanation.kind.clone(),
        explained: best.score.explained,
        copies_own_run: best.explanation.details.is_from_own_run(),
        is_echo: false,
    })
}

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

/// Whether a divergence before is, on the whole, the same multiple of its reference: products pass on a factor, and one a channel as their mean.
/// Scores have it twice: queries and keys are both made of what was scaled.
fn is_scaled_alike(scene: &Scene<'_>, before: usize, at: usize) -> bool {
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

/// How far beyond rounding the finite rest of a tensor with a NaN must be to be wrong by itself.
const FAR: f64 = 4.0;

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
