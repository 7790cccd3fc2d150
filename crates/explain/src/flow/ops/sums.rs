//! Residual sums of two or three tensors, of two behind a relu, and products of two, one of them activated or not.

use super::{Learned, Op, Picked, Predict, sample};
use crate::{
    Loaded,
    flow::{Site, of},
    functions::FUNCTIONS,
};
use std::sync::Arc;
use twinscope_compare::layout::Which;

pub(super) struct Sums;

/// Three terms are looked for among this many tensors.
const NEAREST: usize = 14;

impl Op for Sums {
    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
        let elements = site.elements();
        let same =
            |at: &usize| site.scene.entries()[*at].dims.iter().product::<usize>() == elements;
        // Nothing is read whole before a few values of it have promised something.
        let sketched = site
            .before
            .iter()
            .copied()
            .filter(same)
            .filter_map(|at| Some((at, site.scene.sketch(at)?[0].to_vec())));
        let (terms, sampled): (Vec<usize>, Vec<Vec<f64>>) = sketched.unzip();
        let Some(wanted) = site.sketch() else {
            return Vec::new();
        };
        let whole = |at: usize| site.load(terms[at]).map(|loaded| (terms[at], loaded));
        let enough = site.floor[1]
            * site.floor[1]
            * wanted.iter().map(|wanted| wanted * wanted).sum::<f64>();
        // Thousands of sums are tried: most are given up after a few values.
        let near = |made: &mut dyn Iterator<Item = f64>| {
            let mut left = enough;
            made.zip(&*wanted).all(|(made, wanted)| {
                left -= (made - wanted) * (made - wanted);
                left >= 0.0
            }) && enough > 0.0
        };
        let activated: Option<Vec<Arc<[Vec<f64>]>>> = terms
            .iter()
            .map(|at| site.scene.activated(*at, &FUNCTIONS[..ACTIVATIONS]))
            .collect();
        let Some(activated) = activated else {
            return Vec::new();
        };
        let mut learned = Vec::new();
        for a in 0..terms.len() {
            for b in a + 1..terms.len() {
                let (x, y) = (&sampled[a], &sampled[b]);
                if near(&mut x.iter().zip(y).map(|(x, y)| x + y)) {
                    learned.extend(
                        whole(a)
                            .zip(whole(b))
                            .map(|(a, b)| sum(site, &[&a, &b], None)),
                    );
                }
                // The end of a block of a residual network; two tensors without negative values are their own relu.
                if x.iter().chain(y).any(|x| *x < 0.0)
                    && near(&mut x.iter().zip(y).map(|(x, y)| relu(x + y)))
                {
                    learned.extend(
                        whole(a)
                            .zip(whole(b))
                            .map(|(a, b)| sum(site, &[&a, &b], Some(relu))),
                    );
                }
                if near(&mut x.iter().zip(y).map(|(x, y)| x * y)) {
                    learned.extend(
                        whole(a)
                            .zip(whole(b))
                            .map(|(a, b)| product(site, &a, &b, None)),
                    );
                }
                for (nth, function) in FUNCTIONS.iter().take(ACTIVATIONS).enumerate() {
                    for (active, plain) in [(a, b), (b, a)] {
                        if near(
                            &mut activated[active][nth]
                                .iter()
                                .zip(&sampled[plain])
                                .map(|(x, y)| x * y),
                        ) {
                            let both = whole(active).zip(whole(plain));
                            learned.extend(both.map(|(active, plain)| {
                                product(site, &active, &plain, Some(function))
                            }));
                        }
                    }
                }
            }
        }
        if learned.is_empty() {
            let few = terms.len().min(NEAREST);
            for a in 0..few {
                for b in a + 1..few {
                    for c in b + 1..few {
                        if near(
                            &mut (0..wanted.len())
                                .map(|i| sampled[a][i] + sampled[b][i] + sampled[c][i]),
                        ) {
                            let all = whole(a).zip(whole(b)).zip(whole(c));
                            learned.extend(all.map(|((a, b), c)| sum(site, &[&a, &b, &c], None)));
                        }
                    }
                }
            }
        }
        learned
    }
}

/// The functions that gate a product are the activations, which come first.
const ACTIVATIONS: usize = 5;

fn relu(x: f64) -> f64 {
    x.max(0.0)
}

fn sum(
    site: &Site<'_>,
    terms: &[&(usize, Arc<Loaded>)],
    behind: Option<fn(f64) -> f64>,
) -> Learned {
    let names: Vec<&str> = terms
        .iter()
        .map(|(at, _)| site.scene.entries()[*at].name.as_str())
        .collect();
    let loaded: Vec<Arc<Loaded>> = terms.iter().map(|(_, loaded)| loaded.clone()).collect();
    let width = site.width();
    let with = |factors: Vec<f64>| -> Predict {
        let loaded = loaded.clone();
        Box::new(move |side, picked| {
            let mut terms = loaded
                .iter()
                .map(|term| picked.of(of(term, side), width))
                .zip(&factors);
            let (first, factor) = terms.next()?;
            let mut sum: Vec<f64> = first.iter().map(|term| factor * term).collect();
            for (term, factor) in terms {
                sum.iter_mut()
                    .zip(term.iter())
                    .for_each(|(sum, term)| *sum += factor * term);
            }
            if let Some(function) = behind {
                sum.iter_mut().for_each(|sum| *sum = function(*sum));
            }
            Some(sum)
        })
    };
    let formula = if behind.is_some() {
        format!("relu({})", names.join(" + "))
    } else {
        names.join(" + ")
    };
    let mut variants = Vec::new();
    for (nth, term) in loaded.iter().enumerate() {
        for (factor, kind, what) in FACTORS {
            if behind.is_none() && !promises(&site.out.candidate, &loaded, term, factor - 1.0) {
                continue;
            }
            let mut factors = vec![1.0; loaded.len()];
            factors[nth] = factor;
            variants.push(super::Variant {
                kind,
                text: format!("the candidate's `{}` is {what}, where the reference is {formula}", names[nth]),
                details: serde_json::json!({"term": names[nth], "side": "candidate", "factor": factor - 1.0}),
                fitted: false,
                predict: with(factors),
            });
        }
    }
    Learned {
        formula,
        inputs: terms.iter().map(|(at, _)| *at).collect(),
        terms: 0,
        work: 0,
        looseness: 1.0,
        off: [0.0; 4],
        on_some_rows: false,
        borrows: false,
        predict: with(vec![1.0; terms.len()]),
        variants,
        telling: None,
    }
}

/// What happens to a term, and what it is called.
const FACTORS: [(f64, &str, &str); 4] = [
    (0.0, "missing_term", "not added"),
    (2.0, "extra_term", "added twice"),
    (-1.0, "missing_term", "subtracted"),
    (0.5, "missing_term", "added with half its size"),
];

/// Whether what the candidate has beyond the sum is about `k` times a term, on a sample: only then all of it is looked at.
fn promises(candidate: &[f64], terms: &[Arc<Loaded>], term: &Loaded, k: f64) -> bool {
    let picked = sample(candidate.len());
    let sums: Vec<f64> = picked
        .iter()
        .map(|at| terms.iter().map(|term| term.candidate[*at]).sum())
        .collect();
    // As in the regression that decides, a value counts for as much as its rounding allows.
    let least = 0.01 * sums.iter().map(|sum| sum * sum).sum::<f64>() / sums.len() as f64;
    let (mut xy, mut xx) = (0.0, 0.0);
    for (at, sum) in picked.into_iter().zip(sums) {
        let (x, weight) = (k * term.candidate[at], 1.0 / (sum * sum).max(least));
        xy += weight * x * (candidate[at] - sum);
        xx += weight * x * x;
    }
    (xy / xx - 1.0).abs() < 0.5
}

fn product(
    site: &Site<'_>,
    a: &(usize, Arc<Loaded>),
    b: &(usize, Arc<Loaded>),
    function: Option<&'static crate::functions::Function>,
) -> Learned {
    let name = |at: usize| site.scene.entries()[at].name.as_str();
    let formula = match function {
        Some(function) => format!("{}({}) * {}", function.name, name(a.0), name(b.0)),
        None => format!("{} * {}", name(a.0), name(b.0)),
    };
    let (x, y) = (a.1.clone(), b.1.clone());
    let apply = function.map_or(identity as fn(f64) -> f64, |function| function.of);
    let width = site.width();
    let multiply = move |of_x: fn(f64) -> f64,
                         side: Which,
                         picked: Picked<'_>,
                         x: &Loaded,
                         y: &Loaded|
          -> Vec<f64> {
        let (x, y) = (picked.of(of(x, side), width), picked.of(of(y, side), width));
        x.iter().zip(y.iter()).map(|(x, y)| of_x(*x) * y).collect()
    };
    let mut variants = Vec::new();
    if let Some(own) = function {
        for other in FUNCTIONS
            .iter()
            .take(ACTIVATIONS)
            .filter(|other| other.name != own.name)
        {
            let (x, y) = (x.clone(), y.clone());
            variants.push(super::Variant {
                kind: "function",
                text: format!("{} of {} where the reference has {}", other.name, name(a.0), own.name),
                details: serde_json::json!({"candidate": other.name, "reference": own.name, "input": name(a.0)}),
                fitted: false,
                predict: Box::new(move |side, picked| Some(multiply(other.of, side, picked, &x, &y))),
            });
        }
    }
    Learned {
        formula,
        inputs: vec![a.0, b.0],
        terms: 0,
        work: 0,
        looseness: 1.0,
        off: [0.0; 4],
        on_some_rows: false,
        borrows: false,
        predict: Box::new(move |side, picked| Some(multiply(apply, side, picked, &x, &y))),
        variants,
        telling: None,
    }
}

fn identity(x: f64) -> f64 {
    x
}
