//! The real server: its address, its end, what survives a kill, who it refuses.

#![cfg(unix)]

use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

struct Server {
    child: Child,
    url: String,
}

fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinscope"));
    command
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Server {
    fn start(dir: &Path, args: &[&str]) -> Self {
        Self::start_in(dir, "state", args)
    }

    fn start_in(dir: &Path, state: &str, args: &[&str]) -> Self {
        let mut child = command(dir)
            .args(["serve", "--no-open", "--state", state])
            .args(args)
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut url)
            .unwrap();
        Self {
            child,
            url: url.trim_end().to_owned(),
        }
    }

    fn address(&self) -> &str {
        self.url
            .strip_prefix("http://")
            .unwrap()
            .split('/')
            .next()
            .unwrap()
    }

    fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let kind = if body.is_empty() {
            ""
        } else {
            "content-type: application/json\r\n"
        };
        self.send(method, path, kind, body.as_bytes())
    }

    /// Bytes of a file, from an offset on.
    fn put(&self, path: &str, offset: usize, bytes: &[u8]) -> (u16, Value) {
        self.send(
            "PUT",
            path,
            &format!("content-type: application/octet-stream\r\nupload-offset: {offset}\r\n"),
            bytes,
        )
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let (host, length) = (self.address(), body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let text = String::from_utf8_lossy(&answer);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (
            head.split(' ').nth(1).unwrap().parse().unwrap(),
            serde_json::from_str(body).unwrap_or(Value::Null),
        )
    }

    fn wait(&self, session: &str) -> Value {
        let begun = Instant::now();
        loop {
            let (_, document) = self.call("GET", session, None);
            if !["queued", "running"].contains(&document["state"].as_str().unwrap()) {
                return document;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{document}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: sends a signal to a process we started and still hold.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    fn ended(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        let mut rest = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut rest)
            .unwrap();
        (status.code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(dir: &Path, args: &[&str]) -> Output {
    command(dir).args(args).output().unwrap()
}

/// Two runs of `shift` apart.
fn files(dir: &Path) {
    for (name, shift) in [("a", 0.0f32), ("b", 1.0)] {
        let values: Vec<u8> = (0..6)
            .flat_map(|i| (i as f32 + shift).to_le_bytes())
            .collect();
        let header = r#"{"0_query":{"dtype":"F32","shape":[6],"data_offsets":[0,24]}}"#;
        let bytes = [
            &(header.len() as u64).to_le_bytes(),
            header.as_bytes(),
            &values,
        ]
        .concat();
        std::fs::write(dir.join(format!("{name}.safetensors")), bytes).unwrap();
    }
}

#[test]
fn the_address_is_the_only_line_and_signals_end_it_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let server = Server::start(dir.path(), &["--port", "0"]);
        assert!(
            server.url.starts_with("http://127.0.0.1:") && server.url.ends_with('/'),
            "{}",
            server.url
        );
        assert_eq!(server.call("GET", "/api/v1/server", None).0, 200);
        // A stream that is being listened to does not hold the end up for long.
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(
            stream,
            "GET /api/v1/events HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n\r\n",
            server.address()
        )
        .unwrap();
        let mut first = [0; 64];
        stream.read_exact(&mut first).unwrap();
        server.signal(signal);
        assert_eq!(server.ended(), (Some(0), String::new()));
    }
}

#[test]
fn everything_that_was_confirmed_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let server = Server::start(dir.path(), &["--port", "0"]);
    let body = json!({"reference": {"path": "a.safetensors"}, "candidate": {"path": "b.safetensors"}, "name": "before"});
    let (status, opened) = server.call("POST", "/api/v1/open", Some(body));
    assert_eq!(status, 201, "{opened}");
    let session = format!("/api/v1/sessions/{}", opened["session"].as_str().unwrap());
    assert_eq!(server.wait(&session)["headline"]["verdict"], "diverged");
    assert_eq!(
        server
            .call("PATCH", &session, Some(json!({"notes": "kept"})))
            .0,
        200
    );
    let upload = json!({"name": "u.bin", "files": [{"path": "u.bin", "bytes": 4}]});
    let (status, upload) = server.call("POST", "/api/v1/uploads", Some(upload));
    assert_eq!(status, 201, "{upload}");
    let upload = upload["upload"].as_str().unwrap();
    let edit = json!({"kind": "unpair", "reference": ["0_query"], "candidate": ["0_query"]});
    assert_eq!(
        server
            .call("POST", &format!("{session}/edits"), Some(edit))
            .0,
        200
    );
    server.signal(libc::SIGKILL);
    drop(server);
    let server = Server::start(dir.path(), &["--port", "0"]);
    let (_, found) = server.call("GET", &session, None);
    assert_eq!(
        (
            found["name"].as_str(),
            found["notes"].as_str(),
            found["undo"].as_str()
        ),
        (
            Some("before"),
            Some("kept"),
            Some("took 0_query = 0_query apart")
        )
    );
    // Whether the comparison after the edit was done by then or not, it can be had.
    if found["state"] == "interrupted" {
        server.call("POST", &format!("{session}/comparison"), Some(json!({})));
    }
    server.wait(&session);
    assert_eq!(
        server.call("GET", &format!("{session}/pairs"), None).1["only_reference"][0]["name"],
        "0_query"
    );
    assert_eq!(
        server
            .call("POST", &format!("{session}/undo"), Some(json!({})))
            .0,
        200
    );
    server.wait(&session);
    assert_eq!(
        server.call("GET", &format!("{session}/pairs"), None).1["pairs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        server
            .call("GET", &format!("/api/v1/uploads/{upload}"), None)
            .1["received"],
        0
    );
}

#[test]
fn sources_on_the_command_line_are_compared_at_once_wherever_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    files(elsewhere.path());
    let path = |name: &str| elsewhere.path().join(name).display().to_string();
    let server = Server::start(
        dir.path(),
        &[
            "--port",
            "0",
            &path("a.safetensors"),
            &path("b.safetensors"),
        ],
    );
    let session = server.call("GET", "/api/v1/server", None).1["session"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        server.wait(&format!("/api/v1/sessions/{session}"))["headline"]["verdict"],
        "diverged"
    );
    // Without the word, too.
    let mut child = command(dir.path())
        .args([
            "--no-open",
            "--port",
            "0",
            "--state",
            "other",
            &path("a.safetensors"),
        ])
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut url)
        .unwrap();
    let bare = Server {
        child,
        url: url.trim_end().to_owned(),
    };
    assert!(bare.call("GET", "/api/v1/server", None).1["session"].is_string());
}

#[test]
fn a_port_that_is_taken_gives_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let first = Server::start(dir.path(), &["--port", "0"]);
    let port: u16 = first.address().rsplit(':').next().unwrap().parse().unwrap();
    let second = Server::start_in(dir.path(), "second", &["--port", &port.to_string()]);
    assert_ne!(first.url, second.url);
    assert_eq!(second.call("GET", "/api/v1/server", None).0, 200);
}

#[test]
fn other_addresses_ask_for_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--port", "0", "--host", "0.0.0.0"]);
    let token = server.url.split("?token=").nth(1).unwrap();
    assert_eq!(token.len(), 48);
    assert_eq!(server.call("GET", "/api/v1/server", None).0, 401);
    let given = Server::start_in(
        dir.path(),
        "other",
        &["--port", "0", "--token", "not-a-secret"],
    );
    assert!(given.url.ends_with("?token=not-a-secret"));
}

#[test]
fn a_client_that_is_slow_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--port", "0"]);
    let mut slow: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    for stream in &mut slow {
        write!(
            stream,
            "POST /api/v1/open HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{",
            server.address()
        )
        .unwrap();
    }
    for _ in 0..20 {
        assert_eq!(server.call("GET", "/api/v1/server", None).0, 200);
    }
}

#[test]
fn a_client_that_reads_nothing_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let server = Server::start(dir.path(), &["--port", "0"]);
    // Each asks again and again and takes no answer: their connections fill up, nothing else does.
    let deaf: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.set_nonblocking(true).unwrap();
            let request = format!(
                "GET /api/v1/openapi.json HTTP/1.1\r\nhost: {}\r\n\r\n",
                server.address()
            );
            while stream.write_all(request.as_bytes()).is_ok() {}
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(server.call("GET", "/api/v1/server", None).0, 200);
    }
    let body =
        json!({"reference": {"path": "a.safetensors"}, "candidate": {"path": "b.safetensors"}});
    let (_, opened) = server.call("POST", "/api/v1/open", Some(body));
    assert_eq!(
        server.wait(&format!(
            "/api/v1/sessions/{}",
            opened["session"].as_str().unwrap()
        ))["state"],
        "done"
    );
    drop(deaf);
}

/// No file may grow beyond `most` bytes: to whoever writes it, the disk is full there.
fn with_full_disk(dir: &Path, most: u64) -> Server {
    use std::os::unix::process::CommandExt;
    let mut command = command(dir);
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: both calls are async-signal-safe and touch nothing of the parent.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            if libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
    let mut child = command
        .args(["serve", "--no-open", "--port", "0", "--state", "state"])
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut url)
        .unwrap();
    Server {
        child,
        url: url.trim_end().to_owned(),
    }
}

#[test]
fn a_full_disk_in_the_middle_of_an_upload_and_of_a_change_loses_nothing() {
    const MIB: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let server = with_full_disk(dir.path(), 2 * MIB as u64);
    let body =
        json!({"reference": {"path": "a.safetensors"}, "candidate": {"path": "b.safetensors"}});
    let (status, opened) = server.call("POST", "/api/v1/open", Some(body));
    assert_eq!(status, 201, "{opened}");
    let session = format!("/api/v1/sessions/{}", opened["session"].as_str().unwrap());
    server.wait(&session);
    assert_eq!(
        server
            .call("PATCH", &session, Some(json!({"notes": "before"})))
            .0,
        200
    );

    let announced = json!({"name": "run.bin", "files": [{"path": "run.bin", "bytes": 3 * MIB}]});
    let (status, upload) = server.call("POST", "/api/v1/uploads", Some(announced));
    assert_eq!(status, 201, "{upload}");
    let upload = format!("/api/v1/uploads/{}", upload["upload"].as_str().unwrap());
    let (status, full) = server.put(&format!("{upload}/files/0"), 0, &vec![7; 3 * MIB]);
    assert_eq!(
        (status, full["code"].as_str()),
        (507, Some("disk_full")),
        "{full}"
    );
    assert_eq!(
        full["detail"],
        format!(
            "`run.bin` has arrived with {} of {} bytes, then the disk was full",
            2 * MIB,
            3 * MIB
        )
    );
    assert!(full["hint"].as_str().unwrap().contains("resume"), "{full}");

    let (status, full) = server.call(
        "PATCH",
        &session,
        Some(json!({"notes": "x".repeat(3 * MIB)})),
    );
    assert_eq!(
        (status, full["code"].as_str()),
        (507, Some("disk_full")),
        "{full}"
    );
    assert!(
        full["detail"].as_str().unwrap().contains("state.db")
            && full["hint"].as_str().unwrap().contains("--state"),
        "{full}"
    );
    assert_eq!(server.call("GET", &session, None).1["notes"], "before");
    assert_eq!(
        server
            .call("PATCH", &session, Some(json!({"notes": "after"})))
            .0,
        200,
        "what is small still fits"
    );

    server.signal(libc::SIGKILL);
    drop(server);
    let server = Server::start(dir.path(), &["--port", "0"]);
    let (_, found) = server.call("GET", &session, None);
    assert_eq!(
        (
            found["notes"].as_str(),
            found["headline"]["verdict"].as_str()
        ),
        (Some("after"), Some("diverged"))
    );
    assert_eq!(server.call("GET", &upload, None).1["received"], 2 * MIB);
    assert_eq!(
        server
            .put(&format!("{upload}/files/0"), 2 * MIB, &vec![7; MIB])
            .0,
        200
    );
    assert_eq!(server.call("GET", &upload, None).1["complete"], true);
}

#[test]
fn the_description_is_printed_for_generators() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["serve", "--openapi"]);
    let description: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(description["paths"]["/api/v1/open"].is_object());
}

#[test]
fn what_makes_no_sense_is_said_and_ends_with_2() {
    let dir = tempfile::tempdir().unwrap();
    for (args, said) in [
        (
            &["serve", "nothing.pt", "--no-open", "--state", "s"][..],
            "nothing.pt",
        ),
        (
            &["serve", "--host", "evil.com", "--no-open", "--state", "s"],
            "is not an address",
        ),
        (
            &["serve", "--token", "short", "--no-open", "--state", "s"],
            "eight at least",
        ),
        (
            &["serve", "--root", "nowhere", "--no-open", "--state", "s"],
            "is not a folder",
        ),
        (&["dif", "a", "b"], "diff"),
    ] {
        let output = run(dir.path(), args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && text.contains(said) && output.stdout.is_empty(),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn a_report_is_written_as_one_html_file() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let output = run(
        dir.path(),
        &[
            "diff",
            "a.safetensors",
            "b.safetensors",
            "--html",
            "report.html",
        ],
    );
    assert_eq!(output.status.code(), Some(1));
    let html = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(
        html.contains("id=\"twinscope-report\">{\"schema\":1") && !html.contains("src=\"http"),
        "{}",
        &html[..200]
    );
}
