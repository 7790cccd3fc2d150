//! Experts that every rank counts from zero: `ep1/experts.0` of two ranks with four experts each is the fifth.
//!
//! Only where it must be so: all ranks of the experts have the same numbers, from zero without a gap. Ranks that hold different numbers have
//! counted through, and a rank that holds all of them would hold no part.

use crate::ranks::Placed;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Puts the number that counts all experts into the names of those that count their rank's.
pub fn count_through(placed: &mut [Option<Placed>]) {
    let mut there: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (placed, rank) in placed
        .iter()
        .flatten()
        .filter_map(|placed| Some((placed, placed.experts?)))
    {
        let numbers = there.entry(rank).or_default();
        numbers.extend(number(&placed.bare).map(|(_, expert)| expert));
    }
    let Some(first) = there.values().next().cloned() else {
        return;
    };
    let local = first.len() as u64;
    let gapless = |numbers: &BTreeSet<u64>| numbers.iter().copied().eq(0..local);
    if local == 0
        || there.len() < 2
        || !there.keys().copied().eq(0..there.len() as u64)
        || !there.values().all(gapless)
    {
        return;
    }
    for placed in placed.iter_mut().flatten() {
        let Some(rank) = placed.experts else { continue };
        for name in [&mut placed.name, &mut placed.bare] {
            if let Some((digits, expert)) = number(name) {
                // Both are less than the number of tensors.
                name.replace_range(digits, &(rank * local + expert).to_string());
            }
        }
    }
}

/// The number of an expert, and where its digits are: `experts.3.up_proj`, `experts.local_experts.3.up_proj`, `experts.linear_fc1.weight3`.
fn number(name: &str) -> Option<(Range<usize>, u64)> {
    let start = name.find("experts.").or_else(|| name.find("experts/"))?;
    let mut at = start;
    for segment in name[start..].split(['.', '/']) {
        let word = segment.trim_end_matches(|last: char| last.is_ascii_digit());
        let digits = at + word.len()..at + segment.len();
        if let Ok(expert) = name[digits.clone()].parse()
            && matches!(word, "" | "weight" | "bias")
        {
            return Some((digits, expert));
        }
        at += segment.len() + 1;
    }
    None
}
