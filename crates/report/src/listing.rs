//! What a source holds: `ls --json` and `stats --json`.
//!
//! Rows borrow from the source that is listed, because there can be 100,000 of them.

use crate::Number;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use utoipa::ToSchema;

type Meta = serde_json::Map<String, serde_json::Value>;

/// `ls --json`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Listing<'a> {
    #[schema(value_type = String)]
    pub source: Cow<'a, str>,
    #[schema(value_type = String)]
    pub format: Cow<'a, str>,
    pub tensors: Vec<TensorRow<'a>>,
    pub values: Vec<ValueRow<'a>>,
    pub skipped: Vec<SkippedRow<'a>>,
    pub findings: Vec<FindingRow<'a>>,
    /// About the source as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Cow<'a, Meta>>,
}

/// `stats --json`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatsListing<'a> {
    #[schema(value_type = String)]
    pub source: Cow<'a, str>,
    #[schema(value_type = String)]
    pub format: Cow<'a, str>,
    pub tensors: Vec<StatsRow<'a>>,
    pub skipped: Vec<SkippedRow<'a>>,
    pub findings: Vec<FindingRow<'a>>,
}

/// One tensor, as its header describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TensorRow<'a> {
    #[schema(value_type = String)]
    pub name: Cow<'a, str>,
    pub dtype: String,
    #[schema(value_type = Vec<u64>)]
    pub shape: Cow<'a, [u64]>,
    pub bytes: Option<u64>,
    pub order: usize,
    /// Only with `--hash`; null when the tensor could not be hashed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    #[schema(value_type = Option<String>)]
    pub sha256: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Cow<'a, Meta>>,
}

/// A null that is there is not the same as nothing.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A Python value that a file holds beside its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValueRow<'a> {
    #[schema(value_type = String)]
    pub name: Cow<'a, str>,
    #[schema(value_type = String)]
    pub r#type: Cow<'a, str>,
    /// Integers beyond 64 bits are strings of their digits, complex numbers `[real, imaginary]`, bytes null.
    #[schema(value_type = Object)]
    pub value: serde_json::Value,
}

/// What could not be read, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SkippedRow<'a> {
    #[schema(value_type = String)]
    pub name: Cow<'a, str>,
    #[schema(value_type = String)]
    pub reason: Cow<'a, str>,
}

/// Something odd or unsafe in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FindingRow<'a> {
    #[schema(value_type = String)]
    pub kind: Cow<'a, str>,
    #[schema(value_type = String)]
    pub text: Cow<'a, str>,
}

/// One tensor measured, over its finite values. Undefined is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatsRow<'a> {
    #[schema(value_type = String)]
    pub name: Cow<'a, str>,
    pub dtype: String,
    #[schema(value_type = Vec<u64>)]
    pub shape: Cow<'a, [u64]>,
    pub order: usize,
    pub count: u64,
    pub finite: Option<u64>,
    #[schema(value_type = Option<Object>)]
    pub mean: Option<Exact>,
    pub std: Option<Number>,
    #[schema(value_type = Option<Object>)]
    pub min: Option<Exact>,
    #[schema(value_type = Option<Object>)]
    pub max: Option<Exact>,
    pub nan: Option<u64>,
    pub inf: Option<u64>,
    pub pos_inf: Option<u64>,
    pub neg_inf: Option<u64>,
    pub zero: Option<u64>,
    pub norm: Option<Number>,
    #[schema(value_type = Option<Object>)]
    pub sum: Option<Exact>,
    #[schema(value_type = Option<Object>)]
    pub max_abs: Option<Exact>,
    /// Only when the squares left the range of f64 and were measured scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub squares: Option<Squares>,
}

/// Which end of the range of f64 the squares left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Squares {
    Overflowed,
    Underflowed,
}

/// A value with every digit: integers whole, complex numbers as `[real, imaginary]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exact {
    Int(i128),
    Float(f64),
    Complex(f64, f64),
}

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match *self {
            Exact::Int(value) => to.serialize_i128(value),
            Exact::Float(value) => Number(value).serialize(to),
            Exact::Complex(real, imaginary) => [Number(real), Number(imaginary)].serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // Integers beyond 64 bits arrive as floats: serde cannot buffer an i128.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Any {
            Signed(i64),
            Unsigned(u64),
            Float(Number),
            Complex([Number; 2]),
        }
        Ok(match Any::deserialize(from)? {
            Any::Signed(value) => Exact::Int(value.into()),
            Any::Unsigned(value) => Exact::Int(value.into()),
            Any::Float(value) => Exact::Float(value.0),
            Any::Complex([real, imaginary]) => Exact::Complex(real.0, imaginary.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_values_keep_every_digit() {
        let values = [
            Exact::Int(i128::from(u64::MAX) + 1),
            Exact::Int(-128),
            Exact::Float(f64::NAN),
            Exact::Complex(1.0, f64::INFINITY),
        ];
        let text = serde_json::to_string(&values).unwrap();
        assert_eq!(
            text,
            r#"[18446744073709551616,-128,"NaN",[1.0,"Infinity"]]"#
        );
        let back: Vec<Exact> = serde_json::from_str(&text).unwrap();
        assert_eq!([back[1], back[3]], [values[1], values[3]]);
    }

    #[test]
    fn a_tensor_without_a_hash_differs_from_one_that_could_not_be_hashed() {
        let plain = r#"{"name":"a","dtype":"f32","shape":[2],"bytes":8,"order":0}"#;
        let failed = r#"{"name":"a","dtype":"f32","shape":[2],"bytes":8,"order":0,"sha256":null}"#;
        for text in [plain, failed] {
            let row: TensorRow<'_> = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&row).unwrap(), text);
        }
    }
}
