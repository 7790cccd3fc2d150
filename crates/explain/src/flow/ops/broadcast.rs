//! A tensor and a smaller one that is repeated to its shape: positions added to tokens, an embedding of time added to feature maps, a factor per
//! token or channel.

use super::{Learned, Op, Predict, Variant};
use crate::{
    Loaded,
    flow::{Site, of},
    scattered,
};
use std::sync::Arc;

pub(super) struct Broadcast;

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

    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
        let (dims, elements) = (site.dims(), site.elements());
        let entries = site.scene.entries();
        let size = |at: usize| entries[at].dims.iter().product::<usize>();
        let smaller = |at: &usize| (2..elements.min(MOST_VALUES + 1)).contains(&size(*at));
        let all = site.before.iter().chain(&site.parameters).copied();
        let others: Vec<(usize, Vec<Repeated>)> = all
            .filter(smaller)
            .map(|at| (at, Repeated::ways(dims, &entries[at].dims)))
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
            .filter_map(|at| Some((at, site.scene.sketch(at)?[0].clone())))
            .collect();
        let mut learned = Vec::new();
        for (other, ways) in others {
            let Some(given) = site.load(other) else {
                continue;
            };
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
                                left -=
                                    (join.of(*x, given.reference[way.index(*at)]) - wanted).powi(2);
                                left >= 0.0
                            });
                    if near && enough > 0.0 {
                        learned.extend(site.load(*term).map(|loaded| {
                            made(site, (*term, &loaded), (other, &given), way, join)
                        }));
                    }
                }
            }
        }
        learned
    }
}

fn made(
    site: &Site<'_>,
    (term, x): (usize, &Arc<Loaded>),
    (other, y): (usize, &Arc<Loaded>),
    way: Repeated,
    join: Join,
) -> Learned {
    let name = |at: usize| site.scene.entries()[at].name.as_str();
    let width = site.width();
    let with = |factor: f64| -> Predict {
        let (x, y) = (x.clone(), y.clone());
        Box::new(move |side, picked| {
            let (x, y) = (picked.of(of(&x, side), width), of(&y, side));
            let flats = picked.rows().flat_map(|row| row * width..(row + 1) * width);
            Some(
                x.iter()
                    .zip(flats)
                    .map(|(x, flat)| join.of(*x, factor * y[way.index(flat)]))
                    .collect(),
            )
        })
    };
    let formula = format!(
        "{} {} {} (repeated)",
        name(term),
        if join == Join::Sum { "+" } else { "*" },
        name(other)
    );
    let mut variants = Vec::new();
    if join == Join::Sum {
        for (factor, kind, what) in [
            (0.0, "missing_term", "not added"),
            (2.0, "extra_term", "added twice"),
            (-1.0, "missing_term", "subtracted"),
        ] {
            variants.push(Variant {
                kind,
                text: format!("the candidate's `{}` is {what}, where the reference is {formula}", name(other)),
                details: serde_json::json!({"term": name(other), "side": "candidate", "factor": factor - 1.0}),
                fitted: false,
                predict: with(factor),
            });
        }
    }
    Learned {
        formula,
        inputs: vec![term, other],
        terms: 0,
        work: 0,
        looseness: 1.0,
        off: [0.0; 4],
        on_some_rows: false,
        borrows: false,
        predict: with(1.0),
        variants,
        telling: None,
    }
}

#[cfg(test)]
mod tests {
    use super::Repeated;
    use crate::testing::{Recorded, normal, report_as};
    use twinscope_compare::verdict::{Origin, Verdict};
    use twinscope_tensor::DType;

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

    fn run(broken: impl Fn(f64, f64) -> f64) -> Vec<Recorded> {
        let (maps, time) = (normal(2 * 6 * 25, 1), normal(12, 2));
        let other: Vec<f64> = maps
            .iter()
            .zip(normal(300, 3))
            .map(|(x, n)| x + 0.3 * n)
            .collect();
        let join = |maps: &[f64], f: &dyn Fn(f64, f64) -> f64| {
            maps.iter()
                .enumerate()
                .map(|(flat, x)| f(*x, time[flat / 25]))
                .collect()
        };
        let sum = |x: f64, y: f64| x + y;
        vec![
            Recorded {
                name: "maps",
                dims: vec![2, 6, 5, 5],
                reference: maps.clone(),
                candidate: other.clone(),
            },
            Recorded {
                name: "time",
                dims: vec![2, 6],
                reference: time.clone(),
                candidate: time.clone(),
            },
            Recorded {
                name: "sum",
                dims: vec![2, 6, 5, 5],
                reference: join(&maps, &sum),
                candidate: join(&other, &broken),
            },
        ]
    }

    #[test]
    fn what_is_added_to_every_place_of_a_map_passes_on_the_maps_error() {
        let report = report_as(DType::F32, &run(|x, y| x + y));
        assert_eq!(
            (report.pairs[2].verdict(), report.pairs[2].origin()),
            (Verdict::Diverged, Some(Origin::Inherited))
        );
    }

    #[test]
    fn what_is_not_added_to_the_maps_is_a_missing_term() {
        let report = report_as(DType::F32, &run(|x, _| x));
        assert_eq!(
            (report.pairs[2].verdict(), report.pairs[2].origin()),
            (Verdict::Diverged, Some(Origin::Own))
        );
        assert_eq!(report.pairs[2].causes[0].kind.name(), "missing_term");
    }
}
