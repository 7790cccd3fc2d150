//! The values of a tensor that is too large to be read whole for a look at some of its rows: attention's probabilities are.

use crate::Values;
use std::borrow::Cow;
use twinscope_tensor::Operand;

/// Elements up to which all are read and kept.
pub const KEPT_WHOLE: usize = 1 << 20;

pub enum Recorded {
    Read(Values),
    InFile(Box<dyn Operand>),
}

impl Recorded {
    /// Some neighbouring values; NaN where they cannot be read, of a file that was cut since.
    pub fn run(&self, start: usize, count: usize) -> Cow<'_, [f64]> {
        let operand = match self {
            Self::Read(values) => return Cow::Borrowed(&values[start..][..count]),
            Self::InFile(operand) => operand,
        };
        let mut values = Vec::with_capacity(count);
        if !operand.f64_values(start as u64, count, &mut Vec::new(), &mut values)
            || operand.check().is_err()
        {
            values = vec![f64::NAN; count];
        }
        Cow::Owned(values)
    }
}

impl std::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(values) => write!(f, "Read({})", values.len()),
            Self::InFile(operand) => write!(f, "InFile({})", operand.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::{DType, Shape, View};

    #[test]
    fn a_run_is_the_same_from_a_file_and_from_memory() {
        let values = [1.0f32, 2.0, 3.0, 4.0];
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let view = View::new(DType::F32, Shape::from([4]), bytes.into()).unwrap();
        let in_file = Recorded::InFile(Box::new(view));
        let in_memory = Recorded::Read(Values::new(values.map(f64::from).to_vec()));
        assert_eq!(*in_file.run(1, 2), [2.0, 3.0]);
        assert_eq!(in_file.run(1, 2), in_memory.run(1, 2));
    }
}
