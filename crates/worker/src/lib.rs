//! Workers: processes that perform the tasks of workflows, in Rust. Clients in other languages do the same.
//!
//! ```no_run
//! use onward_worker::{Access, Failure, Task, Worker};
//!
//! # async fn example() -> Result<(), onward_worker::Problem> {
//! let access = Access { url: "http://127.0.0.1:7400".to_owned(), ..Access::default() };
//! let worker = Worker::new(&access)?.task("greet", |name: String, _: Task| async move {
//!     if name.is_empty() { Err(Failure::named("nobody", "whom?").permanent()) } else { Ok(format!("Hello, {name}!")) }
//! });
//! worker.run(async { std::future::pending().await }).await
//! # }
//! ```
//!
//! A worker asks the server for tasks, performs as many at a time as it has slots, and shows that it is alive meanwhile.
//! Whatever it claims and does not end, because it dies or stalls, is performed again by another; a task that must not be
//! repeated is in doubt then. So effects belong under [`Task::promise`], which is the same for every attempt.

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
