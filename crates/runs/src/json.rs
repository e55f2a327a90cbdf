//! Reads JSON objects member by member and keeps the text of each value: numbers of any size are
//! preserved digit by digit, unknown members survive, and errors name the field.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use onward_base::{ExpectedFormat, Payload, ValueError};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::{RunEventError, RunSeq, excerpt};

/// The members of a JSON object, in their original order.
pub(crate) struct JsonMembers<'a>(pub(crate) SmallVec<[(Cow<'a, str>, &'a RawValue); 16]>);

impl<'a> JsonMembers<'a> {
    pub(crate) fn parse_object(text: &'a str) -> Result<Self, RunEventError> {
        serde_json::from_str(text).map_err(|error| RunEventError::Json(error.to_string()))
    }

    /// Returns the member called `name`, with `label` as its name in errors. Fails if it occurs
    /// more than once.
    pub(crate) fn unique_member(
        &self,
        name: &str,
        label: &'static str,
    ) -> Result<JsonField<'a>, RunEventError> {
        let mut values = self
            .0
            .iter()
            .filter(|member| member.0 == name)
            .map(|member| member.1);
        match (values.next(), values.next()) {
            (raw, None) => Ok(JsonField { name: label, raw }),
            _ => Err(RunEventError::Repeated(excerpt::quote_excerpt(label))),
        }
    }

    /// Returns the value of the member called `name`; `None` if it is absent, null or repeated.
    pub(crate) fn non_null_value(&self, name: &str) -> Option<&'a RawValue> {
        self.unique_member(name, "").ok()?.non_null()?.raw
    }
}

impl<'de> Deserialize<'de> for JsonMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonMembersVisitor;

        impl<'de> Visitor<'de> for JsonMembersVisitor {
            type Value = JsonMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<JsonMembers<'de>, A::Error> {
                let mut members = SmallVec::new();
                while let Some(JsonString(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(JsonMembers(members))
            }
        }

        deserializer.deserialize_map(JsonMembersVisitor)
    }
}

/// Text of a JSON string; copied only if it contains an escape.
#[derive(Deserialize)]
pub(crate) struct JsonString<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// Name of a field and its JSON text; `raw` is `None` if the object does not have it.
#[derive(Clone, Copy)]
pub(crate) struct JsonField<'a> {
    pub(crate) name: &'static str,
    pub(crate) raw: Option<&'a RawValue>,
}

impl<'a> JsonField<'a> {
    fn mismatch_error(self, expected: &'static str) -> RunEventError {
        let field = self.name;
        match self.raw {
            None => RunEventError::Missing { field, expected },
            Some(raw) => RunEventError::Mismatch {
                field,
                found: excerpt::describe_json(raw),
                expected,
            },
        }
    }

    /// Returns `None` if the field is absent or null; both mean the same.
    pub(crate) fn non_null(self) -> Option<Self> {
        self.raw.filter(|raw| raw.get() != "null").map(|_| self)
    }

    /// Parses a JSON string as a `T`.
    pub(crate) fn parse_text<T: FromStr<Err = ValueError> + ExpectedFormat>(
        self,
    ) -> Result<T, RunEventError> {
        let text: Option<JsonString<'a>> = self
            .raw
            .and_then(|raw| serde_json::from_str(raw.get()).ok());
        text.and_then(|JsonString(text)| text.parse().ok())
            .ok_or_else(|| self.mismatch_error(T::EXPECTED))
    }

    /// Parses a JSON number or boolean as a `T`.
    pub(crate) fn parse_value<T: DeserializeOwned + ExpectedFormat>(
        self,
    ) -> Result<T, RunEventError> {
        let value = self
            .raw
            .and_then(|raw| serde_json::from_str(raw.get()).ok());
        value.ok_or_else(|| self.mismatch_error(T::EXPECTED))
    }

    /// Parses a sequence number, which must be at least 1.
    pub(crate) fn parse_run_seq(self) -> Result<RunSeq, RunEventError> {
        let expected = "an integer from 1 to 9223372036854775807";
        let place = self
            .parse_value()
            .map_err(|_| self.mismatch_error(expected))?;
        if place == RunSeq::ZERO {
            Err(self.mismatch_error(expected))
        } else {
            Ok(place)
        }
    }

    /// Returns a JSON object as its text.
    pub(crate) fn parse_object(self) -> Result<Payload, RunEventError> {
        let object = self.raw.filter(|raw| raw.get().starts_with('{'));
        object
            .and_then(|raw| Payload::from_raw(raw).ok())
            .ok_or_else(|| self.mismatch_error(OBJECT_EXPECTED))
    }
}

const OBJECT_EXPECTED: &str = "an object, nested at most 128 deep";

/// Serializes a payload as raw JSON, because its text is JSON already.
pub(crate) struct RawPayloadJson<'a>(pub(crate) &'a Payload);

impl Serialize for RawPayloadJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.0.as_str()).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Serializes [`SharedText`](onward_base::SharedText), for `#[serde(with = …)]`.
pub(crate) mod text {
    use onward_base::SharedText;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        text: &SharedText,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SharedText, D::Error> {
        String::deserialize(deserializer).map(SharedText::from)
    }
}

/// Serializes an optional [`SharedText`](onward_base::SharedText), for `#[serde(with = …)]`.
pub(crate) mod text_option {
    use onward_base::SharedText;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        text: &Option<SharedText>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        text.as_deref().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SharedText>, D::Error> {
        Option::<String>::deserialize(deserializer).map(|text| text.map(SharedText::from))
    }
}

/// Serializes an optional payload as raw JSON, for `#[serde(with = …)]`.
pub(crate) mod raw {
    use onward_base::Payload;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::value::RawValue;

    use super::RawPayloadJson;

    pub(crate) fn serialize<S: Serializer>(
        payload: &Option<Payload>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        payload.as_ref().map(RawPayloadJson).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Payload>, D::Error> {
        let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
        raw.map(|raw| Payload::from_raw(&raw))
            .transpose()
            .map_err(D::Error::custom)
    }
}
