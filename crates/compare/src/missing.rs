//! Ranks that were not recorded. What they hold was compared with nothing, and an `agree` that does not say so would be taken for the whole.
//!
//! A side lacks ranks where its shards line up with a part of the other side only, or not at all, and their numbers have a gap or they are
//! fewer than the other side makes room for. A tensor of which only a slice has a partner (one batch row of eight) is said too: nobody may mean
//! more than that slice, so it is no more than said.

use crate::{
    judged::{Finding, JudgedPair, Unmeasured},
    layout::{CutReason, Step, Which},
    pairing::{Pair, names_rank, rank_of},
    side::Side,
};
use std::collections::BTreeSet;

pub use twinscope_report::MISSING_RANKS;

/// The kind of the finding about slices.
const PART_COMPARED: &str = "part_compared";

/// What each side lacks, by the pairs that show it.
pub(crate) fn findings(
    pairs: &[Pair],
    judged: &[JudgedPair],
    sides: [&Side<'_>; 2],
) -> Vec<Finding> {
    let mut findings = missing_ranks(pairs, judged, sides);
    if findings.is_empty() {
        findings.extend(
            [
                (Which::Reference, "reference"),
                (Which::Candidate, "candidate"),
            ]
            .into_iter()
            .filter_map(|side| slices(judged, side)),
        );
    }
    findings
}

/// The tensors of a side of which a slice was compared; padding is not one.
fn slices(judged: &[JudgedPair], (which, name): (Which, &'static str)) -> Option<Finding> {
    let kept = |pair: &JudgedPair| {
        let cut = |step: &Step| match step {
            Step::Cut {
                side,
                axis,
                start,
                len,
                why: CutReason::RankZero | CutReason::Found,
            } if *side == which => Some(format!(
                "of `{}` only {start} to {} of dim {axis}",
                pair.name,
                start + len
            )),
            _ => None,
        };
        pair.layout.as_ref()?.steps.iter().find_map(cut)
    };
    let kept: Vec<String> = judged.iter().filter_map(kept).collect();
    let (first, others) = kept.split_first()?;
    let more = if others.is_empty() {
        String::new()
    } else {
        format!(", and so of {} more", tensors(others.len()))
    };
    let text = format!("{first} was compared, the rest has no partner{more}");
    Some(Finding {
        side: name.to_owned(),
        kind: PART_COMPARED.to_owned(),
        text,
    })
}

fn missing_ranks(pairs: &[Pair], judged: &[JudgedPair], sides: [&Side<'_>; 2]) -> Vec<Finding> {
    let of_side = |(which, name): (Which, &'static str)| {
        let mut there = BTreeSet::new();
        let mut short = Vec::new();
        for (pair, judged) in pairs.iter().zip(judged) {
            if let Some(ranks) = lacking(pair, judged, sides, which) {
                there.extend(ranks);
                short.push(&judged.name);
            }
        }
        let first = short.first()?;
        let ranks = there
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        let there = if there.len() == 1 {
            format!("only rank {ranks} is there")
        } else {
            format!("only ranks {ranks} are there")
        };
        let text = format!(
            "{there}: part of {} was compared with nothing, `{first}` the first",
            tensors(short.len())
        );
        Some(Finding {
            side: name.to_owned(),
            kind: MISSING_RANKS.to_owned(),
            text,
        })
    };
    [
        (Which::Reference, "reference"),
        (Which::Candidate, "candidate"),
    ]
    .into_iter()
    .filter_map(of_side)
    .collect()
}

fn tensors(count: usize) -> String {
    if count == 1 {
        "1 tensor".to_owned()
    } else {
        format!("{count} tensors")
    }
}

/// The ranks that are there of a pair's shards on this side, when others must be missing.
fn lacking(
    pair: &Pair,
    judged: &JudgedPair,
    sides: [&Side<'_>; 2],
    which: Which,
) -> Option<Vec<u64>> {
    let (own, other) = match which {
        Which::Reference => ((sides[0], &pair.reference), (sides[1], &pair.candidate)),
        Which::Candidate => ((sides[1], &pair.candidate), (sides[0], &pair.reference)),
    };
    let ranks: Vec<u64> = own
        .1
        .iter()
        .map(|item| rank_of(&own.0.items()[*item]))
        .collect::<Option<_>>()?;
    if ranks.len() == 1 && !names_rank(&own.0.items()[own.1[0]]) {
        return None;
    }
    // Rank beside rank: what is missing is without a partner.
    if own.1.len() == other.1.len()
        && other
            .1
            .iter()
            .all(|item| rank_of(&other.0.items()[*item]).is_some())
    {
        return None;
    }
    let gap = !ranks.iter().copied().eq(0..ranks.len() as u64);
    let cut = judged.layout.as_ref().is_some_and(|layout| {
        layout
            .steps
            .iter()
            .any(|step| matches!(step, Step::Cut { side, .. } if *side != which))
    });
    let elements = |(side, items): (&Side<'_>, &Vec<usize>)| {
        items.iter().try_fold(0u64, |sum, item| {
            sum.checked_add(side.items()[*item].shape.elements()?)
        })
    };
    let (mine, whole) = (elements(own)?, elements(other)?);
    let shard = mine.checked_div(ranks.len() as u64)?;
    let room = whole
        .checked_div(shard)
        .filter(|_| whole.is_multiple_of(shard))?;
    let fewer = room > ranks.len() as u64 && room.is_power_of_two();
    let incomparable = judged.unmeasured == Some(Unmeasured::Shapes);
    ((cut && (gap || fewer)) || (incomparable && gap && fewer)).then_some(ranks)
}
