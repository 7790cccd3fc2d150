//! The values of a pair that is too large to be read for a look at some of its rows: attention's probabilities are.

use super::{Loaded, flow::of};
use crate::layout::Which;
use std::{borrow::Cow, sync::Arc};
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
        if !operand.f64_values(start as u64, count, &mut Vec::new(), &mut values) || operand.check().is_err() {
            values = vec![f64::NAN; count];
        }
        Cow::Owned(values)
    }
}
