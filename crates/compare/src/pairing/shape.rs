//! Shapes, where nothing else is left: exactly one free tensor on each side has these dimensions, whatever their order and without those
//! of size 1, and more than one element.
//!
//! Names may still forbid it: another layer, or two different known parts of a transformer, are not one tensor because their shapes agree.

use super::rules::Board;
use crate::settings::Rule;
use twinscope_tensor::Shape;

/// Weak evidence, and said so.
const SCORE: f64 = 0.5;

pub(super) fn pair(board: &mut Board<'_, '_>) {
    let mut found = board.unique(|side, unit| {
        let item = board.single(side, unit)?;
        (item.shape.elements()? > 1).then(|| kind(&item.shape))
    });
    found.retain(|(reference, candidate)| !board.contradict(*reference, *candidate));
    board.take_all(found, Rule::Shape, SCORE);
}

/// The dimensions that matter, sorted.
pub(super) fn kind(shape: &Shape) -> Vec<u64> {
    let mut dims: Vec<u64> = shape.dims().iter().copied().filter(|dim| *dim != 1).collect();
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
        result(&settings(&[Rule::Shape]), &Source::shaped(reference), &Source::shaped(candidate)).0
    }

    #[test]
    fn the_only_two_of_a_shape_are_a_pair_up_to_order_and_ones() {
        assert_eq!(by_shape(&[("a", &[1, 3, 4]), ("b", &[7])], &[("x", &[7, 1]), ("y", &[4, 3])]), ["a=y", "b=x"]);
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
    fn another_layer_or_another_part_is_not_paired_by_shape() {
        assert!(by_shape(&[("layers.1.zip", &[3, 4])], &[("layers.2.zap", &[3, 4])]).is_empty());
        assert!(by_shape(&[("layers.1.mlp.up_proj.weight", &[3, 4])], &[("blk.1.ffn_down.weight", &[4, 3])]).is_empty());
    }
}
