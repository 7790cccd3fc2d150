//! File to source: every tensor file its users have, lazily and safely.
//!
//! [`open`] maps a file and hands its bytes to the first format that recognises them: by leading bytes, then by
//! extension. A reader returns [`contents::Contents`] from headers alone. Nothing in a file is ever executed, no length
//! in a file is believed before it is checked against the file's own size, and one bad tensor never hides the others.

mod archive;
mod cache;
mod contents;
mod error;
mod input;
mod limits;
mod open;
mod torch;

pub use cache::Cache;
pub use error::{Fault, OpenError};
pub use limits::Limits;
pub use open::{OpenOptions, open, open_bytes};
