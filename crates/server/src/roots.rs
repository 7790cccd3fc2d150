//! Which paths the page may open: below the start folder and the folders given with `--root`, and what the command line named itself.

use crate::problem::{Answer, Problem};
use serde::Serialize;
use std::path::{Component, Path, PathBuf};
use utoipa::ToSchema;

/// Real paths, symbolic links resolved.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    folders: Vec<PathBuf>,
    /// Given on the command line: allowed wherever they are.
    named: Vec<PathBuf>,
}

/// One thing that a typed path may go on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Completion {
    /// What to put into the box.
    pub path: String,
    pub name: String,
    pub folder: bool,
    /// Of a file.
    #[schema(required = true)]
    pub bytes: Option<u64>,
}

/// As many completions are given; whoever sees more types another letter.
const MOST: usize = 200;

impl Roots {
    pub fn new(
        folders: impl IntoIterator<Item = PathBuf>,
        named: impl IntoIterator<Item = PathBuf>,
    ) -> std::io::Result<Self> {
        let folders = folders
            .into_iter()
            .map(|folder| folder.canonicalize())
            .collect::<Result<_, _>>()?;
        // One that does not exist is reported when it is opened.
        let named = named
            .into_iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        Ok(Self { folders, named })
    }

    pub fn folders(&self) -> impl Iterator<Item = String> {
        self.folders
            .iter()
            .map(|folder| folder.display().to_string())
    }

    /// The real path of what was typed, when it may be opened.
    pub fn allowed(&self, typed: &str) -> Answer<PathBuf> {
        let path = self.meant(typed)?;
        let real = path.canonicalize().map_err(|error| match error.kind() {
            // Nobody learns from the answer what exists elsewhere.
            _ if !self.seems_inside(&path) => self.outside(typed),
            std::io::ErrorKind::NotFound => {
                Problem::not_found("no_such_file", format!("`{typed}` does not exist"))
                    .hint("check the path; completion shows what is there")
            }
            _ => Problem::unprocessable(
                "unreadable_source",
                format!("cannot open `{typed}`: {error}"),
            ),
        })?;
        if self.is_inside(&real) {
            Ok(real)
        } else {
            Err(self.outside(typed))
        }
    }

    fn outside(&self, typed: &str) -> Problem {
        let folders: Vec<String> = self.folders().collect();
        Problem::new(
            axum::http::StatusCode::FORBIDDEN,
            "outside_roots",
            format!("`{typed}` is not below {}", folders.join(" or ")),
        )
        .hint(
            "start twinscope in another folder, or add one with --root DIR; or drop the file here",
        )
    }

    fn is_inside(&self, real: &Path) -> bool {
        self.folders
            .iter()
            .chain(&self.named)
            .any(|root| real.starts_with(root))
    }

    /// The same by the words of a path that cannot be resolved.
    fn seems_inside(&self, path: &Path) -> bool {
        let plain = path
            .components()
            .all(|component| !matches!(component, Component::ParentDir));
        plain && self.folders.iter().any(|root| path.starts_with(root))
    }

    /// Relative paths begin in the first folder, `~` at home.
    fn meant(&self, typed: &str) -> Answer<PathBuf> {
        let typed = typed.trim();
        if typed.is_empty() || typed.contains('\0') {
            return Err(Problem::bad(
                "bad_path",
                "the path is empty or holds a zero byte",
            ));
        }
        if let Some(rest) = typed.strip_prefix('~')
            && (rest.is_empty() || rest.starts_with('/'))
            && let Some(home) = std::env::home_dir()
        {
            return Ok(home.join(rest.trim_start_matches('/')));
        }
        Ok(self
            .folders
            .first()
            .map_or_else(|| PathBuf::from(typed), |folder| folder.join(typed)))
    }

    /// What is there that begins as typed.
    pub fn complete(&self, typed: &str) -> Answer<Vec<Completion>> {
        if typed.trim().is_empty() {
            let mut roots: Vec<Completion> = self
                .folders
                .iter()
                .map(|folder| entry(folder, true, None))
                .collect();
            if let [only] = self.folders.as_slice() {
                roots = self.listed(only, "")?;
            }
            return Ok(roots);
        }
        let path = self.meant(typed)?;
        let (folder, begun) = match typed.ends_with('/') {
            true => (path.clone(), String::new()),
            false => {
                let begun = path
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_default();
                (
                    path.parent().map_or_else(|| path.clone(), Path::to_owned),
                    begun,
                )
            }
        };
        let Ok(real) = folder.canonicalize() else {
            return Ok(Vec::new());
        };
        if !self.folders.iter().any(|root| real.starts_with(root)) {
            // On the way to a root only the next step towards it is shown.
            let towards = self.folders.iter().filter(|root| {
                root.starts_with(&real) && root.to_string_lossy().starts_with(typed)
            });
            return Ok(towards.map(|root| entry(root, true, None)).collect());
        }
        self.listed(&real, &begun)
    }

    fn listed(&self, folder: &Path, begun: &str) -> Answer<Vec<Completion>> {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return Ok(Vec::new());
        };
        let lower = begun.to_lowercase();
        let mut found: Vec<Completion> = entries
            .flatten()
            .filter(|item| {
                let name = item.file_name().to_string_lossy().into_owned();
                // Hidden ones only for whoever types the dot.
                name.to_lowercase().starts_with(&lower)
                    && (begun.starts_with('.') || !name.starts_with('.'))
            })
            .filter_map(|item| {
                let real = item
                    .path()
                    .canonicalize()
                    .ok()
                    .filter(|real| self.is_inside(real))?;
                let facts = std::fs::metadata(&real).ok()?;
                Some(entry(
                    &item.path(),
                    facts.is_dir(),
                    facts.is_file().then_some(facts.len()),
                ))
            })
            .collect();
        found.sort_by(|a, b| {
            b.folder
                .cmp(&a.folder)
                .then_with(|| a.name.to_lowercase().cmp(&b.name.to_lowercase()))
        });
        found.truncate(MOST);
        Ok(found)
    }
}

fn entry(path: &Path, folder: bool, bytes: Option<u64>) -> Completion {
    let name = path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    );
    let slash = if folder { "/" } else { "" };
    Completion {
        path: format!("{}{slash}", path.display()),
        name,
        folder,
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("runs")).unwrap();
        std::fs::write(root.join("runs/a.npy"), "12345").unwrap();
        std::fs::write(root.join("runs/Another.npy"), "1").unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        let roots = Roots::new([root], []).unwrap();
        (dir, roots)
    }

    #[test]
    fn nothing_outside_is_opened_or_told_about() {
        let (dir, roots) = roots();
        assert!(roots.allowed("runs/a.npy").is_ok());
        let outside = dir.path().join("secret").display().to_string();
        for path in [
            "../secret",
            "runs/../../secret",
            "../nothing",
            &outside,
            "/etc/passwd",
            "/etc/no_such_file",
        ] {
            assert_eq!(
                roots.allowed(path).unwrap_err().code,
                "outside_roots",
                "{path}"
            );
        }
        assert_eq!(
            roots.allowed("runs/b.npy").unwrap_err().code,
            "no_such_file"
        );
        assert_eq!(roots.allowed("").unwrap_err().code, "bad_path");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_out_of_the_root_is_not_followed() {
        let (dir, roots) = roots();
        std::os::unix::fs::symlink(dir.path().join("secret"), dir.path().join("root/link"))
            .unwrap();
        assert_eq!(roots.allowed("link").unwrap_err().code, "outside_roots");
        assert!(roots.complete("li").unwrap().is_empty());
    }

    #[test]
    fn completion_ignores_case_and_stays_inside() {
        let (_dir, roots) = roots();
        let names = |typed: &str| -> Vec<String> {
            roots
                .complete(typed)
                .unwrap()
                .into_iter()
                .map(|found| found.name)
                .collect()
        };
        assert_eq!(names("runs/a"), ["a.npy", "Another.npy"]);
        assert_eq!(names(""), ["runs"]);
        assert_eq!(names("runs/"), ["a.npy", "Another.npy"]);
        assert!(names("../").is_empty() && names("/etc/").is_empty());
    }

    #[test]
    fn what_the_command_line_names_may_lie_anywhere() {
        let (dir, _) = roots();
        let roots = Roots::new([dir.path().join("root")], [dir.path().join("secret")]).unwrap();
        assert!(
            roots
                .allowed(&dir.path().join("secret").display().to_string())
                .is_ok()
        );
    }
}
