//! A Python scalar, string or None on one line.

use super::human;
use std::fmt;
use twinscope_tensor::Plain;

pub(crate) struct PlainText<'a>(pub(crate) &'a Plain);

impl fmt::Display for PlainText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Plain::None => f.write_str("None"),
            Plain::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
            Plain::Int(digits) => f.write_str(digits),
            Plain::Float(value) => write!(f, "{value:?}"),
            Plain::Complex(real, imaginary) => write!(f, "({real:?}{imaginary:+?}j)"),
            Plain::Str(text) => write!(f, "\"{}\"", human::safe(text)),
            Plain::Bytes(len) => f.write_str(&human::size(*len)),
            Plain::Other { text, .. } => write!(f, "{}", human::safe(text)),
        }
    }
}
