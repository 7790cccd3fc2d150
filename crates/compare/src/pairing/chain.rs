//! Tests of the whole chain: real name families against each other, and what must hold whatever the names are.

use super::{pair, testing::*};
use crate::{Settings, settings::Rule, side::Side};
use proptest::prelude::*;
use twinscope_tensor::DType;

const HIDDEN: u64 = 16;
const KV: u64 = 4;
const INNER: u64 = 40;
const VOCAB: u64 = 100;

type Tensors = Vec<(String, Vec<u64>)>;

fn source(tensors: &Tensors) -> Source {
    tensors.iter().fold(Source::new(), |source, (name, dims)| {
        source.with(name, DType::F32, dims, Vec::new())
    })
}

/// A llama with what each family calls its tensors, `{}` being the layer.
fn llama(layers: u64, outer: &[(&str, &[u64])], inner: &[(&str, &[u64])]) -> Tensors {
    let mut tensors: Tensors = outer
        .iter()
        .map(|(name, dims)| ((*name).to_owned(), dims.to_vec()))
        .collect();
    for layer in 0..layers {
        tensors.extend(
            inner
                .iter()
                .map(|(name, dims)| (name.replace("{}", &layer.to_string()), dims.to_vec())),
        );
    }
    tensors
}

fn hugging_face(layers: u64) -> Tensors {
    llama(
        layers,
        &[
            ("model.embed_tokens.weight", &[VOCAB, HIDDEN]),
            ("model.norm.weight", &[HIDDEN]),
            ("lm_head.weight", &[VOCAB, HIDDEN]),
        ],
        &[
            ("model.layers.{}.input_layernorm.weight", &[HIDDEN]),
            ("model.layers.{}.self_attn.q_proj.weight", &[HIDDEN, HIDDEN]),
            ("model.layers.{}.self_attn.k_proj.weight", &[KV, HIDDEN]),
            ("model.layers.{}.self_attn.v_proj.weight", &[KV, HIDDEN]),
            ("model.layers.{}.self_attn.o_proj.weight", &[HIDDEN, HIDDEN]),
            ("model.layers.{}.post_attention_layernorm.weight", &[HIDDEN]),
            ("model.layers.{}.mlp.gate_proj.weight", &[INNER, HIDDEN]),
            ("model.layers.{}.mlp.up_proj.weight", &[INNER, HIDDEN]),
            ("model.layers.{}.mlp.down_proj.weight", &[HIDDEN, INNER]),
        ],
    )
}

fn gguf(layers: u64) -> Tensors {
    llama(
        layers,
        &[
            ("token_embd.weight", &[VOCAB, HIDDEN]),
            ("output_norm.weight", &[HIDDEN]),
            ("output.weight", &[VOCAB, HIDDEN]),
        ],
        &[
            ("blk.{}.attn_norm.weight", &[HIDDEN]),
            ("blk.{}.attn_q.weight", &[HIDDEN, HIDDEN]),
            ("blk.{}.attn_k.weight", &[KV, HIDDEN]),
            ("blk.{}.attn_v.weight", &[KV, HIDDEN]),
            ("blk.{}.attn_output.weight", &[HIDDEN, HIDDEN]),
            ("blk.{}.ffn_norm.weight", &[HIDDEN]),
            ("blk.{}.ffn_gate.weight", &[INNER, HIDDEN]),
            ("blk.{}.ffn_up.weight", &[INNER, HIDDEN]),
            ("blk.{}.ffn_down.weight", &[HIDDEN, INNER]),
        ],
    )
}

fn meta(layers: u64) -> Tensors {
    llama(
        layers,
        &[
            ("tok_embeddings.weight", &[VOCAB, HIDDEN]),
            ("norm.weight", &[HIDDEN]),
            ("output.weight", &[VOCAB, HIDDEN]),
        ],
        &[
            ("layers.{}.attention_norm.weight", &[HIDDEN]),
            ("layers.{}.attention.wq.weight", &[HIDDEN, HIDDEN]),
            ("layers.{}.attention.wk.weight", &[KV, HIDDEN]),
            ("layers.{}.attention.wv.weight", &[KV, HIDDEN]),
            ("layers.{}.attention.wo.weight", &[HIDDEN, HIDDEN]),
            ("layers.{}.ffn_norm.weight", &[HIDDEN]),
            ("layers.{}.feed_forward.w1.weight", &[INNER, HIDDEN]),
            ("layers.{}.feed_forward.w3.weight", &[INNER, HIDDEN]),
            ("layers.{}.feed_forward.w2.weight", &[HIDDEN, INNER]),
        ],
    )
}

fn megatron(layers: u64) -> Tensors {
    llama(
        layers,
        &[
            ("embedding.word_embeddings.weight", &[VOCAB, HIDDEN]),
            ("decoder.final_layernorm.weight", &[HIDDEN]),
            ("output_layer.weight", &[VOCAB, HIDDEN]),
        ],
        &[
            (
                "decoder.layers.{}.self_attention.linear_qkv.layer_norm_weight",
                &[HIDDEN],
            ),
            (
                "decoder.layers.{}.self_attention.linear_qkv.weight",
                &[HIDDEN + 2 * KV, HIDDEN],
            ),
            (
                "decoder.layers.{}.self_attention.linear_proj.weight",
                &[HIDDEN, HIDDEN],
            ),
            (
                "decoder.layers.{}.mlp.linear_fc1.layer_norm_weight",
                &[HIDDEN],
            ),
            (
                "decoder.layers.{}.mlp.linear_fc1.weight",
                &[2 * INNER, HIDDEN],
            ),
            ("decoder.layers.{}.mlp.linear_fc2.weight", &[HIDDEN, INNER]),
        ],
    )
}

fn vllm(layers: u64) -> Tensors {
    llama(
        layers,
        &[
            ("model.embed_tokens.weight", &[VOCAB, HIDDEN]),
            ("model.norm.weight", &[HIDDEN]),
            ("lm_head.weight", &[VOCAB, HIDDEN]),
        ],
        &[
            ("model.layers.{}.input_layernorm.weight", &[HIDDEN]),
            (
                "model.layers.{}.self_attn.qkv_proj.weight",
                &[HIDDEN + 2 * KV, HIDDEN],
            ),
            ("model.layers.{}.self_attn.o_proj.weight", &[HIDDEN, HIDDEN]),
            ("model.layers.{}.post_attention_layernorm.weight", &[HIDDEN]),
            (
                "model.layers.{}.mlp.gate_up_proj.weight",
                &[2 * INNER, HIDDEN],
            ),
            ("model.layers.{}.mlp.down_proj.weight", &[HIDDEN, INNER]),
        ],
    )
}

/// Lists `a = b` of two families; every line must come out as a pair of its own, with the layers written as `{}`.
fn each_line_is_a_pair(lines: &str) {
    let mut sides: [Tensors; 2] = Default::default();
    for layer in 0..2 {
        for line in lines
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && (layer == 0 || line.contains("{}")))
        {
            let (reference, candidate) = line.split_once(" = ").unwrap();
            sides[0].push((reference.replace("{}", &layer.to_string()), vec![2]));
            sides[1].push((candidate.replace("{}", &layer.to_string()), vec![2]));
        }
    }
    let (pairs, pairing) = result(
        &settings(&[Rule::Normalized]),
        &source(&sides[0]),
        &source(&sides[1]),
    );
    let expected: Vec<String> = sides[0]
        .iter()
        .zip(&sides[1])
        .map(|(r, c)| format!("{}={}", r.0, c.0))
        .collect();
    assert_eq!(pairs, expected);
    assert!(pairing.only_candidate.is_empty());
}

#[test]
fn bert_is_called_differently_in_gguf() {
    each_line_is_a_pair(
        "bert.embeddings.word_embeddings.weight = token_embd.weight
        bert.embeddings.position_embeddings.weight = position_embd.weight
        bert.embeddings.token_type_embeddings.weight = token_types.weight
        bert.embeddings.LayerNorm.weight = token_embd_norm.weight
        bert.embeddings.LayerNorm.bias = token_embd_norm.bias
        bert.encoder.layer.{}.attention.self.query.weight = blk.{}.attn_q.weight
        bert.encoder.layer.{}.attention.self.query.bias = blk.{}.attn_q.bias
        bert.encoder.layer.{}.attention.self.key.weight = blk.{}.attn_k.weight
        bert.encoder.layer.{}.attention.self.value.weight = blk.{}.attn_v.weight
        bert.encoder.layer.{}.attention.output.dense.weight = blk.{}.attn_output.weight
        bert.encoder.layer.{}.attention.output.LayerNorm.weight = blk.{}.attn_output_norm.weight
        bert.encoder.layer.{}.intermediate.dense.weight = blk.{}.ffn_up.weight
        bert.encoder.layer.{}.output.dense.weight = blk.{}.ffn_down.weight
        bert.encoder.layer.{}.output.LayerNorm.weight = blk.{}.layer_output_norm.weight",
    );
}

#[test]
fn gpt2_and_neox_are_called_differently_in_gguf() {
    each_line_is_a_pair(
        "transformer.wte.weight = token_embd.weight
        transformer.wpe.weight = position_embd.weight
        transformer.ln_f.weight = output_norm.weight
        transformer.ln_f.bias = output_norm.bias
        transformer.h.{}.ln_1.weight = blk.{}.attn_norm.weight
        transformer.h.{}.attn.c_attn.weight = blk.{}.attn_qkv.weight
        transformer.h.{}.attn.c_proj.bias = blk.{}.attn_output.bias
        transformer.h.{}.ln_2.weight = blk.{}.ffn_norm.weight
        transformer.h.{}.mlp.c_fc.weight = blk.{}.ffn_up.weight
        transformer.h.{}.mlp.c_proj.weight = blk.{}.ffn_down.weight",
    );
    each_line_is_a_pair(
        "gpt_neox.embed_in.weight = token_embd.weight
        gpt_neox.final_layer_norm.weight = output_norm.weight
        embed_out.weight = output.weight
        gpt_neox.layers.{}.input_layernorm.bias = blk.{}.attn_norm.bias
        gpt_neox.layers.{}.attention.query_key_value.weight = blk.{}.attn_qkv.weight
        gpt_neox.layers.{}.attention.dense.weight = blk.{}.attn_output.weight
        gpt_neox.layers.{}.post_attention_layernorm.weight = blk.{}.ffn_norm.weight
        gpt_neox.layers.{}.mlp.dense_h_to_4h.weight = blk.{}.ffn_up.weight
        gpt_neox.layers.{}.mlp.dense_4h_to_h.weight = blk.{}.ffn_down.weight",
    );
}

#[test]
fn gemma_qwen_and_mixtures_of_experts_are_called_differently_in_gguf() {
    each_line_is_a_pair(
        "model.layers.{}.input_layernorm.weight = blk.{}.attn_norm.weight
        model.layers.{}.post_attention_layernorm.weight = blk.{}.post_attention_norm.weight
        model.layers.{}.pre_feedforward_layernorm.weight = blk.{}.ffn_norm.weight
        model.layers.{}.post_feedforward_layernorm.weight = blk.{}.post_ffw_norm.weight
        model.layers.{}.self_attn.q_norm.weight = blk.{}.attn_q_norm.weight
        model.layers.{}.self_attn.k_norm.weight = blk.{}.attn_k_norm.weight",
    );
    each_line_is_a_pair(
        "model.layers.{}.block_sparse_moe.gate.weight = blk.{}.ffn_gate_inp.weight
        model.layers.{}.block_sparse_moe.experts.w1.weight = blk.{}.ffn_gate_exps.weight",
    );
    each_line_is_a_pair(
        "model.layers.{}.mlp.gate.weight = blk.{}.ffn_gate_inp.weight
        model.layers.{}.mlp.experts.gate_proj.weight = blk.{}.ffn_gate_exps.weight
        model.layers.{}.mlp.shared_expert.gate_proj.weight = blk.{}.ffn_gate_shexp.weight
        model.layers.{}.mlp.shared_expert.down_proj.weight = blk.{}.ffn_down_shexp.weight",
    );
}

#[test]
fn what_llama_cpp_computes_is_what_modules_return() {
    each_line_is_a_pair(
        "model.embed_tokens = inp_embd
        model.layers.{}.input_layernorm = attn_norm-{}
        model.layers.{}.self_attn.q_proj = Qcur-{}
        model.layers.{}.self_attn.k_proj = Kcur-{}
        model.layers.{}.self_attn.v_proj = Vcur-{}
        model.layers.{}.self_attn.o_proj = attn_out-{}
        model.layers.{}.post_attention_layernorm = ffn_norm-{}
        model.layers.{}.mlp.gate_proj = ffn_gate-{}
        model.layers.{}.mlp.up_proj = ffn_up-{}
        model.layers.{}.mlp = ffn_out-{}
        model.layers.{} = l_out-{}
        model.norm = result_norm
        lm_head = result_output",
    );
}

#[test]
fn encoders_are_called_differently_in_paddle_clip_and_flax() {
    each_line_is_a_pair(
        "bert.encoder.layer.{}.attention.self.query.weight = bert.encoder.layers.{}.self_attn.q_proj.weight
        bert.encoder.layer.{}.attention.output.dense.bias = bert.encoder.layers.{}.self_attn.out_proj.bias
        bert.encoder.layer.{}.attention.output.LayerNorm.weight = bert.encoder.layers.{}.norm1.weight
        bert.encoder.layer.{}.intermediate.dense.weight = bert.encoder.layers.{}.linear1.weight
        bert.encoder.layer.{}.output.dense.weight = bert.encoder.layers.{}.linear2.weight
        bert.encoder.layer.{}.output.LayerNorm.bias = bert.encoder.layers.{}.norm2.bias",
    );
    each_line_is_a_pair(
        "text_model.encoder.layers.{}.layer_norm1.weight = transformer.resblocks.{}.ln_1.weight
        vision_model.encoder.layers.{}.layer_norm1.weight = visual.transformer.resblocks.{}.ln_1.weight
        text_model.encoder.layers.{}.mlp.fc1.bias = transformer.resblocks.{}.mlp.c_fc.bias
        vision_model.encoder.layers.{}.mlp.fc1.bias = visual.transformer.resblocks.{}.mlp.c_fc.bias",
    );
    each_line_is_a_pair(
        "blocks.{}.norm1.weight = Transformer/encoderblock_{}/LayerNorm_0/scale
        blocks.{}.norm2.bias = Transformer/encoderblock_{}/LayerNorm_2/bias
        blocks.{}.attn.proj.weight = Transformer/encoderblock_{}/MultiHeadDotProductAttention_1/out/kernel
        blocks.{}.mlp.fc1.weight = Transformer/encoderblock_{}/MlpBlock_3/Dense_0/kernel
        blocks.{}.mlp.fc2.bias = Transformer/encoderblock_{}/MlpBlock_3/Dense_1/bias
        norm.weight = Transformer/encoder_norm/scale
        pos_embed = Transformer/posembed_input/pos_embedding",
    );
    each_line_is_a_pair(
        "backbone.layers.{}.mixer.in_proj.weight = blk.{}.ssm_in.weight
        backbone.layers.{}.mixer.dt_proj.bias = blk.{}.ssm_dt.bias
        backbone.layers.{}.mixer.out_proj.weight = blk.{}.ssm_out.weight",
    );
}

#[test]
fn the_gate_is_found_by_what_its_neighbours_are_called() {
    for [gate, up, down] in [
        // TensorRT-LLM, LitGPT, the first Qwen, DBRX, timm.
        ["mlp.fc", "mlp.gate", "mlp.proj"],
        ["mlp.fc_1", "mlp.fc_2", "mlp.proj"],
        ["mlp.w2", "mlp.w1", "mlp.c_proj"],
        ["ffn.w1", "ffn.v1", "ffn.w2"],
        ["mlp.fc1_g", "mlp.fc1_x", "mlp.fc2"],
    ] {
        each_line_is_a_pair(&format!(
            "model.layers.{{}}.mlp.gate_proj.weight = transformer.layers.{{}}.{gate}.weight
            model.layers.{{}}.mlp.up_proj.weight = transformer.layers.{{}}.{up}.weight
            model.layers.{{}}.mlp.down_proj.weight = transformer.layers.{{}}.{down}.weight"
        ));
    }
    // Without a gate they are what they are elsewhere.
    each_line_is_a_pair(
        "model.layers.{}.mlp.up_proj.weight = transformer.layers.{}.mlp.fc.weight
        model.layers.{}.mlp.down_proj.weight = transformer.layers.{}.mlp.proj.weight",
    );
    each_line_is_a_pair(
        "model.layers.{}.mlp.up_proj.weight = blocks.{}.mlp.fc1.weight
        model.layers.{}.mlp.down_proj.weight = blocks.{}.mlp.fc2.weight",
    );
}

#[test]
fn experts_have_other_names_in_mlx_and_torchtitan() {
    each_line_is_a_pair(
        "model.layers.{}.mlp.gate.weight = layers.{}.moe.router.gate.weight
        model.layers.{}.mlp.experts.gate_proj.weight = layers.{}.moe.experts.w1.weight
        model.layers.{}.mlp.experts.down_proj.weight = layers.{}.moe.experts.w2.weight",
    );
    each_line_is_a_pair(
        "blk.{}.ffn_gate_inp.weight = model.layers.{}.mlp.gate.weight
        blk.{}.exp_probs_b.bias = model.layers.{}.mlp.gate.e_score_correction_bias
        blk.{}.ffn_up_exps.weight = model.layers.{}.mlp.switch_mlp.up_proj.weight",
    );
}

#[test]
fn an_encoder_and_a_decoder_are_not_mixed_up() {
    each_line_is_a_pair(
        "model.encoder.layers.{}.self_attn.q_proj.weight = encoder.layers.{}.self_attn.q_proj.weight
        model.decoder.layers.{}.self_attn.q_proj.weight = decoder.layers.{}.self_attn.q_proj.weight
        model.decoder.layers.{}.encoder_attn.q_proj.weight = decoder.layers.{}.encoder_attn.q_proj.weight",
    );
}

/// What each tensor of the Hugging Face llama is paired with, by position in its layer.
fn all_paired(reference: &Tensors, candidate: &Tensors, expected: usize) {
    for settings in [settings(&[Rule::Normalized]), Settings::default()] {
        for (one, other) in [(reference, candidate), (candidate, reference)] {
            let (pairs, pairing) = result(&settings, &source(one), &source(other));
            assert_eq!(pairs.len(), expected, "{pairs:?}");
            assert!(pairing.only_reference.is_empty() && pairing.only_candidate.is_empty());
            assert!(
                pairing
                    .pairs
                    .iter()
                    .all(|pair| matches!(pair.rule, Rule::Normalized | Rule::Exact)),
                "no guesses: {pairs:?}"
            );
            assert_eq!(pairing.layer_offset, 0);
        }
    }
}

#[test]
fn families_with_the_same_parts_pair_one_by_one_and_in_place() {
    for other in [gguf(3), meta(3)] {
        all_paired(&hugging_face(3), &other, 30);
        // The lists are written in the same order, so position tells who belongs to whom.
        let (_, pairing) = result(
            &settings(&[Rule::Normalized]),
            &source(&hugging_face(3)),
            &source(&other),
        );
        assert!(
            pairing
                .pairs
                .iter()
                .all(|pair| pair.reference == pair.candidate)
        );
    }
    all_paired(&gguf(3), &meta(3), 30);
}

#[test]
fn fused_families_pair_with_split_ones_and_with_each_other() {
    all_paired(&hugging_face(3), &megatron(3), 3 + 3 * 6);
    all_paired(&hugging_face(3), &vllm(3), 3 + 3 * 6);
    all_paired(&gguf(2), &megatron(2), 3 + 2 * 6);
    all_paired(&gguf(2), &vllm(2), 3 + 2 * 6);
}

#[test]
fn two_fused_families_pair_though_one_calls_gate_and_up_fc1() {
    let (pairs, pairing) = result(
        &Settings::default(),
        &source(&megatron(2)),
        &source(&vllm(2)),
    );
    assert_eq!(
        pairs.len(),
        3 + 2 * 6,
        "{:?} {:?}",
        pairing.only_reference,
        pairing.only_candidate
    );
    assert!(pairs.contains(
        &"decoder.layers.1.mlp.linear_fc1.weight=model.layers.1.mlp.gate_up_proj.weight".to_owned()
    ));
}

/// Matrices cut along their first dimension, one folder a rank.
fn in_two_ranks(whole: &Tensors, folder: &str) -> Tensors {
    let of_rank = |rank: usize| {
        whole.iter().map(move |(name, dims)| {
            let mut dims = dims.clone();
            dims[0] /= if dims.len() == 2 { 2 } else { 1 };
            (format!("{folder}{rank}/{name}"), dims)
        })
    };
    (0..2).flat_map(of_rank).collect()
}

#[test]
fn shards_of_one_fused_family_pair_with_the_whole_of_another() {
    let sharded = in_two_ranks(&megatron(2), "mp_rank_0");
    let (pairs, pairing) = result(&Settings::default(), &source(&vllm(2)), &source(&sharded));
    assert_eq!(
        (
            pairs.len(),
            pairing.only_reference.len(),
            pairing.only_candidate.len()
        ),
        (3 + 2 * 6, 0, 0),
        "{pairs:?}"
    );
}

#[test]
fn other_families_pair_with_the_layers_shifted() {
    let shifted: Tensors = gguf(3)
        .into_iter()
        .map(|(name, dims)| {
            (
                name.replace("blk.2", "blk.9")
                    .replace("blk.1", "blk.8")
                    .replace("blk.0", "blk.7"),
                dims,
            )
        })
        .collect();
    let (pairs, pairing) = result(
        &Settings::default(),
        &source(&hugging_face(3)),
        &source(&shifted),
    );
    assert_eq!((pairs.len(), pairing.layer_offset), (30, 7));
}

#[test]
fn wrappers_do_not_matter() {
    let wrapped: Tensors = hugging_face(2)
        .into_iter()
        .map(|(name, dims)| (format!("module._orig_mod.{name}"), dims))
        .collect();
    all_paired(&hugging_face(2), &wrapped, 21);
}

#[test]
fn two_tensors_of_one_canonical_name_are_left_alone() {
    let (pairs, pairing) = paired_with(
        &settings(&[Rule::Normalized]),
        &names(&["model.layers.0.mlp.up_proj.weight"]),
        &names(&["blk.0.ffn_up.weight", "layers.0.feed_forward.w3.weight"]),
    );
    assert!(pairs.is_empty());
    assert_eq!(
        (pairing.only_reference.len(), pairing.only_candidate.len()),
        (1, 2)
    );
}

#[test]
fn a_missing_tensor_is_not_replaced_by_another() {
    let (mut reference, mut candidate) = (hugging_face(2), gguf(2));
    reference.retain(|(name, _)| name != "model.layers.1.mlp.up_proj.weight");
    candidate.retain(|(name, _)| name != "blk.0.ffn_gate.weight");
    let (_, pairing) = result(
        &Settings::default(),
        &source(&reference),
        &source(&candidate),
    );
    let left = |side: &Tensors, only: &[super::Leftover]| {
        only.iter()
            .map(|left| side[left.item].0.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        left(&reference, &pairing.only_reference),
        ["model.layers.0.mlp.gate_proj.weight"]
    );
    assert_eq!(
        left(&candidate, &pairing.only_candidate),
        ["blk.1.ffn_up.weight"]
    );
}

#[test]
fn sharded_families_pair_with_whole_ones() {
    let sharded = in_two_ranks(&hugging_face(2), "rank");
    let (pairs, pairing) = result(&Settings::default(), &source(&gguf(2)), &source(&sharded));
    assert_eq!((pairs.len(), pairing.only_candidate.len()), (21, 0));
    assert!(pairing.pairs.iter().all(|pair| pair.candidate.len() == 2));
}

#[test]
fn numbers_of_the_source_pair_like_tensors() {
    let reference = Source::shaped(&[("0_scaling", &[]), ("0_sliding", &[1, 1, 1, 1])]);
    assert_eq!(
        result(&Settings::default(), &reference, &reference).0,
        ["0_scaling=0_scaling", "0_sliding=0_sliding"]
    );
}

/// Names of every kind, likely to meet each other.
fn some_name() -> impl Strategy<Value = String> {
    let prefix = prop::sample::select(vec![
        "",
        "model.",
        "rank0/",
        "rank1/",
        "tp1.",
        "TP0_PP1/",
        "module.model.",
        "a/",
    ]);
    let layer = prop::sample::select(vec![
        "0_",
        "1_",
        "layers.0.",
        "blk.1.",
        "h.2.",
        "",
        "07_",
        "experts.3.",
    ]);
    let stage = prop::sample::select(vec![
        "query",
        "key",
        "q_proj",
        "attn_q",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "attn_v",
        "qkv_proj",
        "attn_qkv",
        "mlp.up_proj",
        "mlp.gate_proj",
        "mlp.linear_fc1",
        "",
        "norm",
        "x",
    ]);
    let suffix = prop::sample::select(vec!["", ".weight", ".bias", "_rank_0", "_rank_1", "#2"]);
    (prefix, layer, stage, suffix)
        .prop_map(|(prefix, layer, stage, suffix)| format!("{prefix}{layer}{stage}{suffix}"))
}

fn some_source() -> impl Strategy<Value = Vec<(String, Vec<u64>)>> {
    prop::collection::vec(
        (
            some_name(),
            prop::sample::select(vec![
                vec![],
                vec![2],
                vec![2, 3],
                vec![3, 2],
                vec![6, 3],
                vec![4, 3],
                vec![0],
            ]),
        ),
        0..14,
    )
}

proptest! {
    /// `result` checks it: every item of both sides is in exactly one place, and pairs are in the reference's order.
    #[test]
    fn every_item_ends_in_exactly_one_place(
        reference in some_source(),
        candidate in some_source(),
        rules in prop::collection::vec(prop::sample::select(Rule::ALL.to_vec()), 0..9),
        offset in prop::option::of(-2i64..3),
        only in prop::option::of(Just("*q*".to_owned())),
        skip in prop::option::of(Just("*1*".to_owned())),
    ) {
        let settings = Settings {
            layer_offset: offset,
            only: only.into_iter().collect(),
            skip: skip.into_iter().collect(),
            patterns: vec![crate::settings::Pattern { reference: r"(?<layer>\d+).*(?<end>.)$".to_owned(), candidate: None }],
            fuzzy_threshold: 0.6,
            ..settings(&rules)
        };
        let (_, pairing) = result(&settings, &source(&reference), &source(&candidate));
        prop_assert!(pairing.pairs.iter().all(|pair| rules.contains(&pair.rule)), "only by the rules asked for");
    }

    #[test]
    fn the_same_input_gives_the_same_pairs(reference in some_source(), candidate in some_source()) {
        let (reference, candidate) = (source(&reference), source(&candidate));
        let run = || pair(&Side::new(&reference), &Side::new(&candidate), &Settings::default()).unwrap();
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn a_source_with_different_names_pairs_with_itself_completely(tensors in some_source()) {
        let mut tensors = tensors;
        tensors.sort();
        tensors.dedup_by(|a, b| a.0 == b.0);
        let source = source(&tensors);
        let (_, pairing) = result(&Settings::default(), &source, &source);
        prop_assert_eq!(pairing.layer_offset, 0);
        prop_assert!(pairing.pairs.iter().all(|pair| pair.reference == pair.candidate));
        prop_assert!(pairing.only_reference.is_empty());
    }
}
