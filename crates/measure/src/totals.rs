//! Numbers measured over a pair: one fused pass over both sides, no opinion.
//!
//! With `r` and `c` the two values as f64 and sums over elements where both are finite (`compared`): `max_abs`, `mean_abs` and `mse` of
//! `c - r`; relative per element `|c - r| / max(|r|, |c|)`, 0 when both are 0; `rel_l2 = ‖c - r‖ / ‖r‖`. A NaN equals only NaN, an
//! infinity only itself; every other element with a non-finite side counts as `differing`.
//!
//! Floats are compared as `f64`, which holds them all; integers, booleans and 64-bit values exactly, also against floats; complex numbers by
//! `|c - r|`, one number each; strings and records are equal or differ. Sums are within `1e-12` of the sum of their absolute values; squares
//! beyond the range of `f64` are measured scaled.
//!
//! Work is split every [`CHUNK`] elements and merged in a fixed order, so 1 and 64 threads print the same digits ([`State`]). Memory does
//! not grow with the tensor: profiles are bounded by its sizes, everything else by the chunk.

mod columns;
mod fast;
mod grid;
mod histogram;
mod profile;
mod read;
mod scaled;
mod state;
mod worst;

pub(crate) use fast::{Asked, Block, Known, Light, Part};
pub(crate) use grid::Grid;
pub(crate) use profile::Cell;
pub use read::Incommensurable;
pub(crate) use read::{Sort, Values};
pub use state::State;

use serde::{Deserialize, Serialize};
use twinscope_tensor::{Operand, ReadError};

/// Elements that one thread takes at a time.
pub const CHUNK: u64 = 1 << 16;

/// What to measure beyond the plain totals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Error and energy for every index of every axis (`Totals::profiles`).
    pub profiles: Profiling,
    /// How many of the worst elements to keep.
    pub top: usize,
    /// Count elements beyond `atol + rtol * |r|`, NumPy's rule.
    pub tolerance: Option<(f64, f64)>,
}

/// How much a pair's profiles are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profiling {
    Off,
    /// Inner axes of large tensors from some of the rows, scaled: enough to judge by, at the speed of memory.
    Sampled,
    /// Of every element: what is shown.
    Whole,
}

/// One element, by its row-major place. What is not a number has NaN for its values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    pub at: u64,
    /// The value; of a complex number the real part.
    #[serde(with = "crate::exact")]
    pub reference: f64,
    #[serde(with = "crate::exact")]
    pub candidate: f64,
    /// The imaginary parts, reference and candidate, of complex numbers.
    #[serde(with = "crate::exact::two")]
    pub imaginary: Option<[f64; 2]>,
    /// Reference and candidate where they are integers that no `f64` holds: what `reference` and `candidate` say is then rounded.
    pub integers: [Option<i128>; 2],
}

impl Worst {
    /// Both values in all their digits, where an `f64` has not enough of them, or a complex number has two of it: `1-2.5j`.
    pub fn exact(&self) -> Option<[String; 2]> {
        if let Some([reference, candidate]) = self.imaginary {
            let word = |x: f64| match x {
                x if x.is_infinite() => format!("{}Infinity", if x < 0.0 { "-" } else { "" }),
                x => x.to_string(),
            };
            let complex = |re: f64, im: f64| {
                format!(
                    "{}{}{}j",
                    word(re),
                    if im.is_sign_negative() && !im.is_nan() {
                        ""
                    } else {
                        "+"
                    },
                    word(im)
                )
            };
            return Some([
                complex(self.reference, reference),
                complex(self.candidate, candidate),
            ]);
        }
        let text = |(integer, float): (Option<i128>, f64)| match integer {
            Some(integer) => integer.to_string(),
            None if float.is_infinite() => {
                if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
            }
            // Every digit of a whole one, not the fewest that mean it: it is held against the integer beside it.
            None if float.fract() == 0.0 => format!("{float:.0}"),
            None => float.to_string(),
        };
        let [reference, candidate] = self.integers;
        self.integers
            .iter()
            .any(Option::is_some)
            .then(|| [(reference, self.reference), (candidate, self.candidate)].map(text))
    }
}

/// What each index along one axis holds.
///
/// Of a tensor of more than 1,048,576 elements the innermost axes are measured on up to one row of 64, at least 64 rows, and `error`,
/// `energy` and `differing` are multiplied to stand for all: what one index holds compared to another, which is what a profile is
/// for, stays visible. All other axes, and all totals, are exact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// How many differences have each power of two as magnitude: `(exponent, count)`, ascending, differing elements only. This and
    /// `ulps` are exact for the first 262,144 elements; of the rest every 64th block of 4096 is counted, times 64.
    pub magnitudes: Vec<(i32, u64)>,
    /// How many differ by 2^k .. 2^(k+1) units in the last place of the coarser dtype.
    pub ulps: Vec<(u32, u64)>,
}

/// Measures a pair of one shape on rayon's current threads.
///
/// # Panics
/// When the shapes are not equal: pairing and layout make them so.
pub fn totals(
    reference: &dyn Operand,
    candidate: &dyn Operand,
    options: &Options,
) -> Result<Totals, ReadError> {
    Ok(State::of_range(reference, candidate, 0..reference.len(), options)?.finish())
}

/// Told, from many threads, how many more elements were measured; says whether to go on.
pub type Watch<'a> = dyn Fn(u64) -> bool + Sync + 'a;

/// As [`totals`], with someone to tell after every chunk of a pair of several. `None` when they said that it is enough.
///
/// # Panics
/// As [`totals`].
pub fn totals_watched(
    reference: &dyn Operand,
    candidate: &dyn Operand,
    options: &Options,
    watch: &Watch<'_>,
) -> Result<Option<Totals>, ReadError> {
    let state = State::of_range_watched(
        reference,
        candidate,
        0..reference.len(),
        options,
        Some(watch),
    )?;
    Ok(state.map(State::finish))
}
