//! Names whose words mean what they do only by where they stand, rewritten into plain ones before they are taken apart.
//!
//! T5 numbers the parts of a block (`layer.1.layer_norm` is the norm of attention to the encoder in a decoder and of the feed-forward in an
//! encoder), attention to the encoder has a name of its own in each family, and Megatron's grouped experts carry their number at the end
//! (`weight7`).

use std::borrow::Cow;

/// Attention to the encoder, as one segment: `encoder.attn` is the encoder's own attention.
const CROSS: &[&str] = &["encoder_attn", "EncDecAttention", "crossattention", "cross_attention", "inter_attention"];

/// Parts of a T5 block, each in a numbered layer of its own.
const T5: &[(&str, &str)] =
    &[("SelfAttention", "self_attn"), ("EncDecAttention", "cross_attn"), ("DenseReluDense", "mlp"), ("DenseGatedActDense", "mlp")];

pub(super) fn plain(name: &str) -> Cow<'_, str> {
    let coder = name.strip_prefix("enc.").map(|rest| format!("encoder.{rest}"));
    let coder = coder.or_else(|| name.strip_prefix("dec.").map(|rest| format!("decoder.{rest}")));
    let mut name = coder.map_or(Cow::Borrowed(name), Cow::Owned);
    if let Some(plain) = t5(&name).or_else(|| grouped_experts(&name)) {
        name = Cow::Owned(plain);
    }
    // Only where a segment begins.
    let place = |word: &&'static str| {
        let at = name.find(*word)?;
        (at == 0 || matches!(name.as_bytes()[at - 1], b'.' | b'/')).then_some(at..at + word.len())
    };
    match CROSS.iter().find_map(place) {
        Some(range) => Cow::Owned([&name[..range.start], "cross_attn", &name[range.end..]].concat()),
        None => name,
    }
}

/// `block.3.layer.1.layer_norm.weight` to `block.3.ffn_norm.weight`.
fn t5(name: &str) -> Option<String> {
    let segments: Vec<&str> = name.split('.').collect();
    let at = segments.windows(3).position(|three| three[0] == "block" && three[2] == "layer" && is_number(three[1]))?;
    let (number, part) = (segments.get(at + 3)?, segments.get(at + 4)?);
    let decoder = segments[..at].contains(&"decoder");
    let part = match (*part, *number) {
        ("layer_norm", "0") => "attn_norm",
        ("layer_norm", "1") if decoder => "cross_attn_norm",
        ("layer_norm", "1" | "2") => "ffn_norm",
        (part, _) => T5.iter().find(|(theirs, _)| *theirs == part).map(|(_, plain)| *plain)?,
    };
    let mut plain: Vec<&str> = segments[..at + 2].to_vec();
    plain.push(part);
    plain.extend(&segments[at + 5..]);
    Some(plain.join("."))
}

/// `experts.linear_fc1.weight7` to `experts.7.linear_fc1.weight`.
fn grouped_experts(name: &str) -> Option<String> {
    let (before, last) = name.rsplit_once('.')?;
    let param = ["weight", "bias"].into_iter().find(|param| last.strip_prefix(param).is_some_and(is_number))?;
    let (outer, inner) = before.split_once(".experts.")?;
    Some(format!("{outer}.experts.{}.{inner}.{param}", &last[param.len()..]))
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
            ("encoder.block.3.layer.1.layer_norm.weight", "encoder.block.3.ffn_norm.weight"),
            ("decoder.block.3.layer.1.layer_norm.weight", "decoder.block.3.cross_attn_norm.weight"),
            ("decoder.block.3.layer.1.EncDecAttention.q.weight", "decoder.block.3.cross_attn.q.weight"),
            ("model.decoder.layers.0.encoder_attn.k_proj.bias", "model.decoder.layers.0.cross_attn.k_proj.bias"),
            ("dec.blk.2.attn_q.weight", "decoder.blk.2.attn_q.weight"),
            ("decoder.layers.0.mlp.experts.linear_fc1.weight12", "decoder.layers.0.mlp.experts.12.linear_fc1.weight"),
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
        ] {
            assert_eq!(plain(name), name);
        }
    }
}
