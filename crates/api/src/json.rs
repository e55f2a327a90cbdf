//! JSON that is handed on as it is: nobody on the way reads it, so no number loses a digit.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Any JSON value, as the text it was written as.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(pub Box<RawValue>);

impl Json {
    /// The text; nothing if it is not JSON.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl Default for Json {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned())
    }
}

impl PartialSchema for Json {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(SchemaType::AnyValue).into()
    }
}

impl ToSchema for Json {}

/// A value that is there may be null.
pub(crate) fn present<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(source).map(Some)
}
