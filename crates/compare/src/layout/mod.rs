//! How two tensors line up: the steps that make the candidate's shape the reference's, kept so that they can be read and repeated.
//!
//! Equal shapes need no steps, whatever the values say: a rearrangement that would make them agree is then a cause, not a layout.

use serde::Serialize;
use twinscope_tensor::{Operand, Shape};

/// One step, applied to the candidate (or to the parts of the side that has several).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "step")]
#[non_exhaustive]
pub enum Step {
    /// Drop a dimension of one element.
    Squeeze {
        axis: usize,
    },
    /// Add a dimension of one element.
    Unsqueeze {
        axis: usize,
    },
    Permute {
        order: Vec<usize>,
    },
    /// `[.., h*d, ..]` to `[.., h, d, ..]`
    Split {
        axis: usize,
        sizes: Vec<u64>,
    },
    /// `count` dimensions from `axis` become one.
    Merge {
        axis: usize,
        count: usize,
    },
    /// The parts one after another.
    Concat {
        side: Which,
        axis: usize,
        parts: usize,
    },
    /// The parts added up: partial sums of the ranks.
    Sum {
        side: Which,
        parts: usize,
    },
    /// Only this range: rank zero's slice, or padding cut off.
    Cut {
        side: Which,
        axis: usize,
        start: u64,
        len: u64,
        why: CutReason,
    },
    /// Indices along an axis in another order: zigzag sequence parallelism, interleaved heads of a packed `qkv`.
    Reorder {
        side: Which,
        axis: usize,
        why: String,
    },
    /// Both as one row: the last resort.
    Flatten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    Reference,
    Candidate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CutReason {
    RankZero,
    Padding,
}

/// What speaks for the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    Shape,
    Values,
    Declared,
    User,
}

/// The steps and what speaks for them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layout {
    /// `[1, 8, 76, 64] -> [76, 8, 64]: drop dim 0, swap dims 0 and 1`; for equal shapes just the shape.
    pub text: String,
    pub steps: Vec<Step>,
    pub by: Evidence,
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
#[error("{reference:?} and {candidate:?} cannot be lined up")]
pub struct Incomparable {
    pub reference: Vec<Shape>,
    pub candidate: Vec<Shape>,
}
