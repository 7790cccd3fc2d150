//! A folder of tensor files is one source. Folders that are a format of their own are recognised first.
//!
//! Links are followed to files inside the folder only; what leads out of it is reported and not read. The walk is
//! bounded in depth and number, so a loop or somebody's home folder ends.

pub(crate) mod hf_debug;
pub(crate) mod sglang;

use crate::{
    bundle::{self, Load, Member},
    contents::Contents,
    error::Fault,
    input::Context,
    names,
};
use std::path::{Component, Path, PathBuf};
use twinscope_tensor::{Finding, FindingKind};

pub(crate) const FORMAT: &str = "folder";
const DEEPEST: usize = 16;
const MOST_FILES: usize = 200_000;

/// A folder with a format of its own.
struct SpecialFolder {
    recognise: fn(&Path) -> bool,
    read: fn(&Path, &Context) -> Result<Contents, Fault>,
}

#[rustfmt::skip]
const SPECIAL: &[SpecialFolder] = &[
    SpecialFolder { recognise: crate::run::recognise_folder, read: crate::run::read_folder },
    SpecialFolder { recognise: crate::torch::dcp::recognise_folder, read: crate::torch::dcp::read_folder },
    SpecialFolder { recognise: crate::torch::zero::recognise_folder, read: crate::torch::zero::read_folder },
];

/// Reads a folder, as itself or as a bundle of its files.
pub(crate) fn read(path: &Path, context: &Context) -> Result<Contents, Fault> {
    if is_special(path) {
        return read_special(path, context);
    }
    let mut walk = Walk {
        root: root_of(path),
        members: Vec::new(),
        findings: Vec::new(),
    };
    walk.folder(path)?;
    let inside = context.inside()?;
    let findings = walk.findings;
    let mut contents = match bundle::assemble(FORMAT, walk.members, &inside) {
        Err(_) if !findings.is_empty() => Contents::new(FORMAT),
        other => other?,
    };
    for Finding { kind, text } in findings {
        contents.find(kind, text);
    }
    Ok(contents)
}

fn is_special(path: &Path) -> bool {
    SPECIAL.iter().any(|special| (special.recognise)(path))
}

pub(crate) fn read_special(path: &Path, context: &Context) -> Result<Contents, Fault> {
    let special = SPECIAL.iter().find(|special| (special.recognise)(path));
    let special = special.ok_or_else(|| Fault::Missing {
        what: format!("`{}` is not there any more", path.display()),
    })?;
    (special.read)(path, context)
}

/// What links may lead to: the folder itself; in the Hugging Face cache, where `snapshots/<revision>` is nothing but
/// links to `blobs`, the whole repository.
fn root_of(folder: &Path) -> PathBuf {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    for parent in real.ancestors().skip(1).take(3) {
        if parent.file_name().is_some_and(|name| name == "snapshots")
            && let Some(repository) = parent
                .parent()
                .filter(|repository| repository.join("blobs").is_dir())
        {
            return repository.to_owned();
        }
    }
    real
}

/// The path of a file that `folder` names, when it does not leave it by name or by link.
pub(crate) fn contained(folder: &Path, name: &str) -> Result<PathBuf, Fault> {
    let escape = || Fault::PathEscape {
        what: format!("`{name}` is not inside its folder; not opened"),
    };
    let plain = Path::new(name)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain || names::escapes(name) || name.contains('\0') {
        return Err(escape());
    }
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let path = folder.join(name);
    match path.canonicalize() {
        Ok(real) if real.starts_with(root_of(folder)) => Ok(path),
        Ok(_) => Err(escape()),
        Err(_) => Err(Fault::Missing {
            what: format!("the file `{name}`"),
        }),
    }
}

struct Walk {
    root: PathBuf,
    members: Vec<Member>,
    findings: Vec<Finding>,
}

impl Walk {
    fn folder(&mut self, top: &Path) -> Result<(), Fault> {
        // The folders still to be read, with their paths relative to the top.
        let mut left = vec![(top.to_owned(), String::new(), 0)];
        while let Some((folder, relative, depth)) = left.pop() {
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(e) if depth == 0 => {
                    return Err(Fault::Io {
                        what: e.to_string(),
                    });
                }
                Err(e) => {
                    self.members.push(Member {
                        path: relative,
                        load: Load::Fault(Fault::Io {
                            what: e.to_string(),
                        }),
                    });
                    continue;
                }
            };
            for entry in entries.flatten() {
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if name.starts_with('.') {
                    continue;
                }
                let path = if relative.is_empty() {
                    name.into_owned()
                } else {
                    format!("{relative}/{name}")
                };
                if kind.is_dir() {
                    match entry.path() {
                        special if is_special(&special) => self.members.push(Member {
                            path,
                            load: Load::Folder(special),
                        }),
                        folder if depth < DEEPEST => left.push((folder, path, depth + 1)),
                        _ => self.odd(format!(
                            "`{path}` lies more than {DEEPEST} folders deep and is not read"
                        )),
                    }
                } else if kind.is_symlink() {
                    self.link(entry.path(), path);
                } else if kind.is_file() {
                    self.members.push(Member {
                        path,
                        load: Load::File(entry.path()),
                    });
                }
                if self.members.len() > MOST_FILES {
                    return Err(Fault::Limit {
                        what: format!("more than {MOST_FILES} files"),
                    });
                }
            }
        }
        Ok(())
    }

    fn link(&mut self, link: PathBuf, path: String) {
        match link.canonicalize() {
            Ok(real) if !real.starts_with(&self.root) => {
                // A README that is a link harms nobody and would only be noise.
                if real.is_dir() || bundle::worth_reading(&path) {
                    let text = format!(
                        "the link `{path}` leads out of the folder, to `{}`; not followed",
                        real.display()
                    );
                    self.findings.push(Finding {
                        kind: FindingKind::PathEscape,
                        text,
                    });
                }
            }
            Ok(real) if real.is_dir() => {
                self.odd(format!("the link `{path}` to a folder is not followed"));
            }
            Ok(_) => self.members.push(Member {
                path,
                load: Load::File(link),
            }),
            Err(e) if bundle::worth_reading(&path) => {
                self.members.push(Member {
                    path,
                    load: Load::Fault(Fault::Missing {
                        what: format!("what the link leads to: {e}"),
                    }),
                });
            }
            Err(_) => {}
        }
    }

    fn odd(&mut self, text: String) {
        self.findings.push(Finding {
            kind: FindingKind::Odd,
            text,
        });
    }
}
