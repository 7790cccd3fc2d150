//! The candidate is another recorded tensor: the op was skipped, a buffer is stale, the layer index is off by one.
//!
//! When several layers are off in the same way the run was recorded wrongly, and nothing else can be believed of it.

use super::elsewhere::{Elsewhere, alike, same_stage, side, varies};
use crate::{Case, Class, Examined, Explanation, Hypothesis, Sketch, case::Predicted};
use twinscope_compare::{layout::Which, noise::unit_roundoff};
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct WrongTensor;

impl Hypothesis for WrongTensor {
    fn name(&self) -> &'static str {
        "wrong_tensor"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        // What the candidate took from itself is a copy: streams of neighbouring layers are near each other, but no copies.
        let unit = case
            .dtypes
            .iter()
            .filter_map(|dtype| unit_roundoff(*dtype))
            .fold(0.0, f64::max);
        // And a copy is known beside any noise.
        let calm = Case {
            noise: [unit; 4],
            ..*case
        };
        let here = Elsewhere::of(case).or_else(|why| Elsewhere::of(&calm).map_err(|_| why))?;
        if !varies(&here.candidate) {
            return Err("the candidate hardly varies: it would equal too many".into());
        }
        let equal = |other: &Sketch| match other.side {
            Which::Candidate => here.is_copy(&other.values, unit),
            Which::Reference => here.is_candidate(&other.values),
        };
        // One tensor under two names, a module's output and its last child's say: equal on both sides, and no fault.
        let alias = |other: &Sketch| {
            let reference = other
                .pair
                .filter(|_| other.side == Which::Candidate)
                .and_then(|pair| case.scene.sketch(pair));
            reference.is_some_and(|[reference, _]| {
                here.same(&here.reference, &reference) && copies(&here.reference, &reference, unit)
            })
        };
        let alike = here
            .others
            .iter()
            .filter(|other| alike(&other.dims, case.dims));
        let mut same: Vec<&Sketch> = alike
            .filter(|other| equal(other) && !alias(other))
            .collect();
        if same.is_empty() {
            return Err("no other recorded tensor equals the candidate".into());
        }
        let name = case.scene.name(case.pair, Which::Candidate);
        // One stage of another layer says more than the tensor that happens to be nearest; then the candidate's own.
        same.sort_by_key(|other| {
            (
                !same_stage(&other.name, &name),
                other.side == Which::Reference,
            )
        });
        let other = same[0];
        let Some(values) = case.scene.whole(other) else {
            return Err("the tensor that equals it cannot be read".into());
        };
        let (text, capture) = say(case, &here, other, &name);
        Ok(vec![Explanation {
            kind: CauseKind::WrongTensor,
            text,
            details: facts::WrongTensor::Copy {
                tensor: other.name.clone(),
                side: side(other.side),
                capture,
            }
            .into(),
            class: if capture {
                Class::Capture
            } else {
                Class::Mechanism
            },
            freedom: 2,
            predicted: Predicted::Values(values),
        }])
    }
}

/// Equal but for one rounding.
fn copies(a: &[f64], b: &[f64], unit: f64) -> bool {
    a.iter()
        .zip(b)
        .all(|(a, b)| super::near::close(*a, *b, 0.0, 2.0 * unit))
}

/// The sentence, and whether the capture is at fault.
fn say(case: &Case<'_>, here: &Elsewhere, other: &Sketch, name: &str) -> (String, bool) {
    let own = other.side == Which::Candidate;
    if same_stage(&other.name, name) {
        let copies = here.others.iter().filter(|sketch| {
            sketch.side == Which::Candidate
                && same_stage(&sketch.name, name)
                && here.is_candidate(&sketch.values)
        });
        let copies = copies.count();
        if own && copies >= 2 {
            return (
                format!(
                    "the candidate recorded the same tensor as `{name}` and in {copies} other layers"
                ),
                true,
            );
        }
        if !own && off_by_one(case, other) {
            let text = format!(
                "the candidate's `{name}` is the reference's `{}`, and other layers are off in the same way",
                other.name
            );
            return (text, true);
        }
    }
    let before = other.pair.is_some_and(|pair| pair < case.pair);
    let text = match (own, before) {
        (true, true) => format!(
            "the candidate's `{name}` is its own earlier `{}`: an op was skipped or a buffer is stale",
            other.name
        ),
        (true, false) => format!("the candidate's `{name}` is its own `{}`", other.name),
        (false, _) => format!(
            "the candidate's `{name}` is the reference's `{}`",
            other.name
        ),
    };
    (text, false)
}

/// Whether another pair's candidate is the reference as far away in its own stage.
fn off_by_one(case: &Case<'_>, other: &Sketch) -> bool {
    let Some(to) = other.pair else { return false };
    let distance = to as isize - case.pair as isize;
    let entries = case.scene.entries();
    let mine = &entries[case.pair].name;
    (0..entries.len())
        .filter(|at| *at != case.pair && same_stage(&entries[*at].name, mine))
        .any(|at| {
            let Some(away) = at
                .checked_add_signed(distance)
                .filter(|away| *away < entries.len())
            else {
                return false;
            };
            let alike = same_stage(&entries[away].name, mine) || away == case.pair;
            if !alike || entries[away].dims != entries[at].dims {
                return false;
            }
            let (Some([there, _]), Some([own, candidate])) =
                (case.scene.sketch(away), case.scene.sketch(at))
            else {
                return false;
            };
            let (rms, noise) = (
                super::near::typical(&there),
                super::near::SLACK * case.noise[3],
            );
            let equal = |a: &[f64], b: &[f64]| {
                a.iter()
                    .zip(b)
                    .all(|(a, b)| super::near::close(*a, *b, rms, noise))
            };
            equal(&there, &candidate) && !equal(&own, &candidate)
        })
}

#[cfg(test)]
mod tests {
    use crate::{
        Class,
        places::testing::bf16_noise,
        testing::{Recorded, examine_bf16, examine_in, normal, proven},
    };
    use twinscope_report::CauseKind;

    const NAMES: [&str; 4] = ["0_layer_out", "1_layer_out", "2_layer_out", "3_layer_out"];

    #[test]
    fn one_tensor_under_two_names_is_not_the_wrong_one() {
        let (x, wrong) = (normal(336, 1), normal(336, 2));
        let one = |name| Recorded {
            name,
            dims: vec![2, 7, 24],
            reference: x.clone(),
            candidate: wrong.clone(),
        };
        let (found, _) = examine_in(&[one("mlp.down_proj"), one("mlp")], "mlp.down_proj");
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::WrongTensor),
            "{:?}",
            found.found
        );
    }

    fn layers(of_candidate: impl Fn(usize) -> Vec<f64>) -> Vec<Recorded> {
        let one = |(at, name): (usize, &&'static str)| Recorded {
            name,
            dims: vec![2, 7, 24],
            reference: normal(336, at as u64),
            candidate: of_candidate(at),
        };
        NAMES.iter().enumerate().map(one).collect()
    }

    #[test]
    fn a_bias_that_is_missing_is_one_though_what_it_is_added_to_is_recorded() {
        let (x, bias) = (normal(336, 1), normal(24, 2));
        let with = x
            .iter()
            .enumerate()
            .map(|(at, x)| x + bias[at % 24])
            .collect();
        let run = [
            Recorded {
                name: "product",
                dims: vec![14, 24],
                reference: x.clone(),
                candidate: x.clone(),
            },
            Recorded {
                name: "linear",
                dims: vec![14, 24],
                reference: with,
                candidate: x,
            },
        ];
        assert_eq!(proven(&examine_in(&run, "linear").0), Some("offset"));
    }

    #[test]
    fn an_op_that_was_skipped_leaves_its_input() {
        let (x, y) = (normal(336, 1), normal(336, 2));
        let run = |noise| {
            let before = bf16_noise(&x, noise, 3);
            vec![
                Recorded {
                    name: "norm_in",
                    dims: vec![14, 24],
                    reference: x.clone(),
                    candidate: before.clone(),
                },
                Recorded {
                    name: "norm_out",
                    dims: vec![14, 24],
                    reference: y.clone(),
                    candidate: before,
                },
            ]
        };
        let (found, _) = examine_in(&run(0.0), "norm_out");
        assert_eq!(proven(&found), Some("wrong_tensor"));
        assert_eq!(
            found.found[0].explanation.details.json()["tensor"],
            "norm_in"
        );
        assert_eq!(
            found.found[0].explanation.details.json()["side"],
            "candidate"
        );
        assert_eq!(
            proven(&examine_bf16(&run(2e-3), "norm_out")),
            Some("wrong_tensor")
        );
    }

    #[test]
    fn layers_that_are_all_off_by_one_are_a_fault_of_the_capture() {
        let (found, _) = examine_in(&layers(|at| normal(336, at as u64 + 1)), "1_layer_out");
        assert_eq!(proven(&found), Some("wrong_tensor"));
        assert_eq!(found.found[0].explanation.class, Class::Capture);
    }

    #[test]
    fn one_tensor_in_every_layer_is_a_fault_of_the_capture() {
        let (found, _) = examine_in(&layers(|_| normal(336, 3)), "1_layer_out");
        assert_eq!(proven(&found), Some("wrong_tensor"));
        assert_eq!(found.found[0].explanation.class, Class::Capture);
        assert!(
            found.found[0].explanation.text.contains("3 other layers"),
            "{}",
            found.found[0].explanation.text
        );
    }

    #[test]
    fn one_wrong_layer_is_no_fault_of_the_capture() {
        let (found, _) = examine_in(
            &layers(|at| normal(336, if at == 1 { 2 } else { at as u64 })),
            "1_layer_out",
        );
        assert_eq!(proven(&found), Some("wrong_tensor"));
        assert_eq!(found.found[0].explanation.class, Class::Mechanism);
    }

    #[test]
    fn zeros_are_no_other_tensor() {
        let run = ["a", "b"].map(|name| Recorded {
            name,
            dims: vec![64],
            reference: normal(64, 1),
            candidate: vec![0.0; 64],
        });
        let (found, _) = examine_in(&run, "a");
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::WrongTensor)
        );
    }
}
