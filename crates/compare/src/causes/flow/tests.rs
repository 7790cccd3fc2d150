//! Small networks by hand: what is inherited, what is not, and what is below the noise.

use crate::{
    causes::{
        functions::{gelu, gelu_tanh, silu},
        testing::{Recorded, normal, report_as},
    },
    report::{PairReport, Report},
    verdict::{Origin, Verdict},
};
use twinscope_tensor::DType;

const ROWS: usize = 96;
const CHANNELS: usize = 40;

/// To the nearest bf16.
fn bf16(value: f64) -> f64 {
    let bits = (value as f32).to_bits();
    f64::from(f32::from_bits((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff_0000))
}

fn recorded(name: &'static str, reference: Vec<f64>, candidate: Vec<f64>) -> Recorded {
    Recorded { name, dims: vec![2, ROWS / 2, CHANNELS], reference, candidate }
}

fn pair<'a>(report: &'a Report, name: &str) -> &'a PairReport {
    report.pairs.iter().find(|pair| pair.name == name).unwrap()
}

fn map(values: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    values.iter().map(|value| f(*value)).collect()
}

/// `x`, a gate that is 1.5 times too large in the candidate, and what an activation makes of it on each side.
fn behind_a_fault(of_candidate: fn(f64) -> f64) -> Report {
    let x = normal(ROWS * CHANNELS, 1);
    let gate = normal(ROWS * CHANNELS, 2);
    let wrong = map(&gate, |gate| 1.5 * gate);
    let (act, candidate_act) = (map(&gate, silu), map(&wrong, of_candidate));
    report_as(DType::F32, &[recorded("x", x.clone(), x), recorded("gate", gate, wrong), recorded("act", act, candidate_act)])
}

#[test]
fn what_follows_from_wrong_inputs_is_inherited() {
    let report = behind_a_fault(silu);
    assert_eq!(pair(&report, "gate").origin, Some(Origin::Own));
    assert_eq!((pair(&report, "act").verdict, pair(&report, "act").origin), (Verdict::Diverged, Some(Origin::Inherited)));
    assert_eq!(report.divergences().len(), 1);
}

#[test]
fn a_second_fault_behind_the_first_is_found_and_named() {
    let report = behind_a_fault(gelu);
    let act = pair(&report, "act");
    assert_eq!((report.divergences().len(), act.origin), (2, Some(Origin::Own)));
    assert_eq!(act.causes[0].kind, "function", "{:?}", act.causes);
    assert_eq!(act.causes[0].details["reference"], "silu");
}

/// Both sides in bf16, the candidate with other noise upstream, and an activation of it.
fn noisy_activation(of_candidate: fn(f64) -> f64, seed: u64) -> Report {
    let gate = map(&normal(ROWS * CHANNELS, seed), |gate| bf16(1.5 * gate));
    let noise = normal(ROWS * CHANNELS, seed + 100);
    let drifted: Vec<f64> = gate.iter().zip(noise).map(|(gate, noise)| bf16(gate * (1.0 + 2e-3 * noise))).collect();
    let (act, candidate_act) = (map(&gate, |gate| bf16(gelu(gate))), map(&drifted, |gate| bf16(of_candidate(gate))));
    report_as(DType::Bf16, &[recorded("gate", gate, drifted), recorded("act", act, candidate_act)])
}

#[test]
fn a_gelu_of_another_kind_is_found_below_bf16_noise() {
    for seed in 1..6 {
        let report = noisy_activation(gelu_tanh, seed);
        let act = pair(&report, "act");
        assert_eq!((act.verdict, act.origin), (Verdict::Diverged, Some(Origin::Own)), "seed {seed}");
        assert_eq!((act.causes[0].kind, &act.causes[0].details["candidate"]), ("function", &"gelu (tanh)".into()));
    }
}

#[test]
fn a_clean_run_stays_silent_below_the_noise() {
    for seed in 1..12 {
        let report = noisy_activation(gelu, seed);
        assert_eq!(pair(&report, "act").verdict, Verdict::Rounding, "seed {seed}: {:?}", pair(&report, "act").causes);
    }
}

fn rms_norm(values: &[f64], epsilon: f64, weight: &[f64], round: fn(f64) -> f64) -> Vec<f64> {
    let mut out = Vec::new();
    for row in values.chunks_exact(CHANNELS) {
        let square = row.iter().map(|x| x * x).sum::<f64>() / CHANNELS as f64;
        out.extend(row.iter().zip(weight).map(|(x, w)| round(x / (square + epsilon).sqrt() * w)));
    }
    out
}

/// A norm in bf16 over rows some of which are quiet, with the candidate's epsilon.
fn noisy_norm(epsilon: f64, seed: u64) -> Report {
    let quiet = |at: usize| if (at / CHANNELS).is_multiple_of(3) { 0.01 } else { 1.0 };
    let x: Vec<f64> = normal(ROWS * CHANNELS, seed).into_iter().enumerate().map(|(at, x)| bf16(x * quiet(at))).collect();
    let noise = normal(ROWS * CHANNELS, seed + 100);
    let drifted: Vec<f64> = x.iter().zip(noise).map(|(x, noise)| bf16(x * (1.0 + 2e-3 * noise))).collect();
    let weight = map(&normal(CHANNELS, 9), |w| 1.0 + 0.2 * w);
    let (normed, other) = (rms_norm(&x, 1e-6, &weight, bf16), rms_norm(&drifted, epsilon, &weight, bf16));
    report_as(DType::Bf16, &[recorded("x", x, drifted), recorded("normed", normed, other)])
}

#[test]
fn another_epsilon_is_found_below_bf16_noise_and_the_same_one_is_not() {
    for seed in 1..6 {
        let report = noisy_norm(1e-5, seed);
        let normed = pair(&report, "normed");
        assert_eq!(normed.verdict, Verdict::Diverged, "seed {seed}");
        assert_eq!(normed.causes[0].kind, "row_scale", "{:?}", normed.causes);
        assert_eq!(normed.causes[0].details["candidate"], 1e-5, "{:?}", normed.causes);
        assert_eq!(pair(&noisy_norm(1e-6, seed), "normed").verdict, Verdict::Rounding, "seed {seed}");
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
        &[recorded("x", x.clone(), x.clone()), recorded("branch", branch, wrong), recorded("sum", of_reference, of_candidate)],
    );
    assert_eq!(pair(&report, "sum").origin, Some(Origin::Inherited));
    assert_eq!(report.first_divergence().map(|at| report.pairs[at].name.clone()).as_deref(), Some("branch"));
}

#[test]
fn one_wrong_constant_among_many_is_no_harmless_difference() {
    let constants: Vec<Recorded> = ["a", "b", "c", "d", "e"]
        .into_iter()
        .enumerate()
        .map(|(nth, name)| {
            let reference = vec![nth as f64 + 1.0; ROWS * CHANNELS];
            let candidate = map(&reference, |value| if name == "c" { value * 1.0001 } else { value });
            recorded(name, reference, candidate)
        })
        .collect();
    let report = report_as(DType::F32, &constants);
    assert_eq!((pair(&report, "c").verdict, pair(&report, "c").origin), (Verdict::Diverged, Some(Origin::Own)));
}
