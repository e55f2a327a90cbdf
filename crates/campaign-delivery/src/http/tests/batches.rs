//! Tests of batches: one request for many items, and one outcome per item.

use onward_campaign_core::{RenderedMessage, SendOutcome};
use onward_campaign_dispatch::Provider as _;
use serde_json::{Value, json};

use super::{ScriptedHttpService, batch, message, outcome_name, provider, reply, send_batch};
use crate::outgoing_item::OutgoingItem;

#[tokio::test]
async fn a_batch_has_one_outcome_per_item() {
    let results = json!({ "results": [
        { "ref": "b", "state": "bounced", "reason": "no such number" },
        { "ref": "a", "state": "queued", "id": "m-1" },
        { "ref": "j.c", "state": "throttled" },
        { "ref": "d", "state": "odd" },
        { "ref": "e", "state": 202 },
        { "ref": "f", "state": 400 },
        { "ref": "g" },
        { "ref": "i", "state": "queued" },
        { "ref": "i", "state": "bounced" },
        { "ref": "unknown", "state": "queued" },
    ] });
    let (service, url) = ScriptedHttpService::start(move |_| reply(200, results.to_string())).await;
    let http = provider(&url, &batch());
    let outcomes = send_batch(&http, &["a", "b", "c", "d", "e", "f", "g", "h", "i"]).await;
    assert_eq!(outcomes[0], SendOutcome::Accepted(Some("m-1".into())));
    assert_eq!(
        outcomes[1],
        SendOutcome::Refused("the status of the item is bounced: no such number".into())
    );
    let kinds: Vec<&str> = outcomes[2..].iter().map(outcome_name).collect();
    assert_eq!(
        kinds,
        [
            "deferred", "unknown", "accepted", "refused", "unknown", "unknown", "unknown"
        ]
    );
    assert_eq!(service.requests().len(), 1);
    let sent: Value = serde_json::from_str(&service.requests()[0].body).unwrap();
    assert_eq!(sent["messages"].as_array().unwrap().len(), 9);
    assert_eq!(http.capabilities().max_batch, 10);
}

#[tokio::test]
async fn a_rejected_batch_or_an_invalid_response_applies_to_all_items() {
    for (status, body, expected) in [
        (200, "nonsense", "unknown"),
        (200, r#"{"results":{}}"#, "unknown"),
        (500, "", "unknown"),
        (429, "", "throttled"),
        (400, "", "refused"),
    ] {
        let (_service, url) = ScriptedHttpService::start(move |_| reply(status, body)).await;
        let outcomes = send_batch(&provider(&url, &batch()), &["a", "b"]).await;
        assert!(
            outcomes.len() == 2
                && outcomes
                    .iter()
                    .all(|outcome| outcome_name(outcome) == expected),
            "{status} {outcomes:?}"
        );
    }
}

#[tokio::test]
async fn an_item_that_cannot_be_rendered_does_not_fail_its_batch() {
    let (service, url) =
        ScriptedHttpService::start(|_| reply(200, r#"{"results":[{"ref":"a","state":"queued"}]}"#))
            .await;
    let http = provider(&url, &batch());
    let (valid, invalid) = (message("Hi"), RenderedMessage::default());
    let item = |key, message| OutgoingItem {
        item_id: key,
        key,
        to: "+49",
        recipient: "ada",
        message,
    };
    let mut with_text = batch();
    with_text["body"] = json!(
        with_text["body"]
            .as_str()
            .unwrap()
            .replace("item.to", "item.text")
    );
    let outcomes = provider(&url, &with_text)
        .send_items(&[item("a", &valid), item("b", &invalid)])
        .await;
    assert_eq!(
        outcomes.iter().map(outcome_name).collect::<Vec<_>>(),
        ["accepted", "invalid"]
    );
    assert_eq!(service.requests().len(), 1);
    assert!(http.send_items(&[]).await.is_empty());
}
