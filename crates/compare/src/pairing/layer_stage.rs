//! `{layer}_{stage}`: equal stages of corresponding layers, stages never seen before included.
//!
//! Folders before the name should be equal; where that leaves names over, their numbers must be (steps), or one side has no folders at
//! all, as long as each stage of a layer is there only once. Names that are not of this form take no part.

use super::{
    rules::{Board, CANDIDATE, REFERENCE},
    sequence,
};
use crate::settings::Rule;
use twinscope_names::order;

pub(super) fn pair(board: &mut Board<'_, '_>) {
    sequence::pair(board, Rule::LayerStage);
    let found = board.unique(|side, unit| key(board, side, unit));
    board.take_all(found, Rule::LayerStage, 1.0);
    let found = board
        .unique(|side, unit| key(board, side, unit).map(|(folder, key)| (numbers(folder), key)));
    board.take_all(found, Rule::LayerStage, 0.95);
    let plain = |side: usize| {
        board
            .free_units(side)
            .into_iter()
            .filter_map(|unit| key(board, side, unit))
            .all(|(folder, _)| folder.is_empty())
    };
    if plain(REFERENCE) || plain(CANDIDATE) {
        let found = board.unique(|side, unit| key(board, side, unit).map(|(_, key)| key));
        board.take_all(found, Rule::LayerStage, 0.9);
    }
}

/// The numbers of a folder: another step is another tensor, another word may not be.
fn numbers(folder: &str) -> Vec<&str> {
    folder
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .collect()
}

/// The folder, the layer as the candidate counts, the stage.
fn key<'b>(
    board: &'b Board<'_, '_>,
    side: usize,
    unit: usize,
) -> Option<(&'b str, (i128, &'b str))> {
    let name = board.unit(side, unit).name.as_str();
    let (layer, stage) = order::layer_stage(name)?;
    let folder = name
        .rsplit_once(['/', '.'])
        .map_or("", |(folder, _)| folder);
    let offset = if side == REFERENCE {
        i128::from(board.offset)
    } else {
        0
    };
    Some((folder, (i128::from(layer) + offset, stage)))
}

#[cfg(test)]
mod tests {
    use crate::{
        pairing::testing::{names, paired, paired_with, settings},
        settings::Rule,
    };

    #[test]
    fn stages_never_seen_before_are_paired() {
        assert_eq!(
            paired(
                &[Rule::LayerStage],
                &["0_query", "0_zeta", "x"],
                &["0_zeta", "0_query", "x"]
            ),
            ["0_query=0_query", "0_zeta=0_zeta"]
        );
    }

    #[test]
    fn a_constant_layer_offset_is_found() {
        let (reference, candidate) = (
            names(&["3_q", "3_k", "4_q", "4_k", "5_q"]),
            names(&["0_q", "0_k", "1_q", "1_k", "2_q"]),
        );
        let result = paired_with(&settings(&[Rule::LayerStage]), &reference, &candidate);
        assert_eq!(
            result.0,
            ["3_q=0_q", "3_k=0_k", "4_q=1_q", "4_k=1_k", "5_q=2_q"]
        );
        assert_eq!(result.1.layer_offset, -3);
    }

    #[test]
    fn counting_from_one_is_an_offset_though_most_numbers_overlap() {
        let reference: Vec<String> = (0..10).map(|layer| format!("{layer}_query")).collect();
        let candidate: Vec<String> = (1..11).map(|layer| format!("{layer}_query")).collect();
        let (pairs, pairing) = paired_with(
            &settings(&[Rule::LayerStage, Rule::Exact]),
            &reference,
            &candidate,
        );
        assert_eq!((pairing.layer_offset, pairs.len()), (1, 10));
        assert_eq!(pairs[9], "9_query=10_query");
    }

    #[test]
    fn some_layers_of_more_are_no_offset() {
        let reference: Vec<String> = (0..10).map(|layer| format!("{layer}_query")).collect();
        let (pairs, pairing) = paired_with(
            &settings(&[Rule::LayerStage]),
            &reference,
            &names(&["4_query", "5_query"]),
        );
        assert_eq!(
            (pairing.layer_offset, pairs),
            (
                0,
                vec!["4_query=4_query".to_owned(), "5_query=5_query".to_owned()]
            )
        );
    }

    #[test]
    fn a_forced_offset_is_kept() {
        let mut settings = settings(&[Rule::LayerStage, Rule::Exact]);
        settings.layer_offset = Some(1);
        let (pairs, pairing) = paired_with(
            &settings,
            &names(&["0_q", "1_q", "x"]),
            &names(&["0_q", "1_q", "x"]),
        );
        assert_eq!(
            (pairs, pairing.layer_offset),
            (vec!["0_q=1_q".to_owned(), "x=x".to_owned()], 1)
        );
    }

    #[test]
    fn malformed_names_fall_through() {
        let rules = [Rule::LayerStage, Rule::Exact];
        let (_, pairing) = paired_with(
            &settings(&rules),
            &names(&["0_q", "x_q", "3_"]),
            &names(&["0_q", "x_q", "3_"]),
        );
        assert_eq!(
            pairing
                .pairs
                .iter()
                .map(|pair| pair.rule)
                .collect::<Vec<_>>(),
            [Rule::LayerStage, Rule::Exact, Rule::Exact]
        );
    }

    #[test]
    fn a_folder_on_one_side_does_not_matter_when_each_stage_is_there_once() {
        assert_eq!(
            paired(
                &[Rule::LayerStage],
                &["dump/0_q", "dump/1_q"],
                &["0_q", "1_q"]
            ),
            ["dump/0_q=0_q", "dump/1_q=1_q"]
        );
        assert_eq!(
            paired(&[Rule::LayerStage], &["mine/0_q"], &["theirs/0_q"]),
            ["mine/0_q=theirs/0_q"]
        );
        assert_eq!(
            paired(&[Rule::LayerStage], &["run5/0_q"], &["0_q"]),
            ["run5/0_q=0_q"]
        );
        assert!(
            paired(&[Rule::LayerStage], &["a/0_q", "b/0_q"], &["0_q"]).is_empty(),
            "which of the two is not known"
        );
        assert!(
            paired(&[Rule::LayerStage], &["step-1/0_q"], &["step-2/0_q"]).is_empty(),
            "another step is another tensor"
        );
    }
}
