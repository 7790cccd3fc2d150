//! Which plan the values speak for, from a bounded number of elements at fixed places.
//!
//! Two values agree by `1 / (1 + 20 |c - r| / s)` with `s = max(|r|, |c|) + 0.1 median |r|`: 1 when equal, about 0.8 with one percent of
//! noise, near 0 for strangers. A plan's agreement is the mean, so a broken head or token lowers it by its share and no more. Where
//! nothing agrees (a scale, a sign, a bias in between), the correlation of the ranks decides.
//!
//! A plan is worse than the best when the mean difference is beyond four standard errors; of those that are not, the simplest is
//! taken whose values are not [`FINER`] times as far off as the best's: a matrix that is nearly its own transpose, or nearly all zero, agrees
//! nearly as well turned. Plans that lost are not read again, so the larger samples are for close races.

use super::{Evidence, KeepReason, LayoutError, Step, Which, permute::Way, ranks::ZIGZAG, steps};
use crate::noise::unit_roundoff;
use std::collections::HashMap;
use twinscope_tensor::{Operand, ReadError, View};

/// Elements read of each plan, growing while the race is open.
const STAGES: [usize; 3] = [64, 512, 4096];
/// Most plans that are listed: every permutation of seven dimensions.
pub(super) const MOST_PLANS: usize = 5040;
/// How many plans a stage may read at most, the simplest first.
const PLANS: [usize; 3] = [MOST_PLANS, 256, 32];
/// Where most of the reference is one value (zeros, a mask), the others are looked for among this many times as many.
const SEARCHED: usize = 16;
/// How far above chance the agreement must be, as a share of what chance leaves; and where nothing less simple can be meant.
const CONVINCING: f64 = 0.2;
const BEYOND_DOUBT: f64 = 0.75;
/// The same for ranks in an order that nothing but the values speaks for (zigzag, a grid, a packing), where a simpler one fits too: shards
/// that were swapped have a quarter in place in one or the other of them.
const ELABORATE: f64 = 0.4;
/// How many times as much as the simplest, unless it is beyond doubt: of three ranks, two of them swapped, half is in place in a zigzag.
const MORE: f64 = 1.75;
/// By how much a plan that leaves something out must be better than one that leaves out nothing.
const LEAD: f64 = 0.1;
/// Where no plan of the smallest sample is this far above chance, larger samples of strangers would be read for nothing.
const HOPEFUL: f64 = 0.1;
/// Plans up to these costs race together.
const PRICES: [u32; 3] = [35, 75, u32::MAX];
/// Plans that agree alike are told apart when the one is this many times as far off as the other: rounding varies less.
const FINER: f64 = 4.0;
/// Unit roundoffs that values which are the same up to rounding are off by, on average.
const ROUNDED: f64 = 16.0;
/// The agreement of what is equal up to rounding.
const EQUAL: f64 = 0.999;
/// Rank correlation that is not by chance, in how many standard errors of a few values, and the lead that separates two plans.
const CORRELATED: f64 = 0.5;
const CORRELATED_ERRORS: f64 = 4.0;
const CORRELATION_LEAD: f64 = 0.1;
/// How many plans are looked at for that, the simplest first.
const CORRELATED_PLANS: usize = 64;

/// A plan, and whether the values stand behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub plan: usize,
    pub by: Evidence,
    pub agrees: bool,
    /// How far above chance its values agree; 0 where only their order does.
    pub above: f64,
    /// What it takes for copies are such, most of them at least.
    pub holds: bool,
}

impl Choice {
    /// Nothing else can be meant.
    pub(super) fn beyond_doubt(self) -> bool {
        self.agrees && self.above > BEYOND_DOUBT && self.holds
    }

    /// Whether the values are clearly more for this one.
    pub(super) fn beats(self, other: Self) -> bool {
        let lead = if self.holds && !other.holds {
            -LEAD
        } else {
            LEAD
        };
        self.agrees && (!other.agrees || self.above > other.above + lead)
    }
}

/// One plan's values beside the reference's.
#[derive(Clone, Debug, Default)]
struct Read {
    reference: Vec<f64>,
    candidate: Vec<f64>,
    /// All there is was read.
    all: bool,
}

/// The plan to take; `plans` are sorted by cost. `None` when none of them can be carried out.
///
/// Simple plans race first. One that agrees nearly everywhere, up to rounding, is not raced against the many that are less simple.
pub(super) fn choose(
    plans: &[Way],
    reference: &[View],
    candidate: &[View],
) -> Result<Option<Choice>, LayoutError> {
    let mut reader = Reader {
        reference,
        candidate,
        places: HashMap::new(),
        copies: HashMap::new(),
    };
    let (mut choice, mut done) = (None, 0);
    // When there were more plans than are listed, the right one may be missing and its neighbours agree here and there.
    let complete = plans.len() < MOST_PLANS;
    let least = if complete { CONVINCING } else { BEYOND_DOUBT };
    let unit = reference
        .iter()
        .chain(candidate)
        .filter_map(|view| unit_roundoff(view.dtype()))
        .fold(0.0, f64::max);
    for price in PRICES {
        let end = plans.partition_point(|plan| plan.cost <= price);
        if end == done {
            continue;
        }
        done = end;
        let (found, clear) = race(&plans[..end], &mut reader, least);
        choice = found;
        // Further off than rounding, a less simple plan may be the one that is meant.
        if clear.is_some_and(|off| off <= ROUNDED * unit) {
            break;
        }
    }
    if complete && choice.is_none_or(|choice: Choice| !choice.agrees) {
        choice = correlated(plans, &mut reader).or(choice);
    }
    for view in reference.iter().chain(candidate) {
        view.check().map_err(ReadError::from)?;
    }
    Ok(choice)
}

/// The best of these plans and, when it is beyond doubt, how far off it is.
fn race(plans: &[Way], reader: &mut Reader<'_>, least: f64) -> (Option<Choice>, Option<f64>) {
    let mut alive: Vec<usize> = (0..plans.len()).collect();
    let mut simplest = None;
    let mut reads: Vec<(usize, Read)> = Vec::new();
    for (stage, want) in STAGES.into_iter().enumerate() {
        alive.truncate(PLANS[stage]);
        reads = alive
            .iter()
            .filter_map(|plan| Some((*plan, reader.read(&plans[*plan].steps, want)?)))
            .collect();
        if stage == 0 {
            // What are no copies of each other are no copies whatever they agree with.
            let holding = reads
                .iter()
                .find(|(plan, _)| reader.holds(&plans[*plan].steps));
            simplest = holding.or(reads.first()).map(|(plan, _)| *plan);
        }
        keep_the_best(&mut reads);
        alive = reads.iter().map(|(plan, _)| *plan).collect();
        let told = reads
            .iter()
            .any(|(_, read)| !read.all && !constant(&read.reference));
        let hopeful = reads.iter().any(|(_, read)| above_chance(read) > HOPEFUL);
        if alive.len() < 2 || !told || !hopeful {
            break;
        }
    }
    keep_the_finest(&mut reads);
    // Of plans that agree alike, one whose copies are copies: the first rank agrees with the first rank however the others are put together.
    let holding = reads
        .iter()
        .position(|(plan, _)| reader.holds(&plans[*plan].steps));
    let (Some(simplest), Some((first, read))) = (simplest, reads.get(holding.unwrap_or(0))) else {
        return (None, None);
    };
    let above = above_chance(read);
    let least = match reader
        .elaborate(&plans[*first], &plans[simplest])
        .then(|| reader.read(&plans[simplest].steps, STAGES[1]))
        .flatten()
    {
        Some(simple) => least
            .max(ELABORATE)
            .max((MORE * above_chance(&simple)).min(BEYOND_DOUBT)),
        None => least,
    };
    let (agrees, holds) = (above > least, holding.is_some());
    // Several plans may agree alike, as ways to write the same one do: the values then stand behind the simplest.
    let choice = match agrees {
        true => Choice {
            plan: *first,
            by: Evidence::Values,
            agrees,
            above,
            holds,
        },
        // Values that are all alike agree in any order, but not with others: ones that add up to twos.
        false
            if equal(read)
                && !reader
                    .read(&plans[simplest].steps, STAGES[0])
                    .is_some_and(|read| equal(&read)) =>
        {
            Choice {
                plan: *first,
                by: Evidence::Values,
                agrees,
                above,
                holds,
            }
        }
        false => Choice {
            plan: simplest,
            by: Evidence::Shape,
            agrees,
            above,
            holds,
        },
    };
    // In a small tensor a neighbouring plan may be right in most places; nothing less than everywhere is beyond doubt.
    let clear = if read.all {
        above >= 1.0
    } else {
        above > BEYOND_DOUBT
    };
    (Some(choice), (clear && holds).then(|| off(read)))
}

/// Whether there is no difference beyond rounding anywhere.
fn equal(read: &Read) -> bool {
    !read.reference.is_empty() && mean(&agreements(read)) > EQUAL
}

fn constant(values: &[f64]) -> bool {
    values.windows(2).all(|pair| bits(pair[0]) == bits(pair[1]))
}

/// Leaves the reads that are not clearly worse than the best.
fn keep_the_best(reads: &mut Vec<(usize, Read)>) {
    let scores: Vec<Vec<f64>> = reads.iter().map(|(_, read)| agreements(read)).collect();
    let Some(best) = scores.iter().max_by(|a, b| mean(a).total_cmp(&mean(b))) else {
        return;
    };
    let all = reads.iter().all(|(_, read)| read.all);
    let keep: Vec<bool> = scores
        .iter()
        .map(|score| !clearly_worse(best, score, all))
        .collect();
    let mut keep = keep.into_iter();
    reads.retain(|_| keep.next().unwrap_or(false));
}

/// Of reads that agree alike, leaves those that are not much further off than the nearest.
fn keep_the_finest(reads: &mut Vec<(usize, Read)>) {
    let off: Vec<f64> = reads.iter().map(|(_, read)| off(read)).collect();
    let least = off.iter().copied().fold(f64::INFINITY, f64::min);
    let mut off = off.into_iter();
    reads.retain(|_| off.next().is_some_and(|off| off <= FINER * least));
}

/// The mean difference of what is finite on both sides, relative to the mean size; what is not finite on one side alone is as far off as a
/// stranger.
fn off(read: &Read) -> f64 {
    let (mut off, mut size) = (0.0, 0.0);
    let typical = median(&read.reference);
    for (r, c) in read.reference.iter().zip(&read.candidate) {
        match (r.is_finite(), c.is_finite()) {
            (true, true) => (off, size) = (off + (c - r).abs(), size + r.abs()),
            (false, false) if r.total_cmp(c).is_eq() || r.is_nan() && c.is_nan() => {}
            _ => (off, size) = (off + typical, size + typical),
        }
    }
    if off == 0.0 { 0.0 } else { off / size }
}

fn clearly_worse(best: &[f64], other: &[f64], all: bool) -> bool {
    if all && mean(best) == 1.0 {
        return mean(other) < 1.0;
    }
    let differences: Vec<f64> = best.iter().zip(other).map(|(a, b)| a - b).collect();
    let (count, lead) = (differences.len().max(1) as f64, mean(&differences));
    let spread = (differences.iter().map(|d| (d - lead).powi(2)).sum::<f64>() / count).sqrt();
    // When every element was seen there is no luck of the draw, only the noise of the values.
    let (errors, least) = if all { (1.0, 0.02) } else { (4.0, 0.01) };
    lead > least + errors * spread / count.sqrt()
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

fn agreements(read: &Read) -> Vec<f64> {
    let scale = 0.1 * median(&read.reference);
    read.reference
        .iter()
        .zip(&read.candidate)
        .map(|(r, c)| agreement(*r, *c, scale))
        .collect()
}

fn agreement(r: f64, c: f64, scale: f64) -> f64 {
    if r == c || (r.is_nan() && c.is_nan()) {
        return 1.0;
    }
    if !r.is_finite() || !c.is_finite() {
        return 0.0;
    }
    // Halved first: the difference of two finite values can be infinite.
    let (difference, size) = (
        (c / 2.0 - r / 2.0).abs(),
        r.abs().max(c.abs()) / 2.0 + scale / 2.0,
    );
    1.0 / (1.0 + 20.0 * difference / size)
}

fn median(values: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = values
        .iter()
        .map(|value| value.abs())
        .filter(|size| size.is_finite() && *size > 0.0)
        .collect();
    let middle = sizes.len() / 2;
    if sizes.is_empty() {
        0.0
    } else {
        *sizes.select_nth_unstable_by(middle, f64::total_cmp).1
    }
}

/// How far the agreement is above what the same values would have in another order, as a share of what that leaves.
fn above_chance(read: &Read) -> f64 {
    let scale = 0.1 * median(&read.reference);
    let count = read.reference.len();
    let found = mean(&agreements(read));
    let shifted = [1, count / 3 + 1, count / 2 + 1];
    let chance = |shift: &usize| {
        let others = (0..count).map(|at| {
            agreement(
                read.reference[at],
                read.candidate[(at + shift) % count.max(1)],
                scale,
            )
        });
        mean(&others.collect::<Vec<_>>())
    };
    let chance = mean(&shifted.iter().map(chance).collect::<Vec<_>>());
    if chance < 1.0 {
        (found - chance) / (1.0 - chance)
    } else {
        0.0
    }
}

/// The simplest plan whose ranks correlate like the best's, when that is more than chance and not every plan's.
fn correlated(plans: &[Way], reader: &mut Reader<'_>) -> Option<Choice> {
    let mut correlation = |plan: usize, want: usize| {
        let read = reader
            .read(&plans[plan].steps, want)
            .filter(|read| read.reference.len() >= 16)?;
        // One plan of many correlates by chance where values are few.
        let chance = CORRELATED_ERRORS / (read.reference.len() as f64).sqrt();
        let found = rank_correlation(&read.reference, &read.candidate).abs();
        Some((
            plan,
            if want > STAGES[0] && found < chance {
                0.0
            } else {
                found
            },
        ))
    };
    let first: Vec<(usize, f64)> = (0..plans.len().min(CORRELATED_PLANS))
        .filter_map(|plan| correlation(plan, STAGES[0]))
        .collect();
    let likely = first
        .iter()
        .filter(|(_, rough)| *rough > CORRELATED - 2.0 * CORRELATION_LEAD);
    let found: Vec<(usize, f64)> = likely
        .filter_map(|(plan, _)| correlation(*plan, STAGES[1]))
        .collect();
    let best = found
        .iter()
        .map(|(_, correlation)| *correlation)
        .fold(0.0, f64::max);
    let close: Vec<usize> = found
        .iter()
        .filter(|(_, c)| *c > best - CORRELATION_LEAD)
        .map(|(plan, _)| *plan)
        .collect();
    let elaborate = close
        .first()
        .is_some_and(|plan| reader.elaborate(&plans[*plan], &plans[0]));
    let least = if elaborate { BEYOND_DOUBT } else { CORRELATED };
    let decides = best > least && (close.len() < first.len() || first.len() == 1);
    decides.then(|| Choice {
        plan: close[0],
        by: Evidence::Values,
        agrees: true,
        above: 0.0,
        holds: true,
    })
}

fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let (ma, mb) = (mean(&a), mean(&b));
    let (mut top, mut left, mut right) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(&b) {
        top += (x - ma) * (y - mb);
        left += (x - ma).powi(2);
        right += (y - mb).powi(2);
    }
    if left > 0.0 && right > 0.0 {
        top / (left * right).sqrt()
    } else {
        0.0
    }
}

/// Places in sorted order; equal values share theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut at = 0;
    while at < order.len() {
        let end = at
            + order[at..]
                .iter()
                .take_while(|i| values[**i].total_cmp(&values[order[at]]).is_eq())
                .count();
        order[at..end]
            .iter()
            .for_each(|i| ranks[*i] = (at + end) as f64 / 2.0);
        at = end;
    }
    ranks
}

struct Reader<'a> {
    reference: &'a [View],
    candidate: &'a [View],
    /// Where to read, and the reference there, by the reference's own steps.
    places: HashMap<(String, usize), Places>,
    /// Whether the parts that these steps leave are copies of each other as the next one says.
    copies: HashMap<String, bool>,
}

#[derive(Clone)]
struct Places {
    flat: Vec<u64>,
    values: Vec<f64>,
}

/// Copies agree at least this much, strangers hardly.
const COPIED: f64 = 0.5;

impl Reader<'_> {
    /// Whether most of what a plan takes for copies are copies.
    fn holds(&mut self, steps: &[Step]) -> bool {
        steps.iter().enumerate().all(|(nth, step)| match step {
            Step::Keep {
                side,
                parts,
                of,
                why: KeepReason::Copies,
                ..
            } if !of.is_empty() => {
                let key = format!("{:?}", &steps[..=nth]);
                if let Some(known) = self.copies.get(&key) {
                    return *known;
                }
                let views = if *side == Which::Reference {
                    self.reference
                } else {
                    self.candidate
                };
                let known = are_copies(&steps[..nth], *side, views, parts, of);
                self.copies.insert(key, known);
                known
            }
            _ => true,
        })
    }

    /// Whether several parts are put together in a way that is much less simple than this one.
    fn elaborate(&self, plan: &Way, simple: &Way) -> bool {
        let joins = plan
            .steps
            .iter()
            .any(|step| matches!(step, Step::Concat { .. }));
        joins
            && self.reference.len().max(self.candidate.len()) > 1
            && plan.cost >= simple.cost + ZIGZAG / 2
    }

    /// The values of a plan; `None` when it cannot be carried out or has no numbers.
    fn read(&mut self, steps: &[Step], want: usize) -> Option<Read> {
        let (reference, candidate) = steps::run(steps, self.reference, self.candidate).ok()?;
        let per = reference.dtype().values_per_element();
        if !reference.dtype().has_numbers()
            || !candidate.dtype().has_numbers()
            || reference.is_empty()
        {
            return Some(Read {
                all: true,
                ..Read::default()
            });
        }
        let own: Vec<&Step> = steps
            .iter()
            .filter(|step| step.side() == Which::Reference || **step == Step::Flatten)
            .collect();
        // Candidates may not change where a reference without steps is read.
        let key = if own.is_empty() {
            String::new()
        } else {
            format!("{own:?}")
        };
        let places = self
            .places
            .entry((key, want))
            .or_insert_with(|| places(&reference, want));
        let other = candidate.dtype().values_per_element();
        let mut read = Read {
            all: reference.len() <= want as u64,
            ..Read::default()
        };
        let values = values(&candidate, &places.flat);
        // A real number beside a complex one: the real parts.
        let shared = per.min(other);
        for at in 0..places.flat.len() {
            read.reference
                .extend_from_slice(&places.values[at * per..at * per + shared]);
            read.candidate
                .extend_from_slice(&values[at * other..at * other + shared]);
        }
        Some(read)
    }
}

fn are_copies(steps: &[Step], side: Which, views: &[View], kept: &[usize], of: &[usize]) -> bool {
    let Some(parts) = steps::parts_after(steps, side, views) else {
        return true;
    };
    let dropped = (0..parts.len()).filter(|part| !kept.contains(part));
    let alike = dropped.filter_map(|part| {
        let (one, other) = (&parts[*kept.get(*of.get(part)?)?], &parts[part]);
        if one.shape() != other.shape() || !one.dtype().has_numbers() {
            return None;
        }
        let places = places(one, STAGES[0]);
        let read = Read {
            candidate: values(other, &places.flat),
            reference: places.values,
            all: false,
        };
        Some(mean(&agreements(&read)) > COPIED)
    });
    let (same, other): (Vec<bool>, Vec<bool>) = alike.partition(|alike| *alike);
    same.len() >= other.len()
}

/// Places that tell plans apart: all, or scattered ones, with those that hold the most common value in the minority.
fn places(reference: &dyn Operand, want: usize) -> Places {
    let len = reference.len();
    if len <= want as u64 {
        let flat: Vec<u64> = (0..len).collect();
        return Places {
            values: values(reference, &flat),
            flat,
        };
    }
    let per = reference.dtype().values_per_element();
    let mut flat = scattered(len, want);
    let mut found = values(reference, &flat);
    if let Some(common) = most_common(&found) {
        let mut many = if len <= (want * SEARCHED) as u64 {
            (0..len).collect()
        } else {
            scattered(len, want * SEARCHED)
        };
        let all = values(reference, &many);
        let rare: Vec<bool> = all
            .chunks(per)
            .map(|item| item.iter().any(|value| bits(*value) != common))
            .collect();
        let mut rares: Vec<u64> = many
            .iter()
            .zip(&rare)
            .filter(|(_, rare)| **rare)
            .map(|(place, _)| *place)
            .collect();
        thin(&mut rares, want - want / 4);
        let mut nth = 0;
        many.retain(|_| (!rare[nth], nth += 1).0);
        thin(&mut many, want - rares.len());
        flat = [rares, many].concat();
        flat.sort_unstable();
        found = values(reference, &flat);
    }
    Places {
        flat,
        values: found,
    }
}

/// Evenly spaced items, `most` at most.
fn thin(items: &mut Vec<u64>, most: usize) {
    if items.len() > most {
        *items = (0..most).map(|at| items[at * items.len() / most]).collect();
    }
}

/// The bits of a value that more than half of all have.
fn most_common(values: &[f64]) -> Option<u64> {
    let mut all: Vec<u64> = values.iter().map(|value| bits(*value)).collect();
    let middle = all.len() / 2;
    if all.is_empty() {
        return None;
    }
    let candidate = *all.select_nth_unstable(middle).1;
    (all.iter().filter(|other| **other == candidate).count() * 2 > all.len()).then_some(candidate)
}

/// Both zeros are one value: what is masked by a product has as many of the one as of the other.
fn bits(value: f64) -> u64 {
    (value + 0.0).to_bits()
}

/// Fixed places without a period: the same ones on every machine, in ascending order because that is how files are read best.
fn scattered(len: u64, count: usize) -> Vec<u64> {
    let mut places: Vec<u64> = (0..count as u64)
        .map(|at| {
            let mut bits = (at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ len;
            bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            (bits ^ bits >> 31) % len
        })
        .collect();
    places.sort_unstable();
    places
}

fn values(operand: &dyn Operand, places: &[u64]) -> Vec<f64> {
    let (mut scratch, mut one, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    while at < places.len() {
        // Neighbours are read together.
        let run = places[at..]
            .iter()
            .zip(places[at]..)
            .take_while(|(place, next)| *place == next)
            .count();
        operand.f64_values(places[at], run, &mut scratch, &mut one);
        all.extend_from_slice(&one);
        at += run;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_agrees_and_strangers_do_not() {
        assert_eq!(agreement(1.0, 1.0, 0.1), 1.0);
        assert_eq!(agreement(f64::NAN, f64::NAN, 0.1), 1.0);
        assert_eq!(agreement(f64::NAN, 1.0, 0.1), 0.0);
        assert_eq!(agreement(f64::INFINITY, 1.0, 0.1), 0.0);
        assert!(agreement(f64::MAX, f64::MIN, 0.1) < 0.1);
        assert!(agreement(1.0, 1.01, 0.1) > 0.8);
        assert!(agreement(1.0, -1.0, 0.1) < 0.05);
        assert_eq!(agreement(0.0, -0.0, 0.0), 1.0);
    }

    #[test]
    fn of_plans_that_agree_alike_the_finer_is_left() {
        let read = |off: f64| {
            let reference: Vec<f64> = (1..=100).map(f64::from).collect();
            Read {
                candidate: reference.iter().map(|r| r * (1.0 + off)).collect(),
                reference,
                all: false,
            }
        };
        let left = |offs: &[f64]| {
            let mut reads: Vec<(usize, Read)> =
                offs.iter().map(|off| read(*off)).enumerate().collect();
            keep_the_finest(&mut reads);
            reads.iter().map(|(plan, _)| *plan).collect::<Vec<_>>()
        };
        assert_eq!(left(&[1e-3, 0.0, 1e-3, 0.0]), [1, 3]);
        assert_eq!(left(&[1e-3, 1e-6]), [1]);
        assert_eq!(left(&[3e-3, 1e-3, 5e-3]), [0, 1], "what rounding may be");
        let mut odd = read(0.0);
        odd.candidate[3] = f64::NAN;
        assert!(off(&odd) > 0.0 && off(&read(0.0)) == 0.0);
    }

    #[test]
    fn ranks_share_places() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.0, 0.5, 3.0, 1.5]);
        assert!(
            (rank_correlation(&[1.0, 2.0, 3.0, 4.0], &[-1.0, -2.0, -30.0, -31.0]) + 1.0).abs()
                < 1e-12
        );
        assert_eq!(rank_correlation(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
    }

    #[test]
    fn the_rare_values_of_a_sparse_tensor_are_found() {
        let zero = |at: u32| if at.is_multiple_of(2) { 0.0 } else { -0.0 };
        let bytes: Vec<u8> = (0..40_000u32)
            .flat_map(|at| if at % 97 == 5 { at as f32 } else { zero(at) }.to_le_bytes())
            .collect();
        let view = View::new(twinscope_tensor::DType::F32, [40_000].into(), bytes.into()).unwrap();
        let places = places(&view, 512);
        assert_eq!(places.flat.len(), 512);
        assert!(places.values.iter().filter(|value| **value != 0.0).count() > 60);
    }
}
