//! The pass: input to logits, every stage computed, broken where a fault says so, recorded.

use crate::{
    arithmetic::{Arithmetic, round},
    array::Array,
    faults::{Break, Scene},
    ops::{self, Norm, Projection},
    plan::{Layer, NormInput, Packing, Plan},
    random::Random,
    spec::{Model, Planted, Record, Spec},
    weights::Weights,
};
use std::collections::HashMap;
use twinscope_tensor::DType;

/// One tensor of a run.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) array: Array,
    pub(crate) param: bool,
    pub(crate) op: &'static str,
    /// The records it was computed from.
    pub(crate) inputs: Vec<usize>,
}

/// Values on their way, and the records that stand for them.
#[derive(Clone, Debug)]
struct Flow {
    array: Array,
    from: Vec<usize>,
}

pub(crate) struct Pass<'a> {
    spec: &'a Spec,
    /// Which of how many ranks this pass is recorded for.
    rank: usize,
    with: Arithmetic,
    weights: Weights,
    plan: Plan,
    records: Vec<Recorded>,
    params: HashMap<(Option<usize>, String), usize>,
}

/// Everything one rank records. The spec has passed its check.
pub(crate) fn pass(spec: &Spec, rank: usize) -> Vec<Recorded> {
    let mut weights = Weights::new(spec);
    let mut plan = Plan::healthy(spec);
    for planted in &spec.faults {
        let scene = Scene {
            spec,
            layer: planted.layer,
            rank,
            records: &[],
        };
        for change in planted.fault.breaks() {
            match change {
                Break::Weights(of) => of(&mut weights, &scene),
                Break::Plan(of) => of(&mut plan, &scene),
                Break::Spec(_) | Break::Output(..) | Break::Records(_) => {}
            }
        }
    }
    weights.round(spec);
    let with = Arithmetic {
        dtype: spec.dtype,
        parts: spec.tp,
    };
    let mut pass = Pass {
        spec,
        rank,
        with,
        weights,
        plan,
        records: Vec::new(),
        params: HashMap::new(),
    };
    if spec.record == Record::Full {
        pass.record_weights();
    }
    pass.forward();
    for planted in &spec.faults {
        for change in planted.fault.breaks() {
            if let Break::Records(of) = change {
                of(
                    &mut pass.records,
                    &Scene {
                        spec,
                        layer: planted.layer,
                        rank,
                        records: &[],
                    },
                );
            }
        }
    }
    pass.records
}

impl Pass<'_> {
    fn record_weights(&mut self) {
        for named in self.weights.named(self.spec.model) {
            let at = self.records.len();
            self.params.extend(
                named
                    .keys
                    .iter()
                    .map(|key| ((named.layer, key.clone()), at)),
            );
            let array = match sharded_weight(&named.keys[0], self.spec.model) {
                Some(axis) if self.spec.ranks > 1 => {
                    named.array.shard(axis, self.rank, self.spec.ranks)
                }
                _ => named.array,
            };
            self.records.push(Recorded {
                name: named.name,
                dtype: self.spec.dtype,
                array,
                param: true,
                op: "",
                inputs: Vec::new(),
            });
        }
    }

    fn forward(&mut self) {
        let mut x = self.embed();
        for layer in 0..self.spec.layers {
            x = self.layer(layer, &x);
        }
        let how = self.plan.final_norm;
        let normed = self.norm(None, "final_norm", "norm", how, &x);
        let key = match self.spec.model {
            // Tied: the table of tokens is the head.
            Model::Gpt2 => "embed",
            Model::Llama | Model::Moe => "head",
        };
        let how = Projection {
            scale: self.plan.head.scale * self.plan.logit_scale,
            ..self.plan.head
        };
        let mut logits = ops::linear(
            &normed.array,
            self.weights.get(None, key),
            None,
            how,
            self.with,
        );
        if let Some(cap) = self.plan.logit_cap {
            logits = logits.map(|value| self.with.round(cap * (value / cap).tanh()));
        }
        self.emit(None, "logits", "linear", logits, &[&normed], &[key]);
    }

    fn embed(&mut self) -> Flow {
        let Spec {
            batch,
            seq,
            hidden,
            vocab,
            ..
        } = *self.spec;
        let mut random = Random::new(self.spec.seed, "input_ids");
        let ids = (0..batch * seq)
            .map(|_| random.below(vocab) as f64)
            .collect();
        let ids = self.emit_as(
            DType::I64,
            None,
            "input_ids",
            "input",
            Array::new([batch, seq], ids),
            &[],
            &[],
        );
        let table = self.weights.get(None, "embed");
        let rows: Vec<usize> = ids.array.values.iter().map(|id| *id as usize).collect();
        let tokens = table.select(0, &rows).reshape([batch, seq, hidden]);
        let tokens = tokens.map(|value| self.with.round(value * self.plan.embed_scale));
        if self.spec.model != Model::Gpt2 {
            return self.emit(None, "embed", "embedding", tokens, &[&ids], &["embed"]);
        }
        let tokens = self.emit(
            None,
            "token_embed",
            "embedding",
            tokens,
            &[&ids],
            &["embed"],
        );
        let first = self.plan.first_position;
        let positions = self
            .weights
            .get(None, "position")
            .select(0, &(first..first + seq).collect::<Vec<_>>());
        let positions = self.emit(
            None,
            "position_embed",
            "embedding",
            positions,
            &[],
            &["position"],
        );
        let count = positions.array.values.len();
        let mut sum = tokens.array.clone();
        for (at, value) in sum.values.iter_mut().enumerate() {
            *value = self.with.round(*value + positions.array.values[at % count]);
        }
        self.emit(None, "embed", "add", sum, &[&tokens, &positions], &[])
    }

    fn layer(&mut self, l: usize, x: &Flow) -> Flow {
        let plan = self.plan.layers[l].clone();
        let normed = self.norm(Some(l), "post_ln_pre_attn", "norm1", plan.norm1, x);
        let attn = self.attention(l, &plan, &normed);
        let sum = ops::join(
            &x.array,
            &attn.array,
            &normed.array,
            plan.attn_join,
            self.with,
        );
        let resid = self.emit(
            Some(l),
            "resid_mid",
            "add",
            sum,
            &plan.attn_join.parts(x, &attn, &normed),
            &[],
        );
        let read = if plan.norm2_reads == NormInput::LayerInput {
            x
        } else {
            &resid
        };
        let normed = self.norm(Some(l), "pre_mlp", "norm2", plan.norm2, read);
        let mlp = match self.spec.model {
            Model::Llama => self.gated(l, &plan, &normed),
            Model::Gpt2 => self.plain(l, &plan, &normed),
            Model::Moe => self.experts(l, &plan, &normed),
        };
        let sum = ops::join(
            &resid.array,
            &mlp.array,
            &normed.array,
            plan.mlp_join,
            self.with,
        );
        self.emit(
            Some(l),
            "layer_out",
            "add",
            sum,
            &plan.mlp_join.parts(&resid, &mlp, &normed),
            &[],
        )
    }

    fn attention(&mut self, l: usize, plan: &Layer, x: &Flow) -> Flow {
        let [q, k, v] = self.queries_keys_values(l, plan, x);
        let q = self.positions(l, "query_final", plan.rope_q.as_ref(), q);
        let k = self.positions(l, "key_final", plan.rope_k.as_ref(), k);
        let (asking, asked) = if plan.scores_swapped {
            (&k, &q)
        } else {
            (&q, &k)
        };
        let probs = ops::probabilities(&asking.array, &asked.array, &plan.attention, self.with);
        let probs = self.emit(Some(l), "attn_probs", "softmax", probs, &[&q, &k], &[]);
        let mixed = ops::mix(&probs.array, &v.array, &plan.attention, self.with);
        let joined = if plan.heads_moved_back {
            mixed.join_heads()
        } else {
            mixed.reshape([
                self.spec.batch,
                self.spec.seq,
                self.spec.heads * self.spec.head_dim,
            ])
        };
        let mixed = self.emit(
            Some(l),
            "post_attn",
            "attention",
            joined,
            &[&probs, &v],
            &[],
        );
        self.linear(l, "post_attn_pre_resid", "o", plan.o, &mixed)
    }

    fn queries_keys_values(&mut self, l: usize, plan: &Layer, x: &Flow) -> [Flow; 3] {
        let heads = [
            self.spec.heads,
            self.spec.key_heads(),
            self.spec.key_heads(),
        ];
        let stages = ["query", "key", "value"];
        let hows = [plan.q, plan.k, plan.v];
        if self.spec.model != Model::Gpt2 {
            return [0, 1, 2].map(|at| {
                let key = ["q", "k", "v"][at];
                let flat = self.product(l, key, hows[at], &x.array);
                self.emit(
                    Some(l),
                    stages[at],
                    "linear",
                    flat.split_heads(heads[at]),
                    &[x],
                    &[key, &format!("{key}.bias")],
                )
            });
        }
        let parts = [0, 1, 2].map(|at| self.product(l, ["q", "k", "v"][at], hows[at], &x.array));
        let fused = Array::concat(&[&parts[0], &parts[1], &parts[2]], 2);
        let fused = self.emit(Some(l), "qkv", "linear", fused, &[x], &["q", "q.bias"]);
        let (dim, width) = (self.spec.head_dim, self.spec.heads * self.spec.head_dim);
        [0, 1, 2].map(|at| {
            let channels: Vec<usize> = match plan.packing {
                Packing::Blocks(order) => (order[at] * width..(order[at] + 1) * width).collect(),
                Packing::HeadByHead => (0..width)
                    .map(|c| c / dim * 3 * dim + at * dim + c % dim)
                    .collect(),
            };
            let part = fused.array.select(2, &channels).split_heads(heads[at]);
            self.emit(Some(l), stages[at], "split", part, &[&fused], &[])
        })
    }

    /// After rotary positions; a model without them has no such stage.
    fn positions(&mut self, l: usize, stage: &str, how: Option<&ops::Rope>, x: Flow) -> Flow {
        if self.spec.model == Model::Gpt2 {
            return x;
        }
        let turned = how.map_or_else(
            || x.array.clone(),
            |how| ops::rope(&x.array, how, self.with),
        );
        self.emit(Some(l), stage, "rope", turned, &[&x], &[])
    }

    fn gated(&mut self, l: usize, plan: &Layer, x: &Flow) -> Flow {
        let (mut gate, mut up) = (
            self.product(l, "gate", plan.gate, &x.array),
            self.product(l, "up", plan.up, &x.array),
        );
        if plan.gate_up_interleaved {
            let fused = Array::concat(&[&gate, &up], 2);
            let every = |first: usize| {
                (0..gate.width())
                    .map(|channel| 2 * channel + first)
                    .collect::<Vec<_>>()
            };
            (gate, up) = (fused.select(2, &every(0)), fused.select(2, &every(1)));
        }
        let gate = self.emit(Some(l), "gate", "linear", gate, &[x], &["gate"]);
        let up = self.emit(Some(l), "up", "linear", up, &[x], &["up"]);
        let act = gate
            .array
            .map(|value| self.with.round(plan.activation.of(value)));
        let act = self.emit(Some(l), "act", "activation", act, &[&gate], &[]);
        let product = act
            .array
            .zip(&up.array, |act, up| self.with.round(act * up));
        let product = if self.spec.record == Record::Full {
            self.emit(
                Some(l),
                "mlp_hidden",
                "multiply",
                product,
                &[&act, &up],
                &[],
            )
        } else {
            Flow {
                array: product,
                from: Vec::new(),
            }
        };
        self.linear(l, "post_mlp", "down", plan.down, &product)
    }

    fn plain(&mut self, l: usize, plan: &Layer, x: &Flow) -> Flow {
        let up = self.linear(l, "up", "up", plan.up, x);
        let act = up
            .array
            .map(|value| self.with.round(plan.activation.of(value)));
        let act = self.emit(Some(l), "act", "activation", act, &[&up], &[]);
        self.linear(l, "post_mlp", "down", plan.down, &act)
    }

    fn experts(&mut self, l: usize, plan: &Layer, x: &Flow) -> Flow {
        let (experts, top_k) = (self.spec.experts, self.spec.top_k);
        let scores = self.linear(l, "router_logits", "router", Projection::default(), x);
        let chosen = scores
            .array
            .rows()
            .flat_map(|row| best(row, top_k))
            .collect();
        let shape = [self.spec.batch, self.spec.seq, top_k];
        let chosen = self.emit_as(
            DType::I64,
            Some(l),
            "router_ids",
            "top_k",
            Array::new(shape, chosen),
            &[&scores],
            &[],
        );
        let shares = shares(&scores.array, &chosen.array, plan.renormalise, self.with);
        let shares = self.emit(
            Some(l),
            "router_weights",
            "softmax",
            shares,
            &[&scores, &chosen],
            &[],
        );
        let outputs: Vec<Array> = (0..experts)
            .map(|expert| self.expert(l, expert, plan, &x.array))
            .collect();
        let mut mixed = Array::zeros(x.array.shape.clone());
        for (token, row) in mixed.rows_mut().enumerate() {
            for (channel, value) in row.iter_mut().enumerate() {
                let width = self.spec.hidden;
                let parts = (0..top_k).map(|at| {
                    let expert = chosen.array.values[token * top_k + at] as usize;
                    shares.array.values[token * top_k + at]
                        * outputs[expert].values[token * width + channel]
                });
                *value = self.with.round(plan.down.scale * parts.sum::<f64>());
            }
        }
        let keys: Vec<String> = (0..experts)
            .flat_map(|e| ["gate", "up", "down"].map(|part| format!("expert{e}.{part}")))
            .collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.emit(
            Some(l),
            "post_mlp",
            "experts",
            mixed,
            &[x, &chosen, &shares],
            &keys,
        )
    }

    fn expert(&self, l: usize, expert: usize, plan: &Layer, x: &Array) -> Array {
        let product = |part: &str, x: &Array| {
            self.product(
                l,
                &format!("expert{expert}.{part}"),
                Projection::default(),
                x,
            )
        };
        let gate = product("gate", x).map(|value| self.with.round(plan.activation.of(value)));
        let hidden = gate.zip(&product("up", x), |gate, up| self.with.round(gate * up));
        product("down", &hidden)
    }

    fn product(&self, l: usize, key: &str, how: Projection, x: &Array) -> Array {
        let bias = self.weights.find(Some(l), &format!("{key}.bias"));
        ops::linear(x, self.weights.get(Some(l), key), bias, how, self.with)
    }

    fn linear(&mut self, l: usize, stage: &str, key: &str, how: Projection, x: &Flow) -> Flow {
        let product = self.product(l, key, how, &x.array);
        self.emit(
            Some(l),
            stage,
            "linear",
            product,
            &[x],
            &[key, &format!("{key}.bias")],
        )
    }

    fn norm(&mut self, layer: Option<usize>, stage: &str, key: &str, how: Norm, x: &Flow) -> Flow {
        let bias = format!("{key}.bias");
        let normed = ops::norm(
            &x.array,
            self.weights.get(layer, key),
            self.weights.find(layer, &bias),
            how,
            self.with,
        );
        self.emit(layer, stage, "norm", normed, &[x], &[key, &bias])
    }

    fn emit(
        &mut self,
        layer: Option<usize>,
        stage: &str,
        op: &'static str,
        array: Array,
        of: &[&Flow],
        weights: &[&str],
    ) -> Flow {
        self.emit_as(self.spec.dtype, layer, stage, op, array, of, weights)
    }

    /// What a stage came to: broken if a fault sits here, recorded, handed on.
    #[allow(
        clippy::too_many_arguments,
        reason = "one call a stage; a struct would only name what the stage's line already says"
    )]
    fn emit_as(
        &mut self,
        dtype: DType,
        layer: Option<usize>,
        stage: &str,
        op: &'static str,
        mut array: Array,
        of: &[&Flow],
        weights: &[&str],
    ) -> Flow {
        for Planted { fault, layer: at } in &self.spec.faults {
            for change in fault.breaks() {
                if let Break::Output(place, break_it) = change
                    && *place == stage
                    && layer.is_none_or(|layer| layer == *at)
                {
                    let scene = Scene {
                        spec: self.spec,
                        layer: *at,
                        rank: self.rank,
                        records: &self.records,
                    };
                    break_it(&mut array, &scene);
                    array = array.map(|value| round(dtype, value));
                }
            }
        }
        let mut inputs = Vec::new();
        if self.spec.record == Record::Full {
            inputs.extend(of.iter().flat_map(|flow| flow.from.iter().copied()));
            inputs.extend(
                weights
                    .iter()
                    .filter_map(|key| self.params.get(&(layer, (*key).to_owned()))),
            );
        }
        let name = layer.map_or_else(|| stage.to_owned(), |layer| format!("{layer}_{stage}"));
        let shard = match sharded_stage(stage) {
            Some(axis) if self.spec.ranks > 1 => array.shard(axis, self.rank, self.spec.ranks),
            _ => array.clone(),
        };
        let at = self.records.len();
        self.records.push(Recorded {
            name,
            dtype,
            array: shard,
            param: false,
            op,
            inputs,
        });
        Flow {
            array,
            from: vec![at],
        }
    }
}

/// The indices of the largest values, the largest first; of equal ones the earlier.
fn best(row: &[f64], count: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    order.into_iter().take(count).map(|at| at as f64).collect()
}

/// The softmax over all experts, of the chosen ones.
fn shares(scores: &Array, chosen: &Array, renormalise: bool, with: Arithmetic) -> Array {
    let mut out = chosen.clone();
    let top_k = chosen.width();
    for (token, row) in out.rows_mut().enumerate() {
        let scores = &scores.values[token * scores.width()..(token + 1) * scores.width()];
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores
            .iter()
            .map(|score| with.inner((score - largest).exp()))
            .collect();
        let taken: Vec<f64> = row.iter().map(|id| powers[*id as usize]).collect();
        let total = if renormalise {
            with.sum(&taken[..top_k])
        } else {
            with.sum(&powers)
        };
        row.iter_mut()
            .zip(taken)
            .for_each(|(value, power)| *value = with.round(power / total));
    }
    out
}

/// The axis along which ranks of tensor parallelism share a stage.
fn sharded_stage(stage: &str) -> Option<usize> {
    match stage {
        "query" | "key" | "value" | "query_final" | "key_final" | "attn_probs" => Some(1),
        "post_attn" | "gate" | "up" | "act" | "mlp_hidden" => Some(2),
        _ => None,
    }
}

/// The axis along which they share a weight of a llama, `[out, in]`.
fn sharded_weight(key: &str, model: Model) -> Option<usize> {
    if model != Model::Llama {
        return None;
    }
    match key {
        "q" | "k" | "v" | "gate" | "up" | "q.bias" | "k.bias" | "v.bias" => Some(0),
        "o" | "down" => Some(1),
        _ => None,
    }
}
