//! The two sides of a session, opened: names to views, and whether the files are still what they were.

use crate::problem::{Answer, Problem};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fmt::Write as _,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};
use twinscope_compare::Side;
use twinscope_formats::OpenOptions;
use twinscope_tensor::{TensorSource, View};

/// Where a source is, and what it was when it was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceRecord {
    pub path: PathBuf,
    /// What the user called it.
    pub name: String,
    pub upload: Option<String>,
    pub fingerprint: Option<String>,
}

/// One side, opened.
pub struct Opened {
    pub source: Box<dyn TensorSource>,
    tensors: HashMap<String, usize>,
    /// It is not what it was when the session was made.
    pub changed: bool,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({})", self.source.listing().source)
    }
}

/// Both sides.
#[derive(Debug)]
pub struct Sources {
    pub reference: Opened,
    /// `None` when one source is explored by itself.
    pub candidate: Option<Opened>,
}

impl Opened {
    pub fn open(record: &SourceRecord, options: &OpenOptions) -> Answer<Self> {
        if !record.path.exists() {
            let detail = format!("`{}` is no longer there", record.path.display());
            return Err(Problem::unprocessable("source_missing", detail)
                .hint("put it back, or open it anew from where it is now"));
        }
        let source = twinscope_formats::open(&record.path, options)?;
        let changed = record
            .fingerprint
            .as_ref()
            .is_some_and(|before| fingerprint(&record.path).ok().as_ref() != Some(before));
        let tensors = source
            .listing()
            .tensors
            .iter()
            .enumerate()
            .rev()
            .map(|(at, tensor)| (tensor.name.clone(), at))
            .collect();
        Ok(Self {
            source,
            tensors,
            changed,
        })
    }

    /// The tensor, or the Python number, of a name.
    pub fn view(&self, name: &str) -> Answer<View> {
        let unknown = || {
            Problem::not_found(
                "no_such_tensor",
                format!("`{}` has no tensor `{name}`", self.source.listing().source),
            )
        };
        let read = |error: twinscope_tensor::ReadError| {
            Problem::unprocessable("unreadable_tensor", format!("`{name}`: {error}"))
        };
        if let Some(at) = self.tensors.get(name) {
            return self.source.view(*at).map_err(read);
        }
        let side = Side::new(&*self.source);
        let at = side
            .items()
            .iter()
            .position(|item| item.name == name)
            .ok_or_else(unknown)?;
        side.view(at).map_err(read)
    }
}

impl Sources {
    /// As a comparison takes them.
    pub fn both(&self) -> twinscope_compare::Sources<'_> {
        twinscope_compare::Sources {
            reference: &*self.reference.source,
            candidate: self.candidate.as_ref().map(|opened| &*opened.source),
            noise: None,
        }
    }

    /// The candidate of one source alone is itself.
    pub fn other(&self) -> &Opened {
        self.candidate.as_ref().unwrap_or(&self.reference)
    }
}

/// How much of each end of a file tells it from another.
const END: u64 = 1 << 16;
/// Files of a folder that are looked at.
const MOST_FILES: usize = 10_000;

/// What tells a file or folder from what it may become: sizes, times and the bytes at both ends.
pub(crate) fn fingerprint(path: &Path) -> std::io::Result<String> {
    let mut digest = Sha256::new();
    if path.is_dir() {
        let mut files = Vec::new();
        list(path, path, &mut files)?;
        files.sort();
        files.iter().for_each(|line| digest.update(line));
    } else {
        let facts = path.metadata()?;
        digest.update(facts_line(Path::new(""), &facts));
        let mut file = std::fs::File::open(path)?;
        let mut ends = Vec::new();
        file.by_ref().take(END).read_to_end(&mut ends)?;
        file.seek(SeekFrom::Start(facts.len().saturating_sub(END)))?;
        file.take(END).read_to_end(&mut ends)?;
        digest.update(&ends);
    }
    Ok(digest
        .finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
}

fn list(root: &Path, folder: &Path, files: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if files.len() >= MOST_FILES {
            return Ok(());
        }
        let (path, facts) = (entry.path(), entry.metadata()?);
        if facts.is_dir() {
            list(root, &path, files)?;
        } else {
            files.push(facts_line(path.strip_prefix(root).unwrap_or(&path), &facts));
        }
    }
    Ok(())
}

fn facts_line(path: &Path, facts: &std::fs::Metadata) -> String {
    let since = facts
        .modified()
        .ok()
        .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    format!("{} {} {:?}\n", path.display(), facts.len(), since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_changed_at_the_end_changes_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, vec![1u8; 200_000]).unwrap();
        let modified = path.metadata().unwrap().modified().unwrap();
        let before = fingerprint(&path).unwrap();
        let mut bytes = vec![1u8; 200_000];
        bytes[199_999] = 2;
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        assert_ne!(fingerprint(&path).unwrap(), before);
        assert_eq!(fingerprint(&path).unwrap().len(), 64);
        let folder = fingerprint(dir.path()).unwrap();
        std::fs::write(dir.path().join("b"), "x").unwrap();
        assert_ne!(fingerprint(dir.path()).unwrap(), folder);
    }
}
