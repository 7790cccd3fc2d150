use crate::testing::{Recorded, normal, report_as};
use twinscope_compare::{judged::Judged, verdict::Origin};
use twinscope_tensor::DType;

const DIMS: [usize; 3] = [2, 9, 8];

/// `x`, six vectors per batch row, `y`, and what a function makes of an element of both and of those of the condition.
fn report(
    f: fn(f64, f64, &dyn Fn(usize) -> f64) -> f64,
    broken: fn(f64, f64, &dyn Fn(usize) -> f64) -> f64,
) -> Judged {
    let (x, y, condition) = (normal(144, 1), normal(144, 2), normal(2 * 48, 3));
    let other: Vec<f64> = condition
        .iter()
        .zip(normal(96, 4))
        .map(|(c, n)| c + 0.1 * n)
        .collect();
    let made = |condition: &[f64], f: fn(f64, f64, &dyn Fn(usize) -> f64) -> f64| -> Vec<f64> {
        let one = |flat: usize| {
            f(x[flat], y[flat], &|slice| {
                condition[flat / 72 * 48 + slice * 8 + flat % 8]
            })
        };
        (0..144).map(one).collect()
    };
    let (reference, candidate) = (made(&condition, f), made(&other, broken));
    let run = [
        Recorded {
            name: "x",
            dims: DIMS.to_vec(),
            reference: x.clone(),
            candidate: x.clone(),
        },
        Recorded {
            name: "y",
            dims: DIMS.to_vec(),
            reference: y.clone(),
            candidate: y.clone(),
        },
        Recorded {
            name: "condition",
            dims: vec![2, 48],
            reference: condition.clone(),
            candidate: other.clone(),
        },
        Recorded {
            name: "out",
            dims: DIMS.to_vec(),
            reference,
            candidate,
        },
    ];
    report_as(DType::F32, &run)
}

fn last(report: &Judged) -> (Option<Origin>, Option<&str>) {
    let pair = report.pairs.last().unwrap();
    println!("{:?}", pair.causes);
    (
        pair.origin(),
        pair.causes.first().map(|cause| cause.kind.name()),
    )
}

#[test]
fn a_modulated_norm_passes_on_the_error_of_its_condition() {
    let modulate = |x: f64, _: f64, c: &dyn Fn(usize) -> f64| x * (1.0 + c(1)) + c(0);
    assert_eq!(
        last(&report(modulate, modulate)),
        (Some(Origin::Inherited), None)
    );
    let gate = |x: f64, y: f64, c: &dyn Fn(usize) -> f64| x + c(2) * y;
    assert_eq!(last(&report(gate, gate)), (Some(Origin::Inherited), None));
}

#[test]
fn what_goes_wrong_with_scale_shift_and_gate_is_named() {
    let modulate = |x: f64, _: f64, c: &dyn Fn(usize) -> f64| x * (1.0 + c(1)) + c(0);
    let own = |kind| (Some(Origin::Own), Some(kind));
    assert_eq!(
        last(&report(modulate, |x, _, c| x * (1.0 + c(0)) + c(1))),
        own("swapped")
    );
    assert_eq!(
        last(&report(modulate, |x, _, c| x * c(1) + c(0))),
        own("missing_term")
    );
    assert_eq!(
        last(&report(modulate, |x, _, c| x * (1.0 + c(1)))),
        own("offset")
    );
    let gate = |x: f64, y: f64, c: &dyn Fn(usize) -> f64| x + c(2) * y;
    assert_eq!(last(&report(gate, |x, y, _| x + y)), own("channel_scale"));
}
