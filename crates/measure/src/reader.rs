//! Runs of one side or of two as numbers, with the signed difference: what pictures, searches and histograms are made from.
//!
//! The difference is `c - r`, exact for integers before it is rounded once; NaN where a side is not finite and the other not the same, 0 where
//! it is. Complex numbers are shown by their modulus and differ by the modulus of the difference.

use crate::totals::{Grid, Sort, Values};
use twinscope_tensor::{DType, Kind, Operand, ReadError};

/// Which numbers are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    Reference,
    Candidate,
    Difference,
}

/// Reads runs; keep it from run to run.
pub struct Reader<'a> {
    sides: Sides<'a>,
    values: Values,
    difference: Vec<f64>,
    per: usize,
    grid: Option<Grid>,
}

#[derive(Clone, Copy)]
enum Sides<'a> {
    One(&'a dyn Operand),
    Two(&'a dyn Operand, &'a dyn Operand, Sort),
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({} numbers an element)", self.per)
    }
}

impl<'a> Reader<'a> {
    /// One operand alone: its numbers are the reference's, and there is no difference.
    pub fn one(operand: &'a dyn Operand) -> Result<Self, ReadError> {
        let dtype = operand.dtype();
        if !dtype.has_numbers() {
            return Err(ReadError::NoData {
                why: "its elements are not numbers",
            });
        }
        let per = if dtype == DType::F4E2M1FnX2 { 2 } else { 1 };
        Ok(Self {
            sides: Sides::One(operand),
            values: Values::default(),
            difference: Vec::new(),
            per,
            grid: None,
        })
    }

    /// Two operands of equally many elements.
    ///
    /// # Panics
    /// When they have not.
    pub fn two(reference: &'a dyn Operand, candidate: &'a dyn Operand) -> Result<Self, ReadError> {
        assert_eq!(reference.len(), candidate.len(), "two parts of one size");
        let sort = Sort::of(reference, candidate)?;
        if matches!(sort, Sort::Opaque { .. }) {
            return Err(ReadError::NoData {
                why: "its elements are not numbers",
            });
        }
        let grid = Grid::of(reference.dtype(), candidate.dtype());
        let sides = Sides::Two(reference, candidate, sort);
        Ok(Self {
            sides,
            values: Values::default(),
            difference: Vec::new(),
            per: sort.per() as usize,
            grid,
        })
    }

    /// One operand, or two of equally many elements.
    ///
    /// # Panics
    /// As [`Reader::two`].
    pub fn of(
        reference: &'a dyn Operand,
        candidate: Option<&'a dyn Operand>,
    ) -> Result<Self, ReadError> {
        match candidate {
            Some(candidate) => Self::two(reference, candidate),
            None => Self::one(reference),
        }
    }

    /// Numbers of an element: 2 where two share one.
    pub fn per(&self) -> usize {
        self.per
    }

    pub fn len(&self) -> u64 {
        match self.sides {
            Sides::One(operand) | Sides::Two(operand, ..) => operand.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads elements `start .. start + count`.
    pub fn read(&mut self, start: u64, count: usize) {
        match self.sides {
            Sides::One(operand) => self.read_one(operand, start, count),
            Sides::Two(reference, candidate, sort) => {
                self.values.read(sort, reference, candidate, start, count);
                self.sign(sort);
            }
        }
    }

    fn read_one(&mut self, operand: &dyn Operand, start: u64, count: usize) {
        let Values {
            bytes,
            reference,
            parts,
            ..
        } = &mut self.values;
        if operand.dtype().kind() != Kind::Complex {
            assert!(
                operand.f64_values(start, count, &mut bytes[0], reference),
                "asked before"
            );
            return;
        }
        assert!(
            operand.f64_values(start, count, &mut bytes[0], &mut parts[0]),
            "complex numbers have numbers"
        );
        reference.clear();
        reference.extend(parts[0].as_chunks::<2>().0.iter().map(|z| {
            match z.iter().any(|x| x.is_nan()) {
                true => f64::NAN,
                false => z[0].hypot(z[1]),
            }
        }));
    }

    fn sign(&mut self, sort: Sort) {
        let Values {
            reference,
            candidate,
            apart,
            ints,
            ..
        } = &self.values;
        self.difference.clear();
        match sort {
            // Integers that fit an f64 are read as such.
            Sort::Ints if !ints[0].is_empty() => {
                let [left, right] = ints;
                let signed =
                    |((r, c), apart): ((&i128, &i128), &f64)| if c < r { -apart } else { *apart };
                self.difference
                    .extend(left.iter().zip(right).zip(apart).map(signed));
            }
            Sort::Complex => self.difference.extend_from_slice(apart),
            _ => {
                let signed =
                    |((r, c), apart): ((&f64, &f64), &f64)| if c < r { -apart } else { *apart };
                self.difference
                    .extend(reference.iter().zip(candidate).zip(apart).map(signed));
            }
        }
    }

    /// What was read last, [`Reader::per`] numbers an element. One operand alone has only reference numbers.
    pub fn numbers(&self, which: Which) -> &[f64] {
        match which {
            Which::Reference => &self.values.reference,
            Which::Candidate => &self.values.candidate,
            Which::Difference => &self.difference,
        }
    }

    /// How many units in the last place of the coarser dtype lie between the two `nth` numbers that were read last; `None` where a side is
    /// not finite.
    pub fn ulp(&self, nth: usize) -> Option<u64> {
        let Sides::Two(_, _, sort) = self.sides else {
            return None;
        };
        let Values {
            reference,
            candidate,
            apart,
            ints,
            parts,
            ..
        } = &self.values;
        match (sort, self.grid) {
            (Sort::Ints, _) if ints[0].is_empty() => apart.get(nth).map(|apart| *apart as u64),
            (Sort::Ints, _) => Some(
                u64::try_from(ints[1].get(nth)?.abs_diff(*ints[0].get(nth)?)).unwrap_or(u64::MAX),
            ),
            (Sort::Complex, Some(grid)) => {
                let part = |part: usize| {
                    Some((
                        *parts[0].get(2 * nth + part)?,
                        *parts[1].get(2 * nth + part)?,
                    ))
                };
                let both = [part(0)?, part(1)?];
                let finite = both.iter().all(|(r, c)| r.is_finite() && c.is_finite());
                finite.then(|| {
                    both.iter()
                        .map(|(r, c)| grid.distance(*r, *c))
                        .max()
                        .unwrap_or(0)
                })
            }
            (_, Some(grid)) => {
                let (r, c) = (*reference.get(nth)?, *candidate.get(nth)?);
                (r.is_finite() && c.is_finite()).then(|| grid.distance(r, c))
            }
            (_, None) => None,
        }
    }

    /// See [`twinscope_tensor::Storage::check`]: ask after reading.
    pub fn check(&self) -> Result<(), ReadError> {
        match self.sides {
            Sides::One(operand) => operand.check()?,
            Sides::Two(reference, candidate, _) => {
                reference.check()?;
                candidate.check()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::{Shape, View};

    #[test]
    fn neighbours_beyond_the_reach_of_f64_still_differ_and_have_a_sign() {
        let view = |x: i64| {
            View::new(
                DType::I64,
                Shape::from([1]),
                x.to_le_bytes().to_vec().into(),
            )
            .unwrap()
        };
        let (r, c) = (view((1 << 60) + 1), view(1 << 60));
        let mut reader = Reader::two(&r, &c).unwrap();
        reader.read(0, 1);
        assert_eq!(
            (reader.numbers(Which::Difference), reader.ulp(0)),
            (&[-1.0][..], Some(1))
        );
    }

    #[test]
    fn integers_of_every_width_differ_and_have_a_sign() {
        for dtype in [
            DType::Bool,
            DType::U8,
            DType::I8,
            DType::U16,
            DType::I16,
            DType::U32,
            DType::I32,
            DType::U64,
            DType::I64,
        ] {
            let view = |x: [u8; 3]| {
                let bytes: Vec<u8> = x
                    .iter()
                    .flat_map(|x| u64::from(*x).to_le_bytes()[..dtype.itemsize().unwrap()].to_vec())
                    .collect();
                View::new(dtype, Shape::from([3]), bytes.into()).unwrap()
            };
            let (r, c) = (view([0, 1, 1]), view([1, 1, 0]));
            let mut reader = Reader::two(&r, &c).unwrap();
            reader.read(0, 3);
            assert_eq!(
                reader.numbers(Which::Difference),
                [1.0, 0.0, -1.0],
                "{dtype}"
            );
            assert_eq!(
                [0, 1, 2].map(|nth| reader.ulp(nth)),
                [Some(1), Some(0), Some(1)],
                "{dtype}"
            );
            // A run that is read after another is not the other's.
            reader.read(1, 2);
            assert_eq!(reader.numbers(Which::Difference), [0.0, -1.0], "{dtype}");
        }
        let byte = View::new(DType::U8, Shape::from([1]), vec![200].into()).unwrap();
        let long = View::new(
            DType::I64,
            Shape::from([1]),
            (-1i64).to_le_bytes().to_vec().into(),
        )
        .unwrap();
        let mut reader = Reader::two(&byte, &long).unwrap();
        reader.read(0, 1);
        assert_eq!(
            (reader.numbers(Which::Difference), reader.ulp(0)),
            (&[-201.0][..], Some(201))
        );
    }

    #[test]
    fn one_nan_is_a_difference_and_two_are_none() {
        let view = |x: [f32; 3]| {
            View::new(
                DType::F32,
                Shape::from([3]),
                x.iter()
                    .flat_map(|x| x.to_le_bytes())
                    .collect::<Vec<_>>()
                    .into(),
            )
            .unwrap()
        };
        let (r, c) = (
            view([f32::NAN, f32::NAN, f32::INFINITY]),
            view([f32::NAN, 1.0, f32::INFINITY]),
        );
        let mut reader = Reader::two(&r, &c).unwrap();
        reader.read(0, 3);
        let difference = reader.numbers(Which::Difference);
        assert_eq!(
            (difference[0], difference[1].is_nan(), difference[2]),
            (0.0, true, 0.0)
        );
        assert_eq!(reader.ulp(1), None);
    }
}
