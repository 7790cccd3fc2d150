//! Numbers, sizes and names as people read them.

use std::{fmt, io::IsTerminal};

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `76.0 KiB`; bytes below one KiB are exact.
pub(crate) fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        // What would print as 1024.0 is one of the next unit.
        if scaled < 1023.95 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    format!("{scaled:.1} {unit}")
}

/// `8G`, `512M`, `1.5GiB`, `4096`: powers of 1024, whatever the letter's case.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let bare = lower
        .strip_suffix("ib")
        .or_else(|| lower.strip_suffix('b'))
        .unwrap_or(&lower);
    let (digits, power) = match bare.char_indices().last() {
        Some((at, letter)) if letter.is_ascii_alphabetic() => {
            let power = ['k', 'm', 'g', 't', 'p']
                .iter()
                .position(|unit| *unit == letter)
                .ok_or("the unit is K, M, G, T or P")?;
            (&bare[..at], power as u32 + 1)
        }
        _ => (bare, 0),
    };
    let unit = 1024u64.pow(power);
    if let Ok(whole) = digits.trim().parse::<u64>() {
        return whole
            .checked_mul(unit)
            .ok_or_else(|| "more bytes than can be counted".to_owned());
    }
    let scaled = digits
        .trim()
        .parse::<f64>()
        .map_err(|_| "a size is a number and a unit, like 8G")?
        * unit as f64;
    if scaled >= 0.0 && scaled < u64::MAX as f64 {
        Ok(scaled as u64)
    } else {
        Err("more bytes than can be counted".to_owned())
    }
}

/// Six significant digits, like C's `%.6g`.
pub(crate) fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let rounded = format!("{value:.5e}");
    let (digits, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..9).contains(&exponent) {
        return format!("{}e{exponent}", trim(digits));
    }
    let places = usize::try_from(5 - exponent).unwrap_or(0);
    trim(&format!("{value:.places$}")).to_owned()
}

fn trim(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

/// `1 tensor`, `3 tensors`.
pub(crate) fn count(number: usize, word: &str) -> String {
    if number == 1 {
        format!("1 {word}")
    } else {
        format!("{number} {word}s")
    }
}

/// A shape as `Shape` prints it, without the strings it makes on the way: tables have many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dims<'a>(pub(crate) &'a [u64]);

impl fmt::Display for Dims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (at, dim) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            dim.fmt(f)?;
        }
        f.write_str("]")
    }
}

/// A text from a file, made harmless: no control character, escape or reordering mark of it reaches the terminal.
pub(crate) fn safe(text: &str) -> Safe<'_> {
    Safe(text)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Safe<'a>(&'a str);

impl fmt::Display for Safe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(is_unsafe) {
            let (clean, from) = rest.split_at(at);
            let bad = from.chars().next().unwrap_or_default();
            f.write_str(clean)?;
            match bad {
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                bad if bad < '\u{100}' => write!(f, "\\x{:02x}", u32::from(bad))?,
                bad => write!(f, "\\u{{{:x}}}", u32::from(bad))?,
            }
            rest = &from[bad.len_utf8()..];
        }
        f.write_str(rest)
    }
}

fn is_unsafe(c: char) -> bool {
    // Besides control characters: marks that reorder or hide what surrounds them, and line breaks.
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// At most `width` columns; what does not fit is left out in the middle, where names differ least.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let keep = width.saturating_sub(1);
    let head = fitting(text.chars(), keep / 2);
    let mut tail = fitting(text.chars().rev(), keep - keep / 2);
    tail.reverse();
    head.into_iter().chain(['…']).chain(tail).collect()
}

fn fitting(letters: impl Iterator<Item = char>, width: usize) -> Vec<char> {
    let mut taken = 0;
    letters
        .take_while(|letter| {
            taken += columns_of(*letter);
            taken <= width
        })
        .collect()
}

/// How many columns of a terminal a text takes.
pub(crate) fn columns(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.chars().map(columns_of).sum()
    }
}

/// Marks that stand above or below a letter take none; Chinese, Japanese and Korean letters and emoji take two.
fn columns_of(letter: char) -> usize {
    match letter {
        '\u{300}'..='\u{36f}'
        | '\u{1ab0}'..='\u{1aff}'
        | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' => 0,
        '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{303e}'
        | '\u{3041}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{a4cf}' => 2,
        '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe4f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}' => 2,
        '\u{1f300}'..='\u{1f64f}'
        | '\u{1f680}'..='\u{1f6ff}'
        | '\u{1f900}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

/// How wide stdout is, when it is a terminal.
pub(crate) fn stdout_width() -> Option<usize> {
    if std::io::stdout().is_terminal() {
        terminal_width()
    } else {
        None
    }
}

pub(crate) fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well_at_every_scale() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(77824), "76.0 KiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn sizes_are_read_with_every_common_unit() {
        assert_eq!(parse_size("8G"), Ok(8 << 30));
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(parse_size("1.5k"), Ok(1536));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert!(parse_size("8X").is_err());
        assert!(parse_size("").is_err());
        assert!(parse_size("-1G").is_err());
        assert!(parse_size("99999999999P").is_err());
    }

    #[test]
    fn numbers_have_six_digits_and_no_idle_zeros() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (1234567.0, "1234567"),
            (123456789012.0, "1.23457e11"),
            (0.000012345678, "1.23457e-5"),
            (-0.000123456789, "-0.000123457"),
            (999999.96, "1000000"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_hostile_name_cannot_drive_the_terminal() {
        assert_eq!(
            safe("a\x1b]0;owned\x07\n\u{9b}2J\u{202e}é").to_string(),
            "a\\x1b]0;owned\\x07\\n\\x9b2J\\u{202e}é"
        );
        assert_eq!(safe("model.layers.0").to_string(), "model.layers.0");
    }

    #[test]
    fn shapes_print_alike_here_and_there() {
        for dims in [&[][..], &[7], &[1, 0, 300]] {
            assert_eq!(
                Dims(dims).to_string(),
                twinscope_tensor::Shape::from(dims.to_vec()).to_string()
            );
        }
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(shorten("model.layers.0.weight", 11), "model…eight");
        assert_eq!(shorten("short", 11), "short");
        assert_eq!(shorten("any", 0), "…");
        assert_eq!(shorten("日本語の名前", 6), "日…前", "half a letter is none");
    }

    #[test]
    fn letters_take_the_columns_that_terminals_give_them() {
        assert_eq!(
            [
                columns("abc"),
                columns("日本語"),
                columns("e\u{301}"),
                columns("é😀…")
            ],
            [3, 6, 1, 4]
        );
    }
}
