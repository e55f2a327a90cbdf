//! A template part as the campaign file has it: the text itself, or a reference to a file.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};

/// A template part before its file is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePart {
    /// The text of the template.
    Text(String),
    /// Path of the file that has the text of the template.
    File(String),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateFileRef {
    file: String,
}

// Implemented by hand, because the errors of an untagged enum report neither cause nor position.
impl<'de> Deserialize<'de> for TemplatePart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TemplatePartVisitor)
    }
}

struct TemplatePartVisitor;

impl<'de> Visitor<'de> for TemplatePartVisitor {
    type Value = TemplatePart;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or `file:` with the path of a file")
    }

    fn visit_str<E>(self, text: &str) -> Result<TemplatePart, E> {
        Ok(TemplatePart::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TemplatePart, A::Error> {
        TemplateFileRef::deserialize(MapAccessDeserializer::new(map))
            .map(|it| TemplatePart::File(it.file))
    }
}
