//! The payload members that the reducer reads. Producers write payloads, so no member is
//! guaranteed: a member that is absent or malformed is ignored, and the event counts nevertheless.

use onward_base::{Payload, SharedText};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{JsonMembers, JsonString};
use crate::{ArtifactRef, RunFailure, RunSubstatus};

/// The parsed members of a payload; `None` if there is no payload or it is not an object.
pub(crate) struct PayloadDetail<'a>(Option<JsonMembers<'a>>);

impl<'a> PayloadDetail<'a> {
    pub(crate) fn from_payload(payload: Option<&'a Payload>) -> Self {
        Self(payload.and_then(|payload| JsonMembers::parse_object(payload.as_str()).ok()))
    }

    /// Returns the artifacts in the member `artifacts` or `artifactRefs`; malformed entries are
    /// ignored.
    pub(crate) fn artifact_refs(&self) -> Vec<ArtifactRef> {
        let list = self
            .member_value("artifacts")
            .or_else(|| self.member_value("artifactRefs"));
        let items: Vec<&RawValue> = list.and_then(parse_raw).unwrap_or_default();
        items.into_iter().filter_map(parse_raw_object).collect()
    }

    /// Returns the member `error`, with defaults for the members it lacks; `None` if it has neither
    /// a code nor a message.
    pub(crate) fn run_failure(&self) -> Option<RunFailure> {
        let error = JsonMembers::parse_object(self.member_value("error")?.get()).ok()?;
        let text = |name| error.non_null_value(name).and_then(parse_raw_string);
        let code = text("code").or_else(|| text("category"));
        let message = text("message");
        if code.is_none() && message.is_none() {
            return None;
        }
        Some(RunFailure {
            code: code.unwrap_or_else(|| SharedText::from("UNKNOWN")),
            message: message.unwrap_or_else(|| SharedText::from("")),
            retryable: error
                .non_null_value("retryable")
                .and_then(parse_raw)
                .unwrap_or(false),
        })
    }

    /// Returns the reason why a step was skipped.
    pub(crate) fn skip_reason(&self) -> Option<SharedText> {
        self.member_value("reason").and_then(parse_raw_string)
    }

    /// Returns the platform's own reference to the run.
    pub(crate) fn engine_run_ref(&self) -> Option<Payload> {
        self.member_value("engineRunRef")
            .and_then(|raw| Payload::from_raw(raw).ok())
    }

    /// Returns the substatus that the payload announces, if producers may set it:
    /// `WAITING_APPROVAL` or `CONTINUE_AS_NEW`.
    pub(crate) fn announced_substatus(&self) -> Option<RunSubstatus> {
        let substatus = self.member_value("substatus").and_then(parse_raw);
        substatus.filter(|substatus| {
            matches!(
                substatus,
                RunSubstatus::WaitingApproval | RunSubstatus::ContinueAsNew
            )
        })
    }

    fn member_value(&self, name: &str) -> Option<&'a RawValue> {
        self.0.as_ref()?.non_null_value(name)
    }
}

fn parse_raw<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// Parses an object only. Serde would also accept a list, by position, so lists are rejected here.
fn parse_raw_object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    if raw.get().starts_with('{') {
        parse_raw(raw)
    } else {
        None
    }
}

fn parse_raw_string(raw: &RawValue) -> Option<SharedText> {
    parse_raw(raw).map(|JsonString(text)| SharedText::from(&*text))
}
