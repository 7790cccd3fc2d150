//! Files that the page sends: streamed, resumed, cut short, refused, opened, deleted.

mod common;

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use bytes::Bytes;
use common::{Answer, Server, safetensors};
use futures_util::stream;
use serde_json::{Value, json};

async fn announce(server: &Server, name: &str, files: &[(&str, usize)]) -> Answer {
    let files: Vec<Value> = files
        .iter()
        .map(|(path, bytes)| json!({"path": path, "bytes": bytes}))
        .collect();
    server
        .post("/api/v1/uploads", json!({"name": name, "files": files}))
        .await
}

async fn put(server: &Server, upload: &str, file: usize, offset: usize, body: Body) -> Answer {
    let request = Request::put(format!("/api/v1/uploads/{upload}/files/{file}"))
        .header("host", "localhost")
        .header("content-type", "application/octet-stream")
        .header("upload-offset", offset.to_string());
    server.send(request.body(body).unwrap()).await
}

fn id(answer: &Answer) -> String {
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    answer.json()["upload"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_file_is_sent_and_opened_and_two_of_one_name_stay_two() {
    let server = Server::new();
    let mut sessions = Vec::new();
    let mut uploads = Vec::new();
    for value in [1.0f32, 2.0] {
        let bytes = safetensors(&[("x", &[1], &[value])]);
        let upload = id(&announce(
            &server,
            "run.safetensors",
            &[("run.safetensors", bytes.len())],
        )
        .await);
        let sent = put(&server, &upload, 0, 0, Body::from(bytes.clone())).await;
        assert_eq!(
            (sent.status, sent.json()["received"].as_u64()),
            (StatusCode::OK, Some(bytes.len() as u64))
        );
        uploads.push(upload);
    }
    let opened = server
        .post(
            "/api/v1/open",
            json!({"reference": {"upload": uploads[0]}, "candidate": {"upload": uploads[1]}}),
        )
        .await
        .json();
    let session = format!("/api/v1/sessions/{}", opened["session"].as_str().unwrap());
    server.wait(&session).await;
    assert_eq!(
        server
            .get(&format!("{session}/pairs/0/window"))
            .await
            .floats(),
        [1.0, 2.0, 1.0]
    );
    let document = server.get(&session).await.json();
    assert_eq!(
        (
            document["reference"].as_str(),
            document["upload_bytes"].as_u64().unwrap() > 100
        ),
        (Some("run.safetensors"), true)
    );
    // In use: kept, also over a restart, until the session goes.
    assert_eq!(
        server
            .call(
                Method::DELETE,
                &format!("/api/v1/uploads/{}", uploads[0]),
                None
            )
            .await
            .code(),
        "upload_in_use"
    );
    let server = server.restarted();
    assert_eq!(
        server
            .get(&format!("{session}/pairs/0/window?planes=reference"))
            .await
            .floats(),
        [1.0]
    );
    server.call(Method::DELETE, &session, None).await;
    assert!(
        server
            .get("/api/v1/uploads")
            .await
            .json()
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        std::fs::read_dir(server.dir.path().join("state/uploads"))
            .unwrap()
            .count(),
        0
    );
    sessions.push(session);
}

#[tokio::test]
async fn what_was_cut_short_goes_on_where_it_stopped() {
    let server = Server::new();
    let bytes = safetensors(&[("x", &[1000], &[3.0; 1000])]);
    let upload = id(&announce(&server, "x.safetensors", &[("x.safetensors", bytes.len())]).await);
    let pieces = vec![
        Ok(Bytes::copy_from_slice(&bytes[..1500])),
        Err(std::io::Error::other("the line broke")),
    ];
    let cut = put(
        &server,
        &upload,
        0,
        0,
        Body::from_stream(stream::iter(pieces)),
    )
    .await;
    assert_eq!(cut.code(), "upload_cut");
    assert_eq!(
        server
            .post("/api/v1/open", json!({"reference": {"upload": upload}}))
            .await
            .code(),
        "upload_incomplete"
    );
    // Also when the server ended meanwhile.
    let server = server.restarted();
    let head = server
        .call(
            Method::HEAD,
            &format!("/api/v1/uploads/{upload}/files/0"),
            None,
        )
        .await;
    assert_eq!(
        (
            head.headers["upload-offset"].to_str().unwrap(),
            head.headers["upload-length"].to_str().unwrap()
        ),
        ("1500", bytes.len().to_string().as_str())
    );
    assert_eq!(
        put(&server, &upload, 0, 9, Body::from("x")).await.code(),
        "upload_offset"
    );
    assert_eq!(
        put(&server, &upload, 0, 0, Body::from("x")).await.code(),
        "upload_offset"
    );
    assert_eq!(
        put(
            &server,
            &upload,
            0,
            1500,
            Body::from(bytes[1500..].to_vec())
        )
        .await
        .status,
        StatusCode::OK
    );
    assert_eq!(
        server
            .get(&format!("/api/v1/uploads/{upload}"))
            .await
            .json()["complete"],
        true
    );
    assert_eq!(
        server
            .post("/api/v1/open", json!({"reference": {"upload": upload}}))
            .await
            .status,
        StatusCode::CREATED
    );
}

#[tokio::test]
async fn a_folder_keeps_its_paths_and_none_leaves_it() {
    let server = Server::new();
    let files = [
        ("run/a.safetensors", safetensors(&[("x", &[1], &[1.0])])),
        (
            "run/deep/b.safetensors",
            safetensors(&[("y", &[1], &[2.0])]),
        ),
    ];
    let announced: Vec<(&str, usize)> = files
        .iter()
        .map(|(path, bytes)| (*path, bytes.len()))
        .collect();
    let upload = id(&announce(&server, "run", &announced).await);
    for (nth, (_, bytes)) in files.iter().enumerate() {
        assert_eq!(
            put(&server, &upload, nth, 0, Body::from(bytes.clone()))
                .await
                .status,
            StatusCode::OK
        );
    }
    let opened = server
        .post("/api/v1/open", json!({"reference": {"upload": upload}}))
        .await;
    assert_eq!(opened.status, StatusCode::CREATED, "{}", opened.text());
    assert_eq!(opened.json()["reference_source"]["tensors"], 2);
    for path in ["../x", "/etc/x", "a/../../x", "a\\..\\x", ""] {
        assert_eq!(
            announce(&server, "x", &[(path, 1)]).await.code(),
            "bad_upload_path",
            "{path}"
        );
    }
    assert_eq!(
        announce(&server, "x", &[("a", 1), ("./a", 1)]).await.code(),
        "bad_upload"
    );
    assert_eq!(announce(&server, "x", &[]).await.code(), "bad_upload");
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_and_while_it_is_sent() {
    let server = Server::with(|config| config.max_upload = Some(1000));
    let refused = announce(&server, "big.pt", &[("big.pt", 1001)]).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::PAYLOAD_TOO_LARGE, "upload_too_large")
    );
    let upload = id(&announce(&server, "small.pt", &[("small.pt", 10)]).await);
    let more = put(&server, &upload, 0, 0, Body::from(vec![0; 11])).await;
    assert_eq!(
        (more.status, more.code().as_str()),
        (StatusCode::PAYLOAD_TOO_LARGE, "upload_too_large")
    );
    let server = Server::new();
    let endless = announce(&server, "disk.pt", &[("disk.pt", 1 << 62)]).await;
    assert_eq!(
        (endless.status, endless.code().as_str()),
        (StatusCode::INSUFFICIENT_STORAGE, "disk_full")
    );
    assert!(endless.json()["hint"].as_str().unwrap().contains("--state"));
}

#[tokio::test]
async fn an_upload_is_cancelled_and_leaves_nothing() {
    let server = Server::new();
    let upload = id(&announce(&server, "x", &[("x", 100)]).await);
    put(&server, &upload, 0, 0, Body::from(vec![0; 50])).await;
    assert_eq!(
        server
            .call(Method::DELETE, &format!("/api/v1/uploads/{upload}"), None)
            .await
            .status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        std::fs::read_dir(server.dir.path().join("state/uploads"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(
        put(&server, &upload, 0, 50, Body::from("x")).await.code(),
        "no_such_upload"
    );
}

/// `/dev/full` takes nothing, as a full disk does; it stands where a file of the upload is.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_disk_that_is_full_in_the_middle_names_the_file_keeps_what_arrived_and_the_rest_is_sent_later()
 {
    let server = Server::new();
    let bytes = safetensors(&[("x", &[1000], &[3.0; 1000])]);
    let upload = id(&announce(
        &server,
        "run",
        &[
            ("run/x.safetensors", bytes.len()),
            ("run/y.safetensors", bytes.len()),
        ],
    )
    .await);
    assert_eq!(
        put(&server, &upload, 0, 0, Body::from(bytes.clone()))
            .await
            .status,
        StatusCode::OK
    );
    let file = server
        .dir
        .path()
        .join(format!("state/uploads/{upload}/data/run/y.safetensors"));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/full", &file).unwrap();
    let full = put(&server, &upload, 1, 0, Body::from(bytes.clone())).await;
    assert_eq!(
        (full.status, full.code().as_str()),
        (StatusCode::INSUFFICIENT_STORAGE, "disk_full")
    );
    let detail = format!(
        "`run/y.safetensors` has arrived with 0 of {} bytes, then the disk was full",
        bytes.len()
    );
    assert_eq!(full.json()["detail"], detail);
    assert!(
        full.json()["hint"]
            .as_str()
            .unwrap()
            .contains("free some space and resume")
    );
    // It stands, nothing is lost, and there is room again.
    assert_eq!(server.get("/api/v1/server").await.status, StatusCode::OK);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, &bytes[..700]).unwrap();
    assert_eq!(
        server
            .get(&format!("/api/v1/uploads/{upload}"))
            .await
            .json()["received"],
        bytes.len() + 700
    );
    assert_eq!(
        put(&server, &upload, 1, 700, Body::from(bytes[700..].to_vec()))
            .await
            .status,
        StatusCode::OK
    );
    let opened = server
        .post("/api/v1/open", json!({"reference": {"upload": upload}}))
        .await;
    assert_eq!(
        (
            opened.status,
            opened.json()["reference_source"]["tensors"].as_u64()
        ),
        (StatusCode::CREATED, Some(2))
    );
}

#[tokio::test]
async fn a_bomb_and_files_that_point_elsewhere_are_said_and_harm_nothing() {
    let server = Server::with(|config| config.opening.limits.inflate_free = 1 << 20);
    let testdata = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let send = async |path: &str| {
        let bytes = std::fs::read(testdata.join(path)).unwrap();
        let name = path.rsplit('/').next().unwrap();
        let upload = id(&announce(&server, name, &[(name, bytes.len())]).await);
        assert_eq!(
            put(&server, &upload, 0, 0, Body::from(bytes)).await.status,
            StatusCode::OK
        );
        server
            .post("/api/v1/open", json!({"reference": {"upload": upload}}))
            .await
    };
    // Listed from its first bytes; whoever wants its values is told, and nobody's memory or disk is.
    let bomb = send("npz/bomb/input.npz").await;
    assert_eq!(bomb.status, StatusCode::CREATED, "{}", bomb.text());
    let tensor = format!(
        "/api/v1/sessions/{}/sources/reference/tensors/0",
        bomb.json()["session"].as_str().unwrap()
    );
    let values = server.get(&format!("{tensor}/window")).await;
    assert_eq!(values.code(), "unreadable_tensor");
    assert!(
        values.json()["detail"]
            .as_str()
            .unwrap()
            .contains("unpacks"),
        "{}",
        values.text()
    );
    for path in [
        "corpus/hostile/safetensors/index_traversal.safetensors.index.json",
        "corpus/hostile/onnx/external_traversal.onnx",
    ] {
        let answer = send(path).await;
        // A source that can be read without the file it points at lists what it left out, and why.
        let said = match answer.json()["session"].as_str() {
            Some(session) => server
                .get(&format!(
                    "/api/v1/sessions/{session}/sources/reference/tensors"
                ))
                .await
                .text(),
            None => answer.text(),
        };
        assert!(said.contains("leaves its folder"), "{path}: {said}");
    }
    assert_eq!(server.get("/api/v1/server").await.status, StatusCode::OK);
}

#[tokio::test]
async fn of_two_senders_of_one_file_the_second_is_refused() {
    let server = Server::new();
    let upload = id(&announce(&server, "x", &[("x", 100)]).await);
    let (held, hold) = tokio::sync::oneshot::channel::<()>();
    let slow = stream::once(async move {
        let _ = hold.await;
        Ok::<_, std::io::Error>(Bytes::from(vec![1; 100]))
    });
    let first = put(&server, &upload, 0, 0, Body::from_stream(slow));
    let second = async {
        // The first one has the file as soon as its request is being read.
        loop {
            let answer = put(&server, &upload, 0, 0, Body::empty()).await;
            if answer.code() == "upload_busy" {
                held.send(()).unwrap();
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let (first, ()) = tokio::join!(first, second);
    assert_eq!(
        (first.status, first.json()["received"].as_u64()),
        (StatusCode::OK, Some(100))
    );
}
