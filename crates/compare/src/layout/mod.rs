//! How two tensors line up: the steps that make the candidate's shape the reference's, kept so that they can be read and repeated.
//!
//! Equal shapes need no steps, whatever the values say: a rearrangement that would make them agree is then a cause, not a layout.
//! Otherwise [`align`] lists the steps that shapes allow (`permute`, `ranks`) and the values choose among them (`sample`): a
//! bounded number of elements is read, wherever they lie. [`apply`] repeats steps that were found elsewhere.

mod align;
mod copies;
mod dims;
mod parse;
mod permute;
mod ranks;
mod sample;
mod steps;
#[cfg(test)]
mod tests;
mod words;

pub use align::align;
pub(crate) use copies::settle;
pub use dims::{Dims, DimsError};
pub use parse::{StepsError, parse_steps};
pub use steps::apply;

use serde::{Deserialize, Serialize};
pub use twinscope_report::layout::{CutReason, Evidence, KeepReason, Order, Step, Which};
use twinscope_tensor::{Operand, ReadError, Shape};

/// The steps and what speaks for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// `[1, 8, 76, 64] -> [76, 8, 64]: drop dim 0, swap dims 0 and 1`; for equal shapes just the shape.
    pub text: String,
    pub steps: Vec<Step>,
    pub by: Evidence,
}

/// What is known about the two sides beyond their shapes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// Steps the user decided ([`parse_steps`]): taken as they are. `parts: 0` stands for all parts.
    pub user: Option<Vec<Step>>,
    pub reference: SideHints,
    pub candidate: SideHints,
    /// Unequal shapes are incomparable, as when every tensor of one source is compared with every other.
    pub only_equal: bool,
    /// What the names say of equal shapes.
    pub convention: Option<Convention>,
}

/// Equal shapes that the names say are not written alike. The values must say so too: a fault is no convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// One side's matrices are `[in, out]`, the other's `[out, in]`: a `kernel` beside a `weight`.
    Turned,
    /// The same of a square matrix among others that are all turned: it must be, whatever its values say. One that is not was forgotten.
    AllTurned,
    /// Queries, keys and values of one side are interleaved by groups of heads (Megatron's `linear_qkv`), those of the other one after
    /// another.
    Interleaved(Which),
}

/// What is known about one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideHints {
    pub dims: Option<Dims>,
    /// Parallel axes and their sizes, the slowest first, as the parts are ordered: `[("cp", 2), ("tp", 4)]`.
    pub ranks: Vec<(String, usize)>,
    pub parts: Parts,
}

/// What several views on one side are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parts {
    #[default]
    Unknown,
    /// Shards, partial sums or copies, in rank order.
    Ranks,
    /// Different tensors that the other side has fused: `q`, `k`, `v`.
    Pieces,
    /// The same, each as so many ranks' shards: all of `q`, all of `k`, all of `v`.
    RanksOfPieces(usize),
}

/// Two sides of one shape.
pub struct Aligned {
    pub reference: Box<dyn Operand>,
    pub candidate: Box<dyn Operand>,
    pub layout: Layout,
}

impl std::fmt::Debug for Aligned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Aligned({})", self.layout.text)
    }
}

/// No steps make the shapes equal.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{} and {} cannot be lined up", words::shapes(.reference), words::shapes(.candidate))]
pub struct Incomparable {
    pub reference: Vec<Shape>,
    pub candidate: Vec<Shape>,
}

/// Why two sides are not lined up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    #[error(transparent)]
    Incomparable(#[from] Incomparable),
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Steps that were given, by a user or by a plan, do not fit.
    #[error("step {}, {step}, does not fit {}", .nth + 1, words::shapes(.shapes))]
    Step {
        nth: usize,
        step: String,
        shapes: Vec<Shape>,
    },
    #[error("the steps leave {} and {}, which are not one shape", words::shapes(.reference), words::shapes(.candidate))]
    Unequal {
        reference: Vec<Shape>,
        candidate: Vec<Shape>,
    },
}
