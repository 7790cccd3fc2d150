//! Attention: probabilities from queries and keys, and what they make of the values; also without the probabilities between.
//!
//! The scale is fitted to the log-odds, the mask is where probabilities are zero. Fewer key heads than query heads are each used by a run of
//! query heads.

mod biased;
mod products;

pub(crate) use products::Products;

use crate::{
    Alternative, Alternatives, Change, Input, Learned, Op, Out, Picked, Predict, Recorded, Run,
    Scaled, Site, Values,
    constants::named,
    functions::{self, softcap},
    learned::roughly,
    run::InPart,
    site::MOST_WORK,
};
use std::{borrow::Cow, collections::HashMap, sync::Arc};
use twinscope_measure::{add_times, dot};
use twinscope_tensor::formula::{Constant, Formula, Mask};

/// Sizes of one attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sizes {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
}

impl Sizes {
    /// Of probabilities `[.., h, s, t]`.
    fn of_probabilities(dims: &[usize]) -> Option<Self> {
        match *dims {
            [ref batch @ .., heads, queries, keys] => Some(Self {
                batch: batch.iter().product(),
                heads,
                queries,
                keys,
            }),
            _ => None,
        }
    }
}

/// A tensor of heads: `[b, h, s, d]`, or `[b, s, h, d]` with the heads apart or merged, or a third of a tensor that holds queries, keys and
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Heads {
    heads: usize,
    tokens: usize,
    size: usize,
    tokens_first: bool,
    /// Where tokens come first: from one token to the next, from one head to the next, and where the first head is.
    stride: usize,
    step: usize,
    offset: usize,
}

impl Heads {
    fn tokens_first(heads: usize, tokens: usize, size: usize) -> Self {
        Self {
            heads,
            tokens,
            size,
            tokens_first: true,
            stride: heads * size,
            step: size,
            offset: 0,
        }
    }

    fn at(self, batch: usize, head: usize, token: usize) -> usize {
        if self.tokens_first {
            (batch * self.tokens + token) * self.stride + self.offset + head * self.step
        } else {
            ((batch * self.heads + head) * self.tokens + token) * self.size
        }
    }

    /// Batch, head and token of the `nth` run of a head's size.
    fn whose(self, nth: usize) -> (usize, usize, usize) {
        let Self { heads, tokens, .. } = self;
        if self.tokens_first {
            (nth / heads / tokens, nth % heads, nth / heads % tokens)
        } else {
            (nth / tokens / heads, nth / tokens % heads, nth % tokens)
        }
    }

    /// The ways to read `dims` as this many tokens; with the number of heads where it is known.
    fn all(dims: &[usize], batch: usize, tokens: usize, heads: Option<usize>) -> Vec<Self> {
        let elements: usize = dims.iter().product();
        let mut ways = Vec::new();
        if let &[ref outer @ .., h, s, d] = dims
            && s == tokens
            && outer.iter().product::<usize>() == batch
            && heads.is_none_or(|heads| heads == h)
        {
            ways.push(Self {
                tokens_first: false,
                ..Self::tokens_first(h, tokens, d)
            });
        }
        if let &[ref outer @ .., s, h, d] = dims
            && s == tokens
            && outer.iter().product::<usize>() == batch
            && heads.is_none_or(|heads| heads == h)
        {
            ways.push(Self::tokens_first(h, tokens, d));
        }
        if let (Some(f), Some(h)) = (merged(dims, batch, tokens), heads)
            && f.checked_rem(h) == Some(0)
        {
            ways.push(Self::tokens_first(h, tokens, f / h));
        }
        ways.retain(|way| {
            way.size > 0 && way.heads > 0 && batch * way.heads * way.tokens * way.size == elements
        });
        ways
    }

    /// With heads of this size, however many; also as a third of a fused tensor of so many heads.
    fn of_size(
        dims: &[usize],
        batch: usize,
        tokens: usize,
        size: usize,
        heads: usize,
    ) -> Vec<Self> {
        let mut ways = Self::all(dims, batch, tokens, None);
        if let Some(f) = merged(dims, batch, tokens).filter(|f| size > 0 && f % size == 0) {
            ways.extend(Self::all(dims, batch, tokens, Some(f / size)));
        }
        ways.extend(Self::fused(dims, batch, tokens, heads));
        ways.retain(|way| way.size == size);
        ways
    }

    /// Queries, keys and values one after another, or head by head: the three of the first, then those of the second.
    fn fused(dims: &[usize], batch: usize, tokens: usize, heads: usize) -> Vec<Self> {
        let Some(f) = merged(dims, batch, tokens).filter(|f| f % (3 * heads) == 0 && *f > 0) else {
            return Vec::new();
        };
        let size = f / 3 / heads;
        let part = |part: usize| {
            let fused = Self {
                stride: f,
                ..Self::tokens_first(heads, tokens, size)
            };
            [
                Self {
                    offset: part * heads * size,
                    ..fused
                },
                Self {
                    offset: part * size,
                    step: 3 * size,
                    ..fused
                },
            ]
        };
        (0..3).flat_map(part).collect()
    }

    fn is_fused(self) -> bool {
        self.tokens_first && self.stride != self.heads * self.size
    }

    /// The other parts of the same fused tensor.
    fn others(self) -> impl Iterator<Item = Self> {
        let part = if self.step == self.size {
            self.heads * self.size
        } else {
            self.size
        };
        (0..3)
            .map(move |nth| Self {
                offset: nth * part,
                ..self
            })
            .filter(move |other| self.is_fused() && *other != self)
    }
}

/// The features of `[.., s, f]`.
fn merged(dims: &[usize], batch: usize, tokens: usize) -> Option<usize> {
    match dims {
        &[ref outer @ .., s, f] if s == tokens && outer.iter().product::<usize>() == batch => {
            Some(f)
        }
        _ => None,
    }
}

/// Dot products of queries and keys.
#[derive(Clone, Copy, Debug)]
struct Scores {
    sizes: Sizes,
    query: Heads,
    key: Heads,
}

impl Scores {
    /// Every two tensors that may be the queries and keys of probabilities of these sizes, and how they lie.
    fn all(site: &Site<'_>, sizes: Sizes) -> Vec<([usize; 2], Self)> {
        let Sizes {
            batch,
            heads,
            queries,
            keys,
        } = sizes;
        let mut all = Vec::new();
        for &q in &site.before {
            let dims = site.run.dims(q);
            let fused = Heads::fused(dims, batch, queries, heads);
            for query in Heads::all(dims, batch, queries, Some(heads))
                .into_iter()
                .chain(fused)
            {
                for &k in &site.before {
                    for key in Heads::of_size(site.run.dims(k), batch, keys, query.size, heads) {
                        let scores = Self { sizes, query, key };
                        // Both from one tensor: two parts of it.
                        let apart = if q == k {
                            query.others().any(|other| other == key)
                        } else {
                            !query.is_fused() && !key.is_fused()
                        };
                        if apart
                            && heads.is_multiple_of(key.heads)
                            && site.is_possible(scores.work())
                        {
                            all.push(([q, k], scores));
                        }
                    }
                }
            }
        }
        all
    }

    fn row(
        self,
        query: &[f64],
        key: &[f64],
        batch: usize,
        head: usize,
        token: usize,
        out: &mut Vec<f64>,
    ) {
        self.seen(query, key, (batch, head, token), |_| true, out);
    }

    /// The same of the keys that are seen; 0 of others.
    fn seen(
        self,
        query: &[f64],
        key: &[f64],
        (batch, head, token): (usize, usize, usize),
        sees: impl Fn(usize) -> bool,
        out: &mut Vec<f64>,
    ) {
        let q = &query[self.query.at(batch, head, token)..][..self.query.size];
        let kv = head / (self.sizes.heads / self.key.heads);
        out.clear();
        out.extend((0..self.sizes.keys).map(|t| {
            if !sees(t) {
                return 0.0;
            }
            let k = &key[self.key.at(batch, kv, t)..][..self.key.size];
            dot(q, k)
        }));
    }

    fn work(self) -> usize {
        self.sizes.batch * self.sizes.heads * self.sizes.queries * self.sizes.keys * self.query.size
    }
}

/// What is done to the scores before the softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Softmax {
    scale: f64,
    cap: Option<f64>,
}

impl Softmax {
    /// In place; `seen` says which keys take part.
    fn apply(self, scores: &mut [f64], seen: impl Fn(usize) -> bool) {
        for (t, score) in scores.iter_mut().enumerate() {
            *score = match (seen(t), self.cap) {
                (false, _) => f64::NEG_INFINITY,
                (true, None) => *score * self.scale,
                (true, Some(cap)) => softcap(*score * self.scale, cap),
            };
        }
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if most == f64::NEG_INFINITY {
            return scores.fill(0.0);
        }
        let mut sum = 0.0;
        for score in scores.iter_mut() {
            *score = (*score - most).exp();
            sum += *score;
        }
        scores.iter_mut().for_each(|score| *score /= sum);
    }
}

/// Whether a query sees a key, when that is not read off recorded probabilities.
fn sees(mask: Mask, sizes: Sizes, query: usize, key: usize) -> bool {
    // The last query sees the last key, also when there are more keys than queries.
    let here = query + sizes.keys.saturating_sub(sizes.queries);
    match mask {
        Mask::Full => true,
        Mask::Causal => key <= here,
        Mask::Window(window) => key <= here && key + window > here,
    }
}

/// Caps that people use on scores.
const CAPS: [f64; 5] = [50.0, 30.0, 20.0, 15.0, 100.0];

pub(crate) struct Probabilities;

impl Op for Probabilities {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let Some(sizes) = Sizes::of_probabilities(site.dims()) else {
            return Vec::new();
        };
        let are = |rows: usize| {
            site.run
                .beginning(site.at, rows * sizes.keys)
                .is_some_and(|first| are_probabilities(&first, sizes.keys))
        };
        if !are(FEW_ROWS) || !are(MORE_ROWS) {
            return Vec::new();
        }
        let Some(mut likely) = Likely::of(site, sizes, |p| p > NEGLIGIBLE) else {
            return Vec::new();
        };
        let mut learned = Vec::new();
        for (inputs, scores) in Scores::all(site, sizes) {
            if likely.may_be(site, inputs, scores) {
                learned.extend(probabilities(site, inputs, scores));
            }
        }
        if learned.is_empty() {
            learned = biased::learn(site, sizes, &mut likely);
        }
        learned
    }
}

/// Rows looked at before more are read, and before all are.
const FEW_ROWS: usize = 4;
const MORE_ROWS: usize = 256;
/// The share of a few rows' log-odds that products must explain for all to be read.
const RELATED: f64 = 0.1;
/// Of one row, keys that say whether it follows the products: with four rows, chance is far below what is asked for.
const FEW_SEEN: usize = 64;

/// Rows of non-negative numbers that add up to 1, or are masked altogether.
fn are_probabilities(values: &[f64], keys: usize) -> bool {
    keys > 1
        && values.chunks_exact(keys).all(|row| {
            let sum: f64 = row.iter().sum();
            row.iter().all(|p| (0.0..=1.001).contains(p))
                && ((sum - 1.0).abs() < 0.05 || sum == 0.0)
        })
}

/// A few rows of probabilities, and of queries and keys what would make them: nearly every two tensors are ruled out here, before they are read.
struct Likely {
    heads: usize,
    rows: Vec<LikelyRow>,
    /// By tensor and how it is read, row by row; `None` of what cannot be read.
    queries: HashMap<(usize, Heads), Option<Vec<Vec<f64>>>>,
    keys: HashMap<(usize, Heads), Option<Vec<Vec<f64>>>>,
}

struct LikelyRow {
    batch: usize,
    head: usize,
    query: usize,
    /// Some of the keys that are seen, and how probable they are.
    seen: Vec<usize>,
    probable: Vec<f64>,
}

impl Likely {
    /// `sees` says of a value whether its key is seen.
    fn of(site: &Site<'_>, sizes: Sizes, sees: impl Fn(f64) -> bool) -> Option<Self> {
        let Sizes {
            batch,
            heads,
            queries,
            keys,
        } = sizes;
        let rows = batch * heads * queries;
        let read = |i: usize| {
            let row = (i * 2_654_435_761) % rows;
            let all = site.run.runs(site.at, &[row * keys], keys)?;
            let seen: Vec<usize> = (0..keys).filter(|t| sees(all[*t])).collect();
            let seen: Vec<usize> = seen
                .iter()
                .copied()
                .step_by(seen.len().div_ceil(FEW_SEEN).max(1))
                .collect();
            let probable = seen.iter().map(|t| all[*t]).collect();
            Some(LikelyRow {
                batch: row / queries / heads,
                head: row / queries % heads,
                query: row % queries,
                seen,
                probable,
            })
        };
        let rows = (0..rows.min(FEW_ROWS)).map(read).collect::<Option<_>>()?;
        Some(Self {
            heads,
            rows,
            queries: HashMap::new(),
            keys: HashMap::new(),
        })
    }

    /// Of the first rows the keys that tell most: all that has to be read where any two tensors may be queries and keys.
    fn glance(&self) -> Self {
        let of = |row: &LikelyRow| {
            let mut most: Vec<usize> = (0..row.seen.len()).collect();
            most.sort_by(|a, b| row.probable[*b].abs().total_cmp(&row.probable[*a].abs()));
            most.truncate(GLANCED_KEYS);
            let (seen, probable) = most
                .iter()
                .map(|at| (row.seen[*at], row.probable[*at]))
                .unzip();
            LikelyRow {
                seen,
                probable,
                ..*row
            }
        };
        let rows = self.rows.iter().take(GLANCED_ROWS).map(of).collect();
        Self {
            heads: self.heads,
            rows,
            queries: HashMap::new(),
            keys: HashMap::new(),
        }
    }

    /// Whether the log-odds follow the products.
    fn may_be(&mut self, site: &Site<'_>, inputs: [usize; 2], scores: Scores) -> bool {
        let Some(dots) = self.dots(site, inputs, scores) else {
            return false;
        };
        let mut odds = Odds::default();
        self.rows
            .iter()
            .zip(dots)
            .for_each(|(row, dots)| odds.add(&dots, &row.probable));
        odds.related(RELATED)
    }

    /// The products of each row's query and the keys it sees; `None` when they cannot be read.
    fn dots(
        &mut self,
        site: &Site<'_>,
        inputs: [usize; 2],
        scores: Scores,
    ) -> Option<Vec<Vec<f64>>> {
        let [queries, keys] = self.read(site, inputs, scores)?;
        let of = |(query, keys): (&Vec<f64>, &Vec<f64>)| {
            keys.chunks_exact(scores.key.size)
                .map(|key| dot(key, query))
                .collect()
        };
        Some(queries.iter().zip(keys).map(of).collect())
    }

    /// Whether the products have the signs of what the rows are, or all of them the opposite: unrelated ones are told by the first few.
    fn has_signs(&mut self, site: &Site<'_>, inputs: [usize; 2], scores: Scores) -> bool {
        let wanted: Vec<Vec<f64>> = self.rows.iter().map(|row| row.probable.clone()).collect();
        let least = SILENT
            * wanted
                .iter()
                .flatten()
                .fold(0f64, |most, score| most.max(score.abs()));
        let Some([queries, keys]) = self.read(site, inputs, scores) else {
            return false;
        };
        let mut positive = None;
        queries
            .iter()
            .zip(keys)
            .zip(wanted)
            .all(|((query, keys), wanted)| {
                keys.chunks_exact(scores.key.size)
                    .zip(wanted)
                    .filter(|(_, score)| score.abs() > least)
                    .all(|(key, score)| {
                        let same = dot(key, query) * score > 0.0;
                        *positive.get_or_insert(same) == same
                    })
            })
    }

    /// Each row's query, and the keys it sees one after another.
    fn read(
        &mut self,
        site: &Site<'_>,
        [q, k]: [usize; 2],
        Scores { query, key, .. }: Scores,
    ) -> Option<[&[Vec<f64>]; 2]> {
        let Self {
            heads,
            rows,
            queries,
            keys,
        } = self;
        let queries = queries.entry((q, query)).or_insert_with(|| {
            let of = |row: &LikelyRow| {
                site.run
                    .runs(q, &[query.at(row.batch, row.head, row.query)], query.size)
            };
            rows.iter().map(of).collect()
        });
        let keys = keys.entry((k, key)).or_insert_with(|| {
            let of = |row: &LikelyRow| {
                let starts: Vec<usize> = row
                    .seen
                    .iter()
                    .map(|t| key.at(row.batch, row.head / (*heads / key.heads), *t))
                    .collect();
                site.run.runs(k, &starts, key.size)
            };
            rows.iter().map(of).collect()
        });
        Some([queries.as_ref()?, keys.as_ref()?])
    }
}

/// Products of which two unrelated tensors have all signs right by chance once in thirty thousand times.
const GLANCED_ROWS: usize = 2;
const GLANCED_KEYS: usize = 8;

/// Of the largest score: what is smaller may have either sign by its rounding.
const SILENT: f64 = 0.05;

fn probabilities<'a>(site: &Site<'a>, [q, k]: [usize; 2], scores: Scores) -> Option<Learned<'a>> {
    let rows = Rows {
        scores,
        query: Input::read(site.run, q)?,
        key: Input::read(site.run, k)?,
        support: site.out.recorded().clone(),
    };
    let on = rows.on(&site.out)?;
    let fitted = on.fit_scale()?;
    let picked = rows.some();
    let near = |softmax: &Softmax| {
        let wanted = picked.iter().flat_map(|row| on.wanted(*row).into_owned());
        let made = picked.iter().flat_map(|row| on.row(*softmax, *row));
        roughly(made, wanted, 16.0 * site.floor[1])
    };
    // Capped scores bend what the scale is fitted to: then it is one that people choose.
    let size = scores.query.size as f64;
    let capped = CAPS.into_iter().flat_map(|cap| {
        [1.0 / size.sqrt(), 1.0].map(|scale| Softmax {
            scale,
            cap: Some(cap),
        })
    });
    // Or none of those: the one that capped scores follow.
    let refitted = CAPS.into_iter().map(|cap| Softmax {
        scale: on.capped_scale(fitted, cap),
        cap: Some(cap),
    });
    let softmax = std::iter::once(Softmax {
        scale: fitted,
        cap: None,
    })
    .chain(capped)
    .chain(refitted)
    .find(near)?;
    let name = |at: usize| Formula::boxed(site.name(at));
    let scale = named(softmax.scale, &[scores.query.size], site.floor[0]);
    let formula = Formula::Softmax(Box::new(Formula::Scores {
        query: name(q),
        key: name(k),
        scale: scale.clone(),
        cap: softmax.cap,
        bias: None,
    }));
    let all = Arc::new(rows);
    let predict = over(&all, softmax);
    let alternatives = move |out: &Out<'_>| {
        other_probabilities(&all, [q, k], softmax, &scale, out).unwrap_or_default()
    };
    Some(Learned {
        terms: scores.query.size,
        work: scores.work(),
        looseness: 16.0,
        alternatives: Some(Box::new(alternatives)),
        ..Learned::new(formula, vec![q, k], predict)
    })
}

fn over(rows: &Arc<Rows>, softmax: Softmax) -> Predict {
    let rows = rows.clone();
    Box::new(move |run, picked| {
        let given = rows.given(run)?;
        Some(
            picked
                .rows()
                .flat_map(|row| given.row(softmax, row))
                .collect(),
        )
    })
}

/// Another cap, another scale, keys in place of queries or values in place of keys.
fn other_probabilities(
    all: &Arc<Rows>,
    inputs: [usize; 2],
    softmax: Softmax,
    scale: &Constant,
    out: &Out<'_>,
) -> Option<Vec<Alternative>> {
    let scores = all.scores;
    let on = all.on(out)?;
    let caps = on
        .fit_cap(softmax)
        .into_iter()
        .chain(CAPS)
        .map(Some)
        .chain([None])
        .filter(|cap| *cap != softmax.cap);
    let mut others: Vec<Alternative> = caps
        .map(|cap| Alternative {
            change: Change::Softcap {
                inputs,
                cap,
                of: softmax.cap,
            },
            fitted: cap.is_some_and(|cap| !CAPS.contains(&cap)),
            predict: over(all, Softmax { cap, ..softmax }),
        })
        .collect();
    let fitted = on.fit_scale().map(|fitted| {
        softmax
            .cap
            .map_or(fitted, |cap| on.capped_scale(fitted, cap))
    });
    let size = scores.query.size as f64;
    let usual = [1.0, 1.0 / size.sqrt(), 1.0 / size];
    // A scale that people choose is said as that.
    let fitted = fitted.filter(|fitted| {
        usual
            .iter()
            .all(|usual| (fitted / usual - 1.0).abs() > 1e-4)
    });
    for other in usual.into_iter().chain(fitted) {
        if (other / softmax.scale - 1.0).abs() > 0.01 {
            others.push(Alternative {
                change: Change::SoftmaxScale {
                    scale: named(other, &[scores.query.size], 1e-3),
                    of: scale.clone(),
                    scaled: Scaled::Products,
                },
                fitted: Some(other) == fitted,
                predict: over(
                    all,
                    Softmax {
                        scale: other,
                        ..softmax
                    },
                ),
            });
        }
    }
    // Keys for queries, values for keys.
    let is_square =
        scores.sizes.queries == scores.sizes.keys && scores.query.heads == scores.key.heads;
    let swapped = is_square.then(|| {
        let rows = Rows {
            scores: Scores {
                sizes: scores.sizes,
                query: scores.key,
                key: scores.query,
            },
            query: all.key.clone(),
            key: all.query.clone(),
            support: all.support.clone(),
        };
        (Change::QueriesAndKeysSwapped { inputs }, rows)
    });
    let values = scores
        .key
        .others()
        .filter(|other| *other != scores.query)
        .map(|key| {
            let rows = Rows {
                scores: Scores { key, ..scores },
                query: all.query.clone(),
                key: all.key.clone(),
                support: all.support.clone(),
            };
            (Change::ValuesForKeys { inputs }, rows)
        });
    for (change, rows) in swapped.into_iter().chain(values) {
        others.push(Alternative {
            change,
            fitted: false,
            predict: over(&Arc::new(rows), softmax),
        });
    }
    Some(others)
}

/// Rows of probabilities that are recorded.
struct Rows {
    scores: Scores,
    query: Input,
    key: Input,
    /// The probabilities it was learned on: the mask of every run is where these are 0.
    support: Arc<Recorded>,
}

impl Rows {
    fn index(&self, row: usize) -> (usize, usize, usize) {
        let Sizes { heads, queries, .. } = self.scores.sizes;
        (row / queries / heads, row / queries % heads, row % queries)
    }

    fn count(&self) -> usize {
        let Sizes {
            batch,
            heads,
            queries,
            ..
        } = self.scores.sizes;
        batch * heads * queries
    }

    /// A few, spread out.
    fn some(&self) -> Vec<usize> {
        (0..self.count().min(24))
            .map(|i| (i * 2_654_435_761) % self.count())
            .collect()
    }

    fn support(&self, row: usize) -> Cow<'_, [f64]> {
        let keys = self.scores.sizes.keys;
        self.support.run(row * keys, keys)
    }

    /// With the queries and keys of a run.
    fn given(&self, run: &dyn Run) -> Option<Given<'_>> {
        Some(Given {
            rows: self,
            query: self.query.on(run)?,
            key: self.key.on(run)?,
        })
    }

    /// With the probabilities of a run too.
    fn on(&self, out: &Out<'_>) -> Option<OnRun<'_>> {
        Some(OnRun {
            given: self.given(out.run)?,
            out: out.recorded().clone(),
        })
    }
}

/// Rows of probabilities as the queries and keys of one run make them.
struct Given<'r> {
    rows: &'r Rows,
    query: Values,
    key: Values,
}

impl Given<'_> {
    /// The products of a row.
    fn dots(&self, row: usize, out: &mut Vec<f64>) {
        let (batch, head, query) = self.rows.index(row);
        self.rows
            .scores
            .row(&self.query, &self.key, batch, head, query, out);
    }

    fn row(&self, softmax: Softmax, row: usize) -> Vec<f64> {
        let mut scores = Vec::new();
        self.dots(row, &mut scores);
        let support = self.rows.support(row);
        softmax.apply(&mut scores, |key| support[key] > 0.0);
        scores
    }
}

/// The same beside the probabilities that the run recorded.
struct OnRun<'r> {
    given: Given<'r>,
    out: Arc<Recorded>,
}

impl OnRun<'_> {
    fn row(&self, softmax: Softmax, row: usize) -> Vec<f64> {
        self.given.row(softmax, row)
    }

    /// One of those recorded.
    fn wanted(&self, row: usize) -> Cow<'_, [f64]> {
        let keys = self.given.rows.scores.sizes.keys;
        self.out.run(row * keys, keys)
    }

    /// The scale that makes the log-odds of scores that are capped behind it, from one that does without the cap.
    fn capped_scale(&self, start: f64, cap: f64) -> f64 {
        let mut scale = start;
        let mut dots = Vec::new();
        for _ in 0..REFINED {
            let mut odds = Odds::default();
            for row in self.given.rows.some() {
                self.given.dots(row, &mut dots);
                dots.iter_mut()
                    .for_each(|score| *score = softcap(scale * *score, cap));
                odds.add(&dots, &self.wanted(row));
            }
            scale *= odds.xy / odds.xx;
        }
        scale
    }

    /// The cap that makes the probabilities of a few rows, when one does better than none.
    fn fit_cap(&self, softmax: Softmax) -> Option<f64> {
        let picked = self.given.rows.some();
        let miss = |cap: Option<f64>| -> f64 {
            let error = |row: &usize| {
                let made = self.row(Softmax { cap, ..softmax }, *row);
                made.iter()
                    .zip(&*self.wanted(*row))
                    .map(|(made, c)| (made - c) * (made - c))
                    .sum::<f64>()
            };
            picked.iter().map(error).sum()
        };
        let none = miss(None);
        let cap = functions::best_cap(|cap| miss(Some(cap)));
        (none > 0.0 && miss(Some(cap)) < 0.9 * none).then_some(cap)
    }

    /// The factor between products and log-odds, by least squares within rows.
    fn fit_scale(&self) -> Option<f64> {
        let mut odds = Odds::default();
        let mut dots = Vec::new();
        let count = self.given.rows.count();
        for i in 0..count.min(64) {
            let row = (i * 2_654_435_761) % count;
            self.given.dots(row, &mut dots);
            odds.add(&dots, &self.wanted(row));
        }
        // Unrelated queries and keys would fit next to nothing.
        (odds.related(0.5) && odds.xy > 0.0).then(|| odds.xy / odds.xx)
    }
}

/// Probabilities that are mostly rounding.
const NEGLIGIBLE: f64 = 1e-5;

/// Log-odds against products, row by row about their means.
#[derive(Default)]
struct Odds {
    xy: f64,
    xx: f64,
    yy: f64,
}

impl Odds {
    fn add(&mut self, dots: &[f64], p: &[f64]) {
        let used: Vec<usize> = (0..p.len()).filter(|t| p[*t] > NEGLIGIBLE).collect();
        if used.len() < 2 {
            return;
        }
        let mean = |of: &dyn Fn(usize) -> f64| {
            used.iter().map(|t| of(*t)).sum::<f64>() / used.len() as f64
        };
        let (x0, y0) = (mean(&|t| dots[t]), mean(&|t| p[t].ln()));
        let both = |of: &dyn Fn(usize) -> f64| used.iter().map(|t| of(*t)).collect::<Vec<f64>>();
        self.add_levelled(&both(&|t| dots[t] - x0), &both(&|t| p[t].ln() - y0));
    }

    /// Of rows about their means.
    fn add_levelled(&mut self, dots: &[f64], logs: &[f64]) {
        for (x, y) in dots.iter().zip(logs) {
            self.xy += x * y;
            self.xx += x * x;
            self.yy += y * y;
        }
    }

    /// Whether one explains this share of the other; true where nothing can be said.
    fn related(&self, share: f64) -> bool {
        self.xy * self.xy >= share * self.xx * self.yy && (self.xx > 0.0 || share < 0.5)
    }
}

/// Steps to a scale behind a cap: each leaves a small share of what was off.
const REFINED: usize = 8;

pub(crate) struct Mixture;

impl Op for Mixture {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let mut learned = Vec::new();
        for &p in &site.before {
            let Some(sizes) = Sizes::of_probabilities(site.run.dims(p)) else {
                continue;
            };
            let elements = site.elements();
            if !elements.is_multiple_of((sizes.batch * sizes.heads * sizes.queries).max(1)) {
                continue;
            }
            let first = site.run.beginning(p, FEW_ROWS * sizes.keys);
            if !first.is_some_and(|first| are_probabilities(&first, sizes.keys)) {
                continue;
            }
            // Read only where a few rows promise something.
            let mut weights: Option<Option<Arc<Recorded>>> = None;
            let outs = Heads::all(site.dims(), sizes.batch, sizes.queries, Some(sizes.heads));
            for &v in site.before.iter().filter(|v| **v != p) {
                for out in &outs {
                    for value in Heads::of_size(
                        site.run.dims(v),
                        sizes.batch,
                        sizes.keys,
                        out.size,
                        sizes.heads,
                    ) {
                        let mixed = Mixed {
                            sizes,
                            value,
                            out: *out,
                        };
                        let rows: Vec<(usize, usize, usize)> = mixed.glanced().collect();
                        let row = |nth: usize| {
                            let (b, h, s) = rows[nth];
                            site.run.runs(
                                p,
                                &[((b * sizes.heads + h) * sizes.queries + s) * sizes.keys],
                                sizes.keys,
                            )
                        };
                        // Nothing is left to be chosen: only rounding may be between. One average of probabilities looks like another.
                        let most = (16.0 * site.floor[1]).clamp(1e-3, PROMISING);
                        let promises = || {
                            mixed
                                .glance(site, v)
                                .is_some_and(|glance| glance.promises(most, row))
                        };
                        if sizes.heads % value.heads != 0
                            || !site.is_possible(elements * sizes.keys)
                            || !promises()
                        {
                            continue;
                        }
                        let more = || {
                            site.run
                                .beginning(p, MORE_ROWS * sizes.keys)
                                .filter(|first| are_probabilities(first, sizes.keys))
                        };
                        let load = || more().and_then(|_| site.run.recorded(p)).map(Arc::new);
                        if let Some(weights) = weights.get_or_insert_with(load) {
                            learned.extend(mixture(site, p, v, weights, mixed));
                        }
                    }
                }
            }
        }
        if learned.is_empty() {
            learned = directly(site);
        }
        learned
    }
}

/// Which tokens a few are taken from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Few {
    Any,
    First,
}

/// As many tokens as the shortest window that is looked for.
const FIRST: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Mixed {
    sizes: Sizes,
    value: Heads,
    out: Heads,
}

impl Mixed {
    /// One head of one token.
    fn one(self, weights: &[f64], value: &[f64], batch: usize, head: usize, out: &mut [f64]) {
        let kv = head / (self.sizes.heads / self.value.heads);
        out.fill(0.0);
        for (t, weight) in weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight != 0.0)
        {
            let v = &value[self.value.at(batch, kv, t)..][..self.value.size];
            add_times(out, *weight, v);
        }
    }

    /// Some rows of the output, with the weights from wherever they come. Where heads are merged, a row holds all of them.
    fn every(
        self,
        value: &[f64],
        picked: Picked<'_>,
        width: usize,
        mut weights: impl FnMut(usize, usize, usize) -> Vec<f64>,
    ) -> Vec<f64> {
        let mut made = vec![0.0; picked.count() * width];
        for (row, made) in picked.rows().zip(made.chunks_exact_mut(width)) {
            for (nth, made) in made.chunks_exact_mut(self.out.size).enumerate() {
                let (b, h, s) = self.out.whose(row * (width / self.out.size) + nth);
                self.one(&weights(b, h, s), value, b, h, made);
            }
        }
        made
    }

    /// A few rows of heads that stand for all: batch, head and token of each.
    fn glanced(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let Sizes {
            batch,
            heads,
            queries,
            ..
        } = self.sizes;
        let rows = batch * heads * queries;
        (0..rows.min(GLANCED))
            .map(move |i| (i * 2_654_435_761 + rows / 2) % rows)
            .map(move |row| (row / queries / heads, row / queries % heads, row % queries))
    }

    /// A few channels of those rows and of the values they are made of; `None` when they cannot be read.
    fn glance(self, site: &Site<'_>, value: usize) -> Option<Glance> {
        let channels = self.out.size.min(GLANCED_CHANNELS);
        let row = |(b, h, s): (usize, usize, usize)| {
            let kv = h / (self.sizes.heads / self.value.heads);
            let starts: Vec<usize> = (0..self.sizes.keys)
                .map(|t| self.value.at(b, kv, t))
                .collect();
            Some((
                site.run.runs(value, &starts, channels)?,
                site.run.runs(site.at, &[self.out.at(b, h, s)], channels)?,
            ))
        };
        Some(Glance {
            rows: self.glanced().map(row).collect::<Option<_>>()?,
        })
    }

    /// Whether the first token of every head is that of the values, as it is where no token sees a later one.
    fn begins_with_values(self, site: &Site<'_>, value: usize) -> bool {
        let Sizes { batch, heads, .. } = self.sizes;
        let channels = self.out.size.min(GLANCED_CHANNELS);
        let per = heads / self.value.heads;
        let of = |at: usize, starts: Vec<usize>| site.run.runs(at, &starts, channels);
        let some = || {
            (0..batch * heads)
                .step_by((batch * heads).div_ceil(GLANCED))
                .map(move |nth| (nth / heads, nth % heads))
        };
        let values = of(
            value,
            some().map(|(b, h)| self.value.at(b, h / per, 0)).collect(),
        );
        let outs = of(site.at, some().map(|(b, h)| self.out.at(b, h, 0)).collect());
        let (Some(values), Some(outs)) = (values, outs) else {
            return false;
        };
        roughly(values.into_iter(), outs.into_iter(), 4.0 * site.floor[1])
    }

    /// Whether a few heads of a few tokens come out.
    fn some(
        self,
        site: &Site<'_>,
        value: &[f64],
        which: Few,
        mut weights: impl FnMut(usize, usize, usize) -> Vec<f64>,
    ) -> bool {
        let out: &[f64] = &site.out;
        let wanted = self
            .few_rows(which)
            .flat_map(|(b, h, s)| &out[self.out.at(b, h, s)..][..self.out.size])
            .copied();
        let made = self.few_rows(which).flat_map(|(b, h, s)| {
            let mut one = vec![0.0; self.out.size];
            self.one(&weights(b, h, s), value, b, h, &mut one);
            one
        });
        roughly(made, wanted, 4.0 * site.floor[1])
    }

    /// How far they are off, squared.
    fn miss(
        self,
        out: &[f64],
        value: &[f64],
        which: Few,
        mut weights: impl FnMut(usize, usize, usize) -> Vec<f64>,
    ) -> f64 {
        let mut one = vec![0.0; self.out.size];
        let mut of_row = |(b, h, s): (usize, usize, usize)| {
            self.one(&weights(b, h, s), value, b, h, &mut one);
            let wanted = &out[self.out.at(b, h, s)..][..self.out.size];
            one.iter()
                .zip(wanted)
                .map(|(made, wanted)| (made - wanted) * (made - wanted))
                .sum::<f64>()
        };
        self.few_rows(which).map(&mut of_row).sum()
    }

    /// A few heads of a few tokens.
    fn few_rows(self, which: Few) -> impl Iterator<Item = (usize, usize, usize)> + Clone {
        let Sizes {
            batch,
            heads,
            queries,
            ..
        } = self.sizes;
        let rows = batch * heads * queries;
        (0..rows.min(24)).map(move |i| {
            let row = (i * 2_654_435_761) % rows;
            let s = row % queries;
            (
                row / queries / heads,
                row / queries % heads,
                if which == Few::First {
                    s % FIRST.min(queries)
                } else {
                    s
                },
            )
        })
    }
}

/// What [`Mixed::glanced`] rows are, and the values they are made of.
struct Glance {
    rows: Vec<(Vec<f64>, Vec<f64>)>,
}

impl Glance {
    /// Whether they come out but for so much, with the weights from wherever they come.
    fn promises(&self, most: f64, mut weights: impl FnMut(usize) -> Option<Vec<f64>>) -> bool {
        let (mut error, mut energy) = (0.0, 0.0);
        for (nth, (values, wanted)) in self.rows.iter().enumerate() {
            let Some(weights) = weights(nth) else {
                return false;
            };
            let mut made = vec![0.0; wanted.len()];
            for (weight, values) in weights.iter().zip(values.chunks_exact(wanted.len())) {
                add_times(&mut made, *weight, values);
            }
            error += made
                .iter()
                .zip(wanted)
                .map(|(made, wanted)| (made - wanted) * (made - wanted))
                .sum::<f64>();
            energy += wanted.iter().map(|wanted| wanted * wanted).sum::<f64>();
            if error > most * most * energy {
                return false;
            }
        }
        true
    }
}

fn mixture<'a>(
    site: &Site<'a>,
    p: usize,
    v: usize,
    weights: &Arc<Recorded>,
    mixed: Mixed,
) -> Option<Learned<'a>> {
    let value = Input::read(site.run, v)?;
    let Sizes {
        heads,
        queries,
        keys,
        ..
    } = mixed.sizes;
    let row = move |weights: &Recorded, b: usize, h: usize, s: usize| {
        weights
            .run(((b * heads + h) * queries + s) * keys, keys)
            .into_owned()
    };
    let values = value.on(site.run)?;
    if !mixed.some(site, &values, Few::Any, |b, h, s| row(weights, b, h, s)) {
        return None;
    }
    let width = site.width();
    let weights = InPart::kept(site.run, p, weights.clone());
    let over = move |mixed: Mixed| -> Predict {
        let (weights, value) = (weights.clone(), value.clone());
        Box::new(move |run, picked| {
            let (weights, value) = (weights.on(run)?, value.on(run)?);
            Some(mixed.every(&value, picked, width, |b, h, s| row(&weights, b, h, s)))
        })
    };
    let predict = over(mixed);
    let alternatives = mixed.value.is_fused().then(|| -> Alternatives<'a> {
        Box::new(move |_| {
            let one = |other: Heads| Alternative {
                change: Change::OtherPartForValues { inputs: [p, v] },
                fitted: false,
                predict: over(Mixed {
                    value: other,
                    ..mixed
                }),
            };
            mixed.value.others().map(one).collect()
        })
    });
    let formula = Formula::Mixture {
        probabilities: Formula::boxed(site.name(p)),
        values: Formula::boxed(site.name(v)),
    };
    Some(Learned {
        terms: keys,
        work: site.elements() * keys,
        looseness: 2.0,
        alternatives,
        ..Learned::new(formula, vec![p, v], predict)
    })
}

/// Of the squares of the output, what must be off before a scale is fitted.
const DIFFERS: f64 = 1e-3;
/// Masks that are tried on everything.
const NEAREST_MASKS: usize = 3;
/// The search for a factor begins at a half: the scale may also be less.
const SCALES: f64 = 32.0;
/// So many keys or fewer: a window of any length.
const FEW_KEYS: usize = 64;

/// Windows that are shorter than what there is to see; of many keys only the lengths that people choose, and those beside them.
fn windows(keys: usize) -> impl Iterator<Item = Mask> {
    let usual = (1..20).flat_map(|power| [(1usize << power) - 1, 1 << power, (1 << power) + 1]);
    let lengths: Vec<usize> = if keys <= FEW_KEYS {
        (FIRST..keys).collect()
    } else {
        usual
            .filter(|window| (FIRST..keys).contains(window))
            .collect()
    };
    lengths.into_iter().map(Mask::Window)
}

/// Rows of heads, and channels of each, that are looked at before a tensor is read; how far off they may be.
const GLANCED: usize = 3;
const GLANCED_CHANNELS: usize = 8;
const PROMISING: f64 = 0.4;

/// Weights of the rows that are glanced at, by the usual scales and masks.
struct Weights {
    by_way: Vec<Vec<Vec<f64>>>,
}

impl Weights {
    fn of(site: &Site<'_>, [q, k]: [usize; 2], scores: Scores, mixed: Mixed) -> Option<Self> {
        let size = scores.query.size;
        let scales = [1.0 / (size as f64).sqrt(), 1.0, 1.0 / size as f64];
        // As many queries as keys and no mask, or more keys than queries and any.
        let masks: &[Mask] = if scores.sizes.keys > scores.sizes.queries {
            &[Mask::Causal, Mask::Full]
        } else {
            &[Mask::Full]
        };
        let ways: Vec<(f64, Mask)> = masks
            .iter()
            .flat_map(|mask| scales.map(|scale| (scale, *mask)))
            .collect();
        let mut by_way = vec![Vec::new(); ways.len()];
        for (b, h, s) in mixed.glanced() {
            let query = site.run.runs(q, &[scores.query.at(b, h, s)], size)?;
            let kv = h / (scores.sizes.heads / scores.key.heads);
            let starts: Vec<usize> = (0..scores.sizes.keys)
                .map(|t| scores.key.at(b, kv, t))
                .collect();
            let keys = site.run.runs(k, &starts, size)?;
            let dots: Vec<f64> = keys
                .chunks_exact(size)
                .map(|key| dot(key, &query))
                .collect();
            for ((scale, mask), rows) in ways.iter().zip(&mut by_way) {
                let mut row = dots.clone();
                Softmax {
                    scale: *scale,
                    cap: None,
                }
                .apply(&mut row, |t| sees(*mask, scores.sizes, s, t));
                rows.push(row);
            }
        }
        Some(Self { by_way })
    }

    fn promise(&self, glance: &Glance) -> bool {
        self.by_way
            .iter()
            .any(|rows| glance.promises(PROMISING, |nth| rows.get(nth).cloned()))
    }
}

/// Queries, keys and values are looked for among this many tensors.
const NEAREST: usize = 10;

/// Attention whose probabilities were not recorded: the scale and the mask are those that make the output.
fn directly<'a>(site: &Site<'a>) -> Vec<Learned<'a>> {
    let near: Vec<usize> = site
        .before
        .iter()
        .copied()
        .filter(|at| site.run.dims(*at).len() >= 3)
        .take(NEAREST)
        .collect();
    let mut learned = Vec::new();
    let mut possible: HashMap<(usize, Mixed), Could> = HashMap::new();
    let mut weights: HashMap<(usize, usize, Mixed), Option<Weights>> = HashMap::new();
    let dims = |at: usize| site.run.dims(at);
    let elements = |at: usize| site.run.elements(at);
    for &q in &near {
        for Sizes {
            batch,
            heads,
            queries,
            ..
        } in readings(dims(q), site.dims())
        {
            let Some(query) = Heads::all(dims(q), batch, queries, Some(heads))
                .into_iter()
                .next()
            else {
                continue;
            };
            let outs = Heads::all(site.dims(), batch, queries, Some(heads));
            for &k in near.iter().filter(|k| **k != q) {
                let &[.., c, d, _] = dims(k) else {
                    continue;
                };
                for &v in near
                    .iter()
                    .filter(|v| **v != q && **v != k && elements(**v) == elements(k))
                {
                    for (scores, value) in [d, c].into_iter().flat_map(|keys| {
                        let sizes = Sizes {
                            batch,
                            heads,
                            queries,
                            keys,
                        };
                        keys_and_values(sizes, query, dims(k), dims(v))
                    }) {
                        // Of one key there is nothing to choose.
                        if scores.sizes.keys < 2
                            || heads % scores.key.heads != 0
                            || scores.work() > MOST_WORK
                        {
                            continue;
                        }
                        for out in outs.iter().filter(|out| out.size == value.size) {
                            let mixed = Mixed {
                                sizes: scores.sizes,
                                value,
                                out: *out,
                            };
                            // Whatever the queries and keys are.
                            let could = possible
                                .entry((v, mixed))
                                .or_insert_with(|| Could::of(site, v, mixed));
                            let promises = match could {
                                Could::Not => false,
                                Could::Causal => true,
                                Could::Promise(glance) => {
                                    let known = weights.entry((q, k, mixed));
                                    let known = known.or_insert_with(|| {
                                        Weights::of(site, [q, k], scores, mixed)
                                    });
                                    known
                                        .as_ref()
                                        .is_some_and(|weights| weights.promise(glance))
                                }
                            };
                            if promises {
                                learned.extend(attention(site, [q, k, v], scores, mixed, could));
                            }
                        }
                    }
                }
            }
        }
    }
    learned
}

/// The sizes that queries may have: with their heads apart, or merged where the output has them apart. The keys are not known yet.
fn readings(of_query: &[usize], of_output: &[usize]) -> Vec<Sizes> {
    let sizes = |batch: usize, heads: usize, queries: usize| Sizes {
        batch,
        heads,
        queries,
        keys: 0,
    };
    let mut all = Vec::new();
    if let &[ref outer @ .., a, b, _] = of_query {
        let batch = outer.iter().product();
        all.extend([sizes(batch, a, b), sizes(batch, b, a)]);
    }
    if let (&[batch, tokens, _], &[same, a, b, _]) = (of_query, of_output)
        && batch == same
    {
        let either = [(a, b), (b, a)]
            .into_iter()
            .filter(|(_, queries)| *queries == tokens);
        all.extend(either.map(|(heads, queries)| sizes(batch, heads, queries)));
    }
    all
}

/// How keys and values may lie that such queries are held against: alike, or with the heads of one merged.
fn keys_and_values(
    sizes: Sizes,
    query: Heads,
    of_key: &[usize],
    of_value: &[usize],
) -> Vec<(Scores, Heads)> {
    let Sizes {
        batch, heads, keys, ..
    } = sizes;
    let ways = |dims: &[usize]| {
        Heads::of_size(dims, batch, keys, query.size, heads)
            .into_iter()
            .filter(|way| !way.is_fused())
    };
    let mut all = Vec::new();
    for key in ways(of_key) {
        let alike = |value: &Heads| {
            if of_key == of_value {
                *value == key
            } else {
                value.heads == key.heads
            }
        };
        all.extend(
            ways(of_value)
                .filter(alike)
                .map(|value| (Scores { sizes, query, key }, value)),
        );
    }
    all
}

/// How values could make an output, whatever the queries and keys are.
enum Could {
    Not,
    Causal,
    /// With the right weights.
    Promise(Glance),
}

impl Could {
    fn of(site: &Site<'_>, v: usize, mixed: Mixed) -> Self {
        // With more keys than queries the first query sees those before it.
        if mixed.sizes.keys <= mixed.sizes.queries && mixed.begins_with_values(site, v) {
            return Could::Causal;
        }
        mixed.glance(site, v).map_or(Could::Not, Could::Promise)
    }
}

fn attention<'a>(
    site: &Site<'a>,
    [q, k, v]: [usize; 3],
    scores: Scores,
    mixed: Mixed,
    could: &Could,
) -> Option<Learned<'a>> {
    let (starts_alone, sees_all) = match could {
        Could::Not => return None,
        Could::Causal => (true, false),
        Could::Promise(_) => (scores.sizes.keys > scores.sizes.queries, true),
    };
    let read = |at: usize| Input::read(site.run, at);
    let whole = Whole {
        inputs: [read(q)?, read(k)?, read(v)?],
        scores,
        mixed,
        width: site.width(),
    };
    let size = scores.query.size as f64;
    let sizes = scores.sizes;
    let plain = [1.0 / size.sqrt(), 1.0, 1.0 / size].map(|scale| Softmax { scale, cap: None });
    let capped = CAPS.map(|cap| Softmax {
        cap: Some(cap),
        ..plain[0]
    });
    let [query, key, value] = whole.on(site.run)?;
    let near = |mask: Mask, softmax: Softmax, rows: Few| {
        mixed.some(site, &value, rows, |b, h, s| {
            whole.weights([&query, &key], softmax, mask, (b, h, s))
        })
    };
    let ways = || plain.into_iter().chain(capped);
    let full = || {
        ways()
            .find(|softmax| near(Mask::Full, *softmax, Few::Any))
            .map(|softmax| (Mask::Full, softmax))
    };
    // The first tokens see the same under every causal mask: they tell the softmax, and all others the mask.
    let causal = || {
        let softmax = ways().find(|softmax| near(Mask::Causal, *softmax, Few::First))?;
        let mask = std::iter::once(Mask::Causal)
            .chain(windows(sizes.keys))
            .find(|mask| near(*mask, softmax, Few::Any))?;
        Some((mask, softmax))
    };
    let (mask, softmax) = if starts_alone { causal() } else { None }
        .or_else(|| if sees_all { full() } else { None })?;
    let name = |at: usize| Formula::boxed(site.name(at));
    let formula = Formula::Attention {
        query: name(q),
        key: name(k),
        value: name(v),
        mask,
        cap: softmax.cap,
    };
    let whole = Arc::new(whole);
    let predict = whole.predict(softmax, mask);
    let alternatives = move |out: &Out<'_>| {
        whole
            .alternatives([q, k], softmax, mask, out)
            .unwrap_or_default()
    };
    Some(Learned {
        terms: sizes.keys,
        work: 2 * scores.work(),
        looseness: 8.0,
        alternatives: Some(Box::new(alternatives)),
        ..Learned::new(formula, vec![q, k, v], predict)
    })
}

/// Attention from queries, keys and values to the output.
struct Whole {
    inputs: [Input; 3],
    scores: Scores,
    mixed: Mixed,
    /// Of a row of the output.
    width: usize,
}

impl Whole {
    /// Queries, keys and values of a run.
    fn on(&self, run: &dyn Run) -> Option<[Values; 3]> {
        let [query, key, value] = &self.inputs;
        Some([query.on(run)?, key.on(run)?, value.on(run)?])
    }

    /// The weights of a batch row, a head and a token.
    fn weights(
        &self,
        [query, key]: [&[f64]; 2],
        softmax: Softmax,
        mask: Mask,
        at: (usize, usize, usize),
    ) -> Vec<f64> {
        let sizes = self.scores.sizes;
        let sees = |t: usize| sees(mask, sizes, at.2, t);
        let mut row = Vec::new();
        self.scores.seen(query, key, at, sees, &mut row);
        softmax.apply(&mut row, sees);
        row
    }

    fn predict(self: &Arc<Self>, softmax: Softmax, mask: Mask) -> Predict {
        let whole = self.clone();
        Box::new(move |run, picked| {
            let [query, key, value] = whole.on(run)?;
            let both: [&[f64]; 2] = [&query, &key];
            let weights = |b, h, s| whole.weights(both, softmax, mask, (b, h, s));
            Some(whole.mixed.every(&value, picked, whole.width, weights))
        })
    }

    /// Another mask, another scale, another cap.
    fn alternatives(
        self: &Arc<Self>,
        [q, k]: [usize; 2],
        softmax: Softmax,
        mask: Mask,
        out: &Out<'_>,
    ) -> Option<Vec<Alternative>> {
        let (sizes, mixed) = (self.scores.sizes, self.mixed);
        let [query, key, value] = self.on(out.run)?;
        // On a few rows, to choose among many.
        let miss = |softmax: Softmax, mask: Mask| {
            mixed.miss(out, &value, Few::Any, |b, h, s| {
                self.weights([&query, &key], softmax, mask, (b, h, s))
            })
        };
        let mut all = Vec::new();
        let mut masks: Vec<Mask> = [Mask::Causal, Mask::Full]
            .into_iter()
            .chain(windows(sizes.keys))
            .filter(|other| *other != mask)
            .collect();
        masks.sort_by_cached_key(|mask| miss(softmax, *mask).to_bits());
        for other in masks.into_iter().take(NEAREST_MASKS) {
            all.push(Alternative {
                change: Change::Mask {
                    query: q,
                    mask: other,
                    of: mask,
                },
                fitted: false,
                predict: self.predict(softmax, other),
            });
        }
        // Another scale is nothing subtle.
        let scale = softmax.scale;
        let nothing = mixed.miss(out, &value, Few::Any, |_, _, _| vec![0.0; sizes.keys]);
        let differs = miss(softmax, mask) > DIFFERS * nothing;
        let fit = || {
            functions::best_cap(|factor| {
                let scale = scale * factor / SCALES;
                miss(Softmax { scale, ..softmax }, mask)
            }) * scale
                / SCALES
        };
        let fitted = if differs { fit() } else { scale };
        let size = self.scores.query.size;
        for other in [1.0, 1.0 / (size as f64).sqrt(), 1.0 / size as f64, fitted] {
            if (other / scale - 1.0).abs() > 0.01 {
                let instead = Softmax {
                    scale: other,
                    ..softmax
                };
                all.push(Alternative {
                    change: Change::SoftmaxScale {
                        scale: named(other, &[size], 1e-3),
                        of: Constant {
                            value: scale,
                            name: None,
                        },
                        scaled: Scaled::Queries(q),
                    },
                    fitted: other == fitted,
                    predict: self.predict(instead, mask),
                });
            }
        }
        let caps = CAPS
            .map(Some)
            .into_iter()
            .chain([None])
            .filter(|cap| *cap != softmax.cap);
        for cap in caps {
            all.push(Alternative {
                change: Change::Softcap {
                    inputs: [q, k],
                    cap,
                    of: softmax.cap,
                },
                fitted: false,
                predict: self.predict(Softmax { cap, ..softmax }, mask),
            });
        }
        Some(all)
    }
}
