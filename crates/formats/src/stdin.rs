//! Standard input, and pipes that have a path: `-`, `/dev/stdin`, `<(process substitution)`, FIFOs.
//!
//! A redirected file is mapped like any other. A pipe cannot be looked at twice, so it goes through the cache, bounded.

use crate::{
    cache::{Bound, Cache},
    error::Fault,
    map,
};
use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileTypeExt},
    path::Path,
};
use twinscope_tensor::Bytes;

/// What a tensor without a name is called when it came this way.
pub(crate) const NAME: &str = "stdin";

/// Why nothing came.
pub(crate) enum Failure {
    Io(io::Error),
    Fault(Fault),
}

pub(crate) fn read_stdin(cache: &Cache) -> Result<Bytes, Failure> {
    let file = File::from(
        io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(Failure::Io)?,
    );
    let kind = file.metadata().map_err(Failure::Io)?.file_type();
    if kind.is_file() {
        return map::map_open(&file, Path::new("/dev/stdin")).map_err(Failure::Io);
    }
    if kind.is_char_device() && io::IsTerminal::is_terminal(&file) {
        return Err(Failure::Io(io::Error::new(
            io::ErrorKind::InvalidInput,
            "standard input is a terminal; pipe a file into it",
        )));
    }
    spool(file, cache)
}

/// Whether the path is a pipe, to be read once.
pub(crate) fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.file_type().is_fifo() || metadata.file_type().is_socket())
}

pub(crate) fn read_pipe(path: &Path, cache: &Cache) -> Result<Bytes, Failure> {
    spool(File::open(path).map_err(Failure::Io)?, cache)
}

fn spool(mut file: File, cache: &Cache) -> Result<Bytes, Failure> {
    cache
        .stream(NAME, &mut file, &Bound::none())
        .map_err(Failure::Fault)
}
