//! What a candidate computed instead of the reference's formula, as a cause: its kind, its sentence and its details.

use serde_json::{Value, json};
use twinscope_ops::{
    Change, Modulation, NormWeight, Rotation, Run, Scaled, Unit, Way, WeightChange,
};
use twinscope_report::formula::{
    capped, constant, function, linear_input, mask, norm, pairing, score_bias, short, text,
};
use twinscope_tensor::formula::{Formula, Norm, Pairing};

/// A cause, but for its numbers.
pub(super) struct Described {
    pub(super) kind: &'static str,
    pub(super) text: String,
    pub(super) details: Value,
}

/// `formula` is the one of the reference that was changed.
pub(super) fn describe(run: &dyn Run, formula: &Formula, change: &Change) -> Described {
    let name = |at: &usize| run.name(*at);
    let both = |[q, k]: &[usize; 2]| [name(q), name(k)];
    let (kind, text, details) = match change {
        Change::TermFactor { term, factor } => {
            let (kind, what) = added(*factor);
            let term = name(term);
            (
                kind,
                format!(
                    "the candidate's `{term}` is {what}, where the reference is {}",
                    text(formula)
                ),
                json!({"term": term, "side": "candidate", "factor": factor - 1.0}),
            )
        }
        Change::Function { input, instead, of } => {
            let (instead, of, input) = (function(instead), function(of), name(input));
            (
                "function",
                format!("{instead} of {input} where the reference has {of}"),
                json!({"candidate": instead, "reference": of, "input": input}),
            )
        }
        Change::Epsilon { .. }
        | Change::UnbiasedNorm { .. }
        | Change::OtherNorm { .. }
        | Change::NormWeight { .. }
        | Change::NormWeightOf { .. } => of_norm(run, change),
        Change::BiasFactor {
            input,
            weight,
            factor,
        } => {
            let what = if *factor == 0.0 {
                "no bias"
            } else {
                "the bias twice"
            };
            let weight = name(weight);
            (
                "offset",
                format!("{} x {weight} with {what}", linear_input(input)),
                json!({"candidate": what, "weight": weight}),
            )
        }
        Change::Weight {
            input,
            weight,
            bias,
            instead,
        } => {
            let (kind, what, details) = of_weight(run, *weight, instead);
            let with = if *bias { " + bias" } else { "" };
            let text = format!("{} x {}{with}: {what}", linear_input(input), name(weight));
            (kind, text, details)
        }
        Change::Rope {
            input,
            pairing,
            instead,
        } => of_rope(name(input), *pairing, *instead),
        Change::SoftmaxScale { scale, of, scaled } => {
            let instead = constant(scale);
            let text = match scaled {
                Scaled::Products => format!(
                    "softmax scale {instead} where the reference has {}",
                    constant(of)
                ),
                Scaled::BiasedProducts => format!(
                    "softmax scale {instead} where the reference has {}",
                    short(of.value)
                ),
                Scaled::Queries(query) => format!(
                    "softmax scale {instead} of {} where the reference has {}",
                    name(query),
                    short(of.value)
                ),
                Scaled::Logits(input) => format!(
                    "softmax of {instead} x {0} where the reference has the softmax of {0}",
                    name(input)
                ),
            };
            let (scale, of) = (scale.value, of.value);
            (
                "softmax_scale",
                text,
                json!({"candidate": scale, "reference": of, "ratio": scale / of}),
            )
        }
        Change::Softcap { inputs, cap, of } => {
            let [q, k] = both(inputs);
            (
                "function",
                format!(
                    "the scores of {q} and {k} are {} where the reference's are {}",
                    capped(*cap),
                    capped(*of)
                ),
                json!({"candidate": "softcap", "parameter": cap, "reference": of, "inputs": [q, k]}),
            )
        }
        Change::ScoreBias {
            inputs,
            bias,
            term,
            factor,
        } => {
            let ([q, k], (kind, what)) = (both(inputs), added(*factor));
            (
                kind,
                format!(
                    "{} is {what} to the scores of {q} and {k}, where the reference adds it",
                    score_bias(bias)
                ),
                json!({"term": term.as_ref().map(name), "side": "candidate", "factor": factor - 1.0}),
            )
        }
        Change::Mask {
            query,
            mask: instead,
            of,
        } => {
            let (instead, of) = (mask(*instead), mask(*of));
            (
                "masked",
                format!(
                    "attention of {} with {instead} where the reference has {of}",
                    name(query)
                ),
                json!({"candidate": instead, "reference": of}),
            )
        }
        Change::QueriesAndKeysSwapped { inputs } => {
            let [q, k] = both(inputs);
            swapped(
                format!("the queries and keys of {q} and {k} are swapped"),
                [q, k],
            )
        }
        Change::ValuesForKeys { inputs } => {
            let [q, k] = both(inputs);
            swapped(
                format!("the scores of {q} take the values for the keys"),
                [q, k],
            )
        }
        Change::OtherPartForValues { inputs } => {
            let [p, v] = both(inputs);
            swapped(
                format!("{p} is taken of another part of {v} than the values"),
                [p, v],
            )
        }
        Change::Modulated {
            input,
            scale,
            shift,
            instead,
        } => modulated(name(input), &text(scale), &text(shift), *instead),
        Change::Gated {
            inputs,
            gate,
            instead,
        } => gated(both(inputs), &text(gate), *instead),
    };
    Described {
        kind,
        text,
        details,
    }
}

type Parts = (&'static str, String, Value);

/// What a term with a factor is called.
fn added(factor: f64) -> (&'static str, &'static str) {
    match factor {
        0.0 => ("missing_term", "not added"),
        2.0 => ("extra_term", "added twice"),
        -1.0 => ("missing_term", "subtracted"),
        _ => ("missing_term", "added with half its size"),
    }
}

fn swapped(text: String, inputs: [&str; 2]) -> Parts {
    let details = json!({"inputs": inputs, "side": "candidate"});
    ("swapped", text, details)
}

fn of_norm(run: &dyn Run, change: &Change) -> Parts {
    let name = |at: &usize| run.name(*at);
    match change {
        Change::Epsilon {
            input,
            norm: kind,
            epsilon,
            of,
            outside,
        } => (
            "row_scale",
            format!(
                "{} of {} with epsilon {}{} where the reference has {}{}",
                norm(*kind),
                name(input),
                short(*epsilon),
                if *outside { " beside the root" } else { "" },
                short(*of),
                if *outside { " under it" } else { "" },
            ),
            json!({
                "parameter": "epsilon", "candidate": epsilon, "reference": of, "outside_the_root": outside, "input": name(input),
            }),
        ),
        Change::UnbiasedNorm {
            input,
            norm: kind,
            channels,
        } => (
            "scale",
            format!(
                "{} of {} divides the squares by n - 1 where the reference divides by n = {channels}",
                norm(*kind),
                name(input)
            ),
            json!({"parameter": "divisor", "candidate": channels - 1, "reference": channels, "input": name(input)}),
        ),
        Change::OtherNorm { input, instead } => {
            let (of, said) = match instead {
                Norm::Rms => (Norm::Layer, "rms_norm"),
                Norm::Layer => (Norm::Rms, "layer_norm"),
            };
            (
                "row_affine",
                format!(
                    "{} of {} where the reference has {}",
                    norm(*instead),
                    name(input),
                    norm(of)
                ),
                json!({"candidate": said, "input": name(input)}),
            )
        }
        Change::NormWeight {
            input,
            norm: kind,
            instead,
            axis,
        } => {
            let what = match instead {
                NormWeight::One => "no weight",
                NormWeight::PlusOne => "weight 1 + w",
                NormWeight::MinusOne => "weight w - 1",
            };
            (
                "channel_scale",
                format!(
                    "{} of {} with {what} where the reference has w",
                    norm(*kind),
                    name(input)
                ),
                json!({"candidate": what, "input": name(input), "axis": axis}),
            )
        }
        Change::NormWeightOf {
            input,
            norm: kind,
            tensor,
        } => (
            "wrong_tensor",
            format!(
                "{} of {} with the weights of `{}`",
                norm(*kind),
                name(input),
                name(tensor)
            ),
            json!({"tensor": name(tensor), "what": "weights", "input": name(input), "side": "candidate"}),
        ),
        _ => unreachable!("not a change of a norm"),
    }
}

fn of_weight(run: &dyn Run, weight: usize, instead: &WeightChange) -> Parts {
    let weight = run.name(weight);
    match instead {
        WeightChange::Transposed => (
            "transposed",
            "the weight is transposed".to_owned(),
            json!({"weight": weight, "axes": [1, 0]}),
        ),
        WeightChange::Instead(other) => {
            let other = run.name(*other);
            (
                "wrong_tensor",
                format!("the candidate takes `{other}` for the weight"),
                json!({"tensor": other, "instead_of": weight, "side": "candidate"}),
            )
        }
        WeightChange::OnePart { rank, ranks } => (
            "partial_sum",
            format!("only part {rank} of {ranks} of the sum is there (an all-reduce is missing)"),
            json!({"ranks": ranks, "rank": rank, "side": "candidate"}),
        ),
        WeightChange::Coarse(way) => {
            let kind = match way {
                Way::Float { scaled: false } => "rounded",
                _ => "quantized",
            };
            let format = coarse(*way);
            (
                kind,
                format!("with the weight {format}"),
                json!({"weight": weight, "format": format}),
            )
        }
        WeightChange::CoarseFactors(unit) => (
            "rounded",
            format!("what is multiplied is {} first", coarse_factors(*unit)),
            json!({"dtype": unit.dtype, "what": "factors", "weight": weight, "side": "candidate"}),
        ),
    }
}

fn coarse(way: Way) -> String {
    match way {
        Way::Whole(bits, None) => format!("quantised to {bits} bits, one scale for all"),
        Way::Whole(bits, Some(block)) => {
            format!("quantised to {bits} bits, one scale for every {block}")
        }
        Way::Float { scaled: true } => "in f8_e4m3fn with one scale for all".to_owned(),
        Way::Float { scaled: false } => "in f8_e4m3fn".to_owned(),
    }
}

fn coarse_factors(unit: Unit) -> String {
    let like = if unit.bits == 11 {
        "TF32, or f16"
    } else {
        "bf16"
    };
    format!(
        "{} to {} bits ({like})",
        if unit.cut { "cut" } else { "rounded" },
        unit.bits
    )
}

fn of_rope(name: &str, of: Pairing, instead: Rotation) -> Parts {
    let own = pairing(of);
    let (what, value) = match instead {
        Rotation::OtherPairing => {
            let pairs = match of.other() {
                Pairing::Halves => "halves, channel i with i + n/2",
                Pairing::Neighbours => "neighbours, channel 2i with 2i + 1",
            };
            let what = format!("turned in pairs of {pairs}, where the reference turns {own}");
            (what, "pairing")
        }
        Rotation::Reversed => ("turned the other way".to_owned(), "reversed"),
        Rotation::None => (
            "not turned by its position (rope is missing)".to_owned(),
            "none",
        ),
        Rotation::Twice => ("turned twice".to_owned(), "twice"),
    };
    (
        "rotated",
        format!("{name} is {what}"),
        json!({"pairing": own, "parameter": "turn", "value": value, "input": name}),
    )
}

fn modulated(name: &str, s: &str, t: &str, instead: Modulation) -> Parts {
    let (kind, text) = match instead {
        Modulation::ScaleWithoutOne => (
            "missing_term",
            format!("{name} is multiplied with {s}, not with 1 more"),
        ),
        Modulation::Swapped => (
            "swapped",
            format!("{s} and {t} are swapped: scale and shift of {name}"),
        ),
        Modulation::NoShift => ("offset", format!("{t} is not added to {name} * (1 + {s})")),
        _ => (
            "channel_scale",
            format!("{name} is not multiplied with 1 + {s}"),
        ),
    };
    with_text(kind, text)
}

fn gated([x, y]: [&str; 2], g: &str, instead: Modulation) -> Parts {
    let (kind, text) = match instead {
        Modulation::NoGate => (
            "channel_scale",
            format!("{y} is added without its gate {g}"),
        ),
        Modulation::NotAdded => ("missing_term", format!("{g} * {y} is not added to {x}")),
        Modulation::GatePlusOne => (
            "extra_term",
            format!("{y} is added beside its gate {g}, which is 1 more"),
        ),
        _ => ("missing_term", format!("{x} is not added to {g} * {y}")),
    };
    with_text(kind, text)
}

fn with_text(kind: &'static str, text: String) -> Parts {
    let details = json!({"candidate": text, "side": "candidate"});
    (kind, text, details)
}
