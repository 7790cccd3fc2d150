//! A tensor whose op is to be found, and what it may have been made of.

use crate::{
    Learned, Measures, Picked, Recorded, Run, Values, array::energy, measures, run::MOST_ELEMENTS,
    sampling::splitmix,
};
use std::{
    borrow::Cow,
    ops::Deref,
    sync::{Arc, OnceLock},
};
use twinscope_measure::rounding::{Rowwise, floor_unit};
use twinscope_tensor::DType;

/// Units of roundoff that one op's own rounding stays below, by the four measures: an op rounds its output once and a step or two inside.
const OWN: Measures = [3.0, 4.0, 8.0, 32.0];

/// Formulas are computed in f64, in another order than the run and with numbers that were fitted: of results in f64 they make no more than this many
/// digits.
const COMPUTED: f64 = 1.0 / (1u64 << 42) as f64;

/// What rounding can do in one op with an output of this dtype that sums `terms` products.
pub fn own_floor(dtype: DType, terms: usize) -> Option<Measures> {
    let unit = floor_unit(dtype)?.max(COMPUTED);
    let summing = (terms as f64).sqrt() * unit.min(2f64.powi(-24));
    Some(OWN.map(|units| units * (unit + summing)))
}

/// How much of a tensor is computed before a formula is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// A sample of the rows.
    Sample,
    /// All of them, as far as that is affordable.
    #[default]
    Whole,
}

/// What the caller knows beyond the run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    pub effort: Effort,
    /// Integer ids that are recorded before this place are not looked up in a table: what lies between depends on more than them.
    pub ids_from: usize,
    /// The dtype of another run that the formula will be applied to: a coarser one does not feel some roundings.
    pub also: Option<DType>,
}

/// A tensor whose op is to be found.
#[derive(Clone)]
pub struct Site<'a> {
    pub run: &'a dyn Run,
    pub at: usize,
    pub out: Out<'a>,
    /// Computed tensors before it that may be its inputs, the nearest first.
    pub before: Vec<usize>,
    /// Parameters, wherever they are recorded.
    pub parameters: Vec<usize>,
    pub floor: Measures,
    pub ask: Ask,
}

impl std::fmt::Debug for Site<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Site({})", self.run.name(self.at))
    }
}

/// The values of a tensor, read when they are looked at: most of what is tried is ruled out by a few of them.
#[derive(Clone)]
pub struct Out<'a> {
    pub run: &'a dyn Run,
    pub at: usize,
    loaded: Arc<OnceLock<Values>>,
    in_part: Arc<OnceLock<Arc<Recorded>>>,
}

impl std::fmt::Debug for Out<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Out({})", self.run.name(self.at))
    }
}

impl<'a> Out<'a> {
    pub fn new(run: &'a dyn Run, at: usize) -> Self {
        Self {
            run,
            at,
            loaded: Arc::default(),
            in_part: Arc::default(),
        }
    }

    /// To be read in part, where it is large and was not read yet.
    pub fn recorded(&self) -> &Arc<Recorded> {
        self.in_part.get_or_init(|| match self.loaded.get() {
            Some(loaded) => Arc::new(Recorded::Read(loaded.clone())),
            None => Arc::new(
                self.run
                    .recorded(self.at)
                    .unwrap_or_else(|| Recorded::Read(self.whole().clone())),
            ),
        })
    }

    /// Some rows.
    pub fn picked(&self, picked: Picked<'_>, width: usize) -> Cow<'_, [f64]> {
        match (self.loaded.get(), picked) {
            (Some(loaded), _) => picked.of(loaded, width),
            (None, Picked::Run(first, count)) => self.recorded().run(first * width, count * width),
            (None, Picked::These(rows)) => {
                let row = |row: &usize| self.recorded().run(row * width, width).into_owned();
                Cow::Owned(rows.iter().flat_map(row).collect())
            }
        }
    }

    pub fn whole(&self) -> &Values {
        self.loaded.get_or_init(|| {
            self.run.load(self.at).unwrap_or_else(|| {
                // A file that was cut since its beginning was read: nothing makes these.
                Values::new(vec![f64::NAN; self.run.elements(self.at)])
            })
        })
    }
}

impl Deref for Out<'_> {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        self.whole()
    }
}

/// How far back inputs are looked for: more than the tensors of one layer, so that its residual is still found.
const REACH: usize = 48;

/// What an encoder ends with, which every layer of its decoder takes, however far back it is. Only names tell which that is.
fn encoded(run: &dyn Run, at: usize) -> impl Iterator<Item = usize> {
    const LAST: usize = 2;
    let of = |at: usize, word: &str| run.name(at).to_ascii_lowercase().contains(word);
    let computed = move |at: &usize| !run.tensor(*at).parameter;
    let seen = (0..at)
        .rev()
        .filter(computed)
        .nth(REACH - 1)
        .filter(|_| of(at, "decoder"))
        .unwrap_or(0);
    (0..seen)
        .rev()
        .filter(computed)
        .filter(move |at| of(*at, "encoder") && !of(*at, "decoder"))
        .take(LAST)
}

impl<'a> Site<'a> {
    /// `None` for parameters, for what is too large or has no numbers, and for values that many formulas could make.
    pub fn new(run: &'a dyn Run, at: usize, ask: Ask) -> Option<Self> {
        let tensor = run.tensor(at);
        if tensor.parameter {
            return None;
        }
        let floor = own_floor(tensor.dtype, 0)?;
        let elements = tensor.elements();
        if tensor.dims.is_empty() || elements > MOST_ELEMENTS {
            return None;
        }
        // Of a large one some values say so, and no formula makes the others.
        let unlikely =
            |values: &[f64]| values.iter().any(|value| value.is_nan()) || !varies(values);
        let is_small = elements <= WHOLE && !run.is_thinned();
        if if is_small {
            unlikely(&run.load(at)?)
        } else {
            unlikely(&run.sketch(at)?)
        } {
            return None;
        }
        let count = run.tensors().len();
        let computed = |at: &usize| !run.tensor(*at).parameter;
        let (before, parameters) = match &tensor.inputs {
            Some(inputs) => {
                let known: Vec<usize> = inputs.iter().copied().filter(|at| *at < count).collect();
                (
                    between(run, at, &known),
                    known.into_iter().filter(|at| !computed(at)).collect(),
                )
            }
            None => {
                let before = (0..at)
                    .rev()
                    .filter(computed)
                    .take(REACH)
                    .chain(encoded(run, at))
                    .collect();
                (before, (0..count).filter(|at| !computed(at)).collect())
            }
        };
        // Of nothing nothing is made: a cache that is still empty is no input.
        let holds = |inputs: Vec<usize>| {
            inputs
                .into_iter()
                .filter(|at| run.elements(*at) > 0)
                .collect()
        };
        Some(Self {
            run,
            at,
            out: Out::new(run, at),
            before: holds(before),
            parameters: holds(parameters),
            floor,
            ask,
        })
    }

    pub fn dtype(&self) -> DType {
        self.run.tensor(self.at).dtype
    }

    pub fn dims(&self) -> &'a [usize] {
        &self.run.tensors()[self.at].dims
    }

    pub fn name(&self, at: usize) -> &'a str {
        &self.run.tensors()[at].name
    }

    pub fn elements(&self) -> usize {
        self.run.elements(self.at)
    }

    /// How long a row of the output is.
    pub fn width(&self) -> usize {
        self.dims().last().copied().unwrap_or(1).max(1)
    }

    pub fn rows(&self) -> usize {
        self.elements() / self.width()
    }

    /// Whether so many products for everything can be made, on a part of it if need be.
    pub fn is_possible(&self, work: usize) -> bool {
        work / self.rows().max(1) * self.sample().len() <= MOST_WORK
    }

    /// The output at its [`crate::scattered`] places.
    pub fn sketch(&self) -> Option<Arc<[f64]>> {
        self.run.sketch(self.at)
    }

    /// Rows that stand for all: all of a small output, of a large one [`SAMPLE`] values' worth, one from each stretch of equal length.
    pub fn sample(&self) -> Vec<usize> {
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

    /// How far a formula is from an output, over some rows, which are then looked at as a matrix.
    pub(crate) fn off_at(
        &self,
        learned: &Learned<'_>,
        out: &Out<'_>,
        rows: &[usize],
    ) -> Option<Measures> {
        let made = (learned.predict)(out.run, Picked::These(rows))?;
        let wanted = out.picked(Picked::These(rows), self.width());
        Some(measures(&[rows.len(), self.width()], &made, &wanted))
    }

    /// The rows of [`Site::sample`] that say enough of a formula: a product of large matrices shows in few.
    pub(crate) fn enough(&self, learned: &Learned<'_>) -> Vec<usize> {
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

    /// How far a formula is from this tensor of any run, a block of rows at a time. With [`Effort::Sample`], and where everything takes too
    /// long, over a part of the rows.
    pub fn off(&self, learned: &Learned<'_>, out: &Out<'_>) -> Option<Measures> {
        let predict = &learned.predict;
        let part = match self.ask.effort {
            Effort::Sample => Some(self.enough(learned)),
            Effort::Whole => (learned.work > MOST_WORK).then(|| self.sample()),
        };
        if let Some(part) = part.filter(|part| part.len() < self.rows()) {
            return self.off_at(learned, out, &part);
        }
        let (rows, width) = (self.rows(), self.width());
        let block = (BLOCK / width).max(1);
        let blocks = || {
            (0..rows)
                .step_by(block)
                .map(|first| (first, Picked::Run(first, block.min(rows - first))))
        };
        let squares: f64 = blocks()
            .map(|(_, picked)| energy(&out.picked(picked, width)))
            .sum();
        let mut state = Rowwise::new(
            self.dims(),
            (squares / self.elements().max(1) as f64).sqrt(),
        );
        for (first, picked) in blocks() {
            state.add(
                first,
                &predict(out.run, picked)?,
                &out.picked(picked, width),
            );
        }
        Some(state.measures())
    }

    pub fn all(&self) -> Picked<'static> {
        Picked::Run(0, self.rows())
    }
}

/// Products that are enough to believe a formula on a sample, and rows at least.
pub(crate) const ENOUGH_WORK: usize = 1 << 25;
pub(crate) const ENOUGH_ROWS: usize = 16;

/// Products that are made at most for all of an output.
pub const MOST_WORK: usize = 1 << 28;

/// Values of an output up to which all of it is looked at wherever a formula is tried, and of a larger one how many.
pub const WHOLE: usize = 1 << 17;
const SAMPLE: usize = 1 << 16;
/// Rows of it at least.
const LEAST_ROWS: usize = 32;
/// Values that are made at once, so that they stay in the processor's cache.
const BLOCK: usize = 1 << 15;

/// The tensors that one is said to be computed from, and those recorded since that were computed from nothing else: frameworks say that a
/// projection takes the queries where the probabilities lie between. The nearest first.
fn between(run: &dyn Run, at: usize, inputs: &[usize]) -> Vec<usize> {
    let tensors = run.tensors();
    let mut known: Vec<usize> = inputs
        .iter()
        .copied()
        .filter(|input| *input < at && !tensors[*input].parameter)
        .collect();
    let first = known
        .iter()
        .copied()
        .min()
        .unwrap_or(at)
        .max(at.saturating_sub(REACH));
    for between in first..at {
        let made = |inputs: &Vec<usize>| {
            !inputs.is_empty()
                && inputs
                    .iter()
                    .all(|input| tensors[*input].parameter || known.contains(input))
        };
        if !tensors[between].parameter
            && !known.contains(&between)
            && tensors[between].inputs.as_ref().is_some_and(made)
        {
            known.push(between);
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
