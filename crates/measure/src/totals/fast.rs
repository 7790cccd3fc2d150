//! Blocks of common floats that hold nothing unusual: the way of nearly all bytes.
//!
//! A block whose bytes are equal needs only the statistics of one side (the loops of [`crate::stats`]). f32 and bf16 are read once for
//! everything that is a sum ([`Light`]), and again for a largest one that may be the largest so far, and for the histograms where those are
//! counted. Other types are read three times while they are close by. What is not finite, or so large or small that it must be scaled,
//! is left to the plain way.

use super::{
    Worst,
    histogram::{exponent, weight},
    profile::{Cell, Profiles},
    scaled::Scaled,
    state::{Side, State, Task},
};
use crate::{
    kernel::{self, Sums},
    moments::{LARGE, SMALL, Scale},
    simd::{self, Pair},
    stats::{ONCE, Real},
};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use twinscope_tensor::DType;

/// What the loop over a block must know of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Of the reference in this block.
    pub(crate) rms: f64,
    /// The largest `max_local` so far.
    pub(crate) limit: f64,
    /// Codes of magnitudes are biased exponents above this one.
    pub(crate) base: u16,
}

/// What the loop over a block finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block {
    pub(crate) apart: f64,
    pub(crate) squares: f64,
    pub(crate) relative: f64,
    pub(crate) max_abs: f64,
    pub(crate) max_relative: f64,
    /// Whether some element may be above the limit.
    pub(crate) local: bool,
    pub(crate) differing: u64,
    pub(crate) max_steps: u32,
}

/// What is known before a block of f32 or bf16 is looked at: what a block does not beat need not be known exactly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The largest relative difference so far.
    pub(crate) relative: f64,
    /// The largest `max_local` so far.
    pub(crate) local: f64,
    /// Whether that is a quotient of two numbers of 8 bits.
    pub(crate) local_is_quotient: bool,
    /// About the rms of the reference, 0 when it is not worth knowing.
    pub(crate) rms: f64,
    /// Both sides have numbers of both signs at least this large; 0 when nothing is known.
    pub(crate) within: f64,
    /// The most steps of the type between two numbers so far.
    pub(crate) steps: u64,
    /// Whether both sides are likely to have zeros.
    pub(crate) zeros: bool,
}

/// What is found in a block of finite f32 or bf16: everything but the histograms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Light {
    /// Of the reference and the candidate. The ends are infinite, and the least one above the largest, when no number is beyond [`Asked::within`].
    pub(crate) sums: [Sums; 2],
    /// The largest magnitude of both sides, or a little more.
    pub(crate) largest: f64,
    pub(crate) apart: f64,
    pub(crate) squares: f64,
    pub(crate) relative: f64,
    pub(crate) max_abs: f64,
    /// Whether a relative difference may be above [`Asked::relative`]. None is where this is false.
    pub(crate) higher: bool,
    /// Of the reference.
    pub(crate) rms: f64,
    /// Whether bounds alone do not say that no `|c - r| / max(|r|, rms)` is above [`Asked::local`],
    pub(crate) close: bool,
    /// and whether some may be.
    pub(crate) over: bool,
    pub(crate) differing: u64,
    /// May be less where it is not above [`Asked::steps`].
    pub(crate) max_steps: u32,
    /// Whether both sides have zeros.
    pub(crate) zeros: bool,
}

/// Rows of a chunk that all have the same columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) r: &'a [u8],
    pub(crate) c: &'a [u8],
    pub(crate) rows: usize,
    /// Elements from one row to the next.
    pub(crate) row: usize,
}

/// Both sides' bytes, and how many an element has.
pub(crate) type Sides<'a> = (&'a [u8], &'a [u8], [usize; 2]);

/// What threads tell each other so that they need not look twice. Only ever a reason to skip what could not count: no digit depends on it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The largest differences with their places, largest and first ones first, as many as are kept.
    largest: Mutex<Vec<(f64, u64)>>,
    /// The last of them: a difference below this is not among the worst,
    least: AtomicU64,
    /// nor is an equal one that comes after this place. Written before, read after the difference it belongs to: whoever sees a place of
    /// a larger difference than the one he has seen skips what is smaller than that.
    least_at: AtomicU64,
    local: AtomicU64,
    relative: AtomicU64,
    within: AtomicU64,
    steps: AtomicU64,
    /// Nobody wants the result any more.
    stopped: AtomicBool,
}

impl Seen {
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn least(&self) -> f64 {
        f64::from_bits(self.least.load(Ordering::Relaxed))
    }

    /// Whether differences of at most this size, from this place on, are not among the worst.
    fn has_no_room(&self, apart: f64, start: u64) -> bool {
        let least = f64::from_bits(self.least.load(Ordering::Acquire));
        apart < least || (apart == least && start > self.least_at.load(Ordering::Relaxed))
    }

    /// A difference that no one else reports, and how many are kept.
    fn report(&self, apart: f64, at: u64, room: usize) {
        if self.has_no_room(apart, at) {
            return;
        }
        let mut largest = self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        let place = largest
            .partition_point(|(other, place)| *other > apart || (*other == apart && *place < at));
        largest.insert(place, (apart, at));
        largest.truncate(room);
        if let Some((last, at)) = largest.get(room - 1) {
            self.least_at.store(*at, Ordering::Relaxed);
            self.least.store(last.to_bits(), Ordering::Release);
        }
    }

    fn local(&self) -> f64 {
        f64::from_bits(self.local.load(Ordering::Relaxed))
    }

    fn relative(&self) -> f64 {
        f64::from_bits(self.relative.load(Ordering::Relaxed))
    }

    fn within(&self) -> f64 {
        f64::from_bits(self.within.load(Ordering::Relaxed))
    }
}

/// What blocks of a chunk sum up to before it is added to the state: additions of [`Scaled`] and of moments take their time.
///
/// Only blocks whose numbers spread wide compared to their mean are in here, so that `Σx² - (Σx)²/n` of them all is as good as that of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    count: usize,
    sides: [Sums; 2],
    apart: f64,
    squares: f64,
    dot: f64,
    relative: f64,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            count: 0,
            sides: [Sums::NOTHING; 2],
            apart: 0.0,
            squares: 0.0,
            dot: 0.0,
            relative: 0.0,
        }
    }
}

impl Pending {
    /// Whether the spread of these numbers is at least a 64th of their squares: see [`crate::moments::Moments::of_block`].
    fn takes(count: usize, sums: &Sums) -> bool {
        sums.sum * sums.sum <= (63.0 / 64.0) * sums.squares * count as f64
    }

    fn add(&mut self, count: usize, sides: [&Sums; 2], block: [f64; 4]) {
        self.count += count;
        self.sides
            .iter_mut()
            .zip(sides)
            .for_each(|(all, side)| all.add(side));
        let [apart, squares, dot, relative] = block;
        self.apart += apart;
        self.squares += squares;
        self.dot += dot;
        self.relative += relative;
    }
}

/// Codes of a block, and places in it.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    magnitudes: Vec<u8>,
    ulps: Vec<u8>,
    places: Vec<u32>,
    /// Guesses for [`Asked::rms`] and [`Asked::zeros`].
    rms: f64,
    zeros: bool,
    /// The last [`Asked::local`], and whether it is a quotient.
    local: (f64, bool),
    /// Elements of the rows, or parts of rows, that the block consists of, where profiles ask for them.
    rows: Vec<usize>,
    /// What the last block sums up to, and what its rows do, where that was found on the way.
    cell: Cell,
    cells: Vec<Cell>,
    /// What is not yet in the state.
    pending: Pending,
}

/// Whether a number above 0 is a quotient, rounded once, of two numbers of 8 bits.
fn is_quotient(x: f64) -> bool {
    if !(f64::MIN_POSITIVE..f64::INFINITY).contains(&x) {
        return false;
    }
    let fraction = x / super::scaled::times_power(1.0, exponent(x));
    // Of two numbers from 128 to 255, the upper one doubled where it is smaller.
    (128..256).any(|under| {
        let over = (fraction * f64::from(under)).round();
        over / f64::from(under) == fraction && (over < 256.0 || over % 2.0 == 0.0)
    })
}

/// What [`Light`] says, with its largest relative difference where it counts.
fn look_again(pair: Pair, r: &[u8], c: &[u8], light: &Light) -> Block {
    let Light {
        apart,
        squares,
        relative,
        max_abs,
        over,
        differing,
        max_steps,
        ..
    } = *light;
    let max_relative = if light.higher {
        pair.relative(r, c)
    } else {
        0.0
    };
    Block {
        apart,
        squares,
        relative,
        max_abs,
        max_relative,
        local: over,
        differing,
        max_steps,
    }
}

/// One side's sums.
fn sums(dtype: DType, bytes: &[u8]) -> Sums {
    match dtype {
        DType::F32 => simd::f32(bytes),
        DType::F64 => simd::f64(bytes),
        DType::Bf16 => simd::bf16(bytes),
        _ => simd::f16(bytes),
    }
}

/// The sums of both sides, when they are equal to the last bit. What each of several rows sums up to is left in `cells`.
fn equal_sums(
    [left, right]: [DType; 2],
    r: &[u8],
    c: &[u8],
    rows: &[usize],
    cells: &mut Vec<Cell>,
) -> Option<Sums> {
    // Most blocks that differ do so at once.
    let first = |bytes: &[u8]| bytes.first_chunk::<128>().copied();
    if left != right || first(r) != first(c) {
        return None;
    }
    let of = |r: &[u8], c: &[u8]| match left {
        DType::F32 => simd::f32_same(r, c),
        DType::Bf16 => simd::bf16_same(r, c),
        _ => (r == c).then(|| sums(left, r)),
    };
    if rows.len() < 2 {
        return of(r, c);
    }
    let mut all = Sums::NOTHING;
    let (width, mut done) = (left.itemsize()?, 0);
    for row in rows {
        let bytes = done * width..(done + row) * width;
        let sums = of(&r[bytes.clone()], &c[bytes])?;
        cells.push(Cell {
            energy: sums.squares,
            ..Cell::default()
        });
        all.add(&sums);
        done += row;
    }
    Some(all)
}

/// One side, `None` when it must be done the plain way.
fn side(dtype: DType, bytes: &[u8], count: usize, sums: &Sums) -> Option<Side> {
    let real = match dtype {
        DType::F32 => Real::of_sums(count, sums, Some(|mean| simd::f32_shifted(bytes, mean))),
        DType::F64 => Real::of_sums(count, sums, Some(|mean| simd::f64_shifted(bytes, mean))),
        _ => Real::of_sums(count, sums, ONCE),
    };
    real.map(Side::Real)
}

/// One side of a block that was done lightly.
fn light_side(dtype: DType, bytes: &[u8], count: usize, sums: &Sums) -> Side {
    Side::Real(match dtype {
        DType::F32 => Real::of_usual(count, sums, Some(|mean| simd::f32_shifted(bytes, mean))),
        _ => Real::of_usual(count, sums, ONCE),
    })
}

fn value(dtype: DType, bytes: &[u8], at: usize) -> f64 {
    match dtype {
        DType::F32 => kernel::f32s(&bytes[4 * at..4 * at + 4]).next(),
        DType::F64 => kernel::f64s(&bytes[8 * at..8 * at + 8]).next(),
        DType::Bf16 => kernel::bf16s_in_order(&bytes[2 * at..2 * at + 2]).next(),
        _ => kernel::f16s(&bytes[2 * at..2 * at + 2]).next(),
    }
    .expect("one number")
}

impl State {
    /// A block of bytes of the types that `pair` has loops for. False, and nothing happened, when it must be done the plain way.
    pub(crate) fn insert_fast(
        &mut self,
        task: &Task<'_>,
        pair: Pair,
        start: u64,
        r: &[u8],
        c: &[u8],
        codes: &mut Codes,
    ) -> bool {
        let [left, right] = pair.dtypes();
        let count = r.len() / left.itemsize().expect("floats have bytes");
        let number = |at: usize| (value(left, r, at), value(right, c, at));
        let worst = |at: usize| {
            let (reference, candidate) = number(at);
            Worst {
                at: start + at as u64,
                reference,
                candidate,
                imaginary: None,
                integers: [None; 2],
            }
        };
        let Codes { rows, cells, .. } = &mut *codes;
        cells.clear();
        if let Some(sums) = equal_sums([left, right], r, c, rows, cells) {
            let pends = matches!(left, DType::F32 | DType::Bf16)
                && sums.squares.is_finite()
                && Pending::takes(count, &sums);
            let side = if pends {
                None
            } else {
                side(left, r, count, &sums)
            };
            if !pends && side.is_none() {
                return false;
            }
            codes.cell = Cell {
                energy: sums.squares,
                ..Cell::default()
            };
            self.first = self.first.or_else(|| Some(worst(0)));
            self.compared += count as u64;
            let Some(side) = side else {
                codes
                    .pending
                    .add(count, [&sums, &sums], [0.0, 0.0, sums.squares, 0.0]);
                return true;
            };
            self.reference.add(&side);
            self.candidate.add(&side);
            self.insert_products([&sums, &sums], [0.0, 0.0, sums.squares, 0.0]);
            return true;
        }
        let asked = self.asked(task, codes);
        let Codes { rows, cells, .. } = &mut *codes;
        cells.clear();
        let light = pair.light(r, c, &asked, rows, cells);
        // Blocks are like the one before them. A little less: a guess that is too high tells nothing.
        codes.rms = light.map_or(0.0, |light| if light.close { 0.9 * light.rms } else { 0.0 });
        codes.zeros = light.is_some_and(|light| light.zeros);
        let [r_sums, c_sums] =
            light.map_or_else(|| [sums(left, r), sums(right, c)], |light| light.sums);
        let (sides, largest) = match light {
            Some(light) => {
                let pends = Pending::takes(count, &r_sums) && Pending::takes(count, &c_sums);
                (
                    (!pends).then(|| {
                        (
                            light_side(left, r, count, &r_sums),
                            light_side(right, c, count, &c_sums),
                        )
                    }),
                    light.largest,
                )
            }
            None => {
                let Some(sides) = side(left, r, count, &r_sums).zip(side(right, c, count, &c_sums))
                else {
                    return false;
                };
                let largest = |sums: &Sums| sums.max.max(-sums.min);
                (Some(sides), largest(&r_sums).max(largest(&c_sums)))
            }
        };
        let highest = exponent(2.0 * largest).max(-1022) + 1023;
        let rms = light.map_or_else(|| (r_sums.squares / count as f64).sqrt(), |light| light.rms);
        let known = Known {
            rms,
            limit: asked.local,
            base: (highest + 1 - 255).max(0) as u16,
        };
        let Codes {
            magnitudes,
            ulps,
            places,
            cell,
            pending,
            ..
        } = codes;
        let room = count.next_multiple_of(16);
        let weight = weight(start);
        if light.is_none() || weight > 0 {
            magnitudes.resize(room.max(magnitudes.len()), 0);
            ulps.resize(magnitudes.len(), 0);
        }
        let block = match light {
            None => pair.block(r, c, known, magnitudes, ulps),
            Some(light) => {
                if weight > 0 {
                    pair.codes(r, c, known.base, magnitudes, ulps);
                }
                look_again(pair, r, c, &light)
            }
        };
        // Squares of the differences of f64 may vanish where those of the numbers do not.
        if block.max_abs != 0.0 && !(SMALL..=LARGE).contains(&block.max_abs) {
            return false;
        }
        *cell = Cell {
            error: block.squares,
            energy: r_sums.squares,
            max_abs: block.max_abs,
            differing: block.differing,
        };
        self.first = self.first.or_else(|| Some(worst(0)));
        self.compared += count as u64;
        self.differing += block.differing;
        // 2Σrc = Σr² + Σc² - Σ(c - r)², which is as good as summing it unless most of it cancels.
        let both = r_sums.squares + c_sums.squares;
        let dot = 0.5 * (both - block.squares);
        let dot = if dot < both / 64.0 {
            pair.dot(r, c)
        } else {
            dot
        };
        match sides {
            None => pending.add(
                count,
                [&r_sums, &c_sums],
                [block.apart, block.squares, dot, block.relative],
            ),
            Some((reference, candidate)) => {
                self.reference.add(&reference);
                self.candidate.add(&candidate);
                self.insert_products(
                    [&r_sums, &c_sums],
                    [block.apart, block.squares, dot, block.relative],
                );
            }
        }
        self.max_abs = self.max_abs.max(block.max_abs);
        if block.max_relative > self.max_relative {
            self.max_relative = block.max_relative;
            task.seen
                .relative
                .fetch_max(self.max_relative.to_bits(), Ordering::Relaxed);
        }
        if block.local {
            self.max_local = self.max_local.max(pair.local(r, c, rms));
            task.seen
                .local
                .fetch_max(self.max_local.to_bits(), Ordering::Relaxed);
        }
        if let Some((atol, rtol)) = task.options.tolerance {
            self.beyond += pair.beyond(r, c, atol, rtol);
        }
        if block.differing > 0 {
            let least = self
                .top
                .least()
                .max(task.seen.least())
                .max(f64::from_bits(1));
            if block.max_abs >= least
                && !self.top.has_room_for_none_like(block.max_abs)
                && !task.seen.has_no_room(block.max_abs, start)
            {
                self.insert_top(
                    task,
                    pair,
                    r,
                    c,
                    (least, block.max_abs),
                    places,
                    number,
                    worst,
                );
            }
            if weight > 0 {
                self.insert_codes(
                    block,
                    (known.base, weight),
                    &magnitudes[..room],
                    &ulps[..room],
                    left == DType::F64,
                    (number, count),
                );
            }
            if left == DType::F64 {
                self.insert_all_steps(task, weight, (r, c), block.max_abs);
            } else if u64::from(block.max_steps) > self.max_ulp {
                self.max_ulp = u64::from(block.max_steps);
                task.seen.steps.fetch_max(self.max_ulp, Ordering::Relaxed);
            }
        }
        true
    }

    fn insert_products(&mut self, [r, c]: [&Sums; 2], [apart, squares, dot, relative]: [f64; 4]) {
        let one = |sum: f64| Scaled::new(sum, [Scale::One; 2]);
        self.apart = self.apart.plus(one(apart));
        self.squares = self.squares.plus(one(squares));
        self.reference_squares = self.reference_squares.plus(one(r.squares));
        self.candidate_squares = self.candidate_squares.plus(one(c.squares));
        self.dot = self.dot.plus(one(dot));
        self.relative = self.relative.plus(crate::double::Double::new(relative));
    }

    /// Adds what is pending of a chunk, at its end.
    pub(crate) fn insert_pending(&mut self, codes: &mut Codes) {
        let Pending {
            count,
            sides: [r, c],
            apart,
            squares,
            dot,
            relative,
        } = std::mem::take(&mut codes.pending);
        if count == 0 {
            return;
        }
        self.reference
            .add(&Side::Real(Real::of_usual(count, &r, ONCE)));
        self.candidate
            .add(&Side::Real(Real::of_usual(count, &c, ONCE)));
        self.insert_products([&r, &c], [apart, squares, dot, relative]);
    }

    /// What the blocks so far have shown, here and elsewhere.
    fn asked(&self, task: &Task<'_>, codes: &mut Codes) -> Asked {
        let ends = |side: &Side, sums: &Sums| match side {
            Side::Real(real) => real.max.max(sums.max).min(-real.min.min(sums.min)),
            _ => sums.max.min(-sums.min),
        };
        let [r, c] = &codes.pending.sides;
        let within = ends(&self.reference, r)
            .min(ends(&self.candidate, c))
            .max(0.0);
        let seen = task.seen.within();
        if within > seen {
            task.seen
                .within
                .fetch_max(within.to_bits(), Ordering::Relaxed);
        }
        let local = self.max_local.max(task.seen.local());
        if codes.local.0 != local {
            codes.local = (
                local,
                task.reference.dtype() == DType::Bf16 && is_quotient(local),
            );
        }
        Asked {
            relative: self.max_relative.max(task.seen.relative()),
            local,
            local_is_quotient: codes.local.1,
            rms: codes.rms,
            within: within.max(seen),
            steps: self.max_ulp.max(task.seen.steps.load(Ordering::Relaxed)),
            zeros: codes.zeros,
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn insert_top(
        &mut self,
        task: &Task<'_>,
        pair: Pair,
        r: &[u8],
        c: &[u8],
        (least, most): (f64, f64),
        places: &mut Vec<u32>,
        number: impl Fn(usize) -> (f64, f64),
        worst: impl Fn(usize) -> Worst,
    ) {
        // Most of a block is far from its worst: where the worst suffice, the others need not be looked at.
        for part in [0.9, 0.5, 0.0] {
            let from = least.max(part * most);
            pair.above(r, c, from, places);
            if from == least || places.len() >= self.top.room() {
                break;
            }
        }
        for place in places.iter().map(|place| *place as usize) {
            let (r, c) = number(place);
            let apart = (c - r).abs();
            let worst = worst(place);
            self.top.insert(Some(apart), worst);
            task.seen.report(apart, worst.at, self.top.room());
        }
    }

    /// The histograms of a block, from its codes where they tell, else element by element. Steps of `wide` types have no codes.
    fn insert_codes(
        &mut self,
        block: Block,
        (base, weight): (u16, u64),
        magnitudes: &[u8],
        ulps: &[u8],
        wide: bool,
        (number, count): (impl Fn(usize) -> (f64, f64), usize),
    ) {
        let mut found = 0;
        let mut kept = [(0i32, 0u64); 256];
        simd::histogram(magnitudes, |code, count| {
            found += count;
            kept[usize::from(code)] = (
                i32::from(code) + i32::from(base) - 1023,
                kept[usize::from(code)].1 + count,
            );
        });
        if found == block.differing {
            kept.iter()
                .filter(|(_, count)| *count > 0)
                .for_each(|(bucket, count)| self.magnitudes.add(*bucket, weight * *count));
        } else {
            // Differences 2^255 times smaller than the numbers: too far below for a code.
            for (r, c) in (0..count).map(&number).filter(|(r, c)| r != c) {
                self.magnitudes.add(exponent((c - r).abs()), weight);
            }
        }
        if !wide {
            simd::histogram(ulps, |code, count| {
                self.ulps.add(i32::from(code) - 127, weight * count);
            });
        }
    }

    /// The steps of a block of f64, whatever they were read from: all of them where they are counted, else the most.
    fn insert_all_steps(
        &mut self,
        task: &Task<'_>,
        weight: u64,
        (r, c): (&[u8], &[u8]),
        max_abs: f64,
    ) {
        match task.grid {
            // Of integers a step is 1.
            None if weight == 0 => self.max_ulp = self.max_ulp.max(max_abs as u64),
            None => kernel::f64s(r)
                .zip(kernel::f64s(c))
                .for_each(|(r, c)| self.insert_steps((c - r).abs() as u64, weight)),
            Some(grid) if weight == 0 => {
                self.max_ulp = grid.most(
                    r,
                    c,
                    self.max_ulp.max(task.seen.steps.load(Ordering::Relaxed)),
                );
            }
            Some(grid) => kernel::f64s(r)
                .zip(kernel::f64s(c))
                .for_each(|(r, c)| self.insert_steps(grid.distance(r, c), weight)),
        }
        task.seen.steps.fetch_max(self.max_ulp, Ordering::Relaxed);
    }

    /// Before a block: the rows it consists of.
    pub(crate) fn ask_for_rows(
        profiles: Option<&Profiles>,
        start: u64,
        count: usize,
        codes: &mut Codes,
    ) {
        codes.rows.clear();
        if let Some(profiles) = profiles.filter(|profiles| profiles.has_rows()) {
            codes.rows.extend(
                Profiles::pieces(profiles.cut.row, start, count).map(|(.., piece)| piece.len()),
            );
        }
    }

    /// After a block that was done here: what its rows sum up to.
    pub(crate) fn profile_rows(
        profiles: &mut Profiles,
        pair: Pair,
        start: u64,
        (r, c, widths): Sides<'_>,
        codes: &Codes,
    ) {
        let known = if codes.rows.len() == 1 {
            std::slice::from_ref(&codes.cell)
        } else {
            &codes.cells
        };
        let row = profiles.cut.row;
        let pieces = Profiles::pieces(row, start, codes.rows.iter().sum());
        for (nth, (row, _, piece)) in pieces.enumerate() {
            let bytes = |side: usize| piece.start * widths[side]..piece.end * widths[side];
            let sums = known
                .get(nth)
                .copied()
                .unwrap_or_else(|| pair.row(&r[bytes(0)], &c[bytes(1)]));
            profiles.insert_row(row, &sums);
        }
    }

    /// The columns of a chunk whose blocks were all done here, from its bytes in place.
    pub(crate) fn profile_columns(
        profiles: &mut Profiles,
        pair: Pair,
        start: u64,
        equal: bool,
        (r, c, widths): Sides<'_>,
    ) {
        let count = r.len() / widths[0];
        let bytes = |from: usize, to: usize| {
            (
                &r[from * widths[0]..to * widths[0]],
                &c[from * widths[1]..to * widths[1]],
            )
        };
        let row = profiles.cut.row;
        if !profiles.has_columns() {
            return;
        }
        let mut done = 0;
        while done < count {
            let (line, column) = ((start + done as u64) / row, (start + done as u64) % row);
            let left = count - done;
            // Whole rows together; what comes before the first and after the last alone.
            let (rows, width) = match (row - column, column) {
                (_, 0) if left as u64 >= row => (
                    (left as u64 / row).min(profiles.cut.alike(line)) as usize,
                    row as usize,
                ),
                (rest, _) => (1, usize::try_from(rest).unwrap_or(usize::MAX).min(left)),
            };
            if !profiles.cut.samples(line) {
                done += rows * width;
                continue;
            }
            let (r, c) = bytes(done, done + rows * width);
            let (part, cells) = (
                Part {
                    r,
                    c,
                    rows,
                    row: width,
                },
                &mut profiles.columns_from(column)[..width],
            );
            if equal {
                pair.energies(part, cells);
            } else {
                pair.columns(part, cells);
            }
            done += rows * width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_of_eight_bits_are_known_from_their_neighbours() {
        for (over, under) in [
            (1.0, 128.0),
            (255.0, 254.0),
            (3.0, 129.0),
            (131.0, 251.0),
            (2e-30, 1.0),
            (129.0 * 2f64.powi(-40), 255.0),
        ] {
            let quotient = f64::from(over as f32) / under;
            let few_bits = (over as f32).to_bits().trailing_zeros() >= 16;
            assert_eq!(is_quotient(quotient), few_bits, "{over} / {under}");
            assert!(!is_quotient(quotient.next_up()) && !is_quotient(quotient.next_down()));
        }
        assert!(
            ![0.0, f64::INFINITY, f64::NAN, std::f64::consts::PI]
                .into_iter()
                .any(is_quotient)
        );
    }
}
