//! What to run: the model and its sizes, the arithmetic, what is recorded, and which faults are planted.

use crate::faults::{Fault, Outcome};
use std::{fmt, str::FromStr};
use twinscope_tensor::DType;

/// Which transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Model {
    /// RMSNorm, rotary positions, grouped queries, SwiGLU, biases on q, k and v, a head of its own.
    Llama,
    /// LayerNorm with bias, learned positions, fused q, k and v, tanh-gelu, biases everywhere, a tied head.
    Gpt2,
    /// A llama whose feed-forward is a mixture of experts with a top-k router.
    Moe,
}

impl Model {
    pub const ALL: [Self; 3] = [Self::Llama, Self::Gpt2, Self::Moe];

    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Gpt2 => "gpt2",
            Self::Moe => "moe",
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Model {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let known = Self::ALL.into_iter().find(|model| model.name() == text);
        known.ok_or_else(|| SpecError::Unknown {
            what: "model",
            found: text.to_owned(),
            known: "llama, gpt2, moe",
        })
    }
}

/// How much of a run is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// The stages of every layer, nothing else: what a user's print statements leave behind.
    Stages,
    /// The weights too, and of every tensor which recorded ones it was computed from: what a capture library writes.
    Full,
}

impl FromStr for Record {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "stages" => Ok(Self::Stages),
            "full" => Ok(Self::Full),
            _ => Err(SpecError::Unknown {
                what: "level of recording",
                found: text.to_owned(),
                known: "stages, full",
            }),
        }
    }
}

/// A fault and the layer it is planted in. Faults that have no layer (the embedding, the logits) ignore it.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    pub fault: &'static Fault,
    pub layer: usize,
}

/// One run of the demo transformer.
#[derive(Clone, Debug)]
pub struct Spec {
    pub model: Model,
    pub layers: usize,
    pub batch: usize,
    pub seq: usize,
    pub hidden: usize,
    pub heads: usize,
    /// As many as `heads` in gpt2, whatever is said here.
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Width of the feed-forward, or of each expert.
    pub inner: usize,
    pub vocab: usize,
    pub experts: usize,
    /// How many experts a token is sent to.
    pub top_k: usize,
    /// f64, f32, bf16 or f16: what weights are and every result is rounded to.
    pub dtype: DType,
    /// Sums are made in so many parts, as by that many ranks.
    pub tp: usize,
    pub seed: u64,
    pub record: Record,
    pub faults: Vec<Planted>,
    /// One channel of this layer's feed-forward is so many times as large, as in large models. Both sides have it.
    pub outlier: Option<(usize, f64)>,
    /// The last two experts are nearly equally good for every token. Both sides have it.
    pub near_ties: bool,
    /// So many ranks are recorded, each its own shards (llama only); 1 is an ordinary run.
    pub ranks: usize,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            model: Model::Llama,
            layers: 3,
            batch: 2,
            seq: 12,
            hidden: 48,
            heads: 4,
            kv_heads: 2,
            head_dim: 12,
            inner: 112,
            vocab: 97,
            experts: 4,
            top_k: 2,
            dtype: DType::F32,
            tp: 1,
            seed: 0,
            record: Record::Stages,
            faults: Vec::new(),
            outlier: None,
            near_ties: false,
            ranks: 1,
        }
    }
}

/// Why a spec cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    #[error("there is no {what} `{found}`; there are: {known}")]
    Unknown {
        what: &'static str,
        found: String,
        known: &'static str,
    },
    #[error("{what} is {found}: {why}")]
    Size {
        what: &'static str,
        found: usize,
        why: String,
    },
    #[error("the demo computes in f64, f32, bf16 and f16, not in {found}")]
    Dtype { found: DType },
    #[error("`{fault}` cannot be planted here: it needs {need}")]
    NotHere {
        fault: &'static str,
        need: &'static str,
    },
}

/// Memory and time of a demo end here: values in the largest weight or result.
const LARGEST: usize = 1 << 26;

impl Spec {
    /// The same spec with a fault planted, in the layer given or else in the middle of the model.
    pub fn with_fault(
        mut self,
        fault: &'static Fault,
        layer: Option<usize>,
    ) -> Result<Self, SpecError> {
        let layer = layer.unwrap_or(self.layers / 2);
        if layer >= self.layers {
            return Err(SpecError::Size {
                what: "the layer",
                found: layer,
                why: format!("the model has {} layers", self.layers),
            });
        }
        fault.check(&self, layer)?;
        fault.set_scene(&mut self, layer);
        self.faults.push(Planted { fault, layer });
        Ok(self)
    }

    /// What the candidate is compared with: the same model without faults, summed in the plain order.
    pub fn reference(&self) -> Self {
        Self {
            faults: Vec::new(),
            tp: 1,
            ..self.clone()
        }
    }

    /// The harshest of what is planted, and what that makes of the whole.
    pub fn outcome(&self) -> Outcome {
        self.faults
            .iter()
            .map(|planted| planted.fault.outcome)
            .max()
            .unwrap_or(Outcome::Benign)
    }

    /// Whether it can be run, before it is.
    pub fn check(&self) -> Result<(), SpecError> {
        let sizes = [
            ("the number of layers", self.layers),
            ("the batch", self.batch),
            ("the sequence", self.seq),
            ("the hidden size", self.hidden),
            ("the number of heads", self.heads),
            ("the number of key heads", self.kv_heads),
            ("the head size", self.head_dim),
            ("the feed-forward's width", self.inner),
            ("the vocabulary", self.vocab),
            ("the number of experts", self.experts),
            ("top-k", self.top_k),
            ("tp", self.tp),
            ("the number of ranks", self.ranks),
        ];
        for (what, found) in sizes {
            if found == 0 || found > LARGEST {
                return Err(SpecError::Size {
                    what,
                    found,
                    why: format!("it must be from 1 to {LARGEST}"),
                });
            }
        }
        let bad = |what, found, why: String| Err(SpecError::Size { what, found, why });
        if !self.heads.is_multiple_of(self.kv_heads) {
            return bad(
                "the number of heads",
                self.heads,
                format!("it must be a multiple of the {} key heads", self.kv_heads),
            );
        }
        if !self.head_dim.is_multiple_of(2) {
            return bad(
                "the head size",
                self.head_dim,
                "rotary positions turn pairs, so it must be even".to_owned(),
            );
        }
        if self.top_k > self.experts {
            return bad(
                "top-k",
                self.top_k,
                format!("there are {} experts", self.experts),
            );
        }
        let shared = [self.heads, self.kv_heads, self.inner]
            .iter()
            .all(|size| size.is_multiple_of(self.ranks));
        if self.ranks > 1 && !(self.model == Model::Llama && shared) {
            return bad(
                "the number of ranks",
                self.ranks,
                "they share the heads, key heads and inner channels of a llama evenly".to_owned(),
            );
        }
        if !matches!(
            self.dtype,
            DType::F64 | DType::F32 | DType::Bf16 | DType::F16
        ) {
            return Err(SpecError::Dtype { found: self.dtype });
        }
        let width = self
            .hidden
            .max(self.inner)
            .max(self.vocab)
            .max(self.heads.saturating_mul(self.head_dim))
            .max(self.seq);
        let rows = self
            .batch
            .saturating_mul(self.seq)
            .saturating_mul(self.heads.max(1))
            .max(self.hidden)
            .max(self.inner);
        let largest = width.saturating_mul(rows).saturating_mul(self.layers);
        if largest > LARGEST {
            return bad(
                "the model",
                largest,
                format!("the demo stops at {LARGEST} values a tensor, summed over the layers"),
            );
        }
        Ok(())
    }

    /// Key heads there really are.
    pub(crate) fn key_heads(&self) -> usize {
        if self.model == Model::Gpt2 {
            self.heads
        } else {
            self.kv_heads
        }
    }
}
