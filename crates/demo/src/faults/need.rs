//! What a model must have for a fault to be possible in it.

use crate::spec::{Model, Record, Spec};
use twinscope_tensor::DType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Rope,
    Gated,
    Gpt2,
    Experts,
    /// A feed-forward that is one, not several experts.
    Dense,
    /// RMSNorm.
    RmsNorm,
    /// Several query heads to a key head, and several of those.
    Grouped,
    Heads,
    KeyHeads,
    /// Heads times head size is the hidden size.
    Square,
    /// More digits than the 16-bit types have.
    Wide,
    /// Numbers beyond 65504.
    Range,
    /// What two ranks share divides by two.
    TwoRanks,
    LayerBefore,
    Batch,
    /// Enough positions for a window of four.
    Positions,
    WeightsRecorded,
}

impl Need {
    pub(crate) fn met(self, spec: &Spec, layer: usize) -> bool {
        match self {
            Self::Rope | Self::RmsNorm => spec.model != Model::Gpt2,
            Self::Gated => spec.model == Model::Llama,
            Self::Gpt2 => spec.model == Model::Gpt2,
            Self::Experts => {
                spec.model == Model::Moe && spec.experts > spec.top_k && spec.experts > 1
            }
            Self::Dense => spec.model != Model::Moe,
            Self::Grouped => spec.key_heads() > 1 && spec.heads > spec.key_heads(),
            Self::Heads => spec.heads > 1,
            Self::KeyHeads => spec.key_heads() > 1,
            Self::Square => spec.heads * spec.head_dim == spec.hidden,
            Self::Wide => matches!(spec.dtype, DType::F32 | DType::F64),
            Self::Range => spec.dtype != DType::F16,
            Self::TwoRanks => {
                spec.model == Model::Llama
                    && [spec.heads, spec.key_heads(), spec.inner]
                        .iter()
                        .all(|size| size.is_multiple_of(2))
            }
            Self::LayerBefore => layer > 0,
            Self::Batch => spec.batch > 1,
            Self::Positions => spec.seq > 5,
            Self::WeightsRecorded => spec.record == Record::Full,
        }
    }

    /// As in "it needs ...".
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Rope => "rotary positions (--model llama or moe)",
            Self::RmsNorm => "an RMSNorm (--model llama or moe)",
            Self::Gated => "a gated feed-forward (--model llama)",
            Self::Gpt2 => "--model gpt2",
            Self::Experts => "--model moe with more experts than a token is sent to",
            Self::Dense => "a feed-forward without experts (--model llama or gpt2)",
            Self::Grouped => "several key heads, each used by several query heads",
            Self::Heads => "more than one head",
            Self::KeyHeads => "more than one key head",
            Self::Square => "a hidden size that is heads times head size",
            Self::Wide => "a dtype of more than 16 bits (--dtype f32)",
            Self::Range => "a dtype that goes beyond 65504 (--dtype f32 or bf16)",
            Self::TwoRanks => {
                "--model llama with an even number of heads and key heads and an even feed-forward, to be shared by two ranks"
            }
            Self::LayerBefore => "a layer before it (--layer 1 or more)",
            Self::Batch => "a batch of two or more",
            Self::Positions => "six positions or more",
            Self::WeightsRecorded => "the weights on record (--record full)",
        }
    }
}
