//! Names taken apart: the layer, the part of a transformer it is, weight or bias, and whatever words are left.
//!
//! Words are split at everything that is no letter and no digit, and at `camelCase`; spelling variants become one (`LayerNorm`, `ln`,
//! `rms_norm` are `norm`), wrappers (`model.`, `_orig_mod.`) are dropped, and phrases of the name families in [`crate::families`] become
//! a stage. Whatever is not understood is kept, so two names are equal here only when all they say is equal. Two tensors of one side may
//! still come out equal; the rule that uses this leaves those alone.

use crate::{
    dialects::{self, GateWords},
    families::{self, Place},
    mmdit, order,
};
use std::borrow::Cow;

/// What all names of a side decide about how one of them is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// A side has both an encoder and a decoder: the words must be kept, on both sides.
    pub two_stacks: bool,
    /// Norms before and after attention and feed-forward (gemma): `post_attention_layernorm` is then not the norm before the feed-forward.
    four_norms: bool,
    /// There are experts: `mlp.gate` then chooses among them, and is no gate of a feed-forward.
    experts: bool,
    /// Low-rank queries and keys in DeepSeek's own words, whose `q_norm` is the norm between the two.
    low_rank: bool,
    /// `torch.export` writes dots as `_` and `p_` (a parameter) or `b_` (a buffer) in front of everything.
    exported: bool,
    /// Names end with the number of their layer: `attn_out_5`.
    suffixed: bool,
    /// Nearly all names say that they are what a module returned (`.output`, `.output.0`), or what it was given: a hook's way to name them.
    hooked: bool,
    /// All names end with the number of the call, or of the output, that they are of: `q_proj_0`.
    first_calls: bool,
    /// A transformer of pictures and text together, in its authors' words.
    mmdit: bool,
    gate_words: GateWords,
}

/// Of ten names so many end with the hook's word where it is the hook's, and so many names there are at least.
const HOOKED_OF_TEN: usize = 8;
const FEWEST_HOOKED: usize = 4;

/// The name without what a hook says of its first output. What a module was given, and its further outputs, are other tensors.
fn returned(name: &str) -> Option<&str> {
    let stem = name
        .strip_suffix('0')
        .and_then(|stem| stem.strip_suffix(['.', '_', '/']))
        .unwrap_or(name);
    let stem = ["outputs", "output"]
        .iter()
        .find_map(|word| stem.strip_suffix(word))?;
    stem.strip_suffix(['.', '_', '/', ':'])
        .filter(|stem| !stem.is_empty())
}

/// The name without the number of the first call.
fn first_call(name: &str) -> Option<&str> {
    name.strip_suffix('0')?
        .strip_suffix(['_', '.', ':', '#'])
        .filter(|stem| !stem.is_empty())
}

/// Whether a hook may have named it: by what a module was given or returned, numbered or not.
fn is_hooked(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = if stem.len() < name.len() {
        stem.strip_suffix(['.', '_', '/']).unwrap_or(stem)
    } else {
        stem
    };
    ["output", "outputs", "input", "inputs"]
        .iter()
        .any(|word| stem.ends_with(word))
}

impl Reading {
    /// The same, where some side has both an encoder and a decoder.
    pub fn with_stacks(self, two_stacks: bool) -> Self {
        Self { two_stacks, ..self }
    }

    pub fn of<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Self {
        let suffixed = order::Names::of(names.clone()) == order::Names::Suffixed;
        let (mut encoder, mut decoder, mut reading) = (false, false, Self::default());
        let (mut all, mut parameters) = (true, false);
        let (mut count, mut hooked, mut outputs, mut first_calls) =
            (0usize, 0usize, 0usize, 0usize);
        for name in names {
            count += 1;
            hooked += usize::from(is_hooked(name));
            outputs += usize::from(returned(name).is_some());
            // Of `decoder.sentence_encoder` and `decoder.layers.0.encoder_attn` the first word says which stack it is.
            match (name.find("encoder"), name.find("decoder")) {
                (Some(e), Some(d)) => (encoder, decoder) = (encoder || e < d, decoder || d < e),
                (e, d) => (encoder, decoder) = (encoder || e.is_some(), decoder || d.is_some()),
            }
            encoder |= name.starts_with("enc.");
            decoder |= name.starts_with("dec.");
            reading.four_norms |=
                name.contains("pre_feedforward") || name.contains("post_ffw_norm");
            reading.experts |= name.contains("experts")
                || name.contains("switch_mlp")
                || name.contains("mlp.mlp1_");
            reading.mmdit |= mmdit::shows(name);
            first_calls += usize::from(first_call(name).is_some());
            reading.low_rank |= name.contains("wkv_a");
            all = all && is_exported(name);
            parameters |= name.starts_with("p_");
            reading.gate_words.see(name);
        }
        reading.exported = all && parameters;
        reading.hooked =
            outputs > 0 && hooked >= FEWEST_HOOKED && hooked * 10 >= count * HOOKED_OF_TEN;
        reading.first_calls = first_calls == count && count >= FEWEST_HOOKED && !reading.hooked;
        Self {
            two_stacks: encoder && decoder,
            suffixed,
            ..reading
        }
    }
}

fn is_exported(name: &str) -> bool {
    ["p_", "b_", "c_"].iter().any(|kind| name.starts_with(kind)) && !name.contains(['.', '/'])
}

/// A name, understood as far as it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub layer: Option<u64>,
    /// The part of a transformer, of the families' table.
    pub stage: Option<&'static str>,
    /// `weight` or `bias`, whatever the family calls them.
    pub param: Option<&'static str>,
    /// All layers at once: `layers` without a number.
    pub all_layers: bool,
    /// Words that mean none of these, in order.
    pub rest: Vec<String>,
    /// All words but the layer's, as they are written: a misspelt one is not understood.
    pub written: Vec<String>,
}

impl Name {
    pub fn parse(name: &str, reading: Reading) -> Self {
        let name = if reading.exported && is_exported(name) {
            &name[2..]
        } else {
            name
        };
        let name = returned(name).filter(|_| reading.hooked).unwrap_or(name);
        let name = first_call(name)
            .filter(|_| reading.first_calls)
            .unwrap_or(name);
        let spoken = if reading.mmdit {
            mmdit::plain(name)
        } else {
            Cow::Borrowed(name)
        };
        let name = spoken.as_ref();
        let rewritten = reading.gate_words.plain(name);
        let rewritten = dialects::plain(rewritten.as_deref().unwrap_or(name));
        let name = rewritten.as_ref();
        let (mut words, mut layer) = layer(split(name), name);
        if layer.is_none() && reading.suffixed {
            layer = words
                .pop_if(|last| last.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|last| last.parse().ok());
        }
        drop_wrappers(&mut words);
        let all_layers = layer.is_none() && words.iter().any(|word| word == ALL_LAYERS);
        if all_layers {
            words.retain(|word| word != ALL_LAYERS);
        }
        let in_layer = layer.is_some() || all_layers;
        let written = words.clone();
        let mut words = simplify(words);
        drop_prefixes(&mut words, reading.two_stacks, in_layer);
        settle_statistics(&mut words);
        let last = words.last().cloned();
        let param = last
            .as_deref()
            .and_then(param)
            .filter(|_| words.len() > 1 || in_layer)
            .or_else(|| norm_param(&words));
        if param.is_some() {
            words.pop();
        }
        let (stage, rest) = stage(words, in_layer, reading.two_stacks);
        let mut parsed = Self {
            layer,
            stage,
            param,
            all_layers,
            rest,
            written,
        };
        parsed.settle(last.as_deref(), reading);
        // A table of positions that is no module but a parameter itself.
        if parsed.param.is_none()
            && parsed.stage == Some("pos_embed")
            && ["positional_embedding", "pos_embed", "pos_embedding"]
                .iter()
                .any(|table| name.ends_with(table))
        {
            parsed.param = Some("weight");
        }
        let gate = ["mlp.gate", "ffn.gate", "feed_forward.gate"]
            .iter()
            .any(|gate| {
                name.split_once(gate)
                    .is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('.'))
            });
        if reading.experts && parsed.stage == Some("mlp_gate") && gate {
            // DeepSeek's gate has no bias but the one that corrects its choice.
            parsed.stage = Some(if reading.low_rank && parsed.param == Some("bias") {
                "router_correction"
            } else {
                "router"
            });
        }
        parsed
    }

    /// What only the whole name tells.
    fn settle(&mut self, last: Option<&str>, reading: Reading) {
        if self.stage == Some("post_attn_norm") && !reading.four_norms {
            self.stage = Some("norm2");
        }
        // `gamma` and `scale` are a norm's weight and anything's else own affair.
        let norm = self.stage.is_some_and(|stage| stage.contains("norm"));
        if let (None, true, Some("gamma" | "scale")) = (self.param, norm, last) {
            self.rest.pop();
            self.param = Some("weight");
        }
        if let (None, true, Some("beta")) = (self.param, norm, last) {
            self.rest.pop();
            self.param = Some("bias");
        }
        if reading.low_rank && self.stage == Some("q_norm") {
            self.stage = Some("q_a_norm");
        }
        // The head belongs to the decoder, whether it is said or not.
        if self.stage == Some("lm_head") && self.rest == ["decoder"] {
            self.rest.clear();
        }
        // Flax calls an embedding's weight `embedding`.
        if self.stage.is_some_and(|stage| stage.contains("embed"))
            && self.param.is_none()
            && self.rest.last().is_some_and(|word| word == "embed")
        {
            self.rest.pop();
            self.param = Some("weight");
        }
        // A feed-forward written as a list: linear, activation, linear.
        if let (Some(_), None, [before @ .., container, number]) =
            (self.layer, self.stage, self.rest.as_slice())
            && container == "mlp"
            && let Some(stage) = match number.as_str() {
                "0" => Some("mlp_up"),
                "2" => Some("mlp_down"),
                _ => None,
            }
        {
            (self.stage, self.rest) = (Some(stage), before.to_vec());
        }
        // `3_query`: a stage and nothing else.
        if let (Some(_), None, [word]) = (self.layer, self.stage, self.rest.as_slice()) {
            self.stage = match word.as_str() {
                "q" | "query" => Some("attn_q"),
                "k" | "key" => Some("attn_k"),
                "v" | "value" => Some("attn_v"),
                "qkv" => Some("attn_qkv"),
                _ => None,
            };
            if self.stage.is_some() {
                self.rest.clear();
            }
        }
    }

    /// Everything but the layer: equal keys in equal layers are one tensor.
    pub fn key(&self) -> String {
        self.key_as(self.stage.unwrap_or_default())
    }

    /// The key with another stage.
    pub fn key_as(&self, stage: &str) -> String {
        let all = if self.all_layers { "all layers|" } else { "" };
        format!(
            "{all}{}|{stage}|{}",
            self.rest.join("."),
            self.param.unwrap_or_default()
        )
    }

    /// Every number that is neither the layer nor part of a known stage.
    pub fn numbers(&self) -> Vec<u64> {
        let digits = |word: &String| -> Vec<u64> {
            word.split(|c: char| !c.is_ascii_digit())
                .filter(|part| !part.is_empty())
                .map(|part| part.parse().unwrap_or(u64::MAX))
                .collect()
        };
        self.rest.iter().flat_map(digits).collect()
    }
}

/// What stands for all layers where no number follows.
const ALL_LAYERS: &str = "layers";

struct Word {
    text: String,
    /// Alone between dots or slashes.
    segment: bool,
}

/// Lower-case words, split at separators and at `camelCase`.
fn split(name: &str) -> Vec<Word> {
    let mut words = Vec::new();
    for segment in name
        .split(['.', '/', ':'])
        .filter(|segment| !segment.is_empty())
    {
        let before = words.len();
        for part in segment
            .split(|c: char| !c.is_alphanumeric())
            .filter(|part| !part.is_empty())
        {
            words.extend(camel(part).into_iter().map(|text| Word {
                text,
                segment: false,
            }));
        }
        if words.len() == before + 1 {
            words[before].segment = true;
        }
    }
    words
}

/// `LayerNorm` is two words, `QKVProj` too, `Wqkv` one.
fn camel(part: &str) -> Vec<String> {
    if part
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    {
        return vec![part.to_owned()];
    }
    let letters: Vec<char> = part.chars().collect();
    let mut words = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        let lower = |offset: isize| {
            at.checked_add_signed(offset)
                .and_then(|at| letters.get(at))
                .is_some_and(|c| c.is_lowercase())
        };
        let upper_run = at >= 2 && letters[at - 1].is_uppercase() && lower(1);
        if letter.is_uppercase() && (lower(-1) || upper_run) {
            words.push(String::new());
        }
        words
            .last_mut()
            .expect("never empty")
            .extend(letter.to_lowercase());
    }
    words
}

/// The words without the layer, and the layer: the number after a layer word, else of `{layer}_{stage}`, else a segment of its own.
fn layer(words: Vec<Word>, name: &str) -> (Vec<String>, Option<u64>) {
    let number = |text: &str| text.parse::<u64>().ok();
    for at in 0..words.len() {
        let text = words[at].text.as_str();
        // One letter is a layer where it stands for itself: `L5.attn`, `l.5.attn`, not `l2_norm`.
        let letter = text.strip_prefix('l').filter(|_| words[at].segment);
        // `h3.attn` is a layer's; `h3` alone is the third of some hidden states.
        let letter = letter.or_else(|| {
            text.strip_prefix('h')
                .filter(|digits| words[at].segment && words.len() > 1 && !digits.is_empty())
        });
        if let Some(layer) = letter.and_then(number) {
            return (without(words, at, 1), Some(layer));
        }
        if families::LAYER_WORDS.contains(&text) || letter == Some("") {
            if let Some(layer) = words.get(at + 1).and_then(|next| number(&next.text)) {
                return (without(words, at, 2), Some(layer));
            }
        } else if let Some(layer) = families::LAYER_WORDS
            .iter()
            .find_map(|word| number(text.strip_prefix(word).filter(|_| word.len() > 1)?))
        {
            return (without(words, at, 1), Some(layer));
        }
    }
    let leading = order::layer_stage(name).and_then(|(layer, _)| {
        let last = name.rsplit(['/', '.']).next()?;
        Some((words.len().checked_sub(split(last).len())?, layer))
    });
    let expert = |at: usize| at > 0 && matches!(words[at - 1].text.as_str(), "expert" | "experts");
    let own = |but: &dyn Fn(usize) -> bool| {
        words.iter().enumerate().find_map(|(at, word)| {
            Some((
                at,
                number(&word.text).filter(|_| word.segment && !expert(at) && !but(at))?,
            ))
        })
    };
    // A stage has several layers, where they are numbered too.
    let staged = |at: usize| at > 0 && words[at - 1].text == "stages";
    match leading.or_else(|| own(&staged)).or_else(|| own(&|_| false)) {
        Some((at, layer)) => (without(words, at, 1), Some(layer)),
        None => (without(words, 0, 0), None),
    }
}

fn without(words: Vec<Word>, at: usize, count: usize) -> Vec<String> {
    words
        .into_iter()
        .enumerate()
        .filter(|(i, _)| !(at..at + count).contains(i))
        .map(|(_, word)| word.text)
        .collect()
}

fn drop_wrappers(words: &mut Vec<String>) {
    let mut at = 0;
    while at < words.len() {
        match families::WRAPPERS
            .iter()
            .find(|phrase| families::begins(&words[at..], phrase))
        {
            Some(phrase) => drop(words.drain(at..at + phrase.len())),
            None => at += 1,
        }
    }
}

fn drop_prefixes(words: &mut Vec<String>, two_stacks: bool, in_layer: bool) {
    let mut at = 0;
    loop {
        let rest = &words[at..];
        let coder = !two_stacks
            && rest
                .first()
                .is_some_and(|word| word == "encoder" || word == "decoder");
        let prefix = families::PREFIXES
            .iter()
            .find(|phrase| families::begins(rest, phrase))
            .map(|phrase| phrase.len());
        // The number stood elsewhere: `encoder.layers.encoder_layer_0`.
        let layers = in_layer && rest.first().is_some_and(|word| word == ALL_LAYERS);
        match prefix.or((coder || layers).then_some(1)) {
            // A name that is nothing but a prefix keeps its last word, unless it is that of a layer: `model.layers.3`.
            Some(len) if len < rest.len() || in_layer => at += len,
            _ => break,
        }
    }
    words.drain(..at);
}

/// Spelling variants become one word.
fn simplify(words: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        let plain = match word.as_str() {
            "layernorm" | "rmsnorm" | "ln" => "norm",
            "ln1" => "norm1",
            "ln2" => "norm2",
            "lnf" => "normf",
            "attention" | "attentions" | "att" => "attn",
            "selfattention" | "selfattn" => "attn",
            "feedforward" | "ffn" | "ffw" | "ff" => "mlp",
            "projection" => "proj",
            "embeddings" | "embedding" | "embd" | "emb" => "embed",
            "expert" | "exps" => "experts",
            "crossattention" => "crossattn",
            other => other
                .strip_prefix('0')
                .filter(|rest| other.bytes().all(|b| b.is_ascii_digit()) && !rest.is_empty())
                .map_or(other, |rest| {
                    let trimmed = rest.trim_start_matches('0');
                    if trimmed.is_empty() { "0" } else { trimmed }
                }),
        };
        let joined = match (out.last().map(String::as_str), plain) {
            (Some("layer" | "rms"), "norm") => Some("norm"),
            (Some("layer" | "rms"), "norm1") => Some("norm1"),
            (Some("layer" | "rms"), "norm2") => Some("norm2"),
            (Some("norm"), "1") => Some("norm1"),
            (Some("norm"), "2") => Some("norm2"),
            (Some("norm"), "f") => Some("normf"),
            (Some("fc"), "1") => Some("fc1"),
            (Some("fc"), "2") => Some("fc2"),
            (Some("feed"), "forward") => Some("mlp"),
            _ => None,
        };
        match joined {
            Some(joined) => *out.last_mut().expect("there is one") = joined.to_owned(),
            // What adapters call their two matrices, and the name of the only one.
            None if plain == "down" && out.last().is_some_and(|last| last == "lora") => {
                out.push("a".to_owned());
            }
            None if plain == "up" && out.last().is_some_and(|last| last == "lora") => {
                out.push("b".to_owned());
            }
            None if plain == "default"
                && matches!(out.as_slice(), [.., lora, a] if lora == "lora" && (a == "a" || a == "b")) =>
                {}
            None if plain == "shexp" => out.extend(["shared".to_owned(), "experts".to_owned()]),
            None => out.push(plain.to_owned()),
        }
    }
    out
}

/// `bn1`, `norm`, `normalization`.
fn is_norm(word: &str) -> bool {
    let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
    matches!(
        letters,
        "bn" | "norm" | "normf" | "batchnorm" | "groupnorm" | "normalization"
    )
}

/// `gamma` and `beta` of any norm, known or not.
fn norm_param(words: &[String]) -> Option<&'static str> {
    let [.., norm, last] = words else { return None };
    match last.as_str() {
        _ if !is_norm(norm) => None,
        "gamma" | "scale" => Some("weight"),
        "beta" => Some("bias"),
        _ => None,
    }
}

/// What a batch norm has counted is `running mean` and `running var`, whatever it is called.
fn settle_statistics(words: &mut Vec<String>) {
    let statistic = match words.last().map(String::as_str) {
        Some("mean") => "mean",
        Some("variance" | "var") => "var",
        _ => return,
    };
    let before = words.get(words.len().wrapping_sub(2)).map(String::as_str);
    match before {
        Some("moving") => words.truncate(words.len() - 2),
        Some(norm) if is_norm(norm) => words.truncate(words.len() - 1),
        _ => return,
    }
    words.extend(["running".to_owned(), statistic.to_owned()]);
}

fn param(word: &str) -> Option<&'static str> {
    match word {
        "weight" | "kernel" => Some("weight"),
        "bias" => Some("bias"),
        _ => None,
    }
}

/// The first phrase that means a stage, and the words around it. Containers count only as words when nothing in them was understood.
fn stage(
    words: Vec<String>,
    in_layer: bool,
    two_stacks: bool,
) -> (Option<&'static str>, Vec<String>) {
    let mut place = if in_layer { Place::Layer } else { Place::Top };
    let (mut found, mut rest, mut held) = (None, Vec::new(), Vec::new());
    let mut at = 0;
    while at < words.len() {
        let here = &words[at..];
        if found.is_none() {
            // A phrase outside the layers is the whole name: `output` is the head, `output.foo` is not known.
            let leaf = families::leaf(place, here)
                .filter(|(len, _)| place != Place::Top || *len == here.len() || rest.is_empty());
            // The last norm of an encoder is not that of its decoder: which one it is stays a word.
            let leaf = leaf.filter(|(len, _)| {
                !two_stacks || *len == 1 || !matches!(here[0].as_str(), "encoder" | "decoder")
            });
            if let Some((len, stage)) = leaf {
                found = Some(stage);
                at += len;
                continue;
            }
            if let Some((len, holds)) =
                families::container(here).filter(|_| in_layer || here.len() > 1)
            {
                held.push((
                    rest.len(),
                    if holds == Place::Attention {
                        "attn"
                    } else {
                        "mlp"
                    },
                ));
                place = holds;
                at += len;
                continue;
            }
        }
        rest.push(here[0].clone());
        at += 1;
    }
    if found.is_none() {
        held.into_iter()
            .rev()
            .for_each(|(at, word)| rest.insert(at, word.to_owned()));
    }
    (found, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(name: &str) -> String {
        let name = Name::parse(name, Reading::default());
        format!(
            "{}:{}",
            name.layer.map_or("-".to_owned(), |layer| layer.to_string()),
            name.key()
        )
    }

    fn all_are(expected: &str, names: &[&str]) {
        for name in names {
            assert_eq!(canonical(name), expected, "{name}");
        }
    }

    #[test]
    fn every_family_has_the_same_query() {
        all_are(
            "3:|attn_q|weight",
            &[
                "model.layers.3.self_attn.q_proj.weight",
                "blk.3.attn_q.weight",
                "layers.3.attention.wq.weight",
                "bert.encoder.layer.3.attention.self.query.weight",
                "module._orig_mod.model.layers.3.self_attn.q_proj.weight",
                "_fsdp_wrapped_module.model.layers.3._fsdp_wrapped_module.self_attn.q_proj.weight",
                "base_model.model.model.layers.3.self_attn.q_proj.weight",
                "model::layers::3::selfAttn::qProj::weight",
                "model/layers/3/self_attn/q_proj/kernel",
                "language_model.model.layers.3.self_attn.q_proj.weight",
                "model.layers_3.self_attn.q_proj.weight",
                "model.block3.self_attn.q_proj.weight",
            ],
        );
    }

    #[test]
    fn torchvision_numbers_its_layers_twice_over() {
        all_are(
            "3:|attn_qkv|weight",
            &[
                "encoder.layers.encoder_layer_3.self_attention.in_proj_weight",
                "blocks.3.attn.qkv.weight",
                "vit.blocks.3.attn.qkv.weight",
            ],
        );
        all_are(
            "3:|norm2|weight",
            &[
                "params/decoder/layers_3/post_self_attention_layer_norm/scale",
                "model.layers.3.post_attention_layernorm.weight",
            ],
        );
        all_are(
            "3:|norm1|weight",
            &[
                "params/decoder/layers_3/pre_self_attention_layer_norm/scale",
                "model.layers.3.input_layernorm.weight",
            ],
        );
    }

    #[test]
    fn outputs_and_feed_forwards_depend_on_where_they_stand() {
        all_are(
            "0:|attn_o|weight",
            &[
                "model.layers.0.self_attn.o_proj.weight",
                "blk.0.attn_output.weight",
                "decoder.layers.0.self_attention.linear_proj.weight",
                "transformer.h.0.attn.c_proj.weight",
                "gpt_neox.layers.0.attention.dense.weight",
                "bert.encoder.layer.0.attention.output.dense.weight",
                "layers.0.attention.wo.weight",
            ],
        );
        all_are(
            "0:|mlp_down|weight",
            &[
                "model.layers.0.mlp.down_proj.weight",
                "blk.0.ffn_down.weight",
                "decoder.layers.0.mlp.linear_fc2.weight",
                "transformer.h.0.mlp.c_proj.weight",
                "gpt_neox.layers.0.mlp.dense_4h_to_h.weight",
                "bert.encoder.layer.0.output.dense.weight",
                "layers.0.feed_forward.w2.weight",
            ],
        );
        all_are(
            "0:|attn_qkv|bias",
            &[
                "transformer.h.0.attn.c_attn.bias",
                "gpt_neox.layers.0.attention.query_key_value.bias",
                "model.layers.0.self_attn.qkv_proj.bias",
                "blk.0.attn_qkv.bias",
                "decoder.layers.0.self_attention.linear_qkv.bias",
                "blocks.0.attn.Wqkv.bias",
            ],
        );
    }

    #[test]
    fn norms_embeddings_and_the_head_are_one_in_all_families() {
        all_are(
            "1:|norm1|weight",
            &[
                "model.layers.1.input_layernorm.weight",
                "blk.1.attn_norm.weight",
                "layers.1.attention_norm.weight",
                "decoder.layers.1.self_attention.linear_qkv.layer_norm_weight",
                "transformer.h.1.ln_1.weight",
                "transformer.h.1.ln_1.gamma",
                "model.layers.1.input_layernorm.scale",
            ],
        );
        all_are(
            "1:|norm2|weight",
            &[
                "model.layers.1.post_attention_layernorm.weight",
                "blk.1.ffn_norm.weight",
                "layers.1.ffn_norm.weight",
                "decoder.layers.1.mlp.linear_fc1.layer_norm_weight",
                "decoder.layers.1.pre_mlp_layernorm.weight",
                "transformer.h.1.ln_2.weight",
            ],
        );
        all_are(
            "1:|norm1|bias",
            &[
                "transformer.h.1.ln_1.bias",
                "transformer.h.1.ln_1.beta",
                "blk.1.attn_norm.bias",
            ],
        );
        all_are(
            "-:|embed|weight",
            &[
                "model.embed_tokens.weight",
                "token_embd.weight",
                "transformer.wte.weight",
                "tok_embeddings.weight",
                "embedding.word_embeddings.weight",
                "bert.embeddings.word_embeddings.weight",
                "model.embed_tokens.embedding",
            ],
        );
        all_are(
            "-:|final_norm|weight",
            &[
                "model.norm.weight",
                "output_norm.weight",
                "transformer.ln_f.weight",
                "decoder.final_layernorm.weight",
                "norm.weight",
            ],
        );
        all_are(
            "-:|lm_head|weight",
            &[
                "lm_head.weight",
                "output.weight",
                "output_layer.weight",
                "embed_out.weight",
            ],
        );
    }

    #[test]
    fn weight_and_bias_and_scales_stay_apart() {
        let names = [
            "model.layers.0.self_attn.q_proj.weight",
            "model.layers.0.self_attn.q_proj.bias",
            "model.layers.0.self_attn.q_proj",
            "model.layers.0.self_attn.q_proj.weight_scale",
            "model.layers.0.self_attn.q_proj.scale",
            "model.layers.0.self_attn.q_norm.weight",
            "model.layers.0.self_attn.q_proj.lora_A.weight",
            "model.layers.0.self_attn.q_proj.lora_B.weight",
        ];
        let keys: std::collections::HashSet<String> =
            names.iter().map(|name| canonical(name)).collect();
        assert_eq!(keys.len(), names.len(), "{keys:?}");
    }

    #[test]
    fn norms_after_attention_are_not_the_norm_before_the_feed_forward_when_there_are_both() {
        let gemma = |name: &str| {
            Name::parse(
                name,
                Reading {
                    four_norms: true,
                    ..Reading::default()
                },
            )
            .stage
        };
        assert_eq!(
            gemma("model.layers.0.post_attention_layernorm.weight"),
            gemma("blk.0.post_attention_norm.weight")
        );
        assert_eq!(
            gemma("model.layers.0.pre_feedforward_layernorm.weight"),
            gemma("blk.0.ffn_norm.weight")
        );
        assert_eq!(
            gemma("model.layers.0.post_feedforward_layernorm.weight"),
            gemma("blk.0.post_ffw_norm.weight")
        );
        assert_ne!(
            gemma("model.layers.0.post_attention_layernorm.weight"),
            gemma("blk.0.ffn_norm.weight")
        );
    }

    #[test]
    fn encoder_and_decoder_are_kept_where_there_are_both() {
        let key = |name: &str| {
            Name::parse(
                name,
                Reading {
                    two_stacks: true,
                    ..Reading::default()
                },
            )
            .key()
        };
        assert_ne!(
            key("encoder.block.0.layer.0.SelfAttention.q.weight"),
            key("decoder.block.0.layer.0.SelfAttention.q.weight")
        );
    }

    #[test]
    fn layer_stage_names_keep_their_stage() {
        assert_eq!(canonical("12_query_final"), "12:query.final||");
        assert_eq!(canonical("dump/007_post_attn"), "7:dump.post.attn||");
        assert_eq!(
            canonical("3_head_3"),
            "3:head.3||",
            "the layer is the first number"
        );
        all_are(
            "3:|attn_q|",
            &["3_query", "model.layers.3.self_attn.q_proj", "3_q"],
        );
    }

    #[test]
    fn experts_have_numbers_of_their_own() {
        let name = Name::parse(
            "model.layers.4.block_sparse_moe.experts.7.w1.weight",
            Reading::default(),
        );
        assert_eq!(
            (name.layer, name.stage, name.numbers()),
            (Some(4), Some("mlp_gate"), vec![7])
        );
    }

    #[test]
    fn a_layer_itself_has_no_words() {
        all_are(
            "3:||",
            &[
                "model.layers.3",
                "layers.3",
                "transformer.h.3",
                "bert.encoder.layer.3",
                "blk.3",
                "module.model.layers.3",
            ],
        );
        assert_ne!(canonical("model"), canonical("layers"));
    }

    #[test]
    fn attention_to_the_encoder_is_one_in_all_families() {
        let key = |name: &str| {
            Name::parse(
                name,
                Reading {
                    two_stacks: true,
                    ..Reading::default()
                },
            )
            .key()
        };
        let names = [
            "model.decoder.layers.0.encoder_attn.q_proj.weight",
            "decoder.blocks.0.cross_attn.query.weight",
            "decoder.block.0.layer.1.EncDecAttention.q.weight",
            "dec.blk.0.cross_attn_q.weight",
        ];
        for name in names {
            assert_eq!(key(name), "decoder.cross|attn_q|weight", "{name}");
        }
        assert_eq!(
            key("encoder.blocks.0.attn.query.weight"),
            "encoder|attn_q|weight",
            "the encoder's own"
        );
    }

    #[test]
    fn the_norms_of_t5_are_told_by_their_place() {
        let key = |name: &str| {
            Name::parse(
                name,
                Reading {
                    two_stacks: true,
                    ..Reading::default()
                },
            )
            .key()
        };
        for (t5, gguf) in [
            (
                "encoder.block.1.layer.0.layer_norm.weight",
                "enc.blk.1.attn_norm.weight",
            ),
            (
                "encoder.block.1.layer.1.layer_norm.weight",
                "enc.blk.1.ffn_norm.weight",
            ),
            (
                "decoder.block.1.layer.1.layer_norm.weight",
                "dec.blk.1.cross_attn_norm.weight",
            ),
            (
                "decoder.block.1.layer.2.layer_norm.weight",
                "dec.blk.1.ffn_norm.weight",
            ),
            (
                "decoder.block.1.layer.2.DenseReluDense.wo.weight",
                "dec.blk.1.ffn_down.weight",
            ),
            ("encoder.final_layer_norm.weight", "enc.output_norm.weight"),
        ] {
            assert_eq!(key(t5), key(gguf), "{t5}");
        }
    }

    #[test]
    fn experts_are_numbered_in_other_places() {
        all_are(
            "4:experts.7|mlp_down|weight",
            &[
                "model.layers.4.mlp.experts.7.down_proj.weight",
                "decoder.layers.4.mlp.experts.local_experts.7.linear_fc2.weight",
                "decoder.layers.4.mlp.experts.linear_fc2.weight7",
            ],
        );
    }

    #[test]
    fn batch_norms_count_the_same_in_all_families() {
        for (names, key) in [
            (
                [
                    "layer1.0.bn1.running_mean",
                    "layer1.0.bn1.moving_mean",
                    "batch_stats/layer1_0/bn1/mean",
                    "layer1.0.bn1._mean",
                ],
                "0.bn1.running.mean||",
            ),
            (
                [
                    "layer1.0.bn1.running_var",
                    "layer1.0.bn1.moving_variance:0",
                    "batch_stats/layer1_0/bn1/var",
                    "layer1.0.bn1._variance",
                ],
                "0.bn1.running.var||",
            ),
            (
                [
                    "layer1.0.bn1.weight",
                    "layer1.0.bn1.gamma",
                    "params/layer1_0/bn1/scale",
                    "layer1/0/bn1/gamma:0",
                ],
                "0.bn1||weight",
            ),
            (
                [
                    "layer1.0.bn1.bias",
                    "layer1.0.bn1.beta",
                    "params/layer1_0/bn1/bias",
                    "layer1/0/bn1/beta:0",
                ],
                "0.bn1||bias",
            ),
        ] {
            all_are(&format!("1:{key}"), &names);
        }
        assert_eq!(
            canonical("stats.mean"),
            "-:stats.mean||",
            "of anything else it is a word like any other"
        );
    }

    #[test]
    fn the_gate_of_shared_experts_is_not_that_of_their_feed_forward() {
        let gates = [
            "model.layers.0.mlp.shared_expert_gate.weight",
            "decoder.layers.0.mlp.shared_experts.gate_weight",
            "blk.0.ffn_gate_inp_shexp.weight",
        ];
        all_are("0:|shared_gate|weight", &gates);
        all_are(
            "0:shared.experts|mlp_gate|weight",
            &[
                "model.layers.0.mlp.shared_expert.gate_proj.weight",
                "blk.0.ffn_gate_shexp.weight",
                "layers.0.ffn.shared_experts.w1.weight",
            ],
        );
    }

    #[test]
    fn low_rank_attention_is_one_in_deepseeks_own_words() {
        let reading = Reading::of(
            [
                "layers.0.attn.wkv_a.weight",
                "layers.1.ffn.experts.0.w1.weight",
            ]
            .into_iter(),
        );
        for (own, hugging_face) in [
            (
                "layers.1.attn.wq_a.weight",
                "model.layers.1.self_attn.q_a_proj.weight",
            ),
            (
                "layers.1.attn.q_norm.weight",
                "model.layers.1.self_attn.q_a_layernorm.weight",
            ),
            (
                "layers.1.attn.wkv_a.weight",
                "model.layers.1.self_attn.kv_a_proj_with_mqa.weight",
            ),
            (
                "layers.1.attn.kv_norm.weight",
                "model.layers.1.self_attn.kv_a_layernorm.weight",
            ),
            (
                "layers.1.attn.wkv_b.weight",
                "model.layers.1.self_attn.kv_b_proj.weight",
            ),
            ("layers.1.ffn.gate.weight", "model.layers.1.mlp.gate.weight"),
            (
                "layers.1.ffn.gate.bias",
                "model.layers.1.mlp.gate.e_score_correction_bias",
            ),
        ] {
            let theirs = Name::parse(
                hugging_face,
                Reading {
                    experts: true,
                    ..Reading::default()
                },
            );
            assert_eq!(Name::parse(own, reading).key(), theirs.key(), "{own}");
        }
    }

    #[test]
    fn what_a_hook_says_of_outputs_is_no_part_of_the_name() {
        let names = [
            "model.layers.0.self_attn.q_proj.output.0",
            "model.layers.0.self_attn.output.0",
            "lm_head.output.0",
            "lm_head.input.0",
        ];
        let reading = Reading::of(names.into_iter());
        for (hooked, plain) in names.into_iter().zip([
            "model.layers.0.self_attn.q_proj",
            "model.layers.0.self_attn",
            "lm_head",
            "lm_head.input.0",
        ]) {
            assert_eq!(
                Name::parse(hooked, reading),
                Name::parse(plain, Reading::default()),
                "{hooked}"
            );
        }
        let bert = [
            "layer.0.attention.output",
            "layer.0.output",
            "layer.0.attention.self",
            "layer.0.intermediate",
            "pooler",
        ];
        assert!(
            !Reading::of(bert.into_iter()).hooked,
            "a module of that name"
        );
    }

    #[test]
    fn wrapped_parameters_and_short_names_are_read() {
        all_are(
            "3:|attn_q|weight",
            &[
                "base_model.model.model.layers.3.self_attn.q_proj.base_layer.weight",
                "model.layers.3.self_attn.q_proj.weight_orig",
                "model.layers.3.self_attn.q_proj.parametrizations.weight.original",
                "blocks.3.attn.W_Q",
                "h3/attn/q/w",
            ],
        );
        assert_eq!(canonical("h3"), "-:h3||");
    }

    #[test]
    fn exported_parameters_are_told_by_all_names_of_their_side() {
        let names = [
            "p_model_layers_0_self_attn_q_proj_weight",
            "b_model_rotary_emb_inv_freq",
        ];
        let exported = Reading::of(names.into_iter());
        assert_eq!(
            Name::parse(names[0], exported).key(),
            Name::parse("model.layers.0.self_attn.q_proj.weight", Reading::default()).key()
        );
        let other = Reading::of(["p_model_layers_0_self_attn_q_proj_weight", "scale"].into_iter());
        assert!(!other.exported && !Reading::of(["b_q", "b_k"].into_iter()).exported);
    }

    #[test]
    fn no_name_breaks_the_parser() {
        for name in [
            "",
            ".",
            "_",
            "99999999999999999999999_x",
            "layers.",
            "模型.層.3",
            "h.h.h",
            "model",
            "model.model",
            "A",
            "ÄÖ.ßX",
        ] {
            let _ = Name::parse(name, Reading::default());
        }
    }
}
