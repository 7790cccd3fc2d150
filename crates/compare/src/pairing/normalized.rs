//! Names that say the same in other words: prefixes, separators, and the name families. Fused tensors against their parts come first,
//! since Megatron's `linear_fc1` may be either `up` or `gate` and `up`.
//!
//! Two tensors of one side that come out with one name are not paired by this rule.

use super::{
    groups,
    rules::{Board, CANDIDATE, REFERENCE},
    shape,
};
use crate::settings::Rule;

pub(super) fn pair(board: &mut Board<'_, '_>) {
    groups::pair(board);
    let found = board.unique(|side, unit| Some((board.layer(side, unit), board.name(side, unit).key())));
    board.take_all(found, Rule::Normalized, 0.95);
    // What is called `fc1` on one side and `gate_up` on the other, when both are as large.
    let mut found = board.unique(|side, unit| {
        let name = board.name(side, unit);
        matches!(name.stage, Some("mlp_up" | "mlp_gate_up")).then(|| (board.layer(side, unit), name.key_as("mlp_gate_up")))
    });
    let kind = |side: usize, unit: usize| board.single(side, unit).map(|item| shape::kind(&item.shape));
    found.retain(|(reference, candidate)| kind(REFERENCE, *reference) == kind(CANDIDATE, *candidate));
    board.take_all(found, Rule::Normalized, 0.9);
}
