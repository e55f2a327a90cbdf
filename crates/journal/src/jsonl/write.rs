//! Writing an event as a line of JSON.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::value::RawValue;

use super::retry_policy;
use crate::{
    AwaitKind, DeliveryGuarantee, Event, ExecutionError, ExecutionId, InvokePerformer,
    InvokeResult, JournalEvent, PromiseId,
};
use onward_base::{Payload, hex};

/// An event as a line of JSON, without the line break; ids are relative to `own`.
pub struct JournalLine<'a> {
    event: &'a JournalEvent,
    own: ExecutionId,
}

impl<'a> JournalLine<'a> {
    /// Creates the line for an event in the journal of `own`.
    pub const fn new(event: &'a JournalEvent, own: ExecutionId) -> Self {
        Self { event, own }
    }

    #[expect(clippy::too_many_lines, reason = "one table: a row for each case")]
    fn write_fields<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let own = self.own;
        match &self.event.event {
            Event::ExecutionStarted {
                component_digest,
                input,
                parent_id,
                idempotency_key,
            } => {
                map.serialize_entry("component_digest", &DisplayJson(component_digest))?;
                map.serialize_entry("input", &PayloadJson(input))?;
                map.serialize_entry(
                    "parent_id",
                    &parent_id
                        .as_ref()
                        .map(|id| DisplayJson(id.relative_to(own))),
                )?;
                map.serialize_entry("idempotency_key", &idempotency_key.as_deref())
            }
            Event::ExecutionCompleted {
                result,
                continued_as,
            } => {
                map.serialize_entry("result", &PayloadJson(result))?;
                continued_as.map_or(Ok(()), |id| {
                    map.serialize_entry("continued_as", &DisplayJson(id))
                })
            }
            Event::ExecutionFailed { error } => {
                map.serialize_entry("error", &ExecutionErrorJson(error))
            }
            Event::CancelRequested { reason } | Event::ExecutionCancelled { reason } => {
                map.serialize_entry("reason", &**reason)
            }
            Event::SignalDelivered {
                signal_name,
                payload,
                delivery_id,
            } => {
                map.serialize_entry("signal_name", &**signal_name)?;
                map.serialize_entry("payload", &PayloadJson(payload))?;
                map.serialize_entry("delivery_id", delivery_id)
            }
            Event::ExecutionAwaiting { waiting_on, kind } => {
                let ids: Vec<_> = waiting_on
                    .iter()
                    .map(|id| DisplayJson(id.relative_to(own)))
                    .collect();
                map.serialize_entry("waiting_on", &ids)?;
                map.serialize_entry("kind", kind.as_str())?;
                match kind {
                    AwaitKind::Signal(name) => map.serialize_entry("signal_name", &**name),
                    AwaitKind::Single | AwaitKind::Any | AwaitKind::All => Ok(()),
                }
            }
            Event::ExecutionResumed => Ok(()),
            Event::JoinSetCreated { join_set_id } => {
                self.write_id(map, "join_set_id", &join_set_id.0)
            }
            Event::JoinSetSubmitted {
                join_set_id,
                promise_id,
            } => {
                self.write_id(map, "join_set_id", &join_set_id.0)?;
                self.write_id(map, "promise_id", promise_id)
            }
            Event::JoinSetAwaited {
                join_set_id,
                promise_id,
                result,
            } => {
                self.write_id(map, "join_set_id", &join_set_id.0)?;
                self.write_id(map, "promise_id", promise_id)?;
                map.serialize_entry("result", &InvokeResultJson(result))
            }
            of_promise => self.write_promise_fields(map, of_promise),
        }
    }

    /// Writes the fields of the events whose first field is `promise_id`.
    #[expect(clippy::too_many_lines, reason = "one table: a row for each case")]
    fn write_promise_fields<M: serde::ser::SerializeMap>(
        &self,
        map: &mut M,
        event: &Event,
    ) -> Result<(), M::Error> {
        for id in event.promise_ids() {
            self.write_id(map, "promise_id", id)?;
        }
        match event {
            Event::InvokeScheduled {
                kind,
                function_name,
                input,
                retry_policy,
                delivery,
                ..
            } => {
                map.serialize_entry("kind", kind.as_str())?;
                map.serialize_entry("function_name", &**function_name)?;
                map.serialize_entry("input", &PayloadJson(input))?;
                map.serialize_entry(
                    "retry_policy",
                    &retry_policy
                        .as_deref()
                        .map(retry_policy::RetryPolicyObject::from),
                )?;
                match delivery {
                    DeliveryGuarantee::AtLeastOnce => Ok(()),
                    DeliveryGuarantee::AtMostOnce => {
                        map.serialize_entry("delivery", delivery.as_str())
                    }
                }
            }
            Event::InvokeStarted {
                attempt, performer, ..
            } => {
                map.serialize_entry("attempt", attempt)?;
                match performer {
                    InvokePerformer::Owner => Ok(()),
                    InvokePerformer::Child(id) => map.serialize_entry("child", &DisplayJson(id)),
                    InvokePerformer::Worker => map.serialize_entry("worker", &true),
                }
            }
            Event::InvokeCompleted {
                result, attempt, ..
            } => {
                map.serialize_entry("result", &InvokeResultJson(result))?;
                map.serialize_entry("attempt", attempt)
            }
            Event::InvokeRetrying {
                failed_attempt,
                error,
                retry_at,
                ..
            } => {
                map.serialize_entry("failed_attempt", failed_attempt)?;
                map.serialize_entry("error", &ExecutionErrorJson(error))?;
                map.serialize_entry("retry_at", &DisplayJson(retry_at))
            }
            Event::RandomGenerated { value, .. } => {
                map.serialize_entry("value", &hex::encode_hex(value))
            }
            Event::TimeRecorded { time, .. } => map.serialize_entry("time", &DisplayJson(time)),
            Event::TimerScheduled {
                duration_ms,
                fire_at,
                ..
            } => {
                map.serialize_entry("duration_ms", duration_ms)?;
                map.serialize_entry("fire_at", &DisplayJson(fire_at))
            }
            Event::SignalReceived {
                signal_name,
                payload,
                delivery_id,
                ..
            } => {
                map.serialize_entry("signal_name", &**signal_name)?;
                map.serialize_entry("payload", &PayloadJson(payload))?;
                map.serialize_entry("delivery_id", delivery_id)
            }
            _ => Ok(()),
        }
    }

    fn write_id<M: serde::ser::SerializeMap>(
        &self,
        map: &mut M,
        name: &str,
        id: &PromiseId,
    ) -> Result<(), M::Error> {
        map.serialize_entry(name, &DisplayJson(id.relative_to(self.own)))
    }
}

impl Serialize for JournalLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("sequence", &self.event.sequence)?;
        map.serialize_entry("timestamp", &DisplayJson(self.event.timestamp))?;
        map.serialize_entry("event", self.event.event.kind().name())?;
        self.write_fields(&mut map)?;
        map.end()
    }
}

impl fmt::Display for JournalLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// Serialises a value as the string that `Display` writes.
struct DisplayJson<T>(T);

impl<T: fmt::Display> Serialize for DisplayJson<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Serialises a payload as raw JSON, since its text is already JSON.
struct PayloadJson<'a>(&'a Payload);

impl Serialize for PayloadJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue =
            serde_json::from_str(self.0.as_str()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

struct ExecutionErrorJson<'a>(&'a ExecutionError);

impl Serialize for ExecutionErrorJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", self.0.kind.as_str())?;
        map.serialize_entry("message", &*self.0.message)?;
        if !self.0.retryable {
            map.serialize_entry("retryable", &false)?;
        }
        map.end()
    }
}

struct InvokeResultJson<'a>(&'a InvokeResult);

impl Serialize for InvokeResultJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self.0 {
            Ok(payload) => map.serialize_entry("ok", &PayloadJson(payload))?,
            Err(error) => map.serialize_entry("err", &ExecutionErrorJson(error))?,
        }
        map.end()
    }
}
