//! The mark that a writer leaves with each transaction: which of its transactions was the last to be committed.

use deadpool_postgres::ClientWrapper;
use onward_store::Error;

use crate::error::{self, StatementFailure};
use crate::pipeline::PipelineStatement;

/// Leaves the mark. In a row of its own, which nobody else writes.
const UPSERT_MARK: &str = "INSERT INTO writers (writer, transactions, written_at) VALUES ($1, $2, now()) \
                     ON CONFLICT (writer) DO UPDATE SET transactions = excluded.transactions, written_at = excluded.written_at";

/// A day is longer than any writer asks what became of a transaction.
const DELETE_STALE_MARKS: &str = "DELETE FROM writers WHERE written_at < now() - interval '1 day'";

/// A transaction of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransactionMark {
    writer: i64,
    transaction: i64,
}

impl TransactionMark {
    /// Of a writer that has done nothing yet.
    pub(super) fn new() -> Result<Self, Error> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| Error::Unusable(error.to_string()))?;
        Ok(Self {
            writer: i64::from_ne_bytes(bytes),
            transaction: 0,
        })
    }

    /// The next transaction.
    pub(super) const fn next(self) -> Self {
        Self {
            writer: self.writer,
            transaction: self.transaction + 1,
        }
    }

    /// Leaves it, if the transaction is committed.
    pub(super) fn upsert_statement<'a>(self) -> PipelineStatement<'a> {
        PipelineStatement::new(UPSERT_MARK)
            .with_param(self.writer)
            .with_param(self.transaction)
    }

    /// Whether it was left, by a writer that has not written since.
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

/// Removes marks of writers that are long gone.
pub(crate) async fn delete_stale_marks(client: &ClientWrapper) -> Result<(), Error> {
    client
        .batch_execute(DELETE_STALE_MARKS)
        .await
        .map_err(error::from_postgres_error)
}
