//! A part of a tensor that is too large to be read whole: a box that is whole along some axes.

use twinscope_tensor::Operand;

/// Runs of neighbouring elements, and the shape they make together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) dims: Vec<usize>,
    /// `(start, how many)`
    runs: Vec<(u64, usize)>,
}

impl Part {
    /// The values of the part; `None` when they cannot be read.
    pub(super) fn read(&self, operand: &dyn Operand) -> Option<Vec<f64>> {
        let mut values = Vec::with_capacity(self.dims.iter().product());
        let (mut scratch, mut run) = (Vec::new(), Vec::new());
        for (start, count) in &self.runs {
            operand
                .f64_values(*start, *count, &mut scratch, &mut run)
                .then_some(())?;
            values.extend_from_slice(&run);
        }
        operand.check().ok()?;
        Some(values)
    }
}

/// Neighbouring indices of the outermost axis, as many as fit, around an element; all of every other axis. Where one index alone is too much,
/// the axis inside it.
pub(super) fn outer(dims: &[usize], most: usize, around: u64) -> Option<Part> {
    let mut inside = vec![1usize; dims.len() + 1];
    for axis in (0..dims.len()).rev() {
        inside[axis] = inside[axis + 1].saturating_mul(dims[axis]);
    }
    let axis = (0..dims.len()).find(|axis| inside[axis + 1] <= most && inside[*axis] > most)?;
    let kept = (most / inside[axis + 1]).clamp(1, dims[axis]);
    let around = usize::try_from(around)
        .ok()?
        .min(inside[0].saturating_sub(1));
    let index = around / inside[axis + 1] % dims[axis];
    let first = index.saturating_sub(kept / 2).min(dims[axis] - kept);
    let before = around / inside[axis] * inside[axis];
    let start = before + first * inside[axis + 1];
    let mut part = dims.to_vec();
    part[..axis].fill(1);
    part[axis] = kept;
    Some(Part {
        dims: part,
        runs: vec![(start as u64, kept * inside[axis + 1])],
    })
}

/// Fewer neighbours than this say little about an axis.
const FEWEST: usize = 16;

/// The first indices of the innermost axis, as many as fit, of every index of all others.
pub(super) fn inner(dims: &[usize], most: usize) -> Option<Part> {
    let last = *dims.last()?;
    let rows: usize = dims[..dims.len() - 1].iter().product();
    let kept = (most / rows.max(1)).min(last);
    if kept < FEWEST || kept == last {
        return None;
    }
    let mut part = dims.to_vec();
    *part.last_mut()? = kept;
    Some(Part {
        dims: part,
        runs: (0..rows).map(|row| ((row * last) as u64, kept)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::{DType, Shape, View};

    fn counted(dims: &[usize]) -> View {
        let count: usize = dims.iter().product();
        let bytes: Vec<u8> = (0..count).flat_map(|n| (n as f32).to_le_bytes()).collect();
        View::new(
            DType::F32,
            Shape::from(dims.iter().map(|dim| *dim as u64).collect::<Vec<_>>()),
            bytes.into(),
        )
        .unwrap()
    }

    #[test]
    fn the_outer_part_holds_the_element_it_is_asked_for() {
        let dims = [2, 50, 4];
        for around in [0u64, 3, 199, 200, 391, 399] {
            let part = outer(&dims, 40, around).unwrap();
            let values = part.read(&counted(&dims)).unwrap();
            assert_eq!((part.dims.as_slice(), values.len()), (&[1, 10, 4][..], 40));
            assert!(values.contains(&(around as f64)), "{around} in {values:?}");
        }
    }

    #[test]
    fn the_inner_part_has_some_of_every_row() {
        let dims = [3, 4, 100];
        let part = inner(&dims, 12 * 20).unwrap();
        let values = part.read(&counted(&dims)).unwrap();
        assert_eq!(part.dims, [3, 4, 20]);
        assert_eq!(
            (values[0], values[19], values[20], values[239]),
            (0.0, 19.0, 100.0, 1119.0)
        );
    }

    #[test]
    fn what_fits_has_no_parts() {
        assert_eq!(outer(&[4, 4], 16, 0), None);
        assert_eq!(inner(&[4, 4], 16), None);
    }
}
