//! What the user changes: `POST /sessions/{session}/edits`, undo and redo, settings and pairings as files, and a look at what rules would pair.

use super::{At, Body, with_session};
use crate::{
    app::App,
    comparison,
    edits::{Change, Edit, check},
    events::State as Doing,
    problem::{Answer, Problem},
    session::Session,
};
use axum::{
    Json,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};
use twinscope_compare::{
    Settings, Side, mapfile, pairing::Leftover as Left, plan, settings::MapEntry,
};
use twinscope_report::Leftover;
use utoipa::ToSchema;

use super::sessions::SessionDoc;

/// One edit of the log.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EditDoc {
    pub seq: i64,
    pub label: String,
    pub undone: bool,
}

/// Every edit, the first first
#[utoipa::path(get, path = "/api/v1/sessions/{session}/edits", tag = "edits", params(("session" = String, Path)), responses((status = 200, body = Vec<EditDoc>)))]
pub async fn list(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Json<Vec<EditDoc>>> {
    with_session(app, id, |app, session| {
        let edits = app.store.edits(&session.id)?;
        let doc = |edit: crate::store::Logged| {
            let label = serde_json::from_str::<Change>(&edit.document)
                .map_or_else(|_| String::new(), |change| change.label().to_owned());
            EditDoc {
                seq: edit.seq,
                label,
                undone: edit.undone,
            }
        };
        Ok(Json(edits.into_iter().map(doc).collect()))
    })
    .await
}

/// Change what is paired, how it lies, or the order it is shown in
#[utoipa::path(post, path = "/api/v1/sessions/{session}/edits", tag = "edits", params(("session" = String, Path)), request_body = Edit,
    responses((status = 200, body = SessionDoc)))]
pub async fn edit(
    State(app): State<Arc<App>>,
    At(id): At<String>,
    Body(edit): Body<Edit>,
) -> Answer<Json<SessionDoc>> {
    with_session(app, id, move |app, session| {
        try_out(app, session, &edit)?;
        let anew = session.edit(app, &edit)?;
        again(app, session, anew)
    })
    .await
}

/// A pairing that cannot be made is refused before it is saved: names that do not exist, steps that do not fit.
fn try_out(app: &App, session: &Session, edit: &Edit) -> Answer<()> {
    if session.record().is_imported() || session.record().candidate.is_none() {
        return Ok(());
    }
    let current = session.current(app)?;
    let change = edit.change(
        &session.record(),
        current.as_ref().map(|current| &*current.report),
    )?;
    let Change::Settings { after, .. } = &change else {
        return Ok(());
    };
    let sources = session.sources(app)?;
    let (left, right) = (
        Side::new(&*sources.reference.source),
        Side::new(&*sources.other().source),
    );
    // Only what the user decided by hand: the other rules cannot fail on names.
    let by_hand = Settings {
        rules: Vec::new(),
        ..(**after).clone()
    };
    plan::plan(&left, &right, &by_hand)?;
    if let Edit::Layout {
        name,
        steps: Some(steps),
    } = edit
        && let Some(pair) = current.as_ref().and_then(|current| {
            current
                .report
                .pairs
                .iter()
                .find(|pair| pair.reference.all().first() == Some(name))
        })
    {
        let steps = twinscope_compare::layout::parse_steps(steps)
            .map_err(|error| Problem::bad("bad_layout", error.to_string()))?;
        let views = |opened: &crate::sources::Opened, names: &[String]| {
            names
                .iter()
                .map(|name| opened.view(name))
                .collect::<Answer<Vec<_>>>()
        };
        twinscope_compare::layout::apply(
            &steps,
            &views(&sources.reference, pair.reference.all())?,
            &views(sources.other(), pair.candidate.all())?,
        )?;
    }
    Ok(())
}

/// Compares again where an edit changed what is compared.
fn again(app: &Arc<App>, session: &Arc<Session>, anew: bool) -> Answer<Json<SessionDoc>> {
    // One source that was never compared with itself is not compared because of an edit.
    let idle = session.record().state == Doing::Idle;
    if anew && !idle {
        comparison::start(app, session)?;
    }
    Ok(Json(SessionDoc::of(app, session)?))
}

/// Take the last edit back
#[utoipa::path(post, path = "/api/v1/sessions/{session}/undo", tag = "edits", params(("session" = String, Path)), responses((status = 200, body = SessionDoc)))]
pub async fn undo(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Json<SessionDoc>> {
    with_session(app, id, |app, session| {
        let anew = session.step(app, true)?;
        again(app, session, anew)
    })
    .await
}

/// Do again what was taken back last
#[utoipa::path(post, path = "/api/v1/sessions/{session}/redo", tag = "edits", params(("session" = String, Path)), responses((status = 200, body = SessionDoc)))]
pub async fn redo(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Json<SessionDoc>> {
    with_session(app, id, |app, session| {
        let anew = session.step(app, false)?;
        again(app, session, anew)
    })
    .await
}

/// The settings of a session, defaults included
#[utoipa::path(get, path = "/api/v1/sessions/{session}/settings", tag = "edits", params(("session" = String, Path)), responses((status = 200, body = Object)))]
pub async fn settings(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Json<Settings>> {
    with_session(app, id, |_, session| {
        Ok(Json(session.record().settings.clone()))
    })
    .await
}

/// The same as the file that `--config` reads
#[utoipa::path(get, path = "/api/v1/sessions/{session}/settings.toml", tag = "edits", params(("session" = String, Path)),
    responses((status = 200, body = String, content_type = "application/toml")))]
pub async fn settings_toml(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Response> {
    with_session(app, id, |_, session| {
        let text = session.record().settings.to_toml()?;
        Ok(file(text, "application/toml", "twinscope.toml"))
    })
    .await
}

fn file(text: String, kind: &'static str, name: &str) -> Response {
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""))
        .unwrap_or(HeaderValue::from_static("attachment"));
    (
        [
            (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
            (header::CONTENT_DISPOSITION, disposition),
        ],
        text,
    )
        .into_response()
}

/// What is paired with what, as `--map` reads it
#[utoipa::path(get, path = "/api/v1/sessions/{session}/map.json", tag = "edits", params(("session" = String, Path)),
    responses((status = 200, body = String, content_type = "application/json")))]
pub async fn map_json(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Response> {
    map(
        app,
        id,
        mapfile::MapFormat::Json,
        "application/json",
        "pairs.json",
    )
    .await
}

/// The same as CSV
#[utoipa::path(get, path = "/api/v1/sessions/{session}/map.csv", tag = "edits", params(("session" = String, Path)),
    responses((status = 200, body = String, content_type = "text/csv")))]
pub async fn map_csv(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Response> {
    map(
        app,
        id,
        mapfile::MapFormat::Csv,
        "text/csv; charset=utf-8",
        "pairs.csv",
    )
    .await
}

async fn map(
    app: Arc<App>,
    id: String,
    format: mapfile::MapFormat,
    kind: &'static str,
    name: &'static str,
) -> Answer<Response> {
    with_session(app, id, move |app, session| {
        let report = session.compared(app)?.report;
        let entries: Vec<MapEntry> = report
            .pairs
            .iter()
            .map(|pair| MapEntry {
                reference: pair.reference.clone(),
                candidate: pair.candidate.clone(),
            })
            .collect();
        Ok(file(mapfile::write(&entries, format), kind, name))
    })
    .await
}

/// Settings to try.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewRequest {
    #[schema(value_type = Object)]
    settings: Settings,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PreviewPair {
    pub reference: Vec<String>,
    pub candidate: Vec<String>,
    pub rule: String,
    pub score: f64,
}

/// What settings would pair. Nothing is measured or saved.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PreviewDoc {
    /// Pairs of each rule.
    pub rules: BTreeMap<String, usize>,
    pub pairs: Vec<PreviewPair>,
    pub only_reference: Vec<Leftover>,
    pub only_candidate: Vec<Leftover>,
    pub layer_offset: i64,
}

/// What other rules, patterns or thresholds would pair
#[utoipa::path(post, path = "/api/v1/sessions/{session}/preview", tag = "edits", params(("session" = String, Path)), request_body = PreviewRequest,
    responses((status = 200, body = PreviewDoc)))]
pub async fn preview(
    State(app): State<Arc<App>>,
    At(id): At<String>,
    Body(request): Body<PreviewRequest>,
) -> Answer<Json<PreviewDoc>> {
    with_session(app, id, move |app, session| {
        check(&request.settings, &session.record().settings.plugins)?;
        let sources = session.sources(app)?;
        let candidate = sources.candidate.as_ref().ok_or_else(|| {
            Problem::conflict("one_source", "one source by itself has no pairs to preview")
        })?;
        let (left, right) = (
            Side::new(&*sources.reference.source),
            Side::new(&*candidate.source),
        );
        let found = app
            .answers
            .install(|| plan::plan(&left, &right, &request.settings))?
            .pairing;
        let names = |side: &Side<'_>, items: &[usize]| -> Vec<String> {
            items
                .iter()
                .map(|item| side.items()[*item].name.clone())
                .collect()
        };
        let leftovers = |left: &[Left], side: &Side<'_>, other: &Side<'_>| -> Vec<Leftover> {
            left.iter()
                .map(|leftover| Leftover {
                    name: side.items()[leftover.item].name.clone(),
                    suggestion: leftover
                        .suggestion
                        .map(|item| other.items()[item].name.clone()),
                    score: leftover.score,
                })
                .collect()
        };
        let mut rules = BTreeMap::new();
        for pair in &found.pairs {
            *rules.entry(pair.rule.name().to_owned()).or_default() += 1;
        }
        Ok(Json(PreviewDoc {
            rules,
            pairs: found
                .pairs
                .iter()
                .map(|pair| PreviewPair {
                    reference: names(&left, &pair.reference),
                    candidate: names(&right, &pair.candidate),
                    rule: pair.rule.name().to_owned(),
                    score: pair.score,
                })
                .collect(),
            only_reference: leftovers(&found.only_reference, &left, &right),
            only_candidate: leftovers(&found.only_candidate, &right, &left),
            layer_offset: found.layer_offset,
        }))
    })
    .await
}
