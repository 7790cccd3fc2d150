//! What one tensor's numbers are like: `stats(view)`, one pass, every core.
//!
//! - Sums, mean, std, norm, min and max are over the finite numbers. A NaN or an infinity is counted, never averaged.
//! - `mean = Σx / n`; `std = sqrt(Σ|x - mean|² / n)`, the population one; `norm = sqrt(Σ|x|²)`.
//! - What is undefined is `None`, never 0: the mean of nothing, the smallest of complex numbers, anything of a string.
//! - Integers and booleans (0 and 1) have exact sums and ends. Complex numbers count as one number each; one with a NaN part is a NaN, else
//!   one with an infinite part an infinity (a positive one: it has no sign).
//! - Sums are within `1e-12 · Σ|x|`, in practice within a few 1e-16. Squares beyond the range of `f64` are measured scaled, so std and norm
//!   are right for numbers up to the largest; [`Stats::squares`] says so. A sum or a norm that is itself beyond `f64` is infinite.
//!
//! Work is split every `CHUNK` elements, each chunk every `BLOCK`, and merged left to right, so 1 and 64 threads print the same digits.
//! None of this depends on the order of the elements, so a view is read in the order of its memory, and what a stride of 0 repeats
//! is read once: a transposed tensor has the digits of the original, and 10^12 copies of one number take no time.

use crate::{
    double::Double,
    kernel::{Shifted, Sums},
    moments::{LARGE, Moments, SMALL, Scale},
    simd::{self, ints::Whole},
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use twinscope_tensor::{DType, Kind, Packing, Quant, ReadError, View, decode, slice::Cut};

/// What one thread takes at a time. A multiple of every packing's unit.
const CHUNK: usize = 1 << 17;
/// What one kernel call takes: 32 KiB of bf16, 64 KiB of f32, still close by should they be needed again.
const BLOCK: usize = 1 << 14;
/// Chunks whose states are kept before they are merged: 2 MiB of them at most, however long the tensor.
const SPAN: usize = 1 << 14;

/// A number as exact as its kind allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i128),
    Float(f64),
    Complex(f64, f64),
}

/// How many numbers of each sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub finite: u64,
    pub nan: u64,
    pub pos_inf: u64,
    pub neg_inf: u64,
    pub zeros: u64,
}

/// Whether `Σx²` can be written as an `f64`. Where it cannot, std and norm are right all the same: they are measured scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squares {
    InRange,
    Overflowed,
    Underflowed,
}

/// The numbers of one tensor, summed up.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    count: u64,
    of: Of,
}

#[derive(Clone, Debug, PartialEq)]
enum Of {
    Opaque,
    Real(Real),
    Ints(Ints),
    Complex(Complex),
}

/// Measures a tensor on rayon's current threads.
pub fn stats(view: &View) -> Result<Stats, ReadError> {
    let count = view.len()
        * if view.dtype() == DType::F4E2M1FnX2 {
            2
        } else {
            1
        };
    let (view, times) = in_memory_order(view);
    let of = match view.dtype().kind() {
        Kind::Opaque => Of::Opaque,
        Kind::Bool | Kind::Int => Of::Ints(measure(&view, Ints::of_block).repeated(times)),
        Kind::Complex => Of::Complex(measure(&view, Complex::of_block).repeated(times)),
        Kind::Float | Kind::Quantized => Of::Real(measure(&view, Real::of_block).repeated(times)),
    };
    view.check()?;
    Ok(Stats { count, of })
}

impl Stats {
    /// How many numbers: elements, but both halves of `f4_e2m1fn_x2`.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// `None` when the elements are not numbers.
    pub fn counts(&self) -> Option<Counts> {
        match &self.of {
            Of::Opaque => None,
            Of::Real(real) => Some(Counts {
                finite: real.moments.n,
                ..real.counts
            }),
            Of::Ints(ints) => Some(Counts {
                finite: ints.moments.n,
                zeros: ints.zeros,
                ..Counts::default()
            }),
            Of::Complex(complex) => Some(Counts {
                finite: complex.re.n,
                ..complex.counts
            }),
        }
    }

    /// `None`, here and below, when no number is finite.
    pub fn mean(&self) -> Option<Number> {
        match &self.of {
            Of::Opaque => None,
            Of::Real(real) => real.moments.mean().map(Number::Float),
            Of::Ints(ints) => ints.any(Number::Float(
                Double::from(ints.sum).over(ints.moments.n as f64).value(),
            )),
            Of::Complex(complex) => Some(Number::Complex(complex.re.mean()?, complex.im.mean()?)),
        }
    }

    /// Of the population: `sqrt(Σ|x - mean|² / n)`.
    pub fn std(&self) -> Option<f64> {
        match &self.of {
            Of::Opaque => None,
            Of::Real(Real { moments, .. }) | Of::Ints(Ints { moments, .. }) => moments.std(),
            Of::Complex(complex) => complex.re.joint_std(&complex.im),
        }
    }

    /// `sqrt(Σ|x|²)`.
    pub fn norm(&self) -> Option<f64> {
        self.moduli()?.norm()
    }

    /// Complex numbers have no order, so no smallest and no largest.
    pub fn min(&self) -> Option<Number> {
        match &self.of {
            Of::Opaque | Of::Complex(_) => None,
            Of::Real(real) => real.any(real.min),
            Of::Ints(ints) => ints.any(Number::Int(ints.min)),
        }
    }

    pub fn max(&self) -> Option<Number> {
        match &self.of {
            Of::Opaque | Of::Complex(_) => None,
            Of::Real(real) => real.any(real.max),
            Of::Ints(ints) => ints.any(Number::Int(ints.max)),
        }
    }

    /// The largest absolute value.
    pub fn max_abs(&self) -> Option<Number> {
        match &self.of {
            Of::Opaque => None,
            Of::Real(real) => real.any(real.max.max(-real.min)),
            Of::Ints(ints) => ints.any(Number::Int(ints.max.max(-ints.min))),
            Of::Complex(complex) => (complex.re.n > 0).then_some(Number::Float(complex.max_abs)),
        }
    }

    pub fn sum(&self) -> Option<Number> {
        match &self.of {
            Of::Opaque => None,
            Of::Real(real) => real.moments.sum().map(Number::Float),
            Of::Ints(ints) => ints.any(Number::Int(ints.sum)),
            Of::Complex(complex) => Some(Number::Complex(complex.re.sum()?, complex.im.sum()?)),
        }
    }

    /// Whether the squares had to be scaled. `None` when there are none.
    pub fn squares(&self) -> Option<Squares> {
        let moduli = self.moduli().filter(|moduli| moduli.n > 0)?;
        let squares = moduli.squares();
        Some(if squares.is_infinite() {
            Squares::Overflowed
        } else if squares < f64::MIN_POSITIVE && moduli.norm()? > 0.0 {
            Squares::Underflowed
        } else {
            Squares::InRange
        })
    }

    fn moduli(&self) -> Option<&Moments> {
        match &self.of {
            Of::Opaque => None,
            Of::Real(Real { moments, .. }) | Of::Ints(Ints { moments, .. }) => Some(moments),
            Of::Complex(complex) => Some(&complex.moduli),
        }
    }
}

/// The view with its elements in the order of memory and without what a stride of 0 repeats, and how often that was.
fn in_memory_order(view: &View) -> (View, u64) {
    // Packed types have no strides.
    if !matches!(view.dtype().packing(), Packing::Bytes(_)) || view.is_empty() {
        return (view.clone(), 1);
    }
    let scaled = match view.quant() {
        Some(Quant::Channel { axis, .. }) => Some(*axis),
        _ => None,
    };
    let mut times = 1;
    let dims = view.shape().dims().iter().zip(view.strides());
    let cuts: Vec<Cut> = dims
        .enumerate()
        .map(|(axis, (dim, stride))| match stride {
            0 if scaled != Some(axis) => {
                times *= dim;
                Cut::Index(0)
            }
            _ if *stride < 0 => Cut::Range {
                start: dim - 1,
                step: -1,
                len: *dim,
            },
            _ => Cut::Range {
                start: 0,
                step: 1,
                len: *dim,
            },
        })
        .collect();
    let view = view.slice(&cuts);
    let mut order: Vec<usize> = (0..view.shape().rank()).collect();
    order.sort_by_key(|axis| std::cmp::Reverse(view.strides()[*axis]));
    (view.permute(&order), times)
}

/// What a thread keeps from block to block.
#[derive(Debug, Default)]
struct Scratch {
    bytes: Vec<u8>,
    values: Vec<f64>,
    more: Vec<f64>,
}

/// A state over a run of elements, with `merge(a, default()) == a`.
trait State: Default + Send {
    /// `other` comes after `self`.
    fn merge(self, other: Self) -> Self;
}

/// `of_block(view, start, count, scratch)` for every block, merged in order.
fn measure<S: State>(
    view: &View,
    of_block: impl Fn(&View, u64, usize, &mut Scratch) -> S + Sync,
) -> S {
    let of_chunk = |scratch: &mut Scratch, chunk: u64| {
        let start = chunk * CHUNK as u64;
        let end = view.len().min(start + CHUNK as u64);
        tree(start, end, &mut |start, count| {
            of_block(view, start, count, scratch)
        })
    };
    let chunks = view.len().div_ceil(CHUNK as u64);
    if chunks <= 1 {
        return if chunks == 0 {
            S::default()
        } else {
            of_chunk(&mut Scratch::default(), 0)
        };
    }
    let mut whole = S::default();
    for first in (0..chunks).step_by(SPAN) {
        let span = (chunks - first).min(SPAN as u64) as usize;
        let parts: Vec<S> = (0..span)
            .into_par_iter()
            .map_init(Scratch::default, |scratch, i| {
                of_chunk(scratch, first + i as u64)
            })
            .collect();
        whole = parts.into_iter().fold(whole, S::merge);
    }
    whole
}

/// Blocks merged two by two: fewer roundings than one after the other, and equal lengths merge quickly.
fn tree<S: State>(start: u64, end: u64, of_block: &mut impl FnMut(u64, usize) -> S) -> S {
    let len = end - start;
    if len <= BLOCK as u64 {
        return of_block(start, len as usize);
    }
    // The left side is the largest power of two that leaves something: a multiple of blocks.
    let middle = start + len.next_power_of_two() / 2;
    tree(start, middle, of_block).merge(tree(middle, end, of_block))
}

/// Floats, and codes that stand for them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Real {
    pub(crate) counts: Counts,
    pub(crate) moments: Moments,
    #[serde(with = "crate::exact")]
    pub(crate) min: f64,
    #[serde(with = "crate::exact")]
    pub(crate) max: f64,
}

impl Default for Real {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            moments: Moments::default(),
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }
}

impl State for Real {
    fn merge(self, other: Self) -> Self {
        Self {
            counts: self.counts.plus(other.counts),
            moments: self.moments.merge(other.moments),
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

impl Real {
    fn of_block(
        view: &View,
        start: u64,
        count: usize,
        Scratch {
            bytes,
            values,
            more,
        }: &mut Scratch,
    ) -> Self {
        let fast = match view.dtype() {
            DType::F32 => {
                let bytes = view.chunk(start, count, bytes);
                Self::of_sums(
                    count,
                    &simd::f32(bytes),
                    Some(|mean| simd::f32_shifted(bytes, mean)),
                )
            }
            DType::F64 => {
                let bytes = view.chunk(start, count, bytes);
                Self::of_sums(
                    count,
                    &simd::f64(bytes),
                    Some(|mean| simd::f64_shifted(bytes, mean)),
                )
            }
            DType::Bf16 => Self::of_sums(count, &simd::bf16(view.chunk(start, count, bytes)), ONCE),
            DType::F16 => Self::of_sums(count, &simd::f16(view.chunk(start, count, bytes)), ONCE),
            _ => None,
        };
        fast.unwrap_or_else(|| {
            read(view, start, count, bytes, values);
            Self::of_values(values, more)
        })
    }

    /// `None` when some number was not finite, or so large or so small that the block must be scaled.
    #[inline]
    pub(crate) fn of_sums(
        count: usize,
        sums: &Sums,
        again: Option<impl FnOnce(f64) -> Shifted>,
    ) -> Option<Self> {
        let max_abs = sums.max.max(-sums.min);
        let usual =
            sums.squares.is_finite() && (max_abs == 0.0 || (SMALL..=LARGE).contains(&max_abs));
        usual.then(|| Self::of_usual(count, sums, again))
    }

    /// Of numbers that are known to be finite and neither so large nor so small that they must be scaled.
    #[inline]
    pub(crate) fn of_usual(
        count: usize,
        sums: &Sums,
        again: Option<impl FnOnce(f64) -> Shifted>,
    ) -> Self {
        Self {
            counts: Counts {
                zeros: sums.zeros,
                ..Counts::default()
            },
            moments: Moments::of_block(count, sums, Scale::One, again),
            min: sums.min,
            max: sums.max,
        }
    }

    /// `other` comes after `self`.
    pub(crate) fn add(&mut self, other: &Self) {
        *self = self.merge(*other);
    }

    /// Any numbers at all.
    pub(crate) fn of_values(values: &mut Vec<f64>, scaled: &mut Vec<f64>) -> Self {
        let mut counts = Counts::default();
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        values.retain(|x| {
            if x.is_finite() {
                counts.zeros += u64::from(*x == 0.0);
                (min, max) = (min.min(*x + 0.0), max.max(*x + 0.0));
            } else {
                counts.not_finite(*x);
            }
            x.is_finite()
        });
        let scale = Scale::for_largest(max.max(-min));
        scaled.clear();
        scaled.extend(values.iter().map(|x| scale.divide(*x)));
        Self {
            counts,
            moments: moments_of(scaled, scale),
            min,
            max,
        }
    }

    fn any(&self, number: f64) -> Option<Number> {
        (self.moments.n > 0).then_some(Number::Float(number))
    }

    fn repeated(self, times: u64) -> Self {
        Self {
            counts: self.counts.repeated(times),
            moments: self.moments.repeated(times),
            ..self
        }
    }
}

/// For types whose numbers never need a second pass.
pub(crate) const ONCE: Option<fn(f64) -> Shifted> = None;

/// Of finite numbers that are scaled already.
fn moments_of(values: &[f64], scale: Scale) -> Moments {
    let bytes = bytes_of(values);
    Moments::of_block(
        values.len(),
        &simd::f64(&bytes),
        scale,
        Some(|mean| simd::f64_shifted(&bytes, mean)),
    )
}

/// Little-endian bytes of numbers, the numbers themselves where the machine keeps them so.
pub(crate) fn bytes_of(values: &[f64]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        // SAFETY: the same memory as bytes, which need no alignment and have no invalid values.
        Cow::Borrowed(unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values))
        })
    } else {
        Cow::Owned(values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }
}

impl Counts {
    fn not_finite(&mut self, x: f64) {
        if x.is_nan() {
            self.nan += 1;
        } else if x > 0.0 {
            self.pos_inf += 1;
        } else {
            self.neg_inf += 1;
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            finite: self.finite + other.finite,
            nan: self.nan + other.nan,
            pos_inf: self.pos_inf + other.pos_inf,
            neg_inf: self.neg_inf + other.neg_inf,
            zeros: self.zeros + other.zeros,
        }
    }

    fn repeated(self, times: u64) -> Self {
        Self {
            finite: self.finite * times,
            nan: self.nan * times,
            pos_inf: self.pos_inf * times,
            neg_inf: self.neg_inf * times,
            zeros: self.zeros * times,
        }
    }
}

/// Integers and booleans. The spread is measured in `f64`, of exact differences.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ints {
    zeros: u64,
    moments: Moments,
    min: i128,
    max: i128,
    sum: i128,
}

impl Default for Ints {
    fn default() -> Self {
        Self {
            zeros: 0,
            moments: Moments::default(),
            min: i128::MAX,
            max: i128::MIN,
            sum: 0,
        }
    }
}

impl State for Ints {
    fn merge(self, other: Self) -> Self {
        Self {
            zeros: self.zeros + other.zeros,
            moments: self.moments.merge(other.moments),
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            sum: self.sum + other.sum,
        }
    }
}

/// One block of integers of one width; 16,384 of them fit the sum, which is twice as wide.
macro_rules! ints {
    ($wide:ty, $values:expr, $differences:expr) => {{
        let values = $values;
        let first: $wide = values.clone().next().unwrap_or(0);
        let (mut zeros, mut min, mut max, mut sum) = (0, first, first, 0);
        $differences.clear();
        $differences.extend(values.map(|x| {
            zeros += u64::from(x == 0);
            min = min.min(x);
            max = max.max(x);
            sum += x;
            (x - first) as f64
        }));
        (zeros, i128::from(first), [min, max, sum].map(i128::from))
    }};
}

impl Ints {
    fn of_block(
        view: &View,
        start: u64,
        count: usize,
        Scratch {
            bytes,
            values,
            more,
        }: &mut Scratch,
    ) -> Self {
        let small: Option<fn(&[u8]) -> Whole> = match view.dtype() {
            DType::Bool => Some(simd::ints::bools),
            DType::U8 => Some(simd::ints::u8s),
            DType::I8 => Some(simd::ints::i8s),
            DType::U16 => Some(simd::ints::u16s),
            DType::I16 => Some(simd::ints::i16s),
            DType::U32 => Some(simd::ints::u32s),
            DType::I32 => Some(simd::ints::i32s),
            _ => None,
        };
        if let Some(small) = small.filter(|_| count > 0) {
            let Whole {
                zeros,
                min,
                max,
                sum,
                squares,
            } = small(view.chunk(start, count, bytes));
            let moments = Moments::of_integers(count, sum, squares);
            return Self {
                zeros,
                moments,
                min: min.into(),
                max: max.into(),
                sum: sum.into(),
            };
        }
        macro_rules! fixed {
            ($int:ty) => {{
                let bytes = view.chunk(start, count, bytes);
                ints!(
                    i128,
                    bytes
                        .as_chunks()
                        .0
                        .iter()
                        .map(|x| i128::from(<$int>::from_le_bytes(*x))),
                    values
                )
            }};
        }
        let (zeros, first, [min, max, sum]) = match view.dtype() {
            DType::U64 => fixed!(u64),
            DType::I64 => fixed!(i64),
            _ => {
                read(view, start, count, bytes, more);
                ints!(i64, more.iter().map(|x| *x as i64), values)
            }
        };
        let differences = simd::f64_shifted(&bytes_of(values), 0.0);
        let moments = Moments::of_differences(count, Double::from(first), differences, Scale::One);
        Self {
            zeros,
            moments,
            min,
            max,
            sum,
        }
    }

    fn any(&self, number: Number) -> Option<Number> {
        (self.moments.n > 0).then_some(number)
    }

    fn repeated(self, times: u64) -> Self {
        Self {
            zeros: self.zeros * times,
            moments: self.moments.repeated(times),
            sum: self.sum * i128::from(times),
            ..self
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Complex {
    pub(crate) counts: Counts,
    pub(crate) re: Moments,
    pub(crate) im: Moments,
    pub(crate) moduli: Moments,
    #[serde(with = "crate::exact")]
    max_abs: f64,
}

impl State for Complex {
    fn merge(self, other: Self) -> Self {
        Self {
            counts: self.counts.plus(other.counts),
            re: self.re.merge(other.re),
            im: self.im.merge(other.im),
            moduli: self.moduli.merge(other.moduli),
            max_abs: self.max_abs.max(other.max_abs),
        }
    }
}

impl Complex {
    fn of_block(
        view: &View,
        start: u64,
        count: usize,
        Scratch {
            bytes,
            values,
            more,
        }: &mut Scratch,
    ) -> Self {
        read(view, start, count, bytes, values);
        Self::of_values(values, more)
    }

    pub(crate) fn merged(self, other: Self) -> Self {
        self.merge(other)
    }

    /// Of real and imaginary parts in turn.
    pub(crate) fn of_values(values: &[f64], more: &mut Vec<f64>) -> Self {
        let mut counts = Counts::default();
        let mut largest: f64 = 0.0;
        let pairs = values.as_chunks::<2>().0;
        let finite = |[re, im]: &&[f64; 2]| re.is_finite() && im.is_finite();
        for [re, im] in pairs {
            if re.is_nan() || im.is_nan() {
                counts.nan += 1;
            } else if re.is_infinite() || im.is_infinite() {
                counts.pos_inf += 1;
            } else {
                counts.zeros += u64::from(*re == 0.0 && *im == 0.0);
                largest = largest.max(re.abs()).max(im.abs());
            }
        }
        let scale = Scale::for_largest(largest);
        let mut moments = |part: &dyn Fn(f64, f64) -> f64| {
            more.clear();
            more.extend(
                pairs
                    .iter()
                    .filter(finite)
                    .map(|[re, im]| part(scale.divide(*re), scale.divide(*im))),
            );
            moments_of(more, scale)
        };
        let (re, im) = (moments(&|re, _| re), moments(&|_, im| im));
        let moduli = moments(&f64::hypot);
        let max_abs = scale.multiply(more.iter().copied().fold(0.0, f64::max));
        Self {
            counts,
            re,
            im,
            moduli,
            max_abs,
        }
    }

    fn repeated(self, times: u64) -> Self {
        Self {
            counts: self.counts.repeated(times),
            re: self.re.repeated(times),
            im: self.im.repeated(times),
            moduli: self.moduli.repeated(times),
            ..self
        }
    }
}

/// The numbers of a block of any type that has some.
fn read(view: &View, start: u64, count: usize, bytes: &mut Vec<u8>, values: &mut Vec<f64>) {
    let any = decode::f64_values(view, start, count, bytes, values);
    debug_assert!(any, "{} has a kind that has numbers", view.dtype());
}
