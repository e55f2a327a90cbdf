//! What is asked for twice: deployments and recipients.

use futures_util::future::join_all;
use onward_api::campaign::{AudiencePart, Campaigning as _, DeployCampaign, Recipient, RunStatus};
use onward_api::json;
use serde_json::json;

use crate::world::{World, outbox, people, run, until_over};

#[tokio::test(flavor = "multi_thread")]
async fn the_same_campaign_deployed_twice_is_one_run_unless_again_is_said() {
    for world in [World::sqlite("").await, World::postgres("").await] {
        let node = world.node(&[]);
        let file = world.campaign("spring", &people(20), "job_items: 5");
        let first = node.deploy(&file, &[]);
        assert_eq!(node.deploy(&file, &[]), first);
        assert_eq!(until_over(&node.client(), &first).await, RunStatus::Completed);
        assert_eq!(node.deploy(&file, &[]), first, "also when it is over");
        world.provider.expect_once();
        assert_eq!(world.provider.count(), 20);
        let again = node.deploy(&file, &["--again"]);
        assert_ne!(again, first);
        assert_eq!(until_over(&node.client(), &again).await, RunStatus::Completed);
        assert!(world.provider.reached().values().all(|times| *times == 2), "{:?}", world.provider.reached());
        assert!(world.provider.times().values().all(|times| *times == 1), "by keys of its own");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_deployments_at_once_with_one_key_are_one_run() {
    for world in [World::sqlite("").await, World::postgres("").await] {
        let nodes = [world.node(&[]), world.node(&[])];
        let campaign = json!({
            "campaign": "spring", "channel": "email", "provider": "counting", "audience": { "file": "people.csv" },
            "template": { "from": "news@example.com", "subject": "Hello", "text": "News." },
        });
        let deployed = join_all((0..10).map(async |number: usize| {
            let client = nodes[number % 2].client();
            let audience = format!("audience-{number}");
            let part = |part: usize| AudiencePart {
                recipients: people(20)[part * 10..][..10].iter().map(|who| recipient(who)).collect(),
            };
            for number in 0..2 {
                client.put_audience_part(&audience, number, part(number as usize)).await.unwrap();
            }
            let campaign = json(&campaign.to_string()).unwrap();
            let deploy = DeployCampaign { campaign, audience, key: Some("once".to_owned()), by: None };
            client.deploy_campaign(deploy).await.unwrap()
        }))
        .await;
        assert_eq!(deployed.iter().filter(|it| !it.existed).count(), 1, "{deployed:?}");
        assert!(deployed.iter().all(|it| it.run == deployed[0].run));
        assert_eq!(until_over(&nodes[0].client(), &deployed[0].run).await, RunStatus::Completed);
        world.provider.expect_once();
        assert_eq!(world.provider.count(), 20);
    }
}

fn recipient(who: &str) -> Recipient {
    Recipient { id: who.to_owned(), to: format!("{who}@example.com"), data: serde_json::Map::default() }
}

/// Some are named twice in a job, some in several jobs, which several processes send at once.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_named_twice_is_called_once() {
    for world in [World::sqlite("").await, World::postgres("").await] {
        let once = people(100);
        let mut named = once.clone();
        named.extend_from_slice(&once[..50]);
        named.extend_from_slice(&once[20..80]);
        named.insert(3, once[1].clone());
        let nodes = [world.node(&[]), world.node(&[])];
        let id = nodes[0].deploy(&world.campaign("spring", &named, "job_items: 10"), &[]);
        let client = nodes[1].client();
        assert_eq!(until_over(&client, &id).await, RunStatus::Completed);
        world.provider.expect_once();
        assert_eq!(world.provider.count(), 100);
        let tally = run(&client, &id).await.tally;
        assert_eq!((tally.served, tally.skipped, tally.failed + tally.in_doubt), (100, 111, 0));
        assert_eq!(outbox(&client, &id).await.len(), 100, "one row each");
    }
}
