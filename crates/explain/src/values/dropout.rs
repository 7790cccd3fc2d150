//! Dropout left on: zeros at random places and one factor `1/(1-p)` elsewhere, with as many zeros as that `p` makes.

use super::sampling::{Near, sample};
use crate::{
    Case, Class, Examined, Explanation, Hypothesis, array::median, case::Predicted,
    constants::short,
};
use twinscope_report::{CauseKind, facts};
use twinscope_tensor::Side;

#[derive(Debug)]
pub(super) struct Dropout;

const LEAST_ZEROS: usize = 4;
/// From here on single values say little about the factor, and then so large a share must be zero.
const MUCH_NOISE: f64 = 0.02;
const LEAST_SHARE: f64 = 0.03;
/// What people choose for `p`.
const USUAL: [f64; 10] = [0.1, 0.5, 0.2, 0.3, 0.25, 0.05, 0.15, 0.4, 0.01, 0.02];
/// How many standard deviations the number of zeros may be off.
const SIGMAS: f64 = 6.0;

impl Hypothesis for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        if case
            .dtypes
            .iter()
            .any(|dtype| twinscope_compare::noise::unit_roundoff(*dtype).is_none())
        {
            return Err("whole numbers are not dropped".into());
        }
        let candidate = Mask::of(case, case.candidate, case.reference);
        match (candidate, Mask::of(case, case.reference, case.candidate)) {
            (Ok(mask), _) => Ok(vec![mask.explanation(case, Side::Candidate)]),
            (Err(_), Ok(mask)) => Ok(vec![mask.explanation(case, Side::Reference)]),
            (Err(why), Err(_)) => Err(why.into()),
        }
    }
}

/// What dropout did to one side.
struct Mask {
    p: f64,
    zeros: usize,
    /// `p` as people write it.
    usual: Option<f64>,
}

impl Mask {
    fn of(case: &Case<'_>, dropped: &[f64], whole: &[f64]) -> Result<Self, &'static str> {
        let flats = sample(case, 1 << 13);
        let there = |flat: &&usize| whole[**flat] != 0.0;
        let gone = flats
            .iter()
            .filter(there)
            .filter(|flat| dropped[**flat] == 0.0)
            .count();
        let mut ratios: Vec<f64> = flats
            .iter()
            .filter(there)
            .map(|flat| dropped[*flat] / whole[*flat])
            .filter(|ratio| *ratio != 0.0)
            .collect();
        if gone == 0 || ratios.len() < LEAST_ZEROS {
            return Err("no zeros where the other side has values");
        }
        // Beside much noise the zeros tell p better than the factor does.
        let noisy = case.noise[0] > MUCH_NOISE;
        let share = gone as f64 / flats.iter().filter(there).count() as f64;
        let factor = if noisy {
            1.0 / (1.0 - share)
        } else {
            median(&mut ratios)
        };
        let p = 1.0 - 1.0 / factor;
        if !noisy && factor <= 1.0 + 2.0 * case.noise[0] {
            return Err("zeros, but the other values are not larger for it");
        }
        if noisy && share < LEAST_SHARE {
            return Err("too few zeros to tell dropout beside so much noise");
        }
        let near = Near::of(case);
        let agrees = |flat: &usize| {
            dropped[*flat] == 0.0
                || (dropped[*flat] - factor * whole[*flat]).abs()
                    <= factor * near.allowed(whole[*flat])
        };
        if !flats.iter().all(agrees) {
            return Err("zeros, but no one factor for the other values");
        }
        let (mut zeros, mut all) = (0usize, 0usize);
        for (dropped, _) in dropped
            .iter()
            .zip(whole)
            .filter(|(_, whole)| **whole != 0.0)
        {
            all += 1;
            zeros += usize::from(*dropped == 0.0);
        }
        // A tile of zeros has no factor, and is in one place.
        if noisy
            && (!is_larger(dropped, whole, factor) || !are_scattered(case.dims, dropped, whole))
        {
            return Err(
                "zeros, but the others are not larger for it or the zeros are in one place",
            );
        }
        let deviation = (all as f64 * p * (1.0 - p)).sqrt();
        if zeros < LEAST_ZEROS
            || (zeros as f64 - all as f64 * p).abs() > SIGMAS * deviation.max(1.0)
        {
            return Err(
                "zeros and one factor, but not as many zeros as dropout with that factor makes",
            );
        }
        // The nearest that people choose, then the nearest percent.
        let tolerance = (2.0 * case.noise[0].max(1e-5)).min(0.02);
        let choices = USUAL
            .into_iter()
            .chain((1..100).map(|percent| f64::from(percent) / 100.0));
        let usual = choices
            .into_iter()
            .find(|usual| (usual - p).abs() < tolerance);
        Ok(Self { p, zeros, usual })
    }

    fn explanation(&self, case: &Case<'_>, side: Side) -> Explanation {
        let p = self.usual.unwrap_or(self.p);
        let factor = 1.0 / (1.0 - self.p);
        let near = Near::of(case);
        let predicted = if side == Side::Candidate {
            let value = |(r, c): (&f64, &f64)| if *c == 0.0 { 0.0 } else { r * factor };
            Predicted::Values(
                case.reference
                    .iter()
                    .zip(case.candidate)
                    .map(value)
                    .collect(),
            )
        } else {
            let agrees = |(r, c): (&f64, &f64)| {
                *r == 0.0 || (r - factor * c).abs() <= factor * near.allowed(*c)
            };
            let proven = case.reference.iter().zip(case.candidate).all(agrees);
            Predicted::Share {
                explained: if proven { 1.0 } else { 0.5 },
                proven,
            }
        };
        Explanation {
            kind: CauseKind::Dropout,
            text: format!(
                "the {side} has dropout on: {} values are zero and the others are multiplied by {}, as p = {} does",
                self.zeros,
                short(factor),
                short(p)
            ),
            details: facts::Dropout {
                p,
                factor,
                zeros: self.zeros,
                side,
            }
            .into(),
            class: Class::Mechanism,
            freedom: 1,
            predicted,
        }
    }
}

/// Of what a factor does, at least this much must be seen in all values together, which single ones are too noisy to tell.
const SEEN: f64 = 0.5;

/// Whether what is not zero is multiplied by about such a factor.
fn is_larger(dropped: &[f64], whole: &[f64], factor: f64) -> bool {
    let (mut xy, mut xx) = (0.0, 0.0);
    for (dropped, whole) in dropped
        .iter()
        .zip(whole)
        .filter(|(dropped, whole)| **dropped != 0.0 && dropped.is_finite() && whole.is_finite())
    {
        xy += dropped * whole;
        xx += whole * whole;
    }
    xy / xx - 1.0 >= SEEN * (factor - 1.0)
}

/// Whether no axis has slices with many more zeros than chance puts there.
fn are_scattered(dims: &[usize], dropped: &[f64], whole: &[f64]) -> bool {
    let mut stride = dropped.len();
    for &along in dims {
        stride /= along.max(1);
        if along < 2 {
            continue;
        }
        let (mut zeros, mut all) = (vec![0f64; along], vec![0f64; along]);
        for (flat, (dropped, _)) in dropped
            .iter()
            .zip(whole)
            .enumerate()
            .filter(|(_, (_, whole))| **whole != 0.0)
        {
            let slice = flat / stride % along;
            all[slice] += 1.0;
            zeros[slice] += f64::from(u8::from(*dropped == 0.0));
        }
        let share = zeros.iter().sum::<f64>() / all.iter().sum::<f64>();
        let term = |(zeros, all): (&f64, &f64)| {
            if *all > 0.0 {
                (zeros - all * share).powi(2) / (all * share * (1.0 - share))
            } else {
                0.0
            }
        };
        let spread: f64 = zeros.iter().zip(&all).map(term).sum();
        let freedom = along as f64 - 1.0;
        if spread > freedom + SIGMAS * (2.0 * freedom).sqrt() + SIGMAS {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use crate::{
        Case, Examination, examine,
        testing::{examine_noisy, examine_pair, normal, proven, with_case},
    };
    use proptest::prelude::*;
    use twinscope_compare::noise::Measures;
    use twinscope_report::CauseKind;

    fn dropped(values: &[f64], p: f64, seed: u64) -> Vec<f64> {
        // The share p of a normal distribution lies below its quantile; ranks need no quantile.
        let noise = normal(values.len(), seed);
        let mut sorted = noise.clone();
        sorted.sort_by(f64::total_cmp);
        let bound = sorted[(p * values.len() as f64) as usize];
        values
            .iter()
            .zip(noise)
            .map(|(value, noise)| {
                if noise < bound {
                    0.0
                } else {
                    value / (1.0 - p)
                }
            })
            .collect()
    }

    #[test]
    fn dropout_is_found_with_its_p() {
        let reference = normal(1056, 1);
        let found = examine_pair(&[2, 11, 48], reference.clone(), dropped(&reference, 0.1, 2));
        assert_eq!(proven(&found), Some("dropout"));
        assert_eq!(found.found[0].explanation.details.json()["p"], 0.1);
        let found = examine_pair(&[2, 11, 48], dropped(&reference, 0.1, 2), reference);
        assert_eq!(proven(&found), Some("dropout"));
        assert_eq!(
            found.found[0].explanation.details.json()["side"],
            "reference"
        );
    }

    #[test]
    fn zeros_without_the_factor_are_no_dropout() {
        let reference = normal(1056, 1);
        let relu = reference.iter().map(|r| r.max(0.0)).collect();
        let halved = dropped(&reference, 0.1, 2)
            .iter()
            .map(|c| c * 0.5)
            .collect();
        let more = dropped(&reference, 0.5, 2)
            .iter()
            .map(|c| c * 0.6)
            .collect();
        for candidate in [relu, halved, more, normal(1056, 3)] {
            let found = examine_pair(&[22, 48], reference.clone(), candidate);
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::Dropout)
            );
        }
    }

    fn examine_with(
        dims: &[usize],
        reference: Vec<f64>,
        candidate: Vec<f64>,
        noise: Measures,
    ) -> Examination {
        with_case(dims, reference, candidate, |case| {
            examine(&Case { noise, ..*case })
        })
    }

    /// Beside an error of this share of each value.
    fn beside_noise(candidate: &[f64], share: f64) -> Vec<f64> {
        candidate
            .iter()
            .zip(normal(candidate.len(), 77))
            .map(|(c, n)| c * (1.0 + share * n))
            .collect()
    }

    #[test]
    fn a_tile_of_zeros_is_no_dropout_beside_any_noise() {
        let reference = normal(2 * 11 * 48, 1);
        let in_tile =
            |flat: usize| (2..5).contains(&(flat / 48)) && (12..28).contains(&(flat % 48));
        let candidate: Vec<f64> = reference
            .iter()
            .enumerate()
            .map(|(flat, r)| if in_tile(flat) { 0.0 } else { *r })
            .collect();
        for noise in [0.01, 0.03] {
            let noisy = [2.0 * noise, 2.0 * noise, 4.0 * noise, 8.0 * noise];
            let found = examine_with(
                &[2, 11, 48],
                reference.clone(),
                beside_noise(&candidate, noise),
                noisy,
            );
            assert_eq!(proven(&found), Some("localized"), "{noise}");
            let found = examine_with(
                &[2, 11, 48],
                reference.clone(),
                beside_noise(&dropped(&reference, 0.1, 2), noise),
                noisy,
            );
            assert_eq!(proven(&found), Some("dropout"), "{noise}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_p_is_found_also_in_bf16(count in 200usize..900, seed in 0u64..1000, percent in 10u32..60) {
            let reference = normal(count, seed);
            let candidate = dropped(&reference, f64::from(percent) / 100.0, seed + 1);
            prop_assert_eq!(proven(&examine_pair(&[count], reference.clone(), candidate.clone())), Some("dropout"));
            prop_assert_eq!(proven(&examine_noisy(&[count], reference, candidate)), Some("dropout"));
        }
    }
}
