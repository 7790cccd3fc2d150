//! Modulation by a condition: `x (1 + scale) + shift` and `x + gate y`, each a vector per batch row, mostly slices of one projection (adaLN).

use super::{Learned, Op, Picked, Predict, Variant};
use crate::{
    Loaded,
    flow::{Site, of},
    scattered,
};
use std::sync::Arc;

pub(super) struct Modulate;

/// Slices that one projection has at most; tensors that are tried.
const MOST_SLICES: usize = 9;
const MOST_INPUTS: usize = 16;
const MOST_CONDITIONS: usize = 8;

/// One slice of a tensor with a row per batch row.
#[derive(Clone)]
struct Slice {
    input: usize,
    values: Arc<Loaded>,
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

    fn said(&self, site: &Site<'_>, channels: usize) -> String {
        let name = &site.scene.entries()[self.input].name;
        if self.stride == channels {
            name.clone()
        } else {
            format!("{name}[.., {}:{}]", self.offset, self.offset + channels)
        }
    }
}

impl Op for Modulate {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
        let (dims, entries) = (site.dims(), site.scene.entries());
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
            let dims = &entries[**at].dims;
            let &[rows, .., width] = &dims[..] else {
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
            .filter(|at| entries[**at].dims == dims)
            .take(MOST_INPUTS);
        let inputs: Vec<(usize, Arc<[f64]>)> = alike
            .filter_map(|at| Some((*at, site.scene.sketch(*at)?[0].clone())))
            .collect();
        let mut slices: Vec<(Slice, Vec<f64>)> = Vec::new();
        for input in conditions {
            let Some(values) = site.load(input) else {
                continue;
            };
            let stride = values.reference.len() / batch;
            for offset in (0..stride).step_by(channels) {
                let slice = Slice {
                    input,
                    values: values.clone(),
                    stride,
                    offset,
                };
                let sketch = places
                    .iter()
                    .map(|flat| values.reference[slice.place(frame, *flat)])
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
                            site.load(*x)
                                .map(|loaded| modulated(site, (*x, &loaded), scale, shift, frame)),
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
                        let both = site.load(*x).zip(site.load(*y));
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

/// `f` of an element of each of two inputs and two slices.
fn over(
    site: &Site<'_>,
    inputs: [&Arc<Loaded>; 2],
    slices: [&Slice; 2],
    frame: Frame,
    f: impl Fn([f64; 4]) -> f64 + 'static,
) -> Predict {
    let (inputs, slices, width) = (
        inputs.map(Arc::clone),
        slices.map(Slice::clone),
        site.width(),
    );
    Box::new(move |side, picked: Picked<'_>| {
        let values = slices.each_ref().map(|slice| of(&slice.values, side));
        let [x, y] = inputs.each_ref().map(|input| of(input, side));
        let one = |flat: usize| {
            let [s, t] = [0, 1].map(|nth| values[nth][slices[nth].place(frame, flat)]);
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

fn learned(
    formula: String,
    inputs: Vec<usize>,
    predict: Predict,
    variants: Vec<Variant>,
) -> Learned {
    Learned {
        formula,
        inputs,
        terms: 0,
        work: 0,
        looseness: 1.5,
        off: [0.0; 4],
        on_some_rows: false,
        borrows: false,
        predict,
        variants,
        telling: None,
    }
}

fn variant(kind: &'static str, text: String, predict: Predict) -> Variant {
    Variant {
        kind,
        details: serde_json::json!({"candidate": text, "side": "candidate"}),
        text,
        fitted: false,
        predict,
    }
}

fn modulated(
    site: &Site<'_>,
    (x, loaded): (usize, &Arc<Loaded>),
    scale: &Slice,
    shift: &Slice,
    frame: Frame,
) -> Learned {
    let name = &site.scene.entries()[x].name;
    let [s, t] = [scale, shift].map(|slice| slice.said(site, frame.channels));
    let made = |f: fn([f64; 4]) -> f64| over(site, [loaded; 2], [scale, shift], frame, f);
    let formula = format!("{name} * (1 + {s}) + {t}");
    let variants = vec![
        variant(
            "missing_term",
            format!("{name} is multiplied with {s}, not with 1 more"),
            made(|[x, _, s, t]| x * s + t),
        ),
        variant(
            "swapped",
            format!("{s} and {t} are swapped: scale and shift of {name}"),
            made(|[x, _, s, t]| x * (1.0 + t) + s),
        ),
        variant(
            "offset",
            format!("{t} is not added to {name} * (1 + {s})"),
            made(|[x, _, s, _]| x * (1.0 + s)),
        ),
        variant(
            "channel_scale",
            format!("{name} is not multiplied with 1 + {s}"),
            made(|[x, _, _, t]| x + t),
        ),
    ];
    learned(
        formula,
        vec![x, scale.input],
        made(|[x, _, s, t]| x * (1.0 + s) + t),
        variants,
    )
}

fn gated(
    site: &Site<'_>,
    [(x, of_x), (y, of_y)]: [(usize, Arc<Loaded>); 2],
    gate: &Slice,
    frame: Frame,
) -> Learned {
    let name = |at: usize| &site.scene.entries()[at].name;
    let g = gate.said(site, frame.channels);
    let made = |f: fn([f64; 4]) -> f64| over(site, [&of_x, &of_y], [gate; 2], frame, f);
    let variants = vec![
        variant(
            "channel_scale",
            format!("{} is added without its gate {g}", name(y)),
            made(|[x, y, _, _]| x + y),
        ),
        variant(
            "missing_term",
            format!("{g} * {} is not added to {}", name(y), name(x)),
            made(|[x, _, _, _]| x),
        ),
        variant(
            "extra_term",
            format!("{} is added beside its gate {g}, which is 1 more", name(y)),
            made(|[x, y, g, _]| x + (1.0 + g) * y),
        ),
        variant(
            "missing_term",
            format!("{} is not added to {g} * {}", name(x), name(y)),
            made(|[_, y, g, _]| g * y),
        ),
    ];
    learned(
        format!("{} + {g} * {}", name(x), name(y)),
        vec![x, y, gate.input],
        made(|[x, y, g, _]| x + g * y),
        variants,
    )
}

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, normal, report_as};
    use twinscope_compare::{report::Report, verdict::Origin};
    use twinscope_tensor::DType;

    const DIMS: [usize; 3] = [2, 9, 8];

    /// `x`, six vectors per batch row, `y`, and what a function makes of an element of both and of those of the condition.
    fn report(
        f: fn(f64, f64, &dyn Fn(usize) -> f64) -> f64,
        broken: fn(f64, f64, &dyn Fn(usize) -> f64) -> f64,
    ) -> Report {
        let (x, y, condition) = (normal(144, 1), normal(144, 2), normal(2 * 48, 3));
        let other: Vec<f64> = condition
            .iter()
            .zip(normal(96, 4))
            .map(|(c, n)| c + 0.1 * n)
            .collect();
        let made = |condition: &[f64], f: fn(f64, f64, &dyn Fn(usize) -> f64) -> f64| -> Vec<f64> {
            let one = |flat: usize| {
                f(x[flat], y[flat], &|slice| {
                    condition[flat / 72 * 48 + slice * 8 + flat % 8]
                })
            };
            (0..144).map(one).collect()
        };
        let (reference, candidate) = (made(&condition, f), made(&other, broken));
        let run = [
            Recorded {
                name: "x",
                dims: DIMS.to_vec(),
                reference: x.clone(),
                candidate: x.clone(),
            },
            Recorded {
                name: "y",
                dims: DIMS.to_vec(),
                reference: y.clone(),
                candidate: y.clone(),
            },
            Recorded {
                name: "condition",
                dims: vec![2, 48],
                reference: condition.clone(),
                candidate: other.clone(),
            },
            Recorded {
                name: "out",
                dims: DIMS.to_vec(),
                reference,
                candidate,
            },
        ];
        report_as(DType::F32, &run)
    }

    fn last(report: &Report) -> (Option<Origin>, Option<&str>) {
        let pair = report.pairs.last().unwrap();
        println!("{:?}", pair.causes);
        (
            pair.origin(),
            pair.causes.first().map(|cause| cause.kind.name()),
        )
    }

    #[test]
    fn a_modulated_norm_passes_on_the_error_of_its_condition() {
        let modulate = |x: f64, _: f64, c: &dyn Fn(usize) -> f64| x * (1.0 + c(1)) + c(0);
        assert_eq!(
            last(&report(modulate, modulate)),
            (Some(Origin::Inherited), None)
        );
        let gate = |x: f64, y: f64, c: &dyn Fn(usize) -> f64| x + c(2) * y;
        assert_eq!(last(&report(gate, gate)), (Some(Origin::Inherited), None));
    }

    #[test]
    fn what_goes_wrong_with_scale_shift_and_gate_is_named() {
        let modulate = |x: f64, _: f64, c: &dyn Fn(usize) -> f64| x * (1.0 + c(1)) + c(0);
        let own = |kind| (Some(Origin::Own), Some(kind));
        assert_eq!(
            last(&report(modulate, |x, _, c| x * (1.0 + c(0)) + c(1))),
            own("swapped")
        );
        assert_eq!(
            last(&report(modulate, |x, _, c| x * c(1) + c(0))),
            own("missing_term")
        );
        assert_eq!(
            last(&report(modulate, |x, _, c| x * (1.0 + c(1)))),
            own("offset")
        );
        let gate = |x: f64, y: f64, c: &dyn Fn(usize) -> f64| x + c(2) * y;
        assert_eq!(last(&report(gate, |x, y, _| x + y)), own("channel_scale"));
    }
}
