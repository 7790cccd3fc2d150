//! Faults below the noise: an alternative formula, tested from the candidate's own inputs.
//!
//! With `f0` the reference's formula and `h` the alternative, both from the candidate's inputs, `out - f0` is regressed on `h - f0`. A
//! coefficient near 1 with a small error says that the candidate computes `h`; near 0, that it computes `f0`. What drifted
//! upstream is in both and cancels. The error is a jackknife over blocks of rows, and over blocks of channels, whichever is larger: outlier channels
//! make plain errors far too small. The same regression on the reference's side must give 0.

use super::Place;
use crate::{
    alternatives::{Described, describe},
    constants::short,
    functions::{best_cap, softcap},
};
use twinscope_compare::noise::unit_roundoff;
use twinscope_ops::{Alternative, Learned, MOST_WORK, Out, Picked, Site, WHOLE, nearest};
use twinscope_report::{CauseKind, facts};

/// An alternative that the candidate follows.
#[derive(Clone, Debug)]
pub(crate) struct Confirmed {
    pub(crate) described: Described,
    /// The regression's coefficient and its jackknife error.
    pub(crate) coefficient: f64,
    pub(crate) error: f64,
    /// What the alternative makes of the candidate's inputs; empty where all of it is too much.
    pub(crate) predicted: Vec<f64>,
}

/// How far from 1 a coefficient may be, in itself and in its errors; how far from 0 the reference's.
const NEAR_ONE: f64 = 0.25;
const ERRORS: f64 = 4.0;
const LARGEST_ERROR: f64 = 0.12;
const NEAR_ZERO: f64 = 0.3;

/// Blocks of rows or channels that are left out in turn.
const BLOCKS: usize = 16;

pub(super) fn confirm(place: &Place<'_>, learned: &Learned<'_>) -> Option<Confirmed> {
    let site = &place.site;
    let alternatives = learned.alternatives.as_ref()?(&place.candidate);
    if alternatives.is_empty() {
        return None;
    }
    let some = learned.telling.clone().unwrap_or_else(|| site.sample());
    let picked = Picked::These(&some);
    let recorded = |out: &'_ Out<'_>| out.picked(picked, site.width()).into_owned();
    let candidate = recorded(&place.candidate);
    let expected = (learned.predict)(place.candidate.run, picked)?;
    if candidate.iter().zip(&expected).all(|(c, e)| c == e) {
        return None;
    }
    let (reference, made) = (recorded(&site.out), (learned.predict)(site.run, picked)?);
    let few = Few::of(place, learned, &some);
    let mut best: Option<(f64, Fit, &Alternative)> = None;
    for alternative in &alternatives {
        let ruled_out = |few: &Few| few.rule_out(place, alternative);
        if few.as_ref().is_some_and(ruled_out) {
            continue;
        }
        let Some(predicted) = (alternative.predict)(place.candidate.run, picked) else {
            continue;
        };
        let Some(fit) = regress(site, &candidate, &expected, &predicted) else {
            continue;
        };
        let near = (fit.coefficient - 1.0).abs() <= NEAR_ONE
            && fit.error
                <= if alternative.fitted {
                    LARGEST_ERROR / 4.0
                } else {
                    LARGEST_ERROR
                };
        if !near || (fit.coefficient - 1.0).abs() > ERRORS * fit.error.max(0.02) {
            continue;
        }
        let of_reference = (alternative.predict)(site.run, picked)
            .and_then(|h| regress(site, &reference, &made, &h));
        if !of_reference.is_some_and(|fit| {
            fit.coefficient.abs() <= NEAR_ZERO && fit.error <= 2.0 * LARGEST_ERROR
        }) {
            continue;
        }
        let nearer = best.as_ref().is_none_or(|(left, ..)| fit.left < *left);
        if nearer && !is_imitated(place, &candidate, &expected, &predicted) {
            best = Some((fit.left, fit, alternative));
        }
    }
    let (_, fit, alternative) = best?;
    Some(Confirmed {
        described: describe(site.run, &learned.formula, &alternative.change),
        coefficient: fit.coefficient,
        error: fit.error,
        predicted: if learned.work <= MOST_WORK {
            (alternative.predict)(place.candidate.run, site.all())?
        } else {
            Vec::new()
        },
    })
}

/// Whether rounding makes the formula itself look like the alternative: a cap far beyond the values takes less off a number of bf16 than half the
/// distance to the next one, so the number stays as it was, every time. Then what is rounded of both must be told apart.
fn is_imitated(place: &Place<'_>, candidate: &[f64], expected: &[f64], predicted: &[f64]) -> bool {
    let site = &place.site;
    let Some(unit) = unit_roundoff(place.dtypes()[1]).filter(|unit| COARSE.contains(unit)) else {
        return false;
    };
    let bits = -unit.log2() as u32;
    let rounded =
        |values: &[f64]| -> Vec<f64> { values.iter().map(|value| nearest(*value, bits)).collect() };
    let made = rounded(expected);
    let is_small = |fit: Fit| fit.coefficient.abs() <= NEAR_ZERO;
    if regress(site, &made, expected, predicted).is_none_or(is_small) {
        return false;
    }
    regress(site, candidate, &made, &rounded(predicted))
        .is_none_or(|fit| (fit.coefficient - 1.0).abs() > NEAR_ONE)
}

/// Unit roundoffs of f32, f16 and bf16: numbers that need no scale to be rounded.
const COARSE: [f64; 3] = [
    1.0 / (1 << 24) as f64,
    1.0 / (1 << 11) as f64,
    1.0 / (1 << 8) as f64,
];

/// Values from which on a part of them is looked at first, how many those are, and rows at least.
const MANY: usize = 1 << 15;
const FEW: usize = 1 << 12;
const FEW_ROWS: usize = 16;

/// A few of the rows: nearly always the candidate follows the formula itself, and they say so clearly.
struct Few {
    rows: Vec<usize>,
    candidate: Vec<f64>,
    expected: Vec<f64>,
}

impl Few {
    fn of(place: &Place<'_>, learned: &Learned<'_>, some: &[usize]) -> Option<Self> {
        let width = place.site.width();
        let count = (FEW / width).max(FEW_ROWS);
        if some.len() * width < MANY || some.len() < 2 * count {
            return None;
        }
        let rows: Vec<usize> = some.iter().copied().step_by(some.len() / count).collect();
        let picked = Picked::These(&rows);
        let candidate = place.candidate.picked(picked, width).into_owned();
        let expected = (learned.predict)(place.candidate.run, picked)?;
        Some(Self {
            rows,
            candidate,
            expected,
        })
    }

    /// Whether they say that the candidate does not follow an alternative.
    fn rule_out(&self, place: &Place<'_>, alternative: &Alternative) -> bool {
        let predicted = (alternative.predict)(place.candidate.run, Picked::These(&self.rows));
        let fit = predicted.and_then(|predicted| {
            regress(&place.site, &self.candidate, &self.expected, &predicted)
        });
        fit.is_some_and(|fit| (fit.coefficient - 1.0).abs() > NEAR_ONE + CERTAIN * fit.error)
    }
}

/// Errors beyond which a few rows are believed: they have few errors to say how large those are.
const CERTAIN: f64 = 8.0;

/// A cap on what the reference has, of an op that is not known: logits, scores. A cap far beyond the values bends them by less than the noise
/// of a coarse dtype, but all in one way.
pub(super) fn capped(place: &Place<'_>) -> Option<Confirmed> {
    let site = &place.site;
    let (reference, candidate): (&[f64], &[f64]) = (&site.out, &place.candidate);
    let picked = some_of(place);
    if !shrinks(&picked) {
        return None;
    }
    let fitted = best_cap(|cap| {
        picked
            .iter()
            .map(|(r, c)| (softcap(*r, cap) - c).powi(2))
            .sum::<f64>()
    });
    // Nobody caps so far beyond the values; a difference that small and that regular has other reasons.
    let largest = picked
        .iter()
        .map(|(r, _)| r.abs())
        .filter(|r| r.is_finite())
        .fold(0.0, f64::max);
    if fitted > FARTHEST_CAP * largest {
        return None;
    }
    let predicted: Vec<f64> = reference.iter().map(|r| softcap(*r, fitted)).collect();
    let fit = regress(site, candidate, reference, &predicted)?;
    let sure = fit.coefficient > SURE * fit.error && fit.error <= LARGEST_ERROR / 2.0;
    (sure && (fit.coefficient - 1.0).abs() <= NEAR_ONE).then(|| Confirmed {
        described: Described::new(
            CauseKind::Function,
            format!(
                "candidate = a softcap of {} of the reference",
                short(fitted)
            ),
            facts::Function::Softcap {
                candidate: format!("softcap {}", short(fitted)),
                reference: None,
                parameter: fitted,
            },
        ),
        coefficient: fit.coefficient,
        error: fit.error,
        predicted,
    })
}

/// Whether a look at some values leaves a cap possible.
pub(super) fn may_be_capped(place: &Place<'_>) -> bool {
    if place.site.elements() <= WHOLE && !place.scene.is_thin() {
        return shrinks(&some_of(place));
    }
    // Without reading the rest.
    let patches = place
        .scene
        .patches(place.pair(), CAPPED_SAMPLE / PATCH, PATCH);
    patches.is_some_and(|[reference, candidate]| {
        shrinks(&reference.into_iter().zip(candidate).collect::<Vec<_>>())
    })
}

/// Neighbours that are read at once.
const PATCH: usize = 32;

fn some_of(place: &Place<'_>) -> Vec<(f64, f64)> {
    let (reference, candidate): (&[f64], &[f64]) = (&place.site.out, &place.candidate);
    let step = (reference.len() / CAPPED_SAMPLE).max(1) | 1;
    reference
        .iter()
        .zip(candidate)
        .step_by(step)
        .map(|(r, c)| (*r, *c))
        .collect()
}

/// A cap is at most this many times the largest value.
const FARTHEST_CAP: f64 = 64.0;

/// Values that the cap is fitted to.
const CAPPED_SAMPLE: usize = 1 << 11;

/// How many errors it must be above: nothing but a cap does that in one way everywhere.
const CLEARLY: f64 = 4.0;

/// The least cosine of values and the same capped: a cap keeps their order.
const ALIKE: f64 = 0.25;

/// A cap takes `r³ / 3cap²` off a value: whether something like that is gone, at a glance.
fn shrinks(picked: &[(f64, f64)]) -> bool {
    let (mut sum, mut squares) = (0.0, 0.0);
    let [mut rc, mut rr, mut cc] = [0.0; 3];
    for (r, c) in picked
        .iter()
        .filter(|(r, c)| r.is_finite() && c.is_finite())
    {
        let product = r * r * r * (r - c);
        sum += product;
        squares += product * product;
        (rc, rr, cc) = (rc + r * c, rr + r * r, cc + c * c);
    }
    // Of unrelated values all of it is gone.
    if rc <= 0.0 || rc * rc < ALIKE * ALIKE * rr * cc {
        return false;
    }
    // Unrelated, the products would have any sign, and their sum the size of one of them times the root of how many there are: also where
    // noise grows with the values, as rounding does.
    sum > 0.0 && sum * sum > CLEARLY * CLEARLY * squares
}

/// Errors that a coefficient must be away from 0 where the number it belongs to was fitted.
const SURE: f64 = 12.0;

#[derive(Clone, Copy, Debug)]
struct Fit {
    coefficient: f64,
    error: f64,
    /// Weighted energy that is left.
    left: f64,
}

/// Rounding is relative to each value, so each is weighted by its size, small ones as if they were a tenth of the typical one.
fn regress(site: &Site<'_>, out: &[f64], f0: &[f64], h: &[f64]) -> Option<Fit> {
    let features = site
        .dims()
        .last()
        .copied()
        .filter(|features| *features > 0)?;
    let rows = out.len() / features;
    // Of few rows the channels tell the error.
    if rows < FEWEST_BLOCKS && features < FEWEST_CHANNELS {
        return None;
    }
    let typical = crate::array::rms(f0);
    let (mut of_rows, mut of_channels) = (Sums::of(rows), Sums::of(features));
    for (at, ((out, f0), h)) in out.iter().zip(f0).zip(h).enumerate() {
        let (x, y) = (h - f0, out - f0);
        if !x.is_finite() || !y.is_finite() {
            continue;
        }
        let weight = 1.0 / (f0 * f0).max(0.01 * typical * typical);
        let one = [weight * x * y, weight * x * x, weight * y * y];
        of_rows.add(at / features, one);
        of_channels.add(at % features, one);
    }
    let [xy, xx, yy] = of_rows.all();
    if xx == 0.0 || !xx.is_finite() {
        return None;
    }
    // A weight that one side holds in a coarser dtype is off by as much in every row: only leaving out channels shows how much that does.
    let error = f64::max(of_rows.jackknife(), of_channels.jackknife());
    Some(Fit {
        coefficient: xy / xx,
        error,
        left: yy - 2.0 * xy + xx,
    })
}

/// Fewer than this say nothing about an error.
const FEWEST_BLOCKS: usize = 4;
const FEWEST_CHANNELS: usize = 8;

/// `Σxy`, `Σxx` and `Σyy`, by blocks of neighbouring rows or channels.
struct Sums {
    along: usize,
    blocks: Vec<[f64; 3]>,
}

impl Sums {
    fn of(along: usize) -> Self {
        Self {
            along,
            blocks: vec![[0.0; 3]; BLOCKS.min(along)],
        }
    }

    fn add(&mut self, at: usize, one: [f64; 3]) {
        let block = at * self.blocks.len() / self.along;
        self.blocks[block]
            .iter_mut()
            .zip(one)
            .for_each(|(sum, one)| *sum += one);
    }

    fn all(&self) -> [f64; 3] {
        self.blocks.iter().fold([0.0; 3], |sum, block| {
            std::array::from_fn(|i| sum[i] + block[i])
        })
    }

    /// The error of the coefficient, from leaving out each block in turn; 0 of too few.
    fn jackknife(&self) -> f64 {
        let [xy, xx, _] = self.all();
        let without: Vec<f64> = self
            .blocks
            .iter()
            .filter(|block| xx > block[1])
            .map(|block| (xy - block[0]) / (xx - block[1]))
            .collect();
        if without.len() < FEWEST_BLOCKS {
            return 0.0;
        }
        let mean = without.iter().sum::<f64>() / without.len() as f64;
        let spread: f64 = without.iter().map(|one| (one - mean) * (one - mean)).sum();
        (spread * (without.len() as f64 - 1.0) / without.len() as f64).sqrt()
    }
}
