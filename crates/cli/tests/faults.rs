//! `diff` on recorded runs: the first divergence is the fault's place, its cause is on top, and other summation orders and precisions are no
//! fault. Prints the score table (`make scores`).
//!
//! By default our own copy of the bench in `testdata/faultbench`; `TWINSCOPE_FAULTS=DIR` takes another.

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
    /// `diverged`, `benign` or `harmless`.
    verdict: String,
    /// The first divergence; of a harmless case the pair that differs.
    first: Option<String>,
    /// Kinds that are right on top; `None` when it cannot be told from what is recorded.
    causes: Option<Vec<String>>,
    /// Further pairs that must be their own divergences.
    #[serde(default)]
    also: Vec<String>,
}

#[derive(Deserialize)]
struct Report {
    verdict: String,
    first_divergence: Option<First>,
    pairs: Vec<Pair>,
}

#[derive(Deserialize)]
struct First {
    name: String,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    verdict: String,
    origin: Option<String>,
    causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Cause {
    kind: String,
    explained: Option<f64>,
}

#[derive(Default)]
struct Score {
    located: usize,
    faults: usize,
    caused: usize,
    named: usize,
    wrong_claims: usize,
    false_alarms: usize,
    benign: usize,
    seconds_found: usize,
    seconds: usize,
}

/// A cause is claimed as the whole truth from here on.
const CLAIMED: f64 = 0.99;

#[test]
fn every_fault_is_found_where_it_is_with_its_cause_and_rounding_is_not_one() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/faultbench");
    let root = std::env::var_os("TWINSCOPE_FAULTS").map_or(own, PathBuf::from);
    let text = std::fs::read_to_string(root.join("expected.json")).expect("expected.json is there");
    let cases: BTreeMap<String, Case> =
        serde_json::from_str(&text).expect("expected.json is as documented");
    assert!(cases.len() >= 10, "the bench has its cases");
    let (mut score, mut missed) = (Score::default(), Vec::new());
    for (name, case) in &cases {
        let report = compared(&root, name, case);
        missed.extend(
            score
                .add(case, &report)
                .map(|what| format!("{name}: {what}")),
        );
    }
    println!("{}", missed.join("\n"));
    println!(
        "first divergence right   {} of {}",
        score.located, score.faults
    );
    println!(
        "accepted cause on top    {} of {}",
        score.caused, score.named
    );
    println!("wrong cause claimed      {}", score.wrong_claims);
    println!(
        "benign called diverged   {} of {}",
        score.false_alarms, score.benign
    );
    println!(
        "second faults found      {} of {}",
        score.seconds_found, score.seconds
    );
    assert_eq!(
        (score.located, score.seconds_found),
        (score.faults, score.seconds),
        "{}",
        missed.join("\n")
    );
    assert_eq!(
        (score.wrong_claims, score.false_alarms),
        (0, 0),
        "{}",
        missed.join("\n")
    );
    assert!(
        20 * score.caused >= 19 * score.named,
        "95 % of the causes: {}",
        missed.join("\n")
    );
}

fn compared(root: &Path, name: &str, case: &Case) -> Report {
    let output = Command::new(env!("CARGO_BIN_EXE_twinscope"))
        .arg("diff")
        .arg(root.join(&case.reference))
        .arg(root.join(&case.candidate))
        .arg("--json")
        .output()
        .expect("the binary runs");
    assert_eq!(
        output.status.code(),
        Some(i32::from(case.verdict == "diverged")),
        "{name}: exit code"
    );
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{name}: {error}"))
}

impl Score {
    /// Counts a case; what is wrong with it in words.
    fn add(&mut self, case: &Case, report: &Report) -> impl Iterator<Item = String> {
        let mut wrong = Vec::new();
        let first = report
            .first_divergence
            .as_ref()
            .map(|first| first.name.as_str());
        if case.verdict == "benign" {
            self.benign += 1;
            if report.verdict == "diverged" {
                self.false_alarms += 1;
                wrong.push(format!("called diverged at {first:?}"));
            }
            return wrong.into_iter();
        }
        self.faults += 1;
        let pair = report
            .pairs
            .iter()
            .find(|pair| Some(&pair.name) == case.first.as_ref());
        let located = match case.verdict.as_str() {
            "harmless" => {
                report.verdict == "agree" && pair.is_some_and(|pair| pair.verdict == "harmless")
            }
            _ => first == case.first.as_deref(),
        };
        self.located += usize::from(located);
        if !located {
            wrong.push(format!(
                "expected {} at {:?}, found {} at {first:?}",
                case.verdict, case.first, report.verdict
            ));
        }
        for name in &case.also {
            self.seconds += 1;
            let own = |pair: &&Pair| {
                pair.name == *name
                    && pair.verdict == "diverged"
                    && pair.origin.as_deref() == Some("own")
            };
            let found = report.pairs.iter().any(|pair| own(&pair));
            self.seconds_found += usize::from(found);
            if !found {
                wrong.push(format!(
                    "the second fault at {name} is not its own divergence"
                ));
            }
        }
        let best = pair
            .filter(|_| located)
            .and_then(|pair| pair.causes.first());
        if let Some(accepted) = &case.causes {
            self.named += 1;
            let right = best.is_some_and(|cause| accepted.contains(&cause.kind));
            self.caused += usize::from(right);
            if !right {
                wrong.push(format!(
                    "expected one of {accepted:?}, found {:?}",
                    best.map(|cause| &cause.kind)
                ));
                self.wrong_claims += usize::from(
                    best.and_then(|cause| cause.explained)
                        .is_some_and(|share| share >= CLAIMED),
                );
            }
        }
        wrong.into_iter()
    }
}
