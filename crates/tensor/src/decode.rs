//! Elements to real numbers, in bulk.
//!
//! Decoding is exact wherever the target can hold the value: into `f64` everything but 64-bit integers, datetimes and
//! x87 values, which round to nearest ([`DType::is_exact_in_f64`]); into `f32` see [`DType::is_exact_in_f32`]. Codes that
//! need a scale become what the library that wrote them would compute, bit for bit: torch's `dequantize()`
//! (`(code - zero_point) * scale`) and ggml's blocks ([`crate::blocks`]). An element of two numbers gives two: real
//! and imaginary part, low and high nibble.

use crate::{BlockType, DType, Packing, Quant, View, blocks, minifloat};
use half::{f16, slice::HalfFloatSliceExt};
use std::collections::HashMap;

/// The numbers of elements `start .. start + count` in row-major order, [`DType::values_per_element`] each, in place of what
/// `out` held. False, and nothing in `out`, when the dtype has no numbers ([`DType::has_numbers`]). `scratch` is room to
/// gather strided elements in; keep it between calls.
///
/// # Panics
/// When the run is not inside the tensor.
#[must_use = "false means that this dtype has no numbers"]
pub fn f64_values(
    view: &View,
    start: u64,
    count: usize,
    scratch: &mut Vec<u8>,
    out: &mut Vec<f64>,
) -> bool {
    values(view, start, count, scratch, out)
}

/// The same in `f32`: exact where [`DType::is_exact_in_f32`], else rounded to nearest.
///
/// # Panics
/// When the run is not inside the tensor.
#[must_use = "false means that this dtype has no numbers"]
pub fn f32_values(
    view: &View,
    start: u64,
    count: usize,
    scratch: &mut Vec<u8>,
    out: &mut Vec<f32>,
) -> bool {
    values(view, start, count, scratch, out)
}

impl DType {
    /// Whether elements stand for numbers. Raw bits and datetimes are read as the integers they are stored as; strings,
    /// bytes and records are not numbers.
    pub fn has_numbers(self) -> bool {
        !matches!(
            self,
            DType::Str(_) | DType::Bytes(_) | DType::Void(_) | DType::Struct(_)
        )
    }

    /// Whether every value is an `f32`, or the format itself computes it in `f32` (quantized types).
    pub fn is_exact_in_f32(self) -> bool {
        self.has_numbers()
            && self.is_exact_in_f64()
            && !matches!(self, DType::U32 | DType::I32 | DType::F64 | DType::C128)
    }

    /// Whether every value is an `f64`.
    pub fn is_exact_in_f64(self) -> bool {
        self.has_numbers()
            && !matches!(
                self,
                DType::U64
                    | DType::I64
                    | DType::F80
                    | DType::C160
                    | DType::DateTime(_)
                    | DType::TimeDelta(_)
            )
    }
}

/// The two number types everything is decoded to.
trait Real: Copy {
    fn from_f32(value: f32) -> Self;
    fn from_f64(value: f64) -> Self;
    fn from_i32(value: i32) -> Self;
    fn from_u32(value: u32) -> Self;
    fn from_i64(value: i64) -> Self;
    fn from_u64(value: u64) -> Self;
}

macro_rules! real {
    ($type:ty) => {
        impl Real for $type {
            fn from_f32(value: f32) -> Self {
                <$type>::from(value)
            }
            fn from_f64(value: f64) -> Self {
                value as $type
            }
            fn from_i32(value: i32) -> Self {
                value as $type
            }
            fn from_u32(value: u32) -> Self {
                value as $type
            }
            fn from_i64(value: i64) -> Self {
                value as $type
            }
            fn from_u64(value: u64) -> Self {
                value as $type
            }
        }
    };
}
#[allow(clippy::cast_lossless)]
mod reals {
    use super::Real;
    real!(f32);
    real!(f64);
}

fn values<R: Real>(
    view: &View,
    start: u64,
    count: usize,
    scratch: &mut Vec<u8>,
    out: &mut Vec<R>,
) -> bool {
    out.clear();
    let dtype = view.dtype();
    if !dtype.has_numbers() {
        return false;
    }
    assert!(
        start + count as u64 <= view.len(),
        "a run lies inside its tensor"
    );
    out.reserve(count * dtype.values_per_element());
    match dtype.packing() {
        Packing::Bytes(_) => {
            let bytes = view.chunk(start, count, scratch);
            match (dtype, view.quant()) {
                (DType::QI8, Some(_)) => {
                    dequantize(view, start, bytes.iter().map(|b| i32::from(*b as i8)), out);
                }
                (DType::QU8, Some(_)) => {
                    dequantize(view, start, bytes.iter().map(|b| i32::from(*b)), out);
                }
                (DType::QI32, Some(_)) => {
                    dequantize(view, start, items(bytes).map(i32::from_le_bytes), out);
                }
                _ => plain(dtype, bytes, out),
            }
        }
        Packing::Bits(bits) => packed(view, start, count, bits, scratch, out),
        Packing::Block { elements, .. } => {
            let DType::Block(block) = dtype else {
                unreachable!("only blocks are packed in blocks")
            };
            dequantize_blocks(view, block, elements, start, count, scratch, out);
        }
    }
    true
}

/// Fixed-size pieces of a slice.
fn items<const N: usize>(bytes: &[u8]) -> impl ExactSizeIterator<Item = [u8; N]> + '_ {
    bytes
        .chunks_exact(N)
        .map(|item| item.try_into().expect("exact chunks"))
}

/// Little-endian elements that each have bytes of their own and need no scale.
fn plain<R: Real>(dtype: DType, bytes: &[u8], out: &mut Vec<R>) {
    let mut table = |table: &[f32; 256]| {
        out.extend(
            bytes
                .iter()
                .map(|code| R::from_f32(table[usize::from(*code)])),
        );
    };
    match dtype {
        DType::F8E4M3Fn => table(&minifloat::F8_E4M3FN),
        DType::F8E4M3Fnuz => table(&minifloat::F8_E4M3FNUZ),
        DType::F8E5M2 => table(&minifloat::F8_E5M2),
        DType::F8E5M2Fnuz => table(&minifloat::F8_E5M2FNUZ),
        DType::F8E8M0Fnu => table(&minifloat::F8_E8M0FNU),
        DType::F4E2M1FnX2 => {
            out.extend(bytes.iter().flat_map(|pair| {
                [pair & 15, pair >> 4]
                    .map(|code| R::from_f32(minifloat::F4_E2M1[usize::from(code)]))
            }));
        }
        DType::Bool => out.extend(bytes.iter().map(|byte| R::from_u32(u32::from(*byte != 0)))),
        DType::U8
        | DType::QU8
        | DType::Bits8
        | DType::Bits1X8
        | DType::Bits2X4
        | DType::Bits4X2 => {
            out.extend(bytes.iter().map(|byte| R::from_u32(u32::from(*byte))));
        }
        DType::I8 | DType::QI8 => {
            out.extend(bytes.iter().map(|byte| R::from_i32(i32::from(*byte as i8))));
        }
        DType::U16 | DType::Bits16 => {
            out.extend(items(bytes).map(|item| R::from_u32(u32::from(u16::from_le_bytes(item)))));
        }
        DType::I16 => {
            out.extend(items(bytes).map(|item| R::from_i32(i32::from(i16::from_le_bytes(item)))));
        }
        DType::U32 => out.extend(items(bytes).map(|item| R::from_u32(u32::from_le_bytes(item)))),
        DType::I32 | DType::QI32 => {
            out.extend(items(bytes).map(|item| R::from_i32(i32::from_le_bytes(item))));
        }
        DType::U64 => out.extend(items(bytes).map(|item| R::from_u64(u64::from_le_bytes(item)))),
        DType::I64 | DType::DateTime(_) | DType::TimeDelta(_) => {
            out.extend(items(bytes).map(|item| R::from_i64(i64::from_le_bytes(item))));
        }
        DType::F16 | DType::C32 => halves(bytes, out),
        DType::Bf16 | DType::Bc32 => {
            out.extend(items(bytes).map(|item| {
                R::from_f32(f32::from_bits(u32::from(u16::from_le_bytes(item)) << 16))
            }));
        }
        DType::F32 | DType::C64 => {
            out.extend(items(bytes).map(|item| R::from_f32(f32::from_le_bytes(item))));
        }
        DType::F64 | DType::C128 => {
            out.extend(items(bytes).map(|item| R::from_f64(f64::from_le_bytes(item))));
        }
        DType::F80 | DType::C160 => {
            out.extend(items(bytes).map(|item| R::from_f64(minifloat::f80_to_f64(&item))));
        }
        DType::F4
        | DType::F6E2M3
        | DType::F6E3M2
        | DType::OnnxI4
        | DType::OnnxU4
        | DType::OnnxF4
        | DType::OnnxI2
        | DType::OnnxU2
        | DType::QU4X2
        | DType::QU2X4
        | DType::Block(_)
        | DType::Str(_)
        | DType::Bytes(_)
        | DType::Void(_)
        | DType::Struct(_) => unreachable!("{dtype} is packed or no number"),
    }
}

/// f16 through a small aligned buffer: a file aligns nothing, and the processor converts eight at a time.
fn halves<R: Real>(bytes: &[u8], out: &mut Vec<R>) {
    const RUN: usize = 512;
    let (mut stored, mut wide) = ([f16::ZERO; RUN], [0f32; RUN]);
    for run in bytes.chunks(2 * RUN) {
        let n = run.len() / 2;
        for (value, item) in stored.iter_mut().zip(items(run)) {
            *value = f16::from_le_bytes(item);
        }
        stored[..n].convert_to_f32_slice(&mut wide[..n]);
        out.extend(wide[..n].iter().map(|value| R::from_f32(*value)));
    }
}

/// Elements of 2, 4 or 6 bits.
fn packed<R: Real>(
    view: &View,
    start: u64,
    count: usize,
    bits: usize,
    scratch: &mut Vec<u8>,
    out: &mut Vec<R>,
) {
    let dtype = view.dtype();
    if view.contiguous().is_none() {
        let mut codes = Vec::with_capacity(count);
        for_each_index(view, start, count, |index| {
            codes.push(view.element(index, scratch).0[0]);
        });
        return number(view, start, codes.into_iter(), out);
    }
    // Four elements of any width fill whole bytes.
    let before = (start % 4) as usize;
    let bytes = view.chunk(start - before as u64, count + before, scratch);
    let mask = (1u16 << bits) - 1;
    let code = |i: usize| {
        let bit = (before + i) * bits;
        let low = u16::from(bytes[bit / 8]);
        // Only a six-bit element can reach into the next byte, and then it is there.
        let high = if bit % 8 + bits > 8 {
            u16::from(bytes[bit / 8 + 1])
        } else {
            0
        };
        ((low | high << 8) >> (bit % 8) & mask) as u8
    };
    debug_assert!(matches!(dtype.packing(), Packing::Bits(_)));
    number(view, start, (0..count).map(code), out);
}

/// Packed codes to numbers.
fn number<R: Real>(view: &View, start: u64, codes: impl Iterator<Item = u8>, out: &mut Vec<R>) {
    /// Two's complement of `bits` bits.
    fn signed(code: u8, bits: u32) -> i32 {
        i32::from(((code << (8 - bits)) as i8) >> (8 - bits))
    }
    match view.dtype() {
        DType::F4 | DType::OnnxF4 => {
            out.extend(codes.map(|code| R::from_f32(minifloat::F4_E2M1[usize::from(code)])));
        }
        DType::F6E2M3 => {
            out.extend(codes.map(|code| R::from_f32(minifloat::F6_E2M3[usize::from(code)])));
        }
        DType::F6E3M2 => {
            out.extend(codes.map(|code| R::from_f32(minifloat::F6_E3M2[usize::from(code)])));
        }
        DType::OnnxI4 => out.extend(codes.map(|code| R::from_i32(signed(code, 4)))),
        DType::OnnxI2 => out.extend(codes.map(|code| R::from_i32(signed(code, 2)))),
        DType::QU4X2 | DType::QU2X4 if view.quant().is_some() => {
            dequantize(view, start, codes.map(i32::from), out);
        }
        _ => out.extend(codes.map(|code| R::from_u32(u32::from(code)))),
    }
}

/// The indices of a run of elements, in row-major order.
fn for_each_index(view: &View, start: u64, count: usize, mut visit: impl FnMut(&[u64])) {
    let dims = view.shape().dims();
    let mut index = view.shape().unravel(start);
    for _ in 0..count {
        visit(&index);
        for (i, dim) in index.iter_mut().zip(dims).rev() {
            *i += 1;
            if *i < *dim {
                break;
            }
            *i = 0;
        }
    }
}

/// torch's `(code - zero_point) * scale` under one scale: the difference of integers, then all in f32.
pub(crate) fn dequantize_code(code: i32, scale: f64, zero_point: f64) -> f32 {
    let whole = zero_point as i32;
    let steps = if f64::from(whole) == zero_point {
        code.wrapping_sub(whole) as f32
    } else {
        code as f32 - zero_point as f32
    };
    steps * scale as f32
}

/// The same under a scale for each channel: torch takes the difference in f32 and multiplies by the scale as it is stored. A
/// product of two f32 is exact in f64, so this is also right for scales and zero points that are f32 themselves.
pub(crate) fn dequantize_channel_code(code: i32, scale: f64, zero_point: f64) -> f32 {
    (f64::from(code as f32 - zero_point as f32) * scale) as f32
}

/// Codes of elements from `start` on, through the view's scales.
fn dequantize<R: Real>(
    view: &View,
    start: u64,
    codes: impl Iterator<Item = i32>,
    out: &mut Vec<R>,
) {
    match view.quant() {
        Some(Quant::Tensor { scale, zero_point }) => {
            out.extend(codes.map(|code| R::from_f32(dequantize_code(code, *scale, *zero_point))));
        }
        Some(Quant::Channel {
            axis,
            scales,
            zero_points,
        }) => {
            let dims = view.shape().dims();
            let inner = dims[axis + 1..].iter().product::<u64>().max(1);
            let (mut channel, mut left) =
                (start / inner % dims[*axis].max(1), inner - start % inner);
            out.extend(codes.map(|code| {
                // A channel without a scale has no value to give.
                let of = |all: &[f64]| all.get(channel as usize).copied().unwrap_or(f64::NAN);
                let value = dequantize_channel_code(code, of(scales), of(zero_points));
                left -= 1;
                if left == 0 {
                    (channel, left) = ((channel + 1) % dims[*axis].max(1), inner);
                }
                R::from_f32(value)
            }));
        }
        None => out.extend(codes.map(R::from_i32)),
    }
}

fn dequantize_blocks<R: Real>(
    view: &View,
    block: BlockType,
    per: usize,
    start: u64,
    count: usize,
    scratch: &mut Vec<u8>,
    out: &mut Vec<R>,
) {
    let mut values = [0f32; blocks::LARGEST];
    let values = &mut values[..per];
    if view.contiguous().is_some() {
        let before = (start % per as u64) as usize;
        let whole = (before + count).next_multiple_of(per);
        let bytes = view.chunk(start - before as u64, whole, scratch);
        for (i, bytes) in bytes.chunks_exact(block.bytes()).enumerate() {
            blocks::dequantize(block, bytes, values);
            let from = before.saturating_sub(i * per);
            let to = (before + count - i * per).min(per);
            out.extend(values[from..to].iter().map(|value| R::from_f32(*value)));
        }
        return;
    }
    // Without their own order, elements of one block are met far apart (in a transposed tensor once for each row), so the
    // blocks unpacked last are kept.
    const KEPT: usize = 8192;
    let mut kept: HashMap<*const u8, Box<[f32]>> = HashMap::new();
    for_each_index(view, start, count, |index| {
        let (bytes, at) = view.element(index, scratch);
        if kept.len() == KEPT && !kept.contains_key(&bytes.as_ptr()) {
            kept.clear();
        }
        let values = kept.entry(bytes.as_ptr()).or_insert_with(|| {
            blocks::dequantize(block, bytes, values);
            Box::from(&*values)
        });
        out.push(R::from_f32(values[at]));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Shape, slice::Cut};
    use proptest::prelude::*;

    fn view(dtype: DType, shape: impl Into<Shape>, bytes: Vec<u8>) -> View {
        View::new(dtype, shape.into(), Bytes::from(bytes)).expect("a whole tensor")
    }

    fn all(view: &View) -> Vec<f64> {
        let (mut scratch, mut out) = (Vec::new(), vec![7.0]);
        assert!(f64_values(
            view,
            0,
            view.len() as usize,
            &mut scratch,
            &mut out
        ));
        out
    }

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len() / 2)
            .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex"))
            .collect()
    }

    #[test]
    fn quantized_values_are_bit_identical_to_torch() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../testdata/quant.json")).expect("golden data");
        for case in golden.as_array().expect("cases") {
            let numbers = |key: &str| -> Vec<f64> {
                case[key]
                    .as_array()
                    .expect("list")
                    .iter()
                    .map(|v| v.as_f64().expect("number"))
                    .collect()
            };
            let dtype = DType::parse(case["dtype"].as_str().expect("name")).expect("a dtype");
            let shape: Vec<u64> = numbers("shape").iter().map(|d| *d as u64).collect();
            let (scales, zero_points) = (numbers("scales"), numbers("zero_points"));
            let quant = match case["axis"].as_u64() {
                None => Quant::Tensor {
                    scale: scales[0],
                    zero_point: zero_points[0],
                },
                Some(axis) => Quant::Channel {
                    axis: axis as usize,
                    scales,
                    zero_points,
                },
            };
            let mut codes = unhex(case["codes"].as_str().expect("hex"));
            let elements: u64 = shape.iter().product();
            codes.truncate(dtype.byte_len(elements).expect("a length") as usize);
            let view = view(dtype, shape, codes).quantized(quant);
            let mut out = Vec::new();
            assert!(f32_values(
                &view,
                0,
                elements as usize,
                &mut Vec::new(),
                &mut out
            ));
            let bytes: Vec<u8> = out.iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(
                bytes,
                unhex(case["f32"].as_str().expect("hex")),
                "{dtype} {:?}",
                case["axis"]
            );
        }
    }

    #[test]
    fn every_kind_of_number_is_read() {
        assert_eq!(all(&view(DType::Bool, [3], vec![0, 1, 2])), [0.0, 1.0, 1.0]);
        assert_eq!(
            all(&view(DType::I64, [1], i64::MIN.to_le_bytes().to_vec())),
            [-9223372036854775808.0]
        );
        assert_eq!(
            all(&view(DType::F16, [2], vec![0xff, 0x7b, 0x01, 0x00])),
            [65504.0, 2f64.powi(-24)]
        );
        assert_eq!(all(&view(DType::Bf16, [1], vec![0x80, 0x3f])), [1.0]);
        assert_eq!(
            all(&view(DType::C32, [1], vec![0x00, 0x3c, 0x00, 0xc0])),
            [1.0, -2.0]
        );
        assert_eq!(all(&view(DType::F4E2M1FnX2, [1], vec![0xf2])), [1.0, -6.0]);
        assert_eq!(
            all(&view(DType::F4, [3], vec![0xf2, 0x01])),
            [1.0, -6.0, 0.5]
        );
        assert_eq!(
            all(&view(DType::OnnxI4, [3], vec![0x8f, 0x07])),
            [-1.0, -8.0, 7.0]
        );
        assert_eq!(
            all(&view(DType::OnnxU2, [5], vec![0b1110_0100, 0b10])),
            [0.0, 1.0, 2.0, 3.0, 2.0]
        );
        assert_eq!(
            all(&view(DType::OnnxI2, [4], vec![0b1110_0100])),
            [0.0, 1.0, -2.0, -1.0]
        );
        // Four times 0.5 (code 4), then 7.5 (code 31) across byte borders.
        assert_eq!(
            all(&view(DType::F6E2M3, [5], vec![0x04, 0x41, 0x10, 0x1f])),
            [0.5, 0.5, 0.5, 0.5, 7.5]
        );
    }

    #[test]
    fn words_are_not_numbers() {
        let mut out = vec![1.0];
        assert!(!f64_values(
            &view(DType::Void(2), [1], vec![1, 2]),
            0,
            1,
            &mut Vec::new(),
            &mut out
        ));
        assert!(out.is_empty());
    }

    #[test]
    fn a_permuted_block_tensor_gives_the_permuted_numbers() {
        let bytes: Vec<u8> = (0..6 * 34)
            .map(|i| {
                if i % 34 == 1 {
                    0x3c
                } else {
                    (i * 37 % 256) as u8
                }
            })
            .collect();
        let view = view(DType::Block(BlockType::Q8_0), [3, 64], bytes);
        let (whole, turned) = (all(&view), all(&view.permute(&[1, 0])));
        for row in 0..3 {
            for column in 0..64 {
                assert_eq!(
                    whole[row * 64 + column].to_bits(),
                    turned[column * 3 + row].to_bits()
                );
            }
        }
        let cut = view.slice(&[
            Cut::Index(2),
            Cut::Range {
                start: 40,
                step: -3,
                len: 9,
            },
        ]);
        let expected: Vec<f64> = (0..9).map(|i| whole[2 * 64 + 40 - 3 * i]).collect();
        assert_eq!(all(&cut), expected);
    }

    proptest! {
        /// Wherever a run begins, its numbers are those of the whole.
        #[test]
        fn any_run_is_a_part_of_the_whole(which in 0usize..7, start in 0u64..512, count in 0usize..512, seed in any::<u64>()) {
            let dtype = [DType::F4, DType::F6E3M2, DType::OnnxU2, DType::Block(BlockType::Q4_0), DType::Block(BlockType::Q6K),
                DType::I16, DType::C64][which];
            let len = dtype.byte_len(512).expect("whole blocks");
            // Small bytes: no NaN, which would not equal itself.
            let bytes = (0..len).map(|i| (seed.wrapping_mul(i + 1) >> 40) as u8 & 0x3f).collect();
            let view = view(dtype, [2, 256], bytes);
            let count = count.min((512 - start) as usize);
            let per = dtype.values_per_element();
            let mut out = Vec::new();
            prop_assert!(f64_values(&view, start, count, &mut Vec::new(), &mut out));
            prop_assert_eq!(&out[..], &all(&view)[start as usize * per..(start as usize + count) * per]);
            let mut narrow = Vec::new();
            prop_assert!(f32_values(&view, start, count, &mut Vec::new(), &mut narrow));
            let narrow: Vec<f64> = narrow.into_iter().map(f64::from).collect();
            prop_assert_eq!(narrow, out);
        }
    }
}
