//! The text of a formula, and of the numbers in it.

use twinscope_tensor::formula::{Constant, Formula, Function, Mask, Norm, Pairing, ScoreBias};

/// `silu(0_gate) * 0_up`
pub fn text(formula: &Formula) -> String {
    match formula {
        Formula::Tensor(name) => name.clone(),
        Formula::Slice { of, from, to } => format!("{of}[.., {from}:{to}]"),
        Formula::Repeated(of) => format!("{} (repeated)", text(of)),
        Formula::Concat(parts) => format!("{}, one after another", joined(parts, ", ")),
        Formula::Sum(terms) => joined(terms, " + "),
        Formula::Blend(terms) => blend(terms),
        Formula::Product(factors) => joined(factors, " * "),
        Formula::OnePlus(of) => format!("(1 + {})", operand(of)),
        Formula::Function { function, of } => match **of {
            Formula::Tensor(_) => format!("{} of {}", self::function(function), text(of)),
            _ => operand(formula),
        },
        Formula::Norm { kind, of, epsilon } => {
            format!(
                "{} of {} (epsilon {})",
                norm(*kind),
                text(of),
                short(*epsilon)
            )
        }
        Formula::Rope { of, pairing } => {
            format!("rope of {} ({})", text(of), self::pairing(*pairing))
        }
        Formula::Softmax(of) => format!("softmax({})", text(of)),
        Formula::Scores {
            query,
            key,
            scale,
            cap,
            bias,
        } => {
            let (scale, bias) = match bias {
                None => (constant(scale), String::new()),
                Some(bias) => (short(scale.value), format!(" + {}", score_bias(bias))),
            };
            let cap = cap.map_or(String::new(), |cap| format!(", {}", capped(Some(cap))));
            format!("{} x {} of {scale}{cap}{bias}", text(query), text(key))
        }
        Formula::Mixture {
            probabilities,
            values,
        } => format!("{} of {}", text(probabilities), text(values)),
        Formula::Attention {
            query,
            key,
            value,
            mask,
            cap,
        } => format!(
            "attention of {}, {}, {} with {}{}",
            text(query),
            text(key),
            text(value),
            self::mask(*mask),
            cap.map_or(String::new(), |cap| format!(
                " and scores {}",
                capped(Some(cap))
            ))
        ),
        Formula::Linear {
            input,
            weight,
            bias,
        } => {
            let bias = if *bias { " + bias" } else { "" };
            format!("{} x {}{bias}", linear_input(input), text(weight))
        }
        Formula::Lookup { ids } => format!("a table at {}", text(ids)),
    }
}

/// A formula inside another: a function is written as a call.
fn operand(formula: &Formula) -> String {
    match formula {
        Formula::Function { function, of } => {
            format!("{}({})", self::function(function), operand(of))
        }
        other => text(other),
    }
}

fn joined(parts: &[Formula], by: &str) -> String {
    parts.iter().map(operand).collect::<Vec<_>>().join(by)
}

/// What is multiplied with a weight.
pub fn linear_input(input: &Formula) -> String {
    match input {
        Formula::Product(_) => format!("({})", text(input)),
        other => text(other),
    }
}

/// The terms that are added first, then those that are subtracted.
fn blend(terms: &[(f64, Formula)]) -> String {
    let one = |(factor, of): &&(f64, Formula)| match factor.abs() {
        1.0 => operand(of),
        factor => format!("{} {}", short(factor), operand(of)),
    };
    let (plus, minus): (Vec<_>, Vec<_>) = terms.iter().partition(|(factor, _)| *factor > 0.0);
    let added = plus.iter().map(one).collect::<Vec<_>>().join(" + ");
    minus.iter().fold(added, |sum, term| {
        format!("{sum} - {}", one(term)).trim_start().to_owned()
    })
}

pub fn function(function: &Function) -> String {
    match function {
        Function::Named(name) => (*name).to_owned(),
        Function::Softcap(cap) => format!("softcap {}", short(*cap)),
        Function::Factor(factor) => short(*factor),
        Function::Capped(of, cap) => format!("{} with softcap {}", self::function(of), short(*cap)),
        Function::Uncapped => "no softcap".to_owned(),
    }
}

pub fn norm(kind: Norm) -> &'static str {
    match kind {
        Norm::Rms => "RMSNorm",
        Norm::Layer => "LayerNorm",
    }
}

pub fn pairing(pairing: Pairing) -> &'static str {
    match pairing {
        Pairing::Halves => "halves",
        Pairing::Neighbours => "neighbours",
    }
}

pub fn mask(mask: Mask) -> String {
    match mask {
        Mask::Full => "no mask".to_owned(),
        Mask::Causal => "a causal mask".to_owned(),
        Mask::Window(window) => format!("a causal window of {window}"),
    }
}

pub fn capped(cap: Option<f64>) -> String {
    cap.map_or("not capped".to_owned(), |cap| {
        format!("capped at {}", short(cap))
    })
}

pub fn score_bias(bias: &ScoreBias) -> String {
    match bias {
        ScoreBias::Slopes => "a slope per head along the keys".to_owned(),
        ScoreBias::Tensor(name) => format!("`{name}`"),
    }
}

pub fn constant(constant: &Constant) -> String {
    said(constant.value, constant.name.as_deref())
}

/// `6.9282, which is sqrt(48)`, or the number alone.
pub fn said(value: f64, name: Option<&str>) -> String {
    match name {
        Some(name) if name.parse::<f64>().is_ok() => name.to_owned(),
        Some(name) => format!("{}, which is {name}", short(value)),
        // Five digits would hide what is left.
        None if value != 1.0 && (value - 1.0).abs() < 1e-4 => {
            format!(
                "1 {} {}",
                if value > 1.0 { '+' } else { '-' },
                short((value - 1.0).abs())
            )
        }
        None => short(value),
    }
}

/// Five significant digits, as few as say it.
pub fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..6).contains(&magnitude) {
        let text = format!("{value:.4e}");
        return match text.split_once('e') {
            Some((digits, exponent)) if digits.contains('.') => {
                format!(
                    "{}e{exponent}",
                    digits.trim_end_matches('0').trim_end_matches('.')
                )
            }
            _ => text,
        };
    }
    let decimals = usize::try_from((4 - magnitude).max(0)).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_a_call_inside_another_formula() {
        let silu = |of: &str| Formula::Function {
            function: Function::Named("silu"),
            of: Formula::boxed(of),
        };
        assert_eq!(text(&silu("x")), "silu of x");
        let gated = Formula::Product(vec![silu("gate"), Formula::tensor("up")]);
        assert_eq!(text(&gated), "silu(gate) * up");
        let sum = Formula::Sum(vec![Formula::tensor("x"), Formula::tensor("y")]);
        let relu = Formula::Function {
            function: Function::Named("relu"),
            of: Box::new(sum),
        };
        assert_eq!(text(&relu), "relu(x + y)");
    }

    #[test]
    fn what_is_subtracted_comes_last() {
        let terms = |factors: [f64; 2]| {
            let [x, y] = factors;
            Formula::Blend(vec![(x, Formula::tensor("x")), (y, Formula::tensor("y"))])
        };
        assert_eq!(text(&terms([-0.5, 1.0])), "y - 0.5 x");
        assert_eq!(text(&terms([0.9, 0.1])), "0.9 x + 0.1 y");
        assert_eq!(text(&terms([-1.0, -2.0])), "- x - 2 y");
    }

    #[test]
    fn a_formula_adds_where_its_text_has_a_plus() {
        let x = || Formula::boxed("x");
        let linear = |bias| Formula::Linear {
            input: x(),
            weight: Formula::boxed("w"),
            bias,
        };
        let scores = |bias| Formula::Scores {
            query: x(),
            key: x(),
            scale: Constant {
                value: 0.125,
                name: None,
            },
            cap: Some(30.0),
            bias,
        };
        let blend = |factor| Formula::Blend(vec![(2.0, *x()), (factor, *x())]);
        let sum = || Formula::Sum(vec![*x(), Formula::Repeated(x())]);
        let scaled = Formula::Product(vec![*x(), Formula::OnePlus(x())]);
        let relu = Formula::Function {
            function: Function::Named("relu"),
            of: Box::new(sum()),
        };
        for formula in [
            *x(),
            linear(true),
            linear(false),
            Formula::Softmax(Box::new(scores(None))),
            Formula::Softmax(Box::new(scores(Some(ScoreBias::Slopes)))),
            blend(0.5),
            blend(-0.5),
            sum(),
            relu,
            Formula::Sum(vec![scaled, *x()]),
            Formula::Product(vec![*x(), *x()]),
        ] {
            assert_eq!(
                formula.adds(),
                text(&formula).contains(" + "),
                "{formula:?}"
            );
        }
    }
}
