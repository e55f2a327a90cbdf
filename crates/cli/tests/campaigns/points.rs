//! A process that is killed at a chosen point: before and after it reserves, in a call, and before
//! and after it stores what was answered. Whatever the point, the provider's own record is enough
//! to end with everybody called once.

use std::process::Stdio;
use std::sync::Mutex;

use futures_util::future::join_all;
use onward_api::campaign::{CampaignApi as _, CampaignStatus};
use onward_api::client::ApiClient;
use onward_api::outbox::{ItemResolution, OutboxItemState, OutboxItemView, SettleItemRequest};
use onward_testing::DiskFault;

use crate::node::Node;
use crate::provider::Reply;
use crate::valve::{Side, Valve};
use crate::world::{World, outbox, people, until, until_done, until_over};

/// One item at a time: what happens to it happens to no other.
const ONE_BY_ONE: &str = "terms = { window = 1 }";

/// What is said to the database when the first item of a run is reserved or changed: how its name
/// ends, and at last that it is to be kept.
const ASKED: &[&str] = &[".000000.0000"];
const STORED: &[&str] = &[".000000.0000", "COMMIT\0"];

const fn words(side: Side) -> &'static [&'static str] {
    match side {
        Side::Before => ASKED,
        Side::After => STORED,
    }
}

/// A process on Postgres that is killed, and another that looks at what it leaves.
struct Doomed {
    world: World,
    valve: Valve,
    node: Node,
    run: String,
}

impl Doomed {
    /// Begins to send a campaign to so many; stops where it says so.
    async fn begun(count: usize, reply: Reply, stop: Option<Side>) -> Self {
        Self::begun_with(count, reply, stop, &[]).await
    }

    async fn begun_with(count: usize, reply: Reply, stop: Option<Side>, args: &[&str]) -> Self {
        let world = World::postgres(ONE_BY_ONE).await;
        world.provider.reply(move |_| reply.clone());
        let port = world.cluster.as_ref().unwrap().port();
        let valve = Valve::to(port);
        let mut command = world.command(
            &valve.url(&world.url, port),
            &[&["--campaign-lanes", "1"], args].concat(),
        );
        let node = world.node_by(&mut command);
        node.client();
        if let Some(side) = stop {
            valve.stop_at(words(side), side);
        }
        let run = node.deploy(&world.campaign("spring", &people(count), ""), &[]);
        Self {
            world,
            valve,
            node,
            run,
        }
    }

    /// Kills the process; what it had not said by then is not said any more.
    fn kill(self) -> (World, String) {
        self.node.kill();
        self.valve.cut();
        self.world.provider.reply(|_| Reply::Taken);
        (self.world, self.run)
    }
}

/// Settles what is in doubt by what the provider knows, and expects that everybody was called once.
async fn expect_whole(world: &World, client: &ApiClient, run: &str, doubts: &[OutboxItemView]) {
    for item in doubts {
        let was_called = world.provider.times().contains_key(&item.key);
        let verdict = if was_called {
            ItemResolution::Sent
        } else {
            ItemResolution::Again
        };
        let settle = SettleItemRequest {
            verdict,
            why: "its log".to_owned(),
            message_id: None,
            by: None,
        };
        client.settle_item(&item.item, settle).await.unwrap();
    }
    assert_eq!(until_over(client, run).await, CampaignStatus::Completed);
    world.provider.expect_once();
    let items = outbox(client, run).await;
    assert_eq!(world.provider.count(), items.len());
    assert!(
        items
            .iter()
            .all(|item| item.standing == OutboxItemState::Served)
    );
}

async fn doubts(client: &ApiClient, run: &str) -> Vec<OutboxItemView> {
    until_done(client, run).await;
    let items = outbox(client, run).await.into_iter();
    items
        .filter(|item| item.standing == OutboxItemState::InDoubt)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_before_it_reserves_leaves_nothing_in_doubt() {
    let doomed = Doomed::begun(3, Reply::Taken, Some(Side::Before)).await;
    doomed.valve.until_stopped().await;
    let (world, run) = doomed.kill();
    assert_eq!(
        world.provider.count(),
        0,
        "nobody is called before it is reserved"
    );
    let node = world.node(&[]);
    assert_eq!(doubts(&node.client(), &run).await, []);
    expect_whole(&world, &node.client(), &run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_after_it_reserved_leaves_in_doubt_whom_it_has_not_called() {
    let doomed = Doomed::begun(3, Reply::Taken, Some(Side::After)).await;
    doomed.valve.until_stopped().await;
    let node = doomed.world.node(&[]);
    let client = node.client();
    until("it is not reserved", async || {
        !outbox(&client, &doomed.run).await.is_empty()
    })
    .await;
    let (world, run) = doomed.kill();
    assert_eq!(
        world
            .provider
            .times()
            .get(&outbox(&client, &run).await[0].key),
        None,
        "it was not called yet"
    );
    let doubts = doubts(&client, &run).await;
    assert_eq!(doubts.len(), 1);
    assert_eq!(
        world.provider.times().get(&doubts[0].key),
        None,
        "nobody calls for what is in doubt"
    );
    expect_whole(&world, &client, &run, &doubts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_in_a_call_leaves_that_in_doubt() {
    let doomed = Doomed::begun(3, Reply::Held, None).await;
    doomed.world.provider.until_called(1).await;
    let (world, run) = doomed.kill();
    let node = world.node(&[]);
    let doubts = doubts(&node.client(), &run).await;
    assert_eq!(doubts.len(), 1);
    assert_eq!(world.provider.times()[&doubts[0].key], 1, "it was called");
    expect_whole(&world, &node.client(), &run, &doubts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_before_it_stores_an_answer_leaves_that_in_doubt() {
    let doomed = Doomed::begun(3, Reply::Held, None).await;
    doomed.world.provider.until_called(1).await;
    doomed.valve.stop_at(ASKED, Side::Before);
    doomed.world.provider.let_go(1);
    doomed.valve.until_stopped().await;
    assert_eq!(
        (
            doomed.world.provider.answered(),
            doomed.world.provider.count()
        ),
        (1, 1)
    );
    let (world, run) = doomed.kill();
    let node = world.node(&[]);
    let doubts = doubts(&node.client(), &run).await;
    assert_eq!(doubts.len(), 1);
    assert_eq!(world.provider.times()[&doubts[0].key], 1, "it was called");
    expect_whole(&world, &node.client(), &run, &doubts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_after_it_stored_an_answer_leaves_nothing_in_doubt() {
    let doomed = Doomed::begun(1, Reply::Held, None).await;
    doomed.world.provider.until_called(1).await;
    doomed.valve.stop_at(STORED, Side::After);
    doomed.world.provider.let_go(1);
    doomed.valve.until_stopped().await;
    let node = doomed.world.node(&[]);
    let client = node.client();
    let is_stored =
        async || outbox(&client, &doomed.run).await[0].standing == OutboxItemState::Served;
    until("the answer is not stored", is_stored).await;
    let (world, run) = doomed.kill();
    // The run was not ended by whoever should have.
    expect_whole(&world, &client, &run, &[]).await;
}

/// Writes and syncs from one kill to the next.
const STRIDE: usize = 3;

/// Kills that are tried together.
const TOGETHER: usize = 4;

/// The same on SQLite, where the store is a part of the process: killed before syncs and in the
/// middle of writes, from its start until the campaign is over. A process that lives on, and whose
/// way to the database is cut just when it stores something. It finds out by itself what became of
/// that.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_cut_off_from_its_database_calls_everybody_once_and_is_sure_of_it() {
    for (side, is_answer) in [
        (Side::Before, false),
        (Side::After, false),
        (Side::Before, true),
        (Side::After, true),
    ] {
        let (reply, stop) = if is_answer {
            (Reply::Held, None)
        } else {
            (Reply::Taken, Some(side))
        };
        let cut_off = Doomed::begun_with(3, reply, stop, &["--campaign-lease-ms", "60000"]).await;
        if is_answer {
            cut_off.world.provider.until_called(1).await;
            cut_off.valve.stop_at(words(side), side);
            cut_off.world.provider.let_go(3);
        }
        cut_off.valve.until_stopped().await;
        cut_off.valve.cut();
        cut_off.valve.go_on();
        cut_off.world.provider.reply(|_| Reply::Taken);
        let client = cut_off.node.client();
        assert_eq!(
            until_over(&client, &cut_off.run).await,
            CampaignStatus::Completed,
            "{side:?} {is_answer}"
        );
        cut_off.world.provider.expect_once();
        assert_eq!(cut_off.world.provider.count(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_write_a_process_dies_in_nobody_is_called_twice_or_forgotten() {
    let mut doubts = Vec::new();
    for round in 0.. {
        let steps = (0..TOGETHER).map(|place| 1 + (round * TOGETHER + place) * STRIDE);
        let died = join_all(steps.map(die_at_step)).await;
        doubts.extend(died.iter().flatten());
        if died.contains(&None) {
            break;
        }
    }
    let in_doubt: usize = doubts.iter().sum();
    println!("{} kills, {in_doubt} in doubt", doubts.len());
    assert!(doubts.len() >= 20 && in_doubt > 0, "{doubts:?}");
}

/// Lets a process die at a write or sync, and another go on. Returns how many were in doubt;
/// nothing if there are not so many.
async fn die_at_step(step: usize) -> Option<usize> {
    let world = World::sqlite(ONE_BY_ONE).await;
    let run = world.deploy_into_store(&world.campaign("spring", &people(2), ""));
    let short = ["--campaign-lanes", "1", "--campaign-lease-ms", "300"];
    let mut command = world.command(&world.url, &short);
    DiskFault::Kill.inject_at(step, &mut command);
    let doomed = Mutex::new(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let is_over = || world.look_into_store(&run)["status"] == "completed";
    until("nothing happens", async || {
        doomed.lock().unwrap().try_wait().unwrap().is_some() || is_over()
    })
    .await;
    if is_over() {
        let mut doomed = doomed.into_inner().unwrap();
        drop(doomed.kill());
        doomed.wait().unwrap();
        return None;
    }
    world.provider.until_alone().await;
    let node = world.node(&[]);
    let doubts = doubts(&node.client(), &run).await;
    assert!(doubts.len() <= 1, "one at a time: {doubts:?}");
    expect_whole(&world, &node.client(), &run, &doubts).await;
    Some(doubts.len())
}
