//! Flax checkpoints: a msgpack tree of maps whose leaves are arrays.
//!
//! Extension 1 is an array and 3 a NumPy scalar, both `(shape, dtype name, bytes)` packed again; 2 is a complex number.
//! Arrays above 1 GiB are maps of flat chunks. The tree is walked with a stack of our own; array bytes stay where they are.

use crate::{
    Cache,
    contents::{Contents, Data, Entry, Lazy},
    error::Fault,
    input::{Context, Input},
    raw::dtype_by_name,
};
use std::{ops::Range, sync::Arc};
use twinscope_tensor::{Bytes, DType, FindingKind, Plain, ReadError, Shape, View};

/// Nesting of maps and lists. A module in a module in a module is five.
const MAX_DEPTH: usize = 128;
/// What names and values may take: a byte of msgpack can ask for a name of many, so what a file earns is bounded.
const FREE_LISTING: u64 = 16 << 20;
const CHUNKED: &[u8] = b"__msgpack_chunked_array__";

pub(crate) fn recognise(input: &Input) -> bool {
    // A tree, or one array that is nothing else.
    let begins = matches!(
        input.bytes.first(),
        Some(0x80..=0x8f | 0xde | 0xdf | 0xc7..=0xc9 | 0xd4..=0xd8)
    );
    begins && matches!(input.extension().as_str(), "msgpack" | "flax")
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("flax-msgpack");
    let walk = Walk {
        cursor: Cursor {
            bytes: &input.bytes,
            at: 0,
            end: input.bytes.len(),
        },
        input,
        context,
        path: String::new(),
        open: Vec::new(),
        budget: FREE_LISTING + input.bytes.len() as u64 / 16,
    };
    match walk.run(&mut contents) {
        Ok(end) if end < input.bytes.len() => {
            contents.find(
                FindingKind::Odd,
                format!("{} bytes after the tree", input.bytes.len() - end),
            );
        }
        Ok(_) => {}
        // What came before the damage is as good as ever.
        Err(fault) if contents.entries.is_empty() => return Err(fault),
        Err(fault) => contents.skip("(the rest of the file)", fault),
    }
    Ok(contents)
}

/// The first bytes of a value: all of it, or what it holds.
#[derive(Debug)]
enum Head {
    Nil,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Range<usize>),
    Bin(Range<usize>),
    Array(u32),
    Map(u32),
    Ext(i8, Range<usize>),
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl Cursor<'_> {
    fn take(&mut self, count: usize) -> Result<Range<usize>, Fault> {
        if count > self.end - self.at {
            return Err(Fault::Truncated {
                what: format!(
                    "a value at byte {} needs {count} bytes, {} are left",
                    self.at,
                    self.end - self.at
                ),
            });
        }
        self.at += count;
        Ok(self.at - count..self.at)
    }

    fn uint(&mut self, width: usize) -> Result<u64, Fault> {
        let range = self.take(width)?;
        Ok(self.bytes[range]
            .iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn sized(&mut self, width: usize) -> Result<Range<usize>, Fault> {
        let count = self.uint(width)?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn ext(&mut self, count: u64) -> Result<Head, Fault> {
        let kind = self.uint(1)? as u8;
        Ok(Head::Ext(
            kind.cast_signed(),
            self.take(usize::try_from(count).unwrap_or(usize::MAX))?,
        ))
    }

    fn head(&mut self) -> Result<Head, Fault> {
        let start = self.at;
        let first = self.uint(1)? as u8;
        Ok(match first {
            0x00..=0x7f => Head::Int(i128::from(first)),
            0x80..=0x8f => Head::Map(u32::from(first & 15)),
            0x90..=0x9f => Head::Array(u32::from(first & 15)),
            0xa0..=0xbf => Head::Str(self.take(usize::from(first & 31))?),
            0xc0 => Head::Nil,
            0xc2 | 0xc3 => Head::Bool(first == 0xc3),
            0xc4..=0xc6 => Head::Bin(self.sized(1 << (first - 0xc4))?),
            0xc7..=0xc9 => {
                let count = self.uint(1 << (first - 0xc7))?;
                self.ext(count)?
            }
            0xca => Head::Float(f64::from(f32::from_bits(self.uint(4)? as u32))),
            0xcb => Head::Float(f64::from_bits(self.uint(8)?)),
            0xcc..=0xcf => Head::Int(i128::from(self.uint(1 << (first - 0xcc))?)),
            0xd0..=0xd3 => {
                let width = 1 << (first - 0xd0);
                let shift = 64 - 8 * width as u32;
                Head::Int(i128::from(
                    (self.uint(width)? << shift).cast_signed() >> shift,
                ))
            }
            0xd4..=0xd8 => self.ext(1 << (first - 0xd4))?,
            0xd9..=0xdb => Head::Str(self.sized(1 << (first - 0xd9))?),
            0xdc | 0xdd => Head::Array(self.uint(if first == 0xdc { 2 } else { 4 })? as u32),
            0xde | 0xdf => Head::Map(self.uint(if first == 0xde { 2 } else { 4 })? as u32),
            0xe0..=0xff => Head::Int(i128::from(first.cast_signed())),
            0xc1 => {
                return Err(Fault::BadHeader {
                    what: format!("the byte c1 at {start} means nothing in msgpack"),
                });
            }
        })
    }
}

/// A map or list that is being walked.
struct Level {
    map: bool,
    count: u32,
    done: u32,
    /// Length of the path that leads here.
    path: usize,
}

struct Walk<'a> {
    cursor: Cursor<'a>,
    input: &'a Input,
    context: &'a Context,
    path: String,
    open: Vec<Level>,
    budget: u64,
}

impl Walk<'_> {
    /// Returns where the tree ends.
    fn run(mut self, contents: &mut Contents) -> Result<usize, Fault> {
        self.value(contents)?;
        while let Some(level) = self.open.last_mut() {
            if level.done == level.count {
                self.open.pop();
                continue;
            }
            let (index, map, path) = (level.done, level.map, level.path);
            level.done += 1;
            self.path.truncate(path);
            if path > 0 {
                self.path.push('.');
            }
            if map {
                self.key()?;
            } else {
                self.path.push_str(&index.to_string());
            }
            self.value(contents)?;
        }
        Ok(self.cursor.at)
    }

    fn key(&mut self) -> Result<(), Fault> {
        let start = self.cursor.at;
        match self.cursor.head()? {
            Head::Str(text) | Head::Bin(text) => {
                self.charge(text.len())?;
                self.path
                    .push_str(&String::from_utf8_lossy(&self.cursor.bytes[text]));
            }
            Head::Int(n) => self.path.push_str(&n.to_string()),
            Head::Bool(yes) => self.path.push_str(if yes { "True" } else { "False" }),
            _ => {
                return Err(Fault::BadHeader {
                    what: format!("a key at byte {start} is not a name"),
                });
            }
        }
        Ok(())
    }

    /// Counts what is about to be kept.
    fn charge(&mut self, bytes: usize) -> Result<(), Fault> {
        let limit = || Fault::Limit {
            what: "its names and values take far more than the file holds".to_owned(),
        };
        self.budget = self.budget.checked_sub(bytes as u64).ok_or_else(limit)?;
        Ok(())
    }

    fn value(&mut self, contents: &mut Contents) -> Result<(), Fault> {
        let head = self.cursor.head()?;
        let value = match head {
            Head::Map(count) => {
                return if count > 0 && self.is_chunked()? {
                    self.chunked(contents)
                } else {
                    self.enter(true, count)
                };
            }
            Head::Array(count) => return self.enter(false, count),
            Head::Ext(1 | 3, range) => {
                self.charge(self.path.len() + 192)?;
                match self.array(range) {
                    Ok((dtype, shape, bytes)) => {
                        contents.push_plain(self.path.clone(), dtype, shape, bytes, None);
                    }
                    Err(fault) => contents.skip(self.path.clone(), fault),
                }
                return Ok(());
            }
            Head::Ext(2, range) => match complex(self.cursor.bytes, range) {
                Ok((re, im)) => Plain::Complex(re, im),
                Err(fault) => {
                    self.charge(self.path.len() + 192)?;
                    contents.skip(self.path.clone(), fault);
                    return Ok(());
                }
            },
            Head::Ext(kind, range) => Plain::Other {
                kind: format!("ext{kind}"),
                text: format!("{} bytes", range.len()),
            },
            Head::Nil => Plain::None,
            Head::Bool(yes) => Plain::Bool(yes),
            Head::Int(n) => Plain::Int(n.to_string()),
            Head::Float(x) => Plain::Float(x),
            Head::Str(range) => {
                self.charge(range.len())?;
                Plain::Str(String::from_utf8_lossy(&self.cursor.bytes[range]).into_owned())
            }
            Head::Bin(range) => Plain::Bytes(range.len() as u64),
        };
        self.charge(self.path.len() + 128)?;
        contents.value(self.path.clone(), value);
        Ok(())
    }

    fn enter(&mut self, map: bool, count: u32) -> Result<(), Fault> {
        if self.open.len() == MAX_DEPTH {
            return Err(Fault::BadHeader {
                what: format!("values nested deeper than {MAX_DEPTH}"),
            });
        }
        self.open.push(Level {
            map,
            count,
            done: 0,
            path: self.path.len(),
        });
        Ok(())
    }

    /// `(shape, dtype name, bytes)`.
    fn array(&self, range: Range<usize>) -> Result<(DType, Shape, Bytes), Fault> {
        let bad = |what: &str| Fault::BadHeader {
            what: format!("{what} in an array at byte {}", range.start),
        };
        let mut inner = Cursor {
            bytes: self.cursor.bytes,
            at: range.start,
            end: range.end,
        };
        let Head::Array(3) = inner.head()? else {
            return Err(bad("not three parts"));
        };
        let Head::Array(rank) = inner.head()? else {
            return Err(bad("no shape"));
        };
        if rank as usize > self.context.limits.rank {
            return Err(Fault::BadShape {
                what: format!("{rank} dimensions"),
            });
        }
        let mut dims = Vec::with_capacity(rank as usize);
        for _ in 0..rank {
            let Head::Int(dim) = inner.head()? else {
                return Err(bad("a dimension that is no integer"));
            };
            dims.push(u64::try_from(dim).map_err(|_| Fault::BadShape {
                what: format!("a dimension of {dim}"),
            })?);
        }
        let (Head::Str(name) | Head::Bin(name)) = inner.head()? else {
            return Err(bad("no dtype"));
        };
        let name = String::from_utf8_lossy(&inner.bytes[name.start..name.end.min(name.start + 80)]);
        let dtype = dtype_by_name(&name).ok_or_else(|| Fault::BadDtype {
            what: format!("`{name}`"),
        })?;
        let Head::Bin(data) = inner.head()? else {
            return Err(bad("no bytes"));
        };
        let bytes = self
            .input
            .bytes
            .slice(data.start as u64..data.end as u64)
            .expect("a cursor stays inside the file");
        let shape = Shape::from(dims);
        View::new(dtype, shape.clone(), bytes.clone())?;
        Ok((dtype, shape, bytes))
    }

    /// Whether the map that begins here says it is a chunked array.
    fn is_chunked(&self) -> Result<bool, Fault> {
        let mut ahead = Cursor { ..self.cursor };
        let (Head::Str(key) | Head::Bin(key)) = ahead.head()? else {
            return Ok(false);
        };
        Ok(&ahead.bytes[key] == CHUNKED)
    }

    /// `{marker: true, "shape": {"0": n, ...}, "chunks": {"0": flat array, ...}}`, the map's head already read.
    fn chunked(&mut self, contents: &mut Contents) -> Result<(), Fault> {
        let bad = |what: &str| Fault::BadHeader {
            what: format!("{what} in a chunked array"),
        };
        self.cursor.head()?;
        let Head::Bool(_) = self.cursor.head()? else {
            return Err(bad("no marker"));
        };
        let (mut dims, mut chunks) = (Vec::new(), Vec::new());
        // Both parts are numbered maps, written in order.
        for _ in 0..2 {
            let (Head::Str(key) | Head::Bin(key)) = self.cursor.head()? else {
                return Err(bad("no name of a part"));
            };
            let shape = &self.cursor.bytes[key] == b"shape";
            let Head::Map(count) = self.cursor.head()? else {
                return Err(bad("no numbered map"));
            };
            for index in 0..count {
                let (Head::Str(key) | Head::Bin(key)) = self.cursor.head()? else {
                    return Err(bad("no number"));
                };
                if self.cursor.bytes[key] != *index.to_string().as_bytes() {
                    return Err(bad("parts out of order"));
                }
                self.charge(64)?;
                match self.cursor.head()? {
                    Head::Int(dim) if shape => {
                        dims.push(u64::try_from(dim).map_err(|_| Fault::BadShape {
                            what: format!("a dimension of {dim}"),
                        })?);
                    }
                    Head::Ext(1, range) if !shape => chunks.push(self.array(range)?),
                    _ => return Err(bad("an unexpected value")),
                }
            }
        }
        self.charge(self.path.len() + 192)?;
        match self.join(dims, chunks) {
            Ok(entry) => contents.entries.push(entry),
            Err(fault) => contents.skip(self.path.clone(), fault),
        }
        Ok(())
    }

    fn join(&self, dims: Vec<u64>, chunks: Vec<(DType, Shape, Bytes)>) -> Result<Entry, Fault> {
        if dims.len() > self.context.limits.rank {
            return Err(Fault::BadShape {
                what: format!("{} dimensions", dims.len()),
            });
        }
        let shape = Shape::from(dims);
        let Some(&(dtype, ..)) = chunks.first() else {
            return Err(Fault::Missing {
                what: "a chunked array without chunks".to_owned(),
            });
        };
        if chunks.iter().any(|(other, ..)| *other != dtype) {
            return Err(Fault::BadDtype {
                what: "chunks of different dtypes".to_owned(),
            });
        }
        let overflow = || Fault::Overflow {
            what: format!("the shape {shape} has more elements than can be counted"),
        };
        let need = shape
            .elements()
            .and_then(|elements| dtype.byte_len(elements))
            .ok_or_else(overflow)?;
        let parts: Vec<Bytes> = chunks.into_iter().map(|(.., bytes)| bytes).collect();
        let has: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if has != need {
            return Err(Fault::SizeMismatch {
                what: format!("{shape} of {dtype} takes {need} bytes, its chunks have {has}"),
            });
        }
        let data = match parts.as_slice() {
            [one] => Data::Plain(one.clone()),
            _ => {
                let cache = Arc::clone(&self.context.cache);
                Data::Lazy(Arc::new(Chunked {
                    name: self.path.clone(),
                    dtype,
                    shape: shape.clone(),
                    parts,
                    len: need,
                    cache,
                }))
            }
        };
        Ok(Entry {
            name: self.path.clone(),
            dtype,
            shape,
            meta: None,
            data,
        })
    }
}

fn complex(bytes: &[u8], range: Range<usize>) -> Result<(f64, f64), Fault> {
    let bad = || Fault::BadHeader {
        what: format!(
            "a complex number at byte {} is no pair of numbers",
            range.start
        ),
    };
    let mut inner = Cursor {
        bytes,
        at: range.start,
        end: range.end,
    };
    let Head::Array(2) = inner.head()? else {
        return Err(bad());
    };
    let mut part = || match inner.head()? {
        Head::Float(x) => Ok(x),
        Head::Int(n) => Ok(n as f64),
        _ => Err(bad()),
    };
    Ok((part()?, part()?))
}

/// An array in several pieces, put together when it is read.
struct Chunked {
    name: String,
    dtype: DType,
    shape: Shape,
    parts: Vec<Bytes>,
    len: u64,
    cache: Arc<Cache>,
}

impl Lazy for Chunked {
    fn view(&self) -> Result<View, ReadError> {
        let bytes = self.cache.make(&self.name, self.len, &mut |out| {
            self.parts
                .iter()
                .try_for_each(|part| out.write_all(part))
                .map_err(|e| Fault::Io {
                    what: e.to_string(),
                })
        });
        let bytes = bytes.map_err(|fault| ReadError::Decode(Box::new(fault)))?;
        Ok(View::new(self.dtype, self.shape.clone(), bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, input};
    use proptest::prelude::*;

    fn text(s: &str) -> Vec<u8> {
        [&[0xd9, s.len() as u8], s.as_bytes()].concat()
    }

    fn array(shape: &[u8], dtype: &str, data: &[u8]) -> Vec<u8> {
        let inner = [
            &[0x93, 0x90 | shape.len() as u8][..],
            shape,
            &text(dtype),
            &[0xc4, data.len() as u8],
            data,
        ]
        .concat();
        [&[0xc7, inner.len() as u8, 1][..], &inner].concat()
    }

    fn open(bytes: Vec<u8>) -> Result<Contents, Fault> {
        read(&input("x.msgpack", bytes), &context())
    }

    fn model() -> Vec<u8> {
        let chunks = [
            vec![0x82],
            text("0"),
            array(&[2], "uint8", &[1, 2]),
            text("1"),
            array(&[1], "uint8", &[3]),
        ]
        .concat();
        let shape = [vec![0x82], text("0"), vec![3], text("1"), vec![1]].concat();
        [
            vec![0x84],
            text("p"),
            vec![0x81],
            text("w"),
            array(&[1, 2], "float16", &[1, 2, 3, 4]),
            text("l"),
            vec![0x92, 0xff, 0xc0],
            text("z"),
            vec![0xd5, 2, 0x92, 0x01],
            text("big"),
            [
                vec![0x83],
                text("__msgpack_chunked_array__"),
                vec![0xc3],
                text("shape"),
                shape,
                text("chunks"),
                chunks,
            ]
            .concat(),
        ]
        .concat()
    }

    #[test]
    fn a_tree_becomes_names_with_dots() {
        let mut bytes = model();
        // A whole complex number instead of the cut one.
        let at = bytes
            .windows(4)
            .position(|w| w == [0xd5, 2, 0x92, 0x01])
            .unwrap();
        bytes.splice(at..at + 4, [0xc7, 3, 2, 0x92, 0x01, 0x02]);
        let contents = open(bytes).unwrap();
        let names: Vec<_> = contents.entries.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["p.w", "big"]);
        let values: Vec<_> = contents
            .values
            .iter()
            .map(|v| (v.name.as_str(), v.value.clone()))
            .collect();
        assert_eq!(
            values,
            [
                ("l.0", Plain::Int("-1".into())),
                ("l.1", Plain::None),
                ("z", Plain::Complex(1.0, 2.0))
            ]
        );
        assert_eq!(
            contents.entries[1].view().unwrap().contiguous().unwrap(),
            [1, 2, 3]
        );
    }

    #[test]
    fn one_bad_array_is_skipped() {
        for bad in [
            array(&[3], "object", &[1]),
            array(&[3], "uint8", &[1]),
            array(&[0xff], "uint8", &[1]),
            vec![0xd4, 1, 0xc1],
        ] {
            let contents = open(
                [
                    vec![0x82],
                    text("bad"),
                    bad,
                    text("a"),
                    array(&[1], "uint8", &[1]),
                ]
                .concat(),
            )
            .unwrap();
            assert_eq!((contents.entries.len(), contents.skipped.len()), (1, 1));
            assert_eq!(contents.skipped[0].name, "bad");
        }
    }

    #[test]
    fn a_cut_file_keeps_what_came_before() {
        let mut bytes = model();
        bytes.truncate(bytes.len() - 1);
        assert_eq!(open(bytes).unwrap().skipped.len(), 2);
        assert!(matches!(
            open(vec![0xdf, 0xff, 0xff, 0xff, 0xff]),
            Err(Fault::Truncated { .. })
        ));
    }

    #[test]
    fn depth_and_names_are_bounded() {
        let deep = [vec![0x81], text("a"), vec![0x91; 200_000]].concat();
        assert!(matches!(open(deep), Err(Fault::BadHeader { .. })));
        // A name of a million bytes with a million children.
        let mut wide = vec![0x81, 0xdb, 0, 0x10, 0, 0];
        wide.extend(std::iter::repeat_n(b'n', 1 << 20));
        wide.extend([0xdd, 0, 0x10, 0, 0]);
        wide.extend(std::iter::repeat_n(0xc0, 1 << 20));
        assert!(matches!(open(wide), Err(Fault::Limit { .. })));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
            bytes[0] = 0x8f;
            let _ = open(bytes);
        }

        #[test]
        fn no_damage_panics(at in 0usize..160, byte in any::<u8>(), cut in 0usize..300) {
            let mut bytes = model();
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            bytes.truncate(cut);
            if let Ok(contents) = open(bytes) {
                for entry in &contents.entries { let _ = entry.view(); }
            }
        }
    }
}
