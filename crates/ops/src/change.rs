//! What a run may have computed instead of a formula: faults that have a name. Tensors are indices of the run.

use crate::coarse::{Unit, Way};
use twinscope_tensor::formula::{Constant, Formula, Function, Mask, Norm, Pairing, ScoreBias};

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A term of a sum has a factor: 0 where it is missing, 2 where it is added twice.
    TermFactor { term: usize, factor: f64 },
    /// Another function of an input.
    Function {
        input: usize,
        instead: Function,
        of: Function,
    },
    /// A norm with another epsilon; `outside`: beside the root instead of under it.
    Epsilon {
        input: usize,
        norm: Norm,
        epsilon: f64,
        of: f64,
        outside: bool,
    },
    /// A norm that divides the squares by `channels - 1`.
    UnbiasedNorm {
        input: usize,
        norm: Norm,
        channels: usize,
    },
    /// The other kind of norm.
    OtherNorm { input: usize, instead: Norm },
    /// A norm with another weight, along an axis of the output.
    NormWeight {
        input: usize,
        norm: Norm,
        instead: NormWeight,
        axis: usize,
    },
    /// A norm with the weights of another one: those of a parameter, or of a norm with this output.
    NormWeightOf {
        input: usize,
        norm: Norm,
        tensor: usize,
    },
    /// A product with a weight and so many times its bias.
    BiasFactor {
        input: Box<Formula>,
        weight: usize,
        factor: f64,
    },
    /// A product with a weight, which differs.
    Weight {
        input: Box<Formula>,
        weight: usize,
        bias: bool,
        instead: WeightChange,
    },
    Rope {
        input: usize,
        pairing: Pairing,
        instead: Rotation,
    },
    SoftmaxScale {
        scale: Constant,
        of: Constant,
        scaled: Scaled,
    },
    /// Scores with another cap, or without.
    Softcap {
        inputs: [usize; 2],
        cap: Option<f64>,
        of: Option<f64>,
    },
    /// So many times what is added to the scores; `term` where that is recorded.
    ScoreBias {
        inputs: [usize; 2],
        bias: ScoreBias,
        term: Option<usize>,
        factor: f64,
    },
    /// Attention with another mask.
    Mask { query: usize, mask: Mask, of: Mask },
    /// The keys for the queries and the queries for the keys.
    QueriesAndKeysSwapped { inputs: [usize; 2] },
    /// Another part of a fused tensor for the keys.
    ValuesForKeys { inputs: [usize; 2] },
    /// Another part of a fused tensor for the values.
    OtherPartForValues { inputs: [usize; 2] },
    /// `x * (1 + scale) + shift`, otherwise.
    Modulated {
        input: usize,
        scale: Formula,
        shift: Formula,
        instead: Modulation,
    },
    /// `x + gate * y`, otherwise.
    Gated {
        inputs: [usize; 2],
        gate: Formula,
        instead: Modulation,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormWeight {
    /// None at all.
    One,
    PlusOne,
    MinusOne,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WeightChange {
    Transposed,
    /// Another parameter.
    Instead(usize),
    /// Only the products of one of several ranks are summed.
    OnePart {
        rank: usize,
        ranks: usize,
    },
    /// The weight in fewer bits.
    Coarse(Way),
    /// Both factors in fewer bits.
    CoarseFactors(Unit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    OtherPairing,
    Reversed,
    None,
    Twice,
}

/// What a softmax scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaled {
    /// Products of queries and keys.
    Products,
    /// The same, with something added.
    BiasedProducts,
    /// Those of attention with these queries, whose probabilities are not recorded.
    Queries(usize),
    /// A recorded tensor.
    Logits(usize),
}

/// What is done otherwise where a tensor is modulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modulation {
    /// `x * scale + shift`
    ScaleWithoutOne,
    /// `x * (1 + shift) + scale`
    Swapped,
    /// `x * (1 + scale)`
    NoShift,
    /// `x + shift`
    NoScale,
    /// `x + y`
    NoGate,
    /// `x`
    NotAdded,
    /// `x + (1 + gate) * y`
    GatePlusOne,
    /// `gate * y`
    NoResidual,
}
