//! `/api/v1/sessions`: what there is, what each came to; rename, annotate, compare, cancel, delete.

use super::{At, Body, blocking, with_session};
use crate::{
    app::App,
    comparison,
    events::{Progress, State as Doing, What},
    problem::{Answer, Problem},
    session::Session,
    sources::{Opened, SourceRecord},
};
use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use twinscope_report::{Finding, Headline};
use utoipa::ToSchema;

/// One side of a session.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SourceDoc {
    /// What the user called it.
    pub name: String,
    pub path: String,
    #[schema(required = true)]
    pub upload: Option<String>,
    /// Bytes that its upload takes on disk.
    #[schema(required = true)]
    pub upload_bytes: Option<u64>,
    /// The file is no longer what it was when the session was made.
    pub changed: bool,
    /// Why it cannot be opened now.
    #[schema(required = true)]
    pub problem: Option<Problem>,
    #[schema(required = true)]
    pub format: Option<String>,
    #[schema(required = true)]
    pub tensors: Option<usize>,
    #[schema(required = true)]
    pub bytes: Option<u64>,
    pub skipped: usize,
    pub findings: Vec<Finding>,
}

/// One session in the list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SessionRow {
    pub session: String,
    pub name: String,
    pub notes: String,
    pub created: i64,
    pub updated: i64,
    #[schema(required = true)]
    pub reference: Option<String>,
    #[schema(required = true)]
    pub candidate: Option<String>,
    pub state: Doing,
    #[schema(required = true)]
    pub headline: Option<Headline>,
    /// Bytes that its uploads take on disk.
    pub upload_bytes: u64,
    /// An imported report, without its data.
    pub imported: bool,
    pub progress: Progress,
}

/// One session, with its sources looked at.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SessionDoc {
    #[serde(flatten)]
    pub row: SessionRow,
    /// Counts changes of what is paired with what.
    pub revision: u64,
    #[schema(required = true)]
    pub problem: Option<Problem>,
    /// `compare`, `explore` or `imported`
    pub mode: String,
    #[schema(required = true)]
    pub reference_source: Option<SourceDoc>,
    #[schema(required = true)]
    pub candidate_source: Option<SourceDoc>,
    /// The order of the pairs is pinned.
    pub pinned: bool,
    /// What undo would take back, and redo do again.
    #[schema(required = true)]
    pub undo: Option<String>,
    #[schema(required = true)]
    pub redo: Option<String>,
    #[schema(value_type = Object)]
    pub settings: twinscope_compare::Settings,
    /// The same on the command line.
    #[schema(required = true)]
    pub command: Option<String>,
}

impl SessionRow {
    pub fn of(app: &App, session: &Session) -> Self {
        let progress = session.progress();
        let record = session.record();
        let name =
            |source: &Option<SourceRecord>| source.as_ref().map(|source| source.name.clone());
        Self {
            session: session.id.clone(),
            name: record.name.clone(),
            notes: record.notes.clone(),
            created: record.created,
            updated: record.updated,
            reference: name(&record.reference),
            candidate: name(&record.candidate),
            state: record.state,
            headline: record.headline.clone(),
            upload_bytes: record
                .uploads()
                .iter()
                .map(|upload| app.uploads.size(upload))
                .sum(),
            imported: record.is_imported(),
            progress,
        }
    }
}

impl SessionDoc {
    pub fn of(app: &App, session: &Session) -> Answer<Self> {
        let row = SessionRow::of(app, session);
        let record = session.record().clone();
        // A source that cannot be opened is a fact about it, not the end of the session.
        let sources = if record.is_imported() {
            None
        } else {
            Some(session.sources(app))
        };
        let opened = |candidate: bool| match &sources {
            Some(Ok(sources)) if candidate => Ok(sources.candidate.as_ref()),
            Some(Ok(sources)) => Ok(Some(&sources.reference)),
            Some(Err(problem)) => Err(problem.clone()),
            None => Ok(None),
        };
        let edits = app.store.edits(&session.id)?;
        let label = |document: &String| {
            serde_json::from_str::<crate::edits::Change>(document)
                .ok()
                .map(|change| change.label().to_owned())
        };
        Ok(Self {
            revision: record.revision,
            problem: record.problem.clone(),
            mode: match (&record.reference, &record.candidate) {
                (None, _) => "imported",
                (_, None) => "explore",
                (_, Some(_)) => "compare",
            }
            .to_owned(),
            reference_source: record
                .reference
                .as_ref()
                .map(|source| SourceDoc::of(app, source, opened(false))),
            candidate_source: record
                .candidate
                .as_ref()
                .map(|source| SourceDoc::of(app, source, opened(true))),
            pinned: record.order.is_some(),
            undo: edits
                .iter()
                .rev()
                .find(|edit| !edit.undone)
                .and_then(|edit| label(&edit.document)),
            redo: edits
                .iter()
                .find(|edit| edit.undone)
                .and_then(|edit| label(&edit.document)),
            command: command(&record.reference, &record.candidate),
            settings: record.settings,
            row,
        })
    }
}

impl SourceDoc {
    fn of(app: &App, source: &SourceRecord, opened: Answer<Option<&Opened>>) -> Self {
        let (opened, problem) = match opened {
            Ok(opened) => (opened, None),
            Err(problem) => (None, Some(problem)),
        };
        let listing = opened.map(|opened| opened.source.listing());
        let findings = listing.map(|listing| {
            let finding = |finding: &twinscope_tensor::Finding| Finding {
                side: String::new(),
                kind: finding.kind.name().to_owned(),
                text: finding.text.clone(),
            };
            listing.findings.iter().map(finding).collect()
        });
        Self {
            name: source.name.clone(),
            path: source.path.display().to_string(),
            upload: source.upload.clone(),
            upload_bytes: source
                .upload
                .as_ref()
                .map(|upload| app.uploads.size(upload)),
            changed: opened.is_some_and(|opened| opened.changed),
            problem,
            format: listing.map(|listing| listing.format.to_owned()),
            tensors: listing.map(|listing| listing.tensors.len()),
            bytes: listing.map(|listing| {
                listing
                    .tensors
                    .iter()
                    .filter_map(|tensor| tensor.bytes)
                    .sum()
            }),
            skipped: listing.map_or(0, |listing| listing.skipped.len()),
            findings: findings.unwrap_or_default(),
        }
    }
}

/// For a shell: quoted, whatever the path holds.
fn command(reference: &Option<SourceRecord>, candidate: &Option<SourceRecord>) -> Option<String> {
    let quoted = |source: &SourceRecord| {
        let path = source.path.display().to_string();
        let plain = path
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/._-+=:@%".contains(c));
        if plain {
            path
        } else {
            format!("'{}'", path.replace('\'', "'\\''"))
        }
    };
    let reference = quoted(reference.as_ref()?);
    Some(match candidate {
        Some(candidate) => format!("twinscope diff {reference} {}", quoted(candidate)),
        None => format!("twinscope diff {reference}"),
    })
}

/// Every session, the latest first
#[utoipa::path(get, path = "/api/v1/sessions", tag = "sessions", responses((status = 200, body = Vec<SessionRow>)))]
pub async fn list(State(app): State<Arc<App>>) -> Answer<Json<Vec<SessionRow>>> {
    blocking(move || {
        Ok(Json(
            app.sessions()
                .iter()
                .map(|session| SessionRow::of(&app, session))
                .collect(),
        ))
    })
    .await
}

/// One session: its headline, its sources, what can be undone
#[utoipa::path(get, path = "/api/v1/sessions/{session}", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = SessionDoc), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub async fn get(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Json<SessionDoc>> {
    with_session(app, id, |app, session| {
        Ok(Json(SessionDoc::of(app, session)?))
    })
    .await
}

/// What is to change; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionChange {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    notes: Option<String>,
}

/// Rename a session, or write notes
#[utoipa::path(patch, path = "/api/v1/sessions/{session}", tag = "sessions", params(("session" = String, Path)), request_body = SessionChange,
    responses((status = 200, body = SessionDoc)))]
pub async fn change(
    State(app): State<Arc<App>>,
    At(id): At<String>,
    Body(change): Body<SessionChange>,
) -> Answer<Json<SessionDoc>> {
    with_session(app, id, move |app, session| {
        if change
            .name
            .as_ref()
            .is_some_and(|name| name.trim().is_empty() || name.len() > 1000)
        {
            return Err(Problem::bad("bad_name", "a name has 1 to 1000 bytes"));
        }
        session.update(app, |record| {
            record.name = change.name.unwrap_or_else(|| record.name.clone());
            record.notes = change.notes.unwrap_or_else(|| record.notes.clone());
        })?;
        app.events.push(
            &session.id,
            What::Changed {
                revision: session.record().revision,
            },
        );
        Ok(Json(SessionDoc::of(app, session)?))
    })
    .await
}

/// Delete a session and its uploads
#[utoipa::path(delete, path = "/api/v1/sessions/{session}", tag = "sessions", params(("session" = String, Path)), responses((status = 204)))]
pub async fn delete(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<StatusCode> {
    blocking(move || app.delete(&id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Compare, again or for the first time; of one source every tensor with every other
#[utoipa::path(post, path = "/api/v1/sessions/{session}/comparison", tag = "sessions", params(("session" = String, Path)),
    responses((status = 202, body = SessionDoc)))]
pub async fn compare(
    State(app): State<Arc<App>>,
    At(id): At<String>,
) -> Answer<(StatusCode, Json<SessionDoc>)> {
    with_session(app, id, |app, session| {
        comparison::start(app, session)?;
        Ok((StatusCode::ACCEPTED, Json(SessionDoc::of(app, session)?)))
    })
    .await
}

/// Stop comparing; what is known by then stays
#[utoipa::path(delete, path = "/api/v1/sessions/{session}/comparison", tag = "sessions", params(("session" = String, Path)), responses((status = 202)))]
pub async fn cancel(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<StatusCode> {
    with_session(app, id, |_, session| {
        session.cancel();
        Ok(StatusCode::ACCEPTED)
    })
    .await
}
