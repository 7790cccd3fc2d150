use crate::testing::{Recorded, normal, report_as};
use twinscope_compare::{
    judged::Judged,
    verdict::{Origin, Verdict},
};
use twinscope_tensor::DType;

const HEADS: usize = 3;
const TOKENS: usize = 9;
const SIZE: usize = 8;

/// Probabilities of queries and keys with what is added to the score of a head, a query and a key.
fn attention(
    q: &[f64],
    k: &[f64],
    scale: f64,
    bias: impl Fn(usize, usize, usize) -> f64,
) -> Vec<f64> {
    let mut out = Vec::new();
    for row in 0..2 * HEADS * TOKENS {
        let (head, s) = (row / TOKENS % HEADS, row % TOKENS);
        let keys = &k[row / TOKENS * TOKENS * SIZE..];
        let dot = |t: usize| {
            (0..SIZE)
                .map(|i| q[row * SIZE + i] * keys[t * SIZE + i])
                .sum::<f64>()
        };
        let exp: Vec<f64> = (0..TOKENS)
            .map(|t| {
                if t <= s {
                    (scale * dot(t) + bias(head, s, t)).exp()
                } else {
                    0.0
                }
            })
            .collect();
        let sum: f64 = exp.iter().sum();
        out.extend(exp.iter().map(|e| e / sum));
    }
    out
}

fn report(bias: &[f64], slopes: bool, broken: impl Fn(&[f64], &[f64]) -> Vec<f64>) -> Judged {
    let count = 2 * HEADS * TOKENS * SIZE;
    let (q, k) = (normal(count, 1), normal(count, 2));
    let other: Vec<f64> = q
        .iter()
        .zip(normal(count, 3))
        .map(|(x, n)| x + 0.1 * n)
        .collect();
    let added = |h: usize, s: usize, t: usize| bias[(h * TOKENS + s) * TOKENS + t];
    let reference = attention(&q, &k, 1.0 / (SIZE as f64).sqrt(), added);
    let (probs, dims) = (broken(&other, &k), vec![2, HEADS, TOKENS, SIZE]);
    let mut run = vec![
        Recorded {
            name: "q",
            dims: dims.clone(),
            reference: q,
            candidate: other,
        },
        Recorded {
            name: "k",
            dims,
            reference: k.clone(),
            candidate: k,
        },
        Recorded {
            name: "probs",
            dims: vec![2, HEADS, TOKENS, TOKENS],
            reference,
            candidate: probs,
        },
    ];
    if !slopes {
        run.insert(
            0,
            Recorded {
                name: "bias",
                dims: vec![1, HEADS, TOKENS, TOKENS],
                reference: bias.to_vec(),
                candidate: bias.to_vec(),
            },
        );
    }
    report_as(DType::F32, &run)
}

fn sloped(times: f64) -> Vec<f64> {
    let one = |at: usize| {
        let (head, s, t) = (at / TOKENS / TOKENS, at / TOKENS % TOKENS, at % TOKENS);
        times * 0.5f64.powi(head as i32 + 1) * (t as f64 - s as f64)
    };
    (0..HEADS * TOKENS * TOKENS).map(one).collect()
}

fn with(bias: Vec<f64>, scale: f64) -> impl Fn(&[f64], &[f64]) -> Vec<f64> {
    move |q, k| {
        attention(q, k, scale / (SIZE as f64).sqrt(), |h, s, t| {
            bias[(h * TOKENS + s) * TOKENS + t]
        })
    }
}

fn last(report: &Judged) -> (Verdict, Option<Origin>, Option<&str>) {
    let pair = report.pairs.last().unwrap();
    println!("{:?}", pair.causes);
    (
        pair.verdict(),
        pair.origin(),
        pair.causes.first().map(|cause| cause.kind.name()),
    )
}

#[test]
fn slopes_along_the_keys_pass_on_the_error_of_the_queries() {
    let bias = sloped(1.0);
    assert_eq!(
        last(&report(&bias, true, with(bias.clone(), 1.0))),
        (Verdict::Diverged, Some(Origin::Inherited), None)
    );
}

#[test]
fn another_scale_beside_slopes_is_named() {
    let bias = sloped(1.0);
    let found = report(&bias, true, with(bias.clone(), 2.0));
    assert_eq!(
        last(&found),
        (Verdict::Diverged, Some(Origin::Own), Some("softmax_scale"))
    );
}

#[test]
fn slopes_that_are_not_added_or_halved_are_named() {
    let bias = sloped(1.0);
    for times in [0.0, 0.5] {
        let found = report(&bias, true, with(sloped(times), 1.0));
        assert_eq!(
            last(&found),
            (Verdict::Diverged, Some(Origin::Own), Some("missing_term"))
        );
    }
}

#[test]
fn a_recorded_bias_is_one_of_the_inputs() {
    let bias = normal(HEADS * TOKENS * TOKENS, 9);
    assert_eq!(
        last(&report(&bias, false, with(bias.clone(), 1.0))),
        (Verdict::Diverged, Some(Origin::Inherited), None)
    );
    let none = vec![0.0; bias.len()];
    assert_eq!(
        last(&report(&bias, false, with(none, 1.0))),
        (Verdict::Diverged, Some(Origin::Own), Some("missing_term"))
    );
    assert_eq!(
        last(&report(&bias, false, with(bias.clone(), 0.5))),
        (Verdict::Diverged, Some(Origin::Own), Some("softmax_scale"))
    );
}
