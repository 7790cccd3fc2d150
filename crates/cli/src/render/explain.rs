//! One pair in depth: the causes, and what was ruled out.

use super::{
    diff::brief,
    human,
    table::{self, Column},
};
use std::io::Write;
use twinscope_report::{Attempt, CauseKind, Explained};

pub(crate) fn text(explained: &Explained, out: &mut dyn Write) -> anyhow::Result<()> {
    let pair = &explained.pair;
    let origin = pair
        .origin
        .map(|origin| format!(", {}", origin.name()))
        .unwrap_or_default();
    writeln!(
        out,
        "{}: {}{origin}",
        human::safe(&pair.name),
        pair.verdict.name()
    )?;
    if let Some(totals) = &pair.totals {
        let noise = match explained.noise[0] {
            Some(noise) if noise > 0.0 => {
                format!("; rounding here is up to {}", brief(Some(noise)))
            }
            _ => String::new(),
        };
        writeln!(
            out,
            "rel L2 {}, max abs {}{noise}",
            brief(totals.rel_l2),
            brief(totals.max_abs)
        )?;
    }
    if let Some(agrees_at) = &pair.agrees_at {
        writeln!(out, "agrees again at {}", human::safe(agrees_at))?;
    }
    if let Some(formula) = &explained.formula {
        let follows = match explained.follows {
            Some(true) => {
                "the candidate follows it from its own inputs: the difference came with them"
            }
            _ => "the candidate does not follow it from its own inputs: the difference begins here",
        };
        writeln!(out, "reference = {}; {follows}", human::safe(formula))?;
    }
    writeln!(out)?;
    if pair.verdict.agrees() && explained.causes.is_empty() {
        writeln!(out, "there is nothing to explain")?;
    }
    for cause in &explained.causes {
        writeln!(
            out,
            "{}: {}{}",
            cause.kind,
            human::safe(&cause.text),
            share(cause.explained)
        )?;
    }
    if explained.attempts.is_empty() {
        return Ok(());
    }
    let mut tried: Vec<&Attempt> = explained.attempts.iter().collect();
    tried.sort_by(|a, b| {
        b.proven.cmp(&a.proven).then(
            b.explained
                .unwrap_or(-1.0)
                .total_cmp(&a.explained.unwrap_or(-1.0)),
        )
    });
    writeln!(out, "\nTried:")?;
    let columns = [
        Column::left("hypothesis"),
        Column::right("explains"),
        Column::left(""),
        Column::left("what"),
    ];
    table::write(
        out,
        &columns,
        tried.len(),
        human::stdout_width(),
        "what",
        &mut |at, row| {
            let attempt = tried[at];
            row.cell(
                attempt
                    .kind
                    .as_ref()
                    .map_or(attempt.hypothesis.as_str(), CauseKind::name),
            );
            row.cell(attempt.explained.map(percent).unwrap_or_default());
            row.cell(if attempt.proven { "proven" } else { "" });
            row.cell(human::safe(&attempt.text));
        },
    )?;
    Ok(())
}

/// `; explains 99.998 % of the difference`
pub(crate) fn share(explained: Option<f64>) -> String {
    explained
        .map(|explained| format!("; explains {} of the difference", percent(explained)))
        .unwrap_or_default()
}

/// Digits where they matter: how far from all.
fn percent(explained: f64) -> String {
    match explained {
        all if all >= 0.999_995 => "100.000 %".to_owned(),
        most if most >= 0.99 => format!("{:.3} %", 100.0 * most),
        some => format!("{:.0} %", 100.0 * some),
    }
}
