//! What somebody would be sent, for those who know providers: so that they can try before anybody is sent anything.

use onward_dispatch::Channel;
use onward_dispatcher::{Message, Recipient};

use crate::campaign::{Campaign, UNSUBSCRIBE};
use crate::compose::MAILBOXES;

/// What stands for a text that is not known yet: a word, a number, or something that is read by whoever is given it.
const TEXTS: [&str; 3] = ["sample", "1", "{}"];

const MAILBOX: &str = "somebody@example.org";
const NUMBER: &str = "+49301234567";
const ACCOUNT: &str = "somebody";
const LINK: &str = "https://example.org/";

/// What somebody would be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Who.
    pub recipient: String,
    /// Where.
    pub to: String,
    /// What.
    pub message: Message,
}

impl Sample {
    pub(crate) fn new(recipient: &Recipient, message: Message) -> Self {
        Self { recipient: recipient.id.clone(), to: recipient.address.clone(), message }
    }

    /// What people who are not known yet might be sent, to be tried one after the other. What is filled in will be something
    /// else, so one that is of use is enough.
    pub fn stand_ins(campaign: &Campaign) -> impl Iterator<Item = Self> {
        TEXTS.into_iter().enumerate().map(|(place, text)| {
            let parts = campaign.parts().map(|(part, template)| (part.to_owned(), filled(part, template, text)));
            let to = match campaign.channel {
                Channel::Email => MAILBOX,
                Channel::Voice => NUMBER,
                // An account may be written as an address of mail is.
                Channel::Social => [ACCOUNT, MAILBOX][place.min(1)],
            };
            Self { recipient: "1".to_owned(), to: to.to_owned(), message: Message { parts: parts.collect() } }
        })
    }
}

/// What a template might say: itself, if there is nothing to fill in.
fn filled(part: &str, template: &str, text: &str) -> String {
    match part {
        _ if !template.contains('{') => template.to_owned(),
        UNSUBSCRIBE => LINK.to_owned(),
        part if MAILBOXES.contains(&part) => MAILBOX.to_owned(),
        _ => text.to_owned(),
    }
}
