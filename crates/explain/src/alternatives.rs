//! Turns what a candidate computed instead of the reference's formula into a cause: its kind, its sentence and its details.

use twinscope_ops::{
    Change, Modulation, NormWeight, Rotation, Run, Scaled, Unit, Way, WeightChange,
};
use twinscope_report::{
    CauseKind, Details, facts,
    formula::{
        capped, constant, function, linear_input, mask, norm, pairing, score_bias, short, text,
    },
};
use twinscope_tensor::{
    Side,
    formula::{Formula, Norm, Pairing},
};

/// A cause without its score.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) kind: CauseKind,
    pub(super) text: String,
    pub(super) details: Details,
}

impl Described {
    pub(super) fn new(kind: CauseKind, text: String, facts: impl Into<Details>) -> Self {
        Self {
            kind,
            text,
            details: facts.into(),
        }
    }
}

/// `formula` is the reference's, which `change` alters.
pub(super) fn describe(run: &dyn Run, formula: &Formula, change: &Change) -> Described {
    let name = |at: &usize| run.name(*at).to_owned();
    let both = |[q, k]: &[usize; 2]| [name(q), name(k)];
    match change {
        Change::TermFactor { term, factor } => {
            let (kind, what) = added(*factor);
            let term = name(term);
            Described::new(
                kind,
                format!(
                    "the candidate's `{term}` is {what}, where the reference is {}",
                    text(formula)
                ),
                facts::Term::Added {
                    term: Some(term),
                    side: Side::Candidate,
                    factor: factor - 1.0,
                },
            )
        }
        Change::Function { input, instead, of } => {
            let (candidate, reference, input) = (function(instead), function(of), name(input));
            Described::new(
                CauseKind::Function,
                format!("{candidate} of {input} where the reference has {reference}"),
                facts::Function::Op {
                    candidate,
                    reference,
                    input,
                },
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
            Described::new(
                CauseKind::Offset,
                format!("{} x {weight} with {what}", linear_input(input)),
                facts::Offset::Bias {
                    candidate: what.to_owned(),
                    weight,
                },
            )
        }
        Change::Weight {
            input,
            weight,
            bias,
            instead,
        } => {
            let changed = of_weight(run, *weight, instead);
            let with = if *bias { " + bias" } else { "" };
            Described {
                text: format!(
                    "{} x {}{with}: {}",
                    linear_input(input),
                    name(weight),
                    changed.text
                ),
                ..changed
            }
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
            Described::new(
                CauseKind::SoftmaxScale,
                text,
                facts::SoftmaxScale::Op {
                    candidate: scale.value,
                    reference: of.value,
                    ratio: scale.value / of.value,
                },
            )
        }
        Change::Softcap { inputs, cap, of } => {
            let [q, k] = both(inputs);
            Described::new(
                CauseKind::Function,
                format!(
                    "the scores of {q} and {k} are {} where the reference's are {}",
                    capped(*cap),
                    capped(*of)
                ),
                facts::Function::Scores {
                    candidate: "softcap".to_owned(),
                    parameter: *cap,
                    reference: *of,
                    inputs: [q, k],
                },
            )
        }
        Change::ScoreBias {
            inputs,
            bias,
            term,
            factor,
        } => {
            let ([q, k], (kind, what)) = (both(inputs), added(*factor));
            Described::new(
                kind,
                format!(
                    "{} is {what} to the scores of {q} and {k}, where the reference adds it",
                    score_bias(bias)
                ),
                facts::Term::Added {
                    term: term.as_ref().map(name),
                    side: Side::Candidate,
                    factor: factor - 1.0,
                },
            )
        }
        Change::Mask {
            query,
            mask: instead,
            of,
        } => {
            let (candidate, reference) = (mask(*instead), mask(*of));
            Described::new(
                CauseKind::Masked,
                format!(
                    "attention of {} with {candidate} where the reference has {reference}",
                    name(query)
                ),
                facts::Masked::Masks {
                    candidate,
                    reference,
                },
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
        } => modulated(&name(input), &text(scale), &text(shift), *instead),
        Change::Gated {
            inputs,
            gate,
            instead,
        } => gated(&both(inputs), &text(gate), *instead),
    }
}

/// The kind of cause, and the words, for a term that is added with another factor.
fn added(factor: f64) -> (CauseKind, &'static str) {
    match factor {
        0.0 => (CauseKind::MissingTerm, "not added"),
        2.0 => (CauseKind::ExtraTerm, "added twice"),
        -1.0 => (CauseKind::MissingTerm, "subtracted"),
        _ => (CauseKind::MissingTerm, "added with half its size"),
    }
}

fn swapped(text: String, inputs: [String; 2]) -> Described {
    Described::new(
        CauseKind::Swapped,
        text,
        facts::Swapped::Inputs {
            inputs,
            side: Side::Candidate,
        },
    )
}

fn of_norm(run: &dyn Run, change: &Change) -> Described {
    let name = |at: &usize| run.name(*at).to_owned();
    match change {
        Change::Epsilon {
            input,
            norm: kind,
            epsilon,
            of,
            outside,
        } => Described::new(
            CauseKind::RowScale,
            format!(
                "{} of {} with epsilon {}{} where the reference has {}{}",
                norm(*kind),
                name(input),
                short(*epsilon),
                if *outside { " beside the root" } else { "" },
                short(*of),
                if *outside { " under it" } else { "" },
            ),
            facts::RowScale::Epsilon {
                parameter: facts::EpsilonParameter::Epsilon,
                candidate: *epsilon,
                reference: *of,
                outside_the_root: *outside,
                input: name(input),
            },
        ),
        Change::UnbiasedNorm {
            input,
            norm: kind,
            channels,
        } => Described::new(
            CauseKind::Scale,
            format!(
                "{} of {} divides the squares by n - 1 where the reference divides by n = {channels}",
                norm(*kind),
                name(input)
            ),
            facts::Scale::Divisor {
                parameter: facts::DivisorParameter::Divisor,
                candidate: channels - 1,
                reference: *channels,
                input: name(input),
            },
        ),
        Change::OtherNorm { input, instead } => {
            let (of, candidate) = match instead {
                Norm::Rms => (Norm::Layer, facts::NormKind::RmsNorm),
                Norm::Layer => (Norm::Rms, facts::NormKind::LayerNorm),
            };
            let input = name(input);
            Described::new(
                CauseKind::RowAffine,
                format!(
                    "{} of {input} where the reference has {}",
                    norm(*instead),
                    norm(of)
                ),
                facts::RowAffine::Norm { candidate, input },
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
            let input = name(input);
            Described::new(
                CauseKind::ChannelScale,
                format!(
                    "{} of {input} with {what} where the reference has w",
                    norm(*kind)
                ),
                facts::ChannelScale::Norm {
                    candidate: what.to_owned(),
                    input,
                    axis: *axis,
                },
            )
        }
        Change::NormWeightOf {
            input,
            norm: kind,
            tensor,
        } => {
            let (input, tensor) = (name(input), name(tensor));
            Described::new(
                CauseKind::WrongTensor,
                format!("{} of {input} with the weights of `{tensor}`", norm(*kind)),
                facts::WrongTensor::Norm {
                    tensor,
                    what: "weights".to_owned(),
                    input,
                    side: Side::Candidate,
                },
            )
        }
        _ => unreachable!("not a change of a norm"),
    }
}

/// The text continues the sentence about the product.
fn of_weight(run: &dyn Run, weight: usize, instead: &WeightChange) -> Described {
    let weight = run.name(weight).to_owned();
    let side = Side::Candidate;
    match instead {
        WeightChange::Transposed => Described::new(
            CauseKind::Transposed,
            "the weight is transposed".to_owned(),
            facts::Transposed::Weight {
                weight,
                axes: [1, 0],
            },
        ),
        WeightChange::Instead(other) => {
            let tensor = run.name(*other).to_owned();
            Described::new(
                CauseKind::WrongTensor,
                format!("the candidate takes `{tensor}` for the weight"),
                facts::WrongTensor::Weight {
                    tensor,
                    instead_of: weight,
                    side,
                },
            )
        }
        WeightChange::OnePart { rank, ranks } => Described::new(
            CauseKind::PartialSum,
            format!("only part {rank} of {ranks} of the sum is there (an all-reduce is missing)"),
            facts::PartialSum::Rank {
                ranks: *ranks,
                rank: *rank,
                side,
            },
        ),
        WeightChange::Coarse(way) => {
            let format = coarse(*way);
            let text = format!("with the weight {format}");
            match way {
                Way::Float { scaled: false } => Described::new(
                    CauseKind::Rounded,
                    text,
                    facts::Rounded::Weight { weight, format },
                ),
                Way::Float { scaled: true } | Way::Whole(..) => Described::new(
                    CauseKind::Quantized,
                    text,
                    facts::Quantized::Weight { weight, format },
                ),
            }
        }
        WeightChange::CoarseFactors(unit) => Described::new(
            CauseKind::Rounded,
            format!("what is multiplied is {} first", coarse_factors(*unit)),
            facts::Rounded::Factors {
                dtype: unit.dtype.to_owned(),
                what: "factors".to_owned(),
                weight,
                side,
            },
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

fn of_rope(input: String, of: Pairing, instead: Rotation) -> Described {
    let own = pairing(of);
    let (what, value) = match instead {
        Rotation::OtherPairing => {
            let pairs = match of.other() {
                Pairing::Halves => "halves, channel i with i + n/2",
                Pairing::Neighbours => "neighbours, channel 2i with 2i + 1",
            };
            let what = format!("turned in pairs of {pairs}, where the reference turns {own}");
            (what, facts::Turn::Pairing)
        }
        Rotation::Reversed => ("turned the other way".to_owned(), facts::Turn::Reversed),
        Rotation::None => (
            "not turned by its position (rope is missing)".to_owned(),
            facts::Turn::None,
        ),
        Rotation::Twice => ("turned twice".to_owned(), facts::Turn::Twice),
    };
    Described::new(
        CauseKind::Rotated,
        format!("{input} is {what}"),
        facts::Rotated::Turn {
            parameter: facts::RotatedParameter::Turn,
            pairing: match of {
                Pairing::Halves => facts::TurnPairing::Halves,
                Pairing::Neighbours => facts::TurnPairing::Neighbours,
            },
            value,
            input,
        },
    )
}

fn modulated(name: &str, s: &str, t: &str, instead: Modulation) -> Described {
    let side = Side::Candidate;
    match instead {
        Modulation::ScaleWithoutOne => {
            missing(format!("{name} is multiplied with {s}, not with 1 more"))
        }
        Modulation::Swapped => {
            let candidate = format!("{s} and {t} are swapped: scale and shift of {name}");
            Described::new(
                CauseKind::Swapped,
                candidate.clone(),
                facts::Swapped::Formula { candidate, side },
            )
        }
        Modulation::NoShift => {
            let candidate = format!("{t} is not added to {name} * (1 + {s})");
            Described::new(
                CauseKind::Offset,
                candidate.clone(),
                facts::Offset::Formula { candidate, side },
            )
        }
        _ => unscaled(format!("{name} is not multiplied with 1 + {s}")),
    }
}

fn gated([x, y]: &[String; 2], g: &str, instead: Modulation) -> Described {
    match instead {
        Modulation::NoGate => unscaled(format!("{y} is added without its gate {g}")),
        Modulation::NotAdded => missing(format!("{g} * {y} is not added to {x}")),
        Modulation::GatePlusOne => term(
            CauseKind::ExtraTerm,
            format!("{y} is added beside its gate {g}, which is 1 more"),
        ),
        _ => missing(format!("{x} is not added to {g} * {y}")),
    }
}

fn missing(candidate: String) -> Described {
    term(CauseKind::MissingTerm, candidate)
}

/// The candidate's formula, in words, is both the sentence and the detail.
fn term(kind: CauseKind, candidate: String) -> Described {
    Described::new(
        kind,
        candidate.clone(),
        facts::Term::Formula {
            candidate,
            side: Side::Candidate,
        },
    )
}

fn unscaled(candidate: String) -> Described {
    Described::new(
        CauseKind::ChannelScale,
        candidate.clone(),
        facts::ChannelScale::Formula {
            candidate,
            side: Side::Candidate,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use twinscope_ops::{Memo, Recorded, Tensor, Values};
    use twinscope_report::Facts;
    use twinscope_tensor::{
        DType,
        formula::{Constant, Function, Mask, ScoreBias},
    };

    /// A run of names alone: a description reads nothing else.
    struct Named(Vec<Tensor>);

    impl Run for Named {
        fn tensors(&self) -> &[Tensor] {
            &self.0
        }

        fn id(&self) -> u64 {
            0
        }

        fn load(&self, _: usize) -> Option<Values> {
            None
        }

        fn recorded(&self, _: usize) -> Option<Recorded> {
            None
        }

        fn runs(&self, _: usize, _: &[usize], _: usize) -> Option<Vec<f64>> {
            None
        }

        fn sketch(&self, _: usize) -> Option<Arc<[f64]>> {
            None
        }

        fn memo(&self) -> &Memo {
            unreachable!("a description computes nothing")
        }
    }

    fn of_norms() -> Vec<Change> {
        let norm = Norm::Rms;
        let weights = [NormWeight::One, NormWeight::PlusOne, NormWeight::MinusOne];
        let mut all = vec![
            Change::Epsilon {
                input: 0,
                norm,
                epsilon: 1e-5,
                of: 1e-6,
                outside: true,
            },
            Change::UnbiasedNorm {
                input: 0,
                norm,
                channels: 64,
            },
            Change::NormWeightOf {
                input: 0,
                norm,
                tensor: 1,
            },
        ];
        all.extend([Norm::Rms, Norm::Layer].map(|instead| Change::OtherNorm { input: 0, instead }));
        all.extend(weights.map(|instead| Change::NormWeight {
            input: 0,
            norm,
            instead,
            axis: 2,
        }));
        all
    }

    fn of_products() -> Vec<Change> {
        let input = Formula::boxed("x");
        let unit = Unit {
            dtype: "tf32",
            bits: 11,
            cut: true,
        };
        let weights = [
            WeightChange::Transposed,
            WeightChange::Instead(0),
            WeightChange::OnePart { rank: 1, ranks: 4 },
            WeightChange::Coarse(Way::Whole(8, None)),
            WeightChange::Coarse(Way::Whole(4, Some(32))),
            WeightChange::Coarse(Way::Float { scaled: true }),
            WeightChange::Coarse(Way::Float { scaled: false }),
            WeightChange::CoarseFactors(unit),
        ];
        let mut all: Vec<Change> = weights
            .into_iter()
            .map(|instead| Change::Weight {
                input: input.clone(),
                weight: 1,
                bias: true,
                instead,
            })
            .collect();
        all.extend([0.0, 2.0].map(|factor| Change::BiasFactor {
            input: input.clone(),
            weight: 1,
            factor,
        }));
        all
    }

    fn of_attention() -> Vec<Change> {
        let inputs = [0, 1];
        let turns = [
            Rotation::OtherPairing,
            Rotation::Reversed,
            Rotation::None,
            Rotation::Twice,
        ];
        let scaled = [
            Scaled::Products,
            Scaled::BiasedProducts,
            Scaled::Queries(0),
            Scaled::Logits(0),
        ];
        let constant = |value: f64| Constant { value, name: None };
        let mut all = vec![
            Change::Mask {
                query: 0,
                mask: Mask::Window(8),
                of: Mask::Causal,
            },
            Change::QueriesAndKeysSwapped { inputs },
            Change::ValuesForKeys { inputs },
            Change::OtherPartForValues { inputs },
        ];
        for pairing in [Pairing::Halves, Pairing::Neighbours] {
            all.extend(turns.map(|instead| Change::Rope {
                input: 0,
                pairing,
                instead,
            }));
        }
        all.extend(scaled.map(|scaled| Change::SoftmaxScale {
            scale: constant(0.25),
            of: constant(0.125),
            scaled,
        }));
        for (cap, of) in [(Some(50.0), None), (None, Some(50.0)), (None, None)] {
            all.push(Change::Softcap { inputs, cap, of });
        }
        for term in [Some(1), None] {
            all.push(Change::ScoreBias {
                inputs,
                bias: ScoreBias::Slopes,
                term,
                factor: 0.0,
            });
        }
        all
    }

    fn of_values() -> Vec<Change> {
        let modulated = [
            Modulation::ScaleWithoutOne,
            Modulation::Swapped,
            Modulation::NoShift,
            Modulation::NoScale,
        ];
        let gated = [
            Modulation::NoGate,
            Modulation::NotAdded,
            Modulation::GatePlusOne,
            Modulation::NoResidual,
        ];
        let mut all = vec![Change::Function {
            input: 0,
            instead: Function::Named("relu"),
            of: Function::Named("silu"),
        }];
        let factors = [0.0, 2.0, -1.0, 0.5];
        all.extend(factors.map(|factor| Change::TermFactor { term: 1, factor }));
        all.extend(modulated.map(|instead| Change::Modulated {
            input: 0,
            scale: Formula::tensor("s"),
            shift: Formula::tensor("t"),
            instead,
        }));
        all.extend(gated.map(|instead| Change::Gated {
            inputs: [0, 1],
            gate: Formula::tensor("g"),
            instead,
        }));
        all
    }

    /// A reader tells variants apart by their keys. A variant whose keys an earlier one also takes would come back as that one.
    #[test]
    fn the_details_of_every_change_are_read_back_as_they_were_written() {
        let tensor = |name: &str| Tensor {
            name: name.to_owned(),
            dims: vec![4],
            dtype: DType::F32,
            parameter: false,
            inputs: None,
        };
        let run = Named(vec![tensor("x"), tensor("y")]);
        let formula = Formula::Sum(vec![Formula::tensor("x"), Formula::tensor("y")]);
        for change in [of_norms(), of_products(), of_attention(), of_values()].concat() {
            let Described { kind, details, .. } = describe(&run, &formula, &change);
            assert!(!matches!(kind, CauseKind::Other(_)), "{change:?}");
            assert!(!matches!(details.facts, Facts::Other(_)), "{change:?}");
            assert_eq!(Details::of(&kind, details.json()), details, "{change:?}");
        }
    }
}
