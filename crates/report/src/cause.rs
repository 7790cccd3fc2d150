//! Why a pair differs.

use crate::{CauseKind, Details};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// One sentence on why a pair differs, with what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Cause {
    pub kind: CauseKind,
    /// Which share of the difference it explains; `None` when that is undefined.
    #[schema(required = true)]
    pub explained: Option<f64>,
    pub text: String,
    #[schema(value_type = Object)]
    pub details: Details,
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// The kind says how to read the details.
        #[derive(Deserialize)]
        struct Raw {
            kind: CauseKind,
            explained: Option<f64>,
            text: String,
            #[serde(default)]
            details: serde_json::Value,
        }
        let raw = Raw::deserialize(deserializer)?;
        Ok(Self {
            details: Details::of(&raw.kind, raw.details),
            kind: raw.kind,
            explained: raw.explained,
            text: raw.text,
        })
    }
}
