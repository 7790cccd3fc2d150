//! Rotary positions: pairs of channels turned by an angle that depends on the position and the pair alone.

use crate::{
    Alternative, Change, Input, Learned, Op, Out, Picked, Predict, Rotation, Site,
    array::Axis,
    learned::roughly,
    rows::{Kind, Rows},
};
use twinscope_measure::rounding::floor_unit;
use twinscope_tensor::formula::{Formula, Pairing};

pub(crate) struct Rope;

/// The first `turned` channels of each head turn, pair by pair; the others pass through.
#[derive(Clone, Copy, Debug)]
struct Plan {
    pairing: Pairing,
    channels: usize,
    turned: usize,
    /// Of the positions.
    axis: Axis,
}

impl Plan {
    fn channels_of(self, pair: usize) -> (usize, usize) {
        match self.pairing {
            Pairing::Halves => (pair, pair + self.turned / 2),
            Pairing::Neighbours => (2 * pair, 2 * pair + 1),
        }
    }

    /// Cosine and sine for every position and pair: of the sum of `out * conj(in)` over the heads.
    fn turns(self, from: &[f64], to: &[f64]) -> Vec<(f64, f64)> {
        let pairs = self.turned / 2;
        let mut turns = vec![(0.0, 0.0); self.axis.along * pairs];
        for head in 0..from.len() / self.channels {
            let base = head * self.channels;
            let position = self.axis.index(base);
            for pair in 0..pairs {
                let (a, b) = self.channels_of(pair);
                let (x, y, u, v) = (from[base + a], from[base + b], to[base + a], to[base + b]);
                let turn = &mut turns[position * pairs + pair];
                turn.0 += u * x + v * y;
                turn.1 += v * x - u * y;
            }
        }
        let unit = |(re, im): &(f64, f64)| {
            let size = re.hypot(*im);
            if size > 0.0 {
                (re / size, im / size)
            } else {
                (1.0, 0.0)
            }
        };
        turns.iter().map(unit).collect()
    }

    /// Some heads of an input, turned.
    fn apply(self, turns: &[(f64, f64)], from: &[f64], picked: Picked<'_>) -> Vec<f64> {
        let pairs = self.turned / 2;
        let mut to = picked.of(from, self.channels).into_owned();
        for (head, to) in picked.rows().zip(to.chunks_exact_mut(self.channels)) {
            let position = self.axis.index(head * self.channels);
            for (pair, (cos, sin)) in turns[position * pairs..][..pairs].iter().enumerate() {
                let (a, b) = self.channels_of(pair);
                (to[a], to[b]) = (cos * to[a] - sin * to[b], sin * to[a] + cos * to[b]);
            }
        }
        to
    }
}

impl Op for Rope {
    fn mixes_rows(&self) -> bool {
        true
    }

    fn learn<'a>(&self, site: &Site<'a>) -> Vec<Learned<'a>> {
        let dims = site.dims();
        let Some(&channels) = dims
            .last()
            .filter(|channels| **channels >= 4 && **channels % 2 == 0)
        else {
            return Vec::new();
        };
        // One head at each position could be turned to anything of its length.
        let heads = site.elements() / channels;
        // One position alone, as where one token is decoded, has one angle a pair for all heads.
        let alone = (0..dims.len() - 1)
            .rev()
            .find(|axis| dims[*axis] == 1 && heads >= LEAST_HEADS);
        let axes: Vec<usize> = (0..dims.len() - 1)
            .filter(|axis| dims[*axis] > 1 && heads >= 2 * dims[*axis])
            .chain(alone)
            .collect();
        if axes.is_empty() {
            return Vec::new();
        }
        let Some(first) = site.run.beginning(site.at, FEW_ROWS * channels) else {
            return Vec::new();
        };
        let lengths = norms(&first, channels);
        let mut learned = Vec::new();
        for &input in &site.before {
            let Some(given) = Given::of(site.run.dims(input), dims) else {
                continue;
            };
            let keeps_lengths = |rows: usize| {
                let starts: Vec<usize> = (0..rows.min(heads))
                    .map(|row| given.at(row * channels))
                    .collect();
                let first = site.run.runs(input, &starts, channels);
                first.is_some_and(|first| {
                    roughly(
                        norms(&first, channels).into_iter(),
                        lengths.iter().copied(),
                        site.floor[1],
                    )
                })
            };
            // A few heads rule out nearly every input.
            if !keeps_lengths(FEWEST_ROWS) || !keeps_lengths(FEW_ROWS) {
                continue;
            }
            let Some(laid_out) = Input::read(site.run, input).map(|input| given.laid_out(input))
            else {
                continue;
            };
            for axis in axes.iter().copied() {
                for pairing in [Pairing::Halves, Pairing::Neighbours] {
                    for turned in [channels, channels / 2, channels / 4]
                        .into_iter()
                        .filter(|turned| *turned >= 2 && turned % 2 == 0)
                    {
                        let plan = Plan {
                            pairing,
                            channels,
                            turned,
                            axis: Axis::of(dims, axis),
                        };
                        learned.extend(made(site, input, &laid_out, plan));
                    }
                }
            }
        }
        learned
    }
}

/// How what is turned lies: as the output does, or as the projection left it, token by token with the heads beside each other.
enum Given {
    Alike,
    TokensFirst(Rows),
}

impl Given {
    fn of(dims: &[usize], out: &[usize]) -> Option<Self> {
        let as_rows = |rows: &Rows| {
            Rows::all(dims).iter().any(|own| {
                own.kind != Kind::Heads && (own.rows, own.features) == (rows.rows, rows.features)
            })
        };
        if dims == out || Rows::merged(out).is_some_and(|rows| as_rows(&rows)) {
            return Some(Self::Alike);
        }
        Rows::heads(out).filter(as_rows).map(Self::TokensFirst)
    }

    /// Where it has what is at a place of the output.
    fn at(&self, place: usize) -> usize {
        match self {
            Self::Alike => place,
            Self::TokensFirst(rows) => rows.from(place),
        }
    }

    fn laid_out(&self, input: Input) -> Input {
        match self {
            Self::Alike => input,
            Self::TokensFirst(rows) => {
                let rows = *rows;
                input.map(move |values| rows.scatter(values))
            }
        }
    }
}

/// Heads that turn by the same angles tell a rotation from any other change.
const LEAST_HEADS: usize = 2;

/// Heads whose lengths are compared before all of them are read.
const FEW_ROWS: usize = 64;
const FEWEST_ROWS: usize = 4;

/// The length of every head, which rotation keeps.
fn norms(values: &[f64], channels: usize) -> Vec<f64> {
    values
        .chunks_exact(channels)
        .map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt())
        .collect()
}

/// Floors that a turned tensor may be off beside the rounding of its angles.
const LOOSENESS: f64 = 1.5;

/// Floors more for each position: a table of `cos(p · θ)` in f32 is off by the rounding of `p · θ`, which beside one in f64 was twice that of the
/// largest angle in one element, of whose floor of 32 units that is a sixteenth.
const FOR_EACH_POSITION: f64 = 1.0 / 16.0;

fn rounded_angle(site: &Site<'_>, positions: usize) -> f64 {
    let unit = floor_unit(site.dtype()).unwrap_or(1.0);
    FOR_EACH_POSITION * positions as f64 * (2f64.powi(-24) / unit).min(1.0)
}

fn made<'a>(site: &Site<'a>, input: usize, given: &Input, plan: Plan) -> Option<Learned<'a>> {
    let values = given.on(site.run)?;
    let turns = plan.turns(&values, &site.out);
    let some: Vec<usize> = site.sample();
    let made = plan.apply(&turns, &values, Picked::These(&some));
    let wanted = Picked::These(&some).of(&site.out, plan.channels);
    if !roughly(made.into_iter(), wanted.iter().copied(), site.floor[1]) {
        return None;
    }
    let given = given.clone();
    let over = move |plan: Plan, turns: Vec<(f64, f64)>| -> Predict {
        let given = given.clone();
        Box::new(move |run, picked| Some(plan.apply(&turns, &given.on(run)?, picked)))
    };
    let predict = over(plan, turns.clone());
    let alternatives = move |_: &Out<'_>| {
        let other = Plan {
            pairing: plan.pairing.other(),
            ..plan
        };
        let own = plan.pairing;
        let twice = |(cos, sin): &(f64, f64)| (cos * cos - sin * sin, 2.0 * cos * sin);
        let one = |instead: Rotation, plan: Plan, turns: Vec<(f64, f64)>| Alternative {
            change: Change::Rope {
                input,
                pairing: own,
                instead,
            },
            fitted: false,
            predict: over(plan, turns),
        };
        vec![
            one(Rotation::OtherPairing, other, turns.clone()),
            one(
                Rotation::Reversed,
                plan,
                turns.iter().map(|(cos, sin)| (*cos, -sin)).collect(),
            ),
            one(Rotation::None, plan, vec![(1.0, 0.0); turns.len()]),
            one(Rotation::Twice, plan, turns.iter().map(twice).collect()),
        ]
    };
    let formula = Formula::Rope {
        of: Formula::boxed(site.name(input)),
        pairing: plan.pairing,
    };
    Some(Learned {
        terms: 2,
        looseness: LOOSENESS + rounded_angle(site, plan.axis.along),
        // The angles are those of the run it was learned on.
        borrows: true,
        alternatives: Some(Box::new(alternatives)),
        ..Learned::new(formula, vec![input], predict)
    })
}
