//! A row-major array of numbers and the few ways a transformer, and a fault, moves them about.

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

impl Array {
    pub(crate) fn new(shape: impl Into<Vec<usize>>, values: Vec<f64>) -> Self {
        let shape = shape.into();
        assert_eq!(
            shape.iter().product::<usize>(),
            values.len(),
            "shape {shape:?}"
        );
        Self { shape, values }
    }

    pub(crate) fn zeros(shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        let count = shape.iter().product();
        Self {
            shape,
            values: vec![0.0; count],
        }
    }

    /// The length of the last axis.
    pub(crate) fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.width())
    }

    pub(crate) fn rows_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        let width = self.width();
        self.values.chunks_exact_mut(width)
    }

    pub(crate) fn map(&self, of: impl Fn(f64) -> f64) -> Self {
        Self {
            shape: self.shape.clone(),
            values: self.values.iter().map(|value| of(*value)).collect(),
        }
    }

    pub(crate) fn zip(&self, other: &Self, of: impl Fn(f64, f64) -> f64) -> Self {
        assert_eq!(self.shape, other.shape);
        Self {
            shape: self.shape.clone(),
            values: self
                .values
                .iter()
                .zip(&other.values)
                .map(|(a, b)| of(*a, *b))
                .collect(),
        }
    }

    /// Those slices of an axis, in that order.
    pub(crate) fn select(&self, axis: usize, order: &[usize]) -> Self {
        let inner: usize = self.shape[axis + 1..].iter().product();
        let length = self.shape[axis];
        let mut values = Vec::with_capacity(self.values.len() / length.max(1) * order.len());
        for block in self.values.chunks_exact(length * inner) {
            order.iter().for_each(|from| {
                values.extend_from_slice(&block[from * inner..(from + 1) * inner]);
            });
        }
        let mut shape = self.shape.clone();
        shape[axis] = order.len();
        Self { shape, values }
    }

    /// The part of an axis that one of so many equal ranks holds.
    pub(crate) fn shard(&self, axis: usize, rank: usize, of: usize) -> Self {
        let length = self.shape[axis] / of;
        self.select(
            axis,
            &(rank * length..(rank + 1) * length).collect::<Vec<_>>(),
        )
    }

    pub(crate) fn concat(parts: &[&Self], axis: usize) -> Self {
        let mut shape = parts[0].shape.clone();
        shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
        let inner = |part: &Self| part.shape[axis..].iter().product::<usize>();
        let outer: usize = shape[..axis].iter().product();
        let mut values = Vec::with_capacity(shape.iter().product());
        for block in 0..outer {
            parts.iter().for_each(|part| {
                values.extend_from_slice(
                    &part.values[block * inner(part)..(block + 1) * inner(part)],
                );
            });
        }
        Self { shape, values }
    }

    pub(crate) fn swap_axes(&self, a: usize, b: usize) -> Self {
        let mut shape = self.shape.clone();
        shape.swap(a, b);
        let stride = |axis: usize| self.shape[axis + 1..].iter().product::<usize>();
        let mut strides: Vec<usize> = (0..shape.len()).map(stride).collect();
        strides.swap(a, b);
        let mut index = vec![0; shape.len()];
        let values = (0..self.values.len())
            .map(|_| {
                let value = self.values[index
                    .iter()
                    .zip(&strides)
                    .map(|(i, s)| i * s)
                    .sum::<usize>()];
                for axis in (0..shape.len()).rev() {
                    index[axis] += 1;
                    if index[axis] < shape[axis] {
                        break;
                    }
                    index[axis] = 0;
                }
                value
            })
            .collect();
        Self { shape, values }
    }

    pub(crate) fn reshape(mut self, shape: impl Into<Vec<usize>>) -> Self {
        self.shape = shape.into();
        assert_eq!(self.shape.iter().product::<usize>(), self.values.len());
        self
    }

    /// `[batch, seq, heads * dim]` to `[batch, heads, seq, dim]`.
    pub(crate) fn split_heads(&self, heads: usize) -> Self {
        let [batch, seq, width] = self.shape[..] else {
            panic!("three axes, not {:?}", self.shape)
        };
        self.clone()
            .reshape([batch, seq, heads, width / heads])
            .swap_axes(1, 2)
    }

    /// The way back.
    pub(crate) fn join_heads(&self) -> Self {
        let [batch, heads, seq, dim] = self.shape[..] else {
            panic!("four axes, not {:?}", self.shape)
        };
        self.swap_axes(1, 2).reshape([batch, seq, heads * dim])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(shape: &[usize]) -> Array {
        Array::new(
            shape,
            (0..shape.iter().product::<usize>())
                .map(|n| n as f64)
                .collect(),
        )
    }

    #[test]
    fn heads_split_and_joined_are_what_they_were() {
        let array = counting(&[2, 3, 8]);
        let split = array.split_heads(4);
        assert_eq!(split.shape, [2, 4, 3, 2]);
        assert_eq!(split.values[..4], [0.0, 1.0, 8.0, 9.0]);
        assert_eq!(split.join_heads(), array);
    }

    #[test]
    fn shards_put_together_are_the_whole() {
        let array = counting(&[2, 6, 3]);
        for axis in 0..2 {
            let (first, second) = (array.shard(axis, 0, 2), array.shard(axis, 1, 2));
            assert_eq!(Array::concat(&[&first, &second], axis), array);
        }
    }
}
