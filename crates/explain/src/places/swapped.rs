//! Two tensors in each other's place: gate and up, q and k, k and v.

use super::elsewhere::{Elsewhere, alike, nearer, varies};
use crate::{Case, Class, Examined, Explanation, Hypothesis, case::Predicted};
use twinscope_compare::layout::Which;
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct Swapped;

impl Hypothesis for Swapped {
    fn name(&self) -> &'static str {
        "swapped"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let here = Elsewhere::any(case);
        for other in here
            .others
            .iter()
            .filter(|other| other.side == Which::Reference)
        {
            let Some(pair) = other.pair.filter(|_| alike(&other.dims, case.dims)) else {
                continue;
            };
            if !varies(&other.values) || !nearer(&here.candidate, &other.values, &here.reference) {
                continue;
            }
            // The other one must have changed places too: near what belongs here, and far from what belongs there. Nearer, not near: what
            // both were given by an earlier fault is in both.
            let Some([there, candidate]) = case.scene.sketch(pair) else {
                continue;
            };
            if !nearer(&candidate, &here.reference, &there) || !varies(&candidate) {
                continue;
            }
            let Some(values) = case.scene.whole(other) else {
                continue;
            };
            let mine = case.scene.name(case.pair, Which::Reference);
            return Ok(vec![Explanation {
                kind: CauseKind::Swapped,
                text: format!(
                    "`{mine}` and `{}` are swapped: each of the candidate's is the reference's other",
                    other.name
                ),
                details: facts::Swapped::Tensors {
                    tensors: [mine, other.name.clone()],
                }
                .into(),
                class: Class::Mechanism,
                freedom: 1,
                predicted: Predicted::Values(values),
            }]);
        }
        Err("no other tensor has changed places with it".into())
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        places::testing::bf16_noise,
        testing::{Recorded, examine_bf16, examine_in, normal, proven},
    };
    use twinscope_report::CauseKind;

    fn run(noise: f64) -> Vec<Recorded> {
        let (gate, up) = (normal(22 * 112, 1), normal(22 * 112, 2));
        let mut run: Vec<Recorded> = [("layers.1.gate", &gate, &up), ("layers.1.up", &up, &gate)]
            .map(|(name, r, c)| Recorded {
                name,
                dims: vec![2, 11, 112],
                reference: r.clone(),
                candidate: bf16_noise(c, noise, 5),
            })
            .into();
        let x = normal(22 * 112, 3);
        run.push(Recorded {
            name: "layers.1.act",
            dims: vec![2, 11, 112],
            reference: x.clone(),
            candidate: bf16_noise(&x, noise, 6),
        });
        run
    }

    #[test]
    fn gate_and_up_in_each_others_place_are_swapped() {
        let (found, _) = examine_in(&run(0.0), "layers.1.gate");
        assert_eq!(proven(&found), Some("swapped"));
        assert_eq!(
            found.found[0].explanation.details.json()["tensors"][1],
            "layers.1.up"
        );
        assert_eq!(
            proven(&examine_in(&run(0.0), "layers.1.up").0),
            Some("swapped")
        );
    }

    #[test]
    fn also_under_the_noise_of_bf16() {
        assert_eq!(
            proven(&examine_bf16(&run(2e-3), "layers.1.gate")),
            Some("swapped")
        );
    }

    #[test]
    fn a_norm_that_was_skipped_has_changed_places_with_nothing() {
        // What the norm made and what it was given resemble each other, within much noise.
        let x = normal(960, 1);
        let norm: Vec<f64> = x
            .iter()
            .enumerate()
            .map(|(at, x)| x * (0.6 + 0.1 * (at / 48 % 3) as f64))
            .collect();
        let noisy = bf16_noise(&x, 2e-2, 4);
        let run = [
            Recorded {
                name: "x",
                dims: vec![20, 48],
                reference: x,
                candidate: noisy.clone(),
            },
            Recorded {
                name: "norm",
                dims: vec![20, 48],
                reference: norm,
                candidate: noisy,
            },
        ];
        assert!(
            examine_bf16(&run, "norm")
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Swapped)
        );
    }

    #[test]
    fn one_that_is_only_copied_is_not_swapped() {
        let mut run = run(0.0);
        run[1].candidate = run[1].reference.clone();
        let (found, _) = examine_in(&run, "layers.1.gate");
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Swapped)
        );
    }
}
