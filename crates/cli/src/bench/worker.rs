//! A worker that performs the tasks of what is measured, as a process of its own: this binary again.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use onward_worker::{Access, Failure, Task, Worker};

use super::figures::Figures;
use super::server::{Process, Server};
use super::usage;

/// The task that no component has.
pub(super) const TASK: &str = "bench_far";

/// As many as there are lanes, and some more.
const SLOTS: usize = 128;

/// A worker process that is killed in the end.
pub(super) struct Running(Process);

impl Running {
    /// One for this server.
    pub(super) fn of(server: &Server) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.args(["bench", "--as-worker-of", &server.url]).env("ONWARD_TOKEN", &server.token);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self(Process(command.spawn().context("cannot start a worker")?)))
    }

    /// CPU time that it has used so far.
    pub(super) fn cpu(&self) -> Option<Duration> {
        usage::cpu(self.0.0.id())
    }

    /// What it has used since.
    pub(super) fn told(&self, figures: Figures, before: Option<Duration>) -> Figures {
        match (self.cpu(), before) {
            (Some(now), Some(before)) => {
                let used = now.saturating_sub(before).as_secs_f64();
                figures.with("workerCpuSeconds", "CPU of the worker", used, "s")
            }
            _ => figures,
        }
    }
}

/// Performs tasks until it is killed.
pub(super) async fn run(url: &str) -> anyhow::Result<ExitCode> {
    let access = Access { url: url.to_owned(), token: std::env::var("ONWARD_TOKEN").ok(), scope: None };
    let step = |(): (), _: Task| std::future::ready(Ok::<u32, Failure>(1));
    let worker = Worker::new(&access)?.named("bench").slots(SLOTS).task(TASK, step);
    worker.run(std::future::pending()).await?;
    Ok(ExitCode::SUCCESS)
}
