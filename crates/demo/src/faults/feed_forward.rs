//! The feed-forward, and what can happen to the output of any op; the head.

use super::{
    Break, Fault, Need, Place,
    transform::{in_slice, rolled, zigzag},
};
use crate::{ops::Activation, random::Random};

const ACT: Place = Place::Stage("act");
const MLP: Place = Place::Stage("post_mlp");
const LOGITS: Place = Place::Whole("logits");

const fn activation(
    name: &'static str,
    about: &'static str,
    need: &'static [Need],
    breaks: &'static [Break],
) -> Fault {
    Fault::diverged(name, about, ACT, &["function"], breaks).needs(need)
}

/// The positions of the feed-forward's output in another order.
const fn tokens(
    name: &'static str,
    about: &'static str,
    kinds: &'static [&'static str],
    breaks: &'static [Break],
) -> Fault {
    Fault::diverged(name, about, MLP, kinds, breaks).needs(&[Need::Positions])
}

pub(super) const FAULTS: &[Fault] = &[
    Fault::diverged(
        "gate_up_swapped",
        "gate and up have each other's weights",
        Place::Stage("gate"),
        &["swapped"],
        &[Break::Weights(|weights, scene| {
            weights.swap(scene.layer, "gate", "up");
        })],
    )
    .loaded("gate", &["swapped"])
    .needs(&[Need::Gated]),
    Fault::diverged(
        "gate_up_interleaved",
        "the fused gate and up are taken apart channel by channel instead of half by half",
        Place::Stage("gate"),
        &["permuted"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).gate_up_interleaved = true;
        })],
    )
    .needs(&[Need::Gated]),
    Fault::diverged(
        "gate_scales_lost",
        "the gate's weight lost the scale of each of its channels",
        Place::Stage("gate"),
        &["channel_scale"],
        &[Break::Weights(|weights, scene| {
            let mut random = Random::new(scene.spec.seed, "channel scales");
            weights.change(scene.layer, "gate", |weight| {
                let mut scaled = weight.clone();
                for row in scaled.rows_mut() {
                    let factor = 0.5 + random.uniform();
                    row.iter_mut().for_each(|value| *value *= factor);
                }
                scaled
            });
        })],
    )
    .loaded("gate", &["channel_scale", "row_scale"])
    .needs(&[Need::Gated]),
    activation(
        "act_gelu_for_silu",
        "gelu instead of silu",
        &[Need::Gated],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).activation = Activation::GeluErf;
        })],
    ),
    activation(
        "act_relu_for_silu",
        "relu instead of silu",
        &[Need::Gated],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).activation = Activation::Relu;
        })],
    ),
    activation(
        "act_gelu_erf_for_tanh",
        "exact gelu instead of its tanh form",
        &[Need::Gpt2],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).activation = Activation::GeluErf;
        })],
    ),
    activation(
        "act_gelu_quick",
        "quick gelu, x * sigmoid(1.702 x), instead of the tanh form",
        &[Need::Gpt2],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).activation = Activation::GeluQuick;
        })],
    ),
    activation(
        "act_silu_for_gelu",
        "silu instead of gelu",
        &[Need::Gpt2],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).activation = Activation::Silu;
        })],
    ),
    Fault::diverged(
        "act_missing",
        "no activation at all",
        ACT,
        &["function", "wrong_tensor"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).activation = Activation::Identity;
        })],
    )
    .needs(&[Need::Dense]),
    Fault::diverged(
        "weight_scale_lost",
        "the feed-forward's output lost the scale of its fp8 weight and is 770 times as large",
        MLP,
        &["scale"],
        &[Break::Plan(|plan, scene| scene.of(plan).down.scale = 770.0)],
    ),
    Fault::diverged(
        "token_scales_lost",
        "the feed-forward's output lost the scale of each token",
        MLP,
        &["row_scale"],
        &[Break::Output("post_mlp", |out, scene| {
            let mut random = Random::new(scene.spec.seed, "token scales");
            for row in out.rows_mut() {
                let factor = 0.5 + random.uniform();
                row.iter_mut().for_each(|value| *value *= factor);
            }
        })],
    ),
    Fault::diverged(
        "negated",
        "the feed-forward's output has the wrong sign",
        MLP,
        &["negated", "scale"],
        &[Break::Output("post_mlp", |out, _| {
            *out = out.map(|value| -value);
        })],
    ),
    tokens(
        "tokens_shifted",
        "the feed-forward's output is one position late",
        &["shifted"],
        &[Break::Output("post_mlp", |out, _| {
            *out = out.select(1, &rolled(out.shape[1], 1));
        })],
    ),
    tokens(
        "tokens_shuffled",
        "positions of the feed-forward's output are shuffled",
        &["permuted"],
        &[Break::Output("post_mlp", |out, scene| {
            *out = out.select(
                1,
                &Random::new(scene.spec.seed, "tokens").shuffled(out.shape[1]),
            );
        })],
    ),
    tokens(
        "tokens_reversed",
        "positions of the feed-forward's output come last first",
        &["permuted"],
        &[Break::Output("post_mlp", |out, _| {
            *out = out.select(1, &(0..out.shape[1]).rev().collect::<Vec<_>>());
        })],
    ),
    tokens(
        "tokens_zigzag",
        "positions of the feed-forward's output are in the order of a ring of ranks",
        &["permuted"],
        &[Break::Output("post_mlp", |out, _| {
            *out = out.select(1, &zigzag(out.shape[1]));
        })],
    ),
    tokens(
        "last_token_only",
        "the feed-forward is computed for the last position only, the others are zero",
        &["localized"],
        &[Break::Output("post_mlp", |out, _| {
            (0..out.shape[1] - 1).for_each(|at| in_slice(out, 1, at, |_| 0.0));
        })],
    ),
    Fault::diverged(
        "token_wrong",
        "one token of the feed-forward's output is another's",
        MLP,
        &["localized"],
        &[Break::Output("post_mlp", |out, _| {
            let width = out.width();
            let token = out.shape[1] / 2;
            out.values.copy_within(0..width, token * width);
        })],
    )
    .needs(&[Need::Positions]),
    Fault::diverged(
        "batch_row_copied",
        "the last prompt of the batch got the first one's feed-forward",
        MLP,
        &["localized"],
        &[Break::Output("post_mlp", |out, _| {
            let row = out.values.len() / out.shape[0];
            let last = out.values.len() - row;
            out.values.copy_within(0..row, last);
        })],
    )
    .needs(&[Need::Batch]),
    Fault::diverged(
        "tile_wrong",
        "a tile of the feed-forward's output was never written",
        MLP,
        &["localized"],
        &[Break::Output("post_mlp", |out, _| {
            let width = out.width();
            (1..4).for_each(|token| {
                out.values[token * width + width / 4..token * width + width / 2].fill(0.0);
            });
        })],
    )
    .needs(&[Need::Positions]),
    Fault::diverged(
        "tokens_swapped",
        "two tokens have changed places in the feed-forward's output",
        MLP,
        &["permuted"],
        &[Break::Output("post_mlp", |out, _| {
            let seq = out.shape[1];
            let order: Vec<usize> = (0..seq)
                .map(|token| match token {
                    1 => 4,
                    4 => 1,
                    other => other,
                })
                .collect();
            *out = out.select(1, &order);
        })],
    )
    .needs(&[Need::Positions]),
    Fault::diverged(
        "stale_buffer",
        "the feed-forward's output is still the one of the layer before",
        MLP,
        &["wrong_tensor"],
        &[Break::Output("post_mlp", |out, scene| {
            *out = scene.stage(scene.layer - 1, "post_mlp").clone();
        })],
    )
    .needs(&[Need::LayerBefore]),
    Fault::diverged(
        "logit_softcap",
        "logits are capped at 2 by a tanh",
        LOGITS,
        &["function"],
        &[Break::Plan(|plan, _| plan.logit_cap = Some(2.0))],
    ),
    Fault::diverged(
        "temperature",
        "logits are divided by a temperature of 0.7",
        LOGITS,
        &["scale"],
        &[Break::Plan(|plan, _| plan.logit_scale = 1.0 / 0.7)],
    ),
    Fault::diverged(
        "logits_shifted",
        "logits are one position late",
        LOGITS,
        &["shifted"],
        &[Break::Output("logits", |out, _| {
            *out = out.select(1, &rolled(out.shape[1], 1));
        })],
    )
    .needs(&[Need::Positions]),
    Fault {
        outcome: super::Outcome::Incomparable,
        ..Fault::diverged(
            "logits_last_only",
            "only the last position's logits are there",
            LOGITS,
            &[],
            &[Break::Output("logits", |out, _| {
                *out = out.select(1, &[out.shape[1] - 1]);
            })],
        )
        .needs(&[Need::Positions])
    },
];
