//! Conversion of events to and from JSON objects. The members are written in the order of the
//! contract; unknown members come last.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::json::{JsonField, JsonMembers, RawPayloadJson};
use crate::{
    AppendResult, EmittedAt, ExtraFields, RunEventError, RunEventRecord, RunEventWrite, excerpt,
};

macro_rules! members {
    ($($member:ident $name:literal,)+) => {
        /// The members that the contract defines.
        #[derive(Clone, Copy)]
        pub(crate) enum Member { $($member),+ }

        impl Member {
            const NAMES: &[&str] = &[$($name),+];

            /// Returns the member called `name`; `None` if the contract does not define it.
            pub(crate) fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$member),)+
                    _ => None,
                }
            }
        }
    };
}

members! {
    EventId "eventId",
    EventType "eventType",
    EmittedAt "emittedAt",
    RunId "runId",
    TenantId "tenantId",
    ProjectId "projectId",
    EnvironmentId "environmentId",
    PlanId "planId",
    PlanVersion "planVersion",
    EngineAttemptId "engineAttemptId",
    LogicalAttemptId "logicalAttemptId",
    IdempotencyKey "idempotencyKey",
    StepId "stepId",
    Payload "payload",
    RunSeq "runSeq",
    PersistedAt "persistedAt",
}

impl Member {
    /// The members that only the store may set.
    const ASSIGNED: [Self; 2] = [Self::RunSeq, Self::PersistedAt];

    const fn json_name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The members of an event: known ones in the slot of their [`Member`], unknown ones in a list.
struct RunEventFields<'a> {
    known: [Option<&'a RawValue>; Member::NAMES.len()],
    unknown: JsonMembers<'a>,
}

impl<'a> RunEventFields<'a> {
    fn parse_event(text: &'a str) -> Result<Self, RunEventError> {
        let mut fields = Self {
            known: [None; _],
            unknown: JsonMembers(SmallVec::new()),
        };
        for (name, value) in JsonMembers::parse_object(text)?.0 {
            match Member::named(&name) {
                None => fields.unknown.0.push((name, value)),
                Some(member) if fields.member_field(member).raw.is_some() => {
                    return Err(RunEventError::Repeated(excerpt::quote_excerpt(&name)));
                }
                Some(member) => fields.known[member as usize] = Some(value),
            }
        }
        Ok(fields)
    }

    const fn member_field(&self, member: Member) -> JsonField<'a> {
        JsonField {
            name: member.json_name(),
            raw: self.known[member as usize],
        }
    }

    fn read_event(&self) -> Result<RunEventWrite, RunEventError> {
        let event = RunEventWrite {
            event_id: self.member_field(Member::EventId).parse_text()?,
            event_type: self.member_field(Member::EventType).parse_text()?,
            emitted_at: self.member_field(Member::EmittedAt).parse_text()?,
            run_id: self.member_field(Member::RunId).parse_text()?,
            tenant_id: self.member_field(Member::TenantId).parse_text()?,
            project_id: self.member_field(Member::ProjectId).parse_text()?,
            environment_id: self.member_field(Member::EnvironmentId).parse_text()?,
            plan_id: self.member_field(Member::PlanId).parse_text()?,
            plan_version: self.member_field(Member::PlanVersion).parse_text()?,
            engine_attempt_id: self.member_field(Member::EngineAttemptId).parse_value()?,
            logical_attempt_id: self.member_field(Member::LogicalAttemptId).parse_value()?,
            idempotency_key: self.member_field(Member::IdempotencyKey).parse_text()?,
            step_id: self
                .member_field(Member::StepId)
                .non_null()
                .map(JsonField::parse_text)
                .transpose()?,
            payload: self
                .member_field(Member::Payload)
                .non_null()
                .map(JsonField::parse_object)
                .transpose()?,
            extra: ExtraFields::from_members(&self.unknown)?,
        };
        event.check_shape()?;
        Ok(event)
    }
}

pub(crate) fn read_event_write(text: &str) -> Result<RunEventWrite, RunEventError> {
    let fields = RunEventFields::parse_event(text)?;
    if let Some(assigned) = Member::ASSIGNED
        .into_iter()
        .find(|member| fields.member_field(*member).raw.is_some())
    {
        return Err(RunEventError::StoreAssigned(assigned.json_name()));
    }
    fields.read_event()
}

pub(crate) fn read_event_record(text: &str) -> Result<RunEventRecord, RunEventError> {
    let fields = RunEventFields::parse_event(text)?;
    Ok(RunEventRecord {
        event: fields.read_event()?,
        run_seq: fields.member_field(Member::RunSeq).parse_run_seq()?,
        persisted_at: fields
            .member_field(Member::PersistedAt)
            .parse_text::<EmittedAt>()?
            .to_timestamp(),
    })
}

pub(crate) fn read_append_result(text: &str) -> Result<AppendResult, RunEventError> {
    let members = JsonMembers::parse_object(text)?;
    let field = |name| members.unique_member(name, name);
    Ok(AppendResult {
        event_id: field(Member::EventId.json_name())?.parse_text()?,
        run_seq: field(Member::RunSeq.json_name())?.parse_run_seq()?,
        persisted_at: field(Member::PersistedAt.json_name())?
            .parse_text::<EmittedAt>()?
            .to_timestamp(),
        idempotent: field("idempotent")?.parse_value()?,
        persisted: field("persisted")?.parse_value()?,
    })
}

/// Returns the JSON text of a value that contains only text, integers and JSON, so that
/// serialization cannot fail.
pub(crate) fn to_json_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("text, integers and JSON can be written as JSON")
}

fn write_event<M: SerializeMap>(event: &RunEventWrite, map: &mut M) -> Result<(), M::Error> {
    map.serialize_entry(Member::EventId.json_name(), &event.event_id)?;
    map.serialize_entry(Member::EventType.json_name(), &event.event_type)?;
    map.serialize_entry(Member::EmittedAt.json_name(), &event.emitted_at)?;
    map.serialize_entry(Member::RunId.json_name(), &event.run_id)?;
    map.serialize_entry(Member::TenantId.json_name(), &event.tenant_id)?;
    map.serialize_entry(Member::ProjectId.json_name(), &event.project_id)?;
    map.serialize_entry(Member::EnvironmentId.json_name(), &event.environment_id)?;
    map.serialize_entry(Member::PlanId.json_name(), &event.plan_id)?;
    map.serialize_entry(Member::PlanVersion.json_name(), &event.plan_version)?;
    map.serialize_entry(
        Member::EngineAttemptId.json_name(),
        &event.engine_attempt_id,
    )?;
    map.serialize_entry(
        Member::LogicalAttemptId.json_name(),
        &event.logical_attempt_id,
    )?;
    map.serialize_entry(Member::IdempotencyKey.json_name(), &event.idempotency_key)?;
    if let Some(step_id) = &event.step_id {
        map.serialize_entry(Member::StepId.json_name(), step_id)?;
    }
    if let Some(payload) = &event.payload {
        map.serialize_entry(Member::Payload.json_name(), &RawPayloadJson(payload))?;
    }
    Ok(())
}

fn write_extra<M: SerializeMap>(extra: &ExtraFields, map: &mut M) -> Result<(), M::Error> {
    extra.try_for_each_field(|name, value| map.serialize_entry(name, value))
}

impl Serialize for RunEventWrite {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        write_event(self, &mut map)?;
        write_extra(&self.extra, &mut map)?;
        map.end()
    }
}

impl Serialize for RunEventRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        write_event(&self.event, &mut map)?;
        map.serialize_entry(Member::RunSeq.json_name(), &self.run_seq)?;
        map.serialize_entry(
            Member::PersistedAt.json_name(),
            &EmittedAt::from(self.persisted_at),
        )?;
        write_extra(&self.event.extra, &mut map)?;
        map.end()
    }
}

impl Serialize for AppendResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(Member::EventId.json_name(), &self.event_id)?;
        map.serialize_entry(Member::RunSeq.json_name(), &self.run_seq)?;
        map.serialize_entry(
            Member::PersistedAt.json_name(),
            &EmittedAt::from(self.persisted_at),
        )?;
        map.serialize_entry("idempotent", &self.idempotent)?;
        map.serialize_entry("persisted", &self.persisted)?;
        map.end()
    }
}

/// Deserializes through the text of the object, independent of the source: a reader's buffer would
/// not outlive the members.
macro_rules! deserialize_through_text {
    ($($of:ident),+) => {$(
        impl<'de> Deserialize<'de> for $of {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let raw = Box::<RawValue>::deserialize(deserializer)?;
                Self::from_json(raw.get()).map_err(D::Error::custom)
            }
        }
    )+};
}

deserialize_through_text!(RunEventWrite, RunEventRecord, AppendResult);
