//! Steps in words.

use super::{CutReason, KeepReason, Order, Step, Which};
use twinscope_tensor::{Shape, View};

/// `[1, 8, 76, 64] -> [76, 8, 64]: drop dim 0, swap dims 0 and 1`
pub(super) fn text(candidate: &[View], result: &Shape, steps: &[Step]) -> String {
    if steps.is_empty() {
        return result.to_string();
    }
    let from: Vec<Shape> = candidate.iter().map(|view| view.shape().clone()).collect();
    let words: Vec<String> = steps.iter().map(step).collect();
    format!("{} -> {result}: {}", shapes(&from), words.join(", "))
}

/// `[3, 4]`, `2 x [3, 4]` or `[3, 4] + [5, 4]`
pub(super) fn shapes(shapes: &[Shape]) -> String {
    match shapes {
        [] => "nothing".to_owned(),
        [one] => one.to_string(),
        [first, rest @ ..] if rest.iter().all(|shape| shape == first) => {
            format!("{} x {first}", shapes.len())
        }
        all => all
            .iter()
            .map(Shape::to_string)
            .collect::<Vec<_>>()
            .join(" + "),
    }
}

pub(super) fn step(step: &Step) -> String {
    match step {
        Step::Squeeze { axis } => format!("drop dim {axis}"),
        Step::Unsqueeze { axis } => format!("add dim {axis}"),
        Step::Permute { order } => permute(order),
        Step::Split { axis, sizes } => format!("split dim {axis} into {}", list(sizes, " x ")),
        Step::Merge { axis, count } => {
            format!("merge dims {axis} to {}", axis + count.saturating_sub(1))
        }
        Step::Concat { side, axis, parts } => {
            format!("concatenate {} along dim {axis}", some_parts(*side, *parts))
        }
        Step::Sum { side, parts } => format!("add up {}", some_parts(*side, *parts)),
        Step::Keep {
            side,
            parts,
            of: copies,
            why,
            differ,
        } => {
            let kept = match parts.as_slice() {
                [one] => format!("take part {one}{}", of(*side)),
                many => format!("take parts {}{}", list(many, ", "), of(*side)),
            };
            match why {
                KeepReason::Copies => format!("{kept}, the others hold the same"),
                KeepReason::Furthest => format!(
                    "{kept}, the furthest off of copies that differ{}",
                    odd_ones(differ, copies.len())
                ),
                KeepReason::Order | KeepReason::User => kept,
            }
        }
        Step::Divide { side, axis, sizes } => format!(
            "divide each part{} along dim {axis} into {}",
            of(*side),
            list(sizes, " + ")
        ),
        Step::Cut {
            side,
            axis,
            start,
            len,
            why,
        } => {
            let kept = format!(
                "{start} to {} of dim {axis}{}",
                start.saturating_add(*len),
                of(*side)
            );
            match why {
                CutReason::RankZero => format!("take rank zero's slice, {kept}"),
                CutReason::Found => format!("take {kept}, where the values agree"),
                CutReason::Padding => format!("cut padding, keep {kept}"),
                CutReason::User => format!("keep {kept}"),
            }
        }
        Step::Reorder { side, axis, order } => {
            let place = format!("dim {axis}{}", of(*side));
            match order {
                Order::Zigzag { ranks } => format!("undo the zigzag of {ranks} ranks in {place}"),
                Order::Unpack { groups, sizes } => {
                    format!(
                        "unpack {place} from {groups} interleaved groups into {}",
                        list(sizes, " + ")
                    )
                }
                Order::Pack { groups, sizes } => format!(
                    "pack {place}, {}, into {groups} interleaved groups",
                    list(sizes, " + ")
                ),
            }
        }
        Step::Flatten => "both read as one row, for want of anything better".to_owned(),
    }
}

/// ` (part 2 is not like the other 3)`
fn odd_ones(differ: &[usize], copies: usize) -> String {
    let others = copies.saturating_sub(differ.len());
    match differ {
        [] => String::new(),
        _ if others == 0 => format!(" (parts {} are not alike)", list(differ, ", ")),
        [one] if others == 1 => format!(" (part {one} is not like the other one)"),
        [one] => format!(" (part {one} is not like the other {others})"),
        many => format!(
            " (parts {} are not like the other {others})",
            list(many, ", ")
        ),
    }
}

fn of(side: Which) -> &'static str {
    match side {
        Which::Reference => " of the reference",
        Which::Candidate => "",
    }
}

fn some_parts(side: Which, parts: usize) -> String {
    match parts {
        0 => format!("the parts{}", of(side)),
        count => format!("{count} parts{}", of(side)),
    }
}

fn list<T: ToString>(items: &[T], between: &str) -> String {
    items
        .iter()
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join(between)
}

fn permute(order: &[usize]) -> String {
    let moved: Vec<usize> = (0..order.len()).filter(|at| order[*at] != *at).collect();
    match moved.as_slice() {
        [a, b] => format!("swap dims {a} and {b}"),
        _ => format!("permute dims to ({})", list(order, ", ")),
    }
}
