//! What is sent to an execution by whoever does not own it. A message is an event that wants to be recorded, in the form in
//! which journals store events.

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_journal::{Event, ExecutionId, InvokeResult, JournalEvent, PromiseId, codec};
use onward_store::tables::InboxMessageRow;
use onward_store::{Commit, Error, SerialId, ShardId};

/// Where messages are kept that were taken and must not be taken again: no shard of executions has this number.
const CONSUMED_SHARD: ShardId = ShardId(u32::MAX);

/// Whether only the key of a message is left.
pub(crate) fn is_consumed(message: &InboxMessageRow) -> bool {
    message.shard == CONSUMED_SHARD
}

const KIND_SIGNAL: &str = "signal";
const KIND_CANCEL: &str = "cancel";

/// Whether a message asks for cancellation.
pub(super) fn is_cancel(message: &InboxMessageRow) -> bool {
    &*message.kind == KIND_CANCEL
}

/// A signal. Sending it again under the same key does nothing.
pub fn signal_message(
    to: ExecutionId,
    shard: ShardId,
    name: BoundedName,
    payload: Payload,
    key: Option<SharedText>,
    now: Timestamp,
) -> Result<InboxMessageRow, Error> {
    let event = Event::SignalDelivered {
        signal_name: name,
        payload,
        delivery_id: 0,
    };
    build_message(to, shard, KIND_SIGNAL, event, key, now)
}

/// A request to cancel.
pub fn cancel_message(
    to: ExecutionId,
    shard: ShardId,
    reason: SharedText,
    now: Timestamp,
) -> Result<InboxMessageRow, Error> {
    build_message(
        to,
        shard,
        KIND_CANCEL,
        Event::CancelRequested { reason },
        Some("".into()),
        now,
    )
}

/// What a child or a worker ended with, to the operation that it performed.
pub(crate) fn attempt_result_message(
    to: &PromiseId,
    shard: ShardId,
    attempt: u32,
    result: InvokeResult,
    now: Timestamp,
) -> Result<InboxMessageRow, Error> {
    let event = Event::InvokeCompleted {
        promise_id: to.clone(),
        result,
        attempt,
    };
    let parent = to.execution_root();
    let key = format!("{}#{attempt}", to.relative_to(parent));
    build_message(
        parent,
        shard,
        "result",
        event,
        Some(key.as_str().into()),
        now,
    )
}

fn build_message(
    to: ExecutionId,
    shard: ShardId,
    kind: &str,
    event: Event,
    dedup_key: Option<SharedText>,
    now: Timestamp,
) -> Result<InboxMessageRow, Error> {
    let body = codec::encode_record(
        to,
        &[JournalEvent {
            sequence: 0,
            timestamp: now,
            event,
        }],
    )
    .map_err(Error::corrupt)?;
    // The key that somebody chose for a signal is not the key of anything else.
    let dedup_key = dedup_key.map(|key| SharedText::from(format!("{kind}:{key}")));
    Ok(InboxMessageRow {
        message_id: SerialId(None),
        execution_id: to,
        shard,
        dedup_key,
        kind: kind.into(),
        body: body.into(),
        sent_at: now,
    })
}

/// Takes a message out of the inbox in this commit. Where its sender may send it again, its key stays behind.
pub(super) fn consume_message(commit: Commit, message: &InboxMessageRow, version: u64) -> Commit {
    if &*message.kind == KIND_SIGNAL && message.dedup_key.is_some() {
        commit.update(
            &InboxMessageRow {
                shard: CONSUMED_SHARD,
                body: [].into(),
                ..message.clone()
            },
            version,
        )
    } else {
        commit.delete(message, version)
    }
}

/// The same message to whoever has taken the place of its addressee; nothing if it was meant for that one only.
pub(super) fn forward_message(
    sent: &InboxMessageRow,
    to: ExecutionId,
) -> Result<Option<InboxMessageRow>, Error> {
    match decode_message(sent).map_err(Error::corrupt)? {
        event @ (Event::SignalDelivered { .. } | Event::CancelRequested { .. }) => {
            let next = build_message(to, sent.shard, &sent.kind, event, None, sent.sent_at)?;
            Ok(Some(InboxMessageRow {
                dedup_key: sent.dedup_key.clone(),
                ..next
            }))
        }
        _ => Ok(None),
    }
}

/// The event that a message wants recorded; the reason when there is none that a message can.
pub(crate) fn decode_message(message: &InboxMessageRow) -> Result<Event, String> {
    let events = codec::decode_record(message.execution_id, &message.body)
        .map_err(|error| error.to_string())?;
    match events.into_iter().next().map(|recorded| recorded.event) {
        Some(
            event @ (Event::SignalDelivered { .. }
            | Event::CancelRequested { .. }
            | Event::InvokeCompleted { .. }),
        ) => Ok(event),
        Some(other) => Err(format!(
            "it wants {} recorded, which no message may",
            other.kind()
        )),
        None => Err("it says nothing".to_owned()),
    }
}
