//! Which pairs to measure, found from headers and, where names tell nothing, from sketches of the values.
//!
//! A plan is data: it can be written, sent to another machine and worked on there.

use crate::{
    pairing::{self, Pair, PairError, Pairing},
    settings::{Rule, Settings},
    side::Side,
};
use serde::{Deserialize, Serialize};
use twinscope_tensor::{Listing, ReadError, TensorSource, View};

/// What to measure: the pairs, and whether they are of two sources or of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub pairing: Pairing,
    /// Every tensor of one source against every other: the candidate is the reference.
    pub alone: bool,
}

impl Plan {
    /// How much there is to read for the pairs that `is_open` names, as the headers tell it.
    pub fn bytes(
        &self,
        reference: &Side<'_>,
        candidate: &Side<'_>,
        is_open: impl Fn(usize) -> bool,
    ) -> u64 {
        let size = |side: &Side<'_>, items: &[usize]| {
            let sizes = items.iter().map(|item| {
                let item = &side.items()[*item];
                let elements = item.shape.elements().unwrap_or(0);
                item.dtype.byte_len(elements).unwrap_or(elements)
            });
            sizes.fold(0, u64::saturating_add)
        };
        let pairs = self.pairing.pairs.iter().enumerate();
        pairs
            .filter(|(nth, pair)| is_open(*nth) && !self.is_ranked(pair))
            .map(|(_, pair)| {
                size(reference, &pair.reference).saturating_add(size(candidate, &pair.candidate))
            })
            .fold(0, u64::saturating_add)
    }

    /// Whether this pair keeps its score and is not measured.
    pub fn is_ranked(&self, pair: &Pair) -> bool {
        self.alone && pair.rule == Rule::Values
    }
}

/// Whether the regexes and globs can be used at all: what can be said before a file is read.
pub fn check(settings: &Settings) -> Result<(), PairError> {
    struct Nothing(Listing);
    impl TensorSource for Nothing {
        fn listing(&self) -> &Listing {
            &self.0
        }

        fn view(&self, _: usize) -> Result<View, ReadError> {
            Err(ReadError::NoData {
                why: "there is nothing",
            })
        }
    }
    let nothing = Nothing(Listing::default());
    let side = Side::new(&nothing);
    let settings = Settings {
        rules: vec![Rule::Pattern],
        map: Vec::new(),
        ..settings.clone()
    };
    pairing::pair(&side, &side, &settings)?;
    Ok(())
}

pub fn plan(
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
) -> Result<Plan, PairError> {
    Ok(Plan {
        pairing: pairing::pair(reference, candidate, settings)?,
        alone: false,
    })
}

/// The layouts of the settings that no pair is named by: a typing mistake, for nothing else would tell.
pub fn unused_layouts<'s>(
    plan: &Plan,
    reference: &Side<'_>,
    settings: &'s Settings,
) -> Vec<&'s str> {
    let names = |glob: &globset::GlobMatcher| {
        plan.pairing
            .pairs
            .iter()
            .any(|pair| glob.is_match(&reference.items()[pair.reference[0]].name))
    };
    let unused =
        |name: &&str| globset::Glob::new(name).is_ok_and(|glob| !names(&glob.compile_matcher()));
    settings
        .layouts
        .iter()
        .map(|entry| entry.name.as_str())
        .filter(unused)
        .collect()
}
