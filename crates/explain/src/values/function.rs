//! Another function: gelu for silu, a softcap forgotten, an absolute value too many.
//!
//! Where the op's input is recorded, each side is compared with every activation of its own input, alone and times another recorded tensor (a gate).
//! Without an input only a function of the whole reference can be seen, or of the whole candidate: one that is applied on one side and not on the
//! other. Several functions may be the same at the noise; then all are named, and when one of them does for both sides, it is not the function.

use super::{
    library::{Elementwise, cap, snap},
    sampling::sample,
};
use crate::{
    Case, Class, Examined, Explanation, Hypothesis, Loaded, array::median, case::Predicted,
    constants::short, functions::softcap, measures,
};
use std::sync::Arc;
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct OfOneNumber;

impl Hypothesis for OfOneNumber {
    fn name(&self) -> &'static str {
        "function"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let flats = sample(case, SAMPLE);
        if flats.len() < LEAST_VALUES {
            return Err("too few values to tell functions apart".into());
        }
        let judge = Judge { case, flats };
        if judge.is_factor() {
            return Err("one factor explains it".into());
        }
        match judge.of_input() {
            Seen::Other(explanation) => return Ok(vec![*explanation]),
            Seen::Same(name) => return Err(format!("both sides are {name} of their inputs").into()),
            Seen::Nothing => {}
        }
        // Through a few points go many functions.
        let varies = |values: &[f64]| judge.distinct(values) >= LEAST_DISTINCT;
        let of_reference = || {
            varies(case.reference)
                .then(|| judge.of_reference())
                .flatten()
        };
        let of_candidate = || {
            varies(case.candidate)
                .then(|| judge.of_candidate())
                .flatten()
        };
        match of_reference().or_else(of_candidate) {
            Some(explanation) => Ok(vec![explanation]),
            None => Err(
                "no function of the reference, of the candidate or of an input before it".into(),
            ),
        }
    }
}

const SAMPLE: usize = 1 << 10;
const LEAST_VALUES: usize = 12;
/// Different values that a function is seen by.
const LEAST_DISTINCT: usize = 4;
/// Inputs looked at, nearest first.
const INPUTS: usize = 5;

/// A function found: one of the library, or one with a number fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fitted {
    Known(Elementwise),
    Softcap(f64),
    LeakyRelu(f64),
}

impl Fitted {
    fn of(self, x: f64) -> f64 {
        match self {
            Self::Known(function) => function.function()(x),
            Self::Softcap(cap) => softcap(x, cap),
            Self::LeakyRelu(slope) => {
                if x > 0.0 {
                    x
                } else {
                    slope * x
                }
            }
        }
    }

    fn name(self) -> String {
        match self {
            Self::Known(function) => function.name().to_owned(),
            Self::Softcap(cap) => format!("a softcap of {}", short(cap)),
            Self::LeakyRelu(slope) => format!("leaky relu with slope {}", short(slope)),
        }
    }

    fn parameter(self) -> Option<f64> {
        match self {
            Self::Known(_) => None,
            Self::Softcap(number) | Self::LeakyRelu(number) => Some(number),
        }
    }

    fn is_identity(self) -> bool {
        self == Self::Known(Elementwise::Identity)
    }
}

/// All names of what fits: `gelu (erf) or gelu (tanh)`.
fn names(found: &[Fitted]) -> String {
    found
        .iter()
        .map(|one| one.name())
        .collect::<Vec<_>>()
        .join(" or ")
}

/// What the recorded inputs say.
enum Seen {
    Other(Box<Explanation>),
    /// The same function on both sides: the difference is of the inputs.
    Same(String),
    Nothing,
}

struct Judge<'a> {
    case: &'a Case<'a>,
    flats: Vec<usize>,
}

impl Judge<'_> {
    /// How much of `y` is left beside `f(x)`, relative to `y`.
    fn left(&self, y: &[f64], f: impl Fn(usize) -> f64) -> f64 {
        let (mut left, mut whole) = (0.0, 0.0);
        for &flat in &self.flats {
            left += (y[flat] - f(flat)).powi(2);
            whole += y[flat] * y[flat];
        }
        if left.is_nan() {
            f64::INFINITY
        } else if left == 0.0 {
            0.0
        } else {
            (left / whole).sqrt()
        }
    }

    /// How many different values there are, as far as they are looked at.
    fn distinct(&self, values: &[f64]) -> usize {
        let mut seen: Vec<u64> = self
            .flats
            .iter()
            .map(|flat| values[*flat].to_bits())
            .collect();
        seen.sort_unstable();
        seen.dedup();
        seen.len()
    }

    fn is_rounding(&self, left: f64) -> bool {
        left <= 2.0 * self.case.noise[0]
    }

    fn is_factor(&self) -> bool {
        let (mut rc, mut rr) = (0.0, 0.0);
        for &flat in &self.flats {
            rc += self.case.reference[flat] * self.case.candidate[flat];
            rr += self.case.reference[flat] * self.case.reference[flat];
        }
        self.is_rounding(self.left(self.case.candidate, |flat| {
            self.case.reference[flat] * rc / rr
        }))
    }

    /// Every function of `x`, times `y` where there is one, that gives `out`.
    fn found(&self, out: &[f64], x: &[f64], y: Option<&[f64]>, fitted: bool) -> Vec<Fitted> {
        let times = |flat: usize| y.map_or(1.0, |y| y[flat]);
        let mut tried: Vec<Fitted> = Elementwise::ALL
            .iter()
            .copied()
            .map(Fitted::Known)
            .collect();
        if fitted {
            tried.extend(self.softcap(out, x));
            tried.extend(self.leaky(out, x));
        }
        let mut found: Vec<(f64, Fitted)> = tried
            .into_iter()
            .map(|one| (self.left(out, |flat| one.of(x[flat]) * times(flat)), one))
            .collect();
        found.retain(|(left, _)| self.is_rounding(*left));
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Where no value is beyond six, relu6 is relu.
        found.dedup_by(|later, first| later.0 == first.0);
        // What is far closer than the rest is it; the rest only fits within the noise.
        let far = found
            .first()
            .map_or(0.0, |(least, _)| FAR * least.max(self.case.noise[0] / 64.0));
        found
            .into_iter()
            .filter(|(left, _)| *left <= far)
            .map(|(_, one)| one)
            .collect()
    }

    /// From the values that it bends most.
    fn softcap(&self, out: &[f64], x: &[f64]) -> Option<Fitted> {
        let mut large = self.flats.clone();
        large.sort_by(|a, b| x[*b].abs().total_cmp(&x[*a].abs()));
        let mut caps: Vec<f64> = large
            .iter()
            .take(15)
            .filter_map(|flat| cap(x[*flat], out[*flat]))
            .collect();
        if caps.len() < 8 {
            return None;
        }
        Some(Fitted::Softcap(snap(
            median(&mut caps),
            2.0 * self.case.noise[0],
            &[],
        )))
    }

    fn leaky(&self, out: &[f64], x: &[f64]) -> Option<Fitted> {
        let mut slopes: Vec<f64> = self
            .flats
            .iter()
            .filter(|flat| x[**flat] < 0.0)
            .map(|flat| out[*flat] / x[*flat])
            .collect();
        let slope = median(&mut slopes);
        let slope = snap(
            slope,
            2.0 * self.case.noise[0],
            &[0.01, 0.02, 0.05, 0.1, 0.2, 0.25],
        );
        (slope.is_finite() && slope != 0.0 && slope.abs() < 0.9 && slopes.len() >= 8)
            .then_some(Fitted::LeakyRelu(slope))
    }

    /// Tensors before this one with as many values, nearest first, the recorded inputs before all others; and the halves of those with twice as many, where
    /// a gate and what it is multiplied with come from one product.
    fn inputs(&self) -> Vec<(String, Arc<Loaded>)> {
        let entries = self.case.scene.entries();
        let count = self.case.reference.len();
        let elements = |at: usize| entries[at].dims.iter().product::<usize>();
        let usable = |at: &usize| {
            !entries[*at].parameter
                && !entries[*at].dims.is_empty()
                && (elements(*at) == count || elements(*at) == 2 * count)
        };
        let said = entries[self.case.pair].inputs.clone().unwrap_or_default();
        let mut order: Vec<usize> = said
            .iter()
            .copied()
            .filter(|at| *at < self.case.pair)
            .collect();
        order.extend((0..self.case.pair).rev().filter(|at| !said.contains(at)));
        let mut inputs = Vec::new();
        for at in order.into_iter().filter(usable).take(INPUTS) {
            let Some(loaded) = self.case.scene.load(at) else {
                continue;
            };
            let name = &entries[at].name;
            if loaded.reference.len() == count {
                inputs.push((name.clone(), loaded));
            } else if let Some([first, second]) =
                halves(&loaded).filter(|[half, _]| half.reference.len() == count)
            {
                inputs.push((format!("{name}, first half"), Arc::new(first)));
                inputs.push((format!("{name}, second half"), Arc::new(second)));
            }
        }
        inputs
    }

    fn of_input(&self) -> Seen {
        let inputs = self.inputs();
        for (at, (name, x)) in inputs.iter().enumerate() {
            let alone = std::iter::once(None);
            for gated in alone.chain((0..inputs.len()).filter(|other| *other != at).map(Some)) {
                let y = gated.map(|other| &inputs[other]);
                let seen = self.of_one_input(name, x, y.map(|(name, y)| (&name[..], &**y)));
                if !matches!(seen, Seen::Nothing) {
                    return seen;
                }
            }
        }
        Seen::Nothing
    }

    fn of_one_input(&self, name: &str, x: &Loaded, y: Option<(&str, &Loaded)>) -> Seen {
        let (reference_y, candidate_y) = (
            y.map(|(_, y)| &y.reference[..]),
            y.map(|(_, y)| &y.candidate[..]),
        );
        let mut reference = self.found(self.case.reference, &x.reference, reference_y, false);
        if reference.is_empty() {
            // What the candidate should be may have been computed from its own input.
            reference = self.found(self.case.reference, &x.candidate, candidate_y, false);
        }
        // A tensor recorded twice is no function, and a product of two is no gate.
        if reference.is_empty() || reference.iter().all(|one| one.is_identity()) {
            return Seen::Nothing;
        }
        let candidate = self.found(self.case.candidate, &x.candidate, candidate_y, true);
        if let Some(same) = candidate.iter().find(|one| reference.contains(one)) {
            return Seen::Same(same.name());
        }
        // Its input unchanged is another recorded tensor, which has its own kind.
        let Some(best) = candidate
            .first()
            .filter(|one| y.is_some() || !one.is_identity())
        else {
            return Seen::Nothing;
        };
        let times = |flat: usize| candidate_y.map_or(1.0, |y| y[flat]);
        let predicted = x
            .candidate
            .iter()
            .enumerate()
            .map(|(flat, x)| best.of(*x) * times(flat))
            .collect();
        let gate = y
            .map(|(name, _)| format!(", times `{name}`,"))
            .unwrap_or_default();
        Seen::Other(Box::new(Explanation {
            kind: CauseKind::Function,
            text: format!(
                "candidate is {} of `{name}`{gate} where the reference has {}",
                names(&candidate),
                names(&reference)
            ),
            details: facts::Function::OfInput {
                candidate: names(&candidate),
                reference: names(&reference),
                parameter: best.parameter(),
                input: name.to_owned(),
                times: y.map(|(name, _)| name.to_owned()),
            }
            .into(),
            class: Class::Mechanism,
            freedom: usize::from(best.parameter().is_some()),
            predicted: Predicted::Values(predicted),
        }))
    }

    /// A function too many.
    fn of_reference(&self) -> Option<Explanation> {
        let found = self.found(self.case.candidate, self.case.reference, None, true);
        let best = found.first().filter(|one| !one.is_identity())?;
        // Two shares of one whole are each 1 minus the other, whatever changed places: a swap is the simpler explanation.
        let is_complement = found == [Fitted::Known(Elementwise::OneMinus)];
        Some(Explanation {
            kind: CauseKind::Function,
            text: format!("candidate = {} of the reference", names(&found)),
            details: facts::Function::Alone {
                candidate: Some(names(&found)),
                reference: None,
                parameter: best.parameter(),
                input: None,
            }
            .into(),
            class: Class::Mechanism,
            freedom: usize::from(best.parameter().is_some() || is_complement),
            predicted: Predicted::Values(self.case.reference.iter().map(|r| best.of(*r)).collect()),
        })
    }

    /// A function that the candidate lacks. Not all can be undone, so it is the reference that is predicted.
    fn of_candidate(&self) -> Option<Explanation> {
        let case = self.case;
        let found = self.found(case.reference, case.candidate, None, true);
        let best = found.first().filter(|one| !one.is_identity())?;
        let predicted: Vec<f64> = case.candidate.iter().map(|c| best.of(*c)).collect();
        let left = measures(case.dims, &predicted, case.reference);
        let proven = left
            .iter()
            .zip(case.noise)
            .all(|(left, noise)| *left <= 2.0 * noise);
        let (mut rest, mut whole) = (0.0, 0.0);
        for ((p, r), c) in predicted.iter().zip(case.reference).zip(case.candidate) {
            rest += if (p - r).is_finite() {
                (p - r) * (p - r)
            } else {
                0.0
            };
            whole += if (c - r).is_finite() {
                (c - r) * (c - r)
            } else {
                0.0
            };
        }
        Some(Explanation {
            kind: CauseKind::Function,
            text: format!(
                "the candidate lacks a function: the reference is {} of it",
                names(&found)
            ),
            details: facts::Function::Alone {
                candidate: None,
                reference: Some(names(&found)),
                parameter: best.parameter(),
                input: None,
            }
            .into(),
            class: Class::Mechanism,
            freedom: usize::from(best.parameter().is_some()),
            predicted: Predicted::Share {
                explained: super::sampling::share(rest, whole).max(0.0),
                proven,
            },
        })
    }
}

/// The two halves of the last axis.
fn halves(whole: &Loaded) -> Option<[Loaded; 2]> {
    let width = *whole.dims.last().filter(|width| *width % 2 == 0)?;
    let mut dims = whole.dims.clone();
    *dims.last_mut()? = width / 2;
    let half = |values: &[f64], from: usize| {
        values
            .chunks(width)
            .flat_map(|row| row[from..from + width / 2].iter().copied())
            .collect()
    };
    Some([0, width / 2].map(|from| Loaded {
        dims: dims.clone(),
        reference: half(&whole.reference, from),
        candidate: half(&whole.candidate, from),
    }))
}

/// How many times further off a function may be than the closest and still be meant.
const FAR: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::super::library::Elementwise;
    use crate::functions::softcap;
    use crate::testing::{
        Recorded, examine_in, examine_noisy, examine_noisy_in, examine_pair, normal, proven,
    };
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    fn apply(at: usize, values: &[f64]) -> Vec<f64> {
        values
            .iter()
            .map(|x| Elementwise::ALL[at].function()(*x))
            .collect()
    }

    fn run(x: Vec<f64>, reference: Vec<f64>, candidate: Vec<f64>) -> [Recorded; 2] {
        let dims = vec![x.len() / 8, 8];
        [
            Recorded {
                name: "gate",
                dims: dims.clone(),
                reference: x.clone(),
                candidate: x,
            },
            Recorded {
                name: "act",
                dims,
                reference,
                candidate,
            },
        ]
    }

    #[test]
    fn both_functions_are_named_from_the_recorded_input() {
        let x = normal(800, 1);
        let found = examine_in(&run(x.clone(), apply(2, &x), apply(4, &x)), "act").0;
        assert_eq!(proven(&found), Some("function"));
        assert_eq!(
            found.found[0].explanation.text,
            "candidate is gelu (tanh) of `gate` where the reference has silu"
        );
    }

    #[test]
    fn a_gate_is_seen_through_its_product() {
        let (x, y) = (normal(800, 1), normal(800, 2));
        let times = |values: Vec<f64>| {
            values
                .iter()
                .zip(&y)
                .map(|(a, b)| a * b)
                .collect::<Vec<f64>>()
        };
        let dims = vec![100, 8];
        let run = [
            Recorded {
                name: "gate",
                dims: dims.clone(),
                reference: x.clone(),
                candidate: x.clone(),
            },
            Recorded {
                name: "up",
                dims: dims.clone(),
                reference: y.clone(),
                candidate: y.clone(),
            },
            Recorded {
                name: "act",
                dims,
                reference: times(apply(2, &x)),
                candidate: times(apply(1, &x)),
            },
        ];
        for found in [examine_in(&run, "act").0, examine_noisy_in(&run, "act")] {
            assert_eq!(proven(&found), Some("function"));
            assert_eq!(
                found.found[0].explanation.text,
                "candidate is relu of `gate`, times `up`, where the reference has silu"
            );
        }
    }

    #[test]
    fn a_gate_is_seen_in_one_half_of_a_joint_product() {
        let joint = normal(1600, 1);
        let gated = |at: usize| {
            joint
                .chunks(16)
                .flat_map(|row| {
                    (0..8).map(|k| Elementwise::ALL[at].function()(row[k]) * row[8 + k])
                })
                .collect::<Vec<f64>>()
        };
        let run = [
            Recorded {
                name: "gate_up",
                dims: vec![100, 16],
                reference: joint.clone(),
                candidate: joint.clone(),
            },
            Recorded {
                name: "act",
                dims: vec![100, 8],
                reference: gated(2),
                candidate: gated(3),
            },
        ];
        let found = examine_in(&run, "act").0;
        assert_eq!(proven(&found), Some("function"));
        let text = "candidate is gelu (erf) of `gate_up, first half`, times `gate_up, second half`, where the reference has silu";
        assert_eq!(found.found[0].explanation.text, text);
    }

    #[test]
    fn a_softcap_is_found_with_its_cap_on_either_side() {
        let x: Vec<f64> = normal(800, 1).iter().map(|x| 20.0 * x).collect();
        let capped: Vec<f64> = x.iter().map(|x| softcap(*x, 30.0)).collect();
        let found = examine_pair(&[100, 8], x.clone(), capped.clone());
        assert_eq!(proven(&found), Some("function"));
        assert_eq!(
            found.found[0].explanation.text,
            "candidate = a softcap of 30 of the reference"
        );
        let found = examine_pair(&[100, 8], capped, x);
        assert_eq!(proven(&found), Some("function"));
        assert_eq!(found.found[0].explanation.details.json()["parameter"], 30.0);
    }

    #[test]
    fn the_same_function_of_other_inputs_is_no_function() {
        let (x, other) = (normal(800, 1), normal(800, 2));
        let mut run = run(x.clone(), apply(2, &x), apply(2, &other));
        run[0].candidate = other;
        let found = examine_in(&run, "act").0;
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Function)
        );
        assert!(
            found
                .attempts
                .iter()
                .any(|attempt| attempt.text == "both sides are silu of their inputs")
        );
    }

    #[test]
    fn unrelated_values_and_factors_are_no_function() {
        let x = normal(800, 1);
        let tiny: Vec<f64> = x.iter().map(|x| 1e-9 * x).collect();
        for (reference, candidate) in [
            (x.clone(), normal(800, 2)),
            // gelu of next to nothing is half of it.
            (tiny.clone(), tiny.iter().map(|x| 0.5 * x).collect()),
            (x.clone(), x.iter().map(|x| 1.3 * x).collect()),
        ] {
            let found = examine_pair(&[100, 8], reference, candidate);
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::Function)
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_two_activations_are_told_apart(count in 5usize..60, seed in 0u64..1000, a in 1usize..15, b in 1usize..15) {
            // Without relu6, the last, which is relu where no value is beyond six.
            let x: Vec<f64> = normal(8 * count, seed).iter().map(|x| 3.0 * x).collect();
            let found = examine_in(&run(x.clone(), apply(a, &x), apply(b, &x)), "act").0;
            let function = found.found.iter().find(|found| found.explanation.kind == CauseKind::Function && found.score.proven);
            prop_assert_eq!(function.is_some(), a != b);
            if let Some(function) = function {
                let details = function.explanation.details.json();
                prop_assert_eq!(details["candidate"].as_str(), Some(Elementwise::ALL[b].name()));
                prop_assert_eq!(details["reference"].as_str(), Some(Elementwise::ALL[a].name()));
            }
        }

        #[test]
        fn functions_of_the_reference_are_found_also_in_bf16(count in 60usize..300, seed in 0u64..1000) {
            let x: Vec<f64> = normal(count, seed).iter().map(|x| 3.0 * x).collect();
            let absolute: Vec<f64> = x.iter().map(|x| x.abs()).collect();
            prop_assert_eq!(proven(&examine_pair(&[count], x.clone(), absolute.clone())), Some("function"));
            prop_assert_eq!(proven(&examine_noisy(&[count], x.clone(), absolute)), Some("function"));
            let leaky: Vec<f64> = x.iter().map(|x| if *x > 0.0 { *x } else { 0.1 * x }).collect();
            prop_assert_eq!(proven(&examine_pair(&[count], x.clone(), leaky)), Some("function"));
        }
    }
}
