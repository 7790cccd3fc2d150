//! Everything a user can choose about a comparison, as one value: from flags, from `--config FILE`, from the page.
//!
//! The file is TOML (JSON is read too); `--save-config` writes what was used, defaults included. Unknown keys are an error, so that a
//! typing mistake is not a silent default.

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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Rules in the order they are tried; what one rule pairs, the next ones do not see. Manual pairs always come first.
    pub rules: Vec<Rule>,
    /// Regexes with named groups; tensors whose groups are equal are a pair.
    pub patterns: Vec<Pattern>,
    /// Programs asked for pairs (`--match exec:PROG`).
    pub plugins: Vec<String>,
    /// How alike two names must be for `fuzzy`, 0 to 1.
    pub fuzzy_threshold: f64,
    /// Candidate layer minus reference layer, when the user knows it.
    pub layer_offset: Option<i64>,
    /// Pairs the user decided (`--map`).
    pub map: Vec<MapEntry>,
    /// Layouts the user decided (`--layout 'NAME: permute(0,2,1) squeeze(0)'`).
    pub layouts: Vec<LayoutOverride>,
    /// Only tensors whose name, on either side, matches one of these globs; empty means all.
    pub only: Vec<String>,
    pub skip: Vec<String>,
    /// NumPy's rule instead of the noise model, when either is given.
    pub rtol: Option<f64>,
    pub atol: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Applied to reference names, and to candidate names unless `candidate` is given.
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
}

/// One pair by name. More than one name on a side: the parts, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapEntry {
    pub reference: Names,
    pub candidate: Names,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Names {
    One(String),
    Many(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutOverride {
    /// A glob over reference names.
    pub name: String,
    /// `permute(0,2,1) squeeze(0)`
    pub steps: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: vec![
                Rule::LayerStage,
                Rule::Exact,
                Rule::Normalized,
                Rule::Pattern,
                Rule::Plugin,
                Rule::Fuzzy,
                Rule::Shape,
                Rule::Values,
            ],
            patterns: Vec::new(),
            plugins: Vec::new(),
            // Below this, names that share only `weight` and a layer number begin to pair.
            fuzzy_threshold: 0.8,
            layer_offset: None,
            map: Vec::new(),
            layouts: Vec::new(),
            only: Vec::new(),
            skip: Vec::new(),
            rtol: None,
            atol: None,
        }
    }
}
