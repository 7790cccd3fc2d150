//! Which rule made a pair.

use crate::Known;
use serde::{Deserialize, Serialize};

/// A rule that pairs tensors. The names are the contract's, in `--match` and in every pair's `rule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    Manual,
    LayerStage,
    Exact,
    Normalized,
    Pattern,
    Plugin,
    Fuzzy,
    Shape,
    Values,
}

impl Rule {
    pub const ALL: [Self; 9] = [
        Self::Manual,
        Self::LayerStage,
        Self::Exact,
        Self::Normalized,
        Self::Pattern,
        Self::Plugin,
        Self::Fuzzy,
        Self::Shape,
        Self::Values,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::LayerStage => "layer_stage",
            Self::Exact => "exact",
            Self::Normalized => "normalized",
            Self::Pattern => "pattern",
            Self::Plugin => "plugin",
            Self::Fuzzy => "fuzzy",
            Self::Shape => "shape",
            Self::Values => "values",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }
}

impl Known<Rule> {
    pub fn name(&self) -> &str {
        match self {
            Known::Is(rule) => rule.name(),
            Known::Other(name) => name,
        }
    }
}
