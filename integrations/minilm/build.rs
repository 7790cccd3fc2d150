//! candle-transformers' BERT with taps: its source is taken from the fetched crate and instrumented on the way into `OUT_DIR`.
//!
//! Nothing of it is copied into this repository. Each edit must find its place exactly as often as it says, so another version of
//! the crate stops the build with a sentence instead of recording the wrong thing.

use std::{env, fs, path::PathBuf, process::Command};

/// What is replaced, by what, how often.
const EDITS: &[(&str, &str, usize)] = &[
    // Layers that record themselves, under the path of their VarBuilder.
    (
        "use super::with_tracing::{layer_norm, linear, LayerNorm, Linear};",
        "use twinscope_capture::{candle::{nn::{embedding, layer_norm, linear, Embedding, LayerNorm, Linear}, TapExt}, Role, Tap};",
        1,
    ),
    (
        "use candle_nn::{embedding, Embedding, Module, VarBuilder};",
        "use candle_nn::{Module, VarBuilder};",
        1,
    ),
    // The attention mask, step by step.
    (
        "(attention_mask.ones_like()? - &attention_mask)?.broadcast_mul(",
        "(attention_mask.ones_like()? - &attention_mask).tap(\"attention_mask.hidden\")?.broadcast_mul(",
        1,
    ),
    (
        "&Tensor::try_from(f32::MIN)?",
        "&Tensor::try_from(crate::minimum(dtype))?",
        1,
    ),
    (
        "            .to_dtype(dtype)?,\n    )\n}",
        "            .to_dtype(dtype).tap(\"attention_mask.minimum\")?,\n    ).tap(\"attention_mask\")\n}",
        1,
    ),
    // What no layer computes: scores, probabilities, context, the activation, the output of each block.
    (
        "for layer in self.layers.iter() {",
        "for (index, layer) in self.layers.iter().enumerate() {\n            let _span = twinscope_capture::span!(\"encoder.layer.{index}\");",
        1,
    ),
    (
        "let attention_scores = attention_scores.broadcast_add(attention_mask)?;",
        "let attention_scores = attention_scores.broadcast_add(attention_mask).tap(\"attention.self.scores\")?;",
        1,
    ),
    (
        "candle_nn::ops::softmax(&attention_scores, candle::D::Minus1)?",
        "candle_nn::ops::softmax(&attention_scores, candle::D::Minus1).tap_with(Tap::new(\"attention.self\").role(Role::Attention).dims(\"b h s t\").from(&attention_scores))?",
        1,
    ),
    (
        "Ok(context_layer)",
        "(&context_layer).tap_with(Tap::new(\"attention.self\").role(Role::Output).from(&attention_probs).from(&value_layer))",
        1,
    ),
    (
        "let ys = self.intermediate_act.forward(&hidden_states)?;",
        "let ys = self.intermediate_act.forward(&hidden_states).tap_with(Tap::new(\"intermediate\").role(Role::Output).from(&hidden_states))?;",
        1,
    ),
    (
        "Ok(layer_output)",
        "(&layer_output).tap_with(Tap::new(\"\").role(Role::Output).from(&layer_output))",
        1,
    ),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let source = crate_source("candle-transformers").join("src/models/bert.rs");
    println!("cargo::rerun-if-changed={}", source.display());
    let mut text =
        fs::read_to_string(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    for (from, to, times) in EDITS {
        let found = text.matches(from).count();
        assert!(
            found == *times,
            "{}: `{from}` is there {found} times, expected {times}: this build knows candle-transformers 0.11.1",
            source.display()
        );
        text = text.replace(from, to);
    }
    // Inner docs may not be included in the middle of a file.
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("//!"))
        .map(|line| format!("{line}\n"))
        .collect();
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where")).join("bert.rs");
    fs::write(&target, text).unwrap_or_else(|error| panic!("{}: {error}", target.display()));
}

/// Where cargo keeps the source of a dependency.
fn crate_source(name: &str) -> PathBuf {
    // Of this platform alone: the packages of others were not fetched, and nothing is fetched here.
    let platform = env::var("TARGET").expect("cargo says what it builds for");
    let output = Command::new(env::var_os("CARGO").expect("cargo says who it is"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--locked",
            "--filter-platform",
            &platform,
        ])
        .current_dir(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where we are"))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"]
        .as_array()
        .expect("metadata lists packages");
    let package = packages
        .iter()
        .find(|package| package["name"] == name)
        .unwrap_or_else(|| panic!("no package `{name}`"));
    let manifest = PathBuf::from(
        package["manifest_path"]
            .as_str()
            .expect("a package has a manifest"),
    );
    manifest
        .parent()
        .expect("a manifest is in a folder")
        .to_owned()
}
