//! `python/src/twinscope/_schema.py` holds the field names and words of the documents, for the dataclasses of `_report.py`. It is written
//! from the Rust types, so that the two cannot drift apart.

use std::{fmt::Write as _, path::Path};
use twinscope_report::{
    Attempt, Batch, BatchRow, Cause, CauseKind, Comparison, Evidence, Explained, Finding,
    FindingRow, FirstDivergence, Layout, Leftover, Listing, Origin, Overall, Pair, Rule,
    SideTotals, Skipped, SkippedRow, StatsListing, StatsRow, TensorRow, Totals, ValueRow, Verdict,
    Worst,
};
use utoipa::ToSchema;

const HEADER: &str = "\
\"\"\"Fields and words of the documents, written from the Rust types in `crates/report` by `make schema`. Do not edit.\"\"\"

from __future__ import annotations

from typing import Literal

";

/// The words of an enum as a type.
fn words(out: &mut String, name: &str, words: &[&str]) {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    writeln!(out, "{name} = Literal[{}]", words.join(", ")).unwrap();
}

/// The fields of a struct, in alphabetical order.
fn fields<T: ToSchema>(out: &mut String) {
    let schema = serde_json::to_value(T::schema()).unwrap();
    let properties = schema["properties"].as_object().expect("a struct");
    let mut names: Vec<String> = properties
        .keys()
        .map(|name| format!("\"{name}\""))
        .collect();
    names.sort();
    writeln!(out, "    \"{}\": ({},),", T::name(), names.join(", ")).unwrap();
}

fn python() -> String {
    let mut out = HEADER.to_owned();
    words(&mut out, "Verdict", &Verdict::ALL.map(Verdict::name));
    words(&mut out, "Origin", &Origin::ALL.map(Origin::name));
    words(&mut out, "Overall", &Overall::ALL.map(Overall::name));
    words(&mut out, "Rule", &Rule::ALL.map(Rule::name));
    words(&mut out, "Evidence", &Evidence::ALL.map(Evidence::name));
    let kinds: Vec<&str> = CauseKind::ALL.iter().map(CauseKind::name).collect();
    words(&mut out, "CauseKind", &kinds);
    out += "\nFIELDS: dict[str, tuple[str, ...]] = {\n";
    fields::<Comparison>(&mut out);
    fields::<Pair>(&mut out);
    fields::<Totals>(&mut out);
    fields::<SideTotals>(&mut out);
    fields::<Worst>(&mut out);
    fields::<Cause>(&mut out);
    fields::<Layout>(&mut out);
    fields::<Leftover>(&mut out);
    fields::<Skipped>(&mut out);
    fields::<Finding>(&mut out);
    fields::<FirstDivergence>(&mut out);
    fields::<Batch>(&mut out);
    fields::<BatchRow>(&mut out);
    fields::<Explained>(&mut out);
    fields::<Attempt>(&mut out);
    fields::<Listing<'_>>(&mut out);
    fields::<TensorRow<'_>>(&mut out);
    fields::<ValueRow<'_>>(&mut out);
    fields::<SkippedRow<'_>>(&mut out);
    fields::<FindingRow<'_>>(&mut out);
    fields::<StatsListing<'_>>(&mut out);
    fields::<StatsRow<'_>>(&mut out);
    out += "}\n";
    out
}

#[test]
fn the_python_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/src/twinscope/_schema.py");
    let fresh = python();
    if std::env::var_os("TWINSCOPE_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "python/src/twinscope/_schema.py is stale: run `make schema`"
    );
}
