//! What somebody would be sent, for those who know providers: so that they can try before anybody is sent anything.

use onward_campaign_core::{AudienceRecipient, DeliveryChannel, RenderedMessage};

use crate::campaign::{Campaign, UNSUBSCRIBE_PART};
use crate::template_composer::MAILBOX_PARTS;

/// What stands for a text that is not known yet: a word, a number, or something that is read by whoever is given it.
const PLACEHOLDER_TEXTS: [&str; 3] = ["sample", "1", "{}"];

const PLACEHOLDER_MAILBOX: &str = "somebody@example.org";
const PLACEHOLDER_PHONE: &str = "+49301234567";
const PLACEHOLDER_ACCOUNT: &str = "somebody";
const PLACEHOLDER_LINK: &str = "https://example.org/";

/// What somebody would be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleMessage {
    /// Who.
    pub recipient: String,
    /// Where.
    pub to: String,
    /// What.
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

    /// What people who are not known yet might be sent, to be tried one after the other. What is filled in will be something
    /// else, so one that is of use is enough.
    pub fn placeholder_samples(campaign: &Campaign) -> impl Iterator<Item = Self> {
        PLACEHOLDER_TEXTS
            .into_iter()
            .enumerate()
            .map(|(place, text)| {
                let parts = campaign.template_parts().map(|(part, template)| {
                    (part.to_owned(), placeholder_part(part, template, text))
                });
                let to = match campaign.channel {
                    DeliveryChannel::Email => PLACEHOLDER_MAILBOX,
                    DeliveryChannel::Voice => PLACEHOLDER_PHONE,
                    // An account may be written as an address of mail is.
                    DeliveryChannel::Social => {
                        [PLACEHOLDER_ACCOUNT, PLACEHOLDER_MAILBOX][place.min(1)]
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

/// What a template might say: itself, if there is nothing to fill in.
fn placeholder_part(part: &str, template: &str, text: &str) -> String {
    match part {
        _ if !template.contains('{') => template.to_owned(),
        UNSUBSCRIBE_PART => PLACEHOLDER_LINK.to_owned(),
        part if MAILBOX_PARTS.contains(&part) => PLACEHOLDER_MAILBOX.to_owned(),
        _ => text.to_owned(),
    }
}
