//! The runs were given different inputs: other tokens, an extra BOS, positions that start elsewhere.
//!
//! Whole numbers that come before anything computed are inputs. Where no ids are recorded, the first thing computed tells: its rows are the
//! reference's at a shift, or other rows of the recorded embedding table.

use super::near::{ENOUGH_BITS, Probe, close};
use crate::{Case, Class, Examined, Explanation, Hypothesis, array::Axis, case::Predicted};
use std::collections::HashMap;
use twinscope_report::{CauseKind, facts};
use twinscope_tensor::{DType, Kind};

#[derive(Debug)]
pub(super) struct InputDiffers;

/// Shifts that are tried, either way.
const LONGEST: usize = 512;

impl Hypothesis for InputDiffers {
    fn name(&self) -> &'static str {
        "input_differs"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let entries = case.scene.entries();
        let before = &entries[..case.pair];
        let said = entries[case.pair].inputs.as_ref();
        if !whole(entries[case.pair].dtypes) && entries.len() < 2 {
            return Err("one tensor alone is no run that begins with it".into());
        }
        if said.is_some_and(|inputs| !inputs.is_empty())
            || before
                .iter()
                .any(|entry| !entry.parameter && !whole(entry.dtypes))
        {
            return Err("it is not among what the run begins with".into());
        }
        if entries[case.pair].parameter {
            return Err("it is a parameter".into());
        }
        if whole(case.dtypes) {
            return Ok(vec![ids(case)]);
        }
        if before
            .iter()
            .any(|entry| !entry.parameter && entry.verdict.agrees())
        {
            return Err("the recorded inputs agree".into());
        }
        shifted_rows(case)
            .or_else(|| rows_of_table(case))
            .map(|found| vec![found])
            .ok_or_else(|| "its rows are no other tokens".into())
    }
}

fn whole(dtypes: [DType; 2]) -> bool {
    dtypes
        .iter()
        .all(|dtype| matches!(dtype.kind(), Kind::Int | Kind::Bool))
}

/// Whole numbers: how they differ.
fn ids(case: &Case<'_>) -> Explanation {
    let name = &case.scene.entries()[case.pair].name;
    let differing: Vec<usize> = (0..case.reference.len())
        .filter(|at| case.reference[*at] != case.candidate[*at])
        .collect();
    let shift = shift(case);
    let added = match shift {
        Some(_) => None,
        None => constant(case),
    };
    // Whole numbers that no double holds apart are equal here; the pair differs all the same.
    let count = match differing.len() {
        0 => format!("values of `{name}` beyond 2^53 differ"),
        some => format!(
            "{some} of {} values of `{name}` differ",
            case.reference.len()
        ),
    };
    let text = if let Some(shift) = shift {
        let (amount, way) = (
            shift.unsigned_abs(),
            if shift > 0 { "later" } else { "earlier" },
        );
        let extra = if shift > 0 {
            ", as with an extra BOS"
        } else {
            ", as with a missing BOS"
        };
        format!("the runs were given different inputs: `{name}` is shifted {amount} {way}{extra}")
    } else if let Some(added) = added {
        format!(
            "the runs were given different inputs: `{name}` is {added} more everywhere in the candidate"
        )
    } else {
        let first = differing
            .first()
            .map(|at| format!(", the first at {:?}", unravelled(case.dims, *at)))
            .unwrap_or_default();
        format!("the runs were given different inputs: {count}{first}")
    };
    Explanation {
        kind: CauseKind::InputDiffers,
        text,
        details: facts::InputDiffers::Ids {
            differing: (!differing.is_empty()).then_some(differing.len()),
            positions: differing
                .iter()
                .take(32)
                .map(|at| unravelled(case.dims, *at))
                .collect(),
            shift,
            added,
        }
        .into(),
        class: Class::Capture,
        freedom: 0,
        predicted: Predicted::Share {
            explained: 1.0,
            proven: true,
        },
    }
}

fn unravelled(dims: &[usize], mut at: usize) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for axis in (0..dims.len()).rev() {
        index[axis] = at % dims[axis];
        at /= dims[axis];
    }
    index
}

/// The shift along the last axis at which all that overlaps is equal.
fn shift(case: &Case<'_>) -> Option<isize> {
    let length = *case.dims.last()?;
    let from = |at: usize, shift: isize| {
        let from = (at % length)
            .checked_add_signed(-shift)
            .filter(|from| *from < length)?;
        Some(at - at % length + from)
    };
    let equal = |shift: isize| {
        let overlap = (0..case.candidate.len()).filter_map(|at| Some((at, from(at, shift)?)));
        overlap
            .clone()
            .all(|(at, from)| case.reference[from] == case.candidate[at])
            && overlap
                .filter(|(at, _)| case.reference[*at] != case.candidate[*at])
                .nth(2)
                .is_some()
    };
    (1..=(length / 2).min(LONGEST) as isize)
        .flat_map(|k| [k, -k])
        .find(|k| equal(*k))
}

fn constant(case: &Case<'_>) -> Option<f64> {
    let added = case.candidate.first()? - case.reference.first()?;
    let same = case
        .candidate
        .iter()
        .zip(case.reference)
        .all(|(c, r)| c - r == added);
    (same && case.candidate.len() > 1 && added != 0.0).then_some(added)
}

/// Rows of the first thing computed are the reference's some tokens away.
fn shifted_rows(case: &Case<'_>) -> Option<Explanation> {
    let probe = Probe::new(case);
    if case.dims.len() < 2 || probe.evidence() < ENOUGH_BITS {
        return None;
    }
    let axis = Axis::of(case.dims, case.dims.len() - 2);
    let from = |at: usize, shift: isize| -> Option<usize> {
        let i = axis.index(at);
        let from = i
            .checked_add_signed(-shift)
            .filter(|from| *from < axis.along)?;
        Some(at + from * axis.inside - i * axis.inside)
    };
    let reach = (axis.along / 4).min(LONGEST) as isize;
    let shift = (1..=reach).flat_map(|k| [k, -k]).find(|k| {
        probe.accepts(|at| from(at, *k).map_or(case.candidate[at], |from| case.reference[from]))
            && (0..case.candidate.len())
                .filter_map(|at| from(at, *k).map(|from| (at, from)))
                .all(|(at, from)| probe.same(at, case.reference[from]))
    })?;
    // Rolled around it is one tensor's fault, not the input's: new tokens come in.
    let wraps = (0..case.candidate.len())
        .filter(|at| from(*at, shift).is_none())
        .all(|at| {
            let i = axis.index(at) as isize;
            let around = (i - shift).rem_euclid(axis.along as isize);
            probe.same(
                at,
                case.reference[(at as isize + (around - i) * axis.inside as isize) as usize],
            )
        });
    if wraps {
        return None;
    }
    let (amount, way) = (
        shift.unsigned_abs(),
        if shift > 0 { "later" } else { "earlier" },
    );
    let predicted = (0..case.candidate.len())
        .map(|at| from(at, shift).map_or(case.candidate[at], |from| case.reference[from]))
        .collect();
    Some(Explanation {
        kind: CauseKind::InputDiffers,
        text: format!(
            "the runs were given different inputs: the candidate's tokens come {amount} {way}, as with an extra or missing BOS"
        ),
        details: facts::InputDiffers::Rows {
            differing: None,
            positions: None,
            shift: Some(shift),
        }
        .into(),
        class: Class::Capture,
        freedom: 1,
        predicted: Predicted::Values(predicted),
    })
}

/// Where rows differ, both sides' are rows of a recorded table: other tokens were looked up.
fn rows_of_table(case: &Case<'_>) -> Option<Explanation> {
    let width = *case.dims.last()?;
    let entries = case.scene.entries();
    let probe = Probe::new(case);
    let tables = (0..entries.len()).filter(|at| {
        entries[*at].parameter && entries[*at].dims.len() == 2 && entries[*at].dims[1] == width
    });
    for table in tables {
        let Some(loaded) = case.scene.load(table) else {
            continue;
        };
        let found = |values: &[f64], table: &[f64]| {
            look_up(values, table, width, probe.rms(), probe.tolerance())
        };
        let (Some(r), Some(c)) = (
            found(case.reference, &loaded.reference),
            found(case.candidate, &loaded.candidate),
        ) else {
            continue;
        };
        let differing: Vec<usize> = (0..r.len()).filter(|row| r[*row] != c[*row]).collect();
        if differing.is_empty() || width < 2 {
            continue;
        }
        let predicted = c
            .iter()
            .flat_map(|row| loaded.candidate[row * width..row * width + width].to_vec())
            .collect();
        let first = differing[0];
        return Some(Explanation {
            kind: CauseKind::InputDiffers,
            text: format!(
                "the runs were given different inputs: {} of {} tokens are other rows of `{}`, the first is {} instead of {}",
                differing.len(),
                r.len(),
                entries[table].name,
                c[first],
                r[first]
            ),
            details: facts::InputDiffers::Rows {
                differing: Some(differing.len()),
                positions: Some(differing.iter().take(32).copied().collect()),
                shift: None,
            }
            .into(),
            class: Class::Capture,
            freedom: differing.len(),
            predicted: Predicted::Values(predicted),
        });
    }
    None
}

/// The row of a table that each row is, if all are.
fn look_up(
    values: &[f64],
    table: &[f64],
    width: usize,
    rms: f64,
    tolerance: f64,
) -> Option<Vec<usize>> {
    // By the first value, in steps of what rounding may move it.
    let step = (2.0 * tolerance * rms).max(f64::MIN_POSITIVE);
    let key = |value: f64| (value / step).round() as i64;
    let mut by_first: HashMap<i64, Vec<usize>> = HashMap::new();
    for (row, values) in table.chunks_exact(width).enumerate() {
        by_first.entry(key(values[0])).or_default().push(row);
    }
    values
        .chunks_exact(width)
        .map(|row| {
            let near = (-1..=1)
                .filter_map(|by| by_first.get(&(key(row[0]) + by)))
                .flatten();
            near.copied().find(|at| {
                table[at * width..at * width + width]
                    .iter()
                    .zip(row)
                    .all(|(t, v)| close(*t, *v, rms, tolerance))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, examine_as, examine_in, normal, proven};
    use twinscope_report::CauseKind;
    use twinscope_tensor::DType;

    fn ids(
        dims: Vec<usize>,
        reference: Vec<f64>,
        candidate: Vec<f64>,
    ) -> (Option<&'static str>, serde_json::Value) {
        let run = [Recorded {
            name: "input_ids",
            dims,
            reference,
            candidate,
        }];
        let found = examine_as(DType::I64, &run, "input_ids").0;
        (
            proven(&found),
            found
                .found
                .first()
                .map(|found| found.explanation.details.json())
                .unwrap_or_default(),
        )
    }

    #[test]
    fn one_other_token_is_another_input() {
        let reference: Vec<f64> = (0..22).map(|i| f64::from(i * 37 % 97)).collect();
        let mut candidate = reference.clone();
        candidate[15] = 3.0;
        let (kind, details) = ids(vec![2, 11], reference, candidate);
        assert_eq!(kind, Some("input_differs"));
        assert_eq!(details["positions"], serde_json::json!([[1, 4]]));
        assert_eq!(details["shift"], serde_json::Value::Null);
    }

    #[test]
    fn an_extra_bos_is_a_shift() {
        let reference: Vec<f64> = (0..12).map(|i| f64::from(i * 37 % 97 + 5)).collect();
        let candidate = [&[1.0], &reference[..11]].concat();
        let (kind, details) = ids(vec![1, 12], reference, candidate);
        assert_eq!(
            (kind, &details["shift"]),
            (Some("input_differs"), &1.into())
        );
    }

    #[test]
    fn positions_that_start_elsewhere_are_counted() {
        let (kind, details) = ids(
            vec![8],
            (0..8).map(f64::from).collect(),
            (5..13).map(f64::from).collect(),
        );
        assert_eq!(
            (kind, &details["added"]),
            (Some("input_differs"), &5.0.into())
        );
    }

    #[test]
    fn embeddings_at_a_shift_are_another_input_when_no_ids_are_recorded() {
        let x = normal(12 * 16, 1);
        let candidate = [&normal(16, 2)[..], &x[..11 * 16]].concat();
        let run = [
            Recorded {
                name: "embed",
                dims: vec![1, 12, 16],
                reference: x.clone(),
                candidate: candidate.clone(),
            },
            Recorded {
                name: "later",
                dims: vec![1, 12, 16],
                reference: x,
                candidate,
            },
        ];
        assert_eq!(proven(&examine_in(&run, "embed").0), Some("input_differs"));
        // Further down it is not what the run begins with.
        assert_ne!(proven(&examine_in(&run, "later").0), Some("input_differs"));
    }

    #[test]
    fn rows_of_the_embedding_table_are_other_tokens() {
        let table = normal(40 * 16, 3);
        let rows = |ids: &[usize]| {
            ids.iter()
                .flat_map(|id| table[id * 16..id * 16 + 16].to_vec())
                .collect::<Vec<_>>()
        };
        let run = [
            Recorded {
                name: "model.embed_tokens.weight",
                dims: vec![40, 16],
                reference: table.clone(),
                candidate: table.clone(),
            },
            Recorded {
                name: "embed",
                dims: vec![6, 16],
                reference: rows(&[1, 2, 3, 4, 5, 6]),
                candidate: rows(&[1, 2, 33, 4, 5, 17]),
            },
        ];
        let (found, report) = examine_in(&run, "embed");
        assert!(report.pairs[0].parameter, "weights are parameters");
        assert_eq!(proven(&found), Some("input_differs"));
        assert_eq!(found.found[0].explanation.details.json()["differing"], 2);
    }

    #[test]
    fn numbers_that_were_computed_are_no_input() {
        let ids = Recorded {
            name: "ids",
            dims: vec![8],
            reference: (0..8).map(f64::from).collect(),
            candidate: vec![1.0; 8],
        };
        let x = Recorded {
            name: "embed",
            dims: vec![8, 4],
            reference: normal(32, 1),
            candidate: normal(32, 1),
        };
        let found = examine_in(&[x, ids], "ids").0;
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::InputDiffers)
        );
    }
}
