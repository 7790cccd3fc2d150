//! Why: one sentence for each pair that diverged by itself, under the headline.

use super::{Colour, Paint};
use crate::render::{explain::share, human};
use std::io::Write;
use twinscope_report::{CauseKind, Comparison, Pair, Verdict};

/// Faults listed before the rest is only counted.
const SHOWN: usize = 8;

pub(super) fn write(report: &Comparison, paint: Paint, out: &mut dyn Write) -> anyhow::Result<()> {
    let own = &report.divergences;
    match own.as_slice() {
        [] => {}
        [one] => said(&report.pairs[*one], "Why: ", paint, out)?,
        // One fault that shows in several tensors: rope on queries and on keys.
        many if many
            .iter()
            .all(|at| alike(&report.pairs[*at], &report.pairs[many[0]])) =>
        {
            let names: Vec<String> = many
                .iter()
                .map(|at| human::safe(&report.pairs[*at].name).to_string())
                .collect();
            said(
                &report.pairs[many[0]],
                &format!("Why, in {}: ", names.join(" and ")),
                paint,
                out,
            )?;
        }
        many => {
            writeln!(out, "{} independent faults:", many.len())?;
            for (nth, at) in many.iter().take(SHOWN).enumerate() {
                let pair = &report.pairs[*at];
                said(
                    pair,
                    &format!("  {}. {}: ", nth + 1, human::safe(&pair.name)),
                    paint,
                    out,
                )?;
            }
            if many.len() > SHOWN {
                writeln!(out, "  ... and {} more", many.len() - SHOWN)?;
            }
        }
    }
    for pair in report
        .pairs
        .iter()
        .filter(|pair| pair.verdict == Verdict::Harmless)
        .take(SHOWN)
    {
        let again = pair
            .agrees_at
            .as_deref()
            .map(|name| format!(", agrees again at {}", human::safe(name)))
            .unwrap_or_default();
        let why = pair
            .causes
            .first()
            .map(|cause| format!(": {}", human::safe(&cause.text)))
            .unwrap_or_default();
        writeln!(out, "Harmless: {}{why}{again}", human::safe(&pair.name))?;
    }
    Ok(())
}

fn alike(a: &Pair, b: &Pair) -> bool {
    known(a).is_some() && known(a) == known(b)
}

/// What the best cause says, unless it only says that nothing was found.
fn known(pair: &Pair) -> Option<(&str, &str)> {
    let cause = pair
        .causes
        .first()
        .filter(|cause| cause.kind != CauseKind::Unknown)?;
    Some((cause.kind.name(), &cause.text))
}

fn said(pair: &Pair, before: &str, paint: Paint, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(cause) = pair.causes.first() else {
        // Not examined: nothing to say of a single one, its line in a list is still wanted.
        if before.trim_start().starts_with("Why") {
            return Ok(());
        }
        writeln!(out, "{before}not examined")?;
        return Ok(());
    };
    let line = format!(
        "{before}{}{}",
        human::safe(&cause.text),
        share(cause.explained)
    );
    let colour = if cause.kind == CauseKind::Unknown {
        Colour::Doubtful
    } else {
        Colour::Bad
    };
    writeln!(
        out,
        "{}",
        paint.in_colour(colour, super::lines(&line, human::stdout_width()))
    )?;
    Ok(())
}
