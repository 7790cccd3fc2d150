//! Pairs that a rule found and the user took apart: both are left over, and nothing else takes their place.

use super::{Leftover, Pair, Pairing};
use crate::{settings::MapEntry, side::Side};
use std::collections::HashSet;

pub(super) fn apply(mut pairing: Pairing, sides: [&Side<'_>; 2], unpaired: &[MapEntry]) -> Pairing {
    if unpaired.is_empty() {
        return pairing;
    }
    let apart: HashSet<(&[String], &[String])> = unpaired
        .iter()
        .map(|entry| (entry.reference.all(), entry.candidate.all()))
        .collect();
    let names = |side: usize, items: &[usize]| -> Vec<String> {
        items
            .iter()
            .map(|item| sides[side].items()[*item].name.clone())
            .collect()
    };
    let is_apart = |pair: &Pair| {
        apart.contains(&(
            &names(0, &pair.reference)[..],
            &names(1, &pair.candidate)[..],
        ))
    };
    let (taken, kept): (Vec<Pair>, Vec<Pair>) = pairing.pairs.into_iter().partition(is_apart);
    pairing.pairs = kept;
    let leftover = |item: usize| Leftover {
        item,
        suggestion: None,
        score: None,
    };
    for pair in taken {
        pairing
            .only_reference
            .extend(pair.reference.into_iter().map(leftover));
        pairing
            .only_candidate
            .extend(pair.candidate.into_iter().map(leftover));
    }
    pairing.only_reference.sort_by_key(|leftover| leftover.item);
    pairing.only_candidate.sort_by_key(|leftover| leftover.item);
    pairing
}

#[cfg(test)]
mod tests {
    use crate::{
        Settings,
        pairing::testing::*,
        settings::{MapEntry, Names, Rule},
    };

    #[test]
    fn what_the_user_took_apart_is_left_over_on_both_sides() {
        let one = |name: &str| Names::One(name.to_owned());
        let unpaired = vec![
            MapEntry {
                reference: one("b"),
                candidate: one("b"),
            },
            MapEntry {
                reference: one("a"),
                candidate: one("c"),
            },
        ];
        let settings = Settings {
            unpaired,
            ..settings(&[Rule::Exact, Rule::Shape])
        };
        let (pairs, pairing) = paired_with(
            &settings,
            &names(&["a", "b", "c"]),
            &names(&["a", "b", "c"]),
        );
        assert_eq!(pairs, ["a=a", "c=c"]);
        assert_eq!(
            (
                pairing.only_reference[0].item,
                pairing.only_candidate[0].item
            ),
            (1, 1)
        );
    }
}
