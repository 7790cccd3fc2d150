//! Aligned columns in two passes over the rows, so that a table of 100,000 rows costs no memory.

use super::human;
use std::{
    fmt::{self, Write as _},
    io::{self, Write},
};

/// A column's title and which side its cells lean to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    right: bool,
}

impl Column {
    pub(crate) const fn left(title: &'static str) -> Self {
        Self {
            title,
            right: false,
        }
    }

    pub(crate) const fn right(title: &'static str) -> Self {
        Self { title, right: true }
    }

    pub(crate) const fn title(&self) -> &'static str {
        self.title
    }
}

/// The cells of one row, in one reused buffer.
#[derive(Debug, Default)]
pub(crate) struct Row {
    text: String,
    ends: Vec<usize>,
}

impl Row {
    pub(crate) fn cell(&mut self, content: impl fmt::Display) {
        // Writing to a string fails only when `Display` itself does.
        let _ = write!(self.text, "{content}");
        self.ends.push(self.text.len());
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    fn cells(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.text[start..*end])
    }
}

/// A column that gives way when the terminal is too narrow keeps at least this much.
const NARROWEST: usize = 16;

/// Nor is it made wider than this for the sake of a few.
const WIDEST: usize = 120;

/// Writes a title row and `rows` rows. `fill` is asked twice for each row and answers alike. With a `width` the column
/// called `gives_way` is shortened to fit; without one nothing is.
pub(crate) fn write(
    out: &mut dyn Write,
    columns: &[Column],
    rows: usize,
    width: Option<usize>,
    gives_way: &str,
    fill: &mut dyn FnMut(usize, &mut Row),
) -> io::Result<()> {
    let mut row = Row::default();
    let mut widths: Vec<usize> = columns
        .iter()
        .map(|column| human::columns(column.title))
        .collect();
    let elastic = columns
        .iter()
        .position(|column| column.title == gives_way)
        .filter(|_| width.is_some());
    let mut common: Option<String> = None;
    for index in 0..rows {
        row.clear();
        fill(index, &mut row);
        if let Some(name) = elastic.and_then(|at| row.cells().nth(at)) {
            match &mut common {
                Some(common) => common.truncate(shared(common, name)),
                None => common = Some(name.to_owned()),
            }
        }
        for ((width, cell), column) in widths.iter_mut().zip(row.cells()).zip(columns) {
            // One endless name must not push the columns of all others out of sight; it does so in its own row only.
            let most = if column.title == gives_way {
                WIDEST
            } else {
                usize::MAX
            };
            *width = (*width).max(human::columns(cell).min(most));
        }
    }
    if let (Some(limit), Some(elastic)) = (width, elastic) {
        let total: usize = widths.iter().sum::<usize>() + 2 * (columns.len() - 1);
        let over = total.saturating_sub(limit);
        widths[elastic] = widths[elastic].min(widths[elastic].saturating_sub(over).max(NARROWEST));
    }
    let whole = width.is_none();
    line(
        out,
        columns,
        &widths,
        whole,
        columns.iter().map(|column| column.title),
    )?;
    // What all names begin with tells none from another: it goes before their middle does.
    let common = common
        .filter(|common| rows > 1 && !common.contains(' '))
        .unwrap_or_default();
    let common = common.rfind(['.', '/']).filter(|at| *at > 1).unwrap_or(0);
    for index in 0..rows {
        row.clear();
        fill(index, &mut row);
        match elastic.filter(|at| {
            common > 0
                && row
                    .cells()
                    .nth(*at)
                    .is_some_and(|cell| human::columns(cell) > widths[*at])
        }) {
            None => line(out, columns, &widths, whole, row.cells())?,
            Some(elastic) => {
                let cut = format!(
                    "…{}",
                    &row.cells().nth(elastic).unwrap_or_default()[common..]
                );
                line(
                    out,
                    columns,
                    &widths,
                    whole,
                    row.cells()
                        .enumerate()
                        .map(|(at, cell)| if at == elastic { &*cut } else { cell }),
                )?;
            }
        }
    }
    Ok(())
}

/// How many bytes two texts begin with alike.
fn shared(a: &str, b: &str) -> usize {
    a.char_indices()
        .zip(b.chars())
        .find(|((_, a), b)| a != b)
        .map_or(a.len().min(b.len()), |((at, _), _)| at)
}

fn line<'a>(
    out: &mut dyn Write,
    columns: &[Column],
    widths: &[usize],
    whole: bool,
    cells: impl Iterator<Item = &'a str>,
) -> io::Result<()> {
    // Blanks are owed, not written, so that no line ends with them.
    let mut owed = 0;
    for (at, ((column, width), cell)) in columns.iter().zip(widths).zip(cells).enumerate() {
        let shortened =
            (!whole && human::columns(cell) > *width).then(|| human::shorten(cell, *width));
        let cell = shortened.as_deref().unwrap_or(cell);
        let pad = width.saturating_sub(human::columns(cell));
        owed += if at > 0 { 2 } else { 0 } + if column.right { pad } else { 0 };
        if !cell.is_empty() {
            write!(out, "{:owed$}{cell}", "")?;
            owed = 0;
        } else {
            owed += human::columns(cell);
        }
        owed += if column.right { 0 } else { pad };
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>) -> String {
        let rows = [
            ("model.layers.0.weight", "12", "x"),
            ("é", "3", ""),
            ("c", "", "last"),
        ];
        let mut out = Vec::new();
        let columns = [
            Column::left("name"),
            Column::right("size"),
            Column::left("note"),
        ];
        write(
            &mut out,
            &columns,
            rows.len(),
            width,
            "name",
            &mut |i, row| {
                row.cell(rows[i].0);
                row.cell(rows[i].1);
                row.cell(rows[i].2);
            },
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_line_up_and_lines_do_not_end_in_blanks() {
        let expected = "\
name                   size  note
model.layers.0.weight    12  x
é                         3
c                            last
";
        assert_eq!(table(None), expected);
    }

    #[test]
    fn what_all_names_begin_with_goes_first() {
        let names = [
            "model.language_model.layers.1.self_attn.q_proj",
            "model.language_model.layers.2.self_attn.q_proj",
        ];
        let mut out = Vec::new();
        write(
            &mut out,
            &[Column::left("name"), Column::left("verdict")],
            2,
            Some(36),
            "name",
            &mut |i, row| {
                row.cell(names[i]);
                row.cell("identical");
            },
        )
        .unwrap();
        let told = String::from_utf8(out).unwrap();
        assert_eq!(
            told.lines().nth(1),
            Some("….1.self_attn.q_proj       identical"),
            "{told}"
        );
    }

    #[test]
    fn a_narrow_terminal_shortens_the_names_only() {
        let expected = "\
name              size  note
model.l….weight     12  x
é                    3
c                       last
";
        assert_eq!(
            table(Some(20)),
            expected.replace("model.l….weight ", "model.l…0.weight")
        );
    }
}
