//! Gets the run out of a running model: its tensors in the order they were computed, with timings and memory.
//!
//! A run is a folder that is appended to while the model runs and can be read at every moment, also after `kill -9`; it is what
//! `twinscope ls`, `diff` and the page open. The format is written down in `docs/capture.md`.
//!
//! - [`Recorder::to`] starts recording; [`record()`], [`Tap`], [`span!`], [`step`] and [`note`] find the recorder by themselves and cost one
//!   relaxed atomic load when there is none.
//! - Anything [`Recordable`] can be recorded: numbers, slices with a shape, and with the feature `candle` its tensors. burn has a crate of its own,
//!   `integrations/burn`: behind a feature it would put 500 packages into every lock file of this one.
//! - [`RunWriter`] is what is beneath: it writes one rank of a run, record by record, with no opinion on what to record.

#[cfg(feature = "candle")]
pub mod candle;
pub mod clock;
mod error;
mod filter;
mod flow;
pub mod memory;
mod queue;
mod recordable;
mod recorder;
mod span;
pub mod writer;

pub use error::CaptureError;
pub use recordable::{Element, Identity, Recordable};
pub use recorder::{
    Builder, OnFailure, Recorder, Tap, flush, is_on, memory_sample, note, record, step, wants,
};
pub use span::{Span, span};
pub use twinscope_tensor::{DType, Shape};
pub use writer::{
    MemorySample, Phase, Rank, Record, Role, RunInfo, RunWriter, SpanRecord, Summary, SyncPolicy,
};
