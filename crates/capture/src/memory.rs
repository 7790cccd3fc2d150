//! How much memory the process uses, as far as somebody counts.

use crate::MemorySample;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// An allocator that counts, around the one you use. What it counts goes into every span and sample.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: twinscope_capture::memory::Counting = twinscope_capture::memory::Counting::system();
/// ```
#[derive(Debug, Default)]
pub struct Counting<A = System>(A);

impl Counting {
    pub const fn system() -> Self {
        Self(System)
    }
}

impl<A> Counting<A> {
    pub const fn around(allocator: A) -> Self {
        Self(allocator)
    }
}

fn grown(bytes: usize) {
    let bytes = bytes as u64;
    ALLOCATED.fetch_add(bytes, Relaxed);
    ALLOCATIONS.fetch_add(1, Relaxed);
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    // A plain load first: the peak is rarely new, and a contended write is what costs.
    if live > PEAK.load(Relaxed) {
        PEAK.fetch_max(live, Relaxed);
    }
}

fn shrunk(bytes: usize) {
    LIVE.fetch_sub(bytes as u64, Relaxed);
}

// SAFETY: every call goes to the inner allocator unchanged; counting touches only atomics and allocates nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        let pointer = unsafe { self.0.alloc(layout) };
        if !pointer.is_null() {
            grown(layout.size());
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        let pointer = unsafe { self.0.alloc_zeroed(layout) };
        if !pointer.is_null() {
            grown(layout.size());
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.dealloc(pointer, layout) };
        shrunk(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        let moved = unsafe { self.0.realloc(pointer, layout, size) };
        if !moved.is_null() {
            shrunk(layout.size());
            grown(size);
        }
        moved
    }
}

/// What is known without asking the operating system; `None` when no [`Counting`] allocator is installed.
pub fn counted() -> Option<MemorySample> {
    let allocations = ALLOCATIONS.load(Relaxed);
    (allocations > 0).then(|| MemorySample {
        live: Some(LIVE.load(Relaxed)),
        live_peak: Some(PEAK.load(Relaxed)),
        allocated: Some(ALLOCATED.load(Relaxed)),
        allocations: Some(allocations),
        ..MemorySample::default()
    })
}

/// Everything known. The operating system is asked, which takes some microseconds.
pub fn sample() -> MemorySample {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = |key: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<u64>()
            .ok()
            .map(|kb| kb * 1024)
    };
    MemorySample {
        resident: kilobytes("VmRSS"),
        resident_peak: kilobytes("VmHWM"),
        ..counted().unwrap_or_default()
    }
}
