//! Worker that performs the tasks of a benchmark: the binary `onward` as a child process.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use onward_worker::{ClientConfig, TaskFailure, Worker, WorkerTaskContext};

use super::BenchHost;
use super::figures::BenchFigures;
use super::server::BenchServer;
use super::task_runner::WORKER_TASK;
use crate::child_process::ChildProcess;
use crate::process_usage;

/// Concurrent tasks of the worker: more than the 64 lanes of the largest default.
const SLOTS: usize = 128;

/// A worker process that is killed on drop.
pub(super) struct BenchWorker(ChildProcess);

impl BenchWorker {
    /// Spawns a worker for this server.
    pub(super) fn spawn_for(host: &BenchHost, server: &BenchServer) -> anyhow::Result<Self> {
        let mut command = Command::new(&host.program);
        command
            .args(["bench", "--as-worker-of", &server.url])
            .env("ONWARD_TOKEN", &server.token);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self(
            ChildProcess::spawn_command(&mut command).context("cannot start a worker")?,
        ))
    }

    /// Returns the CPU time that the worker has used so far.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        process_usage::cpu_time(self.0.process_id())
    }

    /// Adds the CPU time that the worker has used since `before`.
    pub(super) fn with_worker_figure(
        &self,
        figures: BenchFigures,
        before: Option<Duration>,
    ) -> BenchFigures {
        match (self.cpu_time(), before) {
            (Some(now), Some(before)) => {
                let used = now.saturating_sub(before).as_secs_f64();
                figures.with_figure("workerCpuSeconds", "CPU of the worker", used, "s")
            }
            _ => figures,
        }
    }
}

/// Performs the tasks of the benchmark server at this URL until the process is killed.
pub async fn run_bench_worker(url: &str) -> anyhow::Result<()> {
    let access = ClientConfig {
        url: url.to_owned(),
        token: std::env::var("ONWARD_TOKEN").ok(),
        scope: None,
    };
    let step = |(): (), _: WorkerTaskContext| std::future::ready(Ok::<u32, TaskFailure>(1));
    let worker = Worker::new(&access)?
        .with_name("bench")
        .with_slots(SLOTS)
        .register_task(WORKER_TASK, step);
    worker.run(std::future::pending()).await?;
    Ok(())
}
