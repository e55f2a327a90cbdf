//! Reads: each call is one statement on its own connection.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};
use onward_store::{
    ColumnValue, Error, InvalidRequest, JournalChunk, RowKey, RunEventQuery, RunEventReader,
    RunHead, StoreLimits, StoredRow, TableScan, TableSchema,
};
use tokio_postgres::Row;

use crate::error::StatementFailure;
use crate::sql::{self, ScanShape};
use crate::value::{
    PostgresParameter, PostgresTimestamp, SqlParam, count_from_sql, count_to_sql, stored_from_row,
};
use crate::{connection, error, integrity, run_event, run_head};

/// The pool of reader connections.
pub(crate) struct PostgresReaders {
    pool: Pool,
    limits: StoreLimits,
    call_timeout: Duration,
}

impl PostgresReaders {
    pub(crate) const fn new(pool: Pool, limits: StoreLimits, deadline: Duration) -> Self {
        Self {
            pool,
            limits,
            call_timeout: deadline,
        }
    }

    /// Runs a statement, and repeats it on another connection if the connection is lost: several
    /// idle connections may have been lost unnoticed.
    async fn query_with_retries(
        &self,
        statement: &str,
        params: &[SqlParam<'_>],
    ) -> Result<Vec<Row>, Error> {
        let mut losses = 0;
        loop {
            let answer = self.query_once(statement, params).await;
            losses += 1;
            if !matches!(answer, Err(StatementFailure::ConnectionLost(_)))
                || losses == connection::CONNECTION_ATTEMPTS_MAX
            {
                return answer.map_err(StatementFailure::into_error);
            }
            connection::sleep_backoff(losses).await;
        }
    }

    async fn query_once(
        &self,
        statement: &str,
        params: &[SqlParam<'_>],
    ) -> Result<Vec<Row>, StatementFailure> {
        let client = connection::acquire_connection(&self.pool).await?;
        let answer = tokio::time::timeout(self.call_timeout, async {
            let statement = client.prepare_cached(statement).await?;
            client.query(&statement, params).await
        });
        if let Ok(answer) = answer.await {
            return Ok(answer?);
        }
        // The connection is discarded: its next user would wait for the answer of this statement.
        drop(Object::take(client));
        Err(StatementFailure::Permanent(Error::Unavailable(
            "the database did not answer in time".to_owned(),
        )))
    }

    fn page_limit(&self, limit: usize) -> i64 {
        count_to_sql(limit.min(self.limits.page_max) as u64)
    }

    pub(crate) async fn check_integrity(&self) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        for check in integrity::INTEGRITY_CHECKS {
            let rows = self.query_with_retries(check, &[]).await?;
            found.extend(rows.iter().map(|row| row.get::<_, String>(0)));
        }
        Ok(found)
    }

    pub(crate) async fn read_row(
        &self,
        table: &'static TableSchema,
        key: &RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        check_column_values(table, &sql::key_column_names(table), &key.0)?;
        if key.0.len() != table.key_length {
            return Err(invalid_value(
                table,
                table.columns[0].name,
                "the key has the wrong number of columns",
            ));
        }
        let cells: Vec<PostgresParameter<'_>> = key.0.iter().map(PostgresParameter).collect();
        let params: Vec<SqlParam<'_>> = cells.iter().map(|cell| cell as SqlParam<'_>).collect();
        let rows = self
            .query_with_retries(&sql::build_select_by_key(table), &params)
            .await?;
        rows.first()
            .map(|row| stored_from_row(table, row))
            .transpose()
    }

    pub(crate) async fn scan_rows(&self, scan: &TableScan) -> Result<Vec<StoredRow>, Error> {
        let rows = self
            .query_scan(scan, self.page_limit(scan.limit), |sql| sql)
            .await?;
        rows.iter()
            .map(|row| stored_from_row(scan.table, row))
            .collect()
    }

    pub(crate) async fn count_rows(&self, scan: &TableScan) -> Result<u64, Error> {
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
        let counted = self
            .query_scan(scan, limit, |sql| {
                format!("SELECT count(*) FROM ({sql}) AS wanted")
            })
            .await?;
        Ok(counted
            .first()
            .and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok())
            .unwrap_or(0))
    }

    async fn query_scan(
        &self,
        scan: &TableScan,
        limit: i64,
        ask: impl FnOnce(String) -> String,
    ) -> Result<Vec<Row>, Error> {
        let order = scan.table.scan_order(scan.index);
        let equal = scan.equal.len();
        check_column_values(scan.table, &order, &scan.equal)?;
        check_column_values(
            scan.table,
            order.get(equal..).unwrap_or_default(),
            scan.until.as_slice(),
        )?;
        let after = scan.after.as_deref().unwrap_or_default();
        check_column_values(scan.table, &order, after)?;
        if scan.after.is_some() && after.len() != order.len() {
            return Err(invalid_value(
                scan.table,
                order[0],
                "the row to start after has the wrong number of columns",
            ));
        }
        let shape = ScanShape {
            equal,
            has_until: scan.until.is_some(),
            has_after: scan.after.is_some(),
            is_reversed: scan.is_reversed,
        };
        let cells: Vec<PostgresParameter<'_>> = scan
            .equal
            .iter()
            .chain(&scan.until)
            .chain(after)
            .map(PostgresParameter)
            .collect();
        let mut params: Vec<SqlParam<'_>> = cells.iter().map(|cell| cell as SqlParam<'_>).collect();
        params.push(&limit);
        self.query_with_retries(&ask(sql::build_scan(scan.table, &order, shape)), &params)
            .await
    }

    pub(crate) async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        let id = execution.as_bytes().as_slice();
        let rows = self
            .query_with_retries(
                include_str!("../statements/read_journal.sql"),
                &[
                    &id,
                    &count_to_sql(from),
                    &self.page_limit(limit),
                    &count_to_sql(self.limits.journal_page_bytes_max as u64),
                ],
            )
            .await?;
        rows.iter().map(chunk_from_row).collect()
    }

    pub(crate) async fn read_journal_end(
        &self,
        execution: ExecutionId,
    ) -> Result<Option<JournalChunk>, Error> {
        let id = execution.as_bytes().as_slice();
        let rows = self
            .query_with_retries(include_str!("../statements/read_journal_end.sql"), &[&id])
            .await?;
        rows.first().map(chunk_from_row).transpose()
    }

    pub(crate) async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        let statement = include_str!("../statements/read_events.sql");
        let params: [SqlParam<'_>; 3] = [
            &&**run,
            &count_to_sql(page.after.as_u64()),
            &self.page_limit(page.limit),
        ];
        self.query_with_retries(statement, &params)
            .await?
            .iter()
            .map(run_event::event_from_row)
            .collect()
    }

    pub(crate) async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        let statement = format!(
            "SELECT {} FROM runs WHERE run_id = $1",
            run_head::HEAD_COLUMNS
        );
        self.query_with_retries(&statement, &[&&**run])
            .await?
            .first()
            .map(run_head::head_from_row)
            .transpose()
    }

    pub(crate) async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        let behind = match behind {
            None => "",
            Some(RunEventReader::Projector) => "AND projector_is_behind",
            Some(RunEventReader::EventBus) => "AND event_bus_is_behind",
        };
        let columns = run_head::HEAD_COLUMNS;
        let statement = format!(
            "SELECT {columns} FROM runs WHERE run_id > $1 {behind} ORDER BY run_id LIMIT $2"
        );
        // The empty string sorts before every run id.
        let params: [SqlParam<'_>; 2] = [&after.map_or("", |run| &**run), &self.page_limit(limit)];
        self.query_with_retries(&statement, &params)
            .await?
            .iter()
            .map(run_head::head_from_row)
            .collect()
    }

    pub(crate) async fn database_time(&self) -> Result<Timestamp, Error> {
        let rows = self
            .query_with_retries("SELECT clock_timestamp()", &[])
            .await?;
        let now = rows
            .first()
            .map(|row| row.try_get::<_, PostgresTimestamp>(0))
            .transpose()
            .map_err(error::from_postgres_error)?;
        now.map(|now| now.0)
            .ok_or_else(|| Error::corrupt("the database returned no time"))
    }
}

fn chunk_from_row(row: &Row) -> Result<JournalChunk, Error> {
    let unreadable = |cause: tokio_postgres::Error| error::unreadable_row("journal", &cause);
    let count = u32::try_from(row.try_get::<_, i64>(1).map_err(unreadable)?);
    Ok(JournalChunk {
        first: count_from_sql(row.try_get(0).map_err(unreadable)?)?,
        count: count.map_err(|cause| error::unreadable_row("journal", &cause))?,
        records: Arc::from(row.try_get::<_, &[u8]>(2).map_err(unreadable)?),
    })
}

/// Checks that `values` fit the first of these columns.
fn check_column_values(
    table: &'static TableSchema,
    names: &[&'static str],
    values: &[ColumnValue],
) -> Result<(), Error> {
    for (place, value) in values.iter().enumerate() {
        let Some(&name) = names.get(place) else {
            return Err(invalid_value(
                table,
                table.columns[0].name,
                "the row has more values than the table has columns",
            ));
        };
        let column = table
            .column_position(name)
            .map(|place| table.columns[place]);
        if column.is_none_or(|column| !value.fits_type(column.column_type)) {
            return Err(invalid_value(table, name, "the value has the wrong type"));
        }
        if matches!(value, ColumnValue::Text(text) if text.contains('\0')) {
            return Err(invalid_value(table, name, "text must not contain U+0000"));
        }
    }
    Ok(())
}

fn invalid_value(table: &'static TableSchema, column: &'static str, reason: &'static str) -> Error {
    InvalidRequest::Value {
        table: table.name,
        column,
        reason,
    }
    .into()
}
