//! The page, as it was built into the binary: files of `ui-dist/`, packed ones chosen by what the browser takes.

use axum::{
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};
use std::{collections::HashMap, sync::LazyLock};

static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

struct Asset {
    bytes: &'static [u8],
    etag: String,
}

static ASSETS: LazyLock<HashMap<&'static str, Asset>> = LazyLock::new(|| {
    let asset = |(name, bytes): &(&'static str, &'static [u8])| {
        let digest = Sha256::digest(bytes);
        let etag = digest
            .iter()
            .take(16)
            .fold(String::from("\""), |text, byte| format!("{text}{byte:02x}"))
            + "\"";
        (*name, Asset { bytes, etag })
    };
    FILES.iter().map(asset).collect()
});

const NO_PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>twinscope</title>\
    <h1>This twinscope was built without its page</h1><p>Run <code>make ui</code>, then build again. \
    The API works: see <a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a>.</p>";

/// A file of the page, when it was built in.
pub(crate) fn file(name: &str) -> Option<&'static [u8]> {
    ASSETS.get(name).map(|asset| asset.bytes)
}

/// Any path that is no endpoint: a file of the page or, for a path without an extension, the page itself, which reads the path.
pub(crate) async fn serve(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if method != Method::GET && method != Method::HEAD {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let path = uri.path().trim_start_matches('/');
    let last = path.rsplit('/').next().unwrap_or_default();
    let name = if path.is_empty() || !last.contains('.') {
        "index.html"
    } else {
        path
    };
    if ASSETS.contains_key(name) {
        return asset(name, &headers);
    }
    match name {
        "index.html" => (
            StatusCode::OK,
            [(header::CONTENT_TYPE, "text/html; charset=utf-8")],
            NO_PAGE,
        )
            .into_response(),
        _ => (
            StatusCode::NOT_FOUND,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            "there is no such file",
        )
            .into_response(),
    }
}

fn asset(name: &str, headers: &HeaderMap) -> Response {
    let takes_brotli = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            coding.split(';').next().map(str::trim) == Some("br")
                && !coding.contains("q=0,")
                && !coding.trim_end().ends_with("q=0")
        });
    let packed = takes_brotli
        .then(|| ASSETS.get(format!("{name}.br").as_str()))
        .flatten();
    let Some(asset) = packed.or_else(|| ASSETS.get(name)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut response = match headers
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
    {
        Some(known)
            if known
                .split(',')
                .any(|etag| etag.trim().trim_start_matches("W/") == asset.etag) =>
        {
            StatusCode::NOT_MODIFIED.into_response()
        }
        _ => asset.bytes.into_response(),
    };
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(name)));
    out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    // Loopback is free: the browser asks each time and is told that nothing changed.
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(etag) = HeaderValue::from_str(&asset.etag) {
        out.insert(header::ETAG, etag);
    }
    if packed.is_some() {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("br"));
    }
    response
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" | "webmanifest" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
