//! Everything the name of a tensor can tell: family tables, layer, stage, rank, parameter or computed, execution order, similarity.
//!
//! Strings in, judgements out. Nothing here sees a value, a shape or a pair.

mod dialects;
pub mod families;
pub mod local_experts;
mod mmdit;
pub mod name;
pub mod onnx;
pub mod order;
pub mod prefixes;
pub mod ranks;
pub mod role;
pub mod similarity;
