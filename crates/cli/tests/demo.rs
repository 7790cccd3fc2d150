//! `twinscope demo` as a user meets it.

use serde_json::Value;
use std::process::{Command, Output};

/// A folder to run in, gone afterwards.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn output(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_twinscope"))
            .current_dir(self.0.path())
            .args(args)
            .output()
            .expect("the program runs")
    }

    /// What it said, on stdout and then on stderr.
    fn run(&self, args: &[&str]) -> String {
        let Output { stdout, stderr, .. } = self.output(args);
        String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned()
    }
}

fn json(folder: &Folder, args: &[&str]) -> Value {
    let output = folder.output(args);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"))
}

#[test]
fn without_a_word_it_finds_a_wrong_theta() {
    let told = Folder::new().run(&["demo", "--print"]);
    assert!(
        told.contains("planted rope_theta, to be seen first at 1_query_final"),
        "{told}"
    );
    assert!(told.contains("DIVERGED at 1_query_final"), "{told}");
}

#[test]
fn gpt2_has_a_fault_of_its_own_to_show() {
    let told = Folder::new().run(&["demo", "--print", "--model", "gpt2"]);
    assert!(told.contains("DIVERGED at 1_attn_probs"), "{told}");
}

#[test]
fn the_list_says_of_every_fault_where_it_shows_and_why() {
    let list = json(&Folder::new(), &["demo", "--list", "--json"]);
    let faults = list["faults"].as_array().unwrap();
    assert!(faults.len() >= 100);
    let theta = faults
        .iter()
        .find(|fault| fault["name"] == "rope_theta")
        .unwrap();
    assert_eq!(theta["first"], "1_query_final");
    assert_eq!(theta["kinds"][0], "rotated");
    assert_eq!(theta["outcome"], "diverged");
    let benign = faults
        .iter()
        .find(|fault| fault["name"] == "tp_order")
        .unwrap();
    assert_eq!(benign["first"], Value::Null);
}

#[test]
fn what_is_compared_in_memory_and_from_written_runs_is_the_same() {
    let folder = Folder::new();
    let fault = [
        "--fault",
        "kv_swapped",
        "--dtype",
        "bf16",
        "--tp",
        "2",
        "--record",
        "full",
    ];
    let mut held = json(&folder, &[&["demo", "--json"][..], &fault].concat());
    let written = json(
        &folder,
        &[&["demo", "--json", "--out", "runs"][..], &fault].concat(),
    );
    assert_eq!(
        written["faults"][0]["first"],
        "model.layers.1.self_attn.k_proj.weight"
    );
    let mut read = json(
        &folder,
        &["diff", "--json", "runs/reference", "runs/candidate"],
    );
    for report in [&mut held, &mut read] {
        for side in ["reference", "candidate"] {
            report[side] = Value::Null;
        }
    }
    assert_eq!(held, read);
}

#[test]
fn a_run_is_not_written_over_another() {
    let folder = Folder::new();
    folder.run(&["demo", "--out", "runs"]);
    let told = folder.run(&["demo", "--out", "runs"]);
    assert!(
        told.contains("already holds a run")
            && told.contains("hint: choose another folder for --out"),
        "{told}"
    );
}

#[test]
fn a_slip_in_a_name_is_told_with_the_name_meant() {
    let told = Folder::new().run(&["demo", "--fault", "rope_teta"]);
    assert!(
        told.contains("there is no fault `rope_teta`")
            && told.contains("did you mean `rope_theta`?"),
        "{told}"
    );
    let told = Folder::new().run(&["demo", "--fault", "rope_theta", "--model", "gpt2"]);
    assert!(
        told.contains("it needs rotary positions (--model llama or moe)"),
        "{told}"
    );
}

#[test]
fn what_later_ops_undo_is_harmless() {
    let folder = Folder::new();
    for fault in ["mlp_channels", "norm_folded", "heads_together"] {
        let said = folder.run(&["demo", "--fault", fault, "--print"]);
        assert!(
            said.contains("\nAGREE: ") && said.contains("harmless"),
            "{fault}: {said}"
        );
    }
}
