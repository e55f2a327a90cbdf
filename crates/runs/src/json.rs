//! Reading JSON objects member by member, each as the text it came as: numbers too large for any machine come back
//! digit by digit, unknown members survive, and an error names its field.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use onward_journal::Payload;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::id::Expected;
use crate::{EventError, IdError, RunSeq, shown};

/// The members of an object, in the order in which they stand there.
pub(crate) struct Members<'a>(pub(crate) SmallVec<[(Cow<'a, str>, &'a RawValue); 16]>);

impl<'a> Members<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, EventError> {
        serde_json::from_str(text).map_err(|error| EventError::Json(error.to_string()))
    }

    /// The one member called `name`, known to people as `label`.
    pub(crate) fn only(&self, name: &str, label: &'static str) -> Result<Field<'a>, EventError> {
        let mut values = self.0.iter().filter(|member| member.0 == name).map(|member| member.1);
        match (values.next(), values.next()) {
            (raw, None) => Ok(Field { name: label, raw }),
            _ => Err(EventError::Repeated(shown::text(label))),
        }
    }

    /// The value of the one member called `name`, unless it is null.
    pub(crate) fn value(&self, name: &str) -> Option<&'a RawValue> {
        self.only(name, "").ok()?.optional()?.raw
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = SmallVec::new();
                while let Some(Quoted(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

/// The text of a JSON string, copied only if it holds an escape.
#[derive(Deserialize)]
pub(crate) struct Quoted<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// A field's name and its JSON text, if the object has it.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) name: &'static str,
    pub(crate) raw: Option<&'a RawValue>,
}

impl<'a> Field<'a> {
    fn wrong(self, expected: &'static str) -> EventError {
        let field = self.name;
        match self.raw {
            None => EventError::Missing { field, expected },
            Some(raw) => EventError::Wrong { field, found: shown::json(raw), expected },
        }
    }

    /// Absent and null are the same.
    pub(crate) fn optional(self) -> Option<Self> {
        self.raw.filter(|raw| raw.get() != "null").map(|_| self)
    }

    /// A string that reads as a `T`.
    pub(crate) fn text<T: FromStr<Err = IdError> + Expected>(self) -> Result<T, EventError> {
        let text: Option<Quoted<'a>> = self.raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
        text.and_then(|Quoted(text)| text.parse().ok()).ok_or_else(|| self.wrong(T::EXPECTED))
    }

    /// A number or a flag that reads as a `T`.
    pub(crate) fn value<T: DeserializeOwned + Expected>(self) -> Result<T, EventError> {
        let value = self.raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
        value.ok_or_else(|| self.wrong(T::EXPECTED))
    }

    /// The place of an event in its run.
    pub(crate) fn place(self) -> Result<RunSeq, EventError> {
        let expected = "an integer from 1 to 9223372036854775807";
        let place = self.value().map_err(|_| self.wrong(expected))?;
        if place == RunSeq::ZERO { Err(self.wrong(expected)) } else { Ok(place) }
    }

    /// An object, as its text.
    pub(crate) fn object(self) -> Result<Payload, EventError> {
        let object = self.raw.filter(|raw| raw.get().starts_with('{'));
        object.and_then(|raw| Payload::from_raw(raw).ok()).ok_or_else(|| self.wrong(OBJECT))
    }
}

impl Expected for bool {
    const EXPECTED: &'static str = "true or false";
}

const OBJECT: &str = "an object, nested at most 128 deep";

/// A payload's text is JSON already.
pub(crate) struct Json<'a>(pub(crate) &'a Payload);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.0.as_str()).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Shared text in JSON, for `#[serde(with = …)]`.
pub(crate) mod text {
    use onward_journal::Text;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(text: &Text, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        String::deserialize(deserializer).map(Text::from)
    }
}

/// Shared text that may be absent.
pub(crate) mod text_option {
    use onward_journal::Text;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(text: &Option<Text>, serializer: S) -> Result<S::Ok, S::Error> {
        text.as_deref().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
        Option::<String>::deserialize(deserializer).map(|text| text.map(Text::from))
    }
}

/// JSON text in JSON, if there is any.
pub(crate) mod raw {
    use onward_journal::Payload;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::value::RawValue;

    use super::Json;

    pub(crate) fn serialize<S: Serializer>(payload: &Option<Payload>, serializer: S) -> Result<S::Ok, S::Error> {
        payload.as_ref().map(Json).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Payload>, D::Error> {
        let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
        raw.map(|raw| Payload::from_raw(&raw)).transpose().map_err(D::Error::custom)
    }
}
