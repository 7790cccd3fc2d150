//! One tensor's dtype, shape and bytes, read in place.
//!
//! A view never copies what it shows: transposed, sliced, expanded (stride 0), reversed and overlapping views are strides
//! over the same bytes. Element `i` lies at `offset + Σ i_k · stride_k`, in elements. Bounds are checked once, when the
//! view is made; after that every index of the shape is safe to read.
//!
//! [`View::chunk`] is how everyone reads: row-major little-endian bytes of a run of elements, borrowed when they already
//! lie like that in the file, gathered into the caller's scratch when they do not.

use crate::{Bytes, DType, Packing, Shape, Shrunk};
use std::{ops::Range, sync::Arc};

/// Why bytes do not make a tensor. Numbers, not prose: the caller knows the file and the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    #[error("the shape {shape} has more elements than can be counted")]
    TooMany { shape: Shape },
    #[error("the shape {shape} of {dtype} is not a whole number of blocks")]
    BrokenBlock { shape: Shape, dtype: DType },
    #[error("{shape} of {dtype} takes {expected} bytes, {found} are there")]
    Length {
        shape: Shape,
        dtype: DType,
        expected: u64,
        found: u64,
    },
    #[error(
        "{shape} with strides {strides:?} from element {offset} reaches outside its {found} bytes"
    )]
    OutOfBounds {
        shape: Shape,
        strides: Vec<i64>,
        offset: i128,
        found: u64,
    },
    #[error("{rank} sizes but {strides} strides")]
    Rank { rank: usize, strides: usize },
    #[error("{dtype} is packed and cannot be read with strides")]
    Packed { dtype: DType },
}

/// How codes become numbers: `(code - zero_point) * scale`.
#[derive(Clone, Debug, PartialEq)]
pub enum Quant {
    Tensor {
        scale: f64,
        zero_point: f64,
    },
    /// One scale and zero point for each index along `axis`.
    Channel {
        axis: usize,
        scales: Vec<f64>,
        zero_points: Vec<f64>,
    },
}

/// One tensor, borrowed from its source.
#[derive(Clone, Debug)]
pub struct View {
    dtype: DType,
    shape: Shape,
    strides: Vec<i64>,
    offset: u64,
    elements: u64,
    bytes: Bytes,
    big_endian: bool,
    conjugate: bool,
    negate: bool,
    quant: Option<Arc<Quant>>,
}

impl View {
    /// A row-major little-endian tensor that is exactly `bytes`.
    pub fn new(dtype: DType, shape: Shape, bytes: Bytes) -> Result<Self, ViewError> {
        let elements = shape.elements().ok_or_else(|| ViewError::TooMany {
            shape: shape.clone(),
        })?;
        let expected = byte_len(dtype, &shape, elements)?;
        if expected != bytes.len() as u64 {
            return Err(ViewError::Length {
                shape,
                dtype,
                expected,
                found: bytes.len() as u64,
            });
        }
        let strides = shape.row_major().ok_or_else(|| ViewError::TooMany {
            shape: shape.clone(),
        })?;
        Ok(Self {
            dtype,
            shape,
            strides,
            offset: 0,
            elements,
            bytes,
            big_endian: false,
            conjugate: false,
            negate: false,
            quant: None,
        })
    }

    /// A tensor with strides and an offset, both in elements, over a storage. Every index is checked to lie inside.
    pub fn strided(
        dtype: DType,
        shape: Shape,
        strides: Vec<i64>,
        offset: u64,
        bytes: Bytes,
    ) -> Result<Self, ViewError> {
        if strides.len() != shape.rank() {
            return Err(ViewError::Rank {
                rank: shape.rank(),
                strides: strides.len(),
            });
        }
        let elements = shape.elements().ok_or_else(|| ViewError::TooMany {
            shape: shape.clone(),
        })?;
        let held: u64 = match dtype.packing() {
            // A zero-width string has no bytes to be outside of.
            Packing::Bytes(0) => u64::MAX,
            Packing::Bytes(n) => bytes.len() as u64 / n as u64,
            Packing::Bits(bits) => bytes.len() as u64 * 8 / bits as u64,
            Packing::Block {
                elements,
                bytes: size,
            } => bytes.len() as u64 / size as u64 * elements as u64,
        };
        if elements > 0 {
            let (mut low, mut high) = (i128::from(offset), i128::from(offset));
            for (dim, stride) in shape.dims().iter().zip(&strides) {
                // A dimension of one element takes no step, whatever its stride says (torch writes arbitrary ones).
                let reach = i128::from(*stride) * i128::from(dim - 1);
                if reach < 0 {
                    low += reach;
                } else {
                    high += reach;
                }
            }
            if low < 0 || high >= i128::from(held) {
                return Err(ViewError::OutOfBounds {
                    shape,
                    strides,
                    offset: i128::from(offset),
                    found: bytes.len() as u64,
                });
            }
        }
        // Strides that are never stepped are made row-major, so "contiguous" has one meaning.
        let canonical = shape.row_major().ok_or_else(|| ViewError::TooMany {
            shape: shape.clone(),
        })?;
        let strides: Vec<i64> = shape
            .dims()
            .iter()
            .zip(strides.iter().zip(canonical))
            .map(|(dim, (stride, canonical))| {
                if *dim <= 1 || elements == 0 {
                    canonical
                } else {
                    *stride
                }
            })
            .collect();
        let offset = if elements == 0 { 0 } else { offset };
        Ok(Self {
            dtype,
            shape,
            strides,
            offset,
            elements,
            bytes,
            big_endian: false,
            conjugate: false,
            negate: false,
            quant: None,
        })
    }

    /// The file stores elements most significant byte first.
    pub fn big_endian(mut self, yes: bool) -> Self {
        self.big_endian = yes && self.dtype.swap_unit() > 1;
        self
    }

    /// torch's lazy conjugate and negative bits: the stored values are to be conjugated / negated on reading.
    pub fn lazy_bits(mut self, conjugate: bool, negate: bool) -> Self {
        self.conjugate = conjugate && self.dtype.kind() == crate::Kind::Complex;
        self.negate = negate;
        self
    }

    pub fn quantized(mut self, quant: Quant) -> Self {
        self.quant = Some(Arc::new(quant));
        self
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    pub fn quant(&self) -> Option<&Quant> {
        self.quant.as_deref()
    }

    /// How many elements the shape has.
    pub fn len(&self) -> u64 {
        self.elements
    }

    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Bytes of the row-major form; `None` for a strided view of a packed type.
    pub fn byte_len(&self) -> Option<u64> {
        self.dtype.byte_len(self.elements)
    }

    /// Bytes of storage the elements really occupy at most: what reading it all can cost. An expanded view claims many
    /// elements and holds few.
    pub fn stored_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The addresses of [`View::stored_len`]'s bytes.
    pub fn place(&self) -> Range<usize> {
        let start = self.bytes.as_ptr().addr();
        start..start + self.bytes.len()
    }

    /// See [`crate::Storage::check`]: ask after reading.
    pub fn check(&self) -> Result<(), Shrunk> {
        self.bytes.check()
    }

    fn is_row_major(&self) -> bool {
        let mut step = 1i64;
        for (dim, stride) in self.shape.dims().iter().zip(&self.strides).rev() {
            if *dim != 1 && *stride != step {
                return false;
            }
            step = step.saturating_mul((*dim).min(i64::MAX as u64) as i64);
        }
        true
    }

    /// All the row-major little-endian bytes, when the file holds them just so. No copy is made.
    pub fn contiguous(&self) -> Option<&[u8]> {
        if self.elements == 0 {
            return Some(&[]);
        }
        if self.big_endian || self.conjugate || self.negate || !self.is_row_major() {
            return None;
        }
        let start = match self.dtype.packing() {
            Packing::Bytes(n) => self.offset as usize * n,
            Packing::Bits(_) | Packing::Block { .. } if self.offset == 0 => 0,
            Packing::Bits(_) | Packing::Block { .. } => return None,
        };
        let len = self.byte_len()? as usize;
        self.bytes.get(start..start + len)
    }

    /// Row-major little-endian bytes of elements `start .. start + count`, borrowed when possible, else gathered into
    /// `scratch`. For packed types `start` must begin a byte (a block); they have no strides to follow.
    ///
    /// # Panics
    /// When the run is not inside the tensor, or splits a packed byte or block. Both are the caller's arithmetic.
    pub fn chunk<'a>(&'a self, start: u64, count: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        assert!(
            start + count as u64 <= self.elements,
            "a chunk lies inside its tensor"
        );
        if let Some(all) = self.contiguous() {
            return match self.dtype.packing() {
                Packing::Bytes(n) => &all[start as usize * n..(start as usize + count) * n],
                Packing::Bits(bits) => {
                    let first = start as usize * bits;
                    assert!(
                        first.is_multiple_of(8),
                        "a chunk of packed elements begins at a byte"
                    );
                    &all[first / 8..(first + count * bits).div_ceil(8)]
                }
                Packing::Block { elements, bytes } => {
                    assert!(
                        (start as usize).is_multiple_of(elements),
                        "a chunk of blocks begins at a block"
                    );
                    &all[start as usize / elements * bytes
                        ..(start as usize + count).div_ceil(elements) * bytes]
                }
            };
        }
        scratch.clear();
        match self.dtype.packing() {
            Packing::Bytes(n) => {
                scratch.reserve(count * n);
                self.gather(start, count, n, scratch);
                self.resolve(scratch);
            }
            // A sliced packed tensor has no bytes of its own; its elements are read one at a time (`View::element`).
            Packing::Bits(_) | Packing::Block { .. } => {
                panic!("a strided view of a packed type has no chunks")
            }
        }
        scratch
    }

    /// Appends elements `start .. start + count` in row-major order, walking the strides run by run.
    fn gather(&self, start: u64, count: usize, n: usize, out: &mut Vec<u8>) {
        let dims = self.shape.dims();
        let mut index = self.shape.unravel(start);
        let mut left = count;
        let all = self.bytes.as_slice();
        while left > 0 {
            let at = self.position(&index);
            let (inner, stride) = match (dims.last(), self.strides.last()) {
                (Some(dim), Some(stride)) => (*dim - index[dims.len() - 1], *stride),
                _ => (1, 1),
            };
            let run = left.min(usize::try_from(inner).unwrap_or(usize::MAX));
            gather_run(all, at, stride, run, n, out);
            left -= run;
            if left == 0 {
                break;
            }
            // Next row: carry into the dimension before the last.
            let mut k = dims.len() - 1;
            index[k] += run as u64;
            while k > 0 && index[k] == dims[k] {
                index[k] = 0;
                k -= 1;
                index[k] += 1;
            }
        }
    }

    /// Of a view of two dimensions: appends runs of columns of some rows, as little-endian bytes, one after the other. False, and nothing
    /// appended, where an element alone has no bytes or not the whole of its meaning: packed types and codes with a scale.
    ///
    /// Elements that lie far apart each wait for memory. Copied by a loop that does nothing else they wait together, which is several
    /// times as fast as [`View::chunk`] run by run.
    ///
    /// # Panics
    /// When there are not two dimensions, or a run lies outside them.
    pub fn gather_runs(
        &self,
        rows: impl IntoIterator<Item = u64>,
        runs: &[Range<u64>],
        out: &mut Vec<u8>,
    ) -> bool {
        let (Packing::Bytes(n), None) = (self.dtype.packing(), &self.quant) else {
            return false;
        };
        let (&[height, width], &[down, across]) = (self.shape.dims(), &self.strides[..]) else {
            panic!("runs are of rows and columns")
        };
        assert!(
            runs.iter()
                .all(|run| run.start <= run.end && run.end <= width),
            "runs lie inside their row"
        );
        let (all, from) = (self.bytes.as_slice(), out.len());
        for row in rows {
            assert!(row < height, "a row lies inside its tensor");
            let begin = self.offset as i64 + row as i64 * down;
            for run in runs.iter().filter(|run| !run.is_empty()) {
                gather_run(
                    all,
                    begin + run.start as i64 * across,
                    across,
                    (run.end - run.start) as usize,
                    n,
                    out,
                );
            }
        }
        self.resolve(&mut out[from..]);
        true
    }

    fn position(&self, index: &[u64]) -> i64 {
        let steps: i64 = index
            .iter()
            .zip(&self.strides)
            .map(|(i, stride)| *i as i64 * stride)
            .sum();
        self.offset as i64 + steps
    }

    /// Byte order and lazy bits, on gathered bytes.
    fn resolve(&self, bytes: &mut [u8]) {
        let unit = self.dtype.swap_unit();
        if self.big_endian {
            bytes.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        }
        if self.conjugate {
            // The imaginary part follows the real one; its sign is the top bit of its last byte.
            bytes
                .chunks_exact_mut(2 * unit)
                .for_each(|pair| *pair.last_mut().expect("two units") ^= 0x80);
        }
        if self.negate {
            negate(self.dtype, bytes);
        }
    }

    /// The little-endian bytes of one element, for any packing: a packed element is alone in its low bits, an element
    /// of a block comes as its block and the position inside it.
    pub fn element<'a>(&'a self, index: &[u64], scratch: &'a mut Vec<u8>) -> (&'a [u8], usize) {
        let at = self.position(index) as usize;
        scratch.clear();
        match self.dtype.packing() {
            Packing::Bytes(n) => {
                scratch.extend_from_slice(&self.bytes[at * n..(at + 1) * n]);
                self.resolve(scratch);
                (scratch, 0)
            }
            Packing::Bits(bits) => {
                let mut value = 0u8;
                for bit in 0..bits {
                    let place = at * bits + bit;
                    value |= (self.bytes[place / 8] >> (place % 8) & 1) << bit;
                }
                scratch.push(value);
                (scratch, 0)
            }
            Packing::Block { elements, bytes } => {
                let block = at / elements;
                (
                    &self.bytes[block * bytes..(block + 1) * bytes],
                    at % elements,
                )
            }
        }
    }

    /// The same elements under another shape, offset and strides, all already known to lie inside this view.
    fn restrided(
        &self,
        shape: Vec<u64>,
        strides: Vec<i64>,
        offset: u64,
        quant: Option<Arc<Quant>>,
    ) -> Self {
        let shape = Shape::from(shape);
        let elements = shape
            .elements()
            .expect("a part has no more elements than the whole");
        Self {
            shape,
            strides,
            offset,
            elements,
            quant,
            ..self.clone()
        }
    }

    /// One cut for each leading dimension; dimensions without a cut stay whole.
    ///
    /// # Panics
    /// When a cut lies outside its dimension or there are more cuts than dimensions: parse them with
    /// [`crate::slice::parse`], which checks.
    pub fn slice(&self, cuts: &[crate::slice::Cut]) -> Self {
        use crate::slice::Cut;
        assert!(
            cuts.len() <= self.shape.rank(),
            "as many cuts as dimensions at most"
        );
        let (mut shape, mut strides, mut start) = (Vec::new(), Vec::new(), self.offset as i64);
        let mut quant = self.quant.clone();
        // Only an empty view has strides too large to multiply, and it never steps: hence `wrapping_`.
        // Channel quantization follows its axis through the cuts.
        for (axis, (dim, stride)) in self.shape.dims().iter().zip(&self.strides).enumerate() {
            let cut = cuts.get(axis).copied().unwrap_or(Cut::Range {
                start: 0,
                step: 1,
                len: *dim,
            });
            match cut {
                Cut::Index(i) => {
                    assert!(i < *dim, "an index inside its dimension");
                    start = start.wrapping_add((i as i64).wrapping_mul(*stride));
                }
                Cut::Range {
                    start: first,
                    step,
                    len,
                } => {
                    if len > 0 {
                        start = start.wrapping_add((first as i64).wrapping_mul(*stride));
                    }
                    shape.push(len);
                    // A range of one index takes no step, and its step may be anything.
                    strides.push(if len > 1 {
                        stride.wrapping_mul(step)
                    } else {
                        1
                    });
                }
            }
            if let Some(Quant::Channel {
                axis: along,
                scales,
                zero_points,
            }) = self.quant.as_deref()
                && *along == axis
            {
                quant = Some(Arc::new(match cut {
                    Cut::Index(i) => Quant::Tensor {
                        scale: scales[i as usize],
                        zero_point: zero_points[i as usize],
                    },
                    Cut::Range {
                        start: first,
                        step,
                        len,
                    } => {
                        let picked = |all: &[f64]| {
                            (0..len as i64)
                                .map(|i| all[(first as i64 + i * step) as usize])
                                .collect()
                        };
                        Quant::Channel {
                            axis: shape.len() - 1,
                            scales: picked(scales),
                            zero_points: picked(zero_points),
                        }
                    }
                }));
            }
        }
        let offset = if shape.contains(&0) { 0 } else { start as u64 };
        self.restrided(shape, strides, offset, quant)
    }

    /// The stored codes instead of the numbers they stand for: quantized and floating-point elements as integers of the
    /// same width, blocks as their bytes (the last dimension becomes blocks by bytes). `None` where there is no such
    /// integer, or for a part of a view of blocks.
    pub fn codes(&self) -> Option<Self> {
        let plain = Self {
            conjugate: false,
            negate: false,
            quant: None,
            ..self.clone()
        };
        let dtype = match self.dtype {
            DType::Block(block) => {
                let mut dims = self.shape.dims().to_vec();
                let row = dims.pop().unwrap_or(1);
                dims.extend([row / block.elements() as u64, block.bytes() as u64]);
                self.contiguous()?;
                return Self::new(DType::U8, Shape::from(dims), self.bytes.clone()).ok();
            }
            DType::QI8 => DType::I8,
            DType::QI32 => DType::I32,
            DType::F4 | DType::OnnxF4 | DType::QU4X2 => DType::OnnxU4,
            DType::QU2X4 => DType::OnnxU2,
            dtype if matches!(dtype.kind(), crate::Kind::Int | crate::Kind::Bool) => dtype,
            dtype => match (dtype.swap_unit(), dtype.itemsize()?) {
                (_, 1) => DType::U8,
                (2, 2) => DType::U16,
                (4, 4) => DType::U32,
                (8, 8) => DType::U64,
                _ => return None,
            },
        };
        Some(Self { dtype, ..plain })
    }

    /// The dimensions in another order.
    ///
    /// # Panics
    /// When `order` is not a permutation of the dimensions.
    pub fn permute(&self, order: &[usize]) -> Self {
        let mut seen = vec![false; self.shape.rank()];
        for axis in order {
            assert!(
                !std::mem::replace(&mut seen[*axis], true),
                "each dimension once"
            );
        }
        assert_eq!(order.len(), self.shape.rank(), "every dimension");
        let shape = order.iter().map(|axis| self.shape.dims()[*axis]).collect();
        let strides = order.iter().map(|axis| self.strides[*axis]).collect();
        let quant = self.quant.as_deref().map(|quant| {
            Arc::new(match quant {
                Quant::Channel {
                    axis,
                    scales,
                    zero_points,
                } => Quant::Channel {
                    axis: order
                        .iter()
                        .position(|old| old == axis)
                        .expect("each dimension once"),
                    scales: scales.clone(),
                    zero_points: zero_points.clone(),
                },
                Quant::Tensor { .. } => quant.clone(),
            })
        });
        self.restrided(shape, strides, self.offset, quant)
    }

    /// A dimension as several: `[.., h*d, ..]` to `[.., h, d, ..]`, the first the slowest. `None` when the sizes do not multiply to the
    /// dimension, or when it carries a scale for each of its indices, which two dimensions cannot name.
    pub fn split(&self, axis: usize, sizes: &[u64]) -> Option<Self> {
        let dim = *self.shape.dims().get(axis)?;
        if Shape::from(sizes.to_vec()).elements() != Some(dim) {
            return None;
        }
        let mut steps = vec![0i64; sizes.len()];
        let mut step = self.strides[axis];
        for (slot, size) in steps.iter_mut().zip(sizes).rev() {
            *slot = step;
            step = step.saturating_mul((*size).max(1).min(i64::MAX as u64) as i64);
        }
        let quant = match self.quant.as_deref() {
            Some(Quant::Channel { axis: along, .. }) if *along == axis && sizes.len() != 1 => {
                return None;
            }
            Some(Quant::Channel {
                axis: along,
                scales,
                zero_points,
            }) if *along > axis => {
                let axis = along + sizes.len() - 1;
                Some(Arc::new(Quant::Channel {
                    axis,
                    scales: scales.clone(),
                    zero_points: zero_points.clone(),
                }))
            }
            _ => self.quant.clone(),
        };
        let (mut shape, mut strides) = (self.shape.dims().to_vec(), self.strides.clone());
        shape.splice(axis..=axis, sizes.iter().copied());
        strides.splice(axis..=axis, steps);
        Some(self.restrided(shape, strides, self.offset, quant))
    }

    /// `count` neighbouring dimensions as one, when one stride can step through them; `None` when the elements lie otherwise.
    pub fn merge(&self, axis: usize, count: usize) -> Option<Self> {
        let range = axis..axis.checked_add(count)?;
        let dims = self.shape.dims().get(range.clone())?;
        let whole: u64 = if dims.contains(&0) {
            0
        } else {
            dims.iter().product()
        };
        if count == 0 {
            return None;
        }
        let mut inner: Option<(i64, u64)> = None;
        for (dim, stride) in dims
            .iter()
            .zip(&self.strides[range.clone()])
            .rev()
            .filter(|(dim, _)| **dim != 1)
        {
            match inner {
                Some((step, size))
                    if self.elements > 0 && *stride != step.checked_mul(size as i64)? =>
                {
                    return None;
                }
                Some((step, size)) => inner = Some((step, size.saturating_mul(*dim))),
                None => inner = Some((*stride, *dim)),
            }
        }
        let quant = match self.quant.as_deref() {
            Some(Quant::Channel {
                axis: along,
                scales,
                zero_points,
            }) if *along >= axis => {
                if range.contains(along) && dims[along - axis] != whole {
                    return None;
                }
                let axis = if range.contains(along) {
                    axis
                } else {
                    along + 1 - count
                };
                Some(Arc::new(Quant::Channel {
                    axis,
                    scales: scales.clone(),
                    zero_points: zero_points.clone(),
                }))
            }
            _ => self.quant.clone(),
        };
        let (mut shape, mut strides) = (self.shape.dims().to_vec(), self.strides.clone());
        shape.splice(range.clone(), [whole]);
        strides.splice(range, [inner.map_or(1, |(step, _)| step)]);
        Some(self.restrided(shape, strides, self.offset, quant))
    }

    /// Without a dimension of one element; `None` when it has another number of them.
    pub fn squeeze(&self, axis: usize) -> Option<Self> {
        (*self.shape.dims().get(axis)? == 1).then(|| {
            let mut cuts: Vec<crate::slice::Cut> = self.shape.dims()[..axis]
                .iter()
                .map(|dim| crate::slice::Cut::Range {
                    start: 0,
                    step: 1,
                    len: *dim,
                })
                .collect();
            cuts.push(crate::slice::Cut::Index(0));
            self.slice(&cuts)
        })
    }

    /// With a dimension of one element more, before `axis`; `None` when there is no such place.
    pub fn unsqueeze(&self, axis: usize) -> Option<Self> {
        if axis > self.shape.rank() {
            return None;
        }
        let quant = match self.quant.as_deref() {
            Some(Quant::Channel {
                axis: along,
                scales,
                zero_points,
            }) if *along >= axis => Some(Arc::new(Quant::Channel {
                axis: along + 1,
                scales: scales.clone(),
                zero_points: zero_points.clone(),
            })),
            _ => self.quant.clone(),
        };
        let (mut shape, mut strides) = (self.shape.dims().to_vec(), self.strides.clone());
        shape.insert(axis, 1);
        strides.insert(axis, 1);
        Some(self.restrided(shape, strides, self.offset, quant))
    }

    /// The scale and zero point of the `flat`-th element.
    pub fn quant_at(&self, flat: u64) -> Option<(f64, f64)> {
        match self.quant.as_deref()? {
            Quant::Tensor { scale, zero_point } => Some((*scale, *zero_point)),
            Quant::Channel {
                axis,
                scales,
                zero_points,
            } => {
                let inner: u64 = self.shape.dims()[axis + 1..].iter().product();
                let channel = (flat / inner.max(1) % self.shape.dims()[*axis].max(1)) as usize;
                Some((*scales.get(channel)?, *zero_points.get(channel)?))
            }
        }
    }
}

fn byte_len(dtype: DType, shape: &Shape, elements: u64) -> Result<u64, ViewError> {
    if let Packing::Block { elements: per, .. } = dtype.packing() {
        // Blocks run along the last dimension and never cross a row.
        let row = shape.dims().last().copied().unwrap_or(1);
        if row % per as u64 != 0 {
            return Err(ViewError::BrokenBlock {
                shape: shape.clone(),
                dtype,
            });
        }
    }
    dtype.byte_len(elements).ok_or_else(|| ViewError::TooMany {
        shape: shape.clone(),
    })
}

fn gather_run(all: &[u8], at: i64, stride: i64, run: usize, n: usize, out: &mut Vec<u8>) {
    let item = |i: i64| &all[i as usize * n..(i as usize + 1) * n];
    match (stride, n) {
        (1, _) => out.extend_from_slice(&all[at as usize * n..(at as usize + run) * n]),
        // The common widths as fixed-size copies, which the compiler turns into plain loads and stores.
        (_, 2) => (0..run as i64).for_each(|i| {
            out.extend_from_slice(<&[u8; 2]>::try_from(item(at + i * stride)).expect("two bytes"));
        }),
        (_, 4) => (0..run as i64).for_each(|i| {
            out.extend_from_slice(<&[u8; 4]>::try_from(item(at + i * stride)).expect("four bytes"));
        }),
        (_, 8) => (0..run as i64).for_each(|i| {
            out.extend_from_slice(
                <&[u8; 8]>::try_from(item(at + i * stride)).expect("eight bytes"),
            );
        }),
        _ => (0..run as i64).for_each(|i| out.extend_from_slice(item(at + i * stride))),
    }
}

/// Negates little-endian elements in place: sign bits for floats, two's complement for integers.
fn negate(dtype: DType, bytes: &mut [u8]) {
    match dtype.kind() {
        crate::Kind::Float | crate::Kind::Complex => {
            let unit = dtype.swap_unit();
            // The sign of an x87 value is in its tenth byte; the last six are padding.
            let sign = if unit == 16 { 9 } else { unit - 1 };
            bytes
                .chunks_exact_mut(unit)
                .for_each(|value| value[sign] ^= 0x80);
        }
        crate::Kind::Int => bytes.chunks_exact_mut(dtype.swap_unit()).for_each(|value| {
            let mut carry = true;
            for byte in value {
                let (flipped, overflow) = (!*byte).overflowing_add(u8::from(carry));
                *byte = flipped;
                carry = overflow;
            }
        }),
        crate::Kind::Bool | crate::Kind::Quantized | crate::Kind::Opaque => {}
    }
}
