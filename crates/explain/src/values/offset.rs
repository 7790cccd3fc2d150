//! A vector added to every row: a bias missing, doubled or added once per rank; or a constant added to all.
//!
//! The difference is constant along every axis but one or two. Where a tensor with that many values is recorded, the vector is compared
//! with it: a multiple of -1 says it is missing, of 1 that it was added twice.

use super::{
    groups::{Groups, Left, promising, refusal},
    naming::of,
    sampling::{promise, sample},
};
use crate::{
    Case, Class, Examined, Explanation, Hypothesis, array::energy, case::Predicted,
    constants::short,
};
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct Offset;

impl Hypothesis for Offset {
    fn name(&self) -> &'static str {
        "offset"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let mut explanations: Vec<Explanation> = constant(case).into_iter().collect();
        match promising(case, leaves) {
            Ok(groups) => explanations.extend(vector(case, &groups)),
            Err(best) if explanations.is_empty() => {
                return Err(refusal(best, "a constant difference per channel").into());
            }
            Err(_) => {}
        }
        if explanations.is_empty() {
            Err("the difference is not constant".into())
        } else {
            Ok(explanations)
        }
    }
}

fn leaves(pairs: &[(f64, f64)]) -> Left {
    let count = pairs.len() as f64;
    let mean = pairs.iter().map(|(r, c)| c - r).sum::<f64>() / count;
    let (mut left, mut difference, mut candidate) = (0.0, 0.0, 0.0);
    for (r, c) in pairs {
        left += (c - r - mean) * (c - r - mean);
        difference += (c - r) * (c - r);
        candidate += c * c;
    }
    (left, f64::min(difference, candidate))
}

/// The same number added everywhere.
fn constant(case: &Case<'_>) -> Option<Explanation> {
    let flats = sample(case, 1 << 14);
    if flats.len() < 4 {
        return None;
    }
    let amount = flats
        .iter()
        .map(|flat| case.candidate[*flat] - case.reference[*flat])
        .sum::<f64>()
        / flats.len() as f64;
    if amount == 0.0 || promise(case, &flats, |flat| case.reference[flat] + amount) < 0.5 {
        return None;
    }
    let positions = are_positions(case);
    Some(Explanation {
        // Where positions are counted from is where the tokens are, not what was added to them.
        kind: if positions {
            CauseKind::Shifted
        } else {
            CauseKind::Offset
        },
        text: match positions {
            true => format!(
                "candidate = reference {}: positions are counted from another number",
                signed(amount)
            ),
            false => format!("candidate = reference {}", signed(amount)),
        },
        details: if positions {
            facts::Shifted::Counted {
                axis: Some(case.dims.len() - 1),
                amount,
            }
            .into()
        } else {
            facts::Offset::Constant { axis: None, amount }.into()
        },
        class: Class::Mechanism,
        freedom: 1,
        predicted: Predicted::Values(case.reference.iter().map(|r| r + amount).collect()),
    })
}

/// Whether the rows are whole numbers that count up by one: position ids.
fn are_positions(case: &Case<'_>) -> bool {
    let width = case.dims.last().copied().unwrap_or(0);
    let whole = case
        .dtypes
        .iter()
        .all(|dtype| dtype.kind() == twinscope_tensor::Kind::Int);
    whole
        && width >= 4
        && case
            .reference
            .chunks_exact(width)
            .all(|row| row.windows(2).all(|two| two[1] - two[0] == 1.0))
}

fn signed(amount: f64) -> String {
    if amount < 0.0 {
        format!("- {}", short(-amount))
    } else {
        format!("+ {}", short(amount))
    }
}

/// One number for every group.
fn vector(case: &Case<'_>, groups: &Groups) -> Option<Explanation> {
    // Of a short group the choice may leave none to fit: then its others are all there is.
    let mut fitted = vec![(0.0, 0usize); groups.count];
    let mut held = fitted.clone();
    groups.visit(|flat, group| {
        let difference = case.candidate[flat] - case.reference[flat];
        if difference.is_finite() {
            let (sum, count) = if case.fits(flat) {
                &mut fitted[group]
            } else {
                &mut held[group]
            };
            *sum += difference;
            *count += 1;
        }
    });
    let mean = |(sum, count): (f64, usize)| if count == 0 { 0.0 } else { sum / count as f64 };
    let vector: Vec<f64> = fitted
        .iter()
        .zip(held)
        .map(|(fitted, held)| mean(if fitted.1 == 0 { held } else { *fitted }))
        .collect();
    let largest = vector
        .iter()
        .fold(0f64, |largest, value| largest.max(value.abs()));
    let changed = vector
        .iter()
        .filter(|value| value.abs() > 0.01 * largest)
        .count();
    // The last axis, the batch, or the second of four: feature maps and heads.
    let (kept, axes) = (groups.kept(), case.dims.len());
    // Of three the second, where a convolution along time made it: no mean of a row is the same in every batch row.
    let convolved = kept == [1] && axes == 3 && (case.dims[0] > 1 || is_convolution(case));
    let channels = kept.last() == Some(&(axes - 1))
        || kept == [0] && axes > 2
        || kept == [1] && axes >= 4
        || convolved;
    if !channels && 2 * changed < groups.count {
        // A few rows off by a constant are a place, not a vector.
        return None;
    }
    let mut predicted = case.reference.to_vec();
    groups.visit(|flat, group| predicted[flat] += vector[group]);
    let norm = energy(&vector).sqrt();
    let source = channels.then(|| recorded(case, &vector)).flatten();
    let said = groups.said();
    let text = match &source {
        Some(Source { name, multiple }) => told(name, *multiple),
        None if channels => format!(
            "candidate = reference + a vector along {said} (norm {}, {} differ): a bias missing, or added too often",
            short(norm),
            of(changed, groups.count)
        ),
        None => format!(
            "candidate = reference + one number per row ({said}, norm {}): a mean subtracted, or not",
            short(norm)
        ),
    };
    let axes = groups.kept();
    // A recorded vector with a whole multiple leaves nothing to fit.
    let freedom = if source.is_some() { 0 } else { groups.count };
    let added = facts::AddedVector {
        axis: axes.last().copied(),
        axes: axes.to_vec(),
        norm,
        changed,
        rank: (!channels).then_some(1),
        multiple: source.as_ref().map(|source| source.multiple),
        tensor: source.map(|source| source.name),
    };
    let (kind, details) = if channels {
        (CauseKind::Offset, facts::Offset::Vector(added).into())
    } else {
        (CauseKind::LowRank, facts::LowRank::Vector(added).into())
    };
    Some(Explanation {
        kind,
        text,
        details,
        class: Class::Mechanism,
        freedom,
        predicted: Predicted::Values(predicted),
    })
}

fn is_convolution(case: &Case<'_>) -> bool {
    case.scene.entries()[case.pair]
        .name
        .to_ascii_lowercase()
        .contains("conv")
}

/// A recorded tensor that the vector is a multiple of.
struct Source {
    name: String,
    multiple: f64,
}

fn told(name: &str, multiple: f64) -> String {
    match multiple {
        -1.0 => format!("candidate = reference - `{name}`: the bias is missing"),
        1.0 => format!("candidate = reference + `{name}`: the bias is added twice"),
        more if more > 1.0 => format!(
            "candidate = reference + {more} x `{name}`: the bias is added {} times",
            more + 1.0
        ),
        other => format!("candidate = reference {} x `{name}`", signed(other)),
    }
}

/// How much of the vector may not be the recorded one's.
const RESEMBLANCE: f64 = 0.02;

fn recorded(case: &Case<'_>, vector: &[f64]) -> Option<Source> {
    let whole = energy(vector);
    for other in case.scene.others(case.pair, vector.len()) {
        let values = &other.array.values;
        let own = energy(values);
        let dot: f64 = values.iter().zip(vector).map(|(a, b)| a * b).sum();
        let multiple = (dot / own).round();
        let left: f64 = values
            .iter()
            .zip(vector)
            .map(|(a, b)| (b - multiple * a) * (b - multiple * a))
            .sum();
        if own > 0.0 && multiple != 0.0 && left <= RESEMBLANCE * RESEMBLANCE * whole {
            return Some(Source {
                name: other.name,
                multiple,
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, examine_in, examine_noisy, examine_pair, normal, proven};
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    fn added(dims: &[usize], axis: usize, vector: &[f64], reference: &[f64]) -> Vec<f64> {
        let inside: usize = dims[axis + 1..].iter().product();
        reference
            .iter()
            .enumerate()
            .map(|(flat, r)| r + vector[flat / inside % dims[axis]])
            .collect()
    }

    #[test]
    fn a_missing_bias_is_a_vector_along_the_channels() {
        let (dims, reference) = ([2, 11, 48], normal(1056, 1));
        let candidate = added(&dims, 2, &normal(48, 2), &reference);
        let found = examine_pair(&dims, reference, candidate);
        assert_eq!(proven(&found), Some("offset"));
        assert_eq!(found.found[0].explanation.details.json()["axis"], 2);
    }

    #[test]
    fn a_bias_of_split_heads_lies_along_two_axes() {
        let (dims, reference, bias) = ([2, 4, 11, 12], normal(1056, 1), normal(48, 2));
        let candidate: Vec<f64> = reference
            .iter()
            .enumerate()
            .map(|(flat, r)| r - bias[flat / 132 % 4 * 12 + flat % 12])
            .collect();
        let found = examine_noisy(&dims, reference, candidate);
        assert_eq!(proven(&found), Some("offset"));
        assert_eq!(
            found.found[0].explanation.details.json()["axes"],
            serde_json::json!([1, 3])
        );
    }

    #[test]
    fn a_recorded_bias_is_named_with_its_multiple() {
        let (dims, reference, bias) = (vec![2, 11, 48], normal(1056, 1), normal(48, 2));
        let twice = added(
            &dims,
            2,
            &bias.iter().map(|b| 2.0 * b).collect::<Vec<_>>(),
            &reference,
        );
        let run = [
            Recorded {
                name: "q.bias",
                dims: vec![48],
                reference: bias.clone(),
                candidate: bias,
            },
            Recorded {
                name: "q",
                dims,
                reference,
                candidate: twice,
            },
        ];
        let (found, _) = examine_in(&run, "q");
        let best = &found.found[0].explanation;
        assert_eq!(
            (
                best.kind.name(),
                best.details.json()["tensor"].as_str(),
                best.details.json()["multiple"].as_f64()
            ),
            ("offset", Some("q.bias"), Some(2.0))
        );
    }

    #[test]
    fn one_constant_is_one_number() {
        let reference = normal(100, 1);
        let candidate = reference.iter().map(|r| r + 0.5).collect();
        let found = examine_pair(&[10, 10], reference, candidate);
        assert_eq!(proven(&found), Some("offset"));
        assert_eq!(
            found.found[0].explanation.text,
            "candidate = reference + 0.5"
        );
    }

    #[test]
    fn a_number_per_row_is_of_rank_one() {
        let reference = normal(1056, 1);
        let candidate = reference
            .chunks(48)
            .flat_map(|row| row.iter().map(|r| r - row.iter().sum::<f64>() / 6.0))
            .collect();
        assert_eq!(
            proven(&examine_pair(&[2, 11, 48], reference, candidate)),
            Some("low_rank")
        );
    }

    #[test]
    fn unrelated_values_and_few_rows_are_no_offset() {
        for dims in [[22, 48], [1, 48], [2, 500], [3, 7]] {
            let count = dims.iter().product();
            let found = examine_pair(&dims, normal(count, 1), normal(count, 2));
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::Offset || !found.score.proven),
                "{dims:?}"
            );
        }
    }

    #[test]
    fn a_bias_of_feature_maps_is_a_vector_along_the_second_of_four_axes() {
        let (dims, reference) = ([2, 12, 9, 11], normal(2 * 12 * 99, 1));
        let found = examine_pair(
            &dims,
            reference.clone(),
            added(&dims, 1, &normal(12, 2), &reference),
        );
        assert_eq!(proven(&found), Some("offset"));
        assert_eq!(found.found[0].explanation.details.json()["axis"], 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_vector_along_the_last_axis_of_any_shape_is_found(batch in 1usize..4, rows in 8usize..20, columns in 2usize..40, seed in 0u64..1000) {
            let dims = [batch, rows, columns];
            let reference = normal(dims.iter().product(), seed);
            let candidate = added(&dims, 2, &normal(columns, seed + 1), &reference);
            let found = examine_noisy(&dims, reference, candidate);
            prop_assert_eq!(proven(&found), Some("offset"));
        }
    }
}
