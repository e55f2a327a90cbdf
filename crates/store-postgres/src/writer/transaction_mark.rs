//! The mark that a writer stores with each transaction: the number of its last committed
//! transaction.

use deadpool_postgres::ClientWrapper;
use onward_store::Error;

use crate::error::{self, StatementFailure};
use crate::pipeline::PipelineStatement;

/// Stores the mark in a row that belongs to one writer only.
const UPSERT_MARK: &str = "INSERT INTO writers (writer, transactions, written_at) VALUES ($1, $2, now()) \
                     ON CONFLICT (writer) DO UPDATE SET transactions = excluded.transactions, written_at = excluded.written_at";

/// Deletes marks older than a day, which is longer than any writer takes to determine the outcome
/// of a transaction.
const DELETE_STALE_MARKS: &str = "DELETE FROM writers WHERE written_at < now() - interval '1 day'";

/// Identifies a transaction of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransactionMark {
    writer: i64,
    transaction: i64,
}

impl TransactionMark {
    /// Creates the mark of a new writer, with a random writer id.
    pub(super) fn new() -> Result<Self, Error> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| Error::Unusable(error.to_string()))?;
        Ok(Self {
            writer: i64::from_ne_bytes(bytes),
            transaction: 0,
        })
    }

    /// Returns the mark of the writer's next transaction.
    pub(super) const fn next(self) -> Self {
        Self {
            writer: self.writer,
            transaction: self.transaction + 1,
        }
    }

    /// Returns the statement that stores the mark if the transaction commits.
    pub(super) fn upsert_statement<'a>(self) -> PipelineStatement<'a> {
        PipelineStatement::new(UPSERT_MARK)
            .with_param(self.writer)
            .with_param(self.transaction)
    }

    /// Returns `true` if the mark is stored and the writer has not written since.
    pub(super) async fn is_committed(
        self,
        client: &ClientWrapper,
    ) -> Result<bool, StatementFailure> {
        let sql = "SELECT EXISTS (SELECT FROM writers WHERE writer = $1 AND transactions = $2)";
        let statement = client.prepare_cached(sql).await?;
        let row = client
            .query_one(&statement, &[&self.writer, &self.transaction])
            .await?;
        Ok(row.try_get(0)?)
    }
}

/// Deletes the marks of writers that stopped long ago.
pub(crate) async fn delete_stale_marks(client: &ClientWrapper) -> Result<(), Error> {
    client
        .batch_execute(DELETE_STALE_MARKS)
        .await
        .map_err(error::from_postgres_error)
}
