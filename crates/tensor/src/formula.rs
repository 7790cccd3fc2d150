//! How a tensor was computed, as a tree. Data only: `report` makes the text.

/// A formula over recorded tensors, which are its leaves.
#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    /// A recorded tensor, by name; also its values in another shape.
    Tensor(String),
    /// Features `from..to` of a recorded tensor.
    Slice {
        of: String,
        from: usize,
        to: usize,
    },
    /// A smaller tensor, repeated to the shape of the others.
    Repeated(Box<Formula>),
    Concat(Vec<Formula>),
    Sum(Vec<Formula>),
    /// A sum in which each term has a factor.
    Blend(Vec<(f64, Formula)>),
    Product(Vec<Formula>),
    /// `1 + x`
    OnePlus(Box<Formula>),
    /// A function of each number alone.
    Function {
        function: Function,
        of: Box<Formula>,
    },
    Norm {
        kind: Norm,
        of: Box<Formula>,
        epsilon: f64,
    },
    /// Rotary positions.
    Rope {
        of: Box<Formula>,
        pairing: Pairing,
    },
    /// Along the last dimension.
    Softmax(Box<Formula>),
    /// Products of queries and keys, before a softmax.
    Scores {
        query: Box<Formula>,
        key: Box<Formula>,
        scale: Constant,
        cap: Option<f64>,
        bias: Option<ScoreBias>,
    },
    /// Attention probabilities applied to values.
    Mixture {
        probabilities: Box<Formula>,
        values: Box<Formula>,
    },
    /// All of attention, where the probabilities are not recorded.
    Attention {
        query: Box<Formula>,
        key: Box<Formula>,
        value: Box<Formula>,
        mask: Mask,
        cap: Option<f64>,
    },
    /// A product with a weight.
    Linear {
        input: Box<Formula>,
        weight: Box<Formula>,
        bias: bool,
    },
    /// Rows of a table that is not recorded.
    Lookup {
        ids: Box<Formula>,
    },
}

impl Formula {
    pub fn tensor(name: &str) -> Self {
        Self::Tensor(name.to_owned())
    }

    /// A recorded tensor, boxed as an operand of another formula.
    pub fn boxed(name: &str) -> Box<Self> {
        Box::new(Self::tensor(name))
    }

    /// Whether anything is added up: a residual, a bias, a shift. The inner products of a matrix product do not count.
    pub fn adds(&self) -> bool {
        match self {
            Self::Sum(terms) => terms.len() > 1 || terms.iter().any(Self::adds),
            Self::Blend(terms) => terms.iter().filter(|(factor, _)| *factor > 0.0).count() > 1,
            Self::OnePlus(_) => true,
            Self::Scores { bias, .. } => bias.is_some(),
            Self::Linear { input, bias, .. } => *bias || input.adds(),
            Self::Concat(parts) | Self::Product(parts) => parts.iter().any(Self::adds),
            Self::Repeated(of) | Self::Softmax(of) => of.adds(),
            Self::Function { of, .. } | Self::Norm { of, .. } | Self::Rope { of, .. } => of.adds(),
            Self::Tensor(_)
            | Self::Slice { .. }
            | Self::Mixture { .. }
            | Self::Attention { .. }
            | Self::Lookup { .. } => false,
        }
    }
}

/// A function of one number.
#[derive(Clone, Debug, PartialEq)]
pub enum Function {
    /// By its name in the library of functions.
    Named(&'static str),
    /// `cap * tanh(x / cap)`
    Softcap(f64),
    /// `factor * x`
    Factor(f64),
    /// Another function, and a softcap of what it makes.
    Capped(Box<Function>, f64),
    /// Nothing, where a softcap is expected.
    Uncapped,
}

/// A number, and what it is called where it is known by a name: sqrt(64).
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    pub value: f64,
    pub name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    Rms,
    Layer,
}

/// Which channels of a head rotary positions rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `i` with `i + n/2`
    Halves,
    /// `2i` with `2i + 1`
    Neighbours,
}

impl Pairing {
    pub fn other(self) -> Self {
        match self {
            Self::Halves => Self::Neighbours,
            Self::Neighbours => Self::Halves,
        }
    }
}

/// What is added to attention scores.
#[derive(Clone, Debug, PartialEq)]
pub enum ScoreBias {
    /// One slope per head along the keys (ALiBi).
    Slopes,
    /// A recorded tensor, by name.
    Tensor(String),
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    Full,
    Causal,
    /// Causal, and so many keys back at most.
    Window(usize),
}
