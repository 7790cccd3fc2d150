//! The documents: serde types that the command line, the server, the page and Python read and write.
//!
//! This crate holds data and computes nothing. OpenAPI, TypeScript and Python's field names are generated from these types.
//!
//! | document | printed by | type |
//! | --- | --- | --- |
//! | comparison | `diff --json` | [`Comparison`] |
//! | batch | `diff --batch --json` | [`Batch`] |
//! | one pair in depth | `explain --json` | [`Explained`] |
//! | listing | `ls --json`, `stats --json` | [`Listing`], [`StatsListing`] |
//! | failure | any command with `--json` | [`Failed`] |
//! | rows and headline | the server's API | [`Row`], [`Headline`] |
//!
//! The order of a struct's fields is the order of its keys in JSON. Scripts compare these documents byte by byte, so fields are added,
//! never moved.

// The derives of utoipa write paths in full.
#![allow(unused_qualifications)]

mod batch;
mod cause;
mod comparison;
mod details;
mod explained;
pub mod facts;
mod failed;
pub mod formula;
mod headline;
mod kinds;
mod known;
pub mod layout;
mod listing;
mod names;
mod number;
mod rows;
mod rule;
mod totals;
mod verdict;

pub use batch::{Batch, BatchRow};
pub use cause::Cause;
pub use comparison::{
    Comparison, Finding, FirstDivergence, Leftover, MISSING_RANKS, Pair, SCHEMA, Skipped,
    Unmeasured,
};
pub use details::{Details, Extras, Facts, Then};
pub use explained::{Attempt, Explained, Measures};
pub use failed::{Failed, Fault};
pub use headline::{Counts, Headline};
pub use kinds::CauseKind;
pub use known::Known;
pub use layout::{Evidence, Layout};
pub use listing::{
    Exact, FindingRow, Listing, SkippedRow, Squares, StatsListing, StatsRow, TensorRow, ValueRow,
};
pub use names::Names;
pub use number::Number;
pub use rows::Row;
pub use rule::Rule;
pub use totals::{SideTotals, Totals, Worst};
pub use verdict::{Origin, Overall, Verdict};
