//! Attention that sees other positions: a causal mask missing, a sliding window off by one, padding on the other side.
//!
//! In probabilities a masked position is zero. Where a row sees less, what is left renormalises: `c = r / Σ r` over what is seen. Where it sees more, what both
//! see keeps its ratios, and the new positions take what they take. In scores a masked position is minus infinity, or so low that it
//! might be; what both see agrees.

use super::{
    near::{ENOUGH_BITS, Probe},
    rows::{probabilities, row},
};
use crate::{Case, Class, Examined, Explanation, Hypothesis, array::Axis, case::Predicted};
use twinscope_report::{CauseKind, facts};

#[derive(Debug)]
pub(super) struct Masked;

/// A probability up to this is none.
const NONE: f64 = 1e-10;
/// A score down to this might be seen.
const LOW: f64 = -9000.0;
/// Of a diagonal or column that counts as changed, so much is.
const NEARLY: f64 = 0.9;
/// And of a diagonal so much of all its positions, whatever is masked there for other reasons.
const MOST_OF_IT: f64 = 0.6;

impl Hypothesis for Masked {
    fn name(&self) -> &'static str {
        "masked"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let rows = probabilities(case);
        let (axis, predicted) = match rows {
            Some(axis) => (axis, renormalised(case, axis)?),
            None => scores(case)?,
        };
        let change = Change::of(case, axis, predicted.1);
        // Probabilities keep their ratios; of scores only the shape of what changed says that it is a mask.
        if rows.is_none() && !change.is_regular() {
            return Err("what is so low on one side only is no diagonal and no column".into());
        }
        let text = change.text();
        Ok(vec![Explanation {
            kind: CauseKind::Masked,
            text: format!("the candidate's attention sees other positions: {text}"),
            details: facts::Masked::Seen {
                r#where: text,
                window: change.window(),
                seen_only_by_candidate: change.added.count,
                seen_only_by_reference: change.removed.count,
            }
            .into(),
            class: Class::Mechanism,
            freedom: 2,
            predicted: Predicted::Values(predicted.0),
        }])
    }
}

/// What a side sees, as a function of an element's value.
type Seen = fn(f64) -> bool;

fn renormalised(case: &Case<'_>, axis: Axis) -> Result<(Vec<f64>, Seen), &'static str> {
    let seen: Seen = |p| p > NONE;
    let probe = Probe::new(case);
    let mut predicted = vec![0.0; case.reference.len()];
    let (mut changed, mut told) = (0usize, 0usize);
    for nth in 0..axis.outside * axis.inside {
        let both =
            row(axis, nth).filter(|at| seen(case.reference[*at]) && seen(case.candidate[*at]));
        let more = row(axis, nth).any(|at| seen(case.candidate[at]) && !seen(case.reference[at]));
        let less = row(axis, nth).any(|at| seen(case.reference[at]) && !seen(case.candidate[at]));
        changed += usize::from(more || less);
        let factor = factor(case, both.clone(), more);
        if more || less {
            told += both.clone().count().saturating_sub(1);
        }
        for at in row(axis, nth) {
            predicted[at] = match (seen(case.reference[at]), seen(case.candidate[at])) {
                (true, true) => factor * case.reference[at],
                // A row that sees nothing is zeros on one side and NaN on the other; and what only the candidate sees is not predicted.
                _ => case.candidate[at],
            };
        }
    }
    if changed == 0 {
        return Err("both sides see the same positions");
    }
    if (told as f64) * probe.bits_per_element() < ENOUGH_BITS {
        return Err("too few positions are seen by both sides to tell");
    }
    Ok((predicted, seen))
}

/// What the reference's probabilities are multiplied with in a row: known where the row only sees less, fitted where it sees more.
fn factor(case: &Case<'_>, both: impl Iterator<Item = usize> + Clone, more: bool) -> f64 {
    let sum = |values: &[f64], fitting: bool| -> f64 {
        both.clone()
            .filter(|at| !fitting || case.fits(*at))
            .map(|at| values[at])
            .sum()
    };
    if !more {
        return 1.0 / sum(case.reference, false);
    }
    let fitted = sum(case.candidate, true) / sum(case.reference, true);
    if fitted.is_finite() {
        fitted
    } else {
        sum(case.candidate, false) / sum(case.reference, false)
    }
}

/// Scores: what both see agrees, and some are low on one side only.
fn scores(case: &Case<'_>) -> Result<(Axis, (Vec<f64>, Seen)), &'static str> {
    let seen: Seen = |score| score > LOW;
    let Some(last) = case.axes().last().filter(|_| case.dims.len() >= 2) else {
        return Err("there are no rows");
    };
    if case
        .reference
        .iter()
        .chain(case.candidate)
        .all(|score| seen(*score))
    {
        return Err("the rows are no probabilities, and nothing is so low that it is masked");
    }
    let probe = Probe::new(case);
    let (mut changed, mut both, mut agree) = (0usize, 0usize, 0usize);
    let mut predicted = case.candidate.to_vec();
    for (at, (r, c)) in case.reference.iter().zip(case.candidate).enumerate() {
        if r.is_nan() || c.is_nan() {
            return Err("there are NaN");
        }
        match (seen(*r), seen(*c)) {
            (true, true) => {
                both += 1;
                agree += usize::from((r - c).abs() <= probe.tolerance() * r.abs().max(1.0));
                predicted[at] = *r;
            }
            (false, false) => {}
            _ => changed += 1,
        }
    }
    if changed == 0 {
        return Err("the rows are no probabilities, and no scores that are masked differently");
    }
    if (agree as f64) < NEARLY * both as f64
        || agree as f64 * probe.bits_per_element() < ENOUGH_BITS
    {
        return Err("what both sides see does not agree");
    }
    Ok((Axis::of(case.dims, last), (predicted, seen)))
}

/// Positions that only one side sees, by diagonal (`key - query`, 0 is the position itself) or by column.
struct Change {
    added: Positions,
    removed: Positions,
    queries: usize,
    keys: usize,
}

#[derive(Default)]
struct Positions {
    count: usize,
    /// Diagonals, lowest first, that have changed as far as they could, when these are nearly all that has changed.
    diagonals: Vec<isize>,
    /// Else the columns.
    columns: Vec<usize>,
}

/// How many positions of a line have changed, of how many that could, of how many there are.
#[derive(Clone, Copy, Default)]
struct Line {
    changed: usize,
    possible: usize,
    all: usize,
}

impl Line {
    fn whole(self) -> bool {
        self.changed > 0 && self.changed as f64 >= NEARLY * self.possible as f64
    }

    /// Keys that are padding cross every diagonal: what changes along one must be most of it.
    fn whole_diagonal(self) -> bool {
        self.whole() && self.changed as f64 >= MOST_OF_IT * self.all as f64
    }
}

impl Positions {
    /// Of the positions that the reference does not see, or sees, when the candidate does the opposite.
    fn of(case: &Case<'_>, axis: Axis, queries: usize, seen: Seen, added: bool) -> Self {
        let keys = axis.along;
        let (mut diagonals, mut columns) = (
            vec![Line::default(); keys + queries],
            vec![Line::default(); keys],
        );
        let mut count = 0;
        for (at, (r, c)) in case.reference.iter().zip(case.candidate).enumerate() {
            let (key, query) = (axis.index(at), at / axis.inside / axis.along % queries);
            let (possible, changed) = (seen(*r) != added, seen(*r) != added && seen(*c) == added);
            count += usize::from(changed);
            for line in [&mut diagonals[key + queries - 1 - query], &mut columns[key]] {
                line.changed += usize::from(changed);
                line.possible += usize::from(possible);
                line.all += 1;
            }
        }
        let covered: usize = diagonals
            .iter()
            .filter(|line| line.whole_diagonal())
            .map(|line| line.changed)
            .sum();
        // Keys that came before the first query move the diagonal.
        let number = |i: usize| i as isize - keys as isize + 1;
        let by_diagonal = covered as f64 >= NEARLY * count as f64;
        let diagonals = (0..diagonals.len())
            .filter(|i| by_diagonal && diagonals[*i].whole_diagonal())
            .map(number)
            .collect();
        let columns = (0..keys)
            .filter(|i| !by_diagonal && columns[*i].whole())
            .collect();
        Self {
            count,
            diagonals,
            columns,
        }
    }
}

impl Change {
    fn of(case: &Case<'_>, axis: Axis, seen: Seen) -> Self {
        let queries = queries(case.dims, axis);
        let positions = |added: bool| Positions::of(case, axis, queries, seen, added);
        Self {
            added: positions(true),
            removed: positions(false),
            queries,
            keys: axis.along,
        }
    }

    /// Whether all that has changed are diagonals or columns.
    fn is_regular(&self) -> bool {
        let regular = |positions: &Positions| {
            positions.count == 0 || !positions.diagonals.is_empty() || !positions.columns.is_empty()
        };
        regular(&self.added) && regular(&self.removed) && self.added.count + self.removed.count > 2
    }

    /// The window that either side implies: how many positions, itself included, are seen back.
    fn window(&self) -> Option<isize> {
        let back = |positions: &Positions| {
            positions
                .diagonals
                .iter()
                .copied()
                .filter(|diagonal| *diagonal < 0)
                .max()
        };
        back(&self.removed)
            .or_else(|| back(&self.added))
            .map(|last| -last)
    }

    fn text(&self) -> String {
        let mut said = Vec::new();
        let (added, removed) = (&self.added, &self.removed);
        let ahead = |positions: &Positions| positions.diagonals.iter().filter(|d| **d > 0).count();
        let all_ahead = ahead(added) >= 1 && ahead(added) + 1 >= self.queries.min(self.keys);
        if all_ahead {
            said.push("the causal mask is missing".to_owned());
        } else if ahead(added) > 0 {
            said.push(format!("it looks {} ahead", positions(ahead(added))));
        }
        if ahead(removed) > 0 {
            said.push("it is causal where the reference is not".to_owned());
        }
        if removed.diagonals.contains(&0) {
            said.push("each position excludes itself".to_owned());
        }
        if added.diagonals.contains(&0) {
            said.push("each position includes itself".to_owned());
        }
        if let Some(window) = self.window() {
            if removed.diagonals.iter().any(|d| *d < 0) {
                said.push(format!(
                    "it sees a window of {}",
                    positions(window as usize)
                ));
            } else {
                said.push(format!(
                    "it sees beyond a window of {}",
                    positions(window as usize)
                ));
            }
        }
        if said.is_empty() {
            if !removed.columns.is_empty() {
                said.push(format!(
                    "it does not see the keys {}",
                    listed(&removed.columns)
                ));
            }
            if !added.columns.is_empty() {
                said.push(format!(
                    "it sees the keys {}, which the reference masks, as padding is",
                    listed(&added.columns)
                ));
            }
        }
        if said.is_empty() {
            said.push(format!(
                "{} only by the candidate, {} only by the reference",
                added.count, removed.count
            ));
        }
        said.join(", ")
    }
}

fn positions(count: usize) -> String {
    if count == 1 {
        "1 position".to_owned()
    } else {
        format!("{count} positions")
    }
}

fn listed(columns: &[usize]) -> String {
    match columns {
        [one] => one.to_string(),
        [first, .., last] if last - first + 1 == columns.len() => format!("{first} to {last}"),
        many => many
            .iter()
            .take(8)
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// The length of the dimension before the rows' own.
fn queries(dims: &[usize], axis: Axis) -> usize {
    let mut outside = 1;
    for (at, dim) in dims.iter().enumerate() {
        if outside == axis.outside
            && *dim == axis.along
            && dims[at + 1..].iter().product::<usize>() == axis.inside
        {
            return dims[..at]
                .iter()
                .rev()
                .copied()
                .find(|dim| *dim > 1)
                .unwrap_or(1);
        }
        outside *= dim;
    }
    1
}

#[cfg(test)]
mod tests {
    use crate::{
        Examination,
        places::testing::{bf16_noise, softmax},
        testing::{Recorded, examine_bf16, examine_pair, normal, proven},
    };
    use twinscope_report::CauseKind;

    const DIMS: [usize; 4] = [2, 4, 11, 11];

    fn probs(seen: impl Fn(usize, usize) -> bool) -> Vec<f64> {
        softmax(&normal(968, 1), 11, 1.0, |at| seen(at / 11 % 11, at % 11))
    }

    fn causal(q: usize, k: usize) -> bool {
        k <= q
    }

    #[test]
    fn a_missing_padding_mask_is_not_called_causal() {
        let (padded, all) = (probs(|_, k| k < 7), probs(|_, _| true));
        // Of two rows of the batch only the second is padded.
        let half: Vec<f64> = all[..484].iter().chain(&padded[484..]).copied().collect();
        for reference in [half, padded] {
            let found = examine_pair(&DIMS, reference, all.clone());
            assert_eq!(proven(&found), Some("masked"));
            let text = &found.found[0].explanation.text;
            assert!(
                text.contains("sees the keys 7 to 10")
                    && !text.contains("causal")
                    && !text.contains("window"),
                "{text}"
            );
        }
    }

    fn where_of(found: &Examination) -> String {
        assert_eq!(proven(found), Some("masked"));
        found.found[0].explanation.details.json()["where"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    #[test]
    fn a_missing_causal_mask_is_named_also_under_the_noise_of_bf16() {
        assert_eq!(
            where_of(&examine_pair(&DIMS, probs(causal), probs(|_, _| true))),
            "the causal mask is missing"
        );
        let candidate = bf16_noise(&probs(|_, _| true), 2e-3, 2);
        let run = [Recorded {
            name: "p",
            dims: DIMS.to_vec(),
            reference: probs(causal),
            candidate,
        }];
        assert_eq!(
            where_of(&examine_bf16(&run, "p")),
            "the causal mask is missing"
        );
    }

    #[test]
    fn the_other_way_round_it_is_causal() {
        assert_eq!(
            where_of(&examine_pair(&DIMS, probs(|_, _| true), probs(causal))),
            "it is causal where the reference is not"
        );
    }

    #[test]
    fn a_window_is_measured() {
        let found = examine_pair(&DIMS, probs(causal), probs(|q, k| k <= q && q < k + 5));
        assert_eq!(where_of(&found), "it sees a window of 5 positions");
        assert_eq!(found.found[0].explanation.details.json()["window"], 5);
        let found = examine_pair(
            &DIMS,
            probs(|q, k| k <= q && q < k + 5),
            probs(|q, k| k <= q && q < k + 6),
        );
        assert_eq!(where_of(&found), "it sees beyond a window of 5 positions");
    }

    #[test]
    fn looking_at_oneself_and_ahead_are_named() {
        assert_eq!(
            where_of(&examine_pair(
                &DIMS,
                probs(causal),
                probs(|q, k| k < q || q == 0 && k == 0)
            )),
            "each position excludes itself"
        );
        assert_eq!(
            where_of(&examine_pair(
                &DIMS,
                probs(causal),
                probs(|q, k| k <= q + 1)
            )),
            "it looks 1 position ahead"
        );
    }

    #[test]
    fn padding_is_columns() {
        let found = examine_pair(&DIMS, probs(|_, _| true), probs(|_, k| k < 9));
        assert!(
            where_of(&found).contains("keys 9 to 10"),
            "{}",
            where_of(&found)
        );
    }

    #[test]
    fn masked_scores_are_found_before_softmax() {
        let scores = normal(968, 3);
        let masked = |low: f64, seen: fn(usize, usize) -> bool| {
            let one = |(at, s): (usize, &f64)| if seen(at / 11 % 11, at % 11) { *s } else { low };
            scores.iter().enumerate().map(one).collect::<Vec<_>>()
        };
        for low in [f64::NEG_INFINITY, -1e9] {
            let found = examine_pair(&DIMS, masked(low, causal), masked(low, |q, k| k <= q + 1));
            assert_eq!(where_of(&found), "it looks 1 position ahead");
        }
    }

    #[test]
    fn infinities_that_make_no_pattern_are_no_mask() {
        let scores = normal(968, 3);
        let mut candidate = scores.clone();
        for at in [5, 100, 300, 777] {
            candidate[at] = f64::NEG_INFINITY;
        }
        assert!(
            examine_pair(&DIMS, scores, candidate)
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Masked)
        );
    }

    #[test]
    fn another_scale_or_other_scores_are_no_mask() {
        let scaled = softmax(&normal(968, 1), 11, 3.0, |at| at % 11 <= at / 11 % 11);
        let other = softmax(&normal(968, 5), 11, 1.0, |_| true);
        for candidate in [scaled, other] {
            let found = examine_pair(&DIMS, probs(causal), candidate);
            assert!(
                found
                    .found
                    .iter()
                    .all(|found| found.explanation.kind != CauseKind::Masked || !found.score.proven)
            );
        }
    }
}
