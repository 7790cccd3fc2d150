//! Rows of a table by integer ids: the same id, the same row.

use super::{Learned, Op, Variant};
use crate::flow::{Site, of};
use std::{collections::HashMap, sync::Arc};

pub(super) struct Lookup;

impl Op for Lookup {
    fn mixes_rows(&self) -> bool {
        true
    }

    /// What each token's own values make, a norm of its embedding say, is the same row for the same id too.
    fn is_last_resort(&self) -> bool {
        true
    }

    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
        let Some(&features) = site.dims().last() else {
            return Vec::new();
        };
        let tokens = site.elements() / features.max(1);
        let mut learned = Vec::new();
        for &input in &site.before {
            let entry = &site.scene.entries()[input];
            let integer = twinscope_compare::noise::unit_roundoff(entry.dtypes[0]).is_none();
            if !integer || entry.dims.iter().product::<usize>() != tokens {
                continue;
            }
            let Some(ids) = site.load(input) else {
                continue;
            };
            let mut table: HashMap<i64, usize> = HashMap::new();
            let mut repeated = false;
            for (token, id) in ids.reference.iter().enumerate() {
                repeated |= table.insert(*id as i64, token).is_some();
            }
            // Without one id twice any tensor could be a table's rows: only the first one after the ids is believed to be.
            let first =
                (input + 1..site.pair).all(|between| site.scene.entries()[between].parameter);
            if !repeated && !first {
                continue;
            }
            // What was computed in between from the ids alone is what this was computed from: where it differs, the ids imply nothing.
            let diverged = |between: usize| {
                let entry = &site.scene.entries()[between];
                !entry.parameter && entry.verdict == twinscope_compare::verdict::Verdict::Diverged
            };
            if (input + 1..site.pair).any(diverged) {
                continue;
            }
            let (out, table) = (site.out.whole().clone(), Arc::new(table));
            learned.push(Learned {
                formula: format!("a table at {}", entry.name),
                inputs: vec![input],
                terms: 0,
                work: 0,
                looseness: 1.0,
                off: [0.0; 4],
                on_some_rows: false,
                borrows: true,
                predict: Box::new(move |side, picked| {
                    let mut values = Vec::with_capacity(picked.count() * features);
                    let ids = of(&ids, side);
                    for (at, id) in picked.rows().map(|row| (row, ids[row])) {
                        // An id that the reference never looked up has an unknown row: whatever it is is right.
                        let (from, token) = table
                            .get(&(id as i64))
                            .map_or((of(&out, side), at), |token| (&out.reference[..], *token));
                        values.extend_from_slice(&from[token * features..(token + 1) * features]);
                    }
                    Some(values)
                }),
                variants: Vec::<Variant>::new(),
                telling: None,
            });
        }
        learned
    }
}
