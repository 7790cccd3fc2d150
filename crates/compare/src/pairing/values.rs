//! Content, where names and shapes tell nothing: tensors whose sketches are the same up to rounding and like nobody else's.
//!
//! Only confident pairs: each must be the other's best, within [`SAME`] of what chance would give, with every other tensor at least
//! [`MARGIN`] times as far. Two equal tensors on one side are therefore not paired, nor are constants. Each tensor is read at most once,
//! and only when the other side has one of as many elements.
//!
//! Where that paired something, what is left may belong to a module that is known now ([`siblings`]), or be the only one of its shape: the one
//! weight of a network that is wrong.

use super::{
    rules::{Board, CANDIDATE, REFERENCE},
    shape, siblings,
    sketch::Sketch,
};
use crate::settings::Rule;
use rayon::prelude::*;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};
use twinscope_tensor::{Operand, View, f64_values};

/// In units of chance (see [`Sketch::distance`]): seven nearly independent means this close by accident are one case in a million.
pub(super) const SAME: f64 = 0.1;
const MARGIN: f64 = 10.0;

/// Sketches compared for one number of elements; what is beyond stays unpaired.
const COMPARISONS: usize = 10_000_000;

type Sketched = Vec<(usize, Sketch)>;

pub(super) fn pair(board: &mut Board<'_, '_>) {
    let mut any = false;
    for (elements, mut units) in classes(board) {
        if (FEWEST_ELEMENTS..=EQUAL_CONTENT).contains(&elements) {
            for (reference, candidate) in equal_content(board, &units) {
                board.take(&[reference], &[candidate], Rule::Values, 1.0);
                units[REFERENCE].retain(|unit| *unit != reference);
                units[CANDIDATE].retain(|unit| *unit != candidate);
                any = true;
            }
        }
        let sketches = [REFERENCE, CANDIDATE].map(|side| sketch(board, side, &units[side]));
        for (reference, candidate, apart) in confident(&sketches) {
            board.take(
                &[reference],
                &[candidate],
                Rule::Values,
                1.0 / (1.0 + apart),
            );
            any = true;
        }
    }
    if any {
        siblings::pair(board);
    }
    if any && board.settings.rules.contains(&Rule::Shape) {
        shape::pair(board);
    }
}

/// Elements up to which content is compared as it is, and from which it is enough to tell a tensor by.
const EQUAL_CONTENT: u64 = 1 << 16;
const FEWEST_ELEMENTS: u64 = 4;
/// Different values from which a tensor is nobody's double by chance: of a few elements, and of many that are only yes and no.
const FEWEST_VALUES: usize = 3;
const MANY: usize = 64;

/// What a small tensor holds, as a number that no two different contents share in practice.
struct Content {
    in_order: u128,
    /// In any order; none where that tells little, as of yes and no, which are then only counted.
    sorted: Option<u128>,
}

/// Small tensors that hold exactly the same values as one of the other side, and as nobody else: in the same order, and then in any. A sketch
/// of a few values, of yes and no, or of tensors that are nearly alike tells less.
fn equal_content(board: &Board<'_, '_>, units: &[Vec<usize>; 2]) -> Vec<(usize, usize)> {
    let contents = [REFERENCE, CANDIDATE].map(|side| {
        let source = board.sides[side];
        let items: Vec<(usize, usize)> = units[side]
            .iter()
            .map(|unit| (*unit, board.unit(side, *unit).items[0]))
            .collect();
        let read =
            |(unit, item): &(usize, usize)| Some((*unit, content(&source.view(*item).ok()?)?));
        items
            .par_iter()
            .filter_map(read)
            .collect::<Vec<(usize, Content)>>()
    });
    let mut found = only_partners(&contents, |content| Some(content.in_order));
    let taken: HashSet<(usize, usize)> = found
        .iter()
        .flat_map(|(r, c)| [(REFERENCE, *r), (CANDIDATE, *c)])
        .collect();
    let mut side = REFERENCE;
    let left = contents.map(|contents| {
        let left = contents
            .into_iter()
            .filter(|(unit, _)| !taken.contains(&(side, *unit)))
            .collect::<Vec<_>>();
        side = CANDIDATE;
        left
    });
    found.extend(only_partners(&left, |content| content.sorted));
    found.sort_unstable();
    found
}

/// `None` when it cannot be read, or its values are too few to tell it by.
fn content(view: &View) -> Option<Content> {
    let (mut scratch, mut values) = (Vec::new(), Vec::new());
    let count = usize::try_from(Operand::len(view)).ok()?;
    if !f64_values(view, 0, count, &mut scratch, &mut values) || view.check().is_err() {
        return None;
    }
    let mut bits: Vec<u64> = values
        .iter()
        .map(|value| {
            if value.is_nan() {
                u64::MAX
            } else {
                (value + 0.0).to_bits()
            }
        })
        .collect();
    let in_order = digest(&bits);
    bits.sort_unstable();
    let different = bits.chunk_by(|a, b| a == b).count();
    let sorted = (different * 2 > bits.len()).then(|| digest(&bits));
    (different >= FEWEST_VALUES || different == 2 && bits.len() >= MANY)
        .then_some(Content { in_order, sorted })
}

fn digest(bits: &[u64]) -> u128 {
    let half = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, bits).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// Those whose content is that of one on each side.
fn only_partners(
    contents: &[Vec<(usize, Content)>; 2],
    key: impl Fn(&Content) -> Option<u128>,
) -> Vec<(usize, usize)> {
    let mut places: HashMap<u128, [Vec<usize>; 2]> = HashMap::new();
    for (side, contents) in contents.iter().enumerate() {
        for (unit, key) in contents
            .iter()
            .filter_map(|(unit, content)| Some((*unit, key(content)?)))
        {
            places.entry(key).or_default()[side].push(unit);
        }
    }
    let pair = |[reference, candidate]: [Vec<usize>; 2]| match (&reference[..], &candidate[..]) {
        (&[r], &[c]) => Some((r, c)),
        _ => None,
    };
    places.into_values().filter_map(pair).collect()
}

/// Free units by their number of elements, where both sides have some.
fn classes(board: &Board<'_, '_>) -> BTreeMap<u64, [Vec<usize>; 2]> {
    let mut classes: BTreeMap<u64, [Vec<usize>; 2]> = BTreeMap::new();
    for side in [REFERENCE, CANDIDATE] {
        for unit in board.free_units(side) {
            if let Some(elements) = board
                .single(side, unit)
                .and_then(|item| item.shape.elements())
                .filter(|elements| *elements > 1)
            {
                classes.entry(elements).or_default()[side].push(unit);
            }
        }
    }
    classes.retain(|_, units| units.iter().all(|units| !units.is_empty()));
    classes
}

/// Sketches by falling order of the largest value. What cannot be read has none; measuring it will say why.
fn sketch(board: &Board<'_, '_>, side: usize, units: &[usize]) -> Sketched {
    let source = board.sides[side];
    let items: Vec<(usize, usize)> = units
        .iter()
        .map(|unit| (*unit, board.unit(side, *unit).items[0]))
        .collect();
    let read =
        |(unit, item): &(usize, usize)| Some((*unit, Sketch::of(&source.view(*item).ok()?)?));
    let mut sketches: Sketched = items
        .par_iter()
        .filter_map(read)
        .filter(|(_, sketch)| sketch.tells())
        .collect();
    sketches.sort_by(|a, b| a.1.max().total_cmp(&b.1.max()).then(a.0.cmp(&b.0)));
    sketches
}

/// The nearest so far and how far the second is.
#[derive(Clone, Copy)]
struct Best {
    who: usize,
    apart: f64,
    second: f64,
}

impl Best {
    fn none() -> Self {
        Self {
            who: usize::MAX,
            apart: f64::INFINITY,
            second: f64::INFINITY,
        }
    }

    fn insert(&mut self, who: usize, apart: f64) {
        if apart < self.apart {
            (self.who, self.second, self.apart) = (who, self.apart, apart);
        } else {
            self.second = self.second.min(apart);
        }
    }

    fn is_clear(&self) -> bool {
        self.apart <= SAME && self.second > SAME.max(MARGIN * self.apart)
    }
}

fn confident([reference, candidate]: &[Sketched; 2]) -> Vec<(usize, usize, f64)> {
    if reference.len().saturating_mul(candidate.len()) > COMPARISONS {
        return Vec::new();
    }
    let mut best: HashMap<(usize, usize), Best> = HashMap::new();
    for (r, one) in reference {
        for (c, other) in candidate {
            if let Some(apart) = one
                .distance(other)
                .filter(|apart| *apart <= MARGIN * SAME && one.same_extremes(other))
            {
                best.entry((REFERENCE, *r))
                    .or_insert_with(Best::none)
                    .insert(*c, apart);
                best.entry((CANDIDATE, *c))
                    .or_insert_with(Best::none)
                    .insert(*r, apart);
            }
        }
    }
    let pair = |(r, _): &(usize, Sketch)| {
        let found = best.get(&(REFERENCE, *r))?;
        let back = best.get(&(CANDIDATE, found.who))?;
        (found.is_clear() && back.is_clear() && back.who == *r).then_some((
            *r,
            found.who,
            found.apart,
        ))
    };
    reference.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use crate::{pairing::testing::*, settings::Rule};
    use twinscope_tensor::DType;

    fn noise(seed: u32, count: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as f32 / u32::MAX as f32
        };
        (0..count)
            .map(|_| (0..6).map(|_| next()).sum::<f32>() - 3.0)
            .collect()
    }

    fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
        (0..rows * columns)
            .map(|at| values[at % rows * columns + at / rows])
            .collect()
    }

    fn by_values(reference: &Source, candidate: &Source) -> Vec<String> {
        result(&settings(&[Rule::Values]), reference, candidate).0
    }

    #[test]
    fn the_partner_is_found_by_content_also_transposed_and_rounded() {
        let tensors: Vec<Vec<f32>> = (1..=5).map(|seed| noise(seed, 1200)).collect();
        let reference = tensors
            .iter()
            .enumerate()
            .fold(Source::new(), |source, (at, values)| {
                source.f32(&format!("r{at}"), &[30, 40], values)
            });
        let mut candidate = Source::new();
        for at in [3, 0, 4, 1, 2] {
            let turned = transposed(&tensors[at], 30, 40);
            let bf16 = turned
                .iter()
                .flat_map(|value| (((value.to_bits() + 0x8000) >> 16) as u16).to_le_bytes())
                .collect();
            candidate = candidate.with(&format!("c{at}"), DType::Bf16, &[40, 30], bf16);
        }
        assert_eq!(
            by_values(&reference, &candidate),
            ["r0=c0", "r1=c1", "r2=c2", "r3=c3", "r4=c4"]
        );
    }

    #[test]
    fn small_tensors_are_told_by_what_they_hold() {
        let side = |letter: &str, order: [usize; 4], tensors: &dyn Fn(usize) -> Vec<f32>| {
            order
                .iter()
                .enumerate()
                .fold(Source::new(), |source, (at, seed)| {
                    let values = tensors(*seed);
                    source.f32(&format!("{letter}{at}"), &[values.len() as u64], &values)
                })
        };
        let expected = ["r0=c3", "r1=c0", "r2=c1", "r3=c2"];
        let few = |seed: usize| noise(seed as u32 + 1, 5);
        assert_eq!(
            by_values(
                &side("r", [0, 1, 2, 3], &few),
                &side("c", [1, 2, 3, 0], &few)
            ),
            expected
        );
        // As many of each, in other places.
        let mask = |seed: usize| {
            (0..80)
                .map(|at| {
                    if (at / (seed + 1)).is_multiple_of(2) {
                        1.0
                    } else {
                        0.0
                    }
                })
                .collect::<Vec<f32>>()
        };
        assert_eq!(
            by_values(
                &side("r", [0, 1, 2, 3], &mask),
                &side("c", [1, 2, 3, 0], &mask)
            ),
            expected
        );
        // What is constant, or twice there, is nobody's.
        let constant = |seed: usize| vec![seed as f32; 5];
        assert!(
            by_values(
                &side("r", [0, 1, 2, 3], &constant),
                &side("c", [1, 2, 3, 0], &constant)
            )
            .is_empty()
        );
        assert!(
            by_values(
                &side("r", [0, 0, 0, 0], &few),
                &side("c", [0, 1, 1, 0], &few)
            )
            .is_empty()
        );
    }

    #[test]
    fn the_one_that_is_wrong_is_what_is_left_of_its_shape() {
        let tensors: Vec<Vec<f32>> = (1..=4).map(|seed| noise(seed, 600)).collect();
        let side = |letter: &str, seeds: [usize; 3]| {
            seeds
                .iter()
                .enumerate()
                .fold(Source::new(), |source, (at, seed)| {
                    source.f32(&format!("{letter}{at}"), &[20, 30], &tensors[*seed])
                })
        };
        let rules = settings(&[Rule::Shape, Rule::Values]);
        assert_eq!(
            result(&rules, &side("r", [0, 1, 2]), &side("c", [2, 3, 0])).0,
            ["r0=c2", "r1=c1", "r2=c0"]
        );
        assert_eq!(
            by_values(&side("r", [0, 1, 2]), &side("c", [2, 3, 0])).len(),
            2,
            "nobody asked for shapes"
        );
    }

    #[test]
    fn unrelated_tensors_of_one_distribution_are_not_paired() {
        let fill = |seeds: std::ops::Range<u32>| {
            seeds.fold(Source::new(), |source, seed| {
                source.f32(&format!("t{seed}"), &[500], &noise(seed, 500))
            })
        };
        assert!(by_values(&fill(1..20), &fill(20..40)).is_empty());
    }

    #[test]
    fn equal_tensors_and_constants_are_not_told_apart() {
        let values = noise(1, 100);
        let twice = Source::new()
            .f32("a", &[100], &values)
            .f32("b", &[100], &values);
        assert!(by_values(&twice, &Source::new().f32("x", &[100], &values)).is_empty());
        let zeros = Source::new().f32("zeros", &[100], &[0.0; 100]);
        assert!(by_values(&zeros, &zeros).is_empty());
    }

    #[test]
    fn a_tensor_that_cannot_be_read_is_a_leftover() {
        let reference = Source::shaped(&[("a", &[100])]);
        assert!(by_values(&reference, &Source::new().f32("x", &[100], &noise(1, 100))).is_empty());
    }
}
