//! Where the tasks of a workload run: what `onward bench` and the comparisons must agree on.

use clap::ValueEnum;

/// Name of the task that no component has, so that only a worker can perform it.
pub(super) const WORKER_TASK: &str = "bench_far";

/// Where the tasks of a workload run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchTaskRunner {
    /// In the server, as components without network access: a workflow continues while its last
    /// steps are being stored
    Wasm,
    /// In the server, as components that may send requests: each task waits until the steps before
    /// it are durable
    Outgoing,
    /// In a worker process: each task is claimed and completed over HTTP
    Worker,
}

impl BenchTaskRunner {
    /// Returns the name of the value, as on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Outgoing => "outgoing",
            Self::Worker => "worker",
        }
    }

    /// Returns the name of the worker task that each step invokes; `None` for the task of the
    /// component itself.
    pub const fn task_name(self) -> Option<&'static str> {
        match self {
            Self::Wasm | Self::Outgoing => None,
            Self::Worker => Some(WORKER_TASK),
        }
    }

    /// Returns the hosts that tasks may send requests to. They send none, and the name does not
    /// resolve.
    pub fn allowed_hosts(self) -> Vec<String> {
        match self {
            Self::Wasm | Self::Worker => Vec::new(),
            Self::Outgoing => vec!["tasks.invalid".to_owned()],
        }
    }
}
