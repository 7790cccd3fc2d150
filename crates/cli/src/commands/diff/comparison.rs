//! One comparison, from paths to a report: opened, planned, measured and merged on a thread that Ctrl-C can leave behind.

use crate::{
    failure::Failure,
    interrupt,
    open::{Opened, Opening},
    progress::Measuring,
};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use twinscope_compare::{
    Report, Settings, Side, engine,
    engine::{Explain, Part, Plan},
    mapfile,
    noise::Measures,
    plan_alone,
    report::Cause,
    settings::MapEntry,
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

/// What is known so far, readable while the rest is still being measured.
#[derive(Default)]
struct Known {
    planned: OnceLock<Planned>,
    floors: OnceLock<HashMap<usize, Measures>>,
    /// Everything, with the causes.
    report: Mutex<Option<Report>>,
}

impl Known {
    fn take_report(&self) -> Option<Report> {
        self.report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Closes both sides at once: what was unpacked for them takes its time to be given back.
    fn give_back(self: Arc<Self>) {
        // Work that was left behind has them still.
        let Some(Planned {
            reference,
            candidate,
            ..
        }) = Arc::into_inner(self).and_then(|known| known.planned.into_inner())
        else {
            return;
        };
        rayon::join(|| drop(reference), || drop(candidate));
    }
}

struct Planned {
    reference: Arc<Opened>,
    candidate: Arc<Opened>,
    plan: Plan,
    parts: Vec<OnceLock<Part>>,
    notes: Vec<String>,
}

impl Comparison {
    pub(super) fn run(&self, opening: &Opening) -> anyhow::Result<Compared> {
        let known = Arc::new(Known::default());
        let bar = Arc::new(Measuring::new());
        let work = {
            let (comparison, opening, known, bar) = (
                self.clone(),
                opening.clone(),
                Arc::clone(&known),
                Arc::clone(&bar),
            );
            move || comparison.work(&opening, &known, &bar)
        };
        let finished = interrupt::unless_stopped(work, || bar.draw());
        bar.clear();
        if let Some(worked) = finished {
            worked?;
        }
        let Some(planned) = known.planned.get() else {
            return Err(Failure::new("stopped before anything was compared").into());
        };
        planned.reference.all_read();
        planned.candidate.all_read();
        let compared = self.merged(planned, &known);
        known.give_back();
        Ok(compared)
    }

    /// Compares, then looks into the pair that `find` chooses.
    pub(in crate::commands) fn explain(
        &self,
        opening: &Opening,
        find: impl FnOnce(&document::Comparison) -> anyhow::Result<usize>,
    ) -> anyhow::Result<document::Explained> {
        let known = Arc::new(Known::default());
        let bar = Arc::new(Measuring::new());
        let work = {
            let (comparison, opening, known, bar) = (
                self.clone(),
                opening.clone(),
                Arc::clone(&known),
                Arc::clone(&bar),
            );
            move || comparison.work(&opening, &known, &bar)
        };
        let finished = interrupt::unless_stopped(work, || bar.draw());
        bar.clear();
        let stopped = || Failure::new("stopped before the pair was examined");
        finished.ok_or_else(stopped)??;
        let (planned, report) = known
            .planned
            .get()
            .zip(known.take_report())
            .ok_or_else(stopped)?;
        let mut whole = report.document();
        let at = find(&whole)?;
        let (left, right) = (
            Side::new(&*planned.reference.source),
            Side::new(&*planned.candidate.source),
        );
        let scene = Scene::new(&planned.plan, &left, &right, &report);
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

    fn work(&self, opening: &Opening, known: &Known, bar: &Measuring) -> anyhow::Result<()> {
        if self.candidate.as_ref().is_some_and(Given::is_stdin) && self.reference.is_stdin() {
            return Err(Failure::new("standard input cannot be both sides").into());
        }
        // Both at once: what one has left to unpack at its end is not enough for all threads.
        let (reference, candidate) = rayon::join(
            || self.reference.open(opening),
            || self.candidate.as_ref().map(|given| given.open(opening)),
        );
        let reference = Arc::new(reference?);
        let candidate = candidate
            .transpose()?
            .map_or_else(|| Arc::clone(&reference), Arc::new);
        let noise = self
            .noise
            .as_ref()
            .map(|path| opening.open(path))
            .transpose()?;
        let (left, right) = (Side::new(&*reference.source), Side::new(&*candidate.source));
        let mut notes = Vec::new();
        let plan = match &self.candidate {
            Some(_) => {
                if self.exact {
                    notes.push(
                        "--exact is for one source; of two every pair is measured anyway"
                            .to_owned(),
                    );
                }
                engine::plan(&left, &right, &self.settings)?
            }
            None => {
                let (plan, missing) = plan_alone(&left, &self.settings, self.exact)?;
                if missing > 0 {
                    notes.push(format!("{missing} pairs less alike than those listed are left out; --only chooses, --exact takes all"));
                }
                plan
            }
        };
        let parts = engine::slots(&plan);
        bar.begin(bytes(&plan, &left, &right));
        let planned = Planned {
            reference: Arc::clone(&reference),
            candidate: Arc::clone(&candidate),
            plan,
            parts,
            notes,
        };
        let planned = known.planned.get_or_init(|| planned);
        engine::measure(
            &planned.plan,
            &left,
            &right,
            &self.settings,
            bar,
            &planned.parts,
        );
        if let Some(noise) = noise {
            let floors =
                engine::measured_floors(&left, &Side::new(&*noise.source), &self.settings, bar)?;
            let _ = known.floors.set(floors);
        }
        let mut report = engine::merge(
            &planned.plan,
            engine::taken(&planned.parts),
            &left,
            &right,
            &self.settings,
            known.floors.get(),
        );
        if !report.partial && self.settings.causes {
            if !planned.plan.alone {
                Causes.explain(&planned.plan, &left, &right, &mut report);
            }
        }
        *known.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        Ok(())
    }

    /// The report, or what is known of it when the work was left behind.
    fn merged(&self, planned: &Planned, known: &Known) -> Compared {
        let Planned {
            reference,
            candidate,
            plan,
            parts,
            notes,
        } = planned;
        let (left, right) = (Side::new(&*reference.source), Side::new(&*candidate.source));
        let floors = known.floors.get();
        let merge = || {
            engine::merge(
                plan,
                engine::taken(parts),
                &left,
                &right,
                &self.settings,
                floors,
            )
        };
        let mut report = known.take_report().unwrap_or_else(merge);
        let mut notes = notes.clone();
        if self.noise.is_some() && floors.is_none() {
            report.partial = true;
            notes.push(
                "stopped before the noise was measured; rounding is judged by the noise model"
                    .to_owned(),
            );
        }
        if let (Some(noise), Some(floors)) = (&self.noise, floors) {
            let (noise, pairs) = (noise.display(), &plan.pairing.pairs);
            match pairs.iter().filter(|pair| floors.contains_key(&pair.reference[0])).count() {
                0 => notes.push(format!("--noise `{noise}` has no tensor of the reference; rounding is judged by the noise model")),
                some if some < pairs.len() => {
                    let all = pairs.len();
                    notes.push(format!("--noise `{noise}` tells of {some} of {all} pairs; the others are judged by the noise model"));
                }
                _ => {}
            }
        }
        notes.extend(
            self.settings
                .used_for_nothing()
                .into_iter()
                .filter(|_| !plan.alone),
        );
        let unused = engine::unused_layouts(plan, &left, &self.settings).into_iter();
        notes.extend(unused.map(|name| {
            format!("--layout `{name}` is of no pair; pairs go by the reference's names")
        }));
        Compared {
            report: report.document(),
            map: mapfile::entries(&plan.pairing, &left, &right),
            alone: plan.alone,
            notes,
        }
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
        causes: explained.causes.iter().map(Cause::document).collect(),
        attempts: explained
            .attempts
            .into_iter()
            .map(|attempt| document::Attempt {
                hypothesis: attempt.hypothesis.to_owned(),
                kind: attempt.kind.map(str::to_owned),
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

/// How much there is to read, as the headers tell it.
fn bytes(plan: &Plan, reference: &Side<'_>, candidate: &Side<'_>) -> u64 {
    let size = |side: &Side<'_>, item: usize| {
        let item = &side.items()[item];
        let elements = item.shape.elements().unwrap_or(0);
        elements.saturating_mul(item.dtype.itemsize().unwrap_or(1) as u64)
    };
    let pairs = plan
        .pairing
        .pairs
        .iter()
        .filter(|pair| !plan.is_ranked(pair));
    let sizes = pairs.flat_map(|pair| {
        let left = pair.reference.iter().map(|item| size(reference, *item));
        left.chain(pair.candidate.iter().map(|item| size(candidate, *item)))
            .collect::<Vec<_>>()
    });
    sizes.fold(0, u64::saturating_add)
}
