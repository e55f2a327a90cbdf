//! What is sent to an execution by whoever does not own it. A message is an event that wants to be recorded, in the form in
//! which journals store events.

use onward_journal::{
    Event, ExecutionId, InvokeResult, JournalEvent, Name, Payload, PromiseId, Text, Timestamp, codec,
};
use onward_store::tables::Message;
use onward_store::{Commit, Error, Serial, Shard};

/// Where messages are kept that were taken and must not be taken again: no shard of executions has this number.
const TAKEN: Shard = Shard(u32::MAX);

/// Whether only the key of a message is left.
pub(crate) fn is_taken(message: &Message) -> bool {
    message.shard == TAKEN
}

const SIGNAL: &str = "signal";
const CANCEL: &str = "cancel";

/// Whether a message asks for cancellation.
pub(super) fn is_cancel(message: &Message) -> bool {
    &*message.kind == CANCEL
}

/// A signal. Sending it again under the same key does nothing.
pub fn signal(
    to: ExecutionId,
    shard: Shard,
    name: Name,
    payload: Payload,
    key: Option<Text>,
    now: Timestamp,
) -> Result<Message, Error> {
    let event = Event::SignalDelivered { signal_name: name, payload, delivery_id: 0 };
    message(to, shard, SIGNAL, event, key, now)
}

/// A request to cancel.
pub fn cancel(to: ExecutionId, shard: Shard, reason: Text, now: Timestamp) -> Result<Message, Error> {
    message(to, shard, CANCEL, Event::CancelRequested { reason }, Some("".into()), now)
}

/// What a child or a worker ended with, to the operation that it performed.
pub(crate) fn result(
    to: &PromiseId,
    shard: Shard,
    attempt: u32,
    result: InvokeResult,
    now: Timestamp,
) -> Result<Message, Error> {
    let event = Event::InvokeCompleted { promise_id: to.clone(), result, attempt };
    let parent = to.execution_root();
    let key = format!("{}#{attempt}", to.relative_to(parent));
    message(parent, shard, "result", event, Some(key.as_str().into()), now)
}

fn message(
    to: ExecutionId,
    shard: Shard,
    kind: &str,
    event: Event,
    dedup_key: Option<Text>,
    now: Timestamp,
) -> Result<Message, Error> {
    let body = codec::encode(to, &[JournalEvent { sequence: 0, timestamp: now, event }]).map_err(Error::corrupt)?;
    // The key that somebody chose for a signal is not the key of anything else.
    let dedup_key = dedup_key.map(|key| Text::from(format!("{kind}:{key}")));
    Ok(Message {
        message_id: Serial(None),
        execution_id: to,
        shard,
        dedup_key,
        kind: kind.into(),
        body: body.into(),
        sent_at: now,
    })
}

/// Takes a message out of the inbox in this commit. Where its sender may send it again, its key stays behind.
pub(super) fn take(commit: Commit, message: &Message, version: u64) -> Commit {
    if &*message.kind == SIGNAL && message.dedup_key.is_some() {
        commit.update(&Message { shard: TAKEN, body: [].into(), ..message.clone() }, version)
    } else {
        commit.delete(message, version)
    }
}

/// The same message to whoever has taken the place of its addressee; nothing if it was meant for that one only.
pub(super) fn forward(sent: &Message, to: ExecutionId) -> Result<Option<Message>, Error> {
    match event(sent).map_err(Error::corrupt)? {
        event @ (Event::SignalDelivered { .. } | Event::CancelRequested { .. }) => {
            let next = message(to, sent.shard, &sent.kind, event, None, sent.sent_at)?;
            Ok(Some(Message { dedup_key: sent.dedup_key.clone(), ..next }))
        }
        _ => Ok(None),
    }
}

/// The event that a message wants recorded; the reason when there is none that a message can.
pub(crate) fn event(message: &Message) -> Result<Event, String> {
    let events = codec::decode(message.execution_id, &message.body).map_err(|error| error.to_string())?;
    match events.into_iter().next().map(|recorded| recorded.event) {
        Some(
            event @ (Event::SignalDelivered { .. } | Event::CancelRequested { .. } | Event::InvokeCompleted { .. }),
        ) => Ok(event),
        Some(other) => Err(format!("it wants {} recorded, which no message may", other.kind())),
        None => Err("it says nothing".to_owned()),
    }
}
