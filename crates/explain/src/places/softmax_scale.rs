//! Scores with another factor before softmax: `1/sqrt(d)` missing, of another `d`, or twice.
//!
//! Within a row the logarithms of probabilities are scores up to a constant, so `log c = a log r + const`; the constant is the row's sum.

use super::rows::{probabilities, row};
use crate::{
    Case, Class, Examined, Explanation, Hypothesis,
    case::Predicted,
    constants::{factor, said},
};
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct SoftmaxScale;

/// Smaller probabilities have lost their digits.
const VISIBLE: f64 = 1e-7;
/// Pairs on either side whose dimensions a constant may come from.
const IN_SIGHT: usize = 12;

impl Hypothesis for SoftmaxScale {
    fn name(&self) -> &'static str {
        "softmax_scale"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let axis = probabilities(case).ok_or("the rows are no probabilities")?;
        let rows = axis.outside * axis.inside;
        let (mut rr, mut rc, mut used) = (0.0, 0.0, 0usize);
        for nth in 0..rows {
            let logs: Vec<(f64, f64)> = row(axis, nth)
                .filter(|at| {
                    case.fits(*at) && case.reference[*at] > VISIBLE && case.candidate[*at] > VISIBLE
                })
                .map(|at| (case.reference[at].ln(), case.candidate[at].ln()))
                .collect();
            let count = logs.len() as f64;
            let (r_mean, c_mean) = logs.iter().fold((0.0, 0.0), |(r, c), (lr, lc)| {
                (r + lr / count, c + lc / count)
            });
            for (r, c) in &logs {
                rr += (r - r_mean) * (r - r_mean);
                rc += (r - r_mean) * (c - c_mean);
            }
            used += logs.len().saturating_sub(1);
        }
        if used < 8 || rr <= f64::EPSILON * used as f64 {
            return Err("the rows hardly vary".into());
        }
        let ratio = rc / rr;
        if ratio.is_nan() || ratio <= 0.0 || (ratio - 1.0).abs() < case.noise[0] {
            return Err("the log-odds are in no ratio but 1".into());
        }
        let named = factor(ratio, &dims_in_sight(case), case.noise[0].max(1e-5));
        let mut predicted = vec![0.0; case.reference.len()];
        for nth in 0..rows {
            // Relative to the largest, so that no power overflows.
            let largest = row(axis, nth)
                .map(|at| case.reference[at])
                .fold(0.0, f64::max);
            let power = |at: usize| (case.reference[at] / largest).powf(ratio);
            let sum: f64 = row(axis, nth).map(power).sum();
            for at in row(axis, nth) {
                predicted[at] = if largest == 0.0 { 0.0 } else { power(at) / sum };
            }
        }
        Ok(vec![Explanation {
            kind: CauseKind::SoftmaxScale,
            text: format!(
                "the scores before softmax are multiplied by {} in the candidate",
                said(ratio, named.as_ref())
            ),
            details: facts::SoftmaxScale::Fitted {
                ratio,
                constant: named.map(|named| named.name),
            }
            .into(),
            class: Class::Mechanism,
            freedom: 1,
            predicted: Predicted::Values(predicted),
        }])
    }
}

/// The head's dimension is not among those of the probabilities, but of what they were made of.
fn dims_in_sight(case: &Case<'_>) -> Vec<usize> {
    let entries = case.scene.entries();
    let near = entries
        [case.pair.saturating_sub(IN_SIGHT)..(case.pair + IN_SIGHT).min(entries.len())]
        .iter();
    let last = near
        .filter(|entry| entry.dims.len() >= 2)
        .filter_map(|entry| entry.dims.last().copied());
    let mut dims: Vec<usize> = last.collect();
    dims.extend([32, 64, 80, 96, 128, 256]);
    dims
}

#[cfg(test)]
mod tests {
    use crate::{
        places::testing::{bf16_noise, softmax},
        testing::{Recorded, examine_bf16, examine_in, examine_pair, normal, proven},
    };
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    fn probs(scale: f64) -> Vec<f64> {
        softmax(&normal(2 * 4 * 11 * 11, 1), 11, scale, |at| {
            at % 11 <= at / 11 % 11
        })
    }

    #[test]
    fn a_missing_scale_is_called_by_its_name() {
        let q = normal(2 * 4 * 11 * 12, 3);
        let run = [
            Recorded {
                name: "q",
                dims: vec![2, 4, 11, 12],
                reference: q.clone(),
                candidate: q,
            },
            Recorded {
                name: "probs",
                dims: vec![2, 4, 11, 11],
                reference: probs(1.0),
                candidate: probs(12f64.sqrt()),
            },
        ];
        let (found, _) = examine_in(&run, "probs");
        assert_eq!(proven(&found), Some("softmax_scale"));
        assert_eq!(
            found.found[0].explanation.details.json()["constant"],
            "sqrt(12)"
        );
    }

    #[test]
    fn also_under_the_noise_of_bf16() {
        let candidate = bf16_noise(&probs(0.5), 2e-3, 4);
        let run = [Recorded {
            name: "p",
            dims: vec![2, 4, 11, 11],
            reference: probs(1.0),
            candidate,
        }];
        assert_eq!(proven(&examine_bf16(&run, "p")), Some("softmax_scale"));
    }

    #[test]
    fn other_scores_are_no_other_scale() {
        let other = softmax(&normal(2 * 4 * 11 * 11, 9), 11, 1.0, |at| {
            at % 11 <= at / 11 % 11
        });
        let found = examine_pair(&[2, 4, 11, 11], probs(1.0), other);
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::SoftmaxScale
                    || !found.score.proven)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn any_scale_is_found(scale in 0.2f64..5.0, rows in 2usize..12, columns in 3usize..30, seed in 0u64..100) {
            prop_assume!((scale - 1.0).abs() > 0.05 && rows * columns > 40);
            let scores = normal(rows * columns, seed);
            let found = examine_pair(&[rows, columns], softmax(&scores, columns, 1.0, |_| true), softmax(&scores, columns, scale, |_| true));
            prop_assert_eq!(proven(&found), Some("softmax_scale"));
        }
    }
}
