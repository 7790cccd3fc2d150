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
use std::sync::atomic::{AtomicU64, Ordering};
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

/// What one loop over both sides of a block of finite numbers finds: everything but the histograms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Light {
    /// Of the reference and the candidate.
    pub(crate) sums: [Sums; 2],
    pub(crate) apart: f64,
    pub(crate) squares: f64,
    pub(crate) relative: f64,
    pub(crate) max_abs: f64,
    /// Within [`NEAR`] of it.
    pub(crate) max_relative: f64,
    /// Of the reference.
    pub(crate) rms: f64,
    /// Whether some `|c - r| / max(|r|, rms)` may be above the limit.
    pub(crate) over: bool,
    pub(crate) differing: u64,
    pub(crate) max_steps: u32,
}

/// How far, relatively, [`Light::max_relative`] may be off.
const NEAR: f64 = 1.0 / (1 << 21) as f64;
/// Below this relative difference two numbers are within a factor of two of each other, also if it is only nearly known.
const NARROW: f64 = 0.499;

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
    /// A difference below this is not among the worst.
    least: AtomicU64,
    local: AtomicU64,
    relative: AtomicU64,
}

impl Seen {
    fn least(&self) -> f64 {
        f64::from_bits(self.least.load(Ordering::Relaxed))
    }

    fn local(&self) -> f64 {
        f64::from_bits(self.local.load(Ordering::Relaxed))
    }

    fn relative(&self) -> f64 {
        f64::from_bits(self.relative.load(Ordering::Relaxed))
    }
}

/// Codes of a block, and places in it.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    magnitudes: Vec<u8>,
    ulps: Vec<u8>,
    places: Vec<u32>,
    /// What the last block sums up to.
    pub(crate) cell: Cell,
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

/// One side, `None` when it must be done the plain way.
fn side(dtype: DType, bytes: &[u8], count: usize, sums: &Sums) -> Option<Side> {
    let real = match dtype {
        DType::F32 => Real::of_sums(count, sums, Some(|mean| simd::f32_shifted(bytes, mean))),
        DType::F64 => Real::of_sums(count, sums, Some(|mean| simd::f64_shifted(bytes, mean))),
        _ => Real::of_sums(count, sums, ONCE),
    };
    real.map(Side::Real)
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
    /// False, and nothing happened, when the block must be done the plain way.
    pub(crate) fn insert_fast(&mut self, task: &Task<'_>, pair: Pair, start: u64, r: &[u8], c: &[u8], codes: &mut Codes) -> bool {
        let (left, right) = (task.reference.dtype(), task.candidate.dtype());
        let count = r.len() / left.itemsize().expect("floats have bytes");
        let number = |at: usize| (value(left, r, at), value(right, c, at));
        let worst = |at: usize| {
            let (reference, candidate) = number(at);
            Worst { at: start + at as u64, reference, candidate, imaginary: None }
        };
        let one = |sum: f64| Scaled::new(sum, [Scale::One; 2]);
        if left == right && r == c {
            let sums = sums(left, r);
            let Some(side) = side(left, r, count, &sums) else { return false };
            codes.cell = Cell { energy: sums.squares, ..Cell::default() };
            self.first = self.first.or_else(|| Some(worst(0)));
            self.compared += count as u64;
            self.reference = self.reference.merge(side);
            self.candidate = self.candidate.merge(side);
            self.reference_squares = self.reference_squares.plus(one(sums.squares));
            self.candidate_squares = self.candidate_squares.plus(one(sums.squares));
            self.dot = self.dot.plus(one(sums.squares));
            return true;
        }
        let limit = self.max_local.max(task.seen.local());
        let light = pair.light(r, c, limit);
        let [r_sums, c_sums] = light.map_or_else(|| [sums(left, r), sums(right, c)], |light| light.sums);
        let Some((reference, candidate)) = side(left, r, count, &r_sums).zip(side(right, c, count, &c_sums)) else { return false };
        let largest = |sums: &Sums| sums.max.max(-sums.min);
        let highest = exponent(largest(&r_sums) + largest(&c_sums)).max(-1022) + 1023;
        let rms = light.map_or_else(|| (r_sums.squares / count as f64).sqrt(), |light| light.rms);
        let known = Known { rms, limit, base: (highest + 1 - 255).max(0) as u16 };
        let Codes { magnitudes, ulps, places, cell } = codes;
        let room = count.next_multiple_of(16);
        let weight = weight(start);
        let mut counted = None;
        if light.is_none() || weight > 0 {
            magnitudes.resize(room.max(magnitudes.len()), 0);
            ulps.resize(magnitudes.len(), 0);
            counted = Some(pair.block(r, c, known, magnitudes, ulps));
        }
        let block = match (light, counted) {
            (None, Some(block)) => block,
            (Some(light), _) => self.look_again(task, pair, r, c, &light),
            (None, None) => unreachable!("one of them was done"),
        };
        // Squares of the differences of f64 may vanish where those of the numbers do not.
        if block.max_abs != 0.0 && !(SMALL..=LARGE).contains(&block.max_abs) {
            return false;
        }
        *cell = Cell { error: block.squares, energy: r_sums.squares, max_abs: block.max_abs, differing: block.differing };
        self.first = self.first.or_else(|| Some(worst(0)));
        self.compared += count as u64;
        self.differing += block.differing;
        self.reference = self.reference.merge(reference);
        self.candidate = self.candidate.merge(candidate);
        self.apart = self.apart.plus(one(block.apart));
        self.squares = self.squares.plus(one(block.squares));
        self.reference_squares = self.reference_squares.plus(one(r_sums.squares));
        self.candidate_squares = self.candidate_squares.plus(one(c_sums.squares));
        // 2Σrc = Σr² + Σc² - Σ(c - r)², which is as good as summing it unless most of it cancels.
        let both = r_sums.squares + c_sums.squares;
        let dot = 0.5 * (both - block.squares);
        self.dot = self.dot.plus(one(if dot < both / 64.0 { pair.dot(r, c) } else { dot }));
        self.relative = self.relative.plus(crate::double::Double::new(block.relative));
        self.max_abs = self.max_abs.max(block.max_abs);
        if block.max_relative > self.max_relative {
            self.max_relative = block.max_relative;
            task.seen.relative.fetch_max(self.max_relative.to_bits(), Ordering::Relaxed);
        }
        if block.local {
            self.max_local = self.max_local.max(pair.local(r, c, rms));
            task.seen.local.fetch_max(self.max_local.to_bits(), Ordering::Relaxed);
        }
        if let Some((atol, rtol)) = task.options.tolerance {
            self.beyond += pair.beyond(r, c, atol, rtol);
        }
        if block.differing > 0 {
            let least = self.top.least().max(task.seen.least()).max(f64::from_bits(1));
            if block.max_abs >= least && !self.top.has_room_for_none_like(block.max_abs) {
                self.insert_top(task, pair, r, c, (least, block.max_abs), places, number, worst);
            }
            match counted {
                Some(block) => self.insert_codes(task, block, (known.base, weight), &magnitudes[..room], &ulps[..room], number, count),
                None => self.max_ulp = self.max_ulp.max(u64::from(block.max_steps)),
            }
        }
        true
    }

    /// What a light loop only nearly knows, exactly, unless it could not count.
    fn look_again(&self, task: &Task<'_>, pair: Pair, r: &[u8], c: &[u8], light: &Light) -> Block {
        let (near, narrow) = (light.max_relative, light.max_relative <= NARROW);
        let seen = self.max_relative.max(task.seen.relative());
        // Quotients of numbers of 8 bits are the same or 2^-16 apart: most often this one was seen before.
        let eight_bits = narrow && task.reference.dtype() == DType::Bf16;
        let higher = if eight_bits { near > seen * (1.0 + 2.0 * NEAR) } else { near * (1.0 + NEAR) >= seen };
        let max_relative = if near > 0.0 && higher { pair.relative(r, c) } else { 0.0 };
        let Light { apart, squares, relative, max_abs, over, differing, max_steps, .. } = *light;
        Block { apart, squares, relative, max_abs, max_relative, local: over, differing, max_steps }
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
            self.top.insert(Some((c - r).abs()), worst(place));
        }
        task.seen.least.fetch_max(self.top.least().to_bits(), Ordering::Relaxed);
    }

    /// The histograms of a block, from its codes where they tell, else element by element.
    #[allow(clippy::too_many_arguments)]
    fn insert_codes(
        &mut self,
        task: &Task<'_>,
        block: Block,
        (base, weight): (u16, u64),
        magnitudes: &[u8],
        ulps: &[u8],
        number: impl Fn(usize) -> (f64, f64),
        count: usize,
    ) {
        let mut found = 0;
        let mut kept = [(0i32, 0u64); 256];
        simd::histogram(magnitudes, |code, count| {
            found += count;
            kept[usize::from(code)] = (i32::from(code) + i32::from(base) - 1023, kept[usize::from(code)].1 + count);
        });
        if found == block.differing {
            kept.iter().filter(|(_, count)| *count > 0).for_each(|(bucket, count)| self.magnitudes.add(*bucket, weight * *count));
        } else {
            // Differences 2^255 times smaller than the numbers: too far below for a code.
            for (r, c) in (0..count).map(&number).filter(|(r, c)| r != c) {
                self.magnitudes.add(exponent((c - r).abs()), weight);
            }
        }
        if task.reference.dtype() == DType::F64 || block.max_steps > i32::MAX as u32 {
            let Some(grid) = task.grid else { return };
            for (r, c) in (0..count).map(&number) {
                self.insert_steps(grid.distance(r, c), weight);
            }
        } else {
            self.max_ulp = self.max_ulp.max(u64::from(block.max_steps));
            simd::histogram(ulps, |code, count| self.ulps.add(i32::from(code) - 127, weight * count));
        }
    }

    /// The profiles of a chunk whose blocks were all done here, from its bytes in place.
    pub(crate) fn profile_fast(profiles: &mut Profiles, pair: Pair, start: u64, equal: bool, (r, c, widths): Sides<'_>) {
        let count = r.len() / widths[0];
        let bytes = |from: usize, to: usize| (&r[from * widths[0]..to * widths[0]], &c[from * widths[1]..to * widths[1]]);
        let row = profiles.cut.row;
        if profiles.has_rows() && !profiles.rows_are_blocks() {
            for (row, _, piece) in Profiles::pieces(row, start, count) {
                let (r, c) = bytes(piece.start, piece.end);
                let sums: Cell = pair.row(r, c);
                profiles.insert_row(row, &sums);
            }
        }
        if !profiles.cut.columns {
            return;
        }
        let mut done = 0;
        while done < count {
            let (line, column) = ((start + done as u64) / row, (start + done as u64) % row);
            let left = count - done;
            // Whole rows together; what comes before the first and after the last alone.
            let (rows, width) = match (row - column, column) {
                (_, 0) if left as u64 >= row => ((left as u64 / row).min(profiles.cut.alike(line)) as usize, row as usize),
                (rest, _) => (1, usize::try_from(rest).unwrap_or(usize::MAX).min(left)),
            };
            if !profiles.cut.samples(line) {
                done += rows * width;
                continue;
            }
            let (r, c) = bytes(done, done + rows * width);
            let (part, cells) = (Part { r, c, rows, row: width }, &mut profiles.columns_from(column)[..width]);
            if equal {
                pair.energies(part, cells);
            } else {
                pair.columns(part, cells);
            }
            done += rows * width;
        }
    }
}
