//! burn: what its taps, weights, gradients and operations record, and that recording changes nothing.

mod common;
use burn::tensor::{Device, Tensor, TensorData};
use common::{bytes, inputs, meta, names, open, turn};
use twinscope_capture::Recorder;
use twinscope_capture_burn::{self as capture, record};
use twinscope_frameworks::burn_model as model;

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

fn le(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[test]
fn taps_record_and_the_output_stays_the_same() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let model = model::model(&device);
    let plain = values(model.forward(model::tokens(&device)));
    let recorder = Recorder::to(folder.path()).start().unwrap();
    capture::record_weights(&model).unwrap();
    let recorded = values(model.forward(model::tokens(&device)));
    recorder.finish().unwrap();
    assert_eq!(plain, recorded);
    let source = open(folder.path());
    let names = names(&*source);
    for name in [
        "embed.weight",
        "layers.1.attn.query.bias",
        "layers.0.norm1.gamma",
        "embed",
        "layers.1.attn.query",
        "layers.1.attn.attn",
        "layers.1",
        "head",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    assert_eq!(bytes(&*source, "head"), le(&plain));
}

#[test]
fn every_operation_is_recorded_and_gives_what_the_model_gives() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let model = model::model(&device);
    let direct = values(model.forward(model::tokens(&device)));
    let recorder = Recorder::to(folder.path()).start().unwrap();
    capture::record_ops(&model, |model, device| model.forward(model::tokens(device))).unwrap();
    recorder.finish().unwrap();
    let source = open(folder.path());
    assert_eq!(
        bytes(&*source, "head"),
        le(&direct),
        "the operations, one by one, give the same bits"
    );

    let tensors = &source.listing().tensors;
    let of_role = |role: &str| {
        tensors
            .iter()
            .filter(|tensor| tensor.meta.as_ref().unwrap()["role"] == role)
            .count()
    };
    assert!(
        of_role("op") > 20 && of_role("param") == 37,
        "{:?}",
        names(&*source)
    );
    // Data flow reaches from the output back to the tokens, through every operation.
    let mut reached: Vec<String> = vec!["head".to_owned()];
    let mut at = 0;
    while at < reached.len() {
        for input in inputs(&*source, &reached[at]) {
            if !reached.contains(&input) {
                reached.push(input);
            }
        }
        at += 1;
    }
    for name in [
        "layers.0",
        "layers.0.attn.query",
        "embed.weight",
        "model.in",
    ] {
        assert!(
            reached.iter().any(|known| known == name),
            "{name} is not upstream of head: {reached:?}"
        );
    }
    assert!(meta(&*source, "head")["dur"].is_u64());
}

#[test]
fn gradients_are_named_by_their_weights() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex().autodiff();
    let model = model::model(&device);
    let recorder = Recorder::to(folder.path()).start().unwrap();
    let loss = model.forward(model::tokens(&device)).powi_scalar(2).mean();
    let gradients = loss.backward();
    capture::record_gradients(&model, &gradients).unwrap();
    recorder.finish().unwrap();
    let source = open(folder.path());
    let recorded = bytes(&*source, "layers.0.attn.query.weight.param_grad");
    assert!(recorded.iter().any(|byte| *byte != 0));
    assert_eq!(
        names(&*source)
            .iter()
            .filter(|name| name.ends_with(".param_grad"))
            .count(),
        37
    );
}

#[test]
fn ints_and_bools_are_recorded_as_they_are() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let x = Tensor::<2>::from_data(TensorData::from([[1.0f32, -2.0], [3.0, -4.0]]), &device);
    let recorder = Recorder::to(folder.path()).start().unwrap();
    record("transposed", &x.clone().transpose()).unwrap();
    record("positive", &x.clone().greater_elem(0.0)).unwrap();
    record("tokens", &model::tokens(&device)).unwrap();
    recorder.finish().unwrap();
    let source = open(folder.path());
    assert_eq!(bytes(&*source, "transposed"), le(&[1.0, 3.0, -2.0, -4.0]));
    assert_eq!(bytes(&*source, "positive"), [1, 0, 1, 0]);
    assert_eq!(source.listing().tensors[1].dtype.to_string(), "bool");
    assert_eq!(source.listing().tensors[2].shape.dims(), [2, 8]);
}
