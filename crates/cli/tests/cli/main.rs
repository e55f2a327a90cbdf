//! End-to-end tests of the binary: output, exit codes, and the state of a store after kills and
//! faults.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that fails reports where"
)]

mod append_kills;
mod bench;
mod campaign_commands;
mod campaign_messages;
mod campaign_watch;
mod client_isolation;
mod cluster_faults;
mod deployments;
mod dev_server;
mod disk_faults;
mod fixture_store;
mod hostile_guests;
mod http_server;
mod inspection;
mod journal_commands;
mod old_stores;
mod private_files;
mod sdk_clients;
mod server_authorization;
mod server_configuration;
mod server_limits;
mod server_power_cuts;
mod server_shutdown;
mod state_commands;
mod terminal_text;
mod traces;
mod worked_journals;
mod worker_setup;
mod workers;
mod workflow_kills;
mod workflows;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn onward(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onward"));
    command
        .args(args)
        .env_remove("CLICOLOR_FORCE")
        .env_remove("NO_COLOR")
        .env_remove("ONWARD_STORE")
        .env_remove("ONWARD_SERVER")
        .env_remove("ONWARD_TOKEN");
    command
}

/// Runs a command with `input` on its standard input; the command may stop reading early.
fn run_with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn({
        let input = input.to_vec();
        move || drop(stdin.write_all(&input))
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}
