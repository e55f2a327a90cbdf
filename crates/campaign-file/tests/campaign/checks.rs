//! What has to be right before a campaign is deployed.

use onward_base::Timestamp;
use onward_campaign_file::audience::{AudienceRowError, read_audience};
use onward_campaign_file::{
    Campaign, CampaignChecker, DeployCheckInput, DeployPrerequisite, check_campaign,
};
use serde_json::json;

use crate::{LETTER, campaign_with, recipient};

fn now() -> Timestamp {
    "2026-12-01T12:00:00Z".parse().unwrap()
}

/// Whether it passes, and what is said.
fn found(list: &[DeployPrerequisite], id: &str) -> Option<(bool, String)> {
    list.iter()
        .find(|it| it.id == id)
        .map(|it| (it.pass, it.message.clone()))
}

fn passes(campaign: &Campaign, id: &str) -> Option<bool> {
    let sample = [recipient(json!({ "name": "Ada" }))];
    found(
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

/// Lets an audience go by.
fn over(campaign: &Campaign, text: &str) -> Vec<DeployPrerequisite> {
    let mut checker = CampaignChecker::new(campaign, now());
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
            Err(AudienceRowError::BadRow(row)) => checker.add_bad_row(row),
            Err(AudienceRowError::ReadFailed(error)) => panic!("{error}"),
        }
    }
    checker.finish().0
}

#[test]
fn a_good_campaign_passes() {
    let campaign = campaign_with(LETTER, "unsubscribe: 'https://example.com/u'");
    let list = over(&campaign, "email,name\na@example.com,Ada\n");
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
        ["audience.somebody", "audience.rows", "audience.repeated"]
    );
    assert_eq!(
        serde_json::from_value::<Vec<DeployPrerequisite>>(serde_json::to_value(&list).unwrap())
            .unwrap(),
        list
    );
}

#[test]
fn a_mail_needs_its_parts() {
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
fn who_a_mail_is_from_is_an_address() {
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
fn templates_have_to_be_right() {
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
            &campaign_with("{ text: '{{ nobody }}' }", ""),
            "template.renders"
        ),
        Some(false)
    );
    assert_eq!(
        passes(&campaign_with("{ from: nobody }", ""), "template.renders"),
        Some(false)
    );
    assert_eq!(
        passes(&campaign_with(LETTER, ""), "template.renders"),
        Some(true)
    );
}

#[test]
fn whoever_cannot_unsubscribe_by_a_link_or_a_mail_is_sent_nothing() {
    let renders = |unsubscribe: &str| {
        let campaign = campaign_with(LETTER, &format!("unsubscribe: '{unsubscribe}'"));
        found(
            &over(&campaign, "email,name\na@example.com,Ada L\n"),
            "template.renders",
        )
        .unwrap()
    };
    for wrong in [
        "javascript:alert(1)",
        "http://example.com/u",
        " https://example.com/u",
        "leave",
        "https://",
        "mailto:",
    ] {
        let (pass, message) = renders(wrong);
        assert!(
            !pass && message.contains("part `unsubscribe`"),
            "{wrong}: {message}"
        );
    }
    assert!(
        renders("http://example.com/u")
            .1
            .contains("has to begin with https:// or mailto:")
    );
    for wrong in [
        "https://example.com/{{ name }}",
        "https://example.com/<u>",
        "https://example.com/a,b",
        "mailto:<a@b.example>",
    ] {
        let (pass, message) = renders(wrong);
        assert!(!pass && message.contains("urlencode"), "{wrong}: {message}");
    }
    assert!(!renders(&format!("https://example.com/{}", "u".repeat(900))).0);
    for fine in [
        "https://example.com/{{ name | urlencode }}",
        "mailto:leave@example.com?subject=x",
        "HTTPS://example.com/u",
    ] {
        assert_eq!(
            renders(fine),
            (true, "filled in for 1 recipients".into()),
            "{fine}"
        );
    }
}

#[test]
fn a_field_for_time_zones_that_nobody_has_is_found_and_quiet_hours_are_told() {
    let quiet = |field: &str| {
        let schedule = format!(
            "schedule: {{ quiet: {{ from: '00:00', until: '23:59', zone: UTC, zone_field: {field} }} }}"
        );
        over(
            &campaign_with(LETTER, &schedule),
            "email,name,zone\na@example.com,Ada,Europe/Berlin\nb@example.com,Bo,\n",
        )
    };
    let (pass, message) = found(&quiet("zone"), "schedule.zones").unwrap();
    assert!(pass && message.starts_with("1 of 2 say"), "{message}");
    let (pass, message) = found(&quiet("name"), "schedule.zones").unwrap();
    assert!(
        !pass && message.contains("2 name one that there is not") && message.contains("`Ada`"),
        "{message}"
    );
    let mars = campaign_with(
        LETTER,
        "schedule: { quiet: { from: '00:00', until: '23:59', zone: UTC, zone_field: zone } }",
    );
    let text = "email,name,zone\na@example.com,Ada,Europe/Berlin\nb@example.com,Bo,Mars/Base\n";
    let (pass, message) = found(&over(&mars, text), "schedule.zones").unwrap();
    assert!(
        pass && message.starts_with("1 of 2 say")
            && message.contains("1 name one")
            && message.contains("`Mars/Base`"),
        "{message}"
    );
    let (pass, message) = found(&quiet("zones"), "schedule.zones").unwrap();
    assert!(!pass && message.contains("`zones`"), "{message}");
    let (pass, message) = found(&quiet("zone"), "schedule").unwrap();
    assert!(
        pass && message.contains("when the quiet hours end"),
        "{message}"
    );
}

#[test]
fn a_mail_without_a_way_to_unsubscribe_passes_and_is_told() {
    let list = over(
        &campaign_with(LETTER, ""),
        "email,name\na@example.com,Ada\n",
    );
    let (pass, message) = found(&list, "email.unsubscribe").unwrap();
    assert!(
        pass && message.contains("no way to unsubscribe"),
        "{message}"
    );
}

#[test]
fn a_campaign_does_not_begin_days_ago() {
    let begins = |at: &str| {
        passes(
            &campaign_with(LETTER, &format!("schedule: {{ at: '{at}' }}")),
            "schedule",
        )
    };
    assert_eq!(begins("2026-11-30T11:59:59Z"), Some(false));
    assert_eq!(begins("2026-11-30T12:00:00Z"), Some(true));
    assert_eq!(begins("2027-01-01T00:00:00Z"), Some(true));
}

#[test]
fn an_audience_has_somebody_and_no_bad_rows() {
    let nobody = over(&campaign_with(LETTER, ""), "email,name\n");
    assert_eq!(
        found(&nobody, "audience.somebody").unwrap(),
        (false, "0 rows can be used".into())
    );
    let refuse = campaign_with(LETTER, "");
    let mut skip = refuse.clone();
    skip.audience.bad_rows = onward_campaign_file::BadRowPolicy::Skip;
    let text = "email,name\na@example.com,Ada\nx,Eve\n";
    let (pass, message) = found(&over(&refuse, text), "audience.rows").unwrap();
    assert!(!pass && message.contains("line 3"), "{message}");
    assert!(found(&over(&skip, text), "audience.rows").unwrap().0);
}

#[test]
fn who_is_named_twice_and_who_shares_an_address_is_told() {
    let campaign = campaign_with(LETTER, "");
    let text = "id,email,name\n1,a@example.com,Ada\n2,b@example.com,Bob\n1,ada@example.com,Ada\n3,B@example.com,Eve\n";
    let (pass, message) = found(&over(&campaign, text), "audience.repeated").unwrap();
    assert!(pass);
    assert_eq!(
        message,
        "rows that name somebody again, by the same id, who is reached once: 1; rows with an address that somebody else \
         has, who is reached there too: 1 (`id: email` reaches each address once)"
    );
    let (_, message) = found(
        &over(&campaign, "email,name\na@example.com,Ada\n"),
        "audience.repeated",
    )
    .unwrap();
    assert_eq!(message, "nobody is named twice");
}

#[test]
fn the_first_thousand_are_tried_and_then_one_of_a_thousand() {
    let campaign = campaign_with(
        "{ text: '{{ 1 / n|int }}', from: a@example.com, subject: s }",
        "",
    );
    let people = |zero: usize| {
        let rows = (0..2_500).map(|n| format!("p{n}@example.com,{}\n", u8::from(n != zero)));
        format!("email,n\n{}", rows.collect::<String>())
    };
    let renders = |zero: usize| found(&over(&campaign, &people(zero)), "template.renders").unwrap();
    assert_eq!(
        renders(5_000),
        (true, "filled in for 1002 recipients".into())
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
