//! Fitted numbers by their names, and how they are written.

pub use twinscope_ops::constants::{Named, factor, factor_in_bf16};
pub use twinscope_report::formula::short;

/// `6.9282, which is sqrt(48)`, or the number alone.
pub fn said(value: f64, named: Option<&Named>) -> String {
    twinscope_report::formula::said(value, named.map(|named| named.name.as_str()))
}
