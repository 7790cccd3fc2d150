//! The recorder: ambient, scoped, one to a process.
//!
//! [`Recorder::to`] starts it, dropping it closes the run. In between [`record`], [`span`] and [`step`] find it by themselves, from any thread.
//! Without a recorder each of them is one relaxed atomic load.

use crate::{
    CaptureError, Identity, Rank, Record, Recordable, Role, RunInfo, RunWriter, Summary,
    SyncPolicy,
    filter::Filter,
    flow::Flow,
    queue::{self, Event, Queue},
    span,
};
use serde_json::Value;
use std::{
    collections::HashMap,
    ops::RangeBounds,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

static ON: AtomicBool = AtomicBool::new(false);
static SESSION: RwLock<Option<Arc<Session>>> = RwLock::new(None);

/// Bytes that may wait for the disk.
const QUEUE_BYTES: u64 = 256 << 20;
/// Bytes of tensors that are held to know data flow by.
const FLOW_BYTES: u64 = 256 << 20;

/// What happens when the run cannot be written, because the disk is full or gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The model goes on. One line on stderr says so, the run says which tensors are missing.
    #[default]
    Continue,
    /// Recording returns the error, which stops a model that uses `?`.
    Stop,
}

/// A running recorder. Dropping it writes what waits and closes the run; [`Recorder::finish`] does the same and tells.
#[derive(Debug)]
#[must_use = "dropping the recorder ends the capture"]
pub struct Recorder {
    session: Arc<Session>,
}

impl Recorder {
    /// A run in this folder.
    pub fn to(run: impl AsRef<Path>) -> Builder {
        Builder::new(run.as_ref())
    }

    /// Waits until everything recorded so far is in the files.
    pub fn flush(&self) -> Result<(), CaptureError> {
        self.session.flush()
    }

    /// Writes what waits, closes the run, and says what is in it.
    pub fn finish(self) -> Result<Summary, CaptureError> {
        self.end().unwrap_or(Err(CaptureError::Stopped))
    }

    fn end(&self) -> Option<Result<Summary, CaptureError>> {
        let mut current = SESSION.write().unwrap_or_else(PoisonError::into_inner);
        if current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, &self.session))
        {
            ON.store(false, Ordering::SeqCst);
            *current = None;
        }
        drop(current);
        self.session.finish()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.end() {
            eprintln!("twinscope-capture: {error}");
        }
    }
}

/// What to record, and where.
#[derive(Clone, Debug)]
pub struct Builder {
    run: PathBuf,
    info: RunInfo,
    rank: Option<Rank>,
    filter: Filter,
    queue_bytes: u64,
    flow_bytes: u64,
    segment_bytes: Option<u64>,
    immediate: bool,
    overwrite: bool,
    memory: bool,
    on_failure: OnFailure,
    sync: SyncPolicy,
}

impl Builder {
    fn new(run: &Path) -> Self {
        Self {
            run: run.to_owned(),
            info: RunInfo::default(),
            rank: None,
            filter: Filter::default(),
            queue_bytes: QUEUE_BYTES,
            flow_bytes: FLOW_BYTES,
            segment_bytes: None,
            immediate: false,
            overwrite: false,
            memory: false,
            on_failure: OnFailure::default(),
            sync: SyncPolicy::default(),
        }
    }

    /// What the run is called on screen.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.info.label = Some(label.into());
        self
    }

    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.info.model = Some(model.into());
        self
    }

    pub fn framework(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.info.framework = Some((name.into(), version.into()));
        self
    }

    /// Anything else about the run: seed, prompt, settings.
    pub fn about(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.info.more.insert(key.into(), value.into());
        self
    }

    /// Which process of how many. Not said: what `RANK` and `WORLD_SIZE` (or SLURM, or MPI) say.
    pub fn rank(mut self, rank: Rank) -> Self {
        self.rank = Some(rank);
        self
    }

    /// Only names that match one of the included patterns: `*` is any text, `?` one character.
    pub fn include(mut self, pattern: &str) -> Self {
        self.filter.include(pattern);
        self
    }

    /// No names that match, also not included ones.
    pub fn exclude(mut self, pattern: &str) -> Self {
        self.filter.exclude(pattern);
        self
    }

    /// Only these roles.
    pub fn roles(mut self, roles: &[Role]) -> Self {
        self.filter.roles(roles);
        self
    }

    /// Not these roles.
    pub fn without(mut self, roles: &[Role]) -> Self {
        self.filter.without_roles(roles);
        self
    }

    /// Only these steps; several ranges may be asked for.
    pub fn steps(mut self, steps: impl RangeBounds<u64>) -> Self {
        self.filter.steps(steps);
        self
    }

    /// Only steps 0, n, 2n, ...
    pub fn every(mut self, n: u64) -> Self {
        self.filter.every_step(n);
        self
    }

    /// Only the first n calls of each name in a step.
    pub fn calls(mut self, n: u64) -> Self {
        self.filter.calls(n);
        self
    }

    /// How many bytes may wait for the disk before recording waits: 256 MiB if not said.
    pub fn queue_bytes(mut self, bytes: u64) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// How many bytes of recorded tensors are held to know what was computed from what: 256 MiB if not said. 0 turns it off.
    pub fn flow_bytes(mut self, bytes: u64) -> Self {
        self.flow_bytes = bytes;
        self
    }

    /// Closes segments at this many bytes instead of 1 GiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = Some(bytes);
        self
    }

    /// Writes on the thread that records: slower, but what was recorded is in the files even when the process is killed the next
    /// instant. Otherwise what still waits for the disk is lost then.
    pub fn immediate(mut self) -> Self {
        self.immediate = true;
        self
    }

    /// Replaces a run that is already there.
    pub fn overwrite(mut self) -> Self {
        self.overwrite = true;
        self
    }

    /// Asks the operating system for the process's memory at the end of every span, which takes some microseconds each.
    pub fn memory(mut self) -> Self {
        self.memory = true;
        self
    }

    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = policy;
        self
    }

    pub fn sync(mut self, policy: SyncPolicy) -> Self {
        self.sync = policy;
        self
    }

    /// Begins. One recorder runs at a time: it is found by everything in the process.
    pub fn start(self) -> Result<Recorder, CaptureError> {
        let mut current = SESSION.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = current.as_ref() {
            return Err(CaptureError::Busy {
                path: other.run.clone(),
            });
        }
        let session = Arc::new(self.session()?);
        *current = Some(Arc::clone(&session));
        ON.store(true, Ordering::SeqCst);
        Ok(Recorder { session })
    }

    fn session(self) -> Result<Session, CaptureError> {
        let rank = self.rank.map_or_else(Rank::from_env, Ok)?;
        if self.overwrite {
            RunWriter::remove(&self.run, &rank)?;
        }
        let mut writer = RunWriter::create(&self.run, &self.info, &rank)?.sync(self.sync);
        if let Some(bytes) = self.segment_bytes {
            writer = writer.segment_bytes(bytes);
        }
        let sink = if self.immediate {
            Sink::Immediate(Box::new(Mutex::new(Immediate {
                writer: Some(writer),
                next: 0,
                on_failure: self.on_failure,
                failure: None,
                told: false,
            })))
        } else {
            Sink::Queue(Queue::start(writer, self.queue_bytes, self.on_failure)?)
        };
        Ok(Session {
            run: self.run,
            filter: self.filter,
            sink,
            step: AtomicU64::new(0),
            calls: Mutex::default(),
            flow: Mutex::new(Flow::new(self.flow_bytes)),
            memory: self.memory,
            on_failure: self.on_failure,
        })
    }
}

/// Whether a recorder is running.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

#[cold]
pub(crate) fn session() -> Option<Arc<Session>> {
    SESSION
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Records a tensor under this name, behind the names of the spans that are open.
///
/// ```
/// # fn main() -> Result<(), twinscope_capture::CaptureError> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let run = folder.path().join("run_a");
/// use twinscope_capture::{record, span, Recorder};
/// let _recorder = Recorder::to(run).label("reference").start()?;
/// for layer in 0..2 {
///     let _span = span!("layers.{layer}");
///     record("mlp", &vec![0.5f32, 1.5])?; // layers.0.mlp, layers.1.mlp
/// }
/// # Ok(())
/// # }
/// ```
#[inline]
pub fn record<T: Recordable + ?Sized>(name: &str, tensor: &T) -> Result<(), CaptureError> {
    if is_on() {
        Tap::new(name).record(tensor)
    } else {
        Ok(())
    }
}

/// The next step begins: the next token, the next batch.
#[inline]
pub fn step() -> Result<(), CaptureError> {
    if !is_on() {
        return Ok(());
    }
    session().map_or(Ok(()), |session| session.next_step())
}

/// Keeps a fact with the run: tokens, a loss, a prompt.
#[inline]
pub fn note(name: &str, value: impl Into<Value>) -> Result<(), CaptureError> {
    if !is_on() {
        return Ok(());
    }
    session().map_or(Ok(()), |session| {
        session.event(Event::Note(name.to_owned(), value.into()))
    })
}

/// Keeps how much memory the process uses now.
#[inline]
pub fn memory_sample() -> Result<(), CaptureError> {
    if !is_on() {
        return Ok(());
    }
    session().map_or(Ok(()), |session| {
        session.event(Event::Memory(span::path(), crate::memory::sample()))
    })
}

/// Waits until everything recorded so far is in the files.
pub fn flush() -> Result<(), CaptureError> {
    session().map_or(Ok(()), |session| session.flush())
}

/// One recording with more to say than a name.
///
/// ```
/// # fn main() -> Result<(), twinscope_capture::CaptureError> {
/// use twinscope_capture::{Role, Tap};
/// # let (probabilities, q, k) = (vec![1f32], vec![1f32], vec![1f32]);
/// Tap::new("attn").role(Role::Attention).dims("b h s t").from(&q).from(&k).record(&probabilities)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a tap records nothing by itself"]
pub struct Tap {
    record: Record,
    absolute: bool,
    from: Vec<usize>,
}

impl Tap {
    pub fn new(name: impl Into<String>) -> Self {
        // What it is made of is asked of the tensor when there is one.
        Self {
            record: Record::new(name, twinscope_tensor::DType::U8, Vec::new()),
            absolute: false,
            from: Vec::new(),
        }
    }

    /// The name is the full path: open spans are not put in front.
    pub fn absolute(mut self) -> Self {
        self.absolute = true;
        self
    }

    pub fn role(mut self, role: Role) -> Self {
        self.record.role = role;
        self
    }

    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.record.arg = arg.into();
        self
    }

    pub fn dims(mut self, dims: impl Into<String>) -> Self {
        self.record.dims = Some(dims.into());
        self
    }

    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.record.class = Some(class.into());
        self
    }

    pub fn op(mut self, op: impl Into<String>) -> Self {
        self.record.op = Some(op.into());
        self
    }

    pub fn phase(mut self, phase: crate::Phase) -> Self {
        self.record.phase = Some(phase);
        self
    }

    /// How long computing it took.
    pub fn took(mut self, time: std::time::Duration) -> Self {
        self.record.took_ns = Some(time.as_nanos() as u64);
        self
    }

    /// It was computed from this tensor. What was not recorded, or so long ago that nobody knows, is left out.
    pub fn from<T: Recordable + ?Sized>(mut self, input: &T) -> Self {
        if is_on()
            && let Some(identity) = input.identity()
        {
            self.from.push(identity.storage);
        }
        self
    }

    /// It was computed from the record of this number.
    pub fn from_record(mut self, i: u64) -> Self {
        self.record.inputs.push(i);
        self
    }

    pub fn record<T: Recordable + ?Sized>(self, tensor: &T) -> Result<(), CaptureError> {
        self.record_numbered(tensor).map(drop)
    }

    /// The record's number, for [`Tap::from_record`]; `None` when it was not recorded.
    pub fn record_numbered<T: Recordable + ?Sized>(
        self,
        tensor: &T,
    ) -> Result<Option<u64>, CaptureError> {
        if !is_on() {
            return Ok(None);
        }
        let Some(session) = session() else {
            return Ok(None);
        };
        let tap = self.placed();
        session.record(tap.record, &tap.from, tensor)
    }

    /// Takes its place in the spans that are open now, whenever it records.
    pub fn placed(mut self) -> Self {
        if !self.absolute {
            self.record.name = span::join(&self.record.name);
        }
        self.absolute = true;
        self
    }
}

/// Whether a tensor of this name (behind the open spans) and role would be recorded now: to save the work of getting at it.
pub fn wants(name: &str, role: Role) -> bool {
    is_on() && session().is_some_and(|session| session.takes(&span::join(name), role))
}

/// A recorder at work.
#[derive(Debug)]
pub(crate) struct Session {
    run: PathBuf,
    filter: Filter,
    sink: Sink,
    step: AtomicU64,
    /// How often each name was taken in this step; only counted when it matters.
    calls: Mutex<HashMap<(String, Role, String), u64>>,
    flow: Mutex<Flow>,
    pub(crate) memory: bool,
    on_failure: OnFailure,
}

#[derive(Debug)]
enum Sink {
    Queue(Queue),
    Immediate(Box<Mutex<Immediate>>),
}

#[derive(Debug)]
struct Immediate {
    writer: Option<RunWriter>,
    next: u64,
    on_failure: OnFailure,
    failure: Option<CaptureError>,
    told: bool,
}

impl Session {
    fn takes(&self, name: &str, role: Role) -> bool {
        self.filter.takes_step(self.step.load(Ordering::Relaxed))
            && self.filter.takes_role(role)
            && self.filter.takes_name(name)
    }

    /// Whether spans are kept in this step.
    pub(crate) fn takes_step(&self) -> bool {
        self.filter.takes_step(self.step.load(Ordering::Relaxed))
    }

    fn record<T: Recordable + ?Sized>(
        &self,
        mut record: Record,
        from: &[usize],
        tensor: &T,
    ) -> Result<Option<u64>, CaptureError> {
        if !self.takes(&record.name, record.role) || !self.takes_call(&mut record) {
            return Ok(None);
        }
        record.dtype = tensor.dtype();
        record.shape = tensor.shape();
        record.at_ns = Some(crate::clock::now_ns());
        record.device = tensor.device().map(std::borrow::Cow::into_owned);
        self.inputs(&mut record, from);
        let (name, role) = (record.name.clone(), record.role);
        match self.send(record, tensor) {
            Ok(i) => {
                self.remember(&name, role, tensor.identity(), i);
                Ok(Some(i))
            }
            Err(error) => self.allowed(error).map(|()| None),
        }
    }

    /// A limit on calls needs them counted before, not behind, the filter.
    fn takes_call(&self, record: &mut Record) -> bool {
        let Some(limit) = self.filter.call_limit() else {
            return true;
        };
        let mut calls = lock(&self.calls);
        let seen = calls
            .entry((record.name.clone(), record.role, record.arg.clone()))
            .or_default();
        let call = *seen;
        *seen += 1;
        record.call = Some(call);
        call < limit
    }

    fn inputs(&self, record: &mut Record, from: &[usize]) {
        let flow = lock(&self.flow);
        record
            .inputs
            .extend(from.iter().filter_map(|storage| flow.record_at(*storage)));
        if record.role == Role::Output {
            record
                .inputs
                .extend_from_slice(flow.weights_of(&record.name));
        }
        let mut seen = std::collections::HashSet::new();
        record.inputs.retain(|i| seen.insert(*i));
    }

    fn remember(&self, name: &str, role: Role, identity: Option<Identity>, i: u64) {
        let mut flow = lock(&self.flow);
        // Weights are known by their module; to hold them all would leave no room for what flows.
        match identity {
            _ if role == Role::Weight => flow.weight(name, i),
            Some(identity) => flow.remember(identity, i),
            None => {}
        }
    }

    fn send<T: Recordable + ?Sized>(
        &self,
        record: Record,
        tensor: &T,
    ) -> Result<u64, CaptureError> {
        match &self.sink {
            Sink::Queue(queue) => {
                let bytes = record
                    .shape
                    .elements()
                    .and_then(|elements| record.dtype.byte_len(elements))
                    .unwrap_or(0);
                let mut values = queue.buffer(usize::try_from(bytes).unwrap_or(0));
                let read = tensor.with_values(&mut |bytes| values.bytes.extend_from_slice(bytes));
                queue.tensor(record, read.map(|()| values))
            }
            Sink::Immediate(immediate) => lock(immediate).tensor(&record, tensor),
        }
    }

    pub(crate) fn event(&self, event: Event) -> Result<(), CaptureError> {
        let sent = match &self.sink {
            Sink::Queue(queue) => queue.event(event),
            Sink::Immediate(immediate) => {
                lock(immediate).write(|writer| queue::write(writer, event).0)
            }
        };
        sent.or_else(|error| self.allowed(error))
    }

    /// A model that is to go on hears of no error, also not of a thread that records while the recorder is being dropped.
    fn allowed(&self, error: CaptureError) -> Result<(), CaptureError> {
        if self.on_failure == OnFailure::Stop {
            Err(error)
        } else {
            Ok(())
        }
    }

    fn next_step(&self) -> Result<(), CaptureError> {
        self.step.fetch_add(1, Ordering::Relaxed);
        lock(&self.calls).clear();
        self.event(Event::Step)
    }

    fn flush(&self) -> Result<(), CaptureError> {
        match &self.sink {
            Sink::Queue(queue) => queue.flush(),
            Sink::Immediate(_) => Ok(()),
        }
    }

    fn finish(&self) -> Option<Result<Summary, CaptureError>> {
        match &self.sink {
            Sink::Queue(queue) => queue.finish(),
            Sink::Immediate(immediate) => {
                let mut immediate = lock(immediate);
                let summary = immediate.writer.take()?.finish();
                Some(immediate.failure.take().map_or(summary, Err))
            }
        }
    }
}

impl Immediate {
    fn tensor<T: Recordable + ?Sized>(
        &mut self,
        record: &Record,
        tensor: &T,
    ) -> Result<u64, CaptureError> {
        let i = self.next;
        self.next += 1;
        self.write(|writer| {
            let mut written = Ok(());
            let read = tensor
                .with_values(&mut |values| written = writer.tensor_numbered(i, record, values));
            if let Err(error) = read {
                writer.tensor_without_values(Some(i), record, &error.to_string())?;
                return Err(error);
            }
            written
        })?;
        Ok(i)
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut RunWriter) -> Result<(), CaptureError>,
    ) -> Result<(), CaptureError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let Some(writer) = &mut self.writer else {
            return Err(CaptureError::Stopped);
        };
        let Err(error) = write(writer) else {
            return Ok(());
        };
        if self.on_failure == OnFailure::Stop {
            self.failure = Some(error.clone());
            return Err(error);
        }
        if !std::mem::replace(&mut self.told, true) {
            queue::tell(&error);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Recording never leaves what it locks half changed, so a thread that panicked elsewhere does not take the run with it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
