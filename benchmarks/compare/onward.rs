//! Onward: a release build of this repository, on SQLite, with tasks as WASM in the server or in a
//! separate worker process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use onward_benchmarks::workloads::{BenchTaskRunner, UNLIMITED_REQUESTS_PER_SECOND};
use serde_json::{Value, json};

use crate::http::BenchHttpRequest;
use crate::process::{EngineProcess, bound_to_this, clean, printed};
use crate::side::{DataFolder, EngineFacts, RunningEngine, free_addresses};
use crate::workload::ComparedWork;

const FOLDER: &str = "target/compare/onward";
const WORKFLOWS: &str = "examples/workflows/built/bench.wasm";
/// How long the server holds a request, longer than any invocation should take.
const WAIT_MS: u32 = 60_000;
/// The member of a response that has the result of the workflow.
const RESULT: &str = "result";

const fn settings(tasks: BenchTaskRunner) -> &'static str {
    match tasks {
        BenchTaskRunner::Wasm => {
            "no rate limit; tasks are WASM in the server, without network access"
        }
        BenchTaskRunner::Outgoing => {
            "no rate limit; tasks are WASM in the server, with network access"
        }
        BenchTaskRunner::Worker => {
            "no rate limit; tasks are Rust functions in a separate worker process"
        }
    }
}

const fn durability(tasks: BenchTaskRunner) -> &'static str {
    match tasks {
        BenchTaskRunner::Wasm => {
            "SQLite, WAL, synchronous=FULL: everything observable from outside is synced to disk; the workflow \
             continues during a sync, and several of its steps share one"
        }
        BenchTaskRunner::Outgoing | BenchTaskRunner::Worker => {
            "SQLite, WAL, synchronous=FULL: each step is synced to disk before the next starts"
        }
    }
}

/// The running server. `processes` is first, because it is dropped before the data is removed.
pub(crate) struct OnwardEngine {
    processes: Vec<EngineProcess>,
    _data: DataFolder,
    address: SocketAddr,
    token: String,
    tasks: BenchTaskRunner,
}

/// Builds the release binary, and returns its version.
pub(crate) fn build(root: &Path) -> Result<String> {
    eprintln!("  building onward for release");
    let mut command = Command::new("cargo");
    command
        .args(["build", "--release", "--locked", "-p", "onward"])
        .current_dir(root);
    printed(&mut command)?;
    printed(clean(&program(root)).arg("--version"))
}

pub(crate) fn install(root: &Path, tasks: BenchTaskRunner) -> Result<EngineFacts> {
    Ok(EngineFacts {
        versions: build(root)?,
        settings: settings(tasks).to_owned(),
        durability: durability(tasks).to_owned(),
    })
}

pub(crate) fn start(root: &Path, tasks: BenchTaskRunner) -> Result<OnwardEngine> {
    let (program, folder) = (program(root), root.join(FOLDER));
    let data = DataFolder::create(folder.join("data"))?;
    let store = format!("sqlite:{}", data.path().join("onward.db").display());
    let token = printed(on(&program, &folder).args([
        "token", "create", "driver", "--role", "admin", "--store", &store,
    ]))?;
    let [address] = free_addresses()?;
    let mut command = bound_to_this(&program);
    command
        .args(["serve", "--store", &store, "--listen", &address.to_string()])
        .args(["--requests-per-second", UNLIMITED_REQUESTS_PER_SECOND])
        .env("ONWARD_CACHE", folder.join("cache"));
    let mut server = EngineProcess::start("server", &mut command, &folder)?;
    let known = BenchHttpRequest::post(address, "/v1/executions", &json!({ "function": "none" }))
        .with_token(&token);
    server.wait_until_listening(&known)?;
    let url = format!("http://{address}");
    let mut deploy = on(&program, &folder);
    deploy
        .args(["deploy", "--server", &url])
        .arg(root.join(WORKFLOWS))
        .env("ONWARD_TOKEN", &token);
    for host in tasks.allowed_hosts() {
        deploy.args(["--allow-host", &host]);
    }
    printed(&mut deploy)?;
    let mut processes = vec![server];
    if tasks == BenchTaskRunner::Worker {
        let mut command = bound_to_this(&program);
        command
            .args(["bench", "--as-worker-of", &url])
            .env("ONWARD_TOKEN", &token);
        processes.push(EngineProcess::start("worker", &mut command, &folder)?);
    }
    let onward = OnwardEngine {
        processes,
        _data: data,
        address,
        token,
        tasks,
    };
    onward
        .request(ComparedWork::Start)
        .send()
        .context("the deployed workflows cannot be executed")?;
    Ok(onward)
}

/// A command of the binary that terminates by itself.
fn on(program: &Path, folder: &Path) -> Command {
    let mut command = clean(program);
    command.env("ONWARD_CACHE", folder.join("cache"));
    command
}

/// The path of the release binary.
pub(crate) fn program(root: &Path) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    root.join(target).join("release/onward")
}

impl OnwardEngine {
    /// The input of a workflow: the same as for other engines, and the task of the worker if one
    /// executes the steps.
    fn input(&self, work: ComparedWork) -> Value {
        let mut input = work.input();
        if let Some(task) = self.tasks.task_name() {
            input["task"] = task.into();
        }
        input
    }
}

impl RunningEngine for OnwardEngine {
    fn request(&self, work: ComparedWork) -> BenchHttpRequest {
        let (function, input) = match work {
            ComparedWork::Start => ("bench_empty", Value::Null),
            ComparedWork::Chain => ("bench_chain", self.input(work)),
            ComparedWork::Long => ("bench_long", self.input(work)),
            ComparedWork::Fanout => ("bench_fanout", self.input(work)),
        };
        let body = json!({ "function": function, "input": input, "waitMs": WAIT_MS });
        BenchHttpRequest::post(self.address, "/v1/executions", &body)
            .with_token(&self.token)
            .with_result_member(RESULT)
    }

    fn processes(&self) -> &[EngineProcess] {
        &self.processes
    }
}
