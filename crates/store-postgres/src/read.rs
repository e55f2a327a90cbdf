//! Reading: each call is one statement on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use onward_journal::{ExecutionId, Timestamp};
use onward_runs::{RunEventRecord, RunId};
use onward_store::{Error, Invalid, JournalChunk, Key, Page, Reader, RunHead, Scan, Stored, Table, Value};
use tokio_postgres::Row;

use crate::error::Trouble;
use crate::sql::{self, Shape};
use crate::value::{Cell, Param, Time, signed, stored, unsigned};
use crate::{connect, error, event, head, inspect};

/// The connections that read.
pub(crate) struct Readers {
    pool: Pool,
    page_max: usize,
    deadline: Duration,
}

impl Readers {
    pub(crate) const fn new(pool: Pool, page_max: usize, deadline: Duration) -> Self {
        Self { pool, page_max, deadline }
    }

    /// The answer to a statement, on another connection if one is lost: several may have been while nobody used them.
    async fn query(&self, statement: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        let mut losses = 0;
        loop {
            let answer = self.query_once(statement, params).await;
            losses += 1;
            if !matches!(answer, Err(Trouble::Lost(_))) || losses == connect::LOSSES_MAX {
                return answer.map_err(Trouble::into_error);
            }
            connect::pause(losses).await;
        }
    }

    async fn query_once(&self, statement: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        let client = connect::take(&self.pool).await?;
        let answer = tokio::time::timeout(self.deadline, async {
            let statement = client.prepare_cached(statement).await?;
            client.query(&statement, params).await
        });
        if let Ok(answer) = answer.await {
            return Ok(answer?);
        }
        // The next to use this connection would wait for the same answer.
        drop(Object::take(client));
        Err(Trouble::Refused(Error::Unavailable("the database did not answer in time".to_owned())))
    }

    fn limit(&self, limit: usize) -> i64 {
        signed(limit.min(self.page_max) as u64)
    }

    pub(crate) async fn inspect(&self) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        for check in inspect::CHECKS {
            let rows = self.query(check, &[]).await?;
            found.extend(rows.iter().map(|row| row.get::<_, String>(0)));
        }
        Ok(found)
    }

    pub(crate) async fn row(&self, table: &'static Table, key: &Key) -> Result<Option<Stored>, Error> {
        check(table, &sql::key_names(table), &key.0)?;
        if key.0.len() != table.key {
            return Err(wrong(table, table.columns[0].name, "the key has another number of columns"));
        }
        let cells: Vec<Cell<'_>> = key.0.iter().map(Cell).collect();
        let params: Vec<Param<'_>> = cells.iter().map(|cell| cell as Param<'_>).collect();
        let rows = self.query(&sql::row(table), &params).await?;
        rows.first().map(|row| stored(table, row)).transpose()
    }

    pub(crate) async fn rows(&self, scan: &Scan) -> Result<Vec<Stored>, Error> {
        let rows = self.scan(scan, self.limit(scan.limit), |sql| sql).await?;
        rows.iter().map(|row| stored(scan.table, row)).collect()
    }

    pub(crate) async fn count(&self, scan: &Scan) -> Result<u64, Error> {
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
        let counted = self.scan(scan, limit, |sql| format!("SELECT count(*) FROM ({sql}) AS wanted")).await?;
        Ok(counted.first().and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok()).unwrap_or(0))
    }

    async fn scan(&self, scan: &Scan, limit: i64, ask: impl FnOnce(String) -> String) -> Result<Vec<Row>, Error> {
        let order = scan.table.order_of(scan.index);
        let equal = scan.equal.len();
        check(scan.table, &order, &scan.equal)?;
        check(scan.table, order.get(equal..).unwrap_or_default(), scan.until.as_slice())?;
        let after = scan.after.as_deref().unwrap_or_default();
        check(scan.table, &order, after)?;
        if scan.after.is_some() && after.len() != order.len() {
            return Err(wrong(scan.table, order[0], "the row to start after has another number of columns"));
        }
        let shape = Shape {
            equal,
            has_until: scan.until.is_some(),
            has_after: scan.after.is_some(),
            is_reversed: scan.is_reversed,
        };
        let cells: Vec<Cell<'_>> = scan.equal.iter().chain(&scan.until).chain(after).map(Cell).collect();
        let mut params: Vec<Param<'_>> = cells.iter().map(|cell| cell as Param<'_>).collect();
        params.push(&limit);
        self.query(&ask(sql::scan(scan.table, &order, shape)), &params).await
    }

    pub(crate) async fn journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        let id = execution.as_bytes().as_slice();
        let rows = self
            .query(include_str!("../statements/read_journal.sql"), &[&id, &signed(from), &self.limit(limit)])
            .await?;
        rows.iter().map(chunk).collect()
    }

    pub(crate) async fn run_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        let statement = include_str!("../statements/read_events.sql");
        let params: [Param<'_>; 3] = [&&**run, &signed(page.after.get()), &self.limit(page.limit)];
        self.query(statement, &params).await?.iter().map(event::record).collect()
    }

    pub(crate) async fn run(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        let statement = format!("SELECT {} FROM runs WHERE run_id = $1", head::COLUMNS);
        self.query(&statement, &[&&**run]).await?.first().map(head::head).transpose()
    }

    pub(crate) async fn runs(
        &self,
        behind: Option<Reader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        let behind = match behind {
            None => "",
            Some(Reader::Projector) => "AND projector_is_behind",
            Some(Reader::EventBus) => "AND event_bus_is_behind",
        };
        let columns = head::COLUMNS;
        let statement = format!("SELECT {columns} FROM runs WHERE run_id > $1 {behind} ORDER BY run_id LIMIT $2");
        // No run has an empty id.
        let params: [Param<'_>; 2] = [&after.map_or("", |run| &**run), &self.limit(limit)];
        self.query(&statement, &params).await?.iter().map(head::head).collect()
    }

    pub(crate) async fn now(&self) -> Result<Timestamp, Error> {
        let rows = self.query("SELECT clock_timestamp()", &[]).await?;
        let now = rows.first().map(|row| row.try_get::<_, Time>(0)).transpose().map_err(error::from)?;
        now.map(|now| now.0).ok_or_else(|| Error::corrupt("the database has no clock"))
    }
}

fn chunk(row: &Row) -> Result<JournalChunk, Error> {
    let unreadable = |cause: tokio_postgres::Error| error::unreadable("journal", &cause);
    let count = u32::try_from(row.try_get::<_, i64>(1).map_err(unreadable)?);
    Ok(JournalChunk {
        first: unsigned(row.try_get(0).map_err(unreadable)?)?,
        count: count.map_err(|cause| error::unreadable("journal", &cause))?,
        records: Arc::from(row.try_get::<_, &[u8]>(2).map_err(unreadable)?),
    })
}

/// Whether `values` can stand in the first of these columns.
fn check(table: &'static Table, names: &[&'static str], values: &[Value]) -> Result<(), Error> {
    for (place, value) in values.iter().enumerate() {
        let Some(&name) = names.get(place) else {
            return Err(wrong(table, table.columns[0].name, "there are more values than columns"));
        };
        let column = table.position(name).map(|place| table.columns[place]);
        if column.is_none_or(|column| !value.is_a(column.of)) {
            return Err(wrong(table, name, "the value is of another type"));
        }
        if matches!(value, Value::Text(text) if text.contains('\0')) {
            return Err(wrong(table, name, "text cannot hold U+0000"));
        }
    }
    Ok(())
}

fn wrong(table: &'static Table, column: &'static str, reason: &'static str) -> Error {
    Invalid::Value { table: table.name, column, reason }.into()
}
