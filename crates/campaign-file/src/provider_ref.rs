//! The provider of a campaign as the campaign file has it: a name, or an inline definition.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The provider that delivers the messages of a campaign. This crate does not interpret the
/// definition; the delivery crate does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderRef {
    /// Name of a provider that is defined outside the campaign file.
    Named(String),
    /// Definition of the provider in the campaign file itself.
    Inline(Map<String, Value>),
}

impl Serialize for ProviderRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Named(name) => serializer.serialize_str(name),
            Self::Inline(definition) => definition.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ProviderRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ProviderRefVisitor)
    }
}

struct ProviderRefVisitor;

impl<'de> Visitor<'de> for ProviderRefVisitor {
    type Value = ProviderRef;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a provider, or an inline definition")
    }

    fn visit_str<E>(self, name: &str) -> Result<ProviderRef, E> {
        Ok(ProviderRef::Named(name.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ProviderRef, A::Error> {
        Map::deserialize(MapAccessDeserializer::new(map)).map(ProviderRef::Inline)
    }
}
