//! The same numbers again: reshaped, heads moved, or one slice of a fused tensor.

use crate::{
    Input, Learned, Op, Picked, Run, Site, learned::roughly, rows::Rows, sampling::sample,
};
use twinscope_tensor::formula::Formula;

pub(crate) struct Copy;

impl Op for Copy {
    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let mut learned = Vec::new();
        let out_rows: Vec<(Rows, Few)> = Rows::all(site.dims())
            .into_iter()
            .filter_map(|rows| Some((rows, Few::of(site, &rows)?)))
            .collect();
        for &input in &site.before {
            let dims = site.run.dims(input);
            let (from, to): (usize, usize) = (dims.iter().product(), site.elements());
            // A slice of three, or of any packing: the input is at most this many times larger.
            if from < to || from > 16 * to {
                continue;
            }
            for (rows, few) in &out_rows {
                for inner in Rows::all(dims) {
                    if inner.rows != rows.rows || inner.features < rows.features {
                        continue;
                    }
                    let step = if inner.features == rows.features {
                        1
                    } else {
                        rows.features
                    };
                    for offset in (0..=inner.features - rows.features).step_by(step.max(1)) {
                        if few.promise(site, input, |at| place(rows, &inner, offset, at))
                            && let Some(given) = Input::read(site.run, input)
                        {
                            learned.extend(slice(site, input, &given, rows, &inner, offset));
                        }
                    }
                }
            }
        }
        learned
    }
}

/// Single values that are compared before a tensor is read: where they are, and what they are.
struct Few {
    picked: Vec<usize>,
    wanted: Vec<f64>,
}

const FEW: usize = 6;

impl Few {
    fn of(site: &Site<'_>, rows: &Rows) -> Option<Self> {
        let picked: Vec<usize> = sample(rows.count()).into_iter().take(FEW).collect();
        let wanted = site.run.pick(
            site.at,
            &picked.iter().map(|at| rows.at(*at)).collect::<Vec<_>>(),
        )?;
        Some(Self { picked, wanted })
    }

    fn promise(&self, site: &Site<'_>, input: usize, place: impl Fn(usize) -> usize) -> bool {
        let places: Vec<usize> = self.picked.iter().map(|at| place(*at)).collect();
        let Some(given) = site.run.pick(input, &places) else {
            return false;
        };
        // Zeros are copies of all others.
        roughly(
            given.iter().copied(),
            self.wanted.iter().copied(),
            site.floor[1],
        ) || self.wanted.iter().all(|value| *value == 0.0)
    }
}

fn place(rows: &Rows, inner: &Rows, offset: usize, at: usize) -> usize {
    inner.at(at / rows.features * inner.features + offset + at % rows.features)
}

fn slice<'a>(
    site: &Site<'a>,
    input: usize,
    given: &Input,
    rows: &Rows,
    inner: &Rows,
    offset: usize,
) -> Option<Learned<'a>> {
    let place = |at: usize| place(rows, inner, offset, at);
    let picked = sample(rows.count());
    let values = given.on(site.run)?;
    let made = picked.iter().map(|at| values[place(*at)]);
    let wanted = picked.iter().map(|at| site.out[rows.at(*at)]);
    if !roughly(made, wanted, site.floor[1]) {
        return None;
    }
    let name = site.name(input);
    let formula = if inner.features == rows.features {
        Formula::tensor(name)
    } else {
        Formula::Slice {
            of: name.to_owned(),
            from: offset,
            to: offset + rows.features,
        }
    };
    let (given, rows, inner, width) = (given.clone(), *rows, *inner, site.width());
    let predict = move |run: &dyn Run, picked: Picked<'_>| {
        let values = given.on(run)?;
        let values: &[f64] = &values;
        let mut made = Vec::with_capacity(picked.count() * width);
        for row in picked.rows() {
            let (mut at, end) = (rows.from(row * width), rows.from(row * width) + width);
            while at < end {
                let run = inner.run(offset + at % rows.features).min(end - at);
                made.extend_from_slice(&values[self::place(&rows, &inner, offset, at)..][..run]);
                at += run;
            }
        }
        Some(made)
    };
    Some(Learned::new(formula, vec![input], Box::new(predict)))
}
