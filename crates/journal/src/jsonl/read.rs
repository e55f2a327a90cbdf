//! Parsing a line of JSON into an event.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::JournalLineError;
use super::field::{JournalLineField, deserialize_present};
use crate::{Event, EventKind, ExecutionId, JoinSetId, JournalEvent, PromiseId};
use onward_base::excerpt::excerpt_text;

type Result<T> = std::result::Result<T, JournalLineError>;

/// Reads the lines of one journal.
///
/// Ids are relative to the journal's own execution (`root.1`) or contain its hash. The hash need
/// not be known in advance: the reader takes the first one that an event names as the journal's
/// own, and the rules refuse any other.
#[derive(Clone, Debug, Default)]
pub struct JournalLineReader {
    own_root: Option<ExecutionId>,
    execution: ExecutionId,
}

impl JournalLineReader {
    /// Creates a reader for a journal whose execution is not known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a reader for the journal of this execution.
    pub const fn for_execution(execution: ExecutionId) -> Self {
        Self {
            own_root: Some(execution),
            execution,
        }
    }

    /// Returns the execution that the events of this reader belong to: a placeholder of zeros if
    /// the reader was created with [`JournalLineReader::new`].
    pub const fn execution_id(&self) -> ExecutionId {
        self.execution
    }

    /// Reads the event of one line. Fails if the line is not a JSON object or a field is missing or
    /// invalid; the rules of the journal are not checked.
    pub fn read_line(&mut self, line: &str) -> Result<JournalEvent> {
        let line = parse_line_object(line)?;
        let sequence = line.sequence().read_unsigned()?;
        let timestamp = line.timestamp().read_timestamp()?;
        let name = line.event().read_text()?;
        let kind = EventKind::from_name(&name).ok_or_else(|| {
            let name = excerpt_text(&name);
            JournalLineError(format!("field `event` is {name:?}: expected one of the 20 names, such as \"InvokeScheduled\""))
        })?;
        let event = self
            .read_event(kind, &line)
            .map_err(|JournalLineError(error)| JournalLineError(format!("{name}: {error}")))?;
        Ok(JournalEvent {
            sequence,
            timestamp,
            event,
        })
    }

    fn read_event(&mut self, kind: EventKind, line: &Object<'_>) -> Result<Event> {
        match kind {
            EventKind::ExecutionStarted => Ok(Event::ExecutionStarted {
                component_digest: read_digest(line.component_digest())?,
                input: line.input().read_payload()?,
                parent_id: line
                    .parent_id()
                    .non_null()
                    .map(|field| self.read_parent_id(field))
                    .transpose()?,
                idempotency_key: line
                    .idempotency_key()
                    .non_null()
                    .map(JournalLineField::read_text)
                    .transpose()?,
            }),
            EventKind::ExecutionCompleted => Ok(Event::ExecutionCompleted {
                result: line.result().read_payload()?,
                continued_as: line
                    .continued_as()
                    .non_null()
                    .map(JournalLineField::read_execution_id)
                    .transpose()?,
            }),
            EventKind::ExecutionFailed => Ok(Event::ExecutionFailed {
                error: line.error().read_error()?,
            }),
            EventKind::CancelRequested => Ok(Event::CancelRequested {
                reason: line.reason().read_reason()?,
            }),
            EventKind::ExecutionCancelled => Ok(Event::ExecutionCancelled {
                reason: line.reason().read_reason()?,
            }),
            EventKind::SignalDelivered => Ok(Event::SignalDelivered {
                signal_name: line.signal_name().read_name()?,
                payload: line.payload().read_payload()?,
                delivery_id: line.delivery_id().read_unsigned()?,
            }),
            EventKind::ExecutionAwaiting => Ok(Event::ExecutionAwaiting {
                waiting_on: self.read_promise_ids(line.waiting_on())?,
                kind: line.kind().read_await_kind(line.signal_name())?,
            }),
            EventKind::ExecutionResumed => Ok(Event::ExecutionResumed),
            EventKind::JoinSetCreated => Ok(Event::JoinSetCreated {
                join_set_id: self.read_join_set_id(line)?,
            }),
            EventKind::JoinSetSubmitted => Ok(Event::JoinSetSubmitted {
                join_set_id: self.read_join_set_id(line)?,
                promise_id: self.read_promise_id(line)?,
            }),
            EventKind::JoinSetAwaited => Ok(Event::JoinSetAwaited {
                join_set_id: self.read_join_set_id(line)?,
                promise_id: self.read_promise_id(line)?,
                result: line.result().read_result()?,
            }),
            _ => self.read_promise_event(kind, line),
        }
    }

    /// Reads the events whose first field is `promise_id`.
    fn read_promise_event(&mut self, kind: EventKind, line: &Object<'_>) -> Result<Event> {
        let promise_id = self.read_promise_id(line)?;
        match kind {
            EventKind::InvokeScheduled => Ok(Event::InvokeScheduled {
                promise_id,
                kind: line.kind().read_invoke_kind()?,
                function_name: line.function_name().read_name()?,
                input: line.input().read_payload()?,
                retry_policy: line.retry_policy().read_retry_policy()?,
                delivery: line.delivery().read_delivery()?,
            }),
            EventKind::InvokeStarted => Ok(Event::InvokeStarted {
                promise_id,
                attempt: line.attempt().read_attempt()?,
                performer: line.child().read_performer(line.worker())?,
            }),
            EventKind::InvokeCompleted => Ok(Event::InvokeCompleted {
                promise_id,
                result: line.result().read_result()?,
                attempt: line.attempt().read_attempt()?,
            }),
            EventKind::InvokeRetrying => Ok(Event::InvokeRetrying {
                promise_id,
                failed_attempt: line.failed_attempt().read_attempt()?,
                error: line.error().read_error()?,
                retry_at: line.retry_at().read_timestamp()?,
            }),
            EventKind::RandomGenerated => Ok(Event::RandomGenerated {
                promise_id,
                value: line.value().read_hex_bytes()?,
            }),
            EventKind::TimeRecorded => Ok(Event::TimeRecorded {
                promise_id,
                time: line.time().read_timestamp()?,
            }),
            EventKind::TimerScheduled => Ok(Event::TimerScheduled {
                promise_id,
                duration_ms: line.duration_ms().read_unsigned()?,
                fire_at: line.fire_at().read_timestamp()?,
            }),
            EventKind::SignalReceived => Ok(Event::SignalReceived {
                promise_id,
                signal_name: line.signal_name().read_name()?,
                payload: line.payload().read_payload()?,
                delivery_id: line.delivery_id().read_unsigned()?,
            }),
            _ => Ok(Event::TimerFired { promise_id }),
        }
    }

    fn read_promise_id(&mut self, line: &Object<'_>) -> Result<PromiseId> {
        let field = line.promise_id();
        self.resolve_id(&field.read_id_text()?)
            .map_err(|error| field_error(field, error))
    }

    fn read_join_set_id(&mut self, line: &Object<'_>) -> Result<JoinSetId> {
        let field = line.join_set_id();
        self.resolve_id(&field.read_id_text()?)
            .map(JoinSetId)
            .map_err(|error| field_error(field, error))
    }

    fn read_promise_ids(&mut self, field: JournalLineField<'_>) -> Result<Vec<PromiseId>> {
        field
            .read_id_list()?
            .iter()
            .map(|text| {
                self.resolve_id(text)
                    .map_err(|error| field_error(field, error))
            })
            .collect()
    }

    /// Reads the id of the parent. A parent is an operation of another journal, so its hash does
    /// not determine this journal's own.
    fn read_parent_id(&self, field: JournalLineField<'_>) -> Result<PromiseId> {
        PromiseId::parse(&field.read_id_text()?, self.execution)
            .map_err(|error| field_error(field, error))
    }

    fn resolve_id(&mut self, text: &str) -> std::result::Result<PromiseId, crate::JournalIdError> {
        let id = PromiseId::parse(text, self.execution)?;
        if text.starts_with("root") {
            return Ok(id);
        }
        if *self.own_root.get_or_insert(id.execution_root()) == id.execution_root() {
            return PromiseId::new(self.execution, id.path());
        }
        Ok(id)
    }
}

fn field_error(field: JournalLineField<'_>, error: impl std::fmt::Display) -> JournalLineError {
    JournalLineError(format!("field `{}`: {error}", field.name))
}

fn read_digest(field: JournalLineField<'_>) -> Result<crate::ComponentDigest> {
    field
        .read_text()?
        .parse()
        .map_err(|error| field_error(field, error))
}

/// Parses the fields of a line. Fails on a list, which serde would otherwise accept as an object by
/// position.
fn parse_line_object(line: &str) -> Result<Object<'_>> {
    let refuse = |reason: &str| {
        JournalLineError(format!(
            "not a journal event: expected one JSON object: {reason}"
        ))
    };
    if !line.trim_start().starts_with('{') {
        return Err(refuse("it begins with something else"));
    }
    serde_json::from_str(line).map_err(|error| refuse(&describe_json_error(&error)))
}

/// Returns the error of the JSON parser without the line number: the parser only ever reads one
/// line.
fn describe_json_error(error: &serde_json::Error) -> String {
    error
        .to_string()
        .replace(" at line 1 column ", " at column ")
        .replace(" at line 0 column 0", "")
}

macro_rules! raw_line {
    ($($field:ident)*) => {
        /// A line with all known fields as raw JSON. Unknown fields, which later versions may add,
        /// are ignored.
        #[derive(Deserialize)]
        struct Object<'a> { $(
            #[serde(borrow, default, deserialize_with = "deserialize_present")]
            $field: Option<&'a RawValue>,
        )* }

        impl<'a> Object<'a> { $(
            fn $field(&self) -> JournalLineField<'a> {
                JournalLineField { name: stringify!($field), raw: self.$field }
            }
        )* }
    };
}

raw_line! {
    sequence timestamp event
    component_digest input parent_id idempotency_key
    result continued_as child worker error reason
    promise_id kind function_name retry_policy delivery attempt failed_attempt retry_at
    value time duration_ms fire_at
    signal_name payload delivery_id
    waiting_on join_set_id
}
