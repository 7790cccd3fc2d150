//! Why a pair differs, computed from the values.
//!
//! One hypothesis per file: *values* are about what happened to each number, *places* about where numbers went. Each looks at one
//! [`Case`] and says what the candidate would be if it were true; [`score`] measures what that leaves, on elements the fit has not seen, and only what leaves rounding is
//! proven. A mechanism outranks a description of where, fewer fitted numbers outrank more. What explains a part is
//! subtracted and the rest looked at again.

mod alternatives;
pub mod case;
pub mod constants;
mod flow;
mod investigation;
mod numbers;
mod part;
mod places;
mod reduced;
mod scene;
mod score;
#[cfg(test)]
pub(crate) mod testing;
mod values;

pub use case::{Case, Class, Examined, Explanation, Hypothesis};
pub use scene::{Entry, Loaded, Other, Scene, Sketch};
pub use score::{Score, score};
pub use twinscope_ops::{array, functions, measures, scattered};

use alternatives::Described;
use investigation::Investigating;
use rayon::prelude::*;
use serde::Serialize;
use std::borrow::Cow;
use twinscope_compare::{
    Settings, Side, Sources,
    evidence::{Explain, Investigation},
    job,
    judged::{Cause, Judged, JudgedPair},
    noise::Measures,
    pairing::PairError,
    plan::Plan,
};
use twinscope_report::{CauseKind, Details, Extras, Facts, Then, facts, formula::text};

/// Every hypothesis there is, the cheap ones first.
pub fn hypotheses() -> impl Iterator<Item = &'static dyn Hypothesis> {
    places::ALL.iter().chain(values::ALL).copied()
}

/// One hypothesis tried on one pair: for `explain`, which also shows what was ruled out.
#[derive(Clone, Debug, Serialize)]
pub struct Attempt {
    pub hypothesis: &'static str,
    /// Empty when it does not apply or could not be fitted.
    pub kind: Option<CauseKind>,
    pub explained: Option<f64>,
    /// What it leaves is rounding.
    pub proven: bool,
    /// The sentence, or why it was ruled out.
    pub text: String,
}

/// What the hypotheses say of one pair.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// Best first.
    pub found: Vec<Found>,
    pub attempts: Vec<Attempt>,
}

/// An explanation with its score.
#[derive(Clone, Debug)]
pub struct Found {
    pub explanation: Explanation,
    pub score: Score,
}

/// What explains less than this is not worth a sentence.
const WORTH_SAYING: f64 = 0.5;

/// Tries every hypothesis on a case.
fn examine_once(case: &Case<'_>) -> Examination {
    let all: Vec<&dyn Hypothesis> = hypotheses().collect();
    let scored = |explanation: Explanation| Found {
        score: score(case, &explanation),
        explanation,
    };
    let examined: Vec<Result<Vec<Found>, _>> = all
        .par_iter()
        .map(|hypothesis| {
            if case.scene.is_stopped() {
                return Err("stopped".into());
            }
            guarded(|| Ok(hypothesis.examine(case)?.into_iter().map(scored).collect()))
        })
        .collect();
    let mut examination = Examination::default();
    for (hypothesis, examined) in all.into_iter().zip(examined) {
        let ruled_out = |text: Cow<'static, str>| Attempt {
            hypothesis: hypothesis.name(),
            kind: None,
            explained: None,
            proven: false,
            text: text.into_owned(),
        };
        let tried = |found: &Found| Attempt {
            hypothesis: hypothesis.name(),
            kind: Some(found.explanation.kind.clone()),
            explained: found.score.explained,
            proven: found.score.proven,
            text: found.explanation.text.clone(),
        };
        match examined {
            Err(why) => examination.attempts.push(ruled_out(why)),
            Ok(found) => {
                examination.attempts.extend(found.iter().map(tried));
                examination.found.extend(found);
            }
        }
    }
    order(&mut examination.found);
    examination
}

/// A bug in one of thirty hypotheses must not take the report with it. Where tests run, it must.
fn guarded<T>(
    examine: impl FnOnce() -> Result<T, Cow<'static, str>>,
) -> Result<T, Cow<'static, str>> {
    if cfg!(debug_assertions) {
        return examine();
    }
    let examined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(examine));
    examined
        .unwrap_or_else(|_| Err("it failed in a way it should not have; please report it".into()))
}

/// Tries every hypothesis on a case, and where one alone is not enough, on what it leaves.
pub fn examine(case: &Case<'_>) -> Examination {
    let mut examination = examine_once(case);
    if let Some(two) = examination
        .found
        .first()
        .filter(|best| !best.score.proven)
        .and_then(|best| and_then(case, best))
    {
        examination.found.insert(0, two);
    }
    examination
}

/// What explains less leaves so much that anything might explain the rest.
const LARGEST_PART: f64 = 0.8;
/// Of two causes together: values for each number that was fitted.
const VALUES_FOR_EACH: usize = 32;

/// A second cause on top of one that explains most: both together are proven, or nothing is said.
fn and_then(case: &Case<'_>, first: &Found) -> Option<Found> {
    let Found {
        explanation,
        score: alone,
    } = first;
    let case::Predicted::Values(predicted) = &explanation.predicted else {
        return None;
    };
    if explanation.class != Class::Mechanism || alone.explained? < LARGEST_PART {
        return None;
    }
    let rest = examine_once(&Case {
        reference: predicted,
        ..*case
    });
    let second = rest
        .found
        .into_iter()
        .next()
        .filter(|second| second.score.proven)?;
    let freedom = explanation.freedom + second.explanation.freedom;
    if freedom * VALUES_FOR_EACH > case.candidate.len() {
        return None;
    }
    let both = Explanation {
        text: format!(
            "{}; and beyond that {}",
            explanation.text, second.explanation.text
        ),
        details: Details {
            extras: Extras {
                then: Some(Box::new(Then {
                    kind: second.explanation.kind,
                    text: second.explanation.text,
                    details: second.explanation.details,
                })),
                ..explanation.details.extras.clone()
            },
            ..explanation.details.clone()
        },
        freedom,
        predicted: second.explanation.predicted,
        kind: explanation.kind.clone(),
        class: Class::Mechanism,
    };
    let score = score(case, &both);
    score.proven.then_some(Found {
        explanation: both,
        score,
    })
}

/// Best first.
fn order(found: &mut [Found]) {
    found.sort_by(Found::better_first);
    prefer_closer(found);
    name_skipped(found);
}

fn prefer_closer(found: &mut [Found]) {
    let unexplained = |found: &Found| 1.0 - found.score.explained.unwrap_or(0.0);
    let Some(first) = found
        .first()
        .filter(|first| first.score.proven && unexplained(first) > LITTLE)
    else {
        return;
    };
    // In coarse dtypes a simple cause can come near enough to pass for the elaborate one it resembles; that one leaves far less.
    let closer = |other: &Found| {
        other.score.proven
            && other.explanation.class == first.explanation.class
            && unexplained(other) < unexplained(first) / FAR_LESS
    };
    if let Some(at) = found.iter().position(closer) {
        found[..=at].rotate_right(1);
    }
}

/// An op that was skipped is called by what it does, where that is known: a bias or a weight a channel that is missing leaves what was before it, and
/// is missing all the same.
fn name_skipped(found: &mut [Found]) {
    let is_skipped = |found: &Found| {
        let Explanation { class, details, .. } = &found.explanation;
        *class == Class::Mechanism && details.is_from_own_run()
    };
    if !found
        .first()
        .is_some_and(|first| first.score.proven && is_skipped(first))
    {
        return;
    }
    let says_more = |found: &Found| {
        let Explanation { kind, details, .. } = &found.explanation;
        let plain = match &details.facts {
            Facts::ChannelScale(facts) => facts.offsets().is_none(),
            _ => *kind == CauseKind::Offset,
        };
        found.score.proven && plain && found.score.explained >= Some(1.0 - LITTLE)
    };
    if let Some(at) = found.iter().position(says_more) {
        found[..=at].rotate_right(1);
    }
}

/// What leaves less than this is not bettered by more numbers.
const LITTLE: f64 = 0.02;
const FAR_LESS: f64 = 4.0;

impl Found {
    fn better_first(a: &Self, b: &Self) -> std::cmp::Ordering {
        let key = |found: &Self| {
            (
                !found.score.proven,
                found.explanation.class,
                found.explanation.freedom,
            )
        };
        let explained = |found: &Self| found.score.explained.unwrap_or(0.0);
        // Of what is proven the simplest, of the rest what explains most.
        match (a.score.proven, b.score.proven) {
            (true, true) => key(a)
                .cmp(&key(b))
                .then(explained(b).total_cmp(&explained(a))),
            (false, false) => explained(b)
                .total_cmp(&explained(a))
                .then(key(a).cmp(&key(b))),
            (first, second) => second.cmp(&first),
        }
    }

    fn cause(&self) -> Cause {
        Cause {
            kind: self.explanation.kind.clone(),
            explained: self.score.explained,
            text: self.explanation.text.clone(),
            details: self.explanation.details.clone(),
        }
    }
}

/// The causes of this crate, as a comparison takes them.
#[derive(Clone, Copy, Debug)]
pub struct Causes;

impl Explain for Causes {
    fn investigate<'a>(
        &self,
        plan: &'a Plan,
        reference: &'a Side<'a>,
        candidate: &'a Side<'a>,
        pairs: &[JudgedPair],
    ) -> Box<dyn Investigation + 'a> {
        let scene = Scene::new(plan, reference, candidate, pairs);
        Box::new(Investigating::new(scene, pairs))
    }
}

/// Compares two sources in this process, causes included.
pub fn compare(sources: &Sources<'_>, settings: &Settings) -> Result<Judged, PairError> {
    job::compare(sources, settings, Some(&Causes))
}

/// Everything that was tried on one pair, whatever its verdict; `None` when it cannot be examined.
pub fn explain(scene: &Scene<'_>, pair: usize) -> Option<Explained> {
    if scene.entries()[pair].dims.contains(&0) {
        // No value, nothing that could be otherwise.
        let (causes, attempts) = (Vec::new(), Vec::new());
        return Some(Explained {
            causes,
            attempts,
            formula: None,
            follows: None,
            off: None,
            rounding: None,
        });
    }
    reduced::again(scene);
    let flow = flow::of_pair(scene, pair);
    let given = scene.given(pair, |at| flow::of_pair(scene, at).is_some());
    let examination = examine_pair(scene, pair, flow.as_ref(), given);
    if examination.attempts.is_empty() {
        return None;
    }
    let follows = flow.as_ref().map(flow::Flow::follows);
    let (off, rounding) = flow.as_ref().map(|flow| (flow.off, flow.bound)).unzip();
    let mut causes = named(&examination, flow.as_ref());
    if scene.entries()[pair].verdict.agrees() {
        // That no cause was found is no news where none is needed.
        causes.retain(|cause| cause.kind != CauseKind::Unknown);
    }
    Some(Explained {
        causes,
        attempts: examination.attempts,
        formula: flow.map(|flow| text(&flow.formula)),
        follows,
        off,
        rounding,
    })
}

/// What the candidate would be if this cause of a pair were the whole truth; `None` when it says no values, the pair is too large or its
/// elements are two numbers each.
pub fn predicted(scene: &Scene<'_>, pair: usize, cause: &Cause) -> Option<Vec<f64>> {
    if !scene.is_one_number(pair) {
        return None;
    }
    reduced::again(scene);
    scene.load(pair)?;
    let given = scene.given(pair, |at| flow::of_pair(scene, at).is_some());
    let found = examine_pair(scene, pair, flow::of_pair(scene, pair).as_ref(), given)
        .found
        .into_iter();
    let mut same = found.filter(|found| {
        found.explanation.kind == cause.kind && found.explanation.text == cause.text
    });
    match same.next()?.explanation.predicted {
        case::Predicted::Values(values) => Some(values),
        case::Predicted::Share { .. } => None,
    }
}

/// One pair in depth.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    pub causes: Vec<Cause>,
    pub attempts: Vec<Attempt>,
    /// What makes this tensor of the reference, when it was found among what is recorded.
    pub formula: Option<String>,
    /// Whether the candidate is what its own inputs imply by it.
    pub follows: Option<bool>,
    /// How far it is from that, by the four measures, and how far rounding alone can be.
    pub off: Option<Measures>,
    pub rounding: Option<Measures>,
}

/// The hypotheses on one pair. Where its op is known they see the op's own error alone: what the candidate should be by its own inputs
/// against what it is. Where that proves nothing, reference against candidate. Where it is not known, errors as large as those `given` by
/// the inputs are noise.
fn examine_pair(
    scene: &Scene<'_>,
    pair: usize,
    flow: Option<&flow::Flow>,
    given: Option<Measures>,
) -> Examination {
    let Some(loaded) = scene.load(pair) else {
        return examine_parts(scene, pair, flow);
    };
    let mut case = Case::new(scene, pair, &loaded);
    if let (Some(given), None) = (given, flow) {
        case.noise = std::array::from_fn(|i| case.noise[i].max(given[i]));
    }
    let mut plain = examine(&case);
    if let (Some(given), None) = (given, flow) {
        doubt(&mut plain, scene.entries()[pair].noise, given);
    }
    if flow.is_none()
        && let Some(capped) = flow::capped(scene, pair)
    {
        plain.found.push(confirmed_by(&case, &capped));
        order(&mut plain.found);
    }
    let Some(flow) = flow.filter(|flow| !flow.follows() || flow.confirmed.is_some()) else {
        return plain;
    };
    let is_made = !flow.expected.is_empty();
    let own = if is_made {
        Case {
            reference: &flow.expected,
            noise: flow.bound,
            ..case
        }
    } else {
        case
    };
    if let Some(confirmed) = &flow.confirmed {
        plain.found.push(confirmed_by(&own, confirmed));
        order(&mut plain.found);
    }
    if !is_made || plain.found.first().is_some_and(|best| best.score.proven) {
        return plain;
    }
    let from_inputs = examine(&own);
    plain.found.extend(from_inputs.found);
    order(&mut plain.found);
    plain.attempts.extend(from_inputs.attempts);
    plain
}

/// What is entirely wrong upstream gives no licence to explain anything by anything: what an explanation of any other kind leaves must be what
/// some rounding could be.
fn doubt(examination: &mut Examination, noise: Measures, given: Measures) {
    let most: Measures =
        std::array::from_fn(|i| noise[i].max(given[i].min(twinscope_compare::noise::MOST[i])));
    for found in examination
        .found
        .iter_mut()
        .filter(|found| found.score.proven && !found.explanation.kind.moves_values())
    {
        found.score.proven = found
            .score
            .left
            .iter()
            .zip(most)
            .all(|(left, most)| *left <= score::SLACK * most);
        let text = &found.explanation.text;
        let same = examination
            .attempts
            .iter_mut()
            .filter(|attempt| attempt.text == *text);
        same.for_each(|attempt| attempt.proven &= found.score.proven);
    }
    order(&mut examination.found);
}

/// A pair too large to be read whole: parts of it, until one proves something. What is said then holds for that part, and the details say
/// how much it is.
fn examine_parts(scene: &Scene<'_>, pair: usize, flow: Option<&flow::Flow>) -> Examination {
    let mut best = Examination::default();
    let whole: usize = scene.entries()[pair].dims.iter().product();
    for part in scene.load_parts(pair, scene.entries()[pair].worst) {
        let case = Case::new(scene, pair, &part);
        let mut examination = examine(&case);
        if let Some(confirmed) = flow.and_then(|flow| flow.confirmed.as_ref()) {
            examination.found.push(confirmed_by(
                &case,
                &flow::Confirmed {
                    predicted: Vec::new(),
                    ..confirmed.clone()
                },
            ));
            order(&mut examination.found);
        }
        for found in &mut examination.found {
            let extras = &mut found.explanation.details.extras;
            (extras.looked_at, extras.of) = (Some(part.reference.len()), Some(whole));
            // What it counts, it counted there.
            found.explanation.text += &format!(
                " (counted in {} of the tensor's {whole} values)",
                part.reference.len()
            );
        }
        let proven = examination
            .found
            .first()
            .is_some_and(|best| best.score.proven);
        if proven || best.attempts.is_empty() {
            best = examination;
        }
        if proven {
            break;
        }
    }
    best
}

/// A formula that the candidate follows instead of the reference's. Below the noise it cannot explain the values, only what the two
/// formulas do differently: then that share is what it explains.
fn confirmed_by(case: &Case<'_>, confirmed: &flow::Confirmed) -> Found {
    let Described {
        kind,
        text,
        mut details,
    } = confirmed.described.clone();
    details.extras.coefficient = Some(confirmed.coefficient);
    details.extras.coefficient_error = Some(confirmed.error);
    let mut explanation = Explanation {
        // One of many tensors was chosen: two that changed places say more.
        freedom: if kind == CauseKind::WrongTensor { 2 } else { 0 },
        kind,
        text,
        details,
        class: Class::Mechanism,
        predicted: case::Predicted::Values(confirmed.predicted.clone()),
    };
    let share = case::Predicted::Share {
        explained: (1.0 - (1.0 - confirmed.coefficient).abs()).max(0.0),
        proven: true,
    };
    if confirmed.predicted.is_empty() {
        explanation.predicted = share;
        return Found {
            score: score(case, &explanation),
            explanation,
        };
    }
    let mut found = score(case, &explanation);
    // Left beyond rounding it is only near the truth.
    let rounding = found
        .left
        .iter()
        .zip(case.noise)
        .all(|(left, noise)| *left <= score::SLACK * noise);
    if !found.proven && rounding {
        explanation.predicted = share;
        found = score(case, &explanation);
    }
    Found {
        explanation,
        score: found,
    }
}

/// The explanations worth a sentence, best first; `unknown` before them when none is proven.
fn named(examination: &Examination, flow: Option<&flow::Flow>) -> Vec<Cause> {
    if examination.found.is_empty() && examination.attempts.is_empty() {
        return Vec::new();
    }
    let mut causes: Vec<Cause> = examination
        .found
        .iter()
        .filter(|found| {
            found.score.proven
                || found
                    .score
                    .explained
                    .is_some_and(|explained| explained >= WORTH_SAYING)
        })
        .map(Found::cause)
        .collect();
    if !examination
        .found
        .first()
        .is_some_and(|best| best.score.proven)
    {
        causes.insert(0, unknown(flow));
    }
    causes
}

/// Nothing survived. Where not even the op is known, what to record to tell.
fn unknown(flow: Option<&flow::Flow>) -> Cause {
    let formula = flow.map(|flow| text(&flow.formula));
    let text = match &formula {
        Some(formula) => format!("no known cause explains it; the reference is {formula}, the candidate is not"),
        None => {
            "no known cause explains it; what made this tensor is not among what is recorded: record the weights and the op's inputs to \
                 tell"
                .to_owned()
        }
    };
    Cause {
        kind: CauseKind::Unknown,
        explained: None,
        text,
        details: facts::Unknown { formula }.into(),
    }
}
