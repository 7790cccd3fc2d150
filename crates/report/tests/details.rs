//! Every shape of details that 0.1.0 wrote is read as a type and written back byte for byte.
//!
//! `testdata/details.jsonl` has one real cause for each shape, from the fault bench, the demo's faults and the tests of crate explain.

use std::collections::BTreeSet;
use twinscope_report::{Cause, CauseKind, Facts, facts::RotatedParameter};

fn causes() -> impl Iterator<Item = (&'static str, Cause)> {
    include_str!("../testdata/details.jsonl")
        .lines()
        .map(|line| {
            let cause =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            (line, cause)
        })
}

#[test]
fn every_shape_is_typed_and_keeps_its_bytes() {
    for (line, cause) in causes() {
        assert!(!matches!(cause.details.facts, Facts::Other(_)), "{line}");
        assert_eq!(serde_json::to_string(&cause).unwrap(), line);
    }
}

#[test]
fn every_kind_has_a_line() {
    let seen: BTreeSet<CauseKind> = causes().map(|(_, cause)| cause.kind).collect();
    let missing: Vec<&CauseKind> = CauseKind::ALL
        .iter()
        .filter(|kind| !seen.contains(kind))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn details_that_fit_no_type_are_kept() {
    for line in [
        // A newer version's: another key, an unknown kind, a value of another type, no object, an extra of another type.
        r#"{"kind":"dropout","explained":1.0,"text":"","details":{"factor":2.0,"p":0.5,"seed":7,"side":"candidate","zeros":3}}"#,
        r#"{"kind":"untied","explained":0.5,"text":"","details":{"layers":[1,2]}}"#,
        r#"{"kind":"scale","explained":1.0,"text":"","details":{"constant":null,"factor":2,"share":null}}"#,
        r#"{"kind":"scale","explained":null,"text":"","details":[1]}"#,
        r#"{"kind":"scale","explained":1.0,"text":"","details":{"coefficient":"1"}}"#,
        // A factor that is NaN is written as null.
        r#"{"kind":"scale","explained":1.0,"text":"","details":{"constant":null,"factor":null,"share":null}}"#,
    ] {
        let cause: Cause = serde_json::from_str(line).unwrap();
        assert!(matches!(cause.details.facts, Facts::Other(_)), "{line}");
        assert_eq!(serde_json::to_string(&cause).unwrap(), line);
    }
}

#[test]
fn questions_are_answered_from_what_was_read() {
    let rotations: Vec<_> = causes()
        .filter_map(|(_, cause)| match cause.details.facts {
            Facts::Rotated(rotated) => Some(rotated),
            _ => None,
        })
        .collect();
    let has_offset = |parameter| {
        let mut of = rotations.iter().filter(|one| one.parameter() == parameter);
        of.any(|rotated| rotated.offset().is_some())
    };
    assert!(has_offset(RotatedParameter::Offset));
    assert!(!has_offset(RotatedParameter::Theta));
}
