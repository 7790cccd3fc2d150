//! `stats` against a plain AVX2 sum over the same mapped, pre-faulted bytes with the same threads, as a ratio in one run.
//!
//! `TWINSCOPE_BENCH_GIB` sets how much (default 2), `TWINSCOPE_BENCH_DTYPES` which (default `f32,bf16`; also `f16`, `f64`, `i32`, `u8`),
//! `TWINSCOPE_BENCH_ROUNDS` how often. Machines are noisy, so each pass is timed in slices of 4 MiB, the two take turns pass by pass (which
//! keeps the caches cold), and the speed is that of the best (and of the median) time of every slice, put together. Above the floor or not is printed, not enforced.

mod common;

use common::{Mapped, Passes, sum};
use rayon::prelude::*;
use std::{
    io::{BufWriter, Write},
    sync::Arc,
};
use twinscope_measure::stats;
use twinscope_tensor::{Bytes, DType, Shape, View};

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let setting =
        |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let gib: f64 = setting("TWINSCOPE_BENCH_GIB", "2")
        .parse()
        .expect("TWINSCOPE_BENCH_GIB is a number of GiB");
    let rounds: usize = setting("TWINSCOPE_BENCH_ROUNDS", "9")
        .parse()
        .expect("TWINSCOPE_BENCH_ROUNDS is a count");
    let len = ((gib * 1024.0) as usize).max(1) << 20;
    println!(
        "{gib} GiB in the page cache, {} threads, {rounds} rounds; GB/s, best (median)",
        rayon::current_num_threads()
    );
    println!(
        "{:<6} {:>16} {:>16} {:>16}  floor",
        "dtype", "sum", "stats", "ratio"
    );
    for name in setting("TWINSCOPE_BENCH_DTYPES", "f32,bf16").split(',') {
        let dtype = DType::parse(name).unwrap_or_else(|| panic!("`{name}` is not a dtype"));
        let bytes = mapped(dtype, len);
        let views: Vec<View> = (0..len)
            .step_by(SLICE)
            .map(|start| {
                let part = bytes
                    .slice(start as u64..(start + SLICE).min(len) as u64)
                    .expect("inside the file");
                let elements = (part.len() / dtype.itemsize().expect("whole bytes")) as u64;
                View::new(dtype, Shape::from([elements]), part).expect("exactly these bytes")
            })
            .collect();
        let (mut sum, mut all) = (Passes::new(views.len()), Passes::new(views.len()));
        for _ in 0..rounds {
            sum.run(&views, |view| {
                baseline(view.contiguous().expect("row-major"))
            });
            all.run(&views, |view| stats(view).expect("the file stays as it is"));
        }
        let (sum, all) = (sum.speed(len), all.speed(len));
        let floor = match dtype {
            DType::F32 => "0.65",
            DType::Bf16 => "0.40",
            _ => "-",
        };
        let cell = |(best, median): (f64, f64), digits: usize| {
            format!("{best:.digits$} ({median:.digits$})")
        };
        let ratio = (all.0 / sum.0, all.1 / sum.1);
        println!(
            "{name:<6} {:>16} {:>16} {:>16}  {floor}",
            cell(sum, 1),
            cell(all, 1),
            cell(ratio, 2)
        );
    }
}

const SLICE: usize = 4 << 20;

/// A temporary file of bell-shaped numbers of that type, mapped, every page touched.
fn mapped(dtype: DType, len: usize) -> Bytes {
    let file = tempfile::tempfile().expect("a temporary file");
    let mut out = BufWriter::with_capacity(1 << 20, &file);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    let mut pattern = Vec::with_capacity(1 << 20);
    while pattern.len() < 1 << 20 {
        let x = 0.05 * (uniform() + uniform() + uniform() + uniform());
        match dtype {
            DType::F64 => pattern.extend(x.to_le_bytes()),
            DType::F32 => pattern.extend((x as f32).to_le_bytes()),
            DType::Bf16 => pattern.extend(&(x as f32).to_le_bytes()[2..]),
            // Any bits without the top exponents are small numbers.
            DType::F16 => pattern.extend(((x * 1e6) as i16 as u16 & 0xbfff).to_le_bytes()),
            DType::I32 => pattern.extend(((x * 1e9) as i32).to_le_bytes()),
            _ => pattern.push((x * 1e6) as i64 as u8),
        }
    }
    for _ in 0..len >> 20 {
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
fn baseline(bytes: &[u8]) -> f32 {
    bytes
        .par_chunks(1 << 18)
        .map(sum)
        .collect::<Vec<f32>>()
        .into_iter()
        .sum()
}
