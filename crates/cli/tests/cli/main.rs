//! The binary as its users meet it: what it prints where, with which exit code, and what is left
//! after it was killed.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says where"
)]

mod apart;
mod bench;
mod campaign;
mod campaign_watch;
mod campaign_words;
mod clients;
mod crash;
mod faults;
mod journal;
mod kills;
mod look;
mod nodes;
mod old_stores;
mod server;
mod server_authorization;
mod server_configuration;
mod server_shutdown;
mod state;
mod traces;
mod work;
mod worked;
mod workers;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn onward(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onward"));
    command
        .args(args)
        .env_remove("CLICOLOR_FORCE")
        .env_remove("NO_COLOR")
        .env_remove("ONWARD_STORE")
        .env_remove("ONWARD_SERVER");
    command
}

/// Runs a command with `input` on its standard input, which it need not read to the end.
fn fed(mut command: Command, input: &[u8]) -> Output {
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
