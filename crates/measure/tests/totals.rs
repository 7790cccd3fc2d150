//! `totals` against exact summation, on every length that has a border in it, and the plain way against the vector loops.

mod exact;

use exact::Sum;
use proptest::prelude::*;
use twinscope_measure::{Options, Profiling, State, Totals, totals, totals_watched};
use twinscope_tensor::{DType, Operand, Shape, Shrunk, View};

const ALL: Options = Options {
    profiles: Profiling::Sampled,
    top: 5,
    tolerance: Some((1e-3, 1e-2)),
};

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

fn bf16s(values: &[f32]) -> View {
    view(
        DType::Bf16,
        values
            .iter()
            .flat_map(|x| x.to_bits().to_le_bytes()[2..].to_vec())
            .collect(),
    )
}

/// Not a view to anyone who asks: what the vector loops never see.
struct Plain<'a>(&'a View);

impl Operand for Plain<'_> {
    fn shape(&self) -> &Shape {
        self.0.shape()
    }
    fn dtype(&self) -> DType {
        self.0.dtype()
    }
    fn view(&self) -> Option<&View> {
        None
    }
    fn f64_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<f64>,
    ) -> bool {
        self.0.f64_values(start, count, scratch, out)
    }
    fn int_values(
        &self,
        start: u64,
        count: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<i128>,
    ) -> bool {
        self.0.int_values(start, count, scratch, out)
    }
    fn check(&self) -> Result<(), Shrunk> {
        Ok(())
    }
}

fn of(reference: &View, candidate: &View) -> Totals {
    totals(reference, candidate, &ALL).expect("memory does not shrink")
}

fn values(view: &View) -> Vec<f64> {
    let mut out = Vec::new();
    assert!(view.f64_values(0, view.len() as usize, &mut Vec::new(), &mut out));
    out
}

fn close(what: &str, got: f64, exact: f64, scale: f64) {
    let grain = 1e-310;
    assert!(
        got == exact || (got - exact).abs() <= 1e-12 * scale + grain,
        "{what}: {got:e}, exactly {exact:e}, scale {scale:e}"
    );
}

/// Everything that both ways say, within the rounding of sums.
fn same(fast: &Totals, plain: &Totals) {
    let exact = |t: &Totals| {
        (
            t.count,
            t.compared,
            t.differing,
            t.nonfinite_differing,
            t.beyond,
            t.max_abs,
            t.max_ulp,
        )
    };
    assert_eq!(exact(fast), exact(plain));
    assert_eq!(
        (&fast.magnitudes, &fast.ulps),
        (&plain.magnitudes, &plain.ulps)
    );
    assert_eq!(
        format!("{:?} {:?}", fast.worst, fast.top),
        format!("{:?} {:?}", plain.worst, plain.top)
    );
    let numbers = |t: &Totals| {
        [
            t.mean_abs,
            t.max_rel,
            t.mean_rel,
            t.mse,
            t.rel_l2,
            t.max_local,
            t.reference.std,
            t.reference.norm,
            t.candidate.std,
            t.candidate.norm,
        ]
    };
    for (i, (a, b)) in numbers(fast).into_iter().zip(numbers(plain)).enumerate() {
        assert_eq!(a.is_some(), b.is_some());
        close(
            &format!("number {i}"),
            a.unwrap_or(0.0),
            b.unwrap_or(0.0),
            b.unwrap_or(0.0),
        );
    }
    close(
        "cosine",
        fast.cosine.unwrap_or(9.0),
        plain.cosine.unwrap_or(9.0),
        1.0,
    );
    let ends =
        |t: &Totals| [t.reference, t.candidate].map(|s| (s.min, s.max, s.nan, s.inf, s.zero));
    assert_eq!(ends(fast), ends(plain));
    assert_eq!(fast.profiles.len(), plain.profiles.len());
    for (a, b) in fast.profiles.iter().zip(&plain.profiles) {
        assert_eq!(
            (a.axis, &a.max_abs, &a.differing),
            (b.axis, &b.max_abs, &b.differing)
        );
        for (x, y) in a
            .error
            .iter()
            .chain(&a.energy)
            .zip(b.error.iter().chain(&b.energy))
        {
            close("a profile", *x, *y, *y);
        }
    }
}

/// What a loop over the elements says, summed without rounding.
fn agrees(got: &Totals, r: &[f64], c: &[f64]) {
    let both: Vec<(f64, f64)> = r
        .iter()
        .copied()
        .zip(c.iter().copied())
        .filter(|(r, c)| r.is_finite() && c.is_finite())
        .collect();
    let unequal = |(r, c): (&f64, &f64)| r != c && !(r.is_nan() && c.is_nan());
    assert_eq!(
        (got.count, got.compared),
        (r.len() as u64, both.len() as u64)
    );
    assert_eq!(
        got.differing,
        r.iter().zip(c).filter(|pair| unequal(*pair)).count() as u64
    );
    if both.is_empty() {
        assert_eq!(
            (got.max_abs, got.mean_abs, got.mse, got.cosine),
            (None, None, None, None)
        );
        return;
    }
    let mut sums: [Sum; 6] = Default::default();
    let (mut most, mut most_relative) = (0f64, 0f64);
    for (r, c) in &both {
        let apart = (c - r).abs();
        let relative = if apart == 0.0 {
            0.0
        } else {
            apart / r.abs().max(c.abs())
        };
        most = most.max(apart);
        most_relative = most_relative.max(relative);
        sums[0].add(apart);
        sums[1].add_product(apart, apart);
        sums[2].add(relative);
        sums[3].add_product(*r, *r);
        sums[4].add_product(*c, *c);
        sums[5].add_product(*r, *c);
    }
    let n = both.len() as f64;
    let [apart, squares, relative, energy, other, dot] = sums.map(|sum| sum.value());
    assert_eq!(
        (got.max_abs, got.max_rel),
        (Some(most), Some(most_relative))
    );
    close(
        "mean_abs",
        got.mean_abs.expect("some"),
        apart / n,
        apart / n,
    );
    close("mse", got.mse.expect("some"), squares / n, squares / n);
    close(
        "mean_rel",
        got.mean_rel.expect("some"),
        relative / n,
        relative / n,
    );
    if energy > 0.0 && got.differing > 0 {
        close(
            "rel_l2",
            got.rel_l2.expect("some"),
            (squares / energy).sqrt(),
            (squares / energy).sqrt(),
        );
    }
    if energy > 0.0 && other > 0.0 {
        close(
            "cosine",
            got.cosine.expect("some"),
            dot / energy.sqrt() / other.sqrt(),
            1.0,
        );
    }
    let first_bad = (0..r.len())
        .find(|i| unequal((&r[*i], &c[*i])) && !(r[*i].is_finite() && c[*i].is_finite()));
    let first_most = (0..r.len())
        .find(|i| r[*i].is_finite() && c[*i].is_finite() && (c[*i] - r[*i]).abs() == most);
    assert_eq!(got.worst.map(|w| w.at as usize), first_bad.or(first_most));
}

/// A small generator of its own, so that long tensors cost nothing.
struct Random(u64);

impl Random {
    /// Between -1 and 1.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

fn noisy(len: usize, seed: u64, noise: f64) -> (Vec<f32>, Vec<f32>) {
    let mut random = Random(seed);
    (0..len)
        .map(|i| {
            let r = random.unit();
            // Every third is equal, a few change their sign.
            let c = if i % 3 == 0 {
                r
            } else {
                r + noise * random.unit()
            };
            (r as f32, c as f32)
        })
        .unzip()
}

#[test]
fn no_length_loses_its_tail() {
    for len in (0..100).chain([4095, 4096, 4097, 8191, 65_535, 65_536, 65_537, 200_001]) {
        let (r, c) = noisy(len, 7, 1e-3);
        let pairs = [
            (f32s(&r), f32s(&c)),
            (bf16s(&r), bf16s(&c)),
            (f32s(&r), bf16s(&c)),
            (bf16s(&r), f32s(&c)),
            (
                f64s(&r.iter().map(|x| f64::from(*x).cbrt()).collect::<Vec<_>>()),
                f64s(&c.iter().map(|x| f64::from(*x).cbrt()).collect::<Vec<_>>()),
            ),
        ];
        for (r, c) in pairs {
            let fast = of(&r, &c);
            agrees(&fast, &values(&r), &values(&c));
            same(
                &fast,
                &totals(&Plain(&r), &Plain(&c), &ALL).expect("memory does not shrink"),
            );
        }
    }
}

#[test]
fn halves_are_read_as_the_plain_way_reads_them() {
    // Every bit pattern against its neighbour, NaN and infinities included, in one block; then the finite ones only.
    for mask in [u16::MAX, 0xbfff] {
        let bits: Vec<u16> = (0..=u16::MAX).map(|x| x & mask).collect();
        let bytes = |shift: usize| {
            bits.iter()
                .cycle()
                .skip(shift)
                .take(bits.len())
                .flat_map(|x| x.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        for dtype in [DType::F16, DType::Bf16] {
            let (r, c) = (view(dtype, bytes(0)), view(dtype, bytes(1)));
            same(
                &of(&r, &c),
                &totals(&Plain(&r), &Plain(&c), &ALL).expect("memory does not shrink"),
            );
        }
    }
}

#[test]
fn one_element_counts_wherever_it_stands() {
    for len in [1, 15, 16, 17, 33, 4096, 4111] {
        for at in (0..len).filter(|at| len < 40 || at % 97 == 0 || at + 20 > len) {
            let r: Vec<f32> = (0..len).map(|i| 1.0 + i as f32).collect();
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.5] {
                let mut c = r.clone();
                c[at] = bad;
                let got = of(&f32s(&r), &f32s(&c));
                assert_eq!(
                    (got.differing, got.worst.map(|w| w.at)),
                    (1, Some(at as u64)),
                    "{bad} at {at} of {len}"
                );
                assert_eq!(got.nonfinite_differing, u64::from(!bad.is_finite()));
                assert_eq!(got.candidate.nan, u64::from(bad.is_nan()));
                assert_eq!(got.candidate.inf, u64::from(bad.is_infinite()));
                assert_eq!(got.beyond, Some(1));
                if let Some(profile) = got.profiles.first() {
                    let expected: Vec<u64> = (0..len).map(|i| u64::from(i == at)).collect();
                    assert_eq!(profile.differing, expected);
                }
                // The same NaN on both sides is no difference.
                let twice = of(&f32s(&c), &f32s(&c));
                assert_eq!(
                    (twice.differing, twice.rel_l2, twice.beyond),
                    (0, Some(0.0), Some(0))
                );
            }
        }
    }
}

#[test]
fn sides_are_not_swapped() {
    let got = of(&f32s(&[1.0, 2.0, -4.0]), &f32s(&[3.0, 2.0, 0.0]));
    assert_eq!(
        got.worst.map(|w| (w.at, w.reference, w.candidate)),
        Some((2, -4.0, 0.0))
    );
    assert_eq!(
        (got.reference.min, got.candidate.min),
        (Some(-4.0), Some(0.0))
    );
    assert_eq!((got.reference.zero, got.candidate.zero), (0, 1));
    close(
        "rel_l2",
        got.rel_l2.expect("a norm"),
        (20f64 / 21.0).sqrt(),
        1.0,
    );
    assert_eq!(got.max_rel, Some(1.0));
    assert_eq!(got.max_abs, Some(4.0));
    // Nothing in the reference to measure against, everything in the candidate.
    let zero = of(&f32s(&[0.0, 0.0]), &f32s(&[1.0, 0.0]));
    assert_eq!(
        (zero.rel_l2, zero.cosine, zero.max_rel),
        (None, None, Some(1.0))
    );
}

#[test]
fn of_equal_differences_the_first_is_the_worst() {
    let mut c = vec![1f32; 70_000];
    for at in [5000, 4200, 69_999, 4201, 66_000, 9] {
        c[at] = 1.5;
    }
    let got = of(&f32s(&vec![1f32; 70_000]), &f32s(&c));
    assert_eq!(
        got.top.iter().map(|w| w.at).collect::<Vec<_>>(),
        [9, 4200, 4201, 5000, 66_000]
    );
    assert_eq!(got.worst.map(|w| w.at), Some(9));
    assert_eq!(got.magnitudes, [(-1, 6)]);
    let equal = of(&f32s(&c), &f32s(&c));
    assert_eq!(
        (equal.worst.map(|w| w.at), equal.top.len(), equal.cosine),
        (Some(0), 0, Some(1.0))
    );
}

#[test]
fn digits_do_not_depend_on_the_threads() {
    let (r, c) = noisy(1_000_003, 99, 1e-2);
    for (r, c) in [(f32s(&r), f32s(&c)), (bf16s(&r), f32s(&c))] {
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .expect("threads");
            pool.install(|| of(&r, &c))
        };
        let one = with(1);
        assert!(one.differing > 600_000);
        assert_eq!(one, with(2));
        assert_eq!(one, with(7));
    }
}

#[test]
fn a_giant_pair_can_be_measured_in_parts() {
    let (r, c) = noisy(300_000, 5, 1e-2);
    let (r, c) = (f32s(&r), f32s(&c));
    let part = |range| State::of_range(&r, &c, range, &ALL).expect("memory does not shrink");
    let parts = [
        part(0..65_536),
        part(65_536..262_144),
        part(262_144..300_000),
    ];
    let [a, b, c2] = parts;
    same(&a.merge(b).merge(c2).finish(), &of(&r, &c));
}

#[test]
fn a_part_is_written_and_read_again_to_the_last_bit() {
    let (mut r, mut c) = noisy(70_000, 9, 1e-2);
    (r[5], c[5], c[66_000], r[66_001]) = (f32::NAN, 1.0, f32::INFINITY, f32::NAN);
    let (r, c) = (f32s(&r), f32s(&c));
    for range in [0..65_536, 65_536..70_000, 0..0] {
        let state = State::of_range(&r, &c, range, &ALL).expect("memory does not shrink");
        let text = serde_json::to_string(&state).expect("a text");
        let again: State = serde_json::from_str(&text).expect("a state");
        // A NaN is not equal to itself, but is written the same.
        assert_eq!(serde_json::to_string(&again).expect("a text"), text);
        assert_eq!(
            format!("{:?}", again.finish()),
            format!("{:?}", state.finish())
        );
    }
}

/// What a loop for usual numbers might get wrong: every sort of neighbourhood, over several blocks.
#[test]
fn every_neighbourhood_is_measured_as_the_plain_way_does() {
    let relu = |x: f64| if x > 0.0 { x } else { 0.0 };
    type Sort = fn(f64, f64) -> (f64, f64);
    let sorts: [(&str, Sort); 9] = [
        ("signs differ", |a, b| (a, -b)),
        ("near, added", |a, b| (a, a + 1e-2 * b)),
        ("near, times", |a, b| (a, a * (1.0 + 1e-2 * b))),
        ("rounding", |a, b| (a, a * (1.0 + 1e-7 * b))),
        ("one side is 0", |a, b| {
            (
                if b > 0.3 { 0.0 } else { a.abs() },
                a.abs() * if b < -0.3 { 0.0 } else { 1.0 },
            )
        }),
        ("zeros of both signs", |a, b| {
            (
                if a > 0.0 { 0.0 } else { -0.0 },
                if b > 0.0 { -0.0 } else { 0.0 },
            )
        }),
        ("the same size, other signs", |a, b| (a, a * b.signum())),
        ("far apart", |a, b| (a * 1e-30, b * 1e30)),
        ("denormal", |a, b| (a * 1e-39, b * 1e-42)),
    ];
    for (seed, (name, sort)) in sorts.into_iter().enumerate() {
        for positive in [false, true] {
            let mut random = Random(seed as u64 + 77);
            let pairs = (0..3 * 4096 + 48).map(|_| sort(random.unit(), random.unit()));
            let (r, c): (Vec<f32>, Vec<f32>) = pairs
                .map(|(r, c)| {
                    if positive {
                        (relu(r) as f32, relu(c) as f32)
                    } else {
                        (r as f32, c as f32)
                    }
                })
                .unzip();
            for (r, c) in [(f32s(&r), f32s(&c)), (bf16s(&r), bf16s(&c))] {
                let fast = of(&r, &c);
                let plain = totals(&Plain(&r), &Plain(&c), &ALL).expect("memory does not shrink");
                println!("{name}, {}, positive {positive}", r.dtype());
                agrees(&fast, &values(&r), &values(&c));
                same(&fast, &plain);
            }
        }
    }
}

#[test]
fn someone_who_had_enough_gets_nothing() {
    let (r, c) = noisy(300_000, 5, 1e-2);
    let (r, c) = (f32s(&r), f32s(&c));
    let told = std::sync::atomic::AtomicU64::new(0);
    let go_on = |elements: u64| {
        told.fetch_add(elements, std::sync::atomic::Ordering::Relaxed);
        true
    };
    let whole = totals_watched(&r, &c, &ALL, &go_on).expect("memory does not shrink");
    assert_eq!(whole, Some(of(&r, &c)));
    assert_eq!(told.into_inner(), 300_000);
    assert_eq!(
        totals_watched(&r, &c, &ALL, &|_| false).expect("memory does not shrink"),
        None
    );
}

#[test]
fn rows_of_any_length_have_the_profiles_of_the_plain_way() {
    for dims in [
        [30, 4096],
        [17, 8192],
        [9, 20_000],
        [4000, 33],
        [2, 70_001],
        [70_000, 2],
        [64, 1040],
        [100, 1024],
        [40, 2880],
        [21, 5120],
    ] {
        let (mut r, mut c) = noisy((dims[0] * dims[1]) as usize, 11, 1e-2);
        // The first chunk is equal; then, the second time, one element is not finite.
        c[..65_536].copy_from_slice(&r[..65_536]);
        for bad in [1.0, f32::NAN] {
            r[66_000] *= bad;
            let shaped = |values: &[f32]| {
                let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                View::new(DType::F32, Shape::from(dims), bytes.into()).expect("whole")
            };
            let (r, c) = (shaped(&r), shaped(&c));
            let fast = of(&r, &c);
            assert_eq!(
                (fast.profiles.len(), fast.nonfinite_differing),
                (2, u64::from(bad.is_nan()))
            );
            same(
                &fast,
                &totals(&Plain(&r), &Plain(&c), &ALL).expect("memory does not shrink"),
            );
            // Both take some of the same ways; what all indices hold together is summed elsewhere.
            let norm = fast.reference.norm.expect("numbers");
            for profile in fast.profiles.iter().filter(|_| bad == 1.0) {
                close(
                    "all energy",
                    profile.energy.iter().sum(),
                    norm * norm,
                    norm * norm,
                );
                let errors = fast.mse.expect("numbers") * fast.compared as f64;
                close("all errors", profile.error.iter().sum(), errors, errors);
            }
        }
    }
}

#[test]
fn long_tensors_are_sampled_for_pictures_and_exact_in_totals() {
    // One column is worse than the others; one number is far off, in a row and a block that are not sampled.
    let dims = [2100u64, 1024];
    let (r, mut c) = noisy((dims[0] * dims[1]) as usize, 21, 1e-3);
    c.iter_mut().skip(77).step_by(1024).for_each(|x| *x += 0.5);
    c[1_000_001] += 3.0;
    let shaped = |values: &[f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        View::new(DType::F32, Shape::from(dims), bytes.into()).expect("whole")
    };
    let (left, right) = (shaped(&r), shaped(&c));
    let fast = of(&left, &right);
    agrees(&fast, &values(&left), &values(&right));
    same(
        &fast,
        &totals(&Plain(&left), &Plain(&right), &ALL).expect("memory does not shrink"),
    );
    assert_eq!(fast.worst.map(|w| w.at), Some(1_000_001));
    assert!(
        fast.profiles[0].max_abs[1_000_001 / 1024] > 2.0,
        "rows are not sampled"
    );
    let columns = &fast.profiles[1];
    assert_eq!((columns.error.len(), columns.differing[77]), (1024, 2100));
    assert!(
        (0..1024)
            .filter(|i| *i != 77)
            .all(|i| columns.error[i] * 1e4 < columns.error[77])
    );
    let near = |sampled: u64, exact: u64| sampled.abs_diff(exact) * 5 < exact;
    assert!(near(columns.differing.iter().sum(), fast.differing));
    assert!(near(
        fast.magnitudes.iter().map(|(_, count)| count).sum(),
        fast.differing
    ));
    assert!(near(
        fast.ulps.iter().map(|(_, count)| count).sum(),
        fast.differing
    ));
}

/// Blocks of close pairs have loops of their own, which give up where one pair is not; after many blocks a single one has to be noticed.
#[test]
fn close_pairs_and_what_is_among_them_are_measured_as_the_plain_way_does() {
    const LEN: usize = 65_536 + 2 * 4096 + 16;
    let data = |noise: f64, size: f64| {
        let mut random = Random(99);
        let pairs = (0..LEN).map(|_| {
            let r = random.unit() * random.unit();
            (
                (r as f32),
                (r + r * noise * random.unit() + size * random.unit()) as f32,
            )
        });
        pairs.unzip::<f32, f32, Vec<f32>, Vec<f32>>()
    };
    for (noise, size) in [(1e-2, 0.0), (1e-6, 0.0), (0.0, 1e-4), (0.3, 0.0)] {
        let (r, c) = data(noise, size);
        // Nothing; a zero on both sides; on one; another sign; a record; not finite, on either side; a 0 and a -0.
        let one = [
            None,
            Some((0.0, 0.0)),
            Some((0.25, 0.0)),
            Some((0.0, 0.5)),
            Some((-1e-3, 1e-3)),
            Some((0.4, 0.6)),
            Some((-0.6, -0.4)),
        ];
        let bad = [
            (f32::NAN, 1.0),
            (-1.0, f32::NAN),
            (f32::INFINITY, -2.0),
            (-2.0, f32::INFINITY),
            (0.0, -0.0),
        ]
        .map(Some);
        for (i, found) in one.into_iter().chain(bad).enumerate() {
            let (mut r, mut c) = (r.clone(), c.clone());
            if let Some((x, y)) = found {
                let at = [70_001, 65_536, LEN - 1][i % 3];
                (r[at], c[at]) = (x, y);
            }
            for (r, c) in [(f32s(&r), f32s(&c)), (bf16s(&r), bf16s(&c))] {
                same(
                    &of(&r, &c),
                    &totals(&Plain(&r), &Plain(&c), &ALL).expect("memory does not shrink"),
                );
            }
        }
    }
}

#[test]
fn strided_views_are_read_through() {
    let (r, c) = noisy(60 * 70, 3, 1e-2);
    let shaped = |values: &[f32], dims: [u64; 2]| {
        View::new(
            DType::F32,
            Shape::from(dims),
            values
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect::<Vec<u8>>()
                .into(),
        )
        .expect("whole")
    };
    let (r, c) = (shaped(&r, [60, 70]), shaped(&c, [60, 70]));
    let turned: Vec<f32> = values(&c.permute(&[1, 0]))
        .iter()
        .map(|x| *x as f32)
        .collect();
    let turned = shaped(&turned, [70, 60]).permute(&[1, 0]);
    same(&of(&r, &turned), &of(&r, &c));
}

#[test]
fn words_are_equal_or_they_are_not() {
    let words = |text: &str| view(DType::Bytes(3), text.as_bytes().to_vec());
    let got = of(&words("onetwosix"), &words("onetenten"));
    assert_eq!(
        (got.count, got.compared, got.differing, got.max_abs),
        (3, 3, 2, None)
    );
    assert_eq!((got.worst.map(|w| w.at), got.rel_l2), (Some(1), None));
    assert_eq!(got.profiles[0].differing, [0, 1, 1]);
    assert_eq!(of(&words("onetwo"), &words("onetwo")).rel_l2, Some(0.0));
    let error = totals(&words("one"), &f32s(&[1.0]), &ALL).expect_err("words are no numbers");
    assert_eq!(
        error.to_string(),
        "bytes24 and f32 cannot be compared element by element"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_floats_are_measured_exactly(
        pairs in prop::collection::vec((any::<u32>(), any::<u32>(), 0u32..4), 1..200),
        spread in prop_oneof![Just(0x7fff_ffffu32), Just(0x3fff_ffff)],
    ) {
        // Any bits at all (with the mask: none of them huge), the candidate often near the reference.
        let keep = spread | 0x8000_0000;
        let r: Vec<f32> = pairs.iter().map(|(r, _, _)| f32::from_bits(r & keep)).collect();
        let c: Vec<f32> = pairs
            .iter()
            .map(|(r, c, near)| f32::from_bits(match near { 0 => c & keep, 1 => r & keep, _ => (r & keep) ^ (c & 0xff) }))
            .collect();
        let (r, c) = (f32s(&r), f32s(&c));
        let got = of(&r, &c);
        agrees(&got, &values(&r), &values(&c));
        same(&got, &totals(&Plain(&r), &Plain(&c), &ALL).expect("memory does not shrink"));
    }

    #[test]
    fn doubles_of_any_range_are_the_same_both_ways(pairs in prop::collection::vec((any::<f64>(), any::<f64>(), any::<bool>()), 1..100)) {
        let r: Vec<f64> = pairs.iter().map(|(r, _, _)| *r).collect();
        let c: Vec<f64> = pairs.iter().map(|(r, c, near)| if *near { *r * 1.000_000_1 } else { *c }).collect();
        let (r, c) = (f64s(&r), f64s(&c));
        same(&of(&r, &c), &totals(&Plain(&r), &Plain(&c), &ALL).expect("memory does not shrink"));
    }
}

#[test]
fn a_whole_profile_has_what_a_sampled_one_leaves_out() {
    let (rows, columns) = (1500usize, 1200usize);
    let reference: Vec<f32> = (0..rows * columns).map(|i| (i % 97) as f32).collect();
    let mut candidate = reference.clone();
    candidate[701 * columns..702 * columns]
        .iter_mut()
        .for_each(|value| *value += 0.5);
    let shape = Shape::from([rows as u64, columns as u64]);
    let view = |values: &[f32]| {
        View::new(
            DType::F32,
            shape.clone(),
            values
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect::<Vec<u8>>()
                .into(),
        )
        .unwrap()
    };
    let options = Options {
        profiles: Profiling::Whole,
        top: 1,
        tolerance: None,
    };
    let found = totals(&view(&reference), &view(&candidate), &options).unwrap();
    let of_columns = found
        .profiles
        .iter()
        .find(|profile| profile.axis == 1)
        .unwrap();
    assert!(
        of_columns.differing.iter().all(|differing| *differing == 1)
            && of_columns.max_abs.iter().all(|most| *most == 0.5)
    );
}
