//! Some rows of every large tensor: enough to know which op made it, and whether what is only rounding follows it.
//!
//! A row is a run along the last dimension. Ops that make each row of the same row of their inputs see no difference between all rows and
//! some, as long as they are the same ones everywhere: so those of all tensors with as many rows are picked together.

use crate::sampling::splitmix;
use std::sync::Arc;
use twinscope_tensor::{DType, Operand, Shape, Shrunk, View};

/// Which rows are looked at, of tensors that have so many.
#[derive(Clone, Debug)]
pub struct Thin {
    pub rows: usize,
    pub picked: Arc<[usize]>,
}

/// Values of a tensor that are picked, of as many channels as most of them have, and rows at least.
const VALUES: usize = 1 << 16;
const LEAST_ROWS: usize = 64;
/// Values of the widest: logits are not worth more than everything else together.
pub const MOST_VALUES: usize = 1 << 20;

/// How many rows and channels dims are.
pub fn rows_of(dims: &[usize]) -> Option<(usize, usize)> {
    let (&channels, outer) = dims.split_last()?;
    (!outer.is_empty() && channels > 0).then(|| (outer.iter().product(), channels))
}

impl Thin {
    /// Picks from so many rows of tensors that have mostly so many channels: one of each stretch of equal length, and the quietest by `sizes`,
    /// which feel an epsilon most. `None` where that would be most of them.
    pub fn of(
        rows: usize,
        channels: usize,
        sizes: impl FnOnce() -> Option<Vec<f64>>,
    ) -> Option<Self> {
        let count = (VALUES / channels.max(1)).max(LEAST_ROWS);
        if rows < 3 * count {
            return None;
        }
        let one = |nth: usize| {
            let (start, end) = (nth * rows / count, (nth + 1) * rows / count);
            start + (splitmix(nth as u64) % (end - start) as u64) as usize
        };
        let mut picked: Vec<usize> = (0..count).map(one).collect();
        if let Some(sizes) = sizes().filter(|sizes| sizes.len() == rows) {
            let mut by_size: Vec<usize> = (0..rows).collect();
            by_size.select_nth_unstable_by(count / 2, |a, b| sizes[*a].total_cmp(&sizes[*b]));
            picked.extend_from_slice(&by_size[..count / 2]);
        }
        picked.sort_unstable();
        picked.dedup();
        Some(Self {
            rows,
            picked: picked.into(),
        })
    }

    /// What dims become; `None` of tensors that have other rows, or too much of each.
    pub fn dims(&self, dims: &[usize]) -> Option<Vec<usize>> {
        let (rows, channels) = rows_of(dims)?;
        (rows == self.rows && self.picked.len() * channels <= MOST_VALUES)
            .then(|| vec![self.picked.len(), channels])
    }

    pub fn rows(&self, of: Box<dyn Operand>) -> Option<Box<dyn Operand>> {
        let channels = *of.shape().dims().last()?;
        let shape = Shape::from([self.picked.len() as u64, channels]);
        Some(Box::new(SomeRows {
            of,
            shape,
            channels: usize::try_from(channels).ok()?,
            picked: self.picked.clone(),
        }))
    }
}

/// Rows of an operand, in the order they are picked.
struct SomeRows {
    of: Box<dyn Operand>,
    shape: Shape,
    channels: usize,
    picked: Arc<[usize]>,
}

impl SomeRows {
    /// Reads row by row what lies between two elements.
    fn each<T: Copy>(
        &self,
        start: u64,
        count: usize,
        out: &mut Vec<T>,
        mut read: impl FnMut(u64, usize, &mut Vec<T>) -> bool,
    ) -> bool {
        out.clear();
        let (mut at, end, mut run) = (start as usize, start as usize + count, Vec::new());
        while at < end {
            let (nth, channel) = (at / self.channels, at % self.channels);
            let length = (self.channels - channel).min(end - at);
            if !read(
                (self.picked[nth] * self.channels + channel) as u64,
                length,
                &mut run,
            ) {
                return false;
            }
            out.extend_from_slice(&run);
            at += length;
        }
        true
    }
}

impl Operand for SomeRows {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn dtype(&self) -> DType {
        self.of.dtype()
    }

    fn view(&self) -> Option<&View> {
        None
    }

    fn f64_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<f64>,
    ) -> bool {
        self.each(start, count, out, |start, count, run| {
            self.of.f64_values(start, count, scratch, run)
        })
    }

    fn int_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<i128>,
    ) -> bool {
        self.each(start, count, out, |start, count, run| {
            self.of.int_values(start, count, scratch, run)
        })
    }

    fn check(&self) -> Result<(), Shrunk> {
        self.of.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picked_rows_are_those_of_the_whole() {
        let bytes: Vec<u8> = (0..4000 * 16)
            .flat_map(|n| (n as f32).to_le_bytes())
            .collect();
        let view = View::new(DType::F32, Shape::from([2, 2000, 16]), bytes.into()).unwrap();
        let thin = Thin {
            rows: 4000,
            picked: [3, 1999, 2000, 3999].into(),
        };
        assert_eq!(thin.dims(&[2, 2000, 16]), Some(vec![4, 16]));
        assert_eq!(thin.dims(&[2000, 16]), None);
        let rows = thin.rows(Box::new(view)).unwrap();
        let mut values = Vec::new();
        // From within one row to within another.
        assert!(rows.f64_values(14, 20, &mut Vec::new(), &mut values));
        let wanted: Vec<f64> = [62..64, 1999 * 16..2000 * 16, 2000 * 16..2000 * 16 + 2]
            .into_iter()
            .flatten()
            .map(f64::from)
            .collect();
        assert_eq!(values, wanted);
    }

    #[test]
    fn every_stretch_has_a_row_and_the_quietest_are_among_them() {
        let sizes: Vec<f64> = (0..8192)
            .map(|row| {
                if row % 1000 == 7 {
                    0.0
                } else {
                    1.0 + f64::from(row)
                }
            })
            .collect();
        let thin = Thin::of(8192, 512, || Some(sizes)).unwrap();
        assert!(
            thin.picked
                .windows(2)
                .all(|two| two[0] < two[1] && two[1] - two[0] <= 2 * 8192 / 128),
            "{:?}",
            thin.picked
        );
        assert!(
            (7..8192)
                .step_by(1000)
                .all(|quiet| thin.picked.contains(&quiet)),
            "{:?}",
            thin.picked
        );
        assert!(
            Thin::of(300, 512, || None).is_none(),
            "most of few rows are all of them"
        );
    }
}
