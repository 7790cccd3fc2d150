//! What a pair may have been given by those before it, in numbers: how large the errors upstream are, and what an op can make of them.

use crate::{
    evidence::MadeBy,
    judged::JudgedPair,
    noise::{Measures, unit_roundoff},
};
use std::ops::Range;
use twinscope_report::Verdict;

/// One pair, as those behind it see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    pub measures: Measures,
    /// What rounding can do here.
    pub noise: Measures,
    pub parameter: bool,
    /// Diverged, judged by size alone.
    pub diverged: bool,
}

impl Level {
    pub fn of(pair: &JudgedPair) -> Self {
        Self {
            measures: pair.measures,
            noise: pair.noise,
            parameter: pair.parameter,
            diverged: pair.verdict() == Verdict::Diverged,
        }
    }

    fn is_computed_and_diverged(&self) -> bool {
        self.diverged && !self.parameter
    }
}

/// How much an op whose formula is not known may amplify the error it is given.
pub const PASSED_ON: f64 = 2.0;

/// Pairs before one among which the nearest with a known op is looked for.
const REACH: usize = 8;

/// Tensors before one that it may have been computed from, in a layer with branches.
const AROUND: usize = 12;

/// A product with weights that passes on more than this many times the error it is given would be a strange one.
const STRANGE: f64 = 4.0;

/// Of larger errors an op need not pass on the same share: up to the first of these [`STRANGE`] times is strange, up to the second twice
/// that. Beyond, an op may make anything of them: a scan that multiplies with the exponential of a step.
const PROPORTIONAL: [f64; 2] = [0.05, 0.2];

/// The errors that a pair behind a divergence, whose own op is not known, may have been given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behind {
    /// Twice those of the nearest tensor before it whose op is known: products with weights pass on about what they are given.
    pub given: Measures,
    /// The largest since that tensor.
    pub since_known: Measures,
    /// The largest of the tensors around it, or what rounding can do where that is more.
    pub around: Measures,
    /// The largest of all before it.
    pub anywhere: Measures,
}

/// `None` for a parameter, where nothing diverged before, and where no op nearby is known.
pub fn behind(levels: &[Level], at: usize, is_known: impl Fn(usize) -> bool) -> Option<Behind> {
    let known = nearest_known(levels, at, is_known)?;
    let anywhere = largest(levels, 0..at);
    // Where none of those around diverged, this is a branch that had no part in what diverged before, until here: keys of an encoder, a
    // cache of the step before. Then every tensor before counts.
    let near = at.saturating_sub(AROUND)..at;
    let joins = !levels[near.clone()]
        .iter()
        .any(Level::is_computed_and_diverged);
    let around = if joins {
        anywhere
    } else {
        largest(levels, near)
    };
    Some(Behind {
        given: levels[known].measures.map(|measure| PASSED_ON * measure),
        since_known: if joins {
            anywhere
        } else {
            largest(levels, known..at)
        },
        // Of what is wrong in one place only, or not a number, the rest is rounding, and so is any multiple of it.
        around: max(&around, &levels[at].noise),
        anywhere,
    })
}

/// The nearest tensor before one whose op is known, when the one was computed and something computed before it diverged.
fn nearest_known(levels: &[Level], at: usize, is_known: impl Fn(usize) -> bool) -> Option<usize> {
    if levels[at].parameter || !levels[..at].iter().any(Level::is_computed_and_diverged) {
        return None;
    }
    (at.saturating_sub(REACH)..at)
        .rev()
        .find(|before| !levels[*before].parameter && is_known(*before))
}

/// What the inputs of a pair whose op is not known may have given it.
pub fn given(levels: &[Level], at: usize, is_known: impl Fn(usize) -> bool) -> Option<Measures> {
    let known = nearest_known(levels, at, is_known)?;
    Some(levels[known].measures.map(|measure| PASSED_ON * measure))
}

/// The largest errors of the computed tensors among some.
pub fn largest(levels: &[Level], range: Range<usize>) -> Measures {
    let computed = levels[range].iter().filter(|level| !level.parameter);
    computed.fold([0.0; 4], |largest, level| max(&largest, &level.measures))
}

/// Whether no op makes such an error of one this large.
pub fn is_strange(found: &Measures, given: &Measures) -> bool {
    let strange = match given[0] {
        small if small <= PROPORTIONAL[0] => STRANGE,
        large if large <= PROPORTIONAL[1] => 2.0 * STRANGE,
        _ => return false,
    };
    (0..2).all(|measure| found[measure] > strange * given[measure])
}

pub(crate) fn max(a: &Measures, b: &Measures) -> Measures {
    std::array::from_fn(|i| a[i].max(b[i]))
}

/// How far beyond its own rounding an op must be, when the difference of the pair is within what came from upstream, to be looked at as a
/// fault.
const FAR: f64 = 4.0;

/// If this much more of a tensor is unchanged than of anything upstream, its error started there.
const UNTOUCHED: f64 = 0.1;

/// Whether the numbers alone leave it possible that a pair inherited an error much larger than those before it. `explain` asks too, to
/// look for a cause only where it matters.
pub fn may_be_within_reach(pairs: &[JudgedPair], levels: &[Level], at: usize) -> bool {
    let pair = &pairs[at];
    let is_integer = unit_roundoff(pair.judged_by[0]).is_none();
    if pair.parameter || is_integer || is_nonfinite(pair) {
        return false;
    }
    // What is wrong everywhere leaves nothing behind it as it was.
    let diverged = (0..at).filter(|before| levels[*before].diverged && !levels[*before].parameter);
    let untouched = diverged
        .map(|before| share_kept(&pairs[before]))
        .fold(0.0, f64::max);
    share_kept(pair) <= untouched + UNTOUCHED
        && !is_strange(&pair.measures, &largest(levels, 0..at))
}

/// Whether an op's own error is far beyond its rounding. `explain` asks too, to look for a cause only where it matters.
pub fn is_far(made_by: &MadeBy) -> bool {
    (0..2).any(|measure| made_by.off[measure] > FAR * made_by.bound[measure])
}

/// Whether a NaN or an infinity differs.
pub fn is_nonfinite(pair: &JudgedPair) -> bool {
    pair.totals
        .as_ref()
        .is_some_and(|totals| totals.nonfinite_differing > 0)
}

/// The share of a pair that is the same on both sides; zeros are made of anything by a relu or a mask.
fn share_kept(pair: &JudgedPair) -> f64 {
    let Some(totals) = &pair.totals else {
        return 0.0;
    };
    let same = totals.compared.saturating_sub(totals.differing);
    let zeros = totals.reference.zero.min(totals.candidate.zero);
    same.saturating_sub(zeros) as f64 / totals.count.max(1) as f64
}
