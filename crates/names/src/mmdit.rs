//! Transformers of pictures and text together (Flux, Stable Diffusion 3): what their authors call the parts, said as diffusers does.
//!
//! Two streams share each block, so nearly every part is there twice, and where a name stands says which of the two it is. Words like
//! `t_embedder` are anybody's: they count only on a side that has the blocks.

use std::borrow::Cow;

/// What shows that a side is called like this.
pub(crate) fn shows(name: &str) -> bool {
    ["double_blocks.", "joint_blocks."]
        .iter()
        .any(|blocks| name.contains(blocks))
}

/// Parts of a block, in both of its streams; and how diffusers calls them there, first of the picture's.
const PARTS: &[(&str, [&str; 2])] = &[
    ("attn.qkv", ["attn.qkv_proj", "attn.add_qkv_proj"]),
    ("attn.proj", ["attn.to_out.0", "attn.to_add_out"]),
    (
        "attn.norm.query_norm.scale",
        ["attn.norm_q.weight", "attn.norm_added_q.weight"],
    ),
    (
        "attn.norm.key_norm.scale",
        ["attn.norm_k.weight", "attn.norm_added_k.weight"],
    ),
    ("attn.ln_q", ["attn.norm_q", "attn.norm_added_q"]),
    ("attn.ln_k", ["attn.norm_k", "attn.norm_added_k"]),
    ("mlp.0", ["ff.net.0.proj", "ff_context.net.0.proj"]),
    ("mlp.2", ["ff.net.2", "ff_context.net.2"]),
    ("mlp.fc1", ["ff.net.0.proj", "ff_context.net.0.proj"]),
    ("mlp.fc2", ["ff.net.2", "ff_context.net.2"]),
    ("mod.lin", ["norm1.linear", "norm1_context.linear"]),
    (
        "adaLN_modulation.1",
        ["norm1.linear", "norm1_context.linear"],
    ),
];

/// Parts of a block of one stream.
const SINGLE: &[(&str, &str)] = &[
    ("linear1", "qkv_mlp_proj"),
    ("linear2", "proj_out"),
    ("modulation.lin", "norm.linear"),
    ("norm.query_norm.scale", "attn.norm_q.weight"),
    ("norm.key_norm.scale", "attn.norm_k.weight"),
];

/// Outside of the blocks.
const OUTSIDE: &[(&str, &str)] = &[
    ("img_in", "x_embedder"),
    ("txt_in", "context_embedder"),
    ("x_embedder.proj", "pos_embed.proj"),
    ("pos_embed", "pos_embed.pos_embed"),
    (
        "time_in.in_layer",
        "time_text_embed.timestep_embedder.linear_1",
    ),
    (
        "time_in.out_layer",
        "time_text_embed.timestep_embedder.linear_2",
    ),
    (
        "t_embedder.mlp.0",
        "time_text_embed.timestep_embedder.linear_1",
    ),
    (
        "t_embedder.mlp.2",
        "time_text_embed.timestep_embedder.linear_2",
    ),
    (
        "guidance_in.in_layer",
        "time_text_embed.guidance_embedder.linear_1",
    ),
    (
        "guidance_in.out_layer",
        "time_text_embed.guidance_embedder.linear_2",
    ),
    (
        "vector_in.in_layer",
        "time_text_embed.text_embedder.linear_1",
    ),
    (
        "vector_in.out_layer",
        "time_text_embed.text_embedder.linear_2",
    ),
    ("y_embedder.mlp.0", "time_text_embed.text_embedder.linear_1"),
    ("y_embedder.mlp.2", "time_text_embed.text_embedder.linear_2"),
    ("final_layer.linear", "proj_out"),
    ("final_layer.adaLN_modulation.1", "norm_out.linear"),
];

pub(crate) fn plain(name: &str) -> Cow<'_, str> {
    let name = name.strip_prefix("model.diffusion_model.").unwrap_or(name);
    block(name, "double_blocks.", [("img_", 0), ("txt_", 1)])
        .or_else(|| {
            block(
                name,
                "joint_blocks.",
                [("x_block.", 0), ("context_block.", 1)],
            )
        })
        .or_else(|| single(name))
        .or_else(|| {
            OUTSIDE
                .iter()
                .find_map(|(theirs, ours)| renamed(name, theirs, ours))
        })
        .map_or(Cow::Borrowed(name), Cow::Owned)
}

/// `double_blocks.3.txt_attn.proj.bias` to `transformer_blocks.3.attn.to_add_out.bias`.
fn block(name: &str, blocks: &str, streams: [(&str, usize); 2]) -> Option<String> {
    let (number, part) = name.strip_prefix(blocks)?.split_once('.')?;
    let (part, stream) = streams
        .iter()
        .find_map(|(stream, at)| Some((part.strip_prefix(stream)?, *at)))?;
    let part = PARTS
        .iter()
        .find_map(|(theirs, ours)| renamed(part, theirs, ours[stream]))?;
    Some(format!("transformer_blocks.{number}.{part}"))
}

fn single(name: &str) -> Option<String> {
    let (number, part) = name.strip_prefix("single_blocks.")?.split_once('.')?;
    let part = SINGLE
        .iter()
        .find_map(|(theirs, ours)| renamed(part, theirs, ours))?;
    Some(format!("single_transformer_blocks.{number}.{part}"))
}

/// The name with these whole segments at its beginning called otherwise.
fn renamed(name: &str, theirs: &str, ours: &str) -> Option<String> {
    let rest = name
        .strip_prefix(theirs)
        .filter(|rest| rest.is_empty() || rest.starts_with('.'))?;
    Some(format!("{ours}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn each_stream_is_called_by_what_diffusers_calls_it() {
        for (theirs, ours) in [
            (
                "double_blocks.3.txt_attn.proj.bias",
                "transformer_blocks.3.attn.to_add_out.bias",
            ),
            (
                "double_blocks.0.img_attn.norm.query_norm.scale",
                "transformer_blocks.0.attn.norm_q.weight",
            ),
            (
                "single_blocks.7.linear2.weight",
                "single_transformer_blocks.7.proj_out.weight",
            ),
            (
                "model.diffusion_model.joint_blocks.1.context_block.mlp.fc2.weight",
                "transformer_blocks.1.ff_context.net.2.weight",
            ),
            (
                "vector_in.in_layer.weight",
                "time_text_embed.text_embedder.linear_1.weight",
            ),
            (
                "double_blocks.0.other.weight",
                "double_blocks.0.other.weight",
            ),
        ] {
            assert_eq!(plain(theirs), ours);
        }
    }
}
