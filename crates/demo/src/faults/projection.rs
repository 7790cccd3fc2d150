//! The matrix products around attention: their weights, biases, packing and heads.

use super::{
    Break, Fault, Need, Place,
    transform::{heads_in_order, in_every_head, interleaved, quantized},
};
use crate::{array::Array, plan::Packing, random::Random, weights::Weights};

const QUERY: Place = Place::Projected("query");
/// Two heads that change places are rolled by one as well.
const SWAPPED_HEADS: &[&str] = &["permuted", "shifted"];
const OUT: Place = Place::Stage("post_attn_pre_resid");

/// The same rows of a weight and of its bias, if it has one.
fn rows(weights: &mut Weights, layer: usize, key: &str, order: &[usize]) {
    weights.change(layer, key, |weight| weight.select(0, order));
    let bias = format!("{key}.bias");
    if weights.find(Some(layer), &bias).is_some() {
        weights.change(layer, &bias, |bias| bias.select(0, order));
    }
}

pub(super) const FAULTS: &[Fault] = &[
    Fault::diverged(
        "q_bias_missing",
        "the bias of the queries is not added",
        QUERY,
        &["offset"],
        &[Break::Plan(|plan, scene| scene.of(plan).q.bias = 0.0)],
    ),
    Fault::diverged(
        "k_bias_twice",
        "the bias of the keys is added twice",
        Place::Projected("key"),
        &["offset"],
        &[Break::Plan(|plan, scene| scene.of(plan).k.bias = 2.0)],
    )
    // Without rotary positions it would add the same to all scores of a query.
    .needs(&[Need::Rope]),
    Fault::diverged(
        "bias_per_rank",
        "the output's bias is added once by each of four ranks",
        OUT,
        &["offset"],
        &[Break::Plan(|plan, scene| scene.of(plan).o.bias = 4.0)],
    )
    .needs(&[Need::Gpt2]),
    Fault::diverged(
        "mlp_bias_missing",
        "the bias of the feed-forward's first product is not added",
        Place::Stage("up"),
        &["offset"],
        &[Break::Plan(|plan, scene| scene.of(plan).up.bias = 0.0)],
    )
    .needs(&[Need::Gpt2]),
    // A product with a transposed weight has nothing of the right one; the weight itself tells.
    Fault::diverged(
        "weight_transposed",
        "the output's weight was loaded transposed",
        OUT,
        &[],
        &[Break::Weights(|weights, scene| {
            weights.change(scene.layer, "o", |weight| weight.swap_axes(0, 1));
        })],
    )
    .loaded("o", &["transposed"])
    .needs(&[Need::Square]),
    // As above, and the weight on record is the right one.
    Fault::diverged(
        "weight_used_transposed",
        "the output's weight is used as [in, out] although it is [out, in]",
        OUT,
        &[],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).o.transposed = true;
        })],
    )
    .needs(&[Need::Square]),
    Fault::diverged(
        "qkv_packing",
        "the fused projection is read head by head instead of block by block",
        Place::Stage("query"),
        &["permuted", "wrong_tensor", "swapped", "localized"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).packing = Packing::HeadByHead;
        })],
    )
    .needs(&[Need::Gpt2, Need::Heads]),
    Fault::diverged(
        "qkv_order_qk",
        "the fused projection is read as keys, queries, values",
        Place::Stage("query"),
        &["swapped"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).packing = Packing::Blocks([1, 0, 2]);
        })],
    )
    .needs(&[Need::Gpt2]),
    Fault::diverged(
        "qkv_order_kv",
        "the fused projection is read as queries, values, keys",
        Place::Stage("key"),
        &["swapped"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).packing = Packing::Blocks([0, 2, 1]);
        })],
    )
    .needs(&[Need::Gpt2]),
    Fault::diverged(
        "kv_swapped",
        "keys and values have each other's weights",
        Place::Projected("key"),
        &["swapped"],
        &[Break::Weights(|weights, scene| {
            weights.swap(scene.layer, "k", "v");
            weights.swap(scene.layer, "k.bias", "v.bias");
        })],
    )
    .loaded("k", &["swapped"])
    .needs(&[Need::Rope]),
    Fault::diverged(
        "head_order",
        "the first and the last query head have changed places",
        QUERY,
        SWAPPED_HEADS,
        &[Break::Weights(|weights, scene| {
            let mut order: Vec<usize> = (0..scene.spec.heads).collect();
            order.swap(0, scene.spec.heads - 1);
            rows(
                weights,
                scene.layer,
                "q",
                &heads_in_order(&order, scene.spec.head_dim),
            );
        })],
    )
    .loaded("q", &["permuted"])
    .needs(&[Need::Heads]),
    Fault::diverged(
        "heads_reversed",
        "the query heads come last first",
        QUERY,
        SWAPPED_HEADS,
        &[Break::Weights(|weights, scene| {
            let order: Vec<usize> = (0..scene.spec.heads).rev().collect();
            rows(
                weights,
                scene.layer,
                "q",
                &heads_in_order(&order, scene.spec.head_dim),
            );
        })],
    )
    .loaded("q", &["permuted"])
    .needs(&[Need::Heads]),
    Fault::diverged(
        "rope_weights_layout",
        "query and key weights are interleaved for another kind of rope",
        Place::Stage("query"),
        &["permuted"],
        &[Break::Weights(|weights, scene| {
            let order = interleaved(scene.spec.head_dim);
            rows(
                weights,
                scene.layer,
                "q",
                &in_every_head(scene.spec.heads, &order),
            );
            rows(
                weights,
                scene.layer,
                "k",
                &in_every_head(scene.spec.key_heads(), &order),
            );
        })],
    )
    .loaded("q", &["permuted"])
    .needs(&[Need::Rope]),
    Fault::diverged(
        "dropout_on",
        "dropout was left on, p = 0.1",
        OUT,
        &["dropout"],
        &[Break::Output("post_attn_pre_resid", |out, scene| {
            *out = super::transform::dropped_out(out, 0.1, scene.spec.seed);
        })],
    ),
    // One rank's part of a sum is a tensor like any other.
    Fault::diverged(
        "all_reduce_missing",
        "the output is one rank's part of the sum; the other rank is not recorded",
        OUT,
        &[],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).o.part = Some((0, 2));
        })],
    ),
    Fault::diverged(
        "all_reduce_missing_ranks",
        "the output is each rank's part of the sum; both ranks are recorded",
        OUT,
        &["partial_sum"],
        &[
            Break::Spec(|spec| (spec.ranks, spec.tp) = (2, 2)),
            Break::Plan(|plan, scene| scene.of(plan).o.part = Some((scene.rank, 2))),
        ],
    )
    .needs(&[Need::TwoRanks]),
    Fault::diverged(
        "all_reduce_mean",
        "the ranks' parts are averaged instead of added",
        OUT,
        &["scale"],
        &[Break::Plan(|plan, scene| scene.of(plan).o.scale = 0.5)],
    ),
    Fault::diverged(
        "adapter_not_merged",
        "an adapter of rank two is added to the output on one side only",
        OUT,
        &["low_rank"],
        &[Break::Output("post_attn_pre_resid", |out, scene| {
            let mut random = Random::new(scene.spec.seed, "adapter");
            let x = scene.stage(scene.layer, "post_attn");
            let mut matrix = |count: usize| (0..count).map(|_| random.normal()).collect::<Vec<_>>();
            let (down, up) = (matrix(2 * x.width()), matrix(2 * out.width()));
            let size = 1.0 / (x.width() as f64).sqrt();
            for (row, x) in out.rows_mut().zip(x.rows()) {
                for (down, up) in down.chunks(x.len()).zip(up.chunks(row.len())) {
                    let inner: f64 = x.iter().zip(down).map(|(x, down)| x * down).sum();
                    row.iter_mut()
                        .zip(up)
                        .for_each(|(value, up)| *value += size * inner * up);
                }
            }
        })],
    ),
    // The product with a slightly wrong weight is the right one plus noise of its own.
    Fault::diverged(
        "weight_int8",
        "the output's weight was quantised to 8 bits in blocks of 32",
        OUT,
        &[],
        &[Break::Weights(|weights, scene| {
            weights.change(scene.layer, "o", |weight| quantized(weight, 32, 127.0));
        })],
    )
    .loaded("o", &["quantized"])
    .needs(&[Need::Wide]),
    Fault::diverged(
        "weight_int4",
        "the output's weight was quantised to 4 bits in blocks of 16",
        OUT,
        &[],
        &[Break::Weights(|weights, scene| {
            weights.change(scene.layer, "o", |weight| quantized(weight, 16, 7.0));
        })],
    )
    .loaded("o", &["quantized"]),
    // As above.
    Fault::diverged(
        "weight_downcast",
        "the output's weight went through bf16",
        OUT,
        &[],
        &[Break::Weights(|weights, scene| {
            weights.change(scene.layer, "o", |weight| {
                weight.map(|value| half::bf16::from_f64(value).to_f64())
            });
        })],
    )
    .loaded("o", &["rounded"])
    .needs(&[Need::Wide]),
    // The product with another layer's weight has nothing of the right one.
    Fault::diverged(
        "weight_wrong_layer",
        "the output has the weight of the layer before",
        OUT,
        &[],
        &[Break::Weights(|weights, scene| {
            let before: Array = weights.get(Some(scene.layer - 1), "o").clone();
            *weights.get_mut(Some(scene.layer), "o") = before;
        })],
    )
    .loaded("o", &["wrong_tensor"])
    .needs(&[Need::LayerBefore]),
];
