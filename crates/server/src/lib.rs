//! Report to JSON and bytes: the local server behind the page, and the page itself.
//!
//! Everything the page does goes through `/api/v1` ([`api`]), described by `/api/v1/openapi.json`, which is written from the types. A session
//! ([`session`]) is one comparison that is looked at; it outlives the process ([`store`]). Comparisons run beside the requests
//! ([`comparison`]) and tell what happens ([`events`]). Values are read as they are shown ([`slices`]). Nothing is measured here.

// The derives of utoipa write paths in full.
#![allow(unused_qualifications)]

pub mod api;
mod app;
mod comparison;
mod edits;
mod embed;
mod events;
mod guard;
mod html;
mod listen;
pub mod problem;
mod roots;
mod session;
mod slices;
mod sources;
mod store;
mod table;
mod uploads;

pub use api::{open::open_paths, openapi};
pub use app::{App, Config, StartError, random_id};
pub use guard::ANY_ADDRESS;
pub use html::report_page;
pub use listen::{bind, serve};
pub use roots::Roots;
pub use table::csv as report_csv;

use axum::{Router, response::IntoResponse};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;

/// Everything that can be asked for; needs no socket.
pub fn router(app: Arc<App>) -> Router {
    let panicked = |_: Box<dyn std::any::Any + Send>| {
        problem::Problem::internal("answering this request failed in a way it should not have")
            .hint("the server still runs; please report what you did")
            .into_response()
    };
    api::router(app.clone())
        .fallback(embed::serve)
        .layer(axum::extract::DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(panicked))
        .layer(axum::middleware::from_fn_with_state(app, guard::guard))
}
