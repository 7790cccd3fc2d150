//! The recorder as a model uses it. One recorder runs at a time, so the tests take turns.

mod common;
use common::{bytes, le, meta, names, open};
use serde_json::{Value, json};
use std::{
    any::Any,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use twinscope_capture::{
    CaptureError, DType, Identity, OnFailure, Recordable, Recorder, Role, Shape, Tap, is_on,
    memory_sample, note, record, span, step, wants,
};

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lines(run: &Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("rank-00000/index.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["k"] == kind)
        .collect()
}

/// Two layers, called twice.
fn model() -> Result<(), CaptureError> {
    let mut x = vec![1.0f32, 2.0, 3.0];
    record("embed", &x)?;
    for layer in 0..2 {
        let _span = span!("layers.{layer}");
        x.iter_mut().for_each(|x| *x *= 2.0);
        record("attn", &x)?;
        x.iter_mut().for_each(|x| *x += 1.0);
        record("", &(&x[..], &[3, 1][..]))?;
    }
    Ok(())
}

#[test]
fn names_are_paths_of_spans_and_calls_and_steps_are_counted() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::to(folder.path()).label("toy").start().unwrap();
    model().unwrap();
    record("embed", &1i64).unwrap();
    step().unwrap();
    record("embed", &[true, false][..]).unwrap();
    let summary = recorder.finish().unwrap();
    assert_eq!(
        (summary.records, summary.dropped, summary.error),
        (7, 0, None)
    );
    let source = open(folder.path());
    assert_eq!(
        names(&*source),
        [
            "embed",
            "layers.0.attn",
            "layers.0",
            "layers.1.attn",
            "layers.1",
            "embed@1",
            "step-1/embed"
        ]
    );
    assert_eq!(source.listing().tensors[2].shape, Shape::new([3, 1]));
    assert_eq!(source.listing().tensors[6].dtype, DType::Bool);
    assert_eq!(bytes(&*source, "layers.1"), le(&[7.0, 11.0, 15.0]));
    let spans = lines(folder.path(), "x");
    assert_eq!(
        spans
            .iter()
            .map(|span| span["name"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["layers.0", "layers.1"]
    );
    assert!(
        spans
            .iter()
            .all(|span| span["dur"].is_u64() && span["ts"].as_u64().unwrap() > 0)
    );
}

#[test]
fn nothing_is_recorded_and_nothing_fails_without_a_recorder() {
    let _turn = turn();
    assert!(!is_on());
    model().unwrap();
    step().unwrap();
    note("loss", 1.0).unwrap();
    assert!(!wants("embed", Role::Output));
    assert_eq!(Tap::new("embed").record_numbered(&1.0f32).unwrap(), None);
}

#[test]
fn the_same_model_recorded_twice_is_identical() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    for run in ["a", "b"] {
        let _recorder = Recorder::to(folder.path().join(run)).start().unwrap();
        model().unwrap();
    }
    let (a, b) = (
        open(&folder.path().join("a")),
        open(&folder.path().join("b")),
    );
    let report = common::compare(&*a, &*b);
    assert_eq!(report.pairs.len(), 5);
    for pair in &report.pairs {
        assert_eq!(
            pair.verdict(),
            twinscope_compare::Verdict::Identical,
            "{}",
            pair.name
        );
    }
}

#[test]
fn filters_choose_by_name_role_step_and_call() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let recorded = |run: &str, recorder: twinscope_capture::Builder| -> Vec<String> {
        let recorder = recorder.start().unwrap();
        for _ in 0..3 {
            model().unwrap();
            Tap::new("embed")
                .role(Role::Gradient)
                .record(&1.0f32)
                .unwrap();
            step().unwrap();
        }
        recorder.finish().unwrap();
        names(&*open(&folder.path().join(run)))
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let to = |run: &str| Recorder::to(folder.path().join(run));
    assert_eq!(
        recorded(
            "names",
            to("names")
                .include("layers.*")
                .exclude("*.attn")
                .steps(..=0)
        ),
        ["layers.0", "layers.1"]
    );
    assert_eq!(
        recorded(
            "steps",
            to("steps")
                .include("embed")
                .without(&[Role::Gradient])
                .every(2)
        ),
        ["embed", "step-2/embed"]
    );
    assert_eq!(
        recorded("roles", to("roles").roles(&[Role::Gradient]).steps(1..2)),
        ["step-1/embed.grad"]
    );
    let recorder = to("calls").calls(1).start().unwrap();
    record("x", &1.0f32).unwrap();
    record("x", &2.0f32).unwrap();
    drop(recorder);
    assert_eq!(names(&*open(&folder.path().join("calls"))), ["x"]);
}

#[test]
fn order_is_kept_when_the_queue_is_smaller_than_a_tensor() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::to(folder.path())
        .queue_bytes(100)
        .start()
        .unwrap();
    for number in 0..50u32 {
        record(&format!("t{number}"), &vec![number; 64]).unwrap();
    }
    recorder.finish().unwrap();
    let source = open(folder.path());
    assert_eq!(
        names(&*source),
        (0..50)
            .map(|number| format!("t{number}"))
            .collect::<Vec<_>>()
    );
    for number in 0..50u32 {
        assert_eq!(
            bytes(&*source, &format!("t{number}")),
            number.to_le_bytes().repeat(64)
        );
    }
}

#[test]
fn threads_record_into_one_run_each_under_its_own_spans() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::to(folder.path())
        .queue_bytes(1000)
        .start()
        .unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || {
                let _span = span!("worker.{worker}");
                for number in 0..25u32 {
                    record(&format!("t{number}"), &vec![number + worker; 32]).unwrap();
                }
            });
        }
    });
    assert_eq!(recorder.finish().unwrap().records, 100);
    let source = open(folder.path());
    assert_eq!(source.listing().tensors.len(), 100);
    assert_eq!(
        bytes(&*source, "worker.3.t24"),
        27u32.to_le_bytes().repeat(32)
    );
}

#[test]
fn what_was_flushed_can_be_read_while_the_model_goes_on() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::to(folder.path()).start().unwrap();
    record("a", &1.0f32).unwrap();
    recorder.flush().unwrap();
    assert_eq!(names(&*open(folder.path())), ["a"]);
    record("b", &2.0f32).unwrap();
    recorder.flush().unwrap();
    assert_eq!(names(&*open(folder.path())), ["a", "b"]);
}

#[test]
fn a_second_recorder_is_refused_while_the_first_runs() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let first = Recorder::to(folder.path().join("a")).start().unwrap();
    let error = Recorder::to(folder.path().join("b")).start().unwrap_err();
    assert!(matches!(error, CaptureError::Busy { .. }), "{error}");
    drop(first);
    drop(Recorder::to(folder.path().join("b")).start().unwrap());
}

#[test]
fn notes_memory_and_everything_else_a_tap_says_are_kept() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::to(folder.path())
        .about("seed", 7)
        .memory()
        .start()
        .unwrap();
    note("prompt", "hello").unwrap();
    memory_sample().unwrap();
    let tap = Tap::new("attn")
        .role(Role::Attention)
        .dims("b h s t")
        .class("Attention")
        .op("softmax")
        .arg("1");
    let first = tap.record_numbered(&[0.5f32, 0.5][..]).unwrap().unwrap();
    Tap::new("out")
        .role(Role::Output)
        .from_record(first)
        .record(&1.0f32)
        .unwrap();
    drop(span("forward"));
    recorder.finish().unwrap();
    let source = open(folder.path());
    assert_eq!(names(&*source), ["attn.attn.1", "out"]);
    let known = meta(&*source, "attn.attn.1");
    assert_eq!(
        (&known["dims"], &known["cls"], &known["op"]),
        (&json!("b h s t"), &json!("Attention"), &json!("softmax"))
    );
    assert_eq!(meta(&*source, "out")["inputs"], json!([0]));
    assert_eq!(source.listing().meta.as_ref().unwrap()["seed"], json!(7));
    assert_eq!(lines(folder.path(), "m")[0]["value"], "hello");
    assert!(lines(folder.path(), "a")[0]["rss"].as_u64().unwrap() > 0);
    assert!(lines(folder.path(), "x")[0]["mem"]["rss"].as_u64().unwrap() > 0);
}

/// A tensor that shares its memory with its clones, as frameworks have them.
#[derive(Clone)]
struct SharedTensor(Arc<Vec<f32>>);

impl Recordable for SharedTensor {
    fn dtype(&self) -> DType {
        DType::F32
    }

    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn with_values(&self, use_values: &mut dyn FnMut(&[u8])) -> Result<(), CaptureError> {
        self.0.with_values(use_values)
    }

    fn identity(&self) -> Option<Identity> {
        let hold: Box<dyn Any + Send> = Box::new(self.clone());
        Some(Identity {
            storage: self.0.as_ptr().addr(),
            bytes: self.0.len() as u64 * 4,
            hold,
        })
    }
}

#[test]
fn inputs_are_known_by_the_memory_they_live_in_and_weights_by_their_module() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::to(folder.path()).start().unwrap();
    let tensor = |value: f32| SharedTensor(Arc::new(vec![value; 4]));
    let (x, other) = (tensor(1.0), tensor(9.0));
    Tap::new("fc.weight")
        .role(Role::Weight)
        .record(&tensor(3.0))
        .unwrap();
    record("x", &x).unwrap();
    Tap::new("fc")
        .role(Role::Output)
        .from(&x.clone())
        .from(&other)
        .record(&tensor(2.0))
        .unwrap();
    recorder.finish().unwrap();
    assert_eq!(meta(&*open(folder.path()), "fc")["inputs"], json!([1, 0]));
}

/// A tensor whose values cannot be had.
struct Broken;

impl Recordable for Broken {
    fn dtype(&self) -> DType {
        DType::F32
    }

    fn shape(&self) -> Shape {
        Shape::new([2])
    }

    fn with_values(&self, _: &mut dyn FnMut(&[u8])) -> Result<(), CaptureError> {
        Err(CaptureError::Values {
            name: "gpu.out".into(),
            what: "the device is gone".into(),
        })
    }
}

#[test]
fn a_tensor_that_cannot_be_read_is_missed_not_fatal() {
    let _turn = turn();
    for immediate in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::to(folder.path());
        let recorder = if immediate {
            recorder.immediate()
        } else {
            recorder
        }
        .start()
        .unwrap();
        record("gpu.out", &Broken).unwrap();
        record("after", &1.0f32).unwrap();
        let summary = recorder.finish().unwrap();
        assert_eq!((summary.records, summary.dropped), (1, 1));
        let source = open(folder.path());
        assert_eq!(names(&*source), ["after"]);
        assert!(
            source.listing().skipped[0]
                .reason
                .contains("the device is gone")
        );
    }
}

#[test]
fn a_model_that_is_to_stop_hears_of_the_failure() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::to(folder.path())
        .on_failure(OnFailure::Stop)
        .start()
        .unwrap();
    record("gpu.out", &Broken).unwrap();
    assert!(
        recorder
            .flush()
            .unwrap_err()
            .to_string()
            .contains("the device is gone")
    );
    assert!(
        record("after", &1.0f32)
            .unwrap_err()
            .to_string()
            .contains("the device is gone")
    );
    assert!(recorder.finish().is_err());
}
