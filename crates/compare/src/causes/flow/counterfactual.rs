//! Faults below the noise: an alternative formula, tested from the candidate's own inputs.
//!
//! With `f0` the reference's formula and `h` the alternative, both from the candidate's inputs, `out - f0` is regressed on `h - f0`. A
//! coefficient near 1 with a small error says that the candidate computes `h`; near 0, that it computes `f0`. What drifted
//! upstream is in both and cancels. The error is a jackknife over blocks of rows: outlier channels make plain errors
//! far too small. The same regression on the reference's side must give 0.

use super::{Site, of, ops::Learned};
use crate::layout::Which;

/// An alternative that the candidate follows.
#[derive(Clone, Debug)]
pub(crate) struct Confirmed {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    pub(crate) details: serde_json::Value,
    /// The regression's coefficient and its jackknife error.
    pub(crate) coefficient: f64,
    pub(crate) error: f64,
    /// What the alternative makes of the candidate's inputs.
    pub(crate) predicted: Vec<f64>,
}

/// How far from 1 a coefficient may be, in itself and in its errors; how far from 0 the reference's.
const NEAR_ONE: f64 = 0.25;
const ERRORS: f64 = 4.0;
const LARGEST_ERROR: f64 = 0.12;
const NEAR_ZERO: f64 = 0.3;

/// Blocks of rows that are left out in turn.
const BLOCKS: usize = 16;

pub(super) fn confirm(site: &Site<'_>, learned: &Learned, expected: &[f64]) -> Option<Confirmed> {
    let candidate = &site.out.candidate;
    let differs = candidate.iter().zip(expected).any(|(c, e)| c != e);
    if !differs || learned.variants.is_empty() {
        return None;
    }
    let made = (learned.predict)(Which::Reference)?;
    let mut best: Option<(f64, Confirmed)> = None;
    for variant in &learned.variants {
        let Some(predicted) = (variant.predict)(Which::Candidate) else { continue };
        let Some(fit) = regress(site, candidate, expected, &predicted) else { continue };
        let near =
            (fit.coefficient - 1.0).abs() <= NEAR_ONE && fit.error <= if variant.fitted { LARGEST_ERROR / 4.0 } else { LARGEST_ERROR };
        if !near || (fit.coefficient - 1.0).abs() > ERRORS * fit.error.max(0.02) {
            continue;
        }
        let of_reference = (variant.predict)(Which::Reference).and_then(|h| regress(site, of(&site.out, Which::Reference), &made, &h));
        if !of_reference.is_some_and(|fit| fit.coefficient.abs() <= NEAR_ZERO && fit.error <= 2.0 * LARGEST_ERROR) {
            continue;
        }
        if best.as_ref().is_none_or(|(left, _)| fit.left < *left) {
            let confirmed = Confirmed {
                kind: variant.kind,
                text: variant.text.clone(),
                details: variant.details.clone(),
                coefficient: fit.coefficient,
                error: fit.error,
                predicted,
            };
            best = Some((fit.left, confirmed));
        }
    }
    best.map(|(_, confirmed)| confirmed)
}

#[derive(Clone, Copy, Debug)]
struct Fit {
    coefficient: f64,
    error: f64,
    /// Weighted energy that is left.
    left: f64,
}

/// Rounding is relative to each value, so each is weighted by its size, small ones as if they were a tenth of the typical one.
fn regress(site: &Site<'_>, out: &[f64], f0: &[f64], h: &[f64]) -> Option<Fit> {
    let features = site.out.dims.last().copied().filter(|features| *features > 0)?;
    let rows = out.len() / features;
    let blocks = BLOCKS.min(rows);
    if blocks < 4 {
        return None;
    }
    let typical = crate::causes::array::rms(f0);
    let (mut xy, mut xx, mut yy) = (vec![0.0; blocks], vec![0.0; blocks], vec![0.0; blocks]);
    for (at, ((out, f0), h)) in out.iter().zip(f0).zip(h).enumerate() {
        let (x, y) = (h - f0, out - f0);
        if !x.is_finite() || !y.is_finite() {
            continue;
        }
        let weight = 1.0 / (f0 * f0).max(0.01 * typical * typical);
        let block = at / features * blocks / rows;
        xy[block] += weight * x * y;
        xx[block] += weight * x * x;
        yy[block] += weight * y * y;
    }
    let (all_xy, all_xx, all_yy) = (xy.iter().sum::<f64>(), xx.iter().sum::<f64>(), yy.iter().sum::<f64>());
    if all_xx == 0.0 || !all_xx.is_finite() {
        return None;
    }
    let without: Vec<f64> = (0..blocks).filter(|b| all_xx > xx[*b]).map(|b| (all_xy - xy[b]) / (all_xx - xx[b])).collect();
    let mean = without.iter().sum::<f64>() / without.len() as f64;
    let spread: f64 = without.iter().map(|one| (one - mean) * (one - mean)).sum();
    let error = (spread * (without.len() as f64 - 1.0) / without.len() as f64).sqrt();
    Some(Fit { coefficient: all_xy / all_xx, error, left: all_yy - 2.0 * all_xy + all_xx })
}
