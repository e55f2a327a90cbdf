//! The account of an execution and its descendants: everything that a crash must not change.
//!
//! Compared are, promise by promise: what was invoked, with what, how, and what came of it at which
//! attempt; how long timers were; which signals were received, as which delivery; which members
//! join sets had and which results were taken from them; how each execution ended. A crash is no
//! attempt of its own, so attempts are compared too.
//!
//! Not compared are times, ids of executions (they follow from the key of the start) and the order
//! in which promises that do not wait for each other come along: that is left to chance without a
//! crash as well. So lists that workflows fill in the order of a join set are sorted first. Random
//! values are what they are; `order` uses one in inputs and in its result, as `number`, and there
//! it is replaced by its name: that it was drawn once is seen by that.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use onward_base::Payload;
use onward_embed::EngineClient;
use onward_journal::jsonl::{JournalLine, JournalLineReader};
use onward_journal::{Event, ExecutionId, InvokePerformer, InvokeResult, Journal, JournalEvent};
use serde_json::Value;

/// The account of an execution and its descendants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Outcome of the execution.
    pub(crate) result: String,
    /// Outcome of each promise and of each execution, by position in the tree of executions.
    pub(crate) effects: BTreeMap<String, String>,
    /// Every attempt of a task that was recorded as started: the promise and the number.
    pub(crate) attempts: Vec<(String, u32)>,
}

impl Account {
    pub(crate) async fn read(client: &EngineClient, id: ExecutionId) -> Self {
        let result = client.execution_result(id).await.unwrap().unwrap();
        let number = number(&result);
        let mut account = Self {
            result: shown(&result, number.as_deref()),
            effects: BTreeMap::new(),
            attempts: Vec::new(),
        };
        let mut open = vec![("root".to_owned(), id)];
        while let Some((place, id)) = open.pop() {
            let events = client.read_journal(id).await.unwrap();
            assert_valid(id, &events);
            for event in &events {
                account.add_journal(&place, id, &event.event, number.as_deref());
                match &event.event {
                    Event::InvokeStarted {
                        promise_id,
                        attempt,
                        performer: InvokePerformer::Child(child),
                    } => {
                        open.push((
                            format!("{place}/{}#{attempt}", promise_id.relative_to(id)),
                            *child,
                        ));
                    }
                    Event::InvokeStarted {
                        promise_id,
                        attempt,
                        performer: InvokePerformer::Owner | InvokePerformer::Worker,
                    } => {
                        // The same attempt may not be recorded as started twice; the rules of the
                        // journal see to it.
                        account.attempts.push((promise_id.to_string(), *attempt));
                    }
                    Event::ExecutionCompleted {
                        continued_as: Some(next),
                        ..
                    } => {
                        open.push((format!("{place}~"), *next));
                    }
                    _ => {}
                }
            }
        }
        account
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one scenario, or one list of cases, read from top to bottom"
    )]
    fn add_journal(&mut self, place: &str, id: ExecutionId, event: &Event, number: Option<&str>) {
        let (what, description) = match event {
            Event::InvokeScheduled {
                promise_id,
                kind,
                function_name,
                input,
                retry_policy,
                delivery,
            } => {
                let input = text(input, number);
                let description = format!(
                    "{} {function_name} {input} {retry_policy:?} {delivery:?}",
                    kind.as_str()
                );
                (promise_id.relative_to(id).to_string(), description)
            }
            Event::InvokeCompleted {
                promise_id,
                result,
                attempt,
            } => (
                promise_id.relative_to(id).to_string(),
                format!("ended at attempt {attempt}: {}", shown(result, number)),
            ),
            Event::InvokeRetrying {
                promise_id,
                failed_attempt,
                error,
                ..
            } => (
                format!("{}#{failed_attempt}", promise_id.relative_to(id)),
                format!("failed: {error}"),
            ),
            Event::RandomGenerated { promise_id, value } => (
                promise_id.relative_to(id).to_string(),
                format!("{} random bytes", value.len()),
            ),
            Event::TimeRecorded { promise_id, .. } => (
                promise_id.relative_to(id).to_string(),
                "the time".to_owned(),
            ),
            Event::TimerScheduled {
                promise_id,
                duration_ms,
                ..
            } => (
                promise_id.relative_to(id).to_string(),
                format!("timer of {duration_ms} ms"),
            ),
            Event::TimerFired { promise_id } => {
                (promise_id.relative_to(id).to_string(), "fired".to_owned())
            }
            Event::SignalDelivered {
                signal_name,
                payload,
                delivery_id,
            } => (
                format!("{signal_name} {delivery_id}"),
                format!("delivered {}", payload.as_str()),
            ),
            Event::SignalReceived {
                promise_id,
                signal_name,
                payload,
                delivery_id,
            } => {
                let description =
                    format!("received {signal_name} {delivery_id} {}", payload.as_str());
                (promise_id.relative_to(id).to_string(), description)
            }
            Event::JoinSetCreated { join_set_id } => (
                join_set_id.0.relative_to(id).to_string(),
                "join set".to_owned(),
            ),
            Event::JoinSetSubmitted {
                join_set_id,
                promise_id,
            } => (
                promise_id.relative_to(id).to_string(),
                format!("in {}", join_set_id.0.relative_to(id)),
            ),
            Event::JoinSetAwaited {
                promise_id, result, ..
            } => (
                promise_id.relative_to(id).to_string(),
                format!("taken: {}", shown(result, number)),
            ),
            Event::CancelRequested { reason } => ("cancel".to_owned(), reason.to_string()),
            Event::ExecutionStarted { input, .. } => ("start".to_owned(), text(input, number)),
            Event::ExecutionCompleted { result, .. } => (
                "end".to_owned(),
                format!("completed {}", text(result, number)),
            ),
            Event::ExecutionFailed { error } => ("end".to_owned(), format!("failed {error}")),
            Event::ExecutionCancelled { reason } => {
                ("end".to_owned(), format!("cancelled {reason}"))
            }
            Event::InvokeStarted { .. }
            | Event::ExecutionAwaiting { .. }
            | Event::ExecutionResumed => return,
        };
        let effect = self.effects.entry(format!("{place} {what}")).or_default();
        let _ = writeln!(effect, "{description}");
    }
}

/// Asserts that stored journals satisfy the rules and round-trip through JSON Lines.
fn assert_valid(id: ExecutionId, events: &[JournalEvent]) {
    Journal::recover(id, events.to_vec())
        .unwrap_or_else(|violation| panic!("{violation}: {events:#?}"));
    let mut reader = JournalLineReader::new();
    let lines: Vec<String> = events
        .iter()
        .map(|event| JournalLine::new(event, id).to_string())
        .collect();
    let read: Vec<JournalEvent> = lines
        .iter()
        .map(|line| reader.read_line(line).unwrap())
        .collect();
    let again = read
        .iter()
        .map(|event| JournalLine::new(event, reader.execution_id()).to_string());
    assert!(again.eq(lines.iter().cloned()), "{lines:#?}");
    Journal::recover(reader.execution_id(), read).unwrap();
    let mut completed = BTreeMap::new();
    for event in events {
        match &event.event {
            Event::InvokeScheduled { promise_id, .. } => {
                *completed.entry(promise_id).or_insert(0) += 0
            }
            Event::InvokeCompleted { promise_id, .. } => {
                *completed.entry(promise_id).or_insert(0) += 1
            }
            _ => {}
        }
    }
    assert!(
        completed.values().all(|count| *count == 1),
        "each invocation ends once: {completed:?}"
    );
}

fn number(result: &InvokeResult) -> Option<String> {
    let result: Value = serde_json::from_str(result.as_ref().ok()?.as_str()).unwrap();
    result.get("number")?.as_str().map(str::to_owned)
}

fn shown(result: &InvokeResult, number: Option<&str>) -> String {
    match result {
        Ok(payload) => text(payload, number),
        Err(error) => format!("{error} (retryable: {})", error.retryable),
    }
}

fn text(payload: &Payload, number: Option<&str>) -> String {
    let mut value: Value = serde_json::from_str(payload.as_str()).unwrap();
    sort_lists(&mut value);
    let text = value.to_string();
    number.map_or_else(|| text.clone(), |number| text.replace(number, "NUMBER"))
}

fn sort_lists(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(sort_lists);
            items.sort_by_key(Value::to_string);
        }
        Value::Object(fields) => fields.values_mut().for_each(sort_lists),
        _ => {}
    }
}
