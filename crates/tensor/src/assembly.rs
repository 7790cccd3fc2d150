//! Several tensors, or one rearranged, as one [`Operand`]: nothing is copied and nothing is built.
//!
//! Whatever strides can say stays a [`View`] ([`Operand::view`] is then `Some`, the fast path). The rest is a small tree: parts one after
//! another, parts added up, an axis in another order or cut, dimensions merged. A run of the result in row-major order is read as runs
//! of the parts. Rearrangements move down the tree towards the views, so that runs stay long.
//!
//! Every constructor returns `None` when its numbers do not fit the shape.

use crate::{DType, Kind, Operand, Shape, Shrunk, View, decode, slice::Cut};
use std::sync::Arc;

/// One or more views under one shape.
#[derive(Clone, Debug)]
pub struct Assembly {
    shape: Shape,
    node: Node,
}

#[derive(Clone, Debug)]
enum Node {
    View(View),
    /// The parts one after another along `axis`.
    Concat {
        parts: Vec<Assembly>,
        axis: usize,
    },
    Sum {
        parts: Vec<Assembly>,
    },
    /// Index `i` along `axis` is `order[i]` inside.
    Reorder {
        inner: Box<Assembly>,
        axis: usize,
        order: Arc<[u64]>,
    },
    Range {
        inner: Box<Assembly>,
        axis: usize,
        start: u64,
    },
    /// Dimension `i` is `groups[i]` neighbouring dimensions inside; the row-major order is the same.
    Merged {
        inner: Box<Assembly>,
        groups: Vec<usize>,
    },
    /// The same row-major order under an unrelated shape.
    Flat {
        inner: Box<Assembly>,
    },
    /// Only over [`Node::Flat`]: everything else is permuted further down.
    Permuted {
        inner: Box<Assembly>,
        order: Vec<usize>,
    },
}

impl From<View> for Assembly {
    fn from(view: View) -> Self {
        Self {
            shape: view.shape().clone(),
            node: Node::View(view),
        }
    }
}

fn product(dims: &[u64]) -> u64 {
    if dims.contains(&0) {
        0
    } else {
        dims.iter().product()
    }
}

impl Assembly {
    fn new(dims: Vec<u64>, node: Node) -> Option<Self> {
        let shape = Shape::from(dims);
        shape.elements()?;
        Some(Self { shape, node })
    }

    fn dims(&self) -> &[u64] {
        self.shape.dims()
    }

    /// The parts one after another along `axis`; their other dimensions must be equal.
    pub fn concat(parts: Vec<Assembly>, axis: usize) -> Option<Self> {
        let first = parts.first()?;
        let mut dims = first.dims().to_vec();
        *dims.get_mut(axis)? = 0;
        for part in &parts {
            let fits = part.dims().len() == dims.len() && part.alike(first);
            let same = part
                .dims()
                .iter()
                .zip(first.dims())
                .enumerate()
                .all(|(at, (a, b))| at == axis || a == b);
            if !fits || !same {
                return None;
            }
            dims[axis] = dims[axis].checked_add(part.dims()[axis])?;
        }
        if parts.len() == 1 {
            return parts.into_iter().next();
        }
        Self::new(dims, Node::Concat { parts, axis })
    }

    /// The parts added up element by element: in f64, integers exactly.
    pub fn sum(parts: Vec<Assembly>) -> Option<Self> {
        let first = parts.first()?;
        if !parts
            .iter()
            .all(|part| part.shape == first.shape && part.alike(first))
        {
            return None;
        }
        if parts.len() == 1 {
            return parts.into_iter().next();
        }
        Self::new(first.dims().to_vec(), Node::Sum { parts })
    }

    /// Whether elements of both have as many numbers.
    fn alike(&self, other: &Self) -> bool {
        let (a, b) = (self.dtype(), other.dtype());
        a.has_numbers() == b.has_numbers() && a.values_per_element() == b.values_per_element()
    }

    /// The indices `order` of an axis, in that order; an index may come twice or never.
    pub fn reorder(self, axis: usize, order: impl Into<Arc<[u64]>>) -> Option<Self> {
        let order = order.into();
        let dim = *self.dims().get(axis)?;
        if order.iter().any(|index| *index >= dim) {
            return None;
        }
        if let Some((start, step)) = progression(&order) {
            if step == 1 && order.len() as u64 == dim {
                return Some(self);
            }
            if let Node::View(view) = &self.node {
                return Some(ranged(view, axis, start, step, order.len() as u64).into());
            }
        }
        let mut dims = self.dims().to_vec();
        dims[axis] = order.len() as u64;
        Self::new(
            dims,
            Node::Reorder {
                inner: Box::new(self),
                axis,
                order,
            },
        )
    }

    /// `len` indices of an axis from `start`.
    pub fn cut(self, axis: usize, start: u64, len: u64) -> Option<Self> {
        let dim = *self.dims().get(axis)?;
        if start.checked_add(len)? > dim {
            return None;
        }
        if len == dim {
            return Some(self);
        }
        let mut dims = self.dims().to_vec();
        dims[axis] = len;
        match self.node {
            Node::View(view) => Some(ranged(&view, axis, start, 1, len).into()),
            Node::Concat { parts, axis: along } if along != axis => {
                Self::concat(each(parts, |part| part.cut(axis, start, len))?, along)
            }
            Node::Concat { parts, axis: along } if len > 0 => {
                let (mut before, mut kept) = (0, Vec::new());
                for part in parts {
                    let size = part.dims()[axis];
                    let (from, to) = (start.max(before), (start + len).min(before + size));
                    if from < to {
                        kept.push(part.cut(axis, from - before, to - from)?);
                    }
                    before += size;
                }
                Self::concat(kept, along)
            }
            Node::Sum { parts } => Self::sum(each(parts, |part| part.cut(axis, start, len))?),
            Node::Reorder {
                inner,
                axis: along,
                order,
            } if along != axis => inner.cut(axis, start, len)?.reorder(along, order),
            Node::Reorder {
                inner,
                axis: along,
                order,
            } => inner.reorder(along, &order[start as usize..(start + len) as usize]),
            Node::Merged { inner, groups } if groups[axis] == 1 => {
                let at = groups[..axis].iter().sum();
                Self::new(
                    dims,
                    Node::Merged {
                        inner: Box::new(inner.cut(at, start, len)?),
                        groups,
                    },
                )
            }
            node => Self::new(
                dims,
                Node::Range {
                    inner: Box::new(Self {
                        shape: self.shape,
                        node,
                    }),
                    axis,
                    start,
                },
            ),
        }
    }

    /// The dimensions in another order.
    pub fn permute(self, order: &[usize]) -> Option<Self> {
        let rank = self.dims().len();
        let mut place = vec![usize::MAX; rank];
        for (new, old) in order.iter().enumerate() {
            if std::mem::replace(place.get_mut(*old)?, new) != usize::MAX {
                return None;
            }
        }
        if order.len() != rank {
            return None;
        }
        if order.is_sorted() {
            return Some(self);
        }
        let dims: Vec<u64> = order.iter().map(|old| self.dims()[*old]).collect();
        match self.node {
            Node::View(view) => Some(view.permute(order).into()),
            Node::Concat { parts, axis } => {
                Self::concat(each(parts, |part| part.permute(order))?, place[axis])
            }
            Node::Sum { parts } => Self::sum(each(parts, |part| part.permute(order))?),
            Node::Reorder {
                inner,
                axis,
                order: indices,
            } => inner.permute(order)?.reorder(place[axis], indices),
            Node::Range { inner, axis, start } => {
                let inner = Box::new(inner.permute(order)?);
                Self::new(
                    dims,
                    Node::Range {
                        inner,
                        axis: place[axis],
                        start,
                    },
                )
            }
            Node::Merged { inner, groups } => {
                let starts = starts(&groups);
                let inside: Vec<usize> = order
                    .iter()
                    .flat_map(|old| starts[*old]..starts[*old] + groups[*old])
                    .collect();
                let groups = order.iter().map(|old| groups[*old]).collect();
                Self::merged(inner.permute(&inside)?, dims, groups)
            }
            Node::Permuted {
                inner,
                order: before,
            } => {
                let order = order.iter().map(|old| before[*old]).collect();
                Self::new(dims, Node::Permuted { inner, order })
            }
            node @ Node::Flat { .. } => {
                let inner = Box::new(Self {
                    shape: self.shape,
                    node,
                });
                Self::new(
                    dims,
                    Node::Permuted {
                        inner,
                        order: order.to_vec(),
                    },
                )
            }
        }
    }

    /// `[.., h*d, ..]` to `[.., h, d, ..]`.
    pub fn split(self, axis: usize, sizes: &[u64]) -> Option<Self> {
        let dim = *self.dims().get(axis)?;
        if Shape::from(sizes.to_vec()).elements() != Some(dim) {
            return None;
        }
        let mut dims = self.dims().to_vec();
        dims.splice(axis..=axis, sizes.iter().copied());
        let shifted = |along: usize| {
            if along > axis {
                along + sizes.len() - 1
            } else {
                along
            }
        };
        let row = sizes.get(1..).map_or(0, product);
        match self.node {
            Node::View(ref view) => match view.split(axis, sizes) {
                Some(view) => Some(view.into()),
                None => self.flat(dims),
            },
            Node::Concat { parts, axis: along } if along != axis => {
                Self::concat(each(parts, |part| part.split(axis, sizes))?, shifted(along))
            }
            Node::Concat { parts, axis: along }
                if row > 0
                    && parts
                        .iter()
                        .all(|part| part.dims()[axis].is_multiple_of(row)) =>
            {
                let split = |part: Assembly| {
                    let mut sizes = sizes.to_vec();
                    sizes[0] = part.dims()[axis] / row;
                    part.split(axis, &sizes)
                };
                Self::concat(each(parts, split)?, along)
            }
            Node::Sum { parts } => Self::sum(each(parts, |part| part.split(axis, sizes))?),
            Node::Reorder {
                inner,
                axis: along,
                order,
            } if along != axis => inner.split(axis, sizes)?.reorder(shifted(along), order),
            Node::Range {
                inner,
                axis: along,
                start,
            } if along != axis => {
                let inner = Box::new(inner.split(axis, sizes)?);
                Self::new(
                    dims,
                    Node::Range {
                        inner,
                        axis: shifted(along),
                        start,
                    },
                )
            }
            Node::Merged { inner, mut groups } => {
                let at: usize = groups[..axis].iter().sum();
                let count = groups[axis];
                if count != 1 && inner.dims()[at..at + count] != *sizes {
                    return Self {
                        shape: self.shape,
                        node: Node::Merged { inner, groups },
                    }
                    .flat(dims);
                }
                let inner = if count == 1 {
                    inner.split(at, sizes)?
                } else {
                    *inner
                };
                groups.splice(axis..=axis, sizes.iter().map(|_| 1));
                Self::merged(inner, dims, groups)
            }
            _ => self.flat(dims),
        }
    }

    /// `count` neighbouring dimensions as one.
    pub fn merge(self, axis: usize, count: usize) -> Option<Self> {
        let range = axis..axis.checked_add(count)?;
        let whole = product(self.dims().get(range.clone())?);
        match count {
            0 => return None,
            1 => return Some(self),
            _ => {}
        }
        let mut dims = self.dims().to_vec();
        dims.splice(range.clone(), [whole]);
        let shifted = |along: usize| {
            if along >= range.end {
                along + 1 - count
            } else {
                along.min(axis)
            }
        };
        // A step along the first of the merged dimensions is still one step, along a later one it is many.
        let outermost = |along: usize, dims: &[u64]| {
            !range.contains(&along) || dims[axis..along].iter().all(|dim| *dim == 1)
        };
        match self.node {
            Node::View(view) => match view.merge(axis, count) {
                Some(view) => Some(view.into()),
                None => {
                    let mut groups = vec![1; view.shape().rank()];
                    groups.splice(range, [count]);
                    Self::merged(view.into(), dims, groups)
                }
            },
            Node::Concat { parts, axis: along } if outermost(along, self.shape.dims()) => {
                Self::concat(each(parts, |part| part.merge(axis, count))?, shifted(along))
            }
            Node::Sum { parts } => Self::sum(each(parts, |part| part.merge(axis, count))?),
            Node::Reorder {
                inner,
                axis: along,
                order,
            } if !range.contains(&along) => {
                inner.merge(axis, count)?.reorder(shifted(along), order)
            }
            Node::Range {
                inner,
                axis: along,
                start,
            } if !range.contains(&along) => {
                let inner = Box::new(inner.merge(axis, count)?);
                Self::new(
                    dims,
                    Node::Range {
                        inner,
                        axis: shifted(along),
                        start,
                    },
                )
            }
            Node::Merged { inner, mut groups } => {
                let all = groups[range.clone()].iter().sum();
                groups.splice(range, [all]);
                Self::merged(*inner, dims, groups)
            }
            Node::Flat { inner } => inner.flat(dims),
            node => {
                let mut groups = vec![1; self.shape.rank()];
                groups.splice(range, [count]);
                Self::merged(
                    Self {
                        shape: self.shape,
                        node,
                    },
                    dims,
                    groups,
                )
            }
        }
    }

    /// Without a dimension of one element.
    pub fn squeeze(self, axis: usize) -> Option<Self> {
        if *self.dims().get(axis)? != 1 {
            return None;
        }
        let mut dims = self.dims().to_vec();
        dims.remove(axis);
        let shifted = |along: usize| if along > axis { along - 1 } else { along };
        match self.node {
            Node::View(view) => view.squeeze(axis).map(Self::from),
            Node::Concat { parts, axis: along } if along != axis => {
                Self::concat(each(parts, |part| part.squeeze(axis))?, shifted(along))
            }
            Node::Sum { parts } => Self::sum(each(parts, |part| part.squeeze(axis))?),
            Node::Reorder {
                inner,
                axis: along,
                order,
            } if along != axis => inner.squeeze(axis)?.reorder(shifted(along), order),
            Node::Range {
                inner,
                axis: along,
                start,
            } if along != axis => {
                let inner = Box::new(inner.squeeze(axis)?);
                Self::new(
                    dims,
                    Node::Range {
                        inner,
                        axis: shifted(along),
                        start,
                    },
                )
            }
            Node::Merged {
                mut inner,
                mut groups,
            } => {
                let at: usize = groups[..axis].iter().sum();
                for _ in 0..groups[axis] {
                    *inner = inner.squeeze(at)?;
                }
                groups.remove(axis);
                Self::merged(*inner, dims, groups)
            }
            _ => self.flat(dims),
        }
    }

    /// With a dimension of one element more, before `axis`.
    pub fn unsqueeze(self, axis: usize) -> Option<Self> {
        if axis > self.dims().len() {
            return None;
        }
        let mut dims = self.dims().to_vec();
        dims.insert(axis, 1);
        let shifted = |along: usize| if along >= axis { along + 1 } else { along };
        match self.node {
            Node::View(view) => view.unsqueeze(axis).map(Self::from),
            Node::Concat { parts, axis: along } => {
                Self::concat(each(parts, |part| part.unsqueeze(axis))?, shifted(along))
            }
            Node::Sum { parts } => Self::sum(each(parts, |part| part.unsqueeze(axis))?),
            Node::Reorder {
                inner,
                axis: along,
                order,
            } => inner.unsqueeze(axis)?.reorder(shifted(along), order),
            Node::Range {
                inner,
                axis: along,
                start,
            } => {
                let inner = Box::new(inner.unsqueeze(axis)?);
                Self::new(
                    dims,
                    Node::Range {
                        inner,
                        axis: shifted(along),
                        start,
                    },
                )
            }
            Node::Merged { inner, mut groups } => {
                groups.insert(axis, 0);
                Self::merged(*inner, dims, groups)
            }
            _ => self.flat(dims),
        }
    }

    /// The same values in row-major order under one dimension.
    pub fn flatten(self) -> Option<Self> {
        match self.dims().len() {
            0 => self.unsqueeze(0),
            rank => self.merge(0, rank),
        }
    }

    /// As few layers as can be: groups of one are no groups.
    fn merged(inner: Self, dims: Vec<u64>, groups: Vec<usize>) -> Option<Self> {
        if groups.iter().all(|count| *count == 1) {
            return Some(inner);
        }
        if let Node::View(view) = &inner.node
            && let Some(view) = groups
                .iter()
                .try_fold((view.clone(), 0), |(view, at), count| {
                    let next = match count {
                        0 => view.unsqueeze(at)?,
                        1 => view,
                        _ => view.merge(at, *count)?,
                    };
                    Some((next, at + 1))
                })
        {
            return Some(view.0.into());
        }
        Self::new(
            dims,
            Node::Merged {
                inner: Box::new(inner),
                groups,
            },
        )
    }

    fn flat(self, dims: Vec<u64>) -> Option<Self> {
        let inner = match self.node {
            Node::Flat { inner } => inner,
            node => Box::new(Self {
                shape: self.shape,
                node,
            }),
        };
        Self::new(dims, Node::Flat { inner })
    }

    fn leaves<'a>(&'a self, visit: &mut dyn FnMut(&'a View)) {
        match &self.node {
            Node::View(view) => visit(view),
            Node::Concat { parts, .. } | Node::Sum { parts } => {
                parts.iter().for_each(|part| part.leaves(visit));
            }
            Node::Reorder { inner, .. }
            | Node::Range { inner, .. }
            | Node::Merged { inner, .. }
            | Node::Flat { inner }
            | Node::Permuted { inner, .. } => inner.leaves(visit),
        }
    }

    /// Elements `start .. start + count` behind what `out` holds.
    fn append<N: Number>(&self, start: u64, count: usize, room: &mut Room<N>, out: &mut Vec<N>) {
        if count == 0 {
            return;
        }
        match &self.node {
            Node::View(view) => {
                N::of_view(view, start, count, &mut room.bytes, &mut room.run);
                out.extend_from_slice(&room.run);
            }
            Node::Concat { parts, axis } => {
                let inner = product(&self.dims()[axis + 1..]);
                let row = self.dims()[*axis] * inner;
                segments(start, count, row, |outer, mut from, mut len| {
                    for part in parts {
                        let size = part.dims()[*axis] * inner;
                        if from < size {
                            let run = len.min(size - from);
                            part.append(outer * size + from, run as usize, room, out);
                            len -= run;
                            from = 0;
                        } else {
                            from -= size;
                        }
                        if len == 0 {
                            break;
                        }
                    }
                });
            }
            Node::Sum { parts } => {
                let at = out.len();
                let mut part_values = Vec::new();
                for (nth, part) in parts.iter().enumerate() {
                    if nth == 0 {
                        part.append(start, count, room, out);
                        continue;
                    }
                    part_values.clear();
                    part.append(start, count, room, &mut part_values);
                    out[at..]
                        .iter_mut()
                        .zip(&part_values)
                        .for_each(|(total, value)| *total = total.plus(*value));
                }
            }
            Node::Reorder { inner, axis, order } => {
                let size = product(&self.dims()[axis + 1..]);
                let (row, inside) = (order.len() as u64 * size, inner.dims()[*axis] * size);
                let mut runs = Runs::default();
                segments(start, count, row, |outer, from, len| {
                    segments(from, len as usize, size, |nth, from, len| {
                        let begin = outer * inside + order[nth as usize] * size + from;
                        if let Some((begin, len)) = runs.push(begin, len) {
                            inner.append(begin, len, room, out);
                        }
                    });
                });
                runs.rest(|begin, len| inner.append(begin, len, room, out));
            }
            Node::Range {
                inner,
                axis,
                start: first,
            } => {
                let size = product(&self.dims()[axis + 1..]);
                let (row, inside) = (self.dims()[*axis] * size, inner.dims()[*axis] * size);
                segments(start, count, row, |outer, from, len| {
                    inner.append(
                        outer * inside + first * size + from,
                        len as usize,
                        room,
                        out,
                    );
                });
            }
            Node::Merged { inner, .. } | Node::Flat { inner } => {
                inner.append(start, count, room, out);
            }
            Node::Permuted { inner, order } => {
                let strides = inner.shape.row_major().expect("a shape that was counted");
                let strides: Vec<u64> = order.iter().map(|old| strides[*old] as u64).collect();
                let mut runs = Runs::default();
                for flat in start..start + count as u64 {
                    let begin = self
                        .shape
                        .unravel(flat)
                        .iter()
                        .zip(&strides)
                        .map(|(index, stride)| index * stride)
                        .sum();
                    if let Some((begin, len)) = runs.push(begin, 1) {
                        inner.append(begin, len, room, out);
                    }
                }
                runs.rest(|begin, len| inner.append(begin, len, room, out));
            }
        }
    }

    fn read<N: Number>(&self, start: u64, count: usize, scratch: &mut Vec<u8>, out: &mut Vec<N>) {
        assert!(
            start + count as u64 <= Operand::len(self),
            "a run lies inside its tensor"
        );
        let mut room = Room {
            bytes: std::mem::take(scratch),
            run: Vec::new(),
        };
        self.append(start, count, &mut room, out);
        *scratch = room.bytes;
    }
}

impl Operand for Assembly {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn dtype(&self) -> DType {
        let mut coarsest: Option<DType> = None;
        self.leaves(&mut |view| {
            if coarsest.is_none_or(|dtype| precision(view.dtype()) < precision(dtype)) {
                coarsest = Some(view.dtype());
            }
        });
        coarsest.expect("an assembly has a part")
    }

    fn view(&self) -> Option<&View> {
        match &self.node {
            Node::View(view) => Some(view),
            _ => None,
        }
    }

    fn f64_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<f64>,
    ) -> bool {
        if let Node::View(view) = &self.node {
            return view.f64_values(start, count, scratch, out);
        }
        out.clear();
        if !self.dtype().has_numbers() {
            return false;
        }
        self.read(start, count, scratch, out);
        true
    }

    fn int_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<i128>,
    ) -> bool {
        if let Node::View(view) = &self.node {
            return view.int_values(start, count, scratch, out);
        }
        out.clear();
        let mut whole = true;
        self.leaves(&mut |view| whole &= matches!(view.dtype().kind(), Kind::Int | Kind::Bool));
        if whole {
            self.read(start, count, scratch, out);
        }
        whole
    }

    fn check(&self) -> Result<(), Shrunk> {
        let mut first = Ok(());
        self.leaves(&mut |view| {
            if first.is_ok() {
                first = view.check();
            }
        });
        first
    }
}

/// Smaller is coarser: floats by their fraction bits, then the integers, the widest first, because it holds the others.
fn precision(dtype: DType) -> u32 {
    match dtype {
        DType::F4 | DType::OnnxF4 | DType::F4E2M1FnX2 | DType::F8E8M0Fnu | DType::Block(_) => 1,
        DType::F8E5M2 | DType::F8E5M2Fnuz | DType::F6E3M2 => 2,
        DType::F8E4M3Fn | DType::F8E4M3Fnuz | DType::F6E2M3 => 3,
        DType::Bf16 | DType::Bc32 => 7,
        DType::F16 | DType::C32 => 10,
        DType::F32 | DType::C64 => 23,
        DType::F64 | DType::C128 => 52,
        DType::F80 | DType::C160 => 63,
        other => 1000 - 8 * other.itemsize().unwrap_or(0).min(100) as u32,
    }
}

fn ranged(view: &View, axis: usize, start: u64, step: i64, len: u64) -> View {
    let mut cuts: Vec<Cut> = view.shape().dims()[..axis]
        .iter()
        .map(|dim| Cut::Range {
            start: 0,
            step: 1,
            len: *dim,
        })
        .collect();
    cuts.push(Cut::Range { start, step, len });
    view.slice(&cuts)
}

/// `start, start + step, ..`
fn progression(order: &[u64]) -> Option<(u64, i64)> {
    let first = order.first().copied().unwrap_or(0);
    let step = order
        .get(1)
        .map_or(1, |second| *second as i64 - first as i64);
    order
        .windows(2)
        .all(|pair| pair[1] as i64 - pair[0] as i64 == step)
        .then_some((first, step))
}

fn each(
    parts: Vec<Assembly>,
    make: impl Fn(Assembly) -> Option<Assembly>,
) -> Option<Vec<Assembly>> {
    parts.into_iter().map(make).collect()
}

fn starts(groups: &[usize]) -> Vec<usize> {
    groups
        .iter()
        .scan(0, |at, count| Some(std::mem::replace(at, *at + count)))
        .collect()
}

/// A run cut at every multiple of `row`: which row, where in it, how many.
fn segments(start: u64, count: usize, row: u64, mut visit: impl FnMut(u64, u64, u64)) {
    let (mut at, end) = (start, start + count as u64);
    while at < end {
        let from = at % row;
        let len = (row - from).min(end - at);
        visit(at / row, from, len);
        at += len;
    }
}

/// Joins runs that follow each other.
#[derive(Default)]
struct Runs {
    begin: u64,
    len: u64,
}

impl Runs {
    /// The run before, when this one does not continue it.
    fn push(&mut self, begin: u64, len: u64) -> Option<(u64, usize)> {
        if self.len > 0 && self.begin + self.len == begin {
            self.len += len;
            return None;
        }
        let before = std::mem::replace(self, Self { begin, len });
        (before.len > 0).then_some((before.begin, before.len as usize))
    }

    fn rest(self, read: impl FnOnce(u64, usize)) {
        if self.len > 0 {
            read(self.begin, self.len as usize);
        }
    }
}

struct Room<N> {
    bytes: Vec<u8>,
    run: Vec<N>,
}

/// What elements are read as.
trait Number: Copy {
    fn of_view(view: &View, start: u64, count: usize, scratch: &mut Vec<u8>, out: &mut Vec<Self>);
    fn plus(self, other: Self) -> Self;
}

impl Number for f64 {
    fn of_view(view: &View, start: u64, count: usize, scratch: &mut Vec<u8>, out: &mut Vec<Self>) {
        // Parts of an assembly all have numbers, or it is not read.
        let _ = decode::f64_values(view, start, count, scratch, out);
    }
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl Number for i128 {
    fn of_view(view: &View, start: u64, count: usize, scratch: &mut Vec<u8>, out: &mut Vec<Self>) {
        view.int_values(start, count, scratch, out);
    }
    fn plus(self, other: Self) -> Self {
        self + other
    }
}
