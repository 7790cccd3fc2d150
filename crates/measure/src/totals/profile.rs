//! Which index of which axis holds the error.
//!
//! The shape, less its axes of size 1, is cut in two: the trailing axes are the inner ones, and there is a cell for each of their elements, a
//! *column*; what lies between two steps of the outer axes is a *row*. A row's sum goes to one index of every outer axis; what an inner
//! axis holds follows from the columns at the end. So no element ever asks for its whole index, whatever the rank.
//!
//! A part of a tensor keeps only the columns and indices it met, as windows: memory follows the part, at most the shape.

use super::Profile;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use twinscope_tensor::Shape;

/// An axis longer than this has no profile.
const LONGEST: u64 = 1 << 20;
/// Columns stay few, so that they stay close by; one axis alone may have more.
const COLUMNS: u64 = 1 << 14;

/// Rows from this length on have their columns summed apart ([`super::columns`]).
const LONG: u64 = 1 << 12;

/// Columns of more elements than this are measured on some rows only,
const EXACT: u64 = 1 << 20;
/// at least so many of them,
const ROWS: u64 = 64;
/// and at least one of so many.
const EVERY: u64 = 64;

/// What one index holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    #[serde(with = "crate::exact")]
    pub(crate) error: f64,
    #[serde(with = "crate::exact")]
    pub(crate) energy: f64,
    #[serde(with = "crate::exact")]
    pub(crate) max_abs: f64,
    pub(crate) differing: u64,
}

impl Cell {
    /// A compared element: `apart = |c - r|`.
    #[inline]
    pub(crate) fn insert(&mut self, r: f64, apart: f64) {
        self.error += apart * apart;
        self.energy += r * r;
        self.max_abs = if apart > self.max_abs {
            apart
        } else {
            self.max_abs
        };
        self.differing += u64::from(apart != 0.0);
    }

    /// One number. `apart` is NaN where the difference is not finite; `compared` says that both sides are.
    #[inline]
    pub(crate) fn of(r: f64, apart: f64, compared: bool) -> Self {
        let mut cell = Self::default();
        if compared {
            cell.insert(r, apart);
        } else {
            cell.differing = u64::from(apart.is_nan());
        }
        cell
    }

    pub(crate) fn is_finite(&self) -> bool {
        self.error.is_finite() && self.energy.is_finite()
    }

    #[inline]
    pub(crate) fn merge(&mut self, other: &Self) {
        self.error += other.error;
        self.energy += other.energy;
        self.max_abs = self.max_abs.max(other.max_abs);
        self.differing += other.differing;
    }
}

/// Cells of the indices `start ..` of something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) cells: Vec<Cell>,
}

impl Window {
    fn new(range: Range<u64>) -> Self {
        Self {
            start: range.start,
            cells: vec![Cell::default(); (range.end - range.start) as usize],
        }
    }

    fn at(&mut self, index: u64) -> &mut Cell {
        &mut self.cells[(index - self.start) as usize]
    }

    fn merge(&mut self, other: Self) {
        if self.cells.is_empty() {
            *self = other;
            return;
        }
        if other.cells.is_empty() {
            return;
        }
        let end =
            (self.start + self.cells.len() as u64).max(other.start + other.cells.len() as u64);
        if other.start < self.start {
            let more = (self.start - other.start) as usize;
            self.cells
                .splice(..0, std::iter::repeat_n(Cell::default(), more));
            self.start = other.start;
        }
        self.cells
            .resize((end - self.start) as usize, Cell::default());
        let from = (other.start - self.start) as usize;
        self.cells[from..]
            .iter_mut()
            .zip(&other.cells)
            .for_each(|(cell, other)| cell.merge(other));
    }
}

/// How a shape is cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cut {
    /// Axes of more than one index: their number and their size.
    axes: Vec<(usize, u64)>,
    /// The first of the inner ones.
    split: usize,
    /// Elements of a row.
    pub(crate) row: u64,
    /// Whether there are columns: not when the last axis is too long for a profile.
    pub(crate) columns: bool,
    /// Rows about a chunk together; one group of so many goes to the columns, so that most chunks have none.
    group: u64,
    every: u64,
}

impl Cut {
    /// `None` when there is no axis to tell about.
    pub(crate) fn of(shape: &Shape) -> Option<Self> {
        let axes: Vec<(usize, u64)> = shape
            .dims()
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, dim)| *dim != 1)
            .collect();
        if axes.iter().any(|(_, dim)| *dim == 0) {
            return None;
        }
        let mut split = axes.len().checked_sub(1)?;
        let mut row = axes[split].1;
        let columns = row <= LONGEST;
        while columns && split > 0 && row * axes[split - 1].1 <= COLUMNS {
            split -= 1;
            row *= axes[split].1;
        }
        let rows: u64 = axes[..split]
            .iter()
            .map(|(_, dim)| dim)
            .fold(1, |rows, dim| rows.saturating_mul(*dim));
        let every = if rows.saturating_mul(row) > EXACT {
            (rows / ROWS).clamp(1, EVERY)
        } else {
            1
        };
        Some(Self {
            axes,
            split,
            row,
            columns,
            group: (super::CHUNK / row).max(1),
            every,
        })
    }

    /// The same with columns of every row.
    pub(crate) fn whole(self) -> Self {
        Self { every: 1, ..self }
    }

    /// All rows for each that is measured.
    fn scale(&self) -> f64 {
        let rows: u64 = self.axes[..self.split]
            .iter()
            .map(|(_, dim)| dim)
            .fold(1, |rows, dim| rows.saturating_mul(*dim));
        let groups = rows.div_ceil(self.group);
        let measured = groups.div_ceil(self.every).saturating_mul(self.group);
        let missing = if (groups - 1).is_multiple_of(self.every) {
            groups.saturating_mul(self.group) - rows
        } else {
            0
        };
        rows as f64 / (measured - missing) as f64
    }

    /// Rows from this one on that are all measured, or all not.
    pub(crate) fn alike(&self, row: u64) -> u64 {
        self.group - row % self.group
    }

    /// Whether the columns are measured on this row.
    pub(crate) fn samples(&self, row: u64) -> bool {
        (row / self.group).is_multiple_of(self.every)
    }

    /// Rows from a measured one on that are measured and as far apart as the next one: how many at most, and how far.
    pub(super) fn evenly(&self, row: u64) -> (u64, u64) {
        match (self.every, self.group) {
            (1, _) => (u64::MAX, 1),
            (every, 1) => (u64::MAX, every),
            _ => (self.alike(row), 1),
        }
    }

    /// Whether columns are summed apart from the rest.
    pub(super) fn is_long(&self) -> bool {
        self.columns && self.row >= LONG
    }

    /// The rows that the elements `range` are of, at least one.
    fn rows(&self, range: &Range<u64>) -> (u64, u64) {
        (
            range.start / self.row,
            (range.end.max(range.start + 1) - 1) / self.row,
        )
    }

    /// The window of columns that the elements `range` need.
    pub(super) fn columns_of(&self, range: &Range<u64>) -> Window {
        let (first, last) = self.rows(range);
        let any = (first / self.group).next_multiple_of(self.every) <= last / self.group;
        Window::new(match (self.columns && any, first == last) {
            (false, _) => 0..0,
            (true, true) => {
                range.start % self.row..(range.end.max(range.start + 1) - 1) % self.row + 1
            }
            (true, false) => 0..self.row,
        })
    }

    /// The windows of outer axes that the elements `range` need.
    fn outer_of(&self, range: &Range<u64>) -> Vec<Window> {
        let (first, last) = self.rows(range);
        let mut step = 1;
        let mut outer: Vec<Window> = self.axes[..self.split]
            .iter()
            .rev()
            .map(|(_, dim)| {
                let (low, high) = (first / step, last / step);
                step *= dim;
                let wraps = high - low >= *dim || low % dim > high % dim;
                Window::new(if *dim > LONGEST {
                    0..0
                } else if wraps {
                    0..*dim
                } else {
                    low % dim..high % dim + 1
                })
            })
            .collect();
        outer.reverse();
        outer
    }
}

/// The cells of a part of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Profiles {
    pub(crate) cut: Cut,
    columns: Window,
    /// One for each outer axis.
    outer: Vec<Window>,
}

impl Profiles {
    pub(crate) fn new(cut: Cut, range: &Range<u64>) -> Self {
        let (columns, outer) = (cut.columns_of(range), cut.outer_of(range));
        Self {
            cut,
            columns,
            outer,
        }
    }

    /// Without columns: those are [`Profiles::put`] there afterwards.
    pub(super) fn of_rows(cut: Cut, range: &Range<u64>) -> Self {
        let outer = cut.outer_of(range);
        Self {
            cut,
            columns: Window::default(),
            outer,
        }
    }

    pub(super) fn put(&mut self, columns: Window) {
        self.columns = columns;
    }

    /// The same part with nothing in it.
    pub(super) fn emptied(&self, range: &Range<u64>) -> Self {
        let again = if self.has_columns() {
            Self::new
        } else {
            Self::of_rows
        };
        again(self.cut.clone(), range)
    }

    pub(crate) fn has_columns(&self) -> bool {
        !self.columns.cells.is_empty()
    }

    /// Whether row sums go anywhere.
    pub(crate) fn has_rows(&self) -> bool {
        self.outer.iter().any(|window| !window.cells.is_empty())
    }

    /// The columns from one on.
    pub(crate) fn columns_from(&mut self, column: u64) -> &mut [Cell] {
        let from = (column - self.columns.start) as usize;
        &mut self.columns.cells[from..]
    }

    /// What (a part of) a row sums up to.
    pub(crate) fn insert_row(&mut self, mut row: u64, sums: &Cell) {
        for ((_, dim), window) in self.cut.axes[..self.cut.split]
            .iter()
            .zip(&mut self.outer)
            .rev()
        {
            if !window.cells.is_empty() {
                window.at(row % dim).merge(sums);
            }
            row /= dim;
        }
    }

    /// The pieces of rows that `count` elements from `start` consist of: `(row, column, elements)`.
    pub(crate) fn pieces(
        row: u64,
        start: u64,
        count: usize,
    ) -> impl Iterator<Item = (u64, u64, Range<usize>)> {
        // Divided once: a division takes as long as a short piece.
        let (mut nth, mut column, mut done) = (start / row, start % row, 0);
        std::iter::from_fn(move || {
            let len = usize::try_from(row - column)
                .unwrap_or(usize::MAX)
                .min(count - done);
            let piece = (nth, column, done..done + len);
            (nth, column, done) = (nth + 1, 0, done + len);
            (len > 0).then_some(piece)
        })
    }

    /// Numbers of elements from `start` on, `per` of them for each element. `apart` is NaN where the difference is not finite; `compared` says
    /// where both sides are finite.
    pub(crate) fn insert(
        &mut self,
        start: u64,
        per: usize,
        r: &[f64],
        apart: &[f64],
        compared: impl Fn(usize) -> bool,
    ) {
        for (row, column, elements) in Self::pieces(self.cut.row, start, r.len() / per) {
            let mut sums = Cell::default();
            let columns = self.has_columns() && self.cut.samples(row);
            for (i, element) in elements.enumerate() {
                for number in element * per..(element + 1) * per {
                    let cell = Cell::of(r[number], apart[number], compared(number));
                    sums.merge(&cell);
                    if columns {
                        self.columns.at(column + i as u64).merge(&cell);
                    }
                }
            }
            self.insert_row(row, &sums);
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.columns.merge(other.columns);
        self.outer
            .iter_mut()
            .zip(other.outer)
            .for_each(|(window, other)| window.merge(other));
    }

    pub(crate) fn finish(self) -> Vec<Profile> {
        let Self {
            cut,
            columns,
            outer,
        } = self;
        let mut all: Vec<Profile> = cut.axes[..cut.split]
            .iter()
            .zip(outer)
            .filter(|((_, dim), _)| *dim <= LONGEST)
            .map(|((axis, dim), window)| profile(*axis, *dim, &window))
            .collect();
        if cut.columns {
            for (i, (axis, dim)) in cut.axes.iter().enumerate().skip(cut.split) {
                // Of one axis alone there may be many columns: they are its cells as they are.
                let summed = (*dim != cut.row).then(|| {
                    let step: u64 = cut.axes[i + 1..].iter().map(|(_, dim)| dim).product();
                    let mut summed = Window::new(0..*dim);
                    for (cell, column) in columns.cells.iter().zip(columns.start..) {
                        summed.at(column / step % dim).merge(cell);
                    }
                    summed
                });
                let mut found = profile(*axis, *dim, summed.as_ref().unwrap_or(&columns));
                if cut.every > 1 {
                    let scale = cut.scale();
                    found
                        .error
                        .iter_mut()
                        .chain(&mut found.energy)
                        .for_each(|sum| *sum *= scale);
                    found
                        .differing
                        .iter_mut()
                        .for_each(|count| *count = (*count as f64 * scale).round() as u64);
                }
                all.push(found);
            }
        }
        all
    }
}

fn profile(axis: usize, dim: u64, window: &Window) -> Profile {
    fn all<T: Clone + Default>(dim: u64, window: &Window, of: impl Fn(&Cell) -> T) -> Vec<T> {
        let mut whole = vec![T::default(); dim as usize];
        whole[window.start as usize..]
            .iter_mut()
            .zip(&window.cells)
            .for_each(|(number, cell)| *number = of(cell));
        whole
    }
    Profile {
        axis,
        error: all(dim, window, |cell| cell.error),
        energy: all(dim, window, |cell| cell.energy),
        max_abs: all(dim, window, |cell| cell.max_abs),
        differing: all(dim, window, |cell| cell.differing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By the index of every element.
    fn slowly(shape: &Shape, r: &[f64], apart: &[f64]) -> Vec<Profile> {
        let axes = shape
            .dims()
            .iter()
            .enumerate()
            .filter(|(_, dim)| **dim != 1 && **dim <= LONGEST);
        axes.map(|(axis, dim)| {
            let mut cells = vec![Cell::default(); *dim as usize];
            (0..r.len())
                .for_each(|i| cells[shape.unravel(i as u64)[axis] as usize].insert(r[i], apart[i]));
            profile(axis, *dim, &Window { start: 0, cells })
        })
        .collect()
    }

    proptest! {
        #[test]
        fn any_split_of_any_shape_gives_every_axis(
            dims in prop_oneof![prop::collection::vec(1u64..8, 0..5), prop::collection::vec(1u64..150, 2), Just(vec![2, 17_000])],
            cuts in prop::collection::vec(0.0f64..1.0, 0..4),
        ) {
            let shape = Shape::from(dims);
            let count = shape.elements().expect("few");
            // Small whole numbers: sums are exact in any order.
            let r: Vec<f64> = (0..count).map(|i| (i * 7 % 23) as f64 - 11.0).collect();
            let apart: Vec<f64> = (0..count).map(|i| (i * 5 % 7) as f64).collect();
            let Some(cut) = Cut::of(&shape) else {
                prop_assert_eq!(count, 1);
                return Ok(());
            };
            let mut borders: Vec<u64> = cuts.iter().map(|cut| (cut * count as f64) as u64).chain([0, count]).collect();
            borders.sort_unstable();
            let mut whole = Profiles::new(cut.clone(), &(0..0));
            for pair in borders.windows(2).filter(|pair| pair[0] < pair[1]) {
                let (from, to) = (pair[0] as usize, pair[1] as usize);
                let mut part = Profiles::new(cut.clone(), &(pair[0]..pair[1]));
                part.insert(pair[0], 1, &r[from..to], &apart[from..to], |_| true);
                whole.merge(part);
            }
            prop_assert_eq!(whole.finish(), slowly(&shape, &r, &apart));
        }
    }

    #[test]
    fn a_long_last_axis_is_left_out() {
        let cut = Cut::of(&Shape::from([3, LONGEST + 1])).expect("axes");
        assert_eq!((cut.columns, cut.row, cut.split), (false, LONGEST + 1, 1));
        assert_eq!(Cut::of(&Shape::from([1, 1])), None);
        assert_eq!(Cut::of(&Shape::from([4, 0])), None);
    }
}
