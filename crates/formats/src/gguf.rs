//! GGUF, the file of llama.cpp: `GGUF`, version, counts, key-value metadata, tensor descriptions, aligned data.
//!
//! Versions 1 to 3 in either byte order. Sizes are stored fastest dimension first and listed row-major. Blocks are shown
//! as they are stored; what their numbers are is [`twinscope_tensor::blocks`]'s business. The order of tensors in the file
//! is the writer's, not that of execution.

use crate::{
    contents::Contents,
    error::Fault,
    input::{Context, Input},
};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use twinscope_tensor::{BlockType, DType, FindingKind, Shape, View};

/// ggml's bound on dimensions.
const DIMENSIONS: usize = 4;
/// Arrays inside arrays; ggml has none at all.
const NESTING: usize = 8;
/// Longer arrays (vocabularies) are told by their type and length only.
const SHOWN_ITEMS: u64 = 64;
/// Longer strings likewise.
const SHOWN_BYTES: u64 = 64 << 10;

/// Doubled keys to tell; more say nothing new.
const FINDINGS: usize = 64;

pub(crate) fn recognise(input: &Input) -> bool {
    input.bytes.starts_with(b"GGUF")
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let mut reader = Reader::new(&input.bytes)?;
    let mut contents = Contents::new("gguf");
    let tensors = reader.count(24, "tensors")?;
    let keys = reader.count(12, "keys")?;
    let mut meta = Map::new();
    meta.insert("GGUF.version".into(), reader.version.into());
    let alignment = read_keys(&mut reader, keys, &mut meta, &mut contents)?;
    let infos = (0..tensors)
        .map(|_| read_info(&mut reader, context.limits.rank))
        .collect::<Result<Vec<_>, _>>()?;
    contents.meta = Some(Box::new(meta));
    let start = reader.at.next_multiple_of(alignment);
    list(input, &reader, infos, start, alignment, &mut contents);
    Ok(contents)
}

/// A tensor as its description has it.
struct Info {
    name: String,
    /// Row-major.
    dims: Vec<u64>,
    kind: u32,
    offset: u64,
}

/// Reads the metadata; returns the alignment of the data.
fn read_keys(
    reader: &mut Reader<'_>,
    keys: u64,
    meta: &mut Map<String, Value>,
    contents: &mut Contents,
) -> Result<u64, Fault> {
    let mut alignment = 32;
    for _ in 0..keys {
        let key = reader.string("a key")?;
        let kind = reader.u32("a value's type")?;
        let value = reader.value(kind, 0)?;
        if key == "general.alignment" {
            alignment = value
                .as_u64()
                .filter(|n| kind == 4 && n.is_power_of_two())
                .ok_or_else(|| Fault::BadHeader {
                    what: format!("general.alignment is {value}, not a power of two in 32 bits"),
                })?;
        }
        if meta.insert(key.clone(), value).is_some() && contents.findings.len() < FINDINGS {
            contents.find(
                FindingKind::Odd,
                format!("the key `{key}` is there twice; the last one is shown"),
            );
        }
    }
    Ok(alignment)
}

fn read_info(reader: &mut Reader<'_>, most: usize) -> Result<Info, Fault> {
    let name = reader.string("a tensor's name")?;
    let rank = reader.u32("a tensor's rank")? as usize;
    if rank > most {
        return Err(Fault::BadHeader {
            what: format!("`{name}` has {rank} dimensions, {DIMENSIONS} is the most"),
        });
    }
    let mut dims = (0..rank)
        .map(|_| reader.long("a tensor's size"))
        .collect::<Result<Vec<_>, _>>()?;
    dims.reverse();
    Ok(Info {
        name,
        dims,
        kind: reader.u32("a tensor's type")?,
        offset: reader.u64("a tensor's offset")?,
    })
}

fn list(
    input: &Input,
    reader: &Reader<'_>,
    infos: Vec<Info>,
    start: u64,
    alignment: u64,
    contents: &mut Contents,
) {
    let overlapping = overlapping(&infos, start);
    let mut names = HashSet::new();
    for (info, overlaps) in infos.into_iter().zip(overlapping) {
        let found = if names.insert(info.name.clone()) {
            locate(input, &info, start, alignment, overlaps)
        } else {
            Err(Fault::DuplicateName {
                what: format!("`{}`; the first one is listed", info.name),
            })
        };
        let shape = Shape::from(info.dims);
        match found {
            Ok((dtype, bytes)) if reader.big => match View::new(dtype, shape, bytes) {
                Ok(view) => {
                    if matches!(dtype, DType::Block(_)) {
                        contents.find(
                            FindingKind::Odd,
                            "quantized blocks in a big-endian file: their scales are read as little-endian, as gguf-py writes them",
                        );
                    }
                    contents.push_view(info.name, view.big_endian(true), None);
                }
                Err(error) => contents.skip(info.name, Fault::from(error)),
            },
            Ok((dtype, bytes)) => contents.push_plain(info.name, dtype, shape, bytes, None),
            Err(fault) => contents.skip(info.name, fault),
        }
    }
}

/// The dtype of a tensor and its bytes.
fn locate(
    input: &Input,
    info: &Info,
    start: u64,
    alignment: u64,
    overlaps: bool,
) -> Result<(DType, twinscope_tensor::Bytes), Fault> {
    let Info {
        name,
        dims,
        kind,
        offset,
    } = info;
    let dtype = dtype(*kind).ok_or_else(|| Fault::BadDtype {
        what: format!("`{name}` has ggml type {kind}"),
    })?;
    if dims.len() > DIMENSIONS {
        return Err(Fault::BadShape {
            what: format!(
                "`{name}` has {} dimensions, {DIMENSIONS} is the most",
                dims.len()
            ),
        });
    }
    let len = byte_len(dtype, dims).map_err(|fault| match fault {
        None => Fault::Overflow {
            what: format!("the sizes {dims:?} of `{name}` have no countable product"),
        },
        Some(per) => Fault::BadShape {
            what: format!(
                "`{name}` has rows of {:?} elements, {dtype} needs a multiple of {per}",
                dims.last()
            ),
        },
    })?;
    if !offset.is_multiple_of(alignment) {
        return Err(Fault::BadHeader {
            what: format!("`{name}` is at offset {offset}, not a multiple of {alignment}"),
        });
    }
    if overlaps {
        return Err(Fault::Overlap {
            what: format!("`{name}` at offset {offset} begins inside another tensor"),
        });
    }
    let file = input.bytes.len() as u64;
    let outside = || Fault::OutOfBounds {
        what: format!("`{name}` is {len} bytes at {start} + {offset}, the file ends at {file}"),
    };
    let first = start.checked_add(*offset).ok_or_else(outside)?;
    let end = first.checked_add(len).ok_or_else(outside)?;
    let bytes = input.bytes.slice(first..end).ok_or_else(|| {
        if first <= file {
            Fault::Truncated {
                what: format!("`{name}` ends at byte {end}, the file at {file}"),
            }
        } else {
            outside()
        }
    })?;
    Ok((dtype, bytes))
}

/// Bytes of a tensor; the block's size when a row is not a whole number of blocks, nothing when they cannot be counted.
fn byte_len(dtype: DType, dims: &[u64]) -> Result<u64, Option<usize>> {
    if let DType::Block(block) = dtype
        && !dims
            .last()
            .copied()
            .unwrap_or(1)
            .is_multiple_of(block.elements() as u64)
    {
        return Err(Some(block.elements()));
    }
    Shape::new(dims)
        .elements()
        .and_then(|elements| dtype.byte_len(elements))
        .ok_or(None)
}

/// For each tensor whether it begins inside one that lies before it.
fn overlapping(infos: &[Info], start: u64) -> Vec<bool> {
    let range = |info: &Info| {
        let len = byte_len(dtype(info.kind)?, &info.dims).ok()?;
        let first = start.checked_add(info.offset)?;
        Some((first, first.checked_add(len)?))
    };
    let mut ranges: Vec<(u64, u64, usize)> = infos
        .iter()
        .enumerate()
        .filter_map(|(i, info)| range(info).map(|(first, end)| (first, end, i)))
        .filter(|(a, b, _)| a < b)
        .collect();
    ranges.sort_unstable_by_key(|(first, _, i)| (*first, *i));
    let mut overlapping = vec![false; infos.len()];
    let mut covered = 0;
    for (first, end, i) in ranges {
        overlapping[i] = first < covered;
        covered = covered.max(end);
    }
    overlapping
}

fn dtype(kind: u32) -> Option<DType> {
    Some(match kind {
        0 => DType::F32,
        1 => DType::F16,
        24 => DType::I8,
        25 => DType::I16,
        26 => DType::I32,
        27 => DType::I64,
        28 => DType::F64,
        30 => DType::Bf16,
        _ => DType::Block(
            *BlockType::ALL
                .iter()
                .find(|block| block.ggml_id() == kind)?,
        ),
    })
}

/// Reads numbers and strings in the file's byte order; every length is checked against what is left.
struct Reader<'a> {
    bytes: &'a [u8],
    at: u64,
    big: bool,
    version: u32,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut reader = Self {
            bytes,
            at: 4,
            big: false,
            version: 0,
        };
        let mut version = reader.u32("the version")?;
        // Versions are small numbers: one that is not was written the other way round.
        if version & 0xFFFF == 0 {
            reader.big = true;
            version = version.swap_bytes();
        }
        if !(1..=3).contains(&version) {
            return Err(Fault::Unsupported {
                what: format!("GGUF version {version}; 1, 2 and 3 are known"),
            });
        }
        reader.version = version;
        Ok(reader)
    }

    fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8], Fault> {
        let left = self.bytes.len() as u64 - self.at;
        if len > left {
            return Err(Fault::Truncated {
                what: format!("{what} takes {len} bytes at {}, {left} are left", self.at),
            });
        }
        let from = self.at as usize;
        self.at += len;
        Ok(&self.bytes[from..from + len as usize])
    }

    fn number<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Fault> {
        let mut bytes: [u8; N] = self
            .take(N as u64, what)?
            .try_into()
            .expect("as long as asked for");
        if self.big {
            bytes.reverse();
        }
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, Fault> {
        self.number(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, Fault> {
        self.number(what).map(u64::from_le_bytes)
    }

    /// Lengths, counts and sizes: 32 bits in version 1.
    fn long(&mut self, what: &str) -> Result<u64, Fault> {
        if self.version == 1 {
            self.u32(what).map(u64::from)
        } else {
            self.u64(what)
        }
    }

    /// A count of things that take at least `least` bytes each, half of that in version 1.
    fn count(&mut self, least: u64, what: &str) -> Result<u64, Fault> {
        let count = self.long(what)?;
        let left = self.bytes.len() as u64 - self.at;
        if count > left / (least / 2) {
            return Err(Fault::Truncated {
                what: format!("{count} {what} do not fit the {left} bytes that are left"),
            });
        }
        Ok(count)
    }

    fn string(&mut self, what: &str) -> Result<String, Fault> {
        let len = self.long(what)?;
        self.take(len, what)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// A metadata value; long ones are passed over and described.
    fn value(&mut self, kind: u32, depth: usize) -> Result<Value, Fault> {
        let what = "a value";
        Ok(match kind {
            0 => self.number::<1>(what)?[0].into(),
            1 => i8::from_le_bytes(self.number(what)?).into(),
            2 => u16::from_le_bytes(self.number(what)?).into(),
            3 => i16::from_le_bytes(self.number(what)?).into(),
            4 => self.u32(what)?.into(),
            5 => i32::from_le_bytes(self.number(what)?).into(),
            6 => short(f32::from_le_bytes(self.number(what)?)),
            7 => (self.number::<1>(what)?[0] != 0).into(),
            8 => self.text(what)?,
            9 => self.array(depth)?,
            10 => self.u64(what)?.into(),
            11 => i64::from_le_bytes(self.number(what)?).into(),
            12 => float(f64::from_le_bytes(self.number(what)?)),
            _ => {
                return Err(Fault::BadHeader {
                    what: format!("a metadata value of type {kind}; 0 to 12 are known"),
                });
            }
        })
    }

    fn text(&mut self, what: &str) -> Result<Value, Fault> {
        let len = self.long(what)?;
        let bytes = self.take(len, what)?;
        Ok(if len > SHOWN_BYTES {
            json!({"type": "string", "len": len})
        } else {
            String::from_utf8_lossy(bytes).into()
        })
    }

    fn array(&mut self, depth: usize) -> Result<Value, Fault> {
        if depth == NESTING {
            return Err(Fault::BadHeader {
                what: format!("arrays {NESTING} deep in the metadata"),
            });
        }
        let kind = self.u32("an array's type")?;
        let len = self.long("an array's length")?;
        let Some((name, size)) = kind_name(kind) else {
            return Err(Fault::BadHeader {
                what: format!("a metadata array of type {kind}; 0 to 12 are known"),
            });
        };
        let long = len > SHOWN_ITEMS;
        if let (Some(size), true) = (size, long) {
            let bytes = len.checked_mul(size).ok_or_else(|| Fault::Truncated {
                what: format!("an array of {len} {name} does not fit the file"),
            })?;
            self.take(bytes, "an array")?;
        } else {
            let mut items = Vec::new();
            // Every turn takes at least four bytes of the file, so a length that lies ends soon.
            for _ in 0..len {
                let item = if long {
                    self.pass(kind, depth + 1).map(|()| Value::Null)
                } else {
                    self.value(kind, depth + 1)
                }?;
                if !long {
                    items.push(item);
                }
            }
            if !long {
                return Ok(Value::Array(items));
            }
        }
        Ok(json!({"type": name, "len": len}))
    }

    /// Goes past a string or an array without keeping it.
    fn pass(&mut self, kind: u32, depth: usize) -> Result<(), Fault> {
        if kind == 8 {
            let len = self.long("a string")?;
            return self.take(len, "a string").map(|_| ());
        }
        self.value(kind, depth).map(|_| ())
    }
}

/// The name and size of a metadata type; strings and arrays have none.
fn kind_name(kind: u32) -> Option<(&'static str, Option<u64>)> {
    const KINDS: [(&str, Option<u64>); 13] = [
        ("u8", Some(1)),
        ("i8", Some(1)),
        ("u16", Some(2)),
        ("i16", Some(2)),
        ("u32", Some(4)),
        ("i32", Some(4)),
        ("f32", Some(4)),
        ("bool", Some(1)),
        ("string", None),
        ("array", None),
        ("u64", Some(8)),
        ("i64", Some(8)),
        ("f64", Some(8)),
    ];
    KINDS.get(kind as usize).copied()
}

/// An f32 as the shortest decimal that means it, not as the f64 nobody wrote.
fn short(value: f32) -> Value {
    float(value.to_string().parse().unwrap_or(f64::from(value)))
}

fn float(value: f64) -> Value {
    if value.is_nan() {
        return "NaN".into();
    }
    serde_json::Number::from_f64(value).map_or_else(
        || if value > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Value::Number,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// A file of one key-value list and tensor list, as bytes.
    struct File(Vec<u8>);

    impl File {
        fn new(version: u32, tensors: u64, keys: u64) -> Self {
            let mut file = Self(b"GGUF".to_vec());
            file.0.extend(version.to_le_bytes());
            file.long(tensors).long(keys);
            file
        }
        fn long(&mut self, value: u64) -> &mut Self {
            self.0.extend(value.to_le_bytes());
            self
        }
        fn int(&mut self, value: u32) -> &mut Self {
            self.0.extend(value.to_le_bytes());
            self
        }
        fn text(&mut self, text: &str) -> &mut Self {
            self.long(text.len() as u64);
            self.0.extend(text.as_bytes());
            self
        }
        fn tensor(&mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> &mut Self {
            self.text(name).int(dims.len() as u32);
            dims.iter().for_each(|dim| {
                self.long(*dim);
            });
            self.int(kind).long(offset)
        }
        fn data(&mut self, alignment: usize, len: usize) -> &mut Self {
            let start = self.0.len().next_multiple_of(alignment);
            self.0.resize(start + len, 0);
            self
        }
    }

    fn read_bytes(bytes: &[u8]) -> Result<Contents, Fault> {
        let context = Context::new(
            crate::Limits::default(),
            Arc::new(crate::Cache::new(std::env::temp_dir(), 1 << 20)),
            0,
        );
        read(
            &Input {
                name: "x.gguf".into(),
                path: None,
                bytes: bytes.to_vec().into(),
            },
            &context,
        )
    }

    #[test]
    fn sizes_are_listed_row_major() {
        let mut file = File::new(3, 1, 0);
        file.tensor("w", &[32, 3], 2, 0).data(32, 54);
        let contents = read_bytes(&file.0).expect("readable");
        assert_eq!(contents.entries[0].shape, Shape::from([3, 32]));
        assert_eq!(contents.entries[0].dtype, DType::Block(BlockType::Q4_0));
    }

    #[test]
    fn one_bad_tensor_does_not_hide_the_others() {
        let mut file = File::new(3, 6, 0);
        file.tensor("good", &[8], 0, 0)
            .tensor("type", &[8], 4, 32)
            .tensor("row", &[33], 2, 32)
            .tensor("far", &[8], 0, 1 << 40);
        file.tensor("good", &[8], 0, 32)
            .tensor("inside", &[8], 0, 0)
            .data(32, 64);
        let contents = read_bytes(&file.0).expect("readable");
        assert_eq!(contents.entries.len(), 1);
        let skipped: Vec<&str> = contents.skipped.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(skipped, ["type", "row", "far", "good", "inside"]);
    }

    #[test]
    fn long_arrays_are_described_and_short_ones_shown() {
        let mut file = File::new(3, 0, 2);
        file.text("short").int(9).int(5).long(2).int(7).int(8);
        file.text("long").int(9).int(8).long(65);
        (0..65).for_each(|i| {
            file.text(&i.to_string());
        });
        let meta = read_bytes(&file.0).expect("readable").meta.expect("keys");
        assert_eq!(meta["short"], json!([7, 8]));
        assert_eq!(meta["long"], json!({"type": "string", "len": 65}));
    }

    #[test]
    fn counts_beyond_the_file_are_refused_at_once() {
        assert!(matches!(
            read_bytes(&File::new(3, 1 << 60, 0).0),
            Err(Fault::Truncated { .. })
        ));
        assert!(matches!(
            read_bytes(&File::new(3, 0, 1 << 60).0),
            Err(Fault::Truncated { .. })
        ));
        let mut file = File::new(3, 0, 1);
        file.text("k").int(9).int(8).long(u64::MAX);
        assert!(matches!(read_bytes(&file.0), Err(Fault::Truncated { .. })));
    }

    #[test]
    fn arrays_do_not_nest_without_end() {
        let mut file = File::new(3, 0, 1);
        file.text("k").int(9);
        (0..10_000).for_each(|_| {
            file.int(9).long(1);
        });
        assert!(matches!(read_bytes(&file.0), Err(Fault::BadHeader { .. })));
    }

    proptest! {
        #[test]
        fn damaged_files_never_panic(at in 0usize..140, byte in any::<u8>(), cut in 0usize..200) {
            let mut file = File::new(3, 2, 1);
            file.text("general.alignment").int(4).int(32);
            file.tensor("a", &[4], 0, 0).tensor("b", &[32], 2, 32).data(32, 50);
            let at = at.min(file.0.len() - 1);
            file.0[at] = byte;
            file.0.truncate(cut.max(4));
            let _ = read_bytes(&file.0);
        }

        #[test]
        fn random_bytes_never_panic(version in 1u32..4, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut file = b"GGUF".to_vec();
            file.extend(version.to_le_bytes());
            file.extend(bytes);
            let _ = read_bytes(&file);
        }
    }
}
