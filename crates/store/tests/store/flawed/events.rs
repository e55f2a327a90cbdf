//! Stores that are wrong about run events.

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

use super::Flaw;

/// A repeat replaces what the first one carried.
#[derive(Default)]
pub(crate) struct KeepsTheSecondPayload(Mutex<BTreeMap<(RunId, IdempotencyKey), Option<Payload>>>);

#[async_trait]
impl Flaw for KeepsTheSecondPayload {
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

/// Places are 1, 2, 4, 5 …
pub(crate) struct LeavesAGap;

fn with_gap(seq: RunSeq) -> RunSeq {
    if seq.as_u64() > 2 {
        seq.next_seq()
    } else {
        seq
    }
}

#[async_trait]
impl Flaw for LeavesAGap {
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

/// Every event is said to be new.
pub(crate) struct DeniesRepeats;

#[async_trait]
impl Flaw for DeniesRepeats {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        answering(memory, commit, |it| {
            (it.result.idempotent, it.result.persisted) = (false, true)
        })
        .await
    }
}

/// A repeat that carries something else passes unnoticed.
pub(crate) struct HidesDifferences;

#[async_trait]
impl Flaw for HidesDifferences {
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

/// Payloads are compared letter by letter.
pub(crate) struct ComparesPayloadsByTheirText;

#[async_trait]
impl Flaw for ComparesPayloadsByTheirText {
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

/// A repeat is recognised by its key alone, whatever its run.
#[derive(Default)]
pub(crate) struct TakesKeysOfOtherRunsForRepeats(Mutex<BTreeMap<IdempotencyKey, EventReceipt>>);

#[async_trait]
impl Flaw for TakesKeysOfOtherRunsForRepeats {
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

/// Two events may have one id.
pub(crate) struct SharesEventIds;

#[async_trait]
impl Flaw for SharesEventIds {
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

/// An event of another tenant is added to the run all the same.
pub(crate) struct CrossesTenants;

#[async_trait]
impl Flaw for CrossesTenants {
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

/// Whose run it is is looked at before anything else about its events.
pub(crate) struct LooksForForeignEventsFirst;

#[async_trait]
impl Flaw for LooksForForeignEventsFirst {
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

/// Events are stamped with whatever the clock says, also when it was set back.
#[derive(Default)]
pub(crate) struct StampsBackwards(Mutex<BTreeMap<RunEventId, Timestamp>>);

#[async_trait]
impl Flaw for StampsBackwards {
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

/// Events are stamped with the producer's clock.
pub(crate) struct BelievesTheProducersClock;

#[async_trait]
impl Flaw for BelievesTheProducersClock {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        let mut receipt = memory.commit(commit.clone()).await?;
        for (event, answer) in commit.events.iter().zip(&mut receipt.events) {
            answer.result.persisted_at = event.emitted_at.to_timestamp();
        }
        Ok(receipt)
    }
}

/// Events are changed on their way in.
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
impl Flaw for ParsesPayloads {
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

/// Unknown members are left out.
pub(crate) struct DropsUnknownMembers;

#[async_trait]
impl Flaw for DropsUnknownMembers {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        rewriting(memory, commit, |event| event.extra = ExtraFields::NONE).await
    }
}

/// The producer's instant is kept, but not its letters.
pub(crate) struct RewritesEmittedAt;

#[async_trait]
impl Flaw for RewritesEmittedAt {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        rewriting(memory, commit, |event| {
            event.emitted_at = EmittedAt::from(event.emitted_at.to_timestamp())
        })
        .await
    }
}

/// Pages come last event first.
pub(crate) struct ReversesPages;

#[async_trait]
impl Flaw for ReversesPages {
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

/// A page begins with the watermark instead of after it.
pub(crate) struct RepeatsTheWatermark;

#[async_trait]
impl Flaw for RepeatsTheWatermark {
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

/// Keys are not checked, whatever the policy.
pub(crate) struct TrustsKeys;

impl Flaw for TrustsKeys {
    fn policy(&self, policy: StorePolicy) -> StorePolicy {
        StorePolicy {
            key_check: IdempotencyKeyCheck::Off,
            ..policy
        }
    }
}

/// Whoever can write to the database can change history.
pub(crate) struct LetsHistoryBeChanged;

impl Flaw for LetsHistoryBeChanged {
    fn lets_tampering_happen(&self) -> bool {
        true
    }
}
