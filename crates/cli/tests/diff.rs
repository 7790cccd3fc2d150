//! `twinscope diff`: exit code, stdout and stderr, on sources small enough to check by hand.

mod common;

use common::{Folder, bf16s, command, f32s, i64s, npy, safetensors};
use insta::assert_snapshot;
use serde_json::Value;
use std::process::Stdio;

/// Numbers without a pattern, always the same: between -1 and 1.
fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A folder with `reference.npy` and `candidate.npy`, a rule that pairs them whatever their names.
fn two(reference: Vec<u8>, candidate: Vec<u8>) -> Folder {
    let folder = Folder::new();
    folder.write("r/x.npy", &reference);
    folder.write("c/x.npy", &candidate);
    folder
}

fn json(folder: &Folder, args: &[&str]) -> (i32, Value) {
    let output = folder.output(args);
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    });
    (output.status.code().expect("an exit code"), value)
}

/// Exit code, the pair's verdict, its layout and whether every value is the same.
fn verdict(reference: Vec<u8>, candidate: Vec<u8>) -> (i32, String, String, Option<u64>) {
    let (code, report) = json(&two(reference, candidate), &["diff", "r", "c", "--json"]);
    let pair = &report["pairs"][0];
    assert_eq!(
        report["pairs"].as_array().map(Vec::len),
        Some(1),
        "{report}"
    );
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (
        code,
        text(&pair["verdict"]),
        text(&pair["layout"]["text"]),
        pair["totals"]["differing"].as_u64(),
    )
}

/// A dump of a network whose files are counted, `debug` being one that not everybody has.
fn counted(folder: &Folder, to: &str, debug: bool, fault: bool) {
    let mut count = 0;
    let mut record = |name: &str, values: &[f32]| {
        folder.write(
            &format!("{to}/{count:03}_{name}.npy"),
            &npy("<f4", &[8, 16], &f32s(values)),
        );
        count += 1;
    };
    let mut x = noise(1, 128);
    record("embed", &x);
    for layer in 0..3u64 {
        let add = |x: &mut Vec<f32>, seed: u64| {
            x.iter_mut()
                .zip(noise(seed, 128))
                .for_each(|(x, n)| *x += n);
        };
        add(&mut x, 10 + layer);
        record("Attention", &x);
        if debug && layer == 0 {
            record("Debug", &noise(77, 128));
        }
        if fault && layer == 1 {
            x[3] += 1.0;
        }
        add(&mut x, 20 + layer);
        record("Linear", &x);
        record(
            &format!("layers.{layer}.input_layernorm"),
            &x.iter().map(|x| x / 2.0).collect::<Vec<f32>>(),
        );
    }
}

#[test]
fn counted_files_are_in_their_order_and_pair_without_their_counts() {
    let folder = Folder::new();
    counted(&folder, "r", false, false);
    counted(&folder, "same", false, true);
    counted(&folder, "more", true, true);
    let (code, report) = json(&folder, &["diff", "r", "same", "--json"]);
    assert_eq!(
        (code, &report["first_divergence"]["name"]),
        (1, &Value::from("005_Linear")),
        "{report}"
    );
    let (code, report) = json(&folder, &["diff", "r", "more", "--json"]);
    assert_eq!(
        (code, &report["first_divergence"]["name"]),
        (1, &Value::from("005_Linear")),
        "{report}"
    );
    let pairs = report["pairs"].as_array().expect("pairs");
    for (at, pair) in pairs.iter().enumerate() {
        // `Debug` comes third.
        let (reference, candidate) = (
            pair["reference"].as_str().expect("a name"),
            pair["candidate"].as_str().expect("a name"),
        );
        assert_eq!(
            (&reference[..3], &candidate[..3]),
            (
                &*format!("{at:03}"),
                &*format!("{:03}", at + usize::from(at > 1))
            ),
            "{report}"
        );
        assert_eq!(reference[3..], candidate[3..]);
    }
    assert_eq!(pairs.len(), 10);
    assert_eq!(
        report["only_candidate"].as_array().map(Vec::len),
        Some(1),
        "{report}"
    );
}

/// A run of eight steps in f32 arrays, of which those in `rounded` were rounded to bf16; one channel of step 4 may be wrong.
fn kept_in_f32(folder: &Folder, to: &str, rounded: std::ops::Range<u64>, fault: bool) {
    let mut x = noise(1, 256);
    for step in 0..8 {
        x.iter_mut()
            .zip(noise(10 + step, 256))
            .for_each(|(x, n)| *x = 0.9 * *x + n);
        if fault && step == 4 {
            x.iter_mut().step_by(16).for_each(|x| *x += 0.5);
        }
        if rounded.contains(&step) {
            x.iter_mut()
                .for_each(|x| *x = f32::from_bits((x.to_bits() + 0x8000) & 0xffff_0000));
        }
        folder.write(
            &format!("{to}/layers.{step}.out.npy"),
            &npy("<f4", &[16, 16], &f32s(&x)),
        );
    }
}

#[test]
fn a_run_in_bf16_that_was_dumped_as_f32_is_judged_as_bf16() {
    let folder = Folder::new();
    kept_in_f32(&folder, "f32", 0..0, false);
    kept_in_f32(&folder, "bf16", 0..8, false);
    kept_in_f32(&folder, "fault", 0..8, true);
    kept_in_f32(&folder, "downcast", 5..6, false);
    let (code, report) = json(&folder, &["diff", "f32", "bf16", "--json"]);
    assert_eq!(
        (code, &report["computed_in"]),
        (0, &serde_json::json!([null, "bf16"])),
        "{report}"
    );
    let output = folder.output(&["diff", "f32", "bf16"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("the candidate was computed in bf16 and recorded wider"),
        "{text}"
    );
    let (code, report) = json(&folder, &["diff", "f32", "fault", "--json"]);
    assert_eq!(
        (code, &report["first_divergence"]["name"]),
        (1, &Value::from("layers.4.out")),
        "{report}"
    );
    // One op of it is a hidden downcast.
    let (code, report) = json(&folder, &["diff", "f32", "downcast", "--json"]);
    let first = &report["pairs"][5];
    assert_eq!(
        (code, &report["computed_in"], &first["verdict"]),
        (
            1,
            &serde_json::json!([null, null]),
            &Value::from("diverged")
        ),
        "{report}"
    );
    assert_eq!(first["causes"][0]["kind"], "rounded", "{report}");
}

#[test]
fn weights_that_were_rounded_and_kept_in_f32_agree_and_another_scale_does_not() {
    let folder = Folder::new();
    for layer in 0..6u64 {
        let weight = noise(20 + layer, 256);
        let rounded: Vec<f32> = weight
            .iter()
            .map(|x| f32::from_bits((x.to_bits() + 0x8000) & 0xffff_0000))
            .collect();
        let scaled: Vec<f32> = rounded
            .iter()
            .map(|x| {
                if layer == 3 {
                    f32::from_bits((x * 1.007).to_bits() & 0xffff_0000)
                } else {
                    *x
                }
            })
            .collect();
        for (to, values) in [("r", &weight), ("rounded", &rounded), ("scaled", &scaled)] {
            folder.write(
                &format!("{to}/layers.{layer}.fc.weight.npy"),
                &npy("<f4", &[16, 16], &f32s(values)),
            );
        }
    }
    let (code, report) = json(&folder, &["diff", "r", "rounded", "--json"]);
    assert_eq!(
        (code, &report["computed_in"]),
        (0, &serde_json::json!([null, "bf16"])),
        "{report}"
    );
    let (code, report) = json(&folder, &["diff", "r", "scaled", "--json"]);
    assert_eq!(
        (code, &report["first_divergence"]["name"]),
        (1, &Value::from("layers.3.fc.weight")),
        "{report}"
    );
}

/// The values of `shape` read in another order of its dimensions: `order[i]` is the source of dimension `i`.
fn permuted(values: &[f32], shape: &[usize], order: &[usize]) -> Vec<f32> {
    let strides: Vec<usize> = (0..shape.len())
        .map(|axis| shape[axis + 1..].iter().product())
        .collect();
    let dims: Vec<usize> = order.iter().map(|axis| shape[*axis]).collect();
    let place = |mut flat: usize| {
        let mut at = 0;
        for axis in (0..dims.len()).rev() {
            at += flat % dims[axis] * strides[order[axis]];
            flat /= dims[axis];
        }
        at
    };
    (0..values.len()).map(|flat| values[place(flat)]).collect()
}

/// A small run of two layers, healthy or with one stage off by this factor.
fn run(fault: f32) -> Vec<u8> {
    let mut tensors = Vec::new();
    let names = [
        "0_query",
        "0_key",
        "0_post_attn",
        "0_post_mlp",
        "1_query",
        "1_key",
        "1_post_attn",
        "1_post_mlp",
    ];
    for (at, name) in names.iter().enumerate() {
        let scale = if at >= 4 { fault } else { 1.0 };
        let values: Vec<f32> = noise(at as u64 + 1, 24)
            .iter()
            .map(|value| value * scale)
            .collect();
        tensors.push((*name, "F32", &[4u64, 6][..], f32s(&values)));
    }
    safetensors(&tensors)
}

fn runs(fault: f32) -> Folder {
    let folder = Folder::new();
    folder.write("a.safetensors", &run(1.0));
    folder.write("b.safetensors", &run(fault));
    folder
}

#[test]
fn equal_sources_agree() {
    assert_snapshot!(runs(1.0).run(&["diff", "a.safetensors", "b.safetensors"]), @r"
    exit code: 0
    ----- stdout -----
    AGREE: 8 pairs, all identical
    rel L2  ········  (log, ▁ 1e-3 to █ 1; · identical)
    ----- stderr -----
    ");
}

#[test]
fn the_first_divergence_is_named_with_its_numbers() {
    assert_snapshot!(runs(1.5).run(&["diff", "a.safetensors", "b.safetensors"]), @r"
    exit code: 1
    ----- stdout -----
    DIVERGED at 1_query (pair 5 of 8): rel L2 0.5; the 4 before it agree exactly
    Why: candidate = reference x 1.5, which is 3/2; explains 100.000 % of the difference
    rel L2  ····▇▇▇▇  (log, ▁ 1e-3 to █ 1; · identical)
                ^ 1_query
    8 pairs: 4 identical, 4 diverged (1 by itself, 3 inherited)

    #  name         shape   dtype  rel L2  max abs  cosine  verdict
    2  0_key        [4, 6]  f32         0        0       1  identical
    3  0_post_attn  [4, 6]  f32         0        0       1  identical
    4  0_post_mlp   [4, 6]  f32         0        0       1  identical
    5  1_query      [4, 6]  f32       0.5     0.48       1  diverged
    6  1_key        [4, 6]  f32       0.5     0.47       1  diverged (inherited)
    7  1_post_attn  [4, 6]  f32       0.5     0.47       1  diverged (inherited)
    8  1_post_mlp   [4, 6]  f32       0.5     0.49       1  diverged (inherited)
    ... and 1 more pair; --all shows every one
    ----- stderr -----
    ");
}

#[test]
fn a_fault_of_the_last_rank_is_named_before_what_the_ranks_make_of_it() {
    let folder = Folder::new();
    for (side, fault) in [("a", 1.0f32), ("b", 1.5)] {
        for rank in 0..2 {
            let tensor = |name: &'static str, seed: u64, scale: f32| {
                let values: Vec<f32> = noise(seed, 24).iter().map(|value| value * scale).collect();
                (name, "F32", &[4u64, 6][..], f32s(&values))
            };
            let query = tensor("0_query", 10 + rank, if rank == 1 { fault } else { 1.0 });
            // All ranks have the sum of all.
            let all = tensor("0_post_attn", 5, fault);
            folder.write(
                &format!("{side}/rank{rank}.safetensors"),
                &safetensors(&[query, all]),
            );
        }
    }
    let (_, report) = json(&folder, &["diff", "a", "b", "--json"]);
    assert_eq!(
        report["first_divergence"]["name"], "rank1.0_query",
        "{}",
        report["first_divergence"]
    );
}

#[test]
fn ranks_that_were_not_recorded_are_told() {
    let folder = Folder::new();
    let values = noise(3, 8 * 6);
    let part = |rows: std::ops::Range<usize>| f32s(&values[rows.start * 6..rows.end * 6]);
    folder.write(
        "whole.safetensors",
        &safetensors(&[("w", "F32", &[8, 6], part(0..8))]),
    );
    for rank in 0..4 {
        let shard = safetensors(&[("w", "F32", &[2, 6], part(2 * rank..2 * rank + 2))]);
        folder.write(&format!("four/rank{rank}.safetensors"), &shard);
        for missing in (0..4).filter(|missing| *missing != rank) {
            folder.write(&format!("without{missing}/rank{rank}.safetensors"), &shard);
        }
    }
    assert_eq!(
        folder
            .output(&["diff", "whole.safetensors", "four"])
            .status
            .code(),
        Some(0)
    );
    for missing in 0..4 {
        let (code, report) = json(
            &folder,
            &[
                "diff",
                "whole.safetensors",
                &format!("without{missing}"),
                "--json",
            ],
        );
        assert_eq!(
            (code, report["findings"][0]["kind"].as_str()),
            (1, Some("missing_ranks")),
            "{missing}: {report}"
        );
        // Beside ranks that are cut alike, it is the missing one's tensor that has no partner.
        let (code, report) = json(
            &folder,
            &["diff", "four", &format!("without{missing}"), "--json"],
        );
        let left: Vec<&str> = report["only_reference"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|left| left["name"].as_str())
            .collect();
        assert_eq!(
            (code, left),
            (1, vec![format!("rank{missing}.w").as_str()]),
            "{report}"
        );
        assert!(
            report["pairs"]
                .as_array()
                .unwrap()
                .iter()
                .all(|pair| pair["verdict"] == "identical"),
            "{report}"
        );
    }
    let output = folder.output(&["diff", "whole.safetensors", "without0", "--allow-missing"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("but ranks are missing"));
}

#[test]
fn what_is_given_and_used_for_nothing_is_told() {
    let (folder, noise_of_part) = (runs(1.0), noise(7, 24));
    folder.write(
        "other.safetensors",
        &safetensors(&[("unrelated", "F64", &[3, 5], vec![1; 120])]),
    );
    let told = |args: &[&str]| {
        let output = folder.output(&[&["diff", "a.safetensors", "b.safetensors"], args].concat());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let layout = told(&["--layout", "9_query: flatten"]);
    assert!(
        layout.contains("note: --layout `9_query` is of no pair"),
        "{layout}"
    );
    let noise = told(&["--noise", "other.safetensors"]);
    assert!(
        noise.contains("note: --noise `other.safetensors` has no tensor of the reference"),
        "{noise}"
    );
    assert_eq!(
        told(&["--layout", "1_query: flatten", "--noise", "a.safetensors"]),
        ""
    );
    folder.write(
        "part.safetensors",
        &safetensors(&[("1_query", "F32", &[4, 6], f32s(&noise_of_part))]),
    );
    let noise = told(&["--noise", "part.safetensors"]);
    assert_eq!(
        noise,
        "note: --noise `part.safetensors` tells of 1 of 8 pairs; the others are judged by the noise model\n"
    );
    let pattern = told(&[
        "--match",
        "exact",
        "--pattern",
        "(?<layer>\\d+)_(?<stage>\\w+)",
    ]);
    assert_eq!(
        pattern,
        "note: --pattern pairs nothing: `pattern` is not among the rules\n"
    );
    assert_eq!(
        told(&["--match", "exact,pattern"]),
        "note: the rule `pattern` pairs nothing without --pattern\n"
    );
    folder.write(
        "batch.jsonl",
        br#"{"reference": "a.safetensors", "candidate": "b.safetensors", "name": "one", "settings": {"rules": ["exact", "plugin"]}}"#,
    );
    let batch = String::from_utf8_lossy(&folder.output(&["diff", "--batch", "batch.jsonl"]).stderr)
        .into_owned();
    assert_eq!(
        batch,
        "note: one: the rule `plugin` pairs nothing without exec:PROG\n"
    );
}

#[test]
fn explain_counts_pairs_as_diff_does() {
    let folder = runs(1.5);
    let first = |name: &str| {
        let output = folder.output(&["explain", "a.safetensors", "b.safetensors", name]);
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    // The headline says `pair 5 of 8`.
    assert_eq!(first("5"), "1_query: diverged, own");
    assert_eq!(first("1"), first("0_query"));
    assert_eq!((first("0"), first("9")), (String::new(), String::new()));
}

#[test]
fn explain_takes_the_references_name_before_the_candidates() {
    let folder = Folder::new();
    let tensor = |name: &'static str, seed: u64| (name, "F32", &[6][..], f32s(&noise(seed, 6)));
    folder.write(
        "a.safetensors",
        &safetensors(&[tensor("layers.0.q", 1), tensor("layers.1.q", 2)]),
    );
    folder.write(
        "b.safetensors",
        &safetensors(&[tensor("layers.1.q", 1), tensor("layers.2.q", 3)]),
    );
    let (_, document) = json(
        &folder,
        &[
            "explain",
            "a.safetensors",
            "b.safetensors",
            "layers.1.q",
            "--layer-offset",
            "1",
            "--json",
        ],
    );
    assert_eq!(
        (&document["pair"]["name"], &document["pair"]["candidate"]),
        (&"layers.1.q".into(), &"layers.2.q".into())
    );
}

#[test]
fn what_agrees_needs_no_cause() {
    let folder = runs(1.5);
    let told = folder.run(&["explain", "a.safetensors", "b.safetensors", "0_query"]);
    assert!(
        told.contains("there is nothing to explain") && !told.contains("unknown"),
        "{told}"
    );
    let (_, document) = json(
        &folder,
        &[
            "explain",
            "a.safetensors",
            "b.safetensors",
            "0_query",
            "--json",
        ],
    );
    assert_eq!(document["causes"], serde_json::json!([]));
    let told = two(npy("<f4", &[1, 6, 0], &[]), npy("<f4", &[1, 6, 0], &[]))
        .run(&["explain", "r", "c", "x"]);
    assert!(
        told.starts_with("exit code: 0") && told.contains("there is nothing to explain"),
        "{told}"
    );
}

#[test]
fn a_reader_that_leaves_early_changes_no_exit_code() {
    let folder = Folder::new();
    let names: Vec<String> = (0..3000).map(|i| format!("layer.{i}.weight")).collect();
    let file = |odd: u8| {
        let tensors: Vec<common::Tensor<'_>> = names
            .iter()
            .map(|name| (name.as_str(), "U8", &[1][..], vec![odd]))
            .collect();
        safetensors(&tensors)
    };
    folder.write("a.safetensors", &file(0));
    folder.write("b.safetensors", &file(1));
    folder.write(
        "batch.jsonl",
        br#"{"reference": "a.safetensors", "candidate": "b.safetensors"}"#,
    );
    for args in [
        &["diff", "a.safetensors", "b.safetensors", "--json"][..],
        &["diff", "--batch", "batch.jsonl", "--all"],
    ] {
        let mut child = command(folder.path())
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stderr).as_ref()
            ),
            (Some(1), "")
        );
    }
}

#[test]
fn numbers_and_words_are_incomparable_not_unreadable() {
    let (r, c) = (
        npy("<f4", &[2], &f32s(&[1.0, 2.0])),
        npy("|S4", &[2], b"one\0two\0"),
    );
    let (code, report) = json(&two(r, c), &["diff", "r", "c", "--json"]);
    assert_eq!(
        report["pairs"][0]["reason"],
        "f32 and bytes32 cannot be compared element by element"
    );
    assert_eq!((code, &report["verdict"]), (1, &"incomparable".into()));
}

#[test]
fn integers_beyond_64_bits_are_compared() {
    // {"n": 2**64} and {"n": 2**64 + 1}, as pickle writes them.
    let pickled = |low: u8| {
        [
            b"\x80\x02}X\x01\0\0\0n\x8a\x09",
            &[low, 0, 0, 0, 0, 0, 0, 0, 1][..],
            b"s.",
        ]
        .concat()
    };
    let folder = Folder::new();
    folder.write("a.pkl", &pickled(0));
    folder.write("b.pkl", &pickled(1));
    let (code, report) = json(&folder, &["diff", "a.pkl", "b.pkl", "--json"]);
    assert_eq!(
        (
            code,
            &report["pairs"][0]["name"],
            &report["pairs"][0]["verdict"]
        ),
        (1, &"n".into(), &"diverged".into()),
        "{report}"
    );
    let (code, report) = json(&folder, &["diff", "a.pkl", "a.pkl", "--json"]);
    assert_eq!(
        (code, &report["pairs"][0]["verdict"]),
        (0, &"identical".into()),
        "{report}"
    );
}

#[test]
fn a_mistake_in_the_settings_is_one_line() {
    let folder = runs(1.0);
    folder.write("c.toml", b"skip = []\nrtool = 1\n");
    let output = folder.output(&[
        "diff",
        "a.safetensors",
        "b.safetensors",
        "--config",
        "c.toml",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.starts_with(
            "twinscope: `c.toml`: line 2 of the settings: unknown field `rtool`, expected one of"
        ),
        "{said}"
    );
    let output = folder.output(&[
        "diff",
        "a.safetensors",
        "b.safetensors",
        "--pattern",
        "(?<x>a",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said,
        "twinscope: `(?<x>a` is not a regular expression: unclosed group\n"
    );
}

#[test]
fn all_shows_every_pair_and_limit_few() {
    let folder = runs(1.5);
    let rows = |args: &[&str]| {
        let output = folder.output(&[&["diff", "a.safetensors", "b.safetensors"], args].concat());
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter(|line| line.contains("[4, 6]"))
            .count()
    };
    assert_eq!(rows(&["--all"]), 8);
    assert_eq!(rows(&["--limit", "2"]), 2);
    assert_eq!(rows(&["--limit", "0"]), 0);
}

#[test]
fn rounding_is_no_divergence() {
    let folder = Folder::new();
    let values = noise(7, 64);
    folder.write(
        "a.safetensors",
        &safetensors(&[("w", "F32", &[8, 8], f32s(&values))]),
    );
    folder.write(
        "b.safetensors",
        &safetensors(&[("w", "BF16", &[8, 8], bf16s(&values))]),
    );
    let (code, report) = json(
        &folder,
        &["diff", "a.safetensors", "b.safetensors", "--json"],
    );
    assert_eq!(
        (
            code,
            report["verdict"].as_str(),
            report["pairs"][0]["verdict"].as_str()
        ),
        (0, Some("agree"), Some("rounding"))
    );
    assert_eq!(
        report["pairs"][0]["dtypes"],
        serde_json::json!(["f32", "bf16"])
    );
}

#[test]
fn heads_and_tokens_in_another_order_line_up_by_value() {
    // Half of these came out wrong in tools that look at shapes only.
    for (reference, order, candidate) in [
        ([76usize, 64, 64], [1usize, 0, 2], [1u64, 64, 76, 64]),
        ([76, 8, 64], [1, 0, 2], [1, 8, 76, 64]),
    ] {
        let values = noise(3, reference.iter().product());
        let dims: Vec<u64> = reference.iter().map(|dim| *dim as u64).collect();
        let other = permuted(&values, &reference, &order);
        let found = verdict(
            npy("<f4", &dims, &f32s(&values)),
            npy("<f4", &candidate, &f32s(&other)),
        );
        assert_eq!(
            (found.0, found.1.as_str(), found.3),
            (0, "identical", Some(0)),
            "{reference:?}: {}",
            found.2
        );
        assert!(
            found.2.contains("drop dim 0") && found.2.contains("swap dims"),
            "{}",
            found.2
        );
    }
}

#[test]
fn a_dimension_of_one_is_dropped() {
    for (reference, candidate) in [
        (&[76u64, 2880][..], &[1u64, 76, 2880][..]),
        (&[8, 10], &[1, 8, 10]),
        (&[1, 8, 10], &[8, 10]),
    ] {
        let values = f32s(&noise(5, reference.iter().product::<u64>() as usize));
        let found = verdict(
            npy("<f4", reference, &values),
            npy("<f4", candidate, &values),
        );
        assert_eq!(
            (found.0, found.1.as_str(), found.3),
            (0, "identical", Some(0)),
            "{}",
            found.2
        );
    }
}

#[test]
fn rank_zeros_slice_is_found_by_value_and_measured_as_numpy_does() {
    // NumPy: r = ((arange(8 * 64 * 76 * 64) * 7919 % 2003 - 1001) / 512).astype(f4).reshape(8, 64, 76, 64); c = r[:1], every 997th from 500 times 1.5.
    let many: Vec<f32> = (0..8 * 64 * 76 * 64i64)
        .map(|i| (i * 7919 % 2003 - 1001) as f32 / 512.0)
        .collect();
    let few: Vec<f32> = (0..64 * 76 * 64)
        .map(|i| many[i] * if i % 997 == 500 { 1.5 } else { 1.0 })
        .collect();
    let folder = two(
        npy("<f4", &[8, 64, 76, 64], &f32s(&many)),
        npy("<f4", &[1, 64, 76, 64], &f32s(&few)),
    );
    let (code, report) = json(&folder, &["diff", "r", "c", "--json"]);
    let pair = &report["pairs"][0];
    assert_eq!(
        (code, pair["verdict"].as_str()),
        (1, Some("diverged")),
        "{pair}"
    );
    assert!(
        pair["layout"]["text"]
            .as_str()
            .is_some_and(|text| text.contains("rank zero's slice")),
        "{}",
        pair["layout"]
    );
    assert_eq!(pair["layout"]["by"], "values");
    let finding = &report["findings"][0];
    assert_eq!(
        (&finding["kind"], &finding["side"]),
        (&"part_compared".into(), &"reference".into()),
        "seven eighths have no partner: {finding}"
    );
    let totals = &pair["totals"];
    assert_eq!(
        (totals["differing"].as_u64(), totals["compared"].as_u64()),
        (Some(311), Some(64 * 76 * 64)),
        "{totals}"
    );
    assert_eq!(
        (totals["max_abs"].as_f64(), &totals["argmax"]),
        (Some(0.975_585_937_5), &serde_json::json!([0, 2, 58, 21]))
    );
    for (got, numpy) in [
        (&totals["mean_abs"], 0.000_488_996_505_737_304_7),
        (&totals["mse"], 0.000_318_331_276_311_686_2),
        (&totals["mean_rel"], 0.000_333_016_378_837_719_3),
        (&totals["rel_l2"], 0.015_798_634_988_565_177),
        (&totals["cosine"], 0.999_875_473_807_117_3),
        (&totals["reference"]["mean"], 3.145_870_409_513_774_6e-5),
        (&totals["reference"]["std"], 1.129_327_984_021_627),
        (&totals["candidate"]["mean"], 2.963_919_388_620_477e-5),
        (&totals["candidate"]["std"], 1.130_032_456_165_343_6),
    ] {
        // 1e-12 of the mean of absolute values, which is about 1 for the means.
        let scale = if numpy < 1e-4 { 1.0 } else { numpy };
        assert!(
            got.as_f64()
                .is_some_and(|got| (got - numpy).abs() <= 1e-12 * scale),
            "{got}, NumPy {numpy}"
        );
    }
}

#[test]
fn shapes_of_different_sizes_are_never_called_equal() {
    let (many, few) = (noise(3, 8 * 64 * 76 * 64), noise(4, 64 * 76 * 64));
    let folder = two(
        npy("<f4", &[8, 64, 76, 64], &f32s(&many)),
        npy("<f4", &[1, 64, 76, 64], &f32s(&few)),
    );
    let (code, report) = json(&folder, &["diff", "r", "c", "--json"]);
    assert_eq!(code, 1);
    let verdict = report["pairs"][0]["verdict"].as_str();
    assert!(
        verdict == Some("incomparable") || verdict == Some("diverged"),
        "{verdict:?}"
    );
}

#[test]
fn one_number_is_one_number_whatever_its_shape() {
    let found = verdict(
        npy("<i8", &[1, 1, 1, 1], &i64s(&[128])),
        npy("<i8", &[], &i64s(&[128])),
    );
    assert_eq!(
        (found.0, found.1.as_str(), found.3),
        (0, "identical", Some(0)),
        "{}",
        found.2
    );
    let found = verdict(
        npy("<i8", &[1, 1, 1, 1], &i64s(&[128])),
        npy("<i8", &[], &i64s(&[127])),
    );
    assert_eq!(
        (found.0, found.1.as_str(), found.3),
        (1, "diverged", Some(1))
    );
}

#[test]
fn empty_and_0_d_tensors_are_compared_like_others() {
    assert_eq!(
        verdict(npy("<f4", &[0, 3], &[]), npy("<f4", &[0, 3], &[])).1,
        "identical"
    );
    assert_eq!(
        verdict(
            npy("<f8", &[], &2.5f64.to_le_bytes()),
            npy("<f8", &[], &2.5f64.to_le_bytes())
        )
        .1,
        "identical"
    );
    assert_eq!(
        verdict(
            npy("<f8", &[], &2.5f64.to_le_bytes()),
            npy("<f8", &[], &3.5f64.to_le_bytes())
        )
        .1,
        "diverged"
    );
}

#[test]
fn integers_and_floats_of_equal_value_are_equal() {
    let found = verdict(
        npy("<i8", &[3], &i64s(&[1, -2, 3])),
        npy("<f4", &[3], &f32s(&[1.0, -2.0, 3.0])),
    );
    assert_eq!(
        (found.0, found.1.as_str(), found.3),
        (0, "identical", Some(0))
    );
}

#[test]
fn the_worst_integers_are_told_in_all_their_digits() {
    let far = 1i64 << 60;
    let (code, report) = json(
        &two(
            npy("<i8", &[2], &i64s(&[5, far + 1])),
            npy("<i8", &[2], &i64s(&[5, far + 3])),
        ),
        &["diff", "r", "c", "--json"],
    );
    let totals = &report["pairs"][0]["totals"];
    let exact = serde_json::json!(["1152921504606846977", "1152921504606846979"]);
    assert_eq!(
        (code, &totals["worst_exact"], &totals["top"][0]["exact"]),
        (1, &exact, &exact)
    );
    assert_eq!(
        (&totals["worst"][0], &totals["max_abs"]),
        (&totals["worst"][1], &serde_json::json!(2.0)),
        "doubles say they are equal"
    );

    let float = npy("<f8", &[1], &(far as f64).to_le_bytes());
    let (_, mixed) = json(
        &two(float, npy("<i8", &[1], &i64s(&[far + 1]))),
        &["diff", "r", "c", "--json"],
    );
    assert_eq!(
        mixed["pairs"][0]["totals"]["worst_exact"],
        serde_json::json!(["1152921504606846976", "1152921504606846977"])
    );

    let (_, small) = json(
        &two(npy("<i8", &[1], &i64s(&[5])), npy("<i8", &[1], &i64s(&[7]))),
        &["diff", "r", "c", "--json"],
    );
    assert!(small["pairs"][0]["totals"].get("worst_exact").is_none());
}

#[test]
fn of_integers_the_largest_difference_is_the_worst_to_its_last_digit() {
    let (r, c) = (
        npy("<i8", &[3], &i64s(&[0, 0, 0])),
        npy("<i8", &[3], &i64s(&[1 << 60, (1 << 60) + 1, (1 << 60) - 1])),
    );
    let (_, report) = json(&two(r, c), &["diff", "r", "c", "--json"]);
    assert_eq!(
        report["pairs"][0]["totals"]["argmax"],
        serde_json::json!([1])
    );
    // u64 against i64 can be further apart than a u64 counts.
    let (r, c) = (
        npy("<u8", &[1], &u64::MAX.to_le_bytes()),
        npy("<i8", &[1], &i64s(&[i64::MIN])),
    );
    let (_, report) = json(&two(r, c), &["diff", "r", "c", "--json"]);
    let totals = &report["pairs"][0]["totals"];
    assert_eq!(
        (totals["max_ulp"].as_f64(), totals["max_abs"].as_f64()),
        (Some(3.0 * 2f64.powi(63)), Some(3.0 * 2f64.powi(63)))
    );
}

#[test]
fn the_worst_of_complex_numbers_has_both_parts_and_of_words_none() {
    let complex = |values: &[f64]| {
        npy(
            "<c16",
            &[1],
            &values
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    };
    let (_, report) = json(
        &two(complex(&[1.0, 2.0]), complex(&[1.0, -2.5])),
        &["diff", "r", "c", "--json"],
    );
    let totals = &report["pairs"][0]["totals"];
    assert_eq!(
        (&totals["worst_exact"], &totals["max_abs"]),
        (&serde_json::json!(["1+2j", "1-2.5j"]), &4.5.into())
    );
    let (_, report) = json(
        &two(npy("|S2", &[1], b"ab"), npy("|S2", &[1], b"ac")),
        &["diff", "r", "c", "--json"],
    );
    let totals = &report["pairs"][0]["totals"];
    assert_eq!(
        (&totals["worst"], &totals["argmax"], &totals["differing"]),
        (&Value::Null, &serde_json::json!([0]), &1.into())
    );
}

#[test]
fn noise_of_four_percent_is_a_divergence() {
    let values = noise(11, 4096);
    let noisy: Vec<f32> = values
        .iter()
        .zip(noise(12, 4096))
        .map(|(value, noise)| value + 0.044 * noise)
        .collect();
    let found = verdict(
        npy("<f4", &[64, 64], &f32s(&values)),
        npy("<f4", &[64, 64], &f32s(&noisy)),
    );
    assert_eq!((found.0, found.1.as_str()), (1, "diverged"));
}

#[test]
fn garbage_beside_one_outlier_channel_is_a_divergence() {
    // The outlier carries the norm: over the whole tensor the error is far below what bf16 rounds.
    let (rows, channels) = (32, 256);
    let mut values = noise(13, rows * channels);
    let mut wrong = values.clone();
    let garbage = noise(14, rows * channels);
    for row in 0..rows {
        for channel in 0..channels {
            let at = row * channels + channel;
            match channel {
                0 => (values[at], wrong[at]) = (30_000.0, 30_000.0),
                1..=248 => wrong[at] = garbage[at],
                _ => {}
            }
        }
    }
    let shape = [rows as u64, channels as u64];
    let bytes = |values: &[f32]| npy("<f4", &shape, &f32s(values));
    let (code, report) = json(
        &two(bytes(&values), bytes(&wrong)),
        &["diff", "r", "c", "--json"],
    );
    assert!(report["pairs"][0]["totals"]["rel_l2"].as_f64().unwrap() < 1e-3);
    assert_eq!(
        (code, report["pairs"][0]["verdict"].as_str()),
        (1, Some("diverged"))
    );
}

#[test]
fn one_wrong_id_is_a_divergence() {
    let ids: Vec<i64> = (0..10_000).map(|n| n * 7919 % 150_000).collect();
    let mut wrong = ids.clone();
    wrong[1234] += 1;
    let (code, report) = json(
        &two(
            npy("<i8", &[10_000], &i64s(&ids)),
            npy("<i8", &[10_000], &i64s(&wrong)),
        ),
        &["diff", "r", "c", "--json"],
    );
    assert_eq!(
        (code, report["pairs"][0]["verdict"].as_str()),
        (1, Some("diverged"))
    );
    assert_eq!(
        report["pairs"][0]["totals"]["argmax"],
        serde_json::json!([1234])
    );
}

#[test]
fn the_same_nan_is_equal_and_another_is_not() {
    let values = [1.0, f32::NAN, f32::INFINITY, 4.0];
    let found = verdict(
        npy("<f4", &[4], &f32s(&values)),
        npy("<f4", &[4], &f32s(&values)),
    );
    assert_eq!(
        (found.0, found.1.as_str(), found.3),
        (0, "identical", Some(0))
    );
    let found = verdict(
        npy("<f4", &[4], &f32s(&values)),
        npy("<f4", &[4], &f32s(&[1.0, 2.0, f32::INFINITY, 4.0])),
    );
    assert_eq!(
        (found.0, found.1.as_str(), found.3),
        (1, "diverged", Some(1))
    );
}

#[test]
fn a_tensor_without_a_partner_is_told_and_can_be_allowed() {
    let folder = Folder::new();
    let w = || ("w", "F32", &[4u64][..], f32s(&[1.0, 2.0, 3.0, 4.0]));
    folder.write(
        "a.safetensors",
        &safetensors(&[w(), ("extra_bias", "F32", &[3], f32s(&[1.0, 5.0, 2.0]))]),
    );
    folder.write("b.safetensors", &safetensors(&[w()]));
    assert_snapshot!(folder.run(&["diff", "a.safetensors", "b.safetensors"]), @r"
    exit code: 1
    ----- stdout -----
    AGREE: 1 pair, identical, but 1 tensor has no partner

    Only in the reference: 1 tensor
      extra_bias
    ----- stderr -----
    ");
    assert_eq!(
        folder
            .output(&["diff", "a.safetensors", "b.safetensors", "--allow-missing"])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        folder
            .output(&["diff", "b.safetensors", "a.safetensors"])
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn nothing_paired_is_no_answer() {
    let folder = Folder::new();
    folder.write(
        "a.safetensors",
        &safetensors(&[("w", "F32", &[4], f32s(&[1.0; 4]))]),
    );
    folder.write(
        "b.safetensors",
        &safetensors(&[("other", "F32", &[7], f32s(&[2.0; 7]))]),
    );
    assert_snapshot!(folder.run(&["diff", "a.safetensors", "b.safetensors", "--match", "exact"]), @r"
    exit code: 2
    ----- stdout -----
    NO ANSWER: nothing could be paired (1 in the reference, 1 in the candidate)

    Only in the reference: 1 tensor
      w

    Only in the candidate: 1 tensor
      other
    ----- stderr -----
    ");
}

#[test]
fn seven_tensors_alone_are_21_pairs() {
    let folder = Folder::new();
    let a = noise(1, 6);
    let tensors = [
        ("a", "F32", &[2u64, 3][..], f32s(&a)),
        ("b", "F32", &[2, 3], f32s(&a)),
        ("c", "F32", &[2, 3], f32s(&noise(2, 6))),
        ("d", "F32", &[6], f32s(&a)),
        ("e", "I64", &[], i64s(&[3])),
        ("f", "F32", &[0, 3], vec![]),
        ("g", "BF16", &[2, 3], bf16s(&a)),
    ];
    folder.write("seven.safetensors", &safetensors(&tensors));
    let (code, report) = json(&folder, &["diff", "seven.safetensors", "--json"]);
    let pairs = report["pairs"].as_array().unwrap();
    assert_eq!((code, pairs.len()), (1, 21));
    let find = |reference: &str, candidate: &str| {
        pairs
            .iter()
            .find(|pair| pair["reference"] == reference && pair["candidate"] == candidate)
            .expect("a pair of both names")
    };
    assert_eq!(find("a", "b")["verdict"], "identical");
    assert_eq!(find("a", "g")["verdict"], "rounding");
    assert_eq!(find("a", "c")["verdict"], "diverged");
    assert_eq!(find("a", "d")["verdict"], "incomparable");
    let reason = find("a", "d")["reason"].as_str().unwrap();
    assert!(
        reason.contains("[2, 3]") && reason.contains("[6]"),
        "{reason}"
    );
    assert_snapshot!(folder.run(&["diff", "seven.safetensors", "--limit", "4"]), @r"
    exit code: 1
    ----- stdout -----
    21 pairs of one source: 1 identical, 2 alike up to rounding
    21 pairs: 1 identical, 2 rounding, 3 diverged, 15 incomparable

     #  name  candidate  shape   dtype       rel L2  max abs    cosine  verdict
     1  a     b          [2, 3]  f32              0        0         1  identical
     6  a     g          [2, 3]  f32 / bf16  1.4e-3   1.0e-3         1  rounding
    11  b     g          [2, 3]  f32 / bf16  1.4e-3   1.0e-3         1  rounding
    15  c     g          [2, 3]  f32 / bf16     1.2      1.2  0.211582  diverged
    ... and 17 more pairs; --all shows every one
    ----- stderr -----
    ");
}

#[test]
fn of_many_pairs_alone_only_the_most_alike_are_measured() {
    let folder = Folder::new();
    let names: Vec<String> = (0..40).map(|n| format!("t{n:02}")).collect();
    let tensors: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(n, name)| {
            (
                name.as_str(),
                "F32",
                &[64u64][..],
                f32s(&noise(n as u64 % 39 + 1, 64)),
            )
        })
        .collect();
    folder.write("many.safetensors", &safetensors(&tensors));
    let measured = |args: &[&str]| {
        let (_, report) = json(
            &folder,
            &[&["diff", "many.safetensors", "--json"], args].concat(),
        );
        let pairs = report["pairs"].as_array().unwrap().clone();
        (
            pairs.len(),
            pairs
                .iter()
                .filter(|pair| !pair["totals"].is_null())
                .count(),
            pairs,
        )
    };
    let (total, some, pairs) = measured(&[]);
    assert_eq!((total, some), (780, 200));
    assert!(pairs.iter().any(|pair| pair["reference"] == "t00"
        && pair["candidate"] == "t39"
        && pair["verdict"] == "identical"));
    assert!(pairs.iter().all(|pair| pair["score"].is_number()));
    assert_eq!(measured(&["--exact"]).1, 780);
    assert_eq!(measured(&["--only", "t0*"]).0, 45);
}

#[test]
fn a_tolerance_decides_alone() {
    let folder = runs(1.001);
    let code = |args: &[&str]| {
        folder
            .output(&[&["diff", "a.safetensors", "b.safetensors"], args].concat())
            .status
            .code()
    };
    assert_eq!(code(&[]), Some(1));
    assert_eq!(code(&["--rtol", "1e-2"]), Some(0));
    assert_eq!(code(&["--atol", "1e-9"]), Some(1));
    assert_eq!(code(&["--rtol", "-1"]), Some(2));
}

#[test]
fn a_tolerance_is_numpys_rule_for_every_element() {
    let values = [100.0, -100.0, 1.0, 0.0, 0.5];
    let folder = two(
        npy("<f4", &[5], &f32s(&values)),
        npy("<f4", &[5], &f32s(&values.map(|value| value + 0.25))),
    );
    let beyond = |args: &[&str]| {
        let (_, report) = json(&folder, &[&["diff", "r", "c", "--json"], args].concat());
        report["pairs"][0]["totals"]["beyond"].as_u64()
    };
    // |c - r| is 0.25 everywhere; only rtol counts the size of the reference.
    assert_eq!(beyond(&["--atol", "0.25"]), Some(0));
    assert_eq!(beyond(&["--atol", "0.2"]), Some(5));
    assert_eq!(beyond(&["--rtol", "0.25"]), Some(2));
    assert_eq!(beyond(&["--rtol", "0.01"]), Some(3));
    assert_eq!(beyond(&["--rtol", "0.1", "--atol", "0.21"]), Some(1));
}

#[test]
fn a_repeated_run_says_what_rounding_is() {
    let folder = runs(1.001);
    folder.write("again.safetensors", &run(0.9995));
    let code = |args: &[&str]| {
        folder
            .output(&[&["diff", "a.safetensors", "b.safetensors"], args].concat())
            .status
            .code()
    };
    assert_eq!(code(&["--noise", "again.safetensors"]), Some(0));
    assert_eq!(code(&["--noise", "absent.safetensors"]), Some(2));
}

#[test]
fn a_map_is_saved_edited_and_given_back() {
    let folder = runs(1.0);
    let saved = folder.output(&[
        "diff",
        "a.safetensors",
        "b.safetensors",
        "--save-map",
        "map.csv",
    ]);
    assert_eq!(saved.status.code(), Some(0));
    let map = std::fs::read_to_string(folder.path().join("map.csv")).unwrap();
    assert!(
        map.starts_with("reference,candidate\n0_query,0_query\n"),
        "{map}"
    );
    folder.write(
        "swapped.csv",
        map.replace(
            "0_query,0_query\n0_key,0_key",
            "0_query,0_key\n0_key,0_query",
        )
        .as_bytes(),
    );
    let (code, report) = json(
        &folder,
        &[
            "diff",
            "a.safetensors",
            "b.safetensors",
            "--map",
            "swapped.csv",
            "--json",
        ],
    );
    let first = &report["pairs"][0];
    assert_eq!(
        (code, &first["candidate"], &first["rule"], &first["verdict"]),
        (1, &"0_key".into(), &"manual".into(), &"diverged".into())
    );
    folder.write("wrong.csv", b"reference,candidate\n0_qurey,0_query\n");
    assert_snapshot!(folder.run(&["diff", "a.safetensors", "b.safetensors", "--map", "wrong.csv"]), @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    twinscope: the map names `0_qurey`, which the reference does not have; did you mean `0_query`?
    ");
}

#[test]
fn a_config_is_saved_and_given_back_and_flags_win() {
    let folder = runs(1.001);
    let base = ["diff", "a.safetensors", "b.safetensors"];
    let code = |args: &[&str]| folder.output(&[&base[..], args].concat()).status.code();
    assert_eq!(
        code(&[
            "--rtol",
            "1e-2",
            "--skip",
            "1_key",
            "--match",
            "exact",
            "--save-config",
            "used.toml"
        ]),
        Some(0)
    );
    let (exit, report) = json(
        &folder,
        &[&base[..], &["--config", "used.toml", "--json"]].concat(),
    );
    assert_eq!(
        (
            exit,
            report["pairs"].as_array().map(Vec::len),
            report["pairs"][0]["rule"].as_str()
        ),
        (0, Some(7), Some("exact"))
    );
    assert_eq!(code(&["--config", "used.toml", "--rtol", "1e-9"]), Some(1));
    folder.write("typo.toml", b"fuzy_threshold = 0.5\n");
    let told = folder.run(&[&base[..], &["--config", "typo.toml"]].concat());
    assert!(
        told.starts_with("exit code: 2") && told.contains("fuzy_threshold"),
        "{told}"
    );
}

#[test]
fn a_layout_of_the_user_is_taken() {
    let values = noise(21, 12);
    let folder = two(
        npy("<f4", &[3, 4], &f32s(&values)),
        npy("<f4", &[4, 3], &f32s(&permuted(&values, &[3, 4], &[1, 0]))),
    );
    let (code, report) = json(
        &folder,
        &["diff", "r", "c", "--layout", "x: permute(1,0)", "--json"],
    );
    assert_eq!(
        (
            code,
            &report["pairs"][0]["layout"]["by"],
            &report["pairs"][0]["verdict"]
        ),
        (0, &"user".into(), &"identical".into())
    );
    let values = npy("<f4", &[4], &f32s(&noise(1, 4)));
    let (code, report) = json(
        &two(values.clone(), values),
        &[
            "diff",
            "r",
            "c",
            "--json",
            "--layout",
            "x: cut(0,18446744073709551615,2)",
        ],
    );
    assert_eq!(
        (code, &report["pairs"][0]["verdict"]),
        (1, &"incomparable".into()),
        "{report}"
    );
}

#[test]
fn names_that_mean_nothing_to_us_pair_by_the_users_pattern() {
    let folder = Folder::new();
    let w = |name| (name, "F32", &[2u64][..], f32s(&[1.0, 2.0]));
    folder.write("a.safetensors", &safetensors(&[w("h7/zeta"), w("h8/zeta")]));
    folder.write(
        "b.safetensors",
        &safetensors(&[w("q_block_07"), w("q_block_08")]),
    );
    let pattern = r"h(?<n>\d+)/zeta => q_block_(?<n>\d+)";
    let (code, report) = json(
        &folder,
        &[
            "diff",
            "a.safetensors",
            "b.safetensors",
            "--match",
            "pattern",
            "--pattern",
            pattern,
            "--json",
        ],
    );
    assert_eq!(
        (
            code,
            report["pairs"].as_array().map(Vec::len),
            &report["pairs"][1]["candidate"]
        ),
        (0, Some(2), &"q_block_08".into())
    );
}

#[test]
fn mistakes_are_told_before_anything_is_read() {
    let folder = Folder::new();
    for (flags, words) in [
        (&["--pattern", "(?<a"][..], "is not a regular expression"),
        (&["--pattern", "a+"], "has no named group"),
        (&["--skip", "a[b"], "is not a glob"),
        (&["--layout", "x: turn(1)"], "`turn` is not a step"),
        (&["--layout", "x"], "is not `NAME: steps`"),
        (&["--match", "exakt"], "did you mean `exact`"),
        (&["--fuzzy-threshold", "3"], "not between 0 and 1"),
        (&["--map", "absent.csv"], "cannot read `absent.csv`"),
        (&["--config", "absent.toml"], "cannot read `absent.toml`"),
        (&["--batch", "x"], "cannot be used with"),
        (
            &["--csv", "absent/x.csv"],
            "cannot write `absent/x.csv`: there is no folder `absent`",
        ),
        (&["--html", "."], "cannot write `.`: it is a folder"),
        (
            &["--save-map", "absent/x.json"],
            "there is no folder `absent`",
        ),
    ] {
        // These sources do not exist, and nobody looks.
        let told = folder.run(&[&["diff", "none.pt", "neither.pt"], flags].concat());
        assert!(
            told.starts_with("exit code: 2") && told.contains(words),
            "{flags:?}: {told}"
        );
        assert!(!told.contains("none.pt`"), "{told}");
    }
}

#[test]
fn a_source_that_cannot_be_opened_is_no_answer() {
    assert_snapshot!(runs(1.0).run(&["diff", "a.safetensors", "absent.pt"]), @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    twinscope: cannot open `absent.pt`: no such file
    hint: check the path
    ");
}

#[test]
fn what_was_skipped_leaves_no_answer_unless_something_diverged() {
    let folder = Folder::new();
    let bad = || ("bad", "F32", &[3u64][..], f32s(&[1.0, 2.0]));
    let good = |value| ("good", "F32", &[2u64][..], f32s(&[1.0, value]));
    folder.write("a.safetensors", &safetensors(&[good(2.0)]));
    folder.write("b.safetensors", &safetensors(&[good(2.0), bad()]));
    folder.write("c.safetensors", &safetensors(&[good(3.0), bad()]));
    assert_snapshot!(folder.run(&["diff", "a.safetensors", "b.safetensors"]), @r"
    exit code: 2
    ----- stdout -----
    AGREE: 1 pair, identical, but 1 could not be read
    ----- stderr -----
    warning: skipped `bad` of the candidate: length mismatch: [3] of f32 takes 12 bytes, data_offsets give 8
    ");
    assert_eq!(
        folder
            .output(&["diff", "a.safetensors", "c.safetensors"])
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn csv_has_one_row_for_each_pair() {
    let folder = Folder::new();
    folder.write(
        "a.safetensors",
        &safetensors(&[
            ("w,1", "F32", &[2], f32s(&[1.0, 2.0])),
            ("=x()", "F32", &[1], f32s(&[0.0])),
        ]),
    );
    folder.write(
        "b.safetensors",
        &safetensors(&[
            ("w,1", "F32", &[2], f32s(&[1.0, 4.0])),
            ("=x()", "F32", &[1], f32s(&[1.0])),
        ]),
    );
    assert_snapshot!(folder.run(&["diff", "a.safetensors", "b.safetensors", "--csv", "-"]), @r#"
    exit code: 1
    ----- stdout -----
    order,name,reference,candidate,rule,score,layout,shape,reference_dtype,candidate_dtype,verdict,origin,count,compared,differing,max_abs,mean_abs,max_rel,mean_rel,mse,rel_l2,cosine,max_ulp,reference_mean,reference_std,reference_min,reference_max,reference_nan,reference_inf,reference_zero,candidate_mean,candidate_std,candidate_min,candidate_max,candidate_nan,candidate_inf,candidate_zero,reason,cause,cause_text
    0,"'=x()","'=x()","'=x()",exact,1,[1],[1],f32,f32,diverged,own,1,1,1,1,1,1,1,1,,,1065353216,0,0,0,0,0,0,1,1,0,1,1,0,0,0,,unknown,no known cause explains it; what made this tensor is not among what is recorded: record the weights and the op's inputs to tell
    1,"w,1","w,1","w,1",exact,1,[2],[2],f32,f32,diverged,own,2,2,1,2,1,0.5,0.25,2,0.8944271909999159,0.9761870601839527,8388608,1.5,0.5,1,2,0,0,0,2.5,1.5,1,4,0,0,0,,localized,only index 1 of dim 0 (of 2) differ; the rest agrees
    ----- stderr -----
    "#);
    folder.run(&[
        "diff",
        "a.safetensors",
        "b.safetensors",
        "--csv",
        "pairs.csv",
    ]);
    assert_eq!(
        std::fs::read_to_string(folder.path().join("pairs.csv"))
            .unwrap()
            .lines()
            .count(),
        3
    );
}

#[test]
fn a_batch_is_a_report_each_and_a_summary() {
    let folder = runs(1.5);
    let lines = r#"{"reference": "a.safetensors", "candidate": "a.safetensors", "name": "same"}

{"reference": "a.safetensors", "candidate": "b.safetensors", "name": "other"}
{"reference": "a.safetensors", "candidate": "b.safetensors", "name": "loose", "settings": {"rtol": 1.0}}
"#;
    folder.write("batch.jsonl", lines.as_bytes());
    assert_snapshot!(folder.run(&["diff", "--batch", "batch.jsonl", "--limit", "1"]), @r"
    exit code: 1
    ----- stdout -----
    == same
    AGREE: 8 pairs, all identical
    rel L2  ········  (log, ▁ 1e-3 to █ 1; · identical)

    == other
    DIVERGED at 1_query (pair 5 of 8): rel L2 0.5; the 4 before it agree exactly
    Why: candidate = reference x 1.5, which is 3/2; explains 100.000 % of the difference
    rel L2  ····▇▇▇▇  (log, ▁ 1e-3 to █ 1; · identical)
                ^ 1_query
    8 pairs: 4 identical, 4 diverged (1 by itself, 3 inherited)

    #  name     shape   dtype  rel L2  max abs  cosine  verdict
    5  1_query  [4, 6]  f32       0.5     0.48       1  diverged
    ... and 7 more pairs; --all shows every one

    == loose
    AGREE: 8 pairs, 4 identical, 4 within tolerance (worst rel L2 0.5)
    rel L2  ····▇▇▇▇  (log, ▁ 1e-3 to █ 1; · identical)

    #  name         shape   dtype  rel L2  max abs  cosine  verdict
    7  1_post_attn  [4, 6]  f32       0.5     0.47       1  rounding
    ... and 7 more pairs; --all shows every one

    comparison  verdict   pairs  diverged  missing  first divergence
    same        agree         8         0        0
    other       diverged      8         4        0  1_query
    loose       agree         8         0        0
    ----- stderr -----
    ");
    folder.write(
        "broken.jsonl",
        format!("{lines}{{\"reference\": \"absent.pt\", \"candidate\": \"a.safetensors\"}}\n")
            .as_bytes(),
    );
    let (code, document) = json(&folder, &["diff", "--batch", "broken.jsonl", "--json"]);
    assert_eq!(
        (code, document["reports"].as_array().map(Vec::len)),
        (2, Some(4))
    );
    let exits: Vec<_> = document["summary"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["exit"].as_u64().unwrap())
        .collect();
    assert_eq!(exits, [0, 1, 0, 2]);
    assert_eq!(
        document["reports"][1]["first_divergence"]["name"],
        "1_query"
    );
    assert_eq!(
        (
            &document["summary"][0]["missing"],
            &document["summary"][3]["pairs"]
        ),
        (&0.into(), &Value::Null),
        "not known is not 0"
    );
}

#[test]
fn a_line_of_a_batch_that_is_wrong_is_named() {
    let folder = runs(1.0);
    folder.write(
        "batch.jsonl",
        b"{\"reference\": \"a.safetensors\"}\n{\"refrence\": 1}\n",
    );
    let told = folder.run(&["diff", "--batch", "batch.jsonl"]);
    assert!(
        told.starts_with("exit code: 2") && told.contains("line 2") && told.contains("refrence"),
        "{told}"
    );
}

#[test]
fn json_has_the_fields_of_the_contract() {
    let (_, report) = json(
        &runs(1.5),
        &["diff", "a.safetensors", "b.safetensors", "--json"],
    );
    assert_eq!(report["schema"], 1);
    assert_eq!(
        (&report["partial"], &report["verdict"]),
        (&false.into(), &"diverged".into())
    );
    assert_eq!(
        report["first_divergence"],
        serde_json::json!({"pair": 4, "name": "1_query"})
    );
    assert_eq!(report["divergences"][0], 4);
    let pair = &report["pairs"][4];
    for key in [
        "name",
        "reference",
        "candidate",
        "order",
        "rule",
        "score",
        "layout",
        "shape",
        "dtypes",
        "verdict",
        "agrees_at",
        "origin",
        "totals",
        "causes",
    ] {
        assert!(pair.get(key).is_some(), "{key}");
    }
    for key in [
        "count",
        "compared",
        "differing",
        "max_abs",
        "mean_abs",
        "max_rel",
        "mean_rel",
        "mse",
        "rel_l2",
        "cosine",
        "max_ulp",
        "argmax",
        "worst",
    ] {
        assert!(!pair["totals"][key].is_null(), "{key}");
    }
    assert!((pair["totals"]["rel_l2"].as_f64().unwrap() - 0.5).abs() < 1e-6);
}

#[test]
fn a_hostile_name_cannot_drive_the_terminal() {
    let folder = Folder::new();
    folder.write(
        "a.safetensors",
        &safetensors(&[("x\u{1b}[2J", "F32", &[1], f32s(&[1.0]))]),
    );
    folder.write(
        "b.safetensors",
        &safetensors(&[("x\u{1b}[2J", "F32", &[1], f32s(&[2.0]))]),
    );
    let told = folder.run(&["diff", "a.safetensors", "b.safetensors", "--all"]);
    assert!(
        !told.contains('\u{1b}') && told.contains("x\\x1b[2J"),
        "{told}"
    );
}

/// Many large tensors of zeros that take no room on disk.
#[cfg(unix)]
fn long_work() -> Folder {
    let folder = Folder::new();
    for side in ["a", "b"] {
        for n in 0..64 {
            let header = npy("<f4", &[1 << 26], &[]);
            let path = folder.write(&format!("{side}/t{n:02}.npy"), &header);
            let file = std::fs::OpenOptions::new()
                .write(true)
                .open(path)
                .expect("a file");
            file.set_len(header.len() as u64 + (1 << 28))
                .expect("a sparse file");
        }
    }
    folder
}

#[cfg(unix)]
fn interrupted(folder: &Folder, args: &[&str]) -> (Option<i32>, String, String) {
    let mut child = command(folder.path())
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(
        child.try_wait().expect("a child").is_none(),
        "it was done before it could be stopped"
    );
    let id = child.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-INT", &id])
            .status()
            .expect("kill runs")
            .success()
    );
    let began = std::time::Instant::now();
    let output = child.wait_with_output().expect("it ends");
    assert!(
        began.elapsed().as_secs() < 5,
        "stopping took {:?}",
        began.elapsed()
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[cfg(unix)]
#[test]
fn ctrl_c_prints_what_is_known_so_far() {
    let folder = long_work();
    let (code, out, _) = interrupted(&folder, &["diff", "a", "b", "--match", "exact", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    assert_eq!((code, &report["partial"]), (Some(2), &true.into()));
    assert_eq!(report["pairs"].as_array().map(Vec::len), Some(64));
    assert!(
        report["pairs"]
            .as_array()
            .unwrap()
            .iter()
            .any(|pair| pair["reason"] == "stopped before it was measured")
    );
}

#[cfg(unix)]
#[test]
fn ctrl_c_before_anything_is_paired_is_no_answer() {
    let folder = runs(1.0);
    let (code, out, err) = interrupted(
        &folder,
        &[
            "diff",
            "a.safetensors",
            "b.safetensors",
            "--match",
            "exec:sleep 20",
        ],
    );
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(
        err.contains("stopped before anything was compared"),
        "{err}"
    );
}

#[test]
fn one_side_can_come_from_standard_input() {
    let folder = runs(1.0);
    let told = folder.run_reading("b.safetensors", &["diff", "a.safetensors", "-"]);
    assert!(
        told.starts_with("exit code: 0\n----- stdout -----\nAGREE: 8 pairs, all identical\n"),
        "{told}"
    );
    let told = folder.run_reading("b.safetensors", &["diff", "-", "-"]);
    assert!(
        told.starts_with("exit code: 2") && told.contains("standard input cannot be both sides"),
        "{told}"
    );
}

/// Scripts compare reports as text, so keys keep the order that version 0.1.0 wrote them in. Digits are left out: the last ones depend on
/// the processor.
#[test]
fn reports_have_the_keys_and_words_of_0_1_0_in_its_order() {
    let testdata = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let without_digits = |text: &str| text.replace(|letter: char| letter.is_ascii_digit(), "");
    for (report, sources) in [
        (
            "diverged",
            &["faultbench/reference.pth", "faultbench/q_bias_missing.pth"][..],
        ),
        ("alone", &["folder/mixed/input"]),
        (
            "nothing_in_common",
            &["folder/hf_debug/input", "folder/megatron/input"],
        ),
    ] {
        let path = testdata.join(format!("old_state/reports/{report}.json"));
        let old = std::fs::read_to_string(path).unwrap();
        let output = command(&testdata)
            .args(["diff", "--json"])
            .args(sources)
            .output()
            .unwrap();
        let new = String::from_utf8(output.stdout).unwrap();
        assert!(
            without_digits(&new) == without_digits(&old),
            "{report}:\n{new}"
        );
    }
}
