//! Every rule on made-up evidence: no tensor, no file.

use super::*;
use crate::{
    evidence::{MadeBy, ProvenCause},
    settings::Rule,
};
use twinscope_measure::{SideTotals, Totals};
use twinscope_report::{
    Cause, CauseKind,
    facts::{Pattern, Permuted, RopePairing, RopeSetting, Rotated, RotatedParameter},
};
use twinscope_tensor::{DType, Shape};

/// A pair of f32 values with this error everywhere, as size alone judged it.
fn pair(name: &str, verdict: Verdict, origin: Option<Origin>, error: f64) -> JudgedPair {
    let totals = Totals {
        count: 1024,
        compared: 1024,
        differing: 1024,
        rel_l2: Some(error),
        mse: Some(error * error),
        ..Totals::default()
    };
    JudgedPair {
        name: name.to_owned(),
        reference: vec![name.to_owned()],
        candidate: vec![name.to_owned()],
        rule: Rule::Exact,
        score: 1.0,
        layout: None,
        shape: Some(Shape::from(vec![16, 64])),
        dtypes: [DType::F32; 2],
        judged_by: [DType::F32; 2],
        judgement: Judgement::new(verdict, origin, None, NOT_COMPARED),
        totals: Some(totals),
        causes: Vec::new(),
        noise: [1e-6; 4],
        measures: [error; 4],
        parameter: false,
        unmeasured: None,
        reason: None,
    }
}

fn rounding(name: &str) -> JudgedPair {
    pair(name, Verdict::Rounding, None, 1e-6)
}

fn own(name: &str, error: f64) -> JudgedPair {
    pair(name, Verdict::Diverged, Some(Origin::Own), error)
}

fn inherited(name: &str, error: f64) -> JudgedPair {
    pair(name, Verdict::Diverged, Some(Origin::Inherited), error)
}

fn with_nan(mut pair: JudgedPair) -> JudgedPair {
    if let Some(totals) = &mut pair.totals {
        totals.nonfinite_differing = 1;
    }
    pair
}

fn integers(mut pair: JudgedPair) -> JudgedPair {
    (pair.dtypes, pair.judged_by) = ([DType::I64; 2], [DType::I64; 2]);
    pair
}

fn nothing() -> PairEvidence {
    PairEvidence::default()
}

/// An op that takes these pairs and makes the candidate.
fn follows(inputs: &[usize]) -> PairEvidence {
    PairEvidence {
        made_by: Some(MadeBy {
            inputs: inputs.to_vec(),
            off: [1e-7; 4],
            bound: [1e-6; 4],
            follows_alternative: false,
            is_sum: false,
            finite_part_follows: true,
        }),
        ..nothing()
    }
}

/// The same with a change.
fn made_by(inputs: &[usize], change: impl FnOnce(&mut MadeBy)) -> PairEvidence {
    let mut evidence = follows(inputs);
    if let Some(made_by) = &mut evidence.made_by {
        change(made_by);
    }
    evidence
}

fn breaks(inputs: &[usize]) -> PairEvidence {
    made_by(inputs, |made_by| made_by.off = [1e-2; 4])
}

fn proven(kind: CauseKind, explained: f64) -> Option<ProvenCause> {
    Some(ProvenCause {
        kind,
        explained: Some(explained),
        copies_own_run: false,
        is_echo: false,
    })
}

/// The judgement on the last of these pairs: rule, verdict and origin.
fn last(run: Vec<(JudgedPair, PairEvidence)>) -> (&'static str, Verdict, Option<Origin>) {
    let (pairs, evidence): (Vec<_>, Vec<_>) = run.into_iter().unzip();
    let judged = settle(&pairs, &evidence).pop().expect("there is a pair");
    (judged.rule(), judged.verdict(), judged.origin())
}

const ROUNDING: (Verdict, Option<Origin>) = (Verdict::Rounding, None);
const OWN: (Verdict, Option<Origin>) = (Verdict::Diverged, Some(Origin::Own));
const INHERITED: (Verdict, Option<Origin>) = (Verdict::Diverged, Some(Origin::Inherited));

fn by(
    rule: &'static str,
    judged: (Verdict, Option<Origin>),
) -> (&'static str, Verdict, Option<Origin>) {
    (rule, judged.0, judged.1)
}

#[test]
fn every_rule_has_a_name_of_its_own_and_a_reason() {
    let names: std::collections::HashSet<&str> =
        rules::RULES.iter().map(|rule| rule.reason.name).collect();
    assert_eq!(names.len(), rules::RULES.len());
    assert!(
        rules::RULES
            .iter()
            .all(|rule| rule.reason.why.ends_with('.'))
    );
}

#[test]
fn evidence_never_overrules_a_tolerance() {
    let within = |mut pair: JudgedPair, beyond: u64| {
        if let Some(totals) = &mut pair.totals {
            totals.beyond = Some(beyond);
        }
        pair
    };
    let unreduced = PairEvidence {
        is_unreduced: true,
        ..nothing()
    };
    let (_, verdict, origin) = last(vec![(within(rounding("x"), 0), unreduced)]);
    assert_eq!((verdict, origin), ROUNDING);
    let run = vec![
        (rounding("x"), nothing()),
        (within(own("y", 0.1), 3), follows(&[0])),
    ];
    let (_, verdict, _) = last(run);
    let consumer = vec![
        (
            within(rounding("parts"), 0),
            PairEvidence {
                is_unreduced: true,
                ..nothing()
            },
        ),
        (within(own("y", 0.1), 3), follows(&[0])),
    ];
    assert_eq!(
        last(consumer).2,
        Some(Origin::Own),
        "what is within the tolerance gives nothing on"
    );
    assert_eq!(
        verdict,
        Verdict::Diverged,
        "amplified rounding is still beyond the tolerance"
    );
}

#[test]
fn partial_sums_that_one_rank_used_alone_are_a_fault_although_they_add_up() {
    let unreduced = PairEvidence {
        is_unreduced: true,
        ..nothing()
    };
    assert_eq!(last(vec![(rounding("x"), unreduced)]), by("unreduced", OWN));
}

#[test]
fn equal_pairs_and_pairs_without_numbers_stay_as_they_are() {
    for verdict in [Verdict::Identical, Verdict::Incomparable] {
        let (_, judged, origin) = last(vec![(pair("x", verdict, None, 0.0), breaks(&[]))]);
        assert_eq!((judged, origin), (verdict, None));
    }
}

#[test]
fn a_fault_below_the_noise_needs_a_name() {
    let alternative =
        |inputs: &[usize]| made_by(inputs, |made_by| made_by.follows_alternative = true);
    assert_eq!(
        last(vec![(rounding("x"), alternative(&[]))]),
        by("hidden_fault", OWN)
    );
    let with_cause = |explained: f64| PairEvidence {
        own_error: proven(CauseKind::RowScale, explained),
        ..breaks(&[])
    };
    assert_eq!(
        last(vec![(rounding("x"), with_cause(0.95))]),
        by("hidden_fault", OWN)
    );
    assert_eq!(
        last(vec![(rounding("x"), with_cause(0.8))]).1,
        Verdict::Rounding
    );
    assert_eq!(
        last(vec![(rounding("x"), breaks(&[]))]).1,
        Verdict::Rounding,
        "far off, but unnamed"
    );
    let capped = PairEvidence {
        is_capped: true,
        ..nothing()
    };
    assert_eq!(last(vec![(rounding("x"), capped)]), by("hidden_fault", OWN));
    let undoes = vec![
        (own("x", 0.1), nothing()),
        (rounding("y"), alternative(&[0])),
    ];
    assert_eq!(
        last(undoes).1,
        Verdict::Rounding,
        "inputs that differ and an output that agrees"
    );
}

#[test]
fn a_nan_of_the_inputs_is_inherited_and_the_rest_must_follow() {
    let run = |finite_part_follows: bool| {
        let evidence = made_by(&[0], |made_by| {
            made_by.off = [f64::NAN; 4];
            made_by.finite_part_follows = finite_part_follows;
        });
        vec![
            (with_nan(own("x", 0.1)), nothing()),
            (with_nan(inherited("y", 0.1)), evidence),
        ]
    };
    assert_eq!(last(run(true)), by("nan_passed_on", INHERITED));
    assert_eq!(last(run(false)), by("breaks_formula", OWN));
}

#[test]
fn what_its_own_inputs_imply_is_inherited_or_amplified_rounding() {
    let run = |input: JudgedPair| vec![(input, nothing()), (own("y", 0.5), follows(&[0]))];
    assert_eq!(last(run(own("x", 0.1))), by("follows", INHERITED));
    assert_eq!(last(run(rounding("x"))), by("amplified", ROUNDING));
    let nan = vec![
        (rounding("x"), nothing()),
        (with_nan(own("y", 0.5)), follows(&[0])),
    ];
    assert_eq!(
        last(nan).1,
        Verdict::Diverged,
        "a NaN that appears is no rounding"
    );
}

#[test]
fn a_wrong_weight_recorded_behind_its_output_is_an_input_that_diverged() {
    let mut weight = own("w", 0.5);
    weight.parameter = true;
    let run = vec![(own("y", 0.5), follows(&[1])), (weight, nothing())];
    let (pairs, evidence): (Vec<_>, Vec<_>) = run.into_iter().unzip();
    let judged = &settle(&pairs, &evidence)[0];
    assert_eq!(
        (judged.rule(), judged.origin()),
        ("follows", Some(Origin::Inherited))
    );
}

#[test]
fn an_op_that_is_not_repeated_is_a_fault_of_its_own_behind_any_error() {
    let run = vec![
        (own("x", 0.5), nothing()),
        (inherited("y", 0.1), breaks(&[0])),
    ];
    assert_eq!(last(run), by("breaks_formula", OWN));
    let other = made_by(&[0], |made_by| made_by.follows_alternative = true);
    let run = vec![(own("x", 0.5), nothing()), (inherited("y", 0.1), other)];
    assert_eq!(last(run), by("breaks_formula", OWN));
}

#[test]
fn behind_amplified_rounding_twice_its_size_is_rounding_and_more_is_not() {
    let run = |error: f64| {
        vec![
            (rounding("x"), nothing()),
            (own("y", 0.1), follows(&[0])),
            (inherited("z", error), nothing()),
        ]
    };
    assert_eq!(last(run(0.15)), by("behind_amplified", ROUNDING));
    assert_eq!(
        last(run(0.25)),
        by("nothing_before", OWN),
        "by size it was inherited from `y`"
    );
}

#[test]
fn integers_and_what_they_gather_are_inherited_from_what_chose_them() {
    let after = |pair: JudgedPair, evidence: PairEvidence| {
        last(vec![(own("logits", 0.1), nothing()), (pair, evidence)])
    };
    let ids = || integers(own("ids", 0.5));
    assert_eq!(after(ids(), nothing()), by("chosen_ids", INHERITED));
    let recorded = |inputs: &[usize]| PairEvidence {
        recorded_inputs: Some(inputs.to_vec()),
        ..nothing()
    };
    assert_eq!(after(ids(), recorded(&[0])), by("chosen_ids", INHERITED));
    assert_ne!(
        after(ids(), recorded(&[])).0,
        "chosen_ids",
        "the run says they come from elsewhere"
    );
    let gathered = PairEvidence {
        gathered_by: vec![1],
        ..nothing()
    };
    let run = vec![
        (own("logits", 0.1), nothing()),
        (ids(), nothing()),
        (own("rows", 1.4), gathered),
    ];
    assert_eq!(last(run), by("chosen_ids", INHERITED));
}

/// A pair of an unknown op, behind a divergence and an op that is known.
fn behind(pair: JudgedPair, evidence: PairEvidence) -> (&'static str, Verdict, Option<Origin>) {
    last(vec![
        (own("x", 0.1), nothing()),
        (inherited("y", 0.1), follows(&[0])),
        (pair, evidence),
    ])
}

fn beyond_inputs(kind: CauseKind, explained: f64) -> PairEvidence {
    PairEvidence {
        beyond_inputs: proven(kind, explained),
        ..nothing()
    }
}

#[test]
fn a_second_fault_is_strangely_large_or_suddenly_zero() {
    assert_eq!(behind(own("z", 1.0), nothing()), by("second_fault", OWN));
    assert_eq!(
        behind(inherited("z", 0.5), nothing()).2,
        Some(Origin::Inherited)
    );
    let zero = PairEvidence {
        became_zero: true,
        ..nothing()
    };
    assert_eq!(behind(inherited("z", 0.5), zero), by("second_fault", OWN));
}

#[test]
fn a_second_fault_has_a_cause_that_leaves_only_what_came_in() {
    let judged = |error: f64, evidence: PairEvidence| behind(inherited("z", error), evidence);
    let scale = |explained: f64| beyond_inputs(CauseKind::Scale, explained);
    assert_eq!(judged(0.3, scale(0.9)), by("second_fault", OWN));
    assert_eq!(
        judged(0.3, scale(0.7)).2,
        Some(Origin::Inherited),
        "explains too little"
    );
    assert_eq!(
        judged(0.15, scale(0.9)).2,
        Some(Origin::Inherited),
        "within twice what came in"
    );
    let mut echo = scale(0.9);
    echo.beyond_inputs
        .iter_mut()
        .for_each(|cause| cause.is_echo = true);
    assert_eq!(
        judged(0.3, echo).2,
        Some(Origin::Inherited),
        "an op passed it on"
    );
    let nan = beyond_inputs(CauseKind::Nonfinite, 1.0);
    assert_eq!(judged(0.3, nan).2, Some(Origin::Inherited), "a NaN spreads");
    let mut few = inherited("z", 0.3);
    few.shape = Some(Shape::from(vec![4]));
    assert_eq!(
        behind(few, scale(0.9)).2,
        Some(Origin::Inherited),
        "few values follow anything"
    );
}

#[test]
fn some_kinds_prove_a_second_fault_at_any_size() {
    let judged = |evidence: PairEvidence| behind(inherited("z", 0.15), evidence);
    assert_eq!(
        judged(beyond_inputs(CauseKind::Quantized, 0.3)),
        by("second_fault", OWN)
    );
    let mut copy = beyond_inputs(CauseKind::WrongTensor, 0.3);
    assert_eq!(judged(copy.clone()).2, Some(Origin::Inherited));
    copy.beyond_inputs
        .iter_mut()
        .for_each(|cause| cause.copies_own_run = true);
    assert_eq!(judged(copy), by("second_fault", OWN));
}

#[test]
fn a_place_must_be_further_off_than_anything_before() {
    let run = |error: f64| {
        last(vec![
            (own("x", 0.2), nothing()),
            (inherited("y", 0.1), follows(&[0])),
            (
                inherited("z", error),
                beyond_inputs(CauseKind::Localized, 0.9),
            ),
        ])
    };
    assert_eq!(
        run(0.3).2,
        Some(Origin::Inherited),
        "three times `y`, but not twice `x`"
    );
    assert_eq!(run(0.5), by("second_fault", OWN));
}

#[test]
fn a_large_error_without_a_name_may_be_what_an_op_makes_of_the_one_before() {
    let run = |error: f64, evidence: PairEvidence| {
        last(vec![
            (own("x", 0.1), nothing()),
            (own("y", error), evidence),
        ])
    };
    assert_eq!(run(0.6, nothing()), by("within_reach", INHERITED));
    assert_eq!(
        run(1.0, nothing()).2,
        Some(Origin::Own),
        "ten times is strange"
    );
    let named = |kind: CauseKind| PairEvidence {
        plain: proven(kind, 0.99),
        ..nothing()
    };
    assert_eq!(run(0.6, named(CauseKind::Permuted)).2, Some(Origin::Own));
    assert_eq!(
        run(0.6, named(CauseKind::Localized)),
        by("within_reach", INHERITED)
    );
    let mut kept = own("y", 0.6);
    if let Some(totals) = &mut kept.totals {
        totals.differing = 512;
        (totals.reference, totals.candidate) = (SideTotals::default(), SideTotals::default());
    }
    let run = vec![(own("x", 0.1), nothing()), (kept, nothing())];
    assert_eq!(
        last(run).2,
        Some(Origin::Own),
        "half of it is untouched, and nothing before was"
    );
}

fn permuted() -> Cause {
    Cause {
        kind: CauseKind::Permuted,
        explained: Some(1.0),
        text: String::new(),
        details: Permuted::Named {
            axis: 1,
            axes: vec![1],
            pattern: Pattern::Reverse,
        }
        .into(),
    }
}

fn offset(positions: f64) -> Cause {
    Cause {
        kind: CauseKind::Rotated,
        explained: Some(1.0),
        text: String::new(),
        details: Rotated::Setting {
            parameter: RotatedParameter::Offset,
            pairing: RopePairing::Halves,
            reference: None,
            value: Some(RopeSetting::Number(positions)),
        }
        .into(),
    }
}

fn caused(mut pair: JudgedPair, cause: Cause) -> JudgedPair {
    pair.causes = vec![cause];
    pair
}

/// Where each pair agrees again, by name.
fn forgiven(run: Vec<(JudgedPair, PairEvidence)>) -> Vec<(usize, String)> {
    let (pairs, evidence): (Vec<_>, Vec<_>) = run.into_iter().unzip();
    let none = |_: usize| Vec::new();
    let forgiven = forgive(&pairs, &evidence, &none).into_iter();
    forgiven
        .map(|(at, judged)| {
            assert_eq!(
                (judged.verdict(), judged.origin()),
                (Verdict::Harmless, None)
            );
            (at, judged.agrees_at().unwrap_or_default().to_owned())
        })
        .collect()
}

#[test]
fn what_a_later_op_undoes_is_harmless_and_what_it_drowns_is_not() {
    let hidden = || caused(own("hidden", 1.0), permuted());
    let undone = vec![(hidden(), nothing()), (rounding("out"), follows(&[0]))];
    assert_eq!(forgiven(undone), [(0, "out".to_owned())]);
    // A residual stream with an error as large as the branch's own has taken all of it in.
    let sum = made_by(&[0], |made_by| made_by.is_sum = true);
    let drowned = vec![
        (hidden(), nothing()),
        (pair("stream", Verdict::Rounding, None, 1.0), sum),
    ];
    assert_eq!(forgiven(drowned), []);
    let mut lost = permuted();
    lost.kind = CauseKind::Offset;
    let run = vec![
        (caused(own("hidden", 1.0), lost), nothing()),
        (rounding("out"), follows(&[0])),
    ];
    assert_eq!(forgiven(run), [], "a bias that is missing stays missing");
}

#[test]
fn without_any_known_op_nothing_says_that_a_difference_was_undone() {
    let run = vec![
        (caused(own("x", 1.0), permuted()), nothing()),
        (rounding("y"), nothing()),
    ];
    assert_eq!(forgiven(run), []);
}

#[test]
fn a_rotation_cancels_only_where_queries_and_keys_have_the_same() {
    let run = |key: f64| {
        vec![
            (caused(own("q", 1.0), offset(1.0)), nothing()),
            (caused(own("k", 1.0), offset(key)), nothing()),
            (rounding("scores"), follows(&[0, 1])),
        ]
    };
    assert_eq!(forgiven(run(1.0)).len(), 2);
    assert_eq!(forgiven(run(2.0)), []);
}

#[test]
fn an_unexplained_divergence_further_down_forbids_to_forgive_what_is_before() {
    let run = vec![
        (caused(own("x", 1.0), permuted()), nothing()),
        (rounding("y"), follows(&[0])),
        (own("z", 0.5), nothing()),
    ];
    assert_eq!(forgiven(run), []);
}

#[test]
fn weights_that_undo_each_other_are_harmless_and_one_alone_must_be_used() {
    let weight = |name: &str| {
        let mut pair = caused(own(name, 1.0), permuted());
        pair.parameter = true;
        pair
    };
    let two = vec![
        (weight("up"), nothing()),
        (weight("down"), nothing()),
        (rounding("out"), nothing()),
    ];
    assert_eq!(
        forgiven(two),
        [(0, "out".to_owned()), (1, "out".to_owned())]
    );
    let one = |evidence: PairEvidence| vec![(weight("up"), nothing()), (rounding("out"), evidence)];
    assert_eq!(forgiven(one(nothing())), []);
    assert_eq!(forgiven(one(follows(&[0]))), [(0, "out".to_owned())]);
}

#[test]
fn the_whole_agrees_when_every_pair_does() {
    let judged = |verdicts: &[Verdict]| {
        let judged: Vec<Judgement> = verdicts
            .iter()
            .map(|verdict| Judgement::new(*verdict, None, None, NOT_COMPARED))
            .collect();
        overall(judged.iter())
    };
    use Verdict::{Diverged, Harmless, Identical, Incomparable, Rounding};
    assert_eq!(judged(&[Identical, Rounding, Harmless]), Overall::Agree);
    assert_eq!(judged(&[Identical, Incomparable]), Overall::Incomparable);
    assert_eq!(judged(&[Diverged, Incomparable]), Overall::Diverged);
    assert_eq!(judged(&[]), Overall::Incomparable);
}
