//! The directory of a zip archive, read from a map and believed in nothing.
//!
//! The central directory alone says what is there; a local header is only asked where its data begins, and whether it
//! agrees. An entry that must not be read (encrypted, overlapping, outside the file, listed twice, ...) is still listed,
//! with the fault that says why: one bad entry never hides the good ones. Names are data and never become paths.

use crate::{cache::Cache, error::Fault, limits::Limits};
use std::{collections::HashMap, ops::Range};
use twinscope_tensor::Bytes;

/// How an entry is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Stored,
    Deflated,
    /// Anything else; such an entry carries a fault.
    Other(u16),
}

/// One entry of the central directory.
#[derive(Clone, Debug)]
pub(crate) struct ZipEntry {
    pub(crate) name: String,
    pub(crate) method: Method,
    /// Where its packed bytes are in the archive's bytes. Empty when `fault` is set.
    pub(crate) packed: Range<u64>,
    pub(crate) unpacked_len: u64,
    /// Why this entry must not be read.
    pub(crate) fault: Option<Fault>,
}

impl ZipEntry {
    pub(crate) fn is_folder(&self) -> bool {
        self.name.ends_with('/')
    }

    /// Whether the name, if it were a path, would leave the archive: absolute, a drive, or `..` anywhere.
    pub(crate) fn escapes(&self) -> bool {
        let drive = self.name.as_bytes().get(1) == Some(&b':');
        drive
            || self.name.starts_with(['/', '\\'])
            || self.name.split(['/', '\\']).any(|part| part == "..")
    }

    /// The entry's bytes: a piece of the map when stored, unpacked through the cache when deflated.
    pub(crate) fn open(
        &self,
        archive: &Bytes,
        cache: &Cache,
        limits: &Limits,
    ) -> Result<Bytes, Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let packed = archive
            .slice(self.packed.clone())
            .ok_or_else(|| Fault::Truncated {
                what: format!(
                    "`{}` ends at byte {}, the archive at {}",
                    self.name,
                    self.packed.end,
                    archive.len()
                ),
            })?;
        match self.method {
            Method::Stored => Ok(packed),
            Method::Deflated => cache.inflate(&self.name, &packed, self.unpacked_len, limits),
            Method::Other(method) => Err(Fault::Unsupported {
                what: format!("`{}` is packed with method {method}", self.name),
            }),
        }
    }
}

/// All entries in the order of the central directory.
pub(crate) fn list(bytes: &Bytes) -> Result<Vec<ZipEntry>, Fault> {
    let all = bytes.as_slice();
    let directory = find_directory(all)?;
    let mut entries = Vec::new();
    let mut headers: Vec<(u64, usize)> = Vec::new();
    let mut at = directory.start;
    while at < directory.end {
        let (record, next) = read_record(all, at, directory.end)?;
        at = next;
        let offset = record.header.checked_add(directory.shift);
        let mut entry = ZipEntry {
            name: record.name,
            method: match record.method {
                0 => Method::Stored,
                8 => Method::Deflated,
                other => Method::Other(other),
            },
            packed: 0..0,
            unpacked_len: record.unpacked,
            fault: None,
        };
        match locate(
            all,
            &entry,
            record.flags,
            offset,
            record.packed,
            directory.start,
        ) {
            Ok(packed) => entry.packed = packed,
            Err(fault) => entry.fault = Some(fault),
        }
        if let (Some(offset), None) = (offset, &entry.fault) {
            headers.push((offset, entries.len()));
        }
        entries.push(entry);
    }
    // The 16-bit count wraps in archives with more entries than it can hold.
    if entries.len() as u64 & 0xffff != directory.count & 0xffff {
        let what = format!(
            "the directory claims {} entries and holds {}",
            directory.count,
            entries.len()
        );
        return Err(Fault::CorruptArchive { what });
    }
    refuse_duplicates(&mut entries);
    refuse_overlaps(&mut entries, headers);
    Ok(entries)
}

/// Where the central directory lies, and by how much every offset in the archive must be moved (bytes put before it).
struct Directory {
    start: u64,
    end: u64,
    shift: u64,
    count: u64,
}

fn corrupt(what: impl Into<String>) -> Fault {
    Fault::CorruptArchive { what: what.into() }
}

fn u16_at(all: &[u8], at: u64) -> Option<u16> {
    let at = usize::try_from(at).ok()?;
    Some(u16::from_le_bytes(
        all.get(at..at.checked_add(2)?)?.try_into().ok()?,
    ))
}

fn u32_at(all: &[u8], at: u64) -> Option<u32> {
    let at = usize::try_from(at).ok()?;
    Some(u32::from_le_bytes(
        all.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

fn u64_at(all: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    Some(u64::from_le_bytes(
        all.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const RECORD: u32 = 0x0201_4b50;
const HEADER: u32 = 0x0403_4b50;

fn find_directory(all: &[u8]) -> Result<Directory, Fault> {
    let len = all.len() as u64;
    // The end record is 22 bytes and a comment of at most 65,535; whatever follows it is not ours to judge.
    let lowest = all.len().saturating_sub(22 + 65_535);
    let end = (lowest..all.len().saturating_sub(21))
        .rev()
        .map(|at| at as u64)
        .find(|at| {
            u32_at(all, *at) == Some(END)
                && u16_at(all, at + 20).is_some_and(|comment| at + 22 + u64::from(comment) <= len)
        })
        .ok_or_else(|| Fault::Truncated {
            what: format!("the zip directory is missing from the end of {len} bytes"),
        })?;
    let field16 = |at| {
        u16_at(all, at)
            .map(u64::from)
            .ok_or_else(|| corrupt("the end record is cut"))
    };
    let field32 = |at| {
        u32_at(all, at)
            .map(u64::from)
            .ok_or_else(|| corrupt("the end record is cut"))
    };
    let (mut count, mut size, mut offset, mut limit) = (
        field16(end + 10)?,
        field32(end + 12)?,
        field32(end + 16)?,
        end,
    );
    if end >= 20 && u32_at(all, end - 20) == Some(LOCATOR64) {
        let claimed = u64_at(all, end - 12).filter(|at| u32_at(all, *at) == Some(END64));
        // An archive inside another file keeps its own offsets; the record then stands right before its locator.
        let at = claimed.or_else(|| {
            (end - 20)
                .checked_sub(56)
                .filter(|at| u32_at(all, *at) == Some(END64))
        });
        let at =
            at.ok_or_else(|| corrupt("the zip64 end record is not where its locator points"))?;
        let field64 = |at| u64_at(all, at).ok_or_else(|| corrupt("the zip64 end record is cut"));
        (count, size, offset, limit) = (
            field64(at + 32)?,
            field64(at + 40)?,
            field64(at + 48)?,
            at.min(end),
        );
    }
    if size > limit {
        return Err(corrupt(format!(
            "a directory of {size} bytes does not fit before byte {limit}"
        )));
    }
    if count > 0 && size / 46 == 0 || count == 0 && size > 0 {
        return Err(corrupt(format!(
            "{count} entries in a directory of {size} bytes"
        )));
    }
    let claimed_end = offset
        .checked_add(size)
        .ok_or_else(|| corrupt(format!("the directory is said to begin at byte {offset}")))?;
    let shift = limit.checked_sub(claimed_end);
    let starts_at = |at: u64| size == 0 || u32_at(all, at) == Some(RECORD);
    let shift = match shift {
        Some(shift) if starts_at(offset + shift) => shift,
        _ if claimed_end <= limit && starts_at(offset) => 0,
        _ => return Err(corrupt(format!("no directory at byte {offset}"))),
    };
    Ok(Directory {
        start: offset + shift,
        end: offset + shift + size,
        shift,
        count,
    })
}

/// A central directory record, with its zip64 fields resolved.
struct Record {
    name: String,
    flags: u16,
    method: u16,
    packed: u64,
    unpacked: u64,
    header: u64,
}

fn read_record(all: &[u8], at: u64, end: u64) -> Result<(Record, u64), Fault> {
    let bad = || corrupt(format!("no directory record at byte {at}"));
    if at + 46 > end || u32_at(all, at) != Some(RECORD) {
        return Err(bad());
    }
    let half = |offset| u16_at(all, at + offset).ok_or_else(bad);
    let word = |offset| u32_at(all, at + offset).ok_or_else(bad);
    let (name_len, extra_len, comment_len) = (
        u64::from(half(28)?),
        u64::from(half(30)?),
        u64::from(half(32)?),
    );
    let next = at + 46 + name_len + extra_len + comment_len;
    if next > end {
        return Err(corrupt(format!(
            "the directory record at byte {at} reaches past the directory"
        )));
    }
    let name = String::from_utf8_lossy(&all[(at + 46) as usize..(at + 46 + name_len) as usize])
        .into_owned();
    let (packed, unpacked, header) = (
        u64::from(word(20)?),
        u64::from(word(24)?),
        u64::from(word(42)?),
    );
    let extra = at + 46 + name_len;
    let (unpacked, packed, header) =
        wide(all, extra..extra + extra_len, [unpacked, packed, header]).ok_or_else(|| {
            corrupt(format!(
                "`{name}` needs 64-bit sizes and does not have them"
            ))
        })?;
    Ok((
        Record {
            name,
            flags: half(8)?,
            method: half(10)?,
            packed,
            unpacked,
            header,
        },
        next,
    ))
}

/// Replaces the fields that are all ones by those of the zip64 extra field, in its order; `None` when they are missing.
fn wide(all: &[u8], extra: Range<u64>, mut fields: [u64; 3]) -> Option<(u64, u64, u64)> {
    let needed = |field: &u64| *field == u64::from(u32::MAX);
    let mut at = extra.start;
    while fields.iter().any(needed) && at + 4 <= extra.end {
        let (id, len) = (u16_at(all, at)?, u64::from(u16_at(all, at + 2)?));
        let (mut value, value_end) = (at + 4, (at + 4 + len).min(extra.end));
        if id == 1 {
            for field in fields.iter_mut().filter(|field| needed(field)) {
                if value + 8 > value_end {
                    return None;
                }
                *field = u64_at(all, value)?;
                value += 8;
            }
            return Some((fields[0], fields[1], fields[2]));
        }
        at += 4 + len;
    }
    (!fields.iter().any(needed)).then_some((fields[0], fields[1], fields[2]))
}

/// Where the entry's data is, after everything that can be checked without reading it.
fn locate(
    all: &[u8],
    entry: &ZipEntry,
    flags: u16,
    header: Option<u64>,
    packed: u64,
    directory: u64,
) -> Result<Range<u64>, Fault> {
    let name = &entry.name;
    if flags & 1 != 0 {
        return Err(Fault::Unsupported {
            what: format!("`{name}` is encrypted"),
        });
    }
    if let Method::Other(method) = entry.method {
        return Err(Fault::Unsupported {
            what: format!(
                "`{name}` is packed with method {method}; stored (0) and deflated (8) are read"
            ),
        });
    }
    if name.contains('\0') {
        return Err(corrupt(format!(
            "`{}` has a NUL in its name",
            name.escape_debug()
        )));
    }
    if entry.method == Method::Stored && packed != entry.unpacked_len {
        return Err(corrupt(format!(
            "`{name}` is stored in {packed} bytes but claims {}",
            entry.unpacked_len
        )));
    }
    let header = header.filter(|at| *at < directory && u32_at(all, *at) == Some(HEADER));
    let header = header.ok_or_else(|| {
        corrupt(format!(
            "`{name}` has no local header where the directory points"
        ))
    })?;
    let cut = || Fault::Truncated {
        what: format!("the local header of `{name}`"),
    };
    let local_method = u16_at(all, header + 8).ok_or_else(cut)?;
    let name_len = u64::from(u16_at(all, header + 26).ok_or_else(cut)?);
    let extra_len = u64::from(u16_at(all, header + 28).ok_or_else(cut)?);
    let start = header + 30 + name_len + extra_len;
    let local_name = all
        .get((header + 30) as usize..(header + 30 + name_len) as usize)
        .ok_or_else(cut)?;
    if String::from_utf8_lossy(local_name) != *name {
        return Err(corrupt(format!(
            "`{name}` is called `{}` by its local header",
            String::from_utf8_lossy(local_name).escape_debug()
        )));
    }
    let method = match entry.method {
        Method::Stored => 0,
        Method::Deflated => 8,
        Method::Other(other) => other,
    };
    if local_method != method {
        return Err(corrupt(format!(
            "`{name}` has method {method} in the directory and {local_method} in its local header"
        )));
    }
    let end = start
        .checked_add(packed)
        .filter(|end| *end <= all.len() as u64);
    let end = end.ok_or_else(|| Fault::Truncated {
        what: format!(
            "`{name}` needs {packed} bytes from byte {start}, the file has {}",
            all.len()
        ),
    })?;
    if end > directory {
        return Err(Fault::Overlap {
            what: format!(
                "`{name}` ends at byte {end}, inside the directory that begins at {directory}"
            ),
        });
    }
    Ok(start..end)
}

/// Readers disagree about which of two equal names counts, so neither does.
fn refuse_duplicates(entries: &mut [ZipEntry]) {
    let mut counts: HashMap<&str, u32> = HashMap::with_capacity(entries.len());
    for entry in entries.iter() {
        *counts.entry(&entry.name).or_default() += 1;
    }
    if counts.len() == entries.len() {
        return;
    }
    let twice: Vec<bool> = entries
        .iter()
        .map(|entry| counts[entry.name.as_str()] > 1)
        .collect();
    for (entry, _) in entries.iter_mut().zip(twice).filter(|(_, twice)| *twice) {
        entry.fault = Some(Fault::DuplicateName {
            what: format!("`{}` is in the archive more than once", entry.name),
        });
        entry.packed = 0..0;
    }
}

/// Entries that share bytes unpack to more than the file holds; both are refused.
fn refuse_overlaps(entries: &mut [ZipEntry], mut headers: Vec<(u64, usize)>) {
    headers.sort_unstable();
    let mut bad = Vec::new();
    let mut furthest: Option<(u64, usize)> = None;
    for (start, index) in headers {
        let end = entries[index].packed.end;
        if let Some((reach, other)) = furthest
            && start < reach
        {
            bad.push((index, other));
        }
        if furthest.is_none_or(|(reach, _)| end > reach) {
            furthest = Some((end, index));
        }
    }
    for (a, b) in bad {
        let what = format!(
            "`{}` and `{}` lie over each other in the archive",
            entries[b].name, entries[a].name
        );
        for index in [a, b] {
            entries[index]
                .fault
                .get_or_insert(Fault::Overlap { what: what.clone() });
            entries[index].packed = 0..0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stored zip, written by hand so that every field can be bent.
    fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, data) in members {
            let header = out.len() as u32;
            out.extend_from_slice(&HEADER.to_le_bytes());
            out.extend_from_slice(&[0; 22]);
            out.extend_from_slice(&(name.len() as u16).to_le_bytes());
            out.extend_from_slice(&0u16.to_le_bytes());
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(data);
            directory.extend_from_slice(&RECORD.to_le_bytes());
            directory.extend_from_slice(&[0; 16]);
            directory.extend_from_slice(&(data.len() as u32).to_le_bytes());
            directory.extend_from_slice(&(data.len() as u32).to_le_bytes());
            directory.extend_from_slice(&(name.len() as u16).to_le_bytes());
            directory.extend_from_slice(&[0; 12]);
            directory.extend_from_slice(&header.to_le_bytes());
            directory.extend_from_slice(name.as_bytes());
        }
        let start = out.len() as u32;
        out.extend_from_slice(&directory);
        out.extend_from_slice(&END.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(members.len() as u16).to_le_bytes());
        out.extend_from_slice(&(members.len() as u16).to_le_bytes());
        out.extend_from_slice(&(directory.len() as u32).to_le_bytes());
        out.extend_from_slice(&start.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out
    }

    fn data<'a>(all: &'a [u8], entry: &ZipEntry) -> &'a [u8] {
        &all[entry.packed.start as usize..entry.packed.end as usize]
    }

    #[test]
    fn entries_keep_their_order_and_their_bytes() {
        let all = zip(&[("b", b"two"), ("a", b"one")]);
        let entries = list(&all.clone().into()).unwrap();
        assert_eq!(
            entries
                .iter()
                .map(|e| (e.name.as_str(), data(&all, e)))
                .collect::<Vec<_>>(),
            [("b", &b"two"[..]), ("a", b"one")]
        );
    }

    #[test]
    fn bytes_before_and_after_the_archive_do_not_matter() {
        let mut all = b"#!/bin/sh\n".to_vec();
        all.extend(zip(&[("a", b"one")]));
        all.extend([0; 100]);
        let entries = list(&all.clone().into()).unwrap();
        assert_eq!(data(&all, &entries[0]), b"one");
    }

    #[test]
    fn two_entries_of_one_name_are_both_refused_and_the_rest_stays() {
        let entries = list(&zip(&[("a", b"one"), ("a", b"two"), ("c", b"3")]).into()).unwrap();
        assert!(matches!(
            entries[0].fault,
            Some(Fault::DuplicateName { .. })
        ));
        assert!(matches!(
            entries[1].fault,
            Some(Fault::DuplicateName { .. })
        ));
        assert_eq!(entries[2].fault, None);
    }

    #[test]
    fn an_entry_past_the_end_is_cut_short_and_named() {
        let mut all = zip(&[("a", b"one")]);
        let record = all.len() - 22 - 47;
        all[record + 20..record + 28].fill(0x7f);
        let entries = list(&all.into()).unwrap();
        assert!(
            matches!(&entries[0].fault, Some(Fault::Truncated { what }) if what.contains("`a`"))
        );
    }

    #[test]
    fn names_that_would_leave_the_archive_are_known() {
        for name in ["../x", "a/../../x", "/etc/x", "C:x", "a\\..\\x"] {
            let entries = list(&zip(&[(name, b"")]).into()).unwrap();
            assert!(entries[0].escapes(), "{name}");
        }
    }

    #[test]
    fn no_byte_of_an_archive_can_make_it_panic() {
        let whole = zip(&[("a/data.pkl", b"one"), ("a/data/0", b"twotwo")]);
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bent = whole.clone();
                bent[at] = value;
                let _ = list(&bent.into());
            }
            let _ = list(&whole[..at].to_vec().into());
        }
    }
}
