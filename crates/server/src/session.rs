//! One comparison that is looked at: its sources, what the user changed, and what it came to.
//!
//! The record is what is kept on disk; sources and reports are opened when asked for and closed when nobody does. A session knows nothing
//! of any other.

use crate::{
    app::{App, now},
    edits::{Change, Edit},
    events::{Progress, State, What},
    problem::{Answer, Problem},
    sources::{Opened, SourceRecord, Sources},
};
use serde::{Deserialize, Serialize};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use twinscope_compare::{Job, Settings};
use twinscope_report::{Comparison, Headline, Pair};

/// What is kept of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    #[serde(default)]
    pub notes: String,
    pub created: i64,
    pub updated: i64,
    /// `None` for an imported report, which has no data.
    pub reference: Option<SourceRecord>,
    /// `None` when one source is explored by itself.
    pub candidate: Option<SourceRecord>,
    #[serde(default)]
    pub settings: Settings,
    /// Keys of pairs, when the user pinned an order.
    pub order: Option<Vec<String>>,
    /// Counts changes of what is paired with what.
    pub revision: u64,
    /// The revision that the report is of.
    #[serde(default)]
    pub compared: u64,
    pub state: State,
    pub problem: Option<Problem>,
    pub headline: Option<Headline>,
}

impl Record {
    pub fn uploads(&self) -> Vec<String> {
        [&self.reference, &self.candidate]
            .into_iter()
            .flatten()
            .filter_map(|source| source.upload.clone())
            .collect()
    }

    pub fn is_imported(&self) -> bool {
        self.reference.is_none()
    }
}

/// A report with the revision it is of.
#[derive(Clone, Debug)]
pub struct Current {
    pub revision: u64,
    /// Not everything is measured yet, and verdicts may still change.
    pub provisional: bool,
    pub report: Arc<Comparison>,
    /// Which pairs are measured; empty stands for all.
    pub measured: Arc<Vec<bool>>,
}

/// A revision, a pair and one of its causes.
type Applied = (u64, usize, usize);

#[derive(Debug, Default)]
struct Data {
    sources: Option<Arc<Sources>>,
    current: Option<Current>,
    /// Kept so that an edit measures only what it changes.
    job: Option<Arc<Job>>,
    predicted: Vec<(Applied, Arc<Vec<f64>>)>,
}

#[derive(Debug)]
pub struct Session {
    pub id: String,
    record: Mutex<Record>,
    data: Mutex<Data>,
    progress: Mutex<Progress>,
    /// Raised to end the comparison that is going on.
    cancel: Mutex<Arc<AtomicBool>>,
    used: AtomicU64,
}

/// Predictions of causes that are kept for the next look.
const PREDICTIONS: usize = 4;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Everything behind these locks is replaced whole; a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub fn new(id: String, record: Record) -> Self {
        Self {
            id,
            record: Mutex::new(record),
            data: Mutex::default(),
            progress: Mutex::default(),
            cancel: Mutex::default(),
            used: AtomicU64::new(0),
        }
    }

    /// One from disk. What was going on when the server ended has ended too.
    pub fn restored(id: String, mut record: Record) -> Self {
        if matches!(record.state, State::Queued | State::Running) {
            record.state = State::Interrupted;
        }
        Self::new(id, record)
    }

    pub fn record(&self) -> MutexGuard<'_, Record> {
        locked(&self.record)
    }

    pub fn progress(&self) -> Progress {
        locked(&self.progress).clone()
    }

    pub(crate) fn set_progress(&self, progress: Progress) {
        *locked(&self.progress) = progress;
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn is_open(&self) -> bool {
        let data = locked(&self.data);
        data.sources.is_some() || data.current.is_some()
    }

    /// Lets go of everything that can be had again from disk. A running comparison keeps its own hold.
    pub(crate) fn close(&self) {
        if !matches!(self.record().state, State::Queued | State::Running) {
            *locked(&self.data) = Data::default();
        }
    }

    /// Saves the record as it is.
    pub fn save(&self, app: &App) -> Answer<()> {
        let (document, updated) = self.document()?;
        Ok(app.store.save_session(&self.id, &document, updated)?)
    }

    fn document(&self) -> Answer<(String, i64)> {
        let record = self.record();
        Ok((serde_json::to_string(&*record)?, record.updated))
    }

    /// Changes the record and saves it; on an error it is as before.
    pub fn update(&self, app: &App, change: impl FnOnce(&mut Record)) -> Answer<()> {
        let mut record = self.record();
        let mut changed = record.clone();
        change(&mut changed);
        changed.updated = now();
        app.store
            .save_session(&self.id, &serde_json::to_string(&changed)?, changed.updated)?;
        *record = changed;
        Ok(())
    }

    pub fn sources(&self, app: &App) -> Answer<Arc<Sources>> {
        self.used.store(app.tick(), Ordering::Relaxed);
        if let Some(sources) = &locked(&self.data).sources {
            return Ok(sources.clone());
        }
        let (reference, candidate) = {
            let record = self.record();
            let no_data = || {
                Problem::conflict(
                    "no_data",
                    "this is an imported report: it has numbers, but not the tensors",
                )
            };
            (
                record.reference.clone().ok_or_else(no_data)?,
                record.candidate.clone(),
            )
        };
        let reference = Opened::open(&reference, &app.config.opening)?;
        let candidate = candidate
            .map(|candidate| Opened::open(&candidate, &app.config.opening))
            .transpose()?;
        let opened = Arc::new(Sources {
            reference,
            candidate,
        });
        let sources = locked(&self.data).sources.get_or_insert(opened).clone();
        app.close_idle();
        Ok(sources)
    }

    /// The report there is: the finished one, or what is known so far.
    pub fn current(&self, app: &App) -> Answer<Option<Current>> {
        self.used.store(app.tick(), Ordering::Relaxed);
        if let Some(current) = &locked(&self.data).current {
            return Ok(Some(current.clone()));
        }
        let Some(text) = app.store.report(&self.id)? else {
            return Ok(None);
        };
        let report: Comparison = serde_json::from_str(&text)?;
        let current = Current {
            revision: self.record().compared,
            provisional: false,
            report: Arc::new(report),
            measured: Arc::default(),
        };
        let current = locked(&self.data).current.get_or_insert(current).clone();
        app.close_idle();
        Ok(Some(current))
    }

    pub fn compared(&self, app: &App) -> Answer<Current> {
        self.current(app)?.ok_or_else(|| {
            let problem = self.record().problem.clone();
            problem.unwrap_or_else(|| {
                Problem::conflict("not_compared", "nothing has been compared yet")
                    .hint("start it, or wait for its first pairs")
            })
        })
    }

    /// One pair of the report, by its place.
    pub fn pair(&self, app: &App, nth: usize, revision: Option<u64>) -> Answer<(Current, Pair)> {
        let current = self.compared(app)?;
        if let Some(asked) = revision.filter(|asked| *asked != current.revision) {
            let detail = format!(
                "pairs were asked for by revision {asked}, they are now of revision {}",
                current.revision
            );
            return Err(Problem::conflict("stale_revision", detail).hint("ask for the pairs again"));
        }
        let count = current.report.pairs.len();
        let pair = current.report.pairs.get(nth).cloned();
        let pair = pair.ok_or_else(|| {
            Problem::not_found(
                "no_such_pair",
                format!("pair {nth} does not exist, there are {count}"),
            )
        })?;
        Ok((current, pair))
    }

    pub(crate) fn set_current(&self, current: Current) {
        locked(&self.data).current = Some(current);
    }

    pub(crate) fn job(&self) -> Option<Arc<Job>> {
        locked(&self.data).job.clone()
    }

    pub(crate) fn set_job(&self, job: Arc<Job>) {
        locked(&self.data).job = Some(job);
    }

    /// What a cause predicts, from the last few that were asked for.
    pub(crate) fn prediction(
        &self,
        key: Applied,
        compute: impl FnOnce() -> Answer<Vec<f64>>,
    ) -> Answer<Arc<Vec<f64>>> {
        if let Some((_, values)) = locked(&self.data)
            .predicted
            .iter()
            .find(|(other, _)| *other == key)
        {
            return Ok(values.clone());
        }
        let values = Arc::new(compute()?);
        let mut data = locked(&self.data);
        data.predicted.insert(0, (key, values.clone()));
        data.predicted.truncate(PREDICTIONS);
        Ok(values)
    }

    /// Ends the comparison that is going on, if one is.
    pub fn cancel(&self) {
        locked(&self.cancel).store(true, Ordering::Relaxed);
    }

    /// A flag for a new comparison; the one before is told to end.
    pub(crate) fn begin(&self) -> Arc<AtomicBool> {
        let mut cancel = locked(&self.cancel);
        cancel.store(true, Ordering::Relaxed);
        *cancel = Arc::new(AtomicBool::new(false));
        cancel.clone()
    }

    /// Whether a flag is still that of the latest comparison.
    pub(crate) fn is_latest(&self, flag: &Arc<AtomicBool>) -> bool {
        Arc::ptr_eq(&locked(&self.cancel), flag)
    }

    /// Makes an edit and logs it. True when pairs must be found anew.
    pub fn edit(&self, app: &App, edit: &Edit) -> Answer<bool> {
        if self.record().is_imported() && !matches!(edit, Edit::Order { .. } | Edit::Move { .. }) {
            return Err(Problem::conflict(
                "no_data",
                "this is an imported report: its pairs cannot be changed",
            ));
        }
        let current = self.current(app)?;
        let mut record = self.record();
        let change = edit.change(&record, current.as_ref().map(|current| &*current.report))?;
        let mut changed = record.clone();
        change.carry_out(&mut changed, false);
        changed.updated = now();
        app.store.save_edit(
            &self.id,
            &serde_json::to_string(&changed)?,
            changed.updated,
            &serde_json::to_string(&change)?,
        )?;
        *record = changed;
        Ok(self.edited(app, &change, record))
    }

    /// Takes the last edit back, or does the last one again that was taken back.
    pub fn step(&self, app: &App, back: bool) -> Answer<bool> {
        let mut record = self.record();
        let edits = app.store.edits(&self.id)?;
        let next = if back {
            edits.iter().rev().find(|edit| !edit.undone)
        } else {
            edits.iter().find(|edit| edit.undone)
        };
        let nothing = || {
            Problem::conflict(
                "nothing_to_undo",
                if back {
                    "there is nothing to undo"
                } else {
                    "there is nothing to do again"
                },
            )
        };
        let edit = next.ok_or_else(nothing)?;
        let change: Change = serde_json::from_str(&edit.document)?;
        let mut changed = record.clone();
        change.carry_out(&mut changed, back);
        changed.updated = now();
        app.store.save_undone(
            &self.id,
            &serde_json::to_string(&changed)?,
            changed.updated,
            edit.seq,
            back,
        )?;
        *record = changed;
        Ok(self.edited(app, &change, record))
    }

    fn edited(&self, app: &App, change: &Change, record: MutexGuard<'_, Record>) -> bool {
        let revision = record.revision;
        drop(record);
        app.events.push(&self.id, What::Changed { revision });
        change.is_about_pairs()
    }
}
