//! Raw bytes: no header at all, so somebody has to say what they are. The user (`--raw 'f32[3,4]@0'`), or a JSON file
//! beside them: `blob.json` or `blob.bin.json` with `dtype`, `shape` and optionally `offset`, `byteorder` and `order`.

use crate::{
    contents::Contents,
    error::Fault,
    input::{Context, Input},
};
use std::{path::PathBuf, str::FromStr};
use twinscope_tensor::{DType, Shape, View};

/// A sidecar is a line of JSON; anything larger is some other file.
const MAX_SIDECAR: u64 = 1 << 16;

/// What raw bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawSpec {
    pub dtype: DType,
    /// At most one dimension is `None`: whatever the file's length leaves for it.
    pub shape: Vec<Option<u64>>,
    /// Where the elements begin, in bytes.
    pub offset: u64,
    pub big_endian: bool,
    /// The first dimension is the fastest.
    pub fortran: bool,
}

/// Why a `--raw` cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` does not describe raw bytes: {why}; write it like f32[3,4]@0 (? for a size to be worked out, > before a big-endian dtype)"
)]
pub struct RawSpecError {
    text: String,
    why: String,
}

impl FromStr for RawSpec {
    type Err = RawSpecError;

    fn from_str(text: &str) -> Result<Self, RawSpecError> {
        let error = |why: String| RawSpecError {
            text: text.to_owned(),
            why,
        };
        let (rest, offset) = match text.rsplit_once('@') {
            Some((rest, offset)) => (
                rest,
                offset
                    .trim()
                    .parse()
                    .map_err(|_| error(format!("the offset `{offset}` is not a whole number")))?,
            ),
            None => (text, 0),
        };
        let (dtype, dims) = match rest.split_once('[') {
            Some((dtype, dims)) => (
                dtype,
                dims.trim_end()
                    .strip_suffix(']')
                    .ok_or_else(|| error("a `]` is missing".to_owned()))?,
            ),
            // Without a shape it is one row of everything.
            None => (rest, "?"),
        };
        let (big_endian, name) = match dtype.trim().strip_prefix('>') {
            Some(name) => (true, name),
            None => (false, dtype.trim().trim_start_matches('<')),
        };
        let dtype =
            dtype_by_name(name).ok_or_else(|| error(format!("there is no dtype `{name}`")))?;
        let dim = |part: &str| match part.trim() {
            "?" | "-1" => Ok(None),
            size => size
                .parse()
                .map(Some)
                .map_err(|_| error(format!("`{size}` is not a size"))),
        };
        let dims = dims.trim().trim_end_matches(',');
        let shape = if dims.is_empty() {
            Vec::new()
        } else {
            dims.split(',').map(dim).collect::<Result<Vec<_>, _>>()?
        };
        if shape.iter().filter(|dim| dim.is_none()).count() > 1 {
            return Err(error("only one size can be worked out".to_owned()));
        }
        Ok(Self {
            dtype,
            shape,
            offset,
            big_endian,
            fortran: false,
        })
    }
}

/// A dtype by our name, NumPy's (`float32`) or torch's (`torch.float32`).
pub(crate) fn dtype_by_name(name: &str) -> Option<DType> {
    let name = name.strip_prefix("torch.").unwrap_or(name);
    Some(match name {
        "bool_" => DType::Bool,
        "uint8" => DType::U8,
        "int8" => DType::I8,
        "uint16" => DType::U16,
        "int16" => DType::I16,
        "uint32" => DType::U32,
        "int32" => DType::I32,
        "uint64" => DType::U64,
        "int64" => DType::I64,
        "float16" | "half" => DType::F16,
        "bfloat16" => DType::Bf16,
        "float32" | "float" => DType::F32,
        "float64" | "double" => DType::F64,
        "longdouble" => DType::F80,
        "complex32" => DType::C32,
        "complex64" => DType::C64,
        "complex128" => DType::C128,
        "float8_e4m3fn" => DType::F8E4M3Fn,
        "float8_e4m3fnuz" => DType::F8E4M3Fnuz,
        "float8_e5m2" => DType::F8E5M2,
        "float8_e5m2fnuz" => DType::F8E5M2Fnuz,
        "float8_e8m0fnu" => DType::F8E8M0Fnu,
        other => return DType::parse(other),
    })
}

/// The tensor that `spec` sees in the file, named after the file.
pub(crate) fn read_raw(input: &Input, spec: &RawSpec) -> Result<Contents, Fault> {
    let file = input.bytes.len() as u64;
    let left = file
        .checked_sub(spec.offset)
        .ok_or_else(|| Fault::OutOfBounds {
            what: format!(
                "the tensor begins at byte {}, the file ends at {file}",
                spec.offset
            ),
        })?;
    let shape = spec.resolve(left)?;
    let dtype = spec.dtype;
    let overflow = || Fault::Overflow {
        what: format!("{shape} of {dtype} has more bytes than can be counted"),
    };
    let need = shape
        .elements()
        .and_then(|elements| dtype.byte_len(elements))
        .ok_or_else(overflow)?;
    if need > left {
        // The description is as likely to be wrong as the file.
        return Err(Fault::SizeMismatch {
            what: format!(
                "{shape} of {dtype} takes {need} bytes, {left} follow byte {}",
                spec.offset
            ),
        });
    }
    let bytes = input
        .bytes
        .slice(spec.offset..spec.offset + need)
        .expect("just compared with the file's length");
    let mut view = View::new(dtype, shape.clone(), bytes.clone())?;
    if spec.fortran && shape.rank() > 1 {
        // Read it as its transpose, and turn that around.
        let mut dims = shape.dims().to_vec();
        dims.reverse();
        if dtype.itemsize().is_none() {
            return Err(Fault::Unsupported {
                what: format!("{dtype} in Fortran order"),
            });
        }
        let order: Vec<usize> = (0..shape.rank()).rev().collect();
        view = View::new(dtype, dims.into(), bytes)?.permute(&order);
    }
    let mut contents = Contents::new("raw");
    contents.push_view(String::new(), view.big_endian(spec.big_endian), None);
    Ok(contents)
}

impl RawSpec {
    /// The shape, with the open size worked out from the bytes that are left.
    fn resolve(&self, left: u64) -> Result<Shape, Fault> {
        let known: Shape = self
            .shape
            .iter()
            .flatten()
            .copied()
            .collect::<Vec<u64>>()
            .into();
        if known.rank() == self.shape.len() {
            return Ok(known);
        }
        let row = known
            .elements()
            .and_then(|elements| self.dtype.byte_len(elements));
        // Packed types need not fill a byte with one element; then the whole must be counted in elements.
        let open = match (row, self.dtype.packing()) {
            (Some(row @ 1..), twinscope_tensor::Packing::Bytes(_)) if left.is_multiple_of(row) => {
                left / row
            }
            (_, twinscope_tensor::Packing::Bits(bits))
                if known.elements().is_some_and(|n| n > 0) =>
            {
                left.checked_mul(8)
                    .map(|all| all / bits as u64 / known.elements().unwrap_or(1))
                    .unwrap_or(0)
            }
            (_, twinscope_tensor::Packing::Block { elements, bytes })
                if known.elements().is_some_and(|n| n > 0) =>
            {
                (left / bytes as u64).saturating_mul(elements as u64)
                    / known.elements().unwrap_or(1)
            }
            _ => {
                return Err(Fault::SizeMismatch {
                    what: format!(
                        "{left} bytes are not a whole number of {known} of {}",
                        self.dtype
                    ),
                });
            }
        };
        Ok(self
            .shape
            .iter()
            .map(|dim| dim.unwrap_or(open))
            .collect::<Vec<u64>>()
            .into())
    }

    fn from_json(text: &[u8]) -> Option<Self> {
        let json: serde_json::Value = serde_json::from_slice(text).ok()?;
        let json = json.as_object()?;
        let word = |key: &str, default: &'static str| {
            json.get(key).map_or(Some(default), |value| value.as_str())
        };
        let dim = |dim: &serde_json::Value| {
            if dim.as_i64() == Some(-1) {
                Some(None)
            } else {
                dim.as_u64().map(Some)
            }
        };
        let shape: Vec<Option<u64>> = json
            .get("shape")?
            .as_array()?
            .iter()
            .map(dim)
            .collect::<Option<_>>()?;
        if shape.iter().filter(|dim| dim.is_none()).count() > 1 {
            return None;
        }
        Some(Self {
            dtype: dtype_by_name(json.get("dtype")?.as_str()?)?,
            shape,
            offset: json.get("offset").map_or(Some(0), |value| value.as_u64())?,
            big_endian: matches!(word("byteorder", "little")?, "big" | ">" | "be"),
            fortran: matches!(word("order", "C")?, "F" | "f" | "fortran"),
        })
    }
}

pub(crate) fn recognise(input: &Input) -> bool {
    sidecar(input).is_some()
}

pub(crate) fn read(input: &Input, _context: &Context) -> Result<Contents, Fault> {
    let spec = sidecar(input).ok_or_else(|| Fault::Missing {
        what: "the JSON file beside it that gives dtype and shape".to_owned(),
    })?;
    read_raw(input, &spec)
}

fn sidecar(input: &Input) -> Option<RawSpec> {
    let path = input.path.as_ref()?;
    if input.extension() == "json" {
        return None;
    }
    let mut appended = path.clone().into_os_string();
    appended.push(".json");
    [path.with_extension("json"), PathBuf::from(appended)]
        .iter()
        .find_map(|beside| {
            // A pipe would wait for ever, a large file is something else.
            let facts = std::fs::metadata(beside).ok()?;
            (facts.is_file() && facts.len() <= MAX_SIDECAR)
                .then(|| std::fs::read(beside).ok())
                .flatten()
                .and_then(|text| RawSpec::from_json(&text))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::input;
    use proptest::prelude::*;

    fn bytes(spec: &str, data: &[u8]) -> Result<Vec<u8>, Fault> {
        let contents = read_raw(&input("x.bin", data.to_vec()), &spec.parse().unwrap())?;
        let view = contents.entries[0].view().unwrap();
        let mut scratch = Vec::new();
        Ok(view.chunk(0, view.len() as usize, &mut scratch).to_vec())
    }

    #[test]
    fn a_spec_says_what_the_bytes_are() {
        assert_eq!(
            bytes("u8[2,2]@1", &[9, 1, 2, 3, 4, 5]).unwrap(),
            [1, 2, 3, 4]
        );
        assert_eq!(bytes(">u16[?]", &[0, 1, 0, 2]).unwrap(), [1, 0, 2, 0]);
        assert_eq!(bytes("float32", &[0; 8]).unwrap().len(), 8);
        assert_eq!(bytes("i16[?,2]@4", &[7; 12]).unwrap().len(), 8);
        assert_eq!(bytes("F4[-1]", &[7; 3]).unwrap().len(), 3);
        assert_eq!(bytes("u8[]", &[7; 3]).unwrap(), [7]);
    }

    #[test]
    fn a_spec_that_makes_no_sense_says_why() {
        for text in [
            "", "f33[2]", "f32[2", "f32[a]", "f32[?,?]", "f32[2]@x", "f32[-2]",
        ] {
            assert!(text.parse::<RawSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_not_there_are_refused() {
        assert!(matches!(
            bytes("u8[5]", &[1]),
            Err(Fault::SizeMismatch { .. })
        ));
        assert!(matches!(
            bytes("u8[1]@9", &[1]),
            Err(Fault::OutOfBounds { .. })
        ));
        assert!(matches!(
            bytes("u16[?]", &[1, 2, 3]),
            Err(Fault::SizeMismatch { .. })
        ));
        assert!(matches!(
            bytes("u8[?,0]", &[1, 2, 3]),
            Err(Fault::SizeMismatch { .. })
        ));
        assert!(matches!(
            bytes("f64[9223372036854775807,9]", &[1]),
            Err(Fault::Overflow { .. })
        ));
    }

    #[test]
    fn a_json_file_beside_the_bytes_describes_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blob.bin");
        std::fs::write(
            dir.path().join("blob.json"),
            r#"{"dtype":"uint8","shape":[2,2],"offset":1,"order":"F"}"#,
        )
        .unwrap();
        let mut input = input("blob.bin", vec![0, 1, 2, 3, 4]);
        assert!(
            !recognise(&input),
            "bytes without a path have no neighbours"
        );
        input.path = Some(path);
        assert!(recognise(&input));
        let contents = read(&input, &crate::tests::context()).unwrap();
        let view = contents.entries[0].view().unwrap();
        assert_eq!(view.chunk(0, 4, &mut Vec::new()), [1, 3, 2, 4]);
        std::fs::write(dir.path().join("blob.json"), r#"{"hidden_size": 7}"#).unwrap();
        assert!(!recognise(&input), "some other JSON");
    }

    proptest! {
        #[test]
        fn no_spec_panics(text in "[a-z0-9<>]{0,6}\\[?[0-9,?-]{0,24}\\]?@?[0-9]{0,20}", data in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(spec) = text.parse::<RawSpec>() {
                let _ = read_raw(&input("x", data), &spec);
            }
        }

        #[test]
        fn no_sidecar_panics(text in "\\{\"dtype\":\"[a-z]{1,5}[0-9]{1,3}\",\"shape\":\\[[0-9,-]{0,20}\\],\"offset\":[0-9]{1,20}\\}", data in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(spec) = RawSpec::from_json(text.as_bytes()) {
                let _ = read_raw(&input("x", data), &spec);
            }
        }
    }
}
