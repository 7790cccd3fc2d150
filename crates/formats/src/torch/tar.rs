//! torch's container before 0.1.10: a tar with the members `pickle`, `tensors` and `storages`. Nothing is extracted.

use super::{
    globals,
    layout::{Layout, Origin, storage_dtype, storage_len},
    pickle::{Pickle, unpickle},
    tensors::Storages,
    walk,
};
use crate::{
    contents::Contents,
    error::Fault,
    input::{Context, Input},
};
use std::{collections::HashMap, ops::Range};
use twinscope_tensor::{Bytes, DType, Shape};

pub(crate) fn recognise(input: &Input) -> bool {
    if input.bytes.get(257..262) != Some(b"ustar") {
        return false;
    }
    let all = members(&input.bytes).is_ok_and(|members| {
        ["pickle", "tensors", "storages"]
            .iter()
            .all(|name| members.contains_key(*name))
    });
    // Cut short: the first member still tells, and the reader will say what is missing.
    all || ["sys_info", "pickle", "tensors", "storages"]
        .iter()
        .any(|name| {
            let field = &input.bytes[..100];
            field.starts_with(name.as_bytes()) && field[name.len()] == 0
        })
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("torch-tar");
    match read_into(&input.bytes, context, &mut contents) {
        Ok(()) => Ok(contents),
        Err(fault) => walk::refuse(contents, fault),
    }
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?.trim_matches(['\0', ' ']);
    if text.is_empty() {
        Some(0)
    } else {
        u64::from_str_radix(text, 8).ok()
    }
}

/// The regular members at the top, by name.
fn members(bytes: &[u8]) -> Result<HashMap<String, Range<u64>>, Fault> {
    let mut out = HashMap::new();
    let mut at = 0usize;
    while let Some(header) = bytes.get(at..at + 512) {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        let size = octal(&header[124..136]).ok_or_else(|| Fault::CorruptArchive {
            what: format!("no tar header at byte {at}"),
        })?;
        let name = header[..100]
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        let name = String::from_utf8_lossy(name)
            .trim_start_matches("./")
            .to_owned();
        let start = at as u64 + 512;
        let end = start
            .checked_add(size)
            .filter(|end| *end <= bytes.len() as u64);
        let end = end.ok_or_else(|| Fault::Truncated {
            what: format!("the tar member `{name}` needs {size} bytes from byte {start}"),
        })?;
        if matches!(header[156], b'0' | 0) {
            out.insert(name, start..end);
        }
        at = usize::try_from(end.div_ceil(512) * 512).unwrap_or(usize::MAX - 512);
    }
    Ok(out)
}

/// One member, read pickle by pickle with raw numbers between them.
struct Cursor<'a> {
    bytes: Bytes,
    at: usize,
    context: &'a Context,
}

impl Cursor<'_> {
    fn pickle(&mut self, contents: &mut Contents) -> Result<(Pickle, u32), Fault> {
        let pickle = unpickle(&self.bytes, self.at, &self.context.limits);
        globals::inspect(&pickle.graph, &self.context.limits, contents, false, 0);
        let end = pickle.result.clone()?;
        self.at = end.at;
        Ok((pickle, end.root))
    }

    fn count(&mut self, contents: &mut Contents) -> Result<i64, Fault> {
        let (pickle, root) = self.pickle(contents)?;
        let count = pickle
            .graph
            .int(root)
            .filter(|count| (0..=self.bytes.len() as i64).contains(count));
        count.ok_or_else(|| Fault::CorruptPickle {
            what: "a tar member without its count".into(),
        })
    }

    fn take(&mut self, len: u64) -> Result<Bytes, Fault> {
        let start = self.at as u64;
        let end = start.checked_add(len);
        let taken = end.and_then(|end| self.bytes.slice(start..end));
        let taken = taken.ok_or_else(|| Fault::Truncated {
            what: format!("{len} bytes at byte {start} of {}", self.bytes.len()),
        })?;
        self.at += len as usize;
        Ok(taken)
    }

    fn i64s(&mut self, count: u64) -> Result<Vec<i64>, Fault> {
        let bytes = self.take(count.checked_mul(8).ok_or_else(|| Fault::Overflow {
            what: format!("{count} dimensions"),
        })?)?;
        Ok(bytes
            .chunks_exact(8)
            .map(|eight| i64::from_le_bytes(eight.try_into().expect("eight bytes")))
            .collect())
    }
}

struct Tensors(HashMap<String, Result<Layout, Fault>>);

impl Storages for Tensors {
    fn bytes(&self, key: &str, _len: u64) -> Result<Origin, Fault> {
        Err(Fault::Missing {
            what: format!("the storage `{key}`: this container's ids name tensors"),
        })
    }

    fn tensor(&self, key: &str) -> Option<Result<Layout, Fault>> {
        Some(self.0.get(key).cloned().unwrap_or_else(|| {
            Err(Fault::Missing {
                what: format!("the tensor `{key}`"),
            })
        }))
    }
}

fn key(pickle: &Pickle, id: Option<&u32>) -> Option<String> {
    let id = *id?;
    pickle
        .graph
        .int(id)
        .map(|number| number.to_string())
        .or_else(|| pickle.graph.text(id).map(std::borrow::Cow::into_owned))
}

fn read_into(bytes: &Bytes, context: &Context, contents: &mut Contents) -> Result<(), Fault> {
    let members = members(bytes)?;
    let open = |name: &str| -> Result<Cursor<'_>, Fault> {
        let missing = || Fault::Missing {
            what: format!("the tar member `{name}`"),
        };
        Ok(Cursor {
            bytes: bytes
                .slice(members.get(name).ok_or_else(missing)?.clone())
                .ok_or_else(missing)?,
            at: 0,
            context,
        })
    };
    let storages = storages(open("storages")?, contents)?;
    let tensors = tensors(open("tensors")?, contents, &storages)?;
    let (pickle, root) = open("pickle")?.pickle(contents)?;
    walk::interpret(&pickle.graph, root, &tensors, context, contents, 0);
    Ok(())
}

/// `count`, then per storage `(key, location, class)`, a number of elements and the data; then `[(view, root, offset, numel)]`.
fn storages(
    mut member: Cursor<'_>,
    contents: &mut Contents,
) -> Result<HashMap<String, (DType, Bytes)>, Fault> {
    let corrupt = || Fault::CorruptPickle {
        what: "a storage that is no (key, location, class)".into(),
    };
    let mut out = HashMap::new();
    for _ in 0..member.count(contents)? {
        let (pickle, root) = member.pickle(contents)?;
        let parts = pickle.graph.sequence(root).ok_or_else(corrupt)?;
        let name = key(&pickle, parts.first()).ok_or_else(corrupt)?;
        let class = parts
            .get(2)
            .and_then(|class| pickle.graph.global_name(*class))
            .ok_or_else(corrupt)?;
        let dtype = storage_dtype(class).ok_or_else(|| Fault::BadDtype {
            what: format!("the storage class {class}"),
        })?;
        let count = member.i64s(1)?[0];
        let data = member.take(storage_len(dtype, count)?)?;
        out.insert(name, (dtype, data));
    }
    let (pickle, root) = member.pickle(contents)?;
    for view in pickle.graph.sequence(root).unwrap_or_default().iter() {
        let parts = pickle.graph.sequence(*view).ok_or_else(corrupt)?;
        let number = |at: usize| {
            parts
                .get(at)
                .and_then(|id| pickle.graph.int(*id))
                .unwrap_or(-1)
        };
        let (target, of) = (
            key(&pickle, parts.first()).ok_or_else(corrupt)?,
            key(&pickle, parts.get(1)).ok_or_else(corrupt)?,
        );
        let (dtype, data) = out.get(&of).cloned().ok_or_else(|| Fault::Missing {
            what: format!("the storage `{of}`"),
        })?;
        let (start, len) = (
            storage_len(dtype, number(2))?,
            storage_len(dtype, number(3))?,
        );
        let part = start
            .checked_add(len)
            .and_then(|end| data.slice(start..end));
        let part = part.ok_or_else(|| Fault::OutOfBounds {
            what: format!(
                "a view of {len} bytes at {start} of storage `{of}`, which has {}",
                data.len()
            ),
        })?;
        out.insert(target, (dtype, part));
    }
    Ok(out)
}

/// `count`, then per tensor `(key, storage, class)`, i32 rank, four bytes of padding, sizes, strides and the offset.
fn tensors(
    mut member: Cursor<'_>,
    contents: &mut Contents,
    storages: &HashMap<String, (DType, Bytes)>,
) -> Result<Tensors, Fault> {
    let corrupt = || Fault::CorruptPickle {
        what: "a tensor that is no (key, storage, class)".into(),
    };
    let mut out = HashMap::new();
    for _ in 0..member.count(contents)? {
        let (pickle, root) = member.pickle(contents)?;
        let parts = pickle.graph.sequence(root).ok_or_else(corrupt)?;
        let (name, storage) = (
            key(&pickle, parts.first()).ok_or_else(corrupt)?,
            key(&pickle, parts.get(1)).ok_or_else(corrupt)?,
        );
        let header = member.take(8)?;
        let rank = i32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        let rank = u64::try_from(rank).map_err(|_| Fault::BadShape {
            what: format!("{rank} dimensions"),
        })?;
        let (sizes, strides, offset) = (member.i64s(rank)?, member.i64s(rank)?, member.i64s(1)?[0]);
        out.insert(
            name,
            tensor(storages.get(&storage), &storage, &sizes, strides, offset),
        );
    }
    Ok(Tensors(out))
}

fn tensor(
    storage: Option<&(DType, Bytes)>,
    key: &str,
    sizes: &[i64],
    strides: Vec<i64>,
    offset: i64,
) -> Result<Layout, Fault> {
    let (dtype, bytes) = storage.ok_or_else(|| Fault::Missing {
        what: format!("the storage `{key}`"),
    })?;
    let sizes: Result<Vec<u64>, _> = sizes.iter().map(|size| u64::try_from(*size)).collect();
    let shape = Shape::from(sizes.map_err(|_| Fault::BadShape {
        what: "a negative size".into(),
    })?);
    let offset = u64::try_from(offset).map_err(|_| Fault::OutOfBounds {
        what: format!("an offset of {offset}"),
    })?;
    Layout::new(*dtype, shape, strides, offset, Origin::Ready(bytes.clone()))
}
