//! Execution order where a file has none: a number that counts the tensors, else layer number, then stage, then natural name order.

mod modules;
mod table;

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap, HashSet},
};

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

/// Where a name that is not counted stands in the order.
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
        self.rank
            .cmp(&other.rank)
            .then_with(|| natural(self.name, other.name))
    }
}

impl PartialOrd for Step<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn place(name: &str) -> Place<'_> {
    if let Some((layer, stage)) = layer_stage(name) {
        let stage = STAGES
            .iter()
            .position(|known| *known == stage)
            .unwrap_or(STAGES.len());
        return Place {
            part: 1,
            stack: 0,
            layer,
            stage,
            path: Vec::new(),
        };
    }
    // `model.layers.3.mlp`, `blk.3.attn_q`, `h.3.ln_1`: the first number that is a path segment of its own.
    let mut segments = name.split(['.', '/']);
    let layer = segments
        .clone()
        .find(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit()))
        .and_then(|part| part.parse().ok());
    // `time_embedder.mlp.2`, `classifier.1`: one of a few modules in a row, which are no layers.
    let layer = layer.filter(|_| !modules::is_in_a_row(name));
    let loaded = modules::is_loaded(name);
    let is_number = |part: &&str| part.bytes().next().is_some_and(|b| b.is_ascii_digit());
    let known = if loaded {
        None
    } else {
        modules::stack(segments.clone().take_while(|part| !is_number(part)))
    };
    let stack = known.unwrap_or(modules::PLAIN_STACK);
    // `mid_block.attentions.0` is between `resnets.0` and `resnets.1`.
    let turns = segments
        .clone()
        .zip(segments.clone().skip(1))
        .position(|(one, next)| modules::takes_turns(one) && is_number(&next));
    let first_number = segments.clone().position(|part| is_number(&part));
    if let Some(at) = turns.filter(|at| !loaded && first_number == Some(at + 1)) {
        return Place {
            part: 1,
            stack,
            layer: 0,
            stage: 0,
            path: path(segments.skip(at), true),
        };
    }
    if let Some(layer) = layer {
        // What comes before the number is the same for all of a layer.
        segments.find(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit()));
        let path = if loaded {
            Vec::new()
        } else {
            path(segments, true)
        };
        return Place {
            part: 1,
            stack,
            layer,
            stage: 0,
            path,
        };
    }
    if let Some((number, rest)) = modules::worded_layer(name) {
        // As the numbered stacks of a network whose layers are numbered in each; what all of it returns comes behind what is in it.
        let base = name
            .split(['.', '/', '_'])
            .find_map(|part| {
                if part == "decoder" || part == "dec" {
                    Some(2)
                } else {
                    None
                }
            })
            .unwrap_or(0);
        let path = if loaded {
            Vec::new()
        } else {
            path(rest.split(['.', '/']).filter(|part| !part.is_empty()), true)
        };
        let layer = if rest.is_empty() { u64::MAX } else { 0 };
        return Place {
            part: 1,
            stack: number.saturating_add(base * MANY),
            layer,
            stage: 0,
            path,
        };
    }
    let contains = |word: &str| {
        name.as_bytes()
            .windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
    };
    let first = ["embed", "embd", "wte", "wpe", "input", "token"]
        .into_iter()
        .any(contains);
    if loaded {
        return Place {
            part: if first { 0 } else { 2 },
            stack: 0,
            layer: 0,
            stage: 0,
            path: Vec::new(),
        };
    }
    // What begins a decoder comes behind what ends its encoder, and the text behind what is seen.
    let begins = first || modules::outside_of_layers(name) == modules::Outside::Before;
    if let Some(stack) = known.filter(|stack| *stack != modules::PLAIN_STACK) {
        let first = Step { rank: 0, name: "" };
        let (layer, lead) = if begins {
            (0, Some(first))
        } else {
            (u64::MAX, None)
        };
        return Place {
            part: 1,
            stack,
            layer,
            stage: 0,
            path: lead.into_iter().chain(path(segments, false)).collect(),
        };
    }
    match modules::outside_of_layers(name) {
        modules::Outside::Before => Place {
            part: 0,
            stack: 0,
            layer: 0,
            stage: 0,
            path: path(segments, false),
        },
        _ if first => Place {
            part: 0,
            stack: 0,
            layer: 0,
            stage: 0,
            path: path(segments, false),
        },
        // An encoder's last norm comes before its decoder.
        modules::Outside::EndOfEncoder => Place {
            part: 1,
            stack,
            layer: u64::MAX,
            stage: 0,
            path: path(segments, false),
        },
        modules::Outside::After => Place {
            part: 2,
            stack: 0,
            layer: 0,
            stage: 0,
            path: path(segments, false),
        },
    }
}

/// More than any stack has layers.
const MANY: u64 = 1 << 32;

/// The rank of the first of modules that take turns.
const TURNS: u8 = 20;

/// A module's own result comes after those of the modules in it.
fn path<'a>(segments: impl Iterator<Item = &'a str>, in_layer: bool) -> Vec<Step<'a>> {
    let mut parent = "";
    let mut steps: Vec<Step<'a>> = Vec::new();
    for name in segments {
        // Of those that take turns the number counts first.
        if modules::takes_turns(parent)
            && let (Some(last), Ok(turn)) = (steps.last_mut(), name.parse::<u8>())
        {
            last.rank = TURNS
                .saturating_add(turn.saturating_mul(2))
                .saturating_add(u8::from(parent == "attentions"));
        }
        steps.push(Step {
            rank: modules::rank(name, parent, in_layer),
            name,
        });
        parent = name;
    }
    steps.push(Step {
        rank: u8::MAX,
        name: "",
    });
    steps
}

/// What the names of a source say about their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Whoever wrote them counted: `007_layers.0.v`. Nothing else needs to be known.
    Counted,
    /// The layer's number is at the end: `attn_out_5`.
    Suffixed,
    /// Layer, stage, natural name. Results of modules whose names say what they are come in the order such modules run.
    Spoken,
}

impl Names {
    /// Counted are names that all begin with a number of their own; layers have several tensors with the same.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut seen = HashSet::new();
        let names: Vec<&str> = names.into_iter().collect();
        let counted = names
            .iter()
            .all(|name| count_of(name).is_some_and(|count| seen.insert(count)));
        match counted && seen.len() >= LEAST_COUNTED {
            true => Self::Counted,
            false if are_suffixed(&names) => Self::Suffixed,
            false => Self::Spoken,
        }
    }

    pub fn cmp(self, a: &str, b: &str) -> Ordering {
        match self {
            Self::Counted => count_of(a)
                .map(|(_, count)| count)
                .cmp(&count_of(b).map(|(_, count)| count))
                .then_with(|| natural(a, b)),
            Self::Suffixed | Self::Spoken => self
                .place(a)
                .cmp(&self.place(b))
                .then_with(|| natural(a, b)),
        }
    }

    fn place(self, name: &str) -> Place<'_> {
        match suffix_of(name).filter(|_| self == Self::Suffixed) {
            Some((stem, number)) => {
                let path = if modules::is_loaded(stem) {
                    Vec::new()
                } else {
                    path(stem.split(['.', '/']), true)
                };
                Place {
                    part: 1,
                    stack: number,
                    layer: 0,
                    stage: 0,
                    path,
                }
            }
            None => place(name),
        }
    }
}

/// A name and the number it ends with, where it has no other that is its layer's: `0_head_3` and `layers.0.head_3` are of the layer 0.
fn suffix_of(name: &str) -> Option<(&str, u64)> {
    let (stem, number) = name.split_at(name.trim_end_matches(|c: char| c.is_ascii_digit()).len());
    let stem = stem
        .strip_suffix(['_', '-', '.', ':'])
        .filter(|stem| !stem.is_empty())?;
    let numbered = || {
        stem.split(['.', '/'])
            .any(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit()))
    };
    if layer_stage(name).is_some() || numbered() || modules::worded_layer(stem).is_some() {
        return None;
    }
    Some((stem, number.parse().ok()?))
}

/// So many things are in every layer, and so many layers are there, before numbers at the end are believed to be layers.
const LEAST_SUFFIXED: usize = 3;

/// Whether most names end with a number, and several are there with all the same ones.
fn are_suffixed(names: &[&str]) -> bool {
    let mut stems: HashMap<&str, BTreeSet<u64>> = HashMap::new();
    for (stem, number) in names.iter().filter_map(|name| suffix_of(name)) {
        stems.entry(stem).or_default().insert(number);
    }
    let mut alike: HashMap<&BTreeSet<u64>, usize> = HashMap::new();
    stems
        .values()
        .filter(|numbers| numbers.len() >= LEAST_SUFFIXED)
        .for_each(|numbers| *alike.entry(numbers).or_default() += 1);
    alike
        .iter()
        .any(|(numbers, stems)| *stems >= LEAST_SUFFIXED && 2 * stems * numbers.len() > names.len())
}

/// Two names that begin with a number may just do so.
const LEAST_COUNTED: usize = 3;

/// Between a count and what it counts. Not a dot: `3.weight` is of the module 3.
const BEHIND_A_COUNT: [char; 3] = ['_', '-', ' '];

/// The folder of a name and the number it begins with there, if that is not all of it.
fn count_of(name: &str) -> Option<(&str, u64)> {
    let (folder, name) = name.rsplit_once('/').unwrap_or(("", name));
    let (count, rest) = name.split_at(digits(name.as_bytes()));
    let separated = rest.starts_with(BEHIND_A_COUNT) && rest.len() > 1;
    Some((folder, count.parse().ok().filter(|_| separated)?))
}

/// Whether the counts of counted names have no gaps.
pub fn is_gapless<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let mut counts: Vec<u64> = names
        .filter_map(|name| count_of(name).map(|(_, count)| count))
        .collect();
    counts.sort_unstable();
    counts.windows(2).all(|two| two[1] - two[0] == 1)
}

/// A counted name without its count: `layers.0.v` of `007_layers.0.v`.
pub fn without_count(name: &str) -> String {
    let (folder, last) = name
        .rsplit_once('/')
        .map_or((None, name), |(folder, last)| (Some(folder), last));
    let rest = &last[digits(last.as_bytes())..];
    let rest = if rest.len() < last.len() {
        rest.trim_start_matches(BEHIND_A_COUNT)
    } else {
        rest
    };
    folder.map_or_else(|| rest.to_owned(), |folder| format!("{folder}/{rest}"))
}

/// Sorts by what the names say, computing each place once. Equal names keep their order.
pub fn sort_by_name<T>(items: &mut Vec<T>, name: impl Fn(&T) -> &str) {
    let names = Names::of(items.iter().map(&name));
    if names == Names::Counted {
        return items.sort_by(|a, b| Names::Counted.cmp(name(a), name(b)));
    }
    let mut places: Vec<(Place<'_>, usize)> = items
        .iter()
        .enumerate()
        .map(|(at, item)| (names.place(name(item)), at))
        .collect();
    let before = |a: &(Place<'_>, usize), b: &(Place<'_>, usize)| {
        a.0.cmp(&b.0)
            .then_with(|| natural(name(&items[a.1]), name(&items[b.1])))
            .then(a.1.cmp(&b.1))
    };
    // Most writers sort already; then looking once is all it costs.
    if places.is_sorted_by(|a, b| before(a, b).is_le()) {
        return;
    }
    places.sort_unstable_by(before);
    let order: Vec<usize> = places.into_iter().map(|(_, at)| at).collect();
    let mut taken: Vec<Option<T>> = std::mem::take(items).into_iter().map(Some).collect();
    items.extend(
        order
            .iter()
            .map(|at| taken[*at].take().expect("each place once")),
    );
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
            [
                "model.embed_tokens.weight",
                "2_post_ln_pre_attn",
                "2_query",
                "2_post_mlp",
                "2_alpha",
                "2_zeta",
                "10_query",
                "lm_head.weight"
            ]
        );
    }

    #[test]
    fn who_counted_is_believed() {
        let names = [
            "000_embed",
            "001_layers.0.q_proj.weight",
            "002_layers.0.input_layernorm",
            "010_layers.0.mlp",
            "011_layers.1.input_layernorm",
            "100_input_ids",
        ];
        assert_eq!(sorted(&names), names);
        // Each rank for itself, and without zeros in front.
        let names = [
            "rank0/1-norm",
            "rank1/1-norm",
            "rank0/2-attn",
            "rank1/2-attn",
            "rank0/10-embed",
            "rank1/10-embed",
        ];
        assert_eq!(sorted(&names), names);
        assert_eq!(
            ["007_layers.0.v", "rank0/12 - x", "layers.0.v"].map(without_count),
            ["layers.0.v", "rank0/x", "layers.0.v"]
        );
        // Numbers that are not those of the tensors: layers, and one tensor without.
        let names = ["0_query", "0_key", "1_query", "1_key"];
        assert_eq!(sorted(&names), names);
        let names = ["embed_tokens", "3_norm", "4_attn", "5_query"];
        assert_eq!(sorted(&names), names);
        assert_eq!(
            Names::of(["0.weight", "1.running_mean", "2.bias"]),
            Names::Spoken
        );
    }

    #[test]
    fn a_number_at_the_end_is_no_layer_where_another_one_is() {
        for style in [
            "{l}_head_{k}",
            "layers.{l}.head_{k}",
            "layer{l}_head_{k}",
            "blk.{l}.expert.{k}",
        ] {
            let of = |layer: usize, nth: usize| {
                style
                    .replace("{l}", &layer.to_string())
                    .replace("{k}", &nth.to_string())
            };
            let names: Vec<String> = (0..12)
                .flat_map(|layer| (0..12).map(move |nth| (layer, nth)))
                .map(|(l, k)| of(l, k))
                .collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            assert_eq!(sorted(&names), names);
        }
    }

    #[test]
    fn a_stem_and_depthwise_convolutions_come_where_they_run() {
        let names = [
            "stem.0",
            "stem.1",
            "stages.0.blocks.0.dwconv",
            "stages.0.blocks.0.norm",
            "stages.0.blocks.0.mlp.fc1",
            "stages.0.blocks.0.mlp.fc2",
            "stages.1.downsample.0",
            "head.fc",
        ];
        assert_eq!(sorted(&names), names);
        let names = [
            "conv_stem",
            "blocks.0.conv_pw",
            "blocks.0.bn1",
            "blocks.0.conv_dw",
            "blocks.0.bn2",
            "blocks.0.conv_pwl",
            "blocks.0.bn3",
        ];
        assert_eq!(sorted(&names), names);
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
        let gpt = [
            "wte",
            "wpe",
            "h.0.ln_1",
            "h.0.attn.c_attn",
            "h.0.attn.c_proj",
            "h.0.attn",
            "h.0.ln_2",
            "h.0.mlp.c_fc",
            "h.0.mlp.act",
        ];
        assert_eq!(sorted(&gpt), gpt);
    }

    #[test]
    fn layers_are_known_however_their_number_is_written() {
        let parts = [
            "input_norm",
            "q",
            "v",
            "attn_out",
            "resid_mid",
            "post_norm",
            "mlp_up",
            "mlp_act",
            "mlp_out",
            "output",
        ];
        for layer in [
            "layer{}_{p}",
            "layer_{}.{p}",
            "block{}/{p}",
            "L{}.{p}",
            "model_layers_{}_{p}",
            "layers[{}].{p}",
            "{p}_{}",
            "{p}-{}",
            "h.{}.{p}",
            "blocks.{}.hook_{p}",
        ] {
            let of = |number: usize, part: &str| {
                layer
                    .replace("{}", &number.to_string())
                    .replace("{p}", part)
            };
            let mut names = vec!["embed".to_owned()];
            names.extend(
                (0..12)
                    .flat_map(|number| parts.iter().map(move |part| (number, part)))
                    .map(|(number, part)| of(number, part)),
            );
            names.extend(["final_norm".to_owned(), "logits".to_owned()]);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            assert_eq!(sorted(&names), names);
        }
        // Parts of modules in one word, and two stacks.
        let names = [
            "layer0_self_attn_q_proj",
            "layer0_self_attn_o_proj",
            "layer0_mlp_gate_proj",
            "layer0_mlp_c_proj",
            "layer0",
            "layer1_self_attn_q_proj",
        ];
        assert_eq!(sorted(&names), names);
        let names = [
            "encoder_layer_0_attn",
            "encoder_layer_1_attn",
            "decoder_layer_0_attn",
            "decoder_layer_1_attn",
        ];
        assert_eq!(sorted(&names), names);
        // Numbers of a few modules are none.
        assert_eq!(
            Names::of(["conv_1", "conv_2", "fc_1", "fc_2", "fc_3", "out"]),
            Names::Spoken
        );
    }

    #[test]
    fn an_encoder_ends_before_its_decoder_begins() {
        let names = [
            "encoder.block.0.layer.0.layer_norm",
            "encoder.block.11",
            "encoder.final_layer_norm",
            "decoder.block.0",
            "lm_head",
        ];
        assert_eq!(sorted(&names), names);
        let names = [
            "conv1",
            "bn1",
            "relu",
            "layer1.0.conv1",
            "layer1.0.bn1",
            "layer1.0.conv2",
            "layer1.1.conv1",
            "layer2.0.conv1",
            "fc",
        ];
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
        let names = [
            "features.0.0",
            "features.1",
            "features.10.conv.0",
            "avgpool",
            "classifier.1",
        ];
        assert_eq!(sorted(&names), names);
    }

    #[test]
    fn a_stem_comes_before_positions_and_an_activation_behind_its_product() {
        let names = [
            "input_features",
            "encoder.conv1",
            "encoder.conv2",
            "encoder.embed_positions",
            "encoder.layers.0.fc1",
            "encoder.layer_norm",
        ];
        assert_eq!(sorted(&names), names);
        let names = [
            "encoder.layer.0",
            "pooler.dense",
            "pooler.activation",
            "pooler",
            "classifier",
        ];
        assert_eq!(sorted(&names), names);
    }

    #[test]
    fn a_decoder_begins_behind_its_encoder_and_text_behind_pictures() {
        let names = [
            "model.encoder.conv1",
            "model.encoder.layers.0",
            "model.encoder.layer_norm",
            "model.decoder.embed_tokens",
            "model.decoder.layers.0.fc1",
        ];
        assert_eq!(sorted(&names), names);
        let names = [
            "vision_tower.vision_model.embeddings",
            "vision_tower.vision_model.encoder.layers.1",
            "vision_tower.vision_model.post_layernorm",
            "multi_modal_projector.linear_1",
            "language_model.model.embed_tokens",
            "language_model.model.layers.0",
            "language_model.lm_head",
        ];
        assert_eq!(sorted(&names), names);
    }

    #[test]
    fn a_second_norm_comes_behind_attention_however_it_is_written() {
        let names = [
            "embeddings.LayerNorm",
            "embeddings.dropout",
            "encoder.layers.0.layer_norm1",
            "encoder.layers.0.self_attn.q_proj",
            "encoder.layers.0.self_attn",
            "encoder.layers.0.ls1",
            "encoder.layers.0.drop_path1",
            "encoder.layers.0.layer_norm2",
            "encoder.layers.0.mlp.fc1",
        ];
        assert_eq!(sorted(&names), names);
    }

    #[test]
    fn modules_that_take_turns_are_ordered_by_their_turn() {
        let names = [
            "conv_in",
            "down_blocks.0.resnets.0.conv1",
            "down_blocks.0.attentions.0",
            "down_blocks.0.resnets.1.conv1",
            "down_blocks.0.attentions.1",
            "down_blocks.0.downsamplers.0",
            "mid_block.resnets.0",
            "mid_block.attentions.0",
            "mid_block.resnets.1",
            "up_blocks.0.resnets.0",
            "conv_norm_out",
        ];
        assert_eq!(sorted(&names), names);
    }

    #[test]
    fn what_llama_cpp_computes_comes_in_the_order_it_does() {
        let parts = [
            "attn_norm",
            "Qcur",
            "Kcur",
            "Vcur",
            "kqv_out",
            "attn_out",
            "ffn_inp",
            "ffn_norm",
            "ffn_gate",
            "ffn_up",
            "ffn_silu",
            "ffn_out",
            "l_out",
        ];
        let names: Vec<String> = (0..3)
            .flat_map(|layer| parts.map(|part| format!("{part}-{layer}")))
            .collect();
        let names: Vec<&str> = std::iter::once("inp_embd")
            .chain(names.iter().map(String::as_str))
            .chain(["result_norm", "result_output"])
            .collect();
        assert_eq!(sorted(&names), names);
    }

    #[test]
    fn weights_have_no_order_but_that_of_their_names() {
        let names = [
            "h.0.attn.c_attn.weight",
            "h.0.ln_1.bias",
            "h.0.ln_1.weight",
            "h.0.mlp.c_fc.weight",
            "h.1.attn.c_attn.weight",
        ];
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
