//! Tests of batches: one request for many items, and one outcome per item.

use onward_campaign_core::{RenderedMessage, SendOutcome};
use onward_campaign_dispatch::Provider as _;
use serde_json::{Value, json};

use super::{Service, batch, kind, message, provider, reply, send_batch};
use crate::outgoing_item::OutgoingItem;

#[tokio::test]
async fn a_batch_is_answered_item_by_item() {
    let results = json!({ "results": [
        { "ref": "b", "state": "bounced", "why": "no such number" },
        { "ref": "a", "state": "queued", "id": "m-1" },
        { "ref": "j.c", "state": "throttled" },
        { "ref": "d", "state": "odd" },
        { "ref": "e", "state": 202 },
        { "ref": "f", "state": 400 },
        { "ref": "g" },
        { "ref": "i", "state": "queued" },
        { "ref": "i", "state": "bounced" },
        { "ref": "stranger", "state": "queued" },
    ] });
    let (service, url) = Service::start(move |_| reply(200, results.to_string())).await;
    let http = provider(&url, &batch());
    let answers = send_batch(&http, &["a", "b", "c", "d", "e", "f", "g", "h", "i"]).await;
    assert_eq!(answers[0], SendOutcome::Accepted(Some("m-1".into())));
    assert_eq!(
        answers[1],
        SendOutcome::Refused("the service said of it: bounced: no such number".into())
    );
    let kinds: Vec<&str> = answers[2..].iter().map(kind).collect();
    assert_eq!(
        kinds,
        [
            "later", "unknown", "accepted", "refused", "unknown", "unknown", "unknown"
        ]
    );
    assert_eq!(service.heard().len(), 1);
    let sent: Value = serde_json::from_str(&service.heard()[0].body).unwrap();
    assert_eq!(sent["messages"].as_array().unwrap().len(), 9);
    assert_eq!(http.capabilities().max_batch, 10);
}

#[tokio::test]
async fn a_batch_that_is_refused_whole_or_not_understood_is_answered_for_all() {
    for (status, body, expected) in [
        (200, "nonsense", "unknown"),
        (200, r#"{"results":{}}"#, "unknown"),
        (500, "", "unknown"),
        (429, "", "busy"),
        (400, "", "refused"),
    ] {
        let (_service, url) = Service::start(move |_| reply(status, body)).await;
        let answers = send_batch(&provider(&url, &batch()), &["a", "b"]).await;
        assert!(
            answers.len() == 2 && answers.iter().all(|answer| kind(answer) == expected),
            "{status} {answers:?}"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_made_does_not_spoil_its_batch() {
    let (service, url) =
        Service::start(|_| reply(200, r#"{"results":[{"ref":"a","state":"queued"}]}"#)).await;
    let http = provider(&url, &batch());
    let (good, bad) = (message("Hi"), RenderedMessage::default());
    let parcel = |key, message| OutgoingItem {
        item: key,
        key,
        to: "+49",
        recipient: "ada",
        message,
    };
    let mut more = batch();
    more["body"] = json!(
        more["body"]
            .as_str()
            .unwrap()
            .replace("item.to", "item.text")
    );
    let answers = provider(&url, &more)
        .send_items(&[parcel("a", &good), parcel("b", &bad)])
        .await;
    assert_eq!(
        answers.iter().map(kind).collect::<Vec<_>>(),
        ["accepted", "unfit"]
    );
    assert_eq!(service.heard().len(), 1);
    assert!(http.send_items(&[]).await.is_empty());
}
