//! Standard output: who reads it may have seen enough, and a disk may be full.

use std::io::{self, Write};

/// Standard output that is told once when it cannot be written to.
#[derive(Debug)]
pub(crate) struct Output<W> {
    to: W,
    /// Whether the command is to go on when nobody reads any more (`| head`): its exit code is an answer too.
    goes_on: bool,
    /// Nothing more can be written; what is, is dropped.
    ended: bool,
    failed: bool,
}

impl<W: Write> Output<W> {
    pub(crate) fn new(to: W, goes_on: bool) -> Self {
        Self {
            to,
            goes_on,
            ended: false,
            failed: false,
        }
    }

    /// Whether something was lost that somebody wanted.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    fn told<T>(&mut self, done: io::Result<T>, instead: T) -> io::Result<T> {
        match done {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.ended = true;
                if self.goes_on {
                    Ok(instead)
                } else {
                    Err(error)
                }
            }
            Err(error) => {
                (self.ended, self.failed) = (true, true);
                Err(io::Error::new(
                    error.kind(),
                    format!("cannot write to standard output: {error}"),
                ))
            }
            done => done,
        }
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(bytes.len());
        }
        let written = self.to.write(bytes);
        self.told(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        let flushed = self.to.flush();
        self.told(flushed, ())
    }
}
