//! What modules of networks are usually called, in the order they run in a layer.
//!
//! A dict of activations that was saved without an order (safetensors has none) is still named by modules, and a norm before attention is computed
//! before the attention's result whatever the alphabet says. Only results are ordered by this: what is loaded is not computed.

use super::table;

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
    if table::INPUTS.contains(&lower.as_str()) {
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

/// Where a module runs among those beside it. Outside of layers few names say that.
pub(super) fn rank(segment: &str, parent: &str, in_layer: bool) -> u8 {
    let (name, parent) = (segment.to_ascii_lowercase(), parent.to_ascii_lowercase());
    // What TransformerLens calls a place to look.
    let name = name.strip_prefix("hook_").unwrap_or(&name);
    if in_layer {
        return in_a_layer(name, &parent);
    }
    let believed = || {
        table::fits_any(name, table::ALSO_OUTSIDE)
            || (name == "dropout" && parent.contains("embed"))
    };
    table::look_up(table::OUTSIDE, name, &parent)
        .or_else(|| believed().then(|| in_a_layer(name, &parent)))
        .unwrap_or(table::UNKNOWN)
}

fn in_a_layer(name: &str, parent: &str) -> u8 {
    let part = table::BEFORE_PARTS.iter().find_map(|(before, feeds)| {
        let part = name
            .strip_prefix(before)
            .filter(|part| table::PARTS.contains(part))?;
        let feed_part = table::FEED_PARTS
            .iter()
            .find(|(usual, _)| *feeds && *usual == part);
        Some(feed_part.map_or(part, |(_, feed_part)| *feed_part))
    });
    // A part that is named after its module is looked up alone.
    let (name, parent) = part.map_or((name, parent), |part| (part, ""));
    table::look_up(table::IN_LAYERS, name, parent).unwrap_or(table::UNKNOWN)
}
