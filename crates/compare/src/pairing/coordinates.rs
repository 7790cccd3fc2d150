//! Where in a grid of ranks the shards of one tensor lie, as their dump or their run recorded it.
//!
//! SGLang's dumper writes `tp_rank` and the like with each tensor, a captured run the coordinates of each of its ranks. Only a complete
//! grid whose ranks are in order says anything: then each axis has its size, and the slowest comes first.

use crate::side::{Item, Side};
use std::collections::BTreeMap;

/// Axes of a grid that are tried in every order.
const MOST_AXES: usize = 4;

type Coordinates = BTreeMap<String, u64>;

/// The parallel axes of these items with their sizes, the slowest first; empty when they are not a recorded grid.
pub(crate) fn axes(side: &Side<'_>, items: &[usize]) -> Vec<(String, usize)> {
    if items.len() < 2 {
        return Vec::new();
    }
    let places: Vec<Coordinates> = items
        .iter()
        .map(|item| of_item(side, &side.items()[*item]))
        .collect();
    grid(&places).unwrap_or_default()
}

fn of_item(side: &Side<'_>, item: &Item) -> Coordinates {
    let Some(meta) = item.meta.as_ref() else {
        return Coordinates::new();
    };
    let mut found = Coordinates::new();
    for (key, value) in meta.iter() {
        let name = key.rsplit('.').next().unwrap_or(key);
        if let (Some(axis), Some(rank)) = (name.strip_suffix("_rank"), value.as_u64()) {
            found.insert(axis.to_owned(), rank);
        }
    }
    if found.is_empty() {
        let run = side
            .source()
            .listing()
            .meta
            .as_ref()
            .and_then(|meta| meta.get("ranks")?.as_array());
        let of_rank = run.and_then(|ranks| {
            ranks
                .iter()
                .find(|about| about.get("rank").is_some() && about.get("rank") == meta.get("rank"))
        });
        let coords = of_rank.and_then(|about| about.get("coords")?.as_object());
        found.extend(
            coords
                .into_iter()
                .flatten()
                .filter_map(|(axis, at)| Some((axis.clone(), at.as_u64()?))),
        );
    }
    found
}

/// The order of the axes in which these places count up.
fn grid(places: &[Coordinates]) -> Option<Vec<(String, usize)>> {
    let size = |axis: &String| {
        places
            .iter()
            .filter_map(|place| place.get(axis))
            .max()
            .map_or(1, |most| most + 1)
    };
    let axes: Vec<(String, usize)> = places
        .first()?
        .keys()
        .map(|axis| {
            (
                axis.clone(),
                usize::try_from(size(axis)).unwrap_or(usize::MAX),
            )
        })
        .filter(|(_, size)| *size > 1)
        .collect();
    let count = axes
        .iter()
        .try_fold(1usize, |product, (_, size)| product.checked_mul(*size))?;
    if axes.len() > MOST_AXES || count != places.len() {
        return None;
    }
    let counts_up = |order: &Vec<usize>| {
        (0..count).all(|at| {
            let mut rest = at;
            order.iter().rev().all(|axis| {
                let (name, size) = &axes[*axis];
                let here = (rest % size) as u64;
                rest /= size;
                places[at].get(name) == Some(&here)
            })
        })
    };
    let order = orders(axes.len()).into_iter().find(counts_up)?;
    Some(order.into_iter().map(|axis| axes[axis].clone()).collect())
}

fn orders(count: usize) -> Vec<Vec<usize>> {
    (0..count).fold(vec![Vec::new()], |all, next| {
        all.iter()
            .flat_map(|order: &Vec<usize>| {
                (0..=order.len()).map(move |at| [&order[..at], &[next], &order[at..]].concat())
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: &[&[(&str, u64)]]) -> Vec<Coordinates> {
        all.iter()
            .map(|place| {
                place
                    .iter()
                    .map(|(axis, at)| ((*axis).to_owned(), *at))
                    .collect()
            })
            .collect()
    }

    #[test]
    fn the_slowest_axis_comes_first_whatever_its_name() {
        let cp_slow = places(&[
            &[("cp", 0), ("tp", 0), ("pp", 0)],
            &[("cp", 0), ("tp", 1), ("pp", 0)],
            &[("cp", 1), ("tp", 0), ("pp", 0)],
            &[("cp", 1), ("tp", 1), ("pp", 0)],
        ]);
        assert_eq!(
            grid(&cp_slow),
            Some(vec![("cp".to_owned(), 2), ("tp".to_owned(), 2)])
        );
        let tp_slow = places(&[
            &[("cp", 0), ("tp", 0)],
            &[("cp", 1), ("tp", 0)],
            &[("cp", 0), ("tp", 1)],
            &[("cp", 1), ("tp", 1)],
        ]);
        assert_eq!(
            grid(&tp_slow),
            Some(vec![("tp".to_owned(), 2), ("cp".to_owned(), 2)])
        );
    }

    #[test]
    fn ranks_that_are_missing_or_out_of_order_are_no_grid() {
        assert_eq!(grid(&places(&[&[("tp", 0)], &[("tp", 2)]])), None);
        assert_eq!(grid(&places(&[&[("tp", 1)], &[("tp", 0)]])), None);
        assert_eq!(grid(&places(&[&[], &[]])), None);
    }
}
