//! JSON that is passed through verbatim: no component on the way parses it into numbers, so no
//! number loses precision.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Any JSON value, kept as the text it was received as.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(pub Box<RawValue>);

impl RawJson {
    /// Returns `None` if `text` is not valid JSON.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The JSON text exactly as it was received.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl Default for RawJson {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned())
    }
}

/// Deserializes a field that is present as `Some`, even if its value is `null`: `null` is a valid
/// result and differs from an absent field.
pub(crate) fn deserialize_present<'de, D: Deserializer<'de>>(
    value: D,
) -> Result<Option<RawJson>, D::Error> {
    RawJson::deserialize(value).map(Some)
}

impl PartialSchema for RawJson {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .description(Some("Any JSON value."))
            .into()
    }
}

impl ToSchema for RawJson {}

#[cfg(test)]
mod tests {
    use crate::execution::ExecutionResult;

    #[test]
    fn an_execution_with_a_null_result_has_ended() {
        let read = |text: &str| serde_json::from_str::<ExecutionResult>(text).unwrap();
        assert!(read(r#"{"result":null}"#).has_ended());
        assert!(!read("{}").has_ended());
    }
}
