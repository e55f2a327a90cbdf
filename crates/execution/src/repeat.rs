//! Whether a guest asks again for what is recorded.

use onward_journal::{AwaitKind, Command, Event};

/// Whether `command` would have led to `event`.
pub(crate) fn is_repeated(event: &Event, command: &Command) -> bool {
    match (command, event) {
        (
            Command::Schedule { kind, function_name, input, retry_policy, delivery },
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
        (Command::Sleep { duration_ms }, Event::TimerScheduled { duration_ms: set, .. }) => duration_ms == set,
        (Command::Random { value }, Event::RandomGenerated { value: drawn, .. }) => value.len() == drawn.len(),
        (Command::ReadClock, Event::TimeRecorded { .. }) | (Command::CreateJoinSet, Event::JoinSetCreated { .. }) => {
            true
        }
        (Command::Await { waiting_on, kind }, Event::ExecutionAwaiting { waiting_on: on, kind: of }) => {
            (waiting_on, kind) == (on, of)
        }
        (Command::Submit { set, promise }, Event::JoinSetSubmitted { join_set_id, promise_id }) => {
            (set, promise) == (join_set_id, promise_id)
        }
        (Command::Next { set, .. }, Event::JoinSetAwaited { join_set_id, .. }) => set == join_set_id,
        (Command::AwaitSignal { signal_name, .. }, Event::SignalReceived { signal_name: of, .. }) => signal_name == of,
        (
            Command::AwaitSignal { signal_name, timeout },
            Event::ExecutionAwaiting { waiting_on, kind: AwaitKind::Signal(of) },
        ) => signal_name == of && timeout.as_ref() == waiting_on.get(1),
        _ => false,
    }
}

/// What a guest asks for, in words.
pub(crate) fn in_words(command: &Command) -> String {
    match command {
        Command::Schedule { function_name, input, .. } => {
            format!("an invocation of {function_name} with {}", input.as_str())
        }
        Command::Sleep { duration_ms } => format!("a timer of {duration_ms} ms"),
        Command::Random { value } => format!("{} bytes of randomness", value.len()),
        Command::ReadClock => "the time".to_owned(),
        Command::CreateJoinSet => "a join set".to_owned(),
        Command::Submit { .. } => "a submission to a join set".to_owned(),
        Command::Next { .. } => "the next result of a join set".to_owned(),
        Command::Await { waiting_on, kind } => format!("a wait ({}) for {} promises", kind.as_str(), waiting_on.len()),
        Command::AwaitSignal { signal_name, .. } => format!("signal {signal_name}"),
        other => format!("{other:?}"),
    }
}
