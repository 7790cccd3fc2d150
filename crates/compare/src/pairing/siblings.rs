//! What belongs to modules that are known to be one: where `layer1.0.bn1.weight` was found in `stages.0.layer.0.normalization.weight`, the
//! `bias` of the one is the `bias` of the other, also when its values, all of them zero or a fault, tell nothing.
//!
//! All pairs of a module must agree on the other, in both directions, and the shapes must be the same up to their order.

use super::{
    rules::{Board, CANDIDATE, REFERENCE},
    shape,
};
use crate::settings::Rule;
use std::collections::HashMap;

/// Less than certain: nothing of the tensor itself speaks for it but its last word and its shape.
const SCORE: f64 = 0.7;

pub(super) fn pair(board: &mut Board<'_, '_>) {
    let modules = modules(board);
    let found = board.unique(|side, unit| {
        let item = board.single(side, unit)?;
        let module = module(&item.name)?;
        let name = board.name(side, unit);
        let leaf = name.param.map(str::to_owned).or_else(|| name.rest.last().cloned())?;
        let (reference, candidate) = match side {
            REFERENCE => (module, modules.there.get(module)?.as_deref()?),
            _ => (modules.back.get(module)?.as_deref()?, module),
        };
        let mutual =
            modules.there.get(reference)?.as_deref() == Some(candidate) && modules.back.get(candidate)?.as_deref() == Some(reference);
        mutual.then(|| (reference.to_owned(), leaf, shape::kind(&item.shape)))
    });
    board.take_all(found, Rule::Values, SCORE);
}

/// Which module is which, `None` where its pairs disagree.
struct Modules {
    there: HashMap<String, Option<String>>,
    back: HashMap<String, Option<String>>,
}

fn modules(board: &Board<'_, '_>) -> Modules {
    let mut modules = Modules { there: HashMap::new(), back: HashMap::new() };
    let add = |map: &mut HashMap<String, Option<String>>, from: &str, to: &str| {
        let known = map.entry(from.to_owned()).or_insert_with(|| Some(to.to_owned()));
        if known.as_deref() != Some(to) {
            *known = None;
        }
    };
    for pair in &board.pairs {
        let (&[r], &[c]) = (pair.reference.as_slice(), pair.candidate.as_slice()) else { continue };
        if let (Some(r), Some(c)) = (module(&board.items(REFERENCE)[r].name), module(&board.items(CANDIDATE)[c].name)) {
            add(&mut modules.there, r, c);
            add(&mut modules.back, c, r);
        }
    }
    modules
}

/// Everything before the last word, when there is something.
fn module(name: &str) -> Option<&str> {
    let name = name.strip_suffix(":0").unwrap_or(name);
    name.rsplit_once(['.', '/']).map(|(module, _)| module).filter(|module| !module.is_empty())
}

#[cfg(test)]
mod tests {
    use crate::{pairing::testing::*, settings::Rule};

    fn noise(seed: u32) -> Vec<f32> {
        (0..64u32).map(|at| ((at * 37 + seed * 101) % 1009) as f32 * 0.01 - ((at * at + seed) % 7) as f32).collect()
    }

    #[test]
    fn what_values_do_not_tell_the_module_does() {
        let side = |modules: [&str; 2], leaves: [&str; 2]| {
            modules.iter().enumerate().fold(Source::new(), |source, (at, module)| {
                source.f32(&format!("{module}{}", leaves[0]), &[64], &noise(at as u32 + 1)).f32(
                    &format!("{module}{}", leaves[1]),
                    &[64],
                    &[0.0; 64],
                )
            })
        };
        let torch = side(["alpha.", "beta."], ["weight", "bias"]);
        let keras = side(["omega/", "psi/"], ["kernel:0", "bias:0"]);
        assert_eq!(
            result(&settings(&[Rule::Values]), &torch, &keras).0,
            ["alpha.weight=omega/kernel:0", "alpha.bias=omega/bias:0", "beta.weight=psi/kernel:0", "beta.bias=psi/bias:0"]
        );
    }

    #[test]
    fn modules_whose_pairs_disagree_say_nothing() {
        let reference = Source::new().f32("a.x", &[64], &noise(1)).f32("a.y", &[64], &noise(2)).f32("a.bias", &[64], &[0.0; 64]);
        let candidate = Source::new().f32("b.x", &[64], &noise(1)).f32("c.y", &[64], &noise(2)).f32("b.bias", &[64], &[0.0; 64]);
        assert_eq!(result(&settings(&[Rule::Values]), &reference, &candidate).0.len(), 2);
    }
}
