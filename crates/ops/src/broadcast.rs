//! A tensor and a smaller one that is repeated to its shape: positions added to tokens, an embedding of time added to feature maps, a factor per
//! token or channel.

use crate::{Alternative, Alternatives, Change, Input, Learned, Op, Predict, Site, scattered};
use std::sync::Arc;
use twinscope_tensor::formula::Formula;

pub(crate) struct Broadcast;

/// Larger ones are no vector and no table of positions, and take long to read.
const MOST_VALUES: usize = 1 << 16;
/// Smaller tensors that are tried.
const MOST_OTHERS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Join {
    Sum,
    Product,
}

impl Join {
    fn of(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Sum => x + y,
            Self::Product => x * y,
        }
    }
}

/// Where an element of the output finds its partner: the same one for `inside` neighbours, over again after `count`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Repeated {
    inside: usize,
    count: usize,
}

impl Repeated {
    fn index(self, flat: usize) -> usize {
        flat / self.inside % self.count
    }

    /// Every way a smaller shape lies along neighbouring axes of a larger one.
    fn ways(dims: &[usize], smaller: &[usize]) -> Vec<Self> {
        let axes: Vec<usize> = dims.iter().copied().filter(|dim| *dim > 1).collect();
        let smaller: Vec<usize> = smaller.iter().copied().filter(|dim| *dim > 1).collect();
        if smaller.is_empty() || smaller.len() >= axes.len() {
            return Vec::new();
        }
        let fits = |first: &usize| axes[*first..*first + smaller.len()] == smaller[..];
        let way = |first: usize| Self {
            inside: axes[first + smaller.len()..].iter().product(),
            count: smaller.iter().product(),
        };
        (0..=axes.len() - smaller.len())
            .filter(fits)
            .map(way)
            .collect()
    }
}

impl Op for Broadcast {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let (dims, elements) = (site.dims(), site.elements());
        let size = |at: usize| site.run.elements(at);
        let smaller = |at: &usize| (2..elements.min(MOST_VALUES + 1)).contains(&size(*at));
        let all = site.before.iter().chain(&site.parameters).copied();
        let others: Vec<(usize, Vec<Repeated>)> = all
            .filter(smaller)
            .map(|at| (at, Repeated::ways(dims, site.run.dims(at))))
            .filter(|(_, ways)| !ways.is_empty())
            .take(MOST_OTHERS)
            .collect();
        if others.is_empty() {
            return Vec::new();
        }
        let places: Vec<usize> = scattered(elements).collect();
        let Some(wanted) = site.sketch() else {
            return Vec::new();
        };
        let enough = site.floor[1]
            * site.floor[1]
            * wanted.iter().map(|wanted| wanted * wanted).sum::<f64>();
        let terms = site
            .before
            .iter()
            .copied()
            .filter(|at| size(*at) == elements);
        let sketched: Vec<(usize, Arc<[f64]>)> = terms
            .filter_map(|at| Some((at, site.run.sketch(at)?)))
            .collect();
        let mut learned = Vec::new();
        for (other, ways) in others {
            let Some(given) = Input::read(site.run, other) else {
                continue;
            };
            let Some(values) = given.on(site.run) else {
                continue;
            };
            let values: &[f64] = &values;
            for (way, (term, sketch)) in ways
                .iter()
                .flat_map(|way| sketched.iter().map(move |term| (*way, term)))
            {
                for join in [Join::Sum, Join::Product] {
                    let mut left = enough;
                    let near =
                        places
                            .iter()
                            .zip(sketch.iter())
                            .zip(&*wanted)
                            .all(|((at, x), wanted)| {
                                left -= (join.of(*x, values[way.index(*at)]) - wanted).powi(2);
                                left >= 0.0
                            });
                    if near && enough > 0.0 {
                        learned.extend(
                            Input::read(site.run, *term)
                                .map(|x| made(site, (*term, x), (other, &given), way, join)),
                        );
                    }
                }
            }
        }
        learned
    }
}

fn made<'a>(
    site: &Site<'a>,
    (term, x): (usize, Input),
    (other, y): (usize, &Input),
    way: Repeated,
    join: Join,
) -> Learned<'a> {
    let y = y.clone();
    let width = site.width();
    let with = move |factor: f64| -> Predict {
        let (x, y) = (x.clone(), y.clone());
        Box::new(move |run, picked| {
            let (x, y) = (x.on(run)?, y.on(run)?);
            let (x, y): (_, &[f64]) = (picked.of(&x, width), &y);
            let flats = picked.rows().flat_map(|row| row * width..(row + 1) * width);
            Some(
                x.iter()
                    .zip(flats)
                    .map(|(x, flat)| join.of(*x, factor * y[way.index(flat)]))
                    .collect(),
            )
        })
    };
    let both = vec![
        Formula::tensor(site.name(term)),
        Formula::Repeated(Formula::boxed(site.name(other))),
    ];
    let formula = match join {
        Join::Sum => Formula::Sum(both),
        Join::Product => Formula::Product(both),
    };
    let predict = with(1.0);
    let alternatives = (join == Join::Sum).then(|| -> Alternatives<'a> {
        Box::new(move |_| {
            let one = |factor: f64| Alternative {
                change: Change::TermFactor {
                    term: other,
                    factor,
                },
                fitted: false,
                predict: with(factor),
            };
            [0.0, 2.0, -1.0].map(one).into()
        })
    });
    Learned {
        alternatives,
        ..Learned::new(formula, vec![term, other], predict)
    }
}

#[cfg(test)]
mod tests {
    use super::Repeated;

    #[test]
    fn a_smaller_shape_lies_along_neighbouring_axes() {
        assert_eq!(
            Repeated::ways(&[2, 5, 3, 3], &[2, 5]),
            [Repeated {
                inside: 9,
                count: 10
            }]
        );
        assert_eq!(
            Repeated::ways(&[2, 5, 8], &[1, 5, 8]),
            [Repeated {
                inside: 1,
                count: 40
            }]
        );
        assert_eq!(Repeated::ways(&[4, 4, 7], &[4]).len(), 2);
        assert!(
            Repeated::ways(&[2, 5, 8], &[2, 8]).is_empty()
                && Repeated::ways(&[2, 5], &[2, 5]).is_empty()
        );
    }
}
