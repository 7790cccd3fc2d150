//! Where a tensor of a pickle lies: a storage, which may still be packed, and strides over it.

use super::pickle::{Graph, Id, Node};
use crate::{
    contents::{Data, Lazy},
    error::Fault,
};
use std::sync::Arc;
use twinscope_tensor::{Bytes, DType, Packing, Quant, ReadError, Shape, View};

/// Bytes that are at hand, or that cost something to get.
#[derive(Clone)]
pub(super) enum Origin {
    Ready(Bytes),
    Late(Arc<dyn Late>),
}

/// Bytes that must be unpacked or decoded first. Their number is known.
pub(super) trait Late: Send + Sync {
    fn len(&self) -> u64;
    fn fetch(&self) -> Result<Bytes, Fault>;
}

impl Origin {
    pub(super) fn len(&self) -> u64 {
        match self {
            Origin::Ready(bytes) => bytes.len() as u64,
            Origin::Late(late) => late.len(),
        }
    }

    pub(super) fn fetch(&self) -> Result<Bytes, Fault> {
        match self {
            Origin::Ready(bytes) => Ok(bytes.clone()),
            Origin::Late(late) => late.fetch(),
        }
    }

    /// A part of it, `None` when it is not inside.
    pub(super) fn slice(&self, start: u64, len: u64) -> Option<Origin> {
        let end = start.checked_add(len).filter(|end| *end <= self.len())?;
        match self {
            Origin::Ready(bytes) => bytes.slice(start..end).map(Origin::Ready),
            Origin::Late(_) => Some(Origin::Late(Arc::new(Part {
                whole: self.clone(),
                start,
                end,
            }))),
        }
    }
}

struct Part {
    whole: Origin,
    start: u64,
    end: u64,
}

impl Late for Part {
    fn len(&self) -> u64 {
        self.end - self.start
    }

    fn fetch(&self) -> Result<Bytes, Fault> {
        let whole = self.whole.fetch()?;
        whole
            .slice(self.start..self.end)
            .ok_or_else(|| Fault::Truncated {
                what: format!("a storage of {} bytes", whole.len()),
            })
    }
}

/// A tensor: dtype, shape, strides and offset in elements, over a storage.
#[derive(Clone)]
pub(super) struct Layout {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) strides: Vec<i64>,
    pub(super) offset: u64,
    pub(super) origin: Origin,
    pub(super) big_endian: bool,
    pub(super) conjugate: bool,
    pub(super) negate: bool,
    pub(super) quant: Option<Quant>,
}

impl Layout {
    pub(super) fn new(
        dtype: DType,
        shape: Shape,
        strides: Vec<i64>,
        offset: u64,
        origin: Origin,
    ) -> Result<Self, Fault> {
        let layout = Self {
            dtype,
            shape,
            strides,
            offset,
            origin,
            big_endian: false,
            conjugate: false,
            negate: false,
            quant: None,
        };
        layout.check()?;
        Ok(layout)
    }

    /// A row-major tensor that begins its storage.
    pub(super) fn row_major(dtype: DType, shape: Shape, origin: Origin) -> Result<Self, Fault> {
        let strides = shape.row_major().ok_or_else(|| Fault::Overflow {
            what: format!("a shape of {shape}"),
        })?;
        Self::new(dtype, shape, strides, 0, origin)
    }

    /// Every index of the shape lies in the storage. The same rule as [`View::strided`], for bytes not yet at hand.
    fn check(&self) -> Result<(), Fault> {
        if let Origin::Ready(bytes) = &self.origin {
            View::strided(
                self.dtype,
                self.shape.clone(),
                self.strides.clone(),
                self.offset,
                bytes.clone(),
            )?;
        } else {
            if self.strides.len() != self.shape.rank() {
                return Err(Fault::BadShape {
                    what: format!(
                        "{} sizes but {} strides",
                        self.shape.rank(),
                        self.strides.len()
                    ),
                });
            }
            let elements = self.shape.elements().ok_or_else(|| Fault::Overflow {
                what: format!("a shape of {}", self.shape),
            })?;
            let held = match self.dtype.packing() {
                Packing::Bytes(0) => u64::MAX,
                Packing::Bytes(n) => self.origin.len() / n as u64,
                Packing::Bits(bits) => self.origin.len().saturating_mul(8) / bits as u64,
                Packing::Block { elements, bytes } => {
                    (self.origin.len() / bytes as u64).saturating_mul(elements as u64)
                }
            };
            let reach = |up: bool| -> i128 {
                let steps = self
                    .shape
                    .dims()
                    .iter()
                    .zip(&self.strides)
                    .map(|(dim, stride)| i128::from(dim.saturating_sub(1)) * i128::from(*stride));
                steps
                    .filter(|step| (*step > 0) == up)
                    .fold(i128::from(self.offset), i128::saturating_add)
            };
            if elements > 0 && (reach(false) < 0 || reach(true) >= i128::from(held)) {
                let what = format!(
                    "{} with strides {:?} from element {} reaches outside its {} bytes",
                    self.shape,
                    self.strides,
                    self.offset,
                    self.origin.len()
                );
                return Err(Fault::OutOfBounds { what });
            }
        }
        let elements = self.shape.elements().unwrap_or(0);
        if self.dtype.byte_len(elements).is_none() {
            return Err(Fault::Overflow {
                what: format!("{} of {}", self.shape, self.dtype),
            });
        }
        // Packed elements have no chunks when they are strided: what cannot be read is not listed.
        let packed = !matches!(self.dtype.packing(), Packing::Bytes(_));
        if packed
            && elements > 0
            && (self.offset != 0
                || self
                    .shape
                    .row_major()
                    .is_none_or(|strides| !same_steps(&self.shape, &strides, &self.strides)))
        {
            return Err(Fault::Unsupported {
                what: format!("a strided view of {}", self.dtype),
            });
        }
        Ok(())
    }

    pub(super) fn view(&self) -> Result<View, ReadError> {
        let bytes = self.origin.fetch().map_err(decode_error)?;
        let view = View::strided(
            self.dtype,
            self.shape.clone(),
            self.strides.clone(),
            self.offset,
            bytes,
        )?;
        let view = view
            .big_endian(self.big_endian)
            .lazy_bits(self.conjugate, self.negate);
        Ok(match &self.quant {
            Some(quant) => view.quantized(quant.clone()),
            None => view,
        })
    }

    /// The form in which it is listed: the plainest that fits.
    pub(super) fn data(self) -> Result<Data, Fault> {
        let Origin::Ready(bytes) = &self.origin else {
            return Ok(Data::Lazy(Arc::new(self)));
        };
        let plain = !self.big_endian && !self.conjugate && !self.negate && self.quant.is_none();
        let whole = self
            .shape
            .elements()
            .and_then(|elements| self.dtype.byte_len(elements));
        if let (true, Some(len), Some(strides), Packing::Bytes(item)) =
            (plain, whole, self.shape.row_major(), self.dtype.packing())
            && (len == 0 || same_steps(&self.shape, &strides, &self.strides))
        {
            let start = if len == 0 {
                0
            } else {
                self.offset * item as u64
            };
            if let Some(bytes) = bytes.slice(start..start + len) {
                return Ok(Data::Plain(bytes));
            }
        }
        match self.view() {
            Ok(view) => Ok(Data::View(Box::new(view))),
            Err(error) => Err(Fault::OutOfBounds {
                what: error.to_string(),
            }),
        }
    }

    /// The values as integers, when there are no more than the storage holds; for sizes, offsets and indices.
    pub(super) fn integers(&self) -> Result<Vec<i64>, Fault> {
        let mut out = Vec::new();
        self.each(&mut |bytes| {
            out.push(integer(self.dtype, bytes).ok_or_else(|| Fault::BadDtype {
                what: format!("{} where integers are needed", self.dtype),
            })?);
            Ok(())
        })?;
        Ok(out)
    }

    /// The values as numbers, for scales and zero points.
    pub(super) fn numbers(&self) -> Result<Vec<f64>, Fault> {
        let mut out = Vec::new();
        self.each(&mut |bytes| {
            out.push(number(self.dtype, bytes).ok_or_else(|| Fault::BadDtype {
                what: format!("{} where numbers are needed", self.dtype),
            })?);
            Ok(())
        })?;
        Ok(out)
    }

    fn each(&self, take: &mut dyn FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let Packing::Bytes(item) = self.dtype.packing() else {
            return Err(Fault::BadDtype {
                what: format!("{} where numbers are needed", self.dtype),
            });
        };
        let elements = self.shape.elements().unwrap_or(u64::MAX);
        if item == 0 || elements > self.origin.len() / item as u64 {
            return Err(Fault::Limit {
                what: format!("{} repeated numbers", self.shape),
            });
        }
        let view = self.view().map_err(|error| Fault::Io {
            what: error.to_string(),
        })?;
        let mut scratch = Vec::new();
        let mut at = 0;
        while at < elements {
            let count = (elements - at).min(1 << 14);
            for bytes in view
                .chunk(at, count as usize, &mut scratch)
                .chunks_exact(item)
            {
                take(bytes)?;
            }
            at += count;
        }
        Ok(())
    }
}

impl Lazy for Layout {
    fn view(&self) -> Result<View, ReadError> {
        Layout::view(self)
    }
}

pub(super) fn decode_error(fault: Fault) -> ReadError {
    ReadError::Decode(Box::new(fault))
}

/// Whether two sets of strides step alike: a dimension of one element takes no step.
fn same_steps(shape: &Shape, a: &[i64], b: &[i64]) -> bool {
    shape
        .dims()
        .iter()
        .zip(a.iter().zip(b))
        .all(|(dim, (a, b))| *dim <= 1 || a == b)
}

fn integer(dtype: DType, bytes: &[u8]) -> Option<i64> {
    Some(match dtype {
        DType::Bool | DType::U8 => i64::from(bytes[0]),
        DType::I8 => i64::from(bytes[0] as i8),
        DType::I16 => i64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
        DType::U16 => i64::from(u16::from_le_bytes(bytes.try_into().ok()?)),
        DType::I32 => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        DType::U32 => i64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
        DType::I64 => i64::from_le_bytes(bytes.try_into().ok()?),
        DType::U64 => i64::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()?,
        _ => return None,
    })
}

fn number(dtype: DType, bytes: &[u8]) -> Option<f64> {
    Some(match dtype {
        DType::F64 => f64::from_le_bytes(bytes.try_into().ok()?),
        DType::F32 => f64::from(f32::from_le_bytes(bytes.try_into().ok()?)),
        DType::F16 => half::f16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
        DType::Bf16 => half::bf16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
        other => integer(other, bytes)? as f64,
    })
}

/// The dtype that torch calls so: `float32`, `half`, `quint4x2`, ...
pub(super) fn torch_dtype(name: &str) -> Option<DType> {
    Some(match name {
        "float32" | "float" => DType::F32,
        "float64" | "double" => DType::F64,
        "float16" | "half" => DType::F16,
        "bfloat16" => DType::Bf16,
        "uint8" => DType::U8,
        "int8" => DType::I8,
        "int16" | "short" => DType::I16,
        "uint16" => DType::U16,
        "int32" | "int" => DType::I32,
        "uint32" => DType::U32,
        "int64" | "long" => DType::I64,
        "uint64" => DType::U64,
        "bool" => DType::Bool,
        "complex32" | "chalf" => DType::C32,
        "bcomplex32" => DType::Bc32,
        "complex64" | "cfloat" => DType::C64,
        "complex128" | "cdouble" => DType::C128,
        "float8_e4m3fn" => DType::F8E4M3Fn,
        "float8_e4m3fnuz" => DType::F8E4M3Fnuz,
        "float8_e5m2" => DType::F8E5M2,
        "float8_e5m2fnuz" => DType::F8E5M2Fnuz,
        "float8_e8m0fnu" => DType::F8E8M0Fnu,
        "float4_e2m1fn_x2" => DType::F4E2M1FnX2,
        "qint8" | "quint8" | "qint32" | "quint4x2" | "quint2x4" | "bits8" | "bits16"
        | "bits1x8" | "bits2x4" | "bits4x2" => DType::parse(name)?,
        _ => return None,
    })
}

/// The dtype of a storage class: `torch.FloatStorage`, `torch.cuda.HalfStorage`, `torch.storage.UntypedStorage`.
pub(super) fn storage_dtype(class: &str) -> Option<DType> {
    let (module, name) = class.rsplit_once('.')?;
    if module != "torch" && !module.starts_with("torch.") {
        return None;
    }
    Some(match name.strip_suffix("Storage")? {
        "Double" => DType::F64,
        "Float" => DType::F32,
        "Half" => DType::F16,
        "BFloat16" => DType::Bf16,
        "Long" => DType::I64,
        "Int" => DType::I32,
        "Short" => DType::I16,
        "Char" => DType::I8,
        "Byte" | "Untyped" | "_Untyped" => DType::U8,
        "Bool" => DType::Bool,
        "ComplexDouble" => DType::C128,
        "ComplexFloat" => DType::C64,
        "QInt8" => DType::QI8,
        "QInt32" => DType::QI32,
        "QUInt8" => DType::QU8,
        "QUInt4x2" => DType::QU4X2,
        "QUInt2x4" => DType::QU2X4,
        _ => return None,
    })
}

/// Bytes of `count` elements of a storage. Packed storages count their bytes.
pub(super) fn storage_len(dtype: DType, count: i64) -> Result<u64, Fault> {
    let count = u64::try_from(count).map_err(|_| Fault::BadShape {
        what: format!("a storage of {count} elements"),
    })?;
    let item = dtype.itemsize().unwrap_or(1) as u64;
    count.checked_mul(item).ok_or_else(|| Fault::Overflow {
        what: format!("a storage of {count} elements of {dtype}"),
    })
}

/// The bytes that a pickle means: `bytes`, a Python 2 `str`, or text that stands for latin-1 (protocols below 3).
pub(super) fn bytes_of(graph: &Graph, id: Id) -> Result<Origin, Fault> {
    let part = |span| {
        let bytes = graph.input.slice(graph.range(span));
        bytes
            .map(Origin::Ready)
            .ok_or_else(|| Fault::CorruptPickle {
                what: "bytes outside the pickle".into(),
            })
    };
    match graph.node(id) {
        Node::Bytes(span) | Node::PyStr(span) => part(span),
        Node::Text(span) => {
            let Origin::Ready(text) = part(span)? else {
                return Ok(Origin::Ready(Vec::new().into()));
            };
            // Every latin-1 character is one or two bytes of UTF-8, and only the second is a continuation.
            let len = text.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as u64;
            let late = Latin1 { text, len };
            if len <= 1 << 16 {
                late.fetch().map(Origin::Ready)
            } else {
                Ok(Origin::Late(Arc::new(late)))
            }
        }
        Node::Escaped(_) | Node::Quoted(_) => {
            let text = graph.text(id).unwrap_or_default();
            latin1(&text).map(|bytes| Origin::Ready(bytes.into()))
        }
        Node::Call { function, .. } => {
            let arguments = graph
                .call(id)
                .map(|(_, arguments)| arguments.into_owned())
                .unwrap_or_default();
            match (graph.global_name(function), arguments.first()) {
                (
                    Some(
                        "_codecs.encode"
                        | "codecs.encode"
                        | "builtins.bytearray"
                        | "__builtin__.bytearray",
                    ),
                    Some(first),
                ) if !matches!(graph.node(*first), Node::Call { .. }) => bytes_of(graph, *first),
                (Some("builtins.bytearray" | "__builtin__.bytearray"), Some(first))
                    if encoded(graph, *first) =>
                {
                    bytes_of(graph, *first)
                }
                (
                    Some(
                        "builtins.bytes"
                        | "__builtin__.bytes"
                        | "builtins.bytearray"
                        | "__builtin__.bytearray",
                    ),
                    None,
                ) => Ok(Origin::Ready(Vec::new().into())),
                _ => Err(Fault::CorruptPickle {
                    what: "bytes are needed, something else is there".into(),
                }),
            }
        }
        _ => Err(Fault::CorruptPickle {
            what: "bytes are needed, something else is there".into(),
        }),
    }
}

/// Whether this is `_codecs.encode` of a plain string, so that looking into it ends there.
fn encoded(graph: &Graph, id: Id) -> bool {
    graph.call(id).is_some_and(|(function, arguments)| {
        graph.global_name(function) == Some("_codecs.encode")
            && arguments
                .first()
                .is_some_and(|first| !matches!(graph.node(*first), Node::Call { .. }))
    })
}

struct Latin1 {
    text: Bytes,
    len: u64,
}

impl Late for Latin1 {
    fn len(&self) -> u64 {
        self.len
    }

    fn fetch(&self) -> Result<Bytes, Fault> {
        let text = std::str::from_utf8(&self.text).map_err(|error| Fault::CorruptPickle {
            what: format!("bytes written as text are no text: {error}"),
        })?;
        Ok(latin1(text)?.into())
    }
}

fn latin1(text: &str) -> Result<Vec<u8>, Fault> {
    text.chars()
        .map(|c| {
            u8::try_from(u32::from(c)).map_err(|_| Fault::CorruptPickle {
                what: format!("bytes written as text hold {c:?}, which is no byte"),
            })
        })
        .collect()
}
