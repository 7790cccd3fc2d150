//! One recorded run, as the learners see it: tensors in execution order, read whole or in part.

use crate::{
    array::Array,
    functions::Function,
    glimpse::{self, Glimpse},
    recorded::Recorded,
};
use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use twinscope_tensor::DType;

/// What is known of a tensor without reading it.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// Empty when it cannot be used.
    pub dims: Vec<usize>,
    /// What its numbers were rounded to.
    pub dtype: DType,
    /// Loaded, not computed.
    pub parameter: bool,
    /// Tensors this one was computed from, where the recording says so.
    pub inputs: Option<Vec<usize>>,
}

impl Tensor {
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }
}

/// Elements of a tensor up to which it is read whole.
pub const MOST_ELEMENTS: usize = 1 << 22;

/// One recorded run. A view of some rows of its tensors is a run as well.
///
/// An index is a place in [`Run::tensors`]. Reading returns `None` for what cannot be read or has no numbers.
pub trait Run: Sync {
    /// In execution order.
    fn tensors(&self) -> &[Tensor];

    /// Differs for every two runs whose values differ: formulas remember what they read by it.
    fn id(&self) -> u64;

    /// All values; `None` also for more than [`MOST_ELEMENTS`].
    fn load(&self, at: usize) -> Option<Values>;

    /// To be read in part where it is large.
    fn recorded(&self, at: usize) -> Option<Recorded>;

    /// Runs of `count` values that begin at some places, one after another.
    fn runs(&self, at: usize, starts: &[usize], count: usize) -> Option<Vec<f64>>;

    /// The values at the [`crate::scattered`] places.
    fn sketch(&self, at: usize) -> Option<Arc<[f64]>>;

    /// Where the learners keep what they computed of this run.
    fn memo(&self) -> &Memo;

    /// Whether this is a view of some rows: even a small tensor is then not looked at whole.
    fn is_thinned(&self) -> bool {
        false
    }
}

impl<'r> dyn Run + 'r {
    pub fn tensor(&self, at: usize) -> &Tensor {
        &self.tensors()[at]
    }

    pub fn name(&self, at: usize) -> &str {
        &self.tensors()[at].name
    }

    pub fn dims(&self, at: usize) -> &[usize] {
        &self.tensors()[at].dims
    }

    pub fn elements(&self, at: usize) -> usize {
        self.tensors()[at].elements()
    }

    /// Single values.
    pub fn pick(&self, at: usize, places: &[usize]) -> Option<Vec<f64>> {
        self.runs(at, places, 1)
    }

    /// The first values, up to `count`: enough to rule an op out without reading all of them.
    pub fn beginning(&self, at: usize, count: usize) -> Option<Vec<f64>> {
        self.runs(at, &[0], count.min(self.elements(at)))
    }

    /// The first rows.
    pub fn glimpse(&self, at: usize) -> Option<Arc<Glimpse>> {
        if let Some(known) = self.memo().lock().glimpses.get(&at) {
            return known.clone();
        }
        let channels = self
            .dims(at)
            .last()
            .copied()
            .filter(|channels| *channels > 0)?;
        let glimpse = self
            .beginning(at, glimpse::ROWS * channels)
            .map(|rows| Arc::new(Glimpse::of(&rows, channels)));
        self.memo().lock().glimpses.insert(at, glimpse.clone());
        glimpse
    }

    /// What functions make of a tensor at its [`crate::scattered`] places. The caller always passes the same functions.
    pub(crate) fn activated(&self, at: usize, functions: &[Function]) -> Option<Rows> {
        if let Some(known) = self.memo().lock().activated.get(&at) {
            return Some(known.clone());
        }
        let values = self.sketch(at)?;
        let made: Rows = functions
            .iter()
            .map(|function| values.iter().map(|x| (function.of)(*x)).collect())
            .collect();
        self.memo().lock().activated.insert(at, made.clone());
        Some(made)
    }

    /// A few rows of a weight, or columns where it is transposed: `read` once, always the same ones.
    pub(crate) fn glances(
        &self,
        weight: usize,
        transposed: bool,
        read: impl FnOnce() -> Option<Vec<Vec<f64>>>,
    ) -> Option<Rows> {
        let key = (weight, transposed);
        if let Some(known) = self.memo().lock().glances.get(&key) {
            return known.clone();
        }
        let glances: Option<Rows> = read().map(Into::into);
        self.memo().lock().glances.insert(key, glances.clone());
        glances
    }
}

/// Rows of values.
pub(crate) type Rows = Arc<[Vec<f64>]>;

/// What learners computed of a run and need again for its next tensor. Each entry is a few hundred values, so all are kept.
#[derive(Default)]
pub struct Memo(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    glances: HashMap<(usize, bool), Option<Rows>>,
    glimpses: HashMap<usize, Option<Arc<Glimpse>>>,
    activated: HashMap<usize, Rows>,
}

impl Memo {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // A panic elsewhere leaves the maps as they were: entries are inserted whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Memo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memo({} glimpses)", self.lock().glimpses.len())
    }
}

/// All values of a tensor, shared with whoever read them.
#[derive(Clone)]
pub struct Values(Arc<dyn Hold>);

/// Something that holds the values of a tensor, perhaps beside others.
pub trait Hold: Send + Sync {
    fn values(&self) -> &[f64];
}

impl Hold for Vec<f64> {
    fn values(&self) -> &[f64] {
        self
    }
}

impl Hold for Array {
    fn values(&self) -> &[f64] {
        &self.values
    }
}

impl Values {
    pub fn new(held: impl Hold + 'static) -> Self {
        Self(Arc::new(held))
    }
}

impl Deref for Values {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        self.0.values()
    }
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Values({})", self.len())
    }
}

/// What a formula is computed from: a tensor, or what is made of some, on any run with the same tensors.
///
/// What it evaluates to is kept for each run, so a prediction made block by block reads its inputs once, whatever the run's own cache evicts.
#[derive(Clone)]
pub struct Input(Arc<Inner>);

type Make = Box<dyn Fn(&dyn Run) -> Option<Values> + Send + Sync>;

struct Inner {
    make: Make,
    kept: Mutex<Vec<(u64, Values)>>,
}

impl Input {
    /// A tensor, read on this run at once; `None` where it cannot be.
    pub fn read(run: &dyn Run, at: usize) -> Option<Self> {
        let input = Self::new(move |run| run.load(at));
        input.on(run)?;
        Some(input)
    }

    pub fn new(make: impl Fn(&dyn Run) -> Option<Values> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            make: Box::new(make),
            kept: Mutex::default(),
        }))
    }

    pub fn map(&self, f: impl Fn(&[f64]) -> Vec<f64> + Send + Sync + 'static) -> Self {
        let of = self.clone();
        Self::new(move |run| Some(Values::new(f(&of.on(run)?))))
    }

    /// Its values on a run.
    pub fn on(&self, run: &dyn Run) -> Option<Values> {
        let lock = || self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let id = run.id();
        if let Some((_, values)) = lock().iter().find(|(of, _)| *of == id) {
            return Some(values.clone());
        }
        // Not while the lock is held: it may take long.
        let values = (self.0.make)(run)?;
        lock().push((id, values.clone()));
        Some(values)
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Input")
    }
}

/// The same for a tensor that may be too large to be read whole.
#[derive(Clone)]
pub(crate) struct InPart {
    at: usize,
    kept: Arc<Mutex<Opened>>,
}

/// What was opened, by the run's id.
type Opened = Vec<(u64, Arc<Recorded>)>;

impl InPart {
    /// Already opened on a run.
    pub(crate) fn kept(run: &dyn Run, at: usize, recorded: Arc<Recorded>) -> Self {
        let kept = vec![(run.id(), recorded)];
        Self {
            at,
            kept: Arc::new(Mutex::new(kept)),
        }
    }

    pub(crate) fn on(&self, run: &dyn Run) -> Option<Arc<Recorded>> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let id = run.id();
        if let Some((_, recorded)) = lock().iter().find(|(of, _)| *of == id) {
            return Some(recorded.clone());
        }
        let recorded = Arc::new(run.recorded(self.at)?);
        lock().push((id, recorded.clone()));
        Some(recorded)
    }
}
