//! Views to numbers: mergeable states, the only hot loops. No opinions here.

pub mod cells;
mod double;
mod exact;
pub mod histogram;
mod kernel;
mod moments;
pub mod pool;
mod products;
mod reader;
pub mod rounding;
pub mod search;
mod simd;
pub mod stats;
pub mod totals;

pub use products::{add_times, dot};
pub use reader::{Reader, Which};
pub use simd::Level;
pub use stats::{Counts, Number, Squares, Stats, stats};
pub use totals::{
    Options, Profile, Profiling, SideTotals, State, Totals, Watch, Worst, totals, totals_watched,
};
