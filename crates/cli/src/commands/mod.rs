//! One file for each command: its arguments and its `run`.

mod demo;
mod diff;
mod explain;
mod ls;
mod serve;
mod show;
mod stats;

use crate::open::Opening;
use std::{io::Write, path::Path};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Demo(Box<demo::Demo>),
    Diff(Box<diff::Diff>),
    Explain(Box<explain::Explain>),
    Ls(ls::Ls),
    Serve(serve::Serve),
    Show(show::Show),
    Stats(stats::Stats),
}

impl Command {
    pub(crate) fn run(&self, opening: &Opening, out: &mut dyn Write) -> anyhow::Result<u8> {
        match self {
            Command::Demo(demo) => demo.run(opening, out),
            Command::Diff(diff) => diff.run(opening, out),
            Command::Explain(explain) => explain.run(opening, out),
            Command::Ls(ls) => ls.run(opening, out),
            Command::Serve(serve) => serve.run(opening, out),
            Command::Show(show) => show.run(opening, out),
            Command::Stats(stats) => stats.run(opening, out),
        }
    }

    /// Whether its exit code says what the data says, so that it is wanted also when nobody reads the data to its end.
    pub(crate) fn answers_by_exit_code(&self) -> bool {
        matches!(
            self,
            Command::Diff(_) | Command::Explain(_) | Command::Ls(_) | Command::Stats(_)
        )
    }

    pub(crate) fn source(&self) -> &Path {
        match self {
            Command::Demo(_) => Path::new(""),
            Command::Diff(diff) => diff.source(),
            Command::Explain(explain) => explain.source(),
            Command::Ls(ls) => &ls.source,
            Command::Serve(serve) => serve.source(),
            Command::Show(show) => &show.source,
            Command::Stats(stats) => &stats.source,
        }
    }
}
