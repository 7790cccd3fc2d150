//! Fitted numbers by their names: the square root of a dimension, a power of two, a clamp that people use.
//!
//! A name is given only when the number is as close as its own uncertainty allows, and the sentence says both: "6.9282, which is
//! sqrt(48)". Simple names win over elaborate ones that are as close.

use twinscope_tensor::formula::Constant;

/// A number with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub value: f64,
    pub name: String,
}

/// How far a fitted factor may be from the constant it is called by.
const CLOSE: f64 = 1e-3;

/// The name of a positive or negative factor, if it has one; `dims` are those in sight (of the tensor and its neighbours), `error` is the
/// fit's own relative uncertainty.
pub fn factor(value: f64, dims: &[usize], error: f64) -> Option<Named> {
    find(value, dims, error, |constant| constant)
}

/// The same for a constant that was itself rounded to bf16 before it was used: sqrt(48) = 6.9282 is 6.9375 there.
pub fn factor_in_bf16(value: f64, dims: &[usize], error: f64) -> Option<Named> {
    let rounded = |constant: f64| {
        let bits = (constant as f32).to_bits();
        f64::from(f32::from_bits(
            (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff_0000,
        ))
    };
    let named = find(value, dims, error, rounded)?;
    Some(Named {
        name: format!("{} in bf16", named.name),
        ..named
    })
}

fn find(value: f64, dims: &[usize], error: f64, held: impl Fn(f64) -> f64) -> Option<Named> {
    if !value.is_finite() || value == 0.0 {
        return None;
    }
    let close =
        |constant: f64| ((value / constant) - 1.0).abs() <= CLOSE.min(error.max(1e-6) * 4.0);
    let mut names: Vec<(f64, String)> = vec![(-1.0, "-1".to_owned())];
    for power in 1..=16 {
        names.push((2f64.powi(power), format!("2^{power}")));
        names.push((2f64.powi(-power), format!("2^-{power}")));
    }
    names.extend(
        [
            (1.5, "3/2"),
            (3.0, "3"),
            (1.0 / 3.0, "1/3"),
            (2f64.sqrt(), "sqrt(2)"),
            (0.5f64.sqrt(), "1/sqrt(2)"),
        ]
        .map(|(v, n)| (v, n.to_owned())),
    );
    names.extend(
        [
            (std::f64::consts::LOG2_E, "1/ln 2"),
            (std::f64::consts::LN_2, "ln 2"),
        ]
        .map(|(v, n)| (v, n.to_owned())),
    );
    names.extend(
        [
            (448.0, "448"),
            (1.0 / 448.0, "1/448"),
            (127.0, "127"),
            (1.0 / 127.0, "1/127"),
            (255.0, "255"),
            (1.0 / 255.0, "1/255"),
        ]
        .map(|(v, n)| (v, n.to_owned())),
    );
    let mut seen: Vec<usize> = dims.iter().copied().filter(|dim| *dim > 2).collect();
    seen.sort_unstable();
    seen.dedup();
    for dim in seen {
        let d = dim as f64;
        names.push((d.sqrt(), format!("sqrt({dim})")));
        names.push((1.0 / d.sqrt(), format!("1/sqrt({dim})")));
        names.push((d, dim.to_string()));
        names.push((1.0 / d, format!("1/{dim}")));
    }
    for percent in [5, 10, 15, 20, 25, 30, 40, 50] {
        let keep = 1.0 - f64::from(percent) / 100.0;
        names.push((1.0 / keep, format!("1/(1-{})", f64::from(percent) / 100.0)));
    }
    names
        .into_iter()
        .find(|(constant, _)| close(held(*constant)))
        .map(|(value, name)| Named { value, name })
}

/// A factor with its name, if it has one.
pub(crate) fn named(value: f64, dims: &[usize], error: f64) -> Constant {
    Constant {
        value,
        name: factor(value, dims, error).map(|named| named.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_that_was_rounded_first_keeps_its_name() {
        assert_eq!(factor(6.9375, &[48], 1e-4), None);
        assert_eq!(
            factor_in_bf16(6.9377, &[48], 1e-4)
                .map(|named| named.name)
                .as_deref(),
            Some("sqrt(48) in bf16")
        );
        assert_eq!(
            factor(48f64.sqrt(), &[48], 1e-4)
                .map(|named| named.name)
                .as_deref(),
            Some("sqrt(48)")
        );
    }
}
