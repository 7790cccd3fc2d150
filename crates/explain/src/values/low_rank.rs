//! A term of few products added: a missing outer product, an adapter not merged, one direction steered.

use super::{
    groups::Groups,
    matrix::{Goal, Matrix},
};
use crate::{Case, Class, Examined, Explanation, Hypothesis, case::Predicted};
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct LowRank;

impl Hypothesis for LowRank {
    fn name(&self) -> &'static str {
        "low_rank"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let mut most: f64 = 0.0;
        for matrix in Matrix::ways(case) {
            let Some(glance) = matrix.glance(case) else {
                return Err("not finite".into());
            };
            most = most.max(
                1.0 - glance.left[glance.left.len() - 1] / glance.left[0].max(f64::MIN_POSITIVE),
            );
            let Some(rank) = glance.rank(case.noise[0]) else {
                continue;
            };
            // So many numbers must be fewer than the elements held back.
            let freedom = rank * (matrix.rows.len() + matrix.columns.len());
            if 3 * freedom > case.reference.len() {
                continue;
            }
            if matrix.is_in_few(case, rank) {
                return Err(format!(
                    "it is in no more than {rank} rows or columns: anything there is of that rank"
                )
                .into());
            }
            let Some(predicted) = matrix.predict(case, Goal::Difference, rank) else {
                continue;
            };
            let share = 1.0 - glance.left[rank] / glance.left[0];
            let columns = Groups::of(case.dims, &matrix.axes).said();
            return Ok(vec![Explanation {
                kind: CauseKind::LowRank,
                text: format!(
                    "the difference is of rank {rank}: {rank} vector{} along {columns}, times one number per row",
                    if rank == 1 { "" } else { "s" }
                ),
                details: facts::LowRank::Matrix {
                    rank,
                    share,
                    axes: matrix.axes.clone(),
                }
                .into(),
                class: Class::Mechanism,
                freedom,
                predicted: Predicted::Values(predicted),
            }]);
        }
        if most == 0.0 {
            Err("too few rows or columns".into())
        } else {
            Err(format!("four products explain {:.0} % of a sample", 100.0 * most).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{examine_noisy, examine_pair, normal, proven};
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    fn added(rows: usize, columns: usize, rank: usize, seed: u64, reference: &[f64]) -> Vec<f64> {
        let (left, right) = (
            normal(rows * rank, seed + 1),
            normal(columns * rank, seed + 2),
        );
        let term = |flat: usize| {
            (0..rank)
                .map(|k| left[flat / columns * rank + k] * right[flat % columns * rank + k])
                .sum::<f64>()
        };
        reference
            .iter()
            .enumerate()
            .map(|(flat, r)| r + term(flat))
            .collect()
    }

    #[test]
    fn the_rank_is_said() {
        for rank in 1..4 {
            let reference = normal(30 * 48, 1);
            let found = examine_pair(
                &[2, 15, 48],
                reference.clone(),
                added(30, 48, rank, 7, &reference),
            );
            assert_eq!(proven(&found), Some("low_rank"));
            assert_eq!(found.found[0].explanation.details.json()["rank"], rank);
        }
    }

    #[test]
    fn heads_that_were_split_are_put_together() {
        let (rows, columns) = (24, 32);
        let reference = normal(rows * columns, 1);
        let candidate = added(rows, columns, 1, 7, &reference);
        // [2, 12, 4 x 8] as [2, 4, 12, 8].
        let split = |values: &[f64]| -> Vec<f64> {
            (0..values.len())
                .map(|flat| {
                    let (b, h, s, d) = (flat / 384, flat / 96 % 4, flat / 8 % 12, flat % 8);
                    values[(b * 12 + s) * 32 + h * 8 + d]
                })
                .collect()
        };
        let found = examine_pair(&[2, 4, 12, 8], split(&reference), split(&candidate));
        assert_eq!(proven(&found), Some("low_rank"));
        assert_eq!(
            found.found[0].explanation.details.json()["axes"],
            serde_json::json!([1, 3])
        );
    }

    #[test]
    fn differences_of_full_rank_are_none() {
        let reference = normal(22 * 48, 1);
        let halved = reference.iter().map(|r| 0.5 * r).collect();
        for candidate in [normal(22 * 48, 2), halved, added(22, 48, 12, 3, &reference)] {
            let found = examine_pair(&[22, 48], reference.clone(), candidate);
            assert!(
                found.found.iter().all(
                    |found| found.explanation.kind != CauseKind::LowRank || !found.score.proven
                )
            );
        }
        let few = examine_pair(&[3, 48], normal(144, 1), normal(144, 2));
        proven(&few);
        assert!(few.found.iter().all(|found| !found.score.proven));
    }

    #[test]
    fn what_is_in_one_place_is_a_place_and_no_rank() {
        let reference = normal(30 * 48, 1);
        let wrong = |is_wrong: fn(usize) -> bool| {
            let other = normal(30 * 48, 2);
            let candidate = (0..30 * 48)
                .map(|flat| {
                    if is_wrong(flat) {
                        other[flat]
                    } else {
                        reference[flat]
                    }
                })
                .collect();
            examine_pair(&[30, 48], reference.clone(), candidate)
        };
        for found in [
            wrong(|flat| flat == 500),
            wrong(|flat| flat / 48 == 7),
            wrong(|flat| flat % 48 == 9),
        ] {
            assert_eq!(proven(&found), Some("localized"));
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::LowRank)
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn rank_one_of_any_size_is_found_also_in_bf16(rows in 12usize..60, columns in 14usize..90, seed in 0u64..1000) {
            let reference = normal(rows * columns, seed);
            let candidate = added(rows, columns, 1, seed, &reference);
            prop_assert_eq!(proven(&examine_pair(&[rows, columns], reference.clone(), candidate.clone())), Some("low_rank"));
            prop_assert_eq!(proven(&examine_noisy(&[rows, columns], reference, candidate)), Some("low_rank"));
        }
    }
}
