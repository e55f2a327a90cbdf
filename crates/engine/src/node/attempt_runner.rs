//! Native tasks of this process, and the code that performs an attempt of any task.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use onward_journal::{
    ComponentDigest, DeliveryGuarantee, ErrorKind, ExecutionError, InvokeKind, InvokeResult,
};
use onward_store::Error;

use super::shard_loop::RETRY_DELAY;
use super::{Node, node_metrics};
use crate::shard::{IN_DOUBT_KIND, ResolvedFunction, TaskAttempt, in_doubt_error};

/// Error kind of a task that panicked.
const PANIC_KIND: &str = "panic";

/// A task implemented in Rust that runs in this process.
#[async_trait]
pub trait NativeTask: Send + Sync {
    /// Performs one attempt of the task and returns its result.
    async fn perform_attempt(&self, attempt: &TaskAttempt) -> InvokeResult;
}

#[async_trait]
impl<F, A> NativeTask for F
where
    F: Fn(TaskAttempt) -> A + Send + Sync,
    A: Future<Output = InvokeResult> + Send,
{
    async fn perform_attempt(&self, attempt: &TaskAttempt) -> InvokeResult {
        self(attempt.clone()).await
    }
}

/// The native tasks of this process, by name.
#[derive(Clone, Default)]
pub struct NativeTaskRegistry(BTreeMap<String, Arc<dyn NativeTask>>);

impl NativeTaskRegistry {
    /// Adds a task, replacing any task of the same name.
    #[must_use]
    pub fn with_task(mut self, name: &str, task: impl NativeTask + 'static) -> Self {
        self.0.insert(name.to_owned(), Arc::new(task));
        self
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<dyn NativeTask>> {
        self.0.get(name).cloned()
    }
}

/// Performs an attempt. A panic becomes an error of this attempt and affects nothing else.
pub(super) async fn run_attempt(node: &Node, attempt: &TaskAttempt) -> InvokeResult {
    let done = AssertUnwindSafe(dispatch_attempt(node, attempt))
        .catch_unwind()
        .await;
    let result = done.unwrap_or_else(|panic| Err(panic_error(&*panic)));
    match attempt.delivery {
        DeliveryGuarantee::AtLeastOnce => result,
        DeliveryGuarantee::AtMostOnce => result.map_err(|error| mark_in_doubt(attempt, error)),
    }
}

/// Marks an at-most-once attempt as in doubt if it ended without a result of its own: it may have
/// had an effect that must not be repeated.
fn mark_in_doubt(attempt: &TaskAttempt, error: ExecutionError) -> ExecutionError {
    let error = match &error.kind {
        ErrorKind::Timeout | ErrorKind::Trap => in_doubt_error(&error.message),
        ErrorKind::Named(_) if error.kind.as_str() == PANIC_KIND => in_doubt_error(&error.message),
        _ => error,
    };
    if error.kind.as_str() == IN_DOUBT_KIND {
        node_metrics::count_in_doubt(attempt.id);
    }
    error
}

/// Performs an attempt where its function is implemented. The runtime enforces the timeout of
/// component code and HTTP requests itself.
async fn dispatch_attempt(node: &Node, attempt: &TaskAttempt) -> InvokeResult {
    let library = &node.functions;
    match (attempt.kind, attempt.resolved) {
        (InvokeKind::Http, _) => library.runtime.send_http_request(attempt).await,
        (InvokeKind::Function, ResolvedFunction::Task(component)) => {
            run_component_task(node, component, attempt).await
        }
        (InvokeKind::Function, ResolvedFunction::Native) => {
            match library.native_task(&attempt.function) {
                Some(task) => run_native_task(&*task, attempt).await,
                None => Err(unknown_function_error(attempt)),
            }
        }
        (
            InvokeKind::Function,
            ResolvedFunction::Workflow(_) | ResolvedFunction::Worker | ResolvedFunction::Unknown,
        ) => Err(unknown_function_error(attempt)),
    }
}

/// Performs a task of a component, which may have been evicted from memory. A store that cannot be
/// read now does not count against the task: the component is loaded again without using up an
/// attempt.
async fn run_component_task(
    node: &Node,
    component: ComponentDigest,
    attempt: &TaskAttempt,
) -> InvokeResult {
    loop {
        if let Some(result) = node
            .functions
            .runtime
            .perform_task(component, attempt)
            .await
        {
            return result;
        }
        match node.functions.ensure_loaded(&*node.store, component).await {
            Ok(true) => {}
            Ok(false) => return Err(not_loaded_error("it is not in the store")),
            Err(error @ Error::Corrupt(_)) => return Err(not_loaded_error(error)),
            Err(error) => {
                tracing::warn!(%component, %error, "component could not be read; retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

async fn run_native_task(task: &dyn NativeTask, attempt: &TaskAttempt) -> InvokeResult {
    let work = task.perform_attempt(attempt);
    match attempt.timeout_ms {
        None => work.await,
        Some(ms) => match tokio::time::timeout(Duration::from_millis(ms), work).await {
            Ok(done) => done,
            Err(_) => Err(ExecutionError::new(
                ErrorKind::Timeout,
                format!("no result in {ms} ms"),
            )),
        },
    }
}

fn panic_error(panic: &(dyn Any + Send)) -> ExecutionError {
    let message = panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
    ExecutionError::from_kind_name(
        PANIC_KIND,
        format!(
            "the task panicked: {}",
            message.as_deref().unwrap_or("no message")
        ),
    )
}

fn not_loaded_error(reason: impl Display) -> ExecutionError {
    ExecutionError::from_kind_name(
        "not_loaded",
        format!("its component cannot be loaded: {reason}"),
    )
}

fn unknown_function_error(attempt: &TaskAttempt) -> ExecutionError {
    ExecutionError::from_kind_name(
        "unknown_function",
        format!("task {} not found", attempt.function),
    )
}
