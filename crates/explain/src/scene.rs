//! Everything that was recorded on both sides, found by order, shape and name: what a hypothesis may need beyond its own pair.
//!
//! Arrays are read when asked for and kept while there is room, so a run of any size costs a bounded amount of memory.

use super::{
    array::{Array, energy, is_plain},
    numbers, part,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};
use twinscope_compare::{
    judged::JudgedPair,
    layout::{self, Which},
    noise::Measures,
    plan::Plan,
    side::{Item, Side},
    upstream::{self, Level},
};
use twinscope_ops::{
    Hold, KEPT_WHOLE, MOST_ELEMENTS, Memo, Recorded, Run, Tensor, Values, scattered,
    thin::{self, Thin},
};
use twinscope_report::{Origin, Verdict};
use twinscope_tensor::{DType, Operand, View};

/// One pair, as the report has it so far.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// In the reference's layout, with a last one of 2 where an element is two numbers; empty when the shapes cannot be lined up.
    pub dims: Vec<usize>,
    /// Of the numbers, those that they were rounded to.
    pub dtypes: [DType; 2],
    pub verdict: Verdict,
    pub origin: Option<Origin>,
    /// What rounding can do here, by the four measures.
    pub noise: Measures,
    /// What was found, by the same.
    pub measures: Measures,
    /// Loaded, not computed.
    pub parameter: bool,
    /// Where it differs most, as a flat index.
    pub worst: Option<u64>,
    /// Pairs this one was computed from, where the source says so.
    pub inputs: Option<Vec<usize>>,
}

/// Both sides of a pair in the reference's layout.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub dims: Vec<usize>,
    pub reference: Vec<f64>,
    pub candidate: Vec<f64>,
}

/// Another recorded tensor.
#[derive(Clone, Debug)]
pub struct Other {
    pub side: Which,
    pub name: String,
    /// The pair it belongs to, when it has a partner.
    pub pair: Option<usize>,
    pub array: Arc<Array>,
}

/// A tensor of one side seen at its [`scattered`] places: enough to know it again, without reading it whole.
#[derive(Clone, Debug)]
pub struct Sketch {
    pub side: Which,
    pub name: String,
    /// The pair it belongs to, when it has a partner; then it is in the reference's layout.
    pub pair: Option<usize>,
    pub dims: Vec<usize>,
    pub parameter: bool,
    pub values: Arc<[f64]>,
    item: usize,
}

/// Pairs on either side that are sketched for one pair.
const NEAR: usize = 512;

/// Elements of a part of a larger one.
const PART: usize = 1 << 20;
/// Values kept in all, 8 bytes each.
const KEPT: usize = 1 << 23;

/// Rows up to which the quiet ones are looked for, by this many values of each in up to this many pairs.
const QUIET_ROWS: usize = 1 << 14;
const QUIET_CHANNELS: usize = 16;
const QUIET_PAIRS: usize = 64;

pub struct Scene<'a> {
    plan: &'a Plan,
    reference: &'a Side<'a>,
    candidate: &'a Side<'a>,
    steps: Arc<[Option<Vec<layout::Step>>]>,
    entries: Arc<[Entry]>,
    runs: Arc<[OneSide; 2]>,
    cache: Arc<Mutex<Cache>>,
    /// Pairs whose candidate is another than the layout made.
    instead: Mutex<HashMap<usize, Arc<Loaded>>>,
    /// The same scene with some rows of all tensors that have so many; `None` where too few would be left out.
    thinned: Mutex<HashMap<usize, Option<Thinned>>>,
    /// Set in those.
    thin: Option<Thin>,
}

/// What a scene of some rows has of its own.
#[derive(Clone)]
struct Thinned {
    thin: Thin,
    entries: Arc<[Entry]>,
    runs: Arc<[OneSide; 2]>,
    cache: Arc<Mutex<Cache>>,
}

/// What a scene keeps of one side for [`SideRun`].
struct OneSide {
    id: u64,
    tensors: Vec<Tensor>,
    memo: Memo,
}

impl OneSide {
    /// Of every pair, in the reference's layout, reference first.
    fn both(entries: &[Entry]) -> Arc<[Self; 2]> {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Arc::new([0, 1].map(|side: usize| {
            Self {
                id: IDS.fetch_add(1, Ordering::Relaxed),
                tensors: entries
                    .iter()
                    .map(|entry| Tensor {
                        name: entry.name.clone(),
                        dims: entry.dims.clone(),
                        dtype: entry.dtypes[side],
                        parameter: entry.parameter,
                        inputs: entry.inputs.clone(),
                    })
                    .collect(),
                memo: Memo::default(),
            }
        }))
    }
}

/// One side of a scene as a run: its pairs, in the reference's layout.
#[derive(Clone, Copy)]
pub(super) struct SideRun<'s> {
    scene: &'s Scene<'s>,
    side: Which,
}

impl SideRun<'_> {
    fn own(&self) -> &OneSide {
        &self.scene.runs[at_side(self.side)]
    }
}

fn at_side(side: Which) -> usize {
    usize::from(side == Which::Candidate)
}

impl Run for SideRun<'_> {
    fn tensors(&self) -> &[Tensor] {
        &self.own().tensors
    }

    fn id(&self) -> u64 {
        self.own().id
    }

    fn load(&self, at: usize) -> Option<Values> {
        let loaded = self.scene.load(at)?;
        Some(Values::new(OfSide(loaded, self.side)))
    }

    fn recorded(&self, at: usize) -> Option<Recorded> {
        self.scene.recorded(at, self.side)
    }

    fn runs(&self, at: usize, starts: &[usize], count: usize) -> Option<Vec<f64>> {
        self.scene.runs(at, self.side, starts, count)
    }

    fn sketch(&self, at: usize) -> Option<Arc<[f64]>> {
        let both = self.scene.sketch(at)?;
        Some(both[at_side(self.side)].clone())
    }

    fn memo(&self) -> &Memo {
        &self.own().memo
    }

    fn is_thinned(&self) -> bool {
        self.scene.is_thin()
    }
}

/// One side of a pair that was read.
struct OfSide(Arc<Loaded>, Which);

impl Hold for OfSide {
    fn values(&self) -> &[f64] {
        match self.1 {
            Which::Reference => &self.0.reference,
            Which::Candidate => &self.0.candidate,
        }
    }
}

impl std::fmt::Debug for Scene<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scene({} pairs)", self.entries.len())
    }
}

#[derive(Default)]
struct Cache {
    loaded: HashMap<usize, Arc<Loaded>>,
    /// Of all that was ever loaded, what others still hold: a formula learned on one side holds what its other side is computed from.
    alive: HashMap<usize, Weak<Loaded>>,
    arrays: HashMap<(bool, usize), Arc<Array>>,
    order: VecDeque<Key>,
    kept: usize,
    /// Whether a cap is possible, of pairs that were looked at.
    capped: HashMap<usize, bool>,
    /// Of pairs, both sides; small enough to be kept for good.
    sketches: HashMap<usize, Option<[Arc<[f64]>; 2]>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Pair(usize),
    Item(bool, usize),
}

impl<'a> Scene<'a> {
    pub fn new(
        plan: &'a Plan,
        reference: &'a Side<'a>,
        candidate: &'a Side<'a>,
        pairs: &[JudgedPair],
    ) -> Self {
        let steps: Vec<_> = pairs
            .iter()
            .map(|pair| pair.layout.as_ref().map(|layout| layout.steps.clone()))
            .collect();
        let each = |pair: &JudgedPair| pair.dtypes[0].values_per_element();
        let dims = |pair: &JudgedPair| -> Option<Vec<usize>> {
            let dims = pair.shape.as_ref()?.dims().iter().map(|dim| *dim as usize);
            Some(dims.chain((each(pair) > 1).then(|| each(pair))).collect())
        };
        let mut entries: Vec<Entry> = pairs
            .iter()
            .map(|pair| Entry {
                name: pair.name.clone(),
                dims: dims(pair).unwrap_or_default(),
                dtypes: pair.judged_by.map(numbers::of_each),
                verdict: pair.verdict(),
                origin: pair.origin(),
                noise: pair.noise,
                measures: pair.measures,
                parameter: pair.parameter,
                worst: pair
                    .totals
                    .as_ref()
                    .and_then(|totals| totals.worst.as_ref())
                    .map(|worst| worst.at * each(pair) as u64),
                inputs: None,
            })
            .collect();
        for (pair, inputs) in inputs(plan, reference) {
            entries[pair].inputs = Some(inputs);
        }
        Self {
            plan,
            reference,
            candidate,
            steps: steps.into(),
            runs: OneSide::both(&entries),
            entries: entries.into(),
            cache: Arc::default(),
            instead: Mutex::default(),
            thinned: Mutex::default(),
            thin: None,
        }
    }

    /// What the inputs of a pair whose op is not known may have given it.
    pub(super) fn given(&self, pair: usize, is_known: impl Fn(usize) -> bool) -> Option<Measures> {
        let level = |entry: &Entry| Level {
            measures: entry.measures,
            noise: entry.noise,
            parameter: entry.parameter,
            diverged: entry.verdict == Verdict::Diverged,
        };
        let levels: Vec<Level> = self.entries.iter().map(level).collect();
        upstream::given(&levels, pair, is_known)
    }

    /// Whether the comparison was stopped: nothing more is read, and what is found is dropped.
    pub(super) fn is_stopped(&self) -> bool {
        self.reference.is_stopped()
    }

    /// The pairs, in execution order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Both sides of a pair; `None` when it cannot be read, has no numbers or is larger than [`MOST_ELEMENTS`].
    pub fn load(&self, pair: usize) -> Option<Arc<Loaded>> {
        if let Some(instead) = self
            .instead
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&pair)
        {
            return Some(instead.clone());
        }
        if let Some(loaded) = self.cache().held(pair) {
            return Some(loaded);
        }
        let [reference, candidate] = self.aligned(pair)?;
        let Array { dims, values } = Array::read(&*reference, MOST_ELEMENTS)?;
        let candidate = Array::read(&*candidate, MOST_ELEMENTS)?.values;
        let loaded = Arc::new(Loaded {
            dims,
            reference: values,
            candidate,
        });
        let mut cache = self.cache();
        cache.loaded.insert(pair, loaded.clone());
        cache.alive.insert(pair, Arc::downgrade(&loaded));
        cache.keep(Key::Pair(pair), 2 * loaded.reference.len());
        Some(loaded)
    }

    /// One side as a run of its own.
    pub(super) fn run(&self, side: Which) -> SideRun<'_> {
        SideRun { scene: self, side }
    }

    /// One side of a pair to be read in part, where it is large.
    fn recorded(&self, pair: usize, side: Which) -> Option<Recorded> {
        let is_read = self
            .instead
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(&pair)
            || self.cache().held(pair).is_some();
        if is_read || self.entries[pair].dims.iter().product::<usize>() <= KEPT_WHOLE {
            let loaded = self.load(pair)?;
            return Some(Recorded::Read(Values::new(OfSide(loaded, side))));
        }
        let [reference, candidate] = self.aligned(pair)?;
        Some(Recorded::InFile(match side {
            Which::Reference => reference,
            Which::Candidate => candidate,
        }))
    }

    /// Has a pair's candidate be this from now on: one rank's part, where the layout had added them all up. `None` takes it back.
    pub(super) fn take_instead(&self, pair: usize, loaded: Option<Arc<Loaded>>) {
        let mut instead = self.instead.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded {
            Some(loaded) => instead.insert(pair, loaded),
            None => instead.remove(&pair),
        };
    }

    /// Parts of a pair that is larger than what [`Scene::load`] reads, each whole along other axes, so that what happened along an axis shows
    /// in one of them: neighbouring indices of the outermost axis around `worst`, and all of them with a few of the innermost.
    pub(super) fn load_parts(&self, pair: usize, worst: Option<u64>) -> Vec<Loaded> {
        let read = || {
            let [reference, candidate] = self.aligned(pair)?;
            let dims = &self.entries[pair].dims;
            let plans = [
                part::outer(dims, PART, worst.unwrap_or(0)),
                part::inner(dims, PART),
            ];
            let both = plans.into_iter().flatten().filter_map(|plan| {
                let (reference, candidate) = (plan.read(&*reference)?, plan.read(&*candidate)?);
                Some(Loaded {
                    dims: plan.dims,
                    reference,
                    candidate,
                })
            });
            Some(both.collect())
        };
        read().unwrap_or_default()
    }

    /// Both sides of a pair as one tensor each, reference first.
    fn aligned(&self, pair: usize) -> Option<[Box<dyn Operand>; 2]> {
        let (reference, candidate) = self.parts(pair)?;
        let aligned = layout::apply(self.steps(pair)?, &reference, &candidate).ok()?;
        let both = [aligned.reference, aligned.candidate].map(numbers::apart);
        // A complex number and a real one are not made of the same numbers.
        if both[0].shape() != both[1].shape() {
            return None;
        }
        match &self.thin {
            Some(thin) if !self.entries[pair].parameter => {
                let [reference, candidate] = both;
                Some([thin.rows(reference)?, thin.rows(candidate)?])
            }
            _ => Some(both),
        }
    }

    /// The scene in which of a pair, and of all that have as many rows, only some rows are left; `None` where that is not worth it.
    pub(super) fn thinned(&self, pair: usize) -> Option<Self> {
        if self.thin.is_some()
            || !self
                .instead
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_empty()
        {
            return None;
        }
        let (rows, _) = thin::rows_of(&self.entries[pair].dims)?;
        let mut thinned = self.thinned.lock().unwrap_or_else(PoisonError::into_inner);
        let Thinned {
            thin,
            entries,
            runs,
            cache,
        } = thinned
            .entry(rows)
            .or_insert_with(|| self.thin_to(rows))
            .clone()?;
        // Too wide to be among them.
        if entries[pair].dims.is_empty() {
            return None;
        }
        let Self {
            plan,
            reference,
            candidate,
            ref steps,
            ..
        } = *self;
        let (instead, thinned) = (Mutex::default(), Mutex::default());
        Some(Self {
            plan,
            reference,
            candidate,
            steps: steps.clone(),
            entries,
            runs,
            cache,
            instead,
            thinned,
            thin: Some(thin),
        })
    }

    fn thin_to(&self, rows: usize) -> Option<Thinned> {
        let alike: Vec<usize> = (0..self.entries.len())
            .filter(|at| {
                !self.entries[*at].parameter
                    && thin::rows_of(&self.entries[*at].dims).is_some_and(|(own, _)| own == rows)
            })
            .collect();
        let mut widths: HashMap<usize, usize> = HashMap::new();
        alike
            .iter()
            .filter_map(|at| self.entries[*at].dims.last())
            .for_each(|width| *widths.entry(*width).or_default() += 1);
        let (width, _) = widths
            .into_iter()
            .max_by_key(|(width, count)| (*count, *width))?;
        let thin = Thin::of(rows, width, || self.quietness(&alike, rows))?;
        let mut entries = self.entries.to_vec();
        for entry in entries.iter_mut().filter(|entry| !entry.parameter) {
            entry.dims = thin.dims(&entry.dims).unwrap_or_default();
        }
        Some(Thinned {
            thin,
            runs: OneSide::both(&entries),
            entries: entries.into(),
            cache: Arc::default(),
        })
    }

    /// How quiet each row is where it is quietest beside the others, by a few values of each; `None` where there are too many rows.
    fn quietness(&self, pairs: &[usize], rows: usize) -> Option<Vec<f64>> {
        if rows > QUIET_ROWS {
            return None;
        }
        let mut least = vec![f64::INFINITY; rows];
        let step = pairs.len().div_ceil(QUIET_PAIRS).max(1);
        let (mut scratch, mut run) = (Vec::new(), Vec::new());
        for &pair in pairs.iter().step_by(step) {
            let Some([reference, _]) = self.aligned(pair) else {
                continue;
            };
            let width = self.entries[pair].dims.last().copied().unwrap_or(0);
            let count = width.min(QUIET_CHANNELS);
            let mut sizes = Vec::with_capacity(rows);
            for row in 0..rows {
                let channel = (row * 7919) % (width - count + 1);
                if !reference.f64_values(
                    (row * width + channel) as u64,
                    count,
                    &mut scratch,
                    &mut run,
                ) {
                    break;
                }
                sizes.push(energy(&run));
            }
            let mean = sizes.iter().sum::<f64>() / rows as f64;
            if sizes.len() == rows && mean > 0.0 {
                least
                    .iter_mut()
                    .zip(sizes)
                    .for_each(|(least, size)| *least = least.min(size / mean));
            }
        }
        Some(least)
    }

    /// The tensors of a pair as they lie in the files: several where it was put together from ranks or pieces.
    pub fn parts(&self, pair: usize) -> Option<(Vec<View>, Vec<View>)> {
        let pair = self.plan.pairing.pairs.get(pair)?;
        let views = |side: &Side<'_>, items: &[usize]| -> Option<Vec<View>> {
            items.iter().map(|item| side.view(*item).ok()).collect()
        };
        Some((
            views(self.reference, &pair.reference)?,
            views(self.candidate, &pair.candidate)?,
        ))
    }

    /// Whether an element of a pair is one number.
    pub fn is_one_number(&self, pair: usize) -> bool {
        self.plan.pairing.pairs.get(pair).is_some_and(|pair| {
            self.reference.items()[pair.reference[0]]
                .dtype
                .values_per_element()
                == 1
        })
    }

    /// The steps that line a pair up.
    pub fn steps(&self, pair: usize) -> Option<&[layout::Step]> {
        self.steps.get(pair)?.as_deref()
    }

    /// Every other recorded tensor of either side with as many elements, paired ones in the reference's layout, nearest in execution order
    /// first. Parameters too.
    pub fn others(&self, pair: usize, elements: usize) -> Vec<Other> {
        let mut near: Vec<usize> = (0..self.entries.len())
            .filter(|other| *other != pair)
            .collect();
        near.sort_by_key(|other| other.abs_diff(pair));
        let mut others = Vec::new();
        for other in near {
            if self.entries[other].dims.iter().product::<usize>() != elements
                || self.entries[other].dims.is_empty()
            {
                continue;
            }
            let Some(loaded) = self.load(other) else {
                continue;
            };
            for (side, values) in [
                (Which::Candidate, &loaded.candidate),
                (Which::Reference, &loaded.reference),
            ] {
                let array = Arc::new(Array {
                    dims: loaded.dims.clone(),
                    values: values.clone(),
                });
                others.push(Other {
                    side,
                    name: self.name(other, side),
                    pair: Some(other),
                    array,
                });
            }
        }
        for (side, items, left) in [
            (
                Which::Candidate,
                self.candidate,
                &self.plan.pairing.only_candidate,
            ),
            (
                Which::Reference,
                self.reference,
                &self.plan.pairing.only_reference,
            ),
        ] {
            for leftover in left {
                let item = &items.items()[leftover.item];
                if numbers_in(item) != Some(elements as u64) {
                    continue;
                }
                if let Some(array) = self.item(side, leftover.item) {
                    others.push(Other {
                        side,
                        name: item.name.clone(),
                        pair: None,
                        array,
                    });
                }
            }
        }
        others
    }

    /// Every other recorded tensor of either side with as many elements, sketched, nearest in execution order first, the candidate's before
    /// the reference's.
    pub fn sketches(&self, pair: usize, elements: usize) -> Vec<Sketch> {
        let alike = |other: &usize| {
            *other != pair && self.entries[*other].dims.iter().product::<usize>() == elements
        };
        let mut near: Vec<usize> = (0..self.entries.len())
            .filter(alike)
            .filter(|other| !self.entries[*other].dims.is_empty())
            .collect();
        near.sort_by_key(|other| (other.abs_diff(pair), *other));
        near.truncate(NEAR);
        let mut sketches = Vec::new();
        for other in near {
            let Some([reference, candidate]) = self.sketch(other) else {
                continue;
            };
            for (side, values) in [(Which::Candidate, candidate), (Which::Reference, reference)] {
                let Entry {
                    dims, parameter, ..
                } = &self.entries[other];
                let name = self.name(other, side);
                sketches.push(Sketch {
                    side,
                    name,
                    pair: Some(other),
                    dims: dims.clone(),
                    parameter: *parameter,
                    values,
                    item: 0,
                });
            }
        }
        for (side, of, left) in [
            (
                Which::Candidate,
                self.candidate,
                &self.plan.pairing.only_candidate,
            ),
            (
                Which::Reference,
                self.reference,
                &self.plan.pairing.only_reference,
            ),
        ] {
            let alike = left
                .iter()
                .map(|leftover| leftover.item)
                .filter(|item| numbers_in(&of.items()[*item]) == Some(elements as u64));
            for item in alike.take(NEAR) {
                let Some(view) = of
                    .view(item)
                    .ok()
                    .map(|view| numbers::apart(Box::new(view)))
                else {
                    continue;
                };
                let Some(values) = at_scattered(&*view) else {
                    continue;
                };
                let dims = view
                    .shape()
                    .dims()
                    .iter()
                    .map(|dim| *dim as usize)
                    .collect();
                sketches.push(Sketch {
                    side,
                    name: of.items()[item].name.clone(),
                    pair: None,
                    dims,
                    parameter: false,
                    values,
                    item,
                });
            }
        }
        sketches
    }

    /// Both sides of a pair at its [`scattered`] places, reference first.
    pub fn sketch(&self, pair: usize) -> Option<[Arc<[f64]>; 2]> {
        if let Some(known) = self.cache().sketches.get(&pair) {
            return known.clone();
        }
        let read = || {
            let [reference, candidate] = self.aligned(pair)?;
            Some([at_scattered(&*reference)?, at_scattered(&*candidate)?])
        };
        let sketch = read();
        self.cache().sketches.insert(pair, sketch.clone());
        sketch
    }

    /// Whether only some rows of large tensors are left.
    pub(super) fn is_thin(&self) -> bool {
        self.thin.is_some()
    }

    /// Both sides of a pair in up to `patches` places, evenly apart, `length` values each.
    pub(super) fn patches(
        &self,
        pair: usize,
        patches: usize,
        length: usize,
    ) -> Option<[Vec<f64>; 2]> {
        let read = |operand: &dyn Operand| {
            let elements = usize::try_from(operand.len()).ok()?;
            let (length, step) = (length.min(elements), (elements / patches).max(length));
            let whole = |start: &usize| start + length <= elements;
            read_runs(
                operand,
                (0..elements).step_by(step).take(patches).filter(whole),
                length,
            )
        };
        let [reference, candidate] = self.aligned(pair)?;
        Some([read(&*reference)?, read(&*candidate)?])
    }

    pub(super) fn may_be_capped(&self, pair: usize) -> Option<bool> {
        self.cache().capped.get(&pair).copied()
    }

    pub(super) fn tell_capped(&self, pair: usize, possible: bool) {
        self.cache().capped.insert(pair, possible);
    }

    /// Runs of values of one side of a pair that begin at some places, one after another.
    fn runs(&self, pair: usize, side: Which, starts: &[usize], count: usize) -> Option<Vec<f64>> {
        // Only what the layout made is kept here: another candidate is in `instead`.
        let instead = match side {
            Which::Reference => None,
            Which::Candidate => self
                .instead
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&pair)
                .cloned(),
        };
        if let Some(loaded) = instead.or_else(|| self.cache().loaded.get(&pair).cloned()) {
            let held = OfSide(loaded, side);
            let values = held.values();
            return Some(
                starts
                    .iter()
                    .flat_map(|start| &values[*start..][..count])
                    .copied()
                    .collect(),
            );
        }
        let both = self.aligned(pair)?;
        read_runs(&*both[at_side(side)], starts.iter().copied(), count)
    }

    /// All values of a sketched tensor.
    pub fn whole(&self, sketch: &Sketch) -> Option<Vec<f64>> {
        match sketch.pair {
            None => self
                .item(sketch.side, sketch.item)
                .map(|array| array.values.clone()),
            Some(pair) => self.load(pair).map(|loaded| match sketch.side {
                Which::Candidate => loaded.candidate.clone(),
                Which::Reference => loaded.reference.clone(),
            }),
        }
    }

    /// What a pair's tensor is called on one side.
    pub fn name(&self, pair: usize, side: Which) -> String {
        let planned = &self.plan.pairing.pairs[pair];
        let (items, first) = match side {
            Which::Reference => (self.reference.items(), planned.reference.first()),
            Which::Candidate => (self.candidate.items(), planned.candidate.first()),
        };
        first
            .map(|item| items[*item].name.clone())
            .unwrap_or_default()
    }

    /// One tensor of one side as it lies in its source.
    fn item(&self, side: Which, item: usize) -> Option<Arc<Array>> {
        let candidate = side == Which::Candidate;
        if let Some(array) = self.cache().arrays.get(&(candidate, item)) {
            return Some(array.clone());
        }
        let view = if candidate {
            self.candidate
        } else {
            self.reference
        }
        .view(item)
        .ok()?;
        let array = Arc::new(Array::read(
            &*numbers::apart(Box::new(view)),
            MOST_ELEMENTS,
        )?);
        let mut cache = self.cache();
        cache.arrays.insert((candidate, item), array.clone());
        cache.keep(Key::Item(candidate, item), array.values.len());
        Some(array)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // A panic elsewhere leaves the cache as it was: entries are inserted whole.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many numbers a tensor holds.
fn numbers_in(item: &Item) -> Option<u64> {
    item.shape
        .elements()?
        .checked_mul(item.dtype.values_per_element() as u64)
}

fn at_scattered(operand: &dyn Operand) -> Option<Arc<[f64]>> {
    read_runs(operand, scattered(usize::try_from(operand.len()).ok()?), 1).map(Into::into)
}

/// As many values from each place on, one after another.
fn read_runs(
    operand: &dyn Operand,
    starts: impl Iterator<Item = usize>,
    count: usize,
) -> Option<Vec<f64>> {
    is_plain(operand).then_some(())?;
    let (mut scratch, mut run, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for start in starts {
        operand
            .f64_values(start as u64, count, &mut scratch, &mut run)
            .then_some(())?;
        values.extend_from_slice(&run);
    }
    operand.check().ok()?;
    Some(values)
}

impl Cache {
    /// A pair that is in memory, kept here or by others.
    fn held(&self, pair: usize) -> Option<Arc<Loaded>> {
        let kept = self.loaded.get(&pair).cloned();
        kept.or_else(|| self.alive.get(&pair)?.upgrade())
    }

    /// Counts what was inserted and drops the oldest beyond the room there is.
    fn keep(&mut self, key: Key, values: usize) {
        if self.order.contains(&key) {
            return;
        }
        self.order.push_back(key);
        self.kept += values;
        while self.kept > KEPT && self.order.len() > 1 {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.kept -= match oldest {
                Key::Pair(pair) => self
                    .loaded
                    .remove(&pair)
                    .map_or(0, |loaded| 2 * loaded.reference.len()),
                Key::Item(side, item) => self
                    .arrays
                    .remove(&(side, item))
                    .map_or(0, |array| array.values.len()),
            };
        }
    }
}

/// The data flow that a captured run of the reference recorded: pair, and the pairs it was computed from.
fn inputs(plan: &Plan, reference: &Side<'_>) -> Vec<(usize, Vec<usize>)> {
    let said = |item: usize, key: &str| {
        reference.items()[item]
            .meta
            .as_ref()
            .and_then(|meta| meta.get(key).cloned())
    };
    let rank = |item: usize| {
        said(item, "rank")
            .and_then(|rank| rank.as_u64())
            .unwrap_or(0)
    };
    let mut pair_of = HashMap::new();
    for (at, pair) in plan.pairing.pairs.iter().enumerate() {
        for item in &pair.reference {
            if let Some(i) = said(*item, "i").and_then(|i| i.as_u64()) {
                pair_of.insert((rank(*item), i), at);
            }
        }
    }
    let mut flow = Vec::new();
    for (at, pair) in plan.pairing.pairs.iter().enumerate() {
        let Some(first) = pair.reference.first() else {
            continue;
        };
        let Some(serde_json::Value::Array(inputs)) = said(*first, "inputs") else {
            continue;
        };
        let known = inputs
            .iter()
            .filter_map(|i| pair_of.get(&(rank(*first), i.as_u64()?)).copied());
        flow.push((at, known.collect()));
    }
    flow
}
