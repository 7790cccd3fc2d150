//! Files that the page sends: streamed to disk as they come, resumed where they stopped, kept until their session is deleted.
//!
//! Each upload has a folder of its own, so two files of one name stay two. What has arrived is what the disk holds: after a crash the
//! size of the file says where to go on.

use crate::{
    app::{now, random_id},
    problem::{Answer, Problem},
    store::Store,
};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use utoipa::ToSchema;

/// One file of an upload, as the page announces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Announced {
    /// The file's name, or its path inside the dropped folder.
    pub path: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UploadRecord {
    pub name: String,
    pub created: i64,
    pub files: Vec<Announced>,
}

/// One file of an upload, as far as it has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct UploadFile {
    pub file: usize,
    pub path: String,
    pub bytes: u64,
    pub received: u64,
}

/// An upload, as far as it has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Upload {
    pub upload: String,
    pub name: String,
    pub created: i64,
    pub bytes: u64,
    pub received: u64,
    pub complete: bool,
    pub files: Vec<UploadFile>,
}

#[derive(Debug)]
pub struct Uploads {
    folder: PathBuf,
    most: Option<u64>,
    records: Mutex<HashMap<String, Arc<UploadRecord>>>,
    /// Files that are being written: two senders at once would mix.
    busy: Mutex<HashSet<(String, usize)>>,
}

/// Whoever holds it is the only writer of a file.
#[derive(Debug)]
pub struct Writing<'a> {
    uploads: &'a Uploads,
    key: (String, usize),
    pub path: PathBuf,
    /// As it was announced.
    pub name: String,
    pub bytes: u64,
}

/// Files of one upload.
const MOST_FILES: usize = 100_000;
/// Left for everything else on the disk by a large upload; a smaller one leaves as much as it takes.
const SPARE: u64 = 64 << 20;
/// Uploads that no session uses are kept for a week: the page that sent them may come back.
const UNUSED_SECONDS: i64 = 7 * 24 * 3600;

impl Uploads {
    pub fn open(folder: PathBuf, most: Option<u64>, store: &Store) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let stored = store.uploads().map_err(io::Error::other)?;
        let records = stored
            .into_iter()
            .filter_map(|(id, document)| {
                Some((id, Arc::new(serde_json::from_str(&document).ok()?)))
            })
            .collect();
        Ok(Self {
            folder,
            most,
            records: Mutex::new(records),
            busy: Mutex::default(),
        })
    }

    fn records(&self) -> MutexGuard<'_, HashMap<String, Arc<UploadRecord>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, id: &str) -> Answer<Arc<UploadRecord>> {
        let unknown = || Problem::not_found("no_such_upload", format!("there is no upload `{id}`"));
        self.records().get(id).cloned().ok_or_else(unknown)
    }

    /// Makes room for files that will be sent.
    pub fn announce(&self, store: &Store, name: &str, files: Vec<Announced>) -> Answer<Upload> {
        if files.is_empty() || files.len() > MOST_FILES {
            return Err(Problem::bad(
                "bad_upload",
                format!("{} files; an upload has 1 to {MOST_FILES}", files.len()),
            ));
        }
        let mut seen = HashSet::new();
        for file in &files {
            let path = inside(&file.path)?;
            if !seen.insert(path) {
                return Err(Problem::bad(
                    "bad_upload",
                    format!("`{}` comes twice", file.path),
                ));
            }
        }
        let total = files
            .iter()
            .fold(0u64, |sum, file| sum.saturating_add(file.bytes));
        if let Some(most) = self.most.filter(|most| total > *most) {
            let detail = format!("`{name}` has {total} bytes, --max-upload allows {most}");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "upload_too_large", detail)
                .hint("type the path of the file instead of dropping it, or start with a larger --max-upload"));
        }
        let free = free_bytes(&self.folder)?;
        if total.saturating_add(total.min(SPARE)) > free {
            let detail = format!(
                "`{name}` has {total} bytes, the disk of `{}` has {free} left",
                self.folder.display()
            );
            return Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", detail).hint(
                "delete sessions with uploads, start with --state on a larger disk, or type the path of the file instead of dropping it",
            ));
        }
        let id = random_id(16)?;
        let record = UploadRecord {
            name: name.to_owned(),
            created: now(),
            files,
        };
        let data = self.data(&id);
        for file in &record.files {
            let path = data.join(inside(&file.path)?);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::File::create(path)?;
        }
        store.save_upload(&id, &serde_json::to_string(&record)?)?;
        self.records().insert(id.clone(), Arc::new(record));
        self.get(&id)
    }

    fn data(&self, id: &str) -> PathBuf {
        self.folder.join(id).join("data")
    }

    pub fn get(&self, id: &str) -> Answer<Upload> {
        let record = self.record(id)?;
        let data = self.data(id);
        let mut files = Vec::with_capacity(record.files.len());
        for (file, announced) in record.files.iter().enumerate() {
            let received =
                fs::metadata(data.join(inside(&announced.path)?)).map_or(0, |facts| facts.len());
            files.push(UploadFile {
                file,
                path: announced.path.clone(),
                bytes: announced.bytes,
                received,
            });
        }
        Ok(Upload {
            upload: id.to_owned(),
            name: record.name.clone(),
            created: record.created,
            bytes: files.iter().map(|file| file.bytes).sum(),
            received: files.iter().map(|file| file.received).sum(),
            complete: files.iter().all(|file| file.received == file.bytes),
            files,
        })
    }

    pub fn list(&self) -> Answer<Vec<Upload>> {
        let ids: Vec<String> = self.records().keys().cloned().collect();
        let mut uploads = ids
            .iter()
            .map(|id| self.get(id))
            .collect::<Answer<Vec<_>>>()?;
        uploads.sort_by_key(|upload| std::cmp::Reverse(upload.created));
        Ok(uploads)
    }

    /// The file or folder that a complete upload is, and what the user called it.
    pub fn source(&self, id: &str) -> Answer<(PathBuf, String)> {
        let upload = self.get(id)?;
        if !upload.complete {
            let detail = format!(
                "`{}` has arrived with {} of {} bytes",
                upload.name, upload.received, upload.bytes
            );
            return Err(Problem::conflict("upload_incomplete", detail)
                .hint("go on where Upload-Offset says"));
        }
        let data = self.data(id);
        match upload.files.as_slice() {
            [only] if !only.path.contains('/') => Ok((data.join(inside(&only.path)?), upload.name)),
            _ => Ok((data, upload.name)),
        }
    }

    /// Bytes on disk of an upload.
    pub fn size(&self, id: &str) -> u64 {
        self.get(id).map_or(0, |upload| upload.received)
    }

    /// The right to write a file, until it is dropped.
    pub fn write(&self, id: &str, file: usize) -> Answer<Writing<'_>> {
        let record = self.record(id)?;
        let announced = record.files.get(file).ok_or_else(|| {
            Problem::not_found(
                "no_such_file",
                format!("the upload `{}` has no file {file}", record.name),
            )
        })?;
        let key = (id.to_owned(), file);
        if !self
            .busy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone())
        {
            return Err(Problem::conflict(
                "upload_busy",
                format!("`{}` is being received already", announced.path),
            ));
        }
        Ok(Writing {
            uploads: self,
            key,
            path: self.data(id).join(inside(&announced.path)?),
            name: announced.path.clone(),
            bytes: announced.bytes,
        })
    }

    pub fn delete(&self, store: &Store, id: &str) -> Answer<()> {
        self.record(id)?;
        // The bytes first: on a full disk it is they that make room for the rest.
        self.remove_data(id)?;
        store.delete_upload(id)?;
        self.records().remove(id);
        Ok(())
    }

    pub(crate) fn remove_data(&self, id: &str) -> Answer<()> {
        match fs::remove_dir_all(self.folder.join(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes what was sent long ago and belongs to no session.
    pub fn forget_unused(&self, store: &Store, used: &HashSet<String>) {
        let old: Vec<String> = {
            let records = self.records();
            let unused = records.iter().filter(|(id, record)| {
                !used.contains(*id) && now() - record.created > UNUSED_SECONDS
            });
            unused.map(|(id, _)| id.clone()).collect()
        };
        for id in old {
            // What cannot be removed now is tried again at the next start.
            let _ = self.delete(store, &id);
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.uploads
            .busy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}

/// A path that stays inside its folder, whatever was sent.
fn inside(path: &str) -> Answer<PathBuf> {
    let refused = |why: &str| {
        Err(Problem::bad(
            "bad_upload_path",
            format!("`{}`: {why}", path.escape_debug()),
        )
        .hint("send paths relative to the dropped folder"))
    };
    if path.is_empty() || path.len() > 4096 || path.contains('\0') || path.contains('\\') {
        return refused("not a file name");
    }
    let mut clean = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) if part.len() <= 255 => clean.push(part),
            Component::CurDir => {}
            Component::Normal(_) => return refused("a name of more than 255 bytes"),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return refused("it leaves its folder");
            }
        }
    }
    if clean.as_os_str().is_empty() || path.ends_with('/') {
        refused("not a file name")
    } else {
        Ok(clean)
    }
}

/// What is left on the disk of a folder for someone without privileges.
#[cfg(unix)]
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero byte and outlives the call; zeroed is a valid `statvfs`, which the call fills.
    let facts = unsafe {
        let mut facts: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(path.as_ptr(), &raw mut facts) != 0 {
            return Err(io::Error::last_os_error());
        }
        facts
    };
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    Ok((facts.f_bavail as u64).saturating_mul(facts.f_frsize as u64))
}

#[cfg(not(unix))]
pub(crate) fn free_bytes(_: &Path) -> io::Result<u64> {
    Ok(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside_their_upload() {
        for good in ["a.npy", "run/0_query.npy", "./a", "a b/ü.npy", "..a/b"] {
            assert!(inside(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/etc/passwd",
            "../a",
            "a/../../b",
            "a\0b",
            "a\\..\\b",
            "a/",
            ".",
            "x".repeat(300).as_str(),
        ] {
            assert_eq!(inside(bad).unwrap_err().code, "bad_upload_path", "{bad}");
        }
    }
}
