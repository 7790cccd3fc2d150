//! `stats` against exact summation, on every kind of number and every length that has a border in it.

mod exact;

use exact::Exact;
use proptest::prelude::*;
use std::sync::Arc;
use twinscope_measure::{Counts, Number, Squares, Stats, stats};
use twinscope_tensor::{BlockType, Bytes, DType, Quant, ReadError, Shape, Shrunk, Storage, View};

fn view(dtype: DType, bytes: Vec<u8>) -> View {
    let elements = bytes.len() / dtype.itemsize().expect("whole bytes");
    View::new(dtype, Shape::from([elements as u64]), bytes.into()).expect("exactly these bytes")
}

fn f64s(values: &[f64]) -> View {
    view(
        DType::F64,
        values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    )
}

fn f32s(values: &[f32]) -> View {
    view(
        DType::F32,
        values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    )
}

fn u16s(dtype: DType, bits: &[u16]) -> View {
    view(dtype, bits.iter().flat_map(|x| x.to_le_bytes()).collect())
}

fn of(view: &View) -> Stats {
    stats(view).expect("memory does not shrink")
}

fn float(number: Option<Number>) -> f64 {
    match number {
        Some(Number::Float(x)) => x,
        other => panic!("{other:?} is not a float"),
    }
}

fn close(name: &str, got: f64, exact: f64, scale: f64) {
    assert!(
        (got - exact).abs() <= 1e-12 * scale,
        "{name}: {got:e}, exactly {exact:e}, scale {scale:e}"
    );
}

/// Everything `stats` says against everything the oracle says.
fn agrees(stats: &Stats, values: &[f64]) {
    let exact = Exact::of(values);
    let counts = stats.counts().expect("numbers");
    assert_eq!(stats.count(), values.len() as u64);
    assert_eq!(counts, exact.counts);
    if counts.finite == 0 {
        assert_eq!(
            (
                stats.mean(),
                stats.std(),
                stats.norm(),
                stats.min(),
                stats.max()
            ),
            (None, None, None, None, None)
        );
        assert_eq!(
            (stats.sum(), stats.max_abs(), stats.squares()),
            (None, None, None)
        );
        return;
    }
    assert_eq!(
        (stats.min(), stats.max()),
        (
            Some(Number::Float(exact.min)),
            Some(Number::Float(exact.max))
        )
    );
    assert_eq!(float(stats.max_abs()), exact.max.max(-exact.min));
    // Least f64s are far coarser than 1e-12 of themselves.
    let grain = 1e13 * f64::from_bits(1);
    close("sum", float(stats.sum()), exact.sum, exact.sum_abs + grain);
    close(
        "mean",
        float(stats.mean()),
        exact.mean,
        exact.sum_abs / counts.finite as f64 + grain,
    );
    close(
        "std",
        stats.std().expect("some are finite"),
        exact.std,
        exact.std + grain,
    );
    close(
        "norm",
        stats.norm().expect("some are finite"),
        exact.norm,
        exact.norm + grain,
    );
}

/// A small generator of its own, so that lengths of millions cost nothing.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Between -1 and 1.
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

fn some_f64() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => -1e3..1e3f64,
        // Any bits at all: every exponent, denormals, NaN and infinities.
        4 => any::<u64>().prop_map(f64::from_bits),
        4 => (-1.0..1.0f64, -300..300i32).prop_map(|(x, e)| x * 10f64.powi(e)),
        1 => prop::sample::select(vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 5e-324, 1e154, 1e-160]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn sums_of_any_f64_are_exact(values in prop::collection::vec(some_f64(), 0..300)) {
        // What overflows as a whole is another test's.
        let values: Vec<f64> = values.into_iter().map(|x| if x.abs() > 1e305 && x.is_finite() { x * 1e-3 } else { x }).collect();
        agrees(&of(&f64s(&values)), &values);
    }

    #[test]
    fn sums_of_any_f32_are_exact(bits in prop::collection::vec(any::<u32>(), 0..300)) {
        let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        agrees(&of(&f32s(&values)), &values.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    }

    #[test]
    fn sums_of_any_bf16_are_exact(bits in prop::collection::vec(any::<u16>(), 0..300)) {
        let values: Vec<f64> = bits.iter().map(|x| f64::from(f32::from_bits(u32::from(*x) << 16))).collect();
        agrees(&of(&u16s(DType::Bf16, &bits)), &values);
    }

    #[test]
    fn what_cancels_is_still_exact(values in prop::collection::vec(-1e9..1e9f64, 1..200), small in -1.0..1.0f64) {
        // x, -x, ..., and something small that a careless sum would lose.
        let mut values: Vec<f64> = values.iter().flat_map(|x| [*x, -*x]).collect();
        values.push(small);
        agrees(&of(&f64s(&values)), &values);
    }

    #[test]
    fn a_large_mean_does_not_swallow_the_spread(mean in -1e9..1e9f64, exponent in -6..0i32, values in prop::collection::vec(-1.0..1.0f64, 2..5000)) {
        let values: Vec<f64> = values.iter().map(|x| mean + x * 10f64.powi(exponent)).collect();
        agrees(&of(&f64s(&values)), &values);
        let single: Vec<f32> = values.iter().map(|x| *x as f32).collect();
        agrees(&of(&f32s(&single)), &single.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    }

    #[test]
    fn integers_are_exact(values in prop::collection::vec(any::<i64>(), 1..200)) {
        let stats = of(&view(DType::I64, values.iter().flat_map(|x| x.to_le_bytes()).collect()));
        let wide: Vec<i128> = values.iter().map(|x| i128::from(*x)).collect();
        prop_assert_eq!(stats.sum(), Some(Number::Int(wide.iter().sum())));
        prop_assert_eq!(stats.min(), wide.iter().min().map(|x| Number::Int(*x)));
        prop_assert_eq!(stats.max(), wide.iter().max().map(|x| Number::Int(*x)));
        prop_assert_eq!(stats.max_abs(), wide.iter().map(|x| x.abs()).max().map(Number::Int));
    }
}

#[test]
fn no_length_loses_its_tail() {
    let mut random = Random(7);
    let borders = [
        8191,
        16_383,
        16_384,
        16_385,
        32_768,
        32_799,
        131_071,
        131_072,
        131_073,
        262_144,
        300_003,
        (1 << 20) - 1,
        (1 << 20) + 1,
    ];
    for len in (0..100).chain(borders) {
        let values: Vec<f64> = (0..len).map(|_| random.unit()).collect();
        agrees(&of(&f64s(&values)), &values);
        let single: Vec<f32> = values.iter().map(|x| *x as f32).collect();
        agrees(
            &of(&f32s(&single)),
            &single.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(),
        );
        let top: Vec<u16> = single.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
        let cut: Vec<f64> = top
            .iter()
            .map(|x| f64::from(f32::from_bits(u32::from(*x) << 16)))
            .collect();
        agrees(&of(&u16s(DType::Bf16, &top)), &cut);
        let bytes: Vec<i8> = values.iter().map(|x| (x * 127.0) as i8).collect();
        let small = of(&view(DType::I8, bytes.iter().map(|x| *x as u8).collect()));
        let sum = bytes.iter().map(|x| i128::from(*x)).sum();
        assert_eq!(
            small.sum(),
            (len > 0).then_some(Number::Int(sum)),
            "{len} bytes"
        );
        if len > 0 {
            let exact = Exact::of(&bytes.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
            close("std", small.std().expect("numbers"), exact.std, exact.std);
            close(
                "norm",
                small.norm().expect("numbers"),
                exact.norm,
                exact.norm,
            );
        }
    }
}

#[test]
fn one_number_counts_wherever_it_stands() {
    for len in [1usize, 8, 16, 17, 16_384, 16_385, 131_072, 131_073] {
        for place in [0, len / 3, len - 1] {
            for odd in [
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                0.0,
                -77.0,
                77.0,
                1e300,
                1e-320,
            ] {
                let mut values = vec![1.0; len];
                values[place] = odd;
                agrees(&of(&f64s(&values)), &values);
                let bits: Vec<u16> = values
                    .iter()
                    .map(|x| ((*x as f32).to_bits() >> 16) as u16)
                    .collect();
                let values: Vec<f64> = bits
                    .iter()
                    .map(|x| f64::from(f32::from_bits(u32::from(*x) << 16)))
                    .collect();
                agrees(&of(&u16s(DType::Bf16, &bits)), &values);
            }
        }
    }
}

#[test]
fn every_half_at_once() {
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    let stats = of(&u16s(DType::F16, &bits));
    let counts = Counts {
        finite: 63_488,
        nan: 2046,
        pos_inf: 1,
        neg_inf: 1,
        zeros: 2,
    };
    assert_eq!(stats.counts(), Some(counts));
    assert_eq!(
        (stats.min(), stats.max(), stats.mean()),
        (
            Some(Number::Float(-65504.0)),
            Some(Number::Float(65504.0)),
            Some(Number::Float(0.0))
        )
    );
}

#[test]
fn digits_do_not_depend_on_the_threads() {
    let mut random = Random(11);
    let values: Vec<f32> = (0..700_001)
        .map(|_| (random.unit() * 10f64.powf(8.0 * random.unit())) as f32)
        .collect();
    let view = f32s(&values);
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("threads");
        pool.install(|| of(&view))
    };
    let one = on(1);
    assert_eq!(one, on(2));
    assert_eq!(one, on(7));
    agrees(
        &one,
        &values.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(),
    );
}

#[test]
fn a_constant_has_no_spread_at_all() {
    for value in [0.1, 1e6 + 0.001, -3.3e-7, 1e300, 1e-310, f64::MAX] {
        for len in [1, 3, 16_384, 150_003] {
            let stats = of(&f64s(&vec![value; len]));
            assert_eq!(
                (stats.std(), float(stats.mean())),
                (Some(0.0), value),
                "{len} times {value:e}"
            );
            let single = value as f32;
            if single.is_finite() {
                let stats = of(&f32s(&vec![single; len]));
                assert_eq!(
                    (stats.std(), float(stats.mean())),
                    (Some(0.0), f64::from(single))
                );
            }
        }
    }
    let stats = of(&u16s(DType::Bf16, &[0x3f9d; 9999]));
    assert_eq!(stats.std(), Some(0.0));
}

#[test]
fn a_million_and_a_thousandth() {
    let mut random = Random(3);
    let values: Vec<f64> = (0..300_000)
        .map(|_| 1e6 + 1e-3 * (random.unit() + random.unit() + random.unit()))
        .collect();
    agrees(&of(&f64s(&values)), &values);
}

#[test]
fn squares_that_overflow_are_scaled_and_said() {
    let stats = of(&f64s(&[3e200, -4e200]));
    assert_eq!(stats.squares(), Some(Squares::Overflowed));
    close("norm", stats.norm().expect("finite"), 5e200, 5e200);
    close("std", stats.std().expect("finite"), 3.5e200, 3.5e200);
    assert_eq!(stats.min(), Some(Number::Float(-4e200)));

    let stats = of(&f64s(&[f64::MAX, f64::MAX, f64::MIN]));
    close("mean", float(stats.mean()), f64::MAX / 3.0, f64::MAX / 3.0);
    assert_eq!(float(stats.sum()), f64::MAX);
    // The norm is beyond f64, and infinite is the nearest there is.
    assert_eq!(stats.norm(), Some(f64::INFINITY));
    let third = 8f64.sqrt() / 3.0 * f64::MAX;
    close("std", stats.std().expect("finite"), third, third);

    let stats = of(&f64s(&[3e-200, -4e-200, 0.0]));
    assert_eq!(stats.squares(), Some(Squares::Underflowed));
    close("norm", stats.norm().expect("finite"), 5e-200, 5e-200);
    assert_eq!(stats.counts().expect("numbers").zeros, 1);

    assert_eq!(of(&f64s(&[0.0, 0.0])).squares(), Some(Squares::InRange));
    assert_eq!(
        of(&f64s(&[1.0, 1e200])).squares(),
        Some(Squares::Overflowed)
    );
    // Blocks of very different sizes meet.
    let mut values = vec![1e-200; 16_384];
    values.extend(vec![1.0; 16_384]);
    values.extend(vec![-1e200; 16_384]);
    values.extend(vec![2e-310; 100_000]);
    agrees(&of(&f64s(&values)), &values);
    values[16_384..].fill(1e-180);
    agrees(&of(&f64s(&values)), &values);
}

#[test]
fn unsigned_64_bits_and_booleans_are_exact() {
    let values = [u64::MAX, u64::MAX - 1, 0];
    let stats = of(&view(
        DType::U64,
        values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    ));
    assert_eq!(
        (stats.min(), stats.max()),
        (
            Some(Number::Int(0)),
            Some(Number::Int(i128::from(u64::MAX)))
        )
    );
    assert_eq!(stats.sum(), Some(Number::Int(2 * i128::from(u64::MAX) - 1)));
    // Differences of 1 beyond 2^53.
    let stats = of(&view(
        DType::U64,
        (0..1000u64)
            .flat_map(|i| (u64::MAX - i % 2).to_le_bytes())
            .collect(),
    ));
    assert_eq!(stats.std(), Some(0.5));

    let stats = of(&view(DType::Bool, vec![1, 0, 255, 0]));
    assert_eq!(
        (stats.sum(), stats.max(), stats.std()),
        (Some(Number::Int(2)), Some(Number::Int(1)), Some(0.5))
    );
    assert_eq!(stats.mean(), Some(Number::Float(0.5)));
    assert_eq!(
        stats.counts(),
        Some(Counts {
            finite: 4,
            zeros: 2,
            ..Counts::default()
        })
    );
}

#[test]
fn complex_numbers_have_a_mean_and_no_order() {
    let parts: [f32; 10] = [
        3.0,
        4.0,
        -3.0,
        -4.0,
        f32::NAN,
        0.0,
        f32::NEG_INFINITY,
        1.0,
        0.0,
        0.0,
    ];
    let stats = of(&view(
        DType::C64,
        parts.iter().flat_map(|x| x.to_le_bytes()).collect(),
    ));
    assert_eq!(stats.count(), 5);
    assert_eq!(
        stats.counts(),
        Some(Counts {
            finite: 3,
            nan: 1,
            pos_inf: 1,
            neg_inf: 0,
            zeros: 1
        })
    );
    assert_eq!(
        (stats.mean(), stats.min(), stats.max()),
        (Some(Number::Complex(0.0, 0.0)), None, None)
    );
    assert_eq!(stats.max_abs(), Some(Number::Float(5.0)));
    close(
        "std",
        stats.std().expect("finite"),
        (50.0f64 / 3.0).sqrt(),
        5.0,
    );
    close("norm", stats.norm().expect("finite"), 50f64.sqrt(), 10.0);
    // Parts are finite, the modulus is not.
    let parts = [1.7e308f64, 1.7e308, 1.7e308, 1.7e308];
    let stats = of(&view(
        DType::C128,
        parts.iter().flat_map(|x| x.to_le_bytes()).collect(),
    ));
    assert_eq!(stats.mean(), Some(Number::Complex(1.7e308, 1.7e308)));
    assert_eq!(
        (stats.std(), stats.squares()),
        (Some(0.0), Some(Squares::Overflowed))
    );
}

#[test]
fn what_is_no_number_has_only_a_count() {
    let stats = of(&view(DType::Bytes(3), b"abcdef".to_vec()));
    assert_eq!(
        (
            stats.count(),
            stats.counts(),
            stats.mean(),
            stats.std(),
            stats.sum()
        ),
        (2, None, None, None, None)
    );
    assert_eq!(
        (
            stats.norm(),
            stats.min(),
            stats.max(),
            stats.max_abs(),
            stats.squares()
        ),
        (None, None, None, None, None)
    );
}

#[test]
fn quantized_blocks_and_packed_numbers_are_what_they_stand_for() {
    let codes = view(DType::QI8, vec![1, 2, 0xff]).quantized(Quant::Tensor {
        scale: 0.5,
        zero_point: 1.0,
    });
    agrees(&of(&codes), &[0.0, 0.5, -1.0]);
    // q4_0: one scale of 2 (f16), then 32 codes less 8.
    let mut block = vec![0x00, 0x40];
    block.extend([0x9a; 16]);
    let stats = of(&View::new(
        DType::Block(BlockType::Q4_0),
        Shape::from([32]),
        block.into(),
    )
    .expect("one block"));
    assert_eq!(
        (stats.min(), stats.max(), stats.std()),
        (
            Some(Number::Float(2.0)),
            Some(Number::Float(4.0)),
            Some(1.0)
        )
    );
    let stats =
        of(&View::new(DType::OnnxI4, Shape::from([3]), vec![0x7f, 0x08].into()).expect("three"));
    assert_eq!(
        (stats.sum(), stats.min(), stats.max()),
        (
            Some(Number::Int(-2)),
            Some(Number::Int(-8)),
            Some(Number::Int(7))
        )
    );
    // Two numbers an element.
    let stats = of(&view(DType::F4E2M1FnX2, vec![0x21, 0x00]));
    assert_eq!(
        (
            stats.count(),
            float(stats.sum()),
            stats.counts().map(|c| c.finite)
        ),
        (4, 1.5, Some(4))
    );
}

#[test]
fn a_transposed_tensor_has_the_digits_of_the_original() {
    let mut random = Random(5);
    let values: Vec<f32> = (0..300 * 400).map(|_| random.unit() as f32).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let whole =
        View::new(DType::F32, Shape::from([300, 400]), bytes.clone().into()).expect("these bytes");
    let turned = View::strided(
        DType::F32,
        Shape::from([400, 300]),
        vec![1, 400],
        0,
        bytes.into(),
    )
    .expect("inside");
    assert_eq!(of(&whole), of(&turned));
}

#[test]
fn strided_views_are_read_in_place() {
    let values: Vec<f64> = (0..120_000).map(|i| f64::from(i % 977) - 300.5).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let strided = |shape: [u64; 2], strides: [i64; 2], offset| {
        View::strided(
            DType::F64,
            Shape::from(shape),
            strides.to_vec(),
            offset,
            bytes.clone().into(),
        )
        .expect("inside")
    };
    let picked = |shape: [i64; 2], strides: [i64; 2], offset: i64| -> Vec<f64> {
        (0..shape[0])
            .flat_map(|i| {
                (0..shape[1]).map(move |j| (offset + i * strides[0] + j * strides[1]) as usize)
            })
            .map(|at| values[at])
            .collect()
    };
    for (shape, strides, offset) in [
        ([150, 133], [800, 3], 1),
        ([133, 150], [3, 800], 1),
        ([150, 133], [-800, -3], 119_999),
        ([7, 90_000], [0, 1], 5),
        ([90_000, 3], [1, 1], 5),
    ] {
        let view = strided(shape.map(|n: i64| n as u64), strides, offset as u64);
        agrees(&of(&view), &picked(shape, strides, offset));
    }
}

#[test]
fn a_trillion_copies_take_no_time() {
    let bytes: Vec<u8> = [1.5f32, f32::NAN, 0.0]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let view = View::strided(
        DType::F32,
        Shape::from([1_000_000, 3, 1_000_000]),
        vec![0, 1, 0],
        0,
        bytes.into(),
    )
    .expect("inside");
    let stats = of(&view);
    assert_eq!(stats.count(), 3_000_000_000_000);
    assert_eq!(
        stats.counts(),
        Some(Counts {
            finite: 2_000_000_000_000,
            nan: 1_000_000_000_000,
            zeros: 1_000_000_000_000,
            ..Counts::default()
        })
    );
    assert_eq!(
        (float(stats.mean()), stats.std(), float(stats.sum())),
        (0.75, Some(0.75), 1.5e12)
    );
    // Each channel of a repeated axis has a scale of its own, so that axis is not a repetition.
    let quant = Quant::Channel {
        axis: 1,
        scales: vec![1.0, 10.0],
        zero_points: vec![0.0, 0.0],
    };
    let view = View::strided(
        DType::QI8,
        Shape::from([5, 2]),
        vec![0, 0],
        0,
        vec![3].into(),
    )
    .expect("inside")
    .quantized(quant);
    assert_eq!(float(of(&view).sum()), 165.0);
    let one = View::strided(
        DType::U64,
        Shape::from([1 << 40]),
        vec![0],
        0,
        vec![255; 8].into(),
    )
    .expect("inside");
    assert_eq!(
        of(&one).sum(),
        Some(Number::Int(i128::from(u64::MAX) << 40))
    );
}

#[test]
fn other_byte_orders_and_lazy_signs_are_resolved() {
    let bytes: Vec<u8> = [1.0f32, 2.0, -4.0]
        .iter()
        .flat_map(|x| x.to_be_bytes())
        .collect();
    agrees(
        &of(&view(DType::F32, bytes.clone()).big_endian(true)),
        &[1.0, 2.0, -4.0],
    );
    agrees(
        &of(&view(DType::F32, bytes)
            .big_endian(true)
            .lazy_bits(false, true)),
        &[-1.0, -2.0, 4.0],
    );
}

#[test]
fn a_file_that_shrank_gives_no_numbers() {
    struct Cut(Vec<u8>);
    impl Storage for Cut {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
        fn check(&self) -> Result<(), Shrunk> {
            Err(Shrunk {
                file: "cut.npy".into(),
            })
        }
    }
    let view = View::new(
        DType::F32,
        Shape::from([2]),
        Bytes::new(Arc::new(Cut(vec![0; 8]))),
    )
    .expect("eight bytes");
    assert!(matches!(stats(&view), Err(ReadError::Shrunk(Shrunk { file })) if file == "cut.npy"));
}
