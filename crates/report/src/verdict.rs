//! The words of a judgement. Only `compare::verdict` decides which of them applies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The opinion on one pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Identical,
    Rounding,
    Harmless,
    Diverged,
    Incomparable,
}

impl Verdict {
    pub const ALL: [Self; 5] = [
        Self::Identical,
        Self::Rounding,
        Self::Harmless,
        Self::Diverged,
        Self::Incomparable,
    ];

    pub fn agrees(self) -> bool {
        matches!(
            self,
            Verdict::Identical | Verdict::Rounding | Verdict::Harmless
        )
    }

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Identical => "identical",
            Verdict::Rounding => "rounding",
            Verdict::Harmless => "harmless",
            Verdict::Diverged => "diverged",
            Verdict::Incomparable => "incomparable",
        }
    }
}

/// Where a divergence began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Own,
    Inherited,
}

impl Origin {
    pub const ALL: [Self; 2] = [Self::Own, Self::Inherited];

    pub fn name(self) -> &'static str {
        match self {
            Origin::Own => "own",
            Origin::Inherited => "inherited",
        }
    }
}

/// The opinion on the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overall {
    Agree,
    Diverged,
    Incomparable,
}

impl Overall {
    pub const ALL: [Self; 3] = [Self::Agree, Self::Diverged, Self::Incomparable];

    pub fn name(self) -> &'static str {
        match self {
            Overall::Agree => "agree",
            Overall::Diverged => "diverged",
            Overall::Incomparable => "incomparable",
        }
    }
}
