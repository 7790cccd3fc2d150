//! Rows that are probabilities, as softmax makes them.

use crate::{Case, array::Axis};

/// How far the sum of a row may be from 1: probabilities are often kept in eight bits.
const SUM: f64 = 0.02;
/// Rows looked at.
const ROWS: usize = 4096;

/// The axis along which both sides are probabilities, the innermost first. Rows that are masked altogether (zeros, NaN) may be among them.
pub(super) fn probabilities(case: &Case<'_>) -> Option<Axis> {
    let mut axes: Vec<usize> = case.axes().collect();
    axes.reverse();
    axes.into_iter()
        .map(|axis| Axis::of(case.dims, axis))
        .find(|axis| {
            [case.reference, case.candidate]
                .iter()
                .all(|side| are(side, *axis))
        })
}

fn are(values: &[f64], axis: Axis) -> bool {
    let rows = axis.outside * axis.inside;
    let step = rows.div_ceil(ROWS);
    let (mut summing, mut empty) = (0usize, 0usize);
    for row in (0..rows).step_by(step) {
        let (outside, inside) = (row / axis.inside, row % axis.inside);
        let (mut sum, mut least) = (0.0, 0f64);
        for i in 0..axis.along {
            let value = values[axis.at(outside, i, inside)];
            sum += value;
            least = least.min(value);
        }
        if sum.is_nan() || sum == 0.0 && least == 0.0 {
            empty += 1;
        } else if least < 0.0 || (sum - 1.0).abs() > SUM {
            return false;
        } else {
            summing += 1;
        }
    }
    summing > empty
}

/// Flat indices of a row.
pub(super) fn row(axis: Axis, row: usize) -> impl Iterator<Item = usize> + Clone {
    (0..axis.along).map(move |i| axis.at(row / axis.inside, i, row % axis.inside))
}
