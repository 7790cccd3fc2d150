//! Rope gone wrong: another theta, positions that are off, a scaling, no rotation at all, the wrong channels paired.
//!
//! First each side against its own tensor before rope, when one is recorded: that gives the frequencies of both, and is the only way to see a
//! wrong pairing. Otherwise the candidate against the reference: pairs keep their length, and the angle between them is the same for every
//! head, a line over the positions, or at least the same.

use super::{
    near::{close, typical},
    turns::{Lines, Pairing, Plan, wrapped},
};
use crate::{
    Case, Class, Examined, Explanation, Hypothesis, Loaded, array::Axis, case::Predicted,
    constants::short,
};
use std::sync::Arc;
use twinscope_report::{
    CauseKind,
    facts::{RopeSetting as Setting, Rotated as Facts, RotatedParameter},
};

#[derive(Debug)]
pub(super) struct Rotated;

/// Pairs before this one among which its input is looked for.
const BEFORE: usize = 24;
/// Elements read in all to look for it.
const READ: usize = 1 << 22;
/// Heads must agree this well on an angle to have one.
const AGREED: f64 = 0.98;
/// Of many values few say whether they do, and only what people build is tried on them.
const LARGE: usize = 1 << 17;
const HARDLY_AGREED: f64 = 0.95;
/// Thetas that models use.
const THETAS: [f64; 16] = [
    1e4, 5e5, 1e6, 1e3, 1e5, 5e6, 1e7, 1e2, 2e4, 2.5e4, 5e4, 1.5e5, 1.6e5, 2.5e5, 8e6, 1.5e6,
];

impl Hypothesis for Rotated {
    fn name(&self) -> &'static str {
        "rotated"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let Some(&channels) = case.dims.last().filter(|channels| **channels >= 4) else {
            return Err("there are no pairs of channels".into());
        };
        if case.dims.len() < 2 || !case.is_finite() {
            return Err("there are no positions, or not all values are finite".into());
        }
        let sides = Sides::new(case);
        let found = inputs(case).find_map(|input| against_inputs(&sides, channels, &input));
        let found = found
            .or_else(|| between(&sides, channels))
            .filter(|found| sides.tells(found));
        found
            .map(|found| vec![found])
            .ok_or_else(|| "pairs of channels are not turned".into())
    }
}

struct Sides<'a> {
    case: &'a Case<'a>,
    rms: f64,
    tolerance: f64,
}

impl<'a> Sides<'a> {
    fn new(case: &'a Case<'a>) -> Self {
        let tolerance = (super::near::SLACK * case.noise[3]).max(1e-9);
        Self {
            case,
            rms: typical(case.candidate),
            tolerance,
        }
    }

    /// On scattered elements, nearly all.
    fn same(&self, a: &[f64], b: &[f64]) -> bool {
        let step = (a.len() / 1024).max(1) | 1;
        let (mut seen, mut wrong) = (0usize, 0usize);
        for at in (0..a.len()).step_by(step) {
            seen += 1;
            wrong += usize::from(!close(a[at], b[at], self.rms, self.tolerance));
        }
        wrong * 16 <= seen
    }

    /// Whether it is far nearer to the candidate than the reference is: beside much noise, much would pass.
    fn tells(&self, found: &Explanation) -> bool {
        let Predicted::Values(predicted) = &found.predicted else {
            return true;
        };
        let step = (predicted.len() / 4096).max(1) | 1;
        let (mut left, mut whole) = (0.0, 0.0);
        for at in (0..predicted.len()).step_by(step) {
            let c = self.case.candidate[at];
            left += (c - predicted[at]).powi(2);
            whole += (c - self.case.reference[at]).powi(2);
        }
        left <= 0.1 * whole
    }

    /// An angle that could be rounding.
    fn angle_noise(&self) -> f64 {
        (4.0 * self.case.noise[0]).max(2e-3)
    }
}

/// Both sides of a tensor that may have been the input, in this one's dimensions.
struct Input {
    name: String,
    loaded: Arc<Loaded>,
    /// Where the dimensions lie in another order.
    swapped: Option<[Vec<f64>; 2]>,
}

impl Input {
    fn reference(&self) -> &[f64] {
        self.swapped
            .as_ref()
            .map_or(&self.loaded.reference, |[reference, _]| reference)
    }

    fn candidate(&self) -> &[f64] {
        self.swapped
            .as_ref()
            .map_or(&self.loaded.candidate, |[_, candidate]| candidate)
    }
}

/// Those before this one, the nearest first; read when it is their turn.
fn inputs<'a>(case: &'a Case<'a>) -> impl Iterator<Item = Input> + 'a {
    let entries = case.scene.entries();
    let alike = (case.pair.saturating_sub(BEFORE)..case.pair)
        .rev()
        .filter(|at| !entries[*at].parameter);
    let alike = alike.filter_map(|at| Some((at, View::of(&entries[at].dims, case.dims)?)));
    alike
        .take((READ / case.reference.len()).max(2))
        .filter_map(|(at, view)| {
            let loaded = case.scene.load(at)?;
            let swapped = view.swap.map(|(a, b)| {
                [&loaded.reference, &loaded.candidate].map(|side| view.read(side, a, b))
            });
            Some(Input {
                name: entries[at].name.clone(),
                loaded,
                swapped,
            })
        })
}

/// How values of other dimensions are read in these: as they are, or with two dimensions swapped, the last perhaps flattened.
struct View {
    /// Sizes as they lie, and the two that are swapped.
    dims: Vec<usize>,
    swap: Option<(usize, usize)>,
}

impl View {
    fn of(from: &[usize], to: &[usize]) -> Option<Self> {
        let bare = |dims: &[usize]| {
            dims.iter()
                .copied()
                .filter(|dim| *dim > 1)
                .collect::<Vec<_>>()
        };
        let (from, to) = (bare(from), bare(to));
        if from == to {
            return Some(Self {
                dims: to,
                swap: None,
            });
        }
        let last = to.len().checked_sub(1)?;
        let swaps = (0..last).flat_map(|a| (a + 1..last).map(move |b| (a, b)));
        for (a, b) in swaps {
            let mut dims = to.clone();
            dims.swap(a, b);
            let mut flat = dims.clone();
            let channels = flat.pop()?;
            *flat.last_mut()? *= channels;
            if from == dims || from == flat {
                return Some(Self {
                    dims,
                    swap: Some((a, b)),
                });
            }
        }
        // `[s, h, d]` of `[s, h * d]`
        (from.iter().product::<usize>() == to.iter().product::<usize>()
            && to.starts_with(&from[..from.len().saturating_sub(1)])
            && to.len() == from.len() + 1)
            .then_some(Self {
                dims: to,
                swap: None,
            })
    }

    fn read(&self, values: &[f64], a: usize, b: usize) -> Vec<f64> {
        let mut strides = vec![1; self.dims.len()];
        for axis in (0..self.dims.len() - 1).rev() {
            strides[axis] = strides[axis + 1] * self.dims[axis + 1];
        }
        let (mut dims, mut steps) = (self.dims.clone(), strides);
        dims.swap(a, b);
        steps.swap(a, b);
        (0..values.len())
            .map(|mut at| {
                let mut from = 0;
                for axis in (0..dims.len()).rev() {
                    from += at % dims[axis] * steps[axis];
                    at /= dims[axis];
                }
                values[from]
            })
            .collect()
    }
}

/// A plan under which `to` is `from` turned, with its lines where they fit.
struct Rotation {
    plan: Plan,
    lines: Lines,
    made: Vec<f64>,
}

/// Every plan for tensors of these dimensions: heads as wide as the last one or a part of it, all of it turned first.
fn plans(case: &Case<'_>, channels: usize) -> impl Iterator<Item = Plan> {
    let mut widths = super::near::divisors(channels);
    widths.retain(|width| *width >= 4 && width.is_multiple_of(2));
    widths.reverse();
    // All, three quarters, half or a quarter of a head.
    let large = case.reference.len() > LARGE;
    let axes: Vec<Axis> = (0..case.dims.len() - 1)
        .filter(|axis| case.dims[*axis] > 1)
        .map(|axis| Axis::of(case.dims, axis))
        .collect();
    widths.into_iter().flat_map(move |width| {
        let axes = axes.clone();
        let halves = (2..=width / 2)
            .rev()
            .filter(move |half| !large || (8 * half) % width == 0);
        halves.map(|half| 2 * half).flat_map(move |turned| {
            let axes = axes.clone();
            Pairing::BOTH.into_iter().flat_map(move |pairing| {
                axes.clone().into_iter().map(move |tokens| Plan {
                    pairing,
                    width,
                    turned,
                    tokens,
                })
            })
        })
    })
}

/// The rotation that makes `to` of `from`, a line over the positions for each pair.
fn rotation(sides: &Sides<'_>, channels: usize, from: &[f64], to: &[f64]) -> Option<Rotation> {
    let found = plans(sides.case, channels).find_map(|plan| rotation_by(sides, plan, from, to))?;
    if theta(&found).is_some() {
        return Some(found);
    }
    // Interleaved pairs that do not turn look like pairs that turn by nothing: the frequencies tell how many there are.
    let fewer = |quarter: usize| Plan {
        turned: found.plan.width * quarter / 4 / 2 * 2,
        ..found.plan
    };
    let plans = [2, 1, 3]
        .map(fewer)
        .into_iter()
        .filter(|plan| plan.turned >= 4);
    plans
        .filter_map(|plan| rotation_by(sides, plan, from, to))
        .find(|fewer| theta(fewer).is_some())
        .or(Some(found))
}

fn rotation_by(sides: &Sides<'_>, plan: Plan, from: &[f64], to: &[f64]) -> Option<Rotation> {
    // Two numbers for each pair must be few beside what they explain.
    if from.len() < 8 * plan.turned || !plan.keeps_lengths(from, to, sides.tolerance, sides.rms) {
        return None;
    }
    if from.len() > LARGE && plan.agreed_at_a_few(from, to) < HARDLY_AGREED {
        return None;
    }
    let (turns, agreed) = plan.turns(from, to, |at| sides.case.fits(at));
    if agreed < AGREED || (from.len() > LARGE && !Lines::could_be(&turns, plan.pairs())) {
        return None;
    }
    let lines = Lines::fit(&turns, plan.pairs());
    let same = |made: f64, is: f64| close(made, is, sides.rms, sides.tolerance);
    if from.len() > LARGE && !plan.makes_a_few(from, to, |t, j| lines.angle(t, j), same) {
        return None;
    }
    let made = plan.apply(from, |t, j| lines.angle(t, j));
    sides
        .same(&made, to)
        .then_some(Rotation { plan, lines, made })
}

/// Each side against its own input.
fn against_inputs(sides: &Sides<'_>, channels: usize, input: &Input) -> Option<Explanation> {
    let case = sides.case;
    let still = [
        (input.reference(), case.reference),
        (input.candidate(), case.candidate),
    ]
    .map(|(from, to)| sides.same(from, to));
    match still {
        [true, true] => None,
        [false, true] => {
            let reference = rotation(sides, channels, input.reference(), case.reference)?;
            let text = format!(
                "the candidate is not rotated: it is its own `{}`, where the reference has rope",
                input.name
            );
            let details = Facts::FromInput {
                parameter: RotatedParameter::Missing,
                pairing: reference.plan.pairing,
                input: input.name.clone(),
                reference: theta(&reference).map(|(theta, _)| Setting::Number(theta)),
                value: None,
            };
            Some(explanation(text, details, 1, input.candidate().to_vec()))
        }
        [true, false] => {
            let candidate = rotation(sides, channels, input.candidate(), case.candidate)?;
            let text = format!(
                "the candidate has rope where the reference is its own `{}`",
                input.name
            );
            let found = theta(&candidate);
            let details = Facts::FromInput {
                parameter: RotatedParameter::Extra,
                pairing: candidate.plan.pairing,
                input: input.name.clone(),
                reference: None,
                value: found.map(|(theta, _)| Setting::Number(theta)),
            };
            Some(explanation(
                text,
                details,
                candidate.plan.turned,
                candidate.made,
            ))
        }
        [false, false] => {
            let reference = rotation(sides, channels, input.reference(), case.reference)?;
            reused(sides, &reference, input).or_else(|| {
                // The reference's own plan first: only the angles may differ.
                let candidate =
                    rotation_by(sides, reference.plan, input.candidate(), case.candidate)
                        .or_else(|| rotation(sides, channels, input.candidate(), case.candidate))?;
                Some(compared(&reference, candidate))
            })
        }
    }
}

/// The reference's angles in another way: on other pairs, or backwards.
fn reused(sides: &Sides<'_>, reference: &Rotation, input: &Input) -> Option<Explanation> {
    let other = match reference.plan.pairing {
        Pairing::Halves => Pairing::Interleaved,
        Pairing::Interleaved => Pairing::Halves,
    };
    for (pairing, sign) in [(other, 1.0), (reference.plan.pairing, -1.0), (other, -1.0)] {
        let plan = Plan {
            pairing,
            ..reference.plan
        };
        let made = plan.apply(input.candidate(), |t, j| sign * reference.lines.angle(t, j));
        if !sides.same(&made, sides.case.candidate) {
            continue;
        }
        let mut how = Vec::new();
        if pairing == other {
            how.push(format!(
                "pairs channels {} where the reference pairs {}",
                pairing.name(),
                reference.plan.pairing.name()
            ));
        }
        if sign < 0.0 {
            how.push("turns them the other way".to_owned());
        }
        let parameter = if pairing == other {
            RotatedParameter::Pairing
        } else {
            RotatedParameter::Negated
        };
        let details = Facts::FromInput {
            parameter,
            pairing,
            input: input.name.clone(),
            reference: Some(Setting::Pairing(reference.plan.pairing)),
            value: Some(Setting::Pairing(pairing)),
        };
        return Some(explanation(
            format!("the candidate's rope {}", how.join(" and ")),
            details,
            1,
            made,
        ));
    }
    None
}

/// Two rotations of the same input.
fn compared(reference: &Rotation, candidate: Rotation) -> Explanation {
    let (plan, pairs) = (candidate.plan, candidate.plan.pairs());
    let thetas = (theta(reference), theta(&candidate));
    let freedom = candidate.plan.turned;
    let same_plan = reference.plan == plan;
    let off = same_plan.then(|| offset(reference, &candidate)).flatten();
    let (text, parameter, from, to) = match thetas {
        _ if reference.plan.pairing != plan.pairing => {
            let (a, b) = (plan.pairing.name(), reference.plan.pairing.name());
            (
                format!("the candidate's rope pairs channels {a} where the reference pairs {b}"),
                RotatedParameter::Pairing,
                Setting::Pairing(reference.plan.pairing),
                Setting::Pairing(plan.pairing),
            )
        }
        _ if reference.plan.turned != plan.turned => {
            let (a, b) = (plan.turned, reference.plan.turned);
            (
                format!(
                    "the candidate's rope turns {a} of {} channels, the reference's {b}",
                    plan.width
                ),
                RotatedParameter::Channels,
                Setting::Whole(b as i64),
                Setting::Whole(a as i64),
            )
        }
        _ if off.is_some() => {
            let off = off.unwrap_or_default();
            (
                format!(
                    "the candidate's positions are off by {} in rope",
                    short(off)
                ),
                RotatedParameter::Offset,
                Setting::Whole(0),
                Setting::Number(off),
            )
        }
        (Some((r, _)), Some((c, _))) if (r / c - 1.0).abs() > 1e-3 => {
            let text = format!(
                "the candidate's rope has theta {}, the reference's {}",
                short(c),
                short(r)
            );
            (
                text,
                RotatedParameter::Theta,
                Setting::Number(r),
                Setting::Number(c),
            )
        }
        (Some((_, r)), Some((_, c))) if (r / c - 1.0).abs() > 1e-3 => (
            format!(
                "the candidate's positions are scaled by {} in rope",
                short(c / r)
            ),
            RotatedParameter::Scaling,
            Setting::Number(r),
            Setting::Number(c),
        ),
        _ => {
            let at = |rotation: &Rotation| {
                let slopes = &rotation.lines.slope;
                Setting::PerPair(slopes[..pairs.min(slopes.len())].to_vec())
            };
            (
                "the candidate's rope has other frequencies".to_owned(),
                RotatedParameter::Frequencies,
                at(reference),
                at(&candidate),
            )
        }
    };
    let details = Facts::Setting {
        parameter,
        pairing: plan.pairing,
        reference: Some(from),
        value: Some(to),
    };
    explanation(
        text,
        details,
        if parameter == RotatedParameter::Frequencies {
            freedom
        } else {
            2
        },
        candidate.made,
    )
}

/// By how many positions the candidate is ahead, when its frequencies are the reference's.
fn offset(reference: &Rotation, candidate: &Rotation) -> Option<f64> {
    let (r, c) = (&reference.lines, &candidate.lines);
    let same = (0..r.slope.len()).all(|pair| {
        (r.slope[pair] - c.slope[pair]).abs() <= r.slope_error[pair] + c.slope_error[pair]
    });
    let starts: Vec<f64> = c
        .start
        .iter()
        .zip(&r.start)
        .map(|(c, r)| wrapped(c - r))
        .collect();
    let errors: Vec<f64> = c
        .start_error
        .iter()
        .zip(&r.start_error)
        .map(|(c, r)| c + r)
        .collect();
    same.then(|| whole_offset(&starts, &r.slope, &errors))
        .flatten()
}

/// The number of positions that makes these angles of these frequencies: whole ones, the smallest first.
fn whole_offset(starts: &[f64], frequencies: &[f64], errors: &[f64]) -> Option<f64> {
    if starts
        .iter()
        .zip(errors)
        .all(|(start, error)| start.abs() <= *error)
    {
        return None;
    }
    let fits = |off: &f64| {
        let left = |(start, f): (&f64, &f64)| wrapped(start - off * f).abs();
        starts
            .iter()
            .zip(frequencies)
            .map(left)
            .zip(errors)
            .all(|(left, error)| left <= *error + 1e-5 * off.abs())
    };
    (1..=1 << 14)
        .flat_map(|n| [f64::from(n), -f64::from(n)])
        .find(fits)
}

/// Theta and the factor on positions that make these frequencies, when they are powers of a theta at all.
fn theta(rotation: &Rotation) -> Option<(f64, f64)> {
    let (pairs, lines) = (rotation.plan.pairs(), &rotation.lines);
    let x = |pair: usize| pair as f64 / pairs as f64;
    let first = lines.slope[0].abs();
    let scale = if (first - 1.0).abs() <= lines.slope_error[0] {
        1.0
    } else {
        first
    };
    let off =
        |theta: f64, pair: usize| (lines.slope[pair].abs() - scale * theta.powf(-x(pair))).abs();
    let fits = |theta: &f64| (1..pairs).all(|pair| off(*theta, pair) <= lines.slope_error[pair]);
    let worst = |theta: &f64| (1..pairs).map(|pair| off(*theta, pair)).fold(0.0, f64::max);
    let known = THETAS
        .into_iter()
        .filter(fits)
        .min_by(|a, b| worst(a).total_cmp(&worst(b)));
    // A slope is known to so much, its logarithm to that over the slope.
    let (mut xx, mut xl) = (0.0, 0.0);
    for (pair, slope) in lines.slope.iter().enumerate().skip(1) {
        if slope.abs() > 4.0 * lines.slope_error[pair] {
            xx += slope * slope * x(pair) * x(pair);
            xl += slope * slope * x(pair) * (slope.abs() / scale).ln();
        }
    }
    let theta = known.unwrap_or_else(|| (-xl / xx).exp());
    (theta.is_finite() && theta > 1.0 && fits(&theta)).then_some((theta, scale))
}

/// The candidate against the reference: what the angles between them are.
fn between(sides: &Sides<'_>, channels: usize) -> Option<Explanation> {
    let case = sides.case;
    let mut spare = None;
    let mut tried = 0;
    for plan in plans(case, channels) {
        let (from, to) = (case.reference, case.candidate);
        if !plan.keeps_lengths(from, to, sides.tolerance, sides.rms) {
            continue;
        }
        tried += 1;
        if tried > 32 {
            break;
        }
        if let Some(found) = rotation_by(sides, plan, from, to) {
            if only_signs(sides, &found.lines) {
                continue;
            }
            if let Some(named) = named(&found) {
                return Some(named);
            }
            spare = spare.or_else(|| Some(by_lines(&found)));
        } else if spare.is_none() {
            spare = by_field(sides, plan);
        }
    }
    spare
}

/// Angles of 0 and half a turn only: signs, not rope.
fn only_signs(sides: &Sides<'_>, lines: &Lines) -> bool {
    let noise = 4.0 * sides.angle_noise();
    let sign =
        |angle: &f64| angle.abs() < noise || (angle.abs() - std::f64::consts::PI).abs() < noise;
    lines.slope.iter().all(sign) && lines.start.iter().all(|start| sign(&wrapped(*start)))
}

/// Angles that known thetas make.
fn named(found: &Rotation) -> Option<Explanation> {
    let (plan, lines) = (found.plan, &found.lines);
    let pairs = plan.pairs();
    let powers = |theta: f64| {
        (0..pairs)
            .map(|pair| theta.powf(-(pair as f64) / pairs as f64))
            .collect::<Vec<f64>>()
    };
    let starts: Vec<f64> = lines.start.iter().map(|start| wrapped(*start)).collect();
    let slopes_are = |of: &dyn Fn(usize) -> f64| {
        (0..pairs).all(|pair| (lines.slope[pair] - of(pair)).abs() <= lines.slope_error[pair])
    };
    let start_at_zero = starts
        .iter()
        .zip(&lines.start_error)
        .all(|(start, error)| start.abs() <= *error);
    let say =
        |text: String, parameter: RotatedParameter, reference: Setting, value: Option<Setting>| {
            let details = Facts::Setting {
                parameter,
                pairing: plan.pairing,
                reference: Some(reference),
                value,
            };
            Some(explanation(text, details, 2, found.made.clone()))
        };
    if slopes_are(&|_| 0.0) {
        return THETAS.into_iter().find_map(|theta| {
            let off = whole_offset(&starts, &powers(theta), &lines.start_error)?;
            let text = format!(
                "the candidate's positions are off by {} in rope (theta {})",
                short(off),
                short(theta)
            );
            say(
                text,
                RotatedParameter::Offset,
                Setting::Whole(0),
                Some(Setting::Number(off)),
            )
        });
    }
    if !start_at_zero {
        return None;
    }
    for theta in THETAS {
        let f = powers(theta);
        let was = short(theta);
        for (factor, parameter, text) in [
            (
                -1.0,
                RotatedParameter::Missing,
                format!("the candidate is not rotated, where the reference has rope (theta {was})"),
            ),
            (
                1.0,
                RotatedParameter::Extra,
                format!(
                    "the candidate is rotated once more than the reference (rope, theta {was})"
                ),
            ),
            (
                -2.0,
                RotatedParameter::Negated,
                format!("the candidate's rope turns the other way (theta {was})"),
            ),
        ] {
            if slopes_are(&|pair| factor * f[pair]) {
                return say(text, parameter, Setting::Number(theta), None);
            }
        }
        for other in THETAS.into_iter().filter(|other| *other != theta) {
            let g = powers(other);
            if slopes_are(&|pair| g[pair] - f[pair]) {
                let text = format!(
                    "the candidate's rope has theta {}, the reference's {was}",
                    short(other)
                );
                return say(
                    text,
                    RotatedParameter::Theta,
                    Setting::Number(theta),
                    Some(Setting::Number(other)),
                );
            }
        }
        let scale = 1.0 + lines.slope[0];
        if slopes_are(&|pair| (scale - 1.0) * f[pair]) && scale > 0.0 {
            let text = format!(
                "the candidate's positions are scaled by {} in rope (theta {was})",
                short(scale)
            );
            return say(
                text,
                RotatedParameter::Scaling,
                Setting::Whole(1),
                Some(Setting::Number(scale)),
            );
        }
    }
    None
}

fn by_lines(found: &Rotation) -> Explanation {
    let still = found.lines.slope.iter().all(|slope| slope.abs() < 1e-3);
    let how = if still {
        "an angle of their own"
    } else {
        "an angle that grows with the position"
    };
    let text = format!(
        "the candidate's pairs of channels ({}) are turned by {how}, as another rope would",
        found.plan.pairing.name()
    );
    let details = Facts::Angles {
        parameter: RotatedParameter::Frequencies,
        pairing: found.plan.pairing,
        reference: None,
        value: found.lines.slope.clone(),
        start: found.lines.start.clone(),
    };
    explanation(text, details, found.plan.turned, found.made.clone())
}

/// Any angle for every position and pair, the same for all heads: other positions.
fn by_field(sides: &Sides<'_>, plan: Plan) -> Option<Explanation> {
    let case = sides.case;
    if plan.copies(case.reference.len()) < 4 {
        return None;
    }
    let (turns, agreed) = plan.turns(case.reference, case.candidate, |at| case.fits(at));
    if agreed < AGREED
        || turns
            .iter()
            .all(|(re, im)| im.atan2(*re).abs() < sides.angle_noise())
    {
        return None;
    }
    let pairs = plan.pairs();
    let angle = |t: usize, j: usize| turns[t * pairs + j].1.atan2(turns[t * pairs + j].0);
    let made = plan.apply(case.reference, angle);
    if !sides.same(&made, case.candidate) {
        return None;
    }
    let text = format!(
        "the candidate's pairs of channels ({}) are turned by an angle that depends on the position alone, as rope at other positions would",
        plan.pairing.name()
    );
    let details = Facts::Setting {
        parameter: RotatedParameter::Positions,
        pairing: plan.pairing,
        reference: None,
        value: None,
    };
    Some(explanation(text, details, turns.len(), made))
}

fn explanation(text: String, details: Facts, freedom: usize, predicted: Vec<f64>) -> Explanation {
    Explanation {
        kind: CauseKind::Rotated,
        text,
        details: details.into(),
        class: Class::Mechanism,
        freedom,
        predicted: Predicted::Values(predicted),
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Pairing, Plan};
    use crate::{
        Examination,
        places::testing::bf16_noise,
        testing::{Recorded, examine_bf16, examine_in, examine_pair, normal, proven},
    };
    use proptest::prelude::*;
    use twinscope_report::CauseKind;

    const DIMS: [usize; 4] = [2, 4, 11, 12];

    fn plan(pairing: Pairing) -> Plan {
        Plan {
            pairing,
            width: 12,
            turned: 12,
            tokens: Axis::of(&DIMS, 2),
        }
    }

    fn rope(x: &[f64], plan: Plan, theta: f64, offset: f64, factor: f64) -> Vec<f64> {
        let pairs = plan.turned as f64 / 2.0;
        plan.apply(x, |t, j| {
            factor * (t as f64 + offset) * theta.powf(-(j as f64) / pairs)
        })
    }

    fn halves(x: &[f64], theta: f64) -> Vec<f64> {
        rope(x, plan(Pairing::Halves), theta, 0.0, 1.0)
    }

    /// With the query before rope recorded, or without it.
    fn run(recorded: bool, candidate: impl Fn(&[f64]) -> Vec<f64>) -> Vec<Recorded> {
        let q = normal(1056, 1);
        let out = Recorded {
            name: "q_rope",
            dims: DIMS.to_vec(),
            reference: halves(&q, 1e4),
            candidate: candidate(&q),
        };
        let before = Recorded {
            name: "q",
            dims: DIMS.to_vec(),
            reference: q.clone(),
            candidate: q,
        };
        if recorded {
            vec![before, out]
        } else {
            vec![out]
        }
    }

    fn parameter(found: &Examination) -> (&'static str, String, Option<f64>) {
        let kind = proven(found).unwrap_or("-");
        let details = found
            .found
            .first()
            .map(|found| found.explanation.details.json())
            .unwrap_or_default();
        (
            kind,
            details["parameter"].as_str().unwrap_or("-").to_owned(),
            details["value"].as_f64(),
        )
    }

    #[test]
    fn another_theta_is_named_with_and_without_the_input() {
        for recorded in [true, false] {
            let run = run(recorded, |q| halves(q, 5e5));
            assert_eq!(
                parameter(&examine_in(&run, "q_rope").0),
                ("rotated", "theta".to_owned(), Some(5e5)),
                "{recorded}"
            );
        }
    }

    #[test]
    fn also_under_the_noise_of_bf16() {
        // Without the input most of the pairs turn by less than the noise.
        let run = run(true, |q| bf16_noise(&halves(q, 5e5), 2e-3, 3));
        assert_eq!(proven(&examine_bf16(&run, "q_rope")), Some("rotated"));
    }

    #[test]
    fn positions_that_are_off_are_counted() {
        for recorded in [true, false] {
            for off in [1.0, -3.0, 17.0] {
                let run = run(recorded, |q| rope(q, plan(Pairing::Halves), 1e4, off, 1.0));
                assert_eq!(
                    parameter(&examine_in(&run, "q_rope").0),
                    ("rotated", "offset".to_owned(), Some(off)),
                    "{recorded}"
                );
            }
        }
    }

    #[test]
    fn scaled_positions_are_named() {
        for recorded in [true, false] {
            let run = run(recorded, |q| rope(q, plan(Pairing::Halves), 1e4, 0.0, 0.25));
            let (kind, parameter, value) = parameter(&examine_in(&run, "q_rope").0);
            assert_eq!(
                (kind, parameter.as_str()),
                ("rotated", "scaling"),
                "{recorded}"
            );
            assert!((value.unwrap() - 0.25).abs() < 1e-3);
        }
    }

    #[test]
    fn rope_that_is_missing_or_backwards_is_named() {
        for recorded in [true, false] {
            let missing = run(recorded, <[f64]>::to_vec);
            assert_eq!(
                parameter(&examine_in(&missing, "q_rope").0).1,
                "missing",
                "{recorded}"
            );
            let backwards = run(recorded, |q| rope(q, plan(Pairing::Halves), 1e4, 0.0, -1.0));
            assert_eq!(
                parameter(&examine_in(&backwards, "q_rope").0).1,
                "negated",
                "{recorded}"
            );
        }
    }

    #[test]
    fn a_wrong_pairing_is_seen_against_the_input() {
        let run = run(true, |q| rope(q, plan(Pairing::Interleaved), 1e4, 0.0, 1.0));
        let found = examine_in(&run, "q_rope").0;
        assert_eq!(proven(&found), Some("rotated"));
        assert_eq!(
            found.found[0].explanation.details.json()["parameter"],
            "pairing"
        );
    }

    #[test]
    fn the_input_is_found_in_another_layout() {
        // `[b, s, h * d]` before, `[b, h, s, d]` after.
        let mut run = run(true, |q| rope(q, plan(Pairing::Interleaved), 1e4, 0.0, 1.0));
        let (b, h, s, d) = (2, 4, 11, 12);
        let mut flat = vec![0.0; 1056];
        for at in 0..1056 {
            let (bi, hi, si, di) = (at / (h * s * d), at / (s * d) % h, at / d % s, at % d);
            flat[((bi * s + si) * h + hi) * d + di] = run[0].reference[at];
        }
        assert_eq!(b * h * s * d, 1056);
        run[0].dims = vec![2, 11, 48];
        run[0].reference.clone_from(&flat);
        run[0].candidate = flat;
        assert_eq!(proven(&examine_in(&run, "q_rope").0), Some("rotated"));
    }

    #[test]
    fn partial_rope_and_flattened_heads_are_found() {
        let dims = [22, 40];
        let q = normal(880, 4);
        let plan = Plan {
            pairing: Pairing::Halves,
            width: 20,
            turned: 8,
            tokens: Axis::of(&dims, 0),
        };
        let found = examine_pair(
            &dims,
            rope(&q, plan, 1e4, 0.0, 1.0),
            rope(&q, plan, 1e6, 0.0, 1.0),
        );
        assert_eq!(
            parameter(&found),
            ("rotated", "theta".to_owned(), Some(1e6))
        );
    }

    #[test]
    fn unrelated_values_signs_and_scales_are_not_rotated() {
        let q = normal(1056, 5);
        let signs: Vec<f64> = q
            .iter()
            .enumerate()
            .map(|(at, q)| if at % 3 == 0 { -q } else { *q })
            .collect();
        let scaled = q.iter().map(|q| q * 1.1).collect();
        let negated = q.iter().map(|q| -q).collect();
        for candidate in [normal(1056, 6), signs, scaled, negated] {
            let found = examine_pair(&DIMS, q.clone(), candidate);
            assert!(
                found.found.iter().all(
                    |found| found.explanation.kind != CauseKind::Rotated || !found.score.proven
                )
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        // Of two pairs only one turns otherwise, which is a place as well; from three on it is a turn.
        #[test]
        fn another_theta_is_found_at_any_size(b in 1usize..3, h in 1usize..5, s in 8usize..24, half in 3usize..9, seed in 0u64..100) {
            let dims = [b, h, s, 2 * half];
            let count: usize = dims.iter().product();
            for pairing in Pairing::BOTH {
                let plan = Plan { pairing, width: 2 * half, turned: 2 * half, tokens: Axis::of(&dims, 2) };
                let q = normal(count, seed);
                let found = examine_pair(&dims, rope(&q, plan, 1e4, 0.0, 1.0), rope(&q, plan, 5e5, 0.0, 1.0));
                prop_assert_eq!(proven(&found), Some("rotated"));
            }
        }
    }
}
