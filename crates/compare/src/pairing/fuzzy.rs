//! Names that are nearly the same, above a threshold, never across layer numbers or any other number.
//!
//! Names with equal numbers form a block. In a block, names that are alike enough are connected, and in each connected part the assignment
//! with the greatest total similarity is taken, not the greedy one. Equal dtypes and shapes break ties.
//!
//! Names that differ in nothing but a letter of a word are alike whatever they mean: with the letter, the meaning is lost.
//!
//! A word that one name has and the other has nothing for must be new to the other's side: `norm1_context` is not a long `norm1` where both sides
//! know a `context`. Who lowers the threshold wants those too.
//!
//! Bounds: a block of more than [`BLOCK`] combinations is left to the next rules, and so is a connected part of more than [`PART`] names on
//! a side, where "nearly the same" no longer picks anybody out.

use super::{
    assignment,
    rules::{Board, CANDIDATE, REFERENCE},
    shape,
};
use crate::settings::Rule;
use std::collections::{BTreeMap, HashMap, HashSet};
use twinscope_names::similarity::Words;

/// Combinations compared in one block: two thousand names a side.
const BLOCK: usize = 4_000_000;

/// Names a side in one connected part: the assignment costs its cube.
const PART: usize = 400;

/// What an equal shape and an equal dtype add when similarities are equal; too little to outweigh a letter.
const SAME_SHAPE: f64 = 1e-3;
const SAME_DTYPE: f64 = 1e-4;

/// The threshold where nobody has chosen one.
const USUAL: f64 = 0.8;

type Block = [Vec<(usize, Words)>; 2];

pub(super) fn pair(board: &mut Board<'_, '_>) {
    let threshold = board.settings.fuzzy_threshold;
    let known = if threshold < USUAL {
        Default::default()
    } else {
        [REFERENCE, CANDIDATE].map(|side| vocabulary(board, side))
    };
    let mut found = Vec::new();
    for block in blocks(board).into_values() {
        if block.iter().any(Vec::is_empty)
            || block[REFERENCE]
                .len()
                .saturating_mul(block[CANDIDATE].len())
                > BLOCK
        {
            continue;
        }
        let edges = edges(&block, threshold, &known);
        for part in parts(&block, &edges) {
            assign(board, &block, &edges, &part, &mut found);
        }
    }
    found.retain(|(reference, candidate, _)| !board.is_half(*reference, *candidate));
    found.sort_by_key(|(reference, ..)| *reference);
    found.into_iter().for_each(|(reference, candidate, score)| {
        board.take(&[reference], &[candidate], Rule::Fuzzy, score);
    });
}

/// Every word of a side. Empty where no name of it is left.
fn vocabulary(board: &Board<'_, '_>, side: usize) -> HashSet<String> {
    if board.free_units(REFERENCE).is_empty() || board.free_units(CANDIDATE).is_empty() {
        return HashSet::new();
    }
    let read = |unit: usize| {
        let name = board.name(side, unit);
        let words: Vec<String> = Words::of(name).all().map(str::to_owned).collect();
        words.into_iter().chain(name.written.iter().cloned())
    };
    board.all_units(side).flat_map(read).collect()
}

/// Free units by layer and numbers.
fn blocks(board: &Board<'_, '_>) -> BTreeMap<(Option<i128>, Vec<u64>), Block> {
    let mut blocks: BTreeMap<_, Block> = BTreeMap::new();
    for side in [REFERENCE, CANDIDATE] {
        let free = board.free_units(side);
        let mut times: HashMap<&str, usize> = HashMap::new();
        free.iter()
            .for_each(|unit| *times.entry(&board.unit(side, *unit).name).or_default() += 1);
        // Of several that are called the same none is more alike than another.
        for unit in free
            .into_iter()
            .filter(|unit| times[board.unit(side, *unit).name.as_str()] == 1)
        {
            let words = Words::of(board.name(side, unit));
            blocks
                .entry((board.layer(side, unit), words.numbers.clone()))
                .or_default()[side]
                .push((unit, words));
        }
    }
    blocks
}

/// Of each reference name of a block, the candidates alike enough, by position in the block.
fn edges(block: &Block, threshold: f64, known: &[HashSet<String>; 2]) -> Vec<Vec<(usize, f64)>> {
    let differs = |r: &Words, c: &Words| {
        r.own(c).iter().any(|word| known[CANDIDATE].contains(*word))
            || c.own(r).iter().any(|word| known[REFERENCE].contains(*word))
    };
    // Both are words that both sides know: neither is the other, misspelt.
    let both_known =
        |(r, c): &(&str, &str)| known[CANDIDATE].contains(*r) && known[REFERENCE].contains(*c);
    let row = |(_, words): &(usize, Words)| {
        let alike = |(at, (_, other)): (usize, &(usize, Words))| {
            let misspelt = words
                .misspelt(other)
                .filter(|found| !found.words.iter().any(both_known))
                .map(|found| found.score);
            let alike = Some(words.similarity(other))
                .filter(|alike| *alike > 0.0 && *alike >= threshold && !differs(words, other));
            Some((
                at,
                alike
                    .into_iter()
                    .chain(misspelt)
                    .reduce(f64::max)
                    .filter(|alike| *alike >= threshold)?,
            ))
        };
        block[CANDIDATE]
            .iter()
            .enumerate()
            .filter_map(alike)
            .collect()
    };
    block[REFERENCE].iter().map(row).collect()
}

/// Positions of the names connected with each other.
fn parts(block: &Block, edges: &[Vec<(usize, f64)>]) -> Vec<[Vec<usize>; 2]> {
    let mut back: Vec<Vec<usize>> = vec![Vec::new(); block[CANDIDATE].len()];
    edges
        .iter()
        .enumerate()
        .for_each(|(row, to)| to.iter().for_each(|(column, _)| back[*column].push(row)));
    let mut seen = [vec![false; edges.len()], vec![false; back.len()]];
    let mut parts = Vec::new();
    for start in 0..edges.len() {
        if seen[REFERENCE][start] || edges[start].is_empty() {
            continue;
        }
        let mut part = [vec![start], Vec::new()];
        seen[REFERENCE][start] = true;
        let mut next = 0;
        while next < part[REFERENCE].len() {
            for (column, _) in &edges[part[REFERENCE][next]] {
                if !std::mem::replace(&mut seen[CANDIDATE][*column], true) {
                    part[CANDIDATE].push(*column);
                    for row in &back[*column] {
                        if !std::mem::replace(&mut seen[REFERENCE][*row], true) {
                            part[REFERENCE].push(*row);
                        }
                    }
                }
            }
            next += 1;
        }
        parts.push(part);
    }
    parts
}

fn assign(
    board: &Board<'_, '_>,
    block: &Block,
    edges: &[Vec<(usize, f64)>],
    part: &[Vec<usize>; 2],
    found: &mut Vec<(usize, usize, f64)>,
) {
    if part.iter().any(|names| names.len() > PART) {
        return;
    }
    let (rows, columns) = (part[REFERENCE].len(), part[CANDIDATE].len());
    let at: BTreeMap<usize, usize> = part[CANDIDATE]
        .iter()
        .enumerate()
        .map(|(at, column)| (*column, at))
        .collect();
    let mut weights = vec![0.0; rows * columns];
    for (row, position) in part[REFERENCE].iter().enumerate() {
        for (column, alike) in &edges[*position] {
            weights[row * columns + at[column]] = alike
                + tie(
                    board,
                    block[REFERENCE][*position].0,
                    block[CANDIDATE][*column].0,
                );
        }
    }
    let columns_of = assignment::best(rows, columns, |row, column| weights[row * columns + column]);
    for (row, column) in columns_of
        .into_iter()
        .enumerate()
        .filter_map(|(row, column)| Some((row, column?)))
    {
        let (position, to) = (part[REFERENCE][row], part[CANDIDATE][column]);
        if let Some((_, alike)) = edges[position].iter().find(|(column, _)| *column == to) {
            found.push((block[REFERENCE][position].0, block[CANDIDATE][to].0, *alike));
        }
    }
}

fn tie(board: &Board<'_, '_>, reference: usize, candidate: usize) -> f64 {
    let (Some(r), Some(c)) = (
        board.single(REFERENCE, reference),
        board.single(CANDIDATE, candidate),
    ) else {
        return 0.0;
    };
    let shapes = if shape::kind(&r.shape) == shape::kind(&c.shape) {
        SAME_SHAPE
    } else {
        0.0
    };
    shapes + if r.dtype == c.dtype { SAME_DTYPE } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use crate::{Settings, pairing::testing::*, settings::Rule};

    #[test]
    fn misspelt_names_are_paired_with_their_score() {
        let (pairs, pairing) = paired_with(
            &settings(&[Rule::Fuzzy]),
            &names(&["0_querry", "0_hidden_out"]),
            &names(&["0_hiden_out", "0_query"]),
        );
        assert_eq!(pairs, ["0_querry=0_query", "0_hidden_out=0_hiden_out"]);
        assert!(
            pairing
                .pairs
                .iter()
                .all(|pair| pair.rule == Rule::Fuzzy && pair.score > 0.8 && pair.score < 1.0)
        );
    }

    #[test]
    fn a_wrong_letter_in_a_known_word_is_only_that() {
        let reference = [
            "layers.0.self_attn.q_proj.weight",
            "layers.0.self_attn.k_proj.weight",
            "layers.0.input_layernorm.weight",
        ];
        let candidate = [
            "layers.0.self_atn.q_proj.weight",
            "layers.0.self_attn.k_porj.weight",
            "layers.0.imput_layernorm.weight",
        ];
        let expected: Vec<String> = reference
            .iter()
            .zip(candidate)
            .map(|(r, c)| format!("{r}={c}"))
            .collect();
        assert_eq!(paired(&[Rule::Fuzzy], &reference, &candidate), expected);
        // The partner is not there: nobody else is it.
        assert!(paired(&[Rule::Fuzzy], &reference[..1], &candidate[1..2]).is_empty());
        // Less is wrong with a wrong letter than with a word more.
        assert_eq!(
            paired(
                &[Rule::Fuzzy],
                &["0_value", "0_value_final"],
                &["0_valuefinal", "0_vualue"]
            ),
            ["0_value=0_vualue", "0_value_final=0_valuefinal"]
        );
    }

    #[test]
    fn numbers_are_never_crossed() {
        assert!(
            paired(
                &[Rule::Fuzzy],
                &["layers.3.outer_thing"],
                &["layers.4.outer_thing_"]
            )
            .is_empty()
        );
        assert!(
            paired(
                &[Rule::Fuzzy],
                &["layers.3.experts.1.outer_thing"],
                &["layers.3.experts.2.outer_things"]
            )
            .is_empty()
        );
        assert!(
            paired(
                &[Rule::Fuzzy],
                &["conv1_outer_thing"],
                &["conv2_outer_thing"]
            )
            .is_empty()
        );
    }

    #[test]
    fn the_offset_counts_as_the_same_layer() {
        let settings = Settings {
            layer_offset: Some(1),
            ..settings(&[Rule::Fuzzy])
        };
        assert_eq!(
            paired_with(
                &settings,
                &names(&["layers.3.outer_thing"]),
                &names(&["layers.4.outer_things", "layers.3.outer_things"])
            )
            .0,
            ["layers.3.outer_thing=layers.4.outer_things"]
        );
    }

    #[test]
    fn the_best_sum_wins_over_the_best_first() {
        // Greedy would take `alpha_beta_gamma` with its equal and leave the other without a partner.
        let settings = Settings {
            fuzzy_threshold: 0.6,
            ..settings(&[Rule::Fuzzy])
        };
        let reference = names(&["alpha_beta_gamma_delta", "alpha_beta_gamma"]);
        let candidate = names(&["alpha_beta_gamma_delto", "alpha_beta_gamma_delta_omega"]);
        assert_eq!(paired_with(&settings, &reference, &candidate).0.len(), 2);
    }

    #[test]
    fn shapes_break_ties() {
        let reference = Source::shaped(&[("outer_block_main", &[3])]);
        let candidate = Source::shaped(&[("outer_block_maix", &[4]), ("outer_block_maiy", &[3])]);
        assert_eq!(
            result(&settings(&[Rule::Fuzzy]), &reference, &candidate).0,
            ["outer_block_main=outer_block_maiy"]
        );
    }

    #[test]
    fn opposites_and_what_is_made_of_a_tensor_are_never_taken_for_it() {
        for (one, other) in [
            (
                "fake_quant.activation_min_val",
                "fake_quant.activation_max_val",
            ),
            ("layers.0.mlp.output", "layers.0.mlp.output.grad"),
            ("optimizer.state.w.exp_avg", "optimizer.state.w.exp_avg_sq"),
            (
                "unet.up_blocks.resnet_conv.weight",
                "unet.down_blocks.resnet_conv.weight",
            ),
            (
                "embed.source_token_embedding.table",
                "embed.target_token_embedding.table",
            ),
        ] {
            assert!(paired(&[Rule::Fuzzy], &[one], &[other]).is_empty(), "{one}");
        }
    }

    #[test]
    fn a_word_that_both_sides_know_is_no_spelling_of_another() {
        let reference = [
            "time_text.guidance_embedder.linear_one",
            "blocks.0.big_wide_norm1.linear",
        ];
        let candidate = [
            "time_text.vector_embedder.linear_one",
            "blocks.0.big_wide_norm1_context.linear",
        ];
        assert_eq!(
            paired(&[Rule::Fuzzy], &reference, &candidate).len(),
            2,
            "as long as the other words are new"
        );
        let [mut r, mut c] = [reference.to_vec(), candidate.to_vec()];
        r.extend(["blocks.1.context", "vector_in"]);
        c.extend(["blocks.2.guidance_in"]);
        assert!(paired(&[Rule::Fuzzy], &r, &c).is_empty());
        let vit = [
            "vit.embeddings.cls_token",
            "vit.embeddings.patch_embeddings.projection.bias",
        ];
        assert_eq!(
            paired(
                &[Rule::Fuzzy],
                &vit,
                &["patch_embed.proj.bias", "cls_token"]
            )
            .len(),
            2
        );
    }

    #[test]
    fn the_threshold_is_the_users() {
        let strict = Settings {
            fuzzy_threshold: 0.99,
            ..settings(&[Rule::Fuzzy])
        };
        assert!(
            paired_with(&strict, &names(&["0_querry"]), &names(&["0_query"]))
                .0
                .is_empty()
        );
    }
}
