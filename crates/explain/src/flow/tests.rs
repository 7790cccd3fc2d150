//! Small networks by hand: what is inherited, what is not, and what is below the noise.

mod biased;
mod broadcast;
mod concat;
mod modulate;
mod products;
mod rope;
mod softmax;

use crate::{
    functions::{gelu, gelu_tanh, silu},
    testing::{
        Recorded, normal, report_as, report_each, report_each_side, report_mixed, report_of_flow,
        report_set,
    },
};
use twinscope_compare::{
    judged::{Judged, JudgedPair},
    settings::Settings,
    verdict::{Origin, Verdict},
};
use twinscope_tensor::DType;

const ROWS: usize = 96;
const CHANNELS: usize = 40;

/// To the nearest bf16.
fn bf16(value: f64) -> f64 {
    let bits = (value as f32).to_bits();
    f64::from(f32::from_bits(
        (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff_0000,
    ))
}

fn recorded(name: &'static str, reference: Vec<f64>, candidate: Vec<f64>) -> Recorded {
    Recorded {
        name,
        dims: vec![2, ROWS / 2, CHANNELS],
        reference,
        candidate,
    }
}

fn pair<'a>(report: &'a Judged, name: &str) -> &'a JudgedPair {
    report.pairs.iter().find(|pair| pair.name == name).unwrap()
}

fn map(values: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    values.iter().map(|value| f(*value)).collect()
}

/// `x`, a gate that is 1.5 times too large in the candidate, and what an activation makes of it on each side.
fn behind_a_fault(of_candidate: fn(f64) -> f64) -> Judged {
    let x = normal(ROWS * CHANNELS, 1);
    let gate = normal(ROWS * CHANNELS, 2);
    let wrong = map(&gate, |gate| 1.5 * gate);
    let (act, candidate_act) = (map(&gate, silu), map(&wrong, of_candidate));
    report_as(
        DType::F32,
        &[
            recorded("x", x.clone(), x),
            recorded("gate", gate, wrong),
            recorded("act", act, candidate_act),
        ],
    )
}

#[test]
fn what_follows_from_wrong_inputs_is_inherited() {
    let report = behind_a_fault(silu);
    assert_eq!(pair(&report, "gate").origin(), Some(Origin::Own));
    assert_eq!(
        (
            pair(&report, "act").verdict(),
            pair(&report, "act").origin()
        ),
        (Verdict::Diverged, Some(Origin::Inherited))
    );
    assert_eq!(report.divergences().len(), 1);
}

#[test]
fn a_second_fault_behind_the_first_is_found_and_named() {
    let report = behind_a_fault(gelu);
    let act = pair(&report, "act");
    assert_eq!(
        (report.divergences().len(), act.origin()),
        (2, Some(Origin::Own))
    );
    assert_eq!(act.causes[0].kind.name(), "function", "{:?}", act.causes);
    assert_eq!(act.causes[0].details.json()["reference"], "silu");
}

/// Both sides in bf16, the candidate with other noise upstream, and an activation of it.
fn noisy_activation(of_candidate: fn(f64) -> f64, seed: u64) -> Judged {
    let gate = map(&normal(ROWS * CHANNELS, seed), |gate| bf16(1.5 * gate));
    let noise = normal(ROWS * CHANNELS, seed + 100);
    let drifted: Vec<f64> = gate
        .iter()
        .zip(noise)
        .map(|(gate, noise)| bf16(gate * (1.0 + 2e-3 * noise)))
        .collect();
    let (act, candidate_act) = (
        map(&gate, |gate| bf16(gelu(gate))),
        map(&drifted, |gate| bf16(of_candidate(gate))),
    );
    report_as(
        DType::Bf16,
        &[
            recorded("gate", gate, drifted),
            recorded("act", act, candidate_act),
        ],
    )
}

#[test]
fn a_gelu_of_another_kind_is_found_below_bf16_noise() {
    for seed in 1..6 {
        let report = noisy_activation(gelu_tanh, seed);
        let act = pair(&report, "act");
        assert_eq!(
            (act.verdict(), act.origin()),
            (Verdict::Diverged, Some(Origin::Own)),
            "seed {seed}"
        );
        assert_eq!(
            (
                act.causes[0].kind.name(),
                &act.causes[0].details.json()["candidate"]
            ),
            ("function", &"gelu (tanh)".into())
        );
    }
}

#[test]
fn a_clean_run_stays_silent_below_the_noise() {
    for seed in 1..12 {
        let report = noisy_activation(gelu, seed);
        assert_eq!(
            pair(&report, "act").verdict(),
            Verdict::Rounding,
            "seed {seed}: {:?}",
            pair(&report, "act").causes
        );
    }
}

fn rms_norm(values: &[f64], epsilon: f64, weight: &[f64], round: fn(f64) -> f64) -> Vec<f64> {
    let mut out = Vec::new();
    for row in values.chunks_exact(CHANNELS) {
        let square = row.iter().map(|x| x * x).sum::<f64>() / CHANNELS as f64;
        out.extend(
            row.iter()
                .zip(weight)
                .map(|(x, w)| round(x / (square + epsilon).sqrt() * w)),
        );
    }
    out
}

/// A norm in bf16 over rows some of which are quiet, with the candidate's epsilon.
fn noisy_norm(epsilon: f64, seed: u64) -> Judged {
    let quiet = |at: usize| {
        if (at / CHANNELS).is_multiple_of(3) {
            0.01
        } else {
            1.0
        }
    };
    let x: Vec<f64> = normal(ROWS * CHANNELS, seed)
        .into_iter()
        .enumerate()
        .map(|(at, x)| bf16(x * quiet(at)))
        .collect();
    let noise = normal(ROWS * CHANNELS, seed + 100);
    let drifted: Vec<f64> = x
        .iter()
        .zip(noise)
        .map(|(x, noise)| bf16(x * (1.0 + 2e-3 * noise)))
        .collect();
    let weight = map(&normal(CHANNELS, 9), |w| 1.0 + 0.2 * w);
    let (normed, other) = (
        rms_norm(&x, 1e-6, &weight, bf16),
        rms_norm(&drifted, epsilon, &weight, bf16),
    );
    report_as(
        DType::Bf16,
        &[recorded("x", x, drifted), recorded("normed", normed, other)],
    )
}

#[test]
fn another_epsilon_is_found_below_bf16_noise_and_the_same_one_is_not() {
    for seed in 1..6 {
        let report = noisy_norm(1e-5, seed);
        let normed = pair(&report, "normed");
        assert_eq!(normed.verdict(), Verdict::Diverged, "seed {seed}");
        assert_eq!(
            normed.causes[0].kind.name(),
            "row_scale",
            "{:?}",
            normed.causes
        );
        assert_eq!(
            normed.causes[0].details.json()["candidate"],
            1e-5,
            "{:?}",
            normed.causes
        );
        assert_eq!(
            pair(&noisy_norm(1e-6, seed), "normed").verdict(),
            Verdict::Rounding,
            "seed {seed}"
        );
    }
}

#[test]
fn a_residual_sum_carries_what_it_is_given() {
    let (x, branch) = (normal(ROWS * CHANNELS, 1), normal(ROWS * CHANNELS, 2));
    let wrong = map(&branch, |b| -b);
    let sum = |branch: &[f64]| x.iter().zip(branch).map(|(x, b)| x + b).collect::<Vec<_>>();
    let (of_reference, of_candidate) = (sum(&branch), sum(&wrong));
    let report = report_as(
        DType::F32,
        &[
            recorded("x", x.clone(), x.clone()),
            recorded("branch", branch, wrong),
            recorded("sum", of_reference, of_candidate),
        ],
    );
    assert_eq!(pair(&report, "sum").origin(), Some(Origin::Inherited));
    assert_eq!(
        report
            .first_divergence()
            .map(|at| report.pairs[at].name.clone())
            .as_deref(),
        Some("branch")
    );
}

#[test]
fn what_is_drowned_in_a_residual_stream_is_not_harmless() {
    let (x, branch) = (
        normal(ROWS * CHANNELS, 1),
        map(&normal(ROWS * CHANNELS, 2), |b| bf16(0.01 * b)),
    );
    let x = map(&x, bf16);
    let wrong = map(&branch, |b| bf16(1.1 * b));
    let sum = |branch: &[f64]| {
        x.iter()
            .zip(branch)
            .map(|(x, b)| bf16(x + b))
            .collect::<Vec<_>>()
    };
    let (of_reference, of_candidate) = (sum(&branch), sum(&wrong));
    let report = report_as(
        DType::Bf16,
        &[
            recorded("x", x.clone(), x.clone()),
            recorded("branch", branch, wrong),
            recorded("sum", of_reference, of_candidate),
        ],
    );
    assert_eq!(
        pair(&report, "sum").verdict(),
        Verdict::Rounding,
        "{:?} {:?}",
        pair(&report, "sum").totals,
        pair(&report, "sum").causes
    );
    assert_eq!(
        (
            pair(&report, "branch").verdict(),
            pair(&report, "branch").origin()
        ),
        (Verdict::Diverged, Some(Origin::Own))
    );
}

#[test]
fn one_wrong_constant_among_many_is_no_harmless_difference() {
    let constants: Vec<Recorded> = ["a", "b", "c", "d", "e"]
        .into_iter()
        .enumerate()
        .map(|(nth, name)| {
            let reference = vec![nth as f64 + 1.0; ROWS * CHANNELS];
            let candidate = map(
                &reference,
                |value| if name == "c" { value * 1.0001 } else { value },
            );
            recorded(name, reference, candidate)
        })
        .collect();
    let report = report_as(DType::F32, &constants);
    assert_eq!(
        (pair(&report, "c").verdict(), pair(&report, "c").origin()),
        (Verdict::Diverged, Some(Origin::Own))
    );
}

#[test]
fn one_weight_that_nothing_is_known_to_take_is_not_harmless() {
    // What a training step records: the weight after its update, behind everything that was computed with the one before.
    let (x, y, weight) = (
        normal(ROWS * CHANNELS, 1),
        normal(ROWS * CHANNELS, 2),
        normal(CHANNELS * CHANNELS, 3),
    );
    let wrong = map(&weight, |w| 1.01 * w);
    let updated = Recorded {
        name: "new.fc1.weight",
        dims: vec![CHANNELS, CHANNELS],
        reference: weight,
        candidate: wrong,
    };
    let report = report_as(
        DType::F32,
        &[
            recorded("x", x.clone(), x),
            updated,
            recorded("y", y.clone(), y),
        ],
    );
    let found = pair(&report, "new.fc1.weight");
    assert_eq!(
        (found.verdict(), found.causes[0].kind.name()),
        (Verdict::Diverged, "scale")
    );
}

#[test]
fn weights_that_one_side_holds_in_bf16_are_no_other_epsilon() {
    for seed in 1..40 {
        let x = normal(ROWS * CHANNELS, seed);
        let weight = map(&normal(CHANNELS, seed + 500), |w| 1.0 + 0.2 * w);
        let coarse = map(&x, bf16);
        let normed = rms_norm(&x, 1e-5, &weight, |value| value);
        let other = rms_norm(&coarse, 1e-5, &map(&weight, bf16), bf16);
        let report = report_mixed(
            [DType::F32, DType::Bf16],
            &[recorded("x", x, coarse), recorded("normed", normed, other)],
        );
        assert_eq!(
            pair(&report, "normed").verdict(),
            Verdict::Rounding,
            "seed {seed}: {:?}",
            pair(&report, "normed").causes
        );
    }
}

#[test]
fn an_epsilon_beside_the_root_is_a_factor_per_row_also_with_a_bias() {
    let x = map(&normal(ROWS * CHANNELS, 3), |x| 0.3 * x);
    let (weight, bias) = (
        map(&normal(CHANNELS, 4), |w| 1.0 + 0.2 * w),
        normal(CHANNELS, 5),
    );
    let layer_norm = |outside: bool| -> Vec<f64> {
        let row = |row: &[f64]| {
            let mean = row.iter().sum::<f64>() / CHANNELS as f64;
            let square = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / CHANNELS as f64;
            let factor = if outside {
                1.0 / (square.sqrt() + 1e-2)
            } else {
                1.0 / (square + 1e-5).sqrt()
            };
            row.iter()
                .zip(weight.iter().zip(&bias))
                .map(|(x, (w, b))| (x - mean) * factor * w + b)
                .collect::<Vec<_>>()
        };
        x.chunks_exact(CHANNELS).flat_map(row).collect()
    };
    let report = report_as(
        DType::F32,
        &[
            recorded("x", x.clone(), x.clone()),
            recorded("normed", layer_norm(false), layer_norm(true)),
        ],
    );
    let cause = &pair(&report, "normed").causes[0];
    assert_eq!(
        (cause.kind.name(), &cause.details.json()["outside_the_root"]),
        ("row_scale", &true.into()),
        "{cause:?}"
    );
    assert!(
        (cause.details.json()["candidate"].as_f64().unwrap() / 1e-2 - 1.0).abs() < 0.05,
        "{cause:?}"
    );
}

#[test]
fn a_cap_on_logits_is_found_below_the_noise_of_bf16_and_none_is_not() {
    for seed in 1..8 {
        let logits = normal(ROWS * CHANNELS, seed);
        let noise = normal(ROWS * CHANNELS, seed + 300);
        let drifted: Vec<f64> = logits
            .iter()
            .zip(noise)
            .map(|(value, noise)| value + 1e-2 * noise)
            .collect();
        let capped = map(&drifted, |value| {
            bf16(crate::functions::softcap(value, 8.0))
        });
        let run = |candidate: Vec<f64>| {
            report_mixed(
                [DType::F32, DType::Bf16],
                &[recorded("logits", logits.clone(), candidate)],
            )
        };
        let report = run(capped);
        assert_eq!(
            report.pairs[0]
                .causes
                .first()
                .map(|cause| cause.kind.name()),
            Some("function"),
            "seed {seed}: {:?}",
            report.pairs[0]
        );
        let clean = run(map(&drifted, bf16));
        assert_eq!(
            clean.pairs[0].verdict(),
            Verdict::Rounding,
            "seed {seed}: {:?}",
            clean.pairs[0].causes
        );
    }
}

#[test]
fn a_term_of_a_sum_is_named_also_where_outlier_channels_drown_it() {
    // Two channels are 30 times louder: in the pair as a whole the missing branch is a few percent.
    let loud = |at: usize| if at % CHANNELS < 2 { 30.0 } else { 1.0 };
    let x: Vec<f64> = normal(ROWS * CHANNELS, 1)
        .into_iter()
        .enumerate()
        .map(|(at, x)| bf16(x * loud(at)))
        .collect();
    let branch = map(&normal(ROWS * CHANNELS, 2), |b| bf16(0.5 * b));
    for (factor, kind) in [
        (0.0, "missing_term"),
        (2.0, "extra_term"),
        (-1.0, "missing_term"),
    ] {
        let sum = |factor: f64| -> Vec<f64> {
            x.iter()
                .zip(&branch)
                .map(|(x, b)| bf16(x + factor * b))
                .collect()
        };
        let records = [
            recorded("x", x.clone(), x.clone()),
            recorded("branch", branch.clone(), branch.clone()),
            recorded("sum", sum(1.0), sum(factor)),
        ];
        let report = report_as(DType::Bf16, &records);
        let sum = pair(&report, "sum");
        let kinds: Vec<&str> = sum.causes.iter().map(|cause| cause.kind.name()).collect();
        let right = kinds.first() == Some(&kind)
            || (factor == 0.0 && kinds.first() == Some(&"wrong_tensor"));
        assert!(
            sum.verdict() == Verdict::Diverged && right,
            "{factor}: {kinds:?}"
        );
    }
}

/// `y = x W' + b` of 96 rows, with a weight `[40, 40]` and another one recorded, and what the candidate makes instead.
fn product(of_candidate: impl Fn(&[f64], &[f64], &[f64]) -> Vec<f64>) -> Judged {
    let (x, bias) = (normal(ROWS * CHANNELS, 1), normal(CHANNELS, 4));
    let [weight, other] = [2, 3].map(|seed| map(&normal(CHANNELS * CHANNELS, seed), |w| 0.16 * w));
    let with_bias = |values: Vec<f64>| {
        values
            .iter()
            .enumerate()
            .map(|(at, y)| y + bias[at % CHANNELS])
            .collect::<Vec<f64>>()
    };
    let made = with_bias(times(&x, &weight, 0..CHANNELS));
    let instead = with_bias(of_candidate(&x, &weight, &other));
    let parameter = |name, values: &[f64]| Recorded {
        name,
        dims: vec![CHANNELS, CHANNELS],
        reference: values.to_vec(),
        candidate: values.to_vec(),
    };
    let records = [
        parameter("layers.0.q.weight", &other),
        parameter("layers.1.q.weight", &weight),
        recorded("layers.1.x", x.clone(), x.clone()),
        recorded("layers.1.q", made, instead),
    ];
    report_as(DType::F32, &records)
}

fn times(x: &[f64], weight: &[f64], over: std::ops::Range<usize>) -> Vec<f64> {
    let one = |(row, out): (&[f64], usize)| {
        over.clone()
            .map(|i| row[i] * weight[out * CHANNELS + i])
            .sum()
    };
    x.chunks_exact(CHANNELS)
        .flat_map(|row| (0..CHANNELS).map(move |out| (row, out)))
        .map(one)
        .collect()
}

#[test]
fn what_was_done_with_a_recorded_weight_is_named() {
    let turned = |weight: &[f64]| -> Vec<f64> {
        (0..weight.len())
            .map(|at| weight[at % CHANNELS * CHANNELS + at / CHANNELS])
            .collect()
    };
    let coarse = |weight: &[f64]| -> Vec<f64> {
        let row = |row: &[f64]| {
            let step = row.iter().fold(0f64, |most, w| most.max(w.abs())) / 127.0;
            row.iter()
                .map(|w| (w / step).round() * step)
                .collect::<Vec<_>>()
        };
        weight.chunks_exact(CHANNELS).flat_map(row).collect()
    };
    type Instead<'a> = (
        &'static str,
        Box<dyn Fn(&[f64], &[f64], &[f64]) -> Vec<f64> + 'a>,
    );
    let faults: [Instead<'_>; 4] = [
        (
            "transposed",
            Box::new(|x, weight, _| times(x, &turned(weight), 0..CHANNELS)),
        ),
        (
            "wrong_tensor",
            Box::new(|x, _, other| times(x, other, 0..CHANNELS)),
        ),
        (
            "partial_sum",
            Box::new(|x, weight, _| times(x, weight, 0..CHANNELS / 2)),
        ),
        (
            "quantized",
            Box::new(|x, weight, _| times(x, &coarse(weight), 0..CHANNELS)),
        ),
    ];
    for (kind, instead) in faults {
        let report = product(instead);
        let q = pair(&report, "layers.1.q");
        assert_eq!(
            q.causes.first().map(|cause| cause.kind.name()),
            Some(kind),
            "{:?}",
            q.causes
        );
        assert!(q.causes[0].explained > Some(0.99), "{:?}", q.causes[0]);
    }
    let clean = product(|x, weight, _| times(x, weight, 0..CHANNELS));
    assert!(clean.divergences().is_empty());
}

#[test]
fn a_product_in_tf32_or_bf16_is_named_where_the_weight_is_recorded() {
    let kept = |bits: u32, half: bool| {
        move |value: f64| {
            let (all, shift) = ((value as f32).to_bits(), 24 - bits);
            let up = if half {
                (1 << (shift - 1)) - 1 + (all >> shift & 1)
            } else {
                0
            };
            f64::from(f32::from_bits((all + up) >> shift << shift))
        }
    };
    for (dtype, bits, half) in [("tf32", 11, true), ("tf32", 11, false), ("bf16", 8, true)] {
        let coarse = kept(bits, half);
        let report =
            product(|x, weight, _| times(&map(x, coarse), &map(weight, coarse), 0..CHANNELS));
        let q = pair(&report, "layers.1.q");
        assert_eq!(
            q.causes.first().map(|cause| cause.kind.name()),
            Some("rounded"),
            "{:?}",
            q.causes
        );
        assert_eq!(q.causes[0].details.json()["dtype"], dtype);
        assert!(
            q.causes[0].explained > Some(0.99)
                && q.causes[0]
                    .text
                    .contains(if half { "rounded" } else { "cut" }),
            "{:?}",
            q.causes[0]
        );
    }
}

#[test]
fn what_a_bf16_run_multiplies_is_rounded_and_no_fault() {
    // The gated product is not recorded; the candidate keeps it in bf16 as everything else.
    let [act, up] = [1, 2].map(|seed| normal(ROWS * CHANNELS, seed));
    let weight = map(&normal(CHANNELS * CHANNELS, 3), |w| bf16(0.16 * w));
    let gated = |[act, up]: [&[f64]; 2], kept: fn(f64) -> f64| -> Vec<f64> {
        let product: Vec<f64> = act.iter().zip(up).map(|(act, up)| kept(act * up)).collect();
        map(&times(&product, &weight, 0..CHANNELS), kept)
    };
    let coarse = [map(&act, bf16), map(&up, bf16)];
    let (reference, candidate) = (
        gated([&act, &up], |x| x),
        gated([&coarse[0], &coarse[1]], bf16),
    );
    let [of_act, of_up] = coarse;
    let weight = Recorded {
        name: "down.weight",
        dims: vec![CHANNELS, CHANNELS],
        reference: weight.clone(),
        candidate: weight,
    };
    let run = [
        weight,
        recorded("act", act, of_act),
        recorded("up", up, of_up),
        recorded("down", reference, candidate),
    ];
    let report = report_mixed([DType::F32, DType::Bf16], &run);
    assert_eq!(
        pair(&report, "down").verdict(),
        Verdict::Rounding,
        "{:?}",
        pair(&report, "down").causes
    );
}

#[test]
fn gates_in_each_others_place_behind_a_fault_are_a_second_one() {
    // The candidate's norm was skipped; what a product makes of that is as far off as it was given.
    let x = map(&normal(ROWS * CHANNELS, 1), |x| 2.0 * x);
    let weight = vec![1.0; CHANNELS];
    let normed = rms_norm(&x, 1e-6, &weight, |value| value);
    let [gate, up] = [2, 3].map(|seed| map(&normal(CHANNELS * CHANNELS, seed), |w| 0.16 * w));
    let of = |input: &[f64], weight: &[f64]| times(input, weight, 0..CHANNELS);
    let run = |swapped: bool| {
        let (first, second) = if swapped { (&up, &gate) } else { (&gate, &up) };
        report_as(
            DType::F32,
            &[
                recorded("x", x.clone(), x.clone()),
                recorded("norm", normed.clone(), x.clone()),
                recorded("gate", of(&normed, &gate), of(&x, first)),
                recorded("up", of(&normed, &up), of(&x, second)),
            ],
        )
    };
    let report = run(true);
    let found = pair(&report, "gate");
    assert_eq!(
        (
            found.origin(),
            found.causes.first().map(|cause| cause.kind.name())
        ),
        (Some(Origin::Own), Some("swapped")),
        "{:?}",
        found.causes
    );
    let report = run(false);
    assert_eq!(
        pair(&report, "gate").origin(),
        Some(Origin::Inherited),
        "{:?}",
        pair(&report, "gate").causes
    );
}

#[test]
fn ranks_whose_sum_was_never_used_lack_an_all_reduce() {
    // A residual stream is larger than what one branch adds.
    let (x, parts) = (
        map(&normal(ROWS * CHANNELS, 1), |x| 4.0 * x),
        [2, 3].map(|seed| normal(ROWS * CHANNELS, seed)),
    );
    let plus = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<f64>>();
    let whole = plus(&parts[0], &parts[1]);
    let reference = [
        ("x", x.clone()),
        ("branch", whole.clone()),
        ("sum", plus(&x, &whole)),
    ];
    for added in [false, true] {
        let of_rank = |rank: usize| plus(&x, if added { &whole } else { &parts[rank] });
        let candidate = [
            ("rank0.x", x.clone()),
            ("rank0.branch", parts[0].clone()),
            ("rank0.sum", of_rank(0)),
            ("rank1.x", x.clone()),
            ("rank1.branch", parts[1].clone()),
            ("rank1.sum", of_rank(1)),
        ];
        let report = crate::testing::report_apart(&[2, ROWS / 2, CHANNELS], &reference, &candidate);
        let branch = pair(&report, "branch");
        if added {
            assert!(
                report.divergences().is_empty(),
                "{:?}",
                report.divergences()
            );
        } else {
            let layouts = report
                .pairs
                .iter()
                .map(|pair| (&pair.name, pair.verdict(), pair.origin(), &pair.layout))
                .collect::<Vec<_>>();
            assert_eq!(
                (branch.verdict(), branch.origin()),
                (Verdict::Diverged, Some(Origin::Own)),
                "{layouts:?}"
            );
            assert_eq!(branch.causes[0].kind.name(), "partial_sum");
            assert_eq!(pair(&report, "sum").origin(), Some(Origin::Inherited));
        }
    }
}

/// `x`, the same under another name, and their sum with a branch; in the candidate the second name has a factor.
#[test]
fn an_op_takes_the_name_that_the_candidate_follows() {
    let (x, branch) = (normal(ROWS * CHANNELS, 1), normal(ROWS * CHANNELS, 2));
    let scaled = map(&x, |x| 3.0 * x);
    let plus = |a: &[f64]| {
        a.iter()
            .zip(&branch)
            .map(|(a, b)| a + b)
            .collect::<Vec<f64>>()
    };
    let records = [
        recorded("embed", x.clone(), x.clone()),
        recorded("norm.in", x.clone(), scaled.clone()),
        recorded("branch", branch.clone(), branch.clone()),
        recorded("sum", plus(&x), plus(&scaled)),
    ];
    let report = report_as(DType::F32, &records);
    let own: Vec<&str> = report
        .divergences()
        .iter()
        .map(|at| report.pairs[*at].name.as_str())
        .collect();
    assert_eq!(own, ["norm.in"]);
    assert_eq!(
        (
            pair(&report, "norm.in").causes[0].kind.name(),
            pair(&report, "sum").origin()
        ),
        ("scale", Some(Origin::Inherited))
    );
}

const MANY: usize = 1 << 8;
const WIDE: usize = 1 << 10;

fn large(name: &'static str, reference: Vec<f64>, candidate: Vec<f64>) -> Recorded {
    Recorded {
        name,
        dims: vec![1, MANY, WIDE],
        reference,
        candidate,
    }
}

#[test]
fn of_a_large_output_one_wrong_row_is_not_missed_wherever_it_is() {
    let (x, y) = (normal(MANY * WIDE, 1), normal(MANY * WIDE, 2));
    let sum: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
    // Everything upstream is off by a factor, and one row of the sum is wrong beside that.
    let (far_x, far_y) = (map(&x, |x| 1.5 * x), map(&y, |y| 1.5 * y));
    for row in [0, 77, MANY - 1] {
        let mut wrong = map(&sum, |sum| 1.5 * sum);
        wrong[row * WIDE..][..WIDE]
            .iter_mut()
            .for_each(|value| *value = 0.25 - *value);
        let run = |of_sum: Vec<f64>| {
            let records = [
                large("x", x.clone(), far_x.clone()),
                large("y", y.clone(), far_y.clone()),
                large("sum", sum.clone(), of_sum),
            ];
            let report = report_as(DType::F32, &records);
            pair(&report, "sum").origin()
        };
        assert_eq!(run(wrong), Some(Origin::Own), "row {row}");
        assert_eq!(run(map(&sum, |sum| 1.5 * sum)), Some(Origin::Inherited));
    }
}

#[test]
fn an_epsilon_is_told_by_the_quiet_rows_of_a_large_tensor() {
    // 16 rows of 600 are so quiet that epsilon matters.
    let rows = 600;
    let quiet = |at: usize| {
        if at / CHANNELS_OF_LARGE % 37 == 5 {
            1e-3
        } else {
            1.0
        }
    };
    let x: Vec<f64> = normal(rows * CHANNELS_OF_LARGE, 1)
        .into_iter()
        .enumerate()
        .map(|(at, x)| x * quiet(at))
        .collect();
    let norm = |epsilon: f64| -> Vec<f64> {
        let one = |row: &[f64]| {
            let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            row.iter()
                .map(|x| x / (square + epsilon).sqrt())
                .collect::<Vec<_>>()
        };
        x.chunks_exact(CHANNELS_OF_LARGE).flat_map(one).collect()
    };
    let of = |name, reference: &[f64], candidate: &[f64]| Recorded {
        name,
        dims: vec![rows, CHANNELS_OF_LARGE],
        reference: reference.to_vec(),
        candidate: candidate.to_vec(),
    };
    let report = report_as(
        DType::F32,
        &[of("x", &x, &x), of("norm", &norm(1e-5), &norm(1e-6))],
    );
    let found = pair(&report, "norm");
    assert_eq!(
        (found.verdict(), found.causes[0].kind.name()),
        (Verdict::Diverged, "row_scale"),
        "{:?}",
        found.causes
    );
    assert_eq!(found.causes[0].details.json()["candidate"], 1e-6);
}

const CHANNELS_OF_LARGE: usize = 256;

/// Softmax of queries and keys of four heads of ten, merged or as thirds of one tensor, and what it makes of the values.
fn attention(fused: bool, of_candidate: [usize; 3]) -> Judged {
    const HEADS: usize = 4;
    let parts = [1, 2, 3].map(|seed| normal(ROWS * CHANNELS, seed));
    let (tokens, size) = (ROWS / 2, CHANNELS / HEADS);
    let at = |b: usize, h: usize, s: usize, d: usize| ((b * tokens + s) * HEADS + h) * size + d;
    let run = |[q, k, v]: [usize; 3]| {
        let (mut probabilities, mut out) = (Vec::new(), vec![0.0; ROWS * CHANNELS]);
        for (b, h, s) in (0..2 * HEADS * tokens)
            .map(|row| (row / tokens / HEADS, row / tokens % HEADS, row % tokens))
        {
            let score = |t: usize| {
                (0..size)
                    .map(|d| parts[q][at(b, h, s, d)] * parts[k][at(b, h, t, d)])
                    .sum::<f64>()
                    / (size as f64).sqrt()
            };
            let seen: Vec<f64> = (0..tokens)
                .map(|t| if t <= s { score(t).exp() } else { 0.0 })
                .collect();
            let whole: f64 = seen.iter().sum();
            for (t, p) in seen.iter().enumerate() {
                probabilities.push(p / whole);
                (0..size).for_each(|d| out[at(b, h, s, d)] += p / whole * parts[v][at(b, h, t, d)]);
            }
        }
        (probabilities, out)
    };
    let ((p, out), (other_p, other_out)) = (run([0, 1, 2]), run(of_candidate));
    let mut records: Vec<(DType, Recorded, &[usize])> = Vec::new();
    let same = |name, dims: Vec<usize>, values: Vec<f64>| Recorded {
        name,
        dims,
        reference: values.clone(),
        candidate: values,
    };
    if fused {
        let rows = (0..ROWS).flat_map(|row| {
            parts
                .iter()
                .flat_map(move |part| part[row * CHANNELS..][..CHANNELS].to_vec())
        });
        records.push((
            DType::F32,
            same("c_attn", vec![2, tokens, 3 * CHANNELS], rows.collect()),
            &[],
        ));
    } else {
        for (name, part) in ["query", "key", "value"].into_iter().zip(&parts) {
            records.push((
                DType::F32,
                same(name, vec![2, tokens, CHANNELS], part.clone()),
                &[],
            ));
        }
    }
    // The values are not among what the output is said to be computed from, only what lies before the probabilities is.
    let dims = vec![2, HEADS, tokens, tokens];
    records.push((
        DType::F32,
        Recorded {
            name: "attn",
            dims,
            reference: p,
            candidate: other_p,
        },
        if fused { &[0] } else { &[0, 1] },
    ));
    records.push((
        DType::F32,
        recorded("out", out, other_out),
        if fused { &[0] } else { &[0, 1, 2] },
    ));
    report_of_flow(&records)
}

#[test]
fn queries_keys_and_values_in_each_others_place_are_told_also_in_a_fused_tensor() {
    for fused in [false, true] {
        let report = attention(fused, [1, 0, 2]);
        let attn = pair(&report, "attn");
        assert_eq!(
            (attn.origin(), attn.causes[0].kind.name()),
            (Some(Origin::Own), "swapped"),
            "fused {fused}: {:?}",
            attn.causes
        );
        // Found through the probabilities, which the run does not say it was computed from.
        assert_eq!(
            pair(&report, "out").origin(),
            Some(Origin::Inherited),
            "fused {fused}"
        );
        assert!(attention(fused, [0, 1, 2]).divergences().is_empty());
    }
    let report = attention(true, [0, 2, 1]);
    for name in ["attn", "out"] {
        let found = pair(&report, name);
        assert_eq!(
            (found.origin(), found.causes[0].kind.name()),
            (Some(Origin::Own), "swapped"),
            "{name}: {:?}",
            found.causes
        );
    }
}

#[test]
fn what_a_router_chooses_behind_a_fault_is_inherited() {
    let x = normal(ROWS * CHANNELS, 1);
    let wrong = map(&x, |x| -2.0 * x);
    let largest = |values: &[f64]| -> Vec<f64> {
        let one = |row: &[f64]| {
            (0..CHANNELS)
                .max_by(|a, b| row[*a].total_cmp(&row[*b]))
                .unwrap_or(0) as f64
        };
        values.chunks_exact(CHANNELS).map(one).collect()
    };
    let ids = Recorded {
        name: "topk.indices",
        dims: vec![2, ROWS / 2],
        reference: largest(&x),
        candidate: largest(&wrong),
    };
    let report = report_of_flow(&[
        (DType::F32, recorded("router", x, wrong), &[]),
        (DType::I64, ids, &[0]),
    ]);
    assert_eq!(pair(&report, "router").origin(), Some(Origin::Own));
    assert_eq!(
        pair(&report, "topk.indices").origin(),
        Some(Origin::Inherited)
    );
}

/// Enough rows that only some of them are looked at first.
const MANY_ROWS: usize = 2048;
const FEW_CHANNELS: usize = 128;

fn of_many_rows(name: &'static str, reference: Vec<f64>, candidate: Vec<f64>) -> Recorded {
    assert!(reference.len() > twinscope_ops::WHOLE);
    Recorded {
        name,
        dims: vec![1, MANY_ROWS, FEW_CHANNELS],
        reference,
        candidate,
    }
}

fn normed_rows(values: &[f64], epsilon: f64) -> Vec<f64> {
    let row = |row: &[f64]| {
        let factor =
            1.0 / (row.iter().map(|x| x * x).sum::<f64>() / FEW_CHANNELS as f64 + epsilon).sqrt();
        row.iter().map(|x| bf16(x * factor)).collect::<Vec<f64>>()
    };
    values.chunks_exact(FEW_CHANNELS).flat_map(row).collect()
}

/// Large tensors in bf16 with other noise in the candidate: a stream, its norm, an activation of that, and the sum of both.
fn large_run(epsilon: f64, activation: fn(f64) -> f64, fault: fn(usize, f64) -> f64) -> Judged {
    // One row of three hundred is so quiet that epsilon matters.
    let quiet = |at: usize| {
        if (at / FEW_CHANNELS) % 300 == 17 {
            0.003
        } else {
            1.0
        }
    };
    let x: Vec<f64> = normal(MANY_ROWS * FEW_CHANNELS, 3)
        .into_iter()
        .enumerate()
        .map(|(at, x)| bf16(x * quiet(at)))
        .collect();
    let noise = normal(x.len(), 4);
    let other: Vec<f64> = x
        .iter()
        .zip(noise)
        .enumerate()
        .map(|(at, (x, noise))| bf16(fault(at, x * (1.0 + 2e-3 * noise))))
        .collect();
    let (normed, other_normed) = (normed_rows(&x, 1e-6), normed_rows(&other, epsilon));
    let (act, other_act) = (
        map(&normed, |x| bf16(gelu(x))),
        map(&other_normed, |x| bf16(activation(x))),
    );
    let sum = |x: &[f64], y: &[f64]| {
        x.iter()
            .zip(y)
            .map(|(x, y)| bf16(x + y))
            .collect::<Vec<f64>>()
    };
    let (out, other_out) = (sum(&x, &act), sum(&other, &other_act));
    let run = [
        of_many_rows("x", x, other),
        of_many_rows("normed", normed, other_normed),
        of_many_rows("act", act, other_act),
        of_many_rows("out", out, other_out),
    ];
    report_as(DType::Bf16, &run)
}

#[test]
fn a_large_clean_run_stays_silent() {
    let report = large_run(1e-6, gelu, |_, x| x);
    assert!(
        report
            .pairs
            .iter()
            .all(|pair| pair.verdict() == Verdict::Rounding),
        "{:?}",
        report.pairs
    );
}

#[test]
fn what_is_below_the_noise_of_large_tensors_is_found_by_some_of_their_rows() {
    let report = large_run(1e-6, gelu_tanh, |_, x| x);
    let act = pair(&report, "act");
    assert_eq!(
        (
            report.divergences().len(),
            act.verdict(),
            act.causes[0].kind.name()
        ),
        (1, Verdict::Diverged, "function"),
        "{:?}",
        act.causes
    );
    let report = large_run(1e-5, gelu, |_, x| x);
    let normed = pair(&report, "normed");
    assert_eq!(
        (normed.verdict(), normed.causes[0].kind.name()),
        (Verdict::Diverged, "row_scale"),
        "{:?}",
        normed.causes
    );
    assert_eq!(normed.causes[0].details.json()["candidate"], 1e-5);
}

#[test]
fn a_residual_that_is_lost_before_a_relu_is_a_missing_term() {
    let (x, branch) = (normal(ROWS * CHANNELS, 1), normal(ROWS * CHANNELS, 2));
    let healthy: Vec<f64> = x
        .iter()
        .zip(&branch)
        .map(|(x, branch)| (x + branch).max(0.0))
        .collect();
    let lost = map(&branch, |branch| branch.max(0.0));
    let report = report_as(
        DType::F32,
        &[
            recorded("x", x.clone(), x),
            recorded("branch", branch.clone(), branch),
            recorded("block", healthy, lost),
        ],
    );
    let block = pair(&report, "block");
    assert_eq!(
        (block.verdict(), block.origin()),
        (Verdict::Diverged, Some(Origin::Own))
    );
    assert_eq!(
        (
            block.causes[0].kind.name(),
            &block.causes[0].details.json()["term"]
        ),
        ("missing_term", &serde_json::json!("x")),
        "{:?}",
        block.causes
    );
}

#[test]
fn what_only_depends_on_the_tokens_inherits_what_came_between() {
    // Eight tokens, some of them twice; the embedding is off by a factor, and a product with a weight that is not recorded passes it on.
    let ids: Vec<f64> = (0..ROWS).map(|row| (row * 5 % 8) as f64).collect();
    let table = normal(8 * CHANNELS, 3);
    let rows = |table: &[f64]| -> Vec<f64> {
        ids.iter()
            .flat_map(|id| table[*id as usize * CHANNELS..][..CHANNELS].to_vec())
            .collect()
    };
    let weight = normal(CHANNELS * CHANNELS, 4);
    let product = |row: &[f64]| -> Vec<f64> {
        (0..CHANNELS)
            .map(|out| {
                row.iter()
                    .zip(&weight[out * CHANNELS..])
                    .map(|(x, w)| x * w)
                    .sum::<f64>()
                    + 0.1 * weight[out]
            })
            .collect()
    };
    let embedded = rows(&table);
    let scaled = map(&embedded, |x| 8.0 * x);
    let of = |rows: &[f64]| {
        rows.chunks(CHANNELS)
            .flat_map(product)
            .collect::<Vec<f64>>()
    };
    let run: [(DType, Recorded); 3] = [
        (
            DType::I64,
            Recorded {
                name: "input_ids",
                dims: vec![2, ROWS / 2],
                reference: ids.clone(),
                candidate: ids.clone(),
            },
        ),
        (
            DType::F32,
            recorded("embedded", embedded.clone(), scaled.clone()),
        ),
        (
            DType::F32,
            recorded("projected", of(&embedded), of(&scaled)),
        ),
    ];
    let report = report_each(&run);
    assert_eq!(report.divergences().len(), 1, "{:?}", report.divergences());
    assert_eq!(pair(&report, "projected").origin(), Some(Origin::Inherited));
}

/// `out = x - y` of two that are nearly equal, in bf16: what both sides' own inputs make, but for `wrong` in the candidate.
fn nearly_equal(wrong: f64) -> Judged {
    let (x, small) = (normal(ROWS * CHANNELS, 1), normal(ROWS * CHANNELS, 2));
    let noise = normal(ROWS * CHANNELS, 3);
    let first = map(&x, bf16);
    let second: Vec<f64> = x
        .iter()
        .zip(&small)
        .map(|(x, small)| bf16(x + 0.05 * small))
        .collect();
    let drifted: Vec<f64> = second
        .iter()
        .zip(&noise)
        .map(|(x, noise)| bf16(x * (1.0 + 2e-3 * noise)))
        .collect();
    let apart = |with: &[f64], factor: f64| {
        with.iter()
            .zip(&first)
            .map(|(b, a)| bf16(b - factor * a))
            .collect::<Vec<f64>>()
    };
    let (out, of_candidate) = (apart(&second, 1.0), apart(&drifted, 1.0 + wrong));
    report_as(
        DType::Bf16,
        &[
            recorded("a", first.clone(), first.clone()),
            recorded("b", second, drifted),
            recorded("out", out, of_candidate),
        ],
    )
}

#[test]
fn the_difference_of_two_that_are_nearly_equal_amplifies_their_rounding() {
    let report = nearly_equal(0.0);
    assert!(
        pair(&report, "out").totals.as_ref().unwrap().rel_l2 > Some(0.02),
        "far more than rounding of its own"
    );
    assert_eq!(pair(&report, "out").verdict(), Verdict::Rounding);
    // Another factor is a fault, though it is no larger than that.
    let report = nearly_equal(0.002);
    assert_eq!(
        (
            pair(&report, "out").verdict(),
            pair(&report, "out").origin()
        ),
        (Verdict::Diverged, Some(Origin::Own))
    );
}

#[test]
fn a_moving_average_with_other_factors_is_its_own_divergence() {
    let (old, new) = (normal(ROWS * CHANNELS, 1), normal(ROWS * CHANNELS, 2));
    let wrong = map(&new, |new| 1.5 * new);
    let average = |new: &[f64], decay: f64| {
        old.iter()
            .zip(new)
            .map(|(old, new)| decay * old + (1.0 - decay) * new)
            .collect::<Vec<f64>>()
    };
    for (decay, origin) in [(0.9, Origin::Inherited), (0.8, Origin::Own)] {
        let report = report_as(
            DType::F32,
            &[
                recorded("m", old.clone(), old.clone()),
                recorded("g", new.clone(), wrong.clone()),
                recorded("next", average(&new, 0.9), average(&wrong, decay)),
            ],
        );
        assert_eq!(pair(&report, "next").origin(), Some(origin));
    }
}

#[test]
fn a_table_in_single_precision_is_beside_one_in_double_only_rounded() {
    // One decoded token: its embedding and that of its position added in f32, and in f64.
    let (token, position) = (normal(CHANNELS, 1), normal(CHANNELS, 2));
    let single = |value: f64| f64::from(value as f32);
    let sum: Vec<f64> = token
        .iter()
        .zip(&position)
        .map(|(t, p)| single(*t) + single(*p))
        .collect();
    let run = |candidate: Vec<f64>| {
        let ids = Recorded {
            name: "token",
            dims: vec![1, 1],
            reference: vec![7.0],
            candidate: vec![7.0],
        };
        let embedded = Recorded {
            name: "h",
            dims: vec![1, 1, CHANNELS],
            reference: map(&sum, single),
            candidate,
        };
        report_each_side(&[([DType::I64; 2], ids), ([DType::F32, DType::F64], embedded)])
    };
    let healthy = run(sum.clone());
    assert_eq!(
        pair(&healthy, "h").verdict(),
        Verdict::Rounding,
        "{:?}",
        pair(&healthy, "h").causes
    );
    let wrong = run(map(&sum, |value| 1.001 * value));
    assert_eq!(
        (
            pair(&wrong, "h").verdict(),
            pair(&wrong, "h").causes[0].kind.name()
        ),
        (Verdict::Diverged, "scale")
    );
}

#[test]
fn complex_numbers_are_examined_as_what_they_are_made_of() {
    let spectrum = normal(2 * ROWS * 6, 1);
    let run = |candidate: Vec<f64>| {
        let one = Recorded {
            name: "fft",
            dims: vec![ROWS, 6],
            reference: spectrum.clone(),
            candidate,
        };
        report_as(DType::C64, &[one])
    };
    let scaled = run(map(&spectrum, |value| value / 8.0));
    assert_eq!(
        (
            scaled.pairs[0].verdict(),
            scaled.pairs[0].causes[0].kind.name()
        ),
        (Verdict::Diverged, "scale")
    );
    let conjugated = run(spectrum
        .iter()
        .enumerate()
        .map(|(at, value)| if at % 2 == 1 { -value } else { *value })
        .collect());
    let cause = &conjugated.pairs[0].causes[0];
    assert_ne!(cause.kind.name(), "scale", "{cause:?}");
    assert_eq!(conjugated.pairs[0].verdict(), Verdict::Diverged);
}

#[test]
fn a_cap_that_rounding_undoes_in_bf16_is_no_other_cap() {
    use crate::functions::softcap;
    for seed in 0..4 {
        let logits = normal(ROWS * CHANNELS, 81 + seed);
        let drifted: Vec<f64> = logits
            .iter()
            .zip(normal(ROWS * CHANNELS, 91 + seed))
            .map(|(x, n)| bf16(x * (1.0 + 2e-3 * n)))
            .collect();
        // As bf16 computes it: every step is rounded, and what is taken off a small number is lost.
        let staged = |x: f64| bf16(30.0 * bf16(bf16(x / 30.0).tanh()));
        let run = |of_candidate: &dyn Fn(f64) -> f64| {
            let capped = recorded(
                "capped",
                map(&logits, |x| softcap(x, 30.0)),
                map(&drifted, of_candidate),
            );
            report_mixed(
                [DType::F32, DType::Bf16],
                &[recorded("logits", logits.clone(), drifted.clone()), capped],
            )
        };
        let report = run(&staged);
        assert_eq!(
            pair(&report, "capped").verdict(),
            Verdict::Rounding,
            "{:?}",
            pair(&report, "capped").causes
        );
        let report = run(&|x| bf16(softcap(x, 5.0)));
        assert_eq!(pair(&report, "capped").causes[0].kind.name(), "function");
    }
}

#[test]
fn a_fault_beside_a_nan_that_came_with_the_inputs_is_its_own() {
    let (gate, mut wrong) = (normal(ROWS * CHANNELS, 2), normal(ROWS * CHANNELS, 2));
    wrong[77] = f64::NAN;
    let with = |of_candidate: fn(f64) -> f64| {
        let act = (map(&gate, silu), map(&wrong, of_candidate));
        report_as(
            DType::F32,
            &[
                recorded("gate", gate.clone(), wrong.clone()),
                recorded("act", act.0, act.1),
            ],
        )
    };
    assert_eq!(pair(&with(silu), "act").origin(), Some(Origin::Inherited));
    assert_eq!(pair(&with(gelu), "act").origin(), Some(Origin::Own));
}

#[test]
fn rounding_beside_a_nan_is_no_second_fault() {
    let x = map(&normal(ROWS * CHANNELS, 1), |x| f64::from(x as f32));
    let mut wrong = x.clone();
    wrong[77] = f64::NAN;
    let position = normal(ROWS * CHANNELS, 2);
    let sum = |x: &[f64]| {
        x.iter()
            .zip(&position)
            .map(|(x, p)| x + p)
            .collect::<Vec<_>>()
    };
    let (of_reference, of_candidate) = (sum(&x), sum(&wrong));
    let report = report_mixed(
        [DType::F64, DType::F32],
        &[
            recorded("x", x, wrong),
            recorded("sum", of_reference, of_candidate),
        ],
    );
    assert_eq!(pair(&report, "sum").origin(), Some(Origin::Inherited));
    assert_eq!(report.divergences().len(), 1);
}

/// With so much noise of its own.
fn off_by(values: &[f64], noise: f64, seed: u64) -> Vec<f64> {
    values
        .iter()
        .zip(normal(values.len(), seed))
        .map(|(value, off)| value + noise * off)
        .collect()
}

#[test]
fn a_norm_of_results_in_f64_is_known() {
    let x = normal(ROWS * CHANNELS, 1);
    let wrong = off_by(&x, 0.3, 2);
    let weight = map(&normal(CHANNELS, 9), |w| 1.0 + 0.2 * w);
    let centred = wrong.chunks_exact(CHANNELS).flat_map(|row| {
        let mean = row.iter().sum::<f64>() / CHANNELS as f64;
        row.iter().map(move |x| x - mean).collect::<Vec<_>>()
    });
    let normed = |values: &[f64]| rms_norm(values, 1e-6, &weight, |x| x);
    for (of_candidate, origin) in [
        (normed(&wrong), Origin::Inherited),
        (normed(&centred.collect::<Vec<_>>()), Origin::Own),
    ] {
        let run = [
            recorded("x", x.clone(), wrong.clone()),
            recorded("normed", normed(&x), of_candidate),
        ];
        assert_eq!(
            pair(&report_mixed([DType::F64, DType::F32], &run), "normed").origin(),
            Some(origin)
        );
    }
}

#[test]
fn a_cap_of_ten_is_one_that_people_use() {
    let x = map(&normal(ROWS * CHANNELS, 1), |x| 6.0 * x);
    let wrong = off_by(&x, 2.0, 2);
    let capped = |values: &[f64], cap: f64| map(values, |x| cap * (x / cap).tanh());
    for (cap, origin) in [(10.0, Origin::Inherited), (12.0, Origin::Own)] {
        let run = [
            recorded("x", x.clone(), wrong.clone()),
            recorded("capped", capped(&x, 10.0), capped(&wrong, cap)),
        ];
        assert_eq!(
            pair(&report_as(DType::F32, &run), "capped").origin(),
            Some(origin)
        );
    }
}

/// A gate that is wrong, what an activation makes of it, and a tensor whose op is not recorded.
fn behind_a_wrong_gate(
    of_reference: impl Fn(&[f64]) -> Vec<f64>,
    of_candidate: impl Fn(&[f64], &[f64]) -> Vec<f64>,
) -> Judged {
    let gate = normal(ROWS * CHANNELS, 1);
    let wrong = off_by(&gate, 0.25, 2);
    let (act, wrong_act) = (map(&gate, silu), map(&wrong, silu));
    let out = (of_reference(&act), of_candidate(&wrong, &wrong_act));
    report_as(
        DType::F32,
        &[
            recorded("gate", gate, wrong),
            recorded("act", act, wrong_act),
            recorded("out", out.0, out.1),
        ],
    )
}

#[test]
fn a_copy_behind_a_fault_is_the_wrong_tensor() {
    let weight = normal(CHANNELS * CHANNELS, 5);
    let report = behind_a_wrong_gate(
        |act| times(act, &weight, 0..CHANNELS),
        |gate, _| gate.to_vec(),
    );
    let out = pair(&report, "out");
    assert_eq!(
        (out.origin(), out.causes[0].kind.name()),
        (Some(Origin::Own), "wrong_tensor"),
        "{:?}",
        out.causes
    );
}

#[test]
fn tokens_that_are_shifted_behind_a_fault_are_a_second_one() {
    let weight = map(&normal(CHANNELS * CHANNELS, 5), |w| {
        w / (CHANNELS as f64).sqrt()
    });
    let product = |act: &[f64]| times(act, &weight, 0..CHANNELS);
    let shifted = |_: &[f64], act: &[f64]| {
        let half = ROWS / 2 * CHANNELS;
        product(act)
            .chunks_exact(half)
            .flat_map(|batch| [&batch[half - CHANNELS..], &batch[..half - CHANNELS]].concat())
            .collect()
    };
    let out = behind_a_wrong_gate(product, |_, act| product(act));
    assert_eq!(pair(&out, "out").origin(), Some(Origin::Inherited));
    let report = behind_a_wrong_gate(product, shifted);
    let out = pair(&report, "out");
    assert_eq!(
        (out.origin(), out.causes[0].kind.name()),
        (Some(Origin::Own), "shifted"),
        "{:?}",
        out.causes
    );
}

#[test]
fn attention_is_known_where_only_its_output_has_the_heads_apart() {
    const TOKENS: usize = 16;
    const HEADS: usize = 4;
    const SIZE: usize = 8;
    let of = |seed: u64| normal(2 * TOKENS * HEADS * SIZE, seed);
    let [q, k, v] = [1, 2, 3].map(of);
    let [wrong_q, wrong_k, wrong_v] =
        [(&q, 4), (&k, 5), (&v, 6)].map(|(values, seed)| off_by(values, 0.3, seed));
    let attend = |[q, k, v]: [&[f64]; 3], window: usize| {
        let mut out = Vec::new();
        for run in 0..2 * HEADS * TOKENS {
            let (b, h, s) = (run / TOKENS / HEADS, run / TOKENS % HEADS, run % TOKENS);
            let at = |t: usize| ((b * TOKENS + t) * HEADS + h) * SIZE;
            let score = |t: usize| {
                (0..SIZE).map(|d| q[at(s) + d] * k[at(t) + d]).sum::<f64>() / (SIZE as f64).sqrt()
            };
            let weights: Vec<f64> = (0..TOKENS)
                .map(|t| {
                    if s.abs_diff(t) < window {
                        score(t).exp()
                    } else {
                        0.0
                    }
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            out.extend((0..SIZE).map(|d| {
                (0..TOKENS)
                    .map(|t| weights[t] / sum * v[at(t) + d])
                    .sum::<f64>()
            }));
        }
        out
    };
    for (window, origin) in [(TOKENS, Origin::Inherited), (4, Origin::Own)] {
        let merged = |name, reference: &[f64], candidate: &[f64]| Recorded {
            name,
            dims: vec![2, TOKENS, HEADS * SIZE],
            reference: reference.to_vec(),
            candidate: candidate.to_vec(),
        };
        let out = Recorded {
            name: "out",
            dims: vec![2, HEADS, TOKENS, SIZE],
            reference: attend([&q, &k, &v], TOKENS),
            candidate: attend([&wrong_q, &wrong_k, &wrong_v], window),
        };
        let report = report_as(
            DType::F32,
            &[
                merged("q", &q, &wrong_q),
                merged("k", &k, &wrong_k),
                merged("v", &v, &wrong_v),
                out,
            ],
        );
        assert_eq!(pair(&report, "out").origin(), Some(origin), "{window}");
    }
}

#[test]
fn weights_that_a_coarse_reference_told_do_not_judge_a_finer_candidate() {
    // One channel is loud and nearly constant: its weight and its bias are hardly told apart in bf16.
    let loud = |(at, x): (usize, f64)| {
        bf16(if at % CHANNELS == 0 {
            5.0 + 0.02 * x
        } else {
            x
        })
    };
    let x: Vec<f64> = normal(ROWS * CHANNELS, 1)
        .into_iter()
        .enumerate()
        .map(loud)
        .collect();
    let wrong = normal(ROWS * CHANNELS, 2);
    let (weight, bias) = (
        map(&normal(CHANNELS, 3), |w| 1.0 + 0.2 * w),
        map(&normal(CHANNELS, 4), |b| 0.2 * b),
    );
    let normed = |values: &[f64], round: fn(f64) -> f64| -> Vec<f64> {
        let mut out = Vec::new();
        for row in values.chunks_exact(CHANNELS) {
            let mean = row.iter().sum::<f64>() / CHANNELS as f64;
            let size = (row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / CHANNELS as f64
                + 1e-5)
                .sqrt();
            out.extend(
                row.iter()
                    .zip(weight.iter().zip(&bias))
                    .map(|(x, (w, b))| round((x - mean) / size * round(*w) + round(*b))),
            );
        }
        out
    };
    let (of_reference, of_candidate) = (normed(&x, bf16), normed(&wrong, |x| x));
    let report = report_mixed(
        [DType::Bf16, DType::F32],
        &[
            recorded("x", x, wrong),
            recorded("normed", of_reference, of_candidate),
        ],
    );
    assert_eq!(pair(&report, "normed").origin(), Some(Origin::Inherited));
}

#[test]
fn a_tolerance_decides_alone() {
    let (x, y) = (normal(ROWS * CHANNELS, 1), normal(ROWS * CHANNELS, 2));
    let sum = |factor: f64| {
        x.iter()
            .zip(&y)
            .map(|(x, y)| x + factor * y)
            .collect::<Vec<f64>>()
    };
    let run = || {
        [
            recorded("x", x.clone(), x.clone()),
            recorded("y", y.clone(), y.clone()),
            recorded("sum", sum(1.0), sum(0.0)),
        ]
    };
    let with = |atol: Option<f64>| {
        let report = report_set(
            &Settings {
                atol,
                ..Settings::default()
            },
            [DType::F32; 2],
            &run(),
        );
        (
            pair(&report, "sum").verdict(),
            pair(&report, "sum")
                .causes
                .first()
                .map(|cause| cause.kind.clone()),
        )
    };
    assert_eq!(with(None).0, Verdict::Diverged);
    assert_eq!(with(Some(1e9)), (Verdict::Rounding, None));
    assert_eq!(with(Some(1e-9)), with(None));
}

#[test]
fn a_cache_that_is_still_empty_is_no_input() {
    let (tokens, heads, size) = (5, 8, 4);
    for empty in [
        vec![1, heads, 0, size],
        vec![1, 0, heads, size],
        vec![heads, tokens, 0],
        vec![0, tokens, size],
    ] {
        let q = normal(heads * tokens * size, 1);
        let wrong = map(&q, |q| 1.7 * q);
        let nothing = |name| Recorded {
            name,
            dims: empty.clone(),
            reference: Vec::new(),
            candidate: Vec::new(),
        };
        let heads = |name, reference, candidate| Recorded {
            name,
            dims: vec![1, heads, tokens, size],
            reference,
            candidate,
        };
        let run = [
            nothing("past_k"),
            nothing("past_v"),
            nothing("past"),
            heads("q", q.clone(), q.clone()),
            heads("out", q, wrong),
        ];
        assert_eq!(
            pair(&report_as(DType::F32, &run), "out").causes[0]
                .kind
                .name(),
            "scale",
            "{empty:?}"
        );
    }
}

#[test]
fn squares_beyond_f64_are_examined_without_a_panic() {
    let mut reference = normal(24, 1);
    reference[7] = 1e300;
    let candidate = map(&reference, |value| value * 1.01 + 0.1);
    let run = [Recorded {
        name: "x",
        dims: vec![4, 6],
        reference,
        candidate,
    }];
    let report = report_as(DType::F64, &run);
    assert_eq!(report.pairs[0].verdict(), Verdict::Diverged);
    assert!(
        report.pairs[0]
            .causes
            .iter()
            .all(|cause| cause.explained.is_none_or(f64::is_finite)),
        "{:?}",
        report.pairs[0].causes
    );
}
