//! The functions of one number that networks are made of.

use crate::functions::{gelu, gelu_quick, gelu_tanh, hard_sigmoid, relu, sigmoid, silu, softcap};

macro_rules! elementwise {
    ($($function:ident = $name:literal, $of:expr;)*) => {
        /// A function of one number that has a name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Elementwise {
            $($function,)*
        }

        impl Elementwise {
            /// Gates and activations first.
            pub(super) const ALL: &[Self] = &[$(Self::$function,)*];

            /// The words in sentences and details.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$function => $name,)*
                }
            }

            pub(super) fn function(self) -> fn(f64) -> f64 {
                match self {
                    $(Self::$function => $of,)*
                }
            }
        }
    };
}

elementwise! {
    Identity = "the identity", |x| x;
    Relu = "relu", relu;
    Silu = "silu", silu;
    GeluErf = "gelu (erf)", gelu;
    GeluTanh = "gelu (tanh)", gelu_tanh;
    GeluQuick = "gelu (quick, sigmoid of 1.702 x)", gelu_quick;
    Sigmoid = "sigmoid", sigmoid;
    Tanh = "tanh", f64::tanh;
    Softplus = "softplus", softplus;
    Mish = "mish", |x| x * softplus(x).tanh();
    Elu = "elu", |x| if x > 0.0 { x } else { x.exp_m1() };
    Selu = "selu", selu;
    HardSwish = "hard swish", |x| x * hard_sigmoid(x);
    HardSigmoid = "hard sigmoid", hard_sigmoid;
    ReluSquared = "relu squared", |x| relu(x) * relu(x);
    Relu6 = "relu6", |x| x.clamp(0.0, 6.0);
    // The rest are no activations, but are applied to whole tensors, or forgotten.
    Absolute = "the absolute value", f64::abs;
    Square = "the square", |x| x * x;
    SquareRoot = "the square root", f64::sqrt;
    Exp = "exp", f64::exp;
    ExpMinusOne = "exp - 1", f64::exp_m1;
    Ln = "ln", f64::ln;
    LnOnePlus = "ln(1 + x)", f64::ln_1p;
    Log2 = "log2", f64::log2;
    Reciprocal = "the reciprocal", |x| 1.0 / x;
    OneMinus = "1 - x", |x| 1.0 - x;
}

fn selu(x: f64) -> f64 {
    1.050_700_987_355_480_5
        * if x > 0.0 {
            x
        } else {
            1.673_263_242_354_377_2 * x.exp_m1()
        }
}

fn softplus(x: f64) -> f64 {
    if x > 30.0 { x } else { x.exp().ln_1p() }
}

/// The cap that makes `|y|` of `|x|`, for `|y| < |x|`: the softcap grows with its cap.
pub(super) fn cap(x: f64, y: f64) -> Option<f64> {
    let (x, y) = (x.abs(), y.abs());
    if !(y > 0.0 && y < x) {
        return None;
    }
    // From y, where the softcap is less than y, to where it is x but for the last digits.
    let (mut low, mut high) = (y, y);
    while softcap(x, high) < y {
        high *= 2.0;
        if high > 1e9 * x {
            return None;
        }
    }
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if softcap(x, middle) < y {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(0.5 * (low + high))
}

/// Names for caps and slopes that people write: whole numbers, and `extra` ones.
pub(super) fn snap(value: f64, error: f64, extra: &[f64]) -> f64 {
    let error = error.clamp(1e-6, 0.01);
    let near = |usual: f64| (value / usual - 1.0).abs() <= error;
    extra
        .iter()
        .copied()
        .chain([value.round()])
        .find(|usual| *usual != 0.0 && near(*usual))
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::LN_2;

    #[test]
    fn a_cap_is_found_from_one_value() {
        for (x, expected) in [(4.6, 3.0), (-80.0, 50.0), (0.9, 30.0)] {
            assert!((cap(x, softcap(x, expected)).unwrap() / expected - 1.0).abs() < 1e-6);
        }
        assert_eq!(cap(1.0, 1.0), None);
        assert_eq!(cap(1.0, 0.0), None);
    }

    #[test]
    fn the_library_names_each_function_once() {
        let names: std::collections::HashSet<&str> = Elementwise::ALL
            .iter()
            .map(|function| function.name())
            .collect();
        assert_eq!(names.len(), Elementwise::ALL.len());
        assert_eq!(snap(2.99999, 1e-4, &[]), 3.0);
        assert_eq!(snap(0.0100001, 1e-4, &[0.01]), 0.01);
        assert_eq!(snap(LN_2, 1e-4, &[0.01]), LN_2);
    }
}
