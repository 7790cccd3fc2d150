//! A comparison that runs while others look on: queued, planned, measured, explained; its pairs are told as they come.
//!
//! The work runs on a thread of its own and is left behind when it is cancelled: what is known by then is the report. An edit measures only
//! pairs that were not measured before in the same way.

use crate::{
    app::App,
    events::{Phase, Progress, State, What},
    problem::{Answer, Problem},
    session::{Current, Measured, Session},
    sources::{SourceRecord, Sources},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};
use twinscope_compare::{
    Settings, Side, Watch,
    engine::{self, Explain, Outcome, Part},
    plan_alone,
    settings::LayoutOverride,
};
use twinscope_report::{Comparison, Headline, Row, Unmeasured};

/// How often progress is told.
const TICK: Duration = Duration::from_millis(100);
/// How often what is known so far is judged, at least; ten times as long as it takes otherwise.
const JUDGE: Duration = Duration::from_millis(300);
/// Rows of one event.
const BATCH: usize = 500;

/// Starts the comparison of a session anew; the one before ends.
pub(crate) fn start(app: &Arc<App>, session: &Arc<Session>) -> Answer<()> {
    if session.record().is_imported() {
        return Err(Problem::conflict(
            "no_data",
            "this is an imported report: it has nothing to compare",
        ));
    }
    let cancel = session.begin();
    let revision = session.record().revision;
    session.update(app, |record| {
        (record.state, record.problem) = (State::Queued, None)
    })?;
    session.set_progress(Progress::default());
    app.events.push(
        &session.id,
        What::State {
            revision,
            state: State::Queued,
            problem: None,
        },
    );
    let run = Run {
        app: app.clone(),
        session: session.clone(),
        cancel,
        revision,
    };
    let spawned = thread::Builder::new()
        .name("comparison".to_owned())
        .spawn(move || run.run());
    spawned
        .map(drop)
        .map_err(|error| Problem::internal(format!("cannot start a thread: {error}")))
}

struct Run {
    app: Arc<App>,
    session: Arc<Session>,
    cancel: Arc<AtomicBool>,
    revision: u64,
}

/// What the worker tells while it measures.
#[derive(Debug)]
struct Count {
    bytes: AtomicU64,
    cancel: Arc<AtomicBool>,
    explaining: AtomicBool,
}

impl Watch for Count {
    fn measured(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

impl Run {
    fn stopped(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    fn run(&self) {
        let Some(_place) = self.app.room.enter(|| self.stopped()) else {
            return self.end(State::Cancelled, None, None);
        };
        self.tell_state(State::Running);
        // A panic of a reader or a kernel is this comparison's failure, not the server's.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.compare()));
        match outcome {
            Ok(Ok((state, report))) => self.end(state, Some(report), None),
            Ok(Err(problem)) => self.end(State::Failed, None, Some(problem)),
            Err(_) => self.end(State::Failed, None, Some(broken())),
        }
    }

    fn tell_state(&self, state: State) {
        if self.session.is_latest(&self.cancel) {
            self.session.record().state = state;
            self.app.events.push(
                &self.session.id,
                What::State {
                    revision: self.revision,
                    state,
                    problem: None,
                },
            );
        }
    }

    fn compare(&self) -> Answer<(State, Comparison)> {
        self.progress(Progress::default());
        let sources = self.session.sources(&self.app)?;
        self.progress(Progress {
            phase: Phase::Pairing,
            ..Progress::default()
        });
        let settings = self.session.record().settings.clone();
        let measured = Arc::new(self.plan(&sources, settings)?);
        let count = Arc::new(Count {
            bytes: AtomicU64::new(0),
            cancel: self.cancel.clone(),
            explaining: AtomicBool::new(false),
        });
        let (done, waiting) = channel();
        let worker = {
            let (measured, sources, count) = (measured.clone(), sources.clone(), count.clone());
            let work = move || {
                let _ = done.send(work(&measured, &sources, &count));
            };
            thread::Builder::new()
                .name("measure".to_owned())
                .spawn(work)?
        };
        let mut shown = Shown::new(bytes(&measured, &sources), already(&measured));
        let finished = loop {
            match waiting.recv_timeout(TICK) {
                Ok(report) => break Some(report),
                Err(RecvTimeoutError::Timeout) if self.stopped() => break None,
                Err(RecvTimeoutError::Timeout) => {
                    self.look(&measured, &sources, &count, &mut shown)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = worker.join();
                    return Err(broken());
                }
            }
        };
        let state = if finished.is_some() && !self.stopped() {
            State::Done
        } else {
            State::Cancelled
        };
        let mut report = finished.unwrap_or_else(|| merged(&measured, &sources));
        self.name(&mut report);
        let document = report.document();
        let _ = measured.report.set(report);
        if self.session.is_latest(&self.cancel) {
            self.session.set_measured(measured);
        }
        Ok((state, document))
    }

    /// Sources are called what the user calls them, not where an upload lies.
    fn name(&self, report: &mut twinscope_compare::Report) {
        let record = self.session.record();
        let name =
            |source: &Option<SourceRecord>| source.as_ref().map(|source| source.name.clone());
        report.reference = name(&record.reference).unwrap_or_default();
        report.candidate = name(&record.candidate).unwrap_or_else(|| report.reference.clone());
    }

    fn plan(&self, sources: &Sources, settings: Settings) -> Answer<Measured> {
        let left = Side::new(&*sources.reference.source);
        let plan = match &sources.candidate {
            Some(candidate) => engine::plan(&left, &Side::new(&*candidate.source), &settings)?,
            None => plan_alone(&left, &settings, false)?.0,
        };
        let parts = engine::slots(&plan);
        let measured = Measured {
            plan,
            parts,
            settings,
            report: OnceLock::new(),
        };
        if let Some(before) = self.session.measured() {
            reuse(&before, &measured, sources);
        }
        Ok(measured)
    }

    fn progress(&self, progress: Progress) {
        self.session.set_progress(progress.clone());
        self.app
            .events
            .push(&self.session.id, What::Progress(progress));
    }

    /// Tells how far it is and, now and then, what is known.
    fn look(&self, measured: &Measured, sources: &Sources, count: &Count, shown: &mut Shown) {
        if !self.session.is_latest(&self.cancel) {
            return;
        }
        let filled = measured
            .parts
            .iter()
            .filter(|part| part.get().is_some())
            .count();
        let explaining = count.explaining.load(Ordering::Relaxed);
        let progress = shown.progress(
            filled,
            measured.parts.len(),
            count.bytes.load(Ordering::Relaxed),
            explaining,
        );
        // The pairs first: whoever hears of some may ask for them.
        self.tell_pairs(measured, sources, filled, shown);
        if shown.told.as_ref() != Some(&progress) {
            self.progress(progress.clone());
            shown.told = Some(progress);
        }
    }

    /// What is known by now, when that is more than was told.
    fn tell_pairs(&self, measured: &Measured, sources: &Sources, filled: usize, shown: &mut Shown) {
        if shown.next > Instant::now() || (shown.filled == Some(filled) && !shown.rows.is_empty()) {
            return;
        }
        let begun = Instant::now();
        let report = merged(measured, sources).document();
        let done: Vec<bool> = report
            .pairs
            .iter()
            .map(|pair| pair.unmeasured != Some(Unmeasured::Stopped))
            .collect();
        let changed: Vec<Row> = report
            .pairs
            .iter()
            .enumerate()
            .filter(|(nth, pair)| shown.is_new(*nth, (done[*nth], pair.verdict as u8)))
            .map(|(nth, pair)| Row::of(nth, pair, done[nth]))
            .collect();
        shown.rows = report
            .pairs
            .iter()
            .zip(&done)
            .map(|(pair, done)| (*done, pair.verdict as u8))
            .collect();
        let (report, done) = (Arc::new(report), Arc::new(done));
        self.session.set_current(Current {
            revision: self.revision,
            provisional: true,
            report,
            measured: done,
        });
        for rows in changed.chunks(BATCH) {
            self.app.events.push(
                &self.session.id,
                What::Pairs {
                    revision: self.revision,
                    rows: rows.to_vec(),
                },
            );
        }
        shown.filled = Some(filled);
        shown.next = Instant::now() + JUDGE.max(10 * begun.elapsed());
    }

    /// Keeps what came out of it, and says so.
    fn end(&self, state: State, report: Option<Comparison>, problem: Option<Problem>) {
        if !self.session.is_latest(&self.cancel) {
            return;
        }
        let saved = self.keep(state, report, problem.clone());
        let (state, problem) = match saved {
            Ok(()) => (state, problem),
            Err(problem) => {
                // The answer is still there to be looked at, only not on disk.
                self.session.record().problem = Some(problem.clone());
                (state, Some(problem))
            }
        };
        self.app.events.push(
            &self.session.id,
            What::State {
                revision: self.revision,
                state,
                problem,
            },
        );
        self.app.close_idle();
    }

    fn keep(
        &self,
        state: State,
        report: Option<Comparison>,
        problem: Option<Problem>,
    ) -> Answer<()> {
        let headline = report.as_ref().map(Headline::of);
        let document = {
            let mut record = self.session.record();
            record.state = state;
            record.problem = problem;
            if headline.is_some() {
                (record.headline, record.compared) = (headline, self.revision);
            }
            record.updated = crate::app::now();
            serde_json::to_string(&*record)?
        };
        let updated = self.session.record().updated;
        match report {
            Some(report) => {
                let text = serde_json::to_string(&report)?;
                let report = Arc::new(report);
                self.session.set_current(Current {
                    revision: self.revision,
                    provisional: false,
                    report,
                    measured: Arc::default(),
                });
                self.app
                    .store
                    .save_report(&self.session.id, &document, updated, Some(&text))?;
            }
            None => self
                .app
                .store
                .save_session(&self.session.id, &document, updated)?,
        }
        Ok(())
    }
}

fn broken() -> Problem {
    Problem::internal("the comparison failed in a way it should not have")
        .hint("the server still runs; please report the files you compared")
}

/// What was told last.
struct Shown {
    begun: Instant,
    bytes_total: u64,
    already: usize,
    told: Option<Progress>,
    filled: Option<usize>,
    rows: Vec<(bool, u8)>,
    next: Instant,
}

impl Shown {
    fn new(bytes_total: u64, already: usize) -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            bytes_total,
            already,
            told: None,
            filled: None,
            rows: Vec::new(),
            next: now,
        }
    }

    fn is_new(&self, nth: usize, row: (bool, u8)) -> bool {
        self.rows.get(nth) != Some(&row)
    }

    fn progress(&self, pairs: usize, pairs_total: usize, bytes: u64, explaining: bool) -> Progress {
        let seconds = self.begun.elapsed().as_secs_f64();
        let rate = (bytes > 0 && seconds > 0.0).then(|| bytes as f64 / seconds);
        let left = rate.map(|rate| self.bytes_total.saturating_sub(bytes) as f64 / rate);
        let measuring = pairs < pairs_total && pairs_total > self.already;
        Progress {
            phase: if explaining {
                Phase::Causes
            } else {
                Phase::Measuring
            },
            pairs,
            pairs_total,
            bytes,
            bytes_total: self.bytes_total,
            bytes_per_second: rate.filter(|_| measuring),
            seconds_left: left.filter(|_| measuring),
        }
    }
}

fn work(measured: &Measured, sources: &Sources, count: &Count) -> twinscope_compare::Report {
    let (left, right) = (
        Side::new(&*sources.reference.source),
        Side::new(&*sources.other().source),
    );
    engine::measure(
        &measured.plan,
        &left,
        &right,
        &measured.settings,
        count,
        &measured.parts,
    );
    let mut report = engine::merge(
        &measured.plan,
        engine::taken(&measured.parts),
        &left,
        &right,
        &measured.settings,
        None,
    );
    if !report.partial && measured.settings.causes {
        count.explaining.store(true, Ordering::Relaxed);
        if !measured.plan.alone {
            twinscope_explain::Causes.explain(&measured.plan, &left, &right, &mut report);
        }
    }
    report
}

fn merged(measured: &Measured, sources: &Sources) -> twinscope_compare::Report {
    let (left, right) = (
        Side::new(&*sources.reference.source),
        Side::new(&*sources.other().source),
    );
    engine::merge(
        &measured.plan,
        engine::taken(&measured.parts),
        &left,
        &right,
        &measured.settings,
        None,
    )
}

fn already(measured: &Measured) -> usize {
    measured
        .parts
        .iter()
        .filter(|part| part.get().is_some())
        .count()
}

/// How much there is to read, as the headers tell it.
fn bytes(measured: &Measured, sources: &Sources) -> u64 {
    let (left, right) = (
        Side::new(&*sources.reference.source),
        Side::new(&*sources.other().source),
    );
    let size = |side: &Side<'_>, item: usize| {
        let item = &side.items()[item];
        let elements = item.shape.elements().unwrap_or(0);
        item.dtype.byte_len(elements).unwrap_or(elements)
    };
    let pairs = measured.plan.pairing.pairs.iter().zip(&measured.parts);
    let open = pairs
        .filter(|(pair, part)| part.get().is_none() && !measured.plan.is_ranked(pair))
        .map(|(pair, _)| pair);
    let sizes = open.map(|pair| {
        let of = |side: &Side<'_>, items: &[usize]| {
            items
                .iter()
                .fold(0u64, |sum, item| sum.saturating_add(size(side, *item)))
        };
        of(&left, &pair.reference).saturating_add(of(&right, &pair.candidate))
    });
    sizes.fold(0, u64::saturating_add)
}

/// Takes over what was measured before in the same way.
fn reuse(before: &Measured, after: &Measured, sources: &Sources) {
    let tolerance = |settings: &Settings| (settings.rtol, settings.atol);
    if before.plan.alone
        || after.plan.alone
        || tolerance(&before.settings) != tolerance(&after.settings)
    {
        return;
    }
    let left = Side::new(&*sources.reference.source);
    let known: HashMap<(&[usize], &[usize]), &Part> = before
        .plan
        .pairing
        .pairs
        .iter()
        .zip(&before.parts)
        .filter_map(|(pair, part)| Some(((&pair.reference[..], &pair.candidate[..]), part.get()?)))
        .filter(|(_, part)| {
            matches!(
                part.outcome,
                Outcome::Measured(..) | Outcome::Incomparable(_)
            )
        })
        .collect();
    for (pair, slot) in after.plan.pairing.pairs.iter().zip(&after.parts) {
        let name = &left.items()[pair.reference[0]].name;
        let same_layout = layout_of(&before.settings, name) == layout_of(&after.settings, name);
        if let Some(part) = known
            .get(&(&pair.reference[..], &pair.candidate[..]))
            .filter(|_| same_layout)
        {
            let _ = slot.set((*part).clone());
        }
    }
}

fn layout_of<'a>(settings: &'a Settings, name: &str) -> Option<&'a LayoutOverride> {
    settings.layouts.iter().find(|entry| {
        globset::Glob::new(&entry.name).is_ok_and(|glob| glob.compile_matcher().is_match(name))
    })
}
