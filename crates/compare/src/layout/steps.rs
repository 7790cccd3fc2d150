//! Steps carried out: parts and steps to two operands of one shape. Nothing is read.

use super::{Aligned, Evidence, Layout, LayoutError, Order, Step, Which, words};
use twinscope_tensor::{Assembly, Operand, Shape, View};

/// Longer axes than this are not reordered: the list of indices would be a tensor of its own.
const LONGEST_ORDER: u64 = 1 << 24;

/// Both sides after steps that were found before, here or elsewhere. Nothing is searched or read, so `by` says only that shapes fit: who
/// kept the steps keeps what spoke for them.
pub fn apply(
    steps: &[Step],
    reference: &[View],
    candidate: &[View],
) -> Result<Aligned, LayoutError> {
    aligned(steps.to_vec(), reference, candidate, Evidence::Shape)
}

/// The same, with what speaks for the steps.
pub(super) fn aligned(
    steps: Vec<Step>,
    reference: &[View],
    candidate: &[View],
    by: Evidence,
) -> Result<Aligned, LayoutError> {
    let (r, c) = run(&steps, reference, candidate)?;
    let text = words::text(candidate, r.shape(), &steps);
    Ok(Aligned {
        reference: boxed(r),
        candidate: boxed(c),
        layout: Layout { text, steps, by },
    })
}

/// A view itself where it is one: callers ask for it with [`Operand::view`], and it spares them a layer.
fn boxed(assembly: Assembly) -> Box<dyn Operand> {
    match assembly.view() {
        Some(view) => Box::new(view.clone()),
        None => Box::new(assembly),
    }
}

/// Reference and candidate, of one shape.
pub(super) fn run(
    steps: &[Step],
    reference: &[View],
    candidate: &[View],
) -> Result<(Assembly, Assembly), LayoutError> {
    let whole = |views: &[View]| {
        views
            .iter()
            .cloned()
            .map(Assembly::from)
            .collect::<Vec<_>>()
    };
    let (mut r, mut c) = (whole(reference), whole(candidate));
    for (nth, step) in steps.iter().enumerate() {
        if *step == Step::Flatten {
            for side in [&mut r, &mut c] {
                *side = side
                    .iter()
                    .cloned()
                    .map(Assembly::flatten)
                    .collect::<Option<_>>()
                    .unwrap_or_default();
            }
            continue;
        }
        let side = if step.side() == Which::Reference {
            &mut r
        } else {
            &mut c
        };
        let shapes = shapes(side);
        *side = one(step, std::mem::take(side)).ok_or_else(|| LayoutError::Step {
            nth,
            step: words::step(step),
            shapes,
        })?;
    }
    match (r.len(), c.len()) {
        (1, 1) if r[0].shape() == c[0].shape() => Ok((r.remove(0), c.remove(0))),
        _ => Err(LayoutError::Unequal {
            reference: shapes(&r),
            candidate: shapes(&c),
        }),
    }
}

/// The dimensions that steps, all of one side, make of its parts.
pub(super) fn assembled_dims(steps: &[Step], views: &[View]) -> Option<Vec<u64>> {
    let mut parts: Vec<Assembly> = views.iter().cloned().map(Assembly::from).collect();
    for step in steps {
        parts = one(step, parts)?;
    }
    match parts.as_slice() {
        [whole] => Some(whole.shape().dims().to_vec()),
        _ => None,
    }
}

fn shapes(parts: &[Assembly]) -> Vec<Shape> {
    parts.iter().map(|part| part.shape().clone()).collect()
}

fn one(step: &Step, parts: Vec<Assembly>) -> Option<Vec<Assembly>> {
    let each = |parts: Vec<Assembly>, change: &dyn Fn(Assembly) -> Option<Assembly>| {
        parts.into_iter().map(change).collect::<Option<Vec<_>>>()
    };
    match step {
        Step::Squeeze { axis } => each(parts, &|part| part.squeeze(*axis)),
        Step::Unsqueeze { axis } => each(parts, &|part| part.unsqueeze(*axis)),
        Step::Permute { order } => each(parts, &|part| part.permute(order)),
        Step::Split { axis, sizes } => each(parts, &|part| part.split(*axis, sizes)),
        Step::Merge { axis, count } => each(parts, &|part| part.merge(*axis, *count)),
        Step::Cut {
            axis, start, len, ..
        } => each(parts, &|part| part.cut(*axis, *start, *len)),
        Step::Reorder { axis, order, .. } => each(parts, &|part| {
            let dim = *part.shape().dims().get(*axis)?;
            part.reorder(*axis, indices(order, dim)?)
        }),
        Step::Keep { parts: kept, .. } => kept.iter().map(|nth| parts.get(*nth).cloned()).collect(),
        Step::Divide { axis, sizes, .. } => divided(&parts, *axis, sizes),
        Step::Concat {
            axis, parts: count, ..
        } => {
            // Numbers have no axis to lie along; they make one.
            let row = |part: Assembly| {
                if part.shape().rank() == 0 {
                    part.unsqueeze(0)
                } else {
                    Some(part)
                }
            };
            grouped(parts, *count, |group| {
                Assembly::concat(group.map(row).collect::<Option<_>>()?, *axis)
            })
        }
        Step::Sum { parts: count, .. } => {
            grouped(parts, *count, |group| Assembly::sum(group.collect()))
        }
        Step::Flatten => each(parts, &Assembly::flatten),
    }
}

/// The parts that these steps leave of a side, those of the other side left out.
pub(super) fn parts_after(steps: &[Step], side: Which, views: &[View]) -> Option<Vec<Assembly>> {
    let parts = views.iter().cloned().map(Assembly::from).collect();
    steps
        .iter()
        .filter(|step| step.side() == side)
        .try_fold(parts, |parts, step| one(step, parts))
}

/// Part by part, each cut into all of `sizes`.
fn divided(parts: &[Assembly], axis: usize, sizes: &[u64]) -> Option<Vec<Assembly>> {
    let total = sizes
        .iter()
        .try_fold(0u64, |sum, size| sum.checked_add(*size))?;
    let mut all = Vec::with_capacity(parts.len() * sizes.len());
    for part in parts {
        if *part.shape().dims().get(axis)? != total {
            return None;
        }
        let mut start = 0;
        for size in sizes {
            all.push(part.clone().cut(axis, start, *size)?);
            start += size;
        }
    }
    Some(all)
}

/// One of every `count` parts; zero is all of them.
fn grouped(
    parts: Vec<Assembly>,
    count: usize,
    join: impl Fn(std::iter::Take<&mut std::vec::IntoIter<Assembly>>) -> Option<Assembly>,
) -> Option<Vec<Assembly>> {
    let count = if count == 0 { parts.len() } else { count };
    if count == 0 || !parts.len().is_multiple_of(count) {
        return None;
    }
    let groups = parts.len() / count;
    let mut parts = parts.into_iter();
    (0..groups)
        .map(|_| join(parts.by_ref().take(count)))
        .collect()
}

/// Where each index of the ordered axis lies now; `None` when an axis of `dim` indices cannot be in this order.
fn indices(order: &Order, dim: u64) -> Option<Vec<u64>> {
    if dim > LONGEST_ORDER {
        return None;
    }
    match order {
        Order::Zigzag { ranks } => {
            let chunks = ranks
                .checked_mul(2)
                .filter(|chunks| *chunks > 0 && dim.is_multiple_of(*chunks))?;
            let size = dim / chunks;
            let place = |chunk: u64| {
                if chunk < *ranks {
                    2 * chunk
                } else {
                    2 * (chunks - 1 - chunk) + 1
                }
            };
            Some(
                (0..dim)
                    .map(|i| place(i / size) * size + i % size)
                    .collect(),
            )
        }
        Order::Unpack { groups, sizes } => unpacked(dim, *groups, sizes),
        Order::Pack { groups, sizes } => {
            let mut back = vec![0; dim as usize];
            for (natural, packed) in unpacked(dim, *groups, sizes)?.into_iter().enumerate() {
                back[packed as usize] = natural as u64;
            }
            Some(back)
        }
    }
}

fn unpacked(dim: u64, groups: u64, sizes: &[u64]) -> Option<Vec<u64>> {
    let total = sizes
        .iter()
        .try_fold(0u64, |sum, size| sum.checked_add(*size))?;
    if total != dim || groups == 0 || sizes.iter().any(|size| !size.is_multiple_of(groups)) {
        return None;
    }
    let (row, mut before, mut order) = (dim / groups, 0, Vec::with_capacity(dim as usize));
    for size in sizes {
        let share = size / groups;
        order.extend(
            (0..groups).flat_map(|group| (0..share).map(move |i| group * row + before + i)),
        );
        before += share;
    }
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zigzag_chunks_come_back_in_order() {
        // Two ranks hold chunks 0 and 3, 1 and 2.
        assert_eq!(
            indices(&Order::Zigzag { ranks: 2 }, 8),
            Some(vec![0, 1, 4, 5, 6, 7, 2, 3])
        );
        assert_eq!(indices(&Order::Zigzag { ranks: 2 }, 6), None);
        assert_eq!(indices(&Order::Zigzag { ranks: 0 }, 6), None);
    }

    #[test]
    fn packing_undoes_unpacking() {
        // Two groups of two queries, a key and a value.
        let sizes = vec![4, 2, 2];
        let unpack = Order::Unpack {
            groups: 2,
            sizes: sizes.clone(),
        };
        let unpack = indices(&unpack, 8).unwrap();
        assert_eq!(unpack, [0, 1, 4, 5, 2, 6, 3, 7]);
        let pack = indices(&Order::Pack { groups: 2, sizes }, 8).unwrap();
        assert!((0..8).all(|i| pack[unpack[i] as usize] == i as u64));
        let uneven = Order::Unpack {
            groups: 3,
            sizes: vec![4, 2, 2],
        };
        assert_eq!(indices(&uneven, 8), None);
    }
}
