//! One element as text: the fewest digits that give exactly it back.
//!
//! Floats of 32 and 64 bits, dequantized codes and blocks print as Rust prints them; f16 and bf16 with the fewest digits
//! that no other value of their own type is nearer to, whole numbers always with every digit (65504, where NumPy says
//! 65500). Smaller floats have so few values that their exact digits are short. Integers have all of theirs. x87 values
//! are rounded to f64.
//!
//! In JSON a number is the element's value as an f64 has it, so a script gets exactly what is stored; what JSON has no
//! number for is a string, an element of two numbers a list of two.

use crate::{DType, Kind, Operand, TimeUnit, View, decode};
use std::fmt;

/// One element of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i128),
    Float(Float),
    /// Real and imaginary part.
    Complex(Float, Float),
    /// The low and the high half of a packed pair.
    Pair(Float, Float),
    Str(String),
    Bytes(Vec<u8>),
    /// Bytes without a meaning we know.
    Void(Vec<u8>),
    DateTime(i64, TimeUnit),
    TimeDelta(i64),
}

/// A floating-point number and how finely its type tells numbers apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Float {
    pub value: f64,
    pub grain: Grain,
}

/// Which digits of a number matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    F16,
    Bf16,
    F32,
    F64,
}

/// The element at `index`.
///
/// # Panics
/// When the index is not inside the shape.
pub fn value(view: &View, index: &[u64]) -> Value {
    let dims = view.shape().dims();
    assert!(index.len() == dims.len() && index.iter().zip(dims).all(|(i, dim)| i < dim), "an index lies inside its shape");
    let flat = index.iter().zip(dims).fold(0, |flat, (i, dim)| flat * dim + i);
    let dtype = view.dtype();
    let mut scratch = Vec::new();
    match dtype.kind() {
        Kind::Bool | Kind::Int => {
            let mut out = Vec::new();
            view.int_values(flat, 1, &mut scratch, &mut out);
            let number = out.first().copied().unwrap_or_default();
            if dtype == DType::Bool { Value::Bool(number != 0) } else { Value::Int(number) }
        }
        Kind::Float | Kind::Quantized | Kind::Complex => {
            let mut out = Vec::new();
            let _ = decode::f64_values(view, flat, 1, &mut scratch, &mut out);
            let float = |value: f64| Float { value, grain: grain(dtype) };
            match (out.as_slice(), dtype.kind()) {
                ([re, im], Kind::Complex) => Value::Complex(float(*re), float(*im)),
                ([low, high], _) => Value::Pair(float(*low), float(*high)),
                (out, _) => Value::Float(float(out.first().copied().unwrap_or(f64::NAN))),
            }
        }
        Kind::Opaque => opaque(dtype, view.element(index, &mut scratch).0),
    }
}

fn grain(dtype: DType) -> Grain {
    match dtype {
        DType::F16 | DType::C32 => Grain::F16,
        DType::Bf16 | DType::Bc32 => Grain::Bf16,
        DType::F64 | DType::C128 | DType::F80 | DType::C160 => Grain::F64,
        _ => Grain::F32,
    }
}

/// Elements that are no numbers, from their little-endian bytes.
fn opaque(dtype: DType, bytes: &[u8]) -> Value {
    let trimmed = || &bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)];
    let integer = || bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    match dtype {
        DType::Str(_) => {
            let codes: Vec<u32> = bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
            let end = codes.iter().rposition(|code| *code != 0).map_or(0, |last| last + 1);
            Value::Str(codes[..end].iter().map(|code| char::from_u32(*code).unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
        }
        DType::Bytes(_) => Value::Bytes(trimmed().to_vec()),
        DType::DateTime(unit) => Value::DateTime(integer() as i64, unit),
        DType::TimeDelta(_) => Value::TimeDelta(integer() as i64),
        DType::Void(_) | DType::Struct(_) => Value::Void(bytes.to_vec()),
        _ => Value::Int(i128::from(integer())),
    }
}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.grain {
            Grain::F64 => write!(f, "{:?}", self.value),
            Grain::F32 => write!(f, "{:?}", self.value as f32),
            Grain::F16 => write!(f, "{:?}", nearest_short(self.value, 10, -14)),
            Grain::Bf16 => write!(f, "{:?}", nearest_short(self.value, 7, -126)),
        }
    }
}

/// The number with the fewest digits that is nearer to `value` than to any other number with so many bits behind the
/// leading one, down to `2^least`.
fn nearest_short(value: f64, bits: i32, least: i32) -> f64 {
    let size = value.abs();
    if !value.is_finite() || (value.fract() == 0.0 && size < 1e15) {
        return value;
    }
    // Every f16 and bf16 is a normal f64, so the exponent stands in its bits.
    let exponent = (size.to_bits() >> 52) as i32 - 1023;
    // A little less than the true gap: programs that read a text as f32 first may move it onto the tie.
    let gap = 2f64.powi(exponent.max(least) - bits) * 0.999;
    // Below a power of two numbers lie twice as close.
    let below = if size == 2f64.powi(exponent) && exponent > least { gap / 4.0 } else { gap / 2.0 };
    let candidates = (0..17).filter_map(|digits| format!("{value:.digits$e}").parse::<f64>().ok());
    let mut near = candidates.filter(|short| short.abs() - size < gap / 2.0 && size - short.abs() < below);
    near.next().unwrap_or(value)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Complex(real, imaginary) => {
                let sign = if imaginary.value.is_sign_negative() && !imaginary.value.is_nan() { "" } else { "+" };
                write!(f, "{real}{sign}{imaginary}j")
            }
            Value::Pair(low, high) => write!(f, "({low}, {high})"),
            Value::Str(text) => write!(f, "{text:?}"),
            Value::Bytes(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
            Value::Void(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Value::DateTime(i64::MIN, _) | Value::TimeDelta(i64::MIN) => f.write_str("NaT"),
            Value::DateTime(count, unit) => f.write_str(&date(*count, *unit)),
            Value::TimeDelta(count) => write!(f, "{count}"),
        }
    }
}

/// As ISO 8601 has it, down to the unit, like NumPy.
fn date(count: i64, unit: TimeUnit) -> String {
    let count = i128::from(count) * i128::from(unit.count);
    // Units in a day, and what is written of the day: seconds and a fraction of so many digits.
    let (per_day, digits) = match unit.unit {
        "Y" => return year(1970 + count),
        "M" => return format!("{}-{:02}", year(1970 + count.div_euclid(12)), count.rem_euclid(12) + 1),
        "W" => return day(count * 7),
        "D" => return day(count),
        "h" => return format!("{}T{:02}", day(count.div_euclid(24)), count.rem_euclid(24)),
        "m" => (1440, None),
        "s" => (86_400, Some(0)),
        "ms" => (86_400 * 10i128.pow(3), Some(3)),
        "us" => (86_400 * 10i128.pow(6), Some(6)),
        "ns" => (86_400 * 10i128.pow(9), Some(9)),
        "ps" => (86_400 * 10i128.pow(12), Some(12)),
        "fs" => (86_400 * 10i128.pow(15), Some(15)),
        "as" => (86_400 * 10i128.pow(18), Some(18)),
        _ => return count.to_string(),
    };
    let (days, rest) = (count.div_euclid(per_day), count.rem_euclid(per_day));
    let Some(digits) = digits else { return format!("{}T{:02}:{:02}", day(days), rest / 60, rest % 60) };
    let second = 10i128.pow(digits);
    let (seconds, fraction) = (rest / second, rest % second);
    let clock = format!("{}T{:02}:{:02}:{:02}", day(days), seconds / 3600, seconds / 60 % 60, seconds % 60);
    if digits == 0 { clock } else { format!("{clock}.{fraction:0width$}", width = digits as usize) }
}

fn year(number: i128) -> String {
    if number < 0 { format!("-{:04}", -number) } else { format!("{number:04}") }
}

/// Days since 1970 in the Gregorian calendar, counted in eras of 400 years from a 1 March.
fn day(days: i128) -> String {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let of_400 = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_400 + of_400 / 4 - of_400 / 100);
    let march = (5 * of_year + 2) / 153;
    let (month, date) = (if march < 10 { march + 3 } else { march - 9 }, of_year - (153 * march + 2) / 5 + 1);
    format!("{}-{month:02}-{date:02}", year(era * 400 + of_400 + i128::from(month <= 2)))
}

impl Value {
    pub fn to_json(&self) -> serde_json::Value {
        let number = |float: &Float| match float.value {
            value if value.is_nan() => "NaN".into(),
            value if value.is_infinite() => if value > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            value => serde_json::Value::from(value),
        };
        match self {
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(value), _) => value.into(),
                (_, Ok(value)) => value.into(),
                _ => value.to_string().into(),
            },
            Value::TimeDelta(count) if *count != i64::MIN => (*count).into(),
            Value::Float(value) => number(value),
            Value::Complex(first, second) | Value::Pair(first, second) => vec![number(first), number(second)].into(),
            Value::Str(text) => text.as_str().into(),
            Value::Bytes(bytes) => bytes.escape_ascii().to_string().into(),
            Value::Void(_) | Value::DateTime(..) | Value::TimeDelta(_) => self.to_string().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Shape};
    use half::{bf16, f16};

    fn one(dtype: DType, bytes: &[u8]) -> Value {
        value(&View::new(dtype, Shape::scalar(), Bytes::from(bytes.to_vec())).unwrap(), &[])
    }

    #[test]
    fn every_f16_and_bf16_reads_back_from_its_text() {
        for bits in 0..=u16::MAX {
            let text = one(DType::F16, &bits.to_le_bytes()).to_string();
            let back = f16::from_f64(text.parse().unwrap());
            assert!(back.to_bits() == bits || f16::from_bits(bits).is_nan() && back.is_nan(), "{bits:#x} {text}");
            let text = one(DType::Bf16, &bits.to_le_bytes()).to_string();
            let back = bf16::from_f64(text.parse().unwrap());
            assert!(back.to_bits() == bits || bf16::from_bits(bits).is_nan() && back.is_nan(), "{bits:#x} {text}");
        }
    }

    #[test]
    fn digits_are_few_and_whole_numbers_whole() {
        assert_eq!(one(DType::Bf16, &bf16::from_f32(0.1).to_le_bytes()).to_string(), "0.1");
        assert_eq!(one(DType::F16, &f16::from_f32(1.0 / 3.0).to_le_bytes()).to_string(), "0.3333");
        assert_eq!(one(DType::F16, &f16::MAX.to_le_bytes()).to_string(), "65504.0");
        assert_eq!(one(DType::F32, &0.1f32.to_le_bytes()).to_string(), "0.1");
        assert_eq!(one(DType::F64, &0.1f64.to_le_bytes()).to_string(), "0.1");
        assert_eq!(one(DType::F8E4M3Fn, &[0x7e]).to_string(), "448.0");
        assert_eq!(one(DType::U64, &[0xff; 8]).to_string(), "18446744073709551615");
        assert_eq!(one(DType::Bool, &[1]).to_string(), "True");
    }

    #[test]
    fn json_is_what_is_stored() {
        assert_eq!(one(DType::F32, &0.1f32.to_le_bytes()).to_json().to_string(), "0.10000000149011612");
        assert_eq!(one(DType::Bf16, &[0x80, 0xff]).to_json().to_string(), "\"-Infinity\"");
        assert_eq!(one(DType::F64, &f64::NAN.to_le_bytes()).to_json().to_string(), "\"NaN\"");
        assert_eq!(one(DType::I64, &i64::MIN.to_le_bytes()).to_json().to_string(), "-9223372036854775808");
        assert_eq!(one(DType::C64, &[0, 0, 128, 63, 0, 0, 0, 192]).to_json().to_string(), "[1.0,-2.0]");
    }

    #[test]
    fn elements_of_two_numbers_show_both() {
        assert_eq!(one(DType::C64, &[0, 0, 128, 63, 0, 0, 0, 192]).to_string(), "1.0-2.0j");
        assert_eq!(one(DType::F4E2M1FnX2, &[0x21]).to_string(), "(0.5, 1.0)");
    }

    #[test]
    fn strings_end_at_their_padding() {
        assert_eq!(one(DType::Str(3), &[0xe9, 0, 0, 0, b'"', 0, 0, 0, 0, 0, 0, 0]).to_string(), r#""é\"""#);
        assert_eq!(one(DType::Str(0), &[]).to_string(), r#""""#);
        assert_eq!(one(DType::Bytes(4), b"a\xff\0\0").to_string(), r#"b"a\xff""#);
        assert_eq!(one(DType::Void(2), &[1, 0xab]).to_string(), "0x01ab");
    }

    #[test]
    fn dates_are_written_as_numpy_writes_them() {
        // str(numpy.datetime64(count, unit)), as NumPy 2 prints them.
        let cases = [
            (50, 1, "Y", "2020"),
            (-1, 1, "M", "1969-12"),
            (18_321, 1, "D", "2020-02-29"),
            (-719_528, 1, "D", "0000-01-01"),
            (1, 1, "W", "1970-01-08"),
            (439_704, 1, "h", "2020-02-29T00"),
            (-1, 1, "m", "1969-12-31T23:59"),
            (2, 25, "s", "1970-01-01T00:00:50"),
            (1_582_934_401_007, 1, "ms", "2020-02-29T00:00:01.007"),
            (-1, 1, "ns", "1969-12-31T23:59:59.999999999"),
            (i64::MIN, 1, "s", "NaT"),
        ];
        for (count, times, unit, expected) in cases {
            let dtype = DType::DateTime(TimeUnit::new(times, unit).unwrap());
            assert_eq!(one(dtype, &i64::to_le_bytes(count)).to_string(), expected);
        }
    }
}
