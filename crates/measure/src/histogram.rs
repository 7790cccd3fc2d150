//! How many numbers lie in each of a row of equal ranges.
//!
//! Exact up to `budget` elements; beyond, evenly spread blocks are read, counts are multiplied to stand for all, and
//! [`Histogram::exact`] is false. What is not finite is counted by itself.

use crate::reader::{Reader, Which};
use twinscope_tensor::{Operand, ReadError};

#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    pub low: f64,
    pub high: f64,
    /// The last range includes its end.
    pub counts: Vec<u64>,
    pub below: u64,
    pub above: u64,
    pub nan: u64,
    pub inf: u64,
    pub exact: bool,
}

/// Which ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bins {
    pub low: f64,
    pub high: f64,
    pub count: usize,
}

const BLOCK: u64 = 1 << 14;

/// One histogram for each of what is asked for, over the same elements. One operand alone has only reference numbers.
pub fn histograms(
    reference: &dyn Operand,
    candidate: Option<&dyn Operand>,
    wanted: &[(Which, Bins)],
    budget: u64,
) -> Result<Vec<Histogram>, ReadError> {
    let mut reader = Reader::of(reference, candidate)?;
    let len = reader.len();
    let blocks = len.div_ceil(BLOCK);
    let every = len.div_ceil(budget.max(1)).max(1);
    let mut found: Vec<Histogram> = wanted
        .iter()
        .map(|(_, bins)| Histogram::new(*bins, every == 1))
        .collect();
    let mut block = 0;
    while block < blocks {
        let start = block * BLOCK;
        // The last steps may be fewer: each block stands for the blocks up to the next one read.
        let weight = every.min(blocks - block);
        reader.read(start, BLOCK.min(len - start) as usize);
        for ((which, _), histogram) in wanted.iter().zip(&mut found) {
            reader
                .numbers(*which)
                .iter()
                .for_each(|number| histogram.add(*number, weight));
        }
        block += every;
    }
    reader.check()?;
    Ok(found)
}

impl Histogram {
    fn new(bins: Bins, exact: bool) -> Self {
        let Bins { low, high, count } = bins;
        Self {
            low,
            high,
            counts: vec![0; count.max(1)],
            below: 0,
            above: 0,
            nan: 0,
            inf: 0,
            exact,
        }
    }

    fn add(&mut self, number: f64, weight: u64) {
        let slot = if number.is_nan() {
            &mut self.nan
        } else if number.is_infinite() {
            &mut self.inf
        } else if number < self.low {
            &mut self.below
        } else if number > self.high {
            &mut self.above
        } else {
            let count = self.counts.len();
            // Halved so that the span of the largest numbers is not infinite.
            let span = self.high / 2.0 - self.low / 2.0;
            let part = if span > 0.0 {
                (number / 2.0 - self.low / 2.0) / span
            } else {
                0.0
            };
            &mut self.counts[((part * count as f64) as usize).min(count - 1)]
        };
        *slot += weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::{DType, Shape, View};

    fn view(values: &[f64]) -> View {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        View::new(DType::F64, Shape::from([values.len() as u64]), bytes.into()).unwrap()
    }

    #[test]
    fn every_number_is_counted_once_and_a_nan_by_itself() {
        let operand = view(&[0.0, 0.5, 1.0, -1.0, 2.0, f64::NAN, f64::INFINITY, 0.25]);
        let bins = Bins {
            low: 0.0,
            high: 1.0,
            count: 4,
        };
        let found = histograms(&operand, None, &[(Which::Reference, bins)], 1 << 20)
            .unwrap()
            .remove(0);
        assert_eq!(
            (
                &found.counts[..],
                found.below,
                found.above,
                found.nan,
                found.inf
            ),
            (&[1, 1, 1, 1][..], 1, 1, 1, 1)
        );
        assert!(found.exact);
    }

    #[test]
    fn a_sample_stands_for_all_and_says_so() {
        let operand = view(&vec![3.0; 1 << 18]);
        let bins = Bins {
            low: 3.0,
            high: 3.0,
            count: 8,
        };
        let found = histograms(&operand, None, &[(Which::Reference, bins)], 1 << 16)
            .unwrap()
            .remove(0);
        assert_eq!((found.counts[0], found.exact), (1 << 18, false));
    }

    #[test]
    fn the_widest_range_there_is_has_finite_bins() {
        let operand = view(&[f64::MAX, f64::MIN, 0.0]);
        let bins = Bins {
            low: f64::MIN,
            high: f64::MAX,
            count: 2,
        };
        let found = histograms(&operand, None, &[(Which::Reference, bins)], 10)
            .unwrap()
            .remove(0);
        assert_eq!(found.counts, [1, 2]);
    }
}
