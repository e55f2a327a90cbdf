//! Implements the engine's component runtime with wasmtime and the guest HTTP client.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onward_base::{Payload, SharedText, Timestamp};
use onward_engine::node::{ComponentLoadError, ComponentRuntime, log_guest_line};
use onward_engine::shard::{GuestEntry, GuestUnavailable, TaskAttempt, in_doubt_error};
use onward_execution::{Guest, GuestFunction, GuestLogLevel};
use onward_journal::{ComponentDigest, DeliveryGuarantee, ExecutionError, InvokeResult};
use onward_store::{StoreClock as _, SystemClock};
use onward_wasm::{
    CallContext, ComponentEgress, Config, GuestHttpClient, HostPattern, HttpConfig, HttpRequest,
    LoadError, TaskCall, TaskLimits, TaskServices, WasmRuntime, WorkflowLimits,
};
use serde::{Deserialize, Serialize};

use crate::EngineError;

/// Compiles, limits and runs the components of a process.
pub struct WasmComponentRuntime {
    runtime: WasmRuntime,
    http: GuestHttpClient,
    services: Arc<SystemServices>,
}

impl WasmComponentRuntime {
    /// Creates a runtime with these limits. Tasks may send requests only as `http` allows.
    pub fn new(config: Config, http: HttpConfig) -> Result<Self, EngineError> {
        let runtime =
            WasmRuntime::new(config).map_err(|error| EngineError::Runtime(error.to_string()))?;
        let http =
            GuestHttpClient::new(http).map_err(|error| EngineError::Runtime(error.to_string()))?;
        Ok(Self {
            runtime,
            http,
            services: Arc::new(SystemServices),
        })
    }

    /// Creates a runtime with the default limits and cache folder. Tasks may not send any requests.
    pub fn with_defaults() -> Result<Self, EngineError> {
        Self::new(
            Config {
                cache_folder: default_cache_folder(),
                ..Config::default()
            },
            HttpConfig::default(),
        )
    }

    /// Returns the functions of a component. Fails if `code` is not a valid component or if `hosts`
    /// contains an invalid pattern.
    pub fn read_functions(
        &self,
        code: &[u8],
        hosts: &[String],
    ) -> Result<Vec<GuestFunction>, EngineError> {
        check_host_patterns(hosts)?;
        let component = self.runtime.load_component(code)?;
        Ok(component.functions().to_vec())
    }

    /// Like [`Self::read_functions`], but waits without blocking the thread.
    pub(crate) async fn read_functions_async(
        &self,
        code: &[u8],
        hosts: &[String],
    ) -> Result<Vec<GuestFunction>, EngineError> {
        check_host_patterns(hosts)?;
        let component = self.runtime.load_component_async(code.into()).await?;
        Ok(component.functions().to_vec())
    }

    /// Returns the HTTP client for an attempt. An invalid host pattern in the deployment allows no
    /// host.
    fn attempt_egress(&self, attempt: &TaskAttempt) -> ComponentEgress {
        let hosts = attempt
            .hosts
            .iter()
            .filter_map(|host| host.parse().ok())
            .collect();
        ComponentEgress {
            http: self.http.clone(),
            hosts,
        }
    }
}

fn check_host_patterns(hosts: &[String]) -> Result<(), EngineError> {
    for host in hosts {
        let parsed: Result<HostPattern, _> = host.parse();
        parsed.map_err(|error| EngineError::InvalidValue {
            what: "a host",
            reason: error.to_string(),
        })?;
    }
    Ok(())
}

/// `ONWARD_CACHE`, or `onward` in the user's cache folder; `None` if neither is known.
pub(crate) fn default_cache_folder() -> Option<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let default_folder =
        || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    variable("ONWARD_CACHE").or_else(|| Some(default_folder()?.join("onward")))
}

#[async_trait]
impl ComponentRuntime for WasmComponentRuntime {
    async fn load_component(&self, code: &[u8]) -> Result<Vec<GuestFunction>, ComponentLoadError> {
        match self.runtime.load_component_async(code.into()).await {
            Ok(component) => Ok(component.functions().to_vec()),
            Err(error @ LoadError::CompileTimeout { .. }) => {
                Err(ComponentLoadError::TimedOut(error.to_string()))
            }
            Err(error) => Err(ComponentLoadError::InvalidComponent(error.to_string())),
        }
    }

    async fn deployable_functions(
        &self,
        code: &[u8],
        hosts: &[String],
    ) -> Result<Vec<GuestFunction>, ComponentLoadError> {
        check_host_patterns(hosts)
            .map_err(|error| ComponentLoadError::InvalidHost(error.to_string()))?;
        self.load_component(code).await
    }

    fn is_loaded(&self, component: ComponentDigest) -> bool {
        self.runtime.find_loaded(component).is_some()
    }

    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        let GuestEntry {
            execution,
            input,
            parent,
        } = entry;
        let component = self
            .runtime
            .find_loaded(execution.component_digest)
            .ok_or(GuestUnavailable::CodeNotLoaded)?;
        let tenant = execution.tenant_id.to_string();
        if !self.runtime.has_room_for_workflow(&tenant) {
            return Err(GuestUnavailable::NoCapacity);
        }
        let context = CallContext {
            execution: execution.execution_id.to_string().into(),
            idempotency_key: parent
                .as_ref()
                .map(|(promise, _)| promise.to_string())
                .unwrap_or_default()
                .into(),
            attempt: parent.as_ref().map_or(1, |(_, attempt)| *attempt),
        };
        Ok(component.new_workflow(
            &tenant,
            &execution.function,
            input,
            context,
            WorkflowLimits::default(),
        ))
    }

    fn guest_capacity(&self) -> usize {
        self.runtime.free_workflow_slots()
    }

    async fn perform_task(
        &self,
        component: ComponentDigest,
        attempt: &TaskAttempt,
    ) -> Option<InvokeResult> {
        let component = self.runtime.find_loaded(component)?;
        let mut limits = TaskLimits::default();
        if let Some(ms) = attempt.timeout_ms {
            limits.timeout = Duration::from_millis(ms);
        }
        let services = Arc::clone(&self.services) as Arc<dyn TaskServices>;
        let owner = attempt.owner.clone();
        let call = TaskCall {
            owner,
            context: attempt_context(attempt),
            limits,
            http: self.attempt_egress(attempt),
            services,
        };
        Some(
            component
                .run_task(&attempt.function, &attempt.input, call)
                .await,
        )
    }

    async fn send_http_request(&self, attempt: &TaskAttempt) -> InvokeResult {
        let request = build_request(attempt)?;
        let is_once = attempt.delivery == DeliveryGuarantee::AtMostOnce;
        let response =
            self.attempt_egress(attempt)
                .send(request)
                .await
                .map_err(|error| match error.may_have_arrived() {
                    true if is_once => in_doubt_error(&error.to_string()),
                    _ => error.into_execution_error(),
                })?;
        if response.status >= 500 || response.status == 429 || response.status == 408 {
            let message = format!(
                "{} answered with status {}",
                attempt.function, response.status
            );
            // A server that responds 429, or 503 with `Retry-After`, has not started the work. A
            // gateway also responds 503 to requests that it has already forwarded, so 503 alone
            // proves nothing.
            let says_when = response
                .headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
            let is_refused = response.status == 429 || (response.status == 503 && says_when);
            let is_doubtful = is_once && !is_refused;
            return Err(if is_doubtful {
                in_doubt_error(&message)
            } else {
                ExecutionError::from_kind_name("http_status", message)
            });
        }
        let body = String::from_utf8_lossy(&response.body).into_owned();
        let answer = HttpInvokeOutput {
            status: response.status,
            headers: group_headers(response.headers),
            body,
        };
        Payload::from_value(&answer)
            .map_err(|error| ExecutionError::from_kind_name("http_body", error.to_string()))
    }
}

/// Context of the attempt; its idempotency key is the same for every attempt.
fn attempt_context(attempt: &TaskAttempt) -> CallContext {
    let id = attempt.id;
    CallContext {
        execution: SharedText::from(id.execution.to_string().as_str()),
        idempotency_key: idempotency_key(attempt),
        attempt: id.attempt,
    }
}

fn idempotency_key(attempt: &TaskAttempt) -> SharedText {
    SharedText::from(attempt.id.promise_id().to_string().as_str())
}

/// Input of an HTTP invocation: headers and body, in addition to `METHOD URL`.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct HttpInvokeInput {
    headers: BTreeMap<String, String>,
    body: Option<String>,
}

#[derive(Serialize)]
struct HttpInvokeOutput {
    status: u16,
    headers: BTreeMap<String, HeaderValues>,
    body: String,
}

/// Values of one header name: a text, or a list if there are several.
#[derive(Serialize)]
#[serde(untagged)]
enum HeaderValues {
    One(String),
    Several(Vec<String>),
}

/// Groups headers by name. Values of the same name are not joined, because not all of them could be
/// separated again.
fn group_headers(headers: Vec<(String, String)>) -> BTreeMap<String, HeaderValues> {
    let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        named.entry(name).or_default().push(value);
    }
    let values = |values| match <[String; 1]>::try_from(values) {
        Ok([value]) => HeaderValues::One(value),
        Err(values) => HeaderValues::Several(values),
    };
    named
        .into_iter()
        .map(|(name, its)| (name, values(its)))
        .collect()
}

fn build_request(attempt: &TaskAttempt) -> Result<HttpRequest, ExecutionError> {
    let wrong =
        |message: String| ExecutionError::from_kind_name("http_invalid", message).into_permanent();
    let (method, url) = attempt
        .function
        .split_once(' ')
        .ok_or_else(|| wrong("expected METHOD URL".to_owned()))?;
    let asked: HttpInvokeInput =
        serde_json::from_str(attempt.input.as_str()).map_err(|error| wrong(error.to_string()))?;
    Ok(HttpRequest {
        method: method.to_owned(),
        url: url.to_owned(),
        headers: asked.headers.into_iter().collect(),
        body: asked.body.unwrap_or_default().into(),
        timeout: attempt.timeout_ms.map(Duration::from_millis),
        idempotency_key: Some(idempotency_key(attempt)),
    })
}

/// Task services of the operating system: real time, secure randomness, and the process log.
struct SystemServices;

impl TaskServices for SystemServices {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        if let Err(error) = getrandom::fill(bytes) {
            tracing::error!(%error, "the operating system has no entropy");
            std::process::abort();
        }
    }

    fn log_line(&self, context: &CallContext, level: GuestLogLevel, message: &str) {
        log_guest_line(&context.execution, level, message);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use onward_engine::shard::{AttemptId, ResolvedFunction};
    use onward_journal::{ExecutionId, InvokeKind};
    use onward_wasm::HostRule;

    use super::*;

    #[test]
    fn repeated_headers_are_kept_in_order() {
        let headers = [
            ("set-cookie", "b=1"),
            ("etag", "x"),
            ("set-cookie", "a=2"),
            ("set-cookie", "b=1"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let written = serde_json::to_string(&group_headers(headers.into())).unwrap();
        assert_eq!(written, r#"{"etag":"x","set-cookie":["b=1","a=2","b=1"]}"#);
    }

    /// Sends a request to a server that responds with `response` and closes the connection; without
    /// a response there is no server. Returns the kind of the failure and whether it is retryable.
    async fn failure(
        delivery: DeliveryGuarantee,
        response: Option<&'static str>,
    ) -> (String, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = response.map(|response| {
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _read = stream.read(&mut [0; 4_096]).unwrap();
                stream.write_all(response.as_bytes()).unwrap();
            })
        });
        let rule = HostRule {
            pattern: address.parse().unwrap(),
            private_networks: true,
        };
        let http = HttpConfig {
            host_rules: vec![rule],
            ..HttpConfig::default()
        };
        let wasm = WasmComponentRuntime::new(Config::default(), http).unwrap();
        let attempt = TaskAttempt {
            id: AttemptId {
                execution: ExecutionId::default(),
                number: 0,
                attempt: 1,
            },
            dispatch_id: 0,
            kind: InvokeKind::Http,
            resolved: ResolvedFunction::Native,
            function: format!("POST http://{address}/").parse().unwrap(),
            input: Payload::parse("{}").unwrap(),
            timeout_ms: None,
            delivery,
            hosts: [SharedText::from(&*address)].into(),
            owner: "acme".into(),
        };
        let error = wasm.send_http_request(&attempt).await.unwrap_err();
        if let Some(server) = server {
            server.join().unwrap();
        }
        (error.kind.to_string(), error.retryable)
    }

    #[tokio::test]
    async fn an_at_most_once_request_is_in_doubt_if_it_may_have_been_received() {
        let busy = Some("HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n");
        let away = Some("HTTP/1.1 503 Away\r\ncontent-length: 0\r\n\r\n");
        let broken = Some("HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n");
        let silent = Some("");
        for (response, once, more) in [
            (busy, ("http_status", true), "http_status"),
            (away, ("in_doubt", false), "http_status"),
            (broken, ("in_doubt", false), "http_status"),
            (silent, ("in_doubt", false), "http_failed"),
        ] {
            let (kind, retryable) = failure(DeliveryGuarantee::AtMostOnce, response).await;
            assert_eq!((&*kind, retryable), once, "{response:?}");
            assert_eq!(
                failure(DeliveryGuarantee::AtLeastOnce, response).await,
                (more.to_owned(), true),
                "{response:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_request_without_a_connection_is_retryable() {
        let failed = failure(DeliveryGuarantee::AtMostOnce, None);
        assert_eq!(failed.await, ("http_failed".to_owned(), true));
    }
}
