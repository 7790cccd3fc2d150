//! The levels of one quantised block: equally spaced ones, those of a small float times a scale, or a code book times a scale.

use super::grid::{CODES, Grid};

/// What a block's values are taken from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Levels {
    /// `low + step · q` with whole `q` from 0 to `most`.
    Even { step: f64, low: f64, most: f64 },
    /// A small float's numbers times `scale`.
    Float { grid: Grid, scale: f64 },
    /// Entries of a table times `scale`.
    Table { scale: f64 },
}

/// What kind of levels; all blocks of a tensor are of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Even,
    Float(Grid),
    Table,
}

/// The sixteen levels of nf4, between -1 and 1.
const NF4: [f64; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// More levels than eight bits have are no levels.
const MOST_LEVELS: f64 = 255.0;
/// Values further from a level than this share of the distance between two are not on it; and a dtype that rounds by more cannot tell.
const CLOSE: f64 = 0.06;
/// A block with fewer different values says nothing.
const TELLING: usize = 2;

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Even,
        Self::Float(CODES[0]),
        Self::Float(CODES[1]),
        Self::Float(CODES[2]),
        Self::Float(CODES[3]),
        Self::Table,
    ];

    /// The levels of this kind that all of these values lie on, recorded with the unit roundoff `unit`. `Err` when there are none, `Ok(None)`
    /// when so few different values say nothing.
    pub(super) fn levels(self, values: &[f64], unit: f64) -> Result<Option<Levels>, ()> {
        let mut sorted: Vec<f64> = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup_by(|later, first| (*later - *first).abs() <= unit * first.abs());
        if sorted.len() < TELLING {
            return Ok(None);
        }
        if sorted.len() as f64 > MOST_LEVELS + 1.0 || sorted.iter().any(|value| !value.is_finite())
        {
            return Err(());
        }
        let size = sorted[0].abs().max(sorted[sorted.len() - 1].abs());
        let levels = match self {
            Self::Even => even(&sorted, unit).ok_or(())?,
            // The largest value is the float's largest: that is what the scale is for.
            Self::Float(grid) if grid.unit().is_some_and(|own| own > 8.0 * unit) => Levels::Float {
                grid,
                scale: size / grid.largest(),
            },
            Self::Float(_) => return Err(()),
            Self::Table => Levels::Table { scale: size },
        };
        if sorted.iter().all(|value| levels.holds(*value)) {
            Ok(Some(levels))
        } else {
            Err(())
        }
    }
}

impl Levels {
    /// The level next to a value.
    pub(super) fn nearest(self, value: f64) -> f64 {
        match self {
            Self::Even { step, low, most } => {
                low + step * ((value - low) / step).round().clamp(0.0, most)
            }
            Self::Float { grid, scale } => grid.saturate(value / scale) * scale,
            Self::Table { scale } => {
                let distance = |code: &f64| (code * scale - value).abs();
                NF4.iter()
                    .min_by(|a, b| distance(a).total_cmp(&distance(b)))
                    .map_or(0.0, |code| code * scale)
            }
        }
    }

    /// Whether a value is on a level, to a small share of the distance to the next.
    pub(super) fn holds(self, value: f64) -> bool {
        let distance = match self {
            Self::Even { step, .. } => step,
            Self::Float { grid, scale } => grid.step(value / scale) * scale,
            Self::Table { scale } => 0.08 * scale,
        };
        (self.nearest(value) - value).abs() <= CLOSE * distance.abs()
    }

    /// From the lowest level to the highest, in steps; what the bits must count.
    pub(super) fn range(self) -> Option<f64> {
        match self {
            Self::Even { most, .. } => Some(most),
            _ => None,
        }
    }

    /// Whether zero would be a level too.
    pub(super) fn has_zero(self) -> bool {
        match self {
            Self::Even { step, low, .. } => (low / step - (low / step).round()).abs() <= CLOSE,
            _ => true,
        }
    }
}

/// The fewest steps between the lowest and the highest value that every value lies on. Both are levels themselves, so there are no more ways than
/// there are numbers of steps; from the smallest, because a finer set holds whatever a coarser one does.
fn even(sorted: &[f64], unit: f64) -> Option<Levels> {
    let (low, high) = (sorted[0], sorted[sorted.len() - 1]);
    let size = low.abs().max(high.abs());
    // Steps that rounding to the dtype blurs cannot be told.
    let finest = f64::max((high - low) / (MOST_LEVELS + 0.5), unit * size / CLOSE);
    let most = ((high - low) / finest * (1.0 + 1e-9))
        .floor()
        .min(MOST_LEVELS);
    (1..=most as usize).find_map(|steps| {
        let step = (high - low) / steps as f64;
        let whole = |value: &f64| ((value - low) / step).round();
        // The ends are rounded too: a little more until both are fitted.
        if !sorted
            .iter()
            .all(|value| (low + step * whole(value) - value).abs() <= 2.0 * CLOSE * step)
        {
            return None;
        }
        let (low, step) = line(sorted.iter().map(|value| (whole(value), *value)))?;
        sorted
            .iter()
            .all(|value| (low + step * whole(value) - value).abs() <= CLOSE * step)
            .then_some(Levels::Even {
                step,
                low,
                most: steps as f64,
            })
    })
}

/// Where a line through points begins, and its slope, by least squares.
fn line(points: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    let [n, x, y, xx, xy] = points.fold([0.0; 5], |[n, sx, sy, sxx, sxy], (x, y)| {
        [n + 1.0, sx + x, sy + y, sxx + x * x, sxy + x * y]
    });
    let spread = xx - x * x / n;
    let slope = (xy - x * y / n) / spread;
    (spread > 0.0 && slope > 0.0).then_some(((y - slope * x) / n, slope))
}
