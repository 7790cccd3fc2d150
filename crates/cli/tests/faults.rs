//! `diff` on recorded runs: the first divergence is the fault's place, and other summation orders and precisions are no fault.
//!
//! By default our own part of the bench in `testdata/faults`; `TWINSCOPE_FAULTS=DIR` takes a whole one.

use serde::Deserialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

#[derive(Deserialize)]
struct Case {
    reference: String,
    candidate: String,
    /// `diverged`, `benign`, or `harmless`, which needs the causes to be told from `diverged`.
    verdict: String,
    first: Option<String>,
}

#[derive(Deserialize)]
struct Report {
    verdict: String,
    first_divergence: Option<First>,
}

#[derive(Deserialize)]
struct First {
    name: String,
}

#[test]
fn every_fault_is_found_where_it_is_and_rounding_is_not_one() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/faults");
    let root = std::env::var_os("TWINSCOPE_FAULTS").map_or(own, PathBuf::from);
    let text = std::fs::read_to_string(root.join("expected.json")).expect("expected.json is there");
    let cases: BTreeMap<String, Case> = serde_json::from_str(&text).expect("expected.json is as documented");
    assert!(cases.len() >= 10, "the bench has its cases");
    let mut wrong = Vec::new();
    for (name, case) in cases.iter().filter(|(_, case)| case.verdict != "harmless") {
        let output = Command::new(env!("CARGO_BIN_EXE_twinscope"))
            .arg("diff")
            .arg(root.join(&case.reference))
            .arg(root.join(&case.candidate))
            .arg("--json")
            .output()
            .expect("the binary runs");
        let report: Report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{name}: {error}"));
        let first = report.first_divergence.map(|first| first.name);
        let diverged = case.verdict == "diverged";
        let right = first == case.first && (report.verdict == "diverged") == diverged && output.status.code() == Some(i32::from(diverged));
        if !right {
            wrong.push(format!(
                "{name}: {} at {first:?}, exit {:?}; expected {} at {:?}",
                report.verdict,
                output.status.code(),
                case.verdict,
                case.first
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
