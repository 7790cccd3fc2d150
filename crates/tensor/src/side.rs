//! Which of the two runs of a comparison.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One of the two runs that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Reference,
    Candidate,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Reference, Self::Candidate];

    /// The word in documents and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Candidate => "candidate",
        }
    }

    /// The other run.
    pub fn other(self) -> Self {
        match self {
            Self::Reference => Self::Candidate,
            Self::Candidate => Self::Reference,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
