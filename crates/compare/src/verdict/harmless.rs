//! Different here, the same again downstream: co-permuted channels, a constant rope offset that cancels in `q·k`, folded weights.
//!
//! A divergence is harmless when its cause is one that later ops can undo, and everything that was computed from it agrees. What was
//! computed from it is known where ops were found, and some op must be known to take it; beyond that every tensor recorded after the last
//! diverged one must agree, down to the end of the run, so that no path is left uncovered.
//!
//! Undone is not drowned. A wrong attention whose output is small beside the residual stream it is added to leaves a stream that agrees
//! within bf16's rounding, and is wrong all the same. So every diverged tensor on the way must still be the reference's by such a cause,
//! and a sum that carries the whole difference on has undone nothing. And a divergence further down whose op is not known may be its doing.

use super::{Judgement, Origin, Reason, Verdict};
use crate::{
    evidence::{MadeBy, PairEvidence},
    judged::{Cause, JudgedPair},
    noise,
};
use twinscope_report::{CauseKind, Facts, facts::Permuted};

const UNDONE: Reason = Reason {
    name: "undone",
    why: "The cause loses nothing, and everything computed from it agrees.",
};

/// A cause explains everything.
const ALL: f64 = 0.99;

/// A difference that keeps this share of its size was passed on, not undone.
const PASSED_ON: f64 = 0.5;

/// Where no op is known to take what diverged, only tensors this far below the floor say that it was undone: a difference that is drowned
/// stays near it. Or those that are no further apart than what came before, or that have next to nothing of the difference: no stream is
/// so much larger than what is added to it.
const CALM: f64 = 0.25;
const AS_BEFORE: f64 = 2.0;
const NEXT_TO_NOTHING: f64 = 1e-4;

/// Rounding that is passed on grows by no more than this from one tensor to the next.
const GROWS: f64 = 1.5;

/// Two rotations have the same offset when they are this close, in positions.
const SAME_OFFSET: f64 = 0.01;

/// The judgements on diverged pairs that later ops undo. `causes` says why a pair differs that has no causes yet, because it inherited its
/// difference. With a tolerance of the user's nothing is harmless: that rule is final.
pub fn forgive(
    pairs: &[JudgedPair],
    evidence: &[PairEvidence],
    causes: &dyn Fn(usize) -> Vec<Cause>,
) -> Vec<(usize, Judgement)> {
    let by_tolerance = |pair: &JudgedPair| {
        let totals = pair.totals.as_ref();
        totals.is_some_and(|totals| totals.beyond.is_some())
    };
    if pairs.iter().any(by_tolerance) {
        return Vec::new();
    }
    let run = Run {
        pairs,
        evidence,
        causes,
    };
    run.forgiven()
}

/// A judged comparison.
struct Run<'a> {
    pairs: &'a [JudgedPair],
    evidence: &'a [PairEvidence],
    causes: &'a dyn Fn(usize) -> Vec<Cause>,
}

impl Run<'_> {
    fn forgiven(&self) -> Vec<(usize, Judgement)> {
        let computed: Vec<usize> = (0..self.pairs.len())
            .filter(|at| !self.pairs[*at].parameter)
            .collect();
        let diverged: Vec<usize> = computed
            .iter()
            .copied()
            .filter(|at| self.pairs[*at].verdict() == Verdict::Diverged)
            .collect();
        let groups = self.groups(&diverged);
        let mut forgiven = Vec::new();
        let mut all_harmless = true;
        for (nth, group) in groups.iter().enumerate() {
            // What diverges later, made by an op that is not known, may be what this one does on a path that is not recorded.
            let is_uncovered = |at: &usize| {
                self.made_by(*at).is_none() && self.is_own(*at) && !is_undone(&self.pairs[*at])
            };
            let is_covered = !groups[nth + 1..].iter().flatten().any(is_uncovered);
            let is_last = nth + 1 == groups.len();
            let agrees_at = is_covered
                .then(|| self.agrees_at(group, is_last))
                .flatten()
                .filter(|_| self.is_undone_on_the_way(group));
            match agrees_at {
                Some(agreeing) => forgiven.extend(group.iter().map(|at| (*at, agreeing))),
                None => all_harmless = false,
            }
        }
        if let (true, Some(&last)) = (all_harmless, computed.last()) {
            forgiven.extend(self.undone_weights().map(|at| (at, last)));
        }
        let judgement = |(at, agreeing): (usize, usize)| {
            let agrees_at = Some(self.pairs[agreeing].name.clone());
            let judgement = Judgement::new(Verdict::Harmless, None, agrees_at, UNDONE);
            (at, judgement)
        };
        forgiven.into_iter().map(judgement).collect()
    }

    /// Weights that differ and lead to nothing else. One weight undoes another: of one alone that no known op takes, nothing says that it
    /// was used at all by what is recorded (a weight after its update).
    fn undone_weights(&self) -> impl Iterator<Item = usize> {
        let wrong: Vec<usize> = self.wrong_weights().collect();
        let is_alone = wrong.len() == 1;
        let is_taken = |at: usize| self.ops().any(|made_by| made_by.inputs.contains(&at));
        wrong
            .into_iter()
            .filter(move |at| (!is_alone || is_taken(*at)) && is_undone(&self.pairs[*at]))
    }

    fn wrong_weights(&self) -> impl Iterator<Item = usize> {
        let pairs = self.pairs.iter().enumerate();
        pairs
            .filter(|(_, pair)| pair.parameter && pair.verdict() == Verdict::Diverged)
            .map(|(at, _)| at)
    }

    fn made_by(&self, at: usize) -> Option<&MadeBy> {
        self.evidence[at].made_by.as_ref()
    }

    fn ops(&self) -> impl Iterator<Item = &MadeBy> {
        self.evidence
            .iter()
            .filter_map(|evidence| evidence.made_by.as_ref())
    }

    fn is_own(&self, at: usize) -> bool {
        self.pairs[at].origin() == Some(Origin::Own)
    }

    /// The best cause of a pair, looked for where it was not asked yet.
    fn best_cause(&self, at: usize) -> Option<Cause> {
        match self.pairs[at].causes.first() {
            Some(cause) => Some(cause.clone()),
            None => (self.causes)(at).into_iter().next(),
        }
    }

    /// Diverged pairs up to a tensor that is computed from them and agrees; the next one begins anew when it is its own.
    fn groups(&self, diverged: &[usize]) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for &at in diverged {
            let begins_anew =
                |group: &Vec<usize>| self.is_own(at) && self.agreeing_consumer(group, at).is_some();
            match groups.last_mut() {
                Some(group) if !begins_anew(group) => group.push(at),
                _ => groups.push(vec![at]),
            }
        }
        groups
    }

    /// The first pair before `end` that is computed from one of a group and agrees.
    fn agreeing_consumer(&self, group: &[usize], end: usize) -> Option<usize> {
        let last = *group.last()?;
        (last + 1..end).find(|at| {
            self.pairs[*at].verdict().agrees()
                && self.made_by(*at).is_some_and(|made_by| {
                    takes(made_by, group) && !self.is_passed_on(made_by, group, *at)
                })
        })
    }

    /// Whether a sum differs by as much as what it adds up: then it is only large beside it.
    fn is_passed_on(&self, made_by: &MadeBy, group: &[usize], at: usize) -> bool {
        let size = |at: usize| {
            let totals = self.pairs[at].totals.as_ref();
            totals.and_then(|totals| totals.mse).map(f64::sqrt)
        };
        let taken = made_by.inputs.iter().filter(|input| group.contains(input));
        let of_terms = taken.filter_map(|input| size(*input)).fold(0.0, f64::max);
        made_by.is_sum && size(at).is_some_and(|size| size >= PASSED_ON * of_terms)
    }

    /// Every tensor on the way is the reference's by a cause that can be undone, also those that inherited it.
    fn is_undone_on_the_way(&self, group: &[usize]) -> bool {
        let best: Option<Vec<Cause>> = group.iter().map(|at| self.best_cause(*at)).collect();
        best.is_some_and(|best| {
            best.iter().all(|cause| {
                undoes(cause) && (cause.kind != CauseKind::Rotated || cancels(cause, &best))
            })
        })
    }

    /// Where a group agrees again, when it is harmless.
    fn agrees_at(&self, group: &[usize], is_last_group: bool) -> Option<usize> {
        let mut own = group.iter().filter(|at| self.is_own(**at)).peekable();
        // What is only inherited comes from weights.
        let mut weights = self.wrong_weights().peekable();
        let is_undone_at = |at: usize| is_undone(&self.pairs[at]);
        let all_undone = match own.peek() {
            Some(_) => own.all(|at| is_undone_at(*at)),
            None => weights.peek().is_some() && weights.all(is_undone_at),
        };
        if !all_undone {
            return None;
        }
        let (first, last) = (*group.first()?, *group.last()?);
        if let Some(at) = self.agreeing_consumer(group, self.pairs.len()) {
            return Some(at);
        }
        let is_drowned = |at: usize| {
            self.made_by(at).is_some_and(|made_by| {
                takes(made_by, group) && self.is_passed_on(made_by, group, at)
            })
        };
        if (last + 1..self.pairs.len()).any(is_drowned) {
            return None;
        }
        // Without any op that is known to take it or to make it, nothing says that what comes after depends on it at all. Of ids and what
        // belongs to them, in one order, the values themselves say it.
        let is_connected = self.ops().any(|made_by| takes(made_by, group))
            || group.iter().any(|at| self.made_by(*at).is_some());
        if !is_connected && !self.is_listed_alike(group) {
            return None;
        }
        let after = (last + 1..self.pairs.len()).filter(|at| !self.pairs[*at].parameter);
        let next = after.clone().next()?;
        (is_last_group && self.all_calm(first, group, after)).then_some(next)
    }

    /// Whether no tensor after a group is further off than rounding was before it, or what rounding has grown to since.
    fn all_calm(
        &self,
        first: usize,
        group: &[usize],
        mut after: impl Iterator<Item = usize>,
    ) -> bool {
        let before = self.pairs[..first].iter().filter(|pair| !pair.parameter);
        let before = before.filter_map(whole).fold(0.0, f64::max);
        // The gentlest of them: what is left of any must be next to nothing.
        let difference = group
            .iter()
            .filter_map(|at| whole(&self.pairs[*at]))
            .fold(f64::INFINITY, f64::min);
        let mut level = AS_BEFORE * before;
        after.all(|at| {
            let pair = &self.pairs[at];
            let floor = noise::floor(pair.judged_by, 0).map_or(0.0, |floor| floor[0]);
            let most = (CALM * floor).max(level).max(NEXT_TO_NOTHING * difference);
            let is_calm = whole(pair).is_none_or(|whole| whole <= most);
            if let Some(whole) = whole(pair).filter(|_| is_calm) {
                level = level.max(GROWS * whole);
            }
            pair.verdict().agrees() && is_calm
        })
    }

    /// Whether a group is ids and what belongs to them, all of one shape and in one other order: a sum over them is the same.
    fn is_listed_alike(&self, group: &[usize]) -> bool {
        let Some((&first, others)) = group.split_first() else {
            return false;
        };
        let ids = &self.pairs[first];
        let order = |at: usize| match self.best_cause(at)?.details.facts {
            Facts::Permuted(order) => Some(order),
            _ => None,
        };
        let axes = ids.shape.as_ref().map_or(0, |shape| shape.dims().len());
        let is_integer = noise::unit_roundoff(ids.dtypes[0]).is_none();
        let of_ids = order(first).filter(|order| is_integer && order.axis() + 1 == axes);
        let Some(of_ids) = of_ids else {
            return false;
        };
        let is_same = |order: Permuted| {
            let alike = order.pattern() == of_ids.pattern() && order.axis() == of_ids.axis();
            alike || order.ids() == Some(ids.name.as_str())
        };
        let mut others = others.iter().peekable();
        others.peek().is_some()
            && others
                .all(|at| self.pairs[*at].shape == ids.shape && order(*at).is_some_and(is_same))
    }
}

fn takes(made_by: &MadeBy, group: &[usize]) -> bool {
    made_by.inputs.iter().any(|input| group.contains(input))
}

/// Of all rotations only a constant offset cancels, and only where queries and keys have the same.
fn cancels(cause: &Cause, group: &[Cause]) -> bool {
    let offset = |cause: &Cause| match &cause.details.facts {
        Facts::Rotated(rotated) => rotated.offset(),
        _ => None,
    };
    let is_shared = |own: f64| {
        let offsets = group.iter().filter_map(offset);
        offsets
            .filter(|other| (other - own).abs() < SAME_OFFSET)
            .count()
            > 1
    };
    offset(cause).is_some_and(is_shared)
}

fn whole(pair: &JudgedPair) -> Option<f64> {
    pair.totals.as_ref().and_then(|totals| totals.rel_l2)
}

fn is_undone(pair: &JudgedPair) -> bool {
    pair.causes.first().is_some_and(undoes)
}

fn undoes(cause: &Cause) -> bool {
    cause.kind.can_be_undone() && cause.explained >= Some(ALL)
}
