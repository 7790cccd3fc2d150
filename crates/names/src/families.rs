//! What the parts of a transformer are called: Hugging Face (llama, bert, gpt2, neox, opt), Megatron, vLLM, GGUF, candle, burn and meta's own
//! names, as phrases of simplified words (see [`crate::name`]), each giving the stage they mean.
//!
//! A phrase counts only where it stands: `dense` under attention is the output projection, `c proj` under the feed-forward is `down`.

use std::{collections::HashMap, sync::LazyLock};

/// Where in a name a phrase stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Attention,
    Mlp,
    /// In a layer, outside attention and feed-forward.
    Layer,
    /// Outside the layers.
    Top,
    Anywhere,
}

/// Wrappers that say nothing, dropped from the front of a name, longest first.
pub(crate) const PREFIXES: &[&[&str]] = &[
    &["model", "state", "dict"],
    &["base", "model"],
    &["language", "model"],
    &["text", "model"],
    &["inner", "model"],
    &["forward", "module"],
    &["sentence", "encoder"],
    &["lora", "unet"],
    &["lora", "transformer"],
    &["lora", "te"],
    &["lora", "te1"],
    &["lora", "te2"],
    &["gpt", "neox"],
    &["model", "states"],
    &["state", "dict"],
    &["model"],
    &["module"],
    &["transformer"],
    &["bert"],
    &["roberta"],
    &["distilbert"],
    &["electra"],
    &["esm"],
    &["vit"],
    &["deit"],
    &["beit"],
    &["dinov2"],
    &["backbone"],
    &["params"],
    &["batch", "stats"],
    &["net"],
    &["rwkv"],
    &["resnet"],
    &["target"],
];

/// Wrappers that say nothing wherever they stand.
pub(crate) const WRAPPERS: &[&[&str]] = &[
    &["fsdp", "wrapped", "module"],
    &["checkpoint", "wrapped", "module"],
    &["orig", "mod"],
    &["base", "layer"],
    &["local", "experts"],
    &["hook"],
];

/// Words that are followed by a layer's number.
pub const LAYER_WORDS: &[&str] = &[
    "layers",
    "layer",
    "blocks",
    "block",
    "blk",
    "h",
    "resblocks",
    "resblock",
    "encoderblock",
];

/// What holds the parts of attention or feed-forward.
const CONTAINERS: &[(Place, &str)] = &[
    (Place::Attention, "self attn"),
    (Place::Attention, "attn self"),
    (Place::Attention, "attn attn"),
    (Place::Attention, "attn"),
    (Place::Attention, "mha"),
    (Place::Attention, "multi head attn"),
    (Place::Attention, "sa"),
    (Place::Mlp, "mlp"),
    (Place::Mlp, "block sparse moe"),
    (Place::Mlp, "moe"),
];

const PHRASES: &[(Place, &str, &[&str])] = &[
    (
        Place::Attention,
        "attn_q",
        &[
            "q proj",
            "q",
            "query",
            "queries",
            "wq",
            "query proj",
            "linear q",
            "q lin",
            "to q",
            "query layer",
            "q einsum",
        ],
    ),
    (
        Place::Attention,
        "attn_k",
        &[
            "k proj",
            "k",
            "key",
            "keys",
            "wk",
            "key proj",
            "linear k",
            "k lin",
            "to k",
            "key layer",
        ],
    ),
    (
        Place::Attention,
        "attn_v",
        &[
            "v proj",
            "v",
            "value",
            "values",
            "wv",
            "value proj",
            "linear v",
            "v lin",
            "to v",
            "value layer",
        ],
    ),
    (
        Place::Attention,
        "attn_o",
        &[
            "o proj",
            "o",
            "out proj",
            "output proj",
            "wo",
            "output dense",
            "dense",
            "linear proj",
            "c proj",
            "output",
            "proj",
            "out",
            "out lin",
            "to out",
            "to out 0",
            "linear o",
            "attn vec einsum",
            "vec einsum",
        ],
    ),
    (
        Place::Attention,
        "attn_qkv",
        &[
            "qkv proj",
            "qkv",
            "query key value",
            "c attn",
            "linear qkv",
            "wqkv",
            "in proj",
            "w qkv",
            "qkv linear",
            "w pack",
            "qkv einsum",
        ],
    ),
    (
        Place::Attention,
        "attn_kv",
        &[
            "kv proj",
            "kv",
            "key value",
            "linear kv",
            "wkv",
            "kv einsum",
        ],
    ),
    // Low-rank queries, keys and values.
    (
        Place::Attention,
        "attn_q_a",
        &["q a proj", "q a", "linear q down proj", "wq a"],
    ),
    (
        Place::Attention,
        "attn_q_b",
        &["q b proj", "q b", "linear q up proj", "wq b"],
    ),
    (
        Place::Attention,
        "attn_kv_a",
        &[
            "kv a proj with mqa",
            "kv a mqa",
            "kv a proj",
            "kv a",
            "linear kv down proj",
            "wkv a",
        ],
    ),
    (
        Place::Attention,
        "attn_kv_b",
        &["kv b proj", "kv b", "linear kv up proj", "wkv b"],
    ),
    (
        Place::Attention,
        "q_a_norm",
        &["q a norm", "linear q up proj norm"],
    ),
    (
        Place::Attention,
        "kv_a_norm",
        &["kv a norm", "kv norm", "linear kv up proj norm"],
    ),
    (Place::Attention, "attn_qkv_a", &["fused qkv a proj"]),
    (
        Place::Attention,
        "rel_bias",
        &["relative attn bias", "rel b"],
    ),
    (
        Place::Attention,
        "q_norm",
        &["q norm", "query norm", "norm q"],
    ),
    (
        Place::Attention,
        "k_norm",
        &["k norm", "key norm", "norm k"],
    ),
    // RWKV.
    (Place::Attention, "attn_r", &["receptance", "r proj"]),
    (Place::Attention, "attn_g_norm", &["norm x", "g norm"]),
    (Place::Layer, "pre_norm", &["ln0", "pre norm"]),
    (
        Place::Attention,
        "norm1",
        &["norm", "linear qkv norm", "wqkv norm"],
    ),
    (Place::Attention, "attn_out_norm", &["output norm"]),
    (Place::Attention, "post_attn_norm", &["post norm"]),
    (
        Place::Mlp,
        "mlp_gate",
        &[
            "gate proj",
            "gate",
            "w1",
            "linear gate",
            "wi 0",
            "swiglu linear inner",
            "gate dense",
        ],
    ),
    (
        Place::Mlp,
        "mlp_up",
        &[
            "up proj",
            "up",
            "w3",
            "c fc",
            "fc1",
            "fc in",
            "dense h to 4h",
            "linear fc1",
            "intermediate dense",
            "wi 1",
            "swiglu linear outer",
            "wi",
            "lin1",
            "linear 1",
            "fc",
        ],
    ),
    (
        Place::Mlp,
        "mlp_down",
        &[
            "down proj",
            "down",
            "w2",
            "c proj",
            "fc2",
            "fc out",
            "dense 4h to h",
            "linear fc2",
            "output dense",
            "wo",
            "lin2",
            "linear 2",
            "proj",
        ],
    ),
    (
        Place::Mlp,
        "mlp_gate_up",
        &[
            "gate up proj",
            "gate up",
            "w13",
            "gate and up proj",
            "up gate proj",
            "gating einsum",
        ],
    ),
    (
        Place::Mlp,
        "mlp_act",
        &["act fn", "act", "activation fn", "activation"],
    ),
    (Place::Mlp, "router", &["gate inp", "router", "router gate"]),
    (Place::Mlp, "shared_gate", &["shared gate"]),
    (
        Place::Mlp,
        "router_correction",
        &["gate e score correction", "router experts"],
    ),
    (Place::Layer, "router_correction", &["exp probs b"]),
    (Place::Mlp, "norm2", &["norm", "linear fc1 norm"]),
    (Place::Mlp, "post_mlp_norm", &["post norm"]),
    (
        Place::Layer,
        "norm1",
        &[
            "input norm",
            "norm1",
            "pre attn norm",
            "norm before",
            "pre self attn norm",
        ],
    ),
    (
        Place::Layer,
        "norm2",
        &["norm2", "pre mlp norm", "final norm", "norm after"],
    ),
    (
        Place::Layer,
        "post_attn_norm",
        &["post attn norm", "post self attn norm", "post norm"],
    ),
    (Place::Layer, "post_mlp_norm", &["post mlp norm"]),
    (Place::Layer, "router", &["block sparse moe gate"]),
    (
        Place::Layer,
        "out_norm",
        &["output norm", "layer output norm"],
    ),
    (
        Place::Layer,
        "mlp_up",
        &[
            "intermediate dense",
            "fc1",
            "linear1",
            "linear 1",
            "pwconv1",
        ],
    ),
    (
        Place::Layer,
        "mlp_down",
        &["output dense", "fc2", "linear2", "linear 2", "pwconv2"],
    ),
    // ConvNeXt.
    (Place::Layer, "conv_dw", &["dwconv", "conv dw"]),
    (
        Place::Layer,
        "layer_scale",
        &["layer scale parameter", "layer scale", "gamma"],
    ),
    // One projection for attention and feed-forward of a block that computes them side by side.
    (Place::Layer, "attn_qkv_mlp", &["qkv mlp proj"]),
    (Place::Layer, "proj_mlp", &["proj mlp"]),
    // A state space model's own; `ssm_a` and `A_log` are not one: the one is minus the exponential of the other.
    (Place::Layer, "ssm_in", &["ssm in", "mixer in proj"]),
    (Place::Layer, "ssm_conv", &["ssm conv1d", "mixer conv1d"]),
    (Place::Layer, "ssm_x", &["ssm x", "mixer x proj"]),
    (
        Place::Layer,
        "ssm_dt",
        &["ssm dt", "mixer dt proj", "mixer dt"],
    ),
    (Place::Layer, "ssm_norm", &["ssm norm", "mixer norm"]),
    (Place::Layer, "ssm_d", &["ssm d", "mixer d"]),
    (Place::Layer, "ssm_out", &["ssm out", "mixer out proj"]),
    (
        Place::Top,
        "embed",
        &[
            "embed tokens",
            "token embed",
            "tok embed",
            "wte",
            "word embed",
            "embed word embed",
            "embed in",
            "embed",
            "embed tok embed",
            "tokens embed",
            "token embedder",
            "vocab embed",
            "shared",
        ],
    ),
    (
        Place::Top,
        "pos_embed",
        &[
            "wpe",
            "position embed",
            "embed position embed",
            "embed positions",
            "pos embed",
            "positional embed",
            "posembed input pos embed",
        ],
    ),
    (
        Place::Top,
        "type_embed",
        &["token type embed", "embed token type embed", "token types"],
    ),
    (
        Place::Top,
        "embed_norm",
        &["embed norm", "token embed norm", "word embed norm"],
    ),
    (
        Place::Top,
        "final_norm",
        &[
            "norm",
            "normf",
            "output norm",
            "final norm",
            "norm final",
            "norm out",
            "norm post",
            "encoder norm",
            "decoder norm",
        ],
    ),
    (
        Place::Top,
        "lm_head",
        &[
            "lm head",
            "output",
            "output layer",
            "embed out",
            "head",
            "classifier",
            "logits dense",
            "unembedding",
            "unembed",
        ],
    ),
    (Place::Anywhere, "attn_q", &["q proj", "wq"]),
    (Place::Anywhere, "attn_k", &["k proj", "wk"]),
    (Place::Anywhere, "attn_v", &["v proj", "wv"]),
    (Place::Anywhere, "attn_o", &["o proj"]),
    (Place::Anywhere, "attn_q_a", &["q a proj"]),
    (Place::Anywhere, "attn_q_b", &["q b proj"]),
    (
        Place::Anywhere,
        "attn_kv_a",
        &["kv a proj with mqa", "kv a proj"],
    ),
    (Place::Anywhere, "attn_kv_b", &["kv b proj"]),
    (Place::Anywhere, "attn_qkv_a", &["fused qkv a proj"]),
    (
        Place::Anywhere,
        "attn_qkv",
        &[
            "qkv proj",
            "query key value",
            "c attn",
            "linear qkv",
            "wqkv",
        ],
    ),
    (Place::Anywhere, "mlp_gate", &["gate proj"]),
    (Place::Anywhere, "mlp_up", &["up proj"]),
    (Place::Anywhere, "mlp_down", &["down proj"]),
    (Place::Anywhere, "mlp_gate_up", &["gate up proj"]),
];

/// A stage that is several others after one another. The first alternative that fits counts; `mlp_up` is Megatron's `linear_fc1`, which
/// holds the gate too when the feed-forward has one.
pub const FUSED: &[(&str, &[&str])] = &[
    ("attn_qkv", &["attn_q", "attn_k", "attn_v"]),
    ("attn_qkv_mlp", &["attn_q", "attn_k", "attn_v", "proj_mlp"]),
    ("attn_kv", &["attn_k", "attn_v"]),
    ("attn_qkv_a", &["attn_q_a", "attn_kv_a"]),
    ("mlp_gate_up", &["mlp_gate", "mlp_up"]),
    ("mlp_up", &["mlp_gate", "mlp_up"]),
];

type Leaves = HashMap<(Place, &'static str), Vec<(Vec<&'static str>, &'static str)>>;

static LEAVES: LazyLock<Leaves> = LazyLock::new(|| {
    let mut leaves = Leaves::new();
    for (place, stage, phrases) in PHRASES {
        for phrase in *phrases {
            let words: Vec<&'static str> = phrase.split(' ').collect();
            leaves
                .entry((*place, words[0]))
                .or_default()
                .push((words, stage));
        }
    }
    leaves
        .values_mut()
        .for_each(|phrases| phrases.sort_by_key(|(words, _)| std::cmp::Reverse(words.len())));
    leaves
});

static CONTAINER_WORDS: LazyLock<Vec<(Place, Vec<&'static str>)>> = LazyLock::new(|| {
    let mut containers: Vec<_> = CONTAINERS
        .iter()
        .map(|(place, phrase)| (*place, phrase.split(' ').collect::<Vec<_>>()))
        .collect();
    containers.sort_by_key(|(_, words)| std::cmp::Reverse(words.len()));
    containers
});

/// Whether `words` begin with `phrase`.
pub(crate) fn begins(words: &[String], phrase: &[&str]) -> bool {
    words.len() >= phrase.len() && words.iter().zip(phrase).all(|(word, part)| word == part)
}

/// The longest phrase that `words` begin with in this place: how many words, and the stage.
pub(crate) fn leaf(place: Place, words: &[String]) -> Option<(usize, &'static str)> {
    let first = words.first()?;
    let find = |place| {
        let phrases = LEAVES.get(&(place, first.as_str()))?;
        phrases
            .iter()
            .find(|(phrase, _)| begins(words, phrase))
            .map(|(phrase, stage)| (phrase.len(), *stage))
    };
    let (here, anywhere) = (find(place), find(Place::Anywhere));
    match (here, anywhere) {
        (Some(here), Some(anywhere)) if anywhere.0 > here.0 => Some(anywhere),
        (None, anywhere) => anywhere,
        (here, _) => here,
    }
}

/// The container that `words` begin with: how many words, and what it holds.
pub(crate) fn container(words: &[String]) -> Option<(usize, Place)> {
    CONTAINER_WORDS
        .iter()
        .find(|(_, phrase)| begins(words, phrase))
        .map(|(place, phrase)| (phrase.len(), *place))
}
