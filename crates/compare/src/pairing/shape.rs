//! Shapes, where nothing else is left: exactly one free tensor on each side has these dimensions, whatever their order and without those
//! of size 1, and more than one element. Where each source is one tensor, any shape will do: there is nothing else it could be.
//!
//! Names may still forbid it: another layer, or two different known parts of a transformer, are not one tensor because their shapes agree.
//! Where names have paired most of both sides, their words are known, and of several that are left two without a word in common are two
//! tensors unless they hold the same.

use super::{
    rules::{Board, CANDIDATE, REFERENCE},
    sketch::Sketch,
    values::SAME,
};
use crate::settings::Rule;
use twinscope_names::similarity::Words;
use twinscope_tensor::Shape;

/// Weak evidence, and said so.
const SCORE: f64 = 0.5;

/// So many pairs by names are needed before names are trusted that far, and names less alike than this have nothing in common.
const FEWEST_NAMED: usize = 8;
const NOTHING_IN_COMMON: f64 = 0.2;

pub(super) fn pair(board: &mut Board<'_, '_>) {
    let only = [REFERENCE, CANDIDATE]
        .into_iter()
        .all(|side| board.items(side).len() == 1);
    let mut found = board.unique(|side, unit| {
        let item = board.single(side, unit)?;
        (only || item.shape.elements()? > 1).then(|| kind(&item.shape))
    });
    found.retain(|(reference, candidate)| !board.contradict(*reference, *candidate));
    if are_named(board) {
        found.retain(|(reference, candidate)| is_likely(board, *reference, *candidate));
    }
    board.take_all(found, Rule::Shape, SCORE);
}

/// Whether names have paired most of both sides, and more than one tensor is left.
fn are_named(board: &Board<'_, '_>) -> bool {
    let by_name = |rule: Rule| {
        matches!(
            rule,
            Rule::LayerStage | Rule::Exact | Rule::Normalized | Rule::Pattern
        )
    };
    let named = board.pairs.iter().filter(|pair| by_name(pair.rule)).count();
    let left = [REFERENCE, CANDIDATE].map(|side| board.free_units(side).len());
    named >= FEWEST_NAMED && left.iter().all(|left| *left < named) && left != [1, 1]
}

/// Whether two are called alike, or hold the same. What cannot be read is not held against them.
fn is_likely(board: &Board<'_, '_>, reference: usize, candidate: usize) -> bool {
    let words = |side: usize, unit: usize| Words::of(board.name(side, unit));
    if words(REFERENCE, reference).likeness(&words(CANDIDATE, candidate)) > NOTHING_IN_COMMON {
        return true;
    }
    let sketch = |side: usize, unit: usize| {
        Sketch::of(
            &board.sides[side]
                .view(board.unit(side, unit).items[0])
                .ok()?,
        )
    };
    match (sketch(REFERENCE, reference), sketch(CANDIDATE, candidate)) {
        (Some(r), Some(c)) => r.distance(&c).is_some_and(|apart| apart <= SAME),
        _ => true,
    }
}

/// The dimensions that matter, sorted.
pub(super) fn kind(shape: &Shape) -> Vec<u64> {
    let mut dims: Vec<u64> = shape
        .dims()
        .iter()
        .copied()
        .filter(|dim| *dim != 1)
        .collect();
    dims.sort_unstable();
    dims
}

#[cfg(test)]
mod tests {
    use crate::{
        pairing::testing::{Source, result, settings},
        settings::Rule,
    };

    fn by_shape(reference: &[(&str, &[u64])], candidate: &[(&str, &[u64])]) -> Vec<String> {
        result(
            &settings(&[Rule::Shape]),
            &Source::shaped(reference),
            &Source::shaped(candidate),
        )
        .0
    }

    #[test]
    fn the_only_two_of_a_shape_are_a_pair_up_to_order_and_ones() {
        assert_eq!(
            by_shape(
                &[("a", &[1, 3, 4]), ("b", &[7])],
                &[("x", &[7, 1]), ("y", &[4, 3])]
            ),
            ["a=y", "b=x"]
        );
    }

    #[test]
    fn two_of_a_shape_are_not_paired() {
        assert!(by_shape(&[("a", &[3, 4])], &[("x", &[3, 4]), ("y", &[4, 3])]).is_empty());
    }

    #[test]
    fn scalars_have_no_shape_to_go_by() {
        assert!(by_shape(&[("a", &[]), ("b", &[0])], &[("x", &[1]), ("y", &[0])]).is_empty());
    }

    #[test]
    fn two_files_of_one_scalar_are_a_pair() {
        assert_eq!(
            by_shape(&[("loss_a", &[])], &[("loss_b", &[1])]),
            ["loss_a=loss_b"]
        );
        assert_eq!(by_shape(&[("a", &[0, 4])], &[("b", &[0, 4])]), ["a=b"]);
        assert!(by_shape(&[("a", &[])], &[("b", &[3])]).is_empty());
    }

    #[test]
    fn another_layer_or_another_part_is_not_paired_by_shape() {
        assert!(by_shape(&[("layers.1.zip", &[3, 4])], &[("layers.2.zap", &[3, 4])]).is_empty());
        assert!(
            by_shape(
                &[("layers.1.blocks.0.zip", &[3, 4])],
                &[("layers.1.blocks.1.zap", &[3, 4])]
            )
            .is_empty()
        );
        assert!(
            by_shape(
                &[("layers.1.mlp.up_proj.weight", &[3, 4])],
                &[("blk.1.ffn_down.weight", &[4, 3])]
            )
            .is_empty()
        );
    }
}
