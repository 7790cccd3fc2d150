//! The run is right and its record is not.

use super::{Break, Fault, Need, Place};
use crate::forward::Recorded;

fn at(records: &[Recorded], name: &str) -> usize {
    records
        .iter()
        .position(|record| record.name == name)
        .unwrap_or_else(|| panic!("`{name}` is not recorded"))
}

pub(super) const FAULTS: &[Fault] = &[
    Fault::misrecorded(
        "hidden_states_off_by_one",
        "what is recorded as a layer's output is its input",
        Place::FirstLayer("layer_out"),
        &["wrong_tensor"],
        &[Break::Records(|records, scene| {
            for layer in (0..scene.spec.layers).rev() {
                let input = if layer == 0 {
                    "embed".to_owned()
                } else {
                    format!("{}_layer_out", layer - 1)
                };
                let input = records[at(records, &input)].array.clone();
                let output = at(records, &format!("{layer}_layer_out"));
                records[output].array = input;
            }
        })],
    ),
    Fault::misrecorded(
        "same_buffer_recorded",
        "every layer's feed-forward was recorded after the run, from one buffer",
        Place::FirstLayer("post_mlp"),
        &["wrong_tensor"],
        &[Break::Records(|records, scene| {
            let last = records[at(records, &format!("{}_post_mlp", scene.spec.layers - 1))]
                .array
                .clone();
            for layer in 0..scene.spec.layers {
                let place = at(records, &format!("{layer}_post_mlp"));
                records[place].array = last.clone();
            }
        })],
    )
    .needs(&[Need::LayerBefore]),
    Fault::misrecorded(
        "names_swapped",
        "gate and up were recorded under each other's name",
        Place::Stage("gate"),
        &["swapped"],
        &[Break::Records(|records, scene| {
            let (gate, up) = (
                at(records, &format!("{}_gate", scene.layer)),
                at(records, &format!("{}_up", scene.layer)),
            );
            let array = records[gate].array.clone();
            records[gate].array = std::mem::replace(&mut records[up].array, array);
        })],
    )
    .needs(&[Need::Gated]),
];
