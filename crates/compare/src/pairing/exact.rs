//! Equal names.

use super::{rules::Board, sequence};
use crate::settings::Rule;

pub(super) fn pair(board: &mut Board<'_, '_>) {
    sequence::pair(board, Rule::Exact);
    if !board.is_sequence() {
        let found = board.unique(|side, unit| {
            board
                .single(side, unit)
                .filter(|_| same_layer(board, side, unit))
                .map(|item| item.name.as_str())
        });
        board.take_all(found, Rule::Exact, 1.0);
    }
    // Then shards, whose names differ in the rank.
    let found = board.unique(|side, unit| {
        same_layer(board, side, unit).then(|| board.unit(side, unit).name.as_str())
    });
    board.take_all(found, Rule::Exact, 1.0);
}

/// With a layer offset, the same number is another layer.
fn same_layer(board: &Board<'_, '_>, side: usize, unit: usize) -> bool {
    board.offset == 0 || board.name(side, unit).layer.is_none()
}

#[cfg(test)]
mod tests {
    use crate::{
        pairing::testing::{paired, paired_with, settings},
        settings::Rule,
    };

    #[test]
    fn equal_names_are_pairs_in_the_references_order() {
        assert_eq!(
            paired(&[Rule::Exact], &["b", "a", "c"], &["a", "d", "b"]),
            ["b=b", "a=a"]
        );
    }

    #[test]
    fn numbers_that_only_count_may_differ() {
        let reference = ["000_embed", "001_layers.0.attn", "002_layers.0", "003_head"];
        let candidate = [
            "00_ids",
            "01_embed",
            "02_layers.0.attn",
            "03_layers.0.more",
            "04_layers.0",
            "05_head",
        ];
        let expected = [
            "000_embed=01_embed",
            "001_layers.0.attn=02_layers.0.attn",
            "002_layers.0=04_layers.0",
            "003_head=05_head",
        ];
        assert_eq!(
            paired(&[Rule::LayerStage, Rule::Exact], &reference, &candidate),
            expected
        );
        // Also against names without.
        assert_eq!(
            paired(
                &[Rule::LayerStage, Rule::Exact],
                &reference,
                &["head", "embed"]
            ),
            ["000_embed=embed", "003_head=head"]
        );
        // The same name with other numbers is one of several: those are layers.
        let layers = ["0_attn", "1_attn", "2_attn"];
        assert_eq!(
            paired(&[Rule::LayerStage, Rule::Exact], &layers, &layers),
            ["0_attn=0_attn", "1_attn=1_attn", "2_attn=2_attn"]
        );
    }

    #[test]
    fn ten_thousand_equal_names_pair_in_one_pass() {
        let names: Vec<String> = (0..10_000)
            .map(|n| format!("model.layers.{}.part_{}.weight", n / 100, n % 100))
            .collect();
        let (pairs, pairing) = paired_with(
            &settings(&[Rule::LayerStage, Rule::Exact, Rule::Normalized, Rule::Fuzzy]),
            &names,
            &names,
        );
        assert_eq!(
            (
                pairs.len(),
                pairing.only_reference.len(),
                pairing.layer_offset
            ),
            (10_000, 0, 0)
        );
    }
}
