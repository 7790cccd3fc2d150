//! A function of each number alone: activations, a soft cap, a factor.

use crate::{
    Alternative, Change, Input, Learned, Op, Out, Predict, Run, Site,
    array::energy,
    functions::{self, FUNCTIONS, softcap},
    learned::is_near,
    measures,
    sampling::sample,
    site::own_floor,
};
use std::sync::Arc;
use twinscope_tensor::{
    DType,
    formula::{Formula, Function},
};

pub(crate) struct Unary;

/// Caps that people use.
const CAPS: [f64; 7] = [15.0, 20.0, 30.0, 50.0, 100.0, 5.0, 10.0];

impl Op for Unary {
    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let elements = site.elements();
        let Some(wanted) = site.sketch() else {
            return Vec::new();
        };
        let energy = energy(&wanted);
        if energy == 0.0 {
            return Vec::new();
        }
        let most = site.floor[1] * site.floor[1] * energy;
        let mut learned = Vec::new();
        for &input in &site.before {
            if site.run.elements(input) != elements {
                continue;
            }
            let Some(given) = site.run.sketch(input) else {
                continue;
            };
            let near = |f: &dyn Fn(f64) -> f64| {
                is_near(given.iter().map(|x| f(*x)), wanted.iter().copied(), most)
            };
            let (xy, xx) = given
                .iter()
                .zip(&*wanted)
                .fold((0.0, 0.0), |(xy, xx), (x, y)| (xy + x * y, xx + x * x));
            let s = xy / xx;
            let factor = s.is_finite() && s != 0.0 && near(&|x| s * x);
            let of_library = FUNCTIONS.iter().any(|function| near(&function.of))
                || CAPS.into_iter().any(|cap| near(&|x| softcap(x, cap)));
            // Read whole only when a few values have promised something.
            if !factor && !of_library {
                continue;
            }
            let Some(read) = Input::read(site.run, input) else {
                continue;
            };
            for function in FUNCTIONS.iter().filter(|function| near(&function.of)) {
                let name = Function::Named(function.name);
                learned.extend(made(site, input, &read, name, Arc::new(function.of)));
            }
            for cap in CAPS.into_iter().filter(|cap| near(&|x| softcap(x, *cap))) {
                let name = Function::Softcap(cap);
                learned.extend(made(
                    site,
                    input,
                    &read,
                    name,
                    Arc::new(move |x| softcap(x, cap)),
                ));
            }
            if factor {
                // Over all values, now that it is believed on a few.
                let Some(values) = read.on(site.run) else {
                    continue;
                };
                let all = values.iter().zip(site.out.iter());
                let (xy, xx) = all.fold((0.0, 0.0), |(xy, xx), (x, y)| (xy + x * y, xx + x * x));
                let s = if (xy / xx - 1.0).abs() < site.floor[0] {
                    1.0
                } else {
                    xy / xx
                };
                if s != 1.0 {
                    let name = Function::Factor(s);
                    learned.extend(made(site, input, &read, name, Arc::new(move |x| s * x)));
                }
            }
        }
        learned
    }
}

/// A function of one number.
type Of = Arc<dyn Fn(f64) -> f64 + Send + Sync>;

fn made<'a>(
    site: &Site<'a>,
    input: usize,
    given: &Input,
    name: Function,
    f: Of,
) -> Option<Learned<'a>> {
    let width = site.width();
    let over = {
        let given = given.clone();
        move |f: Of| -> Predict {
            let given = given.clone();
            Box::new(move |run, picked| {
                let values = given.on(run)?;
                Some(picked.of(&values, width).iter().map(|x| f(*x)).collect())
            })
        }
    };
    let formula = Formula::Function {
        function: name.clone(),
        of: Formula::boxed(site.name(input)),
    };
    let own = cancelled(site.run, site.at, &given.on(site.run)?, &*f);
    let looseness_on = {
        let (given, at, dtype, f) = (given.clone(), site.at, site.dtype(), f.clone());
        move |run: &dyn Run| {
            let other = given
                .on(run)
                .map_or(0.0, |values| cancelled_as(dtype, run, at, &values, &*f));
            LOOSENESS + own.max(other)
        }
    };
    let predict = over(f.clone());
    let given = given.clone();
    let alternatives = move |out: &Out<'_>| {
        let Some(values) = given.on(out.run) else {
            return Vec::new();
        };
        others(input, &name, &f, &values, out, &over)
    };
    Some(Learned {
        looseness: LOOSENESS + own,
        looseness_on: Some(Box::new(looseness_on)),
        alternatives: Some(Box::new(alternatives)),
        ..Learned::new(formula, vec![input], predict)
    })
}

/// Every other function that an output may be of its input: those of the library, and a cap.
fn others(
    input: usize,
    name: &Function,
    f: &Of,
    values: &[f64],
    out: &[f64],
    over: &dyn Fn(Of) -> Predict,
) -> Vec<Alternative> {
    let other = |instead: Function, fitted: bool, f: Of| Alternative {
        change: Change::Function {
            input,
            instead,
            of: name.clone(),
        },
        fitted,
        predict: over(f),
    };
    let mut all: Vec<Alternative> = FUNCTIONS
        .iter()
        .filter(|function| Function::Named(function.name) != *name)
        .map(|function| other(Function::Named(function.name), false, Arc::new(function.of)))
        .collect();
    // The cap that the values themselves imply, beside those that people use.
    let caps = |f: &dyn Fn(f64) -> f64| {
        let picked = sample(out.len());
        let fitted = functions::best_cap(|cap| {
            picked
                .iter()
                .map(|at| softcap(f(values[*at]), cap) - out[*at])
                .map(|miss| miss * miss)
                .sum()
        });
        CAPS.into_iter()
            .chain([fitted])
            .filter(|cap| Function::Softcap(*cap) != *name)
    };
    all.extend(caps(&**f).map(|cap| {
        let f = f.clone();
        other(
            Function::Capped(Box::new(name.clone()), cap),
            !CAPS.contains(&cap),
            Arc::new(move |x| softcap(f(x), cap)),
        )
    }));
    if matches!(name, Function::Softcap(_)) {
        // Another cap, or none, on what the formula caps.
        all.extend(caps(&|x| x).map(|cap| {
            other(
                Function::Softcap(cap),
                !CAPS.contains(&cap),
                Arc::new(move |x| softcap(x, cap)),
            )
        }));
        all.push(other(Function::Uncapped, false, Arc::new(|x| x)));
    }
    all
}

/// Floors that a function may be off: it rounds a step or two inside.
const LOOSENESS: f64 = 2.0;

/// What rounding in single precision leaves of an input that the tails of a function cancel, `x (1 + erf x) / 2`; as vectors compute it.
const CANCELLED: f64 = 1.0 / (1u64 << 23) as f64;

/// How many more floors a function may be off because its tails cancel: a channel that is all tail is off by many units where the others are
/// by one. Nothing that is rounded to a coarser dtype feels it.
fn cancelled(run: &dyn Run, at: usize, values: &[f64], f: &dyn Fn(f64) -> f64) -> f64 {
    cancelled_as(run.tensor(at).dtype, run, at, values, f)
}

/// The same in floors of a dtype.
fn cancelled_as(
    dtype: DType,
    run: &dyn Run,
    at: usize,
    values: &[f64],
    f: &dyn Fn(f64) -> f64,
) -> f64 {
    let Some(floor) = own_floor(dtype, 0) else {
        return 0.0;
    };
    let made: Vec<f64> = values.iter().map(|x| f(*x)).collect();
    let off: Vec<f64> = values
        .iter()
        .zip(&made)
        .map(|(x, made)| {
            made + if made.abs() < x.abs() {
                CANCELLED * x
            } else {
                0.0
            }
        })
        .collect();
    let off = measures(run.dims(at), &made, &off);
    let more = off
        .iter()
        .zip(floor)
        .map(|(off, floor)| off / floor)
        .filter(|more| more.is_finite())
        .fold(0.0, f64::max);
    (more - 1.0).clamp(0.0, MOST_CANCELLED)
}

/// No more floors than that.
const MOST_CANCELLED: f64 = 64.0;
