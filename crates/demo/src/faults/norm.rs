//! Norms: their constant, their weight, their kind, what they read.

use super::{Break, Fault, Need, Place};
use crate::{ops::Gain, plan::NormInput};

const NORM: Place = Place::Stage("post_ln_pre_attn");

pub(super) const FAULTS: &[Fault] = &[
    Fault::diverged(
        "norm_eps",
        "the norm's epsilon is 1e-2",
        NORM,
        &["row_scale"],
        &[Break::Plan(|plan, scene| scene.of(plan).norm1.eps = 1e-2)],
    )
    .needs(&[Need::RmsNorm]),
    Fault::diverged(
        "norm_eps_small",
        "the norm's epsilon is 1e-5 instead of 1e-6",
        NORM,
        &["row_scale"],
        &[Break::Plan(|plan, scene| scene.of(plan).norm1.eps = 1e-5)],
    )
    .needs(&[Need::RmsNorm, Need::Wide]),
    Fault::diverged(
        "norm_plus_one",
        "the norm multiplies by one plus its weight",
        NORM,
        &["channel_scale"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).norm1.gain = Gain::OnePlusWeight;
        })],
    )
    .needs(&[Need::RmsNorm]),
    Fault::diverged(
        "norm_weight_missing",
        "the norm's weight is not used",
        NORM,
        &["channel_scale"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).norm1.gain = Gain::None;
        })],
    )
    .needs(&[Need::RmsNorm]),
    Fault::diverged(
        "norm_wrong_layer",
        "the norm has the weight of the layer before",
        NORM,
        &["channel_scale"],
        &[Break::Weights(|weights, scene| {
            *weights.get_mut(Some(scene.layer), "norm1") =
                weights.get(Some(scene.layer - 1), "norm1").clone();
        })],
    )
    .loaded("norm1", &["wrong_tensor"])
    .needs(&[Need::RmsNorm, Need::LayerBefore]),
    Fault::diverged(
        "layernorm_for_rmsnorm",
        "a LayerNorm stands where an RMSNorm belongs",
        NORM,
        &["row_affine", "low_rank"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).norm1.centred = true;
        })],
    )
    .needs(&[Need::RmsNorm]),
    Fault::diverged(
        "rmsnorm_for_layernorm",
        "an RMSNorm stands where a LayerNorm belongs",
        NORM,
        &["row_affine", "low_rank"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).norm1.centred = false;
        })],
    )
    .needs(&[Need::Gpt2]),
    Fault::diverged(
        "norm_bias_missing",
        "the norm's bias is not added",
        NORM,
        &["offset"],
        &[Break::Plan(|plan, scene| scene.of(plan).norm1.bias = false)],
    )
    .needs(&[Need::Gpt2]),
    // Two normed tensors of the same weight are related by nothing simpler than what was normed.
    Fault::diverged(
        "norm_wrong_input",
        "the norm before the feed-forward reads the layer's input",
        Place::Stage("pre_mlp"),
        &[],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).norm2_reads = NormInput::LayerInput;
        })],
    ),
    Fault::diverged(
        "final_norm_missing",
        "the norm before the head is left out",
        Place::Whole("final_norm"),
        &["wrong_tensor"],
        &[Break::Plan(|plan, _| plan.final_norm.on = false)],
    ),
    Fault::diverged(
        "mean_removed",
        "the mean over the channels is taken from the attention's output",
        Place::Stage("post_attn_pre_resid"),
        &["low_rank", "row_affine"],
        &[Break::Output("post_attn_pre_resid", |out, _| {
            let count = out.width() as f64;
            for row in out.rows_mut() {
                let mean = row.iter().sum::<f64>() / count;
                row.iter_mut().for_each(|value| *value -= mean);
            }
        })],
    ),
];
