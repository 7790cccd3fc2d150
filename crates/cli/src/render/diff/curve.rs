//! The divergence over depth, one column for each pair or for a few of them: how large `rel_l2` is, on a log scale.

use super::{Colour, Paint};
use crate::render::human;
use std::io::Write;
use twinscope_report::{Comparison, Number, Pair, Verdict};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Identical: nothing to see.
const NOTHING: char = '·';
/// Not measured.
const UNKNOWN: char = '?';

/// What the bars stand for, as powers of ten. The highest is unrelated values; the lowest is the smallest difference there is, so
/// that drift shows whatever the precision, but never above a thousandth nor below rounding in f32.
const HIGHEST: f64 = 0.0;
const LOWEST: std::ops::RangeInclusive<f64> = -8.0..=-3.0;

const TITLE: &str = "rel L2  ";

pub(super) fn write(
    report: &Comparison,
    width: usize,
    paint: Paint,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let lowest = lowest(report);
    let scale = format!("  (log, ▁ 1e{lowest} to █ 1; · identical)");
    let room = width
        .saturating_sub(TITLE.len() + scale.chars().count())
        .clamp(16, 100);
    // Columns of equal size; the last may be smaller.
    let each = report.pairs.len().div_ceil(room).max(1);
    let bars: String = report
        .pairs
        .chunks(each)
        .map(|pairs| column(pairs, lowest))
        .collect();
    writeln!(
        out,
        "{TITLE}{bars}{}",
        paint.in_colour(Colour::Faint, scale)
    )?;
    if let Some(first) = report.first() {
        let at = first / each;
        let name = human::shorten(&human::safe(&report.pairs[first].name).to_string(), 60);
        let mark = format!("^ {name}");
        writeln!(
            out,
            "{:pad$}{}",
            "",
            paint.in_colour(Colour::Bad, mark),
            pad = TITLE.len() + at
        )?;
    }
    Ok(())
}

/// The power of ten below the smallest difference.
fn lowest(report: &Comparison) -> f64 {
    let differences = report
        .pairs
        .iter()
        .filter_map(|pair| Some(pair.totals.as_ref()?.rel_l2?.0))
        .filter(|rel_l2| *rel_l2 > 0.0);
    differences
        .map(|rel_l2| rel_l2.log10().floor())
        .fold(*LOWEST.end(), f64::min)
        .max(*LOWEST.start())
}

/// The worst of a few pairs.
fn column(pairs: &[Pair], lowest: f64) -> char {
    let levels = pairs.iter().map(|pair| level(pair, lowest));
    match levels.max() {
        Some(Level::Bar(bar)) => BARS[bar],
        Some(Level::Unknown) => UNKNOWN,
        Some(Level::Nothing) | None => NOTHING,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Unknown,
    Nothing,
    Bar(usize),
}

fn level(pair: &Pair, lowest: f64) -> Level {
    let Some(totals) = &pair.totals else {
        return Level::Unknown;
    };
    if pair.verdict == Verdict::Identical {
        return Level::Nothing;
    }
    // Without a scale to be relative to, or with a NaN, it is as far apart as can be.
    let top = BARS.len() - 1;
    match totals.rel_l2.filter(|_| totals.nonfinite_differing == 0) {
        Some(Number(rel_l2)) if rel_l2 > 0.0 => {
            let part = (rel_l2.log10() - lowest) / (HIGHEST - lowest);
            Level::Bar((part * top as f64).round().clamp(0.0, top as f64) as usize)
        }
        _ => Level::Bar(top),
    }
}
