//! `twinscope ls SOURCE` — what a source holds, from its headers alone.

use crate::{
    hash::{self, Hashed},
    open::{Opened, Opening},
    render::{
        human, json,
        plain::PlainText,
        table::{self, Column},
        warnings,
    },
};
use std::{borrow::Cow, fmt, io::Write, path::PathBuf};
use twinscope_report::{Listing as Document, TensorRow};
use twinscope_tensor::{Listing, Meta, PlainValue};

/// List names, dtypes, shapes and sizes, in execution order
///
/// Reads headers only, so a file of any size is listed at once. Exits 2 when nothing could be read or when the file
/// attempts to execute something or to escape its folder (it is never let to), 0 otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  twinscope ls model.safetensors
  twinscope ls checkpoint.pt --only '*attn*' --meta
  twinscope ls run.tar.gz --json --hash")]
pub(crate) struct Ls {
    /// A tensor file, archive or folder, or `-` for standard input
    pub(crate) source: PathBuf,
    /// Read every tensor and print the sha256 of its row-major little-endian bytes
    #[arg(long)]
    hash: bool,
    /// Print what else the source says about itself and its tensors (`--json` always does)
    #[arg(long)]
    meta: bool,
    /// Print exact sizes in bytes
    #[arg(long)]
    bytes: bool,
}

impl Ls {
    pub(crate) fn run(&self, opening: &Opening, out: &mut dyn Write) -> anyhow::Result<u8> {
        let opened = opening.open(&self.source)?;
        let shown = Shown::of(&opened, self.hash);
        let unread = shown.unread();
        opened.all_read();
        if opening.json {
            json::document(out, &document(&shown, &unread))?;
        } else {
            self.table(&shown, out)?;
        }
        out.flush()?;
        warnings::about(shown.listing);
        warnings::unread(&unread);
        opened.warn_if_nothing_matches(shown.tensors.len() + shown.values.len());
        Ok(opened.exit_code())
    }

    fn table(&self, shown: &Shown<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
        let listing = shown.listing;
        let width = human::stdout_width();
        if let (true, Some(meta)) = (self.meta, &listing.meta) {
            for (key, value) in meta.iter() {
                writeln!(
                    out,
                    "{}: {}",
                    human::safe(key),
                    human::safe(&value.to_string())
                )?;
            }
        }
        if !shown.tensors.is_empty() {
            let mut columns = vec![
                Column::right("#"),
                Column::left("name"),
                Column::left("dtype"),
                Column::left("shape"),
                Column::right("size"),
            ];
            columns.extend(self.hash.then_some(Column::left("sha256")));
            columns.extend(self.meta.then_some(Column::left("meta")));
            table::write(
                out,
                &columns,
                shown.tensors.len(),
                width,
                "name",
                &mut |at, row| {
                    let index = shown.tensors[at];
                    let info = &listing.tensors[index];
                    row.cell(index + 1);
                    row.cell(human::safe(&info.name));
                    row.cell(info.dtype);
                    row.cell(human::Dims(info.shape.dims()));
                    row.cell(info.bytes.map_or("?".to_owned(), |bytes| self.size(bytes)));
                    if let Some(hashes) = &shown.hashes {
                        row.cell(Hex(&hashes[at]));
                    }
                    if self.meta {
                        row.cell(MetaText(&info.meta));
                    }
                },
            )?;
            writeln!(out)?;
        }
        if !shown.values.is_empty() {
            let columns = [
                Column::left("name"),
                Column::left("type"),
                Column::left("value"),
            ];
            table::write(
                out,
                &columns,
                shown.values.len(),
                width,
                "value",
                &mut |at, row| {
                    row.cell(human::safe(&shown.values[at].name));
                    row.cell(human::safe(shown.values[at].value.kind()));
                    row.cell(PlainText(&shown.values[at].value));
                },
            )?;
            writeln!(out)?;
        }
        writeln!(out, "{}", self.footer(shown))?;
        Ok(())
    }

    fn size(&self, bytes: u64) -> String {
        if self.bytes {
            bytes.to_string()
        } else {
            human::size(bytes)
        }
    }

    /// `3 tensors, 1 value, 76.0 KiB, torch-zip`
    fn footer(&self, shown: &Shown<'_>) -> String {
        let listing = shown.listing;
        // Expanded views can claim more than can be counted.
        let total = shown
            .tensors
            .iter()
            .filter_map(|index| listing.tensors[*index].bytes)
            .fold(0, u64::saturating_add);
        let size = if self.bytes {
            human::count(usize::try_from(total).unwrap_or(usize::MAX), "byte")
        } else {
            human::size(total)
        };
        let mut parts = vec![human::count(shown.tensors.len(), "tensor")];
        if !shown.values.is_empty() {
            parts.push(human::count(shown.values.len(), "value"));
        }
        if !listing.skipped.is_empty() {
            parts.push(format!("{} skipped", listing.skipped.len()));
        }
        parts.extend([size, listing.format.to_owned()]);
        parts.join(", ")
    }
}

/// The part of a listing that was asked for.
struct Shown<'a> {
    listing: &'a Listing,
    tensors: Vec<usize>,
    values: Vec<&'a PlainValue>,
    /// One for each of `tensors`.
    hashes: Option<Vec<Hashed>>,
}

impl<'a> Shown<'a> {
    fn of(opened: &'a Opened, hash: bool) -> Self {
        let listing = opened.listing();
        let tensors = opened.tensors();
        let values = listing
            .values
            .iter()
            .filter(|value| opened.wants(&value.name))
            .collect();
        let hashes = hash.then(|| hash::all(&*opened.source, &tensors));
        Self {
            listing,
            tensors,
            values,
            hashes,
        }
    }

    /// Tensors that were listed but could not be hashed.
    fn unread(&self) -> Vec<(&'a str, String)> {
        let hashes = self.hashes.iter().flatten();
        hashes
            .zip(&self.tensors)
            .filter_map(|(hash, index)| match hash {
                Hashed::Failed(reason) => {
                    Some((self.listing.tensors[*index].name.as_str(), reason.clone()))
                }
                Hashed::Is(_) | Hashed::TooLarge => None,
            })
            .collect()
    }
}

/// `ls --json`
fn document<'a>(shown: &'a Shown<'_>, unread: &'a [(&str, String)]) -> Document<'a> {
    let listing = shown.listing;
    let tensors = shown.tensors.iter().enumerate().map(|(at, index)| {
        let info = &listing.tensors[*index];
        TensorRow {
            name: info.name.as_str().into(),
            dtype: info.dtype.to_string(),
            shape: info.shape.dims().into(),
            bytes: info.bytes,
            order: *index,
            sha256: shown.hashes.as_ref().map(|hashes| {
                matches!(hashes[at], Hashed::Is(_)).then(|| Hex(&hashes[at]).to_string())
            }),
            meta: meta(&info.meta),
        }
    });
    Document {
        source: listing.source.as_str().into(),
        format: listing.format.into(),
        tensors: tensors.collect(),
        values: shown
            .values
            .iter()
            .map(|value| json::value_row(value))
            .collect(),
        skipped: json::skipped(listing, unread),
        findings: json::findings(listing),
        meta: meta(&listing.meta),
    }
}

fn meta(meta: &Meta) -> Option<Cow<'_, serde_json::Map<String, serde_json::Value>>> {
    meta.as_deref().map(Cow::Borrowed)
}

/// A hash in hexadecimal digits, or why there is none.
struct Hex<'a>(&'a Hashed);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Hashed::Is(hash) => hash.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Hashed::TooLarge => f.write_str("(claims more than it holds)"),
            Hashed::Failed(_) => f.write_str("(unreadable)"),
        }
    }
}

/// `requires_grad=true layout="strided"`
struct MetaText<'a>(&'a Meta);

impl fmt::Display for MetaText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.0.iter().flat_map(|meta| meta.iter()).enumerate() {
            write!(
                f,
                "{}{}={}",
                if at > 0 { " " } else { "" },
                human::safe(key),
                human::safe(&value.to_string())
            )?;
        }
        Ok(())
    }
}
