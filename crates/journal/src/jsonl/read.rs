//! A line of JSON to an event.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::LineError;
use super::field::{Field, present};
use crate::excerpt::excerpt;
use crate::{Event, EventKind, ExecutionId, JoinSetId, JournalEvent, PromiseId};

type Result<T> = std::result::Result<T, LineError>;

/// Reads the lines of one journal.
///
/// Ids are relative to the journal's own execution (`root.1`) or carry its hash. Which hash that is need not be known:
/// the first one that an event names is taken for the journal's own, and the rules refuse any other.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    own: Option<ExecutionId>,
    execution: ExecutionId,
}

impl Reader {
    /// A reader of a journal whose execution is not known.
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader of this execution's journal.
    pub const fn of(execution: ExecutionId) -> Self {
        Self { own: Some(execution), execution }
    }

    /// The execution that the events read here belong to: a stand-in of zeros if none was named at the start.
    pub const fn execution(&self) -> ExecutionId {
        self.execution
    }

    /// Reads one line.
    pub fn read(&mut self, line: &str) -> Result<JournalEvent> {
        let line = object(line)?;
        let sequence = line.sequence().unsigned()?;
        let timestamp = line.timestamp().instant()?;
        let name = line.event().text()?;
        let kind = EventKind::from_name(&name).ok_or_else(|| {
            let name = excerpt(&name);
            LineError(format!("field `event` is {name:?}: expected one of the 20 names, such as \"InvokeScheduled\""))
        })?;
        let event = self.event(kind, &line).map_err(|LineError(error)| LineError(format!("{name}: {error}")))?;
        Ok(JournalEvent { sequence, timestamp, event })
    }

    fn event(&mut self, kind: EventKind, line: &Object<'_>) -> Result<Event> {
        match kind {
            EventKind::ExecutionStarted => Ok(Event::ExecutionStarted {
                component_digest: read_digest(line.component_digest())?,
                input: line.input().payload()?,
                parent_id: line.parent_id().optional().map(|field| self.parent(field)).transpose()?,
                idempotency_key: line.idempotency_key().optional().map(Field::text).transpose()?,
            }),
            EventKind::ExecutionCompleted => Ok(Event::ExecutionCompleted {
                result: line.result().payload()?,
                continued_as: line.continued_as().optional().map(Field::execution).transpose()?,
            }),
            EventKind::ExecutionFailed => Ok(Event::ExecutionFailed { error: line.error().error()? }),
            EventKind::CancelRequested => Ok(Event::CancelRequested { reason: line.reason().reason()? }),
            EventKind::ExecutionCancelled => Ok(Event::ExecutionCancelled { reason: line.reason().reason()? }),
            EventKind::SignalDelivered => Ok(Event::SignalDelivered {
                signal_name: line.signal_name().name()?,
                payload: line.payload().payload()?,
                delivery_id: line.delivery_id().unsigned()?,
            }),
            EventKind::ExecutionAwaiting => Ok(Event::ExecutionAwaiting {
                waiting_on: self.promises(line.waiting_on())?,
                kind: line.kind().await_kind(line.signal_name())?,
            }),
            EventKind::ExecutionResumed => Ok(Event::ExecutionResumed),
            EventKind::JoinSetCreated => Ok(Event::JoinSetCreated { join_set_id: self.set(line)? }),
            EventKind::JoinSetSubmitted => {
                Ok(Event::JoinSetSubmitted { join_set_id: self.set(line)?, promise_id: self.promise(line)? })
            }
            EventKind::JoinSetAwaited => Ok(Event::JoinSetAwaited {
                join_set_id: self.set(line)?,
                promise_id: self.promise(line)?,
                result: line.result().result()?,
            }),
            _ => self.event_of_promise(kind, line),
        }
    }

    /// The events whose first field is `promise_id`.
    fn event_of_promise(&mut self, kind: EventKind, line: &Object<'_>) -> Result<Event> {
        let promise_id = self.promise(line)?;
        match kind {
            EventKind::InvokeScheduled => Ok(Event::InvokeScheduled {
                promise_id,
                kind: line.kind().invoke_kind()?,
                function_name: line.function_name().name()?,
                input: line.input().payload()?,
                retry_policy: line.retry_policy().retry_policy()?,
                delivery: line.delivery().delivery()?,
            }),
            EventKind::InvokeStarted => Ok(Event::InvokeStarted {
                promise_id,
                attempt: line.attempt().attempt()?,
                performer: line.child().performer(line.worker())?,
            }),
            EventKind::InvokeCompleted => Ok(Event::InvokeCompleted {
                promise_id,
                result: line.result().result()?,
                attempt: line.attempt().attempt()?,
            }),
            EventKind::InvokeRetrying => Ok(Event::InvokeRetrying {
                promise_id,
                failed_attempt: line.failed_attempt().attempt()?,
                error: line.error().error()?,
                retry_at: line.retry_at().instant()?,
            }),
            EventKind::RandomGenerated => Ok(Event::RandomGenerated { promise_id, value: line.value().bytes()? }),
            EventKind::TimeRecorded => Ok(Event::TimeRecorded { promise_id, time: line.time().instant()? }),
            EventKind::TimerScheduled => Ok(Event::TimerScheduled {
                promise_id,
                duration_ms: line.duration_ms().unsigned()?,
                fire_at: line.fire_at().instant()?,
            }),
            EventKind::SignalReceived => Ok(Event::SignalReceived {
                promise_id,
                signal_name: line.signal_name().name()?,
                payload: line.payload().payload()?,
                delivery_id: line.delivery_id().unsigned()?,
            }),
            _ => Ok(Event::TimerFired { promise_id }),
        }
    }

    fn promise(&mut self, line: &Object<'_>) -> Result<PromiseId> {
        let field = line.promise_id();
        self.id(&field.id_text()?).map_err(|error| in_field(field, error))
    }

    fn set(&mut self, line: &Object<'_>) -> Result<JoinSetId> {
        let field = line.join_set_id();
        self.id(&field.id_text()?).map(JoinSetId).map_err(|error| in_field(field, error))
    }

    fn promises(&mut self, field: Field<'_>) -> Result<Vec<PromiseId>> {
        field.list()?.iter().map(|text| self.id(text).map_err(|error| in_field(field, error))).collect()
    }

    /// A parent is an operation of another journal, so its hash says nothing about this one's.
    fn parent(&self, field: Field<'_>) -> Result<PromiseId> {
        PromiseId::parse(&field.id_text()?, self.execution).map_err(|error| in_field(field, error))
    }

    fn id(&mut self, text: &str) -> std::result::Result<PromiseId, crate::IdError> {
        let id = PromiseId::parse(text, self.execution)?;
        if text.starts_with("root") {
            return Ok(id);
        }
        if *self.own.get_or_insert(id.execution_root()) == id.execution_root() {
            return PromiseId::new(self.execution, id.path());
        }
        Ok(id)
    }
}

fn in_field(field: Field<'_>, error: impl std::fmt::Display) -> LineError {
    LineError(format!("field `{}`: {error}", field.name))
}

fn read_digest(field: Field<'_>) -> Result<crate::ComponentDigest> {
    field.text()?.parse().map_err(|error| in_field(field, error))
}

/// The fields of a line. A list would be read as well, by position: refuse it.
fn object(line: &str) -> Result<Object<'_>> {
    let refuse = |reason: &str| LineError(format!("not a journal event: expected one JSON object: {reason}"));
    if !line.trim_start().starts_with('{') {
        return Err(refuse("it begins with something else"));
    }
    serde_json::from_str(line).map_err(|error| refuse(&reason(&error)))
}

/// What the JSON parser says, without the line number: it only ever sees one line.
fn reason(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ").replace(" at line 0 column 0", "")
}

macro_rules! object {
    ($($field:ident)*) => {
        /// A line with every field there is, unread. Fields that later versions add are passed over.
        #[derive(Deserialize)]
        struct Object<'a> { $(
            #[serde(borrow, default, deserialize_with = "present")]
            $field: Option<&'a RawValue>,
        )* }

        impl<'a> Object<'a> { $(
            fn $field(&self) -> Field<'a> {
                Field { name: stringify!($field), raw: self.$field }
            }
        )* }
    };
}

object! {
    sequence timestamp event
    component_digest input parent_id idempotency_key
    result continued_as child worker error reason
    promise_id kind function_name retry_policy delivery attempt failed_attempt retry_at
    value time duration_ms fire_at
    signal_name payload delivery_id
    waiting_on join_set_id
}
