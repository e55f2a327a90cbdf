//! `onward demo`: shows that executions and campaigns survive when their processes are killed.

mod campaign;
mod counting_provider;
mod order;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::console;

/// Timeout of each wait.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Demonstrate that an order workflow and a campaign survive killed processes
///
/// Starts an order workflow on a new SQLite store, kills the process that runs it with SIGKILL
/// halfway, lets another process take over, and shows what happened. Then does the same with a
/// campaign of 300 messages and a provider that counts its calls per recipient. Needs no set-up.
///
/// Exit codes: 0 both survived, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct DemoArgs {
    /// Folder for the stores [default: a new folder in the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Run only this demo
    #[arg(long, value_parser = ["order", "campaign"])]
    only: Option<String>,
}

pub(crate) async fn run_demo(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let folder = args.folder.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("onward-demo-{}", std::process::id()))
    });
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let is_selected = |name: &str| args.only.as_ref().is_none_or(|only| only == name);
    if is_selected("order") {
        order::play_order(&folder).await?;
    }
    if is_selected("campaign") {
        if args.only.is_none() {
            writeln!(io::stdout())?;
        }
        campaign::play_campaign(&folder).await?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_step(message: &str) -> io::Result<()> {
    writeln!(console::text_output(), "• {message}")
}

/// A child process that works on a store. It is killed on drop.
struct DemoProcess(Child);

impl DemoProcess {
    /// Spawns this binary with the given arguments.
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

    /// Kills the process with SIGKILL, which it cannot handle, and waits until it has exited.
    fn kill(mut self) -> anyhow::Result<()> {
        self.0.kill().context("cannot kill the process")?;
        self.0
            .wait()
            .map(drop)
            .context("cannot wait for the process")
    }
}

impl Drop for DemoProcess {
    /// Kills the process, so that none is left running after an error.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
