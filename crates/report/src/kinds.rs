//! The kinds of causes, and what follows from a kind alone.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{borrow::Cow, fmt};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema, schema::ObjectBuilder, schema::Type},
};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// Why a pair differs, in one word. `docs/causes.md` says how each is proven.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum CauseKind {
            $($(#[$doc])* $kind,)*
            /// A kind this version does not know. It keeps its name, so that a report of a newer version opens and is written back
            /// unchanged.
            Other(String),
        }

        impl CauseKind {
            /// Every kind this version knows.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The word in documents.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$kind => $name,)*
                    Self::Other(name) => name,
                }
            }

            /// The kind with this name. Never fails: an unknown name becomes [`CauseKind::Other`].
            pub fn parse(name: &str) -> Self {
                match name {
                    $($name => Self::$kind,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }
    };
}

kinds! {
    /// The reference's values along an axis, in another order.
    Permuted = "permuted",
    /// The reference with its axes in another order.
    Transposed = "transposed",
    /// This tensor and another have changed places.
    Swapped = "swapped",
    /// Another tensor of either run.
    WrongTensor = "wrong_tensor",
    /// Moved along an axis, or counted from another number.
    Shifted = "shifted",
    /// Rope with another setting.
    Rotated = "rotated",
    /// Attention sees other positions.
    Masked = "masked",
    /// One rank's part of a sum that was never reduced.
    PartialSum = "partial_sum",
    /// A term of a sum is not added.
    MissingTerm = "missing_term",
    /// A term of a sum is added too often.
    ExtraTerm = "extra_term",
    /// One factor for all values.
    Scale = "scale",
    /// One factor per channel.
    ChannelScale = "channel_scale",
    /// One factor per row.
    RowScale = "row_scale",
    /// A number or a vector is added.
    Offset = "offset",
    /// On the grid of a coarser dtype.
    Rounded = "rounded",
    /// On the levels of a quantized format.
    Quantized = "quantized",
    /// Clamped to bounds.
    Clipped = "clipped",
    /// Random zeros, the other values scaled up.
    Dropout = "dropout",
    /// The sign is flipped.
    Negated = "negated",
    /// Another elementwise function.
    Function = "function",
    /// Only some slices differ; nothing is known but where.
    Localized = "localized",
    /// The difference is a matrix of low rank.
    LowRank = "low_rank",
    /// A factor per row and a multiple per row of one vector, as LayerNorm for RMSNorm.
    RowAffine = "row_affine",
    /// NaN or infinity on one side.
    Nonfinite = "nonfinite",
    /// The scores before a softmax have another factor.
    SoftmaxScale = "softmax_scale",
    /// A router chose other experts where its scores are tied.
    Routing = "routing",
    /// The runs were given different inputs.
    InputDiffers = "input_differs",
    /// Nothing was proven.
    Unknown = "unknown",
}

impl CauseKind {
    /// Whether the candidate's values are the reference's, in other places. An upstream error changes values but does not move them, so
    /// such a cause is believed behind an error of any size.
    pub fn moves_values(&self) -> bool {
        matches!(
            self,
            Self::Permuted | Self::Transposed | Self::Swapped | Self::WrongTensor | Self::Shifted
        )
    }

    /// Whether an upstream error cannot imitate this kind: it does not move values, put them on a grid or flip all signs. One such
    /// cause is therefore enough to call a pair a second fault.
    pub fn is_unmistakable(&self) -> bool {
        self.moves_values()
            || matches!(
                self,
                Self::Rounded | Self::Clipped | Self::Quantized | Self::Negated | Self::Dropout
            )
    }

    /// Whether the candidate's own values prove this kind, because they all lie on a grid or are exactly zero. The error then need not
    /// exceed the one upstream.
    pub fn shows_levels(&self) -> bool {
        matches!(self, Self::Rounded | Self::Quantized | Self::Dropout)
    }

    /// Whether a later op can restore the reference, because no information is lost. A missing bias (`offset`) is not among them:
    /// attention cancels the bias of the keys, and it is missing all the same.
    pub fn can_be_undone(&self) -> bool {
        matches!(
            self,
            Self::Permuted
                | Self::Transposed
                | Self::Rotated
                | Self::Swapped
                | Self::ChannelScale
                | Self::Scale
                | Self::Negated
                | Self::Shifted
        )
    }
}

impl fmt::Display for CauseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for CauseKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for CauseKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&Cow::<str>::deserialize(deserializer)?))
    }
}

/// A string, not an enumeration: a client must accept kinds that were added after it was generated.
impl PartialSchema for CauseKind {
    fn schema() -> RefOr<Schema> {
        let names: Vec<&str> = Self::ALL.iter().map(Self::name).collect();
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(format!(
                "Today one of {}; newer versions may add kinds.",
                names.join(", ")
            )))
            .into()
    }
}

impl ToSchema for CauseKind {}

#[cfg(test)]
mod tests {
    use super::CauseKind;

    #[test]
    fn a_kind_is_its_name_in_json() {
        for kind in CauseKind::ALL {
            let json = serde_json::to_string(kind).unwrap();
            assert_eq!(json, format!("\"{}\"", kind.name()));
            assert_eq!(&serde_json::from_str::<CauseKind>(&json).unwrap(), kind);
        }
    }

    #[test]
    fn a_kind_of_a_newer_version_keeps_its_name() {
        let kind: CauseKind = serde_json::from_str("\"untied\"").unwrap();
        assert_eq!(kind, CauseKind::Other("untied".to_owned()));
        assert_eq!(serde_json::to_string(&kind).unwrap(), "\"untied\"");
        assert!(!kind.is_unmistakable() && !kind.can_be_undone());
    }

    #[test]
    fn what_moves_or_shows_levels_is_unmistakable() {
        for kind in CauseKind::ALL {
            assert!(!kind.moves_values() || kind.is_unmistakable(), "{kind}");
            assert!(!kind.shows_levels() || kind.is_unmistakable(), "{kind}");
        }
    }
}
