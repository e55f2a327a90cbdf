//! Checks a store for stuck work: every execution that has not ended has something that wakes it,
//! every message that is sent arrives, and everything that is waited for exists.
//!
//! Other processes may work on the store during the check. A row and a journal that were read at
//! different moments may disagree, so every suspected issue is read again, and only an issue that
//! persists while nothing changes is reported.

mod checks;
mod inspection;
mod overdue;

use std::io;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use onward_api::finding::{DoctorFinding, FindingCode};
use onward_base::{Scope, Timestamp};
use onward_journal::ExecutionId;
use onward_store::tables::{AlertRow, ExecutionRow as Row, InboxMessageRow, TaskRow};
use onward_store::{ColumnCodec as _, Error, RecordReader as _, RowKey, Store, TableScan};

use self::checks::DoctorIssue;
use self::inspection::{ExecutionInspector, InspectedExecution};
use self::overdue::OverdueByShard;
use crate::verify::StoreCheckError;
use onward_engine::client::is_execution_over;
use onward_engine::shard::{decode_message, is_consumed, task_row};

/// Age in milliseconds from which due work and undelivered messages count as overdue.
pub const OVERDUE_AFTER_MS: u64 = 60_000;

/// Delay before a suspected issue is checked again.
const RECHECK_DELAY: Duration = Duration::from_millis(50);

/// Maximum number of rechecks. An execution that changes every time is not stuck.
const RECHECKS_MAX: u32 = 6;

/// Number of executions that are read concurrently.
const CONCURRENT_READS: usize = 8;

/// Number of rows that were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoctorTally {
    /// Number of executions that were checked.
    pub executions: u64,
    /// Number of events in their journals.
    pub events: u64,
    /// Number of unconsumed messages that were checked.
    pub messages: u64,
}

/// Checks every execution, message, task and alert of a store, page by page, or with `scope` only
/// those of that scope. Calls `report` for each finding and `progress` after each execution.
pub async fn examine_store(
    store: &dyn Store,
    scope: Option<&Scope>,
    report: &mut impl FnMut(&DoctorFinding) -> io::Result<()>,
    mut progress: impl FnMut(DoctorTally),
) -> Result<DoctorTally, StoreCheckError> {
    let mut round = DoctorPass {
        inspector: ExecutionInspector::new(store),
        scope,
        now: store.now().await?,
        tally: DoctorTally::default(),
        overdue: OverdueByShard::default(),
    };
    round.check_executions(report, &mut progress).await?;
    round.check_messages(report).await?;
    round.check_tasks(report).await?;
    round.check_alerts(report).await?;
    for finding in overdue::overdue_findings(store, &round.overdue).await? {
        report(&finding).map_err(StoreCheckError::Report)?;
    }
    Ok(round.tally)
}

/// State of one pass over a store.
struct DoctorPass<'a> {
    inspector: ExecutionInspector<'a>,
    scope: Option<&'a Scope>,
    now: Timestamp,
    tally: DoctorTally,
    overdue: OverdueByShard,
}

impl DoctorPass<'_> {
    async fn check_executions(
        &mut self,
        report: &mut impl FnMut(&DoctorFinding) -> io::Result<()>,
        progress: &mut impl FnMut(DoctorTally),
    ) -> Result<(), StoreCheckError> {
        let mut scan = match self.scope {
            None => TableScan::all_rows::<Row>(),
            Some(Scope {
                tenant,
                project,
                environment,
            }) => TableScan::by_index::<Row>(Row::BY_AGE)
                .where_equal(tenant)
                .where_equal(project)
                .where_equal(environment),
        };
        loop {
            let page: Vec<(Row, u64)> = self.inspector.store.list_records(scan.clone()).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            scan = scan.starting_after(last);
            self.now = self.inspector.store.now().await?;
            let (inspector, now) = (&self.inspector, self.now);
            let reports = page
                .into_iter()
                .map(|(row, version)| examine_execution(inspector, row, version, now));
            let mut reports = stream::iter(reports).buffered(CONCURRENT_READS);
            while let Some(examined) = reports.next().await {
                let ExecutionReport {
                    id,
                    issues,
                    events,
                    overdue: late,
                } = examined?;
                for DoctorIssue { code, message } in issues {
                    report(&DoctorFinding::new(Some(id), code, message))
                        .map_err(StoreCheckError::Report)?;
                }
                self.overdue.add_execution(late.as_ref(), id);
                (self.tally.executions, self.tally.events) =
                    (self.tally.executions + 1, self.tally.events + events);
                progress(self.tally);
            }
        }
    }

    async fn check_messages(
        &mut self,
        report: &mut impl FnMut(&DoctorFinding) -> io::Result<()>,
    ) -> Result<(), StoreCheckError> {
        let mut scan = TableScan::all_rows::<InboxMessageRow>();
        loop {
            let page: Vec<(InboxMessageRow, u64)> =
                self.inspector.store.list_records(scan.clone()).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            scan = scan.starting_after(last);
            for (message, _) in page
                .into_iter()
                .filter(|(message, _)| !is_consumed(message))
            {
                if !self.is_execution_in_scope(message.execution_id).await? {
                    continue;
                }
                self.tally.messages += 1;
                if message.sent_at.plus_ms(OVERDUE_AFTER_MS) <= self.now {
                    self.overdue.add_message(&message);
                }
                for DoctorIssue {
                    code,
                    message: text,
                } in self.check_message(&message).await?
                {
                    report(&DoctorFinding::new(Some(message.execution_id), code, text))
                        .map_err(StoreCheckError::Report)?;
                }
            }
        }
    }

    /// Reports tasks that no execution waits for, if they still exist on a second read.
    async fn check_tasks(
        &self,
        report: &mut impl FnMut(&DoctorFinding) -> io::Result<()>,
    ) -> Result<(), StoreCheckError> {
        let mut scan = TableScan::all_rows::<TaskRow>();
        let mut seen: Option<(ExecutionId, Option<onward_execution::Execution>)> = None;
        loop {
            let page: Vec<(TaskRow, u64)> = self.inspector.store.list_records(scan.clone()).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            scan = scan.starting_after(last);
            for (task, _) in page {
                let is_ours = |scope: &Scope| {
                    scope.matches_ids(&task.tenant_id, &task.project_id, &task.environment_id)
                };
                if !self.scope.is_none_or(is_ours) {
                    continue;
                }
                // Tasks of the same execution are adjacent in the scan.
                if seen.as_ref().is_none_or(|(id, _)| *id != task.execution_id) {
                    seen = Some((
                        task.execution_id,
                        self.inspector.recover_execution(task.execution_id).await?,
                    ));
                }
                let mut issue = checks::check_task(
                    &task,
                    seen.as_ref().and_then(|(_, execution)| execution.as_ref()),
                );
                if issue.is_some() {
                    tokio::time::sleep(RECHECK_DELAY).await;
                    issue = checks::check_task(
                        &task,
                        self.inspector
                            .recover_execution(task.execution_id)
                            .await?
                            .as_ref(),
                    );
                    let still: Option<(TaskRow, u64)> = self
                        .inspector
                        .store
                        .read_record(task_row::task_key(task_row::attempt_id(&task)))
                        .await?;
                    issue = issue.filter(|_| still.is_some());
                }
                if let Some(DoctorIssue { code, message }) = issue {
                    report(&DoctorFinding::new(Some(task.execution_id), code, message))
                        .map_err(StoreCheckError::Report)?;
                }
            }
        }
    }

    /// Whether an execution is in the scope that is checked.
    async fn is_execution_in_scope(&self, id: ExecutionId) -> Result<bool, Error> {
        if self.scope.is_none() {
            return Ok(true);
        }
        Ok(read_execution_row(self.inspector.store, id)
            .await?
            .is_some_and(|row| self.is_row_in_scope(&row)))
    }

    fn is_row_in_scope(&self, row: &Row) -> bool {
        self.scope.is_none_or(|scope| {
            scope.matches_ids(&row.tenant_id, &row.project_id, &row.environment_id)
        })
    }

    /// Returns the issues of a message that persist as long as the message exists.
    async fn check_message(&self, message: &InboxMessageRow) -> Result<Vec<DoctorIssue>, Error> {
        let store = self.inspector.store;
        let issues = |row: Option<Row>| {
            checks::check_message(
                message,
                decode_message(message).err().as_ref(),
                row.as_ref(),
            )
        };
        let first = issues(read_execution_row(store, message.execution_id).await?);
        if first.is_empty() {
            return Ok(first);
        }
        tokio::time::sleep(RECHECK_DELAY).await;
        let again = issues(read_execution_row(store, message.execution_id).await?);
        let still: Option<(InboxMessageRow, u64)> = store
            .read_record(RowKey(vec![message.message_id.to_value()]))
            .await?;
        Ok(if still.is_some() { again } else { Vec::new() })
    }

    /// Reports alerts about executions that have made no progress since the alert was raised.
    async fn check_alerts(
        &mut self,
        report: &mut impl FnMut(&DoctorFinding) -> io::Result<()>,
    ) -> Result<(), StoreCheckError> {
        let mut scan = TableScan::all_rows::<AlertRow>();
        loop {
            let page: Vec<(AlertRow, u64)> =
                self.inspector.store.list_records(scan.clone()).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            scan = scan.starting_after(last);
            for (alert, _) in page {
                let Ok(id) = alert.subject.parse::<ExecutionId>() else {
                    continue;
                };
                let row = read_execution_row(self.inspector.store, id).await?;
                let Some(row) =
                    row.filter(|row| self.is_row_in_scope(row) && !is_execution_over(row))
                else {
                    continue;
                };
                let seen = self.inspector.inspect_row(row, 0).await?;
                if seen
                    .last_event_at
                    .is_none_or(|last| last <= alert.raised_at)
                {
                    let message = format!(
                        "{} since {}: {}",
                        alert.code, alert.raised_at, alert.message
                    );
                    report(&DoctorFinding::new(Some(id), FindingCode::Alert, message))
                        .map_err(StoreCheckError::Report)?;
                }
            }
        }
    }
}

async fn read_execution_row(store: &dyn Store, id: ExecutionId) -> Result<Option<Row>, Error> {
    let found: Option<(Row, u64)> = store.read_record(RowKey(vec![id.to_value()])).await?;
    Ok(found.map(|(row, _)| row))
}

/// Result of checking one execution.
struct ExecutionReport {
    id: ExecutionId,
    issues: Vec<DoctorIssue>,
    events: u64,
    overdue: Option<overdue::OverdueExecution>,
}

/// Checks an execution, and checks it again as long as it changes between two reads.
async fn examine_execution(
    inspector: &ExecutionInspector<'_>,
    row: Row,
    version: u64,
    now: Timestamp,
) -> Result<ExecutionReport, Error> {
    let id = row.execution_id;
    let mut seen = inspector.inspect_row(row, version).await?;
    let mut issues = checks::check_execution(&seen, now);
    let report_with = |seen: &InspectedExecution, issues| ExecutionReport {
        id,
        issues,
        events: seen.events,
        overdue: overdue::find_overdue(seen, now),
    };
    for round in 0..RECHECKS_MAX {
        if issues.is_empty() {
            return Ok(report_with(&seen, issues));
        }
        // The row comes from a page that was read some time ago, so the first recheck needs no
        // delay.
        if round > 0 {
            tokio::time::sleep(RECHECK_DELAY).await;
        }
        let stored: Option<(Row, u64)> = inspector
            .store
            .read_record(RowKey(vec![id.to_value()]))
            .await?;
        let Some((row, version)) = stored else {
            return Ok(report_with(&seen, Vec::new()));
        };
        let again = inspector.inspect_row(row, version).await?;
        let still = checks::check_execution(&again, inspector.store.now().await?);
        if round > 0 && again.is_unchanged_since(&seen) {
            issues.retain(|issue| still.contains(issue));
            return Ok(report_with(&again, issues));
        }
        (seen, issues) = (again, still);
    }
    Ok(report_with(&seen, Vec::new()))
}
