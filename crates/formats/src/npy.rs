//! NumPy's `.npy`: a magic number, a Python dict literal with the dtype, order and shape, then the elements.
//!
//! The literal is parsed, never evaluated: strings, integers, booleans, `None`, lists, tuples and dicts, nested to a
//! bound. Fortran order and foreign byte order become views over the map. Records keep the bytes of the file, each field
//! in the byte order its `descr` (in the tensor's metadata) says. An array of objects is a pickle: what tensors it holds are
//! listed, nothing of it is executed.

use crate::{
    contents::{Contents, Data, Entry},
    error::Fault,
    input::{Context, Input},
    torch,
};
use twinscope_tensor::{Bytes, DType, FindingKind, Meta, Shape, TimeUnit, View};

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy refuses to read more than 10,000 characters unless told otherwise; records with many fields are told otherwise.
pub(crate) const MAX_HEADER: u64 = 1 << 20;
/// How deep a literal may nest: records in records, each level taking a list and a tuple.
const MAX_DEPTH: usize = 64;
/// Elements that take no bytes cost a file nothing to claim, but take time to walk.
const MAX_EMPTY_ITEMS: u64 = 1 << 20;

pub(crate) fn recognise(input: &Input) -> bool {
    input.bytes.starts_with(MAGIC)
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("npy");
    let header = Header::parse(&input.bytes, context.limits.rank)?;
    if header.objects {
        let pickle = input
            .bytes
            .slice(header.start..input.bytes.len() as u64)
            .expect("the header was inside");
        return objects(&pickle, context, contents);
    }
    let need = header.byte_len()?;
    let rest = input.bytes.len() as u64 - header.start;
    if rest < need {
        return Err(Fault::Truncated {
            what: format!("{} takes {need} bytes, {rest} are there", header.text()),
        });
    }
    if rest > need {
        // np.load stops here too; np.save called twice on one open file writes such files.
        let what = match input.bytes[(header.start + need) as usize..].starts_with(MAGIC) {
            true => "another array, which is not read",
            false => "bytes that belong to no array",
        };
        contents.find(
            FindingKind::Odd,
            format!("after the array follow {} bytes: {what}", rest - need),
        );
    }
    let bytes = input
        .bytes
        .slice(header.start..header.start + need)
        .expect("just compared with the file's length");
    contents.entries.push(header.entry(String::new(), bytes)?);
    if contents.entries[0].dtype == DType::F8E5M2 {
        contents.find(
            FindingKind::Odd,
            "NumPy has no type `f1`; ml_dtypes writes float8_e5m2 that way",
        );
    }
    Ok(contents)
}

/// The tensors inside an array of objects (`np.save` of a dict), told to be what NumPy refuses to load by default.
pub(crate) fn objects(
    pickle: &Bytes,
    context: &Context,
    mut contents: Contents,
) -> Result<Contents, Fault> {
    let read = torch::plain::read_pickle(pickle, context, &mut contents);
    contents.find(FindingKind::Odd, "an object array: a pickle, which NumPy loads only with allow_pickle; nothing of it is executed");
    let attacked = contents
        .findings
        .iter()
        .any(|finding| finding.kind.is_attack());
    match read {
        Ok(_) => Ok(contents),
        Err(fault) if attacked => {
            contents.skip("the rest", fault);
            Ok(contents)
        }
        Err(fault) => Err(Fault::Unsupported {
            what: format!("an object array, whose pickle cannot be followed: {fault}"),
        }),
    }
}

/// What stands before the elements.
#[derive(Debug)]
pub(crate) struct Header {
    /// `None` for objects, alone or in records.
    pub(crate) dtype: Option<DType>,
    /// The elements are objects and nothing else: what follows is a pickle.
    pub(crate) objects: bool,
    pub(crate) shape: Shape,
    pub(crate) big_endian: bool,
    pub(crate) fortran: bool,
    pub(crate) meta: Meta,
    /// Where the elements begin.
    pub(crate) start: u64,
}

impl Header {
    /// How many bytes of the file the header takes, known from its first twelve.
    pub(crate) fn length(bytes: &[u8]) -> Result<u64, Fault> {
        let short = || Fault::Truncated {
            what: format!("{} bytes are too few for an .npy header", bytes.len()),
        };
        if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) {
            return Err(Fault::BadHeader {
                what: "it does not begin with \\x93NUMPY".to_owned(),
            });
        }
        let (prefix, length) = match bytes.get(6).ok_or_else(short)? {
            1 => (
                10,
                u64::from(u16::from_le_bytes(
                    bytes
                        .get(8..10)
                        .ok_or_else(short)?
                        .try_into()
                        .expect("two bytes"),
                )),
            ),
            2 | 3 => (
                12,
                u64::from(u32::from_le_bytes(
                    bytes
                        .get(8..12)
                        .ok_or_else(short)?
                        .try_into()
                        .expect("four bytes"),
                )),
            ),
            major => {
                return Err(Fault::Unsupported {
                    what: format!(".npy version {major}; 1, 2 and 3 exist"),
                });
            }
        };
        if length > MAX_HEADER {
            return Err(Fault::BadHeader {
                what: format!("a header of {length} bytes; {MAX_HEADER} are allowed"),
            });
        }
        Ok(prefix + length)
    }

    pub(crate) fn parse(bytes: &[u8], max_rank: usize) -> Result<Self, Fault> {
        let start = Self::length(bytes)?;
        let header = bytes
            .get(if bytes[6] == 1 { 10 } else { 12 }..start as usize)
            .ok_or_else(|| Fault::Truncated {
                what: format!(
                    "the header ends at byte {start}, the file at {}",
                    bytes.len()
                ),
            })?;
        // Latin-1 until version 3; its bytes are the first 256 characters.
        let text = match bytes[6] {
            3 => std::str::from_utf8(header)
                .map_err(|_| bad("the header is not UTF-8"))?
                .to_owned(),
            _ => header.iter().map(|byte| char::from(*byte)).collect(),
        };
        let mut parser = Parser {
            chars: text.chars().collect(),
            at: 0,
        };
        let Literal::Dict(items) = parser.value(MAX_DEPTH)? else {
            return Err(bad("the header is not a dict"));
        };
        parser.space();
        if parser.at != parser.chars.len() {
            return Err(bad("the header goes on after its dict"));
        }
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        for (key, value) in items {
            let Literal::Str(key) = key else {
                return Err(bad("a key is not a string"));
            };
            let slot = match key.as_str() {
                "descr" => &mut descr,
                "fortran_order" => &mut fortran,
                "shape" => &mut shape,
                _ => {
                    return Err(bad(format!(
                        "an unknown key `{}`",
                        key.chars().take(40).collect::<String>()
                    )));
                }
            };
            if slot.replace(value).is_some() {
                return Err(bad(format!("`{key}` a second time")));
            }
        }
        let missing = |key: &str| bad(format!("`{key}` is missing"));
        let descr = descr.ok_or_else(|| missing("descr"))?;
        let Some(Literal::Bool(fortran)) = fortran else {
            return Err(missing("fortran_order"));
        };
        let shape = dims(&shape.ok_or_else(|| missing("shape"))?)?;
        if shape.len() > max_rank {
            return Err(Fault::BadShape {
                what: format!("{} dimensions; {max_rank} are allowed", shape.len()),
            });
        }
        let item = Item::parse(&descr)?;
        let mut meta = Meta::None;
        if matches!(item.dtype, Some(DType::Struct(_))) {
            meta.get_or_insert_default()
                .insert("descr".to_owned(), descr.to_json());
        }
        let objects = item.dtype.is_none() && matches!(descr, Literal::Str(_));
        Ok(Self {
            dtype: item.dtype,
            objects,
            shape: shape.into(),
            big_endian: item.big_endian,
            fortran,
            meta,
            start,
        })
    }

    /// What the elements take. Object arrays have no such number and are refused.
    pub(crate) fn byte_len(&self) -> Result<u64, Fault> {
        let Some(dtype) = self.dtype else {
            return Err(Fault::Unsupported {
                what:
                    "an object array: its elements are a pickle, which NumPy too refuses by default"
                        .to_owned(),
            });
        };
        let overflow = || Fault::Overflow {
            what: format!("{} has more bytes than can be counted", self.text()),
        };
        let elements = self.shape.elements().ok_or_else(overflow)?;
        if dtype.itemsize() == Some(0) && elements > MAX_EMPTY_ITEMS {
            return Err(Fault::BadShape {
                what: format!("{} claims {elements} elements of no bytes", self.text()),
            });
        }
        dtype.byte_len(elements).ok_or_else(overflow)
    }

    fn text(&self) -> String {
        let dtype = self
            .dtype
            .map(|dtype| dtype.to_string())
            .unwrap_or_else(|| "object".to_owned());
        format!("{} of {dtype}", self.shape)
    }

    /// The tensor over exactly its bytes.
    pub(crate) fn entry(self, name: String, bytes: Bytes) -> Result<Entry, Fault> {
        let plain = !self.fortran && !self.big_endian;
        let view = self.view(bytes.clone())?;
        let data = if plain {
            Data::Plain(bytes)
        } else {
            Data::View(Box::new(view.clone()))
        };
        Ok(Entry {
            name,
            dtype: view.dtype(),
            shape: self.shape,
            meta: self.meta,
            data,
        })
    }

    pub(crate) fn view(&self, bytes: Bytes) -> Result<View, Fault> {
        self.byte_len()?;
        let dtype = self.dtype.expect("byte_len refuses objects");
        let view = View::new(dtype, self.shape.clone(), bytes.clone())?;
        if !self.fortran {
            return Ok(view.big_endian(self.big_endian));
        }
        // The first dimension is the fastest. An empty array has nothing to step over, and its sizes may overflow.
        let mut step: i64 = 1;
        let strides = self
            .shape
            .dims()
            .iter()
            .map(|dim| {
                let stride = step;
                step = step.saturating_mul(i64::try_from(*dim).unwrap_or(i64::MAX));
                stride
            })
            .collect();
        Ok(
            View::strided(dtype, self.shape.clone(), strides, 0, bytes)?
                .big_endian(self.big_endian),
        )
    }
}

fn bad(what: impl Into<String>) -> Fault {
    Fault::BadHeader { what: what.into() }
}

fn dims(shape: &Literal) -> Result<Vec<u64>, Fault> {
    let (Literal::Tuple(items) | Literal::List(items)) = shape else {
        return Err(bad("the shape is not a tuple"));
    };
    let dim = |item: &Literal| match item {
        Literal::Int(n @ 0..) => u64::try_from(*n).map_err(|_| Fault::Overflow {
            what: format!("a dimension of {n}"),
        }),
        Literal::Int(n) => Err(Fault::BadShape {
            what: format!("a dimension of {n}"),
        }),
        _ => Err(bad("a dimension is not an integer")),
    };
    items.iter().map(dim).collect()
}

/// The type of one element.
struct Item {
    /// `None` for objects, alone or inside a record.
    dtype: Option<DType>,
    big_endian: bool,
}

impl Item {
    fn parse(descr: &Literal) -> Result<Self, Fault> {
        match descr {
            Literal::Str(text) => Self::scalar(text),
            Literal::List(_) => {
                let dtype = match record_size(descr)? {
                    Some(size) => Some(DType::Struct(u32::try_from(size).map_err(|_| {
                        Fault::Overflow {
                            what: format!("records of {size} bytes"),
                        }
                    })?)),
                    None => None,
                };
                Ok(Self {
                    dtype,
                    big_endian: false,
                })
            }
            _ => Err(Fault::BadDtype {
                what: "`descr` is neither a string nor a list of fields".to_owned(),
            }),
        }
    }

    /// `<f4`, `>i8`, `|S5`, `<M8[25s]`, ...
    fn scalar(text: &str) -> Result<Self, Fault> {
        let unknown = || Fault::BadDtype {
            what: format!("`{}`", text.chars().take(40).collect::<String>()),
        };
        let (order, rest) = match text.as_bytes().first() {
            Some(order @ (b'<' | b'>' | b'|' | b'=')) => (*order, &text[1..]),
            _ => (b'=', text),
        };
        let kind = rest
            .chars()
            .next()
            .filter(char::is_ascii)
            .ok_or_else(unknown)?;
        let rest = &rest[1..];
        let (digits, unit) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
        let size = || digits.parse::<u64>().map_err(|_| unknown());
        if !unit.is_empty() && !matches!(kind, 'M' | 'm') {
            return Err(unknown());
        }
        // A size that no file can hold is an overflow, not a typo.
        let sized = |make: fn(u32) -> DType| {
            let size = digits
                .parse::<u64>()
                .ok()
                .and_then(|n| u32::try_from(n).ok())
                .filter(|n| *n <= i32::MAX as u32 / 4);
            size.map(make).ok_or_else(|| match digits.is_empty() {
                true => unknown(),
                false => Fault::Overflow {
                    what: format!(
                        "elements of the size in `{}`",
                        text.chars().take(40).collect::<String>()
                    ),
                },
            })
        };
        let dtype = match kind {
            '?' if digits.is_empty() => DType::Bool,
            'O' => {
                return Ok(Self {
                    dtype: None,
                    big_endian: false,
                });
            }
            'U' => sized(DType::Str)?,
            'S' | 'a' => sized(DType::Bytes)?,
            'V' => sized(DType::Void)?,
            'M' if size()? == 8 => DType::DateTime(time_unit(unit).ok_or_else(unknown)?),
            'm' if size()? == 8 => DType::TimeDelta(time_unit(unit).ok_or_else(unknown)?),
            _ => match (kind, size()?) {
                ('b', 1) => DType::Bool,
                ('i', 1) => DType::I8,
                ('i', 2) => DType::I16,
                ('i', 4) => DType::I32,
                ('i', 8) => DType::I64,
                ('u', 1) => DType::U8,
                ('u', 2) => DType::U16,
                ('u', 4) => DType::U32,
                ('u', 8) => DType::U64,
                // Not NumPy's: the one type of ml_dtypes that calls itself a float of one byte.
                ('f', 1) => DType::F8E5M2,
                ('f', 2) => DType::F16,
                ('f', 4) => DType::F32,
                ('f', 8) => DType::F64,
                ('f', 16) => DType::F80,
                ('c', 8) => DType::C64,
                ('c', 16) => DType::C128,
                ('c', 32) => DType::C160,
                _ => return Err(unknown()),
            },
        };
        Ok(Self {
            dtype: Some(dtype),
            big_endian: order == b'>',
        })
    }
}

/// `[25s]`, `[D]`, or nothing.
fn time_unit(text: &str) -> Option<TimeUnit> {
    if text.is_empty() {
        return TimeUnit::new(1, "generic");
    }
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    let (count, unit) = inside.split_at(inside.bytes().take_while(u8::is_ascii_digit).count());
    TimeUnit::new(
        if count.is_empty() {
            1
        } else {
            count.parse().ok()?
        },
        unit,
    )
}

/// Bytes of a record: its fields one after the other, padding being a field too. `None` when an object is among them.
fn record_size(descr: &Literal) -> Result<Option<u64>, Fault> {
    let overflow = || Fault::Overflow {
        what: "a record's size".to_owned(),
    };
    let fields = match descr {
        Literal::Str(text) => {
            return Ok(Item::scalar(text)?
                .dtype
                .map(|dtype| dtype.itemsize().expect("NumPy packs nothing") as u64));
        }
        Literal::List(fields) => fields,
        _ => {
            return Err(Fault::BadDtype {
                what: "a field's type is neither a string nor a list of fields".to_owned(),
            });
        }
    };
    let mut total = Some(0u64);
    for field in fields {
        let (kind, shape) = match field {
            Literal::Tuple(parts) => match parts.as_slice() {
                [_, kind] => (kind, None),
                [_, kind, shape] => (kind, Some(shape)),
                _ => {
                    return Err(Fault::BadDtype {
                        what: format!("a field of {} parts", parts.len()),
                    });
                }
            },
            _ => {
                return Err(Fault::BadDtype {
                    what: "a field is not a tuple".to_owned(),
                });
            }
        };
        // The nesting was bounded when the literal was parsed.
        let mut size = record_size(kind)?;
        if let (Some(bytes), Some(shape)) = (size, shape) {
            let dims = if let Literal::Int(_) = shape {
                dims(&Literal::List(vec![shape.clone()]))?
            } else {
                dims(shape)?
            };
            let elements = Shape::from(dims).elements().ok_or_else(overflow)?;
            size = Some(bytes.checked_mul(elements).ok_or_else(overflow)?);
        }
        total = match (total, size) {
            (Some(total), Some(size)) => Some(total.checked_add(size).ok_or_else(overflow)?),
            _ => None,
        };
    }
    Ok(total)
}

/// What a header may hold.
#[derive(Clone, Debug, PartialEq)]
enum Literal {
    None,
    Bool(bool),
    Int(i128),
    Str(String),
    List(Vec<Literal>),
    Tuple(Vec<Literal>),
    Dict(Vec<(Literal, Literal)>),
}

impl Literal {
    fn to_json(&self) -> serde_json::Value {
        match self {
            Literal::None | Literal::Dict(_) => serde_json::Value::Null,
            Literal::Bool(yes) => (*yes).into(),
            Literal::Int(n) => i64::try_from(*n).map_or_else(|_| n.to_string().into(), Into::into),
            Literal::Str(text) => text.as_str().into(),
            Literal::List(items) | Literal::Tuple(items) => {
                items.iter().map(Literal::to_json).collect()
            }
        }
    }
}

struct Parser {
    chars: Vec<char>,
    at: usize,
}

impl Parser {
    fn bad(&self, what: &str) -> Fault {
        bad(format!("{what} at character {} of the header", self.at))
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        self.space();
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Literal, Fault> {
        self.space();
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.bad(&format!("literals nested deeper than {MAX_DEPTH}")));
        };
        match self.peek() {
            Some('{') => self.dict(depth),
            Some('[') => Ok(Literal::List(self.items(']', depth)?.0)),
            Some('(') => {
                let (mut items, comma) = self.items(')', depth)?;
                // `(x)` is x, `(x,)` a tuple.
                if items.len() == 1 && !comma {
                    Ok(items.remove(0))
                } else {
                    Ok(Literal::Tuple(items))
                }
            }
            Some('\'' | '"') => self.string(),
            Some('u' | 'b') if matches!(self.chars.get(self.at + 1), Some('\'' | '"')) => {
                self.at += 1;
                self.string()
            }
            Some('-' | '0'..='9') => self.integer(),
            _ => {
                let rest = &self.chars[self.at..];
                for (word, value) in [
                    ("True", Literal::Bool(true)),
                    ("False", Literal::Bool(false)),
                    ("None", Literal::None),
                ] {
                    if rest.iter().copied().take(word.len()).eq(word.chars()) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.bad("not a literal"))
            }
        }
    }

    /// The items up to `close`, and whether a comma followed the last one.
    fn items(&mut self, close: char, depth: usize) -> Result<(Vec<Literal>, bool), Fault> {
        self.at += 1;
        let (mut items, mut comma) = (Vec::new(), true);
        while !self.take(close) {
            if !comma {
                return Err(self.bad("a comma is missing"));
            }
            items.push(self.value(depth)?);
            comma = self.take(',');
        }
        Ok((items, comma))
    }

    fn dict(&mut self, depth: usize) -> Result<Literal, Fault> {
        self.at += 1;
        let (mut items, mut comma) = (Vec::new(), true);
        while !self.take('}') {
            if !comma {
                return Err(self.bad("a comma is missing"));
            }
            let key = self.value(depth)?;
            if !self.take(':') {
                return Err(self.bad("a colon is missing"));
            }
            items.push((key, self.value(depth)?));
            comma = self.take(',');
        }
        Ok(Literal::Dict(items))
    }

    fn string(&mut self) -> Result<Literal, Fault> {
        let quote = self.peek();
        self.at += 1;
        let mut text = String::new();
        loop {
            let Some(next) = self.peek() else {
                return Err(self.bad("a string without an end"));
            };
            self.at += 1;
            match next {
                next if Some(next) == quote => return Ok(Literal::Str(text)),
                '\\' => text.push(self.escape()?),
                next => text.push(next),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let letter = self
            .peek()
            .ok_or_else(|| self.bad("an escape without an end"))?;
        self.at += 1;
        let digits = match letter {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            'n' => return Ok('\n'),
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            '\\' | '\'' | '"' => return Ok(letter),
            _ => return Err(self.bad("an unknown escape")),
        };
        let mut code = 0u32;
        for _ in 0..digits {
            let digit = self
                .peek()
                .and_then(|digit| digit.to_digit(16))
                .ok_or_else(|| self.bad("an escape without its digits"))?;
            // Eight digits are exactly 32 bits.
            code = code << 4 | digit;
            self.at += 1;
        }
        char::from_u32(code).ok_or_else(|| self.bad("an escape that is no character"))
    }

    fn integer(&mut self) -> Result<Literal, Fault> {
        let negative = self.peek() == Some('-');
        self.at += usize::from(negative);
        let start = self.at;
        let mut value: i128 = 0;
        while let Some(digit) = self.peek().and_then(|digit| digit.to_digit(10)) {
            value = value
                .checked_mul(10)
                .and_then(|value| value.checked_add(i128::from(digit)))
                .ok_or_else(|| Fault::Overflow {
                    what: format!("an integer at character {start} of the header"),
                })?;
            self.at += 1;
        }
        if self.at == start {
            return Err(self.bad("not an integer"));
        }
        // Python 2 marks long integers.
        if self.peek() == Some('L') {
            self.at += 1;
        }
        Ok(Literal::Int(if negative { -value } else { value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, input};
    use proptest::prelude::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn open(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Result<Contents, Fault> {
        let header =
            format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}   \n");
        read(&input("x.npy", file(&header, data)), &context())
    }

    fn bytes(contents: &Contents) -> Vec<u8> {
        let view = contents.entries[0].view().unwrap();
        let mut scratch = Vec::new();
        view.chunk(0, view.len() as usize, &mut scratch).to_vec()
    }

    #[test]
    fn fortran_order_and_big_endian_are_read_in_place() {
        let contents = open(
            "'>i2'",
            "True",
            "(2, 3)",
            &[0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6],
        )
        .unwrap();
        assert_eq!(bytes(&contents), [1, 0, 3, 0, 5, 0, 2, 0, 4, 0, 6, 0]);
    }

    #[test]
    fn every_scalar_type_has_its_width() {
        for (descr, dtype, width) in [
            ("'|b1'", "bool", 1),
            ("'<f16'", "float128", 16),
            ("'<c32'", "complex256", 32),
            ("'<U3'", "str96", 12),
            ("'|S5'", "bytes40", 5),
            ("'|V4'", "void32", 4),
            ("'<M8[25s]'", "datetime64[25s]", 8),
            ("'<m8[D]'", "timedelta64[D]", 8),
            ("'<M8'", "datetime64", 8),
            ("[('a', '<i4'), ('b', '>f8'), ('c', '|S3')]", "struct", 15),
            (
                "[('p', [('x', '<f4'), ('y', '<f4')]), ('m', '<i2', (2, 2)), ('n', '|u1', 3), ('', '|V5')]",
                "struct",
                24,
            ),
        ] {
            let contents = open(descr, "False", "(2L,)", &vec![7; 2 * width]).unwrap();
            assert_eq!(contents.entries[0].dtype.to_string(), dtype, "{descr}");
            assert_eq!(bytes(&contents), vec![7; 2 * width], "{descr}");
        }
    }

    #[test]
    fn a_record_tells_its_fields() {
        let contents = open(
            "[('a', '<i4'), (('title', 'b'), '>f8')]",
            "False",
            "()",
            &[0; 12],
        )
        .unwrap();
        assert_eq!(
            contents.entries[0].meta.as_ref().unwrap()["descr"].to_string(),
            r#"[["a","<i4"],[["title","b"],">f8"]]"#
        );
    }

    #[test]
    fn trailing_bytes_are_found_and_missing_ones_refused() {
        assert_eq!(
            open("'|u1'", "False", "(3,)", &[0; 5])
                .unwrap()
                .findings
                .len(),
            1
        );
        assert!(matches!(
            open("'|u1'", "False", "(3,)", &[0; 2]),
            Err(Fault::Truncated { .. })
        ));
    }

    #[test]
    fn code_is_not_a_literal() {
        for shape in [
            "(__import__('os').system('x'),)",
            "(1+1,)",
            "[x for x in ()]",
            "(1,,)",
            "{",
            "'",
            "(1 2)",
            "-",
        ] {
            assert!(
                matches!(
                    open("'<f4'", "False", shape, &[0; 4]),
                    Err(Fault::BadHeader { .. })
                ),
                "{shape}"
            );
        }
        let deep = format!("{}{}", "(".repeat(20_000), ")".repeat(20_000));
        assert!(matches!(
            open("'<f4'", "False", &deep, &[]),
            Err(Fault::BadHeader { .. })
        ));
    }

    #[test]
    fn what_is_no_array_is_refused_by_its_kind() {
        assert!(matches!(
            open("'|O'", "False", "()", &[0; 8]),
            Err(Fault::Unsupported { .. })
        ));
        assert!(matches!(
            open("[('a', '|O')]", "False", "()", &[0; 8]),
            Err(Fault::Unsupported { .. })
        ));
        assert!(matches!(
            open("'<f5'", "False", "()", &[0; 8]),
            Err(Fault::BadDtype { .. })
        ));
        assert!(matches!(
            open("'<U99999999999'", "False", "()", &[0; 8]),
            Err(Fault::Overflow { .. })
        ));
        assert!(matches!(
            open(
                "[('a', '|V1000000000', (1000000000, 1000000000))]",
                "False",
                "()",
                &[]
            ),
            Err(Fault::Overflow { .. })
        ));
        assert!(matches!(
            open("'<f8'", "False", "(4611686018427387904, 4)", &[0; 8]),
            Err(Fault::Overflow { .. })
        ));
        assert!(matches!(
            open("'<f8'", "False", "(-1,)", &[0; 8]),
            Err(Fault::BadShape { .. })
        ));
        assert!(matches!(
            open("'|S0'", "False", "(99999999999,)", &[]),
            Err(Fault::BadShape { .. })
        ));
        assert!(
            open(
                "'<f8'",
                "True",
                "(0, 18446744073709551615, 9999999999999)",
                &[]
            )
            .is_ok()
        );
    }

    proptest! {
        #[test]
        fn no_header_panics(header in "[\\[\\](){}'\":, <>|=a-zA-Z0-9\\\\L-]{0,80}", data in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(&input("x.npy", file(&header, &data)), &context());
        }

        #[test]
        fn no_damage_panics(at in 0usize..110, byte in any::<u8>(), cut in 0usize..140, version in 0u8..5) {
            let mut bytes = file("{'descr': [('a', '<i4', (2,)), ('b', '>U2')], 'fortran_order': True, 'shape': (2, 1L), }", &[1; 40]);
            bytes[6] = version;
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            bytes.truncate(cut);
            let _ = read(&input("x.npy", bytes), &context()).map(|contents| contents.entries[0].view().map(drop));
        }
    }
}
