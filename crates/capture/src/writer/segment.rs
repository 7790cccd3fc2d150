//! One payload file: a length, a header area of fixed size, then data that is only ever appended.
//!
//! The header area says `{}` while the segment is open and is filled in when it is closed, so that any safetensors
//! library can read it then. Readers of a run do not need it: they go by the index.

use super::{
    line::{list, quote},
    record::dtype_names,
};
use crate::CaptureError;
use std::{
    fs::{File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};
use twinscope_tensor::{DType, Shape};

/// The header area. With the length in front of it data begins at a page of the file: what begins elsewhere is written into the page cache in many small
/// pieces, which for tensors of 64 KiB takes twice as long.
const HEADER: usize = (256 << 10) - 8;
/// How much of it is used before the next segment is begun; the rest is room for the entry at hand.
const HEADER_FULL: usize = HEADER / 10 * 9;
/// Data starts and ends at multiples of this, so that a reader may look at the values in place.
const ALIGN: u64 = 8;
/// A key longer than this would eat the header area: the record's number alone is the key then.
const LONGEST_KEY: usize = 1024;

#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    path: PathBuf,
    /// Bytes of data, behind the header area.
    len: u64,
    /// The header as far as it is known: entries in the order of their data, the last brace missing.
    header: Vec<u8>,
    /// Data behind `len` that could not be cut off.
    torn: bool,
}

impl Segment {
    pub(super) fn create(folder: &Path, number: u64) -> Result<Self, CaptureError> {
        let path = folder.join(format!("seg-{number:05}.safetensors"));
        let open = || {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)?;
            let mut head = vec![b' '; 8 + HEADER];
            head[..8].copy_from_slice(&(HEADER as u64).to_le_bytes());
            head[8..10].copy_from_slice(b"{}");
            file.write_all(&head)?;
            Ok(file)
        };
        let file = open().map_err(|error| {
            // Half a header is no segment: nobody must find it, also not the next attempt.
            let _ = std::fs::remove_file(&path);
            CaptureError::io(&path, &error, HEADER as u64)
        })?;
        Ok(Self {
            file,
            path,
            len: 0,
            header: vec![b'{'],
            torn: false,
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn header_is_full(&self) -> bool {
        self.header.len() >= HEADER_FULL
    }

    /// Appends the data whole, or leaves the segment as it was.
    pub(super) fn append(
        &mut self,
        key: &Key<'_>,
        dtype: DType,
        shape: &Shape,
        data: &[u8],
    ) -> Result<(u64, u64), CaptureError> {
        let (begin, end) = (self.len, self.len + data.len() as u64);
        let pad = (ALIGN - end % ALIGN) % ALIGN;
        let written = self.restore().and_then(|()| {
            self.file.write_all(data)?;
            self.file.write_all(&[0; ALIGN as usize][..pad as usize])
        });
        if let Err(error) = written {
            self.torn = true;
            // Gives the space back at once; when that fails the next append tries again.
            let _ = self.restore();
            return Err(CaptureError::io(&self.path, &error, data.len() as u64));
        }
        self.list(&key.text(), dtype, shape, begin, end);
        if pad > 0 {
            self.list(
                &format!("__pad.{end}"),
                DType::U8,
                &Shape::new([pad]),
                end,
                end + pad,
            );
        }
        self.len = end + pad;
        Ok((begin, end))
    }

    /// Cuts off what a failed write left behind.
    fn restore(&mut self) -> std::io::Result<()> {
        if self.torn {
            let end = 8 + HEADER as u64 + self.len;
            self.file.set_len(end)?;
            self.file.seek(SeekFrom::Start(end))?;
            self.torn = false;
        }
        Ok(())
    }

    fn list(&mut self, key: &str, dtype: DType, shape: &Shape, begin: u64, end: u64) {
        // safetensors has no name for some types: there they are bytes, and the index says what they mean.
        let (name, logical) = dtype_names(dtype);
        let text = &mut self.header;
        if text.len() > 1 {
            text.push(b',');
        }
        quote(text, key);
        text.extend_from_slice(b":{\"dtype\":");
        quote(text, name);
        text.extend_from_slice(b",\"shape\":");
        if logical.is_some() {
            list(text, &[end - begin]);
        } else {
            list(text, shape.dims());
        }
        text.extend_from_slice(b",\"data_offsets\":");
        list(text, &[begin, end]);
        text.push(b'}');
    }

    pub(super) fn sync(&self) -> Result<(), CaptureError> {
        self.file
            .sync_data()
            .map_err(|error| CaptureError::io(&self.path, &error, 0))
    }

    /// Writes the header. A closed segment is never touched again.
    pub(super) fn close(mut self) -> Result<(), CaptureError> {
        let mut text = std::mem::take(&mut self.header);
        text.push(b'}');
        let written = self.restore().and_then(|()| {
            // One entry alone (a shape of a thousand dimensions) can outgrow the area; the index still has it all.
            if text.len() > HEADER {
                return Ok(());
            }
            self.file.seek(SeekFrom::Start(8))?;
            self.file.write_all(&text)
        });
        written.map_err(|error| CaptureError::io(&self.path, &error, 0))
    }
}

/// What a tensor is called in its segment.
#[derive(Debug)]
pub(super) struct Key<'a> {
    pub(super) i: u64,
    pub(super) name: &'a str,
    pub(super) role: &'a str,
    pub(super) arg: &'a str,
}

impl Key<'_> {
    fn text(&self) -> String {
        let Self { i, name, role, arg } = self;
        if name.len() + arg.len() > LONGEST_KEY {
            i.to_string()
        } else {
            format!("{i}:{name}:{role}:{arg}")
        }
    }
}
