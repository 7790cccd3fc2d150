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

/// Mistakes that people make when they port a model, planted into the second layer of candle's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `gelu` where `gelu_erf` is meant.
    TanhGelu,
    /// Another epsilon in the norm before the MLP.
    Epsilon,
    /// Scores that are not divided by the square root of the head's size.
    NoScale,
    /// Queries and keys in each other's place.
    QueryKey,
}

impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = [
            ("gelu", Self::TanhGelu),
            ("epsilon", Self::Epsilon),
            ("scale", Self::NoScale),
            ("query-key", Self::QueryKey),
        ];
        let found = known
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, fault)| *fault);
        found.ok_or_else(|| {
            format!(
                "no fault is called `{name}`: {}",
                known.map(|(name, _)| name).join(", ")
            )
        })
    }
}
