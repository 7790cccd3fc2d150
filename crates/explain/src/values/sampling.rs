//! A few elements of a case, to rule a hypothesis out before all are looked at.

use crate::{Case, array::rms};
pub(crate) use twinscope_ops::sampling::spread;

/// Flat indices of at most `most` elements, ascending and spread over all, finite on both sides. One from each stretch of equal length, at
/// a hashed place in it, so that no axis of the tensor meets the stride of the sample.
pub(super) fn sample(case: &Case<'_>, most: usize) -> Vec<usize> {
    let count = case.reference.len();
    let finite =
        |flat: &usize| case.reference[*flat].is_finite() && case.candidate[*flat].is_finite();
    spread(count, most).filter(finite).collect()
}

/// [`Case::fits`] for hypotheses with one or two numbers: of a handful of elements all are needed.
pub(super) fn fits(case: &Case<'_>, flat: usize) -> bool {
    case.reference.len() <= HANDFUL || case.fits(flat)
}

const HANDFUL: usize = 32;

/// How far an element may be from what was predicted for it and still be rounding: twice the noise of one element, of its own size or of
/// the typical one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    relative: f64,
    typical: f64,
}

impl Near {
    pub(super) fn of(case: &Case<'_>) -> Self {
        Self {
            relative: 2.0 * case.noise[3],
            typical: rms(case.reference),
        }
    }

    pub(super) fn allowed(self, predicted: f64) -> f64 {
        self.relative * predicted.abs().max(self.typical)
    }

    pub(super) fn accepts(self, predicted: f64, candidate: f64) -> bool {
        (predicted - candidate).abs() <= self.allowed(predicted)
    }
}

/// `1 - left / min(Σ(c-r)², Σc²)` over some elements: what [`crate::score`] measures, for early rejection.
pub(super) fn promise(case: &Case<'_>, flats: &[usize], predict: impl Fn(usize) -> f64) -> f64 {
    let (mut left, mut difference, mut candidate) = (0.0, 0.0, 0.0);
    for &flat in flats {
        let (r, c) = (case.reference[flat], case.candidate[flat]);
        left += (c - predict(flat)) * (c - predict(flat));
        difference += (c - r) * (c - r);
        candidate += c * c;
    }
    share(left, f64::min(difference, candidate))
}

/// `1 - left / whole`; nothing of nothing explains nothing.
pub(super) fn share(left: f64, whole: f64) -> f64 {
    if whole > 0.0 { 1.0 - left / whole } else { 0.0 }
}
