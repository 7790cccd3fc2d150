//! Zstandard around one file or a tar: frames, one after another, unpacked into the cache.

use crate::{
    cache::{Bound, Counted},
    contents::Contents,
    error::Fault,
    input::{Context, Input},
};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{self, Read};
use twinscope_tensor::Bytes;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub(crate) fn recognise(input: &Input) -> bool {
    input.bytes.starts_with(&MAGIC) || skippable(&input.bytes).is_some()
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    super::read_unpacked(input, context, unpack, "tar.zst")
}

pub(crate) fn unpack(input: &Input, context: &Context) -> Result<Bytes, Fault> {
    let packed = Counted::new(&input.bytes);
    let bound = Bound::packed(&packed, &context.limits).capped(context.budget.left());
    let bytes = context
        .cache
        .stream(&input.name, &mut Frames::new(&packed), &bound)?;
    context.budget.take(&input.name, bytes.len() as u64)?;
    Ok(bytes)
}

/// A skippable frame's whole length.
fn skippable(bytes: &[u8]) -> Option<usize> {
    let magic = u32::from_le_bytes(*bytes.first_chunk()?);
    let len = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    (magic & 0xffff_fff0 == 0x184d_2a50).then(|| 8 + len as usize)
}

/// All frames as one stream.
struct Frames<'a> {
    packed: &'a Counted<'a>,
    now: Option<StreamingDecoder<&'a Counted<'a>, FrameDecoder>>,
    window: u64,
}

impl<'a> Frames<'a> {
    fn new(packed: &'a Counted<'a>) -> Self {
        // `zstd` itself refuses windows above 128 MiB; a small file has no use for more than its default of 8.
        let window = (packed.rest().len() as u64 * 64).clamp(8 << 20, 128 << 20);
        Self {
            packed,
            now: None,
            window,
        }
    }

    fn next_frame(&mut self) -> io::Result<bool> {
        while let Some(len) = skippable(self.packed.rest()) {
            self.packed.skip(len).ok_or(io::ErrorKind::UnexpectedEof)?;
        }
        if self.packed.rest().is_empty() {
            return Ok(false);
        }
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(self.window);
        let decoder = StreamingDecoder::new_with_decoder(self.packed, decoder)
            .map_err(|e| io::Error::other(e.to_string()))?;
        self.now = Some(decoder);
        Ok(true)
    }
}

impl Read for Frames<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(decoder) = &mut self.now {
                let got = decoder
                    .read(out)
                    .map_err(|e| io::Error::other(e.to_string()))?;
                if got > 0 {
                    return Ok(got);
                }
                self.now = None;
            }
            if !self.next_frame()? {
                return Ok(0);
            }
        }
    }
}
