//! How each layer computes: everything about an op that is not a weight. The defaults are the healthy model; most faults change a field.

use crate::{
    ops::{Activation, Attention, Join, Norm, Pairing, Projection, Rope},
    spec::{Model, Spec},
};

/// The whole model.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) embed_scale: f64,
    pub(crate) layers: Vec<Layer>,
    pub(crate) final_norm: Norm,
    pub(crate) head: Projection,
    /// `cap * tanh(logits / cap)`.
    pub(crate) logit_cap: Option<f64>,
    pub(crate) logit_scale: f64,
    /// Positions looked up in the learned table begin here.
    pub(crate) first_position: usize,
}

/// Where a fused projection's channels go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// All queries, then all keys, then all values; or another order of the three.
    Blocks([usize; 3]),
    /// Query, key and value of the first head, then of the second.
    HeadByHead,
}

/// What the norm before the feed-forward reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormInput {
    Residual,
    LayerInput,
}

#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) norm1: Norm,
    pub(crate) q: Projection,
    pub(crate) k: Projection,
    pub(crate) v: Projection,
    pub(crate) o: Projection,
    pub(crate) packing: Packing,
    /// `None`: no rotary positions.
    pub(crate) rope_q: Option<Rope>,
    pub(crate) rope_k: Option<Rope>,
    pub(crate) attention: Attention,
    /// Scores are those of keys for queries.
    pub(crate) scores_swapped: bool,
    /// Heads are moved back before they are joined.
    pub(crate) heads_moved_back: bool,
    pub(crate) attn_join: Join,
    pub(crate) norm2: Norm,
    pub(crate) norm2_reads: NormInput,
    pub(crate) gate: Projection,
    pub(crate) up: Projection,
    pub(crate) down: Projection,
    pub(crate) activation: Activation,
    /// The fused gate and up are read channel by channel, not half by half.
    pub(crate) gate_up_interleaved: bool,
    pub(crate) mlp_join: Join,
    /// The weights of the chosen experts are made to sum to one.
    pub(crate) renormalise: bool,
}

impl Plan {
    pub(crate) fn healthy(spec: &Spec) -> Self {
        let norm = match spec.model {
            Model::Gpt2 => Norm::layer(),
            Model::Llama | Model::Moe => Norm::rms(),
        };
        let rope = (spec.model != Model::Gpt2).then_some(Rope {
            theta: 10_000.0,
            offset: 0.0,
            factor: 1.0,
            sign: 1.0,
            pairing: Pairing::Halves,
            turned: 0..spec.head_dim,
        });
        let layer = Layer {
            norm1: norm,
            q: Projection::default(),
            k: Projection::default(),
            v: Projection::default(),
            o: Projection::default(),
            packing: Packing::Blocks([0, 1, 2]),
            rope_q: rope.clone(),
            rope_k: rope,
            attention: Attention::causal(spec.head_dim),
            scores_swapped: false,
            heads_moved_back: true,
            attn_join: Join::SUM,
            norm2: norm,
            norm2_reads: NormInput::Residual,
            gate: Projection::default(),
            up: Projection::default(),
            down: Projection::default(),
            activation: if spec.model == Model::Gpt2 {
                Activation::GeluTanh
            } else {
                Activation::Silu
            },
            gate_up_interleaved: false,
            mlp_join: Join::SUM,
            renormalise: true,
        };
        Self {
            embed_scale: 1.0,
            layers: vec![layer; spec.layers],
            final_norm: norm,
            head: Projection::default(),
            logit_cap: None,
            logit_scale: 1.0,
            first_position: 0,
        }
    }
}
