//! Rotations of pairs of channels, as rope makes them: which channels turn together, by how much at each position, and applied again.

use crate::array::Axis;
use std::f64::consts::PI;

pub(super) use twinscope_report::facts::RopePairing as Pairing;

/// The first `turned` of every `width` channels turn, pair by pair; the others pass through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) pairing: Pairing,
    pub(super) width: usize,
    pub(super) turned: usize,
    /// Of the positions.
    pub(super) tokens: Axis,
}

/// `re + i im`
pub(super) type Turn = (f64, f64);

/// Of what a turn moves, how much may be a change of length: half of pure noise is.
const STRETCHED: f64 = 0.25;

impl Plan {
    pub(super) fn pairs(self) -> usize {
        self.turned / 2
    }

    pub(super) fn channels(self, pair: usize) -> (usize, usize) {
        match self.pairing {
            Pairing::Halves => (pair, pair + self.turned / 2),
            Pairing::Interleaved => (2 * pair, 2 * pair + 1),
        }
    }

    /// Heads that share one position's angles.
    pub(super) fn copies(self, elements: usize) -> usize {
        elements / self.width / self.tokens.along
    }

    /// Whether pairs keep their length and other channels their value, on scattered heads.
    pub(super) fn keeps_lengths(self, from: &[f64], to: &[f64], tolerance: f64, rms: f64) -> bool {
        let heads = from.len() / self.width;
        let (mut seen, mut wrong) = (0usize, 0usize);
        let (mut stretched, mut moved) = (0.0, 0.0);
        for nth in 0..SAMPLE {
            let head = (super::near::hash(nth as u64) % heads as u64) as usize * self.width;
            let channel = (super::near::hash(nth as u64 + 7919) % self.width as u64) as usize;
            let same = if channel < self.turned {
                let (a, b) = self.channels(channel % self.pairs());
                let length = |values: &[f64]| values[head + a].hypot(values[head + b]);
                stretched += (length(from) - length(to)).powi(2);
                moved += (from[head + a] - to[head + a]).powi(2)
                    + (from[head + b] - to[head + b]).powi(2);
                (length(from) - length(to)).abs() <= tolerance * length(from).max(rms)
            } else {
                super::near::close(from[head + channel], to[head + channel], rms, tolerance)
            };
            seen += 1;
            wrong += usize::from(!same);
            if wrong > SAMPLE / 16 {
                return false;
            }
        }
        // Under much noise a factor passes for a turn; but what is turned moves far more than its length changes.
        seen > 0 && stretched <= STRETCHED * moved
    }

    /// Σ of `to * conj(from)` for every position and pair, over the pairs that `fits` allows, and how far the heads agree on it (0 to 1).
    pub(super) fn turns(
        self,
        from: &[f64],
        to: &[f64],
        fits: impl Fn(usize) -> bool,
    ) -> (Vec<Turn>, f64) {
        let pairs = self.pairs();
        let mut turns = vec![(0.0, 0.0); self.tokens.along * pairs];
        let mut lengths = 0.0;
        for base in (0..from.len()).step_by(self.width) {
            let position = self.tokens.index(base);
            for pair in 0..pairs {
                let (a, b) = self.channels(pair);
                if !fits(base + a) {
                    continue;
                }
                let (x, y, u, v) = (from[base + a], from[base + b], to[base + a], to[base + b]);
                let turn = &mut turns[position * pairs + pair];
                turn.0 += u * x + v * y;
                turn.1 += v * x - u * y;
                lengths += ((x * x + y * y) * (u * u + v * v)).sqrt();
            }
        }
        let agreed: f64 = turns.iter().map(|(re, im)| re.hypot(*im)).sum();
        (turns, if lengths > 0.0 { agreed / lengths } else { 0.0 })
    }

    /// How far the heads agree at a few positions: so little, or nothing, says that they do not agree at all.
    pub(super) fn agreed_at_a_few(self, from: &[f64], to: &[f64]) -> f64 {
        let (
            pairs,
            Axis {
                outside,
                along,
                inside,
            },
        ) = (self.pairs(), self.tokens);
        let (mut agreed, mut lengths) = (0.0, 0.0);
        for nth in 0..FEW_POSITIONS.min(along) {
            let position = nth * along / FEW_POSITIONS.min(along);
            let mut turns = vec![(0.0, 0.0); pairs];
            for base in (0..outside).flat_map(|o| {
                (0..inside)
                    .step_by(self.width)
                    .map(move |j| self.tokens.at(o, position, j))
            }) {
                for (pair, turn) in turns.iter_mut().enumerate() {
                    let (a, b) = self.channels(pair);
                    let (x, y, u, v) = (from[base + a], from[base + b], to[base + a], to[base + b]);
                    turn.0 += u * x + v * y;
                    turn.1 += v * x - u * y;
                    lengths += ((x * x + y * y) * (u * u + v * v)).sqrt();
                }
            }
            agreed += turns.iter().map(|(re, im)| re.hypot(*im)).sum::<f64>();
        }
        if lengths > 0.0 { agreed / lengths } else { 0.0 }
    }

    /// Whether these angles make nearly all of a few heads.
    pub(super) fn makes_a_few(
        self,
        from: &[f64],
        to: &[f64],
        angle: impl Fn(usize, usize) -> f64,
        same: impl Fn(f64, f64) -> bool,
    ) -> bool {
        let heads = from.len() / self.width;
        let (mut seen, mut wrong) = (0usize, 0usize);
        for nth in 0..FEW_POSITIONS.min(heads) {
            let base = (super::near::hash(nth as u64) % heads as u64) as usize * self.width;
            let position = self.tokens.index(base);
            for pair in 0..self.pairs() {
                let ((a, b), (sin, cos)) = (self.channels(pair), angle(position, pair).sin_cos());
                let (x, y) = (from[base + a], from[base + b]);
                seen += 2;
                wrong += usize::from(!same(cos * x - sin * y, to[base + a]))
                    + usize::from(!same(sin * x + cos * y, to[base + b]));
            }
        }
        // Twice what is asked of all.
        wrong * 8 <= seen
    }

    /// Turned by an angle of position and pair.
    pub(super) fn apply(self, from: &[f64], angle: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        let pairs = self.pairs();
        let mut table = Vec::with_capacity(self.tokens.along * pairs);
        for position in 0..self.tokens.along {
            table.extend((0..pairs).map(|pair| angle(position, pair).sin_cos()));
        }
        let mut to = from.to_vec();
        for base in (0..from.len()).step_by(self.width) {
            let position = self.tokens.index(base);
            for pair in 0..pairs {
                let (a, b) = self.channels(pair);
                let (sin, cos) = table[position * pairs + pair];
                let (x, y) = (from[base + a], from[base + b]);
                to[base + a] = cos * x - sin * y;
                to[base + b] = sin * x + cos * y;
            }
        }
        to
    }
}

/// Pairs looked at before a fit, and positions or heads.
const SAMPLE: usize = 128;
const FEW_POSITIONS: usize = 16;

/// `angle = start + slope * position` for every pair.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lines {
    pub(super) start: Vec<f64>,
    pub(super) slope: Vec<f64>,
    /// How far these may be off, by how far the angles are from the lines.
    pub(super) start_error: Vec<f64>,
    pub(super) slope_error: Vec<f64>,
}

impl Lines {
    pub(super) fn fit(turns: &[Turn], pairs: usize) -> Self {
        let mut lines = Self {
            start: Vec::new(),
            slope: Vec::new(),
            start_error: Vec::new(),
            slope_error: Vec::new(),
        };
        for pair in 0..pairs {
            let of_pair: Vec<Turn> = turns.iter().skip(pair).step_by(pairs).copied().collect();
            let (start, slope, scatter) = line(&of_pair);
            let count = of_pair.len() as f64;
            let middle = (count - 1.0) / 2.0;
            let spread = count * (count * count - 1.0) / 12.0;
            lines.start.push(start);
            lines.slope.push(slope);
            lines.start_error.push(
                SURE * scatter * (1.0 / count + middle * middle / spread.max(1.0)).sqrt() + EXACT,
            );
            lines
                .slope_error
                .push(SURE * scatter / spread.max(1.0).sqrt() + EXACT / count);
        }
        lines
    }

    /// Whether the angles of a few pairs are anything like a line over the positions.
    pub(super) fn could_be(turns: &[Turn], pairs: usize) -> bool {
        let few = [0, pairs / 3, pairs / 2, pairs - 1];
        few.into_iter().all(|pair| {
            line(
                &turns
                    .iter()
                    .skip(pair)
                    .step_by(pairs)
                    .copied()
                    .collect::<Vec<_>>(),
            )
            .2 < SCATTERED
        })
    }

    pub(super) fn angle(&self, position: usize, pair: usize) -> f64 {
        self.start[pair] + self.slope[pair] * position as f64
    }
}

/// Angles at random scatter by 1.8.
const SCATTERED: f64 = 0.8;
/// So many standard errors are an error.
const SURE: f64 = 6.0;
/// Angles are computed in single precision at best, from positions in the thousands.
const EXACT: f64 = 1e-4;

/// Start and slope of the angles of one pair, and the scatter about them. The slope of neighbours first, which has no ambiguity, then of all.
fn line(turns: &[Turn]) -> (f64, f64, f64) {
    let product = |(a, b): Turn, (c, d): Turn| (a * c + b * d, b * c - a * d);
    let sum = |turns: &mut dyn Iterator<Item = Turn>| {
        turns.fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d))
    };
    let (re, im) = sum(&mut turns.windows(2).map(|two| product(two[1], two[0])));
    let mut slope = if turns.len() > 1 { im.atan2(re) } else { 0.0 };
    let (mut start, mut scatter) = (0.0, 0.0);
    for _ in 0..3 {
        let turned = |position: usize, (re, im): Turn, start: f64, slope: f64| {
            let (sin, cos) = (start + slope * position as f64).sin_cos();
            product((re, im), (cos, sin))
        };
        let (re, im) = sum(&mut turns
            .iter()
            .enumerate()
            .map(|(t, turn)| turned(t, *turn, 0.0, slope)));
        start = im.atan2(re);
        let (mut w, mut t1, mut t2, mut r, mut rt, mut rr) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for (t, turn) in turns.iter().enumerate() {
            let (re, im) = turned(t, *turn, start, slope);
            let (weight, rest, t) = (re.hypot(im), im.atan2(re), t as f64);
            w += weight;
            t1 += weight * t;
            t2 += weight * t * t;
            r += weight * rest;
            rt += weight * rest * t;
            rr += weight * rest * rest;
        }
        scatter = if w > 0.0 { (rr / w).sqrt() } else { 0.0 };
        let spread = w * t2 - t1 * t1;
        if spread > 1e-12 * (w * t2).abs() && w > 0.0 {
            let correction = (w * rt - t1 * r) / spread;
            slope += correction;
            start += (r - correction * t1) / w;
        }
    }
    (start, slope, scatter)
}

/// Between -π and π.
pub(super) fn wrapped(angle: f64) -> f64 {
    angle - (angle / (2.0 * PI)).round() * 2.0 * PI
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;

    #[test]
    fn the_angles_of_a_rotation_are_measured() {
        let tokens = Axis::of(&[3, 9, 8], 1);
        let x = normal(216, 1);
        for pairing in Pairing::BOTH {
            let plan = Plan {
                pairing,
                width: 8,
                turned: 8,
                tokens,
            };
            let y = plan.apply(&x, |t, j| 0.3 + t as f64 * 0.5f64.powi(j as i32));
            assert!(plan.keeps_lengths(&x, &y, 1e-9, 1.0));
            let (turns, agreed) = plan.turns(&x, &y, |_| true);
            assert!((agreed - 1.0).abs() < 1e-12);
            let lines = Lines::fit(&turns, 4);
            for j in 0..4 {
                assert!(
                    (lines.slope[j] - 0.5f64.powi(j as i32)).abs() < 1e-9,
                    "{lines:?}"
                );
                assert!(wrapped(lines.start[j] - 0.3).abs() < 1e-9, "{lines:?}");
            }
        }
    }
}
