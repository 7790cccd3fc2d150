//! What modules are called, and where such modules run in a layer. A new family of names is a new row here.
//!
//! A pattern is a word: `kq` is that word, `kq_soft_max*` begins with it, `*norm*` contains it, `*` is any name. `~` stands for any number of underscores:
//! `conv~2*` is `conv2` and `conv_2`. Names are lower case when they are looked up. The first row that fits counts, so exceptions stand
//! before the rule they are exceptions of.

/// Where a module runs among those beside it; the smallest runs first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rank {
    At(u8),
    /// A part of a feed-forward. One that is no module of its own runs after the attention beside it: [`BESIDE`] later.
    Feed(u8),
}

/// What else must be so for a row to count.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Always,
    /// The name is that of a norm.
    Norm,
    /// The module is in one whose name fits one of these; an empty pattern means that it is in none.
    In(&'static [&'static str]),
}

use Rank::{At, Feed};
use When::{Always, In, Norm};

pub(super) type Row = (Rank, &'static [&'static str], When);

pub(super) const BESIDE: u8 = 38;

/// A name that no row fits: after what begins a layer or a network, before what ends it.
pub(super) const UNKNOWN: u8 = 60;

pub(super) const NORMS: &[&str] = &["*norm*", "*ln_*", "*_ln*", "ln", "ln1", "ln2"];

pub(super) const IN_LAYERS: &[Row] = &[
    (At(2), &["time_proj"], Always),
    (At(3), &["embed"], Always),
    // What llama.cpp computes in a layer.
    (At(17), &["qcur"], Always),
    (At(18), &["kcur"], Always),
    (At(19), &["vcur"], Always),
    (At(28), &["kq"], Always),
    (At(29), &["kq_soft_max*"], Always),
    (At(30), &["kqv"], Always),
    (
        At(31),
        &["kqv_out", "kqv_merged", "kqv_merged_cont"],
        Always,
    ),
    (At(36), &["ffn_inp"], Always),
    (At(51), &["ffn_moe_logits"], Always),
    (At(52), &["ffn_moe_probs*"], Always),
    (At(53), &["ffn_moe_topk"], Always),
    (At(54), &["ffn_moe_weights*"], Always),
    (At(55), &["ffn_moe_gate", "ffn_moe_up"], Always),
    (
        At(56),
        &["ffn_silu", "ffn_gelu", "ffn_moe_silu", "ffn_moe_swiglu"],
        Always,
    ),
    (
        At(57),
        &[
            "ffn_gate_par",
            "ffn_swiglu",
            "ffn_geglu",
            "ffn_moe_gate_par",
        ],
        Always,
    ),
    (At(58), &["ffn_moe_down"], Always),
    (At(71), &["ffn_moe_out"], Always),
    (At(84), &["l_out"], Always),
    // A norm in parts, as TransformerLens has it.
    (At(61), &["normalized"], Always),
    (At(14), &["pre"], Always),
    (At(16), &["post"], Always),
    (At(79), &["dropout"], In(&["output"])),
    (At(81), &["dropout"], In(&["*embed*"])),
    (At(37), &["ls1", "layer_scale1"], Always),
    (At(38), &["drop_path1"], Always),
    (At(63), &["ls2", "layer_scale2"], Always),
    (At(64), &["drop_path2", "drop_path"], Always),
    (At(19), &["time_emb_proj"], Always),
    (At(85), &["downsamplers", "upsamplers"], Always),
    (
        At(2),
        &[
            "input_ids",
            "token_ids",
            "inputs",
            "input",
            "tokens",
            "pixel_values",
            "input_features",
            "input_values",
            "sample",
            "position_ids",
        ],
        Always,
    ),
    (
        At(3),
        &[
            "*word_emb*",
            "*tok_emb*",
            "*token_emb*",
            "*embed_tokens*",
            "wte",
        ],
        Always,
    ),
    (
        At(4),
        &["*pos_emb*", "*position*", "*token_type*", "wpe"],
        Always,
    ),
    (
        At(80),
        &["layernorm", "layer_norm"],
        In(&["output", "*embed*"]),
    ),
    // The parts of an attention that have norms of their own.
    (At(15), &["*kv_a*"], Norm),
    (At(12), &["*q_a*"], Norm),
    (
        At(20),
        &["q_norm", "q_layernorm", "norm_q", "*query_norm*"],
        Norm,
    ),
    (
        At(21),
        &["k_norm", "k_layernorm", "norm_k", "*key_norm*"],
        Norm,
    ),
    (At(28), &["*encoder_attn*", "*cross*"], Norm),
    (
        At(40),
        &[
            "*post_attention*",
            "*post_attn*",
            "*after*",
            "post_norm",
            "post_ln",
            "post_layernorm",
        ],
        Norm,
    ),
    (
        At(42),
        &[
            "*ln_2*",
            "*ln2*",
            "*ffn*",
            "*mlp*",
            "*final*",
            "*pre_feed*",
            "*pre_ff*",
            "*norm2*",
            "*norm_2*",
        ],
        Norm,
    ),
    (
        At(62),
        &[
            "*post_feed*",
            "*post_ff*",
            "*norm3*",
            "*norm_out*",
            "*ln_f*",
        ],
        Norm,
    ),
    (At(10), &["*"], Norm),
    (At(15), &["conv1d"], Always),
    // ConvNeXt begins with it; a mobile network has it in the middle.
    (At(8), &["dwconv", "depthwise_conv"], Always),
    (At(17), &["conv_pw", "expand_conv"], Always),
    (At(44), &["conv_dw"], Always),
    (At(46), &["conv_pwl", "project_conv"], Always),
    (At(44), &["conv~2*"], Always),
    (At(45), &["bn~2*"], Always),
    // After the sum that ends a block.
    (At(49), &["relu~2*"], Always),
    (At(46), &["conv~3*"], Always),
    (At(47), &["bn~3*"], Always),
    (At(48), &["*shortcut*", "*downsample*", "add"], Always),
    (At(43), &["act~2*"], Always),
    (At(17), &["conv~1*"], Always),
    (At(18), &["bn~1*"], Always),
    (At(19), &["relu*"], Always),
    (
        At(30),
        &["*encoder_attn*", "*crossattention*", "*cross_attn*"],
        Always,
    ),
    (At(30), &["*attn_weights*", "*scores*"], Always),
    (At(31), &["*probs*", "*softmax*", "pattern"], Always),
    (
        At(32),
        &["*context*", "*attn_out*", "*attention_out*", "z", "ctx"],
        Always,
    ),
    (
        At(72),
        &[
            "*mlp_out*",
            "*ffn_out*",
            "*feed_forward_out*",
            "*feedforward_out*",
        ],
        Always,
    ),
    (At(5), &["resid_pre", "hidden_in"], Always),
    (
        At(84),
        &[
            "resid_post",
            "resid_out",
            "layer_out",
            "layer_output",
            "block_out",
            "block_output",
            "hidden_out",
        ],
        Always,
    ),
    (
        At(11),
        &[
            "qkv",
            "query_key_value",
            "c_attn",
            "in_proj",
            "q_a_proj",
            "wqkv",
            "qkv_proj",
        ],
        Always,
    ),
    (At(13), &["q_b_proj"], Always),
    (At(14), &["kv_a*"], Always),
    (At(16), &["kv_b*"], Always),
    (At(22), &["*rot*", "*rope*", "*_pe*"], Always),
    (
        At(24),
        &[
            "self",
            "selfattention",
            "self_attention",
            "attn",
            "attention",
            "mixer",
            "*self_attn*",
        ],
        Always,
    ),
    (At(10), &["router"], Always),
    (At(10), &["gate"], In(&["*moe*", "*mlp*"])),
    (
        At(11),
        &[
            "ids",
            "indices",
            "topk_ids",
            "selected_experts",
            "router_ids",
        ],
        Always,
    ),
    (
        At(12),
        &[
            "weights",
            "routing_weights",
            "topk_weights",
            "router_weights",
        ],
        Always,
    ),
    (At(13), &["experts", "shared_experts"], Always),
    (
        Feed(14),
        &[
            "gate_proj",
            "gate_up_proj",
            "wi_0",
            "wi",
            "w1",
            "fc1",
            "c_fc",
            "dense_h_to_4h",
            "linear1",
            "linear_1",
            "lin1",
        ],
        Always,
    ),
    (Feed(15), &["up_proj", "up", "wi_1", "w3", "g_proj"], Always),
    (
        At(34),
        &["*act*", "*gelu*", "*silu*"],
        In(&["intermediate"]),
    ),
    (Feed(16), &["*act*", "*gelu*", "*silu*"], Always),
    (At(18), &["x_proj"], Always),
    (At(19), &["dt_proj"], Always),
    (At(20), &["dt"], Always),
    (At(30), &["scan", "ssm"], Always),
    (At(31), &["skip"], Always),
    (At(32), &["hidden", "mlp_hidden", "gated"], Always),
    (
        At(33),
        &[
            "o_proj", "out_proj", "c_proj", "dense", "wo", "o", "proj", "to_out",
        ],
        Always,
    ),
    (
        Feed(33),
        &[
            "down_proj",
            "down",
            "w2",
            "fc2",
            "dense_4h_to_h",
            "linear2",
            "linear_2",
            "lin2",
        ],
        Always,
    ),
    (At(17), &["to_q", "q", "q_*", "query*"], Always),
    (At(18), &["to_k", "k", "k_*", "key*"], Always),
    (At(19), &["to_v", "v", "v_*", "value*"], Always),
    (At(36), &["mid", "resid_mid"], Always),
    (
        At(50),
        &[
            "*mlp*",
            "*feed_forward*",
            "*feedforward*",
            "*ffn*",
            "*moe*",
            "*densereludense*",
            "*intermediate*",
        ],
        Always,
    ),
    (At(80), &["output", "out"], Always),
    (At(82), &["*pool*"], Always),
    (
        At(90),
        &[
            "*lm_head*",
            "*classifier*",
            "head",
            "fc",
            "score",
            "conv_out",
        ],
        Always,
    ),
    (At(95), &["*logits*", "*loss*"], Always),
];

/// What people call a network's input where they call it nothing else. Not `x`: anything is called that.
pub(super) const INPUTS: &[&str] = &["image", "images", "mel", "latents", "waveform"];

/// Ranks that only hold outside of layers; they come before those of [`IN_LAYERS`].
pub(super) const OUTSIDE: &[Row] = &[
    (At(2), INPUTS, In(&[""])),
    // A stem is convolved before positions are added to it, and a pooler's activation comes after its product.
    (At(3), &["conv1", "conv2"], Always),
    (At(UNKNOWN + 1), &["activation"], Always),
];

/// Names of which [`IN_LAYERS`] is believed outside of layers too.
pub(super) const ALSO_OUTSIDE: &[&str] = &[
    "*emb*",
    "*norm*",
    "*ln_f*",
    "*pool*",
    "*head*",
    "*classifier*",
    "*logits*",
    "*loss*",
    "*input_*",
    "*pixel*",
    "*position*",
    "wte",
    "wpe",
    "conv1",
    "bn1",
    "relu",
    "fc",
    "conv_in",
    "conv_out",
    "act",
    "linear_1",
    "linear_2",
    "time_proj",
];

/// What modules are called before their parts where all of a path is one word: `self_attn_q_proj`; and whether that is a feed-forward.
pub(super) const BEFORE_PARTS: [(&str, bool); 8] = [
    ("self_attn_", false),
    ("self_attention_", false),
    ("attention_", false),
    ("attn_", false),
    ("mlp_", true),
    ("ffn_", true),
    ("feed_forward_", true),
    ("feedforward_", true),
];

pub(super) const PARTS: &[&str] = &[
    "q",
    "k",
    "v",
    "o",
    "qkv",
    "query",
    "key",
    "value",
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "qkv_proj",
    "out_proj",
    "proj",
    "dense",
    "c_attn",
    "c_proj",
    "c_fc",
    "q_rope",
    "k_rope",
    "q_rot",
    "k_rot",
    "q_norm",
    "k_norm",
    "gate",
    "up",
    "down",
    "gate_proj",
    "up_proj",
    "down_proj",
    "gate_up_proj",
    "fc1",
    "fc2",
    "w1",
    "w2",
    "w3",
    "probs",
];

/// Parts that are called otherwise where they are a feed-forward's.
pub(super) const FEED_PARTS: &[(&str, &str)] = &[
    ("c_proj", "down_proj"),
    ("out_proj", "down_proj"),
    ("proj", "down_proj"),
    ("dense", "down_proj"),
    ("gate", "gate_proj"),
];

/// Whether a name fits a pattern.
fn fits(name: &str, pattern: &str) -> bool {
    let [begin @ .., b'*'] = pattern.as_bytes() else {
        return name == pattern;
    };
    if let [b'*', ..] = begin {
        return name.contains(&pattern[1..begin.len()]);
    }
    match pattern[..begin.len()].split_once('~') {
        Some((word, number)) => name
            .strip_prefix(word)
            .is_some_and(|rest| rest.trim_start_matches('_').starts_with(number)),
        None => name.as_bytes().starts_with(begin),
    }
}

pub(super) fn fits_any(name: &str, patterns: &[&str]) -> bool {
    patterns.iter().any(|pattern| fits(name, pattern))
}

/// The rank of the first row that fits.
pub(super) fn look_up(rows: &[Row], name: &str, parent: &str) -> Option<u8> {
    // Asked once, and before the names: most names are no norms, and then a third of all patterns need no search.
    let is_norm = fits_any(name, NORMS);
    let counts = |when: When| match when {
        Always => true,
        Norm => is_norm,
        In(parents) => fits_any(parent, parents),
    };
    let (rank, ..) = rows
        .iter()
        .find(|(_, names, when)| counts(*when) && fits_any(name, names))?;
    Some(match *rank {
        Feed(rank) if parent.is_empty() => rank + BESIDE,
        At(rank) | Feed(rank) => rank,
    })
}

#[cfg(test)]
mod tests {
    use super::{super::modules::rank, fits};

    #[test]
    fn patterns_are_words_beginnings_parts_and_numbers() {
        for (pattern, fitting, others) in [
            ("kq", &["kq"][..], &["kqv", "akq", ""][..]),
            ("q_*", &["q_", "q_x"], &["q", "xq_"]),
            ("*norm*", &["norm", "xnormx"], &["nor"]),
            (
                "conv~2*",
                &["conv2", "conv_2x", "conv__2"],
                &["conv1", "conv_x2", "xconv2"],
            ),
            ("*", &["", "x"], &[]),
        ] {
            for name in fitting {
                assert!(fits(name, pattern), "{name} {pattern}");
            }
            for name in others {
                assert!(!fits(name, pattern), "{name} {pattern}");
            }
        }
    }

    /// `ranks.txt` was written by the code that this table replaced, which agreed with it on six million names: all pairs of these words, and
    /// all words of this repository. Each line has ranks and the words that have them: of `word`, then of `x_word_x`, in a layer under
    /// [`PARENTS`], and last outside of layers. A row that is added on purpose moves its words to another line; the message says which.
    #[test]
    fn every_word_keeps_its_ranks() {
        const PARENTS: [&str; 5] = ["", "mlp", "output", "embed", "intermediate"];
        let mut words = 0;
        for line in include_str!("ranks.txt").lines() {
            let (ranks, names) = line.split_once(": ").expect("ranks and words");
            for word in names.split(' ') {
                let of = |name: &str| -> Vec<u8> {
                    let mut ranks: Vec<u8> = PARENTS.map(|parent| rank(name, parent, true)).into();
                    ranks.push(rank(name, "", false));
                    ranks
                };
                let now = [of(word), of(&format!("x_{word}_x"))].concat();
                let now: Vec<String> = now.iter().map(u8::to_string).collect();
                assert_eq!(now.join(" "), ranks, "{word}");
                words += 1;
            }
        }
        assert!(words > 250, "{words}");
    }
}
