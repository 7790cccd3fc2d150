//! A softmax along the last dimension of what is recorded: scores with their mask, a router's logits.

use super::{Learned, Op, Picked, Predict, Variant, roughly};
use crate::{
    Loaded,
    constants::{factor, said},
    flow::{Site, of},
};
use std::sync::Arc;

pub(super) struct Softmax;

/// Rows that are looked at before all are read.
const FEW_ROWS: usize = 4;
/// Floors that it may be off: an exponential makes relative errors of absolute ones.
const LOOSENESS: f64 = 16.0;

impl Op for Softmax {
    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
        let (width, dims) = (site.width(), site.dims());
        let Some(first) = site.scene.beginning(site.pair, FEW_ROWS * width) else {
            return Vec::new();
        };
        let is_one = |row: &[f64]| {
            row.iter().all(|p| (0.0..=1.001).contains(p))
                && (row.iter().sum::<f64>() - 1.0).abs() < 0.05
        };
        if width < 2 || !first.chunks_exact(width).all(is_one) {
            return Vec::new();
        }
        let alike = |at: &&usize| site.scene.entries()[**at].dims == dims;
        let promises = |at: &usize| {
            let given = site.scene.beginning(*at, FEW_ROWS * width);
            given.is_some_and(|given| {
                let made = given
                    .chunks_exact(width)
                    .zip(first.chunks_exact(width))
                    .flat_map(|(row, wanted)| softmax(row, wanted, 1.0));
                roughly(made, first.iter().copied(), LOOSENESS * site.floor[1])
            })
        };
        let inputs = site.before.iter().filter(alike).copied().filter(promises);
        let with_masks = |at: usize| {
            site.load(at)
                .into_iter()
                .flat_map(move |loaded| MASKS.map(|mask| made(site, at, &loaded, mask)))
        };
        inputs.flat_map(with_masks).collect()
    }
}

/// Who says what is masked.
#[derive(Clone, Copy, PartialEq)]
enum Mask {
    /// The reference's probabilities, however large the number that stands for it in the scores is.
    Reference,
    /// The scores, each side's own: a mask that is wrong there is no second fault here.
    Scores,
}

/// Where both make the reference, the candidate says which it follows.
const MASKS: [Mask; 2] = [Mask::Reference, Mask::Scores];

/// Of one row, of which the keys are seen that are not masked by the probabilities of the reference.
fn softmax(row: &[f64], reference: &[f64], scale: f64) -> Vec<f64> {
    of_seen(row, |t| reference[t] > 0.0, scale)
}

fn of_seen(row: &[f64], sees: impl Fn(usize) -> bool, scale: f64) -> Vec<f64> {
    let seen = |(t, x): (usize, &f64)| {
        if sees(t) {
            scale * x
        } else {
            f64::NEG_INFINITY
        }
    };
    let scores: Vec<f64> = row.iter().enumerate().map(seen).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exp: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = exp.iter().sum();
    exp.iter()
        .map(|e| if sum > 0.0 { e / sum } else { 0.0 })
        .collect()
}

/// The factor between the logits and the log-odds of the candidate, within rows.
fn fitted(logits: &[f64], p: &[f64], width: usize) -> f64 {
    let (mut xy, mut xx) = (0.0, 0.0);
    for (x, p) in logits.chunks_exact(width).zip(p.chunks_exact(width)) {
        let used: Vec<usize> = (0..width)
            .filter(|t| p[*t] > 1e-5 && x[*t].is_finite())
            .collect();
        let mean = |of: &dyn Fn(usize) -> f64| {
            used.iter().map(|t| of(*t)).sum::<f64>() / used.len() as f64
        };
        let (x0, y0) = (mean(&|t| x[t]), mean(&|t| p[t].ln()));
        for t in used {
            xy += (x[t] - x0) * (p[t].ln() - y0);
            xx += (x[t] - x0) * (x[t] - x0);
        }
    }
    xy / xx
}

fn made(site: &Site<'_>, input: usize, loaded: &Arc<Loaded>, mask: Mask) -> Learned {
    let width = site.width();
    let name = &site.scene.entries()[input].name;
    let over = |scale: f64| -> Predict {
        let (loaded, out) = (loaded.clone(), site.out.whole().clone());
        Box::new(move |side, picked: Picked<'_>| {
            let (given, support) = (
                picked.of(of(&loaded, side), width),
                picked.of(&out.reference, width),
            );
            let rows = given.chunks_exact(width).zip(support.chunks_exact(width));
            let made = rows.flat_map(|(row, support)| match mask {
                Mask::Reference => softmax(row, support, scale),
                Mask::Scores => of_seen(row, |_| true, scale),
            });
            Some(made.collect())
        })
    };
    let scale = fitted(&loaded.candidate, &site.out.candidate, width);
    let variants = (scale.is_finite() && (scale - 1.0).abs() > 0.01).then(|| Variant {
        kind: "softmax_scale",
        text: format!(
            "softmax of {} x {name} where the reference has the softmax of {name}",
            said(scale, factor(scale, &[width], 1e-3).as_ref())
        ),
        details: serde_json::json!({"candidate": scale, "reference": 1.0, "ratio": scale}),
        fitted: true,
        predict: over(scale),
    });
    Learned {
        formula: format!("softmax({name})"),
        inputs: vec![input],
        terms: width,
        work: 0,
        looseness: LOOSENESS,
        off: [0.0; 4],
        on_some_rows: false,
        borrows: false,
        predict: over(1.0),
        variants: variants.into_iter().collect(),
        telling: None,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, normal, report_as};
    use twinscope_compare::{report::Report, verdict::Origin};
    use twinscope_tensor::DType;

    fn softmax(logits: &[f64], scale: f64) -> Vec<f64> {
        let row = |row: &[f64]| {
            let sum: f64 = row.iter().map(|x| (scale * x).exp()).sum();
            row.iter()
                .map(|x| (scale * x).exp() / sum)
                .collect::<Vec<_>>()
        };
        logits.chunks_exact(12).flat_map(row).collect()
    }

    fn report(scale: f64) -> Report {
        let logits: Vec<f64> = normal(20 * 12, 1).iter().map(|x| 3.0 * x).collect();
        let other: Vec<f64> = logits
            .iter()
            .zip(normal(240, 2))
            .map(|(x, n)| x + 0.2 * n)
            .collect();
        let probabilities = [softmax(&logits, 1.0), softmax(&other, scale)];
        let [reference, candidate] = probabilities;
        let run = [
            Recorded {
                name: "logits",
                dims: vec![20, 12],
                reference: logits,
                candidate: other,
            },
            Recorded {
                name: "probs",
                dims: vec![20, 12],
                reference,
                candidate,
            },
        ];
        report_as(DType::F32, &run)
    }

    #[test]
    fn probabilities_of_wrong_logits_inherit_that() {
        assert_eq!(report(1.0).pairs[1].origin(), Some(Origin::Inherited));
    }

    #[test]
    fn a_mask_that_is_wrong_in_the_scores_is_inherited_by_the_probabilities() {
        let logits: Vec<f64> = normal(20 * 12, 1).iter().map(|x| 3.0 * x).collect();
        let masked = |ahead: usize| -> Vec<f64> {
            let seen = |(at, x): (usize, &f64)| {
                if at % 12 <= at / 12 + ahead {
                    *x
                } else {
                    f64::NEG_INFINITY
                }
            };
            logits.iter().enumerate().map(seen).collect()
        };
        let (reference, candidate) = (masked(0), masked(1));
        let probabilities = [softmax(&reference, 1.0), softmax(&candidate, 1.0)];
        let run = |scores: [Vec<f64>; 2]| {
            let [reference, candidate] = scores;
            let [of_reference, of_candidate] = probabilities.clone();
            report_as(
                DType::F32,
                &[
                    Recorded {
                        name: "scores",
                        dims: vec![20, 12],
                        reference,
                        candidate,
                    },
                    Recorded {
                        name: "probs",
                        dims: vec![20, 12],
                        reference: of_reference,
                        candidate: of_candidate,
                    },
                ],
            )
        };
        let origin = |report: Report| report.pairs[1].origin();
        assert_eq!(
            origin(run([reference.clone(), candidate])),
            Some(Origin::Inherited)
        );
        assert_eq!(
            origin(run([reference.clone(), reference])),
            Some(Origin::Own),
            "of scores that are right"
        );
        assert_eq!(
            origin(run([logits.clone(), logits.clone()])),
            Some(Origin::Own),
            "and of scores before their mask"
        );
    }

    #[test]
    fn another_temperature_is_a_scale_of_the_logits() {
        let report = report(0.5);
        assert_eq!(
            (
                report.pairs[1].origin(),
                report.pairs[1].causes[0].kind.name()
            ),
            (Some(Origin::Own), "softmax_scale")
        );
    }
}
