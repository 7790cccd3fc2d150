//! The assignment of rows to columns with the greatest sum of weights, in `O(n² m)`: the Hungarian method in the shortest augmenting path
//! form of Jonker and Volgenant.

/// For each row its column. `weights` are row by row, none negative; a row may get a column of weight 0, which means none.
pub(super) fn best(
    rows: usize,
    columns: usize,
    weight: impl Fn(usize, usize) -> f64,
) -> Vec<Option<usize>> {
    if rows > columns {
        let by_column = wide(columns, rows, |column, row| weight(row, column));
        let mut by_row = vec![None; rows];
        by_column
            .iter()
            .enumerate()
            .for_each(|(column, row)| by_row[row.expect("the fewer all get one")] = Some(column));
        return by_row;
    }
    wide(rows, columns, weight)
}

/// At least as many columns as rows: every row gets one.
fn wide(rows: usize, columns: usize, weight: impl Fn(usize, usize) -> f64) -> Vec<Option<usize>> {
    // Index 0 of rows and columns is a sentinel. Costs are negated weights; potentials keep reduced costs non-negative.
    let (mut row_potential, mut column_potential) = (vec![0.0; rows + 1], vec![0.0; columns + 1]);
    let mut row_of = vec![0usize; columns + 1];
    for row in 1..=rows {
        row_of[0] = row;
        let (mut slack, mut seen, mut way) = (
            vec![f64::INFINITY; columns + 1],
            vec![false; columns + 1],
            vec![0usize; columns + 1],
        );
        let mut column = 0;
        while row_of[column] != 0 {
            seen[column] = true;
            let at = row_of[column];
            let (mut least, mut next) = (f64::INFINITY, 0);
            for to in (1..=columns).filter(|to| !seen[*to]) {
                let cost = -weight(at - 1, to - 1) - row_potential[at] - column_potential[to];
                if cost < slack[to] {
                    (slack[to], way[to]) = (cost, column);
                }
                if slack[to] < least {
                    (least, next) = (slack[to], to);
                }
            }
            for to in 0..=columns {
                if seen[to] {
                    row_potential[row_of[to]] += least;
                    column_potential[to] -= least;
                } else {
                    slack[to] -= least;
                }
            }
            column = next;
        }
        while column != 0 {
            row_of[column] = row_of[way[column]];
            column = way[column];
        }
    }
    let mut columns_of = vec![None; rows];
    (1..=columns)
        .filter(|column| row_of[*column] != 0)
        .for_each(|column| columns_of[row_of[column] - 1] = Some(column - 1));
    columns_of
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All ways, tried one by one.
    fn by_trying(
        rows: usize,
        columns: usize,
        weight: &dyn Fn(usize, usize) -> f64,
        row: usize,
        used: &mut Vec<bool>,
    ) -> f64 {
        if row == rows {
            return 0.0;
        }
        let mut best = by_trying(rows, columns, weight, row + 1, used);
        for column in 0..columns {
            if !used[column] {
                used[column] = true;
                best =
                    best.max(weight(row, column) + by_trying(rows, columns, weight, row + 1, used));
                used[column] = false;
            }
        }
        best
    }

    #[test]
    fn the_sum_counts_not_the_best_single_pair() {
        let weights = [[0.9, 0.85], [0.88, 0.0]];
        assert_eq!(
            best(2, 2, |row, column| weights[row][column]),
            [Some(1), Some(0)]
        );
    }

    proptest! {
        #[test]
        fn no_assignment_has_a_greater_sum(rows in 0usize..6, columns in 0usize..6, seed in proptest::collection::vec(0.0f64..1.0, 36)) {
            let weight = |row: usize, column: usize| seed[row * 6 + column];
            let found = best(rows, columns, weight);
            let mut used = vec![false; columns];
            let mut sum = 0.0;
            for (row, column) in found.iter().enumerate().filter_map(|(row, column)| Some((row, (*column)?))) {
                prop_assert!(!std::mem::replace(&mut used[column], true), "a column only once");
                sum += weight(row, column);
            }
            prop_assert!((sum - by_trying(rows, columns, &weight, 0, &mut vec![false; columns])).abs() < 1e-12);
        }
    }
}
