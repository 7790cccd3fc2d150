//! Formulas that networks are made of, each found by its values in the reference.

mod attention;
mod blend;
mod broadcast;
mod coarse;
mod concat;
mod copy;
mod linear;
mod lookup;
mod modulate;
mod norm;
mod rope;
mod softmax;
mod sums;
mod unary;

pub(super) use coarse::nearest;

use super::Site;
use std::borrow::Cow;
use twinscope_compare::{layout::Which, noise::Measures};

/// Which rows of an output are made, a row being a run along its last dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Picked<'a> {
    /// The first, and how many.
    Run(usize, usize),
    These(&'a [usize]),
}

impl Picked<'_> {
    pub(crate) fn count(self) -> usize {
        match self {
            Picked::Run(_, count) => count,
            Picked::These(rows) => rows.len(),
        }
    }

    pub(crate) fn rows(self) -> impl Iterator<Item = usize> {
        (0..self.count()).map(move |nth| match self {
            Picked::Run(first, _) => first + nth,
            Picked::These(rows) => rows[nth],
        })
    }

    /// These rows of values that lie as the output does.
    pub(crate) fn of<'v>(self, values: &'v [f64], width: usize) -> Cow<'v, [f64]> {
        match self {
            Picked::Run(first, count) => Cow::Borrowed(&values[first * width..][..count * width]),
            Picked::These(rows) => Cow::Owned(
                rows.iter()
                    .flat_map(|row| &values[row * width..][..width])
                    .copied()
                    .collect(),
            ),
        }
    }
}

/// What a formula makes of one side's inputs.
pub(crate) type Predict = Box<dyn Fn(Which, Picked<'_>) -> Option<Vec<f64>>>;

/// A formula with its inputs and its numbers.
pub(crate) struct Learned {
    /// `silu(0_gate) * 0_up`
    pub(crate) formula: String,
    pub(crate) inputs: Vec<usize>,
    /// How many products an output sums, for the noise.
    pub(crate) terms: usize,
    /// How many products everything takes, where that is many more than there are values.
    pub(crate) work: usize,
    /// Ops whose inner roundings are amplified (a softmax) are allowed more floors than one.
    pub(crate) looseness: f64,
    /// The reference's own distance from the formula, and whether that is only of some rows; set when it is believed.
    pub(crate) off: Measures,
    pub(crate) on_some_rows: bool,
    /// It makes the candidate of values of the reference, which were rounded to the reference's dtype.
    pub(crate) borrows: bool,
    pub(crate) predict: Predict,
    /// What else it might have been.
    pub(crate) variants: Vec<Variant>,
    /// Of many rows those that tell the variants apart best, where the op knows.
    pub(crate) telling: Option<Vec<usize>>,
}

impl Learned {
    /// Whether a distance is what rounding does in this op.
    pub(crate) fn makes(&self, off: &Measures, floor: &Measures) -> bool {
        off.iter()
            .zip(floor)
            .all(|(off, floor)| *off <= self.looseness * floor)
    }
}

impl std::fmt::Debug for Learned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Learned({}, off {:?})", self.formula, self.off)
    }
}

/// Another formula for the same inputs: a fault that has a name.
pub(crate) struct Variant {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    pub(crate) details: serde_json::Value,
    /// One of its numbers was fitted to the candidate, which makes it follow to begin with.
    pub(crate) fitted: bool,
    pub(crate) predict: Predict,
}

pub(super) trait Op: Sync {
    /// Every way this op could have made the reference, roughly checked.
    fn learn(&self, site: &Site<'_>) -> Vec<Learned>;

    /// Believed only where nothing else is found.
    fn is_last_resort(&self) -> bool {
        false
    }

    /// Makes a row of other rows of its inputs, or by where it is: not to be seen in some rows.
    fn mixes_rows(&self) -> bool {
        false
    }
}

/// The simple ones first.
pub(super) const ALL: &[&dyn Op] = &[
    &copy::Copy,
    &concat::Concat,
    &sums::Sums,
    &unary::Unary,
    &norm::Norm,
    &rope::Rope,
    &softmax::Softmax,
    &attention::Probabilities,
    &attention::Products,
    &attention::Mixture,
    &broadcast::Broadcast,
    &modulate::Modulate,
    &linear::Linear,
    &blend::Blend,
    &lookup::Lookup,
];

/// Flat indices that stand for all, evenly and without a period.
pub(super) fn sample(count: usize) -> Vec<usize> {
    const MOST: usize = 96;
    if count <= MOST {
        return (0..count).collect();
    }
    (0..MOST).map(|i| (i * 2_654_435_761) % count).collect()
}

/// Whether values are near enough on a sample to look at all of them: relative to their own size, generously.
fn roughly(
    made: impl Iterator<Item = f64>,
    wanted: impl Iterator<Item = f64> + Clone,
    tolerance: f64,
) -> bool {
    let energy: f64 = wanted
        .clone()
        .filter(|wanted| wanted.is_finite())
        .map(|wanted| wanted * wanted)
        .sum();
    energy > 0.0 && is_near(made, wanted, tolerance * tolerance * energy)
}

/// Whether the squares of what values are off by stay within a sum.
fn is_near(made: impl Iterator<Item = f64>, wanted: impl Iterator<Item = f64>, most: f64) -> bool {
    let mut error = 0.0;
    for (made, wanted) in made.zip(wanted) {
        if !made.is_finite() || !wanted.is_finite() {
            if made.to_bits() == wanted.to_bits() {
                continue;
            }
            return false;
        }
        error += (made - wanted) * (made - wanted);
        // Most of what is tried is wrong from the start.
        if error > most {
            return false;
        }
    }
    true
}
