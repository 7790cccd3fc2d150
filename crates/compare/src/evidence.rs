//! What the causes found out about each pair: the types that `explain` fills in and the judge reads. No logic, no verdict.

use crate::{judged::JudgedPair, noise::Measures, plan::Plan, side::Side};
use twinscope_report::{Cause, CauseKind};

/// What is known of one pair beyond its own numbers. The default is that nothing is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairEvidence {
    /// The pairs it was computed from, where the run says so.
    pub recorded_inputs: Option<Vec<usize>>,
    /// The op that makes the reference of recorded tensors, and whether the candidate follows it.
    pub made_by: Option<MadeBy>,
    /// The candidate is a softcap of the reference, and a cause is proven.
    pub is_capped: bool,
    /// The ranks' parts add up to the reference, but the op that takes them was computed from one part.
    pub is_unreduced: bool,
    /// Integer pairs nearby whose differing rows are the only rows that differ here: ids that chose what was gathered.
    pub gathered_by: Vec<usize>,
    /// The candidate is zero everywhere, and the tensor before it is not.
    pub became_zero: bool,
    /// The best cause, when it is proven with errors as large as the inputs' taken for noise.
    pub beyond_inputs: Option<ProvenCause>,
    /// The best cause between reference and candidate, when it is proven.
    pub plain: Option<ProvenCause>,
    /// The best cause between what the candidate's own inputs imply and what it is, when it is proven.
    pub own_error: Option<ProvenCause>,
}

/// How a tensor was computed.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeBy {
    /// The pairs that the op takes.
    pub inputs: Vec<usize>,
    /// How far the candidate is from what its own inputs imply, and how far rounding can be.
    pub off: Measures,
    pub bound: Measures,
    /// The candidate follows another formula, which the reference does not.
    pub follows_alternative: bool,
    /// The op adds terms: a sum can hide a small difference, but does not undo it.
    pub is_sum: bool,
    /// Where both sides are finite, the candidate is what its inputs imply.
    pub finite_part_follows: bool,
}

impl MadeBy {
    /// Whether the candidate is what its own inputs imply.
    pub fn follows(&self) -> bool {
        self.off
            .iter()
            .zip(self.bound)
            .all(|(off, bound)| *off <= bound)
    }
}

/// A cause that leaves only rounding.
#[derive(Clone, Debug, PartialEq)]
pub struct ProvenCause {
    pub kind: CauseKind,
    pub explained: Option<f64>,
    /// The candidate is another tensor of its own run, which the reference's is not.
    pub copies_own_run: bool,
    /// An earlier divergence has the same cause, so an op may only have passed it on.
    pub is_echo: bool,
}

/// Finds evidence. `compare` never names the crate that does.
pub trait Explain: Sync {
    /// Begins to look into measured pairs, which are judged by size so far.
    fn investigate<'a>(
        &self,
        plan: &'a Plan,
        reference: &'a Side<'a>,
        candidate: &'a Side<'a>,
        pairs: &[JudgedPair],
    ) -> Box<dyn Investigation + 'a>;
}

/// One comparison that is being looked into.
pub trait Investigation {
    /// What is known of every pair, in their order.
    fn evidence(&self) -> &[PairEvidence];

    /// Why a pair differs, best first. Errors up to `given`, which came with the inputs, are taken for noise.
    fn causes(&self, pair: usize, given: Option<Measures>) -> Vec<Cause>;
}
