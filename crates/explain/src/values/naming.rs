//! Fitted numbers by the names that this place gives them: its own dimensions first, then those of the tensors around it.

use crate::{
    Case,
    constants::{Named, factor, factor_in_bf16},
};
use twinscope_tensor::DType;

/// How many pairs before and after lend their dimensions.
const AROUND: usize = 8;

/// A factor's name; `error` is the relative uncertainty of the fit.
pub(super) fn named(case: &Case<'_>, value: f64, error: f64) -> Option<Named> {
    let around = || neighbours(case);
    let named = factor(value, case.dims, error).or_else(|| factor(value, &around(), error));
    let in_bf16 = || {
        factor_in_bf16(value, case.dims, error).or_else(|| factor_in_bf16(value, &around(), error))
    };
    named.or_else(|| {
        if case.dtypes.contains(&DType::Bf16) {
            in_bf16()
        } else {
            None
        }
    })
}

fn neighbours(case: &Case<'_>) -> Vec<usize> {
    let entries = case.scene.entries();
    let near = case.pair.saturating_sub(AROUND)..entries.len().min(case.pair + AROUND + 1);
    let mut dims: Vec<usize> = entries[near]
        .iter()
        .flat_map(|entry| entry.dims.iter().copied())
        .collect();
    dims.sort_unstable();
    dims.dedup();
    dims
}

/// `3 of 12`, or `all 12`.
pub(super) fn of(some: usize, all: usize) -> String {
    if some == all {
        format!("all {all}")
    } else {
        format!("{some} of {all}")
    }
}
