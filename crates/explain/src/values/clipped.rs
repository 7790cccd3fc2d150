//! Values cut off at a bound: a clamp, the range of a small dtype. The cut side has a plateau at the bound, exactly; where the other side is
//! within the bounds, both agree.

use super::sampling::{Near, sample, share};
use crate::{Case, Class, Examined, Explanation, Hypothesis, case::Predicted, constants::short};
use twinscope_report::{CauseKind, Details, facts};
use twinscope_tensor::Side;

#[derive(Debug)]
pub(super) struct Clipped;

/// Bounds that people and dtypes have, with their names.
const USUAL: [(f64, &str); 5] = [
    (65504.0, "the largest f16"),
    (57344.0, "the largest f8_e5m2"),
    (448.0, "the largest f8_e4m3fn"),
    (240.0, "the largest f8_e4m3fnuz"),
    (6.0, "relu6"),
];

/// A plateau has at least so many values, unless its bound has a name.
const LEAST_AT_BOUND: usize = 3;

impl Hypothesis for Clipped {
    fn name(&self) -> &'static str {
        "clipped"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        if let Some(bounds) = Bounds::of(case.candidate, case.reference) {
            return candidate_clipped(case, bounds);
        }
        match Bounds::of(case.reference, case.candidate) {
            Some(bounds) => reference_clipped(case, bounds),
            None => Err("no plateau at the largest or smallest value".into()),
        }
    }
}

/// Where the plateaus are, and how many values are on each.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: Option<f64>,
    high: Option<f64>,
    at_bound: usize,
}

impl Bounds {
    /// The bounds of a side that is cut, beside the whole one.
    fn of(cut: &[f64], whole: &[f64]) -> Option<Self> {
        let finite = || cut.iter().filter(|value| value.is_finite());
        let high = finite().copied().fold(f64::NEG_INFINITY, f64::max);
        let low = finite().copied().fold(f64::INFINITY, f64::min);
        let (mut at_high, mut at_low) = (0usize, 0usize);
        for (value, whole) in cut.iter().zip(whole) {
            at_high += usize::from(*value == high && *whole > high);
            at_low += usize::from(*value == low && *whole < low);
        }
        let plateau = |bound: f64, count: usize| {
            count >= LEAST_AT_BOUND || (count > 0 && name(bound).is_some())
        };
        // The other end of a symmetric clamp needs only one value.
        let symmetric = high == -low && at_high + at_low >= LEAST_AT_BOUND;
        let at = |bound: f64, count: usize| {
            high > low && (plateau(bound, count) || (symmetric && count > 0))
        };
        let (high, low) = (
            at(high, at_high).then_some(high),
            at(low, at_low).then_some(low),
        );
        // A floor of zero and no ceiling is relu, which is a function.
        if (high.is_none() && low.is_none()) || (high.is_none() && low == Some(0.0)) {
            return None;
        }
        let at_bound = high.map_or(0, |_| at_high) + low.map_or(0, |_| at_low);
        Some(Self {
            low,
            high,
            at_bound,
        })
    }

    fn clip(self, value: f64) -> f64 {
        value.clamp(
            self.low.unwrap_or(f64::NEG_INFINITY),
            self.high.unwrap_or(f64::INFINITY),
        )
    }

    fn said(self) -> String {
        let (low, high) = (self.low.map(short), self.high.map(short));
        let range = match (self.low, self.high) {
            (Some(a), Some(b)) if a == -b => format!("to ±{}", short(b)),
            (Some(_), Some(_)) => format!(
                "to {} .. {}",
                low.unwrap_or_default(),
                high.unwrap_or_default()
            ),
            (None, _) => format!("at {} from above", high.unwrap_or_default()),
            (_, None) => format!("at {} from below", low.unwrap_or_default()),
        };
        match [self.high, self.low].into_iter().flatten().find_map(name) {
            Some(name) => format!("{range} ({name})"),
            None => range,
        }
    }

    fn details(self, side: Side, count: usize) -> Details {
        let constant = [self.high, self.low].into_iter().flatten().find_map(name);
        facts::Clipped {
            side,
            bounds: [self.low, self.high],
            constant: constant.map(str::to_owned),
            at_bound: self.at_bound,
            share: self.at_bound as f64 / count as f64,
        }
        .into()
    }
}

fn name(bound: f64) -> Option<&'static str> {
    // Recorded in bf16 the bound is rounded.
    USUAL
        .iter()
        .find(|(usual, _)| (bound.abs() / usual - 1.0).abs() < 1.0 / 256.0)
        .map(|(_, name)| *name)
}

fn candidate_clipped(case: &Case<'_>, bounds: Bounds) -> Examined {
    let flats = sample(case, 1 << 13);
    let near = Near::of(case);
    let agreeing = flats
        .iter()
        .filter(|flat| near.accepts(bounds.clip(case.reference[**flat]), case.candidate[**flat]))
        .count();
    if 2 * agreeing < flats.len() {
        return Err("a plateau, but the values beside it differ as well".into());
    }
    let predicted = case.reference.iter().map(|r| bounds.clip(*r)).collect();
    Ok(vec![Explanation {
        kind: CauseKind::Clipped,
        text: format!(
            "candidate = reference clipped {}, {} values",
            bounds.said(),
            bounds.at_bound
        ),
        details: bounds.details(Side::Candidate, case.reference.len()),
        class: Class::Mechanism,
        freedom: usize::from(bounds.low.is_some()) + usize::from(bounds.high.is_some()),
        predicted: Predicted::Values(predicted),
    }])
}

/// The candidate's values beyond the bound are nowhere else to be read: that they are beyond is what can be checked.
fn reference_clipped(case: &Case<'_>, bounds: Bounds) -> Examined {
    let near = Near::of(case);
    let agrees = |(r, c): (&f64, &f64)| near.accepts(*r, bounds.clip(*c)) || (r == c);
    let wrong = case
        .reference
        .iter()
        .zip(case.candidate)
        .filter(|pair| !agrees(*pair))
        .count();
    // Of the squares of the difference: a few values at the bound say nothing of what differs everywhere, be it within the noise.
    let (mut beside, mut whole) = (0.0, 0.0);
    for (r, c) in case
        .reference
        .iter()
        .zip(case.candidate)
        .filter(|(r, c)| r.is_finite() && c.is_finite())
    {
        beside += (r - bounds.clip(*c)) * (r - bounds.clip(*c));
        whole += (r - c) * (r - c);
    }
    let explained = share(beside, whole);
    if explained < 0.5 {
        return Err("a plateau in the reference, but the values beside it differ as well".into());
    }
    Ok(vec![Explanation {
        kind: CauseKind::Clipped,
        text: format!(
            "the reference is clipped {}, the candidate is not, {} values",
            bounds.said(),
            bounds.at_bound
        ),
        details: bounds.details(Side::Reference, case.reference.len()),
        class: Class::Mechanism,
        freedom: usize::from(bounds.low.is_some()) + usize::from(bounds.high.is_some()),
        predicted: Predicted::Share {
            explained,
            proven: wrong == 0,
        },
    }])
}

#[cfg(test)]
mod tests {
    use crate::testing::{examine_noisy, examine_pair, normal, proven};
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    #[test]
    fn a_few_values_at_a_bound_do_not_explain_what_differs_everywhere() {
        // The reference happens to have its smallest value five times; the candidate is noisy all over.
        let mut reference: Vec<f64> = normal(1056, 1).iter().map(|r| r.max(-1.5)).collect();
        let mut low = 0;
        reference.iter_mut().filter(|r| **r == -1.5).for_each(|r| {
            low += 1;
            *r += if low > 5 { 0.1 } else { 0.0 };
        });
        let noise = normal(1056, 2);
        let candidate = reference
            .iter()
            .zip(noise)
            .map(|(r, noise)| if *r == -1.5 { -1.51 } else { r + 0.02 * noise })
            .collect();
        let found = examine_noisy(&[22, 48], reference, candidate);
        assert_ne!(proven(&found), Some("clipped"));
    }

    #[test]
    fn a_clamp_is_found_with_its_bounds() {
        let reference = normal(1056, 1);
        let candidate = reference.iter().map(|r| r.clamp(-0.5, 0.5)).collect();
        let found = examine_pair(&[2, 11, 48], reference, candidate);
        assert_eq!(proven(&found), Some("clipped"));
        assert!(
            found.found[0]
                .explanation
                .text
                .starts_with("candidate = reference clipped to ±0.5, ")
        );
    }

    #[test]
    fn the_range_of_a_dtype_is_named_from_one_value() {
        let mut reference = normal(200, 1);
        (reference[3], reference[77]) = (1e5, 512.0);
        let candidate: Vec<f64> = reference.iter().map(|r| r.min(65504.0)).collect();
        let found = examine_pair(&[10, 20], reference, candidate);
        assert_eq!(proven(&found), Some("clipped"));
        assert_eq!(
            found.found[0].explanation.details.json()["constant"],
            "the largest f16"
        );
    }

    #[test]
    fn the_reference_may_be_the_clipped_one() {
        let candidate = normal(1056, 1);
        let reference = candidate.iter().map(|r| r.clamp(-1.5, 1.0)).collect();
        let found = examine_pair(&[22, 48], reference, candidate);
        assert_eq!(proven(&found), Some("clipped"));
        assert_eq!(
            found.found[0].explanation.details.json()["side"],
            "reference"
        );
    }

    #[test]
    fn other_functions_and_unrelated_values_are_not_clipped() {
        let reference = normal(1056, 1);
        for candidate in [
            normal(1056, 2),
            reference.iter().map(|r| r.max(0.0)).collect(),
            reference.iter().map(|r| 2.0 * (r / 2.0).tanh()).collect(),
            reference.iter().map(|r| r * 0.5).collect(),
        ] {
            let found = examine_pair(&[22, 48], reference.clone(), candidate);
            assert!(
                found.found.iter().all(
                    |found| found.explanation.kind != CauseKind::Clipped || !found.score.proven
                )
            );
        }
    }

    #[test]
    fn the_other_end_of_a_symmetric_clamp_needs_one_value() {
        let mut reference = normal(1056, 1);
        (reference[3], reference[77], reference[500], reference[900]) = (9.0, 8.0, 7.5, -8.5);
        let candidate = reference.iter().map(|r| r.clamp(-5.0, 5.0)).collect();
        let found = examine_pair(&[22, 48], reference, candidate);
        assert_eq!(proven(&found), Some("clipped"));
        assert!(
            found.found[0].explanation.text.contains("±5"),
            "{}",
            found.found[0].explanation.text
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn one_and_two_sided_clamps_are_found(count in 100usize..600, seed in 0u64..1000, bound in 0.3f64..1.2, two: bool) {
            let reference = normal(count, seed);
            let candidate: Vec<f64> = reference.iter().map(|r| r.clamp(if two { -0.7 * bound } else { -100.0 }, bound)).collect();
            prop_assert_eq!(proven(&examine_pair(&[count], reference, candidate)), Some("clipped"));
        }

        #[test]
        fn clamps_are_found_in_bf16(count in 100usize..600, seed in 0u64..1000) {
            let reference = normal(count, seed);
            let candidate: Vec<f64> = reference.iter().map(|r| r.min(0.75)).collect();
            // The clamp comes after the noise: its plateau is exact.
            let noisy: Vec<f64> = candidate.iter().zip(normal(count, seed + 1)).map(|(c, n)| if *c == 0.75 { 0.75 } else { (c * (1.0 + 0.002 * n)).min(0.75) }).collect();
            prop_assert_eq!(proven(&crate::testing::examine_pair_bf16(&[count], reference, noisy)), Some("clipped"));
        }
    }

    #[test]
    fn noise_on_a_plateau_leaves_no_plateau() {
        let reference = normal(1056, 1);
        let candidate = reference.iter().map(|r| r.clamp(-0.5, 0.5)).collect();
        // Clamped, then computed on: the bounds can no longer be read, and nothing else is claimed either.
        let found = examine_noisy(&[22, 48], reference, candidate);
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind == CauseKind::Clipped || !found.score.proven)
        );
    }
}
