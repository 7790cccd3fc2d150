//! What nobody paired, each with the nearest of the other side's leftovers: alike in name first, in shape second.
//!
//! Of a few leftovers the values are looked at too: one that holds what a paired tensor of the other side holds, as a head that is tied to the
//! embedding, is said to be that one, without a score: it is no partner to be had.
//!
//! With few leftovers all are compared. With many, only those that share a word: the rarest words first, [`LOOKED_AT`] names at most.

use super::{
    Leftover,
    rules::{Board, CANDIDATE, REFERENCE},
    shape,
    sketch::Sketch,
    values::SAME,
};
use std::collections::HashMap;
use twinscope_names::similarity::Words;

/// Below this a suggestion would only puzzle.
const WORTH_SAYING: f64 = 0.3;

/// Combinations up to which everything is compared with everything.
const EVERYTHING: usize = 250_000;

/// Names compared for one leftover beyond that.
const LOOKED_AT: usize = 64;

/// How much the name and how much the shape counts.
const NAME: f64 = 0.8;
const SHAPE: f64 = 0.2;

/// What is left of a name's likeness in another layer, and when it says that it is something else.
const CONTRADICTION: f64 = 0.6;

/// Leftovers of a side whose values are looked at, tensors of one shape that each is compared with, and values read for that.
const TIED: usize = 8;
const TIED_TO: usize = 16;
const TIED_VALUES: u64 = 1 << 28;

struct Left {
    unit: usize,
    words: Words,
    layer: Option<i128>,
    text: Vec<String>,
}

pub(super) fn of(board: &Board<'_, '_>) -> [Vec<Leftover>; 2] {
    let mut left = by_name(board);
    let mut budget = TIED_VALUES;
    for (side, left) in left
        .iter_mut()
        .enumerate()
        .filter(|(_, left)| left.len() <= TIED)
    {
        for leftover in left {
            if let Some(other) = tied(board, side, leftover.item, &mut budget) {
                (leftover.suggestion, leftover.score) = (Some(other), None);
            }
        }
    }
    left
}

/// The paired tensor of the other side that holds the same values as this one, which has no partner.
fn tied(board: &Board<'_, '_>, side: usize, item: usize, budget: &mut u64) -> Option<usize> {
    let other = CANDIDATE - side;
    let free = board.free_items(other);
    let own = &board.items(side)[item].shape;
    let kind = shape::kind(own);
    let alike: Vec<usize> = (0..board.items(other).len())
        .filter(|at| {
            board.items(other)[*at].shape.elements() == own.elements()
                && shape::kind(&board.items(other)[*at].shape) == kind
        })
        .filter(|at| free.binary_search(at).is_err())
        .collect();
    let values = own.elements()?.checked_mul(1 + alike.len() as u64)?;
    if alike.is_empty() || alike.len() > TIED_TO || values > *budget {
        return None;
    }
    *budget -= values;
    let sketch = |side: usize, item: usize| {
        Sketch::of(&board.sides[side].view(item).ok()?).filter(Sketch::tells)
    };
    let mine = sketch(side, item)?;
    let apart = |at: usize| {
        sketch(other, at)
            .filter(|theirs| mine.same_extremes(theirs))
            .and_then(|theirs| mine.distance(&theirs))
    };
    let same: Vec<usize> = alike
        .into_iter()
        .filter(|at| apart(*at).is_some_and(|apart| apart <= SAME))
        .collect();
    same.first().copied()
}

fn by_name(board: &Board<'_, '_>) -> [Vec<Leftover>; 2] {
    let left = [REFERENCE, CANDIDATE].map(|side| -> Vec<Left> {
        let read = |unit: usize| {
            let name = board.name(side, unit);
            Left {
                unit,
                words: Words::of(name),
                layer: board.layer(side, unit),
                text: name.rest.clone(),
            }
        };
        board.free_units(side).into_iter().map(read).collect()
    });
    if left.iter().any(Vec::is_empty) {
        return [REFERENCE, CANDIDATE].map(|side| {
            left[side]
                .iter()
                .flat_map(|left| expand(board, side, left.unit, None))
                .collect()
        });
    }
    let everything = left[REFERENCE].len().saturating_mul(left[CANDIDATE].len()) <= EVERYTHING;
    [REFERENCE, CANDIDATE].map(|side| {
        let other = CANDIDATE - side;
        let index = if everything {
            HashMap::new()
        } else {
            index(&left[other])
        };
        let suggest = |one: &Left| {
            let near = if everything {
                (0..left[other].len()).collect()
            } else {
                near(one, &index)
            };
            let score = |at: &usize| (nearness(board, side, one, &left[other][*at]), *at);
            let best = near
                .iter()
                .map(score)
                .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            best.filter(|(score, _)| *score >= WORTH_SAYING)
                .map(|(score, at)| (board.unit(other, left[other][at].unit).items[0], score))
        };
        let mut all: Vec<Leftover> = left[side]
            .iter()
            .flat_map(|one| expand(board, side, one.unit, suggest(one)))
            .collect();
        all.sort_by_key(|left| left.item);
        all
    })
}

fn expand(
    board: &Board<'_, '_>,
    side: usize,
    unit: usize,
    suggestion: Option<(usize, f64)>,
) -> impl Iterator<Item = Leftover> {
    let items = board.unit(side, unit).items.clone();
    items.into_iter().map(move |item| Leftover {
        item,
        suggestion: suggestion.map(|(item, _)| item),
        score: suggestion.map(|(_, score)| score),
    })
}

fn nearness(board: &Board<'_, '_>, side: usize, one: &Left, other: &Left) -> f64 {
    let misspelt = one
        .words
        .misspelt(&other.words)
        .map_or(0.0, |found| found.score);
    let mut name = one.words.likeness(&other.words).max(misspelt);
    if one.layer != other.layer {
        name *= CONTRADICTION;
    }
    if one.words.contradicts(&other.words) {
        name *= CONTRADICTION;
    }
    let shapes = match (
        board.single(side, one.unit),
        board.single(CANDIDATE - side, other.unit),
    ) {
        (Some(a), Some(b)) if a.shape == b.shape => 1.0,
        (Some(a), Some(b)) if shape::kind(&a.shape) == shape::kind(&b.shape) => 0.9,
        (Some(a), Some(b)) if a.shape.elements() == b.shape.elements() => 0.5,
        _ => 0.0,
    };
    NAME * name + SHAPE * shapes
}

/// Who has a word.
fn index(left: &[Left]) -> HashMap<&str, Vec<usize>> {
    let mut index: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, one) in left.iter().enumerate() {
        one.text
            .iter()
            .for_each(|word| index.entry(word).or_default().push(at));
    }
    index
}

fn near(one: &Left, index: &HashMap<&str, Vec<usize>>) -> Vec<usize> {
    let mut lists: Vec<&Vec<usize>> = one
        .text
        .iter()
        .filter_map(|word| index.get(word.as_str()))
        .collect();
    lists.sort_by_key(|list| list.len());
    let mut near: Vec<usize> = lists
        .into_iter()
        .flatten()
        .copied()
        .take(LOOKED_AT)
        .collect();
    near.sort_unstable();
    near.dedup();
    near
}

/// The name most like a misspelt one.
pub(super) fn nearest_name<'n>(
    name: &str,
    names: impl Iterator<Item = &'n str>,
) -> Option<&'n str> {
    let alike = |other: &'n str| {
        let near = other.len().abs_diff(name.len()) <= 8 && other.len().max(name.len()) <= 512;
        near.then(|| (strsim::normalized_damerau_levenshtein(name, other), other))
    };
    names
        .filter_map(alike)
        .filter(|(alike, _)| *alike >= 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use crate::{pairing::testing::*, settings::Rule};

    #[test]
    fn leftovers_carry_the_nearest_name_and_shape() {
        let reference = Source::shaped(&[("layers.0.attn.gate_thing", &[4, 4]), ("solo", &[9])]);
        let candidate = Source::shaped(&[
            ("layers.0.other", &[7]),
            ("layers.0.attn.gate_thang_two", &[4, 4]),
        ]);
        let (_, pairing) = result(&settings(&[Rule::Exact]), &reference, &candidate);
        assert_eq!(pairing.only_reference[0].suggestion, Some(1));
        assert!(pairing.only_reference[0].score.unwrap() > 0.5);
        assert_eq!(
            (
                pairing.only_reference[1].suggestion,
                pairing.only_reference[1].score
            ),
            (None, None)
        );
        assert_eq!(pairing.only_candidate[1].suggestion, Some(0));
    }

    #[test]
    fn a_head_that_is_tied_names_the_embedding() {
        let values = |seed: u32| {
            (0..96u32)
                .map(|at| ((at * 29 + seed * 53) % 101) as f32 - 50.0)
                .collect::<Vec<_>>()
        };
        let reference = Source::new().f32("wte.weight", &[12, 8], &values(1)).f32(
            "lm_head.weight",
            &[12, 8],
            &values(1),
        );
        let candidate = Source::new().f32("wte.weight", &[12, 8], &values(1)).f32(
            "other.weight",
            &[12, 8],
            &values(2),
        );
        let (_, pairing) = result(&settings(&[Rule::Exact]), &reference, &candidate);
        let head = &pairing.only_reference[0];
        assert_eq!((head.item, head.suggestion, head.score), (1, Some(0), None));
        assert_ne!(
            pairing.only_candidate[0].suggestion,
            Some(0),
            "other values are another tensor"
        );
    }

    #[test]
    fn many_leftovers_still_get_suggestions() {
        let some = |word: &str| {
            (0..1_000)
                .map(|n| format!("unit{n}_{word}"))
                .collect::<Vec<_>>()
        };
        let (_, pairing) = paired_with(&settings(&[Rule::Exact]), &some("left"), &some("right"));
        assert!(
            pairing
                .only_reference
                .iter()
                .all(|left| left.suggestion == Some(left.item))
        );
    }
}
