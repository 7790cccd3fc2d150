//! A few elements of a pair, each with everything that can be said about it.

use crate::reader::{Reader, Which};
use twinscope_tensor::{Operand, ReadError};

/// One element. Undefined is `None`, never 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// `c - r`; NaN where a side is not finite and the other not the same.
    pub difference: f64,
    /// `|c - r| / max(|r|, |c|)`, 0 when both are 0; `None` where a side is not finite.
    pub relative: Option<f64>,
    pub ulp: Option<u64>,
}

/// Every element of two windows of one size, in row-major order. Where two numbers share an element, that of the larger difference.
pub fn cells(reference: &dyn Operand, candidate: &dyn Operand) -> Result<Vec<Cell>, ReadError> {
    let mut reader = Reader::two(reference, candidate)?;
    reader.read(0, reference.len() as usize);
    reader.check()?;
    let per = reader.per();
    let one = |nth: usize| {
        let [r, c, difference] = [Which::Reference, Which::Candidate, Which::Difference]
            .map(|which| reader.numbers(which)[nth]);
        let relative = (r.is_finite() && c.is_finite()).then(|| {
            if difference == 0.0 {
                0.0
            } else {
                difference.abs() / r.abs().max(c.abs())
            }
        });
        Cell {
            difference,
            relative,
            ulp: reader.ulp(nth),
        }
    };
    let larger = |a: Cell, b: Cell| {
        if b.difference.is_nan() || b.difference.abs() > a.difference.abs() {
            b
        } else {
            a
        }
    };
    let elements = reader.numbers(Which::Difference).len() / per;
    Ok((0..elements)
        .map(|element| {
            (1..per)
                .map(|i| one(element * per + i))
                .fold(one(element * per), larger)
        })
        .collect())
}
