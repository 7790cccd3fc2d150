//! One file for each command: its arguments and its `run`.

mod ls;

use crate::open::Opening;
use std::{io::Write, path::Path};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(ls::Ls),
}

impl Command {
    pub(crate) fn run(&self, opening: &Opening, out: &mut dyn Write) -> anyhow::Result<u8> {
        match self {
            Command::Ls(ls) => ls.run(opening, out),
        }
    }

    pub(crate) fn source(&self) -> &Path {
        match self {
            Command::Ls(ls) => &ls.source,
        }
    }
}
