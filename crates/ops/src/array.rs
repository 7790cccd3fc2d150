//! Values of one shape in row-major order, as f64: what formulas compute with.

use twinscope_tensor::Operand;

/// Whether an element is one number. Of complex ones, and of two packed in a byte, shapes do not count the values.
pub fn is_plain(operand: &dyn Operand) -> bool {
    operand.dtype().values_per_element() == 1
}

/// A tensor that was read whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub dims: Vec<usize>,
    pub values: Vec<f64>,
}

impl Array {
    /// `None` for dtypes without numbers, for elements of several (complex, packed pairs) and for more elements than `most`.
    pub fn read(operand: &dyn Operand, most: usize) -> Option<Self> {
        is_plain(operand).then_some(())?;
        let dims: Option<Vec<usize>> = operand
            .shape()
            .dims()
            .iter()
            .map(|dim| usize::try_from(*dim).ok())
            .collect();
        let count = usize::try_from(operand.len())
            .ok()
            .filter(|count| *count <= most)?;
        let mut values = Vec::new();
        operand
            .f64_values(0, count, &mut Vec::new(), &mut values)
            .then_some(())?;
        operand.check().ok()?;
        Some(Self {
            dims: dims?,
            values,
        })
    }
}

/// Element `(o, i, j)` of an axis seen from outside, along and inside is at `(o * along + i) * inside + j`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    pub outside: usize,
    pub along: usize,
    pub inside: usize,
}

impl Axis {
    pub fn of(dims: &[usize], axis: usize) -> Self {
        Self {
            outside: dims[..axis].iter().product(),
            along: dims[axis],
            inside: dims[axis + 1..].iter().product(),
        }
    }

    pub fn at(self, outside: usize, along: usize, inside: usize) -> usize {
        (outside * self.along + along) * self.inside + inside
    }

    /// The index along this axis of a flat index.
    pub fn index(self, flat: usize) -> usize {
        flat / self.inside % self.along
    }

    /// Flat indices of the slice `along = i`.
    pub fn slice(self, i: usize) -> impl Iterator<Item = usize> {
        (0..self.outside).flat_map(move |o| (0..self.inside).map(move |j| self.at(o, i, j)))
    }
}

/// Σ of squares over the finite values.
pub fn energy(values: &[f64]) -> f64 {
    values
        .iter()
        .filter(|value| value.is_finite())
        .map(|value| value * value)
        .sum()
}

pub fn rms(values: &[f64]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        (energy(values) / values.len() as f64).sqrt()
    }
}

/// 0 of nothing; NaN last.
pub fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}
