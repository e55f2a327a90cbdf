//! Campaign files: parsing, validation, the stored document and the errors with their position.

use std::fs;
use std::path::Path;

use onward_campaign_core::DeliveryChannel;
use onward_campaign_file::{
    AudienceFormat, Campaign, CampaignRetries, Error, InvalidRowPolicy, ProviderRef,
};
use proptest::prelude::*;

use crate::checks::check_with_audience;
use crate::{LETTER, campaign_with, parse, text_with};

/// A campaign file with all fields.
const COMPLETE: &str = r#"
campaign: spring-news
channel: email
provider: mailer
template:
  from: "News <news@example.com>"
  subject: "Hello {{ name }}"
  text: { file: letter.txt }
unsubscribe: "https://example.com/u/{{ id }}"
audience:
  file: people.csv
  id: number
  address: mail
  invalid_rows: skip
schedule:
  at: 2026-12-01T09:00:00
  time_zone: Europe/Berlin
  quiet_hours: { from: "21:00", until: "08:00", time_zone: Europe/Berlin, time_zone_field: timezone }
job_size: 50
version: v1
retries: { max_sends: 3, max_attempts: 4, initial_backoff_ms: 10, max_backoff_ms: 20 }
"#;

fn parse_error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_campaign_file_is_loaded_with_its_template_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("campaign.yaml");
    fs::write(&path, COMPLETE).unwrap();
    let missing = Campaign::load(&path).unwrap_err();
    assert!(
        matches!(&missing, Error::Read { path, .. } if path == "letter.txt"),
        "{missing}"
    );

    fs::write(folder.path().join("letter.txt"), "Dear {{ name }},\n").unwrap();
    let campaign = Campaign::load(&path).unwrap();
    assert_eq!(
        (campaign.id.as_str(), campaign.channel),
        ("spring-news", DeliveryChannel::Email)
    );
    assert_eq!(campaign.provider, ProviderRef::Named("mailer".into()));
    assert_eq!(campaign.template["text"], "Dear {{ name }},\n");
    assert_eq!(
        campaign.audience.resolve_format().unwrap(),
        AudienceFormat::Csv
    );
    assert_eq!(campaign.audience.invalid_rows, InvalidRowPolicy::Skip);
    assert_eq!(campaign.audience_fields().address, "mail");
    assert_eq!(
        campaign.audience_path(&path),
        folder.path().join("people.csv")
    );
    assert_eq!(
        campaign.schedule.start_time().unwrap().unwrap().to_string(),
        "2026-12-01T08:00:00Z"
    );
    assert_eq!((campaign.job_size, &*campaign.asset_version()), (50, "v1"));
    assert_eq!(
        campaign.retries,
        CampaignRetries {
            max_sends: 3,
            max_attempts: 4,
            initial_backoff_ms: 10,
            max_backoff_ms: 20,
        }
    );
    assert_eq!(
        Campaign::from_document(&campaign.to_document()).unwrap(),
        campaign
    );
}

#[test]
fn the_example_of_the_documentation_is_a_valid_campaign_file() {
    let page = include_str!("../../../../docs/campaigns.md");
    let example = page
        .split("```yaml\n")
        .nth(1)
        .and_then(|it| it.split("```").next())
        .unwrap();
    let campaign = Campaign::parse(example, &|file| Ok(file.to_owned())).unwrap();
    assert_eq!(campaign.template["text"], "letter.txt");
    onward_campaign_file::TemplateComposer::new(&campaign).unwrap();
}

#[test]
fn the_examples_meet_all_prerequisites() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/campaigns");
    for name in ["calls.yaml", "newsletter.yaml", "smtp.yaml"] {
        let file = folder.join(name);
        let campaign = Campaign::load(&file).unwrap();
        let audience = fs::read_to_string(campaign.audience_path(&file)).unwrap();
        let prerequisites = check_with_audience(&campaign, &audience);
        assert!(
            prerequisites.iter().all(|it| it.pass),
            "{name}: {prerequisites:?}"
        );
    }
}

#[test]
fn optional_fields_have_defaults() {
    let campaign = campaign_with(LETTER, "");
    assert_eq!(
        (
            campaign.job_size,
            campaign.retries.max_sends,
            campaign.retries.max_backoff_ms
        ),
        (100, 5, 600_000)
    );
    assert_eq!(campaign.audience.invalid_rows, InvalidRowPolicy::Reject);
    assert_eq!(
        (
            campaign.audience_fields().id,
            campaign.audience_fields().address
        ),
        (None, "email".to_owned())
    );
    assert_eq!(campaign.schedule.start_time(), Ok(None));
    let voice = text_with(LETTER, "").replace("channel: email", "channel: voice");
    assert_eq!(parse(&voice).unwrap().audience_fields().address, "phone");
}

#[test]
fn a_provider_may_be_defined_inline() {
    let text = text_with(LETTER, "").replace(
        "provider: mailer",
        "provider: { kind: smtp, port: 25, hosts: [a, b] }",
    );
    let campaign = parse(&text).unwrap();
    let ProviderRef::Inline(definition) = &campaign.provider else {
        panic!("{:?}", campaign.provider)
    };
    assert_eq!(
        serde_json::to_string(definition).unwrap(),
        r#"{"hosts":["a","b"],"kind":"smtp","port":25}"#
    );
    assert_eq!(
        Campaign::from_document(&campaign.to_document()).unwrap(),
        campaign
    );
}

#[test]
fn a_syntax_error_has_the_line_and_column() {
    assert_eq!(
        parse_error(&text_with(LETTER, "job_size: many")),
        "line 6, column 11: expected a whole number, 0 or greater",
        "the message does not repeat the position"
    );
    let misspelled = parse(&text_with(LETTER, "job_szie: 3")).unwrap_err();
    assert!(
        matches!(&misspelled, Error::Syntax { line: 6, column: 1, message } if message.contains("job_szie")),
        "{misspelled:?}"
    );
    let channel =
        parse(&text_with(LETTER, "").replace("channel: email", "channel: fax")).unwrap_err();
    assert!(
        matches!(&channel, Error::Syntax { line: 2, message, .. } if message.contains("fax")),
        "{channel:?}"
    );
    let part = parse(&text_with("{ text: [1] }", "")).unwrap_err();
    assert!(matches!(&part, Error::Syntax { line: 5, .. }), "{part:?}");
    let quiet_hours = parse(&text_with(
        LETTER,
        "schedule:\n  quiet_hours: { from: '21:00', until: '8', time_zone: UTC }",
    ))
    .unwrap_err();
    assert!(
        matches!(&quiet_hours, Error::Syntax { line: 7, message, .. } if message.contains("`8`")),
        "{quiet_hours:?}"
    );
}

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[test]
fn syntax_errors_are_phrased_for_authors_of_campaign_files() {
    for (fields, message) in [
        (
            "job_size: -1",
            "line 6, column 11: expected a whole number, 0 or greater",
        ),
        (
            "channel: voice",
            "line 6, column 1: duplicate field `channel`",
        ),
        (
            "---\na: b",
            "line 6, column 1: a second document starts here (`---`): a campaign file has one document",
        ),
        (
            "schedule:\n  <<: { at: now }",
            "line 7, column 3: merge keys (`<<`) are not supported",
        ),
    ] {
        assert_eq!(parse_error(&text_with(LETTER, fields)), message);
    }
    for (template, message) in [
        (
            "\n  text: {{ name }}",
            "line 6, column 10: templates must be quoted: \"{{ name }}\"",
        ),
        (
            "{ text: {{ name }} }",
            "line 5, column 20: templates must be quoted: \"{{ name }}\"",
        ),
        (
            "\n  text: {% if a %}x{% endif %}",
            "line 6, column 10: templates must be quoted: \"{{ name }}\"",
        ),
        (
            "hello",
            "line 5, column 11: expected fields with values, such as `name: value`",
        ),
        (
            "{ text: [1] }",
            "line 5, column 13: expected a text, or `file:` with the path of a file",
        ),
    ] {
        assert_eq!(parse_error(&text_with(template, "")), message);
    }
    for (audience, message) in [
        (
            "{ file: [a] }",
            "line 4, column 19: expected one value: a text or a number",
        ),
        (
            "{ file: a.csv, format: xls }",
            "line 4, column 34: expected one of csv, tsv, jsonl, ndjson",
        ),
        ("{ }", "line 4, column 11: required field `file` is missing"),
    ] {
        assert_eq!(
            parse_error(&text_with(LETTER, "").replace("{ file: people.csv }", audience)),
            message
        );
    }
    let provider = parse_error(&text_with(LETTER, "").replace("mailer", "[a]"));
    assert!(
        provider.ends_with("expected the name of a provider, or an inline definition"),
        "{provider}"
    );
    let deep = format!("{{ smtp: {}{} }}", "[".repeat(60), "]".repeat(60));
    let nested_error = parse_error(&text_with(LETTER, "").replace("mailer", &deep));
    assert!(
        nested_error.ends_with("the campaign file is too large or nested too deeply"),
        "{nested_error}"
    );
    assert!(parse_error("").ends_with("the file is empty"));
}

#[test]
fn unknown_fields_are_rejected_everywhere() {
    for (template, fields) in [
        ("{ text: { file: a, mode: b } }", ""),
        (LETTER, "retries: { max_send: 1 }"),
        (LETTER, "schedule: { when: now }"),
        (
            LETTER,
            "schedule: { quiet_hours: { from: '21:00', until: '08:00', time_zone: UTC, field: x } }",
        ),
    ] {
        assert!(
            parse(&text_with(template, fields)).is_err(),
            "{template} {fields}"
        );
    }
    assert!(
        parse(&text_with(LETTER, "").replace("file: people.csv", "file: people.csv, rows: 3"))
            .is_err()
    );
    let mut document: serde_json::Value =
        serde_json::from_str(&campaign_with(LETTER, "").to_document()).unwrap();
    document["more"] = 1.into();
    assert!(Campaign::from_document(&document.to_string()).is_err());
}

#[test]
fn invalid_values_are_rejected_with_the_path_of_the_field() {
    for (fields, field) in [
        ("job_size: 0", "job_size"),
        ("job_size: 1001", "job_size"),
        ("version: 'a b'", "version"),
        ("retries: { max_sends: 0 }", "retries.max_sends"),
        ("retries: { max_attempts: 0 }", "retries.max_attempts"),
        (
            "retries: { max_backoff_ms: 604800001 }",
            "retries.max_backoff_ms",
        ),
        (
            "retries: { initial_backoff_ms: 2, max_backoff_ms: 1 }",
            "retries.initial_backoff_ms",
        ),
        ("schedule: { at: tomorrow }", "schedule.at"),
        ("schedule: { at: 2026-12-01T09:00:00 }", "schedule.at"),
    ] {
        assert!(
            parse_error(&text_with(LETTER, fields)).starts_with(&format!("{field}: ")),
            "{fields}"
        );
    }
    assert!(parse_error(&text_with("{}", "")).starts_with("template: "));
    assert!(
        parse_error(&text_with("{ text: a, unsubscribe: b }", "unsubscribe: c"))
            .starts_with("unsubscribe: ")
    );
    assert!(
        parse_error(&text_with(LETTER, "").replace("campaign: news", "campaign: ../news"))
            .starts_with("campaign: ")
    );
    assert!(
        parse_error(&text_with(LETTER, "").replace("people.csv", "people.xls"))
            .starts_with("audience.format: ")
    );
    assert!(
        parse_error(&text_with(LETTER, "job_size: 3\njob_size: 4")).contains("duplicate field")
    );
    for fields in [
        "delimiter: ';;'",
        "delimiter: '\"'",
        "delimiter: 'ä'",
        "delimiter: ';', format: jsonl",
    ] {
        let text = text_with(LETTER, "")
            .replace("file: people.csv", &format!("file: people.csv, {fields}"));
        assert!(parse(&text).is_err(), "{fields}");
    }
}

#[test]
fn an_alias_expansion_attack_is_rejected() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    let inside = text_with(LETTER, "").replace(
        "provider: mailer",
        &format!("provider:\n  {}", bomb.replace('\n', "\n  ")),
    );
    for text in [
        bomb,
        inside,
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        format!("campaign: {}", "- ".repeat(50_000)),
    ] {
        assert!(matches!(parse(&text), Err(Error::Syntax { .. })));
    }
    let long = format!("a: &a {}\n", "x".repeat(100_000));
    let repeated = format!("{long}  b: [{}]", "*a, ".repeat(90));
    let text =
        text_with(LETTER, "").replace("provider: mailer", &format!("provider:\n  {repeated}"));
    assert!(matches!(
        parse(&text),
        Err(Error::Syntax { .. } | Error::InvalidField { .. })
    ));
}

#[test]
fn the_size_of_campaign_and_template_files_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("campaign.yaml");
    fs::write(&path, COMPLETE).unwrap();
    fs::write(folder.path().join("letter.txt"), "x".repeat((1 << 20) + 1)).unwrap();
    assert!(
        Campaign::load(&path)
            .unwrap_err()
            .to_string()
            .contains("longer than 1048576 bytes")
    );
    fs::write(folder.path().join("letter.txt"), b"\xff\xfe").unwrap();
    assert!(
        Campaign::load(&path)
            .unwrap_err()
            .to_string()
            .contains("not UTF-8")
    );
    fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
    assert!(Campaign::load(&path).is_err());
    assert!(Campaign::load(folder.path()).is_err());
}

#[test]
fn the_asset_version_depends_on_the_templates_only() {
    let version =
        |template: &str, fields: &str| campaign_with(template, fields).asset_version().to_string();
    let default = version("{ text: a }", "");
    assert_eq!(default.len(), 32);
    assert_eq!(default, version("{ text: a }", "job_size: 3"));
    for (template, fields) in [
        ("{ text: b }", ""),
        ("{ html: a }", ""),
        ("{ text: a }", "unsubscribe: u"),
    ] {
        assert_ne!(default, version(template, fields), "{template} {fields}");
    }
}

proptest! {
    #[test]
    fn no_input_causes_a_panic(text in "(\\PC|\n|[a-z]+: |  |- |&a |\\*a |\\{|\\[|\"|'){0,60}") {
        drop(parse(&text));
        drop(Campaign::from_document(&text));
    }

    #[test]
    fn a_document_is_parsed_to_an_equal_campaign(subject in "\\PC{0,30}", text in "(\\PC|\n|\r\n){0,60}", job_size in 1..=1000_u32) {
        let mut campaign = campaign_with(LETTER, "");
        campaign.template.insert("subject".into(), subject);
        campaign.template.insert("text".into(), text);
        campaign.job_size = job_size;
        let document = campaign.to_document();
        let parsed = Campaign::from_document(&document).unwrap();
        prop_assert_eq!(parsed.to_document(), document);
        prop_assert_eq!(parsed, campaign);
    }
}
