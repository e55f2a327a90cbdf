//! Durable workflows and tasks for Onward, written as plain functions.
//!
//! ```
//! use onward::prelude::*;
//!
//! #[task]
//! fn double(n: u64) -> Result<u64> {
//!     Ok(2 * n)
//! }
//!
//! #[workflow]
//! fn order(n: u64) -> Result<u64> {
//!     sleep(Duration::from_secs(60))?;
//!     invoke::<double>(n)
//! }
//!
//! onward::component!(order, double);
//!
//! # fn main() {
//! assert_eq!(onward::testing::TestEnv::new().run::<order>(21), Ok(42));
//! # }
//! ```
//!
//! A **workflow** is replayed from its journal after a crash: what the functions of this crate answered the first time they
//! answer again, so it goes on where it was. It must get everything that can differ from them: time from [`now`],
//! randomness from [`random_u64`], effects from tasks. A **task** has effects. It runs at least once and its result is
//! recorded once; [`own`] tells it the idempotency key to send along.

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit",
        world: "component",
        pub_export_macro: true,
        export_macro_name: "__onward_export",
        default_bindings_module: "::onward::bindings",
        runtime_path: "::onward::bindings::wit_bindgen_rt",
    });
    pub use wit_bindgen::rt as wit_bindgen_rt;
}

mod call;
mod clock;
#[doc(hidden)]
pub mod component;
mod context;
mod entropy;
mod error;
mod function;
mod host;
mod http;
mod join_set;
#[doc(hidden)]
pub mod log;
mod payload;
pub mod prelude;
mod promise;
mod retry;
mod signal;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

/// The page's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// The attributes name this crate as their user does.
extern crate self as onward;

pub use onward_sdk_macros::{task, workflow};
/// Any JSON value.
pub use serde_json::Value as Json;

pub use crate::call::{Call, call, call_named, invoke, schedule};
pub use crate::clock::{Timestamp, now, sleep, timer};
pub use crate::context::{Context, continue_as_new, is_cancelled, own};
pub use crate::entropy::{random_bytes, random_u64};
pub use crate::error::{Error, Result};
pub use crate::function::{Function, Kind, Returned, Task, Workflow};
pub use crate::http::{Http, Request, Response, http};
pub use crate::join_set::{Done, JoinSet, Taken, join_set};
pub use crate::log::Level;
pub use crate::payload::Argument;
pub use crate::promise::{AnyPromise, First, Promise, all, all_settled, any, race};
pub use crate::retry::Retry;
pub use crate::signal::{await_signal, await_signal_timeout};
