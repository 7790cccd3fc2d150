//! Walks `testdata/`: every folder with an `expect.json` is a case. Adding a case is adding a folder.

use sha2::{Digest, Sha256};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use twinscope_formats::{Cache, Limits, OpenOptions};
use twinscope_tensor::{TensorSource, View};

#[derive(serde::Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Expect {
    format: Option<String>,
    #[serde(default)]
    tensors: Vec<Tensor>,
    #[serde(default)]
    values: Vec<Value>,
    #[serde(default)]
    skipped: Vec<String>,
    #[serde(default)]
    findings: Vec<String>,
    /// A part of the message when nothing can be read.
    error: Option<String>,
    /// For people: why the case exists.
    #[serde(default, rename = "why")]
    _why: String,
}

#[derive(serde::Deserialize, Debug, PartialEq)]
struct Tensor {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    sha256: Option<String>,
}

#[derive(serde::Deserialize, Debug, PartialEq)]
struct Value {
    name: String,
    r#type: String,
}

#[test]
fn every_golden_case_lists_what_it_should() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let mut cases = Vec::new();
    find_cases(&root, &mut cases);
    assert!(
        cases.len() > 40,
        "testdata holds the golden cases; found only {}",
        cases.len()
    );
    let mut wrong = Vec::new();
    for case in &cases {
        if let Err(why) = check(case) {
            wrong.push(format!(
                "{}: {why}",
                case.strip_prefix(&root).unwrap_or(case).display()
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

fn find_cases(folder: &Path, cases: &mut Vec<PathBuf>) {
    if folder.join("expect.json").is_file() {
        cases.push(folder.to_owned());
        return;
    }
    let mut below: Vec<PathBuf> = fs::read_dir(folder)
        .expect("testdata is there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    below.sort();
    below
        .iter()
        .filter(|path| path.is_dir())
        .for_each(|path| find_cases(path, cases));
}

fn check(case: &Path) -> Result<(), String> {
    let text = fs::read_to_string(case.join("expect.json")).map_err(|error| error.to_string())?;
    let expect: Expect =
        serde_json::from_str(&text).map_err(|error| format!("expect.json: {error}"))?;
    let input = fs::read_dir(case)
        .expect("a case is a folder")
        .map(|entry| entry.expect("readable").path())
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name == "input" || name.to_string_lossy().starts_with("input."))
                && !is_sidecar(path)
        })
        .ok_or("no input.*")?;
    let cache = tempfile::tempdir().expect("a temporary folder");
    let options = OpenOptions {
        limits: Limits::default(),
        cache: Arc::new(Cache::new(cache.path().to_owned(), 1 << 30)),
        raw: None,
    };
    let source = match twinscope_formats::open(&input, &options) {
        Ok(source) => source,
        Err(error) => {
            let message = error.to_string();
            return match &expect.error {
                Some(part) if message.contains(part.as_str()) => Ok(()),
                Some(part) => Err(format!("expected an error with `{part}`, got `{message}`")),
                None => Err(message),
            };
        }
    };
    let listing = source.listing();
    if let Some(part) = &expect.error {
        return Err(format!(
            "expected an error with `{part}`, but {} tensors were listed",
            listing.tensors.len()
        ));
    }
    if let Some(format) = &expect.format
        && format != listing.format
    {
        return Err(format!("format {} instead of {format}", listing.format));
    }
    let tensors: Vec<Tensor> = (0..listing.tensors.len())
        .map(|index| describe(source.as_ref(), index))
        .collect();
    for (found, wanted) in tensors.iter().zip(&expect.tensors) {
        let hash_matters = wanted.sha256.is_some();
        let same =
            found.name == wanted.name && found.dtype == wanted.dtype && found.shape == wanted.shape;
        if !same || (hash_matters && found.sha256 != wanted.sha256) {
            return Err(format!("found {found:?}, wanted {wanted:?}"));
        }
    }
    if tensors.len() != expect.tensors.len() {
        let names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        return Err(format!(
            "{} tensors instead of {}: {names:?}",
            tensors.len(),
            expect.tensors.len()
        ));
    }
    let values: Vec<Value> = listing
        .values
        .iter()
        .map(|value| Value {
            name: value.name.clone(),
            r#type: value.value.kind().to_owned(),
        })
        .collect();
    if !expect.values.is_empty() && values != expect.values {
        return Err(format!("values {values:?} instead of {:?}", expect.values));
    }
    let mut skipped: Vec<&str> = listing
        .skipped
        .iter()
        .map(|skipped| skipped.name.as_str())
        .collect();
    let mut wanted: Vec<&str> = expect.skipped.iter().map(String::as_str).collect();
    skipped.sort_unstable();
    wanted.sort_unstable();
    if skipped != wanted {
        return Err(format!(
            "skipped {:?} instead of {wanted:?}",
            listing.skipped
        ));
    }
    let mut findings: Vec<&str> = listing
        .findings
        .iter()
        .map(|finding| finding.kind.name())
        .collect();
    findings.sort_unstable();
    findings.dedup();
    let mut wanted: Vec<&str> = expect.findings.iter().map(String::as_str).collect();
    wanted.sort_unstable();
    wanted.dedup();
    if findings != wanted {
        return Err(format!(
            "findings {:?} instead of {wanted:?}",
            listing.findings
        ));
    }
    Ok(())
}

/// `input.json` beside `input.bin` describes it; alone it is the input.
fn is_sidecar(path: &Path) -> bool {
    let json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    json && path.with_extension("bin").exists()
}

fn describe(source: &dyn TensorSource, index: usize) -> Tensor {
    let info = &source.listing().tensors[index];
    let sha256 = source
        .view(index)
        .ok()
        .filter(|view| view.byte_len().is_some_and(|bytes| bytes < 1 << 24))
        .map(|view| sha256(&view));
    Tensor {
        name: info.name.clone(),
        dtype: info.dtype.to_string(),
        shape: info.shape.dims().to_vec(),
        sha256,
    }
}

fn sha256(view: &View) -> String {
    let mut scratch = Vec::new();
    let bytes = view.chunk(0, view.len() as usize, &mut scratch);
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
