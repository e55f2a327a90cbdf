//! `onward demo`: what happens when processes are killed in the middle.

mod campaign;
mod counting_provider;
mod order;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;

/// How long anything may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Watch an order and a campaign survive the death of their processes
///
/// Starts an order workflow in a SQLite file of its own, kills the process that runs it with SIGKILL in the middle, lets another take over, and shows what happened. Then the same with a
/// campaign of 300 messages, and a provider that counts how often it is called for whom. Needs no set-up.
///
/// Exit codes: 0 they survived, 2 the demonstration could not be given.
#[derive(clap::Args)]
pub(crate) struct DemoArgs {
    /// Where to keep the stores; a new folder among the temporary ones if absent
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Only this one
    #[arg(long, value_parser = ["order", "campaign"])]
    only: Option<String>,
}

pub(crate) async fn run_demo(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let folder = args.folder.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("onward-demo-{}", std::process::id()))
    });
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let is_wanted = |name: &str| args.only.as_ref().is_none_or(|only| only == name);
    if is_wanted("order") {
        order::play_order(&folder).await?;
    }
    if is_wanted("campaign") {
        if args.only.is_none() {
            writeln!(io::stdout())?;
        }
        campaign::play_campaign(&folder).await?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_step(words: &str) -> io::Result<()> {
    writeln!(io::stdout(), "• {words}")
}

/// A process of its own that works on a store.
struct DemoProcess(Child);

impl DemoProcess {
    /// This program, with these arguments.
    fn spawn_self(args: &[&str]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(args);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Ok(Self(child.context("cannot start another process")?))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// SIGKILL: the process has no chance to do anything about it.
    fn kill(mut self) -> anyhow::Result<()> {
        self.0.kill().context("cannot kill the process")?;
        self.0
            .wait()
            .map(drop)
            .context("cannot wait for the process")
    }
}

impl Drop for DemoProcess {
    /// Whatever goes wrong, no process stays behind.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
