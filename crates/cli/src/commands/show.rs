//! `twinscope show SOURCE 'NAME[0, :, 5:9]'` — the values themselves, digit for digit.

use crate::{
    failure::Failure,
    name,
    open::{Opened, Opening},
    render::{human, json, layout, plain::PlainText, warnings},
};
use std::{io::Write, path::PathBuf};
use twinscope_tensor::{PlainValue, View, slice};

/// Print values, NumPy slice syntax
///
/// Every number is printed with the fewest digits that give exactly it back. More than 1000 values are shown by their
/// edges. GGUF blocks and quantized tensors are shown as the numbers they stand for.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  twinscope show dump.pt 0_query                  the corners of it
  twinscope show dump.pt '0_query[0, :, 5:9]'     a part
  twinscope show dump.pt '0_query[..., -1, ::-1]' the last row, backwards
  twinscope show x.npy '[:3]'                     a source with one tensor needs no name
  twinscope show model.gguf 'blk.0.attn_q.weight[0]' --codes")]
pub(crate) struct Show {
    /// A tensor file, archive or folder, or `-` for standard input
    pub(crate) source: PathBuf,
    /// The tensor, and which part of it; only the part when the source holds one tensor
    #[arg(value_name = "NAME[SLICE]")]
    what: Option<String>,
    /// Print every value
    #[arg(long)]
    full: bool,
    /// Print what is stored instead of what it stands for: codes of quantized elements, bytes of blocks, bits of floats
    #[arg(long, visible_alias = "raw-blocks")]
    codes: bool,
}

/// More values than this are printed only on request: nobody reads them, and a script should know what it asks for.
const MANY: u64 = 1_000_000;
/// NumPy wraps at 75; a terminal knows better.
const WIDTH: usize = 80;

/// What the user meant.
enum Picked<'a> {
    Tensor {
        index: usize,
        slice: Option<&'a str>,
    },
    Value(&'a PlainValue),
}

/// A tensor, or the part of it that is shown.
struct Part<'a> {
    name: &'a str,
    slice: Option<&'a str>,
    whole: View,
    view: View,
}

impl Show {
    pub(crate) fn run(&self, opening: &Opening, out: &mut dyn Write) -> anyhow::Result<u8> {
        let opened = opening.open(&self.source)?;
        warnings::about_attacks(opened.listing());
        match pick(&opened, self.what.as_deref())? {
            Picked::Value(value) if opening.json => json::document(out, &json::value_row(value))?,
            Picked::Value(value) => writeln!(
                out,
                "{} {}\n{}",
                human::safe(&value.name),
                value.value.kind(),
                PlainText(&value.value)
            )?,
            Picked::Tensor { index, slice } => {
                let part = self.part(&opened, index, slice);
                opened.all_read();
                let part = part?;
                if opening.json {
                    self.json(&part, out)?;
                } else {
                    self.text(&part, out)?;
                }
                out.flush()?;
                // Only now is it known that everything read was really there.
                part.view.check()?;
            }
        }
        Ok(0)
    }

    fn part<'a>(
        &self,
        opened: &'a Opened,
        index: usize,
        slice: Option<&'a str>,
    ) -> anyhow::Result<Part<'a>> {
        let name = opened.info(index).name.as_str();
        let mut whole = opened
            .source
            .view(index)
            .map_err(|error| Failure::new(format!("`{name}`: {error}")))?;
        if self.codes {
            let dtype = whole.dtype();
            whole = whole.codes().ok_or_else(|| {
                Failure::new(format!(
                    "`{name}`: {dtype} has no codes to show apart from its values"
                ))
            })?;
        }
        let cuts = slice::parse(slice.unwrap_or("[]"), whole.shape()).map_err(|error| {
            let text = slice.unwrap_or_default();
            Failure::new(format!("`{name}{text}`: {error}"))
                .hint("a slice is written like NumPy's: [0, :, 5:9], [..., -1], [::2]")
        })?;
        Ok(Part {
            name,
            slice,
            view: whole.slice(&cuts),
            whole,
        })
    }

    fn text(&self, part: &Part<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
        let (view, dims) = (&part.view, part.view.shape().dims());
        let edge = (!self.full && view.len() > layout::THRESHOLD).then_some(layout::EDGE);
        let cells = layout::cells(dims, edge);
        if cells > MANY && !self.full {
            return Err(Failure::new(format!(
                "`{}`: {} has {cells} corner values",
                part.name,
                view.shape()
            ))
            .hint("show a part of it, like [0, ...], or all of it with --full")
            .into());
        }
        let slice = part.slice.unwrap_or_default();
        write!(
            out,
            "{}{} {} {}",
            human::safe(part.name),
            human::safe(slice),
            view.dtype(),
            view.shape()
        )?;
        if part.slice.is_some() {
            write!(out, " of {}", part.whole.shape())?;
        }
        writeln!(out)?;
        let width = human::stdout_width().unwrap_or(WIDTH);
        layout::write(out, dims, edge, width, &mut |index, cell| {
            use std::fmt::Write;
            // Strings print with their escapes. Writing to a string does not fail.
            let _ = write!(cell, "{}", view.value(index));
        })?;
        Ok(())
    }

    /// `shape` is of the values that follow, `tensor_shape` of the tensor they are from.
    fn json(&self, part: &Part<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
        let view = &part.view;
        if view.len() > MANY && !self.full {
            return Err(Failure::new(format!(
                "`{}`: {} values are more than {MANY}",
                part.name,
                view.len()
            ))
            .hint("show a part of it, like [0, ...], or all of it with --full")
            .into());
        }
        write!(
            out,
            "{{\"name\": {}, \"dtype\": \"{}\", \"shape\": {}, ",
            serde_json::to_string(part.name)?,
            view.dtype(),
            view.shape()
        )?;
        write!(
            out,
            "\"slice\": {}, \"tensor_shape\": {},\n ",
            serde_json::to_string(&part.slice)?,
            part.whole.shape()
        )?;
        write!(out, "\"values\": ")?;
        nested(out, view)?;
        writeln!(out, "}}")?;
        Ok(())
    }
}

/// Nested lists, written as they are read. A tensor without values is `[]`: its shape says the rest.
fn nested(out: &mut dyn Write, view: &View) -> anyhow::Result<()> {
    let dims = view.shape().dims();
    if view.is_empty() {
        return Ok(out.write_all(b"[]")?);
    }
    let mut index = vec![0u64; dims.len()];
    let mut opening = dims.len();
    loop {
        write!(out, "{:[<opening$}", "")?;
        serde_json::to_writer(&mut *out, &view.value(&index).to_json())?;
        // How many dimensions end with this value.
        let ended = index
            .iter()
            .zip(dims)
            .rev()
            .take_while(|(at, dim)| **at + 1 == **dim)
            .count();
        write!(out, "{:]<ended$}", "")?;
        if ended == dims.len() {
            return Ok(());
        }
        out.write_all(if ended > 0 { b",\n  " } else { b", " })?;
        opening = ended;
        let place = dims.len() - ended;
        index[place..].fill(0);
        index[place - 1] += 1;
    }
}

/// Finds what the user means: the longest name first, then a slice of the only tensor.
fn pick<'a>(opened: &'a Opened, what: Option<&'a str>) -> anyhow::Result<Picked<'a>> {
    let listing = opened.listing();
    let what = what.unwrap_or_default().trim();
    for reading in name::readings(what).filter(|reading| !reading.name.is_empty()) {
        let tensor = listing
            .tensors
            .iter()
            .position(|info| info.name == reading.name && opened.wants(&info.name));
        if let Some(index) = tensor {
            return Ok(Picked::Tensor {
                index,
                slice: reading.slice,
            });
        }
        let value = listing
            .values
            .iter()
            .find(|value| value.name == reading.name);
        if let (Some(value), None) = (value, reading.slice) {
            return Ok(Picked::Value(value));
        }
    }
    let tensors = opened.tensors();
    match tensors[..] {
        [index] if what.is_empty() => Ok(Picked::Tensor { index, slice: None }),
        [index] if what.starts_with('[') => Ok(Picked::Tensor {
            index,
            slice: Some(what),
        }),
        _ => Err(not_found(opened, what, &tensors)),
    }
}

fn not_found(opened: &Opened, what: &str, tensors: &[usize]) -> anyhow::Error {
    let listing = opened.listing();
    let source = &listing.source;
    let names = || {
        tensors
            .iter()
            .map(|index| listing.tensors[*index].name.as_str())
    };
    let wrong = name::without_slice(what);
    if let Some(value) = listing
        .values
        .iter()
        .find(|value| value.name == wrong && wrong != what)
    {
        let message = format!(
            "`{wrong}` of `{source}` is no tensor but a value ({}), which has no elements",
            value.value.kind()
        );
        return Failure::new(message)
            .hint(format!("`twinscope show {source} {wrong}` prints it"))
            .into();
    }
    let failure = if tensors.is_empty() && listing.values.is_empty() {
        return Failure::new(format!("`{source}` holds no tensors")).into();
    } else if wrong.is_empty() || wrong.starts_with('[') {
        Failure::new(format!(
            "`{source}` holds {}; say which one to show",
            human::count(tensors.len(), "tensor")
        ))
    } else {
        Failure::new(format!("`{source}` holds no tensor `{wrong}`"))
    };
    let all = names().chain(listing.values.iter().map(|value| value.name.as_str()));
    let close = if wrong.is_empty() {
        Vec::new()
    } else {
        name::nearest(wrong, all)
    };
    failure.hint(hint(&close, source, names().next())).into()
}

fn hint(close: &[&str], source: &str, first: Option<&str>) -> String {
    match (close, first) {
        ([], Some(first)) => format!("`twinscope ls {source}` lists them; the first is `{first}`"),
        ([], None) => format!("`twinscope ls {source}` lists what it holds"),
        ([one], _) => format!("did you mean `{one}`?"),
        ([most @ .., last], _) => format!("did you mean `{}` or `{last}`?", most.join("`, `")),
    }
}
