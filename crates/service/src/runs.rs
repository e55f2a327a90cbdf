//! The plan run operations of the API: append and read run events, read snapshots, verify. All are
//! limited to the runs of the caller's scope.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use onward_api::problem::{Code, Problem};
use onward_api::run::{
    AppendRunEventsRequest, KeyContract, RunEventPage, RunEventReceipt, RunSnapshotView,
    SnapshotSource, UnreadableRunEvent, VerifyFinding, VerifyProgress, VerifyReport,
};
use onward_api::{RawJson, parse_json};
use onward_base::{EnvironmentId, ProjectId, TenantId};
use onward_diagnostics::verify;
use onward_runs::{AcceptedKeyForms, RunEventWrite, RunId, RunSeq};
use onward_store::tables::RunSnapshotRow;
use onward_store::{
    ColumnCodec as _, ReadableRunEvents, RecordReader as _, RowKey, RunEventQuery,
    RunStateStore as _,
};
use serde::Serialize;

use super::ApiService;
use super::executions::parse_page_size;
use super::problems::{invalid_field, store_problem};

/// Maximum number of events in one append.
const APPEND_EVENTS_MAX: usize = 10_000;

impl ApiService {
    pub(super) async fn append_parsed_events(
        &self,
        append: AppendRunEventsRequest,
    ) -> Result<Vec<RunEventReceipt>, Problem> {
        if append.events.len() > APPEND_EVENTS_MAX {
            let detail = format!(
                "events: {} events, but at most {APPEND_EVENTS_MAX} are allowed",
                append.events.len()
            );
            return Err(Problem::new(Code::Unprocessable, detail));
        }
        let mut events = Vec::with_capacity(append.events.len());
        for (index, event) in append.events.iter().enumerate() {
            let event = RunEventWrite::from_json(event.as_str()).map_err(|error| {
                Problem::new(Code::Unprocessable, format!("events[{index}]: {error}"))
            })?;
            self.require_in_scope((&event.tenant_id, &event.project_id, &event.environment_id))?;
            events.push(event);
        }
        if events.is_empty() {
            return Err(invalid_field("events", "must contain at least one event"));
        }
        let runs: BTreeSet<RunId> = events.iter().map(|event| event.run_id.clone()).collect();
        let appended = self
            .client
            .store()
            .append_events(events)
            .await
            .map_err(store_problem)?;
        runs.iter().for_each(|run| self.client.notify_run(run));
        Ok(appended
            .into_iter()
            .map(|it| RunEventReceipt {
                event_id: it.result.event_id.to_string(),
                run_seq: it.result.run_seq.as_u64(),
                persisted_at: it.result.persisted_at.to_string(),
                persisted: it.result.persisted,
                idempotent: it.result.idempotent,
                differs: it.differs,
            })
            .collect())
    }

    fn is_in_scope(&self, owner: (&TenantId, &ProjectId, &EnvironmentId)) -> bool {
        let (tenant, project, environment) = owner;
        self.full_access
            || self
                .client
                .scope()
                .matches_ids(tenant, project, environment)
    }

    fn require_in_scope(
        &self,
        owner: (&TenantId, &ProjectId, &EnvironmentId),
    ) -> Result<(), Problem> {
        if self.is_in_scope(owner) {
            return Ok(());
        }
        let (tenant, project, environment) = owner;
        let detail = format!(
            "the event belongs to tenant {tenant}, project {project}, environment {environment}, \
             which is not the scope of this request"
        );
        Err(Problem::new(Code::Forbidden, detail))
    }

    async fn find_run(&self, run: &str) -> Result<RunId, Problem> {
        let absent = || Problem::new(Code::NoRun, format!("run {run} not found"));
        let id: RunId = run.parse().map_err(|_| absent())?;
        let head = self
            .client
            .store()
            .read_run_head(&id)
            .await
            .map_err(store_problem)?;
        head.filter(|it| self.is_in_scope((&it.tenant_id, &it.project_id, &it.environment_id)))
            .ok_or_else(absent)?;
        Ok(id)
    }

    pub(super) async fn poll_run_events(
        &self,
        run: &str,
        after: u64,
        limit: u32,
        wait_ms: u64,
    ) -> Result<RunEventPage, Problem> {
        let id = self.find_run(run).await?;
        let from = RunSeq::new(after)
            .ok_or_else(|| invalid_field("after", "larger than the maximum sequence"))?;
        let page = RunEventQuery {
            after: from,
            limit: parse_page_size(Some(limit), limit)?,
        };
        let mut timeout = pin!(self.wait_or_stop(wait_ms));
        let mut changes = self.client.watch_run(&id);
        let mut is_last = wait_ms == 0;
        loop {
            let read = onward_store::read_readable_events(&**self.client.store(), &id, page)
                .await
                .map_err(store_problem)?;
            let ReadableRunEvents { events, unreadable } = read;
            if !events.is_empty() || unreadable.is_some() || is_last {
                let watermark = events.last().map_or(after, |last| last.run_seq.as_u64());
                let events = events
                    .iter()
                    .map(|event| parse_json(&event.to_json()))
                    .collect::<Result<Vec<RawJson>, _>>()?;
                let unreadable = unreadable.map(|(run_seq, message)| UnreadableRunEvent {
                    run_seq: run_seq.as_u64(),
                    message,
                });
                return Ok(RunEventPage {
                    events,
                    watermark,
                    unreadable,
                });
            }
            tokio::select! {
                () = changes.wait_for_change() => {}
                () = &mut timeout => is_last = true,
            }
        }
    }

    pub(super) async fn verify_stored_runs(
        &self,
        run: Option<&str>,
        keys: KeyContract,
        on_progress: &mut (dyn FnMut(VerifyProgress) + Send),
    ) -> Result<VerifyReport, Problem> {
        let mut findings = 0;
        let on_progress = Mutex::new(on_progress);
        let notify =
            |progress| (on_progress.lock().unwrap_or_else(PoisonError::into_inner))(progress);
        let mut report = |found: &verify::VerifyIssue| {
            findings += 1;
            notify(VerifyProgress::Finding(api_verify_finding(found)));
            Ok(())
        };
        let accept = match keys {
            KeyContract::V2Only => AcceptedKeyForms::V2Only,
            KeyContract::V2OrV1 => AcceptedKeyForms::V2OrV1,
        };
        let db = &**self.client.store();
        let verified = match run {
            Some(run) => {
                verify::verify_run(db, &self.find_run(run).await?, accept, &mut report).await
            }
            None => {
                let progress = |tally: verify::VerifyTally| {
                    notify(VerifyProgress::Examined {
                        runs: tally.runs,
                        events: tally.events,
                    })
                };
                verify::verify_all_runs(db, self.scope_filter(), accept, &mut report, progress)
                    .await
            }
        };
        let verify::VerifyTally { runs, events } = verified.map_err(|error| match error {
            verify::StoreCheckError::Store(error) => store_problem(error),
            verify::StoreCheckError::Report(error) => {
                Problem::new(Code::Internal, error.to_string())
            }
        })?;
        Ok(VerifyReport {
            ok: findings == 0,
            runs,
            events,
            findings,
        })
    }

    pub(super) async fn read_run_snapshot(
        &self,
        run: &str,
        source: SnapshotSource,
    ) -> Result<RunSnapshotView, Problem> {
        let id = self.find_run(run).await?;
        if source == SnapshotSource::Log {
            let snapshot = self
                .client
                .store()
                .project_snapshot(&id)
                .await
                .map_err(store_problem)?;
            return Ok(RunSnapshotView {
                condition: "CURRENT".to_owned(),
                snapshot: to_raw_json(&snapshot)?,
            });
        }
        let row: Option<(RunSnapshotRow, u64)> = self
            .client
            .store()
            .read_record(RowKey(vec![id.to_value()]))
            .await
            .map_err(store_problem)?;
        let none = || {
            Problem::new(
                Code::NoSnapshot,
                format!(
                    "run {run} has no stored snapshot yet: request one that is reduced from the log \
                     (HTTP: `fromLog=true`; command line: `--project`)"
                ),
            )
        };
        let (row, _) = row.ok_or_else(none)?;
        let snapshot = to_raw_json(&row.decode_snapshot().map_err(store_problem)?)?;
        Ok(RunSnapshotView {
            condition: row.condition.to_string(),
            snapshot,
        })
    }
}

/// Converts an issue that verification found to its API form.
fn api_verify_finding(found: &verify::VerifyIssue) -> VerifyFinding {
    let code = serde_json::to_value(found.kind).ok();
    VerifyFinding {
        run_id: found.run_id.as_ref().map(ToString::to_string),
        run_seq: found.run_seq.map(RunSeq::as_u64),
        code: code
            .as_ref()
            .and_then(|code| code.as_str())
            .unwrap_or_default()
            .to_owned(),
        message: found.message.to_string(),
    }
}

fn to_raw_json(document: &impl Serialize) -> Result<RawJson, Problem> {
    let text = serde_json::to_string(document);
    parse_json(&text.map_err(|error| Problem::new(Code::Internal, error.to_string()))?)
}
