//! Probabilities whose scores have something added: a slope per head along the keys (ALiBi), or a bias that is recorded (T5).

use super::{
    CAPS, FEW_ROWS, Given, Likely, LikelyRow, NEGLIGIBLE, Odds, OnRun, RELATED, Rows, Scores,
    Sizes, Softmax, are_probabilities,
};
use crate::{
    Alternative, Change, Input, Learned, Out, Predict, Run, Scaled, Site, Values,
    constants::named,
    functions::{best_cap, softcap},
    learned::roughly,
};
use std::sync::Arc;
use twinscope_tensor::formula::{Constant, Formula, ScoreBias};

/// What is added to the scores of a head, a query and a key.
#[derive(Clone)]
enum Bias {
    /// Times the key's place; the query's is the same for its whole row, which a softmax does not see.
    Slopes(Arc<[f64]>),
    /// Recorded, with what each index steps over; 0 where it is repeated.
    Recorded {
        input: usize,
        values: Input,
        steps: [usize; 4],
    },
}

/// The same on one run.
enum Added {
    Slopes(Arc<[f64]>),
    Recorded { values: Values, steps: [usize; 4] },
}

impl Added {
    fn at(&self, [batch, head, query, key]: [usize; 4]) -> f64 {
        match self {
            Self::Slopes(slopes) => slopes[head] * key as f64,
            Self::Recorded { values, steps } => {
                values[batch * steps[0] + head * steps[1] + query * steps[2] + key * steps[3]]
            }
        }
    }
}

impl Bias {
    fn on(&self, run: &dyn Run) -> Option<Added> {
        Some(match self {
            Self::Slopes(slopes) => Added::Slopes(slopes.clone()),
            Self::Recorded { values, steps, .. } => Added::Recorded {
                values: values.on(run)?,
                steps: *steps,
            },
        })
    }

    /// Every recorded tensor that may be added to scores of these sizes, as `[.., h, s, t]`, or with the heads last as a table of embeddings has
    /// them; any of the first three may be 1.
    fn recorded(site: &Site<'_>, sizes: Sizes) -> Vec<Self> {
        let Sizes {
            batch,
            heads,
            queries,
            keys,
        } = sizes;
        let mut found = Vec::new();
        for &input in site.before.iter().chain(&site.parameters) {
            let dims = site.run.dims(input);
            let mut ways: Vec<[usize; 4]> = Vec::new();
            match *dims {
                [s, t, h] if (s, t, h) == (queries, keys, heads) => {
                    ways.push([0, 1, keys * heads, heads]);
                }
                [ref outer @ .., s, t]
                    if t == keys && (s == queries || s == 1) && outer.len() <= 2 =>
                {
                    let (b, h) = match *outer {
                        [] => (1, 1),
                        [h] => (1, h),
                        [b, h, ..] => (b, h),
                    };
                    let step = |dim: usize, step: usize| if dim == 1 { 0 } else { step };
                    let fits = (b == 1 || b == batch) && (h == 1 || h == heads) && b * h * s > 1;
                    if fits {
                        ways.push([step(b, h * s * t), step(h, s * t), step(s, t), 1]);
                    }
                }
                _ => {}
            }
            // Those of another layer are not added to anything.
            let first = || site.run.beginning(input, FEW_ROWS * keys);
            if ways.is_empty() || first().is_none_or(|first| are_probabilities(&first, keys)) {
                continue;
            }
            for steps in ways {
                found.extend(Input::read(site.run, input).map(|values| Self::Recorded {
                    input,
                    values,
                    steps,
                }));
            }
        }
        found
    }
}

/// Scores with a bias.
struct Biased {
    rows: Rows,
    bias: Bias,
}

impl Biased {
    fn given(&self, run: &dyn Run) -> Option<BiasedGiven<'_>> {
        Some(BiasedGiven {
            given: self.rows.given(run)?,
            bias: self.bias.on(run)?,
        })
    }
}

/// The same with the inputs of one run.
struct BiasedGiven<'r> {
    given: Given<'r>,
    bias: Added,
}

impl BiasedGiven<'_> {
    fn row(&self, Softmax { scale, cap }: Softmax, times: f64, row: usize) -> Vec<f64> {
        let (batch, head, query) = self.given.rows.index(row);
        let mut scores = Vec::new();
        self.given.dots(row, &mut scores);
        for (key, score) in scores.iter_mut().enumerate() {
            let capped = cap.map_or(scale * *score, |cap| softcap(scale * *score, cap));
            *score = capped + times * self.bias.at([batch, head, query, key]);
        }
        let support = self.given.rows.support(row);
        Softmax {
            scale: 1.0,
            cap: None,
        }
        .apply(&mut scores, |key| support[key] > 0.0);
        scores
    }

    /// How far a few rows are off those recorded, squared.
    fn miss(&self, out: &Out<'_>, softmax: Softmax, times: f64) -> f64 {
        let keys = self.given.rows.scores.sizes.keys;
        let off = |row: usize| {
            let made = self.row(softmax, times, row);
            made.iter()
                .zip(&*out.recorded().run(row * keys, keys))
                .map(|(made, wanted)| (made - wanted).powi(2))
                .sum::<f64>()
        };
        self.given.rows.some().into_iter().map(off).sum()
    }
}

pub(super) fn learn<'a>(site: &Site<'a>, sizes: Sizes, likely: &mut Likely) -> Vec<Learned<'a>> {
    let mut learned = Vec::new();
    let recorded = Bias::recorded(site, sizes);
    for (inputs, scores) in Scores::all(site, sizes) {
        let Some(dots) = likely.dots(site, inputs, scores) else {
            continue;
        };
        let biases: Vec<&Bias> = recorded
            .iter()
            .filter(|bias| may_be_beside(site, bias, &likely.rows, &dots))
            .collect();
        let has_slopes = may_have_slopes(&likely.rows, &dots);
        if has_slopes || !biases.is_empty() {
            learned.extend(of_inputs(site, inputs, scores, &biases, has_slopes));
        }
    }
    learned
}

/// Whether the log-odds of a few rows follow the products, without what is added to them.
fn may_be_beside(site: &Site<'_>, bias: &Bias, rows: &[LikelyRow], dots: &[Vec<f64>]) -> bool {
    let Some(bias) = bias.on(site.run) else {
        return false;
    };
    let mut odds = Odds::default();
    for (row, dots) in rows.iter().zip(dots) {
        let at = |key: usize| bias.at([row.batch, row.head, row.query, key]);
        let without = row
            .seen
            .iter()
            .zip(&row.probable)
            .map(|(key, p)| p * (-at(*key)).exp());
        odds.add(dots, &shares(without.collect()));
    }
    odds.related(RELATED)
}

/// The same without whatever grows from key to key.
fn may_have_slopes(rows: &[LikelyRow], dots: &[Vec<f64>]) -> bool {
    let mut odds = Odds::default();
    for (row, dots) in rows.iter().zip(dots) {
        let keys: Vec<f64> = row.seen.iter().map(|key| *key as f64).collect();
        let level = |values: Vec<f64>| -> Vec<f64> {
            let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
            let (centre, middle) = (mean(&values), mean(&keys));
            let both = || {
                values
                    .iter()
                    .zip(&keys)
                    .map(|(value, key)| (value - centre, key - middle))
            };
            let (rise, run) = both().fold((0.0, 0.0), |(rise, run), (value, key)| {
                (rise + value * key, run + key * key)
            });
            both()
                .map(|(value, key)| {
                    if run > 0.0 {
                        value - rise / run * key
                    } else {
                        value
                    }
                })
                .collect()
        };
        odds.add_levelled(
            &level(dots.clone()),
            &level(row.probable.iter().map(|p| p.ln()).collect()),
        );
    }
    odds.related(RELATED)
}

/// Of a sum of 1.
fn shares(of: Vec<f64>) -> Vec<f64> {
    let sum: f64 = of.iter().sum();
    of.into_iter().map(|one| one / sum).collect()
}

fn of_inputs<'a>(
    site: &Site<'a>,
    [q, k]: [usize; 2],
    scores: Scores,
    recorded: &[&Bias],
    has_slopes: bool,
) -> Option<Learned<'a>> {
    let rows = Rows {
        scores,
        query: Input::read(site.run, q)?,
        key: Input::read(site.run, k)?,
        support: site.out.recorded().clone(),
    };
    let near = |biased: &Biased, scale: f64| {
        let Some((on, given)) = rows_of(biased, site) else {
            return false;
        };
        let picked = biased.rows.some();
        let wanted = picked.iter().flat_map(|row| on.wanted(*row).into_owned());
        let made = picked
            .iter()
            .flat_map(|row| given.row(Softmax { scale, cap: None }, 1.0, *row));
        roughly(made, wanted, 16.0 * site.floor[1])
    };
    let mut biased = Biased {
        rows,
        bias: Bias::Slopes([].into()),
    };
    for bias in recorded {
        biased.bias = (*bias).clone();
        if let Some(scale) = scale_beside(&biased, site).filter(|scale| near(&biased, *scale)) {
            return Some(made(site, [q, k], biased, scale));
        }
    }
    let (scale, slopes) = if has_slopes {
        slopes(&biased.rows.on(&site.out)?)?
    } else {
        return None;
    };
    biased.bias = Bias::Slopes(slopes.into());
    near(&biased, scale).then(|| made(site, [q, k], biased, scale))
}

fn rows_of<'b>(biased: &'b Biased, site: &Site<'_>) -> Option<(OnRun<'b>, BiasedGiven<'b>)> {
    Some((biased.rows.on(&site.out)?, biased.given(site.run)?))
}

/// The scale of the scores where what is added is known.
fn scale_beside(biased: &Biased, site: &Site<'_>) -> Option<f64> {
    let (on, given) = rows_of(biased, site)?;
    let (rows, mut odds, mut dots) = (&biased.rows, Odds::default(), Vec::new());
    for row in rows.some() {
        let (batch, head, query) = rows.index(row);
        on.given.dots(row, &mut dots);
        let without =
            |(key, p): (usize, &f64)| p * (-given.bias.at([batch, head, query, key])).exp();
        odds.add(
            &dots,
            &shares(on.wanted(row).iter().enumerate().map(without).collect()),
        );
    }
    // Where the scores themselves are recorded nothing is left for queries and keys to explain.
    let scale = odds.xy / odds.xx;
    (odds.related(0.9) && scale * rows.scores.query.size as f64 > LEAST_SCALE).then_some(scale)
}

/// Of the smallest scale that people choose, one over the size of a head.
const LEAST_SCALE: f64 = 0.05;

/// Rows of each head that the slopes are fitted to, and the share of the log-odds that must be left at most for all to be looked at.
const FITTED_ROWS: usize = 16;
const LEFT: f64 = 0.02;

/// One scale, and a slope per head along the keys: least squares within rows.
fn slopes(on: &OnRun<'_>) -> Option<(f64, Vec<f64>)> {
    let rows = on.given.rows;
    let Sizes {
        batch,
        heads,
        queries,
        keys,
    } = rows.scores.sizes;
    let mut sums = vec![[0.0; 5]; heads];
    let (mut all, mut dots) = (0.0, Vec::new());
    // The last queries see most.
    for (head, sums) in sums.iter_mut().enumerate() {
        for nth in 0..FITTED_ROWS.min(batch * queries) {
            let (b, s) = (nth % batch, queries - 1 - nth / batch % queries);
            let row = (b * heads + head) * queries + s;
            on.given.dots(row, &mut dots);
            let p = on.wanted(row);
            let used: Vec<usize> = (0..keys).filter(|t| p[*t] > NEGLIGIBLE).collect();
            let mean = |of: &dyn Fn(usize) -> f64| {
                used.iter().map(|t| of(*t)).sum::<f64>() / used.len() as f64
            };
            let (x0, j0, y0) = (
                mean(&|t| dots[t]),
                mean(&|t| t as f64),
                mean(&|t| p[t].ln()),
            );
            for t in used {
                let (x, j, y) = (dots[t] - x0, t as f64 - j0, p[t].ln() - y0);
                sums.iter_mut()
                    .zip([x * x, x * j, j * j, x * y, j * y])
                    .for_each(|(sum, one)| *sum += one);
                all += y * y;
            }
        }
        // One head rules out nearly every two tensors.
        let [xx, xj, jj, xy, jy] = *sums;
        let determinant = xx * jj - xj * xj;
        if head == 0 && determinant > 0.0 {
            let explained = (xy * (xy * jj - jy * xj) + jy * (jy * xx - xy * xj)) / determinant;
            if all - explained > LEFT * all {
                return None;
            }
        }
    }
    let (mut xy, mut xx) = (0.0, 0.0);
    for [of_xx, of_xj, of_jj, of_xy, of_jy] in &sums {
        if *of_jj > 0.0 {
            xy += of_xy - of_xj * of_jy / of_jj;
            xx += of_xx - of_xj * of_xj / of_jj;
        }
    }
    let scale = xy / xx;
    let slope = |[_, xj, jj, _, jy]: &[f64; 5]| {
        if *jj > 0.0 {
            (jy - scale * xj) / jj
        } else {
            0.0
        }
    };
    let slopes: Vec<f64> = sums.iter().map(slope).collect();
    let explained: f64 = sums
        .iter()
        .zip(&slopes)
        .map(|([_, _, _, xy, jy], slope)| scale * xy + slope * jy)
        .sum();
    (scale > 0.0 && all > 0.0 && all - explained <= LEFT * all).then_some((scale, slopes))
}

/// What may happen to what is added: nothing of it, twice, subtracted, half its size.
const TIMES: [f64; 4] = [0.0, 2.0, -1.0, 0.5];

fn made<'a>(site: &Site<'a>, inputs: [usize; 2], biased: Biased, scale: f64) -> Learned<'a> {
    let (bias, term) = match &biased.bias {
        Bias::Slopes(_) => (ScoreBias::Slopes, None),
        Bias::Recorded { input, .. } => (
            ScoreBias::Tensor(site.name(*input).to_owned()),
            Some(*input),
        ),
    };
    let scores = biased.rows.scores;
    let unnamed = Constant {
        value: scale,
        name: None,
    };
    let [query, key] = inputs.map(|at| Formula::boxed(site.name(at)));
    let formula = Formula::Softmax(Box::new(Formula::Scores {
        query,
        key,
        scale: unnamed,
        cap: None,
        bias: Some(bias.clone()),
    }));
    let all = Arc::new(biased);
    let predict = over(&all, Softmax { scale, cap: None }, 1.0);
    let alternatives = {
        let own = site.out.clone();
        move |out: &Out<'_>| {
            others(&all, inputs, (&bias, term), scale, [&own, out]).unwrap_or_default()
        }
    };
    Learned {
        terms: scores.query.size,
        work: scores.work(),
        looseness: 16.0,
        alternatives: Some(Box::new(alternatives)),
        ..Learned::new(formula, inputs.into_iter().chain(term).collect(), predict)
    }
}

fn over(all: &Arc<Biased>, softmax: Softmax, times: f64) -> Predict {
    let all = all.clone();
    Box::new(move |run, picked| {
        let given = all.given(run)?;
        Some(
            picked
                .rows()
                .flat_map(|row| given.row(softmax, times, row))
                .collect(),
        )
    })
}

/// The bias another time, another scale or a cap; `own` is the output it was learned on.
fn others(
    all: &Arc<Biased>,
    inputs: [usize; 2],
    (bias, term): (&ScoreBias, Option<usize>),
    scale: f64,
    [own, out]: [&Out<'_>; 2],
) -> Option<Vec<Alternative>> {
    let (size, plain) = (all.rows.scores.query.size, Softmax { scale, cap: None });
    let mut others: Vec<Alternative> = TIMES
        .into_iter()
        .map(|factor| Alternative {
            change: Change::ScoreBias {
                inputs,
                bias: bias.clone(),
                term,
                factor,
            },
            fitted: false,
            predict: over(all, plain, factor),
        })
        .collect();
    // Another scale or a cap, fitted only where something is off.
    let given = all.given(out.run)?;
    let miss = |softmax: Softmax| given.miss(out, softmax, 1.0);
    let off = miss(plain) > 4.0 * all.given(own.run)?.miss(own, plain, 1.0);
    let fitted = off.then(|| {
        best_cap(|times| {
            miss(Softmax {
                scale: scale * times / SCALES,
                cap: None,
            })
        }) * scale
            / SCALES
    });
    let usual = [1.0, 1.0 / (size as f64).sqrt(), 1.0 / size as f64];
    for other in usual
        .into_iter()
        .chain(fitted)
        .filter(|other| (other / scale - 1.0).abs() > 0.01)
    {
        let instead = Softmax {
            scale: other,
            cap: None,
        };
        others.push(Alternative {
            change: Change::SoftmaxScale {
                scale: named(other, &[size], 1e-3),
                of: Constant {
                    value: scale,
                    name: None,
                },
                scaled: Scaled::BiasedProducts,
            },
            fitted: Some(other) == fitted,
            predict: over(all, instead, 1.0),
        });
    }
    let cap = off.then(|| {
        best_cap(|cap| {
            miss(Softmax {
                scale,
                cap: Some(cap),
            })
        })
    });
    for cap in CAPS.into_iter().chain(cap) {
        let instead = Softmax {
            scale,
            cap: Some(cap),
        };
        others.push(Alternative {
            change: Change::Softcap {
                inputs,
                cap: Some(cap),
                of: None,
            },
            fitted: !CAPS.contains(&cap),
            predict: over(all, instead, 1.0),
        });
    }
    Some(others)
}

/// The search for a factor begins at a half: the scale may also be less.
const SCALES: f64 = 32.0;
