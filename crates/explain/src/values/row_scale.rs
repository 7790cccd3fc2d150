//! A factor per row: another epsilon in a norm, per-token quantisation scales, rows normalised by another norm.
//!
//! A norm divides a row by `sqrt(m + e)`, with `m` the mean of its squares (or its variance). Where the norm's input is recorded, the factors
//! `sqrt((m + e_reference) / (m + e_candidate))` tell the two epsilons.

use super::{
    factors::{Factors, are_channels},
    groups::Groups,
    naming::of,
};
use crate::{Case, Class, Examined, Explanation, Hypothesis, case::Predicted, constants::short};
use twinscope_report::{CauseKind, facts};
use twinscope_tensor::Side;

#[derive(Debug)]
pub(super) struct RowScale;

impl Hypothesis for RowScale {
    fn name(&self) -> &'static str {
        "row_scale"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let mut found: Vec<Explanation> = shares(case)
            .into_iter()
            .chain(around(case))
            .chain(of_maps(case))
            .collect();
        match one_factor(case) {
            Ok(factor) => found.push(factor),
            Err(why) if found.is_empty() => return Err(why.into()),
            Err(_) => {}
        }
        Ok(found)
    }
}

fn one_factor(case: &Case<'_>) -> Result<Explanation, String> {
    let fit = Factors::fit(
        case,
        |groups| !are_channels(case, groups),
        "a factor per row",
    )?;
    if 2 * fit.changed < fit.groups.count && !fit.are_coherent() {
        return Err(format!(
            "only {} rows have a factor",
            of(fit.changed, fit.groups.count)
        ));
    }
    Ok(explanation(case, &fit))
}

/// Rows of shares are no longer than this: a token's experts, not its attention.
const MOST_SHARES: usize = 64;
/// So many values beyond one a row must follow from the others.
const LEAST_TOLD: usize = 8;

/// Rows that sum to one on one side only: the weights of the experts that were chosen, made to sum to one or not. Where a row's sum is known
/// its factor needs no fit, however short the row is.
fn shares(case: &Case<'_>) -> Option<Explanation> {
    let width = *case
        .dims
        .last()
        .filter(|width| (2..=MOST_SHARES).contains(*width))?;
    let rows = case.reference.len() / width;
    if rows * (width - 1) < LEAST_TOLD
        || case
            .reference
            .iter()
            .chain(case.candidate)
            .any(|share| !(0.0..=2.0).contains(share))
    {
        return None;
    }
    let sums = |side: &[f64]| {
        side.chunks_exact(width)
            .map(|row| row.iter().sum::<f64>())
            .collect::<Vec<f64>>()
    };
    let (reference, candidate) = (sums(case.reference), sums(case.candidate));
    let near_one = |sum: &f64| (sum - 1.0).abs() <= 2.0 * case.noise[3];
    let whole = [&reference, &candidate].map(|sums| sums.iter().all(near_one));
    // All of one side, and clearly not those of the other.
    let lacking = match whole {
        [true, false] => Side::Candidate,
        [false, true] => Side::Reference,
        _ => return None,
    };
    if reference.iter().any(|sum| *sum <= 0.0) {
        return None;
    }
    let factors: Vec<f64> = candidate
        .iter()
        .zip(&reference)
        .map(|(c, r)| c / r)
        .collect();
    let predicted = case
        .reference
        .iter()
        .enumerate()
        .map(|(flat, r)| r * factors[flat / width])
        .collect();
    let other = if whole[0] { &candidate } else { &reference };
    let (least, most) = (
        other.iter().copied().fold(f64::INFINITY, f64::min),
        other.iter().copied().fold(0.0, f64::max),
    );
    Some(Explanation {
        kind: CauseKind::RowScale,
        text: format!(
            "candidate = reference x one factor per row: the rows sum to 1, but the {lacking}'s to {} to {}: weights of what was chosen are not made to sum to 1",
            short(least),
            short(most)
        ),
        details: facts::RowScale::Sums {
            axes: (0..case.dims.len() - 1).collect(),
            sums: [least, most],
            not_renormalised: lacking.into(),
        }
        .into(),
        class: Class::Mechanism,
        freedom: 1,
        predicted: Predicted::Values(predicted),
    })
}

/// Steps after which factors and the vector they leave alone have settled, or never will.
const STEPS: usize = 60;
/// The vector is of the size of the rows, and the factors explain more than it does: else any vector added would pass.
const LARGEST_VECTOR: f64 = 3.0;
const LEAST_OF_FACTORS: f64 = 0.1;
const LEAST_FACTOR: f64 = 1e-3;

/// Beyond so many values some rows are tried first: so many values of them, and rows at least.
const LARGE: usize = 1 << 17;
const SOME_VALUES: usize = 1 << 16;
const SOME_ROWS: usize = 64;

/// What is fitted: the factors of some rows, the vector, and how much of their difference is left, from 0 to 1.
struct Settled {
    factors: Vec<f64>,
    vector: Vec<f64>,
    left: f64,
}

/// Whether a factor is not 1.
fn is_changed(case: &Case<'_>, factor: f64) -> bool {
    (factor - 1.0).abs() > 2.0 * case.noise[2]
}

/// Factors of these rows and the vector, each fitted to the other in turn.
fn settle(case: &Case<'_>, width: usize, rows: &[usize]) -> Option<Settled> {
    let both = |row: usize| {
        let members = row * width..(row + 1) * width;
        (
            members.clone(),
            &case.reference[members.clone()],
            &case.candidate[members],
        )
    };
    // The mean row is near the vector where what is scaled has no mean.
    let mut vector = vec![0.0; width];
    for row in rows {
        vector
            .iter_mut()
            .zip(both(*row).1)
            .for_each(|(sum, r)| *sum += r / rows.len() as f64);
    }
    let mut factors = vec![1.0; rows.len()];
    let (mut before, mut difference) = (f64::INFINITY, 0.0);
    for step in 0..STEPS {
        for (row, factor) in rows.iter().zip(&mut factors) {
            let (members, reference, candidate) = both(*row);
            let (mut xy, mut xx) = (0.0, 0.0);
            for (((_, r), c), b) in members
                .zip(reference)
                .zip(candidate)
                .zip(&vector)
                .filter(|(((flat, _), _), _)| case.fits(*flat))
            {
                xy += (r - b) * (c - b);
                xx += (r - b) * (r - b);
                if step == 0 {
                    difference += (c - r) * (c - r);
                }
            }
            *factor = if xx > 0.0 { xy / xx } else { 1.0 };
        }
        // A few rows are a place: a row that agrees has the factor 1 around any vector.
        if step == 0
            && 2 * factors
                .iter()
                .filter(|factor| is_changed(case, **factor))
                .count()
                < rows.len()
        {
            return None;
        }
        let mut left = 0.0;
        let (mut xy, mut xx) = (vec![0.0; width], vec![0.0; width]);
        for (row, factor) in rows.iter().zip(&factors) {
            let (members, reference, candidate) = both(*row);
            for (channel, _) in members.enumerate().filter(|(_, flat)| case.fits(*flat)) {
                let beyond = candidate[channel] - factor * reference[channel];
                xy[channel] += (1.0 - factor) * beyond;
                xx[channel] += (1.0 - factor) * (1.0 - factor);
                left += (beyond - (1.0 - factor) * vector[channel]).powi(2);
            }
        }
        for ((b, xy), xx) in vector.iter_mut().zip(xy).zip(xx) {
            *b = if xx > 0.0 { xy / xx } else { 0.0 };
        }
        let has_settled = left > SETTLED * before;
        before = left;
        if has_settled {
            break;
        }
    }
    Some(Settled {
        factors,
        vector,
        left: before / difference,
    })
}

/// A factor per row of what is beyond one vector: `c - b = s (r - b)`. Another epsilon in a norm that has a bias `b`, which is added behind the factor.
fn around(case: &Case<'_>) -> Option<Explanation> {
    let width = *case.dims.last().filter(|width| **width >= LEAST_WIDTH)?;
    let rows = case.reference.len() / width;
    let freedom = rows + width;
    if rows < LEAST_ROWS || 3 * freedom > case.reference.len() || !case.is_finite() {
        return None;
    }
    if case.reference.len() > LARGE {
        // On few rows a fit only leaves less.
        let some: Vec<usize> = (0..rows)
            .step_by((rows / (SOME_VALUES / width).max(SOME_ROWS)).max(1))
            .collect();
        settle(case, width, &some).filter(|some| some.left <= 1.0 - crate::WORTH_SAYING)?;
    }
    let Settled {
        factors, vector, ..
    } = settle(case, width, &(0..rows).collect::<Vec<usize>>())?;
    let predicted: Vec<f64> = (case.reference.iter().enumerate())
        .map(|(flat, r)| {
            factors[flat / width] * r + (1.0 - factors[flat / width]) * vector[flat % width]
        })
        .collect();
    let square =
        |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let scaled = square(
        &mut case
            .reference
            .iter()
            .enumerate()
            .map(|(flat, r)| (factors[flat / width] - 1.0) * r),
    );
    let added = square(
        &mut (0..case.reference.len())
            .map(|flat| (1.0 - factors[flat / width]) * vector[flat % width]),
    );
    let size = square(&mut case.reference.iter().copied()) / case.reference.len() as f64;
    let large =
        square(&mut vector.iter().copied()) / width as f64 > LARGEST_VECTOR * LARGEST_VECTOR * size;
    let (least, most) = (
        factors.iter().copied().fold(f64::INFINITY, f64::min),
        factors.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    );
    // Many rows that are zero, or that have one factor, are a place too: a head. An epsilon leaves something, and of each row as much as it is large.
    let others = || {
        factors
            .iter()
            .copied()
            .filter(|factor| is_changed(case, *factor))
    };
    let apart = others().fold(f64::NEG_INFINITY, f64::max) - others().fold(f64::INFINITY, f64::min);
    let is_place =
        2 * others().count() < rows || least < LEAST_FACTOR || apart <= 2.0 * case.noise[0];
    if large || scaled < LEAST_OF_FACTORS * added || most - least <= 2.0 * case.noise[0] || is_place
    {
        return None;
    }
    Some(Explanation {
        kind: CauseKind::RowScale,
        text: format!(
            "candidate - b = (reference - b) x one factor per row ({} to {}), with one vector b: another epsilon in a norm that has a bias",
            short(least),
            short(most)
        ),
        details: facts::RowScale::AroundVector {
            axes: (0..case.dims.len() - 1).collect(),
            factors: [least, most],
            around_a_vector: true,
        }
        .into(),
        class: Class::Mechanism,
        freedom,
        predicted: Predicted::Values(predicted),
    })
}

/// A map with fewer places says too little for two numbers.
const LEAST_PLACES: usize = 16;
/// Of the difference at most this much may be left.
const LEFT: f64 = 0.1;

/// A factor and a number for every map of every image: a norm over groups of maps with another epsilon or other statistics, behind which each map has
/// its weight and bias.
fn of_maps(case: &Case<'_>) -> Option<Explanation> {
    let [images, maps, height, width] = *case.dims else {
        return None;
    };
    let (rows, places) = (images * maps, height * width);
    if images < 2 || maps < 2 || height < 2 || places < LEAST_PLACES || !case.is_finite() {
        return None;
    }
    let mut predicted = case.reference.to_vec();
    let mut factors = Vec::with_capacity(rows);
    for row in 0..rows {
        let members = row * places..(row + 1) * places;
        let (mut n, mut r1, mut c1, mut rr, mut rc) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for flat in members.clone().filter(|flat| case.fits(*flat)) {
            let (r, c) = (case.reference[flat], case.candidate[flat]);
            (n, r1, c1, rr, rc) = (n + 1.0, r1 + r, c1 + c, rr + r * r, rc + r * c);
        }
        let spread = rr - r1 * r1 / n;
        if n < 4.0 || spread <= 0.0 {
            return None;
        }
        let factor = (rc - r1 * c1 / n) / spread;
        let number = (c1 - factor * r1) / n;
        members.for_each(|flat| predicted[flat] = factor * predicted[flat] + number);
        factors.push(factor);
    }
    let square = |other: &[f64]| {
        other
            .iter()
            .zip(case.candidate)
            .map(|(p, c)| (c - p) * (c - p))
            .sum::<f64>()
    };
    let (least, most) = (
        factors.iter().copied().fold(f64::INFINITY, f64::min),
        factors.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    );
    let changed = factors
        .iter()
        .filter(|factor| (*factor - 1.0).abs() > 2.0 * case.noise[2])
        .count();
    if square(&predicted) > LEFT * square(case.reference) || 4 * changed < 3 * rows || least <= 0.0
    {
        return None;
    }
    Some(Explanation {
        kind: CauseKind::RowScale,
        text: format!(
            "candidate = reference x a factor per map ({} to {}) + a number per map: a norm over groups of maps with another epsilon or other statistics",
            short(least),
            short(most)
        ),
        details: facts::RowScale::Maps {
            axes: vec![0, 1],
            factors: [least, most],
        }
        .into(),
        class: Class::Mechanism,
        freedom: 2 * rows,
        predicted: Predicted::Values(predicted),
    })
}

/// What a step leaves of the error when it no longer helps.
const SETTLED: f64 = 0.999;
const LEAST_WIDTH: usize = 8;
const LEAST_ROWS: usize = 6;

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
        kind: CauseKind::RowScale,
        text: format!(
            "candidate = reference x one factor per row ({said}, {} to {}){meaning}",
            short(range[0]),
            short(range[2])
        ),
        details: facts::RowScale::Factors {
            axes: axes.to_vec(),
            factors: range,
            changed: fit.changed,
            epsilons: epsilons
                .as_ref()
                .map(|found| [found.reference, found.candidate]),
            input: epsilons.map(|found| found.input),
        }
        .into(),
        class: Class::Mechanism,
        freedom: fit.groups.count,
        predicted: Predicted::Values(fit.predicted(case)),
    }
}

/// `1e-6`, as people write it.
fn epsilon(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else {
        format!("{value:e}")
    }
}

/// The epsilons that make the factors from a recorded input.
struct Epsilons {
    input: String,
    reference: f64,
    candidate: f64,
}

/// What people write. None is another by rounding.
const USUAL: [f64; 13] = [
    0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 5e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1,
];
/// Inputs looked at, nearest first.
const INPUTS: usize = 6;
/// How much of the factors' distance from 1 may be left.
const RESEMBLANCE: f64 = 0.05;

fn epsilons(case: &Case<'_>, fit: &Factors) -> Option<Epsilons> {
    let entries = case.scene.entries();
    let same = |at: &usize| {
        !entries[*at].parameter
            && entries[*at].dims.iter().product::<usize>() == case.reference.len()
    };
    let mut best: Option<(f64, Epsilons)> = None;
    for at in (0..case.pair).rev().filter(same).take(INPUTS) {
        let Some(loaded) = case
            .scene
            .load(at)
            .filter(|loaded| loaded.reference.len() == case.reference.len())
        else {
            continue;
        };
        for centred in [false, true] {
            let squares = mean_squares(&fit.groups, &loaded.reference, centred);
            if let Some((left, [reference, candidate])) = closest(&fit.factors, &squares)
                && best.as_ref().is_none_or(|(least, _)| left < *least)
            {
                best = Some((
                    left,
                    Epsilons {
                        input: entries[at].name.clone(),
                        reference,
                        candidate,
                    },
                ));
            }
        }
    }
    best.map(|(_, epsilons)| epsilons)
}

/// The usual epsilons of reference and candidate that come closest to the factors, if close enough, and the share they leave.
fn closest(factors: &[f64], squares: &[f64]) -> Option<(f64, [f64; 2])> {
    let whole: f64 = factors
        .iter()
        .map(|factor| (factor - 1.0) * (factor - 1.0))
        .sum();
    let mut best = (RESEMBLANCE * RESEMBLANCE * whole, None);
    for reference in USUAL {
        for candidate in USUAL
            .into_iter()
            .filter(|candidate| *candidate != reference)
        {
            let factor = |square: f64| ((square + reference) / (square + candidate)).sqrt();
            let left: f64 = factors
                .iter()
                .zip(squares)
                .map(|(found, square)| (found - factor(*square)).powi(2))
                .sum();
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
    squares
        .iter()
        .zip(&sums)
        .map(|(square, sum)| square / size - if centred { (sum / size).powi(2) } else { 0.0 })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::array::energy;
    use crate::testing::{Recorded, examine_in, examine_noisy, examine_pair, normal, proven};
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    fn norm(row: &[f64], epsilon: f64) -> Vec<f64> {
        row.iter()
            .map(|x| x / (energy(row) / row.len() as f64 + epsilon).sqrt())
            .collect()
    }

    #[test]
    fn the_epsilons_of_a_norm_are_told_from_its_input() {
        let hidden: Vec<f64> = normal(22 * 48, 1)
            .iter()
            .enumerate()
            .map(|(at, x)| x * 0.01 * (1.0 + (at / 48) as f64))
            .collect();
        let with = |epsilon: f64| {
            hidden
                .chunks(48)
                .flat_map(|row| norm(row, epsilon))
                .collect::<Vec<f64>>()
        };
        let run = [
            Recorded {
                name: "hidden",
                dims: vec![2, 11, 48],
                reference: hidden.clone(),
                candidate: hidden.clone(),
            },
            Recorded {
                name: "norm",
                dims: vec![2, 11, 48],
                reference: with(1e-6),
                candidate: with(1e-5),
            },
        ];
        let best = &examine_in(&run, "norm").0.found[0];
        assert!(best.score.proven);
        assert_eq!(best.explanation.kind.name(), "row_scale");
        assert_eq!(
            best.explanation.details.json()["epsilons"],
            serde_json::json!([1e-6, 1e-5])
        );
        assert!(
            best.explanation
                .text
                .ends_with("a norm of `hidden` with epsilon 1e-5 where the reference has 1e-6")
        );
    }

    #[test]
    fn weights_of_experts_that_were_not_renormalised_have_a_factor_per_row() {
        let scores = normal(24 * 4, 3);
        let (mut reference, mut candidate) = (Vec::new(), Vec::new());
        for row in scores.chunks(4) {
            let mut powers: Vec<f64> = row.iter().map(|score| score.exp()).collect();
            let all: f64 = powers.iter().sum();
            powers.sort_by(|a, b| b.total_cmp(a));
            reference.extend(
                powers[..2]
                    .iter()
                    .map(|power| power / (powers[0] + powers[1])),
            );
            candidate.extend(powers[..2].iter().map(|power| power / all));
        }
        let found = examine_pair(&[2, 12, 2], reference.clone(), candidate.clone());
        assert_eq!(proven(&found), Some("row_scale"));
        assert!(
            found.found[0]
                .explanation
                .text
                .contains("not made to sum to 1")
        );
        assert_eq!(
            proven(&examine_noisy(
                &[2, 12, 2],
                reference.clone(),
                candidate.clone()
            )),
            Some("row_scale")
        );
        assert_eq!(
            proven(&examine_pair(&[2, 12, 2], candidate, reference.clone())),
            Some("row_scale")
        );
        // Other weights that do not sum to one either are not the same ones unscaled.
        let other: Vec<f64> = reference
            .iter()
            .zip(normal(48, 9))
            .map(|(r, n)| 0.7 * (r + 0.1 * n).clamp(0.0, 1.0))
            .collect();
        assert_ne!(
            proven(&examine_pair(&[2, 12, 2], reference, other)),
            Some("row_scale")
        );
    }

    #[test]
    fn the_epsilon_of_a_layer_norm_with_a_bias_is_a_factor_per_row() {
        // Also where some rows are tried first.
        for rows in [40, super::LARGE / 32 + 1] {
            let (weight, bias) = (normal(32, 4), normal(32, 5));
            let hidden: Vec<f64> = normal(rows * 32, 1)
                .iter()
                .enumerate()
                .map(|(at, x)| x * 0.2 * (1.0 + (at / 32 % 7) as f64))
                .collect();
            let with = |epsilon: f64| -> Vec<f64> {
                let normed = hidden.chunks(32).flat_map(|row| {
                    let mean = row.iter().sum::<f64>() / 32.0;
                    norm(&row.iter().map(|x| x - mean).collect::<Vec<_>>(), epsilon)
                });
                normed
                    .enumerate()
                    .map(|(flat, x)| (1.0 + 0.2 * weight[flat % 32]) * x + 0.4 * bias[flat % 32])
                    .collect()
            };
            let found = examine_pair(&[rows, 32], with(1e-5), with(0.1));
            assert_eq!(proven(&found), Some("row_scale"), "{rows} rows");
            // A vector added is none.
            let moved = with(1e-5)
                .iter()
                .enumerate()
                .map(|(flat, x)| x + bias[flat % 32])
                .collect();
            assert_eq!(
                proven(&examine_pair(&[rows, 32], with(1e-5), moved)),
                Some("offset"),
                "{rows} rows"
            );
        }
    }

    #[test]
    fn the_epsilon_of_a_group_norm_is_a_factor_per_map() {
        let (images, maps, places) = (2, 8, 36);
        let hidden: Vec<f64> = normal(images * maps * places, 1)
            .iter()
            .enumerate()
            .map(|(at, x)| x * (0.2 + 0.1 * (at / 144) as f64))
            .collect();
        let (weight, bias) = (normal(maps, 2), normal(maps, 3));
        // Groups of four maps.
        let with = |epsilon: f64| -> Vec<f64> {
            let normed = hidden.chunks(4 * places).flat_map(|group| {
                let mean = group.iter().sum::<f64>() / group.len() as f64;
                norm(&group.iter().map(|x| x - mean).collect::<Vec<_>>(), epsilon)
            });
            normed
                .enumerate()
                .map(|(at, x)| {
                    (1.0 + 0.3 * weight[at / places % maps]) * x + bias[at / places % maps]
                })
                .collect()
        };
        assert_eq!(
            proven(&examine_pair(&[2, 8, 6, 6], with(1e-6), with(0.05))),
            Some("row_scale")
        );
    }

    #[test]
    fn one_of_two_heads_that_is_zero_is_a_place_and_no_row_scale() {
        let reference = normal(3 * 2 * 13 * 24, 1);
        let zeroed = reference
            .iter()
            .enumerate()
            .map(|(at, r)| if at / (13 * 24) % 2 == 1 { 0.0 } else { *r })
            .collect();
        assert_eq!(
            proven(&examine_pair(&[3, 2, 13, 24], reference, zeroed)),
            Some("localized")
        );
    }

    #[test]
    fn one_row_with_a_factor_is_a_place_and_no_row_scale() {
        let reference = normal(22 * 48, 1);
        let candidate = reference
            .iter()
            .enumerate()
            .map(|(at, r)| if at / 48 == 3 { 1.5 * r } else { *r })
            .collect();
        let found = examine_pair(&[22, 48], reference, candidate);
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::RowScale)
        );
    }

    #[test]
    fn probabilities_that_a_sink_takes_from_have_a_factor_per_row_also_where_a_row_is_one_value() {
        // Causal rows: the first has one probability, the last has eight.
        let (mut reference, mut candidate) = (Vec::new(), Vec::new());
        for (row, scores) in normal(64 * 8, 5).chunks(8).enumerate() {
            let seen: Vec<f64> = scores[..=row % 8].iter().map(|score| score.exp()).collect();
            let sum: f64 = seen.iter().sum();
            let one = |total: f64| {
                (0..8).map(move |key| {
                    if key <= row % 8 {
                        scores[key].exp() / total
                    } else {
                        0.0
                    }
                })
            };
            reference.extend(one(sum));
            candidate.extend(one(sum + 0.5f64.exp()));
        }
        assert_eq!(
            proven(&examine_pair(&[8, 8, 8], reference, candidate)),
            Some("row_scale")
        );
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
