//! JSON for scripts: written as it is made, one tensor to a line, numbers as the contract spells them.

use crate::failure::hint_of;
use serde::Serialize;
use serde_json::ser::Formatter;
use std::io::{self, Write};
use twinscope_report::{Failed, Fault, FindingRow, Number, SkippedRow, ValueRow};
use twinscope_tensor::{Listing, Plain, PlainValue};

/// Writes one document and a newline.
pub(crate) fn document(out: &mut dyn Write, document: &impl Serialize) -> anyhow::Result<()> {
    document.serialize(&mut serde_json::Serializer::with_formatter(
        &mut *out,
        Lines::default(),
    ))?;
    writeln!(out)?;
    Ok(())
}

/// What `--json` prints when there is nothing else to print.
pub(crate) fn error(
    error: &anyhow::Error,
    source: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    document(
        out,
        &Failed {
            error: Fault {
                message: error.to_string(),
                hint: hint_of(error),
            },
            source: source.to_owned(),
        },
    )
}

/// `{"a": 1, "b": 2}`, with the objects of the document's own lists on lines of their own.
#[derive(Debug, Default)]
struct Lines {
    depth: usize,
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        out.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        out.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        match (first, self.depth) {
            (_, 2) => out.write_all(if first { b"\n  " } else { b",\n  " }),
            (true, _) => Ok(()),
            (false, _) => out.write_all(b", "),
        }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        out.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        out.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        match (first, self.depth) {
            (true, _) => Ok(()),
            (false, 1) => out.write_all(b",\n "),
            (false, _) => out.write_all(b", "),
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

/// What the listing left out, then what was listed and could not be read.
pub(crate) fn skipped<'a>(
    listing: &'a Listing,
    unread: &'a [(&str, String)],
) -> Vec<SkippedRow<'a>> {
    let row = |name: &'a str, reason: &'a str| SkippedRow {
        name: name.into(),
        reason: reason.into(),
    };
    let listed = listing
        .skipped
        .iter()
        .map(|skipped| row(&skipped.name, &skipped.reason));
    listed
        .chain(unread.iter().map(|(name, reason)| row(name, reason)))
        .collect()
}

pub(crate) fn findings(listing: &Listing) -> Vec<FindingRow<'_>> {
    let all = listing.findings.iter();
    all.map(|finding| FindingRow {
        kind: finding.kind.name().into(),
        text: finding.text.as_str().into(),
    })
    .collect()
}

pub(crate) fn value_row(plain: &PlainValue) -> ValueRow<'_> {
    ValueRow {
        name: plain.name.as_str().into(),
        r#type: plain.value.kind().into(),
        value: self::plain(&plain.value),
    }
}

/// A plain value as the JSON value it is. Integers beyond 64 bits are strings of their digits, complex numbers
/// `[real, imaginary]`; of bytes only the length is known, so they are null.
fn plain(plain: &Plain) -> serde_json::Value {
    match plain {
        Plain::None | Plain::Bytes(_) => serde_json::Value::Null,
        Plain::Bool(value) => (*value).into(),
        Plain::Int(digits) => match (digits.parse::<i64>(), digits.parse::<u64>()) {
            (Ok(value), _) => value.into(),
            (_, Ok(value)) => value.into(),
            _ => digits.as_str().into(),
        },
        Plain::Float(value) => number(*value),
        Plain::Complex(real, imaginary) => vec![number(*real), number(*imaginary)].into(),
        Plain::Str(text) | Plain::Other { text, .. } => text.as_str().into(),
    }
}

fn number(value: f64) -> serde_json::Value {
    // Writing a number fails in no way.
    serde_json::to_value(Number(value)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_every_digit() {
        let int = |digits: String| plain(&Plain::Int(digits)).to_string();
        assert_eq!(int("-128".into()), "-128");
        assert_eq!(int(u64::MAX.to_string()), "18446744073709551615");
        assert_eq!(
            int("18446744073709551616".into()),
            "\"18446744073709551616\""
        );
    }

    #[test]
    fn nan_and_infinities_are_strings() {
        assert_eq!(
            plain(&Plain::Complex(1.0, f64::NAN)).to_string(),
            r#"[1.0,"NaN"]"#
        );
        assert_eq!(
            plain(&Plain::Float(f64::NEG_INFINITY)).to_string(),
            "\"-Infinity\""
        );
        assert_eq!(plain(&Plain::Float(-0.0)).to_string(), "-0.0");
        assert_eq!(plain(&Plain::None).to_string(), "null");
    }
}
