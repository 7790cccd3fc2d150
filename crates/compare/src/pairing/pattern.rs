//! The user's regular expressions: tensors whose named groups are equal are a pair.
//!
//! Numbers compare as numbers (`03` is `3`), the group `layer` by the layer offset, and the group `rank` puts shards in order instead of
//! telling tensors apart. Groups that only one side's expression has are not compared.

use super::{
    PairError,
    rules::{Board, CANDIDATE, REFERENCE},
};
use crate::settings::{Pattern, Rule};
use regex::Regex;
use std::collections::BTreeMap;

pub(super) fn pair(board: &mut Board<'_, '_>) -> Result<(), PairError> {
    for pattern in &board.settings.patterns {
        apply(board, &Compiled::new(pattern)?);
    }
    if !board.settings.patterns.is_empty() {
        board.regroup();
    }
    Ok(())
}

/// Items with the rank their name gives.
type Ranked = Vec<(Option<u64>, usize)>;

/// A pattern, ready to read names.
pub(super) struct Compiled {
    sides: [Regex; 2],
    /// Groups of both sides that tell tensors apart, without `layer` and `rank`.
    groups: Vec<String>,
    has_layer: bool,
}

/// What a name says by a pattern.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Said {
    /// As the side counts.
    pub(super) layer: Option<i128>,
    pub(super) texts: Vec<String>,
    rank: Option<u64>,
}

impl Compiled {
    pub(super) fn new(pattern: &Pattern) -> Result<Self, PairError> {
        let compile = |text: &str| {
            Regex::new(text).map_err(|source| PairError::Pattern {
                pattern: text.to_owned(),
                source,
            })
        };
        let reference = compile(&pattern.reference)?;
        let candidate = pattern
            .candidate
            .as_deref()
            .map_or_else(|| Ok(reference.clone()), compile)?;
        let theirs: Vec<&str> = candidate.capture_names().flatten().collect();
        let shared = reference
            .capture_names()
            .flatten()
            .filter(|name| *name != "rank" && theirs.contains(name));
        let (layer, groups): (Vec<String>, Vec<String>) =
            shared.map(str::to_owned).partition(|name| name == "layer");
        if layer.is_empty() && groups.is_empty() {
            return Err(PairError::PatternGroups {
                pattern: pattern.reference.clone(),
            });
        }
        Ok(Self {
            sides: [reference, candidate],
            groups,
            has_layer: !layer.is_empty(),
        })
    }

    pub(super) fn read(&self, side: usize, name: &str) -> Option<Said> {
        let captures = self.sides[side].captures(name)?;
        let text = |group: &str| captures.name(group).map_or("", |found| found.as_str());
        let plain = |group: &String| {
            text(group)
                .parse::<i128>()
                .map_or_else(|_| text(group).to_owned(), |number| number.to_string())
        };
        let mut texts: Vec<String> = self.groups.iter().map(plain).collect();
        let layer = self.has_layer.then(|| text("layer"));
        let number = layer
            .and_then(|layer| i64::try_from(layer.parse::<u64>().ok()?).ok())
            .map(i128::from);
        // A layer that is no number is a word like any other.
        texts.extend(layer.filter(|_| number.is_none()).map(str::to_owned));
        Some(Said {
            layer: number,
            texts,
            rank: text("rank").parse().ok(),
        })
    }
}

fn apply(board: &mut Board<'_, '_>, pattern: &Compiled) {
    let mut found: BTreeMap<(Option<i128>, Vec<String>), [Ranked; 2]> = BTreeMap::new();
    for side in [REFERENCE, CANDIDATE] {
        let offset = if side == REFERENCE {
            i128::from(board.offset)
        } else {
            0
        };
        for item in board.free_items(side) {
            if let Some(said) = pattern.read(side, &board.items(side)[item].name) {
                found
                    .entry((said.layer.map(|layer| layer + offset), said.texts))
                    .or_default()[side]
                    .push((said.rank, item));
            }
        }
    }
    for mut sides in found.into_values() {
        sides.iter_mut().for_each(|items| items.sort_unstable());
        if !sides.iter().all(is_clear) {
            continue;
        }
        let [reference, candidate] =
            sides.map(|items| items.into_iter().map(|(_, item)| item).collect::<Vec<_>>());
        if reference.len() == candidate.len() {
            reference
                .into_iter()
                .zip(candidate)
                .for_each(|(r, c)| board.take_items(vec![r], vec![c], Rule::Pattern, 1.0));
        } else {
            board.take_items(reference, candidate, Rule::Pattern, 1.0);
        }
    }
}

/// Several on one side are shards with ranks of their own, or it is not known which is meant.
fn is_clear(items: &Ranked) -> bool {
    let ranked = items.iter().all(|(rank, _)| rank.is_some())
        && items.windows(2).all(|two| two[0].0 != two[1].0);
    !items.is_empty() && (items.len() == 1 || ranked)
}

#[cfg(test)]
mod tests {
    use crate::{
        Settings,
        pairing::{PairError, pair, testing::*},
        settings::{Pattern, Rule},
        side::Side,
    };

    fn with(reference: &str, candidate: Option<&str>) -> Settings {
        let pattern = Pattern {
            reference: reference.to_owned(),
            candidate: candidate.map(str::to_owned),
        };
        Settings {
            patterns: vec![pattern],
            ..settings(&[Rule::Pattern])
        }
    }

    #[test]
    fn equal_named_groups_are_a_pair_whatever_stands_around_them() {
        let settings = with(
            r"^blob(?<layer>\d+)-(?<what>\w+)$",
            Some(r"(?<what>[a-z]+)@(?<layer>\d+)"),
        );
        let (pairs, pairing) = paired_with(
            &settings,
            &names(&["blob1-q", "blob2-q", "other"]),
            &names(&["q@02", "q@1", "k@1"]),
        );
        assert_eq!(pairs, ["blob1-q=q@1", "blob2-q=q@02"]);
        assert_eq!(pairing.pairs[0].rule, Rule::Pattern);
    }

    #[test]
    fn one_expression_serves_both_sides_and_the_layer_shifts() {
        let settings = Settings {
            layer_offset: Some(2),
            ..with(r"L(?<layer>\d+)(?<part>[a-z]+)", None)
        };
        assert_eq!(
            paired_with(
                &settings,
                &names(&["aL0x", "aL1x"]),
                &names(&["bL2x", "bL1x"])
            )
            .0,
            ["aL0x=bL2x"]
        );
    }

    #[test]
    fn an_offset_is_found_in_the_layers_that_only_the_pattern_sees() {
        let settings = with(r"^q(?<layer>\d+)z(?<part>[a-z]+)$", None);
        let (pairs, pairing) = paired_with(
            &settings,
            &names(&["q3za", "q4za", "q5za"]),
            &names(&["q0za", "q1za", "q2za"]),
        );
        assert_eq!(
            (pairs, pairing.layer_offset),
            (
                vec![
                    "q3za=q0za".to_owned(),
                    "q4za=q1za".to_owned(),
                    "q5za=q2za".to_owned()
                ],
                -3
            )
        );
    }

    #[test]
    fn two_with_equal_groups_are_not_paired_unless_they_are_ranks() {
        let pattern = r"(?<part>[xyz])";
        assert!(
            paired_with(&with(pattern, None), &names(&["x1"]), &names(&["x2", "x3"]))
                .0
                .is_empty()
        );
        let ranks = with(pattern, Some(r"(?<part>[xyz])(?<rank>\d)"));
        assert_eq!(
            paired_with(&ranks, &names(&["x_"]), &names(&["x3", "x2"])).0,
            ["x_=x2+x3"]
        );
    }

    #[test]
    fn a_bad_expression_is_an_error() {
        let source = Source::named(&["a"]);
        let run = |settings: Settings| {
            pair(&Side::new(&source), &Side::new(&source), &settings).unwrap_err()
        };
        assert!(matches!(run(with("(", None)), PairError::Pattern { .. }));
        assert!(matches!(
            run(with("(a)", None)),
            PairError::PatternGroups { .. }
        ));
        assert!(matches!(
            run(with("(?<a>a)", Some("(?<b>a)"))),
            PairError::PatternGroups { .. }
        ));
    }
}
