//! Which tensor is which: a chain of rules, each pair keeping the rule that made it.
//!
//! Manual pairs come first, then the rules in the order the settings give; what one rule pairs, the next ones do not see. Rules look at
//! whole tensors: the shards of the ranks are put together before and taken apart after. Everything ends in exactly one
//! place. `only` and `skip` are applied last, because a pair counts by either of its names.

mod alone;
mod assignment;
#[cfg(test)]
mod chain;
mod coordinates;
mod exact;
mod filter;
mod fuzzy;
mod groups;
mod layer_stage;
mod leftovers;
mod manual;
mod normalized;
mod offset;
mod pattern;
mod plugin;
mod ranks;
#[cfg(test)]
mod reading;
mod rules;
mod sequence;
mod shape;
mod siblings;
mod sketch;
#[cfg(test)]
mod testing;
mod turned;
mod unpaired;
mod values;

pub use alone::{all_pairs, rank_by_sketch};
pub(crate) use coordinates::axes;
pub use plugin::PluginFault;
pub(crate) use ranks::{kind_of_parts, names_rank, rank_of};
pub use sketch::Sketch;

use crate::{Settings, settings::Rule, side::Side};
use serde::{Deserialize, Serialize};

/// Items judged to be the same tensor, by index into each side's items. Several on one side are the parts of one: `q`, `k`, `v` of a
/// fused `qkv`, or the shards of the ranks, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub reference: Vec<usize>,
    pub candidate: Vec<usize>,
    pub rule: Rule,
    /// 1 is certain.
    pub score: f64,
    /// How the matrices around it say that it is written.
    pub turned: Turned,
}

/// Whether matrices of one side are the other's transposes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Turned {
    /// Nothing says so, or the shapes do.
    #[default]
    No,
    /// Others are: this square one may be too.
    Perhaps,
    /// All others of its kind are: this one, a projection of a layer, must be.
    Surely,
}

/// An item without a partner, and the nearest on the other side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leftover {
    pub item: usize,
    pub suggestion: Option<usize>,
    pub score: Option<f64>,
}

/// Every item of both sides, exactly once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pairing {
    /// In the reference's execution order.
    pub pairs: Vec<Pair>,
    pub only_reference: Vec<Leftover>,
    pub only_candidate: Vec<Leftover>,
    /// Candidate layer minus reference layer, as found or as forced.
    pub layer_offset: i64,
    /// Left out by `only` and `skip`, for each side.
    pub left_out: [Vec<usize>; 2],
}

/// What can go wrong before anything is measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    #[error("`{pattern}` is not a regular expression: {}", last_line(.source))]
    Pattern {
        pattern: String,
        source: regex::Error,
    },
    #[error(
        "`{pattern}` has no named group `(?<name>...)` that both sides share; pairs are tensors whose named groups are equal"
    )]
    PatternGroups { pattern: String },
    #[error("the map names `{name}`, which {side} does not have{}", did_you_mean(.nearest))]
    MapName {
        name: String,
        side: &'static str,
        nearest: Option<String>,
    },
    #[error("the map names `{name}` of {side} twice")]
    MapTwice { name: String, side: &'static str },
    #[error("the map has an entry without a name on {side}")]
    MapEmpty { side: &'static str },
    #[error("`{glob}` is not a glob: {source}")]
    Glob {
        glob: String,
        source: globset::Error,
    },
    #[error("`{program}`, asked for pairs, {fault}")]
    Plugin { program: String, fault: PluginFault },
}

/// What is wrong; the lines before it repeat the pattern.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines()
        .last()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .to_owned()
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |nearest| {
        format!("; did you mean `{nearest}`?")
    })
}

/// How messages call the sides, by index.
const SIDES: [&str; 2] = ["the reference", "the candidate"];

pub fn pair(
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
) -> Result<Pairing, PairError> {
    let filter = filter::Filter::new(settings)?;
    let mut board = rules::Board::new([reference, candidate], settings);
    manual::pair(&mut board)?;
    board.read_layers();
    for rule in &settings.rules {
        if reference.is_stopped() {
            break;
        }
        rules::apply(*rule, &mut board)?;
    }
    turned::mark(&mut board);
    let found = unpaired::apply(board.finish(), [reference, candidate], &settings.unpaired);
    Ok(filter.apply(found, [reference, candidate]))
}
