//! Short constructors of events, so that a test reads as the journal it is about.

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_journal::{
    AwaitKind, ComponentDigest, DeliveryGuarantee, ErrorKind, Event, ExecutionError, ExecutionId,
    ExecutionState, InvokeKind, InvokePerformer, InvokeResult, JoinSetId, JournalEvent,
    JournalState, PromiseId, RetryPolicy, RuleViolation,
};

pub(crate) fn own() -> ExecutionId {
    ExecutionId::from_bytes([0xee; 32])
}

pub(crate) fn promise(number: u32) -> PromiseId {
    own().child_promise(number)
}

pub(crate) fn set(number: u32) -> JoinSetId {
    JoinSetId(promise(number))
}

pub(crate) fn name(text: &str) -> BoundedName {
    text.parse().unwrap()
}

pub(crate) fn payload(value: u32) -> Payload {
    Payload::from_value(&value).unwrap()
}

pub(crate) fn error(message: &str) -> ExecutionError {
    ExecutionError::new(ErrorKind::UserError, message)
}

pub(crate) fn started() -> Event {
    Event::ExecutionStarted {
        component_digest: ComponentDigest::from_bytes([7; 32]),
        input: payload(0),
        parent_id: None,
        idempotency_key: None,
    }
}

pub(crate) fn scheduled(number: u32) -> Event {
    scheduled_with(number, None)
}

pub(crate) fn scheduled_with(number: u32, policy: Option<RetryPolicy>) -> Event {
    Event::InvokeScheduled {
        promise_id: promise(number),
        kind: InvokeKind::Function,
        function_name: name("task"),
        input: payload(0),
        retry_policy: policy.map(Box::new),
        delivery: DeliveryGuarantee::AtLeastOnce,
    }
}

pub(crate) fn attempted(number: u32, attempt: u32) -> Event {
    Event::InvokeStarted {
        promise_id: promise(number),
        attempt,
        performer: InvokePerformer::Owner,
    }
}

pub(crate) fn completed(number: u32, value: u32, attempt: u32) -> Event {
    Event::InvokeCompleted {
        promise_id: promise(number),
        result: Ok(payload(value)),
        attempt,
    }
}

pub(crate) fn failed(number: u32, attempt: u32) -> Event {
    Event::InvokeCompleted {
        promise_id: promise(number),
        result: Err(error("no")),
        attempt,
    }
}

pub(crate) fn retrying(number: u32, failed_attempt: u32) -> Event {
    retrying_after(number, failed_attempt, error("not yet"))
}

pub(crate) fn retrying_after(number: u32, failed_attempt: u32, error: ExecutionError) -> Event {
    Event::InvokeRetrying {
        promise_id: promise(number),
        failed_attempt,
        error,
        retry_at: Timestamp::EPOCH,
    }
}

pub(crate) fn random(number: u32) -> Event {
    Event::RandomGenerated {
        promise_id: promise(number),
        value: [1, 2].into(),
    }
}

pub(crate) fn clock(number: u32) -> Event {
    Event::TimeRecorded {
        promise_id: promise(number),
        time: Timestamp::EPOCH,
    }
}

pub(crate) fn timer(number: u32) -> Event {
    Event::TimerScheduled {
        promise_id: promise(number),
        duration_ms: 0,
        fire_at: Timestamp::EPOCH,
    }
}

pub(crate) fn fired(number: u32) -> Event {
    Event::TimerFired {
        promise_id: promise(number),
    }
}

pub(crate) fn delivered(signal: &str, delivery_id: u64, value: u32) -> Event {
    Event::SignalDelivered {
        signal_name: name(signal),
        payload: payload(value),
        delivery_id,
    }
}

pub(crate) fn received(number: u32, signal: &str, delivery_id: u64, value: u32) -> Event {
    let promise_id = promise(number);
    Event::SignalReceived {
        promise_id,
        signal_name: name(signal),
        payload: payload(value),
        delivery_id,
    }
}

pub(crate) fn awaiting(kind: AwaitKind, numbers: &[u32]) -> Event {
    Event::ExecutionAwaiting {
        waiting_on: numbers.iter().map(|number| promise(*number)).collect(),
        kind,
    }
}

pub(crate) fn awaiting_one(number: u32) -> Event {
    awaiting(AwaitKind::Single, &[number])
}

pub(crate) fn awaiting_signal(number: u32, signal: &str) -> Event {
    awaiting(AwaitKind::Signal(name(signal)), &[number])
}

pub(crate) fn awaiting_signal_until(number: u32, signal: &str, deadline: u32) -> Event {
    awaiting(AwaitKind::Signal(name(signal)), &[number, deadline])
}

pub(crate) fn resumed() -> Event {
    Event::ExecutionResumed
}

pub(crate) fn created(number: u32) -> Event {
    Event::JoinSetCreated {
        join_set_id: set(number),
    }
}

pub(crate) fn submitted(to: u32, number: u32) -> Event {
    Event::JoinSetSubmitted {
        join_set_id: set(to),
        promise_id: promise(number),
    }
}

pub(crate) fn taken(from: u32, number: u32, value: u32) -> Event {
    taken_result(from, number, Ok(payload(value)))
}

pub(crate) fn taken_result(from: u32, number: u32, result: InvokeResult) -> Event {
    Event::JoinSetAwaited {
        join_set_id: set(from),
        promise_id: promise(number),
        result,
    }
}

pub(crate) fn complete() -> Event {
    Event::ExecutionCompleted {
        result: payload(0),
        continued_as: None,
    }
}

pub(crate) fn fail() -> Event {
    Event::ExecutionFailed {
        error: error("gave up"),
    }
}

pub(crate) fn cancel_requested() -> Event {
    Event::CancelRequested {
        reason: SharedText::from("enough"),
    }
}

pub(crate) fn cancelled() -> Event {
    Event::ExecutionCancelled {
        reason: SharedText::from("enough"),
    }
}

/// Numbers events from 0, a millisecond apart.
pub(crate) fn record(events: &[Event]) -> Vec<JournalEvent> {
    let number = |(sequence, event): (u64, &Event)| JournalEvent {
        sequence,
        timestamp: Timestamp::EPOCH.plus_ms(sequence),
        event: event.clone(),
    };
    (0..).zip(events).map(number).collect()
}

/// The state after each event, or the first violation.
pub(crate) fn judge(events: &[JournalEvent]) -> Result<Vec<ExecutionState>, RuleViolation> {
    let mut fold = JournalState::new(own());
    let take = |event: &JournalEvent| {
        fold.push_event(event)?;
        Ok(fold
            .execution_state()
            .expect("an accepted event gives a state"))
    };
    events.iter().map(take).collect()
}
