//! Names that say the same in other words: prefixes, separators, and the name families. Fused tensors against their parts come first,
//! since Megatron's `linear_fc1` may be either `up` or `gate` and `up`.
//!
//! Two tensors of one side that come out with one name are not paired by this rule.

use super::{groups, rules::Board};
use crate::settings::Rule;

pub(super) fn pair(board: &mut Board<'_, '_>) {
    groups::pair(board);
    let key = |board: &Board<'_, '_>, side: usize, unit: usize| Some((board.layer(side, unit), board.name(side, unit).key()));
    board.take_unique(key, Rule::Normalized, 0.95);
}
