//! The mergeable state of a pair: what a run of elements has shown so far.

use super::{
    Options, Profiling, SideTotals, Totals, Watch, Worst, columns,
    fast::{Codes, Seen, Sides},
    grid::Grid,
    histogram::{Histogram, exponent, weight},
    profile::{Cut, Profiles},
    read::{Sort, Values},
    scaled::Scaled,
    worst::Top,
};
use crate::{
    double::Double,
    moments::Scale,
    simd::{self, Pair},
    stats::{Complex, Real, bytes_of},
};
use serde::{Deserialize, Serialize};
use std::{cell::Cell as Slot, ops::Range};
use twinscope_tensor::{DType, Operand, ReadError, View};

/// Elements of one kernel call, and those that share the reference's rms in [`Totals::max_local`].
pub(crate) const BLOCK: usize = 1 << 12;

/// One side of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) enum Side {
    #[default]
    Nothing,
    Real(Real),
    Complex(Complex),
}

impl Side {
    /// `other` comes after `self`. In place: it is large, and this is done for every block.
    pub(super) fn add(&mut self, other: &Self) {
        match (&mut *self, other) {
            (_, Self::Nothing) => (),
            (Self::Nothing, _) => *self = *other,
            (Self::Real(a), Self::Real(b)) => a.add(b),
            (Self::Complex(a), Self::Complex(b)) => *a = a.merged(*b),
            (Self::Real(_), Self::Complex(_)) | (Self::Complex(_), Self::Real(_)) => {
                unreachable!("a pair has one sort")
            }
        }
    }

    fn finish(self) -> SideTotals {
        match self {
            Self::Nothing => SideTotals::default(),
            Self::Real(real) => SideTotals {
                mean: real.moments.mean(),
                std: real.moments.std(),
                min: (real.moments.n > 0).then_some(real.min),
                max: (real.moments.n > 0).then_some(real.max),
                nan: real.counts.nan,
                inf: real.counts.pos_inf + real.counts.neg_inf,
                zero: real.counts.zeros,
                norm: real.moments.norm(),
            },
            // Complex numbers have no order, and a mean that one number cannot say.
            Self::Complex(complex) => SideTotals {
                mean: None,
                std: complex.re.joint_std(&complex.im),
                min: None,
                max: None,
                nan: complex.counts.nan,
                inf: complex.counts.pos_inf + complex.counts.neg_inf,
                zero: complex.counts.zeros,
                norm: complex.moduli.norm(),
            },
        }
    }
}

/// What a run of elements of a pair has shown: [`State::of_range`] for a part, [`State::merge`] for two parts one after the other,
/// [`State::finish`] for the numbers. It can be written and read again in any format, to the last bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    numeric: bool,
    wanted: usize,
    tolerance: bool,
    count: u64,
    pub(super) compared: u64,
    pub(super) differing: u64,
    nonfinite_differing: u64,
    pub(super) beyond: u64,
    pub(super) reference: Side,
    pub(super) candidate: Side,
    /// Over compared elements: `Σ|c - r|`, `Σ(c - r)²`, `Σr²`, `Σc²`, `Σrc`, `Σ|c - r| / max(|r|, |c|)`.
    pub(super) apart: Scaled,
    pub(super) squares: Scaled,
    pub(super) reference_squares: Scaled,
    pub(super) candidate_squares: Scaled,
    pub(super) dot: Scaled,
    pub(super) relative: Double,
    #[serde(with = "crate::exact")]
    pub(super) max_abs: f64,
    #[serde(with = "crate::exact")]
    pub(super) max_relative: f64,
    pub(super) max_ulp: u64,
    #[serde(with = "crate::exact")]
    pub(super) max_local: f64,
    pub(super) first: Option<Worst>,
    pub(super) top: Top,
    pub(super) magnitudes: Histogram,
    pub(super) ulps: Histogram,
    profiles: Option<Profiles>,
}

/// What stays the same from block to block.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) reference: &'a dyn Operand,
    pub(crate) candidate: &'a dyn Operand,
    pub(crate) sort: Sort,
    pub(crate) grid: Option<Grid>,
    pub(crate) options: &'a Options,
    /// The loops over the bytes as they are, else over the numbers they stand for.
    pub(crate) pair: Option<Pair>,
    pub(crate) wide: Option<Pair>,
    pub(crate) seen: &'a Seen,
    /// Told of every chunk, where there are several.
    pub(crate) watch: Option<&'a Watch<'a>>,
}

impl<'a> Task<'a> {
    pub(crate) fn new(
        reference: &'a dyn Operand,
        candidate: &'a dyn Operand,
        options: &'a Options,
        seen: &'a Seen,
    ) -> Result<Self, ReadError> {
        assert_eq!(
            reference.shape(),
            candidate.shape(),
            "a pair is measured after it was given one shape"
        );
        let sort = Sort::of(reference, candidate)?;
        let (left, right) = (reference.dtype(), candidate.dtype());
        let pair = if reference.view().is_some() && candidate.view().is_some() {
            Pair::of(left, right)
        } else {
            None
        };
        // Whatever is one number each is as exact in f64, or checked to be.
        let numbers = matches!(
            sort,
            Sort::Floats { per: 1 } | Sort::Ints | Sort::Mixed { .. }
        );
        let wide = if pair.is_none() && numbers {
            Pair::of(DType::F64, DType::F64)
        } else {
            None
        };
        Ok(Self {
            reference,
            candidate,
            sort,
            grid: Grid::of(left, right),
            options,
            pair,
            wide,
            seen,
            watch: None,
        })
    }

    fn views(&self) -> Option<(&'a View, &'a View)> {
        self.reference.view().zip(self.candidate.view())
    }

    /// Not where elements are no numbers: they are compared and done with.
    fn sums_columns_apart(&self, cut: &Cut) -> bool {
        cut.is_long() && !matches!(self.sort, Sort::Opaque { .. })
    }

    /// Both sides' bytes of a run of elements, where they lie in order, and the bytes of an element.
    pub(super) fn in_place(&self, range: &Range<u64>) -> Option<Sides<'a>> {
        let (r, c) = self.views()?;
        let widths = [r.dtype().itemsize()?, c.dtype().itemsize()?];
        let part = |view: &'a View, width: usize| {
            view.contiguous()?
                .get(range.start as usize * width..range.end as usize * width)
        };
        Some((part(r, widths[0])?, part(c, widths[1])?, widths))
    }
}

thread_local! {
    /// Taken while in use: whoever reads a block may be asked, by the thread pool, to read another one meanwhile.
    static SCRATCH: Slot<Option<Box<Scratch>>> = const { Slot::new(None) };
}

/// What a thread keeps from block to block.
#[derive(Debug, Default)]
struct Scratch {
    values: Values,
    codes: Codes,
    bytes: [Vec<u8>; 2],
}

impl State {
    /// The state of elements `range`, in row-major order. Measure a giant pair in parts by giving each a range whose start is a multiple of
    /// [`super::CHUNK`]; the parts merge to what one call over everything gives, up to the rounding of 106-bit sums.
    ///
    /// # Panics
    /// When the shapes are not equal, the range is not inside them, or begins inside a chunk.
    pub fn of_range(
        reference: &dyn Operand,
        candidate: &dyn Operand,
        range: Range<u64>,
        options: &Options,
    ) -> Result<Self, ReadError> {
        let whole = Self::of_range_watched(reference, candidate, range, options, None)?;
        Ok(whole.expect("nobody stops it"))
    }

    /// `None` when `watch` said that it is enough.
    pub(super) fn of_range_watched(
        reference: &dyn Operand,
        candidate: &dyn Operand,
        range: Range<u64>,
        options: &Options,
        watch: Option<&Watch<'_>>,
    ) -> Result<Option<Self>, ReadError> {
        let seen = Seen::default();
        let watch = watch.filter(|_| range.end - range.start > super::CHUNK);
        let task = Task {
            watch,
            ..Task::new(reference, candidate, options, &seen)?
        };
        assert!(
            range.start <= range.end && range.end <= reference.len(),
            "{range:?} of {} elements",
            reference.len()
        );
        assert!(
            range.start.is_multiple_of(super::CHUNK),
            "a range begins at a chunk, {} does not",
            range.start
        );
        let cut = if options.profiles == Profiling::Off || task.sort.per() == 0 {
            None
        } else {
            Cut::of(reference.shape())
        };
        let cut = cut.map(|cut| {
            if options.profiles == Profiling::Whole {
                cut.whole()
            } else {
                cut
            }
        });
        let mut state = Self::of_tree(&task, cut.as_ref(), range.clone());
        if let Some((profiles, cut)) = state
            .profiles
            .as_mut()
            .zip(cut)
            .filter(|(_, cut)| task.sums_columns_apart(cut) && !seen.is_stopped())
        {
            profiles.put(columns::of_range(&task, &cut, &range, state.differing == 0));
        }
        reference.check()?;
        candidate.check()?;
        Ok((!seen.is_stopped()).then_some(state))
    }

    fn new(task: &Task<'_>, cut: Option<&Cut>, range: &Range<u64>) -> Self {
        Self {
            numeric: !matches!(task.sort, Sort::Opaque { .. }),
            wanted: task.options.top,
            tolerance: task.options.tolerance.is_some(),
            count: (range.end - range.start) * task.sort.per(),
            compared: 0,
            differing: 0,
            nonfinite_differing: 0,
            beyond: 0,
            reference: Side::Nothing,
            candidate: Side::Nothing,
            apart: Scaled::default(),
            squares: Scaled::default(),
            reference_squares: Scaled::default(),
            candidate_squares: Scaled::default(),
            dot: Scaled::default(),
            relative: Double::default(),
            max_abs: 0.0,
            max_relative: 0.0,
            max_ulp: 0,
            max_local: 0.0,
            first: None,
            top: Top::new(task.options.top),
            magnitudes: Histogram::default(),
            ulps: Histogram::default(),
            profiles: cut.map(|cut| {
                let new = if task.sums_columns_apart(cut) {
                    Profiles::of_rows
                } else {
                    Profiles::new
                };
                new(cut.clone(), range)
            }),
        }
    }

    /// Halves, the left one a power of two of chunks, so that who does what changes nothing in what is added to what.
    fn of_tree(task: &Task<'_>, cut: Option<&Cut>, range: Range<u64>) -> Self {
        let chunks = (range.end - range.start).div_ceil(super::CHUNK);
        if task.seen.is_stopped() {
            return Self::new(task, None, &range);
        }
        if chunks <= 1 {
            let elements = range.end - range.start;
            let state = Self::of_chunk(task, cut, range);
            if task.watch.is_some_and(|watch| !watch(elements)) {
                task.seen.stop();
            }
            return state;
        }
        let middle = range.start + chunks.next_power_of_two() / 2 * super::CHUNK;
        let (left, right) = rayon::join(
            || Self::of_tree(task, cut, range.start..middle),
            || Self::of_tree(task, cut, middle..range.end),
        );
        left.merge(right)
    }

    fn of_chunk(task: &Task<'_>, cut: Option<&Cut>, range: Range<u64>) -> Self {
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let Scratch {
            values,
            codes,
            bytes,
        } = &mut *scratch;
        let mut state = Self::new(task, cut, &range);
        let in_place = task.in_place(&range).filter(|_| task.wide.is_none());
        let mut plain_profiles = in_place.is_none();
        for start in range.clone().step_by(BLOCK) {
            let count = (range.end - start).min(BLOCK as u64) as usize;
            if let Sort::Opaque { width } = task.sort {
                state.insert_opaque(task, width, start, count, values);
                continue;
            }
            if let Some(wide) = task.wide {
                state.insert_wide(task, wide, start, count, (values, codes));
                continue;
            }
            Self::ask_for_rows(
                state.profiles.as_ref().filter(|_| in_place.is_some()),
                start,
                count,
                codes,
            );
            let fast = task
                .pair
                .zip(task.views())
                .is_some_and(|(pair, (left, right))| {
                    let [left_bytes, right_bytes] = &mut *bytes;
                    let (r, c) = match in_place {
                        Some((r, c, widths)) => {
                            let from = (start - range.start) as usize;
                            (
                                &r[from * widths[0]..][..count * widths[0]],
                                &c[from * widths[1]..][..count * widths[1]],
                            )
                        }
                        None => (
                            left.chunk(start, count, left_bytes),
                            right.chunk(start, count, right_bytes),
                        ),
                    };
                    let fast = state.insert_fast(task, pair, start, r, c, codes);
                    // Should a later block be unusual, all of this is thrown away.
                    if let Some(((.., widths), profiles)) =
                        in_place.zip(state.profiles.as_mut()).filter(|_| fast)
                    {
                        Self::profile_rows(profiles, pair, start, (r, c, widths), codes);
                    }
                    fast
                });
            if !fast {
                values.read(task.sort, task.reference, task.candidate, start, count);
                state.insert(task, start, values);
            }
            plain_profiles |= !fast;
        }
        state.insert_pending(codes);
        // The columns of a chunk are summed row by row while it is still close by.
        if let Some(profiles) = state
            .profiles
            .as_mut()
            .filter(|_| task.wide.is_none() && !matches!(task.sort, Sort::Opaque { .. }))
        {
            match in_place.filter(|_| !plain_profiles).zip(task.pair) {
                Some((sides, pair)) => {
                    Self::profile_columns(profiles, pair, range.start, state.differing == 0, sides);
                }
                None => {
                    *profiles = profiles.emptied(&range);
                    Self::profile_plain(profiles, task, &range, values);
                }
            }
        }
        SCRATCH.set(Some(scratch));
        state
    }

    /// A block of anything that is one number each, read as f64.
    fn insert_wide(
        &mut self,
        task: &Task<'_>,
        pair: Pair,
        start: u64,
        count: usize,
        (values, codes): (&mut Values, &mut Codes),
    ) {
        let exact = values.read_numbers(task.reference, task.candidate, start, count);
        let before = self.differing;
        Self::ask_for_rows(self.profiles.as_ref(), start, count, codes);
        if exact
            && self.insert_fast(
                task,
                pair,
                start,
                &bytes_of(&values.reference),
                &bytes_of(&values.candidate),
                codes,
            )
        {
            if let Some(profiles) = &mut self.profiles {
                let sides = (
                    &*bytes_of(&values.reference),
                    &*bytes_of(&values.candidate),
                    [8, 8],
                );
                Self::profile_rows(profiles, pair, start, sides, codes);
                Self::profile_columns(profiles, pair, start, self.differing == before, sides);
            }
            return;
        }
        values.read(task.sort, task.reference, task.candidate, start, count);
        if let Some(profiles) = &mut self.profiles {
            let Values {
                reference,
                candidate,
                apart,
                ..
            } = &*values;
            profiles.insert(start, 1, reference, apart, |i| {
                reference[i].is_finite() && candidate[i].is_finite()
            });
        }
        self.insert(task, start, values);
    }

    fn profile_plain(
        profiles: &mut Profiles,
        task: &Task<'_>,
        range: &Range<u64>,
        values: &mut Values,
    ) {
        for start in range.clone().step_by(BLOCK) {
            let count = (range.end - start).min(BLOCK as u64) as usize;
            values.read(task.sort, task.reference, task.candidate, start, count);
            let Values {
                reference,
                candidate,
                apart,
                ..
            } = &*values;
            let compared = |i: usize| reference[i].is_finite() && candidate[i].is_finite();
            profiles.insert(start, task.sort.per() as usize, reference, apart, compared);
        }
    }

    /// Elements without numbers are equal or they are not.
    fn insert_opaque(
        &mut self,
        task: &Task<'_>,
        width: usize,
        start: u64,
        count: usize,
        values: &mut Values,
    ) {
        let [left, right] = &mut values.bytes;
        let views = (
            task.reference.view().expect("checked"),
            task.candidate.view().expect("checked"),
        );
        let (left, right) = (
            views.0.chunk(start, count, left),
            views.1.chunk(start, count, right),
        );
        let (apart, ones) = (&mut values.apart, &mut values.reference);
        let place = |i: usize| i * width..(i + 1) * width;
        apart.clear();
        apart.extend((0..count).map(|i| {
            if left[place(i)] == right[place(i)] {
                0.0
            } else {
                f64::NAN
            }
        }));
        for (i, _) in apart.iter().enumerate().filter(|(_, apart)| apart.is_nan()) {
            self.differing += 1;
            let at = start + i as u64;
            self.top.insert(
                None,
                Worst {
                    at,
                    reference: f64::NAN,
                    candidate: f64::NAN,
                    imaginary: None,
                    integers: [None; 2],
                },
            );
        }
        self.compared += count as u64;
        self.beyond = self.differing;
        if let Some(profiles) = &mut self.profiles {
            ones.clear();
            ones.resize(count, 0.0);
            profiles.insert(start, 1, ones, apart, |_| false);
        }
    }

    /// A block of numbers of any kind.
    fn insert(&mut self, task: &Task<'_>, start: u64, values: &mut Values) {
        let per = task.sort.per();
        let compared = |r: f64, c: f64| r.is_finite() && c.is_finite();
        let Values {
            reference,
            candidate,
            apart,
            parts,
            ints,
            more,
            ..
        } = values;
        let [rs, cs, ds, rest] = more;
        [&mut *rs, &mut *cs, &mut *ds]
            .into_iter()
            .for_each(|kept| kept.clear());
        let whole = task.sort == Sort::Ints;
        let weight = weight(start);
        for (i, ((r, c), apart)) in reference
            .iter()
            .zip(candidate.iter())
            .zip(apart.iter())
            .enumerate()
        {
            let (r, c, apart) = (*r, *c, *apart);
            let worst = || match task.sort {
                Sort::Complex => Worst {
                    at: start + i as u64,
                    reference: parts[0][2 * i],
                    candidate: parts[1][2 * i],
                    imaginary: Some([parts[0][2 * i + 1], parts[1][2 * i + 1]]),
                    integers: [None; 2],
                },
                sort => {
                    let integers = sort
                        .integers(ints, i)
                        .map(|all| all.filter(|all| *all as f64 as i128 != *all));
                    Worst {
                        at: start + i as u64 / per,
                        reference: r,
                        candidate: c,
                        imaginary: None,
                        integers,
                    }
                }
            };
            if !compared(r, c) {
                if apart.is_nan() {
                    self.differing += 1;
                    self.nonfinite_differing += 1;
                    self.beyond += 1;
                    self.top.insert(None, worst());
                }
                continue;
            }
            if self.first.is_none() {
                self.first = Some(worst());
            }
            rs.push(r);
            cs.push(c);
            ds.push(apart);
            if apart == 0.0 {
                continue;
            }
            self.differing += 1;
            self.magnitudes.add(exponent(apart), weight);
            self.max_abs = self.max_abs.max(apart);
            if apart >= self.top.least() {
                match whole && !ints[0].is_empty() {
                    true => self
                        .top
                        .insert_integers(ints[1][i].abs_diff(ints[0][i]), worst()),
                    false => self.top.insert(Some(apart), worst()),
                }
            }
            if let Some((atol, rtol)) = task.options.tolerance {
                // Written so that a NaN in the tolerance accepts nothing.
                let accepted = apart <= atol + rtol * r.abs();
                self.beyond += u64::from(!accepted);
            }
            let steps = match (task.grid, task.sort) {
                _ if whole && ints[0].is_empty() => apart as u64,
                _ if whole => u64::try_from(ints[1][i].abs_diff(ints[0][i])).unwrap_or(u64::MAX),
                (Some(grid), Sort::Complex) => (0..2)
                    .map(|part| grid.distance(parts[0][2 * i + part], parts[1][2 * i + part]))
                    .max()
                    .unwrap_or(0),
                (Some(grid), _) => grid.distance(r, c),
                (None, _) => 0,
            };
            self.insert_steps(steps, weight);
        }
        self.compared += rs.len() as u64;
        self.insert_sums(rs, cs, ds, rest);
        self.dot = self.dot.plus(match task.sort {
            Sort::Complex => {
                [&mut *rs, &mut *cs]
                    .into_iter()
                    .for_each(|kept| kept.clear());
                let [left, right] = parts;
                for (i, (l, r)) in left
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .zip(right.as_chunks::<2>().0)
                    .enumerate()
                {
                    if compared(reference[i], candidate[i]) {
                        rs.extend(l);
                        cs.extend(r);
                    }
                }
                dot(rs, cs)
            }
            _ => dot(rs, cs),
        });
        let mut side = |numbers: &mut Vec<f64>, parts: &[f64]| match task.sort {
            Sort::Complex => Side::Complex(Complex::of_values(parts, rest)),
            _ => Side::Real(Real::of_values(numbers, rest)),
        };
        let sides = (side(reference, &parts[0]), side(candidate, &parts[1]));
        self.reference.add(&sides.0);
        self.candidate.add(&sides.1);
    }

    pub(super) fn insert_steps(&mut self, steps: u64, weight: u64) {
        if steps > 0 {
            self.max_ulp = self.max_ulp.max(steps);
            self.ulps.add(steps.ilog2() as i32, weight);
        }
    }

    /// The sums over compared elements.
    fn insert_sums(&mut self, rs: &[f64], cs: &[f64], ds: &[f64], rest: &mut Vec<f64>) {
        let squares = |values: &[f64], scale: Scale, rest: &mut Vec<f64>| {
            let sums = sums(values, scale, rest);
            Scaled::new(sums.squares, [scale, scale])
        };
        let (scale_r, scale_c) = (
            Scale::for_largest(largest(rs)),
            Scale::for_largest(largest(cs)),
        );
        let reference_squares = squares(rs, scale_r, rest);
        self.reference_squares = self.reference_squares.plus(reference_squares);
        self.candidate_squares = self.candidate_squares.plus(squares(cs, scale_c, rest));
        let most = largest(ds);
        if most == 0.0 {
            return;
        }
        let scale = Scale::for_largest(most);
        let rms = reference_squares.root_mean(rs.len() as u64);
        rest.clear();
        // A difference may be beyond the range: half of it is not.
        let ratio = |r: f64, c: f64, apart: f64, over: f64| match apart.is_infinite() {
            false if apart == 0.0 => 0.0,
            false => apart / over,
            true => (0.5 * c - 0.5 * r).abs() / (0.5 * over),
        };
        let all = || {
            rs.iter()
                .zip(cs)
                .zip(ds)
                .map(|((r, c), apart)| (*r, *c, *apart))
        };
        rest.extend(all().map(|(r, c, apart)| ratio(r, c, apart, r.abs().max(c.abs()))));
        let relative = simd::f64(&bytes_of(rest));
        self.relative = self.relative.plus(Double::new(relative.sum));
        self.max_relative = self.max_relative.max(relative.max);
        self.max_local = all()
            .map(|(r, c, apart)| ratio(r, c, apart, r.abs().max(rms)))
            .fold(self.max_local, f64::max);
        if most.is_infinite() {
            rest.clear();
            rest.extend(
                rs.iter()
                    .zip(cs)
                    .map(|(r, c)| scale.divide(*c) - scale.divide(*r))
                    .map(f64::abs),
            );
        } else {
            rest.clear();
            rest.extend(ds.iter().map(|apart| scale.divide(*apart)));
        }
        let sums = simd::f64(&bytes_of(rest));
        self.apart = self.apart.plus(Scaled::new(sums.sum, [scale]));
        self.squares = self.squares.plus(Scaled::new(sums.squares, [scale, scale]));
    }

    /// Two runs as one; `other` comes after `self`.
    pub fn merge(mut self, other: Self) -> Self {
        self.count += other.count;
        self.compared += other.compared;
        self.differing += other.differing;
        self.nonfinite_differing += other.nonfinite_differing;
        self.beyond += other.beyond;
        self.reference.add(&other.reference);
        self.candidate.add(&other.candidate);
        self.apart = self.apart.plus(other.apart);
        self.squares = self.squares.plus(other.squares);
        self.reference_squares = self.reference_squares.plus(other.reference_squares);
        self.candidate_squares = self.candidate_squares.plus(other.candidate_squares);
        self.dot = self.dot.plus(other.dot);
        self.relative = self.relative.plus(other.relative);
        self.max_abs = self.max_abs.max(other.max_abs);
        self.max_relative = self.max_relative.max(other.max_relative);
        self.max_ulp = self.max_ulp.max(other.max_ulp);
        self.max_local = self.max_local.max(other.max_local);
        self.first = self.first.or(other.first);
        self.top.merge(&other.top);
        self.magnitudes.merge(&other.magnitudes);
        self.ulps.merge(&other.ulps);
        if let (Some(profiles), Some(others)) = (&mut self.profiles, other.profiles) {
            profiles.merge(others);
        }
        self
    }

    /// The numbers.
    pub fn finish(self) -> Totals {
        let n = self.compared;
        let any = |number: f64| (self.numeric && n > 0).then_some(number);
        let identical = self.differing == 0;
        let norms = !self.reference_squares.is_zero() && !self.candidate_squares.is_zero();
        let cosine = || match self.squares.is_zero() {
            true => 1.0,
            false => self
                .dot
                .cosine(self.reference_squares, self.candidate_squares)
                .clamp(-1.0, 1.0),
        };
        Totals {
            count: self.count,
            compared: n,
            differing: self.differing,
            nonfinite_differing: self.nonfinite_differing,
            max_abs: any(self.max_abs),
            mean_abs: any(self.apart.over(n.max(1))),
            max_rel: any(self.max_relative),
            mean_rel: any(self.relative.over(n.max(1) as f64).value()),
            mse: any(self.squares.over(n.max(1))),
            rel_l2: match (identical, self.reference_squares.is_zero()) {
                (true, _) => Some(0.0),
                (false, true) => None,
                (false, false) => any(self.squares.root_ratio(self.reference_squares)),
            },
            cosine: norms.then(cosine),
            // Integers can be further apart than is counted; their step is 1.
            max_ulp: any(if self.max_ulp == u64::MAX {
                self.max_abs
            } else {
                self.max_ulp as f64
            }),
            worst: self.top.worst().or(self.first),
            max_local: any(self.max_local),
            beyond: self.tolerance.then_some(self.beyond),
            reference: self.reference.finish(),
            candidate: self.candidate.finish(),
            magnitudes: self.magnitudes.iter().collect(),
            ulps: self
                .ulps
                .iter()
                .map(|(bucket, count)| (bucket as u32, count))
                .collect(),
            profiles: self.profiles.map(Profiles::finish).unwrap_or_default(),
            top: self.top.first(self.wanted),
        }
    }
}

fn largest(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0.0, |most, x| if x.abs() > most { x.abs() } else { most })
}

fn sums(values: &[f64], scale: Scale, rest: &mut Vec<f64>) -> crate::kernel::Sums {
    if scale == Scale::One {
        return simd::f64(&bytes_of(values));
    }
    rest.clear();
    rest.extend(values.iter().map(|x| scale.divide(*x)));
    simd::f64(&bytes_of(rest))
}

/// `Σab`, each side divided by a power of two that keeps its squares in range.
fn dot(a: &[f64], b: &[f64]) -> Scaled {
    let (scale_a, scale_b) = (
        Scale::for_largest(largest(a)),
        Scale::for_largest(largest(b)),
    );
    let mut lanes = [0.0; 16];
    for (a, b) in a.chunks(16).zip(b.chunks(16)) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += scale_a.divide(*a) * scale_b.divide(*b);
        }
    }
    let sum = lanes
        .iter()
        .fold(Double::default(), |sum, lane| sum.plus(Double::new(*lane)));
    Scaled::new(sum.value(), [scale_a, scale_b])
}
