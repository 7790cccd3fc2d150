//! From the model's thread to the disk: in order, in bounded memory.
//!
//! Whoever records copies the values and goes on; one thread writes. When more bytes wait than allowed, recording waits:
//! the model becomes as slow as the disk, never as large as its run. A tensor that alone is larger than the bound passes when nothing else waits.
//!
//! Long before that bound fresh memory is what costs: the first touch of a page takes longer than copying into it. So whoever outruns the writer by
//! some megabytes waits a moment for buffers to come back, and takes fresh ones only when they do not, because the disk is slow.

use crate::{
    CaptureError, MemorySample, OnFailure, Record, RunWriter, SpanRecord, Summary, writer::hash_of,
};
use serde_json::Value;
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Buffers kept for later.
const MOST_SPARE: usize = 1024;
/// How many of them are looked through, the last used first.
const LOOK_AT: usize = 32;
/// Bytes that may wait before it is worth waiting for buffers, or this many tensors if that is more.
const NEAR: u64 = 4 << 20;
const NEAR_TENSORS: u64 = 4;
/// How long: about what the first touch of some megabytes takes.
const PATIENCE: Duration = Duration::from_millis(8);

/// What is written.
#[derive(Debug)]
pub(crate) enum Event {
    Tensor {
        i: u64,
        record: Record,
        values: Values,
    },
    WithoutValues {
        i: u64,
        record: Record,
        why: CaptureError,
    },
    Step,
    Span(SpanRecord),
    Memory(String, MemorySample),
    Note(String, Value),
}

/// A copy of a tensor's bytes, on its way.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) bytes: Vec<u8>,
    /// Set when the writer does not keep up: who records would have to wait for it, so it hashes. Otherwise that is left to the writer.
    busy: bool,
    hash: Option<u128>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// Bytes of values that wait or are being written.
    bytes: u64,
    /// Buffers to use again: fresh memory costs a page fault every 4 KiB, more than the copy.
    spare: VecDeque<Vec<u8>>,
    spare_bytes: u64,
    next: u64,
    /// Nothing more comes.
    closed: bool,
    /// Nothing more is written: the writer failed and was told to stop, or is gone.
    failure: Option<CaptureError>,
    /// An event is being written.
    busy: bool,
    /// Bytes that may wait before fresh memory is waited with; more while the writer does not keep up.
    allowed: u64,
    /// Waking nobody costs as much as waking somebody. The writer waits for events; so many wait for room or for an end; these for buffers, until
    /// no more than so many bytes wait.
    idle: bool,
    waiting: usize,
    patient: Vec<u64>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Something waits, or nothing more comes.
    filled: Condvar,
    /// Something was written, or nothing more will be.
    drained: Condvar,
    /// Few enough bytes wait that buffers are used again.
    calm: Condvar,
    limit: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that died while it held the lock left a queue that is still whole: every change to it is one statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn near(&self, len: u64) -> u64 {
        NEAR.max(len.saturating_mul(NEAR_TENSORS)).min(self.limit)
    }

    /// Waits until something was written.
    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let mut state = self
            .drained
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    /// Waits for buffers to come back, not longer than fresh ones would cost.
    fn be_patient<'a>(&self, mut state: MutexGuard<'a, State>, len: u64) -> MutexGuard<'a, State> {
        let near = self.near(len);
        let calm = near / 2;
        if state.bytes <= calm {
            state.allowed = near;
        }
        if state.bytes == 0 || state.bytes + len <= state.allowed {
            return state;
        }
        let until = Instant::now() + PATIENCE;
        while state.failure.is_none() && state.bytes > calm {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.allowed = state.bytes + len + calm;
                return state;
            }
            state.patient.push(calm);
            state = self
                .calm
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if let Some(at) = state.patient.iter().position(|bytes| *bytes == calm) {
                state.patient.swap_remove(at);
            }
        }
        state.allowed = near;
        state
    }
}

/// The sending end, and the thread behind it.
#[derive(Debug)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Result<Summary, CaptureError>>>>,
}

impl Queue {
    pub(crate) fn start(
        writer: RunWriter,
        limit: u64,
        on_failure: OnFailure,
    ) -> Result<Self, CaptureError> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
            calm: Condvar::new(),
            limit: limit.max(1),
        });
        let theirs = Arc::clone(&shared);
        let path = writer.summary().run.clone();
        let thread = std::thread::Builder::new()
            .name("twinscope-capture".to_owned())
            .spawn(move || {
                let _gone = Gone(Arc::clone(&theirs));
                write_all(&theirs, writer, on_failure)
            })
            .map_err(|error| CaptureError::io(&path, &error, 0))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// An empty buffer for so many bytes.
    pub(crate) fn buffer(&self, bytes: usize) -> Values {
        let mut state = self.shared.be_patient(self.shared.lock(), bytes as u64);
        let busy = state.bytes >= self.shared.near(bytes as u64) / 4;
        // The one used last is the one that the processor still has at hand.
        let fits =
            |spare: &Vec<u8>| spare.capacity() >= bytes && spare.capacity() / 4 <= bytes.max(4096);
        let fitting = state.spare.iter().rev().take(LOOK_AT).position(fits);
        let spare = fitting.and_then(|back| {
            let at = state.spare.len() - 1 - back;
            state.spare.remove(at)
        });
        let bytes = match spare {
            Some(spare) => {
                state.spare_bytes -= spare.capacity() as u64;
                spare
            }
            None => {
                drop(state);
                Vec::with_capacity(bytes)
            }
        };
        Values {
            bytes,
            busy,
            hash: None,
        }
    }

    /// Waits for room, then takes the next number.
    pub(crate) fn tensor(
        &self,
        record: Record,
        mut values: Result<Values, CaptureError>,
    ) -> Result<u64, CaptureError> {
        if let Ok(values) = &mut values
            && values.busy
        {
            values.hash = Some(hash_of(&values.bytes));
        }
        let len = values.as_ref().map_or(0, |values| values.bytes.len()) as u64;
        let mut state = self.shared.lock();
        while state.failure.is_none() && state.bytes > 0 && state.bytes + len > self.shared.limit {
            state = self.shared.wait(state);
        }
        let i = state.next;
        state.next += 1;
        state.bytes += len;
        let event = match values {
            Ok(values) => Event::Tensor { i, record, values },
            Err(why) => Event::WithoutValues { i, record, why },
        };
        self.send(state, event).map(|()| i)
    }

    pub(crate) fn event(&self, event: Event) -> Result<(), CaptureError> {
        self.send(self.shared.lock(), event)
    }

    fn send(&self, mut state: MutexGuard<'_, State>, event: Event) -> Result<(), CaptureError> {
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.events.push_back(event);
        let idle = state.idle;
        drop(state);
        if idle {
            self.shared.filled.notify_one();
        }
        Ok(())
    }

    /// Waits until everything recorded so far is in the files.
    pub(crate) fn flush(&self) -> Result<(), CaptureError> {
        let mut state = self.shared.lock();
        while state.failure.is_none() && (state.busy || !state.events.is_empty()) {
            state = self.shared.wait(state);
        }
        state.failure.clone().map_or(Ok(()), Err)
    }

    /// Writes what waits and closes the run. The second call has nothing to say.
    pub(crate) fn finish(&self) -> Option<Result<Summary, CaptureError>> {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        self.shared.lock().closed = true;
        self.shared.filled.notify_one();
        Some(thread.join().unwrap_or(Err(CaptureError::Stopped)))
    }
}

/// However the writing thread ends, nobody waits for it any longer.
struct Gone(Arc<Shared>);

impl Drop for Gone {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy = false;
        state.failure.get_or_insert(CaptureError::Stopped);
        drop(state);
        self.0.drained.notify_all();
        self.0.calm.notify_all();
    }
}

fn write_all(
    shared: &Shared,
    mut writer: RunWriter,
    on_failure: OnFailure,
) -> Result<Summary, CaptureError> {
    let mut told = false;
    while let Some(event) = next(shared) {
        let (written, values) = write(&mut writer, event);
        if let Err(error) = written {
            if on_failure == OnFailure::Stop {
                shared.lock().failure = Some(error.clone());
                let _ = writer.finish();
                return Err(error);
            }
            if !std::mem::replace(&mut told, true) {
                tell(&error);
            }
        }
        done(shared, values);
    }
    writer.finish()
}

/// The one line a user sees while the model goes on.
pub(crate) fn tell(error: &CaptureError) {
    let hint = error
        .hint()
        .map(|hint| format!("; {hint}"))
        .unwrap_or_default();
    eprintln!(
        "twinscope-capture: {error}: tensors are missing from the run from here on, the model goes on{hint}"
    );
}

fn next(shared: &Shared) -> Option<Event> {
    let mut state = shared.lock();
    loop {
        if let Some(event) = state.events.pop_front() {
            state.busy = true;
            return Some(event);
        }
        if state.closed {
            return None;
        }
        state.idle = true;
        state = shared
            .filled
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
        state.idle = false;
    }
}

pub(crate) fn write(writer: &mut RunWriter, event: Event) -> (Result<(), CaptureError>, Vec<u8>) {
    let written = match event {
        Event::Tensor {
            i,
            record,
            values: Values { bytes, hash, .. },
        } => {
            let hash = hash.unwrap_or_else(|| hash_of(&bytes));
            return (writer.tensor_hashed(i, &record, &bytes, hash), bytes);
        }
        Event::WithoutValues { i, record, why } => writer
            .tensor_without_values(Some(i), &record, &why.to_string())
            .and(Err(why)),
        Event::Step => writer.step(),
        Event::Span(span) => writer.span(&span),
        Event::Memory(name, sample) => writer.memory(&name, &sample),
        Event::Note(name, value) => writer.note(&name, &value),
    };
    (written, Vec::new())
}

fn done(shared: &Shared, mut values: Vec<u8>) {
    let mut state = shared.lock();
    state.busy = false;
    state.bytes -= values.len() as u64;
    let capacity = values.capacity() as u64;
    // Half of what may wait: enough that a steady stream of tensors finds its buffers again. The oldest make room.
    if capacity > 0 && capacity <= shared.limit / 2 {
        values.clear();
        state.spare_bytes += capacity;
        state.spare.push_back(values);
        while state.spare_bytes > shared.limit / 2 || state.spare.len() > MOST_SPARE {
            let Some(oldest) = state.spare.pop_front() else {
                break;
            };
            state.spare_bytes -= oldest.capacity() as u64;
        }
    }
    let waiting = state.waiting > 0;
    let calm = state.patient.iter().any(|bytes| state.bytes <= *bytes);
    drop(state);
    if waiting {
        shared.drained.notify_all();
    }
    if calm {
        shared.calm.notify_all();
    }
}
