//! Telling somebody how far unpacking has come: the only slow thing that opening a file can do.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Told about unpacking that takes a while. Called from any thread, at most every 50 ms for one file.
pub trait Progress: Send + Sync {
    /// `done` bytes of `what` are unpacked, of `total` where that is known.
    fn unpacking(&self, what: &str, done: u64, total: Option<u64>);
}

const EVERY: Duration = Duration::from_millis(50);

/// One file's reports, thinned out.
pub(crate) struct Ticker<'a> {
    progress: Option<Arc<dyn Progress>>,
    what: &'a str,
    total: Option<u64>,
    done: u64,
    last: Instant,
}

impl<'a> Ticker<'a> {
    pub(crate) fn new(
        progress: Option<Arc<dyn Progress>>,
        what: &'a str,
        total: Option<u64>,
    ) -> Self {
        Self {
            progress,
            what,
            total,
            done: 0,
            last: Instant::now(),
        }
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(progress) = &self.progress
            && self.last.elapsed() >= EVERY
        {
            progress.unpacking(self.what, self.done, self.total);
            self.last = Instant::now();
        }
    }
}
