//! Matching the requests of a guest against the recorded events during replay.

use onward_journal::{AwaitKind, Event, JournalCommand};

/// Returns whether `command` could have recorded `event`.
pub(crate) fn matches_recorded(event: &Event, command: &JournalCommand) -> bool {
    match (command, event) {
        (
            JournalCommand::ScheduleInvoke {
                kind,
                function_name,
                input,
                retry_policy,
                delivery,
            },
            Event::InvokeScheduled {
                kind: as_kind,
                function_name: as_name,
                input: as_input,
                retry_policy: as_policy,
                delivery: as_delivery,
                ..
            },
        ) => {
            (kind, function_name, input) == (as_kind, as_name, as_input)
                && (retry_policy, delivery) == (as_policy, as_delivery)
        }
        (
            JournalCommand::ScheduleTimer { duration_ms },
            Event::TimerScheduled {
                duration_ms: set, ..
            },
        ) => duration_ms == set,
        (JournalCommand::GenerateRandom { value }, Event::RandomGenerated { value: drawn, .. }) => {
            value.len() == drawn.len()
        }
        (JournalCommand::ReadClock, Event::TimeRecorded { .. })
        | (JournalCommand::CreateJoinSet, Event::JoinSetCreated { .. }) => true,
        (
            JournalCommand::Await { waiting_on, kind },
            Event::ExecutionAwaiting {
                waiting_on: on,
                kind: of,
            },
        ) => (waiting_on, kind) == (on, of),
        (
            JournalCommand::SubmitToJoinSet { set, promise },
            Event::JoinSetSubmitted {
                join_set_id,
                promise_id,
            },
        ) => (set, promise) == (join_set_id, promise_id),
        (JournalCommand::TakeNextResult { set, .. }, Event::JoinSetAwaited { join_set_id, .. }) => {
            set == join_set_id
        }
        (
            JournalCommand::AwaitSignal { signal_name, .. },
            Event::SignalReceived {
                signal_name: of, ..
            },
        ) => signal_name == of,
        (
            JournalCommand::AwaitSignal {
                signal_name,
                timeout,
            },
            Event::ExecutionAwaiting {
                waiting_on,
                kind: AwaitKind::Signal(of),
            },
        ) => signal_name == of && timeout.as_ref() == waiting_on.get(1),
        _ => false,
    }
}

/// Describes the request of a guest, for the report of a divergence.
pub(crate) fn describe_command(command: &JournalCommand) -> String {
    match command {
        JournalCommand::ScheduleInvoke {
            function_name,
            input,
            ..
        } => {
            format!("an invocation of {function_name} with {}", input.as_str())
        }
        JournalCommand::ScheduleTimer { duration_ms } => format!("a timer of {duration_ms} ms"),
        JournalCommand::GenerateRandom { value } => format!("{} bytes of randomness", value.len()),
        JournalCommand::ReadClock => "the time".to_owned(),
        JournalCommand::CreateJoinSet => "a join set".to_owned(),
        JournalCommand::SubmitToJoinSet { .. } => "a submission to a join set".to_owned(),
        JournalCommand::TakeNextResult { .. } => "the next result of a join set".to_owned(),
        JournalCommand::Await { waiting_on, kind } => format!(
            "a wait ({}) for {} promises",
            kind.as_str(),
            waiting_on.len()
        ),
        JournalCommand::AwaitSignal { signal_name, .. } => format!("signal {signal_name}"),
        other => format!("{other:?}"),
    }
}
