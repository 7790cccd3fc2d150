//! candle: what its taps, layers, weights and gradients record, and that recording changes nothing.

mod common;
use candle_core::{DType, Device, Module, Tensor};
use candle_nn::{VarBuilder, VarMap};
use common::{bytes, inputs, meta, names, open, turn};
use twinscope_capture::{
    DType as Recorded, Recorder, Role,
    candle::{self as capture, TapExt, nn},
    record,
};
use twinscope_frameworks::{candle_model as model, weights};

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn every_layer_records_itself_under_its_path_and_the_output_stays_the_same() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let plain = model::model(None)
        .unwrap()
        .forward(&model::tokens().unwrap())
        .unwrap();
    let recorder = Recorder::to(folder.path()).start().unwrap();
    let recorded = model::model(None)
        .unwrap()
        .forward(&model::tokens().unwrap())
        .unwrap();
    recorder.finish().unwrap();
    assert_eq!(values(&plain), values(&recorded));

    let source = open(folder.path());
    let names = names(&*source);
    for name in [
        "embed.weight",
        "embed",
        "layers.0.norm1",
        "layers.1.attn.query",
        "layers.1.attn.attn",
        "layers.1.mlp.gelu",
        "layers.1",
        "head",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    assert_eq!(
        names
            .iter()
            .filter(|name| name.ends_with(".weight"))
            .count(),
        19
    );
    assert_eq!(
        bytes(&*source, "head"),
        values(&plain)
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect::<Vec<u8>>()
    );
    let (query, attention) = (
        meta(&*source, "layers.0.attn.query"),
        meta(&*source, "layers.0.attn.attn"),
    );
    assert_eq!(
        (query["cls"].as_str(), query["dev"].as_str()),
        (Some("Linear"), Some("cpu"))
    );
    assert_eq!(
        (attention["role"].as_str(), attention["dims"].as_str()),
        (Some("attn"), Some("b h s t"))
    );
}

#[test]
fn data_flow_is_known_where_a_recorded_tensor_goes_into_a_layer() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::to(folder.path()).start().unwrap();
    model::model(None)
        .unwrap()
        .forward(&model::tokens().unwrap())
        .unwrap();
    recorder.finish().unwrap();
    let source = open(folder.path());
    assert_eq!(
        inputs(&*source, "layers.0.attn.query"),
        [
            "layers.0.norm1",
            "layers.0.attn.query.weight",
            "layers.0.attn.query.bias"
        ]
    );
    assert_eq!(
        inputs(&*source, "layers.0.attn.output")[0],
        "layers.0.attn.context"
    );
    assert_eq!(inputs(&*source, "layers.1.norm1")[0], "layers.0");
    assert_eq!(inputs(&*source, "head")[0], "norm");
}

/// Two layers and a loss; its gradient for the first layer's weight. No norm: candle's fused one has no backward pass.
fn train() -> Vec<f32> {
    let map = VarMap::new();
    let vb = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let (up, down) = (
        nn::linear(4, 8, vb.pp("up")).unwrap(),
        nn::linear(8, 4, vb.pp("down")).unwrap(),
    );
    for (name, var) in map.data().lock().unwrap().iter() {
        let values = weights::values(name, var.elem_count(), 4);
        var.set(&Tensor::from_vec(values, var.shape(), &Device::Cpu).unwrap())
            .unwrap();
    }
    let x = Tensor::arange(0f32, 12.0, &Device::Cpu)
        .unwrap()
        .reshape((3, 4))
        .unwrap();
    let hidden = up.forward(&x).tap_grad("up").unwrap().gelu_erf().unwrap();
    let loss = down
        .forward(&hidden)
        .tap_grad("down")
        .unwrap()
        .sqr()
        .unwrap()
        .mean_all()
        .unwrap();
    let gradients = loss.backward().unwrap();
    capture::record_weights(&map).unwrap();
    capture::gradients(&gradients, &map).unwrap();
    let weight = map.data().lock().unwrap()["up.weight"].as_tensor().clone();
    values(gradients.get(&weight).unwrap())
}

#[test]
fn gradients_of_weights_and_activations_are_recorded_and_stay_the_same() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let plain = train();
    let recorder = Recorder::to(folder.path()).start().unwrap();
    let recorded = train();
    recorder.finish().unwrap();
    assert_eq!(plain, recorded);
    let source = open(folder.path());
    let expected: Vec<u8> = plain.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(bytes(&*source, "up.weight.param_grad"), expected);
    // The backward pass meets the last layer first; weights and their gradients are recorded by name, behind it.
    let gradients: Vec<&str> = names(&*source)
        .into_iter()
        .filter(|name| name.contains("grad"))
        .collect();
    let by_name = [
        "down.bias.param_grad",
        "down.weight.param_grad",
        "up.bias.param_grad",
        "up.weight.param_grad",
    ];
    assert_eq!(
        gradients,
        [&["down.grad", "up.grad"][..], &by_name[..]].concat()
    );
    assert_eq!(meta(&*source, "up.grad")["phase"], "bwd");
}

#[test]
fn dtypes_strides_and_scalars_are_recorded_as_they_are() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let x = Tensor::arange(0f32, 6.0, &Device::Cpu)
        .unwrap()
        .reshape((2, 3))
        .unwrap();
    let recorder = Recorder::to(folder.path()).immediate().start().unwrap();
    record("transposed", &x.t().unwrap()).unwrap();
    record("narrowed", &x.narrow(1, 1, 2).unwrap()).unwrap();
    record("row", &x.get(1).unwrap()).unwrap();
    record("scalar", &x.sum_all().unwrap()).unwrap();
    for dtype in [
        DType::BF16,
        DType::F16,
        DType::F64,
        DType::U8,
        DType::U32,
        DType::I64,
        DType::F8E4M3,
    ] {
        record(dtype.as_str(), &x.to_dtype(dtype).unwrap()).unwrap();
    }
    recorder.finish().unwrap();
    let source = open(folder.path());
    let le = |values: &[f32]| {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    assert_eq!(
        bytes(&*source, "transposed"),
        le(&[0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    );
    assert_eq!(bytes(&*source, "narrowed"), le(&[1.0, 2.0, 4.0, 5.0]));
    assert_eq!(bytes(&*source, "row"), le(&[3.0, 4.0, 5.0]));
    assert_eq!(bytes(&*source, "scalar"), le(&[15.0]));
    let dtypes: Vec<Recorded> = source.listing().tensors[4..]
        .iter()
        .map(|tensor| tensor.dtype)
        .collect();
    assert_eq!(
        dtypes,
        [
            Recorded::Bf16,
            Recorded::F16,
            Recorded::F64,
            Recorded::U8,
            Recorded::U32,
            Recorded::I64,
            Recorded::F8E4M3Fn
        ]
    );
    assert_eq!(
        bytes(&*source, "bf16"),
        [
            0, 0, 0x80, 0x3f, 0, 0x40, 0x40, 0x40, 0x80, 0x40, 0xa0, 0x40
        ]
    );
}

#[test]
fn the_same_model_recorded_twice_is_identical() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    for run in ["a", "b"] {
        let _recorder = Recorder::to(folder.path().join(run))
            .without(&[Role::Weight])
            .start()
            .unwrap();
        model::model(None)
            .unwrap()
            .forward(&model::tokens().unwrap())
            .unwrap();
    }
    let report = common::compare(
        &*open(&folder.path().join("a")),
        &*open(&folder.path().join("b")),
    );
    assert!(
        report.pairs.len() > 20
            && report.only_reference.is_empty()
            && report.only_candidate.is_empty()
    );
    assert!(
        report
            .pairs
            .iter()
            .all(|pair| pair.verdict() == twinscope_compare::Verdict::Identical)
    );
}
