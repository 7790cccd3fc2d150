//! Where the numbers went: rearranged, taken from elsewhere, or wrong only in one place.

mod elsewhere;
mod input_differs;
mod masked;
mod near;
mod orders;
mod packed;
pub(super) mod partial_sum;
mod permuted;
mod rotated;
mod routing;
mod rows;
mod shifted;
mod softmax_scale;
mod swapped;
mod terms;
#[cfg(test)]
pub(crate) mod testing;
mod transposed;
mod turns;
mod wrong_tensor;

use super::Hypothesis;

/// In the order they are tried.
pub(super) const ALL: &[&dyn Hypothesis] = &[
    &input_differs::InputDiffers,
    &transposed::Transposed,
    &permuted::Permuted,
    &shifted::Shifted,
    &rotated::Rotated,
    &swapped::Swapped,
    &terms::Terms,
    &wrong_tensor::WrongTensor,
    &masked::Masked,
    &softmax_scale::SoftmaxScale,
    &partial_sum::PartialSum,
    &routing::Routing,
    &packed::Packed,
];
