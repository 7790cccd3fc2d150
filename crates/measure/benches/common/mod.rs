//! What both benches stand on: a mapped file, times of slices, and the sum they are measured against.

use std::sync::LazyLock;
use twinscope_tensor::{Shrunk, Storage};

pub(crate) struct Mapped(pub(crate) memmap2::Mmap);

impl Storage for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn check(&self) -> Result<(), Shrunk> {
        Ok(())
    }
}

/// Seconds of all threads together with `TWINSCOPE_BENCH_CPU=1`, which a busy machine disturbs less; else those of the clock on the wall.
fn now() -> f64 {
    static CPU: LazyLock<bool> =
        LazyLock::new(|| std::env::var("TWINSCOPE_BENCH_CPU").is_ok_and(|set| set == "1"));
    let clock = if *CPU {
        libc::CLOCK_PROCESS_CPUTIME_ID
    } else {
        libc::CLOCK_MONOTONIC
    };
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written where one has room.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Seconds that each slice took, in each pass.
pub(crate) struct Passes(Vec<Vec<f64>>);

impl Passes {
    pub(crate) fn new(slices: usize) -> Self {
        Self(vec![Vec::new(); slices])
    }

    pub(crate) fn run<S, T>(&mut self, slices: &[S], work: impl Fn(&S) -> T) {
        for (slice, seconds) in slices.iter().zip(&mut self.0) {
            let start = now();
            std::hint::black_box(work(slice));
            seconds.push(now() - start);
        }
    }

    /// The best and the median pass, in GB/s.
    pub(crate) fn speed(mut self, len: usize) -> (f64, f64) {
        self.0
            .iter_mut()
            .for_each(|seconds| seconds.sort_by(f64::total_cmp));
        let best: f64 = self.0.iter().map(|seconds| seconds[0]).sum();
        let median: f64 = self
            .0
            .iter()
            .map(|seconds| seconds[seconds.len() / 2])
            .sum();
        (len as f64 / best / 1e9, len as f64 / median / 1e9)
    }
}

/// The bytes summed as f32, whatever they are: as fast as they can be read.
#[cfg(target_arch = "x86_64")]
pub(crate) fn sum(bytes: &[u8]) -> f32 {
    assert!(
        is_x86_feature_detected!("avx2"),
        "the baseline is an AVX2 sum"
    );
    // SAFETY: AVX2 was just detected.
    unsafe { sum_avx2(bytes) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> f32 {
    use std::arch::x86_64::*;
    let mut lanes = [_mm256_setzero_ps(); 8];
    for group in bytes.as_chunks::<256>().0 {
        for (i, lane) in lanes.iter_mut().enumerate() {
            // SAFETY: 32 bytes from 32·i lie inside the 256 bytes of the group.
            *lane = _mm256_add_ps(*lane, unsafe {
                _mm256_loadu_ps(group.as_ptr().add(32 * i).cast())
            });
        }
    }
    let mut eight = [0.0; 8];
    let all = lanes
        .into_iter()
        .fold(_mm256_setzero_ps(), |a, b| _mm256_add_ps(a, b));
    // SAFETY: eight `f32` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_ps(eight.as_mut_ptr(), all) };
    eight.iter().sum()
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn sum(bytes: &[u8]) -> f32 {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|x| f32::from_le_bytes(*x))
        .sum()
}
