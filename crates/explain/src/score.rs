//! What an explanation leaves, and whether that is rounding.
//!
//! With `p` the candidate as the explanation predicts it, over the elements that were not used to fit: `explained = 1 - Σ(c-p)² /
//! min(Σ(c-r)², Σc²)`. The smaller of the two, so that "it is all zero" does not explain a candidate that is only small.
//! It is *proven* when `c - p` is rounding by the same four measures that judge a pair, over all elements.

use super::case::{Case, Explanation, Predicted};
use twinscope_compare::noise::Measures;
use twinscope_ops::measures;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// `None` when there is nothing to explain.
    pub explained: Option<f64>,
    pub left: Measures,
    pub proven: bool,
}

/// What is left may be this many times the noise: the hypothesis passes on the noise of what it was computed from.
pub(super) const SLACK: f64 = 2.0;

/// What is fitted in f64 is no closer than this, whatever the dtype is.
const FITTED: f64 = 1e-9;

/// What leaves rounding explains at least this much; below, the difference itself was hardly more than rounding.
const LEAST: f64 = 0.5;

pub fn score(case: &Case<'_>, explanation: &Explanation) -> Score {
    let predicted = match &explanation.predicted {
        // Squares of f64 can be beyond f64: such a share is undefined.
        Predicted::Share { explained, proven } => {
            return Score {
                explained: Some(*explained).filter(|share| !share.is_nan()),
                left: [0.0; 4],
                proven: *proven,
            };
        }
        Predicted::Values(values) => values,
    };
    let explained = explained(case, predicted);
    let left = left(case, predicted);
    let below = left
        .iter()
        .zip(case.noise)
        .all(|(left, noise)| *left <= SLACK * noise.max(FITTED));
    Score {
        explained,
        left,
        proven: below && explained.is_some_and(|explained| explained >= LEAST),
    }
}

fn explained(case: &Case<'_>, predicted: &[f64]) -> Option<f64> {
    let (mut left, mut difference, mut candidate, mut wrong) = (0.0, 0.0, 0.0, 0usize);
    for (flat, ((p, c), r)) in predicted
        .iter()
        .zip(case.candidate)
        .zip(case.reference)
        .enumerate()
    {
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
            difference += if r.is_finite() {
                (c - r) * (c - r)
            } else {
                c * c
            };
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

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, examine_as, normal, proven};
    use twinscope_tensor::DType;

    #[test]
    fn what_is_fitted_to_results_in_f64_is_proven_as_in_any_other_dtype() {
        let (x, weight) = (normal(40 * 24, 1), normal(24, 2));
        let normed = |mean: f64| -> Vec<f64> {
            let row = |row: &[f64]| {
                let mean = mean * row.iter().sum::<f64>() / 24.0;
                let size = (row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 24.0).sqrt();
                row.iter()
                    .zip(&weight)
                    .map(|(x, w)| (x - mean) / size * (1.0 + 0.2 * w))
                    .collect::<Vec<_>>()
            };
            x.chunks_exact(24).flat_map(row).collect()
        };
        let run = [Recorded {
            name: "x",
            dims: vec![40, 24],
            reference: normed(0.0),
            candidate: normed(1.0),
        }];
        assert!(matches!(
            proven(&examine_as(DType::F64, &run, "x").0),
            Some("row_affine" | "low_rank")
        ));
    }
}
