//! What the reducer reads in payloads. Producers write them, so nothing in them is certain: what is not as it should be is
//! passed over, and the event counts all the same.

use onward_journal::{Payload, Text};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{Members, Quoted};
use crate::{ArtifactRef, Failure, Substatus};

/// A payload taken apart.
pub(crate) struct Detail<'a>(Option<Members<'a>>);

impl<'a> Detail<'a> {
    pub(crate) fn of(payload: Option<&'a Payload>) -> Self {
        Self(payload.and_then(|payload| Members::parse(payload.as_str()).ok()))
    }

    /// The artifacts under either name.
    pub(crate) fn artifacts(&self) -> Vec<ArtifactRef> {
        let list = self.get("artifacts").or_else(|| self.get("artifactRefs"));
        let items: Vec<&RawValue> = list.and_then(parse).unwrap_or_default();
        items.into_iter().filter_map(object).collect()
    }

    /// The error; what it does not say has a default.
    pub(crate) fn error(&self) -> Option<Failure> {
        let error = Members::parse(self.get("error")?.get()).ok()?;
        let text = |name| error.value(name).and_then(string);
        let code = text("code").or_else(|| text("category"));
        let message = text("message");
        if code.is_none() && message.is_none() {
            return None;
        }
        Some(Failure {
            code: code.unwrap_or_else(|| Text::from("UNKNOWN")),
            message: message.unwrap_or_else(|| Text::from("")),
            retryable: error.value("retryable").and_then(parse).unwrap_or(false),
        })
    }

    /// Why a step was skipped.
    pub(crate) fn reason(&self) -> Option<Text> {
        self.get("reason").and_then(string)
    }

    /// How the platform calls the run.
    pub(crate) fn engine_run_ref(&self) -> Option<Payload> {
        self.get("engineRunRef").and_then(|raw| Payload::from_raw(raw).ok())
    }

    /// What the run says it is at, if that is for it to say.
    pub(crate) fn substatus(&self) -> Option<Substatus> {
        let said = self.get("substatus").and_then(parse);
        said.filter(|said| matches!(said, Substatus::WaitingApproval | Substatus::ContinueAsNew))
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.as_ref()?.value(name)
    }
}

fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// A list would be read as an object too, by position: refuse it.
fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    if raw.get().starts_with('{') { parse(raw) } else { None }
}

fn string(raw: &RawValue) -> Option<Text> {
    parse(raw).map(|Quoted(text)| Text::from(&*text))
}
