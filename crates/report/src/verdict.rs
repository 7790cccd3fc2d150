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
