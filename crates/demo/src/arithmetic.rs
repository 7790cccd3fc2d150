//! How numbers are kept and added: the dtype every result is rounded to, and the order of summation.
//!
//! Arrays hold `f64`, always values of the run's dtype. Products are added in f32 as the usual kernels do, whatever the results are
//! rounded to; only an f64 run adds in f64. With `parts` greater than one a sum is cut in so many equal parts that are added at the
//! end: what tensor parallelism of that size does to the last bits.

use half::{bf16, f16};
use twinscope_tensor::{DType, minifloat};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Arithmetic {
    pub(crate) dtype: DType,
    pub(crate) parts: usize,
}

impl Arithmetic {
    pub(crate) fn round(self, value: f64) -> f64 {
        round(self.dtype, value)
    }

    /// What the inside of an op is kept in.
    pub(crate) fn inner(self, value: f64) -> f64 {
        if self.dtype == DType::F64 {
            value
        } else {
            f64::from(value as f32)
        }
    }

    /// `Σ a · b` inside an op.
    pub(crate) fn dot(self, a: &[f64], b: &[f64]) -> f64 {
        let parts = self
            .split(a)
            .zip(self.split(b))
            .map(|(a, b)| self.products(a, b));
        parts.fold(0.0, |total, part| self.inner(total + part))
    }

    /// `Σ a · b` as ranks share it: each rounds its part to the dtype, and so is what they add up.
    pub(crate) fn shared_dot(self, a: &[f64], b: &[f64]) -> f64 {
        if self.parts == 1 {
            return self.products(a, b);
        }
        let parts = self
            .split(a)
            .zip(self.split(b))
            .map(|(a, b)| self.round(self.products(a, b)));
        parts.fold(0.0, |total, part| self.round(total + part))
    }

    pub(crate) fn sum(self, values: &[f64]) -> f64 {
        self.split(values).fold(0.0, |total, part| {
            part.iter()
                .fold(total, |sum, value| self.inner(sum + value))
        })
    }

    fn split(self, values: &[f64]) -> impl Iterator<Item = &[f64]> {
        values.chunks(values.len().div_ceil(self.parts).max(1))
    }

    fn products(self, a: &[f64], b: &[f64]) -> f64 {
        if self.dtype == DType::F64 {
            return a.iter().zip(b).map(|(a, b)| a * b).sum();
        }
        // In lanes, as every kernel does.
        let mut lanes = [0f32; LANES];
        let (left, right) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
        let rest: f32 = left
            .remainder()
            .iter()
            .zip(right.remainder())
            .fold(0.0, |sum, (a, b)| sum + *a as f32 * *b as f32);
        for (a, b) in left.zip(right) {
            (0..LANES).for_each(|lane| lanes[lane] += a[lane] as f32 * b[lane] as f32);
        }
        f64::from(lanes.into_iter().fold(rest, |sum, lane| sum + lane))
    }
}

const LANES: usize = 8;

/// The nearest value of a dtype, ties to even. Beyond the largest: infinity where the dtype has one, else the largest.
pub(crate) fn round(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::Bf16 => bf16::from_f64(value).to_f64(),
        DType::F16 => f16::from_f64(value).to_f64(),
        DType::F8E4M3Fn => nearest(&minifloat::F8_E4M3FN, value),
        DType::F8E5M2 => nearest(&minifloat::F8_E5M2, value),
        _ => value,
    }
}

/// By looking through the non-negative half of a table of codes, which is ascending. Ties go to the even code.
fn nearest(table: &[f32; 256], value: f64) -> f64 {
    if value.is_nan() {
        return value;
    }
    let numbers: Vec<f64> = table[..128]
        .iter()
        .map(|v| f64::from(*v))
        .take_while(|v| v.is_finite())
        .collect();
    let size = value.abs();
    let above = numbers
        .partition_point(|number| *number < size)
        .min(numbers.len() - 1);
    let below = above.saturating_sub(1);
    let (up, down) = (numbers[above] - size, size - numbers[below]);
    let code = if up < down || (up == down && above.is_multiple_of(2)) {
        above
    } else {
        below
    };
    numbers[code].copysign(value)
}

/// Little-endian bytes of values that are the dtype's already.
pub(crate) fn bytes(dtype: DType, values: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F16 => values
            .iter()
            .flat_map(|v| f16::from_f64(*v).to_le_bytes())
            .collect(),
        DType::Bf16 => values
            .iter()
            .flat_map(|v| bf16::from_f64(*v).to_le_bytes())
            .collect(),
        DType::I64 => values
            .iter()
            .flat_map(|v| (*v as i64).to_le_bytes())
            .collect(),
        _ => values
            .iter()
            .flat_map(|v| (*v as f32).to_le_bytes())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fp8_rounds_to_the_nearest_code_and_saturates() {
        for (value, rounded) in [
            (1.0, 1.0),
            (1.06, 1.0),
            (1.0625, 1.0),
            (1.1875, 1.25),
            (-500.0, -448.0),
            (1e-9, 0.0),
        ] {
            assert_eq!(round(DType::F8E4M3Fn, value), rounded, "{value}");
        }
    }

    #[test]
    fn a_sum_in_parts_differs_in_its_last_bits_only() {
        let values: Vec<f64> = (0..1000)
            .map(|n| f64::from((n as f32 * 0.37).sin()))
            .collect();
        let whole = Arithmetic {
            dtype: DType::F32,
            parts: 1,
        }
        .dot(&values, &values);
        let parts = Arithmetic {
            dtype: DType::F32,
            parts: 4,
        }
        .dot(&values, &values);
        assert_ne!(whole, parts);
        assert!((whole - parts).abs() < 1e-5 * whole);
    }
}
