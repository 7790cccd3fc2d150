//! One table of formats, tried by leading bytes, then extension; and what is listed of what they read.

use crate::{
    Cache, Limits, OpenError,
    contents::{Contents, Entry},
    error::Fault,
    input::{Context, Input},
};
use std::{path::Path, sync::Arc};
use twinscope_tensor::{Bytes, Listing, ReadError, TensorInfo, TensorSource, View, order};

/// How to open: bounds, and where to unpack.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub limits: Limits,
    pub cache: Arc<Cache>,
    /// What the user says the bytes are; then no format is asked.
    pub raw: Option<crate::RawSpec>,
}

/// A row of the table.
pub(crate) struct Format {
    /// Looks at a few leading bytes and the extension; cheap and never wrong about its own files.
    pub(crate) recognise: fn(&Input) -> bool,
    pub(crate) read: fn(&Input, &Context) -> Result<Contents, Fault>,
}

/// Tried in this order: unmistakable leading bytes first, extensions last.
const FORMATS: &[Format] = &[
    Format { recognise: crate::npy::recognise, read: crate::npy::read },
    #[cfg(feature = "hdf5")]
    Format { recognise: crate::hdf5::recognise_keras, read: crate::hdf5::read_keras },
    Format { recognise: crate::npz::recognise, read: crate::npz::read },
    Format { recognise: crate::safetensors::recognise, read: crate::safetensors::read },
    Format { recognise: crate::gguf::recognise, read: crate::gguf::read },
    Format { recognise: crate::msgpack::recognise, read: crate::msgpack::read },
    // After the formats that begin with something: a user block may hold anything.
    #[cfg(feature = "hdf5")]
    Format { recognise: crate::hdf5::recognise, read: crate::hdf5::read },
    // Any bytes can be raw: last.
    Format { recognise: crate::raw::recognise, read: crate::raw::read },
];

/// Opens a file, folder or archive.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn TensorSource>, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    // SKELETON: becomes a guarded map.
    let bytes = Bytes::from(std::fs::read(path).map_err(io)?);
    let input = Input { name: path.display().to_string(), path: Some(path.to_owned()), bytes };
    open_input(&input, options)
}

/// Opens bytes that are no file of their own; `name` stands in for the path.
pub fn open_bytes(name: &str, bytes: Bytes, options: &OpenOptions) -> Result<Box<dyn TensorSource>, OpenError> {
    open_input(&Input { name: name.to_owned(), path: None, bytes }, options)
}

fn open_input(input: &Input, options: &OpenOptions) -> Result<Box<dyn TensorSource>, OpenError> {
    let context = Context { limits: options.limits, cache: Arc::clone(&options.cache), depth: 0 };
    let contents = match &options.raw {
        Some(spec) => crate::raw::read_raw(input, spec).map_err(|fault| OpenError::Malformed { file: input.name.clone(), fault })?,
        None => read(input, &context)?,
    };
    Ok(Box::new(Source::new(input.name.clone(), contents)))
}

/// Reads one file or member by the first format that recognises it.
pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, OpenError> {
    let format = FORMATS
        .iter()
        .find(|format| (format.recognise)(input))
        .ok_or_else(|| OpenError::Unrecognised { file: input.name.clone(), found: "unknown data" })?;
    (format.read)(input, context).map_err(|fault| OpenError::Malformed { file: input.name.clone(), fault })
}

/// An opened source: a listing, and for each tensor of it where the values are.
struct Source {
    listing: Listing,
    entries: Vec<Entry>,
}

impl Source {
    fn new(source: String, mut contents: Contents) -> Self {
        // A bare tensor is named after its file.
        let stem = stem(&source).to_owned();
        for entry in &mut contents.entries {
            if entry.name.is_empty() {
                entry.name.clone_from(&stem);
            }
        }
        for value in &mut contents.values {
            if value.name.is_empty() {
                value.name.clone_from(&stem);
            }
        }
        if !contents.ordered {
            order::sort_by_name(&mut contents.entries, |entry| &entry.name);
        }
        let tensors = contents
            .entries
            .iter_mut()
            .map(|entry| TensorInfo {
                name: entry.name.clone(),
                dtype: entry.dtype,
                shape: entry.shape.clone(),
                bytes: entry.shape.elements().and_then(|elements| entry.dtype.byte_len(elements)),
                meta: entry.meta.take(),
            })
            .collect();
        let Contents { format, values, skipped, findings, meta, entries, ordered: _ } = contents;
        Self { listing: Listing { source, format, tensors, values, skipped, findings, meta }, entries }
    }
}

/// The file's name without folders and its last extension.
fn stem(name: &str) -> &str {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    match last.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => last,
    }
}

impl TensorSource for Source {
    fn listing(&self) -> &Listing {
        &self.listing
    }

    fn view(&self, index: usize) -> Result<View, ReadError> {
        self.entries[index].view()
    }
}
