//! `--batch FILE`: many comparisons, a report each and a summary.

use super::{Diff, chosen, exit, text_of};
use crate::{
    NOT_DONE,
    failure::{Failure, hint_of},
    interrupt,
    open::Opening,
    render::{
        diff as report, human, json,
        table::{self, Column},
    },
};
use serde::Deserialize;
use std::{
    io::Write,
    path::{Path, PathBuf},
};
use twinscope_compare::Settings;
use twinscope_report::{Batch, BatchRow as Row, Comparison, Verdict};

/// One line of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    reference: PathBuf,
    candidate: Option<PathBuf>,
    name: Option<String>,
    /// Only what differs from the command's own settings.
    #[serde(default)]
    settings: serde_json::Map<String, serde_json::Value>,
}

/// One comparison that can be run.
struct Task {
    name: String,
    line: Line,
    settings: Settings,
}

impl Diff {
    pub(super) fn run_batch(
        &self,
        file: &Path,
        settings: &Settings,
        opening: &Opening,
        out: &mut dyn Write,
    ) -> anyhow::Result<u8> {
        let tasks = tasks(&text_of(file)?, settings).map_err(|error| {
            let hint = hint_of(&error);
            let failure = Failure::new(format!("`{}`, {error}", file.display()));
            hint.into_iter().fold(failure, Failure::hint)
        })?;
        let (mut reports, mut rows) = (Vec::new(), Vec::new());
        for task in &tasks {
            if interrupt::stopped() {
                rows.push(Row {
                    error: Some("stopped before its turn".to_owned()),
                    partial: true,
                    ..task.row()
                });
                reports.push(None);
                continue;
            }
            let (report, row) = self.run_task(task, opening, out)?;
            rows.push(row);
            reports.push(report);
        }
        let worst = rows.iter().map(|row| row.exit).max().unwrap_or(NOT_DONE);
        if opening.json {
            json::document(
                out,
                &Batch {
                    reports,
                    summary: rows,
                },
            )?;
        } else {
            summary(&rows, out)?;
        }
        Ok(worst)
    }

    /// One failure is one row: the others still have an answer.
    fn run_task(
        &self,
        task: &Task,
        opening: &Opening,
        out: &mut dyn Write,
    ) -> anyhow::Result<(Option<Comparison>, Row)> {
        let comparison = self.comparison(
            &task.line.reference,
            task.line.candidate.as_deref(),
            task.settings.clone(),
        );
        let compared = match comparison.run(opening) {
            Ok(compared) => compared,
            Err(error) => {
                report::note(&format!("{}: {error}", task.name));
                return Ok((
                    None,
                    Row {
                        error: Some(error.to_string()),
                        hint: hint_of(&error),
                        ..task.row()
                    },
                ));
            }
        };
        let report = compared.report;
        if !opening.json {
            writeln!(out, "== {}", human::safe(&task.name))?;
            report::text(&report, &self.rows(compared.alone), out)?;
            writeln!(out)?;
            out.flush()?;
        }
        report::warnings(&report);
        compared
            .notes
            .iter()
            .for_each(|note| report::note(&format!("{}: {note}", task.name)));
        let row = Row {
            verdict: Some(report.verdict),
            partial: report.partial,
            first_divergence: report
                .first_divergence
                .as_ref()
                .map(|first| first.name.clone()),
            pairs: Some(report.pairs.len()),
            diverged: Some(report.count(Verdict::Diverged)),
            missing: Some(report.only_reference.len() + report.only_candidate.len()),
            exit: exit::code(&report, self.allow_missing),
            ..task.row()
        };
        Ok((opening.json.then_some(report), row))
    }
}

impl Task {
    /// A row that says no more than what was asked.
    fn row(&self) -> Row {
        Row {
            name: self.name.clone(),
            reference: self.line.reference.display().to_string(),
            candidate: self
                .line
                .candidate
                .as_ref()
                .map(|path| path.display().to_string()),
            verdict: None,
            partial: false,
            first_divergence: None,
            pairs: None,
            diverged: None,
            missing: None,
            exit: NOT_DONE,
            error: None,
            hint: None,
        }
    }
}

/// Every line, read and checked before the first source is opened.
fn tasks(text: &str, settings: &Settings) -> anyhow::Result<Vec<Task>> {
    let mut tasks = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let task = task(line, settings).map_err(|error| {
            Failure::new(format!("line {}: {error}", number + 1))
                .hint("a line is like {\"reference\": \"a.pt\", \"candidate\": \"b.pt\", \"name\": \"first\"}")
        })?;
        tasks.push(task);
    }
    if tasks.is_empty() {
        return Err(Failure::new("there is no comparison in it").into());
    }
    Ok(tasks)
}

fn task(line: &str, settings: &Settings) -> anyhow::Result<Task> {
    let line: Line = serde_json::from_str(line)?;
    let settings = overlaid(settings, &line.settings)?;
    let place = |path: &Path| path.display().to_string();
    let both = || match &line.candidate {
        Some(candidate) => format!("{} against {}", place(&line.reference), place(candidate)),
        None => place(&line.reference),
    };
    Ok(Task {
        name: line.name.clone().unwrap_or_else(both),
        settings,
        line,
    })
}

/// The command's settings with what the line says instead.
fn overlaid(
    settings: &Settings,
    own: &serde_json::Map<String, serde_json::Value>,
) -> anyhow::Result<Settings> {
    if own.is_empty() {
        return Ok(settings.clone());
    }
    let mut all = serde_json::to_value(settings)?;
    for (key, value) in own {
        all[key.as_str()] = value.clone();
    }
    let settings: Settings = serde_json::from_value(all)?;
    chosen::check(&settings)?;
    Ok(settings)
}

fn summary(rows: &[Row], out: &mut dyn Write) -> anyhow::Result<()> {
    let columns = [
        Column::left("comparison"),
        Column::left("verdict"),
        Column::right("pairs"),
        Column::right("diverged"),
        Column::right("missing"),
        Column::left("first divergence"),
    ];
    table::write(
        out,
        &columns,
        rows.len(),
        human::stdout_width(),
        "comparison",
        &mut |at, cells| {
            let row = &rows[at];
            cells.cell(human::safe(&row.name));
            cells.cell(match (row.verdict, row.partial) {
                (Some(verdict), false) => verdict.name().to_owned(),
                (Some(verdict), true) => format!("{}, partial", verdict.name()),
                (None, _) => "no answer".to_owned(),
            });
            for count in [row.pairs, row.diverged, row.missing] {
                cells.cell(count.map_or_else(String::new, |count| count.to_string()));
            }
            cells.cell(human::safe(
                row.first_divergence
                    .as_deref()
                    .or(row.error.as_deref())
                    .unwrap_or(""),
            ));
        },
    )?;
    Ok(())
}
