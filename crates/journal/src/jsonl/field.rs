//! Reading one field of a JSON line: every error names the field and the expected value.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{JournalLineError, retry_policy};
use crate::{
    AwaitKind, DeliveryGuarantee, ErrorKind, ExecutionError, ExecutionId, InvokeKind,
    InvokePerformer, InvokeResult, RetryPolicy,
};
use onward_base::excerpt::excerpt_text;
use onward_base::{BoundedName, Payload, SharedText, Timestamp, hex};

/// A field of a line: its name and its JSON text, `None` if the line does not have it.
#[derive(Clone, Copy)]
pub(super) struct JournalLineField<'a> {
    pub(super) name: &'static str,
    pub(super) raw: Option<&'a RawValue>,
}

type Result<T> = std::result::Result<T, JournalLineError>;

impl<'a> JournalLineField<'a> {
    fn mismatch_error(self, expected: &str) -> JournalLineError {
        match self.raw {
            None => JournalLineError(format!(
                "field `{}` is missing: expected {expected}",
                self.name
            )),
            Some(raw) => {
                let found = excerpt_text(raw.get());
                JournalLineError(format!(
                    "field `{}` is {found}: expected {expected}",
                    self.name
                ))
            }
        }
    }

    /// Returns the field if it has a value: absent and null are equivalent.
    pub(super) fn non_null(self) -> Option<Self> {
        self.raw.filter(|raw| raw.get() != "null").map(|_| self)
    }

    fn parse_value<T: Deserialize<'a>>(self, expected: &str) -> Result<T> {
        let raw = self.raw.ok_or_else(|| self.mismatch_error(expected))?;
        serde_json::from_str(raw.get()).map_err(|_| self.mismatch_error(expected))
    }

    /// Parses an object. Fails on a list, which serde would otherwise accept as an object by
    /// position.
    fn parse_object<T: Deserialize<'a>>(self, expected: &str) -> Result<T> {
        match self.raw {
            Some(raw) if !raw.get().starts_with('{') => Err(self.mismatch_error(expected)),
            _ => self.parse_value(expected),
        }
    }

    pub(super) fn read_payload(self) -> Result<Payload> {
        let expected = "any JSON value, nested at most 128 deep";
        self.raw
            .and_then(|raw| Payload::from_raw(raw).ok())
            .ok_or_else(|| self.mismatch_error(expected))
    }

    pub(super) fn read_text(self) -> Result<SharedText> {
        let text: std::borrow::Cow<'_, str> = self.parse_value("a string")?;
        Ok(SharedText::from(&*text))
    }

    pub(super) fn read_name(self) -> Result<BoundedName> {
        let expected = "a string of 1 to 1024 bytes without control characters";
        let text = self
            .read_text()
            .map_err(|_| self.mismatch_error(expected))?;
        text.parse().map_err(|_| self.mismatch_error(expected))
    }

    /// Reads a reason. Optional; default: the empty string.
    pub(super) fn read_reason(self) -> Result<SharedText> {
        self.non_null()
            .map_or_else(|| Ok(SharedText::from("")), Self::read_text)
    }

    pub(super) fn read_unsigned(self) -> Result<u64> {
        self.parse_value("an integer from 0")
    }

    /// Reads an attempt number. The rules decide whether it is the right one.
    pub(super) fn read_attempt(self) -> Result<u32> {
        self.parse_value("an integer from 1 to 4294967295")
    }

    /// Reads an instant: RFC 3339, or an integer of milliseconds since 1970.
    pub(super) fn read_timestamp(self) -> Result<Timestamp> {
        let expected = "an RFC 3339 instant such as \"2026-03-01T12:00:00Z\"";
        if let Ok(ms) = self.parse_value::<i64>(expected) {
            return ms
                .checked_mul(1_000)
                .and_then(Timestamp::from_micros)
                .ok_or_else(|| self.mismatch_error(expected));
        }
        self.read_text()
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| self.mismatch_error(expected))
    }

    pub(super) fn read_hex_bytes(self) -> Result<Arc<[u8]>> {
        let expected = "a string of hex digits";
        let text = self
            .read_text()
            .map_err(|_| self.mismatch_error(expected))?;
        hex::decode_hex(text.strip_prefix("0x").unwrap_or(&text))
            .map(Arc::from)
            .ok_or_else(|| self.mismatch_error(expected))
    }

    pub(super) fn read_invoke_kind(self) -> Result<InvokeKind> {
        let expected = "\"function\" or \"http\"";
        match &*self
            .read_text()
            .map_err(|_| self.mismatch_error(expected))?
        {
            "function" => Ok(InvokeKind::Function),
            "http" => Ok(InvokeKind::Http),
            _ => Err(self.mismatch_error(expected)),
        }
    }

    /// Reads a delivery guarantee. Optional; default: `at_least_once`.
    pub(super) fn read_delivery(self) -> Result<DeliveryGuarantee> {
        let Some(field) = self.non_null() else {
            return Ok(DeliveryGuarantee::default());
        };
        let expected = "\"at_least_once\" or \"at_most_once\"";
        let text = field
            .read_text()
            .map_err(|_| field.mismatch_error(expected))?;
        DeliveryGuarantee::parse(&text).ok_or_else(|| field.mismatch_error(expected))
    }

    /// Reads the performer of an attempt: a child or a worker. Default: the owner of the execution,
    /// if neither is named.
    pub(super) fn read_performer(self, worker: JournalLineField<'_>) -> Result<InvokePerformer> {
        match (self.non_null(), worker.non_null()) {
            (None, None) => Ok(InvokePerformer::Owner),
            (Some(child), None) => child.read_execution_id().map(InvokePerformer::Child),
            (None, Some(worker)) if worker.parse_value::<bool>("true")? => {
                Ok(InvokePerformer::Worker)
            }
            (_, Some(worker)) => Err(worker.mismatch_error("true, and no child")),
        }
    }

    /// Reads the kind of an await. `signal_name` is required for a wait for a signal and ignored
    /// for any other.
    pub(super) fn read_await_kind(self, signal_name: JournalLineField<'_>) -> Result<AwaitKind> {
        let expected = "\"single\", \"any\", \"all\" or \"signal\"";
        match &*self
            .read_text()
            .map_err(|_| self.mismatch_error(expected))?
        {
            "single" => Ok(AwaitKind::Single),
            "any" => Ok(AwaitKind::Any),
            "all" => Ok(AwaitKind::All),
            "signal" => Ok(AwaitKind::Signal(signal_name.read_name()?)),
            _ => Err(self.mismatch_error(expected)),
        }
    }

    /// Reads a failure: `{"kind": …, "message": …, "retryable": …}`; a bare string is a user error
    /// with that message.
    pub(super) fn read_error(self) -> Result<ExecutionError> {
        let expected =
            "an object with a string `kind` (and `message`, and `retryable`), or a string";
        if let Ok(message) = self.read_text() {
            return Ok(ExecutionError::new(ErrorKind::UserError, message));
        }
        let error: ErrorObject<'_> = self.parse_object(expected)?;
        error
            .to_execution_error()
            .ok_or_else(|| self.mismatch_error(expected))
    }

    /// Reads the result of an operation: `{"ok": VALUE}` or `{"err": ERROR}`.
    pub(super) fn read_result(self) -> Result<InvokeResult> {
        let expected = "{\"ok\": VALUE} or {\"err\": {\"kind\": …, \"message\": …}}";
        let object: ResultObject<'_> = self.parse_object(expected)?;
        let ok = JournalLineField {
            name: self.name,
            raw: object.ok,
        };
        let err = JournalLineField {
            name: self.name,
            raw: object.err,
        };
        match (ok.non_null(), err.non_null()) {
            (None, Some(err)) => err
                .read_error()
                .map(Err)
                .map_err(|_| self.mismatch_error(expected)),
            (_, None) if ok.raw.is_some() => ok.read_payload().map(Ok),
            _ => Err(self.mismatch_error(expected)),
        }
    }

    pub(super) fn read_retry_policy(self) -> Result<Option<Box<RetryPolicy>>> {
        let Some(field) = self.non_null() else {
            return Ok(None);
        };
        let expected = retry_policy::POLICY_EXPECTED;
        let object: retry_policy::RetryPolicyObject<'_> = field.parse_object(expected)?;
        object
            .to_retry_policy()
            .map(|policy| Some(Box::new(policy)))
            .ok_or_else(|| field.mismatch_error(expected))
    }

    /// Reads the list of strings that promise ids are parsed from.
    pub(super) fn read_id_list(self) -> Result<Vec<std::borrow::Cow<'a, str>>> {
        self.parse_value("a list of promise ids")
    }

    /// Reads the id of another execution, which does not determine the journal's own hash.
    pub(super) fn read_execution_id(self) -> Result<ExecutionId> {
        let expected = "an execution id of 64 hex digits";
        self.read_text()
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| self.mismatch_error(expected))
    }

    /// Reads the string that a promise id is parsed from.
    pub(super) fn read_id_text(self) -> Result<std::borrow::Cow<'a, str>> {
        self.parse_value("a promise id such as \"root.1\"")
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
    fn to_execution_error(&self) -> Option<ExecutionError> {
        let kind = self.kind.parse().ok()?;
        let retryable = self.retryable.unwrap_or(true);
        Some(ExecutionError {
            kind,
            message: SharedText::from(&*self.message),
            retryable,
        })
    }
}

/// The object of a result. Absent and null are distinguished, since `{"ok": null}` is a result.
#[derive(Deserialize)]
struct ResultObject<'a> {
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    ok: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    err: Option<&'a RawValue>,
}

pub(super) fn deserialize_present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
