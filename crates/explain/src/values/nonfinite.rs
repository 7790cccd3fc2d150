//! NaN and infinities on one side only: where they are, what is there on the other side, and whether the rest agrees.

use super::{naming::of, sampling::Near};
use crate::{
    Case, Class, Examined, Explanation, Hypothesis, array::Axis, case::Predicted, constants::short,
};
use twinscope_report::{CauseKind, facts};
use twinscope_tensor::Side;

#[derive(Debug)]
pub(super) struct NonFinite;

/// What was found on the side that has them.
#[derive(Default)]
struct Found {
    nan: usize,
    plus: usize,
    minus: usize,
    first: Option<usize>,
    /// The largest value of the other side where this one has no number.
    largest: f64,
}

impl Found {
    fn count(&self) -> usize {
        self.nan + self.plus + self.minus
    }

    fn add(&mut self, flat: usize, value: f64, other: f64) {
        match value {
            _ if value.is_nan() => self.nan += 1,
            _ if value > 0.0 => self.plus += 1,
            _ => self.minus += 1,
        }
        self.first.get_or_insert(flat);
        self.largest = self.largest.max(other.abs());
    }

    /// `48 NaN`, `3 +inf and 2 -inf`.
    fn said(&self) -> String {
        let kinds = [(self.nan, "NaN"), (self.plus, "+inf"), (self.minus, "-inf")];
        let said: Vec<String> = kinds
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        said.join(" and ")
    }
}

/// The largest finite values of dtypes that overflow, the widest first: what is beyond one of them does not fit.
const LARGEST: [(f64, &str); 2] = [
    (3.389_531_389_251_535_5e38, "bf16 holds (3.3895e38)"),
    (65504.0, "f16 holds (65504)"),
];

impl Hypothesis for NonFinite {
    fn name(&self) -> &'static str {
        "nonfinite"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let near = Near::of(case);
        let (mut candidate, mut reference, mut differing) =
            (Found::default(), Found::default(), 0usize);
        for (flat, (r, c)) in case.reference.iter().zip(case.candidate).enumerate() {
            match (r.is_finite(), c.is_finite()) {
                (true, false) => candidate.add(flat, *c, *r),
                (false, true) => reference.add(flat, *r, *c),
                (true, true) => differing += usize::from(!near.accepts(*r, *c)),
                (false, false) => {
                    differing +=
                        usize::from(r.is_nan() != c.is_nan() || (r.is_infinite() && r != c));
                }
            }
        }
        if candidate.count() + reference.count() == 0 {
            return Err("both sides are finite in the same places".into());
        }
        let (side, found) = if candidate.count() > 0 {
            (Side::Candidate, &candidate)
        } else {
            (Side::Reference, &reference)
        };
        if is_mask(&candidate, &reference) {
            return Err("only -inf beside ordinary values: a mask".into());
        }
        let explained =
            found.count() as f64 / (candidate.count() + reference.count() + differing) as f64;
        let proven = differing == 0 && (candidate.count() == 0 || reference.count() == 0);
        let first = index(case.dims, found.first.unwrap_or(0));
        let mut text = format!("the {side} has {}, first at {first:?}", found.said());
        if let Some(place) = place(case, side == Side::Candidate) {
            text.push_str(&format!(", {place}"));
        }
        let overflow = LARGEST
            .iter()
            .find(|(most, _)| found.largest > *most && found.nan == 0);
        if let Some((_, holds)) = overflow {
            text.push_str(&format!(
                "; the other side has up to {} there, beyond what {holds}",
                short(found.largest)
            ));
        }
        text.push_str(if proven {
            "; the rest agrees"
        } else {
            "; the rest differs too"
        });
        Ok(vec![Explanation {
            kind: CauseKind::Nonfinite,
            text,
            details: facts::Nonfinite {
                side,
                count: found.count(),
                nan: found.nan,
                inf: found.plus + found.minus,
                first,
                largest_there: found.largest,
                overflow: overflow.is_some(),
            }
            .into(),
            class: Class::Mechanism,
            freedom: 0,
            predicted: Predicted::Share { explained, proven },
        }])
    }
}

/// Nothing but -inf, beside values that no dtype takes for it: masked scores are another cause's business.
fn is_mask(candidate: &Found, reference: &Found) -> bool {
    let minus_only = |found: &Found| found.nan + found.plus == 0;
    minus_only(candidate) && minus_only(reference) && candidate.largest.max(reference.largest) < 1e4
}

/// The index of a flat position.
pub(super) fn index(dims: &[usize], mut flat: usize) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (at, dim) in dims.iter().enumerate().rev() {
        index[at] = flat % dim;
        flat /= dim;
    }
    index
}

/// "all of it in 1 of 11 slices of dim 1": the axis along which fewest slices have them.
fn place(case: &Case<'_>, of_candidate: bool) -> Option<String> {
    let (side, other) = if of_candidate {
        (case.candidate, case.reference)
    } else {
        (case.reference, case.candidate)
    };
    let bad = |flat: usize| !side[flat].is_finite() && other[flat].is_finite();
    let mut best: Option<(f64, String)> = None;
    for dim in case.axes() {
        let axis = Axis::of(case.dims, dim);
        let mut hit = vec![0usize; axis.along];
        (0..side.len())
            .filter(|flat| bad(*flat))
            .for_each(|flat| hit[axis.index(flat)] += 1);
        let slices = hit.iter().filter(|count| **count > 0).count();
        let share = slices as f64 / axis.along as f64;
        if slices < axis.along && best.as_ref().is_none_or(|(least, _)| share < *least) {
            let whole = hit
                .iter()
                .filter(|count| **count > 0)
                .all(|count| *count == axis.outside * axis.inside);
            let which = if slices == 1 {
                format!(
                    "index {} of dim {dim}",
                    hit.iter().position(|count| *count > 0)?
                )
            } else {
                format!("{} slices of dim {dim}", of(slices, axis.along))
            };
            best = Some((
                share,
                if whole {
                    format!("all of {which}")
                } else {
                    format!("only in {which}")
                },
            ));
        }
    }
    best.map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use crate::testing::{examine_noisy, examine_pair, normal, proven};
    use twinscope_report::CauseKind;

    #[test]
    fn a_row_of_nan_is_counted_and_placed() {
        let reference = normal(22 * 48, 1);
        let mut candidate = reference.clone();
        candidate[15 * 48..16 * 48].fill(f64::NAN);
        let found = examine_pair(&[2, 11, 48], reference.clone(), candidate.clone());
        assert_eq!(proven(&found), Some("nonfinite"));
        let best = &found.found[0].explanation;
        assert_eq!(
            best.text,
            "the candidate has 48 NaN, first at [1, 4, 0], only in index 4 of dim 1; the rest agrees"
        );
        assert_eq!(
            proven(&examine_noisy(&[2, 11, 48], reference, candidate)),
            Some("nonfinite")
        );
    }

    #[test]
    fn an_overflow_is_told_by_what_is_on_the_other_side() {
        let reference: Vec<f64> = normal(100, 1).iter().map(|x| x * 4e4).collect();
        let candidate = reference
            .iter()
            .map(|r| {
                if r.abs() > 65504.0 {
                    r.signum() * f64::INFINITY
                } else {
                    *r
                }
            })
            .collect();
        let found = examine_pair(&[10, 10], reference, candidate);
        assert_eq!(proven(&found), Some("nonfinite"));
        assert_eq!(found.found[0].explanation.details.json()["overflow"], true);
    }

    #[test]
    fn a_difference_beside_the_nan_is_not_explained_by_it_alone() {
        let reference = normal(100, 1);
        let mut candidate: Vec<f64> = reference.iter().map(|r| r * 2.0).collect();
        candidate[5] = f64::NAN;
        let found = examine_pair(&[10, 10], reference, candidate);
        let both = |text: &str| {
            ["NaN", "and beyond that", "reference x 2"]
                .iter()
                .all(|part| text.contains(part))
        };
        assert!(
            found
                .found
                .iter()
                .all(|found| !found.score.proven || both(&found.explanation.text))
        );
    }

    #[test]
    fn masked_scores_are_no_overflow() {
        let reference = normal(100, 1);
        let candidate = reference
            .iter()
            .enumerate()
            .map(|(at, r)| {
                if at % 10 > at / 10 {
                    f64::NEG_INFINITY
                } else {
                    *r
                }
            })
            .collect();
        let found = examine_pair(&[10, 10], reference, candidate);
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Nonfinite)
        );
    }
}
