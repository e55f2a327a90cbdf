//! Baseline of the server's own performance: prepared one-row inserts by one client, each in its
//! own commit. The store's rates are only meaningful in comparison with this one.
//!
//! It is in this crate because only the adapters contain SQL and use the database driver. It is not
//! behind a feature: `onward bench` measures the baseline, so the binary always contains it.

use deadpool_postgres::Client;
use onward_store::Error;

use crate::Options;
use crate::address::PostgresAddress;
use crate::connection::{self, ConnectionAccess};
use crate::error::{self, StatementFailure};

/// A connection and a narrow table for baseline measurements.
pub struct PostgresBaseline(Client);

impl PostgresBaseline {
    /// Connects, and creates the table if necessary.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let pool = connection::build_pool(
            &PostgresAddress::parse(url)?,
            1,
            Options::default().call_timeout,
            ConnectionAccess::Write,
        )?;
        let client = connection::acquire_connection(&pool)
            .await
            .map_err(StatementFailure::into_error)?;
        let table = "CREATE TABLE IF NOT EXISTS yardstick (id BIGINT GENERATED ALWAYS AS IDENTITY, body BYTEA NOT \
                     NULL, CONSTRAINT yardstick_pkey PRIMARY KEY (id))";
        client
            .batch_execute(table)
            .await
            .map_err(error::from_postgres_error)?;
        Ok(Self(client))
    }

    /// Returns the server's durability settings as text.
    pub async fn durability_settings(&self) -> Result<String, Error> {
        let settings = "SELECT format('Postgres %s, fsync=%s, synchronous_commit=%s, full_page_writes=%s', \
                        current_setting('server_version'), current_setting('fsync'), \
                        current_setting('synchronous_commit'), current_setting('full_page_writes'))";
        Ok(self
            .0
            .query_one(settings, &[])
            .await
            .map_err(error::from_postgres_error)?
            .get(0))
    }

    /// Bytes that the server has written to its write-ahead log so far, for all of its databases.
    pub async fn wal_bytes(&self) -> Result<u64, Error> {
        let place = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint";
        let bytes: i64 = self
            .0
            .query_one(place, &[])
            .await
            .map_err(error::from_postgres_error)?
            .get(0);
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    /// Size on disk of the tables in the current schema, in bytes.
    pub async fn disk_bytes(&self) -> Result<u64, Error> {
        let size = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class \
                    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'";
        let bytes: i64 = self
            .0
            .query_one(size, &[])
            .await
            .map_err(error::from_postgres_error)?
            .get(0);
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    /// Inserts one row of 100 bytes and commits it durably.
    pub async fn commit_row(&self) -> Result<(), Error> {
        let insert = self
            .0
            .prepare_cached("INSERT INTO yardstick (body) VALUES ($1)")
            .await
            .map_err(error::from_postgres_error)?;
        let row = [0_u8; 100].as_slice();
        self.0
            .execute(&insert, &[&row])
            .await
            .map(drop)
            .map_err(error::from_postgres_error)
    }
}
