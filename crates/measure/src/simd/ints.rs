//! Exact sums of a block of integers of up to 32 bits, written so that the compiler makes vectors of them.

/// What one pass over a block of integers finds, exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) zeros: u64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) sum: i64,
    pub(crate) squares: u128,
}

/// So many integers are summed in narrow lanes before they are added to the whole: 2^12 squares of 8 bits fit 32 bits, and 2^12
/// halves of squares of 32 bits fit 64.
const RUN: usize = 1 << 12;

/// Squares of 32 bits, whose sum does not fit 64: the lower and the upper halves.
type Halves = (u64, u64);

macro_rules! whole {
    ($($name:ident: $int:ty, $size:literal, |$bytes:ident| $value:expr, $lane:ty;
        $squares:ty, |$all:ident, $x:ident| $insert:expr, |$done:ident| $finish:expr;)*) => {$(
        /// Little-endian integers at any alignment, at least one.
        pub(crate) fn $name(bytes: &[u8]) -> Whole {
            #[inline(always)]
            fn plain(bytes: &[u8]) -> Whole {
                let (mut min, mut max) = (<$int>::MAX, <$int>::MIN);
                let (mut zeros, mut sum, mut squares) = (0, 0, 0);
                for run in bytes.as_chunks::<$size>().0.chunks(RUN) {
                    let (mut run_zeros, mut run_sum, mut $all) = (0u32, <$lane>::default(), <$squares>::default());
                    for $bytes in run {
                        let $x: $int = $value;
                        run_zeros += u32::from($x == 0);
                        min = if $x < min { $x } else { min };
                        max = if $x > max { $x } else { max };
                        run_sum += <$lane>::from($x);
                        $insert;
                    }
                    let $done = $all;
                    zeros += u64::from(run_zeros);
                    sum += i64::from(run_sum);
                    squares += $finish;
                }
                Whole { zeros, min: i64::from(min), max: i64::from(max), sum, squares }
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn vectors(bytes: &[u8]) -> Whole {
                plain(bytes)
            }

            #[cfg(target_arch = "x86_64")]
            if super::level() >= super::Level::Avx2 {
                // SAFETY: the feature this is compiled for is part of the level.
                return unsafe { vectors(bytes) };
            }
            plain(bytes)
        }
    )*};
}
whole! {
    // Any byte but 0 is true.
    bools: u8, 1, |bytes| u8::from(bytes[0] != 0), i32; u32, |all, x| all += u32::from(x), |all| u128::from(all);
    u8s: u8, 1, |bytes| bytes[0], i32; u32, |all, x| all += u32::from(x) * u32::from(x), |all| u128::from(all);
    i8s: i8, 1, |bytes| i8::from_le_bytes(*bytes), i32; i32, |all, x| all += i32::from(x) * i32::from(x), |all| all as u128;
    u16s: u16, 2, |bytes| u16::from_le_bytes(*bytes), i32; u64, |all, x| all += u64::from(u32::from(x) * u32::from(x)), |all| u128::from(all);
    i16s: i16, 2, |bytes| i16::from_le_bytes(*bytes), i32; i64, |all, x| all += i64::from(i32::from(x) * i32::from(x)), |all| all as u128;
    u32s: u32, 4, |bytes| u32::from_le_bytes(*bytes), i64; Halves, |all, x| insert(&mut all, x), |all| whole_of(all);
    i32s: i32, 4, |bytes| i32::from_le_bytes(*bytes), i64; Halves, |all, x| insert(&mut all, x.unsigned_abs()), |all| whole_of(all);
}

#[inline(always)]
fn insert(all: &mut Halves, x: u32) {
    let square = u64::from(x) * u64::from(x);
    *all = (
        all.0 + (square & u64::from(u32::MAX)),
        all.1 + (square >> 32),
    );
}

fn whole_of((low, high): Halves) -> u128 {
    u128::from(low) + (u128::from(high) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As i128, one by one.
    fn slowly(values: &[i128]) -> Whole {
        Whole {
            zeros: values.iter().filter(|x| **x == 0).count() as u64,
            min: *values.iter().min().expect("one") as i64,
            max: *values.iter().max().expect("one") as i64,
            sum: values.iter().sum::<i128>() as i64,
            squares: values.iter().map(|x| (x * x) as u128).sum(),
        }
    }

    #[test]
    fn sums_are_exact_up_to_the_largest_integers() {
        // A byte pattern that has every sort of number, then blocks of the two ends alone.
        let bytes: Vec<u8> = (0..3 * 16_384u32)
            .flat_map(|i| (i.wrapping_mul(2_654_435_761) >> (i % 32)).to_le_bytes())
            .collect();
        for bytes in [
            &bytes[..],
            &bytes[..4],
            &vec![0xff; 65_536],
            &[0, 0, 0, 0x80].repeat(16_384),
            &[0; 64],
        ] {
            macro_rules! check {
                ($($name:ident $int:ty, $size:literal;)*) => {$(
                    let values: Vec<i128> = bytes.as_chunks::<$size>().0.iter().map(|x| i128::from(<$int>::from_le_bytes(*x))).collect();
                    assert_eq!($name(bytes), slowly(&values), stringify!($name));
                )*};
            }
            check! { u8s u8, 1; i8s i8, 1; u16s u16, 2; i16s i16, 2; u32s u32, 4; i32s i32, 4; }
            let truths: Vec<i128> = bytes.iter().map(|x| i128::from(*x != 0)).collect();
            assert_eq!(bools(bytes), slowly(&truths));
        }
    }
}
