//! One line on a terminal that says how far unpacking or measuring has come. Silent everywhere else.

use crate::render::human;
use std::{
    cell::Cell,
    io::{IsTerminal, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use twinscope_compare::job;
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
        let shown = std::io::stderr().is_terminal().then(|| {
            Mutex::new(Shown {
                last: Instant::now(),
                drawn: false,
                opened: false,
            })
        });
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
                let Some(Ok(mut shown)) = bar.shown.as_ref().map(Mutex::lock) else {
                    return;
                };
                if shown.opened {
                    return;
                }
                if shown.last.elapsed() >= WAIT {
                    let text = format!(
                        "reading {}  {} s",
                        human::safe(&what),
                        began.elapsed().as_secs()
                    );
                    shown.draw(&human::shorten(
                        &text,
                        human::terminal_width().unwrap_or(80).saturating_sub(1),
                    ));
                }
            }
        });
    }

    /// Takes the line away again, before anything else is printed.
    pub(crate) fn clear(&self) {
        let Some(Ok(mut shown)) = self.shown.as_ref().map(Mutex::lock) else {
            return;
        };
        shown.opened = true;
        if std::mem::take(&mut shown.drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Progress for Bar {
    fn unpacking(&self, what: &str, done: u64, total: Option<u64>) {
        // A line that is being drawn by another thread will do.
        let Some(Ok(mut shown)) = self.shown.as_ref().map(Mutex::try_lock) else {
            return;
        };
        if shown.last.elapsed() < EVERY {
            return;
        }
        shown.draw(&line(
            what,
            done,
            total,
            human::terminal_width().unwrap_or(80),
        ));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// How much of a comparison is measured.
#[derive(Debug)]
pub(crate) struct Measuring {
    terminal: bool,
    began: Cell<Option<Instant>>,
    drawn: Cell<Option<Instant>>,
}

impl Measuring {
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            began: Cell::new(None),
            drawn: Cell::new(None),
        }
    }

    /// Called now and then by whoever waits.
    pub(crate) fn draw(&self, progress: &job::Progress) {
        if !self.terminal || progress.pairs_total == 0 {
            return;
        }
        let began = self.began.get().unwrap_or_else(Instant::now);
        self.began.set(Some(began));
        let drawn = self.drawn.get();
        if began.elapsed() < WAIT || drawn.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.drawn.set(Some(Instant::now()));
        let line = measuring(progress.bytes, progress.bytes_total, began.elapsed());
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{}",
            human::shorten(
                &line,
                human::terminal_width().unwrap_or(80).saturating_sub(1)
            )
        );
    }

    pub(crate) fn clear(&self) {
        if self.drawn.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn measuring(done: u64, total: u64, time: Duration) -> String {
    let percent = if total > 0 {
        (done.min(total) as f64 * 100.0 / total as f64) as u64
    } else {
        0
    };
    let speed = human::size((done as f64 / time.as_secs_f64().max(1e-3)) as u64);
    format!(
        "measuring {percent:3}%  {} of {}  {speed}/s  {} s",
        human::size(done),
        human::size(total.max(done)),
        time.as_secs()
    )
}

fn line(what: &str, done: u64, total: Option<u64>, width: usize) -> String {
    let what = human::safe(what).to_string();
    let amount = match total.filter(|total| *total > 0) {
        Some(total) => format!(
            "{:3}%  {} of {}",
            done.min(total) * 100 / total,
            human::size(done),
            human::size(total)
        ),
        None => human::size(done),
    };
    human::shorten(
        &format!("unpacking {what}  {amount}"),
        width.saturating_sub(1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_the_terminal_and_cannot_drive_it() {
        assert_eq!(
            line("a.tar.gz", 512 << 10, Some(1 << 20), 80),
            "unpacking a.tar.gz   50%  512.0 KiB of 1.0 MiB"
        );
        assert_eq!(line("a\x1b[2J", 3, None, 80), "unpacking a\\x1b[2J  3 B");
        assert!(line(&"long".repeat(50), 3, None, 40).chars().count() < 40);
        assert_eq!(line("empty", 0, Some(0), 80), "unpacking empty  0 B");
    }

    #[test]
    fn measuring_says_how_fast() {
        let line = measuring(3 << 30, 4 << 30, Duration::from_secs(3));
        assert_eq!(line, "measuring  75%  3.0 GiB of 4.0 GiB  1.0 GiB/s  3 s");
    }
}
