//! Modulation by a condition: `x (1 + scale) + shift` and `x + gate y`, each a vector per batch row, mostly slices of one projection (adaLN).

use crate::{
    Alternative, Change, Input, Learned, Modulation, Op, Out, Picked, Predict, Site, scattered,
};
use std::sync::Arc;
use twinscope_tensor::formula::Formula;

pub(crate) struct Modulate;

/// Slices that one projection has at most; tensors that are tried.
const MOST_SLICES: usize = 9;
const MOST_INPUTS: usize = 16;
const MOST_CONDITIONS: usize = 8;

/// One slice of a tensor with a row per batch row.
#[derive(Clone)]
struct Slice {
    input: usize,
    values: Input,
    /// From one batch row to the next, and where the slice begins.
    stride: usize,
    offset: usize,
}

/// How elements of the output find theirs: so many in a batch row, and channels.
#[derive(Clone, Copy)]
struct Frame {
    inside: usize,
    channels: usize,
}

impl Slice {
    fn place(&self, Frame { inside, channels }: Frame, flat: usize) -> usize {
        flat / inside * self.stride + self.offset + flat % channels
    }

    fn formula(&self, site: &Site<'_>, channels: usize) -> Formula {
        let name = site.name(self.input);
        if self.stride == channels {
            Formula::tensor(name)
        } else {
            Formula::Slice {
                of: name.to_owned(),
                from: self.offset,
                to: self.offset + channels,
            }
        }
    }
}

impl Op for Modulate {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let (dims, run) = (site.dims(), site.run);
        let &[batch, .., channels] = dims else {
            return Vec::new();
        };
        if dims.len() < 3 || channels < 2 {
            return Vec::new();
        }
        let frame = Frame {
            inside: site.elements() / batch,
            channels,
        };
        // One row per batch row, whatever stands between.
        let is_condition = |at: &&usize| {
            let dims = run.dims(**at);
            let &[rows, .., width] = dims else {
                return false;
            };
            rows == batch
                && dims.iter().product::<usize>() == rows * width
                && width.is_multiple_of(channels)
                && (1..=MOST_SLICES).contains(&(width / channels))
        };
        let conditions: Vec<usize> = site
            .before
            .iter()
            .filter(is_condition)
            .copied()
            .take(MOST_CONDITIONS)
            .collect();
        if conditions.is_empty() {
            return Vec::new();
        }
        let Some(wanted) = site.sketch() else {
            return Vec::new();
        };
        let places: Vec<usize> = scattered(site.elements()).collect();
        let enough = site.floor[1]
            * site.floor[1]
            * wanted.iter().map(|wanted| wanted * wanted).sum::<f64>();
        let near = |made: &mut dyn Iterator<Item = f64>| {
            let mut left = enough;
            enough > 0.0
                && made.zip(&*wanted).all(|(made, wanted)| {
                    left -= (made - wanted) * (made - wanted);
                    left >= 0.0
                })
        };
        let alike = site
            .before
            .iter()
            .filter(|at| run.dims(**at) == dims)
            .take(MOST_INPUTS);
        let inputs: Vec<(usize, Arc<[f64]>)> = alike
            .filter_map(|at| Some((*at, run.sketch(*at)?)))
            .collect();
        let mut slices: Vec<(Slice, Vec<f64>)> = Vec::new();
        for input in conditions {
            let Some(values) = Input::read(run, input) else {
                continue;
            };
            let Some(read) = values.on(run) else {
                continue;
            };
            let stride = read.len() / batch;
            for offset in (0..stride).step_by(channels) {
                let slice = Slice {
                    input,
                    values: values.clone(),
                    stride,
                    offset,
                };
                let sketch = places
                    .iter()
                    .map(|flat| read[slice.place(frame, *flat)])
                    .collect();
                slices.push((slice, sketch));
            }
        }
        let mut learned = Vec::new();
        for (scale, s) in &slices {
            for (x, of_x) in &inputs {
                for (shift, t) in slices
                    .iter()
                    .filter(|(shift, _)| shift.input == scale.input && shift.offset != scale.offset)
                {
                    if near(
                        &mut of_x
                            .iter()
                            .zip(s)
                            .zip(t)
                            .map(|((x, s), t)| x * (1.0 + s) + t),
                    ) {
                        learned.extend(
                            Input::read(run, *x)
                                .map(|given| modulated(site, (*x, &given), scale, shift, frame)),
                        );
                    }
                }
                for (y, of_y) in inputs.iter().filter(|(y, _)| y != x) {
                    if near(
                        &mut of_x
                            .iter()
                            .zip(s)
                            .zip(of_y.iter())
                            .map(|((x, s), y)| x + s * y),
                    ) {
                        let both = Input::read(run, *x).zip(Input::read(run, *y));
                        learned.extend(both.map(|(of_x, of_y)| {
                            gated(site, [(*x, of_x), (*y, of_y)], scale, frame)
                        }));
                    }
                }
            }
        }
        learned
    }
}

/// A function of an element of each of two inputs and two slices.
type Of = fn([f64; 4]) -> f64;

/// Evaluates such functions on a run's inputs and slices.
fn over(
    site: &Site<'_>,
    inputs: [&Input; 2],
    slices: [&Slice; 2],
    frame: Frame,
) -> impl Fn(Of) -> Predict + use<> {
    let (inputs, slices, width) = (
        inputs.map(Input::clone),
        slices.map(Slice::clone),
        site.width(),
    );
    move |f| {
        let (inputs, slices) = (inputs.clone(), slices.clone());
        Box::new(move |run, picked: Picked<'_>| {
            let [s, t] = [slices[0].values.on(run)?, slices[1].values.on(run)?];
            let [x, y] = [inputs[0].on(run)?, inputs[1].on(run)?];
            let ([s, t], [x, y]): ([&[f64]; 2], [&[f64]; 2]) = ([&s, &t], [&x, &y]);
            let one = |flat: usize| {
                let (s, t) = (
                    s[slices[0].place(frame, flat)],
                    t[slices[1].place(frame, flat)],
                );
                f([x[flat], y[flat], s, t])
            };
            Some(
                picked
                    .rows()
                    .flat_map(|row| row * width..(row + 1) * width)
                    .map(one)
                    .collect(),
            )
        })
    }
}

/// Floors that a modulated tensor may be off: it rounds a step or two inside.
const LOOSENESS: f64 = 1.5;

fn modulated<'a>(
    site: &Site<'a>,
    (x, given): (usize, &Input),
    scale: &Slice,
    shift: &Slice,
    frame: Frame,
) -> Learned<'a> {
    const INSTEAD: [(Modulation, Of); 4] = [
        (Modulation::ScaleWithoutOne, |[x, _, s, t]| x * s + t),
        (Modulation::Swapped, |[x, _, s, t]| x * (1.0 + t) + s),
        (Modulation::NoShift, |[x, _, s, _]| x * (1.0 + s)),
        (Modulation::NoScale, |[x, _, _, t]| x + t),
    ];
    let made = over(site, [given; 2], [scale, shift], frame);
    let [s, t] = [scale, shift].map(|slice| slice.formula(site, frame.channels));
    let scaled = vec![
        Formula::tensor(site.name(x)),
        Formula::OnePlus(Box::new(s.clone())),
    ];
    let formula = Formula::Sum(vec![Formula::Product(scaled), t.clone()]);
    let predict = made(|[x, _, s, t]| x * (1.0 + s) + t);
    let alternatives = move |_: &Out<'_>| {
        let one = |(instead, f): (Modulation, Of)| Alternative {
            change: Change::Modulated {
                input: x,
                scale: s.clone(),
                shift: t.clone(),
                instead,
            },
            fitted: false,
            predict: made(f),
        };
        INSTEAD.map(one).into()
    };
    Learned {
        looseness: LOOSENESS,
        alternatives: Some(Box::new(alternatives)),
        ..Learned::new(formula, vec![x, scale.input], predict)
    }
}

fn gated<'a>(
    site: &Site<'a>,
    [(x, of_x), (y, of_y)]: [(usize, Input); 2],
    gate: &Slice,
    frame: Frame,
) -> Learned<'a> {
    const INSTEAD: [(Modulation, Of); 4] = [
        (Modulation::NoGate, |[x, y, _, _]| x + y),
        (Modulation::NotAdded, |[x, _, _, _]| x),
        (Modulation::GatePlusOne, |[x, y, g, _]| x + (1.0 + g) * y),
        (Modulation::NoResidual, |[_, y, g, _]| g * y),
    ];
    let made = over(site, [&of_x, &of_y], [gate; 2], frame);
    let g = gate.formula(site, frame.channels);
    let gated = Formula::Product(vec![g.clone(), Formula::tensor(site.name(y))]);
    let formula = Formula::Sum(vec![Formula::tensor(site.name(x)), gated]);
    let predict = made(|[x, y, g, _]| x + g * y);
    let alternatives = move |_: &Out<'_>| {
        let one = |(instead, f): (Modulation, Of)| Alternative {
            change: Change::Gated {
                inputs: [x, y],
                gate: g.clone(),
                instead,
            },
            fitted: false,
            predict: made(f),
        };
        INSTEAD.map(one).into()
    };
    Learned {
        looseness: LOOSENESS,
        alternatives: Some(Box::new(alternatives)),
        ..Learned::new(formula, vec![x, y, gate.input], predict)
    }
}
