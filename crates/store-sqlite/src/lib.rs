//! The store in one SQLite file, for a laptop or a single node.
//!
//! One thread writes. It takes every commit that waits, performs them in one transaction and syncs once: a hundred
//! concurrent commits cost one fsync. A commit that is refused is undone alone, its neighbours go on. Readers have
//! connections of their own and never wait for the writer.

mod before;
mod checksum;
mod error;
mod inspect;
mod migrate;
mod open;
mod pace;
mod presence;
mod read;
mod readers;
mod recent;
mod sql;
mod values;
mod write;
mod writer;
pub mod yardstick;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use onward_journal::{ExecutionId, Timestamp};
use onward_runs::{RunEventRecord, RunId};
use onward_store::tables::Component;
use onward_store::{
    Admitted, Clock, Error, JournalChunk, Key, Page, Policy, Presence, Purge, Reader, Receipt, Record as _, RunHead,
    Scan, Store, Stored, SystemClock, Table,
};

use crate::readers::Readers;
use crate::writer::Writer;

/// What SQLite has beside a file.
const BESIDE: [&str; 3] = ["", "-wal", "-shm"];

/// A store's file, and what stands beside it; not all of it need be there.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let beside = |end: &&str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    BESIDE.iter().map(beside).chain(presence::all(path)).collect()
}

/// How a file is opened.
pub struct Options {
    /// What the store accepts.
    pub policy: Policy,
    /// What stamps what is stored.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self { policy: Policy::default(), clock: Arc::new(SystemClock) }
    }
}

/// A store in a file.
pub struct Sqlite {
    /// Closed before the writer: who closes last moves the log into the file.
    readers: Readers,
    /// Absent in a store that is only read.
    writer: Option<Writer>,
    policy: Policy,
    clock: Arc<dyn Clock>,
    path: PathBuf,
}

impl Sqlite {
    /// Opens the file, creating or migrating it if need be. This blocks for a moment.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        let mut connection = open::writable(path)?;
        migrate::to_newest(&mut connection, options.clock.now())?;
        let writer = Writer::start(connection, Arc::clone(&options.clock))?;
        Ok(Self::with(Some(writer), path, options))
    }

    /// Opens a file that is there, to read from it only. Nothing in it is changed, and no writer is waited for.
    pub fn open_existing(path: &Path, options: Options) -> Result<Self, Error> {
        migrate::expect_newest(&open::readable(path)?)?;
        Ok(Self::with(None, path, options))
    }

    fn with(writer: Option<Writer>, path: &Path, options: Options) -> Self {
        let Options { policy, clock } = options;
        Self { writer, readers: Readers::new(path, Arc::clone(&clock)), policy, clock, path: path.to_owned() }
    }

    fn writer(&self) -> Result<&Writer, Error> {
        self.writer.as_ref().ok_or_else(|| Error::Unusable("the store was opened for reading only".to_owned()))
    }
}

#[async_trait]
impl Store for Sqlite {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    async fn apply(&self, commit: Admitted) -> Result<Receipt, Error> {
        self.writer()?.commit(commit).await
    }

    async fn row(&self, table: &'static Table, key: Key) -> Result<Option<Stored>, Error> {
        if table.name == Component::TABLE.name {
            // Code is too large to be read on anybody's time.
            return self.readers.read(move |db| read::row(db, table, &key)).await;
        }
        self.readers.read_one(move |db| read::row(db, table, &key)).await
    }

    async fn rows(&self, scan: Scan) -> Result<Vec<Stored>, Error> {
        let limit = scan.limit.min(self.policy.limits.page_max);
        self.readers.read(move |db| read::rows(db, &scan, limit)).await
    }

    async fn count(&self, scan: Scan) -> Result<u64, Error> {
        self.readers.read(move |db| read::count_rows(db, &scan)).await
    }

    async fn journal(&self, execution: ExecutionId, from: u64, limit: usize) -> Result<Vec<JournalChunk>, Error> {
        let limit = limit.min(self.policy.limits.page_max);
        self.readers.read(move |db| read::journal(db, execution, from, limit)).await
    }

    async fn run_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        let (run, limit) = (run.clone(), page.limit.min(self.policy.limits.page_max));
        self.readers.read(move |db| read::run_events(db, &run, page.after, limit)).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        let run = run.clone();
        self.readers.read(move |db| read::head(db, &run)).await
    }

    async fn runs(&self, behind: Option<Reader>, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, Error> {
        let (after, limit) = (after.cloned(), limit.min(self.policy.limits.page_max));
        self.readers.read(move |db| read::heads(db, behind, after.as_ref(), limit)).await
    }

    async fn purge(&self, purge: Purge) -> Result<bool, Error> {
        self.writer()?.purge(purge).await
    }

    fn appear(&self, name: &str) -> Option<Presence> {
        match presence::appear(&self.path, name) {
            Ok(lock) => Some(Box::new(lock)),
            // Others wait for its leases, should it die.
            Err(error) => {
                tracing::debug!(%error, "no lock can be held beside the store");
                None
            }
        }
    }

    fn is_gone(&self, name: &str) -> bool {
        presence::is_gone(&self.path, name)
    }

    async fn inspect(&self) -> Result<Vec<String>, Error> {
        self.readers.read(inspect::inspect).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.clock.now())
    }
}
