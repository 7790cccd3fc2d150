//! What happens, numbered: the last events of all sessions, for streams and for those who ask again and again.
//!
//! One log serves every tab. Whoever asks for more than is kept is given a snapshot instead, so a slow reader loses nothing but
//! the steps in between.

use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;
use twinscope_report::Row;
use utoipa::ToSchema;

/// How a comparison is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing was asked for yet: one source is being explored.
    Idle,
    /// Waits for others to finish.
    Queued,
    Running,
    Done,
    Cancelled,
    Failed,
    /// The server ended before it was done; it can be started again.
    Interrupted,
}

/// What a running comparison is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    #[default]
    Opening,
    Pairing,
    Measuring,
    Causes,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Progress {
    pub phase: Phase,
    pub pairs: usize,
    pub pairs_total: usize,
    pub bytes: u64,
    pub bytes_total: u64,
    #[schema(required = true)]
    pub bytes_per_second: Option<f64>,
    #[schema(required = true)]
    pub seconds_left: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    Progress(Progress),
    /// Rows that are new or changed. Verdicts are provisional until `state` says `done`: a pair is judged by those before it.
    Pairs {
        revision: u64,
        rows: Vec<Row>,
    },
    State {
        revision: u64,
        state: State,
        #[schema(required = true)]
        problem: Option<Problem>,
    },
    /// Its name, notes or order changed: ask for it again.
    Changed {
        revision: u64,
    },
    Deleted,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Event {
    pub seq: u64,
    pub session: String,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Debug)]
pub struct Events {
    log: Mutex<Log>,
    last: watch::Sender<u64>,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Log {
    seq: u64,
    kept: VecDeque<Event>,
}

/// As many events are kept.
const KEPT: usize = 2048;

impl Default for Events {
    fn default() -> Self {
        Self {
            log: Mutex::default(),
            last: watch::Sender::new(0),
            closed: AtomicBool::new(false),
        }
    }
}

impl Events {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, session: &str, what: What) {
        let seq = {
            let mut log = self.log();
            log.seq += 1;
            let event = Event {
                seq: log.seq,
                session: session.to_owned(),
                what,
            };
            log.kept.push_back(event);
            if log.kept.len() > KEPT {
                log.kept.pop_front();
            }
            log.seq
        };
        self.last.send_replace(seq);
    }

    pub fn seq(&self) -> u64 {
        self.log().seq
    }

    /// Events after `since`; `None` when some of them are no longer kept.
    pub fn since(&self, since: u64, session: Option<&str>) -> Option<(u64, Vec<Event>)> {
        let log = self.log();
        let oldest = log.kept.front().map_or(log.seq + 1, |event| event.seq);
        if since + 1 < oldest || since > log.seq {
            return None;
        }
        let wanted = |event: &&Event| {
            event.seq > since && session.is_none_or(|session| event.session == session)
        };
        Some((log.seq, log.kept.iter().filter(wanted).cloned().collect()))
    }

    /// Ends every stream: nothing more will happen.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.last.send_modify(|_| {});
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Changes with every event.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_longer_kept_is_said() {
        let events = Events::default();
        assert_eq!(events.since(0, None), Some((0, vec![])));
        for _ in 0..KEPT + 5 {
            events.push("s", What::Deleted);
        }
        events.push("t", What::Deleted);
        assert_eq!(events.since(2, None), None);
        assert_eq!(
            events.since(u64::MAX - 1, None),
            None,
            "numbers of an earlier server"
        );
        let (seq, found) = events.since(KEPT as u64 + 5, Some("t")).unwrap();
        assert_eq!((seq, found.len()), (KEPT as u64 + 6, 1));
        assert!(
            events
                .since(KEPT as u64 + 5, Some("s"))
                .unwrap()
                .1
                .is_empty()
        );
    }
}
