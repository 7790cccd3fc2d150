//! Why a command could not do its work: a fact, and apart from it one next step.

use twinscope_formats::OpenError;

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The one next step of an error, whoever raised it.
pub(crate) fn hint_of(error: &anyhow::Error) -> Option<String> {
    error
        .chain()
        .find_map(|cause| match cause.downcast_ref::<Failure>() {
            Some(failure) => failure.hint.clone(),
            None => cause
                .downcast_ref::<OpenError>()
                .and_then(OpenError::hint)
                .map(str::to_owned),
        })
}
