//! A part of an operand with its dimensions in any order: NumPy's slices, and the planes and runs that a page shows.
//!
//! Of a [`View`] it is again a view. Of anything else it is strides over the operand's row-major order, read run by run, so a small part of a
//! large tensor costs what the part costs, whatever the tensor is put together from.

use crate::{DType, Operand, Shape, Shrunk, View, slice::Cut};
use std::ops::Range;

/// A part of an operand.
pub struct Picked<'a> {
    from: From<'a>,
}

enum From<'a> {
    View(View),
    Strided {
        inner: &'a dyn Operand,
        shape: Shape,
        strides: Vec<i64>,
        offset: i64,
    },
}

/// Which part of a tensor is looked at as rows and columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plane {
    /// The dimension that runs down; `None` for a single row.
    pub rows: Option<usize>,
    /// The dimension that runs across; `None` for a single column.
    pub cols: Option<usize>,
    /// One index for every dimension; those of `rows` and `cols` are not looked at.
    pub at: Vec<u64>,
    pub down: Range<u64>,
    pub across: Range<u64>,
}

/// Why there is no such plane.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    #[error("dimension {axis} does not exist; the shape is {shape}")]
    Axis { axis: usize, shape: Shape },
    #[error("rows and columns are both dimension {axis}")]
    Twice { axis: usize },
    #[error("{given} indices for {} dimensions; the shape is {shape}", .shape.rank())]
    Count { given: usize, shape: Shape },
    #[error("index {index} is out of range for dimension {axis}; the shape is {shape}")]
    Index {
        index: u64,
        axis: usize,
        shape: Shape,
    },
    #[error("{} to {} is not a range of {what}, of which there are {size}", .range.start, .range.end)]
    Range {
        range: Range<u64>,
        what: &'static str,
        size: u64,
    },
}

impl<'a> Picked<'a> {
    /// One cut for each leading dimension, as [`View::slice`] takes them.
    pub fn slice(operand: &'a dyn Operand, cuts: &[Cut]) -> Self {
        if let Some(view) = operand.view() {
            return Self {
                from: From::View(view.slice(cuts)),
            };
        }
        let dims = operand.shape().dims();
        let row_major = operand.shape().row_major().unwrap_or_default();
        let (mut shape, mut strides, mut offset) = (Vec::new(), Vec::new(), 0i64);
        for (axis, (dim, stride)) in dims.iter().zip(row_major).enumerate() {
            match cuts.get(axis).copied().unwrap_or(Cut::Range {
                start: 0,
                step: 1,
                len: *dim,
            }) {
                Cut::Index(index) => offset += index as i64 * stride,
                Cut::Range { start, step, len } => {
                    if len > 0 {
                        offset += start as i64 * stride;
                    }
                    shape.push(len);
                    strides.push(if len > 1 { stride * step } else { 1 });
                }
            }
        }
        Self {
            from: From::Strided {
                inner: operand,
                shape: shape.into(),
                strides,
                offset,
            },
        }
    }

    /// Rows and columns of a plane: always two dimensions.
    pub fn plane(operand: &'a dyn Operand, plane: &Plane) -> Result<Self, PlaneError> {
        let shape = operand.shape();
        plane.check(shape)?;
        let cut = |axis: usize| match axis {
            _ if plane.rows == Some(axis) => Cut::Range {
                start: plane.down.start,
                step: 1,
                len: plane.down.end - plane.down.start,
            },
            _ if plane.cols == Some(axis) => Cut::Range {
                start: plane.across.start,
                step: 1,
                len: plane.across.end - plane.across.start,
            },
            _ => Cut::Index(plane.at[axis]),
        };
        let cuts: Vec<Cut> = (0..shape.rank()).map(cut).collect();
        let mut picked = Self::slice(operand, &cuts);
        if let (Some(rows), Some(cols)) = (plane.rows, plane.cols)
            && rows > cols
        {
            picked = picked.swapped();
        }
        if plane.rows.is_none() {
            picked = picked.with_one(0);
        }
        if plane.cols.is_none() {
            picked = picked.with_one(1);
        }
        Ok(picked)
    }

    /// Elements in row-major order as one row.
    pub fn run(operand: &'a dyn Operand, range: Range<u64>) -> Result<Self, PlaneError> {
        let size = operand.len();
        if range.start > range.end || range.end > size {
            return Err(PlaneError::Range {
                range,
                what: "elements",
                size,
            });
        }
        if let Some(row) = operand.view().and_then(flat) {
            let cut = Cut::Range {
                start: range.start,
                step: 1,
                len: range.end - range.start,
            };
            return Ok(Self {
                from: From::View(row.slice(&[Cut::Index(0), cut])),
            }
            .with_one(0));
        }
        let shape = Shape::from([1, range.end - range.start]);
        Ok(Self {
            from: From::Strided {
                inner: operand,
                shape,
                strides: vec![0, 1],
                offset: range.start as i64,
            },
        })
    }

    fn swapped(self) -> Self {
        let from = match self.from {
            From::View(view) => From::View(view.permute(&[1, 0])),
            From::Strided {
                inner,
                shape,
                mut strides,
                offset,
            } => {
                strides.swap(0, 1);
                From::Strided {
                    inner,
                    shape: Shape::from([shape.dims()[1], shape.dims()[0]]),
                    strides,
                    offset,
                }
            }
        };
        Self { from }
    }

    /// With a dimension of one index before `axis`.
    fn with_one(self, axis: usize) -> Self {
        let from = match self.from {
            From::View(view) => From::View(view.unsqueeze(axis).unwrap_or(view)),
            From::Strided {
                inner,
                shape,
                mut strides,
                offset,
            } => {
                let mut dims = shape.dims().to_vec();
                dims.insert(axis, 1);
                strides.insert(axis, 1);
                From::Strided {
                    inner,
                    shape: dims.into(),
                    strides,
                    offset,
                }
            }
        };
        Self { from }
    }

    /// Runs of the inner operand that make elements `start .. start + count`, in order.
    fn runs(&self, start: u64, count: usize, mut visit: impl FnMut(u64, usize)) {
        let From::Strided {
            shape,
            strides,
            offset,
            ..
        } = &self.from
        else {
            return;
        };
        let (Some(width), Some(stride)) = (shape.dims().last().copied(), strides.last().copied())
        else {
            if count > 0 {
                visit(*offset as u64, 1);
            }
            return;
        };
        let (mut at, end) = (start, start + count as u64);
        while at < end {
            let index = shape.unravel(at);
            let begin = offset
                + index
                    .iter()
                    .zip(strides)
                    .map(|(index, stride)| *index as i64 * stride)
                    .sum::<i64>();
            let run = (width - index[index.len() - 1]).min(end - at);
            if stride == 1 {
                visit(begin as u64, run as usize);
            } else {
                (0..run as i64).for_each(|i| visit((begin + i * stride) as u64, 1));
            }
            at += run;
        }
    }

    /// Where an element of the part lies in the operand's row-major order; `None` for a view, which has an order of its own.
    pub fn place(&self, flat: u64) -> Option<u64> {
        let mut place = None;
        self.runs(flat, 1, |begin, _| place = Some(begin));
        place
    }
}

/// All elements as one row, where one stride steps through them and each has bytes of its own.
fn flat(view: &View) -> Option<View> {
    view.dtype().itemsize().filter(|_| view.quant().is_none())?;
    match view.shape().rank() {
        0 => view.unsqueeze(0)?,
        rank => view.merge(0, rank)?,
    }
    .unsqueeze(0)
}

impl Plane {
    fn check(&self, shape: &Shape) -> Result<(), PlaneError> {
        let dims = shape.dims();
        if self.at.len() != dims.len() {
            return Err(PlaneError::Count {
                given: self.at.len(),
                shape: shape.clone(),
            });
        }
        if let (Some(rows), Some(cols)) = (self.rows, self.cols)
            && rows == cols
        {
            return Err(PlaneError::Twice { axis: rows });
        }
        for (axis, range, what) in [
            (self.rows, &self.down, "rows"),
            (self.cols, &self.across, "columns"),
        ] {
            let size = match axis {
                Some(axis) => *dims.get(axis).ok_or_else(|| PlaneError::Axis {
                    axis,
                    shape: shape.clone(),
                })?,
                None => 1,
            };
            if range.start > range.end || range.end > size {
                return Err(PlaneError::Range {
                    range: range.clone(),
                    what,
                    size,
                });
            }
        }
        for (axis, (index, dim)) in self.at.iter().zip(dims).enumerate() {
            if self.rows != Some(axis) && self.cols != Some(axis) && index >= dim {
                return Err(PlaneError::Index {
                    index: *index,
                    axis,
                    shape: shape.clone(),
                });
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Picked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Picked({})", self.shape())
    }
}

impl Operand for Picked<'_> {
    fn shape(&self) -> &Shape {
        match &self.from {
            From::View(view) => view.shape(),
            From::Strided { shape, .. } => shape,
        }
    }

    fn dtype(&self) -> DType {
        match &self.from {
            From::View(view) => view.dtype(),
            From::Strided { inner, .. } => inner.dtype(),
        }
    }

    fn view(&self) -> Option<&View> {
        match &self.from {
            From::View(view) => Some(view),
            From::Strided { .. } => None,
        }
    }

    fn f64_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<f64>,
    ) -> bool {
        let inner = match &self.from {
            From::View(view) => return view.f64_values(start, count, scratch, out),
            From::Strided { inner, .. } => *inner,
        };
        out.clear();
        let (mut run, mut known) = (Vec::new(), true);
        self.runs(start, count, |begin, len| {
            known &= inner.f64_values(begin, len, scratch, &mut run);
            out.extend_from_slice(&run);
        });
        known && inner.dtype().has_numbers()
    }

    fn int_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<i128>,
    ) -> bool {
        let inner = match &self.from {
            From::View(view) => return view.int_values(start, count, scratch, out),
            From::Strided { inner, .. } => *inner,
        };
        out.clear();
        let (mut run, mut known) = (Vec::new(), true);
        self.runs(start, count, |begin, len| {
            known &= inner.int_values(begin, len, scratch, &mut run);
            out.extend_from_slice(&run);
        });
        known
    }

    fn check(&self) -> Result<(), Shrunk> {
        match &self.from {
            From::View(view) => view.check(),
            From::Strided { inner, .. } => inner.check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Assembly, slice};

    fn counting(dims: &[u64]) -> View {
        let count = dims.iter().product::<u64>();
        let bytes: Vec<u8> = (0..count).flat_map(|n| (n as f32).to_le_bytes()).collect();
        View::new(DType::F32, Shape::new(dims), bytes.into()).unwrap()
    }

    fn values(operand: &dyn Operand) -> Vec<f64> {
        let mut out = Vec::new();
        assert!(operand.f64_values(0, operand.len() as usize, &mut Vec::new(), &mut out));
        out
    }

    /// The same numbers as a view and as something that is none.
    fn both() -> [Box<dyn Operand>; 2] {
        let whole = counting(&[2, 3, 4]);
        let halves = (0..2)
            .map(|i| {
                Assembly::from(whole.slice(&[Cut::Range {
                    start: i,
                    step: 1,
                    len: 1,
                }]))
            })
            .collect();
        let parts = Assembly::concat(halves, 0).unwrap();
        assert!(parts.view().is_none());
        [Box::new(whole), Box::new(parts)]
    }

    #[test]
    fn any_two_dimensions_are_rows_and_columns() {
        for operand in both() {
            let plane = |rows, cols, at: [u64; 3], down, across| {
                let plane = Plane {
                    rows,
                    cols,
                    at: at.to_vec(),
                    down,
                    across,
                };
                let picked = Picked::plane(&*operand, &plane).unwrap();
                (picked.shape().dims().to_vec(), values(&picked))
            };
            assert_eq!(
                plane(Some(1), Some(2), [1, 0, 0], 0..2, 1..3),
                (vec![2, 2], vec![13.0, 14.0, 17.0, 18.0])
            );
            assert_eq!(
                plane(Some(2), Some(0), [0, 2, 0], 0..2, 0..2),
                (vec![2, 2], vec![8.0, 20.0, 9.0, 21.0])
            );
            assert_eq!(
                plane(None, Some(1), [1, 0, 3], 0..1, 0..3),
                (vec![1, 3], vec![15.0, 19.0, 23.0])
            );
            assert_eq!(
                plane(Some(0), None, [0, 1, 1], 0..2, 0..1),
                (vec![2, 1], vec![5.0, 17.0])
            );
            assert_eq!(
                plane(None, None, [1, 2, 3], 0..1, 0..1),
                (vec![1, 1], vec![23.0])
            );
        }
    }

    #[test]
    fn a_slice_of_parts_is_the_slice_of_the_whole() {
        let [view, parts] = both();
        for text in [
            "[:, 1, ::2]",
            "[1]",
            "[..., -1]",
            "[::-1, :, 3:0:-2]",
            "[1, 2, 3]",
            "[:, 3:]",
        ] {
            let cuts = slice::parse(text, view.shape()).unwrap();
            let (a, b) = (Picked::slice(&*view, &cuts), Picked::slice(&*parts, &cuts));
            assert_eq!((a.shape(), values(&a)), (b.shape(), values(&b)), "{text}");
        }
    }

    #[test]
    fn a_run_is_one_row_of_the_flat_order() {
        for operand in both() {
            let run = Picked::run(&*operand, 10..14).unwrap();
            assert_eq!(
                (run.shape().dims().to_vec(), values(&run)),
                (vec![1, 4], vec![10.0, 11.0, 12.0, 13.0])
            );
            assert!(Picked::run(&*operand, 10..25).is_err());
        }
    }

    #[test]
    fn a_run_of_a_tensor_that_lies_in_one_piece_is_a_view_of_it() {
        let [whole, parts] = both();
        assert!(
            Picked::run(&*whole, 3..9).unwrap().view().is_some()
                && Picked::run(&*parts, 3..9).unwrap().view().is_none()
        );
        let turned = counting(&[2, 3]).permute(&[1, 0]);
        assert_eq!(
            values(&Picked::run(&turned, 1..4).unwrap()),
            [3.0, 1.0, 4.0]
        );
        let scalar = counting(&[]);
        let run = Picked::run(&scalar, 0..1).unwrap();
        assert_eq!(
            (run.shape().dims(), values(&run), run.view().is_some()),
            (&[1, 1][..], vec![0.0], true)
        );
        assert_eq!(
            Picked::run(&counting(&[3, 0]), 0..0)
                .unwrap()
                .shape()
                .dims(),
            [1, 0]
        );
    }

    #[test]
    fn what_lies_outside_is_an_error_with_its_numbers() {
        let view = counting(&[2, 3]);
        let said = |rows, cols, at: Vec<u64>, down, across| {
            Picked::plane(
                &view,
                &Plane {
                    rows,
                    cols,
                    at,
                    down,
                    across,
                },
            )
            .unwrap_err()
            .to_string()
        };
        assert_eq!(
            said(Some(2), Some(1), vec![0, 0], 0..1, 0..1),
            "dimension 2 does not exist; the shape is [2, 3]"
        );
        assert_eq!(
            said(Some(1), Some(1), vec![0, 0], 0..1, 0..1),
            "rows and columns are both dimension 1"
        );
        assert_eq!(
            said(Some(0), Some(1), vec![0], 0..1, 0..1),
            "1 indices for 2 dimensions; the shape is [2, 3]"
        );
        assert_eq!(
            said(None, Some(1), vec![2, 0], 0..1, 0..1),
            "index 2 is out of range for dimension 0; the shape is [2, 3]"
        );
        assert_eq!(
            said(Some(0), Some(1), vec![0, 0], 0..1, 2..4),
            "2 to 4 is not a range of columns, of which there are 3"
        );
    }
}
