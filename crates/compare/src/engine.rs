//! Plan, work, merge: one comparison in three stages that share no state.
//!
//! *Plan* pairs the sides from their headers (and sketches, where names tell nothing). *Work* lines one pair up and measures it: a
//! pure function of the plan and the sources, so it can be repeated, resumed and run elsewhere. *Merge* judges the parts in execution
//! order and never looks at a tensor, so the report does not depend on how the work was split.

use crate::{
    layout::{self, Convention, Dims, Hints, Layout, LayoutError, SideHints, Which, parse_steps},
    missing,
    noise::{Measures, angle, averaged, measures, spread},
    pairing::{self, Leftover, Pair, PairError, Pairing, Turned},
    precision::{self, Digits},
    report::{FindingReport, LeftoverReport, PairReport, Report, SkippedReport, Unmeasured},
    settings::{Rule, Settings},
    side::Side,
    verdict::{Facts, Judge, Verdict},
};
use rayon::prelude::*;
use std::{
    collections::HashMap,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};
use twinscope_measure::{Options, Profiling, Totals, totals::Incommensurable, totals_watched};
use twinscope_names::role;
use twinscope_tensor::{DType, Listing, Operand, ReadError, Shape, TensorSource, View};

/// Told what is done, asked whether to go on. Called from many threads.
pub trait Watch: Sync {
    fn measured(&self, _bytes: u64) {}

    fn stopped(&self) -> bool {
        false
    }
}

/// Nobody watches.
impl Watch for () {}

impl Plan {
    /// Whether this pair keeps its score and is not measured.
    pub fn is_ranked(&self, pair: &Pair) -> bool {
        self.alone && pair.rule == Rule::Values
    }
}

/// What one pair came to. Facts only; the opinion is formed in [`merge`].
#[derive(Clone, Debug)]
pub struct Part {
    pub layout: Option<Layout>,
    pub shape: Option<Shape>,
    /// What the values of both sides say of the dtype that they were rounded to.
    pub digits: [Digits; 2],
    /// How far apart the logits of probabilities are; 0 when it is none.
    pub spread: f64,
    pub outcome: Outcome,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    /// With the measures that its profiles gave; the profiles themselves are dropped where they are large.
    Measured(Box<Totals>, Measures),
    /// The shapes cannot be lined up.
    Incomparable(String),
    /// A side cannot be read.
    Unreadable { side: &'static str, reason: String },
    /// Stopped before its turn.
    NotReached,
    /// One of too many pairs of one source: its score comes from sketches, which were all that was read.
    Ranked,
}

impl Part {
    pub fn not_reached() -> Self {
        Self::bare(Outcome::NotReached)
    }

    fn bare(outcome: Outcome) -> Self {
        Self {
            layout: None,
            shape: None,
            digits: [Digits::Unknown; 2],
            spread: 0.0,
            outcome,
        }
    }
}

/// What to measure: the pairs, and whether they are of two sources or of one.
#[derive(Clone, Debug)]
pub struct Plan {
    pub pairing: Pairing,
    /// Every tensor of one source against every other: the candidate is the reference.
    pub alone: bool,
}

/// How many of the worst elements a pair keeps.
const TOP: usize = 10;

/// Computes causes from the values of several pairs. `compare` never names the crate that does.
pub trait Explain: Sync {
    /// Adds causes, what was inherited and what is harmless to a merged report.
    fn explain(&self, plan: &Plan, reference: &Side<'_>, candidate: &Side<'_>, report: &mut Report);
}

/// Compares two sources in this process.
pub fn compare(
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
    noise: Option<&Side<'_>>,
    explain: Option<&dyn Explain>,
    watch: &dyn Watch,
) -> Result<Report, PairError> {
    let plan = plan(reference, candidate, settings)?;
    let parts = slots(&plan);
    measure(&plan, reference, candidate, settings, watch, &parts);
    let floors = noise
        .map(|noise| measured_floors(reference, noise, settings, watch))
        .transpose()?;
    let mut report = merge(
        &plan,
        taken(&parts),
        reference,
        candidate,
        settings,
        floors.as_ref(),
    );
    // Pairs of one source do not follow from each other.
    if let Some(explain) = explain.filter(|_| !watch.stopped() && settings.causes && !plan.alone) {
        explain.explain(&plan, reference, candidate, &mut report);
    }
    Ok(report)
}

/// Whether the regexes and globs can be used at all: what can be said before a file is read.
pub fn check(settings: &Settings) -> Result<(), PairError> {
    struct Nothing(Listing);
    impl TensorSource for Nothing {
        fn listing(&self) -> &Listing {
            &self.0
        }

        fn view(&self, _: usize) -> Result<View, ReadError> {
            Err(ReadError::NoData {
                why: "there is nothing",
            })
        }
    }
    let nothing = Nothing(Listing::default());
    let side = Side::new(&nothing);
    let settings = Settings {
        rules: vec![Rule::Pattern],
        map: Vec::new(),
        ..settings.clone()
    };
    pairing::pair(&side, &side, &settings)?;
    Ok(())
}

pub fn plan(
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
) -> Result<Plan, PairError> {
    Ok(Plan {
        pairing: pairing::pair(reference, candidate, settings)?,
        alone: false,
    })
}

/// Room for what each pair of a plan comes to. Filled in any order, and readable while the others are still missing.
pub fn slots(plan: &Plan) -> Vec<OnceLock<Part>> {
    plan.pairing.pairs.iter().map(|_| OnceLock::new()).collect()
}

/// What has been filled; the others were not reached.
pub fn taken(parts: &[OnceLock<Part>]) -> Vec<Part> {
    parts
        .iter()
        .map(|part| part.get().cloned().unwrap_or_else(Part::not_reached))
        .collect()
}

/// Pairs of one source, beyond which they are judged without profiles.
const MANY: usize = 1000;

/// What differs between measuring the pairs of two sources and of one.
#[derive(Clone, Copy)]
struct Way {
    only_equal: bool,
    profiles: bool,
}

/// Measures every pair of a plan whose slot is still empty, in parallel.
pub fn measure(
    plan: &Plan,
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
    watch: &dyn Watch,
    parts: &[OnceLock<Part>],
) {
    plan.pairing
        .pairs
        .par_iter()
        .zip(parts)
        .filter(|(_, part)| part.get().is_none())
        .for_each(|(pair, part)| {
            // Forty thousand pairs with a profile for each index of each axis would not fit.
            let way = Way {
                only_equal: plan.alone,
                profiles: !plan.alone || parts.len() < MANY,
            };
            let done = match plan.is_ranked(pair) {
                true => Part::bare(Outcome::Ranked),
                false => work_with(pair, reference, candidate, settings, watch, way),
            };
            // A slot is filled once; the same work twice gives the same part.
            let _ = part.set(done);
        });
}

/// Lines one pair up and measures it.
pub fn work(
    pair: &Pair,
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
    watch: &dyn Watch,
) -> Part {
    work_with(
        pair,
        reference,
        candidate,
        settings,
        watch,
        Way {
            only_equal: false,
            profiles: true,
        },
    )
}

fn work_with(
    pair: &Pair,
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
    watch: &dyn Watch,
    way: Way,
) -> Part {
    let part = Part::bare;
    if watch.stopped() {
        return part(Outcome::NotReached);
    }
    let views = |side: &Side<'_>, items: &[usize]| -> Result<Vec<View>, String> {
        items
            .iter()
            .map(|item| {
                readable(side, *item)
                    .map_err(|reason| format!("`{}`: {reason}", side.items()[*item].name))
            })
            .collect()
    };
    let left = match views(reference, &pair.reference) {
        Ok(views) => views,
        Err(reason) => {
            return part(Outcome::Unreadable {
                side: "reference",
                reason,
            });
        }
    };
    let right = match views(candidate, &pair.candidate) {
        Ok(views) => views,
        Err(reason) => {
            return part(Outcome::Unreadable {
                side: "candidate",
                reason,
            });
        }
    };
    let aligned = match layout::align(
        &left,
        &right,
        &hints(pair, reference, candidate, settings, way.only_equal),
    ) {
        Ok(aligned) => aligned,
        Err(LayoutError::Read(error)) => {
            return part(Outcome::Unreadable {
                side: "pair",
                reason: error.to_string(),
            });
        }
        Err(error) => return part(Outcome::Incomparable(error.to_string())),
    };
    let aligned = match layout::settle(aligned, &left, &right, &|| !watch.stopped()) {
        Ok(Some(aligned)) => aligned,
        Ok(None) => return part(Outcome::NotReached),
        Err(LayoutError::Incomparable(error)) => {
            return part(Outcome::Incomparable(error.to_string()));
        }
        Err(error) => {
            return part(Outcome::Unreadable {
                side: "pair",
                reason: error.to_string(),
            });
        }
    };
    // In the order of NumPy's rule, `atol + rtol * |r|`.
    let tolerance = (settings.rtol.is_some() || settings.atol.is_some())
        .then(|| (settings.atol.unwrap_or(0.0), settings.rtol.unwrap_or(0.0)));
    let options = Options {
        profiles: if way.profiles {
            Profiling::Sampled
        } else {
            Profiling::Off
        },
        top: TOP,
        tolerance,
    };
    // A giant pair says how far it has come, and can be left in the middle.
    let (bytes, len) = (
        left.iter()
            .chain(&right)
            .filter_map(View::byte_len)
            .sum::<u64>(),
        aligned.reference.len().max(1),
    );
    let told = AtomicU64::new(0);
    let watched = |elements: u64| {
        let part = (u128::from(bytes) * u128::from(elements) / u128::from(len)) as u64;
        told.fetch_add(part, Ordering::Relaxed);
        watch.measured(part);
        !watch.stopped()
    };
    let outcome = match totals_watched(&*aligned.reference, &*aligned.candidate, &options, &watched)
    {
        Ok(None) => return part(Outcome::NotReached),
        Ok(Some(mut totals)) => {
            let found = measures(&totals);
            // The profiles of a vocabulary are megabytes, of a thousand pairs gigabytes; whoever looks at one pair measures it again.
            if totals.differing == 0
                || totals
                    .profiles
                    .iter()
                    .map(|profile| profile.error.len())
                    .sum::<usize>()
                    > KEPT_PROFILES
            {
                totals.profiles = Vec::new();
            }
            Outcome::Measured(Box::new(totals), found)
        }
        Err(ReadError::Decode(error)) if error.is::<Incommensurable>() => {
            Outcome::Incomparable(error.to_string())
        }
        Err(error) => Outcome::Unreadable {
            side: at_fault(&*aligned.reference),
            reason: error.to_string(),
        },
    };
    watch.measured(bytes.saturating_sub(told.into_inner()));
    let apart = matches!(&outcome, Outcome::Measured(totals, _) if totals.differing > 0);
    let digits = if apart {
        [
            precision::digits(&*aligned.reference),
            precision::digits(&*aligned.candidate),
        ]
    } else {
        [Digits::Unknown; 2]
    };
    let spread = if apart {
        spread(&*aligned.reference).unwrap_or(0.0)
    } else {
        0.0
    };
    Part {
        shape: Some(aligned.reference.shape().clone()),
        layout: Some(aligned.layout),
        digits,
        spread,
        outcome,
    }
}

/// Whose bytes went away while they were read: the reference's, when they are still not there, else the candidate's.
fn at_fault(reference: &dyn Operand) -> &'static str {
    if reference.check().is_err() {
        "reference"
    } else {
        "candidate"
    }
}

/// Indices of all axes together up to which a pair keeps its profiles.
const KEPT_PROFILES: usize = 4096;

/// A view by stride 0 can claim any number of values. As many times what it holds, and as many bytes, are still read.
const TIMES: u64 = 16;
const CLAIMED: u64 = 16 << 30;

fn readable(side: &Side<'_>, item: usize) -> Result<View, String> {
    let view = side.view(item).map_err(|error| error.to_string())?;
    let claimed = view.byte_len().unwrap_or(u64::MAX);
    if claimed > CLAIMED && claimed > view.stored_len().saturating_mul(TIMES) {
        return Err(format!(
            "it claims {} values over {} bytes of data",
            view.len(),
            view.stored_len()
        ));
    }
    Ok(view)
}

/// What the user and the sources say about how a pair lies.
fn hints(
    pair: &Pair,
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
    only_equal: bool,
) -> Hints {
    let dims = |side: &Side<'_>, item: usize| {
        let said = side.items()[item].meta.as_ref()?.get("dims")?.as_str()?;
        said.parse::<Dims>().ok()
    };
    let side = |side: &Side<'_>, items: &[usize]| SideHints {
        dims: dims(side, items[0]),
        parts: pairing::kind_of_parts(pair.rule, items.iter().map(|item| &side.items()[*item])),
        ranks: pairing::axes(side, items),
    };
    let name = &reference.items()[pair.reference[0]].name;
    // A glob or steps that cannot be read were refused when the settings were checked.
    let chosen = settings.layouts.iter().find(|entry| {
        globset::Glob::new(&entry.name).is_ok_and(|glob| glob.compile_matcher().is_match(name))
    });
    Hints {
        user: chosen.and_then(|entry| parse_steps(&entry.steps).ok()),
        reference: side(reference, &pair.reference),
        candidate: side(candidate, &pair.candidate),
        only_equal,
        convention: match pair.turned {
            Turned::Surely => Some(Convention::AllTurned),
            Turned::Perhaps => Some(Convention::Turned),
            Turned::No => convention(name, &candidate.items()[pair.candidate[0]].name),
        },
    }
}

/// How one family writes what the other writes otherwise, in the same shape.
fn convention(reference: &str, candidate: &str) -> Option<Convention> {
    let kernels = [reference, candidate].map(role::is_kernel);
    let (interleaved, fused) = (role::is_interleaved_qkv, role::is_fused_qkv);
    match [interleaved(reference), interleaved(candidate)] {
        [true, false] if fused(candidate) => Some(Convention::Interleaved(Which::Reference)),
        [false, true] if fused(reference) => Some(Convention::Interleaved(Which::Candidate)),
        _ if kernels[0] != kernels[1] => Some(Convention::Turned),
        _ => None,
    }
}

/// The layouts of the settings that no pair is named by: a typing mistake, for nothing else would tell.
pub fn unused_layouts<'s>(
    plan: &Plan,
    reference: &Side<'_>,
    settings: &'s Settings,
) -> Vec<&'s str> {
    let names = |glob: &globset::GlobMatcher| {
        plan.pairing
            .pairs
            .iter()
            .any(|pair| glob.is_match(&reference.items()[pair.reference[0]].name))
    };
    let unused =
        |name: &&str| globset::Glob::new(name).is_ok_and(|glob| !names(&glob.compile_matcher()));
    settings
        .layouts
        .iter()
        .map(|entry| entry.name.as_str())
        .filter(unused)
        .collect()
}

/// The measures of a repeat or higher-precision run against the reference, by reference item.
pub fn measured_floors(
    reference: &Side<'_>,
    noise: &Side<'_>,
    settings: &Settings,
    watch: &dyn Watch,
) -> Result<HashMap<usize, Measures>, PairError> {
    let plan = pairing::pair(reference, noise, settings)?;
    let measured = plan.pairs.par_iter().filter_map(|pair| {
        match work(pair, reference, noise, settings, watch).outcome {
            Outcome::Measured(_, measures) => Some((pair.reference[0], measures)),
            Outcome::Incomparable(_)
            | Outcome::Unreadable { .. }
            | Outcome::NotReached
            | Outcome::Ranked => None,
        }
    });
    Ok(measured.collect())
}

/// Judges the parts in execution order.
pub fn merge(
    plan: &Plan,
    parts: Vec<Part>,
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
    floors: Option<&HashMap<usize, Measures>>,
) -> Report {
    let Plan {
        pairing: plan,
        alone,
    } = plan;
    let mut report = Report {
        reference: reference.source().listing().source.clone(),
        candidate: candidate.source().listing().source.clone(),
        partial: false,
        layer_offset: plan.layer_offset,
        // Pairs of one source are no run beside another.
        computed_in: std::array::from_fn(|side| {
            precision::of_run(parts.iter().map(|part| part.digits[side])).filter(|_| !alone)
        }),
        pairs: Vec::with_capacity(parts.len()),
        only_reference: leftovers(&plan.only_reference, reference, candidate),
        only_candidate: leftovers(&plan.only_candidate, candidate, reference),
        skipped: Vec::new(),
        findings: Vec::new(),
        left_out: Vec::new(),
    };
    // The candidate of one source alone is itself: what is wrong with it is said once.
    let sides = &[(reference, "reference"), (candidate, "candidate")][..if *alone { 1 } else { 2 }];
    for (side, name) in sides.iter().copied() {
        let listing = side.source().listing();
        report
            .skipped
            .extend(listing.skipped.iter().map(|skipped| SkippedReport {
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
    for (items, (side, name)) in plan.left_out.iter().zip(sides.iter().copied()) {
        let left_out = items.iter().map(|item| SkippedReport {
            side: name,
            name: side.items()[*item].name.clone(),
            reason: "left out by --only or --skip".to_owned(),
        });
        report.left_out.extend(left_out);
    }
    let mut judge = Judge::default();
    let mut longest = 0;
    // What is a partner of a parameter is one.
    let checkpoints = is_checkpoint(reference) || is_checkpoint(candidate);
    for (pair, part) in plan.pairs.iter().zip(parts) {
        if *alone {
            // Pairs of one source follow from each other in no way.
            (judge, longest) = (Judge::default(), 0);
        }
        let names = |side: &Side<'_>, items: &[usize]| -> Vec<String> {
            items
                .iter()
                .map(|item| side.items()[*item].name.clone())
                .collect()
        };
        let (left, right) = (
            names(reference, &pair.reference),
            names(candidate, &pair.candidate),
        );
        let first = &reference.items()[pair.reference[0]];
        let parameter = checkpoints || is_parameter(first);
        let dtypes = [first.dtype, candidate.items()[pair.candidate[0]].dtype];
        // An element may be a sum over any dimension seen so far: hidden size, heads, sequence.
        longest = longest.max(
            first
                .shape
                .dims()
                .iter()
                .copied()
                .max()
                .unwrap_or(0)
                .min(LONGEST_SUM),
        );
        let mut judged = PairReport {
            name: whole_name(&left),
            reference: left,
            candidate: right,
            rule: pair.rule,
            score: pair.score,
            layout: part.layout,
            shape: part.shape,
            dtypes,
            judged_by: precision::judged_by(dtypes, part.digits, report.computed_in),
            verdict: Verdict::Incomparable,
            agrees_at: None,
            origin: None,
            totals: None,
            causes: Vec::new(),
            noise: [0.0; 4],
            measures: [0.0; 4],
            parameter,
            unmeasured: None,
            reason: None,
        };
        let mut lacks =
            |why, reason| (judged.unmeasured, judged.reason) = (Some(why), Some(reason));
        match part.outcome {
            Outcome::Measured(totals, measures) => {
                let facts = Facts {
                    totals: &totals,
                    measures,
                    dtypes: judged.judged_by,
                    reduction: longest.max(averaged(&judged.reference[0])),
                    spread: part.spread,
                    // Parameters are not computed from positions.
                    angle: if parameter {
                        0.0
                    } else {
                        angle(
                            &[&judged.reference[0], &judged.candidate[0]],
                            first.shape.dims(),
                        )
                    },
                    parameter,
                    measured_floor: floors
                        .and_then(|floors| floors.get(&pair.reference[0]).copied()),
                    tolerance: settings.rtol.is_some() || settings.atol.is_some(),
                };
                judged.noise = judge.noise(&facts);
                judged.measures = measures;
                (judged.verdict, judged.origin) = judge.judge(&facts);
                judged.totals = Some(*totals);
            }
            Outcome::Incomparable(reason) => lacks(Unmeasured::Shapes, reason),
            Outcome::Unreadable { side, reason } => lacks(
                Unmeasured::Unreadable,
                format!("the {side} cannot be read: {reason}"),
            ),
            Outcome::NotReached => {
                report.partial = true;
                lacks(
                    Unmeasured::Stopped,
                    "stopped before it was measured".to_owned(),
                );
            }
            Outcome::Ranked => lacks(
                Unmeasured::Ranked,
                "ranked by a sketch of its values; --exact measures every pair".to_owned(),
            ),
        }
        report.pairs.push(judged);
    }
    if !*alone {
        report.findings.extend(missing::findings(
            &plan.pairs,
            &report.pairs,
            [reference, candidate],
        ));
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
    role::is_parameter(&item.name)
}

/// A checkpoint: every name is a parameter's. Stacks of experts (`experts.down_proj`, `w13_weight`) and what else a model keeps are, where
/// nothing is there that was computed; beside activations, `topk_weight` would be one.
fn is_checkpoint(side: &Side<'_>) -> bool {
    let told = |item: &crate::side::Item| {
        item.meta
            .as_ref()
            .is_some_and(|meta| meta.get("role").is_some() || meta.get("param").is_some())
    };
    let items = side.items();
    items.iter().any(is_parameter)
        && items.iter().all(|item| {
            !told(item) && (is_parameter(item) || role::is_kept_in_checkpoints(&item.name))
        })
}

fn leftovers(left: &[Leftover], side: &Side<'_>, other: &Side<'_>) -> Vec<LeftoverReport> {
    left.iter()
        .map(|leftover| LeftoverReport {
            name: side.items()[leftover.item].name.clone(),
            suggestion: leftover
                .suggestion
                .map(|item| other.items()[item].name.clone()),
            score: leftover.score,
        })
        .collect()
}

/// The dtypes of a pair, for messages.
pub fn dtype_text(dtypes: [DType; 2]) -> String {
    if dtypes[0] == dtypes[1] {
        dtypes[0].to_string()
    } else {
        format!("{} / {}", dtypes[0], dtypes[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan_alone, report::Overall};
    use std::sync::{Mutex, atomic::AtomicUsize};
    use twinscope_tensor::TensorInfo;

    struct Source(Listing);

    impl TensorSource for Source {
        fn listing(&self) -> &Listing {
            &self.0
        }

        fn view(&self, index: usize) -> Result<View, ReadError> {
            let info = &self.0.tensors[index];
            if info.name == "lost" {
                return Err(ReadError::NoData { why: "a test" });
            }
            let count = info.shape.elements().unwrap_or(0);
            let bytes: Vec<u8> = (0..count)
                .flat_map(|n| (n as f32 + 1.0).to_le_bytes())
                .collect();
            Ok(View::new(info.dtype, info.shape.clone(), bytes.into())?)
        }
    }

    fn source(tensors: &[(&str, &[u64])]) -> Source {
        let info = |(name, dims): &(&str, &[u64])| TensorInfo {
            name: (*name).to_owned(),
            dtype: DType::F32,
            shape: Shape::new(*dims),
            bytes: None,
            meta: None,
        };
        Source(Listing {
            tensors: tensors.iter().map(info).collect(),
            ..Listing::default()
        })
    }

    /// Stops after a number of pairs.
    struct Patience(AtomicUsize);

    impl Watch for Patience {
        fn stopped(&self) -> bool {
            self.0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
                .is_err()
        }
    }

    #[test]
    fn stopped_early_the_report_is_partial_and_keeps_every_pair() {
        let source = source(&[("0_query", &[4]), ("0_key", &[4]), ("0_value", &[4])]);
        let side = Side::new(&source);
        let report = compare(
            &side,
            &side,
            &Settings::default(),
            None,
            None,
            &Patience(AtomicUsize::new(1)),
        )
        .unwrap();
        assert!(report.partial);
        assert_eq!(report.pairs.len(), 3);
        let reached = report
            .pairs
            .iter()
            .filter(|pair| pair.verdict == Verdict::Identical)
            .count();
        let stopped = report
            .pairs
            .iter()
            .filter(|pair| pair.unmeasured == Some(Unmeasured::Stopped))
            .count();
        assert_eq!((reached, stopped), (1, 2));
    }

    #[test]
    fn a_giant_pair_says_how_far_it_is_and_is_left_in_the_middle() {
        struct Steps(Mutex<Vec<u64>>, usize);
        impl Watch for Steps {
            fn measured(&self, bytes: u64) {
                self.0.lock().unwrap().push(bytes);
            }

            fn stopped(&self) -> bool {
                self.0.lock().unwrap().len() >= self.1
            }
        }
        let source = source(&[("0_query", &[10, 1 << 16])]);
        let side = Side::new(&source);
        let whole = Steps(Mutex::default(), usize::MAX);
        let report = compare(&side, &side, &Settings::default(), None, None, &whole).unwrap();
        let steps = whole.0.into_inner().unwrap();
        assert!(
            !report.partial && steps.len() >= 10,
            "{} steps",
            steps.len()
        );
        assert_eq!(
            steps.iter().sum::<u64>(),
            2 * 10 * (4 << 16),
            "every byte of both sides, once"
        );
        let stopped = Steps(Mutex::default(), 2);
        let report = compare(&side, &side, &Settings::default(), None, None, &stopped).unwrap();
        assert_eq!(
            (report.partial, report.pairs[0].unmeasured),
            (true, Some(Unmeasured::Stopped))
        );
        assert!(
            stopped.0.into_inner().unwrap().len() < 10,
            "left in the middle"
        );
    }

    #[test]
    fn what_cannot_be_read_is_incomparable_and_hides_nothing() {
        let source = source(&[("0_query", &[4]), ("lost", &[4])]);
        let side = Side::new(&source);
        let report = compare(&side, &side, &Settings::default(), None, None, &()).unwrap();
        let lost = report
            .pairs
            .iter()
            .find(|pair| pair.name == "lost")
            .unwrap();
        assert_eq!(
            (lost.verdict, lost.unmeasured),
            (Verdict::Incomparable, Some(Unmeasured::Unreadable))
        );
        assert_eq!(
            (report.pairs.len(), report.verdict()),
            (2, Overall::Incomparable)
        );
    }

    #[test]
    fn of_a_checkpoint_every_tensor_is_a_parameter_and_of_a_run_only_what_is_called_so() {
        let parameters = |names: &[(&str, &[u64])]| {
            let source = source(names);
            let side = Side::new(&source);
            let report = compare(&side, &side, &Settings::default(), None, None, &()).unwrap();
            report
                .pairs
                .iter()
                .map(|pair| pair.parameter)
                .collect::<Vec<_>>()
        };
        let stack: (&str, &[u64]) = ("model.layers.0.mlp.experts.w2_weight", &[4]);
        let weight: (&str, &[u64]) = ("model.layers.0.self_attn.o_proj.weight", &[4]);
        assert_eq!(parameters(&[weight, stack]), [true, true]);
        assert_eq!(
            parameters(&[weight, ("model.layers.0.mlp.experts.down_proj", &[4])]),
            [true, true]
        );
        assert_eq!(
            parameters(&[weight, ("topk_weight", &[4]), ("logits", &[4])]),
            [true, false, false]
        );
        assert_eq!(
            parameters(&[weight, ("model.layers.0.self_attn.o_proj", &[4])]),
            [true, false],
            "the output of a module"
        );
        assert_eq!(
            parameters(&[
                weight,
                ("visual.positional_embedding", &[4]),
                ("onnx::MatMul_12", &[4])
            ]),
            [true, true, true]
        );
        assert_eq!(
            parameters(&[weight, ("attn_weights", &[4])]),
            [true, false],
            "probabilities"
        );
        assert_eq!(
            parameters(&[
                weight,
                ("grad.fc1.weight", &[4]),
                ("exp_avg.fc1.weight", &[4])
            ]),
            [true, false, false],
            "a training step"
        );
    }

    #[test]
    fn names_say_how_equal_shapes_are_written() {
        let [packed, plain] = [
            "decoder.layers.0.self_attention.linear_qkv.weight",
            "model.layers.0.self_attn.qkv_proj.weight",
        ];
        assert_eq!(
            convention(packed, plain),
            Some(Convention::Interleaved(Which::Reference))
        );
        assert_eq!(
            convention(plain, packed),
            Some(Convention::Interleaved(Which::Candidate))
        );
        assert_eq!(
            (convention(packed, packed), convention(plain, plain)),
            (None, None)
        );
        assert_eq!(
            convention("a.dense.weight", "params/a/dense/kernel"),
            Some(Convention::Turned)
        );
        assert_eq!(convention("a/kernel", "b/kernel"), None);
        assert_eq!(
            convention(packed, "h/0/attn/c_attn/kernel"),
            Some(Convention::Interleaved(Which::Reference)),
            "the shapes tell the rest"
        );
        assert_eq!(
            convention("a.dense.weight", "a/dense/kernel:0"),
            Some(Convention::Turned),
            "TensorFlow's first output"
        );
    }

    #[test]
    fn many_tensors_alone_are_ranked_and_the_best_measured() {
        let names: Vec<String> = (0..30).map(|n| format!("t{n}")).collect();
        let mut tensors: Vec<(&str, &[u64])> = names
            .iter()
            .map(|name| (name.as_str(), &[16u64][..]))
            .collect();
        tensors.push(("wide", &[4, 4]));
        let source = source(&tensors);
        let side = Side::new(&source);
        let kinds = |exact: bool| {
            let (plan, missing) = plan_alone(&side, &Settings::default(), exact).unwrap();
            let parts = slots(&plan);
            measure(&plan, &side, &side, &Settings::default(), &(), &parts);
            let report = merge(
                &plan,
                taken(&parts),
                &side,
                &side,
                &Settings::default(),
                None,
            );
            let count = |why| {
                report
                    .pairs
                    .iter()
                    .filter(|pair| pair.unmeasured == why)
                    .count()
            };
            (
                missing,
                count(None),
                count(Some(Unmeasured::Shapes)),
                count(Some(Unmeasured::Ranked)),
            )
        };
        assert_eq!(kinds(false), (0, 200, 30, 235));
        assert_eq!(kinds(true), (0, 435, 30, 0));
    }
}
