//! GGUF blocks to numbers.
//!
//! A block holds a fixed number of elements as small codes and the scales that turn them into `f32`. Each function here does
//! the arithmetic of gguf-py's `dequantize` in the same order and precision (one rounding after each multiplication and
//! addition, never a fused one), so the results are bit-identical to it. Elements of a block are in row-major order.
//!
//! The families: [`legacy`] (Q4_0 to Q8_1 and Q1_0), [`k`] (Q2_K to Q8_K), [`iq`] (codebooks), [`ternary`], [`fp4`].

mod fp4;
mod grids;
mod iq;
mod k;
mod legacy;
mod ternary;

use crate::BlockType;
use half::f16;

/// The most elements a block of any type holds.
pub const LARGEST: usize = 256;

/// Unpacks whole blocks.
///
/// # Panics
/// When `bytes` is not a whole number of blocks or `out` has not exactly their elements.
pub fn dequantize(block: BlockType, bytes: &[u8], out: &mut [f32]) {
    let (per, size) = (block.elements(), block.bytes());
    assert!(
        bytes.len().is_multiple_of(size) && out.len() == bytes.len() / size * per,
        "whole blocks, and room for them"
    );
    let one = kernel(block);
    for (bytes, out) in bytes.chunks_exact(size).zip(out.chunks_exact_mut(per)) {
        one(bytes, out);
    }
}

/// What unpacks one block of a type.
fn kernel(block: BlockType) -> fn(&[u8], &mut [f32]) {
    match block {
        BlockType::Q1_0 => legacy::q1_0,
        BlockType::Q4_0 => legacy::q4_0,
        BlockType::Q4_1 => legacy::q4_1,
        BlockType::Q5_0 => legacy::q5_0,
        BlockType::Q5_1 => legacy::q5_1,
        BlockType::Q8_0 => legacy::q8_0,
        BlockType::Q8_1 => legacy::q8_1,
        BlockType::Q2K => k::q2_k,
        BlockType::Q3K => k::q3_k,
        BlockType::Q4K => k::q4_k,
        BlockType::Q5K => k::q5_k,
        BlockType::Q6K => k::q6_k,
        BlockType::Q8K => k::q8_k,
        BlockType::IQ1S => iq::iq1_s,
        BlockType::IQ1M => iq::iq1_m,
        BlockType::IQ2Xxs => iq::iq2_xxs,
        BlockType::IQ2Xs => iq::iq2_xs,
        BlockType::IQ2S => iq::iq2_s,
        BlockType::IQ3Xxs => iq::iq3_xxs,
        BlockType::IQ3S => iq::iq3_s,
        BlockType::IQ4Nl => iq::iq4_nl,
        BlockType::IQ4Xs => iq::iq4_xs,
        BlockType::TQ1_0 => ternary::tq1_0,
        BlockType::TQ2_0 => ternary::tq2_0,
        BlockType::Mxfp4 => fp4::mxfp4,
        BlockType::Nvfp4 => fp4::nvfp4,
    }
}

/// The f16 at a byte of a block: nearly every scale is one.
fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn float_at(bytes: &[u8], at: usize) -> f32 {
    f32::from_bits(word_at(bytes, at))
}

fn short_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The `i`-th four bits, low ones first.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (4 * (i % 2)) & 15
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len() / 2)
            .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex"))
            .collect()
    }

    /// `testdata/blocks.json` holds blocks of every type and the f32 bits that gguf-py makes of them (for the three types it
    /// cannot read, of their definition in ggml).
    #[test]
    fn every_type_is_bit_identical_to_gguf_py() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../testdata/blocks.json")).expect("golden data");
        for block in BlockType::ALL {
            let case = &golden[block.name()];
            let bytes = unhex(case["blocks"].as_str().expect("blocks"));
            let expected = unhex(case["f32"].as_str().expect("f32"));
            let mut out = vec![0f32; bytes.len() / block.bytes() * block.elements()];
            dequantize(*block, &bytes, &mut out);
            assert_eq!(out.len() * 4, expected.len(), "{}", block.name());
            for (i, (found, expected)) in out.iter().zip(expected.chunks_exact(4)).enumerate() {
                assert_eq!(
                    found.to_bits(),
                    word_at(expected, 0),
                    "{} element {i}: {found}",
                    block.name()
                );
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_some_numbers(which in 0..BlockType::ALL.len(), seed in proptest::collection::vec(any::<u8>(), 292)) {
            let block = BlockType::ALL[which];
            let mut out = vec![0f32; block.elements()];
            dequantize(block, &seed[..block.bytes()], &mut out);
        }
    }
}
