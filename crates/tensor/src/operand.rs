//! One side of a comparison: a tensor, or several put together, read in row-major order of one shape.
//!
//! A [`View`] is the common case and has a fast path of its own ([`Operand::view`]). Concatenated rank shards, summed partial ranks and
//! reordered sequences are read through the same calls without being built first.

use crate::{DType, Kind, Shape, Shrunk, View, decode};

/// Values in row-major order. Every method reads only what is asked for.
pub trait Operand: Send + Sync {
    fn shape(&self) -> &Shape;

    /// The dtype of the values; of mixed parts the coarsest.
    fn dtype(&self) -> DType;

    /// The one tensor this is, when it is one: then bytes can be read in place.
    fn view(&self) -> Option<&View>;

    /// Appends to a cleared `out` the numbers of elements `start .. start + count`, as [`decode::f64_values`] does; false when the dtype
    /// has none.
    fn f64_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<f64>,
    ) -> bool;

    /// The same, exactly, for integers and booleans; false for every other kind.
    fn int_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<i128>,
    ) -> bool;

    /// See [`crate::Storage::check`]: ask after reading.
    fn check(&self) -> Result<(), Shrunk>;

    fn len(&self) -> u64 {
        self.shape().elements().unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Operand for View {
    fn shape(&self) -> &Shape {
        self.shape()
    }

    fn dtype(&self) -> DType {
        self.dtype()
    }

    fn view(&self) -> Option<&View> {
        Some(self)
    }

    fn f64_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<f64>,
    ) -> bool {
        decode::f64_values(self, start, count, scratch, out)
    }

    fn int_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<i128>,
    ) -> bool {
        out.clear();
        let Some(width) = self
            .dtype()
            .itemsize()
            .filter(|_| matches!(self.dtype().kind(), Kind::Int | Kind::Bool))
        else {
            return self.small_ints(start, count, scratch, out);
        };
        let signed = matches!(
            self.dtype(),
            DType::I8 | DType::I16 | DType::I32 | DType::I64
        );
        let truth = self.dtype() == DType::Bool;
        for bytes in self.chunk(start, count, scratch).chunks_exact(width) {
            // Sign-extended from the last byte, then the bytes on top of it from the most significant down.
            let mut value: i128 = if signed && bytes[width - 1] >= 0x80 {
                -1
            } else {
                0
            };
            bytes
                .iter()
                .rev()
                .for_each(|byte| value = value << 8 | i128::from(*byte));
            out.push(if truth { i128::from(value != 0) } else { value });
        }
        true
    }

    fn check(&self) -> Result<(), Shrunk> {
        self.check()
    }

    fn len(&self) -> u64 {
        self.len()
    }
}

impl View {
    /// Integers of four bits and fewer fit an f64 many times over.
    fn small_ints(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<i128>,
    ) -> bool {
        if self.dtype().kind() != Kind::Int {
            return false;
        }
        let mut numbers = Vec::new();
        let known = decode::f64_values(self, start, count, scratch, &mut numbers);
        out.extend(numbers.into_iter().map(|number| number as i128));
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_at_their_ends() {
        let read = |dtype, bytes: Vec<u8>| {
            let count = bytes.len() / DType::itemsize(dtype).unwrap();
            let view = View::new(dtype, Shape::from([count as u64]), bytes.into()).unwrap();
            let mut out = Vec::new();
            assert!(view.int_values(0, count, &mut Vec::new(), &mut out));
            out
        };
        assert_eq!(
            read(DType::U64, u64::MAX.to_le_bytes().to_vec()),
            [i128::from(u64::MAX)]
        );
        assert_eq!(
            read(DType::I64, i64::MIN.to_le_bytes().to_vec()),
            [i128::from(i64::MIN)]
        );
        assert_eq!(read(DType::I16, vec![0xfe, 0xff, 0xff, 0x7f]), [-2, 32767]);
        assert_eq!(read(DType::I8, vec![0x80, 0x7f]), [-128, 127]);
        assert_eq!(read(DType::U8, vec![0x80]), [128]);
        assert_eq!(read(DType::Bool, vec![0, 1, 255]), [0, 1, 1]);
    }
}
