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
        apply(board, pattern)?;
    }
    if !board.settings.patterns.is_empty() {
        board.regroup();
    }
    Ok(())
}

/// Items with the rank their name gives.
type Ranked = Vec<(Option<u64>, usize)>;

fn compile(pattern: &str) -> Result<Regex, PairError> {
    Regex::new(pattern).map_err(|source| PairError::Pattern { pattern: pattern.to_owned(), source })
}

fn groups(regex: &Regex) -> Vec<&str> {
    regex.capture_names().flatten().filter(|name| *name != "rank").collect()
}

fn apply(board: &mut Board<'_, '_>, pattern: &Pattern) -> Result<(), PairError> {
    let reference = compile(&pattern.reference)?;
    let candidate = pattern.candidate.as_deref().map(compile).transpose()?;
    let candidate = candidate.as_ref().unwrap_or(&reference);
    let theirs = groups(candidate);
    let shared: Vec<&str> = groups(&reference).into_iter().filter(|name| theirs.contains(name)).collect();
    if shared.is_empty() {
        return Err(PairError::PatternGroups { pattern: pattern.reference.clone() });
    }
    let mut found: BTreeMap<Vec<String>, [Ranked; 2]> = BTreeMap::new();
    for (side, regex) in [(REFERENCE, &reference), (CANDIDATE, candidate)] {
        for item in board.free_items(side) {
            if let Some((key, rank)) = key(board, side, &board.items(side)[item].name, regex, &shared) {
                found.entry(key).or_default()[side].push((rank, item));
            }
        }
    }
    for mut sides in found.into_values() {
        sides.iter_mut().for_each(|items| items.sort_unstable());
        // Several on one side are shards with ranks of their own, or it is not known which is meant.
        let clear = |items: &Ranked| {
            !items.is_empty()
                && (items.len() == 1 || items.iter().all(|(rank, _)| rank.is_some()) && items.windows(2).all(|two| two[0].0 != two[1].0))
        };
        if sides.iter().all(clear) {
            let [reference, candidate] = sides.map(|items| items.into_iter().map(|(_, item)| item).collect::<Vec<_>>());
            if reference.len() == candidate.len() {
                reference.into_iter().zip(candidate).for_each(|(r, c)| board.take_items(vec![r], vec![c], Rule::Pattern, 1.0));
            } else {
                board.take_items(reference, candidate, Rule::Pattern, 1.0);
            }
        }
    }
    Ok(())
}

/// The groups' texts, and the rank.
fn key(board: &Board<'_, '_>, side: usize, name: &str, regex: &Regex, shared: &[&str]) -> Option<(Vec<String>, Option<u64>)> {
    let captures = regex.captures(name)?;
    let text = |group: &&str| {
        let text = captures.name(group).map_or("", |found| found.as_str());
        match text.parse::<i128>() {
            Ok(layer) if *group == "layer" && side == REFERENCE => (layer.saturating_add(i128::from(board.offset))).to_string(),
            Ok(number) => number.to_string(),
            Err(_) => text.to_owned(),
        }
    };
    let rank = captures.name("rank").and_then(|rank| rank.as_str().parse().ok());
    Some((shared.iter().map(text).collect(), rank))
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
        let pattern = Pattern { reference: reference.to_owned(), candidate: candidate.map(str::to_owned) };
        Settings { patterns: vec![pattern], ..settings(&[Rule::Pattern]) }
    }

    #[test]
    fn equal_named_groups_are_a_pair_whatever_stands_around_them() {
        let settings = with(r"^blob(?<layer>\d+)-(?<what>\w+)$", Some(r"(?<what>[a-z]+)@(?<layer>\d+)"));
        let (pairs, pairing) = paired_with(&settings, &names(&["blob1-q", "blob2-q", "other"]), &names(&["q@02", "q@1", "k@1"]));
        assert_eq!(pairs, ["blob1-q=q@1", "blob2-q=q@02"]);
        assert_eq!(pairing.pairs[0].rule, Rule::Pattern);
    }

    #[test]
    fn one_expression_serves_both_sides_and_the_layer_shifts() {
        let settings = Settings { layer_offset: Some(2), ..with(r"L(?<layer>\d+)(?<part>[a-z]+)", None) };
        assert_eq!(paired_with(&settings, &names(&["aL0x", "aL1x"]), &names(&["bL2x", "bL1x"])).0, ["aL0x=bL2x"]);
    }

    #[test]
    fn two_with_equal_groups_are_not_paired_unless_they_are_ranks() {
        let pattern = r"(?<part>[xyz])";
        assert!(paired_with(&with(pattern, None), &names(&["x1"]), &names(&["x2", "x3"])).0.is_empty());
        let ranks = with(pattern, Some(r"(?<part>[xyz])(?<rank>\d)"));
        assert_eq!(paired_with(&ranks, &names(&["x_"]), &names(&["x3", "x2"])).0, ["x_=x2+x3"]);
    }

    #[test]
    fn a_bad_expression_is_an_error() {
        let source = Source::named(&["a"]);
        let run = |settings: Settings| pair(&Side::new(&source), &Side::new(&source), &settings).unwrap_err();
        assert!(matches!(run(with("(", None)), PairError::Pattern { .. }));
        assert!(matches!(run(with("(a)", None)), PairError::PatternGroups { .. }));
        assert!(matches!(run(with("(?<a>a)", Some("(?<b>a)"))), PairError::PatternGroups { .. }));
    }
}
