//! An N-d block of values as nested brackets, the way NumPy prints arrays.
//!
//! Two passes over the cells: one for the column widths, one to print. Nothing is held but one cell, so a tensor of any
//! size can be printed in full. Numbers line up at their decimal points.

use std::io::{self, Write};

/// NumPy's `threshold`: arrays with more elements are shown by their edges.
pub(crate) const THRESHOLD: u64 = 1000;
/// NumPy's `edgeitems`: how many are kept at each end of a dimension.
pub(crate) const EDGE: u64 = 3;

/// Gives one cell: appends the text of the element at this index.
pub(crate) type Cell<'a> = dyn FnMut(&[u64], &mut String) + 'a;

/// How many cells a layout of this shape shows.
pub(crate) fn cells(dims: &[u64], edge: Option<u64>) -> u64 {
    if dims.contains(&0) {
        return 0;
    }
    let shown = |dim: u64| edge.map_or(dim, |edge| dim.min(2 * edge));
    dims.iter()
        .fold(1, |product: u64, dim| product.saturating_mul(shown(*dim)))
}

/// Writes the block, no line longer than `width` unless one cell is. With an `edge`, dimensions longer than twice that
/// keep so many at each end and `...` between.
pub(crate) fn write(
    out: &mut dyn Write,
    dims: &[u64],
    edge: Option<u64>,
    width: usize,
    cell: &mut Cell<'_>,
) -> io::Result<()> {
    if dims.contains(&0) {
        return writeln!(out, "[]");
    }
    let mut columns = Columns::default();
    let mut text = String::new();
    let mut index = vec![0; dims.len()];
    loop {
        text.clear();
        cell(&index, &mut text);
        columns.fit(&text);
        if !advance(&mut index, dims, edge) {
            break;
        }
    }
    let mut printer = Printer {
        out,
        dims,
        edge,
        width,
        columns,
        cell,
        index: vec![0; dims.len()],
        text,
    };
    printer.axis(0)?;
    writeln!(printer.out)
}

/// The next index that is shown, in row-major order; false after the last.
fn advance(index: &mut [u64], dims: &[u64], edge: Option<u64>) -> bool {
    for (at, dim) in index.iter_mut().zip(dims).rev() {
        if let Some(next) = following(*at, *dim, edge) {
            *at = next;
            return true;
        }
        *at = 0;
    }
    false
}

/// The next position along one dimension, over the gap if there is one.
fn following(at: u64, dim: u64, edge: Option<u64>) -> Option<u64> {
    match edge {
        Some(edge) if dim > 2 * edge && at + 1 == edge => Some(dim - edge),
        _ => Some(at + 1).filter(|next| *next < dim),
    }
}

/// Widths before and from the decimal point on.
#[derive(Debug, Default)]
struct Columns {
    before: usize,
    after: usize,
    /// Widest cell without a point: it may use the whole width.
    whole: usize,
}

impl Columns {
    fn fit(&mut self, text: &str) {
        match split(text) {
            Some((before, after)) => {
                self.before = self.before.max(before);
                self.after = self.after.max(after);
            }
            None => self.whole = self.whole.max(text.chars().count()),
        }
    }

    fn width(&self) -> usize {
        (self.before + self.after).max(self.whole)
    }

    /// Blanks before and after a cell.
    fn pads(&self, text: &str) -> (usize, usize) {
        let width = self.width();
        match split(text) {
            Some((before, after)) => {
                let right = self.after - after;
                (width - before - after - right, right)
            }
            None => (width - text.chars().count(), 0),
        }
    }
}

/// Characters before the decimal point, and with it and behind it. Only for plain numbers: everything else is whole.
fn split(text: &str) -> Option<(usize, usize)> {
    let point = text.find('.')?;
    text.bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'))
        .then_some((point, text.len() - point))
}

struct Printer<'a, 'c> {
    out: &'a mut dyn Write,
    dims: &'a [u64],
    edge: Option<u64>,
    width: usize,
    columns: Columns,
    cell: &'a mut Cell<'c>,
    index: Vec<u64>,
    text: String,
}

impl Printer<'_, '_> {
    /// Everything below the first `axis` indices. Readers bound the rank, so the recursion is bounded.
    fn axis(&mut self, axis: usize) -> io::Result<()> {
        match self.dims.len() - axis {
            0 => {
                self.text.clear();
                (self.cell)(&self.index, &mut self.text);
                self.out.write_all(self.text.as_bytes())
            }
            1 => self.row(axis),
            left => {
                self.out.write_all(b"[")?;
                self.index[axis] = 0;
                loop {
                    self.axis(axis + 1)?;
                    let at = self.index[axis];
                    let Some(next) = following(at, self.dims[axis], self.edge) else {
                        break;
                    };
                    self.new_lines(left - 1, axis + 1)?;
                    if next > at + 1 {
                        self.out.write_all(b"...")?;
                        self.new_lines(left - 1, axis + 1)?;
                    }
                    self.index[axis] = next;
                }
                self.out.write_all(b"]")
            }
        }
    }

    /// The last dimension, wrapped.
    fn row(&mut self, axis: usize) -> io::Result<()> {
        self.out.write_all(b"[")?;
        let indent = axis + 1;
        // Room for the brackets that may close behind the last cell.
        let room = self.width.saturating_sub(axis + 1);
        let mut column = indent;
        let mut first = true;
        self.index[axis] = 0;
        loop {
            self.text.clear();
            (self.cell)(&self.index, &mut self.text);
            let (left, right) = self.columns.pads(&self.text);
            column = self.place(column, self.columns.width(), indent, room, first)?;
            first = false;
            write!(self.out, "{:left$}{}{:right$}", "", self.text, "")?;
            let at = self.index[axis];
            let Some(next) = following(at, self.dims[axis], self.edge) else {
                break;
            };
            if next > at + 1 {
                column = self.place(column, 3, indent, room, false)?;
                self.out.write_all(b"...")?;
            }
            self.index[axis] = next;
        }
        self.out.write_all(b"]")
    }

    /// Goes where the next `wide` characters belong: behind a blank, or on a new line when they do not fit.
    fn place(
        &mut self,
        column: usize,
        wide: usize,
        indent: usize,
        room: usize,
        first: bool,
    ) -> io::Result<usize> {
        if first {
            return Ok(column + wide);
        }
        if column + 1 + wide <= room {
            self.out.write_all(b" ")?;
            return Ok(column + 1 + wide);
        }
        self.new_lines(1, indent)?;
        Ok(indent + wide)
    }

    fn new_lines(&mut self, lines: usize, indent: usize) -> io::Result<()> {
        for _ in 0..lines {
            writeln!(self.out)?;
        }
        write!(self.out, "{:indent$}", "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The flat index of each element, laid out.
    fn counted(dims: &[u64], edge: Option<u64>, width: usize) -> String {
        laid_out(dims, edge, width, |flat| flat.to_string())
    }

    fn laid_out(
        dims: &[u64],
        edge: Option<u64>,
        width: usize,
        text: impl Fn(u64) -> String,
    ) -> String {
        let mut out = Vec::new();
        write(&mut out, dims, edge, width, &mut |index, cell| {
            let flat = index
                .iter()
                .zip(dims)
                .fold(0, |flat, (i, dim)| flat * dim + i);
            cell.push_str(&text(flat));
        })
        .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn brackets_nest_and_columns_line_up() {
        let expected = "\
[[[ 0  1  2]
  [ 3  4  5]]

 [[ 6  7  8]
  [ 9 10 11]]]
";
        assert_eq!(counted(&[2, 2, 3], None, 80), expected);
    }

    #[test]
    fn edges_are_kept_and_the_middle_is_dots() {
        let expected = "\
[[ 0  1 ...  8  9]
 [10 11 ... 18 19]
 ...
 [80 81 ... 88 89]
 [90 91 ... 98 99]]
";
        assert_eq!(counted(&[10, 10], Some(2), 80), expected);
        assert_eq!(cells(&[10, 10], Some(2)), 16);
    }

    #[test]
    fn long_rows_are_wrapped_below_their_first_value() {
        let expected = "\
[[ 0  1  2  3  4
   5  6  7  8]
 [ 9 10 11 12 13
  14 15 16 17]]
";
        assert_eq!(counted(&[2, 9], None, 18), expected);
    }

    #[test]
    fn numbers_line_up_at_the_point() {
        let values = ["1.0", "-10.25", "nan", "0.5"];
        assert_eq!(
            laid_out(&[4], None, 80, |flat| values[flat as usize].to_owned()),
            "[  1.0  -10.25    nan   0.5 ]\n"
        );
    }

    #[test]
    fn a_scalar_is_bare_and_nothing_is_empty_brackets() {
        assert_eq!(counted(&[], None, 80), "0\n");
        assert_eq!(counted(&[3, 0, 4], Some(3), 80), "[]\n");
        assert_eq!(cells(&[u64::MAX, u64::MAX], None), u64::MAX);
    }

    proptest! {
        #[test]
        fn every_element_is_printed_once(dims in proptest::collection::vec(0u64..5, 0..5), width in 0usize..60) {
            let text = counted(&dims, None, width);
            let numbers: Vec<u64> =
                text.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()).map(|word| word.parse().unwrap()).collect();
            let count: u64 = dims.iter().product();
            prop_assert_eq!(numbers, (0..count).collect::<Vec<_>>());
            prop_assert_eq!(text.matches('[').count(), text.matches(']').count());
        }

        #[test]
        fn elided_blocks_show_the_edges_only(dims in proptest::collection::vec(1u64..12, 1..4)) {
            let text = counted(&dims, Some(2), 80);
            let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()).count() as u64;
            prop_assert_eq!(numbers, cells(&dims, Some(2)));
            prop_assert_eq!(text.contains("..."), dims.iter().any(|dim| *dim > 4));
        }
    }
}
