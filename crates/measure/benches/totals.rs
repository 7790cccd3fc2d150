//! `totals` against a plain AVX2 sum over the same mapped, pre-faulted bytes with the same threads, as a ratio in one run; and tiny pairs.
//!
//! `TWINSCOPE_BENCH_GIB` sets how much a side (default 2), `TWINSCOPE_BENCH_DTYPES` which (default `f32,bf16`; also `f16`, `f64`),
//! `TWINSCOPE_BENCH_COLUMNS` the last axis (default 4096), `TWINSCOPE_BENCH_ROUNDS` how often. Each pass is timed in slices of 16 MiB a side, the
//! passes take turns, and the speed is that of the best (and of the median) time of every slice, put together. Nothing is enforced.

use rayon::prelude::*;
use std::{
    io::{BufWriter, Write},
    sync::Arc,
    time::Instant,
};
use twinscope_measure::{Options, totals};
use twinscope_tensor::{Bytes, DType, Shape, Shrunk, Storage, View};

struct Mapped(memmap2::Mmap);

impl Storage for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn check(&self) -> Result<(), Shrunk> {
        Ok(())
    }
}

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let setting = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let gib: f64 = setting("TWINSCOPE_BENCH_GIB", "2").parse().expect("TWINSCOPE_BENCH_GIB is a number of GiB");
    let rounds: usize = setting("TWINSCOPE_BENCH_ROUNDS", "7").parse().expect("TWINSCOPE_BENCH_ROUNDS is a count");
    let columns: u64 = setting("TWINSCOPE_BENCH_COLUMNS", "4096").parse().expect("TWINSCOPE_BENCH_COLUMNS is a count");
    let len = ((gib * 1024.0) as usize).max(16) >> 4 << 24;
    tiny();
    println!("2 x {gib} GiB in the page cache, {} threads, {rounds} rounds; ratio to the sum, best (median)", rayon::current_num_threads());
    println!("{:<6} {:>20} {:>16} {:>16} {:>16} {:>16}  floor", "dtype", "data", "sum GB/s", "totals GB/s", "ratio", "no profiles");
    for name in setting("TWINSCOPE_BENCH_DTYPES", "f32,bf16").split(',') {
        let dtype = DType::parse(name).unwrap_or_else(|| panic!("`{name}` is not a dtype"));
        let floor = match dtype {
            DType::F32 => "0.6",
            DType::Bf16 => "0.35",
            _ => "-",
        };
        let reference = mapped(dtype, len, 0.0);
        for (data, noise) in [("slightly differing", 1e-2), ("identical", 0.0)] {
            let candidate = mapped(dtype, len, noise);
            let pairs: Vec<(View, View)> = (0..len)
                .step_by(SLICE)
                .map(|start| {
                    let part = |bytes: &Bytes| {
                        let part = bytes.slice(start as u64..(start + SLICE) as u64).expect("inside the file");
                        let elements = (part.len() / dtype.itemsize().expect("whole bytes")) as u64;
                        View::new(dtype, Shape::from([elements / columns, columns]), part).expect("exactly these bytes")
                    };
                    (part(&reference), part(&candidate))
                })
                .collect();
            let mut passes = [Passes::new(pairs.len()), Passes::new(pairs.len()), Passes::new(pairs.len())];
            for _ in 0..rounds {
                passes[0].run(&pairs, baseline);
                for (pass, profiles) in [(1, true), (2, false)] {
                    let options = Options { profiles, top: 10, tolerance: None };
                    passes[pass].run(&pairs, |pair| totals(&pair.0, &pair.1, &options).expect("the file stays as it is"));
                }
            }
            let [sum, all, bare] = passes.map(|pass| pass.speed(2 * len));
            let cell = |(best, median): (f64, f64), digits: usize| format!("{best:.digits$} ({median:.digits$})");
            let ratio = |of: (f64, f64)| cell((of.0 / sum.0, of.1 / sum.1), 2);
            println!("{name:<6} {data:>20} {:>16} {:>16} {:>16} {:>16}  {floor}", cell(sum, 1), cell(all, 1), ratio(all), ratio(bare));
        }
    }
}

const SLICE: usize = 16 << 20;

/// 10,000 pairs of 16 elements.
fn tiny() {
    let view = |shift: f32| {
        let bytes: Vec<u8> = (0..16).flat_map(|i| (i as f32 * (1.0 + shift)).to_le_bytes()).collect();
        View::new(DType::F32, Shape::from([4, 4]), bytes.into()).expect("exactly these bytes")
    };
    let (reference, candidate) = (view(0.0), view(1e-6));
    let options = Options { profiles: true, top: 10, tolerance: None };
    let start = Instant::now();
    for _ in 0..10_000 {
        std::hint::black_box(totals(&reference, &candidate, &options).expect("memory stays as it is"));
    }
    println!("10,000 pairs of 16 elements: {:.2} us each", start.elapsed().as_secs_f64() * 100.0);
}

/// Seconds that each slice took, in each pass.
struct Passes(Vec<Vec<f64>>);

impl Passes {
    fn new(slices: usize) -> Self {
        Self(vec![Vec::new(); slices])
    }

    fn run<T>(&mut self, pairs: &[(View, View)], work: impl Fn(&(View, View)) -> T) {
        for (pair, seconds) in pairs.iter().zip(&mut self.0) {
            let start = Instant::now();
            std::hint::black_box(work(pair));
            seconds.push(start.elapsed().as_secs_f64());
        }
    }

    /// The best and the median pass, in GB/s.
    fn speed(mut self, len: usize) -> (f64, f64) {
        self.0.iter_mut().for_each(|seconds| seconds.sort_by(f64::total_cmp));
        let best: f64 = self.0.iter().map(|seconds| seconds[0]).sum();
        let median: f64 = self.0.iter().map(|seconds| seconds[seconds.len() / 2]).sum();
        (len as f64 / best / 1e9, len as f64 / median / 1e9)
    }
}

/// A temporary file of bell-shaped numbers of that type, mapped, every page touched. The same ones each time, but for the noise.
fn mapped(dtype: DType, len: usize, noise: f64) -> Bytes {
    let file = tempfile::tempfile().expect("a temporary file");
    let mut out = BufWriter::with_capacity(1 << 20, &file);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    let mut pattern = Vec::with_capacity(1 << 22);
    while pattern.len() < 1 << 22 {
        let x = 0.05 * (uniform() + uniform() + uniform() + uniform());
        let x = x + x * noise * uniform();
        match dtype {
            DType::F64 => pattern.extend(x.to_le_bytes()),
            DType::F32 => pattern.extend((x as f32).to_le_bytes()),
            DType::Bf16 => pattern.extend(&(x as f32).to_le_bytes()[2..]),
            // Any bits without the top exponents are small numbers.
            _ => pattern.extend(((x * 1e6) as i16 as u16 & 0xbfff).to_le_bytes()),
        }
    }
    for _ in 0..len >> 22 {
        out.write_all(&pattern).expect("room for the file");
    }
    out.flush().expect("room for the file");
    drop(out);
    // SAFETY: nobody else has this file.
    let map = unsafe { memmap2::Mmap::map(&file) }.expect("a map");
    let touched: u64 = map.chunks(4096).map(|page| u64::from(page[0])).sum();
    std::hint::black_box(touched);
    Bytes::new(Arc::new(Mapped(map)))
}

/// The bytes summed as f32, whatever they are: as fast as they can be read.
fn baseline(pair: &(View, View)) -> f32 {
    let bytes =
        |view: &View| -> f32 { view.contiguous().expect("row-major").par_chunks(1 << 18).map(sum).collect::<Vec<f32>>().into_iter().sum() };
    bytes(&pair.0) + bytes(&pair.1)
}

#[cfg(target_arch = "x86_64")]
fn sum(bytes: &[u8]) -> f32 {
    assert!(is_x86_feature_detected!("avx2"), "the baseline is an AVX2 sum");
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
            *lane = _mm256_add_ps(*lane, unsafe { _mm256_loadu_ps(group.as_ptr().add(32 * i).cast()) });
        }
    }
    let mut eight = [0.0; 8];
    let all = lanes.into_iter().fold(_mm256_setzero_ps(), |a, b| _mm256_add_ps(a, b));
    // SAFETY: eight `f32` take the 32 bytes that are stored.
    unsafe { _mm256_storeu_ps(eight.as_mut_ptr(), all) };
    eight.iter().sum()
}

#[cfg(not(target_arch = "x86_64"))]
fn sum(bytes: &[u8]) -> f32 {
    bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).sum()
}
