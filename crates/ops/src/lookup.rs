//! Rows of a table by integer ids: the same id, the same row.

use crate::{Input, Learned, Op, Picked, Run, Site};
use std::collections::HashMap;
use twinscope_measure::rounding::unit_roundoff;
use twinscope_tensor::formula::Formula;

pub(crate) struct Lookup;

impl Op for Lookup {
    fn mixes_rows(&self) -> bool {
        true
    }

    /// What each token's own values make, a norm of its embedding say, is the same row for the same id too.
    fn is_last_resort(&self) -> bool {
        true
    }

    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let Some(&features) = site.dims().last() else {
            return Vec::new();
        };
        let tokens = site.elements() / features.max(1);
        let mut learned = Vec::new();
        for &input in &site.before {
            let tensor = site.run.tensor(input);
            let integer = unit_roundoff(tensor.dtype).is_none();
            if !integer || tensor.elements() != tokens {
                continue;
            }
            let Some(ids) = Input::read(site.run, input) else {
                continue;
            };
            let Some(values) = ids.on(site.run) else {
                continue;
            };
            let mut table: HashMap<i64, usize> = HashMap::new();
            let mut repeated = false;
            for (token, id) in values.iter().enumerate() {
                repeated |= table.insert(*id as i64, token).is_some();
            }
            // Without one id twice any tensor could be a table's rows: only the first one after the ids is believed to be.
            let first = (input + 1..site.at).all(|between| site.run.tensor(between).parameter);
            if !repeated && !first {
                continue;
            }
            if input < site.ask.ids_from {
                continue;
            }
            let (own, at) = (site.out.whole().clone(), site.at);
            let out = Input::new(move |run| run.load(at));
            let predict = move |run: &dyn Run, picked: Picked<'_>| {
                let mut values = Vec::with_capacity(picked.count() * features);
                let (own, ids, out): (&[f64], _, _) = (&own, ids.on(run)?, out.on(run)?);
                for (row, id) in picked.rows().map(|row| (row, ids[row])) {
                    // An id that was never looked up has an unknown row: whatever it is is right.
                    let (from, token): (&[f64], usize) = match table.get(&(id as i64)) {
                        Some(token) => (own, *token),
                        None => (&out, row),
                    };
                    values.extend_from_slice(&from[token * features..(token + 1) * features]);
                }
                Some(values)
            };
            let formula = Formula::Lookup {
                ids: Formula::boxed(&tensor.name),
            };
            learned.push(Learned {
                borrows: true,
                ..Learned::new(formula, vec![input], Box::new(predict))
            });
        }
        learned
    }
}
