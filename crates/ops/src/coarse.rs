//! A weight in fewer bits, as loaders make it: whole numbers with a scale for a row, for a block of it or for all, or a small float.

/// How a weight is made coarse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// Bits, and how many weights of a row share a scale: `None` for all of the tensor.
    Whole(u32, Option<usize>),
    /// e4m3 with one scale for all, or with none.
    Float { scaled: bool },
}

/// Blocks that people use.
const BLOCKS: [usize; 4] = [128, 64, 32, 16];

/// Every way for rows of this length.
pub(crate) fn ways(row: usize) -> Vec<Way> {
    let blocks = BLOCKS
        .into_iter()
        .filter(|block| *block < row && row.is_multiple_of(*block));
    let shared: Vec<Option<usize>> = [None, Some(row)]
        .into_iter()
        .chain(blocks.map(Some))
        .collect();
    let whole = [8, 4]
        .into_iter()
        .flat_map(|bits| shared.iter().map(move |shared| Way::Whole(bits, *shared)));
    whole
        .chain([Way::Float { scaled: true }, Way::Float { scaled: false }])
        .collect()
}

impl Way {
    /// A weight of rows of this length.
    pub(crate) fn apply(self, weight: &[f64], row: usize) -> Vec<f64> {
        match self {
            Way::Whole(bits, shared) => {
                let most = f64::from((1u32 << (bits - 1)) - 1);
                let block = |block: &[f64]| whole(block, most);
                weight
                    .chunks(
                        shared
                            .unwrap_or(weight.len())
                            .min(if shared.is_some() { row } else { weight.len() })
                            .max(1),
                    )
                    .flat_map(block)
                    .collect()
            }
            Way::Float { scaled } => {
                let scale = if scaled {
                    largest(weight) / LARGEST
                } else {
                    1.0
                };
                weight
                    .iter()
                    .map(|w| {
                        if scale > 0.0 {
                            small(w / scale) * scale
                        } else {
                            0.0
                        }
                    })
                    .collect()
            }
        }
    }
}

/// How a matrix unit takes the f32 that it multiplies while it sums in single precision. TF32 has the precision of f16: what is in the range of
/// both cannot tell them apart. Some round, some leave the lower bits out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    pub dtype: &'static str,
    pub bits: u32,
    /// The lower bits are left out, not rounded.
    pub cut: bool,
}

pub(crate) const UNITS: [Unit; 3] = [
    Unit {
        dtype: "tf32",
        bits: 11,
        cut: false,
    },
    Unit {
        dtype: "tf32",
        bits: 11,
        cut: true,
    },
    Unit {
        dtype: "bf16",
        bits: 8,
        cut: false,
    },
];

impl Unit {
    /// Half the distance from 1 to the next number of so many bits.
    pub(crate) fn roundoff(self) -> f64 {
        2f64.powi(-(self.bits as i32))
    }

    pub(crate) fn apply(self, values: &[f64]) -> Vec<f64> {
        values
            .iter()
            .map(|value| {
                if self.cut {
                    cut(*value, self.bits)
                } else {
                    nearest(*value, self.bits)
                }
            })
            .collect()
    }
}

/// The number of so many bits at or below it in magnitude, whatever its exponent.
fn cut(value: f64, bits: u32) -> f64 {
    let shift = 53 - bits;
    if value.is_finite() {
        f64::from_bits(value.to_bits() >> shift << shift)
    } else {
        value
    }
}

/// The nearest number of so many bits, even where two are.
pub fn nearest(value: f64, bits: u32) -> f64 {
    let shift = 53 - bits;
    let all = value.to_bits();
    let up = (1 << (shift - 1)) - 1 + (all >> shift & 1);
    if value.is_finite() {
        f64::from_bits((all + up) >> shift << shift)
    } else {
        value
    }
}

fn largest(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0f64, |most, value| most.max(value.abs()))
}

fn whole(block: &[f64], most: f64) -> Vec<f64> {
    let step = largest(block) / most;
    block
        .iter()
        .map(|w| {
            if step > 0.0 {
                (w / step).round_ties_even().clamp(-most - 1.0, most) * step
            } else {
                0.0
            }
        })
        .collect()
}

/// The largest e4m3.
const LARGEST: f64 = 448.0;

/// The nearest e4m3: three bits behind the first, no finer than 2^-9.
fn small(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = value.abs().log2().floor().max(-6.0);
    let step = 2f64.powf(exponent - 3.0);
    ((value / step).round_ties_even() * step).clamp(-LARGEST, LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_floats_are_those_of_the_table() {
        let table: Vec<f64> = twinscope_tensor::minifloat::F8_E4M3FN
            .iter()
            .map(|value| f64::from(*value))
            .filter(|value| value.is_finite())
            .collect();
        for value in &table {
            assert_eq!(small(*value), *value);
        }
        assert_eq!(
            (small(1.06), small(-1.07), small(1000.0)),
            (1.0, -1.125, 448.0)
        );
    }

    #[test]
    fn the_nearest_of_few_bits_is_the_one_a_cast_gives() {
        for value in [
            0.0, 1.0, -1.0, 0.1, -0.3, 1e-30, 65504.0, 3.140625, 1.00390625, 1.01171875,
        ] {
            let value = f64::from(value as f32);
            let bits = (value as f32).to_bits();
            let cast = f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000);
            assert_eq!(nearest(value, 8), f64::from(cast), "{value}");
        }
        assert_eq!(
            (
                nearest(1.0 + 2f64.powi(-11), 11),
                nearest(1.0 + 3.0 * 2f64.powi(-11), 11)
            ),
            (1.0, 1.0 + 2f64.powi(-9))
        );
        assert_eq!(
            (cut(1.0 + 2f64.powi(-11), 11), cut(-1.999, 8)),
            (1.0, -1.9921875)
        );
        assert!(
            nearest(f64::NAN, 8).is_nan() && nearest(f64::NEG_INFINITY, 8) == f64::NEG_INFINITY
        );
    }

    #[test]
    fn a_block_has_its_own_scale() {
        let weight = [1.0, 0.5, -0.26, 0.0, 100.0, 50.0, -26.0, 0.0];
        let coarse = Way::Whole(4, Some(4)).apply(&weight, 8);
        assert!(
            coarse[4..]
                .iter()
                .zip(&coarse[..4])
                .all(|(large, small)| (large - 100.0 * small).abs() < 1e-9),
            "{coarse:?}"
        );
        assert_eq!(coarse[..2], [1.0, 4.0 / 7.0]);
        assert_eq!(Way::Whole(8, None).apply(&weight, 8)[2], 0.0);
    }
}
