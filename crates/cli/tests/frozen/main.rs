//! Every verdict, layout and cause of several hundred comparisons, held against committed text files.
//!
//! The files in `testdata/frozen` are a snapshot, not a truth: they say what the program reported when they were written. They exist so that a
//! refactoring of the core can be proven to change nothing. The test sees the core only through the binary and its JSON, so internal
//! types may move freely.
//!
//! After an intended change, rewrite the files and review their diff:
//!
//! ```text
//! TWINSCOPE_FREEZE=write cargo test -p twinscope --test frozen
//! ```
//!
//! In a debug build each group also runs with every instruction set of this CPU (`TWINSCOPE_SIMD`, see `twinscope_measure::Level`), which
//! must give the same lines.

#[allow(
    dead_code,
    reason = "shared with the other tests, which use more of it"
)]
#[path = "../common/mod.rs"]
mod common;
mod inputs;

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
};
use twinscope_measure::Level;

/// One comparison: paths relative to the folder of its group.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    reference: String,
    /// `None` compares every tensor of the reference with every other.
    candidate: Option<String>,
    /// The keys of `--config` that differ from the defaults.
    settings: Value,
    /// Flags that have no key in `--config`.
    args: Vec<String>,
}

impl Case {
    fn new(
        name: impl Into<String>,
        reference: impl Into<String>,
        candidate: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            reference: reference.into(),
            candidate: Some(candidate.into()),
            settings: json!({}),
            args: Vec::new(),
        }
    }

    fn alone(name: &str, source: &str) -> Self {
        Self {
            candidate: None,
            ..Self::new(name, source, "")
        }
    }

    fn with(self, settings: Value) -> Self {
        Self { settings, ..self }
    }

    fn args(self, args: &[&str]) -> Self {
        Self {
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            ..self
        }
    }
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

#[test]
fn fault_bench_reports_are_frozen() {
    check("faultbench", &testdata(), &recorded("faultbench"));
}

#[test]
fn recorded_fault_reports_are_frozen() {
    check("faults", &testdata(), &recorded("faults"));
}

#[test]
fn demo_fault_reports_are_frozen() {
    let folder = common::Folder::new();
    let cases = inputs::demo_faults(folder.path());
    check("demo", folder.path(), &cases);
}

#[test]
fn layout_and_shard_reports_are_frozen() {
    let folder = common::Folder::new();
    let cases = inputs::layouts(&folder);
    check("layouts", folder.path(), &cases);
}

#[test]
fn format_corpus_reports_are_frozen() {
    check("corpus", &testdata(), &inputs::corpus());
}

#[test]
#[cfg(debug_assertions)]
fn an_unknown_instruction_set_ends_the_program() {
    let mut command = common::command(&testdata());
    command.args(["diff", "faults/reference.pth", "faults/input.pth"]);
    let output = command.env("TWINSCOPE_SIMD", "sse").output();
    let output = output.expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(101), "{stderr}");
    assert!(stderr.contains("TWINSCOPE_SIMD=sse is none of"), "{stderr}");
}

/// The cases that the `expected.json` of a folder of recorded runs lists.
fn recorded(folder: &str) -> Vec<Case> {
    let path = testdata().join(folder).join("expected.json");
    let text = std::fs::read_to_string(path).expect("expected.json is committed");
    let cases: BTreeMap<String, Value> = serde_json::from_str(&text).expect("an object of cases");
    let path = |case: &Value, side: &str| {
        let file = case[side].as_str().expect("a file name");
        format!("{folder}/{file}")
    };
    cases
        .iter()
        .map(|(name, case)| Case::new(name, path(case, "reference"), path(case, "candidate")))
        .collect()
}

/// Compares the reports of a group with its committed file, at every instruction set.
fn check(group: &str, dir: &Path, cases: &[Case]) {
    let file = testdata().join("frozen").join(format!("{group}.txt"));
    let now = reports(dir, cases, Level::best().name());
    if std::env::var("TWINSCOPE_FREEZE").is_ok_and(|mode| mode == "write") {
        std::fs::write(&file, text(group, &now)).expect("testdata/frozen is writable");
    }
    let frozen = parsed(&std::fs::read_to_string(&file).expect("the frozen file is committed"));
    let what = "intended? TWINSCOPE_FREEZE=write cargo test -p twinscope --test frozen";
    assert_same(&frozen, &now, &format!("{group}.txt against now; {what}"));
    for level in levels() {
        let forced = reports(dir, cases, level);
        assert_same(
            &now,
            &forced,
            &format!("{group}: {} against {level}", Level::best()),
        );
    }
}

/// The instruction sets to force, slowest first. The best one of this CPU is the default run; a release build cannot force any.
fn levels() -> Vec<&'static str> {
    let lower = Level::ALL
        .into_iter()
        .filter(|level| *level < Level::best());
    lower
        .filter(|_| cfg!(debug_assertions))
        .map(Level::name)
        .collect()
}

/// The lines of each case, the document's own first.
type Lines = Vec<(String, Vec<String>)>;

/// Comparisons in one process: few enough to keep every core busy to the end.
const BATCH: usize = 6;

fn reports(dir: &Path, cases: &[Case], level: &str) -> Lines {
    let batches: Vec<&[Case]> = cases
        .chunk_by(|a, b| a.args == b.args)
        .flat_map(|alike| alike.chunks(BATCH))
        .collect();
    let next = Mutex::new(batches.iter().enumerate());
    let done = Mutex::new(vec![Vec::new(); batches.len()]);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some((at, batch)) = next.lock().expect("no worker failed").next() else {
                        break;
                    };
                    let lines = run(dir, batch, level);
                    done.lock().expect("no worker failed")[at] = lines;
                }
            });
        }
    });
    done.into_inner()
        .expect("no worker failed")
        .into_iter()
        .flatten()
        .collect()
}

/// One `diff --batch --json`.
fn run(dir: &Path, cases: &[Case], level: &str) -> Lines {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let batch: String = cases
        .iter()
        .map(|case| {
            let mut line =
                json!({"name": case.name, "reference": case.reference, "settings": case.settings});
            if let Some(candidate) = &case.candidate {
                line["candidate"] = json!(candidate);
            }
            format!("{line}\n")
        })
        .collect();
    let file = scratch.path().join("batch.jsonl");
    std::fs::write(&file, batch).expect("a file in the temporary folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinscope"));
    command.current_dir(dir).args(["diff", "--json"]);
    command.arg("--batch").arg(&file);
    command.arg("--cache-dir").arg(scratch.path());
    command.args(&cases[0].args);
    command.env("TWINSCOPE_SIMD", level);
    let output = command.output().expect("the binary runs");
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        panic!("{names:?}: {error}\n{stderr}")
    });
    cases
        .iter()
        .enumerate()
        .map(|(at, case)| {
            let (report, row) = (&document["reports"][at], &document["summary"][at]);
            assert_eq!(row["name"], json!(case.name), "the summary is in order");
            (case.name.clone(), lines(report, row))
        })
        .collect()
}

/// The document's line, then one for each pair. A case without a report has only its exit code.
fn lines(report: &Value, row: &Value) -> Vec<String> {
    let exit = &row["exit"];
    if report.is_null() {
        return vec![format!("exit={exit}")];
    }
    let count = |key: &str| report[key].as_array().map_or(0, Vec::len);
    let findings = kinds(&report["findings"]);
    let mut all = vec![format!(
        "exit={exit} verdict={} first={} divergences={} only={}/{} skipped={} left_out={} findings={findings}",
        word(&report["verdict"]),
        word(&report["first_divergence"]["name"]),
        report["divergences"],
        count("only_reference"),
        count("only_candidate"),
        count("skipped"),
        count("left_out"),
    )];
    all.extend(report["pairs"].as_array().into_iter().flatten().map(line));
    all
}

fn line(pair: &Value) -> String {
    let mut name = word(&pair["name"]);
    if pair["reference"] != pair["name"] || pair["candidate"] != pair["name"] {
        let (reference, candidate) = (word(&pair["reference"]), word(&pair["candidate"]));
        write!(name, " ({reference} => {candidate})").expect("a string grows");
    }
    let totals = &pair["totals"];
    let fields = [
        name,
        word(&pair["verdict"]),
        word(&pair["origin"]),
        word(&pair["rule"]),
        word(&pair["layout"]["text"]),
        kinds(&pair["causes"]),
        number(&totals["rel_l2"]),
        number(&totals["max_abs"]),
        word(&totals["differing"]),
        number(&pair["causes"][0]["explained"]),
    ];
    // A tab separates fields and a newline lines, whatever a name holds.
    fields
        .map(|field| field.escape_debug().to_string())
        .join("\t")
}

fn kinds(list: &Value) -> String {
    let kinds: Vec<String> = list
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| word(&item["kind"]))
        .collect();
    if kinds.is_empty() {
        "-".to_owned()
    } else {
        kinds.join(",")
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Six significant digits: instruction sets sum in different orders, so the last of 17 digits may differ.
fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(0.0) => "0".to_owned(),
        Some(number) => format!("{number:.5e}"),
        None => word(value),
    }
}

fn text(group: &str, lines: &Lines) -> String {
    let mut text = format!(
        "# What `twinscope diff --json` reports, group `{group}`. Do not edit; crates/cli/tests/frozen writes it:\n\
         # TWINSCOPE_FREEZE=write cargo test -p twinscope --test frozen\n\
         # `= case document`, then a line for each pair:\n\
         # name, verdict, origin, rule, layout, cause kinds, rel_l2, max_abs, differing, explained by the first cause\n"
    );
    for (case, lines) in lines {
        writeln!(text, "= {case} {}", lines[0]).expect("a string grows");
        for line in &lines[1..] {
            writeln!(text, "{line}").expect("a string grows");
        }
    }
    text
}

fn parsed(text: &str) -> Lines {
    let mut all = Lines::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix("= ") {
            let (case, document) = head.split_once(' ').expect("a case and its document");
            all.push((case.to_owned(), vec![document.to_owned()]));
        } else {
            let (_, lines) = all.last_mut().expect("a case comes first");
            lines.push(line.to_owned());
        }
    }
    all
}

/// Differing lines to print.
const SHOWN: usize = 20;

#[track_caller]
fn assert_same(old: &Lines, new: &Lines, what: &str) {
    let mut changes = Vec::new();
    let empty = Vec::new();
    let by_case =
        |lines: &Lines| -> BTreeMap<String, Vec<String>> { lines.iter().cloned().collect() };
    let (olds, news) = (by_case(old), by_case(new));
    assert_eq!(news.len(), new.len(), "case names are unique");
    for case in olds
        .keys()
        .chain(news.keys().filter(|case| !olds.contains_key(*case)))
    {
        let old = olds.get(case).unwrap_or(&empty);
        let new = news.get(case).unwrap_or(&empty);
        // An inserted pair is one change, not a shift of all pairs after it.
        let removed = old.iter().filter(|line| !new.contains(line));
        let added = new.iter().filter(|line| !old.contains(line));
        let differing = side_by_side(removed.collect(), added.collect(), case);
        if differing.is_empty() && old != new {
            changes.push(format!(
                "{case}: the same pairs, in another order or repeated"
            ));
        }
        changes.extend(differing);
    }
    assert!(
        changes.is_empty(),
        "{what}\n{} lines differ:\n{}",
        changes.len(),
        changes[..changes.len().min(SHOWN)].join("\n"),
    );
}

/// Old and new lines of one case, those of one pair next to each other.
fn side_by_side(old: Vec<&String>, mut new: Vec<&String>, case: &str) -> Vec<String> {
    let key = |line: &str| {
        line.split('\t')
            .next()
            .map(str::to_owned)
            .filter(|_| line.contains('\t'))
    };
    let mut changes = Vec::new();
    for line in old {
        let partner = new.iter().position(|other| key(other) == key(line));
        let other = partner.map_or("(none)", |at| new.remove(at).as_str());
        changes.push(format!("{case}\n  old {line}\n  new {other}"));
    }
    changes.extend(
        new.into_iter()
            .map(|line| format!("{case}\n  old (none)\n  new {line}")),
    );
    changes
}
