//! Sums of products of numbers that were read: what formulas are made of. The same digits on every machine.

#[cfg(target_arch = "x86_64")]
use crate::simd::{Level, level};

/// Sums that are added up side by side: as many as the widest registers hold while an addition takes its time.
const LANES: usize = 32;

/// Defines a function that runs as fast as the machine it finds itself on can: compiled again for wider registers. None of them fuses a
/// product with its sum, so all give the same digits.
macro_rules! widened {
    ($(#[$doc:meta])* $name:ident, $plain:ident, $avx2:ident, $avx512:ident, ($($arg:ident: $type:ty),*) $(-> $out:ty)?) => {
        $(#[$doc])*
        pub fn $name($($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f")]
                fn $avx512($($arg: $type),*) $(-> $out)? {
                    $plain($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                fn $avx2($($arg: $type),*) $(-> $out)? {
                    $plain($($arg),*)
                }
                if level() >= Level::Avx512 {
                    // SAFETY: the feature it is compiled for is part of the level.
                    return unsafe { $avx512($($arg),*) };
                }
                if level() >= Level::Avx2 {
                    // SAFETY: as above.
                    return unsafe { $avx2($($arg),*) };
                }
            }
            $plain($($arg),*)
        }
    };
}

widened! {
    /// Σ of the products of two runs of numbers, of the shorter's length.
    dot, dot_plain, dot_avx2, dot_avx512, (x: &[f64], y: &[f64]) -> f64
}

widened! {
    /// Adds a multiple of some numbers to others, up to the shorter's length.
    add_times, add_times_plain, add_times_avx2, add_times_avx512, (sums: &mut [f64], factor: f64, values: &[f64])
}

#[inline(always)]
fn dot_plain(x: &[f64], y: &[f64]) -> f64 {
    let length = x.len().min(y.len());
    let (x, y) = (&x[..length], &y[..length]);
    let mut sums = [0.0; LANES];
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest: f64 = xs
        .remainder()
        .iter()
        .zip(ys.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in xs.zip(ys) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0] + rest
}

#[inline(always)]
fn add_times_plain(sums: &mut [f64], factor: f64, values: &[f64]) {
    sums.iter_mut()
        .zip(values)
        .for_each(|(sum, value)| *sum += factor * value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: u32) -> (Vec<f64>, Vec<f64>) {
        (
            (0..count).map(|i| f64::from(i) - 3.0).collect(),
            (0..count).map(|i| f64::from(i * i) + 1.0).collect(),
        )
    }

    #[test]
    fn a_dot_product_has_every_term_once_whatever_the_length() {
        for count in 0..140 {
            let (x, y) = numbers(count);
            assert_eq!(
                dot(&x, &y),
                x.iter().zip(&y).map(|(x, y)| x * y).sum::<f64>(),
                "{count}"
            );
        }
        assert_eq!(dot(&[1.0, 2.0, 3.0], &[4.0]), 4.0);
    }

    #[test]
    fn every_machine_gives_the_same_digits() {
        let x: Vec<f64> = (1..1000).map(|i| 1.0 / f64::from(i)).collect();
        let y: Vec<f64> = (1..1000).map(|i| f64::from(i).sqrt().sin()).collect();
        assert_eq!(dot(&x, &y).to_bits(), dot_plain(&x, &y).to_bits());
        let (mut wide, mut plain) = (y.clone(), y);
        add_times(&mut wide, 0.1, &x);
        add_times_plain(&mut plain, 0.1, &x);
        assert_eq!(wide, plain);
    }
}
