//! RMSNorm and LayerNorm over the last dimension, with weights learned from the values: one number, or two, a channel.

use crate::{
    Alternative, Ask, Change, Input, Learned, NormWeight, Op, Out, Picked, Predict, Site,
    array::{median, rms},
    glimpse::{self, Glimpse},
    learned::roughly,
    site::{WHOLE, own_floor},
};
use std::sync::Arc;
use twinscope_measure::rounding::floor_unit;
use twinscope_tensor::{
    DType,
    formula::{self, Formula},
};

pub(crate) struct Norm;

/// Rows needed to tell a weight a channel from chance.
const LEAST_ROWS: usize = 4;

/// Epsilons that people use; 0 is none.
const EPSILONS: [f64; 8] = [1e-5, 1e-6, 1e-12, 1e-8, 1e-7, 1e-4, 1e-3, 0.0];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    centred: bool,
    epsilon: f64,
    /// `1 / (sqrt(m) + e)` for `1 / sqrt(m + e)`.
    outside: bool,
    /// The sum of squares divided by `n - 1`.
    unbiased: bool,
}

impl Shape {
    fn kind(self) -> formula::Norm {
        if self.centred {
            formula::Norm::Layer
        } else {
            formula::Norm::Rms
        }
    }

    /// What a row with this mean of squares is multiplied with.
    fn factor(self, square: f64, channels: usize) -> f64 {
        let square = if self.unbiased {
            square * channels as f64 / (channels as f64 - 1.0)
        } else {
            square
        };
        let factor = if self.outside {
            1.0 / (square.sqrt() + self.epsilon)
        } else {
            1.0 / (square + self.epsilon).sqrt()
        };
        if factor.is_finite() { factor } else { 0.0 }
    }

    /// The epsilon that makes a row's factor of its mean of squares.
    fn implied(self, factor: f64, square: f64) -> f64 {
        if self.outside {
            1.0 / factor - square.sqrt()
        } else {
            1.0 / (factor * factor) - square
        }
    }
}

/// `w * n + b`, a channel each.
#[derive(Clone, Debug)]
struct Affine {
    weight: Vec<f64>,
    bias: Option<Vec<f64>>,
}

impl Op for Norm {
    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let Some(&channels) = site.dims().last() else {
            return Vec::new();
        };
        let elements = site.elements();
        if channels < 2 || elements / channels < LEAST_ROWS {
            return Vec::new();
        }
        let mut learned = Vec::new();
        let Some(wanted) = site.run.glimpse(site.at) else {
            return Vec::new();
        };
        for &input in &site.before {
            let dims = site.run.dims(input);
            // The heads of queries and keys may still be one dimension where they are not normed yet.
            if dims.last().is_none_or(|last| last % channels != 0)
                || dims.iter().product::<usize>() != elements
            {
                continue;
            }
            // A few rows rule out nearly every input, without reading it whole.
            let Some(given) = glimpse(site, input, channels) else {
                continue;
            };
            for centred in [false, true] {
                if promises(&wanted, &given, centred, site.floor[0])
                    && let Some(given) = Input::read(site.run, input)
                {
                    learned.extend(fitted(site, input, given, channels, centred));
                }
            }
        }
        learned
    }
}

fn glimpse(site: &Site<'_>, input: usize, channels: usize) -> Option<Arc<Glimpse>> {
    if site.run.dims(input).last() == Some(&channels) {
        return site.run.glimpse(input);
    }
    let rows = site.run.beginning(input, glimpse::ROWS * channels)?;
    Some(Arc::new(Glimpse::of(&rows, channels)))
}

/// Rows were chosen that are worse than most: so many times the floor of the whole may be left in them.
const HOPELESS: f64 = 16.0;

/// What rows and channels that are fitted in turn, once each, leave of a norm with another epsilon: more than the rounding of f64.
const IN_TURN: f64 = 2e-7;

/// Floors that a norm may be off: it rounds a step more than most ops.
const LOOSENESS: f64 = 1.5;

/// Whether a norm makes the first rows of the output from those of an input, with a weight a channel that they share.
fn promises(wanted: &Glimpse, given: &Glimpse, centred: bool, floor: f64) -> bool {
    if !may_promise(wanted, given, centred) {
        return false;
    }
    let channels = given.channels;
    let shape = Shape {
        centred,
        epsilon: EPSILONS[0],
        outside: false,
        unbiased: false,
    };
    let mut normed = Vec::with_capacity(given.values.len());
    for (row, [mean, square, about]) in given.values.chunks_exact(channels).zip(&given.sizes) {
        let (mean, square) = if centred {
            (*mean, *about)
        } else {
            (0.0, *square)
        };
        let factor = shape.factor(square, channels);
        normed.extend(row.iter().map(|x| (x - mean) * factor));
    }
    let affine = regress(&normed, &wanted.values, channels, centred);
    let made = apply(normed.clone(), &affine, channels);
    if !roughly(made.iter().copied(), wanted.values.iter().copied(), ROUGHLY) {
        return false;
    }
    // A residual stream is roughly a norm of what it was a layer before. With a factor of its own for each row, whatever the epsilon is, a norm
    // leaves no more than rounding.
    let bias = |channel: usize| affine.bias.as_ref().map_or(0.0, |bias| bias[channel]);
    for ((normed, made), wanted) in (normed
        .chunks_exact_mut(channels)
        .zip(made.chunks_exact(channels)))
    .zip(wanted.values.chunks_exact(channels))
    {
        let (mut xy, mut xx) = (0.0, 0.0);
        for (channel, (made, wanted)) in made.iter().zip(wanted).enumerate() {
            let (x, y) = (made - bias(channel), wanted - bias(channel));
            xy += x * y;
            xx += x * x;
        }
        let factor = if xx > 0.0 { xy / xx } else { 1.0 };
        normed.iter_mut().for_each(|x| *x *= factor);
    }
    let affine = regress(&normed, &wanted.values, channels, centred);
    // The rounding of a mean that is large beside what rows spread is left when it is subtracted.
    let ratio = |[mean, _, about]: &[f64; 3]| {
        if centred && *about > 0.0 {
            mean.abs() / about.sqrt()
        } else {
            0.0
        }
    };
    let amplified = 1.0 + given.sizes.iter().map(ratio).fold(0.0, f64::max);
    let most = (HOPELESS * amplified * floor.max(IN_TURN)).min(ROUGHLY);
    roughly(
        apply(normed, &affine, channels).into_iter(),
        wanted.values.iter().copied(),
        most,
    )
}

/// The same of a few channels, roughly: nearly every input is ruled out here.
fn may_promise(wanted: &Glimpse, given: &Glimpse, centred: bool) -> bool {
    let (mut error, mut energy) = (0.0, 0.0);
    for channel in (0..given.channels).step_by(given.channels.div_ceil(FEWEST_CHANNELS)) {
        let (mut n, mut x0, mut y0, mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for (row, [mean, square, about]) in given.sizes.iter().enumerate().take(wanted.sizes.len())
        {
            let (mean, square) = if centred {
                (*mean, *about)
            } else {
                (0.0, *square)
            };
            let x = (given.values[row * given.channels + channel] - mean)
                / (square + EPSILONS[0]).sqrt();
            let y = wanted.values[row * given.channels + channel];
            (n, x0, y0) = (n + 1.0, x0 + x, y0 + y);
            (xy, xx, yy) = (xy + x * y, xx + x * x, yy + y * y);
        }
        energy += yy;
        if centred {
            (xy, xx, yy) = (xy - x0 * y0 / n, xx - x0 * x0 / n, yy - y0 * y0 / n);
        }
        error += if xx > 0.0 {
            (yy - xy * xy / xx).max(0.0)
        } else {
            yy
        };
    }
    // Few channels may have more than their share of what is left; what is not finite is left to the closer look.
    let beyond = error - MORE_ROUGHLY * ROUGHLY * ROUGHLY * energy;
    beyond <= 0.0 || !beyond.is_finite()
}

const FEWEST_CHANNELS: usize = 8;
const MORE_ROUGHLY: f64 = 4.0;

/// What the first epsilon misses by more, no other comes near.
const ROUGHLY: f64 = 0.2;

fn fitted<'a>(
    site: &Site<'a>,
    input: usize,
    given: Input,
    channels: usize,
    centred: bool,
) -> Option<Learned<'a>> {
    let values = given.on(site.run)?;
    let telling = telling_rows(&values, channels);
    let picked = picked(telling.as_deref(), values.len() / channels);
    let (some, wanted) = (picked.of(&values, channels), picked.of(&site.out, channels));
    let mut best: Option<(f64, Shape)> = None;
    for epsilon in EPSILONS {
        let shape = Shape {
            centred,
            epsilon,
            outside: false,
            unbiased: false,
        };
        let normed = normalise(&some, channels, shape);
        let affine = regress(&normed, &wanted, channels, centred);
        let made = apply(normed, &affine, channels);
        if best.is_none() && !roughly(made.iter().copied(), wanted.iter().copied(), ROUGHLY) {
            return None;
        }
        let error: f64 = made
            .iter()
            .zip(wanted.iter())
            .map(|(made, wanted)| (made - wanted) * (made - wanted))
            .sum();
        if best.is_none_or(|(least, _)| error < 0.98 * least) {
            best = Some((error, shape));
        }
    }
    let (error, shape) = best?;
    // A residual stream is roughly a norm of what it was a layer before; all of it is read only where these rows leave little.
    let floor = own_floor(site.dtype(), channels)?;
    let looseness = LOOSENESS
        + if centred {
            subtracted(site, &some, channels)
        } else {
            0.0
        };
    if error.sqrt()
        > HOPELESS * floor[0] * looseness / LOOSENESS
            * wanted
                .iter()
                .map(|wanted| wanted * wanted)
                .sum::<f64>()
                .sqrt()
    {
        return None;
    }
    // Enough rows for the weights are among those already: more would only take time.
    let affine = regress(
        &normalise(&some, channels, shape),
        &wanted,
        channels,
        centred,
    );
    let learned = Fitted {
        input,
        given,
        channels,
        shape,
        affine: Arc::new(affine),
    };
    let formula = Formula::Norm {
        kind: shape.kind(),
        of: Formula::boxed(site.name(input)),
        epsilon: shape.epsilon,
    };
    let predict = learned.predict(shape, learned.affine.clone());
    let alternatives = {
        let (site, telling) = (site.clone(), telling.clone());
        move |out: &Out<'_>| {
            learned
                .alternatives(&site, telling.as_deref(), out)
                .unwrap_or_default()
        }
    };
    Some(Learned {
        terms: channels,
        looseness,
        // Its weights were learned from rounded values.
        borrows: true,
        alternatives: Some(Box::new(alternatives)),
        telling,
        ..Learned::new(formula, vec![input], predict)
    })
}

/// The rows that tell epsilons apart, or all.
fn picked(telling: Option<&[usize]>, rows: usize) -> Picked<'_> {
    telling.map_or(Picked::Run(0, rows), Picked::These)
}

/// A norm that was learned.
struct Fitted {
    input: usize,
    given: Input,
    channels: usize,
    shape: Shape,
    affine: Arc<Affine>,
}

impl Fitted {
    fn predict(&self, shape: Shape, affine: Arc<Affine>) -> Predict {
        let (given, channels) = (self.given.clone(), self.channels);
        Box::new(move |run, picked| {
            let values = given.on(run)?;
            Some(apply(
                normalise(&picked.of(&values, channels), channels, shape),
                &affine,
                channels,
            ))
        })
    }

    fn alternatives(
        &self,
        site: &Site<'_>,
        telling: Option<&[usize]>,
        out: &Out<'_>,
    ) -> Option<Vec<Alternative>> {
        let Self {
            input,
            channels,
            shape,
            ref affine,
            ..
        } = *self;
        let norm = shape.kind();
        let values = self.given.on(out.run)?;
        let picked = picked(telling, values.len() / channels);
        let (given, has) = (picked.of(&values, channels), picked.of(out, channels));
        let one = |change: Change, fitted: bool, shape: Shape, affine: &Arc<Affine>| Alternative {
            change,
            fitted,
            predict: self.predict(shape, affine.clone()),
        };
        let mut all: Vec<Alternative> = Vec::new();
        for outside in [false, true] {
            let shape = Shape { outside, ..shape };
            let fitted = fit_epsilon(&given, &has, channels, shape, affine);
            let usual = EPSILONS
                .into_iter()
                .filter(|epsilon| !outside && *epsilon != shape.epsilon);
            let other = |epsilon: f64| {
                let change = Change::Epsilon {
                    input,
                    norm,
                    epsilon,
                    of: shape.epsilon,
                    outside,
                };
                let is_fitted = outside || !EPSILONS.contains(&epsilon);
                one(change, is_fitted, Shape { epsilon, ..shape }, affine)
            };
            all.extend(
                fitted
                    .into_iter()
                    .filter(|epsilon| outside || *epsilon != shape.epsilon)
                    .chain(usual)
                    .map(other),
            );
        }
        if channels > 2 {
            let change = Change::UnbiasedNorm {
                input,
                norm,
                channels,
            };
            let unbiased = Shape {
                unbiased: true,
                ..shape
            };
            all.push(one(change, false, unbiased, affine));
        }
        let other = Shape {
            centred: !shape.centred,
            ..shape
        };
        let change = Change::OtherNorm {
            input,
            instead: other.kind(),
        };
        all.push(one(change, false, other, affine));
        let weight = |of: &dyn Fn(f64) -> f64| {
            Arc::new(Affine {
                weight: affine.weight.iter().map(|w| of(*w)).collect(),
                bias: affine.bias.clone(),
            })
        };
        // A weight that was learned as 1 to rounding is no weight already.
        let ones = rms(&affine.weight.iter().map(|w| w - 1.0).collect::<Vec<_>>())
            <= site.floor[0].max(1e-4);
        for (instead, affine) in [
            (NormWeight::One, weight(&|_| 1.0)),
            (NormWeight::PlusOne, weight(&|w| 1.0 + w)),
            (NormWeight::MinusOne, weight(&|w| w - 1.0)),
        ] {
            if ones && instead == NormWeight::One {
                continue;
            }
            let change = Change::NormWeight {
                input,
                norm,
                instead,
                axis: site.dims().len() - 1,
            };
            all.push(one(change, false, shape, &affine));
        }
        // The weights of another norm, recorded or as that one's own values imply them.
        for (tensor, affine) in elsewhere(site, &given, &has, shape, affine, channels) {
            let change = Change::NormWeightOf {
                input,
                norm,
                tensor,
            };
            all.push(one(change, false, shape, &Arc::new(affine)));
        }
        Some(all)
    }
}

/// Of how far the weights that were used are from the norm's own, those of another norm may be off by this share; and of themselves by this.
const SAME: [f64; 2] = [0.1, 0.02];
/// Norms that are looked at, the nearest first.
const MOST_NORMS: usize = 24;

/// Norms whose weights made an output in place of the norm's own.
fn elsewhere(
    site: &Site<'_>,
    input: &[f64],
    output: &[f64],
    shape: Shape,
    own: &Affine,
    channels: usize,
) -> Vec<(usize, Affine)> {
    let normed = normalise(input, channels, shape);
    let has = regress(&normed, output, channels, shape.centred);
    let floor = HOPELESS * LOOSENESS * site.floor[0];
    let between = |a: &Affine, b: &Affine| {
        let bias = |of: &Affine| of.bias.clone().unwrap_or_else(|| vec![0.0; channels]);
        let all = a.weight.iter().zip(&b.weight).map(|(a, b)| a - b);
        rms(&all
            .chain(bias(a).iter().zip(&bias(b)).map(|(a, b)| a - b))
            .collect::<Vec<_>>())
    };
    let (size, changed) = (rms(&has.weight), between(&has, own));
    // The output must be a norm with other weights, and those far from its own.
    if changed <= MUCH_OTHER * size
        || !roughly(
            apply(normed, &has, channels).into_iter(),
            output.iter().copied(),
            floor,
        )
    {
        return Vec::new();
    }
    let run = site.run;
    let is_same =
        |other: &Affine| between(&has, other) <= f64::min(SAME[0] * changed, SAME[1] * size);
    let recorded = |at: usize| Some(run.load(at)?.to_vec());
    let vectors = || {
        site.parameters
            .iter()
            .copied()
            .filter(|at| run.dims(*at) == [channels])
    };
    let mut found = Vec::new();
    for at in vectors() {
        let beside =
            |bias: &usize| run.name(*bias) == run.name(at).replace("weight", "bias") && *bias != at;
        let bias = vectors().find(beside).and_then(recorded);
        let Some(weight) = recorded(at) else { continue };
        let bias = if shape.centred {
            Some(bias.unwrap_or_else(|| vec![0.0; channels]))
        } else {
            None
        };
        found.push((at, Affine { weight, bias }));
    }
    if !found.iter().any(|(_, other)| is_same(other)) {
        let alike = |at: &usize| {
            let tensor = run.tensor(*at);
            let lower = tensor.name.to_ascii_lowercase();
            *at != site.at
                && !tensor.parameter
                && tensor.dims.last() == Some(&channels)
                && ["norm", "ln"].iter().any(|word| lower.contains(word))
        };
        let mut near: Vec<usize> = (0..run.tensors().len()).filter(alike).collect();
        near.sort_by_key(|at| at.abs_diff(site.at));
        let weights = |at: usize| {
            let site = Site::new(run, at, Ask::default())?;
            Some((at, affine_of(&site, channels, shape)?))
        };
        found.extend(near.into_iter().take(MOST_NORMS).filter_map(weights));
    }
    found.retain(|(_, other)| is_same(other));
    found.truncate(1);
    found
}

/// Weights that are off by less may be this norm's own in another dtype.
const MUCH_OTHER: f64 = 0.05;

/// The weights of another norm of this kind, by its values.
fn affine_of(site: &Site<'_>, channels: usize, shape: Shape) -> Option<Affine> {
    let wanted = site.run.glimpse(site.at)?;
    let inputs = site
        .before
        .iter()
        .filter(|at| site.run.dims(**at) == site.dims());
    let promising = |input: &&usize| {
        let given = site.run.glimpse(**input);
        given.is_some_and(|given| promises(&wanted, &given, shape.centred, site.floor[0]))
    };
    let values = site.run.load(*inputs.into_iter().find(promising)?)?;
    let normed = normalise(&values, channels, shape);
    Some(regress(&normed, &site.out, channels, shape.centred))
}

/// How many more floors a LayerNorm may be off because its rows' means are large beside what they spread: the rounding of the mean, a sum in
/// single precision or better, is left when it is subtracted. As a share of the floor, which what is rounded to a coarser dtype hardly feels.
fn subtracted(site: &Site<'_>, given: &[f64], channels: usize) -> f64 {
    let ratio = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / channels as f64;
        let spread = rms(&row.iter().map(|x| x - mean).collect::<Vec<_>>());
        if spread > 0.0 {
            mean.abs() / spread
        } else {
            0.0
        }
    };
    let mut ratios: Vec<f64> = given.chunks_exact(channels).map(ratio).collect();
    let share = |dtype: DType| {
        let unit = floor_unit(dtype)?;
        let summing = (channels as f64).sqrt() * unit.min(2f64.powi(-24));
        Some(summing / (unit + summing))
    };
    let shares = [Some(site.dtype()), site.ask.also].map(|dtype| dtype.and_then(share));
    0.5 * median(&mut ratios) * shares.into_iter().flatten().fold(1.0, f64::min)
}

/// More rows say no more about epsilon.
const TELLING: usize = 256;

/// The rows that tell epsilons apart, of many: the quietest feel it most, and as many spread evenly keep the weights honest.
fn telling_rows(given: &[f64], channels: usize) -> Option<Vec<usize>> {
    let rows = given.len() / channels;
    if rows <= 2 * TELLING || given.len() <= WHOLE {
        return None;
    }
    let square = |row: usize| {
        given[row * channels..][..channels]
            .iter()
            .map(|x| x * x)
            .sum::<f64>()
    };
    let mut by_size: Vec<(f64, usize)> = (0..rows).map(|row| (square(row), row)).collect();
    by_size.select_nth_unstable_by(TELLING / 2, |a, b| a.0.total_cmp(&b.0));
    let quiet = by_size[..TELLING / 2].iter().map(|(_, row)| *row);
    let mut picked: Vec<usize> = quiet
        .chain((0..rows).step_by(rows / (TELLING / 2)))
        .collect();
    picked.sort_unstable();
    picked.dedup();
    Some(picked)
}

fn normalise(values: &[f64], channels: usize, shape: Shape) -> Vec<f64> {
    let mut normed = Vec::with_capacity(values.len());
    for row in values.chunks_exact(channels) {
        let mean = if shape.centred {
            row.iter().sum::<f64>() / channels as f64
        } else {
            0.0
        };
        let square = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / channels as f64;
        let factor = shape.factor(square, channels);
        normed.extend(row.iter().map(|x| (x - mean) * factor));
    }
    normed
}

/// The epsilon that rows imply: each row's factor is that of its mean square and epsilon, and the quietest rows feel it most.
fn fit_epsilon(
    input: &[f64],
    output: &[f64],
    channels: usize,
    shape: Shape,
    affine: &Affine,
) -> Option<f64> {
    let mut rows: Vec<(f64, f64)> = Vec::new();
    for (x, y) in input
        .chunks_exact(channels)
        .zip(output.chunks_exact(channels))
    {
        let mean = if shape.centred {
            x.iter().sum::<f64>() / channels as f64
        } else {
            0.0
        };
        let square = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / channels as f64;
        let (mut xy, mut xx) = (0.0, 0.0);
        for (channel, (x, y)) in x.iter().zip(y).enumerate() {
            let whole = (x - mean) * affine.weight[channel];
            xy += whole * (y - affine.bias.as_ref().map_or(0.0, |bias| bias[channel]));
            xx += whole * whole;
        }
        let factor = xy / xx;
        let epsilon = shape.implied(factor, square);
        if epsilon.is_finite() {
            rows.push((square, epsilon));
        }
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut quiet: Vec<f64> = rows
        .iter()
        .take(rows.len().div_ceil(2))
        .map(|(_, epsilon)| *epsilon)
        .collect();
    let epsilon = Some(median(&mut quiet)).filter(|epsilon| *epsilon > 0.0)?;
    // People choose powers of ten.
    let power = 10f64.powf(epsilon.log10().round());
    Some(if (epsilon / power - 1.0).abs() < 0.2 {
        power
    } else {
        epsilon
    })
}

/// Least squares, channel by channel; row by row, as the values lie.
fn regress(normed: &[f64], wanted: &[f64], channels: usize, with_bias: bool) -> Affine {
    let rows = (normed.len() / channels) as f64;
    let means = |values: &[f64]| {
        let mut mean = vec![0.0; channels];
        if with_bias {
            values.chunks_exact(channels).for_each(|row| {
                mean.iter_mut()
                    .zip(row)
                    .for_each(|(mean, value)| *mean += value);
            });
            mean.iter_mut().for_each(|mean| *mean /= rows);
        }
        mean
    };
    let (x0, y0) = (means(normed), means(wanted));
    let (mut xy, mut xx) = (vec![0.0; channels], vec![0.0; channels]);
    for (x, y) in normed
        .chunks_exact(channels)
        .zip(wanted.chunks_exact(channels))
    {
        for channel in 0..channels {
            let (x, y) = (x[channel] - x0[channel], y[channel] - y0[channel]);
            xy[channel] += x * y;
            xx[channel] += x * x;
        }
    }
    let weight: Vec<f64> = xy
        .iter()
        .zip(&xx)
        .map(|(xy, xx)| if *xx > 0.0 { xy / xx } else { 0.0 })
        .collect();
    let bias = with_bias.then(|| {
        (0..channels)
            .map(|channel| y0[channel] - weight[channel] * x0[channel])
            .collect()
    });
    Affine { weight, bias }
}

/// In place.
fn apply(mut normed: Vec<f64>, affine: &Affine, channels: usize) -> Vec<f64> {
    for row in normed.chunks_exact_mut(channels) {
        match &affine.bias {
            Some(bias) => row
                .iter_mut()
                .zip(&affine.weight)
                .zip(bias)
                .for_each(|((x, weight), bias)| *x = *x * weight + bias),
            None => row
                .iter_mut()
                .zip(&affine.weight)
                .for_each(|(x, weight)| *x *= weight),
        }
    }
    normed
}
