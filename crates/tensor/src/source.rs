//! Anything that holds named tensors.
//!
//! Listing is cheap and complete: it comes from headers. Reading is late: [`TensorSource::view`] maps, unpacks or
//! gathers one tensor when somebody asks for it.

use crate::{DType, Shape, Shrunk, View, ViewError};
use std::ops::Range;

/// More facts about a tensor than every format has: `param`, `requires_grad`, `layout`, `rank`, `step`, `dims`, ...
/// Boxed because most tensors have none and there can be 100,000 of them.
pub type Meta = Option<Box<serde_json::Map<String, serde_json::Value>>>;

/// One tensor, as its header describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    pub name: String,
    pub dtype: DType,
    pub shape: Shape,
    /// Bytes of the row-major form, whatever the file holds; `None` when there is no such form.
    pub bytes: Option<u64>,
    pub meta: Meta,
}

/// A Python scalar, string or None that lay beside the tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainValue {
    pub name: String,
    pub value: Plain,
    /// How many tensors come before it in execution order.
    pub after: usize,
}

/// What plain data can be. Anything larger than a line is not a value but an object, and is left out of listings.
#[derive(Clone, Debug, PartialEq)]
pub enum Plain {
    None,
    Bool(bool),
    /// Decimal digits: Python integers have no bound.
    Int(String),
    Float(f64),
    Complex(f64, f64),
    Str(String),
    /// Raw bytes: only how many.
    Bytes(u64),
    /// `torch.Size`, a dtype, a device, ...: the type's name and its text.
    Other {
        kind: String,
        text: String,
    },
}

impl Plain {
    /// The word under `type` in `ls --json`.
    pub fn kind(&self) -> &str {
        match self {
            Plain::None => "none",
            Plain::Bool(_) => "bool",
            Plain::Int(_) => "int",
            Plain::Float(_) => "float",
            Plain::Complex(..) => "complex",
            Plain::Str(_) => "str",
            Plain::Bytes(_) => "bytes",
            Plain::Other { kind, .. } => kind,
        }
    }
}

/// A tensor or member that could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub name: String,
    pub reason: String,
}

/// Something a user should know about a file, beyond what could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    pub text: String,
}

/// What was found. The names are the `kind` of `ls --json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// A pickle asks for a call that could execute something. Never made.
    UnsafeGlobal,
    /// A name or reference that leaves its folder or archive. Never followed.
    PathEscape,
    /// An object of a class we do not know: shown as opaque data.
    OpaqueObject,
    /// Anything odd that does not stop reading: duplicate names, holes, trailing bytes.
    Odd,
}

impl FindingKind {
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::UnsafeGlobal => "unsafe_global",
            FindingKind::PathEscape => "path_escape",
            FindingKind::OpaqueObject => "opaque_object",
            FindingKind::Odd => "odd",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [
            FindingKind::UnsafeGlobal,
            FindingKind::PathEscape,
            FindingKind::OpaqueObject,
            FindingKind::Odd,
        ]
        .into_iter()
        .find(|kind| kind.name() == name)
    }

    /// Whether this is an attempt to execute or escape, which makes `ls` end with exit code 2.
    pub fn is_attack(self) -> bool {
        matches!(self, FindingKind::UnsafeGlobal | FindingKind::PathEscape)
    }
}

/// Everything known about a source without reading a tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// What the user called it.
    pub source: String,
    /// The format's name: `torch-zip`, `safetensors`, `folder`, ...
    pub format: &'static str,
    /// In execution order; the index here is the tensor's identity.
    pub tensors: Vec<TensorInfo>,
    pub values: Vec<PlainValue>,
    pub skipped: Vec<Skipped>,
    pub findings: Vec<Finding>,
    /// About the source as a whole: GGUF keys, safetensors `__metadata__`, ...
    pub meta: Meta,
}

/// Why a listed tensor cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    #[error(transparent)]
    Shrunk(#[from] Shrunk),
    #[error(transparent)]
    View(#[from] ViewError),
    #[error("it holds no data: {why}")]
    NoData { why: &'static str },
    #[error("reading it would take {needed} bytes, the limit is {limit}")]
    TooLarge { needed: u64, limit: u64 },
    /// What a decoder said, with its numbers.
    #[error(transparent)]
    Decode(Box<dyn std::error::Error + Send + Sync>),
}

/// Named tensors, listed cheaply and read late.
pub trait TensorSource: Send + Sync {
    fn listing(&self) -> &Listing;

    /// The tensor at this index of the listing.
    fn view(&self, index: usize) -> Result<View, ReadError>;

    /// The addresses of the bytes behind a tensor, where they are at hand: tensors that overlap share a storage.
    fn place(&self, _index: usize) -> Option<Range<usize>> {
        None
    }
}
