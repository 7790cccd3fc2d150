//! Names as `twinscope_names` reads them, tested by the pairs they lead to.

use crate::{
    pairing::testing::{paired, paired_with, settings},
    settings::Rule,
};

#[test]
fn layers_are_read_however_their_number_is_written() {
    let parts = ["attn_out", "mlp_act", "post_norm", "q"];
    let named = |style: &str| {
        let of = |number: usize, part: &str| {
            style
                .replace("{}", &number.to_string())
                .replace("{p}", part)
        };
        (0..3)
            .flat_map(|number| parts.map(|part| of(number, part)))
            .collect::<Vec<String>>()
    };
    let reference = named("model.layers.{}.{p}");
    for style in [
        "layer{}_{p}",
        "block_{}/{p}",
        "L{}.{p}",
        "l.{}.{p}",
        "{p}_{}",
        "{p}-{}",
        "blocks.{}.hook_{p}",
        "layers[{}].{p}",
    ] {
        let candidate = named(style);
        let expected: Vec<String> = reference
            .iter()
            .zip(&candidate)
            .map(|(r, c)| format!("{r}={c}"))
            .collect();
        let [r, c] = [&reference, &candidate]
            .map(|names| names.iter().map(String::as_str).collect::<Vec<&str>>());
        assert_eq!(paired(&[Rule::Normalized], &r, &c), expected);
    }
}

#[test]
fn the_last_operator_of_a_module_is_what_it_returns() {
    let graph = [
        "/model/layers.0/input_layernorm/Pow_output_0",
        "/model/layers.0/input_layernorm/ReduceMean_output_0",
        "/model/layers.0/input_layernorm/Mul_output_0",
        "/model/layers.0/input_layernorm/Mul_1_output_0",
        "/model/layers.0/self_attn/q_proj/MatMul_output_0",
        "/model/layers.0/self_attn/q_proj/Add_output_0",
        "/model/layers.0/self_attn/Softmax_output_0",
        "/model/layers.0/mlp/up_proj/MatMul_output_0",
        "/model/layers.0/mlp/Mul_output_0",
    ];
    let modules = [
        "model.layers.0.input_layernorm",
        "model.layers.0.self_attn.q_proj",
        "model.layers.0.mlp.up_proj",
        "model.layers.0.mlp",
    ];
    assert_eq!(
        paired(&[Rule::Normalized], &modules, &graph),
        [
            "model.layers.0.input_layernorm=/model/layers.0/input_layernorm/Mul_1_output_0",
            "model.layers.0.self_attn.q_proj=/model/layers.0/self_attn/q_proj/Add_output_0",
            "model.layers.0.mlp.up_proj=/model/layers.0/mlp/up_proj/MatMul_output_0",
        ]
    );
}

fn blocks(prefix: &str, first: u64, parts: &[&str]) -> Vec<String> {
    (first..first + 3)
        .flat_map(|layer| {
            parts
                .iter()
                .map(move |part| format!("{prefix}{layer}.{part}"))
        })
        .collect()
}

#[test]
fn layers_behind_a_prefix_that_says_nothing_may_be_shifted() {
    let parts = [
        "attention.dense.weight",
        "attention.dense.bias",
        "mlp.dense_h_to_4h.weight",
        "mlp.dense_4h_to_h.weight",
    ];
    let (reference, candidate) = (
        blocks("gpt_neox.layers.", 0, &parts),
        blocks("sequential.", 2, &parts),
    );
    let expected: Vec<String> = reference
        .iter()
        .zip(&candidate)
        .map(|(r, c)| format!("{r}={c}"))
        .collect();
    let (pairs, pairing) = paired_with(&settings(&[Rule::Normalized]), &reference, &candidate);
    assert_eq!((pairs, pairing.layer_offset), (expected, 2));
}

#[test]
fn a_prefix_on_either_side_is_left_out_where_the_rest_agrees() {
    let parts = [
        "norm1.weight",
        "attn.proj.weight",
        "mlp.fc1.weight",
        "mlp.fc2.weight",
        "zeta.weight",
    ];
    let (reference, candidate) = (
        blocks("left.tower.blocks.", 0, &parts),
        blocks("right.blocks.", 0, &parts),
    );
    assert_eq!(
        paired_with(&settings(&[Rule::Normalized]), &reference, &candidate)
            .0
            .len(),
        15
    );
}

#[test]
fn a_head_has_no_prefix() {
    let parts = [
        "dwconv.weight",
        "norm.weight",
        "mlp.fc1.weight",
        "mlp.fc2.weight",
    ];
    let [mut reference, mut candidate] = [
        blocks("wav2vec2.layers.", 0, &parts),
        blocks("other.thing.layers.", 0, &parts),
    ];
    reference.push("lm_head.weight".to_owned());
    candidate.push("other.lm_head.weight".to_owned());
    assert_eq!(
        paired_with(&settings(&[Rule::Normalized]), &reference, &candidate)
            .0
            .len(),
        13
    );
}
