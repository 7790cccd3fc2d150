//! Nanoseconds since 1970 that never go back within a process.

use std::{
    sync::OnceLock,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Now. One look at the system's clock when first asked, then the monotonic clock from there: spans cannot have negative lengths, and ranks of
/// one machine share a time line.
pub fn now_ns() -> u64 {
    static START: OnceLock<(Instant, u64)> = OnceLock::new();
    let (instant, epoch) = START.get_or_init(|| {
        (
            Instant::now(),
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_nanos() as u64,
        )
    });
    epoch + instant.elapsed().as_nanos() as u64
}
