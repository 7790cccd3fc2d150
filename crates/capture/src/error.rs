//! What can go wrong while recording. None of it is the model's fault, so none of it is ever a panic.

use std::{io, path::PathBuf};

/// Why something could not be recorded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    #[error("cannot write the run: `{}`: {what}", .path.display())]
    Io {
        path: PathBuf,
        kind: io::ErrorKind,
        what: String,
    },
    #[error("the disk is full: `{}` could not take {needed} more bytes ({what})", .path.display())]
    Full {
        path: PathBuf,
        needed: u64,
        what: String,
    },
    #[error("`{}` already holds a run", .path.display())]
    Exists { path: PathBuf },
    #[error("`{name}` is {dtype} {shape:?}, which takes {expected} bytes, but {found} were given")]
    Length {
        name: String,
        dtype: String,
        shape: Vec<u64>,
        expected: u64,
        found: u64,
    },
    #[error("`{name}` has the shape {shape:?}, which no memory holds")]
    Shape { name: String, shape: Vec<u64> },
    #[error("`{name}`: its values cannot be read: {what}")]
    Values { name: String, what: String },
    #[error("record {i} comes after record {last}; records are written in order")]
    Order { i: u64, last: u64 },
    #[error("the environment says `{name}={value}`, which is no number of a rank")]
    Rank { name: String, value: String },
    #[error("another recorder is running in this process, into `{}`", .path.display())]
    Busy { path: PathBuf },
    #[error("the writer of this run has stopped")]
    Stopped,
}

impl CaptureError {
    pub(crate) fn io(path: &std::path::Path, error: &io::Error, needed: u64) -> Self {
        let (path, what) = (path.to_owned(), error.to_string());
        // EFBIG (a limit on file sizes) and EDQUOT end a capture like ENOSPC does: no further byte fits.
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::QuotaExceeded => Self::Full { path, needed, what },
            kind => Self::Io { path, kind, what },
        }
    }

    /// One next step for the user, or nothing when we have none to offer.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Full { .. } => Some(
                "record less (include, exclude, steps, every) or into a folder on a larger disk",
            ),
            Self::Exists { .. } => Some("name another folder, or ask for `overwrite`"),
            Self::Length { .. } => Some("hand over the row-major bytes of the whole tensor"),
            Self::Busy { .. } => Some("drop the first recorder before starting the next"),
            Self::Rank { .. } => {
                Some("set RANK and WORLD_SIZE to numbers, or name the rank in the code")
            }
            Self::Io { .. }
            | Self::Shape { .. }
            | Self::Values { .. }
            | Self::Order { .. }
            | Self::Stopped => None,
        }
    }
}
