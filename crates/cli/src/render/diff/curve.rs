//! The divergence over depth, one column for each pair or for a few of them: how large `rel_l2` is, on a log scale.

use super::{Colour, Paint};
use crate::render::human;
use std::io::Write;
use twinscope_compare::{Report, Verdict, report::PairReport};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Identical: nothing to see.
const NOTHING: char = '·';
/// Not measured.
const UNKNOWN: char = '?';

/// What the lowest and the highest bar stand for, as powers of ten: below is rounding in f32, above is unrelated.
const LOWEST: f64 = -8.0;
const HIGHEST: f64 = 0.0;

const TITLE: &str = "rel L2  ";
const SCALE: &str = "  (log, ▁ 1e-8 to █ 1; · identical)";

pub(super) fn write(report: &Report, width: usize, paint: Paint, out: &mut dyn Write) -> anyhow::Result<()> {
    let room = width.saturating_sub(TITLE.len() + SCALE.chars().count()).clamp(16, 100);
    // Columns of equal size; the last may be smaller.
    let each = report.pairs.len().div_ceil(room).max(1);
    let bars: String = report.pairs.chunks(each).map(column).collect();
    writeln!(out, "{TITLE}{bars}{}", paint.in_colour(Colour::Faint, SCALE))?;
    if let Some(first) = report.first_divergence() {
        let at = first / each;
        let name = human::shorten(&human::safe(&report.pairs[first].name).to_string(), 60);
        let mark = format!("^ {name}");
        writeln!(out, "{:pad$}{}", "", paint.in_colour(Colour::Bad, mark), pad = TITLE.len() + at)?;
    }
    Ok(())
}

/// The worst of a few pairs.
fn column(pairs: &[PairReport]) -> char {
    let levels = pairs.iter().map(level);
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

fn level(pair: &PairReport) -> Level {
    let Some(totals) = &pair.totals else { return Level::Unknown };
    if pair.verdict == Verdict::Identical {
        return Level::Nothing;
    }
    // Without a scale to be relative to, or with a NaN, it is as far apart as can be.
    let top = BARS.len() - 1;
    match totals.rel_l2.filter(|_| totals.nonfinite_differing == 0) {
        Some(rel_l2) if rel_l2 > 0.0 => {
            let part = (rel_l2.log10() - LOWEST) / (HIGHEST - LOWEST);
            Level::Bar((part * top as f64).round().clamp(0.0, top as f64) as usize)
        }
        _ => Level::Bar(top),
    }
}
