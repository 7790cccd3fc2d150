//! Every other recorded tensor, known by its sketch: what the hypotheses on swapped, wrong and missing tensors look through.

use super::near::{LEFT, Probe, close, typical};
use crate::{Case, Sketch, scattered};
use twinscope_compare::layout::Which;
use twinscope_tensor::Side;

/// A case at the places of its sketch, and every other tensor of as many elements at the same places.
pub(super) struct Elsewhere {
    pub(super) reference: Vec<f64>,
    pub(super) candidate: Vec<f64>,
    pub(super) others: Vec<Sketch>,
    rms: f64,
    tolerance: f64,
}

/// One in so many places may disagree before everything is read.
const SPARED: usize = 16;
/// Fewer differing places say nothing.
const FEWEST: usize = 6;

impl Elsewhere {
    /// Or why there is nothing to look for.
    pub(super) fn of(case: &Case<'_>) -> Result<Self, &'static str> {
        let here = Self::any(case);
        let differs = |(r, c): &(&f64, &f64)| !close(**r, **c, here.rms, here.tolerance);
        let differing = here
            .reference
            .iter()
            .zip(&here.candidate)
            .filter(differs)
            .count();
        if differing < FEWEST || differing < here.candidate.len() / 8 {
            return Err("it differs in too few places to be another tensor");
        }
        Ok(here)
    }

    /// However much of it differs beyond the noise.
    pub(super) fn any(case: &Case<'_>) -> Self {
        let at =
            |values: &[f64]| -> Vec<f64> { scattered(values.len()).map(|at| values[at]).collect() };
        let probe = Probe::new(case);
        let others = case.scene.sketches(case.pair, case.candidate.len());
        let (reference, candidate) = (at(case.reference), at(case.candidate));
        Self {
            reference,
            candidate,
            others,
            rms: probe.rms(),
            tolerance: probe.tolerance(),
        }
    }

    /// Whether two sketches are one tensor up to rounding. What hardly varies is never known again: zeros look like all other zeros.
    pub(super) fn same(&self, a: &[f64], b: &[f64]) -> bool {
        let rms = typical(b);
        varies(b) && mostly(a, b, |a, b| close(*a, *b, rms, self.tolerance))
    }

    /// Whether `predicted` is the candidate, place by place, and far nearer to it than the reference is.
    pub(super) fn is_candidate(&self, predicted: &[f64]) -> bool {
        mostly(predicted, &self.candidate, |p, c| {
            close(*p, *c, self.rms, self.tolerance)
        }) && self.explains(predicted)
    }

    /// The same for a copy, which rounds at most once more.
    pub(super) fn is_copy(&self, predicted: &[f64], unit: f64) -> bool {
        let tolerance = (2.0 * unit).min(self.tolerance);
        mostly(predicted, &self.candidate, |p, c| {
            close(*p, *c, 0.0, tolerance)
        }) && self.explains(predicted)
    }

    fn explains(&self, predicted: &[f64]) -> bool {
        let (mut left, mut whole) = (0.0, 0.0);
        for ((p, c), r) in predicted.iter().zip(&self.candidate).zip(&self.reference) {
            if p.is_finite()
                && c.is_finite()
                && r.is_finite()
                && close(*p, *c, self.rms, self.tolerance)
            {
                left += (c - p) * (c - p);
                whole += (c - r) * (c - r);
            }
        }
        left <= LEFT * whole
    }

    pub(super) fn tolerance(&self) -> f64 {
        self.tolerance
    }
}

/// What may be left of the squared distance. Of two unrelated tensors as much is left as there was, give or take a quarter at so many places.
const HALF: f64 = 0.5;

/// Whether a tensor is far nearer to one than to another.
pub(super) fn nearer(tensor: &[f64], to: &[f64], than: &[f64]) -> bool {
    let finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
    if tensor.len() < FEWEST || ![tensor, to, than].into_iter().all(finite) {
        return false;
    }
    let distance = |other: &[f64]| -> f64 {
        tensor
            .iter()
            .zip(other)
            .map(|(a, b)| (a - b) * (a - b))
            .sum()
    };
    distance(to) < HALF * distance(than)
}

fn mostly(a: &[f64], b: &[f64], same: impl Fn(&f64, &f64) -> bool) -> bool {
    let spare = a.len() / SPARED;
    let mut wrong = 0;
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            wrong += usize::from(!same(a, b));
            wrong <= spare
        })
}

/// More than half of the values are away from the middle one.
pub(super) fn varies(values: &[f64]) -> bool {
    let rms = typical(values);
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(middle) = sorted.get(sorted.len() / 2) else {
        return false;
    };
    values
        .iter()
        .filter(|value| !close(**value, *middle, rms, ALIKE))
        .count()
        * 2
        > values.len()
}

/// Values this close to each other are one for [`varies`].
const ALIKE: f64 = 0.02;

pub(super) fn side(side: Which) -> Side {
    match side {
        Which::Reference => Side::Reference,
        Which::Candidate => Side::Candidate,
    }
}

/// Equal up to dimensions of one.
pub(super) fn alike(a: &[usize], b: &[usize]) -> bool {
    a.iter()
        .filter(|dim| **dim != 1)
        .eq(b.iter().filter(|dim| **dim != 1))
}

/// Names that differ only in a number: one stage of two layers.
pub(super) fn same_stage(a: &str, b: &str) -> bool {
    let stage = |name: &str| -> String {
        let mut text = String::new();
        for c in name.chars() {
            match (c.is_ascii_digit(), text.ends_with('#')) {
                (true, true) => {}
                (true, false) => text.push('#'),
                (false, _) => text.push(c),
            }
        }
        text
    };
    a != b && stage(a) == stage(b)
}
