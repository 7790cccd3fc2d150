//! One source alone: every tensor against every other.

use super::{Pair, Turned, sketch::Sketch};
use crate::{settings::Rule, side::Side};
use rayon::prelude::*;

/// The `n (n - 1) / 2` pairs of a side's items in order: 0 and 1, 0 and 2, ..., 1 and 2, ... Equal shapes have score 1, others 0 (they
/// are incomparable). An iterator, because 100,000 tensors have five billion pairs.
pub fn all_pairs<'a>(side: &'a Side<'_>) -> impl Iterator<Item = Pair> + 'a {
    let items = side.items();
    (0..items.len()).flat_map(move |one| {
        (one + 1..items.len()).map(move |other| {
            let score = if items[one].shape == items[other].shape {
                1.0
            } else {
                0.0
            };
            Pair {
                reference: vec![one],
                candidate: vec![other],
                rule: Rule::Shape,
                score,
                turned: Turned::No,
            }
        })
    })
}

/// The `limit` pairs most alike by content, best first, reading each item once. Ties are in the order of [`all_pairs`]; what cannot be
/// read or has another number of elements is 0 alike.
pub fn rank_by_sketch(side: &Side<'_>, limit: usize) -> Vec<Pair> {
    let count = side.items().len();
    let sketches: Vec<Option<Sketch>> = (0..count)
        .into_par_iter()
        .map(|item| Sketch::of(&side.view(item).ok()?))
        .collect();
    let mut ranked: Vec<(f64, usize, usize)> = Vec::new();
    // Best first, then in order.
    let before = |a: &(f64, usize, usize), b: &(f64, usize, usize)| {
        b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2)))
    };
    let room = limit.saturating_mul(2).max(1 << 16);
    for one in 0..count {
        if side.is_stopped() {
            break;
        }
        for other in one + 1..count {
            let score = sketches[one]
                .as_ref()
                .zip(sketches[other].as_ref())
                .map_or(0.0, |(a, b)| a.similarity(b));
            ranked.push((score, one, other));
        }
        // Never more than a multiple of what is asked for.
        if ranked.len() > room && limit < ranked.len() {
            ranked.select_nth_unstable_by(limit, before);
            ranked.truncate(limit);
        }
    }
    ranked.sort_by(before);
    ranked.truncate(limit);
    let pair = |(score, one, other)| Pair {
        reference: vec![one],
        candidate: vec![other],
        rule: Rule::Values,
        score,
        turned: Turned::No,
    };
    ranked.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairing::testing::Source;

    #[test]
    fn seven_tensors_are_21_pairs_and_300_are_44850() {
        for (count, pairs) in [(0, 0), (1, 0), (7, 21), (300, 44_850)] {
            let names: Vec<String> = (0..count).map(|n| n.to_string()).collect();
            let source = Source::named(&names);
            assert_eq!(all_pairs(&Side::new(&source)).count(), pairs);
        }
    }

    #[test]
    fn pairs_are_in_order_and_shapes_are_told() {
        let source = Source::shaped(&[("a", &[2]), ("b", &[2]), ("c", &[3])]);
        let pairs: Vec<(usize, usize, f64)> = all_pairs(&Side::new(&source))
            .map(|pair| (pair.reference[0], pair.candidate[0], pair.score))
            .collect();
        assert_eq!(pairs, [(0, 1, 1.0), (0, 2, 0.0), (1, 2, 0.0)]);
    }

    #[test]
    fn the_most_alike_come_first() {
        let values: Vec<f32> = (0..64).map(|n| (n as f32).sin()).collect();
        let near: Vec<f32> = values.iter().rev().map(|x| x * 1.0001).collect();
        let far: Vec<f32> = values.iter().map(|x| x * 3.0 + 1.0).collect();
        let source = Source::new()
            .f32("far", &[64], &far)
            .f32("one", &[64], &values)
            .f32("two", &[8, 8], &near)
            .f32("small", &[2], &[1.0, 2.0]);
        let ranked = rank_by_sketch(&Side::new(&source), usize::MAX);
        assert_eq!(ranked.len(), 6);
        assert_eq!(
            (
                &ranked[0].reference[..],
                &ranked[0].candidate[..],
                ranked[0].rule
            ),
            (&[1][..], &[2][..], Rule::Values)
        );
        assert!(ranked.is_sorted_by(|a, b| a.score >= b.score));
        assert_eq!(rank_by_sketch(&Side::new(&source), 2), ranked[..2]);
    }
}
