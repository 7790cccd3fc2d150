//! `GET /api/v1/events`: what happens, as server-sent events or, for those who ask again and again, as JSON after `since`.
//!
//! Both begin with a snapshot: where every session is. One stream serves all sessions, because a browser has six connections to a server
//! and a tab that waits for a seventh never loads.

use super::{Ask, sessions::SessionRow};
use crate::{app::App, events::Event, problem::Answer};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response, Sse, sse},
};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use std::{convert::Infallible, sync::Arc, time::Duration};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Since {
    /// The number of the last event that is known.
    since: Option<u64>,
    /// Only this session's.
    session: Option<String>,
}

/// Where everything is.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Snapshot {
    pub seq: u64,
    pub sessions: Vec<SessionRow>,
}

/// What happened since, or where everything is when that is no longer known.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EventsDoc {
    pub seq: u64,
    #[schema(required = true)]
    pub snapshot: Option<Vec<SessionRow>>,
    pub events: Vec<Event>,
}

/// What happens: server-sent events when asked for with `Accept: text/event-stream`, else JSON
#[utoipa::path(get, path = "/api/v1/events", tag = "events", params(Since),
    responses((status = 200, body = EventsDoc, description = "As a stream: first an event `snapshot`, then one event for each `Event`, with its seq as id")))]
pub async fn get(
    State(app): State<Arc<App>>,
    Ask(query): Ask<Since>,
    headers: HeaderMap,
) -> Answer<Response> {
    let said = |name| {
        headers
            .get(name)
            .and_then(|value: &axum::http::HeaderValue| value.to_str().ok())
    };
    if said(header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream")) {
        // A browser that lost its stream says where it was.
        let known = said(header::HeaderName::from_static("last-event-id"))
            .and_then(|id| id.parse().ok())
            .or(query.since);
        return Ok(stream_of(app, known, query.session));
    }
    let doc = match query
        .since
        .and_then(|since| app.events.since(since, query.session.as_deref()))
    {
        Some((seq, events)) => EventsDoc {
            seq,
            snapshot: None,
            events,
        },
        None => {
            let Snapshot { seq, sessions } = snapshot(app, query.session).await?;
            EventsDoc {
                seq,
                snapshot: Some(sessions),
                events: Vec::new(),
            }
        }
    };
    Ok(Json(doc).into_response())
}

async fn snapshot(app: Arc<App>, session: Option<String>) -> Answer<Snapshot> {
    super::blocking(move || {
        // The number first: what happens meanwhile is told twice rather than never.
        let seq = app.events.seq();
        let wanted = app
            .sessions()
            .into_iter()
            .filter(|other| session.as_ref().is_none_or(|id| *id == other.id));
        Ok(Snapshot {
            seq,
            sessions: wanted
                .map(|session| SessionRow::of(&app, &session))
                .collect(),
        })
    })
    .await
}

struct Reader {
    app: Arc<App>,
    session: Option<String>,
    at: Option<u64>,
    waiting: std::collections::VecDeque<sse::Event>,
    watch: tokio::sync::watch::Receiver<u64>,
}

impl Reader {
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            match self
                .at
                .and_then(|at| self.app.events.since(at, self.session.as_deref()))
            {
                Some((seq, events)) => {
                    self.at = Some(seq);
                    for event in events {
                        self.waiting.push_back(
                            sse::Event::default()
                                .id(event.seq.to_string())
                                .json_data(&event)
                                .ok()?,
                        );
                    }
                }
                None => {
                    let snapshot = snapshot(self.app.clone(), self.session.clone())
                        .await
                        .ok()?;
                    self.at = Some(snapshot.seq);
                    self.waiting.push_back(
                        sse::Event::default()
                            .event("snapshot")
                            .id(snapshot.seq.to_string())
                            .json_data(&snapshot)
                            .ok()?,
                    );
                }
            }
            if self.waiting.is_empty() {
                if self.app.events.is_closed() {
                    return None;
                }
                self.watch.changed().await.ok()?;
            }
        }
    }
}

fn stream_of(app: Arc<App>, at: Option<u64>, session: Option<String>) -> Response {
    let watch = app.events.watch();
    let reader = Reader {
        app,
        session,
        at,
        waiting: Default::default(),
        watch,
    };
    let events = stream::unfold(reader, |mut reader| async move {
        Some((Ok::<_, Infallible>(reader.next().await?), reader))
    });
    Sse::new(events)
        .keep_alive(sse::KeepAlive::new().interval(Duration::from_secs(15)))
        .into_response()
}
