//! Rotary positions: pairs of channels turned by an angle that depends on the position and the pair alone.

use super::{Learned, Op, Picked, Predict, Variant, roughly};
use crate::{
    Loaded,
    array::Axis,
    flow::{
        Site, of,
        rows::{Kind, Rows},
    },
};
use std::sync::Arc;
use twinscope_compare::noise::floor_unit;

pub(super) struct Rope;

/// Which channels turn together.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pairing {
    /// `i` with `i + n/2`
    Halves,
    /// `2i` with `2i + 1`
    Neighbours,
}

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

    fn learn(&self, site: &Site<'_>) -> Vec<Learned> {
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
        let Some(first) = site.scene.beginning(site.pair, FEW_ROWS * channels) else {
            return Vec::new();
        };
        let lengths = norms(&first, channels);
        let mut learned = Vec::new();
        for &input in &site.before {
            let Some(given) = Given::of(&site.scene.entries()[input].dims, dims) else {
                continue;
            };
            let keeps_lengths = |rows: usize| {
                let starts: Vec<usize> = (0..rows.min(heads))
                    .map(|row| given.at(row * channels))
                    .collect();
                let first = site.scene.runs(input, &starts, channels);
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
            let Some(loaded) = site.load(input).map(|loaded| given.laid_out(loaded, dims)) else {
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
                        learned.extend(made(site, input, &loaded, plan));
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

    fn laid_out(&self, loaded: Arc<Loaded>, out: &[usize]) -> Arc<Loaded> {
        match self {
            Self::Alike => loaded,
            Self::TokensFirst(rows) => Arc::new(Loaded {
                dims: out.to_vec(),
                reference: rows.scatter(&loaded.reference),
                candidate: rows.scatter(&loaded.candidate),
            }),
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
    let unit = floor_unit(site.scene.entries()[site.pair].dtypes[0]).unwrap_or(1.0);
    FOR_EACH_POSITION * positions as f64 * (2f64.powi(-24) / unit).min(1.0)
}

fn made(site: &Site<'_>, input: usize, loaded: &Arc<Loaded>, plan: Plan) -> Option<Learned> {
    let turns = plan.turns(&loaded.reference, &site.out.reference);
    let some: Vec<usize> = site.sample();
    let made = plan.apply(&turns, &loaded.reference, Picked::These(&some));
    let wanted = Picked::These(&some).of(&site.out.reference, plan.channels);
    if !roughly(made.into_iter(), wanted.iter().copied(), site.floor[1]) {
        return None;
    }
    let pairing = if plan.pairing == Pairing::Halves {
        "halves"
    } else {
        "neighbours"
    };
    let name = &site.scene.entries()[input].name;
    let over = |plan: Plan, turns: Vec<(f64, f64)>| -> Predict {
        let loaded = loaded.clone();
        Box::new(move |side, picked| Some(plan.apply(&turns, of(&loaded, side), picked)))
    };
    let variant = |what: &str, value: &str, plan: Plan, turns: Vec<(f64, f64)>| Variant {
        kind: "rotated",
        text: format!("{name} is {what}"),
        details: serde_json::json!({"pairing": pairing, "parameter": "turn", "value": value, "input": name}),
        fitted: false,
        predict: over(plan, turns),
    };
    let other = if plan.pairing == Pairing::Halves {
        Pairing::Neighbours
    } else {
        Pairing::Halves
    };
    let pairs = if other == Pairing::Halves {
        "halves, channel i with i + n/2"
    } else {
        "neighbours, channel 2i with 2i + 1"
    };
    let variants = vec![
        variant(
            &format!("turned in pairs of {pairs}, where the reference turns {pairing}"),
            "pairing",
            Plan {
                pairing: other,
                ..plan
            },
            turns.clone(),
        ),
        variant(
            "turned the other way",
            "reversed",
            plan,
            turns.iter().map(|(cos, sin)| (*cos, -sin)).collect(),
        ),
        variant(
            "not turned by its position (rope is missing)",
            "none",
            plan,
            vec![(1.0, 0.0); turns.len()],
        ),
        variant(
            "turned twice",
            "twice",
            plan,
            turns
                .iter()
                .map(|(cos, sin)| (cos * cos - sin * sin, 2.0 * cos * sin))
                .collect(),
        ),
    ];
    Some(Learned {
        formula: format!("rope of {name} ({pairing})"),
        inputs: vec![input],
        terms: 2,
        work: 0,
        looseness: LOOSENESS + rounded_angle(site, plan.axis.along),
        off: [0.0; 4],
        on_some_rows: false,
        // The angles are those of the reference.
        borrows: true,
        predict: over(plan, turns),
        variants,
        telling: None,
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, normal, report_as, report_mixed};
    use twinscope_compare::{report::Report, verdict::Origin};
    use twinscope_tensor::DType;

    const HEADS: usize = 3;
    const TOKENS: usize = 7;
    const SIZE: usize = 8;

    /// `[b, s, h * d]` as `[b, h, s, d]`, halves turned by their position.
    fn rope(projected: &[f64], theta: f64) -> Vec<f64> {
        let at = |flat: usize| {
            let (batch, head) = (
                flat / (HEADS * TOKENS * SIZE),
                flat / (TOKENS * SIZE) % HEADS,
            );
            let (token, channel) = (flat / SIZE % TOKENS, flat % SIZE);
            let given = |channel: usize| {
                projected[((batch * TOKENS + token) * HEADS + head) * SIZE + channel]
            };
            let pair = channel % (SIZE / 2);
            let (sin, cos) =
                (token as f64 * theta.powf(-2.0 * pair as f64 / SIZE as f64)).sin_cos();
            let (x, y) = (given(pair), given(pair + SIZE / 2));
            if channel < SIZE / 2 {
                cos * x - sin * y
            } else {
                sin * x + cos * y
            }
        };
        (0..projected.len()).map(at).collect()
    }

    /// A projection that is wrong, as modules record it, and what rope makes of it.
    fn report(theta: f64) -> Report {
        let (q, noise) = (
            normal(2 * TOKENS * HEADS * SIZE, 1),
            normal(2 * TOKENS * HEADS * SIZE, 2),
        );
        let wrong: Vec<f64> = q
            .iter()
            .zip(noise)
            .map(|(q, noise)| q + 0.3 * noise)
            .collect();
        let [reference, candidate] = [rope(&q, 10000.0), rope(&wrong, theta)];
        report_as(
            DType::F32,
            &[
                Recorded {
                    name: "q_proj",
                    dims: vec![2, TOKENS, HEADS * SIZE],
                    reference: q,
                    candidate: wrong,
                },
                Recorded {
                    name: "q_rope",
                    dims: vec![2, HEADS, TOKENS, SIZE],
                    reference,
                    candidate,
                },
            ],
        )
    }

    #[test]
    fn rope_takes_what_a_projection_left_token_by_token() {
        let report = report(10000.0);
        assert_eq!(
            (report.pairs[0].origin(), report.pairs[1].origin()),
            (Some(Origin::Own), Some(Origin::Inherited))
        );
    }

    #[test]
    fn a_table_of_angles_in_f32_beside_one_in_f64_is_no_second_fault() {
        const POSITIONS: usize = 512;
        let (q, noise) = (
            normal(HEADS * POSITIONS * SIZE, 1),
            normal(HEADS * POSITIONS * SIZE, 2),
        );
        let wrong: Vec<f64> = q
            .iter()
            .zip(noise)
            .map(|(q, noise)| q + 1e-3 * noise)
            .collect();
        let turned = |q: &[f64], rounded: fn(f64) -> f64| -> Vec<f64> {
            let at = |flat: usize| {
                let (position, channel) = (flat / SIZE % POSITIONS, flat % SIZE);
                let pair = channel % (SIZE / 2);
                let angle = rounded(
                    position as f64 * rounded(10000f64.powf(-2.0 * pair as f64 / SIZE as f64)),
                );
                let (x, y) = (
                    q[flat - channel + pair],
                    q[flat - channel + pair + SIZE / 2],
                );
                if channel < SIZE / 2 {
                    angle.cos() * x - angle.sin() * y
                } else {
                    angle.sin() * x + angle.cos() * y
                }
            };
            (0..q.len()).map(at).collect()
        };
        let [reference, candidate] = [turned(&q, |x| f64::from(x as f32)), turned(&wrong, |x| x)];
        let dims = || vec![1, HEADS, POSITIONS, SIZE];
        let run = [
            Recorded {
                name: "q",
                dims: dims(),
                reference: q,
                candidate: wrong,
            },
            Recorded {
                name: "turned",
                dims: dims(),
                reference,
                candidate,
            },
        ];
        assert_eq!(
            report_mixed([DType::F32, DType::F64], &run).pairs[1].origin(),
            Some(Origin::Inherited)
        );
    }

    #[test]
    fn another_base_behind_a_wrong_projection_is_a_second_fault() {
        let report = report(500_000.0);
        assert_eq!(
            (
                report.pairs[1].origin(),
                report.pairs[1].causes[0].kind.name()
            ),
            (Some(Origin::Own), "rotated")
        );
    }
}
