//! Several tensors one after another: skips of a UNet, a class token before the patches, keys that are cached and those of this step.

use super::{Learned, Op, Picked, roughly, sample};
use crate::{
    Loaded,
    flow::{Site, of},
};
use std::sync::Arc;

pub(super) struct Concat;

/// Pieces at most, and inputs of a fitting shape that are tried.
const MOST_PIECES: usize = 4;
const MOST_INPUTS: usize = 64;
/// Single values of a piece that are compared before it is read.
const FEW: usize = 8;

/// The output as `outer` times `along` times `inner`; the pieces lie along the second.
#[derive(Clone, Copy, Debug)]
struct Frame {
    along: usize,
    inner: usize,
}

/// A tensor that lies from `offset` on, `size` long; the same for every `outer` where it has only one.
#[derive(Clone, Copy, Debug)]
struct Piece {
    input: usize,
    offset: usize,
    size: usize,
    repeated: bool,
}

impl Piece {
    /// Where an element of the output is in this piece.
    fn place(self, Frame { along, inner }: Frame, flat: usize) -> usize {
        let (outer, at) = (
            flat / (along * inner),
            flat % (along * inner) - self.offset * inner,
        );
        if self.repeated {
            at
        } else {
            outer * self.size * inner + at
        }
    }

    /// Whether a few values of it are those of the output.
    fn promises(self, site: &Site<'_>, frame: Frame) -> bool {
        let Frame { along, inner } = frame;
        let count = site.elements() / along * self.size;
        let flat = |nth: usize| {
            (nth / (self.size * inner) * along + self.offset) * inner + nth % (self.size * inner)
        };
        let flats: Vec<usize> = sample(count).into_iter().take(FEW).map(flat).collect();
        let given = site.scene.pick(
            self.input,
            &flats
                .iter()
                .map(|flat| self.place(frame, *flat))
                .collect::<Vec<_>>(),
        );
        let wanted = site.scene.pick(site.pair, &flats);
        given.zip(wanted).is_some_and(|(given, wanted)| {
            roughly(given.into_iter(), wanted.into_iter(), site.floor[1])
        })
    }
}

impl Op for Concat {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
        let dims = site.dims();
        let entries = site.scene.entries();
        // What is cached was computed a step before, further back than inputs are looked for.
        let before: Vec<usize> = match &entries[site.pair].inputs {
            Some(_) => site.before.clone(),
            None => (0..site.pair)
                .rev()
                .filter(|at| !entries[*at].parameter)
                .collect(),
        };
        let mut learned = Vec::new();
        for axis in (0..dims.len()).filter(|axis| dims[*axis] > 1) {
            let frame = Frame {
                along: dims[axis],
                inner: dims[axis + 1..].iter().product(),
            };
            let fits = |at: &usize| {
                let other = &entries[*at].dims;
                other.len() == dims.len()
                    && (1..dims[axis]).contains(&other[axis])
                    && other[axis + 1..] == dims[axis + 1..]
                    && (other[..axis] == dims[..axis] || other[..axis].iter().all(|dim| *dim == 1))
            };
            let inputs: Vec<usize> = before
                .iter()
                .chain(&site.parameters)
                .copied()
                .filter(fits)
                .take(MOST_INPUTS)
                .collect();
            let mut pieces = Vec::new();
            if inputs.len() > 1 && filled(site, frame, axis, &inputs, &mut pieces) {
                learned.extend(made(site, frame, &pieces));
            }
        }
        learned
    }
}

/// Whether inputs fill the output from where the pieces end; the pieces then hold them.
fn filled(
    site: &Site<'_>,
    frame: Frame,
    axis: usize,
    inputs: &[usize],
    pieces: &mut Vec<Piece>,
) -> bool {
    let offset = pieces
        .last()
        .map_or(0, |piece: &Piece| piece.offset + piece.size);
    if offset == frame.along {
        return true;
    }
    if pieces.len() == MOST_PIECES {
        return false;
    }
    for &input in inputs {
        let dims = &site.scene.entries()[input].dims;
        let piece = Piece {
            input,
            offset,
            size: dims[axis],
            repeated: dims[..axis] != site.dims()[..axis],
        };
        if piece.size > frame.along - offset || !piece.promises(site, frame) {
            continue;
        }
        pieces.push(piece);
        if filled(site, frame, axis, inputs, pieces) {
            return true;
        }
        pieces.pop();
    }
    false
}

fn made(site: &Site<'_>, frame: Frame, pieces: &[Piece]) -> Option<Learned> {
    let loaded: Option<Vec<(Piece, Arc<Loaded>)>> = pieces
        .iter()
        .map(|piece| Some((*piece, site.load(piece.input)?)))
        .collect();
    let loaded = loaded?;
    let names: Vec<&str> = pieces
        .iter()
        .map(|piece| site.scene.entries()[piece.input].name.as_str())
        .collect();
    let width = site.width();
    Some(Learned {
        formula: format!("{}, one after another", names.join(", ")),
        inputs: pieces.iter().map(|piece| piece.input).collect(),
        terms: 0,
        work: 0,
        looseness: 1.0,
        off: [0.0; 4],
        on_some_rows: false,
        borrows: false,
        predict: Box::new(move |side, picked: Picked<'_>| {
            let one = |flat: usize| {
                let at = flat / frame.inner % frame.along;
                let (piece, values) = loaded
                    .iter()
                    .find(|(piece, _)| at < piece.offset + piece.size)?;
                of(values, side).get(piece.place(frame, flat)).copied()
            };
            picked
                .rows()
                .flat_map(|row| row * width..(row + 1) * width)
                .map(one)
                .collect()
        }),
        variants: Vec::new(),
        telling: None,
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, normal, report_as};
    use twinscope_compare::verdict::{Origin, Verdict};
    use twinscope_tensor::DType;

    /// Keys of five tokens, of a sixth, and both: `[2, 3, 6, 4]`.
    fn cached(past: &[f64], now: &[f64]) -> Vec<f64> {
        past.chunks_exact(5 * 4)
            .zip(now.chunks_exact(4))
            .flat_map(|(past, now)| past.iter().chain(now))
            .copied()
            .collect()
    }

    fn run(broken: impl Fn(Vec<f64>) -> Vec<f64>) -> Vec<Recorded> {
        let (past, now, noise) = (normal(120, 1), normal(24, 2), normal(120, 3));
        let other: Vec<f64> = past
            .iter()
            .zip(noise)
            .enumerate()
            .map(|(at, (x, n))| if at % 20 < 4 { x + n } else { *x })
            .collect();
        vec![
            Recorded {
                name: "past",
                dims: vec![2, 3, 5, 4],
                reference: past.clone(),
                candidate: other.clone(),
            },
            Recorded {
                name: "now",
                dims: vec![2, 3, 1, 4],
                reference: now.clone(),
                candidate: now.clone(),
            },
            Recorded {
                name: "keys",
                dims: vec![2, 3, 6, 4],
                reference: cached(&past, &now),
                candidate: broken(cached(&other, &now)),
            },
        ]
    }

    #[test]
    fn what_is_cached_passes_on_the_error_of_the_step_before() {
        let report = report_as(DType::F32, &run(|keys| keys));
        assert_eq!(
            (report.pairs[2].verdict(), report.pairs[2].origin()),
            (Verdict::Diverged, Some(Origin::Inherited))
        );
    }

    #[test]
    fn a_cache_that_turns_is_its_own_fault() {
        let turned = |keys: Vec<f64>| {
            keys.chunks_exact(24)
                .flat_map(|head| {
                    head[4..]
                        .iter()
                        .chain(&head[..4])
                        .copied()
                        .collect::<Vec<_>>()
                })
                .collect()
        };
        let report = report_as(DType::F32, &run(turned));
        assert_eq!(
            (report.pairs[2].verdict(), report.pairs[2].origin()),
            (Verdict::Diverged, Some(Origin::Own))
        );
        assert!(
            ["shifted", "permuted"].contains(&report.pairs[2].causes[0].kind.name()),
            "{:?}",
            report.pairs[2].causes
        );
    }

    #[test]
    fn one_class_token_stands_before_the_patches_of_every_image() {
        let (class, patches, noise) = (normal(8, 1), normal(3 * 4 * 8, 2), normal(3 * 4 * 8, 3));
        let other: Vec<f64> = patches
            .iter()
            .zip(noise)
            .map(|(x, n)| x + 0.1 * n)
            .collect();
        let tokens = |patches: &[f64]| -> Vec<f64> {
            patches
                .chunks_exact(32)
                .flat_map(|image| class.iter().chain(image))
                .copied()
                .collect()
        };
        let run = [
            Recorded {
                name: "class",
                dims: vec![1, 1, 8],
                reference: class.clone(),
                candidate: class.clone(),
            },
            Recorded {
                name: "patches",
                dims: vec![3, 4, 8],
                reference: patches.clone(),
                candidate: other.clone(),
            },
            Recorded {
                name: "tokens",
                dims: vec![3, 5, 8],
                reference: tokens(&patches),
                candidate: tokens(&other),
            },
        ];
        assert_eq!(
            report_as(DType::F32, &run).pairs[2].origin(),
            Some(Origin::Inherited)
        );
    }
}
