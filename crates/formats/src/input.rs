//! The bytes of one file or member, on their way to the reader of its format.

use crate::{cache::Cache, error::Fault, limits::Limits};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
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
        last.rsplit_once('.')
            .map(|(_, ext)| ext.to_ascii_lowercase())
            .unwrap_or_default()
    }
}

/// What every reader is given besides the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) limits: Limits,
    pub(crate) cache: Arc<Cache>,
    /// How many archives we are inside of.
    pub(crate) depth: usize,
    /// What opening may still unpack on the way to a listing, shared by everything inside one file.
    pub(crate) budget: Arc<Budget>,
}

impl Context {
    /// For a file of `len` bytes.
    pub(crate) fn new(limits: Limits, cache: Arc<Cache>, len: u64) -> Self {
        let budget = Arc::new(Budget::new(
            limits
                .inflate_free
                .max(len.saturating_mul(limits.inflate_ratio)),
        ));
        Self {
            limits,
            cache,
            depth: 0,
            budget,
        }
    }

    /// For what lies inside an archive; refused when it lies too deep.
    pub(crate) fn inside(&self) -> Result<Self, Fault> {
        if self.depth >= self.limits.depth {
            return Err(Fault::Limit {
                what: format!(
                    "archives inside archives are read {} deep",
                    self.limits.depth
                ),
            });
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self.clone()
        })
    }
}

/// Bytes that may still be unpacked. Limits on single members do not stop a thousand of them.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u64,
    left: AtomicU64,
}

impl Budget {
    fn new(total: u64) -> Self {
        Self {
            total,
            left: AtomicU64::new(total),
        }
    }

    /// Takes `bytes` for `what`, before they are unpacked.
    pub(crate) fn take(&self, what: &str, bytes: u64) -> Result<(), Fault> {
        let taken = self
            .left
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            });
        taken.map(|_| ()).map_err(|left| Fault::Bomb {
            what: format!("`{what}` unpacks to {bytes} bytes, {left} are left of the {} this file may unpack to", self.total),
        })
    }

    /// Returns what was taken for nothing.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}
