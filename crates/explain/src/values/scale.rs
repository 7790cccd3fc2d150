//! One factor for all: a missing `1/sqrt(d)`, a mean for a sum, a lost quantisation scale, a flipped sign.

use super::{
    naming::named,
    sampling::{Near, fits, promise, sample},
};
use crate::{
    Case, Class, Examined, Explanation, Hypothesis,
    array::median,
    case::Predicted,
    constants::{Named, said, short},
};
use twinscope_compare::noise::unit_roundoff;
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct Scale;

/// A factor and its relative uncertainty.
#[derive(Clone, Copy, Debug)]
struct Fit {
    factor: f64,
    error: f64,
    /// The share of the values it fits, when it is not meant for all.
    of: Option<f64>,
}

const SAMPLE: usize = 1 << 14;
/// Below this squared correlation no factor says anything.
const LEAST_CORRELATION: f64 = 0.2;

impl Hypothesis for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        if case.reference.len() == 1 && unit_roundoff(case.dtypes[0]).is_none() {
            return Err("one whole number is a multiple of every other".into());
        }
        let whole = of_all(case);
        let flats = sample(case, SAMPLE);
        let all = whole.as_ref().map_or(0.0, |fit| {
            promise(case, &flats, |flat| case.reference[flat] * fit.factor)
        });
        // Where something else happened to some values as well (outliers, clipping), most still tell the factor.
        let most = (all < 0.999).then(|| of_most(case, &flats)).flatten();
        let with_number = (all < 0.999).then(|| affine(case)).flatten();
        let alone = match (whole, most) {
            (_, Some(most)) => Ok(most),
            (Ok(whole), None) => Ok(whole),
            (Err(why), None) => Err(why),
        };
        let alone = alone.and_then(|fit| {
            match (fit.factor - 1.0).abs() < case.noise[0].max(f64::EPSILON) {
                true => Err("the best factor is 1"),
                false if case.reference.len() == 1 && !is_chosen(case, fit) => {
                    Err("one number is a multiple of every other")
                }
                false => Ok(explanation(case, fit)),
            }
        });
        match (alone, with_number) {
            (Err(why), None) => Err(why.into()),
            (alone, with_number) => Ok(alone.ok().into_iter().chain(with_number).collect()),
        }
    }
}

fn is_negated(case: &Case<'_>, factor: f64) -> bool {
    (factor + 1.0).abs() < case.noise[0].max(f64::EPSILON)
}

/// Whether somebody may have chosen it: a sign, nothing at all, or a constant that has a name.
fn is_chosen(case: &Case<'_>, Fit { factor, error, .. }: Fit) -> bool {
    factor == 0.0 || is_negated(case, factor) || named(case, factor, error).is_some()
}

fn explanation(case: &Case<'_>, Fit { factor, error, of }: Fit) -> Explanation {
    let negated = is_negated(case, factor);
    let named = named(case, factor, error);
    let mut text = match factor {
        _ if negated => "candidate = -reference".to_owned(),
        0.0 => "the candidate is all zero".to_owned(),
        _ => format!("candidate = reference x {}", said(factor, named.as_ref())),
    };
    if let Some(share) = of {
        text.push_str(&format!(", in {:.1} % of the values", 100.0 * share));
    }
    Explanation {
        kind: if negated {
            CauseKind::Negated
        } else {
            CauseKind::Scale
        },
        text,
        details: facts::Scale::Factor {
            factor,
            constant: named.map(|Named { name, .. }| name),
            share: of,
        }
        .into(),
        class: Class::Mechanism,
        freedom: 1,
        predicted: Predicted::Values(case.reference.iter().map(|r| r * factor).collect()),
    }
}

/// Values that tell a factor and a number apart from chance.
const LEAST_AFFINE: usize = 16;
/// Of the difference, what a factor and a number may leave.
const LEFT: f64 = 0.02;

/// One factor and one number added for all: an input that is normalised otherwise, or not.
fn affine(case: &Case<'_>) -> Option<Explanation> {
    let (mut n, mut sums) = (0.0, [0.0; 4]);
    for (flat, (r, c)) in case.reference.iter().zip(case.candidate).enumerate() {
        if fits(case, flat) && r.is_finite() && c.is_finite() {
            n += 1.0;
            sums.iter_mut()
                .zip([*r, *c, r * r, r * c])
                .for_each(|(sum, one)| *sum += one);
        }
    }
    let [r, c, rr, rc] = sums;
    let spread = rr - r * r / n;
    if case.reference.len() < LEAST_AFFINE || spread <= 0.0 {
        return None;
    }
    let factor = (rc - r * c / n) / spread;
    let number = (c - factor * r) / n;
    let predicted: Vec<f64> = case.reference.iter().map(|r| factor * r + number).collect();
    let (mut left, mut whole) = (0.0, 0.0);
    for ((p, r), c) in predicted.iter().zip(case.reference).zip(case.candidate) {
        left += (c - p) * (c - p);
        whole += (c - r) * (c - r);
    }
    // Without one of the two it is a factor, or an offset.
    let size = (whole / case.reference.len() as f64).sqrt();
    let both = (factor - 1.0).abs() > 2.0 * case.noise[0] && number.abs() > 0.05 * size;
    (both && left <= LEFT * whole).then(|| Explanation {
        kind: CauseKind::Scale,
        text: format!(
            "candidate = reference x {} {} {}: normalised otherwise, or not",
            short(factor),
            if number < 0.0 { "-" } else { "+" },
            short(number.abs())
        ),
        details: facts::Scale::WithOffset {
            factor,
            offset: number,
            constant: None,
            share: None,
        }
        .into(),
        class: Class::Mechanism,
        freedom: 2,
        predicted: Predicted::Values(predicted),
    })
}

/// The factor that leaves least. Symmetric, so that noise in the reference does not shrink it.
fn of_all(case: &Case<'_>) -> Result<Fit, &'static str> {
    let (mut rc, mut rr, mut cc, mut count) = (0.0, 0.0, 0.0, 0usize);
    for (flat, (r, c)) in case.reference.iter().zip(case.candidate).enumerate() {
        if fits(case, flat) && r.is_finite() && c.is_finite() {
            rc += r * c;
            rr += r * r;
            cc += c * c;
            count += 1;
        }
    }
    if rr == 0.0 {
        return Err("the reference is zero");
    }
    if cc == 0.0 {
        return Ok(Fit {
            factor: 0.0,
            error: 0.0,
            of: None,
        });
    }
    let correlation = rc * rc / rr / cc;
    if correlation < LEAST_CORRELATION {
        return Err("the values do not follow the reference's");
    }
    let error = ((1.0 - correlation).max(0.0) / count as f64).sqrt();
    Ok(Fit {
        factor: (cc / rr).sqrt() * rc.signum(),
        error: 3.0 * error,
        of: None,
    })
}

/// The factor that more than half of the values agree on at the noise, unless it is 1.
fn of_most(case: &Case<'_>, flats: &[usize]) -> Option<Fit> {
    let mut sizes: Vec<f64> = flats
        .iter()
        .map(|flat| case.reference[*flat].abs())
        .collect();
    let typical = median(&mut sizes);
    let large: Vec<usize> = flats
        .iter()
        .copied()
        .filter(|flat| fits(case, *flat) && case.reference[*flat].abs() >= typical)
        .collect();
    if large.len() < LEAST_VALUES || typical == 0.0 {
        return None;
    }
    let mut ratios: Vec<f64> = large
        .iter()
        .map(|flat| case.candidate[*flat] / case.reference[*flat])
        .collect();
    let factor = median(&mut ratios);
    if factor == 0.0 || (factor - 1.0).abs() < 2.0 * case.noise[0] {
        return None;
    }
    let near = Near::of(case);
    let agrees = |flat: &&usize| {
        let predicted = case.reference[**flat] * factor;
        (predicted - case.candidate[**flat]).abs()
            <= near.allowed(predicted) * factor.abs().max(1.0)
    };
    let share = flats.iter().filter(agrees).count() as f64 / flats.len() as f64;
    (share > 0.5).then(|| Fit {
        factor,
        error: case.noise[3] / (large.len() as f64).sqrt(),
        of: (share < 0.999).then_some(share),
    })
}

const LEAST_VALUES: usize = 16;

#[cfg(test)]
mod tests {
    use twinscope_report::CauseKind;
    #[test]
    fn an_image_that_is_normalised_otherwise_is_a_factor_and_a_number() {
        let reference = normal(2 * 3 * 64, 1);
        let candidate: Vec<f64> = reference.iter().map(|r| r / 4.0 + 1.0).collect();
        for dims in [&[2, 3, 8, 8][..], &[1, 6, 64], &[384]] {
            let found = examine_pair(dims, reference.clone(), candidate.clone());
            assert_eq!(proven(&found), Some("scale"));
            assert!(
                (found.found[0].explanation.details.json()["offset"]
                    .as_f64()
                    .unwrap()
                    - 1.0)
                    .abs()
                    < 1e-6
            );
            assert_eq!(
                proven(&examine_noisy(dims, reference.clone(), candidate.clone())),
                Some("scale")
            );
        }
    }

    use crate::testing::{Recorded, examine_each, examine_noisy, examine_pair, normal, proven};
    use proptest::prelude::*;
    use twinscope_tensor::DType;

    #[test]
    fn another_token_is_no_multiple_of_the_right_one() {
        let one = |name, dims: &[usize], reference: &[f64], candidate: &[f64]| Recorded {
            name,
            dims: dims.to_vec(),
            reference: reference.to_vec(),
            candidate: candidate.to_vec(),
        };
        let logits = normal(48, 1);
        let decoded = [
            (DType::F32, one("logits", &[1, 48], &logits, &logits)),
            (DType::I64, one("token", &[1, 1], &[47.0], &[46.0])),
        ];
        assert_eq!(proven(&examine_each(&decoded, "token")), None);
        assert_eq!(
            proven(&examine_pair(&[1], vec![0.25], vec![8.0])),
            Some("scale"),
            "a loss summed for averaged"
        );
    }

    #[test]
    fn a_factor_is_found_and_called_by_its_name() {
        let reference = normal(480, 1);
        let candidate = reference.iter().map(|r| r * 48f64.sqrt()).collect();
        let found = examine_pair(&[10, 48], reference, candidate);
        assert_eq!(proven(&found), Some("scale"));
        assert_eq!(
            found.found[0].explanation.text,
            "candidate = reference x 6.9282, which is sqrt(48)"
        );
    }

    #[test]
    fn a_flipped_sign_has_its_own_kind() {
        let reference = normal(64, 2);
        let candidate = reference.iter().map(|r| -r).collect();
        assert_eq!(
            proven(&examine_pair(&[8, 8], reference, candidate)),
            Some("negated")
        );
    }

    #[test]
    fn a_zero_candidate_is_said_to_be_zero() {
        let found = examine_pair(&[8, 8], normal(64, 2), vec![0.0; 64]);
        assert_eq!(found.found[0].explanation.text, "the candidate is all zero");
    }

    #[test]
    fn outliers_do_not_hide_the_factor_of_the_others() {
        let reference = normal(480, 3);
        let mut candidate: Vec<f64> = reference.iter().map(|r| r * 0.5).collect();
        for at in 0..20 {
            candidate[at * 23] = 1000.0;
        }
        let found = examine_pair(&[10, 48], reference, candidate);
        let scale = found
            .attempts
            .iter()
            .find(|attempt| attempt.kind == Some(CauseKind::Scale))
            .unwrap();
        assert!(
            scale
                .text
                .starts_with("candidate = reference x 0.5, which is 2^-1, in 9")
                && !scale.proven,
            "{}",
            scale.text
        );
    }

    #[test]
    fn unrelated_values_are_no_scale() {
        let found = examine_pair(&[10, 48], normal(480, 1), normal(480, 2));
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Scale || !found.score.proven)
        );
    }

    #[test]
    fn one_number_is_a_multiple_of_every_other() {
        let of_one = |candidate: f64| proven(&examine_pair(&[1], vec![1.5], vec![candidate]));
        assert_eq!(
            (of_one(1.7123), of_one(-1.5), of_one(3.0)),
            (None, Some("negated"), Some("scale"))
        );
    }

    proptest! {
        #[test]
        fn any_factor_of_any_shape_is_found(rows in 1usize..9, columns in 3usize..40, seed in 0u64..1000, factor in 1.1f64..30.0) {
            let reference = normal(rows * columns, seed);
            let candidate: Vec<f64> = reference.iter().map(|r| r * factor).collect();
            prop_assert_eq!(proven(&examine_pair(&[rows, columns], reference.clone(), candidate.clone())), Some("scale"));
            prop_assert_eq!(proven(&examine_noisy(&[rows, columns], reference, candidate)), Some("scale"));
        }
    }
}
