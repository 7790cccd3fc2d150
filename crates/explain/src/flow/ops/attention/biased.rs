//! Probabilities whose scores have something added: a slope per head along the keys (ALiBi), or a bias that is recorded (T5).

use super::{
    CAPS, FEW_ROWS, Likely, LikelyRow, Loaded, NEGLIGIBLE, Odds, RELATED, Rows, Scores, Sizes,
    Softmax, are_probabilities,
};
use crate::{
    constants::{factor, said, short},
    flow::{
        Site, of,
        ops::{Learned, Predict, Variant, roughly},
    },
    functions::{best_cap, softcap},
};
use std::sync::Arc;
use twinscope_compare::layout::Which;

/// What is added to the scores of a head, a query and a key.
#[derive(Clone)]
enum Bias {
    /// Times the key's place; the query's is the same for its whole row, which a softmax does not see.
    Slopes(Arc<[f64]>),
    /// Recorded, with what each index steps over; 0 where it is repeated.
    Recorded {
        input: usize,
        values: Arc<Loaded>,
        steps: [usize; 4],
    },
}

impl Bias {
    fn at(&self, side: Which, [batch, head, query, key]: [usize; 4]) -> f64 {
        match self {
            Self::Slopes(slopes) => slopes[head] * key as f64,
            Self::Recorded { values, steps, .. } => of(values, side)
                [batch * steps[0] + head * steps[1] + query * steps[2] + key * steps[3]],
        }
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
            let dims: Vec<usize> = site.scene.entries()[input].dims.clone();
            let mut ways: Vec<[usize; 4]> = Vec::new();
            match *dims {
                [s, t, h] if (s, t, h) == (queries, keys, heads) => {
                    ways.push([0, 1, keys * heads, heads])
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
            let first = || site.scene.beginning(input, FEW_ROWS * keys);
            if ways.is_empty() || first().is_none_or(|first| are_probabilities(&first, keys)) {
                continue;
            }
            for steps in ways {
                found.extend(site.load(input).map(|values| Self::Recorded {
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
    fn row(
        &self,
        side: Which,
        Softmax { scale, cap }: Softmax,
        times: f64,
        row: usize,
    ) -> Vec<f64> {
        let (batch, head, query) = self.rows.index(row);
        let mut scores = Vec::new();
        self.rows.scores.row(
            of(&self.rows.query, side),
            of(&self.rows.key, side),
            batch,
            head,
            query,
            &mut scores,
        );
        for (key, score) in scores.iter_mut().enumerate() {
            let capped = cap.map_or(scale * *score, |cap| softcap(scale * *score, cap));
            *score = capped + times * self.bias.at(side, [batch, head, query, key]);
        }
        let support = self.rows.wanted(row);
        Softmax {
            scale: 1.0,
            cap: None,
        }
        .apply(&mut scores, |key| support[key] > 0.0);
        scores
    }

    /// How far a few rows of one side are off, squared.
    fn miss(&self, side: Which, softmax: Softmax, times: f64) -> f64 {
        let off = |row: usize| {
            let made = self.row(side, softmax, times, row);
            made.iter()
                .zip(&*self.rows.of(side, row))
                .map(|(made, wanted)| (made - wanted).powi(2))
                .sum::<f64>()
        };
        self.rows.some().into_iter().map(off).sum()
    }
}

pub(super) fn learn(site: &Site<'_>, sizes: Sizes, likely: &mut Likely) -> Vec<Learned> {
    let mut learned = Vec::new();
    let recorded = Bias::recorded(site, sizes);
    for (inputs, scores) in Scores::all(site, sizes) {
        let Some(dots) = likely.dots(site, inputs, scores) else {
            continue;
        };
        let biases: Vec<&Bias> = recorded
            .iter()
            .filter(|bias| may_be_beside(bias, &likely.rows, &dots))
            .collect();
        let has_slopes = may_have_slopes(&likely.rows, &dots);
        if has_slopes || !biases.is_empty() {
            learned.extend(of_inputs(site, inputs, scores, &biases, has_slopes));
        }
    }
    learned
}

/// Whether the log-odds of a few rows follow the products, without what is added to them.
fn may_be_beside(bias: &Bias, rows: &[LikelyRow], dots: &[Vec<f64>]) -> bool {
    let mut odds = Odds::default();
    for (row, dots) in rows.iter().zip(dots) {
        let at = |key: usize| bias.at(Which::Reference, [row.batch, row.head, row.query, key]);
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

fn of_inputs(
    site: &Site<'_>,
    [q, k]: [usize; 2],
    scores: Scores,
    recorded: &[&Bias],
    has_slopes: bool,
) -> Option<Learned> {
    let (query, key) = (site.load(q)?, site.load(k)?);
    let rows = Rows {
        scores,
        query,
        key,
        out: site.out.recorded().clone(),
    };
    let near = |biased: &Biased, scale: f64| {
        let picked = biased.rows.some();
        let wanted = picked
            .iter()
            .flat_map(|row| biased.rows.wanted(*row).to_vec());
        let made = picked
            .iter()
            .flat_map(|row| biased.row(Which::Reference, Softmax { scale, cap: None }, 1.0, *row));
        roughly(made, wanted, 16.0 * site.floor[1])
    };
    let mut biased = Biased {
        rows,
        bias: Bias::Slopes([].into()),
    };
    for bias in recorded {
        biased.bias = (*bias).clone();
        if let Some(scale) = scale_beside(&biased).filter(|scale| near(&biased, *scale)) {
            return Some(made(site, [q, k], biased, scale));
        }
    }
    let (scale, slopes) = if has_slopes {
        slopes(&biased.rows)?
    } else {
        return None;
    };
    biased.bias = Bias::Slopes(slopes.into());
    near(&biased, scale).then(|| made(site, [q, k], biased, scale))
}

/// The scale of the scores where what is added is known.
fn scale_beside(biased: &Biased) -> Option<f64> {
    let (rows, mut odds, mut dots) = (&biased.rows, Odds::default(), Vec::new());
    for row in rows.some() {
        let (batch, head, query) = rows.index(row);
        rows.scores.row(
            &rows.query.reference,
            &rows.key.reference,
            batch,
            head,
            query,
            &mut dots,
        );
        let without = |(key, p): (usize, &f64)| {
            p * (-biased.bias.at(Which::Reference, [batch, head, query, key])).exp()
        };
        odds.add(
            &dots,
            &shares(rows.wanted(row).iter().enumerate().map(without).collect()),
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
fn slopes(rows: &Rows) -> Option<(f64, Vec<f64>)> {
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
            rows.scores.row(
                &rows.query.reference,
                &rows.key.reference,
                b,
                head,
                s,
                &mut dots,
            );
            let p = rows.wanted((b * heads + head) * queries + s);
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

/// What may happen to what is added.
const TIMES: [(f64, &str, &str); 4] = [
    (0.0, "missing_term", "not added"),
    (2.0, "extra_term", "added twice"),
    (-1.0, "missing_term", "subtracted"),
    (0.5, "missing_term", "added with half its size"),
];

fn made(site: &Site<'_>, [q, k]: [usize; 2], biased: Biased, scale: f64) -> Learned {
    let name = |at: usize| site.scene.entries()[at].name.as_str();
    let (bias, input) = match &biased.bias {
        Bias::Slopes(_) => ("a slope per head along the keys".to_owned(), None),
        Bias::Recorded { input, .. } => (format!("`{}`", name(*input)), Some(*input)),
    };
    let (scores, all) = (biased.rows.scores, Arc::new(biased));
    let (size, plain) = (scores.query.size, Softmax { scale, cap: None });
    let over = |softmax: Softmax, times: f64| -> Predict {
        let all = all.clone();
        Box::new(move |side, picked| {
            Some(
                picked
                    .rows()
                    .flat_map(|row| all.row(side, softmax, times, row))
                    .collect(),
            )
        })
    };
    let mut variants: Vec<Variant> = TIMES
        .into_iter()
        .map(|(times, kind, what)| Variant {
            kind,
            text: format!("{bias} is {what} to the scores of {} and {}, where the reference adds it", name(q), name(k)),
            details: serde_json::json!({"term": input.map(name), "side": "candidate", "factor": times - 1.0}),
            fitted: false,
            predict: over(plain, times),
        })
        .collect();
    // Another scale or a cap, fitted only where something is off.
    let miss = |softmax: Softmax| all.miss(Which::Candidate, softmax, 1.0);
    let off = miss(plain) > 4.0 * all.miss(Which::Reference, plain, 1.0);
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
        variants.push(Variant {
            kind: "softmax_scale",
            text: format!("softmax scale {} where the reference has {}", said(other, factor(other, &[size], 1e-3).as_ref()), short(scale)),
            details: serde_json::json!({"candidate": other, "reference": scale, "ratio": other / scale}),
            fitted: Some(other) == fitted,
            predict: over(Softmax { scale: other, cap: None }, 1.0),
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
        variants.push(Variant {
            kind: "function",
            text: format!("the scores of {} and {} are capped at {} where the reference's are not capped", name(q), name(k), short(cap)),
            details: serde_json::json!({"candidate": "softcap", "parameter": cap, "reference": null, "inputs": [name(q), name(k)]}),
            fitted: !CAPS.contains(&cap),
            predict: over(Softmax { scale, cap: Some(cap) }, 1.0),
        });
    }
    Learned {
        formula: format!(
            "softmax({} x {} of {} + {bias})",
            name(q),
            name(k),
            short(scale)
        ),
        inputs: [q, k].into_iter().chain(input).collect(),
        terms: size,
        work: scores.work(),
        looseness: 16.0,
        off: [0.0; 4],
        on_some_rows: false,
        borrows: false,
        predict: over(plain, 1.0),
        variants,
        telling: None,
    }
}

/// The search for a factor begins at a half: the scale may also be less.
const SCALES: f64 = 32.0;

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, normal, report_as};
    use twinscope_compare::{
        report::Report,
        verdict::{Origin, Verdict},
    };
    use twinscope_tensor::DType;

    const HEADS: usize = 3;
    const TOKENS: usize = 9;
    const SIZE: usize = 8;

    /// Probabilities of queries and keys with what is added to the score of a head, a query and a key.
    fn attention(
        q: &[f64],
        k: &[f64],
        scale: f64,
        bias: impl Fn(usize, usize, usize) -> f64,
    ) -> Vec<f64> {
        let mut out = Vec::new();
        for row in 0..2 * HEADS * TOKENS {
            let (head, s) = (row / TOKENS % HEADS, row % TOKENS);
            let keys = &k[row / TOKENS * TOKENS * SIZE..];
            let dot = |t: usize| {
                (0..SIZE)
                    .map(|i| q[row * SIZE + i] * keys[t * SIZE + i])
                    .sum::<f64>()
            };
            let exp: Vec<f64> = (0..TOKENS)
                .map(|t| {
                    if t <= s {
                        (scale * dot(t) + bias(head, s, t)).exp()
                    } else {
                        0.0
                    }
                })
                .collect();
            let sum: f64 = exp.iter().sum();
            out.extend(exp.iter().map(|e| e / sum));
        }
        out
    }

    fn report(bias: &[f64], slopes: bool, broken: impl Fn(&[f64], &[f64]) -> Vec<f64>) -> Report {
        let count = 2 * HEADS * TOKENS * SIZE;
        let (q, k) = (normal(count, 1), normal(count, 2));
        let other: Vec<f64> = q
            .iter()
            .zip(normal(count, 3))
            .map(|(x, n)| x + 0.1 * n)
            .collect();
        let added = |h: usize, s: usize, t: usize| bias[(h * TOKENS + s) * TOKENS + t];
        let reference = attention(&q, &k, 1.0 / (SIZE as f64).sqrt(), added);
        let (probs, dims) = (broken(&other, &k), vec![2, HEADS, TOKENS, SIZE]);
        let mut run = vec![
            Recorded {
                name: "q",
                dims: dims.clone(),
                reference: q,
                candidate: other,
            },
            Recorded {
                name: "k",
                dims,
                reference: k.clone(),
                candidate: k,
            },
            Recorded {
                name: "probs",
                dims: vec![2, HEADS, TOKENS, TOKENS],
                reference,
                candidate: probs,
            },
        ];
        if !slopes {
            run.insert(
                0,
                Recorded {
                    name: "bias",
                    dims: vec![1, HEADS, TOKENS, TOKENS],
                    reference: bias.to_vec(),
                    candidate: bias.to_vec(),
                },
            );
        }
        report_as(DType::F32, &run)
    }

    fn sloped(times: f64) -> Vec<f64> {
        let one = |at: usize| {
            let (head, s, t) = (at / TOKENS / TOKENS, at / TOKENS % TOKENS, at % TOKENS);
            times * 0.5f64.powi(head as i32 + 1) * (t as f64 - s as f64)
        };
        (0..HEADS * TOKENS * TOKENS).map(one).collect()
    }

    fn with(bias: Vec<f64>, scale: f64) -> impl Fn(&[f64], &[f64]) -> Vec<f64> {
        move |q, k| {
            attention(q, k, scale / (SIZE as f64).sqrt(), |h, s, t| {
                bias[(h * TOKENS + s) * TOKENS + t]
            })
        }
    }

    fn last(report: &Report) -> (Verdict, Option<Origin>, Option<&str>) {
        let pair = report.pairs.last().unwrap();
        println!("{:?}", pair.causes);
        (
            pair.verdict(),
            pair.origin(),
            pair.causes.first().map(|cause| cause.kind.name()),
        )
    }

    #[test]
    fn slopes_along_the_keys_pass_on_the_error_of_the_queries() {
        let bias = sloped(1.0);
        assert_eq!(
            last(&report(&bias, true, with(bias.clone(), 1.0))),
            (Verdict::Diverged, Some(Origin::Inherited), None)
        );
    }

    #[test]
    fn another_scale_beside_slopes_is_named() {
        let bias = sloped(1.0);
        let found = report(&bias, true, with(bias.clone(), 2.0));
        assert_eq!(
            last(&found),
            (Verdict::Diverged, Some(Origin::Own), Some("softmax_scale"))
        );
    }

    #[test]
    fn slopes_that_are_not_added_or_halved_are_named() {
        let bias = sloped(1.0);
        for times in [0.0, 0.5] {
            let found = report(&bias, true, with(sloped(times), 1.0));
            assert_eq!(
                last(&found),
                (Verdict::Diverged, Some(Origin::Own), Some("missing_term"))
            );
        }
    }

    #[test]
    fn a_recorded_bias_is_one_of_the_inputs() {
        let bias = normal(HEADS * TOKENS * TOKENS, 9);
        assert_eq!(
            last(&report(&bias, false, with(bias.clone(), 1.0))),
            (Verdict::Diverged, Some(Origin::Inherited), None)
        );
        let none = vec![0.0; bias.len()];
        assert_eq!(
            last(&report(&bias, false, with(none, 1.0))),
            (Verdict::Diverged, Some(Origin::Own), Some("missing_term"))
        );
        assert_eq!(
            last(&report(&bias, false, with(bias.clone(), 0.5))),
            (Verdict::Diverged, Some(Origin::Own), Some("softmax_scale"))
        );
    }
}
