//! Words that a newer version may add to.

use serde::{Deserialize, Serialize};

/// A word of this version, or one that only a newer version knows. It is written back as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Known<T> {
    Is(T),
    Other(String),
}

impl<T> From<T> for Known<T> {
    fn from(word: T) -> Self {
        Known::Is(word)
    }
}

impl<T: PartialEq> PartialEq<T> for Known<T> {
    fn eq(&self, other: &T) -> bool {
        matches!(self, Known::Is(word) if word == other)
    }
}
