use crate::testing::{Recorded, normal, report_as};
use twinscope_compare::{judged::Judged, verdict::Origin};
use twinscope_tensor::DType;

fn softmax(logits: &[f64], scale: f64) -> Vec<f64> {
    let row = |row: &[f64]| {
        let sum: f64 = row.iter().map(|x| (scale * x).exp()).sum();
        row.iter()
            .map(|x| (scale * x).exp() / sum)
            .collect::<Vec<_>>()
    };
    logits.chunks_exact(12).flat_map(row).collect()
}

fn report(scale: f64) -> Judged {
    let logits: Vec<f64> = normal(20 * 12, 1).iter().map(|x| 3.0 * x).collect();
    let other: Vec<f64> = logits
        .iter()
        .zip(normal(240, 2))
        .map(|(x, n)| x + 0.2 * n)
        .collect();
    let probabilities = [softmax(&logits, 1.0), softmax(&other, scale)];
    let [reference, candidate] = probabilities;
    let run = [
        Recorded {
            name: "logits",
            dims: vec![20, 12],
            reference: logits,
            candidate: other,
        },
        Recorded {
            name: "probs",
            dims: vec![20, 12],
            reference,
            candidate,
        },
    ];
    report_as(DType::F32, &run)
}

#[test]
fn probabilities_of_wrong_logits_inherit_that() {
    assert_eq!(report(1.0).pairs[1].origin(), Some(Origin::Inherited));
}

#[test]
fn a_mask_that_is_wrong_in_the_scores_is_inherited_by_the_probabilities() {
    let logits: Vec<f64> = normal(20 * 12, 1).iter().map(|x| 3.0 * x).collect();
    let masked = |ahead: usize| -> Vec<f64> {
        let seen = |(at, x): (usize, &f64)| {
            if at % 12 <= at / 12 + ahead {
                *x
            } else {
                f64::NEG_INFINITY
            }
        };
        logits.iter().enumerate().map(seen).collect()
    };
    let (reference, candidate) = (masked(0), masked(1));
    let probabilities = [softmax(&reference, 1.0), softmax(&candidate, 1.0)];
    let run = |scores: [Vec<f64>; 2]| {
        let [reference, candidate] = scores;
        let [of_reference, of_candidate] = probabilities.clone();
        report_as(
            DType::F32,
            &[
                Recorded {
                    name: "scores",
                    dims: vec![20, 12],
                    reference,
                    candidate,
                },
                Recorded {
                    name: "probs",
                    dims: vec![20, 12],
                    reference: of_reference,
                    candidate: of_candidate,
                },
            ],
        )
    };
    let origin = |report: Judged| report.pairs[1].origin();
    assert_eq!(
        origin(run([reference.clone(), candidate])),
        Some(Origin::Inherited)
    );
    assert_eq!(
        origin(run([reference.clone(), reference])),
        Some(Origin::Own),
        "of scores that are right"
    );
    assert_eq!(
        origin(run([logits.clone(), logits.clone()])),
        Some(Origin::Own),
        "and of scores before their mask"
    );
}

#[test]
fn another_temperature_is_a_scale_of_the_logits() {
    let report = report(0.5);
    assert_eq!(
        (
            report.pairs[1].origin(),
            report.pairs[1].causes[0].kind.name()
        ),
        (Some(Origin::Own), "softmax_scale")
    );
}
