//! A comparison to take away: `report.json` (what `diff --json` prints), `report.csv` (one line for each pair), `report.html` (one file that opens
//! anywhere, without this server).

use super::{At, with_session};
use crate::{
    app::App,
    html,
    problem::{Answer, Problem},
    session::Session,
    table,
};
use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use std::sync::Arc;

/// The text of the report: the one on disk, which has everything that was in it.
fn text(app: &App, session: &Session) -> Answer<String> {
    let current = session.compared(app)?;
    if !current.provisional
        && let Some(text) = app.store.report(&session.id)?
    {
        return Ok(text);
    }
    if current.provisional {
        return Err(
            Problem::conflict("not_done", "the comparison is not done yet")
                .hint("wait for it, or cancel it: what is known then stays"),
        );
    }
    Ok(serde_json::to_string(&*current.report)?)
}

fn file(text: String, kind: &'static str, name: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static(name)),
    ];
    (headers, text).into_response()
}

/// The report as `diff --json` prints it
#[utoipa::path(get, path = "/api/v1/sessions/{session}/report.json", tag = "reports", params(("session" = String, Path)),
    responses((status = 200, body = twinscope_report::Comparison)))]
pub async fn json(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Response> {
    with_session(app, id, |app, session| {
        Ok(file(
            text(app, session)?,
            "application/json",
            "attachment; filename=\"report.json\"",
        ))
    })
    .await
}

/// One line for each pair
#[utoipa::path(get, path = "/api/v1/sessions/{session}/report.csv", tag = "reports", params(("session" = String, Path)),
    responses((status = 200, body = String, content_type = "text/csv")))]
pub async fn csv(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Response> {
    with_session(app, id, |app, session| {
        let current = session.compared(app)?;
        Ok(file(
            table::csv(&current.report),
            "text/csv; charset=utf-8",
            "attachment; filename=\"report.csv\"",
        ))
    })
    .await
}

/// One file that opens anywhere
#[utoipa::path(get, path = "/api/v1/sessions/{session}/report.html", tag = "reports", params(("session" = String, Path)),
    responses((status = 200, body = String, content_type = "text/html")))]
pub async fn html(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Response> {
    with_session(app, id, |app, session| {
        let page = html::report_page(&text(app, session)?)?;
        Ok(file(
            page,
            "text/html; charset=utf-8",
            "attachment; filename=\"report.html\"",
        ))
    })
    .await
}
