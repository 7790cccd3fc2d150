//! `totals` against a plain AVX2 sum over the same mapped, pre-faulted bytes with the same threads, as a ratio in one run; and tiny pairs.
//!
//! `TWINSCOPE_BENCH_GIB` sets how much a side (default 2), `TWINSCOPE_BENCH_DTYPES` which (default `f32,bf16`; also `f16`, `f64`),
//! `TWINSCOPE_BENCH_DATA` what of the data (any of `differing`, `noise`, `identical`), `TWINSCOPE_BENCH_COLUMNS` the last axis (default 1024: blocks hold several rows), `TWINSCOPE_BENCH_ROUNDS` how often. Each pass is timed in slices of
//! `TWINSCOPE_BENCH_SLICE` MiB a side (default 64, a weight of 4096 x 4096 in f32; a busy machine interrupts short ones less often), the passes take turns, and the speed is that of the best (and of the median) time of every slice, put together. Nothing is enforced.
//! `TWINSCOPE_BENCH_CPU=1` counts the time of the processors instead.

mod common;

use common::{Mapped, Passes, sum};
use rayon::prelude::*;
use std::{
    io::{BufWriter, Write},
    sync::Arc,
    time::Instant,
};
use twinscope_measure::{Options, Profiling, totals};
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
    let rounds: usize = setting("TWINSCOPE_BENCH_ROUNDS", "7")
        .parse()
        .expect("TWINSCOPE_BENCH_ROUNDS is a count");
    let columns: u64 = setting("TWINSCOPE_BENCH_COLUMNS", "1024")
        .parse()
        .expect("TWINSCOPE_BENCH_COLUMNS is a count");
    let slice: usize = setting("TWINSCOPE_BENCH_SLICE", "64")
        .parse::<usize>()
        .expect("TWINSCOPE_BENCH_SLICE is a number of MiB")
        << 20;
    let len = ((gib * 1024.0) as usize).max(16) >> 4 << 24;
    tiny();
    println!(
        "2 x {gib} GiB in the page cache, {} threads, {rounds} rounds; ratio to the sum, best (median)",
        rayon::current_num_threads()
    );
    println!(
        "{:<6} {:>20} {:>16} {:>16} {:>16} {:>16}  floor",
        "dtype", "data", "sum GB/s", "totals GB/s", "ratio", "no profiles"
    );
    for name in setting("TWINSCOPE_BENCH_DTYPES", "f32,bf16").split(',') {
        let dtype = DType::parse(name).unwrap_or_else(|| panic!("`{name}` is not a dtype"));
        let floor = match dtype {
            DType::F32 => "0.6",
            DType::Bf16 => "0.35",
            _ => "-",
        };
        let reference = mapped(dtype, len, Noise::None);
        let kinds = setting("TWINSCOPE_BENCH_DATA", "differing,noise,identical");
        for kind in kinds.split(',') {
            let (data, noise) = match kind {
                "differing" => ("slightly differing", Noise::OfNumber(1e-2)),
                "noise" => ("noise of one size", Noise::OfAll(1e-4)),
                "identical" => ("identical", Noise::None),
                _ => panic!("`{kind}` is no kind of data"),
            };
            let candidate = mapped(dtype, len, noise);
            let pairs: Vec<(View, View)> = (0..len)
                .step_by(slice)
                .map(|start| {
                    let part = |bytes: &Bytes| {
                        let part = bytes
                            .slice(start as u64..(start + slice) as u64)
                            .expect("inside the file");
                        let elements = (part.len() / dtype.itemsize().expect("whole bytes")) as u64;
                        View::new(dtype, Shape::from([elements / columns, columns]), part)
                            .expect("exactly these bytes")
                    };
                    (part(&reference), part(&candidate))
                })
                .collect();
            let mut passes = [
                Passes::new(pairs.len()),
                Passes::new(pairs.len()),
                Passes::new(pairs.len()),
            ];
            for _ in 0..rounds {
                passes[0].run(&pairs, baseline);
                for (pass, profiles) in [(1, true), (2, false)] {
                    let options = Options {
                        profiles: if profiles {
                            Profiling::Sampled
                        } else {
                            Profiling::Off
                        },
                        top: 10,
                        tolerance: None,
                    };
                    passes[pass].run(&pairs, |pair| {
                        totals(&pair.0, &pair.1, &options).expect("the file stays as it is")
                    });
                }
            }
            let [sum, all, bare] = passes.map(|pass| pass.speed(2 * len));
            let cell = |(best, median): (f64, f64), digits: usize| {
                format!("{best:.digits$} ({median:.digits$})")
            };
            let ratio = |of: (f64, f64)| cell((of.0 / sum.0, of.1 / sum.1), 2);
            println!(
                "{name:<6} {data:>20} {:>16} {:>16} {:>16} {:>16}  {floor}",
                cell(sum, 1),
                cell(all, 1),
                ratio(all),
                ratio(bare)
            );
        }
    }
}

/// 10,000 pairs of 16 elements.
fn tiny() {
    let view = |shift: f32| {
        let bytes: Vec<u8> = (0..16)
            .flat_map(|i| (i as f32 * (1.0 + shift)).to_le_bytes())
            .collect();
        View::new(DType::F32, Shape::from([4, 4]), bytes.into()).expect("exactly these bytes")
    };
    let (reference, candidate) = (view(0.0), view(1e-6));
    let options = Options {
        profiles: Profiling::Sampled,
        top: 10,
        tolerance: None,
    };
    let start = Instant::now();
    for _ in 0..10_000 {
        std::hint::black_box(
            totals(&reference, &candidate, &options).expect("memory stays as it is"),
        );
    }
    println!(
        "10,000 pairs of 16 elements: {:.2} us each",
        start.elapsed().as_secs_f64() * 100.0
    );
}

/// What the candidate has and the reference does not.
#[derive(Clone, Copy)]
enum Noise {
    None,
    /// A fraction of each number: all pairs are close to each other.
    OfNumber(f64),
    /// Of the same size everywhere, as roundings of a longer computation are: numbers near 0 differ by much, some in their sign.
    OfAll(f64),
}

/// Bytes of a header of a safetensors file with one tensor.
const HEADER: usize = 80;

/// A temporary file of bell-shaped numbers of that type, mapped, every page touched. The same ones each time, but for the noise.
fn mapped(dtype: DType, len: usize, noise: Noise) -> Bytes {
    let file = tempfile::tempfile().expect("a temporary file");
    let mut out = BufWriter::with_capacity(1 << 20, &file);
    // The numbers of a file begin behind its header, and two maps are never a power of two apart, which would cost any loop over both.
    out.write_all(&[b' '; HEADER]).expect("room for the file");
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
        let x = match (noise, uniform()) {
            (Noise::None, _) => x,
            (Noise::OfNumber(part), chance) => x + x * part * chance,
            (Noise::OfAll(size), chance) => x + size * chance,
        };
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
    let whole = map.len() as u64;
    Bytes::new(Arc::new(Mapped(map)))
        .slice(HEADER as u64..whole)
        .expect("inside the file")
}

/// The bytes summed as f32, whatever they are: as fast as they can be read.
fn baseline(pair: &(View, View)) -> f32 {
    let bytes = |view: &View| -> f32 {
        view.contiguous()
            .expect("row-major")
            .par_chunks(1 << 18)
            .map(sum)
            .collect::<Vec<f32>>()
            .into_iter()
            .sum()
    };
    bytes(&pair.0) + bytes(&pair.1)
}
