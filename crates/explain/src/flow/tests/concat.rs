use crate::testing::{Recorded, normal, report_as};
use twinscope_compare::verdict::{Origin, Verdict};
use twinscope_tensor::DType;

/// Keys of five tokens, of a sixth, and both: `[2, 3, 6, 4]`.
fn cached(past: &[f64], now: &[f64]) -> Vec<f64> {
    past.chunks_exact(5 * 4)
        .zip(now.chunks_exact(4))
        .flat_map(|(past, now)| past.iter().chain(now))
        .copied()
        .collect()
}

fn run(broken: impl Fn(Vec<f64>) -> Vec<f64>) -> Vec<Recorded> {
    let (past, now, noise) = (normal(120, 1), normal(24, 2), normal(120, 3));
    let other: Vec<f64> = past
        .iter()
        .zip(noise)
        .enumerate()
        .map(|(at, (x, n))| if at % 20 < 4 { x + n } else { *x })
        .collect();
    vec![
        Recorded {
            name: "past",
            dims: vec![2, 3, 5, 4],
            reference: past.clone(),
            candidate: other.clone(),
        },
        Recorded {
            name: "now",
            dims: vec![2, 3, 1, 4],
            reference: now.clone(),
            candidate: now.clone(),
        },
        Recorded {
            name: "keys",
            dims: vec![2, 3, 6, 4],
            reference: cached(&past, &now),
            candidate: broken(cached(&other, &now)),
        },
    ]
}

#[test]
fn what_is_cached_passes_on_the_error_of_the_step_before() {
    let report = report_as(DType::F32, &run(|keys| keys));
    assert_eq!(
        (report.pairs[2].verdict(), report.pairs[2].origin()),
        (Verdict::Diverged, Some(Origin::Inherited))
    );
}

#[test]
fn a_cache_that_turns_is_its_own_fault() {
    let turned = |keys: Vec<f64>| {
        keys.chunks_exact(24)
            .flat_map(|head| {
                head[4..]
                    .iter()
                    .chain(&head[..4])
                    .copied()
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    let report = report_as(DType::F32, &run(turned));
    assert_eq!(
        (report.pairs[2].verdict(), report.pairs[2].origin()),
        (Verdict::Diverged, Some(Origin::Own))
    );
    assert!(
        ["shifted", "permuted"].contains(&report.pairs[2].causes[0].kind.name()),
        "{:?}",
        report.pairs[2].causes
    );
}

#[test]
fn one_class_token_stands_before_the_patches_of_every_image() {
    let (class, patches, noise) = (normal(8, 1), normal(3 * 4 * 8, 2), normal(3 * 4 * 8, 3));
    let other: Vec<f64> = patches
        .iter()
        .zip(noise)
        .map(|(x, n)| x + 0.1 * n)
        .collect();
    let tokens = |patches: &[f64]| -> Vec<f64> {
        patches
            .chunks_exact(32)
            .flat_map(|image| class.iter().chain(image))
            .copied()
            .collect()
    };
    let run = [
        Recorded {
            name: "class",
            dims: vec![1, 1, 8],
            reference: class.clone(),
            candidate: class.clone(),
        },
        Recorded {
            name: "patches",
            dims: vec![3, 4, 8],
            reference: patches.clone(),
            candidate: other.clone(),
        },
        Recorded {
            name: "tokens",
            dims: vec![3, 5, 8],
            reference: tokens(&patches),
            candidate: tokens(&other),
        },
    ];
    assert_eq!(
        report_as(DType::F32, &run).pairs[2].origin(),
        Some(Origin::Inherited)
    );
}
