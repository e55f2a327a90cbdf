//! Reading one field: present or not, of the right type or not, with an error that names the field and what was expected.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{LineError, policy};
use crate::excerpt::excerpt;
use crate::{
    AwaitKind, Delivery, ErrorKind, ExecutionError, ExecutionId, InvokeKind, InvokeResult, Name, Payload, Performer,
    RetryPolicy, Text, Timestamp, hex,
};

/// A field's name and its JSON text, if the line has it.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) name: &'static str,
    pub(super) raw: Option<&'a RawValue>,
}

type Result<T> = std::result::Result<T, LineError>;

impl<'a> Field<'a> {
    fn wrong(self, expected: &str) -> LineError {
        match self.raw {
            None => LineError(format!("field `{}` is missing: expected {expected}", self.name)),
            Some(raw) => {
                let found = excerpt(raw.get());
                LineError(format!("field `{}` is {found}: expected {expected}", self.name))
            }
        }
    }

    /// Absent and null are the same.
    pub(super) fn optional(self) -> Option<Self> {
        self.raw.filter(|raw| raw.get() != "null").map(|_| self)
    }

    fn parse<T: Deserialize<'a>>(self, expected: &str) -> Result<T> {
        let raw = self.raw.ok_or_else(|| self.wrong(expected))?;
        serde_json::from_str(raw.get()).map_err(|_| self.wrong(expected))
    }

    /// A list would be read as an object too, by position: refuse it.
    fn object<T: Deserialize<'a>>(self, expected: &str) -> Result<T> {
        match self.raw {
            Some(raw) if !raw.get().starts_with('{') => Err(self.wrong(expected)),
            _ => self.parse(expected),
        }
    }

    pub(super) fn payload(self) -> Result<Payload> {
        let expected = "any JSON value, nested at most 128 deep";
        self.raw.and_then(|raw| Payload::from_raw(raw).ok()).ok_or_else(|| self.wrong(expected))
    }

    pub(super) fn text(self) -> Result<Text> {
        let text: std::borrow::Cow<'_, str> = self.parse("a string")?;
        Ok(Text::from(&*text))
    }

    pub(super) fn name(self) -> Result<Name> {
        let expected = "a string of 1 to 1024 bytes without control characters";
        let text = self.text().map_err(|_| self.wrong(expected))?;
        text.parse().map_err(|_| self.wrong(expected))
    }

    /// A reason may be left out.
    pub(super) fn reason(self) -> Result<Text> {
        self.optional().map_or_else(|| Ok(Text::from("")), Self::text)
    }

    pub(super) fn unsigned(self) -> Result<u64> {
        self.parse("an integer from 0")
    }

    /// An attempt. Whether it is the right one is for the rules to say.
    pub(super) fn attempt(self) -> Result<u32> {
        self.parse("an integer from 1 to 4294967295")
    }

    /// RFC 3339, or milliseconds since 1970.
    pub(super) fn instant(self) -> Result<Timestamp> {
        let expected = "an RFC 3339 instant such as \"2026-03-01T12:00:00Z\"";
        if let Ok(ms) = self.parse::<i64>(expected) {
            return ms.checked_mul(1_000).and_then(Timestamp::from_micros).ok_or_else(|| self.wrong(expected));
        }
        self.text().ok().and_then(|text| text.parse().ok()).ok_or_else(|| self.wrong(expected))
    }

    pub(super) fn bytes(self) -> Result<Arc<[u8]>> {
        let expected = "a string of hex digits";
        let text = self.text().map_err(|_| self.wrong(expected))?;
        hex::decode(text.strip_prefix("0x").unwrap_or(&text)).map(Arc::from).ok_or_else(|| self.wrong(expected))
    }

    pub(super) fn invoke_kind(self) -> Result<InvokeKind> {
        let expected = "\"function\" or \"http\"";
        match &*self.text().map_err(|_| self.wrong(expected))? {
            "function" => Ok(InvokeKind::Function),
            "http" => Ok(InvokeKind::Http),
            _ => Err(self.wrong(expected)),
        }
    }

    /// A delivery may be left out.
    pub(super) fn delivery(self) -> Result<Delivery> {
        let Some(field) = self.optional() else {
            return Ok(Delivery::default());
        };
        let expected = "\"at_least_once\" or \"at_most_once\"";
        let text = field.text().map_err(|_| field.wrong(expected))?;
        let known = [Delivery::AtLeastOnce, Delivery::AtMostOnce];
        known.into_iter().find(|delivery| delivery.as_str() == &*text).ok_or_else(|| field.wrong(expected))
    }

    /// A child or a worker; whoever runs the execution if neither is named.
    pub(super) fn performer(self, worker: Field<'_>) -> Result<Performer> {
        match (self.optional(), worker.optional()) {
            (None, None) => Ok(Performer::Owner),
            (Some(child), None) => child.execution().map(Performer::Child),
            (None, Some(worker)) if worker.parse::<bool>("true")? => Ok(Performer::Worker),
            (_, Some(worker)) => Err(worker.wrong("true, and no child")),
        }
    }

    /// `signal_name` belongs to a wait for a signal and to no other.
    pub(super) fn await_kind(self, signal_name: Field<'_>) -> Result<AwaitKind> {
        let expected = "\"single\", \"any\", \"all\" or \"signal\"";
        match &*self.text().map_err(|_| self.wrong(expected))? {
            "single" => Ok(AwaitKind::Single),
            "any" => Ok(AwaitKind::Any),
            "all" => Ok(AwaitKind::All),
            "signal" => Ok(AwaitKind::Signal(signal_name.name()?)),
            _ => Err(self.wrong(expected)),
        }
    }

    /// `{"kind": …, "message": …, "retryable": …}`; a bare string is a user error with that message.
    pub(super) fn error(self) -> Result<ExecutionError> {
        let expected = "an object with a string `kind` (and `message`, and `retryable`), or a string";
        if let Ok(message) = self.text() {
            return Ok(ExecutionError::new(ErrorKind::UserError, message));
        }
        let error: ErrorObject<'_> = self.object(expected)?;
        error.read().ok_or_else(|| self.wrong(expected))
    }

    /// `{"ok": VALUE}` or `{"err": ERROR}`.
    pub(super) fn result(self) -> Result<InvokeResult> {
        let expected = "{\"ok\": VALUE} or {\"err\": {\"kind\": …, \"message\": …}}";
        let object: ResultObject<'_> = self.object(expected)?;
        let ok = Field { name: self.name, raw: object.ok };
        let err = Field { name: self.name, raw: object.err };
        match (ok.optional(), err.optional()) {
            (None, Some(err)) => err.error().map(Err).map_err(|_| self.wrong(expected)),
            (_, None) if ok.raw.is_some() => ok.payload().map(Ok),
            _ => Err(self.wrong(expected)),
        }
    }

    pub(super) fn retry_policy(self) -> Result<Option<Box<RetryPolicy>>> {
        let Some(field) = self.optional() else {
            return Ok(None);
        };
        let expected = policy::EXPECTED;
        let object: policy::Object<'_> = field.object(expected)?;
        object.read().map(|policy| Some(Box::new(policy))).ok_or_else(|| field.wrong(expected))
    }

    /// The strings of a list.
    pub(super) fn list(self) -> Result<Vec<std::borrow::Cow<'a, str>>> {
        self.parse("a list of promise ids")
    }

    /// Another execution: it says nothing about the journal's own hash.
    pub(super) fn execution(self) -> Result<ExecutionId> {
        let expected = "an execution id of 64 hex digits";
        self.text().ok().and_then(|text| text.parse().ok()).ok_or_else(|| self.wrong(expected))
    }

    /// The string that an id is made of.
    pub(super) fn id_text(self) -> Result<std::borrow::Cow<'a, str>> {
        self.parse("a promise id such as \"root.1\"")
    }
}

#[derive(Deserialize)]
struct ErrorObject<'a> {
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    message: std::borrow::Cow<'a, str>,
    #[serde(default)]
    retryable: Option<bool>,
}

impl ErrorObject<'_> {
    fn read(&self) -> Option<ExecutionError> {
        let kind = self.kind.parse().ok()?;
        let retryable = self.retryable.unwrap_or(true);
        Some(ExecutionError { kind, message: Text::from(&*self.message), retryable })
    }
}

/// A `RawValue` field that may be absent; present and null are told apart, since `{"ok": null}` is a result.
#[derive(Deserialize)]
struct ResultObject<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    ok: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    err: Option<&'a RawValue>,
}

pub(super) fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
