//! What is asked for twice: deployments and recipients.

use futures_util::future::join_all;
use onward_api::campaign::{
    CampaignApi as _, CampaignStatus, DeployCampaignRequest, DeployCampaignResponse,
    PutAudiencePartRequest, RecipientInput, RepeatContactPolicy,
};
use onward_api::parse_json;
use onward_api::problem::{Code, Problem};
use serde_json::json;

use crate::node::Node;
use crate::world::{World, outbox, people, run, until_over};

#[tokio::test(flavor = "multi_thread")]
async fn the_same_campaign_deployed_twice_is_one_run_unless_again_is_said() {
    for world in [World::sqlite("").await, World::postgres("").await] {
        let node = world.node(&[]);
        let file = world.campaign("spring", &people(20), "job_items: 5");
        let first = node.deploy(&file, &[]);
        assert_eq!(node.deploy(&file, &[]), first);
        assert_eq!(
            until_over(&node.client(), &first).await,
            CampaignStatus::Completed
        );
        assert_eq!(node.deploy(&file, &[]), first, "also when it is over");
        world.provider.expect_once();
        assert_eq!(world.provider.count(), 20);
        let again = node.deploy(&file, &["--again"]);
        assert_ne!(again, first);
        assert_eq!(
            until_over(&node.client(), &again).await,
            CampaignStatus::Completed
        );
        assert!(
            world.provider.reached().values().all(|times| *times == 2),
            "{:?}",
            world.provider.reached()
        );
        assert!(
            world.provider.times().values().all(|times| *times == 1),
            "by keys of its own"
        );
    }
}

/// A row more, the rows the other way round, jobs of another size, other words: nobody is to hear
/// of it twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_that_was_changed_reaches_nobody_again_unless_that_is_said() {
    for world in [World::sqlite("").await, World::postgres("").await] {
        let node = world.node(&[]);
        let first = node.deploy(&world.campaign("spring", &people(10), ""), &[]);
        assert_eq!(
            until_over(&node.client(), &first).await,
            CampaignStatus::Completed
        );
        let (more, mut reversed) = (people(11), people(10));
        reversed.reverse();
        for (people, about, reached) in [
            (&more, "", "10 of 11 were reached"),
            (&reversed, "", "10 of 10 were reached"),
            (&people(10), "job_items: 3", "10 of 10 were reached"),
            (
                &people(10),
                "unsubscribe: \"https://example.com/u\"",
                "10 of 10 were reached",
            ),
        ] {
            let file = world.campaign("spring", people, about);
            let refused = node.run(&["campaign", "deploy", file.to_str().unwrap()]);
            let said = crate::text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(1), "{said}");
            assert!(
                said.contains(reached) && said.contains(&first) && said.contains("--new-only"),
                "{said}"
            );
        }
        let file = world.campaign("spring", &reversed, "");
        let nobody = node.run(&[
            "campaign",
            "deploy",
            file.to_str().unwrap(),
            "--new-only",
            "--json",
        ]);
        assert_eq!(nobody.status.code(), Some(1));
        assert!(crate::text(&nobody.stdout).contains("\"code\":\"reached_before\""));
        let file = world.campaign("spring", &more, "");
        let second = node.told(&["campaign", "deploy", file.to_str().unwrap(), "--new-only"]);
        assert_eq!(
            (&second["items"], &second["leftOut"]),
            (&json!(1), &json!(10))
        );
        let second = second["run"].as_str().unwrap();
        assert_eq!(
            until_over(&node.client(), second).await,
            CampaignStatus::Completed
        );
        assert_eq!(
            node.deploy(&file, &["--new-only"]),
            second,
            "the same once more"
        );
        world.provider.expect_once();
        assert_eq!(world.provider.count(), 11);
        let again = node.deploy(&world.campaign("spring", &reversed, ""), &["--again"]);
        assert_eq!(
            until_over(&node.client(), &again).await,
            CampaignStatus::Completed
        );
        assert_eq!(world.provider.reached().values().sum::<usize>(), 21);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_for_other_people_is_refused() {
    let world = World::sqlite("").await;
    let node = world.node(&[]);
    let everybody = people(4);
    node.deploy(
        &world.campaign("spring", &everybody[..2], ""),
        &["--key", "kk"],
    );
    let file = world.campaign("spring", &everybody[2..], "");
    let refused = node.run(&["campaign", "deploy", file.to_str().unwrap(), "--key", "kk"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        crate::text(&refused.stderr).contains("for other people"),
        "{}",
        crate::text(&refused.stderr)
    );
}

/// Ten deployments of one campaign for the same people, at once and through two nodes.
async fn ten_at_once(
    nodes: &[Node],
    key: impl Fn(usize) -> String,
) -> Vec<Result<DeployCampaignResponse, Problem>> {
    let campaign = json!({
        "campaign": "spring", "channel": "email", "provider": "counting", "audience": { "file": "people.csv" },
        "template": { "from": "news@example.com", "subject": "Hello", "text": "News." },
    });
    let deployments = (0..10).map(async |number: usize| {
        let client = nodes[number % nodes.len()].client();
        let audience = format!("audience-{number}");
        for (number, people) in (0..).zip(people(20).chunks(10)) {
            let part = PutAudiencePartRequest {
                recipients: people.iter().map(|who| recipient(who)).collect(),
            };
            client
                .put_audience_part(&audience, number, part)
                .await
                .unwrap();
        }
        let (campaign, key) = (
            parse_json(&campaign.to_string()).unwrap(),
            Some(key(number)),
        );
        let deploy = DeployCampaignRequest {
            campaign,
            audience,
            key,
            reached: RepeatContactPolicy::Refuse,
            by: None,
        };
        client.deploy_campaign(deploy).await
    });
    join_all(deployments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_deployments_at_once_with_one_key_are_one_run() {
    for world in [World::sqlite("").await, World::postgres("").await] {
        let nodes = [world.node(&[]), world.node(&[])];
        let deployed: Vec<DeployCampaignResponse> = ten_at_once(&nodes, |_| "once".to_owned())
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(
            deployed.iter().filter(|it| !it.existed).count(),
            1,
            "{deployed:?}"
        );
        assert!(deployed.iter().all(|it| it.run == deployed[0].run));
        assert_eq!(
            until_over(&nodes[0].client(), &deployed[0].run).await,
            CampaignStatus::Completed
        );
        world.provider.expect_once();
        assert_eq!(world.provider.count(), 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ten_deployments_at_once_with_keys_of_their_own_one_reaches_people() {
    for world in [World::sqlite("").await, World::postgres("").await] {
        let nodes = [world.node(&[]), world.node(&[])];
        let deployed = ten_at_once(&nodes, |number| format!("key {number}")).await;
        let (made, refused): (Vec<_>, Vec<_>) = deployed.into_iter().partition(Result::is_ok);
        assert!(
            made.len() == 1
                && refused
                    .iter()
                    .flat_map(|it| it.as_ref().err())
                    .all(was_reached),
            "{refused:?}"
        );
        let run = made[0].as_ref().unwrap().run.clone();
        assert_eq!(
            until_over(&nodes[0].client(), &run).await,
            CampaignStatus::Completed
        );
        world.provider.expect_once();
        assert_eq!(world.provider.count(), 20);
    }
}

fn was_reached(problem: &Problem) -> bool {
    (problem.code, problem.status) == (Code::ReachedBefore, 409)
}

fn recipient(who: &str) -> RecipientInput {
    RecipientInput {
        id: who.to_owned(),
        to: format!("{who}@example.com"),
        data: serde_json::Map::default(),
    }
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
        assert_eq!(until_over(&client, &id).await, CampaignStatus::Completed);
        world.provider.expect_once();
        assert_eq!(world.provider.count(), 100);
        let tally = run(&client, &id).await.tally;
        assert_eq!(
            (tally.served, tally.skipped, tally.failed + tally.in_doubt),
            (100, 111, 0)
        );
        assert_eq!(outbox(&client, &id).await.len(), 100, "one row each");
    }
}
