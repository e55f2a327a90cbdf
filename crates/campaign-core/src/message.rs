//! Recipients and the messages rendered for them.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One recipient of an audience.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudienceRecipient {
    /// Identifies the recipient. Of several rows with the same id, only one is sent to.
    pub id: String,
    /// The email address, phone number or account to send to.
    #[serde(rename = "to")]
    pub address: String,
    /// Fields that templates can use. Default: empty.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub data: serde_json::Map<String, serde_json::Value>,
}

/// The message rendered for one recipient.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RenderedMessage {
    /// Parts by name, such as `subject` and `text`.
    pub parts: Vec<(String, String)>,
}

impl RenderedMessage {
    /// Returns the text of the part called `name`, or `None` if the message has no such part.
    pub fn find_part(&self, name: &str) -> Option<&str> {
        self.parts
            .iter()
            .find(|(part, _)| part == name)
            .map(|(_, text)| text.as_str())
    }
}

/// The reason why the message of a recipient cannot be rendered. It wraps the error of the
/// [`ComposeMessage`] implementation.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct ComposeError(#[from] Box<dyn std::error::Error + Send + Sync>);

impl ComposeError {
    /// Wraps the error of an implementation; a text is an error as well.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

/// Renders the messages of a campaign, one per recipient.
pub trait ComposeMessage: Send + Sync + 'static {
    /// Renders the message of a recipient, or returns the reason why it cannot be rendered.
    fn compose_message(
        &self,
        recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, ComposeError>;
}
