//! Numbers measured over a pair: one fused pass over both sides, no opinion.
//!
//! With `r` and `c` the two values as f64 and sums over elements where both are finite (`compared`): `max_abs`, `mean_abs` and `mse` of
//! `c - r`; relative per element `|c - r| / max(|r|, |c|)`, 0 when both are 0; `rel_l2 = ‖c - r‖ / ‖r‖`. A NaN equals only NaN, an
//! infinity only itself; every other element with a non-finite side counts as `differing`.
//!
//! SKELETON: the types are fixed, the pass is being written.

use twinscope_tensor::{Operand, ReadError};

/// What to measure beyond the plain totals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Error and energy for every index of every axis (`Totals::profiles`).
    pub profiles: bool,
    /// How many of the worst elements to keep.
    pub top: usize,
    /// Count elements beyond `atol + rtol * |r|`, NumPy's rule.
    pub tolerance: Option<(f64, f64)>,
}

/// One element, by its row-major place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    pub at: u64,
    pub reference: f64,
    pub candidate: f64,
}

/// What each index along one axis holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    pub axis: usize,
    /// Σ (c - r)² over compared elements.
    pub error: Vec<f64>,
    /// Σ r² over compared elements.
    pub energy: Vec<f64>,
    pub max_abs: Vec<f64>,
    pub differing: Vec<u64>,
}

/// One side of the pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SideTotals {
    pub mean: Option<f64>,
    pub std: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub nan: u64,
    pub inf: u64,
    pub zero: u64,
    /// ‖·‖ over finite elements.
    pub norm: Option<f64>,
}

/// Everything measured. Undefined is `None`, never 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub count: u64,
    pub compared: u64,
    pub differing: u64,
    /// Elements where exactly one side, or differently both, is not finite.
    pub nonfinite_differing: u64,
    pub max_abs: Option<f64>,
    pub mean_abs: Option<f64>,
    pub max_rel: Option<f64>,
    pub mean_rel: Option<f64>,
    pub mse: Option<f64>,
    pub rel_l2: Option<f64>,
    pub cosine: Option<f64>,
    pub max_ulp: Option<f64>,
    /// The first element with a non-finite difference, else the first largest `|c - r|`.
    pub worst: Option<Worst>,
    /// The worst elements, worst first, at most `Options::top`.
    pub top: Vec<Worst>,
    /// max of |c - r| / max(|r|, rms of the reference around it): an error that no mean can hide.
    pub max_local: Option<f64>,
    /// Elements beyond the tolerance, when one was given.
    pub beyond: Option<u64>,
    pub reference: SideTotals,
    pub candidate: SideTotals,
    pub profiles: Vec<Profile>,
    /// How many differences have each power of two as magnitude: `(exponent, count)`, ascending, differing elements only.
    pub magnitudes: Vec<(i32, u64)>,
    /// How many differ by 2^k .. 2^(k+1) units in the last place of the coarser dtype.
    pub ulps: Vec<(u32, u64)>,
}

/// Measures a pair of one shape.
pub fn totals(_reference: &dyn Operand, _candidate: &dyn Operand, _options: &Options) -> Result<Totals, ReadError> {
    Ok(Totals::default())
}
