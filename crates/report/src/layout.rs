//! How the candidate was made comparable: the steps as data, and what they rest on. `compare::layout` finds and applies them.

use crate::Known;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The steps that make the candidate's shape the reference's, in words and as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Layout {
    pub text: String,
    #[schema(value_type = Vec<Object>)]
    pub steps: Vec<Step>,
    /// `shape`, `values`, `declared` or `user`
    #[schema(value_type = String)]
    pub by: Known<Evidence>,
}

/// One step. Steps follow each other: an axis counts the dimensions that the steps before have left. Steps without a side are the
/// candidate's. A side of several parts takes every step in each of its parts, until they are one.
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
    /// Every `parts` parts, one after another.
    Concat {
        side: Which,
        axis: usize,
        parts: usize,
    },
    /// Every `parts` parts added up: partial sums of the ranks.
    Sum {
        side: Which,
        parts: usize,
    },
    /// Only these parts, in this order: ranks that hold the same are read once.
    Keep {
        side: Which,
        parts: Vec<usize>,
        /// Of every part there is, its place among those that are kept: the one that it is a copy of. Empty where nobody says.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        of: Vec<usize>,
        #[serde(default)]
        why: KeepReason,
        /// The parts that are not like most of the copies of the same; empty where all are.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        differ: Vec<usize>,
    },
    /// Every part becomes several along an axis: the queries, keys and values that a rank holds.
    Divide {
        side: Which,
        axis: usize,
        sizes: Vec<u64>,
    },
    /// Only this range: rank zero's slice, or padding cut off.
    Cut {
        side: Which,
        axis: usize,
        start: u64,
        len: u64,
        why: CutReason,
    },
    /// Indices along an axis in another order.
    Reorder {
        side: Which,
        axis: usize,
        order: Order,
    },
    /// Both as one row: the last resort.
    Flatten,
}

/// What order an axis is in, and so how to put it right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Order {
    /// Rank `r` of `n` holds chunks `r` and `2n - 1 - r` of the sequence; the chunks are put in order.
    Zigzag { ranks: u64 },
    /// Every group holds its share of each piece (`[kv, q per kv + 2, d]`); the pieces are put one after another.
    Unpack { groups: u64, sizes: Vec<u64> },
    /// The other way: pieces of these sizes one after another become groups that hold a share of each.
    Pack { groups: u64, sizes: Vec<u64> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    Reference,
    Candidate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutReason {
    RankZero,
    /// Where the values agree: another rank's slice, the last token.
    Found,
    Padding,
    User,
}

/// Why parts are left out, or in another order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepReason {
    /// The others hold the same, which was read.
    #[default]
    Copies,
    /// The others should hold the same and do not: of the copies, the one furthest from the other side is taken.
    Furthest,
    /// All are there, in the order that was declared.
    Order,
    User,
}

/// What speaks for the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    Shape,
    Values,
    Declared,
    User,
}

impl Step {
    /// Which side changes; a flatten changes both.
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
