//! SKELETON of `ls --json --hash`, so that readers can be tried; replaced by the real command line.
use sha2::{Digest, Sha256};
use std::sync::Arc;
use twinscope_formats::{Cache, Limits, OpenOptions};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let options = OpenOptions {
        limits: Limits::default(),
        cache: Arc::new(Cache::new(std::env::temp_dir().join("twinscope-skeleton"), 1 << 33)),
        raw: None,
    };
    let source = match twinscope_formats::open(std::path::Path::new(&args[2]), &options) {
        Ok(source) => source,
        Err(error) => {
            eprintln!("twinscope: {error}");
            std::process::exit(2);
        }
    };
    let listing = source.listing();
    let mut tensors = Vec::new();
    for (i, t) in listing.tensors.iter().enumerate() {
        let mut sha = serde_json::Value::Null;
        match source.view(i) {
            Ok(view) if view.byte_len().is_some_and(|n| n < 1 << 30) => {
                let mut hash = Sha256::new();
                let mut scratch = Vec::new();
                let mut at = 0;
                while at < view.len() {
                    let count = (view.len() - at).min(1 << 16) as usize;
                    hash.update(view.chunk(at, count, &mut scratch));
                    at += count as u64;
                }
                sha = hash.finalize().iter().map(|b| format!("{b:02x}")).collect::<String>().into();
            }
            Ok(_) => {}
            Err(error) => eprintln!("{}: {error}", t.name),
        }
        tensors.push(serde_json::json!({"name": t.name, "dtype": t.dtype.to_string(), "shape": t.shape.dims(), "bytes": t.bytes, "order": i, "sha256": sha, "meta": t.meta}));
    }
    let values: Vec<_> = listing
        .values
        .iter()
        .map(|v| serde_json::json!({"name": v.name, "type": v.value.kind(), "value": format!("{:?}", v.value)}))
        .collect();
    let skipped: Vec<_> = listing.skipped.iter().map(|s| serde_json::json!({"name": s.name, "reason": s.reason})).collect();
    let findings: Vec<_> = listing.findings.iter().map(|f| serde_json::json!({"kind": f.kind.name(), "text": f.text})).collect();
    let attack = listing.findings.iter().any(|f| f.kind.is_attack());
    let nothing = tensors.is_empty() && values.is_empty() && (!skipped.is_empty() || !findings.is_empty());
    println!(
        "{}",
        serde_json::json!({"source": listing.source, "format": listing.format, "tensors": tensors, "values": values, "skipped": skipped, "findings": findings})
    );
    std::process::exit(if attack || nothing { 2 } else { 0 });
}
