//! Names whose words mean what they do only by where they stand, rewritten into plain ones before they are taken apart.
//!
//! T5 numbers the parts of a block (`layer.1.layer_norm` is the norm of attention to the encoder in a decoder and of the feed-forward in an
//! encoder), attention to the encoder has a name of its own in each family, Megatron's grouped experts carry their number at the end
//! (`weight7`), MLX calls them `switch_mlp`, llama.cpp computes `Qcur-3`, Flax numbers the modules of a block (`LayerNorm_2`), and what a feed-forward with a gate calls
//! `fc`, `w1` or `gate` only its other names tell.

use std::borrow::Cow;

/// Segments, or how they begin, and what they are elsewhere; the first that is there counts. Attention to the encoder is one segment:
/// `encoder.attn` is the encoder's own attention. The gate of shared experts is no part of their feed-forward.
const SEGMENTS: &[(&str, &str)] = &[
    ("encoder_attn", "cross_attn"),
    ("EncDecAttention", "cross_attn"),
    ("crossattention", "cross_attn"),
    ("cross_attention", "cross_attn"),
    ("inter_attention", "cross_attn"),
    ("encoder_decoder_attention", "cross_attn"),
    ("pre_cross_attention_layer_norm", "cross_attn_norm"),
    ("shared_expert_gate", "shared_gate"),
    ("shared_experts.gate_weight", "shared_gate.weight"),
    ("ffn_gate_inp_shexp", "ffn_shared_gate"),
    // OLMo, whose ups and gates are one, and the first Phi.
    ("att_proj", "attn.qkv_proj"),
    ("ff_proj", "mlp.up_proj"),
    ("ff_out", "mlp.down_proj"),
    ("mixer.Wqkv", "attn.qkv_proj"),
];

/// What llama.cpp calls the tensors that it computes, the layer behind a dash: `Qcur-3`. Nothing is the layer's own output.
const COMPUTED: &[(&str, &str)] = &[
    ("attn_norm", "attn_norm"),
    ("Qcur", "attn_q"),
    ("Kcur", "attn_k"),
    ("Vcur", "attn_v"),
    ("attn_out", "attn_output"),
    ("attn_post_norm", "post_attention_norm"),
    ("ffn_norm", "ffn_norm"),
    ("ffn_gate", "ffn_gate"),
    ("ffn_up", "ffn_up"),
    ("ffn_down", "ffn_down"),
    ("ffn_moe_logits", "ffn_gate_inp"),
    ("ffn_out", "mlp"),
    ("ffn_post_norm", "post_ffw_norm"),
    ("l_out", ""),
];
const COMPUTED_OUTSIDE: &[(&str, &str)] = &[
    ("inp_embd", "token_embd"),
    ("result_norm", "output_norm"),
    ("result_output", "output"),
];

/// What the tower of pictures is called, behind `model.` or not, the longest first.
const VISION: &[&str] = &[
    "vision_tower.vision_model.encoder.",
    "vision_tower.vision_model.",
    "vision_model.encoder.",
    "vision_model.",
    "visual.transformer.",
    "visual.",
];

/// Parts of a T5 block, each in a numbered layer of its own.
const T5: &[(&str, &str)] = &[
    ("SelfAttention", "self_attn"),
    ("EncDecAttention", "cross_attn"),
    ("DenseReluDense", "mlp"),
    ("DenseGatedActDense", "mlp"),
];

pub(crate) fn plain(name: &str) -> Cow<'_, str> {
    // TensorFlow's first output of a variable, and what torch's tracers put in front.
    let name = name.strip_suffix(":0").unwrap_or(name);
    let name = name.strip_prefix("L__self___").unwrap_or(name);
    let mut name = parameter(name).map_or(Cow::Borrowed(name), Cow::Owned);
    let coder = name
        .strip_prefix("enc.")
        .map(|rest| format!("encoder.{rest}"));
    let coder = coder.or_else(|| {
        name.strip_prefix("dec.")
            .map(|rest| format!("decoder.{rest}"))
    });
    if let Some(coder) = coder {
        name = Cow::Owned(coder);
    }
    if let Some(plain) = llama_cpp(&name)
        .or_else(|| t5(&name))
        .or_else(|| grouped_experts(&name))
        .or_else(|| switched(&name))
        .or_else(|| flax(&name))
        .or_else(|| pictures(&name))
    {
        name = Cow::Owned(plain);
    }
    // Keras: `layer_._3`.
    if name.contains("_._") {
        name = Cow::Owned(name.replace("_._", "_"));
    }
    // Only where a segment begins.
    let place = |(word, plain): &(&str, &'static str)| {
        let at = name.find(word)?;
        (at == 0 || matches!(name.as_bytes()[at - 1], b'.' | b'/'))
            .then_some((at..at + word.len(), *plain))
    };
    match SEGMENTS.iter().find_map(place) {
        Some((range, plain)) => {
            Cow::Owned([&name[..range.start], plain, &name[range.end..]].concat())
        }
        None => name,
    }
}

/// What a parameter is called where something was put over it, or by one letter: pruned (`weight_orig`), with torch's parametrizations
/// (`parametrizations.weight.original`), TransformerLens (`attn.W_Q`, `ln1.w`), the first GPT-2 (`ln_1/g`).
fn parameter(name: &str) -> Option<String> {
    let rewritten = |(ending, plain): &(&str, &str)| {
        let stem = name
            .strip_suffix(ending)?
            .strip_suffix(['.', '/'])
            .filter(|stem| !stem.is_empty())?;
        // What else is called `g` may be anything.
        let fits = *ending != "g"
            || ["ln", "norm"].iter().any(|norm| {
                stem.rsplit(['.', '/'])
                    .next()
                    .is_some_and(|last| last.contains(norm))
            });
        fits.then(|| format!("{stem}.{plain}"))
    };
    PARAMETERS.iter().find_map(rewritten)
}

const PARAMETERS: &[(&str, &str)] = &[
    // Gemma's own.
    ("mlp/gating_einsum", "mlp.gate_up_proj.weight"),
    ("mlp/linear", "mlp.down_proj.weight"),
    ("mlp/linear/w", "mlp.down_proj.weight"),
    ("embedder/input_embedding", "embed_tokens.weight"),
    // Llama 4, with the letters of its dimensions.
    ("feed_forward.router_DE", "feed_forward.router.weight"),
    (
        "feed_forward.w_in_shared_FD.weight",
        "feed_forward.shared_expert.gate_proj.weight",
    ),
    (
        "feed_forward.w_swiglu_FD.weight",
        "feed_forward.shared_expert.up_proj.weight",
    ),
    (
        "feed_forward.w_out_shared_DF.weight",
        "feed_forward.shared_expert.down_proj.weight",
    ),
    ("experts.moe_w_in_eD_F", "experts.gate_proj"),
    ("experts.moe_w_swiglu_eD_F", "experts.up_proj"),
    ("experts.moe_w_out_eF_D", "experts.down_proj"),
    // The experts of gpt-oss.
    ("mlp.mlp1_weight", "mlp.experts.gate_up_proj"),
    ("mlp.mlp1_weight.blocks", "mlp.experts.gate_up_proj_blocks"),
    ("mlp.mlp1_weight.scales", "mlp.experts.gate_up_proj_scales"),
    ("mlp.mlp1_bias", "mlp.experts.gate_up_proj_bias"),
    ("mlp.mlp2_weight", "mlp.experts.down_proj"),
    ("mlp.mlp2_weight.blocks", "mlp.experts.down_proj_blocks"),
    ("mlp.mlp2_weight.scales", "mlp.experts.down_proj_scales"),
    ("mlp.mlp2_bias", "mlp.experts.down_proj_bias"),
    ("w", "weight"),
    ("b", "bias"),
    ("g", "weight"),
    ("W_E", "weight"),
    ("W_U", "weight"),
    ("b_U", "bias"),
    ("W_Q", "q_proj.weight"),
    ("W_K", "k_proj.weight"),
    ("W_V", "v_proj.weight"),
    ("W_O", "o_proj.weight"),
    ("b_Q", "q_proj.bias"),
    ("b_K", "k_proj.bias"),
    ("b_V", "v_proj.bias"),
    ("b_O", "o_proj.bias"),
    ("W_in", "up_proj.weight"),
    ("b_in", "up_proj.bias"),
    ("_W_K", "k_proj.weight"),
    ("_W_V", "v_proj.weight"),
    ("W_pos", "weight"),
    ("W_out", "down_proj.weight"),
    ("b_out", "down_proj.bias"),
    ("W_gate", "gate_proj.weight"),
    ("bias_orig", "bias"),
    ("attn.attn.bias", "attn.qkv.bias"),
    ("weight_orig", "weight"),
    ("attn.attn.weight", "attn.qkv.weight"),
    ("parametrizations.bias.original", "bias"),
    ("parametrizations.weight.original", "weight"),
];

/// `Qcur-3` to `blk.3.attn_q`.
fn llama_cpp(name: &str) -> Option<String> {
    if let Some((_, plain)) = COMPUTED_OUTSIDE.iter().find(|(theirs, _)| *theirs == name) {
        return Some((*plain).to_owned());
    }
    let (stem, layer) = name
        .rsplit_once('-')
        .filter(|(_, layer)| is_number(layer))?;
    let (_, plain) = COMPUTED.iter().find(|(theirs, _)| *theirs == stem)?;
    Some(
        format!("blk.{layer}.{plain}")
            .trim_end_matches('.')
            .to_owned(),
    )
}

/// `encoderblock_3/MultiHeadDotProductAttention_1/query` to `encoderblock_3/attn/query`, `encoderblock_3/LayerNorm_2` to
/// `encoderblock_3/norm2`: modules are numbered as they are made, the second norm being the second or, with all modules counted, the third.
fn flax(name: &str) -> Option<String> {
    if !["MultiHeadDotProductAttention", "MlpBlock", "encoderblock"]
        .iter()
        .any(|word| name.contains(word))
    {
        return None;
    }
    let plain = |segment| match segment {
        "LayerNorm_0" => "norm1",
        "LayerNorm_1" | "LayerNorm_2" => "norm2",
        "Dense_0" => "fc1",
        "Dense_1" => "fc2",
        _ if str::starts_with(segment, "MultiHeadDotProductAttention") => "attn",
        _ if str::starts_with(segment, "MlpBlock") => "mlp",
        other => other,
    };
    Some(
        name.split(['.', '/'])
            .map(plain)
            .collect::<Vec<_>>()
            .join("."),
    )
}

/// `visual.transformer.resblocks.0` and `vision_model.encoder.layers.0` are in the same tower.
fn pictures(name: &str) -> Option<String> {
    let rest = name.strip_prefix("model.").unwrap_or(name);
    VISION
        .iter()
        .find_map(|tower| rest.strip_prefix(tower))
        .map(|rest| format!("vision.{rest}"))
}

/// `block.3.layer.1.layer_norm.weight` to `block.3.ffn_norm.weight`.
fn t5(name: &str) -> Option<String> {
    let segments: Vec<&str> = name.split('.').collect();
    let at = segments
        .windows(3)
        .position(|three| three[0] == "block" && three[2] == "layer" && is_number(three[1]))?;
    let (number, part) = (segments.get(at + 3)?, segments.get(at + 4)?);
    let decoder = segments[..at].contains(&"decoder");
    let part = match (*part, *number) {
        ("layer_norm", "0") => "attn_norm",
        ("layer_norm", "1") if decoder => "cross_attn_norm",
        ("layer_norm", "1" | "2") => "ffn_norm",
        (part, _) => T5
            .iter()
            .find(|(theirs, _)| *theirs == part)
            .map(|(_, plain)| *plain)?,
    };
    let mut plain: Vec<&str> = segments[..at + 2].to_vec();
    plain.push(part);
    plain.extend(&segments[at + 5..]);
    Some(plain.join("."))
}

/// `experts.linear_fc1.weight7` to `experts.7.linear_fc1.weight`.
fn grouped_experts(name: &str) -> Option<String> {
    let (before, last) = name.rsplit_once('.')?;
    let param = ["weight", "bias"]
        .into_iter()
        .find(|param| last.strip_prefix(param).is_some_and(is_number))?;
    let (outer, inner) = before.split_once(".experts.")?;
    Some(format!(
        "{outer}.experts.{}.{inner}.{param}",
        &last[param.len()..]
    ))
}

/// `mlp.switch_mlp.up_proj` to `mlp.experts.up_proj`.
fn switched(name: &str) -> Option<String> {
    let (before, after) = name.split_once("switch_mlp.")?;
    Some(format!("{before}experts.{after}"))
}

/// What the parts of a feed-forward with a gate are called, and what that means where all of them are there. Any of these words alone is
/// something else: `fc` is what the others call up where there is no gate, and `gate` is the gate nearly everywhere.
const GATED: &[&[(&str, &str)]] = &[
    // TensorRT-LLM.
    &[
        ("fc", "gate_proj"),
        ("gate", "up_proj"),
        ("proj", "down_proj"),
    ],
    // LitGPT.
    &[
        ("fc_1", "gate_proj"),
        ("fc_2", "up_proj"),
        ("proj", "down_proj"),
    ],
    // The first Qwen.
    &[
        ("w1", "up_proj"),
        ("w2", "gate_proj"),
        ("c_proj", "down_proj"),
    ],
    // DBRX.
    &[("w1", "gate_proj"), ("v1", "up_proj"), ("w2", "down_proj")],
    // DINOv2, and timm's other one.
    &[("w12", "gate_up_proj"), ("w3", "down_proj")],
    &[
        ("fc1_g", "gate_proj"),
        ("fc1_x", "up_proj"),
        ("fc2", "down_proj"),
    ],
];

/// Which of the words of [`GATED`] were seen in the feed-forwards of a side, a bit for each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GateWords(u32);

impl GateWords {
    pub(crate) fn see(&mut self, name: &str) {
        let Some(part) = of_mlp(name) else { return };
        for (nth, (word, _)) in GATED.iter().copied().flatten().enumerate() {
            self.0 |= u32::from(*word == part) << nth;
        }
    }

    /// The name with its part of the feed-forward said in the usual words, where all words of one of the tables were seen.
    pub(crate) fn plain(self, name: &str) -> Option<String> {
        let mut seen = self.0;
        let table = GATED.iter().find(|table| {
            let all = (1u32 << table.len()) - 1;
            let here = seen & all;
            seen >>= table.len();
            here == all
        })?;
        let part = of_mlp(name)?;
        let (_, usual) = table.iter().find(|(word, _)| *word == part)?;
        let at = part.as_ptr() as usize - name.as_ptr() as usize;
        Some([&name[..at], usual, &name[at + part.len()..]].concat())
    }
}

/// The segment after `mlp`, or after the expert's number.
fn of_mlp(name: &str) -> Option<&str> {
    let mut segments = name
        .split(['.', '/'])
        .skip_while(|segment| !matches!(*segment, "mlp" | "ffn" | "feed_forward"))
        .skip(1);
    segments.find(|segment| {
        !matches!(*segment, "experts" | "mlp" | "shared_experts") && !is_number(segment)
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_is_told_by_its_place_is_said_in_words() {
        for (theirs, ours) in [
            (
                "encoder.block.3.layer.1.layer_norm.weight",
                "encoder.block.3.ffn_norm.weight",
            ),
            (
                "decoder.block.3.layer.1.layer_norm.weight",
                "decoder.block.3.cross_attn_norm.weight",
            ),
            (
                "decoder.block.3.layer.1.EncDecAttention.q.weight",
                "decoder.block.3.cross_attn.q.weight",
            ),
            (
                "model.decoder.layers.0.encoder_attn.k_proj.bias",
                "model.decoder.layers.0.cross_attn.k_proj.bias",
            ),
            ("dec.blk.2.attn_q.weight", "decoder.blk.2.attn_q.weight"),
            (
                "decoder.layers.0.mlp.experts.linear_fc1.weight12",
                "decoder.layers.0.mlp.experts.12.linear_fc1.weight",
            ),
            (
                "model.layers.0.mlp.switch_mlp.up_proj.weight",
                "model.layers.0.mlp.experts.up_proj.weight",
            ),
            (
                "bert/encoder/layer_._3/output/dense/kernel:0",
                "bert/encoder/layer_3/output/dense/kernel",
            ),
            ("L__self___layer1_0_conv1_weight", "layer1_0_conv1_weight"),
            (
                "Transformer/encoderblock_1/MultiHeadDotProductAttention_1/query/kernel",
                "Transformer.encoderblock_1.attn.query.kernel",
            ),
            (
                "Transformer/encoderblock_1/LayerNorm_2/scale",
                "Transformer.encoderblock_1.norm2.scale",
            ),
            (
                "visual.transformer.resblocks.0.attn.in_proj_weight",
                "vision.resblocks.0.attn.in_proj_weight",
            ),
            (
                "model.vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.bias",
                "vision.layers.0.self_attn.q_proj.bias",
            ),
            (
                "decoder/layers_1/pre_cross_attention_layer_norm/scale",
                "decoder/layers_1/cross_attn_norm/scale",
            ),
            (
                "blk.2.ffn_gate_inp_shexp.weight",
                "blk.2.ffn_shared_gate.weight",
            ),
            ("blocks.1.ff_proj.weight", "blocks.1.mlp.up_proj.weight"),
            ("Qcur-12", "blk.12.attn_q"),
            ("l_out-0", "blk.0"),
            ("result_norm", "output_norm"),
            ("layers.0.fc.weight_orig", "layers.0.fc.weight"),
            (
                "layers.0.fc.parametrizations.weight.original",
                "layers.0.fc.weight",
            ),
            ("blocks.1.attn.W_Q", "blocks.1.attn.q_proj.weight"),
            ("model/h0/ln_1/g", "model/h0/ln_1.weight"),
            (
                "transformer.h.0.attn.attn.bias",
                "transformer.h.0.attn.qkv.bias",
            ),
        ] {
            assert_eq!(plain(theirs), ours);
        }
    }

    #[test]
    fn every_other_name_stays_as_it_is() {
        for name in [
            "",
            ".",
            "block.0.layer",
            "block.0.layer.0",
            "model.layers.0.mlp.down_proj.weight",
            "x.weight1",
            "encoder.attn.q",
            "experts.weight",
            "conv-1",
            "w",
            ".w",
            "fc.weight_g",
            "fc.parametrizations.weight.original0",
            "attn_norm-x",
        ] {
            assert_eq!(plain(name), name);
        }
    }
}
