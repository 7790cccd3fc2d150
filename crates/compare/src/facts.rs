//! Everything measured, put together: what the judge and the causes are given. Never looks at a tensor, so the report does not depend
//! on how the work was split.

use crate::{
    judged::{Finding, Judged, JudgedPair, Leftover, Skipped, Unmeasured},
    missing,
    noise::{Measures, angle, averaged},
    pairing,
    plan::Plan,
    precision,
    settings::Settings,
    side::Side,
    verdict::{Facts, Judge, Judgement},
    work::{Outcome, Part},
};
use std::collections::HashMap;
use twinscope_names::role;

/// Gathers the parts of a plan in execution order and judges each pair by size alone.
pub fn gather(
    plan: &Plan,
    parts: Vec<Part>,
    reference: &Side<'_>,
    candidate: &Side<'_>,
    settings: &Settings,
    floors: Option<&HashMap<usize, Measures>>,
) -> Judged {
    let Plan {
        pairing: plan,
        alone,
    } = plan;
    let mut report = Judged {
        reference: reference.source().listing().source.clone(),
        candidate: candidate.source().listing().source.clone(),
        partial: false,
        layer_offset: plan.layer_offset,
        // Pairs of one source are no run beside another.
        computed_in: std::array::from_fn(|side| {
            precision::of_run(parts.iter().map(|part| part.digits[side])).filter(|_| !alone)
        }),
        pairs: Vec::with_capacity(parts.len()),
        only_reference: leftovers(&plan.only_reference, reference, candidate),
        only_candidate: leftovers(&plan.only_candidate, candidate, reference),
        skipped: Vec::new(),
        findings: Vec::new(),
        left_out: Vec::new(),
    };
    // The candidate of one source alone is itself: what is wrong with it is said once.
    let sides = &[(reference, "reference"), (candidate, "candidate")][..if *alone { 1 } else { 2 }];
    for &(side, name) in sides {
        let listing = side.source().listing();
        report
            .skipped
            .extend(listing.skipped.iter().map(|skipped| Skipped {
                side: name.to_owned(),
                name: skipped.name.clone(),
                reason: skipped.reason.clone(),
            }));
        let findings = listing.findings.iter();
        report.findings.extend(findings.map(|f| Finding {
            side: name.to_owned(),
            kind: f.kind.name().to_owned(),
            text: f.text.clone(),
        }));
    }
    for (items, (side, name)) in plan.left_out.iter().zip(sides.iter().copied()) {
        let left_out = items.iter().map(|item| Skipped {
            side: name.to_owned(),
            name: side.items()[*item].name.clone(),
            reason: "left out by --only or --skip".to_owned(),
        });
        report.left_out.extend(left_out);
    }
    let mut judge = Judge::default();
    let mut longest = 0;
    // A checkpoint on either side makes every pair a parameter.
    let checkpoints = is_checkpoint(reference) || is_checkpoint(candidate);
    for (pair, part) in plan.pairs.iter().zip(parts) {
        if *alone {
            // Pairs of one source follow from each other in no way.
            (judge, longest) = (Judge::default(), 0);
        }
        let names = |side: &Side<'_>, items: &[usize]| -> Vec<String> {
            items
                .iter()
                .map(|item| side.items()[*item].name.clone())
                .collect()
        };
        let (left, right) = (
            names(reference, &pair.reference),
            names(candidate, &pair.candidate),
        );
        let first = &reference.items()[pair.reference[0]];
        let parameter = checkpoints || is_parameter(first);
        let dtypes = [first.dtype, candidate.items()[pair.candidate[0]].dtype];
        // An element may be a sum over any dimension seen so far: hidden size, heads, sequence.
        longest = longest.max(
            first
                .shape
                .dims()
                .iter()
                .copied()
                .max()
                .unwrap_or(0)
                .min(LONGEST_SUM),
        );
        let mut judged = JudgedPair {
            name: whole_name(&left),
            reference: left,
            candidate: right,
            rule: pair.rule,
            score: pair.score,
            layout: part.layout,
            shape: part.shape,
            dtypes,
            judged_by: precision::judged_by(dtypes, part.digits, report.computed_in),
            judgement: Judgement::not_compared(),
            totals: None,
            causes: Vec::new(),
            noise: [0.0; 4],
            measures: [0.0; 4],
            parameter,
            unmeasured: None,
            reason: None,
        };
        let mut lacks =
            |why, reason| (judged.unmeasured, judged.reason) = (Some(why), Some(reason));
        match part.outcome {
            Outcome::Measured(totals, measures) => {
                let facts = Facts {
                    totals: &totals,
                    measures,
                    dtypes: judged.judged_by,
                    reduction: longest.max(averaged(&judged.reference[0])),
                    spread: part.spread,
                    // Parameters are not computed from positions.
                    angle: if parameter {
                        0.0
                    } else {
                        angle(
                            &[&judged.reference[0], &judged.candidate[0]],
                            first.shape.dims(),
                        )
                    },
                    parameter,
                    measured_floor: floors
                        .and_then(|floors| floors.get(&pair.reference[0]).copied()),
                    tolerance: settings.rtol.is_some() || settings.atol.is_some(),
                };
                judged.noise = judge.noise(&facts);
                judged.measures = measures;
                judged.judgement = judge.judge(&facts);
                judged.totals = Some(*totals);
            }
            Outcome::Incomparable(reason) => lacks(Unmeasured::Shapes, reason),
            Outcome::Unreadable { side, reason } => lacks(
                Unmeasured::Unreadable,
                format!("the {} cannot be read: {reason}", side.name()),
            ),
            Outcome::NotReached => {
                report.partial = true;
                lacks(
                    Unmeasured::Stopped,
                    "stopped before it was measured".to_owned(),
                );
            }
            Outcome::Ranked => lacks(
                Unmeasured::Ranked,
                "ranked by a sketch of its values; --exact measures every pair".to_owned(),
            ),
        }
        report.pairs.push(judged);
    }
    if !*alone {
        report.findings.extend(missing::findings(
            &plan.pairs,
            &report.pairs,
            [reference, candidate],
        ));
    }
    report
}

/// Vocabulary-sized dimensions are looked up, not summed over.
const LONGEST_SUM: u64 = 32_768;

/// The name of a pair is the reference's; of several parts, what they have in common.
fn whole_name(parts: &[String]) -> String {
    parts.first().cloned().unwrap_or_default()
}

/// A parameter is loaded, not computed: by what the source says of it, else by its name.
fn is_parameter(item: &crate::side::Item) -> bool {
    let said = |key: &str| item.meta.as_ref().and_then(|meta| meta.get(key));
    if let Some(role) = said("role").and_then(|role| role.as_str()) {
        return role == "param";
    }
    if said("param").is_some_and(|param| param == true) {
        return true;
    }
    role::is_parameter(&item.name)
}

/// A checkpoint: every name is a parameter's. Stacks of experts (`experts.down_proj`, `w13_weight`) and what else a model keeps are, where
/// nothing is there that was computed; beside activations, `topk_weight` would be one.
fn is_checkpoint(side: &Side<'_>) -> bool {
    let told = |item: &crate::side::Item| {
        item.meta
            .as_ref()
            .is_some_and(|meta| meta.get("role").is_some() || meta.get("param").is_some())
    };
    let items = side.items();
    items.iter().any(is_parameter)
        && items.iter().all(|item| {
            !told(item) && (is_parameter(item) || role::is_kept_in_checkpoints(&item.name))
        })
}

fn leftovers(left: &[pairing::Leftover], side: &Side<'_>, other: &Side<'_>) -> Vec<Leftover> {
    left.iter()
        .map(|leftover| Leftover {
            name: side.items()[leftover.item].name.clone(),
            suggestion: leftover
                .suggestion
                .map(|item| other.items()[item].name.clone()),
            score: leftover.score,
        })
        .collect()
}
