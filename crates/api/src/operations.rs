//! All that can be asked of Onward. A server answers it, and so does whoever looks into a store; the command line cannot tell
//! the two apart.

use async_trait::async_trait;

use crate::RawJson;
use crate::campaign::CampaignApi;
use crate::component::{DeployComponentResponse, DeployedFunction};
use crate::execution::{
    AcceptedMessage, CancelExecutionRequest, ExecutionPage, ExecutionResult, ExecutionView,
    ListExecutionsQuery, SignalExecutionRequest, StartExecutionRequest, StartExecutionResponse,
};
use crate::explanation::ExecutionExplanation;
use crate::finding::{self, DoctorReport};
use crate::problem::Problem;
use crate::run::{
    self, AppendRunEventsRequest, RunEventPage, RunEventReceipt, RunSnapshotView, VerifyReport,
};
use crate::task::{ListTasksQuery, TaskPage};

/// What can be asked.
///
/// An execution is named by its id, or by the beginning of it if that is enough to tell it from others.
#[async_trait]
pub trait OnwardApi: CampaignApi {
    /// Deploys a component. Its functions may send requests to `hosts`, where the process that runs them allows it too.
    async fn deploy_component(
        &self,
        code: Vec<u8>,
        hosts: Vec<String>,
    ) -> Result<DeployComponentResponse, Problem>;

    /// The bytes of the component that an execution runs.
    async fn get_execution_component(&self, execution: &str) -> Result<Vec<u8>, Problem>;

    /// What names stand for.
    async fn list_functions(&self) -> Result<Vec<DeployedFunction>, Problem>;

    /// Starts a workflow, unless the key has started one already.
    async fn start_execution(
        &self,
        start: StartExecutionRequest,
    ) -> Result<StartExecutionResponse, Problem>;

    /// What an execution ended with, waited for at most so long.
    async fn get_execution_result(
        &self,
        execution: &str,
        wait_ms: u64,
    ) -> Result<ExecutionResult, Problem>;

    /// Executions, oldest first.
    async fn list_executions(&self, listing: ListExecutionsQuery)
    -> Result<ExecutionPage, Problem>;

    /// An execution.
    async fn get_execution(&self, execution: &str) -> Result<ExecutionView, Problem>;

    /// The journal of an execution as JSON Lines, from the event with the sequence `from` on. Where there is none yet, one is
    /// waited for at most so long.
    async fn get_execution_journal(
        &self,
        execution: &str,
        from: u64,
        wait_ms: u64,
    ) -> Result<String, Problem>;

    /// Why an execution does not go on.
    async fn explain_execution(&self, execution: &str) -> Result<ExecutionExplanation, Problem>;

    /// Sends a signal.
    async fn signal_execution(
        &self,
        execution: &str,
        signal: SignalExecutionRequest,
    ) -> Result<AcceptedMessage, Problem>;

    /// Asks an execution to stop.
    async fn cancel_execution(
        &self,
        execution: &str,
        cancel: CancelExecutionRequest,
    ) -> Result<AcceptedMessage, Problem>;

    /// Tasks that workers hold, or that wait for one.
    async fn list_tasks(&self, listing: ListTasksQuery) -> Result<TaskPage, Problem>;

    /// Whether any work of the whole store is stuck. Findings are told as they are found.
    async fn run_doctor(
        &self,
        hear: &mut (dyn FnMut(finding::DoctorProgress) + Send),
    ) -> Result<DoctorReport, Problem>;

    /// Appends run events, in this order, all of them or none.
    async fn append_run_events(
        &self,
        append: AppendRunEventsRequest,
    ) -> Result<Vec<RunEventReceipt>, Problem>;

    /// Events of a run after a sequence. Where there is none yet, one is waited for at most so long.
    async fn get_run_events(
        &self,
        run: &str,
        after: u64,
        limit: u32,
        wait_ms: u64,
    ) -> Result<RunEventPage, Problem>;

    /// Whether what is stored of a run, or of all runs, can have happened. Findings are told as they are found.
    async fn verify_runs(
        &self,
        run: Option<&str>,
        accept_v1_keys: bool,
        hear: &mut (dyn FnMut(run::VerifyProgress) + Send),
    ) -> Result<VerifyReport, Problem>;

    /// The snapshot of a run: as it is stored, or reduced from the log now.
    async fn get_run_snapshot(&self, run: &str, project: bool) -> Result<RunSnapshotView, Problem>;
}

/// JSON as it is, for whoever has text.
pub fn parse_json(text: &str) -> Result<RawJson, Problem> {
    RawJson::parse(text)
        .ok_or_else(|| Problem::new(crate::problem::Code::InvalidRequest, "it is not JSON"))
}
