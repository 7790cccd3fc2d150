//! What a hypothesis sees and what it answers.

use super::{Loaded, Scene};
use std::borrow::Cow;
use twinscope_compare::noise::Measures;
use twinscope_ops::sampling::splitmix;
use twinscope_report::{CauseKind, Details};
use twinscope_tensor::DType;

/// One pair under examination. `reference` is what the candidate should be: the reference itself, or, where an earlier fault has already
/// changed the inputs, the op recomputed from the candidate's own inputs.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub pair: usize,
    pub dims: &'a [usize],
    pub reference: &'a [f64],
    pub candidate: &'a [f64],
    pub dtypes: [DType; 2],
    /// Relative differences up to here are rounding, by the four measures of [`twinscope_compare::noise`].
    pub noise: Measures,
    pub scene: &'a Scene<'a>,
}

impl<'a> Case<'a> {
    pub fn new(scene: &'a Scene<'a>, pair: usize, loaded: &'a Loaded) -> Self {
        let entry = &scene.entries()[pair];
        Self {
            pair,
            dims: &loaded.dims,
            reference: &loaded.reference,
            candidate: &loaded.candidate,
            dtypes: entry.dtypes,
            noise: entry.noise,
            scene,
        }
    }

    /// Whether an element may be used to fit. The others score: a fit must explain what it has not seen. Half of every row, column and
    /// slice, by a hash, so that no pattern of the tensor meets the pattern of the choice.
    pub fn fits(&self, flat: usize) -> bool {
        splitmix(flat as u64) & 1 == 0
    }

    /// Axes longer than one, outermost first.
    pub fn axes(&self) -> impl Iterator<Item = usize> {
        (0..self.dims.len()).filter(|axis| self.dims[*axis] > 1)
    }

    pub fn difference(&self) -> Vec<f64> {
        self.candidate
            .iter()
            .zip(self.reference)
            .map(|(c, r)| c - r)
            .collect()
    }

    /// Both sides finite everywhere.
    pub fn is_finite(&self) -> bool {
        self.reference
            .iter()
            .chain(self.candidate)
            .all(|value| value.is_finite())
    }
}

/// What an explanation is worth beside another that explains as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The run was recorded wrongly: nothing else can be believed.
    Capture,
    /// What was computed differently.
    Mechanism,
    /// Only where it differs.
    Description,
}

/// A hypothesis with its numbers fitted.
#[derive(Clone, Debug)]
pub struct Explanation {
    pub kind: CauseKind,
    /// One sentence a person understands, starting small: "candidate = reference x 6.93, which is sqrt(48)".
    pub text: String,
    pub details: Details,
    pub class: Class,
    /// How many numbers were fitted; of two that explain all, fewer wins.
    pub freedom: usize,
    /// The candidate as it would be if this were true.
    pub predicted: Predicted,
}

#[derive(Clone, Debug)]
pub enum Predicted {
    /// Every value; scored against the candidate.
    Values(Vec<f64>),
    /// It predicts no values but knows what it explains, from 0 to 1, and whether that is all.
    Share { explained: f64, proven: bool },
}

/// The explanations, or why there is none, in a few words for `explain`: "the rows are no probabilities".
pub type Examined = Result<Vec<Explanation>, Cow<'static, str>>;

/// One thing that may have gone wrong.
pub trait Hypothesis: Sync {
    /// Its name in `explain`.
    fn name(&self) -> &'static str;

    /// Cheap checks first. May return several explanations, of different kinds too; must not return what it knows to be no better than
    /// chance.
    fn examine(&self, case: &Case<'_>) -> Examined;
}
