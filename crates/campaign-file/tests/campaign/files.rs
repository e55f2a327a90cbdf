//! The file: what it may say, what is made of it, and where it says what it may not.

use std::fs;

use onward_campaign_core::{DeliveryChannel, DispatchPolicy, ExponentialBackoff};
use onward_campaign_file::{AudienceFormat, BadRowPolicy, Campaign, Error, ProviderRef};
use proptest::prelude::*;

use crate::{LETTER, campaign_with, parse, text_with};

const WHOLE: &str = r#"
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
  bad_rows: skip
schedule:
  at: 2026-12-01T09:00:00
  zone: Europe/Berlin
  quiet: { from: "21:00", until: "08:00", zone: Europe/Berlin, zone_field: timezone }
job_items: 50
version: v1
retries: { calls: 3, attempts: 4, first_ms: 10, max_ms: 20 }
"#;

fn refused(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_file_is_loaded_with_the_files_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("campaign.yaml");
    fs::write(&path, WHOLE).unwrap();
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
    assert_eq!(campaign.audience.bad_rows, BadRowPolicy::Skip);
    assert_eq!(campaign.audience_fields().address, "mail");
    assert_eq!(
        campaign.audience_path(&path),
        folder.path().join("people.csv")
    );
    assert_eq!(
        campaign.schedule.start_time().unwrap().unwrap().to_string(),
        "2026-12-01T08:00:00Z"
    );
    assert_eq!((campaign.job_items, &*campaign.asset_version()), (50, "v1"));
    let backoff = ExponentialBackoff {
        initial_ms: 10,
        max_ms: 20,
    };
    let terms = DispatchPolicy {
        window: 9,
        max_sends: 1,
        max_attempts: 1,
        backoff: ExponentialBackoff::default(),
        resend_in_doubt: true,
        lookup_after_ms: None,
    };
    assert_eq!(
        campaign.retries.apply_to_policy(terms),
        DispatchPolicy {
            max_sends: 3,
            max_attempts: 4,
            backoff,
            ..terms
        }
    );
    assert_eq!(
        Campaign::from_document(&campaign.to_document()).unwrap(),
        campaign
    );
}

#[test]
fn the_file_that_the_page_shows_is_one() {
    let page = include_str!("../../../../docs/campaigns.md");
    let shown = page
        .split("```yaml\n")
        .nth(1)
        .and_then(|it| it.split("```").next())
        .unwrap();
    let campaign = Campaign::parse(shown, &|file| Ok(file.to_owned())).unwrap();
    assert_eq!(campaign.template["text"], "letter.txt");
    onward_campaign_file::TemplateComposer::new(&campaign).unwrap();
}

#[test]
fn what_is_not_said_has_a_default() {
    let campaign = campaign_with(LETTER, "");
    assert_eq!(
        (
            campaign.job_items,
            campaign.retries.calls,
            campaign.retries.max_ms
        ),
        (100, 5, 600_000)
    );
    assert_eq!(campaign.audience.bad_rows, BadRowPolicy::Refuse);
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
fn a_provider_may_be_defined_on_the_spot() {
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
fn a_mistake_is_shown_where_it_is() {
    assert_eq!(
        refused(&text_with(LETTER, "job_items: many")),
        "line 6, column 12: this has to be a whole number, from 0 on",
        "and it is said once where that is"
    );
    let misspelt = parse(&text_with(LETTER, "job_itmes: 3")).unwrap_err();
    assert!(
        matches!(&misspelt, Error::Syntax { line: 6, column: 1, message } if message.contains("job_itmes")),
        "{misspelt:?}"
    );
    let channel =
        parse(&text_with(LETTER, "").replace("channel: email", "channel: fax")).unwrap_err();
    assert!(
        matches!(&channel, Error::Syntax { line: 2, message, .. } if message.contains("fax")),
        "{channel:?}"
    );
    let part = parse(&text_with("{ text: [1] }", "")).unwrap_err();
    assert!(matches!(&part, Error::Syntax { line: 5, .. }), "{part:?}");
    let quiet = parse(&text_with(
        LETTER,
        "schedule:\n  quiet: { from: '21:00', until: '8', zone: UTC }",
    ))
    .unwrap_err();
    assert!(
        matches!(&quiet, Error::Syntax { line: 7, message, .. } if message.contains("`8`")),
        "{quiet:?}"
    );
}

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[test]
fn a_mistake_is_told_in_words_of_those_who_write_campaigns() {
    for (rest, words) in [
        (
            "job_items: -1",
            "line 6, column 12: this has to be a whole number, from 0 on",
        ),
        (
            "channel: voice",
            "line 6, column 1: `channel` is said twice",
        ),
        (
            "---\na: b",
            "line 6, column 1: another document begins here (`---`): a campaign file is one",
        ),
        (
            "schedule:\n  <<: { at: now }",
            "line 7, column 3: merge keys (`<<`) cannot be used",
        ),
    ] {
        assert_eq!(refused(&text_with(LETTER, rest)), words);
    }
    for (template, words) in [
        (
            "\n  text: {{ name }}",
            "line 6, column 10: write templates in quotes: \"{{ name }}\"",
        ),
        (
            "{ text: {{ name }} }",
            "line 5, column 20: write templates in quotes: \"{{ name }}\"",
        ),
        (
            "\n  text: {% if a %}x{% endif %}",
            "line 6, column 10: write templates in quotes: \"{{ name }}\"",
        ),
        (
            "hello",
            "line 5, column 11: this has to be fields with their values, such as `name: value`",
        ),
        (
            "{ text: [1] }",
            "line 5, column 13: this has to be a text, or `file:` and the name of a file",
        ),
    ] {
        assert_eq!(refused(&text_with(template, "")), words);
    }
    for (audience, words) in [
        (
            "{ file: [a] }",
            "line 4, column 19: this has to be one value: a text or a number",
        ),
        (
            "{ file: a.csv, format: xls }",
            "line 4, column 34: this has to be one of csv, tsv, jsonl, ndjson",
        ),
        ("{ }", "line 4, column 11: `file` has to be there"),
    ] {
        assert_eq!(
            refused(&text_with(LETTER, "").replace("{ file: people.csv }", audience)),
            words
        );
    }
    let provider = refused(&text_with(LETTER, "").replace("mailer", "[a]"));
    assert!(
        provider.ends_with("this has to be the name of a provider, or its definition"),
        "{provider}"
    );
    let deep = format!("{{ smtp: {}{} }}", "[".repeat(60), "]".repeat(60));
    let deep = refused(&text_with(LETTER, "").replace("mailer", &deep));
    assert!(
        deep.ends_with("this is more, or nested more deeply, than a campaign file can be"),
        "{deep}"
    );
    assert!(refused("").ends_with("the file ends before anything is said"));
}

#[test]
fn unknown_fields_are_refused_everywhere() {
    for (template, rest) in [
        ("{ text: { file: a, mode: b } }", ""),
        (LETTER, "retries: { call: 1 }"),
        (LETTER, "schedule: { when: now }"),
        (
            LETTER,
            "schedule: { quiet: { from: '21:00', until: '08:00', zone: UTC, field: x } }",
        ),
    ] {
        assert!(
            parse(&text_with(template, rest)).is_err(),
            "{template} {rest}"
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
fn what_cannot_be_meant_is_refused() {
    for (rest, field) in [
        ("job_items: 0", "job_items"),
        ("job_items: 1001", "job_items"),
        ("version: 'a b'", "version"),
        ("retries: { calls: 0 }", "retries"),
        ("retries: { first_ms: 2, max_ms: 1 }", "retries"),
        ("schedule: { at: tomorrow }", "schedule.at"),
        ("schedule: { at: 2026-12-01T09:00:00 }", "schedule.at"),
    ] {
        assert!(
            refused(&text_with(LETTER, rest)).starts_with(&format!("{field}: ")),
            "{rest}"
        );
    }
    assert!(refused(&text_with("{}", "")).starts_with("template: "));
    assert!(
        refused(&text_with("{ text: a, unsubscribe: b }", "unsubscribe: c"))
            .starts_with("unsubscribe: ")
    );
    assert!(
        refused(&text_with(LETTER, "").replace("campaign: news", "campaign: ../news"))
            .starts_with("campaign: ")
    );
    assert!(
        refused(&text_with(LETTER, "").replace("people.csv", "people.xls"))
            .starts_with("audience.format: ")
    );
    assert!(refused(&text_with(LETTER, "job_items: 3\njob_items: 4")).contains("said twice"));
    for rest in [
        "delimiter: ';;'",
        "delimiter: '\"'",
        "delimiter: 'ä'",
        "delimiter: ';', format: jsonl",
    ] {
        let text =
            text_with(LETTER, "").replace("file: people.csv", &format!("file: people.csv, {rest}"));
        assert!(parse(&text).is_err(), "{rest}");
    }
}

#[test]
fn a_bomb_of_references_is_refused() {
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
fn files_are_not_read_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("campaign.yaml");
    fs::write(&path, WHOLE).unwrap();
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
fn what_is_sent_has_a_name_of_its_own() {
    let asset =
        |template: &str, rest: &str| campaign_with(template, rest).asset_version().to_string();
    let usual = asset("{ text: a }", "");
    assert_eq!(usual.len(), 32);
    assert_eq!(usual, asset("{ text: a }", "job_items: 3"));
    for (template, rest) in [
        ("{ text: b }", ""),
        ("{ html: a }", ""),
        ("{ text: a }", "unsubscribe: u"),
    ] {
        assert_ne!(usual, asset(template, rest), "{template} {rest}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(\\PC|\n|[a-z]+: |  |- |&a |\\*a |\\{|\\[|\"|'){0,60}") {
        drop(parse(&text));
        drop(Campaign::from_document(&text));
    }

    #[test]
    fn a_document_is_read_back_as_it_was(subject in "\\PC{0,30}", text in "(\\PC|\n|\r\n){0,60}", job_items in 1..=1000_u32) {
        let mut campaign = campaign_with(LETTER, "");
        campaign.template.insert("subject".into(), subject);
        campaign.template.insert("text".into(), text);
        campaign.job_items = job_items;
        let document = campaign.to_document();
        let again = Campaign::from_document(&document).unwrap();
        prop_assert_eq!(again.to_document(), document);
        prop_assert_eq!(again, campaign);
    }
}
