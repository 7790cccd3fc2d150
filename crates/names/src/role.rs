//! What a tensor is for, as far as its name says: parameter, gradient, optimizer state, rotated by position.

/// What folders of gradients are called.
const GRADIENTS: [&str; 6] = [
    "grad",
    "grads",
    "gradient",
    "gradients",
    "main_grad",
    "param_grads",
];

/// What optimizers call the moving averages they keep for each parameter.
const OPTIMIZER_STATES: [&str; 5] = [
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "momentum_buffer",
    "square_avg",
];

/// Last words of tensors that only checkpoints hold, besides those of [`is_parameter`].
const KEPT: [&str; 27] = [
    "scale",
    "scales",
    "qzeros",
    "g_idx",
    "A_log",
    "D",
    "dt_bias",
    "inv_freq",
    "pos_embed",
    "cls_token",
    "position_ids",
    "sinks",
    "num_batches_tracked",
    "lora_A",
    "lora_B",
    "input_scale",
    "weight_scale_inv",
    "e_score_correction_bias",
    "moving_mean",
    "moving_variance",
    "_mean",
    "_variance",
    "output_weights",
    "logit_scale",
    "cls",
    "proj",
    "time_decay",
];

/// Endings of last words, and parts of whole names, that only checkpoints have.
const KEPT_ENDINGS: [&str; 6] = [
    "_weight",
    "_embedding",
    "_embeddings",
    "_bias",
    "_projection",
    "_table",
];
const KEPT_WITHIN: [&str; 3] = [".experts.", "/experts/", "batch_stats/"];

/// Last words of parameters.
const PARAMETERS: [&str; 12] = [
    "weight",
    "bias",
    "kernel",
    "gamma",
    "beta",
    "embedding",
    "running_mean",
    "running_var",
    "weight_scale",
    "qweight",
    "layer_norm_weight",
    "layer_norm_bias",
];

/// The last word of a name, in the spelling of any family: `kernel` of `a/dense/kernel:0`.
pub fn last_word(name: &str) -> &str {
    let name = name.strip_suffix(":0").unwrap_or(name);
    name.rsplit(['.', '/', ':']).next().unwrap_or_default()
}

pub fn is_gradient(name: &str) -> bool {
    name.split(['.', '/']).any(|part| GRADIENTS.contains(&part))
}

pub fn is_optimizer_state(name: &str) -> bool {
    name.split(['.', '/'])
        .any(|part| OPTIMIZER_STATES.contains(&part))
}

/// Whether the name is that of a parameter, which is loaded, not computed.
///
/// [`crate::order`] asks the same of a name with other words (`is_loaded` in `order/modules.rs`): there `weight_g`, `running_x` and
/// `inv_freq` count as loaded, gradients too, and `layer_norm_weight` and `weight7` do not. One answer for both would change the order of
/// listings or the verdicts of pairs.
pub fn is_parameter(name: &str) -> bool {
    // A gradient or an optimizer's state is called after its weight, and computed.
    if is_gradient(name) || is_optimizer_state(name) {
        return false;
    }
    let last = last_word(name);
    // Megatron numbers the weights of its grouped experts.
    let numbered = ["weight", "bias"].iter().any(|word| {
        last.strip_prefix(word).is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    });
    numbered || PARAMETERS.contains(&last)
}

/// Whether a tensor beside nothing but parameters is one too: stacks of experts (`experts.down_proj`, `w13_weight`) and whatever else models
/// keep. Beside activations this says nothing: `topk_weight` is computed.
pub fn is_kept_in_checkpoints(name: &str) -> bool {
    let last = last_word(name);
    // Weights that an exporter to ONNX folded have lost their names; nothing computed is in such a file.
    let anonymous = name.starts_with("onnx::");
    KEPT.contains(&last)
        || anonymous
        || KEPT_ENDINGS.iter().any(|end| last.ends_with(end))
        || KEPT_WITHIN.iter().any(|part| name.contains(part))
}

/// Whether it is a matrix as TensorFlow and Flax write it: inputs first, the transpose of torch's `weight`.
pub fn is_kernel(name: &str) -> bool {
    last_word(name) == "kernel"
}

/// Whether it is a fused query, key and value whose heads are interleaved: Megatron, GPT-NeoX.
pub fn is_interleaved_qkv(name: &str) -> bool {
    ["linear_qkv", "query_key_value"]
        .iter()
        .any(|word| name.contains(word))
}

/// Whether it is a fused query, key and value, packed in any way.
pub fn is_fused_qkv(name: &str) -> bool {
    name.contains("qkv") || name.contains("c_attn")
}

/// Which angles a tensor was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Angles {
    /// Sines and cosines of a time.
    Time,
    /// Rotated by its position.
    Rotated,
    /// Computed from tensors that were rotated by their positions.
    Attended,
}

/// What embeddings of times are called: a word, and how the word behind it begins.
const TIMES: [(&str, &str); 5] = [
    ("time", "emb"),
    ("time", "proj"),
    ("time", "enc"),
    ("t", "embed"),
    ("pos", "enc"),
];

impl Angles {
    /// What any of these names of one tensor says.
    pub fn of(names: &[&str]) -> Option<Self> {
        let is = |words: &[&str]| {
            names.iter().any(|name| {
                let name = name.to_ascii_lowercase();
                name.split(|c: char| !c.is_ascii_alphanumeric())
                    .any(|part| words.iter().any(|word| part.contains(word)))
            })
        };
        let of_time = |name: &&str| {
            let name = name.to_ascii_lowercase();
            let parts: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
            parts.windows(2).any(|two| {
                TIMES
                    .iter()
                    .any(|(first, second)| two[0] == *first && two[1].starts_with(second))
            })
        };
        if is(&["timestep", "sinusoid", "posenc"]) || names.iter().any(of_time) {
            Some(Self::Time)
        } else if is(&["rope", "rotary", "rotated", "rotemb"]) {
            Some(Self::Rotated)
        } else if is(&["attn", "attention", "sdpa"]) {
            Some(Self::Attended)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_told_from_their_gradients_and_optimizer_states() {
        for name in [
            "a.weight",
            "a/kernel:0",
            "experts.linear_fc1.weight7",
            "qkv.layer_norm_weight",
        ] {
            assert!(is_parameter(name), "{name}");
        }
        for name in [
            "grad/a.weight",
            "a.main_grad.weight",
            "exp_avg/a.weight",
            "a.weights",
            "topk_weight",
            "weight_g",
            "",
        ] {
            assert!(!is_parameter(name), "{name}");
        }
    }

    #[test]
    fn checkpoints_keep_more_than_parameters() {
        for name in [
            "onnx::MatMul_12",
            "mlp.experts.down_proj",
            "w13_weight",
            "blocks.0.A_log",
        ] {
            assert!(is_kept_in_checkpoints(name), "{name}");
        }
        assert!(!is_kept_in_checkpoints("layers.0.mlp"));
    }

    #[test]
    fn a_time_is_told_before_a_rotation_and_a_rotation_before_attention() {
        for (names, angles) in [
            (&["unet.time_proj"][..], Some(Angles::Time)),
            (&["t_embedder.rope"], Some(Angles::Time)),
            (&["layers.0.attn.q_rope"], Some(Angles::Rotated)),
            (&["x", "layers.0.self_attn"], Some(Angles::Attended)),
            (&["input_embeds", "runtime_embed"], None),
            (&[], None),
        ] {
            assert_eq!(Angles::of(names), angles, "{names:?}");
        }
    }
}
