//! Tasks that the process itself performs, and how any task is performed.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use onward_journal::{ComponentDigest, Delivery, ErrorKind, ExecutionError, InvokeKind, InvokeResult};
use onward_store::Error;

use super::shard_loop::LATER;
use super::{Node, measure};
use crate::shard::{Attempt, IN_DOUBT, Resolved, in_doubt};

/// The kind of failure of a task that panicked.
const PANIC: &str = "panic";

/// A task written in Rust.
#[async_trait]
pub trait Task: Send + Sync {
    /// Performs an attempt.
    async fn perform(&self, attempt: &Attempt) -> InvokeResult;
}

#[async_trait]
impl<F, A> Task for F
where
    F: Fn(Attempt) -> A + Send + Sync,
    A: Future<Output = InvokeResult> + Send,
{
    async fn perform(&self, attempt: &Attempt) -> InvokeResult {
        self(attempt.clone()).await
    }
}

/// The tasks of this process.
#[derive(Clone, Default)]
pub struct Native(BTreeMap<String, Arc<dyn Task>>);

impl Native {
    /// Adds a task.
    #[must_use]
    pub fn task(mut self, name: &str, task: impl Task + 'static) -> Self {
        self.0.insert(name.to_owned(), Arc::new(task));
        self
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<dyn Task>> {
        self.0.get(name).cloned()
    }
}

/// Performs an attempt. Whatever panics in it takes nobody along.
pub(super) async fn perform(node: &Node, attempt: &Attempt) -> InvokeResult {
    let done = AssertUnwindSafe(work(node, attempt)).catch_unwind().await;
    let result = done.unwrap_or_else(|panic| Err(panicked(&*panic)));
    match attempt.delivery {
        Delivery::AtLeastOnce => result,
        Delivery::AtMostOnce => result.map_err(|error| doubted(attempt, error)),
    }
}

/// A task that has ended without an answer of its own may have done what must not be repeated.
fn doubted(attempt: &Attempt, error: ExecutionError) -> ExecutionError {
    let error = match &error.kind {
        ErrorKind::Timeout | ErrorKind::Trap => in_doubt(&error.message),
        ErrorKind::Named(_) if error.kind.as_str() == PANIC => in_doubt(&error.message),
        _ => error,
    };
    if error.kind.as_str() == IN_DOUBT {
        measure::in_doubt(attempt.id);
    }
    error
}

/// Whoever runs code or sends requests minds the time that it may take.
async fn work(node: &Node, attempt: &Attempt) -> InvokeResult {
    let library = &node.library;
    match (attempt.kind, attempt.resolved) {
        (InvokeKind::Http, _) => library.code.http(attempt).await,
        (InvokeKind::Function, Resolved::Task(component)) => task(node, component, attempt).await,
        (InvokeKind::Function, Resolved::Native) => match library.native(&attempt.function) {
            Some(task) => native(&*task, attempt).await,
            None => Err(unknown(attempt)),
        },
        (InvokeKind::Function, Resolved::Workflow(_) | Resolved::Worker | Resolved::Unknown) => Err(unknown(attempt)),
    }
}

/// The code may have left memory for others. That it cannot be read now is not the task's fault, and costs no attempt.
async fn task(node: &Node, component: ComponentDigest, attempt: &Attempt) -> InvokeResult {
    loop {
        if let Some(result) = node.library.code.task(component, attempt).await {
            return result;
        }
        match node.library.ensure(&*node.store, component).await {
            Ok(true) => {}
            Ok(false) => return Err(not_loaded("it is not in the store")),
            Err(error @ Error::Corrupt(_)) => return Err(not_loaded(error)),
            Err(error) => {
                tracing::warn!(%component, %error, "a component could not be read; it will be tried again");
                tokio::time::sleep(LATER).await;
            }
        }
    }
}

async fn native(task: &dyn Task, attempt: &Attempt) -> InvokeResult {
    let work = task.perform(attempt);
    match attempt.timeout_ms {
        None => work.await,
        Some(ms) => match tokio::time::timeout(Duration::from_millis(ms), work).await {
            Ok(done) => done,
            Err(_) => Err(ExecutionError::new(ErrorKind::Timeout, format!("no result in {ms} ms"))),
        },
    }
}

fn panicked(panic: &(dyn Any + Send)) -> ExecutionError {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    ExecutionError::named(PANIC, format!("the task panicked: {}", words.as_deref().unwrap_or("without a word")))
}

fn not_loaded(reason: impl Display) -> ExecutionError {
    ExecutionError::named("not_loaded", format!("its component cannot be loaded: {reason}"))
}

fn unknown(attempt: &Attempt) -> ExecutionError {
    ExecutionError::named("unknown_function", format!("there is no task {}", attempt.function))
}
