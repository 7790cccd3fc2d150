//! What every target does: open the bytes, then read all that was listed, as `ls --hash` and `stats` would.

use std::sync::{Arc, LazyLock};
use twinscope_formats::{Cache, Limits, OpenOptions};

/// Bytes of one tensor that are really read; the rest of a large one is the same code again.
const READ: u64 = 1 << 20;

static OPTIONS: LazyLock<OpenOptions> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join("twinscope-fuzz");
    OpenOptions {
        limits: Limits::default(),
        cache: Arc::new(Cache::new(dir, 64 << 20)),
        raw: None,
    }
});

/// Opens `data` under `name` and reads every tensor of it. Panics, overflows and runaway memory are what libFuzzer looks for.
pub fn open_and_read(name: &str, data: &[u8]) {
    let Ok(source) = twinscope_formats::open_bytes(name, data.to_vec().into(), &OPTIONS) else {
        return;
    };
    for index in 0..source.listing().tensors.len().min(64) {
        let Ok(view) = source.view(index) else {
            continue;
        };
        let count = view.len().min(READ) as usize;
        let mut scratch = Vec::new();
        if view.byte_len().is_some_and(|bytes| bytes <= READ) {
            view.chunk(0, count, &mut scratch);
        }
        let mut numbers = Vec::new();
        let _ = twinscope_tensor::decode::f64_values(
            &view,
            0,
            count.min(4096),
            &mut scratch,
            &mut numbers,
        );
        if !view.is_empty() {
            let last = view.shape().unravel(view.len() - 1);
            let _ = view.value(&last).to_string();
        }
    }
}
