//! A window of a tensor at the size of a screen: each cell is the number of largest magnitude in it, with its sign.
//!
//! A NaN wins over an infinity, an infinity over any number: a single wrong element is what a picture is looked at for, and a mean would hide
//! it. The difference is pooled by itself, because the pool of a difference is not the difference of the pools.
//!
//! Reading is bounded. A window of more than `budget` elements is sampled: of the columns that share a cell the middle ones, side by side, of the
//! rows that share it some, evenly spread, and as many of both as the budget has for each cell. A cell is then the largest of what was read for it,
//! [`Pooled::exact`] is false and [`Pooled::read`] says how much it was. What is sampled depends on the sizes alone, never on the machine or
//! its threads: the rows of the picture are shared out among rayon's current ones. Numbers become `f32` for the picture; what is beyond its
//! range stays finite and what is not 0 stays not 0.

use crate::reader::{Reader, Which};
use rayon::prelude::*;
use std::ops::Range;
use twinscope_tensor::{Operand, ReadError, Shape, View};

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
    /// How many elements were read, of each side.
    pub read: u64,
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

/// Rows of the picture that one thread takes at a time.
const STRIP: usize = 16;

/// Pools a window of rows and columns, given as operands of two dimensions. Without a candidate only the reference has numbers.
///
/// # Panics
/// When the operands have not two dimensions, or not the same.
pub fn pool(
    reference: &dyn Operand,
    candidate: Option<&dyn Operand>,
    planes: &[Which],
    size: Size,
) -> Result<Pooled, ReadError> {
    let dims = reference.shape().dims();
    assert!(
        dims.len() == 2 && candidate.is_none_or(|candidate| candidate.shape().dims() == dims),
        "two windows of one size"
    );
    // Said of an empty window too.
    Reader::of(reference, candidate)?;
    let (height, width) = (
        size.height.min(dims[0] as usize),
        size.width.min(dims[1] as usize),
    );
    let mut pooled = Pooled {
        height,
        width,
        exact: true,
        read: 0,
        planes: vec![Cells::default(); planes.len()],
    };
    if height == 0 || width == 0 {
        return Ok(pooled);
    }
    let reads = Reads::new([dims[0], dims[1]], [height, width], size.budget);
    (pooled.exact, pooled.read) = (reads.exact, reads.elements());
    let strips: Vec<Range<usize>> = (0..height)
        .step_by(STRIP)
        .map(|from| from..(from + STRIP).min(height))
        .collect();
    let strips: Vec<Result<Vec<Cells>, ReadError>> = strips
        .into_par_iter()
        .map(|rows| strip([Some(reference), candidate], planes, &reads, rows))
        .collect();
    for strip in strips {
        pooled
            .planes
            .iter_mut()
            .zip(strip?)
            .for_each(|(all, cells)| all.append(cells));
    }
    reference.check()?;
    candidate.map_or(Ok(()), |candidate| candidate.check())?;
    Ok(pooled)
}

/// Some rows of the picture.
fn strip(
    sides: [Option<&dyn Operand>; 2],
    planes: &[Which],
    reads: &Reads,
    rows: Range<usize>,
) -> Result<Vec<Cells>, ReadError> {
    let gathered = reads.gathered(sides, rows.clone());
    let [reference, candidate] = match &gathered {
        Some(views) => views
            .each_ref()
            .map(|view| view.as_ref().map(|view| view as &dyn Operand)),
        None => sides,
    };
    let mut reader = Reader::of(reference.expect("there is always a reference"), candidate)?;
    let mut found = vec![Cells::default(); planes.len()];
    let mut best: Vec<Vec<f64>> = vec![vec![0.0; reads.width]; planes.len()];
    let mut line = 0;
    for row in rows {
        for (nth, r) in reads.rows_of(row).enumerate() {
            let mut take = |start: u64, columns: &[u32]| {
                reader.read(start, columns.len());
                for ((which, best), cells) in planes.iter().zip(&mut best).zip(&mut found) {
                    fold(
                        reader.numbers(*which),
                        reader.per(),
                        columns,
                        best,
                        nth == 0,
                        cells,
                    );
                }
            };
            if gathered.is_some() {
                take(line * reads.columns.len() as u64, &reads.columns);
            } else {
                let mut at = 0;
                for run in &reads.runs {
                    let len = (run.end - run.start) as usize;
                    take(r * reads.cols + run.start, &reads.columns[at..at + len]);
                    at += len;
                }
            }
            line += 1;
        }
        found.iter_mut().zip(&best).for_each(|(cells, best)| {
            cells
                .values
                .extend(best.iter().map(|number| narrow(*number)));
        });
    }
    Ok(found)
}

impl Cells {
    /// The rows below.
    fn append(&mut self, below: Self) {
        let either = |a: Option<f64>, b: Option<f64>, pick: fn(f64, f64) -> f64| {
            a.zip(b).map(|(a, b)| pick(a, b)).or(a).or(b)
        };
        self.values.extend(below.values);
        self.min = either(self.min, below.min, f64::min);
        self.max = either(self.max, below.max, f64::max);
        self.nan += below.nan;
        self.inf += below.inf;
    }
}

/// Puts numbers into their columns. The first number of a column takes its place whatever it is.
fn fold(
    numbers: &[f64],
    per: usize,
    columns: &[u32],
    best: &mut [f64],
    first_row: bool,
    cells: &mut Cells,
) {
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

/// What is read for a picture.
struct Reads {
    rows: u64,
    cols: u64,
    height: usize,
    width: usize,
    /// Rows read for each row of the picture.
    most_rows: u64,
    /// What is read of a row.
    runs: Vec<Range<u64>>,
    /// The picture's column of every element that is read.
    columns: Vec<u32>,
    exact: bool,
}

impl Reads {
    fn new([rows, cols]: [u64; 2], [height, width]: [usize; 2], budget: u64) -> Self {
        let exact = rows.saturating_mul(cols) <= budget;
        let (h, w) = (height as u64, width as u64);
        // Columns first: a row is read where it lies in one piece, which costs the disk the least.
        let each = if exact {
            u64::MAX
        } else {
            (budget / h.saturating_mul(w)).max(1)
        };
        let (mut runs, mut columns): (Vec<Range<u64>>, Vec<u32>) = (Vec::new(), Vec::new());
        for column in 0..w {
            let (from, to) = (edge(column, cols, w), edge(column + 1, cols, w));
            let len = (to - from).min(each);
            let start = from + (to - from - len) / 2;
            match runs.last_mut() {
                Some(last) if last.end == start => last.end += len,
                _ => runs.push(start..start + len),
            }
            columns.extend(std::iter::repeat_n(column as u32, len as usize));
        }
        let most_rows = if exact {
            u64::MAX
        } else {
            (budget / h.saturating_mul(columns.len() as u64).max(1)).max(1)
        };
        Self {
            rows,
            cols,
            height,
            width,
            most_rows,
            runs,
            columns,
            exact,
        }
    }

    /// Elements that are read in all.
    fn elements(&self) -> u64 {
        (0..self.height)
            .map(|row| self.rows_of(row).len() as u64)
            .sum::<u64>()
            * self.columns.len() as u64
    }

    /// What is read for some rows of the picture, put together, where it lies apart and each side has bytes to put together.
    fn gathered(
        &self,
        sides: [Option<&dyn Operand>; 2],
        rows: Range<usize>,
    ) -> Option<[Option<View>; 2]> {
        if self.runs.len() == 1 {
            return None;
        }
        let lines: Vec<u64> = rows.flat_map(|row| self.rows_of(row)).collect();
        let shape = Shape::from([lines.len() as u64, self.columns.len() as u64]);
        let mut gathered = [None, None];
        for (side, gathered) in sides.into_iter().zip(&mut gathered) {
            let Some(side) = side else { continue };
            let mut bytes = Vec::new();
            if !side
                .view()?
                .gather_runs(lines.iter().copied(), &self.runs, &mut bytes)
            {
                return None;
            }
            *gathered = Some(View::new(side.dtype(), shape.clone(), bytes.into()).ok()?);
        }
        Some(gathered)
    }

    /// The rows read for a row of the picture, evenly spread.
    fn rows_of(&self, row: usize) -> impl ExactSizeIterator<Item = u64> + use<> {
        let (row, height) = (row as u64, self.height as u64);
        let (from, to) = (
            edge(row, self.rows, height),
            edge(row + 1, self.rows, height),
        );
        let (there, taken) = (to - from, (to - from).min(self.most_rows));
        (0..taken as usize).map(move |i| from + i as u64 * there / taken)
    }
}

/// Where cell `i` of `cells` begins among `size`.
fn edge(i: u64, size: u64, cells: u64) -> u64 {
    (u128::from(i) * u128::from(size) / u128::from(cells)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::{Assembly, DType, slice::Cut};

    fn view(rows: u64, cols: u64, value: impl Fn(u64) -> f64) -> View {
        let bytes: Vec<u8> = (0..rows * cols)
            .flat_map(|i| value(i).to_le_bytes())
            .collect();
        View::new(DType::F64, Shape::from([rows, cols]), bytes.into()).unwrap()
    }

    const ALL: [Which; 3] = [Which::Reference, Which::Candidate, Which::Difference];

    fn size(height: usize, width: usize) -> Size {
        Size {
            height,
            width,
            budget: 1 << 20,
        }
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
            assert!(
                pooled.exact
                    && difference.iter().filter(|d| **d == 0.0).count() == height * width - 1
            );
        }
    }

    #[test]
    fn a_nan_wins_over_an_infinity_over_a_number() {
        let reference = view(2, 4, |i| {
            [
                1.0,
                f64::INFINITY,
                f64::NAN,
                9.0,
                -7.0,
                f64::NEG_INFINITY,
                2.0,
                3.0,
            ][i as usize]
        });
        let pooled = pool(&reference, None, &[Which::Reference], size(1, 2)).unwrap();
        let plane = &pooled.planes[0];
        assert!(plane.values[0] == f32::INFINITY && plane.values[1].is_nan());
        assert_eq!(
            (plane.nan, plane.inf, plane.min, plane.max),
            (1, 2, Some(-7.0), Some(9.0))
        );
    }

    #[test]
    fn small_negative_numbers_are_not_replaced_by_zero() {
        let reference = view(1, 2, |_| -3.0);
        assert_eq!(
            pool(&reference, None, &[Which::Reference], size(1, 1))
                .unwrap()
                .planes[0]
                .values,
            [-3.0]
        );
    }

    #[test]
    fn what_f32_cannot_hold_is_still_finite_and_not_zero() {
        let reference = view(1, 3, |i| [1e300, -1e300, 1e-300][i as usize]);
        let values = &pool(&reference, None, &[Which::Reference], size(1, 3))
            .unwrap()
            .planes[0]
            .values;
        assert_eq!(values, &[f32::MAX, f32::MIN, f32::from_bits(1)]);
    }

    #[test]
    fn beyond_the_budget_it_is_said_and_every_cell_has_a_number() {
        let reference = view(64, 64, |i| i as f64 + 1.0);
        let pooled = pool(
            &reference,
            None,
            &[Which::Reference],
            Size {
                height: 8,
                width: 8,
                budget: 256,
            },
        )
        .unwrap();
        assert!(!pooled.exact && pooled.planes[0].values.iter().all(|value| *value > 0.0));
        assert_eq!(
            (
                pooled.read,
                pool(&reference, None, &[], size(8, 8)).unwrap().read
            ),
            (256, 4096)
        );
    }

    #[test]
    fn a_sampled_cell_is_the_largest_of_the_middle_columns_of_its_first_row() {
        let reference = view(64, 64, |i| if i % 64 % 8 == 7 { 1e9 } else { i as f64 });
        let pooled = pool(
            &reference,
            None,
            &[Which::Reference],
            Size {
                height: 8,
                width: 8,
                budget: 256,
            },
        )
        .unwrap();
        let expected =
            (0..8).flat_map(|row| (0..8).map(move |column| (row * 8 * 64 + column * 8 + 5) as f32));
        assert!(pooled.planes[0].values.iter().copied().eq(expected));
    }

    /// The same numbers transposed in memory, big-endian, and put together from parts, which have no bytes of their own.
    #[test]
    fn a_sample_is_the_same_however_the_numbers_lie_and_however_many_threads_read_them() {
        let (rows, cols) = (200, 150);
        let number = |i: u64| {
            if i == 3333 {
                f64::NAN
            } else {
                (i as f64 * 0.7).sin()
            }
        };
        let plain = view(rows, cols, number);
        let transposed = view(cols, rows, |i| number(i % rows * cols + i / rows)).permute(&[1, 0]);
        let bytes: Vec<u8> = (0..rows * cols)
            .flat_map(|i| number(i).to_be_bytes())
            .collect();
        let big_endian = View::new(DType::F64, Shape::from([rows, cols]), bytes.into())
            .unwrap()
            .big_endian(true);
        let half = |start| {
            Assembly::from(plain.slice(&[Cut::Range {
                start,
                step: 1,
                len: rows / 2,
            }]))
        };
        let parts = Assembly::concat(vec![half(0), half(rows / 2)], 0).unwrap();
        let candidate = view(rows, cols, |i| {
            number(i) + if i % 11 == 0 { 0.25 } else { 0.0 }
        });
        let size = Size {
            height: 40,
            width: 30,
            budget: 5000,
        };
        let picture = |reference: &dyn Operand, threads: usize| {
            let threads = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let pooled = threads
                .install(|| pool(reference, Some(&candidate), &ALL, size))
                .unwrap();
            let bits: Vec<Vec<u32>> = pooled
                .planes
                .iter()
                .map(|cells| cells.values.iter().map(|value| value.to_bits()).collect())
                .collect();
            let facts: Vec<_> = pooled
                .planes
                .iter()
                .map(|cells| (cells.min, cells.max, cells.nan, cells.inf))
                .collect();
            (bits, facts, pooled.exact, pooled.read)
        };
        let expected = picture(&parts, 1);
        assert!(!expected.2 && parts.view().is_none());
        for (reference, threads) in [(&plain, 1), (&plain, 5), (&transposed, 3), (&big_endian, 2)] {
            assert_eq!(picture(reference, threads), expected);
        }
    }
}
