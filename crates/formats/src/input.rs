//! The bytes of one file or member, on their way to the reader of its format.

use crate::{cache::Cache, error::Fault, limits::Limits};
use std::{path::PathBuf, sync::Arc};
use twinscope_tensor::Bytes;

/// One file to be read: on disk, or a member of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// For messages, and its extension for recognition: the path as the user gave it, or the member's path.
    pub(crate) name: String,
    /// The file itself, where there is one: its folder is where a format may look for siblings (shards, external data).
    pub(crate) path: Option<PathBuf>,
    pub(crate) bytes: Bytes,
}

impl Input {
    /// The lower-case extension, without the dot; empty when there is none.
    pub(crate) fn extension(&self) -> String {
        let last = self.name.rsplit(['/', '\\']).next().unwrap_or_default();
        last.rsplit_once('.').map(|(_, ext)| ext.to_ascii_lowercase()).unwrap_or_default()
    }

    /// A part of the file as an input of its own, for formats that hold other formats.
    pub(crate) fn part(&self, name: impl Into<String>, range: std::ops::Range<u64>) -> Result<Self, Fault> {
        let name = name.into();
        let bytes = self
            .bytes
            .slice(range.clone())
            .ok_or_else(|| Fault::Truncated { what: format!("`{name}` ends at byte {}, the file at {}", range.end, self.bytes.len()) })?;
        Ok(Self { name, path: None, bytes })
    }
}

/// What every reader is given besides the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) limits: Limits,
    pub(crate) cache: Arc<Cache>,
    /// How many archives we are inside of.
    pub(crate) depth: usize,
}
