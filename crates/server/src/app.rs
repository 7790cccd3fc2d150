//! What every request shares: the sessions, where they are kept, what may be opened and what is going on.

use crate::{
    events::{Events, What},
    problem::{Answer, Problem},
    roots::Roots,
    session::{Record, Session},
    store::{Store, StoreError},
    uploads::Uploads,
};
use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};
use twinscope_formats::OpenOptions;

/// How a server is set up.
#[derive(Debug)]
pub struct Config {
    /// Where sessions and uploads are kept.
    pub state: PathBuf,
    pub roots: Roots,
    /// Asked for with every request, when there is one.
    pub token: Option<String>,
    /// Host names that requests may come by, besides loopback.
    pub hosts: Vec<String>,
    /// Bytes that one upload may have.
    pub max_upload: Option<u64>,
    /// How sources are opened.
    pub opening: OpenOptions,
    /// Comparisons at the same time; the others wait.
    pub comparisons: usize,
}

#[derive(Debug)]
pub struct App {
    pub config: Config,
    pub store: Store,
    pub events: Events,
    pub uploads: Uploads,
    /// Room for comparisons.
    pub(crate) room: Room,
    /// Threads for what a person waits for, so that a running comparison does not hold it up.
    pub(crate) answers: rayon::ThreadPool,
    /// Threads for pictures, which take milliseconds, so that an answer that takes a second does not hold them up.
    pub(crate) pictures: rayon::ThreadPool,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    clock: AtomicU64,
    first: OnceLock<String>,
}

/// Sessions whose sources are kept open when nobody asks for them.
const OPEN: usize = 24;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error("cannot use `{}` for sessions: {source}", .path.display())]
    State { path: PathBuf, source: io::Error },
    #[error("cannot use {0} for sessions")]
    Store(#[from] StoreError),
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl App {
    pub fn new(config: Config) -> Result<Arc<Self>, StartError> {
        let path = config.state.clone();
        let state = |source| StartError::State {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(&path).map_err(state)?;
        let store = Store::open(&path.join("state.db"))?;
        let uploads =
            Uploads::open(path.join("uploads"), config.max_upload, &store).map_err(state)?;
        let mut sessions = HashMap::new();
        for (id, document) in store.sessions()? {
            // One that cannot be read is left alone: a newer twinscope may know it.
            if let Ok(record) = serde_json::from_str::<Record>(&document) {
                sessions.insert(id.clone(), Arc::new(Session::restored(id, record)));
            }
        }
        let used = sessions
            .values()
            .flat_map(|session| session.record().uploads())
            .collect();
        uploads.forget_unused(&store, &used);
        let room = Room::new(config.comparisons.max(1));
        let threads = |name: &'static str| {
            rayon::ThreadPoolBuilder::new()
                .thread_name(move |nth| format!("{name}-{nth}"))
                .build()
        };
        let (answers, pictures) = (threads("answer")?, threads("picture")?);
        let app = Self {
            config,
            store,
            events: Events::default(),
            uploads,
            room,
            answers,
            pictures,
            sessions: Mutex::new(sessions),
            clock: AtomicU64::new(0),
            first: OnceLock::new(),
        };
        Ok(Arc::new(app))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn session(&self, id: &str) -> Answer<Arc<Session>> {
        self.all().get(id).cloned().ok_or_else(|| {
            Problem::not_found("no_such_session", format!("there is no session `{id}`"))
                .hint("it may have been deleted in another tab")
        })
    }

    /// The latest first.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<Arc<Session>> = self.all().values().cloned().collect();
        all.sort_by_key(|session| std::cmp::Reverse(session.record().updated));
        all
    }

    pub(crate) fn insert(&self, session: Arc<Session>) {
        self.all().insert(session.id.clone(), session);
    }

    /// Ends what it is doing and removes it with the uploads that no other session has.
    pub fn delete(&self, id: &str) -> Answer<()> {
        let session = self.session(id)?;
        session.cancel();
        let used: Vec<String> = self
            .sessions()
            .iter()
            .filter(|other| other.id != id)
            .flat_map(|session| session.record().uploads())
            .collect();
        let own: Vec<String> = session
            .record()
            .uploads()
            .into_iter()
            .filter(|upload| !used.contains(upload))
            .collect();
        if let Err(error) = self.store.delete_session(id) {
            // On a full disk even this needs room: what the user wants to be rid of makes it.
            if !error.is_full() || own.is_empty() {
                return Err(error.into());
            }
            own.iter()
                .try_for_each(|upload| self.uploads.remove_data(upload))?;
            self.store.delete_session(id)?;
        }
        self.all().remove(id);
        for upload in &own {
            self.uploads.delete(&self.store, upload)?;
        }
        self.events.push(id, What::Deleted);
        Ok(())
    }

    /// The session that the command line asked for.
    pub fn first(&self) -> Option<String> {
        self.first.get().cloned()
    }

    pub fn set_first(&self, session: String) {
        let _ = self.first.set(session);
    }

    /// Counts uses, so that the sources nobody asked for longest are closed first.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Closes the sources of sessions beyond [`OPEN`] that have been idle the longest.
    pub(crate) fn close_idle(&self) {
        let mut open: Vec<Arc<Session>> = self
            .all()
            .values()
            .filter(|session| session.is_open())
            .cloned()
            .collect();
        open.sort_by_key(|session| std::cmp::Reverse(session.used()));
        open.iter().skip(OPEN).for_each(|session| session.close());
    }

    /// Ends every comparison; called before the process ends.
    pub fn stop(&self) {
        self.events.close();
        self.sessions().iter().for_each(|session| session.cancel());
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as i64)
}

/// A name that nobody can guess: 128 bits, or 192 for a token.
pub fn random_id(bytes: usize) -> io::Result<String> {
    let mut raw = vec![0u8; bytes];
    getrandom::fill(&mut raw).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(raw.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Room for a number of things at a time; the others wait in line.
#[derive(Debug)]
pub(crate) struct Room {
    free: Mutex<usize>,
    freed: std::sync::Condvar,
}

#[derive(Debug)]
pub(crate) struct Place<'a>(&'a Room);

impl Room {
    fn new(places: usize) -> Self {
        Self {
            free: Mutex::new(places),
            freed: std::sync::Condvar::new(),
        }
    }

    /// A place, or `None` when `stopped` says so first.
    pub(crate) fn enter(&self, stopped: impl Fn() -> bool) -> Option<Place<'_>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if stopped() {
                return None;
            }
            if *free > 0 {
                *free -= 1;
                return Some(Place(self));
            }
            let waited = self
                .freed
                .wait_timeout(free, std::time::Duration::from_millis(200));
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
