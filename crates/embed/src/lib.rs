//! Embeds Onward in your own process: durable workflows without a separate server.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use onward_embed::{Engine, NativeTaskContext};
//!
//! let engine = Engine::builder("sqlite:orders.db")
//!     .with_task("charge", |amount: u32, call: NativeTaskContext| async move {
//!         // The key is the same for every attempt: pass it to the payment service.
//!         println!("charging {amount} under {}", call.idempotency_key());
//!         Ok(true)
//!     })
//!     .open()
//!     .await?;
//! engine.deploy_component(&std::fs::read("orders.wasm")?, &[]).await?;
//! let order = engine.start_execution("order", &42, Some("order-42")).await?;
//! let receipt: String = engine.wait_for_output(order.execution).await??;
//! println!("{receipt}");
//! engine.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Workflows are WASM components, so that they can be replayed. Tasks are WASM components, HTTP
//! requests, or functions of this process. Any number of processes can work on the same Postgres
//! store; a SQLite store has one working process, while others may read it.

mod builder;
mod engine;
pub mod store;
mod task_context;
mod wasm;

pub use builder::EngineBuilder;
pub use engine::{Engine, EngineError};
pub use onward_base::{Payload, Scope};
pub use onward_engine::client::{ClientError, EngineClient, StartedExecution};
pub use onward_execution::{GuestFunction, GuestFunctionKind};
pub use onward_journal::{ErrorKind, ExecutionError, ExecutionId, InvokeResult};
pub use onward_wasm::{HostPattern, HostRule};
pub use task_context::NativeTaskContext;
pub use wasm::WasmComponentRuntime;
