//! The functions of one number that networks are made of.

use crate::functions::{
    Function, gelu, gelu_quick, gelu_tanh, hard_sigmoid, relu, sigmoid, silu, softcap,
};

/// What gates and activations are.
pub(super) const ACTIVATIONS: [Function; 16] = [
    Function {
        name: "the identity",
        of: |x| x,
    },
    Function {
        name: "relu",
        of: relu,
    },
    Function {
        name: "silu",
        of: silu,
    },
    Function {
        name: "gelu (erf)",
        of: gelu,
    },
    Function {
        name: "gelu (tanh)",
        of: gelu_tanh,
    },
    Function {
        name: "gelu (quick, sigmoid of 1.702 x)",
        of: gelu_quick,
    },
    Function {
        name: "sigmoid",
        of: sigmoid,
    },
    Function {
        name: "tanh",
        of: f64::tanh,
    },
    Function {
        name: "softplus",
        of: softplus,
    },
    Function {
        name: "mish",
        of: |x| x * softplus(x).tanh(),
    },
    Function {
        name: "elu",
        of: |x| if x > 0.0 { x } else { x.exp_m1() },
    },
    Function {
        name: "selu",
        of: |x| {
            1.050_700_987_355_480_5
                * if x > 0.0 {
                    x
                } else {
                    1.673_263_242_354_377_2 * x.exp_m1()
                }
        },
    },
    Function {
        name: "hard swish",
        of: |x| x * hard_sigmoid(x),
    },
    Function {
        name: "hard sigmoid",
        of: hard_sigmoid,
    },
    Function {
        name: "relu squared",
        of: |x| relu(x) * relu(x),
    },
    Function {
        name: "relu6",
        of: |x| x.clamp(0.0, 6.0),
    },
];

/// What else is done to a tensor, or forgotten.
pub(super) const OTHERS: [Function; 10] = [
    Function {
        name: "the absolute value",
        of: f64::abs,
    },
    Function {
        name: "the square",
        of: |x| x * x,
    },
    Function {
        name: "the square root",
        of: f64::sqrt,
    },
    Function {
        name: "exp",
        of: f64::exp,
    },
    Function {
        name: "exp - 1",
        of: f64::exp_m1,
    },
    Function {
        name: "ln",
        of: f64::ln,
    },
    Function {
        name: "ln(1 + x)",
        of: f64::ln_1p,
    },
    Function {
        name: "log2",
        of: f64::log2,
    },
    Function {
        name: "the reciprocal",
        of: |x| 1.0 / x,
    },
    Function {
        name: "1 - x",
        of: |x| 1.0 - x,
    },
];

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
        let names: std::collections::HashSet<&str> = ACTIVATIONS
            .iter()
            .chain(&OTHERS)
            .map(|function| function.name)
            .collect();
        assert_eq!(names.len(), ACTIVATIONS.len() + OTHERS.len());
        assert_eq!(snap(2.99999, 1e-4, &[]), 3.0);
        assert_eq!(snap(0.0100001, 1e-4, &[0.01]), 0.01);
        assert_eq!(snap(LN_2, 1e-4, &[0.01]), LN_2);
    }
}
