//! Formulas that were found, and the search for them: every op is tried, the nearest formula is believed.

use crate::{
    Change, Measures, Out, Run, Site, attention, blend, broadcast, concat, copy, linear, lookup,
    modulate, norm, rope, site::own_floor, softmax, sums, unary,
};
use std::borrow::Cow;
use twinscope_tensor::formula::Formula;

/// Which rows of an output are made, a row being a run along its last dimension.
#[derive(Clone, Copy, Debug)]
pub enum Picked<'a> {
    /// The first, and how many.
    Run(usize, usize),
    These(&'a [usize]),
}

impl Picked<'_> {
    pub fn count(self) -> usize {
        match self {
            Picked::Run(_, count) => count,
            Picked::These(rows) => rows.len(),
        }
    }

    pub fn rows(self) -> impl Iterator<Item = usize> {
        (0..self.count()).map(move |nth| match self {
            Picked::Run(first, _) => first + nth,
            Picked::These(rows) => rows[nth],
        })
    }

    /// These rows of values that lie as the output does.
    pub fn of<'v>(self, values: &'v [f64], width: usize) -> Cow<'v, [f64]> {
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

/// What a formula makes of a run's inputs: any run that has the same tensors.
pub type Predict = Box<dyn Fn(&dyn Run, Picked<'_>) -> Option<Vec<f64>> + Send + Sync>;

/// What else might have made the same tensor of some run: faults that have a name. Some are fitted to that run's values, or left out where a
/// few of those rule them out.
pub type Alternatives<'a> = Box<dyn Fn(&Out<'_>) -> Vec<Alternative> + 'a>;

/// A number that depends on the run a formula is applied to.
pub type OnRun = Box<dyn Fn(&dyn Run) -> f64>;

/// A formula with its inputs and its numbers.
pub struct Learned<'a> {
    pub formula: Formula,
    pub inputs: Vec<usize>,
    /// How many products an output sums, for the noise.
    pub terms: usize,
    /// How many products everything takes, where that is many more than there are values.
    pub work: usize,
    /// Ops whose inner roundings are amplified (a softmax) are allowed more floors than one.
    pub looseness: f64,
    /// The same for another run, where it depends on the values: at least [`Learned::looseness`].
    pub looseness_on: Option<OnRun>,
    /// The tensor's own distance from the formula, and whether that is only of some rows; set when it is believed.
    pub off: Measures,
    pub on_some_rows: bool,
    /// It predicts from values of the run it was learned on, which were rounded to that run's dtype.
    pub borrows: bool,
    pub predict: Predict,
    /// `None` for ops that have none.
    pub alternatives: Option<Alternatives<'a>>,
    /// Of many rows those that tell the alternatives apart best, where the op knows.
    pub telling: Option<Vec<usize>>,
}

impl<'a> Learned<'a> {
    /// Of an op that sums nothing and has no alternatives.
    pub fn new(formula: Formula, inputs: Vec<usize>, predict: Predict) -> Self {
        Self {
            formula,
            inputs,
            terms: 0,
            work: 0,
            looseness: 1.0,
            looseness_on: None,
            off: [0.0; 4],
            on_some_rows: false,
            borrows: false,
            predict,
            alternatives: None,
            telling: None,
        }
    }

    /// Whether a distance is what rounding does in this op.
    pub fn makes(&self, off: &Measures, floor: &Measures) -> bool {
        off.iter()
            .zip(floor)
            .all(|(off, floor)| *off <= self.looseness * floor)
    }
}

impl std::fmt::Debug for Learned<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Learned({:?}, off {:?})", self.formula, self.off)
    }
}

/// Another formula for the same inputs.
pub struct Alternative {
    pub change: Change,
    /// One of its numbers was fitted to the run it is offered for, which makes that run follow to begin with.
    pub fitted: bool,
    pub predict: Predict,
}

impl std::fmt::Debug for Alternative {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Alternative({:?})", self.change)
    }
}

pub trait Op: Sync {
    /// Every way this op could have made the tensor, roughly checked.
    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>>;

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
pub const ALL: &[&dyn Op] = &[
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

/// An op, and where it is looked for.
pub type Try<'s, 'a> = (&'static dyn Op, &'s Site<'a>);

/// Every op at one place.
pub fn every_op<'s, 'a>(site: &'s Site<'a>) -> Vec<Try<'s, 'a>> {
    ALL.iter().map(|op| (*op, site)).collect()
}

/// What a formula is believed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    SomeRows,
    AllRows,
}

/// The formula nearest to the tensor, among those that are near enough, and behind it those that are as near: what is recorded under
/// several names.
pub fn learn<'a>(site: &Site<'a>, tries: &[Try<'_, 'a>], trust: Trust) -> Vec<Learned<'a>> {
    let mut near: Vec<Learned<'a>> = Vec::new();
    let mut best: Option<usize> = None;
    let dtype = site.dtype();
    for (op, place) in tries {
        if op.is_last_resort() && best.is_some() {
            break;
        }
        let mut of_op: Option<usize> = None;
        for mut learned in op.learn(place) {
            let Some(floor) = own_floor(dtype, learned.terms) else {
                continue;
            };
            // Of a large output a part says that it is not this.
            let some = site.enough(&learned);
            learned.on_some_rows = some.len() < site.rows();
            if learned.on_some_rows {
                let Some(off) = site.off_at(&learned, &site.out, &some) else {
                    continue;
                };
                learned.off = off;
                if off[0] > 2.0 * learned.looseness * floor[0] {
                    continue;
                }
            }
            if !learned.on_some_rows || trust == Trust::AllRows {
                let Some(off) = site.off(&learned, &site.out) else {
                    continue;
                };
                (learned.off, learned.on_some_rows) = (off, false);
            }
            if !learned.makes(&learned.off, &floor) {
                continue;
            }
            near.push(learned);
            // Of one op's own variants, two kinds of gelu say, the nearest.
            let nearest = |at: usize| near[near.len() - 1].off[0] < near[at].off[0];
            if of_op.is_none_or(nearest) {
                of_op = Some(near.len() - 1);
            }
        }
        let nearer =
            |at: &usize| best.is_none_or(|best| near[*at].off[0] < NEARER * near[best].off[0]);
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

/// Whether values are near enough on a sample to look at all of them: relative to their own size, generously.
pub(crate) fn roughly(
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
pub(crate) fn is_near(
    made: impl Iterator<Item = f64>,
    wanted: impl Iterator<Item = f64>,
    most: f64,
) -> bool {
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
