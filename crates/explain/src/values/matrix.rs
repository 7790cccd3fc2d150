//! A tensor as rows and columns, and what a few products of a row's and a column's numbers make of it.
//!
//! `y_ij ≈ s_i r_ij + Σ_k m_ik w_kj`, with or without the first term, fitted in turns: the numbers of each row with those of the columns held, then the
//! other way round. Only elements that may be used to fit are looked at, so the others say whether it is true. Of long axes a few hundred indices find
//! the shared numbers; each row and column is then fitted by itself.

use super::{groups::Groups, sampling::spread};
use crate::Case;

/// Ranks up to here are few.
pub(super) const MOST_RANK: usize = 4;
const UNKNOWNS: usize = MOST_RANK + 1;

/// Where the rows and columns of a tensor are: element `(i, j)` is at `rows[i] + columns[j]`.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    pub(super) rows: Vec<usize>,
    pub(super) columns: Vec<usize>,
    /// The axes that the columns are along.
    pub(super) axes: Vec<usize>,
}

/// What is fitted: `candidate - reference` by products alone, or the candidate by a factor per row and products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    Difference,
    Candidate,
}

/// Rows and columns looked at to find the shared numbers.
const SAMPLED: usize = 192;
/// ...and to decide whether it is worth it.
const GLANCED: usize = 64;
const TURNS: usize = 60;
/// Power iterations of the first guess.
const ITERATIONS: usize = 12;
/// Iterations for the vector in all planes; a direction that most rows share is nearly in all of them too.
const PLANE_ITERATIONS: usize = 200;
/// The share of a difference that its rows or columns hold when it is in them; the rest is rounding of the others.
const HELD: f64 = 0.99;
/// Axes shorter than this have no rank to speak of.
const LEAST: usize = 5;

impl Matrix {
    /// The ways to see a tensor as a matrix: columns along the last axis, or along it and one more (heads).
    pub(super) fn ways(case: &Case<'_>) -> Vec<Self> {
        let axes: Vec<usize> = case.axes().collect();
        let Some((last, others)) = axes.split_last() else {
            return Vec::new();
        };
        let mut ways = vec![vec![*last]];
        if others.len() > 2 {
            ways.extend(others.iter().skip(1).map(|other| vec![*other, *last]));
        }
        let of = |columns: &Vec<usize>| {
            let groups = Groups::of(case.dims, columns);
            Self {
                rows: (0..groups.size).map(|row| groups.step(row)).collect(),
                columns: (0..groups.count)
                    .map(|column| groups.start(column))
                    .collect(),
                axes: columns.clone(),
            }
        };
        ways.iter()
            .map(of)
            .filter(|matrix| matrix.rows.len() >= LEAST && matrix.columns.len() >= LEAST)
            .collect()
    }

    /// How much of the difference each number of products leaves, from none to [`MOST_RANK`], on a small part. `None` when not finite.
    pub(super) fn glance(&self, case: &Case<'_>) -> Option<Glance> {
        let part = self.part(GLANCED);
        let mut rest = part.rest(case, Goal::Difference)?;
        let mut left = vec![rest.energy()];
        for _ in 0..MOST_RANK
            .min(part.rows.len() / 4)
            .min(part.columns.len() / 4)
        {
            rest.take_largest();
            left.push(rest.energy());
        }
        Some(Glance {
            left,
            candidate: part.energy(case),
        })
    }

    /// Whether `few` rows, or as many columns, hold the difference: then its rank says only how few they are.
    pub(super) fn is_in_few(&self, case: &Case<'_>, few: usize) -> bool {
        let (mut rows, mut columns) = (vec![0.0; self.rows.len()], vec![0.0; self.columns.len()]);
        for (i, row) in self.rows.iter().enumerate() {
            for (j, column) in self.columns.iter().enumerate() {
                let square = (case.candidate[row + column] - case.reference[row + column]).powi(2);
                rows[i] += square;
                columns[j] += square;
            }
        }
        let holds = |mut energies: Vec<f64>| {
            energies.sort_unstable_by(|a, b| b.total_cmp(a));
            energies.iter().take(few).sum::<f64>() >= HELD * energies.iter().sum::<f64>()
        };
        holds(rows) || holds(columns)
    }

    /// What a factor per row leaves of the candidate, as a share, and how much of that one vector shared by the rows would take; on a small part.
    pub(super) fn glance_beside_factors(&self, case: &Case<'_>) -> Option<(f64, f64)> {
        let part = self.part(GLANCED);
        let rest = part.rest(case, Goal::Candidate)?;
        Some((
            rest.energy() / part.energy(case),
            part.in_every_plane(case, &rest).1,
        ))
    }

    fn energy(&self, case: &Case<'_>) -> f64 {
        let row = |row: &usize| {
            self.columns
                .iter()
                .map(|column| case.candidate[row + column].powi(2))
                .sum::<f64>()
        };
        self.rows.iter().map(row).sum()
    }

    /// The vector nearest to all the planes of a row's reference and candidate, and how near, from 0 to 1: where `c = s r + m w` in every row, `w` lies in
    /// all of them. Rows count by what is left of them beside the factor. The largest eigenvector of the sum of the projections.
    fn in_every_plane(&self, case: &Case<'_>, rest: &Dense) -> (Vec<f64>, f64) {
        let width = self.columns.len();
        let unit = |values: Vec<f64>| -> Vec<f64> {
            let length = values.iter().map(|value| value * value).sum::<f64>().sqrt();
            values
                .into_iter()
                .map(|value| if length > 0.0 { value / length } else { 0.0 })
                .collect()
        };
        let planes: Vec<[Vec<f64>; 2]> = self
            .rows
            .iter()
            .zip(rest.values.chunks(width))
            .map(|(row, rest)| {
                [
                    unit(
                        self.columns
                            .iter()
                            .map(|column| case.reference[row + column])
                            .collect(),
                    ),
                    unit(rest.to_vec()),
                ]
            })
            .collect();
        let weights: Vec<f64> = rest
            .values
            .chunks(width)
            .map(|row| row.iter().map(|value| value * value).sum())
            .collect();
        let all: f64 = weights.iter().sum();
        let largest = (0..weights.len())
            .max_by(|a, b| weights[*a].total_cmp(&weights[*b]))
            .unwrap_or(0);
        let (mut vector, mut near) = (planes[largest][1].clone(), 0.0);
        for _ in 0..PLANE_ITERATIONS {
            let mut next = vec![0.0; width];
            for (plane, weight) in planes.iter().zip(&weights) {
                for side in plane {
                    let along = weight * side.iter().zip(&vector).map(|(a, b)| a * b).sum::<f64>();
                    next.iter_mut()
                        .zip(side)
                        .for_each(|(next, value)| *next += along * value);
                }
            }
            let length = next.iter().map(|value| value * value).sum::<f64>().sqrt();
            let moved = (length / all - near).abs();
            (vector, near) = (unit(next), length / all);
            if moved < 1e-15 {
                break;
            }
        }
        (vector, near)
    }

    fn part(&self, most: usize) -> Self {
        let some = |all: &[usize]| spread(all.len(), most).map(|at| all[at]).collect();
        Self {
            rows: some(&self.rows),
            columns: some(&self.columns),
            axes: self.axes.clone(),
        }
    }

    /// The rest beside the first term.
    fn rest(&self, case: &Case<'_>, goal: Goal) -> Option<Dense> {
        let mut values = Vec::with_capacity(self.rows.len() * self.columns.len());
        for row in &self.rows {
            let (mut rc, mut rr) = (0.0, 0.0);
            for column in &self.columns {
                let (r, c) = (case.reference[row + column], case.candidate[row + column]);
                rc += r * c;
                rr += r * r;
            }
            let factor = match goal {
                Goal::Difference => 1.0,
                Goal::Candidate => {
                    if rr > 0.0 {
                        rc / rr
                    } else {
                        0.0
                    }
                }
            };
            values.extend(self.columns.iter().map(|column| {
                case.candidate[row + column] - factor * case.reference[row + column]
            }));
        }
        values
            .iter()
            .all(|value| value.is_finite())
            .then_some(Dense {
                values,
                columns: self.columns.len(),
            })
    }

    /// The candidate as the fit with `rank` products makes it.
    pub(super) fn predict(&self, case: &Case<'_>, goal: Goal, rank: usize) -> Option<Vec<f64>> {
        let part = self.part(SAMPLED);
        let mut shared: Vec<[f64; UNKNOWNS]> = vec![[0.0; UNKNOWNS]; part.columns.len()];
        let mut rest = part.rest(case, goal)?;
        for k in 0..rank {
            let first = match (goal, k) {
                (Goal::Candidate, 0) => part.in_every_plane(case, &rest).0,
                _ => rest.take_largest(),
            };
            if goal == Goal::Candidate && k == 0 {
                rest.take_along(&first);
            }
            for (own, value) in shared.iter_mut().zip(first) {
                own[k] = value;
            }
        }
        let fit = Fit { case, goal, rank };
        let mut own = fit.rows(&part.rows, &part.columns, &shared);
        for _ in 0..TURNS {
            let next = fit.columns(&part.rows, &part.columns, &own);
            let moved = change(&shared, &next);
            shared = next;
            own = fit.rows(&part.rows, &part.columns, &shared);
            if moved < 1e-12 {
                break;
            }
        }
        let own = fit.rows(&self.rows, &part.columns, &shared);
        let sampled: Vec<usize> = spread(self.rows.len(), SAMPLED).collect();
        let of_sampled: Vec<[f64; UNKNOWNS]> = sampled.iter().map(|row| own[*row]).collect();
        let shared = fit.columns(&part.rows, &self.columns, &of_sampled);
        let mut predicted = vec![0.0; case.reference.len()];
        for (row, own) in self.rows.iter().zip(&own) {
            for (column, shared) in self.columns.iter().zip(&shared) {
                let flat = row + column;
                predicted[flat] = fit.first(own) * case.reference[flat]
                    + (0..rank).map(|k| own[k] * shared[k]).sum::<f64>();
            }
        }
        Some(predicted)
    }
}

/// What the products leave, and what there was.
#[derive(Clone, Debug)]
pub(super) struct Glance {
    pub(super) left: Vec<f64>,
    candidate: f64,
}

impl Glance {
    /// The fewest products, at least one, that leave rounding or next to nothing.
    pub(super) fn rank(&self, noise: f64) -> Option<usize> {
        let whole = self.left[0];
        let enough = |left: &f64| {
            *left <= 0.25 * whole
                && (*left <= 1e-6 * whole || *left <= (2.0 * noise).powi(2) * self.candidate)
        };
        (1..self.left.len()).find(|rank| enough(&self.left[*rank]))
    }
}

/// How much two sets of shared numbers differ, of their size.
fn change(before: &[[f64; UNKNOWNS]], after: &[[f64; UNKNOWNS]]) -> f64 {
    let (mut moved, mut size) = (0.0, 0.0);
    for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
        moved += (before - after).powi(2);
        size += after.powi(2);
    }
    if size > 0.0 {
        (moved / size).sqrt()
    } else {
        0.0
    }
}

struct Fit<'a> {
    case: &'a Case<'a>,
    goal: Goal,
    rank: usize,
}

impl Fit<'_> {
    /// The factor of the reference in a row.
    fn first(&self, own: &[f64; UNKNOWNS]) -> f64 {
        if self.goal == Goal::Candidate {
            own[self.rank]
        } else {
            1.0
        }
    }

    /// Each row's numbers, from the columns'.
    fn rows(
        &self,
        rows: &[usize],
        columns: &[usize],
        shared: &[[f64; UNKNOWNS]],
    ) -> Vec<[f64; UNKNOWNS]> {
        let unknowns = self.rank + usize::from(self.goal == Goal::Candidate);
        let row = |row: &usize| {
            let mut system = System::new(unknowns);
            for (column, shared) in columns
                .iter()
                .zip(shared)
                .filter(|(column, _)| self.case.fits(row + **column))
            {
                let (r, c) = (
                    self.case.reference[row + column],
                    self.case.candidate[row + column],
                );
                let mut terms = *shared;
                match self.goal {
                    Goal::Difference => system.add(&terms, c - r),
                    Goal::Candidate => {
                        terms[self.rank] = r;
                        system.add(&terms, c);
                    }
                }
            }
            system.solve()
        };
        rows.iter().map(row).collect()
    }

    /// Each column's numbers, from the rows'.
    fn columns(
        &self,
        rows: &[usize],
        columns: &[usize],
        own: &[[f64; UNKNOWNS]],
    ) -> Vec<[f64; UNKNOWNS]> {
        let column = |column: &usize| {
            let mut system = System::new(self.rank);
            for (row, own) in rows
                .iter()
                .zip(own)
                .filter(|(row, _)| self.case.fits(**row + column))
            {
                let (r, c) = (
                    self.case.reference[row + column],
                    self.case.candidate[row + column],
                );
                system.add(own, c - self.first(own) * r);
            }
            system.solve()
        };
        columns.iter().map(column).collect()
    }
}

/// Normal equations of a few unknowns.
struct System {
    unknowns: usize,
    matrix: [[f64; UNKNOWNS]; UNKNOWNS],
    right: [f64; UNKNOWNS],
}

impl System {
    fn new(unknowns: usize) -> Self {
        Self {
            unknowns,
            matrix: [[0.0; UNKNOWNS]; UNKNOWNS],
            right: [0.0; UNKNOWNS],
        }
    }

    fn add(&mut self, terms: &[f64; UNKNOWNS], value: f64) {
        if !value.is_finite() {
            return;
        }
        for i in 0..self.unknowns {
            self.right[i] += terms[i] * value;
            for j in 0..self.unknowns {
                self.matrix[i][j] += terms[i] * terms[j];
            }
        }
    }

    /// By elimination with the largest pivot; unknowns that nothing says anything about are zero.
    fn solve(mut self) -> [f64; UNKNOWNS] {
        let n = self.unknowns;
        let size = (0..n).map(|i| self.matrix[i][i]).fold(0.0, f64::max);
        let mut used = [usize::MAX; UNKNOWNS];
        let mut done = [false; UNKNOWNS];
        for used in used.iter_mut().take(n) {
            let Some(pivot) = (0..n)
                .filter(|i| !done[*i])
                .max_by(|a, b| self.matrix[*a][*a].total_cmp(&self.matrix[*b][*b]))
            else {
                break;
            };
            if self.matrix[pivot][pivot] <= 1e-13 * size {
                break;
            }
            (*used, done[pivot]) = (pivot, true);
            for row in (0..n).filter(|row| *row != pivot) {
                let factor = self.matrix[row][pivot] / self.matrix[pivot][pivot];
                for column in 0..n {
                    self.matrix[row][column] -= factor * self.matrix[pivot][column];
                }
                self.right[row] -= factor * self.right[pivot];
            }
        }
        let mut solved = [0.0; UNKNOWNS];
        for pivot in used.into_iter().filter(|pivot| *pivot != usize::MAX) {
            solved[pivot] = self.right[pivot] / self.matrix[pivot][pivot];
        }
        solved
    }
}

/// A small matrix in memory.
struct Dense {
    values: Vec<f64>,
    columns: usize,
}

impl Dense {
    fn energy(&self) -> f64 {
        self.values.iter().map(|value| value * value).sum()
    }

    /// Takes out what lies along a vector of length one.
    fn take_along(&mut self, vector: &[f64]) {
        for row in self.values.chunks_mut(self.columns) {
            let along: f64 = row.iter().zip(vector).map(|(a, b)| a * b).sum();
            row.iter_mut()
                .zip(vector)
                .for_each(|(value, direction)| *value -= along * direction);
        }
    }

    /// Subtracts the product of rank one that takes most, found by power iteration from the largest row, and returns its column numbers.
    fn take_largest(&mut self) -> Vec<f64> {
        let size = |row: &&[f64]| row.iter().map(|value| value * value).sum::<f64>();
        let largest = self
            .values
            .chunks(self.columns)
            .max_by(|a, b| size(a).total_cmp(&size(b)));
        let mut right: Vec<f64> = largest.map(<[f64]>::to_vec).unwrap_or_default();
        let mut left = vec![0.0; self.values.len() / self.columns];
        for _ in 0..ITERATIONS {
            let length = right.iter().map(|value| value * value).sum::<f64>().sqrt();
            if length == 0.0 {
                return right;
            }
            right.iter_mut().for_each(|value| *value /= length);
            for (left, row) in left.iter_mut().zip(self.values.chunks(self.columns)) {
                *left = row.iter().zip(&right).map(|(a, b)| a * b).sum();
            }
            let energy: f64 = left.iter().map(|value| value * value).sum();
            right.fill(0.0);
            for (left, row) in left.iter().zip(self.values.chunks(self.columns)) {
                right
                    .iter_mut()
                    .zip(row)
                    .for_each(|(right, value)| *right += left * value);
            }
            if energy > 0.0 {
                right.iter_mut().for_each(|value| *value /= energy);
            }
        }
        for (left, row) in left.iter().zip(self.values.chunks_mut(self.columns)) {
            row.iter_mut()
                .zip(&right)
                .for_each(|(value, right)| *value -= left * right);
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_with_too_little_said_solves_what_it_can() {
        let mut system = System::new(2);
        system.add(&[1.0, 0.0, 0.0, 0.0, 0.0], 3.0);
        system.add(&[2.0, 0.0, 0.0, 0.0, 0.0], 6.0);
        assert_eq!(system.solve()[..2], [3.0, 0.0]);
        let mut system = System::new(2);
        system.add(&[1.0, 1.0, 0.0, 0.0, 0.0], 3.0);
        system.add(&[1.0, -1.0, 0.0, 0.0, 0.0], 1.0);
        let solved = system.solve();
        assert!((solved[0] - 2.0).abs() < 1e-12 && (solved[1] - 1.0).abs() < 1e-12);
    }
}
