//! The run format, written: a folder that is appended to and readable at every moment, also after `kill -9`.
//!
//! [`RunWriter`] writes one rank of a run on the caller's thread; what to record, when, and on which thread is
//! [`crate::Recorder`]'s affair. The format is written down in `docs/capture.md`.

mod index;
mod info;
mod line;
mod record;
mod run_writer;
mod segment;

pub use info::{Rank, RunInfo};
pub use record::{Phase, Record, Role};
pub(crate) use run_writer::hash_of;
pub use run_writer::{MemorySample, RunWriter, SpanRecord, Summary, SyncPolicy};
