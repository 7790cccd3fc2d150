//! A small transformer that can be broken on purpose: the demo and the test bed.
//!
//! A [`Spec`] says what to run and which of the [`FAULTS`] to plant; [`run`] gives a [`Run`], a source whose tensors are in the order
//! they were computed. Random weights, fixed by the seed, no file, no framework, milliseconds. Every fault says where it shows first and
//! which causes are a right answer, so that a test can ask both of a comparison.
//!
//! ```
//! use twinscope_demo::{Fault, Spec, run};
//! use twinscope_tensor::TensorSource;
//!
//! let fault = Fault::named("rope_theta").unwrap();
//! let spec = Spec::default().with_fault(fault, Some(1))?;
//! let (reference, candidate) = (run(&spec.reference())?, run(&spec)?);
//! assert_eq!(reference.listing().tensors.len(), candidate.listing().tensors.len());
//! assert_eq!(fault.first(&spec, 1), "1_query_final");
//! # Ok::<(), twinscope_demo::SpecError>(())
//! ```

mod arithmetic;
mod array;
mod faults;
mod forward;
mod ops;
mod plan;
mod random;
mod run;
mod spec;
mod weights;

pub use faults::{FAULTS, Fault, Outcome};
pub use run::{Run, run};
pub use spec::{Model, Planted, Record, Spec, SpecError};
