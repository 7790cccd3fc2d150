//! Names that say the same in other words: prefixes, separators, and the name families. Fused tensors against their parts come first,
//! since Megatron's `linear_fc1` may be either `up` or `gate` and `up`.
//!
//! Two tensors of one side that come out with one name are not paired by this rule. What is still free after that may carry a prefix that
//! all of its side's names have and none of the other's (`unet.`, `vision_tower.`).

use super::{
    groups,
    rules::{Board, CANDIDATE, REFERENCE},
    shape,
};
use crate::settings::Rule;
use twinscope_names::{name::Name, prefixes::shared_prefix};

pub(super) fn pair(board: &mut Board<'_, '_>) {
    // Nothing is left to pair: reading ten thousand names would only take time.
    if [REFERENCE, CANDIDATE]
        .into_iter()
        .any(|side| board.free_units(side).is_empty())
    {
        return;
    }
    groups::pair(board);
    let mut found =
        board.unique(|side, unit| Some((board.layer(side, unit), board.name(side, unit).key())));
    found.retain(|(reference, candidate)| !board.is_half(*reference, *candidate));
    let score = if board.is_stripped() { 0.9 } else { 0.95 };
    board.take_all(found, Rule::Normalized, score);
    // What is called `fc1` on one side and `gate_up` on the other, when both are as large.
    let mut found = board.unique(|side, unit| {
        let name = board.name(side, unit);
        matches!(name.stage, Some("mlp_up" | "mlp_gate_up"))
            .then(|| (board.layer(side, unit), name.key_as("mlp_gate_up")))
    });
    let kind = |side: usize, unit: usize| {
        board
            .single(side, unit)
            .map(|item| shape::kind(&item.shape))
    };
    found.retain(|(reference, candidate)| {
        match (kind(REFERENCE, *reference), kind(CANDIDATE, *candidate)) {
            (Some(reference), Some(candidate)) => reference == candidate,
            // Shards: all of them together.
            _ => board.elements(REFERENCE, *reference) == board.elements(CANDIDATE, *candidate),
        }
    });
    board.take_all(found, Rule::Normalized, 0.9);
    after_the_sum(board);
    lone_norms(board);
    last_projections(board);
    for side in [REFERENCE, CANDIDATE] {
        without_prefix(board, side);
    }
}

/// BERT's norms come after the sums, and say so; `norm1` and `norm2` do not say where they come.
fn after_the_sum(board: &mut Board<'_, '_>) {
    let says = |side: usize| {
        board
            .free_units(side)
            .iter()
            .any(|unit| board.name(side, *unit).stage == Some("attn_out_norm"))
    };
    if says(REFERENCE) == says(CANDIDATE) {
        return;
    }
    let found = board.unique(|side, unit| {
        let name = board.name(side, unit);
        let stage = match name.stage? {
            "attn_out_norm" | "norm1" => "norm1",
            "out_norm" | "norm2" => "norm2",
            _ => return None,
        };
        Some((board.layer(side, unit)?, name.key_as(stage)))
    });
    board.take_all(found, Rule::Normalized, 0.85);
}

/// A layer's `norm` that is called nothing else: the first where its side calls another one the second, and the other way round; where it is the
/// only one on its side, the only one of the other.
fn lone_norms(board: &mut Board<'_, '_>) {
    let is_bare =
        |name: &Name| name.layer.is_some() && name.stage.is_none() && name.rest == ["norm"];
    let sides = [REFERENCE, CANDIDATE].map(|side| {
        let names = || {
            board
                .all_units(side)
                .map(|unit| board.name(side, unit))
                .filter(|name| name.layer.is_some())
        };
        let has = |stage: &str| names().any(|name| name.stage == Some(stage));
        (names().any(is_bare), [has("norm1"), has("norm2")])
    });
    if sides[REFERENCE].0 == sides[CANDIDATE].0 {
        return;
    }
    let stage_of = |side: usize| match (sides[side].1, sides[CANDIDATE - side].1) {
        ([false, true], _) | ([false, false], [true, false]) => Some("norm1"),
        ([true, false], _) | ([false, false], [false, true]) => Some("norm2"),
        _ => None,
    };
    let found = board.unique(|side, unit| {
        let name = board.name(side, unit);
        match name.stage {
            Some(stage @ ("norm1" | "norm2")) => Some((
                board.layer(side, unit)?,
                stage,
                name.rest.clone(),
                name.param,
            )),
            _ if is_bare(name) => Some((
                board.layer(side, unit)?,
                stage_of(side)?,
                Vec::new(),
                name.param,
            )),
            _ => None,
        }
    });
    board.take_all(found, Rule::Normalized, 0.85);
}

/// What attention or a feed-forward returns is what its last projection does, where a side has only one of the two.
fn last_projections(board: &mut Board<'_, '_>) {
    let is_computed = |name: &&Name| name.layer.is_some() && name.param.is_none();
    let knows = |side: usize, stage: &str, word: &str| {
        let names = || {
            board
                .all_units(side)
                .map(|unit| board.name(side, unit))
                .filter(is_computed)
        };
        (
            names().any(|name| name.stage == Some(stage) && name.rest.is_empty()),
            names().any(|name| name.stage.is_none() && name.rest == [word]),
        )
    };
    let one_each = |(stage, word): &(&str, &str)| {
        matches!(
            (knows(REFERENCE, stage, word), knows(CANDIDATE, stage, word)),
            ((true, false), (false, true)) | ((false, true), (true, false))
        )
    };
    let asked: Vec<&str> = [("attn_o", "attn"), ("mlp_down", "mlp")]
        .iter()
        .filter(|both| one_each(both))
        .map(|(stage, _)| *stage)
        .collect();
    if asked.is_empty() {
        return;
    }
    let found = board.unique(|side, unit| {
        let name = board.name(side, unit);
        let stage = match (name.stage, name.rest.as_slice()) {
            (Some(stage @ ("attn_o" | "mlp_down")), []) => stage,
            (None, [word]) if word == "attn" => "attn_o",
            (None, [word]) if word == "mlp" => "mlp_down",
            _ => return None,
        };
        Some((
            board
                .layer(side, unit)
                .filter(|_| name.param.is_none() && asked.contains(&stage))?,
            stage,
        ))
    });
    board.take_all(found, Rule::Normalized, 0.85);
}

/// A prefix that tells no tensor of a side from another, and that the other side does not know.
fn without_prefix(board: &mut Board<'_, '_>, side: usize) {
    let other = CANDIDATE - side;
    if board.free_units(side).is_empty() || board.free_units(other).is_empty() {
        return;
    }
    // Without their ranks: `rank0/out.layers.0` and `rank1/out.layers.0` begin with `out.`.
    let there = &*board;
    let names = |side: usize| {
        there
            .all_units(side)
            .map(move |unit| there.unit(side, unit).name.as_str())
    };
    let longest = names(side)
        .reduce(shared_prefix)
        .filter(|_| board.all_units(side).len() > 1)
        .unwrap_or_default()
        .len();
    let ends = |text: &str| {
        text.match_indices(['.', '/'])
            .map(|(at, _)| at + 1)
            .collect::<Vec<usize>>()
    };
    let first = names(side).next().unwrap_or_default();
    let prefixes: Vec<String> = ends(&first[..longest])
        .into_iter()
        .map(|end| first[..end].to_owned())
        .collect();
    let unknown: Vec<String> = prefixes
        .into_iter()
        .filter(|prefix| !names(other).any(|name| name.starts_with(prefix.as_str())))
        .collect();
    for prefix in unknown {
        let mut found = board.unique(|of, unit| {
            if of == other {
                return Some((board.layer(of, unit), board.name(of, unit).key()));
            }
            let name: Name = board.read_name(
                side,
                board.unit(side, unit).name.strip_prefix(prefix.as_str())?,
            );
            Some((board.layer_of(side, &name), name.key()))
        });
        found.retain(|(reference, candidate)| !board.is_half(*reference, *candidate));
        board.take_all(found, Rule::Normalized, 0.9);
    }
}

#[cfg(test)]
mod tests {
    use crate::{pairing::testing::*, settings::Rule};

    #[test]
    fn a_prefix_of_all_names_of_one_side_says_nothing() {
        let plain = [
            "down.0.conv1.weight",
            "down.0.conv2.weight",
            "mid.attn.to_q.weight",
        ];
        let long: Vec<String> = plain
            .iter()
            .map(|name| format!("pipe.unet.{name}"))
            .collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let expected: Vec<String> = plain
            .iter()
            .zip(&long)
            .map(|(a, b)| format!("{a}={b}"))
            .collect();
        assert_eq!(paired(&[Rule::Normalized], &plain, &long), expected);
        assert_eq!(paired(&[Rule::Normalized], &long, &plain).len(), 3);
    }

    #[test]
    fn a_file_in_the_folder_of_every_rank_says_nothing() {
        let plain = ["layers.0.attn", "layers.0.mlp"];
        let ranks: Vec<String> = (0..2)
            .flat_map(|rank| plain.map(|name| format!("rank{rank}/acts.{name}")))
            .collect();
        let ranks: Vec<&str> = ranks.iter().map(String::as_str).collect();
        assert_eq!(
            paired(&[Rule::Normalized], &plain, &ranks),
            [
                "layers.0.attn=rank0/acts.layers.0.attn+rank1/acts.layers.0.attn",
                "layers.0.mlp=rank0/acts.layers.0.mlp+rank1/acts.layers.0.mlp"
            ]
        );
    }

    #[test]
    fn an_up_is_not_the_half_of_a_gate_and_up_whose_gate_is_missing() {
        let up = |rows| {
            Source::shaped(&[
                ("layers.0.mlp.up_proj.weight", &[rows, 4]),
                ("layers.1.mlp.gate_proj.weight", &[8, 4]),
            ])
        };
        let fc1 = Source::shaped(&[("decoder.layers.0.mlp.linear_fc1.weight", &[16, 4])]);
        assert!(
            result(&settings(&[Rule::Normalized, Rule::Fuzzy]), &up(8), &fc1)
                .0
                .is_empty()
        );
        assert!(
            result(&settings(&[Rule::Normalized]), &fc1, &up(8))
                .0
                .is_empty()
        );
        assert_eq!(
            result(&settings(&[Rule::Normalized]), &up(16), &fc1)
                .0
                .len(),
            1
        );
    }

    #[test]
    fn norms_after_the_sum_are_the_first_and_the_second() {
        let hugging_face = [
            "encoder.layer.0.attention.output.LayerNorm.weight",
            "encoder.layer.0.output.LayerNorm.weight",
        ];
        let torch = [
            "encoder.layers.0.norm1.weight",
            "encoder.layers.0.norm2.weight",
        ];
        let expected: Vec<String> = hugging_face
            .iter()
            .zip(torch)
            .map(|(a, b)| format!("{a}={b}"))
            .collect();
        assert_eq!(paired(&[Rule::Normalized], &hugging_face, &torch), expected);
    }

    #[test]
    fn a_norm_that_is_called_nothing_else_is_the_one_that_is_left() {
        let only = (
            ["backbone.layers.0.norm.weight", "backbone.layers.0.x"],
            ["blk.0.attn_norm.weight", "blk.0.y"],
        );
        assert_eq!(
            paired(&[Rule::Normalized], &only.0, &only.1),
            ["backbone.layers.0.norm.weight=blk.0.attn_norm.weight"]
        );
        let esm = [
            "esm.encoder.layer.0.attention.LayerNorm.weight",
            "esm.encoder.layer.0.LayerNorm.weight",
        ];
        let fair = [
            "layers.0.self_attn_layer_norm.weight",
            "layers.0.final_layer_norm.weight",
        ];
        let expected: Vec<String> = esm
            .iter()
            .zip(fair)
            .map(|(a, b)| format!("{a}={b}"))
            .collect();
        assert_eq!(paired(&[Rule::Normalized], &esm, &fair), expected);
        // Not the one that the other side has left.
        assert!(
            paired(
                &[Rule::Normalized],
                &[esm[1], "esm.encoder.layer.1.attention.LayerNorm.weight"],
                &[fair[0]]
            )
            .is_empty()
        );
    }

    #[test]
    fn a_feed_forward_returns_what_its_last_projection_does() {
        assert_eq!(
            paired(
                &[Rule::Normalized],
                &["model.layers.0.mlp.down_proj"],
                &["ffn_out-0"]
            ),
            ["model.layers.0.mlp.down_proj=ffn_out-0"]
        );
        let both = ["model.layers.0.mlp.down_proj", "model.layers.0.mlp"];
        assert_eq!(
            paired(&[Rule::Normalized], &both, &["blk.0.mlp"]),
            ["model.layers.0.mlp=blk.0.mlp"]
        );
    }

    #[test]
    fn two_different_prefixes_are_two_things() {
        assert!(
            paired(
                &[Rule::Normalized],
                &["teacher.a", "teacher.b"],
                &["student.a", "student.b"]
            )
            .is_empty()
        );
    }
}
