//! Every `f64` as it is, also in formats for people, which have no NaN, no infinity and round: there it is the shortest text that means it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

pub(crate) fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() {
        format!("{number:?}").serialize(to)
    } else {
        number.serialize(to)
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    if from.is_human_readable() {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    } else {
        f64::deserialize(from)
    }
}

/// The same of what may not be there.
pub(crate) mod maybe {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Number(#[serde(with = "super")] f64);

    pub(crate) fn serialize<S: Serializer>(number: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        number.map(Number).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Number>::deserialize(from)?.map(|Number(number)| number))
    }
}

/// The same of two that may not be there.
pub(crate) mod two {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Numbers(#[serde(with = "super")] f64, #[serde(with = "super")] f64);

    pub(crate) fn serialize<S: Serializer>(
        numbers: &Option<[f64; 2]>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        numbers.map(|[a, b]| Numbers(a, b)).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<[f64; 2]>, D::Error> {
        Ok(Option::<Numbers>::deserialize(from)?.map(|Numbers(a, b)| [a, b]))
    }
}
