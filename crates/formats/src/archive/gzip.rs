//! gzip around one file or a tar: unpacked once into the cache, then read like the file inside.
//!
//! The last four bytes say how long the result is (modulo 2^32, and only for a single member). When that is plausible
//! the whole is unpacked by libdeflate straight into a spill file; else, and for several members, as a stream.

use crate::{
    cache::{Bound, Counted, check_ratio},
    contents::Contents,
    error::Fault,
    input::{Context, Input},
};
use std::io::Read;
use twinscope_tensor::Bytes;

pub(crate) fn recognise(input: &Input) -> bool {
    input.bytes.starts_with(&[0x1f, 0x8b, 0x08])
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    super::read_unpacked(input, context, unpack, "tar.gz")
}

fn unpack(input: &Input, context: &Context) -> Result<Bytes, Fault> {
    let packed = &input.bytes;
    if let Some(len) = promised_len(packed)
        && (len <= context.limits.inflate_free
            || starts_like_data(packed, context.limits.inflate_ratio))
        && let Some(bytes) = unpack_whole(input, len, context)?
    {
        return Ok(bytes);
    }
    let counted = Counted::new(packed);
    let bound = Bound::packed(&counted, &context.limits).capped(context.budget.left());
    let bytes = context.cache.stream(
        &input.name,
        &mut flate2::read::MultiGzDecoder::new(&counted),
        &bound,
    )?;
    context.budget.take(&input.name, bytes.len() as u64)?;
    Ok(bytes)
}

/// What the trailer says, when one member could really unpack to that: deflate packs at most 1032 : 1, and hardly ever
/// makes anything longer.
fn promised_len(packed: &[u8]) -> Option<u64> {
    let trailer: [u8; 4] = packed.last_chunk().copied()?;
    let len = u64::from(u32::from_le_bytes(trailer));
    let packed = packed.len() as u64;
    (packed >= 18 && len <= packed.saturating_mul(1032) && packed <= len + len / 1000 + 1024)
        .then_some(len)
}

/// Whether the first bytes unpack no further than data does. Lengths count modulo 2^32, so a bomb's can look modest.
fn starts_like_data(packed: &[u8], ratio: u64) -> bool {
    let head = &packed[..packed.len().min(64 << 10)];
    let most = head.len() as u64 * ratio;
    let mut reader = flate2::bufread::GzDecoder::new(head);
    let mut buffer = vec![0; 64 << 10];
    let mut len = 0;
    // It ends in the middle of its stream, which is an error after all it gives.
    while let Ok(got @ 1..) = reader.read(&mut buffer) {
        len += got as u64;
        if len > most {
            return false;
        }
    }
    true
}

/// `None` when the promise was not kept and the stream must tell.
fn unpack_whole(input: &Input, len: u64, context: &Context) -> Result<Option<Bytes>, Fault> {
    let packed = input.bytes.as_slice();
    check_ratio(&input.name, packed.len() as u64, len, &context.limits)?;
    context.budget.take(&input.name, len)?;
    let mut kept = false;
    let bytes = context.cache.make_slice(&input.name, len, &mut |out| {
        kept = decompress(packed, out);
        Ok(())
    })?;
    if !kept {
        context.budget.give_back(len);
    }
    Ok(kept.then_some(bytes))
}

/// Whether `packed` is one gzip member, all of it, that unpacks to exactly `out`; libdeflate checks the CRC.
fn decompress(packed: &[u8], out: &mut [u8]) -> bool {
    // The safe wrapper does not say how much input was used, without which a second member would go unnoticed.
    // SAFETY: the pointers and lengths are those of the two slices, the decompressor is freed once, and the counts are
    // written to locals that outlive the call.
    unsafe {
        let decompressor = libdeflate_sys::libdeflate_alloc_decompressor();
        if decompressor.is_null() {
            return false;
        }
        let (mut used, mut made) = (0, 0);
        let result = libdeflate_sys::libdeflate_gzip_decompress_ex(
            decompressor,
            packed.as_ptr().cast(),
            packed.len(),
            out.as_mut_ptr().cast(),
            out.len(),
            &raw mut used,
            &raw mut made,
        );
        libdeflate_sys::libdeflate_free_decompressor(decompressor);
        result == libdeflate_sys::libdeflate_result_LIBDEFLATE_SUCCESS
            && used == packed.len()
            && made == out.len()
    }
}
