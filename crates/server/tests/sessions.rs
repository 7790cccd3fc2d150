//! Sessions: opened, compared, edited, undone, found again after a restart, kept apart.

mod common;

use axum::http::{Method, StatusCode};
use common::{Server, safetensors, two_runs};
use serde_json::json;

async fn opened() -> (Server, String) {
    let server = Server::new();
    two_runs(&server);
    let session = server.compared("a.safetensors", "b.safetensors").await;
    (server, session)
}

async fn names(server: &Server, session: &str) -> Vec<String> {
    let pairs = server.get(&format!("{session}/pairs")).await.json();
    pairs["pairs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["key"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_session_has_a_headline_and_every_tensor_a_place() {
    let (server, session) = opened().await;
    let document = server.get(&session).await.json();
    assert_eq!(
        (
            document["state"].as_str(),
            document["headline"]["verdict"].as_str()
        ),
        (Some("done"), Some("diverged"))
    );
    assert_eq!(document["headline"]["first_divergence"]["name"], "2_query");
    assert_eq!(document["candidate_source"]["tensors"], 4);
    let pairs = server.get(&format!("{session}/pairs")).await.json();
    assert_eq!(
        (pairs["provisional"].as_bool(), pairs["revision"].as_u64()),
        (Some(false), Some(1))
    );
    assert_eq!(
        (
            pairs["only_reference"][0]["name"].as_str(),
            pairs["only_candidate"][0]["name"].as_str()
        ),
        (Some("lm_head.bias"), Some("zzz"))
    );
    assert_eq!(
        names(&server, &session).await,
        [
            "0_query = 0_query",
            "1_query = 1_query",
            "2_query = 2_query"
        ]
    );
    assert_eq!(
        server
            .get("/api/v1/sessions")
            .await
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_and_leaves_no_session() {
    let server = Server::new();
    server.file("page.pt", b"<html>not found</html>");
    server.file("ok.safetensors", &safetensors(&[("x", &[1], &[1.0])]));
    for (body, code) in [
        (
            json!({"reference": {"path": "page.pt"}}),
            "unreadable_source",
        ),
        (json!({"reference": {"path": "nothing.pt"}}), "no_such_file"),
        (
            json!({"reference": {"path": "../../etc/passwd"}}),
            "outside_roots",
        ),
        (json!({"reference": {"upload": "none"}}), "no_such_upload"),
        (json!({"reference": {}}), "bad_source"),
        (
            json!({"reference": {"path": "ok.safetensors"}, "candidat": {}}),
            "bad_json",
        ),
        (
            json!({"reference": {"path": "ok.safetensors"}, "settings": {"fuzzy_threshold": 7}}),
            "bad_settings",
        ),
        (
            json!({"reference": {"path": "ok.safetensors"}, "settings": {"plugins": ["rm -rf /"]}}),
            "bad_settings",
        ),
        (
            json!({"reference": {"path": "ok.safetensors"}, "settings": {"patterns": [{"reference": "("}]}}),
            "bad_pairing",
        ),
    ] {
        let answer = server.post("/api/v1/open", body.clone()).await;
        assert_eq!(answer.code(), code, "{body}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
    assert!(
        server
            .get("/api/v1/sessions")
            .await
            .json()
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn pairs_are_made_and_taken_apart_by_hand_and_every_edit_is_undone() {
    let (server, session) = opened().await;
    let edit = async |body| {
        let answer = server.post(&format!("{session}/edits"), body).await;
        server.wait(&session).await;
        answer
    };
    assert_eq!(
        edit(json!({"kind": "unpair", "reference": ["0_query"], "candidate": ["0_query"]}))
            .await
            .status,
        StatusCode::OK
    );
    assert_eq!(
        names(&server, &session).await,
        ["1_query = 1_query", "2_query = 2_query"]
    );
    assert_eq!(
        edit(json!({"kind": "pair", "reference": ["lm_head.bias"], "candidate": ["zzz"]}))
            .await
            .status,
        StatusCode::OK
    );
    assert_eq!(
        names(&server, &session).await,
        [
            "1_query = 1_query",
            "2_query = 2_query",
            "lm_head.bias = zzz"
        ]
    );
    let document = server.get(&session).await.json();
    assert_eq!(
        (document["undo"].as_str(), document["revision"].as_u64()),
        (Some("paired lm_head.bias = zzz"), Some(3))
    );
    for expected in [
        vec!["1_query = 1_query", "2_query = 2_query"],
        vec![
            "0_query = 0_query",
            "1_query = 1_query",
            "2_query = 2_query",
        ],
    ] {
        assert_eq!(
            server
                .post(&format!("{session}/undo"), json!({}))
                .await
                .status,
            StatusCode::OK
        );
        server.wait(&session).await;
        assert_eq!(names(&server, &session).await, expected);
    }
    assert_eq!(
        server
            .post(&format!("{session}/undo"), json!({}))
            .await
            .code(),
        "nothing_to_undo"
    );
    server.post(&format!("{session}/redo"), json!({})).await;
    server.wait(&session).await;
    assert_eq!(names(&server, &session).await.len(), 2);
    let log = server.get(&format!("{session}/edits")).await.json();
    assert_eq!(
        (log[0]["undone"].as_bool(), log[1]["undone"].as_bool()),
        (Some(false), Some(true))
    );
    // What cannot be is refused and changes nothing.
    for (body, code) in [
        (
            json!({"kind": "pair", "reference": ["0_qurey"], "candidate": ["zzz"]}),
            "bad_pairing",
        ),
        (
            json!({"kind": "pair", "reference": [], "candidate": ["zzz"]}),
            "bad_edit",
        ),
        (
            json!({"kind": "layout", "name": "1_query", "steps": "jump(3)"}),
            "bad_layout",
        ),
        (
            json!({"kind": "layout", "name": "1_query", "steps": "squeeze(0)"}),
            "bad_layout",
        ),
        (json!({"kind": "import_map", "text": "a\n"}), "bad_map"),
        (
            json!({"kind": "accept", "side": "candidate", "name": "nothing"}),
            "no_suggestion",
        ),
        (
            json!({"kind": "settings", "settings": {"plugins": ["evil"]}}),
            "bad_settings",
        ),
        (json!({"kind": "dance"}), "bad_json"),
    ] {
        assert_eq!(edit(body.clone()).await.code(), code, "{body}");
    }
    assert_eq!(server.get(&format!("{session}/edits")).await.json(), log);
}

#[tokio::test]
async fn a_layout_is_overridden_and_the_search_decides_again() {
    let (server, session) = opened().await;
    let edit = async |body| {
        server.post(&format!("{session}/edits"), body).await;
        server.wait(&session).await;
        server.get(&format!("{session}/pairs/1")).await.json()
    };
    let pair = edit(json!({"kind": "layout", "name": "1_query", "steps": "flatten"})).await;
    assert_eq!(
        (
            pair["layout"]["by"].as_str(),
            pair["verdict"].as_str(),
            pair["layout_override"].as_str()
        ),
        (Some("user"), Some("diverged"), Some("flatten"))
    );
    let ways = server
        .get(&format!("{session}/pairs/1/layouts"))
        .await
        .json();
    assert_eq!(
        (ways[0]["steps"].as_str(), ways[0]["rel_l2"].as_f64()),
        (Some("permute(1,0)"), Some(0.0))
    );
    assert!(
        ways.as_array()
            .unwrap()
            .iter()
            .any(|way| way["steps"] == "flatten" && way["current"] == true)
    );
    let pair = edit(json!({"kind": "layout", "name": "1_query", "steps": null})).await;
    assert_eq!(
        (pair["layout"]["by"].as_str(), pair["verdict"].as_str()),
        (Some("values"), Some("identical"))
    );
}

#[tokio::test]
async fn an_order_is_pinned_and_moved_in() {
    let (server, session) = opened().await;
    server
        .post(
            &format!("{session}/edits"),
            json!({"kind": "move", "key": "2_query = 2_query", "to": 0}),
        )
        .await;
    assert_eq!(
        names(&server, &session).await,
        [
            "2_query = 2_query",
            "0_query = 0_query",
            "1_query = 1_query"
        ]
    );
    server
        .post(
            &format!("{session}/edits"),
            json!({"kind": "move", "key": "0_query = 0_query", "to": 2}),
        )
        .await;
    assert_eq!(
        names(&server, &session).await,
        [
            "2_query = 2_query",
            "1_query = 1_query",
            "0_query = 0_query"
        ]
    );
    server.post(&format!("{session}/undo"), json!({})).await;
    assert_eq!(
        names(&server, &session).await,
        [
            "2_query = 2_query",
            "0_query = 0_query",
            "1_query = 1_query"
        ]
    );
    let server = server.restarted();
    assert_eq!(names(&server, &session).await[0], "2_query = 2_query");
    // Numbers of pairs stay those of the report, whatever the order.
    assert_eq!(
        server.get(&format!("{session}/pairs")).await.json()["pairs"][0]["pair"],
        2
    );
    server
        .post(
            &format!("{session}/edits"),
            json!({"kind": "order", "keys": null}),
        )
        .await;
    assert_eq!(names(&server, &session).await[0], "0_query = 0_query");
}

#[tokio::test]
async fn settings_and_pairings_leave_as_files_and_come_back() {
    let (server, session) = opened().await;
    let toml = server.get(&format!("{session}/settings.toml")).await.text();
    assert!(toml.contains("fuzzy_threshold"));
    let map = server.get(&format!("{session}/map.csv")).await.text();
    assert_eq!(
        map,
        "reference,candidate\n0_query,0_query\n1_query,1_query\n2_query,2_query\n"
    );
    server
        .post(
            &format!("{session}/edits"),
            json!({"kind": "import_map", "text": "lm_head.bias,zzz\n"}),
        )
        .await;
    server.wait(&session).await;
    assert!(
        names(&server, &session)
            .await
            .contains(&"lm_head.bias = zzz".to_owned())
    );
    server
        .post(
            &format!("{session}/edits"),
            json!({"kind": "import_settings", "text": toml}),
        )
        .await;
    server.wait(&session).await;
    assert_eq!(names(&server, &session).await.len(), 3);
    assert_eq!(
        server.get(&format!("{session}/settings")).await.json()["fuzzy_threshold"],
        0.8
    );
}

#[tokio::test]
async fn a_preview_pairs_without_saving() {
    let (server, session) = opened().await;
    let preview = async |settings| {
        server
            .post(&format!("{session}/preview"), json!({"settings": settings}))
            .await
    };
    let found =
        preview(json!({"rules": ["pattern"], "patterns": [{"reference": "(?<n>[02])_query"}]}))
            .await
            .json();
    assert_eq!(
        (
            found["rules"]["pattern"].as_u64(),
            found["only_reference"].as_array().unwrap().len()
        ),
        (Some(2), 2)
    );
    let wrong = preview(json!({"rules": ["pattern"], "patterns": [{"reference": "("}]})).await;
    assert_eq!(wrong.code(), "bad_pairing");
    assert_eq!(server.get(&session).await.json()["revision"], 1);
}

#[tokio::test]
async fn everything_survives_a_restart() {
    let (server, session) = opened().await;
    server
        .call(
            Method::PATCH,
            &session,
            Some(json!({"name": "mine", "notes": "look at 2"})),
        )
        .await;
    server
        .post(
            &format!("{session}/edits"),
            json!({"kind": "unpair", "reference": ["0_query"], "candidate": ["0_query"]}),
        )
        .await;
    server.wait(&session).await;
    let before = server.get(&format!("{session}/pairs")).await.json();
    let server = server.restarted();
    let document = server.get(&session).await.json();
    assert_eq!(
        (
            document["name"].as_str(),
            document["notes"].as_str(),
            document["state"].as_str()
        ),
        (Some("mine"), Some("look at 2"), Some("done"))
    );
    assert_eq!(document["reference_source"]["changed"], false);
    assert_eq!(server.get(&format!("{session}/pairs")).await.json(), before);
    assert_eq!(
        server
            .get(&format!(
                "{session}/pairs/1/window?planes=candidate&at=0,0,0"
            ))
            .await
            .floats()
            .len(),
        12
    );
    server.post(&format!("{session}/undo"), json!({})).await;
    server.wait(&session).await;
    assert_eq!(names(&server, &session).await.len(), 3);
}

#[tokio::test]
async fn a_file_that_changed_or_went_is_said() {
    let (server, session) = opened().await;
    server.file("b.safetensors", &safetensors(&[("0_query", &[1], &[1.0])]));
    let server = server.restarted();
    let document = server.get(&session).await.json();
    assert_eq!(
        (
            document["candidate_source"]["changed"].as_bool(),
            document["reference_source"]["changed"].as_bool()
        ),
        (Some(true), Some(false))
    );
    std::fs::remove_file(server.dir.path().join("files/b.safetensors")).unwrap();
    let server = server.restarted();
    let document = server.get(&session).await.json();
    assert_eq!(
        document["candidate_source"]["problem"]["code"],
        "source_missing"
    );
    assert_eq!(
        server.get(&format!("{session}/pairs")).await.status,
        StatusCode::OK,
        "the report is still there"
    );
    assert_eq!(
        server
            .get(&format!("{session}/pairs/0/window"))
            .await
            .code(),
        "source_missing"
    );
}

#[tokio::test]
async fn a_report_is_taken_away_and_read_without_its_data() {
    let (server, session) = opened().await;
    let csv = server.get(&format!("{session}/report.csv")).await.text();
    assert_eq!(csv.lines().count(), 4);
    for name in ["report.json", "report.html"] {
        let report = server.get(&format!("{session}/{name}")).await;
        let request = axum::http::Request::post("/api/v1/import")
            .header("host", "localhost")
            .header("content-type", "application/octet-stream")
            .body(axum::body::Body::from(report.bytes))
            .unwrap();
        let imported = server.send(request).await;
        assert_eq!(imported.status, StatusCode::CREATED, "{}", imported.text());
        let imported = imported.json();
        assert_eq!(
            (
                imported["mode"].as_str(),
                imported["headline"]["verdict"].as_str()
            ),
            (Some("imported"), Some("diverged"))
        );
        let path = format!("/api/v1/sessions/{}", imported["session"].as_str().unwrap());
        let (pairs, original) = (
            server.get(&format!("{path}/pairs")).await.json(),
            server.get(&format!("{session}/pairs")).await.json(),
        );
        assert_eq!(pairs["pairs"], original["pairs"]);
        assert_eq!(
            server.get(&format!("{path}/pairs/2")).await.json()["totals"]["worst"][1],
            "NaN"
        );
        for (path, code) in [
            (format!("{path}/pairs/2/window"), "no_data"),
            (format!("{path}/sources/reference/tensors"), "no_data"),
        ] {
            assert_eq!(server.get(&path).await.code(), code);
        }
        assert_eq!(
            server
                .post(&format!("{path}/comparison"), json!({}))
                .await
                .code(),
            "no_data"
        );
        let edit = server
            .post(
                &format!("{path}/edits"),
                json!({"kind": "unpair", "reference": ["a"], "candidate": ["b"]}),
            )
            .await;
        assert_eq!(edit.code(), "no_data");
    }
    for bytes in ["{}", "hello", "<html></html>", "{\"schema\": 9}"] {
        let request = axum::http::Request::post("/api/v1/import")
            .header("host", "localhost")
            .body(axum::body::Body::from(bytes))
            .unwrap();
        assert_eq!(server.send(request).await.code(), "not_a_report", "{bytes}");
    }
}

#[tokio::test]
async fn names_from_files_cannot_break_out_of_the_report() {
    let server = Server::new();
    let evil = "</script><script>alert(1)</script>";
    server.file("a.safetensors", &safetensors(&[(evil, &[1], &[1.0])]));
    let session = server.compared("a.safetensors", "a.safetensors").await;
    let html = server.get(&format!("{session}/report.html")).await.text();
    assert!(!html.contains("<script>alert") && html.contains("\\u003c/script>"));
}

#[tokio::test]
async fn sessions_do_not_see_each_other_and_deleting_one_leaves_the_other() {
    let (server, first) = opened().await;
    let second = server.compared("b.safetensors", "a.safetensors").await;
    assert_ne!(first, second);
    server
        .post(
            &format!("{first}/edits"),
            json!({"kind": "unpair", "reference": ["0_query"], "candidate": ["0_query"]}),
        )
        .await;
    server.wait(&first).await;
    assert_eq!(
        (
            names(&server, &first).await.len(),
            names(&server, &second).await.len()
        ),
        (2, 3)
    );
    assert_eq!(
        server.call(Method::DELETE, &first, None).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(server.get(&first).await.code(), "no_such_session");
    assert_eq!(names(&server, &second).await.len(), 3);
    let server = server.restarted();
    assert_eq!(
        server
            .get("/api/v1/sessions")
            .await
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn stale_numbers_of_pairs_are_refused() {
    let (server, session) = opened().await;
    assert_eq!(
        server
            .get(&format!("{session}/pairs/0?revision=1"))
            .await
            .status,
        StatusCode::OK
    );
    for path in [
        "pairs/0",
        "pairs/0/window",
        "pairs/0/cells",
        "pairs/0/histogram",
        "pairs/0/profile",
        "pairs/0/export.npy",
    ] {
        assert_eq!(
            server
                .get(&format!("{session}/{path}?revision=7"))
                .await
                .code(),
            "stale_revision",
            "{path}"
        );
    }
}

#[tokio::test]
async fn what_happens_is_numbered_and_a_snapshot_comes_first() {
    let (server, session) = opened().await;
    let id = session.rsplit('/').next().unwrap();
    let snapshot = server.get("/api/v1/events").await.json();
    assert_eq!(
        (
            snapshot["snapshot"][0]["session"].as_str(),
            snapshot["events"].as_array().unwrap().len()
        ),
        (Some(id), 0)
    );
    let all = server.get("/api/v1/events?since=0").await.json();
    let states: Vec<&str> = all["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["kind"] == "state")
        .map(|event| event["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["queued", "running", "done"]);
    let seqs: Vec<u64> = all["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert!(seqs.windows(2).all(|two| two[0] + 1 == two[1]));
    let later = server
        .get(&format!("/api/v1/events?since={}", all["seq"]))
        .await
        .json();
    assert_eq!(
        (
            later["snapshot"].is_null(),
            later["events"].as_array().unwrap().len()
        ),
        (true, 0)
    );
    assert!(
        server
            .get("/api/v1/events?since=0&session=other")
            .await
            .json()["events"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn the_stream_begins_with_a_snapshot_and_goes_on() {
    use futures_util::StreamExt;
    use tower::ServiceExt;
    let (server, session) = opened().await;
    let request = axum::http::Request::get("/api/v1/events")
        .header("host", "localhost")
        .header("accept", "text/event-stream");
    let response = server
        .router
        .clone()
        .oneshot(request.body(axum::body::Body::empty()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response.into_body().into_data_stream();
    let first = String::from_utf8(stream.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(
        first.contains("event: snapshot") && first.contains("\"sessions\""),
        "{first}"
    );
    server
        .call(Method::PATCH, &session, Some(json!({"notes": "x"})))
        .await;
    let next = String::from_utf8(stream.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(
        next.contains("\"kind\":\"changed\"") && next.contains("id: "),
        "{next}"
    );
}

#[tokio::test]
async fn a_running_comparison_is_cancelled_at_once_and_keeps_what_it_knows() {
    let server = Server::new();
    let values: Vec<f32> = (0..1 << 16).map(|i| i as f32).collect();
    let names: Vec<String> = (0..400).map(|i| format!("{i}_query")).collect();
    let tensors: Vec<(&str, &[u64], &[f32])> = names
        .iter()
        .map(|name| (name.as_str(), &[1u64 << 16][..], &values[..]))
        .collect();
    server.file("a.safetensors", &safetensors(&tensors));
    let opened = server
        .post(
            "/api/v1/open",
            json!({"reference": {"path": "a.safetensors"}, "candidate": {"path": "a.safetensors"}}),
        )
        .await
        .json();
    let session = format!("/api/v1/sessions/{}", opened["session"].as_str().unwrap());
    assert_eq!(
        server
            .call(Method::DELETE, &format!("{session}/comparison"), None)
            .await
            .status,
        StatusCode::ACCEPTED
    );
    let document = server.wait(&session).await;
    assert_eq!(document["state"], "cancelled");
    // Again, and to the end.
    server
        .post(&format!("{session}/comparison"), json!({}))
        .await;
    assert_eq!(
        server.wait(&session).await["headline"]["counts"]["identical"],
        400
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_comparison_is_cancelled_at_once_while_its_pairs_are_found() {
    let server = Server::new();
    two_runs(&server);
    let mut settings = twinscope_compare::Settings::default();
    settings.set_match("exec:sleep 30").unwrap();
    let files = server.dir.path().join("files");
    let id = twinscope_server::open_paths(
        &server.app,
        &files.join("a.safetensors"),
        Some(&files.join("b.safetensors")),
        settings,
    )
    .unwrap();
    let session = format!("/api/v1/sessions/{id}");
    while server.get(&session).await.json()["progress"]["phase"] != "pairing" {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    server
        .call(Method::DELETE, &format!("{session}/comparison"), None)
        .await;
    let begun = std::time::Instant::now();
    let document = server.wait(&session).await;
    assert_eq!(document["state"], "cancelled");
    assert!(
        begun.elapsed().as_secs() < 20,
        "it waited for the pairs: {:?}",
        begun.elapsed()
    );
    assert!(document["headline"].is_null(), "{document}");
    assert_eq!(
        server.get(&format!("{session}/report.json")).await.code(),
        "not_compared"
    );
    // Nothing is left over: it can be told to pair in another way, and then has an answer.
    server
        .post(
            &format!("{session}/edits"),
            json!({"kind": "settings", "settings": {}}),
        )
        .await;
    let document = server.wait(&session).await;
    assert_eq!(
        (
            document["state"].as_str(),
            document["headline"]["verdict"].as_str()
        ),
        (Some("done"), Some("diverged"))
    );
}

#[tokio::test]
async fn fifty_comparisons_at_once_all_finish() {
    let server = Server::new();
    two_runs(&server);
    let mut sessions = Vec::new();
    for _ in 0..50 {
        let body =
            json!({"reference": {"path": "a.safetensors"}, "candidate": {"path": "b.safetensors"}});
        let opened = server.post("/api/v1/open", body).await;
        assert_eq!(opened.status, StatusCode::CREATED);
        sessions.push(format!(
            "/api/v1/sessions/{}",
            opened.json()["session"].as_str().unwrap()
        ));
    }
    for session in &sessions {
        let document = server.wait(session).await;
        assert_eq!(
            (
                document["state"].as_str(),
                document["headline"]["counts"]["diverged"].as_u64()
            ),
            (Some("done"), Some(1))
        );
    }
    // Sources of those nobody looks at were closed meanwhile; they open again.
    assert_eq!(
        server
            .get(&format!("{}/pairs/0/window?planes=reference", sessions[0]))
            .await
            .floats()
            .len(),
        12
    );
}
