//! How the candidate was made comparable: the steps as data, and what they rest on. `compare::layout` finds and applies them.

use crate::Known;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The steps that bring both sides to one shape, in words and as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Layout {
    pub text: String,
    #[schema(value_type = Vec<Object>)]
    pub steps: Vec<Step>,
    /// `shape`, `values`, `declared` or `user`
    #[schema(value_type = String)]
    pub by: Known<Evidence>,
}

/// One step. Steps are applied in order, so `axis` counts the dimensions that the steps before it have left. A step without a side
/// applies to the candidate. While a side consists of several parts, a step applies to each of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "step")]
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
    /// Concatenate every `parts` consecutive parts along an axis.
    Concat {
        side: Which,
        axis: usize,
        parts: usize,
    },
    /// Add up every `parts` consecutive parts: partial sums of tensor-parallel ranks.
    Sum {
        side: Which,
        parts: usize,
    },
    /// Keep only these parts, in this order: ranks that hold copies are read once.
    Keep {
        side: Which,
        parts: Vec<usize>,
        /// For each original part, the index in `parts` of the one that it is a copy of. Empty when unknown.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        of: Vec<usize>,
        #[serde(default)]
        why: KeepReason,
        /// The parts that differ from most copies of the same tensor.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        differ: Vec<usize>,
    },
    /// Split every part into several along an axis: the queries, keys and values of one rank.
    Divide {
        side: Which,
        axis: usize,
        sizes: Vec<u64>,
    },
    /// Keep only this range of an axis: the slice of one rank, or everything but padding.
    Cut {
        side: Which,
        axis: usize,
        start: u64,
        len: u64,
        why: CutReason,
    },
    /// Reorder the indices of an axis.
    Reorder {
        side: Which,
        axis: usize,
        order: Order,
    },
    /// Flatten both sides to one dimension: the last resort.
    Flatten,
}

/// The order that an axis is in, which says how to undo it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Order {
    /// Rank `r` of `n` holds chunks `r` and `2n - 1 - r` of the sequence (context parallelism). The step sorts the chunks.
    Zigzag { ranks: u64 },
    /// Interleaved by group, each with its share of every piece (`[kv, q per kv + 2, d]`). The step makes the pieces contiguous.
    Unpack { groups: u64, sizes: Vec<u64> },
    /// The inverse of `Unpack`: contiguous pieces of these sizes become groups with a share of each.
    Pack { groups: u64, sizes: Vec<u64> },
}

/// The side that a step applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    Reference,
    Candidate,
}

/// Why only a range is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutReason {
    RankZero,
    /// The range whose values agree: another rank's slice, the last token.
    Found,
    Padding,
    User,
}

/// Why parts are dropped or reordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepReason {
    /// The other parts hold equal values; they were compared.
    #[default]
    Copies,
    /// The copies differ. The one furthest from the other side is kept, so that the difference is not hidden.
    Furthest,
    /// All parts are kept, in the declared order.
    Order,
    User,
}

/// What the choice of steps rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    Shape,
    Values,
    Declared,
    User,
}

impl Step {
    /// The side that the step changes; `Flatten` changes both.
    pub fn side(&self) -> Which {
        match self {
            Step::Concat { side, .. }
            | Step::Sum { side, .. }
            | Step::Keep { side, .. }
            | Step::Divide { side, .. }
            | Step::Cut { side, .. }
            | Step::Reorder { side, .. } => *side,
            Step::Squeeze { .. }
            | Step::Unsqueeze { .. }
            | Step::Permute { .. }
            | Step::Split { .. }
            | Step::Merge { .. }
            | Step::Flatten => Which::Candidate,
        }
    }
}

impl Evidence {
    pub const ALL: [Self; 4] = [Self::Shape, Self::Values, Self::Declared, Self::User];

    pub fn name(self) -> &'static str {
        match self {
            Self::Shape => "shape",
            Self::Values => "values",
            Self::Declared => "declared",
            Self::User => "user",
        }
    }
}
