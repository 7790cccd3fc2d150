//! A factor per row and a shared vector besides: LayerNorm where RMSNorm belongs, or the other way round.
//!
//! With `w` the norm's weight, RMSNorm gives `r = w x / rms(x)` and LayerNorm `c = w (x - mean(x)) / std(x) = (rms/std) r - (mean/std) w`: a factor
//! per row plus a multiple per row of one vector.

use super::{
    groups::Groups,
    matrix::{Goal, Matrix},
};
use crate::{Case, Class, Examined, Explanation, Hypothesis, case::Predicted};
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct RowAffine;

/// How near the shared vector must be to the plane of each row's reference and candidate, on a sample.
const NEAR: f64 = 0.9;

impl Hypothesis for RowAffine {
    fn name(&self) -> &'static str {
        "row_affine"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let mut why = "too few rows or columns".to_owned();
        for matrix in Matrix::ways(case) {
            let Some((left, near)) = matrix.glance_beside_factors(case) else {
                return Err("not finite".into());
            };
            if left <= (2.0 * case.noise[0]).powi(2) {
                return Err("a factor per row does".into());
            }
            let freedom = 2 * matrix.rows.len() + matrix.columns.len();
            if left > 0.9 || near < NEAR || 3 * freedom > case.reference.len() {
                why = format!(
                    "beside a factor per row no vector is shared: the best takes {:.0} %",
                    100.0 * near
                );
                continue;
            }
            let Some(predicted) = matrix.predict(case, Goal::Candidate, 1) else {
                continue;
            };
            let columns = Groups::of(case.dims, &matrix.axes).said();
            let explanation = |vectors: &str, freedom: usize, predicted: Vec<f64>| Explanation {
                kind: CauseKind::RowAffine,
                text: format!(
                    "candidate = reference x a factor per row + a multiple per row of {vectors} along {columns}, as LayerNorm for RMSNorm would"
                ),
                details: facts::RowAffine::Fitted {
                    axes: matrix.axes.clone(),
                }
                .into(),
                class: Class::Mechanism,
                freedom,
                predicted: Predicted::Values(predicted),
            };
            let mut found = vec![explanation("one vector", freedom, predicted)];
            // A norm's bias is added behind the factor: it is a second vector.
            let more = freedom + matrix.rows.len() + matrix.columns.len();
            if 3 * more <= case.reference.len()
                && let Some(predicted) = matrix.predict(case, Goal::Candidate, 2)
            {
                found.push(explanation("two vectors", more, predicted));
            }
            return Ok(found);
        }
        Err(why.into())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{examine_noisy, examine_pair, normal, proven};
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    fn norms(rows: usize, columns: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
        let weight: Vec<f64> = normal(columns, seed + 1)
            .iter()
            .map(|w| 1.0 + 0.2 * w)
            .collect();
        let shifts = normal(rows, seed + 3);
        let (mut rms_norm, mut layer_norm) = (Vec::new(), Vec::new());
        for (row, shift) in normal(rows * columns, seed).chunks(columns).zip(shifts) {
            let row: Vec<f64> = row.iter().map(|x| x + 0.5 * shift).collect();
            let mean = row.iter().sum::<f64>() / columns as f64;
            let rms = (row.iter().map(|x| x * x).sum::<f64>() / columns as f64).sqrt();
            let std = (rms * rms - mean * mean).sqrt();
            rms_norm.extend(row.iter().zip(&weight).map(|(x, w)| w * x / rms));
            layer_norm.extend(row.iter().zip(&weight).map(|(x, w)| w * (x - mean) / std));
        }
        (rms_norm, layer_norm)
    }

    #[test]
    fn layer_norm_for_rms_norm_is_found_and_the_other_way_round() {
        let (rms_norm, layer_norm) = norms(40, 48, 1);
        assert_eq!(
            proven(&examine_pair(
                &[2, 20, 48],
                rms_norm.clone(),
                layer_norm.clone()
            )),
            Some("row_affine")
        );
        assert_eq!(
            proven(&examine_pair(&[2, 20, 48], layer_norm, rms_norm)),
            Some("row_affine")
        );
    }

    #[test]
    fn norms_with_a_bias_are_found_too() {
        let (rms_norm, layer_norm) = norms(60, 48, 1);
        let bias = normal(48, 8);
        let with = |values: Vec<f64>| -> Vec<f64> {
            values
                .iter()
                .enumerate()
                .map(|(flat, x)| x + 0.5 * bias[flat % 48])
                .collect()
        };
        let found = examine_pair(&[3, 20, 48], with(layer_norm), with(rms_norm));
        assert_eq!(proven(&found), Some("row_affine"));
    }

    #[test]
    fn unrelated_values_and_factors_are_none() {
        let reference = normal(22 * 48, 1);
        let scaled = reference
            .iter()
            .enumerate()
            .map(|(flat, r)| r * (1.0 + (flat / 48) as f64))
            .collect();
        for candidate in [normal(22 * 48, 2), scaled] {
            let found = examine_pair(&[22, 48], reference.clone(), candidate);
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::RowAffine
                        || !found.score.proven)
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn norms_of_any_size_are_found_also_in_bf16(rows in 14usize..50, columns in 24usize..90, seed in 0u64..1000) {
            let (reference, candidate) = norms(rows, columns, seed);
            prop_assert_eq!(proven(&examine_pair(&[rows, columns], reference.clone(), candidate.clone())), Some("row_affine"));
            let noisy = examine_noisy(&[rows, columns], reference, candidate);
            prop_assert!(matches!(proven(&noisy), Some("row_affine" | "low_rank")));
        }
    }
}
