//! Runs whose names are a count and a word (`003_Linear`): where one of them recorded more than the other, the counts no longer agree, and the words
//! alone are those of many tensors. What is left is their order.
//!
//! The longest common subsequence of both, as between two texts. A pair is taken only when every longest one has it: of two that are as good
//! neither is known, and what is left to the values is not left to chance.

use super::rules::{Board, CANDIDATE, REFERENCE};
use crate::settings::Rule;

/// Entries of a table: two thousand names a side.
const MOST: usize = 4_000_000;

/// Pairs by order, as `rule`. Does nothing where names say more than their order.
pub(super) fn pair(board: &mut Board<'_, '_>, rule: Rule) {
    if !board.is_sequence() {
        return;
    }
    let free = [REFERENCE, CANDIDATE].map(|side| board.free_units(side));
    if free[REFERENCE].len().saturating_mul(free[CANDIDATE].len()) > MOST {
        return;
    }
    let same = |r: usize, c: usize| {
        let (r, c) = (free[REFERENCE][r], free[CANDIDATE][c]);
        board.unit(REFERENCE, r).name == board.unit(CANDIDATE, c).name
            && board.elements(REFERENCE, r) == board.elements(CANDIDATE, c)
    };
    let found = certain(free[REFERENCE].len(), free[CANDIDATE].len(), same);
    let found = found
        .into_iter()
        .map(|(r, c)| (free[REFERENCE][r], free[CANDIDATE][c]))
        .collect();
    board.take_all(found, rule, 0.9);
}

/// The pairs of all longest common subsequences.
fn certain(
    rows: usize,
    columns: usize,
    same: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let width = columns + 1;
    let at = |r: usize, c: usize| r * width + c;
    // How long the longest one is of everything before, and of everything from a place on.
    let mut before = vec![0u32; (rows + 1) * width];
    let mut after = before.clone();
    for r in 0..rows {
        for c in 0..columns {
            let skip = before[at(r, c + 1)].max(before[at(r + 1, c)]);
            before[at(r + 1, c + 1)] = if same(r, c) {
                skip.max(before[at(r, c)] + 1)
            } else {
                skip
            };
        }
    }
    for r in (0..rows).rev() {
        for c in (0..columns).rev() {
            let skip = after[at(r + 1, c)].max(after[at(r, c + 1)]);
            after[at(r, c)] = if same(r, c) {
                skip.max(after[at(r + 1, c + 1)] + 1)
            } else {
                skip
            };
        }
    }
    let longest = after[0];
    let mut found = Vec::new();
    for r in 0..rows {
        // Without it, another is as long.
        if (0..=columns).any(|c| before[at(r, c)] + after[at(r + 1, c)] == longest) {
            continue;
        }
        let mut partners = (0..columns)
            .filter(|c| same(r, *c) && before[at(r, *c)] + 1 + after[at(r + 1, c + 1)] == longest);
        if let (Some(c), None) = (partners.next(), partners.next()) {
            found.push((r, c));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::{
        pairing::testing::{Source, paired, result, settings},
        settings::Rule,
    };

    const RULES: [Rule; 4] = [Rule::LayerStage, Rule::Exact, Rule::Normalized, Rule::Fuzzy];

    fn counted(words: &[&str]) -> Vec<String> {
        words
            .iter()
            .enumerate()
            .map(|(at, word)| format!("{at:03}_{word}"))
            .collect()
    }

    /// What is paired of two runs, as places.
    fn places(reference: &[&str], candidate: &[&str]) -> Vec<String> {
        let (reference, candidate) = (counted(reference), counted(candidate));
        let [r, c] = [&reference, &candidate]
            .map(|names| names.iter().map(String::as_str).collect::<Vec<&str>>());
        let found = paired(&RULES, &r, &c);
        found
            .iter()
            .map(|pair| {
                pair.split('=')
                    .map(|name| name[..3].trim_start_matches("00"))
                    .collect::<Vec<_>>()
                    .join("=")
            })
            .collect()
    }

    #[test]
    fn what_one_run_recorded_more_moves_nothing() {
        let reference = [
            "Embedding",
            "LayerNorm",
            "Linear",
            "Linear",
            "LayerNorm",
            "Linear",
            "Linear",
            "Head",
        ];
        let candidate = [
            "Embedding",
            "LayerNorm",
            "Dropout",
            "Linear",
            "Linear",
            "LayerNorm",
            "Linear",
            "Dropout",
            "Linear",
            "Head",
        ];
        assert_eq!(
            places(&reference, &candidate),
            ["0=0", "1=1", "2=3", "3=4", "4=5", "5=6", "6=8", "7=9"]
        );
        assert_eq!(places(&candidate, &reference).len(), 8);
    }

    #[test]
    fn of_two_that_are_as_good_neither_is_taken() {
        // Which of the two is missing is not known.
        assert_eq!(
            places(
                &["In", "Linear", "Linear", "Norm", "Linear"],
                &["In", "Linear", "Norm", "Linear"]
            ),
            ["0=0", "3=2", "4=3"]
        );
    }

    #[test]
    fn another_size_is_another_tensor() {
        let reference: [(&str, &[u64]); 4] = [
            ("0_In", &[4]),
            ("1_Linear", &[8]),
            ("2_Linear", &[16]),
            ("3_Out", &[4]),
        ];
        let candidate: [(&str, &[u64]); 3] =
            [("0_In", &[4]), ("1_Linear", &[1, 16]), ("2_Out", &[4])];
        let found = result(
            &settings(&RULES),
            &Source::shaped(&reference),
            &Source::shaped(&candidate),
        )
        .0;
        assert_eq!(found, ["0_In=0_In", "2_Linear=1_Linear", "3_Out=2_Out"]);
    }

    #[test]
    fn counts_that_agree_are_believed() {
        let words = ["In", "Linear", "Linear", "Linear", "Norm"];
        assert_eq!(places(&words, &words), ["0=0", "1=1", "2=2", "3=3", "4=4"]);
        // A run that stopped.
        assert_eq!(places(&words, &words[..3]), ["0=0", "1=1", "2=2"]);
    }
}
