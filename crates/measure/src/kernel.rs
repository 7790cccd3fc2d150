//! The plain loops over one block of finite numbers, and the rules the vector loops keep so that both print the same digits.
//!
//! Number `i` of a block is added to lane `i % LANES`; the lanes are added in a fixed tree at the end. Products enter a sum through
//! a fused multiply-add, which is one correctly rounded operation on every machine.
//! bf16 is widened in pairs, so within each eight of a full group of 16 its even places come before its odd ones.

/// Independent sums a block is spread over, so that additions need not wait for each other.
pub(crate) const LANES: usize = 16;

/// What one pass over a block of finite numbers gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sums {
    pub(crate) sum: f64,
    /// Not finite when some `x` was not, or when it overflowed. Then nothing else here means anything.
    pub(crate) squares: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) zeros: u64,
}

impl Sums {
    pub(crate) const NOTHING: Self = Self {
        sum: 0.0,
        squares: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        zeros: 0,
    };

    pub(crate) fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.squares += other.squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.zeros += other.zeros;
    }
}

/// What a second pass gives, over `d = x - shift`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shifted {
    pub(crate) sum: f64,
    pub(crate) squares: f64,
}

/// The sums while they are still apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    pub(crate) sum: [f64; LANES],
    pub(crate) squares: [f64; LANES],
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) zeros: u64,
}

impl Lanes {
    pub(crate) const EMPTY: Self = Self {
        sum: [0.0; LANES],
        squares: [0.0; LANES],
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        zeros: 0,
    };

    /// Adds what is left over after whole groups, then the lanes.
    pub(crate) fn finish(mut self, rest: impl Iterator<Item = f64>) -> Sums {
        for (i, x) in rest.enumerate() {
            let lane = i % LANES;
            self.sum[lane] += x;
            self.squares[lane] = x.mul_add(x, self.squares[lane]);
            self.min = if x < self.min { x } else { self.min };
            self.max = if x > self.max { x } else { self.max };
            self.zeros += u64::from(x == 0.0);
        }
        // A zero is a zero: adding one makes -0 a 0, so that min and max do not depend on which came first.
        let (min, max) = (self.min + 0.0, self.max + 0.0);
        Sums {
            sum: tree(self.sum),
            squares: tree(self.squares),
            min,
            max,
            zeros: self.zeros,
        }
    }
}

/// The lanes of a second pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShiftedLanes {
    pub(crate) sum: [f64; LANES],
    pub(crate) squares: [f64; LANES],
}

impl ShiftedLanes {
    pub(crate) const EMPTY: Self = Self {
        sum: [0.0; LANES],
        squares: [0.0; LANES],
    };

    pub(crate) fn finish(mut self, rest: impl Iterator<Item = f64>, shift: f64) -> Shifted {
        for (i, x) in rest.enumerate() {
            let (lane, d) = (i % LANES, x - shift);
            self.sum[lane] += d;
            self.squares[lane] = d.mul_add(d, self.squares[lane]);
        }
        Shifted {
            sum: tree(self.sum),
            squares: tree(self.squares),
        }
    }
}

fn tree(mut lanes: [f64; LANES]) -> f64 {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

/// The plain first pass.
pub(crate) fn plain(values: impl Iterator<Item = f64>) -> Sums {
    Lanes::EMPTY.finish(values)
}

/// The plain second pass.
pub(crate) fn plain_shifted(values: impl Iterator<Item = f64>, shift: f64) -> Shifted {
    ShiftedLanes::EMPTY.finish(values, shift)
}

pub(crate) fn f64s(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.as_chunks().0.iter().map(|x| f64::from_le_bytes(*x))
}

pub(crate) fn f32s(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|x| f64::from(f32::from_le_bytes(*x)))
}

pub(crate) fn f16s(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|x| f16(u16::from_le_bytes(*x)))
}

pub(crate) fn bf16s_in_order(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|x| bf16(u16::from_le_bytes(*x)))
}

/// In the order the vector loop meets them.
pub(crate) fn bf16s(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let (groups, rest) = bytes.as_chunks::<{ 2 * LANES }>();
    let paired = groups.iter().flat_map(|group| {
        let all = group.as_chunks::<2>().0;
        [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]
            .map(|place: usize| bf16(u16::from_le_bytes(all[place])))
    });
    paired.chain(bf16s_in_order(rest))
}

pub(crate) fn bf16(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

pub(crate) fn f16(bits: u16) -> f64 {
    let (exponent, fraction) = (bits >> 10 & 0x1f, f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (fraction + 1024.0) * 2f64.powi(i32::from(exponent) - 25),
    };
    if bits & 0x8000 == 0 {
        magnitude
    } else {
        -magnitude
    }
}
