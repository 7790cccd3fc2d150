//! What only another process can show: being killed, running out of disk, being one of several ranks.
//!
//! Each test starts itself again as the model it watches: in the child the environment says where to record.

mod common;
use common::{bytes, names, open};
use serde_json::json;
use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};
use twinscope_capture::{CaptureError, OnFailure, Recorder, Role, Tap, record, span, step};

/// Where the child records.
const RUN: &str = "TWINSCOPE_TEST_RUN";

/// This test again, as a child.
fn again(test: &str, run: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(RUN, run);
    command
}

fn child_run() -> Option<std::path::PathBuf> {
    env::var_os(RUN).map(Into::into)
}

fn values(number: u32) -> Vec<u32> {
    (0..1000)
        .map(|at| at ^ number.wrapping_mul(0x9e37_79b9))
        .collect()
}

/// Reads what the child says until it has said `count` numbers; the last one.
fn listen(said: &mut impl BufRead, count: usize) -> u32 {
    let numbers = said
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("recorded ")?.parse().ok());
    numbers.take(count).last().expect("the child records")
}

fn kill_in_the_middle(test: &str, at_least: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut child = again(test, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Held until the child is dead: one whose words nobody hears would end by itself.
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let last = listen(&mut said, at_least);
    // SIGKILL: nothing in the child runs any more.
    child.kill().unwrap();
    child.wait().unwrap();
    let source = open(folder.path());
    let listing = source.listing();
    assert!(
        listing.tensors.len() > last as usize,
        "{} tensors, the child had recorded number {last}",
        listing.tensors.len()
    );
    assert_eq!(listing.skipped, []);
    assert_eq!(
        listing.meta.as_ref().unwrap()["ranks"][0]["complete"],
        json!(false)
    );
    for (number, name) in names(&*source).into_iter().enumerate() {
        assert_eq!(name, format!("layers.{number}.out"));
        let expected: Vec<u8> = values(number as u32)
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        assert_eq!(bytes(&*source, name), expected, "{name}");
    }
}

#[test]
fn everything_flushed_before_kill_minus_9_can_be_read() {
    if let Some(run) = child_run() {
        let recorder = Recorder::to(run)
            .queue_bytes(1 << 20)
            .segment_bytes(1 << 18)
            .start()
            .unwrap();
        for number in 0.. {
            let _span = span!("layers.{number}");
            record("out", &values(number)).unwrap();
            if number % 10 == 0 {
                recorder.flush().unwrap();
                println!("recorded {number}");
            }
        }
    }
    kill_in_the_middle("everything_flushed_before_kill_minus_9_can_be_read", 30);
}

#[test]
fn an_immediate_recorder_loses_nothing_to_kill_minus_9() {
    if let Some(run) = child_run() {
        let _recorder = Recorder::to(run)
            .immediate()
            .segment_bytes(1 << 18)
            .start()
            .unwrap();
        for number in 0.. {
            record(&format!("layers.{number}.out"), &values(number)).unwrap();
            println!("recorded {number}");
        }
    }
    kill_in_the_middle("an_immediate_recorder_loses_nothing_to_kill_minus_9", 300);
}

/// A file of this process may not grow beyond this, which ends like a full disk.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: plain calls into libc with a valid pointer; a write beyond the limit then fails instead of killing.
    let set = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN) != libc::SIG_ERR
            && libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0
    };
    assert!(set, "no limit on file sizes could be set");
}

/// Sixteen layers of 100,000 bytes where seven fit, then a small tensor.
fn model_on_a_small_disk(
    policy: OnFailure,
    immediate: bool,
    run: &Path,
) -> Result<(), CaptureError> {
    limit_files(1_000_000);
    let recorder = Recorder::to(run).on_failure(policy);
    let recorder = if immediate {
        recorder.immediate()
    } else {
        recorder
    }
    .start()?;
    for number in 0..16 {
        record(&format!("layers.{number}"), &vec![number; 25_000])?;
        recorder.flush()?;
    }
    record("logits", &1.0f32)?;
    recorder.finish().map(drop)
}

fn small_disk(test: &str, mode: &str) -> (tempfile::TempDir, Output) {
    let folder = tempfile::tempdir().unwrap();
    let output = again(test, folder.path())
        .env("TWINSCOPE_TEST_MODE", mode)
        .output()
        .unwrap();
    (folder, output)
}

#[test]
fn a_full_disk_is_told_once_and_the_model_goes_on() {
    if let Some(run) = child_run() {
        let immediate = env::var("TWINSCOPE_TEST_MODE").unwrap() == "immediate";
        model_on_a_small_disk(OnFailure::Continue, immediate, &run).unwrap();
        println!("the model finished");
        return;
    }
    for mode in ["queue", "immediate"] {
        let (folder, output) = small_disk("a_full_disk_is_told_once_and_the_model_goes_on", mode);
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success() && stdout.contains("the model finished"),
            "{stdout}{stderr}"
        );
        assert_eq!(stderr.matches("the disk is full").count(), 1, "{stderr}");
        assert!(stderr.contains("the model goes on"), "{stderr}");
        let source = open(folder.path());
        let mut expected: Vec<String> = (0..7).map(|number| format!("layers.{number}")).collect();
        expected.push("logits".to_owned());
        assert_eq!(names(&*source), expected);
        for number in 0..7i32 {
            assert_eq!(
                bytes(&*source, &format!("layers.{number}")),
                number.to_le_bytes().repeat(25_000)
            );
        }
        let listing = source.listing();
        assert_eq!(listing.skipped.len(), 9, "{:?}", listing.skipped);
        assert!(
            listing.skipped[0].name == "layers.7"
                && listing.skipped[0].reason.contains("the disk is full"),
            "{:?}",
            listing.skipped[0]
        );
        assert!(
            listing.findings[0]
                .text
                .contains("could not keep 9 tensors"),
            "{:?}",
            listing.findings
        );
    }
}

#[test]
fn a_full_disk_stops_the_model_when_asked_to() {
    if let Some(run) = child_run() {
        let immediate = env::var("TWINSCOPE_TEST_MODE").unwrap() == "immediate";
        let error = model_on_a_small_disk(OnFailure::Stop, immediate, &run).unwrap_err();
        println!("stopped: {error}");
        return;
    }
    for mode in ["queue", "immediate"] {
        let (folder, output) = small_disk("a_full_disk_stops_the_model_when_asked_to", mode);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.contains("stopped: the disk is full"), "{stdout}");
        assert_eq!(names(&*open(folder.path())).len(), 7);
    }
}

/// Half the hidden columns on each of two ranks of two layers, or everything in one process.
fn ranked_model(ranks: usize, rank: usize) -> Result<(), CaptureError> {
    for token in 0..2 {
        for layer in 0..2 {
            let width = 8 / ranks;
            let hidden: Vec<f32> = (0..3 * width)
                .map(|at| {
                    (token * 100 + layer * 50 + at / width * 8 + rank * width + at % width) as f32
                })
                .collect();
            Tap::new(format!("layers.{layer}.mlp"))
                .role(Role::Output)
                .dims("s h[tp]")
                .record(&(&hidden[..], &[3, width][..]))?;
        }
        step()?;
    }
    Ok(())
}

#[test]
fn four_processes_end_as_one_source_that_equals_one_process() {
    let number = |name: &str| env::var(name).unwrap().parse::<usize>().unwrap();
    if let Some(run) = child_run() {
        let recorder = Recorder::to(run).start().unwrap();
        ranked_model(number("WORLD_SIZE"), number("RANK")).unwrap();
        recorder.finish().unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let start = |run: &str, rank: usize, ranks: usize| {
        let mut command = again(
            "four_processes_end_as_one_source_that_equals_one_process",
            &folder.path().join(run),
        );
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .spawn()
            .unwrap()
    };
    let mut children: Vec<Child> = (0..4).map(|rank| start("four", rank, 4)).collect();
    children.push(start("one", 0, 1));
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let (one, four) = (
        open(&folder.path().join("one")),
        open(&folder.path().join("four")),
    );
    assert_eq!(four.listing().tensors.len(), 16);
    assert_eq!(four.listing().findings, []);
    let about = four.listing().meta.as_ref().unwrap();
    assert_eq!(
        (
            &about["world_size"],
            &about["ranks"][3]["rank"],
            &about["ranks"][3]["complete"]
        ),
        (&json!(4), &json!(3), &json!(true))
    );
    let report = common::compare(&*one, &*four);
    assert_eq!(
        (
            report.pairs.len(),
            report.only_reference.len(),
            report.only_candidate.len()
        ),
        (4, 0, 0)
    );
    for pair in &report.pairs {
        assert_eq!(pair.candidate.len(), 4, "{}", pair.name);
        assert_eq!(
            pair.verdict(),
            twinscope_compare::Verdict::Identical,
            "{}",
            pair.name
        );
    }
}
