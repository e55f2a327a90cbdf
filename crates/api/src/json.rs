//! JSON that is handed on as it is: nobody on the way reads it, so no number loses a digit.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Any JSON value, as the text it was written as.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(pub Box<RawValue>);

impl RawJson {
    /// The text; nothing if it is not JSON.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl Default for RawJson {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned())
    }
}

/// A value that is there, also if it is `null`: that is a result like any other.
pub(crate) fn deserialize_present<'de, D: Deserializer<'de>>(
    value: D,
) -> Result<Option<RawJson>, D::Error> {
    RawJson::deserialize(value).map(Some)
}

impl PartialSchema for RawJson {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .into()
    }
}

impl ToSchema for RawJson {}

#[cfg(test)]
mod tests {
    use crate::execution::ExecutionResult;

    #[test]
    fn whoever_ended_with_null_has_ended() {
        let read = |text: &str| serde_json::from_str::<ExecutionResult>(text).unwrap();
        assert!(read(r#"{"result":null}"#).has_ended());
        assert!(!read("{}").has_ended());
    }
}
