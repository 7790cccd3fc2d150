//! Ranks that should hold the same: whether they do, and which of them to show when they do not.
//!
//! A layout that reads one of several copies says so, and that has to be true: a rank that went wrong alone would otherwise be called
//! identical. So every copy is read once. Where one differs, the copy furthest from the other side is compared in place of the first, and
//! the step says why, and which ones are not like most of the others.

use super::{Aligned, Evidence, Incomparable, KeepReason, Layout, LayoutError, Step, Which, steps};
use twinscope_measure::{Options, Profiling, Totals, totals_watched};
use twinscope_tensor::{Assembly, Operand, View};

/// The same alignment when all copies that its steps leave out are equal to one that they keep; else with the furthest in its place.
/// `None` when `go_on` said no.
pub(crate) fn settle(
    aligned: Aligned,
    reference: &[View],
    candidate: &[View],
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Aligned>, LayoutError> {
    let mut layout = aligned.layout.clone();
    let mut changed = false;
    for nth in 0..layout.steps.len() {
        let Step::Keep {
            side,
            parts,
            of,
            why: KeepReason::Copies,
            ..
        } = layout.steps[nth].clone()
        else {
            continue;
        };
        let views = if side == Which::Reference {
            reference
        } else {
            candidate
        };
        let Some(views) = steps::parts_after(&layout.steps[..nth], side, views) else {
            continue;
        };
        let Some(odd) = odd_ones(&views, &parts, &of, go_on)? else {
            return Ok(None);
        };
        // Taken for copies by their shapes, or because the first agrees with a slice, and none is: they are something else, as shards of
        // which one is missing.
        let cut = layout
            .steps
            .iter()
            .any(|step| matches!(step, Step::Cut { .. }));
        let weak = layout.by == Evidence::Shape || cut;
        let dropped = views.len() - parts.len();
        let strangers = odd
            .iter()
            .flat_map(|(_, copies)| copies)
            .filter(|(apart, _)| apart.1 > UNRELATED)
            .count();
        // Copies of a part, of which one is a stranger: heads that some ranks share, and a rank that is missing.
        if weak && strangers == dropped || cut && strangers > 0 {
            let shapes = |views: &[View]| views.iter().map(|view| view.shape().clone()).collect();
            return Err(Incomparable {
                reference: shapes(reference),
                candidate: shapes(candidate),
            }
            .into());
        }
        for (place, copies) in odd {
            let others: Vec<usize> = copies.iter().map(|(_, copy)| *copy).collect();
            let group: Vec<usize> = (0..views.len())
                .filter(|part| of.get(*part) == Some(&place) || others.contains(part))
                .collect();
            let Some(few) = minority(&views, &group, others, go_on)? else {
                return Ok(None);
            };
            if let Step::Keep { differ, .. } = &mut layout.steps[nth] {
                differ.extend(few);
            }
            let mut best = (Distance::NONE, parts[place]);
            for copy in
                std::iter::once(parts[place]).chain(copies.into_iter().map(|(_, copy)| copy))
            {
                let with = replaced(&layout, nth, place, copy);
                let tried = steps::aligned(with, reference, candidate, layout.by)?;
                let Some(distance) = distance(&*tried.reference, &*tried.candidate, go_on)? else {
                    return Ok(None);
                };
                if distance > best.0 {
                    best = (distance, copy);
                }
            }
            layout.steps = replaced(&layout, nth, place, best.1);
            changed = true;
        }
    }
    if !changed {
        return Ok(Some(aligned));
    }
    steps::aligned(layout.steps, reference, candidate, layout.by).map(Some)
}

/// Of copies of one part, those that are not like most of them; `odd` are those that are not like the part that was kept. `None` when stopped.
fn minority(
    views: &[Assembly],
    group: &[usize],
    odd: Vec<usize>,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Vec<usize>>, LayoutError> {
    if odd.len() * 2 <= group.len() {
        return Ok(Some(odd));
    }
    // It may be the kept one that is alone.
    let mut alike = vec![odd[0]];
    for part in &odd[1..] {
        let Some(found) = distance(bare(&views[odd[0]]), bare(&views[*part]), go_on)? else {
            return Ok(None);
        };
        if found == Distance::NONE {
            alike.push(*part);
        }
    }
    let most = alike.len() * 2 > group.len();
    Ok(Some(if most {
        group
            .iter()
            .copied()
            .filter(|part| !alike.contains(part))
            .collect()
    } else {
        odd
    }))
}

fn replaced(layout: &Layout, nth: usize, place: usize, copy: usize) -> Vec<Step> {
    let mut all = layout.steps.clone();
    if let Step::Keep { parts, why, .. } = &mut all[nth] {
        parts[place] = copy;
        *why = KeepReason::Furthest;
    }
    all
}

/// Relative to the kept part: what is not even a broken copy.
const UNRELATED: f64 = 0.5;

/// Of each kept part, by its place, the copies of it that differ from it, with how far.
type Odd = Vec<(usize, Vec<(Distance, usize)>)>;

/// `None` when stopped. A copy belongs to the kept part that the step says, else to the one that it is nearest to: a rank that holds another's
/// head is the copy of a kept part too, and wrong all the same.
fn odd_ones(
    views: &[Assembly],
    kept: &[usize],
    of: &[usize],
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Odd>, LayoutError> {
    let mut odd: Odd = Vec::new();
    for part in (0..views.len()).filter(|part| !kept.contains(part)) {
        let mut nearest: Option<(Distance, usize)> = None;
        let said = of.get(part);
        let alike = |(place, other): &(usize, &usize)| {
            said.is_none_or(|said| said == place) && views[**other].shape() == views[part].shape()
        };
        for (place, other) in kept.iter().enumerate().filter(alike) {
            let Some(found) = distance(bare(&views[*other]), bare(&views[part]), go_on)? else {
                return Ok(None);
            };
            if nearest.is_none_or(|(least, _)| found < least) {
                nearest = Some((found, place));
            }
            if found == Distance::NONE {
                break;
            }
        }
        if let Some((apart, place)) = nearest.filter(|(found, _)| *found != Distance::NONE) {
            match odd.iter_mut().find(|(other, _)| *other == place) {
                Some((_, copies)) => copies.push((apart, part)),
                None => odd.push((place, vec![(apart, part)])),
            }
        }
    }
    Ok(Some(odd))
}

/// The view itself where nothing was done to it, which is read faster.
fn bare(part: &Assembly) -> &dyn Operand {
    part.view().map_or(part as &dyn Operand, |view| view)
}

/// How far two are apart: what is not finite on one side only first, then the relative error, then how many differ.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Distance(u64, f64, u64);

impl Distance {
    const NONE: Self = Self(0, 0.0, 0);

    fn of(totals: &Totals) -> Self {
        // Undefined where the reference is zero and the other is not: as far as can be.
        let relative = if totals.differing == 0 {
            0.0
        } else {
            totals.rel_l2.unwrap_or(f64::INFINITY)
        };
        Self(totals.nonfinite_differing, relative, totals.differing)
    }
}

/// `None` when stopped.
fn distance(
    one: &dyn Operand,
    other: &dyn Operand,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Distance>, LayoutError> {
    let options = Options {
        profiles: Profiling::Off,
        top: 0,
        tolerance: None,
    };
    let totals = totals_watched(one, other, &options, &|_| go_on())?;
    Ok(totals.as_ref().map(Distance::of))
}
