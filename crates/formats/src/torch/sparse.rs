//! Sparse tensors, shown as the whole tensors they stand for.
//!
//! The dense form is written when somebody reads it, in one pass over the sorted positions; listing only checks that
//! the parts fit each other.

use super::layout::{Layout, decode_error};
use crate::{cache::Cache, contents::Lazy, error::Fault, limits::Limits};
use std::sync::Arc;
use twinscope_tensor::{DType, Packing, ReadError, Shape, View};

/// How indices are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Coo,
    Csr,
    Csc,
    Bsr,
    Bsc,
}

impl Format {
    pub(super) fn parse(layout: &str) -> Option<Self> {
        Some(match layout {
            "torch.sparse_coo" => Format::Coo,
            "torch.sparse_csr" => Format::Csr,
            "torch.sparse_csc" => Format::Csc,
            "torch.sparse_bsr" => Format::Bsr,
            "torch.sparse_bsc" => Format::Bsc,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Format::Coo => "sparse_coo",
            Format::Csr => "sparse_csr",
            Format::Csc => "sparse_csc",
            Format::Bsr => "sparse_bsr",
            Format::Bsc => "sparse_bsc",
        }
    }
}

/// A sparse tensor: indices (for the compressed formats row pointers and column indices), values, and the whole shape.
pub(super) struct Sparse {
    pub(super) format: Format,
    /// COO: the indices. Else: compressed, then plain indices.
    pub(super) indices: Vec<Layout>,
    pub(super) values: Layout,
    pub(super) shape: Shape,
    pub(super) cache: Arc<Cache>,
    pub(super) limits: Limits,
}

/// Indices that are checked when the file is listed; larger ones wait until the tensor is read.
const CHECKED: u64 = 1 << 20;

/// One run of values and where it goes, in elements of the dense form.
type Place = (u64, u64);

impl Sparse {
    /// Whether the parts fit each other; for small indices also whether each lies inside.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let elements = self.shape.elements().ok_or_else(|| Fault::Overflow {
            what: format!("a shape of {}", self.shape),
        })?;
        if self.values.dtype.byte_len(elements).is_none()
            || !matches!(self.values.dtype.packing(), Packing::Bytes(_))
        {
            return Err(Fault::Overflow {
                what: format!("{} of {}", self.shape, self.values.dtype),
            });
        }
        let expected = if self.format == Format::Coo { 1 } else { 2 };
        if self.indices.len() != expected {
            return Err(Fault::CorruptPickle {
                what: format!(
                    "a {} tensor with {} index tensors",
                    self.format.name(),
                    self.indices.len()
                ),
            });
        }
        self.inner()?;
        if self.indices.iter().all(|part| part.origin.len() <= CHECKED) {
            self.places()?;
        }
        Ok(())
    }

    fn bad(&self, what: impl Into<String>) -> Fault {
        Fault::BadShape {
            what: format!(
                "a {} tensor of {}: {}",
                self.format.name(),
                self.shape,
                what.into()
            ),
        }
    }

    /// How many dense elements follow each position.
    fn inner(&self) -> Result<u64, Fault> {
        let (shape, values) = (self.shape.dims(), self.values.shape.dims());
        if self.format == Format::Coo {
            let rank = match self.indices[0].shape.dims() {
                [rank, count] if Some(count) == values.first() => {
                    usize::try_from(*rank).unwrap_or(usize::MAX)
                }
                other => {
                    return Err(self.bad(format!("indices of {other:?} for values of {values:?}")));
                }
            };
            if rank > shape.len() || shape[rank..] != values[1..] {
                return Err(self.bad(format!("{rank} index rows for values of {values:?}")));
            }
            // A zero elsewhere lets the whole be counted while a part of it cannot.
            let inner = Shape::from(shape[rank..].to_vec()).elements();
            return inner.ok_or_else(|| Fault::Overflow {
                what: format!("a shape of {}", self.shape),
            });
        }
        self.grid().map(|grid| grid.inner)
    }

    /// Where each run of values goes, sorted.
    fn places(&self) -> Result<Vec<Place>, Fault> {
        let inner = self.inner()?;
        let (count, item) = (
            self.values.shape.elements().unwrap_or(u64::MAX),
            self.values.dtype.itemsize().unwrap_or(1),
        );
        if count > self.values.origin.len() / item.max(1) as u64
            || self.values.shape.dims()[0] > self.values.origin.len()
        {
            return Err(Fault::Limit {
                what: format!("{} repeated values", self.values.shape),
            });
        }
        if self.shape.elements() == Some(0) && self.values.shape.dims()[0] > 0 {
            return Err(self.bad("values for a tensor without elements"));
        }
        let mut places = if self.format == Format::Coo {
            self.coo(inner)?
        } else {
            self.compressed()?
        };
        places.sort_unstable();
        Ok(places)
    }

    fn coo(&self, inner: u64) -> Result<Vec<Place>, Fault> {
        let indices = self.indices[0].integers()?;
        let (rank, count) = (
            self.indices[0].shape.dims()[0] as usize,
            self.indices[0].shape.dims()[1] as usize,
        );
        let mut places = Vec::with_capacity(count.min(indices.len().max(1)));
        for run in 0..count {
            let mut flat = 0u64;
            for (axis, size) in self.shape.dims()[..rank].iter().enumerate() {
                let index = indices[axis * count + run];
                let inside = u64::try_from(index).ok().filter(|index| index < size);
                flat = flat * size
                    + inside.ok_or_else(|| Fault::OutOfBounds {
                        what: format!("index {index} of a dimension of {size}"),
                    })?;
            }
            places.push((flat * inner, run as u64 * inner));
        }
        Ok(places)
    }

    /// How a compressed tensor is cut up: `batch + [rows, columns] + inner`, with `values` of
    /// `batch + [count] + blocks + inner`.
    fn grid(&self) -> Result<Grid, Fault> {
        let (shape, values, pointers) = (
            self.shape.dims(),
            self.values.shape.dims(),
            self.indices[0].shape.dims(),
        );
        let wrong = || self.bad(format!("pointers of {pointers:?} and values of {values:?}"));
        let batch = pointers.len().checked_sub(1).ok_or_else(wrong)?;
        let blocked = matches!(self.format, Format::Bsr | Format::Bsc);
        let inner_at = batch + if blocked { 3 } else { 1 };
        if batch + 2 > shape.len() || values.len() != shape.len() - 2 + if blocked { 3 } else { 1 }
        {
            return Err(wrong());
        }
        let plain = self.indices[1].shape.dims();
        let alike = pointers[..batch] == shape[..batch]
            && plain.get(..batch) == Some(&shape[..batch])
            && values[..batch] == shape[..batch];
        if !alike
            || plain.len() != batch + 1
            || plain[batch] != values[batch]
            || values[inner_at..] != shape[batch + 2..]
        {
            return Err(wrong());
        }
        let (height, width) = if blocked {
            (values[batch + 1], values[batch + 2])
        } else {
            (1, 1)
        };
        let (rows, columns) = (shape[batch], shape[batch + 1]);
        if height == 0
            || width == 0
            || !rows.is_multiple_of(height)
            || !columns.is_multiple_of(width)
        {
            return Err(self.bad(format!("blocks of [{height}, {width}]")));
        }
        // Values that repeat themselves by strides could stand for more places than the file pays for.
        let held = self
            .values
            .shape
            .elements()
            .and_then(|elements| self.values.dtype.byte_len(elements));
        if held.is_none_or(|held| held > self.values.origin.len()) {
            return Err(self.bad(format!(
                "values of {values:?} over {} bytes",
                self.values.origin.len()
            )));
        }
        let by_row = matches!(self.format, Format::Csr | Format::Bsr);
        let (lines, across) = if by_row {
            (rows / height, columns / width)
        } else {
            (columns / width, rows / height)
        };
        if pointers[batch] != lines + 1 {
            return Err(self.bad(format!(
                "{} pointers for {lines} rows or columns",
                pointers[batch]
            )));
        }
        let batches = shape[..batch].iter().product();
        let inner = shape[batch + 2..].iter().product();
        Ok(Grid {
            batches,
            count: values[batch],
            rows,
            columns,
            height,
            width,
            lines,
            across,
            by_row,
            inner,
        })
    }

    fn compressed(&self) -> Result<Vec<Place>, Fault> {
        let grid = self.grid()?;
        let (pointers, plain) = (self.indices[0].integers()?, self.indices[1].integers()?);
        let mut places = Vec::new();
        // Without values there is nothing to place, however many batches are claimed.
        let batches = if plain.is_empty() { 0 } else { grid.batches };
        for batch in 0..batches {
            let first = batch * (grid.lines + 1);
            for line in 0..grid.lines {
                let at = (first + line) as usize;
                let ends = [pointers[at], pointers[at + 1]];
                let span = u64::try_from(ends[0])
                    .ok()
                    .zip(u64::try_from(ends[1]).ok())
                    .filter(|(a, b)| a <= b && *b <= grid.count);
                let (start, end) = span.ok_or_else(|| Fault::OutOfBounds {
                    what: format!("pointers {ends:?} into {} values", grid.count),
                })?;
                for run in batch * grid.count + start..batch * grid.count + end {
                    let index = plain[run as usize];
                    let across = grid.across;
                    let other = u64::try_from(index).ok().filter(|index| *index < across);
                    let other = other.ok_or_else(|| Fault::OutOfBounds {
                        what: format!("index {index} of a dimension of {across}"),
                    })?;
                    let (row, column) = if grid.by_row {
                        (line, other)
                    } else {
                        (other, line)
                    };
                    grid.place(batch, row, column, run, &mut places);
                }
                // Overlapping spans could name every value once for each row.
                if places.len() as u64 > self.values.shape.elements().unwrap_or(0) {
                    return Err(self.bad("pointers that go over the values twice"));
                }
            }
        }
        Ok(places)
    }

    fn densify(&self) -> Result<View, Fault> {
        let dtype = self.values.dtype;
        let item = dtype.itemsize().unwrap_or(1);
        let elements = self.shape.elements().unwrap_or(0);
        let len = dtype.byte_len(elements).ok_or_else(|| Fault::Overflow {
            what: format!("{} of {dtype}", self.shape),
        })?;
        let stored = self
            .values
            .origin
            .len()
            .saturating_add(self.indices.iter().map(|part| part.origin.len()).sum());
        if len > self.limits.inflate_free && len / self.limits.inflate_ratio.max(1) > stored {
            return Err(Fault::Bomb {
                what: format!("{stored} bytes of a sparse tensor stand for {len}"),
            });
        }
        let (inner, places) = (self.inner()?, self.places()?);
        let run = usize::try_from(inner)
            .ok()
            .and_then(|inner| inner.checked_mul(item))
            .ok_or_else(|| self.bad("runs too long"))?;
        let values = self.values.view().map_err(|error| Fault::Io {
            what: error.to_string(),
        })?;
        let bytes = self.cache.make("a sparse tensor", len, &mut |out| {
            let written = |error: std::io::Error| Fault::Io {
                what: error.to_string(),
            };
            let (mut at, mut next, mut scratch) = (0u64, 0, Vec::new());
            let zeros = vec![0u8; 1 << 16];
            let pad = |out: &mut dyn std::io::Write, mut gap: u64| -> Result<(), Fault> {
                while gap > 0 {
                    let count = gap.min(zeros.len() as u64);
                    out.write_all(&zeros[..count as usize]).map_err(written)?;
                    gap -= count;
                }
                Ok(())
            };
            while next < places.len() && inner > 0 {
                let position = places[next].0;
                let mut sum = values
                    .chunk(places[next].1, inner as usize, &mut scratch)
                    .to_vec();
                next += 1;
                while next < places.len() && places[next].0 == position {
                    add(
                        dtype,
                        &mut sum,
                        values.chunk(places[next].1, inner as usize, &mut scratch),
                    )?;
                    next += 1;
                }
                pad(out, position * item as u64 - at)?;
                out.write_all(&sum).map_err(written)?;
                at = position * item as u64 + run as u64;
            }
            pad(out, len - at)
        })?;
        View::new(dtype, self.shape.clone(), bytes).map_err(Fault::from)
    }
}

/// The sizes of a compressed tensor.
struct Grid {
    batches: u64,
    /// Values, or blocks of them, in each batch.
    count: u64,
    rows: u64,
    columns: u64,
    height: u64,
    width: u64,
    /// Rows or columns of blocks, and how many blocks each is long.
    lines: u64,
    across: u64,
    by_row: bool,
    /// Dense elements that follow each position.
    inner: u64,
}

impl Grid {
    fn place(&self, batch: u64, row: u64, column: u64, run: u64, places: &mut Vec<Place>) {
        for y in 0..self.height {
            for x in 0..self.width {
                let row = batch * self.rows + row * self.height + y;
                let to = row * self.columns + column * self.width + x;
                let from = (run * self.height + y) * self.width + x;
                places.push((to * self.inner, from * self.inner));
            }
        }
    }
}

impl Lazy for Sparse {
    fn view(&self) -> Result<View, ReadError> {
        self.densify().map_err(decode_error)
    }
}

/// Adds runs of elements: what torch does with entries of one index.
fn add(dtype: DType, sum: &mut [u8], more: &[u8]) -> Result<(), Fault> {
    macro_rules! each {
        ($type:ty, $add:expr) => {
            for (a, b) in sum
                .chunks_exact_mut(size_of::<$type>())
                .zip(more.chunks_exact(size_of::<$type>()))
            {
                let x = <$type>::from_le_bytes((&*a).try_into().expect("one element"));
                let y = <$type>::from_le_bytes(b.try_into().expect("one element"));
                let add: fn($type, $type) -> $type = $add;
                a.copy_from_slice(&add(x, y).to_le_bytes());
            }
        };
    }
    match dtype {
        DType::F32 | DType::C64 => each!(f32, |x, y| x + y),
        DType::F64 | DType::C128 => each!(f64, |x, y| x + y),
        DType::F16 | DType::C32 => each!(half::f16, |x, y| half::f16::from_f32(
            x.to_f32() + y.to_f32()
        )),
        DType::Bf16 | DType::Bc32 => each!(half::bf16, |x, y| half::bf16::from_f32(
            x.to_f32() + y.to_f32()
        )),
        DType::U8 | DType::I8 => each!(u8, u8::wrapping_add),
        DType::U16 | DType::I16 => each!(u16, u16::wrapping_add),
        DType::U32 | DType::I32 => each!(u32, u32::wrapping_add),
        DType::U64 | DType::I64 => each!(u64, u64::wrapping_add),
        DType::Bool => each!(u8, |x, y| x | y),
        other => {
            return Err(Fault::Unsupported {
                what: format!("entries of {other} that share an index"),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::layout::Origin;

    fn layout(dtype: DType, shape: Vec<u64>, strides: Vec<i64>, bytes: Vec<u8>) -> Layout {
        Layout::new(dtype, shape.into(), strides, 0, Origin::Ready(bytes.into())).unwrap()
    }

    fn coo(shape: Vec<u64>, indices: Layout, values: Layout) -> Sparse {
        let cache = Arc::new(Cache::new(std::env::temp_dir(), 1 << 20));
        Sparse {
            format: Format::Coo,
            indices: vec![indices],
            values,
            shape: shape.into(),
            cache,
            limits: Limits::default(),
        }
    }

    #[test]
    fn entries_of_one_index_are_added_and_the_rest_is_zero() {
        let indices = layout(DType::U8, vec![1, 3], vec![3, 1], vec![2, 0, 2]);
        let sparse = coo(
            vec![4],
            indices,
            layout(DType::U8, vec![3], vec![1], vec![5, 1, 6]),
        );
        sparse.check().unwrap();
        assert_eq!(
            sparse.densify().unwrap().contiguous().unwrap(),
            [1, 0, 11, 0]
        );
    }

    #[test]
    fn an_index_outside_is_refused_when_listing() {
        let indices = layout(DType::U8, vec![1, 1], vec![1, 1], vec![9]);
        assert!(matches!(
            coo(
                vec![4],
                indices,
                layout(DType::U8, vec![1], vec![1], vec![5])
            )
            .check(),
            Err(Fault::OutOfBounds { .. })
        ));
    }

    #[test]
    fn sizes_that_overflow_behind_a_zero_are_no_panic() {
        let none = || layout(DType::U8, vec![1, 0], vec![1, 1], vec![]);
        let values = layout(DType::U8, vec![0, 1 << 40, 1 << 40], vec![1, 1, 1], vec![]);
        assert!(matches!(
            coo(vec![0, 1 << 40, 1 << 40], none(), values).check(),
            Err(Fault::Overflow { .. })
        ));
    }

    #[test]
    fn values_repeated_by_a_stride_of_zero_are_refused() {
        let indices = layout(DType::U8, vec![0, 1 << 40], vec![1, 1], vec![]);
        let values = layout(DType::U8, vec![1 << 40], vec![0], vec![1]);
        assert!(matches!(
            coo(vec![], indices, values).check(),
            Err(Fault::Limit { .. })
        ));
    }
}
