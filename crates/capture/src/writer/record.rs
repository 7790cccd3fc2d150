//! One tensor of a run, as its index line describes it.

use super::line::Line;
use serde_json::{Map, Value};
use twinscope_tensor::{DType, Shape};

/// What a tensor was to the module that it is named after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    Input,
    Output,
    Weight,
    /// Of an activation.
    Gradient,
    /// Of a weight.
    WeightGradient,
    /// Attention probabilities.
    Attention,
    /// The result of one operation inside a module.
    Op,
    /// Recorded by name, by hand.
    #[default]
    Tap,
}

impl Role {
    pub const ALL: [Role; 8] = [
        Role::Input,
        Role::Output,
        Role::Weight,
        Role::Gradient,
        Role::WeightGradient,
        Role::Attention,
        Role::Op,
        Role::Tap,
    ];

    /// The word in the index.
    pub fn name(self) -> &'static str {
        match self {
            Role::Input => "in",
            Role::Output => "out",
            Role::Weight => "param",
            Role::Gradient => "grad",
            Role::WeightGradient => "param_grad",
            Role::Attention => "attn",
            Role::Op => "op",
            Role::Tap => "tap",
        }
    }
}

/// When in the run it was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    Forward,
    Backward,
    /// Weights, before anything ran.
    Weights,
    /// The forward pass of activation checkpointing, done again.
    Recompute,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Forward => "fwd",
            Phase::Backward => "bwd",
            Phase::Weights => "param",
            Phase::Recompute => "recompute",
        }
    }
}

/// What is known of a tensor besides its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The module's full path; empty for the whole model.
    pub name: String,
    pub role: Role,
    /// Its place among several outputs or inputs: `0`, `attentions.5`, `last_hidden_state`. Empty when it is the only one.
    pub arg: String,
    pub dtype: DType,
    pub shape: Shape,
    /// The how-many-th of its name, role and place in this step; counted by the writer when not said.
    pub call: Option<u64>,
    pub phase: Option<Phase>,
    /// The module's class, the operation's name.
    pub class: Option<String>,
    pub op: Option<String>,
    /// When it was recorded, and how long computing it took, in nanoseconds.
    pub at_ns: Option<u64>,
    pub took_ns: Option<u64>,
    pub device: Option<String>,
    /// What its dimensions mean and how they are split over ranks: `b s h[tp] d`.
    pub dims: Option<String>,
    /// The numbers of the records of this rank that it was computed from.
    pub inputs: Vec<u64>,
    /// Anything else worth keeping. A key of the format is not overwritten.
    pub more: Map<String, Value>,
}

impl Record {
    pub fn new(name: impl Into<String>, dtype: DType, shape: impl Into<Shape>) -> Self {
        Self {
            name: name.into(),
            role: Role::default(),
            arg: String::new(),
            dtype,
            shape: shape.into(),
            call: None,
            phase: None,
            class: None,
            op: None,
            at_ns: None,
            took_ns: None,
            device: None,
            dims: None,
            inputs: Vec::new(),
            more: Map::new(),
        }
    }

    pub fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    pub fn arg(self, arg: impl Into<String>) -> Self {
        Self {
            arg: arg.into(),
            ..self
        }
    }

    pub fn call(self, call: u64) -> Self {
        Self {
            call: Some(call),
            ..self
        }
    }

    pub fn phase(self, phase: Phase) -> Self {
        Self {
            phase: Some(phase),
            ..self
        }
    }

    pub fn class(self, class: impl Into<String>) -> Self {
        Self {
            class: Some(class.into()),
            ..self
        }
    }

    pub fn op(self, op: impl Into<String>) -> Self {
        Self {
            op: Some(op.into()),
            ..self
        }
    }

    pub fn dims(self, dims: impl Into<String>) -> Self {
        Self {
            dims: Some(dims.into()),
            ..self
        }
    }

    pub fn inputs(self, inputs: impl Into<Vec<u64>>) -> Self {
        Self {
            inputs: inputs.into(),
            ..self
        }
    }

    /// Its index line, without where its bytes are and without what is to be kept besides.
    pub(super) fn line(&self, i: u64, call: u64, step: u64) -> Line {
        let mut line = Line::new("t");
        line.number("i", i);
        line.text("name", &self.name);
        line.text("role", self.role.name());
        line.text("arg", &self.arg);
        line.number("call", call);
        line.number("step", step);
        let (stored, logical) = dtype_names(self.dtype);
        line.text("dtype", stored);
        line.numbers("shape", self.shape.dims());
        line.maybe_text("ldtype", logical.as_deref());
        line.maybe_text("phase", self.phase.map(Phase::name));
        line.maybe_text("cls", self.class.as_deref());
        line.maybe_text("op", self.op.as_deref());
        line.maybe_number("ts", self.at_ns);
        line.maybe_number("dur", self.took_ns);
        line.maybe_text("dev", self.device.as_deref());
        line.maybe_text("dims", self.dims.as_deref());
        if !self.inputs.is_empty() {
            line.numbers("inputs", &self.inputs);
        }
        line
    }
}

/// The safetensors name of a dtype; of those that safetensors has no name for, `U8` and our own name.
pub(super) fn dtype_names(dtype: DType) -> (&'static str, Option<String>) {
    let name = match dtype {
        DType::Bool => "BOOL",
        DType::U8 => "U8",
        DType::I8 => "I8",
        DType::U16 => "U16",
        DType::I16 => "I16",
        DType::U32 => "U32",
        DType::I32 => "I32",
        DType::U64 => "U64",
        DType::I64 => "I64",
        DType::F16 => "F16",
        DType::Bf16 => "BF16",
        DType::F32 => "F32",
        DType::F64 => "F64",
        DType::C64 => "C64",
        DType::F8E4M3Fn => "F8_E4M3",
        DType::F8E4M3Fnuz => "F8_E4M3FNUZ",
        DType::F8E5M2 => "F8_E5M2",
        DType::F8E5M2Fnuz => "F8_E5M2FNUZ",
        DType::F8E8M0Fnu => "F8_E8M0",
        other => return ("U8", Some(other.to_string())),
    };
    (name, None)
}
