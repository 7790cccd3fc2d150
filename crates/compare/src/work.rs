//! One pair lined up and measured: a pure function of the plan and the sources, so it can be repeated, resumed and run elsewhere.
//!
//! A part holds facts only. The judgement is formed later, over all parts in execution order.

use crate::{
    layout::{self, Convention, Dims, Hints, Layout, LayoutError, SideHints, Which, parse_steps},
    noise::{Measures, measures, spread},
    pairing::{self, Pair, Turned},
    plan::Plan,
    precision::{self, Digits},
    settings::Settings,
    side::Side,
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};
use twinscope_measure::{Options, Profiling, Totals, totals::Incommensurable, totals_watched};
use twinscope_names::role;
use twinscope_tensor::{Operand, ReadError, Shape, View};

/// Told what is done, asked whether to go on. Called from many threads.
pub trait Watch: Sync {
    fn measured(&self, _bytes: u64) {}

    fn stopped(&self) -> bool {
        false
    }
}

/// Nobody watches.
impl Watch for () {}

/// What one pair came to. Facts only; `verdict` judges later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub layout: Option<Layout>,
    pub shape: Option<Shape>,
    /// What the values of both sides say of the dtype that they were rounded to.
    pub digits: [Digits; 2],
    /// How far apart the logits of probabilities are; 0 when it is none.
    pub spread: f64,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// With the measures that its profiles gave; the profiles themselves are dropped where they are large.
    Measured(Box<Totals>, Measures),
    /// The shapes cannot be lined up.
    Incomparable(String),
    /// A side cannot be read.
    Unreadable { side: Unread, reason: String },
    /// Stopped before its turn.
    NotReached,
    /// One of too many pairs of one source: its score comes from sketches, which were all that was read.
    Ranked,
}

/// What could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unread {
    Reference,
    Candidate,
    /// Both are there, but not as one tensor each.
    Pair,
}

impl Unread {
    pub fn name(self) -> &'static str {
        match self {
            Unread::Reference => "reference",
            Unread::Candidate => "candidate",
            Unread::Pair => "pair",
        }
    }
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

/// How many of the worst elements a pair keeps.
const TOP: usize = 10;

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
    // A stopped side reads nothing; that says nothing about its file.
    let unreadable = |side: Unread, reason: String| match watch.stopped() {
        true => part(Outcome::NotReached),
        false => part(Outcome::Unreadable { side, reason }),
    };
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
        Err(reason) => return unreadable(Unread::Reference, reason),
    };
    let right = match views(candidate, &pair.candidate) {
        Ok(views) => views,
        Err(reason) => return unreadable(Unread::Candidate, reason),
    };
    let aligned = match layout::align(
        &left,
        &right,
        &hints(pair, reference, candidate, settings, way.only_equal),
    ) {
        Ok(aligned) => aligned,
        Err(LayoutError::Read(error)) => {
            return part(Outcome::Unreadable {
                side: Unread::Pair,
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
                side: Unread::Pair,
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
fn at_fault(reference: &dyn Operand) -> Unread {
    if reference.check().is_err() {
        Unread::Reference
    } else {
        Unread::Candidate
    }
}

/// Indices of all axes together up to which a pair keeps its profiles.
const KEPT_PROFILES: usize = 4096;

/// A view by stride 0 can claim any number of values. Reject one that claims more than 16 GiB and more than 16 times its stored bytes.
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
    let chosen = settings.layout_of(name);
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

/// The measures of a repeat or higher-precision run against the reference, by reference item.
pub fn measured_floors(
    plan: &Plan,
    reference: &Side<'_>,
    noise: &Side<'_>,
    settings: &Settings,
    watch: &dyn Watch,
) -> HashMap<usize, Measures> {
    let pairs = plan.pairing.pairs.par_iter();
    let measured =
        pairs.filter_map(
            |pair| match work(pair, reference, noise, settings, watch).outcome {
                Outcome::Measured(_, measures) => Some((pair.reference[0], measures)),
                Outcome::Incomparable(_)
                | Outcome::Unreadable { .. }
                | Outcome::NotReached
                | Outcome::Ranked => None,
            },
        );
    measured.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
