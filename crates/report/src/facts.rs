//! What is known of a cause beyond its sentence, one type per kind.
//!
//! A kind that several hypotheses find has one variant for each set of facts. The variants are told apart by their keys when a report is
//! read, so **variants stand in order of the number of their fields**: a variant with optional fields must not take an object that
//! belongs to a smaller one. A field that is `None` is written as `null`, as reports always had it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use twinscope_tensor::Side;

/// One struct or enum of facts. Unknown keys are an error: such details are kept as plain JSON.
macro_rules! facts {
    ($($(#[$doc:meta])* $what:ident $name:ident $body:tt)*) => {
        $(facts!(@one [$(#[$doc])*] $what $name $body);)*
    };
    (@one [$(#[$doc:meta])*] struct $name:ident $body:tt) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name $body
    };
    (@one [$(#[$doc:meta])*] enum $name:ident $body:tt) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(untagged, deny_unknown_fields)]
        pub enum $name $body
    };
    (@one [$(#[$doc:meta])*] words $name:ident $body:tt) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name $body
    };
}

facts! {
    /// `permuted`: which axis, and in which order.
    enum Permuted {
        /// An order that has a name.
        Named { axis: usize, axes: Vec<usize>, pattern: Pattern },
        /// Each row has an order of its own: ids listed differently.
        WithinRows { axis: usize, pattern: Pattern, rows: usize },
        /// Each row has the order of the ids in another tensor.
        LikeIds { axis: usize, pattern: Pattern, ids: String },
        /// A fused tensor is split at the wrong places.
        Packed {
            axis: usize,
            pattern: Pattern,
            /// How many channels come from which tensor.
            from: BTreeMap<String, usize>,
            /// The source of the first 16 channels.
            first_channels: Vec<(String, usize)>,
        },
        /// Two slices hold each other's values.
        Exchanged { axis: usize, axes: Vec<usize>, pattern: Pattern, swapped: [usize; 2] },
        /// Any order, of blocks of equal size.
        Listed {
            axis: usize,
            axes: Vec<usize>,
            pattern: Pattern,
            block: usize,
            /// `None` when it is too long to list.
            order: Option<Vec<usize>>,
        },
    }

    /// The name of an order.
    words Pattern {
        Arbitrary,
        BlockSwap,
        GroupMajor,
        HalfToInterleaved,
        InterleavedToHalf,
        Packing,
        Reverse,
        WithinRows,
        Zigzag,
    }

    /// `transposed`
    enum Transposed {
        /// The weight of a product.
        Weight { weight: String, axes: [usize; 2] },
        /// The reference viewed with these dimensions, its axes in this order.
        Axes { seen_as: Vec<usize>, order: Vec<usize> },
    }

    /// `swapped`
    enum Swapped {
        /// This tensor and another.
        Tensors { tensors: [String; 2] },
        /// Two inputs of the op that made this tensor.
        Inputs { inputs: [String; 2], side: Side },
        /// Two slices of one input, in words.
        Formula { candidate: String, side: Side },
    }

    /// `wrong_tensor`
    enum WrongTensor {
        /// The candidate equals this tensor.
        Copy {
            tensor: String,
            side: Side,
            /// The recording is wrong, not the computation.
            capture: bool,
        },
        /// Another weight in a product.
        Weight { tensor: String, instead_of: String, side: Side },
        /// The weights of another norm.
        Norm { tensor: String, what: String, input: String, side: Side },
    }

    /// `shifted`
    enum Shifted {
        /// Positions count from another number.
        Counted { axis: Option<usize>, amount: f64 },
        /// Moved along an axis; `None` means along all values.
        Moved { axis: Option<usize>, amount: isize, end: End },
    }

    /// What fills the places that a shift leaves empty.
    words End {
        Wrapped,
        Zero,
        Edge,
        New,
    }

    /// `rotated`: which setting of rope differs.
    enum Rotated {
        /// The candidate against the reference.
        Setting {
            parameter: RotatedParameter,
            pairing: RopePairing,
            reference: Option<RopeSetting>,
            value: Option<RopeSetting>,
        },
        /// The op that makes the tensor from its recorded input, with other turns.
        Turn { parameter: RotatedParameter, pairing: TurnPairing, value: Turn, input: String },
        /// Each side against its own recorded input.
        FromInput {
            parameter: RotatedParameter,
            pairing: RopePairing,
            input: String,
            reference: Option<RopeSetting>,
            value: Option<RopeSetting>,
        },
        /// Angles that no known setting makes.
        Angles {
            parameter: RotatedParameter,
            pairing: RopePairing,
            reference: Option<RopeSetting>,
            value: Vec<f64>,
            start: Vec<f64>,
        },
    }

    /// The setting of rope that differs.
    words RotatedParameter {
        Channels,
        Extra,
        Frequencies,
        Missing,
        Negated,
        Offset,
        Pairing,
        Positions,
        Scaling,
        Theta,
        Turn,
    }

    /// Which channels rotate together.
    words RopePairing {
        #[serde(rename = "halves (i, i + n/2)")]
        Halves,
        #[serde(rename = "interleaved (2i, 2i + 1)")]
        Interleaved,
    }

    /// The same, as reports of the learned rope op spell it.
    words TurnPairing {
        Halves,
        Neighbours,
    }

    /// What the learned rope op does otherwise.
    words Turn {
        None,
        Pairing,
        Reversed,
        Twice,
    }

    /// The value of a setting of rope.
    enum RopeSetting {
        Whole(i64),
        Number(f64),
        Pairing(RopePairing),
        PerPair(Vec<f64>),
    }

    /// `masked`
    enum Masked {
        /// The two masks, in words.
        Masks { candidate: String, reference: String },
        /// Counted in the probabilities or scores.
        Seen {
            r#where: String,
            window: Option<isize>,
            seen_only_by_candidate: usize,
            seen_only_by_reference: usize,
        },
        /// Every position but the last differs.
        AllButLast(Localized),
    }

    /// `partial_sum`
    enum PartialSum {
        /// All ranks are recorded.
        Ranks { ranks: usize, side: Side },
        /// A later op was computed from one rank's part.
        UsedBy { ranks: usize, side: Side, used_by: String },
        /// A product over one rank's share of the inputs.
        Rank { ranks: usize, rank: usize, side: Side },
    }

    /// `missing_term` and `extra_term`
    enum Term {
        /// The candidate's formula, in words.
        Formula { candidate: String, side: Side },
        Added {
            /// `None` when the bias of the scores is not recorded as a tensor.
            term: Option<String>,
            side: Side,
            /// How many times more than in the reference.
            factor: f64,
        },
        /// One term where another belongs.
        Instead { term: String, side: Side, factor: f64, instead: String },
    }

    /// `scale` and `negated`
    enum Scale {
        /// One factor.
        Factor { factor: f64, constant: Option<String>, share: Option<f64> },
        /// One factor, and a number per channel.
        WithOffsets { factor: f64, axis: usize, offsets: [f64; 2] },
        /// One factor and one number.
        WithOffset { factor: f64, offset: f64, constant: Option<String>, share: Option<f64> },
        /// A norm that divides by another count.
        Divisor { parameter: DivisorParameter, candidate: usize, reference: usize, input: String },
    }

    words DivisorParameter {
        Divisor,
    }

    /// `channel_scale`
    enum ChannelScale {
        /// The candidate's formula, in words.
        Formula { candidate: String, side: Side },
        /// A norm that uses its weight otherwise.
        Norm { candidate: String, input: String, axis: usize },
        /// A factor and a number per channel: least and largest.
        WithOffsets { axis: usize, axes: Vec<usize>, factors: [f64; 2], offsets: [f64; 2] },
        /// A factor per channel: least, median and largest.
        Factors {
            axis: Option<usize>,
            axes: Vec<usize>,
            factors: [f64; 3],
            changed: usize,
            weight: Option<String>,
            r#use: Option<WeightUse>,
        },
    }

    /// What the candidate does with a recorded weight.
    words WeightUse {
        #[serde(rename = "1+w")]
        CandidateAddsOne,
        #[serde(rename = "w")]
        ReferenceAddsOne,
        #[serde(rename = "missing")]
        CandidateLacksIt,
        #[serde(rename = "twice")]
        CandidateHasItTwice,
    }

    /// `row_scale`
    enum RowScale {
        /// A factor per feature map: least and largest.
        Maps { axes: Vec<usize>, factors: [f64; 2] },
        /// Rows of probabilities that do not sum to 1.
        Sums { axes: Vec<usize>, sums: [f64; 2], not_renormalised: Whose },
        /// A factor per row around a common vector.
        AroundVector { axes: Vec<usize>, factors: [f64; 2], around_a_vector: bool },
        /// A factor per row: least, median and largest.
        Factors {
            axes: Vec<usize>,
            factors: [f64; 3],
            changed: usize,
            /// Of the reference and the candidate.
            epsilons: Option<[f64; 2]>,
            input: Option<String>,
        },
        /// A norm with another epsilon.
        Epsilon {
            parameter: EpsilonParameter,
            candidate: f64,
            reference: f64,
            outside_the_root: bool,
            input: String,
        },
    }

    words EpsilonParameter {
        Epsilon,
    }

    /// A side, as the sentence spells it.
    words Whose {
        #[serde(rename = "the candidate's")]
        Candidate,
        #[serde(rename = "the reference's")]
        Reference,
    }

    /// `offset`
    enum Offset {
        /// One number everywhere; the axis is always `None`.
        Constant { axis: Option<usize>, amount: f64 },
        /// The bias of a product.
        Bias { candidate: String, weight: String },
        /// The candidate's formula, in words.
        Formula { candidate: String, side: Side },
        Vector(AddedVector),
    }

    /// One number per channel, or per row (`low_rank`).
    struct AddedVector {
        pub axis: Option<usize>,
        pub axes: Vec<usize>,
        pub norm: f64,
        pub changed: usize,
        /// 1 for rows, `None` for channels.
        pub rank: Option<usize>,
        /// The recorded tensor that was added, and how often.
        pub tensor: Option<String>,
        pub multiple: Option<f64>,
    }

    /// `low_rank`
    enum LowRank {
        Matrix { rank: usize, share: f64, axes: Vec<usize> },
        Vector(AddedVector),
    }

    /// `rounded`
    enum Rounded {
        /// The weight of a product.
        Weight { weight: String, format: String },
        /// Every value lies on the grid of a dtype.
        Grid { dtype: String, side: Side, how: RoundedHow, bit_equal: f64 },
        /// Both factors of a product.
        Factors { dtype: String, what: String, weight: String, side: Side },
    }

    /// How values came to lie on a grid.
    words RoundedHow {
        Rounded,
        Truncated,
        Computed,
    }

    /// `quantized`
    enum Quantized {
        /// The weight of a product.
        Weight { weight: String, format: String },
        Levels {
            /// `None` for floats with a scale.
            bits: Option<f64>,
            format: String,
            block: usize,
            axis: Option<usize>,
            zero_is_a_level: bool,
            blocks: usize,
        },
    }

    /// `clipped`
    struct Clipped {
        pub side: Side,
        /// The lower and the upper bound.
        pub bounds: [Option<f64>; 2],
        pub constant: Option<String>,
        pub at_bound: usize,
        pub share: f64,
    }

    /// `dropout`
    struct Dropout {
        pub p: f64,
        pub factor: f64,
        pub zeros: usize,
        pub side: Side,
    }

    /// `function`: what each side computes.
    enum Function {
        /// Of the reference; the input is not recorded.
        Softcap { candidate: String, reference: Option<String>, parameter: f64 },
        /// The op that makes the tensor, with another function.
        Op { candidate: String, reference: String, input: String },
        /// One function too many or too few.
        Alone {
            candidate: Option<String>,
            reference: Option<String>,
            parameter: Option<f64>,
            input: Option<String>,
        },
        /// A cap on the scores of queries and keys.
        Scores {
            candidate: String,
            parameter: Option<f64>,
            reference: Option<f64>,
            inputs: [String; 2],
        },
        /// Of a recorded input.
        OfInput {
            candidate: String,
            reference: String,
            parameter: Option<f64>,
            input: String,
            times: Option<String>,
        },
    }

    /// `localized`
    struct Localized {
        pub slices: Vec<Slices>,
        /// Of the squared difference, what is within the slices.
        pub share: f64,
        pub elements: usize,
        /// What happened there, in words.
        pub inside: Option<String>,
    }

    /// Some indices of one axis.
    struct Slices {
        pub axis: usize,
        pub indices: Vec<usize>,
        pub of: usize,
    }

    /// `row_affine`
    enum RowAffine {
        Fitted { axes: Vec<usize> },
        /// One norm for another.
        Norm { candidate: NormKind, input: String },
    }

    words NormKind {
        RmsNorm,
        LayerNorm,
    }

    /// `nonfinite`
    struct Nonfinite {
        pub side: Side,
        pub count: usize,
        pub nan: usize,
        pub inf: usize,
        pub first: Vec<usize>,
        /// The largest value of the other side in these places.
        pub largest_there: f64,
        pub overflow: bool,
    }

    /// `softmax_scale`
    enum SoftmaxScale {
        /// Fitted to the probabilities.
        Fitted { ratio: f64, constant: Option<String> },
        /// The op that makes the tensor, with another scale.
        Op { candidate: f64, reference: f64, ratio: f64 },
    }

    /// `routing`
    struct Routing {
        /// The first 64 tokens.
        pub tokens: Vec<usize>,
        pub count: usize,
        pub router: String,
    }

    /// `input_differs`
    enum InputDiffers {
        /// Rows of the first computed tensor.
        Rows { differing: Option<usize>, positions: Option<Vec<usize>>, shift: Option<isize> },
        /// Recorded whole numbers.
        Ids {
            /// `None` when only values beyond 2^53 differ.
            differing: Option<usize>,
            /// The indices of the first 32.
            positions: Vec<Vec<usize>>,
            shift: Option<isize>,
            /// One number more everywhere.
            added: Option<f64>,
        },
    }

    /// `unknown`
    struct Unknown {
        /// What makes this tensor of the reference, where it is known.
        pub formula: Option<String>,
    }
}

impl Permuted {
    pub fn axis(&self) -> usize {
        match self {
            Self::Named { axis, .. }
            | Self::WithinRows { axis, .. }
            | Self::LikeIds { axis, .. }
            | Self::Packed { axis, .. }
            | Self::Exchanged { axis, .. }
            | Self::Listed { axis, .. } => *axis,
        }
    }

    pub fn pattern(&self) -> Pattern {
        match self {
            Self::Named { pattern, .. }
            | Self::WithinRows { pattern, .. }
            | Self::LikeIds { pattern, .. }
            | Self::Packed { pattern, .. }
            | Self::Exchanged { pattern, .. }
            | Self::Listed { pattern, .. } => *pattern,
        }
    }

    /// The tensor whose ids have the same order.
    pub fn ids(&self) -> Option<&str> {
        match self {
            Self::LikeIds { ids, .. } => Some(ids),
            _ => None,
        }
    }
}

impl WrongTensor {
    /// Which run the tensor belongs to.
    pub fn side(&self) -> Side {
        match self {
            Self::Copy { side, .. } | Self::Weight { side, .. } | Self::Norm { side, .. } => *side,
        }
    }
}

impl Rotated {
    pub fn parameter(&self) -> RotatedParameter {
        match self {
            Self::Setting { parameter, .. }
            | Self::Turn { parameter, .. }
            | Self::FromInput { parameter, .. }
            | Self::Angles { parameter, .. } => *parameter,
        }
    }

    /// By how many positions the candidate is ahead, when that is all that differs.
    pub fn offset(&self) -> Option<f64> {
        match self {
            Self::Setting {
                parameter: RotatedParameter::Offset,
                value: Some(value),
                ..
            } => value.number(),
            _ => None,
        }
    }
}

impl RopePairing {
    pub const BOTH: [Self; 2] = [Self::Halves, Self::Interleaved];

    /// The words in documents and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Halves => "halves (i, i + n/2)",
            Self::Interleaved => "interleaved (2i, 2i + 1)",
        }
    }
}

impl From<Side> for Whose {
    fn from(side: Side) -> Self {
        match side {
            Side::Reference => Self::Reference,
            Side::Candidate => Self::Candidate,
        }
    }
}

impl RopeSetting {
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(whole) => Some(*whole as f64),
            Self::Number(number) => Some(*number),
            Self::Pairing(_) | Self::PerPair(_) => None,
        }
    }
}

impl ChannelScale {
    /// The least and the largest number added per channel, when numbers are added beside the factors.
    pub fn offsets(&self) -> Option<[f64; 2]> {
        match self {
            Self::WithOffsets { offsets, .. } => Some(*offsets),
            _ => None,
        }
    }
}

impl Rounded {
    /// The dtype whose grid all values of a side lie on.
    pub fn grid(&self) -> Option<(Side, &str)> {
        match self {
            Self::Grid { side, dtype, .. } => Some((*side, dtype)),
            Self::Weight { .. } | Self::Factors { .. } => None,
        }
    }
}
