//! Compiles, limits and runs guests: WASM components that export workflows and tasks.
//!
//! This is the only crate that depends on wasmtime. A workflow is an [`onward_execution::Guest`]: a
//! coroutine that requests everything it does not compute from the engine, and that computes the
//! same thing on every replay. A task runs to completion under tokio, with real time and
//! randomness, and may send requests to allowed hosts.
//!
//! - [`WasmRuntime`]: compiles components, checks their imports and exports, and keeps them in
//!   memory.
//! - [`LoadedComponent::new_workflow`], [`LoadedComponent::run_task`]: call a function of a
//!   component.
//! - [`GuestHttpClient`]: outgoing HTTP requests. It is independent of WASM.

mod bindings;
mod cache;
mod compile_pool;
mod component;
mod config;
mod guest_error;
mod host;
mod http;
mod limiter;
mod load;
mod mailbox;
mod memory_budget;
mod runtime;
mod slice_clock;
mod task;
mod warm_pool;
mod wasi;
mod workflow_guest;

pub use component::LoadedComponent;
pub use config::{Config, TaskLimits, WorkflowLimits};
pub use host::CallContext;
pub use http::{
    AddressClass, ComponentEgress, GuestHttpClient, HostPattern, HostPatternError, HostResolver,
    HostRule, HttpConfig, HttpError, HttpRequest, HttpResponse, SystemResolver, classify_address,
};
pub use load::LoadError;
pub use onward_execution::{GuestFunction, GuestFunctionKind};
pub use runtime::{RuntimeError, WasmRuntime};
pub use task::{TaskCall, TaskServices};
