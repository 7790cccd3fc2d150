//! One element exactly, and how it is written.
//!
//! Text is NumPy's: `1.0`, `1e-05`, `nan`, `-inf`, `True`, `(1+2j)`, plain digits from 1e-4 to 1e16 for every width (NumPy 2.4
//! turns to exponents earlier for narrow floats; columns of mixed dtypes are easier to read when one rule holds). A float is written with the fewest digits that mean it in
//! its own dtype, so a bf16 of 0.1 is `0.1` and not the `0.10009765625` it is in f32. Types of 16 bits and less are written
//! out when they are whole numbers of no more than six digits: the largest f16 is `65504.0`, not the equally unmistakable `65500.0`.

use crate::{
    DType, TimeUnit, View, blocks,
    decode::{dequantize_channel_code, dequantize_code},
    minifloat::{self, X87},
    shortest::{Decimal, shortest},
};
use half::{bf16, f16};
use std::fmt::{self, Write};

/// What one element is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    Bool(bool),
    Int(i128),
    Float(Float),
    Complex(Float, Float),
    /// Two packed numbers in one element.
    Pair(Float, Float),
    /// A moment or a length of time as text.
    Time(String),
    Str(String),
    Bytes(Vec<u8>),
    /// Bytes without a meaning of their own, or a record.
    Raw(Vec<u8>),
}

/// A float in its own precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Float {
    F16(f16),
    Bf16(bf16),
    F32(f32),
    F64(f64),
    /// x87 extended, in sixteen bytes.
    F80([u8; 16]),
    /// A number of eight bits or less, which an `f32` holds exactly; the dtype says how fine its neighbours are.
    Small(DType, f32),
}

impl View {
    /// The element at an index.
    ///
    /// # Panics
    /// When the index is not inside the shape.
    pub fn value(&self, index: &[u64]) -> Value {
        let dims = self.shape().dims();
        assert!(
            index.len() == dims.len() && index.iter().zip(dims).all(|(i, dim)| i < dim),
            "an index inside the shape"
        );
        let mut scratch = Vec::new();
        let (bytes, at) = self.element(index, &mut scratch);
        if let DType::Block(block) = self.dtype() {
            let mut values = [0f32; blocks::LARGEST];
            blocks::dequantize(block, bytes, &mut values[..block.elements()]);
            return Value::Float(Float::F32(values[at]));
        }
        match (plain(self.dtype(), bytes), self.quant()) {
            (Value::Int(code), Some(quant)) if self.dtype().kind() == crate::Kind::Quantized => {
                let flat = index
                    .iter()
                    .zip(dims)
                    .fold(0, |flat, (i, dim)| flat * dim + i);
                let compute = if matches!(quant, crate::Quant::Tensor { .. }) {
                    dequantize_code
                } else {
                    dequantize_channel_code
                };
                let value = self.quant_at(flat).map_or(f32::NAN, |(scale, zero_point)| {
                    compute(code as i32, scale, zero_point)
                });
                Value::Float(Float::F32(value))
            }
            (value, _) => value,
        }
    }
}

/// The value of one element's bytes (a packed element is alone in its byte).
fn plain(dtype: DType, bytes: &[u8]) -> Value {
    let small = |table: &[f32], code: u8| Float::Small(dtype, table[usize::from(code)]);
    let parts = |part: fn(&[u8]) -> Float| {
        let (re, im) = bytes.split_at(bytes.len() / 2);
        Value::Complex(part(re), part(im))
    };
    match dtype {
        DType::Bool => Value::Bool(bytes[0] != 0),
        DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::QU8
        | DType::QU4X2
        | DType::QU2X4
        | DType::OnnxU4
        | DType::OnnxU2
        | DType::Bits8
        | DType::Bits16
        | DType::Bits1X8
        | DType::Bits2X4
        | DType::Bits4X2 => Value::Int(i128::from(unsigned(bytes))),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::QI8 | DType::QI32 => {
            Value::Int(i128::from(signed(bytes, 8 * bytes.len())))
        }
        DType::OnnxI4 => Value::Int(i128::from(signed(bytes, 4))),
        DType::OnnxI2 => Value::Int(i128::from(signed(bytes, 2))),
        DType::F16 => Value::Float(half_of(bytes)),
        DType::Bf16 => Value::Float(brain_of(bytes)),
        DType::F32 => Value::Float(single_of(bytes)),
        DType::F64 => Value::Float(double_of(bytes)),
        DType::F80 => Value::Float(extended_of(bytes)),
        DType::C32 => parts(half_of),
        DType::Bc32 => parts(brain_of),
        DType::C64 => parts(single_of),
        DType::C128 => parts(double_of),
        DType::C160 => parts(extended_of),
        DType::F8E4M3Fn
        | DType::F8E4M3Fnuz
        | DType::F8E5M2
        | DType::F8E5M2Fnuz
        | DType::F8E8M0Fnu => {
            Value::Float(small(small_table(dtype).expect("a small float"), bytes[0]))
        }
        DType::F4 | DType::OnnxF4 => Value::Float(small(&minifloat::F4_E2M1, bytes[0])),
        DType::F6E2M3 => Value::Float(small(&minifloat::F6_E2M3, bytes[0])),
        DType::F6E3M2 => Value::Float(small(&minifloat::F6_E3M2, bytes[0])),
        DType::F4E2M1FnX2 => Value::Pair(
            small(&minifloat::F4_E2M1, bytes[0] & 15),
            small(&minifloat::F4_E2M1, bytes[0] >> 4),
        ),
        DType::DateTime(unit) => Value::Time(date(signed(bytes, 64), unit)),
        DType::TimeDelta(unit) => Value::Time(duration(signed(bytes, 64), unit)),
        DType::Str(_) => Value::Str(text(bytes)),
        DType::Bytes(_) => Value::Bytes(
            bytes[..bytes
                .iter()
                .rposition(|b| *b != 0)
                .map_or(0, |last| last + 1)]
                .to_vec(),
        ),
        DType::Void(_) | DType::Struct(_) => Value::Raw(bytes.to_vec()),
        DType::Block(_) => unreachable!("blocks are unpacked before"),
    }
}

/// The table of an eight-bit or smaller float.
fn small_table(dtype: DType) -> Option<&'static [f32]> {
    Some(match dtype {
        DType::F8E4M3Fn => &minifloat::F8_E4M3FN,
        DType::F8E4M3Fnuz => &minifloat::F8_E4M3FNUZ,
        DType::F8E5M2 => &minifloat::F8_E5M2,
        DType::F8E5M2Fnuz => &minifloat::F8_E5M2FNUZ,
        DType::F8E8M0Fnu => &minifloat::F8_E8M0FNU,
        DType::F4 | DType::OnnxF4 | DType::F4E2M1FnX2 => &minifloat::F4_E2M1,
        DType::F6E2M3 => &minifloat::F6_E2M3,
        DType::F6E3M2 => &minifloat::F6_E3M2,
        _ => return None,
    })
}

fn unsigned(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Two's complement of that many bits.
fn signed(bytes: &[u8], bits: usize) -> i64 {
    ((unsigned(bytes) << (64 - bits)) as i64) >> (64 - bits)
}

fn half_of(bytes: &[u8]) -> Float {
    Float::F16(f16::from_bits(unsigned(bytes) as u16))
}

fn brain_of(bytes: &[u8]) -> Float {
    Float::Bf16(bf16::from_bits(unsigned(bytes) as u16))
}

fn single_of(bytes: &[u8]) -> Float {
    Float::F32(f32::from_bits(unsigned(bytes) as u32))
}

fn double_of(bytes: &[u8]) -> Float {
    Float::F64(f64::from_bits(unsigned(bytes)))
}

fn extended_of(bytes: &[u8]) -> Float {
    Float::F80(bytes.try_into().expect("sixteen bytes"))
}

fn text(bytes: &[u8]) -> String {
    let mut text: String = bytes
        .chunks_exact(4)
        .map(|code| char::from_u32(unsigned(code) as u32).unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    text.truncate(text.trim_end_matches('\0').len());
    text
}

impl Float {
    /// The nearest `f64`; exact for all but x87 values.
    pub fn to_f64(self) -> f64 {
        match self {
            Float::F16(value) => value.to_f64(),
            Float::Bf16(value) => value.to_f64(),
            Float::F32(value) | Float::Small(_, value) => f64::from(value),
            Float::F64(value) => value,
            Float::F80(bytes) => minifloat::f80_to_f64(&bytes),
        }
    }

    /// Digits of the magnitude; nothing for zero, NaN and infinities.
    fn decimal(self) -> Option<Decimal> {
        let value = self.to_f64().abs();
        if let Float::F80(bytes) = self {
            let X87 {
                exponent, mantissa, ..
            } = X87::new(&bytes);
            if exponent == 0x7fff || mantissa == 0 || (exponent > 0 && mantissa >> 63 == 0) {
                return None;
            }
            let boundary = mantissa == 1 << 63 && exponent > 1;
            return Some(shortest(
                mantissa,
                i32::from(exponent.max(1)) - 16383 - 63,
                boundary,
            ));
        }
        if value == 0.0 || !value.is_finite() {
            return None;
        }
        let (precision, least) = match self {
            Float::F64(value) => return Some(scientific(&format!("{:e}", value.abs()))),
            // The scales of MX are powers of two; in their own coarse grid 2^40 would be 1e12.
            Float::F32(value) | Float::Small(DType::F8E8M0Fnu, value) => {
                return Some(scientific(&format!("{:e}", value.abs())));
            }
            Float::F16(_) => (11, -24),
            Float::Bf16(_) => (8, -133),
            Float::Small(DType::F8E4M3Fn, _) => (4, -9),
            Float::Small(DType::F8E4M3Fnuz, _) => (4, -10),
            Float::Small(DType::F8E5M2, _) => (3, -16),
            Float::Small(DType::F8E5M2Fnuz, _) => (3, -17),
            Float::Small(DType::F6E2M3, _) => (4, -3),
            Float::Small(DType::F6E3M2, _) => (3, -4),
            Float::Small(..) => (2, -1),
            Float::F80(_) => unreachable!("returned above"),
        };
        let exact = scientific(&format!("{value:e}"));
        if exact.digits.len() <= 6 && value.fract() == 0.0 {
            return Some(exact);
        }
        // Cut the f64 to the mantissa its own type has; nothing is lost.
        let (power, fraction) = (
            (value.to_bits() >> 52) as i32 - 1023,
            value.to_bits() & ((1 << 52) - 1),
        );
        let exponent = (power - (precision - 1)).max(least);
        let mantissa = (fraction | 1 << 52) >> (52 + exponent - power);
        Some(shortest(
            mantissa,
            exponent,
            mantissa == 1 << (precision - 1) && exponent > least,
        ))
    }

    fn is_negative(self) -> bool {
        match self {
            Float::F80(bytes) => X87::new(&bytes).negative,
            other => other.to_f64().is_sign_negative(),
        }
    }

    /// NumPy's text; `point` asks for the `.0` of whole numbers.
    fn write(self, out: &mut String, point: bool) {
        let value = self.to_f64();
        let extended = matches!(self, Float::F80(_));
        let Some(Decimal { digits, power }) = self.decimal() else {
            let infinite = if let Float::F80(bytes) = self {
                X87::new(&bytes).mantissa == 1 << 63 && value != 0.0
            } else {
                !value.is_nan()
            };
            match value {
                _ if value == 0.0 => out.push_str(if self.is_negative() { "-0.0" } else { "0.0" }),
                _ if value.is_infinite() && infinite => {
                    out.push_str(if value < 0.0 { "-inf" } else { "inf" });
                }
                _ => out.push_str("nan"),
            }
            if !point && out.ends_with(".0") {
                out.truncate(out.len() - 2);
            }
            return;
        };
        if self.is_negative() {
            out.push('-');
        }
        // By the value, not by its digits.
        let positional = if extended {
            (-4..16).contains(&power)
        } else {
            (1e-4..1e16).contains(&value.abs())
        };
        if positional {
            write_positional(&digits, power, point, out);
        } else {
            out.push_str(&digits[..1]);
            if digits.len() > 1 {
                let _ = write!(out, ".{}", &digits[1..]);
            }
            let _ = write!(
                out,
                "e{}{:02}",
                if power < 0 { '-' } else { '+' },
                power.unsigned_abs()
            );
        }
    }

    /// The number nearest to a decimal in this float's own dtype, ties to even; what the text of a float means.
    pub fn parse_like(self, text: &str) -> Option<Self> {
        let value: f64 = text.parse().ok()?;
        Some(match self {
            // Rounded here, once: `half` goes through f32 or drops low bits, which can turn a near tie around.
            Float::F16(_) => Float::F16(f16::from_f64(round(value, 11, -24))),
            Float::Bf16(_) => Float::Bf16(bf16::from_f64(round(value, 8, -133))),
            Float::F32(_) => Float::F32(text.parse().ok()?),
            Float::F64(_) => Float::F64(value),
            Float::F80(_) => return None,
            Float::Small(dtype, _) => {
                let table = small_table(dtype)?;
                let far = |code: &usize| (f64::from(table[*code]) - value).abs();
                // Minus zero is not plus zero, and NaN is nearest to nothing.
                let fits = |code: &usize| {
                    !table[*code].is_nan()
                        && table[*code].is_sign_negative() == value.is_sign_negative()
                };
                let nearest = (0..table.len())
                    .filter(fits)
                    .min_by(|a, b| far(a).total_cmp(&far(b)).then((a & 1).cmp(&(b & 1))));
                let exact =
                    (0..table.len()).find(|code| f64::from(table[*code]) == value && fits(code));
                let code = if value.is_nan() {
                    (0..table.len()).find(|code| table[*code].is_nan())
                } else {
                    exact.or(nearest)
                };
                Float::Small(dtype, table[code?])
            }
        })
    }

    fn to_json(self) -> serde_json::Value {
        let mut text = String::new();
        self.write(&mut text, true);
        match text.as_str() {
            "nan" => return "NaN".into(),
            "inf" => return "Infinity".into(),
            "-inf" => return "-Infinity".into(),
            _ => {}
        }
        // An extended value that no double holds stays text: a number would be another one.
        let exact = match self {
            Float::F80(bytes) => {
                let X87 {
                    exponent, mantissa, ..
                } = X87::new(&bytes);
                mantissa.trailing_zeros() >= 11
                    && (16383 - 1022..16383 + 1024).contains(&i32::from(exponent))
                    || mantissa == 0
            }
            _ => true,
        };
        // The value itself, not its shortest text: a script reads a double, and 0.1 is not what an f32 near it holds.
        match serde_json::Number::from_f64(self.to_f64()).filter(|_| exact) {
            Some(number) => number.into(),
            None => text.into(),
        }
    }
}

/// The nearest number of `precision` bits that is a multiple of `2^least`, ties to even.
fn round(value: f64, precision: i32, least: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let power = ((value.abs().to_bits() >> 52) as i32 - 1023).max(least);
    let step = 2f64.powi((power - (precision - 1)).max(least));
    (value / step).round_ties_even() * step
}

/// Digits and power of `1.234e-5`.
fn scientific(text: &str) -> Decimal {
    let (digits, power) = text.split_once('e').expect("asked for an exponent");
    Decimal {
        digits: digits.replace('.', ""),
        power: power.parse().expect("an exponent"),
    }
}

fn write_positional(digits: &str, power: i32, point: bool, out: &mut String) {
    let Ok(whole) = usize::try_from(power + 1)
        .map_err(|_| ())
        .and_then(|n| if n == 0 { Err(()) } else { Ok(n) })
    else {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', (-power - 1) as usize));
        out.push_str(digits);
        return;
    };
    if digits.len() > whole {
        out.push_str(&digits[..whole]);
        out.push('.');
        out.push_str(&digits[whole..]);
    } else {
        out.push_str(digits);
        out.extend(std::iter::repeat_n('0', whole - digits.len()));
        if point {
            out.push_str(".0");
        }
    }
}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text, true);
        f.pad(&text)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(true) => f.pad("True"),
            Value::Bool(false) => f.pad("False"),
            Value::Int(value) => f.pad(&value.to_string()),
            Value::Float(value) => value.fmt(f),
            Value::Complex(re, im) => f.pad(&complex(*re, *im)),
            Value::Pair(low, high) => f.pad(&format!("({low}, {high})")),
            Value::Time(text) => f.pad(text),
            Value::Str(text) => f.pad(&format!(
                "'{}'",
                text.escape_debug().to_string().replace("\\\"", "\"")
            )),
            Value::Bytes(bytes) => f.pad(&format!(
                "b'{}'",
                bytes.escape_ascii().to_string().replace("\\\"", "\"")
            )),
            Value::Raw(bytes) => f.pad(&hex(bytes)),
        }
    }
}

impl Value {
    /// For `--json`: numbers as numbers, NaN and infinities as strings, two numbers as a list.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(value), _) => value.into(),
                (_, Ok(value)) => value.into(),
                _ => value.to_string().into(),
            },
            Value::Float(value) => value.to_json(),
            Value::Complex(a, b) | Value::Pair(a, b) => vec![a.to_json(), b.to_json()].into(),
            Value::Time(text) | Value::Str(text) => text.clone().into(),
            Value::Bytes(bytes) => bytes.escape_ascii().to_string().into(),
            Value::Raw(bytes) => hex(bytes).into(),
        }
    }
}

/// `(1+2j)`, or `2j` when the real part is plain zero.
fn complex(re: Float, im: Float) -> String {
    let mut text = String::new();
    let imaginary_only = re.to_f64() == 0.0 && !re.is_negative();
    if !imaginary_only {
        text.push('(');
        re.write(&mut text, false);
    }
    let mut part = String::new();
    im.write(&mut part, false);
    if !imaginary_only && !part.starts_with('-') {
        text.push('+');
    }
    text.push_str(&part);
    text.push('j');
    if !imaginary_only {
        text.push(')');
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// NumPy's "not a time".
const NAT: i64 = i64::MIN;

/// A count of units since 1970 as ISO 8601, as fine as the unit.
fn date(value: i64, unit: TimeUnit) -> String {
    if value == NAT {
        return "NaT".to_owned();
    }
    let value = i128::from(value) * i128::from(unit.count);
    let year_month = |year: i128, month: i128| format!("{}-{month:02}", year_text(year));
    let day = |days: i128| {
        let (year, month, day) = civil(days);
        format!("{}-{day:02}", year_month(year, month))
    };
    // How many units a day has, and how finely the time of day is written.
    let (per_day, digits): (i128, u32) = match unit.unit {
        "Y" => return year_text(value + 1970),
        "M" => return year_month(1970 + value.div_euclid(12), value.rem_euclid(12) + 1),
        "W" => return day(value * 7),
        "D" => return day(value),
        "h" => return format!("{}T{:02}", day(value.div_euclid(24)), value.rem_euclid(24)),
        "m" => {
            let minute = value.rem_euclid(1440);
            return format!(
                "{}T{:02}:{:02}",
                day(value.div_euclid(1440)),
                minute / 60,
                minute % 60
            );
        }
        "s" => (86_400, 0),
        "ms" => (86_400_000, 3),
        "us" => (86_400_000_000, 6),
        "ns" => (86_400_000_000_000, 9),
        "ps" => (86_400 * 10i128.pow(12), 12),
        "fs" => (86_400 * 10i128.pow(15), 15),
        "as" => (86_400 * 10i128.pow(18), 18),
        // Without a unit a count is all there is.
        _ => return value.to_string(),
    };
    let within = value.rem_euclid(per_day);
    let (second, fraction) = (within / 10i128.pow(digits), within % 10i128.pow(digits));
    let clock = format!(
        "{}T{:02}:{:02}:{:02}",
        day(value.div_euclid(per_day)),
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    if digits == 0 {
        clock
    } else {
        format!("{clock}.{fraction:0width$}", width = digits as usize)
    }
}

/// At least four characters, as NumPy has it: the sign is one of them.
fn year_text(year: i128) -> String {
    format!("{year:04}")
}

/// Year, month and day of a count of days since 1970, in the Gregorian calendar: eras of 400 years, years from March.
fn civil(days: i128) -> (i128, i128, i128) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i128::from(month <= 2), month, date)
}

/// `5 days`, as NumPy says it.
fn duration(value: i64, unit: TimeUnit) -> String {
    if value == NAT {
        return "NaT".to_owned();
    }
    let name = match unit.unit {
        "Y" => "years",
        "M" => "months",
        "W" => "weeks",
        "D" => "days",
        "h" => "hours",
        "m" => "minutes",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "ns" => "nanoseconds",
        "ps" => "picoseconds",
        "fs" => "femtoseconds",
        "as" => "attoseconds",
        _ => "generic time units",
    };
    format!("{} {name}", i128::from(value) * i128::from(unit.count))
}

#[cfg(test)]
mod tests;
