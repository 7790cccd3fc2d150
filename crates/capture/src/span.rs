//! Spans: a part of the model's path, and how long it took.
//!
//! An open span puts its name in front of everything recorded on its thread. When it closes, its time and memory are recorded.

use crate::{clock::now_ns, memory, queue::Event, recorder, writer::SpanRecord};
use std::{
    cell::RefCell,
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering},
};

thread_local! {
    /// The names of the open spans of this thread, joined with dots.
    static PATH: RefCell<String> = const { RefCell::new(String::new()) };
    static THREAD: u64 = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
}
static NEXT_THREAD: AtomicU64 = AtomicU64::new(0);

/// An open span. It closes when it is dropped, on the thread that opened it.
#[derive(Debug)]
#[must_use = "a span lasts as long as it is held: `let _span = ...`"]
pub struct Span(Option<Open>, PhantomData<*const ()>);

#[derive(Debug)]
struct Open {
    /// The path before.
    outer: String,
    at_ns: u64,
    /// What the allocator had handed out.
    allocated: Option<u64>,
}

/// Opens a span. Costs one relaxed atomic load when nothing records.
#[inline]
pub fn span(name: &str) -> Span {
    if recorder::is_on() {
        Span::open(name)
    } else {
        Span::closed()
    }
}

/// [`span()`] with a name that is only put together when something records: `span!("layers.{i}")`.
#[macro_export]
macro_rules! span {
    ($($name:tt)*) => {
        if $crate::is_on() { $crate::span(&::std::format!($($name)*)) } else { $crate::Span::closed() }
    };
}

impl Span {
    /// One that records nothing.
    #[inline]
    pub fn closed() -> Self {
        Self(None, PhantomData)
    }

    #[cold]
    fn open(name: &str) -> Self {
        Self::at(join(name))
    }

    /// At this path, whatever is open: modules that were told their full path when they were made.
    pub(crate) fn at(path: String) -> Self {
        let outer = PATH.replace(path);
        Self(
            Some(Open {
                outer,
                at_ns: now_ns(),
                allocated: memory::counted().and_then(|sample| sample.allocated),
            }),
            PhantomData,
        )
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            open.close();
        }
    }
}

impl Open {
    fn close(self) {
        let took_ns = now_ns().saturating_sub(self.at_ns);
        if let Some(session) = recorder::session().filter(|session| session.takes_step()) {
            let sample = if session.memory {
                Some(memory::sample())
            } else {
                memory::counted()
            };
            let mut span = SpanRecord {
                name: path(),
                at_ns: self.at_ns,
                took_ns,
                thread: THREAD.with(|thread| *thread),
                memory: sample,
                ..SpanRecord::default()
            };
            if let (Some(before), Some(after)) =
                (self.allocated, sample.and_then(|sample| sample.allocated))
            {
                span.more.insert(
                    "span_allocated".to_owned(),
                    after.saturating_sub(before).into(),
                );
            }
            // What cannot be written is told by the recorder; a span that closes has nobody to tell.
            let _ = session.event(Event::Span(span));
        }
        PATH.set(self.outer);
    }
}

/// The open spans of this thread.
pub(crate) fn path() -> String {
    PATH.with_borrow(Clone::clone)
}

/// A name behind the open spans.
pub(crate) fn join(name: &str) -> String {
    PATH.with_borrow(|path| match (path.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (false, true) => path.clone(),
        (false, false) => format!("{path}.{name}"),
    })
}
