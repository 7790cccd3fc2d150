//! One recorded run -> how each of its tensors was made.
//!
//! Names say little about what was computed, so a formula is found by the values: the tensors recorded before one are tried as inputs of every
//! op in [`ALL`], and the formula that reproduces the tensor to rounding is believed ([`learn`]). It is a typed tree, and a function that
//! computes the tensor from the inputs of any run with the same tensors.
//!
//! This crate sees one [`Run`] at a time. Comparing two of them is up to its users.

pub mod array;
mod attention;
mod blend;
mod broadcast;
mod change;
mod coarse;
mod concat;
pub mod constants;
mod copy;
pub mod functions;
mod glimpse;
mod learned;
mod linear;
mod lookup;
mod modulate;
mod norm;
mod recorded;
mod rope;
pub mod rows;
mod run;
pub mod sampling;
mod site;
mod softmax;
mod sums;
pub mod thin;
mod unary;

pub use change::{Change, Modulation, NormWeight, Rotation, Scaled, WeightChange};
pub use coarse::{Unit, Way, nearest};
pub use glimpse::Glimpse;
pub use learned::{
    ALL, Alternative, Alternatives, Learned, OnRun, Op, Picked, Predict, Trust, Try, every_op,
    learn,
};
pub use recorded::{KEPT_WHOLE, Recorded};
pub use run::{Hold, Input, MOST_ELEMENTS, Memo, Run, Tensor, Values};
pub use sampling::scattered;
pub use site::{Ask, Effort, MOST_WORK, Out, Site, WHOLE, own_floor};

use array::rms;
use twinscope_measure::rounding::{Measures, Rowwise};

/// How a tensor of a run was made; `None` when no formula over what is recorded makes it.
pub fn made_by(run: &dyn Run, at: usize) -> Option<Learned<'_>> {
    let site = Site::new(run, at, Ask::default())?;
    learn(&site, &every_op(&site), Trust::AllRows)
        .into_iter()
        .next()
}

/// The four measures of [`twinscope_measure::rounding`] for two arrays of one shape: how far `values` are from what was `expected`.
pub fn measures(dims: &[usize], expected: &[f64], values: &[f64]) -> Measures {
    let mut state = Rowwise::new(dims, rms(expected));
    state.add(0, expected, values);
    state.measures()
}
