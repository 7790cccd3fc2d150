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
    sync::{Arc, OnceLock},
};
use twinscope_compare::{
    Report, Settings, Side, engine,
    engine::{Part, Plan},
    mapfile,
    noise::Measures,
    plan_alone,
    settings::MapEntry,
};

/// What to compare and how.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub(super) reference: PathBuf,
    /// `None`: every tensor of the reference against every other.
    pub(super) candidate: Option<PathBuf>,
    pub(super) noise: Option<PathBuf>,
    pub(super) settings: Settings,
    pub(super) exact: bool,
}

/// What it came to.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) report: Report,
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
            let (comparison, opening, known, bar) = (self.clone(), opening.clone(), Arc::clone(&known), Arc::clone(&bar));
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
        Ok(self.merged(planned, known.floors.get()))
    }

    fn work(&self, opening: &Opening, known: &Known, bar: &Measuring) -> anyhow::Result<()> {
        if self.candidate.as_deref().is_some_and(is_stdin) && is_stdin(&self.reference) {
            return Err(Failure::new("standard input cannot be both sides").into());
        }
        let reference = Arc::new(opening.open(&self.reference)?);
        let candidate = match &self.candidate {
            Some(path) => Arc::new(opening.open(path)?),
            None => Arc::clone(&reference),
        };
        let noise = self.noise.as_ref().map(|path| opening.open(path)).transpose()?;
        let (left, right) = (Side::new(&*reference.source), Side::new(&*candidate.source));
        let mut notes = Vec::new();
        let plan = match &self.candidate {
            Some(_) => engine::plan(&left, &right, &self.settings)?,
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
        let planned = Planned { reference: Arc::clone(&reference), candidate: Arc::clone(&candidate), plan, parts, notes };
        let planned = known.planned.get_or_init(|| planned);
        engine::measure(&planned.plan, &left, &right, &self.settings, bar, &planned.parts);
        if let Some(noise) = noise {
            let floors = engine::measured_floors(&left, &Side::new(&*noise.source), &self.settings, bar)?;
            let _ = known.floors.set(floors);
        }
        Ok(())
    }

    fn merged(&self, planned: &Planned, floors: Option<&HashMap<usize, Measures>>) -> Compared {
        let Planned { reference, candidate, plan, parts, notes } = planned;
        let (left, right) = (Side::new(&*reference.source), Side::new(&*candidate.source));
        let mut report = engine::merge(plan, engine::taken(parts), &left, &right, &self.settings, floors);
        let mut notes = notes.clone();
        if self.noise.is_some() && floors.is_none() {
            report.partial = true;
            notes.push("stopped before the noise was measured; rounding is judged by the noise model".to_owned());
        }
        Compared { report, map: mapfile::entries(&plan.pairing, &left, &right), alone: plan.alone, notes }
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// How much there is to read, as the headers tell it.
fn bytes(plan: &Plan, reference: &Side<'_>, candidate: &Side<'_>) -> u64 {
    let size = |side: &Side<'_>, item: usize| {
        let item = &side.items()[item];
        let elements = item.shape.elements().unwrap_or(0);
        elements.saturating_mul(item.dtype.itemsize().unwrap_or(1) as u64)
    };
    let pairs = plan.pairing.pairs.iter().filter(|pair| !plan.is_ranked(pair));
    let sizes = pairs.flat_map(|pair| {
        let left = pair.reference.iter().map(|item| size(reference, *item));
        left.chain(pair.candidate.iter().map(|item| size(candidate, *item))).collect::<Vec<_>>()
    });
    sizes.fold(0, u64::saturating_add)
}
