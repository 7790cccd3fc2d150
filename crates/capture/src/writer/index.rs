//! `index.jsonl`: one event a line, each written whole or taken back.

use crate::CaptureError;
use std::{
    fs::{File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

#[derive(Debug)]
pub(super) struct Index {
    file: File,
    path: PathBuf,
    len: u64,
    /// Bytes behind `len` that could not be cut off.
    torn: bool,
}

impl Index {
    pub(super) fn create(folder: &Path) -> Result<Self, CaptureError> {
        let path = folder.join("index.jsonl");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|error| CaptureError::io(&path, &error, 0))?;
        Ok(Self {
            file,
            path,
            len: 0,
            torn: false,
        })
    }

    /// One write call a line: a process that is killed leaves whole lines, or one half at the very end.
    pub(super) fn append(&mut self, text: &[u8]) -> Result<(), CaptureError> {
        let written = self.restore().and_then(|()| self.file.write_all(text));
        if let Err(error) = written {
            self.torn = true;
            let _ = self.restore();
            return Err(CaptureError::io(&self.path, &error, text.len() as u64));
        }
        self.len += text.len() as u64;
        Ok(())
    }

    /// A reader stops at a broken line, so half a line must not stay in front of whole ones.
    fn restore(&mut self) -> std::io::Result<()> {
        if self.torn {
            self.file.set_len(self.len)?;
            self.file.seek(SeekFrom::Start(self.len))?;
            self.torn = false;
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<(), CaptureError> {
        self.file
            .sync_data()
            .map_err(|error| CaptureError::io(&self.path, &error, 0))
    }
}
