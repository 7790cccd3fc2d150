//! torch's container before 1.6: five pickles, then the storages back to back.
//!
//! The size of a storage's elements is not beside it: it comes from the persistent ids in the fourth pickle.

use super::{
    globals,
    layout::{Origin, storage_dtype, storage_len},
    pickle::{Graph, Node, Pickle, unpickle},
    tensors::{Rebuilder, Storages, Stored},
    walk,
};
use crate::{
    contents::Contents,
    error::Fault,
    input::{Context, Input},
};
use std::collections::HashMap;
use twinscope_tensor::Bytes;

/// `LONG1` of torch's magic number, then STOP; the protocol byte before it varies.
const MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

pub(crate) fn recognise(input: &Input) -> bool {
    is_legacy(&input.bytes)
}

fn is_legacy(bytes: &[u8]) -> bool {
    // Protocol 0 and 1 write the number in decimal, with or without a PROTO before it.
    let body = if bytes.first() == Some(&0x80) {
        bytes.get(2..).unwrap_or_default()
    } else {
        bytes
    };
    // Protocol 4 puts a frame around it.
    let body = if body.first() == Some(&0x95) {
        body.get(9..).unwrap_or_default()
    } else {
        body
    };
    body.starts_with(MAGIC)
        || body.starts_with(b"L119547037146038801333356L\n.")
        || body.starts_with(b"I119547037146038801333356\n.")
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("torch-legacy");
    match open(&input.bytes, context, &mut contents, 0) {
        Ok(file) => {
            walk::interpret(
                &file.pickle.graph,
                file.root,
                &file.storages,
                context,
                &mut contents,
                0,
            );
            Ok(contents)
        }
        Err(fault) => walk::refuse(contents, fault),
    }
}

/// A legacy file that was followed up to its storages.
struct File {
    pickle: Pickle,
    root: u32,
    storages: Located,
}

/// Storages by key: found, or why not.
struct Located(HashMap<String, Result<Bytes, Fault>>);

impl Storages for Located {
    fn bytes(&self, key: &str, len: u64) -> Result<Origin, Fault> {
        let found = self.0.get(key).ok_or_else(|| Fault::Missing {
            what: format!("storage `{key}` is not in the file's list"),
        })?;
        let bytes = found.clone()?;
        if bytes.len() as u64 != len {
            return Err(Fault::SizeMismatch {
                what: format!(
                    "storage `{key}` has {} bytes, its tensors need {len}",
                    bytes.len()
                ),
            });
        }
        Ok(Origin::Ready(bytes))
    }
}

/// The storage that is the whole content of a file inside a pickle.
pub(super) fn nested_storage(
    bytes: &Bytes,
    context: &Context,
    nested: usize,
) -> Result<Stored, Fault> {
    let mut ignored = Contents::new("torch-legacy");
    let file = open(bytes, context, &mut ignored, nested)?;
    Rebuilder {
        graph: &file.pickle.graph,
        storages: &file.storages,
        context,
        nested,
    }
    .storage(file.root)
}

fn open(
    bytes: &Bytes,
    context: &Context,
    contents: &mut Contents,
    nested: usize,
) -> Result<File, Fault> {
    let mut at = 0;
    let mut next = |contents: &mut Contents, what: &str| -> Result<(Pickle, u32), Fault> {
        let pickle = unpickle(bytes, at, &context.limits);
        globals::inspect(&pickle.graph, &context.limits, contents, false, nested);
        match &pickle.result {
            Ok(end) => {
                at = end.at;
                let root = end.root;
                Ok((pickle, root))
            }
            Err(Fault::Truncated { what: inner }) => Err(Fault::Truncated {
                what: format!("{what}: {inner}"),
            }),
            Err(fault) => Err(fault.clone()),
        }
    };
    if !is_legacy(bytes) {
        return Err(Fault::BadHeader {
            what: "the magic number of a torch file is missing".into(),
        });
    }
    next(contents, "the magic number")?;
    let (version, root) = next(contents, "the protocol version")?;
    if version.graph.int(root) != Some(1001) {
        return Err(Fault::Unsupported {
            what: "a protocol version other than 1001".into(),
        });
    }
    next(contents, "the system information")?;
    let (pickle, root) = next(contents, "the object")?;
    let (keys, keys_root) = next(contents, "the list of storages")?;
    let storages = locate(bytes, at, &pickle.graph, &keys.graph, keys_root)?;
    Ok(File {
        pickle,
        root,
        storages,
    })
}

/// Finds each storage: they follow each other in the order of the list, each after its number of elements.
fn locate(
    bytes: &Bytes,
    mut at: usize,
    graph: &Graph,
    keys: &Graph,
    root: u32,
) -> Result<Located, Fault> {
    let Node::List(list) = keys.node(root) else {
        return Err(Fault::CorruptPickle {
            what: "the list of storages is no list".into(),
        });
    };
    let declared = declared(graph);
    let mut found = HashMap::new();
    let mut lost: Option<Fault> = None;
    for key in keys.chain(list) {
        let key = match keys.int(key) {
            Some(number) => number.to_string(),
            None => keys
                .text(key)
                .ok_or_else(|| Fault::CorruptPickle {
                    what: "a storage key that is no text".into(),
                })?
                .into_owned(),
        };
        // Without the size of one storage none of those after it can be found.
        let result = match &lost {
            Some(fault) => Err(fault.clone()),
            None => take(bytes, &mut at, &key, declared.get(&key)),
        };
        if let (Err(fault), None) = (&result, &lost) {
            lost = Some(fault.clone());
        }
        found.insert(key, result);
    }
    Ok(Located(found))
}

fn take(
    bytes: &Bytes,
    at: &mut usize,
    key: &str,
    declared: Option<&(twinscope_tensor::DType, i64)>,
) -> Result<Bytes, Fault> {
    let (dtype, expected) = declared.ok_or_else(|| Fault::CorruptPickle {
        what: format!("storage `{key}` is listed but no tensor says what it holds"),
    })?;
    let header = bytes
        .get(*at..at.saturating_add(8))
        .and_then(|header| header.try_into().ok());
    let header = header.ok_or_else(|| Fault::Truncated {
        what: format!("storage `{key}` begins at byte {at} of {}", bytes.len()),
    })?;
    let count = i64::from_le_bytes(header);
    if count != *expected {
        return Err(Fault::SizeMismatch {
            what: format!("storage `{key}` has {count} elements, its tensors say {expected}"),
        });
    }
    let len = storage_len(*dtype, count)?;
    let start = *at as u64 + 8;
    let end = start
        .checked_add(len)
        .filter(|end| *end <= bytes.len() as u64);
    let end = end.ok_or_else(|| Fault::Truncated {
        what: format!(
            "storage `{key}` needs {len} bytes from byte {start}, the file has {}",
            bytes.len()
        ),
    })?;
    *at = end as usize;
    bytes.slice(start..end).ok_or_else(|| Fault::Truncated {
        what: format!("storage `{key}`"),
    })
}

/// What the persistent ids say about each storage: its type and its number of elements.
fn declared(graph: &Graph) -> HashMap<String, (twinscope_tensor::DType, i64)> {
    let mut out = HashMap::new();
    for (_, node) in graph.nodes() {
        let Node::Persistent(pid) = node else {
            continue;
        };
        let Some(parts) = graph.sequence(pid).filter(|parts| parts.len() >= 5) else {
            continue;
        };
        let key = match graph.int(parts[2]) {
            Some(number) => Some(number.to_string()),
            None => graph.text(parts[2]).map(std::borrow::Cow::into_owned),
        };
        let dtype = graph.global_name(parts[1]).and_then(storage_dtype);
        if let (Some(key), Some(dtype), Some(count)) = (key, dtype, graph.int(parts[4])) {
            out.entry(key).or_insert((dtype, count));
        }
    }
    out
}
