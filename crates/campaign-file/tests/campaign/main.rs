//! Campaign files as people write them, and as those write them who mean harm.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says where"
)]

mod audiences;
mod checks;
mod files;
mod memory;
mod templates;

use onward_campaign_core::AudienceRecipient;
use onward_campaign_file::Campaign;

/// A small campaign, with this in place of its template, and this at its end.
fn campaign_with(template: &str, rest: &str) -> Campaign {
    parse(&text_with(template, rest)).unwrap()
}

fn text_with(template: &str, rest: &str) -> String {
    format!(
        "campaign: news\nchannel: email\nprovider: mailer\naudience: {{ file: people.csv }}\ntemplate: {template}\n{rest}\n"
    )
}

/// Reads a campaign that names no files.
fn parse(text: &str) -> Result<Campaign, onward_campaign_file::Error> {
    Campaign::parse(text, &|_| Err(std::io::ErrorKind::NotFound.into()))
}

const LETTER: &str =
    "{ from: news@example.com, subject: 'Hello {{ name }}', text: 'Dear {{ name }}' }";

fn recipient(data: serde_json::Value) -> AudienceRecipient {
    let serde_json::Value::Object(data) = data else {
        panic!("no object: {data}")
    };
    AudienceRecipient {
        id: "7".to_owned(),
        address: "ada@example.com".to_owned(),
        data,
    }
}
