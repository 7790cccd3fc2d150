//! Reports written by version 0.1.0 are read, and written back as they were: the same keys in the same order, every digit.

use std::path::Path;
use twinscope_report::{Comparison, Evidence, Known, Overall, Rule};

/// JSON without the blanks and line breaks between its tokens.
fn compact(text: &str) -> String {
    let (mut out, mut quoted, mut escaped) = (String::with_capacity(text.len()), false, false);
    for letter in text.chars() {
        if quoted || !letter.is_whitespace() {
            out.push(letter);
        }
        match letter {
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = letter == '\\' && !escaped;
    }
    out
}

fn report(name: &str) -> (String, Comparison) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/old_state/reports");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    (text, report)
}

#[test]
fn reports_of_0_1_0_are_written_back_byte_for_byte() {
    for (name, verdict) in [
        ("diverged.json", Overall::Diverged),
        ("agree.json", Overall::Agree),
        ("alone.json", Overall::Diverged),
        ("nothing_in_common.json", Overall::Incomparable),
    ] {
        let (text, report) = report(name);
        assert_eq!(report.verdict, verdict, "{name}");
        assert!(
            serde_json::to_string(&report).unwrap() == compact(&text),
            "{name} is written otherwise than it was read"
        );
    }
}

#[test]
fn a_word_of_a_newer_version_is_kept() {
    let (text, report) = report("diverged.json");
    assert_eq!(report.pairs[0].rule, Rule::Exact);
    assert_eq!(report.pairs[0].layout.as_ref().unwrap().by, Evidence::Shape);
    let newer = text.replace(
        "\"rule\": \"exact\"",
        "\"rule\": \"clairvoyance\", \"new\": 1",
    );
    let newer: Comparison = serde_json::from_str(&newer).unwrap();
    let rule = &newer.pairs[0].rule;
    assert_eq!(*rule, Known::Other("clairvoyance".to_owned()));
    assert_eq!(serde_json::to_value(rule).unwrap(), "clairvoyance");
}
