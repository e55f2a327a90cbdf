//! Pausing, resuming, cancelling and trying again while a campaign is sent: the right people are
//! reached, once.

use std::collections::BTreeSet;
use std::time::Duration;

use onward_api::campaign::{CampaignApi as _, CampaignStatus};
use onward_api::client::ApiClient;
use onward_api::outbox::OutboxItemState;
use tokio::time::sleep;

use crate::node::Node;
use crate::provider::Reply;
use crate::world::{World, jobs, outbox, people, run, tally, until, until_over};

/// People of a campaign, and of each of its jobs.
const PEOPLE: usize = 400;
const OF_A_JOB: &str = "job_items: 10";

/// Jobs that a process works on at a time, and items of a job that are called for together.
const LANES: &str = "2";
const TERMS: &str = "terms = { window = 2 }";

/// As many calls may be under way when somebody wants something else, in two processes.
const UNDER_WAY: usize = 2 * 2 * 2;

/// Those who are reached while others come to know what somebody wants. They look every half
/// second.
const KNOWN: Duration = Duration::from_secs(2);

/// Two processes that send a campaign, slowly, and a client of one.
struct Sending {
    world: World,
    nodes: [Node; 2],
    client: ApiClient,
    run: String,
}

impl Sending {
    async fn begun() -> Self {
        let world = World::postgres(TERMS).await;
        world
            .provider
            .reply(|_| Reply::Late(Duration::from_millis(50)));
        let nodes = [(); 2].map(|()| world.node(&["--campaign-lanes", LANES]));
        let run = nodes[0].deploy(&world.campaign("spring", &people(PEOPLE), OF_A_JOB), &[]);
        let client = nodes[0].client();
        world.provider.until_called(20).await;
        Self {
            world,
            nodes,
            client,
            run,
        }
    }

    fn say(&self, word: &str) {
        self.nodes[1].told(&["campaign", word, &self.run, "--by", "ada"]);
    }

    /// Waits until nobody has a job, which is soon.
    async fn until_quiet(&self) {
        let is_quiet = async || {
            jobs(&self.client, &self.run)
                .await
                .iter()
                .all(|job| job.locked_until.is_none())
        };
        until("somebody goes on", is_quiet).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_that_is_paused_calls_nobody_until_it_is_resumed() {
    let sending = Sending::begun().await;
    sending.say("pause");
    let paused = sending.world.provider.count();
    sleep(KNOWN).await;
    sending.until_quiet().await;
    let quiet = sending.world.provider.count();
    // Eight at a time, each fifty milliseconds: those that are reached in the time in which it
    // becomes known.
    let late = KNOWN.as_millis() as usize / 50 * UNDER_WAY;
    println!("{} were called after it was paused", quiet - paused);
    assert!(
        quiet - paused <= late,
        "{} were called after it was paused",
        quiet - paused
    );
    assert!(quiet < PEOPLE, "it was paused while it was sent");
    assert_eq!(
        tally(&sending.client, &sending.run).await.served,
        quiet as u64,
        "what was under way is settled"
    );
    sleep(KNOWN).await;
    assert_eq!(
        sending.world.provider.count(),
        quiet,
        "nobody is called while it is paused"
    );
    sending.say("resume");
    assert_eq!(
        until_over(&sending.client, &sending.run).await,
        CampaignStatus::Completed
    );
    sending.world.provider.expect_once();
    assert_eq!(sending.world.provider.count(), PEOPLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn whom_a_cancelled_campaign_did_not_reach_is_reached_by_its_retry_and_nobody_else() {
    let Sending {
        world,
        nodes,
        client,
        run: first,
    } = Sending::begun().await;
    nodes[1].told(&["campaign", "cancel", &first, "--by", "ada"]);
    let cancelled = world.provider.count();
    assert_eq!(until_over(&client, &first).await, CampaignStatus::Partial);
    let reached: BTreeSet<String> = world.provider.reached().into_keys().collect();
    let late = KNOWN.as_millis() as usize / 50 * UNDER_WAY;
    println!(
        "{} were called after it was cancelled",
        reached.len() - cancelled
    );
    assert!(
        reached.len() - cancelled <= late,
        "{} were called after it was cancelled",
        reached.len() - cancelled
    );
    for item in outbox(&client, &first).await {
        let expected = if reached.contains(&item.to) {
            OutboxItemState::Served
        } else {
            OutboxItemState::Skipped
        };
        assert_eq!(item.standing, expected, "{item:?}");
    }
    let tried =
        [&nodes[0], &nodes[1]].map(|node| node.told(&["campaign", "retry", &first, "--by", "ada"]));
    assert_eq!(tried[0]["run"], tried[1]["run"], "there is one of each");
    assert_eq!(tried[0]["items"], PEOPLE - reached.len());
    let second = tried[0]["run"].as_str().unwrap();
    assert_eq!(until_over(&client, second).await, CampaignStatus::Completed);
    world.provider.expect_once();
    assert_eq!(world.provider.count(), PEOPLE);
    assert_eq!(
        run(&client, second).await.summary.retry_of,
        Some(first.clone())
    );
    assert_eq!(
        client
            .get_campaign_run(&first)
            .await
            .unwrap()
            .retried_by
            .as_deref(),
        Some(second)
    );
}
