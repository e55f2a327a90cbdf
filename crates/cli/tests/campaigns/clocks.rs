//! Processes whose clocks are wrong, beside one whose clock is right: the time is that of the
//! database, and nothing changes.

use std::process::Command;

use tokio::time::sleep;

use crate::node::Node;
use crate::provider::Reply;
use crate::text;
use crate::world::{LEASE, World, people, tally, until_done};

/// Whose clock is off by so much. `faketime` would stand between the test and the process, so it
/// only says what to load.
fn off_by(offset: &str, command: &mut Command) {
    let said = Command::new("faketime")
        .args(["-f", offset, "env"])
        .output();
    let said = said.expect("faketime is there: apt-get install faketime");
    let variables = text(&said.stdout)
        .lines()
        .filter_map(|line| line.split_once('='));
    command.envs(variables.filter(|(name, _)| matches!(*name, "LD_PRELOAD" | "FAKETIME")));
}

/// Seconds since 1970, as a process says whose clock is off by so much.
fn seconds(offset: &str) -> i64 {
    let mut command = Command::new("date");
    off_by(offset, command.arg("+%s"));
    text(&command.output().unwrap().stdout)
        .trim()
        .parse()
        .unwrap()
}

/// A process whose clock is off by so much.
fn node(world: &World, offset: &str) -> Node {
    let mut command = world.command(&world.url, LANES);
    off_by(offset, &mut command);
    world.node_by(&mut command)
}

/// Two items of two jobs for each process.
const LANES: &[&str] = &["--campaign-lanes", "2"];
const TERMS: &str = "terms = { window = 2 }";

#[tokio::test(flavor = "multi_thread")]
async fn processes_whose_clocks_are_wrong_change_nothing() {
    assert!(
        seconds("+1h") - seconds("-1h") >= 7_200,
        "clocks can be wrong here"
    );
    let world = World::postgres(TERMS).await;
    world.provider.reply(|_| Reply::Held);
    let early = node(&world, "-1h");
    let late = node(&world, "+1h");
    let honest = world.node(LANES);
    let run = honest.deploy(
        &world.campaign("spring", &people(300), "job_items: 20"),
        &[],
    );
    let client = honest.client();
    // All of them are in the middle of calls, for longer than a lease: nobody takes over from
    // anybody, whatever time they think that it is.
    world.provider.until_called(12).await;
    sleep(LEASE * 2).await;
    assert_eq!(
        (world.provider.count(), tally(&client, &run).await.in_doubt),
        (12, 0)
    );
    world.provider.let_go(60);
    world.provider.until_answered(60).await;
    // Those whose clocks are wrong are killed: what they had is taken over, and was called once.
    let before = world.provider.answered();
    late.kill();
    early.kill();
    world.provider.let_go(300);
    until_done(&client, &run).await;
    let tally = tally(&client, &run).await;
    println!("{before} answered before the kills, then {tally:?}");
    assert!(
        tally.in_doubt <= 8 && tally.in_doubt + tally.served == 300,
        "{tally:?}"
    );
    world.provider.expect_once();
}
