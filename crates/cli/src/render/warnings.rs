//! What a user must know beside the data, on stderr: attacks first, then what could not be read, then oddities.

use super::human;
use std::io::{self, Write};
use twinscope_tensor::{FindingKind, Listing};

/// A hostile file can be odd in a million ways; a screen is enough to say so.
const AT_MOST: usize = 20;

/// Says everything a listing found wrong.
pub(crate) fn about(listing: &Listing) {
    // A closed stderr is no reason to stop.
    let _ = write(listing, &mut io::stderr().lock());
}

/// Says only what the source attempted: for commands that read one tensor of it.
pub(crate) fn about_attacks(listing: &Listing) {
    let _ = attacks(listing, &mut io::stderr().lock());
}

fn write(listing: &Listing, to: &mut dyn Write) -> io::Result<()> {
    attacks(listing, to)?;
    skipped(
        listing
            .skipped
            .iter()
            .map(|skipped| (skipped.name.as_str(), skipped.reason.as_str())),
        listing.skipped.len(),
        to,
    )?;
    let others: Vec<_> = listing
        .findings
        .iter()
        .filter(|finding| !finding.kind.is_attack())
        .collect();
    lines(to, others.len(), |i| {
        format!("note: {}", human::safe(&others[i].text))
    })
}

fn attacks(listing: &Listing, to: &mut dyn Write) -> io::Result<()> {
    let attacks: Vec<_> = listing
        .findings
        .iter()
        .filter(|finding| finding.kind.is_attack())
        .collect();
    lines(to, attacks.len(), |i| {
        format!("unsafe: {}", human::safe(&attacks[i].text))
    })?;
    if attacks
        .iter()
        .any(|finding| finding.kind == FindingKind::UnsafeGlobal)
    {
        writeln!(to, "hint: do not load this file with torch.load or pickle")?;
    }
    Ok(())
}

/// Says which tensors could not be read, beyond what the listing knew.
pub(crate) fn unread(failed: &[(&str, String)]) {
    let all = failed.iter().map(|(name, reason)| (*name, reason.as_str()));
    let _ = skipped(all, failed.len(), &mut io::stderr().lock());
}

fn skipped<'a>(
    all: impl Iterator<Item = (&'a str, &'a str)>,
    len: usize,
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut all = all;
    lines(to, len, |_| {
        let (name, reason) = all.next().unwrap_or_default();
        match name {
            "" => format!("warning: skipped a part: {}", human::safe(reason)),
            name => format!(
                "warning: skipped `{}`: {}",
                human::safe(name),
                human::safe(reason)
            ),
        }
    })
}

pub(super) fn lines(
    to: &mut dyn Write,
    len: usize,
    mut line: impl FnMut(usize) -> String,
) -> io::Result<()> {
    for index in 0..len.min(AT_MOST) {
        writeln!(to, "{}", line(index))?;
    }
    if len > AT_MOST {
        writeln!(
            to,
            "... and {} more like it; --json lists them all",
            len - AT_MOST
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::{Finding, Skipped};

    #[test]
    fn attacks_come_first_and_in_plain_words() {
        let listing = Listing {
            findings: vec![
                Finding {
                    kind: FindingKind::Odd,
                    text: "3 bytes after the end".into(),
                },
                Finding {
                    kind: FindingKind::UnsafeGlobal,
                    text: "asks to call os.system; not executed".into(),
                },
            ],
            skipped: vec![Skipped {
                name: "w\x1b".into(),
                reason: "cut short".into(),
            }],
            ..Listing::default()
        };
        let mut out = Vec::new();
        write(&listing, &mut out).unwrap();
        let expected = "\
unsafe: asks to call os.system; not executed
hint: do not load this file with torch.load or pickle
warning: skipped `w\\x1b`: cut short
note: 3 bytes after the end
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_million_warnings_take_a_screen() {
        let skipped = (0..1000)
            .map(|i| Skipped {
                name: i.to_string(),
                reason: "bad".into(),
            })
            .collect();
        let mut out = Vec::new();
        write(
            &Listing {
                skipped,
                ..Listing::default()
            },
            &mut out,
        )
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), AT_MOST + 1);
        assert!(text.ends_with("... and 980 more like it; --json lists them all\n"));
    }
}
