//! Data flow: which record a tensor is, told by the memory it lives in.
//!
//! An address means a tensor only while that tensor lives: memory is given out again. So the tensors of the last records are held, up to
//! a bound in bytes; what is no longer held is no longer known. A missing edge is left out, a wrong one is never drawn.

use crate::Identity;
use std::{
    any::Any,
    collections::{HashMap, VecDeque},
};

pub(crate) struct Flow {
    /// The last record in the memory at this address.
    records: HashMap<usize, u64>,
    held: VecDeque<Held>,
    bytes: u64,
    limit: u64,
    /// The weights of each module, by its path.
    weights: HashMap<String, Vec<u64>>,
}

struct Held {
    storage: usize,
    i: u64,
    bytes: u64,
    _hold: Box<dyn Any + Send>,
}

impl Flow {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            records: HashMap::new(),
            held: VecDeque::new(),
            bytes: 0,
            limit,
            weights: HashMap::new(),
        }
    }

    /// The record in this memory, if it is still known.
    pub(crate) fn record_at(&self, storage: usize) -> Option<u64> {
        self.records.get(&storage).copied()
    }

    pub(crate) fn weights_of(&self, module: &str) -> &[u64] {
        self.weights.get(module).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn weight(&mut self, name: &str, i: u64) {
        let module = name.rsplit_once('.').map_or("", |(module, _)| module);
        self.weights.entry(module.to_owned()).or_default().push(i);
    }

    pub(crate) fn remember(&mut self, identity: Identity, i: u64) {
        let Identity {
            storage,
            bytes,
            hold,
        } = identity;
        if bytes > self.limit {
            return;
        }
        self.records.insert(storage, i);
        self.held.push_back(Held {
            storage,
            i,
            bytes,
            _hold: hold,
        });
        self.bytes += bytes;
        while self.bytes > self.limit {
            let Some(oldest) = self.held.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes;
            if self.records.get(&oldest.storage) == Some(&oldest.i) {
                self.records.remove(&oldest.storage);
            }
        }
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Flow({} held, {} bytes)", self.held.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(storage: usize, bytes: u64) -> Identity {
        Identity {
            storage,
            bytes,
            hold: Box::new(()),
        }
    }

    #[test]
    fn what_is_no_longer_held_is_no_longer_known() {
        let mut flow = Flow::new(100);
        flow.remember(identity(1, 60), 0);
        flow.remember(identity(2, 40), 1);
        assert_eq!((flow.record_at(1), flow.record_at(2)), (Some(0), Some(1)));
        flow.remember(identity(3, 10), 2);
        assert_eq!(
            (flow.record_at(1), flow.record_at(2), flow.record_at(3)),
            (None, Some(1), Some(2))
        );
        flow.remember(identity(4, 101), 3);
        assert_eq!(flow.record_at(4), None);
    }

    #[test]
    fn the_last_record_in_the_same_memory_counts() {
        let mut flow = Flow::new(100);
        flow.remember(identity(1, 50), 0);
        flow.remember(identity(1, 50), 1);
        flow.remember(identity(2, 50), 2);
        assert_eq!(flow.record_at(1), Some(1));
    }
}
