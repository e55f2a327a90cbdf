//! The prerequisites of a deployment.

use onward_base::Timestamp;
use onward_campaign_file::audience::{AudienceRowError, read_audience};
use onward_campaign_file::{
    Campaign, CampaignChecker, DeployCheckInput, DeployPrerequisite, InvalidRowPolicy,
    check_campaign,
};
use serde_json::json;

use crate::{LETTER, campaign_with, recipient};

fn now() -> Timestamp {
    "2026-12-01T12:00:00Z".parse().unwrap()
}

/// The result and the message of one prerequisite.
fn result_of(list: &[DeployPrerequisite], id: &str) -> Option<(bool, String)> {
    list.iter()
        .find(|it| it.id == id)
        .map(|it| (it.pass, it.message.clone()))
}

fn passes(campaign: &Campaign, id: &str) -> Option<bool> {
    let sample = [recipient(json!({ "name": "Ada" }))];
    result_of(
        &check_campaign(
            campaign,
            &DeployCheckInput {
                now: now(),
                sample: &sample,
                report: None,
            },
        ),
        id,
    )
    .map(|(pass, _)| pass)
}

/// Checks the campaign with this audience.
pub(crate) fn check_with_audience(campaign: &Campaign, text: &str) -> Vec<DeployPrerequisite> {
    let mut checker = CampaignChecker::new(campaign.clone(), now());
    let format = campaign.audience.resolve_format().unwrap();
    for row in read_audience(
        text.as_bytes(),
        format,
        &campaign.audience_fields(),
        campaign.channel,
    )
    .unwrap()
    {
        match row {
            Ok(recipient) => checker.add_recipient(&recipient),
            Err(AudienceRowError::InvalidRow(row)) => checker.add_invalid_row(row),
            Err(AudienceRowError::ReadFailed(error)) => panic!("{error}"),
        }
    }
    checker.finish().0
}

#[test]
fn a_valid_campaign_meets_all_prerequisites() {
    let campaign = campaign_with(LETTER, "unsubscribe: 'https://example.com/u'");
    let list = check_with_audience(&campaign, "email,name\na@example.com,Ada\n");
    assert!(list.iter().all(|it| it.pass), "{list:?}");
    let ids: Vec<&str> = list.iter().map(|it| it.id.as_str()).collect();
    let expected = [
        "template.compiles",
        "template.renders",
        "email.parts",
        "email.from",
        "email.unsubscribe",
        "schedule",
    ];
    assert_eq!(ids[..6], expected);
    assert_eq!(
        ids[6..],
        [
            "audience.recipients",
            "audience.rows",
            "audience.duplicates"
        ]
    );
    assert_eq!(
        serde_json::from_value::<Vec<DeployPrerequisite>>(serde_json::to_value(&list).unwrap())
            .unwrap(),
        list
    );
}

#[test]
fn an_email_requires_from_subject_and_a_body() {
    let parts = |template: &str| passes(&campaign_with(template, ""), "email.parts");
    assert_eq!(
        parts("{ from: a@example.com, subject: s, html: h }"),
        Some(true)
    );
    assert_eq!(parts("{ subject: s, text: t }"), Some(false));
    assert_eq!(parts("{ from: a@example.com, text: t }"), Some(false));
    assert_eq!(parts("{ from: a@example.com, subject: s }"), Some(false));
    assert_eq!(
        parts("{ from: a@example.com, subject: ' ', text: t }"),
        Some(false)
    );
}

#[test]
fn the_from_part_of_an_email_must_be_an_address() {
    let from = |from: &str| {
        passes(
            &campaign_with(&format!("{{ from: '{from}', subject: s, text: t }}"), ""),
            "email.from",
        )
    };
    assert_eq!(from("News <news@example.com>"), Some(true));
    assert_eq!(from("News"), Some(false));
    assert_eq!(from("{{ name }} <news@example.com>"), None);
}

#[test]
fn templates_must_compile_and_render() {
    assert_eq!(
        passes(&campaign_with("{ text: '{{' }", ""), "template.compiles"),
        Some(false)
    );
    assert_eq!(
        passes(&campaign_with("{ text: '{{' }", ""), "template.renders"),
        None
    );
    assert_eq!(
        passes(
            &campaign_with("{ text: '{{ missing }}' }", ""),
            "template.renders"
        ),
        Some(false)
    );
    assert_eq!(
        passes(&campaign_with("{ from: sender }", ""), "template.renders"),
        Some(false)
    );
    assert_eq!(
        passes(&campaign_with(LETTER, ""), "template.renders"),
        Some(true)
    );
}

#[test]
fn the_unsubscribe_link_must_be_an_https_or_mailto_url() {
    let renders = |unsubscribe: &str| {
        let campaign = campaign_with(LETTER, &format!("unsubscribe: '{unsubscribe}'"));
        result_of(
            &check_with_audience(&campaign, "email,name\na@example.com,Ada L\n"),
            "template.renders",
        )
        .unwrap()
    };
    for invalid in [
        "javascript:alert(1)",
        "http://example.com/u",
        " https://example.com/u",
        "leave",
        "https://",
        "mailto:",
    ] {
        let (pass, message) = renders(invalid);
        assert!(
            !pass && message.contains("part `unsubscribe`"),
            "{invalid}: {message}"
        );
    }
    assert!(
        renders("http://example.com/u")
            .1
            .contains("must start with https:// or mailto:")
    );
    for invalid in [
        "https://example.com/{{ name }}",
        "https://example.com/<u>",
        "https://example.com/a,b",
        "mailto:<a@b.example>",
    ] {
        let (pass, message) = renders(invalid);
        assert!(
            !pass && message.contains("urlencode"),
            "{invalid}: {message}"
        );
    }
    assert!(!renders(&format!("https://example.com/{}", "u".repeat(900))).0);
    for valid in [
        "https://example.com/{{ name | urlencode }}",
        "mailto:leave@example.com?subject=x",
        "HTTPS://example.com/u",
    ] {
        assert_eq!(
            renders(valid),
            (true, "rendered for 1 recipients".into()),
            "{valid}"
        );
    }
}

#[test]
fn unknown_time_zones_and_quiet_hours_are_reported() {
    let check = |field: &str| {
        let schedule = format!(
            "schedule: {{ quiet_hours: {{ from: '00:00', until: '23:59', time_zone: UTC, time_zone_field: {field} }} }}"
        );
        check_with_audience(
            &campaign_with(LETTER, &schedule),
            "email,name,zone\na@example.com,Ada,Europe/Berlin\nb@example.com,Bo,\n",
        )
    };
    let (pass, message) = result_of(&check("zone"), "schedule.time_zones").unwrap();
    assert!(
        pass && message.starts_with("1 of 2 recipients have a time zone of their own"),
        "{message}"
    );
    let (pass, message) = result_of(&check("name"), "schedule.time_zones").unwrap();
    assert!(
        !pass && message.contains("2 with an unknown time zone") && message.contains("`Ada`"),
        "{message}"
    );
    let mars = campaign_with(
        LETTER,
        "schedule: { quiet_hours: { from: '00:00', until: '23:59', time_zone: UTC, time_zone_field: zone } }",
    );
    let text = "email,name,zone\na@example.com,Ada,Europe/Berlin\nb@example.com,Bo,Mars/Base\n";
    let (pass, message) =
        result_of(&check_with_audience(&mars, text), "schedule.time_zones").unwrap();
    assert!(
        pass && message.starts_with("1 of 2 recipients have a time zone of their own")
            && message.contains("1 with an unknown time zone")
            && message.contains("`Mars/Base`"),
        "{message}"
    );
    let (pass, message) = result_of(&check("zones"), "schedule.time_zones").unwrap();
    assert!(!pass && message.contains("`zones`"), "{message}");
    let (pass, message) = result_of(&check("zone"), "schedule").unwrap();
    assert!(
        pass && message.contains("when the quiet hours in the time zone of the campaign end"),
        "{message}"
    );
}

#[test]
fn a_missing_unsubscribe_link_is_a_warning_only() {
    let list = check_with_audience(
        &campaign_with(LETTER, ""),
        "email,name\na@example.com,Ada\n",
    );
    let (pass, message) = result_of(&list, "email.unsubscribe").unwrap();
    assert!(pass && message.contains("no unsubscribe link"), "{message}");
}

#[test]
fn a_start_time_more_than_a_day_ago_is_rejected() {
    let check = |at: &str| {
        passes(
            &campaign_with(LETTER, &format!("schedule: {{ at: '{at}' }}")),
            "schedule",
        )
    };
    assert_eq!(check("2026-11-30T11:59:59Z"), Some(false));
    assert_eq!(check("2026-11-30T12:00:00Z"), Some(true));
    assert_eq!(check("2027-01-01T00:00:00Z"), Some(true));
}

#[test]
fn an_audience_needs_a_valid_row_and_no_invalid_rows_unless_they_are_skipped() {
    let empty = check_with_audience(&campaign_with(LETTER, ""), "email,name\n");
    assert_eq!(
        result_of(&empty, "audience.recipients").unwrap(),
        (false, "the audience has no valid row".into())
    );
    let reject = campaign_with(LETTER, "");
    let mut skip = reject.clone();
    skip.audience.invalid_rows = InvalidRowPolicy::Skip;
    let text = "email,name\na@example.com,Ada\nx,Eve\n";
    let (pass, message) = result_of(&check_with_audience(&reject, text), "audience.rows").unwrap();
    assert!(!pass && message.contains("line 3"), "{message}");
    assert!(
        result_of(&check_with_audience(&skip, text), "audience.rows")
            .unwrap()
            .0
    );
}

#[test]
fn duplicate_ids_and_addresses_are_reported() {
    let campaign = campaign_with(LETTER, "");
    let text = "id,email,name\n1,a@example.com,Ada\n2,b@example.com,Bob\n1,ada@example.com,Ada\n3,B@example.com,Eve\n";
    let (pass, message) =
        result_of(&check_with_audience(&campaign, text), "audience.duplicates").unwrap();
    assert!(pass);
    assert_eq!(
        message,
        "rows with a duplicate id, whose recipient gets one message: 1; rows with another id and a \
         duplicate address, which gets a message for each id: 1 (`id: email` sends one message to \
         each address)"
    );
    let (_, message) = result_of(
        &check_with_audience(&campaign, "email,name\na@example.com,Ada\n"),
        "audience.duplicates",
    )
    .unwrap();
    assert_eq!(message, "no duplicate ids");
}

#[test]
fn templates_are_rendered_for_the_first_thousand_rows_and_then_for_one_of_a_thousand() {
    let campaign = campaign_with(
        "{ text: '{{ 1 / n|int }}', from: a@example.com, subject: s }",
        "",
    );
    let audience = |zero: usize| {
        let rows = (0..2_500).map(|n| format!("p{n}@example.com,{}\n", u8::from(n != zero)));
        format!("email,n\n{}", rows.collect::<String>())
    };
    let renders = |zero: usize| {
        result_of(
            &check_with_audience(&campaign, &audience(zero)),
            "template.renders",
        )
        .unwrap()
    };
    assert_eq!(
        renders(5_000),
        (true, "rendered for 1002 recipients".into())
    );
    assert!(renders(1_001).0);
    for zero in [0, 999, 1_000, 2_000] {
        let (pass, message) = renders(zero);
        assert!(
            !pass && message.contains(&format!("p{zero}@")) && message.contains("1 of 1002"),
            "{message}"
        );
    }
}
