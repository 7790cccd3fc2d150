//! The cheap rejection that the hypotheses share: what one says, held against the candidate at a few scattered elements.
//!
//! A wrong arrangement fails at the first or second element, so thousands can be tried; what passes is scored on everything.

use crate::{Case, array::median};
use std::cell::OnceCell;

/// What is left may be this many times the noise, as in the score.
pub(super) const SLACK: f64 = 2.0;
/// Elements looked at, most of them where the sides differ.
const ELEMENTS: usize = 96;
/// Elements tried to find those.
const TRIES: usize = 1 << 13;
/// One in so many may disagree: a second fault in a corner must not hide the first.
const SPARED: usize = 8;

/// Nor may it be more than this share of the typical element, however large the error is that came with the inputs: the worst element's is many times
/// that of nearly all others, and within twice its size everything is alike.
const WIDEST: f64 = 0.5;

/// What may be left of the squared difference.
pub(super) const LEFT: f64 = 0.1;

/// Scattered elements of a case, those that differ first.
pub(super) struct Probe<'a> {
    case: &'a Case<'a>,
    at: Vec<usize>,
    rms: f64,
    bits: OnceCell<f64>,
}

impl<'a> Probe<'a> {
    pub(super) fn new(case: &'a Case<'a>) -> Self {
        let elements = case.candidate.len();
        let rms = typical(case.candidate);
        let mut probe = Self {
            case,
            at: Vec::new(),
            rms,
            bits: OnceCell::new(),
        };
        if elements <= ELEMENTS {
            let mut at: Vec<usize> = (0..elements).collect();
            at.sort_by_key(|at| !probe.differs(*at));
            probe.at = at;
            return probe;
        }
        let mut others = Vec::new();
        for nth in 0..TRIES {
            let at = (hash(nth as u64) % elements as u64) as usize;
            if probe.at.len() < 3 * ELEMENTS / 4 && probe.differs(at) {
                probe.at.push(at);
            } else if others.len() < ELEMENTS / 4 {
                others.push(at);
            }
        }
        probe.at.extend(others);
        probe
    }

    /// Whether a prediction of the element is right up to rounding.
    pub(super) fn same(&self, at: usize, predicted: f64) -> bool {
        close(
            predicted,
            self.case.candidate[at],
            self.rms,
            self.tolerance(),
        )
    }

    /// What rounding may do to one element, relative to it or to the typical one.
    pub(super) fn tolerance(&self) -> f64 {
        (SLACK * self.case.noise[3]).min(WIDEST)
    }

    pub(super) fn rms(&self) -> f64 {
        self.rms
    }

    fn differs(&self, at: usize) -> bool {
        !self.same(at, self.case.reference[at])
    }

    /// Whether the prediction is right nearly everywhere it is looked at.
    pub(super) fn accepts(&self, predicted: impl Fn(usize) -> f64) -> bool {
        let spare = self.at.len() / SPARED;
        let (mut wrong, mut left, mut whole) = (0, 0.0, 0.0);
        for (nth, at) in self.at.iter().enumerate() {
            let (p, c, r) = (
                predicted(*at),
                self.case.candidate[*at],
                self.case.reference[*at],
            );
            if !self.same(*at, p) {
                wrong += 1;
                if wrong > spare || wrong > 2 && nth < 16 {
                    return false;
                }
            } else if p.is_finite() && c.is_finite() && r.is_finite() {
                left += (c - p) * (c - p);
                whole += (c - r) * (c - r);
            }
        }
        // Beside much noise much would pass: it must be far nearer than the reference is.
        !self.at.is_empty() && left <= LEFT * whole
    }

    /// How surely a prediction without a fitted number cannot be right by chance, in bits: the elements that differ, times what hitting one
    /// within its rounding is worth.
    pub(super) fn evidence(&self) -> f64 {
        *self.bits.get_or_init(|| {
            let elements = self.case.candidate.len();
            let looked = elements.min(TRIES);
            let at = |nth: usize| {
                if looked == elements {
                    nth
                } else {
                    (hash(nth as u64) % elements as u64) as usize
                }
            };
            let differing = (0..looked).filter(|nth| self.differs(at(*nth))).count();
            differing as f64 / looked.max(1) as f64 * elements as f64 * self.bits_per_element()
        })
    }

    /// What it is worth to hit one element within its rounding.
    pub(super) fn bits_per_element(&self) -> f64 {
        // A window of twice the tolerance in a range of about four rms.
        (2.0 / self.tolerance().max(1e-9)).log2().max(0.0)
    }
}

/// Fewer bits than this may be chance, after all the arrangements that are tried.
pub(super) const ENOUGH_BITS: f64 = 48.0;

pub(super) fn close(predicted: f64, value: f64, rms: f64, tolerance: f64) -> bool {
    if predicted.is_finite() && value.is_finite() {
        (predicted - value).abs() <= tolerance * predicted.abs().max(rms)
    } else {
        predicted == value || (predicted.is_nan() && value.is_nan())
    }
}

/// The rms of the finite values, but not so much more than their median that a few huge ones (a mask of -1e9) would make all others alike.
pub(super) fn typical(values: &[f64]) -> f64 {
    let (mut sum, mut count) = (0.0, 0usize);
    for value in values.iter().filter(|value| value.is_finite()) {
        sum += value * value;
        count += 1;
    }
    if count == 0 {
        return 0.0;
    }
    let rms = (sum / count as f64).sqrt();
    let step = (values.len() / MEDIAN_OF).max(1) | 1;
    let mut sample: Vec<f64> = values
        .iter()
        .step_by(step)
        .map(|value| value.abs())
        .filter(|value| value.is_finite() && *value > 0.0)
        .collect();
    let middle = median(&mut sample);
    if middle > 0.0 {
        rms.min(HUGE * middle)
    } else {
        rms
    }
}

const MEDIAN_OF: usize = 2048;
const HUGE: f64 = 16.0;

pub(super) fn hash(seed: u64) -> u64 {
    let z = (seed ^ 0x5851_f42d_4c95_7f2d).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Every divisor, in order.
pub(super) fn divisors(n: usize) -> Vec<usize> {
    let mut small: Vec<usize> = (1..)
        .take_while(|d| d * d <= n)
        .filter(|d| n.is_multiple_of(*d))
        .collect();
    let large: Vec<usize> = small
        .iter()
        .rev()
        .map(|d| n / d)
        .filter(|d| d * d > n)
        .collect();
    small.extend(large);
    small
}

#[cfg(test)]
mod tests {
    use super::divisors;

    #[test]
    fn divisors_come_in_order_and_once() {
        assert_eq!(divisors(12), [1, 2, 3, 4, 6, 12]);
        assert_eq!(divisors(16), [1, 2, 4, 8, 16]);
        assert_eq!(divisors(1), [1]);
    }
}
