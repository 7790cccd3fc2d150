//! The documents: serde types that the command line, the server, the page and Python read and write.
//!
//! This crate holds data and computes nothing. OpenAPI, TypeScript and Python's field names are generated from these types.

pub mod formula;
mod verdict;

pub use verdict::{Origin, Overall, Verdict};
