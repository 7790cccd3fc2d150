//! A factor per channel: a norm's weight `w` where `1 + w` belongs, a norm's weight missing, per-channel quantisation scales.
//!
//! Where a parameter with as many values is recorded, the factors say what was done with it.

use super::{
    factors::{Factors, are_channels},
    groups::Groups,
    naming::of,
};
use crate::{
    Case, Class, Examined, Explanation, Hypothesis,
    array::{energy, rms},
    case::Predicted,
    constants::short,
};
use twinscope_report::{
    CauseKind,
    facts::{self, WeightUse},
};

#[derive(Debug)]
pub(super) struct ChannelScale;

/// Of the channels at least this share must have a factor of their own: fewer are a place.
const LEAST_CHANGED: f64 = 0.25;

impl Hypothesis for ChannelScale {
    fn name(&self) -> &'static str {
        "channel_scale"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let more = affine(case);
        match factors(case) {
            Ok(found) => Ok(found.into_iter().chain(more).collect()),
            Err(why) if more.is_empty() => Err(why),
            Err(_) => Ok(more),
        }
    }
}

fn factors(case: &Case<'_>) -> Examined {
    let fit = Factors::fit(
        case,
        |groups| are_channels(case, groups),
        "a factor per channel",
    )?;
    if (fit.changed as f64) < LEAST_CHANGED * fit.groups.count as f64 {
        return Err(format!(
            "only {} channels have a factor",
            of(fit.changed, fit.groups.count)
        )
        .into());
    }
    // Some as they were and the others gone: a place, and what happened there.
    let kept_or_gone =
        |factor: &f64| factor.abs() <= case.noise[2] || (factor - 1.0).abs() <= 2.0 * case.noise[2];
    if fit.factors.iter().all(kept_or_gone) && fit.changed < fit.groups.count {
        return Err("some channels are zero and the others as they were".into());
    }
    let (range, said, axes) = (fit.range(), fit.groups.said(), fit.groups.kept());
    let weight = weight(case, &fit.factors);
    let meaning = match &weight {
        Some(Weight { name, use_ }) => format!(": {}", use_.said(name)),
        None => ", as a norm's weight w for 1 + w, a missing weight, another layer's or another scale per channel would".to_owned(),
    };
    Ok(vec![Explanation {
        kind: CauseKind::ChannelScale,
        text: format!(
            "candidate = reference x one factor per channel ({said}, {} to {}){meaning}",
            short(range[0]),
            short(range[2])
        ),
        details: facts::ChannelScale::Factors {
            axis: axes.last().copied(),
            axes: axes.to_vec(),
            factors: range,
            changed: fit.changed,
            r#use: weight.as_ref().map(|weight| weight.use_.fact()),
            weight: weight.map(|weight| weight.name),
        }
        .into(),
        class: Class::Mechanism,
        freedom: fit.groups.count,
        predicted: Predicted::Values(fit.predicted(case)),
    }])
}

/// Groups with fewer elements say too little for two numbers each.
const LEAST_MEMBERS: usize = 16;
/// Of the channels so many must have changed.
const MOST_CHANGED: f64 = 0.75;
/// Of the difference at most this much may be left.
const LEFT: f64 = 0.1;

/// A number added a channel, and a factor: one a channel, as in a batch norm with other statistics, or the same for all, as of a weight that was
/// scaled while its bias was not.
fn affine(case: &Case<'_>) -> Vec<Explanation> {
    let Some(last) = case.dims.len().checked_sub(1) else {
        return Vec::new();
    };
    let axis = if case.dims.len() >= 4 { 1 } else { last };
    let groups = Groups::of(case.dims, &[axis]);
    if groups.count < 2 || groups.size < LEAST_MEMBERS || !case.is_finite() {
        return Vec::new();
    }
    // Count, and the sums of r, c, rr and rc, of the elements that fit.
    let mut sums = vec![[0.0; 5]; groups.count];
    groups.visit(|flat, group| {
        let (r, c) = (case.reference[flat], case.candidate[flat]);
        if case.fits(flat) {
            sums[group]
                .iter_mut()
                .zip([1.0, r, c, r * r, r * c])
                .for_each(|(sum, one)| *sum += one);
        }
    });
    let about = |[n, r, c, rr, rc]: &[f64; 5]| [rc - r * c / n, rr - r * r / n];
    let enough = |sums: &[f64; 5]| sums[0] >= 4.0 && about(sums)[1] > 0.0;
    let each = sums
        .iter()
        .map(|sums| enough(sums).then(|| with_factor(sums, about(sums)[0] / about(sums)[1])));
    let alone = each
        .collect::<Option<Vec<[f64; 2]>>>()
        .and_then(|fitted| a_factor_each(case, &groups, axis, &fitted));
    // Channels that are constant have no factor of their own.
    let [rc, rr] = sums
        .iter()
        .filter(|sums| enough(sums))
        .map(about)
        .fold([0.0; 2], |[rc, rr], one| [rc + one[0], rr + one[1]]);
    let shared = (rr > 0.0 && sums.iter().all(|sums| sums[0] >= 1.0)).then(|| {
        let fitted: Vec<[f64; 2]> = sums.iter().map(|sums| with_factor(sums, rc / rr)).collect();
        one_factor(case, &groups, axis, &fitted)
    });
    shared.flatten().into_iter().chain(alone).collect()
}

/// Of the squared difference, what a prediction leaves.
fn left_share(case: &Case<'_>, predicted: &[f64]) -> f64 {
    let left: f64 = predicted
        .iter()
        .zip(case.candidate)
        .map(|(p, c)| (c - p) * (c - p))
        .sum();
    left / energy(&case.difference())
}

/// A factor and the number that goes with it.
fn with_factor([n, r, c, ..]: &[f64; 5], factor: f64) -> [f64; 2] {
    [factor, (c - factor * r) / n]
}

/// One factor for all channels and a number for each. Where the factor is 1 it is an offset.
fn one_factor(
    case: &Case<'_>,
    groups: &Groups,
    axis: usize,
    fitted: &[[f64; 2]],
) -> Option<Explanation> {
    let factor = fitted[0][0];
    if (factor - 1.0).abs() <= 2.0 * case.noise[0] {
        return None;
    }
    let mut predicted = case.reference.to_vec();
    groups.visit(|flat, group| predicted[flat] = factor * predicted[flat] + fitted[group][1]);
    if left_share(case, &predicted) > LEFT {
        return None;
    }
    let numbers = fitted.iter().map(|fit| fit[1]);
    let offsets = [
        numbers.clone().fold(f64::INFINITY, f64::min),
        numbers.fold(f64::NEG_INFINITY, f64::max),
    ];
    Some(Explanation {
        kind: CauseKind::Scale,
        text: format!(
            "candidate = reference x {} + a number per channel ({}, {} to {}): a weight was scaled and its bias was not",
            short(factor),
            groups.said(),
            short(offsets[0]),
            short(offsets[1])
        ),
        details: facts::Scale::WithOffsets {
            factor,
            axis,
            offsets,
        }
        .into(),
        class: Class::Mechanism,
        freedom: 1 + groups.count,
        predicted: Predicted::Values(predicted),
    })
}

fn a_factor_each(
    case: &Case<'_>,
    groups: &Groups,
    axis: usize,
    fitted: &[[f64; 2]],
) -> Option<Explanation> {
    let mut predicted = case.reference.to_vec();
    groups.visit(|flat, group| {
        predicted[flat] = fitted[group][0] * predicted[flat] + fitted[group][1];
    });
    let numbers = |which: usize| {
        let of = fitted.iter().map(|fit| fit[which]);
        [
            of.clone().fold(f64::INFINITY, f64::min),
            of.fold(f64::NEG_INFINITY, f64::max),
        ]
    };
    let (factors, offsets) = (numbers(0), numbers(1));
    // A few channels are a place.
    let size = rms(&case.difference());
    let changed = fitted
        .iter()
        .filter(|[factor, offset]| {
            (factor - 1.0).abs() > 2.0 * case.noise[2] || offset.abs() > 0.1 * size
        })
        .count();
    if (changed as f64) < MOST_CHANGED * groups.count as f64 {
        return None;
    }
    (left_share(case, &predicted) <= LEFT).then(|| Explanation {
        kind: CauseKind::ChannelScale,
        text: format!(
            "candidate = reference x a factor per channel ({}, {} to {}) + a number per channel ({} to {}): a norm whose statistics are shared \
             by a channel, with others, another epsilon or other weights",
            groups.said(), short(factors[0]), short(factors[1]), short(offsets[0]), short(offsets[1])
        ),
        details: facts::ChannelScale::WithOffsets { axis, axes: vec![axis], factors, offsets }.into(),
        class: Class::Mechanism,
        freedom: 2 * groups.count,
        predicted: Predicted::Values(predicted),
    })
}

/// A recorded parameter that makes the factors.
struct Weight {
    name: String,
    use_: Use,
}

/// What was done with the weight `w`.
#[derive(Clone, Copy)]
enum Use {
    CandidateAddsOne,
    ReferenceAddsOne,
    CandidateLacksIt,
    CandidateHasItTwice,
}

impl Use {
    const ALL: [Self; 4] = [
        Self::CandidateAddsOne,
        Self::ReferenceAddsOne,
        Self::CandidateLacksIt,
        Self::CandidateHasItTwice,
    ];

    fn factor(self, w: f64) -> f64 {
        match self {
            Self::CandidateAddsOne => (1.0 + w) / w,
            Self::ReferenceAddsOne => w / (1.0 + w),
            Self::CandidateLacksIt => 1.0 / w,
            Self::CandidateHasItTwice => w,
        }
    }

    fn fact(self) -> WeightUse {
        match self {
            Self::CandidateAddsOne => WeightUse::CandidateAddsOne,
            Self::ReferenceAddsOne => WeightUse::ReferenceAddsOne,
            Self::CandidateLacksIt => WeightUse::CandidateLacksIt,
            Self::CandidateHasItTwice => WeightUse::CandidateHasItTwice,
        }
    }

    fn said(self, weight: &str) -> String {
        match self {
            Self::CandidateAddsOne => format!(
                "the candidate multiplies with 1 + `{weight}`, the reference with `{weight}`"
            ),
            Self::ReferenceAddsOne => format!(
                "the candidate multiplies with `{weight}`, the reference with 1 + `{weight}`"
            ),
            Self::CandidateLacksIt => format!("the candidate lacks `{weight}`"),
            Self::CandidateHasItTwice => {
                format!("the candidate multiplies with `{weight}` once more than the reference")
            }
        }
    }
}

/// How far the factors may be from what the weight makes of them, relatively.
const RESEMBLANCE: f64 = 0.02;

fn weight(case: &Case<'_>, factors: &[f64]) -> Option<Weight> {
    for other in case.scene.others(case.pair, factors.len()) {
        for use_ in Use::ALL {
            let close = |(factor, w): (&f64, &f64)| {
                (use_.factor(*w) - factor).abs() <= RESEMBLANCE * factor.abs()
            };
            let agreeing = factors
                .iter()
                .zip(&other.array.values)
                .filter(|pair| close(*pair))
                .count();
            // Where the weight is nearly 0 its quotient is rounding.
            if agreeing as f64 >= 0.95 * factors.len() as f64 {
                return Some(Weight {
                    name: other.name,
                    use_,
                });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, examine_in, examine_noisy, examine_pair, normal, proven};
    use proptest::prelude::*;

    fn scaled(columns: usize, factors: &[f64], reference: &[f64]) -> Vec<f64> {
        reference
            .iter()
            .enumerate()
            .map(|(flat, r)| r * factors[flat % columns])
            .collect()
    }

    #[test]
    fn one_plus_the_weight_is_recognised_by_the_recorded_weight() {
        let weight: Vec<f64> = normal(48, 3).iter().map(|w| 0.4 + 0.1 * w).collect();
        let hidden = normal(1056, 4);
        let reference = scaled(48, &weight, &hidden);
        let candidate = scaled(
            48,
            &weight.iter().map(|w| 1.0 + w).collect::<Vec<_>>(),
            &hidden,
        );
        let run = [
            Recorded {
                name: "norm.weight",
                dims: vec![48],
                reference: weight.clone(),
                candidate: weight,
            },
            Recorded {
                name: "norm",
                dims: vec![2, 11, 48],
                reference,
                candidate,
            },
        ];
        let best = &examine_in(&run, "norm").0.found[0];
        assert!(best.score.proven);
        assert_eq!(
            (
                best.explanation.kind.name(),
                best.explanation.details.json()["use"].as_str()
            ),
            ("channel_scale", Some("1+w"))
        );
    }

    #[test]
    fn a_weight_that_is_scaled_beside_its_bias_is_a_scale() {
        let (product, bias) = (normal(44 * 48, 5), normal(48, 6));
        let with = |factor: f64| -> Vec<f64> {
            product
                .iter()
                .enumerate()
                .map(|(at, y)| factor * y + 0.3 * bias[at % 48])
                .collect()
        };
        for found in [
            examine_pair(&[4, 11, 48], with(1.0), with(1.07)),
            examine_noisy(&[4, 11, 48], with(1.0), with(1.07)),
        ] {
            assert_eq!(proven(&found), Some("scale"));
            assert!(
                (found.found[0].explanation.details.json()["factor"]
                    .as_f64()
                    .unwrap()
                    - 1.07)
                    .abs()
                    < 2e-3
            );
        }
    }

    #[test]
    fn a_factor_per_head_is_one_per_channel() {
        let factors = [0.5, 1.5, 2.0, 0.7];
        let reference = normal(2 * 4 * 11 * 12, 5);
        let candidate = reference
            .iter()
            .enumerate()
            .map(|(flat, r)| r * factors[flat / 132 % 4])
            .collect();
        let found = examine_pair(&[2, 4, 11, 12], reference, candidate);
        assert_eq!(proven(&found), Some("channel_scale"));
        assert_eq!(
            found.found[0].explanation.details.json()["axes"],
            serde_json::json!([1])
        );
    }

    #[test]
    fn in_bf16_a_mean_factor_does_not_pass_for_the_factors() {
        let factors: Vec<f64> = (0..48)
            .map(|channel| 1.05 + 0.02 * f64::from(channel % 3))
            .collect();
        let reference = normal(40 * 48, 5);
        let found = examine_noisy(
            &[40, 48],
            reference.clone(),
            scaled(48, &factors, &reference),
        );
        assert_eq!(proven(&found), Some("channel_scale"));
    }

    #[test]
    fn unrelated_values_have_no_factors() {
        for dims in [[22, 48], [6, 500], [2, 9]] {
            let count = dims.iter().product();
            let found = examine_pair(&dims, normal(count, 1), normal(count, 2));
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| !found.explanation.kind.name().ends_with("_scale")
                        || !found.score.proven),
                "{dims:?}"
            );
        }
    }

    #[test]
    fn another_epsilon_of_a_batch_norm_is_a_factor_and_a_number_per_channel() {
        let dims = [2, 12, 9, 11];
        let x = normal(2 * 12 * 99, 1);
        let [means, variances, weights, biases] = [2, 3, 4, 5].map(|seed| normal(12, seed));
        let with = |epsilon: f64| -> Vec<f64> {
            let one = |(at, x): (usize, &f64)| {
                let channel = at / 99 % 12;
                (x - means[channel]) / (0.2 + variances[channel].abs() + epsilon).sqrt()
                    * (1.0 + 0.2 * weights[channel])
                    + biases[channel]
            };
            x.iter().enumerate().map(one).collect()
        };
        assert_eq!(
            proven(&examine_pair(&dims, with(1e-5), with(0.1))),
            Some("channel_scale")
        );
        assert_eq!(
            proven(&examine_noisy(&dims, with(1e-5), with(0.1))),
            Some("channel_scale")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn factors_of_any_number_of_channels_are_found(rows in 12usize..40, columns in 3usize..50, seed in 0u64..1000) {
            let factors: Vec<f64> = normal(columns, seed).iter().enumerate().map(|(at, w)| 1.2 + 0.3 * (at % 3) as f64 + 0.02 * w).collect();
            let reference = normal(rows * columns, seed + 1);
            let candidate = scaled(columns, &factors, &reference);
            prop_assert_eq!(proven(&examine_pair(&[1, rows, columns], reference.clone(), candidate.clone())), Some("channel_scale"));
            prop_assert_eq!(proven(&examine_noisy(&[1, rows, columns], reference, candidate)), Some("channel_scale"));
        }
    }
}
