//! Plan, work, merge: one comparison in three stages that share no state.
//!
//! *Plan* pairs the sides from their headers (and sketches, where names tell nothing). *Work* lines one pair up and measures it: a
//! pure function of the plan and the sources, so it can be repeated, resumed and run elsewhere. *Merge* judges the parts in execution
//! order and never looks at a tensor, so the report does not depend on how the work was split.

use crate::{
    layout::{self, Dims, Hints, Layout, LayoutError, SideHints, parse_steps},
    noise::{Measures, measures},
    pairing::{self, Leftover, Pair, PairError, Pairing},
    report::{FindingReport, LeftoverReport, PairReport, Report, SkippedReport},
    settings::Settings,
    side::Side,
    verdict::{Facts, Judge, Verdict},
};
use rayon::prelude::*;
use std::collections::HashMap;
use twinscope_measure::{Options, Totals, totals};
use twinscope_tensor::{DType, Shape, View};

/// Told what is done, asked whether to go on. Called from many threads.
pub trait Watch: Sync {
    fn measured(&self, _bytes: u64) {}

    fn stopped(&self) -> bool {
        false
    }
}

/// Nobody watches.
impl Watch for () {}

/// What one pair came to. Facts only; the opinion is formed in [`merge`].
#[derive(Clone, Debug)]
pub struct Part {
    pub layout: Option<Layout>,
    pub shape: Option<Shape>,
    pub outcome: Outcome,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Measured(Box<Totals>),
    /// The shapes cannot be lined up.
    Incomparable(String),
    /// A side cannot be read.
    Unreadable {
        side: &'static str,
        reason: String,
    },
    /// Stopped before its turn.
    NotReached,
}

/// How many of the worst elements a pair keeps.
const TOP: usize = 10;

/// Compares two sources in this process.
pub fn compare(
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
    noise: Option<&Side<'_>>,
    watch: &dyn Watch,
) -> Result<Report, PairError> {
    let plan = pairing::pair(reference, candidate, settings)?;
    let parts: Vec<Part> = plan.pairs.par_iter().map(|pair| work(pair, reference, candidate, settings, watch)).collect();
    let floors = noise.map(|noise| measured_floors(reference, noise, settings, watch)).transpose()?;
    Ok(merge(&plan, parts, reference, candidate, settings, floors.as_ref()))
}

/// Lines one pair up and measures it.
pub fn work(pair: &Pair, reference: &Side<'_>, candidate: &Side<'_>, settings: &Settings, watch: &dyn Watch) -> Part {
    let part = |outcome| Part { layout: None, shape: None, outcome };
    if watch.stopped() {
        return part(Outcome::NotReached);
    }
    let views = |side: &Side<'_>, items: &[usize]| -> Result<Vec<View>, String> {
        items.iter().map(|item| side.view(*item).map_err(|error| format!("`{}`: {error}", side.items()[*item].name))).collect()
    };
    let left = match views(reference, &pair.reference) {
        Ok(views) => views,
        Err(reason) => return part(Outcome::Unreadable { side: "reference", reason }),
    };
    let right = match views(candidate, &pair.candidate) {
        Ok(views) => views,
        Err(reason) => return part(Outcome::Unreadable { side: "candidate", reason }),
    };
    let aligned = match layout::align(&left, &right, &hints(pair, reference, candidate, settings)) {
        Ok(aligned) => aligned,
        Err(LayoutError::Read(error)) => return part(Outcome::Unreadable { side: "pair", reason: error.to_string() }),
        Err(error) => return part(Outcome::Incomparable(error.to_string())),
    };
    let tolerance =
        (settings.rtol.is_some() || settings.atol.is_some()).then(|| (settings.rtol.unwrap_or(0.0), settings.atol.unwrap_or(0.0)));
    let outcome = match totals(&*aligned.reference, &*aligned.candidate, &Options { profiles: true, top: TOP, tolerance }) {
        Ok(totals) => Outcome::Measured(Box::new(totals)),
        Err(error) => Outcome::Unreadable { side: "candidate", reason: error.to_string() },
    };
    watch.measured(left.iter().chain(&right).filter_map(View::byte_len).sum());
    Part { shape: Some(aligned.reference.shape().clone()), layout: Some(aligned.layout), outcome }
}

/// What the user and the sources say about how a pair lies.
fn hints(pair: &Pair, reference: &Side<'_>, candidate: &Side<'_>, settings: &Settings) -> Hints {
    let dims = |side: &Side<'_>, item: usize| {
        let said = side.items()[item].meta.as_ref()?.get("dims")?.as_str()?;
        said.parse::<Dims>().ok()
    };
    let side = |side: &Side<'_>, items: &[usize]| SideHints { dims: dims(side, items[0]), ..SideHints::default() };
    let name = &reference.items()[pair.reference[0]].name;
    // A glob or steps that cannot be read were refused when the settings were checked.
    let chosen =
        settings.layouts.iter().find(|entry| globset::Glob::new(&entry.name).is_ok_and(|glob| glob.compile_matcher().is_match(name)));
    Hints {
        user: chosen.and_then(|entry| parse_steps(&entry.steps).ok()),
        reference: side(reference, &pair.reference),
        candidate: side(candidate, &pair.candidate),
        only_equal: false,
    }
}

/// The measures of a repeat or higher-precision run against the reference, by reference item.
fn measured_floors(
    reference: &Side<'_>,
    noise: &Side<'_>,
    settings: &Settings,
    watch: &dyn Watch,
) -> Result<HashMap<usize, Measures>, PairError> {
    let plan = pairing::pair(reference, noise, settings)?;
    let measured = plan.pairs.par_iter().filter_map(|pair| match work(pair, reference, noise, settings, watch).outcome {
        Outcome::Measured(totals) => Some((pair.reference[0], measures(&totals))),
        Outcome::Incomparable(_) | Outcome::Unreadable { .. } | Outcome::NotReached => None,
    });
    Ok(measured.collect())
}

/// Judges the parts in execution order.
pub fn merge(
    plan: &Pairing,
    parts: Vec<Part>,
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
    floors: Option<&HashMap<usize, Measures>>,
) -> Report {
    let mut report = Report {
        reference: reference.source().listing().source.clone(),
        candidate: candidate.source().listing().source.clone(),
        partial: false,
        layer_offset: plan.layer_offset,
        pairs: Vec::with_capacity(parts.len()),
        only_reference: leftovers(&plan.only_reference, reference, candidate),
        only_candidate: leftovers(&plan.only_candidate, candidate, reference),
        skipped: Vec::new(),
        findings: Vec::new(),
        left_out: Vec::new(),
    };
    for (side, name) in [(reference, "reference"), (candidate, "candidate")] {
        let listing = side.source().listing();
        report.skipped.extend(listing.skipped.iter().map(|skipped| SkippedReport {
            side: name,
            name: skipped.name.clone(),
            reason: skipped.reason.clone(),
        }));
        let findings = listing.findings.iter();
        report.findings.extend(findings.map(|f| FindingReport {
            side: name,
            kind: f.kind.name(),
            text: f.text.clone(),
            attack: f.kind.is_attack(),
        }));
    }
    for (items, (side, name)) in plan.left_out.iter().zip([(reference, "reference"), (candidate, "candidate")]) {
        let left_out = items.iter().map(|item| SkippedReport {
            side: name,
            name: side.items()[*item].name.clone(),
            reason: "left out by --only or --skip".to_owned(),
        });
        report.left_out.extend(left_out);
    }
    let mut judge = Judge::default();
    let mut longest = 0;
    for (pair, part) in plan.pairs.iter().zip(parts) {
        let names =
            |side: &Side<'_>, items: &[usize]| -> Vec<String> { items.iter().map(|item| side.items()[*item].name.clone()).collect() };
        let (left, right) = (names(reference, &pair.reference), names(candidate, &pair.candidate));
        let first = &reference.items()[pair.reference[0]];
        let dtypes = [first.dtype, candidate.items()[pair.candidate[0]].dtype];
        // An element may be a sum over any dimension seen so far: hidden size, heads, sequence.
        longest = longest.max(first.shape.dims().iter().copied().max().unwrap_or(0).min(LONGEST_SUM));
        let mut judged = PairReport {
            name: whole_name(&left),
            reference: left,
            candidate: right,
            rule: pair.rule,
            score: pair.score,
            layout: part.layout,
            shape: part.shape,
            dtypes,
            verdict: Verdict::Incomparable,
            agrees_at: None,
            origin: None,
            totals: None,
            causes: Vec::new(),
            reason: None,
        };
        match part.outcome {
            Outcome::Measured(totals) => {
                let facts = Facts {
                    totals: &totals,
                    dtypes,
                    reduction: longest,
                    parameter: is_parameter(first),
                    measured_floor: floors.and_then(|floors| floors.get(&pair.reference[0]).copied()),
                    tolerance: settings.rtol.is_some() || settings.atol.is_some(),
                };
                (judged.verdict, judged.origin) = judge.judge(&facts);
                judged.totals = Some(*totals);
            }
            Outcome::Incomparable(reason) => judged.reason = Some(reason),
            Outcome::Unreadable { side, reason } => judged.reason = Some(format!("the {side} cannot be read: {reason}")),
            Outcome::NotReached => {
                report.partial = true;
                judged.reason = Some("stopped before it was measured".to_owned());
            }
        }
        report.pairs.push(judged);
    }
    report
}

/// Vocabulary-sized dimensions are looked up, not summed over.
const LONGEST_SUM: u64 = 32_768;

/// The name of a pair is the reference's; of several parts, what they have in common.
fn whole_name(parts: &[String]) -> String {
    parts.first().cloned().unwrap_or_default()
}

/// A parameter is loaded, not computed: by what the source says of it, else by its name.
fn is_parameter(item: &crate::side::Item) -> bool {
    let said = |key: &str| item.meta.as_ref().and_then(|meta| meta.get(key));
    if let Some(role) = said("role").and_then(|role| role.as_str()) {
        return role == "param";
    }
    if said("param").is_some_and(|param| param == true) {
        return true;
    }
    let last = item.name.rsplit(['.', '/', ':']).next().unwrap_or_default();
    matches!(
        last,
        "weight" | "bias" | "kernel" | "gamma" | "beta" | "embedding" | "running_mean" | "running_var" | "weight_scale" | "qweight"
    )
}

fn leftovers(left: &[Leftover], side: &Side<'_>, other: &Side<'_>) -> Vec<LeftoverReport> {
    left.iter()
        .map(|leftover| LeftoverReport {
            name: side.items()[leftover.item].name.clone(),
            suggestion: leftover.suggestion.map(|item| other.items()[item].name.clone()),
            score: leftover.score,
        })
        .collect()
}

/// The dtypes of a pair, for messages.
pub fn dtype_text(dtypes: [DType; 2]) -> String {
    if dtypes[0] == dtypes[1] { dtypes[0].to_string() } else { format!("{} / {}", dtypes[0], dtypes[1]) }
}
