//! Whether one side writes its matrices `[in, out]` and the other `[out, in]`: GPT-2's `Conv1D` beside anybody's linear layer, Paddle
//! beside torch, the anonymous operands of an ONNX `MatMul` beside the weights they were.
//!
//! Matrices that are not square say it by their shapes. Where all of them in the layers are turned and none is not, the square ones, whose
//! shapes say nothing, may be turned as well; whether they are is for the values to say. Projections of attention and feed-forward must be: one
//! that is not was forgotten when its network was converted. Tables that are looked up in, and the head, which may be one, are written alike
//! everywhere and do not count.

use super::{
    Turned,
    rules::{Board, CANDIDATE, REFERENCE},
};

/// Turned matrices that are a custom and not a mistake.
const CUSTOM: usize = 2;

pub(super) fn mark(board: &mut Board<'_, '_>) {
    // Names are only understood where shapes promise something.
    let kinds: Vec<Option<Kind>> = (0..board.pairs.len())
        .map(|pair| kind(board, pair))
        .collect();
    if kinds
        .iter()
        .flatten()
        .filter(|kind| **kind == Kind::Turned)
        .count()
        < CUSTOM
    {
        return;
    }
    let seen: Vec<Option<Matrix>> = kinds
        .into_iter()
        .enumerate()
        .map(|(pair, kind)| matrix(board, pair, kind?))
        .collect();
    let written = |layered: bool| {
        let count = |kind: Kind| {
            seen.iter()
                .flatten()
                .filter(|matrix| matrix.layered == layered && matrix.kind == kind)
                .count()
        };
        [count(Kind::Turned), count(Kind::Plain)]
    };
    let custom = |[turned, plain]: [usize; 2]| turned >= CUSTOM && plain == 0;
    // Outside the layers few are left to tell: what holds in the layers holds there, unless it is seen not to.
    let (inside, outside) = (written(true), written(false));
    let in_layers = if inside == [0, 0] {
        custom(outside)
    } else {
        custom(inside)
    };
    let elsewhere = in_layers && outside[1] == 0 || custom(outside);
    for (pair, matrix) in board.pairs.iter_mut().zip(seen) {
        pair.turned = match matrix {
            Some(matrix) if matrix.kind != Kind::Square => Turned::No,
            Some(matrix) if matrix.layered && matrix.projects && in_layers => Turned::Surely,
            Some(matrix) if if matrix.layered { in_layers } else { elsewhere } => Turned::Perhaps,
            _ => Turned::No,
        };
    }
}

#[derive(Clone, Copy)]
struct Matrix {
    kind: Kind,
    layered: bool,
    /// By both names a projection, and the same one.
    projects: bool,
}

const PROJECTIONS: [&str; 7] = [
    "attn_q", "attn_k", "attn_v", "attn_o", "mlp_gate", "mlp_up", "mlp_down",
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Turned,
    Plain,
    Square,
}

/// How a pair of matrices is written, by its shapes.
fn kind(board: &Board<'_, '_>, pair: usize) -> Option<Kind> {
    let pair = &board.pairs[pair];
    let (&[r], &[c]) = (pair.reference.as_slice(), pair.candidate.as_slice()) else {
        return None;
    };
    let (reference, candidate) = (
        &board.items(REFERENCE)[r].shape,
        &board.items(CANDIDATE)[c].shape,
    );
    let (&[rows, columns], &[first, second]) = (reference.dims(), candidate.dims()) else {
        return None;
    };
    match [first, second] {
        _ if rows < 2 || columns < 2 => None,
        [a, b] if a == rows && b == columns && rows == columns => Some(Kind::Square),
        [a, b] if a == rows && b == columns => Some(Kind::Plain),
        [a, b] if a == columns && b == rows => Some(Kind::Turned),
        _ => None,
    }
}

/// What a pair says when it is a weight's; `None` when it says nothing.
fn matrix(board: &Board<'_, '_>, pair: usize, kind: Kind) -> Option<Matrix> {
    let pair = &board.pairs[pair];
    let names = [
        (REFERENCE, pair.reference[0]),
        (CANDIDATE, pair.candidate[0]),
    ];
    let names = names.map(|(side, item)| board.read_name(side, &board.items(side)[item].name));
    let table = names.iter().any(|name| {
        name.stage
            .is_some_and(|stage| stage.contains("embed") || stage == "lm_head")
    });
    let weight = names.iter().any(|name| name.param == Some("weight"));
    let layered = names.iter().any(|name| name.layer.is_some());
    let projects = names[0].stage == names[1].stage
        && names[0]
            .stage
            .is_some_and(|stage| PROJECTIONS.contains(&stage));
    (weight && !table).then_some(Matrix {
        kind,
        layered,
        projects,
    })
}

#[cfg(test)]
mod tests {
    use super::Turned::{self, No, Perhaps, Surely};
    use crate::{pairing::testing::*, settings::Rule};

    const NAMES: [&str; 5] = [
        "wte.weight",
        "h.0.attn.c_attn.weight",
        "h.0.attn.c_proj.weight",
        "h.0.mlp.c_fc.weight",
        "pooler.dense.weight",
    ];

    fn turned(reference: [[u64; 2]; 5], candidate: [[u64; 2]; 5]) -> Vec<Turned> {
        let side = |dims: [[u64; 2]; 5]| {
            NAMES
                .iter()
                .zip(dims)
                .fold(Source::new(), |source, (name, dims)| {
                    source.with(name, twinscope_tensor::DType::F32, &dims, Vec::new())
                })
        };
        let (_, pairing) = result(
            &settings(&[Rule::Exact]),
            &side(reference),
            &side(candidate),
        );
        let mut found = vec![No; NAMES.len()];
        pairing
            .pairs
            .iter()
            .for_each(|pair| found[pair.reference[0]] = pair.turned);
        found
    }

    #[test]
    fn square_matrices_go_with_those_around_them() {
        let plain = [[50, 8], [24, 8], [8, 8], [32, 8], [8, 8]];
        let conv1d = [[50, 8], [8, 24], [8, 8], [8, 32], [8, 8]];
        assert_eq!(turned(plain, conv1d), [No, No, Surely, No, Perhaps]);
        assert_eq!(turned(conv1d, plain), [No, No, Surely, No, Perhaps]);
        assert_eq!(turned(plain, plain), [No; 5]);
    }

    #[test]
    fn one_matrix_that_is_turned_is_a_mistake_and_no_custom() {
        let plain = [[50, 8], [24, 8], [8, 8], [32, 8], [8, 8]];
        let one = [[50, 8], [8, 24], [8, 8], [32, 8], [8, 8]];
        assert_eq!(turned(plain, one), [No; 5]);
    }
}
