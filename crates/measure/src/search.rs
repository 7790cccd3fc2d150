//! The next or the previous element of a kind, in row-major order.
//!
//! Reading is bounded: a search gives up after `most` elements and says where it stopped, so that whoever asks can show how far it is and go on.

use crate::reader::{Reader, Which};
use twinscope_tensor::{Operand, ReadError};

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// A difference of more than this; one that is not finite always.
    Beyond(f64),
    NotFinite,
    Nan,
    /// From the first to the second, both included.
    Within(f64, f64),
}

/// Where to look from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct From {
    /// The first element looked at; backwards, the one after the first.
    pub at: u64,
    pub backwards: bool,
    pub most: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub at: Option<u64>,
    /// Everything between the start and here was read; `None` when there is no more to read.
    pub go_on: Option<u64>,
}

const BLOCK: u64 = 1 << 14;

/// Looks through one operand, or through two that are of one size.
pub fn search(
    reference: &dyn Operand,
    candidate: Option<&dyn Operand>,
    which: Which,
    wanted: Wanted,
    from: From,
) -> Result<Found, ReadError> {
    let mut reader = Reader::of(reference, candidate)?;
    let (len, per) = (reader.len(), reader.per());
    let mut at = from.at.min(len);
    let mut read = 0;
    let found = loop {
        let (start, end) = if from.backwards {
            (at.saturating_sub(BLOCK), at)
        } else {
            (at, (at + BLOCK).min(len))
        };
        if start == end {
            break Found {
                at: None,
                go_on: None,
            };
        }
        if read >= from.most {
            break Found {
                at: None,
                go_on: Some(at),
            };
        }
        reader.read(start, (end - start) as usize);
        let fits = |number: &f64| wanted.fits(*number);
        let numbers = reader.numbers(which);
        let nth = if from.backwards {
            numbers.iter().rposition(fits)
        } else {
            numbers.iter().position(fits)
        };
        if let Some(nth) = nth {
            break Found {
                at: Some(start + (nth / per) as u64),
                go_on: None,
            };
        }
        read += end - start;
        at = if from.backwards { start } else { end };
    };
    reader.check()?;
    Ok(found)
}

impl Wanted {
    fn fits(self, number: f64) -> bool {
        match self {
            // Written so that a NaN is beyond everything.
            Wanted::Beyond(most) => number.is_nan() || number.abs() > most,
            Wanted::NotFinite => !number.is_finite(),
            Wanted::Nan => number.is_nan(),
            Wanted::Within(low, high) => low <= number && number <= high,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::{DType, Shape, View};

    fn view(values: &[f32]) -> View {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        View::new(DType::F32, Shape::from([values.len() as u64]), bytes.into()).unwrap()
    }

    const ALL: u64 = u64::MAX;

    #[test]
    fn differences_are_found_both_ways_over_blocks() {
        let mut values = vec![0.0f32; 100_000];
        let reference = view(&values);
        (values[5], values[70_000]) = (1.0, f32::NAN);
        let candidate = view(&values);
        let find = |at, backwards| {
            search(
                &reference,
                Some(&candidate),
                Which::Difference,
                Wanted::Beyond(0.0),
                From {
                    at,
                    backwards,
                    most: ALL,
                },
            )
            .unwrap()
            .at
        };
        assert_eq!(
            [find(0, false), find(6, false), find(70_001, false)],
            [Some(5), Some(70_000), None]
        );
        assert_eq!(
            [find(100_000, true), find(70_000, true), find(5, true)],
            [Some(70_000), Some(5), None]
        );
    }

    #[test]
    fn values_ranges_and_what_is_not_finite() {
        let operand = view(&[1.0, f32::NEG_INFINITY, 2.5, f32::NAN]);
        let find = |wanted| {
            search(
                &operand,
                None,
                Which::Reference,
                wanted,
                From {
                    at: 0,
                    backwards: false,
                    most: ALL,
                },
            )
            .unwrap()
            .at
        };
        assert_eq!(find(Wanted::Within(2.0, 3.0)), Some(2));
        assert_eq!(find(Wanted::NotFinite), Some(1));
        assert_eq!(find(Wanted::Nan), Some(3));
        assert_eq!(find(Wanted::Within(7.0, 7.0)), None);
    }

    #[test]
    fn a_search_that_gives_up_says_where_to_go_on() {
        let mut values = vec![0.0f32; 60_000];
        values[50_000] = 3.0;
        let operand = view(&values);
        let step = |at| {
            search(
                &operand,
                None,
                Which::Reference,
                Wanted::Within(3.0, 3.0),
                From {
                    at,
                    backwards: false,
                    most: 20_000,
                },
            )
            .unwrap()
        };
        let first = step(0);
        assert_eq!(first.at, None);
        assert_eq!(
            step(step(first.go_on.unwrap()).go_on.unwrap_or(40_000)).at,
            Some(50_000)
        );
    }
}
