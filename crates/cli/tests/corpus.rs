//! Runs the binary over a corpus of real and hostile files and compares with what the libraries that wrote them say.
//!
//! By default our own small copy in `testdata/corpus`; `TWINSCOPE_CORPUS=DIR` (or `make corpus`) takes a whole one. Every
//! readable file must list the expected names, dtypes, shapes and sha256; every hostile file must end by an exit code,
//! having executed nothing, and what it still lists must be right.
//!
//! Names follow the contract where the corpus has another convention:
//! - a bare tensor has no name there; ours is the file's stem;
//! - names that collide there get `#2` here.

use serde::Deserialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

#[derive(Deserialize)]
struct Corpus {
    files: BTreeMap<String, Entry>,
}

#[derive(Deserialize, Default)]
struct Entry {
    #[serde(default)]
    tensors: Vec<Tensor>,
    #[serde(default)]
    salvage: Vec<Tensor>,
    /// What is wrong with the file; with it, refusing or reporting is the right answer.
    error: Option<String>,
    #[serde(default)]
    hostile: bool,
    #[serde(default)]
    may_accept: bool,
    #[serde(default)]
    may_accept_with_warning: bool,
    #[serde(default)]
    any_outcome: bool,
    #[serde(default)]
    error_ok: Vec<String>,
    tensor_count: Option<usize>,
    /// Raw bytes whose dtype and shape only the user knows.
    user_supplied: Option<Supplied>,
}

#[derive(Deserialize)]
struct Supplied {
    dtype: String,
    shape: Vec<u64>,
}

#[derive(Deserialize)]
struct Tensor {
    name: String,
    dtype: String,
    #[serde(default)]
    shape: Option<Vec<u64>>,
    sha256: Option<String>,
    /// Of the dense form, for sparse tensors.
    dense_sha256: Option<String>,
    #[serde(default)]
    lazy_only: bool,
}

#[derive(Deserialize)]
struct Listing {
    tensors: Vec<Listed>,
    skipped: Vec<serde_json::Value>,
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    sha256: Option<String>,
}

#[derive(Deserialize)]
struct Finding {
    kind: String,
}

/// What the corpus's exploits would create.
const MARKER: &str = "/tmp/TENSOR_CORPUS_PWNED";
/// Peak anonymous memory a hostile file may cause, sampled every millisecond.
const HOSTILE_RSS: u64 = 64 << 20;
/// Not a benchmark: a file that takes this long has made us hang.
const HANG: Duration = Duration::from_secs(60);

#[test]
fn the_corpus_is_read_as_its_writers_meant_it() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/corpus");
    let root = std::env::var_os("TWINSCOPE_CORPUS").map_or(own, PathBuf::from);
    let text = std::fs::read_to_string(root.join("expected.json")).expect("expected.json is there");
    let corpus: Corpus = serde_json::from_str(&text).expect("expected.json is as documented");
    assert!(corpus.files.len() > 100, "a corpus has many files");

    let entries: Vec<(&String, &Entry)> = corpus.files.iter().collect();
    let (next, wrong, slowest) = (
        AtomicUsize::new(0),
        Mutex::new(Vec::new()),
        Mutex::new((Duration::ZERO, String::new())),
    );
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((name, entry)) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    if let Err(why) = check(&root.join(name), entry) {
                        wrong
                            .lock()
                            .expect("not poisoned")
                            .push(format!("{name}: {why}"));
                    }
                    let mut slowest = slowest.lock().expect("not poisoned");
                    if start.elapsed() > slowest.0 {
                        *slowest = (start.elapsed(), (*name).clone());
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("not poisoned");
    let slowest = slowest.into_inner().expect("not poisoned");
    println!(
        "{} files, {} wrong; slowest {} in {:?}",
        entries.len(),
        wrong.len(),
        slowest.1,
        slowest.0
    );
    assert!(!Path::new(MARKER).exists(), "a file was executed");
    assert!(
        wrong.is_empty(),
        "{} of {} files:\n{}",
        wrong.len(),
        entries.len(),
        wrong.join("\n")
    );
}

fn check(path: &Path, entry: &Entry) -> Result<(), String> {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinscope"));
    command
        .arg("ls")
        .arg(path)
        .args(["--json", "--hash", "--cache-dir"])
        .arg(cache.path());
    if let Some(supplied) = &entry.user_supplied {
        command.arg("--raw").arg(format!(
            "{}{:?}",
            our_dtype(&supplied.dtype),
            supplied.shape
        ));
    }
    let start = Instant::now();
    let (output, peak) = run(command)?;
    if start.elapsed() > HANG {
        return Err(format!("took {:?}", start.elapsed()));
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let code = output
        .status
        .code()
        .ok_or_else(|| format!("ended by a signal: {stderr}"))?;
    if !matches!(code, 0 | 2) || stderr.contains("panicked") {
        return Err(format!("exit code {code}: {stderr}"));
    }
    let left: Vec<_> = std::fs::read_dir(cache.path())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    if !left.is_empty() {
        return Err(format!("left {left:?} in the cache folder"));
    }
    if entry.hostile && peak > HOSTILE_RSS {
        return Err(format!("took {} MiB", peak >> 20));
    }
    let listing: Option<Listing> = serde_json::from_slice(&output.stdout).ok();
    let Some(listing) = listing else {
        let refusal_is_right =
            code == 2 && (entry.error.is_some() || entry.any_outcome || !entry.error_ok.is_empty());
        return if refusal_is_right {
            Ok(())
        } else {
            Err(format!("refused: {}", stderr.trim()))
        };
    };

    let attack = listing
        .findings
        .iter()
        .any(|finding| matches!(finding.kind.as_str(), "unsafe_global" | "path_escape"));
    if attack != (code == 2) && !(code == 2 && listing.tensors.is_empty()) {
        return Err(format!(
            "exit code {code} with findings {:?}",
            listing.findings.iter().map(|f| &f.kind).collect::<Vec<_>>()
        ));
    }
    if entry.error.as_deref() == Some("unsafe_global") && !attack && code != 2 {
        return Err("an attempt to execute was not reported".to_owned());
    }
    let reported = code == 2 || !listing.skipped.is_empty() || !listing.findings.is_empty();
    let may_accept = entry.error.is_none()
        || entry.may_accept
        || entry.may_accept_with_warning
        || entry.any_outcome;
    if !reported && !may_accept {
        return Err(format!(
            "accepted without a word, though {}",
            entry.error.as_deref().unwrap_or_default()
        ));
    }
    if let Some(count) = entry.tensor_count
        && listing.tensors.len() != count
    {
        return Err(format!(
            "{} tensors instead of {count}",
            listing.tensors.len()
        ));
    }
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if entry.error.is_some() {
        return salvaged(&listing, entry, &stem);
    }
    if code == 2 && !entry.error_ok.is_empty() {
        return Ok(());
    }
    for wanted in &entry.tensors {
        found(&listing, wanted, path, &stem)?;
    }
    Ok(())
}

/// A tensor that a broken file still lists, and that its writer knows, has the right values.
fn salvaged(listing: &Listing, entry: &Entry, stem: &str) -> Result<(), String> {
    for tensor in &entry.salvage {
        let name = if tensor.name.is_empty() {
            stem
        } else {
            &tensor.name
        };
        let same = listing.tensors.iter().find(|listed| listed.name == name);
        if let (Some(listed), Some(sha256)) = (same, &tensor.sha256)
            && listed.sha256.as_ref().is_some_and(|found| found != sha256)
        {
            return Err(format!("salvaged `{name}` with other values"));
        }
    }
    Ok(())
}

fn found(listing: &Listing, wanted: &Tensor, path: &Path, stem: &str) -> Result<(), String> {
    let Some(shape) = &wanted.shape else {
        return Ok(());
    };
    let sha256 = wanted.sha256.as_ref().or(wanted.dense_sha256.as_ref());
    let dtype = our_dtype(&wanted.dtype);
    let name = if wanted.name.is_empty() {
        stem
    } else {
        &wanted.name
    };
    // A gzip around one file and an HDF5 root keep the inner name; nothing else may differ.
    let alike = |listed: &&Listed| {
        listed.dtype == dtype
            && listed.shape == *shape
            && (wanted.lazy_only || sha256.is_none() || listed.sha256.as_ref() == sha256)
    };
    // `'a.b'` and `a` holding `b` are two tensors with one name; the second is called `a.b#2`.
    let called = |listed: &Listed| {
        listed.name == name
            || listed
                .name
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('#'))
    };
    if listing
        .tensors
        .iter()
        .any(|listed| called(listed) && alike(&listed))
    {
        return Ok(());
    }
    let near: Vec<String> = listing
        .tensors
        .iter()
        .filter(|listed| listed.name == name || alike(listed))
        .map(|listed| {
            format!(
                "{} {} {:?} {:?}",
                listed.name, listed.dtype, listed.shape, listed.sha256
            )
        })
        .collect();
    Err(format!(
        "no `{name}` {dtype} {shape:?} {sha256:?} in {}; near: {near:?}",
        path.display()
    ))
}

/// The corpus names dtypes as torch and NumPy do.
fn our_dtype(theirs: &str) -> String {
    match theirs {
        "float32" => "f32".into(),
        "float64" => "f64".into(),
        "float16" => "f16".into(),
        "bfloat16" => "bf16".into(),
        "complex32" => "c32".into(),
        "complex64" => "c64".into(),
        "complex128" => "c128".into(),
        other if other.starts_with("gguf:") => other[5..].to_lowercase(),
        other if other.starts_with("uint") && other[4..].parse::<u8>().is_ok() => {
            format!("u{}", &other[4..])
        }
        other if other.starts_with("int") && other[3..].parse::<u8>().is_ok() => {
            format!("i{}", &other[3..])
        }
        other => other.replace("float8", "f8").replace("float4", "f4"),
    }
}

/// Runs to the end; also the peak of its anonymous memory in bytes.
fn run(mut command: Command) -> Result<(std::process::Output, u64), String> {
    use std::process::Stdio;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let status = format!("/proc/{}/status", child.id());
    let done = std::sync::atomic::AtomicBool::new(false);
    let (output, peak) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Ordering::Relaxed) {
                if let Ok(text) = std::fs::read_to_string(&status) {
                    peak = peak.max(anonymous(&text));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        let output = child.wait_with_output();
        done.store(true, Ordering::Relaxed);
        (output, watch.join().expect("the watcher does not panic"))
    });
    output
        .map(|output| (output, peak))
        .map_err(|error| error.to_string())
}

fn anonymous(status: &str) -> u64 {
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    line.and_then(|line| line.split_whitespace().nth(1))
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0)
        << 10
}
