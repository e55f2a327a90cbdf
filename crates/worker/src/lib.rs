//! Workers in Rust: processes that perform the tasks of workflows. Clients in other languages use
//! the same protocol.
//!
//! ```no_run
//! use onward_worker::{ClientConfig, TaskFailure, Worker, WorkerTaskContext};
//!
//! # async fn example() -> Result<(), onward_worker::Problem> {
//! // The server and the token of ONWARD_SERVER and ONWARD_TOKEN.
//! let worker = Worker::new(&ClientConfig::from_env())?.register_task(
//!     "greet",
//!     |name: String, _: WorkerTaskContext| async move {
//!         if name.is_empty() {
//!             Err(TaskFailure::with_code("empty_name", "the name is empty").non_retryable())
//!         } else {
//!             Ok(format!("Hello, {name}!"))
//!         }
//!     },
//! );
//! worker.run(async { std::future::pending().await }).await
//! # }
//! ```
//!
//! A worker claims tasks from the server, performs at most as many at a time as it has slots, and
//! sends heartbeats meanwhile. If it dies or stalls before it ends a task, another worker performs
//! the task again; a task that must not be repeated is in doubt instead. Side effects should
//! therefore use [`WorkerTaskContext::promise_id`] as their idempotency key: it is equal for every
//! attempt.

mod backoff;
mod failure;
mod perform;
mod slot;
mod task;
mod worker;

pub use onward_api::client::{ApiClient, CallError, ClientConfig};
pub use onward_api::problem::{Code, Problem};
pub use onward_api::task::TaskDelivery;

pub use failure::TaskFailure;
pub use task::WorkerTaskContext;
pub use worker::Worker;
