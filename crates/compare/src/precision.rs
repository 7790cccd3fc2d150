//! Numbers stored wider than they were computed: a bf16 model dumped as f32 arrays (NumPy has no bf16), logits after `.float()`.
//!
//! What rounding can do depends on the dtype that results were rounded to, not on the one they are kept in. When every value of *both*
//! sides is a number of a coarser dtype, they were rounded to it: one in 65,536 values of f32 would be one of bf16 by chance. When only
//! one side's are, all of its run may have been computed so ([`of_run`]); where it is some tensors of it, that is a hidden downcast, and a cause.
//! Whole numbers are no evidence: ids and counts are whole in any dtype.

use serde::{Deserialize, Serialize};
use twinscope_tensor::{DType, Operand};

/// Values looked at, in evenly spread runs.
const RUNS: u64 = 64;
const RUN: u64 = 64;
/// Fewer values that are not zero say nothing.
const FEWEST: usize = 16;
/// Of values that were rounded to a dtype, half use its last digit. As few would be values that are coarser still.
const LAST_DIGIT: f64 = 0.125;

/// A dtype as a grid of numbers.
struct Grid {
    dtype: DType,
    /// Digits of the significand, the leading one included.
    digits: i32,
    /// The smallest exponent of a number with all digits.
    smallest: i32,
    largest: f64,
}

const GRIDS: [Grid; 3] = [
    Grid {
        dtype: DType::Bf16,
        digits: 8,
        smallest: -126,
        largest: 3.389_531_389_251_535_5e38,
    },
    Grid {
        dtype: DType::F16,
        digits: 11,
        smallest: -14,
        largest: 65504.0,
    },
    Grid {
        dtype: DType::F32,
        digits: 24,
        smallest: -126,
        largest: 3.402_823_466_385_288_6e38,
    },
];

impl Grid {
    /// The value in units of its last digit; a whole number when it is on the grid.
    fn steps(&self, value: f64) -> f64 {
        let exponent = (((value.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(self.smallest);
        // In two steps: the power alone may be beyond the range.
        let power = self.digits - 1 - exponent;
        value * power_of_two(power / 2) * power_of_two(power - power / 2)
    }

    fn holds(&self, value: f64) -> bool {
        !value.is_finite()
            || value == 0.0
            || value.abs() <= self.largest && self.steps(value).fract() == 0.0
    }

    fn uses_last_digit(&self, value: f64) -> bool {
        (self.steps(value) / 2.0).fract() != 0.0
    }

    /// Whether values that are not all whole, and enough of them, are this dtype's and not a coarser one's.
    fn fits(&self, values: &[f64]) -> bool {
        let numbers: Vec<f64> = values
            .iter()
            .copied()
            .filter(|value| value.is_finite() && *value != 0.0)
            .collect();
        let all = numbers.len() as f64;
        numbers.len() >= FEWEST
            && numbers.iter().all(|value| self.holds(*value))
            && numbers.iter().any(|value| value.fract() != 0.0)
            && numbers
                .iter()
                .filter(|value| self.uses_last_digit(**value))
                .count() as f64
                >= LAST_DIGIT * all
    }
}

/// `powi` multiplies its way there. Exponents of normal numbers only.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// What values say of the dtype that they were rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Digits {
    /// Nothing: they are few, or whole.
    Unknown,
    /// They need the dtype they are stored in.
    All,
    /// Every one is a number of this coarser dtype.
    Of(DType),
    /// They are numbers of any dtype, with digits to spare: differences of nearly equal ones, small whole multiples. Or they are numbers of a
    /// coarser one, and too few to say more (a bias of four channels): what they were rounded to is what their run was computed in.
    Few,
}

/// Looked at where a dtype is wide enough to hold others.
pub(crate) fn digits(operand: &dyn Operand) -> Digits {
    let dtype = operand.dtype();
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Digits::Unknown;
    }
    let values = some_values(operand);
    let telling = values
        .iter()
        .filter(|value| value.is_finite() && **value != 0.0);
    if telling.clone().all(|value| value.fract() == 0.0) {
        return Digits::Unknown;
    }
    let coarser = || GRIDS.iter().filter(|grid| grid.dtype != dtype);
    match coarser().find(|grid| grid.fits(&values)) {
        Some(grid) => Digits::Of(grid.dtype),
        None if coarser().any(|grid| telling.clone().all(|value| grid.holds(*value))) => {
            Digits::Few
        }
        None if telling.count() < FEWEST => Digits::Unknown,
        None => Digits::All,
    }
}

/// Pairs that must say so, and their share of those that say anything, before a whole run is believed to have been computed in a coarser dtype
/// than it is recorded in. A few ops of such a run are done in f32: norms, a softmax, the logits; where fewer are recorded, all must say so. Else it
/// is a downcast of what it is seen in.
const ENOUGH: [(usize, f64); 2] = [(8, 0.75), (4, 1.0)];

/// The dtype that a run was computed in, where that is coarser than what it is recorded in, from what its tensors say in execution order.
/// It has to be so from the first one on: what begins later is a downcast.
pub(crate) fn of_run(tensors: impl Iterator<Item = Digits>) -> Option<DType> {
    let telling: Vec<Digits> = tensors
        .filter(|digits| !matches!(digits, Digits::Unknown | Digits::Few))
        .collect();
    let Some(Digits::Of(dtype)) = telling.first() else {
        return None;
    };
    let alike = telling
        .iter()
        .filter(|digits| **digits == Digits::Of(*dtype))
        .count();
    let enough = |(least, share): &(usize, f64)| {
        alike >= *least && alike as f64 >= share * telling.len() as f64
    };
    ENOUGH.iter().any(enough).then_some(*dtype)
}

/// The dtypes that a pair is judged by. Where both sides lie on coarser grids they were rounded to them; where one does, it was if its whole run
/// was, else that is a hidden downcast.
pub(crate) fn judged_by(
    dtypes: [DType; 2],
    digits: [Digits; 2],
    runs: [Option<DType>; 2],
) -> [DType; 2] {
    let both = digits.iter().all(|digits| matches!(digits, Digits::Of(_)));
    std::array::from_fn(|side| match digits[side] {
        Digits::Of(dtype) if both || runs[side] == Some(dtype) => dtype,
        Digits::Few => runs[side].unwrap_or(dtypes[side]),
        _ => dtypes[side],
    })
}

fn some_values(operand: &dyn Operand) -> Vec<f64> {
    let (mut scratch, mut run, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let len = operand.len();
    let mut read = |start: u64, count: u64| {
        operand.f64_values(start, count as usize, &mut scratch, &mut run);
        all.extend_from_slice(&run);
    };
    if len <= RUNS * RUN {
        read(0, len);
    } else {
        (0..RUNS).for_each(|nth| read(nth * ((len - RUN) / (RUNS - 1)), RUN));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::View;

    fn f32s(values: &[f32]) -> View {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        View::new(DType::F32, [values.len() as u64].into(), bytes.into()).unwrap()
    }

    fn f64s(values: &[f32]) -> View {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| f64::from(*value).to_le_bytes())
            .collect();
        View::new(DType::F64, [values.len() as u64].into(), bytes.into()).unwrap()
    }

    fn numbers(count: usize, factor: f32) -> Vec<f32> {
        (0..count)
            .map(|n| (n as f32 * 0.7371 + 0.1).sin() * factor)
            .collect()
    }

    /// What both were rounded to, as pairs of one run are judged.
    fn stored_wider(reference: &View, candidate: &View) -> Option<DType> {
        let dtypes = [reference.dtype(), candidate.dtype()];
        let judged = judged_by(dtypes, [digits(reference), digits(candidate)], [None; 2]);
        (judged != dtypes).then_some(judged[0])
    }

    fn bf16(values: &[f32]) -> Vec<f32> {
        values
            .iter()
            .map(|value| f32::from_bits(value.to_bits() & 0xffff_0000))
            .collect()
    }

    #[test]
    fn what_was_rounded_is_known_whatever_it_is_stored_in() {
        let (one, other) = (numbers(500, 1.0), numbers(500, 1.01));
        assert_eq!(
            stored_wider(&f32s(&bf16(&one)), &f32s(&bf16(&other))),
            Some(DType::Bf16)
        );
        assert_eq!(
            stored_wider(&f64s(&bf16(&one)), &f32s(&bf16(&other))),
            Some(DType::Bf16)
        );
        assert_eq!(stored_wider(&f64s(&one), &f64s(&other)), Some(DType::F32));
        assert_eq!(stored_wider(&f32s(&one), &f32s(&other)), None);
        let half: Vec<f32> = one
            .iter()
            .map(|value| (value * 1024.0).round() / 1024.0)
            .collect();
        assert_eq!(
            stored_wider(&f32s(&half), &f32s(&half)),
            None,
            "a fixed step is no floating point"
        );
        let apart: Vec<f32> = (0..500).map(|n| (n % 9) as f32 / 64.0).collect();
        assert_eq!(
            (
                digits(&f32s(&apart)),
                digits(&f32s(&bf16(&one))),
                digits(&f32s(&one))
            ),
            (Digits::Few, Digits::Of(DType::Bf16), Digits::All)
        );
    }

    #[test]
    fn halves_and_their_smallest_numbers_are_known() {
        let half = |value: f32| f32::from_bits(value.to_bits() & 0xffff_e000);
        let values: Vec<f32> = numbers(500, 3.0).into_iter().map(half).collect();
        assert_eq!(
            stored_wider(&f32s(&values), &f32s(&values)),
            Some(DType::F16)
        );
        let tiny: Vec<f32> = (1..2000).map(|n| n as f32 * 2f32.powi(-24)).collect();
        assert_eq!(stored_wider(&f32s(&tiny), &f32s(&tiny)), Some(DType::F16));
        let beyond: Vec<f32> = values.iter().map(|value| value * 1e5).collect();
        assert_ne!(
            stored_wider(&f32s(&beyond), &f32s(&beyond)),
            Some(DType::F16)
        );
    }

    #[test]
    fn one_side_alone_is_a_downcast_and_whole_numbers_are_nothing() {
        let one = numbers(500, 1.0);
        assert_eq!(stored_wider(&f32s(&one), &f32s(&bf16(&one))), None);
        let ids: Vec<f32> = (0..500).map(|n| (n % 251) as f32).collect();
        assert_eq!(stored_wider(&f32s(&ids), &f32s(&ids)), None);
        assert_eq!(stored_wider(&f32s(&[0.5; 8]), &f32s(&[0.5; 8])), None);
        assert_eq!(stored_wider(&f32s(&[]), &f32s(&[])), None);
    }

    #[test]
    fn a_few_values_were_rounded_to_what_their_run_was() {
        let one = numbers(4, 1.0);
        let (wide, narrow) = (digits(&f32s(&one)), digits(&f32s(&bf16(&one))));
        assert_eq!((wide, narrow), (Digits::Unknown, Digits::Few));
        let dtypes = [DType::F32; 2];
        assert_eq!(
            judged_by(dtypes, [wide, narrow], [None, Some(DType::Bf16)]),
            [DType::F32, DType::Bf16],
            "a bias of four channels"
        );
        assert_eq!(
            judged_by(dtypes, [wide, narrow], [None; 2]),
            dtypes,
            "which no run speaks for"
        );
        assert_eq!(digits(&f32s(&[3.0, 7.0, 0.0])), Digits::Unknown, "ids");
    }

    #[test]
    fn a_run_of_which_nearly_all_is_coarser_was_computed_so() {
        let (on, off, nothing) = (Digits::Of(DType::Bf16), Digits::All, Digits::Unknown);
        let run = |tensors: &[Digits]| of_run(tensors.iter().copied());
        assert_eq!(
            run(&[nothing, on, on, on, off, on, on, on, nothing, on, on, off]),
            Some(DType::Bf16),
            "a norm and logits are in f32"
        );
        assert_eq!(run(&[on; 4]), Some(DType::Bf16));
        assert_eq!(run(&[on; 3]), None, "too few to be a run");
        assert_eq!(
            run(&[on, on, on, on, on, on, off]),
            None,
            "few, and not all"
        );
        assert_eq!(
            run(&[off, on, on, on, on, on, on, on, on, on, on]),
            None,
            "it begins later"
        );
        assert_eq!(
            run(&[
                on, off, on, off, on, off, on, off, on, off, on, off, on, off, on, off
            ]),
            None,
            "one op of two"
        );
        assert_eq!(run(&[]), None);
        let dtypes = [DType::F32; 2];
        assert_eq!(
            judged_by(dtypes, [off, on], [None, Some(DType::Bf16)]),
            [DType::F32, DType::Bf16]
        );
        assert_eq!(
            judged_by(
                dtypes,
                [off, Digits::Of(DType::F16)],
                [None, Some(DType::Bf16)]
            ),
            dtypes,
            "another dtype than its run"
        );
        assert_eq!(judged_by(dtypes, [off, on], [None; 2]), dtypes);
        assert_eq!(
            judged_by(dtypes, [off, Digits::Few], [None, Some(DType::Bf16)]),
            [DType::F32, DType::Bf16]
        );
        assert_eq!(judged_by(dtypes, [off, Digits::Few], [None; 2]), dtypes);
        assert_eq!(
            run(&[on, Digits::Few, on, on, Digits::Few, on]),
            Some(DType::Bf16),
            "fewer digits are no other ones"
        );
        assert_eq!(
            judged_by(dtypes, [Digits::Of(DType::F16), on], [None; 2]),
            [DType::F16, DType::Bf16]
        );
    }
}
