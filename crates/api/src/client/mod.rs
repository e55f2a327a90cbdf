//! HTTP client of a server. It implements the same trait as a direct reader of a store.

mod campaigns;
mod transport;

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::transport::unreachable_problem;
use crate::component::{
    ComponentDeployment, DeployComponentResponse, DeployedFunction, FunctionList,
};
use crate::execution::{
    AcceptedMessage, CancelExecutionRequest, ExecutionPage, ExecutionResult, ExecutionView,
    FailureDetail, ListExecutionsQuery, SignalExecutionRequest, StartExecutionRequest,
    StartExecutionResponse,
};
use crate::explanation::ExecutionExplanation;
use crate::finding::{self, DoctorReport};
use crate::problem::{Code, Problem};
use crate::run::{
    self, AppendRunEventsRequest, AppendRunEventsResponse, KeyContract, RunEventPage,
    RunEventReceipt, RunSnapshotView, SnapshotSource, VerifyReport,
};
use crate::task::{
    ClaimTasksRequest, ClaimTasksResponse, CompleteTaskRequest, FailTaskRequest,
    HeartbeatTaskRequest, HeartbeatTaskResponse, ListTasksQuery, ReleaseTaskRequest, TaskClaim,
    TaskEndResponse, TaskPage,
};
use crate::token::{CreateTokenRequest, CreateTokenResponse, TokenList, TokenSummary};
use crate::{OnwardApi, parse_json};

/// Timeout for connecting to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a response, in addition to the wait that the request asks for.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long one request of [`ApiClient::call_workflow`] waits for the result, in milliseconds.
const CALL_WAIT_MS: u64 = 30_000;

/// Installs a TLS crypto provider for this process unless one is already installed.
pub fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Installing fails if another thread was faster; its provider serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// A client of one Onward server.
#[derive(Debug, Clone)]
pub struct ApiClient {
    http: reqwest::Client,
    base_url: Url,
}

/// How to connect to a server.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// The base URL of the server, such as `http://127.0.0.1:7400`; required.
    pub url: String,
    /// The bearer token; `None` sends requests without authentication.
    pub token: Option<String>,
    /// Tenant, project and environment; default: the scope of the token.
    pub scope: Option<[String; 3]>,
}

/// Why [`ApiClient::call_workflow`] returned no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The workflow failed or was cancelled.
    #[error("{kind}: {message}")]
    Failed {
        /// The kind of failure.
        kind: String,
        /// The error message, for people.
        message: String,
    },
    /// The workflow could not be started, or its result could not be read.
    #[error(transparent)]
    Problem(#[from] Problem),
}

impl ClientConfig {
    /// Reads `ONWARD_SERVER` (default: `http://127.0.0.1:7400`, the address of `onward dev`) and
    /// `ONWARD_TOKEN` (default: no token).
    pub fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let url = variable("ONWARD_SERVER").unwrap_or_else(|| "http://127.0.0.1:7400".to_owned());
        Self {
            url,
            token: variable("ONWARD_TOKEN"),
            scope: None,
        }
    }
}

impl ApiClient {
    /// Creates a client without sending a request. Fails if the URL is not `http` or `https`, or if
    /// the token or the scope cannot be sent in a header.
    pub fn new(access: &ClientConfig) -> Result<Self, Problem> {
        let invalid = |detail: String| Problem::new(Code::InvalidRequest, detail);
        let not_a_url = || {
            invalid(format!(
                "{} is not the URL of a server, such as http://127.0.0.1:7400",
                access.url
            ))
        };
        let base: Url = access.url.parse().map_err(|_| not_a_url())?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(not_a_url());
        }
        let mut headers = HeaderMap::new();
        let header_value = |what: &str, text: &str| {
            HeaderValue::from_str(text).map_err(|_| {
                invalid(format!(
                    "{what} has characters that a header cannot contain"
                ))
            })
        };
        if let Some(token) = &access.token {
            let mut bearer = header_value("the token", &format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        if let Some(scope) = &access.scope {
            let names = ["onward-tenant", "onward-project", "onward-environment"];
            for (name, text) in names.into_iter().zip(scope) {
                headers.insert(HeaderName::from_static(name), header_value(name, text)?);
            }
        }
        install_crypto_provider();
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true);
        let http = http
            .build()
            .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        Ok(Self {
            http,
            base_url: base,
        })
    }

    /// Starts a workflow and waits for its result, without a time limit.
    pub async fn call_workflow<R: DeserializeOwned>(
        &self,
        function: &str,
        input: &impl Serialize,
    ) -> Result<R, CallError> {
        let input = serde_json::to_string(input).map_err(|error| invalid_json_problem(&error))?;
        let (function, wait_ms) = (function.to_owned(), Some(CALL_WAIT_MS));
        let started = self
            .start_execution(StartExecutionRequest {
                function,
                input: parse_json(&input)?,
                key: None,
                wait_ms,
            })
            .await?;
        let mut outcome = ExecutionResult {
            result: started.result,
            error: started.error,
        };
        while !outcome.has_ended() {
            outcome = self
                .get_execution_result(&started.execution, CALL_WAIT_MS)
                .await?;
        }
        if let Some(FailureDetail { kind, message }) = outcome.error {
            return Err(CallError::Failed { kind, message });
        }
        let result = outcome.result.unwrap_or_default();
        Ok(serde_json::from_str(result.as_str()).map_err(|error| invalid_json_problem(&error))?)
    }

    /// Creates a token. The response is the only place where its secret appears.
    pub async fn create_token(
        &self,
        new: &CreateTokenRequest,
    ) -> Result<CreateTokenResponse, Problem> {
        self.send_for_json(self.build_request(Method::POST, &["tokens"])?.json(new))
            .await
    }

    /// Lists the tokens of the scope, without their secrets.
    pub async fn list_tokens(&self) -> Result<Vec<TokenSummary>, Problem> {
        let list: TokenList = self
            .send_for_json(self.build_request(Method::GET, &["tokens"])?)
            .await?;
        Ok(list.tokens)
    }

    /// Revokes the token with this name.
    pub async fn revoke_token(&self, name: &str) -> Result<(), Problem> {
        self.send_with_retry(self.build_request(Method::DELETE, &["tokens", name])?)
            .await
            .map(drop)
    }

    /// Claims tasks for a worker. If none is queued, waits up to the `wait_ms` of the request.
    pub async fn claim_tasks(&self, claim: &ClaimTasksRequest) -> Result<Vec<TaskClaim>, Problem> {
        let timeout = RESPONSE_TIMEOUT + Duration::from_millis(claim.wait_ms);
        let claimed: ClaimTasksResponse = self
            .send_for_json(
                self.build_request(Method::POST, &["tasks", "claim"])?
                    .json(claim)
                    .timeout(timeout),
            )
            .await?;
        Ok(claimed.tasks)
    }

    /// Sends a heartbeat for a task, which renews its lease. Fails with `lease_lost` if the worker
    /// no longer holds the task.
    pub async fn heartbeat_task(
        &self,
        task: &str,
        token: &str,
    ) -> Result<HeartbeatTaskResponse, Problem> {
        let body = HeartbeatTaskRequest {
            token: token.to_owned(),
        };
        self.send_for_json(
            self.build_request(Method::POST, &["tasks", task, "heartbeat"])?
                .json(&body),
        )
        .await
    }

    /// Releases a task that the worker has not started, so that another worker can claim it.
    pub async fn release_task(&self, task: &str, token: &str) -> Result<TaskEndResponse, Problem> {
        let body = ReleaseTaskRequest {
            token: token.to_owned(),
        };
        self.send_for_json(
            self.build_request(Method::POST, &["tasks", task, "release"])?
                .json(&body),
        )
        .await
    }

    /// Completes a task with a result.
    pub async fn complete_task(
        &self,
        task: &str,
        complete: &CompleteTaskRequest,
    ) -> Result<TaskEndResponse, Problem> {
        self.send_for_json(
            self.build_request(Method::POST, &["tasks", task, "complete"])?
                .json(complete),
        )
        .await
    }

    /// Fails a task with an error.
    pub async fn fail_task(
        &self,
        task: &str,
        fail: &FailTaskRequest,
    ) -> Result<TaskEndResponse, Problem> {
        self.send_for_json(
            self.build_request(Method::POST, &["tasks", task, "fail"])?
                .json(fail),
        )
        .await
    }

    /// Returns the metrics of the server in the Prometheus text format.
    pub async fn fetch_metrics(&self) -> Result<String, Problem> {
        self.send_for_text(
            self.http
                .get(self.endpoint_url(&["metrics"])?)
                .timeout(RESPONSE_TIMEOUT),
        )
        .await
    }
}

fn invalid_json_problem(error: &serde_json::Error) -> Problem {
    Problem::new(Code::Unprocessable, error.to_string())
}

#[async_trait]
impl OnwardApi for ApiClient {
    async fn deploy_component(
        &self,
        deployment: ComponentDeployment,
    ) -> Result<DeployComponentResponse, Problem> {
        let ComponentDeployment {
            code,
            hosts,
            replace,
        } = deployment;
        let request = self
            .build_request(Method::POST, &["components"])?
            .query(&[("allowHosts", hosts.join(","))])
            .query(&[("replace", replace)]);
        let request = request
            .header("content-type", "application/wasm")
            .timeout(RESPONSE_TIMEOUT * 10);
        self.send_for_json(request.body(code)).await
    }

    async fn get_execution_component(&self, execution: &str) -> Result<Vec<u8>, Problem> {
        let response = self
            .send_with_retry(
                self.build_request(Method::GET, &["executions", execution, "component"])?,
            )
            .await?;
        Ok(response
            .bytes()
            .await
            .map_err(|error| unreachable_problem(&error))?
            .to_vec())
    }

    async fn list_functions(&self) -> Result<Vec<DeployedFunction>, Problem> {
        let all: FunctionList = self
            .send_for_json(self.build_request(Method::GET, &["functions"])?)
            .await?;
        Ok(all.functions)
    }

    async fn start_execution(
        &self,
        start: StartExecutionRequest,
    ) -> Result<StartExecutionResponse, Problem> {
        let timeout = RESPONSE_TIMEOUT + Duration::from_millis(start.wait_ms.unwrap_or(0));
        self.send_for_json(
            self.build_request(Method::POST, &["executions"])?
                .json(&start)
                .timeout(timeout),
        )
        .await
    }

    async fn get_execution_result(
        &self,
        execution: &str,
        wait_ms: u64,
    ) -> Result<ExecutionResult, Problem> {
        self.send_for_json(self.build_get_request(
            &["executions", execution, "result"],
            &[("waitMs", wait_ms)],
            wait_ms,
        )?)
        .await
    }

    async fn list_executions(
        &self,
        listing: ListExecutionsQuery,
    ) -> Result<ExecutionPage, Problem> {
        self.send_for_json(self.build_get_request(&["executions"], &listing, 0)?)
            .await
    }

    async fn get_execution(&self, execution: &str) -> Result<ExecutionView, Problem> {
        self.send_for_json(self.build_request(Method::GET, &["executions", execution])?)
            .await
    }

    async fn get_execution_journal(
        &self,
        execution: &str,
        from: u64,
        wait_ms: u64,
    ) -> Result<String, Problem> {
        let query = [("from", from), ("waitMs", wait_ms)];
        self.send_for_text(self.build_get_request(
            &["executions", execution, "journal"],
            &query,
            wait_ms,
        )?)
        .await
    }

    async fn explain_execution(&self, execution: &str) -> Result<ExecutionExplanation, Problem> {
        self.send_for_json(self.build_request(Method::GET, &["executions", execution, "why"])?)
            .await
    }

    async fn signal_execution(
        &self,
        execution: &str,
        signal: SignalExecutionRequest,
    ) -> Result<AcceptedMessage, Problem> {
        self.send_for_json(
            self.build_request(Method::POST, &["executions", execution, "signals"])?
                .json(&signal),
        )
        .await
    }

    async fn cancel_execution(
        &self,
        execution: &str,
        cancel: CancelExecutionRequest,
    ) -> Result<AcceptedMessage, Problem> {
        self.send_for_json(
            self.build_request(Method::POST, &["executions", execution, "cancel"])?
                .json(&cancel),
        )
        .await
    }

    async fn list_tasks(&self, listing: ListTasksQuery) -> Result<TaskPage, Problem> {
        self.send_for_json(self.build_get_request(&["tasks"], &listing, 0)?)
            .await
    }

    async fn run_doctor(
        &self,
        on_progress: &mut (dyn FnMut(finding::DoctorProgress) + Send),
    ) -> Result<DoctorReport, Problem> {
        let request = self.build_request(Method::GET, &["doctor"])?;
        self.stream_findings(request, &mut |found| {
            on_progress(finding::DoctorProgress::Finding(found))
        })
        .await
    }

    async fn append_run_events(
        &self,
        append: AppendRunEventsRequest,
    ) -> Result<Vec<RunEventReceipt>, Problem> {
        let all: AppendRunEventsResponse = self
            .send_for_json(
                self.build_request(Method::POST, &["run-events"])?
                    .json(&append),
            )
            .await?;
        Ok(all.results)
    }

    async fn get_run_events(
        &self,
        run: &str,
        after: u64,
        limit: u32,
        wait_ms: u64,
    ) -> Result<RunEventPage, Problem> {
        let query = [
            ("after", after),
            ("limit", u64::from(limit)),
            ("waitMs", wait_ms),
        ];
        self.send_for_json(self.build_get_request(&["runs", run, "events"], &query, wait_ms)?)
            .await
    }

    async fn verify_runs(
        &self,
        run: Option<&str>,
        keys: KeyContract,
        on_progress: &mut (dyn FnMut(run::VerifyProgress) + Send),
    ) -> Result<VerifyReport, Problem> {
        let request = self
            .build_request(Method::GET, &["verify"])?
            .query(&[("acceptV1Keys", keys == KeyContract::V2OrV1)]);
        let request = request.query(&run.map(|run| [("run", run)]));
        self.stream_findings(request, &mut |found| {
            on_progress(run::VerifyProgress::Finding(found))
        })
        .await
    }

    async fn get_run_snapshot(
        &self,
        run: &str,
        source: SnapshotSource,
    ) -> Result<RunSnapshotView, Problem> {
        self.send_for_json(self.build_get_request(
            &["runs", run, "snapshot"],
            &[("fromLog", source == SnapshotSource::Log)],
            0,
        )?)
        .await
    }
}
