//! What the bytes of one element mean.
//!
//! A dtype says how many bits an element takes, how elements are packed, and what number the bits stand for. The
//! names are the contract's (`bf16`, `f8_e4m3fn`, `q4_k`, ...); a type the contract does not name keeps the name its
//! own format gives it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;

/// The type of every element of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DType {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F32,
    F64,
    /// x87 80-bit extended precision in 16 bytes, as NumPy's `longdouble` on x86.
    F80,
    /// Two f16.
    C32,
    /// Two bf16 (torch's `bcomplex32`).
    Bc32,
    C64,
    C128,
    /// Two x87 80-bit values, NumPy's `clongdouble`.
    C160,
    F8E4M3Fn,
    F8E4M3Fnuz,
    F8E5M2,
    F8E5M2Fnuz,
    F8E8M0Fnu,
    /// Two E2M1 values in each byte, the low nibble first; the shape counts bytes (torch).
    F4E2M1FnX2,
    /// Four bits an element, the shape counts elements (safetensors `F4`).
    F4,
    F6E2M3,
    F6E3M2,
    /// Packed two to a byte, low nibble first (ONNX).
    OnnxI4,
    OnnxU4,
    OnnxF4,
    /// Packed four to a byte, low bits first (ONNX).
    OnnxI2,
    OnnxU2,
    QI8,
    QU8,
    QI32,
    /// Two elements a byte, low bits first.
    QU4X2,
    /// Four elements a byte, low bits first.
    QU2X4,
    Bits8,
    Bits16,
    Bits1X8,
    Bits2X4,
    Bits4X2,
    /// GGUF blocks.
    Block(BlockType),
    /// NumPy `U`: this many UCS-4 code points, zero padded.
    Str(u32),
    /// NumPy `S`: this many bytes, zero padded.
    Bytes(u32),
    /// NumPy `V`: this many bytes without a meaning.
    Void(u32),
    /// A record of this many bytes; its fields are in the tensor's metadata.
    Struct(u32),
    /// Counts of a unit since 1970.
    DateTime(TimeUnit),
    TimeDelta(TimeUnit),
}

/// NumPy's `datetime64[25s]`: the count and the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeUnit {
    pub count: u32,
    pub unit: &'static str,
}

impl TimeUnit {
    pub const UNITS: [&'static str; 14] = [
        "Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic",
    ];

    pub fn new(count: u32, unit: &str) -> Option<Self> {
        Self::UNITS
            .iter()
            .find(|known| **known == unit)
            .map(|unit| Self { count, unit })
    }
}

impl Serialize for TimeUnit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.count, self.unit).serialize(serializer)
    }
}

// By hand: a derived one would borrow the unit from the input, for good.
impl<'de> Deserialize<'de> for TimeUnit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (count, unit) = <(u32, String)>::deserialize(deserializer)?;
        Self::new(count, &unit)
            .ok_or_else(|| D::Error::custom(format!("`{unit}` is not a unit of time")))
    }
}

macro_rules! block_types {
    ($($variant:ident = $id:literal, $name:literal, $elements:literal, $bytes:literal;)*) => {
        /// A GGUF block type: a fixed number of elements share a fixed number of bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum BlockType { $($variant),* }

        impl BlockType {
            pub const ALL: &'static [BlockType] = &[$(BlockType::$variant),*];
            /// ggml's number for the type.
            pub fn ggml_id(self) -> u32 { match self { $(Self::$variant => $id),* } }
            pub fn name(self) -> &'static str { match self { $(Self::$variant => $name),* } }
            /// How many elements one block holds.
            pub fn elements(self) -> usize { match self { $(Self::$variant => $elements),* } }
            /// How many bytes one block takes.
            pub fn bytes(self) -> usize { match self { $(Self::$variant => $bytes),* } }
        }
    };
}
block_types! {
    Q4_0 = 2, "q4_0", 32, 18;
    Q4_1 = 3, "q4_1", 32, 20;
    Q5_0 = 6, "q5_0", 32, 22;
    Q5_1 = 7, "q5_1", 32, 24;
    Q8_0 = 8, "q8_0", 32, 34;
    Q8_1 = 9, "q8_1", 32, 40;
    Q2K = 10, "q2_k", 256, 84;
    Q3K = 11, "q3_k", 256, 110;
    Q4K = 12, "q4_k", 256, 144;
    Q5K = 13, "q5_k", 256, 176;
    Q6K = 14, "q6_k", 256, 210;
    Q8K = 15, "q8_k", 256, 292;
    IQ2Xxs = 16, "iq2_xxs", 256, 66;
    IQ2Xs = 17, "iq2_xs", 256, 74;
    IQ3Xxs = 18, "iq3_xxs", 256, 98;
    IQ1S = 19, "iq1_s", 256, 50;
    IQ4Nl = 20, "iq4_nl", 32, 18;
    IQ3S = 21, "iq3_s", 256, 110;
    IQ2S = 22, "iq2_s", 256, 82;
    IQ4Xs = 23, "iq4_xs", 256, 136;
    IQ1M = 29, "iq1_m", 256, 56;
    TQ1_0 = 34, "tq1_0", 256, 54;
    TQ2_0 = 35, "tq2_0", 256, 66;
    Mxfp4 = 39, "mxfp4", 32, 17;
    Nvfp4 = 40, "nvfp4", 64, 36;
    Q1_0 = 41, "q1_0", 128, 18;
}

/// How elements share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Every element has this many bytes of its own.
    Bytes(usize),
    /// Elements of this many bits, low bits first, in row-major order; the last byte is padded.
    Bits(usize),
    /// `elements` elements share `bytes` bytes.
    Block { elements: usize, bytes: usize },
}

/// What kind of number an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int,
    Float,
    Complex,
    /// Codes that a scale and a zero point turn into numbers.
    Quantized,
    /// Not a number: strings, records, raw bits.
    Opaque,
}

impl DType {
    /// The dtypes that need no parameter; with [`BlockType::ALL`] everything but NumPy's sized types.
    pub const PLAIN: &'static [DType] = &[
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::U64,
        DType::I64,
        DType::F16,
        DType::Bf16,
        DType::F32,
        DType::F64,
        DType::F80,
        DType::C32,
        DType::Bc32,
        DType::C64,
        DType::C128,
        DType::C160,
        DType::F8E4M3Fn,
        DType::F8E4M3Fnuz,
        DType::F8E5M2,
        DType::F8E5M2Fnuz,
        DType::F8E8M0Fnu,
        DType::F4E2M1FnX2,
        DType::F4,
        DType::F6E2M3,
        DType::F6E3M2,
        DType::OnnxI4,
        DType::OnnxU4,
        DType::OnnxF4,
        DType::OnnxI2,
        DType::OnnxU2,
        DType::QI8,
        DType::QU8,
        DType::QI32,
        DType::QU4X2,
        DType::QU2X4,
        DType::Bits8,
        DType::Bits16,
        DType::Bits1X8,
        DType::Bits2X4,
        DType::Bits4X2,
    ];

    /// The plain or block dtype of that name, as [`fmt::Display`] prints it.
    pub fn parse(name: &str) -> Option<Self> {
        Self::PLAIN
            .iter()
            .copied()
            .chain(BlockType::ALL.iter().copied().map(DType::Block))
            .find(|dtype| dtype.plain_name() == Some(name))
    }

    fn plain_name(self) -> Option<&'static str> {
        Some(match self {
            DType::Bool => "bool",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::U16 => "u16",
            DType::I16 => "i16",
            DType::U32 => "u32",
            DType::I32 => "i32",
            DType::U64 => "u64",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F80 => "float128",
            DType::C32 => "c32",
            DType::Bc32 => "bcomplex32",
            DType::C64 => "c64",
            DType::C128 => "c128",
            DType::C160 => "complex256",
            DType::F8E4M3Fn => "f8_e4m3fn",
            DType::F8E4M3Fnuz => "f8_e4m3fnuz",
            DType::F8E5M2 => "f8_e5m2",
            DType::F8E5M2Fnuz => "f8_e5m2fnuz",
            DType::F8E8M0Fnu => "f8_e8m0fnu",
            DType::F4E2M1FnX2 => "f4_e2m1fn_x2",
            DType::F4 => "F4",
            DType::F6E2M3 => "F6_E2M3",
            DType::F6E3M2 => "F6_E3M2",
            DType::OnnxI4 => "onnx:int4",
            DType::OnnxU4 => "onnx:uint4",
            DType::OnnxF4 => "onnx:f4_e2m1fn",
            DType::OnnxI2 => "onnx:int2",
            DType::OnnxU2 => "onnx:uint2",
            DType::QI8 => "qint8",
            DType::QU8 => "quint8",
            DType::QI32 => "qint32",
            DType::QU4X2 => "quint4x2",
            DType::QU2X4 => "quint2x4",
            DType::Bits8 => "bits8",
            DType::Bits16 => "bits16",
            DType::Bits1X8 => "bits1x8",
            DType::Bits2X4 => "bits2x4",
            DType::Bits4X2 => "bits4x2",
            DType::Block(block) => block.name(),
            DType::Struct(_) => "struct",
            DType::Str(_)
            | DType::Bytes(_)
            | DType::Void(_)
            | DType::DateTime(_)
            | DType::TimeDelta(_) => return None,
        })
    }

    pub fn packing(self) -> Packing {
        match self {
            DType::Bool
            | DType::U8
            | DType::I8
            | DType::F8E4M3Fn
            | DType::F8E4M3Fnuz
            | DType::F8E5M2
            | DType::F8E5M2Fnuz
            | DType::F8E8M0Fnu
            | DType::F4E2M1FnX2
            | DType::QI8
            | DType::QU8
            | DType::Bits8
            | DType::Bits1X8
            | DType::Bits2X4
            | DType::Bits4X2 => Packing::Bytes(1),
            DType::U16 | DType::I16 | DType::F16 | DType::Bf16 | DType::Bits16 => Packing::Bytes(2),
            DType::U32 | DType::I32 | DType::F32 | DType::C32 | DType::Bc32 | DType::QI32 => {
                Packing::Bytes(4)
            }
            DType::U64
            | DType::I64
            | DType::F64
            | DType::C64
            | DType::DateTime(_)
            | DType::TimeDelta(_) => Packing::Bytes(8),
            DType::F80 | DType::C128 => Packing::Bytes(16),
            DType::C160 => Packing::Bytes(32),
            DType::F4 | DType::OnnxI4 | DType::OnnxU4 | DType::OnnxF4 | DType::QU4X2 => {
                Packing::Bits(4)
            }
            DType::F6E2M3 | DType::F6E3M2 => Packing::Bits(6),
            DType::OnnxI2 | DType::OnnxU2 | DType::QU2X4 => Packing::Bits(2),
            DType::Block(block) => Packing::Block {
                elements: block.elements(),
                bytes: block.bytes(),
            },
            DType::Str(n) => Packing::Bytes(4 * n as usize),
            DType::Bytes(n) | DType::Void(n) | DType::Struct(n) => Packing::Bytes(n as usize),
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            DType::Bool => Kind::Bool,
            DType::U8
            | DType::I8
            | DType::U16
            | DType::I16
            | DType::U32
            | DType::I32
            | DType::U64
            | DType::I64
            | DType::OnnxI4
            | DType::OnnxU4
            | DType::OnnxI2
            | DType::OnnxU2 => Kind::Int,
            DType::F16
            | DType::Bf16
            | DType::F32
            | DType::F64
            | DType::F80
            | DType::F8E4M3Fn
            | DType::F8E4M3Fnuz
            | DType::F8E5M2
            | DType::F8E5M2Fnuz
            | DType::F8E8M0Fnu
            | DType::F4
            | DType::F6E2M3
            | DType::F6E3M2
            | DType::OnnxF4
            | DType::Block(_) => Kind::Float,
            // One element holds two numbers, so it is read as both (see `values_per_element`).
            DType::F4E2M1FnX2 => Kind::Float,
            DType::C32 | DType::Bc32 | DType::C64 | DType::C128 | DType::C160 => Kind::Complex,
            DType::QI8 | DType::QU8 | DType::QI32 | DType::QU4X2 | DType::QU2X4 => Kind::Quantized,
            DType::Bits8
            | DType::Bits16
            | DType::Bits1X8
            | DType::Bits2X4
            | DType::Bits4X2
            | DType::Str(_)
            | DType::Bytes(_)
            | DType::Void(_)
            | DType::Struct(_)
            | DType::DateTime(_)
            | DType::TimeDelta(_) => Kind::Opaque,
        }
    }

    /// How many real numbers one element of the shape stands for: 2 for complex and for packed pairs, else 1.
    pub fn values_per_element(self) -> usize {
        match self {
            DType::F4E2M1FnX2 => 2,
            dtype if dtype.kind() == Kind::Complex => 2,
            _ => 1,
        }
    }

    /// Bytes per element, where every element has its own.
    pub fn itemsize(self) -> Option<usize> {
        match self.packing() {
            Packing::Bytes(n) => Some(n),
            Packing::Bits(_) | Packing::Block { .. } => None,
        }
    }

    /// The unit that a foreign byte order reverses: the component for complex numbers, 1 where order has no meaning.
    pub fn swap_unit(self) -> usize {
        match self {
            DType::C32 | DType::Bc32 => 2,
            DType::C64 => 4,
            DType::C128 => 8,
            DType::C160 => 16,
            DType::Str(_) => 4,
            DType::Bytes(_) | DType::Void(_) | DType::Struct(_) => 1,
            other => other.itemsize().unwrap_or(1),
        }
    }

    /// Bytes that `elements` elements take in row-major order, or `None` when that is not a whole number of blocks or
    /// overflows.
    pub fn byte_len(self, elements: u64) -> Option<u64> {
        match self.packing() {
            Packing::Bytes(n) => elements.checked_mul(n as u64),
            Packing::Bits(bits) => Some(elements.checked_mul(bits as u64)?.div_ceil(8)),
            Packing::Block {
                elements: per,
                bytes,
            } => {
                if !elements.is_multiple_of(per as u64) {
                    return None;
                }
                (elements / per as u64).checked_mul(bytes as u64)
            }
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time =
            |f: &mut fmt::Formatter<'_>, name: &str, unit: &TimeUnit| match (unit.unit, unit.count)
            {
                ("generic", _) => f.pad(name),
                (unit, 1) => f.pad(&format!("{name}[{unit}]")),
                (unit, count) => f.pad(&format!("{name}[{count}{unit}]")),
            };
        match self {
            // NumPy counts the bits of these.
            DType::Str(n) => f.pad(&format!("str{}", 32 * u64::from(*n))),
            DType::Bytes(n) => f.pad(&format!("bytes{}", 8 * u64::from(*n))),
            DType::Void(n) => f.pad(&format!("void{}", 8 * u64::from(*n))),
            DType::DateTime(unit) => time(f, "datetime64", unit),
            DType::TimeDelta(unit) => time(f, "timedelta64", unit),
            plain => f.pad(plain.plain_name().unwrap_or("unknown")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_and_is_its_own() {
        let all = DType::PLAIN
            .iter()
            .copied()
            .chain(BlockType::ALL.iter().copied().map(DType::Block));
        for dtype in all {
            assert_eq!(DType::parse(&dtype.to_string()), Some(dtype));
        }
    }

    #[test]
    fn lengths_round_up_for_bits_and_refuse_broken_blocks() {
        assert_eq!(DType::OnnxI4.byte_len(5), Some(3));
        assert_eq!(DType::F6E2M3.byte_len(32), Some(24));
        assert_eq!(DType::Block(BlockType::Q4_0).byte_len(64), Some(36));
        assert_eq!(DType::Block(BlockType::Q4_0).byte_len(33), None);
        assert_eq!(DType::F64.byte_len(u64::MAX), None);
    }
}
