use crate::testing::{Recorded, normal, report_as, report_mixed};
use twinscope_compare::{judged::Judged, verdict::Origin};
use twinscope_tensor::DType;

const HEADS: usize = 3;
const TOKENS: usize = 7;
const SIZE: usize = 8;

/// `[b, s, h * d]` as `[b, h, s, d]`, halves turned by their position.
fn rope(projected: &[f64], theta: f64) -> Vec<f64> {
    let at = |flat: usize| {
        let (batch, head) = (
            flat / (HEADS * TOKENS * SIZE),
            flat / (TOKENS * SIZE) % HEADS,
        );
        let (token, channel) = (flat / SIZE % TOKENS, flat % SIZE);
        let given =
            |channel: usize| projected[((batch * TOKENS + token) * HEADS + head) * SIZE + channel];
        let pair = channel % (SIZE / 2);
        let (sin, cos) = (token as f64 * theta.powf(-2.0 * pair as f64 / SIZE as f64)).sin_cos();
        let (x, y) = (given(pair), given(pair + SIZE / 2));
        if channel < SIZE / 2 {
            cos * x - sin * y
        } else {
            sin * x + cos * y
        }
    };
    (0..projected.len()).map(at).collect()
}

/// A projection that is wrong, as modules record it, and what rope makes of it.
fn report(theta: f64) -> Judged {
    let (q, noise) = (
        normal(2 * TOKENS * HEADS * SIZE, 1),
        normal(2 * TOKENS * HEADS * SIZE, 2),
    );
    let wrong: Vec<f64> = q
        .iter()
        .zip(noise)
        .map(|(q, noise)| q + 0.3 * noise)
        .collect();
    let [reference, candidate] = [rope(&q, 10000.0), rope(&wrong, theta)];
    report_as(
        DType::F32,
        &[
            Recorded {
                name: "q_proj",
                dims: vec![2, TOKENS, HEADS * SIZE],
                reference: q,
                candidate: wrong,
            },
            Recorded {
                name: "q_rope",
                dims: vec![2, HEADS, TOKENS, SIZE],
                reference,
                candidate,
            },
        ],
    )
}

#[test]
fn rope_takes_what_a_projection_left_token_by_token() {
    let report = report(10000.0);
    assert_eq!(
        (report.pairs[0].origin(), report.pairs[1].origin()),
        (Some(Origin::Own), Some(Origin::Inherited))
    );
}

#[test]
fn a_table_of_angles_in_f32_beside_one_in_f64_is_no_second_fault() {
    const POSITIONS: usize = 512;
    let (q, noise) = (
        normal(HEADS * POSITIONS * SIZE, 1),
        normal(HEADS * POSITIONS * SIZE, 2),
    );
    let wrong: Vec<f64> = q
        .iter()
        .zip(noise)
        .map(|(q, noise)| q + 1e-3 * noise)
        .collect();
    let turned = |q: &[f64], rounded: fn(f64) -> f64| -> Vec<f64> {
        let at = |flat: usize| {
            let (position, channel) = (flat / SIZE % POSITIONS, flat % SIZE);
            let pair = channel % (SIZE / 2);
            let angle =
                rounded(position as f64 * rounded(10000f64.powf(-2.0 * pair as f64 / SIZE as f64)));
            let (x, y) = (
                q[flat - channel + pair],
                q[flat - channel + pair + SIZE / 2],
            );
            if channel < SIZE / 2 {
                angle.cos() * x - angle.sin() * y
            } else {
                angle.sin() * x + angle.cos() * y
            }
        };
        (0..q.len()).map(at).collect()
    };
    let [reference, candidate] = [turned(&q, |x| f64::from(x as f32)), turned(&wrong, |x| x)];
    let dims = || vec![1, HEADS, POSITIONS, SIZE];
    let run = [
        Recorded {
            name: "q",
            dims: dims(),
            reference: q,
            candidate: wrong,
        },
        Recorded {
            name: "turned",
            dims: dims(),
            reference,
            candidate,
        },
    ];
    assert_eq!(
        report_mixed([DType::F32, DType::F64], &run).pairs[1].origin(),
        Some(Origin::Inherited)
    );
}

#[test]
fn another_base_behind_a_wrong_projection_is_a_second_fault() {
    let report = report(500_000.0);
    assert_eq!(
        (
            report.pairs[1].origin(),
            report.pairs[1].causes[0].kind.name()
        ),
        (Some(Origin::Own), "rotated")
    );
}
