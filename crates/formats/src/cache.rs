//! Where packed data is unpacked to: spill files in one folder, bounded, gone at exit.
//!
//! SKELETON: written out by the containers work; only the signatures below are fixed.

use crate::error::Fault;
use std::{io::Write, path::PathBuf};
use twinscope_tensor::Bytes;

#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    size: u64,
}

impl Cache {
    /// A cache below `dir` (made when first used) that holds at most `size` bytes.
    pub fn new(dir: PathBuf, size: u64) -> Self {
        Self { dir, size }
    }

    /// `len` bytes written by `fill`: in memory when small, in a mapped spill file when not. `fill` gets a writer that
    /// fails past `len`. Fails when the cache is full.
    pub(crate) fn make(&self, _what: &str, len: u64, fill: &mut dyn FnMut(&mut dyn Write) -> Result<(), Fault>) -> Result<Bytes, Fault> {
        let mut bytes = Vec::with_capacity(len as usize);
        fill(&mut bytes)?;
        let _ = (&self.dir, self.size);
        Ok(bytes.into())
    }

    /// A deflate stream (no zlib or gzip header) unpacked to exactly `len` bytes; refused when it ends early or late.
    /// Checks `Limits::inflate_free` and `inflate_ratio` first.
    pub(crate) fn inflate(&self, what: &str, packed: &Bytes, len: u64, _limits: &crate::Limits) -> Result<Bytes, Fault> {
        self.make(what, len, &mut |out| {
            std::io::copy(&mut flate2::read::DeflateDecoder::new(packed.as_slice()), out)
                .map_err(|e| Fault::CorruptArchive { what: e.to_string() })?;
            Ok(())
        })
    }
}
