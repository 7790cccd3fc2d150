//! The router of a mixture of experts.

use super::{Break, Fault, Need, Place};

/// The best expert that was not chosen, and how far behind the last chosen one it is.
fn runner_up(scores: &[f64], chosen: &[f64]) -> (usize, f64) {
    let taken = |expert: &usize| chosen.iter().any(|id| *id as usize == *expert);
    let next = (0..scores.len())
        .filter(|expert| !taken(expert))
        .max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let next = next.expect("there are more experts than are chosen");
    let last = chosen.last().map_or(f64::NAN, |id| scores[*id as usize]);
    (next, last - scores[next])
}

/// Two scores as close as this are decided by rounding, in any dtype the demo knows.
const MARGIN: f64 = 1e-5;

pub(super) const FAULTS: &[Fault] = &[
    Fault::diverged(
        "router_flip",
        "tokens that two experts suit equally well are sent to the other one",
        Place::Stage("router_ids"),
        &["routing"],
        &[Break::Output("router_ids", |ids, scene| {
            let scores = scene.stage(scene.layer, "router_logits");
            for (row, scores) in ids.rows_mut().zip(scores.rows()) {
                let (next, margin) = runner_up(scores, row);
                if margin < MARGIN {
                    *row.last_mut().expect("one expert or more") = next as f64;
                }
            }
        })],
    )
    .needs(&[Need::Experts])
    .scene(|spec, _| spec.near_ties = true),
    Fault::diverged(
        "router_wrong_expert",
        "one token is sent to an expert that does not suit it",
        Place::Stage("router_ids"),
        &["localized"],
        &[Break::Output("router_ids", |ids, scene| {
            let scores = scene.stage(scene.layer, "router_logits");
            let token = scores.rows().count() / 2;
            let scores: Vec<f64> = scores.rows().nth(token).expect("half way is inside").to_vec();
            let row = ids.rows_mut().nth(token).expect("half way is inside");
            row[0] = runner_up(&scores, row).0 as f64;
        })],
    )
    .needs(&[Need::Experts]),
    Fault::diverged(
        "router_not_renormalised",
        "the weights of the chosen experts do not sum to one",
        Place::Stage("router_weights"),
        &["row_scale"],
        &[Break::Plan(|plan, scene| scene.of(plan).renormalise = false)],
    )
    .needs(&[Need::Experts]),
    Fault::harmless(
        "router_order",
        "the chosen experts are listed the other way round",
        (Place::Stage("router_ids"), Place::Stage("post_mlp")),
        &["permuted"],
        &[Break::Output("router_ids", |ids, _| ids.rows_mut().for_each(<[f64]>::reverse))],
    )
    .needs(&[Need::Experts]),
    Fault::harmless(
        "router_unsorted",
        "the chosen experts of every other token are listed the other way round, as a top-k that does not sort may",
        (Place::Stage("router_ids"), Place::Stage("post_mlp")),
        &["permuted"],
        &[Break::Output("router_ids", |ids, _| ids.rows_mut().step_by(2).for_each(<[f64]>::reverse))],
    )
    .needs(&[Need::Experts]),
];
