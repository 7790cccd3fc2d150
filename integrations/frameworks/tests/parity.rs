//! The same weights in two frameworks: they agree to rounding, layer by layer, and a fault in one of them is found where it is, with its cause.

mod common;
use burn::tensor::Device;
use common::{compare, open, turn};
use std::path::Path;
use twinscope_capture::{Recorder, Role};
use twinscope_capture_burn::record_ops;
use twinscope_compare::{Judged, Overall, Verdict};
use twinscope_frameworks::{Fault, burn_model, candle_model};

fn record_candle(run: &Path, fault: Option<Fault>) {
    let model = candle_model::model(fault).unwrap();
    let recorder = Recorder::to(run).start().unwrap();
    model.forward(&candle_model::tokens().unwrap()).unwrap();
    recorder.finish().unwrap();
}

fn record_burn(run: &Path) {
    let device = Device::flex();
    let model = burn_model::model(&device);
    let recorder = Recorder::to(run).start().unwrap();
    model.forward(burn_model::tokens(&device));
    recorder.finish().unwrap();
}

/// burn is the reference, candle may be broken.
fn burn_against_candle(fault: Option<Fault>) -> Judged {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (candle, burn) = (folder.path().join("candle"), folder.path().join("burn"));
    record_candle(&candle, fault);
    record_burn(&burn);
    compare(&*open(&burn), &*open(&candle))
}

#[test]
fn candle_and_burn_agree_to_rounding() {
    let report = burn_against_candle(None);
    assert_eq!(
        (&report.only_reference[..], &report.only_candidate[..]),
        (&[][..], &[][..])
    );
    assert_eq!(
        report.pairs.len(),
        29,
        "embed, thirteen of each of two layers, norm and head"
    );
    assert_eq!(report.verdict(), Overall::Agree);
    let rounding = report
        .pairs
        .iter()
        .filter(|pair| pair.verdict() == Verdict::Rounding)
        .count();
    assert!(
        rounding > 15,
        "two frameworks do not round alike, {rounding} pairs differ"
    );
}

#[test]
fn a_fault_in_one_of_them_is_found_where_it_is_with_its_cause() {
    for (fault, place, kind) in [
        (Fault::TanhGelu, "layers.1.mlp.gelu", "function"),
        (Fault::Epsilon, "layers.1.norm2", "row_scale"),
        (Fault::NoScale, "layers.1.attn.attn", "softmax_scale"),
        (Fault::QueryKey, "layers.1.attn.query", "swapped"),
    ] {
        let report = burn_against_candle(Some(fault));
        let first = report
            .first_divergence()
            .unwrap_or_else(|| panic!("{fault:?} is not found"));
        let pair = &report.pairs[first];
        assert_eq!(pair.name, place, "{fault:?}");
        assert_eq!(
            pair.causes.first().map(|cause| cause.kind.name()),
            Some(kind),
            "{fault:?}: {:?}",
            pair.causes
        );
    }
}

#[test]
fn every_operation_of_burn_agrees_with_what_candle_recorded_under_the_same_names() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (candle, burn) = (folder.path().join("candle"), folder.path().join("burn"));
    record_candle(&candle, None);
    let model = burn_model::model(&Device::flex());
    let recorder = Recorder::to(&burn)
        .without(&[Role::Op, Role::Weight, Role::Input])
        .start()
        .unwrap();
    record_ops(&model, |model, device| {
        model.forward(burn_model::tokens(device))
    })
    .unwrap();
    recorder.finish().unwrap();
    let report = compare(&*open(&burn), &*open(&candle));
    assert_eq!(report.verdict(), Overall::Agree);
    assert!(report.pairs.len() >= 27, "{} pairs", report.pairs.len());
}
