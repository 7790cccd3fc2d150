//! Numbers that JSON cannot spell.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type},
    },
};

/// A number that may be NaN or infinite, which JSON has no number for: then it is one of three strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            x if x.is_nan() => serializer.serialize_str("NaN"),
            f64::INFINITY => serializer.serialize_str("Infinity"),
            f64::NEG_INFINITY => serializer.serialize_str("-Infinity"),
            x => serializer.serialize_f64(x),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(f64),
            Word(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(x) => Ok(Self(x)),
            Either::Word(word) => match word.as_str() {
                "NaN" => Ok(Self(f64::NAN)),
                "Infinity" => Ok(Self(f64::INFINITY)),
                "-Infinity" => Ok(Self(f64::NEG_INFINITY)),
                _ => Err(serde::de::Error::custom(format!(
                    "`{word}` is not a number"
                ))),
            },
        }
    }
}

impl PartialSchema for Number {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Number));
        let word = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .enum_values(Some(["NaN", "Infinity", "-Infinity"]))
            .build();
        OneOfBuilder::new().item(number).item(word).into()
    }
}

impl ToSchema for Number {
    fn name() -> std::borrow::Cow<'static, str> {
        "Number".into()
    }
}

impl From<f64> for Number {
    fn from(x: f64) -> Self {
        Self(x)
    }
}

impl From<Number> for f64 {
    fn from(number: Number) -> Self {
        number.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinities_round_trip_through_json() {
        let numbers = [
            Number(f64::NAN),
            Number(f64::INFINITY),
            Number(f64::NEG_INFINITY),
            Number(0.1),
        ];
        let text = serde_json::to_string(&numbers).unwrap();
        assert_eq!(text, r#"["NaN","Infinity","-Infinity",0.1]"#);
        let back: Vec<Number> = serde_json::from_str(&text).unwrap();
        assert!(back[0].0.is_nan() && back[1..] == numbers[1..]);
        assert!(serde_json::from_str::<Number>(r#""nought""#).is_err());
    }
}
