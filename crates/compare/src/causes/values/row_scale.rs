//! A factor per row: another epsilon in a norm, per-token quantisation scales, rows normalised by another norm.
//!
//! A norm divides a row by `sqrt(m + e)`, with `m` the mean of its squares (or its variance). Where the norm's input is recorded, the factors
//! `sqrt((m + e_reference) / (m + e_candidate))` tell the two epsilons.

use super::{
    factors::{Factors, are_channels},
    groups::Groups,
    naming::of,
};
use crate::causes::{Case, Class, Examined, Explanation, Hypothesis, case::Predicted, constants::short};
use serde_json::json;

#[derive(Debug)]
pub(super) struct RowScale;

impl Hypothesis for RowScale {
    fn name(&self) -> &'static str {
        "row_scale"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let fit = Factors::fit(case, |groups| !are_channels(case, groups), "a factor per row")?;
        if 2 * fit.changed < fit.groups.count && !fit.are_coherent() {
            return Err(format!("only {} rows have a factor", of(fit.changed, fit.groups.count)).into());
        }
        Ok(vec![explanation(case, &fit)])
    }
}

fn explanation(case: &Case<'_>, fit: &Factors) -> Explanation {
    let (range, said, axes) = (fit.range(), fit.groups.said(), fit.groups.kept());
    let epsilons = epsilons(case, fit);
    let meaning = match &epsilons {
        Some(found) => format!(
            ": a norm of `{}` with epsilon {} where the reference has {}",
            found.input,
            epsilon(found.candidate),
            epsilon(found.reference)
        ),
        None => String::new(),
    };
    Explanation {
        kind: "row_scale",
        text: format!("candidate = reference x one factor per row ({said}, {} to {}){meaning}", short(range[0]), short(range[2])),
        details: json!({
            "axes": axes, "factors": range, "changed": fit.changed,
            "epsilons": epsilons.as_ref().map(|found| [found.reference, found.candidate]),
            "input": epsilons.as_ref().map(|found| &found.input),
        }),
        class: Class::Mechanism,
        freedom: fit.groups.count,
        predicted: Predicted::Values(fit.predicted(case)),
    }
}

/// `1e-6`, as people write it.
fn epsilon(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:e}") }
}

/// The epsilons that make the factors from a recorded input.
struct Epsilons {
    input: String,
    reference: f64,
    candidate: f64,
}

/// What people write. None is another by rounding.
const USUAL: [f64; 13] = [0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 5e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1];
/// Inputs looked at, nearest first.
const INPUTS: usize = 6;
/// How much of the factors' distance from 1 may be left.
const RESEMBLANCE: f64 = 0.05;

fn epsilons(case: &Case<'_>, fit: &Factors) -> Option<Epsilons> {
    let entries = case.scene.entries();
    let same = |at: &usize| !entries[*at].parameter && entries[*at].dims.iter().product::<usize>() == case.reference.len();
    let mut best: Option<(f64, Epsilons)> = None;
    for at in (0..case.pair).rev().filter(same).take(INPUTS) {
        let Some(loaded) = case.scene.load(at).filter(|loaded| loaded.reference.len() == case.reference.len()) else { continue };
        for centred in [false, true] {
            let squares = mean_squares(&fit.groups, &loaded.reference, centred);
            if let Some((left, [reference, candidate])) = closest(&fit.factors, &squares)
                && best.as_ref().is_none_or(|(least, _)| left < *least)
            {
                best = Some((left, Epsilons { input: entries[at].name.clone(), reference, candidate }));
            }
        }
    }
    best.map(|(_, epsilons)| epsilons)
}

/// The usual epsilons of reference and candidate that come closest to the factors, if close enough, and the share they leave.
fn closest(factors: &[f64], squares: &[f64]) -> Option<(f64, [f64; 2])> {
    let whole: f64 = factors.iter().map(|factor| (factor - 1.0) * (factor - 1.0)).sum();
    let mut best = (RESEMBLANCE * RESEMBLANCE * whole, None);
    for reference in USUAL {
        for candidate in USUAL.into_iter().filter(|candidate| *candidate != reference) {
            let factor = |square: f64| ((square + reference) / (square + candidate)).sqrt();
            let left: f64 = factors.iter().zip(squares).map(|(found, square)| (found - factor(*square)).powi(2)).sum();
            if left < best.0 {
                best = (left, Some([reference, candidate]));
            }
        }
    }
    best.1.map(|epsilons| (best.0 / whole, epsilons))
}

fn mean_squares(groups: &Groups, values: &[f64], centred: bool) -> Vec<f64> {
    let (mut sums, mut squares) = (vec![0.0; groups.count], vec![0.0; groups.count]);
    groups.visit(|flat, group| {
        sums[group] += values[flat];
        squares[group] += values[flat] * values[flat];
    });
    let size = groups.size as f64;
    squares.iter().zip(&sums).map(|(square, sum)| square / size - if centred { (sum / size).powi(2) } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use crate::causes::array::energy;
    use crate::causes::testing::{Recorded, examine_in, examine_noisy, examine_pair, normal, proven};
    use proptest::prelude::*;

    fn norm(row: &[f64], epsilon: f64) -> Vec<f64> {
        row.iter().map(|x| x / (energy(row) / row.len() as f64 + epsilon).sqrt()).collect()
    }

    #[test]
    fn the_epsilons_of_a_norm_are_told_from_its_input() {
        let hidden: Vec<f64> = normal(22 * 48, 1).iter().enumerate().map(|(at, x)| x * 0.01 * (1.0 + (at / 48) as f64)).collect();
        let with = |epsilon: f64| hidden.chunks(48).flat_map(|row| norm(row, epsilon)).collect::<Vec<f64>>();
        let run = [
            Recorded { name: "hidden", dims: vec![2, 11, 48], reference: hidden.clone(), candidate: hidden.clone() },
            Recorded { name: "norm", dims: vec![2, 11, 48], reference: with(1e-6), candidate: with(1e-5) },
        ];
        let best = &examine_in(&run, "norm").0.found[0];
        assert!(best.score.proven);
        assert_eq!(best.explanation.kind, "row_scale");
        assert_eq!(best.explanation.details["epsilons"], serde_json::json!([1e-6, 1e-5]));
        assert!(best.explanation.text.ends_with("a norm of `hidden` with epsilon 1e-5 where the reference has 1e-6"));
    }

    #[test]
    fn one_row_with_a_factor_is_a_place_and_no_row_scale() {
        let reference = normal(22 * 48, 1);
        let candidate = reference.iter().enumerate().map(|(at, r)| if at / 48 == 3 { 1.5 * r } else { *r }).collect();
        let found = examine_pair(&[22, 48], reference, candidate);
        assert!(found.found.iter().all(|found| found.explanation.kind != "row_scale"));
    }

    #[test]
    fn probabilities_that_a_sink_takes_from_have_a_factor_per_row_also_where_a_row_is_one_value() {
        // Causal rows: the first has one probability, the last has eight.
        let (mut reference, mut candidate) = (Vec::new(), Vec::new());
        for (row, scores) in normal(64 * 8, 5).chunks(8).enumerate() {
            let seen: Vec<f64> = scores[..=row % 8].iter().map(|score| score.exp()).collect();
            let sum: f64 = seen.iter().sum();
            let one = |total: f64| (0..8).map(move |key| if key <= row % 8 { scores[key].exp() / total } else { 0.0 });
            reference.extend(one(sum));
            candidate.extend(one(sum + 0.5f64.exp()));
        }
        assert_eq!(proven(&examine_pair(&[8, 8, 8], reference, candidate)), Some("row_scale"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn factors_of_any_number_of_rows_are_found(rows in 3usize..40, columns in 12usize..50, seed in 0u64..1000) {
            let factors: Vec<f64> = normal(rows, seed).iter().enumerate().map(|(at, w)| 1.2 + 0.3 * (at % 3) as f64 + 0.02 * w).collect();
            let reference = normal(rows * columns, seed + 1);
            let candidate: Vec<f64> = reference.iter().enumerate().map(|(at, r)| r * factors[at / columns]).collect();
            prop_assert_eq!(proven(&examine_pair(&[rows, columns], reference.clone(), candidate.clone())), Some("row_scale"));
            prop_assert_eq!(proven(&examine_noisy(&[rows, columns], reference, candidate)), Some("row_scale"));
        }
    }
}
