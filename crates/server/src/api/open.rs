//! `POST /api/v1/open`: two sources, or one, become a session. `POST /api/v1/import`: so does a report without its data.

use super::{Body, blocking, raw_body, sessions::SessionDoc};
use crate::{
    app::{App, now, random_id},
    comparison, edits,
    events::State as Doing,
    html,
    problem::{Answer, Problem},
    session::{Current, Record, Session},
    sources::{Opened, SourceRecord, fingerprint},
};
use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
};
use serde::Deserialize;
use std::{path::Path, sync::Arc};
use twinscope_compare::Settings;
use twinscope_report::{Comparison, Headline, SCHEMA};
use utoipa::ToSchema;

/// Where a source is: a path below a root, or an upload.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    upload: Option<String>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenRequest {
    reference: SourceSpec,
    /// Without it one source is explored by itself.
    #[serde(default)]
    candidate: Option<SourceSpec>,
    /// What differs from the defaults.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    settings: Option<Settings>,
    #[serde(default)]
    name: Option<String>,
    /// Compare at once. By default two sources are compared and one is not.
    #[serde(default)]
    compare: Option<bool>,
}

/// Open two sources to compare them, or one to explore it
#[utoipa::path(post, path = "/api/v1/open", tag = "opening", request_body = OpenRequest,
    responses((status = 201, body = SessionDoc), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn open(
    State(app): State<Arc<App>>,
    Body(request): Body<OpenRequest>,
) -> Answer<(StatusCode, Json<SessionDoc>)> {
    blocking(move || {
        let session = open_session(&app, request)?;
        Ok((StatusCode::CREATED, Json(SessionDoc::of(&app, &session)?)))
    })
    .await
}

fn open_session(app: &Arc<App>, request: OpenRequest) -> Answer<Arc<Session>> {
    let settings = request.settings.unwrap_or_default();
    edits::check(&settings, &[])?;
    let reference = locate(app, &request.reference)?;
    let candidate = request
        .candidate
        .as_ref()
        .map(|spec| locate(app, spec))
        .transpose()?;
    begin(
        app,
        reference,
        candidate,
        settings,
        request.name,
        request.compare,
    )
}

/// What the command line asks for: paths as they are, settings with programs too.
pub fn open_paths(
    app: &Arc<App>,
    reference: &Path,
    candidate: Option<&Path>,
    settings: Settings,
) -> Answer<String> {
    let record = |path: &Path| -> Answer<SourceRecord> {
        let real = path
            .canonicalize()
            .map_err(|source| twinscope_formats::OpenError::Io {
                path: path.to_owned(),
                source,
            })?;
        Ok(SourceRecord {
            name: path.display().to_string(),
            fingerprint: Some(fingerprint(&real)?),
            path: real,
            upload: None,
        })
    };
    let candidate = candidate.map(record).transpose()?;
    Ok(
        begin(app, record(reference)?, candidate, settings, None, None)?
            .id
            .clone(),
    )
}

fn locate(app: &App, spec: &SourceSpec) -> Answer<SourceRecord> {
    let (path, name) = match (&spec.path, &spec.upload) {
        (Some(path), None) => (app.config.roots.allowed(path)?, path.trim().to_owned()),
        (None, Some(upload)) => app.uploads.source(upload)?,
        _ => {
            return Err(Problem::bad(
                "bad_source",
                "a source is a path or an upload: one of them",
            ));
        }
    };
    Ok(SourceRecord {
        fingerprint: Some(fingerprint(&path)?),
        path,
        name,
        upload: spec.upload.clone(),
    })
}

/// Both are opened before there is a session: an unreadable file is an answer, not a failed session.
fn begin(
    app: &Arc<App>,
    reference: SourceRecord,
    candidate: Option<SourceRecord>,
    settings: Settings,
    name: Option<String>,
    compare: Option<bool>,
) -> Answer<Arc<Session>> {
    for source in [Some(&reference), candidate.as_ref()].into_iter().flatten() {
        let opened = Opened::open(source, &app.config.opening)?;
        let listing = opened.source.listing();
        if listing.tensors.is_empty() && listing.values.is_empty() {
            let why = listing
                .skipped
                .first()
                .map_or_else(String::new, |skipped| format!(": {}", skipped.reason));
            return Err(Problem::unprocessable(
                "no_tensors",
                format!("`{}` holds no tensor{why}", source.name),
            ));
        }
    }
    let last = |source: &SourceRecord| {
        source
            .name
            .trim_end_matches('/')
            .rsplit('/')
            .next()
            .unwrap_or(&source.name)
            .to_owned()
    };
    let called = match &candidate {
        Some(candidate) => format!("{} / {}", last(&reference), last(candidate)),
        None => last(&reference),
    };
    let compare = compare.unwrap_or(candidate.is_some());
    let record = Record {
        name: name
            .filter(|name| !name.trim().is_empty())
            .unwrap_or(called),
        notes: String::new(),
        created: now(),
        updated: now(),
        reference: Some(reference),
        candidate,
        settings,
        order: None,
        revision: 1,
        compared: 0,
        state: Doing::Idle,
        problem: None,
        headline: None,
    };
    let session = Arc::new(Session::new(random_id(16)?, record));
    session.save(app)?;
    app.insert(session.clone());
    if compare {
        comparison::start(app, &session)?;
    }
    Ok(session)
}

/// Read an exported report (JSON, or the HTML file it is in) without its data
#[utoipa::path(post, path = "/api/v1/import", tag = "opening", request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 201, body = SessionDoc), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn import(
    State(app): State<Arc<App>>,
    request: Request,
) -> Answer<(StatusCode, Json<SessionDoc>)> {
    let bytes = raw_body(request, &app).await?;
    blocking(move || {
        let session = import_report(&app, &bytes)?;
        Ok((StatusCode::CREATED, Json(SessionDoc::of(&app, &session)?)))
    })
    .await
}

fn import_report(app: &App, bytes: &[u8]) -> Answer<Arc<Session>> {
    let wrong = |detail: String| {
        Problem::unprocessable("not_a_report", detail).hint(
            "a report is what `twinscope diff --json` prints, or the page exports as JSON or HTML",
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("this is not text".to_owned()))?;
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let embedded;
    let json = if text.starts_with('<') {
        embedded = html::report_in(text)
            .ok_or_else(|| wrong("this HTML file holds no report".to_owned()))?;
        embedded.as_str()
    } else {
        text
    };
    let report: Comparison =
        serde_json::from_str(json).map_err(|error| wrong(format!("this is no report: {error}")))?;
    if report.schema != SCHEMA {
        return Err(wrong(format!(
            "this report has schema {}, readable is {SCHEMA}",
            report.schema
        )));
    }
    let record = Record {
        name: format!("{} / {}", report.reference, report.candidate),
        notes: String::new(),
        created: now(),
        updated: now(),
        reference: None,
        candidate: None,
        settings: Settings::default(),
        order: None,
        revision: 1,
        compared: 1,
        state: Doing::Done,
        problem: None,
        headline: Some(Headline::of(&report)),
    };
    let (document, updated) = (serde_json::to_string(&record)?, record.updated);
    let session = Arc::new(Session::new(random_id(16)?, record));
    app.store
        .save_report(&session.id, &document, updated, Some(json))?;
    session.set_current(Current {
        revision: 1,
        provisional: false,
        report: Arc::new(report),
        measured: Arc::default(),
    });
    app.insert(session.clone());
    Ok(session)
}
