//! Scores, masks, softmax, and what becomes of the heads.

use super::{Break, Fault, Need, Place, transform::in_slice};
use crate::ops::Grouping;

const PROBS: Place = Place::Stage("attn_probs");
const MIXED: Place = Place::Stage("post_attn");

pub(super) const FAULTS: &[Fault] = &[
    Fault::diverged(
        "attn_scale_missing",
        "scores are not divided by the root of the head size",
        PROBS,
        &["softmax_scale"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attention.scale = 1.0;
        })],
    ),
    Fault::diverged(
        "attn_scale_dim",
        "scores are divided by the head size instead of its root",
        PROBS,
        &["softmax_scale"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attention.scale = 1.0 / scene.spec.head_dim as f64;
        })],
    ),
    Fault::diverged(
        "mask_missing",
        "tokens see the future",
        PROBS,
        &["masked"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attention.ahead = isize::MAX;
        })],
    ),
    Fault::diverged(
        "mask_off_by_one",
        "tokens see one position ahead",
        PROBS,
        &["masked"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attention.ahead = 1;
        })],
    ),
    Fault::diverged(
        "mask_excludes_self",
        "tokens do not see themselves",
        PROBS,
        &["masked"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attention.ahead = -1;
        })],
    ),
    Fault::diverged(
        "sliding_window",
        "tokens see four positions back at most",
        PROBS,
        &["masked"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attention.window = Some(4);
        })],
    )
    .needs(&[Need::Positions]),
    Fault::diverged(
        "attn_softcap",
        "scores are capped at 2 by a tanh",
        PROBS,
        &["function"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attention.cap = Some(2.0);
        })],
    ),
    Fault::diverged(
        "gqa_tiled",
        "key heads are tiled over the query heads instead of repeated",
        PROBS,
        &["localized"],
        &[Break::Plan(|plan, scene| {
            let attention = &mut scene.of(plan).attention;
            (attention.keys, attention.values) = (Grouping::Tiled, Grouping::Tiled);
        })],
    )
    .needs(&[Need::Grouped]),
    Fault::diverged(
        "gqa_values_tiled",
        "value heads are tiled over the query heads instead of repeated",
        MIXED,
        &["localized"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).attention.values = Grouping::Tiled;
        })],
    )
    .needs(&[Need::Grouped]),
    Fault::diverged(
        "scores_swapped",
        "the scores are those of the keys for the queries",
        PROBS,
        &["swapped"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).scores_swapped = true;
        })],
    )
    .needs(&[Need::Gpt2]),
    Fault::diverged(
        "attn_transposed",
        "queries and keys of the probabilities are exchanged",
        PROBS,
        &["transposed"],
        &[Break::Output("attn_probs", |probs, _| {
            *probs = probs.swap_axes(2, 3);
        })],
    ),
    Fault::diverged(
        "attn_dropout",
        "dropout of the probabilities was left on, p = 0.2",
        PROBS,
        &["dropout"],
        &[Break::Output("attn_probs", |probs, scene| {
            *probs = super::transform::dropped_out(probs, 0.2, scene.spec.seed);
        })],
    ),
    Fault::diverged(
        "attn_blind_row",
        "the first token of the first prompt sees nothing, and its softmax is NaN",
        PROBS,
        &["nonfinite"],
        &[Break::Output("attn_probs", |probs, scene| {
            let (heads, seq) = (scene.spec.heads, scene.spec.seq);
            (0..heads).for_each(|head| probs.values[head * seq * seq..][..seq].fill(f64::NAN));
        })],
    ),
    Fault::diverged(
        "heads_not_moved_back",
        "heads are joined without moving them back behind the positions",
        MIXED,
        &["permuted", "transposed"],
        &[Break::Plan(|plan, scene| {
            scene.of(plan).heads_moved_back = false;
        })],
    )
    .needs(&[Need::Heads]),
    Fault::diverged(
        "head_zero",
        "one head is zero",
        MIXED,
        &["localized"],
        &[Break::Output("post_attn", |mixed, scene| {
            let dim = scene.spec.head_dim;
            let head = scene.spec.heads / 2;
            (head * dim..(head + 1) * dim).for_each(|channel| in_slice(mixed, 2, channel, |_| 0.0));
        })],
    )
    .needs(&[Need::Heads]),
];
