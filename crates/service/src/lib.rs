//! Every operation of the API, performed on a store. The server exposes it over HTTP; the command
//! line calls it directly when it is given a store instead of a server.

mod audience_check;
mod campaign_documents;
mod campaign_input;
mod campaign_inspection;
mod campaigns;
mod executions;
mod problems;
mod runs;
mod server_stage;
mod tasks;
mod template_workers;
pub mod token;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onward_api::component::{
    ComponentDeployment, DeployComponentResponse, DeployedFunction, FunctionInfo, FunctionKind,
    ReplacedFunction,
};
use onward_api::execution::{
    AcceptedMessage, CancelExecutionRequest, ExecutionPage, ExecutionResult, ExecutionView,
    ListExecutionsQuery, SignalExecutionRequest, StartExecutionRequest, StartExecutionResponse,
};
use onward_api::explanation::ExecutionExplanation;
use onward_api::finding::{DoctorFinding, DoctorProgress, DoctorReport, FindingClass};
use onward_api::problem::{Code, Problem};
use onward_api::run::{
    self, AppendRunEventsRequest, KeyContract, RunEventPage, RunEventReceipt, RunSnapshotView,
    SnapshotSource, VerifyReport,
};
use onward_api::task::{ListTasksQuery, TaskPage};
use onward_api::{OnwardApi, RawJson};
use onward_base::{Scope, SharedText};
use onward_campaign_delivery::ProviderRegistry;
use onward_campaign_dispatch::CampaignDoctorStats;
use onward_diagnostics::{doctor, explain};
use onward_engine::client::{EngineClient, FunctionTakeover, TakeoverPolicy};
use onward_engine::node::{self, Node};
use onward_execution::{GuestFunction, GuestFunctionKind};
use onward_store::tables::{ComponentRow, DeployedFunctionKind, FunctionRow};
use onward_store::{ColumnCodec as _, Error, RecordReader as _, RowKey, TableScan};
use tokio::sync::watch;

pub use self::campaign_documents::preview_message;
pub use self::executions::JournalLinesPage;
pub use self::problems::store_problem;
use self::problems::{check_length, engine_problem};
pub use self::server_stage::ServerStage;
use self::template_workers::TemplateWorkers;

/// Maximum length in characters of the reason of a cancellation.
const REASON_MAX: usize = 1_024;

/// Performs the operations of the API on a store, within the scope of its client.
#[derive(Clone)]
pub struct ApiService {
    client: EngineClient,
    component_runtime: Option<Arc<dyn node::ComponentRuntime>>,
    node: Option<Arc<Node>>,
    /// Whether runs and checks cover all scopes, for a caller that can access the whole store.
    full_access: bool,
    /// The providers of this process, for the checks of campaigns. `None` skips those checks.
    providers: Option<Arc<ProviderRegistry>>,
    /// The name of the caller's token, for the audit trail. `None` if the caller has none.
    caller_token: Option<SharedText>,
    /// The stage of the server; long polls end when it stops. `None` if there is no server.
    server_stage: Option<watch::Receiver<ServerStage>>,
    /// The threads that render and check templates.
    template_workers: Arc<TemplateWorkers>,
}

impl ApiService {
    /// Creates a service with the store and scope of `client`.
    pub fn new(client: EngineClient) -> Self {
        Self {
            client,
            component_runtime: None,
            node: None,
            full_access: false,
            providers: None,
            caller_token: None,
            server_stage: None,
            template_workers: Arc::default(),
        }
    }

    /// Gives access to the runs of all scopes, and makes checks cover the whole store. For callers
    /// that have the store itself.
    #[must_use]
    pub fn with_full_access(self) -> Self {
        Self {
            full_access: true,
            ..self
        }
    }

    /// Ends long polls when the server stops; they then return what is known so far.
    #[must_use]
    pub fn with_server_stage(self, stage: watch::Receiver<ServerStage>) -> Self {
        Self {
            server_stage: Some(stage),
            ..self
        }
    }

    /// Waits for `wait_ms` milliseconds, or until the server stops.
    async fn wait_or_stop(&self, wait_ms: u64) {
        let stops = async {
            match &self.server_stage {
                Some(stage) => drop(
                    stage
                        .clone()
                        .wait_for(|stage| *stage >= ServerStage::Stopping)
                        .await,
                ),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
            () = stops => {}
        }
    }

    /// Whether the server is stopping, so that callers should not wait any longer.
    pub fn is_stopping(&self) -> bool {
        self.server_stage
            .as_ref()
            .is_some_and(|stage| *stage.borrow() >= ServerStage::Stopping)
    }

    /// The scope that checks are limited to, or `None` for all scopes.
    fn scope_filter(&self) -> Option<&Scope> {
        (!self.full_access).then(|| self.client.scope())
    }

    /// Sets the runtime that inspects components when they are deployed. Without it, deploying a
    /// component fails.
    #[must_use]
    pub fn with_component_runtime(self, runtime: Arc<dyn node::ComponentRuntime>) -> Self {
        Self {
            component_runtime: Some(runtime),
            ..self
        }
    }

    /// Sets the provider registry, so that campaign checks include the provider.
    #[must_use]
    pub fn with_providers(self, registry: Arc<ProviderRegistry>) -> Self {
        Self {
            providers: Some(registry),
            ..self
        }
    }

    /// Sets the name of the caller's token, for the audit trail.
    #[must_use]
    pub fn with_caller_token(self, token_name: Option<SharedText>) -> Self {
        Self {
            caller_token: token_name,
            ..self
        }
    }

    /// Connects the service to the node of this process.
    #[must_use]
    pub fn with_local_node(self, node: &Arc<Node>) -> Self {
        Self {
            client: self.client.with_local_node(node),
            node: Some(Arc::clone(node)),
            ..self
        }
    }

    /// Returns a service for another scope, without full access.
    #[must_use]
    pub fn for_scope(&self, scope: Scope) -> Self {
        Self {
            client: self.client.with_scope(scope),
            full_access: false,
            ..self.clone()
        }
    }

    /// The node of this process, if there is one.
    pub fn local_node(&self) -> Option<&Node> {
        self.node.as_deref()
    }

    /// The engine client that the service uses.
    pub const fn engine_client(&self) -> &EngineClient {
        &self.client
    }
}

#[async_trait]
impl OnwardApi for ApiService {
    async fn deploy_component(
        &self,
        deployment: ComponentDeployment,
    ) -> Result<DeployComponentResponse, Problem> {
        let ComponentDeployment {
            code,
            hosts,
            replace,
        } = deployment;
        let Some(runtime) = &self.component_runtime else {
            return Err(Problem::new(
                Code::Unavailable,
                "components cannot be deployed here: this process has no component runtime",
            ));
        };
        let functions = runtime.deployable_functions(&code, &hosts).await;
        let functions =
            functions.map_err(|error| Problem::new(Code::BadComponent, error.to_string()))?;
        let policy = if replace {
            TakeoverPolicy::Replace
        } else {
            TakeoverPolicy::Refuse
        };
        let receipt = self
            .client
            .deploy_component(&code, &functions, &hosts, policy)
            .await
            .map_err(engine_problem)?;
        if let Some(node) = &self.node {
            node.refresh_functions().await.map_err(store_problem)?;
        }
        Ok(DeployComponentResponse {
            component: receipt.component.to_string(),
            functions: functions.iter().map(function_info).collect(),
            replaced: receipt.replaced.iter().map(replaced_function).collect(),
        })
    }

    async fn get_execution_component(&self, execution: &str) -> Result<Vec<u8>, Problem> {
        let digest = self.find_execution(execution).await?.component_digest;
        let row: Option<(ComponentRow, u64)> = self
            .client
            .store()
            .read_record(RowKey(vec![digest.to_value()]))
            .await
            .map_err(store_problem)?;
        let absent = || Problem::new(Code::NoComponent, format!("component {digest} not found"));
        row.map(|(component, _)| component.code.to_vec())
            .ok_or_else(absent)
    }

    async fn list_functions(&self) -> Result<Vec<DeployedFunction>, Problem> {
        let Scope {
            tenant,
            project,
            environment,
        } = self.client.scope();
        let mut scan = TableScan::all_rows::<FunctionRow>()
            .where_equal(tenant)
            .where_equal(project)
            .where_equal(environment);
        let mut all = Vec::new();
        loop {
            let rows: Vec<(FunctionRow, u64)> = self
                .client
                .store()
                .list_records(scan.clone())
                .await
                .map_err(store_problem)?;
            let Some((last, _)) = rows.last() else {
                return Ok(all);
            };
            scan = scan.starting_after(last);
            for (row, _) in rows {
                all.push(api_deployed_function(&row).map_err(store_problem)?);
            }
        }
    }

    async fn start_execution(
        &self,
        start: StartExecutionRequest,
    ) -> Result<StartExecutionResponse, Problem> {
        self.start_from_request(start).await
    }

    async fn get_execution_result(
        &self,
        execution: &str,
        wait_ms: u64,
    ) -> Result<ExecutionResult, Problem> {
        let row = self.find_execution(execution).await?;
        self.wait_for_result(row.execution_id, wait_ms).await
    }

    async fn list_executions(
        &self,
        listing: ListExecutionsQuery,
    ) -> Result<ExecutionPage, Problem> {
        self.read_execution_page(&listing).await
    }

    async fn get_execution(&self, execution: &str) -> Result<ExecutionView, Problem> {
        let row = self.find_execution(execution).await?;
        self.load_execution_view(&row).await
    }

    async fn get_execution_journal(
        &self,
        execution: &str,
        from: u64,
        wait_ms: u64,
    ) -> Result<String, Problem> {
        let row = self.find_execution(execution).await?;
        let mut page = self.poll_journal_lines(&row, from, wait_ms).await?;
        let mut lines = String::new();
        while !page.lines.is_empty() {
            lines += &page.lines;
            page = self.poll_journal_lines(&row, page.next, 0).await?;
        }
        Ok(lines)
    }

    async fn explain_execution(&self, execution: &str) -> Result<ExecutionExplanation, Problem> {
        let row = self.find_execution(execution).await?;
        explain::explain_execution(&self.client, row.execution_id)
            .await
            .map_err(engine_problem)
    }

    async fn signal_execution(
        &self,
        execution: &str,
        signal: SignalExecutionRequest,
    ) -> Result<AcceptedMessage, Problem> {
        self.send_signal(execution, signal).await
    }

    async fn cancel_execution(
        &self,
        execution: &str,
        cancel: CancelExecutionRequest,
    ) -> Result<AcceptedMessage, Problem> {
        let row = self.find_execution(execution).await?;
        check_length("reason", &cancel.reason, REASON_MAX)?;
        self.client
            .request_cancel(row.execution_id, &cancel.reason)
            .await
            .map_err(engine_problem)?;
        Ok(AcceptedMessage {
            execution: row.execution_id.to_string(),
            kind: "cancel".to_owned(),
        })
    }

    async fn list_tasks(&self, listing: ListTasksQuery) -> Result<TaskPage, Problem> {
        self.read_task_page(&listing).await
    }

    async fn run_doctor(
        &self,
        on_progress: &mut (dyn FnMut(DoctorProgress) + Send),
    ) -> Result<DoctorReport, Problem> {
        let (mut findings, mut warnings) = (0, 0);
        let on_progress = Mutex::new(on_progress);
        let notify =
            |progress| (on_progress.lock().unwrap_or_else(PoisonError::into_inner))(progress);
        let mut report = |finding: &DoctorFinding| -> io::Result<()> {
            *(if finding.class == FindingClass::Warning {
                &mut warnings
            } else {
                &mut findings
            }) += 1;
            notify(DoctorProgress::Finding(finding.clone()));
            Ok(())
        };
        let examined = doctor::examine_store(
            &**self.client.store(),
            self.scope_filter(),
            &mut report,
            |tally| {
                notify(DoctorProgress::Examined {
                    executions: tally.executions,
                    events: tally.events,
                });
            },
        );
        let doctor::DoctorTally {
            executions,
            events,
            messages,
        } = examined
            .await
            .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        let CampaignDoctorStats {
            runs: campaign_runs,
            items,
        } = self.examine_campaigns(&mut report).await?;
        let ok = findings == 0;
        Ok(DoctorReport {
            ok,
            executions,
            events,
            messages,
            campaign_runs,
            items,
            findings,
            warnings,
        })
    }

    async fn append_run_events(
        &self,
        append: AppendRunEventsRequest,
    ) -> Result<Vec<RunEventReceipt>, Problem> {
        self.append_parsed_events(append).await
    }

    async fn get_run_events(
        &self,
        run: &str,
        after: u64,
        limit: u32,
        wait_ms: u64,
    ) -> Result<RunEventPage, Problem> {
        self.poll_run_events(run, after, limit, wait_ms).await
    }

    async fn verify_runs(
        &self,
        run: Option<&str>,
        keys: KeyContract,
        on_progress: &mut (dyn FnMut(run::VerifyProgress) + Send),
    ) -> Result<VerifyReport, Problem> {
        self.verify_stored_runs(run, keys, on_progress).await
    }

    async fn get_run_snapshot(
        &self,
        run: &str,
        source: SnapshotSource,
    ) -> Result<RunSnapshotView, Problem> {
        self.read_run_snapshot(run, source).await
    }
}

/// Converts the row of a function. Fails with `corrupt` if its kind or its hosts are invalid.
fn api_deployed_function(row: &FunctionRow) -> Result<DeployedFunction, Error> {
    Ok(DeployedFunction {
        name: row.name.to_string(),
        kind: match row.kind {
            DeployedFunctionKind::Workflow => FunctionKind::Workflow,
            DeployedFunctionKind::Task => FunctionKind::Task,
        },
        component: row.component_digest.to_string(),
        hosts: serde_json::from_str(&row.hosts).map_err(Error::corrupt)?,
        deployed_at: row.deployed_at.to_string(),
    })
}

fn replaced_function(taken: &FunctionTakeover) -> ReplacedFunction {
    ReplacedFunction {
        function: taken.function.to_string(),
        component: taken.component.to_string(),
    }
}

/// The wire form of a function that a component exports.
fn function_info(function: &GuestFunction) -> FunctionInfo {
    FunctionInfo {
        name: function.name.to_string(),
        kind: function_kind(function.kind),
        schema: function
            .schema
            .as_ref()
            .and_then(|schema| RawJson::parse(schema.as_str())),
    }
}

const fn function_kind(kind: GuestFunctionKind) -> FunctionKind {
    match kind {
        GuestFunctionKind::Workflow => FunctionKind::Workflow,
        GuestFunctionKind::Task => FunctionKind::Task,
    }
}
