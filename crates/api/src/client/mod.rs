//! A client over HTTP: the same questions as to a store, asked of a server.

mod campaigns;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::component::{Deployed, NamedFunction, NamedFunctions};
use crate::execution::{Cancel, Execution, ExecutionPage, Failure, Listing, Outcome, Sent, Signal, Start, Started};
use crate::explanation::Explanation;
use crate::finding::{self, Verdict};
use crate::problem::{Code, Problem};
use crate::run::{self, Append, Appended, AppendedAll, RunEventPage, RunSnapshot, Verified};
use crate::task::{
    Claim, Claimed, ClaimedTask, Complete, Ended, Extended, Fail, Heartbeat, Release, TaskListing, TaskPage,
};
use crate::token::{MadeToken, NewToken, TokenInfo, TokenList};
use crate::{Onward, json};

/// How long it may take to reach a server.
const CONNECT: Duration = Duration::from_secs(10);

/// How long an answer may take besides what was asked to wait for.
const ANSWER: Duration = Duration::from_secs(30);

/// How long to wait for a result at a time, in milliseconds.
const CALL_MS: u64 = 30_000;

/// How long to wait altogether where too much is asked.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long findings may come.
const STREAM: Duration = Duration::from_secs(24 * 3_600);

/// Makes sure that this process can speak TLS, whoever does so first.
pub fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another may have been quicker, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// Access to a server.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
}

/// How to reach a server.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Where it is: `http://127.0.0.1:7400`.
    pub url: String,
    /// Who asks.
    pub token: Option<String>,
    /// Tenant, project and environment, where they are not what the token says anyway.
    pub scope: Option<[String; 3]>,
}

/// Why a call returned nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The workflow failed, or was cancelled.
    #[error("{kind}: {message}")]
    Failed {
        /// The kind of failure.
        kind: String,
        /// What happened, for people.
        message: String,
    },
    /// It could not be started, or its end was not heard of.
    #[error(transparent)]
    Problem(#[from] Problem),
}

impl Access {
    /// What `ONWARD_SERVER` and `ONWARD_TOKEN` say; `onward dev` on this machine unless they do.
    pub fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let url = variable("ONWARD_SERVER").unwrap_or_else(|| "http://127.0.0.1:7400".to_owned());
        Self { url, token: variable("ONWARD_TOKEN"), scope: None }
    }
}

impl Client {
    /// A client of a server. Nothing is sent yet.
    pub fn new(access: &Access) -> Result<Self, Problem> {
        let wrong = |words: String| Problem::new(Code::InvalidRequest, words);
        let not_a_url = || wrong(format!("{} is not the URL of a server, such as http://127.0.0.1:7400", access.url));
        let base: Url = access.url.parse().map_err(|_| not_a_url())?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(not_a_url());
        }
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| wrong("not plain text".to_owned()));
        if let Some(token) = &access.token {
            let mut bearer = value(&format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        if let Some(scope) = &access.scope {
            let names = ["onward-tenant", "onward-project", "onward-environment"];
            for (name, text) in names.into_iter().zip(scope) {
                headers.insert(HeaderName::from_static(name), value(text)?);
            }
        }
        install_crypto();
        let http = reqwest::Client::builder().default_headers(headers).connect_timeout(CONNECT).tcp_nodelay(true);
        let http = http.build().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        Ok(Self { http, base })
    }

    /// Starts a workflow and waits for what it returns, for as long as that takes.
    pub async fn call<R: DeserializeOwned>(&self, function: &str, input: &impl Serialize) -> Result<R, CallError> {
        let input = serde_json::to_string(input).map_err(|error| not_json(&error))?;
        let (function, wait_ms) = (function.to_owned(), Some(CALL_MS));
        let started = self.start(Start { function, input: json(&input)?, key: None, wait_ms }).await?;
        let mut outcome = Outcome { result: started.result, error: started.error };
        while !outcome.is_known() {
            outcome = self.outcome(&started.execution, CALL_MS).await?;
        }
        if let Some(Failure { kind, message }) = outcome.error {
            return Err(CallError::Failed { kind, message });
        }
        let result = outcome.result.unwrap_or_default();
        Ok(serde_json::from_str(result.as_str()).map_err(|error| not_json(&error))?)
    }

    /// Makes a token.
    pub async fn create_token(&self, new: &NewToken) -> Result<MadeToken, Problem> {
        self.ask(self.request(Method::POST, &["tokens"])?.json(new)).await
    }

    /// The tokens of the scope.
    pub async fn tokens(&self) -> Result<Vec<TokenInfo>, Problem> {
        let list: TokenList = self.ask(self.request(Method::GET, &["tokens"])?).await?;
        Ok(list.tokens)
    }

    /// Takes a token back.
    pub async fn revoke_token(&self, name: &str) -> Result<(), Problem> {
        self.send(self.request(Method::DELETE, &["tokens", name])?).await.map(drop)
    }

    /// Claims tasks for a worker; waits for one where there is none.
    pub async fn claim(&self, claim: &Claim) -> Result<Vec<ClaimedTask>, Problem> {
        let timeout = ANSWER + Duration::from_millis(claim.wait_ms);
        let claimed: Claimed =
            self.ask(self.request(Method::POST, &["tasks", "claim"])?.json(claim).timeout(timeout)).await?;
        Ok(claimed.tasks)
    }

    /// Shows that the worker of a task is alive.
    pub async fn heartbeat(&self, task: &str, token: &str) -> Result<Extended, Problem> {
        let body = Heartbeat { token: token.to_owned() };
        self.ask(self.request(Method::POST, &["tasks", task, "heartbeat"])?.json(&body)).await
    }

    /// Gives a task back that was not begun.
    pub async fn release(&self, task: &str, token: &str) -> Result<Ended, Problem> {
        let body = Release { token: token.to_owned() };
        self.ask(self.request(Method::POST, &["tasks", task, "release"])?.json(&body)).await
    }

    /// A task was performed.
    pub async fn complete(&self, task: &str, complete: &Complete) -> Result<Ended, Problem> {
        self.ask(self.request(Method::POST, &["tasks", task, "complete"])?.json(complete)).await
    }

    /// A task could not be performed.
    pub async fn fail(&self, task: &str, fail: &Fail) -> Result<Ended, Problem> {
        self.ask(self.request(Method::POST, &["tasks", task, "fail"])?.json(fail)).await
    }

    /// What the server measures, in the form of Prometheus.
    pub async fn metrics(&self) -> Result<String, Problem> {
        self.text(self.http.get(self.url(&["metrics"])?).timeout(ANSWER)).await
    }

    /// A request to what is below `/v1`, with names as they are.
    fn request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder, Problem> {
        let url = self.url(&[&["v1"], path].concat())?;
        Ok(self.http.request(method, url).timeout(ANSWER))
    }

    fn url(&self, path: &[&str]) -> Result<Url, Problem> {
        let mut url = self.base.clone();
        let mut segments =
            url.path_segments_mut().map_err(|()| Problem::new(Code::InvalidRequest, "the URL has no path"))?;
        segments.pop_if_empty().extend(path);
        drop(segments);
        Ok(url)
    }

    fn get(&self, path: &[&str], query: &impl Serialize, wait_ms: u64) -> Result<RequestBuilder, Problem> {
        let timeout = ANSWER + Duration::from_millis(wait_ms);
        Ok(self.request(Method::GET, path)?.query(query).timeout(timeout))
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Problem> {
        let bytes = self.send(request).await?.bytes().await.map_err(|error| unreached(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| not_understood(&error.to_string()))
    }

    async fn text(&self, request: RequestBuilder) -> Result<String, Problem> {
        self.send(request).await?.text().await.map_err(|error| unreached(&error))
    }

    /// Findings, one a line, and a verdict on the last. All there is may be read: nobody knows how long that takes.
    async fn stream<F: DeserializeOwned, V: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        found: &mut (dyn FnMut(F) + Send),
    ) -> Result<V, Problem> {
        let mut chunks = self.send(request.timeout(STREAM)).await?.bytes_stream();
        let mut rest = Vec::new();
        while let Some(chunk) = chunks.next().await {
            rest.extend_from_slice(&chunk.map_err(|error| unreached(&error))?);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                if let Ok(finding) = serde_json::from_slice(&line) {
                    found(finding);
                } else if let Ok(verdict) = serde_json::from_slice(&line) {
                    return Ok(verdict);
                } else {
                    return Err(serde_json::from_slice(&line).unwrap_or_else(|_| not_understood("a finding")));
                }
            }
        }
        Err(not_understood("it ends without a verdict"))
    }

    async fn send(&self, mut request: RequestBuilder) -> Result<Response, Problem> {
        let mut left = PATIENCE;
        let response = loop {
            let again = request.try_clone();
            let response = request.send().await.map_err(|error| unreached(&error))?;
            // Whoever asks too much is told when to ask again, and nothing has happened.
            match (again, retry_after(&response)) {
                (Some(again), Some(wait)) if wait <= left => {
                    tokio::time::sleep(wait).await;
                    (request, left) = (again, left - wait);
                }
                _ => break response,
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.map_err(|error| unreached(&error))?;
        // Something between may have answered.
        Err(serde_json::from_str(&text).unwrap_or_else(|_| not_understood(&format!("status {status}"))))
    }
}

/// How long whoever has asked too much should wait.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER).filter(|_| response.status() == StatusCode::TOO_MANY_REQUESTS);
    Some(Duration::from_secs(seconds?.to_str().ok()?.parse().ok()?))
}

fn unreached(error: &reqwest::Error) -> Problem {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        words = format!("{words}: {deeper}");
        cause = deeper.source();
    }
    Problem::new(Code::Unavailable, format!("the server cannot be reached: {words}"))
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::new(Code::Unprocessable, error.to_string())
}

fn not_understood(words: &str) -> Problem {
    Problem::new(Code::Internal, format!("the answer is not one of Onward: {words}"))
}

#[async_trait]
impl Onward for Client {
    async fn deploy(&self, code: Vec<u8>, hosts: Vec<String>) -> Result<Deployed, Problem> {
        let request = self.request(Method::POST, &["components"])?.query(&[("allowHosts", hosts.join(","))]);
        let request = request.header("content-type", "application/wasm").timeout(ANSWER * 10);
        self.ask(request.body(code)).await
    }

    async fn component(&self, execution: &str) -> Result<Vec<u8>, Problem> {
        let response = self.send(self.request(Method::GET, &["executions", execution, "component"])?).await?;
        Ok(response.bytes().await.map_err(|error| unreached(&error))?.to_vec())
    }

    async fn functions(&self) -> Result<Vec<NamedFunction>, Problem> {
        let all: NamedFunctions = self.ask(self.request(Method::GET, &["functions"])?).await?;
        Ok(all.functions)
    }

    async fn start(&self, start: Start) -> Result<Started, Problem> {
        let timeout = ANSWER + Duration::from_millis(start.wait_ms.unwrap_or(0));
        self.ask(self.request(Method::POST, &["executions"])?.json(&start).timeout(timeout)).await
    }

    async fn outcome(&self, execution: &str, wait_ms: u64) -> Result<Outcome, Problem> {
        self.ask(self.get(&["executions", execution, "result"], &[("waitMs", wait_ms)], wait_ms)?).await
    }

    async fn executions(&self, listing: Listing) -> Result<ExecutionPage, Problem> {
        self.ask(self.get(&["executions"], &listing, 0)?).await
    }

    async fn execution(&self, execution: &str) -> Result<Execution, Problem> {
        self.ask(self.request(Method::GET, &["executions", execution])?).await
    }

    async fn journal(&self, execution: &str, from: u64, wait_ms: u64) -> Result<String, Problem> {
        let query = [("from", from), ("waitMs", wait_ms)];
        self.text(self.get(&["executions", execution, "journal"], &query, wait_ms)?).await
    }

    async fn explain(&self, execution: &str) -> Result<Explanation, Problem> {
        self.ask(self.request(Method::GET, &["executions", execution, "why"])?).await
    }

    async fn signal(&self, execution: &str, signal: Signal) -> Result<Sent, Problem> {
        self.ask(self.request(Method::POST, &["executions", execution, "signals"])?.json(&signal)).await
    }

    async fn cancel(&self, execution: &str, cancel: Cancel) -> Result<Sent, Problem> {
        self.ask(self.request(Method::POST, &["executions", execution, "cancel"])?.json(&cancel)).await
    }

    async fn tasks(&self, listing: TaskListing) -> Result<TaskPage, Problem> {
        self.ask(self.get(&["tasks"], &listing, 0)?).await
    }

    async fn doctor(&self, hear: &mut (dyn FnMut(finding::Heard) + Send)) -> Result<Verdict, Problem> {
        let request = self.request(Method::GET, &["doctor"])?;
        self.stream(request, &mut |found| hear(finding::Heard::Found(found))).await
    }

    async fn append(&self, append: Append) -> Result<Vec<Appended>, Problem> {
        let all: AppendedAll = self.ask(self.request(Method::POST, &["run-events"])?.json(&append)).await?;
        Ok(all.results)
    }

    async fn run_events(&self, run: &str, after: u64, limit: u32, wait_ms: u64) -> Result<RunEventPage, Problem> {
        let query = [("after", after), ("limit", u64::from(limit)), ("waitMs", wait_ms)];
        self.ask(self.get(&["runs", run, "events"], &query, wait_ms)?).await
    }

    async fn verify(
        &self,
        run: Option<&str>,
        accept_v1_keys: bool,
        hear: &mut (dyn FnMut(run::Heard) + Send),
    ) -> Result<Verified, Problem> {
        let request = self.request(Method::GET, &["verify"])?.query(&[("acceptV1Keys", accept_v1_keys)]);
        let request = request.query(&run.map(|run| [("run", run)]));
        self.stream(request, &mut |wrong| hear(run::Heard::Found(wrong))).await
    }

    async fn snapshot(&self, run: &str, project: bool) -> Result<RunSnapshot, Problem> {
        self.ask(self.get(&["runs", run, "snapshot"], &[("project", project)], 0)?).await
    }
}
