//! The values of a pair that is too large to be read for a look at some of its rows: attention's probabilities are.

use super::{Loaded, flow::of};
use std::{borrow::Cow, sync::Arc};
use twinscope_compare::layout::Which;
use twinscope_tensor::Operand;

/// Elements up to which all are read and kept.
pub(super) const KEPT_WHOLE: usize = 1 << 20;

pub(super) enum Recorded {
    Read(Arc<Loaded>),
    /// Reference first.
    InFile([Box<dyn Operand>; 2]),
}

impl Recorded {
    /// So many values of one side; not numbers where they cannot be read, of a file that was cut since.
    pub(super) fn run(&self, side: Which, start: usize, count: usize) -> Cow<'_, [f64]> {
        let both = match self {
            Self::Read(loaded) => return Cow::Borrowed(&of(loaded, side)[start..][..count]),
            Self::InFile(both) => both,
        };
        let operand = &both[usize::from(side == Which::Candidate)];
        let mut values = Vec::with_capacity(count);
        if !operand.f64_values(start as u64, count, &mut Vec::new(), &mut values)
            || operand.check().is_err()
        {
            values = vec![f64::NAN; count];
        }
        Cow::Owned(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::{DType, Shape, View};

    fn operand(values: &[f32]) -> Box<dyn Operand> {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        Box::new(View::new(DType::F32, Shape::from([values.len() as u64]), bytes.into()).unwrap())
    }

    #[test]
    fn a_run_is_the_same_from_a_file_and_from_memory() {
        let (reference, candidate) = ([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0]);
        let read = |values: &[f32]| {
            values
                .iter()
                .map(|value| f64::from(*value))
                .collect::<Vec<f64>>()
        };
        let loaded = Loaded {
            dims: vec![4],
            reference: read(&reference),
            candidate: read(&candidate),
        };
        let (in_file, in_memory) = (
            Recorded::InFile([operand(&reference), operand(&candidate)]),
            Recorded::Read(Arc::new(loaded)),
        );
        for (side, wanted) in [
            (Which::Reference, [2.0, 3.0]),
            (Which::Candidate, [20.0, 30.0]),
        ] {
            assert_eq!(*in_file.run(side, 1, 2), wanted);
            assert_eq!(in_file.run(side, 1, 2), in_memory.run(side, 1, 2));
        }
    }
}
