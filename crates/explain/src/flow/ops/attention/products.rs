//! Scores as they are recorded before the softmax: products of queries and keys times one factor, perhaps capped, with what is masked at minus
//! infinity.
//!
//! A mask that is a large number instead is left to others: beside it nothing else has a size.

use super::{CAPS, FEW_ROWS, Heads, Likely, Scores, Sizes};
use crate::{
    constants::{factor, said, short},
    flow::{
        Site, of,
        ops::{Learned, Op, Picked, Predict, Variant, roughly, sample},
    },
    functions::{best_cap, softcap},
    values::spread,
};
use std::sync::Arc;
use twinscope_compare::layout::Which;

pub(in crate::flow) struct Products;

/// Below, a number stands for a mask: no score is that low.
const MASKED: f64 = -1000.0;

/// Floors that a score may be off: products of large queries and keys cancel.
const LOOSENESS: f64 = 4.0;

impl Op for Products {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
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

    fn learn(self, site: &Site<'_>, [q, k]: [usize; 2], scores: Scores) -> Option<Learned> {
        let (query, key, out) = (site.load(q)?, site.load(k)?, site.out.whole().clone());
        // A mask of large numbers.
        if out
            .reference
            .iter()
            .any(|score| score.is_finite() && *score <= MASKED)
        {
            return None;
        }
        let Sizes {
            heads,
            queries,
            keys,
            ..
        } = scores.sizes;
        let products = Arc::new(move |side: Which, picked: Picked<'_>| {
            let (mut all, mut row) = (Vec::with_capacity(picked.count() * keys), Vec::new());
            for at in picked.rows() {
                let sees = |key: usize| out.reference[at * keys + key] > MASKED;
                scores.seen(
                    of(&query, side),
                    of(&key, side),
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
            all
        });
        // Some rows say both numbers.
        let some: Vec<usize> = spread(site.rows(), SOME_ROWS).collect();
        let both = |side: Which| -> Vec<(f64, f64)> {
            let (products, scores) = (
                products(side, Picked::These(&some)),
                site.out.picked(side, Picked::These(&some), keys),
            );
            let seen = products
                .into_iter()
                .zip(scores.iter())
                .filter_map(|(product, score)| Some((product?, *score)));
            seen.filter(|(_, score)| score.is_finite()).collect()
        };
        let made = match self.cap {
            Some(_) => self,
            None => Self {
                scale: factor_of(&both(Which::Reference)),
                cap: None,
            },
        };
        let over = |made: Self| -> Predict {
            let products = products.clone();
            Box::new(move |side, picked| {
                let masked = |product: Option<f64>| {
                    product.map_or(f64::NEG_INFINITY, |product| made.of(product))
                };
                Some(products(side, picked).into_iter().map(masked).collect())
            })
        };
        let name = |at: usize| site.scene.entries()[at].name.as_str();
        let own = both(Which::Candidate);
        let fitted = best_cap(|cap| {
            let miss = |at: &usize| {
                Self {
                    cap: Some(cap),
                    ..made
                }
                .of(own[*at].0)
                    - own[*at].1
            };
            sample(own.len())
                .iter()
                .map(miss)
                .map(|miss| miss * miss)
                .sum()
        });
        let capped = |cap: Option<f64>| {
            cap.map_or("not capped".to_owned(), |cap| {
                format!("capped at {}", short(cap))
            })
        };
        let caps = CAPS
            .into_iter()
            .chain([fitted])
            .map(Some)
            .chain([None])
            .filter(|cap| *cap != made.cap);
        let variants = caps.map(|cap| Variant {
            kind: "function",
            text: format!("the scores of {} and {} are {} where the reference's are {}", name(q), name(k), capped(cap), capped(made.cap)),
            details: serde_json::json!({"candidate": "softcap", "parameter": cap, "reference": made.cap, "inputs": [name(q), name(k)]}),
            fitted: cap.is_some_and(|cap| !CAPS.contains(&cap)),
            predict: over(Self { cap, ..made }),
        });
        Some(Learned {
            formula: format!(
                "{} x {} of {}{}",
                name(q),
                name(k),
                said(
                    made.scale,
                    factor(made.scale, &[scores.query.size], site.floor[0]).as_ref()
                ),
                made.cap
                    .map_or(String::new(), |cap| format!(", capped at {}", short(cap)))
            ),
            inputs: vec![q, k],
            terms: scores.query.size,
            work: scores.work(),
            looseness: LOOSENESS,
            off: [0.0; 4],
            on_some_rows: false,
            borrows: false,
            predict: over(made),
            variants: variants.collect(),
            telling: None,
        })
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

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, normal, report_as};
    use twinscope_compare::{report::Report, verdict::Origin};
    use twinscope_tensor::DType;

    const TOKENS: usize = 10;
    const SIZE: usize = 8;

    /// Two heads of causal scores.
    fn scores(query: &[f64], key: &[f64], made: impl Fn(f64) -> f64) -> Vec<f64> {
        let at = |flat: usize| {
            let (head, i, j) = (
                flat / TOKENS / TOKENS,
                flat / TOKENS % TOKENS,
                flat % TOKENS,
            );
            let row =
                |of: &[f64], token: usize| of[(head * TOKENS + token) * SIZE..][..SIZE].to_vec();
            let product: f64 = row(query, i)
                .iter()
                .zip(row(key, j))
                .map(|(q, k)| q * k)
                .sum();
            if j <= i {
                made(product / (SIZE as f64).sqrt())
            } else {
                f64::NEG_INFINITY
            }
        };
        (0..2 * TOKENS * TOKENS).map(at).collect()
    }

    /// Keys that lack a bias, and scores that are made of them in some way.
    fn report(made: impl Fn(f64) -> f64) -> Report {
        let (query, key, bias) = (
            normal(2 * TOKENS * SIZE, 1),
            normal(2 * TOKENS * SIZE, 2),
            normal(SIZE, 3),
        );
        let without: Vec<f64> = key
            .iter()
            .enumerate()
            .map(|(at, k)| k - 0.3 * bias[at % SIZE])
            .collect();
        let [reference, candidate] = [scores(&query, &key, |x| x), scores(&query, &without, made)];
        let heads = || vec![1, 2, TOKENS, SIZE];
        report_as(
            DType::F32,
            &[
                Recorded {
                    name: "q",
                    dims: heads(),
                    reference: query.clone(),
                    candidate: query,
                },
                Recorded {
                    name: "k",
                    dims: heads(),
                    reference: key,
                    candidate: without,
                },
                Recorded {
                    name: "scores",
                    dims: vec![1, 2, TOKENS, TOKENS],
                    reference,
                    candidate,
                },
            ],
        )
    }

    #[test]
    fn scores_of_wrong_keys_inherit_that() {
        let report = report(|x| x);
        assert_eq!(report.pairs[1].origin(), Some(Origin::Own));
        assert_eq!(report.pairs[2].origin(), Some(Origin::Inherited));
    }

    #[test]
    fn another_scale_or_a_cap_behind_wrong_keys_is_a_second_fault() {
        for (kind, report) in [
            ("scale", report(|x| 1.2 * x)),
            ("function", report(|x| 5.0 * (x / 5.0).tanh())),
        ] {
            assert_eq!(
                (
                    report.pairs[2].origin(),
                    report.pairs[2].causes[0].kind.name()
                ),
                (Some(Origin::Own), kind)
            );
        }
    }
}
