//! A comparison as people read it: the answer in one sentence, the divergence over depth, the pairs around it, what has no partner.
//!
//! Meaning is in words; colour only repeats it, and only on a terminal that has not said `NO_COLOR`.

mod curve;
mod headline;
mod pairs;
mod why;

use super::human;
use std::{
    fmt,
    io::{self, IsTerminal, Write},
};
use twinscope_report::{Comparison, Leftover, Overall, Unmeasured, Verdict};

/// Which pairs to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) limit: usize,
    pub(crate) all: bool,
    /// One source: the most alike pairs are the news.
    pub(crate) alone: bool,
}

/// The report for a terminal or a log.
pub(crate) fn text(report: &Comparison, rows: &Rows, out: &mut dyn Write) -> anyhow::Result<()> {
    let paint = Paint::of_stdout();
    let (sentence, mood) = headline::of(report, rows.alone);
    writeln!(
        out,
        "{}",
        paint.in_colour(mood, lines(&sentence, human::stdout_width()))
    )?;
    if !rows.alone {
        why::write(report, paint, out)?;
    }
    if !rows.alone && report.pairs.len() > 1 {
        curve::write(report, human::stdout_width().unwrap_or(100), paint, out)?;
    }
    counts(report, out)?;
    found_out(report, out)?;
    pairs::write(report, rows, paint, out)?;
    let most = if rows.all { usize::MAX } else { LEFTOVERS };
    leftovers("reference", &report.only_reference, most, out)?;
    leftovers("candidate", &report.only_candidate, most, out)
}

fn wrapped(text: &str, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", lines(text, width))
}

/// The text broken between words, so that a terminal does not break them inside; where lines have no width, as it is.
fn lines(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let (mut out, mut column) = (String::with_capacity(text.len() + 8), 0);
    for word in text.split_inclusive(' ') {
        let (len, blank) = (human::columns(word), usize::from(word.ends_with(' ')));
        if column > 0 && column + len - blank > width {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            column = 0;
        }
        out.push_str(word);
        column += len;
    }
    out
}

/// How many pairs came to what.
fn counts(report: &Comparison, out: &mut dyn Write) -> anyhow::Result<()> {
    if report.pairs.is_empty() {
        return Ok(());
    }
    // The headline has said it all.
    let all_said = report.verdict == Overall::Agree && report.layer_offset == 0;
    if all_said {
        return Ok(());
    }
    let own = report.divergences.len();
    let mut parts = Vec::new();
    for verdict in [Verdict::Identical, Verdict::Rounding, Verdict::Harmless] {
        parts.push((report.count(verdict), verdict.name().to_owned()));
    }
    let diverged = report.count(Verdict::Diverged);
    let inherited = if diverged > own {
        format!("diverged ({own} by itself, {} inherited)", diverged - own)
    } else {
        "diverged".to_owned()
    };
    parts.push((diverged, inherited));
    for (why, words) in [
        (Unmeasured::Shapes, "incomparable"),
        (Unmeasured::Unreadable, "unreadable"),
        (Unmeasured::Stopped, "not reached"),
        (
            Unmeasured::Ranked,
            "only ranked by sketch, not measured (--exact measures them)",
        ),
    ] {
        let unmeasured = report
            .pairs
            .iter()
            .filter(|pair| pair.unmeasured == Some(why));
        parts.push((unmeasured.count(), words.to_owned()));
    }
    let words: Vec<String> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    wrapped(
        &format!(
            "{}: {}",
            human::count(report.pairs.len(), "pair"),
            words.join(", ")
        ),
        human::stdout_width(),
        out,
    )?;
    if report.layer_offset != 0 {
        writeln!(
            out,
            "layer offset: layer 0 of the reference is layer {} of the candidate",
            report.layer_offset
        )?;
    }
    Ok(())
}

/// What was found out about the runs that nobody said, and that the verdict rests on.
fn found_out(report: &Comparison, out: &mut dyn Write) -> anyhow::Result<()> {
    let said = match &report.computed_in {
        [None, None] => return Ok(()),
        [Some(dtype), Some(other)] if dtype == other => vec![("both sides were", dtype)],
        [reference, candidate] => {
            let sides = [
                ("the reference was", reference),
                ("the candidate was", candidate),
            ];
            sides
                .into_iter()
                .filter_map(|(side, dtype)| Some((side, dtype.as_ref()?)))
                .collect()
        }
    };
    for (side, dtype) in said {
        let text = format!(
            "{side} computed in {dtype} and recorded wider: the values are numbers of {dtype}, so rounding is that of {dtype}"
        );
        wrapped(&text, human::stdout_width(), out)?;
    }
    Ok(())
}

/// A screen of leftovers says enough.
const LEFTOVERS: usize = 20;

fn leftovers(
    side: &str,
    left: &[Leftover],
    most: usize,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nOnly in the {side}: {}",
        human::count(left.len(), "tensor")
    )?;
    for leftover in left.iter().take(most) {
        write!(out, "  {}", human::safe(&leftover.name))?;
        match (&leftover.suggestion, leftover.score) {
            (Some(nearest), Some(score)) => write!(
                out,
                "  (nearest: {}, {score:.2} alike)",
                human::safe(nearest)
            )?,
            // It has its own partner: a head that one side keeps and the other has tied.
            (Some(same), None) => write!(
                out,
                "  (holds the same as {}, which is paired)",
                human::safe(same)
            )?,
            (None, _) => {}
        }
        writeln!(out)?;
    }
    if left.len() > most {
        writeln!(
            out,
            "  ... and {} more; --all lists them",
            left.len() - most
        )?;
    }
    Ok(())
}

/// What could not be read and what is odd, on stderr.
pub(crate) fn warnings(report: &Comparison) {
    // A closed stderr is no reason to stop.
    let _ = write_warnings(report, &mut io::stderr().lock());
}

/// One more thing to know, on stderr.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "note: {}", human::safe(text));
}

fn write_warnings(report: &Comparison, to: &mut dyn Write) -> io::Result<()> {
    let attacks: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.is_attack())
        .collect();
    let others: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| !finding.is_attack())
        .collect();
    super::warnings::lines(to, attacks.len(), |at| {
        format!(
            "unsafe: the {}: {}",
            attacks[at].side,
            human::safe(&attacks[at].text)
        )
    })?;
    super::warnings::lines(to, report.skipped.len(), |at| {
        let skipped = &report.skipped[at];
        let what = if skipped.name.is_empty() {
            "a part".to_owned()
        } else {
            format!("`{}`", human::safe(&skipped.name))
        };
        format!(
            "warning: skipped {what} of the {}: {}",
            skipped.side,
            human::safe(&skipped.reason)
        )
    })?;
    super::warnings::lines(to, others.len(), |at| {
        format!(
            "note: the {}: {}",
            others[at].side,
            human::safe(&others[at].text)
        )
    })
}

/// Whether colours are wanted.
#[derive(Clone, Copy, Debug)]
struct Paint(bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colour {
    Good,
    Bad,
    Doubtful,
    Faint,
}

impl Paint {
    fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self(!refused && io::stdout().is_terminal())
    }

    fn in_colour<T: fmt::Display>(self, colour: Colour, text: T) -> String {
        let code = match colour {
            Colour::Good => "32",
            Colour::Bad => "1;31",
            Colour::Doubtful => "33",
            Colour::Faint => "2",
        };
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }
}

/// Two digits are enough to see how far apart things are.
pub(crate) fn brief(value: Option<impl Into<f64>>) -> String {
    match value.map(Into::into) {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(value) if !value.is_finite() => human::number(value),
        Some(value) if (0.01..1000.0).contains(&value.abs()) => {
            let digits = format!("{value:.1e}");
            digits
                .parse::<f64>()
                .map_or(digits, |value| value.to_string())
        }
        Some(value) => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_break_between_words() {
        assert_eq!(lines("one two three", Some(9)), "one two\nthree");
        assert_eq!(lines("one two three", Some(7)), "one two\nthree");
        assert_eq!(lines("endlessname then", Some(5)), "endlessname\nthen");
        assert_eq!(lines("  1. indented", Some(40)), "  1. indented");
        assert_eq!(lines("one two three", None), "one two three");
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.3249, "0.32"),
            (12.34, "12"),
            (1.2e-7, "1.2e-7"),
            (123_456.0, "1.2e5"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in cases {
            assert_eq!(brief(Some(value)), text);
        }
        assert_eq!(brief(None::<f64>), "-");
    }
}
