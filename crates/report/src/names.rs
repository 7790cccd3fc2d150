//! The tensors on one side of a pair.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One name as itself, several as a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "names are a string or a list of strings")]
pub enum Names {
    One(String),
    Many(Vec<String>),
}

impl Names {
    pub fn all(&self) -> &[String] {
        match self {
            Names::One(name) => std::slice::from_ref(name),
            Names::Many(names) => names,
        }
    }
}

impl From<&[String]> for Names {
    fn from(names: &[String]) -> Self {
        match names {
            [one] => Names::One(one.clone()),
            many => Names::Many(many.to_vec()),
        }
    }
}
