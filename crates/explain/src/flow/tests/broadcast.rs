use crate::testing::{Recorded, normal, report_as};
use twinscope_compare::verdict::{Origin, Verdict};
use twinscope_tensor::DType;

fn run(broken: impl Fn(f64, f64) -> f64) -> Vec<Recorded> {
    let (maps, time) = (normal(2 * 6 * 25, 1), normal(12, 2));
    let other: Vec<f64> = maps
        .iter()
        .zip(normal(300, 3))
        .map(|(x, n)| x + 0.3 * n)
        .collect();
    let join = |maps: &[f64], f: &dyn Fn(f64, f64) -> f64| {
        maps.iter()
            .enumerate()
            .map(|(flat, x)| f(*x, time[flat / 25]))
            .collect()
    };
    let sum = |x: f64, y: f64| x + y;
    vec![
        Recorded {
            name: "maps",
            dims: vec![2, 6, 5, 5],
            reference: maps.clone(),
            candidate: other.clone(),
        },
        Recorded {
            name: "time",
            dims: vec![2, 6],
            reference: time.clone(),
            candidate: time.clone(),
        },
        Recorded {
            name: "sum",
            dims: vec![2, 6, 5, 5],
            reference: join(&maps, &sum),
            candidate: join(&other, &broken),
        },
    ]
}

#[test]
fn what_is_added_to_every_place_of_a_map_passes_on_the_maps_error() {
    let report = report_as(DType::F32, &run(|x, y| x + y));
    assert_eq!(
        (report.pairs[2].verdict(), report.pairs[2].origin()),
        (Verdict::Diverged, Some(Origin::Inherited))
    );
}

#[test]
fn what_is_not_added_to_the_maps_is_a_missing_term() {
    let report = report_as(DType::F32, &run(|x, _| x));
    assert_eq!(
        (report.pairs[2].verdict(), report.pairs[2].origin()),
        (Verdict::Diverged, Some(Origin::Own))
    );
    assert_eq!(report.pairs[2].causes[0].kind.name(), "missing_term");
}
