//! What is written is read back, by the reader of runs and by any reader of safetensors.

mod common;
use common::{bytes, le, meta, names, open};
use serde_json::json;
use std::path::Path;
use twinscope_capture::{DType, Rank, Record, Role, RunInfo, RunWriter, Shape};

fn writer(run: &Path) -> RunWriter {
    RunWriter::create(run, &RunInfo::default(), &Rank::single()).unwrap()
}

fn f32s(name: &str, len: u64) -> Record {
    Record::new(name, DType::F32, vec![len]).role(Role::Output)
}

#[test]
fn tensors_come_back_in_order_with_what_is_known_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let info = RunInfo {
        label: Some("first".into()),
        framework: Some(("none".into(), "1".into())),
        ..RunInfo::default()
    };
    let mut writer = RunWriter::create(&run, &info, &Rank::single()).unwrap();
    let ids = writer
        .tensor(
            &Record::new("embed", DType::I64, vec![1]).role(Role::Input),
            &7i64.to_le_bytes(),
        )
        .unwrap();
    let out = writer
        .tensor(
            &f32s("embed", 2)
                .dims("b h[tp]")
                .inputs([ids])
                .class("Embedding"),
            &le(&[1.0, 2.0]),
        )
        .unwrap();
    writer
        .tensor(&f32s("layers.0", 2).inputs([out]), &le(&[3.0, 4.0]))
        .unwrap();
    writer
        .tensor(&f32s("layers.0", 2).inputs([out]), &le(&[5.0, 6.0]))
        .unwrap();
    writer
        .tensor(
            &f32s("layers.0", 2).role(Role::Op).op("matmul"),
            &le(&[7.0, 6.0]),
        )
        .unwrap();
    writer.step().unwrap();
    writer.tensor(&f32s("embed", 2), &le(&[9.0, 9.0])).unwrap();
    let summary = writer.finish().unwrap();
    assert_eq!(
        (summary.records, summary.dropped, summary.bytes),
        (6, 0, 48)
    );

    let source = open(&run);
    assert_eq!(
        names(&*source),
        [
            "embed.in",
            "embed",
            "layers.0",
            "layers.0@1",
            "layers.0.matmul",
            "step-1/embed"
        ]
    );
    assert_eq!(bytes(&*source, "layers.0@1"), le(&[5.0, 6.0]));
    let known = meta(&*source, "embed");
    assert_eq!(
        (
            &known["i"],
            &known["inputs"],
            &known["dims"],
            &known["role"]
        ),
        (&json!(1), &json!([0]), &json!("b h[tp]"), &json!("out"))
    );
    assert_eq!(
        (
            &known["rank"],
            &known["step"],
            &known["call"],
            &known["cls"]
        ),
        (&json!(0), &json!(0), &json!(0), &json!("Embedding"))
    );
    let about = source.listing().meta.as_ref().unwrap();
    assert_eq!(
        (&about["label"], &about["ranks"][0]["complete"]),
        (&json!("first"), &json!(true))
    );
    assert_eq!(source.listing().findings, []);
}

#[test]
fn a_run_that_is_still_being_written_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    for round in 0..3u8 {
        writer
            .tensor(
                &f32s(&format!("layers.{round}"), 1),
                &le(&[f32::from(round)]),
            )
            .unwrap();
        let source = open(folder.path());
        assert_eq!(source.listing().tensors.len(), usize::from(round) + 1);
        assert_eq!(
            bytes(&*source, &format!("layers.{round}")),
            le(&[f32::from(round)])
        );
        assert_eq!(
            source.listing().meta.as_ref().unwrap()["ranks"][0]["complete"],
            json!(false)
        );
    }
}

#[test]
fn equal_tensors_are_stored_once_whatever_they_are_called() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    let values = le(&[1.5; 1000]);
    writer.tensor(&f32s("a", 1000), &values).unwrap();
    writer.tensor(&f32s("b", 1000), &values).unwrap();
    writer
        .tensor(&Record::new("c", DType::F32, vec![10, 100]), &values)
        .unwrap();
    let summary = writer.finish().unwrap();
    assert_eq!((summary.bytes, summary.repeated), (12_000, 8_000));
    let segment = folder.path().join("rank-00000/seg-00000.safetensors");
    assert_eq!(segment.metadata().unwrap().len(), (256 << 10) + 4000);
    let source = open(folder.path());
    assert_eq!(bytes(&*source, "c"), values);
    assert_eq!(source.listing().tensors[2].shape, Shape::new([10, 100]));
}

#[test]
fn closed_segments_are_safetensors_files_and_new_ones_begin_when_they_are_full() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path()).segment_bytes(64);
    for number in 0..4u8 {
        writer
            .tensor(
                &Record::new(format!("t{number}"), DType::U8, vec![33]),
                &[number; 33],
            )
            .unwrap();
    }
    writer.finish().unwrap();
    for number in 0..4u8 {
        let segment = open(
            &folder
                .path()
                .join(format!("rank-00000/seg-0000{number}.safetensors")),
        );
        // Safetensors knows no holes: what fills up to a multiple of eight is a tensor too.
        assert_eq!(
            names(&*segment),
            ["__pad.33", &format!("{number}:t{number}:tap:")]
        );
        assert_eq!(
            bytes(&*segment, &format!("{number}:t{number}:tap:")),
            [number; 33]
        );
        assert_eq!(segment.listing().findings, []);
    }
    assert_eq!(bytes(&*open(folder.path()), "t3"), [3; 33]);
}

#[test]
fn a_segment_whose_header_is_full_is_followed_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    let long = "x".repeat(900);
    for number in 0..600u32 {
        writer
            .tensor(&f32s(&format!("{long}.{number}"), 1), &number.to_le_bytes())
            .unwrap();
    }
    writer.finish().unwrap();
    let files = std::fs::read_dir(folder.path().join("rank-00000"))
        .unwrap()
        .count();
    assert!(
        files > 4,
        "index, rank and several segments, found {files} files"
    );
    let source = open(folder.path());
    assert_eq!(source.listing().tensors.len(), 600);
    assert_eq!(
        bytes(&*source, &format!("{long}.599")),
        599u32.to_le_bytes()
    );
    assert_eq!(
        open(&folder.path().join("rank-00000/seg-00000.safetensors"))
            .listing()
            .findings,
        []
    );
}

#[test]
fn dtypes_that_safetensors_has_no_name_for_keep_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    for dtype in ["c128", "q4_0", "f8_e4m3fn", "bf16", "bool", "qint8"] {
        let dtype = DType::parse(dtype).unwrap();
        let bytes = vec![1u8; dtype.byte_len(64).unwrap() as usize];
        writer
            .tensor(&Record::new(dtype.to_string(), dtype, vec![2, 32]), &bytes)
            .unwrap();
    }
    writer.finish().unwrap();
    let source = open(folder.path());
    assert_eq!(source.listing().skipped, []);
    for tensor in &source.listing().tensors {
        assert_eq!(tensor.name, tensor.dtype.to_string());
        assert_eq!(tensor.shape, Shape::new([2, 32]));
    }
}

#[test]
fn empty_tensors_scalars_and_the_nameless_model_are_tensors_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    writer
        .tensor(&Record::new("empty", DType::F32, vec![0, 3]), &[])
        .unwrap();
    writer
        .tensor(
            &Record::new("scalar", DType::F32, Shape::scalar()),
            &le(&[f32::NAN]),
        )
        .unwrap();
    writer
        .tensor(
            &Record::new("", DType::F32, vec![1]).role(Role::Output),
            &le(&[1.0]),
        )
        .unwrap();
    writer.finish().unwrap();
    let source = open(folder.path());
    assert_eq!(names(&*source), ["empty", "scalar", "model"]);
    assert_eq!(bytes(&*source, "scalar"), le(&[f32::NAN]));
}

#[test]
fn bytes_that_do_not_fit_the_shape_are_refused_with_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let error = writer(folder.path())
        .tensor(&f32s("layers.3.mlp", 4), &[0; 12])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`layers.3.mlp` is f32 [4], which takes 16 bytes, but 12 were given"
    );
}

#[test]
fn a_run_is_not_written_over_unless_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = writer(folder.path());
    first.tensor(&f32s("a", 1), &le(&[1.0])).unwrap();
    first.finish().unwrap();
    let error = RunWriter::create(folder.path(), &RunInfo::default(), &Rank::single()).unwrap_err();
    assert!(error.to_string().contains("already holds a run"), "{error}");
    RunWriter::remove(folder.path(), &Rank::single()).unwrap();
    let mut second = writer(folder.path());
    second.tensor(&f32s("b", 1), &le(&[2.0])).unwrap();
    drop(second);
    assert_eq!(names(&*open(folder.path())), ["b"]);
}

#[test]
fn a_tensor_without_values_is_listed_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    writer
        .tensor_without_values(None, &f32s("lost", 2), "the device is gone")
        .unwrap();
    writer.tensor(&f32s("kept", 1), &le(&[1.0])).unwrap();
    writer.finish().unwrap();
    let source = open(folder.path());
    assert_eq!(names(&*source), ["kept"]);
    assert!(
        source.listing().skipped[0]
            .reason
            .contains("the device is gone")
    );
    assert!(
        source.listing().findings[0]
            .text
            .contains("could not keep 1 tensors")
    );
}
