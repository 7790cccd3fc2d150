use crate::testing::{Recorded, normal, report_as};
use twinscope_compare::{judged::Judged, verdict::Origin};
use twinscope_tensor::DType;

const TOKENS: usize = 10;
const SIZE: usize = 8;

/// Two heads of causal scores.
fn scores(query: &[f64], key: &[f64], made: impl Fn(f64) -> f64) -> Vec<f64> {
    let at = |flat: usize| {
        let (head, i, j) = (
            flat / TOKENS / TOKENS,
            flat / TOKENS % TOKENS,
            flat % TOKENS,
        );
        let row = |of: &[f64], token: usize| of[(head * TOKENS + token) * SIZE..][..SIZE].to_vec();
        let product: f64 = row(query, i)
            .iter()
            .zip(row(key, j))
            .map(|(q, k)| q * k)
            .sum();
        if j <= i {
            made(product / (SIZE as f64).sqrt())
        } else {
            f64::NEG_INFINITY
        }
    };
    (0..2 * TOKENS * TOKENS).map(at).collect()
}

/// Keys that lack a bias, and scores that are made of them in some way.
fn report(made: impl Fn(f64) -> f64) -> Judged {
    let (query, key, bias) = (
        normal(2 * TOKENS * SIZE, 1),
        normal(2 * TOKENS * SIZE, 2),
        normal(SIZE, 3),
    );
    let without: Vec<f64> = key
        .iter()
        .enumerate()
        .map(|(at, k)| k - 0.3 * bias[at % SIZE])
        .collect();
    let [reference, candidate] = [scores(&query, &key, |x| x), scores(&query, &without, made)];
    let heads = || vec![1, 2, TOKENS, SIZE];
    report_as(
        DType::F32,
        &[
            Recorded {
                name: "q",
                dims: heads(),
                reference: query.clone(),
                candidate: query,
            },
            Recorded {
                name: "k",
                dims: heads(),
                reference: key,
                candidate: without,
            },
            Recorded {
                name: "scores",
                dims: vec![1, 2, TOKENS, TOKENS],
                reference,
                candidate,
            },
        ],
    )
}

#[test]
fn scores_of_wrong_keys_inherit_that() {
    let report = report(|x| x);
    assert_eq!(report.pairs[1].origin(), Some(Origin::Own));
    assert_eq!(report.pairs[2].origin(), Some(Origin::Inherited));
}

#[test]
fn another_scale_or_a_cap_behind_wrong_keys_is_a_second_fault() {
    for (kind, report) in [
        ("scale", report(|x| 1.2 * x)),
        ("function", report(|x| 5.0 * (x / 5.0).tanh())),
    ] {
        assert_eq!(
            (
                report.pairs[2].origin(),
                report.pairs[2].causes[0].kind.name()
            ),
            (Some(Origin::Own), kind)
        );
    }
}
