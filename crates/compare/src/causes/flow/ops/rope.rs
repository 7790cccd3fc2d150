//! Rotary positions: pairs of channels turned by an angle that depends on the position and the pair alone.

use super::{Learned, Op, Picked, Predict, Variant, roughly};
use crate::causes::{
    Loaded,
    array::Axis,
    flow::{Site, of},
};
use std::sync::Arc;

pub(super) struct Rope;

/// Which channels turn together.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pairing {
    /// `i` with `i + n/2`
    Halves,
    /// `2i` with `2i + 1`
    Neighbours,
}

/// The first `turned` channels of each head turn, pair by pair; the others pass through.
#[derive(Clone, Copy, Debug)]
struct Plan {
    pairing: Pairing,
    channels: usize,
    turned: usize,
    /// Of the positions.
    axis: Axis,
}

impl Plan {
    fn channels_of(self, pair: usize) -> (usize, usize) {
        match self.pairing {
            Pairing::Halves => (pair, pair + self.turned / 2),
            Pairing::Neighbours => (2 * pair, 2 * pair + 1),
        }
    }

    /// Cosine and sine for every position and pair: of the sum of `out * conj(in)` over the heads.
    fn turns(self, from: &[f64], to: &[f64]) -> Vec<(f64, f64)> {
        let pairs = self.turned / 2;
        let mut turns = vec![(0.0, 0.0); self.axis.along * pairs];
        for head in 0..from.len() / self.channels {
            let base = head * self.channels;
            let position = self.axis.index(base);
            for pair in 0..pairs {
                let (a, b) = self.channels_of(pair);
                let (x, y, u, v) = (from[base + a], from[base + b], to[base + a], to[base + b]);
                let turn = &mut turns[position * pairs + pair];
                turn.0 += u * x + v * y;
                turn.1 += v * x - u * y;
            }
        }
        let unit = |(re, im): &(f64, f64)| {
            let size = re.hypot(*im);
            if size > 0.0 { (re / size, im / size) } else { (1.0, 0.0) }
        };
        turns.iter().map(unit).collect()
    }

    /// Some heads of an input, turned.
    fn apply(self, turns: &[(f64, f64)], from: &[f64], picked: Picked<'_>) -> Vec<f64> {
        let pairs = self.turned / 2;
        let mut to = picked.of(from, self.channels).into_owned();
        for (head, to) in picked.rows().zip(to.chunks_exact_mut(self.channels)) {
            let position = self.axis.index(head * self.channels);
            for (pair, (cos, sin)) in turns[position * pairs..][..pairs].iter().enumerate() {
                let (a, b) = self.channels_of(pair);
                (to[a], to[b]) = (cos * to[a] - sin * to[b], sin * to[a] + cos * to[b]);
            }
        }
        to
    }
}

impl Op for Rope {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
        let dims = site.dims();
        let Some(&channels) = dims.last().filter(|channels| **channels >= 4 && **channels % 2 == 0) else { return Vec::new() };
        // One head at each position could be turned to anything of its length.
        let heads = site.elements() / channels;
        // One position alone, as where one token is decoded, has one angle a pair for all heads.
        let alone = (0..dims.len() - 1).rev().find(|axis| dims[*axis] == 1 && heads >= LEAST_HEADS);
        let axes: Vec<usize> = (0..dims.len() - 1).filter(|axis| dims[*axis] > 1 && heads >= 2 * dims[*axis]).chain(alone).collect();
        if axes.is_empty() {
            return Vec::new();
        }
        let Some(first) = site.scene.beginning(site.pair, FEW_ROWS * channels) else { return Vec::new() };
        let lengths = norms(&first, channels);
        let mut learned = Vec::new();
        for &input in &site.before {
            if site.scene.entries()[input].dims != dims {
                continue;
            }
            let keeps_lengths = |rows: usize| {
                let first = site.scene.beginning(input, rows * channels);
                first.is_some_and(|first| roughly(norms(&first, channels).into_iter(), lengths.iter().copied(), site.floor[1]))
            };
            // A few heads rule out nearly every input.
            if !keeps_lengths(FEWEST_ROWS) || !keeps_lengths(FEW_ROWS) {
                continue;
            }
            let Some(loaded) = site.load(input) else { continue };
            for axis in axes.iter().copied() {
                for pairing in [Pairing::Halves, Pairing::Neighbours] {
                    for turned in [channels, channels / 2, channels / 4].into_iter().filter(|turned| *turned >= 2 && turned % 2 == 0) {
                        let plan = Plan { pairing, channels, turned, axis: Axis::of(dims, axis) };
                        learned.extend(made(site, input, &loaded, plan));
                    }
                }
            }
        }
        learned
    }
}

/// Heads that turn by the same angles tell a rotation from any other change.
const LEAST_HEADS: usize = 2;

/// Heads whose lengths are compared before all of them are read.
const FEW_ROWS: usize = 64;
const FEWEST_ROWS: usize = 4;

/// The length of every head, which rotation keeps.
fn norms(values: &[f64], channels: usize) -> Vec<f64> {
    values.chunks_exact(channels).map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt()).collect()
}

fn made(site: &Site<'_>, input: usize, loaded: &Arc<Loaded>, plan: Plan) -> Option<Learned> {
    let turns = plan.turns(&loaded.reference, &site.out.reference);
    let some: Vec<usize> = site.sample();
    let made = plan.apply(&turns, &loaded.reference, Picked::These(&some));
    let wanted = Picked::These(&some).of(&site.out.reference, plan.channels);
    if !roughly(made.into_iter(), wanted.iter().copied(), site.floor[1]) {
        return None;
    }
    let pairing = if plan.pairing == Pairing::Halves { "halves" } else { "neighbours" };
    let name = &site.scene.entries()[input].name;
    let over = |plan: Plan, turns: Vec<(f64, f64)>| -> Predict {
        let loaded = loaded.clone();
        Box::new(move |side, picked| Some(plan.apply(&turns, of(&loaded, side), picked)))
    };
    let variant = |what: &str, value: &str, plan: Plan, turns: Vec<(f64, f64)>| Variant {
        kind: "rotated",
        text: format!("{name} is {what}"),
        details: serde_json::json!({"pairing": pairing, "parameter": "turn", "value": value, "input": name}),
        fitted: false,
        predict: over(plan, turns),
    };
    let other = if plan.pairing == Pairing::Halves { Pairing::Neighbours } else { Pairing::Halves };
    let pairs = if other == Pairing::Halves { "halves, channel i with i + n/2" } else { "neighbours, channel 2i with 2i + 1" };
    let variants = vec![
        variant(
            &format!("turned in pairs of {pairs}, where the reference turns {pairing}"),
            "pairing",
            Plan { pairing: other, ..plan },
            turns.clone(),
        ),
        variant("turned the other way", "reversed", plan, turns.iter().map(|(cos, sin)| (*cos, -sin)).collect()),
        variant("not turned by its position (rope is missing)", "none", plan, vec![(1.0, 0.0); turns.len()]),
        variant("turned twice", "twice", plan, turns.iter().map(|(cos, sin)| (cos * cos - sin * sin, 2.0 * cos * sin)).collect()),
    ];
    Some(Learned {
        formula: format!("rope of {name} ({pairing})"),
        inputs: vec![input],
        terms: 2,
        work: 0,
        looseness: 1.5,
        off: [0.0; 4],
        on_some_rows: false,
        predict: over(plan, turns),
        variants,
        telling: None,
    })
}
