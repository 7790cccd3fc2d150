//! What outlives the process: sessions, the log of their edits, finished reports and uploads, in one SQLite file.
//!
//! Every change is one transaction that is on disk before its request is answered, so a kill -9 loses nothing that was confirmed. The
//! write-ahead log lets a second process read meanwhile.

use rusqlite::{Connection, OptionalExtension, params};
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

pub struct Store {
    path: PathBuf,
    connection: Mutex<Connection>,
}

/// Why something cannot be kept or found again: the file it is about, and what it says.
#[derive(Debug, thiserror::Error)]
#[error("`{}`: {source}", .path.display())]
pub struct StoreError {
    pub path: PathBuf,
    pub source: rusqlite::Error,
}

impl StoreError {
    /// There is no room left, or the disk takes no more for another reason: nothing was changed, and it may work later.
    pub fn is_full(&self) -> bool {
        let write = [
            rusqlite::ffi::SQLITE_IOERR_WRITE,
            rusqlite::ffi::SQLITE_IOERR_FSYNC,
            rusqlite::ffi::SQLITE_IOERR_SHMSIZE,
        ];
        match &self.source {
            rusqlite::Error::SqliteFailure(error, _) => {
                error.code == rusqlite::ErrorCode::DiskFull || write.contains(&error.extended_code)
            }
            _ => false,
        }
    }
}

pub(crate) type Stored<T> = Result<T, StoreError>;

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

/// One entry of a session's log.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    pub seq: i64,
    pub undone: bool,
    pub document: String,
}

/// How many edits of a session can be taken back.
const LOG: i64 = 200;

/// Applied in order to a file that has fewer of them (`user_version` counts).
const MIGRATIONS: &[&str] = &["
    CREATE TABLE sessions (id TEXT PRIMARY KEY, document TEXT NOT NULL, updated INTEGER NOT NULL) STRICT;
    CREATE TABLE reports (session TEXT PRIMARY KEY REFERENCES sessions(id) ON DELETE CASCADE, document TEXT NOT NULL) STRICT;
    CREATE TABLE edits (session TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
                        undone INTEGER NOT NULL, document TEXT NOT NULL, PRIMARY KEY (session, seq)) STRICT;
    CREATE TABLE uploads (id TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT;
"];

impl Store {
    pub fn open(path: &Path) -> Stored<Self> {
        let prepared = Connection::open(path).and_then(Self::prepare);
        let connection = prepared.map_err(|source| StoreError {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            connection: Mutex::new(connection),
        })
    }

    fn prepare(mut connection: Connection) -> rusqlite::Result<Connection> {
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        let transaction =
            connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let version: u32 =
            transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        for migration in MIGRATIONS.iter().skip(version as usize) {
            transaction.execute_batch(migration)?;
        }
        // A file from a newer twinscope keeps its number.
        transaction.pragma_update(None, "user_version", version.max(MIGRATIONS.len() as u32))?;
        transaction.commit()?;
        Ok(connection)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Stored<T> {
        // A panic elsewhere leaves no half transaction: SQLite rolls it back.
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        work(&mut connection).map_err(|source| StoreError {
            path: self.path.clone(),
            source,
        })
    }

    pub fn sessions(&self) -> Stored<Vec<(String, String)>> {
        self.with(|connection| {
            let mut query = connection
                .prepare_cached("SELECT id, document FROM sessions ORDER BY updated DESC")?;
            query
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
    }

    pub fn save_session(&self, id: &str, document: &str, updated: i64) -> Stored<()> {
        let sql = "INSERT INTO sessions VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET document = ?2, updated = ?3";
        self.with(|connection| {
            connection
                .prepare_cached(sql)?
                .execute(params![id, document, updated])
                .map(drop)
        })
    }

    /// A session with the report it came to, both or none.
    pub fn save_report(
        &self,
        id: &str,
        document: &str,
        updated: i64,
        report: Option<&str>,
    ) -> Stored<()> {
        self.with(|connection| {
            let transaction = connection.transaction()?;
            let sql = "INSERT INTO sessions VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET document = ?2, updated = ?3";
            transaction.execute(sql, params![id, document, updated])?;
            let insert = "INSERT INTO reports VALUES (?1, ?2) ON CONFLICT (session) DO UPDATE SET document = ?2";
            match report {
                Some(report) => transaction.execute(insert, params![id, report])?,
                None => transaction.execute("DELETE FROM reports WHERE session = ?1", [id])?,
            };
            transaction.commit()
        })
    }

    pub fn report(&self, session: &str) -> Stored<Option<String>> {
        self.with(|connection| {
            let mut query =
                connection.prepare_cached("SELECT document FROM reports WHERE session = ?1")?;
            query.query_row([session], |row| row.get(0)).optional()
        })
    }

    pub fn delete_session(&self, id: &str) -> Stored<()> {
        self.with(|connection| {
            connection
                .execute("DELETE FROM sessions WHERE id = ?1", [id])
                .map(drop)
        })
    }

    /// A session as an edit left it, and the edit; what had been undone before is gone.
    pub fn save_edit(&self, id: &str, document: &str, updated: i64, edit: &str) -> Stored<()> {
        self.with(|connection| {
            let transaction = connection.transaction()?;
            transaction.execute("DELETE FROM edits WHERE session = ?1 AND undone", [id])?;
            let next = "SELECT coalesce(max(seq), 0) + 1 FROM edits WHERE session = ?1";
            let seq: i64 = transaction.query_row(next, [id], |row| row.get(0))?;
            transaction.execute(
                "INSERT INTO edits VALUES (?1, ?2, 0, ?3)",
                params![id, seq, edit],
            )?;
            transaction.execute(
                "DELETE FROM edits WHERE session = ?1 AND seq <= ?2",
                params![id, seq - LOG],
            )?;
            transaction.execute(
                "UPDATE sessions SET document = ?2, updated = ?3 WHERE id = ?1",
                params![id, document, updated],
            )?;
            transaction.commit()
        })
    }

    pub fn edits(&self, session: &str) -> Stored<Vec<Logged>> {
        self.with(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT seq, undone, document FROM edits WHERE session = ?1 ORDER BY seq",
            )?;
            query
                .query_map([session], |row| {
                    Ok(Logged {
                        seq: row.get(0)?,
                        undone: row.get(1)?,
                        document: row.get(2)?,
                    })
                })?
                .collect()
        })
    }

    /// A session after an edit was taken back or done again.
    pub fn save_undone(
        &self,
        id: &str,
        document: &str,
        updated: i64,
        seq: i64,
        undone: bool,
    ) -> Stored<()> {
        self.with(|connection| {
            let transaction = connection.transaction()?;
            transaction.execute(
                "UPDATE edits SET undone = ?3 WHERE session = ?1 AND seq = ?2",
                params![id, seq, undone],
            )?;
            transaction.execute(
                "UPDATE sessions SET document = ?2, updated = ?3 WHERE id = ?1",
                params![id, document, updated],
            )?;
            transaction.commit()
        })
    }

    pub fn uploads(&self) -> Stored<Vec<(String, String)>> {
        self.with(|connection| {
            let mut query = connection.prepare_cached("SELECT id, document FROM uploads")?;
            query
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
    }

    pub fn save_upload(&self, id: &str, document: &str) -> Stored<()> {
        let sql =
            "INSERT INTO uploads VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET document = ?2";
        self.with(|connection| connection.execute(sql, params![id, document]).map(drop))
    }

    pub fn delete_upload(&self, id: &str) -> Stored<()> {
        self.with(|connection| {
            connection
                .execute("DELETE FROM uploads WHERE id = ?1", [id])
                .map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        let connection = Store::prepare(Connection::open_in_memory().unwrap()).unwrap();
        Store {
            path: PathBuf::from("in memory"),
            connection: Mutex::new(connection),
        }
    }

    #[test]
    fn a_new_edit_forgets_what_was_undone() {
        let store = store();
        store.save_session("s", "0", 0).unwrap();
        for edit in ["a", "b"] {
            store.save_edit("s", edit, 1, edit).unwrap();
        }
        store.save_undone("s", "a", 2, 2, true).unwrap();
        store.save_edit("s", "c", 3, "c").unwrap();
        let edits: Vec<String> = store
            .edits("s")
            .unwrap()
            .into_iter()
            .map(|edit| edit.document)
            .collect();
        assert_eq!(edits, ["a", "c"]);
        assert_eq!(
            store.sessions().unwrap(),
            [("s".to_owned(), "c".to_owned())]
        );
    }

    #[test]
    fn deleting_a_session_leaves_nothing_of_it() {
        let store = store();
        store.save_report("s", "{}", 0, Some("report")).unwrap();
        store.save_edit("s", "{}", 1, "a").unwrap();
        assert_eq!(store.report("s").unwrap().as_deref(), Some("report"));
        store.delete_session("s").unwrap();
        assert_eq!(
            (
                store.report("s").unwrap(),
                store.edits("s").unwrap(),
                store.sessions().unwrap()
            ),
            (None, vec![], vec![])
        );
    }

    #[test]
    fn a_file_is_opened_again_and_its_version_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        Store::open(&path)
            .unwrap()
            .save_session("s", "{}", 0)
            .unwrap();
        Connection::open(&path)
            .unwrap()
            .pragma_update(None, "user_version", 99)
            .unwrap();
        let store = Store::open(&path).unwrap();
        assert_eq!(store.sessions().unwrap().len(), 1);
        let version: i64 = store
            .with(|connection| {
                connection.pragma_query_value(None, "user_version", |row| row.get(0))
            })
            .unwrap();
        assert_eq!(version, 99);
    }

    #[test]
    fn a_disk_without_room_is_told_from_other_faults_and_takes_nothing_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let store = Store::open(&path).unwrap();
        store.save_report("s", "before", 0, Some("report")).unwrap();
        // As many pages as there are: SQLite then answers as it does on a full disk.
        let pages = |most: i64| {
            store
                .with(|connection| connection.pragma_update(None, "max_page_count", most))
                .unwrap();
        };
        pages(1);
        let large = "x".repeat(1 << 20);
        for failed in [
            store.save_edit("s", &large, 1, "edit").unwrap_err(),
            store.save_report("s", &large, 1, Some("new")).unwrap_err(),
        ] {
            assert!(
                failed.is_full() && failed.to_string().contains("state.db"),
                "{failed}"
            );
        }
        assert_eq!(
            store.sessions().unwrap(),
            [("s".to_owned(), "before".to_owned())]
        );
        assert_eq!(
            (
                store.report("s").unwrap().as_deref(),
                store.edits("s").unwrap()
            ),
            (Some("report"), vec![])
        );
        pages(1 << 20);
        store.save_edit("s", &large, 1, "edit").unwrap();
        assert!(
            !store
                .with(|connection| connection.execute("nonsense", []))
                .unwrap_err()
                .is_full()
        );
    }
}
