//! The answer in one sentence.

use super::{Colour, brief};
use crate::render::human;
use twinscope_report::{Comparison, MISSING_RANKS, Overall, Pair, Unmeasured, Verdict};

pub(super) fn of(report: &Comparison, alone: bool) -> (String, Colour) {
    let (sentence, colour) = if report.pairs.is_empty() {
        (nothing(report), Colour::Doubtful)
    } else if alone {
        (every_other(report), Colour::Faint)
    } else {
        two_sides(report)
    };
    if report.partial && report.first().is_none() && !report.pairs.is_empty() {
        let measured = report
            .pairs
            .iter()
            .filter(|pair| pair.totals.is_some())
            .count();
        let sentence = format!(
            "PARTIAL (stopped early): {measured} of {} measured, none diverged",
            human::count(report.pairs.len(), "pair")
        );
        return (sentence, Colour::Doubtful);
    }
    if report.partial {
        return (
            format!("PARTIAL (stopped early): {sentence}"),
            Colour::Doubtful,
        );
    }
    (sentence, colour)
}

fn nothing(report: &Comparison) -> String {
    let (left, right) = (report.only_reference.len(), report.only_candidate.len());
    match report.left_out.len() {
        0 => format!(
            "NO ANSWER: nothing could be paired ({left} in the reference, {right} in the candidate)"
        ),
        some => format!(
            "NO ANSWER: nothing could be paired ({left} and {right} without partner, {some} left out by --only or --skip)"
        ),
    }
}

fn every_other(report: &Comparison) -> String {
    format!(
        "{} of one source: {} identical, {} alike up to rounding",
        human::count(report.pairs.len(), "pair"),
        report.count(Verdict::Identical),
        report.count(Verdict::Rounding) + report.count(Verdict::Harmless)
    )
}

fn two_sides(report: &Comparison) -> (String, Colour) {
    let missing = report.only_reference.len() + report.only_candidate.len();
    let mut lacks = Vec::new();
    match missing {
        0 => {}
        1 => lacks.push("1 tensor has no partner".to_owned()),
        some => lacks.push(format!("{some} tensors have no partner")),
    }
    if !report.skipped.is_empty() {
        lacks.push(format!("{} could not be read", report.skipped.len()));
    }
    if report
        .findings
        .iter()
        .any(|finding| finding.kind == MISSING_RANKS)
    {
        lacks.push("ranks are missing".to_owned());
    }
    if report.findings.iter().any(|finding| finding.is_attack()) {
        lacks.push("there is unsafe content".to_owned());
    }
    let but = if lacks.is_empty() {
        String::new()
    } else {
        format!(", but {}", lacks.join(" and "))
    };
    match (report.verdict, report.first()) {
        (Overall::Diverged, Some(at)) => (format!("{}{but}", diverged(report, at)), Colour::Bad),
        (Overall::Diverged, None) => (format!("DIVERGED{but}"), Colour::Bad),
        (Overall::Agree, _) => {
            let colour = if lacks.is_empty() {
                Colour::Good
            } else {
                Colour::Doubtful
            };
            (format!("AGREE: {}{but}", agreeing(report)), colour)
        }
        (Overall::Incomparable, _) => (
            format!("INCOMPARABLE: {}{but}", incomparable(report)),
            Colour::Doubtful,
        ),
    }
}

fn diverged(report: &Comparison, at: usize) -> String {
    let pair = &report.pairs[at];
    let place = format!(
        "{} (pair {} of {})",
        human::safe(&pair.name),
        at + 1,
        report.pairs.len()
    );
    let before = &report.pairs[..at];
    let agreeing = before.iter().filter(|pair| pair.verdict.agrees()).count();
    let upstream = match (at, agreeing) {
        (0, _) => "it is the first".to_owned(),
        (_, 0) => "nothing before it could be compared".to_owned(),
        (1, 1) => format!("the one before it {}", agrees(before, "agrees")),
        (_, some) if some == at => format!("the {some} before it {}", agrees(before, "agree")),
        (_, some) => format!("{some} of the {at} before it {}", agrees(before, "agree")),
    };
    format!("DIVERGED at {place}: {}; {upstream}", how_far(pair))
}

/// `agree to rounding (worst rel L2 1.2e-2)`, or exactly.
fn agrees(pairs: &[Pair], verb: &str) -> String {
    let apart = |pair: &&Pair| pair.verdict.agrees() && pair.verdict != Verdict::Identical;
    let worst = pairs
        .iter()
        .filter(apart)
        .filter_map(|pair| Some(pair.totals.as_ref()?.rel_l2?.0))
        .fold(None, larger);
    match worst {
        None => format!("{verb} exactly"),
        worst => format!("{verb} to rounding (worst rel L2 {})", brief(worst)),
    }
}

fn larger(a: Option<f64>, b: f64) -> Option<f64> {
    Some(a.map_or(b, |a| a.max(b)))
}

fn how_far(pair: &Pair) -> String {
    let Some(totals) = &pair.totals else {
        return "not measured".to_owned();
    };
    let mut words = Vec::new();
    if totals.nonfinite_differing > 0 {
        words.push(format!(
            "{} with a NaN or infinity on one side",
            human::count(totals.nonfinite_differing as usize, "value")
        ));
    }
    if let Some(rel_l2) = totals
        .rel_l2
        .filter(|rel_l2| rel_l2.0 > 0.0 || words.is_empty())
    {
        words.push(format!("rel L2 {}", brief(Some(rel_l2))));
    } else if words.is_empty() {
        words.push(format!("max abs {}", brief(totals.max_abs)));
    }
    // A handful of wrong values is another story than everything being off.
    if totals.differing < totals.count / 10 + 1 && totals.differing < totals.count {
        words.push(format!(
            "{} of {} values differ",
            totals.differing, totals.count
        ));
    }
    words.join(", ")
}

fn agreeing(report: &Comparison) -> String {
    let (total, identical) = (report.pairs.len(), report.count(Verdict::Identical));
    let pairs = human::count(total, "pair");
    if identical == total {
        return if total == 1 {
            format!("{pairs}, identical")
        } else {
            format!("{pairs}, all identical")
        };
    }
    let worst = report
        .pairs
        .iter()
        .filter_map(|pair| Some(pair.totals.as_ref()?.rel_l2?.0))
        .fold(None, larger);
    // With --rtol or --atol it is not rounding that was asked about.
    let by_tolerance = report.pairs.iter().any(|pair| {
        pair.totals
            .as_ref()
            .is_some_and(|totals| totals.beyond.is_some())
    });
    let allowed = if by_tolerance {
        "tolerance"
    } else {
        "rounding"
    };
    let mut words = vec![
        format!("{identical} identical"),
        format!("{} within {allowed}", report.count(Verdict::Rounding)),
    ];
    if report.count(Verdict::Harmless) > 0 {
        words.push(format!("{} harmless", report.count(Verdict::Harmless)));
    }
    format!(
        "{pairs}, {} (worst rel L2 {})",
        words.join(", "),
        brief(worst)
    )
}

fn incomparable(report: &Comparison) -> String {
    let lacking: Vec<&Pair> = report
        .pairs
        .iter()
        .filter(|pair| !pair.verdict.agrees())
        .collect();
    let first = lacking.first().map_or_else(String::new, |pair| {
        let why = pair.reason.as_deref().unwrap_or("not compared");
        format!(", first {}: {}", human::safe(&pair.name), human::safe(why))
    });
    let what = match lacking
        .iter()
        .all(|pair| pair.unmeasured == Some(Unmeasured::Unreadable))
    {
        true => "cannot be read",
        false => "cannot be compared",
    };
    format!(
        "{} of {} {what}{first}",
        lacking.len(),
        human::count(report.pairs.len(), "pair")
    )
}
