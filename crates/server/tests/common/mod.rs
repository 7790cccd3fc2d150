//! A server without a socket, in a folder of its own, and files to open in it.
#![allow(dead_code, missing_debug_implementations, unreachable_pub)]

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode, header},
};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;
use tower::ServiceExt;
use twinscope_formats::{Cache, Limits, OpenOptions};
use twinscope_server::{App, Config, Roots, router};

pub struct Server {
    pub dir: TempDir,
    pub app: Arc<App>,
    pub router: Router,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The code of a problem, or the status of anything else.
    pub fn code(&self) -> String {
        if self.status.is_success() {
            self.status.as_str().to_owned()
        } else {
            self.json()["code"].as_str().unwrap_or("?").to_owned()
        }
    }

    pub fn floats(&self) -> Vec<f32> {
        self.bytes
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    }

    pub fn meta(&self) -> Value {
        serde_json::from_str(self.headers["x-tensor-meta"].to_str().unwrap()).unwrap()
    }
}

pub fn config(dir: &Path) -> Config {
    let files = dir.join("files");
    std::fs::create_dir_all(&files).unwrap();
    Config {
        state: dir.join("state"),
        roots: Roots::new([files], []).unwrap(),
        token: None,
        hosts: Vec::new(),
        max_upload: None,
        opening: OpenOptions {
            limits: Limits::default(),
            cache: Arc::new(Cache::new(dir.join("cache"), 1 << 30)),
            raw: None,
        },
        comparisons: 2,
    }
}

impl Server {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        change(&mut config);
        let app = App::new(config).unwrap();
        Self {
            dir,
            router: router(app.clone()),
            app,
        }
    }

    /// The same folder, another process' worth of memory.
    pub fn restarted(self) -> Self {
        let Self {
            dir,
            app,
            router: old,
        } = self;
        drop((app, old));
        let app = App::new(config(dir.path())).unwrap();
        Self {
            dir,
            router: router(app.clone()),
            app,
        }
    }

    pub fn file(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.path().join("files").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX)
            .await
            .unwrap()
            .to_vec();
        Answer {
            status: parts.status,
            headers: parts.headers,
            bytes,
        }
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path.replace(' ', "%20"))
            .header(header::HOST, "localhost:5000");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        self.send(
            request
                .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
                .unwrap(),
        )
        .await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Opens two files and waits until they are compared; gives the session's path.
    pub async fn compared(&self, reference: &str, candidate: &str) -> String {
        let answer = self
            .post(
                "/api/v1/open",
                json!({"reference": {"path": reference}, "candidate": {"path": candidate}}),
            )
            .await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        let session = format!(
            "/api/v1/sessions/{}",
            answer.json()["session"].as_str().unwrap()
        );
        self.wait(&session).await;
        session
    }

    /// Until nothing goes on in a session.
    pub async fn wait(&self, session: &str) -> Value {
        loop {
            let document = self.get(session).await.json();
            if !["queued", "running"].contains(&document["state"].as_str().unwrap()) {
                return document;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Tensors of f32, as a safetensors file.
pub fn safetensors(tensors: &[(&str, &[u64], &[f32])]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        header.insert(
            (*name).to_owned(),
            json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let header = Value::Object(header).to_string();
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        &data,
    ]
    .concat()
}

/// A reference and a candidate: one pair identical, one transposed, one with a NaN, one left over on each side.
pub fn two_runs(server: &Server) {
    let counting: Vec<f32> = (0..24).map(|i| i as f32 - 7.5).collect();
    let transposed: Vec<f32> = (0..24).map(|i| counting[(i % 4) * 6 + i / 4]).collect();
    let mut broken = counting.clone();
    (broken[5], broken[17]) = (f32::NAN, 100.0);
    server.file(
        "a.safetensors",
        &safetensors(&[
            ("0_query", &[2, 3, 4], &counting),
            ("1_query", &[4, 6], &counting),
            ("2_query", &[2, 3, 4], &counting),
            ("lm_head.bias", &[3], &[1.0, 2.0, 3.0]),
        ]),
    );
    server.file(
        "b.safetensors",
        &safetensors(&[
            ("0_query", &[2, 3, 4], &counting),
            ("1_query", &[6, 4], &transposed),
            ("2_query", &[2, 3, 4], &broken),
            ("zzz", &[5], &[1.0; 5]),
        ]),
    );
}
