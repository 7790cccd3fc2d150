//! A hidden downcast: every value of one side is a number of a coarser dtype, while the other side's are not.
//!
//! That every value lies on a grid on which one in hundreds or thousands would by chance cannot be anything else. What is then checked is
//! the difference: half a step of the grid where the tensor itself was rounded, a few roundings where the op was computed in that dtype.
//! Where it is the reference that lies on the grid, it was recorded in the wrong dtype.

use super::{
    grid::{GRIDS, Grid},
    sampling::{Near, sample},
};
use crate::{Case, Class, Examined, Explanation, Hypothesis, case::Predicted, measures};
use twinscope_report::{
    CauseKind,
    facts::{self, RoundedHow},
};
use twinscope_tensor::Side;

#[derive(Debug)]
pub(super) struct Rounded;

/// So few values may lie on any grid.
const LEAST_VALUES: usize = 12;
/// Zero is on every grid.
const LEAST_NONZERO: usize = 3;
/// Of the other side's values at most this share may lie on the grid too.
const BY_CHANCE: f64 = 0.25;
/// Multiples of the grid's unit roundoff that an op computed in it stays below, in the order of [`twinscope_compare::noise::Measures`].
const OPS: [f64; 4] = [4.0, 4.0, 8.0, 16.0];

impl Hypothesis for Rounded {
    fn name(&self) -> &'static str {
        "rounded"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        if let Some(grid) = lies_on(case, case.candidate, case.reference) {
            return explain(case, grid, Side::Candidate);
        }
        match lies_on(case, case.reference, case.candidate) {
            Some(grid) => explain(case, grid, Side::Reference),
            None => Err("neither side lies on a coarser dtype's grid".into()),
        }
    }
}

/// The coarsest grid that holds one side and not the other; the dtypes that they are recorded in hold more.
fn lies_on(case: &Case<'_>, rounded: &[f64], exact: &[f64]) -> Option<Grid> {
    // Below its smallest number with all digits a dtype is as coarse by itself: there every value lies on some grid.
    let all_digits = case
        .dtypes
        .iter()
        .map(|dtype| twinscope_compare::noise::smallest(*dtype))
        .fold(0.0, f64::max);
    let tells = |flat: &usize| {
        exact[*flat] != 0.0 && (rounded[*flat] == 0.0 || rounded[*flat].abs() >= all_digits)
    };
    let flats: Vec<usize> = sample(case, 1 << 12).into_iter().filter(tells).collect();
    // Beyond 256 all numbers of bf16 are whole ones: there it says nothing that they are.
    let fractions = |flat: &&usize| {
        let steps = case
            .dtypes
            .iter()
            .filter_map(|dtype| twinscope_compare::noise::unit_roundoff(*dtype))
            .map(|unit| 2.0 * unit * rounded[**flat].abs());
        rounded[**flat] != 0.0 && steps.fold(0.0, f64::max) < 0.5
    };
    let tells = |grid: &Grid| {
        grid.unit().is_some() || 2 * flats.iter().filter(fractions).count() >= flats.len()
    };
    GRIDS.into_iter().filter(tells).find(|grid| {
        let by_chance = |exact: &[f64]| {
            flats
                .iter()
                .filter(|flat| grid.holds(exact[**flat]))
                .count() as f64
        };
        case.dtypes.iter().all(|dtype| grid.is_coarser_than(*dtype))
            && (flats.len() >= LEAST_VALUES || by_many_bits(case, *grid, flats.len()))
            && flats.iter().all(|flat| grid.holds(rounded[*flat]))
            && by_chance(exact) <= BY_CHANCE * flats.len() as f64
            && flats.iter().filter(|flat| rounded[**flat] != 0.0).count() >= LEAST_NONZERO
            && rounded
                .iter()
                .all(|value| !value.is_finite() || grid.holds(*value))
    })
}

/// Bits that are zero in all values together: so many are no chance, however few the values are.
const LEAST_BITS: f64 = 40.0;

fn by_many_bits(case: &Case<'_>, grid: Grid, values: usize) -> bool {
    let finest = case
        .dtypes
        .iter()
        .filter_map(|dtype| twinscope_compare::noise::unit_roundoff(*dtype))
        .fold(1.0, f64::max);
    grid.unit()
        .is_some_and(|unit| values as f64 * (unit / finest).log2() >= LEAST_BITS)
}

fn explain(case: &Case<'_>, grid: Grid, side: Side) -> Examined {
    let (rounded, exact) = if side == Side::Candidate {
        (case.candidate, case.reference)
    } else {
        (case.reference, case.candidate)
    };
    let near = Near::of(case);
    // Of the difference, what is beyond half a step and rounding, and beyond one step.
    let (mut beyond, mut whole, mut truncated, mut equal) = (0.0, 0.0, true, 0usize);
    for (rounded, exact) in rounded
        .iter()
        .zip(exact)
        .filter(|(a, b)| a.is_finite() && b.is_finite())
    {
        let (off, step) = ((rounded - exact).abs(), grid.step(*exact));
        let allowed = near.allowed(*exact);
        beyond += if off > 0.5 * step + allowed {
            off * off
        } else {
            0.0
        };
        whole += off * off;
        truncated &= off <= step + allowed && rounded.abs() <= exact.abs() + allowed;
        equal += usize::from(*rounded == grid.round(*exact));
    }
    let share_equal = equal as f64 / rounded.len() as f64;
    let how = match () {
        () if beyond == 0.0 => How::Rounded,
        () if truncated => How::Truncated,
        () if within_ops(case, grid) => How::Computed,
        () => {
            return Err(format!(
                "the {side} lies on the {} grid, but differs by more than that",
                grid.name
            )
            .into());
        }
    };
    if whole == 0.0 {
        return Err("nothing differs but what is not finite".into());
    }
    let capture = side == Side::Reference && how != How::Computed;
    Ok(vec![Explanation {
        kind: CauseKind::Rounded,
        text: how.said(side, grid.name),
        details: facts::Rounded::Grid {
            dtype: grid.name.to_owned(),
            side,
            how: how.fact(),
            bit_equal: share_equal,
        }
        .into(),
        class: if capture {
            Class::Capture
        } else {
            Class::Mechanism
        },
        freedom: 0,
        predicted: Predicted::Share {
            explained: 1.0,
            proven: true,
        },
    }])
}

/// Whether the difference is what an op computed in that dtype makes.
fn within_ops(case: &Case<'_>, grid: Grid) -> bool {
    let Some(unit) = grid.unit() else {
        return false;
    };
    let left = measures(case.dims, case.reference, case.candidate);
    left.iter()
        .zip(OPS)
        .zip(case.noise)
        .all(|((left, multiple), noise)| *left <= multiple * unit + noise)
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    Rounded,
    Truncated,
    Computed,
}

impl How {
    fn fact(self) -> RoundedHow {
        match self {
            Self::Rounded => RoundedHow::Rounded,
            Self::Truncated => RoundedHow::Truncated,
            Self::Computed => RoundedHow::Computed,
        }
    }

    fn said(self, side: Side, dtype: &str) -> String {
        let other = side.other();
        match self {
            Self::Rounded => format!(
                "{side} = {other} rounded to {dtype}: every value of the {side} lies on its grid"
            ),
            Self::Truncated => format!(
                "{side} = {other} cut to {dtype}, towards zero: every value of the {side} lies on its grid"
            ),
            Self::Computed => {
                format!(
                    "the {side} was computed in {dtype}: every value lies on its grid, and it differs by a few of its roundings"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::GRIDS;
    use crate::testing::{
        Recorded, examine_pair, examine_pair_bf16, normal, proven, report_each_side,
    };
    use twinscope_compare::verdict::Verdict;
    use twinscope_report::CauseKind;
    use twinscope_tensor::DType;

    #[test]
    fn what_is_too_small_for_all_digits_of_its_dtype_is_not_in_another_one() {
        // A millionth in f16 has five bits, as many as in bf16 or in eight.
        let reference: Vec<f64> = normal(4096, 1)
            .into_iter()
            .map(|value| f64::from((1e-6 * value) as f32))
            .collect();
        let run = |to: f64| {
            let candidate = reference
                .iter()
                .map(|value| (value * to).round() / to)
                .collect();
            let one = Recorded {
                name: "x",
                dims: vec![64, 64],
                reference: reference.clone(),
                candidate,
            };
            report_each_side(&[([DType::F32, DType::F16], one)])
        };
        let stored = run(2f64.powi(24));
        assert_eq!(
            stored.pairs[0].verdict(),
            Verdict::Rounding,
            "{:?}",
            stored.pairs[0].causes
        );
        let coarser = run(2f64.powi(21));
        assert_eq!(
            coarser.pairs[0].verdict(),
            Verdict::Diverged,
            "in steps eight times as large"
        );
    }
    use proptest::prelude::*;

    #[test]
    fn the_reference_on_a_coarser_grid_was_recorded_wrongly() {
        let candidate = normal(480, 1);
        let reference = candidate.iter().map(|c| GRIDS[5].round(*c)).collect();
        let found = examine_pair(&[10, 48], reference, candidate);
        assert_eq!(proven(&found), Some("rounded"));
        let best = &found.found[0].explanation;
        assert_eq!(
            (best.details.json()["side"].as_str(), best.class),
            (Some("reference"), crate::Class::Capture)
        );
    }

    #[test]
    fn an_op_computed_in_half_precision_lies_on_its_grid() {
        let reference = normal(480, 1);
        let noise = normal(480, 2);
        let candidate = reference
            .iter()
            .zip(noise)
            .map(|(r, n)| GRIDS[6].round(r * (1.0 + 0.0006 * n)))
            .collect();
        let found = examine_pair(&[10, 48], reference, candidate);
        assert_eq!(proven(&found), Some("rounded"));
        assert_eq!(found.found[0].explanation.details.json()["how"], "computed");
        assert_eq!(found.found[0].explanation.details.json()["dtype"], "f16");
    }

    #[test]
    fn cutting_bits_is_told_from_rounding() {
        let reference = normal(480, 1);
        let cut = |r: &f64| (r / GRIDS[5].step(*r)).trunc() * GRIDS[5].step(*r);
        let found = examine_pair(
            &[480],
            reference.clone(),
            reference.iter().map(cut).collect(),
        );
        assert_eq!(proven(&found), Some("rounded"));
        assert_eq!(
            found.found[0].explanation.details.json()["how"],
            "truncated"
        );
    }

    #[test]
    fn a_candidate_recorded_in_bf16_is_not_rounded_to_it_by_a_fault() {
        let reference = normal(480, 1);
        let found = examine_pair_bf16(
            &[10, 48],
            reference.clone(),
            reference.iter().map(|r| r * 1.7).collect(),
        );
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Rounded)
        );
    }

    #[test]
    fn large_numbers_of_bf16_are_whole_and_not_rounded_to_whole_ones() {
        let reference: Vec<f64> = normal(480, 1)
            .iter()
            .map(|r| 16_384.0 + 100.0 * r)
            .collect();
        let candidate: Vec<f64> = reference.iter().map(|r| GRIDS[5].round(*r)).collect();
        let found = examine_pair_bf16(&[10, 48], reference.clone(), candidate);
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Rounded)
        );
        let whole = reference.iter().map(|r| r.round()).collect();
        assert_eq!(
            proven(&examine_pair(&[10, 48], reference, whole)),
            Some("rounded"),
            "of f32 they could be fractions"
        );
    }

    #[test]
    fn other_values_on_a_grid_are_not_explained_by_it() {
        for candidate in [
            normal(480, 2).iter().map(|c| GRIDS[5].round(*c)).collect(),
            vec![0.0; 480],
            normal(480, 2),
        ] {
            let found = examine_pair(&[10, 48], normal(480, 1), candidate);
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::Rounded)
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn rounding_to_every_dtype_is_found(count in 40usize..400, seed in 0u64..1000, which in 0usize..7, scale in 1f64..20.0) {
            let reference: Vec<f64> = normal(count, seed).iter().map(|r| f64::from((r * scale) as f32)).collect();
            let candidate = reference.iter().map(|r| GRIDS[which].round(*r)).collect();
            let found = examine_pair(&[count], reference, candidate);
            prop_assert_eq!(proven(&found), Some("rounded"));
            // The variants of fp8 differ only at their ends.
            let dtype = found.found[0].explanation.details.json()["dtype"].as_str().unwrap().to_owned();
            prop_assert_eq!(dtype.trim_end_matches("uz").trim_end_matches("fn"), GRIDS[which].name.trim_end_matches("uz").trim_end_matches("fn"));
        }
    }
}
