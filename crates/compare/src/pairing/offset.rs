//! A constant difference between the two sides' layer numbers.
//!
//! An offset other than zero is believed only when it pairs more names than zero does, and more than every other offset, and leaves no more
//! layers without a counterpart: a part of a run's layers is no shifted run, and two runs with the same layers are not shifted because each of
//! them lacks other tensors. What speaks for an offset is the number of equal names in layers that far apart; the shapes must not speak
//! against it.

use super::{
    pattern::Compiled,
    rules::{Board, CANDIDATE, REFERENCE},
};
use crate::settings::Rule;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Beyond so many different layers only the ends are tried: nobody has a model this deep, and all differences would be quadratic.
const EVERY_DIFFERENCE: usize = 512;

/// One name in another layer is another tensor; so many are a shifted run.
const FEWEST: usize = 2;

/// How many of the offsets that most layers speak for are counted name by name.
const TRIED: usize = 16;

pub(super) fn find(board: &Board<'_, '_>) -> i64 {
    if let Some(forced) = board.settings.layer_offset {
        return forced;
    }
    let aware = |rule: &Rule| {
        matches!(
            rule,
            Rule::LayerStage | Rule::Normalized | Rule::Pattern | Rule::Fuzzy
        )
    };
    if !board.settings.rules.iter().any(aware) || one_holds_the_other(board) {
        return 0;
    }
    // A pattern that cannot be used is an error when its rule runs.
    let used = board
        .settings
        .patterns
        .iter()
        .filter(|_| board.settings.rules.contains(&Rule::Pattern));
    let patterns: Vec<Compiled> = used
        .filter_map(|pattern| Compiled::new(pattern).ok())
        .collect();
    let [reference, candidate] = [REFERENCE, CANDIDATE].map(|side| layers(board, side, &patterns));
    let shared = [(&reference, &candidate), (&candidate, &reference)]
        .map(|(own, other)| shared_layers(own, other));
    let met = |offset: i64| {
        shared[0]
            .iter()
            .filter(|layer| {
                layer
                    .checked_add(offset)
                    .is_some_and(|layer| shared[1].contains(&layer))
            })
            .count()
    };
    let met_unshifted = met(0);
    let score = |offset: i64| {
        let (names, shapes) = count(&reference, &candidate, offset);
        (names, met(offset), shapes)
    };
    let mut best = (0, score(0));
    let mut tied = false;
    for offset in offsets(&reference, &candidate)
        .into_iter()
        .filter(|offset| met(*offset) >= met_unshifted)
    {
        let score = score(offset);
        if score > best.1 {
            (best, tied) = ((offset, score), false);
        } else if score == best.1 && best.0 != 0 && offset != best.0 {
            tied = true;
        }
    }
    if tied || best.1.0 < FEWEST { 0 } else { best.0 }
}

/// Whether all names of one side are names of the other: then no offset can pair more. Spares understanding every name in the common
/// case.
fn one_holds_the_other(board: &Board<'_, '_>) -> bool {
    let [reference, candidate] = [REFERENCE, CANDIDATE].map(|side| board.free_units(side));
    let (few, many) = if reference.len() <= candidate.len() {
        ((REFERENCE, reference), (CANDIDATE, candidate))
    } else {
        ((CANDIDATE, candidate), (REFERENCE, reference))
    };
    let names: HashSet<&str> = many
        .1
        .iter()
        .map(|unit| board.unit(many.0, *unit).name.as_str())
        .collect();
    few.1
        .iter()
        .all(|unit| names.contains(board.unit(few.0, *unit).name.as_str()))
}

/// Of each name without its layer, the layers that have it, and the dimensions there.
type Layers = HashMap<String, HashMap<i64, Vec<u64>>>;

fn layers(board: &Board<'_, '_>, side: usize, patterns: &[Compiled]) -> Layers {
    let mut layers = Layers::new();
    for unit in board.free_units(side) {
        let Some((layer, key)) = layer(board, side, unit, patterns) else {
            continue;
        };
        let dims = board
            .single(side, unit)
            .map_or_else(Vec::new, |item| super::shape::kind(&item.shape));
        layers.entry(key).or_default().insert(layer, dims);
    }
    layers
}

/// The layer and everything else a name says: by the first pattern that knows a layer in it, else as every name is read.
fn layer(
    board: &Board<'_, '_>,
    side: usize,
    unit: usize,
    patterns: &[Compiled],
) -> Option<(i64, String)> {
    let full = &board.items(side)[board.unit(side, unit).items[0]].name;
    let said = patterns.iter().enumerate().find_map(|(at, pattern)| {
        let said = pattern.read(side, full)?;
        Some((
            i64::try_from(said.layer?).ok()?,
            format!("{at}|{}", said.texts.join("|")),
        ))
    });
    said.or_else(|| {
        let name = board.name(side, unit);
        Some((i64::try_from(name.layer?).ok()?, name.key()))
    })
}

/// The layers of names that the other side has too.
fn shared_layers(own: &Layers, other: &Layers) -> BTreeSet<i64> {
    own.iter()
        .filter(|(name, _)| other.contains_key(*name))
        .flat_map(|(_, layers)| layers.keys().copied())
        .collect()
}

/// Offsets worth trying.
fn offsets(reference: &Layers, candidate: &Layers) -> Vec<i64> {
    let all = |layers: &Layers| {
        layers
            .values()
            .flat_map(|layers| layers.keys().copied())
            .collect::<BTreeSet<i64>>()
    };
    let (reference, candidate) = (all(reference), all(candidate));
    if reference.len() > EVERY_DIFFERENCE || candidate.len() > EVERY_DIFFERENCE {
        let ends = [
            (reference.first(), candidate.first()),
            (reference.last(), candidate.last()),
        ];
        return ends
            .iter()
            .filter_map(|(r, c)| (*c)?.checked_sub(*(*r)?))
            .collect();
    }
    let mut votes: HashMap<i64, usize> = HashMap::new();
    for r in &reference {
        candidate
            .iter()
            .filter_map(|c| c.checked_sub(*r))
            .for_each(|offset| *votes.entry(offset).or_default() += 1);
    }
    let mut votes: Vec<(i64, usize)> = votes.into_iter().collect();
    votes
        .sort_by_key(|(offset, count)| (std::cmp::Reverse(*count), offset.unsigned_abs(), *offset));
    votes
        .into_iter()
        .take(TRIED)
        .map(|(offset, _)| offset)
        .collect()
}

/// Names paired at this offset, and how many of them with shapes that can be the same.
fn count(reference: &Layers, candidate: &Layers, offset: i64) -> (usize, usize) {
    let mut score = (0, 0);
    for (name, layers) in reference {
        let Some(others) = candidate.get(name) else {
            continue;
        };
        for (layer, dims) in layers {
            if let Some(other) = layer
                .checked_add(offset)
                .and_then(|layer| others.get(&layer))
            {
                score.0 += 1;
                score.1 += usize::from(dims == other);
            }
        }
    }
    score
}

#[cfg(test)]
mod tests {
    use crate::{
        pairing::testing::{names, paired_with, settings},
        settings::Rule,
    };

    #[test]
    fn two_runs_with_the_same_layers_are_not_shifted_by_what_each_lacks() {
        let reference = names(&[
            "layers.0.a",
            "layers.1.b",
            "layers.1.c",
            "layers.2.b",
            "layers.2.c",
            "layers.0.d",
        ]);
        let candidate = names(&[
            "model.layers.0.b",
            "model.layers.0.c",
            "model.layers.1.b",
            "model.layers.1.c",
            "model.layers.2.d",
        ]);
        let (_, pairing) = paired_with(&settings(&[Rule::Normalized]), &reference, &candidate);
        assert_eq!(pairing.layer_offset, 0);
    }

    #[test]
    fn of_two_offsets_that_pair_as_many_names_the_one_that_meets_more_layers_counts() {
        let reference = names(&["layers.0.a", "layers.1.b", "layers.2.c", "layers.2.d"]);
        let candidate = names(&[
            "blk.2.a", "blk.2.b", "blk.3.c", "blk.3.d", "blk.4.c", "blk.3.b",
        ]);
        let (_, pairing) = paired_with(&settings(&[Rule::Normalized]), &reference, &candidate);
        assert_eq!(pairing.layer_offset, 2);
    }
}
