//! A borrowed run of bytes that keeps its owner alive: a piece of a memory map, of a spill file, of a small buffer.

use std::{fmt, ops::Range, sync::Arc};

/// Whoever holds the bytes.
pub trait Storage: Send + Sync {
    fn bytes(&self) -> &[u8];

    /// Whether everything read so far was really there. A map whose file was cut short hands out zeros for the missing
    /// pages and says so here, so a reader asks *after* it has read and throws its result away on an error.
    fn check(&self) -> Result<(), Shrunk>;
}

/// The file became shorter while it was being read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{file}` became shorter while it was being read")]
pub struct Shrunk {
    pub file: String,
}

impl Storage for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn check(&self) -> Result<(), Shrunk> {
        Ok(())
    }
}

/// A range of someone's bytes. Cloning is cheap.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn Storage>,
    start: usize,
    len: usize,
}

impl Bytes {
    pub fn new(owner: Arc<dyn Storage>) -> Self {
        let len = owner.bytes().len();
        Self {
            owner,
            start: 0,
            len,
        }
    }

    /// A part of these bytes, or `None` when the range does not lie inside them.
    pub fn slice(&self, range: Range<u64>) -> Option<Self> {
        let start = usize::try_from(range.start).ok()?;
        let end = usize::try_from(range.end).ok()?;
        if start > end || end > self.len {
            return None;
        }
        Some(Self {
            owner: Arc::clone(&self.owner),
            start: self.start + start,
            len: end - start,
        })
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.owner.bytes()[self.start..self.start + self.len]
    }

    /// See [`Storage::check`].
    pub fn check(&self) -> Result<(), Shrunk> {
        self.owner.check()
    }

    /// Whether both are ranges of one owner, and where: what tied weights share.
    pub fn same_place(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner) && self.start == other.start && self.len == other.len
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(Arc::new(bytes))
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} at {})", self.len, self.start)
    }
}
