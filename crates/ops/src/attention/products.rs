//! Scores as they are recorded before the softmax: products of queries and keys times one factor, perhaps capped, with what is masked at minus
//! infinity.
//!
//! A mask that is a large number instead is left to others: beside it nothing else has a size.

use super::{CAPS, FEW_ROWS, Heads, Likely, Scores, Sizes};
use crate::{
    Alternative, Change, Input, Learned, Op, Out, Picked, Predict, Run, Site, Values,
    constants::named,
    functions::{best_cap, softcap},
    learned::roughly,
    sampling::{sample, spread},
};
use std::sync::Arc;
use twinscope_tensor::formula::Formula;

pub(crate) struct Products;

/// Below, a number stands for a mask: no score is that low.
const MASKED: f64 = -1000.0;

/// Floors that a score may be off: products of large queries and keys cancel.
const LOOSENESS: f64 = 4.0;

impl Op for Products {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let Some(sizes) = Sizes::of_probabilities(site.dims())
            .filter(|sizes| sizes.keys > 1 && sizes.queries > 1)
        else {
            return Vec::new();
        };
        let possible = Scores::all(site, sizes);
        if possible.is_empty() {
            return Vec::new();
        }
        let Some(mut likely) = Likely::of(site, sizes, |score| score > MASKED) else {
            return Vec::new();
        };
        let (mut glance, mut learned) = (likely.glance(), Vec::new());
        for (inputs, scores) in possible {
            // Where a dimension happens to be as long as the prompt, any two tensors may be queries and keys.
            let has_signs =
                glance.has_signs(site, inputs, scores) && likely.has_signs(site, inputs, scores);
            let dots = if has_signs {
                likely.dots(site, inputs, scores)
            } else {
                None
            };
            let Some(dots) = dots else { continue };
            let both: Vec<(f64, f64)> = likely
                .rows
                .iter()
                .zip(dots)
                .flat_map(|(row, dots)| dots.into_iter().zip(row.probable.clone()))
                .collect();
            learned.extend(
                Made::near(&both, scores.query, site)
                    .and_then(|made| made.learn(site, inputs, scores)),
            );
        }
        learned
    }
}

/// What is done to the products.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Made {
    scale: f64,
    cap: Option<f64>,
}

impl Made {
    fn of(self, product: f64) -> f64 {
        let score = self.scale * product;
        self.cap.map_or(score, |cap| softcap(score, cap))
    }

    /// By what products become the scores of a few rows.
    fn near(both: &[(f64, f64)], query: Heads, site: &Site<'_>) -> Option<Self> {
        if both.len() < 2 * FEW_ROWS {
            return None;
        }
        let size = query.size as f64;
        let capped = CAPS.into_iter().flat_map(|cap| {
            [1.0 / size.sqrt(), 1.0].map(|scale| Self {
                scale,
                cap: Some(cap),
            })
        });
        let near = |made: &Self| {
            let tolerance = 2.0 * LOOSENESS * site.floor[1];
            made.scale.is_finite()
                && made.scale != 0.0
                && roughly(
                    both.iter().map(|(x, _)| made.of(*x)),
                    both.iter().map(|(_, y)| *y),
                    tolerance,
                )
        };
        std::iter::once(Self {
            scale: factor_of(both),
            cap: None,
        })
        .chain(capped)
        .find(near)
    }

    fn learn<'a>(self, site: &Site<'a>, [q, k]: [usize; 2], scores: Scores) -> Option<Learned<'a>> {
        let (query, key) = (Input::read(site.run, q)?, Input::read(site.run, k)?);
        let own = site.out.whole().clone();
        // A mask of large numbers.
        if own
            .iter()
            .any(|score| score.is_finite() && *score <= MASKED)
        {
            return None;
        }
        let all = Arc::new(All {
            query,
            key,
            own,
            scores,
            some: spread(site.rows(), SOME_ROWS).collect(),
        });
        let made = match self.cap {
            Some(_) => self,
            None => Self {
                scale: factor_of(&all.both(&site.out)?),
                cap: None,
            },
        };
        let name = |at: usize| Formula::boxed(site.name(at));
        let formula = Formula::Scores {
            query: name(q),
            key: name(k),
            scale: named(made.scale, &[scores.query.size], site.floor[0]),
            cap: made.cap,
            bias: None,
        };
        let predict = all.predict(made);
        let alternatives =
            move |out: &Out<'_>| all.alternatives([q, k], made, out).unwrap_or_default();
        Some(Learned {
            terms: scores.query.size,
            work: scores.work(),
            looseness: LOOSENESS,
            alternatives: Some(Box::new(alternatives)),
            ..Learned::new(formula, vec![q, k], predict)
        })
    }
}

/// Scores of any run, masked as those they were learned on.
struct All {
    query: Input,
    key: Input,
    own: Values,
    scores: Scores,
    /// Some rows, which say a factor and a cap.
    some: Vec<usize>,
}

impl All {
    /// Products of some rows; `None` of keys that are not seen.
    fn products(&self, run: &dyn Run, picked: Picked<'_>) -> Option<Vec<Option<f64>>> {
        let Sizes {
            heads,
            queries,
            keys,
            ..
        } = self.scores.sizes;
        let (query, key) = (self.query.on(run)?, self.key.on(run)?);
        let (query, key, own): (&[f64], &[f64], &[f64]) = (&query, &key, &self.own);
        let (mut all, mut row) = (Vec::with_capacity(picked.count() * keys), Vec::new());
        for at in picked.rows() {
            let sees = |key: usize| own[at * keys + key] > MASKED;
            self.scores.seen(
                query,
                key,
                (at / queries / heads, at / queries % heads, at % queries),
                sees,
                &mut row,
            );
            all.extend(
                row.iter()
                    .enumerate()
                    .map(|(key, product)| sees(key).then_some(*product)),
            );
        }
        Some(all)
    }

    /// Products and scores of some rows.
    fn both(&self, out: &Out<'_>) -> Option<Vec<(f64, f64)>> {
        let picked = Picked::These(&self.some);
        let products = self.products(out.run, picked)?;
        let scores = out.picked(picked, self.scores.sizes.keys);
        let seen = products
            .into_iter()
            .zip(scores.iter())
            .filter_map(|(product, score)| Some((product?, *score)));
        Some(seen.filter(|(_, score)| score.is_finite()).collect())
    }

    fn predict(self: &Arc<Self>, made: Made) -> Predict {
        let all = self.clone();
        Box::new(move |run, picked| {
            let masked = |product: Option<f64>| {
                product.map_or(f64::NEG_INFINITY, |product| made.of(product))
            };
            let products = all.products(run, picked)?;
            Some(products.into_iter().map(masked).collect())
        })
    }

    /// Another cap, or none.
    fn alternatives(
        self: &Arc<Self>,
        inputs: [usize; 2],
        made: Made,
        out: &Out<'_>,
    ) -> Option<Vec<Alternative>> {
        let both = self.both(out)?;
        let fitted = best_cap(|cap| {
            let capped = Made {
                cap: Some(cap),
                ..made
            };
            let miss = |at: &usize| capped.of(both[*at].0) - both[*at].1;
            sample(both.len())
                .iter()
                .map(miss)
                .map(|miss| miss * miss)
                .sum()
        });
        let caps = CAPS
            .into_iter()
            .chain([fitted])
            .map(Some)
            .chain([None])
            .filter(|cap| *cap != made.cap);
        let one = |cap: Option<f64>| Alternative {
            change: Change::Softcap {
                inputs,
                cap,
                of: made.cap,
            },
            fitted: cap.is_some_and(|cap| !CAPS.contains(&cap)),
            predict: self.predict(Made { cap, ..made }),
        };
        Some(caps.map(one).collect())
    }
}

/// Rows that the factor and a cap are fitted to.
const SOME_ROWS: usize = 64;

/// The factor that makes scores of products, by least squares.
fn factor_of(both: &[(f64, f64)]) -> f64 {
    let (xy, xx) = both
        .iter()
        .fold((0.0, 0.0), |(xy, xx), (x, y)| (xy + x * y, xx + x * x));
    xy / xx
}
