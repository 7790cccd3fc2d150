//! One `TensorProto`: what it says it is, and where its values are.

use super::wire::{Field, Fields, Varints, Wire};
use crate::{
    Cache,
    contents::{Data, Lazy},
    error::Fault,
    input::{Context, Input},
};
use std::{
    collections::HashMap,
    io::{self, Write},
    ops::Range,
    path::{Component, Path, PathBuf},
    sync::Arc,
};
use twinscope_tensor::{Bytes, DType, ReadError, Shape, View};

/// The fields that hold values of one kind or another.
const FLOATS: u64 = 4;
const INT32: u64 = 5;
const INT64: u64 = 7;
const DOUBLES: u64 = 10;
const UINT64: u64 = 11;

/// The header of a tensor; its values stay in the file.
#[derive(Debug)]
pub(super) struct Tensor {
    range: Range<usize>,
    dims: Vec<i64>,
    kind: u64,
    raw: Option<Range<usize>>,
    pub(super) external: bool,
    segmented: bool,
}

impl Tensor {
    /// The name as far as it is known, and the rest if it is sound.
    pub(super) fn parse(bytes: &[u8], range: Range<usize>) -> (String, Result<Self, Fault>) {
        let mut tensor = Self {
            range: range.clone(),
            dims: Vec::new(),
            kind: 0,
            raw: None,
            external: false,
            segmented: false,
        };
        let mut name = String::new();
        for field in Fields::new(bytes, range) {
            let Field { number, wire, cut } = match field {
                Ok(field) => field,
                Err(fault) => return (name, Err(fault)),
            };
            if cut {
                let what = format!(
                    "field {number} of its description ends beyond byte {}",
                    tensor.range.end
                );
                return (name, Err(Fault::Truncated { what }));
            }
            match (number, wire) {
                (1, wire) => wire.numbers(bytes, &mut tensor.dims),
                (2, Wire::Number(kind)) => tensor.kind = kind,
                (3, _) => tensor.segmented = true,
                (8, Wire::Bytes(range)) => {
                    name = String::from_utf8_lossy(&bytes[range]).into_owned();
                }
                (9, Wire::Bytes(range)) => tensor.raw = Some(range),
                (14, Wire::Number(location)) => tensor.external = location == 1,
                _ => {}
            }
        }
        (name, Ok(tensor))
    }

    pub(super) fn dtype(&self) -> Result<DType, Fault> {
        Ok(match self.kind {
            1 => DType::F32,
            2 => DType::U8,
            3 => DType::I8,
            4 => DType::U16,
            5 => DType::I16,
            6 => DType::I32,
            7 => DType::I64,
            8 => {
                return Err(Fault::Unsupported {
                    what: format!("{:?} strings, which are no numbers", self.dims),
                });
            }
            9 => DType::Bool,
            10 => DType::F16,
            11 => DType::F64,
            12 => DType::U32,
            13 => DType::U64,
            14 => DType::C64,
            15 => DType::C128,
            16 => DType::Bf16,
            17 => DType::F8E4M3Fn,
            18 => DType::F8E4M3Fnuz,
            19 => DType::F8E5M2,
            20 => DType::F8E5M2Fnuz,
            21 => DType::OnnxU4,
            22 => DType::OnnxI4,
            23 => DType::OnnxF4,
            24 => DType::F8E8M0Fnu,
            25 => DType::OnnxU2,
            26 => DType::OnnxI2,
            27 => DType::F6E2M3,
            28 => DType::F6E3M2,
            other => {
                return Err(Fault::BadDtype {
                    what: format!("ONNX data type {other}"),
                });
            }
        })
    }

    pub(super) fn shape(&self, rank: usize) -> Result<Shape, Fault> {
        if self.dims.len() > rank {
            return Err(Fault::BadShape {
                what: format!("{} dimensions, {rank} is the most", self.dims.len()),
            });
        }
        let dims: Result<Vec<u64>, _> = self.dims.iter().map(|dim| u64::try_from(*dim)).collect();
        dims.map(Shape::from).map_err(|_| Fault::BadShape {
            what: format!("the sizes are {:?}", self.dims),
        })
    }

    /// Keys and values of `external_data`.
    pub(super) fn pairs(&self, bytes: &[u8]) -> HashMap<String, String> {
        let text = |range: Range<usize>| String::from_utf8_lossy(&bytes[range]).into_owned();
        let mut pairs = HashMap::new();
        for field in Fields::new(bytes, self.range.clone()).map_while(Result::ok) {
            let (13, Wire::Bytes(range)) = (field.number, field.wire) else {
                continue;
            };
            let (mut key, mut value) = (String::new(), String::new());
            for field in Fields::new(bytes, range).map_while(Result::ok) {
                match (field.number, field.wire) {
                    (1, Wire::Bytes(range)) => key = text(range),
                    (2, Wire::Bytes(range)) => value = text(range),
                    _ => {}
                }
            }
            pairs.insert(key, value);
        }
        pairs
    }

    /// The values inside the model, `len` bytes of them.
    pub(super) fn data(
        &self,
        input: &Input,
        context: &Context,
        name: &str,
        dtype: DType,
        shape: &Shape,
        len: u64,
    ) -> Result<Data, Fault> {
        if self.segmented {
            return Err(Fault::Unsupported {
                what: "a tensor in segments".to_owned(),
            });
        }
        let slice = |range: &Range<usize>| {
            let what = || format!("bytes {range:?} of {}", input.bytes.len());
            input
                .bytes
                .slice(range.start as u64..range.end as u64)
                .ok_or_else(|| Fault::OutOfBounds { what: what() })
        };
        let mismatch = |found: u64| Fault::SizeMismatch {
            what: format!("{shape} of {dtype} takes {len} bytes, {found} are there"),
        };
        if let Some(raw) = &self.raw {
            let bytes = slice(raw)?;
            return if bytes.len() as u64 == len {
                Ok(Data::Plain(bytes))
            } else {
                Err(mismatch(bytes.len() as u64))
            };
        }
        if matches!(dtype, DType::F6E2M3 | DType::F6E3M2) {
            return Err(Fault::Unsupported {
                what: format!("{dtype} outside of raw_data"),
            });
        }
        let field = TypedField::new(dtype);
        let (found, only) = field.measure(&input.bytes, self.range.clone())?;
        if found != len {
            return Err(mismatch(found));
        }
        // Packed floats are little-endian already.
        if let (Some(only), true) = (only, field.width_on_wire.is_some()) {
            return slice(&only).map(Data::Plain);
        }
        let lazy = Typed {
            what: name.to_owned(),
            dtype,
            shape: shape.clone(),
            len,
            field,
            message: slice(&self.range)?,
            cache: Arc::clone(&context.cache),
        };
        Ok(Data::Lazy(Arc::new(lazy)))
    }
}

/// Where values of a dtype are when they are not raw.
#[derive(Clone, Copy, Debug)]
struct TypedField {
    number: u64,
    /// Bytes an item has in the file; `None` for varints.
    width_on_wire: Option<usize>,
    /// Bytes an item becomes.
    width: usize,
}

impl TypedField {
    fn new(dtype: DType) -> Self {
        let (number, width_on_wire) = match dtype {
            DType::F32 | DType::C64 => (FLOATS, Some(4)),
            DType::F64 | DType::C128 => (DOUBLES, Some(8)),
            DType::I64 => (INT64, None),
            DType::U32 | DType::U64 => (UINT64, None),
            _ => (INT32, None),
        };
        // Sub-byte types are packed before they are widened: one item is one byte.
        let width = width_on_wire.or(dtype.itemsize()).unwrap_or(1);
        Self {
            number,
            width_on_wire,
            width,
        }
    }

    /// The runs of items in a message, packed or one by one.
    fn runs(
        self,
        bytes: &[u8],
        range: Range<usize>,
    ) -> impl Iterator<Item = Result<Wire, Fault>> + '_ {
        Fields::new(bytes, range).filter_map(move |field| match field {
            Ok(field) if field.number == self.number => Some(Ok(field.wire)),
            Ok(_) => None,
            Err(fault) => Some(Err(fault)),
        })
    }

    /// How many bytes the items become, and the run that holds them when there is only one.
    fn measure(
        self,
        bytes: &[u8],
        range: Range<usize>,
    ) -> Result<(u64, Option<Range<usize>>), Fault> {
        let (mut items, mut runs, mut only) = (0u64, 0u64, None);
        for wire in self.runs(bytes, range) {
            runs += 1;
            items += match wire? {
                Wire::Number(_) => 1,
                Wire::Fixed(range) => {
                    only = Some(range);
                    1
                }
                Wire::Bytes(range) => {
                    let count = match self.width_on_wire {
                        Some(width) if range.len().is_multiple_of(width) => range.len() / width,
                        Some(width) => {
                            return Err(Fault::SizeMismatch {
                                what: format!("{} bytes of {width}-byte numbers", range.len()),
                            });
                        }
                        // Every varint ends in the one byte of it that has no top bit.
                        None => bytes[range.clone()]
                            .iter()
                            .filter(|byte| *byte & 128 == 0)
                            .count(),
                    };
                    only = Some(range);
                    count as u64
                }
            };
        }
        let found = items
            .checked_mul(self.width as u64)
            .ok_or_else(|| Fault::Overflow {
                what: format!("{items} items"),
            })?;
        Ok((
            found,
            if runs == 0 {
                Some(0..0)
            } else {
                only.filter(|_| runs == 1)
            },
        ))
    }

    /// Writes the items as little-endian values.
    fn write(self, bytes: &[u8], out: &mut dyn Write) -> Result<(), Fault> {
        let io = |error: io::Error| Fault::Io {
            what: error.to_string(),
        };
        for wire in self.runs(bytes, 0..bytes.len()) {
            match (wire?, self.width_on_wire) {
                (Wire::Fixed(range), _) | (Wire::Bytes(range), Some(_)) => {
                    out.write_all(&bytes[range]).map_err(io)?;
                }
                (Wire::Number(value), _) => out
                    .write_all(&value.to_le_bytes()[..self.width])
                    .map_err(io)?,
                (Wire::Bytes(range), None) => {
                    let mut buffer = Vec::with_capacity(1 << 12);
                    for value in Varints::new(&bytes[range]) {
                        let value = value.map_err(|broken| Fault::BadHeader {
                            what: format!("a number in its data: {broken:?}"),
                        })?;
                        buffer.extend_from_slice(&value.to_le_bytes()[..self.width]);
                        if buffer.len() >= (1 << 12) - 8 {
                            out.write_all(&buffer).map_err(io)?;
                            buffer.clear();
                        }
                    }
                    out.write_all(&buffer).map_err(io)?;
                }
            }
        }
        Ok(())
    }
}

/// A tensor whose values are varints (or floats one by one): decoded when asked for.
struct Typed {
    what: String,
    dtype: DType,
    shape: Shape,
    len: u64,
    field: TypedField,
    message: Bytes,
    cache: Arc<Cache>,
}

impl Lazy for Typed {
    fn view(&self) -> Result<View, ReadError> {
        let bytes = self
            .cache
            .make(&self.what, self.len, &mut |out| {
                self.field.write(&self.message, out)
            })
            .map_err(|fault| ReadError::Decode(Box::new(fault)))?;
        self.message.check()?;
        Ok(View::new(self.dtype, self.shape.clone(), bytes)?)
    }
}

/// The files beside a model that hold its values. Each is opened once.
pub(super) struct External {
    folder: Option<PathBuf>,
    files: HashMap<String, Result<Bytes, Fault>>,
}

impl External {
    pub(super) fn new(model: Option<&Path>) -> Self {
        let folder = model.map(|path| match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        });
        Self {
            folder,
            files: HashMap::new(),
        }
    }

    /// The `len` bytes that `external_data` describes.
    pub(super) fn find(
        &mut self,
        pairs: &HashMap<String, String>,
        len: u64,
    ) -> Result<Bytes, Fault> {
        let number = |key: &str, default: u64| match pairs.get(key).map(|text| text.trim()) {
            None | Some("") => Ok(default),
            Some(text) => text.parse().map_err(|_| Fault::BadHeader {
                what: format!("the {key} of its external data is `{text}`"),
            }),
        };
        let location = pairs.get("location").ok_or_else(|| Fault::BadHeader {
            what: "external data without a location".to_owned(),
        })?;
        let (offset, length) = (number("offset", 0)?, number("length", len)?);
        if length != len {
            return Err(Fault::SizeMismatch {
                what: format!("it takes {len} bytes, its external data has {length}"),
            });
        }
        let file = self.open(location)?;
        let outside = || Fault::OutOfBounds {
            what: format!(
                "{len} bytes at {offset} of `{location}`, which has {}",
                file.len()
            ),
        };
        let end = offset.checked_add(len).ok_or_else(outside)?;
        file.slice(offset..end).ok_or_else(outside)
    }

    fn open(&mut self, location: &str) -> Result<Bytes, Fault> {
        if let Some(known) = self.files.get(location) {
            return known.clone();
        }
        let opened = match &self.folder {
            Some(folder) => inside(folder, location).and_then(|path| {
                crate::map::map_file(&path).map_err(|error| Fault::Io {
                    what: format!("`{location}`: {error}"),
                })
            }),
            None => Err(Fault::Unsupported {
                what: format!("`{location}` beside a model that is inside an archive"),
            }),
        };
        self.files.insert(location.to_owned(), opened.clone());
        opened
    }
}

/// The file `location` of `folder`: never above it, never through a link that leads out of it.
fn inside(folder: &Path, location: &str) -> Result<PathBuf, Fault> {
    let escape = || Fault::PathEscape {
        what: format!("`{location}`, which is outside of the model's folder"),
    };
    // Both separators, whatever this machine's is: the file may have been made for another.
    let plain = Path::new(location)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let foreign = location
        .split(['/', '\\'])
        .any(|part| part == ".." || part.ends_with(':'))
        || location.starts_with('\\');
    if !plain || foreign {
        return Err(escape());
    }
    let missing = |what: &str| Fault::Missing {
        what: format!("`{location}` beside the model: {what}"),
    };
    let home = folder
        .canonicalize()
        .map_err(|error| missing(&error.to_string()))?;
    let path = home
        .join(location)
        .canonicalize()
        .map_err(|error| missing(&error.to_string()))?;
    if !path.starts_with(&home) {
        return Err(escape());
    }
    if !path.is_file() {
        return Err(missing("it is not a file"));
    }
    Ok(path)
}
