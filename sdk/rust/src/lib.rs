//! Durable workflows and tasks for Onward, written as plain functions.
//!
//! ```
//! use onward::prelude::*;
//! use onward::testing::TestEnv;
//!
//! #[task]
//! fn reserve(item: String) -> Result<String> {
//!     http("POST https://stock.example.com/reservations").json(&item).send()?.successful()?.text()
//! }
//!
//! #[task]
//! fn release(reservation: String) -> Result<()> {
//!     http(&format!("DELETE https://stock.example.com/reservations/{reservation}")).send()?.successful()?;
//!     Ok(())
//! }
//!
//! #[task]
//! fn charge(customer: String, cents: u64) -> Result<String> {
//!     if cents == 0 {
//!         return Err(Error::new("nothing_to_pay", "an order is never free").non_retryable());
//!     }
//!     http("POST https://bank.example.com/charges").json(&(customer, cents)).send()?.successful()?.text()
//! }
//!
//! /// Processes an order from its reservation to its payment; survives crashes and long approvals.
//! #[workflow]
//! fn order(customer: String, item: String, cents: u64) -> Result<String> {
//!     let retry = RetryPolicy::max_attempts(5).initial_interval(Duration::from_millis(200));
//!     let reservation = call(reserve, &item).retry(retry).run()?;
//!     let paid = match await_signal_timeout("approval", Duration::from_secs(86_400)) {
//!         Ok(Some(true)) => invoke(charge, (customer, cents)),
//!         Ok(_) => Err(Error::new("not_approved", format!("no approval for {item}"))),
//!         Err(cancelled) => Err(cancelled),
//!     };
//!     if paid.is_err() {
//!         invoke(release, reservation)?;
//!     }
//!     paid
//! }
//!
//! onward::component!(order, reserve, release, charge);
//!
//! // A test: native, in virtual time, without WASM or a server.
//! # fn main() {
//! let mut env = TestEnv::new();
//! env.stub(reserve, |item| Ok(format!("one {item}")));
//! env.stub(release, |_| Ok(()));
//! env.stub(charge, |(customer, cents)| Ok(format!("{customer} paid {cents}")));
//! env.signal_at(Duration::from_secs(3_600), "approval", &true);
//! let input = || ("Ada".to_owned(), "lamp".to_owned(), 500);
//! assert_eq!(env.crash_everywhere(order, input()), Ok("Ada paid 500".to_owned()));
//! env.cancel_at(Duration::from_secs(60));
//! assert!(env.crash_everywhere(order, input()).is_err_and(|error| error.is_cancelled()));
//! assert_eq!(env.recorded_inputs(release), ["one lamp"]);
//! # }
//! ```
//!
//! A [**workflow**](macro@workflow) is replayed from its journal after a crash: the functions of
//! this crate return the recorded results again, so the workflow continues where it was. It must
//! take time, randomness and side effects only from this crate, effects through tasks. A
//! [**task**](macro@task) has side effects. It *runs* at least once, and its result is *recorded*
//! once; use the idempotency key of [`call_context`] for effects that must not be repeated.
//! Requests carry it already: see [`http`].
//!
//! # Every call
//!
//! | to | write |
//! |---|---|
//! | call and wait | [`invoke`]`(f, input)?`; several arguments are a tuple, none is `()` |
//! | call, wait later | `let p = `[`schedule`]`(f, &input)?;` `p.`[`wait`](Promise::wait)`()?`, `p.`[`wait_timeout`](Promise::wait_timeout)`(d)?` |
//! | set policies | [`call`]`(f, x).`[`retry`](Call::retry)`(`[`RetryPolicy`]`::max_attempts(3).non_retryable("card_declined")).`[`timeout`](Call::timeout)`(d).`[`at_most_once`](Call::at_most_once)`().`[`run`](Call::run)`()?`, or [`schedule`](Call::schedule)`()?` |
//! | call by name | [`call_named`]`("name", &input).run()?` |
//! | wait for several | [`all`]`(&[p, q])?`, [`all_settled`]`(&[p, q])?`, [`any`]`(&[p, q])?`, [`race`]`(p, q)?` |
//! | run many, take results as they complete | `let mut set = `[`join_set`]`()?;` `set.`[`submit`](JoinSet::submit)`(f, x)?;` `while let Some(done) = set.`[`next`](JoinSet::next)`()? { done.result?; }`; also [`submit_call`](JoinSet::submit_call), [`add`](JoinSet::add), [`next_timeout`](JoinSet::next_timeout), [`close`](JoinSet::close) |
//! | wait, or read the time | [`sleep`]`(d)?`, [`timer`]`(d)?`, [`now`]`()` |
//! | get randomness | [`random_u64`]`()`, [`random_bytes`]`(n)` |
//! | receive a signal | `let a: Approval = `[`await_signal`]`("approval")?`, [`await_signal_timeout`]`("approval", d)?` |
//! | send a request | [`http`]`("POST https://…").`[`header`](RequestBuilder::header)`(k, v).`[`json`](RequestBuilder::json)`(&body).`[`send`](RequestBuilder::send)`()?`; in a workflow it is an operation of its own, to which [`into_call`](RequestBuilder::into_call)`()` gives a policy |
//! | restart with an empty journal | `return `[`continue_as_new`]`(f, input)` |
//! | fail | `Err(`[`Error`]`::new("card_declined", "…").`[`non_retryable`](Error::non_retryable)`())`; any error becomes one with `?` |
//! | clean up | `Err(e) if e.`[`is_cancelled`](Error::is_cancelled)`() => { invoke(refund, x)?; Err(e) }`, [`is_cancelled`]`()` |
//! | log | [`info!`]`("…")`, [`warn!`], [`error!`], [`debug!`]; not repeated on replay |
//! | identify the call | [`call_context`]`()`: the execution, the idempotency key, the attempt |
//! | make a component | [`component!`]`(order, reserve)`, once, in a `cdylib` |
//! | publish a JSON schema | `#[workflow(schema)]`, with the feature `schema` and `JsonSchema` of the input |
//! | test | [`testing::TestEnv`] |
//!
//! Inputs and results are owned values that serde can read and write. All of this is for workflows;
//! a task has `http`, `now`, randomness, the log and `call_context`.

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
mod callable;
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
#[doc(hidden)]
pub mod schema;
mod signal;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// The attributes expand to paths that begin with `onward`, also in this crate.
extern crate self as onward;

pub use onward_sdk_macros::{task, workflow};
/// The derive macro for inputs of functions with a schema; use it with `#[schemars(crate =
/// "onward::schemars")]`.
#[cfg(feature = "schema")]
pub use schemars::{self, JsonSchema};
/// Any JSON value.
pub use serde_json::Value as Json;

pub use crate::call::{Call, call, call_named, invoke, schedule};
pub use crate::callable::{Callable, DirectCallError, DirectCallResult, InputOf, OutputOf};
pub use crate::clock::{Timestamp, now, sleep, timer};
pub use crate::context::{CallContext, call_context, continue_as_new, is_cancelled};
pub use crate::entropy::{random_bytes, random_u64};
pub use crate::error::{Error, Result};
pub use crate::function::{Function, FunctionKind, FunctionResult, Task, Workflow};
pub use crate::http::{HttpRequest, HttpResponse, RequestBuilder, http};
pub use crate::join_set::{JoinResult, JoinSet, NextResult, join_set};
pub use crate::log::LogLevel;
pub use crate::payload::CallArgument;
pub use crate::promise::{AnyPromise, Promise, RaceResult, all, all_settled, any, race};
pub use crate::retry::RetryPolicy;
pub use crate::signal::{await_signal, await_signal_timeout};
