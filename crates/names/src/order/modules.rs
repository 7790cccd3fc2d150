//! What modules of networks are usually called, in the order they run in a layer.
//!
//! A dict of activations that was saved without an order (safetensors has none) is still named by modules, and a norm before attention is computed
//! before the attention's result whatever the alphabet says. Only results are ordered by this: what is loaded is not computed.

/// Whether a name is that of something loaded, not computed. [`crate::role::is_parameter`] asks the same with other words; see there.
pub(super) fn is_loaded(name: &str) -> bool {
    let last = name.rsplit(['.', '/']).next().unwrap_or(name);
    let whole = [
        "weight",
        "bias",
        "scales",
        "qweight",
        "qzeros",
        "g_idx",
        "inv_freq",
        "num_batches_tracked",
        "gamma",
        "beta",
        "kernel",
        "embedding",
        "weight_scale",
    ];
    let begins = ["weight_", "bias_", "running_", "weight:", "bias:"];
    whole.contains(&last) || begins.iter().any(|begin| last.starts_with(begin))
}

/// Where what no word says more about stands among the stacks.
pub(super) const PLAIN_STACK: u64 = 2;

/// The stack of layers that these segments of a path, up to the first number, are in where a network has several: what is seen, what brings it to
/// the text, and then what there always is, an encoder before its decoder.
pub(super) fn stack<'a>(segments: impl Iterator<Item = &'a str> + Clone) -> Option<u64> {
    let is = |words: &[&str]| segments.clone().any(|segment| words.contains(&segment));
    if is(&[
        "vision_tower",
        "vision_model",
        "vision_encoder",
        "visual",
        "image_encoder",
        "audio_tower",
    ]) {
        return Some(if is(&["merger"]) { 1 } else { 0 });
    }
    if is(&[
        "multi_modal_projector",
        "mm_projector",
        "vision_projector",
        "connector",
    ]) {
        return Some(1);
    }
    let numbered = |segment: &str| {
        ["layer", "stage"]
            .into_iter()
            .find_map(|word| segment.strip_prefix(word))
            .and_then(|number| number.parse().ok())
    };
    let known = |segment: &str| {
        numbered(segment)
            .map(|number: u64| number.saturating_add(PLAIN_STACK))
            .or(match segment {
                "encoder" | "down" | "down_blocks" => Some(PLAIN_STACK),
                "mid" | "mid_block" | "middle" | "middle_block" => Some(PLAIN_STACK + 1),
                "decoder" | "up" | "up_blocks" | "single_transformer_blocks" | "single_blocks" => {
                    Some(PLAIN_STACK + 2)
                }
                _ => None,
            })
    };
    // The text of a network that sees is read behind what is seen.
    let text = if is(&["language_model"]) {
        PLAIN_STACK + 2
    } else {
        0
    };
    segments
        .clone()
        .find_map(known)
        .or((text > 0).then_some(PLAIN_STACK))
        .map(|stack| stack.saturating_add(text))
}

/// Whether two kinds of modules take turns here, each numbered for itself.
pub(super) fn takes_turns(segment: &str) -> bool {
    matches!(segment, "resnets" | "attentions")
}

/// What a layer is called where its number is no segment of a path. Letters alone need the number right behind them.
const LAYERS: [&str; 11] = [
    "layers", "layer", "blocks", "block", "blk", "encoder", "decoder", "enc", "dec", "l", "h",
];

/// The number of a layer behind the word for one, `layer5_attn`, `block_5/attn`, `L05.attn`, and the name behind it.
pub(super) fn worded_layer(name: &str) -> Option<(u64, &str)> {
    let bytes = name.as_bytes();
    (0..bytes.len()).find_map(|at| {
        let begins = at == 0
            || !bytes[at - 1].is_ascii_alphanumeric()
            || (bytes[at].is_ascii_uppercase() && bytes[at - 1].is_ascii_lowercase());
        let word = LAYERS.iter().filter(|_| begins).find(|word| {
            bytes[at..]
                .get(..word.len())
                .is_some_and(|part| part.eq_ignore_ascii_case(word.as_bytes()))
        })?;
        let behind = &name[at + word.len()..];
        let digits = if word.len() == 1 {
            behind
        } else {
            behind
                .strip_prefix(['_', '-', '[', '.', ':', ' '])
                .unwrap_or(behind)
        };
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        let number = digits[..count].parse().ok()?;
        Some((
            number,
            digits[count..].trim_start_matches(['_', '-', ']', '.', ':', ' ', '/']),
        ))
    })
}

/// Whether a name ends with a number that counts a few modules in a row, outside of the layers.
pub(super) fn is_in_a_row(name: &str) -> bool {
    let Some((before, last)) = name.rsplit_once(['.', '/']) else {
        return false;
    };
    let counted = before
        .split(['.', '/'])
        .any(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit()));
    let lower = before.to_ascii_lowercase();
    let outside = ["emb", "head", "classifier", "final", "pooler"]
        .iter()
        .any(|word| lower.contains(word))
        || lower
            .split(['.', '/'])
            .any(|part| part == "stem" || part.ends_with("_stem"));
    last.bytes().all(|b| b.is_ascii_digit()) && !counted && outside
}

/// What people call a network's input where they call it nothing else. Not `x`: anything is called that.
const INPUTS: [&str; 5] = ["image", "images", "mel", "latents", "waveform"];

/// Where what is in no layer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outside {
    Before,
    EndOfEncoder,
    After,
}

pub(super) fn outside_of_layers(name: &str) -> Outside {
    let lower = name.to_ascii_lowercase();
    let begins = [
        "position",
        "pixel",
        "patch",
        "stem",
        "conv_in",
        "conv_stem",
        "time_",
        "timestep",
        "sample",
        "conv1",
        "conv2",
        "bn1",
        "relu",
        "maxpool",
        "shared",
        "relative_att",
    ];
    let mut segments = lower.split(['.', '/']);
    if INPUTS.contains(&lower.as_str()) {
        return Outside::Before;
    }
    let whole = [
        "drop",
        "pos_drop",
        "embed_drop",
        "norm_pre",
        "ln_pre",
        "pre_layrnorm",
        "pre_layernorm",
        "x_embedder",
        "context_embedder",
    ];
    if segments.clone().any(|segment| {
        whole.contains(&segment) || begins.iter().any(|word| segment.starts_with(word))
    }) {
        return Outside::Before;
    }
    if segments.any(|segment| segment == "encoder") {
        Outside::EndOfEncoder
    } else {
        Outside::After
    }
}

/// What is not known comes here: after what begins a layer or a network, before what ends it.
const UNKNOWN: u8 = 60;

/// Where a module runs among those beside it. Outside of layers few names say that.
pub(super) fn rank(segment: &str, parent: &str, in_layer: bool) -> u8 {
    let (name, parent) = (segment.to_ascii_lowercase(), parent.to_ascii_lowercase());
    // What TransformerLens calls a place to look.
    let name = name.strip_prefix("hook_").unwrap_or(&name);
    let rank = in_a_layer(name, &parent);
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if INPUTS.contains(&name) && parent.is_empty() && !in_layer {
        return 2;
    }
    // A stem is convolved before positions are added to it, and a pooler's activation comes behind its product.
    if !in_layer && (name == "conv1" || name == "conv2") {
        return 3;
    }
    if !in_layer && name == "activation" {
        return UNKNOWN + 1;
    }
    let outside = says(&[
        "emb",
        "norm",
        "ln_f",
        "pool",
        "head",
        "classifier",
        "logits",
        "loss",
        "input_",
        "pixel",
        "position",
    ]) || [
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
    ]
    .contains(&name);
    let dropped = name == "dropout" && parent.contains("embed");
    if in_layer || outside || dropped {
        rank
    } else {
        UNKNOWN
    }
}

/// What modules are called before their parts where all of a path is one word: `self_attn_q_proj`; and whether that is a feed-forward.
const BEFORE_PARTS: [(&str, bool); 8] = [
    ("self_attn_", false),
    ("self_attention_", false),
    ("attention_", false),
    ("attn_", false),
    ("mlp_", true),
    ("ffn_", true),
    ("feed_forward_", true),
    ("feedforward_", true),
];
const PARTS: [&str; 38] = [
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

fn in_a_layer(name: &str, parent: &str) -> u8 {
    let part = BEFORE_PARTS.iter().find_map(|(before, feeds)| {
        Some((
            name.strip_prefix(before)
                .filter(|part| PARTS.contains(part))?,
            *feeds,
        ))
    });
    match part {
        Some(("c_proj" | "out_proj" | "proj" | "dense", true)) => {
            return in_a_layer("down_proj", "");
        }
        Some(("gate", true)) => return in_a_layer("gate_proj", ""),
        Some((part, _)) => return in_a_layer(part, ""),
        None => {}
    }
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let is = |words: &[&str]| words.contains(&name);
    let is_norm = has(&["norm", "ln_", "_ln"]) || is(&["ln", "ln1", "ln2"]);
    // A feed-forward that is no module of its own comes after the attention beside it.
    let beside = if parent.is_empty() { 38 } else { 0 };
    let numbered = |word: &str, number: char| {
        name.strip_prefix(word)
            .is_some_and(|rest| rest.trim_start_matches('_').starts_with(number))
    };
    match () {
        () if is(&["time_proj"]) => 2,
        () if is(&["embed"]) => 3,
        // What llama.cpp computes in a layer.
        () if is(&["qcur"]) => 17,
        () if is(&["kcur"]) => 18,
        () if is(&["vcur"]) => 19,
        () if is(&["kq"]) => 28,
        () if name.starts_with("kq_soft_max") => 29,
        () if is(&["kqv"]) => 30,
        () if is(&["kqv_out", "kqv_merged", "kqv_merged_cont"]) => 31,
        () if is(&["ffn_inp"]) => 36,
        () if is(&["ffn_moe_logits"]) => 51,
        () if name.starts_with("ffn_moe_probs") => 52,
        () if is(&["ffn_moe_topk"]) => 53,
        () if name.starts_with("ffn_moe_weights") => 54,
        () if is(&["ffn_moe_gate", "ffn_moe_up"]) => 55,
        () if is(&["ffn_silu", "ffn_gelu", "ffn_moe_silu", "ffn_moe_swiglu"]) => 56,
        () if is(&[
            "ffn_gate_par",
            "ffn_swiglu",
            "ffn_geglu",
            "ffn_moe_gate_par",
        ]) =>
        {
            57
        }
        () if is(&["ffn_moe_down"]) => 58,
        () if is(&["ffn_moe_out"]) => 71,
        () if is(&["l_out"]) => 84,
        // A norm in parts, as TransformerLens has it.
        () if is(&["normalized"]) => 61,
        () if is(&["pre"]) => 14,
        () if is(&["post"]) => 16,
        () if is(&["dropout"]) && (parent == "output" || parent.contains("embed")) => {
            if parent == "output" { 79 } else { 81 }
        }
        () if is(&["ls1", "layer_scale1"]) => 37,
        () if is(&["drop_path1"]) => 38,
        () if is(&["ls2", "layer_scale2"]) => 63,
        () if is(&["drop_path2", "drop_path"]) => 64,
        () if is(&["time_emb_proj"]) => 19,
        () if is(&["downsamplers", "upsamplers"]) => 85,
        () if is(&[
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
        ]) =>
        {
            2
        }
        () if has(&["word_emb", "tok_emb", "token_emb", "embed_tokens"]) || is(&["wte"]) => 3,
        () if has(&["pos_emb", "position", "token_type"]) || is(&["wpe"]) => 4,
        () if is_norm
            && is(&["layernorm", "layer_norm"])
            && (parent == "output" || parent.contains("embed")) =>
        {
            80
        }
        // The parts of an attention that have norms of their own.
        () if is_norm && has(&["q_a", "kv_a"]) => {
            if has(&["kv_a"]) {
                15
            } else {
                12
            }
        }
        () if is_norm && (is(&["q_norm", "q_layernorm", "norm_q"]) || has(&["query_norm"])) => 20,
        () if is_norm && (is(&["k_norm", "k_layernorm", "norm_k"]) || has(&["key_norm"])) => 21,
        () if is_norm && has(&["encoder_attn", "cross"]) => 28,
        () if is_norm
            && (has(&["post_attention", "post_attn", "after"])
                || is(&["post_norm", "post_ln", "post_layernorm"])) =>
        {
            40
        }
        () if is_norm
            && (has(&[
                "ln_2", "ln2", "ffn", "mlp", "final", "pre_feed", "pre_ff", "norm2", "norm_2",
            ])) =>
        {
            42
        }
        () if is_norm && has(&["post_feed", "post_ff", "norm3", "norm_out", "ln_f"]) => 62,
        () if is_norm => 10,
        () if is(&["conv1d"]) => 15,
        // ConvNeXt begins with it; a mobile network has it in the middle.
        () if is(&["dwconv", "depthwise_conv"]) => 8,
        () if is(&["conv_pw", "expand_conv"]) => 17,
        () if is(&["conv_dw"]) => 44,
        () if is(&["conv_pwl", "project_conv"]) => 46,
        () if numbered("conv", '2') => 44,
        () if numbered("bn", '2') => 45,
        // Behind the sum that ends a block.
        () if numbered("relu", '2') => 49,
        () if numbered("conv", '3') => 46,
        () if numbered("bn", '3') => 47,
        () if has(&["shortcut", "downsample"]) || is(&["add"]) => 48,
        () if numbered("act", '2') => 43,
        () if numbered("conv", '1') => 17,
        () if numbered("bn", '1') => 18,
        () if name.starts_with("relu") => 19,
        () if has(&["encoder_attn", "crossattention", "cross_attn"]) => 30,
        () if has(&["attn_weights", "scores"]) => 30,
        () if has(&["probs", "softmax"]) || is(&["pattern"]) => 31,
        () if has(&["context", "attn_out", "attention_out"]) || is(&["z", "ctx"]) => 32,
        () if has(&["mlp_out", "ffn_out", "feed_forward_out", "feedforward_out"]) => 72,
        () if is(&["resid_pre", "hidden_in"]) => 5,
        () if is(&[
            "resid_post",
            "resid_out",
            "layer_out",
            "layer_output",
            "block_out",
            "block_output",
            "hidden_out",
        ]) =>
        {
            84
        }
        () if is(&[
            "qkv",
            "query_key_value",
            "c_attn",
            "in_proj",
            "q_a_proj",
            "wqkv",
            "qkv_proj",
        ]) =>
        {
            11
        }
        () if is(&["q_b_proj"]) => 13,
        () if name.starts_with("kv_a") => 14,
        () if name.starts_with("kv_b") => 16,
        () if has(&["rot", "rope", "_pe"]) => 22,
        () if is(&[
            "self",
            "selfattention",
            "self_attention",
            "attn",
            "attention",
            "mixer",
        ]) || has(&["self_attn"]) =>
        {
            24
        }
        () if is(&["router"])
            || (is(&["gate"]) && (parent.contains("moe") || parent.contains("mlp"))) =>
        {
            10
        }
        () if is(&[
            "ids",
            "indices",
            "topk_ids",
            "selected_experts",
            "router_ids",
        ]) =>
        {
            11
        }
        () if is(&[
            "weights",
            "routing_weights",
            "topk_weights",
            "router_weights",
        ]) =>
        {
            12
        }
        () if is(&["experts", "shared_experts"]) => 13,
        () if is(&[
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
        ]) =>
        {
            14 + beside
        }
        () if is(&["up_proj", "up", "wi_1", "w3", "g_proj"]) => 15 + beside,
        () if has(&["act", "gelu", "silu"]) => {
            if parent == "intermediate" {
                34
            } else {
                16 + beside
            }
        }
        () if is(&["x_proj"]) => 18,
        () if is(&["dt_proj"]) => 19,
        () if is(&["dt"]) => 20,
        () if is(&["scan", "ssm"]) => 30,
        () if is(&["skip"]) => 31,
        () if is(&["hidden", "mlp_hidden", "gated"]) => 32,
        () if is(&[
            "o_proj", "out_proj", "c_proj", "dense", "wo", "o", "proj", "to_out",
        ]) =>
        {
            33
        }
        () if is(&[
            "down_proj",
            "down",
            "w2",
            "fc2",
            "dense_4h_to_h",
            "linear2",
            "linear_2",
            "lin2",
        ]) =>
        {
            33 + beside
        }
        () if is(&["to_q"]) => 17,
        () if is(&["to_k"]) => 18,
        () if is(&["to_v"]) => 19,
        () if is(&["q"]) || name.starts_with("q_") || name.starts_with("query") => 17,
        () if is(&["k"]) || name.starts_with("k_") || name.starts_with("key") => 18,
        () if is(&["v"]) || name.starts_with("v_") || name.starts_with("value") => 19,
        () if is(&["mid", "resid_mid"]) => 36,
        () if has(&[
            "mlp",
            "feed_forward",
            "feedforward",
            "ffn",
            "moe",
            "densereludense",
            "intermediate",
        ]) =>
        {
            50
        }
        () if is(&["output", "out"]) => 80,
        () if has(&["pool"]) => 82,
        () if has(&["lm_head", "classifier"]) || is(&["head", "fc", "score", "conv_out"]) => 90,
        () if has(&["logits", "loss"]) => 95,
        () => UNKNOWN,
    }
}
