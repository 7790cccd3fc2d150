//! What the server is, and what may be opened: `GET /api/v1/server`, `GET /api/v1/paths?typed=runs/a`.

use super::{Ask, blocking};
use crate::{app::App, problem::Answer, roots::Completion};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// What this server is and allows.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ServerDoc {
    pub version: String,
    /// Folders below which paths may be opened.
    pub roots: Vec<String>,
    #[schema(required = true)]
    pub max_upload: Option<u64>,
    /// Left on the disk where uploads go.
    pub free_bytes: u64,
    /// Where sessions and uploads are kept.
    pub state: String,
    /// Comparisons at the same time.
    pub comparisons: usize,
    /// Every rule that pairs tensors, in the order they are tried by default.
    pub rules: Vec<String>,
    /// A session that the command line asked for, to be shown at once.
    #[schema(required = true)]
    pub session: Option<String>,
}

/// What the server is and allows
#[utoipa::path(get, path = "/api/v1/server", tag = "server", responses((status = 200, body = ServerDoc)))]
pub async fn server(State(app): State<Arc<App>>) -> Answer<Json<ServerDoc>> {
    blocking(move || {
        Ok(Json(ServerDoc {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            roots: app.config.roots.folders().collect(),
            max_upload: app.config.max_upload,
            free_bytes: crate::uploads::free_bytes(&app.config.state)?,
            state: app.config.state.display().to_string(),
            comparisons: app.config.comparisons,
            rules: twinscope_compare::Settings::default()
                .rules
                .iter()
                .map(|rule| rule.name().to_owned())
                .collect(),
            session: app.first(),
        }))
    })
    .await
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Typed {
    /// What has been typed so far; relative paths begin in the first root.
    #[serde(default)]
    typed: String,
}

/// What a typed path may go on with
#[utoipa::path(get, path = "/api/v1/paths", tag = "opening", params(Typed), responses((status = 200, body = Vec<Completion>)))]
pub async fn complete(
    State(app): State<Arc<App>>,
    Ask(query): Ask<Typed>,
) -> Answer<Json<Vec<Completion>>> {
    blocking(move || Ok(Json(app.config.roots.complete(&query.typed)?))).await
}
