//! What happened to each number.

mod channel_scale;
mod clipped;
mod dropout;
mod factors;
mod function;
mod grid;
mod groups;
mod levels;
mod library;
mod localized;
mod low_rank;
mod matrix;
mod naming;
mod nonfinite;
mod offset;
mod quantized;
mod rounded;
mod row_affine;
mod row_scale;
mod sampling;
mod scale;

use super::Hypothesis;

pub(super) use sampling::spread;

/// In the order they are tried.
pub(super) const ALL: &[&dyn Hypothesis] = &[
    &nonfinite::NonFinite,
    &scale::Scale,
    &offset::Offset,
    &channel_scale::ChannelScale,
    &row_scale::RowScale,
    &clipped::Clipped,
    &dropout::Dropout,
    &rounded::Rounded,
    &quantized::Quantized,
    &function::OfOneNumber,
    &localized::Localized,
    &low_rank::LowRank,
    &row_affine::RowAffine,
];
