//! What each recipient is sent, made from the templates of a campaign.

use std::collections::BTreeMap;
use std::io::{self, Write};

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value};
use onward_dispatch::Channel;
use onward_dispatcher::{Compose, Message, Recipient};
use thiserror::Error;

use crate::address;
use crate::audience::Fields;
use crate::campaign::Campaign;
use crate::depth::too_deep;

/// Bytes of a part, at most.
const PART_BYTES_MAX: usize = 1 << 20;
/// Steps of a template, at most. A letter has some hundreds.
const STEPS_MAX: u64 = 500_000;
/// Templates within templates; what is deeper is hardly written by hand.
const DEPTH_MAX: usize = 100;

/// Parts that have lines. In any other the end of a line could begin a header.
const WITH_LINES: [&str; 2] = ["text", "html"];
/// Parts of a mail that say who it is from.
const MAILBOXES: [&str; 2] = ["from", "reply_to"];

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
    templates: Environment<'static>,
    parts: Vec<String>,
    campaign: String,
    channel: Channel,
    fields: Fields,
}

impl Composer {
    /// Reads the templates of a campaign.
    pub fn new(campaign: &Campaign) -> Result<Self, Unfit> {
        let mut templates = Environment::new();
        templates.set_undefined_behavior(UndefinedBehavior::Strict);
        templates.set_auto_escape_callback(|part| if part == "html" { AutoEscape::Html } else { AutoEscape::None });
        templates.set_fuel(Some(STEPS_MAX));
        templates.set_recursion_limit(DEPTH_MAX);
        templates.set_debug(true);
        // With it a loop could put a list into a list, without end.
        templates.remove_global("namespace");
        let mut parts = Vec::new();
        for (part, text) in campaign.parts() {
            if let Some((line, reason)) = too_deep(text) {
                return Err(Unfit { part: part.to_owned(), line: Some(line), reason });
            }
            let added = templates.add_template_owned(part.to_owned(), text.to_owned());
            added.map_err(|error| unfit(part, &error))?;
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
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let text = self.render(part, &variables)?;
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

    fn render(&self, part: &str, variables: &Value) -> Result<String, Unfit> {
        let mut text = Limited { bytes: Vec::new(), is_full: false };
        let template = self.templates.get_template(part).map_err(|error| unfit(part, &error))?;
        let rendered = template.render_captured_to(variables.clone(), &mut text).map(drop);
        let fail = |reason: String| Unfit { part: part.to_owned(), line: None, reason };
        match rendered {
            Err(_) if text.is_full => Err(fail(format!("is longer than {PART_BYTES_MAX} bytes"))),
            Err(error) => Err(unfit(part, &error)),
            Ok(()) => String::from_utf8(text.bytes).map_err(|_| fail("is not UTF-8".to_owned())),
        }
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

fn unfit(part: &str, error: &minijinja::Error) -> Unfit {
    let reason = match error.kind() {
        ErrorKind::UndefinedError => match culprit(error) {
            Some(name) => format!("`{name}` is not defined"),
            None => "something is not defined".to_owned(),
        },
        ErrorKind::OutOfFuel => "takes too many steps: is there a loop that does not end?".to_owned(),
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    };
    Unfit { part: part.to_owned(), line: error.line(), reason }
}

/// The piece of the template that is not defined.
fn culprit(error: &minijinja::Error) -> Option<&str> {
    let (source, range) = (error.template_source()?, error.range()?);
    // Of `a.b.c` it may be told the end alone.
    let is_before = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let start = source.get(..range.start)?.trim_end_matches(is_before).len();
    let piece = source.get(start..range.end)?.trim();
    (!piece.is_empty() && piece.len() <= 200).then_some(piece)
}

/// A text that does not grow for ever.
struct Limited {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > PART_BYTES_MAX {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
