//! The table of pairs: those around the first divergence and every other that diverged by itself, or all.

use super::{Colour, Paint, Rows, brief};
use crate::render::{
    human,
    table::{self, Column},
};
use std::{collections::BTreeSet, io::Write};
use twinscope_report::{Comparison, Evidence, Origin, Pair, Unmeasured, Verdict};

/// Pairs shown before and after the first divergence.
const BEFORE: usize = 3;
const AFTER: usize = 5;
/// Pairs shown when all is well: the furthest apart.
const WORST: usize = 5;

pub(super) fn write(
    report: &Comparison,
    rows: &Rows,
    paint: Paint,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let shown = choose(report, rows);
    if shown.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let pairs: Vec<&Pair> = shown.iter().map(|at| &report.pairs[*at]).collect();
    let width = human::stdout_width();
    let columns = fitting(&pairs, &shown, width, rows.alone);
    let renamed = pairs.iter().any(|pair| pair.reference != pair.candidate);
    let mut text = Vec::new();
    let titles: Vec<Column> = columns.iter().map(|cells| cells.column()).collect();
    table::write(
        &mut text,
        &titles,
        pairs.len(),
        width,
        "name",
        &mut |at, row| {
            columns
                .iter()
                .for_each(|column| row.cell(column.cell(shown[at], pairs[at])));
        },
    )?;
    let text = String::from_utf8_lossy(&text);
    for (at, line) in text.lines().enumerate() {
        let colour = at.checked_sub(1).and_then(|row| colour(pairs[row]));
        writeln!(
            out,
            "{}",
            colour.map_or_else(|| line.to_owned(), |colour| paint.in_colour(colour, line))
        )?;
    }
    let hidden = report.pairs.len() - shown.len();
    if hidden > 0 {
        writeln!(
            out,
            "... and {}; --all shows every one",
            human::count(hidden, "more pair")
        )?;
    }
    if renamed && !columns.contains(&Cells::Candidate) {
        super::wrapped(
            "(the candidate calls some otherwise: a wider terminal, --json and --csv tell)",
            width,
            out,
        )?;
    }
    if !columns.contains(&Cells::Layout) {
        for (at, pair) in shown.iter().zip(&pairs) {
            if let Some(layout) = layout(pair) {
                super::wrapped(
                    &format!("layout of {}: {}", at + 1, human::safe(&layout)),
                    width,
                    out,
                )?;
            }
        }
    }
    Ok(())
}

/// One column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cells {
    Number,
    Name,
    Candidate,
    Shape,
    Dtype,
    RelL2,
    MaxAbs,
    Cosine,
    Verdict,
    Layout,
}

/// What a terminal that is too narrow does without, the least missed first; layouts are then told below the table.
const DISPENSABLE: [Cells; 6] = [
    Cells::Layout,
    Cells::Cosine,
    Cells::Candidate,
    Cells::Dtype,
    Cells::MaxAbs,
    Cells::Shape,
];

/// Names may be shortened to this before a column goes: their layer and what they are of it should be left.
const SHORT_NAME: usize = 24;

/// The columns that these pairs fill and that this width has room for.
fn fitting(pairs: &[&Pair], shown: &[usize], width: Option<usize>, alone: bool) -> Vec<Cells> {
    use Cells::{Candidate, Cosine, Dtype, Layout, MaxAbs, Name, RelL2, Shape, Verdict};
    let mut columns = vec![
        Cells::Number,
        Name,
        Candidate,
        Shape,
        Dtype,
        RelL2,
        MaxAbs,
        Cosine,
        Verdict,
        Layout,
    ];
    columns.retain(|column| match column {
        Candidate => pairs.iter().any(|pair| pair.reference != pair.candidate),
        Layout => pairs.iter().any(|pair| layout(pair).is_some()),
        _ => true,
    });
    let Some(width) = width else { return columns };
    let wide = |column: &Cells| {
        let cells = pairs
            .iter()
            .zip(shown)
            .map(|(pair, at)| human::columns(&column.cell(*at, pair)));
        let widest = cells
            .chain([column.column().title().len()])
            .max()
            .unwrap_or(0);
        2 + if *column == Name {
            widest.min(SHORT_NAME)
        } else {
            widest
        }
    };
    // Of one source both names are the pair.
    for dispensable in DISPENSABLE
        .into_iter()
        .filter(|column| !(alone && *column == Candidate))
    {
        // Two blanks between columns, none after the last.
        if columns.iter().map(wide).sum::<usize>() <= width + 2 {
            break;
        }
        columns.retain(|column| *column != dispensable);
    }
    columns
}

impl Cells {
    fn column(self) -> Column {
        match self {
            Cells::Number => Column::right("#"),
            Cells::Name => Column::left("name"),
            Cells::Candidate => Column::left("candidate"),
            Cells::Shape => Column::left("shape"),
            Cells::Dtype => Column::left("dtype"),
            Cells::RelL2 => Column::right("rel L2"),
            Cells::MaxAbs => Column::right("max abs"),
            Cells::Cosine => Column::right("cosine"),
            Cells::Verdict => Column::left("verdict"),
            Cells::Layout => Column::left("layout"),
        }
    }

    fn cell(self, at: usize, pair: &Pair) -> String {
        let totals = pair.totals.as_ref();
        match self {
            Cells::Number => (at + 1).to_string(),
            Cells::Name => human::safe(&names(pair.reference.all())).to_string(),
            Cells::Candidate if pair.reference == pair.candidate => String::new(),
            Cells::Candidate => human::safe(&names(pair.candidate.all())).to_string(),
            Cells::Shape => pair
                .shape
                .as_ref()
                .map_or_else(String::new, |shape| human::Dims(shape).to_string()),
            Cells::Dtype => dtypes(&pair.dtypes),
            Cells::RelL2 => totals.map_or_else(String::new, |totals| brief(totals.rel_l2)),
            Cells::MaxAbs => totals.map_or_else(String::new, |totals| brief(totals.max_abs)),
            Cells::Cosine => totals
                .and_then(|totals| totals.cosine)
                .map_or_else(String::new, |value| cosine(value.0)),
            Cells::Verdict => human::safe(&judged(pair)).to_string(),
            Cells::Layout => {
                layout(pair).map_or_else(String::new, |layout| human::safe(&layout).to_string())
            }
        }
    }
}

/// Indices of the pairs to show, in order.
fn choose(report: &Comparison, rows: &Rows) -> Vec<usize> {
    let total = report.pairs.len();
    if rows.all {
        return (0..total).collect();
    }
    if rows.alone {
        return most_alike(report, rows.limit);
    }
    let mut shown = BTreeSet::new();
    let mut add = |at: usize| {
        if shown.len() < rows.limit {
            shown.insert(at);
        }
    };
    if let Some(first) = report.first() {
        // Nearest first, so that a small limit keeps the divergence itself.
        add(first);
        report.divergences.iter().copied().for_each(&mut add);
        for away in 1..=BEFORE.max(AFTER) {
            first
                .checked_sub(away)
                .filter(|_| away <= BEFORE)
                .into_iter()
                .for_each(&mut add);
            Some(first + away)
                .filter(|at| away <= AFTER && *at < total)
                .into_iter()
                .for_each(&mut add);
        }
    }
    // Not having been reached is no news about a pair.
    let news = |pair: &Pair| {
        pair.verdict == Verdict::Incomparable && pair.unmeasured != Some(Unmeasured::Stopped)
    };
    (0..total)
        .filter(|at| news(&report.pairs[*at]))
        .for_each(&mut add);
    if report.first().is_none() {
        let mut apart: Vec<usize> = (0..total)
            .filter(|at| rel_l2(&report.pairs[*at]) > 0.0)
            .collect();
        apart.sort_by(|a, b| rel_l2(&report.pairs[*b]).total_cmp(&rel_l2(&report.pairs[*a])));
        apart.into_iter().take(WORST).for_each(&mut add);
    }
    shown.into_iter().collect()
}

/// Of one source: the pairs nearest to each other, nearest first.
fn most_alike(report: &Comparison, limit: usize) -> Vec<usize> {
    let distance = |at: &usize| {
        let pair = &report.pairs[*at];
        match (&pair.totals, pair.unmeasured) {
            (Some(totals), _) => (0, totals.rel_l2.map_or(f64::INFINITY, f64::from)),
            (None, Some(Unmeasured::Ranked)) => (1, -pair.score),
            (None, _) => (2, 0.0),
        }
    };
    let mut all: Vec<usize> = (0..report.pairs.len()).collect();
    all.sort_by(|a, b| {
        let (a, b) = (distance(a), distance(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    all.truncate(limit);
    all
}

fn rel_l2(pair: &Pair) -> f64 {
    pair.totals
        .as_ref()
        .and_then(|totals| totals.rel_l2)
        .map_or(0.0, f64::from)
}

fn colour(pair: &Pair) -> Option<Colour> {
    match (pair.verdict, pair.origin) {
        (Verdict::Diverged, Some(Origin::Inherited)) => Some(Colour::Faint),
        (Verdict::Diverged, _) => Some(Colour::Bad),
        (Verdict::Incomparable, _) => Some(Colour::Doubtful),
        (Verdict::Identical | Verdict::Rounding | Verdict::Harmless, _) => None,
    }
}

/// The verdict in words, with where it comes from.
fn judged(pair: &Pair) -> String {
    match (pair.verdict, pair.origin, &pair.reason) {
        (Verdict::Diverged, Some(Origin::Inherited), _) => {
            format!("diverged (inherited){}", not_finite(pair))
        }
        (Verdict::Diverged, _, _) => format!("diverged{}", not_finite(pair)),
        (Verdict::Incomparable, _, _) if pair.unmeasured == Some(Unmeasured::Ranked) => {
            format!("only ranked ({:.2} alike)", pair.score)
        }
        (Verdict::Incomparable, _, Some(reason)) => format!("incomparable: {reason}"),
        (Verdict::Harmless, _, _) => match &pair.agrees_at {
            Some(name) => format!("harmless: agrees again at {name}"),
            None => "harmless".to_owned(),
        },
        (verdict, _, _) => verdict.name().to_owned(),
    }
}

/// What no average shows.
fn not_finite(pair: &Pair) -> String {
    match pair
        .totals
        .as_ref()
        .map_or(0, |totals| totals.nonfinite_differing)
    {
        0 => String::new(),
        count => format!(", {count} not finite on one side"),
    }
}

/// The steps in words, when there are any, and whether only the shapes speak for them.
fn layout(pair: &Pair) -> Option<String> {
    let layout = pair
        .layout
        .as_ref()
        .filter(|layout| !layout.steps.is_empty())?;
    Some(if layout.by == Evidence::Shape {
        format!("{} (by shape alone)", layout.text)
    } else {
        layout.text.clone()
    })
}

/// One name, or parts: `q + k + v`.
fn names(names: &[String]) -> String {
    const MOST: usize = 3;
    match names {
        [one] => one.clone(),
        many if many.len() > MOST => format!("{} + ... ({} parts)", many[0], many.len()),
        many => many.join(" + "),
    }
}

/// `bf16`, or `f32 / bf16` where the sides differ.
fn dtypes([reference, candidate]: &[String; 2]) -> String {
    if reference == candidate {
        reference.clone()
    } else {
        format!("{reference} / {candidate}")
    }
}

/// Digits where they matter: how far from 1.
fn cosine(value: f64) -> String {
    let short = format!("{value:.6}");
    if short.contains('.') {
        short.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        short
    }
}
