//! Guests: WASM components that are compiled, limited and run, as workflows and as tasks.
//!
//! This is the only crate that knows wasmtime. A workflow is a [`onward_execution::Guest`]: a coroutine that asks for
//! everything it does not compute, and computes the same thing every time. A task runs to its end under tokio, with real
//! time and randomness and requests to hosts that are allowed.
//!
//! - [`Runtime`]: compiles components, checks what they want and can do, and keeps them.
//! - [`Component::workflow`], [`Component::task`]: calls a function of one.
//! - [`Http`]: requests to the outside. It knows nothing of WASM.

mod bindings;
mod cache;
mod component;
mod config;
mod guest_error;
mod host;
mod http;
mod limiter;
mod load;
mod mailbox;
mod runtime;
mod task;
mod warm_pool;
mod wasi;
mod workflow_guest;

pub use component::{GuestFunction, GuestFunctionKind, LoadedComponent};
pub use config::{Config, TaskLimits, WorkflowLimits};
pub use host::CallContext;
pub use http::{
    AddressClass, ComponentEgress, GuestHttpClient, HostPattern, HostPatternError, HostResolver,
    HostRule, HttpConfig, HttpError, HttpRequest, HttpResponse, SystemResolver, classify_address,
};
pub use load::LoadError;
pub use runtime::{RuntimeError, WasmRuntime};
pub use task::{TaskCall, TaskServices};
