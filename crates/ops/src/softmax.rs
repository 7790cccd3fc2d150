//! A softmax along the last dimension of what is recorded: scores with their mask, a router's logits.

use crate::{
    Alternative, Change, Input, Learned, Op, Out, Picked, Predict, Scaled, Site, constants::named,
    learned::roughly,
};
use twinscope_tensor::formula::{Constant, Formula};

pub(crate) struct Softmax;

/// Rows that are looked at before all are read.
const FEW_ROWS: usize = 4;
/// Floors that it may be off: an exponential makes relative errors of absolute ones.
const LOOSENESS: f64 = 16.0;

impl Op for Softmax {
    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let (width, dims) = (site.width(), site.dims());
        let Some(first) = site.run.beginning(site.at, FEW_ROWS * width) else {
            return Vec::new();
        };
        let is_one = |row: &[f64]| {
            row.iter().all(|p| (0.0..=1.001).contains(p))
                && (row.iter().sum::<f64>() - 1.0).abs() < 0.05
        };
        if width < 2 || !first.chunks_exact(width).all(is_one) {
            return Vec::new();
        }
        let alike = |at: &&usize| site.run.dims(**at) == dims;
        let promises = |at: &usize| {
            let given = site.run.beginning(*at, FEW_ROWS * width);
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
            Input::read(site.run, at)
                .into_iter()
                .flat_map(move |input| MASKS.map(|mask| made(site, at, &input, mask)))
        };
        inputs.flat_map(with_masks).collect()
    }
}

/// Who says what is masked.
#[derive(Clone, Copy, PartialEq)]
enum Mask {
    /// The probabilities it was learned on, however large the number that stands for it in the scores is.
    Learned,
    /// The scores, each run's own: a mask that is wrong there is no second fault here.
    Scores,
}

/// Where both make the probabilities, another run says which it follows.
const MASKS: [Mask; 2] = [Mask::Learned, Mask::Scores];

/// Of one row, of which the keys are seen whose probabilities are not 0.
fn softmax(row: &[f64], probabilities: &[f64], scale: f64) -> Vec<f64> {
    of_seen(row, |t| probabilities[t] > 0.0, scale)
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

/// The factor between logits and log-odds, within rows.
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

fn made<'a>(site: &Site<'a>, input: usize, given: &Input, mask: Mask) -> Learned<'a> {
    let width = site.width();
    let (given, support) = (given.clone(), site.out.whole().clone());
    let over = {
        let given = given.clone();
        move |scale: f64| -> Predict {
            let (given, support) = (given.clone(), support.clone());
            Box::new(move |run, picked: Picked<'_>| {
                let values = given.on(run)?;
                let (given, support) = (picked.of(&values, width), picked.of(&support, width));
                let rows = given.chunks_exact(width).zip(support.chunks_exact(width));
                let made = rows.flat_map(|(row, support)| match mask {
                    Mask::Learned => softmax(row, support, scale),
                    Mask::Scores => of_seen(row, |_| true, scale),
                });
                Some(made.collect())
            })
        }
    };
    let predict = over(1.0);
    let alternatives = move |out: &Out<'_>| {
        let scale = given
            .on(out.run)
            .map_or(f64::NAN, |logits| fitted(&logits, out, width));
        let differs = scale.is_finite() && (scale - 1.0).abs() > 0.01;
        let other = differs.then(|| Alternative {
            change: Change::SoftmaxScale {
                scale: named(scale, &[width], 1e-3),
                of: Constant {
                    value: 1.0,
                    name: None,
                },
                scaled: Scaled::Logits(input),
            },
            fitted: true,
            predict: over(scale),
        });
        other.into_iter().collect()
    };
    Learned {
        terms: width,
        looseness: LOOSENESS,
        alternatives: Some(Box::new(alternatives)),
        ..Learned::new(
            Formula::Softmax(Formula::boxed(site.name(input))),
            vec![input],
            predict,
        )
    }
}
