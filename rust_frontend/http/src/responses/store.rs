//! Responses that can be found again, in an embedded SQLite database that is bounded in size and age.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use octavo_api::{ApiError, ResponseFailure, ResponseObject, ResponseStatus};
use octavo_edge::{Caller, unix_seconds};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::Value;

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    CREATE TABLE IF NOT EXISTS responses (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        owner BLOB NOT NULL,
        created INTEGER NOT NULL,
        status TEXT NOT NULL,
        object TEXT NOT NULL,
        input TEXT NOT NULL,
        events TEXT,
        size INTEGER NOT NULL
    );
    CREATE INDEX IF NOT EXISTS by_age ON responses (created);
";

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct StoreLimits {
    /// Of all responses together; the oldest go first.
    pub max_bytes: u64,
    /// Older ones are gone.
    pub max_age: Duration,
}

/// The database. Its file belongs to one server at a time.
#[derive(Debug)]
pub struct ResponseStore {
    inner: Mutex<Inner>,
    limits: StoreLimits,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    /// Bytes of all rows.
    total: u64,
}

/// One response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// Who may see it.
    pub(crate) owner: Caller,
    pub(crate) object: ResponseObject,
    /// Items of its request.
    pub(crate) input: Vec<Value>,
    /// Its stream, if it had one in the background.
    pub(crate) events: Option<String>,
}

impl ResponseStore {
    /// Opens a database, in memory where there is no path. What ran when the last server went is marked as failed.
    ///
    /// # Errors
    /// The file cannot be opened, or is no such database.
    pub fn open(path: Option<&Path>, limits: StoreLimits) -> Result<Self, String> {
        let open = || {
            let connection = match path {
                Some(path) => Connection::open(path)?,
                None => Connection::open_in_memory()?,
            };
            connection.execute_batch(SCHEMA)?;
            let total = connection.query_row("SELECT TOTAL(size) FROM responses", [], |row| {
                row.get::<_, f64>(0)
            })?;
            Ok((connection, total))
        };
        let (connection, total) = open().map_err(|error: rusqlite::Error| error.to_string())?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a sum of sizes in bytes"
        )]
        let inner = Inner {
            connection,
            total: total as u64,
        };
        let store = Self {
            inner: Mutex::new(inner),
            limits,
        };
        store.interrupt().map_err(|error| error.message)?;
        Ok(store)
    }

    /// Keeps a response, in place of what was kept under its id. One that is larger than all may be is not kept.
    pub(crate) fn put(&self, record: &Record) -> Result<(), ApiError> {
        let object = serde_json::to_string(&record.object).map_err(|error| broken(&error))?;
        let input = serde_json::to_string(&record.input).map_err(|error| broken(&error))?;
        let status =
            serde_json::to_string(&record.object.status).map_err(|error| broken(&error))?;
        let events = record.events.as_deref();
        let size = (object.len() + input.len() + events.map_or(0, str::len)) as u64;
        let mut inner = self.lock();
        inner.remove(&record.object.id)?;
        if size > self.limits.max_bytes {
            tracing::warn!(
                "a response of {size} bytes is not kept: more than --response-store-max-bytes"
            );
            return Ok(());
        }
        let row = params![
            record.object.id,
            record.owner.as_bytes(),
            signed(record.object.created_at),
            status,
            object,
            input,
            events,
            signed(size),
        ];
        let sql = "INSERT INTO responses (id, owner, created, status, object, input, events, size)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        inner
            .connection
            .execute(sql, row)
            .map_err(|error| broken(&error))?;
        inner.total += size;
        inner.trim(&self.limits)
    }

    /// Finds a response that this caller may see.
    pub(crate) fn get(&self, id: &str, owner: &Caller) -> Result<Option<Record>, ApiError> {
        let sql = "SELECT owner, object, input, events FROM responses
                   WHERE id = ?1 AND owner = ?2 AND created >= ?3";
        let values = params![id, owner.as_bytes(), signed(self.limits.oldest())];
        let inner = self.lock();
        let found = inner.connection.query_row(sql, values, columns).optional();
        found
            .map_err(|error| broken(&error))?
            .map(|columns| record(owner, &columns))
            .transpose()
    }

    /// Forgets a response that this caller may see; whether there was one.
    pub(crate) fn delete(&self, id: &str, owner: &Caller) -> Result<bool, ApiError> {
        if self.get(id, owner)?.is_none() {
            return Ok(false);
        }
        self.lock().remove(id)?;
        Ok(true)
    }

    fn interrupt(&self) -> Result<(), ApiError> {
        let sql = "SELECT owner, object, input, events FROM responses
                   WHERE status IN ('\"queued\"', '\"in_progress\"')";
        let found: Vec<Columns> = {
            let inner = self.lock();
            let mut statement = inner
                .connection
                .prepare(sql)
                .map_err(|error| broken(&error))?;
            let rows = statement
                .query_map([], columns)
                .map_err(|error| broken(&error))?;
            rows.collect::<Result<_, _>>()
                .map_err(|error| broken(&error))?
        };
        for columns in found {
            let owner = Caller::from_bytes(&columns.0);
            let mut record = record(&owner, &columns)?;
            record.object.status = ResponseStatus::Failed;
            record.object.error = Some(ResponseFailure {
                code: "server_error".to_owned(),
                message: "The server was restarted before the response was done.".to_owned(),
            });
            self.put(&record)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreLimits {
    /// Unix seconds of the oldest response that counts.
    fn oldest(&self) -> u64 {
        unix_seconds().saturating_sub(self.max_age.as_secs())
    }
}

impl Inner {
    fn remove(&mut self, id: &str) -> Result<(), ApiError> {
        let sql = "DELETE FROM responses WHERE id = ?1 RETURNING size";
        self.delete(sql, params![id])
    }

    /// Deletes what is too old, and the oldest while there is too much.
    fn trim(&mut self, limits: &StoreLimits) -> Result<(), ApiError> {
        let sql = "DELETE FROM responses WHERE created < ?1 RETURNING size";
        self.delete(sql, params![signed(limits.oldest())])?;
        while self.total > limits.max_bytes {
            let before = self.total;
            let sql = "DELETE FROM responses WHERE number = (SELECT MIN(number) FROM responses) RETURNING size";
            self.delete(sql, params![])?;
            if self.total == before {
                break;
            }
        }
        Ok(())
    }

    /// Runs a deletion that returns sizes.
    fn delete(&mut self, sql: &str, values: &[&dyn rusqlite::ToSql]) -> Result<(), ApiError> {
        let mut statement = self
            .connection
            .prepare_cached(sql)
            .map_err(|error| broken(&error))?;
        let sizes = statement
            .query_map(values, |row| row.get::<_, i64>(0))
            .map_err(|error| broken(&error))?;
        for size in sizes {
            let size = size.map_err(|error| broken(&error))?;
            self.total = self.total.saturating_sub(u64::try_from(size).unwrap_or(0));
        }
        Ok(())
    }
}

/// Owner, object, input, events.
type Columns = (Vec<u8>, String, String, Option<String>);

fn columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}

fn record(owner: &Caller, (_, object, input, events): &Columns) -> Result<Record, ApiError> {
    Ok(Record {
        owner: owner.clone(),
        object: serde_json::from_str(object).map_err(|error| broken(&error))?,
        input: serde_json::from_str(input).map_err(|error| broken(&error))?,
        events: events.clone(),
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn broken(error: &dyn std::error::Error) -> ApiError {
    tracing::error!("the store of responses: {error}");
    ApiError::internal("The store of responses failed; the server's log says more.")
}

/// Runs a job on the store where it holds up no I/O.
pub(crate) async fn on<T: Send + 'static>(
    store: &Arc<ResponseStore>,
    job: impl FnOnce(&ResponseStore) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let store = Arc::clone(store);
    let done = tokio::task::spawn_blocking(move || job(&store)).await;
    done.unwrap_or_else(|error| Err(broken(&error)))
}

#[cfg(test)]
mod tests {
    use octavo_api::{Body, ResponsesRequest};

    use super::*;

    fn limits(max_bytes: u64) -> StoreLimits {
        StoreLimits {
            max_bytes,
            max_age: Duration::from_secs(60),
        }
    }

    fn record(id: &str, text: &str) -> Record {
        let request = Body::parse(br#"{"input": "x"}"#).and_then(ResponsesRequest::from_body);
        let mut object = request.unwrap().object;
        id.clone_into(&mut object.id);
        object.created_at = unix_seconds();
        object.status = ResponseStatus::Completed;
        Record {
            owner: Caller::from_bytes(b"me"),
            object,
            input: vec![Value::from(text)],
            events: Some("event: x\n\n".to_owned()),
        }
    }

    #[test]
    fn only_its_owner_finds_and_deletes_it() {
        let store = ResponseStore::open(None, limits(1 << 20)).unwrap();
        let (me, other) = (Caller::from_bytes(b"me"), Caller::default());
        let kept = record("a", "x");
        store.put(&kept).unwrap();
        assert_eq!(store.get("a", &me).unwrap(), Some(kept));
        assert_eq!(store.get("a", &other).unwrap(), None);
        assert!(!store.delete("a", &other).unwrap());
        assert!(store.delete("a", &me).unwrap());
        assert!(!store.delete("a", &me).unwrap());
        assert_eq!(store.lock().total, 0);
    }

    #[test]
    fn the_oldest_go_where_there_is_too_much_and_what_is_too_old_goes() {
        let store = ResponseStore::open(None, limits(20_000)).unwrap();
        let me = Caller::from_bytes(b"me");
        let there = |id: &str| store.get(id, &me).unwrap().is_some();
        for id in ["a", "b", "c", "d"] {
            store.put(&record(id, &"x".repeat(5000))).unwrap();
            store.put(&record(id, &"y".repeat(5000))).unwrap();
        }
        assert_eq!(["a", "b", "c", "d"].map(there), [false, true, true, true]);
        assert!(store.lock().total <= 20_000);
        store.put(&record("e", &"x".repeat(50_000))).unwrap();
        assert!(!there("e") && there("d"));
        let mut old = record("f", "x");
        old.object.created_at -= 61;
        store.put(&old).unwrap();
        assert!(!there("f"));
    }

    #[test]
    fn a_file_is_opened_again_and_what_ran_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("responses.sqlite");
        let me = Caller::from_bytes(b"me");
        let store = ResponseStore::open(Some(&path), limits(1 << 20)).unwrap();
        let mut running = record("a", "x");
        running.object.status = ResponseStatus::InProgress;
        store.put(&running).unwrap();
        store.put(&record("b", "x")).unwrap();
        let total = store.lock().total;
        drop(store);
        let store = ResponseStore::open(Some(&path), limits(1 << 20)).unwrap();
        assert!(store.lock().total >= total);
        let found = |id: &str| store.get(id, &me).unwrap().unwrap().object;
        assert_eq!(found("a").status, ResponseStatus::Failed);
        assert!(found("a").error.unwrap().message.contains("restarted"));
        assert_eq!(found("b").status, ResponseStatus::Completed);
        drop(std::fs::write(
            folder.path().join("text"),
            "no database at all, but long enough to be read as one",
        ));
        assert!(ResponseStore::open(Some(&folder.path().join("text")), limits(1)).is_err());
    }
}
