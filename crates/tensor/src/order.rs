//! Execution order where a file has none: layer number, then stage, then natural name order.

mod modules;

use std::cmp::Ordering;

/// The stages of a layer in the order they run, for names like `{layer}_{stage}`.
pub const STAGES: [&str; 13] = [
    "post_ln_pre_attn",
    "query",
    "query_final",
    "key",
    "key_final",
    "value",
    "value_final",
    "post_attn",
    "scaling",
    "sliding",
    "post_attn_pre_resid",
    "pre_mlp",
    "post_mlp",
];

/// `{layer}_{stage}`, or `None` for any other name.
pub fn layer_stage(name: &str) -> Option<(u64, &str)> {
    let last = name.rsplit(['/', '.']).next()?;
    let (layer, stage) = last.split_once('_')?;
    let digits = !layer.is_empty() && layer.bytes().all(|b| b.is_ascii_digit());
    if !digits || stage.is_empty() {
        return None;
    }
    Some((layer.parse().ok()?, stage))
}

/// Where a name stands in the order; compare with [`by_name`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    /// Before the layers (embeddings), in them, after them.
    part: u8,
    /// Several stacks of layers, numbered anew each: an encoder before its decoder.
    stack: u64,
    layer: u64,
    stage: usize,
    /// Of a module's result, the modules it is in. Empty for what is loaded: that has no order but its name's.
    path: Vec<Step<'a>>,
}

/// One module of a path: what it is usually called when it runs.
#[derive(Debug, PartialEq, Eq)]
struct Step<'a> {
    rank: u8,
    name: &'a str,
}

impl Ord for Step<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank).then_with(|| natural(self.name, other.name))
    }
}

impl PartialOrd for Step<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn place(name: &str) -> Place<'_> {
    if let Some((layer, stage)) = layer_stage(name) {
        let stage = STAGES.iter().position(|known| *known == stage).unwrap_or(STAGES.len());
        return Place { part: 1, stack: 0, layer, stage, path: Vec::new() };
    }
    // `model.layers.3.mlp`, `blk.3.attn_q`, `h.3.ln_1`: the first number that is a path segment of its own.
    let mut segments = name.split(['.', '/']);
    let layer = segments.clone().find(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit())).and_then(|part| part.parse().ok());
    // `time_embedder.mlp.2`, `classifier.1`: one of a few modules in a row, which are no layers.
    let layer = layer.filter(|_| !modules::is_in_a_row(name));
    let loaded = modules::is_loaded(name);
    let is_number = |part: &&str| part.bytes().next().is_some_and(|b| b.is_ascii_digit());
    let stack = if loaded { 0 } else { segments.clone().take_while(|part| !is_number(part)).find_map(modules::stack).unwrap_or(0) };
    if let Some(layer) = layer {
        // What comes before the number is the same for all of a layer.
        segments.find(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit()));
        let path = if loaded { Vec::new() } else { path(segments, true) };
        return Place { part: 1, stack, layer, stage: 0, path };
    }
    let contains = |word: &str| name.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()));
    let first = ["embed", "embd", "wte", "wpe", "input", "token"].into_iter().any(contains);
    if loaded {
        return Place { part: if first { 0 } else { 2 }, stack: 0, layer: 0, stage: 0, path: Vec::new() };
    }
    match modules::outside_of_layers(name) {
        modules::Outside::Before => Place { part: 0, stack: 0, layer: 0, stage: 0, path: path(segments, false) },
        _ if first => Place { part: 0, stack: 0, layer: 0, stage: 0, path: path(segments, false) },
        // An encoder's last norm comes before its decoder.
        modules::Outside::EndOfEncoder => Place { part: 1, stack, layer: u64::MAX, stage: 0, path: path(segments, false) },
        modules::Outside::After => Place { part: 2, stack: 0, layer: 0, stage: 0, path: path(segments, false) },
    }
}

/// A module's own result comes after those of the modules in it.
fn path<'a>(segments: impl Iterator<Item = &'a str>, in_layer: bool) -> Vec<Step<'a>> {
    let mut parent = "";
    let mut steps: Vec<Step<'a>> = Vec::new();
    for name in segments {
        steps.push(Step { rank: modules::rank(name, parent, in_layer), name });
        parent = name;
    }
    steps.push(Step { rank: u8::MAX, name: "" });
    steps
}

/// Layer, stage, natural name. Results of modules whose names say what they are come in the order such modules run.
pub fn by_name(a: &str, b: &str) -> Ordering {
    place(a).cmp(&place(b)).then_with(|| natural(a, b))
}

/// Sorts by [`by_name`], computing each place once. Equal names keep their order.
pub fn sort_by_name<T>(items: &mut Vec<T>, name: impl Fn(&T) -> &str) {
    let mut places: Vec<(Place<'_>, usize)> = items.iter().enumerate().map(|(at, item)| (place(name(item)), at)).collect();
    let before = |a: &(Place<'_>, usize), b: &(Place<'_>, usize)| {
        a.0.cmp(&b.0).then_with(|| natural(name(&items[a.1]), name(&items[b.1]))).then(a.1.cmp(&b.1))
    };
    // Most writers sort already; then looking once is all it costs.
    if places.is_sorted_by(|a, b| before(a, b).is_le()) {
        return;
    }
    places.sort_unstable_by(before);
    let order: Vec<usize> = places.into_iter().map(|(_, at)| at).collect();
    let mut taken: Vec<Option<T>> = std::mem::take(items).into_iter().map(Some).collect();
    items.extend(order.iter().map(|at| taken[*at].take().expect("each place once")));
}

/// Runs of digits compare as numbers: `a2` before `a10`. Equal numbers with other zeros fall back to the text.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    loop {
        match (x.first(), y.first()) {
            (None, None) => return a.cmp(b),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(p), Some(q)) if p.is_ascii_digit() && q.is_ascii_digit() => {
                let (m, n) = (digits(x), digits(y));
                let (s, t) = (trim(&x[..m]), trim(&y[..n]));
                let ordering = s.len().cmp(&t.len()).then_with(|| s.cmp(t));
                if ordering != Ordering::Equal {
                    return ordering;
                }
                (x, y) = (&x[m..], &y[n..]);
            }
            (Some(p), Some(q)) if p == q => (x, y) = (&x[1..], &y[1..]),
            (Some(p), Some(q)) => return p.cmp(q),
        }
    }
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|b| b.is_ascii_digit()).count()
}

fn trim(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|b| **b == b'0').count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_then_stages_then_names() {
        let mut names = vec![
            "10_query",
            "2_post_mlp",
            "2_query",
            "2_zeta",
            "2_alpha",
            "lm_head.weight",
            "model.embed_tokens.weight",
            "2_post_ln_pre_attn",
        ];
        sort_by_name(&mut names, |name| name);
        assert_eq!(
            names,
            ["model.embed_tokens.weight", "2_post_ln_pre_attn", "2_query", "2_post_mlp", "2_alpha", "2_zeta", "10_query", "lm_head.weight"]
        );
    }

    fn sorted<'a>(names: &[&'a str]) -> Vec<&'a str> {
        let mut names = names.to_vec();
        names.sort_unstable();
        sort_by_name(&mut names, |name| name);
        names
    }

    #[test]
    fn results_of_modules_come_in_the_order_that_modules_run() {
        let llama = [
            "input_ids",
            "model.embed_tokens",
            "model.layers.0.input_layernorm",
            "model.layers.0.self_attn.q_proj",
            "model.layers.0.self_attn.k_proj",
            "model.layers.0.self_attn.v_proj",
            "model.layers.0.self_attn.q_rot",
            "model.layers.0.self_attn.probs",
            "model.layers.0.self_attn.context",
            "model.layers.0.self_attn.o_proj",
            "model.layers.0.self_attn",
            "model.layers.0.post_attention_layernorm",
            "model.layers.0.mlp.gate_proj",
            "model.layers.0.mlp.up_proj",
            "model.layers.0.mlp.act_fn",
            "model.layers.0.mlp.down_proj",
            "model.layers.0.mlp",
            "model.layers.0",
            "model.layers.1.input_layernorm",
            "model.norm",
            "lm_head",
            "logits",
        ];
        assert_eq!(sorted(&llama), llama);
        let bert = [
            "bert.embeddings.word_embeddings",
            "bert.embeddings.position_embeddings",
            "bert.embeddings.LayerNorm",
            "bert.embeddings",
            "bert.encoder.layer.0.attention.self.query",
            "bert.encoder.layer.0.attention.self",
            "bert.encoder.layer.0.attention.output.dense",
            "bert.encoder.layer.0.attention.output.LayerNorm",
            "bert.encoder.layer.0.intermediate.dense",
            "bert.encoder.layer.0.intermediate.intermediate_act_fn",
            "bert.encoder.layer.0.output.dense",
            "bert.encoder.layer.0.output.LayerNorm",
            "bert.pooler",
            "classifier",
        ];
        assert_eq!(sorted(&bert), bert);
        let gpt = ["wte", "wpe", "h.0.ln_1", "h.0.attn.c_attn", "h.0.attn.c_proj", "h.0.attn", "h.0.ln_2", "h.0.mlp.c_fc", "h.0.mlp.act"];
        assert_eq!(sorted(&gpt), gpt);
    }

    #[test]
    fn an_encoder_ends_before_its_decoder_begins() {
        let names = ["encoder.block.0.layer.0.layer_norm", "encoder.block.11", "encoder.final_layer_norm", "decoder.block.0", "lm_head"];
        assert_eq!(sorted(&names), names);
        let names = ["conv1", "bn1", "relu", "layer1.0.conv1", "layer1.0.bn1", "layer1.0.conv2", "layer1.1.conv1", "layer2.0.conv1", "fc"];
        assert_eq!(sorted(&names), names);
    }

    #[test]
    fn a_few_modules_in_a_row_are_no_layers() {
        let names = [
            "latents",
            "t_embedder.mlp.0",
            "t_embedder.mlp.2",
            "x_embedder",
            "blocks.0.adaLN_modulation.1",
            "blocks.1.adaLN_modulation.1",
            "final_layer.adaLN_modulation.1",
            "final_layer.linear",
        ];
        assert_eq!(sorted(&names), names);
        let names = ["features.0.0", "features.1", "features.10.conv.0", "avgpool", "classifier.1"];
        assert_eq!(sorted(&names), names);
    }

    #[test]
    fn a_stem_comes_before_positions_and_an_activation_behind_its_product() {
        let names =
            ["input_features", "encoder.conv1", "encoder.conv2", "encoder.embed_positions", "encoder.layers.0.fc1", "encoder.layer_norm"];
        assert_eq!(sorted(&names), names);
        let names = ["encoder.layer.0", "pooler.dense", "pooler.activation", "pooler", "classifier"];
        assert_eq!(sorted(&names), names);
    }

    #[test]
    fn weights_have_no_order_but_that_of_their_names() {
        let names = ["h.0.attn.c_attn.weight", "h.0.ln_1.bias", "h.0.ln_1.weight", "h.0.mlp.c_fc.weight", "h.1.attn.c_attn.weight"];
        assert_eq!(sorted(&names), names);
        let names = ["a", "a.weight", "b", "b2", "b10"];
        assert_eq!(sorted(&names), ["a.weight", "a", "b", "b2", "b10"]);
    }

    #[test]
    fn numbers_in_names_count_as_numbers() {
        assert_eq!(natural("a2", "a10"), Ordering::Less);
        assert_eq!(natural("a02", "a2"), Ordering::Less);
        assert_eq!(natural("h.9.w", "h.10.b"), Ordering::Less);
    }

    #[test]
    fn malformed_layer_stage_names_are_plain_names() {
        for name in ["x_query", "_query", "12_", "3query", "query"] {
            assert_eq!(layer_stage(name), None, "{name}");
        }
        assert_eq!(layer_stage("dump/12_post_attn"), Some((12, "post_attn")));
    }
}
