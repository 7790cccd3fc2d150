//! The details of a cause: the facts of its kind, and a few that any kind can have.

use crate::{CauseKind, facts::*};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use twinscope_tensor::Side;

/// What a cause rests on.
///
/// In JSON one object: the keys of the facts and of the extras together, sorted. A report reads these as plain JSON, so they are only
/// ever added to.
#[derive(Clone, Debug, PartialEq)]
pub struct Details {
    pub facts: Facts,
    pub extras: Extras,
}

/// What any kind of cause can have beside its facts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extras {
    /// A second cause on top of this one: only both together are proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<Box<Then>>,
    /// How many values were examined, of a tensor that is too large to be read whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<usize>,
    /// How many values that tensor has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<usize>,
    /// How much of the alternative formula the candidate follows, by regression: near 1 when it computes that formula.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coefficient: Option<f64>,
    /// The jackknife error of the coefficient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coefficient_error: Option<f64>,
}

impl Extras {
    const KEYS: [&str; 5] = [
        "then",
        "looked_at",
        "of",
        "coefficient",
        "coefficient_error",
    ];
}

/// The second of two causes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Then {
    pub kind: CauseKind,
    pub text: String,
    pub details: Details,
}

macro_rules! facts_by_kind {
    ($($facts:ident of $($kind:ident)|+,)*) => {
        /// The facts of a cause, by kind.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Facts {
            $($facts($facts),)*
            /// Those of a newer version's report, as they are.
            Other(Value),
        }

        $(
            impl From<$facts> for Facts {
                fn from(facts: $facts) -> Self {
                    Self::$facts(facts)
                }
            }

            impl From<$facts> for Details {
                fn from(facts: $facts) -> Self {
                    Self { facts: facts.into(), extras: Extras::default() }
                }
            }
        )*

        impl Facts {
            /// `None` when these are not the facts of this kind.
            fn read(kind: &CauseKind, json: &Value) -> Option<Self> {
                match kind {
                    $($(CauseKind::$kind)|+ => $facts::deserialize(json).ok().map(Self::$facts),)*
                    CauseKind::Other(_) => None,
                }
            }
        }
    };
}

facts_by_kind! {
    Permuted of Permuted,
    Transposed of Transposed,
    Swapped of Swapped,
    WrongTensor of WrongTensor,
    Shifted of Shifted,
    Rotated of Rotated,
    Masked of Masked,
    PartialSum of PartialSum,
    Term of MissingTerm | ExtraTerm,
    Scale of Scale | Negated,
    ChannelScale of ChannelScale,
    RowScale of RowScale,
    Offset of Offset,
    Rounded of Rounded,
    Quantized of Quantized,
    Clipped of Clipped,
    Dropout of Dropout,
    Function of Function,
    Localized of Localized,
    LowRank of LowRank,
    RowAffine of RowAffine,
    Nonfinite of Nonfinite,
    SoftmaxScale of SoftmaxScale,
    Routing of Routing,
    InputDiffers of InputDiffers,
    Unknown of Unknown,
}

impl Details {
    /// The details of a cause of this kind, from their JSON. They are typed only if they would be written back unchanged; anything else
    /// (a newer version's, or a null where a number was NaN) is kept as it is.
    pub fn of(kind: &CauseKind, json: Value) -> Self {
        Self::typed(kind, &json)
            .filter(|details| details.json() == json)
            .unwrap_or_else(|| Self {
                facts: Facts::Other(json),
                extras: Extras::default(),
            })
    }

    fn typed(kind: &CauseKind, json: &Value) -> Option<Self> {
        let (extras, facts): (Map<_, _>, Map<_, _>) = json
            .as_object()?
            .clone()
            .into_iter()
            .partition(|(key, _)| Extras::KEYS.contains(&key.as_str()));
        Some(Self {
            facts: Facts::read(kind, &facts.into())?,
            extras: Extras::deserialize(Value::from(extras)).ok()?,
        })
    }

    /// As the report has them, keys sorted.
    pub fn json(&self) -> Value {
        // Only maps with keys that are no strings fail, and there are none.
        let json = |value: serde_json::Result<Value>| value.expect("every key is a string");
        let mut facts = json(serde_json::to_value(&self.facts));
        if let (Value::Object(facts), Value::Object(mut extras)) =
            (&mut facts, json(serde_json::to_value(&self.extras)))
        {
            facts.append(&mut extras);
        }
        facts
    }

    /// Whether the candidate has another tensor of its own run in this place. The reference has no such copy, so no upstream error made it.
    pub fn is_from_own_run(&self) -> bool {
        matches!(&self.facts, Facts::WrongTensor(wrong) if wrong.side() == Side::Candidate)
    }
}

impl Serialize for Details {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Then {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            kind: CauseKind,
            text: String,
            details: Value,
        }
        let Raw {
            kind,
            text,
            details,
        } = Raw::deserialize(deserializer)?;
        Ok(Self {
            details: Details::of(&kind, details),
            kind,
            text,
        })
    }
}
