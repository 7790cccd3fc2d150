//! Different where they are planted, the same again further down.

use super::{
    Break, Fault, Need, Place,
    transform::{heads_in_order, interleaved},
};
use crate::{ops::Gain, random::Random};

pub(super) const FAULTS: &[Fault] = &[
    Fault::harmless(
        "rope_offset",
        "positions of queries and keys begin at seven: only their distance counts",
        (Place::Stage("query_final"), Place::Stage("attn_probs")),
        &["rotated"],
        &[Break::Plan(|plan, scene| {
            let layer = scene.of(plan);
            [&mut layer.rope_q, &mut layer.rope_k].into_iter().flatten().for_each(|rope| rope.offset = 7.0);
        })],
    )
    .needs(&[Need::Rope]),
    Fault::harmless(
        "rope_layout",
        "turned pairs lie side by side instead of half a head apart, in queries and keys alike",
        (Place::Stage("query_final"), Place::Stage("attn_probs")),
        &["permuted"],
        &[
            Break::Output("query_final", |q, _| *q = q.select(3, &interleaved(q.width()))),
            Break::Output("key_final", |k, _| *k = k.select(3, &interleaved(k.width()))),
        ],
    )
    .needs(&[Need::Rope]),
    Fault::harmless(
        "mlp_channels",
        "the feed-forward's inner channels are in another order, in all its weights",
        (Place::FeedForward, Place::Stage("post_mlp")),
        &["permuted"],
        &[Break::Weights(|weights, scene| {
            let order = Random::new(scene.spec.seed, "channels").shuffled(scene.spec.inner);
            for key in ["gate", "up", "up.bias"] {
                if weights.find(Some(scene.layer), key).is_some() {
                    weights.change(scene.layer, key, |weight| weight.select(0, &order));
                }
            }
            weights.change(scene.layer, "down", |weight| weight.select(1, &order));
        })],
    )
    .needs(&[Need::Gated])
    .loaded("gate", &["permuted"]),
    Fault::harmless(
        "mlp_channels_plain",
        "the feed-forward's inner channels are in another order, in all its weights",
        (Place::FeedForward, Place::Stage("post_mlp")),
        &["permuted"],
        &[Break::Weights(|weights, scene| {
            let order = Random::new(scene.spec.seed, "channels").shuffled(scene.spec.inner);
            weights.change(scene.layer, "up", |weight| weight.select(0, &order));
            weights.change(scene.layer, "up.bias", |bias| bias.select(0, &order));
            weights.change(scene.layer, "down", |weight| weight.select(1, &order));
        })],
    )
    .needs(&[Need::Gpt2])
    .loaded("up", &["permuted"]),
    Fault::harmless(
        "norm_folded",
        "the norm's weight is folded into the projections that follow",
        (Place::Stage("post_ln_pre_attn"), Place::Stage("query")),
        &["channel_scale"],
        &[Break::Weights(|weights, scene| {
            let gain = weights.get(Some(scene.layer), "norm1").clone();
            weights.change(scene.layer, "norm1", |norm| norm.map(|_| 1.0));
            for key in ["q", "k", "v"] {
                weights.change(scene.layer, key, |weight| {
                    let mut folded = weight.clone();
                    for row in folded.rows_mut() {
                        row.iter_mut().zip(&gain.values).for_each(|(value, gain)| *value *= gain);
                    }
                    folded
                });
            }
        })],
    )
    // A weight that is one everywhere has nothing left of what it was.
    .loaded("norm1", &[])
    .needs(&[Need::RmsNorm]),
    Fault::harmless(
        "heads_together",
        "heads are in another order in all weights of the attention",
        (Place::Projected("query"), Place::Stage("post_attn_pre_resid")),
        &["permuted"],
        &[Break::Weights(|weights, scene| {
            let (heads, key_heads, dim) = (scene.spec.heads, scene.spec.key_heads(), scene.spec.head_dim);
            let keys: Vec<usize> = (0..key_heads).rev().collect();
            let group = heads / key_heads;
            let queries: Vec<usize> = keys.iter().flat_map(|key| key * group..(key + 1) * group).collect();
            let (queries, keys) = (heads_in_order(&queries, dim), heads_in_order(&keys, dim));
            for (key, order) in [("q", &queries), ("q.bias", &queries), ("k", &keys), ("k.bias", &keys), ("v", &keys), ("v.bias", &keys)] {
                weights.change(scene.layer, key, |weight| weight.select(0, order));
            }
            weights.change(scene.layer, "o", |weight| weight.select(1, &queries));
        })],
    )
    .loaded("q", &["permuted"])
    .needs(&[Need::KeyHeads]),
    Fault::harmless(
        "k_bias_missing",
        "the bias of the keys is not added: it moves all scores of a query alike, and the softmax takes it away",
        (Place::Projected("key"), Place::Stage("attn_probs")),
        &["offset"],
        &[Break::Plan(|plan, scene| scene.of(plan).k.bias = 0.0)],
    )
    .needs(&[Need::Gpt2]),
    Fault::harmless(
        "scale_folded",
        "the root of the head size is divided out of the query's weight instead of the scores",
        (Place::Projected("query"), Place::Stage("attn_probs")),
        &["scale"],
        &[
            Break::Weights(|weights, scene| {
                let scale = 1.0 / (scene.spec.head_dim as f64).sqrt();
                weights.change(scene.layer, "q", |weight| weight.map(|value| value * scale));
                weights.change(scene.layer, "q.bias", |bias| bias.map(|value| value * scale));
            }),
            Break::Plan(|plan, scene| scene.of(plan).attention.scale = 1.0),
        ],
    )
    .loaded("q", &["scale"])
    .needs(&[Need::Rope]),
    Fault::harmless(
        "norm_stored_minus_one",
        "the norm's weight is kept less one, and one is added when it is used",
        (Place::Stage("post_ln_pre_attn"), Place::Stage("post_ln_pre_attn")),
        &[],
        &[
            Break::Weights(|weights, scene| weights.change(scene.layer, "norm1", |norm| norm.map(|value| value - 1.0))),
            Break::Plan(|plan, scene| scene.of(plan).norm1.gain = Gain::OnePlusWeight),
        ],
    )
    .loaded("norm1", &["offset"])
    .needs(&[Need::RmsNorm, Need::WeightsRecorded]),
];
