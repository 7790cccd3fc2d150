//! Why a file cannot be opened: the fact with its numbers, and apart from it one next step.

use crate::filekind;
use std::{io, path::PathBuf};
use twinscope_tensor::{Shrunk, ViewError};

const READABLE: &str = "readable are torch (.pt .pth .bin .ckpt .pkl .pt2), .safetensors, .npy, .npz, .gguf, .onnx, .h5, .keras, .msgpack, \
                        raw numbers with --raw, and archives or folders of these";

/// Why nothing could be read from a file. One bad tensor among good ones is not this: it is listed under `skipped`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error("cannot open `{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{file}` is not a tensor file but {found}")]
    Unrecognised { file: String, found: &'static str },
    /// What a format's own reader found wrong.
    #[error("`{file}`: {fault}")]
    Malformed { file: String, fault: Fault },
    #[error(transparent)]
    Shrunk(#[from] Shrunk),
}

impl OpenError {
    /// One next step for the user, or nothing when we have none to offer.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            OpenError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("check the path")
            }
            OpenError::Io { .. } | OpenError::Shrunk(_) => None,
            OpenError::Unrecognised {
                found: "a Git LFS pointer",
                ..
            } => Some("fetch the file itself with `git lfs pull`"),
            OpenError::Unrecognised { found, .. } if found.contains("a failed download?") => Some(
                "open it in a text editor to see what the server said, then download the file again",
            ),
            OpenError::Unrecognised {
                found: "an empty file",
                ..
            } => Some("whatever writes it may not have finished, or not begun"),
            OpenError::Unrecognised {
                found: filekind::UNKNOWN | filekind::ZEROS,
                ..
            } => Some("if these are raw numbers, say of which type and shape: --raw 'f32[3,4]@0'"),
            OpenError::Unrecognised { .. } => Some(READABLE),
            OpenError::Malformed { fault, .. } => fault.hint(),
        }
    }
}

/// What is wrong inside a file. The variants are the kinds of `corpus/expected.json`; `what` is a sentence with the
/// numbers, written where they are known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file ends before what its headers promise.
    #[error("cut short: {what}")]
    Truncated { what: String },
    #[error("bad header: {what}")]
    BadHeader { what: String },
    #[error("unknown dtype: {what}")]
    BadDtype { what: String },
    #[error("bad shape: {what}")]
    BadShape { what: String },
    #[error("out of bounds: {what}")]
    OutOfBounds { what: String },
    #[error("length mismatch: {what}")]
    SizeMismatch { what: String },
    #[error("numbers overflow: {what}")]
    Overflow { what: String },
    #[error("two tensors share bytes: {what}")]
    Overlap { what: String },
    #[error("bytes that no tensor covers: {what}")]
    Hole { what: String },
    #[error("two entries have one name: {what}")]
    DuplicateName { what: String },
    #[error("missing: {what}")]
    Missing { what: String },
    /// A folder or archive of other things.
    #[error("{what}")]
    NoTensors { what: String },
    #[error("leaves its folder: {what}")]
    PathEscape { what: String },
    #[error("not a pickle we can follow: {what}")]
    CorruptPickle { what: String },
    #[error("beyond a limit: {what}")]
    Limit { what: String },
    #[error("inflates too far: {what}")]
    Bomb { what: String },
    #[error("bad archive: {what}")]
    CorruptArchive { what: String },
    #[error("not supported: {what}")]
    Unsupported { what: String },
    #[error("asks to execute code: {what}")]
    Unsafe { what: String },
    #[error("unreadable: {what}")]
    Io { what: String },
}

impl Fault {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Fault::Truncated { .. } => Some("copy or download the file again"),
            Fault::Missing { .. } => Some("put the missing file back beside this one"),
            Fault::NoTensors { .. } => Some(READABLE),
            Fault::Limit { what } if what.contains("the cache holds") => {
                Some("if you trust the file, raise --cache-size")
            }
            Fault::Bomb { .. } => Some("if you trust the file, raise --max-ratio"),
            Fault::Limit { .. } => None,
            Fault::Unsafe { .. } => Some("do not load this file with torch.load or pickle"),
            Fault::BadHeader { .. }
            | Fault::BadDtype { .. }
            | Fault::BadShape { .. }
            | Fault::OutOfBounds { .. }
            | Fault::SizeMismatch { .. }
            | Fault::Overflow { .. }
            | Fault::Overlap { .. }
            | Fault::Hole { .. }
            | Fault::DuplicateName { .. }
            | Fault::PathEscape { .. }
            | Fault::CorruptPickle { .. }
            | Fault::CorruptArchive { .. }
            | Fault::Unsupported { .. }
            | Fault::Io { .. } => None,
        }
    }
}

impl From<ViewError> for Fault {
    fn from(error: ViewError) -> Self {
        let what = error.to_string();
        match error {
            ViewError::Length { .. } => Fault::SizeMismatch { what },
            ViewError::OutOfBounds { .. } => Fault::OutOfBounds { what },
            ViewError::TooMany { .. } => Fault::Overflow { what },
            _ => Fault::BadShape { what },
        }
    }
}
