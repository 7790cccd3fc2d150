//! The weights: random, fixed by the seed, with the names the model's family gives them.
//!
//! Kept as `[out, in]` under short keys (`q`, `q.bias`, `norm1`), whatever the model; [`Weights::named`] gives them as they lie in a
//! checkpoint, where gpt2 fuses q, k and v and keeps its matrices as `[in, out]`.

use crate::{
    arithmetic::round,
    array::Array,
    random::Random,
    spec::{Model, Spec},
};

#[derive(Clone, Debug)]
pub(crate) struct Weights {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    layer: Option<usize>,
    key: String,
    array: Array,
}

/// A weight as a checkpoint has it, and the keys of what is in it.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) array: Array,
    pub(crate) layer: Option<usize>,
    pub(crate) keys: Vec<String>,
}

impl Weights {
    pub(crate) fn new(spec: &Spec) -> Self {
        let mut weights = Self {
            entries: Vec::new(),
        };
        let gpt2 = spec.model == Model::Gpt2;
        let (hidden, inner) = (spec.hidden, spec.inner);
        weights.matrix(spec, None, "embed", [spec.vocab, hidden], 0.7);
        if gpt2 {
            weights.matrix(spec, None, "position", [spec.seq + 1, hidden], 0.5);
        }
        for layer in 0..spec.layers {
            let layer = Some(layer);
            weights.norm(spec, layer, "norm1");
            let (queries, keys) = (spec.heads * spec.head_dim, spec.key_heads() * spec.head_dim);
            weights.linear(spec, layer, "q", [queries, hidden], true);
            weights.linear(spec, layer, "k", [keys, hidden], true);
            weights.linear(spec, layer, "v", [keys, hidden], true);
            weights.linear(spec, layer, "o", [hidden, queries], gpt2);
            weights.norm(spec, layer, "norm2");
            match spec.model {
                Model::Llama => weights.feed_forward(spec, layer, ""),
                Model::Gpt2 => {
                    weights.linear(spec, layer, "up", [inner, hidden], true);
                    weights.linear(spec, layer, "down", [hidden, inner], true);
                }
                Model::Moe => {
                    weights.linear(spec, layer, "router", [spec.experts, hidden], false);
                    (0..spec.experts).for_each(|expert| {
                        weights.feed_forward(spec, layer, &format!("expert{expert}."));
                    });
                    if spec.near_ties {
                        weights.tie_last_experts(layer);
                    }
                }
            }
            if let Some((_, size)) = spec.outlier.filter(|(at, _)| Some(*at) == layer) {
                weights.enlarge(layer, size);
            }
        }
        weights.norm(spec, None, "norm");
        if !gpt2 {
            weights.linear(spec, None, "head", [spec.vocab, hidden], false);
        }
        weights.round(spec);
        weights
    }

    /// Weights are numbers of the run's dtype, also after a fault changed them.
    pub(crate) fn round(&mut self, spec: &Spec) {
        self.entries
            .iter_mut()
            .for_each(|entry| entry.array = entry.array.map(|value| round(spec.dtype, value)));
    }

    fn matrix(
        &mut self,
        spec: &Spec,
        layer: Option<usize>,
        key: &str,
        shape: [usize; 2],
        size: f64,
    ) {
        self.random(spec, layer, key, &shape, |random| size * random.normal());
    }

    fn random(
        &mut self,
        spec: &Spec,
        layer: Option<usize>,
        key: &str,
        shape: &[usize],
        of: impl Fn(&mut Random) -> f64,
    ) {
        let mut random = Random::new(spec.seed, &format!("{layer:?} {key}"));
        let values = (0..shape.iter().product::<usize>())
            .map(|_| f64::from(of(&mut random) as f32))
            .collect();
        self.entries.push(Entry {
            layer,
            key: key.to_owned(),
            array: Array::new(shape, values),
        });
    }

    fn norm(&mut self, spec: &Spec, layer: Option<usize>, key: &str) {
        self.random(spec, layer, key, &[spec.hidden], |random| {
            1.0 + 0.25 * random.normal()
        });
        if spec.model == Model::Gpt2 {
            self.random(
                spec,
                layer,
                &format!("{key}.bias"),
                &[spec.hidden],
                |random| 0.3 * random.normal(),
            );
        }
    }

    fn linear(
        &mut self,
        spec: &Spec,
        layer: Option<usize>,
        key: &str,
        shape: [usize; 2],
        bias: bool,
    ) {
        self.matrix(spec, layer, key, shape, 1.0 / (shape[1] as f64).sqrt());
        if bias {
            self.random(spec, layer, &format!("{key}.bias"), &shape[..1], |random| {
                0.3 * random.normal()
            });
        }
    }

    fn feed_forward(&mut self, spec: &Spec, layer: Option<usize>, prefix: &str) {
        let (hidden, inner) = (spec.hidden, spec.inner);
        self.linear(
            spec,
            layer,
            &format!("{prefix}gate"),
            [inner, hidden],
            false,
        );
        self.linear(spec, layer, &format!("{prefix}up"), [inner, hidden], false);
        self.matrix(
            spec,
            layer,
            &format!("{prefix}down"),
            [hidden, inner],
            1.5 / (inner as f64).sqrt(),
        );
    }

    /// One output channel of every feed-forward is large.
    fn enlarge(&mut self, layer: Option<usize>, size: f64) {
        for entry in self
            .entries
            .iter_mut()
            .filter(|entry| entry.layer == layer && entry.key.ends_with("down"))
        {
            let channel = entry.array.shape[0] / 2;
            let width = entry.array.width();
            entry.array.values[channel * width..(channel + 1) * width]
                .iter_mut()
                .for_each(|value| *value *= size);
        }
    }

    /// The last two experts' scores differ in their last bits.
    fn tie_last_experts(&mut self, layer: Option<usize>) {
        let router = self.get_mut(layer, "router");
        let (count, width) = (router.shape[0], router.width());
        if let [.., first, second] =
            &mut router.values.chunks_exact_mut(width).collect::<Vec<_>>()[..count]
        {
            second.copy_from_slice(first);
            second[0] *= 1.0 + 2f64.powi(-22);
        }
    }

    pub(crate) fn find(&self, layer: Option<usize>, key: &str) -> Option<&Array> {
        self.entries
            .iter()
            .find(|entry| entry.layer == layer && entry.key == key)
            .map(|entry| &entry.array)
    }

    pub(crate) fn get(&self, layer: Option<usize>, key: &str) -> &Array {
        self.find(layer, key)
            .unwrap_or_else(|| panic!("the model has no `{key}` in layer {layer:?}"))
    }

    pub(crate) fn get_mut(&mut self, layer: Option<usize>, key: &str) -> &mut Array {
        let entry = self
            .entries
            .iter_mut()
            .find(|entry| entry.layer == layer && entry.key == key);
        &mut entry
            .unwrap_or_else(|| panic!("the model has no `{key}` in layer {layer:?}"))
            .array
    }

    /// Changes a weight in place.
    pub(crate) fn change(&mut self, layer: usize, key: &str, of: impl FnOnce(&Array) -> Array) {
        let array = self.get_mut(Some(layer), key);
        *array = of(array);
    }

    pub(crate) fn swap(&mut self, layer: usize, a: &str, b: &str) {
        let first = self.get(Some(layer), a).clone();
        let second = std::mem::replace(self.get_mut(Some(layer), b), first);
        *self.get_mut(Some(layer), a) = second;
    }

    /// As a checkpoint of the family lists them.
    pub(crate) fn named(&self, model: Model) -> Vec<Named> {
        let mut named = Vec::new();
        for entry in &self.entries {
            let Some(name) = weight_name(model, entry.layer, &entry.key) else {
                continue;
            };
            let (mut array, mut keys) = (entry.array.clone(), vec![entry.key.clone()]);
            if model == Model::Gpt2 {
                if let Some(suffix) = entry.key.strip_prefix('q') {
                    let others = [format!("k{suffix}"), format!("v{suffix}")];
                    array = Array::concat(
                        &[
                            &array,
                            self.get(entry.layer, &others[0]),
                            self.get(entry.layer, &others[1]),
                        ],
                        0,
                    );
                    keys.extend(others);
                }
                // Its matrices lie the other way round, its tables do not.
                if array.shape.len() == 2 && entry.layer.is_some() {
                    array = array.swap_axes(0, 1);
                }
            }
            named.push(Named {
                name,
                array,
                layer: entry.layer,
                keys,
            });
        }
        named
    }
}

/// What a family calls a weight; `None` for a part of a fused one.
pub(crate) fn weight_name(model: Model, layer: Option<usize>, key: &str) -> Option<String> {
    let (part, kind) = match key.strip_suffix(".bias") {
        Some(part) => (part, "bias"),
        None => (key, "weight"),
    };
    let gpt2 = model == Model::Gpt2;
    let word = match (gpt2, part) {
        (true, "embed") => "wte",
        (true, "position") => "wpe",
        (true, "norm") => "ln_f",
        (true, "norm1") => "ln_1",
        (true, "norm2") => "ln_2",
        (true, "q") => "attn.c_attn",
        (true, "k" | "v") => return None,
        (true, "o") => "attn.c_proj",
        (true, "up") => "mlp.c_fc",
        (true, "down") => "mlp.c_proj",
        (false, "embed") => "model.embed_tokens",
        (false, "norm") => "model.norm",
        (false, "head") => "lm_head",
        (false, "norm1") => "input_layernorm",
        (false, "norm2") => "post_attention_layernorm",
        (false, "q") => "self_attn.q_proj",
        (false, "k") => "self_attn.k_proj",
        (false, "v") => "self_attn.v_proj",
        (false, "o") => "self_attn.o_proj",
        (false, "gate") => "mlp.gate_proj",
        (false, "up") => "mlp.up_proj",
        (false, "down") => "mlp.down_proj",
        (false, "router") => "mlp.gate",
        _ => {
            let (expert, part) = part.strip_prefix("expert")?.split_once('.')?;
            return Some(format!(
                "model.layers.{}.mlp.experts.{expert}.{part}_proj.{kind}",
                layer?
            ));
        }
    };
    Some(match (layer, gpt2) {
        (Some(layer), true) => format!("h.{layer}.{word}.{kind}"),
        (Some(layer), false) => format!("model.layers.{layer}.{word}.{kind}"),
        (None, _) => format!("{word}.{kind}"),
    })
}
