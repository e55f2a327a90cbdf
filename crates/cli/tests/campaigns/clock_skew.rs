//! Server processes with wrong clocks, beside one with a correct clock: the database clock is
//! authoritative, so leases and sends are unaffected.

use std::process::Command;

use tokio::time::sleep;

use crate::harness::{CampaignHarness, LEASE, counts, recipients, wait_until_settled};
use crate::recording_provider::ProviderReply;
use crate::server_process::ServerProcess;
use crate::text;

/// Shifts the clock of a command. Running it under `faketime` would put another process between the
/// test and the command, so `faketime` only supplies the environment.
fn set_clock_offset(offset: &str, command: &mut Command) {
    let output = Command::new("faketime")
        .args(["-f", offset, "env"])
        .output();
    let output = output.expect("faketime is required: apt-get install faketime");
    let variables = text(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once('='));
    command.envs(variables.filter(|(name, _)| matches!(*name, "LD_PRELOAD" | "FAKETIME")));
}

/// Seconds since 1970 according to a process with a shifted clock.
fn seconds_since_epoch(offset: &str) -> i64 {
    let mut command = Command::new("date");
    set_clock_offset(offset, command.arg("+%s"));
    text(&command.output().unwrap().stdout)
        .trim()
        .parse()
        .unwrap()
}

/// Starts a server process with a shifted clock.
fn start_shifted_node(harness: &CampaignHarness, offset: &str) -> ServerProcess {
    let mut command = harness.command(&harness.url, MAX_JOBS);
    set_clock_offset(offset, &mut command);
    harness.start_node_with(&mut command)
}

/// Each process sends two items of two jobs at a time.
const MAX_JOBS: &[&str] = &["--campaign-max-jobs", "2"];
const POLICY: &str = "policy = { window = 2 }";

#[tokio::test(flavor = "multi_thread")]
async fn processes_with_wrong_clocks_keep_their_leases_and_send_each_item_once() {
    // Two hours less the time between the two readings.
    assert!(
        seconds_since_epoch("+1h") - seconds_since_epoch("-1h") > 7_000,
        "faketime shifts the clocks"
    );
    let harness = CampaignHarness::postgres(POLICY).await;
    harness.provider.set_reply(|_| ProviderReply::Held);
    let early = start_shifted_node(&harness, "-1h");
    let late = start_shifted_node(&harness, "+1h");
    let correct = harness.start_node(MAX_JOBS);
    let run = correct.deploy(
        &harness.campaign("spring", &recipients(300), "job_size: 20"),
        &[],
    );
    let client = correct.client();
    // All processes have calls in progress for longer than a lease; none takes over from another,
    // whatever its clock shows.
    harness.provider.wait_until_called(12).await;
    sleep(LEASE * 2).await;
    assert_eq!(
        (
            harness.provider.call_count(),
            counts(&client, &run).await.in_doubt
        ),
        (12, 0)
    );
    harness.provider.release_held(60);
    harness.provider.wait_until_answered(60).await;
    // The processes with wrong clocks are killed; their jobs are taken over, and each item was sent
    // once.
    let before = harness.provider.response_count();
    late.kill();
    early.kill();
    harness.provider.release_held(300);
    wait_until_settled(&client, &run).await;
    let counts = counts(&client, &run).await;
    println!("{before} responses before the kills, then {counts:?}");
    assert!(
        counts.in_doubt <= 8 && counts.in_doubt + counts.sent == 300,
        "{counts:?}"
    );
    harness.provider.assert_called_once();
}
