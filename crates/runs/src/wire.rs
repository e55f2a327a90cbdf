//! Events and JSON objects, in both directions. The members stand in the order of the contract; what is not in the
//! contract comes last.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::json::{Field, Json, Members};
use crate::{AppendResult, EmittedAt, EventError, Extra, RunEventRecord, RunEventWrite, shown};

macro_rules! members {
    ($($member:ident $name:literal,)+) => {
        /// The members of the contract.
        #[derive(Clone, Copy)]
        pub(crate) enum Member { $($member),+ }

        impl Member {
            const NAMES: &[&str] = &[$($name),+];

            /// The member called `name`.
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
    /// What only the store may set.
    const ASSIGNED: [Self; 2] = [Self::RunSeq, Self::PersistedAt];

    const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// An event's members, each in its slot, and those that have none.
struct Fields<'a> {
    known: [Option<&'a RawValue>; Member::NAMES.len()],
    unknown: Members<'a>,
}

impl<'a> Fields<'a> {
    fn parse(text: &'a str) -> Result<Self, EventError> {
        let mut fields = Self { known: [None; _], unknown: Members(SmallVec::new()) };
        for (name, value) in Members::parse(text)?.0 {
            match Member::named(&name) {
                None => fields.unknown.0.push((name, value)),
                Some(member) if fields.get(member).raw.is_some() => {
                    return Err(EventError::Repeated(shown::text(&name)));
                }
                Some(member) => fields.known[member as usize] = Some(value),
            }
        }
        Ok(fields)
    }

    const fn get(&self, member: Member) -> Field<'a> {
        Field { name: member.name(), raw: self.known[member as usize] }
    }

    fn event(&self) -> Result<RunEventWrite, EventError> {
        let event = RunEventWrite {
            event_id: self.get(Member::EventId).text()?,
            event_type: self.get(Member::EventType).text()?,
            emitted_at: self.get(Member::EmittedAt).text()?,
            run_id: self.get(Member::RunId).text()?,
            tenant_id: self.get(Member::TenantId).text()?,
            project_id: self.get(Member::ProjectId).text()?,
            environment_id: self.get(Member::EnvironmentId).text()?,
            plan_id: self.get(Member::PlanId).text()?,
            plan_version: self.get(Member::PlanVersion).text()?,
            engine_attempt_id: self.get(Member::EngineAttemptId).value()?,
            logical_attempt_id: self.get(Member::LogicalAttemptId).value()?,
            idempotency_key: self.get(Member::IdempotencyKey).text()?,
            step_id: self.get(Member::StepId).optional().map(Field::text).transpose()?,
            payload: self.get(Member::Payload).optional().map(Field::object).transpose()?,
            extra: Extra::of(&self.unknown)?,
        };
        event.check_shape()?;
        Ok(event)
    }
}

pub(crate) fn read_write(text: &str) -> Result<RunEventWrite, EventError> {
    let fields = Fields::parse(text)?;
    if let Some(assigned) = Member::ASSIGNED.into_iter().find(|member| fields.get(*member).raw.is_some()) {
        return Err(EventError::Assigned(assigned.name()));
    }
    fields.event()
}

pub(crate) fn read_record(text: &str) -> Result<RunEventRecord, EventError> {
    let fields = Fields::parse(text)?;
    Ok(RunEventRecord {
        event: fields.event()?,
        run_seq: fields.get(Member::RunSeq).place()?,
        persisted_at: fields.get(Member::PersistedAt).text::<EmittedAt>()?.at(),
    })
}

pub(crate) fn read_result(text: &str) -> Result<AppendResult, EventError> {
    let members = Members::parse(text)?;
    let field = |name| members.only(name, name);
    Ok(AppendResult {
        event_id: field(Member::EventId.name())?.text()?,
        run_seq: field(Member::RunSeq.name())?.place()?,
        persisted_at: field(Member::PersistedAt.name())?.text::<EmittedAt>()?.at(),
        idempotent: field("idempotent")?.value()?,
        persisted: field("persisted")?.value()?,
    })
}

/// The JSON text of what holds nothing but text, integers and JSON.
pub(crate) fn written(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("text, integers and JSON can be written as JSON")
}

fn write_event<M: SerializeMap>(event: &RunEventWrite, map: &mut M) -> Result<(), M::Error> {
    map.serialize_entry(Member::EventId.name(), &event.event_id)?;
    map.serialize_entry(Member::EventType.name(), &event.event_type)?;
    map.serialize_entry(Member::EmittedAt.name(), &event.emitted_at)?;
    map.serialize_entry(Member::RunId.name(), &event.run_id)?;
    map.serialize_entry(Member::TenantId.name(), &event.tenant_id)?;
    map.serialize_entry(Member::ProjectId.name(), &event.project_id)?;
    map.serialize_entry(Member::EnvironmentId.name(), &event.environment_id)?;
    map.serialize_entry(Member::PlanId.name(), &event.plan_id)?;
    map.serialize_entry(Member::PlanVersion.name(), &event.plan_version)?;
    map.serialize_entry(Member::EngineAttemptId.name(), &event.engine_attempt_id)?;
    map.serialize_entry(Member::LogicalAttemptId.name(), &event.logical_attempt_id)?;
    map.serialize_entry(Member::IdempotencyKey.name(), &event.idempotency_key)?;
    if let Some(step_id) = &event.step_id {
        map.serialize_entry(Member::StepId.name(), step_id)?;
    }
    if let Some(payload) = &event.payload {
        map.serialize_entry(Member::Payload.name(), &Json(payload))?;
    }
    Ok(())
}

fn write_extra<M: SerializeMap>(extra: &Extra, map: &mut M) -> Result<(), M::Error> {
    extra.try_for_each(|name, value| map.serialize_entry(name, value))
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
        map.serialize_entry(Member::RunSeq.name(), &self.run_seq)?;
        map.serialize_entry(Member::PersistedAt.name(), &EmittedAt::from(self.persisted_at))?;
        write_extra(&self.event.extra, &mut map)?;
        map.end()
    }
}

impl Serialize for AppendResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(Member::EventId.name(), &self.event_id)?;
        map.serialize_entry(Member::RunSeq.name(), &self.run_seq)?;
        map.serialize_entry(Member::PersistedAt.name(), &EmittedAt::from(self.persisted_at))?;
        map.serialize_entry("idempotent", &self.idempotent)?;
        map.serialize_entry("persisted", &self.persisted)?;
        map.end()
    }
}

/// Through the text of the object, whatever it is read from: a reader's buffer would not outlive the members.
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
