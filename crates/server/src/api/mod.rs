//! `/api/v1`: one file for each kind of thing that can be asked for.

pub mod edits;
pub mod events;
pub mod export;
pub mod open;
pub mod pairs;
pub mod paths;
pub mod reports;
pub mod sessions;
pub mod tensors;
pub mod uploads;
pub mod window;

use crate::{
    app::App,
    problem::{Answer, Problem},
    session::Session,
};
use axum::{
    Router,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{StatusCode, request::Parts},
};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "twinscope",
        description = "Everything the page does. Errors are problem documents (RFC 9457) with a stable `code`."
    ),
    components(schemas(
        twinscope_report::Comparison,
        crate::events::Event,
        crate::problem::Problem,
        window::WindowMeta,
        sessions::SessionDoc
    ))
)]
struct Description;

/// Bytes of a request that is not an upload: a map of a hundred thousand pairs, or a report of ten thousand.
const BODY: usize = 256 << 20;

fn described() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(paths::server))
        .routes(routes!(paths::complete))
        .routes(routes!(open::open))
        .routes(routes!(open::import))
        .routes(routes!(events::get))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::get, sessions::change, sessions::delete))
        .routes(routes!(sessions::compare, sessions::cancel))
        .routes(routes!(edits::list, edits::edit))
        .routes(routes!(edits::undo))
        .routes(routes!(edits::redo))
        .routes(routes!(edits::settings))
        .routes(routes!(edits::settings_toml))
        .routes(routes!(edits::map_json))
        .routes(routes!(edits::map_csv))
        .routes(routes!(edits::preview))
        .routes(routes!(pairs::list))
        .routes(routes!(pairs::get))
        .routes(routes!(pairs::profile))
        .routes(routes!(pairs::layouts))
        .routes(routes!(window::pair_window))
        .routes(routes!(window::tensor_window))
        .routes(routes!(window::pair_cells))
        .routes(routes!(window::tensor_cells))
        .routes(routes!(tensors::list))
        .routes(routes!(tensors::stats))
        .routes(routes!(tensors::pair_histogram))
        .routes(routes!(tensors::tensor_histogram))
        .routes(routes!(tensors::pair_search))
        .routes(routes!(tensors::tensor_search))
        .routes(routes!(export::pair_npy))
        .routes(routes!(export::tensor_npy))
        .routes(routes!(export::pair_csv))
        .routes(routes!(export::tensor_csv))
        .routes(routes!(reports::json))
        .routes(routes!(reports::csv))
        .routes(routes!(reports::html))
        .routes(routes!(uploads::list, uploads::announce))
        .routes(routes!(uploads::get, uploads::delete))
        .routes(routes!(uploads::offset, uploads::put))
}

/// The description of the API, for programs and for the TypeScript types.
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().into_openapi()
}

pub(crate) fn router(app: Arc<App>) -> Router {
    let (router, description) = described().split_for_parts();
    let text: Arc<str> = description.to_pretty_json().unwrap_or_default().into();
    let document = move || async move {
        (
            [(axum::http::header::CONTENT_TYPE, "application/json")],
            text.to_string(),
        )
    };
    router
        .route("/api/v1/openapi.json", axum::routing::get(document))
        .route(
            "/api/v1/{*rest}",
            axum::routing::any(|| async {
                Problem::not_found("no_such_endpoint", "there is no such endpoint")
                    .hint("see /api/v1/openapi.json")
            }),
        )
        .method_not_allowed_fallback(|| async {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this endpoint has no such method",
            )
            .hint("see /api/v1/openapi.json")
        })
        .with_state(app)
}

/// Reading may touch the disk: off the async threads, where a slow one holds up nobody.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    tokio::task::spawn_blocking(work).await?
}

/// The same for one session.
pub(crate) async fn with_session<T: Send + 'static>(
    app: Arc<App>,
    id: String,
    work: impl FnOnce(&Arc<App>, &Arc<Session>) -> Answer<T> + Send + 'static,
) -> Answer<T> {
    blocking(move || {
        let session = app.session(&id)?;
        work(&app, &session)
    })
    .await
}

/// The query of a request; a mistake in it is a problem document.
#[derive(Debug)]
pub struct Ask<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Ask<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => Err(Problem::bad("bad_query", error.body_text())),
        }
    }
}

/// The variables of a path.
#[derive(Debug)]
pub struct At<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(path)) => Ok(Self(path)),
            Err(error) => Err(Problem::bad("bad_path", error.body_text())),
        }
    }
}

/// A JSON body.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Answer<Self> {
        let bytes = raw_body(request, state).await?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| {
            Problem::bad(
                "bad_json",
                format!("the body is not what is expected: {error}"),
            )
        })
    }
}

pub(crate) async fn raw_body<S: Send + Sync>(request: Request, _: &S) -> Answer<Bytes> {
    let body = axum::body::to_bytes(request.into_body(), BODY);
    // A client that sends a byte a minute holds nobody up but itself.
    match tokio::time::timeout(std::time::Duration::from_secs(60), body).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("the body is cut short or has more than {BODY} bytes"),
        )),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "too_slow",
            "the body did not arrive in a minute",
        )),
    }
}

/// `1` and `true` are yes.
pub(crate) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let word = String::deserialize(deserializer)?;
    match word.as_str() {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(serde::de::Error::custom(format!(
            "`{word}` is neither 1 nor 0"
        ))),
    }
}
