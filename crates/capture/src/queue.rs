//! From the model's thread to the disk: in order, in bounded memory.
//!
//! Whoever records copies the values and goes on; one thread writes. When more bytes wait than allowed, recording waits:
//! the model becomes as slow as the disk, never as large as its run. A tensor that alone is larger than the bound passes when nothing else waits.

use crate::{CaptureError, MemorySample, OnFailure, Record, RunWriter, SpanRecord, Summary};
use serde_json::Value;
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

/// Buffers kept for later: they are looked through one by one.
const MOST_SPARE: usize = 64;

/// What is written.
#[derive(Debug)]
pub(crate) enum Event {
    Tensor { i: u64, record: Record, values: Vec<u8> },
    WithoutValues { i: u64, record: Record, why: CaptureError },
    Step,
    Span(SpanRecord),
    Memory(String, MemorySample),
    Note(String, Value),
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// Bytes of values that wait or are being written.
    bytes: u64,
    /// Buffers to use again: fresh memory costs a page fault every 4 KiB, more than the copy.
    spare: Vec<Vec<u8>>,
    spare_bytes: u64,
    next: u64,
    /// Nothing more comes.
    closed: bool,
    /// Nothing more is written: the writer failed and was told to stop, or is gone.
    failure: Option<CaptureError>,
    /// An event is being written.
    busy: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Something waits, or nothing more comes.
    filled: Condvar,
    /// Something was written, or nothing more will be.
    drained: Condvar,
    limit: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that died while it held the lock left a queue that is still whole: every change to it is one statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end, and the thread behind it.
#[derive(Debug)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Result<Summary, CaptureError>>>>,
}

impl Queue {
    pub(crate) fn start(writer: RunWriter, limit: u64, on_failure: OnFailure) -> Result<Self, CaptureError> {
        let shared = Arc::new(Shared { state: Mutex::default(), filled: Condvar::new(), drained: Condvar::new(), limit: limit.max(1) });
        let theirs = Arc::clone(&shared);
        let path = writer.summary().run.clone();
        let thread = std::thread::Builder::new()
            .name("twinscope-capture".to_owned())
            .spawn(move || {
                let _gone = Gone(Arc::clone(&theirs));
                write_all(&theirs, writer, on_failure)
            })
            .map_err(|error| CaptureError::io(&path, &error, 0))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// An empty buffer for so many bytes.
    pub(crate) fn buffer(&self, bytes: usize) -> Vec<u8> {
        let mut state = self.shared.lock();
        let fitting = state.spare.iter().position(|spare| spare.capacity() >= bytes && spare.capacity() / 4 <= bytes.max(4096));
        match fitting {
            Some(at) => {
                let spare = state.spare.remove(at);
                state.spare_bytes -= spare.capacity() as u64;
                spare
            }
            None => Vec::with_capacity(bytes),
        }
    }

    /// Waits for room, then takes the next number.
    pub(crate) fn tensor(&self, record: Record, values: Result<Vec<u8>, CaptureError>) -> Result<u64, CaptureError> {
        let len = values.as_ref().map_or(0, Vec::len) as u64;
        let mut state = self.shared.lock();
        while state.failure.is_none() && state.bytes > 0 && state.bytes + len > self.shared.limit {
            state = self.shared.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
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
        drop(state);
        self.shared.filled.notify_one();
        Ok(())
    }

    /// Waits until everything recorded so far is in the files.
    pub(crate) fn flush(&self) -> Result<(), CaptureError> {
        let mut state = self.shared.lock();
        while state.failure.is_none() && (state.busy || !state.events.is_empty()) {
            state = self.shared.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.clone().map_or(Ok(()), Err)
    }

    /// Writes what waits and closes the run. The second call has nothing to say.
    pub(crate) fn finish(&self) -> Option<Result<Summary, CaptureError>> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()?;
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
    }
}

fn write_all(shared: &Shared, mut writer: RunWriter, on_failure: OnFailure) -> Result<Summary, CaptureError> {
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
    let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    eprintln!("twinscope-capture: {error}: tensors are missing from the run from here on, the model goes on{hint}");
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
        state = shared.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

pub(crate) fn write(writer: &mut RunWriter, event: Event) -> (Result<(), CaptureError>, Vec<u8>) {
    let written = match event {
        Event::Tensor { i, record, values } => return (writer.tensor_numbered(i, &record, &values), values),
        Event::WithoutValues { i, record, why } => writer.tensor_without_values(Some(i), &record, &why.to_string()).and(Err(why)),
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
        state.spare.push(values);
        while state.spare_bytes > shared.limit / 2 || state.spare.len() > MOST_SPARE {
            let oldest = state.spare.remove(0);
            state.spare_bytes -= oldest.capacity() as u64;
        }
    }
    drop(state);
    shared.drained.notify_all();
}
