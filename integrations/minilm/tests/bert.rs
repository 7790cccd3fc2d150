//! The instrumented BERT is the released one, and its fault is found where it is. Small random weights: nothing is downloaded.

use candle::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert as released;
use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use twinscope_capture::{Recorder, candle as capture};
use twinscope_compare::{Judged, Overall, Settings, Sources};
use twinscope_formats::{Cache, Limits, OpenOptions};
use twinscope_minilm::{bert, fix_the_mask, forward};
use twinscope_tensor::TensorSource;

/// One recorder runs at a time, so the tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const CONFIG: &str = r#"{"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "max_position_embeddings": 16, "type_vocab_size": 2, "initializer_range": 0.02,
    "layer_norm_eps": 1e-12, "pad_token_id": 0}"#;

/// Every weight that is asked for, from its name alone.
struct Weights(Mutex<HashMap<String, Tensor>>);

impl candle_nn::var_builder::SimpleBackend for Weights {
    fn get(
        &self,
        shape: candle::Shape,
        name: &str,
        _: candle_nn::Init,
        dtype: DType,
        device: &Device,
    ) -> candle::Result<Tensor> {
        let mut known = self.0.lock().unwrap();
        if !known.contains_key(name) {
            let mut state = name.bytes().fold(7u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3) | 1
            });
            let norm = if name.ends_with("LayerNorm.weight") {
                1.0
            } else {
                0.0
            };
            let values = (0..shape.elem_count()).map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                ((state >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * 0.3 + norm
            });
            known.insert(
                name.to_owned(),
                Tensor::from_iter(values, device)?.reshape(shape)?,
            );
        }
        known[name].to_dtype(dtype)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> candle::Result<Tensor> {
        candle::bail!("`{name}` of no shape")
    }

    fn contains_tensor(&self, _: &str) -> bool {
        false
    }
}

fn weights(dtype: DType) -> VarBuilder<'static> {
    VarBuilder::from_backend(Box::new(Weights(Mutex::default())), dtype, Device::Cpu)
}

fn inputs() -> (Tensor, Tensor) {
    let ids = Tensor::new(&[[1u32, 20, 33, 4, 2], [1, 9, 2, 0, 0]], &Device::Cpu).unwrap();
    let mask = Tensor::new(&[[1u32, 1, 1, 1, 1], [1, 1, 1, 0, 0]], &Device::Cpu).unwrap();
    (ids, mask)
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor
        .to_dtype(DType::F32)
        .unwrap()
        .flatten_all()
        .unwrap()
        .to_vec1()
        .unwrap()
}

fn record(run: &Path, dtype: DType, fixed: bool) -> Tensor {
    fix_the_mask(fixed);
    let config = serde_json::from_str(CONFIG).unwrap();
    let (ids, mask) = inputs();
    let recorder = Recorder::to(run).start().unwrap();
    let model = bert::BertModel::load(weights(dtype), &config).unwrap();
    let output = forward(&model, &ids, &mask).unwrap();
    recorder.finish().unwrap();
    output
}

fn open(run: &Path) -> Box<dyn TensorSource> {
    let options = OpenOptions {
        limits: Limits::default(),
        cache: Arc::new(Cache::new(std::env::temp_dir(), 1 << 30)),
        raw: None,
    };
    twinscope_formats::open(run, &options).unwrap()
}

fn compare(reference: &Path, candidate: &Path) -> Judged {
    let (reference, candidate) = (open(reference), open(candidate));
    twinscope_explain::compare(
        &Sources::two(&*reference, &*candidate),
        &Settings::default(),
    )
    .unwrap()
}

#[test]
fn the_instrumented_model_gives_the_bits_of_the_released_one() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let config = serde_json::from_str(CONFIG).unwrap();
    let (ids, mask) = inputs();
    for dtype in [DType::F32, DType::BF16] {
        let model = released::BertModel::load(weights(dtype), &config).unwrap();
        let plain = model
            .forward(&ids, &ids.zeros_like().unwrap(), Some(&mask))
            .unwrap();
        let recorded = record(&folder.path().join(dtype.as_str()), dtype, false);
        let bits = |tensor: &Tensor| {
            values(tensor)
                .iter()
                .map(|value| value.to_bits())
                .collect::<Vec<_>>()
        };
        assert_eq!(bits(&plain), bits(&recorded), "{dtype:?}");
    }
}

#[test]
fn bf16_returns_nan_and_the_first_producer_is_the_minimum_of_the_mask() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (f32, bf16) = (folder.path().join("f32"), folder.path().join("bf16"));
    assert!(
        values(&record(&f32, DType::F32, false))
            .iter()
            .all(|value| value.is_finite())
    );
    assert!(
        values(&record(&bf16, DType::BF16, false))
            .iter()
            .all(|value| value.is_nan()),
        "candle-transformers 0.11.1 returns NaN in bf16"
    );
    let report = compare(&f32, &bf16);
    let first = &report.pairs[report.first_divergence().unwrap()];
    assert_eq!(first.name, "attention_mask.minimum");
    assert_eq!(
        first.causes.first().map(|cause| cause.kind.name()),
        Some("nonfinite"),
        "{:?}",
        first.causes
    );
    assert_eq!(
        report.divergences().len(),
        1,
        "everything after it is inherited"
    );
    assert!(report.only_reference.is_empty() && report.only_candidate.is_empty());
}

#[test]
fn with_the_lowest_number_of_the_dtype_bf16_agrees_to_rounding() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (f32, bf16) = (folder.path().join("f32"), folder.path().join("bf16"));
    record(&f32, DType::F32, true);
    assert!(
        values(&record(&bf16, DType::BF16, true))
            .iter()
            .all(|value| value.is_finite())
    );
    assert_eq!(compare(&f32, &bf16).verdict(), Overall::Agree);
}

#[test]
fn weights_are_recorded_under_their_names() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let config = serde_json::from_str(CONFIG).unwrap();
    let recorder = Recorder::to(folder.path()).start().unwrap();
    bert::BertModel::load(capture::weights(weights(DType::F32)), &config).unwrap();
    recorder.finish().unwrap();
    let source = open(folder.path());
    let names: Vec<&str> = source
        .listing()
        .tensors
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    assert!(
        names.contains(&"encoder.layer.1.attention.self.query.weight"),
        "{names:?}"
    );
    assert_eq!(names.len(), 5 + 2 * 16);
}
