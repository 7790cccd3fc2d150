//! The one driver of a comparison: plan, work, explain, judge.
//!
//! One thread calls [`Job::run`]; any other may ask for the progress, take what is known so far as a partial report, or stop it. The
//! command line, the server, the demo and the tests all go through here.

use crate::{
    evidence::Explain,
    facts,
    judged::Judged,
    noise::Measures,
    pairing::{Pair, PairError},
    plan::{self, Plan},
    plan_alone,
    settings::Settings,
    side::Side,
    upstream::{self, Level},
    verdict,
    work::{self, Outcome, Part, Watch},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};
use twinscope_tensor::TensorSource;

/// What is compared.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    pub reference: &'a dyn TensorSource,
    /// `None` compares every tensor of the reference with every other.
    pub candidate: Option<&'a dyn TensorSource>,
    /// A repeat or higher-precision run of the reference: its differences are rounding.
    pub noise: Option<&'a dyn TensorSource>,
}

impl<'a> Sources<'a> {
    pub fn two(reference: &'a dyn TensorSource, candidate: &'a dyn TensorSource) -> Self {
        Self {
            reference,
            candidate: Some(candidate),
            noise: None,
        }
    }

    pub fn alone(reference: &'a dyn TensorSource) -> Self {
        Self {
            reference,
            candidate: None,
            noise: None,
        }
    }

    /// The candidate, or the reference once more.
    fn other(&self) -> &'a dyn TensorSource {
        self.candidate.unwrap_or(self.reference)
    }
}

impl std::fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |source: &dyn TensorSource| source.listing().source.clone();
        f.debug_struct("Sources")
            .field("reference", &name(self.reference))
            .field("candidate", &self.candidate.map(name))
            .field("noise", &self.noise.map(name))
            .finish()
    }
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Planning,
    Measuring,
    Explaining,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    /// Pairs that are measured, and all of them; 0 before the plan is known.
    pub pairs: usize,
    pub pairs_total: usize,
    /// Pairs taken over from an earlier job.
    pub pairs_reused: usize,
    /// Bytes read for measuring, and what the headers say there is to read.
    pub bytes: u64,
    pub bytes_total: u64,
}

/// The plan of a job and room for what each pair comes to.
#[derive(Debug)]
struct Planned {
    plan: Plan,
    /// Filled in any order, readable while others are still missing.
    parts: Vec<OnceLock<Part>>,
    /// The reference against the run for noise.
    noise: Option<Plan>,
    reused: usize,
    bytes: u64,
    /// Pairs of one source that were too many to list.
    unlisted: u64,
}

/// One comparison: what to do, and what is known of it so far.
#[derive(Debug)]
pub struct Job {
    settings: Settings,
    /// Of one source, measure every pair, however many there are.
    exact: bool,
    /// Taken when the plan is made, so that a chain of edits keeps one earlier job and not all of them.
    earlier: Mutex<Option<Arc<Job>>>,
    stopped: AtomicBool,
    phase: AtomicU8,
    bytes: AtomicU64,
    planned: OnceLock<Planned>,
    floors: OnceLock<HashMap<usize, Measures>>,
    judged: OnceLock<Judged>,
}

impl Watch for Job {
    fn measured(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

impl Job {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            exact: false,
            earlier: Mutex::default(),
            stopped: AtomicBool::new(false),
            phase: AtomicU8::new(Phase::Planning as u8),
            bytes: AtomicU64::new(0),
            planned: OnceLock::new(),
            floors: OnceLock::new(),
            judged: OnceLock::new(),
        }
    }

    /// Measures every pair of one source, however many there are.
    pub fn exact(self, exact: bool) -> Self {
        Self { exact, ..self }
    }

    /// Takes over the parts that an earlier job on the same sources measured in the same way.
    pub fn reusing(self, earlier: Option<Arc<Job>>) -> Self {
        Self {
            earlier: Mutex::new(earlier),
            ..self
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Ends the job soon, in whichever phase it is. What is known by then stays known.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped()
    }

    pub fn progress(&self) -> Progress {
        let phase = match self.phase.load(Ordering::Relaxed) {
            phase if phase == Phase::Planning as u8 => Phase::Planning,
            phase if phase == Phase::Measuring as u8 => Phase::Measuring,
            _ => Phase::Explaining,
        };
        let planned = self.planned.get();
        let measured = |planned: &Planned| {
            let parts = planned.parts.iter();
            parts.filter(|part| part.get().is_some()).count()
        };
        Progress {
            phase,
            pairs: planned.map_or(0, measured),
            pairs_total: planned.map_or(0, |planned| planned.parts.len()),
            pairs_reused: planned.map_or(0, |planned| planned.reused),
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: planned.map_or(0, |planned| planned.bytes),
        }
    }

    /// The plan, once it is made.
    pub fn plan(&self) -> Option<&Plan> {
        self.planned.get().map(|planned| &planned.plan)
    }

    /// Pairs of one source that the plan left out because they were too many.
    pub fn unlisted(&self) -> u64 {
        self.planned.get().map_or(0, |planned| planned.unlisted)
    }

    /// How many pairs the run for noise has a floor for; `None` before that is measured.
    pub fn pairs_with_floor(&self) -> Option<usize> {
        let (floors, plan) = self.floors.get().zip(self.plan())?;
        let pairs = plan.pairing.pairs.iter();
        Some(
            pairs
                .filter(|pair| floors.contains_key(&pair.reference[0]))
                .count(),
        )
    }

    /// The finished comparison.
    pub fn judged(&self) -> Option<&Judged> {
        self.judged.get()
    }

    pub fn into_judged(self) -> Option<Judged> {
        self.judged.into_inner()
    }

    /// Does everything: plan, work, explain, judge. Stopped early, the report is what was known by then, and partial.
    pub fn run(
        &self,
        sources: &Sources<'_>,
        explain: Option<&dyn Explain>,
    ) -> Result<(), PairError> {
        let [reference, candidate] = self.sides(sources);
        let planned = self.plan_pairs(sources, &reference, &candidate)?;
        let Some(planned) = planned else {
            return Ok(());
        };
        let planned = self.planned.get_or_init(|| planned);
        self.enter(Phase::Measuring);
        let Planned { plan, parts, .. } = planned;
        work::measure(plan, &reference, &candidate, &self.settings, self, parts);
        if let Some((noise, pairs)) = sources.noise.zip(planned.noise.as_ref()) {
            let noise = Side::stoppable(noise, &self.stopped);
            let floors = work::measured_floors(pairs, &reference, &noise, &self.settings, self);
            if !self.stopped() {
                let _ = self.floors.set(floors);
            }
        }
        let mut report = self.gathered(planned, &reference, &candidate);
        if let Some(explain) = explain.filter(|_| wants_causes(plan, &report, &self.settings)) {
            self.enter(Phase::Explaining);
            judge_with(explain, plan, &reference, &candidate, &mut report);
            if self.stopped() {
                // The causes of some pairs are missing, and with them what is own and what is harmless.
                report = self.gathered(planned, &reference, &candidate);
                report.partial = true;
            }
        }
        let _ = self.judged.set(report);
        Ok(())
    }

    /// What is known by now, judged by size alone; `None` before the plan is made.
    pub fn so_far(&self, sources: &Sources<'_>) -> Option<Judged> {
        // Never refuses to read: nothing is read.
        let [reference, candidate] = [Side::new(sources.reference), Side::new(sources.other())];
        let planned = self.planned.get()?;
        let mut report = self.gathered(planned, &reference, &candidate);
        report.partial |= self.stopped();
        Some(report)
    }

    /// The parts that are finished, judged by size. Without the floors that were asked for it is partial.
    fn gathered(&self, planned: &Planned, reference: &Side<'_>, candidate: &Side<'_>) -> Judged {
        let parts = work::taken(&planned.parts);
        let floors = self.floors.get();
        let mut report = facts::gather(
            &planned.plan,
            parts,
            reference,
            candidate,
            &self.settings,
            floors,
        );
        report.partial |= planned.noise.is_some() && floors.is_none();
        report
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    fn sides<'a>(&'a self, sources: &Sources<'a>) -> [Side<'a>; 2] {
        [sources.reference, sources.other()].map(|source| Side::stoppable(source, &self.stopped))
    }

    /// `None` when it was stopped: a plan made of what could still be read would pair the wrong tensors.
    fn plan_pairs(
        &self,
        sources: &Sources<'_>,
        reference: &Side<'_>,
        candidate: &Side<'_>,
    ) -> Result<Option<Planned>, PairError> {
        let planned = match sources.candidate {
            Some(_) => plan::plan(reference, candidate, &self.settings).map(|plan| (plan, 0)),
            None => plan_alone(reference, &self.settings, self.exact),
        };
        let noise = sources
            .noise
            .map(|noise| Side::stoppable(noise, &self.stopped));
        let noise_plan = noise
            .as_ref()
            .map(|noise| plan::plan(reference, noise, &self.settings))
            .transpose();
        if self.stopped() {
            return Ok(None);
        }
        let ((plan, unlisted), noise_plan) = (planned?, noise_plan?);
        let parts = work::slots(&plan);
        let earlier = self
            .earlier
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let reused = earlier.map_or(0, |earlier| self.reuse(&earlier, &plan, &parts, reference));
        let bytes = plan.bytes(reference, candidate, |nth| parts[nth].get().is_none());
        let of_noise = noise.as_ref().zip(noise_plan.as_ref());
        let bytes_of_noise =
            of_noise.map_or(0, |(noise, plan)| plan.bytes(reference, noise, |_| true));
        let bytes = bytes.saturating_add(bytes_of_noise);
        Ok(Some(Planned {
            noise: noise_plan,
            plan,
            parts,
            reused,
            bytes,
            unlisted,
        }))
    }

    /// Takes over what was measured before in the same way, and says how many pairs that is.
    fn reuse(
        &self,
        earlier: &Job,
        plan: &Plan,
        parts: &[OnceLock<Part>],
        reference: &Side<'_>,
    ) -> usize {
        let tolerance = |settings: &Settings| (settings.rtol, settings.atol);
        let Some(before) = earlier.planned.get() else {
            return 0;
        };
        if before.plan.alone
            || plan.alone
            || tolerance(&earlier.settings) != tolerance(&self.settings)
        {
            return 0;
        }
        let is_known = |part: &Part| {
            matches!(
                part.outcome,
                Outcome::Measured(..) | Outcome::Incomparable(_)
            )
        };
        let earlier_pairs = before.plan.pairing.pairs.iter().zip(&before.parts);
        let known: HashMap<_, (&Pair, &Part)> = earlier_pairs
            .filter_map(|(pair, part)| {
                let part = part.get().filter(|part| is_known(part))?;
                Some(((&pair.reference[..], &pair.candidate[..]), (pair, part)))
            })
            .collect();
        let mut reused = 0;
        for (pair, slot) in plan.pairing.pairs.iter().zip(parts) {
            let name = &reference.items()[pair.reference[0]].name;
            // The layout depends on the user's choice, and on how the pair was found.
            let is_same_way = |before: &Pair| {
                earlier.settings.layout_of(name) == self.settings.layout_of(name)
                    && (before.rule, before.turned) == (pair.rule, pair.turned)
            };
            if let Some((_, part)) = known
                .get(&(&pair.reference[..], &pair.candidate[..]))
                .filter(|(before, _)| is_same_way(before))
            {
                reused += usize::from(slot.set((*part).clone()).is_ok());
            }
        }
        reused
    }
}

/// How many divergences of one report are explained: the first ones are where to look, and `explain` takes any.
const MOST_EXPLAINED: usize = 16;

/// Pairs of one source do not follow from each other, and of a partial report too little is known.
fn wants_causes(plan: &Plan, report: &Judged, settings: &Settings) -> bool {
    settings.causes && !plan.alone && !report.partial
}

/// Judges pairs again with evidence, adds the causes of what began by itself, and forgives what is undone later.
fn judge_with(
    explain: &dyn Explain,
    plan: &Plan,
    reference: &Side<'_>,
    candidate: &Side<'_>,
    report: &mut Judged,
) {
    let investigation = explain.investigate(plan, reference, candidate, &report.pairs);
    let evidence = investigation.evidence();
    let levels: Vec<Level> = report.pairs.iter().map(Level::of).collect();
    let judged = verdict::settle(&report.pairs, evidence);
    for (pair, judgement) in report.pairs.iter_mut().zip(judged) {
        pair.judgement = judgement;
    }
    for at in report.divergences().into_iter().take(MOST_EXPLAINED) {
        let given = upstream::given(&levels, at, |at| evidence[at].made_by.is_some());
        report.pairs[at].causes = investigation.causes(at, given);
    }
    let causes = |at: usize| investigation.causes(at, None);
    for (at, judgement) in verdict::forgive(&report.pairs, evidence, &causes) {
        report.pairs[at].judgement = judgement;
    }
}

/// The report on parts that were measured elsewhere: what [`Job::run`] does after the work. `floors` are the measures of a run for noise,
/// by reference item.
pub fn merge(
    plan: &Plan,
    parts: Vec<Part>,
    sources: &Sources<'_>,
    settings: &Settings,
    floors: Option<&HashMap<usize, Measures>>,
    explain: Option<&dyn Explain>,
) -> Judged {
    let [reference, candidate] = [Side::new(sources.reference), Side::new(sources.other())];
    let mut report = facts::gather(plan, parts, &reference, &candidate, settings, floors);
    if let Some(explain) = explain.filter(|_| wants_causes(plan, &report, settings)) {
        judge_with(explain, plan, &reference, &candidate, &mut report);
    }
    report
}

/// Compares two sources in this process.
pub fn compare(
    sources: &Sources<'_>,
    settings: &Settings,
    explain: Option<&dyn Explain>,
) -> Result<Judged, PairError> {
    let job = Job::new(settings.clone());
    job.run(sources, explain)?;
    // Nobody else holds it, so nobody stopped it.
    Ok(job.into_judged().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        judged::{Overall, Unmeasured},
        verdict::Verdict,
    };
    use std::sync::atomic::AtomicUsize;
    use twinscope_tensor::{DType, Listing, ReadError, Shape, TensorInfo, View};

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

    /// A source against itself, with someone to watch the work.
    fn watched(source: &Source, watch: &dyn Watch) -> Judged {
        let side = Side::new(source);
        let settings = Settings::default();
        let plan = plan::plan(&side, &side, &settings).unwrap();
        let parts = work::slots(&plan);
        work::measure(&plan, &side, &side, &settings, watch, &parts);
        facts::gather(&plan, work::taken(&parts), &side, &side, &settings, None)
    }

    fn compared(source: &Source) -> Judged {
        compare(&Sources::two(source, source), &Settings::default(), None).unwrap()
    }

    /// A source that stops a job when its tensors are read, or after some reads.
    struct Stopping<'a> {
        source: Source,
        job: &'a Job,
        reads_left: AtomicUsize,
    }

    impl TensorSource for Stopping<'_> {
        fn listing(&self) -> &Listing {
            self.source.listing()
        }

        fn view(&self, index: usize) -> Result<View, ReadError> {
            let left = |left: usize| left.checked_sub(1);
            let reads = &self.reads_left;
            if reads
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
                .is_err()
            {
                self.job.stop();
            }
            self.source.view(index)
        }
    }

    #[test]
    fn a_job_that_is_stopped_while_planning_has_no_plan_and_no_report() {
        // Names that say nothing: pairs are found by their values.
        let left = source(&[("uvw", &[64]), ("rst", &[64])]);
        let right = source(&[("klm", &[64]), ("fgh", &[64])]);
        let job = Job::new(Settings::default());
        let stopping = Stopping {
            source: right,
            job: &job,
            reads_left: AtomicUsize::new(0),
        };
        job.run(&Sources::two(&left, &stopping), None).unwrap();
        assert!(job.is_stopped() && job.plan().is_none() && job.judged().is_none());
        assert!(job.so_far(&Sources::two(&left, &stopping)).is_none());
    }

    #[test]
    fn a_job_that_is_stopped_while_measuring_has_a_partial_report_of_every_pair() {
        let names = [("0_query", &[4][..]), ("0_key", &[4]), ("0_value", &[4])];
        let (left, right) = (source(&names), source(&names));
        let job = Job::new(Settings::default());
        let stopping = Stopping {
            source: right,
            job: &job,
            reads_left: AtomicUsize::new(0),
        };
        job.run(&Sources::two(&left, &stopping), None).unwrap();
        let report = job.judged().unwrap();
        assert!(report.partial);
        assert_eq!(report.pairs.len(), 3);
        let unread =
            |pair: &&crate::judged::JudgedPair| pair.unmeasured == Some(Unmeasured::Unreadable);
        assert_eq!(
            report.pairs.iter().filter(unread).count(),
            0,
            "a stop is no broken file"
        );
    }

    #[test]
    fn a_job_that_is_stopped_while_explaining_says_that_its_report_is_partial() {
        struct Stops<'a>(&'a Job);
        impl Explain for Stops<'_> {
            fn investigate<'a>(
                &self,
                _: &'a Plan,
                _: &'a Side<'a>,
                _: &'a Side<'a>,
                pairs: &[crate::judged::JudgedPair],
            ) -> Box<dyn crate::evidence::Investigation + 'a> {
                self.0.stop();
                // Evidence that would make the pair diverge, were it believed.
                let unreduced = crate::evidence::PairEvidence {
                    is_unreduced: true,
                    ..Default::default()
                };
                Box::new(Nothing(vec![unreduced; pairs.len()]))
            }
        }
        struct Nothing(Vec<crate::evidence::PairEvidence>);
        impl crate::evidence::Investigation for Nothing {
            fn evidence(&self) -> &[crate::evidence::PairEvidence] {
                &self.0
            }

            fn causes(&self, _: usize, _: Option<Measures>) -> Vec<twinscope_report::Cause> {
                Vec::new()
            }
        }
        let source = source(&[("0_query", &[4])]);
        let job = Job::new(Settings::default());
        job.run(&Sources::two(&source, &source), Some(&Stops(&job)))
            .unwrap();
        let report = job.judged().unwrap();
        assert!(report.partial);
        assert_eq!(
            report.pairs[0].verdict(),
            Verdict::Identical,
            "what was measured is kept"
        );
    }

    #[test]
    fn a_job_takes_over_what_an_earlier_one_measured_in_the_same_way() {
        let source = source(&[("0_query", &[4]), ("0_key", &[4])]);
        let sources = Sources::two(&source, &source);
        let first = Arc::new(Job::new(Settings::default()));
        first.run(&sources, None).unwrap();
        let again = |settings: Settings| {
            let job = Job::new(settings).reusing(Some(first.clone()));
            job.run(&sources, None).unwrap();
            let Progress {
                pairs_reused,
                bytes,
                bytes_total,
                ..
            } = job.progress();
            (pairs_reused, bytes, bytes_total)
        };
        assert_eq!(again(Settings::default()), (2, 0, 0));
        let tolerance = Settings {
            rtol: Some(1e-3),
            ..Settings::default()
        };
        assert_eq!(
            again(tolerance),
            (0, 64, 64),
            "other numbers are measured under a tolerance"
        );
        let layout = Settings {
            layouts: vec![crate::settings::LayoutOverride {
                name: "0_key".to_owned(),
                steps: "permute(0)".to_owned(),
            }],
            ..Settings::default()
        };
        assert_eq!(
            again(layout),
            (1, 32, 32),
            "only the pair whose layout was changed"
        );
    }

    #[test]
    fn stopped_early_the_report_is_partial_and_keeps_every_pair() {
        let source = source(&[("0_query", &[4]), ("0_key", &[4]), ("0_value", &[4])]);
        let report = watched(&source, &Patience(AtomicUsize::new(1)));
        assert!(report.partial);
        assert_eq!(report.pairs.len(), 3);
        let reached = report
            .pairs
            .iter()
            .filter(|pair| pair.verdict() == Verdict::Identical)
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
        let whole = Steps(Mutex::default(), usize::MAX);
        let report = watched(&source, &whole);
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
        let report = watched(&source, &stopped);
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
        let report = compared(&source);
        let lost = report
            .pairs
            .iter()
            .find(|pair| pair.name == "lost")
            .unwrap();
        assert_eq!(
            (lost.verdict(), lost.unmeasured),
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
            let report = compared(&source);
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
    fn many_tensors_alone_are_ranked_and_the_best_measured() {
        let names: Vec<String> = (0..30).map(|n| format!("t{n}")).collect();
        let mut tensors: Vec<(&str, &[u64])> = names
            .iter()
            .map(|name| (name.as_str(), &[16u64][..]))
            .collect();
        tensors.push(("wide", &[4, 4]));
        let source = source(&tensors);
        let kinds = |exact: bool| {
            let job = Job::new(Settings::default()).exact(exact);
            job.run(&Sources::alone(&source), None).unwrap();
            let missing = job.unlisted();
            let report = job.into_judged().unwrap();
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
