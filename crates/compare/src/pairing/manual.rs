//! Pairs the user decided. A name that does not exist is an error, so that a stale map is not silently half applied.

use super::{PairError, SIDES, leftovers, rules::Board};
use crate::settings::Rule;
use std::collections::{HashMap, HashSet};

pub(super) fn pair(board: &mut Board<'_, '_>) -> Result<(), PairError> {
    if board.settings.map.is_empty() {
        return Ok(());
    }
    let mut used: [HashSet<usize>; 2] = Default::default();
    let known: [HashMap<&str, usize>; 2] = [0, 1].map(|side| by_name(board, side));
    for entry in &board.settings.map {
        let mut items = [Vec::new(), Vec::new()];
        for (side, names) in [&entry.reference, &entry.candidate].into_iter().enumerate() {
            for name in names.all() {
                let item = *known[side]
                    .get(name.as_str())
                    .ok_or_else(|| unknown(board, side, name))?;
                if !used[side].insert(item) {
                    return Err(PairError::MapTwice {
                        name: name.clone(),
                        side: SIDES[side],
                    });
                }
                items[side].push(item);
            }
            if items[side].is_empty() {
                return Err(PairError::MapEmpty { side: SIDES[side] });
            }
        }
        let [reference, candidate] = items;
        board.take_items(reference, candidate, Rule::Manual, 1.0);
    }
    board.regroup();
    Ok(())
}

fn by_name<'a>(board: &Board<'a, '_>, side: usize) -> HashMap<&'a str, usize> {
    // Should a name be there twice, the first is meant.
    board
        .items(side)
        .iter()
        .enumerate()
        .rev()
        .map(|(at, item)| (item.name.as_str(), at))
        .collect()
}

fn unknown(board: &Board<'_, '_>, side: usize, name: &str) -> PairError {
    let nearest = leftovers::nearest_name(
        name,
        board.items(side).iter().map(|item| item.name.as_str()),
    );
    PairError::MapName {
        name: name.to_owned(),
        side: SIDES[side],
        nearest: nearest.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Settings,
        pairing::{PairError, pair, testing::*},
        settings::{MapEntry, Names, Rule},
        side::Side,
    };

    fn entry(reference: &[&str], candidate: &[&str]) -> MapEntry {
        let side = |all: &[&str]| {
            if let [one] = all {
                Names::One((*one).to_owned())
            } else {
                Names::Many(names(all))
            }
        };
        MapEntry {
            reference: side(reference),
            candidate: side(candidate),
        }
    }

    fn error(map: Vec<MapEntry>) -> PairError {
        let (reference, candidate) = (
            Source::named(&["0_query", "b"]),
            Source::named(&["q", "k", "v"]),
        );
        let settings = Settings {
            map,
            ..Settings::default()
        };
        pair(&Side::new(&reference), &Side::new(&candidate), &settings).unwrap_err()
    }

    #[test]
    fn manual_pairs_come_before_every_rule_and_keep_the_order_of_parts() {
        let settings = Settings {
            map: vec![entry(&["b"], &["v", "k"])],
            ..settings(&[Rule::Exact])
        };
        let (pairs, pairing) = paired_with(
            &settings,
            &names(&["k", "b", "q"]),
            &names(&["q", "k", "v"]),
        );
        assert_eq!(pairs, ["b=v+k", "q=q"]);
        assert_eq!(pairing.pairs[0].rule, Rule::Manual);
    }

    #[test]
    fn an_unknown_name_is_an_error_that_knows_the_nearest() {
        let text = error(vec![entry(&["0_qurey"], &["q"])]).to_string();
        assert_eq!(
            text,
            "the map names `0_qurey`, which the reference does not have; did you mean `0_query`?"
        );
        assert_eq!(
            error(vec![entry(&["b"], &["zzzzzzzz"])]).to_string(),
            "the map names `zzzzzzzz`, which the candidate does not have"
        );
    }

    #[test]
    fn a_name_used_twice_is_an_error() {
        let text = error(vec![entry(&["b"], &["q"]), entry(&["b"], &["k"])]).to_string();
        assert_eq!(text, "the map names `b` of the reference twice");
        assert!(matches!(
            error(vec![entry(&[], &["q"])]),
            PairError::MapEmpty {
                side: "the reference"
            }
        ));
    }
}
