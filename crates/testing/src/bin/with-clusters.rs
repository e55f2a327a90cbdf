//! Runs a command with two Postgres clusters that all test processes below it share: starting one
//! for each process would take most of the time of a test.

use std::process::{Command, ExitCode};

use onward_testing::{ClusterDurability, PostgresCluster};

fn main() -> ExitCode {
    match run_with_clusters() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_with_clusters() -> Result<u8, Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let program = args
        .next()
        .ok_or("usage: with-clusters COMMAND [ARGUMENT …]")?;
    let mut command = Command::new(program);
    command.args(args);
    let mut clusters = Vec::new();
    for durability in [ClusterDurability::Synced, ClusterDurability::Unsynced] {
        let cluster = PostgresCluster::start_with_durability(durability)?;
        command.env(durability.shared_variable(), cluster.base_dir());
        clusters.push(cluster);
    }
    let status = command.status()?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}
