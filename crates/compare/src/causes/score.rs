//! What an explanation leaves, and whether that is rounding.
//!
//! With `p` the candidate as the explanation predicts it, over the elements that were not used to fit: `explained = 1 - Σ(c-p)² /
//! min(Σ(c-r)², Σc²)`. The smaller of the two, so that "it is all zero" does not explain a candidate that is only small.
//! It is *proven* when `c - p` is rounding by the same four measures that judge a pair, over all elements.

use super::{
    array::{Axis, median},
    case::{Case, Explanation, Predicted},
};
use crate::noise::Measures;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// `None` when there is nothing to explain.
    pub explained: Option<f64>,
    pub left: Measures,
    pub proven: bool,
}

/// What is left may be this many times the noise: the hypothesis passes on the noise of what it was computed from.
pub(super) const SLACK: f64 = 2.0;

/// What leaves rounding explains at least this much; below, the difference itself was hardly more than rounding.
const LEAST: f64 = 0.5;

pub fn score(case: &Case<'_>, explanation: &Explanation) -> Score {
    let predicted = match &explanation.predicted {
        Predicted::Share { explained, proven } => return Score { explained: Some(*explained), left: [0.0; 4], proven: *proven },
        Predicted::Values(values) => values,
    };
    let explained = explained(case, predicted);
    let left = left(case, predicted);
    let below = left.iter().zip(case.noise).all(|(left, noise)| *left <= SLACK * noise);
    Score { explained, left, proven: below && explained.is_some_and(|explained| explained >= LEAST) }
}

fn explained(case: &Case<'_>, predicted: &[f64]) -> Option<f64> {
    let (mut left, mut difference, mut candidate, mut wrong) = (0.0, 0.0, 0.0, 0usize);
    for (flat, ((p, c), r)) in predicted.iter().zip(case.candidate).zip(case.reference).enumerate() {
        if case.fits(flat) && predicted.len() > FEW {
            continue;
        }
        if same_nonfinite(*p, *c) {
            continue;
        }
        if !p.is_finite() || !c.is_finite() {
            wrong += 1;
        } else {
            left += (c - p) * (c - p);
            candidate += c * c;
            difference += if r.is_finite() { (c - r) * (c - r) } else { c * c };
        }
    }
    if wrong > 0 {
        return Some(0.0);
    }
    let whole = f64::min(difference, candidate);
    match (left > 0.0, whole > 0.0) {
        (false, _) => Some(1.0),
        (true, true) => Some((1.0 - left / whole).max(0.0)),
        (true, false) => None,
    }
}

/// Of so few elements none are held back.
const FEW: usize = 64;

fn same_nonfinite(a: f64, b: f64) -> bool {
    (a.is_nan() && b.is_nan()) || (a.is_infinite() && a == b)
}

/// The four measures of `c - p`, relative to the larger of what was predicted and of the reference where they are of one size.
fn left(case: &Case<'_>, predicted: &[f64]) -> Measures {
    measures(case.dims, predicted, case.candidate)
}

/// A slice whose own norm is below this fraction of the typical slice is measured against the typical one.
const QUIET_SLICE: f64 = 0.1;

/// The four measures of [`crate::noise`] for two arrays of one shape.
pub fn measures(dims: &[usize], reference: &[f64], candidate: &[f64]) -> Measures {
    let square = |value: f64| if value.is_finite() { value * value } else { 0.0 };
    let error: Vec<f64> = reference.iter().zip(candidate).map(|(r, c)| if same_nonfinite(*r, *c) { 0.0 } else { c - r }).collect();
    if error.iter().any(|error| !error.is_finite()) {
        return [f64::INFINITY; 4];
    }
    let (mut total, mut scale) = (0.0, 0.0);
    for (error, r) in error.iter().zip(reference) {
        total += error * error;
        scale += square(*r);
    }
    let relative = |error: f64, energy: f64| if error == 0.0 { 0.0 } else { (error / energy).sqrt() };
    let whole = relative(total, scale);
    let (mut typical, mut worst) = (0f64, whole);
    for axis in (0..dims.len()).filter(|axis| dims[*axis] > 1) {
        let axis = Axis::of(dims, axis);
        let (mut errors, mut energies) = (vec![0.0; axis.along], vec![0.0; axis.along]);
        for (flat, (error, r)) in error.iter().zip(reference).enumerate() {
            let at = axis.index(flat);
            errors[at] += error * error;
            energies[at] += square(*r);
        }
        let quiet = QUIET_SLICE * QUIET_SLICE * median(&mut energies.clone());
        let mut of_slices: Vec<f64> = errors.iter().zip(&energies).map(|(error, energy)| relative(*error, energy.max(quiet))).collect();
        worst = of_slices.iter().copied().fold(worst, f64::max);
        typical = typical.max(median(&mut of_slices));
    }
    let rms = (scale / reference.len().max(1) as f64).sqrt();
    let element = error.iter().zip(reference).map(|(error, r)| if *error == 0.0 { 0.0 } else { error.abs() / r.abs().max(rms) });
    [whole, typical, worst, element.fold(0.0, f64::max)]
}
