use super::*;
use crate::{BlockType, Bytes, Quant, Shape};
use proptest::prelude::*;

fn golden() -> serde_json::Value {
    serde_json::from_str(include_str!("../../testdata/reprs.json")).expect("golden data")
}

fn bits(value: &serde_json::Value) -> u64 {
    u64::from_str_radix(value.as_str().expect("hex"), 16).expect("hex")
}

/// Every case of a golden list with what NumPy prints.
fn cases(name: &str) -> Vec<(serde_json::Value, String)> {
    let golden = golden();
    let list = golden[name].as_array().expect("a list");
    list.iter()
        .map(|case| (case[0].clone(), case[1].as_str().expect("text").to_owned()))
        .collect()
}

/// NumPy's text, or the same digits written out where NumPy 2.4 begins to use exponents for narrow floats.
fn agrees(found: &str, numpy: &str) -> bool {
    let digits = |text: &str| text.parse::<f64>().expect("a number").to_bits();
    found == numpy
        || (numpy.contains("e+") && !found.contains('e') && digits(found) == digits(numpy))
}

#[test]
fn floats_are_written_as_numpy_writes_them() {
    for (code, text) in cases("f32") {
        let found = Float::F32(f32::from_bits(bits(&code) as u32)).to_string();
        assert!(agrees(&found, &text), "{found}, {text}");
    }
    for (code, text) in cases("f64") {
        assert_eq!(Float::F64(f64::from_bits(bits(&code))).to_string(), text);
    }
    for (code, text) in cases("f16") {
        let value = Float::F16(f16::from_bits(bits(&code) as u16));
        let found = value.to_string();
        // Ours may write a short number out where NumPy rounds it.
        assert!(
            agrees(&found, &text) || found.parse::<f64>() == Ok(value.to_f64()),
            "{found}, {text}"
        );
    }
}

#[test]
fn complex_numbers_are_written_as_numpy_writes_them() {
    for (parts, text) in cases("c64") {
        let part = |i: usize| Float::F32(f32::from_bits(bits(&parts[i]) as u32));
        assert_eq!(Value::Complex(part(0), part(1)).to_string(), text);
    }
    for (parts, text) in cases("c128") {
        let part = |i: usize| Float::F64(f64::from_bits(bits(&parts[i])));
        assert_eq!(Value::Complex(part(0), part(1)).to_string(), text);
    }
}

#[test]
fn extended_values_are_written_as_numpy_writes_them() {
    for (code, text) in cases("f80") {
        let code = code.as_str().expect("hex").to_owned();
        let mut bytes = [0; 16];
        for (i, byte) in bytes[..10].iter_mut().enumerate() {
            *byte = u8::from_str_radix(&code[2 * i..2 * i + 2], 16).expect("hex");
        }
        assert_eq!(Float::F80(bytes).to_string(), text);
    }
}

#[test]
fn dates_are_written_as_numpy_writes_them() {
    for case in golden()["datetime"].as_array().expect("a list") {
        let unit = TimeUnit::new(1, case[0].as_str().expect("a unit")).expect("a unit");
        assert_eq!(
            date(case[1].as_i64().expect("a count"), unit),
            case[2].as_str().expect("text"),
            "{case}"
        );
    }
    assert_eq!(
        duration(-3, TimeUnit::new(25, "s").expect("a unit")),
        "-75 seconds"
    );
}

/// Whether the text means the same bits; any NaN will do for NaN.
fn survives(value: Float) -> bool {
    let text = value.to_string();
    match (value, value.parse_like(&text).expect("parses")) {
        (a, b) if a.to_f64().is_nan() => b.to_f64().is_nan(),
        (Float::F16(a), Float::F16(b)) => a.to_bits() == b.to_bits(),
        (Float::Bf16(a), Float::Bf16(b)) => a.to_bits() == b.to_bits(),
        (Float::F32(a), Float::F32(b)) | (Float::Small(_, a), Float::Small(_, b)) => {
            a.to_bits() == b.to_bits()
        }
        (Float::F64(a), Float::F64(b)) => a.to_bits() == b.to_bits(),
        _ => false,
    }
}

#[test]
fn every_half_survives_its_text() {
    for code in 0..=u16::MAX {
        assert!(survives(Float::F16(f16::from_bits(code))), "{code:#x}");
        assert!(survives(Float::Bf16(bf16::from_bits(code))), "{code:#x}");
    }
}

#[test]
fn every_small_float_survives_its_text() {
    let dtypes = [
        DType::F8E4M3Fn,
        DType::F8E4M3Fnuz,
        DType::F8E5M2,
        DType::F8E5M2Fnuz,
        DType::F8E8M0Fnu,
        DType::F6E2M3,
        DType::F6E3M2,
        DType::F4,
        DType::OnnxF4,
    ];
    for dtype in dtypes {
        for value in small_table(dtype).expect("a small float") {
            assert!(
                survives(Float::Small(dtype, *value)),
                "{dtype} {value} as {}",
                Float::Small(dtype, *value)
            );
        }
    }
}

#[test]
fn floats_take_no_more_digits_than_they_need() {
    assert_eq!(Float::Bf16(bf16::from_f32(0.1)).to_string(), "0.1");
    assert_eq!(Float::F16(f16::from_f32(0.1)).to_string(), "0.1");
    assert_eq!(Float::F16(f16::MAX).to_string(), "65504.0");
    assert_eq!(Float::F32(1e-45).to_string(), "1e-45");
    assert_eq!(Float::Small(DType::F8E4M3Fn, 448.0).to_string(), "448.0");
    assert_eq!(Float::Small(DType::F8E4M3Fn, 0.1015625).to_string(), "0.1");
    assert_eq!(Float::F64(0.1).to_string(), "0.1");
    assert_eq!(Value::Bool(true).to_string(), "True");
}

#[test]
fn json_keeps_what_it_has_no_number_for() {
    assert_eq!(Value::Float(Float::F32(f32::NAN)).to_json(), "NaN");
    assert_eq!(
        Value::Float(Float::F16(f16::NEG_INFINITY)).to_json(),
        "-Infinity"
    );
    assert_eq!(
        Value::Float(Float::Bf16(bf16::from_f32(0.1))).to_json(),
        0.100_097_656_25
    );
    assert_eq!(
        Value::Int(i128::from(u64::MAX)).to_json().to_string(),
        "18446744073709551615"
    );
    assert_eq!(
        Value::Complex(Float::F32(1.0), Float::F32(-0.5))
            .to_json()
            .to_string(),
        "[1.0,-0.5]"
    );
}

#[test]
fn an_element_of_any_dtype_has_a_value() {
    for dtype in DType::PLAIN
        .iter()
        .copied()
        .chain(BlockType::ALL.iter().copied().map(DType::Block))
    {
        let len = dtype.byte_len(512).expect("whole blocks") as usize;
        let view = View::new(dtype, Shape::from([2, 256]), Bytes::from(vec![0x31; len]))
            .expect("a tensor");
        let mut numbers = Vec::new();
        assert!(
            crate::f64_values(&view, 300, 1, &mut Vec::new(), &mut numbers),
            "{dtype}"
        );
        let found = match view.value(&[1, 44]) {
            Value::Bool(value) => vec![f64::from(u8::from(value))],
            Value::Int(value) => vec![value as f64],
            Value::Float(value) => vec![value.to_f64()],
            Value::Complex(a, b) | Value::Pair(a, b) => vec![a.to_f64(), b.to_f64()],
            other => panic!("{dtype} is {other}"),
        };
        assert!(
            found == numbers || found[0].is_nan() && numbers[0].is_nan(),
            "{dtype}: {found:?}, {numbers:?}"
        );
    }
}

#[test]
fn words_are_quoted_and_quantized_codes_scaled() {
    let view = |dtype, bytes: Vec<u8>| {
        View::new(dtype, Shape::from([1]), Bytes::from(bytes)).expect("a tensor")
    };
    assert_eq!(
        view(DType::Str(2), vec![0xe9, 0, 0, 0, 0, 0, 0, 0])
            .value(&[0])
            .to_string(),
        "'é'"
    );
    assert_eq!(
        view(DType::Bytes(3), vec![b'a', 1, 0])
            .value(&[0])
            .to_string(),
        "b'a\\x01'"
    );
    assert_eq!(
        view(DType::Void(2), vec![0xab, 1]).value(&[0]).to_string(),
        "ab01"
    );
    let quantized = view(DType::QU8, vec![13]).quantized(Quant::Tensor {
        scale: 0.5,
        zero_point: 3.0,
    });
    assert_eq!(quantized.value(&[0]).to_string(), "5.0");
}

proptest! {
    #[test]
    fn any_single_or_double_survives_its_text(single in any::<u32>(), double in any::<u64>()) {
        prop_assert!(survives(Float::F32(f32::from_bits(single))));
        prop_assert!(survives(Float::F64(f64::from_bits(double))));
    }

    /// Printing any ten bytes ends, and close to the value.
    #[test]
    fn any_extended_value_is_written(bytes in any::<[u8; 16]>()) {
        let value = Float::F80(bytes);
        let text = value.to_string();
        let parsed: f64 = text.parse().expect("a number");
        let exact = value.to_f64();
        prop_assert!(parsed == exact || (parsed.is_nan() && exact.is_nan()) || (parsed - exact).abs() <= exact.abs() * f64::EPSILON, "{}", text);
    }
}
