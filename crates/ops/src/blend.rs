//! Two tensors with a factor each: the difference of two that are nearly equal, a moving average, a residual with a scale, a sampler's step.

use crate::{Input, Learned, Op, Picked, Run, Site, array::energy, learned::is_near};
use std::sync::Arc;
use twinscope_tensor::formula::Formula;

pub(crate) struct Blend;

/// Formulas that are looked at whole.
const MOST: usize = 4;

/// A factor is believed to be a short number within so many of its own uncertainties.
const UNCERTAIN: f64 = 8.0;

/// Two tensors that are nearer to a multiple of each other, as the square of the sine between them, have no factors of their own.
const PARALLEL: f64 = 1e-9;

/// A term counts when it is so many roundings of the whole.
const COUNTS: f64 = 64.0;

impl Op for Blend {
    /// Two factors are fitted: whatever has none is simpler.
    fn is_last_resort(&self) -> bool {
        true
    }

    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let elements = site.elements();
        let Some(wanted) = site.sketch() else {
            return Vec::new();
        };
        let size = energy(&wanted);
        let same = |at: &usize| site.run.elements(*at) == elements;
        let sketched = site
            .before
            .iter()
            .copied()
            .filter(same)
            .filter_map(|at| Some((at, site.run.sketch(at)?)));
        let terms: Vec<Term> = sketched
            .filter_map(|(at, values)| Term::new(at, values, &wanted))
            .collect();
        let most = site.floor[1] * site.floor[1] * size;
        if most.is_nan() || most <= 0.0 {
            return Vec::new();
        }
        let mut learned = Vec::new();
        for (nth, x) in terms.iter().enumerate() {
            for y in &terms[nth + 1..] {
                let Some(factors) = fitted(x, y, site.floor[0] * size.sqrt()) else {
                    continue;
                };
                let made = |factors: [f64; 2]| {
                    x.values
                        .iter()
                        .zip(&*y.values)
                        .map(move |(x, y)| factors[0] * x + factors[1] * y)
                };
                let near =
                    |factors: &[f64; 2]| is_near(made(*factors), wanted.iter().copied(), most);
                let Some(factors) = [
                    factors.map(|factor| factor.rounded()),
                    factors.map(|factor| factor.value),
                ]
                .into_iter()
                .find(near) else {
                    continue;
                };
                let read = |term: &Term| Input::read(site.run, term.at);
                let terms = read(x).zip(read(y));
                learned.extend(
                    terms.map(|(first, second)| {
                        blend(site, [(x.at, first), (y.at, second)], factors)
                    }),
                );
                if learned.len() == MOST {
                    return learned;
                }
            }
        }
        learned
    }
}

/// A tensor that may be one of the two, on a few values.
struct Term {
    at: usize,
    values: Arc<[f64]>,
    energy: f64,
    /// Its product with what is wanted.
    along: f64,
}

impl Term {
    fn new(at: usize, values: Arc<[f64]>, wanted: &[f64]) -> Option<Self> {
        let (energy, along) = (
            energy(&values),
            values.iter().zip(wanted).map(|(x, w)| x * w).sum::<f64>(),
        );
        (energy > 0.0 && energy.is_finite() && along.is_finite()).then_some(Self {
            at,
            values,
            energy,
            along,
        })
    }
}

#[derive(Clone, Copy)]
struct Factor {
    value: f64,
    uncertainty: f64,
}

impl Factor {
    /// The shortest number that it may be.
    fn rounded(self) -> f64 {
        let digits = [1.0, 10.0, 100.0, 1000.0];
        let shorter = digits
            .into_iter()
            .map(|power| (self.value * power).round() / power);
        shorter
            .into_iter()
            .find(|short| (short - self.value).abs() <= UNCERTAIN * self.uncertainty)
            .unwrap_or(self.value)
    }
}

/// The factors that come nearest, `rounding` being what each value is off by, all together. `None` where there are no two.
fn fitted(x: &Term, y: &Term, rounding: f64) -> Option<[Factor; 2]> {
    let xy: f64 = x.values.iter().zip(&*y.values).map(|(x, y)| x * y).sum();
    let area = x.energy * y.energy - xy * xy;
    if area.is_nan() || area <= PARALLEL * x.energy * y.energy {
        return None;
    }
    let factor = |own: &Term, other: &Term| Factor {
        value: (own.along * other.energy - other.along * xy) / area,
        uncertainty: rounding * (other.energy / area).sqrt() / (own.values.len() as f64).sqrt(),
    };
    let both = [factor(x, y), factor(y, x)];
    let counts = |(factor, term): (&Factor, &Term)| {
        factor.value.abs() * term.energy.sqrt() > COUNTS * rounding
    };
    both.iter().zip([x, y]).all(counts).then_some(both)
}

fn blend<'a>(site: &Site<'a>, terms: [(usize, Input); 2], factors: [f64; 2]) -> Learned<'a> {
    let inputs: Vec<usize> = terms.iter().map(|(at, _)| *at).collect();
    let with_factors = inputs
        .iter()
        .zip(factors)
        .map(|(at, factor)| (factor, Formula::tensor(site.name(*at))));
    let formula = Formula::Blend(with_factors.collect());
    let width = site.width();
    let predict = move |run: &dyn Run, picked: Picked<'_>| {
        let [(_, x), (_, y)] = &terms;
        let (x, y) = (x.on(run)?, y.on(run)?);
        let (x, y) = (picked.of(&x, width), picked.of(&y, width));
        let one = |(x, y): (&f64, &f64)| factors[0] * x + factors[1] * y;
        Some(x.iter().zip(y.iter()).map(one).collect())
    };
    Learned::new(formula, inputs, Box::new(predict))
}
