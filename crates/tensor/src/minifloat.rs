//! Floats of four to eight bits, and the one of eighty.
//!
//! Every code of the small types is exactly an `f32`, so decoding is a table that the compiler fills. Sign, exponent with a
//! bias, mantissa: `±(m / 2^M) · 2^(1 - bias)` when the exponent bits are zero, else `±(1 + m / 2^M) · 2^(e - bias)`. The
//! types differ in their bias and in which codes are taken away for NaN and infinity.

/// What a small float's bits mean.
#[derive(Clone, Copy)]
struct Layout {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    special: Special,
}

/// Which codes are no numbers.
#[derive(Clone, Copy)]
enum Special {
    /// Every code is a number.
    None,
    /// All exponent and mantissa bits set is NaN; there is no infinity (`fn`).
    AllOnes,
    /// The code of minus zero is the only NaN (`fnuz`).
    MinusZero,
    /// As IEEE 754: the largest exponent is infinity (mantissa 0) and NaN.
    Ieee,
}

/// `2^exponent`, for exponents of normal f32.
const fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

const fn decode(layout: Layout, code: u8) -> f32 {
    let Layout {
        exponent_bits,
        mantissa_bits,
        bias,
        special,
    } = layout;
    let code = code as u32;
    let mantissa = code & ((1 << mantissa_bits) - 1);
    let top = (1 << exponent_bits) - 1;
    let exponent = (code >> mantissa_bits) & top;
    let negative = (code >> (mantissa_bits + exponent_bits)) & 1 == 1;
    let all_ones = exponent == top && mantissa == (1 << mantissa_bits) - 1;
    match special {
        Special::AllOnes if all_ones => return f32::NAN,
        Special::MinusZero if negative && exponent == 0 && mantissa == 0 => return f32::NAN,
        Special::Ieee if exponent == top && mantissa != 0 => return f32::NAN,
        Special::Ieee if exponent == top => {
            return if negative {
                f32::NEG_INFINITY
            } else {
                f32::INFINITY
            };
        }
        _ => {}
    }
    let magnitude = if exponent == 0 {
        mantissa as f32 * power(1 - bias - mantissa_bits as i32)
    } else {
        ((1 << mantissa_bits) + mantissa) as f32
            * power(exponent as i32 - bias - mantissa_bits as i32)
    };
    if negative { -magnitude } else { magnitude }
}

const fn table<const N: usize>(layout: Layout) -> [f32; N] {
    let mut values = [0.0; N];
    let mut code = 0;
    while code < N {
        values[code] = decode(layout, code as u8);
        code += 1;
    }
    values
}

pub static F8_E4M3FN: [f32; 256] = table(Layout {
    exponent_bits: 4,
    mantissa_bits: 3,
    bias: 7,
    special: Special::AllOnes,
});
pub static F8_E4M3FNUZ: [f32; 256] = table(Layout {
    exponent_bits: 4,
    mantissa_bits: 3,
    bias: 8,
    special: Special::MinusZero,
});
pub static F8_E5M2: [f32; 256] = table(Layout {
    exponent_bits: 5,
    mantissa_bits: 2,
    bias: 15,
    special: Special::Ieee,
});
pub static F8_E5M2FNUZ: [f32; 256] = table(Layout {
    exponent_bits: 5,
    mantissa_bits: 2,
    bias: 16,
    special: Special::MinusZero,
});
pub static F6_E2M3: [f32; 64] = table(Layout {
    exponent_bits: 2,
    mantissa_bits: 3,
    bias: 1,
    special: Special::None,
});
pub static F6_E3M2: [f32; 64] = table(Layout {
    exponent_bits: 3,
    mantissa_bits: 2,
    bias: 3,
    special: Special::None,
});
pub static F4_E2M1: [f32; 16] = table(Layout {
    exponent_bits: 2,
    mantissa_bits: 1,
    bias: 1,
    special: Special::None,
});

/// Powers of two without a sign: `2^(code - 127)`, 255 is NaN.
pub static F8_E8M0FNU: [f32; 256] = {
    let mut values = [f32::NAN; 256];
    // The smallest is below the normal f32.
    values[0] = f32::from_bits(1 << 22);
    let mut code = 1;
    while code < 255 {
        values[code] = power(code as i32 - 127);
        code += 1;
    }
    values
};

/// An x87 extended value (64 bits of mantissa with its leading one, 15 of exponent, a sign; the rest is padding) as the
/// nearest `f64`, ties to even. Encodings that the processor itself refuses are NaN.
pub fn f80_to_f64(bytes: &[u8; 16]) -> f64 {
    let X87 {
        negative,
        exponent,
        mantissa,
    } = X87::new(bytes);
    let magnitude = match (exponent, mantissa) {
        (0x7fff, 0x8000_0000_0000_0000) => f64::INFINITY,
        (0x7fff, _) => f64::NAN,
        (_, 0) if exponent == 0 => 0.0,
        // No leading one although the exponent promises it: "unnormal", invalid since the 80387.
        (1.., _) if mantissa >> 63 == 0 => f64::NAN,
        _ => {
            let zeros = mantissa.leading_zeros();
            // The value is 1.xxx · 2^power.
            let power = i32::from(exponent.max(1)) - 16383 - zeros as i32;
            round_to_f64(mantissa << zeros, power)
        }
    };
    if negative { -magnitude } else { magnitude }
}

/// The three parts of an x87 value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct X87 {
    pub(crate) negative: bool,
    pub(crate) exponent: u16,
    pub(crate) mantissa: u64,
}

impl X87 {
    pub(crate) fn new(bytes: &[u8; 16]) -> Self {
        let mantissa = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        let top = u16::from_le_bytes([bytes[8], bytes[9]]);
        Self {
            negative: top >> 15 == 1,
            exponent: top & 0x7fff,
            mantissa,
        }
    }
}

/// `mantissa / 2^63 · 2^power`, with the top bit of the mantissa set.
fn round_to_f64(mantissa: u64, power: i32) -> f64 {
    if power > 1023 {
        return f64::INFINITY;
    }
    // 53 bits stay in a normal f64, fewer below 2^-1022.
    let drop = 11 + (-1022 - power).max(0);
    if drop > 64 {
        return 0.0;
    }
    let wide = u128::from(mantissa);
    let mut kept = (wide >> drop) as u64;
    let rest = wide & ((1u128 << drop) - 1);
    let half = 1u128 << (drop - 1);
    if rest > half || (rest == half && kept & 1 == 1) {
        kept += 1;
    }
    // The leading one of a normal mantissa adds itself to the exponent, and so does a carry out of rounding.
    let exponent = (power + 1022).max(0) as u64;
    f64::from_bits((exponent << 52) + kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f80(negative: bool, exponent: u16, mantissa: u64) -> [u8; 16] {
        let mut bytes = [0xAA; 16];
        bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
        bytes[8..10].copy_from_slice(&(exponent | if negative { 0x8000 } else { 0 }).to_le_bytes());
        bytes
    }

    #[test]
    fn every_code_is_what_ml_dtypes_says() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../testdata/minifloat.json")).expect("golden table");
        let tables: [(&str, &[f32]); 8] = [
            ("float8_e4m3fn", &F8_E4M3FN),
            ("float8_e4m3fnuz", &F8_E4M3FNUZ),
            ("float8_e5m2", &F8_E5M2),
            ("float8_e5m2fnuz", &F8_E5M2FNUZ),
            ("float8_e8m0fnu", &F8_E8M0FNU),
            ("float6_e2m3fn", &F6_E2M3),
            ("float6_e3m2fn", &F6_E3M2),
            ("float4_e2m1fn", &F4_E2M1),
        ];
        for (name, table) in tables {
            let expected = golden[name].as_array().expect("a list");
            assert_eq!(expected.len(), table.len(), "{name}");
            for (code, (expected, found)) in expected.iter().zip(table).enumerate() {
                match expected.as_u64() {
                    Some(bits) => assert_eq!(bits, u64::from(found.to_bits()), "{name} {code:#x}"),
                    None => assert!(found.is_nan(), "{name} {code:#x}"),
                }
            }
        }
    }

    #[test]
    fn extended_values_round_to_the_nearest_double() {
        let one = 1u64 << 63;
        assert_eq!(f80_to_f64(&f80(false, 16383, one)), 1.0);
        assert_eq!(f80_to_f64(&f80(true, 16384, one | one >> 1)), -3.0);
        // Half of the last place: to even, so down here and up there.
        assert_eq!(f80_to_f64(&f80(false, 16383, one | 1 << 10)), 1.0);
        assert_eq!(
            f80_to_f64(&f80(false, 16383, one | 3 << 10)),
            1.0 + 2.0 * f64::EPSILON
        );
        assert_eq!(
            f80_to_f64(&f80(false, 16383, one | 1 << 10 | 1)),
            1.0 + f64::EPSILON
        );
        // A mantissa of ones carries into the exponent, at the top into infinity.
        assert_eq!(f80_to_f64(&f80(false, 16383, u64::MAX)), 2.0);
        assert_eq!(
            f80_to_f64(&f80(false, 16383 + 1023, u64::MAX)),
            f64::INFINITY
        );
        assert_eq!(
            f80_to_f64(&f80(false, 16383 - 1074, one)),
            f64::from_bits(1)
        );
        assert_eq!(f80_to_f64(&f80(false, 16383 - 1075, one)), 0.0);
        assert_eq!(
            f80_to_f64(&f80(false, 16383 - 1075, one | 1)),
            f64::from_bits(1)
        );
        assert_eq!(f80_to_f64(&f80(false, 1, one)), 0.0);
        assert_eq!(f80_to_f64(&f80(true, 0x7fff, one)), f64::NEG_INFINITY);
        assert!(f80_to_f64(&f80(false, 0x7fff, one | 1)).is_nan());
        assert!(f80_to_f64(&f80(false, 5, 1)).is_nan());
        assert!(f80_to_f64(&f80(true, 0, 0)).is_sign_negative());
    }
}
