//! Two operands to numbers and their differences, block by block: what is exact stays exact.

use crate::double::Double;
use twinscope_tensor::{DType, Kind, Operand, ReadError};

/// Why a pair has no common numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incommensurable {
    pub reference: DType,
    pub candidate: DType,
}

impl std::fmt::Display for Incommensurable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} and {} cannot be compared element by element",
            self.reference, self.candidate
        )
    }
}

impl std::error::Error for Incommensurable {}

/// What the elements of a pair are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Floats and decoded codes, `per` numbers an element.
    Floats {
        per: usize,
    },
    Ints,
    /// Integers on one side, floats on the other.
    Mixed {
        reference_is_int: bool,
    },
    Complex,
    /// No numbers: equal or not.
    Opaque {
        width: usize,
    },
}

impl Sort {
    pub(crate) fn of(reference: &dyn Operand, candidate: &dyn Operand) -> Result<Self, ReadError> {
        let (r, c) = (reference.dtype(), candidate.dtype());
        let whole = |dtype: DType| matches!(dtype.kind(), Kind::Bool | Kind::Int);
        let opaque = |dtype: DType| dtype.kind() == Kind::Opaque;
        let none = || {
            Err(ReadError::Decode(Box::new(Incommensurable {
                reference: r,
                candidate: c,
            })))
        };
        if opaque(r) || opaque(c) {
            return match r.itemsize() {
                Some(width)
                    if r == c && reference.view().is_some() && candidate.view().is_some() =>
                {
                    Ok(Self::Opaque { width })
                }
                _ => none(),
            };
        }
        let pairs = [r, c].map(|dtype| dtype == DType::F4E2M1FnX2);
        match (whole(r), whole(c)) {
            _ if pairs == [true, true] => Ok(Self::Floats { per: 2 }),
            _ if pairs != [false, false] => none(),
            _ if r.kind() == Kind::Complex || c.kind() == Kind::Complex => Ok(Self::Complex),
            (true, true) => Ok(Self::Ints),
            (false, false) => Ok(Self::Floats { per: 1 }),
            (reference_is_int, _) => Ok(Self::Mixed { reference_is_int }),
        }
    }

    /// Numbers an element counts for.
    pub(crate) fn per(self) -> u64 {
        match self {
            Self::Floats { per } => per as u64,
            _ => 1,
        }
    }
}

impl Sort {
    /// The `nth` integers of reference and candidate, of those that were read as such.
    pub(crate) fn integers(self, ints: &[Vec<i128>; 2], nth: usize) -> [Option<i128>; 2] {
        let read = |side: usize| ints[side].get(nth).copied();
        match self {
            Self::Ints => [read(0), read(1)],
            Self::Mixed {
                reference_is_int: true,
            } => [read(0), None],
            Self::Mixed {
                reference_is_int: false,
            } => [None, read(0)],
            Self::Floats { .. } | Self::Complex | Self::Opaque { .. } => [None; 2],
        }
    }
}

/// A block of both sides. Kept from block to block: nothing is allocated twice.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) bytes: [Vec<u8>; 2],
    /// The numbers; of complex ones the moduli.
    pub(crate) reference: Vec<f64>,
    pub(crate) candidate: Vec<f64>,
    /// `|c - r|`; NaN where a side is not finite and the other not the same, 0 where it is.
    pub(crate) apart: Vec<f64>,
    /// Real and imaginary parts in turn, of complex numbers only.
    pub(crate) parts: [Vec<f64>; 2],
    pub(crate) ints: [Vec<i128>; 2],
    pub(crate) more: [Vec<f64>; 4],
}

impl Values {
    /// Elements `start .. start + count` of both sides.
    pub(crate) fn read(
        &mut self,
        sort: Sort,
        reference: &dyn Operand,
        candidate: &dyn Operand,
        start: u64,
        count: usize,
    ) {
        match sort {
            Sort::Floats { .. } => self.read_floats(reference, candidate, start, count),
            Sort::Ints => self.read_ints(reference, candidate, start, count),
            Sort::Mixed { reference_is_int } => {
                self.read_mixed(reference, candidate, reference_is_int, start, count);
            }
            Sort::Complex => self.read_complex(reference, candidate, start, count),
            Sort::Opaque { .. } => unreachable!("what is no number is not read as one"),
        }
    }

    /// Both sides as `f64`. False when some integer may not be one.
    pub(crate) fn read_numbers(
        &mut self,
        reference: &dyn Operand,
        candidate: &dyn Operand,
        start: u64,
        count: usize,
    ) -> bool {
        let sides = [
            (reference, &mut self.reference),
            (candidate, &mut self.candidate),
        ];
        sides
            .into_iter()
            .zip(&mut self.bytes)
            .all(|((operand, numbers), bytes)| {
                let known = operand.f64_values(start, count, bytes, numbers);
                assert!(known, "numbers have numbers");
                // Beyond 2^53 some are not, nor are the differences of those beyond 2^52; what is not is rounded to there or further.
                operand.dtype().is_exact_in_f64()
                    || operand.dtype().kind() == Kind::Float
                    || numbers.iter().all(|x| x.abs() < 4_503_599_627_370_496.0)
            })
    }

    fn read_floats(
        &mut self,
        reference: &dyn Operand,
        candidate: &dyn Operand,
        start: u64,
        count: usize,
    ) {
        let known = reference.f64_values(start, count, &mut self.bytes[0], &mut self.reference)
            && candidate.f64_values(start, count, &mut self.bytes[1], &mut self.candidate);
        assert!(known, "floats have numbers");
        self.subtract();
    }

    fn subtract(&mut self) {
        self.apart.clear();
        self.apart.extend(
            self.reference
                .iter()
                .zip(&self.candidate)
                .map(|(r, c)| apart(*r, *c)),
        );
    }

    fn read_ints(
        &mut self,
        reference: &dyn Operand,
        candidate: &dyn Operand,
        start: u64,
        count: usize,
    ) {
        // What fits an f64 is as exact there, and much faster.
        if [reference, candidate]
            .iter()
            .all(|side| side.dtype().is_exact_in_f64())
        {
            self.ints.iter_mut().for_each(Vec::clear);
            return self.read_floats(reference, candidate, start, count);
        }
        let [left, right] = &mut self.ints;
        let known = reference.int_values(start, count, &mut self.bytes[0], left)
            && candidate.int_values(start, count, &mut self.bytes[1], right);
        assert!(known, "integers have integers");
        self.reference.clear();
        self.reference.extend(left.iter().map(|x| *x as f64));
        self.candidate.clear();
        self.candidate.extend(right.iter().map(|x| *x as f64));
        self.apart.clear();
        self.apart.extend(
            left.iter()
                .zip(right.iter())
                .map(|(r, c)| c.abs_diff(*r) as f64),
        );
    }

    /// An integer of 64 bits is two `f64`, so what lies between it and a float is known exactly before it is rounded once.
    fn read_mixed(
        &mut self,
        reference: &dyn Operand,
        candidate: &dyn Operand,
        reference_is_int: bool,
        start: u64,
        count: usize,
    ) {
        let (whole, real) = if reference_is_int {
            (reference, candidate)
        } else {
            (candidate, reference)
        };
        let (wholes, reals) = if reference_is_int {
            (&mut self.reference, &mut self.candidate)
        } else {
            (&mut self.candidate, &mut self.reference)
        };
        let known = whole.int_values(start, count, &mut self.bytes[0], &mut self.ints[0])
            && real.f64_values(start, count, &mut self.bytes[1], reals);
        assert!(known, "integers and floats have numbers");
        wholes.clear();
        wholes.extend(self.ints[0].iter().map(|x| *x as f64));
        self.apart.clear();
        self.apart
            .extend(self.ints[0].iter().zip(reals.iter()).map(|(whole, real)| {
                if real.is_finite() {
                    Double::from(*whole).minus_exactly(*real).abs()
                } else {
                    f64::NAN
                }
            }));
    }

    fn read_complex(
        &mut self,
        reference: &dyn Operand,
        candidate: &dyn Operand,
        start: u64,
        count: usize,
    ) {
        let sides = [reference, candidate]
            .into_iter()
            .zip(&mut self.parts)
            .zip(&mut self.bytes);
        for ((operand, parts), bytes) in sides {
            if operand.dtype().kind() == Kind::Complex {
                assert!(
                    operand.f64_values(start, count, bytes, parts),
                    "complex numbers have numbers"
                );
            } else {
                assert!(
                    operand.f64_values(start, count, bytes, &mut self.more[0]),
                    "reals have numbers"
                );
                parts.clear();
                parts.extend(self.more[0].iter().flat_map(|x| [*x, 0.0]));
            }
        }
        let modulus = |z: &[f64; 2]| {
            let modulus = z[0].hypot(z[1]);
            match z.iter().all(|x| x.is_finite()) {
                // A modulus that overflows is still of a finite number.
                true => modulus.min(f64::MAX),
                false if z.iter().any(|x| x.is_nan()) => f64::NAN,
                false => modulus,
            }
        };
        let [left, right] = &self.parts;
        let (left, right) = (left.as_chunks::<2>().0, right.as_chunks::<2>().0);
        self.reference.clear();
        self.reference.extend(left.iter().map(modulus));
        self.candidate.clear();
        self.candidate.extend(right.iter().map(modulus));
        self.apart.clear();
        self.apart.extend(left.iter().zip(right).map(|(r, c)| {
            match [r, c].map(|z| z.iter().all(|x| x.is_finite())) {
                [true, true] => (c[0] - r[0]).hypot(c[1] - r[1]),
                _ if [r, c].iter().all(|z| z.iter().any(|x| x.is_nan())) || r == c => 0.0,
                _ => f64::NAN,
            }
        }));
    }
}

/// `|c - r|`, rounded once; see [`Values::apart`].
pub(crate) fn apart(r: f64, c: f64) -> f64 {
    if r.is_finite() && c.is_finite() {
        (c - r).abs()
    } else if r == c || (r.is_nan() && c.is_nan()) {
        0.0
    } else {
        f64::NAN
    }
}
