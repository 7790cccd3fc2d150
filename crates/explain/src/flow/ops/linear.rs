//! A product with a recorded weight, and a bias learned from the reference: what each output is beyond the product, on average.

use super::{Learned, Op, Picked, Predict, Variant, coarse};
use crate::{
    Loaded,
    array::rms,
    flow::{ENOUGH_ROWS, ENOUGH_WORK, MOST_WORK, Site, of, rows::Rows},
};
use std::{borrow::Cow, ops::Range, sync::Arc};
use twinscope_compare::{layout::Which, noise::unit_roundoff};
use twinscope_measure::{add_times, dot};

pub(super) struct Linear;

#[derive(Clone)]
struct Product {
    input: Arc<Loaded>,
    weight: Arc<Loaded>,
    from: Rows,
    to: Rows,
    /// `[in, out]` instead of `[out, in]`.
    turned: bool,
    /// The input features that are summed over.
    summed: Range<usize>,
    /// What happens to the weight before it is used.
    coarse: Option<Arc<[Vec<f64>; 2]>>,
}

impl Product {
    fn weight(&self, side: Which) -> &[f64] {
        match (&self.coarse, side) {
            (Some(coarse), Which::Reference) => &coarse[0],
            (Some(coarse), Which::Candidate) => &coarse[1],
            (None, side) => of(&self.weight, side),
        }
    }

    fn one(&self, side: Which, row: usize, feature: usize) -> f64 {
        let mut one = [0.0];
        self.row(side, &self.given(side, row), feature..feature + 1, &mut one);
        one[0]
    }

    /// The features of one row of the input.
    fn given(&self, side: Which, row: usize) -> Cow<'_, [f64]> {
        let (inner, values) = (self.from.features, of(&self.input, side));
        match self.from.run(0) == inner {
            true => Cow::Borrowed(&values[self.from.at(row * inner)..][..inner]),
            false => Cow::Owned(
                (0..inner)
                    .map(|i| values[self.from.at(row * inner + i)])
                    .collect(),
            ),
        }
    }

    /// Some features of what one row of the input makes.
    fn row(&self, side: Which, x: &[f64], features: Range<usize>, out: &mut [f64]) {
        let (inner, outer) = (self.from.features, self.to.features);
        let w = self.weight(side);
        out.fill(0.0);
        if self.turned {
            for (x, w) in x[self.summed.clone()]
                .iter()
                .zip(w[self.summed.start * outer..].chunks_exact(outer))
            {
                add_times(out, *x, &w[features.clone()]);
            }
        } else {
            for (out, w) in out
                .iter_mut()
                .zip(w[features.start * inner..].chunks_exact(inner))
            {
                *out = dot(&x[self.summed.clone()], &w[self.summed.clone()]);
            }
        }
    }

    /// So many features of some rows, each from its own first one on. As much of the weight as stays in the processor's cache is taken for
    /// all rows before the next.
    fn rows(&self, side: Which, places: &[(usize, usize)], width: usize) -> Vec<f64> {
        let given: Vec<Cow<'_, [f64]>> = places
            .iter()
            .map(|(row, _)| self.given(side, *row))
            .collect();
        let block = (IN_CACHE / self.from.features.max(1)).max(8);
        let mut made = vec![0.0; places.len() * width];
        for first in (0..width).step_by(block) {
            let count = block.min(width - first);
            for (nth, (x, (_, feature))) in given.iter().zip(places).enumerate() {
                let from = feature + first;
                self.row(
                    side,
                    x,
                    from..from + count,
                    &mut made[nth * width + first..][..count],
                );
            }
        }
        made
    }

    /// Some rows of the output as it lies, with so many times a bias.
    fn picked(
        &self,
        side: Which,
        picked: Picked<'_>,
        width: usize,
        bias: Option<(f64, &[f64])>,
    ) -> Vec<f64> {
        let place = |nth: usize| {
            let at = self.to.from(nth * width);
            (at / self.to.features, at % self.to.features)
        };
        let places: Vec<(usize, usize)> = picked.rows().map(place).collect();
        let mut made = self.rows(side, &places, width);
        if let Some((times, bias)) = bias {
            for (out, (_, feature)) in made.chunks_exact_mut(width).zip(&places) {
                add_times(out, times, &bias[*feature..]);
            }
        }
        made
    }
}

/// Values of a weight that stay in the processor's cache.
const IN_CACHE: usize = 1 << 16;

/// Tensors of which every two may have been multiplied before, when their product is not recorded.
const NEAREST: usize = 6;

/// What is multiplied with a weight: a recorded tensor, or a gate times what it gates.
struct Input {
    of: Vec<usize>,
    name: String,
    values: Arc<Loaded>,
}

impl Op for Linear {
    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
        let outs = Rows::all(site.dims());
        let widths = |at: usize| {
            Rows::all(&site.scene.entries()[at].dims)
                .into_iter()
                .map(|rows| rows.features)
        };
        let fits = |at: usize, inner: usize| widths(at).any(|width| width == inner);
        let inner = |at: &usize| {
            site.scene.entries()[*at]
                .dims
                .get(..2)
                .filter(|_| site.scene.entries()[*at].dims.len() == 2)
        };
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
        let learned: Vec<Learned> = usable()
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
        let alike =
            pairs.filter(|(a, b)| site.scene.entries()[*a].dims == site.scene.entries()[*b].dims);
        alike
            .flat_map(|(a, b)| of_input(site, vec![a, b], &outs))
            .collect()
    }
}

impl Input {
    fn load(site: &Site<'_>, of: &[usize]) -> Option<Self> {
        let name = |at: usize| site.scene.entries()[at].name.clone();
        let (name, values) = match *of {
            [at] => (name(at), site.load(at)?),
            [a, b] => {
                let (x, y) = (site.load(a)?, site.load(b)?);
                let times = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).collect();
                let (reference, candidate) = (
                    times(&x.reference, &y.reference),
                    times(&x.candidate, &y.candidate),
                );
                (
                    format!("({} * {})", name(a), name(b)),
                    Arc::new(Loaded {
                        dims: x.dims.clone(),
                        reference,
                        candidate,
                    }),
                )
            }
            _ => return None,
        };
        Some(Self {
            of: of.to_vec(),
            name,
            values,
        })
    }
}

/// Every recorded weight that makes the output of one input, or of the product of two.
fn of_input(site: &Site<'_>, of: Vec<usize>, outs: &[Rows]) -> Vec<Learned> {
    let mut learned = Vec::new();
    let mut input: Option<Option<Input>> = None;
    for from in Rows::all(&site.scene.entries()[of[0]].dims) {
        let mut glanced: Option<Option<Vec<Vec<f64>>>> = None;
        for &parameter in &site.parameters {
            let &[rows, columns] = &site.scene.entries()[parameter].dims[..] else {
                continue;
            };
            for to in outs {
                for turned in [false, true] {
                    let (outer, inner) = if turned {
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
                        turned,
                    };
                    let Some(glanced) = glanced.get_or_insert_with(|| shape.glanced(site, &of))
                    else {
                        return learned;
                    };
                    if !shape.promises(site, glanced, parameter) {
                        continue;
                    }
                    let Some(input) = input.get_or_insert_with(|| Input::load(site, &of)) else {
                        return learned;
                    };
                    let Some(weight) = site.load(parameter) else {
                        continue;
                    };
                    let product = Product {
                        input: input.values.clone(),
                        weight,
                        from,
                        to: *to,
                        turned,
                        summed: 0..inner,
                        coarse: None,
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
    turned: bool,
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
            let mut factors = of.iter().map(|at| site.scene.runs(*at, &starts, run));
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
        let of = |feature: usize| match self.turned {
            true => site.scene.runs(
                weight,
                &(0..inner).map(|i| i * outer + feature).collect::<Vec<_>>(),
                1,
            ),
            false => site.scene.runs(weight, &[feature * inner], inner),
        };
        (0..GLANCES).map(|nth| of(self.feature(nth))).collect()
    }

    /// Whether a few outputs come out, roughly: of each only the one row of the weight is read.
    fn promises(&self, site: &Site<'_>, glanced: &[Vec<f64>], weight: usize) -> bool {
        let outer = self.to.features;
        let Some(weights) = site
            .scene
            .glances(weight, self.turned, || self.weights(site, weight))
        else {
            return false;
        };
        let (mut error, mut energy) = (0.0, 0.0);
        for (i, ([row, other], x)) in self.rows().zip(glanced).enumerate() {
            let feature = self.feature(i);
            let place = |row: usize| self.to.at(row * outer + feature);
            let Some(wanted) = site.scene.pick(site.pair, &[place(row), place(other)]) else {
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

fn made(site: &Site<'_>, input: &Input, parameter: usize, product: Product) -> Option<Learned> {
    let rows = product.to.rows;
    let (mut error, mut energy) = (0.0, 0.0);
    for i in 0..TRIED {
        let (row, other, feature) = (
            (i * 7919) % rows,
            (i * 7919 + 1) % rows,
            (i * 104_729) % product.to.features,
        );
        let wanted =
            |row: usize| site.out.reference[product.to.at(row * product.to.features + feature)];
        let one = |row: usize| product.one(Which::Reference, row, feature);
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
    let bias = bias(site, parameter, &product);
    let name = |at: usize| site.scene.entries()[at].name.as_str();
    let with = if bias.is_some() { " + bias" } else { "" };
    let width = site.width();
    let plus_bias = |product: &Product, times: f64| -> Predict {
        let (product, bias) = (product.clone(), bias.clone());
        Box::new(move |side, picked| {
            let bias = bias.as_ref().map(|bias| (times, &bias[..]));
            Some(product.picked(side, picked, width, bias))
        })
    };
    let mut variants = Vec::new();
    if bias.is_some() {
        for (times, what) in [(0.0, "no bias"), (2.0, "the bias twice")] {
            variants.push(Variant {
                kind: "offset",
                text: format!("{} x {} with {what}", input.name, name(parameter)),
                details: serde_json::json!({"candidate": what, "weight": name(parameter)}),
                fitted: false,
                predict: plus_bias(&product, times),
            });
        }
    }
    let glance = Glance::of(site, &product, bias.as_deref());
    let off = glance.off();
    if off > site.floor[1] {
        for Other {
            kind,
            text,
            details,
            product,
        } in
            others(site, parameter, &product, off).filter(|other| glance.promises(&other.product))
        {
            let variant = |with: &str, fitted: bool, predict| Variant {
                kind,
                text: format!("{} x {}{with}: {text}", input.name, name(parameter)),
                details: details.clone(),
                fitted,
                predict,
            };
            variants.push(variant(with, false, plus_bias(&product, 1.0)));
            if bias.is_some() {
                variants.push(variant("", false, plus_bias(&product, 0.0)));
                // Another weight has another bias.
                let own = beyond(&product, Which::Candidate, &site.out.candidate);
                let predict = Box::new(move |side: Which, picked: Picked<'_>| {
                    Some(product.picked(side, picked, width, Some((1.0, &own))))
                });
                variants.push(variant(" + bias", true, predict));
            }
        }
    }
    Some(Learned {
        formula: format!("{} x {}{with}", input.name, name(parameter)),
        inputs: input.of.iter().copied().chain([parameter]).collect(),
        terms: product.from.features,
        work: product.to.count() * product.from.features,
        looseness: 2.0,
        off: [0.0; 4],
        on_some_rows: false,
        borrows: false,
        predict: plus_bias(&product, 1.0),
        variants,
        telling: None,
    })
}

/// A few differences of two rows of the candidate, as they are and as the product makes them: what they have beyond it has no bias either.
struct Glance {
    /// Row, another row, feature; what the candidate has, and what it should have.
    places: Vec<([usize; 3], f64, f64)>,
}

/// More than for the reference: here a coarser weight must show.
const GLANCED: usize = 96;

impl Glance {
    fn of(site: &Site<'_>, product: &Product, bias: Option<&[f64]>) -> Self {
        let Rows { rows, features, .. } = product.to;
        let has = |row: usize, feature: usize| {
            site.out.candidate[product.to.at(row * features + feature)]
        };
        if rows == 1 {
            let places = (0..GLANCED).map(|i| [0, 0, (i * 104_729) % features]);
            let both = |at: [usize; 3]| {
                (
                    at,
                    has(0, at[2]) - bias.map_or(0.0, |bias| bias[at[2]]),
                    Self::made(product, at),
                )
            };
            return Self {
                places: places.map(both).collect(),
            };
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
                Self::made(product, at),
            )
        };
        Self {
            places: places.map(both).collect(),
        }
    }

    fn made(product: &Product, [row, other, feature]: [usize; 3]) -> f64 {
        let one = |row: usize| product.one(Which::Candidate, row, feature);
        if product.to.rows == 1 {
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

    /// Whether another product goes most of the way to what the candidate has.
    fn promises(&self, other: &Product) -> bool {
        let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
        for (at, has, should) in &self.places {
            let (x, y) = (Self::made(other, *at) - should, has - should);
            xy += x * y;
            xx += x * x;
            yy += y * y;
        }
        (xy / xx - 1.0).abs() < 0.5 && xy * xy > 0.25 * xx * yy
    }
}

/// What the candidate may have done instead.
struct Other {
    kind: &'static str,
    text: String,
    details: serde_json::Value,
    product: Product,
}

/// Another weight, or a part of the sum, is off by about as much as there is; factors of 11 bits by 1e-4 of it.
const MUCH: f64 = 0.05;
const SOME: f64 = 2e-5;

/// Ranks that may share a sum.
const RANKS: [usize; 3] = [2, 4, 8];

fn others<'a>(
    site: &'a Site<'_>,
    parameter: usize,
    product: &'a Product,
    off: f64,
) -> impl Iterator<Item = Other> + 'a {
    // What changes much is looked for where much is changed: it takes long to make.
    let (much, some) = (off > MUCH, off > SOME);
    let name = |at: usize| site.scene.entries()[at].name.clone();
    let dims = &site.scene.entries()[parameter].dims;
    let square = dims[0] == dims[1];
    let turned = (square && much).then(|| Other {
        kind: "transposed",
        text: "the weight is transposed".to_owned(),
        details: serde_json::json!({"weight": name(parameter), "axes": [1, 0]}),
        product: Product {
            turned: !product.turned,
            ..product.clone()
        },
    });
    let alike = site
        .parameters
        .iter()
        .filter(move |at| much && **at != parameter && site.scene.entries()[**at].dims == *dims);
    let instead = alike.filter_map(move |at| {
        Some(Other {
            kind: "wrong_tensor",
            text: format!("the candidate takes `{}` for the weight", name(*at)),
            details: serde_json::json!({"tensor": name(*at), "instead_of": name(parameter), "side": "candidate"}),
            product: Product { weight: site.load(*at)?, ..product.clone() },
        })
    });
    let inner = product.from.features;
    let ranks = RANKS
        .into_iter()
        .filter(move |ranks| much && *ranks <= inner)
        .flat_map(move |ranks| (0..ranks).map(move |rank| (rank, ranks)));
    let partial = ranks.map(move |(rank, ranks)| Other {
        kind: "partial_sum",
        text: format!("only part {rank} of {ranks} of the sum is there (an all-reduce is missing)"),
        details: serde_json::json!({"ranks": ranks, "rank": rank, "side": "candidate"}),
        product: Product {
            summed: inner * rank / ranks..inner * (rank + 1) / ranks,
            ..product.clone()
        },
    });
    let quantised = coarse::ways(inner)
        .into_iter()
        .filter(move |_| some)
        .map(move |way| Other {
            kind: way.kind(),
            text: format!("with the weight {}", way.said()),
            details: serde_json::json!({"weight": name(parameter), "format": way.said()}),
            product: product.with_coarse(way),
        });
    // Of a run in f16 or bf16 everything that is multiplied was rounded to that: a product that is not recorded between too.
    let finest = unit_roundoff(site.scene.entries()[site.pair].dtypes[1]);
    let is_coarser =
        move |unit: &coarse::Unit| finest.is_some_and(|finest| finest < unit.roundoff());
    let units = coarse::UNITS.into_iter().filter(move |unit| some && is_coarser(unit)).map(move |unit| Other {
        kind: "rounded",
        text: format!("what is multiplied is {} first", unit.said()),
        details: serde_json::json!({"dtype": unit.dtype, "what": "factors", "weight": name(parameter), "side": "candidate"}),
        product: product.with_unit(unit),
    });
    turned
        .into_iter()
        .chain(instead)
        .chain(partial)
        .chain(quantised)
        .chain(units)
}

impl Product {
    /// With both factors as a matrix unit takes them.
    fn with_unit(&self, unit: coarse::Unit) -> Self {
        let both =
            |values: &Loaded| [&values.reference, &values.candidate].map(|side| unit.apply(side));
        let [reference, candidate] = both(&self.input);
        let input = Arc::new(Loaded {
            dims: self.input.dims.clone(),
            reference,
            candidate,
        });
        Self {
            input,
            coarse: Some(Arc::new(both(&self.weight))),
            ..self.clone()
        }
    }

    /// With the weight quantised along the features that are summed over.
    fn with_coarse(&self, way: coarse::Way) -> Self {
        let (inner, outer) = (self.from.features, self.to.features);
        let made = |side: Which| {
            let weight = of(&self.weight, side);
            let rows = if self.turned {
                turn(weight, inner, outer)
            } else {
                weight.to_vec()
            };
            let coarse = way.apply(&rows, inner);
            if self.turned {
                turn(&coarse, outer, inner)
            } else {
                coarse
            }
        };
        Self {
            coarse: Some(Arc::new([made(Which::Reference), made(Which::Candidate)])),
            ..self.clone()
        }
    }
}

/// `[rows, columns]` as `[columns, rows]`.
fn turn(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..rows * columns)
        .map(|at| values[at % rows * columns + at / rows])
        .collect()
}

/// What the reference has beyond the product, a feature each; nothing when it is rounding or there are too few rows to tell.
fn bias(site: &Site<'_>, parameter: usize, product: &Product) -> Option<Vec<f64>> {
    if product.to.rows < 2 {
        return recorded_bias(site, parameter)
            .and_then(|bias| Some(site.load(bias)?.reference.clone()));
    }
    let bias = beyond(product, Which::Reference, &site.out.reference);
    (rms(&bias) > site.floor[0] * rms(&site.out.reference)).then_some(bias)
}

/// The bias that is recorded beside a weight, under a name like its own.
fn recorded_bias(site: &Site<'_>, weight: usize) -> Option<usize> {
    let name = |at: usize| site.scene.entries()[at].name.as_str();
    let (module, last) = name(weight).rsplit_once(['.', '/'])?;
    let wanted = last.replace("weight", "bias").replace("kernel", "bias");
    let is = |at: &usize| {
        *at != weight && name(*at).rsplit_once(['.', '/']) == Some((module, wanted.as_str()))
    };
    site.parameters
        .iter()
        .copied()
        .find(is)
        .filter(|bias| site.scene.entries()[*bias].dims.len() == 1)
}

/// Some features of the recorded bias where there is one row only, which no other tells it from; else 0. `None` where it cannot be read.
fn alone(site: &Site<'_>, weight: usize, rows: usize, features: &[usize]) -> Option<Vec<f64>> {
    match recorded_bias(site, weight).filter(|_| rows == 1) {
        Some(bias)
            if features
                .iter()
                .all(|feature| *feature < site.scene.entries()[bias].dims[0]) =>
        {
            site.scene.pick(bias, features)
        }
        Some(_) => None,
        None => Some(vec![0.0; features.len()]),
    }
}

/// What an output has beyond the product on average, a feature each; of many rows of a large product some say as much.
fn beyond(product: &Product, side: Which, out: &[f64]) -> Vec<f64> {
    let Rows { rows, features, .. } = product.to;
    let most = (ENOUGH_WORK / (features * product.from.features).max(1)).max(ENOUGH_ROWS);
    let some: Vec<usize> = (0..rows).step_by(rows.div_ceil(most)).collect();
    let made = product.rows(
        side,
        &some.iter().map(|row| (*row, 0)).collect::<Vec<_>>(),
        features,
    );
    let mut mean = vec![0.0; features];
    for (row, made) in some.iter().zip(made.chunks_exact(features)) {
        for (feature, (mean, made)) in mean.iter_mut().zip(made).enumerate() {
            *mean += (out[product.to.at(row * features + feature)] - made) / some.len() as f64;
        }
    }
    mean
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
        let loaded = |dims: [usize; 2], seed: usize| {
            let count = dims[0] * dims[1];
            Arc::new(Loaded {
                dims: dims.to_vec(),
                reference: filled(seed, count),
                candidate: filled(seed + 1, count),
            })
        };
        let (input, plain) = (loaded([rows, inner], 1), loaded([outer, inner], 2));
        for turned in [false, true] {
            let over = |values: &[f64]| {
                if turned {
                    turn(values, outer, inner)
                } else {
                    values.to_vec()
                }
            };
            let weight = Loaded {
                dims: plain.dims.clone(),
                reference: over(&plain.reference),
                candidate: over(&plain.candidate),
            };
            let (from, to) = (
                Rows::plain(&[rows, inner]).unwrap(),
                Rows::plain(&[rows, outer]).unwrap(),
            );
            let product = Product {
                input: input.clone(),
                weight: Arc::new(weight),
                from,
                to,
                turned,
                summed: 0..inner,
                coarse: None,
            };
            for side in [Which::Reference, Which::Candidate] {
                let made = product.picked(side, Picked::These(&[2, 0]), outer, None);
                for (nth, row) in [2, 0].into_iter().enumerate() {
                    for feature in 0..outer {
                        let one = |i: usize| {
                            of(&input, side)[row * inner + i]
                                * of(&plain, side)[feature * inner + i]
                        };
                        assert_eq!(
                            made[nth * outer + feature],
                            (0..inner).map(one).sum::<f64>(),
                            "{turned} {row} {feature}"
                        );
                    }
                }
            }
        }
    }
}
