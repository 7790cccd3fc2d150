//! One pair in depth: what `explain --json` prints.

use crate::CauseKind;
use crate::{Cause, Pair};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whole tensor, typical slice, worst slice, worst element. Null where JSON has no number for it.
pub type Measures = [Option<f64>; 4];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explained {
    pub schema: u32,
    pub reference: String,
    pub candidate: String,
    pub pair: Pair,
    /// What rounding can do here.
    #[schema(value_type = [Option<f64>; 4])]
    pub noise: Measures,
    pub causes: Vec<Cause>,
    pub attempts: Vec<Attempt>,
    /// How the reference computes this tensor from other recorded ones, when that was found.
    pub formula: Option<String>,
    /// Whether the candidate's own inputs give the candidate by that formula.
    pub follows: Option<bool>,
    /// How far the candidate is from what its own inputs give, and how far rounding alone can be.
    #[schema(value_type = Option<[Option<f64>; 4]>)]
    pub off: Option<Measures>,
    #[schema(value_type = Option<[Option<f64>; 4]>)]
    pub rounding: Option<Measures>,
}

/// One hypothesis, accepted or ruled out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    pub hypothesis: String,
    /// `None` when it does not apply or could not be fitted.
    pub kind: Option<CauseKind>,
    pub explained: Option<f64>,
    /// What it leaves unexplained is rounding.
    pub proven: bool,
    /// The sentence, or why it was ruled out.
    pub text: String,
}
