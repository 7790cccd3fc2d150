//! The protobuf wire format: tags, varints, lengths. Nothing is copied, every length is checked against its surroundings.

use crate::error::Fault;
use std::ops::Range;

/// One field of a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) number: u64,
    pub(super) wire: Wire,
    /// Its length says more than the message has: what is there is given, and nothing can follow.
    pub(super) cut: bool,
}

/// A field's value; ranges are positions in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wire {
    Number(u64),
    /// Four or eight bytes, of a float.
    Fixed(Range<usize>),
    Bytes(Range<usize>),
}

impl Wire {
    /// The values of a repeated varint, packed or not, up to what a shape could need.
    pub(super) fn numbers(self, bytes: &[u8], out: &mut Vec<i64>) {
        match self {
            Wire::Number(value) => out.push(value as i64),
            Wire::Bytes(range) => out.extend(
                Varints::new(&bytes[range])
                    .map_while(Result::ok)
                    .take(4096)
                    .map(|value| value as i64),
            ),
            Wire::Fixed(_) => {}
        }
    }
}

/// The fields of one message. Stops after the first fault.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Fields<'a> {
    /// `range` must lie inside `bytes`.
    pub(super) fn new(bytes: &'a [u8], range: Range<usize>) -> Self {
        Self {
            bytes,
            at: range.start,
            end: range.end.min(bytes.len()),
        }
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let (value, len) =
            varint(&self.bytes[self.at..self.end]).map_err(|broken| broken.at(self.at))?;
        self.at += len;
        Ok(value)
    }

    fn field(&mut self) -> Result<Field, Fault> {
        let start = self.at;
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number > u64::from(u32::MAX) {
            return Err(Fault::BadHeader {
                what: format!("field number {number} at byte {start}"),
            });
        }
        let (wire, cut) = match tag & 7 {
            0 => (Wire::Number(self.varint()?), false),
            1 => self.fixed(8)?,
            2 => {
                let len = self.varint()?;
                let left = self.end - self.at;
                let (taken, cut) = if len > left as u64 {
                    (left, true)
                } else {
                    (len as usize, false)
                };
                let range = self.at..self.at + taken;
                self.at = range.end;
                (Wire::Bytes(range), cut)
            }
            5 => self.fixed(4)?,
            other => {
                return Err(Fault::BadHeader {
                    what: format!("wire type {other} at byte {start}"),
                });
            }
        };
        Ok(Field { number, wire, cut })
    }

    fn fixed(&mut self, len: usize) -> Result<(Wire, bool), Fault> {
        if self.end - self.at < len {
            return Err(Fault::Truncated {
                what: format!("a number at byte {} ends beyond {}", self.at, self.end),
            });
        }
        let range = self.at..self.at + len;
        self.at = range.end;
        Ok((Wire::Fixed(range), false))
    }
}

impl Iterator for Fields<'_> {
    type Item = Result<Field, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let field = self.field();
        if field.as_ref().map_or(true, |field| field.cut) {
            self.at = self.end;
        }
        Some(field)
    }
}

/// Why bytes are no varint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BadVarint {
    Cut,
    Long,
}

impl BadVarint {
    fn at(self, at: usize) -> Fault {
        match self {
            BadVarint::Cut => Fault::Truncated {
                what: format!("a number at byte {at} does not end"),
            },
            BadVarint::Long => Fault::BadHeader {
                what: format!("a number at byte {at} is longer than ten bytes"),
            },
        }
    }
}

/// The number at the front, and how many bytes it takes. Bits beyond 64 are dropped, as protobuf does.
pub(super) fn varint(bytes: &[u8]) -> Result<(u64, usize), BadVarint> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 127) << (7 * i);
        if byte & 128 == 0 {
            return Ok((value, i + 1));
        }
    }
    Err(if bytes.len() < 10 {
        BadVarint::Cut
    } else {
        BadVarint::Long
    })
}

/// Packed varints.
pub(super) struct Varints<'a> {
    left: &'a [u8],
}

impl<'a> Varints<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }
}

impl Iterator for Varints<'_> {
    type Item = Result<u64, BadVarint>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let value = varint(self.left);
        self.left = value.map_or(&[], |(_, len)| &self.left[len..]);
        Some(value.map(|(value, _)| value))
    }
}
