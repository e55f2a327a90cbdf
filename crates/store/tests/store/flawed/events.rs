//! Stores with bugs in run events.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use onward_base::{Payload, Timestamp};
use onward_runs::{
    EmittedAt, ExtraFields, IdempotencyKey, RunEventId, RunEventRecord, RunEventWrite, RunId,
    RunSeq,
};
use onward_store::memory::MemoryStore;
use onward_store::{
    Commit, CommitConflict, CommitReceipt, Error, EventReceipt, IdempotencyKeyCheck, RunEventQuery,
    Store as _, StorePolicy,
};

use super::StoreFlaw;

/// A duplicate replaces the payload of the first event.
#[derive(Default)]
pub(crate) struct KeepsSecondPayload(Mutex<BTreeMap<(RunId, IdempotencyKey), Option<Payload>>>);

#[async_trait]
impl StoreFlaw for KeepsSecondPayload {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let latest = commit
            .events
            .iter()
            .map(|it| ((it.run_id.clone(), it.idempotency_key), it.payload.clone()));
        self.0.lock().unwrap().extend(latest);
        memory.commit(commit).await
    }

    async fn run_events(
        &self,
        memory: &MemoryStore,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        let mut events = memory.read_run_events(run, page).await?;
        for record in &mut events {
            record.event.payload =
                self.0.lock().unwrap()[&(run.clone(), record.event.idempotency_key)].clone();
        }
        Ok(events)
    }
}

/// Sequence numbers are 1, 2, 4, 5 …
pub(crate) struct LeavesAGap;

fn with_gap(seq: RunSeq) -> RunSeq {
    if seq.as_u64() > 2 {
        seq.next_seq()
    } else {
        seq
    }
}

#[async_trait]
impl StoreFlaw for LeavesAGap {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let mut receipt = memory.commit(commit).await?;
        receipt
            .events
            .iter_mut()
            .for_each(|it| it.result.run_seq = with_gap(it.result.run_seq));
        Ok(receipt)
    }

    async fn run_events(
        &self,
        memory: &MemoryStore,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        let all = memory
            .read_run_events(
                run,
                RunEventQuery {
                    after: RunSeq::ZERO,
                    limit: usize::MAX,
                },
            )
            .await?;
        let seen = all.into_iter().map(|it| RunEventRecord {
            run_seq: with_gap(it.run_seq),
            ..it
        });
        Ok(seen
            .filter(|it| it.run_seq > page.after)
            .take(page.limit)
            .collect())
    }
}

/// Every event is reported as new.
pub(crate) struct ReportsDuplicatesAsNew;

#[async_trait]
impl StoreFlaw for ReportsDuplicatesAsNew {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        answering(memory, commit, |it| {
            (it.result.idempotent, it.result.persisted) = (false, true)
        })
        .await
    }
}

/// A duplicate with different content is not reported.
pub(crate) struct HidesDifferences;

#[async_trait]
impl StoreFlaw for HidesDifferences {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        answering(memory, commit, |it| it.differs = false).await
    }
}

async fn answering(
    memory: &MemoryStore,
    commit: Commit,
    change: impl Fn(&mut EventReceipt),
) -> Result<CommitReceipt, Error> {
    let mut receipt = memory.commit(commit).await?;
    receipt.events.iter_mut().for_each(change);
    Ok(receipt)
}

/// Payloads are compared as text.
pub(crate) struct ComparesPayloadText;

#[async_trait]
impl StoreFlaw for ComparesPayloadText {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let mut receipt = memory.commit(commit.clone()).await?;
        for (event, answer) in commit.events.iter().zip(&mut receipt.events) {
            let before = RunSeq::new(answer.result.run_seq.as_u64() - 1).unwrap_or_default();
            let kept = memory
                .read_run_events(
                    &event.run_id,
                    RunEventQuery {
                        after: before,
                        limit: 1,
                    },
                )
                .await?;
            answer.differs = kept.iter().any(|kept| kept.event.payload != event.payload);
        }
        Ok(receipt)
    }
}

/// A duplicate is detected by its key alone, regardless of its run.
#[derive(Default)]
pub(crate) struct DetectsDuplicatesAcrossRuns(Mutex<BTreeMap<IdempotencyKey, EventReceipt>>);

#[async_trait]
impl StoreFlaw for DetectsDuplicatesAcrossRuns {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        if let [event] = commit.events.as_slice()
            && let Some(known) = self.0.lock().unwrap().get(&event.idempotency_key)
        {
            let mut answer = known.clone();
            (answer.result.idempotent, answer.result.persisted) = (true, false);
            return Ok(CommitReceipt {
                changes: Vec::new(),
                events: vec![answer],
            });
        }
        let receipt = memory.commit(commit.clone()).await?;
        let answered = commit
            .events
            .iter()
            .map(|event| event.idempotency_key)
            .zip(receipt.events.clone());
        self.0.lock().unwrap().extend(answered);
        Ok(receipt)
    }
}

/// Two events may have the same id.
pub(crate) struct SharesEventIds;

#[async_trait]
impl StoreFlaw for SharesEventIds {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        let mut answer = memory.commit(commit.clone()).await;
        while let Err(Error::Conflict(CommitConflict::EventIdTaken { index, event_id })) = answer {
            let mut bytes = *event_id.as_bytes();
            bytes[15] = bytes[15].wrapping_add(97);
            commit.events[index].event_id = RunEventId::from_bytes(bytes).unwrap();
            answer = memory.commit(commit.clone()).await;
        }
        answer
    }
}

/// An event of another tenant is appended to the run.
pub(crate) struct IgnoresTenants;

#[async_trait]
impl StoreFlaw for IgnoresTenants {
    async fn commit(
        &self,
        memory: &MemoryStore,
        mut commit: Commit,
    ) -> Result<CommitReceipt, Error> {
        for event in &mut commit.events {
            if let Some(head) = memory.read_run_head(&event.run_id).await? {
                (event.tenant_id, event.project_id) = (head.tenant_id, head.project_id);
                event.environment_id = head.environment_id;
            }
        }
        memory.commit(commit).await
    }
}

/// The tenant of each run is checked before anything else about its events.
pub(crate) struct ChecksTenantsFirst;

#[async_trait]
impl StoreFlaw for ChecksTenantsFirst {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        for (index, event) in commit.events.iter().enumerate() {
            let head = memory.read_run_head(&event.run_id).await?;
            if head.is_some_and(|head| head.tenant_id != event.tenant_id) {
                return Err(CommitConflict::ForeignRun {
                    index,
                    run: event.run_id.clone(),
                }
                .into());
            }
        }
        memory.commit(commit).await
    }
}

/// Timestamps follow the clock, even if it is set back.
#[derive(Default)]
pub(crate) struct TimestampsGoBackwards(Mutex<BTreeMap<RunEventId, Timestamp>>);

#[async_trait]
impl StoreFlaw for TimestampsGoBackwards {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let now = memory.now().await?;
        let mut receipt = memory.commit(commit).await?;
        for answer in &mut receipt.events {
            let stamp = *self
                .0
                .lock()
                .unwrap()
                .entry(answer.result.event_id)
                .or_insert(now);
            answer.result.persisted_at = stamp;
        }
        Ok(receipt)
    }

    async fn run_events(
        &self,
        memory: &MemoryStore,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        let mut events = memory.read_run_events(run, page).await?;
        events
            .iter_mut()
            .for_each(|it| it.persisted_at = self.0.lock().unwrap()[&it.event.event_id]);
        Ok(events)
    }
}

/// Events are timestamped with the producer's clock.
pub(crate) struct UsesProducerClock;

#[async_trait]
impl StoreFlaw for UsesProducerClock {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let mut receipt = memory.commit(commit.clone()).await?;
        for (event, answer) in commit.events.iter().zip(&mut receipt.events) {
            answer.result.persisted_at = event.emitted_at.to_timestamp();
        }
        Ok(receipt)
    }
}

/// Changes events before they are stored.
async fn rewriting(
    memory: &MemoryStore,
    mut commit: Commit,
    change: impl Fn(&mut RunEventWrite),
) -> Result<CommitReceipt, Error> {
    commit.events.iter_mut().for_each(change);
    memory.commit(commit).await
}

/// Payloads are parsed and written again, as a column of JSON would.
pub(crate) struct ParsesPayloads;

#[async_trait]
impl StoreFlaw for ParsesPayloads {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let parse = |text: &Payload| {
            let value: Option<serde_json::Value> = serde_json::from_str(text.as_str()).ok();
            value.map_or_else(
                || text.clone(),
                |value| Payload::from_value(&value).unwrap(),
            )
        };
        rewriting(memory, commit, |event| {
            event.payload = event.payload.as_ref().map(parse)
        })
        .await
    }
}

/// Unknown members are dropped.
pub(crate) struct DropsUnknownMembers;

#[async_trait]
impl StoreFlaw for DropsUnknownMembers {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        rewriting(memory, commit, |event| event.extra = ExtraFields::NONE).await
    }
}

/// The producer's timestamp is stored, but not its text.
pub(crate) struct RewritesEmittedAt;

#[async_trait]
impl StoreFlaw for RewritesEmittedAt {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        rewriting(memory, commit, |event| {
            event.emitted_at = EmittedAt::from(event.emitted_at.to_timestamp())
        })
        .await
    }
}

/// Pages are in reverse order.
pub(crate) struct ReversesPages;

#[async_trait]
impl StoreFlaw for ReversesPages {
    async fn run_events(
        &self,
        memory: &MemoryStore,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        let mut events = memory.read_run_events(run, page).await?;
        events.reverse();
        Ok(events)
    }
}

/// A page starts at the watermark instead of after it.
pub(crate) struct IncludesWatermark;

#[async_trait]
impl StoreFlaw for IncludesWatermark {
    async fn run_events(
        &self,
        memory: &MemoryStore,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        let after = RunSeq::new(page.after.as_u64().saturating_sub(1)).unwrap_or_default();
        memory
            .read_run_events(run, RunEventQuery { after, ..page })
            .await
    }
}

/// Keys are not checked, regardless of the policy.
pub(crate) struct SkipsKeyCheck;

impl StoreFlaw for SkipsKeyCheck {
    fn policy(&self, policy: StorePolicy) -> StorePolicy {
        StorePolicy {
            key_check: IdempotencyKeyCheck::Off,
            ..policy
        }
    }
}

/// Direct writes to the database can change stored events.
pub(crate) struct AllowsTampering;

impl StoreFlaw for AllowsTampering {
    fn allows_tampering(&self) -> bool {
        true
    }
}
