//! All that can be asked of Onward. A server answers it, and so does whoever looks into a store; the command line cannot tell
//! the two apart.

use async_trait::async_trait;

use crate::Json;
use crate::campaign::Campaigning;
use crate::component::{Deployed, NamedFunction};
use crate::execution::{Cancel, Execution, ExecutionPage, Listing, Outcome, Sent, Signal, Start, Started};
use crate::explanation::Explanation;
use crate::finding::{self, Verdict};
use crate::problem::Problem;
use crate::run::{self, Append, Appended, RunEventPage, RunSnapshot, Verified};
use crate::task::{TaskListing, TaskPage};

/// What can be asked.
///
/// An execution is named by its id, or by the beginning of it if that is enough to tell it from others.
#[async_trait]
pub trait Onward: Campaigning {
    /// Deploys a component. Its functions may send requests to `hosts`, where the process that runs them allows it too.
    async fn deploy(&self, code: Vec<u8>, hosts: Vec<String>) -> Result<Deployed, Problem>;

    /// The bytes of the component that an execution runs.
    async fn component(&self, execution: &str) -> Result<Vec<u8>, Problem>;

    /// What names stand for.
    async fn functions(&self) -> Result<Vec<NamedFunction>, Problem>;

    /// Starts a workflow, unless the key has started one already.
    async fn start(&self, start: Start) -> Result<Started, Problem>;

    /// What an execution ended with, waited for at most so long.
    async fn outcome(&self, execution: &str, wait_ms: u64) -> Result<Outcome, Problem>;

    /// Executions, oldest first.
    async fn executions(&self, listing: Listing) -> Result<ExecutionPage, Problem>;

    /// An execution.
    async fn execution(&self, execution: &str) -> Result<Execution, Problem>;

    /// The journal of an execution as JSON Lines, from the event with the sequence `from` on. Where there is none yet, one is
    /// waited for at most so long.
    async fn journal(&self, execution: &str, from: u64, wait_ms: u64) -> Result<String, Problem>;

    /// Why an execution does not go on.
    async fn explain(&self, execution: &str) -> Result<Explanation, Problem>;

    /// Sends a signal.
    async fn signal(&self, execution: &str, signal: Signal) -> Result<Sent, Problem>;

    /// Asks an execution to stop.
    async fn cancel(&self, execution: &str, cancel: Cancel) -> Result<Sent, Problem>;

    /// Tasks that workers hold, or that wait for one.
    async fn tasks(&self, listing: TaskListing) -> Result<TaskPage, Problem>;

    /// Whether any work of the whole store is stuck. Findings are told as they are found.
    async fn doctor(&self, hear: &mut (dyn FnMut(finding::Heard) + Send)) -> Result<Verdict, Problem>;

    /// Appends run events, in this order, all of them or none.
    async fn append(&self, append: Append) -> Result<Vec<Appended>, Problem>;

    /// Events of a run after a sequence. Where there is none yet, one is waited for at most so long.
    async fn run_events(&self, run: &str, after: u64, limit: u32, wait_ms: u64) -> Result<RunEventPage, Problem>;

    /// Whether what is stored of a run, or of all runs, can have happened. Findings are told as they are found.
    async fn verify(
        &self,
        run: Option<&str>,
        accept_v1_keys: bool,
        hear: &mut (dyn FnMut(run::Heard) + Send),
    ) -> Result<Verified, Problem>;

    /// The snapshot of a run: as it is stored, or reduced from the log now.
    async fn snapshot(&self, run: &str, project: bool) -> Result<RunSnapshot, Problem>;
}

/// JSON as it is, for whoever has text.
pub fn json(text: &str) -> Result<Json, Problem> {
    Json::parse(text).ok_or_else(|| Problem::new(crate::problem::Code::InvalidRequest, "it is not JSON"))
}
