//! What a user changes about a session, and how it is taken back: each edit is logged with what it replaced.

use crate::{
    problem::{Answer, Problem},
    session::Record,
};
use serde::{Deserialize, Serialize};
use twinscope_compare::{
    Settings,
    layout::parse_steps,
    mapfile, plan,
    settings::{LayoutOverride, MapEntry},
};
use twinscope_report::{Comparison, Row};
use utoipa::ToSchema;

/// Which side a name is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SideName {
    Reference,
    Candidate,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Edit {
    /// These are one tensor. Several names on a side are its parts, in order. What they were paired with before is left over.
    Pair {
        reference: Vec<String>,
        candidate: Vec<String>,
    },
    /// These are not: both are left over.
    Unpair {
        reference: Vec<String>,
        candidate: Vec<String>,
    },
    /// The suggestion of a leftover is right.
    Accept { side: SideName, name: String },
    /// Every suggestion of at least this score is right.
    AcceptAll { score: f64 },
    /// How the pair of this reference name lies: `squeeze(0) permute(1,0,2)`; null lets the search decide again.
    Layout { name: String, steps: Option<String> },
    /// Rules and their order, patterns, thresholds, tolerances: all of them, as `GET /settings` gives them.
    Settings {
        #[schema(value_type = Object)]
        settings: Box<Settings>,
    },
    /// Pairs by name, JSON or CSV, in place of those decided by hand so far.
    ImportMap { text: String },
    /// Settings from a file, TOML or JSON.
    ImportSettings { text: String },
    /// The keys of all pairs in the order to be shown; null goes back to execution order.
    Order { keys: Option<Vec<String>> },
    /// One pair of the pinned order to another place.
    Move { key: String, to: usize },
}

/// What an edit did, to be undone and done again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    Settings {
        label: String,
        before: Box<Settings>,
        after: Box<Settings>,
    },
    Order {
        label: String,
        before: Option<Vec<String>>,
        after: Option<Vec<String>>,
    },
    Move {
        label: String,
        from: usize,
        to: usize,
    },
}

impl Change {
    pub fn label(&self) -> &str {
        match self {
            Change::Settings { label, .. }
            | Change::Order { label, .. }
            | Change::Move { label, .. } => label,
        }
    }

    /// Whether pairs must be found and measured anew.
    pub fn is_about_pairs(&self) -> bool {
        matches!(self, Change::Settings { .. })
    }

    /// Carries it out, or takes it back.
    pub fn carry_out(&self, record: &mut Record, back: bool) {
        match self {
            Change::Settings { before, after, .. } => {
                record.settings = if back {
                    (**before).clone()
                } else {
                    (**after).clone()
                }
            }
            Change::Order { before, after, .. } => {
                record.order = if back { before.clone() } else { after.clone() }
            }
            Change::Move { from, to, .. } => {
                let (from, to) = if back { (*to, *from) } else { (*from, *to) };
                if let Some(order) = &mut record.order
                    && from < order.len()
                    && to < order.len()
                {
                    let key = order.remove(from);
                    order.insert(to, key);
                }
            }
        }
        if self.is_about_pairs() {
            record.revision += 1;
        }
    }
}

fn shown(reference: &[String], candidate: &[String]) -> String {
    format!("{} = {}", reference.join(" + "), candidate.join(" + "))
}

impl Edit {
    /// What this edit does to a session, as its record and report are now.
    pub fn change(&self, record: &Record, report: Option<&Comparison>) -> Answer<Change> {
        let mut after = record.settings.clone();
        let label = match self {
            Edit::Pair {
                reference,
                candidate,
            } => {
                if reference.is_empty() || candidate.is_empty() {
                    return Err(Problem::bad("bad_edit", "a pair has a name on each side"));
                }
                pair(&mut after, reference, candidate);
                format!("paired {}", shown(reference, candidate))
            }
            Edit::Unpair {
                reference,
                candidate,
            } => {
                let entry = MapEntry {
                    reference: reference.as_slice().into(),
                    candidate: candidate.as_slice().into(),
                };
                after.map.retain(|other| *other != entry);
                if !after.unpaired.contains(&entry) {
                    after.unpaired.push(entry);
                }
                format!("took {} apart", shown(reference, candidate))
            }
            Edit::Accept { side, name } => {
                let (reference, candidate) = suggestion(need(report)?, *side, name)?;
                pair(
                    &mut after,
                    std::slice::from_ref(&reference),
                    std::slice::from_ref(&candidate),
                );
                format!("accepted {reference} = {candidate}")
            }
            Edit::AcceptAll { score } => {
                let count = accept_all(&mut after, need(report)?, *score);
                if count == 0 {
                    return Err(Problem::conflict(
                        "nothing_to_accept",
                        format!("no suggestion has a score of {score} or more"),
                    ));
                }
                format!("accepted {count} suggestions")
            }
            Edit::Layout { name, steps } => {
                let glob = globset::escape(name);
                after.layouts.retain(|layout| layout.name != glob);
                if let Some(steps) = steps {
                    // Before the globs that may name it too: the first that fits counts.
                    after.layouts.insert(
                        0,
                        LayoutOverride {
                            name: glob,
                            steps: steps.clone(),
                        },
                    );
                }
                format!("changed the layout of {name}")
            }
            Edit::Settings { settings } => {
                after = (**settings).clone();
                "changed the settings".to_owned()
            }
            Edit::ImportMap { text } => {
                after.map = mapfile::parse(text)
                    .map_err(|error| Problem::bad("bad_map", error.to_string()))?;
                format!("imported {} pairs", after.map.len())
            }
            Edit::ImportSettings { text } => {
                after = Settings::from_text(text)?;
                "imported settings".to_owned()
            }
            Edit::Order { keys } => {
                let label = if keys.is_some() {
                    "pinned the order"
                } else {
                    "went back to execution order"
                };
                return Ok(Change::Order {
                    label: label.to_owned(),
                    before: record.order.clone(),
                    after: keys.clone(),
                });
            }
            Edit::Move { key, to } => return moved(record, report, key, *to),
        };
        check(&after, record.settings.plugins.as_slice())?;
        Ok(Change::Settings {
            label,
            before: Box::new(record.settings.clone()),
            after: Box::new(after),
        })
    }
}

/// Everything that is wrong with settings whatever the sources are. A page must not be able to start programs.
pub(crate) fn check(settings: &Settings, plugins: &[String]) -> Answer<()> {
    settings.check()?;
    if settings
        .plugins
        .iter()
        .any(|plugin| !plugins.contains(plugin))
    {
        return Err(Problem::bad(
            "bad_settings",
            "programs that pair tensors can only be named on the command line",
        )
        .hint("start with `twinscope serve --match exec:PROG`, or use `twinscope diff`"));
    }
    for layout in &settings.layouts {
        parse_steps(&layout.steps).map_err(|error| {
            Problem::bad(
                "bad_layout",
                format!("the layout of `{}`: {error}", layout.name),
            )
        })?;
        globset::Glob::new(&layout.name).map_err(|error| {
            Problem::bad(
                "bad_layout",
                format!("the layout of `{}`: {}", layout.name, error.kind()),
            )
        })?;
    }
    Ok(plan::check(settings)?)
}

fn need(report: Option<&Comparison>) -> Answer<&Comparison> {
    report.ok_or_else(|| Problem::conflict("not_compared", "nothing has been compared yet"))
}

/// A name is in one entry at most: what it was paired with by hand before is forgotten.
fn pair(settings: &mut Settings, reference: &[String], candidate: &[String]) {
    let free = |entry: &MapEntry| {
        !entry
            .reference
            .all()
            .iter()
            .any(|name| reference.contains(name))
            && !entry
                .candidate
                .all()
                .iter()
                .any(|name| candidate.contains(name))
    };
    settings.map.retain(free);
    let entry = MapEntry {
        reference: reference.into(),
        candidate: candidate.into(),
    };
    settings.unpaired.retain(|other| *other != entry);
    settings.map.push(entry);
}

fn suggestion(report: &Comparison, side: SideName, name: &str) -> Answer<(String, String)> {
    let left = if side == SideName::Reference {
        &report.only_reference
    } else {
        &report.only_candidate
    };
    let found = left
        .iter()
        .find(|leftover| leftover.name == name)
        .and_then(|leftover| leftover.suggestion.clone());
    let partner = found
        .ok_or_else(|| Problem::conflict("no_suggestion", format!("`{name}` has no suggestion")))?;
    Ok(if side == SideName::Reference {
        (name.to_owned(), partner)
    } else {
        (partner, name.to_owned())
    })
}

/// The best first, so that a name wanted by two goes to the more alike.
fn accept_all(settings: &mut Settings, report: &Comparison, least: f64) -> usize {
    let mut all: Vec<(f64, &str, &str)> = report
        .only_reference
        .iter()
        .filter_map(|left| Some((left.score?, left.name.as_str(), left.suggestion.as_deref()?)))
        .filter(|(score, ..)| *score >= least)
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut taken, mut count) = (std::collections::HashSet::new(), 0);
    for (_, reference, candidate) in all {
        if report
            .only_candidate
            .iter()
            .any(|left| left.name == candidate)
            && taken.insert(candidate)
        {
            pair(settings, &[reference.to_owned()], &[candidate.to_owned()]);
            count += 1;
        }
    }
    count
}

/// A move pins the order when it is not pinned yet.
fn moved(record: &Record, report: Option<&Comparison>, key: &str, to: usize) -> Answer<Change> {
    let label = format!("moved {key}");
    let unknown = || Problem::not_found("no_such_pair", format!("there is no pair `{key}`"));
    if let Some(order) = &record.order {
        let from = order
            .iter()
            .position(|other| other == key)
            .ok_or_else(unknown)?;
        return Ok(Change::Move {
            label,
            from,
            to: to.min(order.len() - 1),
        });
    }
    let mut keys: Vec<String> = need(report)?
        .pairs
        .iter()
        .map(twinscope_report::Pair::key)
        .collect();
    let from = keys
        .iter()
        .position(|other| other == key)
        .ok_or_else(unknown)?;
    let moving = keys.remove(from);
    keys.insert(to.min(keys.len()), moving);
    Ok(Change::Order {
        label,
        before: None,
        after: Some(keys),
    })
}

/// Rows as they are to be shown: the pinned ones in their order, what came later behind them.
pub(crate) fn in_order(rows: Vec<Row>, order: Option<&[String]>) -> Vec<Row> {
    let Some(order) = order else { return rows };
    let place: std::collections::HashMap<&str, usize> = order
        .iter()
        .enumerate()
        .map(|(at, key)| (key.as_str(), at))
        .collect();
    let mut rows = rows;
    rows.sort_by_key(|row| place.get(row.key.as_str()).copied().unwrap_or(usize::MAX));
    rows
}
