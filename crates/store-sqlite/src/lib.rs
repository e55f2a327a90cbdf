//! Store implementation in one SQLite file, for a laptop or a single node.
//!
//! One thread writes. It takes all waiting commits, performs them in one transaction and syncs
//! once: a hundred concurrent commits cost one fsync. A commit that is rejected is rolled back
//! alone; the others of its group are performed. Readers have their own connections and never wait
//! for the writer.

pub mod baseline;
mod checksum;
mod connection;
mod error;
mod file_access;
mod integrity;
mod latency;
mod migrate;
mod process_lock;
mod read;
mod read_pool;
mod sql;
mod stored_state;
mod values;
mod write;
mod writer;
mod writer_cache;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};
use onward_store::tables::ComponentRow;
use onward_store::{
    AdmittedCommit, CommitReceipt, Error, JournalChunk, PurgeTarget, RegistrationGuard, RowKey,
    RunEventQuery, RunEventReader, RunHead, Store, StoreClock, StorePolicy, StoredRow, SystemClock,
    TableRecord as _, TableScan, TableSchema,
};

use crate::connection::ReadAccess;
use crate::read_pool::SqliteReaders;
use crate::writer::SqliteWriter;

/// Suffixes of the files that SQLite keeps for a database.
const FILE_SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// Returns the paths of all files that can belong to a store: the database, SQLite's files beside
/// it, and the lock files. Not all of them need exist.
pub fn store_files(path: &Path) -> Vec<PathBuf> {
    let beside = |end: &&str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    FILE_SUFFIXES
        .iter()
        .map(beside)
        .chain(process_lock::list_lock_files(path))
        .collect()
}

/// Options for opening a SQLite store.
pub struct Options {
    /// Limits and rules for what the store accepts.
    pub policy: StorePolicy,
    /// Clock for the timestamps of stored rows; default: the system clock.
    pub clock: Arc<dyn StoreClock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: StorePolicy::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

/// A [`Store`] in a SQLite file.
pub struct SqliteStore {
    /// Closed before the writer, because the last connection to close checkpoints the write-ahead
    /// log into the file.
    readers: SqliteReaders,
    /// The writer; `None` in a store that was opened read-only.
    writer: Option<SqliteWriter>,
    policy: StorePolicy,
    clock: Arc<dyn StoreClock>,
    path: PathBuf,
}

impl SqliteStore {
    /// Opens the file, and creates or migrates it if necessary. This call blocks briefly.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        file_access::create_private_file(path);
        let mut connection = connection::open_writable(path)?;
        // Only now it is known to be a store: a file of another program is left unchanged.
        file_access::restrict_access(path, &FILE_SUFFIXES);
        migrate::apply_migrations(&mut connection, options.clock.now())?;
        let writer = SqliteWriter::spawn_thread(connection, Arc::clone(&options.clock))?;
        Ok(Self::from_parts(Some(writer), path, options))
    }

    /// Opens an existing file for reading only. Nothing in it is changed, and the call waits for no
    /// writer.
    pub fn open_read_only(path: &Path, options: Options) -> Result<Self, Error> {
        let access = ReadAccess::ReadOnlyStore;
        migrate::require_current_schema(&connection::open_readable(path, access)?)?;
        Ok(Self::from_parts(None, path, options))
    }

    fn from_parts(writer: Option<SqliteWriter>, path: &Path, options: Options) -> Self {
        let Options { policy, clock } = options;
        let access = match &writer {
            Some(_) => ReadAccess::Shared,
            None => ReadAccess::ReadOnlyStore,
        };
        Self {
            writer,
            readers: SqliteReaders::new(path, access, Arc::clone(&clock)),
            policy,
            clock,
            path: path.to_owned(),
        }
    }

    fn require_writer(&self) -> Result<&SqliteWriter, Error> {
        self.writer
            .as_ref()
            .ok_or_else(|| Error::Unusable("the store was opened read-only".to_owned()))
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn policy(&self) -> &StorePolicy {
        &self.policy
    }

    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error> {
        self.require_writer()?.commit(commit).await
    }

    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        if table.name == ComponentRow::TABLE.name {
            // Component code is too large to be read on the caller's thread.
            return self
                .readers
                .run_read(move |db| read::read_row(db, table, &key))
                .await;
        }
        self.readers
            .run_point_read(move |db| read::read_row(db, table, &key))
            .await
    }

    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        let limit = scan.limit.min(self.policy.limits.page_max);
        self.readers
            .run_read(move |db| read::scan_rows(db, &scan, limit))
            .await
    }

    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error> {
        self.readers
            .run_read(move |db| read::count_rows(db, &scan))
            .await
    }

    async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        let limit = limit.min(self.policy.limits.page_max);
        let bytes_max = self.policy.limits.journal_page_bytes_max;
        self.readers
            .run_read(move |db| read::read_journal(db, execution, from, (limit, bytes_max)))
            .await
    }

    async fn read_journal_end(
        &self,
        execution: ExecutionId,
    ) -> Result<Option<JournalChunk>, Error> {
        self.readers
            .run_read(move |db| read::read_last_chunk(db, execution))
            .await
    }

    async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        let (run, limit) = (run.clone(), page.limit.min(self.policy.limits.page_max));
        self.readers
            .run_read(move |db| read::read_run_events(db, &run, page.after, limit))
            .await
    }

    async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        let run = run.clone();
        self.readers
            .run_read(move |db| read::read_run_head(db, &run))
            .await
    }

    async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        let (after, limit) = (after.cloned(), limit.min(self.policy.limits.page_max));
        self.readers
            .run_read(move |db| read::list_run_heads(db, behind, after.as_ref(), limit))
            .await
    }

    async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error> {
        self.require_writer()?.purge(purge).await
    }

    fn register_process(&self, name: &str) -> Option<RegistrationGuard> {
        match process_lock::acquire_process_lock(&self.path, name) {
            Ok(lock) => Some(Box::new(lock)),
            // If this process dies, other processes wait until its leases expire.
            Err(error) => {
                tracing::debug!(%error, "cannot lock a file beside the store: if this process dies, others wait until its leases expire");
                None
            }
        }
    }

    fn is_process_dead(&self, name: &str) -> bool {
        process_lock::is_process_dead(&self.path, name)
    }

    async fn check_integrity(&self) -> Result<Vec<String>, Error> {
        self.readers.run_read(integrity::check_integrity).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.clock.now())
    }
}
