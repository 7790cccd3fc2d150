//! The documents: serde types that the command line, the server, the page and Python read and write.
//!
//! This crate holds data and computes nothing. OpenAPI, TypeScript and Python's field names are generated from these types.

mod cause;
mod details;
pub mod facts;
mod kinds;
mod verdict;

pub use cause::Cause;
pub use details::{Details, Extras, Facts, Then};
pub use kinds::CauseKind;
pub use verdict::{Origin, Overall, Verdict};
