//! Processes whose clocks are wrong, beside one whose clock is right: the time is that of the database, and nothing changes.

use std::process::Command;

use tokio::time::sleep;

use crate::provider::Reply;
use crate::text;
use crate::world::{LEASE, World, people, tally, until_done};

/// Seconds since 1970, as a process says whose clock is off by so much.
fn seconds(offset: &str) -> i64 {
    let said = Command::new("faketime").args(["-f", offset, "date", "+%s"]).output();
    text(&said.expect("faketime is there: apt-get install faketime").stdout).trim().parse().unwrap()
}

/// A process whose clock is off by so much, as `faketime` has it.
fn off_by(world: &World, offset: &str) -> Command {
    let honest = world.command(&world.url, &["--campaign-lanes", "2", "--node-name", offset]);
    let mut command = Command::new("faketime");
    command.args(["-f", offset]).arg(honest.get_program()).args(honest.get_args());
    for (name, value) in honest.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_whose_clocks_are_wrong_change_nothing() {
    assert!(seconds("+1h") - seconds("-1h") >= 7_200, "clocks can be wrong here");
    let world = World::postgres("terms = { window = 2 }").await;
    world.provider.reply(|_| Reply::Held);
    let early = world.node_by(&mut off_by(&world, "-1h"));
    let late = world.node_by(&mut off_by(&world, "+1h"));
    let honest = world.node(&["--campaign-lanes", "2", "--node-name", "honest"]);
    let run = honest.deploy(&world.campaign("spring", &people(300), "job_items: 20"), &[]);
    let client = honest.client();
    // Two lanes of two for each of the three: for a while all of them are in the middle of calls, and nobody takes over from
    // anybody, whatever they think what time it is.
    world.provider.until_called(12).await;
    sleep(LEASE * 2).await;
    assert_eq!((world.provider.count(), tally(&client, &run).await.in_doubt), (12, 0));
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
    assert!(tally.in_doubt <= 8 && tally.in_doubt + tally.served == 300, "{tally:?}");
    world.provider.expect_once();
}
