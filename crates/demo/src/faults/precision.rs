//! Range and precision: what other number formats do to one op's output.

use super::{Break, Fault, Need, Place, transform::quantized};
use crate::arithmetic::round;
use twinscope_tensor::DType;

const MLP: Place = Place::Stage("post_mlp");
const ROUNDED: &[&str] = &["rounded"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::diverged(
        "softmax_bf16",
        "the softmax is computed in bf16",
        Place::Stage("attn_probs"),
        ROUNDED,
        &[Break::Output("attn_probs", |out, _| {
            *out = out.map(|value| round(DType::Bf16, value));
        })],
    )
    .needs(&[Need::Wide]),
    Fault::diverged(
        "attn_bf16",
        "the attention's output goes through bf16",
        Place::Stage("post_attn_pre_resid"),
        ROUNDED,
        &[Break::Output("post_attn_pre_resid", |out, _| {
            *out = out.map(|value| round(DType::Bf16, value));
        })],
    )
    .needs(&[Need::Wide]),
    Fault::diverged(
        "mlp_f16",
        "the feed-forward's output goes through f16",
        MLP,
        ROUNDED,
        &[Break::Output("post_mlp", |out, _| {
            *out = out.map(|value| round(DType::F16, value));
        })],
    )
    .needs(&[Need::Wide]),
    Fault::diverged(
        "mlp_fp8",
        "the feed-forward's output goes through fp8 (e4m3)",
        MLP,
        ROUNDED,
        &[Break::Output("post_mlp", |out, _| {
            *out = out.map(|value| round(DType::F8E4M3Fn, value));
        })],
    ),
    Fault::diverged(
        "mlp_fp8_e5m2",
        "the feed-forward's output goes through fp8 (e5m2)",
        MLP,
        ROUNDED,
        &[Break::Output("post_mlp", |out, _| {
            *out = out.map(|value| round(DType::F8E5M2, value));
        })],
    ),
    Fault::diverged(
        "mlp_int8",
        "the feed-forward's output is quantised to 8 bits, one scale a token",
        MLP,
        &["quantized"],
        &[Break::Output("post_mlp", |out, _| {
            *out = quantized(out, out.width(), 127.0);
        })],
    )
    .needs(&[Need::Wide]),
    Fault::diverged(
        "mlp_int4",
        "the feed-forward's output is quantised to 4 bits in blocks of 16",
        MLP,
        &["quantized"],
        &[Break::Output("post_mlp", |out, _| {
            *out = quantized(out, 16, 7.0);
        })],
    ),
    Fault::diverged(
        "clipped",
        "the feed-forward's output is clamped to 0.75",
        MLP,
        &["clipped"],
        &[Break::Output("post_mlp", |out, _| {
            *out = out.map(|value| value.clamp(-0.75, 0.75));
        })],
    ),
    Fault::diverged(
        "clipped_fp8",
        "an outlier channel saturates at the largest fp8, 448",
        MLP,
        &["clipped"],
        &[Break::Output("post_mlp", |out, _| {
            *out = out.map(|value| value.clamp(-448.0, 448.0));
        })],
    )
    .scene(|spec, layer| spec.outlier = Some((layer, 1000.0))),
    Fault::diverged(
        "clipped_f16",
        "an outlier channel saturates at the largest f16, 65504",
        MLP,
        &["clipped"],
        &[Break::Output("post_mlp", |out, _| {
            *out = out.map(|value| value.clamp(-65504.0, 65504.0));
        })],
    )
    .needs(&[Need::Range])
    .scene(|spec, layer| spec.outlier = Some((layer, 150_000.0))),
    Fault::diverged(
        "overflow_f16",
        "an outlier channel overflows f16 to infinity",
        MLP,
        &["nonfinite"],
        &[Break::Output("post_mlp", |out, _| {
            *out = out.map(|value| {
                if value.abs() > 65504.0 {
                    f64::INFINITY.copysign(value)
                } else {
                    value
                }
            });
        })],
    )
    .needs(&[Need::Range])
    .scene(|spec, layer| spec.outlier = Some((layer, 150_000.0))),
    Fault::diverged(
        "nan_token",
        "one token of the feed-forward's output is NaN",
        MLP,
        &["nonfinite"],
        &[Break::Output("post_mlp", |out, _| {
            let width = out.width();
            let token = out.shape[1] / 2;
            out.values[token * width..(token + 1) * width].fill(f64::NAN);
        })],
    ),
    Fault::diverged(
        "nan_element",
        "one element of the feed-forward's output is NaN",
        MLP,
        &["nonfinite"],
        &[Break::Output("post_mlp", |out, _| {
            let at = out.values.len() / 3;
            out.values[at] = f64::NAN;
        })],
    ),
];
