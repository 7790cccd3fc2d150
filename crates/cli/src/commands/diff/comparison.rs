//! One comparison, from paths to a report: opened here, driven by [`Job`] on a thread that Ctrl-C can leave behind.

use crate::{
    failure::Failure,
    interrupt,
    open::{Opened, Opening},
    progress::Measuring,
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};
use twinscope_compare::{
    Job, Judged, Settings, Side, Sources, mapfile, noise::Measures, plan, settings::MapEntry,
};
use twinscope_explain::{Causes, Explained, Scene};
use twinscope_report as document;
use twinscope_tensor::TensorSource;

/// One side: to be opened, or in memory already.
#[derive(Clone)]
pub(in crate::commands) enum Given {
    Path(PathBuf),
    Held(Arc<dyn TensorSource>),
}

impl Given {
    fn open(&self, opening: &Opening) -> anyhow::Result<Opened> {
        match self {
            Given::Path(path) => opening.open(path),
            Given::Held(source) => opening.hold(Arc::clone(source)),
        }
    }

    fn is_stdin(&self) -> bool {
        matches!(self, Given::Path(path) if path == Path::new("-"))
    }
}

/// What to compare and how.
#[derive(Clone)]
pub(in crate::commands) struct Comparison {
    pub(in crate::commands) reference: Given,
    /// `None`: every tensor of the reference against every other.
    pub(in crate::commands) candidate: Option<Given>,
    pub(in crate::commands) noise: Option<PathBuf>,
    pub(in crate::commands) settings: Settings,
    pub(in crate::commands) exact: bool,
}

/// What it came to.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) report: document::Comparison,
    /// The pairs, for `--save-map`.
    pub(super) map: Vec<MapEntry>,
    pub(super) alone: bool,
    /// What a person should know besides.
    pub(super) notes: Vec<String>,
}

/// Both sides and the job on them; the job can be read while it is still working.
struct Begun {
    reference: Arc<Opened>,
    candidate: Option<Arc<Opened>>,
    noise: Option<Opened>,
    job: Job,
}

impl Begun {
    fn sources(&self) -> Sources<'_> {
        Sources {
            reference: &*self.reference.source,
            candidate: self.candidate.as_ref().map(|opened| &*opened.source),
            noise: self.noise.as_ref().map(|opened| &*opened.source),
        }
    }

    /// Closes both sides at once: what was unpacked for them takes its time to be given back.
    fn close(self: Arc<Self>) {
        // Work that was left behind holds them still.
        if let Some(Begun {
            reference,
            candidate,
            ..
        }) = Arc::into_inner(self)
        {
            rayon::join(|| drop(reference), || drop(candidate));
        }
    }
}

impl Comparison {
    pub(super) fn run(&self, opening: &Opening) -> anyhow::Result<Compared> {
        let stopped = || Failure::new("stopped before anything was compared");
        let begun = self.work(opening)?.ok_or_else(stopped)?;
        let report = match begun.job.judged() {
            Some(report) => report.clone(),
            None => begun.job.so_far(&begun.sources()).ok_or_else(stopped)?,
        };
        begun.reference.all_read();
        begun.candidate.iter().for_each(|opened| opened.all_read());
        let compared = self.compared(&begun, report)?;
        begun.close();
        Ok(compared)
    }

    /// Compares, then looks into the pair that `find` chooses.
    pub(in crate::commands) fn explain(
        &self,
        opening: &Opening,
        find: impl FnOnce(&document::Comparison) -> anyhow::Result<usize>,
    ) -> anyhow::Result<document::Explained> {
        let stopped = || Failure::new("stopped before the pair was examined");
        let begun = self.work(opening)?.ok_or_else(stopped)?;
        let report = begun.job.judged().filter(|_| !begun.job.is_stopped());
        let (report, plan) = report.zip(begun.job.plan()).ok_or_else(stopped)?;
        let mut whole = report.document();
        let at = find(&whole)?;
        let sources = begun.sources();
        let (left, right) = (
            Side::new(sources.reference),
            Side::new(sources.candidate.unwrap_or(sources.reference)),
        );
        let scene = Scene::new(plan, &left, &right, &report.pairs);
        let explained = twinscope_explain::explain(&scene, at).ok_or_else(|| {
            let why = report.pairs[at]
                .reason
                .clone()
                .unwrap_or_else(|| "it has no numbers, or more than are looked at".to_owned());
            Failure::new(format!(
                "`{}` cannot be examined: {why}",
                report.pairs[at].name
            ))
        })?;
        let noise = report.pairs[at].noise;
        Ok(explained_document(
            whole.reference,
            whole.candidate,
            whole.pairs.swap_remove(at),
            noise,
            explained,
        ))
    }

    /// Opens the sources and runs the job on them, until it is done or Ctrl-C is pressed. `None` when the sources were not open by then.
    fn work(&self, opening: &Opening) -> anyhow::Result<Option<Arc<Begun>>> {
        let known: Arc<OnceLock<Arc<Begun>>> = Arc::default();
        let bar = Measuring::new();
        let work = {
            let (comparison, opening, known) = (self.clone(), opening.clone(), Arc::clone(&known));
            move || -> anyhow::Result<()> {
                let begun = Arc::new(comparison.begin(&opening)?);
                let begun = known.get_or_init(|| begun);
                if interrupt::stopped() {
                    // Ctrl-C while the sources were opened: there was no job to stop yet.
                    begun.job.stop();
                }
                Ok(begun.job.run(&begun.sources(), Some(&Causes))?)
            }
        };
        let finished = interrupt::unless_stopped(
            work,
            || {
                known
                    .get()
                    .into_iter()
                    .for_each(|begun| bar.draw(&begun.job.progress()));
            },
            || known.get().into_iter().for_each(|begun| begun.job.stop()),
        );
        bar.clear();
        if let Some(worked) = finished {
            worked?;
        }
        Ok(known.get().cloned())
    }

    fn begin(&self, opening: &Opening) -> anyhow::Result<Begun> {
        if self.candidate.as_ref().is_some_and(Given::is_stdin) && self.reference.is_stdin() {
            return Err(Failure::new("standard input cannot be both sides").into());
        }
        // Both at once: what one has left to unpack at its end is not enough for all threads.
        let (reference, candidate) = rayon::join(
            || self.reference.open(opening),
            || self.candidate.as_ref().map(|given| given.open(opening)),
        );
        let noise = self.noise.as_ref().map(|path| opening.open(path));
        Ok(Begun {
            reference: Arc::new(reference?),
            candidate: candidate.transpose()?.map(Arc::new),
            noise: noise.transpose()?,
            job: Job::new(self.settings.clone()).exact(self.exact),
        })
    }

    /// The report with what a person should know besides.
    fn compared(&self, begun: &Begun, report: Judged) -> anyhow::Result<Compared> {
        let Begun { job, .. } = begun;
        let sources = begun.sources();
        let plan = job
            .plan()
            .ok_or_else(|| Failure::new("stopped before anything was compared"))?;
        let (left, right) = (
            Side::new(sources.reference),
            Side::new(sources.candidate.unwrap_or(sources.reference)),
        );
        let mut notes = Vec::new();
        if self.exact && !plan.alone {
            notes
                .push("--exact is for one source; of two every pair is measured anyway".to_owned());
        }
        if job.unlisted() > 0 {
            let missing = job.unlisted();
            notes.push(format!(
                "{missing} pairs less alike than those listed are left out; --only chooses, --exact takes all"
            ));
        }
        if let Some(noise) = &self.noise {
            let (noise, all) = (noise.display(), plan.pairing.pairs.len());
            match job.pairs_with_floor() {
                None => notes.push(
                    "stopped before the noise was measured; rounding is judged by the noise model"
                        .to_owned(),
                ),
                Some(0) => notes.push(format!(
                    "--noise `{noise}` has no tensor of the reference; rounding is judged by the noise model"
                )),
                Some(some) if some < all => notes.push(format!(
                    "--noise `{noise}` tells of {some} of {all} pairs; the others are judged by the noise model"
                )),
                Some(_) => {}
            }
        }
        notes.extend(
            self.settings
                .used_for_nothing()
                .into_iter()
                .filter(|_| !plan.alone),
        );
        let unused = plan::unused_layouts(plan, &left, &self.settings).into_iter();
        notes.extend(unused.map(|name| {
            format!("--layout `{name}` is of no pair; pairs go by the reference's names")
        }));
        Ok(Compared {
            report: report.document(),
            map: mapfile::entries(&plan.pairing, &left, &right),
            alone: plan.alone,
            notes,
        })
    }
}

fn explained_document(
    reference: String,
    candidate: String,
    pair: document::Pair,
    noise: Measures,
    explained: Explained,
) -> document::Explained {
    let measures = |measures: Measures| measures.map(Some);
    document::Explained {
        schema: document::SCHEMA,
        reference,
        candidate,
        pair,
        noise: measures(noise),
        causes: explained.causes,
        attempts: explained
            .attempts
            .into_iter()
            .map(|attempt| document::Attempt {
                hypothesis: attempt.hypothesis.to_owned(),
                kind: attempt.kind,
                explained: attempt.explained,
                proven: attempt.proven,
                text: attempt.text,
            })
            .collect(),
        formula: explained.formula,
        follows: explained.follows,
        off: explained.off.map(measures),
        rounding: explained.rounding.map(measures),
    }
}
