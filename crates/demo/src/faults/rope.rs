//! Rotary positions.

use super::{Break, Fault, Need, Place};
use crate::{
    ops::{Pairing, Rope},
    plan::Plan,
};

const QUERY: Place = Place::Stage("query_final");
const KEY: Place = Place::Stage("key_final");
const ROTATED: &[&str] = &["rotated"];

/// Changes the rope of queries and keys alike.
fn both(plan: &mut Plan, layer: usize, of: impl Fn(&mut Rope)) {
    let layer = &mut plan.layers[layer];
    [&mut layer.rope_q, &mut layer.rope_k]
        .into_iter()
        .flatten()
        .for_each(of);
}

const fn rope(name: &'static str, about: &'static str, breaks: &'static [Break]) -> Fault {
    Fault::diverged(name, about, QUERY, ROTATED, breaks).needs(&[Need::Rope])
}

pub(super) const FAULTS: &[Fault] = &[
    rope(
        "rope_theta",
        "theta is 500000 instead of 10000",
        &[Break::Plan(|plan, scene| {
            both(plan, scene.layer, |rope| rope.theta = 500_000.0);
        })],
    ),
    rope(
        "rope_factor",
        "positions are divided by four",
        &[Break::Plan(|plan, scene| {
            both(plan, scene.layer, |rope| rope.factor = 4.0);
        })],
    ),
    rope(
        "rope_pairing",
        "neighbouring channels are turned together instead of halves",
        &[Break::Plan(|plan, scene| {
            both(plan, scene.layer, |rope| rope.pairing = Pairing::Neighbours);
        })],
    ),
    rope(
        "rope_negated",
        "positions turn the other way",
        &[Break::Plan(|plan, scene| {
            both(plan, scene.layer, |rope| rope.sign = -1.0);
        })],
    ),
    rope(
        "rope_offset_queries",
        "positions of the queries begin at one, those of the keys at zero",
        &[Break::Plan(|plan, scene| {
            scene
                .of(plan)
                .rope_q
                .iter_mut()
                .for_each(|rope| rope.offset = 1.0);
        })],
    ),
    Fault::diverged(
        "rope_missing",
        "no rotary positions",
        QUERY,
        &["rotated", "wrong_tensor"],
        &[Break::Plan(|plan, scene| {
            (scene.of(plan).rope_q, scene.of(plan).rope_k) = (None, None);
        })],
    )
    .needs(&[Need::Rope]),
    Fault::diverged(
        "rope_missing_keys",
        "the keys get no rotary positions",
        KEY,
        &["rotated", "wrong_tensor"],
        &[Break::Plan(|plan, scene| scene.of(plan).rope_k = None)],
    )
    .needs(&[Need::Rope]),
    Fault::diverged(
        "rope_partial",
        "only the first half of each head is turned",
        QUERY,
        &["rotated", "localized"],
        &[Break::Plan(|plan, scene| {
            both(plan, scene.layer, |rope| {
                rope.turned = 0..rope.turned.end / 4 * 2;
            });
        })],
    )
    .needs(&[Need::Rope]),
    Fault::diverged(
        "rope_keys_shifted",
        "the cache hands out each key one position late",
        KEY,
        &["shifted"],
        &[Break::Output("key_final", |keys, _| {
            *keys = keys.select(2, &super::transform::rolled(keys.shape[2], 1));
        })],
    )
    .needs(&[Need::Rope]),
];
