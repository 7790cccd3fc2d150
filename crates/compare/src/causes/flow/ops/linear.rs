//! A product with a recorded weight, and a bias learned from the reference: what each output is beyond the product, on average.

use super::{Learned, Op, Variant};
use crate::{
    causes::{
        Loaded,
        array::rms,
        flow::{Site, of, rows::Rows},
    },
    layout::Which,
};
use std::sync::Arc;

pub(super) struct Linear;

/// Products beyond which it is not recomputed.
const MOST_WORK: usize = 1 << 28;

#[derive(Clone)]
struct Product {
    input: Arc<Loaded>,
    weight: Arc<Loaded>,
    from: Rows,
    to: Rows,
    /// `[in, out]` instead of `[out, in]`.
    turned: bool,
}

impl Product {
    fn one(&self, side: Which, row: usize, feature: usize) -> f64 {
        let (x, w) = (of(&self.input, side), of(&self.weight, side));
        let inner = self.from.features;
        let at = |i: usize| if self.turned { i * self.to.features + feature } else { feature * inner + i };
        (0..inner).map(|i| x[self.from.flat[row * inner + i] as usize] * w[at(i)]).sum()
    }

    fn every(&self, side: Which) -> Vec<f64> {
        let (inner, outer) = (self.from.features, self.to.features);
        let (x, w) = (self.from.gather(of(&self.input, side)), of(&self.weight, side));
        let mut made = vec![0.0; self.to.flat.len()];
        for (row, out) in x.chunks_exact(inner).zip(made.chunks_exact_mut(outer)) {
            if self.turned {
                for (x, w) in row.iter().zip(w.chunks_exact(outer)) {
                    out.iter_mut().zip(w).for_each(|(out, w)| *out += x * w);
                }
            } else {
                for (out, w) in out.iter_mut().zip(w.chunks_exact(inner)) {
                    *out = row.iter().zip(w).map(|(x, w)| x * w).sum();
                }
            }
        }
        made
    }
}

impl Op for Linear {
    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
        let mut learned = Vec::new();
        let outs = Rows::all(&site.out.dims);
        for &parameter in &site.parameters {
            let &[rows, columns] = &site.scene.entries()[parameter].dims[..] else { continue };
            for &input in &site.before {
                for from in Rows::all(&site.scene.entries()[input].dims) {
                    for to in &outs {
                        for turned in [false, true] {
                            let (outer, inner) = if turned { (columns, rows) } else { (rows, columns) };
                            let fits = from.rows == to.rows && from.features == inner && to.features == outer;
                            if fits && from.rows * inner * outer <= MOST_WORK {
                                let Some((input_values, weight)) = site.load(input).zip(site.load(parameter)) else { continue };
                                let product = Product { input: input_values, weight, from: from.clone(), to: to.clone(), turned };
                                learned.extend(made(site, input, parameter, product));
                            }
                        }
                    }
                }
            }
        }
        learned
    }
}

/// Pairs of rows compared before everything is computed: their difference has no bias.
const TRIED: usize = 24;

fn made(site: &Site<'_>, input: usize, parameter: usize, product: Product) -> Option<Learned> {
    let rows = product.to.rows;
    let (mut error, mut energy) = (0.0, 0.0);
    for i in 0..TRIED {
        let (row, other, feature) = ((i * 7919) % rows, (i * 7919 + 1) % rows, (i * 104_729) % product.to.features);
        let wanted = |row: usize| site.out.reference[product.to.flat[row * product.to.features + feature] as usize];
        let one = |row: usize| product.one(Which::Reference, row, feature);
        let (made, wanted) = if rows > 1 { (one(row) - one(other), wanted(row) - wanted(other)) } else { (one(row), wanted(row)) };
        error += (made - wanted) * (made - wanted);
        energy += wanted * wanted;
    }
    if energy == 0.0 || error > (4.0 * site.floor[1]).powi(2) * energy {
        return None;
    }
    let bias = bias(site, &product);
    let name = |at: usize| site.scene.entries()[at].name.as_str();
    let with = if bias.is_some() { " + bias" } else { "" };
    let with_bias = |times: f64| -> Box<dyn Fn(Which) -> Option<Vec<f64>>> {
        let (product, bias) = (product.clone(), bias.clone());
        Box::new(move |side| {
            let mut made = product.every(side);
            if let Some(bias) = &bias {
                made.iter_mut().enumerate().for_each(|(at, made)| *made += times * bias[at % bias.len()]);
            }
            Some(product.to.scatter(&made))
        })
    };
    let mut variants = Vec::new();
    if bias.is_some() {
        for (times, what) in [(0.0, "no bias"), (2.0, "the bias twice")] {
            variants.push(Variant {
                kind: "offset",
                text: format!("{} x {} with {what}", name(input), name(parameter)),
                details: serde_json::json!({"candidate": what, "weight": name(parameter)}),
                fitted: false,
                predict: with_bias(times),
            });
        }
    }
    Some(Learned {
        formula: format!("{} x {}{with}", name(input), name(parameter)),
        inputs: vec![input, parameter],
        terms: product.from.features,
        looseness: 2.0,
        off: [0.0; 4],
        predict: with_bias(1.0),
        variants,
    })
}

/// What the reference has beyond the product, a feature each; nothing when it is rounding or there are too few rows to tell.
fn bias(site: &Site<'_>, product: &Product) -> Option<Vec<f64>> {
    let Rows { rows, features, .. } = product.to;
    if rows < 2 {
        return None;
    }
    let made = product.every(Which::Reference);
    let wanted = product.to.gather(&site.out.reference);
    let mut bias = vec![0.0; features];
    for (made, wanted) in made.chunks_exact(features).zip(wanted.chunks_exact(features)) {
        bias.iter_mut().zip(wanted.iter().zip(made)).for_each(|(bias, (wanted, made))| *bias += (wanted - made) / rows as f64);
    }
    (rms(&bias) > site.floor[0] * rms(&wanted)).then_some(bias)
}
