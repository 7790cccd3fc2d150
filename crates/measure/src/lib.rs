//! Views to numbers: mergeable states, the only hot loops. No opinions here.

mod double;
mod kernel;
mod moments;
mod simd;
pub mod stats;
pub mod totals;

pub use stats::{Counts, Number, Squares, Stats, stats};
pub use totals::{Options, Profile, SideTotals, State, Totals, Worst, totals};
