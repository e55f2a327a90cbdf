//! The processes of a side: started with a clean environment, asked what they have used, and ended
//! when they are dropped, also when something fails.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::clock::{Stopwatch, pause};
use crate::compare::http::{BenchHttpRequest, Connection};
use crate::compare::usage::Usage;

/// How long a server may take until it answers.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_INTERVAL: Duration = Duration::from_millis(20);

/// A process that runs until this is dropped.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    child: Child,
    log: PathBuf,
}

/// A command without what the developer has set for other programs of the same name.
pub(crate) fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::null());
    command
}

/// A command that ends with this process, even if this one is killed and drops nothing.
pub(crate) fn bound_to_this(program: &Path) -> Command {
    let mut command = clean(Path::new("setpriv"));
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// What a command that ends by itself prints.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} failed: {words}",
        command.get_program().display()
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Process {
    /// Starts `command`, which prints into a file of its name in `folder`.
    pub(crate) fn start(name: &'static str, command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let failed = || format!("cannot write {}", log.display());
        let file = File::create(&log).with_context(failed)?;
        command
            .stdout(file.try_clone().with_context(failed)?)
            .stderr(file);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name}: is setpriv (util-linux) installed?"));
        Ok(Self {
            name,
            child: child?,
            log,
        })
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.child.id()).with_context(|| self.gone())
    }

    /// Asks until the answer is that all is well.
    pub(crate) fn wait_until_it_answers(&mut self, request: &BenchHttpRequest) -> Result<String> {
        let watch = Stopwatch::start();
        loop {
            let failed = match request.send() {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            if let Some(status) = self
                .child
                .try_wait()
                .context("cannot see whether a process is there")?
            {
                bail!("{} ended ({status}): see {}", self.name, self.log.display());
            }
            ensure!(
                watch.elapsed() < READY_TIMEOUT,
                "{} is not ready: {failed:#}; see {}",
                self.name,
                self.log.display()
            );
            pause(READY_INTERVAL);
        }
    }

    /// Asks until there is an answer, whatever it says.
    pub(crate) fn wait_until_it_is_there(&mut self, request: &BenchHttpRequest) -> Result<()> {
        self.wait_until(|| Connection::open(request).is_ok())
    }

    /// Asks until it is so.
    pub(crate) fn wait_until(&mut self, is_so: impl Fn() -> bool) -> Result<()> {
        let watch = Stopwatch::start();
        while !is_so() {
            if let Some(status) = self
                .child
                .try_wait()
                .context("cannot see whether a process is there")?
            {
                bail!("{} ended ({status}): see {}", self.name, self.log.display());
            }
            ensure!(
                watch.elapsed() < READY_TIMEOUT,
                "{} is not ready: see {}",
                self.name,
                self.log.display()
            );
            pause(READY_INTERVAL);
        }
        Ok(())
    }

    fn gone(&self) -> String {
        format!("{} is gone: see {}", self.name, self.log.display())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing more can be done about a failure here. Its data is thrown away, so it may end
        // abruptly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::{Path, PathBuf};

    use serde_json::Value;

    use super::{Process, bound_to_this};
    use crate::compare::http::BenchHttpRequest;

    fn folder() -> PathBuf {
        std::env::temp_dir()
    }

    #[test]
    fn a_process_ends_when_it_is_dropped() {
        let mut command = bound_to_this(Path::new("sleep"));
        let process = Process::start("xtask-sleeper", command.arg("1000"), &folder()).unwrap();
        let path = format!("/proc/{}", process.child.id());
        assert!(process.usage().is_ok());
        drop(process);
        assert!(!Path::new(&path).exists());
    }

    #[test]
    fn a_process_that_ends_is_not_waited_for() {
        let mut command = bound_to_this(Path::new("false"));
        let mut process = Process::start("xtask-failure", &mut command, &folder()).unwrap();
        // Nobody listens there.
        let nowhere =
            BenchHttpRequest::post(SocketAddr::from(([127, 0, 0, 1], 1)), "/", &Value::Null);
        let error = process
            .wait_until_it_answers(&nowhere)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("xtask-failure ended (exit status: 1): see "),
            "{error}"
        );
    }
}
