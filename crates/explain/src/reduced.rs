//! An all-reduce that is missing, seen from what was computed next.
//!
//! Where each rank recorded its part of a sum the layout adds them up, and the pair agrees: nothing is wrong with parts that are added later.
//! Whether they were shows in the op that takes them. When its output is not what the sum implies but what one rank's part implies, the
//! parts were never added up, and the fault is where they are.

use super::{
    Scene,
    flow::{self, Flow},
    places::partial_sum,
};
use std::{collections::HashMap, sync::Arc};
use twinscope_compare::judged::{Cause, JudgedPair};
use twinscope_report::{CauseKind, Verdict, facts::PartialSum};
use twinscope_tensor::Side;

/// The causes of pairs whose ranks were never added up, by pair. The flow of the op that takes one rank's part becomes the one from that
/// part.
pub(super) fn find(
    scene: &Scene<'_>,
    pairs: &[JudgedPair],
    flows: &mut [Option<Flow>],
) -> HashMap<usize, Cause> {
    let mut unreduced = HashMap::new();
    for at in 0..pairs.len() {
        if pairs[at].verdict().agrees()
            && let Some(ranks) = partial_sum::added_up(scene, at)
            && let Some(consumer) = never_added(scene, pairs, flows, at, &ranks)
        {
            unreduced.insert(at, cause(ranks.len(), &consumer));
        }
    }
    unreduced
}

/// For a report that is finished: parts that were never added up are looked at as parts.
pub(super) fn again(scene: &Scene<'_>) {
    for at in 0..scene.entries().len() {
        if scene.entries()[at].verdict == Verdict::Diverged
            && let Some(ranks) = partial_sum::added_up(scene, at)
            && let (Some(whole), Some(first)) = (scene.load(at), ranks.into_iter().next())
        {
            scene.take_instead(
                at,
                Some(Arc::new(super::Loaded {
                    candidate: first,
                    ..super::Loaded::clone(&whole)
                })),
            );
        }
    }
}

/// The pair that was computed from one rank's part, if there is one; its flow is then that from the part.
fn never_added(
    scene: &Scene<'_>,
    pairs: &[JudgedPair],
    flows: &mut [Option<Flow>],
    at: usize,
    ranks: &[Vec<f64>],
) -> Option<String> {
    let whole = scene.load(at)?;
    let takes = |flow: &Flow| flow.inputs.contains(&at) && !flow.follows();
    let consumers =
        (at + 1..flows.len()).filter(|next| pairs[*next].verdict() == Verdict::Diverged);
    let consumers: Vec<usize> = consumers
        .filter(|next| flows[*next].as_ref().is_some_and(takes))
        .collect();
    for next in consumers {
        for part in ranks {
            let mut alone = super::Loaded::clone(&whole);
            alone.candidate.clone_from(part);
            scene.take_instead(at, Some(Arc::new(alone)));
            if let Some(flow) = flow::of_pair(scene, next)
                .filter(|flow| flow.inputs.contains(&at) && flow.follows())
            {
                flows[next] = Some(flow);
                return Some(pairs[next].name.clone());
            }
            scene.take_instead(at, None);
        }
    }
    None
}

fn cause(ranks: usize, consumer: &str) -> Cause {
    Cause {
        kind: CauseKind::PartialSum,
        explained: Some(1.0),
        text: format!(
            "the {ranks} ranks of the candidate hold partial sums: added up they are the reference, but `{consumer}` was computed from one rank's \
             part alone (an all-reduce is missing)"
        ),
        details: PartialSum::UsedBy {
            ranks,
            side: Side::Candidate,
            used_by: consumer.to_owned(),
        }
        .into(),
    }
}
