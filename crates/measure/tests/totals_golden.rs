//! `testdata/totals/pairs.json`: what exact arithmetic in Python says of a pair, written by the script beside it.

use serde_json::Value;
use twinscope_measure::{Options, Profiling, SideTotals, totals};
use twinscope_tensor::{DType, Shape, View};

fn tensor(case: &Value, side: usize) -> View {
    let dtype = DType::parse(case["dtypes"][side].as_str().expect("text")).expect("a dtype");
    let dims: Vec<u64> = case["shape"]
        .as_array()
        .expect("sizes")
        .iter()
        .map(|dim| dim.as_u64().expect("a size"))
        .collect();
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex")
    };
    let bytes: Vec<u8> = case["hex"][side]
        .as_str()
        .expect("text")
        .as_bytes()
        .chunks(2)
        .map(byte)
        .collect();
    View::new(dtype, Shape::from(dims), bytes.into()).expect("these bytes")
}

fn parsed(expected: &Value) -> f64 {
    expected.as_str().expect("text").parse().expect("a number")
}

/// The least `f64`s are coarser than 1e-12 of themselves.
const GRAIN: f64 = 1e-320;

fn near(what: &str, got: Option<f64>, expected: &Value, scale: f64) {
    let Some(got) = got else {
        assert!(expected.is_null(), "{what} is {expected}");
        return;
    };
    assert!(!expected.is_null(), "{what}: {got:e}, but is undefined");
    let expected = parsed(expected);
    let same =
        got == expected || (got - expected).abs() <= 1e-12 * scale.max(expected.abs()) + GRAIN;
    assert!(same, "{what}: {got:e}, exactly {expected:e}");
}

fn side(what: &str, got: &SideTotals, case: &Value) {
    let count = |key: &str| case[key].as_u64().expect("a count");
    assert_eq!(
        (got.nan, got.inf, got.zero),
        (count("nan"), count("inf"), count("zero")),
        "{what}"
    );
    let size = case["mean_abs"]
        .as_str()
        .map_or(0.0, |text| text.parse().expect("a number"));
    near(&format!("{what}: mean"), got.mean, &case["mean"], size);
    near(&format!("{what}: std"), got.std, &case["std"], 0.0);
    near(&format!("{what}: norm"), got.norm, &case["norm"], 0.0);
    near(&format!("{what}: min"), got.min, &case["min"], 0.0);
    near(&format!("{what}: max"), got.max, &case["max"], 0.0);
}

#[test]
fn python_says_the_same_of_every_pair() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../testdata/totals/pairs.json"
    );
    let cases: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(path).expect("the golden file"))
            .expect("JSON");
    assert!(cases.len() >= 30, "{} cases", cases.len());
    for case in &cases {
        let name = case["name"].as_str().expect("a name");
        let options = Options {
            profiles: Profiling::Sampled,
            top: 3,
            tolerance: None,
        };
        let got =
            totals(&tensor(case, 0), &tensor(case, 1), &options).expect("memory does not shrink");
        let count = |key: &str| case[key].as_u64().expect("a count");
        let counts = [
            got.count,
            got.compared,
            got.differing,
            got.nonfinite_differing,
        ];
        assert_eq!(
            counts,
            ["count", "compared", "differing", "nonfinite_differing"].map(count),
            "{name}"
        );
        // A cosine is a sum of terms that cancel: 1e-12 is of 1.
        for (what, number, scale) in [
            ("max_abs", got.max_abs, 0.0),
            ("mean_abs", got.mean_abs, 0.0),
            ("max_rel", got.max_rel, 0.0),
            ("mean_rel", got.mean_rel, 0.0),
            ("mse", got.mse, 0.0),
            ("rel_l2", got.rel_l2, 0.0),
            ("cosine", got.cosine, 1.0),
            ("max_ulp", got.max_ulp, 0.0),
            ("max_local", got.max_local, 0.0),
        ] {
            near(&format!("{name}: {what}"), number, &case[what], scale);
        }
        assert_eq!(
            got.worst.map(|worst| worst.at),
            case["at"].as_u64(),
            "{name}"
        );
        if let Some(worst) = got.worst {
            let same =
                |got: f64, expected: f64| got == expected || (got.is_nan() && expected.is_nan());
            assert!(
                same(worst.reference, parsed(&case["worst"][0])),
                "{name}: {worst:?}"
            );
            assert!(
                same(worst.candidate, parsed(&case["worst"][1])),
                "{name}: {worst:?}"
            );
        }
        let finite_differing = got.differing - got.nonfinite_differing;
        assert_eq!(
            got.magnitudes.iter().map(|(_, count)| count).sum::<u64>(),
            finite_differing,
            "{name}"
        );
        assert_eq!(got.top.len() as u64, got.differing.min(3), "{name}");
        side(
            &format!("{name}: reference"),
            &got.reference,
            &case["reference"],
        );
        side(
            &format!("{name}: candidate"),
            &got.candidate,
            &case["candidate"],
        );
        let profiles = case["profiles"].as_array().expect("a list");
        assert_eq!(got.profiles.len(), profiles.len(), "{name}");
        for (got, expected) in got.profiles.iter().zip(profiles) {
            assert_eq!(
                got.axis as u64,
                expected["axis"].as_u64().expect("an axis"),
                "{name}"
            );
            for (what, numbers) in [
                ("error", &got.error),
                ("energy", &got.energy),
                ("max_abs", &got.max_abs),
            ] {
                assert_eq!(
                    numbers.len(),
                    expected[what].as_array().expect("a list").len(),
                    "{name}"
                );
                for (i, number) in numbers.iter().enumerate() {
                    near(
                        &format!("{name}: axis {} {what} {i}", got.axis),
                        Some(*number),
                        &expected[what][i],
                        0.0,
                    );
                }
            }
            let differing: Vec<u64> = expected["differing"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|n| n.as_u64().expect("a count"))
                .collect();
            assert_eq!(got.differing, differing, "{name}");
        }
    }
}
