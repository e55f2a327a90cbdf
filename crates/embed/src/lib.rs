//! Onward in your own process: durable workflows without a server beside it.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use onward_embed::{Call, Engine};
//!
//! let engine = Engine::builder("sqlite:orders.db")
//!     .task("charge", |amount: u32, call: Call| async move {
//!         // The key is the same for every attempt: hand it to whoever takes the money.
//!         println!("charging {amount} under {}", call.idempotency_key());
//!         Ok(true)
//!     })
//!     .open()
//!     .await?;
//! engine.deploy(&std::fs::read("orders.wasm")?, &[]).await?;
//! let order = engine.start("order", &42, Some("order-42")).await?;
//! let receipt: String = engine.wait(order.execution).await??;
//! println!("{receipt}");
//! engine.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Workflows are WASM components, so that they can be replayed; tasks are too, or HTTP requests, or functions of this
//! process. Any number of processes can work on one Postgres store, and one on a SQLite store while others look on.

mod builder;
mod engine;
pub mod store;
mod task_context;
mod wasm;

pub use builder::EngineBuilder;
pub use engine::{Engine, EngineError};
pub use onward_base::Payload;
pub use onward_base::Scope;
pub use onward_engine::client::{
    ClientError, EngineClient, FunctionInfo, FunctionKind, StartedExecution,
};
pub use onward_journal::{ErrorKind, ExecutionError, ExecutionId, InvokeResult};
pub use onward_wasm::{HostPattern, HostRule};
pub use task_context::NativeTaskContext;
pub use wasm::WasmComponentRuntime;
