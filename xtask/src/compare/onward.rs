//! Onward: the server of this repository, built for release, on SQLite, with its tasks as WASM in
//! the same process or in a worker beside it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::command::ToolCommand;
use crate::compare::http::BenchHttpRequest;
use crate::compare::process::{Process, bound_to_this, clean, printed};
use crate::compare::side::{DataFolder, Facts, Running, free_addresses};
use crate::compare::workload::Work;
use crate::run::XtaskRun;

const FOLDER: &str = "target/compare/onward";
const WORKFLOWS: &str = "examples/workflows/built/bench.wasm";
/// More than a driver can send: it has one token.
const REQUESTS_PER_SECOND: &str = "4294967295";
/// Longer than any of the work should take.
const WAIT_MS: u32 = 60_000;
/// Where tasks may send requests. Nobody has this name, and none is sent.
const NOBODY: &str = "tasks.invalid";
/// The task that the worker of a benchmark performs.
const FAR_TASK: &str = "bench_far";
/// Where an answer has what the workflow returned.
const RESULT: &str = "result";

/// What the tasks of the workflows may do. They do nothing either way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tasks {
    /// Reach nobody: a workflow goes on with them while its last steps are being stored.
    Contained,
    /// Send requests: each waits until what led to it is durable.
    Outgoing,
    /// Are in a process of their own, which asks for them over HTTP.
    Worker,
}

impl Tasks {
    const fn settings(self) -> &'static str {
        match self {
            Self::Contained => {
                "no rate limit; tasks are WASM in the server and may send no requests"
            }
            Self::Outgoing => "no rate limit; tasks are WASM in the server and may send requests",
            Self::Worker => "no rate limit; tasks are Rust in a worker, a process of its own",
        }
    }

    const fn durability(self) -> &'static str {
        match self {
            Self::Contained => {
                "SQLite, WAL, synchronous=FULL: what anybody outside can see is synced to disk; a workflow goes on \
                 meanwhile, and several of its steps share a sync"
            }
            Self::Outgoing | Self::Worker => {
                "SQLite, WAL, synchronous=FULL: a step is synced to disk before the next begins"
            }
        }
    }
}

/// The server. The process comes first, because it is to end before its data goes.
pub(crate) struct Onward {
    processes: Vec<Process>,
    _data: DataFolder,
    address: SocketAddr,
    token: String,
    tasks: Tasks,
}

/// Builds it, and returns its version.
pub(crate) fn build(run: &XtaskRun) -> Result<String> {
    eprintln!("  building onward for release");
    ToolCommand::new(
        run,
        "cargo",
        ["build", "--release", "--locked", "-p", "onward"],
    )
    .quiet()?;
    printed(clean(&program(run)).arg("--version"))
}

pub(crate) fn install(run: &XtaskRun, tasks: Tasks) -> Result<Facts> {
    Ok(Facts {
        versions: build(run)?,
        settings: tasks.settings().to_owned(),
        durability: tasks.durability().to_owned(),
    })
}

pub(crate) fn start(run: &XtaskRun, tasks: Tasks) -> Result<Onward> {
    let (program, folder) = (program(run), run.root.join(FOLDER));
    let data = DataFolder::make(folder.join("data"))?;
    let store = format!("sqlite:{}", data.path().join("onward.db").display());
    let token = printed(on(&program, &folder).args([
        "token", "create", "driver", "--role", "admin", "--store", &store,
    ]))?;
    let [address] = free_addresses()?;
    let mut command = bound_to_this(&program);
    command
        .args(["serve", "--store", &store, "--listen", &address.to_string()])
        .args(["--requests-per-second", REQUESTS_PER_SECOND])
        .env("ONWARD_CACHE", folder.join("cache"));
    let mut server = Process::start("server", &mut command, &folder)?;
    let known = BenchHttpRequest::post(address, "/v1/executions", &json!({ "function": "none" }))
        .with_token(&token);
    server.wait_until_it_is_there(&known)?;
    let url = format!("http://{address}");
    let mut deploy = on(&program, &folder);
    deploy
        .args(["deploy", "--server", &url])
        .arg(run.root.join(WORKFLOWS))
        .env("ONWARD_TOKEN", &token);
    if tasks == Tasks::Outgoing {
        deploy.args(["--allow-host", NOBODY]);
    }
    printed(&mut deploy)?;
    let mut processes = vec![server];
    if tasks == Tasks::Worker {
        let mut command = bound_to_this(&program);
        command
            .args(["bench", "--as-worker-of", &url])
            .env("ONWARD_TOKEN", &token);
        processes.push(Process::start("worker", &mut command, &folder)?);
    }
    let onward = Onward {
        processes,
        _data: data,
        address,
        token,
        tasks,
    };
    onward
        .request(Work::Start)
        .send()
        .context("the workflows do not run")?;
    Ok(onward)
}

/// A command that ends by itself.
fn on(program: &Path, folder: &Path) -> Command {
    let mut command = clean(program);
    command.env("ONWARD_CACHE", folder.join("cache"));
    command
}

/// Where cargo puts what it builds.
pub(crate) fn program(run: &XtaskRun) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    run.root.join(target).join("release/onward")
}

impl Onward {
    /// What a workflow is given: as everywhere, and who performs its steps if it is not the
    /// component itself.
    fn input(&self, work: Work) -> Value {
        let mut input = work.input();
        if self.tasks == Tasks::Worker {
            input["task"] = FAR_TASK.into();
        }
        input
    }
}

impl Running for Onward {
    fn request(&self, work: Work) -> BenchHttpRequest {
        let (function, input) = match work {
            Work::Start => ("bench_empty", Value::Null),
            Work::Chain => ("bench_chain", self.input(work)),
            Work::Long => ("bench_long", self.input(work)),
            Work::Fanout => ("bench_fanout", self.input(work)),
        };
        let body = json!({ "function": function, "input": input, "waitMs": WAIT_MS });
        BenchHttpRequest::post(self.address, "/v1/executions", &body)
            .with_token(&self.token)
            .answered_in(RESULT)
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }
}
