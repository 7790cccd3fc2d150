//! The sizes of a tensor's dimensions, and the indices they allow.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Sizes of the dimensions, outermost first. No dimensions is a scalar; a zero makes the tensor empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape(Box<[u64]>);

impl Shape {
    pub fn new(dims: impl Into<Box<[u64]>>) -> Self {
        Self(dims.into())
    }

    pub fn scalar() -> Self {
        Self::default()
    }

    pub fn dims(&self) -> &[u64] {
        &self.0
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// How many elements, or `None` when the product does not fit 63 bits. A zero anywhere wins over an overflow.
    pub fn elements(&self) -> Option<u64> {
        if self.0.contains(&0) {
            return Some(0);
        }
        let mut product: u64 = 1;
        for dim in &self.0 {
            product = product.checked_mul(*dim)?;
        }
        (product <= i64::MAX as u64).then_some(product)
    }

    /// Row-major strides in elements; `None` when the shape's product overflows.
    pub fn row_major(&self) -> Option<Vec<i64>> {
        self.elements()?;
        let mut strides = vec![0i64; self.rank()];
        let mut step: i64 = 1;
        for (stride, dim) in strides.iter_mut().zip(&self.0).rev() {
            *stride = step;
            // An empty tensor has no elements to step over: any stride will do, this one cannot overflow.
            step = step.saturating_mul((*dim).max(1).min(i64::MAX as u64) as i64);
        }
        Some(strides)
    }

    /// The index of the `flat`-th element in row-major order.
    pub fn unravel(&self, mut flat: u64) -> Vec<u64> {
        let mut index = vec![0; self.rank()];
        for (at, dim) in index.iter_mut().zip(&self.0).rev() {
            if *dim > 0 {
                *at = flat % dim;
                flat /= dim;
            }
        }
        index
    }
}

impl From<Vec<u64>> for Shape {
    fn from(dims: Vec<u64>) -> Self {
        Self(dims.into())
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    fn from(dims: [u64; N]) -> Self {
        Self(dims.into())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.pad(&format!("[{}]", dims.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_wins_over_an_overflow() {
        assert_eq!(Shape::from([u64::MAX, u64::MAX, 0]).elements(), Some(0));
        assert_eq!(Shape::from([u64::MAX, 2]).elements(), None);
        assert_eq!(Shape::scalar().elements(), Some(1));
    }

    #[test]
    fn unravel_counts_the_last_dimension_fastest() {
        let shape = Shape::from([2, 3, 4]);
        assert_eq!(shape.row_major(), Some(vec![12, 4, 1]));
        assert_eq!(shape.unravel(23), vec![1, 2, 3]);
        assert_eq!(shape.to_string(), "[2, 3, 4]");
    }
}
