//! Opening large safetensors files against reading just their headers, in one run.
//!
//! Two baselines, both over the same bytes: `read` only reads the header into memory, `parse` also parses it into a map of
//! dtype, shape and offsets with serde, as the safetensors crate does. Ours lists every tensor in execution order, checked.

use serde::Deserialize;
use std::{
    collections::HashMap,
    fs::File,
    io::{BufWriter, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use twinscope_formats::{Cache, Limits, OpenOptions};

#[derive(Deserialize)]
#[expect(dead_code, reason = "parsed to be timed, not to be used")]
struct Info {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases = [
        ("50,000 tensors", 50_000u64, 16u64),
        ("20 GB, 400 tensors, sparse", 400, 20_000_000_000 / 400 / 4),
    ];
    println!(
        "{:<28} {:>9} {:>9} {:>9} {:>9} {:>9}  RssAnon",
        "listing", "read", "parse", "ours", "/read", "/parse"
    );
    for (name, tensors, elements) in cases {
        let path = folder.path().join("bench.safetensors");
        write(&path, tensors, elements);
        let read = best(|| header(&path).len() as u64);
        let parse = best(|| {
            serde_json::from_slice::<HashMap<String, Info>>(&header(&path))
                .expect("a header")
                .len() as u64
        });

        let mut grown = 0;
        let ours = best(|| {
            let options = OpenOptions {
                limits: Limits::default(),
                cache: Arc::new(Cache::new(folder.path().join("cache"), 0)),
                raw: None,
            };
            let source = twinscope_formats::open(&path, &options).expect("a safetensors file");
            grown = grown.max(rss_anon());
            source.listing().tensors.len() as u64
        });
        let ratio = |other: Duration| ours.as_secs_f64() / other.as_secs_f64();
        println!(
            "{name:<28} {:>7.2}ms {:>7.2}ms {:>7.2}ms {:>8.2}x {:>8.2}x  {:.1} MiB",
            ms(read),
            ms(parse),
            ms(ours),
            ratio(read),
            ratio(parse),
            grown as f64 / 1024.0
        );
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn write(path: &Path, tensors: u64, elements: u64) {
    let mut text = String::from("{");
    for i in 0..tensors {
        let (begin, end) = (i * elements * 4, (i + 1) * elements * 4);
        let comma = if i == 0 { "" } else { "," };
        text += &format!(
            "{comma}\"model.layers.{}.mlp.experts.{}.down_proj.weight\":{{\"dtype\":\"F32\",\"shape\":[{elements}],\"data_offsets\":[{begin},{end}]}}",
            i / 500,
            i % 500
        );
    }
    text.push('}');
    let mut file = BufWriter::new(File::create(path).expect("a file"));
    file.write_all(&(text.len() as u64).to_le_bytes())
        .expect("written");
    file.write_all(text.as_bytes()).expect("written");
    let mut file = file.into_inner().expect("flushed");
    let end = 8 + text.len() as u64 + tensors * elements * 4;
    file.seek(SeekFrom::Start(0)).expect("seekable");
    file.set_len(end).expect("sparse files are supported");
}

fn header(path: &Path) -> Vec<u8> {
    let mut file = File::open(path).expect("a file");
    let mut len = [0; 8];
    file.read_exact(&mut len).expect("a length");
    let mut header = vec![0; u64::from_le_bytes(len) as usize];
    file.read_exact(&mut header).expect("a header");
    header
}

fn best(mut work: impl FnMut() -> u64) -> Duration {
    (0..15)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(work());
            start.elapsed()
        })
        .min()
        .expect("fifteen times")
}

/// Anonymous memory of this process in KiB.
fn rss_anon() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    line.and_then(|line| line.split_whitespace().nth(1))
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0)
}
