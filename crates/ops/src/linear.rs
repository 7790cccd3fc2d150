//! A product with a recorded weight, and a bias learned from the values: what each output is beyond the product, on average.

use crate::{
    Alternative, Change, Input, Learned, Op, Out, Picked, Predict, Run, Site, Values, WeightChange,
    array::rms,
    coarse,
    rows::Rows,
    site::{ENOUGH_ROWS, ENOUGH_WORK, MOST_WORK},
};
use std::{borrow::Cow, ops::Range, sync::Arc};
use twinscope_measure::{add_times, dot, rounding::unit_roundoff};
use twinscope_tensor::formula::Formula;

pub(crate) struct Linear;

/// A product of an input and a weight, on any run.
#[derive(Clone)]
struct Product {
    input: Input,
    weight: Input,
    frame: Frame,
}

/// How the input, the weight and the output of a product lie.
#[derive(Clone)]
struct Frame {
    from: Rows,
    to: Rows,
    /// `[in, out]` instead of `[out, in]`.
    transposed: bool,
    /// The input features that are summed over.
    summed: Range<usize>,
}

impl Product {
    fn on(&self, run: &dyn Run) -> Option<Factors<'_>> {
        Some(Factors {
            input: self.input.on(run)?,
            weight: self.weight.on(run)?,
            frame: &self.frame,
        })
    }
}

/// A product on one run.
struct Factors<'p> {
    input: Values,
    weight: Values,
    frame: &'p Frame,
}

impl Factors<'_> {
    fn one(&self, row: usize, feature: usize) -> f64 {
        let mut one = [0.0];
        self.row(&self.given(row), feature..feature + 1, &mut one);
        one[0]
    }

    /// The features of one row of the input.
    fn given(&self, row: usize) -> Cow<'_, [f64]> {
        let from = &self.frame.from;
        let (inner, values): (usize, &[f64]) = (from.features, &self.input);
        match from.run(0) == inner {
            true => Cow::Borrowed(&values[from.at(row * inner)..][..inner]),
            false => Cow::Owned(
                (0..inner)
                    .map(|i| values[from.at(row * inner + i)])
                    .collect(),
            ),
        }
    }

    /// Some features of what one row of the input makes.
    fn row(&self, x: &[f64], features: Range<usize>, out: &mut [f64]) {
        let Frame {
            from,
            to,
            transposed,
            summed,
        } = self.frame;
        let (inner, outer) = (from.features, to.features);
        let w: &[f64] = &self.weight;
        out.fill(0.0);
        if *transposed {
            for (x, w) in x[summed.clone()]
                .iter()
                .zip(w[summed.start * outer..].chunks_exact(outer))
            {
                add_times(out, *x, &w[features.clone()]);
            }
        } else {
            for (out, w) in out
                .iter_mut()
                .zip(w[features.start * inner..].chunks_exact(inner))
            {
                *out = dot(&x[summed.clone()], &w[summed.clone()]);
            }
        }
    }

    /// So many features of some rows, each from its own first one on. As much of the weight as stays in the processor's cache is taken for
    /// all rows before the next.
    fn rows(&self, places: &[(usize, usize)], width: usize) -> Vec<f64> {
        let given: Vec<Cow<'_, [f64]>> = places.iter().map(|(row, _)| self.given(*row)).collect();
        let block = (IN_CACHE / self.frame.from.features.max(1)).max(8);
        let mut made = vec![0.0; places.len() * width];
        for first in (0..width).step_by(block) {
            let count = block.min(width - first);
            for (nth, (x, (_, feature))) in given.iter().zip(places).enumerate() {
                let from = feature + first;
                self.row(
                    x,
                    from..from + count,
                    &mut made[nth * width + first..][..count],
                );
            }
        }
        made
    }

    /// Some rows of the output as it lies, with so many times a bias.
    fn picked(&self, picked: Picked<'_>, width: usize, bias: Option<(f64, &[f64])>) -> Vec<f64> {
        let to = &self.frame.to;
        let place = |nth: usize| {
            let at = to.from(nth * width);
            (at / to.features, at % to.features)
        };
        let places: Vec<(usize, usize)> = picked.rows().map(place).collect();
        let mut made = self.rows(&places, width);
        if let Some((times, bias)) = bias {
            for (out, (_, feature)) in made.chunks_exact_mut(width).zip(&places) {
                add_times(out, times, &bias[*feature..]);
            }
        }
        made
    }

    /// What an output has beyond the product on average, a feature each; of many rows of a large product some say as much.
    fn beyond(&self, out: &[f64]) -> Vec<f64> {
        let Frame { from, to, .. } = self.frame;
        let Rows { rows, features, .. } = *to;
        let most = (ENOUGH_WORK / (features * from.features).max(1)).max(ENOUGH_ROWS);
        let some: Vec<usize> = (0..rows).step_by(rows.div_ceil(most)).collect();
        let made = self.rows(
            &some.iter().map(|row| (*row, 0)).collect::<Vec<_>>(),
            features,
        );
        let mut mean = vec![0.0; features];
        for (row, made) in some.iter().zip(made.chunks_exact(features)) {
            for (feature, (mean, made)) in mean.iter_mut().zip(made).enumerate() {
                *mean += (out[to.at(row * features + feature)] - made) / some.len() as f64;
            }
        }
        mean
    }
}

/// Values of a weight that stay in the processor's cache.
const IN_CACHE: usize = 1 << 16;

/// Tensors of which every two may have been multiplied before, when their product is not recorded.
const NEAREST: usize = 6;

/// What is multiplied with a weight: a recorded tensor, or a gate times what it gates.
struct Multiplied {
    of: Vec<usize>,
    formula: Formula,
    values: Input,
}

impl Op for Linear {
    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let outs = Rows::all(site.dims());
        let widths = |at: usize| {
            Rows::all(site.run.dims(at))
                .into_iter()
                .map(|rows| rows.features)
        };
        let fits = |at: usize, inner: usize| widths(at).any(|width| width == inner);
        let inner = |at: &usize| Some(site.run.dims(*at)).filter(|dims| dims.len() == 2);
        let wanted: Vec<usize> = site
            .parameters
            .iter()
            .filter_map(inner)
            .flatten()
            .copied()
            .collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let usable = || {
            site.before
                .iter()
                .copied()
                .filter(|at| wanted.iter().any(|inner| fits(*at, *inner)))
        };
        let learned: Vec<Learned<'a>> = usable()
            .flat_map(|at| of_input(site, vec![at], &outs))
            .collect();
        if !learned.is_empty() {
            return learned;
        }
        let near: Vec<usize> = usable().take(NEAREST).collect();
        let pairs = near
            .iter()
            .enumerate()
            .flat_map(|(nth, a)| near[nth + 1..].iter().map(move |b| (*a, *b)));
        let alike = pairs.filter(|(a, b)| site.run.dims(*a) == site.run.dims(*b));
        alike
            .flat_map(|(a, b)| of_input(site, vec![a, b], &outs))
            .collect()
    }
}

impl Multiplied {
    fn read(site: &Site<'_>, of: &[usize]) -> Option<Self> {
        let name = |at: usize| Formula::tensor(site.name(at));
        let (formula, values) = match *of {
            [at] => (name(at), Input::read(site.run, at)?),
            [a, b] => {
                let (x, y) = (Input::read(site.run, a)?, Input::read(site.run, b)?);
                let product = Input::new(move |run| {
                    let (x, y) = (x.on(run)?, y.on(run)?);
                    let product: Vec<f64> = x.iter().zip(y.iter()).map(|(x, y)| x * y).collect();
                    Some(Values::new(product))
                });
                (Formula::Product(vec![name(a), name(b)]), product)
            }
            _ => return None,
        };
        Some(Self {
            of: of.to_vec(),
            formula,
            values,
        })
    }
}

/// Every recorded weight that makes the output of one input, or of the product of two.
fn of_input<'a>(site: &Site<'a>, of: Vec<usize>, outs: &[Rows]) -> Vec<Learned<'a>> {
    let mut learned = Vec::new();
    let mut input: Option<Option<Multiplied>> = None;
    for from in Rows::all(site.run.dims(of[0])) {
        let mut glanced: Option<Option<Vec<Vec<f64>>>> = None;
        for &parameter in &site.parameters {
            let &[rows, columns] = site.run.dims(parameter) else {
                continue;
            };
            for to in outs {
                for transposed in [false, true] {
                    let (outer, inner) = if transposed {
                        (columns, rows)
                    } else {
                        (rows, columns)
                    };
                    let fits =
                        from.rows == to.rows && from.features == inner && to.features == outer;
                    if !fits || from.rows * inner * outer > MOST_WORK {
                        continue;
                    }
                    let shape = Shape {
                        from,
                        to: *to,
                        transposed,
                    };
                    let Some(glanced) = glanced.get_or_insert_with(|| shape.glanced(site, &of))
                    else {
                        return learned;
                    };
                    if !shape.promises(site, glanced, parameter) {
                        continue;
                    }
                    let Some(input) = input.get_or_insert_with(|| Multiplied::read(site, &of))
                    else {
                        return learned;
                    };
                    let Some(weight) = Input::read(site.run, parameter) else {
                        continue;
                    };
                    let product = Product {
                        input: input.values.clone(),
                        weight,
                        frame: Frame {
                            from,
                            to: *to,
                            transposed,
                            summed: 0..inner,
                        },
                    };
                    learned.extend(made(site, input, parameter, product));
                }
            }
        }
    }
    learned
}

/// How an input and a weight may make the output.
struct Shape {
    from: Rows,
    to: Rows,
    transposed: bool,
}

/// Differences of two rows that are compared before a weight is read, and how far off they may be. A run has hundreds of weights.
const GLANCES: usize = 8;
const PROMISING: f64 = 0.5;

impl Shape {
    /// The rows that are glanced at: always two, whose difference has no bias.
    fn rows(&self) -> impl Iterator<Item = [usize; 2]> + use<> {
        let rows = self.from.rows;
        (0..GLANCES).map(move |i| {
            [
                (i * 7919 + rows / 2) % rows,
                (i * 7919 + rows / 2 + 1) % rows,
            ]
        })
    }

    /// The difference of the two, of a tensor or of the product of several.
    fn glanced(&self, site: &Site<'_>, of: &[usize]) -> Option<Vec<Vec<f64>>> {
        let inner = self.from.features;
        let run = self.from.run(0);
        let row = |row: usize| -> Option<Vec<f64>> {
            let starts: Vec<usize> = (0..inner)
                .step_by(run)
                .map(|feature| self.from.at(row * inner + feature))
                .collect();
            let mut factors = of.iter().map(|at| site.run.runs(*at, &starts, run));
            let first = factors.next()??;
            factors.try_fold(first, |product, factor| {
                Some(product.iter().zip(&factor?).map(|(x, y)| x * y).collect())
            })
        };
        let apart = |[one, other]: [usize; 2]| match self.from.rows {
            1 => row(one),
            _ => Some(
                row(one)?
                    .iter()
                    .zip(&row(other)?)
                    .map(|(x, y)| x - y)
                    .collect(),
            ),
        };
        self.rows().map(apart).collect()
    }

    fn feature(&self, nth: usize) -> usize {
        (nth * 104_729 + 1) % self.to.features
    }

    /// The weights of the outputs that are glanced at.
    fn weights(&self, site: &Site<'_>, weight: usize) -> Option<Vec<Vec<f64>>> {
        let (inner, outer) = (self.from.features, self.to.features);
        let of = |feature: usize| match self.transposed {
            true => site.run.runs(
                weight,
                &(0..inner).map(|i| i * outer + feature).collect::<Vec<_>>(),
                1,
            ),
            false => site.run.runs(weight, &[feature * inner], inner),
        };
        (0..GLANCES).map(|nth| of(self.feature(nth))).collect()
    }

    /// Whether a few outputs come out, roughly: of each only the one row of the weight is read.
    fn promises(&self, site: &Site<'_>, glanced: &[Vec<f64>], weight: usize) -> bool {
        let outer = self.to.features;
        let Some(weights) = site
            .run
            .glances(weight, self.transposed, || self.weights(site, weight))
        else {
            return false;
        };
        let (mut error, mut energy) = (0.0, 0.0);
        for (i, ([row, other], x)) in self.rows().zip(glanced).enumerate() {
            let feature = self.feature(i);
            let place = |row: usize| self.to.at(row * outer + feature);
            let Some(wanted) = site.run.pick(site.at, &[place(row), place(other)]) else {
                return false;
            };
            let Some(bias) = alone(site, weight, self.from.rows, &[feature]) else {
                return false;
            };
            let wanted = if self.from.rows > 1 {
                wanted[0] - wanted[1]
            } else {
                wanted[0] - bias[0]
            };
            error += (dot(&weights[i], x) - wanted).powi(2);
            energy += wanted * wanted;
            // Most are hopeless after two.
            if i > 0 && error > energy {
                return false;
            }
        }
        let beyond = error - PROMISING * PROMISING * energy;
        beyond <= 0.0 || !beyond.is_finite()
    }
}

/// Pairs of rows compared before everything is computed: their difference has no bias.
const TRIED: usize = 24;

fn made<'a>(
    site: &Site<'a>,
    input: &Multiplied,
    parameter: usize,
    product: Product,
) -> Option<Learned<'a>> {
    let Frame { from, to, .. } = product.frame;
    let rows = to.rows;
    let factors = product.on(site.run)?;
    let out: &[f64] = &site.out;
    let (mut error, mut energy) = (0.0, 0.0);
    for i in 0..TRIED {
        let (row, other, feature) = (
            (i * 7919) % rows,
            (i * 7919 + 1) % rows,
            (i * 104_729) % to.features,
        );
        let wanted = |row: usize| out[to.at(row * to.features + feature)];
        let one = |row: usize| factors.one(row, feature);
        let bias = alone(site, parameter, rows, &[feature])?;
        let (made, wanted) = if rows > 1 {
            (one(row) - one(other), wanted(row) - wanted(other))
        } else {
            (one(row), wanted(row) - bias[0])
        };
        error += (made - wanted) * (made - wanted);
        energy += wanted * wanted;
    }
    if energy == 0.0 || error > (4.0 * site.floor[1]).powi(2) * energy {
        return None;
    }
    let bias = bias(site, parameter, &factors);
    let formula = Formula::Linear {
        input: Box::new(input.formula.clone()),
        weight: Formula::boxed(site.name(parameter)),
        bias: bias.is_some(),
    };
    let inputs = input.of.iter().copied().chain([parameter]).collect();
    let fitted = Fitted {
        input: input.formula.clone(),
        parameter,
        product,
        bias: bias.map(Into::into),
        width: site.width(),
    };
    let predict = fitted.plus_bias(&fitted.product, 1.0);
    let alternatives = {
        let site = site.clone();
        move |out: &Out<'_>| fitted.alternatives(&site, out).unwrap_or_default()
    };
    Some(Learned {
        terms: from.features,
        work: to.count() * from.features,
        looseness: 2.0,
        alternatives: Some(Box::new(alternatives)),
        ..Learned::new(formula, inputs, predict)
    })
}

/// A product that was learned.
struct Fitted {
    input: Formula,
    parameter: usize,
    product: Product,
    bias: Option<Arc<[f64]>>,
    /// Of a row of the output.
    width: usize,
}

impl Fitted {
    fn plus_bias(&self, product: &Product, times: f64) -> Predict {
        predicted(product, self.width, times, self.bias.clone())
    }

    fn alternatives(&self, site: &Site<'_>, out: &Out<'_>) -> Option<Vec<Alternative>> {
        let mut all = Vec::new();
        if self.bias.is_some() {
            for factor in [0.0, 2.0] {
                all.push(Alternative {
                    change: Change::BiasFactor {
                        input: Box::new(self.input.clone()),
                        weight: self.parameter,
                        factor,
                    },
                    fitted: false,
                    predict: self.plus_bias(&self.product, factor),
                });
            }
        }
        let glance = Glance::of(out, &self.product, self.bias.as_deref())?;
        let off = glance.off();
        if off <= site.floor[1] || off.is_nan() {
            return Some(all);
        }
        for (instead, product) in others(site, out, self.parameter, &self.product, off) {
            if glance.promises(out.run, &product) != Some(true) {
                continue;
            }
            let one = |bias: bool, fitted: bool, predict: Predict| Alternative {
                change: Change::Weight {
                    input: Box::new(self.input.clone()),
                    weight: self.parameter,
                    bias,
                    instead,
                },
                fitted,
                predict,
            };
            let has_bias = self.bias.is_some();
            all.push(one(has_bias, false, self.plus_bias(&product, 1.0)));
            if has_bias {
                all.push(one(false, false, self.plus_bias(&product, 0.0)));
                // Another weight has another bias.
                let own: Arc<[f64]> = product.on(out.run)?.beyond(out).into();
                let predict = predicted(&product, self.width, 1.0, Some(own));
                all.push(one(true, true, predict));
            }
        }
        Some(all)
    }
}

fn predicted(product: &Product, width: usize, times: f64, bias: Option<Arc<[f64]>>) -> Predict {
    let product = product.clone();
    Box::new(move |run, picked| {
        let bias = bias.as_ref().map(|bias| (times, &bias[..]));
        Some(product.on(run)?.picked(picked, width, bias))
    })
}

/// A few differences of two rows of an output, as they are and as the product makes them: what they have beyond it has no bias either.
struct Glance {
    /// Row, another row, feature; what the output has, and what it should have.
    places: Vec<([usize; 3], f64, f64)>,
}

/// More than where the op is learned: here a coarser weight must show.
const GLANCED: usize = 96;

impl Glance {
    fn of(out: &Out<'_>, product: &Product, bias: Option<&[f64]>) -> Option<Self> {
        let to = &product.frame.to;
        let Rows { rows, features, .. } = *to;
        let factors = product.on(out.run)?;
        let values: &[f64] = out;
        let has = |row: usize, feature: usize| values[to.at(row * features + feature)];
        if rows == 1 {
            let places = (0..GLANCED).map(|i| [0, 0, (i * 104_729) % features]);
            let both = |at: [usize; 3]| {
                (
                    at,
                    has(0, at[2]) - bias.map_or(0.0, |bias| bias[at[2]]),
                    Self::made(&factors, at),
                )
            };
            return Some(Self {
                places: places.map(both).collect(),
            });
        }
        let places = (0..GLANCED).map(|i| {
            [
                (i * 7919) % rows,
                (i * 7919 + 1) % rows,
                (i * 104_729) % features,
            ]
        });
        let both = |at: [usize; 3]| {
            (
                at,
                has(at[0], at[2]) - has(at[1], at[2]),
                Self::made(&factors, at),
            )
        };
        Some(Self {
            places: places.map(both).collect(),
        })
    }

    fn made(factors: &Factors<'_>, [row, other, feature]: [usize; 3]) -> f64 {
        let one = |row: usize| factors.one(row, feature);
        if factors.frame.to.rows == 1 {
            one(row)
        } else {
            one(row) - one(other)
        }
    }

    /// By how much of what there is.
    fn off(&self) -> f64 {
        let sums = |(error, energy): (f64, f64), (_, has, should): &([usize; 3], f64, f64)| {
            (error + (has - should) * (has - should), energy + has * has)
        };
        let (error, energy) = self.places.iter().fold((0.0, 0.0), sums);
        if error > 0.0 {
            (error / energy).sqrt()
        } else {
            0.0
        }
    }

    /// Whether another product goes most of the way to what the output has.
    fn promises(&self, run: &dyn Run, other: &Product) -> Option<bool> {
        let factors = other.on(run)?;
        let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
        for (at, has, should) in &self.places {
            let (x, y) = (Self::made(&factors, *at) - should, has - should);
            xy += x * y;
            xx += x * x;
            yy += y * y;
        }
        Some((xy / xx - 1.0).abs() < 0.5 && xy * xy > 0.25 * xx * yy)
    }
}

/// Another weight, or a part of the sum, is off by about as much as there is; factors of 11 bits by 1e-4 of it.
const MUCH: f64 = 0.05;
const SOME: f64 = 2e-5;

/// Ranks that may share a sum.
const RANKS: [usize; 3] = [2, 4, 8];

/// What may have been multiplied instead.
fn others<'p>(
    site: &'p Site<'_>,
    out: &Out<'_>,
    parameter: usize,
    product: &'p Product,
    off: f64,
) -> impl Iterator<Item = (WeightChange, Product)> {
    // What changes much is looked for where much is changed: it takes long to make.
    let (much, some) = (off > MUCH, off > SOME);
    let dims = site.run.dims(parameter);
    let square = dims[0] == dims[1];
    let with = move |frame: Frame| Product {
        frame,
        ..product.clone()
    };
    let transposed = (square && much).then(|| {
        let frame = Frame {
            transposed: !product.frame.transposed,
            ..product.frame.clone()
        };
        (WeightChange::Transposed, with(frame))
    });
    let alike = site
        .parameters
        .iter()
        .filter(move |at| much && **at != parameter && site.run.dims(**at) == dims);
    let instead = alike.filter_map(move |at| {
        let weight = Input::read(site.run, *at)?;
        Some((
            WeightChange::Instead(*at),
            Product {
                weight,
                ..product.clone()
            },
        ))
    });
    let inner = product.frame.from.features;
    let ranks = RANKS
        .into_iter()
        .filter(move |ranks| much && *ranks <= inner)
        .flat_map(move |ranks| (0..ranks).map(move |rank| (rank, ranks)));
    let partial = ranks.map(move |(rank, ranks)| {
        let frame = Frame {
            summed: inner * rank / ranks..inner * (rank + 1) / ranks,
            ..product.frame.clone()
        };
        (WeightChange::OnePart { rank, ranks }, with(frame))
    });
    let quantised = coarse::ways(inner)
        .into_iter()
        .filter(move |_| some)
        .map(move |way| (WeightChange::Coarse(way), product.with_coarse(way)));
    // Of a run in f16 or bf16 everything that is multiplied was rounded to that: a product that is not recorded between too.
    let finest = unit_roundoff(out.run.tensor(out.at).dtype);
    let is_coarser =
        move |unit: &coarse::Unit| finest.is_some_and(|finest| finest < unit.roundoff());
    let units = coarse::UNITS
        .into_iter()
        .filter(move |unit| some && is_coarser(unit))
        .map(move |unit| (WeightChange::CoarseFactors(unit), product.with_unit(unit)));
    transposed
        .into_iter()
        .chain(instead)
        .chain(partial)
        .chain(quantised)
        .chain(units)
}

impl Product {
    /// With both factors as a matrix unit takes them.
    fn with_unit(&self, unit: coarse::Unit) -> Self {
        let coarse = |input: &Input| input.map(move |values| unit.apply(values));
        Self {
            input: coarse(&self.input),
            weight: coarse(&self.weight),
            frame: self.frame.clone(),
        }
    }

    /// With the weight quantised along the features that are summed over.
    fn with_coarse(&self, way: coarse::Way) -> Self {
        let Frame {
            from,
            to,
            transposed,
            ..
        } = self.frame;
        let (inner, outer) = (from.features, to.features);
        let weight = self.weight.map(move |weight| {
            if transposed {
                let coarse = way.apply(&transpose(weight, inner, outer), inner);
                transpose(&coarse, outer, inner)
            } else {
                way.apply(weight, inner)
            }
        });
        Self {
            weight,
            ..self.clone()
        }
    }
}

/// `[rows, columns]` as `[columns, rows]`.
fn transpose(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..rows * columns)
        .map(|at| values[at % rows * columns + at / rows])
        .collect()
}

/// What the output has beyond the product, a feature each; nothing when it is rounding or there are too few rows to tell.
fn bias(site: &Site<'_>, parameter: usize, factors: &Factors<'_>) -> Option<Vec<f64>> {
    if factors.frame.to.rows < 2 {
        return recorded_bias(site, parameter).and_then(|bias| Some(site.run.load(bias)?.to_vec()));
    }
    let bias = factors.beyond(&site.out);
    (rms(&bias) > site.floor[0] * rms(&site.out)).then_some(bias)
}

/// The bias that is recorded beside a weight, under a name like its own.
fn recorded_bias(site: &Site<'_>, weight: usize) -> Option<usize> {
    let (module, last) = site.name(weight).rsplit_once(['.', '/'])?;
    let wanted = last.replace("weight", "bias").replace("kernel", "bias");
    let is = |at: &usize| {
        *at != weight && site.name(*at).rsplit_once(['.', '/']) == Some((module, wanted.as_str()))
    };
    site.parameters
        .iter()
        .copied()
        .find(is)
        .filter(|bias| site.run.dims(*bias).len() == 1)
}

/// Some features of the recorded bias where there is one row only, which no other tells it from; else 0. `None` where it cannot be read.
fn alone(site: &Site<'_>, weight: usize, rows: usize, features: &[usize]) -> Option<Vec<f64>> {
    match recorded_bias(site, weight).filter(|_| rows == 1) {
        Some(bias)
            if features
                .iter()
                .all(|feature| *feature < site.run.dims(bias)[0]) =>
        {
            site.run.pick(bias, features)
        }
        Some(_) => None,
        None => Some(vec![0.0; features.len()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_that_is_taken_a_part_at_a_time_makes_the_same() {
        // More outputs than fit into the cache at once, and not a multiple of those that do.
        let (inner, outer, rows) = (IN_CACHE / 8, 19, 3);
        let number = |seed: usize, at: usize| ((at * 31 + seed) % 17) as f64 - 8.0;
        let filled =
            |seed: usize, count: usize| (0..count).map(|at| number(seed, at)).collect::<Vec<f64>>();
        let (input, plain) = (filled(1, rows * inner), filled(2, outer * inner));
        for transposed in [false, true] {
            let weight = if transposed {
                transpose(&plain, outer, inner)
            } else {
                plain.clone()
            };
            let frame = Frame {
                from: Rows::plain(&[rows, inner]).unwrap(),
                to: Rows::plain(&[rows, outer]).unwrap(),
                transposed,
                summed: 0..inner,
            };
            let factors = Factors {
                input: Values::new(input.clone()),
                weight: Values::new(weight),
                frame: &frame,
            };
            let made = factors.picked(Picked::These(&[2, 0]), outer, None);
            for (nth, row) in [2, 0].into_iter().enumerate() {
                for feature in 0..outer {
                    let one = |i: usize| input[row * inner + i] * plain[feature * inner + i];
                    assert_eq!(
                        made[nth * outer + feature],
                        (0..inner).map(one).sum::<f64>(),
                        "{transposed} {row} {feature}"
                    );
                }
            }
        }
    }
}
