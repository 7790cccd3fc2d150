//! Every way to read one shape as another of as many elements: drop and add dimensions of one, split, permute, merge.
//!
//! A dimension of either shape is a product of atoms, and an atom belongs to one dimension of each. Atoms are found by a search in
//! which every atom completes a dimension of one shape or of the other; that gives nearly each swap, split and merge people use, and no
//! arbitrary factorisations. A second, short search lets one atom complete neither: the `b` of `[b*h, s, d]` and `[b*s, h*d]`. Ways come
//! with a cost, the simplest first.

use super::Step;

/// Steps of the candidate and what they cost.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub steps: Vec<Step>,
    pub cost: u32,
}

pub(super) const RESIZE: u32 = 10;
pub(super) const PERMUTE: u32 = 20;
pub(super) const REFACTOR: u32 = 30;
/// Atoms in another order than a plain reshape has them.
pub(super) const TURNED: u32 = 40;
pub(super) const FLATTEN: u32 = 1000;

/// Beyond this many dimensions that are not one, only reshapes that keep the order are tried.
const EXHAUSTIVE_RANK: usize = 8;
/// Steps of the search; a shape of eight equal dimensions would have 40,320 permutations.
const BUDGET: usize = 20_000;
/// How many ways with an atom that completes nothing.
const MOST_LOOSE: usize = 64;
const LOOSE: u32 = 60;

/// A common factor: of which dimension (that is not one) of either shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Atom {
    pub from: usize,
    pub to: usize,
    pub size: u64,
}

/// The ways from one shape to another of as many elements, the cheapest first, `most` at most.
pub(super) fn ways(from: &[u64], to: &[u64], most: usize) -> Vec<Way> {
    let rows: Vec<u64> = from.iter().copied().filter(|dim| *dim != 1).collect();
    let columns: Vec<u64> = to.iter().copied().filter(|dim| *dim != 1).collect();
    let mut found = Vec::new();
    if rows.len().max(columns.len()) > EXHAUSTIVE_RANK {
        found.extend(
            in_order(&rows, &columns)
                .and_then(|atoms| steps_of(from, to, &atoms, &by_column(&atoms, columns.len()))),
        );
        return found;
    }
    for (loose, most) in [(false, most), (true, most.min(MOST_LOOSE))] {
        for atoms in Search::new(&rows, &columns, loose, most).run() {
            for order in column_orders(by_column(&atoms, columns.len())) {
                let way = steps_of(from, to, &atoms, &order);
                found.extend(way.map(|way| Way {
                    cost: way.cost + if loose { LOOSE } else { 0 },
                    ..way
                }));
            }
        }
    }
    found.sort_by_key(|way| way.cost);
    found.truncate(most);
    found
}

struct Search<'a> {
    rows: &'a [u64],
    /// What is left of each dimension of the target.
    open: Vec<u64>,
    done: Vec<bool>,
    atoms: Vec<Atom>,
    limit: usize,
    budget: usize,
    most: usize,
    /// Whether one atom is still to complete nothing.
    loose: bool,
    found: Vec<Vec<Atom>>,
}

impl<'a> Search<'a> {
    fn new(rows: &'a [u64], columns: &[u64], loose: bool, most: usize) -> Self {
        let limit = rows.len().max(columns.len()) + 1;
        let done = vec![false; columns.len()];
        Self {
            rows,
            open: columns.to_vec(),
            done,
            atoms: Vec::new(),
            limit,
            budget: BUDGET,
            most,
            loose,
            found: Vec::new(),
        }
    }

    fn run(mut self) -> Vec<Vec<Atom>> {
        self.row(0, self.rows.first().copied().unwrap_or(1), 0);
        self.found
    }

    /// Continues in dimension `at`, of which `left` is not yet given away; its atoms begin at `first`.
    fn row(&mut self, at: usize, left: u64, first: usize) {
        if self.budget == 0 || self.found.len() >= self.most {
            return;
        }
        self.budget -= 1;
        if at == self.rows.len() {
            if self.done.iter().all(|done| *done) && !self.loose {
                self.found.push(self.atoms.clone());
            }
            return;
        }
        // Whole dimensions first: they are the simplest.
        for whole in [true, false] {
            for to in 0..self.open.len() {
                let open = self.open[to];
                if self.done[to]
                    || (open == left) != whole
                    || self.atoms[first..].iter().any(|atom| atom.to == to)
                {
                    continue;
                }
                match (left, open) {
                    _ if left == open => self.give(at, left, first, to, left),
                    (0, _) | (_, 0) => {}
                    _ if open.is_multiple_of(left) => self.give(at, left, first, to, left),
                    _ if left.is_multiple_of(open) => self.give(at, left, first, to, open),
                    _ => {}
                }
            }
        }
        if self.loose && left > 1 {
            self.give_loosely(at, left, first);
        }
    }

    /// An atom that completes neither: any common divisor.
    fn give_loosely(&mut self, at: usize, left: u64, first: usize) {
        self.loose = false;
        for to in 0..self.open.len() {
            let open = self.open[to];
            if self.done[to] || open == 0 || self.atoms[first..].iter().any(|atom| atom.to == to) {
                continue;
            }
            for size in divisors(gcd(left, open))
                .into_iter()
                .filter(|size| *size > 1 && *size != left && *size != open)
            {
                self.give(at, left, first, to, size);
            }
        }
        self.loose = true;
    }

    /// Goes on with `size` of this dimension given to dimension `to` of the target.
    fn give(&mut self, at: usize, left: u64, first: usize, to: usize, size: u64) {
        if self.atoms.len() + self.rows.len() - at > self.limit {
            return;
        }
        let open = self.open[to];
        self.atoms.push(Atom { from: at, to, size });
        self.done[to] = open == size;
        self.open[to] = open.checked_div(size).unwrap_or(0);
        if left == size {
            self.row(
                at + 1,
                self.rows.get(at + 1).copied().unwrap_or(1),
                self.atoms.len(),
            );
        } else {
            self.row(at, left / size, first);
        }
        self.atoms.pop();
        self.done[to] = false;
        self.open[to] = open;
    }
}

pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// In ascending order; none of a number so large that looking for them would take long.
pub(super) fn divisors(number: u64) -> Vec<u64> {
    if number == 0 || number > 1 << 24 {
        return Vec::new();
    }
    let mut all: Vec<u64> = (1..=number)
        .take_while(|d| d * d <= number)
        .filter(|d| number.is_multiple_of(*d))
        .collect();
    let large: Vec<u64> = all.iter().rev().map(|d| number / d).collect();
    all.extend(large);
    all.dedup();
    all
}

/// Whether dropping, adding and permuting dimensions is enough.
pub(super) fn same_dims(from: &[u64], to: &[u64]) -> bool {
    let sorted = |dims: &[u64]| {
        let mut dims: Vec<u64> = dims.iter().copied().filter(|dim| *dim != 1).collect();
        dims.sort_unstable();
        dims
    };
    sorted(from) == sorted(to)
}

/// Whether a plain reshape is among the ways, so that reading both as one row would be nothing new.
pub(super) fn nests(from: &[u64], to: &[u64]) -> bool {
    let large = |dims: &[u64]| {
        dims.iter()
            .copied()
            .filter(|dim| *dim != 1)
            .collect::<Vec<_>>()
    };
    in_order(&large(from), &large(to)).is_some()
}

/// The atoms of a plain reshape, when its dimensions nest.
fn in_order(rows: &[u64], columns: &[u64]) -> Option<Vec<Atom>> {
    let (mut atoms, mut from, mut to) = (Vec::new(), 0, 0);
    let (mut left, mut open) = (rows.first().copied(), columns.first().copied());
    while let (Some(l), Some(o)) = (left, open) {
        let size = match (l, o) {
            _ if l == o => l,
            (0, _) | (_, 0) => return None,
            _ if o.is_multiple_of(l) => l,
            _ if l.is_multiple_of(o) => o,
            _ => return None,
        };
        atoms.push(Atom { from, to, size });
        let next = |value: u64, at: &mut usize, all: &[u64]| {
            if value == size {
                *at += 1;
                all.get(*at).copied()
            } else {
                Some(value / size)
            }
        };
        (left, open) = (next(l, &mut from, rows), next(o, &mut to, columns));
    }
    (left.is_none() && open.is_none()).then_some(atoms)
}

/// The atoms of each dimension of the target, in the order they were found.
pub(super) fn by_column(atoms: &[Atom], columns: usize) -> Vec<Vec<usize>> {
    (0..columns)
        .map(|to| (0..atoms.len()).filter(|at| atoms[*at].to == to).collect())
        .collect()
}

/// Every order of the atoms inside the dimensions of the target, the natural one first.
fn column_orders(natural: Vec<Vec<usize>>) -> Vec<Vec<Vec<usize>>> {
    let count: usize = natural
        .iter()
        .map(|atoms| (1..=atoms.len()).product::<usize>())
        .fold(1, usize::saturating_mul);
    if count > 24 {
        return vec![natural];
    }
    natural.iter().fold(vec![Vec::new()], |all, atoms| {
        let orders = permutations(atoms);
        all.iter()
            .flat_map(|before| {
                orders
                    .iter()
                    .map(move |order| [before.clone(), vec![order.clone()]].concat())
            })
            .collect()
    })
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.len() < 2 {
        return vec![items.to_vec()];
    }
    let mut all = Vec::new();
    for (at, first) in items.iter().enumerate() {
        let rest = [&items[..at], &items[at + 1..]].concat();
        all.extend(
            permutations(&rest)
                .into_iter()
                .map(|tail| [vec![*first], tail].concat()),
        );
    }
    all
}

/// An atom, or a dimension of one that is kept.
#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Atom(usize),
    One(usize),
}

/// The steps for one choice of atoms: `atoms` in the order of the dimensions they come from, `columns` the order of those they go to.
pub(super) fn steps_of(
    from: &[u64],
    to: &[u64],
    atoms: &[Atom],
    columns: &[Vec<usize>],
) -> Option<Way> {
    let ones =
        |dims: &[u64]| -> Vec<usize> { (0..dims.len()).filter(|at| dims[*at] == 1).collect() };
    let (old_ones, new_ones) = (ones(from), ones(to));
    let kept = old_ones.len().min(new_ones.len());
    let (old_choices, new_choices) = (subsets(&old_ones, kept), subsets(&new_ones, kept));
    let choices = old_choices
        .iter()
        .flat_map(|old| new_choices.iter().map(move |new| (old, new)));
    let plan = choices
        .map(|(old, new)| Plan::new(from, to, atoms, columns, old, new))
        .min_by_key(|plan| plan.inversions)?;
    Some(plan.way(from, to, atoms, columns))
}

/// Every choice of `count` items, up to 70; the last ones first, because what is dropped is mostly at the front.
fn subsets(items: &[usize], count: usize) -> Vec<Vec<usize>> {
    if count == items.len() || items.len() > 8 {
        return vec![items[items.len() - count..].to_vec()];
    }
    let all = (0u32..1 << items.len())
        .rev()
        .filter(|bits| bits.count_ones() as usize == count);
    all.map(|bits| {
        (0..items.len())
            .filter(|at| bits >> at & 1 == 1)
            .map(|at| items[at])
            .collect()
    })
    .collect()
}

struct Plan {
    /// Dimensions of one that stay, in both shapes.
    old: Vec<usize>,
    new: Vec<usize>,
    order: Vec<usize>,
    inversions: u32,
}

impl Plan {
    fn new(
        from: &[u64],
        to: &[u64],
        atoms: &[Atom],
        columns: &[Vec<usize>],
        old: &[usize],
        new: &[usize],
    ) -> Self {
        let pieces = |dims: &[u64], kept: &[usize], of: &dyn Fn(usize) -> Vec<usize>| {
            let (mut pieces, mut row) = (Vec::new(), 0);
            for (at, dim) in dims.iter().enumerate() {
                if *dim == 1 {
                    pieces.extend(kept.iter().position(|one| *one == at).map(Piece::One));
                } else {
                    pieces.extend(of(row).into_iter().map(Piece::Atom));
                    row += 1;
                }
            }
            pieces
        };
        let rows = |row: usize| {
            (0..atoms.len())
                .filter(|at| atoms[*at].from == row)
                .collect()
        };
        let source = pieces(from, old, &rows);
        let target = pieces(to, new, &|column| columns[column].clone());
        let order: Vec<usize> = target
            .iter()
            .filter_map(|piece| source.iter().position(|other| other == piece))
            .collect();
        let inversions = (0..order.len())
            .map(|a| order[a + 1..].iter().filter(|b| **b < order[a]).count() as u32)
            .sum();
        Self {
            old: old.to_vec(),
            new: new.to_vec(),
            order,
            inversions,
        }
    }

    fn way(self, from: &[u64], to: &[u64], atoms: &[Atom], columns: &[Vec<usize>]) -> Way {
        let (mut steps, mut cost) = (Vec::new(), 0);
        let mut step = |step, price| {
            steps.push(step);
            cost += price;
        };
        // From the last on, so that the numbers are those of the shape one sees.
        let dropped = |dims: &[u64], kept: &[usize]| {
            (0..dims.len())
                .filter(|at| dims[*at] == 1 && !kept.contains(at))
                .collect::<Vec<_>>()
        };
        for axis in dropped(from, &self.old).into_iter().rev() {
            step(Step::Squeeze { axis }, RESIZE);
        }
        let (mut axis, mut row) = (0, 0);
        for (at, dim) in from.iter().enumerate() {
            if *dim == 1 {
                axis += usize::from(self.old.contains(&at));
                continue;
            }
            let parts: Vec<&Atom> = atoms.iter().filter(|atom| atom.from == row).collect();
            if parts.len() > 1 {
                let turned = !parts.is_sorted_by_key(|atom| atom.to);
                step(
                    Step::Split {
                        axis,
                        sizes: parts.iter().map(|atom| atom.size).collect(),
                    },
                    REFACTOR + if turned { TURNED } else { 0 },
                );
            }
            axis += parts.len();
            row += 1;
        }
        if !self.order.is_sorted() {
            step(
                Step::Permute {
                    order: self.order.clone(),
                },
                PERMUTE + self.inversions,
            );
        }
        let (mut axis, mut column) = (0, 0);
        for (at, dim) in to.iter().enumerate() {
            if *dim == 1 {
                axis += usize::from(self.new.contains(&at));
                continue;
            }
            let count = columns[column].len();
            if count > 1 {
                let turned = !columns[column].is_sorted();
                step(
                    Step::Merge { axis, count },
                    REFACTOR + if turned { TURNED } else { 0 },
                );
            }
            axis += 1;
            column += 1;
        }
        for axis in dropped(to, &self.new) {
            step(Step::Unsqueeze { axis }, RESIZE);
        }
        Way { steps, cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(from: &[u64], to: &[u64]) -> Vec<Step> {
        ways(from, to, 100).into_iter().next().expect("a way").steps
    }

    #[test]
    fn the_simplest_way_comes_first() {
        assert_eq!(
            best(&[1, 76, 2880], &[76, 2880]),
            [Step::Squeeze { axis: 0 }]
        );
        assert_eq!(best(&[8, 10, 1], &[8, 10]), [Step::Squeeze { axis: 2 }]);
        assert_eq!(
            best(&[1, 8, 10, 1], &[1, 8, 10]),
            [Step::Squeeze { axis: 3 }]
        );
        assert_eq!(
            best(&[1, 8, 76, 64], &[76, 8, 64]),
            [
                Step::Squeeze { axis: 0 },
                Step::Permute {
                    order: vec![1, 0, 2]
                }
            ]
        );
        assert_eq!(
            best(&[1, 64, 76], &[1, 76, 64]),
            [Step::Permute {
                order: vec![0, 2, 1]
            }]
        );
        assert_eq!(
            best(&[], &[1, 1]),
            [Step::Unsqueeze { axis: 0 }, Step::Unsqueeze { axis: 1 }]
        );
        assert_eq!(
            best(&[5, 24], &[5, 4, 6]),
            [Step::Split {
                axis: 1,
                sizes: vec![4, 6]
            }]
        );
        assert_eq!(
            best(&[5, 4, 6], &[20, 6]),
            [Step::Merge { axis: 0, count: 2 }]
        );
    }

    #[test]
    fn heads_are_split_off_and_moved() {
        let ways = ways(&[2, 76, 512], &[2, 8, 76, 64], 100);
        let expected = [
            Step::Split {
                axis: 2,
                sizes: vec![8, 64],
            },
            Step::Permute {
                order: vec![0, 2, 1, 3],
            },
        ];
        assert!(ways.iter().any(|way| way.steps == expected), "{ways:?}");
    }

    #[test]
    fn batches_of_heads_become_rows_of_tokens() {
        let expected = [
            Step::Split {
                axis: 0,
                sizes: vec![6, 4],
            },
            Step::Permute {
                order: vec![0, 2, 1, 3],
            },
            Step::Merge { axis: 0, count: 2 },
        ];
        let ways = ways(&[24, 8, 5], &[48, 20], 100);
        assert!(
            ways.iter().any(|way| way.steps.starts_with(&expected)),
            "{ways:?}"
        );
    }

    #[test]
    fn square_shapes_have_every_permutation() {
        assert_eq!(
            ways(&[1, 64, 76, 64], &[76, 64, 64], 100)
                .iter()
                .filter(|way| way.steps.len() == 2)
                .count(),
            2
        );
        assert_eq!(ways(&[7, 7, 7], &[7, 7, 7], 100).len(), 6);
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
    }

    #[test]
    fn empty_shapes_are_only_permuted() {
        assert_eq!(
            best(&[0, 3], &[3, 0]),
            [Step::Permute { order: vec![1, 0] }]
        );
        assert!(ways(&[0, 3], &[0, 5], 100).is_empty());
    }

    #[test]
    fn the_search_is_bounded() {
        assert!(ways(&[2; 8], &[2; 8], 500).len() <= 500);
        assert_eq!(ways(&[2; 40], &[2; 40], 500).len(), 1);
        assert_eq!(ways(&[2; 12], &[4; 6], 500).len(), 1);
        assert!(ways(&[2; 9], &[512], 500).len() == 1);
    }
}
