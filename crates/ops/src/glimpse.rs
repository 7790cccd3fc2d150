//! The first rows of a tensor: how large each is, and some of its channels. What nearly every input of a norm is ruled out by.

/// Rows that are looked at before all of them are, and channels of each.
pub(crate) const ROWS: usize = 16;
const CHANNELS: usize = 96;

#[derive(Clone, Debug)]
pub struct Glimpse {
    /// Row by row: its mean, its mean square, and its mean square about the mean.
    pub sizes: Vec<[f64; 3]>,
    /// How many channels are looked at, spread evenly, and their values, row by row.
    pub channels: usize,
    pub values: Vec<f64>,
}

impl Glimpse {
    /// Of rows of so many channels.
    pub fn of(rows: &[f64], channels: usize) -> Self {
        let mean = |row: &[f64], of: &dyn Fn(f64) -> f64| {
            row.iter().map(|x| of(*x)).sum::<f64>() / channels as f64
        };
        let size = |row: &[f64]| {
            let centre = mean(row, &|x| x);
            [
                centre,
                mean(row, &|x| x * x),
                mean(row, &|x| (x - centre) * (x - centre)),
            ]
        };
        // Each channel has its own weight: some of them say as much as all.
        let step = channels.div_ceil(CHANNELS).max(1);
        let rows = || rows.chunks_exact(channels).take(ROWS);
        Self {
            sizes: rows().map(size).collect(),
            channels: channels.div_ceil(step),
            values: rows()
                .flat_map(|row| row.iter().copied().step_by(step))
                .collect(),
        }
    }
}
