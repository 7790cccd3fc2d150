//! Elements of two numbers (complex, packed pairs) as one more dimension of two: hypotheses compute with single numbers.

use twinscope_tensor::{DType, Operand, Shape, Shrunk, View};

/// The dtype of the numbers that an element is made of.
pub(super) fn of_each(dtype: DType) -> DType {
    match dtype {
        DType::C32 => DType::F16,
        DType::Bc32 => DType::Bf16,
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        DType::C160 => DType::F80,
        DType::F4E2M1FnX2 => DType::F4,
        one => one,
    }
}

/// An operand whose elements are one number each.
pub(super) fn apart(of: Box<dyn Operand>) -> Box<dyn Operand> {
    if of.dtype().values_per_element() == 1 {
        return of;
    }
    let each = of.dtype().values_per_element() as u64;
    let dims: Vec<u64> = of.shape().dims().iter().copied().chain([each]).collect();
    Box::new(Apart {
        of,
        shape: Shape::from(dims),
        each,
    })
}

struct Apart {
    of: Box<dyn Operand>,
    shape: Shape,
    each: u64,
}

impl Operand for Apart {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn dtype(&self) -> DType {
        of_each(self.of.dtype())
    }

    fn view(&self) -> Option<&View> {
        None
    }

    fn f64_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<f64>,
    ) -> bool {
        let (first, end) = (
            start / self.each,
            (start + count as u64).div_ceil(self.each),
        );
        if !self
            .of
            .f64_values(first, (end - first) as usize, scratch, out)
        {
            return false;
        }
        out.drain(..(start % self.each) as usize);
        out.truncate(count);
        true
    }

    fn int_values(&self, _: u64, _: usize, _: &mut Vec<u8>, _: &mut Vec<i128>) -> bool {
        false
    }

    fn check(&self) -> Result<(), Shrunk> {
        self.of.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complex_numbers_are_two_each_from_anywhere() {
        let bytes: Vec<u8> = (0..12).flat_map(|n| (n as f32).to_le_bytes()).collect();
        let apart = apart(Box::new(
            View::new(DType::C64, Shape::from([2, 3]), bytes.into()).unwrap(),
        ));
        assert_eq!(
            (apart.shape().dims(), apart.dtype(), apart.len()),
            (&[2, 3, 2][..], DType::F32, 12)
        );
        let mut values = Vec::new();
        for (start, count) in [(0, 12), (0, 1), (3, 1), (3, 4), (4, 2), (5, 0), (11, 1)] {
            assert!(apart.f64_values(start, count, &mut Vec::new(), &mut values));
            let wanted: Vec<f64> = (start..start + count as u64).map(|n| n as f64).collect();
            assert_eq!(values, wanted, "{count} from {start}");
        }
    }
}
