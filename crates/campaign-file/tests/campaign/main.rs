//! Tests of campaign files, audiences and templates, valid and malicious ones.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot continue must show where"
)]

mod audiences;
mod checks;
mod files;
mod memory;
mod templates;

use onward_campaign_core::AudienceRecipient;
use onward_campaign_file::Campaign;

/// A small campaign with this template and these further fields.
fn campaign_with(template: &str, fields: &str) -> Campaign {
    parse(&text_with(template, fields)).unwrap()
}

fn text_with(template: &str, fields: &str) -> String {
    format!(
        "campaign: news\nchannel: email\nprovider: mailer\naudience: {{ file: people.csv }}\ntemplate: {template}\n{fields}\n"
    )
}

/// Parses a campaign that references no template files.
fn parse(text: &str) -> Result<Campaign, onward_campaign_file::Error> {
    Campaign::parse(text, &|_| Err(std::io::ErrorKind::NotFound.into()))
}

/// The template of an ordinary email.
const LETTER: &str =
    "{ from: news@example.com, subject: 'Hello {{ name }}', text: 'Dear {{ name }}' }";

fn recipient(data: serde_json::Value) -> AudienceRecipient {
    let serde_json::Value::Object(data) = data else {
        panic!("not an object: {data}")
    };
    AudienceRecipient {
        id: "7".to_owned(),
        address: "ada@example.com".to_owned(),
        data,
    }
}
