//! What went wrong, as RFC 9457 has it: a stable `code` for programs, the fact and the next step for people.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A problem document (`application/problem+json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`: the code says which.
    #[schema(value_type = String)]
    pub r#type: Box<str>,
    #[schema(value_type = String)]
    pub title: Box<str>,
    pub status: u16,
    /// Stable: what a program looks at.
    pub code: String,
    /// The fact, with the file, the tensor and the numbers.
    pub detail: String,
    /// One next step, when there is one to offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub hint: Option<Box<str>>,
}

pub type Answer<T> = Result<T, Problem>;

impl Problem {
    pub fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Problem").into();
        Self {
            r#type: "about:blank".into(),
            title,
            status: status.as_u16(),
            code: code.to_owned(),
            detail: detail.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        let hint: String = hint.into();
        self.hint = Some(hint.into_boxed_str());
        self
    }

    pub fn bad(code: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    pub fn not_found(code: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    pub fn conflict(code: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// The request is understood and cannot be answered for this data.
    pub fn unprocessable(code: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
    }

    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    pub fn disk_full(what: &str) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", format!("{what}: the disk is full")).hint(
            "free some space, as by deleting a session with uploads, or start with --state on a larger disk; what was saved before is kept",
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response
    }
}

impl From<twinscope_formats::OpenError> for Problem {
    fn from(error: twinscope_formats::OpenError) -> Self {
        let problem = Self::unprocessable("unreadable_source", error.to_string());
        match error.hint() {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

impl From<twinscope_tensor::ReadError> for Problem {
    fn from(error: twinscope_tensor::ReadError) -> Self {
        Self::unprocessable("unreadable_tensor", error.to_string())
    }
}

impl From<twinscope_tensor::PlaneError> for Problem {
    fn from(error: twinscope_tensor::PlaneError) -> Self {
        Self::bad("bad_window", error.to_string())
    }
}

impl From<twinscope_tensor::slice::SliceError> for Problem {
    fn from(error: twinscope_tensor::slice::SliceError) -> Self {
        Self::bad("bad_slice", error.to_string()).hint("NumPy's syntax: [0, :, 5:9]")
    }
}

impl From<twinscope_compare::layout::LayoutError> for Problem {
    fn from(error: twinscope_compare::layout::LayoutError) -> Self {
        Self::unprocessable("bad_layout", error.to_string())
    }
}

impl From<twinscope_compare::pairing::PairError> for Problem {
    fn from(error: twinscope_compare::pairing::PairError) -> Self {
        Self::unprocessable("bad_pairing", error.to_string())
    }
}

impl From<twinscope_compare::settings::ConfigError> for Problem {
    fn from(error: twinscope_compare::settings::ConfigError) -> Self {
        Self::bad("bad_settings", error.to_string())
    }
}

impl From<crate::store::StoreError> for Problem {
    fn from(error: crate::store::StoreError) -> Self {
        if error.is_full() {
            return Self::disk_full(&format!(
                "the session cannot be saved in `{}`",
                error.path.display()
            ));
        }
        Self::internal(format!("the sessions cannot be read or saved: {error}"))
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        if no_room(&error) {
            Self::disk_full("it cannot be written")
        } else {
            Self::internal(error.to_string())
        }
    }
}

/// The disk, a quota or a limit takes no more.
pub(crate) fn no_room(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(format!("a document cannot be written: {error}"))
    }
}

impl From<tokio::task::JoinError> for Problem {
    fn from(_: tokio::task::JoinError) -> Self {
        Self::internal("answering this request failed in a way it should not have")
            .hint("the server still runs; please report what you did")
    }
}
