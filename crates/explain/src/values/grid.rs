//! The numbers a dtype can hold, to see that a tensor went through it: rounding to it, and whether a value is one of them.

use twinscope_tensor::DType;

/// A set of numbers with its own rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Grid {
    pub(super) name: &'static str,
    /// `None` for whole numbers.
    float: Option<Float>,
}

/// Sign, mantissa and exponent: a step of `2^(e - mantissa)` for numbers from `2^e`, and no finer one below `2^least`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Float {
    mantissa: i32,
    least: i32,
    largest: f64,
}

const fn float(name: &'static str, mantissa: i32, least: i32, largest: f64) -> Grid {
    Grid {
        name,
        float: Some(Float {
            mantissa,
            least,
            largest,
        }),
    }
}

const E4M3: Grid = float("f8_e4m3fn", 3, -6, 448.0);
const E4M3_FNUZ: Grid = float("f8_e4m3fnuz", 3, -7, 240.0);
const E5M2: Grid = float("f8_e5m2", 2, -14, 57344.0);

/// Floats so small that they are used with a scale, coarse ones first.
pub(super) const CODES: [Grid; 4] = [float("f4_e2m1", 1, 0, 6.0), E5M2, E4M3, E4M3_FNUZ];

/// Coarse ones first, so that the first that holds is the one a value went through.
pub(super) const GRIDS: [Grid; 9] = [
    Grid {
        name: "int",
        float: None,
    },
    E5M2,
    float("f8_e5m2fnuz", 2, -15, 57344.0),
    E4M3,
    E4M3_FNUZ,
    float("bf16", 7, -126, f64::MAX),
    float("f16", 10, -14, 65504.0),
    float("tf32", 10, -126, f64::MAX),
    float("f32", 23, -126, f64::MAX),
];

impl Grid {
    /// The distance to the next number.
    pub(super) fn step(self, value: f64) -> f64 {
        match self.float {
            None => 1.0,
            Some(Float {
                mantissa, least, ..
            }) => 2f64.powi(exponent(value).max(least) - mantissa),
        }
    }

    /// To the nearest, ties to even; beyond the range infinite.
    pub(super) fn round(self, value: f64) -> f64 {
        let step = self.step(value);
        let rounded = (value / step).round_ties_even() * step;
        match self.float {
            Some(Float { largest, .. }) if rounded.abs() > largest => f64::INFINITY.copysign(value),
            _ => rounded,
        }
    }

    /// To the nearest, and beyond the range to its end.
    pub(super) fn saturate(self, value: f64) -> f64 {
        self.round(value).clamp(-self.largest(), self.largest())
    }

    pub(super) fn largest(self) -> f64 {
        self.float.map_or(f64::INFINITY, |float| float.largest)
    }

    pub(super) fn holds(self, value: f64) -> bool {
        let whole = value / self.step(value);
        whole == whole.trunc() && self.float.is_none_or(|float| value.abs() <= float.largest)
    }

    /// Half the distance from 1 to the next number; `None` for whole numbers, which have no relative one.
    pub(super) fn unit(self) -> Option<f64> {
        self.float.map(|float| 2f64.powi(-float.mantissa - 1))
    }

    /// Whether a tensor of this dtype could hold more than this grid does.
    pub(super) fn is_coarser_than(self, dtype: DType) -> bool {
        match (self.unit(), twinscope_compare::noise::unit_roundoff(dtype)) {
            (Some(own), Some(unit)) => own > 2.0 * unit,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}

/// `e` with `2^e <= |value| < 2^(e+1)`.
fn exponent(value: f64) -> i32 {
    ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::minifloat;

    #[test]
    fn the_small_floats_are_those_of_the_tables() {
        let grid = |name: &str| *GRIDS.iter().find(|grid| grid.name == name).unwrap();
        for (name, table) in [
            ("f8_e4m3fn", &minifloat::F8_E4M3FN),
            ("f8_e4m3fnuz", &minifloat::F8_E4M3FNUZ),
            ("f8_e5m2", &minifloat::F8_E5M2),
            ("f8_e5m2fnuz", &minifloat::F8_E5M2FNUZ),
        ] {
            let mut values: Vec<f64> = table
                .iter()
                .copied()
                .filter(|value| value.is_finite())
                .map(f64::from)
                .collect();
            values.sort_by(f64::total_cmp);
            for pair in values.windows(2) {
                assert!(grid(name).holds(pair[0]), "{name} {}", pair[0]);
                if pair[0] != pair[1] {
                    let inside = pair[0] + 0.4 * (pair[1] - pair[0]);
                    assert!(!grid(name).holds(inside), "{name} {inside}");
                    assert_eq!(grid(name).round(inside), pair[0], "{name} {inside}");
                }
            }
        }
    }

    #[test]
    fn wide_floats_round_as_the_machine_does() {
        let (bf16, f32) = (GRIDS[5], GRIDS[8]);
        for value in [1.0 / 3.0, -1e-30, 7.77e20, 1e-45, 3.0e-39] {
            assert_eq!(f32.round(value), f64::from(value as f32));
            assert!(
                bf16.holds(bf16.round(value))
                    && (bf16.round(value) - value).abs() <= 0.5 * bf16.step(value)
            );
        }
    }
}
