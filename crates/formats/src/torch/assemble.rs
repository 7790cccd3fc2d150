//! Whole tensors from the pieces that ranks saved: each piece is copied to its place when somebody reads the tensor.

use super::layout::{Layout, decode_error};
use crate::{cache::Cache, contents::Lazy, error::Fault};
use std::sync::Arc;
use twinscope_tensor::{Bytes, DType, Packing, ReadError, Shape, View};

/// One piece of a tensor and the index of its first element in the whole.
pub(super) struct Piece {
    pub(super) offsets: Vec<u64>,
    pub(super) part: Part,
}

/// A piece's values: at hand, or packed with only its shape known.
pub(super) enum Part {
    Layout(Layout),
    Packed {
        shape: Shape,
        open: Box<dyn Fn() -> Result<Layout, Fault> + Send + Sync>,
    },
}

impl Part {
    fn shape(&self) -> &Shape {
        match self {
            Part::Layout(layout) => &layout.shape,
            Part::Packed { shape, .. } => shape,
        }
    }

    fn open(&self) -> Result<Layout, Fault> {
        match self {
            Part::Layout(layout) => Ok(layout.clone()),
            Part::Packed { open, .. } => open(),
        }
    }
}

/// A tensor in pieces.
pub(super) struct Assembly {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) pieces: Vec<Piece>,
    pub(super) cache: Arc<Cache>,
}

impl Assembly {
    /// Whether every piece lies inside, and together they have as many elements as the whole.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let total = self.shape.elements().ok_or_else(|| Fault::Overflow {
            what: format!("a shape of {}", self.shape),
        })?;
        if self.dtype.byte_len(total).is_none()
            || !matches!(self.dtype.packing(), Packing::Bytes(_))
        {
            return Err(Fault::Unsupported {
                what: format!("{} of {} in pieces", self.shape, self.dtype),
            });
        }
        let mut sum = 0u64;
        for piece in &self.pieces {
            let shape = piece.part.shape();
            let inside = shape.rank() == self.shape.rank()
                && piece.offsets.len() == self.shape.rank()
                && shape
                    .dims()
                    .iter()
                    .zip(&piece.offsets)
                    .zip(self.shape.dims())
                    .all(|((size, offset), whole)| {
                        offset.checked_add(*size).is_some_and(|end| end <= *whole)
                    });
            if !inside {
                return Err(Fault::OutOfBounds {
                    what: format!(
                        "a piece of {shape} at {:?} of {}",
                        piece.offsets, self.shape
                    ),
                });
            }
            if let Part::Layout(layout) = &piece.part
                && layout.dtype != self.dtype
            {
                return Err(Fault::BadDtype {
                    what: format!("a piece of {} in a tensor of {}", layout.dtype, self.dtype),
                });
            }
            sum = sum.saturating_add(shape.elements().unwrap_or(u64::MAX));
        }
        match sum.cmp(&total) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Less => Err(Fault::Hole {
                what: format!(
                    "{} pieces hold {sum} of the {total} elements of {}",
                    self.pieces.len(),
                    self.shape
                ),
            }),
            std::cmp::Ordering::Greater => Err(Fault::Overlap {
                what: format!(
                    "{} pieces hold {sum} elements, {} has {total}",
                    self.pieces.len(),
                    self.shape
                ),
            }),
        }
    }

    fn assemble(&self) -> Result<View, Fault> {
        if let [Piece { part, .. }] = self.pieces.as_slice() {
            // One piece is the whole; it may still be packed, but need not be copied.
            let layout = part.open()?;
            if layout.shape != self.shape || layout.dtype != self.dtype {
                return Err(Fault::BadShape {
                    what: format!(
                        "{} of {} where {} of {} is promised",
                        layout.shape, layout.dtype, self.shape, self.dtype
                    ),
                });
            }
            return layout.view().map_err(|error| Fault::Io {
                what: error.to_string(),
            });
        }
        let len = self
            .dtype
            .byte_len(self.shape.elements().unwrap_or(0))
            .unwrap_or(0);
        let bytes: Bytes = self.cache.make_slice(&self.name, len, &mut |out| {
            self.pieces
                .iter()
                .try_for_each(|piece| self.place(piece, out))
        })?;
        View::new(self.dtype, self.shape.clone(), bytes).map_err(Fault::from)
    }

    /// Copies a piece to its place, a row of its last dimension at a time.
    fn place(&self, piece: &Piece, out: &mut [u8]) -> Result<(), Fault> {
        let layout = piece.part.open()?;
        if layout.dtype != self.dtype || layout.shape != *piece.part.shape() {
            return Err(Fault::BadShape {
                what: format!(
                    "a piece is {} of {}, {} of {} is promised",
                    layout.shape,
                    layout.dtype,
                    piece.part.shape(),
                    self.dtype
                ),
            });
        }
        let view = layout.view().map_err(|error| Fault::Io {
            what: error.to_string(),
        })?;
        let item = self.dtype.itemsize().unwrap_or(1);
        let strides = self.shape.row_major().unwrap_or_default();
        let row = layout.shape.dims().last().copied().unwrap_or(1);
        let mut scratch = Vec::new();
        let mut at = 0;
        while at < view.len() {
            let index = layout.shape.unravel(at);
            let place: u64 = index
                .iter()
                .zip(&piece.offsets)
                .zip(&strides)
                .map(|((index, offset), stride)| (index + offset) * *stride as u64)
                .sum();
            let start = place as usize * item;
            let values = view.chunk(at, row as usize, &mut scratch);
            let target =
                out.get_mut(start..start + values.len())
                    .ok_or_else(|| Fault::OutOfBounds {
                        what: format!("a piece of {}", layout.shape),
                    })?;
            target.copy_from_slice(values);
            at += row;
        }
        view.check().map_err(|error| Fault::Truncated {
            what: error.to_string(),
        })
    }
}

impl Lazy for Assembly {
    fn view(&self) -> Result<View, ReadError> {
        self.assemble().map_err(decode_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::layout::Origin;

    fn assembly(pieces: Vec<(Vec<u64>, [u64; 2], Vec<u8>)>) -> Assembly {
        let pieces = pieces
            .into_iter()
            .map(|(offsets, shape, bytes)| {
                let layout =
                    Layout::row_major(DType::U8, Shape::from(shape), Origin::Ready(bytes.into()))
                        .unwrap();
                Piece {
                    offsets,
                    part: Part::Layout(layout),
                }
            })
            .collect();
        let cache = Arc::new(Cache::new(std::env::temp_dir(), 1 << 20));
        Assembly {
            name: "w".into(),
            dtype: DType::U8,
            shape: Shape::from([2, 3]),
            pieces,
            cache,
        }
    }

    #[test]
    fn columns_and_rows_come_together() {
        let whole = assembly(vec![
            (vec![0, 2], [2, 1], vec![3, 6]),
            (vec![0, 0], [2, 2], vec![1, 2, 4, 5]),
        ]);
        whole.check().unwrap();
        assert_eq!(
            whole.assemble().unwrap().contiguous().unwrap(),
            [1, 2, 3, 4, 5, 6]
        );
    }

    #[test]
    fn pieces_that_miss_some_elements_or_reach_outside_are_refused() {
        assert!(matches!(
            assembly(vec![(vec![0, 0], [2, 2], vec![1, 2, 4, 5])]).check(),
            Err(Fault::Hole { .. })
        ));
        assert!(matches!(
            assembly(vec![(vec![0, 2], [2, 2], vec![1, 2, 4, 5])]).check(),
            Err(Fault::OutOfBounds { .. })
        ));
        assert!(matches!(
            assembly(vec![(vec![0, u64::MAX], [2, 2], vec![1, 2, 4, 5])]).check(),
            Err(Fault::OutOfBounds { .. })
        ));
    }
}
