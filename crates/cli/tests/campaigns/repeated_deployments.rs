//! Repeated deployments and duplicate recipients.

use std::path::Path;

use futures_util::future::join_all;
use onward_api::campaign::{
    CampaignApi as _, CampaignStatus, DeployCampaignRequest, DeployCampaignResponse,
    PreviousRecipientsPolicy, PutAudiencePartRequest, RecipientInput,
};
use onward_api::parse_json;
use onward_api::problem::{Code, Problem};
use serde_json::json;

use crate::harness::{CampaignHarness, outbox, recipients, run, wait_until_ended};
use crate::server_process::ServerProcess;

#[tokio::test(flavor = "multi_thread")]
async fn the_same_campaign_deployed_twice_is_one_run_without_resend() {
    for harness in [
        CampaignHarness::sqlite("").await,
        CampaignHarness::postgres("").await,
    ] {
        let node = harness.start_node(&[]);
        let file = harness.campaign("spring", &recipients(20), "job_size: 5");
        let first = node.deploy(&file, &[]);
        assert_eq!(node.deploy(&file, &[]), first);
        assert_eq!(
            wait_until_ended(&node.client(), &first).await,
            CampaignStatus::Completed
        );
        assert_eq!(
            node.deploy(&file, &[]),
            first,
            "also after the run has ended"
        );
        harness.provider.assert_called_once();
        assert_eq!(harness.provider.call_count(), 20);
        let again = node.deploy(&file, &["--resend"]);
        assert_ne!(again, first);
        assert_eq!(
            wait_until_ended(&node.client(), &again).await,
            CampaignStatus::Completed
        );
        assert!(
            harness
                .provider
                .calls_by_recipient()
                .values()
                .all(|times| *times == 2),
            "{:?}",
            harness.provider.calls_by_recipient()
        );
        assert!(
            harness
                .provider
                .calls_by_key()
                .values()
                .all(|times| *times == 1),
            "a resent item has a new key"
        );
    }
}

/// Asserts that a deployment is rejected because an earlier run has reached its recipients.
fn assert_deployment_rejected(node: &ServerProcess, file: &Path, reached: &str, earlier: &str) {
    let refused = node.run(&["campaign", "deploy", file.to_str().unwrap()]);
    let stderr = crate::text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(&format!("{reached} recipients were already reached"))
            && stderr.contains(earlier)
            && stderr.contains("--new-only"),
        "{stderr}"
    );
}

/// Another row, another order of rows, another job size, another setting: no recipient is sent to
/// twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_campaign_reaches_no_recipient_twice_without_resend() {
    for harness in [
        CampaignHarness::sqlite("").await,
        CampaignHarness::postgres("").await,
    ] {
        let node = harness.start_node(&[]);
        let first = node.deploy(&harness.campaign("spring", &recipients(10), ""), &[]);
        assert_eq!(
            wait_until_ended(&node.client(), &first).await,
            CampaignStatus::Completed
        );
        let (more, mut reversed) = (recipients(11), recipients(10));
        reversed.reverse();
        for (recipients, extra, reached) in [
            (&more, "", "10 of 11"),
            (&reversed, "", "10 of 10"),
            (&recipients(10), "job_size: 3", "10 of 10"),
            (
                &recipients(10),
                "unsubscribe: \"https://example.com/u\"",
                "10 of 10",
            ),
        ] {
            let file = harness.campaign("spring", recipients, extra);
            assert_deployment_rejected(&node, &file, reached, &first);
        }
        let file = harness.campaign("spring", &reversed, "");
        let refused = node.run(&[
            "campaign",
            "deploy",
            file.to_str().unwrap(),
            "--new-only",
            "--json",
        ]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(crate::text(&refused.stdout).contains("\"code\":\"recipients_already_reached\""));
        let file = harness.campaign("spring", &more, "");
        let second = node.run_json(&["campaign", "deploy", file.to_str().unwrap(), "--new-only"]);
        assert_eq!(
            (&second["items"], &second["excluded"]),
            (&json!(1), &json!(10))
        );
        let second = second["run"].as_str().unwrap();
        assert_eq!(
            wait_until_ended(&node.client(), second).await,
            CampaignStatus::Completed
        );
        assert_eq!(
            node.deploy(&file, &["--new-only"]),
            second,
            "the same deployment again"
        );
        harness.provider.assert_called_once();
        assert_eq!(harness.provider.call_count(), 11);
        let again = node.deploy(&harness.campaign("spring", &reversed, ""), &["--resend"]);
        assert_eq!(
            wait_until_ended(&node.client(), &again).await,
            CampaignStatus::Completed
        );
        assert_eq!(
            harness
                .provider
                .calls_by_recipient()
                .values()
                .sum::<usize>(),
            21
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_for_other_recipients_is_refused() {
    let harness = CampaignHarness::sqlite("").await;
    let node = harness.start_node(&[]);
    let all = recipients(4);
    node.deploy(&harness.campaign("spring", &all[..2], ""), &["--key", "kk"]);
    let file = harness.campaign("spring", &all[2..], "");
    let refused = node.run(&["campaign", "deploy", file.to_str().unwrap(), "--key", "kk"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        crate::text(&refused.stderr).contains("for another campaign or audience"),
        "{}",
        crate::text(&refused.stderr)
    );
}

/// Deploys one campaign to the same recipients ten times concurrently, through two nodes.
async fn deploy_ten_times(
    nodes: &[ServerProcess],
    key: impl Fn(usize) -> String,
) -> Vec<Result<DeployCampaignResponse, Problem>> {
    let campaign = json!({
        "campaign": "spring", "channel": "email", "provider": "counting", "audience": { "file": "people.csv" },
        "template": { "from": "news@example.com", "subject": "Hello", "text": "News." },
    });
    let deployments = (0..10).map(async |number: usize| {
        let client = nodes[number % nodes.len()].client();
        let audience = format!("audience-{number}");
        for (number, recipients) in (0..).zip(recipients(20).chunks(10)) {
            let part = PutAudiencePartRequest {
                recipients: recipients.iter().map(|id| recipient(id)).collect(),
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
            previous_recipients: PreviousRecipientsPolicy::Reject,
            by: None,
        };
        client.deploy_campaign(deploy).await
    });
    join_all(deployments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_concurrent_deployments_with_one_key_are_one_run() {
    for harness in [
        CampaignHarness::sqlite("").await,
        CampaignHarness::postgres("").await,
    ] {
        let nodes = [harness.start_node(&[]), harness.start_node(&[])];
        let deployed: Vec<DeployCampaignResponse> = deploy_ten_times(&nodes, |_| "once".to_owned())
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
            wait_until_ended(&nodes[0].client(), &deployed[0].run).await,
            CampaignStatus::Completed
        );
        harness.provider.assert_called_once();
        assert_eq!(harness.provider.call_count(), 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_ten_concurrent_deployments_with_different_keys_is_accepted() {
    for harness in [
        CampaignHarness::sqlite("").await,
        CampaignHarness::postgres("").await,
    ] {
        let nodes = [harness.start_node(&[]), harness.start_node(&[])];
        let deployed = deploy_ten_times(&nodes, |number| format!("key {number}")).await;
        let (accepted, refused): (Vec<_>, Vec<_>) = deployed.into_iter().partition(Result::is_ok);
        assert!(
            accepted.len() == 1
                && refused
                    .iter()
                    .flat_map(|it| it.as_ref().err())
                    .all(is_already_reached),
            "{refused:?}"
        );
        let run = accepted[0].as_ref().unwrap().run.clone();
        assert_eq!(
            wait_until_ended(&nodes[0].client(), &run).await,
            CampaignStatus::Completed
        );
        harness.provider.assert_called_once();
        assert_eq!(harness.provider.call_count(), 20);
    }
}

fn is_already_reached(problem: &Problem) -> bool {
    (problem.code, problem.status) == (Code::RecipientsAlreadyReached, 409)
}

fn recipient(id: &str) -> RecipientInput {
    RecipientInput {
        id: id.to_owned(),
        to: format!("{id}@example.com"),
        data: serde_json::Map::default(),
    }
}

/// Some recipients occur twice in one job, others in several jobs that two processes send
/// concurrently.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_recipient_is_called_once() {
    for harness in [
        CampaignHarness::sqlite("").await,
        CampaignHarness::postgres("").await,
    ] {
        let unique = recipients(100);
        let mut audience = unique.clone();
        audience.extend_from_slice(&unique[..50]);
        audience.extend_from_slice(&unique[20..80]);
        audience.insert(3, unique[1].clone());
        let nodes = [harness.start_node(&[]), harness.start_node(&[])];
        let id = nodes[0].deploy(&harness.campaign("spring", &audience, "job_size: 10"), &[]);
        let client = nodes[1].client();
        assert_eq!(
            wait_until_ended(&client, &id).await,
            CampaignStatus::Completed
        );
        harness.provider.assert_called_once();
        assert_eq!(harness.provider.call_count(), 100);
        let counts = run(&client, &id).await.counts;
        assert_eq!(
            (counts.sent, counts.skipped, counts.failed + counts.in_doubt),
            (100, 111, 0)
        );
        assert_eq!(
            outbox(&client, &id).await.len(),
            100,
            "one row for each recipient"
        );
    }
}
