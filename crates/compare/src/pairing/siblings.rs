//! What belongs to modules that are known to be one: where `layer1.0.bn1.weight` was found in `stages.0.layer.0.normalization.weight`, the
//! `bias` of the one is the `bias` of the other, also when its values, all of them zero or a fault, tell nothing.
//!
//! A pair says that of the modules right above its tensors, and of those further up as long as what is below is called alike:
//! `down.0.attn.1.norm1.weight` in `input.1.1.norm1.weight` is `down.0.attn.1` in `input.1.1` too. All pairs must agree on it, in both
//! directions, and the shapes must be the same up to their order.

use super::{
    rules::{Board, CANDIDATE, REFERENCE},
    shape,
};
use crate::settings::Rule;
use std::collections::HashMap;

/// Less than certain: nothing of the tensor itself speaks for it but what it is called and its shape.
const SCORE: f64 = 0.7;

pub(super) fn pair(board: &mut Board<'_, '_>) {
    let modules = Modules::of(board);
    let found = board.unique(|side, unit| {
        let item = board.single(side, unit)?;
        let name = board.name(side, unit);
        // All of the last segment: `x_a` and `k_a` are two.
        let leaf = || {
            board
                .read_name(
                    side,
                    item.name.rsplit(['.', '/']).next().unwrap_or_default(),
                )
                .key()
        };
        let leaf = name.param.map_or_else(leaf, str::to_owned);
        Some((
            modules.in_reference(side, &item.name)?,
            leaf,
            shape::kind(&item.shape),
        ))
    });
    board.take_all(found, Rule::Values, SCORE);
}

/// Which module is which, by their segments joined with dots; `None` where pairs disagree.
#[derive(Default)]
struct Modules {
    there: HashMap<String, Option<String>>,
    back: HashMap<String, Option<String>>,
}

impl Modules {
    fn of(board: &Board<'_, '_>) -> Self {
        let mut modules = Self::default();
        let add = |map: &mut HashMap<String, Option<String>>, from: &str, to: &str| {
            let known = map
                .entry(from.to_owned())
                .or_insert_with(|| Some(to.to_owned()));
            if known.as_deref() != Some(to) {
                *known = None;
            }
        };
        for pair in &board.pairs {
            let (&[r], &[c]) = (pair.reference.as_slice(), pair.candidate.as_slice()) else {
                continue;
            };
            let (mut r, mut c) = (
                above(&board.items(REFERENCE)[r].name),
                above(&board.items(CANDIDATE)[c].name),
            );
            while !r.is_empty() && !c.is_empty() {
                let (one, other) = (r.join("."), c.join("."));
                add(&mut modules.there, &one, &other);
                add(&mut modules.back, &other, &one);
                if r.pop() != c.pop() {
                    break;
                }
            }
        }
        modules
    }

    /// What the module of this tensor is called in the reference, when it or one above it is known.
    fn in_reference(&self, side: usize, name: &str) -> Option<String> {
        let segments = above(name);
        (1..=segments.len()).rev().find_map(|known| {
            let module = segments[..known].join(".");
            let (map, back) = if side == REFERENCE {
                (&self.there, &self.back)
            } else {
                (&self.back, &self.there)
            };
            let other = map.get(&module)?.as_ref()?;
            let mutual = back.get(other)?.as_ref()? == &module;
            let reference = if side == REFERENCE { &module } else { other };
            mutual.then(|| {
                [&[reference.as_str()], &segments[known..]]
                    .concat()
                    .join(".")
            })
        })
    }
}

/// The segments of a name but the last.
fn above(name: &str) -> Vec<&str> {
    let name = name.strip_suffix(":0").unwrap_or(name);
    let mut segments: Vec<&str> = name.split(['.', '/']).collect();
    segments.pop();
    segments
}

#[cfg(test)]
mod tests {
    use crate::{pairing::testing::*, settings::Rule};

    fn noise(seed: u32) -> Vec<f32> {
        (0..64u32)
            .map(|at| ((at * 37 + seed * 101) % 1009) as f32 * 0.01 - ((at * at + seed) % 7) as f32)
            .collect()
    }

    #[test]
    fn what_values_do_not_tell_the_module_does() {
        let side = |modules: [&str; 2], leaves: [&str; 2]| {
            modules
                .iter()
                .enumerate()
                .fold(Source::new(), |source, (at, module)| {
                    source
                        .f32(
                            &format!("{module}{}", leaves[0]),
                            &[64],
                            &noise(at as u32 + 1),
                        )
                        .f32(&format!("{module}{}", leaves[1]), &[64], &[0.0; 64])
                })
        };
        let torch = side(["alpha.", "beta."], ["weight", "bias"]);
        let keras = side(["omega/", "psi/"], ["kernel:0", "bias:0"]);
        assert_eq!(
            result(&settings(&[Rule::Values]), &torch, &keras).0,
            [
                "alpha.weight=omega/kernel:0",
                "alpha.bias=omega/bias:0",
                "beta.weight=psi/kernel:0",
                "beta.bias=psi/bias:0"
            ]
        );
    }

    #[test]
    fn what_is_above_is_known_as_far_as_names_are_alike() {
        let reference = Source::new()
            .f32("down.0.attn.1.deep.to_q.weight", &[64], &noise(1))
            .f32("down.0.attn.1.deep.norm.weight", &[64], &[1.0; 64])
            .f32("down.0.attn.0.deep.to_q.weight", &[64], &noise(2))
            .f32("down.0.attn.0.deep.norm.weight", &[64], &[1.0; 64]);
        let candidate = Source::new()
            .f32("input.1.1.deep.norm.weight", &[64], &[1.0; 64])
            .f32("input.1.1.deep.to_q.weight", &[64], &noise(1))
            .f32("input.0.1.deep.norm.weight", &[64], &[1.0; 64])
            .f32("input.0.1.deep.to_q.weight", &[64], &noise(2));
        let (pairs, _) = result(&settings(&[Rule::Values]), &reference, &candidate);
        assert!(
            pairs.contains(&"down.0.attn.1.deep.norm.weight=input.1.1.deep.norm.weight".to_owned()),
            "{pairs:?}"
        );
        assert!(
            pairs.contains(&"down.0.attn.0.deep.norm.weight=input.0.1.deep.norm.weight".to_owned()),
            "{pairs:?}"
        );
    }

    #[test]
    fn modules_whose_pairs_disagree_say_nothing() {
        let reference = Source::new()
            .f32("a.x", &[64], &noise(1))
            .f32("a.y", &[64], &noise(2))
            .f32("a.bias", &[64], &[0.0; 64]);
        let candidate = Source::new()
            .f32("b.x", &[64], &noise(1))
            .f32("c.y", &[64], &noise(2))
            .f32("b.bias", &[64], &[0.0; 64]);
        assert_eq!(
            result(&settings(&[Rule::Values]), &reference, &candidate)
                .0
                .len(),
            2
        );
    }
}
