//! An oracle, written from the sentences of the specification and from nothing else: for each
//! rule a predicate over a list of events and the one that follows, searching the list each time.
//! Slow, obvious, and independent of the fold.

use onward_journal::{
    AwaitKind, Event, InvokeResult, JoinSetId, JournalEvent, PromiseId, RetryPolicy, Rule,
};

use super::script::own;

type History<'a> = &'a [JournalEvent];

/// What must hold of an event and those before it.
type Clause = fn(History<'_>, &JournalEvent) -> bool;

/// The rules that `last` breaks after `before`, in no particular order of importance.
pub(crate) fn broken(before: History<'_>, last: &JournalEvent) -> Vec<Rule> {
    CLAUSES
        .iter()
        .filter(|(_, holds)| !holds(before, last))
        .map(|(rule, _)| *rule)
        .collect()
}

/// Every rule that a recorded journal is held to.
pub(crate) const CLAUSES: &[(Rule, Clause)] = &[
    (Rule::S1, |before, last| {
        last.sequence == before.len() as u64
    }),
    (Rule::S2, |before, last| {
        matches!(last.event, Event::ExecutionStarted { .. }) == before.is_empty()
    }),
    (Rule::S3, |before, last| {
        !(is_terminal(last) && before.iter().any(is_terminal))
    }),
    (Rule::S4, |before, last| {
        is_terminal(last) || !before.iter().any(is_terminal)
    }),
    (Rule::S5, |before, last| {
        !matches!(last.event, Event::ExecutionCancelled { .. }) || cancel_requested(before)
    }),
    (Rule::ID1, |_, last| {
        last.event
            .promise_ids()
            .all(|id| id.execution_root() == own() && id.depth() == 1)
    }),
    (Rule::ID2, |before, last| {
        match allocates(before, &last.event) {
            Some(id) => *id == own().child_promise(allocated(before).len() as u32),
            None => true,
        }
    }),
    (Rule::SE1, |before, last| match &last.event {
        Event::InvokeStarted { promise_id, .. } => is_scheduled(before, promise_id),
        _ => true,
    }),
    (Rule::SE2, |before, last| match &last.event {
        Event::InvokeCompleted { promise_id, .. } => !attempts(before, promise_id).is_empty(),
        _ => true,
    }),
    (Rule::SE3, |before, last| match &last.event {
        Event::InvokeRetrying {
            promise_id,
            failed_attempt,
            ..
        } => attempts(before, promise_id).contains(failed_attempt),
        _ => true,
    }),
    (Rule::SE4, |before, last| match &last.event {
        Event::InvokeStarted { promise_id, .. }
        | Event::InvokeRetrying { promise_id, .. }
        | Event::InvokeCompleted { promise_id, .. } => result(before, promise_id).is_none(),
        _ => true,
    }),
    (Rule::CF1, |before, last| match &last.event {
        Event::TimerFired { promise_id } => is_timer(before, promise_id),
        _ => true,
    }),
    (Rule::CF2, |before, last| {
        match &last.event {
        Event::SignalReceived { signal_name, payload, delivery_id, .. } => before.iter().any(|event| {
            matches!(&event.event, Event::SignalDelivered { signal_name: n, payload: p, delivery_id: d }
                if n == signal_name && p == payload && d == delivery_id)
        }),
        _ => true,
    }
    }),
    (Rule::CF3, |before, last| match &last.event {
        Event::SignalReceived {
            signal_name,
            delivery_id,
            ..
        } => !consumed(before, signal_name).contains(delivery_id),
        _ => true,
    }),
    (Rule::CF4, await_signal_is_consistent),
    (Rule::JS1, |before, last| match &last.event {
        Event::JoinSetSubmitted { join_set_id, .. } => is_created(before, join_set_id),
        _ => true,
    }),
    (Rule::JS2, |before, last| match &last.event {
        Event::JoinSetSubmitted { join_set_id, .. } => taken(before, join_set_id).is_empty(),
        _ => true,
    }),
    (Rule::JS3, |before, last| match &last.event {
        Event::JoinSetAwaited {
            join_set_id,
            promise_id,
            ..
        } => members(before, join_set_id).contains(&promise_id),
        _ => true,
    }),
    (Rule::JS4, |before, last| match &last.event {
        Event::JoinSetAwaited { promise_id, .. } => result(before, promise_id).is_some(),
        _ => true,
    }),
    (Rule::JS5, |before, last| match &last.event {
        Event::JoinSetAwaited {
            join_set_id,
            promise_id,
            ..
        } => !taken(before, join_set_id).contains(&promise_id),
        _ => true,
    }),
    (Rule::JS6, |before, last| match &last.event {
        Event::JoinSetAwaited { join_set_id, .. } => {
            taken(before, join_set_id).len() < members(before, join_set_id).len()
        }
        _ => true,
    }),
    (Rule::JS7, |before, last| match &last.event {
        Event::JoinSetSubmitted {
            join_set_id,
            promise_id,
        } => !submissions(before).any(|(set, id)| id == promise_id && set != join_set_id),
        _ => true,
    }),
    (Rule::G1, |before, last| {
        allocates_as_operation(before, &last.event).is_none() || is_active(before)
    }),
    (Rule::G2, |before, last| {
        !matches!(last.event, Event::ExecutionAwaiting { .. }) || is_active(before)
    }),
    (Rule::G3, |before, last| {
        let finishes = matches!(
            last.event,
            Event::ExecutionCompleted { .. } | Event::ExecutionFailed { .. }
        );
        !finishes || is_active(before)
    }),
    (Rule::G4, |before, last| match &last.event {
        Event::ExecutionResumed => {
            open_await(before).is_some_and(|wait| is_satisfied(before, wait))
        }
        _ => true,
    }),
    (Rule::G5, |before, last| {
        !matches!(last.event, Event::CancelRequested { .. }) || !cancel_requested(before)
    }),
    (Rule::G6, |before, last| {
        let uses = matches!(
            last.event,
            Event::JoinSetSubmitted { .. } | Event::JoinSetAwaited { .. }
        );
        !uses || is_active(before)
    }),
    (Rule::H1, |before, last| match &last.event {
        Event::TimerFired { promise_id } => !is_complete(before, promise_id),
        _ => true,
    }),
    (Rule::H2, |before, last| match &last.event {
        Event::JoinSetSubmitted {
            join_set_id,
            promise_id,
        } => !members(before, join_set_id).contains(&promise_id),
        _ => true,
    }),
    (Rule::H3, |before, last| match &last.event {
        Event::JoinSetAwaited {
            promise_id,
            result: carried,
            ..
        } => result(before, promise_id).is_none_or(|recorded| recorded == carried),
        _ => true,
    }),
    (Rule::H4, |before, last| match &last.event {
        Event::InvokeStarted {
            promise_id,
            attempt,
            ..
        } => {
            *attempt
                == attempts(before, promise_id)
                    .last()
                    .map_or(1, |previous| previous + 1)
        }
        _ => true,
    }),
    (Rule::H5, |before, last| match &last.event {
        Event::InvokeStarted { promise_id, .. } => attempt_in_flight(before, promise_id).is_none(),
        _ => true,
    }),
    (Rule::H6, |before, last| match &last.event {
        Event::InvokeCompleted {
            promise_id,
            result: Err(_),
            attempt,
        } if is_between_attempts(before, promise_id) => {
            attempts(before, promise_id).last() == Some(attempt)
        }
        Event::InvokeCompleted {
            promise_id,
            attempt,
            ..
        }
        | Event::InvokeRetrying {
            promise_id,
            failed_attempt: attempt,
            ..
        } => attempt_in_flight(before, promise_id) == Some(*attempt),
        _ => true,
    }),
    (Rule::H7, |_, last| match &last.event {
        Event::ExecutionAwaiting { waiting_on, kind } => {
            let repeated =
                (0..waiting_on.len()).any(|i| waiting_on[i + 1..].contains(&waiting_on[i]));
            let length = waiting_on.len();
            !repeated && length > 0 && (length == 1 || !matches!(kind, AwaitKind::Single))
        }
        _ => true,
    }),
    (Rule::H8, |before, last| {
        awaited(&last.event)
            .iter()
            .all(|id| allocated(before).contains(&id))
    }),
    (Rule::H9, |before, last| {
        let wrong = |event: &JournalEvent, id: &PromiseId| match &event.event {
            Event::RandomGenerated { promise_id, .. } | Event::TimeRecorded { promise_id, .. } => {
                promise_id == id
            }
            Event::JoinSetCreated { join_set_id } => join_set_id.0 == *id,
            _ => false,
        };
        !awaited(&last.event)
            .iter()
            .any(|id| before.iter().any(|event| wrong(event, id)))
    }),
    (Rule::H10, |before, last| match &last.event {
        Event::SignalDelivered {
            signal_name,
            delivery_id,
            ..
        } => {
            let same = |event: &&JournalEvent| matches!(&event.event, Event::SignalDelivered { signal_name: n, .. } if n == signal_name);
            *delivery_id == before.iter().filter(same).count() as u64 + 1
        }
        _ => true,
    }),
    (Rule::H11, |before, last| match &last.event {
        Event::SignalReceived {
            signal_name,
            delivery_id,
            ..
        } => (1..*delivery_id).all(|earlier| consumed(before, signal_name).contains(&earlier)),
        _ => true,
    }),
    (Rule::H12, |before, last| match &last.event {
        Event::JoinSetSubmitted { promise_id, .. } => is_scheduled(before, promise_id),
        _ => true,
    }),
    (Rule::H13, |before, last| match &last.event {
        Event::InvokeRetrying {
            promise_id,
            failed_attempt,
            error,
            ..
        } => {
            let within = policy(before, promise_id).is_none_or(|policy| {
                policy
                    .max_attempts
                    .is_none_or(|max| *failed_attempt < max.get())
                    && !policy.non_retryable.contains(&error.kind)
            });
            within && error.retryable
        }
        _ => true,
    }),
];

fn is_terminal(event: &JournalEvent) -> bool {
    matches!(
        event.event,
        Event::ExecutionCompleted { .. }
            | Event::ExecutionFailed { .. }
            | Event::ExecutionCancelled { .. }
    )
}

fn cancel_requested(before: History<'_>) -> bool {
    before
        .iter()
        .any(|event| matches!(event.event, Event::CancelRequested { .. }))
}

/// The last await, unless a resume or a cancellation closed it.
fn open_await<'a>(before: History<'a>) -> Option<&'a Event> {
    before.iter().rev().find_map(|event| match &event.event {
        wait @ Event::ExecutionAwaiting { .. } => Some(Some(wait)),
        Event::ExecutionResumed | Event::CancelRequested { .. } => Some(None),
        _ => None,
    })?
}

fn is_active(before: History<'_>) -> bool {
    !before.is_empty() && !before.iter().any(is_terminal) && open_await(before).is_none()
}

fn is_complete(before: History<'_>, id: &PromiseId) -> bool {
    before.iter().any(|event| match &event.event {
        Event::InvokeCompleted { promise_id, .. }
        | Event::TimerFired { promise_id }
        | Event::SignalReceived { promise_id, .. } => promise_id == id,
        _ => false,
    })
}

fn is_satisfied(before: History<'_>, wait: &Event) -> bool {
    let Event::ExecutionAwaiting { waiting_on, kind } = wait else {
        return false;
    };
    match kind {
        AwaitKind::Any | AwaitKind::Signal(_) => {
            waiting_on.iter().any(|id| is_complete(before, id))
        }
        AwaitKind::Single | AwaitKind::All => waiting_on.iter().all(|id| is_complete(before, id)),
    }
}

/// Signals that an await allocated and that were not received yet.
fn is_pending_signal(before: History<'_>, id: &PromiseId) -> bool {
    awaited_signal_name(before, id).is_some() && !is_complete(before, id)
}

fn awaited_signal_name<'a>(before: History<'a>, id: &PromiseId) -> Option<&'a str> {
    before.iter().find_map(|event| match &event.event {
        Event::ExecutionAwaiting {
            waiting_on,
            kind: AwaitKind::Signal(name),
        } if waiting_on.first() == Some(id) => Some(&**name),
        _ => None,
    })
}

fn is_waited_for(before: History<'_>, id: &PromiseId) -> bool {
    matches!(open_await(before), Some(Event::ExecutionAwaiting { waiting_on, .. }) if waiting_on.contains(id))
}

/// The id that an event brings into the call tree.
fn allocates<'a>(before: History<'_>, event: &'a Event) -> Option<&'a PromiseId> {
    match event {
        Event::ExecutionAwaiting {
            waiting_on,
            kind: AwaitKind::Signal(_),
        } => waiting_on.first(),
        Event::SignalReceived { promise_id, .. } => {
            let is_receipt =
                is_waited_for(before, promise_id) && is_pending_signal(before, promise_id);
            (!is_receipt).then_some(promise_id)
        }
        other => plain_operation(other),
    }
}

/// The same without awaits, which have a rule of their own, and without receipts by an open await
/// for a signal.
fn allocates_as_operation<'a>(before: History<'_>, event: &'a Event) -> Option<&'a PromiseId> {
    match event {
        Event::SignalReceived { promise_id, .. } => {
            let waits_for_signal = matches!(
                open_await(before),
                Some(Event::ExecutionAwaiting {
                    kind: AwaitKind::Signal(_),
                    ..
                })
            );
            (!waits_for_signal && !is_waited_for(before, promise_id)).then_some(promise_id)
        }
        other => plain_operation(other),
    }
}

fn plain_operation(event: &Event) -> Option<&PromiseId> {
    match event {
        Event::InvokeScheduled { promise_id, .. }
        | Event::RandomGenerated { promise_id, .. }
        | Event::TimeRecorded { promise_id, .. }
        | Event::TimerScheduled { promise_id, .. } => Some(promise_id),
        Event::JoinSetCreated { join_set_id } => Some(&join_set_id.0),
        _ => None,
    }
}

fn allocated<'a>(before: History<'a>) -> Vec<&'a PromiseId> {
    (0..before.len())
        .filter_map(|index| allocates(&before[..index], &before[index].event))
        .collect()
}

fn is_scheduled(before: History<'_>, id: &PromiseId) -> bool {
    before.iter().any(|event| matches!(&event.event, Event::InvokeScheduled { promise_id, .. } if promise_id == id))
}

fn policy<'a>(before: History<'a>, id: &PromiseId) -> Option<&'a RetryPolicy> {
    before.iter().find_map(|event| match &event.event {
        Event::InvokeScheduled {
            promise_id,
            retry_policy,
            ..
        } if promise_id == id => retry_policy.as_deref(),
        _ => None,
    })
}

fn is_timer(before: History<'_>, id: &PromiseId) -> bool {
    before.iter().any(|event| matches!(&event.event, Event::TimerScheduled { promise_id, .. } if promise_id == id))
}

fn attempts(before: History<'_>, id: &PromiseId) -> Vec<u32> {
    let started = before.iter().filter_map(|event| match &event.event {
        Event::InvokeStarted {
            promise_id,
            attempt,
            ..
        } if promise_id == id => Some(*attempt),
        _ => None,
    });
    started.collect()
}

/// The attempt that was started and neither retried nor completed.
fn attempt_in_flight(before: History<'_>, id: &PromiseId) -> Option<u32> {
    before.iter().rev().find_map(|event| match &event.event {
        Event::InvokeStarted {
            promise_id,
            attempt,
            ..
        } if promise_id == id => Some(Some(*attempt)),
        Event::InvokeRetrying { promise_id, .. } | Event::InvokeCompleted { promise_id, .. }
            if promise_id == id =>
        {
            Some(None)
        }
        _ => None,
    })?
}

/// Whether the last event of the invoke schedules a retry.
fn is_between_attempts(before: History<'_>, id: &PromiseId) -> bool {
    let about_it = before.iter().rev().find(|event| match &event.event {
        Event::InvokeStarted { promise_id, .. }
        | Event::InvokeRetrying { promise_id, .. }
        | Event::InvokeCompleted { promise_id, .. } => promise_id == id,
        _ => false,
    });
    matches!(
        about_it,
        Some(JournalEvent {
            event: Event::InvokeRetrying { .. },
            ..
        })
    )
}

fn result<'a>(before: History<'a>, id: &PromiseId) -> Option<&'a InvokeResult> {
    before.iter().find_map(|event| match &event.event {
        Event::InvokeCompleted {
            promise_id, result, ..
        } if promise_id == id => Some(result),
        _ => None,
    })
}

fn consumed(before: History<'_>, name: &str) -> Vec<u64> {
    let received = before.iter().filter_map(|event| match &event.event {
        Event::SignalReceived {
            signal_name,
            delivery_id,
            ..
        } if &**signal_name == name => Some(*delivery_id),
        _ => None,
    });
    received.collect()
}

fn await_signal_is_consistent(before: History<'_>, last: &JournalEvent) -> bool {
    match &last.event {
        Event::ExecutionAwaiting {
            waiting_on,
            kind: AwaitKind::Signal(_),
        } => match waiting_on.as_slice() {
            [promise, rest @ ..] if rest.len() < 2 => rest.iter().all(|deadline| {
                deadline != promise && is_timer(before, deadline) && !is_complete(before, deadline)
            }),
            _ => false,
        },
        Event::SignalReceived {
            promise_id,
            signal_name,
            ..
        } => {
            let is_the_awaited = match open_await(before) {
                Some(Event::ExecutionAwaiting {
                    waiting_on,
                    kind: AwaitKind::Signal(name),
                }) => waiting_on.first() == Some(promise_id) && name == signal_name,
                _ => true,
            };
            let name = awaited_signal_name(before, promise_id)
                .filter(|_| is_pending_signal(before, promise_id));
            is_the_awaited && name.is_none_or(|name| name == &**signal_name)
        }
        _ => true,
    }
}

fn is_created(before: History<'_>, set: &JoinSetId) -> bool {
    before.iter().any(
        |event| matches!(&event.event, Event::JoinSetCreated { join_set_id } if join_set_id == set),
    )
}

fn submissions<'a>(before: History<'a>) -> impl Iterator<Item = (&'a JoinSetId, &'a PromiseId)> {
    before.iter().filter_map(|event| match &event.event {
        Event::JoinSetSubmitted {
            join_set_id,
            promise_id,
        } => Some((join_set_id, promise_id)),
        _ => None,
    })
}

fn members<'a>(before: History<'a>, set: &JoinSetId) -> Vec<&'a PromiseId> {
    submissions(before)
        .filter(|(to, _)| *to == set)
        .map(|(_, id)| id)
        .collect()
}

fn taken<'a>(before: History<'a>, set: &JoinSetId) -> Vec<&'a PromiseId> {
    let results = before.iter().filter_map(|event| match &event.event {
        Event::JoinSetAwaited {
            join_set_id,
            promise_id,
            ..
        } if join_set_id == set => Some(promise_id),
        _ => None,
    });
    results.collect()
}

/// The promises of an await that does not allocate one.
fn awaited(event: &Event) -> &[PromiseId] {
    match event {
        Event::ExecutionAwaiting {
            kind: AwaitKind::Signal(_),
            ..
        } => &[],
        Event::ExecutionAwaiting { waiting_on, .. } => waiting_on,
        _ => &[],
    }
}
