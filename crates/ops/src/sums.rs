//! Residual sums of two or three tensors, of two behind a relu, and products of two, one of them activated or not.

use crate::{
    Alternative, Alternatives, Change, Input, Learned, Op, Out, Predict, Run, Site,
    functions::{self, FUNCTIONS},
    sampling::sample,
};
use std::sync::Arc;
use twinscope_tensor::formula::{Formula, Function};

pub(crate) struct Sums;

/// Three terms are looked for among this many tensors.
const NEAREST: usize = 14;

impl Op for Sums {
    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let elements = site.elements();
        let same = |at: &usize| site.run.elements(*at) == elements;
        // Nothing is read whole before a few values of it have promised something.
        let sketched = site
            .before
            .iter()
            .copied()
            .filter(same)
            .filter_map(|at| Some((at, site.run.sketch(at)?.to_vec())));
        let (terms, sampled): (Vec<usize>, Vec<Vec<f64>>) = sketched.unzip();
        let Some(wanted) = site.sketch() else {
            return Vec::new();
        };
        let whole = |at: usize| Input::read(site.run, terms[at]).map(|input| (terms[at], input));
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
            .map(|at| site.run.activated(*at, &FUNCTIONS[..ACTIVATIONS]))
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

fn sum<'a>(
    site: &Site<'a>,
    terms: &[&(usize, Input)],
    behind: Option<fn(f64) -> f64>,
) -> Learned<'a> {
    let inputs: Vec<Input> = terms.iter().map(|(_, input)| input.clone()).collect();
    let places: Vec<usize> = terms.iter().map(|(at, _)| *at).collect();
    let sum = Formula::Sum(
        places
            .iter()
            .map(|at| Formula::tensor(site.name(*at)))
            .collect(),
    );
    let formula = match behind {
        Some(_) => Formula::Function {
            function: Function::Named("relu"),
            of: Box::new(sum),
        },
        None => sum,
    };
    let width = site.width();
    let with = move |inputs: &[Input], factors: Vec<f64>| -> Predict {
        let inputs = inputs.to_vec();
        Box::new(move |run, picked| {
            let mut sum: Option<Vec<f64>> = None;
            for (input, factor) in inputs.iter().zip(&factors) {
                let values = input.on(run)?;
                let term = picked.of(&values, width);
                match &mut sum {
                    None => sum = Some(term.iter().map(|term| factor * term).collect()),
                    Some(sum) => sum
                        .iter_mut()
                        .zip(term.iter())
                        .for_each(|(sum, term)| *sum += factor * term),
                }
            }
            let mut sum = sum?;
            if let Some(function) = behind {
                sum.iter_mut().for_each(|sum| *sum = function(*sum));
            }
            Some(sum)
        })
    };
    let predict = with(&inputs, vec![1.0; inputs.len()]);
    let terms = places.clone();
    let alternatives = move |out: &Out<'_>| {
        let mut all = Vec::new();
        for (nth, term) in terms.iter().enumerate() {
            for factor in FACTORS {
                if behind.is_none()
                    && promises(out, &inputs, nth, factor - 1.0).is_none_or(|promises| !promises)
                {
                    continue;
                }
                let mut factors = vec![1.0; inputs.len()];
                factors[nth] = factor;
                all.push(Alternative {
                    change: Change::TermFactor {
                        term: *term,
                        factor,
                    },
                    fitted: false,
                    predict: with(&inputs, factors),
                });
            }
        }
        all
    };
    Learned {
        alternatives: Some(Box::new(alternatives)),
        ..Learned::new(formula, places, predict)
    }
}

/// What happens to a term: not added, added twice, subtracted, added with half its size.
const FACTORS: [f64; 4] = [0.0, 2.0, -1.0, 0.5];

/// Whether what an output has beyond the sum is about `k` times a term, on a sample: only then all of it is looked at.
fn promises(out: &Out<'_>, terms: &[Input], nth: usize, k: f64) -> Option<bool> {
    let terms: Vec<_> = terms
        .iter()
        .map(|term| term.on(out.run))
        .collect::<Option<_>>()?;
    let terms: Vec<&[f64]> = terms.iter().map(|term| &**term).collect();
    let (values, term): (&[f64], &[f64]) = (out, terms[nth]);
    let picked = sample(values.len());
    let sums: Vec<f64> = picked
        .iter()
        .map(|at| terms.iter().map(|term| term[*at]).sum())
        .collect();
    // As in the regression that decides, a value counts for as much as its rounding allows.
    let least = 0.01 * sums.iter().map(|sum| sum * sum).sum::<f64>() / sums.len() as f64;
    let (mut xy, mut xx) = (0.0, 0.0);
    for (at, sum) in picked.into_iter().zip(sums) {
        let (x, weight) = (k * term[at], 1.0 / (sum * sum).max(least));
        xy += weight * x * (values[at] - sum);
        xx += weight * x * x;
    }
    Some((xy / xx - 1.0).abs() < 0.5)
}

fn product<'a>(
    site: &Site<'a>,
    a: &(usize, Input),
    b: &(usize, Input),
    function: Option<&'static functions::Function>,
) -> Learned<'a> {
    let first = Formula::tensor(site.name(a.0));
    let first = match function {
        Some(function) => Formula::Function {
            function: Function::Named(function.name),
            of: Box::new(first),
        },
        None => first,
    };
    let formula = Formula::Product(vec![first, Formula::tensor(site.name(b.0))]);
    let width = site.width();
    let (x, y) = (a.1.clone(), b.1.clone());
    let with = move |of_x: fn(f64) -> f64| -> Predict {
        let (x, y) = (x.clone(), y.clone());
        Box::new(move |run: &dyn Run, picked| {
            let (x, y) = (x.on(run)?, y.on(run)?);
            let (x, y) = (picked.of(&x, width), picked.of(&y, width));
            Some(x.iter().zip(y.iter()).map(|(x, y)| of_x(*x) * y).collect())
        })
    };
    let predict = with(function.map_or(identity as fn(f64) -> f64, |function| function.of));
    let input = a.0;
    let alternatives = function.map(|own| -> Alternatives<'a> {
        Box::new(move |_| {
            FUNCTIONS
                .iter()
                .take(ACTIVATIONS)
                .filter(|other| other.name != own.name)
                .map(|other| Alternative {
                    change: Change::Function {
                        input,
                        instead: Function::Named(other.name),
                        of: Function::Named(own.name),
                    },
                    fitted: false,
                    predict: with(other.of),
                })
                .collect()
        })
    });
    Learned {
        alternatives,
        ..Learned::new(formula, vec![a.0, b.0], predict)
    }
}

fn identity(x: f64) -> f64 {
    x
}
