//! Renders the message of each recipient from the templates of a campaign.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Value};
use onward_campaign_core::{
    AudienceRecipient, ComposeError, ComposeMessage, DeliveryChannel, RenderedMessage,
};
use thiserror::Error;

use crate::address::{self, AddressError};
use crate::audience::AudienceFields;
use crate::campaign::{Campaign, UNSUBSCRIBE_PART};
use crate::templates::{TemplateError, TemplateErrorKind, TemplateLimits, TemplateSet};

/// Maximum length of a rendered part in bytes.
const PART_BYTES_MAX: usize = 1 << 20;
/// Maximum memory that a template can use while rendering, in bytes.
const MEMORY_BYTES_MAX: u64 = 64 << 20;
/// Step limits of a template; a typical letter needs some hundred steps.
const TEMPLATE_STEPS: RangeInclusive<u64> = 1_000..=500_000;

/// Parts that may have more than one line. In any other part a line break could start a new header.
const MULTILINE_PARTS: [&str; 2] = ["text", "html"];
/// Parts of an email that are a mailbox of the sender.
pub(crate) const MAILBOX_PARTS: [&str; 2] = ["from", "reply_to"];

/// URI schemes of unsubscribe links that mail clients support.
const UNSUBSCRIBE_SCHEMES: [&str; 2] = ["https://", "mailto:"];
/// Maximum length of an unsubscribe link in bytes: it is one line of a header.
const UNSUBSCRIBE_BYTES_MAX: usize = 900;

/// The reason why the templates cannot be compiled, or a recipient's message cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("part `{part}`{}: {error}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct MessageRenderError {
    /// Name of the part with the error.
    pub part: String,
    /// Line of the part's template, counted from 1; `None` if the error has no position.
    pub line: Option<usize>,
    /// What is wrong with the template or with the rendered text.
    pub error: MessagePartError,
}

/// Reasons why one part of a message is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessagePartError {
    /// The template of the part cannot be compiled or rendered.
    #[error(transparent)]
    Template(#[from] TemplateErrorKind),
    /// The rendered part has several lines, and could start a new header.
    #[error("has more than one line, which is allowed in `text` and `html` only")]
    MultipleLines,
    /// The rendered part has control characters.
    #[error("has control characters")]
    ControlCharacters,
    /// The rendered part must be a mailbox, and is not.
    #[error("invalid address: {0}")]
    InvalidMailbox(#[from] AddressError),
    /// The rendered part is not usable as an unsubscribe link.
    #[error("invalid unsubscribe link: {0}")]
    InvalidUnsubscribeLink(#[from] UnsubscribeLinkError),
}

/// Reasons why a text is not valid as the `List-Unsubscribe` header of an email.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UnsubscribeLinkError {
    /// The link has another URI scheme.
    #[error("must start with {}", UNSUBSCRIBE_SCHEMES.join(" or "))]
    UnsupportedScheme,
    /// Nothing follows the URI scheme.
    #[error("nothing follows `{0}`")]
    SchemeOnly(&'static str),
    /// The link exceeds the maximum length.
    #[error("is longer than {UNSUBSCRIBE_BYTES_MAX} bytes")]
    TooLong,
    /// The link has characters that would end it or separate it from another.
    #[error(
        "has spaces, control characters, commas, `<` or `>`: encode the values, as in \
         {{{{ id | urlencode }}}}"
    )]
    UnencodedCharacters,
}

/// The compiled templates of a campaign.
#[derive(Debug)]
pub struct TemplateComposer {
    templates: TemplateSet,
    parts: Vec<String>,
    campaign_id: String,
    channel: DeliveryChannel,
    fields: AudienceFields,
}

impl TemplateComposer {
    /// Compiles the templates of a campaign. Fails if a template is invalid or exceeds the limits.
    pub fn new(campaign: &Campaign) -> Result<Self, MessageRenderError> {
        let limits = TemplateLimits {
            output_bytes: PART_BYTES_MAX,
            memory_bytes: MEMORY_BYTES_MAX,
            steps: TEMPLATE_STEPS,
        };
        let escape = |part: &str| {
            if part == "html" {
                AutoEscape::Html
            } else {
                AutoEscape::None
            }
        };
        let (mut templates, mut parts) = (TemplateSet::new(limits, escape), Vec::new());
        for (part, text) in campaign.template_parts() {
            templates
                .add_template(part, text)
                .map_err(|error| render_error(part, error))?;
            parts.push(part.to_owned());
        }
        let (id, channel) = (campaign.id.clone(), campaign.channel);
        Ok(Self {
            templates,
            parts,
            campaign_id: id,
            channel,
            fields: campaign.audience_fields(),
        })
    }

    /// Renders the message of a recipient. Fails if a template cannot be rendered, or if a rendered
    /// part is invalid.
    pub fn render_message(
        &self,
        recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, MessageRenderError> {
        let variables = self.template_variables(recipient);
        let row_bytes = recipient
            .data
            .iter()
            .map(|(name, value)| estimate_bytes(value) + name.len() as u64)
            .sum::<u64>()
            + (recipient.id.len() + recipient.address.len()) as u64;
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let text = self
                .templates
                .render(part, &variables, row_bytes)
                .map_err(|error| render_error(part, error))?;
            self.check_part(part, &text)
                .map_err(|error| MessageRenderError {
                    part: part.clone(),
                    line: None,
                    error,
                })?;
            parts.push((part.clone(), text));
        }
        Ok(RenderedMessage { parts })
    }

    /// The variables of the templates. The built-in variables, such as `id` and `to`, take
    /// precedence over the fields of the recipient's row.
    fn template_variables(&self, recipient: &AudienceRecipient) -> Value {
        let data = Value::from(Serde(&recipient.data));
        let mut variables: BTreeMap<&str, Value> = BTreeMap::new();
        for (name, value) in &recipient.data {
            variables.insert(name, Value::from(Serde(value)));
        }
        if let Some(id) = &self.fields.id {
            variables.insert(id, recipient.id.as_str().into());
        }
        variables.insert(&self.fields.address, recipient.address.as_str().into());
        variables.insert("id", recipient.id.as_str().into());
        variables.insert("to", recipient.address.as_str().into());
        variables.insert("campaign", self.campaign_id.as_str().into());
        variables.insert("channel", self.channel.as_str().into());
        variables.insert("data", data);
        Value::from_pairs(variables)
    }

    fn check_part(&self, part: &str, text: &str) -> Result<(), MessagePartError> {
        if MULTILINE_PARTS.contains(&part) {
            return Ok(());
        }
        if text.contains(['\r', '\n']) {
            return Err(MessagePartError::MultipleLines);
        }
        if text.chars().any(|c| c.is_control() && c != '\t') {
            return Err(MessagePartError::ControlCharacters);
        }
        if part == UNSUBSCRIBE_PART {
            check_unsubscribe_link(text)?;
        }
        if self.channel == DeliveryChannel::Email && MAILBOX_PARTS.contains(&part) {
            address::check_mailbox(text)?;
        }
        Ok(())
    }
}

impl ComposeMessage for TemplateComposer {
    fn compose_message(
        &self,
        recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, ComposeError> {
        self.render_message(recipient).map_err(ComposeError::new)
    }
}

/// Fails if the text is not valid as the `List-Unsubscribe` header of an email.
fn check_unsubscribe_link(text: &str) -> Result<(), UnsubscribeLinkError> {
    let has_scheme = |scheme: &&str| {
        text.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let scheme = UNSUBSCRIBE_SCHEMES
        .into_iter()
        .find(has_scheme)
        .ok_or(UnsubscribeLinkError::UnsupportedScheme)?;
    if text.len() == scheme.len() {
        return Err(UnsubscribeLinkError::SchemeOnly(scheme));
    }
    if text.len() > UNSUBSCRIBE_BYTES_MAX {
        return Err(UnsubscribeLinkError::TooLong);
    }
    if text
        .chars()
        .any(|c| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ','))
    {
        return Err(UnsubscribeLinkError::UnencodedCharacters);
    }
    Ok(())
}

fn render_error(part: &str, TemplateError { line, kind }: TemplateError) -> MessageRenderError {
    MessageRenderError {
        part: part.to_owned(),
        line,
        error: kind.into(),
    }
}

/// Estimates the memory that a value uses, in bytes.
fn estimate_bytes(value: &serde_json::Value) -> u64 {
    use serde_json::Value as Json;
    const VALUE_BYTES: u64 = 64;
    VALUE_BYTES
        + match value {
            Json::Null | Json::Bool(_) | Json::Number(_) => 0,
            Json::String(text) => text.len() as u64,
            Json::Array(list) => list.iter().map(estimate_bytes).sum(),
            Json::Object(map) => map
                .iter()
                .map(|(name, value)| name.len() as u64 + estimate_bytes(value))
                .sum(),
        }
}
