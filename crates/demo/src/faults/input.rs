//! Wrong before the first layer.

use super::{Break, Fault, Need, Place};

const INPUT: Place = Place::Whole("input_ids");

pub(super) const FAULTS: &[Fault] = &[
    Fault::diverged(
        "input_token",
        "one token of the prompt is another one",
        INPUT,
        &["input_differs", "localized"],
        &[Break::Output("input_ids", |ids, scene| {
            let at = ids.values.len() / 2;
            ids.values[at] = (ids.values[at] + 1.0) % scene.spec.vocab as f64;
        })],
    ),
    Fault::diverged(
        "input_bos",
        "an extra token at the beginning moves all others on by one",
        INPUT,
        &["input_differs", "shifted"],
        &[Break::Output("input_ids", |ids, _| {
            ids.rows_mut().for_each(|row| {
                row.rotate_right(1);
                row[0] = 0.0;
            });
        })],
    ),
    Fault::diverged(
        "input_padding_side",
        "one prompt of the batch is padded on the left instead of the right",
        INPUT,
        &["input_differs", "shifted", "localized"],
        &[Break::Output("input_ids", |ids, _| {
            let row = ids.rows_mut().last().expect("a batch has a row");
            row.rotate_right(3);
            row[..3].fill(0.0);
        })],
    )
    .needs(&[Need::Positions]),
    Fault::diverged(
        "embed_scale",
        "embeddings are multiplied by the root of the hidden size",
        Place::Whole("embed"),
        &["scale"],
        &[Break::Plan(|plan, scene| {
            plan.embed_scale = (scene.spec.hidden as f64).sqrt();
        })],
    )
    .needs(&[Need::Rope]),
    Fault::diverged(
        "embed_scale_tokens",
        "token embeddings are multiplied by the root of the hidden size, positions are not",
        Place::Whole("token_embed"),
        &["scale"],
        &[Break::Plan(|plan, scene| {
            plan.embed_scale = (scene.spec.hidden as f64).sqrt();
        })],
    )
    .needs(&[Need::Gpt2]),
    Fault::diverged(
        "position_off_by_one",
        "learned positions are counted from one",
        Place::Whole("position_embed"),
        &["shifted"],
        &[Break::Plan(|plan, _| plan.first_position = 1)],
    )
    .needs(&[Need::Gpt2]),
    Fault::diverged(
        "position_not_added",
        "learned positions are looked up but not added",
        Place::Whole("embed"),
        &["missing_term", "wrong_tensor"],
        &[Break::Output("embed", |embed, scene| {
            *embed = scene.whole("token_embed").clone();
        })],
    )
    .needs(&[Need::Gpt2]),
];
