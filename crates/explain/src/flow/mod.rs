//! Which divergences are a pair's own: the op is learned from the reference and repeated from the candidate's own recorded inputs.
//!
//! Names say little about what was computed, so the formula is found by the values: for each pair that differs, the tensors recorded before
//! it are tried as inputs of the ops in [`twinscope_ops`], and the formula that reproduces the *reference* to rounding is believed. Applied to the
//! candidate's inputs it says what the candidate should be. When it is, the error came with the inputs: *inherited*, or, where
//! those agree, amplified rounding. When it is not, the op itself differs: *own*, however small the difference is beside what came from upstream, and
//! the causes are looked for between what should be and what is.

mod counterfactual;
#[cfg(test)]
mod tests;

use super::{Scene, guarded, scene::SideRun};
use rayon::prelude::*;
use twinscope_compare::{layout::Which, noise::Measures};
use twinscope_ops::{
    ALL, Ask, Effort, Learned, MOST_WORK, Out, Site, Trust, Try, WHOLE, every_op, learn, own_floor,
};
use twinscope_report::Verdict;
use twinscope_tensor::formula::Formula;

pub(super) use counterfactual::Confirmed;
pub(super) use twinscope_ops::rows;

/// What a pair's formula says of it.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) formula: Formula,
    /// Pairs it was computed from.
    pub(super) inputs: Vec<usize>,
    /// What the candidate should be, by its own inputs; empty when it is that and follows no other formula, and where all of it is too much.
    pub(super) expected: Vec<f64>,
    /// How far it is from that, and how far rounding can be.
    pub(super) off: Measures,
    pub(super) bound: Measures,
    /// An alternative formula that the candidate follows and the reference does not.
    pub(super) confirmed: Option<Confirmed>,
}

impl Flow {
    /// Without values, which are those of some rows.
    fn of_some(self) -> Self {
        let confirmed = self.confirmed.map(|confirmed| Confirmed {
            predicted: Vec::new(),
            ..confirmed
        });
        Self {
            expected: Vec::new(),
            confirmed,
            ..self
        }
    }

    /// The candidate is what its inputs imply.
    pub(super) fn follows(&self) -> bool {
        within(&self.off, &self.bound)
    }
}

fn within(off: &Measures, bound: &Measures) -> bool {
    off.iter().zip(bound).all(|(off, bound)| off <= bound)
}

/// How much more than the reference's own distance from the formula the candidate's may be: two samples of one noise.
const MORE: f64 = 3.0;

/// Both sides of a scene as runs.
struct Sides<'s> {
    scene: &'s Scene<'s>,
    reference: SideRun<'s>,
    candidate: SideRun<'s>,
}

impl<'s> Sides<'s> {
    fn of(scene: &'s Scene<'s>) -> Self {
        Self {
            scene,
            reference: scene.run(Which::Reference),
            candidate: scene.run(Which::Candidate),
        }
    }

    /// A pair whose op is learned from the reference.
    fn place(&self, pair: usize) -> Option<Place<'_>> {
        let entries = self.scene.entries();
        let diverged =
            |at: &usize| !entries[*at].parameter && entries[*at].verdict == Verdict::Diverged;
        let ask = Ask {
            // What only rounds is believed on a part.
            effort: match entries[pair].verdict {
                Verdict::Rounding => Effort::Sample,
                _ => Effort::Whole,
            },
            // What was computed from the ids alone is what this was computed from: where it differs, the ids imply nothing.
            ids_from: (0..pair).rev().find(diverged).unwrap_or(0),
            also: Some(entries[pair].dtypes[1]),
        };
        Some(Place {
            scene: self.scene,
            site: Site::new(&self.reference, pair, ask)?,
            candidate: Out::new(&self.candidate, pair),
        })
    }
}

/// A pair whose op is to be found on the reference, and what the candidate has there.
#[derive(Clone)]
struct Place<'a> {
    scene: &'a Scene<'a>,
    site: Site<'a>,
    candidate: Out<'a>,
}

impl Place<'_> {
    fn pair(&self) -> usize {
        self.site.at
    }

    fn dtypes(&self) -> [twinscope_tensor::DType; 2] {
        self.scene.entries()[self.pair()].dtypes
    }
}

/// Values that are looked at in all before later pairs are judged by size alone: a bound on time, far above what people record to debug.
const MOST_VALUES: usize = 1 << 26;

/// The formulas of every pair that differs.
pub(super) fn every(scene: &Scene<'_>) -> Vec<Option<Flow>> {
    let mut seen = 0;
    let wanted: Vec<bool> = (scene.entries().iter())
        .map(|entry| {
            let elements: usize = entry.dims.iter().product();
            let differs = matches!(entry.verdict, Verdict::Rounding | Verdict::Diverged);
            if differs {
                // What only rounds is seldom looked at whole.
                seen += if entry.verdict == Verdict::Rounding {
                    elements.min(WHOLE)
                } else {
                    elements
                };
            }
            differs && seen <= MOST_VALUES
        })
        .collect();
    let found = |pair: usize| {
        let look = || guarded(|| Ok(of_pair(scene, pair))).ok().flatten();
        (!scene.is_stopped()).then(look).flatten()
    };
    wanted
        .par_iter()
        .enumerate()
        .map(|(pair, wanted)| wanted.then(|| found(pair)).flatten())
        .collect()
}

/// Finds what a pair was computed by and whether the candidate follows it; `None` when no formula makes the reference.
pub(super) fn of_pair(scene: &Scene<'_>, pair: usize) -> Option<Flow> {
    if let Some(thin) = (elements_of(scene, pair) > WHOLE)
        .then(|| scene.thinned(pair))
        .flatten()
    {
        return by_rows(scene, &thin, pair);
    }
    let sides = Sides::of(scene);
    let place = sides.place(pair)?;
    scene.tell_capped(pair, counterfactual::may_be_capped(&place));
    Judged::of(&place, &every_op(&place.site))?.flow(&place)
}

/// The same for a large pair. Some rows say which op it is; what is rounding there and follows is believed on them, everything else is
/// looked at whole, where that can be.
fn by_rows(scene: &Scene<'_>, thin: &Scene<'_>, pair: usize) -> Option<Flow> {
    let (whole, thinned) = (Sides::of(scene), Sides::of(thin));
    let some = thinned.place(pair)?;
    scene.tell_capped(pair, counterfactual::may_be_capped(&some));
    let rowwise: Vec<Try<'_, '_>> = every_op(&some.site)
        .into_iter()
        .filter(|(op, _)| !op.mixes_rows())
        .collect();
    let Some(judged) = Judged::of(&some, &rowwise) else {
        let place = whole.place(pair)?;
        // Those of other shapes were not among the rows.
        let mut others = place.site.clone();
        others
            .before
            .retain(|input| thin.entries()[*input].dims.is_empty());
        let tries: Vec<Try<'_, '_>> = ALL
            .iter()
            .map(|op| {
                let site = if op.mixes_rows() {
                    &place.site
                } else {
                    &others
                };
                (*op, site)
            })
            .collect();
        return Judged::of(&place, &tries)?.flow(&place);
    };
    if scene.entries()[pair].verdict == Verdict::Rounding
        && judged.follows()
        && judged.confirmed.is_none()
    {
        return judged.flow(&some);
    }
    let too_much = judged.learned.work / some.site.rows()
        * (elements_of(scene, pair) / some.site.width())
        > MOST_WORK;
    let Some(mut place) = whole.place(pair).filter(|_| !too_much) else {
        return judged.flow(&some).map(Flow::of_some);
    };
    let all = place.clone();
    place
        .site
        .before
        .retain(|input| judged.learned.inputs.contains(input));
    place
        .site
        .parameters
        .retain(|input| judged.learned.inputs.contains(input));
    Judged::of(&place, &every_op(&place.site))
        .or_else(|| Judged::of(&all, &every_op(&all.site)))?
        .flow(&place)
}

fn elements_of(scene: &Scene<'_>, pair: usize) -> usize {
    scene.entries()[pair].dims.iter().product()
}

/// No formula: also none for some rows, or one that makes some and not all.
#[derive(Clone, Copy, PartialEq)]
enum Unknown {
    None,
    NotOfAll,
}

/// A formula that makes the reference, and how far the candidate is from it.
struct Judged<'a> {
    learned: Learned<'a>,
    off: Measures,
    bound: Measures,
    confirmed: Option<Confirmed>,
}

impl<'a> Judged<'a> {
    fn of(place: &Place<'a>, tries: &[Try<'_, 'a>]) -> Option<Self> {
        let among = |trust: Trust| Self::among(place, learn(&place.site, tries, trust));
        let mut judged = match among(Trust::SomeRows) {
            Err(Unknown::NotOfAll) => among(Trust::AllRows).ok()?,
            one => one.ok()?,
        };
        judged.confirmed = counterfactual::confirm(place, &judged.learned);
        Some(judged)
    }

    /// One tensor under two names makes two formulas of the reference; the candidate, where they differ, says which it is.
    fn among(place: &Place<'a>, formulas: Vec<Learned<'a>>) -> Result<Self, Unknown> {
        let Place {
            site, candidate, ..
        } = place;
        let [of_reference, of_candidate] = place.dtypes();
        let mut chosen = Err(Unknown::None);
        for mut learned in formulas {
            let Some(mut floor) = own_floor(of_candidate, learned.terms) else {
                continue;
            };
            if let Some(borrowed) =
                own_floor(of_reference, learned.terms).filter(|_| learned.borrows)
            {
                floor = std::array::from_fn(|i| floor[i].max(borrowed[i]));
            }
            if let Some(looseness_on) = &learned.looseness_on {
                learned.looseness = looseness_on(candidate.run);
            }
            let bound = |off: Measures| -> Measures {
                std::array::from_fn(|i| (learned.looseness * floor[i]).max(MORE * off[i]))
            };
            let Some(off) = site.off(&learned, candidate) else {
                continue;
            };
            let mut judged_by = bound(learned.off);
            // What the candidate does not follow, the reference must, everywhere.
            if learned.on_some_rows && !within(&off, &judged_by) {
                let all = site.off(&learned, &site.out);
                let floor = own_floor(of_reference, learned.terms);
                let Some(all) = all
                    .zip(floor)
                    .filter(|(all, floor)| learned.makes(all, floor))
                    .map(|(all, _)| all)
                else {
                    chosen = chosen.or(Err(Unknown::NotOfAll));
                    continue;
                };
                judged_by = bound(all);
                learned.off = all;
            }
            let judged = Self {
                learned,
                off,
                bound: judged_by,
                confirmed: None,
            };
            if judged.follows() {
                return Ok(judged);
            }
            chosen = chosen.or(Ok(judged));
        }
        chosen
    }

    fn follows(&self) -> bool {
        within(&self.off, &self.bound)
    }

    fn flow(self, place: &Place<'_>) -> Option<Flow> {
        let Self {
            learned,
            off,
            bound,
            confirmed,
        } = self;
        let mut flow = Flow {
            formula: learned.formula,
            inputs: learned.inputs,
            expected: Vec::new(),
            off,
            bound,
            confirmed,
        };
        if (!flow.follows() || flow.confirmed.is_some()) && learned.work <= MOST_WORK {
            flow.expected = (learned.predict)(place.candidate.run, place.site.all())?;
        }
        Some(flow)
    }
}

/// A softcap that the candidate has and the reference has not, where the op is not known.
pub(super) fn capped(scene: &Scene<'_>, pair: usize) -> Option<Confirmed> {
    // Asked of pairs that were read before; reading them again takes longer than looking.
    if scene.may_be_capped(pair) == Some(false) {
        return None;
    }
    counterfactual::capped(&Sides::of(scene).place(pair)?)
}
