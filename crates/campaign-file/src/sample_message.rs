//! Sample messages, with which a provider can validate a campaign before any message is sent.

use onward_campaign_core::{AudienceRecipient, DeliveryChannel, RenderedMessage};

use crate::campaign::{Campaign, UNSUBSCRIBE_PART};
use crate::template_composer::MAILBOX_PARTS;

/// Placeholders for template parts whose value is not known yet: a word, a number, and an empty
/// JSON object for parts that the provider parses.
const PLACEHOLDER_TEXTS: [&str; 3] = ["sample", "1", "{}"];

const PLACEHOLDER_MAILBOX: &str = "recipient@example.org";
const PLACEHOLDER_PHONE: &str = "+49301234567";
const PLACEHOLDER_ACCOUNT: &str = "recipient";
const PLACEHOLDER_LINK: &str = "https://example.org/";

/// A message as a recipient would receive it, for validation only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleMessage {
    /// Id of the recipient.
    pub recipient: String,
    /// Address of the recipient on the channel of the campaign.
    pub to: String,
    /// The rendered message, or placeholder texts if no recipient is known.
    pub message: RenderedMessage,
}

impl SampleMessage {
    pub(crate) fn new(recipient: &AudienceRecipient, message: RenderedMessage) -> Self {
        Self {
            recipient: recipient.id.clone(),
            to: recipient.address.clone(),
            message,
        }
    }

    /// Returns samples for recipients that are not known yet, to be tried in order. The values of
    /// the real messages will be different, so it is sufficient if one of the samples is valid.
    pub fn placeholder_samples(campaign: &Campaign) -> impl Iterator<Item = Self> {
        PLACEHOLDER_TEXTS
            .into_iter()
            .enumerate()
            .map(|(index, text)| {
                let parts = campaign.template_parts().map(|(part, template)| {
                    (part.to_owned(), placeholder_part(part, template, text))
                });
                let to = match campaign.channel {
                    DeliveryChannel::Email => PLACEHOLDER_MAILBOX,
                    DeliveryChannel::Voice => PLACEHOLDER_PHONE,
                    // An account name may have the form of an email address.
                    DeliveryChannel::Social => {
                        [PLACEHOLDER_ACCOUNT, PLACEHOLDER_MAILBOX][index.min(1)]
                    }
                };
                Self {
                    recipient: "1".to_owned(),
                    to: to.to_owned(),
                    message: RenderedMessage {
                        parts: parts.collect(),
                    },
                }
            })
    }
}

/// Returns a placeholder for a part, or the template itself if it has no variables.
fn placeholder_part(part: &str, template: &str, text: &str) -> String {
    match part {
        _ if !template.contains('{') => template.to_owned(),
        UNSUBSCRIBE_PART => PLACEHOLDER_LINK.to_owned(),
        part if MAILBOX_PARTS.contains(&part) => PLACEHOLDER_MAILBOX.to_owned(),
        _ => text.to_owned(),
    }
}
