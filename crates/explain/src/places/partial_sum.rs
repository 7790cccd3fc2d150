//! An all-reduce that is missing: the ranks hold parts whose sum is the reference, and none of them is it.

use crate::{
    Case, Class, Examined, Explanation, Hypothesis, Scene, array::Array, case::Predicted, measures,
};
use twinscope_compare::{
    layout::{self, Step, Which},
    noise::Measures,
};
use twinscope_report::{CauseKind, facts};
use twinscope_tensor::View;

#[derive(Debug)]
pub(super) struct PartialSum;

/// Elements of one rank up to which it is read.
const MOST: usize = 1 << 22;
/// As in the score.
const SLACK: f64 = 2.0;
/// Adding many ranks rounds more often than one op.
const RANKS: f64 = 2.0;

impl Hypothesis for PartialSum {
    fn name(&self) -> &'static str {
        "partial_sum"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        let (reference, candidate) = case
            .scene
            .parts(case.pair)
            .ok_or("the ranks cannot be read")?;
        let steps = case
            .scene
            .steps(case.pair)
            .ok_or("the ranks cannot be lined up")?;
        let of_candidate = ranks(
            Which::Candidate,
            steps,
            &reference,
            &candidate,
            case.reference.len(),
        );
        let of_reference = ranks(
            Which::Reference,
            steps,
            &reference,
            &candidate,
            case.reference.len(),
        );
        if of_candidate.is_none() && of_reference.is_none() {
            return Err("no side has several ranks of this size".into());
        }
        let found =
            of_candidate.and_then(|ranks| summed(case, Which::Candidate, &ranks, case.reference));
        let found = found.or_else(|| {
            of_reference.and_then(|ranks| summed(case, Which::Reference, &ranks, case.candidate))
        });
        found
            .map(|found| vec![found])
            .ok_or_else(|| "the ranks do not add up to the other side".into())
    }
}

/// The candidate's ranks, each as the whole, where the layout adds them up.
pub(crate) fn added_up(scene: &Scene<'_>, pair: usize) -> Option<Vec<Vec<f64>>> {
    let steps = scene.steps(pair)?;
    if !steps.iter().any(|step| {
        matches!(
            step,
            Step::Sum {
                side: Which::Candidate,
                ..
            }
        )
    }) {
        return None;
    }
    let (reference, candidate) = scene.parts(pair)?;
    ranks(
        Which::Candidate,
        steps,
        &reference,
        &candidate,
        scene.entries()[pair].dims.iter().product(),
    )
}

/// Every rank of one side as the whole, when each could be: as many elements as the other side has.
fn ranks(
    side: Which,
    steps: &[Step],
    reference: &[View],
    candidate: &[View],
    elements: usize,
) -> Option<Vec<Vec<f64>>> {
    let parts = if side == Which::Candidate {
        candidate
    } else {
        reference
    };
    if parts.len() < 2
        || elements > MOST
        || parts
            .iter()
            .any(|part| part.shape().elements() != Some(elements as u64))
    {
        return None;
    }
    // What puts parts together is left out: each is taken alone.
    let joins = |step: &&Step| match step {
        Step::Concat { side: of, .. }
        | Step::Sum { side: of, .. }
        | Step::Keep { side: of, .. } => *of == side,
        _ => false,
    };
    let steps: Vec<Step> = steps.iter().filter(|step| !joins(step)).cloned().collect();
    let one = |part: &View| {
        let alone = std::slice::from_ref(part);
        let (r, c) = if side == Which::Candidate {
            (reference, alone)
        } else {
            (alone, candidate)
        };
        let aligned = layout::apply(&steps, r, c).ok()?;
        let operand = if side == Which::Candidate {
            aligned.candidate
        } else {
            aligned.reference
        };
        Array::read(&*operand, MOST).map(|array| array.values)
    };
    parts.iter().map(one).collect()
}

fn summed(case: &Case<'_>, side: Which, ranks: &[Vec<f64>], other: &[f64]) -> Option<Explanation> {
    let below = |left: Measures| {
        left.iter()
            .zip(case.noise)
            .all(|(left, noise)| *left <= SLACK * RANKS * noise)
    };
    if ranks
        .iter()
        .any(|rank| below(measures(case.dims, other, rank)))
    {
        return None;
    }
    let mut sum = vec![0.0; other.len()];
    for rank in ranks {
        for (sum, part) in sum.iter_mut().zip(rank) {
            *sum += part;
        }
    }
    let left: f64 = sum.iter().zip(other).map(|(s, o)| (s - o) * (s - o)).sum();
    let whole: f64 = case
        .candidate
        .iter()
        .zip(case.reference)
        .map(|(c, r)| (c - r) * (c - r))
        .sum();
    let explained = (1.0 - left / whole).max(0.0);
    let proven = below(measures(case.dims, other, &sum));
    let mine = super::elsewhere::side(side);
    let theirs = mine.other();
    (explained > 0.5).then(|| Explanation {
        kind: CauseKind::PartialSum,
        text: format!(
            "the {} ranks of the {mine} hold partial sums: added up they are the {theirs} (an all-reduce is missing)",
            ranks.len()
        ),
        details: facts::PartialSum::Ranks { ranks: ranks.len(), side: mine }.into(),
        class: Class::Mechanism,
        freedom: 0,
        predicted: Predicted::Share { explained, proven },
    })
}

#[cfg(test)]
mod tests {
    use super::{Which, ranks, summed};
    use crate::{
        Case,
        testing::{normal, with_case},
    };
    use twinscope_tensor::{DType, Shape, View};

    fn view(values: &[f64]) -> View {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| (*value as f32).to_le_bytes())
            .collect();
        View::new(
            DType::F32,
            Shape::from(vec![values.len() as u64 / 8, 8]),
            bytes.into(),
        )
        .unwrap()
    }

    /// The reference, and `count` ranks that add up to it.
    fn parts(count: usize) -> (Vec<f64>, Vec<Vec<f64>>) {
        let ranks: Vec<Vec<f64>> = (0..count).map(|rank| normal(96, rank as u64)).collect();
        (
            (0..96)
                .map(|at| ranks.iter().map(|rank| rank[at]).sum())
                .collect(),
            ranks,
        )
    }

    #[test]
    fn ranks_that_add_up_are_partial_sums() {
        let (whole, held) = parts(4);
        let views: Vec<View> = held.iter().map(|rank| view(rank)).collect();
        let read = ranks(Which::Candidate, &[], &[view(&whole)], &views, 96).unwrap();
        with_case(
            &[12, 8],
            whole.clone(),
            held[0].clone(),
            |case: &Case<'_>| {
                let found = summed(case, Which::Candidate, &read, case.reference).unwrap();
                assert_eq!(
                    (found.kind.name(), &found.details.json()["ranks"]),
                    ("partial_sum", &4.into())
                );
                assert!(matches!(
                    found.predicted,
                    crate::case::Predicted::Share { proven: true, .. }
                ));
            },
        );
    }

    #[test]
    fn ranks_of_which_one_is_the_whole_or_that_do_not_add_up_are_not() {
        let (whole, mut held) = parts(2);
        with_case(
            &[12, 8],
            whole.clone(),
            held[0].clone(),
            |case: &Case<'_>| {
                assert!(
                    summed(
                        case,
                        Which::Candidate,
                        &[whole.clone(), vec![0.0; 96]],
                        case.reference
                    )
                    .is_none()
                );
            },
        );
        held[1] = normal(96, 77);
        with_case(&[12, 8], whole, held[0].clone(), |case: &Case<'_>| {
            assert!(summed(case, Which::Candidate, &held, case.reference).is_none());
        });
    }

    #[test]
    fn one_part_is_no_ranks() {
        let (whole, held) = parts(2);
        assert!(
            ranks(
                Which::Candidate,
                &[],
                &[view(&whole)],
                &[view(&held[0])],
                96
            )
            .is_none()
        );
    }
}
