//! The comparison of two sources: what `diff --json` prints. A finished session, an imported report and a running comparison are all
//! this type, so nothing depends on which of them a pair came from.

use crate::{Known, Layout, Names, Number, Origin, Overall, Rule, Totals, Verdict};
use serde::{Deserialize, Serialize};
use twinscope_tensor::FindingKind;
use utoipa::ToSchema;

/// Why, in one sentence, with what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    pub kind: String,
    #[schema(required = true)]
    pub explained: Option<Number>,
    pub text: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub details: serde_json::Value,
}

/// One pair, as the report has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pair {
    pub name: String,
    pub reference: Names,
    pub candidate: Names,
    pub order: usize,
    #[schema(value_type = String)]
    pub rule: Known<Rule>,
    pub score: f64,
    #[schema(required = true)]
    pub layout: Option<Layout>,
    #[schema(required = true)]
    pub shape: Option<Vec<u64>>,
    pub dtypes: [String; 2],
    pub verdict: Verdict,
    #[schema(required = true)]
    pub agrees_at: Option<String>,
    #[schema(required = true)]
    pub origin: Option<Origin>,
    #[schema(required = true)]
    pub totals: Option<Totals>,
    #[serde(default)]
    #[schema(required = true)]
    pub causes: Vec<Cause>,
    /// What kept it from being measured.
    #[serde(default)]
    #[schema(required = true)]
    pub reason: Option<String>,
    /// The same for programs. Not in the JSON: `None` in a report that was read.
    #[serde(skip)]
    pub unmeasured: Option<Unmeasured>,
}

/// What kept a pair from being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmeasured {
    /// The shapes cannot be lined up.
    Shapes,
    Unreadable,
    /// Stopped before its turn.
    Stopped,
    /// One of too many: ranked by a sketch.
    Ranked,
}

impl Pair {
    /// What a pinned order and a link know a pair by.
    pub fn key(&self) -> String {
        format!(
            "{} = {}",
            self.reference.all().join(" + "),
            self.candidate.all().join(" + ")
        )
    }
}

/// A tensor without its partner, and the nearest one there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Leftover {
    pub name: String,
    #[schema(required = true)]
    pub suggestion: Option<String>,
    #[schema(required = true)]
    pub score: Option<f64>,
}

/// A tensor or member that could not be read, or was left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Skipped {
    pub side: String,
    pub name: String,
    pub reason: String,
}

/// Something a user should know about a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub side: String,
    pub kind: String,
    pub text: String,
}

/// The kind of finding that counts as a tensor without its partner.
pub const MISSING_RANKS: &str = "missing_ranks";

impl Finding {
    /// Whether the source attempted to execute something or to leave its folder.
    pub fn is_attack(&self) -> bool {
        FindingKind::from_name(&self.kind).is_some_and(FindingKind::is_attack)
    }
}

/// The pair where it begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FirstDivergence {
    pub name: String,
    pub pair: usize,
}

/// The whole comparison, as `diff --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Report)]
pub struct Comparison {
    pub schema: u32,
    pub reference: String,
    pub candidate: String,
    pub verdict: Overall,
    pub partial: bool,
    #[schema(required = true)]
    pub first_divergence: Option<FirstDivergence>,
    pub divergences: Vec<usize>,
    pub layer_offset: i64,
    /// Of each side, the coarser dtype that all of it was computed in, where it is recorded in a wider one.
    #[serde(default)]
    #[schema(required = true)]
    pub computed_in: [Option<String>; 2],
    pub pairs: Vec<Pair>,
    pub only_reference: Vec<Leftover>,
    pub only_candidate: Vec<Leftover>,
    #[serde(default)]
    #[schema(required = true)]
    pub skipped: Vec<Skipped>,
    #[serde(default)]
    #[schema(required = true)]
    pub findings: Vec<Finding>,
    #[serde(default)]
    #[schema(required = true)]
    pub left_out: Vec<Skipped>,
}

/// Reports of this schema can be read.
pub const SCHEMA: u32 = 1;

impl Comparison {
    /// The index of the first pair that diverged by itself.
    pub fn first(&self) -> Option<usize> {
        self.first_divergence.as_ref().map(|first| first.pair)
    }

    /// How many pairs have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.pairs
            .iter()
            .filter(|pair| pair.verdict == verdict)
            .count()
    }
}
