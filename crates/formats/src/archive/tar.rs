//! A tar of tensor files: ustar, pax (`path`, `size`) and GNU long names. Members are ranges of the archive's bytes.
//!
//! Links, devices and sparse files are not read and said so; checksums are checked, since without a directory a wrong
//! header would lead anywhere.

use crate::{
    bundle::{self, Load, Member},
    contents::Contents,
    error::Fault,
    input::{Context, Input},
};
use twinscope_tensor::{Bytes, FindingKind};

pub(crate) const FORMAT: &str = "tar";
const BLOCK: u64 = 512;
/// A long name or a pax header; the kernel's own bound on paths is 4 KiB.
const LONGEST_EXTRA: u64 = 1 << 20;

/// A first header whose checksum is right. Formats that are tars of their own kind (old torch) stand before this one.
pub(crate) fn recognise(input: &Input) -> bool {
    Header::at(&input.bytes, 0).is_ok_and(|header| header.is_some())
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let inside = context.inside()?;
    let (members, ended) = list(&input.bytes);
    let mut contents = bundle::assemble(FORMAT, members, &inside)?;
    if !ended {
        contents.find(
            FindingKind::Odd,
            "the archive has no end mark: it may be cut short",
        );
    }
    Ok(contents)
}

/// All members, the last one perhaps a fault that ended the list; and whether the archive says where it ends.
fn list(bytes: &Bytes) -> (Vec<Member>, bool) {
    let mut walk = Walk {
        bytes,
        at: 0,
        path: None,
        size: None,
        sparse: false,
    };
    let mut members = Vec::new();
    loop {
        match walk.next() {
            Ok(Some(Some(member))) => members.push(member),
            Ok(Some(None)) => {}
            Ok(None) => return (members, walk.at < bytes.len() as u64),
            Err(fault) => {
                members.push(Member {
                    path: format!("what follows byte {}", walk.at),
                    load: Load::Fault(fault),
                });
                return (members, true);
            }
        }
    }
}

struct Walk<'a> {
    bytes: &'a Bytes,
    at: u64,
    /// What pax or GNU headers said about the next member.
    path: Option<String>,
    size: Option<u64>,
    sparse: bool,
}

impl Walk<'_> {
    /// The next header: a member, something else (`Some(None)`), or the end.
    fn next(&mut self) -> Result<Option<Option<Member>>, Fault> {
        let Some(header) = Header::at(self.bytes, self.at)? else {
            return Ok(None);
        };
        let extra = matches!(header.kind, b'L' | b'K' | b'x' | b'g');
        let size = if extra {
            header.size
        } else {
            self.size.take().unwrap_or(header.size)
        };
        // Links and devices have no data, whatever their size field says.
        let held = if matches!(header.kind, b'1'..=b'6') {
            0
        } else {
            size
        };
        let start = self.at + BLOCK;
        let end = start.checked_add(held).ok_or_else(|| Fault::Overflow {
            what: format!("a member of {size} bytes"),
        })?;
        let found = self.bytes.slice(start..end);
        self.at = end
            .checked_next_multiple_of(BLOCK)
            .ok_or_else(|| Fault::Overflow {
                what: format!("a member of {size} bytes"),
            })?;
        if extra {
            let data = found
                .filter(|data| data.len() as u64 <= LONGEST_EXTRA)
                .ok_or_else(|| Fault::Truncated {
                    what: format!(
                        "an extended header of {size} bytes at byte {start}, the archive has {}",
                        self.bytes.len()
                    ),
                })?;
            self.extend(header.kind, &data);
            return Ok(Some(None));
        }
        let path = self.path.take().unwrap_or(header.path);
        let sparse = std::mem::take(&mut self.sparse);
        let fault = |fault| {
            Some(Member {
                path: path.clone(),
                load: Load::Fault(fault),
            })
        };
        let unsupported = |what: &str| Fault::Unsupported {
            what: format!("{what} inside a tar"),
        };
        Ok(Some(match header.kind {
            b'5' => None,
            b'0' | 0 | b'7' if path.ends_with('/') => None,
            _ if !bundle::worth_reading(&path) => Some(Member {
                path,
                load: Load::Not,
            }),
            b'0' | 0 | b'7' if sparse => fault(unsupported("a sparse file")),
            b'0' | 0 | b'7' => match found {
                Some(bytes) => Some(Member {
                    path,
                    load: Load::Bytes(bytes),
                }),
                None => fault(Fault::Truncated {
                    what: format!("it ends at byte {end}, the archive at {}", self.bytes.len()),
                }),
            },
            b'1' | b'2' => fault(unsupported("a link")),
            b'S' => fault(unsupported("a sparse file")),
            b'3' | b'4' | b'6' => fault(unsupported("a device or pipe")),
            _ => fault(unsupported("a member of an unknown kind")),
        }))
    }

    fn extend(&mut self, kind: u8, data: &[u8]) {
        match kind {
            b'L' => self.path = Some(text(data)),
            b'x' => {
                for (key, value) in pax(data) {
                    match key {
                        "path" | "GNU.sparse.name" => self.path = Some(value.to_owned()),
                        "size" => self.size = value.parse().ok(),
                        _ => {}
                    }
                    self.sparse |= key.starts_with("GNU.sparse.");
                }
            }
            // Long link names and global headers say nothing about data.
            _ => {}
        }
    }
}

/// `"<len> key=value\n"` records, as far as they make sense.
fn pax(mut data: &[u8]) -> Vec<(&str, &str)> {
    let mut records = Vec::new();
    while let Some(space) = data.iter().position(|b| *b == b' ') {
        let len = std::str::from_utf8(&data[..space])
            .ok()
            .and_then(|digits| digits.parse::<usize>().ok());
        let Some(record) = len.and_then(|len| data.get(space + 1..len)) else {
            break;
        };
        data = &data[space + 1 + record.len()..];
        let record = std::str::from_utf8(record)
            .ok()
            .and_then(|text| text.trim_end_matches('\n').split_once('='));
        records.extend(record);
    }
    records
}

struct Header {
    path: String,
    size: u64,
    kind: u8,
}

impl Header {
    /// `None` at the end: a block of zeros, or no block at all.
    fn at(bytes: &[u8], at: u64) -> Result<Option<Self>, Fault> {
        let len = bytes.len() as u64;
        let start = usize::try_from(at.min(len)).unwrap_or(bytes.len());
        let Some(block) = bytes[start..].first_chunk::<512>() else {
            return if at >= len {
                Ok(None)
            } else {
                Err(Fault::Truncated {
                    what: format!("a header at byte {at} of an archive of {len} bytes"),
                })
            };
        };
        if block.iter().all(|b| *b == 0) {
            return Ok(None);
        }
        let bad = |what: &str| Fault::CorruptArchive {
            what: format!("the header at byte {at} has {what}"),
        };
        let claimed = octal(&block[148..156]).ok_or_else(|| bad("no checksum"))?;
        let sum = |as_number: fn(u8) -> i64| -> i64 {
            block
                .iter()
                .enumerate()
                .map(|(i, b)| {
                    if (148..156).contains(&i) {
                        32
                    } else {
                        as_number(*b)
                    }
                })
                .sum()
        };
        // Old tars summed signed characters.
        let claimed = i64::try_from(claimed).unwrap_or(-1);
        if sum(i64::from) != claimed && sum(|b| i64::from(b.cast_signed())) != claimed {
            return Err(bad("a wrong checksum"));
        }
        let size = number(&block[124..136]).ok_or_else(|| bad("no size"))?;
        let mut path = text(&block[..100]);
        // GNU tar ends the magic with a blank and keeps other things where the prefix would be.
        if &block[257..263] == b"ustar\0" && block[345] != 0 {
            path = format!("{}/{path}", text(&block[345..500]));
        }
        Ok(Some(Self {
            path,
            size,
            kind: block[156],
        }))
    }
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    u64::from_str_radix(text.split(['\0', ' ']).next()?, 8).ok()
}

/// Octal, or GNU's base 256 when the top bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 == 0 {
        return if field.iter().all(|b| matches!(b, 0 | b' ')) {
            Some(0)
        } else {
            octal(field)
        };
    }
    let (high, low) = field.split_at(field.len() - 8);
    let positive = high[0] == 0x80 && high[1..].iter().all(|b| *b == 0);
    positive.then(|| low.iter().fold(0, |sum, b| sum << 8 | u64::from(*b)))
}
