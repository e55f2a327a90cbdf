//! Commit rules for run events: assigns sequence numbers and timestamps, and answers duplicates.

use std::collections::{BTreeMap, BTreeSet};

use onward_base::Timestamp;
use onward_runs::{AppendResult, IdempotencyKey, RunEventId, RunEventWrite, RunId, RunSeq};
use serde_json::{from_str, value::RawValue};

use crate::{
    CommitConflict, Duplicates, Error, EventReceipt, PlannedEvent, RunHead, StoredEvent,
    StoredState, WritePlan,
};

/// The timestamp for new events, and whether to check for duplicates.
#[derive(Clone, Copy)]
pub(super) struct AppendContext {
    pub(super) now: Timestamp,
    pub(super) duplicates: Duplicates,
}

/// The heads of the runs that a commit touches: as stored, or as changed by the commit so far.
#[derive(Default)]
pub(super) struct PendingRunHeads {
    known: BTreeMap<RunId, Option<RunHead>>,
    changed: BTreeSet<RunId>,
}

impl PendingRunHeads {
    pub(super) fn get_or_load(
        &mut self,
        run: &RunId,
        before: &mut impl StoredState,
    ) -> Result<Option<&RunHead>, Error> {
        if !self.known.contains_key(run) {
            let head = before.run_head(run)?;
            self.known.insert(run.clone(), head);
        }
        Ok(self.known.get(run).and_then(Option::as_ref))
    }

    /// Records the new head of a run. An equal head does not count as a change, so duplicates write
    /// nothing.
    pub(super) fn update_head(&mut self, head: RunHead) {
        let known = self.known.get(&head.run_id).and_then(Option::as_ref);
        if known != Some(&head) {
            self.changed.insert(head.run_id.clone());
            self.known.insert(head.run_id.clone(), Some(head));
        }
    }

    pub(super) fn into_changed(mut self) -> Vec<RunHead> {
        self.changed
            .iter()
            .filter_map(|run| self.known.remove(run).flatten())
            .collect()
    }
}

pub(super) fn plan_events<'a>(
    events: &'a [RunEventWrite],
    before: &mut impl StoredState,
    heads: &mut PendingRunHeads,
    plan: &mut WritePlan<'a>,
    stamp: AppendContext,
) -> Result<(), Error> {
    let mut batch = EventBatch::default();
    let mut current: Option<RunHead> = None;
    plan.events.reserve(events.len());
    plan.receipt.events.reserve(events.len());
    for (index, event) in events.iter().enumerate() {
        if current
            .as_ref()
            .is_none_or(|head| head.run_id != event.run_id)
        {
            current
                .take()
                .into_iter()
                .for_each(|head| heads.update_head(head));
            current = Some(
                heads
                    .get_or_load(&event.run_id, before)?
                    .cloned()
                    .unwrap_or_else(|| initial_run_head(event, stamp.now)),
            );
        }
        let Some(head) = current.as_mut() else {
            continue;
        };
        if !head.has_scope_of(event) {
            return Err(CommitConflict::ForeignRun {
                index,
                run: event.run_id.clone(),
            }
            .into());
        }
        if stamp.duplicates == Duplicates::Checked {
            if let Some((known, differs)) = batch.find_duplicate(event, before)? {
                plan.receipt.events.push(EventReceipt {
                    result: duplicate_result(&known),
                    differs,
                });
                continue;
            }
            batch.reserve_event_id(index, event, before)?;
        }
        head.last_seq = head.last_seq.next_seq();
        head.last_persisted_at = head.last_persisted_at.max(stamp.now);
        let planned = PlannedEvent {
            event,
            run_seq: head.last_seq,
            persisted_at: head.last_persisted_at,
        };
        if stamp.duplicates == Duplicates::Checked {
            batch
                .keys
                .insert((&event.run_id, &event.idempotency_key), plan.events.len());
            batch.planned.push(planned);
        }
        plan.events.push(planned);
        plan.receipt.events.push(EventReceipt {
            result: first_append_result(&to_stored_event(&planned)),
            differs: false,
        });
    }
    current.into_iter().for_each(|head| heads.update_head(head));
    Ok(())
}

/// Returns the head of a run that has no events yet.
fn initial_run_head(event: &RunEventWrite, now: Timestamp) -> RunHead {
    RunHead {
        run_id: event.run_id.clone(),
        tenant_id: event.tenant_id.clone(),
        project_id: event.project_id.clone(),
        environment_id: event.environment_id.clone(),
        last_seq: RunSeq::ZERO,
        last_persisted_at: now,
        projected_seq: RunSeq::ZERO,
        delivered_seq: RunSeq::ZERO,
    }
}

/// The result for an event that this commit stores.
const fn first_append_result(stored: &StoredEvent) -> AppendResult {
    AppendResult {
        event_id: stored.event_id,
        run_seq: stored.run_seq,
        persisted_at: stored.persisted_at,
        idempotent: false,
        persisted: true,
    }
}

/// The result for a duplicate of an event that is stored already.
const fn duplicate_result(known: &StoredEvent) -> AppendResult {
    AppendResult {
        idempotent: true,
        persisted: false,
        ..first_append_result(known)
    }
}

fn to_stored_event(planned: &PlannedEvent<'_>) -> StoredEvent {
    StoredEvent::from_write(planned.event, planned.run_seq, planned.persisted_at)
}

/// The idempotency keys and ids of the preceding events in the same commit.
#[derive(Default)]
struct EventBatch<'a> {
    keys: BTreeMap<(&'a RunId, &'a IdempotencyKey), usize>,
    planned: Vec<PlannedEvent<'a>>,
    ids: BTreeSet<&'a RunEventId>,
}

impl<'a> EventBatch<'a> {
    /// Returns the event that `event` duplicates, and whether the content differs.
    fn find_duplicate(
        &self,
        event: &'a RunEventWrite,
        before: &mut impl StoredState,
    ) -> Result<Option<(StoredEvent, bool)>, Error> {
        let here = self
            .keys
            .get(&(&event.run_id, &event.idempotency_key))
            .map(|&place| to_stored_event(&self.planned[place]));
        let known = match here {
            Some(known) => Some(known),
            None => before.event_by_key(&event.run_id, &event.idempotency_key)?,
        };
        Ok(known.map(|known| {
            let differs = !is_same_event(event, &known);
            (known, differs)
        }))
    }

    fn reserve_event_id(
        &mut self,
        index: usize,
        event: &'a RunEventWrite,
        before: &mut impl StoredState,
    ) -> Result<(), Error> {
        if !self.ids.insert(&event.event_id) || before.has_event_id(&event.event_id)? {
            return Err(CommitConflict::EventIdTaken {
                index,
                event_id: event.event_id,
            }
            .into());
        }
        Ok(())
    }
}

/// Whether two events have the same type, step and payload, ignoring the order of JSON object
/// members.
fn is_same_event(event: &RunEventWrite, known: &StoredEvent) -> bool {
    if event.event_type != known.event_type || event.step_id != known.step_id {
        return false;
    }
    let (Some(given), Some(kept)) = (&event.payload, &known.payload) else {
        return event.payload.is_none() && known.payload.is_none();
    };
    given == kept || is_equal_json(given.as_str(), kept.as_str())
}

/// Whether two JSON texts are equal. Numbers are compared as written: parsing large ones would lose
/// digits.
fn is_equal_json(one: &str, other: &str) -> bool {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    type Elements<'a> = Vec<&'a RawValue>;
    let same = |one: &RawValue, other: &RawValue| is_equal_json(one.get(), other.get());
    match (one.as_bytes(), other.as_bytes()) {
        _ if one == other => true,
        ([b'{', ..], [b'{', ..]) => {
            match (from_str::<Members<'_>>(one), from_str::<Members<'_>>(other)) {
                (Ok(one), Ok(other)) => {
                    let in_other = |(name, value): (_, &&RawValue)| {
                        other.get(name).is_some_and(|it| same(value, it))
                    };
                    one.len() == other.len() && one.iter().all(in_other)
                }
                _ => false,
            }
        }
        ([b'[', ..], [b'[', ..]) => match (
            from_str::<Elements<'_>>(one),
            from_str::<Elements<'_>>(other),
        ) {
            (Ok(one), Ok(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, it)| same(one, it))
            }
            _ => false,
        },
        ([b'"', ..], [b'"', ..]) => {
            matches!((from_str::<String>(one), from_str::<String>(other)), (Ok(one), Ok(other)) if one == other)
        }
        _ => false,
    }
}
