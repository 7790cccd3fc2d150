//! A function of each number alone: activations, a soft cap, a factor.

use super::{Learned, Op, Predict, Variant, is_near, sample};
use crate::{
    Loaded,
    array::energy,
    constants::short,
    flow::{Site, of, own_floor},
    functions::{self, FUNCTIONS, softcap},
    measures,
};
use std::sync::Arc;

pub(super) struct Unary;

/// Caps that people use.
const CAPS: [f64; 7] = [15.0, 20.0, 30.0, 50.0, 100.0, 5.0, 10.0];

impl Op for Unary {
    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
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
            if site.scene.entries()[input].dims.iter().product::<usize>() != elements {
                continue;
            }
            let Some([given, _]) = site.scene.sketch(input) else {
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
            let Some(loaded) = site.load(input) else {
                continue;
            };
            for function in FUNCTIONS.iter().filter(|function| near(&function.of)) {
                learned.push(made(
                    site,
                    input,
                    &loaded,
                    function.name.to_owned(),
                    function.of,
                ));
            }
            for cap in CAPS.into_iter().filter(|cap| near(&|x| softcap(x, *cap))) {
                learned.push(made(
                    site,
                    input,
                    &loaded,
                    format!("softcap {cap}"),
                    move |x| softcap(x, cap),
                ));
            }
            if factor {
                // Over all values, now that it is believed on a few.
                let all = loaded.reference.iter().zip(&site.out.reference);
                let (xy, xx) = all.fold((0.0, 0.0), |(xy, xx), (x, y)| (xy + x * y, xx + x * x));
                let s = if (xy / xx - 1.0).abs() < site.floor[0] {
                    1.0
                } else {
                    xy / xx
                };
                if s != 1.0 {
                    learned.push(made(site, input, &loaded, short(s), move |x| s * x));
                }
            }
        }
        learned
    }
}

fn made(
    site: &Site<'_>,
    input: usize,
    loaded: &Arc<Loaded>,
    name: String,
    f: impl Fn(f64) -> f64 + Clone + 'static,
) -> Learned {
    let width = site.width();
    let over = |f: Box<dyn Fn(f64) -> f64>| -> Predict {
        let loaded = loaded.clone();
        Box::new(move |side, picked| {
            Some(
                picked
                    .of(of(&loaded, side), width)
                    .iter()
                    .map(|x| f(*x))
                    .collect(),
            )
        })
    };
    let of_name = &site.scene.entries()[input].name;
    let variant = |other: String, f: Box<dyn Fn(f64) -> f64>| Variant {
        kind: "function",
        text: format!("{other} of {of_name} where the reference has {name}"),
        details: serde_json::json!({"candidate": other, "reference": name, "input": of_name}),
        fitted: false,
        predict: over(f),
    };
    let mut variants: Vec<Variant> = FUNCTIONS
        .iter()
        .filter(|other| other.name != name)
        .map(|other| variant(other.name.to_owned(), Box::new(other.of)))
        .collect();
    // The cap that the candidate's own values imply, beside those that people use.
    let fitted = functions::best_cap(|cap| {
        let picked = sample(site.out.candidate.len());
        picked
            .iter()
            .map(|at| softcap(f(loaded.candidate[*at]), cap) - site.out.candidate[*at])
            .map(|miss| miss * miss)
            .sum()
    });
    variants.extend(
        CAPS.into_iter()
            .chain([fitted])
            .filter(|cap| format!("softcap {cap}") != name)
            .map(|cap| {
                let f = f.clone();
                let capped = variant(
                    format!("{name} with softcap {}", short(cap)),
                    Box::new(move |x| softcap(f(x), cap)),
                );
                Variant {
                    fitted: !CAPS.contains(&cap),
                    ..capped
                }
            }),
    );
    if name.starts_with("softcap") {
        // Another cap, or none, on what the reference caps.
        let fitted = functions::best_cap(|cap| {
            let picked = sample(site.out.candidate.len());
            picked
                .iter()
                .map(|at| softcap(loaded.candidate[*at], cap) - site.out.candidate[*at])
                .map(|miss| miss * miss)
                .sum()
        });
        variants.extend(
            CAPS.into_iter()
                .chain([fitted])
                .filter(|cap| format!("softcap {cap}") != name)
                .map(|cap| {
                    let capped = variant(
                        format!("softcap {}", short(cap)),
                        Box::new(move |x| softcap(x, cap)),
                    );
                    Variant {
                        fitted: !CAPS.contains(&cap),
                        ..capped
                    }
                }),
        );
        variants.push(variant("no softcap".to_owned(), Box::new(|x| x)));
    }
    let looseness = LOOSENESS + cancelled(site, loaded, &f);
    Learned {
        formula: format!("{name} of {of_name}"),
        inputs: vec![input],
        terms: 0,
        work: 0,
        looseness,
        off: [0.0; 4],
        on_some_rows: false,
        borrows: false,
        predict: over(Box::new(f)),
        variants,
        telling: None,
    }
}

/// Floors that a function may be off: it rounds a step or two inside.
const LOOSENESS: f64 = 2.0;

/// What rounding in single precision leaves of an input that the tails of a function cancel, `x (1 + erf x) / 2`; as vectors compute it.
const CANCELLED: f64 = 1.0 / (1u64 << 23) as f64;

/// How many more floors a function may be off because its tails cancel: a channel that is all tail, on either side, is off by many units where
/// the others are by one. Nothing that is rounded to a coarser dtype feels it.
fn cancelled(site: &Site<'_>, loaded: &Loaded, f: &impl Fn(f64) -> f64) -> f64 {
    let Some(floor) = own_floor(site.scene.entries()[site.pair].dtypes[0], 0) else {
        return 0.0;
    };
    let more = |values: &[f64]| {
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
        let off = measures(site.dims(), &made, &off);
        off.iter()
            .zip(floor)
            .map(|(off, floor)| off / floor)
            .filter(|more| more.is_finite())
            .fold(0.0, f64::max)
    };
    (more(&loaded.reference).max(more(&loaded.candidate)) - 1.0).clamp(0.0, MOST_CANCELLED)
}

/// No more floors than that.
const MOST_CANCELLED: f64 = 64.0;
