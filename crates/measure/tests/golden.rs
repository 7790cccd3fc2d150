//! `testdata/stats/numbers.json`: what exact arithmetic in Python says, written by the script beside it.

use serde_json::Value;
use twinscope_measure::{Counts, Number, stats};
use twinscope_tensor::{DType, Shape, View};

fn tensor(case: &Value) -> View {
    let text = |key: &str| case[key].as_str().expect("text");
    let dtype = DType::parse(text("dtype")).expect("a dtype");
    let dims: Vec<u64> = case["shape"]
        .as_array()
        .expect("sizes")
        .iter()
        .map(|dim| dim.as_u64().expect("a size"))
        .collect();
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex")
    };
    let bytes: Vec<u8> = text("hex").as_bytes().chunks(2).map(byte).collect();
    View::new(dtype, Shape::from(dims), bytes.into()).expect("these bytes")
}

fn parsed(expected: &Value) -> f64 {
    expected.as_str().expect("text").parse().expect("a number")
}

fn near(what: &str, got: f64, expected: &Value, scale: f64) {
    let expected = parsed(expected);
    let same = got == expected || (got - expected).abs() <= 1e-12 * scale.max(expected.abs());
    assert!(same, "{what}: {got:e}, exactly {expected:e}");
}

fn number(what: &str, got: Option<Number>, expected: &Value, scale: f64) {
    match got {
        None => assert!(expected.is_null(), "{what} is {expected}"),
        Some(Number::Int(got)) => {
            assert_eq!(Some(got.to_string().as_str()), expected.as_str(), "{what}");
        }
        Some(Number::Float(got)) => near(what, got, expected, scale),
        Some(Number::Complex(re, im)) => {
            near(what, re, &expected[0], scale);
            near(what, im, &expected[1], scale);
        }
    }
}

#[test]
fn python_says_the_same() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../testdata/stats/numbers.json"
    );
    let cases: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(path).expect("the golden file"))
            .expect("JSON");
    assert!(cases.len() > 25, "{} cases", cases.len());
    for case in &cases {
        let name = case["name"].as_str().expect("a name");
        let got = stats(&tensor(case)).expect("memory does not shrink");
        let count = |key: &str| case[key].as_u64().expect("a count");
        assert_eq!(got.count(), count("count"), "{name}");
        let counts = Counts {
            finite: count("finite"),
            nan: count("nan"),
            pos_inf: count("pos_inf"),
            neg_inf: count("neg_inf"),
            zeros: count("zeros"),
        };
        assert_eq!(got.counts(), Some(counts), "{name}");
        // Where terms cancel, 1e-12 is of the sum of absolute values.
        let sum_abs: f64 = case["sum_abs"]
            .as_str()
            .map_or(0.0, |text| text.parse().expect("a number"));
        let sum_abs = if sum_abs.is_finite() { sum_abs } else { 0.0 };
        number(&format!("{name}: sum"), got.sum(), &case["sum"], sum_abs);
        number(
            &format!("{name}: mean"),
            got.mean(),
            &case["mean"],
            sum_abs / (counts.finite.max(1) as f64),
        );
        number(
            &format!("{name}: max_abs"),
            got.max_abs(),
            &case["max_abs"],
            0.0,
        );
        number(
            &format!("{name}: std"),
            got.std().map(Number::Float),
            &case["std"],
            0.0,
        );
        number(
            &format!("{name}: norm"),
            got.norm().map(Number::Float),
            &case["norm"],
            0.0,
        );
        for (what, end) in [("min", got.min()), ("max", got.max())] {
            number(&format!("{name}: {what}"), end, &case[what], 0.0);
            if let Some(Number::Float(x)) = end {
                assert_eq!(
                    x,
                    parsed(&case[what]),
                    "{name}: {what} is an element, to the digit"
                );
            }
        }
    }
}
