//! `torch.distributed.checkpoint` folders, shown as the whole tensors that the ranks saved in pieces.
//!
//! `.metadata` is a pickle that says which slice of which `.distcp` file holds which piece; each slice is a whole torch
//! file of its own. A tensor of one piece is read where it lies, others are put together when they are read.

use super::{
    assemble::{Assembly, Part, Piece},
    globals,
    layout::Layout,
    pickle::{Graph, Id, NIL, Node, unpickle},
    tensors::{NoStorages, Rebuilder},
    walk,
    zip::{self, Records},
};
use crate::{
    archive::{zip_directory, zstd},
    contents::{Contents, Data, Entry},
    error::Fault,
    folder::contained,
    input::{Context, Input},
    map::map_file,
    safetensors,
};
use serde_json::Value;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};
use twinscope_tensor::{Bytes, DType, FindingKind, Shape};

const METADATA: &str = ".metadata";

/// A folder of `torch.distributed.checkpoint`, also one whose `.metadata` was never written.
pub(crate) fn recognise_folder(path: &Path) -> bool {
    path.join(METADATA).is_file()
        || !files(path, |name| name.ends_with(".distcp")).is_empty()
        || !sharded_safetensors(path).is_empty()
}

/// The `.metadata` of such a folder, given as a file.
pub(crate) fn recognise(input: &Input) -> bool {
    let metadata = input
        .path
        .as_ref()
        .and_then(|path| path.file_name())
        .is_some_and(|name| name == METADATA);
    metadata && input.bytes.first() == Some(&0x80)
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let folder = input
        .path
        .as_ref()
        .and_then(|path| path.parent())
        .unwrap_or(Path::new("."));
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    read_metadata(folder, &input.bytes, context)
}

pub(crate) fn read_folder(path: &Path, context: &Context) -> Result<Contents, Fault> {
    let metadata = path.join(METADATA);
    if metadata.is_file() {
        let bytes = map_file(&metadata).map_err(|error| Fault::Io {
            what: format!("`{METADATA}`: {error}"),
        })?;
        return read_metadata(path, &bytes, context);
    }
    let shards = sharded_safetensors(path);
    if !shards.is_empty() {
        return read_safetensors(&shards, context);
    }
    read_interrupted(path, context)
}

/// The files of a folder whose names are like that, in order.
fn files(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .take(100_000)
        .filter(|entry| entry.file_name().to_str().is_some_and(&wanted))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// One piece as `.metadata` describes it.
struct Slice {
    offsets: Vec<u64>,
    file: String,
    start: u64,
    len: u64,
    packed: bool,
}

/// A folder being read: its files are mapped once.
struct Folder<'a> {
    path: &'a Path,
    context: &'a Context,
    maps: HashMap<String, Result<Bytes, Fault>>,
}

impl Folder<'_> {
    fn map(&mut self, name: &str) -> Result<Bytes, Fault> {
        if let Some(known) = self.maps.get(name) {
            return known.clone();
        }
        let mapped = contained(self.path, name).and_then(|path| {
            map_file(&path).map_err(|error| Fault::Io {
                what: format!("`{name}`: {error}"),
            })
        });
        self.maps.insert(name.to_owned(), mapped.clone());
        mapped
    }

    fn slice(&mut self, slice: &Slice) -> Result<Bytes, Fault> {
        let file = self.map(&slice.file)?;
        let end = slice.start.checked_add(slice.len);
        end.and_then(|end| file.slice(slice.start..end))
            .ok_or_else(|| Fault::Truncated {
                what: format!(
                    "`{}` has {} bytes, a piece needs {} from byte {}",
                    slice.file,
                    file.len(),
                    slice.len,
                    slice.start
                ),
            })
    }
}

fn read_metadata(path: &Path, bytes: &Bytes, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("dcp");
    contents.ordered = true;
    let pickle = unpickle(bytes, 0, &context.limits);
    globals::inspect(&pickle.graph, &context.limits, &mut contents, false, 0);
    let end = match pickle.result {
        Ok(end) => end,
        Err(fault) => return walk::refuse(contents, fault),
    };
    let mut folder = Folder {
        path,
        context,
        maps: HashMap::new(),
    };
    match list(&mut folder, &pickle.graph, end.root, &mut contents) {
        Ok(()) => {
            common(&mut folder, &mut contents);
            Ok(contents)
        }
        Err(fault) => walk::refuse(contents, fault),
    }
}

fn list(
    folder: &mut Folder<'_>,
    graph: &Graph,
    root: Id,
    contents: &mut Contents,
) -> Result<(), Fault> {
    let rebuilder = Rebuilder {
        graph,
        storages: &NoStorages,
        context: folder.context,
        nested: 0,
    };
    let part = |name: &str| {
        let found = rebuilder
            .attribute(root, name)
            .and_then(|id| graph.pairs(id));
        found.ok_or_else(|| Fault::BadHeader {
            what: format!("`.metadata` has no `{name}`"),
        })
    };
    let mut slices: HashMap<String, Vec<Slice>> = HashMap::new();
    for (index, info) in part("storage_data")? {
        let name = rebuilder
            .attribute(index, "fqn")
            .and_then(|id| graph.text(id))
            .unwrap_or_default()
            .into_owned();
        match slice_of(&rebuilder, index, info) {
            Ok(slice) => slices.entry(name).or_default().push(slice),
            Err(fault) => contents.skip(name, fault),
        }
    }
    for (key, about) in part("state_dict_metadata")? {
        let name = graph.text(key).unwrap_or_default().into_owned();
        let pieces = slices.remove(&name).unwrap_or_default();
        let listed = match rebuilder.attribute(about, "size") {
            Some(size) => rebuilder.shape(size).and_then(|shape| {
                tensor(folder, &rebuilder, &name, about, shape, &pieces, contents)
            }),
            None => object(folder, &name, &pieces, contents),
        };
        if let Err(fault) = listed {
            if matches!(fault, Fault::PathEscape { .. }) {
                contents.find(FindingKind::PathEscape, fault.to_string());
            }
            contents.skip(name, fault);
        }
    }
    Ok(())
}

fn slice_of(rebuilder: &Rebuilder<'_>, index: Id, info: Id) -> Result<Slice, Fault> {
    let graph = rebuilder.graph;
    let wrong = |what: &str| Fault::BadHeader {
        what: format!("a piece without its {what}"),
    };
    let number = |name: &str| {
        rebuilder
            .attribute(info, name)
            .and_then(|id| graph.int(id))
            .and_then(|number| u64::try_from(number).ok())
            .ok_or_else(|| wrong(name))
    };
    let offsets = match rebuilder.attribute(index, "offset") {
        Some(id) if !matches!(graph.node(id), Node::None) => rebuilder.shape(id)?.dims().to_vec(),
        _ => Vec::new(),
    };
    let file = rebuilder
        .attribute(info, "relative_path")
        .and_then(|id| graph.text(id))
        .ok_or_else(|| wrong("relative_path"))?
        .into_owned();
    let transforms = rebuilder
        .attribute(info, "transform_descriptors")
        .and_then(|id| graph.sequence(id))
        .unwrap_or_default();
    let packed = match transforms
        .iter()
        .map(|id| graph.text(*id).unwrap_or_default())
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => false,
        // `name[@domain]/version`
        [only] if matches!(only.split(['@', '/']).next(), Some("stream.zstd" | "zstd")) => true,
        other => {
            return Err(Fault::Unsupported {
                what: format!("pieces transformed by {other:?}"),
            });
        }
    };
    Ok(Slice {
        offsets,
        file,
        start: number("offset")?,
        len: number("length")?,
        packed,
    })
}

fn unzstd(bytes: &Bytes, name: &str, context: &Context) -> Result<Bytes, Fault> {
    let fresh = Context::new(
        context.limits,
        Arc::clone(&context.cache),
        bytes.len() as u64,
    );
    zstd::unpack(
        &Input {
            name: name.to_owned(),
            path: None,
            bytes: bytes.clone(),
        },
        &fresh,
    )
}

/// The one tensor that a slice is.
fn layout_of(bytes: &Bytes, context: &Context) -> Result<Layout, Fault> {
    let records = Records::open(bytes, context)?;
    let pickle = unpickle(&records.get("data.pkl")?, 0, &context.limits);
    let end = pickle.result.clone()?;
    let rebuilder = Rebuilder {
        graph: &pickle.graph,
        storages: &records,
        context,
        nested: 0,
    };
    let none = || Fault::CorruptPickle {
        what: "a piece that is no tensor".into(),
    };
    rebuilder
        .tensors(end.root)?
        .and_then(|tensors| tensors.into_iter().next())
        .ok_or_else(none)?
        .layout()
}

/// Tells what the pickle of a piece would call.
fn inspect_piece(bytes: &Bytes, context: &Context, contents: &mut Contents) {
    if let Ok(data) = Records::open(bytes, context).and_then(|records| records.get("data.pkl")) {
        globals::inspect(
            &unpickle(&data, 0, &context.limits).graph,
            &context.limits,
            contents,
            false,
            0,
        );
    }
}

fn tensor(
    folder: &mut Folder<'_>,
    rebuilder: &Rebuilder<'_>,
    name: &str,
    about: Id,
    shape: Shape,
    slices: &[Slice],
    contents: &mut Contents,
) -> Result<(), Fault> {
    let chunks = chunk_shapes(rebuilder, about)?;
    let mut pieces = Vec::new();
    let mut dtype = declared_dtype(rebuilder, about);
    for slice in slices {
        let bytes = folder.slice(slice)?;
        let part = if slice.packed {
            let size = chunks
                .get(&slice.offsets)
                .cloned()
                .ok_or_else(|| Fault::Missing {
                    what: format!("the size of the piece at {:?}", slice.offsets),
                })?;
            let (context, label) = (folder.context.clone(), name.to_owned());
            Part::Packed {
                shape: size,
                open: Box::new(move || layout_of(&unzstd(&bytes, &label, &context)?, &context)),
            }
        } else {
            inspect_piece(&bytes, folder.context, contents);
            let layout = layout_of(&bytes, folder.context)?;
            dtype = dtype.or(Some(layout.dtype));
            Part::Layout(layout)
        };
        pieces.push(Piece {
            offsets: slice.offsets.clone(),
            part,
        });
    }
    if pieces.is_empty() && shape.elements() != Some(0) {
        return Err(Fault::Missing {
            what: "none of its pieces is listed".into(),
        });
    }
    let dtype = dtype.ok_or_else(|| Fault::BadDtype {
        what: "none".into(),
    })?;
    push(contents, name, dtype, shape, pieces, folder.context)
}

fn push(
    contents: &mut Contents,
    name: &str,
    dtype: DType,
    shape: Shape,
    pieces: Vec<Piece>,
    context: &Context,
) -> Result<(), Fault> {
    let whole = Assembly {
        name: name.to_owned(),
        dtype,
        shape: shape.clone(),
        pieces,
        cache: Arc::clone(&context.cache),
    };
    whole.check()?;
    let meta = (whole.pieces.len() > 1).then(|| {
        Box::new(serde_json::Map::from_iter([(
            "pieces".to_owned(),
            Value::from(whole.pieces.len()),
        )]))
    });
    let data = match whole.pieces.as_slice() {
        [
            Piece {
                part: Part::Layout(layout),
                ..
            },
        ] if layout.shape == shape => layout.clone().data()?,
        _ => Data::Lazy(Arc::new(whole)),
    };
    contents.entries.push(Entry {
        name: name.to_owned(),
        dtype,
        shape,
        meta,
        data,
    });
    Ok(())
}

/// The sizes of the pieces by their offsets, as `.metadata` lists them.
fn chunk_shapes(rebuilder: &Rebuilder<'_>, about: Id) -> Result<HashMap<Vec<u64>, Shape>, Fault> {
    let chunks = rebuilder
        .attribute(about, "chunks")
        .and_then(|id| rebuilder.graph.sequence(id))
        .unwrap_or_default();
    let mut out = HashMap::new();
    for chunk in chunks.iter() {
        let part = |name| rebuilder.shape(rebuilder.attribute(*chunk, name).unwrap_or(NIL));
        out.insert(part("offsets")?.dims().to_vec(), part("sizes")?);
    }
    Ok(out)
}

/// The dtype is the first part of the state of `properties`, or its attribute.
fn declared_dtype(rebuilder: &Rebuilder<'_>, about: Id) -> Option<DType> {
    let properties = rebuilder.attribute(about, "properties")?;
    if let Some(dtype) = rebuilder.attribute(properties, "dtype") {
        return rebuilder.dtype(dtype).ok();
    }
    let state = rebuilder.graph.extra(properties)?.state;
    rebuilder
        .dtype(*rebuilder.graph.sequence(state)?.first()?)
        .ok()
}

/// An object that was saved beside the tensors: a torch file of its own, listed under its name.
fn object(
    folder: &mut Folder<'_>,
    name: &str,
    slices: &[Slice],
    contents: &mut Contents,
) -> Result<(), Fault> {
    let slice = slices.first().ok_or_else(|| Fault::Missing {
        what: "it is listed but was not saved".into(),
    })?;
    let mut bytes = folder.slice(slice)?;
    if slice.packed {
        bytes = unzstd(&bytes, name, folder.context)?;
    }
    let inner = zip::read(
        &Input {
            name: name.to_owned(),
            path: None,
            bytes,
        },
        folder.context,
    )?;
    absorb(contents, name, inner);
    Ok(())
}

/// Everything of `inner`, under `name`.
fn absorb(contents: &mut Contents, name: &str, inner: Contents) {
    let under = |own: String| {
        if own.is_empty() {
            name.to_owned()
        } else {
            format!("{name}.{own}")
        }
    };
    contents
        .entries
        .extend(inner.entries.into_iter().map(|entry| Entry {
            name: under(entry.name),
            ..entry
        }));
    inner
        .values
        .into_iter()
        .for_each(|value| contents.value(under(value.name), value.value));
    inner.skipped.into_iter().for_each(|skipped| {
        contents.skipped.push(twinscope_tensor::Skipped {
            name: under(skipped.name),
            ..skipped
        });
    });
    inner
        .findings
        .into_iter()
        .for_each(|finding| contents.find(finding.kind, finding.text));
}

/// Megatron keeps what is not sharded in `common.pt`.
fn common(folder: &mut Folder<'_>, contents: &mut Contents) {
    if !folder.path.join("common.pt").is_file() {
        return;
    }
    let read = folder.map("common.pt").and_then(|bytes| {
        zip::read(
            &Input {
                name: "common.pt".into(),
                path: None,
                bytes,
            },
            folder.context,
        )
    });
    match read {
        Ok(inner) => absorb(contents, "common", inner),
        Err(fault) => contents.skip("common.pt", fault),
    }
}

/// A save that was interrupted: the pieces are there, their names are not.
fn read_interrupted(path: &Path, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("dcp");
    contents.ordered = true;
    contents.find(FindingKind::Odd, "`.metadata` is missing, as after an interrupted save: pieces are numbered, their names are unknown");
    for file in files(path, |name| name.ends_with(".distcp")) {
        let name = name_of(&file);
        let stem = name.trim_end_matches(".distcp").to_owned();
        match map_file(&file) {
            Ok(bytes) => scan(&bytes, &stem, context, &mut contents),
            Err(error) => contents.skip(
                name,
                Fault::Io {
                    what: error.to_string(),
                },
            ),
        }
    }
    Ok(contents)
}

/// Archives one after another: each ends with its own end record.
fn scan(bytes: &Bytes, stem: &str, context: &Context, contents: &mut Contents) {
    const END: &[u8] = b"PK\x05\x06";
    let (mut start, mut at, mut count) = (0usize, 0usize, 0usize);
    while let Some(found) = bytes[at..].windows(4).position(|window| window == END) {
        let end = at + found;
        at = end + 4;
        let comment = bytes
            .get(end + 20..end + 22)
            .map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        let Some(archive) = bytes.slice(start as u64..(end + 22 + comment) as u64) else {
            continue;
        };
        // An end record inside a tensor's bytes ends nothing.
        if zip_directory::list(&archive).is_err() {
            continue;
        }
        let name = format!("{stem}.{count}");
        match zip::read(
            &Input {
                name: name.clone(),
                path: None,
                bytes: archive,
            },
            context,
        ) {
            Ok(inner) => absorb(contents, &name, inner),
            Err(fault) => contents.skip(name, fault),
        }
        (start, at, count) = (end + 22 + comment, end + 22 + comment, count + 1);
    }
    if start < bytes.len() {
        contents.skip(
            format!("{stem}.{count}"),
            Fault::Truncated {
                what: format!("{} bytes that are no whole piece", bytes.len() - start),
            },
        );
    }
}

/// Safetensors that DCP wrote, one per rank: their names begin with `shard-`, and their headers say where pieces go.
fn sharded_safetensors(path: &Path) -> Vec<PathBuf> {
    let shards = files(path, |name| {
        name.starts_with("shard-") && name.ends_with(".safetensors")
    });
    let says = |path: &PathBuf| {
        let bytes = map_file(path).ok()?;
        let len = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let header = bytes.slice(8..8u64.checked_add(len.min(1 << 26))?)?;
        header
            .windows(17)
            .any(|window| window == b"DCP_SHARDING_INFO")
            .then_some(())
    };
    if shards.first().is_some_and(|first| says(first).is_some()) {
        shards
    } else {
        Vec::new()
    }
}

fn read_safetensors(shards: &[PathBuf], context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("dcp");
    let mut tensors: Vec<(String, DType, Vec<Piece>)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for path in shards {
        let name = name_of(path);
        let read = map_file(path)
            .map_err(|error| Fault::Io {
                what: error.to_string(),
            })
            .and_then(|bytes| {
                safetensors::read(
                    &Input {
                        name: name.clone(),
                        path: None,
                        bytes,
                    },
                    context,
                )
            });
        let inner = match read {
            Ok(inner) => inner,
            Err(fault) => {
                contents.skip(name, fault);
                continue;
            }
        };
        let info = inner
            .meta
            .as_ref()
            .and_then(|meta| meta.get("DCP_SHARDING_INFO"))
            .and_then(Value::as_str);
        let info: Value = info
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or(Value::Null);
        contents.skipped.extend(inner.skipped);
        inner
            .findings
            .into_iter()
            .for_each(|finding| contents.find(finding.kind, finding.text));
        for entry in inner.entries {
            let offsets = info
                .pointer(&format!(
                    "/{}/saved_offsets",
                    entry.name.replace('~', "~0").replace('/', "~1")
                ))
                .and_then(Value::as_array);
            let offsets: Option<Vec<u64>> =
                offsets.map(|list| list.iter().filter_map(Value::as_u64).collect());
            let Data::Plain(bytes) = entry.data else {
                continue;
            };
            match Layout::row_major(
                entry.dtype,
                entry.shape.clone(),
                super::layout::Origin::Ready(bytes),
            ) {
                Ok(layout) => {
                    let piece = Piece {
                        offsets: offsets.unwrap_or_else(|| vec![0; entry.shape.rank()]),
                        part: Part::Layout(layout),
                    };
                    let at = *known.entry(entry.name.clone()).or_insert_with(|| {
                        tensors.push((entry.name.clone(), entry.dtype, Vec::new()));
                        tensors.len() - 1
                    });
                    tensors[at].2.push(piece);
                }
                Err(fault) => contents.skip(entry.name, fault),
            }
        }
    }
    for (name, dtype, pieces) in tensors {
        // The whole is as large as its furthest piece reaches.
        let rank = pieces
            .iter()
            .map(|piece| piece.offsets.len())
            .max()
            .unwrap_or(0);
        let mut dims = vec![0u64; rank];
        for piece in &pieces {
            let Part::Layout(layout) = &piece.part else {
                continue;
            };
            for ((dim, offset), size) in
                dims.iter_mut().zip(&piece.offsets).zip(layout.shape.dims())
            {
                *dim = (*dim).max(offset.saturating_add(*size));
            }
        }
        if let Err(fault) = push(
            &mut contents,
            &name,
            dtype,
            Shape::from(dims),
            pieces,
            context,
        ) {
            contents.skip(name, fault);
        }
    }
    Ok(contents)
}
