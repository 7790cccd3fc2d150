//! The same sums as [`crate::kernel`], as fast as memory where the machine allows it.
//!
//! Each function gives, digit for digit, what the plain loop gives; the tests hold them to that. Which one runs is decided at run
//! time. A block that holds a NaN or an infinity is noticed by its `Σ|x|`, which costs nothing; the caller does such a block
//! again, slowly.

#[cfg(target_arch = "x86_64")]
mod avx2;

use crate::kernel::{self, Sums};

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

macro_rules! dispatch {
    ($($(#[$doc:meta])* $name:ident($shift:ident) = $plain:path;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(bytes: &[u8], $shift: f64) -> Sums {
            #[cfg(target_arch = "x86_64")]
            if has_avx2() {
                // SAFETY: the features these functions are compiled for were just detected.
                return unsafe { avx2::$name(bytes, $shift) };
            }
            kernel::plain($plain(bytes), $shift)
        }
    )*};
}
dispatch! {
    /// Little-endian `f64` at any alignment.
    f64(shift) = kernel::f64s;
    f32(shift) = kernel::f32s;
    f16(shift) = kernel::f16s;
    bf16(shift) = kernel::bf16s;
}

/// Numbers that are no longer bytes.
pub(crate) fn values(values: &[f64], shift: f64) -> Sums {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the same memory as bytes, which have no alignment and no invalid values; x86 is little-endian.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
        // SAFETY: the features were just detected.
        return unsafe { avx2::f64(bytes, shift) };
    }
    kernel::plain(values.iter().copied(), shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Fast = fn(&[u8], f64) -> Sums;

    /// The same bits, but for the sign of a zero.
    fn same(fast: Sums, plain: Sums) {
        assert_eq!(fast, plain);
    }

    fn on_every_length_and_alignment<I>(bytes: &[u8], size: usize, fast: Fast, plain: impl Fn(&[u8]) -> I, shift: f64)
    where
        I: Iterator<Item = f64>,
    {
        for skip in 0..size.min(3) {
            for count in (0..100).chain([255, 256, 257]).filter(|count| skip + count * size <= bytes.len()) {
                let part = &bytes[skip..skip + count * size];
                let expected: Vec<f64> = plain(part).collect();
                if expected.iter().all(|x| x.is_finite()) {
                    same(fast(part, shift), kernel::plain(expected.into_iter(), shift));
                } else {
                    assert!(!fast(part, shift).abs.is_finite(), "{count} numbers, not all finite");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn vectors_print_the_digits_of_the_plain_loop(values in prop::collection::vec(-1e3f32..1e3, 260), shift in -1e3f32..1e3) {
            let shift = f64::from(shift);
            let bytes: Vec<u8> = values.iter().flat_map(|x| f64::from(*x).sqrt().to_le_bytes().into_iter().chain(x.to_le_bytes())).collect();
            on_every_length_and_alignment(&bytes, 8, f64, |b| kernel::f64s(b).collect::<Vec<_>>().into_iter(), shift);
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            on_every_length_and_alignment(&bytes, 4, f32, |b| kernel::f32s(b).collect::<Vec<_>>().into_iter(), shift);
        }

        #[test]
        fn any_sixteen_bits_are_read_as_the_plain_loop_reads_them(bits in prop::collection::vec(any::<u16>(), 260)) {
            // Without the top exponents all are finite; with them a few are not.
            for mask in [u16::MAX, 0xbfff] {
                let bytes: Vec<u8> = bits.iter().flat_map(|x| (x & mask).to_le_bytes()).collect();
                on_every_length_and_alignment(&bytes, 2, f16, |b| kernel::f16s(b).collect::<Vec<_>>().into_iter(), 0.0);
                on_every_length_and_alignment(&bytes, 2, bf16, |b| kernel::bf16s(b).collect::<Vec<_>>().into_iter(), 0.0);
            }
        }
    }

    #[test]
    fn one_sign_alone_still_gives_min_and_max() {
        for bits in [[0x3f80u16, 0x4000, 0x3f00], [0xbf80, 0xc000, 0xbf00], [0x8000, 0x8000, 0xbf80], [0x8000, 0x3f80, 0x0000], [0x8000; 3]]
        {
            for repeat in [1, 5, 6, 11, 40] {
                let bytes: Vec<u8> = bits.repeat(repeat).iter().flat_map(|x| x.to_le_bytes()).collect();
                same(bf16(&bytes, 0.0), kernel::plain(kernel::bf16s(&bytes), 0.0));
                same(f16(&bytes, 0.0), kernel::plain(kernel::f16s(&bytes), 0.0));
            }
        }
    }

    #[test]
    fn one_bad_number_in_any_place_is_noticed() {
        for len in [1, 7, 8, 15, 16, 17, 31, 32, 33, 4096, 4099] {
            for place in [0, len / 2, len - 1] {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = vec![1.5f32; len];
                    values[place] = bad;
                    let wide: Vec<u8> = values.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect();
                    let single: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                    let half: Vec<u8> = single.chunks(4).flat_map(|x| [x[2], x[3]]).collect();
                    for sums in [f64(&wide, 1.5), f32(&single, 1.5), bf16(&half, 0.0)] {
                        assert!(!sums.abs.is_finite(), "{bad} at {place} of {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_half_converts() {
        for bits in 0..=u16::MAX {
            let fast = f16(&bits.to_le_bytes().repeat(16), 0.0);
            let value = kernel::f16(bits);
            assert_eq!(fast.abs.is_finite(), value.is_finite(), "{bits:04x}");
            if value.is_finite() {
                assert_eq!((fast.d, fast.min, fast.max), (16.0 * value, value + 0.0, value + 0.0), "{bits:04x}");
            }
        }
    }
}
