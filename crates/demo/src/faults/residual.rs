//! What is added to the residual stream.

use super::{Break, Fault, Place};
use crate::ops::Join;

const MID: Place = Place::Stage("resid_mid");
const OUT: Place = Place::Stage("layer_out");

pub(super) const FAULTS: &[Fault] = &[
    Fault::diverged(
        "residual_missing",
        "the residual stream is not added to the attention's output",
        MID,
        &["missing_term", "wrong_tensor"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attn_join.stream = 0.0;
        })],
    ),
    Fault::diverged(
        "residual_twice",
        "the residual stream is added twice",
        MID,
        &["extra_term"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attn_join.stream = 2.0;
        })],
    ),
    Fault::diverged(
        "attn_added_twice",
        "the attention's output is added twice",
        MID,
        &["extra_term"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attn_join.branch = 2.0;
        })],
    ),
    Fault::diverged(
        "attn_not_added",
        "the attention's output is not added",
        MID,
        &["missing_term", "wrong_tensor"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attn_join.branch = 0.0;
        })],
    ),
    Fault::diverged(
        "norm_on_residual",
        "the normed input is carried on instead of the input",
        MID,
        &["missing_term", "extra_term"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attn_join = Join {
                stream: 0.0,
                branch: 1.0,
                normed: 1.0,
            }
        })],
    ),
    Fault::diverged(
        "mlp_not_added",
        "the feed-forward's output is not added",
        OUT,
        &["missing_term", "wrong_tensor"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).mlp_join.branch = 0.0;
        })],
    ),
    Fault::diverged(
        "mlp_residual_missing",
        "the residual stream is not added to the feed-forward's output",
        OUT,
        &["missing_term", "wrong_tensor"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).mlp_join.stream = 0.0;
        })],
    ),
    Fault::diverged(
        "mlp_subtracted",
        "the feed-forward's output is subtracted",
        OUT,
        &["missing_term", "extra_term"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).mlp_join.branch = -1.0;
        })],
    ),
];
