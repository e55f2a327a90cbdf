//! Tests of workflows without WASM and without a server: see [`TestEnv`].

mod attempt;
mod env;
mod execution;
mod limits;
mod perform_request;
pub(crate) mod protocol;
pub(crate) mod scope;
mod simulation;
mod state;

pub use crate::testing::env::TestEnv;
