//! What [`super::light`] finds, with AVX-512: one loop, because there are registers for all of it.
//!
//! What only has to be found (a largest one that beats the largest so far) stays out of the loop wherever something cheaper rules it out: two
//! numbers of one sign differ by less than the larger of them, and by fewer steps than lie between 0 and the largest difference. So once a pair
//! of two signs was seen, only such pairs can be more; they are few, and remembered to be looked at afterwards ([`OPEN`]).
//!
//! No sum depends on what was asked: which way a block takes changes none of its digits.

use super::light::{self, Local, NARROW, Single, limit_of};
use crate::{
    kernel::{self, Sums},
    totals::{Asked, Cell, Light},
};
use std::arch::{asm, x86_64::*};

/// Elements of one turn of the loop.
pub(super) const GROUP: usize = 32;
/// Groups of two signs that are remembered. Where there are more, looking at all is as fast.
const FEW: usize = 32;
/// Elements of a row for which it pays to stop and sum it up.
const SHORT: usize = 256;
/// Bytes ahead of the loop that are asked for: the machine itself does not look beyond a page.
const AHEAD: usize = 2048;

/// Above any pair of two signs there is nothing to look for in others: only groups that have such pairs are remembered.
const OPEN: u8 = 4;
/// The same, and what is above the largest `|c - r| / max(|r|, rms)`.
const OPEN_LOCAL: u8 = 5;

/// What the loop sums, and finds, lane by lane.
struct Found {
    r: __m512d,
    c: __m512d,
    apart: __m512d,
    relative: __m512d,
    r_squares: __m512d,
    c_squares: __m512d,
    squares: __m512d,
    /// The largest difference where pairs are open; where they may be close, the largest one rounded to an f32.
    most: __m512d,
    rounded: __m512,
    bits: Bits,
    /// The sign is set where a relative difference is above the threshold, and where one is above both of [`Local`].
    over: __m512i,
    local: __m512i,
}

/// Groups with a pair of two signs: the first ones, and how many.
struct Opposite {
    groups: [u16; FEW],
    count: usize,
}

/// What the bits alone say: magnitudes of the reference, the least of both sides where pairs are open, steps where they are close.
#[derive(Clone, Copy)]
pub(super) struct Bits {
    largest: __m512i,
    least: __m512i,
    steps: __m512i,
    equal: u64,
}

impl Found {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn nothing() -> Self {
        let (zero, none) = (_mm512_setzero_pd(), _mm512_setzero_si512());
        // The largest magnitude there is, of 32 and of 16 bits.
        let bits = Bits {
            largest: none,
            least: _mm512_set1_epi32(0x7fff_7fff),
            steps: none,
            equal: 0,
        };
        Self {
            r: zero,
            c: zero,
            apart: zero,
            relative: zero,
            r_squares: zero,
            c_squares: zero,
            squares: zero,
            most: zero,
            rounded: _mm512_setzero_ps(),
            bits,
            over: none,
            local: none,
        }
    }
}

/// A type whose numbers an f32 holds, 32 at a time.
pub(super) trait Wide: Single {
    /// As f32, in an order that is the same for both sides.
    ///
    /// # Safety
    /// AVX-512, and [`GROUP`] elements to read.
    unsafe fn floats(at: *const u8) -> [__m512; 2];

    /// Which element `floats` puts there.
    fn place_of_float(lane: usize) -> usize {
        lane
    }

    /// Which element `doubles` puts there.
    fn place(lane: usize) -> usize {
        Self::place_of_float(lane)
    }

    /// The same as f64.
    ///
    /// # Safety
    /// As `floats`.
    unsafe fn doubles(at: *const u8, floats: [__m512; 2]) -> [__m512d; 4];

    /// Adds what the bits say. Whether a pair has two signs, where that is looked for.
    ///
    /// # Safety
    /// As `floats`, on both sides.
    unsafe fn look<const OPEN: bool>(r: *const u8, c: *const u8, bits: &mut Bits) -> bool;

    /// The bits of the largest and the least magnitude, and the most steps.
    ///
    /// # Safety
    /// AVX-512.
    unsafe fn finish(bits: &Bits) -> [u32; 3];

    /// The number that a magnitude's bits are.
    fn value(bits: u32) -> f64;

    /// Steps from 0 to a magnitude, or one or two more.
    fn steps_to(size: f64) -> u64;

    /// What is left to others: too few elements, or too many.
    fn otherwise(r: &[u8], c: &[u8], asked: &Asked) -> Option<Light>;
}

/// Eight f32 as f64. The compiler, left to itself, puts them together from single numbers.
///
/// # Safety
/// 32 bytes to read from `OFFSET` on.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn eight<const OFFSET: usize>(at: *const u8) -> __m512d {
    let out;
    // SAFETY: it reads what the caller says can be read, and changes one register.
    unsafe {
        asm!("vcvtps2pd {out}, ymmword ptr [{at} + {offset}]", out = out(zmm_reg) out, at = in(reg) at, offset = const OFFSET,
            options(pure, readonly, nostack, preserves_flags));
    }
    out
}

impl Wide for light::F32 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn floats(at: *const u8) -> [__m512; 2] {
        // SAFETY: 128 bytes can be read, says the caller.
        unsafe {
            [
                _mm512_loadu_ps(at.cast()),
                _mm512_loadu_ps(at.add(64).cast()),
            ]
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn doubles(at: *const u8, _: [__m512; 2]) -> [__m512d; 4] {
        // Loading them again is cheaper than taking them apart.
        // SAFETY: 128 bytes can be read, says the caller.
        unsafe {
            [
                eight::<0>(at),
                eight::<32>(at),
                eight::<64>(at),
                eight::<96>(at),
            ]
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,popcnt")]
    unsafe fn look<const OPEN: bool>(r: *const u8, c: *const u8, bits: &mut Bits) -> bool {
        let magnitude = _mm512_set1_epi32(i32::MAX);
        let mut signs = 0;
        for k in 0..2 {
            // SAFETY: 128 bytes can be read on both sides, says the caller.
            let (x, y) = unsafe {
                (
                    _mm512_loadu_si512(r.add(64 * k).cast()),
                    _mm512_loadu_si512(c.add(64 * k).cast()),
                )
            };
            bits.equal += u64::from(_mm512_cmpeq_epi32_mask(x, y).count_ones());
            let size = _mm512_and_si512(x, magnitude);
            bits.largest = _mm512_max_epi32(bits.largest, size);
            bits.least = _mm512_min_epi32(bits.least, size);
            if OPEN {
                bits.least = _mm512_min_epi32(bits.least, _mm512_and_si512(y, magnitude));
                signs |= _mm512_movepi32_mask(_mm512_xor_si512(x, y));
            } else {
                bits.steps = _mm512_max_epi32(bits.steps, _mm512_abs_epi32(_mm512_sub_epi32(x, y)));
            }
        }
        signs != 0
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn finish(bits: &Bits) -> [u32; 3] {
        [
            _mm512_reduce_max_epi32(bits.largest) as u32,
            _mm512_reduce_min_epi32(bits.least) as u32,
            _mm512_reduce_max_epi32(bits.steps) as u32,
        ]
    }

    fn value(bits: u32) -> f64 {
        f64::from(f32::from_bits(bits))
    }

    fn steps_to(size: f64) -> u64 {
        u64::from((size as f32).to_bits()) + 1
    }

    fn otherwise(r: &[u8], c: &[u8], asked: &Asked) -> Option<Light> {
        // SAFETY: whatever has AVX-512 has AVX2, and F16C.
        unsafe { light::light::<Self>(r, c, asked, &[], &mut Vec::new()) }
    }
}

/// 32 numbers in two vectors as f64.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn apart(floats: [__m512; 2]) -> [__m512d; 4] {
    let [a, b] = floats;
    [
        _mm512_castps512_ps256(a),
        _mm512_extractf32x8_ps::<1>(a),
        _mm512_castps512_ps256(b),
        _mm512_extractf32x8_ps::<1>(b),
    ]
    .map(|x| _mm512_cvtps_pd(x))
}

/// As [`Wide::look`], of numbers of 16 bits.
///
/// # Safety
/// 64 bytes to read on both sides.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
unsafe fn look16<const OPEN: bool>(r: *const u8, c: *const u8, bits: &mut Bits) -> bool {
    let magnitude = _mm512_set1_epi16(i16::MAX);
    // SAFETY: 64 bytes can be read on both sides, says the caller.
    let (x, y) = unsafe { (_mm512_loadu_si512(r.cast()), _mm512_loadu_si512(c.cast())) };
    bits.equal += u64::from(_mm512_cmpeq_epi16_mask(x, y).count_ones());
    let size = _mm512_and_si512(x, magnitude);
    bits.largest = _mm512_max_epi16(bits.largest, size);
    bits.least = _mm512_min_epi16(bits.least, size);
    if OPEN {
        bits.least = _mm512_min_epi16(bits.least, _mm512_and_si512(y, magnitude));
        return _mm512_movepi16_mask(_mm512_xor_si512(x, y)) != 0;
    }
    bits.steps = _mm512_max_epi16(bits.steps, _mm512_abs_epi16(_mm512_sub_epi16(x, y)));
    false
}

#[inline]
#[target_feature(enable = "avx512f")]
fn finish16(bits: &Bits) -> [u32; 3] {
    let halves = |x: __m512i| {
        [
            _mm512_and_si512(x, _mm512_set1_epi32(0xffff)),
            _mm512_srli_epi32::<16>(x),
        ]
    };
    let most = |x| {
        let [low, high] = halves(x);
        _mm512_reduce_max_epu32(_mm512_max_epu32(low, high))
    };
    let [low, high] = halves(bits.least);
    [
        most(bits.largest),
        _mm512_reduce_min_epu32(_mm512_min_epu32(low, high)),
        most(bits.steps),
    ]
}

/// What all types of 16 bits do alike.
macro_rules! of_16_bits {
    () => {
        #[inline]
        #[target_feature(enable = "avx512f,avx512dq")]
        unsafe fn doubles(_: *const u8, floats: [__m512; 2]) -> [__m512d; 4] {
            apart(floats)
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,popcnt")]
        unsafe fn look<const OPEN: bool>(r: *const u8, c: *const u8, bits: &mut Bits) -> bool {
            // SAFETY: 64 bytes can be read on both sides, says the caller.
            unsafe { look16::<OPEN>(r, c, bits) }
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        unsafe fn finish(bits: &Bits) -> [u32; 3] {
            finish16(bits)
        }
    };
}

impl Wide for light::Bf16 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn floats(at: *const u8) -> [__m512; 2] {
        // SAFETY: 64 bytes can be read, says the caller.
        let x = unsafe { _mm512_loadu_si512(at.cast()) };
        // A bf16 is the upper half of an f32: shifting takes those at even places there, masking leaves the odd ones.
        [
            _mm512_slli_epi32::<16>(x),
            _mm512_and_si512(x, _mm512_set1_epi32(0xffff_0000_u32 as i32)),
        ]
        .map(|x| _mm512_castsi512_ps(x))
    }

    fn place_of_float(lane: usize) -> usize {
        2 * (lane % 16) + lane / 16
    }

    of_16_bits!();

    fn value(bits: u32) -> f64 {
        kernel::bf16(bits as u16)
    }

    fn steps_to(size: f64) -> u64 {
        u64::from((size as f32).to_bits() >> 16) + 1
    }

    fn otherwise(r: &[u8], c: &[u8], asked: &Asked) -> Option<Light> {
        // SAFETY: whatever has AVX-512 has AVX2, and F16C.
        unsafe { light::light::<Self>(r, c, asked, &[], &mut Vec::new()) }
    }
}

impl Wide for light::F16 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn floats(at: *const u8) -> [__m512; 2] {
        // SAFETY: 64 bytes can be read, says the caller.
        unsafe {
            [
                _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())),
                _mm512_cvtph_ps(_mm256_loadu_si256(at.add(32).cast())),
            ]
        }
    }

    of_16_bits!();

    fn value(bits: u32) -> f64 {
        kernel::f16(bits as u16)
    }

    fn steps_to(size: f64) -> u64 {
        // From 2^-14 on, 1024 to a power of two; below, 2^-24 each.
        let power = ((size as f32).to_bits() >> 23).saturating_sub(127 - 14);
        (u64::from(power) << 10) + (size * 2f64.powi(24 - power as i32)).ceil() as u64 + 1
    }

    fn otherwise(_: &[u8], _: &[u8], _: &Asked) -> Option<Light> {
        None
    }
}

/// The sign is set where a difference of close numbers is above a threshold; see [`light::above`].
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn above<const HOW: u8>(
    threshold: __m512,
    local: Local,
    x: __m512,
    y: __m512,
    apart: __m512,
) -> __m512i {
    let bits = |x| _mm512_castps_si512(x);
    let size_of_r = _mm512_abs_ps(x);
    let size = if HOW == light::REFERENCE {
        size_of_r
    } else {
        _mm512_range_ps::<LARGER_MAGNITUDE>(x, y)
    };
    let over = bits(_mm512_fmsub_ps(threshold, size, apart));
    if HOW != light::EITHER {
        return over;
    }
    _mm512_or_si512(
        over,
        bits(_mm512_fmsub_ps(
            _mm512_set1_ps(local.of_number),
            size_of_r,
            apart,
        )),
    )
}

/// Of `vrange`: the one with the larger magnitude, without its sign.
const LARGER_MAGNITUDE: i32 = 0b1011;

/// The loop over a block of `rows`, of so many elements each, all multiples of [`GROUP`]. What a row sums up to goes to its cell, where there
/// are cells. With `GUARD` a pair of zeros has no relative difference; without, no sum of them.
///
/// # Safety
/// All elements of the rows to read on both sides.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
unsafe fn run<T: Wide, const HOW: u8, const GUARD: bool>(
    [r, c]: [*const u8; 2],
    rows: &[usize],
    limit: f32,
    local: Local,
    opposites: &mut Opposite,
    cells: &mut [Cell],
) -> Found {
    let mut done = 0;
    let limit = _mm512_set1_ps(limit);
    // Where this is the larger one, the product is not above the threshold of the rms, whatever was rounded.
    let rms = if local.of_number > 0.0 {
        local.of_rms / local.of_number * (1.0 - 4.0 * f32::EPSILON)
    } else {
        0.0
    };
    let (of_number, rms) = (_mm512_set1_ps(local.of_number), _mm512_set1_ps(rms));
    let Found {
        r: mut r_sum,
        c: mut c_sum,
        mut apart,
        mut relative,
        mut c_squares,
        mut bits,
        mut over,
        local: mut beyond,
        ..
    } = Found::nothing();
    // Only what a row is asked for begins anew with it, so that the rest stays in registers.
    let mut all = Found::nothing();
    for (nth, row) in rows.iter().enumerate() {
        let Found {
            mut r_squares,
            mut squares,
            mut most,
            mut rounded,
            ..
        } = Found::nothing();
        let equal = bits.equal;
        for i in (done..done + row).step_by(GROUP) {
            // SAFETY: a group from i lies inside both sides.
            let (ra, ca) = unsafe { (r.add(i * T::SIZE), c.add(i * T::SIZE)) };
            for line in (0..GROUP * T::SIZE).step_by(64) {
                // A prefetch never faults, wherever it points.
                _mm_prefetch::<_MM_HINT_T0>(ra.wrapping_add(AHEAD + line).cast());
                _mm_prefetch::<_MM_HINT_T0>(ca.wrapping_add(AHEAD + line).cast());
            }
            // SAFETY: as above.
            let (xs, ys) = unsafe { (T::floats(ra), T::floats(ca)) };
            if HOW >= OPEN {
                // SAFETY: as above.
                let opposite = unsafe { T::look::<true>(ra, ca, &mut bits) };
                opposites.groups[opposites.count.min(FEW - 1)] = (i / GROUP) as u16;
                opposites.count += usize::from(opposite);
                for (x, y) in xs.into_iter().zip(ys).filter(|_| HOW == OPEN_LOCAL) {
                    let apart = _mm512_abs_ps(_mm512_sub_ps(y, x));
                    let size = _mm512_range_ps::<LARGER_MAGNITUDE>(x, rms);
                    beyond = _mm512_or_si512(
                        beyond,
                        _mm512_castps_si512(_mm512_fmsub_ps(of_number, size, apart)),
                    );
                }
            } else {
                // SAFETY: as above.
                unsafe { T::look::<false>(ra, ca, &mut bits) };
                for (x, y) in xs.into_iter().zip(ys) {
                    let apart = _mm512_abs_ps(_mm512_sub_ps(y, x));
                    over = _mm512_or_si512(over, above::<HOW>(limit, local, x, y, apart));
                    rounded = _mm512_max_ps(rounded, apart);
                    if HOW == light::LOCAL {
                        let size = _mm512_range_ps::<LARGER_MAGNITUDE>(x, rms);
                        beyond = _mm512_or_si512(
                            beyond,
                            _mm512_castps_si512(_mm512_fmsub_ps(of_number, size, apart)),
                        );
                    }
                }
            }
            // SAFETY: as above.
            let (rs, cs) = unsafe { (T::doubles(ra, xs), T::doubles(ca, ys)) };
            // Four fractions as one, two by two: a division takes as long as all the rest. The range of f32, to the fourth, is inside that of f64.
            let mut over = [_mm512_setzero_pd(); 2];
            let mut under = over;
            for half in 0..2 {
                let mut d = [_mm512_setzero_pd(); 2];
                let mut size = d;
                for k in 0..2 {
                    let (x, y) = (rs[2 * half + k], cs[2 * half + k]);
                    r_sum = _mm512_add_pd(r_sum, x);
                    c_sum = _mm512_add_pd(c_sum, y);
                    r_squares = _mm512_fmadd_pd(x, x, r_squares);
                    c_squares = _mm512_fmadd_pd(y, y, c_squares);
                    d[k] = _mm512_abs_pd(_mm512_sub_pd(y, x));
                    apart = _mm512_add_pd(apart, d[k]);
                    squares = _mm512_fmadd_pd(d[k], d[k], squares);
                    if HOW >= OPEN {
                        most = _mm512_max_pd(most, d[k]);
                    }
                    size[k] = _mm512_range_pd::<LARGER_MAGNITUDE>(x, y);
                    if GUARD {
                        size[k] =
                            _mm512_max_pd(size[k], _mm512_set1_pd(f64::from(f32::from_bits(1))));
                    }
                }
                over[half] = _mm512_fmadd_pd(d[0], size[1], _mm512_mul_pd(d[1], size[0]));
                under[half] = _mm512_mul_pd(size[0], size[1]);
            }
            let sum = _mm512_fmadd_pd(over[0], under[1], _mm512_mul_pd(over[1], under[0]));
            relative = _mm512_add_pd(
                relative,
                _mm512_div_pd(sum, _mm512_mul_pd(under[0], under[1])),
            );
        }
        if let Some(cell) = cells.get_mut(nth) {
            let max_abs = if HOW >= OPEN {
                _mm512_reduce_max_pd(most)
            } else {
                f64::from(_mm512_reduce_max_ps(rounded))
            };
            *cell = Cell {
                error: total(squares),
                energy: total(r_squares),
                max_abs,
                differing: *row as u64 - (bits.equal - equal),
            };
        }
        all.r_squares = _mm512_add_pd(all.r_squares, r_squares);
        all.squares = _mm512_add_pd(all.squares, squares);
        all.most = _mm512_max_pd(all.most, most);
        all.rounded = _mm512_max_ps(all.rounded, rounded);
        done += row;
    }
    Found {
        r: r_sum,
        c: c_sum,
        apart,
        relative,
        c_squares,
        bits,
        over,
        local: beyond,
        ..all
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn total(x: __m512d) -> f64 {
    let halves = _mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd::<1>(x));
    super::pair::total(halves)
}

/// As [`light::light`]: everything about a block of finite numbers but its histograms. Where the block has several `rows`, of so many elements
/// each, and all are multiples of [`GROUP`], also what every row sums up to, unless they are too short for that.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
pub(super) fn light<T: Wide>(
    r: &[u8],
    c: &[u8],
    asked: &Asked,
    rows: &[usize],
    cells: &mut Vec<Cell>,
) -> Option<Light> {
    assert!(r.len() == c.len());
    cells.clear();
    let n = r.len() / T::SIZE;
    if n == 0 || !r.len().is_multiple_of(GROUP * T::SIZE) || n >= 1 << 20 {
        return T::otherwise(r, c, asked);
    }
    let best = asked.relative;
    let limit = limit_of::<T>(best);
    let tested = asked.rms > 0.0;
    let exact = T::EIGHT_BITS && asked.local < NARROW && asked.local_is_quotient;
    let local = Local::new(asked.local, asked.rms, exact);
    let how = match (best < 1.0, tested) {
        (true, _) => light::how::<T>(asked),
        (false, true) => OPEN_LOCAL,
        (false, false) => OPEN,
    };
    let limit = if how == light::REFERENCE {
        limit.min(local.of_number)
    } else {
        limit
    };
    let sides = [r.as_ptr(), c.as_ptr()];
    let mut opposites = Opposite {
        groups: [0; FEW],
        count: 0,
    };
    let by_row =
        (2..=n / SHORT).contains(&rows.len()) && rows.iter().all(|row| row.is_multiple_of(GROUP));
    assert!(
        !by_row || rows.iter().sum::<usize>() == n,
        "rows are the whole block"
    );
    let parts = if by_row { rows } else { &[n] };
    cells.resize(if by_row { rows.len() } else { 0 }, Cell::default());
    let mut whole = |guard: bool| {
        opposites.count = 0;
        macro_rules! run {
            ($guard:literal) => {
                // SAFETY: both sides have these elements.
                unsafe {
                    match how {
                        light::RELATIVE => run::<T, { light::RELATIVE }, $guard>(
                            sides,
                            parts,
                            limit,
                            local,
                            &mut opposites,
                            cells,
                        ),
                        light::REFERENCE => run::<T, { light::REFERENCE }, $guard>(
                            sides,
                            parts,
                            limit,
                            local,
                            &mut opposites,
                            cells,
                        ),
                        light::EITHER => run::<T, { light::EITHER }, $guard>(
                            sides,
                            parts,
                            limit,
                            local,
                            &mut opposites,
                            cells,
                        ),
                        light::LOCAL => run::<T, { light::LOCAL }, $guard>(
                            sides,
                            parts,
                            limit,
                            local,
                            &mut opposites,
                            cells,
                        ),
                        OPEN => run::<T, OPEN, $guard>(
                            sides,
                            parts,
                            limit,
                            local,
                            &mut opposites,
                            cells,
                        ),
                        _ => run::<T, OPEN_LOCAL, $guard>(
                            sides,
                            parts,
                            limit,
                            local,
                            &mut opposites,
                            cells,
                        ),
                    }
                }
            };
        }
        if guard { run!(true) } else { run!(false) }
    };
    let mut found = whole(asked.zeros);
    let (r_squares, c_squares) = (total(found.r_squares), total(found.c_squares));
    // The square of an f32 is far inside the range of f64.
    if !(r_squares.is_finite() && c_squares.is_finite()) {
        cells.clear();
        return None;
    }
    let mut relative = total(found.relative);
    if relative.is_nan() {
        // Pairs of zeros: 0 / 0.
        found = whole(true);
        relative = total(found.relative);
    }
    let any = |signs: __m512i| _mm512_movepi32_mask(signs) != 0;
    let is_over = how < OPEN && any(found.over);
    // Differences of numbers that close are exact in f32.
    let max_is_exact = how >= OPEN || (best < NARROW && !is_over);
    let max_abs = match how {
        OPEN.. => _mm512_reduce_max_pd(found.most),
        _ if max_is_exact => f64::from(_mm512_reduce_max_ps(found.rounded)),
        _ => light::most::<T>(r, c, _mm512_reduce_max_ps(found.rounded).to_bits()),
    };
    // SAFETY: AVX-512 was detected for this function.
    let [largest, least, close_steps] = unsafe { T::finish(&found.bits) };
    // No number of the candidate is beyond this, and none of the reference.
    let largest = T::value(largest) + max_abs;
    let (higher, max_steps) = if how >= OPEN {
        open::<T>(r, c, asked, (limit, max_abs), &opposites)
    } else if is_over {
        (true, light::steps::<T>(r, c))
    } else {
        (false, close_steps)
    };
    let (zeros, equal) = if least == 0 || is_over {
        light::zeros::<T>(r, c)
    } else {
        ([0; 2], found.bits.equal)
    };
    if least == 0 || is_over || !max_is_exact {
        let mut done = 0;
        for (cell, row) in cells.iter_mut().zip(rows) {
            let bytes = done * T::SIZE..(done + row) * T::SIZE;
            let (r, c) = (&r[bytes.clone()], &c[bytes]);
            cell.differing = *row as u64 - light::zeros::<T>(r, c).1;
            if !max_is_exact {
                cell.max_abs = light::most::<T>(r, c, (cell.max_abs as f32).to_bits());
            }
            done += row;
        }
    }
    let ends = |side: &[u8]| light::ends::<T>(side);
    let ends = if asked.within == 0.0 || largest > asked.within {
        [ends(r), ends(c)]
    } else {
        [(f64::INFINITY, f64::NEG_INFINITY); 2]
    };
    let rms = (r_squares / n as f64).sqrt();
    // Where no relative difference is above the best one, none is larger compared to the reference than this.
    let bound = if how < OPEN && !higher {
        best / (1.0 - best)
    } else {
        f64::INFINITY
    };
    let slack = if T::EIGHT_BITS {
        1.0 - 1.0 / (1u64 << 40) as f64
    } else {
        1.0
    };
    let close =
        max_abs > 0.0 && (rms == 0.0 || max_abs / rms > asked.local) && bound * slack > asked.local;
    let ruled_out = match how {
        OPEN => false,
        light::LOCAL | OPEN_LOCAL => !any(found.local) && rms >= asked.rms,
        _ => tested && !higher,
    };
    Some(Light {
        sums: [
            Sums {
                sum: total(found.r),
                squares: r_squares,
                min: ends[0].0,
                max: ends[0].1,
                zeros: zeros[0],
            },
            Sums {
                sum: total(found.c),
                squares: c_squares,
                min: ends[1].0,
                max: ends[1].1,
                zeros: zeros[1],
            },
        ],
        largest,
        apart: total(found.apart),
        squares: total(found.squares),
        relative,
        max_abs,
        higher,
        rms,
        close,
        over: close && !ruled_out && light::over::<T>(r, c, asked.local, rms, exact),
        differing: n as u64 - equal,
        max_steps,
        zeros: zeros.iter().all(|zeros| *zeros > 0),
    })
}

/// Of a block where a relative difference of at least 1 was seen before: whether one may be larger, and the most steps, where they are more
/// than those so far.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,popcnt")]
fn open<T: Wide>(
    r: &[u8],
    c: &[u8],
    asked: &Asked,
    (limit, max_abs): (f32, f64),
    opposites: &Opposite,
) -> (bool, u32) {
    // Steps are many where numbers are small: from a to a + d they are the most from 0 to d, from -a to d - a from -d/2 to d/2.
    let same_sign = T::steps_to(max_abs) > asked.steps;
    let two_signs = 2 * T::steps_to(max_abs / 2.0) > asked.steps;
    let some = opposites.count > 0;
    let steps = same_sign || (some && two_signs);
    if opposites.count > FEW || same_sign {
        return (
            some && light::higher::<T>(r, c, asked.relative, limit),
            if steps { light::steps::<T>(r, c) } else { 0 },
        );
    }
    let (mut higher, mut most) = (false, 0);
    for group in &opposites.groups[..opposites.count] {
        let place =
            usize::from(*group) * GROUP * T::SIZE..(usize::from(*group) + 1) * GROUP * T::SIZE;
        let (r, c) = (&r[place.clone()], &c[place]);
        higher = higher || light::higher::<T>(r, c, asked.relative, limit);
        if two_signs {
            most = most.max(light::steps::<T>(r, c));
        }
    }
    (higher, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Level;
    use proptest::prelude::*;

    /// What is asked of a block, and what it says.
    fn check<T: Wide>(
        r: &[f32],
        c: &[f32],
        asked: &Asked,
        bytes: fn(&[f32]) -> Vec<u8>,
        place: fn(f64) -> i64,
    ) -> Result<(), TestCaseError> {
        let (left, right) = (bytes(r), bytes(c));
        // The loops of AVX2 are held to the same, also on machines that would never take them.
        let avx2 = (Level::best() >= Level::Avx2)
            .then(|| T::otherwise(&left, &right, asked))
            .flatten();
        // Whole, and in two rows.
        let rows = [
            &[r.len()][..],
            &[
                r.len() / GROUP / 3 * GROUP,
                r.len() - r.len() / GROUP / 3 * GROUP,
            ],
        ];
        for rows in rows.into_iter().filter(|_| Level::best() == Level::Avx512) {
            let mut cells = Vec::new();
            // SAFETY: AVX-512 was detected, and whatever has it has AVX2.
            let found = unsafe { light::<T>(&left, &right, asked, rows, &mut cells) }
                .expect("finite numbers");
            holds(r, c, asked, &found, place)?;
            prop_assert_eq!(
                cells.len(),
                if rows.len() == 2 && r.len() >= 2 * SHORT {
                    2
                } else {
                    0
                }
            );
            let mut done = 0;
            for (cell, row) in cells.iter().zip(rows) {
                rows_up(&r[done..done + row], &c[done..done + row], cell)?;
                done += row;
            }
        }
        avx2.map_or(Ok(()), |found| holds(r, c, asked, &found, place))
    }

    fn rows_up(r: &[f32], c: &[f32], cell: &Cell) -> Result<(), TestCaseError> {
        let mut wanted = Cell::default();
        r.iter()
            .zip(c)
            .for_each(|(r, c)| wanted.insert(f64::from(*r), (f64::from(*c) - f64::from(*r)).abs()));
        prop_assert_eq!(
            (cell.max_abs, cell.differing),
            (wanted.max_abs, wanted.differing)
        );
        prop_assert!(
            (cell.error - wanted.error).abs() <= 1e-12 * wanted.error,
            "{} is not {}",
            cell.error,
            wanted.error
        );
        prop_assert!(
            (cell.energy - wanted.energy).abs() <= 1e-12 * wanted.energy,
            "{} is not {}",
            cell.energy,
            wanted.energy
        );
        Ok(())
    }

    fn holds(
        r: &[f32],
        c: &[f32],
        asked: &Asked,
        found: &Light,
        place: fn(f64) -> i64,
    ) -> Result<(), TestCaseError> {
        let pairs = || r.iter().zip(c).map(|(r, c)| (f64::from(*r), f64::from(*c)));
        let apart = |(r, c): (f64, f64)| (c - r).abs();
        let relative = |(r, c): (f64, f64)| {
            if r == c {
                0.0
            } else {
                (c - r).abs() / r.abs().max(c.abs())
            }
        };
        let most = |of: &dyn Fn((f64, f64)) -> f64| pairs().map(of).fold(0.0, f64::max);
        let near = |name: &str, found: f64, of: &dyn Fn((f64, f64)) -> f64| {
            let (sum, sizes) = pairs().map(of).fold((0.0, 0.0), |(sum, sizes), x: f64| {
                (sum + x, sizes + x.abs())
            });
            prop_assert!(
                (found - sum).abs() <= 1e-12 * sizes,
                "{name}: {found} is not {sum}"
            );
            Ok(())
        };
        near("reference", found.sums[0].sum, &|(r, _)| r)?;
        near("candidate", found.sums[1].sum, &|(_, c)| c)?;
        near("reference squared", found.sums[0].squares, &|(r, _)| r * r)?;
        near("candidate squared", found.sums[1].squares, &|(_, c)| c * c)?;
        near("apart", found.apart, &apart)?;
        near("apart squared", found.squares, &|pair| {
            apart(pair) * apart(pair)
        })?;
        near("relative", found.relative, &relative)?;
        prop_assert_eq!(found.max_abs, most(&apart));
        prop_assert_eq!(
            found.differing,
            pairs().filter(|(r, c)| r != c).count() as u64
        );
        let zeros =
            |of: &dyn Fn((f64, f64)) -> f64| pairs().map(of).filter(|x| *x == 0.0).count() as u64;
        prop_assert_eq!(
            found.sums.map(|side| side.zeros),
            [zeros(&|pair| pair.0), zeros(&|pair| pair.1)]
        );
        prop_assert!(found.largest >= most(&|(r, c)| r.abs().max(c.abs())));
        prop_assert!(
            found.higher || most(&relative) <= asked.relative,
            "{} is above {}",
            most(&relative),
            asked.relative
        );
        let local = most(&|pair| {
            if apart(pair) == 0.0 {
                0.0
            } else {
                apart(pair) / pair.0.abs().max(found.rms)
            }
        });
        prop_assert!(
            found.over || local <= asked.local,
            "{local} is above {}",
            asked.local
        );
        let steps = pairs()
            .map(|(r, c)| place(r).abs_diff(place(c)))
            .max()
            .unwrap_or(0);
        prop_assert!(
            u64::from(found.max_steps) == steps
                || (u64::from(found.max_steps) < steps && steps <= asked.steps)
        );
        if asked.within == 0.0 {
            let ends = |of: &dyn Fn((f64, f64)) -> f64| {
                pairs()
                    .map(of)
                    .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| {
                        (a.min(x), b.max(x))
                    })
            };
            prop_assert_eq!((found.sums[1].min, found.sums[1].max), ends(&|(_, c)| c));
        }
        Ok(())
    }

    fn signed(place: u32, x: f64) -> i64 {
        if x < 0.0 {
            -i64::from(place)
        } else {
            i64::from(place)
        }
    }

    proptest! {
        #[test]
        fn nothing_that_was_asked_for_is_missed(
            groups in prop_oneof![1usize..9, 16usize..24],
            seed in any::<u64>(),
            noise in prop::sample::select(vec![0.0f32, 1e-7, 1e-3, 0.3, 0.9, 3.0]),
            all in prop::sample::select(vec![0.0f32, 1e-4, 2.0]),
            gaps in prop::sample::select(vec![0u64, 1, 8]),
            best in prop::sample::select(vec![0.0, 1e-7, 1e-3, 0.4, 0.7, 1.0, 1.3, 2.0]),
            local in prop::sample::select(vec![0.0, 1e-6, 1e-3, 0.5, 5.0]),
            rms in prop::sample::select(vec![0.0, 0.4]),
            steps in prop::sample::select(vec![0u64, 3, 1 << 14, 0x7e00_0000, 1 << 31]),
            hints in any::<[bool; 2]>(),
        ) {
            let mut state = seed | 1;
            let mut random = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state >> 11
            };
            let mut side = |from: Option<&[f32]>| -> Vec<f32> {
                (0..GROUP * groups).map(|i| {
                    let x = (random() as f64 / (1u64 << 53) as f64 * 2.0 - 1.0) as f32;
                    let y = from.map_or(x, |from| from[i] * (1.0 + noise * x) + all * ((random() % 1000) as f32 / 1000.0 - 0.5));
                    if random() % 64 < gaps { [0.0, -0.0][random() as usize % 2] } else { y }
                }).collect()
            };
            let r = side(None);
            let c = side(Some(&r));
            let asked = Asked {
                relative: best, local, local_is_quotient: false, rms, within: if hints[0] { 0.0 } else { 1e9 }, steps, zeros: hints[1],
            };
            check::<light::F32>(&r, &c, &asked, |side| side.iter().flat_map(|x| x.to_le_bytes()).collect(), |x| signed((x.abs() as f32).to_bits(), x))?;
            let rounded = |to: fn(f32) -> f32| [&r, &c].map(|side| side.iter().map(|x| to(*x)).collect::<Vec<f32>>());
            let [r16, c16] = rounded(|x| f32::from_bits(x.to_bits() & 0xffff_0000));
            check::<light::Bf16>(&r16, &c16, &asked, |side| side.iter().flat_map(|x| x.to_le_bytes()[2..].to_vec()).collect(),
                |x| signed((x.abs() as f32).to_bits() >> 16, x))?;
            let [r16, c16] = rounded(|x| half::f16::from_f32(x).to_f32());
            check::<light::F16>(&r16, &c16, &asked, |side| side.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect(),
                |x| signed(u32::from(half::f16::from_f64(x.abs()).to_bits()), x))?;
        }
    }

    #[test]
    fn what_is_not_finite_is_left_to_others() {
        if Level::best() < Level::Avx512 {
            return;
        }
        let asked = Asked {
            relative: 1.0,
            local: 0.0,
            local_is_quotient: false,
            rms: 0.0,
            within: 0.0,
            steps: 0,
            zeros: false,
        };
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in [0, 17, 63] {
                let mut values = [1.5f32; 64];
                let good: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                values[place] = bad;
                let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                for (r, c) in [(&bytes, &good), (&good, &bytes), (&bytes, &bytes)] {
                    // SAFETY: this CPU has AVX-512.
                    let found = unsafe { light::<light::F32>(r, c, &asked, &[], &mut Vec::new()) };
                    assert_eq!(found, None, "{bad} at {place}");
                }
            }
        }
    }
}
