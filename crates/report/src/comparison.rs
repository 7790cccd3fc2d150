//! The comparison of two sources: what `diff --json` prints. A finished session, an imported report and a running comparison are all
//! this type, so nothing depends on which of them a pair came from.

use crate::{Cause, Known, Layout, Names, Origin, Overall, Rule, Totals, Verdict};
use serde::{Deserialize, Serialize};
use twinscope_tensor::FindingKind;
use utoipa::ToSchema;

/// Two tensors judged to be the same one, measured and judged.
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
    /// Why the pair was not measured.
    #[serde(default)]
    #[schema(required = true)]
    pub reason: Option<String>,
    /// The same for programs. Not in the JSON, so `None` in a report that was read from it.
    #[serde(skip)]
    pub unmeasured: Option<Unmeasured>,
}

/// Why a pair was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmeasured {
    /// The shapes cannot be lined up.
    Shapes,
    Unreadable,
    /// The comparison was stopped before its turn.
    Stopped,
    /// There are too many pairs: this one was only ranked, by a sketch of its values.
    Ranked,
}

impl Pair {
    /// Identifies the pair in a pinned order and in links, across revisions.
    pub fn key(&self) -> String {
        format!(
            "{} = {}",
            self.reference.all().join(" + "),
            self.candidate.all().join(" + ")
        )
    }
}

/// A tensor without a partner, and the most similar one of the other side.
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

/// Something unsafe, odd or missing in a source.
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

/// The first pair that diverged by itself.
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
    /// Per side, the dtype that the run was computed in, when its values were recorded in a wider one.
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

/// The version of the format. Reports with another number cannot be read.
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
