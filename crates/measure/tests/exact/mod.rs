//! The oracle: sums without rounding (Shewchuk's partials, as `math.fsum`), and what follows from them.

// Each test uses its part.
#![allow(dead_code)]

use twinscope_measure::Counts;

/// Numbers that do not overlap; together they are the sum so far, exactly.
#[derive(Default)]
pub(crate) struct Sum(Vec<f64>);

impl Sum {
    pub(crate) fn add(&mut self, mut x: f64) {
        let mut kept = 0;
        for i in 0..self.0.len() {
            let mut y = self.0[i];
            if x.abs() < y.abs() {
                (x, y) = (y, x);
            }
            let hi = x + y;
            let lo = y - (hi - x);
            if lo != 0.0 {
                self.0[kept] = lo;
                kept += 1;
            }
            x = hi;
        }
        self.0.truncate(kept);
        self.0.push(x);
    }

    pub(crate) fn add_product(&mut self, a: f64, b: f64) {
        let hi = a * b;
        self.add(hi);
        self.add(a.mul_add(b, -hi));
    }

    pub(crate) fn value(&self) -> f64 {
        self.0.iter().sum()
    }
}

pub(crate) struct Exact {
    pub(crate) counts: Counts,
    pub(crate) sum: f64,
    pub(crate) sum_abs: f64,
    pub(crate) mean: f64,
    pub(crate) std: f64,
    pub(crate) norm: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Exact {
    pub(crate) fn of(values: &[f64]) -> Self {
        let finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
        let count = |test: fn(&f64) -> bool| values.iter().filter(|x| test(x)).count() as u64;
        let counts = Counts {
            finite: finite.len() as u64,
            nan: count(|x| x.is_nan()),
            pos_inf: count(|x| *x == f64::INFINITY),
            neg_inf: count(|x| *x == f64::NEG_INFINITY),
            zeros: count(|x| *x == 0.0),
        };
        let (mut sum, mut sum_abs) = (Sum::default(), Sum::default());
        // Squares are taken where they neither overflow nor vanish: divided by a power of two near the largest.
        let largest = finite.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let exponent = if largest == 0.0 {
            0
        } else {
            largest.log2().floor() as i32
        };
        let scaled = |x: f64| x * 2f64.powi(-exponent / 2) * 2f64.powi(-exponent + exponent / 2);
        let unscaled = |x: f64| x * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2);
        let mut scaled_sum = Sum::default();
        let mut squares = Sum::default();
        for x in &finite {
            sum.add(*x);
            sum_abs.add(x.abs());
            scaled_sum.add(scaled(*x));
            squares.add_product(scaled(*x), scaled(*x));
        }
        let n = finite.len() as f64;
        let mean = scaled_sum.value() / n;
        let (mut spread, mut off) = (Sum::default(), Sum::default());
        for x in &finite {
            // x - mean as hi + lo, exactly.
            let x = scaled(*x);
            let hi = x - mean;
            let back = hi - x;
            let lo = (x - (hi - back)) - (mean + back);
            spread.add_product(hi, hi);
            spread.add_product(2.0 * hi, lo);
            spread.add_product(lo, lo);
            off.add(hi);
            off.add(lo);
        }
        // The mean was rounded: what it is off by, squared, is in every term.
        spread.add(-off.value() * (off.value() / n));
        Self {
            counts,
            sum: sum.value(),
            sum_abs: sum_abs.value(),
            mean: unscaled(mean),
            std: unscaled((spread.value().max(0.0) / n).sqrt()),
            norm: unscaled(squares.value().sqrt()),
            min: finite.iter().copied().fold(f64::INFINITY, f64::min) + 0.0,
            max: finite.iter().copied().fold(f64::NEG_INFINITY, f64::max) + 0.0,
        }
    }
}
