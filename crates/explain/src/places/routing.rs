//! Experts chosen differently where the router could not tell them apart: ids differ only where the margin is under the noise. Or the same ones,
//! listed in another order, with their weights: a sum over them does not mind.

use crate::{Case, Class, Examined, Explanation, Hypothesis, Loaded, array::rms, case::Predicted};
use std::sync::Arc;
use twinscope_report::{CauseKind, facts};
use twinscope_tensor::Kind;

#[derive(Debug)]
pub(super) struct Routing;

/// Pairs before this one among which the router is looked for.
const BEFORE: usize = 12;
/// Margins up to so many times the router's own difference are ties.
const SLACK: f64 = 4.0;

impl Hypothesis for Routing {
    fn name(&self) -> &'static str {
        "routing"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        if !case.dtypes.iter().all(|dtype| dtype.kind() == Kind::Int) || case.dims.is_empty() {
            return follows_ids(case)
                .map(|found| vec![found])
                .ok_or_else(|| "these are no ids, nor in the order of any".into());
        }
        if let Some(found) = same_chosen(case) {
            return Ok(vec![found]);
        }
        let chosen = case.dims[case.dims.len() - 1];
        let tokens = case.reference.len() / chosen.max(1);
        let most = case
            .reference
            .iter()
            .chain(case.candidate)
            .copied()
            .fold(0.0, f64::max);
        let router = router(case, tokens, chosen, most)
            .ok_or("no router with as many tokens is recorded before it")?;
        let (name, experts, loaded) = router;
        // Scores that agree to the last bit were still rounded, and what reads them may sum in another order.
        let rounding = case
            .scene
            .entries()
            .iter()
            .find(|entry| entry.name == name)
            .map_or(0.0, |entry| entry.noise[3] * rms(&loaded.reference));
        let noise = differences(&loaded).max(rounding);
        let mut ties = Vec::new();
        for token in 0..tokens {
            let ids = |side: &[f64]| {
                side[token * chosen..token * chosen + chosen]
                    .iter()
                    .map(|id| *id as usize)
                    .collect::<Vec<_>>()
            };
            let (r, c) = (ids(case.reference), ids(case.candidate));
            if r == c {
                continue;
            }
            let scores = &loaded.reference[token * experts..token * experts + experts];
            let apart = r
                .iter()
                .zip(&c)
                .map(|(r, c)| (scores[*r] - scores[*c]).abs())
                .fold(0.0, f64::max);
            if apart.is_nan() || apart > SLACK * noise {
                return Err(format!(
                    "token {token} chose experts that the router `{name}` tells apart"
                )
                .into());
            }
            ties.push(token);
        }
        Ok(vec![Explanation {
            kind: CauseKind::Routing,
            text: format!(
                "{} of {tokens} tokens go to other experts, each where the router `{name}` is as good as tied: rounding decided",
                ties.len()
            ),
            details: facts::Routing {
                tokens: ties.iter().take(64).copied().collect(),
                count: ties.len(),
                router: name.clone(),
            }
            .into(),
            class: Class::Mechanism,
            freedom: 1,
            predicted: Predicted::Share {
                explained: 1.0,
                proven: true,
            },
        }])
    }
}

/// Longer rows are no choice of a few.
const MOST_CHOSEN: usize = 64;
/// So many rows must have changed their order to call it that.
const LEAST_ROWS: usize = 2;

/// Where each value of the candidate's row is in the reference's, when the rows hold the same different values.
fn order_of_row(reference: &[f64], candidate: &[f64]) -> Option<Vec<usize>> {
    let different = |row: &[f64]| (1..row.len()).all(|at| !row[..at].contains(&row[at]));
    if !different(reference) || !different(candidate) {
        return None;
    }
    candidate
        .iter()
        .map(|id| reference.iter().position(|other| other == id))
        .collect()
}

/// The orders of all rows, and how many are not as they were.
fn orders(
    dims: &[usize],
    reference: &[f64],
    candidate: &[f64],
) -> Option<(Vec<Vec<usize>>, usize)> {
    let width = *dims
        .last()
        .filter(|width| (2..=MOST_CHOSEN).contains(*width))?;
    let rows = reference
        .chunks_exact(width)
        .zip(candidate.chunks_exact(width));
    let orders: Vec<Vec<usize>> = rows
        .map(|(r, c)| order_of_row(r, c))
        .collect::<Option<_>>()?;
    let moved = orders
        .iter()
        .filter(|order| !order.iter().enumerate().all(|(at, from)| at == *from))
        .count();
    (moved >= LEAST_ROWS).then_some((orders, moved))
}

/// Every row has the same ids on both sides, in another order.
fn same_chosen(case: &Case<'_>) -> Option<Explanation> {
    let (orders, moved) = orders(case.dims, case.reference, case.candidate)?;
    Some(Explanation {
        kind: CauseKind::Permuted,
        text: format!(
            "every row has the same ids, {moved} of {} rows in another order: the same were chosen, listed differently",
            orders.len()
        ),
        details: facts::Permuted::WithinRows {
            axis: case.dims.len() - 1,
            pattern: facts::Pattern::WithinRows,
            rows: moved,
        }
        .into(),
        class: Class::Mechanism,
        freedom: 0,
        predicted: Predicted::Share {
            explained: 1.0,
            proven: true,
        },
    })
}

/// What belongs to ids, their weights say, in the order that those have.
fn follows_ids(case: &Case<'_>) -> Option<Explanation> {
    let entries = case.scene.entries();
    let before = (case.pair.saturating_sub(BEFORE)..case.pair).rev();
    let ids = before.filter(|at| {
        entries[*at].dims == case.dims
            && entries[*at]
                .dtypes
                .iter()
                .all(|dtype| dtype.kind() == Kind::Int)
    });
    let width = case.dims.last().copied().filter(|width| *width > 1)?;
    for at in ids {
        let Some(loaded) = case.scene.load(at) else {
            continue;
        };
        let Some((orders, _)) = orders(case.dims, &loaded.reference, &loaded.candidate) else {
            continue;
        };
        let predicted: Vec<f64> = orders
            .iter()
            .enumerate()
            .flat_map(|(row, order)| order.iter().map(move |from| row * width + from))
            .map(|from| case.reference[from])
            .collect();
        return Some(Explanation {
            kind: CauseKind::Permuted,
            text: format!(
                "candidate = reference in the order that the ids `{}` have, row by row",
                entries[at].name
            ),
            details: facts::Permuted::LikeIds {
                axis: case.dims.len() - 1,
                pattern: facts::Pattern::WithinRows,
                ids: entries[at].name.clone(),
            }
            .into(),
            class: Class::Mechanism,
            // Nothing is fitted: the ids say it.
            freedom: 0,
            predicted: Predicted::Values(predicted),
        });
    }
    None
}

/// The nearest earlier tensor with a score for every token and expert, whose largest scores of the reference are what it chose.
fn router(
    case: &Case<'_>,
    tokens: usize,
    chosen: usize,
    most: f64,
) -> Option<(String, usize, Arc<Loaded>)> {
    let entries = case.scene.entries();
    (case.pair.saturating_sub(BEFORE)..case.pair)
        .rev()
        .find_map(|at| {
            let entry = &entries[at];
            let experts = *entry.dims.last()?;
            let fits = !entry.parameter
                && entry.verdict.agrees()
                && experts > chosen
                && (most as usize) < experts;
            if !fits || entry.dims.iter().product::<usize>() != tokens * experts {
                return None;
            }
            let loaded = case.scene.load(at)?;
            let chose = |token: usize| {
                let scores = &loaded.reference[token * experts..token * experts + experts];
                let ids = &case.reference[token * chosen..token * chosen + chosen];
                let least = ids
                    .iter()
                    .filter_map(|id| scores.get(*id as usize))
                    .copied()
                    .fold(f64::INFINITY, f64::min);
                scores.iter().filter(|score| **score > least).count() < chosen
            };
            (0..tokens)
                .all(chose)
                .then(|| (entry.name.clone(), experts, loaded))
        })
}

/// The largest difference of the two sides' scores: what rounding did to them here.
fn differences(loaded: &Loaded) -> f64 {
    loaded
        .reference
        .iter()
        .zip(&loaded.candidate)
        .map(|(r, c)| (r - c).abs())
        .filter(|d| d.is_finite())
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, examine_each, normal, proven};
    use twinscope_report::CauseKind;
    use twinscope_tensor::DType;

    fn top(scores: &[f64], experts: usize, count: usize) -> Vec<f64> {
        scores
            .chunks(experts)
            .flat_map(|row| {
                let mut order: Vec<usize> = (0..experts).collect();
                order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
                order
                    .into_iter()
                    .take(count)
                    .map(|id| id as f64)
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    fn run(candidate: impl Fn(&[f64], &mut Vec<f64>)) -> Vec<(DType, Recorded)> {
        let mut scores = normal(20 * 8, 1);
        // Token 3 cannot tell its first two apart.
        let best = top(&scores, 8, 2)[6] as usize;
        let second = top(&scores, 8, 2)[7] as usize;
        scores[24 + second] = scores[24 + best] - 1e-8;
        let noisy: Vec<f64> = scores
            .iter()
            .zip(normal(160, 2))
            .map(|(s, n)| s + 2e-8 * n.clamp(-2.0, 2.0))
            .collect();
        let reference = top(&scores, 8, 2);
        let mut ids = reference.clone();
        candidate(&scores, &mut ids);
        vec![
            (
                DType::F32,
                Recorded {
                    name: "router",
                    dims: vec![20, 8],
                    reference: scores,
                    candidate: noisy,
                },
            ),
            (
                DType::I64,
                Recorded {
                    name: "ids",
                    dims: vec![20, 2],
                    reference,
                    candidate: ids,
                },
            ),
        ]
    }

    #[test]
    fn a_tie_that_went_the_other_way_is_routing() {
        let found = examine_each(&run(|_, ids| ids.swap(6, 7)), "ids");
        assert_eq!(proven(&found), Some("routing"));
        assert_eq!(
            found.found[0].explanation.details.json()["tokens"],
            serde_json::json!([3])
        );
    }

    #[test]
    fn the_same_experts_in_another_order_are_permuted_and_so_are_their_weights() {
        let swapped = |ids: &mut Vec<f64>| {
            [5, 9, 12]
                .into_iter()
                .for_each(|row| ids.swap(2 * row, 2 * row + 1));
        };
        let mut run = run(|_, ids| swapped(ids));
        let weights = normal(40, 3);
        let mut moved = weights.clone();
        swapped(&mut moved);
        run.push((
            DType::F32,
            Recorded {
                name: "weights",
                dims: vec![20, 2],
                reference: weights,
                candidate: moved,
            },
        ));
        for name in ["ids", "weights"] {
            let found = examine_each(&run, name);
            assert_eq!(proven(&found), Some("permuted"), "{name}");
            assert_eq!(
                found.found[0].explanation.details.json()["pattern"],
                "within_rows"
            );
        }
    }

    #[test]
    fn experts_that_the_router_tells_apart_are_not() {
        // Token 5 is sent to the expert that suits it least.
        let other = |scores: &[f64]| {
            (0..8)
                .min_by(|a, b| scores[40 + a].total_cmp(&scores[40 + b]))
                .unwrap() as f64
        };
        let found = examine_each(&run(|scores, ids| ids[10] = other(scores)), "ids");
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.kind != CauseKind::Routing)
        );
    }
}
