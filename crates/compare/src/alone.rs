//! One source alone: every tensor against every other, planned as if it were two sides.
//!
//! Few pairs are all measured. Of many only the most alike are, by sketches that read each tensor once; the others keep their score, with
//! the rule `values`. Unequal shapes are incomparable, which their headers tell.

use crate::{
    pairing::{self, Pair, PairError, Pairing},
    plan::Plan,
    settings::{Rule, Settings},
    side::Side,
};
use globset::{Glob, GlobSet, GlobSetBuilder};
use std::collections::HashMap;

/// As many pairs are measured unasked: what is most alike is what people look for.
const MEASURED: usize = 200;
/// As many are listed: beyond, a report is too large to be read by anyone.
const LISTED: usize = 100_000;

/// A plan, and how many pairs it leaves out because nobody could read them all.
pub fn plan_alone(
    side: &Side<'_>,
    settings: &Settings,
    exact: bool,
) -> Result<(Plan, u64), PairError> {
    let filter = Wanted::new(settings)?;
    let wanted: Vec<bool> = side
        .items()
        .iter()
        .map(|item| filter.wants(&item.name))
        .collect();
    let keeps = |pair: &Pair| wanted[pair.reference[0]] && wanted[pair.candidate[0]];
    let count = wanted.iter().filter(|wanted| **wanted).count() as u64;
    let total = count * count.saturating_sub(1) / 2;
    let pairs: Vec<Pair> = if total <= MEASURED as u64 || exact {
        pairing::all_pairs(side).filter(keeps).collect()
    } else {
        ranked(side, total <= LISTED as u64, keeps)
    };
    let missing = total - pairs.len() as u64;
    let left_out = wanted
        .iter()
        .enumerate()
        .filter(|(_, wanted)| !**wanted)
        .map(|(item, _)| item)
        .collect();
    Ok((
        Plan {
            pairing: Pairing {
                pairs,
                left_out: [left_out, Vec::new()],
                ..Pairing::default()
            },
            alone: true,
        },
        missing,
    ))
}

/// All pairs in order, or the most alike of them; all but the best of equal shape only ranked.
fn ranked(side: &Side<'_>, all: bool, keeps: impl Fn(&Pair) -> bool) -> Vec<Pair> {
    let equal = |pair: &Pair| {
        side.items()[pair.reference[0]].shape == side.items()[pair.candidate[0]].shape
    };
    let mut by_score = pairing::rank_by_sketch(side, LISTED);
    by_score.retain(&keeps);
    let mut room = MEASURED;
    for pair in &mut by_score {
        if !equal(pair) {
            pair.rule = Rule::Shape;
        } else if room > 0 {
            (pair.rule, room) = (Rule::Shape, room - 1);
        }
    }
    if !all {
        by_score.sort_by_key(|pair| (pair.reference[0], pair.candidate[0]));
        return by_score;
    }
    let mut known: HashMap<(usize, usize), Pair> = by_score
        .into_iter()
        .map(|pair| ((pair.reference[0], pair.candidate[0]), pair))
        .collect();
    let place = |pair: Pair| match known.remove(&(pair.reference[0], pair.candidate[0])) {
        Some(ranked) => ranked,
        None if equal(&pair) => Pair {
            rule: Rule::Values,
            score: 0.0,
            ..pair
        },
        None => pair,
    };
    pairing::all_pairs(side).filter(keeps).map(place).collect()
}

/// `only` and `skip`, where a name stands for itself.
struct Wanted {
    only: Option<GlobSet>,
    skip: GlobSet,
}

impl Wanted {
    fn new(settings: &Settings) -> Result<Self, PairError> {
        let set = |globs: &[String]| -> Result<GlobSet, PairError> {
            let wrong = |glob: &str| {
                let glob = glob.to_owned();
                move |source| PairError::Glob { glob, source }
            };
            let mut set = GlobSetBuilder::new();
            for glob in globs {
                set.add(Glob::new(glob).map_err(wrong(glob))?);
            }
            set.build().map_err(wrong(&globs.join(" ")))
        };
        let only = (!settings.only.is_empty())
            .then(|| set(&settings.only))
            .transpose()?;
        Ok(Self {
            only,
            skip: set(&settings.skip)?,
        })
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.is_match(name)) && !self.skip.is_match(name)
    }
}
