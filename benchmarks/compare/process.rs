//! The processes of an engine: started with a clean environment, measured, and killed when they are
//! dropped, also after an error.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use onward_benchmarks::child_process::ChildProcess;
use onward_benchmarks::process_usage::ProcessUsage;
use onward_benchmarks::stopwatch::{BenchStopwatch, pause_thread};

use crate::http::{BenchHttpRequest, HttpConnection};

/// How long a server may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_INTERVAL: Duration = Duration::from_millis(20);

/// A process of an engine. It is killed on drop without a clean shutdown, because its data is
/// removed too.
pub(crate) struct EngineProcess {
    pub(crate) name: &'static str,
    child: ChildProcess,
    log: PathBuf,
}

/// A command with an empty environment except for PATH, so that settings of the developer have no
/// effect.
pub(crate) fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::null());
    command
}

/// A command that is killed with this process, even if this one is killed without running drops.
pub(crate) fn bound_to_this(program: &Path) -> Command {
    let mut command = clean(Path::new("setpriv"));
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Runs a command to its end, and returns its stdout.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} failed: {stderr}",
        command.get_program().display()
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl EngineProcess {
    /// Starts `command`, with its output in the file `NAME.log` in `folder`.
    pub(crate) fn start(name: &'static str, command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let failed = || format!("cannot write {}", log.display());
        let file = File::create(&log).with_context(failed)?;
        command
            .stdout(file.try_clone().with_context(failed)?)
            .stderr(file);
        let child = ChildProcess::spawn_command(command)
            .with_context(|| format!("cannot start {name}: is setpriv (util-linux) installed?"));
        Ok(Self {
            name,
            child: child?,
            log,
        })
    }

    pub(crate) fn read_usage(&self) -> Result<ProcessUsage> {
        ProcessUsage::read_usage(self.child.process_id()).with_context(|| self.not_running())
    }

    /// Repeats the request until the response is a success.
    pub(crate) fn wait_until_successful(&mut self, request: &BenchHttpRequest) -> Result<()> {
        self.poll_until_ready(|| request.send().map(drop))
    }

    /// Waits until the server accepts connections.
    pub(crate) fn wait_until_listening(&mut self, request: &BenchHttpRequest) -> Result<()> {
        self.poll_until_ready(|| HttpConnection::open(request).map(drop))
    }

    /// Repeats the attempt until it succeeds. Fails if the process exits.
    pub(crate) fn poll_until_ready(&mut self, attempt: impl Fn() -> Result<()>) -> Result<()> {
        let watch = BenchStopwatch::start_now();
        while let Err(error) = attempt() {
            if let Some(status) = self
                .child
                .exit_status()
                .context("cannot read the state of a process")?
            {
                bail!(
                    "{} exited ({status}): see {}",
                    self.name,
                    self.log.display()
                );
            }
            ensure!(
                watch.elapsed() < READY_TIMEOUT,
                "{} is not ready after {READY_TIMEOUT:?}: {error:#}; see {}",
                self.name,
                self.log.display()
            );
            pause_thread(READY_INTERVAL);
        }
        Ok(())
    }

    fn not_running(&self) -> String {
        format!(
            "{} is not running any more: see {}",
            self.name,
            self.log.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::{Path, PathBuf};

    use serde_json::Value;

    use super::{EngineProcess, bound_to_this};
    use crate::http::BenchHttpRequest;

    fn folder() -> PathBuf {
        std::env::temp_dir()
    }

    #[test]
    fn a_dropped_process_is_killed() {
        let mut command = bound_to_this(Path::new("sleep"));
        let process =
            EngineProcess::start("onward-compare-sleeper", command.arg("1000"), &folder()).unwrap();
        let path = format!("/proc/{}", process.child.process_id());
        assert!(process.read_usage().is_ok());
        drop(process);
        assert!(!Path::new(&path).exists());
    }

    #[test]
    fn waiting_fails_when_the_process_exits() {
        let mut command = bound_to_this(Path::new("false"));
        let mut process =
            EngineProcess::start("onward-compare-failure", &mut command, &folder()).unwrap();
        // No server listens on this port.
        let unused =
            BenchHttpRequest::post(SocketAddr::from(([127, 0, 0, 1], 1)), "/", &Value::Null);
        let error = process
            .wait_until_successful(&unused)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("onward-compare-failure exited (exit status: 1): see "),
            "{error}"
        );
    }
}
