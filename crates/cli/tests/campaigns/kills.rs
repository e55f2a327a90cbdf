//! kill -9 of the processes that send a campaign, again and again while they do: nobody is called
//! twice, nobody is forgotten, and what nobody knows is said to be in doubt.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onward_api::OnwardApi as _;
use onward_api::campaign::{CampaignApi as _, CampaignStatus, CampaignTally};
use onward_api::client::ApiClient;
use onward_api::finding::{DoctorProgress, FindingCode};
use onward_api::outbox::{
    CampaignJobStatus, ItemResolution, OutboxItemState, OutboxItemView, SettleItemsRequest,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::node::Node;
use crate::provider::Reply;
use crate::world::{World, audit, jobs, outbox, people, run, tally, until_done, until_over};

/// Kills unless `ONWARD_CAMPAIGN_KILLS` says otherwise.
const KILLS: usize = 200;

/// People for each kill: more than are answered between two, and left in doubt by one.
const PEOPLE: usize = 50;

/// Answers between two kills, and those after which a kill comes at the latest.
const ANSWERS: usize = 40;
const LATEST: usize = 32;

/// A kill comes at any moment of so many microseconds after that: before, in and after whatever is
/// written then.
const SPREAD_US: usize = 12_000;

/// Jobs of a process at a time, and items of a job that are called for together: as many may be in
/// doubt after a kill.
const LANES: usize = 4;
const WINDOW: usize = 2;

/// A lease while processes are killed.
const BRIEF_MS: &str = "1000";

/// Why something is said of an item.
const TAKEN: &str = "its log has it";
const MISSED: &str = "its log has nothing of it";

/// Items that are settled one by one; the others together.
const BY_HAND: usize = 3;

fn kills() -> usize {
    std::env::var("ONWARD_CAMPAIGN_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(KILLS)
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_called_twice_or_forgotten_through_kills_of_two_processes_on_sqlite() {
    survive(World::sqlite(&terms()).await, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_called_twice_or_forgotten_through_kills_of_three_processes_on_postgres() {
    survive(World::postgres(&terms()).await, 3).await;
}

fn terms() -> String {
    format!("terms = {{ window = {WINDOW} }}")
}

/// Numbers that are the same in every run of the test.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

async fn survive(world: World, processes: usize) {
    let (kills, since) = (kills(), Instant::now());
    let people = people(kills * PEOPLE);
    // The provider keeps the pace of the kills. Some connections it closes just when they may be
    // used again.
    world
        .provider
        .reply(|request| match request.calls[0].key.as_bytes()[0] {
            b'0' => Reply::TakenAndClosed,
            _ => Reply::Held,
        });
    // However often the same job is hit, it is not to be given up.
    let file = world.campaign(
        "spring",
        &people,
        "job_items: 100\nretries: { attempts: 1000 }",
    );
    let lanes = LANES.to_string();
    let begin =
        |lease_ms| world.node(&["--campaign-lanes", &lanes, "--campaign-lease-ms", lease_ms]);
    let mut nodes: Vec<Node> = (0..processes).map(|_| begin(BRIEF_MS)).collect();
    let id = nodes[0].deploy(&file, &[]);
    let mut draw = Draw(7);
    for _ in 0..kills {
        // Somewhere on the way, or when there is nobody who is not in the middle of a call.
        world.provider.let_go(ANSWERS);
        let answered = world.provider.answered() + draw.below(LATEST);
        world.provider.until_answered(answered).await;
        sleep(Duration::from_micros(draw.below(SPREAD_US) as u64)).await;
        nodes.remove(0).kill();
        nodes.push(begin(BRIEF_MS));
    }
    let called = world.provider.count();
    assert!(
        called < people.len(),
        "the kills came while it was sent: {called} calls"
    );
    world.provider.let_go(people.len());
    until_done(&nodes[0].client(), &id).await;
    // What a process sent before it was killed is heard before anybody says what became of it.
    nodes.into_iter().for_each(Node::stop);
    world.provider.until_alone().await;
    // However slow the machine, what it takes up now is its own: nobody is in doubt again.
    let node = begin("60000");
    let proof = Proof {
        world: &world,
        node: &node,
        client: node.client(),
        run: id,
        people: &people,
    };
    let doubts = proof.expect_nothing_lost(kills).await;
    world.provider.reply(|_| Reply::Taken);
    let missed = doubts.iter().filter(|item| !proof.was_called(item)).count();
    assert!(
        missed > 0 && missed < doubts.len(),
        "some were killed before they called, and some after: {missed}"
    );
    proof.settle(&doubts).await;
    proof.expect_whole(&doubts).await;
    println!(
        "{kills} kills of {processes} processes, {} items: {called} called by the last kill, {} in doubt, of which {missed} were not called; {:.1} s",
        people.len(),
        doubts.len(),
        since.elapsed().as_secs_f64()
    );
}

/// What is to be shown, and of what.
struct Proof<'a> {
    world: &'a World,
    node: &'a Node,
    client: ApiClient,
    run: String,
    people: &'a [String],
}

impl Proof<'_> {
    fn was_called(&self, item: &OutboxItemView) -> bool {
        self.world.provider.times().contains_key(&item.key)
    }

    /// What a doctor finds.
    async fn found(&self) -> Vec<FindingCode> {
        let mut found = Vec::new();
        let mut hear = |heard| {
            if let DoctorProgress::Finding(finding) = heard {
                found.push(finding.code);
            }
        };
        let verdict = self.client.run_doctor(&mut hear).await.unwrap();
        assert_eq!(
            (verdict.campaign_runs, verdict.items),
            (1, self.people.len() as u64)
        );
        found
    }

    /// Nobody was called twice, everybody has one row, and what it says is so. Returns what is in
    /// doubt.
    async fn expect_nothing_lost(&self, kills: usize) -> Vec<OutboxItemView> {
        self.world.provider.expect_once();
        let items = outbox(&self.client, &self.run).await;
        let names: BTreeSet<&str> = items.iter().map(|item| item.recipient.as_str()).collect();
        assert_eq!(
            (names.len(), items.len()),
            (self.people.len(), self.people.len()),
            "everybody has one row"
        );
        assert!(self.people.iter().all(|who| names.contains(who.as_str())));
        let times = self.world.provider.times();
        let known: BTreeSet<&str> = items.iter().map(|item| item.key.as_str()).collect();
        assert!(
            times.keys().all(|key| known.contains(key.as_str())),
            "nobody else was called"
        );
        let mut doubts = Vec::new();
        for item in items {
            match item.standing {
                OutboxItemState::Served => assert_eq!(times.get(&item.key), Some(&1), "{item:?}"),
                OutboxItemState::InDoubt => doubts.push(item),
                _ => panic!("neither served nor in doubt: {item:?}"),
            }
        }
        let in_doubt = doubts.len() as u64;
        let served = self.people.len() as u64 - in_doubt;
        let expected = CampaignTally {
            served,
            in_doubt,
            ..CampaignTally::default()
        };
        assert_eq!(
            tally(&self.client, &self.run).await,
            expected,
            "the counts add up"
        );
        assert!(
            !doubts.is_empty(),
            "the kills came while somebody was called"
        );
        assert_eq!(
            self.found().await,
            [FindingCode::CampaignInDoubt],
            "whatever was killed, nothing is stuck"
        );
        assert!(
            doubts.len() <= kills * LANES * WINDOW,
            "a kill leaves no more than a window of each lane in doubt"
        );
        doubts
    }

    /// Says of each item in doubt what the provider's own record says: first of those that it has,
    /// then of all that are left.
    async fn settle(&self, doubts: &[OutboxItemView]) {
        let (called, missed): (Vec<&OutboxItemView>, Vec<_>) =
            doubts.iter().partition(|item| self.was_called(item));
        for item in called.iter().take(BY_HAND) {
            let settled = self.node.told(&[
                "outbox", "settle", &item.item, "sent", "--why", TAKEN, "--by", "ada",
            ]);
            assert_eq!(settled["standing"], "served");
        }
        let rest: Vec<String> = called
            .iter()
            .skip(BY_HAND)
            .map(|item| item.item.clone())
            .collect();
        for items in rest.chunks(1_000).map(<[String]>::to_vec) {
            let (why, by) = (TAKEN.to_owned(), Some("ada".to_owned()));
            let settle = SettleItemsRequest {
                items,
                verdict: ItemResolution::Sent,
                why,
                by,
            };
            let settlement = self.client.settle_items(settle).await.unwrap();
            assert!(settlement.refused.is_empty(), "{:?}", settlement.refused);
        }
        let told = self.node.say(&[
            "outbox", "settle", "--run", &self.run, "again", "--why", MISSED, "--by", "ada",
        ]);
        assert_eq!(told.lines().count(), missed.len(), "{told}");
    }

    /// Everybody was called once and served, and the audit trail says how that came about.
    async fn expect_whole(&self, doubts: &[OutboxItemView]) {
        assert_eq!(
            until_over(&self.client, &self.run).await,
            CampaignStatus::Completed
        );
        self.world.provider.expect_once();
        let times = self.world.provider.times();
        assert_eq!(times.len(), self.people.len(), "everybody was called");
        let items = outbox(&self.client, &self.run).await;
        assert!(
            items
                .iter()
                .all(|item| item.standing == OutboxItemState::Served
                    && times.contains_key(&item.key))
        );
        assert_eq!(
            run(&self.client, &self.run).await.tally.served,
            self.people.len() as u64
        );
        let jobs = jobs(&self.client, &self.run).await;
        assert_eq!(jobs.len(), self.people.len().div_ceil(100));
        assert!(
            jobs.iter()
                .all(|job| job.status == CampaignJobStatus::Completed)
        );
        assert_eq!(self.found().await, []);
        self.expect_audit(doubts, jobs.len()).await;
    }

    async fn expect_audit(&self, doubts: &[OutboxItemView], jobs: usize) {
        let entries = audit(&self.client, &self.run).await;
        let mut events: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for entry in &entries {
            let detail = serde_json::from_str(entry.detail.as_str()).unwrap();
            events.entry(&entry.event).or_default().push(detail);
        }
        let count = |event: &str| events.get(event).map_or(0, Vec::len);
        assert_eq!(
            (
                count("run.deployed"),
                count("run.began"),
                count("run.ended")
            ),
            (1, 1, 1)
        );
        assert_eq!(entries.first().unwrap().event, "run.deployed");
        assert_eq!(entries.last().unwrap().event, "run.ended");
        assert_eq!(events["run.deployed"][0]["by"], "ada (token admin)");
        let ended: BTreeSet<&str> = events["job.completed"]
            .iter()
            .map(|it| it["job"].as_str().unwrap())
            .collect();
        assert_eq!(
            (count("job.completed"), ended.len()),
            (jobs, jobs),
            "every job ends once"
        );
        assert!(count("job.recovered") > 0, "some were taken over");
        let settled: BTreeSet<&str> = events["item.settled"]
            .iter()
            .map(|it| it["item"].as_str().unwrap())
            .collect();
        assert_eq!(
            (count("item.settled"), settled.len()),
            (doubts.len(), doubts.len()),
            "every verdict is there once"
        );
        for item in doubts {
            let it = events["item.settled"]
                .iter()
                .find(|it| it["item"] == item.item.as_str())
                .unwrap();
            assert_eq!(it["by"], "ada (token admin)");
            let (verdict, why) = (it["verdict"].as_str().unwrap(), it["why"].as_str().unwrap());
            assert!(matches!(
                (verdict, why),
                ("sent", TAKEN) | ("again", MISSED)
            ));
        }
    }
}
