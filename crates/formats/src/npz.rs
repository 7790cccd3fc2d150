//! NumPy's `.npz`: a zip of `name.npy` members, stored (mapped in place) or deflated (unpacked when asked for).
//!
//! Of a deflated member only its first bytes are inflated for a listing, so a bomb costs nothing until somebody reads it.

use crate::{
    Cache, Limits,
    archive::zip_directory::{self, Method, ZipEntry},
    contents::{Contents, Data, Entry, Lazy},
    error::Fault,
    input::{Context, Input},
    npy,
};
use std::{io::Read, sync::Arc};
use twinscope_tensor::{Bytes, FindingKind, Plain, ReadError, Skipped, View};

/// What the headers of all deflated members may take together, beyond what the archive's size earns. One takes 128 bytes.
const FREE_HEADERS: u64 = 8 << 20;

pub(crate) fn recognise(input: &Input) -> bool {
    if !input.bytes.starts_with(b"PK\x03\x04") && !input.bytes.starts_with(b"PK\x05\x06") {
        return false;
    }
    match input.extension().as_str() {
        "npz" => true,
        // A zip of .npy files by its own name is an archive, where a common top folder means nothing.
        "zip" => false,
        _ => zip_directory::list(&input.bytes).is_ok_and(|entries| {
            !entries.is_empty() && entries.iter().all(|entry| entry.name.ends_with(".npy"))
        }),
    }
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("npz");
    let mut headers = FREE_HEADERS + 4 * input.bytes.len() as u64;
    for entry in zip_directory::list(&input.bytes)? {
        if entry.is_folder() {
            continue;
        }
        if entry.escapes() && contents.findings.len() < 16 {
            // Harmless here, nothing is ever written; but whoever unpacks it should know. A few names say it all.
            contents.find(
                FindingKind::PathEscape,
                format!(
                    "a member is called `{}`",
                    entry.name.chars().take(200).collect::<String>()
                ),
            );
        }
        let Some(name) = entry.name.strip_suffix(".npy").map(str::to_owned) else {
            contents.value(entry.name, Plain::Bytes(entry.unpacked_len));
            continue;
        };
        match member(input, &name, entry, context, &mut headers, &mut contents) {
            Ok(Some(tensor)) => contents.entries.push(Entry { name, ..tensor }),
            Ok(None) => {}
            Err(fault) => contents.skip(name, fault),
        }
    }
    Ok(contents)
}

/// One array, its name left to the caller; `None` for an array of objects, whose tensors are listed here.
fn member(
    input: &Input,
    name: &str,
    entry: ZipEntry,
    context: &Context,
    headers: &mut u64,
    contents: &mut Contents,
) -> Result<Option<Entry>, Fault> {
    if let Some(fault) = entry.fault {
        return Err(fault);
    }
    let bytes = match entry.method {
        Method::Stored => entry.open(&input.bytes, &context.cache, &context.limits)?,
        Method::Deflated => Bytes::from(first_bytes(&input.bytes, &entry, headers)?),
        Method::Other(method) => {
            return Err(Fault::Unsupported {
                what: format!("packed with method {method}"),
            });
        }
    };
    let mut header = npy::Header::parse(&bytes, context.limits.rank)?;
    if header.objects {
        let whole = entry.open(&input.bytes, &context.cache, &context.limits)?;
        let pickle = whole
            .slice(header.start..whole.len() as u64)
            .ok_or_else(|| Fault::Truncated {
                what: "the pickle".to_owned(),
            })?;
        inside(
            name,
            npy::objects(&pickle, context, Contents::new("npy"))?,
            contents,
        );
        return Ok(None);
    }
    let need = header.byte_len()?;
    let has = entry.unpacked_len.saturating_sub(header.start);
    if has < need {
        return Err(Fault::Truncated {
            what: format!("its elements take {need} bytes, {has} are there"),
        });
    }
    if has > need {
        contents.find(FindingKind::Odd, "a member has bytes after its array");
    }
    let range = header.start..header.start + need;
    if entry.method == Method::Stored {
        let bytes = bytes.slice(range).ok_or_else(|| Fault::Truncated {
            what: format!("{need} bytes of elements"),
        })?;
        return header.entry(String::new(), bytes).map(Some);
    }
    let (dtype, shape) = (
        header.dtype.expect("byte_len refuses objects"),
        header.shape.clone(),
    );
    let meta = header.meta.take();
    let archive = input.bytes.clone();
    let packed = Packed {
        archive,
        entry,
        header,
        range,
        cache: Arc::clone(&context.cache),
        limits: context.limits,
    };
    Ok(Some(Entry {
        name: String::new(),
        dtype,
        shape,
        meta,
        data: Data::Lazy(Arc::new(packed)),
    }))
}

/// What an array of objects holds, under the member's name.
fn inside(member: &str, objects: Contents, contents: &mut Contents) {
    let named = |name: &str| {
        if name.is_empty() {
            member.to_owned()
        } else {
            format!("{member}.{name}")
        }
    };
    for value in objects.values {
        contents.value(named(&value.name), value.value);
    }
    contents
        .entries
        .extend(objects.entries.into_iter().map(|entry| Entry {
            name: named(&entry.name),
            ..entry
        }));
    contents
        .skipped
        .extend(objects.skipped.into_iter().map(|skipped| Skipped {
            name: named(&skipped.name),
            ..skipped
        }));
    for finding in objects.findings {
        contents.find(finding.kind, format!("`{member}`: {}", finding.text));
    }
}

/// Inflates no more than the array's header.
fn first_bytes(archive: &Bytes, entry: &ZipEntry, budget: &mut u64) -> Result<Vec<u8>, Fault> {
    let cut = || Fault::Truncated {
        what: format!(
            "its packed bytes end at {}, the archive at {}",
            entry.packed.end,
            archive.len()
        ),
    };
    let packed = archive.slice(entry.packed.clone()).ok_or_else(cut)?;
    let mut inflater = flate2::read::DeflateDecoder::new(packed.as_slice());
    let mut bytes = Vec::new();
    let mut grow = |bytes: &mut Vec<u8>, upto: u64| {
        let more = upto.saturating_sub(bytes.len() as u64);
        inflater
            .by_ref()
            .take(more)
            .read_to_end(bytes)
            .map_err(|e| Fault::CorruptArchive {
                what: format!("it does not inflate: {e}"),
            })
    };
    grow(&mut bytes, 12)?;
    let length = npy::Header::length(&bytes)?;
    let limit = || Fault::Limit {
        what: "the headers of all members inflate far beyond the archive's size".to_owned(),
    };
    *budget = budget.checked_sub(length).ok_or_else(limit)?;
    grow(&mut bytes, length)?;
    Ok(bytes)
}

/// A deflated array.
struct Packed {
    archive: Bytes,
    entry: ZipEntry,
    header: npy::Header,
    range: std::ops::Range<u64>,
    cache: Arc<Cache>,
    limits: Limits,
}

impl Lazy for Packed {
    fn view(&self) -> Result<View, ReadError> {
        let decode = |fault: Fault| ReadError::Decode(Box::new(fault));
        let bytes = self
            .entry
            .open(&self.archive, &self.cache, &self.limits)
            .map_err(decode)?;
        let short = || Fault::Truncated {
            what: format!(
                "it inflates to {} bytes, {} are needed",
                bytes.len(),
                self.range.end
            ),
        };
        let elements = bytes
            .slice(self.range.clone())
            .ok_or_else(short)
            .map_err(decode)?;
        self.header.view(elements).map_err(decode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, input};
    use proptest::prelude::*;
    use std::io::Write;

    fn npy(values: &[u8]) -> Vec<u8> {
        let header = format!(
            "{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}",
            values.len()
        );
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(values);
        bytes
    }

    /// A zip of these members, deflated where the flag says so.
    fn zip(members: &[(&str, bool, Vec<u8>)]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, deflated, data) in members {
            let packed = match deflated {
                true => {
                    let mut encoder = flate2::write::DeflateEncoder::new(
                        Vec::new(),
                        flate2::Compression::default(),
                    );
                    encoder.write_all(data).unwrap();
                    encoder.finish().unwrap()
                }
                false => data.clone(),
            };
            let mut common = vec![
                20,
                0,
                0,
                0,
                if *deflated { 8 } else { 0 },
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ];
            common.extend_from_slice(&(packed.len() as u32).to_le_bytes());
            common.extend_from_slice(&(data.len() as u32).to_le_bytes());
            common.extend_from_slice(&(name.len() as u16).to_le_bytes());
            common.extend_from_slice(&[0, 0]);
            directory.extend_from_slice(b"PK\x01\x02\x14\x00");
            directory.extend_from_slice(&common);
            directory.extend_from_slice(&[0; 10]);
            directory.extend_from_slice(&(out.len() as u32).to_le_bytes());
            directory.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"PK\x03\x04");
            out.extend_from_slice(&common);
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&packed);
        }
        let start = out.len() as u32;
        out.extend_from_slice(&directory);
        out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        out.extend_from_slice(&(members.len() as u16).to_le_bytes());
        out.extend_from_slice(&(members.len() as u16).to_le_bytes());
        out.extend_from_slice(&(directory.len() as u32).to_le_bytes());
        out.extend_from_slice(&start.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out
    }

    #[test]
    fn stored_and_deflated_members_give_the_same_array() {
        let bytes = zip(&[
            ("a.npy", false, npy(&[1, 2, 3])),
            ("d/b.npy", true, npy(&[1, 2, 3])),
        ]);
        let contents = read(&input("x.npz", bytes), &context()).unwrap();
        assert!(
            matches!(contents.entries[0].data, Data::Plain(_))
                && matches!(contents.entries[1].data, Data::Lazy(_))
        );
        assert_eq!(contents.entries[1].name, "d/b");
        for entry in &contents.entries {
            assert_eq!(entry.view().unwrap().contiguous().unwrap(), [1, 2, 3]);
        }
    }

    #[test]
    fn a_bad_member_is_skipped_alone_and_an_empty_archive_is_fine() {
        let mut short = npy(&[1, 2, 3]);
        short.pop();
        let bytes = zip(&[
            ("a.npy", true, short),
            ("b.npy", false, b"no".to_vec()),
            ("c.npy", true, npy(&[9])),
        ]);
        let contents = read(&input("x.npz", bytes), &context()).unwrap();
        assert_eq!((contents.entries.len(), contents.skipped.len()), (1, 2));
        assert!(
            read(&input("x.npz", zip(&[])), &context())
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_name_that_leaves_the_archive_is_said() {
        let contents = read(
            &input("x.npz", zip(&[("../../evil.npy", false, npy(&[1]))])),
            &context(),
        )
        .unwrap();
        assert_eq!(contents.findings[0].kind, FindingKind::PathEscape);
        assert_eq!(contents.entries.len(), 1);
    }

    #[test]
    fn a_zip_by_name_is_left_to_the_archive_reader() {
        let bytes = zip(&[("a.npy", false, npy(&[1]))]);
        assert!(recognise(&input("x.npz", bytes.clone())) && recognise(&input("x", bytes.clone())));
        assert!(!recognise(&input("x.zip", bytes)));
        assert!(!recognise(&input(
            "x.pt",
            zip(&[("x/data.pkl", false, vec![])])
        )));
    }

    proptest! {
        #[test]
        fn no_damage_panics(at in 0usize..420, byte in any::<u8>(), cut in 0usize..500) {
            let mut bytes = zip(&[("a.npy", false, npy(&[1, 2, 3])), ("b.npy", true, npy(&[4; 50]))]);
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            if cut < bytes.len() && at % 4 == 0 { bytes.truncate(cut); }
            if let Ok(contents) = read(&input("x.npz", bytes), &context()) {
                for entry in &contents.entries { let _ = entry.view(); }
            }
        }
    }
}
