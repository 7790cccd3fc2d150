//! Everything torch and pickle: zip, legacy, tar and plain pickles, TorchScript, exports, distributed checkpoints.
//!
//! Nothing in a pickle is executed: [`pickle`] turns it into a graph, [`globals`] tells what it would have called,
//! [`tensors`] understands the calls that rebuild tensors, and [`walk`] lists what is found under its names.

mod assemble;
pub(crate) mod dcp;
mod export;
mod globals;
mod layout;
pub(crate) mod legacy;
mod numpy;
mod pickle;
pub(crate) mod plain;
mod sparse;
pub(crate) mod tar;
mod tensors;
mod walk;
pub(crate) mod zero;
pub(crate) mod zip;
