//! One small transformer twice: in candle and in burn, with the same weights, recorded under the same names.

pub mod burn_model;
pub mod candle_model;
pub mod weights;

/// The sizes of the model, and its input.
pub const VOCABULARY: usize = 64;
pub const HIDDEN: usize = 32;
pub const HEADS: usize = 4;
pub const MLP: usize = 64;
pub const LAYERS: usize = 2;
pub const EPSILON: f64 = 1e-5;

/// Two sequences of eight tokens.
pub const TOKENS: [[i64; 8]; 2] = [[3, 14, 15, 9, 26, 5, 35, 8], [60, 7, 8, 7, 1, 0, 33, 63]];
