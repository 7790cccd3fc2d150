//! Source and source to report: which tensors correspond, how they line up, how far apart they are, whether that is rounding, and where
//! the divergence starts. Prints nothing, opens nothing.
//!
//! Three stages that share no state: *plan* (pairs and layouts from headers and sketches), *work* (one item a pair, independent and
//! repeatable), *merge* (fixed order). `diff` runs them in one process; nothing in them needs that.

pub mod alone;
pub mod evidence;
pub mod facts;
pub mod job;
pub mod judged;
pub mod layout;
pub mod mapfile;
pub mod missing;
pub mod noise;
pub mod pairing;
pub mod plan;
mod precision;
pub mod settings;
pub mod side;
pub mod upstream;
pub mod verdict;
pub mod work;

pub use alone::plan_alone;
pub use job::{Job, Sources, compare};
pub use judged::{Judged, JudgedPair, Overall};
pub use settings::{Rule, Settings};
pub use side::Side;
pub use verdict::{Origin, Verdict};
