//! Several parts as one tensor: shards on an axis, partial sums, copies, zigzag sequences, grids of two, fused packings.

use super::{CutReason, KeepReason, Order, Parts, Step, Which, permute};
use permute::Way;

/// One way to put the parts of a side together.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub steps: Vec<Step>,
    pub dims: Vec<u64>,
    pub cost: u32,
    /// The axis the parts lie along and what each has of it, when they may be the pieces of a fused tensor.
    pub joined: Option<(usize, Vec<u64>)>,
    /// Some of the parts have copies of what others have, besides what is theirs alone: for the values to say.
    pub replicated: bool,
}

impl Whole {
    /// Put together along one axis and then along another, or in zigzag: in an order that shapes do not tell.
    pub(super) fn is_ordered(&self) -> bool {
        let grid = self
            .steps
            .iter()
            .filter(|step| matches!(step, Step::Concat { .. }))
            .count()
            > 1;
        grid || self.steps.iter().any(|step| {
            matches!(
                step,
                Step::Reorder {
                    order: Order::Zigzag { .. },
                    ..
                }
            )
        })
    }
}

const CONCAT: u32 = 10;
const COPIES: u32 = 20;
const SUM: u32 = 30;
const DUPLICATES: u32 = 40;
const AGAIN: u32 = 5;
pub(super) const ZIGZAG: u32 = 60;
const GRID: u32 = 70;
const PACKED: u32 = 80;
const REPLICATED: u32 = 90;
const CUT: u32 = 100;
/// Not where the other begins.
const ELSEWHERE: u32 = 20;

/// The ways to make one tensor of the parts, from their shapes alone.
pub(super) fn wholes(shapes: &[&[u64]], side: Which, kind: Parts) -> Vec<Whole> {
    let (Some(first), count) = (shapes.first(), shapes.len()) else {
        return Vec::new();
    };
    if count == 1 {
        return vec![Whole {
            steps: Vec::new(),
            dims: first.to_vec(),
            cost: 0,
            joined: None,
            replicated: false,
        }];
    }
    let rank = first.len();
    let mut all = Vec::new();
    for axis in 0..rank.max(1) {
        let Some((dims, sizes)) = joined(shapes, axis) else {
            continue;
        };
        let concat = Step::Concat {
            side,
            axis,
            parts: count,
        };
        // Equal costs would leave the choice between axes to chance.
        let cost = CONCAT + axis as u32;
        let pieces = (kind != Parts::Ranks).then(|| (axis, sizes.clone()));
        all.push(Whole {
            steps: vec![concat.clone()],
            dims: dims.clone(),
            cost,
            joined: pieces,
            replicated: false,
        });
        if matches!(kind, Parts::Pieces | Parts::RanksOfPieces(_)) || rank == 0 {
            continue;
        }
        if sizes
            .iter()
            .all(|size| size == &sizes[0] && size % 2 == 0 && *size > 0)
        {
            let zigzag = Step::Reorder {
                side,
                axis,
                order: Order::Zigzag {
                    ranks: count as u64,
                },
            };
            let cost = ZIGZAG + axis as u32;
            all.push(Whole {
                steps: vec![concat.clone(), zigzag],
                dims: dims.clone(),
                cost,
                joined: None,
                replicated: false,
            });
        }
        for (nth, sizes) in fused_sizes(dims[axis]).into_iter().enumerate() {
            if sizes.iter().all(|size| size.is_multiple_of(count as u64)) {
                let order = Order::Unpack {
                    groups: count as u64,
                    sizes,
                };
                let steps = vec![concat.clone(), Step::Reorder { side, axis, order }];
                all.push(Whole {
                    steps,
                    dims: dims.clone(),
                    cost: PACKED + nth as u32,
                    joined: None,
                    replicated: false,
                });
            }
        }
    }
    if let Parts::RanksOfPieces(ranks) = kind {
        all.extend(pieces_of_ranks(shapes, ranks, side));
    } else if kind != Parts::Pieces && shapes.iter().all(|shape| shape == first) {
        all.extend(of_equal_ranks(first, count, side));
        all.extend(replicated(first, count, side));
    }
    all
}

/// Most queries that a rank has for its key head.
const QUERIES: u64 = 64;

/// Queries, keys and values fused in every rank, with fewer key heads than ranks: each rank has queries of its own, and the one key and value
/// head that they attend to, which its neighbours have too.
fn replicated(shape: &[u64], count: usize, side: Which) -> Vec<Whole> {
    let mut all = Vec::new();
    for axis in 0..shape.len() {
        let rows = shape[axis];
        for queries in (1..=QUERIES).filter(|queries| rows > 0 && rows.is_multiple_of(queries + 2))
        {
            let head = rows / (queries + 2);
            let sizes = vec![queries * head, head, head];
            for copies in (2..=count).filter(|copies| count.is_multiple_of(*copies)) {
                // Each rank has three pieces; of queries all are taken, of keys and values one of every so many.
                let step = |piece: usize| if piece == 0 { 1 } else { copies };
                let (parts, of) = kept(3, count, step, |piece, rank| rank * 3 + piece);
                let mut dims = shape.to_vec();
                dims[axis] = head.saturating_mul(count as u64).saturating_mul(queries)
                    + 2 * head * (count / copies) as u64;
                let concat = Step::Concat {
                    side,
                    axis,
                    parts: parts.len(),
                };
                let steps = vec![
                    Step::Divide {
                        side,
                        axis,
                        sizes: sizes.clone(),
                    },
                    Step::Keep {
                        side,
                        parts,
                        of,
                        why: KeepReason::Copies,
                        differ: Vec::new(),
                    },
                    concat,
                ];
                all.push(Whole {
                    steps,
                    dims,
                    cost: REPLICATED + queries as u32,
                    joined: None,
                    replicated: true,
                });
            }
        }
    }
    all
}

/// The same where the pieces are tensors of their own, each with its ranks' shards: the first has one for each rank, the others copies.
fn pieces_of_ranks(shapes: &[&[u64]], ranks: usize, side: Which) -> Vec<Whole> {
    let mut all = Vec::new();
    if ranks < 2 || !shapes.len().is_multiple_of(ranks) {
        return all;
    }
    for axis in 0..shapes[0].len() {
        for copies in (2..=ranks).filter(|copies| ranks.is_multiple_of(*copies)) {
            let step = |piece: usize| if piece == 0 { 1 } else { copies };
            let (parts, of) = kept(shapes.len() / ranks, ranks, step, |piece, rank| {
                piece * ranks + rank
            });
            let left: Vec<&[u64]> = parts.iter().map(|part| shapes[*part]).collect();
            let Some((dims, _)) = joined(&left, axis) else {
                continue;
            };
            let concat = Step::Concat {
                side,
                axis,
                parts: parts.len(),
            };
            let steps = vec![
                Step::Keep {
                    side,
                    parts,
                    of,
                    why: KeepReason::Copies,
                    differ: Vec::new(),
                },
                concat,
            ];
            all.push(Whole {
                steps,
                dims,
                cost: REPLICATED + axis as u32,
                joined: None,
                replicated: true,
            });
        }
    }
    all
}

/// One of every `step` ranks of each piece, piece after piece, and what every part is a copy of; `at` is where a piece of a rank lies.
fn kept(
    pieces: usize,
    ranks: usize,
    step: impl Fn(usize) -> usize,
    at: impl Fn(usize, usize) -> usize,
) -> (Vec<usize>, Vec<usize>) {
    let (mut parts, mut of) = (Vec::new(), vec![0; pieces * ranks]);
    for piece in 0..pieces {
        for rank in 0..ranks {
            if rank % step(piece) == 0 {
                parts.push(at(piece, rank));
            }
            of[at(piece, rank)] = parts.len() - 1;
        }
    }
    (parts, of)
}

/// Sums, copies, duplicates and grids: what only ranks of one shape can be.
fn of_equal_ranks(shape: &[u64], count: usize, side: Which) -> Vec<Whole> {
    let whole = |steps, dims, cost| Whole {
        steps,
        dims,
        cost,
        joined: None,
        replicated: false,
    };
    let mut all = vec![
        whole(
            vec![Step::Keep {
                side,
                parts: vec![0],
                of: vec![0; count],
                why: KeepReason::Copies,
                differ: Vec::new(),
            }],
            shape.to_vec(),
            COPIES,
        ),
        whole(vec![Step::Sum { side, parts: count }], shape.to_vec(), SUM),
    ];
    for inner in (2..count).filter(|inner| count.is_multiple_of(*inner)) {
        let outer = count / inner;
        for axis in 0..shape.len() {
            // Fewer heads than ranks: neighbours hold the same ones. And shards of ranks that are there several times, as in data
            // parallelism: the first ones hold what the next as many do.
            let neighbours: (Vec<usize>, Vec<usize>) = (
                (0..count).step_by(inner).collect(),
                (0..count).map(|part| part / inner).collect(),
            );
            let again: (Vec<usize>, Vec<usize>) = (
                (0..outer).collect(),
                (0..count).map(|part| part % outer).collect(),
            );
            let mut dims = shape.to_vec();
            dims[axis] = dims[axis].saturating_mul(outer as u64);
            for (parts, of, price) in [
                (neighbours.0, neighbours.1, DUPLICATES),
                (again.0, again.1, DUPLICATES + AGAIN),
            ] {
                let keep = Step::Keep {
                    side,
                    parts,
                    of,
                    why: KeepReason::Copies,
                    differ: Vec::new(),
                };
                let steps = vec![
                    keep,
                    Step::Concat {
                        side,
                        axis,
                        parts: outer,
                    },
                ];
                all.extend(
                    zigzagged(&steps, axis, shape[axis], outer, side)
                        .map(|steps| whole(steps, dims.clone(), price + ZIGZAG)),
                );
                all.push(whole(steps, dims.clone(), price + axis as u32));
            }
            // Partial sums of shards, and shards of partial sums.
            let concat = Step::Concat {
                side,
                axis,
                parts: outer,
            };
            for steps in [
                vec![concat.clone(), Step::Sum { side, parts: inner }],
                vec![Step::Sum { side, parts: inner }, concat],
            ] {
                all.extend(
                    zigzagged(&steps, axis, shape[axis], outer, side)
                        .map(|steps| whole(steps, dims.clone(), GRID + ZIGZAG)),
                );
                all.push(whole(steps, dims.clone(), GRID + axis as u32));
            }
            for across in (0..shape.len()).filter(|across| *across != axis) {
                let mut dims = shape.to_vec();
                dims[axis] = dims[axis].saturating_mul(inner as u64);
                dims[across] = dims[across].saturating_mul(outer as u64);
                let grid = vec![
                    Step::Concat {
                        side,
                        axis,
                        parts: inner,
                    },
                    Step::Concat {
                        side,
                        axis: across,
                        parts: outer,
                    },
                ];
                let mut zigzag = grid.clone();
                zigzag.push(Step::Reorder {
                    side,
                    axis: across,
                    order: Order::Zigzag {
                        ranks: outer as u64,
                    },
                });
                let mut inside = grid.clone();
                inside.insert(
                    1,
                    Step::Reorder {
                        side,
                        axis,
                        order: Order::Zigzag {
                            ranks: inner as u64,
                        },
                    },
                );
                all.push(whole(grid, dims.clone(), GRID));
                all.push(whole(zigzag, dims.clone(), GRID + ZIGZAG));
                all.push(whole(inside, dims, GRID + ZIGZAG));
            }
        }
    }
    all
}

/// The same steps with a zigzag undone at their end, where each part has two chunks of it.
fn zigzagged(
    steps: &[Step],
    axis: usize,
    dim: u64,
    ranks: usize,
    side: Which,
) -> Option<Vec<Step>> {
    let order = Order::Zigzag {
        ranks: ranks as u64,
    };
    (dim > 0 && dim.is_multiple_of(2))
        .then(|| [steps, &[Step::Reorder { side, axis, order }]].concat())
}

/// Zigzag sequences of a batch whose dimensions every rank of the candidate has as one (`[b*s, h]`): only the other side's dimensions tell how many
/// there are.
pub(super) fn zigzag_of_batches(shapes: &[&[u64]], whole: &[u64]) -> Vec<Whole> {
    let (Some(first), count) = (shapes.first(), shapes.len() as u64) else {
        return Vec::new();
    };
    if count < 2 || !shapes.iter().all(|shape| shape == first) {
        return Vec::new();
    }
    let side = Which::Candidate;
    let mut all = Vec::new();
    for (axis, dim) in first.iter().enumerate() {
        for both in whole
            .windows(2)
            .filter(|both| both[0] > 1 && both[1].is_multiple_of(2 * count) && both[1] > 0)
        {
            let (batch, chunk) = (both[0], both[1] / count);
            if batch.checked_mul(chunk) != Some(*dim) {
                continue;
            }
            let dims = [&first[..axis], both, &first[axis + 1..]].concat();
            let order = Order::Zigzag { ranks: count };
            let steps = vec![
                Step::Split {
                    axis,
                    sizes: vec![batch, chunk],
                },
                Step::Concat {
                    side,
                    axis: axis + 1,
                    parts: shapes.len(),
                },
                Step::Reorder {
                    side,
                    axis: axis + 1,
                    order,
                },
            ];
            all.push(Whole {
                steps,
                dims,
                cost: ZIGZAG + AGAIN + axis as u32,
                joined: None,
                replicated: false,
            });
        }
    }
    all
}

fn joined(shapes: &[&[u64]], axis: usize) -> Option<(Vec<u64>, Vec<u64>)> {
    let first = shapes[0];
    if first.is_empty() {
        return shapes
            .iter()
            .all(|shape| shape.is_empty())
            .then(|| (vec![shapes.len() as u64], vec![1; shapes.len()]));
    }
    let fits = |shape: &&[u64]| {
        shape.len() == first.len()
            && (0..first.len()).all(|at| at == axis || shape[at] == first[at])
    };
    if !shapes.iter().all(fits) {
        return None;
    }
    let sizes: Vec<u64> = shapes.iter().map(|shape| shape[axis]).collect();
    let mut dims = first.to_vec();
    dims[axis] = sizes
        .iter()
        .try_fold(0u64, |sum, size| sum.checked_add(*size))?;
    Some((dims, sizes))
}

/// What an axis of fused weights can be made of: gate and up, query, key and value, with up to sixteen queries a key.
pub(super) fn fused_sizes(total: u64) -> Vec<Vec<u64>> {
    let mut all = Vec::new();
    if total > 0 && total.is_multiple_of(2) {
        all.push(vec![total / 2; 2]);
    }
    for queries in (1..=16).filter(|queries| total > 0 && total.is_multiple_of(queries + 2)) {
        let key = total / (queries + 2);
        all.push(vec![queries * key, key, key]);
    }
    all
}

/// What is simply put together, with its queries, keys and values taken out of every number of groups that they may be interleaved by.
pub(super) fn interleaved(wholes: &[Whole], side: Which) -> Vec<Whole> {
    let mut all = Vec::new();
    for whole in wholes {
        let axis = match whole.steps.as_slice() {
            [] => 0,
            [Step::Concat { axis, .. }] => *axis,
            _ => continue,
        };
        let sizes = whole
            .dims
            .get(axis)
            .map_or_else(Vec::new, |dim| fused_sizes(*dim));
        for sizes in sizes.into_iter().filter(|sizes| sizes.len() == 3) {
            for (groups, price) in groupings(&sizes) {
                let order = Order::Unpack {
                    groups,
                    sizes: sizes.clone(),
                };
                let steps = [
                    whole.steps.as_slice(),
                    &[Step::Reorder { side, axis, order }],
                ]
                .concat();
                all.push(Whole {
                    steps,
                    dims: whole.dims.clone(),
                    cost: whole.cost + price,
                    joined: None,
                    replicated: false,
                });
            }
        }
    }
    all
}

/// In how many groups pieces of these sizes can be interleaved, and the price of each.
pub(super) fn groupings(sizes: &[u64]) -> Vec<(u64, u32)> {
    let common = sizes.iter().copied().fold(0, permute::gcd);
    let groups = permute::divisors(common)
        .into_iter()
        .filter(|groups| *groups > 1 && sizes.len() > 1);
    groups
        .take(64)
        .enumerate()
        .map(|(nth, groups)| (groups, PACKED + nth as u32))
        .collect()
}

/// A way that leaves something out, and whether the shapes alone make it believable.
#[derive(Clone, Debug)]
pub(super) struct CutWay {
    pub way: Way,
    pub by_shape: bool,
}

/// Of so many slices, and of the last one, the values say whether they are meant.
const MOST_SLICES: u64 = 64;

/// The ways to line up shapes that differ in one dimension: its first indices are kept, the others are other ranks' or padding. Another
/// rank's slice, the last token, and padding on the left, are for the values to find: the shapes say nothing of them.
pub(super) fn cuts(reference: &[u64], candidate: &[u64]) -> Vec<CutWay> {
    // One number is in no recognisable way a part of many.
    if reference.iter().all(|dim| *dim == 1)
        || candidate.iter().all(|dim| *dim == 1)
        || [reference, candidate].concat().contains(&0)
    {
        return Vec::new();
    }
    let mut all = Vec::new();
    // A dimension that one side does not have is one of size one there.
    let places = |dims: &[u64]| {
        (0..dims.len())
            .filter(|at| dims[*at] != 1)
            .map(Some)
            .chain([None])
            .collect::<Vec<_>>()
    };
    for r in places(reference) {
        for c in places(candidate) {
            let (theirs, ours) = (
                r.map_or(1, |at| reference[at]),
                c.map_or(1, |at| candidate[at]),
            );
            if theirs == ours || rest(reference, r) != rest(candidate, c) {
                continue;
            }
            let (side, axis, len) = if theirs > ours {
                (Which::Reference, r, ours)
            } else {
                (Which::Candidate, c, theirs)
            };
            let (Some(axis), largest) = (axis, theirs.max(ours)) else {
                continue;
            };
            let (mut from, mut to) = (candidate.to_vec(), reference.to_vec());
            match side {
                Which::Reference => to[axis] = len,
                Which::Candidate => from[axis] = len,
            }
            let whole = largest.is_multiple_of(len);
            let slices = if whole {
                (largest / len - 1).min(MOST_SLICES)
            } else {
                1
            };
            let starts: Vec<u64> = (0..slices)
                .map(|rank| rank * len)
                .chain([largest - len])
                .collect();
            let ratio = largest / len;
            let why = if largest.is_multiple_of(len) {
                CutReason::RankZero
            } else {
                CutReason::Padding
            };
            let believable = match why {
                CutReason::RankZero => ratio.is_power_of_two() && ratio <= 64,
                _ => largest.is_multiple_of(8) && largest - len <= largest / 4,
            };
            let by_shape = believable && reference.len() == candidate.len() && reference.len() > 1;
            // What is cut and refactored besides could be anything.
            let simple = |way: &Way| {
                !way.steps
                    .iter()
                    .any(|step| matches!(step, Step::Split { .. } | Step::Merge { .. }))
            };
            let ways: Vec<Way> = permute::ways(&from, &to, 64)
                .into_iter()
                .filter(simple)
                .collect();
            // One rank's share of what is fused is a share of each piece: they are put side by side before the cut.
            if let Some(way) = ways.first().filter(|_| whole && ratio <= MOST_SLICES) {
                for (nth, sizes) in fused_sizes(largest)
                    .into_iter()
                    .enumerate()
                    .filter(|(_, sizes)| sizes.iter().all(|size| size.is_multiple_of(ratio)))
                {
                    let pack = Step::Reorder {
                        side,
                        axis,
                        order: Order::Pack {
                            groups: ratio,
                            sizes,
                        },
                    };
                    for start in (0..ratio).map(|rank| rank * len) {
                        let why = if start > 0 { CutReason::Found } else { why };
                        let cut = Step::Cut {
                            side,
                            axis,
                            start,
                            len,
                            why,
                        };
                        let cost = way.cost
                            + CUT
                            + PACKED
                            + nth as u32
                            + if start > 0 { ELSEWHERE } else { 0 };
                        let steps = [vec![pack.clone(), cut], way.steps.clone()].concat();
                        all.push(CutWay {
                            way: Way { steps, cost },
                            by_shape: false,
                        });
                    }
                }
            }
            for way in ways {
                for start in &starts {
                    let why = if *start > 0 && whole {
                        CutReason::Found
                    } else {
                        why
                    };
                    let cut = Step::Cut {
                        side,
                        axis,
                        start: *start,
                        len,
                        why,
                    };
                    let cost =
                        way.cost + CUT + axis as u32 + if *start > 0 { ELSEWHERE } else { 0 };
                    all.push(CutWay {
                        way: Way {
                            steps: [vec![cut], way.steps.clone()].concat(),
                            cost,
                        },
                        by_shape: by_shape && *start == 0,
                    });
                }
            }
        }
    }
    all.extend(two_cuts(reference, candidate));
    all
}

/// Batch and sequence both longer: only in place, and only when the values say so.
fn two_cuts(reference: &[u64], candidate: &[u64]) -> Option<CutWay> {
    let differing: Vec<usize> = (0..reference.len())
        .filter(|at| reference.len() == candidate.len() && reference[*at] != candidate[*at])
        .collect();
    if differing.len() != 2 || reference.len() < 3 {
        return None;
    }
    let cut = |axis: &usize| {
        let (r, c) = (reference[*axis], candidate[*axis]);
        let side = if r > c {
            Which::Reference
        } else {
            Which::Candidate
        };
        Step::Cut {
            side,
            axis: *axis,
            start: 0,
            len: r.min(c),
            why: CutReason::Padding,
        }
    };
    Some(CutWay {
        way: Way {
            steps: differing.iter().map(cut).collect(),
            cost: 2 * CUT,
        },
        by_shape: false,
    })
}

/// The other dimensions, sorted, without those of one.
fn rest(dims: &[u64], without: Option<usize>) -> Vec<u64> {
    let mut rest: Vec<u64> = (0..dims.len())
        .filter(|at| Some(*at) != without && dims[*at] != 1)
        .map(|at| dims[at])
        .collect();
    rest.sort_unstable();
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_the_divisors_of_every_size() {
        let groups: Vec<u64> = groupings(&[24, 12, 12])
            .into_iter()
            .map(|(groups, _)| groups)
            .collect();
        assert_eq!(groups, [2, 3, 4, 6, 12]);
        assert!(groupings(&[7]).is_empty());
        assert_eq!(groupings(&[9, 9]).len(), 2);
    }

    #[test]
    fn one_number_is_no_part_of_many() {
        assert!(cuts(&[1], &[8]).is_empty());
        assert!(cuts(&[4, 4], &[]).is_empty());
        assert!(cuts(&[3, 4], &[5]).is_empty());
    }

    #[test]
    fn the_first_of_eight_is_rank_zeros() {
        let all = cuts(&[8, 64, 76, 64], &[1, 64, 76, 64]);
        let expected = [Step::Cut {
            side: Which::Reference,
            axis: 0,
            start: 0,
            len: 1,
            why: CutReason::RankZero,
        }];
        assert!(
            all.iter()
                .any(|cut| cut.by_shape && cut.way.steps == expected),
            "{all:?}"
        );
    }
}
