//! A term too few or too many: the residual dropped or added twice, the MLP not added, one tensor added where another belongs.
//!
//! With `d = c - r`: `d = k y` for a recorded `y` of as many elements, or of fewer when it repeats over the leading dimensions (a position
//! embedding); or `d = y - z`, the wrong term. The candidate's own tensor is preferred: what it added is what it had. Vectors are left to the
//! offset, which finds them recorded or not.

use super::{
    elsewhere::{Elsewhere, alike, side, varies},
    near::{close, typical},
};
use crate::{
    Case, Class, Examined, Explanation, Hypothesis, Sketch, case::Predicted, constants::short,
    scattered,
};
use twinscope_compare::layout::Which;
use twinscope_report::{CauseKind, facts};
use twinscope_tensor::Side;

#[derive(Debug)]
pub(super) struct Terms;

/// Others of which every two are tried as the wrong and the right term.
const TWO: usize = 48;
/// Smaller tensors that may repeat.
const SMALLER: usize = 64;

impl Hypothesis for Terms {
    fn name(&self) -> &'static str {
        "missing_term"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let here = Elsewhere::of(case)?;
        let difference: Vec<f64> = here
            .candidate
            .iter()
            .zip(&here.reference)
            .map(|(c, r)| c - r)
            .collect();
        if difference.iter().any(|d| !d.is_finite()) {
            return Err("not all values are finite".into());
        }
        let alike: Vec<&Sketch> = here
            .others
            .iter()
            .filter(|other| usable(other, case))
            .collect();
        let one = alike.iter().find_map(|other| {
            let k = factor(&here, &difference, &other.values)?;
            let values = case.scene.whole(other)?;
            Some(explanation(case, &other.name, other.side, k, &values))
        });
        let found = one
            .or_else(|| repeated(case, &here, &difference))
            .or_else(|| two(case, &here, &alike));
        found
            .map(|found| vec![found])
            .ok_or_else(|| "the difference is no multiple of a recorded tensor".into())
    }
}

/// Of the same dimensions, and neither a parameter among activations nor the other way round.
fn usable(other: &Sketch, case: &Case<'_>) -> bool {
    alike(&other.dims, case.dims) && other.parameter == case.scene.entries()[case.pair].parameter
}

/// A tensor under another name is as near as one rounding of a coarse dtype; the noise of a deep run would take a sum for its larger term.
const OTHER_NAME: f64 = 0.02;

/// `k` of `d = k y`, when that makes the candidate.
fn factor(here: &Elsewhere, difference: &[f64], y: &[f64]) -> Option<f64> {
    let finite = |(d, y): (&f64, &f64)| y.is_finite().then_some((*d, *y));
    let (mut dy, mut yy) = (0.0, 0.0);
    for (d, y) in difference.iter().zip(y).filter_map(finite) {
        dy += d * y;
        yy += y * y;
    }
    let k = snapped(dy / yy);
    let visible = here.tolerance().min(0.1) * typical(&here.candidate);
    if !k.is_finite() || k.abs() * typical(y) < visible || !varies(y) {
        return None;
    }
    // The reference itself under another name: then it is a factor, not a term.
    if proportional(&here.reference, y, here.tolerance().min(OTHER_NAME)) {
        return None;
    }
    let predicted: Vec<f64> = here
        .reference
        .iter()
        .zip(y)
        .map(|(r, y)| r + k * y)
        .collect();
    here.is_candidate(&predicted).then_some(k)
}

/// To the nearest of what programs multiply a term with, when it is near.
fn snapped(k: f64) -> f64 {
    let whole = [-2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0];
    whole
        .into_iter()
        .find(|whole: &f64| (k - whole).abs() < 0.01 * whole.abs())
        .unwrap_or(k)
}

fn proportional(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    let (ab, bb): (f64, f64) = a
        .iter()
        .zip(b)
        .fold((0.0, 0.0), |(ab, bb), (a, b)| (ab + a * b, bb + b * b));
    let (factor, rms) = (ab / bb, typical(a));
    a.iter()
        .zip(b)
        .all(|(a, b)| close(factor * b, *a, rms, tolerance))
}

fn explanation(case: &Case<'_>, name: &str, of: Which, k: f64, term: &[f64]) -> Explanation {
    let predicted = case
        .reference
        .iter()
        .enumerate()
        .map(|(at, r)| r + k * term[at % term.len()])
        .collect();
    let (kind, text) = said(name, side(of), k);
    Explanation {
        kind,
        text,
        details: facts::Term::Added {
            term: Some(name.to_owned()),
            side: side(of),
            factor: k,
        }
        .into(),
        class: Class::Mechanism,
        freedom: 1,
        predicted: Predicted::Values(predicted),
    }
}

fn said(name: &str, side: Side, k: f64) -> (CauseKind, String) {
    let kind = if k < 0.0 {
        CauseKind::MissingTerm
    } else {
        CauseKind::ExtraTerm
    };
    let text = if k == -1.0 {
        format!("the candidate lacks a term: the {side}'s `{name}` is not added")
    } else if k == 1.0 {
        format!(
            "the candidate has a term too many: the {side}'s `{name}` is added once more than in the reference"
        )
    } else if k == -2.0 {
        format!("the candidate subtracts the {side}'s `{name}` where the reference adds it")
    } else {
        let (word, k) = if k < 0.0 { ("less", -k) } else { ("more", k) };
        format!(
            "the candidate has {} times the {side}'s `{name}` {word} than the reference",
            short(k)
        )
    };
    (kind, text)
}

/// A tensor that repeats over the leading dimensions.
fn repeated(case: &Case<'_>, here: &Elsewhere, difference: &[f64]) -> Option<Explanation> {
    let mut near: Vec<usize> = (0..case.scene.entries().len())
        .filter(|at| *at != case.pair)
        .collect();
    near.sort_by_key(|at| at.abs_diff(case.pair));
    let trailing = |at: &usize| {
        let dims: Vec<usize> = case.scene.entries()[*at]
            .dims
            .iter()
            .copied()
            .skip_while(|dim| *dim == 1)
            .collect();
        dims.len() >= 2
            && dims.len() < case.dims.len()
            && case.dims.ends_with(&dims)
            && dims.iter().product::<usize>() < case.reference.len()
    };
    for at in near.into_iter().filter(trailing).take(SMALLER) {
        let loaded = case.scene.load(at)?;
        for (side, term) in [
            (Which::Candidate, &loaded.candidate),
            (Which::Reference, &loaded.reference),
        ] {
            let y: Vec<f64> = scattered(case.reference.len())
                .map(|at| term[at % term.len()])
                .collect();
            if let Some(k) = factor(here, difference, &y) {
                return Some(explanation(case, &case.scene.name(at, side), side, k, term));
            }
        }
    }
    None
}

/// One term where another belongs: `d = y - z`, `y` of the candidate and `z` of the reference.
fn two(case: &Case<'_>, here: &Elsewhere, alike: &[&Sketch]) -> Option<Explanation> {
    // What comes later was made of this one: it differs by what this one differs by, and explains nothing.
    let earlier = |other: &&&Sketch| other.pair.is_none_or(|pair| pair < case.pair);
    let of = |side: Which| {
        alike
            .iter()
            .filter(move |other| other.side == side)
            .filter(earlier)
            .take(TWO)
    };
    for added in of(Which::Candidate).filter(|other| varies(&other.values)) {
        for lacking in of(Which::Reference).filter(|other| other.pair != added.pair) {
            let predicted = here
                .reference
                .iter()
                .zip(added.values.iter().zip(lacking.values.iter()))
                .map(|(r, (y, z))| r + y - z);
            let predicted: Vec<f64> = predicted.collect();
            if !here.is_candidate(&predicted)
                || here.same(&added.values, &lacking.values)
                || here.same(&here.reference, &lacking.values)
                || here.same(&here.candidate, &added.values)
            {
                continue;
            }
            let (y, z) = (case.scene.whole(added)?, case.scene.whole(lacking)?);
            return Some(Explanation {
                kind: CauseKind::MissingTerm,
                text: format!(
                    "the candidate adds its `{}` where the reference adds its `{}`",
                    added.name, lacking.name
                ),
                details: facts::Term::Instead {
                    term: lacking.name.clone(),
                    side: Side::Reference,
                    factor: -1.0,
                    instead: added.name.clone(),
                }
                .into(),
                class: Class::Mechanism,
                freedom: 2,
                predicted: Predicted::Values(
                    case.reference
                        .iter()
                        .zip(y.iter().zip(&z))
                        .map(|(r, (y, z))| r + y - z)
                        .collect(),
                ),
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::{
        Examination,
        places::testing::bf16_noise,
        testing::{Recorded, examine_bf16, examine_in, normal, proven},
    };

    fn plus(a: &[f64], k: f64, b: &[f64]) -> Vec<f64> {
        a.iter().zip(b).map(|(a, b)| a + k * b).collect()
    }

    /// A residual stream whose sum the candidate makes of `x`, `y` and the norm of `x`.
    fn run(noise: f64, sum: impl Fn(&[f64], &[f64], &[f64]) -> Vec<f64>) -> Vec<Recorded> {
        let (x, norm, y) = (normal(960, 1), normal(960, 2), normal(960, 3));
        let noisy = |values: &[f64], seed: u64| bf16_noise(values, noise, seed);
        let (cx, cn, cy) = (noisy(&x, 4), noisy(&norm, 5), noisy(&y, 6));
        let (resid, wrong) = (plus(&x, 1.0, &y), noisy(&sum(&cx, &cy, &cn), 7));
        let one = |name, reference: &[f64], candidate: &[f64]| Recorded {
            name,
            dims: vec![2, 10, 48],
            reference: reference.to_vec(),
            candidate: candidate.to_vec(),
        };
        vec![
            one("x", &x, &cx),
            one("norm", &norm, &cn),
            one("attn", &y, &cy),
            one("resid", &resid, &wrong),
        ]
    }

    fn best(found: &Examination) -> (&'static str, String, f64) {
        let details = &found.found[0].explanation.details.json();
        (
            proven(found).unwrap_or("-"),
            details["term"].as_str().unwrap_or("-").to_owned(),
            details["factor"].as_f64().unwrap_or(0.0),
        )
    }

    #[test]
    fn a_dropped_residual_is_a_missing_term() {
        for noise in [0.0, 2e-3] {
            let run = run(noise, |_, y, _| y.to_vec());
            let found = if noise == 0.0 {
                examine_in(&run, "resid").0
            } else {
                examine_bf16(&run, "resid")
            };
            assert_eq!(best(&found), ("missing_term", "x".to_owned(), -1.0));
        }
    }

    #[test]
    fn a_residual_added_twice_is_an_extra_term() {
        for noise in [0.0, 2e-3] {
            let run = run(noise, |x, y, _| plus(y, 2.0, x));
            let found = if noise == 0.0 {
                examine_in(&run, "resid").0
            } else {
                examine_bf16(&run, "resid")
            };
            assert_eq!(best(&found), ("extra_term", "x".to_owned(), 1.0));
        }
    }

    #[test]
    fn a_term_with_a_factor_is_named_with_it() {
        let found = examine_in(&run(0.0, |x, y, _| plus(x, 0.22, y)), "resid").0;
        let (kind, term, factor) = best(&found);
        assert_eq!((kind, term.as_str()), ("missing_term", "attn"));
        assert!((factor + 0.78).abs() < 1e-4, "{factor}");
    }

    #[test]
    fn the_norm_added_where_the_residual_belongs_is_named() {
        let found = examine_in(&run(0.0, |_, y, norm| plus(y, 1.0, norm)), "resid").0;
        assert_eq!(best(&found), ("missing_term", "x".to_owned(), -1.0));
        assert_eq!(found.found[0].explanation.details.json()["instead"], "norm");
    }

    #[test]
    fn positions_that_are_not_added_are_a_missing_term() {
        let (tokens, positions) = (normal(960, 1), normal(480, 2));
        let sum: Vec<f64> = tokens
            .iter()
            .enumerate()
            .map(|(at, t)| t + positions[at % 480])
            .collect();
        let run = [
            Recorded {
                name: "wpe",
                dims: vec![1, 10, 48],
                reference: positions.clone(),
                candidate: positions,
            },
            Recorded {
                name: "embed",
                dims: vec![2, 10, 48],
                reference: sum,
                candidate: tokens,
            },
        ];
        assert_eq!(
            best(&examine_in(&run, "embed").0),
            ("missing_term", "wpe".to_owned(), -1.0)
        );
    }

    #[test]
    fn unrelated_values_lack_no_term() {
        let found = examine_in(&run(0.0, |_, _, _| normal(960, 9)), "resid").0;
        assert!(
            found
                .found
                .iter()
                .all(|found| !found.explanation.kind.name().ends_with("_term"))
        );
    }
}
