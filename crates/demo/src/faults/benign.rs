//! No faults at all: other orders of summation, other precision, other layouts. A comparison must stay silent.

use super::{Break, Fault, Need};
use crate::array::Array;
use twinscope_tensor::DType;

pub(super) const FAULTS: &[Fault] = &[
    Fault::benign("repeat", "the same run once more", &[]),
    Fault::benign(
        "tp_order",
        "sums are made in four parts, as by four ranks",
        &[Break::Spec(|spec| spec.tp = 4)],
    ),
    Fault::benign(
        "float64",
        "the same run in f64",
        &[Break::Spec(|spec| spec.dtype = DType::F64)],
    ),
    Fault::benign(
        "bfloat16",
        "the same run in bf16",
        &[Break::Spec(|spec| spec.dtype = DType::Bf16)],
    )
    .needs(&[Need::Wide]),
    Fault::benign(
        "float16",
        "the same run in f16",
        &[Break::Spec(|spec| spec.dtype = DType::F16)],
    )
    .needs(&[Need::Wide]),
    Fault::benign(
        "flash_attention",
        "the softmax goes over four keys at a time",
        &[Break::Plan(|plan, _| {
            plan.layers
                .iter_mut()
                .for_each(|layer| layer.attention.block = Some(4));
        })],
    ),
    Fault::benign(
        "tp_shards",
        "two ranks are recorded, each with its shards",
        &[Break::Spec(|spec| (spec.ranks, spec.tp) = (2, 2))],
    )
    .needs(&[Need::TwoRanks]),
    Fault::benign(
        "heads_flat",
        "queries, keys and values are recorded with their heads joined",
        &[Break::Records(|records, _| {
            for record in records.iter_mut() {
                if ["_query", "_key", "_value", "_query_final", "_key_final"]
                    .iter()
                    .any(|end| record.name.ends_with(end))
                {
                    record.array = record.array.join_heads();
                }
            }
        })],
    ),
    Fault::benign(
        "batch_folded",
        "batch and positions are recorded as one axis",
        &[Break::Records(|records, scene| {
            let (batch, seq) = (scene.spec.batch, scene.spec.seq);
            for record in records
                .iter_mut()
                .filter(|record| !record.param && record.array.shape.len() == 3)
            {
                if record.array.shape[..2] == [batch, seq] {
                    let width = record.array.width();
                    record.array = record.array.clone().reshape([batch * seq, width]);
                }
            }
        })],
    ),
    Fault::benign(
        "vocab_padded",
        "logits are padded with zeros to a multiple of sixteen tokens",
        &[Break::Output("logits", |logits, _| {
            let width = logits.width();
            let mut shape = logits.shape.clone();
            shape[2] = (width + 1).next_multiple_of(16) - width;
            *logits = Array::concat(&[logits, &Array::zeros(shape)], 2);
        })],
    ),
];
