//! The rules that turn facts and evidence into a judgement, in the order they are asked. The first that holds decides.
//!
//! Size alone cannot tell a second fault from the echo of the first, nor amplified rounding from a fault. Evidence can: what a tensor was
//! computed from, whether the candidate follows the same op, which cause is proven.

use super::{Judgement, Reason};
use crate::{
    evidence::{MadeBy, PairEvidence},
    judged::JudgedPair,
    noise::{Measures, unit_roundoff},
    upstream::{self, Behind, Level, PASSED_ON},
};
use twinscope_report::{CauseKind, Origin, Verdict};

/// One rule: when it holds, and what follows from it.
pub(super) struct Rule {
    pub(super) reason: Reason,
    pub(super) holds: fn(&Case<'_>) -> bool,
    pub(super) then: Decision,
}

/// What a rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// What size alone said.
    AsBySize,
    Rounding,
    /// Rounding that an op amplified: it passes on more than its own.
    Amplified,
    Own,
    Inherited,
}

/// Asked from the first to the last. A pair that no rule is about stays as size judged it.
pub(super) const RULES: &[Rule] = &[
    Rule {
        reason: Reason {
            name: "tolerance",
            why: "The user's --rtol and --atol are final: no evidence makes a pair diverge that is within them.",
        },
        holds: |case| case.has_tolerance() && case.by_size.verdict().agrees(),
        then: Decision::AsBySize,
    },
    Rule {
        reason: Reason {
            name: "unreduced",
            why: "The ranks' parts add up to the reference, but the next op was computed from one part: the all-reduce is missing.",
        },
        holds: |case| case.by_size.verdict().agrees() && case.own_evidence().is_unreduced,
        then: Decision::Own,
    },
    Rule {
        reason: Reason {
            name: "settled",
            why: "Equal values need no evidence, and what was not compared has none.",
        },
        holds: |case| {
            !matches!(
                case.by_size.verdict(),
                Verdict::Rounding | Verdict::Diverged
            )
        },
        then: Decision::AsBySize,
    },
    Rule {
        reason: Reason {
            name: "hidden_fault",
            why: "The difference is within the noise from upstream, but a proven cause names a fault of the op itself.",
        },
        holds: |case| {
            case.is_rounding() && (case.is_fault_below_noise() || case.own_evidence().is_capped)
        },
        then: Decision::Own,
    },
    Rule {
        reason: Reason {
            name: "rounding",
            why: "Nothing speaks against rounding.",
        },
        holds: |case| case.is_rounding(),
        then: Decision::AsBySize,
    },
    Rule {
        reason: Reason {
            name: "nan_passed_on",
            why: "A NaN among the inputs makes what follows NaN, wherever a kernel spreads it; what is still a number follows the op.",
        },
        holds: |case| case.is_nan_from_inputs(),
        then: Decision::Inherited,
    },
    Rule {
        reason: Reason {
            name: "follows",
            why: "The candidate is what its own inputs imply, and they diverged.",
        },
        holds: |case| case.follows() && case.inputs_diverged(),
        then: Decision::Inherited,
    },
    Rule {
        reason: Reason {
            name: "amplified",
            why: "The candidate is what its own inputs imply, and they agree: the op amplified their rounding.",
        },
        holds: |case| case.is_amplified_rounding() && !case.has_tolerance(),
        then: Decision::Amplified,
    },
    Rule {
        reason: Reason {
            name: "breaks_formula",
            why: "The op that makes the reference does not make the candidate from its own inputs.",
        },
        holds: |case| case.made_by().is_some() && !case.follows(),
        then: Decision::Own,
    },
    Rule {
        reason: Reason {
            name: "behind_amplified",
            why: "Nothing diverged before, and it is no further off than what an op made of amplified rounding.",
        },
        holds: |case| {
            case.made_by().is_none()
                && !case.diverged_before
                && !case.is_nonfinite()
                && !case.has_tolerance()
                && is_given(&case.pair().measures, &case.amplified)
        },
        then: Decision::Rounding,
    },
    Rule {
        reason: Reason {
            name: "nothing_before",
            why: "Nothing computed before it diverged, so there is nothing to inherit from.",
        },
        holds: |case| case.made_by().is_none() && !case.diverged_before,
        then: Decision::Own,
    },
    Rule {
        reason: Reason {
            name: "chosen_ids",
            why: "Integers are chosen by what was computed before them, and rows are gathered by integers: other ids give other values, however far off.",
        },
        holds: |case| case.made_by().is_none() && case.is_by_ids(),
        then: Decision::Inherited,
    },
    Rule {
        reason: Reason {
            name: "second_fault",
            why: "It is off by more than an op makes of its inputs' errors, or a proven cause leaves no more than those.",
        },
        holds: |case| case.made_by().is_none() && case.is_second_fault(),
        then: Decision::Own,
    },
    Rule {
        reason: Reason {
            name: "within_reach",
            why: "It is far larger than the errors before, but an op can make that of them, and no cause is proven.",
        },
        holds: |case| {
            case.made_by().is_none()
                && case.by_size.origin() == Some(Origin::Own)
                && case.is_within_reach()
        },
        then: Decision::Inherited,
    },
];

/// A cause explains nearly all of an op's own error.
const NEARLY_ALL: f64 = 0.9;

/// Pairs before one among which the divergence is looked for that chose its integers.
const IDS_BEFORE: usize = 8;

/// A cause of a kind that errors from upstream can imitate must explain this much of what is beyond the inputs' error.
const MOST_OF_IT: f64 = 0.8;

/// Below this many elements a proven cause may be a coincidence.
const FEW: usize = 64;

/// Errors below this share of the largest upstream error are no fault of their own.
const TRACE: f64 = 1e-3;

/// One pair with all that is known when it is judged.
pub(super) struct Case<'a> {
    pub(super) at: usize,
    pub(super) pairs: &'a [JudgedPair],
    pub(super) levels: &'a [Level],
    pub(super) evidence: &'a [PairEvidence],
    pub(super) by_size: &'a Judgement,
    /// Of the pairs before it.
    pub(super) judged: &'a [Judgement],
    /// Something computed before it diverged.
    pub(super) diverged_before: bool,
    /// The largest errors that turned out to be amplified rounding: what comes after was given them.
    pub(super) amplified: Measures,
}

impl Case<'_> {
    /// The judgement by the first rule that holds. A pair that stays as size judged it keeps that reason.
    pub(super) fn judge(&self) -> (Judgement, Decision) {
        let Some(rule) = RULES.iter().find(|rule| (rule.holds)(self)) else {
            return (self.by_size.clone(), Decision::AsBySize);
        };
        let (verdict, origin) = match rule.then {
            Decision::AsBySize => return (self.by_size.clone(), Decision::AsBySize),
            Decision::Rounding | Decision::Amplified => (Verdict::Rounding, None),
            Decision::Own => (Verdict::Diverged, Some(Origin::Own)),
            Decision::Inherited => (Verdict::Diverged, Some(Origin::Inherited)),
        };
        let judgement = Judgement::new(verdict, origin, None, rule.reason);
        (judgement, rule.then)
    }

    fn pair(&self) -> &JudgedPair {
        &self.pairs[self.at]
    }

    fn own_evidence(&self) -> &PairEvidence {
        &self.evidence[self.at]
    }

    fn made_by(&self) -> Option<&MadeBy> {
        self.own_evidence().made_by.as_ref()
    }

    fn is_rounding(&self) -> bool {
        self.by_size.verdict() == Verdict::Rounding
    }

    fn has_tolerance(&self) -> bool {
        let totals = self.pair().totals.as_ref();
        totals.is_some_and(|totals| totals.beyond.is_some())
    }

    fn is_nonfinite(&self) -> bool {
        upstream::is_nonfinite(self.pair())
    }

    /// As it is judged by now; a weight recorded behind what takes it, by size.
    fn is_diverged(&self, at: usize) -> bool {
        let judged = self.judged.get(at).unwrap_or(&self.pairs[at].judgement);
        judged.verdict() == Verdict::Diverged
    }

    /// Diverged and computed: a wrong parameter is loaded anew everywhere, what was computed wrongly is passed on.
    fn passes_on(&self, at: usize) -> bool {
        self.is_diverged(at) && !self.pairs[at].parameter
    }

    /// The candidate is what its inputs imply, and follows no other formula.
    fn follows(&self) -> bool {
        self.made_by()
            .is_some_and(|made_by| made_by.follows() && !made_by.follows_alternative)
    }

    fn inputs_diverged(&self) -> bool {
        self.made_by()
            .is_some_and(|made_by| made_by.inputs.iter().any(|input| self.is_diverged(*input)))
    }

    /// A NaN that appears here is no rounding, whatever the inputs imply.
    fn is_amplified_rounding(&self) -> bool {
        self.follows() && !self.inputs_diverged() && !self.is_nonfinite()
    }

    fn is_nan_from_inputs(&self) -> bool {
        self.is_nonfinite()
            && self.made_by().is_some_and(|made_by| {
                made_by.finite_part_follows
                    && made_by
                        .inputs
                        .iter()
                        .any(|input| upstream::is_nonfinite(&self.pairs[*input]))
            })
    }

    /// Another formula that the candidate follows, or a cause that explains what is far beyond the op's own rounding. Not where the inputs
    /// diverged: an output that agrees all the same undoes their difference.
    fn is_fault_below_noise(&self) -> bool {
        let Some(made_by) = self.made_by().filter(|_| !self.inputs_diverged()) else {
            return false;
        };
        let named = self
            .own_evidence()
            .own_error
            .as_ref()
            .is_some_and(|cause| cause.explained > Some(NEARLY_ALL));
        made_by.follows_alternative || (upstream::is_far(made_by) && named)
    }

    fn is_integer(&self, at: usize) -> bool {
        unit_roundoff(self.pairs[at].judged_by[0]).is_none()
    }

    /// By recorded lineage, or where there is none, by what is near.
    fn is_by_ids(&self) -> bool {
        if let Some(inputs) = &self.own_evidence().recorded_inputs {
            let mut diverged = inputs.iter().filter(|input| self.is_diverged(**input));
            return diverged.any(|input| self.is_integer(self.at) || self.is_integer(*input));
        }
        let mut just_before = self.at.saturating_sub(IDS_BEFORE)..self.at;
        let gathered_by = &self.own_evidence().gathered_by;
        (self.is_integer(self.at) && just_before.any(|at| self.passes_on(at)))
            || gathered_by.iter().any(|ids| self.is_diverged(*ids))
    }

    fn behind(&self) -> Option<Behind> {
        let is_known = |at: usize| self.evidence[at].made_by.is_some();
        upstream::behind(self.levels, self.at, is_known)
    }

    fn elements(&self) -> usize {
        elements(self.pair())
    }

    /// A pair behind a divergence, of an op that is not known, is a fault of its own when a cause leaves what its inputs gave it, and no
    /// more; or when it is off by more than an op makes of its inputs' errors.
    fn is_second_fault(&self) -> bool {
        let Some(behind) = self.behind() else {
            return false;
        };
        let found = self.pair().measures;
        if upstream::is_strange(&found, &behind.around) || self.own_evidence().became_zero {
            return true;
        }
        let Some(cause) = &self.own_evidence().beyond_inputs else {
            return false;
        };
        let exceeds = |level: Measures, measure: usize| found[measure] > PASSED_ON * level[measure];
        let is_beyond = match cause.kind {
            // A place proves nothing on its own: an upstream fault in the same head or token looks the same. It must be further off than
            // anything before.
            CauseKind::Localized => exceeds(behind.anywhere, 0) || exceeds(behind.anywhere, 2),
            // The reference has no such copy.
            CauseKind::WrongTensor if cause.copies_own_run => true,
            _ => exceeds(behind.since_known, 0) || cause.kind.shows_levels(),
        };
        // Of a few values, some are always more off than others; and behind what is entirely wrong, a trace of it is no fault.
        let is_sure = cause.kind.is_unmistakable()
            || (cause.explained >= Some(MOST_OF_IT)
                && self.elements() >= FEW
                && found[0] > TRACE * behind.anywhere[0]);
        // A NaN spreads, and what an op does not undo it passes on.
        is_beyond && is_sure && cause.kind != CauseKind::Nonfinite && !cause.is_echo
    }

    /// Whether an error that is far larger than those before may be what an op makes of them all the same, and nothing says otherwise.
    fn is_within_reach(&self) -> bool {
        if !upstream::may_be_within_reach(self.pairs, self.levels, self.at) {
            return false;
        }
        // A place is no reason to believe that it began there.
        let plain = self.own_evidence().plain.as_ref();
        let named = plain.is_some_and(|cause| cause.kind != CauseKind::Localized);
        !(named && self.elements() >= FEW)
    }
}

/// Whether an op may have made such errors of those it was given. Not more than once: what it makes of them is no new level.
fn is_given(found: &Measures, level: &Measures) -> bool {
    found
        .iter()
        .zip(level)
        .all(|(found, level)| *found <= PASSED_ON * level)
}

fn elements(pair: &JudgedPair) -> usize {
    let shape = pair.shape.as_ref();
    let elements = shape.map_or(0, |shape| {
        shape.dims().iter().map(|dim| *dim as usize).product()
    });
    elements * pair.dtypes[0].values_per_element()
}
