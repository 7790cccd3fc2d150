//! `POST /api/v1/uploads` announces files, `PUT /api/v1/uploads/{upload}/files/{file}` sends one as it is, from `Upload-Offset` on;
//! `HEAD` says where to go on after a break.

use super::{At, Body as Json_, blocking};
use crate::{
    app::App,
    problem::{Answer, Problem, no_room},
    uploads::{Announced, Upload, Writing},
};
use axum::{
    Json,
    body::{Body, BodyDataStream},
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;
use utoipa::ToSchema;

/// Files that will be sent: one, or a folder of them.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadRequest {
    /// What the user dropped.
    name: String,
    files: Vec<Announced>,
}

/// How much of a file has arrived.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ReceivedDoc {
    pub received: u64,
    pub bytes: u64,
}

static OFFSET: HeaderName = HeaderName::from_static("upload-offset");
static LENGTH: HeaderName = HeaderName::from_static("upload-length");
/// A sender that is silent for so long has gone.
const SILENCE: Duration = Duration::from_secs(60);
/// The page sends 64 MiB at a time.
const HEARD_OUT: usize = 64 << 20;

/// Every upload
#[utoipa::path(get, path = "/api/v1/uploads", tag = "uploads", responses((status = 200, body = Vec<Upload>)))]
pub async fn list(State(app): State<Arc<App>>) -> Answer<Json<Vec<Upload>>> {
    blocking(move || Ok(Json(app.uploads.list()?))).await
}

/// Announce files that will be sent
#[utoipa::path(post, path = "/api/v1/uploads", tag = "uploads", request_body = UploadRequest,
    responses((status = 201, body = Upload), (status = 413, body = Problem, content_type = "application/problem+json"), (status = 507, body = Problem, content_type = "application/problem+json")))]
pub async fn announce(
    State(app): State<Arc<App>>,
    Json_(request): Json_<UploadRequest>,
) -> Answer<(StatusCode, Json<Upload>)> {
    blocking(move || {
        Ok((
            StatusCode::CREATED,
            Json(
                app.uploads
                    .announce(&app.store, &request.name, request.files)?,
            ),
        ))
    })
    .await
}

/// How far an upload is
#[utoipa::path(get, path = "/api/v1/uploads/{upload}", tag = "uploads", params(("upload" = String, Path)), responses((status = 200, body = Upload)))]
pub async fn get(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Json<Upload>> {
    blocking(move || Ok(Json(app.uploads.get(&id)?))).await
}

/// Cancel an upload, or remove one that no session uses
#[utoipa::path(delete, path = "/api/v1/uploads/{upload}", tag = "uploads", params(("upload" = String, Path)), responses((status = 204)))]
pub async fn delete(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<StatusCode> {
    blocking(move || {
        if app
            .sessions()
            .iter()
            .any(|session| session.record().uploads().contains(&id))
        {
            return Err(
                Problem::conflict("upload_in_use", "a session uses this upload")
                    .hint("delete the session: its uploads go with it"),
            );
        }
        app.uploads.delete(&app.store, &id)?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

fn received(app: &App, id: &str, file: usize) -> Answer<(u64, u64)> {
    let upload = app.uploads.get(id)?;
    let unknown = || {
        Problem::not_found(
            "no_such_file",
            format!("the upload `{}` has no file {file}", upload.name),
        )
    };
    let file = upload.files.get(file).ok_or_else(unknown)?;
    Ok((file.received, file.bytes))
}

/// Where to go on: the headers `Upload-Offset` and `Upload-Length`
#[utoipa::path(head, path = "/api/v1/uploads/{upload}/files/{file}", tag = "uploads", params(("upload" = String, Path), ("file" = usize, Path)),
    responses((status = 200, headers(("upload-offset" = u64), ("upload-length" = u64)))))]
pub async fn offset(
    State(app): State<Arc<App>>,
    At((id, file)): At<(String, usize)>,
) -> Answer<Response> {
    let (received, bytes) = blocking(move || received(&app, &id, file)).await?;
    Ok((
        [
            (OFFSET.clone(), received.to_string()),
            (LENGTH.clone(), bytes.to_string()),
        ],
        (),
    )
        .into_response())
}

/// Send a file, or the rest of it from `Upload-Offset` on; the body is the bytes as they are
#[utoipa::path(put, path = "/api/v1/uploads/{upload}/files/{file}", tag = "uploads",
    params(("upload" = String, Path), ("file" = usize, Path), ("upload-offset" = Option<u64>, Header)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = ReceivedDoc), (status = 409, body = Problem, content_type = "application/problem+json")))]
pub async fn put(
    State(app): State<Arc<App>>,
    At((id, file)): At<(String, usize)>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<ReceivedDoc>> {
    let offset = match headers.get(&OFFSET) {
        None => 0,
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| Problem::bad("bad_offset", "Upload-Offset is not a number"))?,
    };
    // A few pieces may wait while the disk is slow; more would be memory.
    let (send, receive) = mpsc::channel::<Bytes>(32);
    let writer = tokio::task::spawn_blocking(move || write(&app, &id, file, offset, receive));
    let mut pieces = body.into_data_stream();
    let mut cut = None;
    loop {
        match tokio::time::timeout(SILENCE, pieces.next()).await {
            Ok(Some(Ok(piece))) => {
                if send.send(piece).await.is_err() {
                    // The writer has ended: it says why.
                    hear_out(pieces).await;
                    break;
                }
            }
            Ok(Some(Err(error))) => {
                cut = Some(
                    Problem::bad("upload_cut", format!("the file was cut short: {error}"))
                        .hint("what has arrived is kept; go on where HEAD says"),
                );
                break;
            }
            Ok(None) => break,
            Err(_) => {
                let detail = format!("nothing came for {} seconds", SILENCE.as_secs());
                cut = Some(
                    Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", detail)
                        .hint("what has arrived is kept; go on where HEAD says"),
                );
                break;
            }
        }
    }
    drop(send);
    let done = writer.await??;
    match cut {
        Some(problem) => Err(problem),
        None => Ok(Json(done)),
    }
}

/// Which file it was, how far it came, and what can be done.
fn unwritten(place: &Writing<'_>, out: &File, error: &std::io::Error) -> Problem {
    let there = out.metadata().map_or(0, |facts| facts.len());
    let so_far = format!(
        "`{}` has arrived with {there} of {} bytes",
        place.name, place.bytes
    );
    if no_room(error) {
        return Problem::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", format!("{so_far}, then the disk was full"))
            .hint("free some space and resume, what has arrived is kept; or type the path of the file instead of dropping it");
    }
    Problem::internal(format!("{so_far} and cannot be written further: {error}"))
        .hint("what has arrived is kept; go on where HEAD says")
}

/// Takes in what is still being sent, within reason: a client that is not heard out does not hear the answer.
async fn hear_out(mut pieces: BodyDataStream) {
    let mut left = HEARD_OUT;
    while left > 0 {
        match tokio::time::timeout(SILENCE, pieces.next()).await {
            Ok(Some(Ok(piece))) => left = left.saturating_sub(piece.len()),
            _ => break,
        }
    }
}

fn write(
    app: &App,
    id: &str,
    file: usize,
    offset: u64,
    mut pieces: mpsc::Receiver<Bytes>,
) -> Answer<ReceivedDoc> {
    let place = app.uploads.write(id, file)?;
    let mut out = OpenOptions::new().write(true).open(&place.path)?;
    let there = out.metadata()?.len();
    if offset != there {
        let detail = format!("the file was sent from byte {offset} on, {there} have arrived");
        return Err(Problem::conflict("upload_offset", detail).hint("go on where HEAD says"));
    }
    out.seek(SeekFrom::Start(offset))?;
    let mut at = offset;
    while let Some(piece) = pieces.blocking_recv() {
        if at + piece.len() as u64 > place.bytes {
            let detail = format!("more than the {} bytes that were announced", place.bytes);
            return Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "upload_too_large",
                detail,
            ));
        }
        out.write_all(&piece)
            .map_err(|error| unwritten(&place, &out, &error))?;
        at += piece.len() as u64;
    }
    Ok(ReceivedDoc {
        received: at,
        bytes: place.bytes,
    })
}
