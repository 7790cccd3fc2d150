//! A comparison that runs while others look on: queued, planned, measured, explained; its pairs are told as they come.
//!
//! The work runs on a thread of its own and is left behind when it is cancelled: what is known by then is the report. An edit measures only
//! pairs that were not measured before in the same way.

use crate::{
    app::App,
    events::{Phase, Progress, State, What},
    problem::{Answer, Problem},
    session::{Current, Session},
    sources::{SourceRecord, Sources},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};
use twinscope_compare::{Job, job};
use twinscope_explain::Causes;
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
        (record.state, record.problem) = (State::Queued, None);
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
            Ok(Ok((state, report))) => self.end(state, report, None),
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

    fn compare(&self) -> Answer<(State, Option<Comparison>)> {
        self.progress(Progress::default());
        let sources = self.session.sources(&self.app)?;
        self.progress(Progress {
            phase: Phase::Pairing,
            ..Progress::default()
        });
        let settings = self.session.record().settings.clone();
        let job = Arc::new(Job::new(settings).reusing(self.session.job()));
        let (done, waiting) = channel();
        let worker = {
            let (job, sources) = (job.clone(), sources.clone());
            let work = move || {
                let _ = done.send(job.run(&sources.both(), Some(&Causes)));
            };
            thread::Builder::new()
                .name("measure".to_owned())
                .spawn(work)?
        };
        // Whatever ends this function, also a panic while looking on, ends the job.
        let _stop = StopOnDrop(job.clone());
        let mut shown = Shown::new();
        loop {
            match waiting.recv_timeout(TICK) {
                Ok(run) => break run?,
                Err(RecvTimeoutError::Timeout) if self.stopped() => {
                    job.stop();
                    break;
                }
                Err(RecvTimeoutError::Timeout) => self.look(&job, &sources, &mut shown),
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = worker.join();
                    return Err(broken());
                }
            }
        }
        let report = job.judged().cloned();
        let state = match report.is_some() && !self.stopped() {
            true => State::Done,
            false => State::Cancelled,
        };
        let report = report.or_else(|| job.so_far(&sources.both()));
        let Some(mut report) = report else {
            // Cancelled before the pairs were known.
            return Ok((State::Cancelled, None));
        };
        self.name(&mut report);
        let document = report.document();
        if self.session.is_latest(&self.cancel) {
            self.session.set_job(job);
        }
        Ok((state, Some(document)))
    }

    /// Sources are called what the user calls them, not where an upload lies.
    fn name(&self, report: &mut twinscope_compare::Judged) {
        let record = self.session.record();
        let name =
            |source: &Option<SourceRecord>| source.as_ref().map(|source| source.name.clone());
        report.reference = name(&record.reference).unwrap_or_default();
        report.candidate = name(&record.candidate).unwrap_or_else(|| report.reference.clone());
    }

    fn progress(&self, progress: Progress) {
        self.session.set_progress(progress.clone());
        self.app
            .events
            .push(&self.session.id, What::Progress(progress));
    }

    /// Tells how far it is and, now and then, what is known.
    fn look(&self, job: &Job, sources: &Sources, shown: &mut Shown) {
        if !self.session.is_latest(&self.cancel) {
            return;
        }
        let known = job.progress();
        // The pairs first: whoever hears of some may ask for them.
        self.tell_pairs(job, sources, known.pairs, shown);
        let progress = shown.progress(known);
        if shown.told.as_ref() != Some(&progress) {
            self.progress(progress.clone());
            shown.told = Some(progress);
        }
    }

    /// What is known by now, when that is more than was told.
    fn tell_pairs(&self, job: &Job, sources: &Sources, filled: usize, shown: &mut Shown) {
        if shown.next > Instant::now() || (shown.filled == Some(filled) && !shown.rows.is_empty()) {
            return;
        }
        let begun = Instant::now();
        let Some(report) = job.so_far(&sources.both()) else {
            return;
        };
        let report = report.document();
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
        let text = report.as_ref().map(serde_json::to_string).transpose()?;
        // The pairs before the headline: whoever sees a headline asks for them.
        if let Some(report) = report {
            self.session.set_current(Current {
                revision: self.revision,
                provisional: false,
                report: Arc::new(report),
                measured: Arc::default(),
            });
        }
        let (document, updated) = {
            let mut record = self.session.record();
            record.state = state;
            record.problem = problem;
            if headline.is_some() {
                (record.headline, record.compared) = (headline, self.revision);
            }
            record.updated = crate::app::now();
            (serde_json::to_string(&*record)?, record.updated)
        };
        let (store, id) = (&self.app.store, &self.session.id);
        match text {
            Some(text) => store.save_report(id, &document, updated, Some(&text))?,
            None => store.save_session(id, &document, updated)?,
        }
        Ok(())
    }
}

struct StopOnDrop(Arc<Job>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn broken() -> Problem {
    Problem::internal("the comparison failed in a way it should not have")
        .hint("the server still runs; please report the files you compared")
}

/// What was told last.
struct Shown {
    /// When planning was last seen: time before that does not count for the speed.
    measuring_since: Instant,
    told: Option<Progress>,
    filled: Option<usize>,
    rows: Vec<(bool, u8)>,
    next: Instant,
}

impl Shown {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            measuring_since: now,
            told: None,
            filled: None,
            rows: Vec::new(),
            next: now,
        }
    }

    fn is_new(&self, nth: usize, row: (bool, u8)) -> bool {
        self.rows.get(nth) != Some(&row)
    }

    fn progress(&mut self, known: job::Progress) -> Progress {
        let job::Progress {
            pairs,
            pairs_total,
            bytes,
            bytes_total,
            ..
        } = known;
        if known.phase == job::Phase::Planning {
            self.measuring_since = Instant::now();
        }
        let seconds = self.measuring_since.elapsed().as_secs_f64();
        let rate = (bytes > 0 && seconds > 0.0).then(|| bytes as f64 / seconds);
        let left = rate.map(|rate| bytes_total.saturating_sub(bytes) as f64 / rate);
        let measuring = pairs < pairs_total && pairs_total > known.pairs_reused;
        Progress {
            phase: match known.phase {
                job::Phase::Planning => Phase::Pairing,
                job::Phase::Measuring => Phase::Measuring,
                job::Phase::Explaining => Phase::Causes,
            },
            pairs,
            pairs_total,
            bytes,
            bytes_total,
            bytes_per_second: rate.filter(|_| measuring),
            seconds_left: left.filter(|_| measuring),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spent_on_planning_does_not_lower_the_speed() {
        let known = |phase, bytes| job::Progress {
            phase,
            pairs: 0,
            pairs_total: 1,
            pairs_reused: 0,
            bytes,
            bytes_total: 2 << 30,
        };
        let mut shown = Shown::new();
        let begun = shown.measuring_since;
        thread::sleep(Duration::from_millis(5));
        let planning = shown.progress(known(job::Phase::Planning, 0));
        assert_eq!(
            (planning.phase, planning.bytes_per_second),
            (Phase::Pairing, None)
        );
        let planned = shown.measuring_since;
        assert!(planned > begun);
        let measuring = shown.progress(known(job::Phase::Measuring, 1 << 30));
        assert_eq!(shown.measuring_since, planned);
        assert!(measuring.bytes_per_second.is_some() && measuring.seconds_left.is_some());
    }
}
