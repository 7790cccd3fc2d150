//! A window of a tensor at the size of a screen: each cell is the number of largest magnitude in it, with its sign.
//!
//! A NaN wins over an infinity, an infinity over any number: a single wrong element is what a picture is looked at for, and a mean would hide
//! it. The difference is pooled by itself, because the pool of a difference is not the difference of the pools.
//!
//! Reading is bounded: a window of more than `budget` elements is read in some of its rows and columns, evenly spread, and [`Pooled::exact`]
//! is then false. Numbers become `f32` for the picture; what is beyond its range stays finite and what is not 0 stays not 0.

use crate::reader::{Reader, Which};
use twinscope_tensor::{Operand, ReadError};

/// One plane of the picture, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cells {
    pub values: Vec<f32>,
    /// Of the finite numbers that were read.
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub nan: u64,
    pub inf: u64,
}

/// A window, pooled.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled {
    pub height: usize,
    pub width: usize,
    /// Every element of the window was read.
    pub exact: bool,
    /// In the order asked for.
    pub planes: Vec<Cells>,
}

/// How large the picture is and how much may be read for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub height: usize,
    pub width: usize,
    pub budget: u64,
}

/// Pools a window of rows and columns, given as operands of two dimensions. Without a candidate only the reference has numbers.
///
/// # Panics
/// When the operands have not two dimensions, or not the same.
pub fn pool(reference: &dyn Operand, candidate: Option<&dyn Operand>, planes: &[Which], size: Size) -> Result<Pooled, ReadError> {
    let dims = reference.shape().dims();
    assert!(dims.len() == 2 && candidate.is_none_or(|candidate| candidate.shape().dims() == dims), "two windows of one size");
    let mut reader = match candidate {
        Some(candidate) => Reader::two(reference, candidate)?,
        None => Reader::one(reference)?,
    };
    let (rows, cols) = (dims[0], dims[1]);
    let (height, width) = (size.height.min(rows as usize), size.width.min(cols as usize));
    let mut pooled = Pooled { height, width, exact: true, planes: vec![Cells::default(); planes.len()] };
    if height == 0 || width == 0 {
        return Ok(pooled);
    }
    for cells in &mut pooled.planes {
        cells.values = vec![0.0; height * width];
    }
    let reads = Reads::new(rows, cols, height, width, size.budget);
    pooled.exact = reads.exact;
    let mut best: Vec<Vec<f64>> = vec![Vec::new(); planes.len()];
    for row in 0..height {
        best.iter_mut().for_each(|best| {
            best.clear();
            best.resize(width, 0.0);
        });
        let mut seen = false;
        for r in reads.rows_of(row) {
            for piece in &reads.pieces {
                reader.read(r * cols + piece.start, piece.len);
                for ((which, best), cells) in planes.iter().zip(&mut best).zip(&mut pooled.planes) {
                    let numbers = reader.numbers(*which);
                    fold(numbers, reader.per(), &reads.columns[piece.at..piece.at + piece.len], best, !seen, cells);
                }
            }
            seen = true;
        }
        for (best, cells) in best.iter().zip(&mut pooled.planes) {
            let out = &mut cells.values[row * width..(row + 1) * width];
            out.iter_mut().zip(best).for_each(|(out, number)| *out = narrow(*number));
        }
    }
    reader.check()?;
    Ok(pooled)
}

/// Puts numbers into their columns. The first number of a column takes its place whatever it is.
fn fold(numbers: &[f64], per: usize, columns: &[u32], best: &mut [f64], first_row: bool, cells: &mut Cells) {
    let mut last = u32::MAX;
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for (numbers, &column) in numbers.chunks_exact(per).zip(columns) {
        for &number in numbers {
            let slot = &mut best[column as usize];
            if (first_row && column != last) || wins(number, *slot) {
                *slot = number;
            }
            last = column;
            if number.is_finite() {
                (low, high) = (low.min(number), high.max(number));
            } else if number.is_nan() {
                cells.nan += 1;
            } else {
                cells.inf += 1;
            }
        }
    }
    if low <= high {
        cells.min = Some(cells.min.map_or(low, |min| min.min(low)));
        cells.max = Some(cells.max.map_or(high, |max| max.max(high)));
    }
}

fn wins(new: f64, old: f64) -> bool {
    !old.is_nan() && (new.is_nan() || new.abs() > old.abs())
}

/// What a picture can hold of a number without lying about it.
fn narrow(number: f64) -> f32 {
    let narrow = number as f32;
    if narrow.is_infinite() && number.is_finite() {
        return f32::MAX.copysign(narrow);
    }
    if narrow == 0.0 && number != 0.0 {
        return f32::from_bits(1).copysign(narrow);
    }
    narrow
}

/// A run of a row that is read.
struct Piece {
    start: u64,
    len: usize,
    /// Where its columns begin in [`Reads::columns`].
    at: usize,
}

/// What is read for a picture.
struct Reads {
    rows: u64,
    height: u64,
    /// Rows read for each row of the picture.
    most_rows: u64,
    pieces: Vec<Piece>,
    /// The picture's column of every element that is read.
    columns: Vec<u32>,
    exact: bool,
}

impl Reads {
    fn new(rows: u64, cols: u64, height: usize, width: usize, budget: u64) -> Self {
        let exact = rows.saturating_mul(cols) <= budget;
        let (h, w) = (height as u64, width as u64);
        // Columns first: a row is read where it lies in one piece, which costs the disk the least.
        let each = if exact { u64::MAX } else { (budget / h.saturating_mul(w)).max(1) };
        let (mut pieces, mut columns): (Vec<Piece>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut taken = 0;
        for column in 0..w {
            let (from, to) = (edge(column, cols, w), edge(column + 1, cols, w));
            let len = (to - from).min(each);
            let start = from + (to - from - len) / 2;
            taken = taken.max(len);
            match pieces.last_mut() {
                Some(last) if last.start + last.len as u64 == start => last.len += len as usize,
                _ => pieces.push(Piece { start, len: len as usize, at: columns.len() }),
            }
            columns.extend(std::iter::repeat_n(column as u32, len as usize));
        }
        let most_rows = if exact { u64::MAX } else { (budget / h.saturating_mul(columns.len() as u64).max(1)).max(1) };
        Self { rows, height: h, most_rows, pieces, columns, exact }
    }

    /// The rows read for a row of the picture, evenly spread.
    fn rows_of(&self, row: usize) -> impl Iterator<Item = u64> + use<> {
        let (from, to) = (edge(row as u64, self.rows, self.height), edge(row as u64 + 1, self.rows, self.height));
        let (there, taken) = (to - from, (to - from).min(self.most_rows));
        (0..taken).map(move |i| from + i * there / taken)
    }
}

/// Where cell `i` of `cells` begins among `size`.
fn edge(i: u64, size: u64, cells: u64) -> u64 {
    (u128::from(i) * u128::from(size) / u128::from(cells)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::{DType, Shape, View};

    fn view(rows: u64, cols: u64, value: impl Fn(u64) -> f64) -> View {
        let bytes: Vec<u8> = (0..rows * cols).flat_map(|i| value(i).to_le_bytes()).collect();
        View::new(DType::F64, Shape::from([rows, cols]), bytes.into()).unwrap()
    }

    const ALL: [Which; 3] = [Which::Reference, Which::Candidate, Which::Difference];

    fn size(height: usize, width: usize) -> Size {
        Size { height, width, budget: 1 << 20 }
    }

    #[test]
    fn one_outlier_survives_whatever_the_pooling() {
        let reference = view(100, 100, |_| 1.0);
        let candidate = view(100, 100, |i| if i == 4242 { 0.5 } else { 1.0 });
        for (height, width) in [(1, 1), (7, 3), (100, 100), (50, 9)] {
            let pooled = pool(&reference, Some(&candidate), &ALL, size(height, width)).unwrap();
            let difference = &pooled.planes[2].values;
            assert_eq!(difference.len(), height * width);
            assert_eq!(difference.iter().filter(|d| **d == -0.5).count(), 1);
            assert!(pooled.exact && difference.iter().filter(|d| **d == 0.0).count() == height * width - 1);
        }
    }

    #[test]
    fn a_nan_wins_over_an_infinity_over_a_number() {
        let reference = view(2, 4, |i| [1.0, f64::INFINITY, f64::NAN, 9.0, -7.0, f64::NEG_INFINITY, 2.0, 3.0][i as usize]);
        let pooled = pool(&reference, None, &[Which::Reference], size(1, 2)).unwrap();
        let plane = &pooled.planes[0];
        assert!(plane.values[0] == f32::INFINITY && plane.values[1].is_nan());
        assert_eq!((plane.nan, plane.inf, plane.min, plane.max), (1, 2, Some(-7.0), Some(9.0)));
    }

    #[test]
    fn small_negative_numbers_are_not_replaced_by_zero() {
        let reference = view(1, 2, |_| -3.0);
        assert_eq!(pool(&reference, None, &[Which::Reference], size(1, 1)).unwrap().planes[0].values, [-3.0]);
    }

    #[test]
    fn what_f32_cannot_hold_is_still_finite_and_not_zero() {
        let reference = view(1, 3, |i| [1e300, -1e300, 1e-300][i as usize]);
        let values = &pool(&reference, None, &[Which::Reference], size(1, 3)).unwrap().planes[0].values;
        assert_eq!(values, &[f32::MAX, f32::MIN, f32::from_bits(1)]);
    }

    #[test]
    fn beyond_the_budget_it_is_said_and_every_cell_has_a_number() {
        let reference = view(64, 64, |i| i as f64 + 1.0);
        let pooled = pool(&reference, None, &[Which::Reference], Size { height: 8, width: 8, budget: 256 }).unwrap();
        assert!(!pooled.exact && pooled.planes[0].values.iter().all(|value| *value > 0.0));
    }
}
