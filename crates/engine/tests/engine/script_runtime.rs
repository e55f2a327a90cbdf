//! What tests of a node share: a store in memory with virtual time, and code that is written as
//! scripts.

use std::sync::Arc;

use async_trait::async_trait;
use onward_base::{Payload, Scope, Timestamp};
use onward_engine::client::EngineClient;
use onward_engine::node::{ComponentLoadError, ComponentRuntime};
use onward_engine::shard::{GuestEntry, GuestUnavailable, TaskAttempt};
use onward_execution::{Guest, GuestFunction, GuestFunctionKind, ScriptedGuest};
use onward_journal::{ComponentDigest, ErrorKind, ExecutionError, InvokeResult};
use onward_store::memory::MemoryStore;
use onward_store::{Store, StoreClock, StorePolicy};
use tokio::time::Instant;

/// The virtual time of the runtime, as a store's clock.
struct Paused(Instant);

impl StoreClock for Paused {
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH.plus_ms(1_000_000 + u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

pub(crate) fn json(text: &str) -> Payload {
    Payload::parse(text).unwrap()
}

/// A new store in virtual time.
pub(crate) fn memory() -> MemoryStore {
    MemoryStore::new(StorePolicy::default(), Arc::new(Paused(Instant::now())))
}

/// Access to a new store, in which these workflows are deployed.
pub(crate) async fn deployed(functions: &[&str]) -> EngineClient {
    deployed_on(Arc::new(memory()), functions).await
}

/// Like `deployed`, on this store.
pub(crate) async fn deployed_on(store: Arc<dyn Store>, functions: &[&str]) -> EngineClient {
    let scope = Scope {
        tenant: "acme".parse().unwrap(),
        project: "shop".parse().unwrap(),
        environment: "prod".parse().unwrap(),
    };
    let client = EngineClient::new(store, scope);
    client
        .deploy_component(b"scripts", &workflows(functions), &[])
        .await
        .unwrap();
    client
}

pub(crate) fn workflows(names: &[&str]) -> Vec<GuestFunction> {
    let info = |name: &&str| GuestFunction {
        name: name.parse().unwrap(),
        kind: GuestFunctionKind::Workflow,
        schema: None,
    };
    names.iter().map(info).collect()
}

/// A component that no code can run.
pub(crate) const BROKEN: &[u8] = b"broken";

/// Code whose workflows are scripts, made by function and input.
pub(crate) struct Scripts {
    pub(crate) functions: &'static [&'static str],
    pub(crate) script: fn(&str, Payload) -> ScriptedGuest,
}

#[async_trait]
impl ComponentRuntime for Scripts {
    async fn load_component(&self, code: &[u8]) -> Result<Vec<GuestFunction>, ComponentLoadError> {
        if code == BROKEN {
            Err(ComponentLoadError::InvalidComponent(
                "broken by the test".to_owned(),
            ))
        } else {
            Ok(workflows(self.functions))
        }
    }

    fn is_loaded(&self, component: ComponentDigest) -> bool {
        component != ComponentDigest::from_component(BROKEN)
    }

    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        Ok(Box::new((self.script)(
            &entry.execution.function,
            entry.input.clone(),
        )))
    }

    async fn perform_task(&self, _: ComponentDigest, _: &TaskAttempt) -> Option<InvokeResult> {
        Some(Err(ExecutionError::new(
            ErrorKind::UserError,
            "scripts have no tasks",
        )))
    }

    async fn send_http_request(&self, _: &TaskAttempt) -> InvokeResult {
        Err(ExecutionError::new(
            ErrorKind::UserError,
            "scripts have no network",
        ))
    }
}
