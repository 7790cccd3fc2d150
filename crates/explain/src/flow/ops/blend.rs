//! Two tensors with a factor each: the difference of two that are nearly equal, a moving average, a residual with a scale, a sampler's step.

use super::{Learned, Op, is_near};
use crate::{
    Loaded,
    array::energy,
    constants::short,
    flow::{Site, of},
};
use std::sync::Arc;

pub(super) struct Blend;

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

    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
        let elements = site.elements();
        let Some(wanted) = site.sketch() else {
            return Vec::new();
        };
        let size = energy(&wanted);
        let same =
            |at: &usize| site.scene.entries()[*at].dims.iter().product::<usize>() == elements;
        let sketched = site
            .before
            .iter()
            .copied()
            .filter(same)
            .filter_map(|at| Some((at, site.scene.sketch(at)?[0].clone())));
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
                let terms = site.load(x.at).zip(site.load(y.at));
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

fn blend(site: &Site<'_>, terms: [(usize, Arc<Loaded>); 2], factors: [f64; 2]) -> Learned {
    let inputs: Vec<usize> = terms.iter().map(|(at, _)| *at).collect();
    let named = inputs
        .iter()
        .zip(factors)
        .map(|(at, factor)| (site.scene.entries()[*at].name.as_str(), factor));
    // What is added first, what is taken away behind it.
    let (plus, minus): (Vec<_>, Vec<_>) = named.partition(|(_, factor)| *factor > 0.0);
    let text = |(name, factor): &(&str, f64)| {
        if factor.abs() == 1.0 {
            (*name).to_owned()
        } else {
            format!("{} {name}", short(factor.abs()))
        }
    };
    let added = plus.iter().map(text).collect::<Vec<_>>().join(" + ");
    let formula = minus.iter().fold(added, |formula, term| {
        format!("{formula} - {}", text(term))
            .trim_start()
            .to_owned()
    });
    let width = site.width();
    Learned {
        formula,
        inputs,
        terms: 0,
        work: 0,
        looseness: 1.0,
        off: [0.0; 4],
        on_some_rows: false,
        predict: Box::new(move |side, picked| {
            let [x, y] = [0, 1].map(|nth| picked.of(of(&terms[nth].1, side), width));
            Some(
                x.iter()
                    .zip(y.iter())
                    .map(|(x, y)| factors[0] * x + factors[1] * y)
                    .collect(),
            )
        }),
        variants: Vec::new(),
        telling: None,
        borrows: false,
    }
}
