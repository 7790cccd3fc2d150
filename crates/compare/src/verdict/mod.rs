//! The judge: the only place where facts and evidence become a verdict.
//!
//! Each pair is judged by size first ([`size`]), in execution order. Where causes were looked for, the rules of [`rules`] go over all pairs
//! again with what was found out. Last, divergences that later ops undo are harmless ([`harmless`]). A [`Judgement`] can be made nowhere else:
//! its fields are private and its one constructor is private to this folder.

mod harmless;
mod rules;
mod size;
#[cfg(test)]
mod tests;

pub use harmless::forgive;
pub use size::{Facts, Judge};
pub use twinscope_report::{Origin, Overall, Verdict};

use crate::{
    evidence::PairEvidence,
    judged::JudgedPair,
    noise::Measures,
    upstream::{self, Level},
};
use rules::{Case, Decision};

/// The opinion on one pair, and the rule it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    verdict: Verdict,
    origin: Option<Origin>,
    agrees_at: Option<String>,
    reason: Reason,
}

/// The rule that a judgement rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reason {
    name: &'static str,
    /// One sentence for people who ask why.
    why: &'static str,
}

const NOT_COMPARED: Reason = Reason {
    name: "not_compared",
    why: "The shapes do not line up, a side cannot be read, or its turn did not come.",
};

impl Judgement {
    fn new(
        verdict: Verdict,
        origin: Option<Origin>,
        agrees_at: Option<String>,
        reason: Reason,
    ) -> Self {
        Self {
            verdict,
            origin,
            agrees_at,
            reason,
        }
    }

    /// A pair without numbers: its shapes do not line up, it cannot be read, or its turn did not come.
    pub(crate) fn not_compared() -> Self {
        Self::new(Verdict::Incomparable, None, None, NOT_COMPARED)
    }

    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Where a divergence began; `None` for every other verdict.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Of a harmless pair, the tensor downstream where both sides agree again.
    pub fn agrees_at(&self) -> Option<&str> {
        self.agrees_at.as_deref()
    }

    /// The name of the rule that decided.
    pub fn rule(&self) -> &'static str {
        self.reason.name
    }

    /// Why it decided so, in one sentence.
    pub fn why(&self) -> &'static str {
        self.reason.why
    }

    pub fn is_own_divergence(&self) -> bool {
        self.verdict == Verdict::Diverged && self.origin == Some(Origin::Own)
    }
}

/// Judges pairs that were judged by size again, with evidence.
pub fn settle(pairs: &[JudgedPair], evidence: &[PairEvidence]) -> Vec<Judgement> {
    let levels: Vec<Level> = pairs.iter().map(Level::of).collect();
    let mut judged: Vec<Judgement> = Vec::with_capacity(pairs.len());
    let mut amplified: Measures = [0.0; 4];
    let mut diverged_before = false;
    for (at, pair) in pairs.iter().enumerate() {
        let case = Case {
            at,
            pairs,
            levels: &levels,
            evidence,
            by_size: &pair.judgement,
            judged: &judged,
            diverged_before,
            amplified,
        };
        let (judgement, decision) = case.judge();
        if decision == Decision::Amplified {
            amplified = upstream::max(&amplified, &pair.measures);
        }
        // A wrong parameter is loaded anew everywhere; what was computed wrongly is passed on.
        diverged_before |= judgement.verdict == Verdict::Diverged && !pair.parameter;
        judged.push(judgement);
    }
    judged
}

/// The opinion on the whole: `agree` when every pair does, `diverged` when any pair is, `incomparable` when neither can be said.
pub fn overall<'a>(judged: impl Iterator<Item = &'a Judgement> + Clone) -> Overall {
    let any = |verdict: Verdict| judged.clone().any(|judged| judged.verdict == verdict);
    if any(Verdict::Diverged) {
        Overall::Diverged
    } else if judged.clone().next().is_none() || any(Verdict::Incomparable) {
        Overall::Incomparable
    } else {
        Overall::Agree
    }
}
