//! A part of a template as a campaign file has it: a text, or where the text is.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePart {
    /// This.
    Text(String),
    /// What is in that file.
    File(String),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateFileRef {
    file: String,
}

// By hand, because an error of an untagged enum does not say what is wrong, or where.
impl<'de> Deserialize<'de> for TemplatePart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TemplatePartVisitor)
    }
}

struct TemplatePartVisitor;

impl<'de> Visitor<'de> for TemplatePartVisitor {
    type Value = TemplatePart;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or `file:` and the name of a file")
    }

    fn visit_str<E>(self, text: &str) -> Result<TemplatePart, E> {
        Ok(TemplatePart::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TemplatePart, A::Error> {
        TemplateFileRef::deserialize(MapAccessDeserializer::new(map))
            .map(|it| TemplatePart::File(it.file))
    }
}
