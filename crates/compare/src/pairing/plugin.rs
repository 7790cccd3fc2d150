//! The user's program: gets both listings of what is not yet paired as JSON on its standard input and answers with pairs.
//!
//! In: `{"reference": [{"name", "dtype", "shape"}], "candidate": [...]}`. Out: `{"pairs": [{"reference": "a" or ["a", ..], "candidate": ...,
//! "score": 0.9}]}`, the score being 1 when it is left out. No shell is involved. A program that fails, hangs or answers nonsense is an
//! error, never an empty answer.

use super::{
    PairError, SIDES,
    rules::{Board, CANDIDATE, REFERENCE},
};
use crate::settings::{Names, Rule};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    io::{self, Read, Write},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Pairing is a matter of names: a program that needs longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two hundred thousand pairs with long names fit.
const LONGEST_ANSWER: u64 = 256 << 20;

/// What a program did wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginFault {
    #[error("could not be started: {0}")]
    Start(io::Error),
    #[error("did not answer within {seconds} s")]
    Slow { seconds: u64 },
    #[error("ended with {status}{}", said(.stderr))]
    Failed { status: ExitStatus, stderr: String },
    #[error("answered more than {limit} bytes")]
    Long { limit: u64 },
    #[error("could not be read: {0}")]
    Pipe(io::Error),
    #[error("did not answer with the JSON expected: {0}")]
    Json(serde_json::Error),
    #[error("names `{name}`, which {side} does not have or has paired already")]
    Unknown { name: String, side: &'static str },
    #[error("names `{name}` of {side} twice")]
    Twice { name: String, side: &'static str },
    #[error("answers with a pair that has no name on {side}")]
    Empty { side: &'static str },
    #[error("gives `{name}` the score {score}, which is not between 0 and 1")]
    Score { name: String, score: f64 },
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() {
        String::new()
    } else {
        format!(" and said: {stderr}")
    }
}

#[derive(Serialize)]
struct Question<'a> {
    reference: Vec<Tensor<'a>>,
    candidate: Vec<Tensor<'a>>,
}

#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    dtype: String,
    shape: &'a [u64],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    pairs: Vec<Answered>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    reference: Names,
    candidate: Names,
    #[serde(default = "certain")]
    score: f64,
}

fn certain() -> f64 {
    1.0
}

pub(super) fn pair(board: &mut Board<'_, '_>) -> Result<(), PairError> {
    for program in &board.settings.plugins {
        ask(board, program, PATIENCE).map_err(|fault| PairError::Plugin {
            program: program.clone(),
            fault,
        })?;
    }
    if !board.settings.plugins.is_empty() {
        board.regroup();
    }
    Ok(())
}

fn ask(board: &mut Board<'_, '_>, program: &str, patience: Duration) -> Result<(), PluginFault> {
    let list = |side: usize| -> Vec<Tensor<'_>> {
        let tensor = |item: usize| {
            let item = &board.items(side)[item];
            Tensor {
                name: &item.name,
                dtype: item.dtype.to_string(),
                shape: item.shape.dims(),
            }
        };
        board.free_items(side).into_iter().map(tensor).collect()
    };
    let question = serde_json::to_vec(&Question {
        reference: list(REFERENCE),
        candidate: list(CANDIDATE),
    })
    .map_err(PluginFault::Json)?;
    let answer: Answer =
        serde_json::from_slice(&run(program, question, patience)?).map_err(PluginFault::Json)?;
    // Checked whole before anything is taken.
    for (reference, candidate, score) in resolve(board, &answer)? {
        board.take_items(reference, candidate, Rule::Plugin, score);
    }
    Ok(())
}

type Resolved = Vec<(Vec<usize>, Vec<usize>, f64)>;

fn resolve(board: &Board<'_, '_>, answer: &Answer) -> Result<Resolved, PluginFault> {
    let known = [REFERENCE, CANDIDATE].map(|side| {
        board
            .free_items(side)
            .into_iter()
            .rev()
            .map(|item| (board.items(side)[item].name.as_str(), item))
            .collect::<HashMap<&str, usize>>()
    });
    let mut used: [HashSet<usize>; 2] = Default::default();
    let mut resolved = Vec::new();
    for pair in &answer.pairs {
        let mut items = [Vec::new(), Vec::new()];
        for (side, names) in [&pair.reference, &pair.candidate].into_iter().enumerate() {
            for name in names.all() {
                let item = *known[side]
                    .get(name.as_str())
                    .ok_or_else(|| PluginFault::Unknown {
                        name: name.clone(),
                        side: SIDES[side],
                    })?;
                if !used[side].insert(item) {
                    return Err(PluginFault::Twice {
                        name: name.clone(),
                        side: SIDES[side],
                    });
                }
                items[side].push(item);
            }
            if items[side].is_empty() {
                return Err(PluginFault::Empty { side: SIDES[side] });
            }
        }
        if !(0.0..=1.0).contains(&pair.score) {
            return Err(PluginFault::Score {
                name: pair.reference.all()[0].clone(),
                score: pair.score,
            });
        }
        let [reference, candidate] = items;
        resolved.push((reference, candidate, pair.score));
    }
    Ok(resolved)
}

/// `PROG` as a path when there is such a file, else a program and its arguments separated by spaces.
fn command(program: &str) -> Command {
    let mut words = program.split_whitespace();
    match (Path::new(program).exists(), words.next()) {
        (false, Some(first)) => {
            let mut command = Command::new(first);
            command.args(words);
            command
        }
        _ => Command::new(program),
    }
}

fn run(program: &str, question: Vec<u8>, patience: Duration) -> Result<Vec<u8>, PluginFault> {
    let mut child = command(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(PluginFault::Start)?;
    let mut stdin = child.stdin.take().expect("piped");
    // Detached: a grandchild may hold the pipes open after the program itself is gone, and nobody waits for that. A program that does not
    // read its input gives a broken pipe, which is its own business.
    thread::spawn(move || drop(stdin.write_all(&question)));
    let (stdout, stderr) = (
        child.stdout.take().expect("piped"),
        child.stderr.take().expect("piped"),
    );
    let (stdout, stderr) = (read(stdout, LONGEST_ANSWER + 1), read(stderr, 4096));
    let status = wait(&mut child, Instant::now() + patience)?.ok_or(PluginFault::Slow {
        seconds: patience.as_secs(),
    })?;
    if !status.success() {
        let stderr = stderr
            .recv_timeout(Duration::from_secs(1))
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default();
        return Err(PluginFault::Failed {
            status,
            stderr: String::from_utf8_lossy(&stderr).trim().to_owned(),
        });
    }
    let slow = PluginFault::Slow {
        seconds: patience.as_secs(),
    };
    let answer = stdout
        .recv_timeout(patience)
        .map_err(|_| slow)?
        .map_err(PluginFault::Pipe)?;
    if answer.len() as u64 > LONGEST_ANSWER {
        Err(PluginFault::Long {
            limit: LONGEST_ANSWER,
        })
    } else {
        Ok(answer)
    }
}

fn read(
    from: impl Read + Send + 'static,
    limit: u64,
) -> std::sync::mpsc::Receiver<io::Result<Vec<u8>>> {
    let (send, receive) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut from = from.take(limit);
        let result = from.read_to_end(&mut bytes).map(|_| bytes);
        // The rest is thrown away, so that the program can end.
        let _ = io::copy(&mut from.into_inner(), &mut io::sink());
        let _ = send.send(result);
    });
    receive
}

/// The status, or `None` after the program was stopped for being late.
fn wait(child: &mut Child, until: Instant) -> Result<Option<ExitStatus>, PluginFault> {
    let mut nap = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().map_err(PluginFault::Pipe)? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            child
                .kill()
                .and_then(|()| child.wait())
                .map_err(PluginFault::Pipe)?;
            return Ok(None);
        }
        thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(20));
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::{
        Settings,
        pairing::{pair as all, testing::*},
        side::Side,
    };
    use std::os::unix::fs::PermissionsExt;

    /// A program of our own, gone with the returned folder.
    fn program(body: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pair it");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = path.to_str().unwrap().to_owned();
        (folder, path)
    }

    fn settings_for(program: &str) -> Settings {
        Settings {
            plugins: vec![program.to_owned()],
            ..settings(&[Rule::Plugin])
        }
    }

    fn error(body: &str) -> String {
        let (_folder, program) = program(body);
        let (reference, candidate) = (Source::named(&["a", "b"]), Source::named(&["x", "y"]));
        let text = all(
            &Side::new(&reference),
            &Side::new(&candidate),
            &settings_for(&program),
        )
        .unwrap_err()
        .to_string();
        text.replace(&program, "PROG")
    }

    #[test]
    fn a_program_answers_with_pairs_and_scores() {
        let (_folder, program) = program(
            r#"cat >/dev/null; echo '{"pairs":[{"reference":"b","candidate":["y","x"],"score":0.5}]}'"#,
        );
        let (pairs, pairing) = paired_with(
            &settings_for(&program),
            &names(&["a", "b"]),
            &names(&["x", "y"]),
        );
        assert_eq!(
            (pairs, pairing.pairs[0].rule, pairing.pairs[0].score),
            (vec!["b=y+x".to_owned()], Rule::Plugin, 0.5)
        );
    }

    #[test]
    fn a_program_sees_both_listings() {
        let seen = r#"{"reference":[{"name":"a","dtype":"f32","shape":[2]}],"candidate":[{"name":"x","dtype":"f32","shape":[2]}]}"#;
        let (_folder, program) = program(&format!(
            r#"[ "$(cat)" = '{seen}' ] && echo '{{"pairs":[{{"reference":"a","candidate":"x"}}]}}'"#
        ));
        assert_eq!(
            paired_with(&settings_for(&program), &names(&["a"]), &names(&["x"])).0,
            ["a=x"]
        );
    }

    #[test]
    fn what_goes_wrong_is_said() {
        let answer =
            |pairs: &str| error(&format!("cat >/dev/null; echo '{{\"pairs\":[{pairs}]}}'"));
        assert_eq!(
            error("echo no such luck >&2; exit 3"),
            "`PROG`, asked for pairs, ended with exit status: 3 and said: no such luck"
        );
        assert!(
            error("echo hello")
                .starts_with("`PROG`, asked for pairs, did not answer with the JSON expected")
        );
        assert_eq!(
            answer(r#"{"reference":"q","candidate":"x"}"#),
            "`PROG`, asked for pairs, names `q`, which the reference does not have or has paired already"
        );
        assert_eq!(
            answer(r#"{"reference":"a","candidate":["x","x"]}"#),
            "`PROG`, asked for pairs, names `x` of the candidate twice"
        );
        assert_eq!(
            answer(r#"{"reference":[],"candidate":"x"}"#),
            "`PROG`, asked for pairs, answers with a pair that has no name on the reference"
        );
        assert_eq!(
            answer(r#"{"reference":"a","candidate":"x","score":7}"#),
            "`PROG`, asked for pairs, gives `a` the score 7, which is not between 0 and 1"
        );
        let nowhere = run("no-such-program-anywhere x", Vec::new(), PATIENCE);
        assert!(matches!(nowhere, Err(PluginFault::Start(_))));
    }

    #[test]
    fn a_program_that_hangs_is_stopped() {
        let (_folder, program) = program("exec sleep 30");
        let start = Instant::now();
        assert!(matches!(
            run(&program, vec![b' '; 1 << 20], Duration::from_millis(100)),
            Err(PluginFault::Slow { .. })
        ));
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
