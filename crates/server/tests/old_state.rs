//! The state folder of version 0.1.0 (`testdata/old_state/make.py` says what was done in it): its sessions, notes, edits and reports are
//! there after an update.

mod common;

use common::{Server, config};
use serde_json::json;
use std::{fs, path::Path};
use twinscope_report::{Comparison, Verdict};
use twinscope_server::{App, router};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A server over a copy of the folder. `/STATE` in the database stands for where the folder is.
fn server() -> Server {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/old_state/state");
    copy(&old, &config.state);
    let database = rusqlite::Connection::open(config.state.join("state.db")).unwrap();
    let sql = "UPDATE sessions SET document = replace(document, '/STATE', ?1)";
    database
        .execute(sql, [config.state.to_str().unwrap()])
        .unwrap();
    drop(database);
    let app = App::new(config).unwrap();
    Server {
        dir,
        router: router(app.clone()),
        app,
    }
}

/// The path of the session of this name.
async fn session(server: &Server, name: &str) -> String {
    let sessions = server.get("/api/v1/sessions").await.json();
    let all = sessions.as_array().unwrap();
    assert_eq!(all.len(), 2, "{sessions}");
    let found = all.iter().find(|session| session["name"] == name).unwrap();
    format!("/api/v1/sessions/{}", found["session"].as_str().unwrap())
}

async fn keys(server: &Server, session: &str) -> Vec<String> {
    let pairs = server.get(&format!("{session}/pairs")).await.json();
    let rows = pairs["pairs"].as_array().unwrap();
    rows.iter()
        .map(|row| row["key"].as_str().unwrap().to_owned())
        .collect()
}

const EXECUTION_ORDER: [&str; 4] = [
    "0_query = 0_query",
    "1_query = 1_query",
    "2_query = 2_query",
    "lm_head.bias = zzz",
];

fn reversed() -> Vec<&'static str> {
    EXECUTION_ORDER.into_iter().rev().collect()
}

#[tokio::test]
async fn a_session_of_0_1_0_keeps_its_notes_edits_and_report() {
    let server = server();
    let session = session(&server, "a session of 0.1.0").await;
    let document = server.get(&session).await.json();
    assert_eq!(document["notes"], "queries are doubled in layer 2");
    assert_eq!(
        (&document["state"], &document["revision"]),
        (&json!("done"), &json!(4))
    );
    assert_eq!(document["headline"]["first_divergence"]["name"], "2_query");
    assert_eq!(document["headline"]["cause"]["kind"], "scale");
    assert_eq!(
        document["settings"]["map"],
        json!([{"reference": "lm_head.bias", "candidate": "zzz"}])
    );
    assert_eq!(
        document["settings"]["layouts"],
        json!([{"name": "1_query", "steps": "permute(1,0,2)"}])
    );
    let edits = server.get(&format!("{session}/edits")).await.json();
    let undone: Vec<bool> = edits
        .as_array()
        .unwrap()
        .iter()
        .map(|edit| edit["undone"].as_bool().unwrap())
        .collect();
    assert_eq!(undone, [false, false, false, false, true], "{edits}");
    assert_eq!(keys(&server, &session).await, reversed());

    let text = server.get(&format!("{session}/report.json")).await.text();
    let report: Comparison = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&report).unwrap(), text);
    assert_eq!(report.pairs[2].verdict, Verdict::Diverged);
    assert_eq!(report.pairs[3].rule.name(), "manual");
}

#[tokio::test]
async fn edits_of_0_1_0_are_redone_and_undone() {
    let server = server();
    let session = session(&server, "a session of 0.1.0").await;
    server.post(&format!("{session}/redo"), json!(null)).await;
    let moved = [
        "0_query = 0_query",
        "lm_head.bias = zzz",
        "2_query = 2_query",
        "1_query = 1_query",
    ];
    assert_eq!(keys(&server, &session).await, moved);
    for _ in 0..2 {
        server.post(&format!("{session}/undo"), json!(null)).await;
    }
    assert_eq!(keys(&server, &session).await, EXECUTION_ORDER);
    // The layout: the pairs are compared anew from the uploads.
    server.post(&format!("{session}/undo"), json!(null)).await;
    let document = server.wait(&session).await;
    assert_eq!(document["state"], "done", "{document}");
    assert_eq!(document["settings"]["layouts"], json!([]));
    assert_eq!(document["headline"]["counts"]["identical"], 3);
    assert_eq!(document["headline"]["cause"]["kind"], "scale");
}

#[tokio::test]
async fn a_report_imported_into_0_1_0_is_still_there() {
    let server = server();
    let session = session(&server, "an imported report").await;
    let document = server.get(&session).await.json();
    assert_eq!(
        (&document["mode"], &document["imported"]),
        (&json!("imported"), &json!(true))
    );
    let report = server.get(&format!("{session}/report.json")).await.text();
    let original =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/old_state/reports/alone.json");
    assert_eq!(report.trim(), fs::read_to_string(original).unwrap().trim());
}
