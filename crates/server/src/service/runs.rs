//! Run events and snapshots, of the runs that somebody owns.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onward_api::problem::{Code, Problem};
use onward_api::run::{Append, Appended, Heard, RunEventPage, RunSnapshot, Verified, Wrong};
use onward_api::{Json, json};
use onward_engine::verify;
use onward_runs::{Accept, EnvironmentId, ProjectId, RunEventWrite, RunId, RunSeq, TenantId};
use onward_store::tables::Snapshot;
use onward_store::{Field as _, Key, Page, Records as _, RunStateStore as _};
use serde::Serialize;

use super::Service;
use super::refused::{store, unreadable};

/// Events of a page at most.
const PAGE_MAX: u32 = 1_000;

/// How often to look for events.
const LOOK: Duration = Duration::from_millis(100);

impl Service {
    pub(super) async fn append_all(&self, append: Append) -> Result<Vec<Appended>, Problem> {
        let mut events = Vec::with_capacity(append.events.len());
        for (place, event) in append.events.iter().enumerate() {
            let event = RunEventWrite::from_json(event.as_str())
                .map_err(|error| Problem::new(Code::Unprocessable, format!("event {place}: {error}")))?;
            self.expect_ours((&event.tenant_id, &event.project_id, &event.environment_id))?;
            events.push(event);
        }
        if events.is_empty() {
            return Err(unreadable("events", "there are none"));
        }
        let appended = self.client.store().append_events(events).await.map_err(store)?;
        Ok(appended
            .into_iter()
            .map(|it| Appended {
                event_id: it.result.event_id.to_string(),
                run_seq: it.result.run_seq.get(),
                persisted_at: it.result.persisted_at.to_string(),
                persisted: it.result.persisted,
                idempotent: it.result.idempotent,
                differs: it.differs,
            })
            .collect())
    }

    fn is_ours(&self, owner: (&TenantId, &ProjectId, &EnvironmentId)) -> bool {
        let (tenant, project, environment) = owner;
        self.has_all || self.client.scope().has(tenant, project, environment)
    }

    fn expect_ours(&self, owner: (&TenantId, &ProjectId, &EnvironmentId)) -> Result<(), Problem> {
        if self.is_ours(owner) {
            return Ok(());
        }
        let (tenant, project, environment) = owner;
        let words = format!("an event of tenant {tenant}, project {project}, environment {environment}");
        Err(Problem::new(Code::Forbidden, format!("{words} cannot be stored on behalf of another")))
    }

    async fn run_of(&self, run: &str) -> Result<RunId, Problem> {
        let absent = || Problem::new(Code::NoRun, format!("there is no run {run} in the store"));
        let id: RunId = run.parse().map_err(|_| absent())?;
        let head = self.client.store().run(&id).await.map_err(store)?;
        head.filter(|it| self.is_ours((&it.tenant_id, &it.project_id, &it.environment_id))).ok_or_else(absent)?;
        Ok(id)
    }

    pub(super) async fn events_of(
        &self,
        run: &str,
        after: u64,
        limit: u32,
        wait_ms: u64,
    ) -> Result<RunEventPage, Problem> {
        let id = self.run_of(run).await?;
        let from = RunSeq::new(after).ok_or_else(|| unreadable("after", "no sequence is as large"))?;
        let page = Page { after: from, limit: limit.clamp(1, PAGE_MAX) as usize };
        let mut patience = pin!(self.patience(wait_ms));
        let mut is_over = false;
        loop {
            let events = self.client.store().run_events(&id, page).await.map_err(store)?;
            if !events.is_empty() || is_over {
                let watermark = events.last().map_or(after, |last| last.run_seq.get());
                let events = events.iter().map(|event| json(&event.to_json())).collect::<Result<Vec<Json>, _>>()?;
                return Ok(RunEventPage { events, watermark });
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = &mut patience => is_over = true,
            }
        }
    }

    pub(super) async fn verify_runs(
        &self,
        run: Option<&str>,
        accept_v1_keys: bool,
        hear: &mut (dyn FnMut(Heard) + Send),
    ) -> Result<Verified, Problem> {
        let mut findings = 0;
        let hear = Mutex::new(hear);
        let say = |heard| (hear.lock().unwrap_or_else(PoisonError::into_inner))(heard);
        let mut report = |found: &verify::Found| {
            findings += 1;
            say(Heard::Found(wrong(found)));
            Ok(())
        };
        let accept = if accept_v1_keys { Accept::V2OrV1 } else { Accept::V2Only };
        let db = &**self.client.store();
        let looked = match run {
            Some(run) => verify::run(db, &self.run_of(run).await?, accept, &mut report).await,
            None => {
                let progress = |tally: verify::Tally| say(Heard::Looked { runs: tally.runs, events: tally.events });
                verify::all(db, self.checked(), accept, &mut report, progress).await
            }
        };
        let verify::Tally { runs, events } = looked.map_err(|stopped| match stopped {
            verify::Stopped::Store(error) => store(error),
            verify::Stopped::Report(error) => Problem::new(Code::Internal, error.to_string()),
        })?;
        Ok(Verified { ok: findings == 0, runs, events, findings })
    }

    pub(super) async fn snapshot_of(&self, run: &str, project: bool) -> Result<RunSnapshot, Problem> {
        let id = self.run_of(run).await?;
        if project {
            let snapshot = self.client.store().project_snapshot(&id).await.map_err(store)?;
            return Ok(RunSnapshot { condition: "CURRENT".to_owned(), snapshot: document(&snapshot)? });
        }
        let row: Option<(Snapshot, u64)> = self.client.store().get(Key(vec![id.to_value()])).await.map_err(store)?;
        let none =
            || Problem::new(Code::NoRun, format!("run {run} has no snapshot yet; --project makes one from the log"));
        let (row, _) = row.ok_or_else(none)?;
        let snapshot = document(&row.decode().map_err(store)?)?;
        Ok(RunSnapshot { condition: row.condition.to_string(), snapshot })
    }
}

/// What is wrong, as it is told.
fn wrong(found: &verify::Found) -> Wrong {
    let code = serde_json::to_value(found.wrong).ok();
    Wrong {
        run_id: found.run_id.as_ref().map(ToString::to_string),
        run_seq: found.run_seq.map(RunSeq::get),
        wrong: code.as_ref().and_then(|code| code.as_str()).unwrap_or_default().to_owned(),
        message: found.message.to_string(),
    }
}

fn document(document: &impl Serialize) -> Result<Json, Problem> {
    let text = serde_json::to_string(document);
    json(&text.map_err(|error| Problem::new(Code::Internal, error.to_string()))?)
}
