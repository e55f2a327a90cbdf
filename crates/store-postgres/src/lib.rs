//! The store in a Postgres database, for many nodes on one server.
//!
//! Commits that wait are performed together in one transaction. What they are about is locked and read in one go, the
//! rules decide, and what they decided is written and committed in another. Run events that can be taken for new go in
//! a single statement. A connection that is lost while committing leaves no question open: the server is asked what
//! became of the transaction.
//!
//! The database itself keeps what happened from being changed: see `migrations/0001_initial.sql`.
//!
//! Sessions are told how durable to be when they are opened, so a pooler in between has to keep a session to itself.

mod address;
mod connect;
mod error;
mod event;
mod head;
mod inspect;
mod migrate;
mod notices;
mod options;
mod pipeline;
mod purge;
mod read;
pub mod scratch;
mod sql;
mod tls;
mod value;
mod writer;
pub mod yardstick;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::Pool;
use onward_journal::{ExecutionId, Timestamp};
use onward_runs::{RunEventRecord, RunId};
use onward_store::{
    Admitted, Clock, Error, Heard, JournalChunk, Key, Page, Policy, Presence, Purge, Reader, Receipt, RunHead, Scan,
    Store, Stored, Table,
};

pub use options::Options;

use crate::address::Address;
use crate::connect::Access;
use crate::error::Trouble;
use crate::notices::Notices;
use crate::read::Readers;
use crate::writer::{Start, Writers};

/// A store in a Postgres database.
pub struct Postgres {
    /// Absent in a store that is only read.
    writers: Option<Writers>,
    /// The same.
    notices: Option<Notices>,
    readers: Readers,
    pool: Pool,
    policy: Policy,
    clock: Option<Arc<dyn Clock>>,
    deadline: Duration,
}

impl Postgres {
    /// Connects to the database that `url` names, and creates or migrates the tables if need be.
    ///
    /// A server on another machine is reached with TLS, and has to show a certificate that this machine trusts, unless
    /// the URL says `sslmode=disable`.
    ///
    /// ```no_run
    /// use onward_store::Store as _;
    /// use onward_store_postgres::{Options, Postgres};
    ///
    /// # async fn example() -> Result<(), onward_store::Error> {
    /// let store = Postgres::open("postgres://onward:secret@db.example/onward", Options::default()).await?;
    /// println!("the database says it is {}", store.now().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open(url: &str, options: Options) -> Result<Self, Error> {
        let Options { clock, writers, bulk_writers, queue, deadline, .. } = options.clone();
        let address = Address::parse(url)?;
        let pool = connect::pool(&address, options.readers, deadline, Access::Write)?;
        let mut client = connect::take(&pool).await.map_err(Trouble::into_error)?;
        connect::check_server(&client, Access::Write).await?;
        migrate::to_newest(&mut client).await?;
        writer::tidy(&client).await?;
        drop(client);
        let writing = connect::pool(&address, writers.max(1) + bulk_writers.max(1), deadline, Access::Write)?;
        let start = Start { pool: writing, clock, writers, bulk_writers, queue, deadline };
        let notices = Some(Notices::start(&pool, &address, deadline).await?);
        Ok(Self { writers: Some(Writers::start(&start)?), notices, ..Self::reading(pool, options) })
    }

    /// Connects to a database that holds a store, to read from it only. Nothing in it is changed; it may be a standby.
    pub async fn open_existing(url: &str, options: Options) -> Result<Self, Error> {
        let pool = connect::pool(&Address::parse(url)?, options.readers, options.deadline, Access::Read)?;
        let client = connect::take(&pool).await.map_err(Trouble::into_error)?;
        connect::check_server(&client, Access::Read).await?;
        migrate::expect_newest(&client).await?;
        drop(client);
        Ok(Self::reading(pool, options))
    }

    fn reading(pool: Pool, options: Options) -> Self {
        let Options { policy, clock, deadline, .. } = options;
        let readers = Readers::new(pool.clone(), policy.limits.page_max, deadline);
        Self { writers: None, notices: None, readers, pool, policy, clock, deadline }
    }

    fn writers(&self) -> Result<&Writers, Error> {
        self.writers.as_ref().ok_or_else(|| Error::Unusable("the store was opened for reading only".to_owned()))
    }
}

#[async_trait]
impl Store for Postgres {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    async fn apply(&self, commit: Admitted) -> Result<Receipt, Error> {
        self.writers()?.commit(commit).await
    }

    async fn row(&self, table: &'static Table, key: Key) -> Result<Option<Stored>, Error> {
        self.readers.row(table, &key).await
    }

    async fn rows(&self, scan: Scan) -> Result<Vec<Stored>, Error> {
        self.readers.rows(&scan).await
    }

    async fn count(&self, scan: Scan) -> Result<u64, Error> {
        self.readers.count(&scan).await
    }

    async fn journal(&self, execution: ExecutionId, from: u64, limit: usize) -> Result<Vec<JournalChunk>, Error> {
        self.readers.journal(execution, from, limit).await
    }

    async fn run_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        self.readers.run_events(run, page).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.readers.run(run).await
    }

    async fn runs(&self, behind: Option<Reader>, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, Error> {
        self.readers.runs(behind, after, limit).await
    }

    async fn purge(&self, purge: Purge) -> Result<bool, Error> {
        self.writers()?;
        purge::purge(&self.pool, &purge, self.deadline).await
    }

    async fn inspect(&self) -> Result<Vec<String>, Error> {
        self.readers.inspect().await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        match &self.clock {
            Some(clock) => Ok(clock.now()),
            None => self.readers.now().await,
        }
    }

    fn tell(&self, words: String) {
        if let Some(notices) = &self.notices {
            notices.tell(words);
        }
    }

    fn hear(&self, heard: Heard) -> Option<Presence> {
        self.notices.as_ref().map(|notices| notices.hear(heard))
    }
}
