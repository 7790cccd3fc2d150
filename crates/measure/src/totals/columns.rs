//! The columns of long rows, strip by strip.
//!
//! A chunk meets a column of a long row a few times, or once: what it keeps of its columns is more than it has itself, and all of that is
//! merged again and again. So columns of such tensors are summed apart, once all else is known: some of them at a time, down all their rows.

use super::{
    fast::{Part, Sides},
    profile::{Cell, Cut, Window},
    read::Values,
    state::Task,
};
use crate::{simd::Pair, stats::bytes_of};
use rayon::prelude::*;
use std::ops::Range;

/// Columns that are summed together: their cells stay close by.
const STRIP: usize = 1 << 10;
/// Rows that are summed up before they go to the cells. Lines of memory of so many rows are asked for in turn, and all stay close by.
const ROWS: u64 = 64;

/// The columns that the elements `range` have. `equal` says that nothing differs.
pub(super) fn of_range(task: &Task<'_>, cut: &Cut, range: &Range<u64>, equal: bool) -> Window {
    if range.is_empty() {
        return Window::default();
    }
    let mut window = cut.columns_of(range);
    let start = window.start;
    let in_place = task.in_place(range).zip(task.pair);
    window
        .cells
        .par_chunks_mut(STRIP)
        .enumerate()
        .for_each(|(nth, cells)| {
            let from = start + (nth * STRIP) as u64;
            let strip = Strip {
                task,
                cut,
                range,
                columns: from..from + cells.len() as u64,
            };
            match (in_place, task.wide) {
                (Some((sides, pair)), _) => strip.in_place(sides, pair, equal, cells),
                (None, Some(pair)) => strip.as_numbers(pair, cells),
                (None, None) => strip.plainly(cells),
            }
            // What is not finite is counted, not summed.
            if !cells.iter().all(Cell::is_finite) {
                cells.fill(Cell::default());
                strip.plainly(cells);
            }
        });
    window
}

/// Some columns of a run of elements.
struct Strip<'a> {
    task: &'a Task<'a>,
    cut: &'a Cut,
    range: &'a Range<u64>,
    columns: Range<u64>,
}

/// Elements of rows that are the same step apart.
struct Piece {
    /// The first element, and how many there are in each row.
    start: u64,
    width: usize,
    rows: u64,
    /// Elements from one row to the next.
    step: u64,
}

impl Strip<'_> {
    /// What of the strip is measured. Only the first and the last row of a run may have a part of its columns.
    fn pieces(&self) -> impl Iterator<Item = Piece> {
        let row = self.cut.row;
        let (first, last) = (
            self.range.start / row,
            self.range.end.saturating_sub(1) / row,
        );
        let (begin, end) = (
            self.range.start % row,
            self.range.end.saturating_sub(1) % row + 1,
        );
        let there = move |line: u64| {
            let low = if line == first { begin } else { 0 };
            let high = if line == last { end } else { row };
            self.columns.start.max(low)..self.columns.end.min(high)
        };
        let mut line = first;
        std::iter::from_fn(move || {
            while line <= last {
                if !self.cut.samples(line) {
                    line += self.cut.alike(line);
                    continue;
                }
                let columns = there(line);
                let (most, step) = if columns == self.columns {
                    self.cut.evenly(line)
                } else {
                    (1, 1)
                };
                // The last row is one of them when it has all columns.
                let left = if there(last) == self.columns {
                    last + 1 - line
                } else {
                    (last - line).max(1)
                };
                let rows = left.div_ceil(step).min(most).min(ROWS);
                let piece = Piece {
                    start: line * row + columns.start,
                    width: columns.end.saturating_sub(columns.start) as usize,
                    rows,
                    step: step * row,
                };
                line += rows * step;
                if piece.width > 0 {
                    return Some(piece);
                }
            }
            None
        })
    }

    /// Every row of every piece: its first element, how many there are, and the first one's place in the strip.
    fn lines(&self) -> impl Iterator<Item = (u64, usize, usize)> {
        self.pieces().flat_map(|piece| {
            let place = (piece.start % self.cut.row - self.columns.start) as usize;
            (0..piece.rows).map(move |nth| (piece.start + nth * piece.step, piece.width, place))
        })
    }

    fn in_place(&self, (r, c, widths): Sides<'_>, pair: Pair, equal: bool, cells: &mut [Cell]) {
        for Piece {
            start,
            width,
            rows,
            step,
        } in self.pieces()
        {
            let from = (start - self.range.start) as usize;
            let to = from + (rows - 1) as usize * step as usize + width;
            let part = Part {
                r: &r[from * widths[0]..to * widths[0]],
                c: &c[from * widths[1]..to * widths[1]],
                rows: rows as usize,
                row: step as usize,
            };
            let place = (start % self.cut.row - self.columns.start) as usize;
            let cells = &mut cells[place..place + width];
            if equal {
                pair.energies(part, cells);
            } else {
                pair.columns(part, cells);
            }
        }
    }

    /// Anything that is one number each, read as f64.
    fn as_numbers(&self, pair: Pair, cells: &mut [Cell]) {
        let mut values = Values::default();
        for (start, width, place) in self.lines() {
            if !values.read_numbers(self.task.reference, self.task.candidate, start, width) {
                cells.fill(Cell::default());
                return self.plainly(cells);
            }
            let (r, c) = (&*bytes_of(&values.reference), &*bytes_of(&values.candidate));
            pair.columns(
                Part {
                    r,
                    c,
                    rows: 1,
                    row: width,
                },
                &mut cells[place..place + width],
            );
        }
    }

    fn plainly(&self, cells: &mut [Cell]) {
        let mut values = Values::default();
        let per = self.task.sort.per() as usize;
        for (start, width, place) in self.lines() {
            values.read(
                self.task.sort,
                self.task.reference,
                self.task.candidate,
                start,
                width,
            );
            let Values {
                reference,
                candidate,
                apart,
                ..
            } = &values;
            for number in 0..width * per {
                let compared = reference[number].is_finite() && candidate[number].is_finite();
                cells[place + number / per].merge(&Cell::of(
                    reference[number],
                    apart[number],
                    compared,
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::totals::{Options, Profile, Profiling, State, profile::Cell};
    use proptest::prelude::*;
    use twinscope_tensor::{DType, Shape, View};

    fn view(dtype: DType, shape: &Shape, values: &[f32]) -> View {
        let bytes: Vec<u8> = match dtype {
            DType::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            DType::F16 => values
                .iter()
                .flat_map(|x| half::f16::from_f32(*x).to_le_bytes())
                .collect(),
            _ => values.iter().map(|x| *x as i8 as u8).collect(),
        };
        View::new(dtype, shape.clone(), bytes.into()).expect("exactly these bytes")
    }

    /// The columns, element by element.
    fn slowly([_, wide]: [usize; 2], r: &[f32], c: &[f32]) -> Profile {
        let mut cells = vec![Cell::default(); wide];
        for (i, (r, c)) in r.iter().zip(c).enumerate() {
            let (r, c) = (f64::from(*r), f64::from(*c));
            let same = r == c || (r.is_nan() && c.is_nan());
            let both = r.is_finite() && c.is_finite();
            cells[i % wide].merge(&Cell::of(
                r,
                if both {
                    (c - r).abs()
                } else if same {
                    0.0
                } else {
                    f64::NAN
                },
                both,
            ));
        }
        Profile {
            axis: 1,
            error: cells.iter().map(|cell| cell.error).collect(),
            energy: cells.iter().map(|cell| cell.energy).collect(),
            max_abs: cells.iter().map(|cell| cell.max_abs).collect(),
            differing: cells.iter().map(|cell| cell.differing).collect(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn long_rows_have_the_columns_that_their_elements_say(
            rows in 1usize..5,
            wide in prop::sample::select(vec![16_500usize, 30_001, 65_536, 70_001, 140_000]),
            dtypes in prop::sample::select(vec![[DType::F32; 2], [DType::F16, DType::F32], [DType::I8, DType::I8], [DType::F32, DType::I8]]),
            strange in any::<bool>(),
            equal in any::<bool>(),
        ) {
            // Small whole numbers: sums are exact in any order, in all of these dtypes.
            let r: Vec<f32> = (0..rows * wide).map(|i| (i * 7 % 23) as f32 - 11.0).collect();
            let mut c: Vec<f32> = r.iter().enumerate().map(|(i, x)| if equal { *x } else { x + (i * 5 % 7) as f32 }).collect();
            if strange && dtypes[1] == DType::F32 {
                c[rows * wide / 2] = f32::NAN;
                c[wide - 3] = f32::INFINITY;
            }
            let shape = Shape::from([rows as u64, wide as u64]);
            let (reference, candidate) = (view(dtypes[0], &shape, &r), view(dtypes[1], &shape, &c));
            let options = Options { profiles: Profiling::Sampled, top: 1, tolerance: None };
            let count = r.len() as u64;
            let whole = State::of_range(&reference, &candidate, 0..count, &options).expect("memory stays as it is");
            let columns = |state: State| state.finish().profiles.into_iter().find(|profile| profile.axis == 1).expect("columns");
            let wanted = slowly([rows, wide], &r, &c);
            prop_assert_eq!(&columns(whole), &wanted);
            // In two parts that end inside a row.
            let middle = (count / 2).next_multiple_of(crate::totals::CHUNK).min(count / crate::totals::CHUNK * crate::totals::CHUNK);
            let [left, right] = [0..middle, middle..count].map(|range| State::of_range(&reference, &candidate, range, &options).expect("as above"));
            prop_assert_eq!(columns(left.merge(right)), wanted);
        }
    }
}
