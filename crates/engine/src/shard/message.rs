//! Messages to an execution from processes that do not own it. A message holds an event to be
//! recorded, encoded as journals store events.

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_journal::{Event, EventKind, ExecutionId, InvokeResult, JournalEvent, PromiseId, codec};
use onward_store::tables::{InboxMessageKind, InboxMessageRow};
use onward_store::{Commit, Error, SerialId, ShardId};

/// Shard number for consumed messages whose deduplication key is kept: no shard of executions has
/// this number.
const CONSUMED_SHARD: ShardId = ShardId(u32::MAX);

/// Whether the message was consumed and only its deduplication key is kept.
pub fn is_consumed(message: &InboxMessageRow) -> bool {
    message.shard == CONSUMED_SHARD
}

/// Whether a message requests cancellation.
pub(super) fn is_cancel(message: &InboxMessageRow) -> bool {
    message.kind == InboxMessageKind::Cancel
}

/// Builds a signal. Sending it again with the same idempotency key has no effect.
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
    build_message(to, shard, InboxMessageKind::Signal, event, key, now)
}

/// Builds a cancellation request. All requests to the same execution have the same deduplication
/// key.
pub fn cancel_message(
    to: ExecutionId,
    shard: ShardId,
    reason: SharedText,
    now: Timestamp,
) -> Result<InboxMessageRow, Error> {
    build_message(
        to,
        shard,
        InboxMessageKind::Cancel,
        Event::CancelRequested { reason },
        Some("".into()),
        now,
    )
}

/// Builds the result of a child or a worker, addressed to the operation that it performed.
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
        InboxMessageKind::Result,
        event,
        Some(key.as_str().into()),
        now,
    )
}

fn build_message(
    to: ExecutionId,
    shard: ShardId,
    kind: InboxMessageKind,
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
    // The kind is part of the key, so that the key a client chose for a signal cannot collide with
    // that of another kind of message.
    let dedup_key = dedup_key.map(|key| SharedText::from(format!("{kind}:{key}")));
    Ok(InboxMessageRow {
        message_id: SerialId(None),
        execution_id: to,
        shard,
        dedup_key,
        kind,
        body: body.into(),
        sent_at: now,
    })
}

/// Adds the removal of a message from the inbox to this commit. If the sender may send it again,
/// its deduplication key is kept.
pub(super) fn consume_message(commit: Commit, message: &InboxMessageRow, version: u64) -> Commit {
    if message.kind == InboxMessageKind::Signal && message.dedup_key.is_some() {
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

/// Builds a copy of a message for the execution that its addressee continued as; `None` if the
/// message concerns only the original addressee.
pub(super) fn forward_message(
    sent: &InboxMessageRow,
    to: ExecutionId,
) -> Result<Option<InboxMessageRow>, Error> {
    match decode_message(sent).map_err(Error::corrupt)? {
        event @ (Event::SignalDelivered { .. } | Event::CancelRequested { .. }) => {
            let next = build_message(to, sent.shard, sent.kind, event, None, sent.sent_at)?;
            Ok(Some(InboxMessageRow {
                dedup_key: sent.dedup_key.clone(),
                ..next
            }))
        }
        _ => Ok(None),
    }
}

/// Reason why a stored message cannot be delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageDecodeError {
    /// The record of the message is damaged.
    #[error("its record is damaged: {0}")]
    Damaged(String),
    /// The message has an event that only the owner of the shard may record.
    #[error("event {0} is not allowed in a message")]
    EventNotAllowed(EventKind),
    /// The message has no event.
    #[error("it contains no event")]
    Empty,
}

/// Decodes the event of a message. Fails with a reason if there is none, or if messages may not
/// carry it.
pub fn decode_message(message: &InboxMessageRow) -> Result<Event, MessageDecodeError> {
    let events = codec::decode_record(message.execution_id, &message.body)
        .map_err(|error| MessageDecodeError::Damaged(error.to_string()))?;
    match events.into_iter().next().map(|recorded| recorded.event) {
        Some(
            event @ (Event::SignalDelivered { .. }
            | Event::CancelRequested { .. }
            | Event::InvokeCompleted { .. }),
        ) => Ok(event),
        Some(other) => Err(MessageDecodeError::EventNotAllowed(other.kind())),
        None => Err(MessageDecodeError::Empty),
    }
}
