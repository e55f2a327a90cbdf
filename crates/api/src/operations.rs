//! All operations of the Onward API as one trait. A server client and a direct reader of a store
//! both implement it, so the command line works the same way with either.

use async_trait::async_trait;

use crate::RawJson;
use crate::campaign::CampaignApi;
use crate::component::{ComponentDeployment, DeployComponentResponse, DeployedFunction};
use crate::execution::{
    AcceptedMessage, CancelExecutionRequest, ExecutionPage, ExecutionResult, ExecutionView,
    ListExecutionsQuery, SignalExecutionRequest, StartExecutionRequest, StartExecutionResponse,
};
use crate::explanation::ExecutionExplanation;
use crate::finding::{self, DoctorReport};
use crate::problem::Problem;
use crate::run::{
    self, AppendRunEventsRequest, KeyContract, RunEventPage, RunEventReceipt, RunSnapshotView,
    SnapshotSource, VerifyReport,
};
use crate::task::{ListTasksQuery, TaskPage};

/// The operations of the API on components, executions, tasks and runs; [`CampaignApi`] adds those
/// on campaigns.
///
/// An execution is addressed by its id or by a unique prefix of it. A prefix that matches several
/// executions fails with `ambiguous_id`.
#[async_trait]
pub trait OnwardApi: CampaignApi {
    /// Deploys a component. Fails with `functions_taken` if it has names of functions of another
    /// component and may not replace them.
    async fn deploy_component(
        &self,
        deployment: ComponentDeployment,
    ) -> Result<DeployComponentResponse, Problem>;

    /// Returns the bytes of the component that an execution runs.
    async fn get_execution_component(&self, execution: &str) -> Result<Vec<u8>, Problem>;

    /// Lists the deployed functions of the scope, each with the component that its name resolves
    /// to.
    async fn list_functions(&self) -> Result<Vec<DeployedFunction>, Problem>;

    /// Starts a workflow. If the idempotency key has already started an execution, returns that
    /// execution instead.
    async fn start_execution(
        &self,
        start: StartExecutionRequest,
    ) -> Result<StartExecutionResponse, Problem>;

    /// Returns the result of an execution. Waits at most `wait_ms` milliseconds for the execution
    /// to end.
    async fn get_execution_result(
        &self,
        execution: &str,
        wait_ms: u64,
    ) -> Result<ExecutionResult, Problem>;

    /// Lists executions, one page at a time, in the order that the query asks for (default: newest
    /// first).
    async fn list_executions(&self, listing: ListExecutionsQuery)
    -> Result<ExecutionPage, Problem>;

    /// Returns an execution with its children and its result.
    async fn get_execution(&self, execution: &str) -> Result<ExecutionView, Problem>;

    /// Returns the journal of an execution as JSON Lines, starting with the event whose sequence is
    /// `from`. If there is no such event yet, waits at most `wait_ms` milliseconds for one.
    async fn get_execution_journal(
        &self,
        execution: &str,
        from: u64,
        wait_ms: u64,
    ) -> Result<String, Problem>;

    /// Explains why an execution makes no progress: what it waits for, since when, and what happens
    /// next.
    async fn explain_execution(&self, execution: &str) -> Result<ExecutionExplanation, Problem>;

    /// Sends a signal to an execution.
    async fn signal_execution(
        &self,
        execution: &str,
        signal: SignalExecutionRequest,
    ) -> Result<AcceptedMessage, Problem>;

    /// Requests cancellation of an execution.
    async fn cancel_execution(
        &self,
        execution: &str,
        cancel: CancelExecutionRequest,
    ) -> Result<AcceptedMessage, Problem>;

    /// Lists tasks that workers have claimed or that are queued for a worker.
    async fn list_tasks(&self, listing: ListTasksQuery) -> Result<TaskPage, Problem>;

    /// Checks whether any work is stuck: in the whole store with full access, otherwise in the
    /// scope of the caller. Reports each finding to the callback as soon as it is found.
    async fn run_doctor(
        &self,
        on_progress: &mut (dyn FnMut(finding::DoctorProgress) + Send),
    ) -> Result<DoctorReport, Problem>;

    /// Appends run events in the given order, atomically: all of them or none.
    async fn append_run_events(
        &self,
        append: AppendRunEventsRequest,
    ) -> Result<Vec<RunEventReceipt>, Problem>;

    /// Returns at most `limit` events of a run whose sequence is greater than `after`. If there is
    /// none yet, waits at most `wait_ms` milliseconds for one.
    async fn get_run_events(
        &self,
        run: &str,
        after: u64,
        limit: u32,
        wait_ms: u64,
    ) -> Result<RunEventPage, Problem>;

    /// Verifies the stored events and snapshots of one run, or of all runs if `run` is `None`.
    /// Reports each finding to the callback as soon as it is found.
    async fn verify_runs(
        &self,
        run: Option<&str>,
        keys: KeyContract,
        on_progress: &mut (dyn FnMut(run::VerifyProgress) + Send),
    ) -> Result<VerifyReport, Problem>;

    /// Returns the snapshot of a run: the stored one, or one reduced from the log now.
    async fn get_run_snapshot(
        &self,
        run: &str,
        source: SnapshotSource,
    ) -> Result<RunSnapshotView, Problem>;
}

/// Parses text as JSON and keeps it verbatim. Fails with `invalid_request` if the text is not JSON.
pub fn parse_json(text: &str) -> Result<RawJson, Problem> {
    RawJson::parse(text).ok_or_else(|| {
        Problem::new(
            crate::problem::Code::InvalidRequest,
            "the text is not valid JSON",
        )
    })
}
