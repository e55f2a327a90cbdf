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
use crate::bounds::{self, Bytes};
use crate::campaign::{Campaign, UNSUBSCRIBE};
use crate::depth::too_deep;
use crate::filters;

/// Bytes of a part, at most.
pub(crate) const PART_BYTES_MAX: usize = 1 << 20;
/// Bytes of what a template computes on the way, at most.
const MEMORY_MAX: u64 = 64 << 20;
/// Bytes that all steps of a template together can touch: some seconds.
const WORK_MAX: u64 = 16 << 30;
/// Steps that any template has, however much each can touch.
const STEPS_MIN: u64 = 1_000;
/// Steps of a template, at most. A letter has some hundreds.
const STEPS_MAX: u64 = 500_000;
/// Templates within templates; what is deeper is hardly written by hand.
const DEPTH_MAX: usize = 100;

/// Parts that have lines. In any other the end of a line could begin a header.
const WITH_LINES: [&str; 2] = ["text", "html"];
/// Parts of a mail that say who it is from.
const MAILBOXES: [&str; 2] = ["from", "reply_to"];

/// How one can unsubscribe.
const WAYS_OUT: [&str; 3] = ["https://", "http://", "mailto:"];

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
    /// The parts, and what each can take in memory.
    parts: Vec<(String, Bytes)>,
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
        templates.remove_global("debug");
        filters::limit(&mut templates);
        let mut parts = Vec::new();
        for (part, text) in campaign.parts() {
            if let Some((line, reason)) = too_deep(text) {
                return Err(Unfit { part: part.to_owned(), line: Some(line), reason });
            }
            // Before it is compiled, which computes what is known by then.
            let bytes = bounds::of(text, MEMORY_MAX);
            let bytes = bytes.map_err(|(line, reason)| Unfit { part: part.to_owned(), line: Some(line), reason })?;
            let added = templates.add_template_owned(part.to_owned(), text.to_owned());
            added.map_err(|error| unfit(part, &error))?;
            parts.push((part.to_owned(), bytes));
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
        for (part, bytes) in &self.parts {
            let text = self.render(part, bytes.of(row), &variables)?;
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

    /// Fills in a part that can take so many bytes of memory for this recipient.
    fn render(&self, part: &str, bytes: u64, variables: &Value) -> Result<String, Unfit> {
        let fail = |reason: String| Unfit { part: part.to_owned(), line: None, reason };
        if bytes > MEMORY_MAX {
            return Err(fail(format!("could come to more than {} MiB for this recipient", MEMORY_MAX >> 20)));
        }
        // Where each step can touch much, there are fewer of them.
        let steps = (WORK_MAX / bytes.max(1)).max(STEPS_MIN);
        let mut slower = None;
        if steps < STEPS_MAX {
            slower.insert(self.templates.clone()).set_fuel(Some(steps));
        }
        let templates = slower.as_ref().unwrap_or(&self.templates);
        let mut text = Limited { bytes: Vec::new(), is_full: false };
        let template = templates.get_template(part).map_err(|error| unfit(part, &error))?;
        let rendered = template.render_captured_to(variables.clone(), &mut text).map(drop);
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
        if part == UNSUBSCRIBE && !WAYS_OUT.iter().any(|way| text.trim_start().starts_with(way)) {
            return Err(format!("begins with none of {}", WAYS_OUT.join(", ")));
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
