//! Off by so many positions along one axis, or in the flat buffer: rolled around, or moved with zeros, with the edge repeated, or with
//! something new at the end that was left empty.

use super::near::{ENOUGH_BITS, Probe};
use crate::{Case, Class, Examined, Explanation, Hypothesis, array::Axis, case::Predicted};
use twinscope_report::{
    CauseKind,
    facts::{self, End},
};

#[derive(Debug)]
pub(super) struct Shifted;

/// Shifts of a flat buffer that are tried, either way.
const FLAT: usize = 256;
/// Shifts along an axis that are tried, either way.
const LONGEST: usize = 4096;

impl Hypothesis for Shifted {
    fn name(&self) -> &'static str {
        "shifted"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let probe = Probe::new(case);
        if probe.evidence() < ENOUGH_BITS {
            return Err("too few values differ to tell a shift".into());
        }
        let found = case
            .axes()
            .find_map(|axis| along(case, &probe, Axis::of(case.dims, axis), LONGEST, Some(axis)));
        let flat = || {
            let elements = case.reference.len();
            let whole = Axis {
                outside: 1,
                along: elements,
                inside: 1,
            };
            (case.axes().count() > 1)
                .then(|| along(case, &probe, whole, FLAT, None))
                .flatten()
        };
        found
            .or_else(flat)
            .map(|found| vec![found])
            .ok_or_else(|| "no shift along an axis makes it the candidate".into())
    }
}

fn along(
    case: &Case<'_>,
    probe: &Probe<'_>,
    axis: Axis,
    most: usize,
    number: Option<usize>,
) -> Option<Explanation> {
    let length = axis.along;
    // Beyond half of it, what is left could be anything; a roll further than that is a roll the other way.
    let reach = (length / 2).min(most);
    let by = |k: isize, at: usize| -> Option<usize> {
        let i = axis
            .index(at)
            .checked_add_signed(-k)
            .filter(|i| *i < length)?;
        Some((at as isize + (i as isize - axis.index(at) as isize) * axis.inside as isize) as usize)
    };
    let shift = (1..=reach as isize).flat_map(|k| [k, -k]).find(|k| {
        probe.accepts(|at| by(*k, at).map_or(case.candidate[at], |from| case.reference[from]))
            && overlap_agrees(case, probe, axis, *k)
    })?;
    let end = [End::Wrapped, End::Zero, End::Edge]
        .into_iter()
        .find(|end| {
            let edge = outside(case, axis, shift, 64);
            !edge.is_empty()
                && edge
                    .iter()
                    .all(|at| probe.same(*at, filled(case, axis, shift, *at, *end)))
        });
    let end = end.unwrap_or(End::New);
    // What was moved must be far more than what is not: one of two rows that holds the other's values is a copy, no shift.
    if end != End::Wrapped && shift.unsigned_abs() * 4 > length {
        return None;
    }
    // Weights and heads that are rolled are in another order, which has a name of its own; tokens are shifted.
    let heads = case.dims.len() == 4 && number == Some(1) && case.dims[1] < case.dims[2];
    if end == End::Wrapped && (heads || case.scene.entries()[case.pair].parameter) {
        return None;
    }
    let predicted = (0..case.reference.len())
        .map(|at| {
            by(shift, at).map_or_else(
                || filled(case, axis, shift, at, end),
                |from| case.reference[from],
            )
        })
        .collect();
    Some(Explanation {
        kind: CauseKind::Shifted,
        text: said(number, shift, end),
        details: facts::Shifted::Moved {
            axis: number,
            amount: shift,
            end,
        }
        .into(),
        class: Class::Mechanism,
        freedom: if end == End::New { 2 } else { 1 },
        predicted: Predicted::Values(predicted),
    })
}

/// Some elements that the shift leaves without a source.
fn outside(case: &Case<'_>, axis: Axis, shift: isize, most: usize) -> Vec<usize> {
    let amount = shift.unsigned_abs();
    let indices = if shift > 0 {
        0..amount
    } else {
        axis.along - amount..axis.along
    };
    let slices = axis.outside * axis.inside;
    let step = (slices * amount / most).max(1);
    let all = indices
        .flat_map(|i| (0..slices).map(move |s| axis.at(s / axis.inside, i, s % axis.inside)));
    all.step_by(step)
        .filter(|at| *at < case.reference.len())
        .collect()
}

/// The overlap must itself be evidence: enough of it, with values that vary along the axis.
fn overlap_agrees(case: &Case<'_>, probe: &Probe<'_>, axis: Axis, shift: isize) -> bool {
    let elements = case.reference.len();
    let step = (elements / 512).max(1) | 1;
    let (mut seen, mut right, mut told) = (0usize, 0usize, 0usize);
    for at in (0..elements).step_by(step) {
        let i = axis.index(at);
        let Some(from) = i
            .checked_add_signed(-shift)
            .filter(|from| *from < axis.along)
        else {
            continue;
        };
        let from = (at as isize + (from as isize - i as isize) * axis.inside as isize) as usize;
        seen += 1;
        if probe.same(at, case.reference[from]) {
            right += 1;
            told += usize::from(!probe.same(at, case.reference[at]));
        }
    }
    right * 8 >= seen * 7 && told as f64 * probe.bits_per_element() >= ENOUGH_BITS
}

fn filled(case: &Case<'_>, axis: Axis, shift: isize, at: usize, end: End) -> f64 {
    let i = axis.index(at) as isize;
    let of =
        |index: isize| case.reference[(at as isize + (index - i) * axis.inside as isize) as usize];
    match end {
        End::Wrapped => of((i - shift).rem_euclid(axis.along as isize)),
        End::Zero => 0.0,
        End::Edge => of(if shift > 0 {
            0
        } else {
            axis.along as isize - 1
        }),
        End::New => case.candidate[at],
    }
}

fn said(axis: Option<usize>, shift: isize, end: End) -> String {
    let place = axis.map_or_else(
        || "its flat buffer".to_owned(),
        |axis| format!("dim {axis}"),
    );
    let (amount, way) = (
        shift.unsigned_abs(),
        if shift > 0 { "later" } else { "earlier" },
    );
    let rest = match end {
        End::Wrapped => "rolled around",
        End::Zero => "the rest is zero",
        End::Edge => "the edge repeated",
        End::New => "the rest is new",
    };
    let positions = if amount == 1 { "position" } else { "positions" };
    format!("candidate = reference shifted along {place} by {amount} {positions} ({way}; {rest})")
}

#[cfg(test)]
mod tests {
    use crate::{
        places::testing::bf16_noise,
        testing::{Recorded, examine_bf16, examine_pair, normal, proven},
    };
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    fn rolled(x: &[f64], dims: [usize; 3], amount: usize) -> Vec<f64> {
        let [_, s, d] = dims;
        (0..x.len())
            .map(|at| x[at / (s * d) * (s * d) + (at / d % s + s - amount) % s * d + at % d])
            .collect()
    }

    #[test]
    fn tokens_rolled_by_one_are_shifted() {
        let x = normal(2 * 11 * 48, 1);
        let found = examine_pair(&[2, 11, 48], x.clone(), rolled(&x, [2, 11, 48], 1));
        assert_eq!(proven(&found), Some("shifted"));
        let details = &found.found[0].explanation.details.json();
        assert_eq!(
            (&details["axis"], &details["amount"], &details["end"]),
            (&1.into(), &1.into(), &"wrapped".into())
        );
    }

    #[test]
    fn also_under_the_noise_of_bf16() {
        let x = normal(2 * 11 * 48, 2);
        let candidate = bf16_noise(&rolled(&x, [2, 11, 48], 10), 2e-3, 3);
        let run = [Recorded {
            name: "x",
            dims: vec![2, 11, 48],
            reference: x,
            candidate,
        }];
        let found = examine_bf16(&run, "x");
        assert_eq!(proven(&found), Some("shifted"));
        assert_eq!(found.found[0].explanation.details.json()["amount"], -1);
    }

    #[test]
    fn zeros_and_new_values_at_the_end_are_told_apart() {
        let x = normal(20 * 8, 4);
        for (first, end) in [
            (vec![0.0; 16], "zero"),
            (normal(16, 9), "new"),
            (x[..8].repeat(2), "edge"),
        ] {
            let candidate = [&first[..], &x[..18 * 8]].concat();
            let found = examine_pair(&[20, 8], x.clone(), candidate);
            assert_eq!(proven(&found), Some("shifted"), "{end}");
            let details = &found.found[0].explanation.details.json();
            assert_eq!(
                (&details["amount"], &details["end"]),
                (&2.into(), &end.into())
            );
        }
    }

    #[test]
    fn one_of_two_rows_that_holds_the_other_is_a_copy() {
        let x = normal(2 * 40, 5);
        let candidate = [&x[..40], &x[..40]].concat();
        assert!(
            examine_pair(&[2, 40], x, candidate)
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Shifted)
        );
    }

    #[test]
    fn unrelated_and_constant_values_are_not() {
        for (r, c) in [
            (normal(160, 1), normal(160, 2)),
            (vec![1.0; 160], vec![2.0; 160]),
        ] {
            let found = examine_pair(&[20, 8], r, c);
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::Shifted)
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_roll_of_any_length_is_found(s in 3usize..20, d in 1usize..9, b in 1usize..4, amount in 1usize..19, seed in 0u64..1000) {
            let amount = amount % s;
            prop_assume!(amount > 0 && 2 * amount != s && b * s * d > 16);
            let x = normal(b * s * d, seed);
            let found = examine_pair(&[b, s, d], x.clone(), rolled(&x, [b, s, d], amount));
            prop_assert_eq!(proven(&found), Some("shifted"));
        }
    }
}
