//! Many comparisons: what `diff --batch FILE --json` prints.

use crate::{Comparison, Overall};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// In the order of the file; null for a comparison without an answer.
    pub reports: Vec<Option<Comparison>>,
    pub summary: Vec<BatchRow>,
}

/// One comparison in the summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchRow {
    pub name: String,
    pub reference: String,
    pub candidate: Option<String>,
    pub verdict: Option<Overall>,
    pub partial: bool,
    pub first_divergence: Option<String>,
    /// Null, like the next two, for a comparison without an answer.
    pub pairs: Option<usize>,
    pub diverged: Option<usize>,
    pub missing: Option<usize>,
    pub exit: u8,
    pub error: Option<String>,
    pub hint: Option<String>,
}
