//! What each recipient is sent, made from the templates of a campaign.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Value};
use onward_dispatch::Channel;
use onward_dispatcher::{Compose, Message, Recipient};
use onward_templates::{Limits, Templates, Wrong};
use thiserror::Error;

use crate::address;
use crate::audience::Fields;
use crate::campaign::{Campaign, UNSUBSCRIBE};

/// Bytes of a part, at most.
const PART_BYTES_MAX: usize = 1 << 20;
/// Bytes of what a template computes on the way, at most.
const MEMORY_MAX: u64 = 64 << 20;
/// Steps of a template: a letter has some hundreds.
const STEPS: RangeInclusive<u64> = 1_000..=500_000;

/// Parts that have lines. In any other the end of a line could begin a header.
const WITH_LINES: [&str; 2] = ["text", "html"];
/// Parts of a mail that say who it is from.
pub(crate) const MAILBOXES: [&str; 2] = ["from", "reply_to"];

/// How one can unsubscribe: what programs for mail follow.
const WAYS_OUT: [&str; 2] = ["https://", "mailto:"];
/// Bytes of that, at most: it is a line of a header.
const WAY_OUT_BYTES_MAX: usize = 900;

/// Why there is nothing to send.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("part `{part}`{}: {reason}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct Unfit {
    /// Which part.
    pub part: String,
    /// Which line of its template, from 1.
    pub line: Option<usize>,
    /// What is wrong with it.
    pub reason: String,
}

/// The templates of a campaign, ready to be filled in.
#[derive(Debug)]
pub struct Composer {
    templates: Templates,
    parts: Vec<String>,
    campaign: String,
    channel: Channel,
    fields: Fields,
}

impl Composer {
    /// Reads the templates of a campaign.
    pub fn new(campaign: &Campaign) -> Result<Self, Unfit> {
        let limits = Limits { printed: PART_BYTES_MAX, memory: MEMORY_MAX, steps: STEPS };
        let escape = |part: &str| if part == "html" { AutoEscape::Html } else { AutoEscape::None };
        let (mut templates, mut parts) = (Templates::new(limits, escape), Vec::new());
        for (part, text) in campaign.parts() {
            templates.add(part, text).map_err(|wrong| unfit(part, wrong))?;
            parts.push(part.to_owned());
        }
        let (id, channel) = (campaign.id.clone(), campaign.channel);
        Ok(Self { templates, parts, campaign: id, channel, fields: campaign.fields() })
    }

    /// What this recipient would be sent.
    pub fn preview(&self, recipient: &Recipient) -> Result<Message, String> {
        self.message(recipient).map_err(|unfit| unfit.to_string())
    }

    /// What this recipient is sent, or what is wrong with it.
    pub fn message(&self, recipient: &Recipient) -> Result<Message, Unfit> {
        let variables = self.variables(recipient);
        let row = recipient.data.iter().map(|(name, value)| size(value) + name.len() as u64).sum::<u64>()
            + (recipient.id.len() + recipient.address.len()) as u64;
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let text = self.templates.render(part, &variables, row).map_err(|wrong| unfit(part, wrong))?;
            self.fits(part, &text).map_err(|reason| Unfit { part: part.clone(), line: None, reason })?;
            parts.push((part.clone(), text));
        }
        Ok(Message { parts })
    }

    /// What templates can say. What we know of a recipient comes before what their row says.
    fn variables(&self, recipient: &Recipient) -> Value {
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
        variables.insert("campaign", self.campaign.as_str().into());
        variables.insert("channel", self.channel.as_str().into());
        variables.insert("data", data);
        Value::from_pairs(variables)
    }

    fn fits(&self, part: &str, text: &str) -> Result<(), String> {
        if WITH_LINES.contains(&part) {
            return Ok(());
        }
        if text.contains(['\r', '\n']) {
            return Err("has more than one line, and only `text` and `html` can have that".to_owned());
        }
        if text.chars().any(|c| c.is_control() && c != '\t') {
            return Err("has control characters".to_owned());
        }
        if part == UNSUBSCRIBE {
            is_way_out(text)?;
        }
        if self.channel == Channel::Email && MAILBOXES.contains(&part) {
            address::mailbox(text).map_err(|reason| format!("is no address: {reason}"))?;
        }
        Ok(())
    }
}

impl Compose for Composer {
    fn compose(&self, recipient: &Recipient) -> Result<Message, String> {
        self.preview(recipient)
    }
}

/// Whether this can be the header of a mail that says how to unsubscribe.
fn is_way_out(text: &str) -> Result<(), String> {
    let begins = |way: &&&str| text.get(..way.len()).is_some_and(|start| start.eq_ignore_ascii_case(way));
    let Some(way) = WAYS_OUT.iter().find(begins) else {
        return Err(format!("has to begin with {}", WAYS_OUT.join(" or ")));
    };
    if text.len() == way.len() {
        return Err("ends where it begins".to_owned());
    }
    if text.len() > WAY_OUT_BYTES_MAX {
        return Err(format!("is longer than {WAY_OUT_BYTES_MAX} bytes"));
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ',')) {
        return Err(
            "has spaces, control characters, commas, `<` or `>`: encode them, as in {{ id | urlencode }}".to_owned()
        );
    }
    Ok(())
}

fn unfit(part: &str, Wrong { line, reason }: Wrong) -> Unfit {
    Unfit { part: part.to_owned(), line, reason }
}

/// About how many bytes something takes.
fn size(value: &serde_json::Value) -> u64 {
    use serde_json::Value as Json;
    const EACH: u64 = 64;
    EACH + match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
        Json::String(text) => text.len() as u64,
        Json::Array(list) => list.iter().map(size).sum(),
        Json::Object(map) => map.iter().map(|(name, value)| name.len() as u64 + size(value)).sum(),
    }
}
