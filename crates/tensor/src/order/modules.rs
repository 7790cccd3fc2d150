//! What modules of networks are usually called, in the order they run in a layer.
//!
//! A dict of activations that was saved without an order (safetensors has none) is still named by modules, and a norm before attention is computed
//! before the attention's result whatever the alphabet says. Only results are ordered by this: what is loaded is not computed.

/// Whether a name is that of something loaded, not computed.
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

/// The stack of layers that a segment of a path begins, where a network has several.
pub(super) fn stack(segment: &str) -> Option<u64> {
    let numbered = ["layer", "stage"].into_iter().find_map(|word| segment.strip_prefix(word)).and_then(|number| number.parse().ok());
    numbered.or(match segment {
        "encoder" | "down" | "down_blocks" => Some(0),
        "mid" | "mid_block" | "middle" | "middle_block" => Some(1),
        "decoder" | "up" | "up_blocks" => Some(2),
        _ => None,
    })
}

/// Whether a name ends with a number that counts a few modules in a row, outside of the layers.
pub(super) fn is_in_a_row(name: &str) -> bool {
    let Some((before, last)) = name.rsplit_once(['.', '/']) else { return false };
    let counted = before.split(['.', '/']).any(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit()));
    let lower = before.to_ascii_lowercase();
    let outside = ["emb", "head", "classifier", "final", "pooler"].iter().any(|word| lower.contains(word));
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
    if segments.clone().any(|segment| begins.iter().any(|word| segment.starts_with(word))) {
        return Outside::Before;
    }
    if segments.any(|segment| segment == "encoder") { Outside::EndOfEncoder } else { Outside::After }
}

/// What is not known comes here: after what begins a layer or a network, before what ends it.
const UNKNOWN: u8 = 60;

/// Where a module runs among those beside it. Outside of layers few names say that.
pub(super) fn rank(segment: &str, parent: &str, in_layer: bool) -> u8 {
    let (name, parent) = (segment.to_ascii_lowercase(), parent.to_ascii_lowercase());
    let name = name.as_str();
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
    let outside = says(&["emb", "norm", "ln_f", "pool", "head", "classifier", "logits", "loss", "input_", "pixel", "position"])
        || ["wte", "wpe", "conv1", "bn1", "relu", "fc", "conv_in", "conv_out", "act", "linear_1", "linear_2"].contains(&name);
    if in_layer || outside { rank } else { UNKNOWN }
}

fn in_a_layer(name: &str, parent: &str) -> u8 {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let is = |words: &[&str]| words.contains(&name);
    let is_norm = has(&["norm", "ln_", "_ln"]) || is(&["ln", "ln1", "ln2"]);
    // A feed-forward that is no module of its own comes after the attention beside it.
    let beside = if parent.is_empty() { 38 } else { 0 };
    let numbered = |word: &str, number: char| name.strip_prefix(word).is_some_and(|rest| rest.trim_start_matches('_').starts_with(number));
    match () {
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
        () if is_norm && is(&["layernorm", "layer_norm"]) && (parent == "output" || parent.contains("embed")) => 80,
        // The parts of an attention that have norms of their own.
        () if is_norm && has(&["q_a", "kv_a"]) => {
            if has(&["kv_a"]) {
                15
            } else {
                12
            }
        }
        () if is_norm && (is(&["q_norm", "k_norm", "q_layernorm", "k_layernorm"]) || has(&["query_norm", "key_norm"])) => 20,
        () if is_norm && has(&["encoder_attn", "cross"]) => 28,
        () if is_norm && has(&["post_attention", "post_attn", "after"]) => 40,
        () if is_norm && (has(&["ln_2", "ln2", "ffn", "mlp", "final", "pre_feed", "pre_ff"]) || numbered("norm", '2')) => 42,
        () if is_norm && has(&["post_feed", "post_ff", "norm3", "norm_out", "ln_f"]) => 62,
        () if is_norm => 10,
        () if is(&["conv1d"]) => 15,
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
        () if has(&["probs", "softmax"]) => 31,
        () if has(&["context", "attn_out", "attention_out"]) => 32,
        () if is(&["qkv", "query_key_value", "c_attn", "in_proj", "q_a_proj", "wqkv", "qkv_proj"]) => 11,
        () if is(&["q_b_proj"]) => 13,
        () if name.starts_with("kv_a") => 14,
        () if name.starts_with("kv_b") => 16,
        () if has(&["rot", "rope", "_pe"]) => 22,
        () if is(&["self", "selfattention", "self_attention", "attn", "attention", "mixer"]) || has(&["self_attn"]) => 24,
        () if is(&["router"]) || (is(&["gate"]) && (parent.contains("moe") || parent.contains("mlp"))) => 10,
        () if is(&["ids", "indices", "topk_ids", "selected_experts", "router_ids"]) => 11,
        () if is(&["weights", "routing_weights", "topk_weights", "router_weights"]) => 12,
        () if is(&["experts", "shared_experts"]) => 13,
        () if is(&["gate_proj", "gate_up_proj", "wi_0", "wi", "w1", "fc1", "c_fc", "dense_h_to_4h", "linear1", "linear_1", "lin1"]) => {
            14 + beside
        }
        () if is(&["up_proj", "wi_1", "w3", "g_proj"]) => 15 + beside,
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
        () if is(&["o_proj", "out_proj", "c_proj", "dense", "wo", "o", "proj", "to_out"]) => 33,
        () if is(&["down_proj", "w2", "fc2", "dense_4h_to_h", "linear2", "linear_2", "lin2"]) => 33 + beside,
        () if is(&["q"]) || name.starts_with("q_") || name.starts_with("query") => 17,
        () if is(&["k"]) || name.starts_with("k_") || name.starts_with("key") => 18,
        () if is(&["v"]) || name.starts_with("v_") || name.starts_with("value") => 19,
        () if is(&["mid", "resid_mid"]) => 36,
        () if has(&["mlp", "feed_forward", "feedforward", "ffn", "moe", "densereludense", "intermediate"]) => 50,
        () if is(&["output", "out"]) => 80,
        () if has(&["pool"]) => 82,
        () if has(&["lm_head", "classifier"]) || is(&["head", "fc", "score", "conv_out"]) => 90,
        () if has(&["logits", "loss"]) => 95,
        () => UNKNOWN,
    }
}
