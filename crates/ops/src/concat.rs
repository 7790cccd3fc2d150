//! Several tensors one after another: skips of a UNet, a class token before the patches, keys that are cached and those of this step.

use crate::{Input, Learned, Op, Picked, Run, Site, learned::roughly, sampling::sample};
use twinscope_tensor::formula::Formula;

pub(crate) struct Concat;

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
        let given = site.run.pick(
            self.input,
            &flats
                .iter()
                .map(|flat| self.place(frame, *flat))
                .collect::<Vec<_>>(),
        );
        let wanted = site.run.pick(site.at, &flats);
        given.zip(wanted).is_some_and(|(given, wanted)| {
            roughly(given.into_iter(), wanted.into_iter(), site.floor[1])
        })
    }
}

impl Op for Concat {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let dims = site.dims();
        let tensors = site.run.tensors();
        // What is cached was computed a step before, further back than inputs are looked for.
        let before: Vec<usize> = match &tensors[site.at].inputs {
            Some(_) => site.before.clone(),
            None => (0..site.at)
                .rev()
                .filter(|at| !tensors[*at].parameter)
                .collect(),
        };
        let mut learned = Vec::new();
        for axis in (0..dims.len()).filter(|axis| dims[*axis] > 1) {
            let frame = Frame {
                along: dims[axis],
                inner: dims[axis + 1..].iter().product(),
            };
            let fits = |at: &usize| {
                let other = &tensors[*at].dims;
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
        let dims = site.run.dims(input);
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

fn made<'a>(site: &Site<'a>, frame: Frame, pieces: &[Piece]) -> Option<Learned<'a>> {
    let given: Vec<(Piece, Input)> = pieces
        .iter()
        .map(|piece| Some((*piece, Input::read(site.run, piece.input)?)))
        .collect::<Option<_>>()?;
    let parts = pieces
        .iter()
        .map(|piece| Formula::tensor(site.name(piece.input)));
    let formula = Formula::Concat(parts.collect());
    let inputs = pieces.iter().map(|piece| piece.input).collect();
    let width = site.width();
    let predict = move |run: &dyn Run, picked: Picked<'_>| {
        let values: Vec<_> = given
            .iter()
            .map(|(piece, input)| Some((*piece, input.on(run)?)))
            .collect::<Option<_>>()?;
        let values: Vec<(Piece, &[f64])> = values
            .iter()
            .map(|(piece, values)| (*piece, &**values))
            .collect();
        let one = |flat: usize| {
            let at = flat / frame.inner % frame.along;
            let (piece, values) = values
                .iter()
                .find(|(piece, _)| at < piece.offset + piece.size)?;
            values.get(piece.place(frame, flat)).copied()
        };
        picked
            .rows()
            .flat_map(|row| row * width..(row + 1) * width)
            .map(one)
            .collect()
    };
    Some(Learned::new(formula, inputs, Box::new(predict)))
}
