//! One file for each command: its arguments and its `run`.

mod diff;
mod ls;
mod show;
mod stats;

use crate::open::Opening;
use std::{io::Write, path::Path};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Diff(Box<diff::Diff>),
    Ls(ls::Ls),
    Show(show::Show),
    Stats(stats::Stats),
}

impl Command {
    pub(crate) fn run(&self, opening: &Opening, out: &mut dyn Write) -> anyhow::Result<u8> {
        match self {
            Command::Diff(diff) => diff.run(opening, out),
            Command::Ls(ls) => ls.run(opening, out),
            Command::Show(show) => show.run(opening, out),
            Command::Stats(stats) => stats.run(opening, out),
        }
    }

    pub(crate) fn source(&self) -> &Path {
        match self {
            Command::Diff(diff) => diff.source(),
            Command::Ls(ls) => &ls.source,
            Command::Show(show) => &show.source,
            Command::Stats(stats) => &stats.source,
        }
    }
}
