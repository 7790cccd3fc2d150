//! Functions of one number that networks apply, by name.

/// A named function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub name: &'static str,
    pub of: fn(f64) -> f64,
}

/// Every function there is a name for, activations first.
pub const FUNCTIONS: &[Function] = &[
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
        name: "gelu (quick)",
        of: gelu_quick,
    },
    Function {
        name: "relu",
        of: relu,
    },
    Function {
        name: "relu squared",
        of: |x| relu(x) * relu(x),
    },
    Function {
        name: "leaky relu (0.01)",
        of: |x| if x > 0.0 { x } else { 0.01 * x },
    },
    Function {
        name: "elu",
        of: |x| if x > 0.0 { x } else { x.exp_m1() },
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
        of: |x| if x > 30.0 { x } else { x.exp().ln_1p() },
    },
    Function {
        name: "mish",
        of: |x| x * (if x > 30.0 { x } else { x.exp().ln_1p() }).tanh(),
    },
    Function {
        name: "relu6",
        of: |x| x.clamp(0.0, 6.0),
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
        name: "exp",
        of: f64::exp,
    },
    Function {
        name: "abs",
        of: f64::abs,
    },
    Function {
        name: "square",
        of: |x| x * x,
    },
    Function {
        name: "negation",
        of: |x| -x,
    },
];

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub fn hard_sigmoid(x: f64) -> f64 {
    (x / 6.0 + 0.5).clamp(0.0, 1.0)
}

pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

pub fn relu(x: f64) -> f64 {
    x.max(0.0)
}

/// `x Φ(x)`
pub fn gelu(x: f64) -> f64 {
    0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

pub fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
}

pub fn gelu_quick(x: f64) -> f64 {
    x * sigmoid(1.702 * x)
}

/// `cap * tanh(x / cap)`
pub fn softcap(x: f64, cap: f64) -> f64 {
    cap * (x / cap).tanh()
}

/// The cap from 0.5 to 1000 that misses least: a coarse search, then a fine one, then a round number where one is as near.
pub fn best_cap(miss: impl Fn(f64) -> f64) -> f64 {
    const COARSE: usize = 36;
    let at = |step: f64| 0.5 * 2000f64.powf(step / COARSE as f64);
    let best = (0..=COARSE)
        .min_by(|a, b| miss(at(*a as f64)).total_cmp(&miss(at(*b as f64))))
        .unwrap_or(0) as f64;
    let (mut low, mut high) = (best - 1.0, best + 1.0);
    for _ in 0..24 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if miss(at(a)) < miss(at(b)) {
            high = b;
        } else {
            low = a;
        }
    }
    let cap = at((low + high) / 2.0);
    if (cap / cap.round() - 1.0).abs() < 0.02 {
        cap.round()
    } else {
        cap
    }
}

/// The complementary error function to about 1e-15: a power series near 0, a continued fraction beyond.
fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    if x < 2.5 {
        // erf x = 2/sqrt(pi) e^(-x²) Σ 2^n x^(2n+1) / (2n+1)!!
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term > sum * 1e-17 && n < 200.0 {
            n += 1.0;
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
        }
        return 1.0 - std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum;
    }
    // erfc x = e^(-x²) / sqrt(pi) / (x + (1/2)/(x + 1/(x + (3/2)/(x + ...
    let mut fraction = x;
    for k in (1..=60).rev() {
        fraction = x + f64::from(k) / 2.0 / fraction;
    }
    (-x * x).exp() / std::f64::consts::PI.sqrt() / fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_is_what_torch_says() {
        // torch.nn.functional.gelu in float64.
        for (x, exact, tanh) in [
            (
                -3.0,
                -0.004_049_694_094_890_31,
                -0.003_637_392_081_772_994_3,
            ),
            (-0.5, -0.154_268_769_362_993_44, -0.154_285_990_174_856_06),
            (1.0, 0.841_344_746_068_543, 0.841_191_990_608_276_8),
            (4.0, 3.999_873_315_032_667_5, 3.999_929_754_051_807_5),
        ] {
            assert!((gelu(x) - exact).abs() < 1e-13, "gelu({x}) = {}", gelu(x));
            assert!(
                (gelu_tanh(x) - tanh).abs() < 1e-13,
                "gelu_tanh({x}) = {}",
                gelu_tanh(x)
            );
        }
    }
}
