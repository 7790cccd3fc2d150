//! One table of formats, tried by leading bytes, then extension; and what is listed of what they read.

use crate::{
    Cache, Limits, OpenError,
    contents::{Contents, Entry},
    error::Fault,
    filekind, folder,
    input::{Context, Input},
    map, names, stdin,
};
use std::{io, path::Path, sync::Arc};
use twinscope_names::order;
use twinscope_tensor::{Bytes, Listing, ReadError, TensorInfo, TensorSource, View};

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
#[rustfmt::skip]
const FORMATS: &[Format] = &[
    Format { recognise: crate::safetensors::recognise, read: crate::safetensors::read },
    Format { recognise: crate::gguf::recognise, read: crate::gguf::read },
    Format { recognise: crate::npy::recognise, read: crate::npy::read },
    #[cfg(feature = "hdf5")]
    Format { recognise: crate::hdf5::recognise_keras, read: crate::hdf5::read_keras },
    Format { recognise: crate::npz::recognise, read: crate::npz::read },
    Format { recognise: crate::torch::zip::recognise, read: crate::torch::zip::read },
    Format { recognise: crate::torch::legacy::recognise, read: crate::torch::legacy::read },
    Format { recognise: crate::torch::tar::recognise, read: crate::torch::tar::read },
    Format { recognise: crate::torch::dcp::recognise, read: crate::torch::dcp::read },
    Format { recognise: crate::onnx::recognise, read: crate::onnx::read },
    Format { recognise: crate::msgpack::recognise, read: crate::msgpack::read },
    Format { recognise: crate::torch::plain::recognise, read: crate::torch::plain::read },
    // Any zip, tar, gzip or zstd that is no format of its own: keep these after those that are.
    Format { recognise: crate::archive::gzip::recognise, read: crate::archive::gzip::read },
    Format { recognise: crate::archive::zstd::recognise, read: crate::archive::zstd::read },
    Format { recognise: crate::archive::zip::recognise, read: crate::archive::zip::read },
    Format { recognise: crate::archive::tar::recognise, read: crate::archive::tar::read },
    Format { recognise: folder::hf_debug::recognise, read: folder::hf_debug::read },
    Format { recognise: crate::sharded::recognise, read: crate::sharded::read },
    // After the formats that begin with something: a user block may hold anything.
    #[cfg(feature = "hdf5")]
    Format { recognise: crate::hdf5::recognise, read: crate::hdf5::read },
    // Any bytes can be raw: last.
    Format { recognise: crate::raw::recognise, read: crate::raw::read },
];

/// Opens a file, folder or archive; `-` is standard input.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn TensorSource>, OpenError> {
    let name = path.display().to_string();
    if path.as_os_str() == "-" {
        let bytes = stdin::read_stdin(&options.cache).map_err(|failure| piped(failure, path))?;
        return open_input(
            &Input {
                name: stdin::NAME.to_owned(),
                path: None,
                bytes,
            },
            options,
        );
    }
    if path.is_dir() {
        let context = Context::new(options.limits, Arc::clone(&options.cache), FOLDER_BYTES);
        let contents = folder::read(path, &context).map_err(|fault| OpenError::Malformed {
            file: name.clone(),
            fault,
        })?;
        return Ok(Box::new(Source::new(name, contents)));
    }
    if stdin::is_pipe(path) {
        let bytes =
            stdin::read_pipe(path, &options.cache).map_err(|failure| piped(failure, path))?;
        let name = if path.starts_with("/dev") || path.starts_with("/proc") {
            stdin::NAME.to_owned()
        } else {
            name
        };
        return open_input(
            &Input {
                name,
                path: None,
                bytes,
            },
            options,
        );
    }
    let bytes = map::map_file(path).map_err(|source| OpenError::Io {
        path: path.to_owned(),
        source: suggest(path, source),
    })?;
    open_input(
        &Input {
            name,
            path: Some(path.to_owned()),
            bytes,
        },
        options,
    )
}

/// What a folder's archives may unpack to is not judged by the folder's size, which nobody has measured.
const FOLDER_BYTES: u64 = 1 << 30;

fn piped(failure: stdin::Failure, path: &Path) -> OpenError {
    match failure {
        stdin::Failure::Io(source) => OpenError::Io {
            path: path.to_owned(),
            source,
        },
        stdin::Failure::Fault(fault) => OpenError::Malformed {
            file: path.display().to_string(),
            fault,
        },
    }
}

/// Names the file the user may have meant when there is none of this name.
fn suggest(path: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    if let Ok(target) = std::fs::read_link(path) {
        return io::Error::new(
            error.kind(),
            format!(
                "it is a link to `{}`, which does not exist",
                target.display()
            ),
        );
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let Some(wanted) = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
    else {
        return error;
    };
    let Ok(siblings) = std::fs::read_dir(folder) else {
        return io::Error::new(
            error.kind(),
            format!("the folder `{}` does not exist", folder.display()),
        );
    };
    let score = |name: &str| {
        let close = strsim::jaro_winkler(&wanted.to_lowercase(), &name.to_lowercase());
        if name.starts_with(&wanted) || wanted.starts_with(name) {
            close.max(0.9)
        } else {
            close
        }
    };
    let names = siblings
        .flatten()
        .take(10_000)
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let best = names
        .map(|name| (score(&name), name))
        .filter(|(score, _)| *score > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((_, name)) => io::Error::new(
            error.kind(),
            format!(
                "no such file; did you mean `{}`?",
                path.with_file_name(name).display()
            ),
        ),
        None => io::Error::new(error.kind(), "no such file"),
    }
}

/// Opens bytes that are no file of their own; `name` stands in for the path.
pub fn open_bytes(
    name: &str,
    bytes: Bytes,
    options: &OpenOptions,
) -> Result<Box<dyn TensorSource>, OpenError> {
    open_input(
        &Input {
            name: name.to_owned(),
            path: None,
            bytes,
        },
        options,
    )
}

fn open_input(input: &Input, options: &OpenOptions) -> Result<Box<dyn TensorSource>, OpenError> {
    let context = Context::new(
        options.limits,
        Arc::clone(&options.cache),
        input.bytes.len() as u64,
    );
    let contents = match &options.raw {
        Some(spec) => crate::raw::read_raw(input, spec).map_err(|fault| OpenError::Malformed {
            file: input.name.clone(),
            fault,
        }),
        None => read(input, &context),
    };
    // Headers read from a file that was cut short meanwhile are not what it said.
    input.bytes.check()?;
    Ok(Box::new(Source::new(input.name.clone(), contents?)))
}

/// Reads one file or member by the first format that recognises it.
pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, OpenError> {
    let format = FORMATS
        .iter()
        .find(|format| (format.recognise)(input))
        .ok_or_else(|| OpenError::Unrecognised {
            file: input.name.clone(),
            found: filekind::describe(&input.bytes),
        })?;
    // An extension promised a format; what is there may be no such thing at all, which says more than its first bad byte.
    (format.read)(input, context).map_err(|fault| {
        match filekind::impostor(&input.bytes, &input.extension()) {
            Some(found) => OpenError::Unrecognised {
                file: input.name.clone(),
                found,
            },
            None => OpenError::Malformed {
                file: input.name.clone(),
                fault,
            },
        }
    })
}

/// An opened source: a listing, and for each tensor of it where the values are.
struct Source {
    listing: Listing,
    entries: Vec<Entry>,
}

impl Source {
    fn new(source: String, mut contents: Contents) -> Self {
        // A bare tensor is named after its file.
        let stem = names::stem(&source).to_owned();
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
        for skipped in &mut contents.skipped {
            if skipped.name.is_empty() {
                skipped.name.clone_from(&stem);
            }
        }
        if !contents.ordered {
            order::sort_by_name(&mut contents.entries, |entry| &entry.name);
            let names = order::Names::of(contents.entries.iter().map(|entry| entry.name.as_str()));
            for value in &mut contents.values {
                value.after = contents
                    .entries
                    .partition_point(|entry| names.cmp(&entry.name, &value.name).is_lt());
            }
        }
        let tensors = contents
            .entries
            .iter_mut()
            .map(|entry| TensorInfo {
                name: std::mem::take(&mut entry.name),
                dtype: entry.dtype,
                shape: entry.shape.clone(),
                bytes: entry
                    .shape
                    .elements()
                    .and_then(|elements| entry.dtype.byte_len(elements)),
                meta: entry.meta.take(),
            })
            .collect();
        let Contents {
            format,
            values,
            skipped,
            findings,
            meta,
            entries,
            ordered: _,
        } = contents;
        Self {
            listing: Listing {
                source,
                format,
                tensors,
                values,
                skipped,
                findings,
                meta,
            },
            entries,
        }
    }
}

impl TensorSource for Source {
    fn listing(&self) -> &Listing {
        &self.listing
    }

    fn view(&self, index: usize) -> Result<View, ReadError> {
        self.entries[index].view()
    }

    fn place(&self, index: usize) -> Option<std::ops::Range<usize>> {
        self.entries[index].place()
    }
}
