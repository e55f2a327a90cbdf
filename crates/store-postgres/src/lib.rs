//! Store implementation on a Postgres database, for many nodes on one server.
//!
//! Waiting commits are performed together in one transaction (group commit). One round trip locks
//! and reads the rows they need, the store's rules decide, and a second round trip writes the
//! decisions and commits. Run events that can be assumed to be new are inserted in a single
//! statement. A connection lost during a commit leaves no commit in doubt: the writer asks the
//! server for the outcome of the transaction.
//!
//! The database itself prevents changes to recorded history: see `migrations/0001_initial.sql`.
//!
//! The durability settings are applied once per session, when it is opened, so a connection pooler
//! in between must use session pooling.

mod address;
pub mod baseline;
mod connection;
mod error;
mod integrity;
mod migrate;
mod notifications;
mod options;
mod pipeline;
mod purge;
mod read;
mod run_event;
mod run_head;
pub mod scratch_schema;
mod sql;
mod tls;
mod value;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::Pool;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};
use onward_store::{
    AdmittedCommit, CommitReceipt, Error, JournalChunk, NotificationHandler, PurgeTarget,
    RegistrationGuard, RowKey, RunEventQuery, RunEventReader, RunHead, Store, StoreClock,
    StorePolicy, StoredRow, TableScan, TableSchema,
};

pub use options::Options;

use crate::address::PostgresAddress;
use crate::connection::ConnectionAccess;
use crate::error::StatementFailure;
use crate::notifications::PostgresNotifier;
use crate::read::PostgresReaders;
use crate::writer::{CommitQueues, WriterOptions};

/// A [`Store`] in a Postgres database.
pub struct PostgresStore {
    /// The commit queues; `None` in a store that was opened read-only.
    writers: Option<CommitQueues>,
    /// Sends and receives notifications; `None` in a store that was opened read-only.
    notifier: Option<PostgresNotifier>,
    readers: PostgresReaders,
    pool: Pool,
    policy: StorePolicy,
    clock: Option<Arc<dyn StoreClock>>,
    call_timeout: Duration,
}

impl PostgresStore {
    /// Connects to the database at `url` and creates or migrates the tables if necessary.
    ///
    /// A server on another machine is reached over TLS and must present a certificate that this
    /// machine trusts, unless the URL contains `sslmode=disable`.
    ///
    /// ```no_run
    /// use onward_store::Store as _;
    /// use onward_store_postgres::{Options, PostgresStore};
    ///
    /// # async fn example() -> Result<(), onward_store::Error> {
    /// let url = "postgres://onward:secret@db.example/onward";
    /// let store = PostgresStore::open(url, Options::default()).await?;
    /// println!("time of the database: {}", store.now().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open(url: &str, options: Options) -> Result<Self, Error> {
        let Options {
            clock,
            writers,
            bulk_writers,
            queue_capacity: queue,
            call_timeout: deadline,
            ..
        } = options.clone();
        let address = PostgresAddress::parse(url)?;
        let pool =
            connection::build_pool(&address, options.readers, deadline, ConnectionAccess::Write)?;
        let mut client = connection::acquire_connection(&pool)
            .await
            .map_err(StatementFailure::into_error)?;
        connection::check_server(&client, ConnectionAccess::Write).await?;
        migrate::apply_migrations(&mut client).await?;
        writer::delete_stale_marks(&client).await?;
        drop(client);
        let writing = connection::build_pool(
            &address,
            writers.max(1) + bulk_writers.max(1),
            deadline,
            ConnectionAccess::Write,
        )?;
        let start = WriterOptions {
            pool: writing,
            clock,
            writers,
            bulk_writers,
            queue_capacity: queue,
            call_timeout: deadline,
        };
        let notices = Some(PostgresNotifier::start_sender(&pool, &address, deadline).await?);
        Ok(Self {
            writers: Some(CommitQueues::start_writers(&start)?),
            notifier: notices,
            ..Self::from_read_pool(pool, options)
        })
    }

    /// Connects to a database that contains a store, for reading only. Nothing in it is changed; it
    /// may be a standby.
    pub async fn open_read_only(url: &str, options: Options) -> Result<Self, Error> {
        let pool = connection::build_pool(
            &PostgresAddress::parse(url)?,
            options.readers,
            options.call_timeout,
            ConnectionAccess::Read,
        )?;
        let client = connection::acquire_connection(&pool)
            .await
            .map_err(StatementFailure::into_error)?;
        connection::check_server(&client, ConnectionAccess::Read).await?;
        migrate::require_current_schema(&client).await?;
        drop(client);
        Ok(Self::from_read_pool(pool, options))
    }

    fn from_read_pool(pool: Pool, options: Options) -> Self {
        let Options {
            policy,
            clock,
            call_timeout: deadline,
            ..
        } = options;
        let readers = PostgresReaders::new(pool.clone(), policy.limits, deadline);
        Self {
            writers: None,
            notifier: None,
            readers,
            pool,
            policy,
            clock,
            call_timeout: deadline,
        }
    }

    fn require_writers(&self) -> Result<&CommitQueues, Error> {
        self.writers
            .as_ref()
            .ok_or_else(|| Error::Unusable("the store was opened read-only".to_owned()))
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn policy(&self) -> &StorePolicy {
        &self.policy
    }

    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error> {
        self.require_writers()?.commit(commit).await
    }

    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        self.readers.read_row(table, &key).await
    }

    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        self.readers.scan_rows(&scan).await
    }

    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error> {
        self.readers.count_rows(&scan).await
    }

    async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        self.readers.read_journal(execution, from, limit).await
    }

    async fn read_journal_end(
        &self,
        execution: ExecutionId,
    ) -> Result<Option<JournalChunk>, Error> {
        self.readers.read_journal_end(execution).await
    }

    async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        self.readers.read_run_events(run, page).await
    }

    async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.readers.read_run_head(run).await
    }

    async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        self.readers.list_run_heads(behind, after, limit).await
    }

    async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error> {
        self.require_writers()?;
        purge::purge_with_timeout(&self.pool, &purge, self.call_timeout).await
    }

    async fn check_integrity(&self) -> Result<Vec<String>, Error> {
        self.readers.check_integrity().await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        match &self.clock {
            Some(clock) => Ok(clock.now()),
            None => self.readers.database_time().await,
        }
    }

    fn notify(&self, notification: String) {
        if let Some(notices) = &self.notifier {
            notices.enqueue_notification(notification);
        }
    }

    fn subscribe(&self, handler: NotificationHandler) -> Option<RegistrationGuard> {
        self.notifier
            .as_ref()
            .map(|notices| notices.spawn_listener(handler))
    }
}
