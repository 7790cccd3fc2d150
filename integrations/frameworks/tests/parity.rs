//! The same weights in two frameworks: they agree to rounding, layer by layer, and a fault in one of them is found where it is.

mod common;
use burn::tensor::Device;
use common::{compare, open, turn};
use twinscope_capture::Recorder;
use twinscope_compare::{Overall, Verdict};
use twinscope_frameworks::{burn_model, candle_model};

#[test]
fn candle_and_burn_agree_to_rounding() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (candle, burn) = (folder.path().join("candle"), folder.path().join("burn"));
    let model = candle_model::model().unwrap();
    let recorder = Recorder::to(&candle).start().unwrap();
    model.forward(&candle_model::tokens().unwrap()).unwrap();
    recorder.finish().unwrap();

    let device = Device::flex();
    let model = burn_model::model(&device);
    let recorder = Recorder::to(&burn).start().unwrap();
    model.forward(burn_model::tokens(&device));
    recorder.finish().unwrap();

    let report = compare(&*open(&candle), &*open(&burn));
    assert_eq!((&report.only_reference[..], &report.only_candidate[..]), (&[][..], &[][..]));
    assert_eq!(report.pairs.len(), 29, "embed, thirteen of each of two layers, norm and head");
    assert_eq!(report.verdict(), Overall::Agree);
    let rounding = report.pairs.iter().filter(|pair| pair.verdict == Verdict::Rounding).count();
    assert!(rounding > 15, "two frameworks do not round alike, {rounding} pairs differ");
}
