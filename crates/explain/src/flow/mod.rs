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

use super::{
    Loaded, Scene, array::energy, case::splitmix, guarded, recorded::Recorded, scene::MOST_ELEMENTS,
};
use rayon::prelude::*;
use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};
use twinscope_compare::{
    layout::Which,
    noise::{Measures, Rowwise, floor_unit},
    verdict::Verdict,
};

pub(super) use counterfactual::Confirmed;
pub(super) use ops::{Learned, Picked, Predict};

/// What a pair's formula says of it.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) formula: String,
    /// Pairs it was computed from.
    pub(super) inputs: Vec<usize>,
    /// What the candidate should be, by its own inputs; empty when it is that and follows no other formula, and where all of it is too much.
    pub(super) expected: Vec<f64>,
    /// How far it is from that, and how far rounding can be.
    pub(super) off: Measures,
    pub(super) bound: Measures,
    /// An alternative formula that the candidate follows and the reference does not.
    pub(super) confirmed: Option<Confirmed>,
}

impl Flow {
    /// Without values, which are those of some rows.
    fn of_some(self) -> Self {
        let confirmed = self.confirmed.map(|confirmed| Confirmed {
            predicted: Vec::new(),
            ..confirmed
        });
        Self {
            expected: Vec::new(),
            confirmed,
            ..self
        }
    }

    /// The candidate is what its inputs imply.
    pub(super) fn follows(&self) -> bool {
        within(&self.off, &self.bound)
    }
}

fn within(off: &Measures, bound: &Measures) -> bool {
    off.iter().zip(bound).all(|(off, bound)| off <= bound)
}

/// Units of roundoff that one op's own rounding stays below, by the four measures: an op rounds its output once and a step or two inside.
const OWN: Measures = [3.0, 4.0, 8.0, 32.0];

/// How much more than the reference's own distance from the formula the candidate's may be: two samples of one noise.
const MORE: f64 = 3.0;

/// Formulas are computed in f64, in another order than the run and with numbers that were fitted: of results in f64 they make no more than this many
/// digits.
const COMPUTED: f64 = 1.0 / (1u64 << 42) as f64;

/// What rounding can do in one op with an output of this dtype that sums `terms` products.
fn own_floor(dtype: twinscope_tensor::DType, terms: usize) -> Option<Measures> {
    let unit = floor_unit(dtype)?.max(COMPUTED);
    let summing = (terms as f64).sqrt() * unit.min(2f64.powi(-24));
    Some(OWN.map(|units| units * (unit + summing)))
}

/// A pair whose op is to be found.
#[derive(Clone)]
pub(super) struct Site<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) pair: usize,
    pub(super) out: Out<'a>,
    /// Computed tensors before it that may be its inputs, the nearest first.
    pub(super) before: Vec<usize>,
    /// Parameters, wherever they are recorded.
    pub(super) parameters: Vec<usize>,
    pub(super) floor: Measures,
}

/// The values of a pair, read when they are looked at: most of what is tried is ruled out by a few of them.
#[derive(Clone)]
pub(super) struct Out<'a> {
    scene: &'a Scene<'a>,
    pair: usize,
    loaded: Arc<OnceLock<Arc<Loaded>>>,
    in_part: Arc<OnceLock<Arc<Recorded>>>,
}

impl Out<'_> {
    /// To be read in part, where it is large and was not read yet.
    pub(super) fn recorded(&self) -> &Arc<Recorded> {
        self.in_part.get_or_init(|| match self.loaded.get() {
            Some(loaded) => Arc::new(Recorded::Read(loaded.clone())),
            None => Arc::new(
                self.scene
                    .recorded(self.pair)
                    .unwrap_or_else(|| Recorded::Read(self.whole().clone())),
            ),
        })
    }

    /// Some rows of one side.
    pub(super) fn picked(&self, side: Which, picked: Picked<'_>, width: usize) -> Cow<'_, [f64]> {
        match (self.loaded.get(), picked) {
            (Some(loaded), _) => picked.of(of(loaded, side), width),
            (None, Picked::Run(first, count)) => {
                self.recorded().run(side, first * width, count * width)
            }
            (None, Picked::These(rows)) => {
                let row = |row: &usize| self.recorded().run(side, row * width, width).into_owned();
                Cow::Owned(rows.iter().flat_map(row).collect())
            }
        }
    }

    pub(super) fn whole(&self) -> &Arc<Loaded> {
        self.loaded.get_or_init(|| {
            self.scene.load(self.pair).unwrap_or_else(|| {
                // A file that was cut since its beginning was read: nothing makes these.
                let dims = self.scene.entries()[self.pair].dims.clone();
                let nothing = vec![f64::NAN; dims.iter().product()];
                Arc::new(Loaded {
                    dims,
                    reference: nothing.clone(),
                    candidate: nothing,
                })
            })
        })
    }
}

impl std::ops::Deref for Out<'_> {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        self.whole()
    }
}

/// How far back inputs are looked for: more than the tensors of one layer, so that its residual is still found.
const REACH: usize = 48;

/// What an encoder ends with, which every layer of its decoder takes, however far back it is. Only names tell which that is.
fn encoded(scene: &Scene<'_>, pair: usize) -> impl Iterator<Item = usize> {
    const LAST: usize = 2;
    let of = |at: usize, word: &str| scene.entries()[at].name.to_ascii_lowercase().contains(word);
    let computed = move |at: &usize| !scene.entries()[*at].parameter;
    let seen = (0..pair)
        .rev()
        .filter(computed)
        .nth(REACH - 1)
        .filter(|_| of(pair, "decoder"))
        .unwrap_or(0);
    (0..seen)
        .rev()
        .filter(computed)
        .filter(move |at| of(*at, "encoder") && !of(*at, "decoder"))
        .take(LAST)
}

impl<'a> Site<'a> {
    fn new(scene: &'a Scene<'a>, pair: usize) -> Option<Self> {
        let entry = &scene.entries()[pair];
        if entry.parameter {
            return None;
        }
        let floor = own_floor(entry.dtypes[0], 0)?;
        let elements = elements_of(scene, pair);
        if entry.dims.is_empty() || elements > MOST_ELEMENTS {
            return None;
        }
        let out = Out {
            scene,
            pair,
            loaded: Arc::default(),
            in_part: Arc::default(),
        };
        // Of a large one some values say so, and no formula makes the others.
        let unlikely =
            |values: &[f64]| values.iter().any(|value| value.is_nan()) || !varies(values);
        let is_small = elements <= WHOLE && !scene.is_thin();
        if if is_small {
            unlikely(&scene.load(pair)?.reference)
        } else {
            unlikely(&scene.sketch(pair)?[0])
        } {
            return None;
        }
        let computed = |at: &usize| !scene.entries()[*at].parameter;
        let (before, parameters) = match &entry.inputs {
            Some(inputs) => {
                let known: Vec<usize> = inputs
                    .iter()
                    .copied()
                    .filter(|at| *at < scene.entries().len())
                    .collect();
                (
                    between(scene, pair, &known),
                    known.into_iter().filter(|at| !computed(at)).collect(),
                )
            }
            None => {
                let before = (0..pair)
                    .rev()
                    .filter(computed)
                    .take(REACH)
                    .chain(encoded(scene, pair))
                    .collect();
                (
                    before,
                    (0..scene.entries().len())
                        .filter(|at| !computed(at))
                        .collect(),
                )
            }
        };
        // Of nothing nothing is made: a cache that is still empty is no input.
        let holds = |inputs: Vec<usize>| {
            inputs
                .into_iter()
                .filter(|at| elements_of(scene, *at) > 0)
                .collect()
        };
        Some(Self {
            scene,
            pair,
            out,
            before: holds(before),
            parameters: holds(parameters),
            floor,
        })
    }

    pub(super) fn load(&self, pair: usize) -> Option<Arc<Loaded>> {
        self.scene.load(pair)
    }

    pub(super) fn dims(&self) -> &'a [usize] {
        &self.scene.entries()[self.pair].dims
    }

    pub(super) fn elements(&self) -> usize {
        elements_of(self.scene, self.pair)
    }

    /// How long a row of the output is, and how many there are.
    pub(super) fn width(&self) -> usize {
        self.dims().last().copied().unwrap_or(1).max(1)
    }

    pub(super) fn rows(&self) -> usize {
        self.elements() / self.width()
    }

    /// Whether so many products for everything can be made, on a part of it if need be.
    pub(super) fn is_possible(&self, work: usize) -> bool {
        work / self.rows().max(1) * self.sample().len() <= MOST_WORK
    }

    /// The reference at its [`super::scattered`] places.
    pub(super) fn sketch(&self) -> Option<Arc<[f64]>> {
        self.scene.sketch(self.pair).map(|[reference, _]| reference)
    }

    /// Rows that stand for all: all of a small output, of a large one [`SAMPLE`] values' worth, one from each stretch of equal length.
    pub(super) fn sample(&self) -> Vec<usize> {
        let (rows, count) = (self.rows(), (SAMPLE / self.width()).max(LEAST_ROWS));
        if self.elements() <= WHOLE || rows <= count {
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
        let wanted = self.out.picked(side, Picked::These(rows), self.width());
        Some(super::score::measures(
            &[rows.len(), self.width()],
            &made,
            &wanted,
        ))
    }

    /// The rows of [`Site::sample`] that say enough of a formula: a product of large matrices shows in few.
    fn enough(&self, learned: &Learned) -> Vec<usize> {
        let some = self.sample();
        if learned.work <= ENOUGH_WORK {
            return some;
        }
        let most = (ENOUGH_WORK / (learned.work / self.rows().max(1)).max(1)).max(ENOUGH_ROWS);
        some.iter()
            .copied()
            .step_by(some.len().div_ceil(most).max(1))
            .collect()
    }

    /// The same over everything, a block of rows at a time: no more than that is ever made. What is only rounding, and what takes too long to
    /// make, is believed on a part.
    fn off(&self, learned: &Learned, side: Which) -> Option<Measures> {
        let predict = &learned.predict;
        let part = match self.verdict() {
            Verdict::Rounding => Some(self.enough(learned)),
            _ => (learned.work > MOST_WORK).then(|| self.sample()),
        };
        if let Some(part) = part.filter(|part| part.len() < self.rows()) {
            return self.off_at(predict, side, &part);
        }
        let (rows, width) = (self.rows(), self.width());
        let block = (BLOCK / width).max(1);
        let blocks = || {
            (0..rows)
                .step_by(block)
                .map(|first| (first, Picked::Run(first, block.min(rows - first))))
        };
        let squares: f64 = blocks()
            .map(|(_, picked)| energy(&self.out.picked(side, picked, width)))
            .sum();
        let mut state = Rowwise::new(
            self.dims(),
            (squares / self.elements().max(1) as f64).sqrt(),
        );
        for (first, picked) in blocks() {
            state.add(
                first,
                &predict(side, picked)?,
                &self.out.picked(side, picked, width),
            );
        }
        Some(state.measures())
    }

    fn verdict(&self) -> Verdict {
        self.scene.entries()[self.pair].verdict
    }

    fn all(&self) -> Picked<'static> {
        Picked::Run(0, self.rows())
    }
}

/// Products that are enough to believe a formula of what is only rounding, and rows at least.
const ENOUGH_WORK: usize = 1 << 25;
const ENOUGH_ROWS: usize = 16;

/// Products that are made at most for all of an output.
const MOST_WORK: usize = 1 << 28;

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
    let mut known: Vec<usize> = inputs
        .iter()
        .copied()
        .filter(|at| *at < pair && !entries[*at].parameter)
        .collect();
    let first = known
        .iter()
        .copied()
        .min()
        .unwrap_or(pair)
        .max(pair.saturating_sub(REACH));
    for at in first..pair {
        let made = |inputs: &Vec<usize>| {
            !inputs.is_empty()
                && inputs
                    .iter()
                    .all(|input| entries[*input].parameter || known.contains(input))
        };
        if !entries[at].parameter
            && !known.contains(&at)
            && entries[at].inputs.as_ref().is_some_and(made)
        {
            known.push(at);
        }
    }
    known.sort_unstable_by(|a, b| b.cmp(a));
    known
}

/// Fewer different values than this could be made by many formulas: a constant is a multiple of every other one.
const FEWEST: usize = 8;

fn varies(values: &[f64]) -> bool {
    let mut seen: Vec<u64> = values
        .iter()
        .step_by((values.len() / 512).max(1))
        .map(|value| value.to_bits())
        .collect();
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
            let elements: usize = entry.dims.iter().product();
            let differs = matches!(entry.verdict, Verdict::Rounding | Verdict::Diverged);
            if differs {
                // What only rounds is seldom looked at whole.
                seen += if entry.verdict == Verdict::Rounding {
                    elements.min(WHOLE)
                } else {
                    elements
                };
            }
            differs && seen <= MOST_VALUES
        })
        .collect();
    let found = |pair: usize| guarded(|| Ok(of_pair(scene, pair))).ok().flatten();
    wanted
        .par_iter()
        .enumerate()
        .map(|(pair, wanted)| wanted.then(|| found(pair)).flatten())
        .collect()
}

/// Finds what a pair was computed by and whether the candidate follows it; `None` when no formula makes the reference.
pub(super) fn of_pair(scene: &Scene<'_>, pair: usize) -> Option<Flow> {
    if let Some(thin) = (elements_of(scene, pair) > WHOLE)
        .then(|| scene.thinned(pair))
        .flatten()
    {
        return by_rows(scene, &thin, pair);
    }
    let site = Site::new(scene, pair)?;
    scene.tell_capped(pair, counterfactual::may_be_capped(&site));
    Judged::of(&site, &every_op(&site))?.flow(&site)
}

/// The same for a large pair. Some rows say which op it is; what is rounding there and follows is believed on them, everything else is
/// looked at whole, where that can be.
fn by_rows(scene: &Scene<'_>, thin: &Scene<'_>, pair: usize) -> Option<Flow> {
    let some = Site::new(thin, pair)?;
    scene.tell_capped(pair, counterfactual::may_be_capped(&some));
    let rowwise: Vec<Try<'_>> = every_op(&some)
        .into_iter()
        .filter(|(op, _)| !op.mixes_rows())
        .collect();
    let Some(judged) = Judged::of(&some, &rowwise) else {
        let site = Site::new(scene, pair)?;
        // Those of other shapes were not among the rows.
        let mut others = site.clone();
        others
            .before
            .retain(|input| thin.entries()[*input].dims.is_empty());
        let tries: Vec<Try<'_>> = ops::ALL
            .iter()
            .map(|op| (*op, if op.mixes_rows() { &site } else { &others }))
            .collect();
        return Judged::of(&site, &tries)?.flow(&site);
    };
    if scene.entries()[pair].verdict == Verdict::Rounding
        && judged.follows()
        && judged.confirmed.is_none()
    {
        return judged.flow(&some);
    }
    let too_much =
        judged.learned.work / some.rows() * (elements_of(scene, pair) / some.width()) > MOST_WORK;
    let Some(mut site) = Site::new(scene, pair).filter(|_| !too_much) else {
        return judged.flow(&some).map(Flow::of_some);
    };
    let all = site.clone();
    site.before
        .retain(|input| judged.learned.inputs.contains(input));
    site.parameters
        .retain(|input| judged.learned.inputs.contains(input));
    Judged::of(&site, &every_op(&site))
        .or_else(|| Judged::of(&all, &every_op(&all)))?
        .flow(&site)
}

fn elements_of(scene: &Scene<'_>, pair: usize) -> usize {
    scene.entries()[pair].dims.iter().product()
}

/// An op, and where it is looked for.
type Try<'s> = (&'static dyn ops::Op, &'s Site<'s>);

fn every_op<'s>(site: &'s Site<'s>) -> Vec<Try<'s>> {
    ops::ALL.iter().map(|op| (*op, site)).collect()
}

/// No formula: also none for some rows, or one that makes some and not all.
#[derive(Clone, Copy, PartialEq)]
enum Unknown {
    None,
    NotOfAll,
}

/// What a formula is believed on.
#[derive(Clone, Copy, PartialEq)]
enum Trust {
    SomeRows,
    AllRows,
}

/// A formula that makes the reference, and how far the candidate is from it.
struct Judged {
    learned: Learned,
    off: Measures,
    bound: Measures,
    confirmed: Option<Confirmed>,
}

impl Judged {
    fn of(site: &Site<'_>, tries: &[Try<'_>]) -> Option<Self> {
        let among = |trust: Trust| Self::among(site, learn(site, tries, trust));
        let mut judged = match among(Trust::SomeRows) {
            Err(Unknown::NotOfAll) => among(Trust::AllRows).ok()?,
            one => one.ok()?,
        };
        judged.confirmed = counterfactual::confirm(site, &judged.learned);
        Some(judged)
    }

    /// One tensor under two names makes two formulas of the reference; the candidate, where they differ, says which it is.
    fn among(site: &Site<'_>, formulas: Vec<Learned>) -> Result<Self, Unknown> {
        let [of_reference, of_candidate] = site.scene.entries()[site.pair].dtypes;
        let mut chosen = Err(Unknown::None);
        for mut learned in formulas {
            let Some(mut floor) = own_floor(of_candidate, learned.terms) else {
                continue;
            };
            if let Some(borrowed) =
                own_floor(of_reference, learned.terms).filter(|_| learned.borrows)
            {
                floor = std::array::from_fn(|i| floor[i].max(borrowed[i]));
            }
            let bound = |off: Measures| -> Measures {
                std::array::from_fn(|i| (learned.looseness * floor[i]).max(MORE * off[i]))
            };
            let Some(off) = site.off(&learned, Which::Candidate) else {
                continue;
            };
            let mut judged_by = bound(learned.off);
            // What the candidate does not follow, the reference must, everywhere.
            if learned.on_some_rows && !within(&off, &judged_by) {
                let all = site.off(&learned, Which::Reference);
                let floor = own_floor(of_reference, learned.terms);
                let Some(all) = all
                    .zip(floor)
                    .filter(|(all, floor)| learned.makes(all, floor))
                    .map(|(all, _)| all)
                else {
                    chosen = chosen.or(Err(Unknown::NotOfAll));
                    continue;
                };
                judged_by = bound(all);
                learned.off = all;
            }
            let judged = Self {
                learned,
                off,
                bound: judged_by,
                confirmed: None,
            };
            if judged.follows() {
                return Ok(judged);
            }
            chosen = chosen.or(Ok(judged));
        }
        chosen
    }

    fn follows(&self) -> bool {
        within(&self.off, &self.bound)
    }

    fn flow(self, site: &Site<'_>) -> Option<Flow> {
        let Self {
            learned,
            off,
            bound,
            confirmed,
        } = self;
        let mut flow = Flow {
            formula: learned.formula,
            inputs: learned.inputs,
            expected: Vec::new(),
            off,
            bound,
            confirmed,
        };
        if (!flow.follows() || flow.confirmed.is_some()) && learned.work <= MOST_WORK {
            flow.expected = (learned.predict)(Which::Candidate, site.all())?;
        }
        Some(flow)
    }
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
fn learn(site: &Site<'_>, tries: &[Try<'_>], trust: Trust) -> Vec<Learned> {
    let mut near: Vec<Learned> = Vec::new();
    let mut best: Option<usize> = None;
    let dtype = site.scene.entries()[site.pair].dtypes[0];
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
                let Some(off) = site.off_at(&learned.predict, Which::Reference, &some) else {
                    continue;
                };
                learned.off = off;
                if off[0] > 2.0 * learned.looseness * floor[0] {
                    continue;
                }
            }
            if !learned.on_some_rows || trust == Trust::AllRows {
                let Some(off) = site.off(&learned, Which::Reference) else {
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
