//! JSON for scripts: written as it is made, one tensor to a line, numbers as the contract spells them.

use crate::failure::hint_of;
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use std::io::{self, Write};
use twinscope_tensor::{Listing, Plain};

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
    #[derive(Serialize)]
    struct Document<'a> {
        error: Fact,
        source: &'a str,
    }
    #[derive(Serialize)]
    struct Fact {
        message: String,
        hint: Option<String>,
    }
    document(
        out,
        &Document {
            error: Fact {
                message: format!("{error}"),
                hint: hint_of(error),
            },
            source,
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

/// A number that JSON may not have a spelling for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number(pub(crate) f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_finite() => to.serialize_f64(value),
            value if value.is_nan() => to.serialize_str("NaN"),
            value => to.serialize_str(if value > 0.0 { "Infinity" } else { "-Infinity" }),
        }
    }
}

/// Anything that prints itself, as a string.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<T>(pub(crate) T);

impl<T: std::fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

/// A list that is never held as a whole: made again from its parts when it is written.
pub(crate) struct Each<F>(pub(crate) F);

impl<F, I> Serialize for Each<F>
where
    F: Fn() -> I,
    I: Iterator,
    I::Item: Serialize,
{
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

/// A row of `skipped`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Skipped<'a> {
    name: &'a str,
    reason: &'a str,
}

impl<'a> Skipped<'a> {
    /// What the listing left out, then what was listed and could not be read.
    pub(crate) fn all(
        listing: &'a Listing,
        unread: &'a [(&str, String)],
    ) -> impl Iterator<Item = Self> {
        let listed = listing.skipped.iter().map(|skipped| Self {
            name: &skipped.name,
            reason: &skipped.reason,
        });
        listed.chain(unread.iter().map(|(name, reason)| Self { name, reason }))
    }
}

/// A row of `findings`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Found<'a> {
    kind: &'static str,
    text: &'a str,
}

impl<'a> Found<'a> {
    pub(crate) fn all(listing: &'a Listing) -> impl Iterator<Item = Self> {
        listing.findings.iter().map(|finding| Self {
            kind: finding.kind.name(),
            text: &finding.text,
        })
    }
}

/// A plain value as the JSON value it is. Integers beyond 64 bits are strings of their digits, complex numbers
/// `[real, imaginary]`; of bytes only the length is known, so they are null.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a>(pub(crate) &'a Plain);

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Plain::None | Plain::Bytes(_) => to.serialize_none(),
            Plain::Bool(value) => to.serialize_bool(*value),
            Plain::Int(digits) => match (digits.parse::<i64>(), digits.parse::<u64>()) {
                (Ok(value), _) => to.serialize_i64(value),
                (_, Ok(value)) => to.serialize_u64(value),
                _ => to.serialize_str(digits),
            },
            Plain::Float(value) => Number(*value).serialize(to),
            Plain::Complex(real, imaginary) => [Number(*real), Number(*imaginary)].serialize(to),
            Plain::Str(text) => to.serialize_str(text),
            Plain::Other { text, .. } => to.serialize_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    #[test]
    fn integers_keep_every_digit() {
        assert_eq!(text(&Value(&Plain::Int("-128".into()))), "-128");
        assert_eq!(
            text(&Value(&Plain::Int(u64::MAX.to_string()))),
            "18446744073709551615"
        );
        assert_eq!(
            text(&Value(&Plain::Int("18446744073709551616".into()))),
            "\"18446744073709551616\""
        );
    }

    #[test]
    fn numbers_json_has_not_are_words() {
        let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1, -0.0].map(Number);
        assert_eq!(text(&values), r#"["NaN","Infinity","-Infinity",0.1,-0.0]"#);
        assert_eq!(
            text(&Value(&Plain::Complex(1.0, f64::NAN))),
            r#"[1.0,"NaN"]"#
        );
        assert_eq!(text(&Value(&Plain::None)), "null");
    }
}
