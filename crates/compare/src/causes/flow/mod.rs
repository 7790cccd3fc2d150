//! Which divergences are a pair's own: the op is learned from the reference and repeated from the candidate's own recorded inputs.
//!
//! Names say little about what was computed, so the formula is found by the values: for each pair that differs, the tensors recorded before
//! it are tried as inputs of the ops in [`ops`], and the formula that reproduces the *reference* to rounding is believed. Applied to the
//! candidate's inputs it says what the candidate should be. When it is, the error came with the inputs: *inherited*, or, where
//! those agree, amplified rounding. When it is not, the op itself differs: *own*, however small the difference is beside what came from upstream, and
//! the causes are looked for between what should be and what is.

mod counterfactual;
mod ops;
pub(super) mod rows;
#[cfg(test)]
mod tests;

use super::{Loaded, Scene, array::rms, case::splitmix};
use crate::{
    layout::Which,
    noise::{Measures, Rowwise, floor_unit},
    verdict::Verdict,
};
use rayon::prelude::*;
use std::sync::Arc;

pub(super) use counterfactual::Confirmed;
pub(super) use ops::{Learned, Picked, Predict};

/// What a pair's formula says of it.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) formula: String,
    /// Pairs it was computed from.
    pub(super) inputs: Vec<usize>,
    /// What the candidate should be, by its own inputs; empty when it is that and follows no other formula.
    pub(super) expected: Vec<f64>,
    /// How far it is from that, and how far rounding can be.
    pub(super) off: Measures,
    pub(super) bound: Measures,
    /// An alternative formula that the candidate follows and the reference does not.
    pub(super) confirmed: Option<Confirmed>,
}

impl Flow {
    /// The candidate is what its inputs imply.
    pub(super) fn follows(&self) -> bool {
        self.off.iter().zip(self.bound).all(|(off, bound)| *off <= bound)
    }
}

/// Units of roundoff that one op's own rounding stays below, by the four measures: an op rounds its output once and a step or two inside.
const OWN: Measures = [3.0, 4.0, 8.0, 32.0];

/// How much more than the reference's own distance from the formula the candidate's may be: two samples of one noise.
const MORE: f64 = 3.0;

/// What rounding can do in one op with an output of this dtype that sums `terms` products.
fn own_floor(dtype: twinscope_tensor::DType, terms: usize) -> Option<Measures> {
    let unit = floor_unit(dtype)?;
    let summing = (terms as f64).sqrt() * unit.min(2f64.powi(-24));
    Some(OWN.map(|units| units * (unit + summing)))
}

/// A pair whose op is to be found.
pub(super) struct Site<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) pair: usize,
    pub(super) out: Arc<Loaded>,
    /// Computed tensors before it that may be its inputs, the nearest first.
    pub(super) before: Vec<usize>,
    /// Parameters, wherever they are recorded.
    pub(super) parameters: Vec<usize>,
    pub(super) floor: Measures,
}

/// How far back inputs are looked for: more than the tensors of one layer, so that its residual is still found.
const REACH: usize = 48;

impl<'a> Site<'a> {
    fn new(scene: &'a Scene<'a>, pair: usize) -> Option<Self> {
        let entry = &scene.entries()[pair];
        if entry.parameter {
            return None;
        }
        let floor = own_floor(entry.dtypes[0], 0)?;
        let out = scene.load(pair)?;
        if out.reference.iter().any(|value| value.is_nan()) || !varies(&out.reference) {
            return None;
        }
        let computed = |at: &usize| !scene.entries()[*at].parameter;
        let (before, parameters) = match &entry.inputs {
            Some(inputs) => {
                let known: Vec<usize> = inputs.iter().copied().filter(|at| *at < scene.entries().len()).collect();
                (between(scene, pair, &known), known.into_iter().filter(|at| !computed(at)).collect())
            }
            None => {
                let before = (0..pair).rev().filter(computed).take(REACH).collect();
                (before, (0..scene.entries().len()).filter(|at| !computed(at)).collect())
            }
        };
        Some(Self { scene, pair, out, before, parameters, floor })
    }

    pub(super) fn load(&self, pair: usize) -> Option<Arc<Loaded>> {
        self.scene.load(pair)
    }

    /// How long a row of the output is, and how many there are.
    pub(super) fn width(&self) -> usize {
        self.out.dims.last().copied().unwrap_or(1).max(1)
    }

    pub(super) fn rows(&self) -> usize {
        self.out.reference.len() / self.width()
    }

    /// Rows that stand for all: all of a small output, of a large one [`SAMPLE`] values' worth, one from each stretch of equal length.
    pub(super) fn sample(&self) -> Vec<usize> {
        let (rows, count) = (self.rows(), (SAMPLE / self.width()).max(LEAST_ROWS));
        if self.out.reference.len() <= WHOLE || rows <= count {
            return (0..rows).collect();
        }
        let one = |nth: usize| {
            let (start, end) = (nth * rows / count, (nth + 1) * rows / count);
            start + (splitmix(nth as u64) % (end - start) as u64) as usize
        };
        (0..count).map(one).collect()
    }

    /// How far a formula is from what one side is, over some rows, which are then looked at as a matrix.
    fn off_at(&self, predict: &Predict, side: Which, rows: &[usize]) -> Option<Measures> {
        let made = predict(side, Picked::These(rows))?;
        let wanted = Picked::These(rows).of(of(&self.out, side), self.width());
        Some(super::score::measures(&[rows.len(), self.width()], &made, &wanted))
    }

    /// The same over everything, a block of rows at a time: no more than that is ever made.
    fn off(&self, predict: &Predict, side: Which) -> Option<Measures> {
        let wanted = of(&self.out, side);
        let (rows, width) = (self.rows(), self.width());
        let block = (BLOCK / width).max(1);
        let mut state = Rowwise::new(&self.out.dims, rms(wanted));
        for first in (0..rows).step_by(block) {
            let count = block.min(rows - first);
            let made = predict(side, Picked::Run(first, count))?;
            state.add(first, &made, &wanted[first * width..][..count * width]);
        }
        Some(state.measures())
    }

    fn all(&self) -> Picked<'static> {
        Picked::Run(0, self.rows())
    }
}

/// Values of an output up to which all of it is looked at wherever a formula is tried, and of a larger one how many.
const WHOLE: usize = 1 << 17;
const SAMPLE: usize = 1 << 16;
/// Rows of it at least.
const LEAST_ROWS: usize = 32;
/// Values that are made at once, so that they stay in the processor's cache.
const BLOCK: usize = 1 << 15;

/// The tensors that a pair is said to be computed from, and those recorded since that were computed from nothing else: frameworks say that a
/// projection takes the queries where the probabilities lie between. The nearest first.
fn between(scene: &Scene<'_>, pair: usize, inputs: &[usize]) -> Vec<usize> {
    let entries = scene.entries();
    let mut known: Vec<usize> = inputs.iter().copied().filter(|at| *at < pair && !entries[*at].parameter).collect();
    let first = known.iter().copied().min().unwrap_or(pair).max(pair.saturating_sub(REACH));
    for at in first..pair {
        let made =
            |inputs: &Vec<usize>| !inputs.is_empty() && inputs.iter().all(|input| entries[*input].parameter || known.contains(input));
        if !entries[at].parameter && !known.contains(&at) && entries[at].inputs.as_ref().is_some_and(made) {
            known.push(at);
        }
    }
    known.sort_unstable_by(|a, b| b.cmp(a));
    known
}

/// Fewer different values than this could be made by many formulas: a constant is a multiple of every other one.
const FEWEST: usize = 16;

fn varies(values: &[f64]) -> bool {
    let mut seen: Vec<u64> = values.iter().step_by((values.len() / 512).max(1)).map(|value| value.to_bits()).collect();
    seen.sort_unstable();
    seen.dedup();
    seen.len() >= FEWEST
}

/// One side's values of a pair.
pub(super) fn of(loaded: &Loaded, side: Which) -> &[f64] {
    match side {
        Which::Reference => &loaded.reference,
        Which::Candidate => &loaded.candidate,
    }
}

/// Values that are looked at in all before later pairs are judged by size alone: a bound on time, far above what people record to debug.
const MOST_VALUES: usize = 1 << 26;

/// The formulas of every pair that differs.
pub(super) fn every(scene: &Scene<'_>) -> Vec<Option<Flow>> {
    let mut seen = 0;
    let wanted: Vec<bool> = (scene.entries().iter())
        .map(|entry| {
            let differs = matches!(entry.verdict, Verdict::Rounding | Verdict::Diverged);
            if differs {
                seen += entry.dims.iter().product::<usize>();
            }
            differs && seen <= MOST_VALUES
        })
        .collect();
    wanted.par_iter().enumerate().map(|(pair, wanted)| wanted.then(|| of_pair(scene, pair)).flatten()).collect()
}

/// Finds what a pair was computed by and whether the candidate follows it; `None` when no formula makes the reference.
pub(super) fn of_pair(scene: &Scene<'_>, pair: usize) -> Option<Flow> {
    let site = Site::new(scene, pair)?;
    scene.tell_capped(pair, counterfactual::may_be_capped(&site));
    let entry = &scene.entries()[pair];
    let mut chosen: Option<(Learned, Measures, Measures)> = None;
    // One tensor under two names makes two formulas of the reference; the candidate, where they differ, says which it is.
    for learned in learn(&site) {
        let floor = own_floor(entry.dtypes[1], learned.terms)?;
        let bound: Measures = std::array::from_fn(|i| (learned.looseness * floor[i]).max(MORE * learned.off[i]));
        let Some(off) = site.off(&learned.predict, Which::Candidate) else { continue };
        let follows = off.iter().zip(bound).all(|(off, bound)| *off <= bound);
        if follows || chosen.is_none() {
            chosen = Some((learned, off, bound));
        }
        if follows {
            break;
        }
    }
    let (learned, off, bound) = chosen?;
    let confirmed = counterfactual::confirm(&site, &learned);
    let mut flow = Flow { formula: learned.formula, inputs: learned.inputs, expected: Vec::new(), off, bound, confirmed };
    if !flow.follows() || flow.confirmed.is_some() {
        flow.expected = (learned.predict)(Which::Candidate, site.all())?;
    }
    Some(flow)
}

/// A softcap that the candidate has and the reference has not, where the op is not known.
pub(super) fn capped(scene: &Scene<'_>, pair: usize) -> Option<Confirmed> {
    // Asked of pairs that were read before; reading them again takes longer than looking.
    if scene.may_be_capped(pair) == Some(false) {
        return None;
    }
    counterfactual::capped(&Site::new(scene, pair)?)
}

/// The formula nearest to the reference, among those that are near enough, and behind it those that are as near: what is recorded under
/// several names.
fn learn(site: &Site<'_>) -> Vec<Learned> {
    let mut near: Vec<Learned> = Vec::new();
    let mut best: Option<usize> = None;
    let (dtype, some) = (site.scene.entries()[site.pair].dtypes[0], site.sample());
    for op in ops::ALL {
        if op.is_last_resort() && best.is_some() {
            break;
        }
        let mut of_op: Option<usize> = None;
        for mut learned in op.learn(site) {
            let Some(floor) = own_floor(dtype, learned.terms) else { continue };
            // Of a large output a part says that it is not this; all of it, that it is.
            if some.len() < site.rows() {
                let at_some = site.off_at(&learned.predict, Which::Reference, &some);
                if at_some.is_none_or(|off| off[0] > 2.0 * learned.looseness * floor[0]) {
                    continue;
                }
            }
            let Some(off) = site.off(&learned.predict, Which::Reference) else { continue };
            learned.off = off;
            if !learned.off.iter().zip(floor).all(|(off, floor)| *off <= learned.looseness * floor) {
                continue;
            }
            near.push(learned);
            // Of one op's own variants, two kinds of gelu say, the nearest.
            let nearest = |at: usize| near[near.len() - 1].off[0] < near[at].off[0];
            if of_op.is_none_or(nearest) {
                of_op = Some(near.len() - 1);
            }
        }
        let nearer = |at: &usize| best.is_none_or(|best| near[*at].off[0] < NEARER * near[best].off[0]);
        if let Some(at) = of_op.filter(nearer) {
            best = Some(at);
        }
        // Nothing can be nearer than exact.
        if best.is_some_and(|best| near[best].off[0] == 0.0) {
            break;
        }
    }
    let Some(best) = best else { return Vec::new() };
    near.swap(0, best);
    let as_near = near[0].off[0];
    near.retain(|learned| learned.off[0] <= as_near);
    near
}

/// A later, more elaborate formula must be this much nearer than a simpler one.
const NEARER: f64 = 0.7;
