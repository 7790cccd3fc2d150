//! The worst elements, worst first: those whose difference is not finite, in their order; then the largest differences, the first of equals.

use super::Worst;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    /// `None` where the difference is not finite.
    #[serde(with = "crate::exact::maybe")]
    apart: Option<f64>,
    /// What the difference of two integers has beyond that: a double has not all its digits.
    #[serde(with = "crate::exact")]
    rest: f64,
    worst: Worst,
}

impl Entry {
    /// `Less` when `self` is worse.
    fn order(&self, other: &Self) -> Ordering {
        let size = match (self.apart, other.apart) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => b.total_cmp(&a).then(other.rest.total_cmp(&self.rest)),
        };
        size.then(self.worst.at.cmp(&other.worst.at))
    }
}

/// The `room` worst so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Top {
    room: usize,
    entries: Vec<Entry>,
}

impl Top {
    /// The worst one is always kept.
    pub(crate) fn new(wanted: usize) -> Self {
        Self {
            room: wanted.max(1),
            entries: Vec::new(),
        }
    }

    /// How many are kept.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// A difference below this need not be shown to `insert`. Equal ones must: the first of equals is worse.
    pub(crate) fn least(&self) -> f64 {
        match self.entries.last() {
            Some(last) if self.entries.len() == self.room => last.apart.unwrap_or(f64::INFINITY),
            _ => 0.0,
        }
    }

    /// Whether a later difference of this size would find no place: all are as large, and came first.
    pub(crate) fn has_room_for_none_like(&self, apart: f64) -> bool {
        self.entries.len() == self.room && self.least() >= apart
    }

    /// `apart` is `None` when the difference is not finite.
    pub(crate) fn insert(&mut self, apart: Option<f64>, worst: Worst) {
        self.insert_entry(Entry {
            apart,
            rest: 0.0,
            worst,
        });
    }

    /// Two integers that are `exactly` this far apart.
    pub(crate) fn insert_integers(&mut self, exactly: u128, worst: Worst) {
        let apart = exactly as f64;
        // Of numbers of 64 bits that is less than 2^12.
        let rest = (exactly as i128 - apart as i128) as f64;
        self.insert_entry(Entry {
            apart: Some(apart),
            rest,
            worst,
        });
    }

    fn insert_entry(&mut self, entry: Entry) {
        let full = self.entries.len() == self.room;
        if full
            && self
                .entries
                .last()
                .is_some_and(|last| last.order(&entry).is_le())
        {
            return;
        }
        let place = self
            .entries
            .partition_point(|other| other.order(&entry).is_lt());
        self.entries.insert(place, entry);
        self.entries.truncate(self.room);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other
            .entries
            .iter()
            .for_each(|entry| self.insert_entry(*entry));
    }

    pub(crate) fn worst(&self) -> Option<Worst> {
        self.entries.first().map(|entry| entry.worst)
    }

    pub(crate) fn first(self, wanted: usize) -> Vec<Worst> {
        self.entries
            .into_iter()
            .take(wanted)
            .map(|entry| entry.worst)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(at: u64) -> Worst {
        Worst {
            at,
            reference: 0.0,
            candidate: 0.0,
            imaginary: None,
            integers: [None; 2],
        }
    }

    #[test]
    fn integers_are_worse_by_their_last_digit() {
        let mut top = Top::new(2);
        for (at, apart) in [
            (0, 1 << 60),
            (1, (1 << 60) + 1),
            (2, (1 << 60) - 1),
            (3, (1 << 60) + 1),
        ] {
            top.insert_integers(apart, worst(at));
        }
        assert_eq!(
            top.first(4).iter().map(|w| w.at).collect::<Vec<_>>(),
            [1, 3]
        );
    }

    #[test]
    fn the_first_of_equals_and_everything_not_finite_come_first() {
        let mut top = Top::new(4);
        for (at, apart) in [
            (0, Some(1.0)),
            (1, Some(3.0)),
            (2, None),
            (3, Some(3.0)),
            (4, Some(2.0)),
            (5, None),
            (6, Some(3.0)),
        ] {
            top.insert(apart, worst(at));
        }
        assert_eq!(top.least(), 3.0);
        assert_eq!(top.worst(), Some(worst(2)));
        assert_eq!(
            top.first(4).iter().map(|w| w.at).collect::<Vec<_>>(),
            [2, 5, 1, 3]
        );
    }
}
