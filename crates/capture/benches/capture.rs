//! What recording costs, as ratios within one run: `cargo bench -p twinscope-capture`, or `scripts/bench_capture.sh`.
//!
//! Off: a model with taps and spans against the same without, goal under 1 % more. On: bytes a second into a run, until it is closed, against plain
//! writing of the same bytes into one file, goal 0.7. Rounds of both sides alternate and the best of each counts: the machine's other work only adds.

use std::{
    fs,
    hint::black_box,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};
use twinscope_capture::{Recorder, record, span};

const LAYERS: usize = 24;
const WIDTH: usize = 96;

/// A layer's worth of arithmetic: some tens of microseconds.
fn layer(x: &mut [f32], weights: &[f32]) {
    let mut y = [0f32; WIDTH];
    for (row, y) in y.iter_mut().enumerate() {
        *y = weights[row * WIDTH..][..WIDTH]
            .iter()
            .zip(&*x)
            .map(|(w, x)| w * x)
            .sum::<f32>()
            .tanh();
    }
    x.copy_from_slice(&y);
}

fn bare(x: &mut [f32], weights: &[f32]) {
    for _ in 0..LAYERS {
        layer(x, weights);
        layer(x, weights);
    }
}

fn tapped(x: &mut [f32], weights: &[f32]) {
    for index in 0..LAYERS {
        let _span = span!("layers.{index}");
        layer(x, weights);
        record("attn", &*x).expect("nothing records");
        layer(x, weights);
        record("mlp", &*x).expect("nothing records");
    }
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// The best of each of two, in turns.
fn best_of(rounds: usize, mut a: impl FnMut(), mut b: impl FnMut()) -> (f64, f64) {
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..rounds {
        best.0 = best.0.min(time(&mut a).as_secs_f64());
        best.1 = best.1.min(time(&mut b).as_secs_f64());
    }
    best
}

fn off() {
    let weights: Vec<f32> = (0..WIDTH * WIDTH)
        .map(|at| (at % 17) as f32 / 100.0 - 0.08)
        .collect();
    let run = |model: fn(&mut [f32], &[f32])| {
        let mut x = [0.5f32; WIDTH];
        for _ in 0..20 {
            model(black_box(&mut x), black_box(&weights));
        }
    };
    let (bare, tapped) = best_of(200, || run(bare), || run(tapped));
    println!(
        "off      {:>6.2} % more time with taps and spans than without (goal under 1 %)",
        (tapped / bare - 1.0) * 100.0
    );
}

/// Buffers to write again and again, each time with something new in front: equal tensors are written once.
struct Buffers {
    buffers: Vec<Vec<u8>>,
    stamp: u64,
}

impl Buffers {
    fn new(bytes: usize) -> Self {
        Self {
            buffers: (0..8)
                .map(|seed| (0..bytes).map(|at| (at * (seed + 7)) as u8).collect())
                .collect(),
            stamp: 0,
        }
    }

    fn next(&mut self) -> &[u8] {
        self.stamp += 1;
        let buffer = &mut self.buffers[self.stamp as usize % 8];
        buffer[..8].copy_from_slice(&self.stamp.to_le_bytes());
        buffer
    }
}

/// Writes `count` tensors of `bytes` bytes, all different.
fn on(folder: &Path, count: usize, bytes: usize) {
    let mut buffers = Buffers::new(bytes);
    let (plain_file, run) = (folder.join("plain"), folder.join("run"));
    let mut rounds = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for _ in 0..7 {
        let plain = time(|| {
            let mut file = fs::File::create(&plain_file).expect("a file");
            for _ in 0..count {
                file.write_all(buffers.next()).expect("room on the disk");
            }
        });
        fs::remove_file(&plain_file).expect("it was just written");
        let mut recorded = |immediate: bool| {
            let took = time(|| {
                let recorder = Recorder::to(&run);
                let recorder = if immediate {
                    recorder.immediate()
                } else {
                    recorder
                }
                .start()
                .expect("a run");
                for at in 0..count {
                    record(&format!("layers.{at}"), buffers.next()).expect("recorded");
                }
                recorder.finish().expect("closed");
            });
            fs::remove_dir_all(&run).expect("it was just written");
            took.as_secs_f64()
        };
        rounds.1 = rounds.1.min(recorded(false));
        rounds.2 = rounds.2.min(recorded(true));
        rounds.0 = rounds.0.min(plain.as_secs_f64());
    }
    let (queue, immediate) = (rounds.0 / rounds.1, rounds.0 / rounds.2);
    println!(
        "on       {count:>5} x {bytes:>8} bytes: {queue:.2} of plain writing through the queue, {immediate:.2} immediate (goal 0.70)"
    );
}

fn main() {
    // `cargo test` runs benches too, to see that they run.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    off();
    let folder = tempfile::tempdir().expect("a temporary folder");
    on(folder.path(), 64, 4 << 20);
    on(folder.path(), 1000, 64 << 10);
}
