//! One line on a terminal that says how far unpacking has come. Silent everywhere else.

use crate::render::human;
use std::{
    io::{IsTerminal, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use twinscope_formats::Progress;

/// Short enough to look alive, long enough to cost nothing.
const EVERY: Duration = Duration::from_millis(100);
/// Silence that looks like a hang.
const WAIT: Duration = Duration::from_millis(400);

/// A bar on stderr. Anything under [`EVERY`] never shows one.
#[derive(Debug)]
pub(crate) struct Bar {
    shown: Option<Mutex<Shown>>,
}

#[derive(Debug)]
struct Shown {
    last: Instant,
    drawn: bool,
    /// Opening is over: waiting is nothing to report any more.
    opened: bool,
}

impl Shown {
    fn draw(&mut self, line: &str) {
        (self.last, self.drawn) = (Instant::now(), true);
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }
}

impl Bar {
    pub(crate) fn new() -> Self {
        let shown = std::io::stderr().is_terminal().then(|| Mutex::new(Shown { last: Instant::now(), drawn: false, opened: false }));
        Self { shown }
    }

    /// Says how long opening takes when nobody says how far it is: some decoders work in one go.
    pub(crate) fn watch(self: &Arc<Self>, what: String) {
        if self.shown.is_none() {
            return;
        }
        let (bar, began) = (Arc::downgrade(self), Instant::now());
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(WAIT);
                let Some(bar) = bar.upgrade() else { return };
                let Some(Ok(mut shown)) = bar.shown.as_ref().map(Mutex::lock) else { return };
                if shown.opened {
                    return;
                }
                if shown.last.elapsed() >= WAIT {
                    let text = format!("reading {}  {} s", human::safe(&what), began.elapsed().as_secs());
                    shown.draw(&human::shorten(&text, human::terminal_width().unwrap_or(80).saturating_sub(1)));
                }
            }
        });
    }

    /// Takes the line away again, before anything else is printed.
    pub(crate) fn clear(&self) {
        let Some(Ok(mut shown)) = self.shown.as_ref().map(Mutex::lock) else { return };
        shown.opened = true;
        if std::mem::take(&mut shown.drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Progress for Bar {
    fn unpacking(&self, what: &str, done: u64, total: Option<u64>) {
        // A line that is being drawn by another thread will do.
        let Some(Ok(mut shown)) = self.shown.as_ref().map(Mutex::try_lock) else { return };
        if shown.last.elapsed() < EVERY {
            return;
        }
        shown.draw(&line(what, done, total, human::terminal_width().unwrap_or(80)));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(what: &str, done: u64, total: Option<u64>, width: usize) -> String {
    let what = human::safe(what).to_string();
    let amount = match total.filter(|total| *total > 0) {
        Some(total) => format!("{:3}%  {} of {}", done.min(total) * 100 / total, human::size(done), human::size(total)),
        None => human::size(done),
    };
    human::shorten(&format!("unpacking {what}  {amount}"), width.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_the_terminal_and_cannot_drive_it() {
        assert_eq!(line("a.tar.gz", 512 << 10, Some(1 << 20), 80), "unpacking a.tar.gz   50%  512.0 KiB of 1.0 MiB");
        assert_eq!(line("a\x1b[2J", 3, None, 80), "unpacking a\\x1b[2J  3 B");
        assert!(line(&"long".repeat(50), 3, None, 40).chars().count() < 40);
        assert_eq!(line("empty", 0, Some(0), 80), "unpacking empty  0 B");
    }
}
