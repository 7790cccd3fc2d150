//! `only` and `skip`: globs over names. A pair stays when one of its names, on either side, matches `only`, and none matches `skip`; so a
//! name family of one side is enough to pick the pairs.

use super::{Leftover, PairError, Pairing};
use crate::{Settings, side::Side};
use globset::{Glob, GlobSet, GlobSetBuilder};

pub(super) struct Filter {
    only: Option<GlobSet>,
    skip: GlobSet,
}

impl Filter {
    pub(super) fn new(settings: &Settings) -> Result<Self, PairError> {
        let only = (!settings.only.is_empty())
            .then(|| set(&settings.only))
            .transpose()?;
        Ok(Self {
            only,
            skip: set(&settings.skip)?,
        })
    }

    fn keeps<'n>(&self, names: impl Iterator<Item = &'n str> + Clone) -> bool {
        let wanted = self
            .only
            .as_ref()
            .is_none_or(|only| names.clone().any(|name| only.is_match(name)));
        wanted && (self.skip.is_empty() || !names.into_iter().any(|name| self.skip.is_match(name)))
    }

    pub(super) fn apply(&self, mut pairing: Pairing, sides: [&Side<'_>; 2]) -> Pairing {
        if self.only.is_none() && self.skip.is_empty() {
            return pairing;
        }
        let name = |side: usize, item: usize| sides[side].items()[item].name.as_str();
        let mut left_out = [Vec::new(), Vec::new()];
        pairing.pairs.retain(|pair| {
            let names = pair
                .reference
                .iter()
                .map(|item| name(0, *item))
                .chain(pair.candidate.iter().map(|item| name(1, *item)));
            let keep = self.keeps(names);
            if !keep {
                left_out[0].extend(&pair.reference);
                left_out[1].extend(&pair.candidate);
            }
            keep
        });
        for (side, only) in [&mut pairing.only_reference, &mut pairing.only_candidate]
            .into_iter()
            .enumerate()
        {
            only.retain(|left| {
                let keep = self.keeps(std::iter::once(name(side, left.item)));
                if !keep {
                    left_out[side].push(left.item);
                }
                keep
            });
        }
        left_out.iter_mut().for_each(|items| items.sort_unstable());
        // A suggestion that is left out is none.
        let forget = |only: &mut Vec<Leftover>, out: &[usize]| {
            for left in only {
                if left
                    .suggestion
                    .is_some_and(|item| out.binary_search(&item).is_ok())
                {
                    (left.suggestion, left.score) = (None, None);
                }
            }
        };
        forget(&mut pairing.only_reference, &left_out[1]);
        forget(&mut pairing.only_candidate, &left_out[0]);
        pairing.left_out = left_out;
        pairing
    }
}

fn set(globs: &[String]) -> Result<GlobSet, PairError> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(Glob::new(glob).map_err(|source| PairError::Glob {
            glob: glob.clone(),
            source,
        })?);
    }
    set.build().map_err(|source| PairError::Glob {
        glob: globs.join(" "),
        source,
    })
}

#[cfg(test)]
mod tests {
    use crate::{
        Settings,
        pairing::{PairError, pair, testing::*},
        settings::Rule,
        side::Side,
    };

    #[test]
    fn one_name_of_a_pair_is_enough_for_only_and_for_skip() {
        let reference = names(&[
            "model.layers.0.self_attn.q_proj.weight",
            "model.layers.0.self_attn.k_proj.weight",
            "left",
        ]);
        let candidate = names(&["blk.0.attn_q.weight", "blk.0.attn_k.weight", "over"]);
        let chosen = |only: &[&str], skip: &[&str]| {
            let settings = Settings {
                only: names(only),
                skip: names(skip),
                ..settings(&[Rule::Normalized])
            };
            let (pairs, pairing) = paired_with(&settings, &reference, &candidate);
            (pairs.len(), pairing.only_reference.len(), pairing.left_out)
        };
        assert_eq!(chosen(&["*q_proj*"], &[]), (1, 0, [vec![1, 2], vec![1, 2]]));
        assert_eq!(
            chosen(&["blk.*"], &["*attn_k*"]),
            (1, 0, [vec![1, 2], vec![1, 2]])
        );
        assert_eq!(chosen(&[], &["left"]), (2, 0, [vec![2], vec![]]));
        assert_eq!(chosen(&[], &[]), (2, 1, [vec![], vec![]]));
    }

    #[test]
    fn a_glob_that_is_none_is_an_error() {
        let source = Source::named(&["a"]);
        let settings = Settings {
            only: names(&["a[b"]),
            ..Settings::default()
        };
        assert!(matches!(
            pair(&Side::new(&source), &Side::new(&source), &settings),
            Err(PairError::Glob { .. })
        ));
    }
}
